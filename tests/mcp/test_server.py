"""The server over a store: tools through the pipeline, resources, prompts, completions, rounds of questions."""

from __future__ import annotations

import contextlib
import logging
import math
import threading

import pytest

from tests.support.mcp_wire import Client
from yiemagent.errors import ConfigurationError, ToolError
from yiemagent.hooks import Hooks
from yiemagent.mcp.caller import current_caller
from yiemagent.mcp.offers import Prompt, PromptArgument, Resource, ResourceTemplate
from yiemagent.mcp.server import McpServer
from yiemagent.messages import TextContent
from yiemagent.registry import ToolStore
from yiemagent.tool import AgentTool, AgentToolResult

NUMBERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 1}},
    "required": ["a"],
}


@contextlib.contextmanager
def serving(*tools, **options):
    """A client of a server with these tools, after the handshake."""
    store = ToolStore("test")
    for tool in tools:
        store.register(tool)
    with McpServer(store, name="test", **options) as server:
        client = Client(server)
        client.shake_hands(capabilities={"roots": {}, "elicitation": {}, "sampling": {}})
        yield client
        client.connection.close()


def tool(name="t", execute=lambda *_: "done", **options):
    """A tool."""
    return AgentTool(name, description=f"Does {name}.", execute=execute, **options)


def adds(call_id, args, signal, partial):
    """Add."""
    return str(args["a"] + args["b"])


def text(result):
    """The text of a result."""
    return "".join(block.get("text", "") for block in result["content"])


# -- tools ------------------------------------------------------------------------------------------------------------


def test_a_call_goes_through_the_pipeline():
    """Arguments are coerced and completed, and the result has the tool's words."""
    with serving(tool("add", adds, input_schema=NUMBERS)) as client:
        result = client.ask("tools/call", name="add", arguments={"a": "41"})

        assert result == {"content": [{"type": "text", "text": "42"}]}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({}, "missing"), ({"a": "many"}, "integer"), ({"a": 1, "b": []}, "integer")],
)
def test_bad_arguments_are_an_error_of_the_tool(arguments, words):
    """The model gets words that help; the tool does not run."""
    with serving(tool("add", adds, input_schema=NUMBERS)) as client:
        result = client.ask("tools/call", name="add", arguments=arguments)

        assert result["isError"]
        assert words in text(result)


def test_a_tool_that_fails_is_an_error_result():
    """Whatever it raises becomes words, `SystemExit` too."""

    def fails(call_id, args, signal, partial):
        raise SystemExit("bye")

    with serving(tool("t", fails)) as client:
        result = client.ask("tools/call", name="t")

        assert result["isError"]
        assert "bye" in text(result)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"name": "sum"}, "add"),
        ({}, "name a tool"),
        ({"name": 5}, "name a tool"),
        ({"name": "add", "arguments": [1]}, "object"),
    ],
)
def test_what_is_no_call_of_a_tool_is_refused(params, words):
    """An unknown tool, and parameters of another form, are bad parameters."""
    with serving(tool("add", adds)) as client:
        error = client.ask("tools/call", **params)

        assert error["code"] == -32602
        assert words in error["message"]


def test_hooks_see_calls_of_clients():
    """`before_tool_call` may block, and `after_tool_call` may change what goes out."""

    def before(asked, signal):
        return {"block": True, "reason": "no sums"} if asked.args.get("a") == 13 else None

    def after(shown, signal):
        return {"content": "secret" if shown.is_error else f"{shown.result.text}!"}

    hooks = Hooks(before_tool_call=before, after_tool_call=after)
    with serving(tool("add", adds, input_schema=NUMBERS), hooks=hooks) as client:
        blocked = client.ask("tools/call", name="add", arguments={"a": 13})
        changed = client.ask("tools/call", name="add", arguments={"a": 1})

        assert (blocked["isError"], text(blocked)) == (True, "no sums")
        assert text(changed) == "2!"


@pytest.mark.abandons_threads(1)
def test_a_tool_over_its_time_is_answered_for():
    """Its limit counts here, too, and the next call is served."""
    gate = threading.Event()

    def hangs(call_id, args, signal, partial):
        gate.wait(30)

    with serving(tool("slow", hangs, timeout_s=0.05), tool("quick")) as client:
        result = client.ask("tools/call", name="slow")
        after = client.ask("tools/call", name="quick")
        gate.set()

        assert "timed out" in text(result)
        assert text(after) == "done"


def test_a_cancelled_call_sets_the_signal_and_has_no_answer():
    """The tool sees it, and the client hears no more of the call."""
    began, ended = threading.Event(), threading.Event()

    def waits(call_id, args, signal, partial):
        began.set()
        signal.wait(10)
        partial("too late")
        ended.set()

    with serving(tool("t", waits)) as client:
        client.send(
            {
                "jsonrpc": "2.0",
                "id": "c",
                "method": "tools/call",
                "params": {"name": "t", "_meta": {"progressToken": 1}},
            }
        )
        assert began.wait(10)
        client.send(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "c"}}
        )

        assert client.channel.next_answer() is None
        assert ended.wait(10)
        assert client.ask("ping") == {}
        assert client.channel.sent.empty()


def test_progress_goes_out_before_the_answer():
    """Each partial result is a notification under the client's token."""

    def tells(call_id, args, signal, partial):
        partial({"progress": 1, "total": 2})
        partial({"progress": 2, "total": 2})
        return "done"

    with serving(tool("t", tells)) as client:
        client.ask("tools/call", name="t", _meta={"progressToken": "p"})

        assert [client.channel.next_sent()["params"]["progress"] for _ in range(2)] == [1, 2]


def test_tools_that_may_not_run_beside_others_take_turns():
    """One runs at a time, while one that may runs beside it."""
    inside, go_on, both = threading.Event(), threading.Event(), threading.Barrier(2, timeout=10)
    running = []

    def alone(call_id, args, signal, partial):
        running.append(1)
        most = len(running)
        inside.set()
        both.wait() if args.get("first") else go_on.wait(10)
        running.pop()
        return str(most)

    def beside(call_id, args, signal, partial):
        both.wait()

    with serving(
        tool("alone", alone, input_schema={"type": "object"}),
        tool("beside", beside, parallel_tool_execute=True),
    ) as client:
        for number, arguments in ((1, {"first": True}), (2, {}), (3, {})):
            client.send(call_of("alone", number, arguments))
            assert inside.wait(10)
        client.send(call_of("beside", 4, {}))
        go_on.set()
        answers = {a["id"]: a["result"] for a in (client.channel.next_answer() for _ in range(4))}

        assert [text(answers[n]) for n in (1, 2, 3)] == ["1", "1", "1"]


def call_of(name, number, arguments):
    """A request that calls a tool."""
    return {
        "jsonrpc": "2.0",
        "id": number,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments},
    }


def test_a_tool_can_be_called_as_soon_as_it_is_registered():
    """The list is that of the store at that moment, in its order, page by page."""
    with serving(tool("b"), tool("a"), page_size=2) as client:
        client.server.store.register(tool("c"))
        first = client.ask("tools/list")
        rest = client.ask("tools/list", cursor=first["nextCursor"])
        client.server.store.remove("b")

        assert [t["name"] for t in first["tools"] + rest["tools"]] == ["b", "a", "c"]
        assert "nextCursor" not in rest
        assert [t["name"] for t in client.ask("tools/list")["tools"]] == ["a", "c"]
        assert client.ask("tools/list", cursor="x")["code"] == -32602


def test_structured_results_follow_the_tool_that_is_there_now():
    """A tool that was replaced is held to its new schema."""
    old = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
    new = {"type": "object", "properties": {"y": {"type": "string"}}, "required": ["y"]}

    def gives(call_id, args, signal, partial):
        return AgentToolResult("", details={"y": "1"})

    with serving(tool("t", gives, output_schema=old)) as client:
        misfit = client.ask("tools/call", name="t")
        store = client.server.store
        store.replace(store.get("t"), tool("t", gives, output_schema=new))

        assert misfit["isError"]
        assert client.ask("tools/call", name="t")["structuredContent"] == {"y": "1"}


def test_a_result_that_json_cannot_say_is_sent_as_far_as_it_goes():
    """Numbers that are none reach the channel, which makes an error of them."""

    def gives(call_id, args, signal, partial):
        return AgentToolResult("", details={"x": math.nan})

    with serving(tool("t", gives, output_schema={"type": "object"})) as client:
        assert math.isnan(client.ask("tools/call", name="t")["structuredContent"]["x"])


# -- resources --------------------------------------------------------------------------------------------------------


def refuse():
    """A reader that says what is wrong."""
    raise ToolError("not today")


def crash():
    """A reader that breaks."""
    raise OSError("disk")


RESOURCES = [
    Resource("a:text", "text", read=lambda: "hello", mime_type="text/x"),
    Resource("a:bytes", "bytes", read=lambda: b"\0"),
    Resource("a:refuse", "refuse", read=refuse),
    Resource("a:crash", "crash", read=crash),
    Resource("a:exit", "exit", read=lambda: exec("raise SystemExit")),
    Resource("a:odd", "odd", read=lambda: 5),
    ResourceTemplate("n:{x}/{y}", "notes", read=lambda x, y: f"{x} and {y}"),
    ResourceTemplate("n:{only}", "none", read=lambda only: None if only == "gone" else only),
]


@pytest.mark.parametrize(
    ("uri", "content"),
    [
        ("a:text", {"uri": "a:text", "mimeType": "text/x", "text": "hello"}),
        (
            "a:bytes",
            {"uri": "a:bytes", "mimeType": "application/octet-stream", "blob": "AA=="},
        ),
        ("n:1/2", {"uri": "n:1/2", "mimeType": "text/plain", "text": "1 and 2"}),
        ("n:3", {"uri": "n:3", "mimeType": "text/plain", "text": "3"}),
    ],
)
def test_resources_are_read(uri, content):
    """By their URI, or by what stands in the places of their family's."""
    with serving(resources=RESOURCES) as client:
        assert client.ask("resources/read", uri=uri) == {"contents": [content]}


@pytest.mark.parametrize("uri", ["a:none", "n:gone", "n:1/2/3"])
def test_a_resource_that_is_not_there_is_an_error(uri):
    """Its code is the one of the era, and the error names the URI."""
    with serving(resources=RESOURCES) as client:
        before, after = (
            client.ask("resources/read", uri=uri),
            client.stateless("resources/read", uri=uri),
        )

        assert (before["code"], after["code"]) == (-32002, -32602)
        assert before["data"] == after["data"] == {"uri": uri}


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("a:refuse", "not today"),
        ("a:crash", "disk"),
        ("a:exit", "SystemExit"),
        ("a:odd", "resource gave 5"),
    ],
)
def test_a_reader_that_fails_is_an_internal_error(uri, words, caplog):
    """Its words are the client's, and the server goes on."""
    with caplog.at_level(logging.CRITICAL, "yiemagent"), serving(resources=RESOURCES) as client:
        error = client.ask("resources/read", uri=uri)

        assert error["code"] == -32603
        assert words in error["message"]
        assert client.ask("resources/read")["code"] == -32602


def test_resources_are_listed():
    """Single ones and families apart, in the order in which they came."""
    with serving(resources=RESOURCES) as client:
        single = client.ask("resources/list")["resources"]
        families = client.ask("resources/templates/list")["resourceTemplates"]

        assert [r["uri"] for r in single][:2] == ["a:text", "a:bytes"]
        assert [r["uriTemplate"] for r in families] == ["n:{x}/{y}", "n:{only}"]


@pytest.mark.abandons_threads(1)
def test_a_reader_that_hangs_is_left_behind():
    """After its time the client gets an error."""
    gate = threading.Event()
    slow = Resource("a:slow", "slow", read=lambda: gate.wait(30))
    with serving(resources=[slow], request_timeout_s=0.05) as client:
        error = client.ask("resources/read", uri="a:slow")
        gate.set()

        assert error["code"] == -32603
        assert "longer than" in error["message"]


@pytest.mark.abandons_threads(1)
def test_a_read_can_be_cancelled():
    """The wait ends at once, whatever the reader does."""
    began, gate = threading.Event(), threading.Event()

    def read():
        began.set()
        gate.wait(30)

    with serving(resources=[Resource("a:slow", "slow", read=read)]) as client:
        client.send(
            {"jsonrpc": "2.0", "id": "r", "method": "resources/read", "params": {"uri": "a:slow"}}
        )
        assert began.wait(10)
        client.send(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "r"}}
        )

        assert client.channel.next_answer() is None
        gate.set()


# -- prompts and completions ------------------------------------------------------------------------------------------


def begins(*words):
    """Completes words."""
    return lambda typed, others: [w for w in words if w.startswith(typed)] + sorted(others.values())


PROMPTS = [
    Prompt("plain", render=lambda: "Hello."),
    Prompt(
        "greet",
        render=lambda name, tone="kind": [TextContent(f"Greet {name}, {tone}.")],
        arguments=[
            PromptArgument("name", required=True, complete=begins("ann", "anton", "bob")),
            PromptArgument("tone"),
        ],
        description="Greets.",
    ),
]


def test_prompts_are_rendered():
    """With the arguments that they know; others are left out."""
    with serving(prompts=PROMPTS) as client:
        plain = client.ask("prompts/get", name="plain", arguments={"more": "x"})
        greeting = client.ask("prompts/get", name="greet", arguments={"name": "Ann"})

        assert plain["messages"][0]["content"]["text"] == "Hello."
        assert greeting["description"] == "Greets."
        assert greeting["messages"][0]["content"]["text"] == "Greet Ann, kind."
        assert [p["name"] for p in client.ask("prompts/list")["prompts"]] == ["plain", "greet"]


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"name": "none"},
        {"name": "greet"},
        {"name": "greet", "arguments": {"name": 5}},
        {"name": "greet", "arguments": [1]},
    ],
)
def test_a_prompt_that_cannot_be_rendered_is_refused(params):
    """One that is not there, lacks an argument, or gets one that is no text."""
    with serving(prompts=PROMPTS) as client:
        assert client.ask("prompts/get", **params)["code"] == -32602


def test_arguments_are_completed():
    """By what was typed and by what stands elsewhere, a hundred at most."""
    many = ResourceTemplate(
        "m:{n}",
        "many",
        read=str,
        complete={"n": lambda typed, others: [str(n) for n in range(250)]},
    )
    with serving(prompts=PROMPTS, resources=[many, Resource("a:b", "b", read=str)]) as client:
        name = client.ask(
            "completion/complete",
            ref={"type": "ref/prompt", "name": "greet"},
            argument={"name": "name", "value": "an"},
            context={"arguments": {"tone": "cold"}},
        )["completion"]
        none = client.ask(
            "completion/complete",
            ref={"type": "ref/prompt", "name": "greet"},
            argument={"name": "tone", "value": ""},
        )["completion"]
        numbers = client.ask(
            "completion/complete",
            ref={"type": "ref/resource", "uri": "m:{n}"},
            argument={"name": "n", "value": ""},
        )["completion"]
        plain = client.ask(
            "completion/complete",
            ref={"type": "ref/resource", "uri": "a:b"},
            argument={"name": "n", "value": ""},
        )["completion"]

        assert name == {"values": ["ann", "anton", "cold"], "total": 3, "hasMore": False}
        assert none == plain == {"values": [], "total": 0, "hasMore": False}
        assert (len(numbers["values"]), numbers["total"], numbers["hasMore"]) == (100, 250, True)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"argument": {"name": "a", "value": ""}},
        {"argument": {"name": "a", "value": ""}, "ref": {"type": "ref/prompt", "name": "none"}},
        {"argument": {"name": "a", "value": ""}, "ref": {"type": "ref/resource", "uri": "n:n"}},
        {"argument": {"name": "a"}, "ref": {"type": "ref/prompt", "name": "greet"}},
    ],
)
def test_what_cannot_be_completed_is_refused(params):
    """Without an argument, or of something that is not there."""
    with serving(prompts=PROMPTS) as client:
        assert client.ask("completion/complete", **params)["code"] == -32602


# -- what a server offers ---------------------------------------------------------------------------------------------


def test_capabilities_follow_from_what_is_offered():
    """A server with tools alone has no other; what is added later brings its own."""
    with McpServer(ToolStore("t"), title="T", instructions="I") as server:
        bare = server.facts.capabilities
        server.add_resource(RESOURCES[0])
        server.add_prompt(PROMPTS[1])

        assert set(bare) == {"tools", "logging"}
        assert set(server.facts.capabilities) == {
            "tools",
            "logging",
            "resources",
            "prompts",
            "completions",
        }
        assert server.facts.info == {"name": "yiemagent", "version": "1", "title": "T"}


def test_names_are_unique():
    """A second offer of a name is refused, and so is what is no offer."""
    with McpServer(ToolStore("t"), resources=RESOURCES, prompts=PROMPTS) as server:
        for offer in (RESOURCES[0], RESOURCES[-1], "text"):
            with pytest.raises(ConfigurationError):
                server.add_resource(offer)
        for offer in (PROMPTS[0], "text"):
            with pytest.raises(ConfigurationError):
                server.add_prompt(offer)


def test_what_is_removed_is_gone():
    """Resources, families and prompts; what is not there can't be removed."""
    with serving(resources=RESOURCES, prompts=PROMPTS) as client:
        client.server.remove_resource("a:text")
        client.server.remove_resource("n:{only}")
        client.server.remove_prompt("plain")

        assert client.ask("resources/read", uri="a:text")["code"] == -32002
        assert client.ask("prompts/get", name="plain")["code"] == -32602
        for remove in (client.server.remove_resource, client.server.remove_prompt):
            with pytest.raises(KeyError):
                remove("a:text")


def test_closing_twice_does_nothing_more():
    """The second time finds nothing to end, and the store forgets the server."""
    store = ToolStore("t")
    server = McpServer(store)
    server.close()
    server.close()
    store.register(tool())

    assert server.closing.aborted


# -- rounds of questions ----------------------------------------------------------------------------------------------


def counts(call_id, args, signal, partial):
    """Ask twice, one question after the other."""
    caller = current_caller()
    one = caller.ask({"one": {"method": "roots/list"}})["one"]
    two = caller.ask({"two": {"method": "roots/list"}})["two"]
    return str(len(one["roots"]) + len(two["roots"]))


def roots(*uris):
    """An answer to a question for roots."""
    return {"roots": [{"uri": uri} for uri in uris]}


CAN = {"roots": {}}


def test_a_tool_may_ask_several_times():
    """Each round brings the answers of the ones before in a sealed state."""
    with serving(tool("count", counts)) as client:
        first = client.stateless("tools/call", CAN, name="count")
        second = client.stateless(
            "tools/call",
            CAN,
            name="count",
            inputResponses={"one": roots("a:b")},
            requestState=first["requestState"],
        )
        third = client.stateless(
            "tools/call",
            CAN,
            name="count",
            inputResponses={"two": roots("a:c", "a:d")},
            requestState=second["requestState"],
        )

        assert first["resultType"] == second["resultType"] == "input_required"
        assert first["inputRequests"] == {"one": {"method": "roots/list"}}
        assert list(second["inputRequests"]) == ["two"]
        assert text(third) == "3"


def test_a_state_belongs_to_its_call():
    """With other arguments, of another client, or changed, it is refused."""
    with serving(tool("count", counts, input_schema={"type": "object"})) as client:
        state = client.stateless("tools/call", CAN, name="count")["requestState"]
        stranger = Client(client.server, principal="eve")

        assert client.stateless("tools/call", CAN, name="count", requestState=f"{state}x")[
            "code"
        ] == (-32602)
        assert (
            client.stateless(
                "tools/call", CAN, name="count", arguments={"x": 1}, requestState=state
            )["code"]
            == -32602
        )
        assert (
            stranger.stateless("tools/call", CAN, name="count", requestState=state)["code"]
            == -32602
        )


@pytest.mark.parametrize("responses", [None, [], {"one": 5}, "x"])
def test_answers_must_be_objects_by_name(responses):
    """Anything else is refused before the tool runs."""
    with serving(tool("count", counts)) as client:
        answer = client.stateless("tools/call", CAN, name="count", inputResponses=responses)

        assert answer["code"] == -32602


def test_answers_to_other_questions_are_asked_again():
    """What was not asked for is ignored."""
    with serving(tool("count", counts)) as client:
        answer = client.stateless(
            "tools/call", CAN, name="count", inputResponses={"other": roots()}
        )

        assert list(answer["inputRequests"]) == ["one"]


def test_resources_and_prompts_may_ask_too():
    """They end with the same kind of result, and go on with the answer."""

    def ask_for_roots():
        return str(len(current_caller().ask({"r": {"method": "roots/list"}})["r"]["roots"]))

    with serving(
        resources=[Resource("a:b", "b", read=ask_for_roots)],
        prompts=[Prompt("p", render=ask_for_roots)],
    ) as client:
        for method, named in (("resources/read", {"uri": "a:b"}), ("prompts/get", {"name": "p"})):
            first = client.stateless(method, CAN, **named)
            second = client.stateless(method, CAN, inputResponses={"r": roots("x:y")}, **named)
            lacking = client.stateless(method, {}, **named)

            assert first["resultType"] == "input_required"
            assert "ttlMs" not in first
            assert "'1'" in str(second) or '"1"' in str(second)
            assert lacking["code"] == -32021


def test_a_tool_that_catches_the_end_of_its_call_does_not_hide_it():
    """The client is asked all the same."""

    def stubborn(call_id, args, signal, partial):
        with contextlib.suppress(Exception):
            current_caller().ask({"r": {"method": "roots/list"}})
        return "no roots"

    with serving(tool("t", stubborn)) as client:
        assert "inputRequests" in client.stateless("tools/call", CAN, name="t")


def test_after_a_handshake_a_tool_waits_for_the_answer():
    """The question goes out with the call's own messages, and the answer comes in."""
    with serving(tool("count", counts)) as client:
        client.send(call_of("count", "c", {}))
        for _ in range(2):
            question = client.channel.next_sent()
            assert question["method"] == "roots/list"
            client.send({"jsonrpc": "2.0", "id": question["id"], "result": roots("a:b")})

        assert text(client.channel.next_answer()["result"]) == "2"


def test_a_refusal_of_the_client_is_an_error_of_the_tool():
    """The tool fails with the client's words."""
    with serving(tool("count", counts)) as client:
        client.send(call_of("count", "c", {}))
        question = client.channel.next_sent()
        client.send(
            {"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "no roots"}}
        )
        result = client.channel.next_answer()["result"]

        assert result["isError"]
        assert "no roots" in text(result)


def test_a_question_ends_with_its_call():
    """When the call is cancelled, the client is told that the question is, too."""
    with serving(tool("count", counts)) as client:
        client.send(call_of("count", "c", {}))
        question = client.channel.next_sent()
        client.send(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "c"}}
        )

        assert client.channel.next_answer() is None
        told = client.channel.next_sent()
        assert (told["method"], told["params"]["requestId"]) == (
            "notifications/cancelled",
            question["id"],
        )
