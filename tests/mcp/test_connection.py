"""A connection over one stream in each direction, with a pipe that does as it is told."""

from __future__ import annotations

import json
import threading
from queue import SimpleQueue

import pytest

from yiemagent.abort import AbortSignal
from yiemagent.errors import AbortedError, McpProtocolError, McpTimeout, McpTransportError
from yiemagent.mcp.calls import Call
from yiemagent.mcp.client_protocol import ListChanged
from yiemagent.mcp.connection import Asked, DuplexConnection
from yiemagent.mcp.desk import Desk
from yiemagent.mcp.handlers import ServerRequests
from yiemagent.mcp.jsonrpc import ErrorResponse, Response, parse

RESULT = {"ok": True}


class Frame:
    """A message that was sent, or wasn't."""

    def __init__(self, is_sent=True):
        self.is_sent = is_sent


class FakePipe:
    """Keeps what is sent, and answers as a script says."""

    def __init__(self, receive, ended, script):
        self.receive, self.ended = receive, ended
        self.sent, self.happened = SimpleQueue(), []
        self.script = script
        self.frame = Frame()
        self.withdraws = False

    def send(self, data):
        message = json.loads(data)
        self.sent.put(message)
        self.happened.append(message.get("method") or "answer")
        for line in self.script(message) or ():
            for item in parse(line if isinstance(line, bytes) else json.dumps(line).encode()):
                self.receive(item)
        return self.frame

    def withdraw(self, frame):
        return self.withdraws

    def kill(self, reason):
        self.happened.append(f"kill: {reason}")

    def close(self):
        self.happened.append("close")


@pytest.fixture
def connect():
    """A function that opens a connection whose server follows a script."""
    desks = []

    def connect(script=lambda message: None, **handlers):
        desk = Desk("test", ServerRequests(**handlers))
        desks.append(desk)
        connection = DuplexConnection(lambda receive, ended: FakePipe(receive, ended, script), desk)
        connection.desk = desk
        return connection

    yield connect
    for desk in desks:
        desk.close()


def ask(connection, number=1, **options):
    """Ask a question and wait for its answer."""
    options.setdefault("timeout_s", 10)
    return connection.exchange(Asked(number, "m", {}), Call("m", **options))


def answer(message, **more):
    return {"jsonrpc": "2.0", "id": message["id"], "result": RESULT, **more}


def test_an_answer_finds_its_call(connect):
    """By its id, which may come as text; answers to other calls and doubles are counted and dropped."""
    connection = connect(
        lambda m: [{"id": 99, "result": {}}, answer(m, id=str(m["id"])), answer(m)]
    )

    assert ask(connection) == Response("1", RESULT)
    assert connection.late == 2


def test_many_calls_wait_at_once(connect):
    """Answers may come in any order."""
    held, done = [], SimpleQueue()
    all_there = threading.Event()

    def script(message):
        held.append(message)
        if len(held) == 10:
            all_there.set()

    connection = connect(script)
    threads = [
        threading.Thread(target=lambda n=n: done.put((n, ask(connection, n).result["n"])))
        for n in range(10)
    ]
    for thread in threads:
        thread.start()
    assert all_there.wait(5)
    for message in reversed(held):
        connection.pipe.receive(Response(message["id"], {"n": message["id"]}))
    for thread in threads:
        thread.join()

    assert sorted(done.get() for _ in range(10)) == [(n, n) for n in range(10)]


def test_progress_finds_its_call(connect):
    """By its token, which is the id; a stranger's progress is dropped."""
    told = []

    def script(message):
        for token in (5, 1, "1"):
            yield {
                "jsonrpc": "2.0",
                "method": "notifications/progress",
                "params": {"progressToken": token, "progress": 1},
            }
        yield answer(message)

    connection = connect(script)

    assert ask(connection, on_progress=told.append).result == RESULT
    assert [params["progressToken"] for params in told] == [1, "1"]


@pytest.mark.parametrize(
    "line, words",
    [
        ({"jsonrpc": "2.0", "id": 1}, "neither"),
        ({"jsonrpc": "2.0", "id": 1, "result": {}, "error": {"code": 1}}, "both"),
        (b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 100_000, "nested"),
    ],
)
def test_an_answer_that_is_none_fails_its_call_at_once(connect, line, words):
    """What can't be read and names the call ends it."""
    with pytest.raises(McpProtocolError, match=words):
        ask(connect(lambda m: [line]))


def test_an_unreadable_answer_without_an_id_fails_the_only_call(connect):
    """After a moment in which the good answer may come; with several calls nobody knows whose it was."""
    garbled = {"jsonrpc": "2.0", "result": {}}
    with pytest.raises(McpProtocolError, match="names no request"):
        ask(connect(lambda m: [garbled]), timeout_s=60)

    assert ask(connect(lambda m: [garbled, answer(m)])).result == RESULT

    connection = connect(lambda m: [garbled] if m["id"] == 2 else None)
    other = threading.Thread(target=lambda: ask(connection, 1))
    connection.pipe.script = lambda m: None
    other.start()
    connection.pipe.sent.get(timeout=5)
    connection.pipe.script = lambda m: [garbled]
    with pytest.raises(McpTimeout):
        ask(connection, 2, timeout_s=0.1)
    connection.pipe.receive(Response(1, {}))
    other.join()


def test_an_error_without_an_id_fails_the_only_call(connect):
    """A server that could not read the request can't say which; it can only have been that one."""
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "what"}}

    assert ask(connect(lambda m: [error])) == ErrorResponse(None, -32700, "what")


def test_a_servers_questions_are_answered(connect):
    """A ping at once, what has a handler by it, what is unknown or broken by an error."""
    questions = [
        {"jsonrpc": "2.0", "id": 0, "method": "ping"},
        {"jsonrpc": "2.0", "id": "r", "method": "roots/list"},
        {"jsonrpc": "2.0", "id": 5, "method": "no/such"},
        {"jsonrpc": "2.0", "id": 6, "method": "x", "params": [1]},
    ]
    connection = connect(
        lambda m: [*questions, answer(m)] if m.get("method") == "m" else None, roots=[]
    )
    ask(connection)
    sent = {}
    for _ in range(5):
        message = connection.pipe.sent.get(timeout=5)
        sent[message["id"]] = message

    assert sent[0]["result"] == {}
    assert sent["r"]["result"] == {"roots": []}
    assert sent[5]["error"]["code"] == -32601
    assert sent[6]["error"]["code"] == -32600


def test_news_goes_to_the_desk(connect):
    """What is neither answer nor progress is told to those who listen."""
    told = SimpleQueue()
    connection = connect(
        lambda m: [{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}, answer(m)]
    )
    connection.desk.listen(ListChanged, told.put)
    ask(connection)

    assert told.get(timeout=5) == ListChanged("tools")


def test_a_server_may_end_the_listening_to_it(connect):
    """By cancelling that request; a cancelled question of its own has an id of its own, and ends no call."""

    def script(message):
        gone = {"method": "notifications/cancelled", "params": {"requestId": message["id"]}}
        yield {"jsonrpc": "2.0", **gone}
        if message["method"] == "m":
            yield answer(message)

    connection = connect(script)
    call = Call("subscriptions/listen", timeout_s=10)

    assert connection.exchange(Asked(1, "subscriptions/listen", {}), call) == Response(1, {})
    assert ask(connection, 2) == Response(2, RESULT)


def test_a_call_that_is_given_up_is_cancelled(connect):
    """The server hears which and why; the answer that still comes is dropped."""
    connection = connect()
    signal = AbortSignal()
    signal.abort("enough")
    with pytest.raises(McpTimeout):
        ask(connection, 1, timeout_s=0.02)
    with pytest.raises(AbortedError):
        ask(connection, 2, signal=signal)
    connection.pipe.receive(Response(1, {}))
    sent = [connection.pipe.sent.get(timeout=5) for _ in range(4)]

    assert sent[1]["method"] == sent[3]["method"] == "notifications/cancelled"
    assert sent[1]["params"]["requestId"] == 1
    assert sent[3]["params"] == {"requestId": 2, "reason": "aborted: enough"}
    assert connection.late == 1


def test_what_may_not_be_cancelled_is_not(connect):
    """The questions that open a connection are given up in silence."""
    connection = connect()
    with pytest.raises(McpTimeout):
        connection.exchange(Asked(1, "initialize", {}, may_cancel=False), Call("m", timeout_s=0.02))

    assert connection.pipe.happened == ["initialize"]


def test_a_call_that_never_left_is_taken_back(connect):
    """The server knows nothing of it, and hears nothing."""
    connection = connect()
    connection.pipe.withdraws = True
    with pytest.raises(McpTimeout):
        ask(connection, timeout_s=0.02)

    assert connection.pipe.happened == ["m"]


def test_a_server_that_does_not_read_is_ended_at_the_deadline(connect):
    """A message that is stuck halfway blocks all others; an abort alone ends nothing."""
    connection = connect()
    connection.pipe.frame.is_sent = False
    signal = AbortSignal()
    signal.abort()
    with pytest.raises(AbortedError):
        ask(connection, 1, signal=signal)
    with pytest.raises(McpTimeout):
        ask(connection, 2, timeout_s=0.02)

    assert connection.pipe.happened == [
        "m",
        "notifications/cancelled",
        "m",
        "kill: does not read what it is sent",
    ]


@pytest.mark.parametrize("is_sent", [True, False])
def test_the_end_of_the_pipe_ends_every_call(connect, is_sent):
    """Each is told whether its request may have arrived; later ones are refused with the same reason."""
    connection = connect()
    connection.pipe.frame.is_sent = is_sent
    errors = SimpleQueue()

    def wait(number):
        try:
            ask(connection, number)
        except McpTransportError as error:
            errors.put(error)

    threads = [threading.Thread(target=wait, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for _ in threads:
        connection.pipe.sent.get(timeout=5)
    connection.pipe.ended(McpTransportError("it ended with exit code 3"))
    for thread in threads:
        thread.join()
    told = [errors.get() for _ in range(3)]

    assert {str(error) for error in told} == {"it ended with exit code 3"}
    assert {error.outcome_unknown for error in told} == {is_sent}
    with pytest.raises(McpTransportError, match="exit code 3") as caught:
        ask(connection)
    assert not caught.value.outcome_unknown


def test_closing_ends_every_call(connect):
    """The pipe is closed, what waits is told, and so is who comes later."""
    connection = connect()
    told = SimpleQueue()

    def wait():
        try:
            ask(connection)
        except McpTransportError as error:
            told.put(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    connection.pipe.sent.get(timeout=5)
    connection.close()
    waiting.join()

    assert "was closed" in told.get(timeout=5)
    assert connection.pipe.happened[-1] == "close"
    with pytest.raises(McpTransportError, match="was closed"):
        ask(connection)


def test_what_json_has_not_is_refused_before_it_leaves(connect):
    """The mistake is the caller's, and the server hears nothing."""
    connection = connect()
    with pytest.raises(McpProtocolError, match="can't be sent as JSON"):
        connection.exchange(Asked(1, "m", {"a": float("nan")}), Call("m"))
    connection.tell({"method": "m", "params": object()})

    assert connection.pipe.happened == []
