"""Servers of tools in an agent."""

from __future__ import annotations

import pathlib
import sys
import threading
from queue import SimpleQueue

import pytest

from tests.support.mcp_http import FakeMcp, event, result, stream
from yiemagent import ToolStore, YiemAgent, abort_agent, ask, load_tools
from yiemagent.errors import ConfigurationError, McpTransportError
from yiemagent.events import ToolExecUpdateEvent, ToolsChangedEvent
from yiemagent.mcp import McpClient, connect
from yiemagent.mcp.dialers import StdioServer
from yiemagent.messages import ImageContent, ToolResultMessage
from yiemagent.testing import RecordingSink, ScriptedModel, call, calls

SERVER = str(pathlib.Path(__file__).with_name("bad_server.py"))


@pytest.fixture
def make():
    """A function that makes clients of the stdio server, which are closed after the test."""
    made = []

    def make(*how, **options):
        made.append(McpClient(StdioServer([sys.executable, SERVER, *how]), timeout_s=20, **options))
        return made[-1]

    yield make
    for client in made:
        client.close()


def asked(answers, **options):
    """What an agent answers, the results of its calls and its events, where the model answers so."""
    sink = RecordingSink()
    with YiemAgent(ScriptedModel(answers, default="done"), event_sink=sink, **options) as agent:
        answer = ask(agent, "Go.", timeout_s=30)
        results = [m for m in agent.messages if isinstance(m, ToolResultMessage)]
    return answer, results, sink


def test_an_agent_finds_a_servers_tools_and_calls_them(make):
    """At first there is list_tools alone; what it finds is named, and can be called in the same run."""
    offered = []

    def second(context, signal):
        offered.append(sorted(context.tools))
        return calls(call("echo", {"t": "hi"}))

    answer, results, _ = asked([calls(call("list_tools")), second], mcp_server=make())

    assert answer.text == "done"
    assert results[0].added_tool_names == ("echo", "env", "exit", "pid", "report", "slow")
    assert results[1].text == "echo hi"
    assert offered == [["echo", "env", "exit", "list_tools", "pid", "report", "slow"]]


def test_a_store_can_have_the_tools_at_once(make):
    """Eager: no list_tools is needed."""
    store, client = ToolStore(), make()
    tied = connect(store, client)
    _, results, _ = asked([calls(call("echo", {"t": 1}))], tool_store=store)

    assert "list_tools" not in store
    assert results[0].text == "echo 1"
    tied.disconnect()
    assert len(store) == 0


def test_several_servers_keep_their_tools_apart(make):
    """Each has the name that the user gives it, and a call goes to its own."""
    store = ToolStore()
    connect(store, make(name="one"))
    connect(store, make(name="two"))
    _, results, _ = asked(
        [calls(call("one__pid"), call("two__pid"), call("one__pid"))], tool_store=store
    )
    first, second, third = [message.text for message in results]

    assert first == third != second


def test_several_servers_share_one_list_tools(make):
    """It asks all that were connected so, and replaces one that only lists."""
    store = ToolStore()
    connect(store, make(name="one"), eager=False)
    connect(store, make(name="two"), eager=False)
    _, results, _ = asked([calls(call("list_tools"))], tool_store=store)

    assert {"one__echo", "two__echo"} <= set(results[0].added_tool_names)


def test_a_list_tools_that_only_lists_is_replaced(make, tmp_path):
    """A store that has one from a folder of tool files gets one that asks the server, in its place."""
    store = ToolStore()
    load_tools(store, tmp_path)
    connect(store, make(), eager=False)
    _, results, _ = asked([calls(call("list_tools"))], tool_store=store)

    assert "echo" in results[0].added_tool_names


def test_a_server_that_ends_is_an_error_result(make):
    """The run goes on, and the next call has the server back."""
    store, client = ToolStore(), make()
    connect(store, client)
    answers = [calls(call("exit")), calls(call("echo", {"t": 2}))]
    answer, results, _ = asked(answers, tool_store=store)

    assert answer.text == "done"
    assert results[0].is_error
    assert "exit code 0" in results[0].text
    assert (results[1].is_error, results[1].text) == (False, "echo 2")


def test_a_server_that_can_not_be_started_is_an_error_result():
    """As the result of list_tools; connected at once, it is the caller's error."""
    client = McpClient("/no/such/server")
    _, results, _ = asked([calls(call("list_tools"))], mcp_server=client)
    store = ToolStore()
    with pytest.raises(ConfigurationError):
        connect(store, client)

    assert results[0].is_error
    assert "/no/such/server" in results[0].text
    assert len(store) == 0


def test_progress_is_told_as_updates(make):
    """Each word of the server's is an update of the call."""
    store = ToolStore()
    connect(store, make())
    _, _, sink = asked([calls(call("slow", {"steps": 3, "s": 0.01}))], tool_store=store)
    updates = [event.partial_result for event in sink.of(ToolExecUpdateEvent)]

    assert [update["message"] for update in updates] == ["step 1", "step 2", "step 3"]


def test_an_abort_reaches_the_server(make):
    """The run is over at once, and the server hears that nobody waits."""
    store, client, started = ToolStore(), make(), threading.Event()
    connect(store, client)

    def sink(event):
        if isinstance(event, ToolExecUpdateEvent):
            started.set()

    model = ScriptedModel([calls(call("slow", {"steps": 50, "s": 0.05}))])
    with YiemAgent(model, tool_store=store, event_sink=sink) as agent:
        answers = SimpleQueue()
        thread = threading.Thread(target=lambda: answers.put(ask(agent, "Go.", timeout_s=30)))
        thread.start()
        assert started.wait(10)
        abort_agent(agent)
        thread.join()

    assert answers.get().stop_reason == "aborted"
    assert (
        "notifications/cancelled" in client("tools/call", "report")["result"]["content"][0]["text"]
    )


def test_an_error_result_keeps_its_pictures():
    """What a failed call gave is shown, not only its words."""
    image = {"type": "image", "data": "QQ==", "mimeType": "image/png"}
    failed = {"content": [{"type": "text", "text": "no such page"}, image], "isError": True}
    answers = {"tools/call": lambda m: result(m, failed)}
    with FakeMcp("modern", answers) as server, McpClient(server.address) as client:
        store = ToolStore()
        connect(store, client)
        _, results, _ = asked([calls(call("echo"))], tool_store=store)

    assert results[0].is_error
    assert results[0].text == "no such page"
    assert results[0].content[1] == ImageContent("QQ==", "image/png")


def test_a_change_of_the_tools_reaches_the_agent():
    """The store is brought up to date without anybody asking, and the next turn tells of it."""
    pushes, tools = SimpleQueue(), [{"name": "old"}]
    listening = stream(
        lambda: pushes.get(timeout=20),
        event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}),
        then="hang",
    )
    answers = {
        "subscriptions/listen": lambda m: listening,
        "tools/list": lambda m: result(m, {"tools": list(tools)}),
    }
    changed = threading.Event()
    with FakeMcp("modern", answers) as server, McpClient(server.address) as client:
        store = ToolStore()
        connect(store, client)
        client.on_tools_changed(changed.set)  # told after the store

        def first(context, signal):
            tools[:] = [{"name": "new"}]
            pushes.put(None)
            assert changed.wait(10)
            return calls(call("old"))  # this turn has the tools that it began with

        answers = [calls(call("old")), first, calls(call("new"))]
        _, results, sink = asked(answers, tool_store=store)

    assert [message.text for message in results] == ["ok"] * 3
    assert [e.details["added"] for e in sink.of(ToolsChangedEvent)] == [["new"]]


def test_tools_that_only_read_run_side_by_side():
    """An agent runs those of a server together that say so, and the others one by one."""
    gate = threading.Barrier(3, timeout=10)
    reads = {"name": "reads", "annotations": {"readOnlyHint": True}}
    answers = {
        "tools/list": lambda m: result(m, {"tools": [reads, {"name": "writes"}]}),
        "tools/call": lambda m: [gate.wait()].clear(),
    }
    with FakeMcp("modern", answers) as server, McpClient(server.address) as client:
        store = ToolStore()
        connect(store, client)
        _, results, _ = asked([calls(*[call("reads") for _ in range(3)])], tool_store=store)

    assert [message.text for message in results] == ["ok"] * 3
    assert not store.get("writes").parallel_tool_execute
    assert McpClient("x", max_concurrency=2).may_run_beside_others({})


def test_nothing_is_registered_where_the_server_fails():
    """The error is the caller's, and the store stays as it was."""
    with FakeMcp("modern") as server:
        address = server.address
    store = ToolStore()
    with McpClient(address) as client, pytest.raises(McpTransportError):
        connect(store, client)

    assert len(store) == 0
