"""Headers that repeat the body of a stateless request."""

from __future__ import annotations

import pytest

from tests.support.mcp_wire import stateless
from yiemagent.mcp.jsonrpc import read_message
from yiemagent.mcp.server_headers import check_headers
from yiemagent.mcp.server_protocol import RpcFailure

SCHEMA = {
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "plain": {"type": "string"},
        "deep": {"properties": {"level": {"type": "integer", "x-mcp-header": "Level"}}},
        "loud": {"type": "boolean", "x-mcp-header": "Loud"},
    }
}
NAMED = {
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "query",
}


def check(headers, message):
    """Hold headers against a body."""
    request = read_message(message)
    check_headers(headers, request, lambda name: SCHEMA if name == "query" else None)


def call(**arguments):
    """A call of the tool with mirrored parameters."""
    return stateless(1, "tools/call", name="query", arguments=arguments)


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({}, {}),
        ({"region": None}, {}),
        ({"region": "us-west1", "plain": "x"}, {"mcp-param-region": "us-west1"}),
        ({"region": "Grüße"}, {"mcp-param-region": "=?base64?R3LDvMOfZQ==?="}),
        ({"deep": {"level": 42}}, {"mcp-param-level": "42.0"}),
        ({"loud": True}, {"mcp-param-loud": "true"}),
        ({"loud": False}, {"mcp-param-loud": "false"}),
    ],
)
def test_headers_that_repeat_the_arguments_pass(arguments, headers):
    """Plain and encoded values, numbers by their value, and no header for what is not there."""
    check({**NAMED, **headers}, call(**arguments))


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "us"}, {}),
        ({"region": "us"}, {"mcp-param-region": "eu"}),
        ({}, {"mcp-param-region": "us"}),
        ({"region": "us"}, {"mcp-param-region": "=?base64?dXM?="}),
        ({"region": "us"}, {"mcp-param-region": "=?base64?d!!z?="}),
        ({"region": "us"}, {"mcp-param-region": "=?base64?/w==?="}),
        ({"region": "ü"}, {"mcp-param-region": "ü"}),
        ({"deep": {"level": 42}}, {"mcp-param-level": "43"}),
        ({"deep": {"level": 42}}, {"mcp-param-level": "many"}),
        ({"deep": "flat"}, {"mcp-param-level": "1"}),
        ({"loud": True}, {"mcp-param-loud": "True"}),
    ],
)
def test_headers_that_differ_from_the_arguments_are_refused(arguments, headers):
    """Missing, different, undecodable and unsendable values are each a mismatch."""
    with pytest.raises(RpcFailure) as failure:
        check({**NAMED, **headers}, call(**arguments))

    assert failure.value.code == -32020


@pytest.mark.parametrize(
    "wrong",
    [
        {"mcp-protocol-version": "2025-11-25"},
        {"mcp-protocol-version": None},
        {"mcp-method": "tools/list"},
        {"mcp-method": None},
        {"mcp-name": "other"},
        {"mcp-name": None},
    ],
)
def test_the_standard_headers_must_be_there_and_right(wrong):
    """Version, method and name are each required."""
    headers = {key: value for key, value in {**NAMED, **wrong}.items() if value is not None}

    with pytest.raises(RpcFailure) as failure:
        check(headers, call())

    assert failure.value.code == -32020


def test_a_resource_is_named_by_its_uri():
    """`resources/read` repeats the URI, encoded where headers can't hold it."""
    headers = NAMED | {"mcp-method": "resources/read", "mcp-name": "=?base64?YTrDvA==?="}

    check(headers, stateless(1, "resources/read", uri="a:ü"))


def test_what_the_body_lacks_is_no_matter_of_headers():
    """A body without version, name or a known tool is left to the checks of the body."""
    message = call()
    del message["params"]["_meta"]
    del message["params"]["name"]

    check({"mcp-method": "tools/call"}, message)
    check({"mcp-method": "tools/list"}, {**message, "method": "tools/list"})
