"""AgentCore's door: a run as a stream of events, or with an event sink."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import gc
import signal as process_signal
import subprocess
import sys
import threading
import weakref

import pytest

from tests.support.loops import WAIT_S, Hold, finish, raising, run, start, tool
from yiemagent.abort import AbortSignal
from yiemagent.config import AgentLoopConfig
from yiemagent.context import AgentContext
from yiemagent.errors import AgentStateError, ConfigurationError, ResponseTimeout
from yiemagent.event_stream import EventStream, agent_loop, agent_loop_continue, run_agent_loop
from yiemagent.events import AgentEndEvent, MessageStartEvent, SinkFailedEvent, TurnStartEvent
from yiemagent.messages import AssistantMessage, ToolResultMessage, UserMessage
from yiemagent.streaming import StartEvent
from yiemagent.testing import (
    RecordingSink,
    ScriptedModel,
    call,
    calls,
    check_event_order,
    failure,
)


def go_on(history, answers=("fine",), **config):
    """Continue a history; gives the stream."""
    return agent_loop_continue(
        AgentContext("", history), AgentLoopConfig(**config), stream_fn=ScriptedModel(answers)
    )


def heeding(_context, signal):
    """A scripted answer that comes when the run is aborted."""
    assert signal.wait(WAIT_S)
    return "late"


# -- the stream --


def test_a_stream_gives_the_events_of_its_run():
    """Iterating gives every event and ends; then result and answer are there."""
    stream = start([calls(call("work")), "fine"], tool())
    assert isinstance(stream, EventStream)
    events = list(stream)

    check_event_order(events)
    assert stream.answer.text == "fine"
    assert [message.role for message in stream.result(WAIT_S)] == [
        "user",
        "assistant",
        "toolResult",
        "assistant",
    ]


def test_a_result_needs_no_reader():
    """The run goes on without being read, and its events are still there afterwards."""
    stream = start(["fine"])

    assert stream.result(WAIT_S)[-1].text == "fine"
    check_event_order(list(stream))


def test_a_stream_that_was_read_is_empty():
    """Iterating again ends at once."""
    stream = start(["fine"])

    assert len(list(stream)) > 0
    assert list(stream) == []
    assert list(stream) == []


def test_break_alone_changes_nothing():
    """A reader that stops reading can go on later, and the run ends by itself."""
    stream = start(["fine"])
    seen = []
    for event in stream:
        seen.append(event)
        if isinstance(event, TurnStartEvent):
            break
    seen.extend(stream)

    check_event_order(seen)
    assert stream.answer.text == "fine"


def test_closing_a_stream_aborts_its_run():
    """`close` sets the signal; the events up to the end can still be read."""
    stream = start([heeding, "never"])
    stream.close()
    done = finish(stream)

    assert done.answer.stop_reason == "aborted"
    assert done.history[0] == ("user", "hi")
    stream.close()


def test_leaving_a_with_block_aborts_the_run():
    """A `with` ends the run, whatever it is left by."""
    with pytest.raises(KeyError), start([heeding, "never"]) as stream:
        raise KeyError
    assert finish(stream).answer.stop_reason == "aborted"

    with start(["fine"]) as stream:
        done = finish(stream)
    assert done.answer.text == "fine"


def test_dropping_a_stream_aborts_its_run():
    """A stream that nobody holds any more ends its run."""
    stream = start([heeding])
    signal = stream._run.signal
    iterator = iter(stream)
    next(iterator)
    assert not signal.aborted
    del stream, iterator
    gc.collect()

    assert signal.wait(WAIT_S)
    assert signal.reason == "the event stream was dropped"


def test_breaking_out_of_a_loop_over_a_fresh_stream_drops_it():
    """`for event in agent_loop(...)` left by break leaves nobody who could go on."""
    aborted = threading.Event()

    def stream(_context, _options, signal):
        yield StartEvent()
        signal.wait(WAIT_S)
        aborted.set()

    for event in start(stream):
        if isinstance(event, MessageStartEvent) and event.message.role == "assistant":
            break
    gc.collect()

    assert aborted.wait(WAIT_S)


def test_a_finished_run_is_let_go():
    """Nothing of the library keeps a run, its stream or its messages once they are over."""
    stream = start([calls(call("work")), "fine"], tool())
    finish(stream)
    kept = weakref.ref(stream._run)
    stream._run.join(WAIT_S)
    del stream
    gc.collect()

    assert kept() is None


def test_a_result_may_time_out():
    """A run that is not over in time goes on, and its result comes later."""
    with Hold() as hold:
        stream = start([lambda *_: hold() or "fine"])
        hold.wait()
        with pytest.raises(ResponseTimeout):
            stream.result(0.01)
        with pytest.raises(TimeoutError):
            stream.result(0)
        assert stream.answer is None

    assert stream.result(WAIT_S)[-1].text == "fine"


@pytest.mark.parametrize(
    "hook",
    [
        "transform_context",
        "convert_to_llm",
        "prepare_next_turn",
        "should_stop_after_turn",
        "get_steering_messages",
        "get_follow_up_messages",
    ],
)
@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(2)], ids=repr)
def test_whatever_a_hook_raises_ends_the_stream(hook, error):
    """A stream always ends, with an error answer and the messages so far."""
    done = finish(start(["fine"], **{hook: raising(error)}))

    assert done.answer.error_message == f"{type(error).__name__}: {error}"
    assert done.history[0] == ("user", "hi")


@pytest.mark.parametrize("answer", [failure("lost"), ConnectionError("lost")])
def test_after_an_error_the_result_is_what_came_before(answer):
    """The new messages of a failed run, the failed answer included, are its result."""
    stream = start([calls(call("work")), answer], tool())

    assert [message.role for message in stream.result(WAIT_S)] == [
        "user",
        "assistant",
        "toolResult",
        "assistant",
    ]


def test_many_streams_run_side_by_side():
    """Each run has threads of its own, and none is left."""
    barrier = threading.Barrier(20)

    def answer(_context, _signal):
        barrier.wait(WAIT_S)
        return calls(call("work"))

    streams = [start([answer, str(number)], tool()) for number in range(20)]

    assert [finish(stream).answer.text for stream in streams] == [str(n) for n in range(20)]


# -- what it takes --


def test_a_string_or_one_message_stands_for_a_list():
    """Prompts may be a text, a dict, one message, or several of them."""
    given = [
        "hi",
        UserMessage("hi"),
        {"role": "user", "content": "hi"},
        ["hi"],
        (UserMessage("hi"),),
    ]

    for prompts in given:
        done = finish(start(["fine"], prompts=prompts))
        assert done.history == [("user", "hi"), ("assistant", "fine")]


def test_a_plain_call_and_a_model_string_are_taken_too():
    """`stream_fn` is whatever an agent takes as `llm_call`."""
    done = run(lambda request: f"{len(request['messages'])} messages")

    assert done.answer.text == "1 messages"
    with pytest.raises(ConfigurationError):
        agent_loop("hi", AgentContext(), AgentLoopConfig(), stream_fn="nobody:model")


@pytest.mark.parametrize("door", [agent_loop, functools.partial(run_agent_loop, emit=print)])
@pytest.mark.parametrize(
    "wrong",
    [{"context": "You help."}, {"config": None}, {"config": {}}, {"signal": threading.Event()}],
)
def test_an_argument_of_the_wrong_kind_is_refused(door, wrong):
    """What can't work is refused in the caller's thread, by its name."""
    given = {"context": AgentContext(), "config": AgentLoopConfig(), **wrong}
    with pytest.raises(ConfigurationError, match=f"{next(iter(wrong))} must be an "):
        door("hi", **given, stream_fn=ScriptedModel(["fine"]))


async def later(_event):
    """Is no plain function."""


@pytest.mark.parametrize("emit", [None, later, lambda: None])
def test_a_sink_is_a_plain_function(emit):
    """What can't be told of events is refused before anything runs."""
    with pytest.raises(ConfigurationError, match=r"emit (must be a|is a coroutine) function"):
        run_agent_loop(
            "hi", AgentContext(), AgentLoopConfig(), emit, stream_fn=ScriptedModel(["fine"])
        )


def test_a_result_may_be_waited_for_without_end():
    """An infinite time limit is none."""
    stream = agent_loop("hi", AgentContext(), AgentLoopConfig(), stream_fn=ScriptedModel(["fine"]))

    assert [message.text for message in stream.result(float("inf"))] == ["hi", "fine"]


@pytest.mark.parametrize(
    ("limit", "error"), [("5", TypeError), (False, TypeError), (-1, ValueError)]
)
def test_what_is_no_timeout_is_refused(limit, error):
    """A limit that is no number of seconds is named, and the run goes on."""
    stream = agent_loop(
        "hi", AgentContext(""), AgentLoopConfig(), stream_fn=ScriptedModel(["fine"])
    )
    with pytest.raises(error, match=r"timeout_s must be a number of seconds, 0 or more"):
        stream.result(limit)

    assert stream.result(WAIT_S)[-1].text == "fine"


def test_the_callers_context_is_not_changed():
    """A run adds to a history of its own, however it ends."""
    context = AgentContext("be brief", [UserMessage("a"), AssistantMessage("b")])
    before = tuple(context.messages)
    stream = agent_loop("hi", context, AgentLoopConfig(), stream_fn=ScriptedModel(["fine"]))

    assert len(stream.result(WAIT_S)) == 2
    assert tuple(context.messages) == before


def test_the_callers_signal_aborts_the_run():
    """A given signal ends the run; closing the stream does not set it, and a finished run lets go of it."""
    signal = AbortSignal()
    config = AgentLoopConfig()
    stream = agent_loop(
        "hi", AgentContext(), config, stream_fn=ScriptedModel([heeding]), signal=signal
    )
    stream.close()
    finish(stream)
    assert not signal.aborted
    assert signal._callbacks == {}

    stream = agent_loop(
        "hi", AgentContext(), config, stream_fn=ScriptedModel([heeding]), signal=signal
    )
    signal.abort("from outside")
    assert finish(stream).answer.stop_reason == "aborted"


# -- going on --


@pytest.mark.parametrize(
    "last",
    [
        [UserMessage("q")],
        [calls(call("work", call_id="c")), ToolResultMessage("c", "work", "done")],
        [failure("lost")],
        [failure("gone", "aborted")],
    ],
    ids=["question", "result", "error", "abort"],
)
def test_a_history_goes_on_as_it_is(last):
    """A question, a result, a failure or an abort is answered; only what is new is the result."""
    history = [UserMessage("first"), *last]
    done = finish(go_on(history))

    assert done.history == [("assistant", "fine")]


def test_there_must_be_something_to_go_on_from():
    """An empty history, or one that is answered, is refused at once in the caller's thread."""
    with pytest.raises(AgentStateError, match="empty"):
        go_on([])
    with pytest.raises(AgentStateError, match="assistant's"):
        go_on([UserMessage("q"), AssistantMessage("a")])
    with pytest.raises(AgentStateError, match="assistant's"):
        go_on(
            [UserMessage("q"), AssistantMessage("a")],
            get_steering_messages=list,
            get_follow_up_messages=tuple,
        )
    with pytest.raises(AgentStateError, match="empty"):
        run([], prompts=())
    with pytest.raises(AgentStateError, match="empty"):
        start([], prompts=())


@pytest.mark.parametrize("queue", ["get_steering_messages", "get_follow_up_messages"])
def test_an_answered_history_goes_on_with_what_is_queued(queue):
    """Steering or follow-ups that wait begin the run, once."""
    waiting = [UserMessage("and?")]

    def take():
        taken, waiting[:] = tuple(waiting), []
        return taken

    done = finish(go_on([UserMessage("q"), AssistantMessage("a")], **{queue: take}))

    assert done.history == [("user", "and?"), ("assistant", "fine")]


def test_follow_ups_wait_where_the_history_itself_goes_on():
    """After a failed answer the run asks first, and takes follow-ups in when it would stop."""
    waiting = [UserMessage("later")]

    def take():
        taken, waiting[:] = tuple(waiting), []
        return taken

    done = finish(
        go_on([UserMessage("q"), failure("lost")], ["one", "two"], get_follow_up_messages=take)
    )

    assert done.history == [("assistant", "one"), ("user", "later"), ("assistant", "two")]


# -- the sink --


def test_a_run_with_a_sink_gives_its_messages():
    """`run_agent_loop` blocks until the last event was told, and gives what is new."""
    sink = RecordingSink()
    messages = run_agent_loop(
        "hi", AgentContext(), AgentLoopConfig(), sink, stream_fn=ScriptedModel(["fine"])
    )

    check_event_order(sink.events)
    assert isinstance(sink.events[-1], AgentEndEvent)
    assert [message.text for message in messages] == ["hi", "fine"]


def test_without_prompts_a_run_with_a_sink_goes_on():
    """No prompts continue the history."""
    done = run(["fine"], prompts=(), history=[UserMessage("q")])

    assert done.history == [("assistant", "fine")]


def test_a_sink_that_raises_changes_no_run():
    """The caller gets its messages, not the sink's exception."""
    messages = run_agent_loop(
        "hi",
        AgentContext(),
        AgentLoopConfig(),
        raising(SystemExit(4)),
        stream_fn=ScriptedModel(["fine"]),
    )

    assert [message.text for message in messages] == ["hi", "fine"]


def test_a_stream_has_nobody_to_fail():
    """The stream's own buffer raises nothing, so there is no notice."""
    assert finish(start(["fine"])).of(SinkFailedEvent) == []


def test_the_sink_runs_before_the_run_goes_on():
    """A barrier: the tool starts after the sink was told of its call."""
    order = []

    def emit(event):
        order.append(type(event).__name__)

    run_agent_loop(
        "hi",
        AgentContext("", (), [tool(function=lambda *_: order.append("tool"))]),
        AgentLoopConfig(),
        emit,
        stream_fn=ScriptedModel([calls(call("work")), "fine"]),
    )
    at = order.index("tool")

    assert (order[at - 1], order[at + 1]) == ("ToolExecStartEvent", "ToolExecEndEvent")


def test_context_variables_of_the_caller_are_seen():
    """A run, its hooks and sinks run in a copy of the caller's context."""
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("callers")
    seen = []

    def look(*_):
        seen.append(variable.get())
        variable.set("runs")

    run(["fine"], transform_context=lambda messages, _: (look(), messages)[1])

    assert (seen, variable.get()) == (["callers"], "callers")


def test_a_loop_works_inside_a_running_event_loop():
    """The library is synchronous and minds no asyncio around it."""

    async def view():
        return run(["fine"]).answer.text

    assert asyncio.run(view()) == "fine"


def test_an_interrupted_caller_leaves_an_aborted_run():
    """An exception that comes while waiting is the caller's, and the run is aborted."""
    told = []

    def answer(_context, signal):
        # Again where it came just before the wait began, and so was not seen.
        for _ in range(20):
            process_signal.pthread_kill(threading.main_thread().ident, process_signal.SIGINT)
            if signal.wait(1.0):
                break
        told.append(signal.reason)
        return "late"

    sink = RecordingSink()
    with pytest.raises(KeyboardInterrupt):
        run_agent_loop(
            "hi", AgentContext(), AgentLoopConfig(), sink, stream_fn=ScriptedModel([answer])
        )
    end = sink.wait_for(AgentEndEvent, WAIT_S)

    assert (told, end.answer.stop_reason) == (["interrupted"], "aborted")
    check_event_order(sink.events)


INTERRUPT = """
import sys, threading
from yiemagent.config import AgentLoopConfig
from yiemagent.context import AgentContext
from yiemagent.event_stream import run_agent_loop
from yiemagent.testing import ScriptedModel

def model(_context, signal):
    print("asked", flush=True)
    signal.wait(20)
    print("aborted:", signal.reason, flush=True)
    return "late"

try:
    run_agent_loop("hi", AgentContext(), AgentLoopConfig(), lambda event: None,
                   stream_fn=ScriptedModel([model]))
except KeyboardInterrupt:
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(20)
    print("interrupted", flush=True)
"""


def test_a_keyboard_interrupt_aborts_the_run_that_is_waited_for():
    """Ctrl-C leaves `run_agent_loop` as KeyboardInterrupt, and its run is aborted."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", INTERRUPT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout.readline() == "asked\n"
        while True:  # again where it came just before the wait began, and so was not seen
            process.send_signal(process_signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                told, complaints = process.communicate(timeout=5)
                break

    assert (process.returncode, complaints) == (0, "")
    assert told.splitlines() == ["aborted: interrupted", "interrupted"]
