"""The client over Streamable HTTP, in both eras, against servers that behave and servers that don't."""

from __future__ import annotations

import json
import threading
import time
from queue import SimpleQueue

import pytest

from tests.support.mcp_http import FakeMcp, event, result, stream
from yiemagent.abort import AbortSignal
from yiemagent.errors import (
    AbortedError,
    ConfigurationError,
    McpError,
    McpProtocolError,
    McpTimeout,
    McpTransportError,
)
from yiemagent.mcp.client import McpClient
from yiemagent.mcp.client_protocol import LogMessage
from yiemagent.mcp.http_server import HttpServer
from yiemagent.testing.http_script import HttpAnswer, json_answer

ERAS = ["legacy", "modern"]


@pytest.fixture
def serve():
    """A function that makes a server and a client of it; both are closed after the test."""
    made = []

    def serve(era="legacy", answers=(), *, http=None, server=None, **options):
        server = FakeMcp(era, answers, **(server or {}))
        options.setdefault("timeout_s", 20)
        client = McpClient(HttpServer(server.address, **(http or {})), **options)
        made.append((client, server))
        return client, server

    yield serve
    for client, server in made:
        client.close()
        server.close()


def said(answer):
    return answer["content"][0]["text"]


def note(method, **params):
    return {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}


# --- the two eras ----------------------------------------------------------------------------------------------------


def test_a_server_of_sessions_is_used(serve):
    """A handshake, then every request with the session and the version; at the end the session is ended."""
    client, server = serve("legacy")
    assert [tool["name"] for tool in client.list_tools()] == ["echo", "safe"]
    assert said(client.call_tool("echo", {"a": 1})) == "ok"
    client.close()
    headers = server.requests_of("tools/call")[0].headers

    assert server.methods() == [
        "server/discover",
        "initialize",
        "notifications/initialized",
        "tools/list",
        "tools/call",
    ]
    assert headers["mcp-session-id"] == "s1-1"
    assert headers["mcp-protocol-version"] == "2025-11-25"
    assert headers["accept"] == "application/json, text/event-stream"
    assert headers["content-type"] == "application/json"
    assert "mcp-session-id" not in server.requests_of("initialize")[0].headers
    assert server.requests[-1].method == "DELETE"
    assert server.requests[-1].headers["mcp-session-id"] == "s1-1"


def test_a_stateless_server_is_used(serve):
    """It is discovered, and every request says all of itself; there is nothing to end."""
    client, server = serve("modern")
    client.list_tools()
    assert said(client.call_tool("echo", {"a": 1})) == "ok"
    client.ping()
    client.close()
    request = server.requests_of("tools/call")[0]

    assert server.methods() == ["server/discover", "tools/list", "tools/call", "server/discover"]
    assert request.headers["mcp-protocol-version"] == "2026-07-28"
    assert request.headers["mcp-method"] == "tools/call"
    assert request.headers["mcp-name"] == "echo"
    assert (
        request.json["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    )
    assert {r.method for r in server.requests} == {"POST"}


@pytest.mark.parametrize("era", ERAS)
def test_connections_are_kept(serve, era):
    """Calls that follow each other use one connection."""
    client, server = serve(era)
    for _ in range(5):
        client.call_tool("echo")

    assert server.connections == 1


@pytest.mark.parametrize(
    "refusal",
    [
        HttpAnswer(status=400, then="keep"),
        HttpAnswer("no such page", status=404, then="keep"),
        HttpAnswer(status=405, then="keep"),
        HttpAnswer(status=406, then="keep"),
        HttpAnswer(status=415, then="keep"),
        json_answer({"error": "what"}, status=400, then="keep"),
        json_answer(
            {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "no session"}},
            status=400,
            then="keep",
        ),
        HttpAnswer("<html>", then="keep"),
    ],
)
def test_whatever_refuses_the_probe_is_shaken_hands_with(serve, refusal):
    """Servers that know no discovery answer in many ways."""
    client, _ = serve("legacy", {"server/discover": lambda message: refusal})

    assert client.connect().version == "2025-11-25"


@pytest.mark.parametrize("status", [401, 403, 429, 500, 502, 503])
def test_a_failure_is_no_verdict_on_the_era(serve, status):
    """A server that is busy, broken or closed to us is told of as such."""
    client, server = serve(
        "modern", {"server/discover": lambda message: HttpAnswer("closed", status=status)}
    )
    with pytest.raises(McpTransportError, match=f"answered {status}: closed") as caught:
        client.connect()

    assert caught.value.status == status
    assert server.methods() == ["server/discover"]


@pytest.mark.parametrize("era", ERAS)
def test_an_era_can_be_demanded(serve, era):
    """Then nothing is probed, and a server of the other one is refused."""
    client, server = serve(era, protocol=era)
    client.connect()
    assert server.methods()[0] == {"legacy": "initialize", "modern": "server/discover"}[era]

    other, _ = serve({"legacy": "modern", "modern": "legacy"}[era], protocol=era)
    with pytest.raises(McpError):
        other.connect()


# --- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("piece", [None, 1])
def test_an_answer_may_be_a_stream(serve, era, piece):
    """Progress and logs come before it, in order; a blank event and a comment are nothing."""
    logs, progress = SimpleQueue(), []

    def call(message):
        token = message["params"]["_meta"]["progressToken"]
        return stream(
            ": hello\n\n" + event(None, 1) + event(note("message", level="info", data="é\u2028")),
            event(note("progress", progressToken=token, progress=1)),
            event(note("progress", progressToken="other", progress=9)),
            event(result(message)),
            piece=piece,
        )

    client, _ = serve(era, {"tools/call": call}, on_log=logs.put)
    answer = client.call_tool(
        "echo", on_progress=lambda params: progress.append(params["progress"])
    )

    assert said(answer) == "ok"
    assert progress == [1]
    assert logs.get(timeout=5) == LogMessage("info", "é\u2028")


def test_a_stream_that_lacks_its_last_blank_line_is_read(serve):
    """Some servers never send it."""
    client, _ = serve("modern", {"tools/call": lambda m: stream(event(result(m))[:-1])})

    assert said(client.call_tool("echo")) == "ok"


def test_a_batch_may_be_the_answer(serve):
    """One version of the protocol allowed it."""
    batch = lambda m: json_answer([note("message", data=1), result(m)], then="keep")
    client, _ = serve("legacy", {"tools/call": batch})
    assert said(client.call_tool("echo")) == "ok"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "answer, words",
    [
        (lambda m: json_answer({"ok": True}), "no answer to it"),
        (lambda m: HttpAnswer("hello"), "no answer to it"),
        (lambda m: HttpAnswer(status=202), "no answer to it"),
        (lambda m: json_answer(result({"id": 999})), "no answer to it"),
        (lambda m: json_answer({"jsonrpc": "2.0", "id": m["id"]}), "neither"),
        (lambda m: json_answer({"jsonrpc": "2.0", "result": {}}), "names no request"),
        (lambda m: stream(event({"jsonrpc": "2.0", "result": {}})), "names no request"),
        (lambda m: json_answer(result(m, [1])), "no object"),
        (
            lambda m: HttpAnswer("[" * 100_000, headers=[("Content-Type", "application/json")]),
            "answer",
        ),
    ],
)
def test_an_answer_that_is_none_fails_the_call(serve, era, answer, words):
    """At once, and in words."""
    client, _ = serve(era, {"tools/call": answer})
    with pytest.raises(McpProtocolError, match=words):
        client.call_tool("echo")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("status", [200, 400, 404, 500])
def test_an_error_is_read_whatever_its_status(serve, era, status):
    """The body says what is wrong, and the status only repeats it."""

    def call(message):
        error = {"code": -32602, "message": "bad", "data": {"x": 1}}
        return json_answer({"jsonrpc": "2.0", "id": message["id"], "error": error}, status=status)

    client, _ = serve(era, {"tools/call": call}, server={"session": ""})
    with pytest.raises(McpProtocolError) as caught:
        client.call_tool("echo")

    assert (caught.value.code, caught.value.data) == (-32602, {"x": 1})


@pytest.mark.parametrize(
    "answer, unknown, words",
    [
        (HttpAnswer("broken", status=500), True, "answered 500: broken"),
        (HttpAnswer("busy", status=503), True, "answered 503"),
        (HttpAnswer("go away", status=403), False, "answered 403: go away"),
        (
            HttpAnswer(status=307, headers=[("Location", "https://b/")]),
            False,
            "redirects to https://b/",
        ),
        (HttpAnswer(b"{", length=True, cut=0, then="reset"), True, "connection"),
        (HttpAnswer(status=None), True, "connection"),
        (
            stream(event(note("message")), then="reset", chunked=False),
            True,
            "ended before the answer",
        ),
        (stream(event(note("message"))), True, "ended before the answer"),
    ],
)
def test_a_broken_exchange_says_whether_the_call_may_have_run(serve, answer, unknown, words):
    """And it is never sent again."""
    client, server = serve("modern", {"tools/call": lambda m: answer})
    client.connect()
    with pytest.raises(McpTransportError, match=words) as caught:
        client.call_tool("echo")

    assert caught.value.outcome_unknown is unknown
    assert server.methods().count("tools/call") == 1


def test_a_kept_connection_that_was_closed_costs_no_call_twice(serve):
    """Whether the call arrived is not known, so only what may arrive twice goes out again."""
    answers = {"tools/call": lambda m: None}
    client, server = serve("modern", answers, resend_idempotent=True)
    client.list_tools()
    answers = [HttpAnswer(status=None)]
    server.answers["tools/call"] = lambda m: answers.pop() if answers else None
    with pytest.raises(McpTransportError) as caught:
        client.call_tool("echo")
    assert caught.value.outcome_unknown

    client.call_tool("echo")
    answers.append(HttpAnswer(status=None))
    assert said(client.call_tool("safe")) == "ok"


@pytest.mark.parametrize("as_stream", [False, True])
def test_a_message_above_the_limit_fails_its_call_alone(serve, as_stream):
    """The limit is the user's, and the next call goes well."""
    value = {"content": [{"type": "text", "text": "x" * 100_000}]}

    def call(message):
        if message["params"]["name"] == "safe":
            return None
        large = result(message, value)
        return stream(event(large)) if as_stream else large

    client, _ = serve("modern", {"tools/call": call}, http={"max_message_bytes": 50_000})
    with pytest.raises(McpProtocolError, match="larger than"):
        client.call_tool("echo")

    assert said(client.call_tool("safe")) == "ok"


def test_a_server_that_is_not_there_is_told_of():
    """No call can have had an effect."""
    with FakeMcp() as server:
        address = server.address
    with McpClient(address) as client, pytest.raises(McpTransportError, match="refused") as caught:
        client.call_tool("echo")

    assert not caught.value.outcome_unknown


# --- the end of a call -----------------------------------------------------------------------------------------------

SILENT = HttpAnswer(then="hang", status=None)


def dripping():
    """A stream of comments without end."""
    return stream(*[": still here\n\n", 0.05] * 400)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "answer",
    [
        lambda m: SILENT,
        lambda m: stream(event(note("message")), then="hang"),
        lambda m: dripping(),
        lambda m: HttpAnswer(
            b"HTTP/1.1 200 OK\r\nX: " + b"x" * 400, status=None, piece=1, pause_s=0.05
        ),
    ],
)
def test_a_deadline_holds_whatever_the_server_sends(serve, era, answer):
    """Silence, a stream that stays open, comments or headers that drip: the call ends in time."""
    client, server = serve(era, {"tools/call": answer})
    client.connect()
    started = time.monotonic()
    with pytest.raises(McpTimeout, match=r"tools/call within its time limit of 0\.3 s"):
        client.call_tool("echo", timeout_s=0.3)

    assert time.monotonic() - started < 1.5
    if era == "legacy":
        told = server.wait_for_post("notifications/cancelled")
        assert told["params"]["requestId"] == server.requests_of("tools/call")[0].json["id"]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("answer", [SILENT, stream(event(note("message")), then="hang")])
def test_an_abort_ends_a_call_at_once(serve, era, answer):
    """Within 0.1 s, before the headers and in the stream; a server of sessions is told."""
    client, server = serve(era, {"tools/call": lambda m: answer})
    client.connect()
    signal, ended = AbortSignal(), SimpleQueue()

    def call():
        try:
            client.call_tool("echo", signal=signal)
        except AbortedError as error:
            ended.put((time.monotonic(), str(error)))

    thread = threading.Thread(target=call)
    thread.start()
    server.wait_for_post("tools/call")
    signal.abort("enough")
    ended_at, words = ended.get(timeout=5)
    thread.join()

    assert ended_at - signal.aborted_at < 0.1
    assert words == "aborted: enough"
    if era == "legacy":
        assert (
            server.wait_for_post("notifications/cancelled")["params"]["reason"] == "aborted: enough"
        )
    else:
        server.wait_until_idle()
        assert "notifications/cancelled" not in server.methods()


def test_progress_extends_the_idle_limit(serve):
    """Words of progress keep a call going that would be over; silence doesn't."""

    def call(message):
        token = message["params"]["_meta"]["progressToken"]
        word = event(note("progress", progressToken=token, progress=1))
        return stream(word, 0.15, word, 0.15, word, 0.15, event(result(message)))

    client, server = serve("modern", {"tools/call": call}, idle_timeout_s=0.3)
    assert said(client.call_tool("echo", on_progress=lambda params: None)) == "ok"
    server.answers["tools/call"] = lambda m: SILENT
    with pytest.raises(McpTimeout, match="said nothing"):
        client.call_tool("echo")


@pytest.mark.parametrize("era", ERAS)
def test_closing_ends_what_waits(serve, era):
    """The call says that the client was closed, and later ones are refused."""
    client, server = serve(era, {"tools/call": lambda m: SILENT})
    client.connect()
    caught = SimpleQueue()

    def call():
        try:
            client.call_tool("echo")
        except McpTransportError as error:
            caught.put(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    server.wait_for_post("tools/call")
    client.close()
    client.close()
    thread.join()

    assert "closed" in caught.get(timeout=5)
    with pytest.raises(McpTransportError, match="closed"):
        client.list_tools()


def test_closing_does_not_wait_for_a_silent_server(serve):
    """The goodbye has a second."""
    client, _ = serve("legacy", {"DELETE": lambda request: SILENT})
    client.connect()
    started = time.monotonic()
    client.close()

    assert time.monotonic() - started < 2


def test_calls_run_side_by_side(serve):
    """Each in its own request; where the user allows it, all at once."""
    gate = threading.Barrier(10, timeout=10)
    client, _ = serve("modern", {"tools/call": lambda m: [gate.wait()].clear()}, max_concurrency=10)
    client.connect()
    threads = [threading.Thread(target=client.call_tool, args=("echo",)) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not gate.broken


# --- sessions --------------------------------------------------------------------------------------------------------

NOT_FOUND = json_answer(
    {
        "jsonrpc": "2.0",
        "id": "server-error",
        "error": {"code": -32600, "message": "Session not found"},
    },
    status=404,
    then="keep",
)
BAD_SESSION = json_answer(
    {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32000, "message": "Bad Request: No valid session ID provided"},
    },
    status=400,
    then="keep",
)


@pytest.mark.parametrize("lost", [NOT_FOUND, BAD_SESSION, HttpAnswer(status=404, then="keep")])
def test_a_lost_session_is_begun_anew_once(serve, lost):
    """The refused call is sent again, in a new session; who listens is told to list anew."""
    changed = threading.Event()
    client, server = serve("legacy")
    client.on_tools_changed(changed.set)
    client.connect()
    answers = [lost]
    server.answers["tools/call"] = lambda m: answers.pop() if answers else None
    assert said(client.call_tool("echo")) == "ok"
    calls = server.requests_of("tools/call")

    assert [call.headers["mcp-session-id"] for call in calls] == ["s1-1", "s1-2"]
    assert "mcp-session-id" not in server.requests_of("initialize")[1].headers
    assert server.methods().count("server/discover") == 1
    assert changed.wait(5)


def test_a_session_that_is_lost_again_is_an_error(serve):
    """There is no loop."""
    client, server = serve("legacy", {"tools/call": lambda m: NOT_FOUND})
    with pytest.raises(McpTransportError, match=r"lost the session: .*Session not found") as caught:
        client.call_tool("echo")

    assert not caught.value.outcome_unknown
    assert server.methods().count("tools/call") == 2


def test_a_server_that_changed_its_era_is_found_out_again(serve):
    """What was remembered of it holds until it doesn't."""
    client, server = serve("legacy")
    client.call_tool("echo")
    server.era = "modern"
    answers = [NOT_FOUND]
    server.answers["tools/call"] = lambda m: answers.pop() if answers else None
    server.answers["initialize"] = lambda m: json_answer(
        {"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32601, "message": "unknown method"}},
        then="keep",
    )

    assert said(client.call_tool("echo")) == "ok"
    assert client.server.is_stateless


def test_a_bad_request_is_no_lost_session(serve):
    """A 400 that says nothing of sessions is the call's own error."""
    client, server = serve(
        "legacy", {"tools/call": lambda m: HttpAnswer("odd", status=400, then="keep")}
    )
    with pytest.raises(McpTransportError, match="answered 400: odd"):
        client.call_tool("echo")

    assert server.methods().count("initialize") == 1


def test_a_lost_session_ends_no_other_call(serve):
    """What another thread waits for may still be answered."""
    release = threading.Event()
    client, server = serve("legacy", max_concurrency=2)
    client.connect()

    def call(message):
        if message["params"]["arguments"].get("slow"):
            release.wait(10)
            return None
        return NOT_FOUND if server.methods().count("initialize") == 1 else None

    server.answers["tools/call"] = call
    slow = SimpleQueue()
    thread = threading.Thread(
        target=lambda: slow.put(said(client.call_tool("echo", {"slow": True})))
    )
    thread.start()
    server.wait_for_post("tools/call")
    assert said(client.call_tool("echo")) == "ok"
    release.set()
    thread.join()

    assert slow.get() == "ok"


def test_a_session_id_that_cannot_be_sent_is_refused(serve):
    """It would have to stand in a header."""
    client, _ = serve("legacy", server={"session": "a b"})
    with pytest.raises(McpProtocolError, match="session id"):
        client.connect()


# --- streams that are resumed ----------------------------------------------------------------------------------------


def test_a_stream_is_resumed_where_it_ended(serve):
    """After the time that the server asked for, with the id of the last event; the answer comes then."""
    times = []

    def call(message):
        resumed.append(message)
        times.append(time.monotonic())
        return stream(event(None, "e1", retry=200))

    def get(request):
        times.append(time.monotonic())
        assert request.headers["last-event-id"] == "e1"
        assert request.headers["mcp-session-id"] == "s1-1"
        return stream(event(result(resumed[0]), "e2"), then="hang")

    resumed = []
    client, _ = serve("legacy", {"tools/call": call, "GET": get})
    assert said(client.call_tool("echo")) == "ok"

    assert times[1] - times[0] >= 0.2


def test_a_stream_that_broke_is_resumed_again_and_again(serve):
    """As long as new events come; each time from the last one."""
    asked, ids = [], []

    def get(request):
        number = int(request.headers["last-event-id"])
        ids.append(number)
        last = number == 4
        return stream(
            event(result(asked[0]) if last else note("message"), number + 1), then="close"
        )

    def call(message):
        asked.append(message)
        return stream(event(note("message"), 1, retry=10), then="reset", chunked=False)

    client, _ = serve("legacy", {"tools/call": call, "GET": get})

    assert said(client.call_tool("echo")) == "ok"
    assert ids == [1, 2, 3, 4]


def test_a_server_that_is_away_for_a_moment_is_asked_again(serve):
    """The stream is resumed when it is back."""
    asked, answers = [], [HttpAnswer(status=None), HttpAnswer(status=None, then="reset")]

    def call(message):
        asked.append(message)
        return stream(event(None, "e1", retry=1))

    def get(request):
        return answers.pop() if answers else stream(event(result(asked[0]), "e2"))

    client, _ = serve("legacy", {"tools/call": call, "GET": get})

    assert said(client.call_tool("echo")) == "ok"


@pytest.mark.parametrize("status", [404, 405])
def test_a_stream_that_cannot_be_resumed_leaves_the_outcome_unknown(serve, status):
    """The server keeps no events, so nobody knows."""
    client, server = serve(
        "legacy",
        {
            "tools/call": lambda m: stream(event(None, "e1", retry=1)),
            "GET": lambda request: HttpAnswer(status=status, then="keep"),
        },
    )
    with pytest.raises(McpTransportError, match="ended before the answer") as caught:
        client.call_tool("echo")

    assert caught.value.outcome_unknown
    assert server.methods().count("tools/call") == 1


def test_waiting_to_resume_ends_with_the_call(serve):
    """The server may ask for an hour; the deadline is the user's."""
    client, _ = serve(
        "legacy", {"tools/call": lambda m: stream(event(None, "e1", retry=3_600_000))}
    )
    client.connect()
    with pytest.raises(McpTimeout):
        client.call_tool("echo", timeout_s=0.2)


# --- what the server says unasked ------------------------------------------------------------------------------------


def test_a_servers_question_is_answered_while_the_call_waits(serve):
    """On the call's own stream: the answer is posted, and the call goes on."""
    answered = threading.Event()

    def call(message):
        question = {"jsonrpc": "2.0", "id": 0, "method": "roots/list"}
        return stream(event(question), answered, event(result(message)))

    client, server = serve(
        "legacy", {"tools/call": call, "answer": lambda m: answered.set()}, roots=[]
    )

    assert said(client.call_tool("echo")) == "ok"
    assert server.wait_for_post("answer") == {"jsonrpc": "2.0", "id": 0, "result": {"roots": []}}


def test_the_servers_own_stream_is_open_before_the_first_call(serve):
    """Where a capability was declared: the server may ask over it, and a call may wait for that."""
    answered = threading.Event()

    def get(request):
        question = {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {}}
        return stream(event(question), then="hang")

    client, server = serve(
        "legacy",
        {
            "GET": get,
            "answer": lambda m: answered.set(),
            "tools/call": lambda m: answered.wait(10) and None,
        },
        elicitation=lambda params: {"a": 1},
    )

    assert said(client.call_tool("echo")) == "ok"
    assert server.wait_for_post("answer")["result"] == {"action": "accept", "content": {"a": 1}}
    order = [r.method for r in server.requests]
    assert order.index("GET") < len(order) - 1 - order[::-1].index("POST")


def test_without_a_need_no_stream_is_opened(serve):
    """Nobody listens, so nothing is asked for."""
    client, server = serve("legacy")
    client.call_tool("echo")

    assert {request.method for request in server.requests} == {"POST"}


def test_a_question_that_cannot_be_read_is_answered_with_an_error(serve):
    """As on every transport; and that the server refuses the answer is its own affair."""
    answered = threading.Event()

    def call(message):
        question = {"jsonrpc": "2.0", "id": 5, "method": "roots/list", "params": [1]}
        return stream(event(question), answered, event(result(message)))

    def take(message):
        answered.set()
        return HttpAnswer(status=400, then="keep")

    client, server = serve("legacy", {"tools/call": call, "answer": take})

    assert said(client.call_tool("echo")) == "ok"
    assert server.wait_for_post("answer")["error"]["code"] == -32600


def test_changes_come_over_the_servers_own_stream(serve):
    """It is opened for the first listener, and again, from its last event, when it ends."""
    changed, ids = SimpleQueue(), SimpleQueue()

    def get(request):
        ids.put(request.headers.get("last-event-id"))
        first = "last-event-id" not in request.headers
        return stream(
            event(note("tools/list_changed"), 7, retry=10), then="close" if first else "hang"
        )

    client, _ = serve("legacy", {"GET": get})
    client.connect()
    client.on_tools_changed(lambda: changed.put(True))

    assert changed.get(timeout=5)
    assert changed.get(timeout=5)
    assert [ids.get(timeout=5), ids.get(timeout=5)] == [None, "7"]


@pytest.mark.parametrize("answer", [HttpAnswer(status=405, then="keep"), SILENT, HttpAnswer("hi")])
def test_a_server_without_such_a_stream_is_used_all_the_same(serve, answer):
    """Whatever it says to the wish, calls go on."""
    client, _ = serve("legacy", {"GET": lambda request: answer}, roots=[], timeout_s=30)

    assert said(client.call_tool("echo")) == "ok"


def test_a_stateless_server_is_listened_to(serve):
    """One long request; what it tells is told, and when it ends it is made again, with a warning of changes."""
    changed, filters = SimpleQueue(), SimpleQueue()

    def listen(message):
        filters.put(message["params"]["notifications"])
        return stream(
            event(note("subscriptions/acknowledged", notifications={})),
            event(note("tools/list_changed")),
            event(result(message, {"resultType": "complete"})),
        )

    client, server = serve("modern", {"subscriptions/listen": listen})
    client.on_tools_changed(lambda: changed.put(True))
    client.connect()

    assert filters.get(timeout=5) == {"toolsListChanged": True}
    for _ in range(3):
        assert changed.get(timeout=5)
    server.wait_for_post("subscriptions/listen", 2)


def test_a_stateless_server_that_knows_no_subscriptions_is_left_alone(serve):
    """It is asked once."""
    client, server = serve("modern")
    client.on_tools_changed(lambda: None)
    client.connect()
    server.wait_for_post("subscriptions/listen")
    for _ in range(3):
        client.call_tool("echo")

    assert server.methods().count("subscriptions/listen") == 1


def test_resources_are_subscribed_to(serve):
    """By request where the server shakes hands, through the listening where it doesn't; the end of it is told, too."""
    capabilities = {"resources": {"subscribe": True}}
    told = SimpleQueue()
    updated = event(note("resources/updated", uri="a:b/part"))
    client, server = serve(
        "legacy",
        {
            "GET": lambda request: stream(updated, then="hang"),
            "resources/subscribe": lambda m: result(m, {}),
            "resources/unsubscribe": lambda m: result(m, {}),
        },
        server={"capabilities": capabilities},
    )
    end = client.subscribe_resource("a:b", told.put)
    assert told.get(timeout=5) == "a:b/part"
    end()
    end()
    assert server.wait_for_post("resources/unsubscribe")["params"] == {"uri": "a:b"}

    client, server = serve(
        "modern",
        {"subscriptions/listen": lambda m: stream(updated, then="hang")},
        server={"capabilities": capabilities},
    )
    client.subscribe_resource("a:b", told.put)
    assert told.get(timeout=5) == "a:b/part"
    wanted = server.wait_for_post("subscriptions/listen")["params"]["notifications"]
    assert wanted == {"resourceSubscriptions": ["a:b"]}


def test_what_is_listened_to_may_change(serve):
    """The request is made anew with the other wishes, and not at all without any."""
    filters, capabilities = SimpleQueue(), {"resources": {"listChanged": True}, "prompts": {}}

    def listen(message):
        filters.put(message["params"]["notifications"])
        return stream(event(note("subscriptions/acknowledged")), then="hang")

    client, server = serve(
        "modern", {"subscriptions/listen": listen}, server={"capabilities": capabilities}
    )
    end = client.on_list_changed("resources", print)
    client.on_list_changed("prompts", print)
    client.connect()
    assert filters.get(timeout=5) == {"resourcesListChanged": True}
    end_subscription = client.subscribe_resource("a:b", print)
    assert filters.get(timeout=5) == {
        "resourcesListChanged": True,
        "resourceSubscriptions": ["a:b"],
    }
    end()
    end_subscription()
    server.wait_until_idle()
    client.subscribe_resource("c:d", print)
    assert filters.get(timeout=5) == {"resourceSubscriptions": ["c:d"]}


def test_a_server_may_end_the_listening_to_it(serve):
    """By an answer, or by cancelling the request; it is listened to again."""

    def listen(message):
        return stream(event(note("cancelled", requestId=message["id"])), then="hang")

    client, server = serve("modern", {"subscriptions/listen": listen})
    client.on_tools_changed(print)
    client.connect()

    assert server.wait_for_post("subscriptions/listen", 2)


def test_listening_is_tried_again_after_an_error(serve):
    """A server that can't just now may later."""
    answers = [
        json_answer({"jsonrpc": "2.0", "id": 0, "error": {"code": -32000, "message": "busy"}})
    ]
    client, server = serve(
        "modern", {"subscriptions/listen": lambda m: answers.pop() if answers else SILENT}
    )
    client.on_tools_changed(print)
    client.connect()

    assert server.wait_for_post("subscriptions/listen", 2)


def test_a_subscription_that_is_refused_is_none(serve):
    """The error is the caller's, and nobody listens."""
    client, _ = serve("legacy", server={"capabilities": {"resources": {}}})
    with pytest.raises(McpProtocolError, match="unknown method"):
        client.subscribe_resource("a:b", print)

    assert not +client._attendance._resources


# --- further rounds --------------------------------------------------------------------------------------------------


def asks(message, requests=None, state=None):
    value = {"resultType": "input_required"}
    if requests is not None:
        value["inputRequests"] = requests
    if state is not None:
        value["requestState"] = state
    return result(message, value)


ELICIT = {"method": "elicitation/create", "params": {"message": "who", "requestedSchema": {}}}


def test_a_stateless_server_gets_what_it_wants_to_know(serve):
    """The same request again under a new id, with the answers and the state that came, and none where none came."""

    def call(message):
        params = message["params"]
        if "inputResponses" not in params:
            return asks(message, {"k": ELICIT}, "state 1")
        if params.get("requestState") == "state 1":
            return asks(message, {"k": ELICIT})
        return None

    client, server = serve(
        "modern", {"tools/call": call}, elicitation=lambda params: {"name": "Ann"}
    )
    assert said(client.call_tool("echo", {"a": 1})) == "ok"
    first, second, third = [r.json for r in server.requests_of("tools/call")]

    assert len({first["id"], second["id"], third["id"]}) == 3
    answers = {"k": {"action": "accept", "content": {"name": "Ann"}}}
    assert second["params"]["inputResponses"] == answers
    assert second["params"]["requestState"] == "state 1"
    assert second["params"]["arguments"] == {"a": 1}
    assert "requestState" not in third["params"]


def test_a_server_that_asks_for_what_is_not_offered_is_refused(serve):
    """It was told what the client offers; the call ends with an error, and nothing crashes."""
    client, _ = serve("modern", {"tools/call": lambda m: asks(m, {"k": ELICIT})})
    with pytest.raises(McpProtocolError, match="does not offer"):
        client.call_tool("echo")

    client, _ = serve("modern", {"tools/call": lambda m: asks(m, {"k": 5})})
    with pytest.raises(McpProtocolError, match="no question"):
        client.call_tool("echo")


def test_a_server_that_never_has_enough_is_an_error(serve):
    """After ten rounds."""
    client, server = serve("modern", {"tools/call": lambda m: asks(m, state="x")})
    with pytest.raises(McpProtocolError, match="10 times"):
        client.call_tool("echo")

    assert server.methods().count("tools/call") == 10


# --- headers and freshness -------------------------------------------------------------------------------------------

HEADED = {
    "name": "headed",
    "inputSchema": {
        "type": "object",
        "properties": {"r": {"type": "string", "x-mcp-header": "Region"}},
    },
}
FAULTY = {
    "name": "faulty",
    "inputSchema": {"type": "object", "properties": {"r": {"type": "number", "x-mcp-header": "R"}}},
}


def test_arguments_are_mirrored_into_headers(serve):
    """As the tool's schema wants, also where the list was not read yet; what wants it wrongly is left out."""
    mismatch = {"code": -32020, "message": "header mismatch"}

    def call(message):
        header = server.requests[-1].headers.get("mcp-param-region")
        if header == "eu":
            return None
        error = {"jsonrpc": "2.0", "id": message["id"], "error": mismatch}
        return json_answer(error, status=400, then="keep")

    client, server = serve(
        "modern",
        {"tools/call": call, "tools/list": lambda m: result(m, {"tools": [HEADED, FAULTY]})},
    )
    assert said(client.call_tool("headed", {"r": "eu"})) == "ok"
    assert [tool["name"] for tool in client.list_tools()] == ["headed"]
    with pytest.raises(McpProtocolError, match="header mismatch"):
        client.call_tool("headed", {"r": "us"})

    assert server.methods().count("tools/call") == 4


def test_a_server_of_sessions_keeps_its_tools(serve):
    """Wishes for headers mean nothing there."""
    client, _ = serve("legacy", {"tools/list": lambda m: result(m, {"tools": [FAULTY]})})

    assert [tool["name"] for tool in client.list_tools()] == ["faulty"]


def test_a_fresh_list_is_not_asked_for_again(serve):
    """For as long as the server says, and until it says that the list changed."""
    pushes = SimpleQueue()
    changed = threading.Event()

    def listen(message):
        return stream(
            lambda: pushes.get(timeout=10), event(note("tools/list_changed")), then="hang"
        )

    client, server = serve(
        "modern",
        {
            "tools/list": lambda m: result(
                m, {"tools": [], "ttlMs": 60_000, "cacheScope": "private"}
            ),
            "subscriptions/listen": listen,
        },
    )
    client.on_tools_changed(changed.set)
    for _ in range(3):
        client.list_tools()
    assert server.methods().count("tools/list") == 1
    pushes.put(None)
    assert changed.wait(5)
    client.list_tools()

    assert server.methods().count("tools/list") == 2


# --- what the user sets ----------------------------------------------------------------------------------------------


def test_headers_of_the_user_go_with_every_request(serve):
    """Asked for each time where they are a function; the protocol's own can't be replaced."""
    tokens = iter(range(100))
    client, server = serve(
        "legacy",
        http={"headers": lambda: {"Authorization": f"Bearer {next(tokens)}", "accept": "x"}},
    )
    client.call_tool("echo")
    client.close()

    assert [r.headers["authorization"] for r in server.requests] == [
        f"Bearer {number}" for number in range(len(server.requests))
    ]
    assert server.requests_of("tools/call")[0].headers["accept"] != "x"


def test_credentials_may_be_renewed_once(serve):
    """The callback is told what is wanted, and the refused request goes out again."""
    wanted, tokens = [], ["old"]

    def renew(challenge):
        wanted.append(challenge)
        tokens.append("new")
        return True

    def call(message):
        if server.requests[-1].headers["authorization"] == "new":
            return None
        return HttpAnswer(
            status=401, headers=[("WWW-Authenticate", 'Bearer scope="x"')], then="keep"
        )

    http = {"headers": lambda: {"Authorization": tokens[-1]}, "on_unauthorized": renew}
    client, server = serve("legacy", {"tools/call": call}, http=http)
    assert said(client.call_tool("echo")) == "ok"
    assert wanted == ['Bearer scope="x"']

    refusing = {"on_unauthorized": lambda challenge: False}
    client, _ = serve(
        "legacy", {"tools/call": lambda m: HttpAnswer("no", status=401)}, http=refusing
    )
    with pytest.raises(McpTransportError, match="401: no"):
        client.call_tool("echo")


@pytest.mark.parametrize("url", ["ftp://a/b", "http://", "http:///mcp", "nonsense"])
def test_what_is_no_address_is_refused(url):
    """The mistake is told where it is made, and the address is not shown."""
    with pytest.raises(ConfigurationError, match="http"):
        HttpServer(url)


def test_an_address_alone_is_enough():
    """A text that begins like one is an address."""
    with FakeMcp("modern") as server, McpClient(server.address) as client:
        assert client.name == "127.0.0.1"
        assert said(client.call_tool("echo")) == "ok"


def test_where_every_transport_is_refused_the_first_refusal_is_told(serve):
    """Nobody cares for what an older transport said."""
    for transport in ("auto", "http"):
        client, _ = serve(
            "legacy",
            {
                "server/discover": lambda m: HttpAnswer("wrong page", status=404),
                "initialize": lambda m: HttpAnswer("wrong page", status=404),
                "GET": lambda request: HttpAnswer("no stream", status=404),
            },
            http={"transport": transport},
        )
        with pytest.raises(McpTransportError, match="404: wrong page"):
            client.connect()


def test_a_transport_that_is_none_is_refused():
    """Only three words are known."""
    with pytest.raises(ConfigurationError, match="transport"):
        HttpServer("http://a/b", transport="carrier pigeon")


def test_keys_are_not_shown():
    """Neither in the text of a server nor in that of its client."""
    server = HttpServer("https://user:secret@a.b/mcp?key=sk-1", headers={"Authorization": "sk-2"})

    for text in (repr(server), repr(McpClient(server)), McpClient(server).name):
        assert "secret" not in text
        assert "sk-" not in text


# --- resources, prompts, completion, logging -------------------------------------------------------------------------


def test_the_other_features_are_asked_for_by_name(serve):
    """Each is one request, or one a page."""
    listed = {
        "resources/list": ("resources", {"uri": "a:b"}),
        "resources/templates/list": ("resourceTemplates", {"uriTemplate": "a:{x}"}),
        "prompts/list": ("prompts", {"name": "p"}),
    }

    def page(message):
        key, item = listed[message["method"]]
        more = "cursor" not in message["params"]
        return result(message, {key: [item], **({"nextCursor": ""} if more else {})})

    answers = {
        **dict.fromkeys(listed, page),
        "resources/read": lambda m: result(
            m, {"contents": [{"uri": m["params"]["uri"], "text": "t"}]}
        ),
        "prompts/get": lambda m: result(m, {"messages": [m["params"]]}),
        "completion/complete": lambda m: result(m, {"completion": {"values": ["paris"]}}),
        "logging/setLevel": lambda m: result(m, {}),
    }
    client, server = serve(
        "legacy", answers, server={"capabilities": {"logging": {}}}, log_level="error"
    )

    assert client.list_resources() == [{"uri": "a:b"}] * 2
    assert client.list_resource_templates() == [{"uriTemplate": "a:{x}"}] * 2
    assert client.list_prompts() == [{"name": "p"}] * 2
    assert client.read_resource("a:b") == [{"uri": "a:b", "text": "t"}]
    got = client.get_prompt("p", {"x": "1"})
    assert got["messages"] == [{"name": "p", "arguments": {"x": "1"}}]
    ref = {"type": "ref/prompt", "name": "p"}
    assert client.complete(ref, "city", "par", context={"land": "fr"}) == ["paris"]
    assert server.posted[-1]["params"] == {
        "ref": ref,
        "argument": {"name": "city", "value": "par"},
        "context": {"arguments": {"land": "fr"}},
    }
    client.set_log_level("debug")
    levels = [m["params"]["level"] for m in server.posted if m.get("method") == "logging/setLevel"]
    assert levels == ["error", "debug"]
    with pytest.raises(ConfigurationError, match="loud"):
        client.set_log_level("loud")
    with pytest.raises(ConfigurationError, match="no list"):
        client.on_list_changed("cats", print)


def test_a_stateless_server_is_told_the_log_level_each_time(serve):
    """It keeps nothing, so every request says it."""
    client, server = serve("modern")
    client.set_log_level("warning")
    client.call_tool("echo")
    meta = server.posted[-1]["params"]["_meta"]

    assert meta["io.modelcontextprotocol/logLevel"] == "warning"
    assert "logging/setLevel" not in server.methods()


@pytest.mark.parametrize(
    "value",
    [{}, {"contents": 5, "completion": 5, "resources": "x"}, {"completion": {"values": None}}],
)
def test_what_makes_no_sense_is_nothing(serve, value):
    """Lists that are none are empty."""
    methods = ("resources/read", "completion/complete", "resources/list")
    client, _ = serve("modern", {method: lambda m: result(m, value) for method in methods})

    assert client.read_resource("a") == []
    assert client.complete({}, "a", "b") == []
    assert client.list_resources() == []


def test_a_log_level_that_the_server_refuses_breaks_nothing(serve):
    """It was good to have; calls go on."""
    client, server = serve("legacy", server={"capabilities": {"logging": {}}}, log_level="info")

    assert said(client.call_tool("echo")) == "ok"
    assert "logging/setLevel" in server.methods()
    assert json.loads(server.requests_of("logging/setLevel")[0].body)["params"] == {"level": "info"}
