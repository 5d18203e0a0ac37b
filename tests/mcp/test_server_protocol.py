"""The server's side of the protocol: both eras, what is refused, and calls in flight."""

from __future__ import annotations

import pickle

import pytest

from tests.support.mcp_wire import asked, initialize, meta, stateless
from yiemagent.mcp.jsonrpc import parse, read_message
from yiemagent.mcp.server_protocol import (
    Answer,
    Call,
    Cancel,
    Reply,
    RpcFailure,
    Said,
    ServerFacts,
    ServerProtocol,
    http_status,
    names_stateless,
)

FACTS = ServerFacts(
    {"name": "test", "version": "1"},
    {"tools": {}, "resources": {"subscribe": True}, "logging": {}},
    "Use it well.",
    ttl_ms=5,
)


def protocol(*messages, facts=FACTS):
    """A protocol that took these messages."""
    made = ServerProtocol(facts)
    for message in messages:
        made.receive(read_message(message))
    return made


def take(made, message):
    """What follows from a message."""
    return made.receive(read_message(message, strict=True))


def error(event):
    """The code of a refusal."""
    assert isinstance(event, Reply)
    return event.message["error"]["code"]


# -- the handshake ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
def test_initialize_agrees_on_a_version_that_is_known(version):
    """The client's version is taken where the server has it, and the answer says what the server is."""
    made = protocol()
    reply = take(made, initialize(version))

    assert reply.message["result"] == {
        "protocolVersion": version,
        "capabilities": FACTS.capabilities,
        "serverInfo": FACTS.info,
        "instructions": "Use it well.",
    }
    assert made.version == version


@pytest.mark.parametrize("version", ["2026-07-28", "1999-01-01", ""])
def test_initialize_answers_an_unknown_version_with_its_newest(version):
    """A version without a handshake, or one that nobody knows, is answered with the newest that has one."""
    reply = take(protocol(), initialize(version))

    assert reply.message["result"]["protocolVersion"] == "2025-11-25"


def test_initialize_needs_a_version_and_works_once():
    """Without a version it is refused, and so is a second time."""
    assert error(take(protocol(), asked(1, "initialize"))) == -32602
    assert error(take(protocol(initialize()), initialize(number=1))) == -32600


def test_a_call_knows_what_was_agreed_on():
    """A call after the handshake carries version, capabilities, client and log level of the connection."""
    made = protocol(
        initialize("2025-06-18", capabilities={"roots": {}}),
        asked(1, "logging/setLevel", level="error"),
    )
    call = take(made, asked(2, "tools/list", _meta={"progressToken": 7}))

    assert isinstance(call, Call)
    assert not call.stateless
    assert (call.version, call.capabilities, call.log_level) == (
        "2025-06-18",
        {"roots": {}},
        "error",
    )
    assert call.client_info == {"name": "test", "version": "1"}
    assert call.progress_token == 7


def test_only_ping_comes_before_the_handshake():
    """Before it `ping` is answered and everything else refused with a hint."""
    made = protocol()
    refused = take(made, asked(2, "tools/list"))

    assert take(made, asked(1, "ping")).message["result"] == {}
    assert error(refused) == -32602
    assert "initialize" in refused.message["error"]["message"]


@pytest.mark.parametrize(
    "method", ["prompts/list", "completion/complete", "subscriptions/listen", "nothing/there"]
)
def test_a_method_that_the_server_has_not_is_refused(method):
    """What no capability of the server brings does not exist."""
    assert error(take(protocol(initialize()), asked(1, method))) == -32601


def test_subscribing_needs_its_capability():
    """`resources/subscribe` is there only where the server says that it tells of updates."""
    without = ServerFacts(FACTS.info, {"resources": {}})
    made = protocol(initialize(), facts=without)

    assert error(take(made, asked(1, "resources/subscribe", uri="a:b"))) == -32601
    assert isinstance(take(protocol(initialize()), asked(1, "resources/subscribe", uri="a")), Call)


def test_a_log_level_must_be_one():
    """A level that is none is refused, and the level stays."""
    made = protocol(initialize())
    reply = take(made, asked(1, "logging/setLevel", level="loud"))

    assert error(reply) == -32602
    assert made.log_level == "info"
    assert made.in_flight == ()


# -- the stateless era ------------------------------------------------------------------------------------------------


def test_discover_says_what_the_server_is():
    """`server/discover` tells versions, capabilities and instructions, and how long they can be kept."""
    result = take(protocol(), stateless(1, "server/discover")).message["result"]

    assert result == {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": FACTS.capabilities,
        "instructions": "Use it well.",
        "ttlMs": 5,
        "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": FACTS.info},
    }


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"_meta": "x"},
        {"_meta": {"io.modelcontextprotocol/clientCapabilities": {}}},
        {"_meta": {"io.modelcontextprotocol/protocolVersion": 5}},
        {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}},
        {"_meta": meta(version="2026-07-28") | {"io.modelcontextprotocol/logLevel": "loud"}},
    ],
)
def test_a_stateless_request_must_say_what_it_is(params):
    """One that does not name its version and the client's capabilities, or names no level, is refused."""
    assert error(take(protocol(), asked(1, "server/discover", **params))) == -32602


def test_an_unsupported_version_is_told_the_supported_ones():
    """The error names what `server/discover` names, and what was asked for."""
    reply = take(protocol(), asked(1, "tools/list", _meta=meta(version="2099-01-01")))

    assert reply.message["error"]["code"] == -32022
    assert reply.message["error"]["data"] == {
        "supported": ["2026-07-28"],
        "requested": "2099-01-01",
    }


@pytest.mark.parametrize(
    "method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "nothing/there"]
)
def test_methods_of_the_handshake_era_are_gone(method):
    """A stateless request finds none of the methods that need a connection."""
    assert error(take(protocol(), stateless(1, method))) == -32601


def test_both_eras_share_a_connection():
    """A stateless request is one on a connection that shook hands, too."""
    made = protocol(initialize("2025-06-18"))
    call = take(made, stateless(1, "tools/list", {"sampling": {}}))

    assert call.stateless
    assert call.capabilities == {"sampling": {}}
    assert call.log_level is None


def test_only_what_names_a_version_is_stateless():
    """`_meta` with a progress token alone says nothing of an era."""
    assert names_stateless({"_meta": meta()})
    assert not names_stateless({"_meta": {"progressToken": 1}})
    assert not names_stateless({"_meta": None})


@pytest.mark.parametrize("token", [True, 1.5, None, {}])
def test_a_progress_token_is_text_or_a_whole_number(token):
    """Any other value is none."""
    message = stateless(1, "tools/list")
    message["params"]["_meta"]["progressToken"] = token

    assert take(protocol(), message).progress_token is None


# -- answers ----------------------------------------------------------------------------------------------------------


def test_a_result_is_dressed_for_its_era():
    """Only a stateless result has a type, names the server and may be kept."""
    old, new = protocol(initialize()), protocol()
    plain = old.finish(take(old, asked(1, "tools/list")), {"tools": []})
    dressed = new.finish(take(new, stateless("a", "tools/list")), {"tools": [], "ttlMs": 9})

    assert plain == {"jsonrpc": "2.0", "id": 1, "result": {"tools": []}}
    assert dressed["id"] == "a"
    assert dressed["result"]["resultType"] == "complete"
    assert (dressed["result"]["ttlMs"], dressed["result"]["cacheScope"]) == (9, "private")


def test_what_needs_input_is_never_kept():
    """A result that asks the client has no cache hints."""
    made = protocol()
    call = take(made, stateless(1, "resources/read", uri="a:b"))
    result = made.finish(call, {"resultType": "input_required"})["result"]

    assert result["resultType"] == "input_required"
    assert "ttlMs" not in result


def test_a_failure_is_an_error_answer():
    """The error carries the request's id, and its facts where it has some."""
    made = protocol(initialize())
    call = take(made, asked("x", "tools/call"))
    answer = made.fail(call, RpcFailure(-32602, "no", {"why": 1}))

    assert answer == {
        "jsonrpc": "2.0",
        "id": "x",
        "error": {"code": -32602, "message": "no", "data": {"why": 1}},
    }


def test_a_cancelled_call_has_no_answer():
    """After its cancellation neither a result nor an error goes out."""
    made = protocol(initialize())
    call = take(made, asked(1, "tools/call"))
    other = take(made, asked(2, "tools/call"))
    cancel = take(
        made,
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "1"}},
    )
    again = take(
        made,
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
    )

    assert isinstance(cancel, Cancel)
    assert cancel.call is call
    assert again is None
    assert made.finish(call, {}) is None
    assert made.fail(call, RpcFailure(-1, "")) is None
    assert made.in_flight == (other,)


@pytest.mark.parametrize(
    "params", [{}, {"requestId": None}, {"requestId": 99}, {"requestId": True}, {"requestId": [1]}]
)
def test_a_cancellation_of_nothing_is_ignored(params):
    """One that names no call in flight has no effect."""
    made = protocol(initialize())
    call = take(made, asked(1, "tools/list"))
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}

    assert take(made, message) is None
    assert made.in_flight == (call,)


def test_an_id_in_flight_is_not_used_again():
    """A second request of the same id is refused while the first has no answer."""
    made = protocol(initialize())
    call = take(made, asked(7, "tools/list"))

    assert error(take(made, asked("7", "tools/list"))) == -32600
    made.finish(call, {})
    assert isinstance(take(made, asked(7, "tools/list")), Call)


# -- other messages ---------------------------------------------------------------------------------------------------


def test_the_clients_own_answers_and_notices_are_handed_on():
    """Answers to the server's requests, and notifications, come out as what they are."""
    made = protocol(initialize())
    good = take(made, {"jsonrpc": "2.0", "id": 5, "result": {"a": 1}})
    bad = take(made, {"jsonrpc": "2.0", "id": 6, "error": {"code": -1, "message": "no"}})
    said = take(made, {"jsonrpc": "2.0", "method": "notifications/initialized"})

    assert good == Answer(5, {"a": 1})
    assert bad == Answer(6, None, -1, "no")
    assert said == Said("notifications/initialized", {})


@pytest.mark.parametrize(
    ("line", "code", "number"),
    [
        (b"hello", -32700, None),
        (b'{"jsonrpc":"2.0","id":3,"method":"a",}', -32700, 3),
        (b'{"id":3,"method":"ping"}', -32600, 3),
        (b'{"jsonrpc":"2.0","id":3,"method":"ping","params":[]}', -32600, 3),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
        (b"[" * 100_000, -32700, None),
    ],
)
def test_what_is_no_message_is_refused(line, code, number):
    """Each is answered with its error, under its id where that can be seen, else without one."""
    reply = protocol(initialize()).receive(parse(line, strict=True)[0])

    assert reply.message["error"]["code"] == code
    assert reply.message.get("id", None) == number
    assert ("id" in reply.message) == (number is not None)


def test_a_damaged_answer_is_ignored():
    """What looks like an answer is not answered."""
    message = {"jsonrpc": "2.0", "id": 3, "result": {}, "error": {}}

    assert take(protocol(initialize()), message) is None


@pytest.mark.parametrize(
    ("code", "status"), [(None, 200), (-32601, 404), (-32602, 400), (-32021, 400), (-32603, 200)]
)
def test_errors_have_their_http_status(code, status):
    """The status follows from the code; an error of the server's own work is 200."""
    assert http_status(code) == status


def test_a_failure_survives_pickling():
    """Code, text and facts come back."""
    failure = pickle.loads(pickle.dumps(RpcFailure(-5, "no", [1])))

    assert (failure.code, str(failure), failure.data) == (-5, "no", [1])
