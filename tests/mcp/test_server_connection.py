"""One client of a server: subscriptions, changes, and how it goes."""

from __future__ import annotations

import contextlib
import threading

import pytest

from tests.support.mcp_wire import Client, asked, stateless
from yiemagent.mcp.caller import current_caller
from yiemagent.mcp.jsonrpc import read_message
from yiemagent.mcp.offers import Prompt, Resource
from yiemagent.mcp.server import McpServer
from yiemagent.registry import ToolStore
from yiemagent.tool import AgentTool

ID = "io.modelcontextprotocol/subscriptionId"


def tool(name, execute=lambda *_: "done"):
    """A tool."""
    return AgentTool(name, description="Does.", execute=execute, parallel_tool_execute=True)


@contextlib.contextmanager
def serving(*tools):
    """A server with tools, a resource and a prompt."""
    store = ToolStore("test")
    for each in tools:
        store.register(each)
    with McpServer(
        store,
        resources=[Resource("a:b", "b", read=str)],
        prompts=[Prompt("p", render=str)],
    ) as server:
        yield server


def listen(client, number=9, **wanted):
    """Open a subscription."""
    client.send(stateless(number, "subscriptions/listen", notifications=wanted))


# -- subscriptions ----------------------------------------------------------------------------------------------------


def test_a_subscription_is_acknowledged_first():
    """The first message says what the server agreed to, under the subscription's id."""
    with serving() as server:
        client = Client(server)
        listen(
            client,
            toolsListChanged=True,
            promptsListChanged=False,
            somethingElse=True,
            resourceSubscriptions=["a:b", 5],
        )

        assert client.channel.next_sent() == {
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {
                "_meta": {ID: 9},
                "notifications": {"toolsListChanged": True, "resourceSubscriptions": ["a:b"]},
            },
        }


def test_what_changes_during_the_acknowledgement_is_told_behind_it():
    """Whoever knows that it listens misses nothing."""
    with serving() as server:
        client = Client(server)
        send, sent = client.channel.send, []

        def changing(message):
            sent.append(message["method"])
            if len(sent) == 1:
                server.store.register(tool("t"))
            send(message)

        client.channel.send = changing
        listen(client, toolsListChanged=True)
        client.channel.next_sent()

        assert client.channel.next_sent()["method"] == "notifications/tools/list_changed"
        assert sent == [
            "notifications/subscriptions/acknowledged",
            "notifications/tools/list_changed",
        ]


def test_only_what_was_asked_for_is_told():
    """Changes of another kind, and of other resources, are not told."""
    with serving() as server:
        client = Client(server)
        listen(client, promptsListChanged=True, resourceSubscriptions=["a:b"])
        client.channel.next_sent()
        server.store.register(tool("t"))
        server.add_resource(Resource("a:c", "c", read=str))
        server.resource_updated("a:c")
        server.resource_updated("a:b")
        updated = client.channel.next_sent()
        server.add_prompt(Prompt("q", render=str))
        prompts = client.channel.next_sent()

        assert updated["method"] == "notifications/resources/updated"
        assert updated["params"] == {"uri": "a:b", "_meta": {ID: 9}}
        assert prompts["method"] == "notifications/prompts/list_changed"
        assert client.channel.sent.empty()


def test_a_cancelled_subscription_is_silent():
    """After its cancellation nothing is told, and nobody listens."""
    with serving() as server:
        client = Client(server)
        listen(client, toolsListChanged=True)
        client.channel.next_sent()
        client.send(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}
        )

        assert client.channel.next_answer() is None
        assert server.changes.listeners() == ()


def test_the_server_ends_subscriptions_in_good_order():
    """Closing answers the request, under the subscription's id."""
    with serving() as server:
        client = Client(server)
        listen(client, toolsListChanged=True)
        server.close()
        answer = client.channel.next_answer()

        assert answer["id"] == 9
        assert answer["result"]["resultType"] == "complete"
        assert answer["result"]["_meta"][ID] == 9


def test_a_transport_may_end_them_alone():
    """Subscriptions end, calls go on."""
    gate = threading.Event()
    with serving(tool("t", lambda *_: gate.wait(10) and "done")) as server:
        client = Client(server)
        listen(client, toolsListChanged=True)
        client.send(stateless(1, "tools/call", name="t"))
        client.connection.end_subscriptions()

        assert client.channel.next_answer()["id"] == 9
        gate.set()
        assert client.channel.next_answer()["id"] == 1
        assert client.connection.idle


@pytest.mark.parametrize("wanted", [None, [], "all"])
def test_a_subscription_must_say_what_it_wants(wanted):
    """Without a filter it is refused."""
    with serving() as server:
        client = Client(server)
        client.send(stateless(9, "subscriptions/listen", notifications=wanted))

        assert client.channel.next_answer()["error"]["code"] == -32602


# -- after a handshake ------------------------------------------------------------------------------------------------


def test_changes_of_lists_are_told_unasked():
    """A client that shook hands hears of every list, by the channel that belongs to no request."""
    with serving() as server:
        client = Client(server)
        client.shake_hands()
        server.store.register(tool("t"))
        server.store.remove("t")

        assert client.home.next_sent() == {
            "jsonrpc": "2.0",
            "method": "notifications/tools/list_changed",
        }
        client.connection.close()
        assert server.changes.listeners() == ()


def test_updates_of_resources_are_told_to_subscribers():
    """From the subscription to its end, and of that resource only."""
    with serving() as server:
        client = Client(server)
        client.shake_hands()
        assert client.ask("resources/subscribe", uri="a:b") == {}
        server.resource_updated("a:c")
        server.resource_updated("a:b")

        assert client.home.next_sent()["params"] == {"uri": "a:b"}
        assert client.ask("resources/unsubscribe", uri="a:b") == {}
        server.resource_updated("a:b")
        server.add_prompt(Prompt("q", render=str))
        assert client.home.next_sent()["method"] == "notifications/prompts/list_changed"
        assert client.ask("resources/subscribe")["code"] == -32602


def test_before_the_end_of_the_handshake_nothing_is_told():
    """A client that never said that it is ready hears of no change."""
    with serving() as server:
        client = Client(server)
        client.send(asked(0, "initialize", protocolVersion="2025-11-25"))
        client.channel.next_answer()

        assert server.changes.listeners() == ()


# -- the end ----------------------------------------------------------------------------------------------------------


def test_when_the_client_goes_its_calls_end():
    """Signals are set, questions end, and no answer goes out."""
    began, ended = threading.Event(), threading.Event()

    def waits(call_id, args, signal, partial):
        began.set()
        signal.wait(10)
        ended.set()

    with serving(tool("t", waits)) as server:
        client = Client(server)
        client.send(stateless(1, "tools/call", name="t"))
        assert began.wait(10)
        client.connection.close()

        assert ended.wait(10)
        assert client.channel.next_answer() is None


def test_closing_the_server_answers_calls():
    """A call under way gets an answer, not silence."""
    began = threading.Event()

    def waits(call_id, args, signal, partial):
        began.set()
        signal.wait(10)

    with serving(tool("t", waits)) as server:
        client = Client(server)
        client.send(stateless(1, "tools/call", name="t"))
        assert began.wait(10)
        server.close()

        assert client.channel.next_answer()["id"] == 1


def test_a_call_that_can_get_no_thread_is_answered():
    """After the server has closed, a call is an error and not silence."""
    with serving(tool("t")) as server:
        client = Client(server)
        server.close()
        message = stateless(1, "tools/call", name="t")
        call = client.connection.receive(read_message(message), client.channel)
        client.connection.start(call, server.pool)

        assert client.channel.next_answer()["result"]["isError"]


def test_a_question_ends_with_its_client():
    """A tool that waits for an answer goes on when the client has gone."""
    ended = threading.Event()

    def asks(call_id, args, signal, partial):
        try:
            current_caller().ask({"r": {"method": "roots/list"}})
        finally:
            ended.set()

    with serving(tool("t", asks)) as server:
        client = Client(server)
        client.shake_hands(capabilities={"roots": {}})
        client.send(asked(1, "tools/call", name="t"))
        client.channel.next_sent()
        client.send({"jsonrpc": "2.0", "id": 99, "result": {}})
        client.connection.close()

        assert ended.wait(10)


def test_a_call_that_was_cancelled_before_it_began_does_not_run():
    """Nothing is done for it."""
    ran = []
    with serving(tool("t", lambda *_: ran.append(1))) as server:
        client = Client(server)
        message = stateless(1, "tools/call", name="t")
        call = client.connection.receive(read_message(message), client.channel)
        client.connection.close()
        client.connection.run(call)

        assert ran == []


def test_too_many_calls_at_once_are_refused():
    """Above the limit a request is an error at once."""
    gate = threading.Event()
    with serving(tool("t", lambda *_: gate.wait(10) and "done")) as server:
        client = Client(server, max_calls=1)
        client.send(stateless(1, "tools/call", name="t"))
        client.send(stateless(2, "tools/list"))
        refused = client.channel.next_answer()
        gate.set()

        assert refused["id"] == 2
        assert "too many" in refused["error"]["message"]
        assert client.channel.next_answer()["id"] == 1


class BrokenHost:
    """A server with a fault."""

    def __init__(self, server):
        self.facts = server.facts
        self.changes = server.changes
        self.closing = server.closing
        self.pool = server.pool

    def handle(self, call, reach):
        """Break."""
        raise ZeroDivisionError("ours")


def test_a_fault_of_ours_is_answered(caplog):
    """The client gets an error that names its kind, and the log has the rest."""
    with serving() as server:
        client = Client(BrokenHost(server))
        answer = client.stateless("tools/list")

        assert answer["code"] == -32603
        assert "ZeroDivisionError" in answer["message"]
        assert "ours" in caplog.text
