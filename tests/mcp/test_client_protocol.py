"""What a client says and how it reads a server, without a server."""

from __future__ import annotations

import pickle

import pytest

from yiemagent.errors import McpProtocolError
from yiemagent.mcp import versions
from yiemagent.mcp.client_protocol import (
    Acknowledged,
    Cancelled,
    ClientProtocol,
    InputRequired,
    ListChanged,
    LogMessage,
    NoAnswer,
    Progress,
    ResourceUpdated,
    complete_or_input,
    event_of,
    server_error,
)
from yiemagent.mcp.jsonrpc import ErrorResponse, Notification, Response

INFO = {"name": "test", "version": "1"}
MODERN = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {"listChanged": True}},
    "instructions": "Be brief.",
    "_meta": {versions.SERVER_INFO_META: {"name": "srv"}},
}
SHAKEN = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "old"},
}


def unsupported(*supported):
    return ErrorResponse(1, -32022, "no such version", {"supported": list(supported)})


def opened(answers, era="auto"):
    """The protocol after an opening in which the server answered so, and the methods that were asked."""
    protocol = ClientProtocol(INFO, {"roots": {}}, era=era)
    opening, asked, answers = protocol.opening(), [], list(answers)
    ask = next(opening)
    while True:
        asked.append(ask)
        answer = answers.pop(0)
        try:
            ask = opening.send(answer if not isinstance(answer, dict) else Response(1, answer))
        except StopIteration:
            assert answers == []
            return protocol, asked


# --- opening ---------------------------------------------------------------------------------------------------------


def test_a_stateless_server_is_known_by_its_answer():
    """A server that answers discovery with a version of ours is asked nothing more."""
    protocol, asked = opened([MODERN])

    assert [ask.method for ask in asked] == ["server/discover"]
    assert asked[0].is_probe
    assert asked[0].params["_meta"][versions.PROTOCOL_VERSION_META] == "2026-07-28"
    assert asked[0].params["_meta"][versions.CLIENT_CAPABILITIES_META] == {"roots": {}}
    assert protocol.is_stateless
    assert protocol.facts.info == {"name": "srv"}
    assert protocol.facts.instructions == "Be brief."
    assert protocol.facts.can("tools", "listChanged")
    assert not protocol.facts.can("tools", "other")
    assert not protocol.facts.can("prompts")


@pytest.mark.parametrize(
    "probe",
    [
        ErrorResponse(1, -32601, "unknown method"),
        ErrorResponse(1, -32602, "bad params"),
        ErrorResponse(1, -32600, "no session"),
        ErrorResponse(None, 0, "?"),
        NoAnswer("5 s are over"),
        {"supportedVersions": ["2025-11-25"]},
        {"supportedVersions": "all"},
        {},
        unsupported("2025-11-25", "2025-06-18"),
        unsupported(),
    ],
)
def test_whatever_is_no_proof_of_the_stateless_era_leads_to_a_handshake(probe):
    """Servers refuse the probe in many ways; each is asked to shake hands, with the newest version of that era."""
    protocol, asked = opened([probe, SHAKEN])

    assert [ask.method for ask in asked] == ["server/discover", "initialize"]
    assert asked[1].params == {
        "protocolVersion": "2025-11-25",
        "capabilities": {"roots": {}},
        "clientInfo": INFO,
    }
    assert protocol.facts.version == "2025-06-18"
    assert not protocol.is_stateless
    assert protocol.facts.info == {"name": "old"}


def test_a_handshake_can_be_had_at_once():
    """In the legacy era nothing is probed."""
    _, asked = opened([SHAKEN], era="legacy")

    assert [ask.method for ask in asked] == ["initialize"]


def test_a_probe_that_was_taken_late_leaves_the_stateless_era():
    """A server that took the given-up probe refuses the handshake, and is asked again in its era."""
    protocol, asked = opened([NoAnswer("late"), unsupported("2026-07-28"), MODERN])

    assert [ask.method for ask in asked] == ["server/discover", "initialize", "server/discover"]
    assert protocol.is_stateless


def test_a_version_that_is_refused_and_offered_is_asked_for_again():
    """Once: what the server names as supported is the next to try, be it the same."""
    protocol, asked = opened([unsupported("2026-07-28"), MODERN])

    assert [ask.method for ask in asked] == ["server/discover"] * 2
    assert protocol.is_stateless
    with pytest.raises(McpProtocolError, match="refuses"):
        opened([unsupported("2026-07-28"), unsupported("2026-07-28")])


@pytest.mark.parametrize(
    "answers, era, words",
    [
        ([unsupported("2099-01-01")], "auto", "2099-01-01"),
        ([ErrorResponse(1, -32601, "unknown")], "modern", "no stateless version"),
        ([ErrorResponse(1, -32021, "need sampling")], "auto", "need sampling"),
        ([{}, ErrorResponse(1, -32600, "go away")], "auto", "go away"),
        ([{}, NoAnswer("refused")], "auto", "refused"),
        ([{"protocolVersion": "1999-01-01"}], "legacy", "1999-01-01"),
        ([{"protocolVersion": "2026-07-28"}], "legacy", "2026-07-28"),
        ([Response(1, None)], "legacy", "no object"),
        ([unsupported("2026-07-28")], "legacy", "no such version"),
        (
            [NoAnswer("x"), unsupported("2026-07-28"), {}, unsupported("2026-07-28")],
            "auto",
            "refuses",
        ),
    ],
)
def test_a_server_that_cannot_be_spoken_to_is_an_error(answers, era, words):
    """No version in common, a refusal, or an answer that is none: the error says which."""
    with pytest.raises(McpProtocolError, match=words):
        opened(answers, era)


# --- requests --------------------------------------------------------------------------------------------------------


def test_a_stateless_request_says_all_that_is_needed():
    """Version, program, capabilities, log level and progress token stand in `_meta`, beside the caller's own."""
    protocol, _ = opened([MODERN])
    protocol.log_level = "info"
    given = {"name": "t", "_meta": {"mine": 1}}
    params = protocol.params(given, progress_token=5)

    assert params == {
        "name": "t",
        "_meta": {
            "mine": 1,
            "progressToken": 5,
            versions.PROTOCOL_VERSION_META: "2026-07-28",
            versions.CLIENT_INFO_META: INFO,
            versions.CLIENT_CAPABILITIES_META: {"roots": {}},
            versions.LOG_LEVEL_META: "info",
        },
    }
    assert given == {"name": "t", "_meta": {"mine": 1}}


def test_a_request_after_a_handshake_says_no_more_than_it_must():
    """Only a progress token is added, and only where progress is wanted."""
    protocol, _ = opened([SHAKEN], era="legacy")

    assert protocol.params({"a": 1}) == {"a": 1}
    assert protocol.params(None, progress_token=3) == {"_meta": {"progressToken": 3}}


# --- events ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method, params, event",
    [
        (
            "progress",
            {"progressToken": "7", "progress": 1},
            Progress(7, {"progressToken": "7", "progress": 1}),
        ),
        ("progress", {"progressToken": True}, Progress(1, {"progressToken": True})),
        ("progress", {"progressToken": 2.0}, Progress(2, {"progressToken": 2.0})),
        ("progress", {}, Progress(None, {})),
        ("tools/list_changed", {}, ListChanged("tools")),
        ("prompts/list_changed", {}, ListChanged("prompts")),
        ("resources/list_changed", {}, ListChanged("resources")),
        ("resources/updated", {"uri": "a:b"}, ResourceUpdated("a:b")),
        ("message", {"level": "error", "data": [1], "logger": "x"}, LogMessage("error", [1], "x")),
        ("message", {}, LogMessage("info", None)),
        ("cancelled", {"requestId": 4}, Cancelled(4)),
        (
            "subscriptions/acknowledged",
            {
                "_meta": {versions.SUBSCRIPTION_ID_META: 3},
                "notifications": {"toolsListChanged": True},
            },
            Acknowledged(3, {"toolsListChanged": True}),
        ),
        ("subscriptions/acknowledged", {}, Acknowledged(None, {})),
        ("something/else", {}, None),
    ],
)
def test_notifications_become_events(method, params, event):
    """What a server says unasked is read, and what nobody knows is left."""
    assert event_of(Notification(f"notifications/{method}", params)) == event


# --- results ---------------------------------------------------------------------------------------------------------


def test_a_result_is_complete_unless_it_says_otherwise():
    """An absent type means complete, and servers that shake hands have no types."""
    assert complete_or_input("m", {"a": 1}, stateless=True) == {"a": 1}
    assert complete_or_input("m", {"resultType": "complete"}, stateless=True)
    assert complete_or_input("m", {"resultType": "odd"}, stateless=False) == {"resultType": "odd"}


def test_a_result_may_ask_for_more():
    """Requests and state are kept as they came; what did not come is not made up."""
    asked = {"k": {"method": "roots/list"}}
    result = {"resultType": "input_required", "inputRequests": asked, "requestState": "s"}

    assert complete_or_input("m", result, stateless=True) == InputRequired(asked, "s")
    del result["requestState"]
    assert complete_or_input("m", result, stateless=True) == InputRequired(asked, None)


@pytest.mark.parametrize(
    "result",
    [
        None,
        [1],
        {"resultType": "task"},
        {"resultType": "input_required"},
        {"resultType": "input_required", "inputRequests": [1]},
        {"resultType": "input_required", "requestState": 5},
    ],
)
def test_a_result_that_is_none_is_an_error(result):
    """No object, an unknown type, or a wish that can't be read breaks the protocol."""
    with pytest.raises(McpProtocolError):
        complete_or_input("m", result, stateless=True)


def test_a_servers_error_survives_pickling():
    """With the server's own words, and ours around them."""
    error = server_error("tools/call", ErrorResponse(1, -32602, "bad", {"a": 1}))
    again = pickle.loads(pickle.dumps(error))

    assert (str(again), again.code, again.data, again.words) == (
        str(error),
        -32602,
        {"a": 1},
        "bad",
    )


def test_a_servers_error_keeps_its_facts():
    """Code, text and data of the server's error are on the exception."""
    error = server_error("tools/call", ErrorResponse(1, -32602, "bad", {"a": 1}))

    assert (error.code, error.data) == (-32602, {"a": 1})
    assert "bad (code -32602)" in str(error)
