"""MCP over NATS: our client and our server through a small NATS server, and the client through other requesters."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from queue import SimpleQueue

import pytest

from tests.support.mcp_wire import stateless
from tests.support.nats_server import MiniNats
from yiemagent.abort import AbortSignal
from yiemagent.agent import YiemAgent
from yiemagent.api import ask
from yiemagent.errors import (
    AbortedError,
    ConfigurationError,
    McpProtocolError,
    McpTimeout,
    McpTransportError,
)
from yiemagent.mcp.client import McpClient
from yiemagent.mcp.nats import NatsServer
from yiemagent.mcp.nats_client import (
    NatsClient,
    NatsDisconnected,
    NoResponders,
    PayloadTooLarge,
)
from yiemagent.mcp.over_nats import nats_mcp_server
from yiemagent.mcp.serve_nats import NatsServing
from yiemagent.mcp.server import McpServer
from yiemagent.messages import content_text
from yiemagent.registry import ToolStore
from yiemagent.testing import ScriptedModel, call
from yiemagent.tool import AgentTool, AgentToolResult

SUBJECT = "tools.test"
RETURNED = {"content": [{"type": "text", "text": "done"}]}


class Tools:
    """A store with tools whose calls are seen."""

    def __init__(self):
        self.begun, self.ended = SimpleQueue(), SimpleQueue()
        self.release = threading.Event()
        self.store = ToolStore("test")
        for name in ("echo", "hold", "count", "big"):
            self.add(name)

    def add(self, name, description="does something"):
        """Register a tool."""
        self.store.register(
            AgentTool(
                name,
                description=description,
                execute=getattr(self, f"_{name}"),
                annotations={"readOnlyHint": True},
                parallel_tool_execute=True,
            )
        )

    def _echo(self, call_id, args, signal, partial):
        return AgentToolResult(str(args.get("text")))

    def _big(self, call_id, args, signal, partial):
        return AgentToolResult("x" * 6000)

    def _hold(self, call_id, args, signal, partial):
        self.begun.put(args)
        woken = SimpleQueue()
        signal.add_callback(lambda: woken.put("aborted"))
        threading.Thread(
            target=lambda: (self.release.wait(20), woken.put("released")), daemon=True
        ).start()
        how = woken.get(timeout=20)
        self.ended.put(how)
        return AgentToolResult(how)

    def _count(self, call_id, args, signal, partial):
        for step in (1, 2, 3):
            partial({"progress": step, "total": 3})
        return AgentToolResult("counted")


@pytest.fixture
def nats():
    """A NATS server."""
    with MiniNats() as server:
        yield server


@pytest.fixture
def tools(nats):
    """Tools that are served over it."""
    tools = Tools()
    with McpServer(tools.store) as server, NatsServing(server, nats.url, SUBJECT):
        yield tools
        tools.release.set()


@pytest.fixture
def client(nats):
    """A client of the tools."""
    with nats_mcp_server(nats.url, SUBJECT, timeout_s=20) as client:
        yield client


@contextlib.contextmanager
def answering(nats, answer, subject=SUBJECT):
    """Have somebody answer each request by a function of it, which gives messages."""
    heard = SimpleQueue()
    with NatsClient(nats.url) as other:

        def receive(message):
            asked = json.loads(message.data)
            heard.put(asked)
            for each in answer(asked):
                data = each if isinstance(each, bytes) else json.dumps(each).encode()
                other.publish(message.reply, data)

        other.subscribe(subject, receive)
        other.flush()
        yield heard


def answers(result):
    """A function that answers every request with one result."""
    return lambda asked: [{"jsonrpc": "2.0", "id": asked["id"], "result": result}]


def known(answer):
    """The same of a server that knows no question but those about tools."""

    def choose(asked):
        if asked["method"].startswith("tools/"):
            return answer(asked)
        error = {"code": -32601, "message": "unknown"}
        return [{"jsonrpc": "2.0", "id": asked["id"], "error": error}]

    return choose


def text(result):
    """The text of a call's result."""
    return result["content"][0]["text"]


def call_tool(client, name, arguments=None, **options):
    """Call a tool and give its result."""
    return client.request("tools/call", {"name": name, "arguments": arguments or {}}, **options)


# -- our client and our server ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("tools")
def test_tools_are_listed_and_called(client):
    """The stateless era is spoken, and a tool gives its result."""
    listed = client("tools/list")["result"]["tools"]
    called = client("tools/call", "echo", {"text": "hé"})["result"]

    assert {tool["name"] for tool in listed} == {"echo", "hold", "count", "big"}
    assert text(called) == "hé"
    assert client.server.version == "2026-07-28"


@pytest.mark.usefixtures("tools")
def test_progress_comes_before_the_answer(client):
    """Several messages answer one request: progress in its order, then the result."""
    told = []
    result = call_tool(client, "count", on_progress=told.append)

    assert [params["progress"] for params in told] == [1, 2, 3]
    assert text(result) == "counted"


@pytest.mark.usefixtures("tools")
def test_a_servers_error_is_the_calls(client):
    """A JSON-RPC error is told apart from everything that the transport does."""
    with pytest.raises(McpProtocolError) as failure:
        client.request("no/such", {})

    assert failure.value.code == -32601


def test_an_abort_reaches_the_tool(client, tools):
    """An abort ends the call within 0.1 s, and whoever serves hears of it."""
    signal, ended = AbortSignal(), SimpleQueue()

    def run():
        try:
            call_tool(client, "hold", signal=signal)
        except AbortedError:
            ended.put(time.monotonic())

    thread = threading.Thread(target=run)
    thread.start()
    tools.begun.get(timeout=10)
    begun = time.monotonic()
    signal.abort("enough")
    took = ended.get(timeout=10) - begun
    thread.join()

    assert took < 0.1
    assert tools.ended.get(timeout=10) == "aborted"


def test_a_time_limit_reaches_the_tool(client, tools):
    """A call over its limit ends as one whose outcome is not known, and is cancelled."""
    client.connect()
    with pytest.raises(McpTimeout):
        call_tool(client, "hold", timeout_s=0.2)

    assert tools.ended.get(timeout=10) == "aborted"


def test_a_cancellation_is_for_one_client_only(nats, tools):
    """Where two clients use the same id, the inbox tells whose call is meant; without it neither ends."""
    ask_twice = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hold"}}'
    cancel = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
    odd = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}'
    came = SimpleQueue()
    with (
        NatsClient(nats.url) as one,
        NatsClient(nats.url) as two,
        one.open(SUBJECT, ask_twice, came.put),
        two.open(SUBJECT, ask_twice, came.put) as post,
    ):
        tools.begun.get(timeout=10)
        tools.begun.get(timeout=10)
        one.publish(f"{SUBJECT}.cancel", cancel)
        one.publish(f"{SUBJECT}.cancel", odd)
        one.publish(f"{SUBJECT}.cancel", cancel, reply=post.inbox)

        assert tools.ended.get(timeout=10) == "aborted"
        tools.release.set()
        assert tools.ended.get(timeout=10) == "released"
        assert json.loads(came.get(timeout=10).data)["id"] == 1


def test_calls_run_side_by_side_over_one_connection(nats, tools):
    """Calls of tools that only read wait for nobody."""
    with nats_mcp_server(nats.url, SUBJECT, max_concurrency=None) as client:
        results = SimpleQueue()
        threads = [
            threading.Thread(target=lambda: results.put(call_tool(client, "hold")))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for _ in threads:
            tools.begun.get(timeout=10)
        tools.release.set()
        for thread in threads:
            thread.join()

        assert [text(results.get()) for _ in threads] == ["released"] * 8


def test_servers_of_one_queue_share_the_requests(nats):
    """Of two servers in a group each gets some, and what one can't do any more the other does."""
    first, second = Tools(), Tools()
    with (
        McpServer(first.store) as one,
        McpServer(second.store) as two,
        nats_mcp_server(nats.url, SUBJECT) as client,
        NatsServing(one, nats.url, SUBJECT),
    ):
        with NatsServing(two, nats.url, SUBJECT):
            client.connect()
            for tools in (first, second):
                tools.release.set()
            for _ in range(4):
                call_tool(client, "hold")
        shared = first.begun.qsize()
        call_tool(client, "hold")

        assert 1 <= shared <= 3
        assert first.begun.qsize() == shared + 1


def test_changes_are_told(nats, tools):
    """Who listens to a server hears that its tools changed."""
    changed = threading.Event()
    with nats_mcp_server(nats.url, SUBJECT) as client:
        client.on_tools_changed(changed.set)
        client.connect()
        deadline = time.monotonic() + 10
        while not changed.wait(0.05) and time.monotonic() < deadline:
            tools.store.remove("count")
            tools.add("count")

    assert changed.is_set()


def test_an_agent_uses_it(nats, tools):
    """An agent finds the tools by `list_tools` and calls one in the same run."""
    model = ScriptedModel([call("list_tools"), call("echo", {"text": "hi"}), "It said hi."])
    with nats_mcp_server(nats.url, SUBJECT) as server, YiemAgent(model, mcp_server=server) as agent:
        answer = ask(agent, "say hi", timeout_s=30)
        results = [content_text(m.content) for m in agent.state.messages if m.role == "toolResult"]

    assert answer.text == "It said hi."
    assert results[1] == "hi"


# -- the failures, told apart -----------------------------------------------------------------------------------------


def test_nobody_listening_is_told_at_once(client):
    """Without a server the call fails at once, and had no effect."""
    begun = time.monotonic()
    with pytest.raises(NoResponders, match=SUBJECT) as failure:
        client.request("tools/list")

    assert time.monotonic() - begun < 10
    assert not failure.value.outcome_unknown


def test_a_connection_that_breaks_leaves_the_outcome_unknown(nats, client, tools):
    """A call whose connection broke is not sent again."""
    client.connect()
    failed = SimpleQueue()

    def run():
        try:
            call_tool(client, "hold")
        except McpTransportError as error:
            failed.put(error)

    thread = threading.Thread(target=run)
    thread.start()
    tools.begun.get(timeout=10)
    nats.drop()
    error = failed.get(timeout=10)
    thread.join()

    assert error.outcome_unknown and "not sent again" in str(error)
    assert isinstance(error.__cause__, NatsDisconnected)
    assert tools.begun.empty()


def test_what_is_too_large_is_told_on_both_sides():
    """A request over the limit is not sent; an answer over it becomes an error that says so."""
    tools = Tools()
    with (
        MiniNats(max_payload=5000) as nats,
        McpServer(tools.store) as server,
        NatsServing(server, nats.url, SUBJECT),
        nats_mcp_server(nats.url, SUBJECT) as client,
    ):
        client.connect()
        with pytest.raises(PayloadTooLarge):
            call_tool(client, "echo", {"text": "x" * 6000})
        with pytest.raises(McpProtocolError, match="carries 5000 at most"):
            call_tool(client, "big")
        assert text(call_tool(client, "echo", {"text": "ok"})) == "ok"


@pytest.mark.parametrize(
    "given, words",
    [
        (b"", "it is empty"),
        (b"hello", "no JSON-RPC"),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', "answers another request"),
        (b'{"jsonrpc":"2.0","id":', "no JSON"),
    ],
)
def test_what_is_no_answer_is_told(nats, client, given, words):
    """An answer that can't be read, or carries another id, ends the call soon and says what it is."""
    with (
        answering(nats, known(lambda asked: [given])),
        pytest.raises(McpProtocolError, match=words),
    ):
        client.request("tools/list")


def test_an_answer_after_noise_counts(nats, client):
    """What is no answer is passed over where the answer comes."""

    def answer(asked):
        log = {"method": "notifications/message", "params": {"level": "info", "data": "x"}}
        question = {"jsonrpc": "2.0", "id": 1, "method": "roots/list"}
        return [b"noise", {"jsonrpc": "2.0", **log}, question, *answers({"tools": []})(asked)]

    with answering(nats, known(answer)):
        assert client("tools/list")["result"]["tools"] == []


# -- other servers ----------------------------------------------------------------------------------------------------


def test_a_server_that_knows_tools_alone_is_used(nats, client):
    """One that does not know `server/discover` is taken for one with tools; what `_meta` says does not harm it."""
    with answering(nats, known(answers(RETURNED))) as heard:
        assert text(client("tools/call", "any", {})["result"]) == "done"

    assert [heard.get()["method"] for _ in range(2)] == ["server/discover", "tools/call"]


def test_a_plain_server_is_asked_plainly(nats):
    """With `plain`, nothing but the call is sent, and no `_meta`; ids differ from each other."""
    with (
        answering(nats, answers(RETURNED)) as heard,
        nats_mcp_server(nats.url, SUBJECT, plain=True) as client,
    ):
        client("tools/call", "any", {"a": 1})
        client("tools/call", "any", {"a": 1})
    first, second = heard.get(), heard.get()

    assert first["params"] == {"name": "any", "arguments": {"a": 1}}
    assert first["id"] != second["id"]


@pytest.mark.usefixtures("tools")
def test_a_plain_client_is_served(nats):
    """Requests without `_meta` and with constant ids are answered."""
    with NatsClient(nats.url) as plain:
        listed = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        params = {"name": "echo", "arguments": {"text": "x"}}
        called = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
        found = [
            json.loads(plain.request(SUBJECT, json.dumps(message).encode(), 10).data)
            for message in (listed, called, called)
        ]

    assert len(found[0]["result"]["tools"]) == 4
    assert [each["id"] for each in found] == [1, 2, 2]
    assert text(found[2]["result"]) == "x"


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize(
    "message, code",
    [
        ({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}, -32022),
        ({"id": 1, "method": "tools/list"}, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": "nope"}, -32601),
        ("nothing", -32700),
    ],
)
def test_what_cant_be_served_is_answered_with_an_error(nats, message, code):
    """A handshake, an unknown method and what is no request get errors of their own."""
    with NatsClient(nats.url) as plain:
        answer = json.loads(plain.request(SUBJECT, json.dumps(message).encode(), 10).data)

    assert answer["error"]["code"] == code


@pytest.mark.usefixtures("tools")
def test_a_message_without_an_inbox_is_dropped(nats, client):
    """What can't be answered does nothing."""
    with NatsClient(nats.url) as plain:
        plain.publish(SUBJECT, b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}')
        plain.flush()

    assert client("tools/list")["result"]["tools"]


# -- other requesters -------------------------------------------------------------------------------------------------


class Requester:
    """Answers each request by a function of it."""

    def __init__(self, answer):
        self.answer = answer
        self.sent, self.published = SimpleQueue(), SimpleQueue()

    def request(self, subject, data, timeout):
        asked = json.loads(data)
        self.sent.put((subject, asked, timeout))
        return self.answer(asked)

    def publish(self, subject, data):
        self.published.put((subject, json.loads(data)))


class Reply:
    """An answer whose bytes have a name."""

    def __init__(self, name, data):
        setattr(self, name, data)


def replying(make):
    """A requester's answer to everything, given as `make` makes it of the bytes."""
    return lambda asked: make(json.dumps(answers(RETURNED)(asked)[0]).encode())


@pytest.mark.parametrize(
    "make",
    [
        bytes,
        bytes.decode,
        bytearray,
        lambda data: Reply("data", data),
        lambda data: Reply("payload", data),
    ],
)
def test_any_requester_carries_requests(make):
    """What has `request(subject, data, timeout)` is enough, in whatever form it gives the bytes."""
    requester = Requester(replying(make))
    with nats_mcp_server(requester, SUBJECT, plain=True, timeout_s=7) as client:
        result = client("tools/call", "any", {})["result"]
    subject, asked, timeout = requester.sent.get()

    assert text(result) == "done"
    assert (subject, asked["method"]) == (SUBJECT, "tools/call")
    assert 0 < timeout <= 7


def test_a_requester_of_one_answer_is_asked_for_no_progress():
    """Progress would be taken for the answer, so none is asked for; changes can't be told."""
    requester = Requester(lambda asked: json.dumps(known(answers(RETURNED))(asked)[0]))
    with nats_mcp_server(requester, SUBJECT) as client:
        client.request("tools/call", {"name": "any", "arguments": {}}, on_progress=print)
    requester.sent.get()

    assert "progressToken" not in requester.sent.get()[1]["params"]["_meta"]


@pytest.mark.abandons_threads(1)
def test_a_requester_that_blocks_is_abandoned():
    """An abort ends the call within 0.1 s although the requester hangs, and is published where that can be."""
    release, begun = threading.Event(), threading.Event()

    def hang(asked):
        begun.set()
        release.wait(20)

    requester = Requester(hang)
    signal = AbortSignal()

    def abort():
        begun.wait(10)
        signal.abort("enough")

    aborter = threading.Thread(target=abort)
    aborter.start()
    with nats_mcp_server(requester, SUBJECT, plain=True) as client:
        with pytest.raises(AbortedError):
            call_tool(client, "any", signal=signal)
        took = time.monotonic() - signal.aborted_at
        subject, told = requester.published.get(timeout=10)
        release.set()
    aborter.join()

    assert took < 0.1
    assert (subject, told["method"]) == (f"{SUBJECT}.cancel", "notifications/cancelled")


@pytest.mark.parametrize(
    "raised, kind, unknown",
    [
        (TimeoutError("x"), McpTimeout, None),
        (NoResponders("nobody"), NoResponders, False),
        (OSError("cut"), McpTransportError, True),
    ],
)
def test_what_a_requester_raises_is_told(raised, kind, unknown):
    """Its own errors become ours; an unknown one leaves the outcome unknown."""

    def fail(asked):
        raise raised

    with (
        nats_mcp_server(Requester(fail), SUBJECT, plain=True) as client,
        pytest.raises(kind) as failure,
    ):
        call_tool(client, "any")

    assert getattr(failure.value, "outcome_unknown", None) is unknown


def test_what_a_requester_gives_that_is_no_payload_is_told():
    """An answer of another kind is an error, not a crash."""
    with (
        nats_mcp_server(Requester(lambda asked: 5), SUBJECT, plain=True) as client,
        pytest.raises(McpProtocolError, match="int is no payload"),
    ):
        call_tool(client, "any")


# -- making and ending ------------------------------------------------------------------------------------------------


def test_closing_ends_calls_under_way(nats, tools):
    """A closed client's calls end at once."""
    client = nats_mcp_server(nats.url, SUBJECT)
    failed = SimpleQueue()

    def run():
        try:
            call_tool(client, "hold")
        except McpTransportError as error:
            failed.put(error)

    thread = threading.Thread(target=run)
    thread.start()
    tools.begun.get(timeout=10)
    client.close()
    thread.join(5)

    assert "closed" in str(failed.get(timeout=1))


def test_a_serving_that_ends_aborts_what_is_left(nats):
    """Calls under way have their time, and are aborted then."""
    tools = Tools()
    with McpServer(tools.store) as server, NatsClient(nats.url) as plain:
        serving = NatsServing(server, nats.url, SUBJECT)
        asked = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hold"}}'
        with plain.open(SUBJECT, asked, print):
            tools.begun.get(timeout=10)
            serving.close(0.05)
        serving.wait()
        tools.release.set()

        assert tools.ended.get(timeout=10) == "aborted"


def test_who_listens_and_goes_is_given_up(nats):
    """A subscription whose client is gone ends with the first change that nobody takes."""
    tools = Tools()
    asked = json.dumps(
        stateless("l-1", "subscriptions/listen", notifications={"toolsListChanged": True})
    )
    came = SimpleQueue()
    with McpServer(tools.store) as server, NatsClient(nats.url) as plain:
        serving = NatsServing(server, nats.url, SUBJECT)
        inbox = plain.subscribe("my.inbox", came.put)
        plain.publish(SUBJECT, asked.encode(), reply="my.inbox")
        acknowledged = json.loads(came.get(timeout=10).data)
        inbox.close()
        plain.flush()
        tools.store.remove("count")
        begun = time.monotonic()
        serving.close(30)  # waits for what is under way

    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert time.monotonic() - begun < 15


def test_serving_needs_a_nats_server():
    """Where none is, that is told at once."""
    with MiniNats() as gone:
        pass
    with McpServer(ToolStore("empty")) as server, pytest.raises(McpTransportError):
        NatsServing(server, gone.url, SUBJECT)


def test_an_address_names_server_and_subject(nats, tools):
    """`nats://host:port/subject` is enough for a client; `?plain=1` makes it a plain one."""
    with McpClient(f"{nats.url}/{SUBJECT}") as client:
        assert client.connect().info["name"] == "yiemagent"
    plain = NatsServer.from_url("nats://u:p@h:1/a.b?plain=1")

    assert (plain.subject, plain.plain, plain.name) == ("a.b", True, "a.b")
    assert "u" not in repr(plain).replace("NatsServer", "")
    assert tools.begun.empty()


@pytest.mark.parametrize(
    "make",
    [
        lambda: NatsServer("a b"),
        lambda: NatsServer("a.*"),
        lambda: NatsServer("a", "http://x"),
        lambda: NatsServer("a", object()),
        lambda: NatsServer.from_url("nats://h:1"),
        lambda: NatsServer.from_url("nats:///a"),
        lambda: McpClient(NatsServer("a"), protocol="legacy").connect(),
    ],
)
def test_what_makes_no_sense_is_refused(make):
    """Mistakes are told at once."""
    with pytest.raises(ConfigurationError):
        make()
