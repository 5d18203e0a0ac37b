"""Headers that repeat what a request's body says."""

from __future__ import annotations

import base64

import pytest

from yiemagent.mcp.client_headers import header_fault, header_value, request_headers


def schema(**properties):
    return {"type": "object", "properties": properties}


REGION = {"type": "string", "x-mcp-header": "Region"}


def test_every_request_names_version_and_method():
    """Both are always there; the name or the address of what is asked for where there is one."""
    assert request_headers("2026-07-28", "tools/list", {"name": "x"}) == {
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/list",
    }
    assert request_headers("2026-07-28", "tools/call", {"name": "t"})["Mcp-Name"] == "t"
    assert request_headers("2026-07-28", "prompts/get", {"name": "p"})["Mcp-Name"] == "p"
    assert request_headers("2026-07-28", "resources/read", {"uri": "a:b"})["Mcp-Name"] == "a:b"


def test_annotated_arguments_are_mirrored():
    """Each that is given has its header, in depth too; absent, null and nested ones have none."""
    asked = schema(
        region=REGION,
        n={"type": "integer", "x-mcp-header": "N"},
        b={"type": "boolean", "x-mcp-header": "B"},
        absent={"type": "string", "x-mcp-header": "Absent"},
        null={"type": "string", "x-mcp-header": "Null"},
        deep=schema(x={"type": "string", "x-mcp-header": "Deep"}),
    )
    given = {"region": "eu", "n": 5, "b": False, "null": None, "deep": {"x": "y"}}
    headers = request_headers("2026-07-28", "tools/call", {"name": "t", "arguments": given}, asked)

    assert {name: text for name, text in headers.items() if name.startswith("Mcp-Param-")} == {
        "Mcp-Param-Region": "eu",
        "Mcp-Param-N": "5",
        "Mcp-Param-B": "false",
        "Mcp-Param-Deep": "y",
    }


@pytest.mark.parametrize("text", ["a", "", "a b", "~!", "x=?base64?y?=", "a\tb"])
def test_plain_text_is_sent_as_it_is(text):
    """Printable ASCII without a blank at its ends needs no wrapping."""
    assert header_value(text) == text


@pytest.mark.parametrize(
    "text", [" a", "a ", "é", "a\nb", "\x7f", "=?base64?eA==?=", "中", "\ud83d"]
)
def test_other_text_is_wrapped(text):
    """What a header can't carry, or what looks wrapped already, is wrapped."""
    wrapped = header_value(text)
    inner = wrapped.removeprefix("=?base64?").removesuffix("?=")

    assert wrapped == f"=?base64?{inner}?="
    assert base64.b64decode(inner).decode() == text.replace("\ud83d", "?")


@pytest.mark.parametrize(
    "given",
    [
        None,
        schema(),
        schema(a=REGION),
        schema(a=REGION, b=schema(c={"type": "integer", "x-mcp-header": "C"})),
        schema(**{"x-mcp-header": {"type": "string"}}),
        schema(a={"type": "string", "default": {"x-mcp-header": 5}}),
    ],
)
def test_sound_annotations_have_no_fault(given):
    """No annotation, good ones, and a property that is only called like one."""
    assert header_fault(given) is None


@pytest.mark.parametrize(
    "given",
    [
        schema(a={"type": "string", "x-mcp-header": ""}),
        schema(a={"type": "string", "x-mcp-header": "a b"}),
        schema(a={"type": "string", "x-mcp-header": "a\n"}),
        schema(a={"type": "string", "x-mcp-header": 5}),
        schema(a={"type": "number", "x-mcp-header": "A"}),
        schema(a={"type": ["string", "null"], "x-mcp-header": "A"}),
        schema(a={"x-mcp-header": "A"}),
        schema(a=REGION, b={"type": "string", "x-mcp-header": "region"}),
        schema(a={"type": "array", "items": REGION}),
        schema(a={"anyOf": [REGION]}),
        {"type": "object", "$defs": {"a": REGION}, "properties": {"a": {"$ref": "#/$defs/a"}}},
        schema(a={"type": "array", "items": schema(b=REGION)}),
    ],
)
def test_bad_annotations_have_one(given):
    """No token, twice, no scalar, or out of reach of plain properties."""
    assert header_fault(given)
