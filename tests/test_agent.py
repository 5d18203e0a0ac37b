"""The public agent: what it is made of, and how it ends when nobody holds it."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref

import pytest

from tests.support.loops import parallel
from yiemagent import (
    AgentContext,
    AgentLoopConfig,
    AssistantMessage,
    ConfigurationError,
    DuplicateTool,
    ResponseTimeout,
    ToolStore,
    UserMessage,
    YiemAgent,
    ask,
    get_tools,
    register_tool,
    run_agent,
    stop_agent,
    take_response,
)
from yiemagent.machine import State
from yiemagent.testing import RecordingSink, ScriptedModel, call, calls
from yiemagent.tool import AgentTool


def tool(name, function=lambda *_: "ok", **options):
    return AgentTool(name, description=f"the tool {name}", execute=function, **options)


# -- what it is made of --


def test_an_unused_agent_has_no_thread():
    """Making an agent starts nothing."""
    before = threading.active_count()
    agent = YiemAgent(ScriptedModel())

    assert threading.active_count() == before
    assert agent.channel_state is State.IDLE
    assert "idle" in repr(agent)


def test_an_unknown_option_is_named():
    """A mistyped option is refused, and the text lists what there is."""
    with pytest.raises(ConfigurationError, match=r"max_turn.*max_turns"):
        YiemAgent(ScriptedModel(), max_turn=3)


@pytest.mark.parametrize("own", ["get_steering_messages", "get_follow_up_messages"])
def test_the_queue_getters_are_the_agents_own(own):
    """The agent has queues of its own, so their getters can't be given."""
    with pytest.raises(ConfigurationError, match="steer"):
        YiemAgent(ScriptedModel(), **{own: list})


async def later(*_):
    """Is no plain function."""


@pytest.mark.parametrize(
    "options",
    [
        {"max_turns": 0},
        {"max_turns": "3"},
        {"max_parallel_tools": 0},
        {"max_parallel_tools": "3"},
        {"abort_grace_s": -1},
        {"abort_grace_s": "1"},
        {"reasoning": "lots"},
        {"cache": "forever"},
        {"max_cost": 0},
        {"max_cost": "1"},
        {"max_cost": True},
        {"max_total_tokens": 0},
        {"max_total_tokens": 10.5},
        {"output_schema": "Person"},
        {"tool_execution": "sideways"},
        {"event_sink": 3},
        {"event_sink": later},
        {"event_sink": [print, later]},
        {"prepare_context": 3},
        {"prepare_context": later},
        {"before_tool_call": 3},
        {"should_stop_after_turn": later},
        {"tool_store": {}},
        {"messages": ["hi"]},
        {"session": object()},
        {"tools": ToolStore()},
        {"tools": "tools"},
        {"tools": 3},
        {"mcp_server": "http://127.0.0.1/mcp"},
        {"system_prompt": 5},
        {"system_prompt": None},
        {"name": 5},
        {"session_id": 5},
        {"session_id": 0},
        {"model": 7},
        {"messages": 5},
        {"messages": "hello"},
        {"messages": [UserMessage]},
        {"parallel_tool_execute": "no"},
        {"parallel_tool_execute": None},
        {"max_turns": True},
        {"event_sink": lambda: None},
        {"event_sink": [print, lambda event, more: None]},
        {"prepare_context": lambda: None},
        {"before_tool_call": lambda context: None},
        {"convert_to_llm": lambda messages, signal: messages},
        {"get_api_key": later},
    ],
)
def test_an_option_of_the_wrong_kind_is_refused(options):
    """What can't work is refused when the agent is made, in words that name it."""
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        YiemAgent(ScriptedModel(), **options)


def test_an_unknown_option_is_told_what_there_is():
    """All that an agent takes is named, and nothing that it doesn't."""
    with pytest.raises(ConfigurationError, match="has no option sistem_prompt") as refused:
        YiemAgent(ScriptedModel(), sistem_prompt="hi")
    taken = str(refused.value).partition("it takes ")[2].split(", ")

    assert {"system_prompt", "tools", "name", "max_turns", "session"} <= set(taken)
    assert not {"get_steering_messages", "self", "llm_call"} & set(taken)


def test_an_agent_that_can_not_be_made_leaves_a_shared_store_alone():
    """The tools of an agent enter a live store only where its options are sound, so that one can try again."""

    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    store = ToolStore()
    with pytest.raises(ConfigurationError, match="max_turns"):
        YiemAgent(ScriptedModel(), tools=[add], tool_store=store, max_turns=0)
    assert get_tools(store) == {}

    agent = YiemAgent(ScriptedModel(), tools=[add], tool_store=store)
    assert list(agent.state.tools) == ["add"]


@pytest.mark.parametrize("llm_call", [None, 3, "nobody:model", ScriptedModel])
def test_what_is_no_model_is_refused(llm_call):
    """A model must be callable or a string that names a known provider."""
    with pytest.raises(ConfigurationError):
        YiemAgent(llm_call)


def test_a_coroutine_function_is_no_model():
    """An async function is refused in words."""

    async def llm_call(_request):
        return "hi"

    with pytest.raises(ConfigurationError, match="coroutine"):
        YiemAgent(llm_call)


@pytest.mark.parametrize("name", ["system_prompt", "max_turns", "max_turn", "messages", "name"])
def test_nothing_of_an_agent_can_be_set(name):
    """An option that is set on an agent is refused, in words that say what to do, and the agent stays as it was."""
    agent = YiemAgent(ScriptedModel(), name="ann")
    with pytest.raises(AttributeError, match=rf"'{name}' .*messages=agent\.messages"):
        setattr(agent, name, 3)

    assert (agent.name, agent.messages) == ("ann", ())


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_agent_is_never_copied(copied):
    """There is one agent to a thread: copying and pickling say how to make another."""
    with pytest.raises(TypeError, match=r"can't be copied or pickled.*messages=agent\.messages"):
        copied(YiemAgent(ScriptedModel()))


def test_a_subclass_may_have_attributes_of_its_own():
    """Who makes a kind of agent may keep what is theirs with it."""

    class Counting(YiemAgent):
        def __init__(self, *models):
            self.asked = 0
            super().__init__(*models, system_prompt="Count.")

    with Counting(ScriptedModel(["one"])) as agent:
        agent.asked += 1
        assert ask(agent, "hi", timeout_s=10).text == "one"

    assert (agent.asked, agent.state.system_prompt) == (1, "Count.")


def test_sequential_has_a_short_form():
    """parallel_tool_execute=False is tool_execution="sequential"."""
    agent = YiemAgent(ScriptedModel(), parallel_tool_execute=False)

    assert agent._core._config.tool_execution == "sequential"


def test_every_option_of_the_loop_is_an_option_of_the_agent():
    """The agent takes the fields of AgentLoopConfig but the two queue getters."""
    hooks = {
        "before_tool_call": lambda *_: None,
        "after_tool_call": lambda *_: None,
        "prepare_next_turn": lambda *_: None,
        "should_stop_after_turn": lambda *_: False,
        "transform_context": lambda messages, _signal: messages,
        "convert_to_llm": lambda messages: messages,
        "get_api_key": lambda _provider: None,
        "on_payload": lambda payload: payload,
        "on_response": lambda *_: None,
        "max_turns": 3,
        "reasoning": "low",
        "cache": "long",
        "session_id": "s",
        "model": "m",
    }
    with YiemAgent(ScriptedModel([call("noop"), "done"]), tools=[tool("noop")], **hooks) as agent:
        assert ask(agent, "go", timeout_s=10).text == "done"

    config = agent._core._config
    assert isinstance(config, AgentLoopConfig)
    assert all(getattr(config, name) == value for name, value in hooks.items())


def test_options_reach_the_model():
    """Model, reasoning and session id are what the stream function is asked with."""
    model = ScriptedModel(["hi"])
    with YiemAgent(
        model, model="big", reasoning="high", session_id="s-1", temperature=0.5
    ) as agent:
        ask(agent, "go", timeout_s=10)

    options = model.options[0]
    assert (options.model, options.reasoning, options.session_id, options.temperature) == (
        "big",
        "high",
        "s-1",
        0.5,
    )


def test_a_plain_function_is_a_model():
    """A function of the request dict gets OpenAI's form, and its text is the answer."""
    requests = []

    def llm_call(request):
        requests.append(request)
        return "hello"

    with YiemAgent(llm_call, system_prompt="Be kind.", tools=[tool("noop")]) as agent:
        assert ask(agent, "hi", timeout_s=10).text == "hello"

    messages = requests[0]["messages"]
    assert [m["role"] for m in messages] == ["system", "user"]
    assert requests[0]["tools"][0]["function"]["name"] == "noop"


def test_a_format_of_ones_own():
    """format_msg_for_llm makes the request of a plain function, and is refused for a StreamFn."""
    requests = []
    form = lambda context: {"prompt": context.messages[-1].text}
    with YiemAgent(lambda r: requests.append(r) or "ok", format_msg_for_llm=form) as agent:
        ask(agent, "hi", timeout_s=10)

    assert requests == [{"prompt": "hi"}]
    with pytest.raises(ConfigurationError, match="on_payload"):
        YiemAgent(ScriptedModel(), format_msg_for_llm=form)


def test_prepare_context_changes_one_request():
    """What prepare_context gives is sent and never changes the history; a tool it left out is unknown."""
    model = ScriptedModel([call("noop"), "done"])
    states = []

    def prepare(state):
        states.append(state)
        return AgentContext("Be brief.", state.messages[-1:], {})

    with YiemAgent(model, tools=[tool("noop")], prepare_context=prepare) as agent:
        ask(agent, "go", timeout_s=10)

        assert model.requests[0].system_prompt == "Be brief."
        assert dict(model.requests[0].tools) == {}
        assert states[0].messages[0].text == "go"
        result = agent.messages[2]
        assert result.is_error
        assert "not found" in result.text
        assert agent.state.system_prompt == "You are a helpful assistant."


def test_a_prepare_context_that_gives_something_else_is_an_answer():
    """A hook's mistake ends the run with words that say what to give."""
    with YiemAgent(ScriptedModel(["hi"]), prepare_context=lambda _state: "oops") as agent:
        answer = ask(agent, "go", timeout_s=10)

    assert answer.stop_reason == "error"
    assert "AgentContext" in answer.error_message


def test_a_history_to_begin_with():
    """The agent goes on from the messages given, and the caller's list stays as it is."""
    before = [UserMessage("my name is Ann"), AssistantMessage("hello Ann")]
    model = ScriptedModel(["Ann"])
    with YiemAgent(model, messages=before) as agent:
        ask(agent, "what is my name?", timeout_s=10)

    assert [m.text for m in model.requests[0].messages] == [
        "my name is Ann",
        "hello Ann",
        "what is my name?",
    ]
    assert len(before) == 2


def test_several_sinks_see_the_same():
    """Each of several sinks gets every event."""
    one, two = RecordingSink(), RecordingSink()
    with YiemAgent(ScriptedModel(["hi"]), event_sink=[one, two]) as agent:
        ask(agent, "go", timeout_s=10)

    assert one.events == two.events
    assert one.events


# -- tools --


def test_tools_of_every_form_are_taken():
    """A mapping, a sequence, and plain functions all become the agent's tools."""

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    store = ToolStore()
    register_tool(store, tool("one"))
    agents = [
        YiemAgent(ScriptedModel(), tools=get_tools(store)),
        YiemAgent(ScriptedModel(), tools=[tool("one")]),
        YiemAgent(ScriptedModel(), tools=[add]),
    ]

    assert [list(agent.state.tools) for agent in agents] == [["one"], ["one"], ["add"]]


def test_tools_join_the_store_that_is_given():
    """With both, the tools are registered into the live store; its own tools count once, a taken name is refused."""
    store = ToolStore()
    register_tool(store, tool("one"))
    agent = YiemAgent(
        ScriptedModel(), tools=[*get_tools(store).values(), tool("two")], tool_store=store
    )

    assert list(get_tools(store)) == ["one", "two"]
    assert agent.tool_store is store
    with pytest.raises(DuplicateTool, match="one"):
        YiemAgent(ScriptedModel(), tools=[tool("one")], tool_store=store)


def test_a_tool_registered_in_a_run_can_be_called_in_its_next_turn():
    """A tool that a tool registers is offered from the next turn on, and named in that call's result."""
    store = ToolStore()

    def make(*_):
        register_tool(store, tool("fresh", lambda *_: "fresh result"))
        return "made"

    register_tool(store, tool("make", make))
    model = ScriptedModel([call("make"), call("fresh"), "done"])
    with YiemAgent(model, tool_store=store) as agent:
        ask(agent, "go", timeout_s=10)

        assert list(model.requests[0].tools) == ["make"]
        assert list(model.requests[1].tools) == ["make", "fresh"]
        made, fresh = agent.messages[2], agent.messages[4]
        assert made.added_tool_names == ("fresh",)
        assert fresh.text == "fresh result"


def test_the_tools_of_an_agent_inside_of_a_tool_are_its_own():
    """A tool that asks an agent with tools of its own names none of them as added."""

    def delegate(*_):
        with YiemAgent(
            ScriptedModel([call("inner"), "inner done"]), tools=[tool("inner")]
        ) as inner:
            return ask(inner, "go", timeout_s=10).text

    model = ScriptedModel([call("delegate"), "done"])
    with YiemAgent(model, tools=[tool("delegate", delegate)]) as agent:
        ask(agent, "go", timeout_s=10)

        assert agent.messages[2].text == "inner done"
        assert agent.messages[2].added_tool_names == ()


def test_a_servers_tools_wait_for_list_tools():
    """With mcp_server, list_tools is there at first; calling it adds the server's tools in the same run."""

    def server(method, *args):
        if method == "tools/list":
            schema = {"type": "object", "properties": {"city": {"type": "string"}}}
            tools = [{"name": "weather", "description": "Weather of a city", "inputSchema": schema}]
            return {"jsonrpc": "2.0", "id": 1, "result": {"tools": tools}}
        name, arguments = args
        text = f"{name} {arguments['city']}: sunny"
        return {"jsonrpc": "2.0", "id": 2, "result": {"content": [{"type": "text", "text": text}]}}

    model = ScriptedModel([call("list_tools"), call("weather", {"city": "Oslo"}), "done"])
    with YiemAgent(model, mcp_server=server, tools=[tool("local")]) as agent:
        assert ask(agent, "go", timeout_s=10).text == "done"

        assert sorted(model.requests[0].tools) == ["list_tools", "local"]
        assert "weather" in model.requests[1].tools
        assert agent.messages[2].added_tool_names == ("weather",)
        assert agent.messages[4].text == "weather Oslo: sunny"


# -- ending by itself --


def test_a_dropped_agent_finishes_and_ends():
    """An agent that nobody holds answers what it accepted, and its thread ends."""
    sink = RecordingSink()
    agent = YiemAgent(ScriptedModel(default="ok"), event_sink=sink)
    for number in range(5):
        run_agent(agent, f"m{number}")
    thread = agent._core._thread
    del agent
    gc.collect()
    thread.join(10)

    assert not thread.is_alive()
    assert sink.names().count("AgentEndEvent") == 5


def test_an_agent_that_made_a_call_is_gone_at_once():
    """No cycle keeps it until a garbage collection comes: a session of its own is free, and so are its tools."""
    gc.disable()
    try:
        agent = YiemAgent(ScriptedModel([call("work"), "fine"]), tools=[parallel("work")])
        ask(agent, "go", timeout_s=10)
        core, thread = weakref.ref(agent._core), agent._core._thread
        del agent
        thread.join(10)
        assert core() is None
    finally:
        gc.enable()


def test_an_idle_agent_that_is_dropped_ends():
    """A dropped agent that has nothing to do ends at once."""
    agent = YiemAgent(ScriptedModel(default="ok"))
    ask(agent, "hi", timeout_s=10)
    thread = agent._core._thread
    del agent
    gc.collect()
    thread.join(10)

    assert not thread.is_alive()


def test_an_idle_agent_keeps_no_threads_of_its_calls():
    """Workers of calls that ran side by side end with the run; the next run has its own."""

    def workers():
        names = [thread.name for thread in threading.enumerate()]
        return [name for name in names if name.startswith("yiem-ann-tool")]

    meet = threading.Barrier(3)
    work = parallel("work", lambda *_: meet.wait(10) is not None and "met")
    both = calls(call("work"), call("work"), call("work"))
    model = ScriptedModel([both, both, "one", both, "two"])
    with YiemAgent(model, tools=[work], name="ann") as agent:
        for expected in ("one", "two"):
            assert ask(agent, "go", timeout_s=10).text == expected
            for thread in threading.enumerate():
                if thread.name.startswith("yiem-ann-tool"):
                    thread.join(10)
            assert workers() == []


def test_agents_have_names():
    """A name is shown and used for threads; without one the agent gets a fresh one."""
    with YiemAgent(ScriptedModel(["hi"]), name="ann") as agent:
        ask(agent, "hi", timeout_s=10)

        assert agent.name == "ann"
        assert agent._core._thread.name == "yiem-ann-loop"
        with pytest.raises(ResponseTimeout):
            take_response(agent, 0)
    assert YiemAgent(ScriptedModel()).name != YiemAgent(ScriptedModel()).name


def test_a_stopped_agent_says_so():
    """The repr of an agent that was stopped tells it from an idle one."""
    agent = YiemAgent(ScriptedModel(), name="ann")
    idle = repr(agent)
    stop_agent(agent)

    assert (idle, repr(agent)) == ("<YiemAgent 'ann' idle>", "<YiemAgent 'ann' stopped>")


def test_a_model_string_without_a_provider_gets_a_hint():
    """A bare model name says how to name its provider."""
    with pytest.raises(ConfigurationError, match=r"did you mean 'openai:gpt-5\.1'"):
        YiemAgent("gpt-5.1")
