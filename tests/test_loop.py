"""The loop: the order of its steps, its hooks and queues, its ends; and what holds for every script."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.loops import WAIT_S, Hold, parallel, raising, run, tool
from yiemagent.abort import AbortSignal
from yiemagent.config import AgentLoopConfig
from yiemagent.context import AgentContext
from yiemagent.errors import ConfigurationError
from yiemagent.events import AgentStartEvent, MessageEndEvent, TurnEndEvent, TurnStartEvent
from yiemagent.history import check, repair
from yiemagent.hooks import NextTurn
from yiemagent.loop import LoopPorts, made_answer, run_loop, terminated_answer
from yiemagent.messages import (
    AssistantMessage,
    ImageContent,
    LlmUsage,
    TextContent,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.pool import DaemonPool
from yiemagent.registry import ToolStore, register_tool
from yiemagent.relay import finish
from yiemagent.streaming import DoneEvent, StartEvent, TextStartEvent
from yiemagent.testing import RecordingSink, ScriptedModel, call, calls, failure
from yiemagent.tool import AgentToolResult


class Queue:
    """A queue of messages as `get_steering_messages` and `get_follow_up_messages` give them."""

    def __init__(self, *texts):
        self.waiting = list(texts)
        self.looks = 0

    def __call__(self):
        self.looks += 1
        taken, self.waiting = self.waiting, []
        return [UserMessage(text) for text in taken]


TURN_WITH_A_CALL = [
    "TurnStart",
    "MessageStart",
    "MessageEnd",
    "ToolExecStart",
    "ToolExecEnd",
    "MessageStart",
    "MessageEnd",
    "TurnEnd",
]


# -- the order of things --


def test_a_run_without_calls_is_one_turn():
    """AgentStart, one turn with prompt and answer, AgentEnd."""
    done = run(["fine"], session_id="s1")

    assert done.steps == [
        "AgentStart",
        "TurnStart",
        *["MessageStart", "MessageEnd"] * 2,
        "TurnEnd",
        "AgentEnd",
    ]
    assert done.of(AgentStartEvent)[0].session_id == "s1"
    assert done.of(TurnEndEvent)[0].message is done.answer


def test_a_call_is_run_and_its_result_sent():
    """A turn with a call is followed by one with its result; the answer stands before it in the history."""
    model = ScriptedModel([calls(call("work")), "fine"])
    done = run(model, tool())

    assert done.history == [
        ("user", "hi"),
        ("assistant", ""),
        ("toolResult", "work done"),
        ("assistant", "fine"),
    ]
    turn = [*TURN_WITH_A_CALL[:1], "MessageStart", "MessageEnd", *TURN_WITH_A_CALL[1:]]
    assert done.steps[1 : 1 + len(turn)] == turn
    assert [event.turn for event in done.of(TurnStartEvent)] == [1, 2]
    assert [message.role for message in model.requests[1].messages] == [
        "user",
        "assistant",
        "toolResult",
    ]
    assert done.of(TurnEndEvent)[0].tool_results == done.messages[2:3]


def test_the_answer_is_in_the_history_before_its_tools_run():
    """An assistant message has ended when its first tool begins."""
    sink = RecordingSink()
    seen = []

    def function(*_):
        seen.extend(event.message.role for event in sink.of(MessageEndEvent))

    run([calls(call("work")), "fine"], tool(function=function), sinks=sink)

    assert seen == ["user", "assistant"]


def test_several_prompts_begin_a_run_in_order():
    """Each prompt is told of, in order, before the model is asked once."""
    done = run(["fine"], prompts=["one", {"role": "user", "content": "two"}, UserMessage("three")])

    assert [text for _, text in done.history] == ["one", "two", "three", "fine"]
    assert len(done.model.requests) == 1


def test_no_step_walks_a_long_history_recursively():
    """Three hundred turns work within Python's default limit on recursion."""
    model = ScriptedModel([calls(call("work"))] * 300 + ["fine"], stream=False)
    done = run(model, tool(), max_turns=None)

    assert len(done.messages) == 602
    assert done.answer.text == "fine"


def test_the_callers_context_stays_as_it_was():
    """A run works on a history of its own."""
    history = (UserMessage("before"),)
    context = AgentContext("", history, [tool()])
    pool = DaemonPool("yiem-test-tool")
    steps = run_loop(
        [UserMessage("hi")],
        context,
        AgentLoopConfig(),
        AbortSignal(),
        LoopPorts(stream_fn=ScriptedModel(["fine"]), emit=RecordingSink(), pool=pool),
    )
    answer = finish(steps, pool.start, signal=AbortSignal(), grace_s=1.0)

    assert answer.text == "fine"
    assert tuple(context.messages) == history


# -- turns --


@pytest.mark.parametrize(("limit", "words"), [(1, "1 turn"), (2, "2 turns"), (5, "5 turns")])
def test_a_runaway_loop_ends_at_its_turn_limit(limit, words):
    """`max_turns` ends the run with an error that says so; every call has its result."""
    model = ScriptedModel(default=calls(call("work")))
    done = run(model, tool(), max_turns=limit)

    assert len(model.requests) == limit
    assert done.answer.stop_reason == "error"
    assert done.answer.error_message == (
        f"stopped after {words} (max_turns={limit}) with tool calls to go on"
    )
    assert len(done.results) == limit
    assert done.messages[-1].role == "toolResult"


def test_the_turn_limit_leaves_a_finished_answer_alone():
    """An answer in the last turn allowed is the run's answer, and the queues stay as they are."""
    steering, follow_ups = Queue(), Queue("later")
    done = run(
        ["fine"], max_turns=1, get_steering_messages=steering, get_follow_up_messages=follow_ups
    )

    assert done.answer.text == "fine"
    assert follow_ups.waiting == ["later"]


def test_turns_are_unlimited_when_asked():
    """`max_turns=None` never stops a run, and by default a hundred turns do."""
    done = run(ScriptedModel(default=calls(call("work")), stream=False), tool())

    assert len(done.results) == 100
    with pytest.raises(ConfigurationError, match="max_turns"):
        AgentLoopConfig(max_turns=0)


# -- queues --


def test_steering_is_looked_at_once_before_the_first_turn_and_after_each():
    """What waits at the start joins the first turn behind the prompt; later messages the next one."""
    queue = Queue("first")

    def function(*_):
        queue.waiting.append("second")

    model = ScriptedModel([calls(call("work")), "fine"])
    done = run(model, tool(function=function), get_steering_messages=queue)

    assert [text for _, text in done.history] == ["hi", "first", "", "", "second", "fine"]
    assert queue.looks == 3


def test_steering_keeps_a_run_going_that_would_stop():
    """A message that steers gets a turn though no tool was called."""
    queue = Queue()

    def answer(_context, _signal):
        queue.waiting.append("and?")
        return "one"

    done = run([answer, "two"], get_steering_messages=queue)

    assert done.history == [
        ("user", "hi"),
        ("assistant", "one"),
        ("user", "and?"),
        ("assistant", "two"),
    ]
    assert done.answer.text == "two"


def test_follow_ups_join_when_the_run_would_stop():
    """Follow-ups are not looked at while tools go on, and all of them join one turn."""
    follow_ups = Queue("later", "and later")
    done = run([calls(call("work")), "one", "two"], tool(), get_follow_up_messages=follow_ups)

    assert [text for _, text in done.history[3:]] == ["one", "later", "and later", "two"]
    assert follow_ups.looks == 2


def test_steering_goes_before_follow_ups():
    """Where both wait, steering has its turn first and follow-ups theirs after it."""
    steering, follow_ups = Queue(), Queue("follow")

    def answer(_context, _signal):
        steering.waiting.append("steer")
        return "one"

    done = run(
        [answer, "two", "three"],
        get_steering_messages=steering,
        get_follow_up_messages=follow_ups,
    )

    assert [text for _, text in done.history] == ["hi", "one", "steer", "two", "follow", "three"]


@pytest.mark.parametrize("answer", [failure("no luck"), failure("gone", "aborted")])
def test_a_failed_run_leaves_the_queues_alone(answer):
    """Neither steering nor follow-ups are taken by a run that fails."""
    steering, follow_ups = Queue(), Queue("follow")

    def failing(_context, _signal):
        steering.waiting.append("steer")
        return answer

    done = run([failing], get_steering_messages=steering, get_follow_up_messages=follow_ups)

    assert done.answer is answer
    assert (steering.waiting, follow_ups.waiting) == (["steer"], ["follow"])


@pytest.mark.parametrize("hook", ["prepare_next_turn", "should_stop_after_turn"])
@pytest.mark.parametrize("script", [["fine"], [calls(call("work"))]], ids=["answered", "calls"])
def test_an_abort_between_turns_leaves_the_queues_alone(hook, script):
    """A run that is aborted in a hook between turns ends there: nothing is drained, nothing begins."""
    steering, follow_ups = Queue(), Queue("follow")

    def abort(_turn, signal):
        steering.waiting.append("steer")
        signal.abort("enough")

    done = run(
        [*script, "never"],
        tool(),
        get_steering_messages=steering,
        get_follow_up_messages=follow_ups,
        **{hook: abort},
    )

    assert (steering.waiting, follow_ups.waiting) == (["steer"], ["follow"])
    assert done.steps.count("TurnStart") == 1
    finished = script == ["fine"]
    assert done.answer.stop_reason == ("stop" if finished else "aborted")


@pytest.mark.parametrize("queue", ["get_steering_messages", "get_follow_up_messages"])
def test_a_queue_that_raises_fails_the_run(queue):
    """What a getter raises is the run's error, with what came before in the history."""
    done = run(["fine"], **{queue: raising(ValueError("broken"))})

    assert (done.answer.stop_reason, done.answer.error_message) == ("error", "ValueError: broken")
    assert done.history[0] == ("user", "hi")


def test_an_abort_before_the_model_is_asked_makes_the_answer():
    """A run aborted from the start takes its prompt in and asks nobody."""
    signal = AbortSignal()
    signal.abort("enough")
    done = run(["never"], signal=signal)

    assert (done.answer.stop_reason, done.answer.error_message) == ("aborted", "aborted: enough")
    assert (done.history, done.model.requests) == ([("user", "hi")], [])
    assert done.of(TurnEndEvent)[0].message is None


# -- hooks between turns --


def test_prepare_next_turn_changes_what_comes():
    """Model and thinking level hold from the next turn on, and what is not given stays."""
    model = ScriptedModel([calls(call("work")), calls(call("work")), "fine"])
    changes = iter([NextTurn(model="other"), NextTurn(thinking_level="off"), None])
    run(
        model,
        tool(),
        model="first",
        reasoning="high",
        prepare_next_turn=lambda *_: next(changes),
    )

    assert [(options.model, options.reasoning) for options in model.options] == [
        ("first", "high"),
        ("other", "high"),
        ("other", "off"),
    ]


def test_prepare_next_turn_can_replace_the_context():
    """Another context is what the next request shows, tools included; the run's own messages stay."""
    model = ScriptedModel([calls(call("work")), calls(call("new")), "fine"])
    compact = AgentContext("be brief", [UserMessage("summary")], [tool("new")])
    changes = iter([NextTurn(context=compact), None, None])
    done = run(model, tool(), prepare_next_turn=lambda *_: next(changes))

    assert [message.text for message in model.requests[1].messages] == ["summary"]
    assert model.requests[1].system_prompt == "be brief"
    assert done.results == [("work done", False), ("new done", False)]
    assert len(done.messages) == 6


def test_the_hooks_between_turns_see_the_turn():
    """Both are shown the answer, its results, the context after it and what is new so far."""
    seen = []

    def look(turn, signal):
        texts = [message.text for message in turn.context.messages]
        seen.append((turn.message.text, len(turn.tool_results), texts, len(turn.new_messages)))
        assert not signal.aborted

    run(
        [calls(call("work"), text="so"), "fine"],
        tool(),
        history=[UserMessage("old"), AssistantMessage("older")],
        prepare_next_turn=look,
        should_stop_after_turn=look,
    )
    first = ("so", 1, ["old", "older", "hi", "so", "work done"], 3)
    second = ("fine", 0, ["old", "older", "hi", "so", "work done", "fine"], 4)

    assert seen == [first, first, second, second]


def test_should_stop_sees_the_replaced_context():
    """What `prepare_next_turn` gives is what `should_stop_after_turn` is shown."""
    seen = []
    run(
        ["fine"],
        prepare_next_turn=lambda *_: NextTurn(context=AgentContext("other")),
        should_stop_after_turn=lambda turn, _: seen.append(turn.context.system_prompt),
    )

    assert seen == ["other"]


def test_should_stop_after_turn_ends_the_run():
    """True ends the run after the turn: its answer stands, the queues stay as they are."""
    follow_ups, steering = Queue("follow"), Queue()
    done = run(
        [calls(call("work"), text="working"), "never"],
        tool(),
        should_stop_after_turn=lambda *_: bool(steering.waiting.append("steer") or True),
        get_steering_messages=steering,
        get_follow_up_messages=follow_ups,
    )

    assert done.answer.text == "working"
    assert done.results == [("work done", False)]
    assert (steering.waiting, follow_ups.waiting) == (["steer"], ["follow"])


def test_hooks_between_turns_are_not_asked_after_a_failure():
    """A failed or aborted turn ends the run at once."""
    asked = []
    hooks = {
        "prepare_next_turn": lambda *_: asked.append(1),
        "should_stop_after_turn": lambda *_: asked.append(2),
    }
    run([failure("no luck")], **hooks)
    signal = AbortSignal()
    run([calls(call("work"))], tool(function=lambda *_: signal.abort()), signal=signal, **hooks)

    assert asked == []


@pytest.mark.parametrize("hook", ["prepare_next_turn", "should_stop_after_turn"])
@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(1)], ids=repr)
def test_a_hook_between_turns_that_raises_fails_the_run(hook, error, caplog):
    """Its exception is the run's error and logged; the turn before it is whole."""
    done = run([calls(call("work")), "never"], tool(), **{hook: raising(error)})

    assert done.answer.error_message == f"{type(error).__name__}: {error}"
    assert done.steps.count("TurnEnd") == 1
    assert done.results == [("work done", False)]
    assert "failed" in caplog.text


def test_a_hook_that_gives_something_else_fails_the_run():
    """`prepare_next_turn` gives a `NextTurn` or None."""
    done = run(["fine"], prepare_next_turn=lambda *_: {"model": "x"})

    assert done.answer.error_message.startswith("ConfigurationError: prepare_next_turn gave")


# -- tools of a turn --


def loop(model, *, live_tools=None, prepare_context=None, context=None, **config):
    """Run the loop itself with ports of one's own; gives answer and events."""
    sink = RecordingSink()
    pool = DaemonPool("yiem-test-tool")
    steps = run_loop(
        [UserMessage("hi")],
        context or AgentContext(),
        AgentLoopConfig(**config),
        AbortSignal(),
        LoopPorts(
            stream_fn=model,
            emit=sink,
            pool=pool,
            live_tools=live_tools,
            prepare_context=prepare_context,
        ),
    )
    answer = finish(steps, pool.start, signal=AbortSignal(), grace_s=1.0)
    pool.shutdown(wait=False)
    return answer, sink


def test_what_is_registered_in_a_turn_can_be_called_in_the_next():
    """A live store is asked once a turn."""
    store = ToolStore()
    register_tool(store, tool("make", lambda *_: register_tool(store, tool("made"))))
    model = ScriptedModel([calls(call("make"), call("made")), calls(call("made")), "fine"])
    _, sink = loop(model, live_tools=store.snapshot)
    results = [e.message for e in sink.of(MessageEndEvent) if e.message.role == "toolResult"]

    assert [list(request.tools) for request in model.requests] == [
        ["make"],
        ["make", "made"],
        ["make", "made"],
    ]
    assert [result.is_error for result in results] == [False, True, False]
    assert results[0].added_tool_names == ("made",)


def test_a_context_that_replaces_the_tools_ends_their_life():
    """Tools that `prepare_next_turn` sets stay; without tools of its own the store stays live."""
    store = ToolStore()
    register_tool(store, tool("live"))
    model = ScriptedModel([calls(call("live")), "fine"])
    loop(
        model,
        live_tools=store.snapshot,
        prepare_next_turn=lambda turn, _: NextTurn(
            context=AgentContext("", turn.context.messages, [tool("set")])
        ),
    )

    assert [list(request.tools) for request in model.requests] == [["live"], ["set"]]


def test_what_a_request_did_not_offer_is_an_unknown_tool():
    """`prepare_context` may filter tools, and changes the request only."""
    model = ScriptedModel([calls(call("hidden")), "fine"])
    context = AgentContext("", (), [tool("hidden"), tool("shown")])
    _, sink = loop(
        model,
        context=context,
        prepare_context=lambda given: AgentContext("other", given.messages, [given.tools["shown"]]),
    )
    [result] = [e.message for e in sink.of(MessageEndEvent) if e.message.role == "toolResult"]

    assert result.text == "Tool 'hidden' not found. Available tools: shown"
    assert [request.system_prompt for request in model.requests] == ["other", "other"]


def test_a_run_without_prompts_begins_with_follow_ups_on_an_answered_history():
    """Where nothing else can be answered, what waits to join begins the run."""
    sink = RecordingSink()
    pool = DaemonPool("yiem-test-tool")
    follow_ups = Queue("and?")
    steps = run_loop(
        (),
        AgentContext("", [UserMessage("q"), AssistantMessage("a")]),
        AgentLoopConfig(get_follow_up_messages=follow_ups),
        AbortSignal(),
        LoopPorts(stream_fn=ScriptedModel(["fine"]), emit=sink, pool=pool),
    )
    finish(steps, pool.start, signal=AbortSignal(), grace_s=1.0)

    assert [event.message.text for event in sink.of(MessageEndEvent)] == ["and?", "fine"]


def test_a_context_with_the_same_tools_leaves_them_live():
    """A compacted history alone does not end the life of a store."""
    store = ToolStore()
    register_tool(store, tool("live"))
    model = ScriptedModel([calls(call("live")), "fine"])

    def compact(turn, _signal):
        register_tool(store, tool("new"))
        return NextTurn(context=AgentContext("", [UserMessage("short")], turn.context.tools))

    def change(turn, signal):
        return compact(turn, signal) if turn.tool_results else None

    loop(model, live_tools=store.snapshot, prepare_next_turn=change)

    assert [list(request.tools) for request in model.requests] == [["live"], ["live", "new"]]


# -- made answers --


def test_a_made_answer_says_why_and_whose_model():
    """It has the last answer's names, no content and no usage."""
    last = AssistantMessage("x", "api", "provider", "model", LlmUsage(1, 1))
    made = made_answer("error", "broken", last)

    assert (made.api, made.provider, made.model) == ("api", "provider", "model")
    assert (made.content, made.usage, made.error_message) == ((), None, "broken")
    assert made_answer("aborted", "x").model == ""


def test_a_terminated_answer_leaves_images_out():
    """Only the texts of the results are in it, in call order."""
    image = ImageContent("aGk=", "image/png")
    results = [
        ToolResultMessage("a", "t", (TextContent("one"), image)),
        ToolResultMessage("b", "t", "two"),
    ]
    made = terminated_answer(AssistantMessage(), results)

    assert [block.text for block in made.content] == ["Tool execution completed.", "one", "two"]
    assert made.error_message is None


def test_the_abort_names_the_model_that_answered_last():
    """A run aborted between tools has an answer of the model it spoke to."""
    answer = AssistantMessage((call("work"),), model="m", stop_reason="tool_use")
    signal = AbortSignal()
    done = run([answer], tool(function=lambda *_: signal.abort()), signal=signal)

    assert (done.answer.stop_reason, done.answer.model) == ("aborted", "m")


# -- every script --


class OwnError(BaseException):
    """What no `except Exception` sees."""


def stopping(*_):
    return AgentToolResult("stop", terminate=True)


def updating(_id, _args, _signal, update):
    for step in range(3):
        update(step)


def aborting_on(signal):
    return lambda *_: signal.abort("by a tool")


NAMES = ["good", "quick", "raises", "exits", "updates", "stops", "aborts", "unknown", "strict"]
SCRIPTS = st.lists(
    st.one_of(
        st.tuples(
            st.just("calls"),
            st.lists(st.sampled_from(NAMES), min_size=1, max_size=4),
            st.booleans(),
        ),
        st.tuples(
            st.sampled_from(
                ["text", "empty", "failed", "raise", "exit", "garbage", "cut", "truncated", "abort"]
            )
        ),
    ),
    max_size=5,
)
HOOKS = st.fixed_dictionaries(
    {},
    optional={
        "before_tool_call": st.sampled_from(["none", "block", "stop", "raise", "abort"]),
        "after_tool_call": st.sampled_from(["none", "mask", "stop", "raise", "abort"]),
        "prepare_next_turn": st.sampled_from(["none", "raise", "abort"]),
        "should_stop_after_turn": st.sampled_from(["none", "stop", "raise", "abort"]),
    },
)


def scripted(step, signal):
    """Give what the model answers in a step of a random script."""
    match step:
        case ("calls", names, whole):
            ids = "same" if not whole else ""
            return calls(*(call(name, {"n": "1"}, ids) for name in names))
        case ("text",):
            return "fine"
        case ("empty",):
            return AssistantMessage()
        case ("failed",):
            return AssistantMessage((call("good"),), stop_reason="error", error_message="lost")
        case ("raise",):
            return ValueError("broken")
        case ("exit",):
            return exiting
        case ("garbage",):
            return [StartEvent(), TextStartEvent(0), "garbage"]
        case ("cut",):
            return [StartEvent()]
        case ("truncated",):
            return [DoneEvent(AssistantMessage((call("good"),), stop_reason="length"))]
        case _:

            def abort(_context, _signal):
                signal.abort("by the model")
                return "too late"

            return abort


def exiting(_context, _signal):
    raise SystemExit(5)


def hook(kind, signal):
    """Give a hook of a random script."""

    def function(*_):
        match kind:
            case "raise":
                raise OwnError("hook")
            case "abort":
                signal.abort("by a hook")
            case "block":
                return {"block": True, "terminate": True}
            case "stop":
                return {"terminate": True}
            case "mask":
                return {"content": "masked"}
        return None

    if kind == "stop":
        return lambda *given: function() if len(given) == 2 and hasattr(given[0], "args") else True
    return function


@settings(max_examples=150)
@given(
    script=SCRIPTS,
    hooks=HOOKS,
    mode=st.sampled_from(["parallel", "sequential", "barrier"]),
    steering=st.lists(st.booleans(), max_size=4),
)
def test_every_script_keeps_the_grammar_and_the_pairing(script, hooks, mode, steering):
    """Whatever models, tools and hooks do, the events keep the grammar and every call has its result."""
    signal = AbortSignal()
    coming = iter(steering)
    schema = {"type": "object", "properties": {"n": {"type": "boolean"}}}
    tools = [
        parallel("good"),
        parallel("quick", timeout_s=5.0),
        parallel("raises", raising(OwnError("tool"))),
        tool("exits", raising(SystemExit(1))),
        parallel("updates", updating),
        parallel("stops", stopping),
        parallel("aborts", aborting_on(signal)),
        parallel("strict", input_schema=schema),
    ]
    done = run(
        ScriptedModel([scripted(step, signal) for step in script], default="at last"),
        *tools,
        signal=signal,
        tool_execution=mode,
        max_turns=8,
        get_steering_messages=lambda: [UserMessage("steer")] if next(coming, False) else [],
        **{name: hook(kind, signal) for name, kind in hooks.items()},
    )
    complaints = [text for text in check(done.messages) if "is left out" not in text]
    asked = [id_ for m in done.messages if m.role == "assistant" for id_ in ids(m)]
    answered = [m.tool_call_id for m in done.messages if m.role == "toolResult"]

    assert answered == asked
    assert [text for text in complaints if "answers no call" not in text] == []
    assert check(repair(done.messages)) == []
    assert done.messages[0].text == "hi"
    assert done.answer.stop_reason in {
        "stop",
        "length",
        "tool_use",
        "error",
        "aborted",
        "tool_use_terminated",
    }


def ids(message):
    """The ids of the calls of a message."""
    return [one.id for one in message.tool_calls]


def test_a_sink_sees_the_model_at_work():
    """The model is asked only when the sinks were told of all that came before."""
    with Hold() as hold:
        told = []
        model = ScriptedModel([lambda *_: hold() or "fine"])
        runner = threading.Thread(target=lambda: run(model, sinks=told.append))
        runner.start()
        hold.wait()
        names = [type(event).__name__ for event in told]
    runner.join(WAIT_S)

    assert names == ["AgentStartEvent", "TurnStartEvent", "MessageStartEvent", "MessageEndEvent"]
