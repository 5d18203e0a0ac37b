"""Tools of a server that a callable stands for."""

from __future__ import annotations

import functools
import logging
import pickle
import re
import threading

import pytest

from yiemagent.abort import AbortSignal
from yiemagent.errors import AbortedError, ConfigurationError, ToolError
from yiemagent.messages import ImageContent, TextContent
from yiemagent.registry import ToolStore, collect_registrations
from yiemagent.remote_names import remote_tool_name
from yiemagent.remote_tools import RemoteToolError, RemoteTools, discovery_tool, fetch_tools
from yiemagent.tool import AgentTool

ECHO = {
    "name": "echo",
    "title": "Echo",
    "description": "Says it again.",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    },
    "annotations": {"readOnlyHint": True},
    "outputSchema": {"type": "object"},
}


class Server:
    """Answers from a table of tools, in pages of a size, and notes what it was asked."""

    def __init__(self, *tools, page=100, answer=None):
        self.tools = list(tools)
        self.page = page
        self.answer = (
            answer if answer is not None else {"content": [{"type": "text", "text": "ok"}]}
        )
        self.asked = []

    def __call__(self, method, *params):
        self.asked.append((method, *params))
        if method == "tools/call":
            return {"jsonrpc": "2.0", "id": 2, "result": self.answer}
        start = int(params[0]["cursor"]) if params else 0
        result = {"tools": self.tools[start : start + self.page]}
        if start + self.page < len(self.tools):
            result["nextCursor"] = str(start + self.page)
        return {"jsonrpc": "2.0", "id": 1, "result": result}


def named(*names):
    return [{"name": name, "description": f"does {name}"} for name in names]


def call(answer):
    """What a call gives that the server answers so."""
    (tool,) = fetch_tools(Server(ECHO, answer=answer))
    return tool.execute("1", {"text": "a"})


# --- asking for tools ------------------------------------------------------------------------------------------------


def test_a_servers_tool_becomes_an_agent_tool():
    """All that the server says of it is kept, and a call goes to the server under the server's name."""
    server = Server(ECHO)
    (tool,) = fetch_tools(server)

    assert (tool.name, tool.label, tool.description) == ("echo", "Echo", "Says it again.")
    assert tool.input_schema == ECHO["inputSchema"]
    assert tool.annotations == {"readOnlyHint": True}
    assert tool.output_schema == {"type": "object"}
    assert tool.execute("1", {"text": "a"}).text == "ok"
    assert server.asked == [("tools/list",), ("tools/call", "echo", {"text": "a"})]


@pytest.mark.parametrize(
    ("definition", "label", "description"),
    [
        ({"name": "t"}, "t", "t"),
        ({"name": "t", "title": "T", "description": " "}, "T", "T"),
        ({"name": "t", "annotations": {"title": "A"}}, "A", "A"),
        ({"name": "t", "title": 5, "description": None, "annotations": 7}, "t", "t"),
        ({"name": "t", "description": "d", "inputSchema": None, "outputSchema": []}, "t", "d"),
    ],
)
def test_what_a_server_leaves_out_is_made_up_for(definition, label, description):
    """Without a description the title or the name stands for it; without a schema there are no arguments to check."""
    (tool,) = fetch_tools(Server(definition))

    assert (tool.label, tool.description) == (label, description)
    assert tool.input_schema == {"type": "object"}


def test_names_are_made_to_fit_and_kept_apart():
    """Providers take letters, digits, _ and -, at most 64; what was changed has a hash, calls use the real name."""
    long = "x" * 80
    server = Server(*named("größe", "a_b", "a/b", "a.b", f"{long}y", long))
    tools = fetch_tools(server)

    names = {tool.name: tool for tool in tools}

    assert len(names) == 6
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in names)
    assert "a_b" in names
    assert sorted(name[:4] for name in names if name.startswith("a_b_")) == ["a_b_", "a_b_"]
    found = next(tool for tool in tools if tool.description == "does a/b")
    found.execute("1")
    assert server.asked[-1] == ("tools/call", "a/b", {})


def test_a_servers_tools_come_by_name():
    """Servers list in any order; the same tools are sent in the same order, so that prompt caches hold."""
    one, other = fetch_tools(Server(*named("b", "a"))), fetch_tools(Server(*named("a", "b")))

    assert [tool.name for tool in one] == [tool.name for tool in other] == ["a", "b"]


def test_every_page_is_asked_for():
    """The cursor of a page is handed back until there is none; a name that comes twice counts once."""
    server = Server(*named("a", "b", "a", "c", "d"), page=2)

    assert [tool.name for tool in fetch_tools(server)] == ["a", "b", "c", "d"]
    assert server.asked == [
        ("tools/list",),
        ("tools/list", {"cursor": "2"}),
        ("tools/list", {"cursor": "4"}),
    ]


def test_a_callable_without_pages_gives_its_first(caplog):
    """One that takes no second argument is not asked for more, and a warning says so."""

    def server(method):
        return {"result": {"tools": named("a"), "nextCursor": "2"}}

    assert [tool.name for tool in fetch_tools(server)] == ["a"]
    assert "'2'" in caplog.text


def test_a_cursor_that_repeats_ends_the_list(caplog):
    """A server that goes in circles is left with what it told."""
    asked = []

    def server(method, params=None):
        asked.append(params)
        return {"result": {"tools": named(f"t{len(asked)}"), "nextCursor": str(len(asked) % 2)}}

    assert len(fetch_tools(server)) == 3
    assert "cursor" in caplog.text


def test_endless_pages_end(caplog):
    """A server that always has another page is left after a thousand."""
    asked = []

    def server(method, params=None):
        asked.append(params)
        return {"result": {"tools": [], "nextCursor": str(len(asked))}}

    assert fetch_tools(server) == ()
    assert len(asked) == 1000
    assert "page 1000" in caplog.text


def test_an_abort_ends_the_asking_between_pages():
    """Once the signal is set, no further page is asked for."""
    signal = AbortSignal()
    asked = []

    def server(method, params=None):
        asked.append(params)
        signal.abort()
        return {"result": {"tools": [], "nextCursor": "x"}}

    with pytest.raises(AbortedError):
        fetch_tools(server, signal)
    assert len(asked) == 1


def test_tools_without_a_name_are_left_out(caplog):
    """What has no name can't be called; the others can."""
    server = Server("text", {"description": "d"}, {"name": ""}, {"name": 5}, *named("a"))

    assert [tool.name for tool in fetch_tools(server)] == ["a"]
    assert "4 tools" in caplog.text


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            {"error": {"code": -32601, "message": "no such method"}},
            r"no such method \(code -32601\)",
        ),
        ({"error": {"message": "m", "data": {"k": 1}}}, 'm: {"k": 1}'),
        ({"error": {}}, "no message"),
        ({"error": "broken"}, "broken"),
        ({"result": {}}, "without a list of tools"),
        ({"result": {"tools": None}}, "without a list of tools"),
        ({"result": [1]}, "no object"),
        ("text", "no JSON-RPC response"),
        (None, "no JSON-RPC response"),
    ],
)
def test_an_answer_that_is_none_is_an_error(answer, words):
    """A JSON-RPC error, or anything that is no answer, is told in words."""
    with pytest.raises(ToolError, match=words):
        fetch_tools(lambda method: answer)


def test_a_result_may_come_alone():
    """A callable may give the result without the JSON-RPC envelope."""

    def server(method, *params):
        return {"tools": named("a")} if method == "tools/list" else {"content": "plain"}

    (tool,) = fetch_tools(server)

    assert tool.execute("1").text == "plain"


def test_a_callable_gets_the_signal_that_it_asks_for():
    """Where it has a parameter of this name it gets the call's signal, in every request."""
    got = []

    def server(method, *params, signal):
        got.append(signal)
        return {
            "result": {"tools": named("a"), "content": [], "nextCursor": None if params else "x"}
        }

    signal = AbortSignal()
    (tool,) = fetch_tools(server, signal)
    own = AbortSignal()
    tool.execute("1", {}, own)

    assert got == [signal, signal, own]


def test_what_cannot_be_called_is_refused():
    """A value and a coroutine function are a caller's mistake."""

    async def later(method):
        """Answers later."""

    for mistake in ("http://x", None, later):
        with pytest.raises(ConfigurationError, match="mcp_server"):
            fetch_tools(mistake)
        with pytest.raises(ConfigurationError, match="mcp_server"):
            discovery_tool(ToolStore(), mistake)


def test_a_callable_without_a_signature_is_asked_as_it_is():
    """One that tells nothing of its parameters gets the cursor."""

    class Opaque(Server):
        """Its signature can't be read."""

        __signature__ = "none"

    assert len(fetch_tools(Opaque(*named("a", "b"), page=1))) == 2


# --- calls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "content"),
    [
        ({"type": "text", "text": "a"}, TextContent("a")),
        (
            {"type": "image", "data": "QQ==", "mimeType": "image/jpeg"},
            ImageContent("QQ==", "image/jpeg"),
        ),
        ({"type": "image", "data": "QQ=="}, ImageContent("QQ==", "image/png")),
        (
            {"type": "audio", "data": "QQ==", "mimeType": "audio/wav"},
            TextContent("[audio, audio/wav, can't be shown]"),
        ),
        (
            {"type": "resource", "resource": {"uri": "file:///a", "text": "words"}},
            TextContent("[resource: file:///a]\nwords"),
        ),
        (
            {
                "type": "resource",
                "resource": {"uri": "file:///a", "blob": "QQ==", "mimeType": "image/gif"},
            },
            ImageContent("QQ==", "image/gif"),
        ),
        (
            {"type": "resource", "resource": {"blob": "QQ=="}},
            TextContent("[resource: without a name, of an unknown kind, can't be shown]"),
        ),
        (
            {"type": "resource_link", "uri": "file:///a", "name": "A", "description": "words"},
            TextContent("[resource: A, file:///a, words]"),
        ),
        ({"type": "text"}, TextContent('{"type": "text"}')),
        ({"type": "new", "x": 1}, TextContent('{"type": "new", "x": 1}')),
        ("bare", TextContent("bare")),
        (5, TextContent("5")),
    ],
)
def test_every_kind_of_content_is_shown(block, content):
    """Text and images are content; of anything else there is a text that says what it is."""
    assert call({"content": [block]}).content == (content,)


def test_content_that_is_no_json_is_told_as_text():
    """A callable may give anything; a circle is shown as Python shows it."""
    circle = {"type": "odd"}
    circle["self"] = circle

    assert "odd" in call({"content": [circle]}).text


def test_structured_content_is_kept():
    """It is in the details, and the text where there is no other."""
    both = call({"content": [{"type": "text", "text": "a"}], "structuredContent": {"n": 1}})
    alone = call({"structuredContent": {"n": 1}})

    assert both.text == "a"
    assert both.details == {"structuredContent": {"n": 1}}
    assert alone.text == '{"n": 1}'
    assert call({"content": []}).text == "the tool gave no content"


def test_a_failed_call_raises_what_the_server_said():
    """Its text is the error's, and all of its content is kept with it."""
    image = {"type": "image", "data": "QQ==", "mimeType": "image/png"}
    with pytest.raises(RemoteToolError, match=r"^no disk$") as caught:
        call({"content": [{"type": "text", "text": "no disk"}, image], "isError": True})
    with pytest.raises(RemoteToolError, match="not why"):
        call({"content": [], "isError": True})

    assert caught.value.content == (TextContent("no disk"), ImageContent("QQ==", "image/png"))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.content) == ("no disk", caught.value.content)


def test_an_error_instead_of_a_result_raises():
    """A JSON-RPC error of a call is a tool's failure."""
    tools = fetch_tools(
        lambda method, *params: (
            {"error": {"message": "gone"}} if params else {"result": {"tools": named("a")}}
        )
    )
    with pytest.raises(ToolError, match="answered tools/call with an error: gone"):
        tools[0].execute("1")


def test_an_aborted_call_asks_nothing():
    """A call whose signal is set does not reach the server."""
    server = Server(ECHO)
    (tool,) = fetch_tools(server)
    signal = AbortSignal()
    signal.abort()
    with pytest.raises(AbortedError):
        tool.execute("1", {"text": "a"}, signal)

    assert server.asked == [("tools/list",)]


# --- discovery -------------------------------------------------------------------------------------------------------


def store_with(server):
    store = ToolStore()
    tool = store.register(discovery_tool(store, server))
    return store, tool


def test_discovery_registers_what_the_server_has():
    """list_tools fills the store, names what is new, and lists all."""
    store, tool = store_with(Server(ECHO, *named("b")))
    store.register(AgentTool("local", description="is here", execute=lambda *_: "here"))
    with collect_registrations() as names:
        result = tool.execute("1")

    assert tool.name == "list_tools"
    assert names == ["b", "echo"]
    assert list(store.snapshot()) == ["list_tools", "local", "b", "echo"]
    assert "- echo: Echo — Says it again." in result.text.splitlines()
    assert "- local: Local — is here" in result.text.splitlines()
    assert result.details == {"tools": ["list_tools", "local", "b", "echo"]}


def test_discovery_leaves_local_tools_alone():
    """A server's tool of a taken name gets another, its own list_tools too."""
    store, tool = store_with(Server(*named("list_tools", "local")))
    local = store.register(AgentTool("local", description="is here", execute=lambda *_: "here"))
    tool.execute("1")

    assert list(store.snapshot()) == [
        "list_tools",
        "local",
        remote_tool_name("list_tools", taken=["list_tools"]),
        remote_tool_name("local", taken=["local"]),
    ]
    assert store.get("local") is local
    assert store.get("list_tools") is tool


def test_discovery_again_brings_the_store_up_to_date():
    """What did not change is the same tool, what changed is replaced in its place, what is gone is taken out."""
    server = Server(*named("a", "b", "c"))
    store, tool = store_with(server)
    tool.execute("1")
    before = store.snapshot()
    tool.execute("2")
    assert store.snapshot() is before
    server.tools = [{"name": "d"}, {"name": "b", "description": "new"}, *named("a")]
    with collect_registrations() as names:
        tool.execute("3")

    assert list(store.snapshot()) == ["list_tools", "a", "b", "d"]
    assert store.get("a") is before["a"]
    assert store.get("b").description == "new"
    assert names == ["b", "d"]


def test_discovery_respects_what_the_owner_did_meanwhile():
    """A tool that was taken out comes back, and one that took its name stays."""
    server = Server(*named("a", "b"))
    store, tool = store_with(server)
    tool.execute("1")
    store.remove("a")
    store.remove("b")
    mine = store.register(AgentTool("b", description="mine", execute=lambda *_: None))
    tool.execute("2")
    server.tools = []

    assert list(store.snapshot()) == ["list_tools", "b", "a", remote_tool_name("b", taken=["b"])]
    tool.execute("3")
    assert list(store.snapshot()) == ["list_tools", "b"]
    assert store.get("b") is mine


def test_discovery_that_fails_changes_nothing():
    """The error is told, and what was known before stays."""
    answers = iter([{"result": {"tools": named("a")}}, {"error": {"message": "down"}}])
    store, tool = store_with(lambda method: next(answers))
    tool.execute("1")
    with pytest.raises(ToolError, match="down"):
        tool.execute("2")

    assert list(store.snapshot()) == ["list_tools", "a"]


class Telling(Server):
    """A server that tells of changes and has a name."""

    prefix = name = "files"
    timeout_s = 30.0

    def __init__(self, *tools, **options):
        super().__init__(*tools, **options)
        self.listeners = []

    def on_tools_changed(self, listener):
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def may_run_beside_others(self, definition):
        return definition["name"] == "a"


def test_a_server_may_have_a_name():
    """It goes before the names of its tools, and its limits and hints hold."""
    server, store = Telling(*named("a", "b")), ToolStore()
    tied = RemoteTools(store, server)
    tied.update()
    a, b = store.snapshot().values()
    a.execute("1")

    assert dict(tied.names) == {"files__a": "a", "files__b": "b"}
    assert [tool.name for tool in (a, b)] == ["files__a", "files__b"]
    assert (a.parallel_tool_execute, b.parallel_tool_execute) == (True, False)
    assert a.timeout_s > 30
    assert server.asked[-1] == ("tools/call", "a", {})


def test_a_server_that_tells_of_a_change_is_listed_again():
    """The store is brought up to date, agents are told, and calls go on with what they began with."""
    server, store = Telling(*named("a", "b")), ToolStore()
    tied = RemoteTools(store, server)
    tied.update()
    server.tools = [{"name": "b", "description": "new"}, {"name": "c"}]
    server.listeners[0]()
    (news,) = store.look()

    assert list(store.snapshot()) == ["files__b", "files__c"]
    assert news.details["added"] == ["files__c"]
    assert news.details["removed"] == ["files__a"]
    assert news.details["changed"] == ["files__b"]
    assert news.message == (
        "the tools of files changed (added: files__c; removed: files__a; changed: files__b)"
    )


def test_a_server_that_cannot_be_listed_again_keeps_its_tools(caplog):
    """The failure is logged; the next change asks again."""
    server, store = Telling(*named("a")), ToolStore()
    RemoteTools(store, server).update()
    server.tools = None
    server.listeners[0]()

    assert list(store.snapshot()) == ["files__a"]
    assert "could not be listed again" in caplog.text


def test_a_list_that_nobody_wants_any_more_may_fail(caplog):
    """Taken out while it was being listed again, a server is closed most likely; that is no news."""

    class Ending(Telling):
        """It is taken out while it answers, and closed."""

        def __call__(self, method, *params):
            if self.asked:
                tied.disconnect()
                raise OSError("the client was closed")
            return super().__call__(method, *params)

    server = Ending(*named("a"))
    tied = RemoteTools(ToolStore(), server)
    tied.update()
    server.listeners[0]()

    assert caplog.text == ""


def test_a_list_that_was_overtaken_is_dropped():
    """A slow answer never replaces a newer one."""
    slow, go_on = threading.Event(), threading.Event()

    class Slow(Telling):
        """Its first answer takes its time."""

        def __call__(self, method, *params):
            answer = super().__call__(method, *params)
            if len(self.asked) == 1:
                slow.set()
                go_on.wait(10)
            return answer

    server, store = Slow(*named("old")), ToolStore()
    tied = RemoteTools(store, server)
    thread = threading.Thread(target=tied.update)
    thread.start()
    assert slow.wait(5)
    server.tools = named("new")
    tied.update()
    go_on.set()
    thread.join()

    assert list(store.snapshot()) == ["files__new"]


def test_a_server_can_be_taken_out():
    """Its tools go, others stay, and it is listened to no more."""
    server, store = Telling(*named("a")), ToolStore()
    store.register(AgentTool("local", description="is here", execute=lambda *_: "here"))
    tied = RemoteTools(store, server)
    tied.update()
    tied.disconnect()
    tied.disconnect()
    tied.update()

    assert list(store.snapshot()) == ["local"]
    assert server.listeners == []
    assert dict(tied.names) == {}


def test_a_tool_that_cannot_be_used_costs_no_other(caplog):
    """A definition may be anything, such as a schema that is nested a thousand deep."""
    schema = {}
    for _ in range(1500):
        schema = {"type": "object", "properties": {"x": schema}}
    tools = fetch_tools(Server({"name": "deep", "inputSchema": schema}, *named("fine")))

    assert [tool.name for tool in tools] == ["fine"]
    assert "'deep' can't be used and is left out: RecursionError" in caplog.text


def test_one_list_tools_asks_several_servers():
    """Names are told apart by server, and one that fails hides no other's tools."""

    class Down(Telling):
        """Answers nothing."""

        prefix = "down"

        def __call__(self, method, *params):
            return {"error": {"message": "down"}}

    class Other(Telling):
        """Has the same tools under another name."""

        prefix = "other"

    store = ToolStore()
    servers = [Telling(*named("a")), Down(), Other(*named("a"))]
    result = store.register(discovery_tool(store, *servers)).execute("1")

    assert list(store.snapshot()) == ["list_tools", "files__a", "other__a"]
    assert "could not be asked" in result.text


def test_progress_goes_to_the_call():
    """A callable that takes a callback is given the call's."""
    told = []

    def server(method, *params, on_partial_result=None):
        if method == "tools/call":
            on_partial_result({"progress": 1})
        return {"result": {"tools": named("a"), "content": []}}

    (tool,) = fetch_tools(server)
    tool.execute("1", {}, None, told.append)

    assert told == [{"progress": 1}]


def test_structured_content_that_does_not_fit_is_kept(caplog):
    """What the server promised is checked, and a difference is only a warning; errors are not checked."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    server = Server({"name": "a", "outputSchema": schema})
    (tool,) = fetch_tools(server)
    server.answer = {"structuredContent": {"n": "many"}, "content": [{"type": "text", "text": "t"}]}
    assert tool.execute("1").text == "t"
    assert "is not what its server says" in caplog.text
    caplog.clear()
    server.answer = {"structuredContent": {"n": "many"}, "isError": True}
    with pytest.raises(RemoteToolError):
        tool.execute("1")
    server.answer = {"structuredContent": [1]}
    assert tool.execute("1").text == "[1]"

    assert caplog.text == ""


def test_what_nobody_sees_is_taken_out_of_descriptions():
    """A model is told what a person would read."""
    hidden = "Adds.\u200b\u202e\U000e0041\x1b\n\tTwo numbers."
    (tool,) = fetch_tools(Server({"name": "a", "description": hidden, "title": "\u200b"}))

    assert tool.description == "Adds.\n\tTwo numbers."
    assert tool.label == "a"


@pytest.mark.parametrize("cursor, count", [("", 2), (None, 1)])
def test_an_empty_cursor_is_a_cursor(cursor, count):
    """Only the lack of one ends a list."""

    def server(method, params=None):
        more = {} if params else {"nextCursor": cursor}
        return {"result": {"tools": named("b" if params else "a"), **more}}

    assert len(fetch_tools(server)) == count


def test_a_partial_is_a_callable_like_any_other():
    """functools.partial with a signal of its own is called as it is."""

    def server(url, method, params=None):
        assert url == "nats://x"
        return {
            "result": {
                "tools": named("b") if params else named("a"),
                "nextCursor": None if params else "1",
            }
        }

    assert [tool.name for tool in fetch_tools(functools.partial(server, "nats://x"))] == ["a", "b"]


@pytest.fixture(autouse=True)
def _see_warnings(caplog):
    caplog.set_level(logging.WARNING)
