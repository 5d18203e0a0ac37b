"""One run on its thread: ordered events for every sink, abort, and an end that comes exactly once."""

from __future__ import annotations

import contextvars
import itertools
import logging
import math
import pathlib
import queue
import subprocess
import sys
import threading
import time

import pytest

from tests.support.loops import WAIT_S, Hold, parallel, quickest, raising, tool
from yiemagent.abort import AbortSignal
from yiemagent.config import AgentLoopConfig
from yiemagent.context import AgentContext
from yiemagent.errors import SessionError, error_text
from yiemagent.events import (
    AgentEndEvent,
    AgentStartEvent,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    SinkFailedEvent,
    ToolExecEndEvent,
    ToolExecStartEvent,
    ToolExecUpdateEvent,
    TurnEndEvent,
    TurnStartEvent,
)
from yiemagent.llm import adapt_llm_call
from yiemagent.loop import LoopPorts, run_loop
from yiemagent.messages import AssistantMessage, UserMessage
from yiemagent.pool import DaemonPool
from yiemagent.run import Run
from yiemagent.state import AgentState, reduce
from yiemagent.streaming import DoneEvent, StartEvent, TextDeltaEvent, TextStartEvent
from yiemagent.testing import RecordingSink, ScriptedModel, call, calls, check_event_order

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROMPT = UserMessage("hi")
# How long an aborted run may take beyond the grace, on a busy machine.
SLACK_S = 2.0


def make(answers=("fine",), *tools, sinks=(), signal=None, grace_s=0.1, config=None, **options):
    """Make a run of the loop, as an agent does, and start it."""
    model = answers if callable(answers) else ScriptedModel(answers)
    settings = AgentLoopConfig(**{"abort_grace_s": grace_s, **(config or {})})
    pool = DaemonPool("yiem-test-tool")

    def work(run):
        ports = LoopPorts(stream_fn=model, emit=run.emit, pool=pool, begin_call=run.begin_call)
        return run_loop([PROMPT], AgentContext("", (), tools), settings, run.signal, ports)

    done = options.pop("on_done", lambda: None)

    def on_done():
        pool.shutdown(wait=False)
        done()

    run = Run(
        options.pop("work", work),
        name="yiem-test-run",
        state=options.pop("state", AgentState(tools=tools)),
        prompts=(PROMPT,),
        sinks=sinks,
        signal=signal,
        grace_s=grace_s,
        on_done=on_done,
        **options,
    )
    run.start()
    return run


def end(run):
    """Wait for a run, its thread included, and give its answer."""
    assert run.wait(WAIT_S)
    run.join(WAIT_S)
    return run.answer


class Failing:
    """A sink that raises at events of a kind, and keeps what it is told."""

    def __init__(self, error, kind=object):
        self.error = error
        self.kind = kind
        self.events = []

    def __call__(self, event):
        self.events.append(event)
        if isinstance(event, self.kind):
            raise self.error


class At:
    """A sink that calls a function at the first event of a kind."""

    def __init__(self, kind, function):
        self.kind = kind
        self.function = function
        self.events = []

    def __call__(self, event):
        first = isinstance(event, self.kind) and not any(
            isinstance(e, self.kind) for e in self.events
        )
        self.events.append(event)
        if first:
            self.function()


class OwnError(BaseException):
    """What no `except Exception` sees."""


class Wordless(Exception):
    """An exception that can't say what it is."""

    def __str__(self):
        raise ValueError("no words")


# -- a run --


def test_a_run_is_told_in_order_and_folded():
    """Events are numbered from 1, of one run, and state and new messages are their fold."""
    sink = RecordingSink()
    run = make([calls(call("work")), "fine"], tool(), sinks=[sink])

    assert end(run).text == "fine"
    check_event_order(sink.events)
    assert {event.run_id for event in sink.events} == {run.id}
    assert all(abs(event.timestamp.timestamp() - time.time()) < 60 for event in sink.events)
    assert tuple(run.state.messages) == run.new_messages == tuple(sink.events[-1].messages)
    assert (run.state.active_run, run.dropped, run.done) == (False, 0, True)


def test_all_sinks_are_told_of_each_event_in_turn():
    """One event at a time: the second sink hears of it before the first hears of the next."""
    told = []
    run = make(
        sinks=[lambda e: told.append(("a", e.sequence)), lambda e: told.append(("b", e.sequence))]
    )
    end(run)

    numbers = range(1, len(told) // 2 + 1)
    assert told == [pair for number in numbers for pair in (("a", number), ("b", number))]


def test_the_gate_is_closed_before_the_end_is_told():
    """What arrives when AgentEnd is told belongs to the next run; the owner is told when all is over."""
    order = []
    run = make(
        sinks=[lambda e: order.append("end") if isinstance(e, AgentEndEvent) else None],
        close_gate=lambda: order.append("closed"),
        on_done=lambda: order.append("done"),
    )
    end(run)

    assert order == ["closed", "end", "done"]


def test_the_owner_knows_a_message_before_the_sinks_do():
    """Each message that enters the history is told to the run's owner first, and once."""
    told = []
    run = make(
        sinks=[lambda e: told.append(e.message) if isinstance(e, MessageEndEvent) else None],
        on_message=told.append,
    )
    end(run)

    assert told == [message for message in run.new_messages for _ in range(2)]


@pytest.mark.parametrize("sinks", [True, False], ids=["with a sink", "without"])
def test_the_state_is_a_fold_over_the_events(sinks):
    """Whenever it is read, the state is what `reduce` makes of the events so far, and the same until one comes."""
    states, events, made = [], [], threading.Event()

    def sink(event):
        made.wait(WAIT_S)
        events.append(event)
        states.append((run.state, run.state))

    first = AgentState("be brief", error_message="of the run before")
    run = make([calls(call("work")), "fine"], tool(), sinks=[sink] if sinks else [], state=first)
    made.set()
    end(run)

    folded = first
    for event, (state, again) in zip(events, states, strict=True):
        folded = reduce(folded, event)
        assert state is again
        assert state == folded
    assert tuple(run.state.messages) == run.new_messages
    assert (run.state.active_run, run.state.error_message) == (False, None)


def test_context_variables_of_the_starter_are_seen_everywhere():
    """Model, tools, hooks and sinks run in a copy of the context that the run was given."""
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("starters")
    context = contextvars.copy_context()
    variable.set("changed")
    seen = set()

    def look(*_):
        seen.add((variable.get(), threading.current_thread().name))

    def answer(*_):
        look()
        return calls(call("work"))

    run = make(
        [answer, "fine"],
        tool(function=lambda _i, _a, _s, update: (look(), update("half"))),
        sinks=[look],
        context=context,
        config={"before_tool_call": look, "after_tool_call": look},
    )
    end(run)

    assert {value for value, _ in seen} == {"starters"}
    assert {thread for _, thread in seen} == {"yiem-test-run"}


@pytest.mark.parametrize(
    "error", [ValueError("broken"), SystemExit(1), KeyboardInterrupt(), OwnError("own")], ids=repr
)
def test_whatever_the_work_raises_is_an_answer(error, caplog):
    """A bug ends the run with an error answer, a traceback in the log, and a whole grammar."""
    sink = RecordingSink()
    run = make(work=raising(error), sinks=[sink])

    assert end(run).stop_reason == "error"
    assert run.answer.error_message.startswith(type(error).__name__)
    check_event_order(sink.events)
    assert run.new_messages == (PROMPT,)
    assert "Traceback" in caplog.text


def test_an_exception_without_words_is_an_answer_too():
    """An exception whose `str` raises is named by its class."""
    run = make(work=raising(Wordless()))

    assert end(run).error_message == "Wordless"


NO_THREADS = """
import threading
from yiemagent.messages import UserMessage
from yiemagent.run import Run
from yiemagent.state import AgentState
from yiemagent.testing import RecordingSink, check_event_order

def start(*_, **__):
    raise RuntimeError("can't start new thread")

threading._start_new_thread = threading._start_joinable_thread = start  # before and from 3.13 on
sink = RecordingSink()
run = Run(None, name="x", state=AgentState(), prompts=(UserMessage("hi"),), sinks=[sink])
run.start()
check_event_order(sink.events)
print(run.done, run.signal.aborted, run.answer.error_message, run.wait(0), flush=True)
run.join(0)
"""


def test_a_run_that_gets_no_thread_is_an_aborted_answer():
    """Where no thread can be started the run is over at once, in the caller's thread, with its grammar."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", NO_THREADS],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=WAIT_S,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("True True no thread could be started True\n", "")


NO_MORE_THREADS = """
import sys, threading
from tests.support.loops import WAIT_S, Hold, tool
from tests.test_run import make
from yiemagent.events import TurnStartEvent
from yiemagent.testing import call, calls

def start(*_, **__):
    raise RuntimeError("can't start new thread")

def sink(event):
    if isinstance(event, TurnStartEvent):
        threading._start_new_thread = threading._start_joinable_thread = start  # before and from 3.13 on

script = [calls(call("work")), "fine"]
"""
UNWATCHED = f"""{NO_MORE_THREADS}
run = make(script, tool(timeout_s=0.2), sinks=[sink])
print(run.wait(WAIT_S), run.answer.text, run.new_messages[2].text, flush=True)
run.join(WAIT_S)
"""


def test_a_time_limit_that_nobody_can_keep_is_said():
    """Where no thread can be had to look after a call, the log says so, and the run goes on."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", UNWATCHED],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=WAIT_S,
        check=False,
    )

    assert done.stdout == "True fine work done\n"
    assert "no thread to keep the time limits of calls" in done.stderr


def test_a_run_that_gets_no_successor_gets_one_later(monkeypatch, caplog):
    """A call stays where it is until there is a thread to go on with its run."""
    now = time.monotonic()

    def start(_self):
        raise RuntimeError("can't start new thread")

    with Hold() as hold:
        run = make([calls(call("work")), "fine"], tool(function=hold, timeout_s=500))
        hold.wait()
        assert 400 < run.look(now) - now < 600
        with monkeypatch.context() as patched:
            patched.setattr("yiemagent.run.DaemonThread.start", start)
            assert run.look(now + 600) == now + 601
        assert "no thread to go on with yiem-test-run" in caplog.text
        assert not run.done
        assert run.look(now + 601) == math.inf
        assert end_without_thread(run).text == "fine"

    assert run.new_messages[2].is_error


def test_an_abort_that_gets_no_settler_gets_one_later(monkeypatch, caplog):
    """A run that user code holds is settled as soon as there is a thread to do it."""

    def start(_self):
        raise RuntimeError("can't start new thread")

    with Hold() as hold:
        run = make(stuck_model(hold), grace_s=0.0)
        hold.wait()
        with monkeypatch.context() as patched:
            patched.setattr("yiemagent.daemon.DaemonThread.start", start)
            run.signal.abort()
            assert run.look(time.monotonic() + 9) < math.inf
        assert "no thread to settle yiem-test-run" in caplog.text
        assert not run.done
        run.look(time.monotonic() + 9)
        assert end_without_thread(run).stop_reason == "aborted"


def test_a_disk_that_hangs_is_waited_for_by_one_settler():
    """However long an event is being written, no more threads come to wait for that."""
    writing = threading.Event()
    with Hold() as disk:

        def record(event):
            if isinstance(event, MessageEndEvent) and not writing.is_set():
                writing.set()
                disk()

        run = make(record=record, grace_s=0.0)
        disk.wait()
        claim, claims = run._telling.claim, queue.Queue()

        def claimed(*args, **options):
            claims.put(threading.current_thread())
            return claim(*args, **options)

        run._telling.claim = claimed
        run.signal.abort()
        claims.get(timeout=WAIT_S)
        with pytest.raises(queue.Empty):
            claims.get(timeout=0.3)  # in which several more would have come
    end(run)


def test_a_run_that_is_over_is_looked_at_in_vain():
    """What its last call ended at is due no more."""
    run = make([calls(call("work")), "fine"], tool())
    end(run)

    assert run.look(time.monotonic() + 9e9) == math.inf


def test_whoever_ends_a_run_goes_on_in_its_place():
    """Of its own thread, its successors and its settlers, one alone ends it, whatever the moment."""
    for _ in range(30):
        with Hold() as sink_held, Hold() as hold:
            goes_on = queue.Queue()
            run = make(
                [calls(call("work")), "fine"],
                tool(function=hold, timeout_s=0.01),
                sinks=[At(TurnEndEvent, sink_held)],
                grace_s=0.0,
                on_done=lambda goes_on=goes_on: goes_on.put(threading.current_thread()),
            )
            sink_held.wait()  # on the successor's thread
            hold.let_go()
            run.signal.abort()
            sink_held.let_go()
            assert run.wait(WAIT_S)
            goes_on.get(timeout=WAIT_S)
        assert goes_on.empty()


# -- sinks that raise --


@pytest.mark.parametrize(
    "error",
    [ValueError("broken"), SystemExit(1), KeyboardInterrupt(), OwnError("own"), Wordless()],
    ids=lambda error: type(error).__name__,
)
def test_a_sink_that_raises_changes_nothing_and_is_told_of_once(error, caplog):
    """It hears all the same of everything, the others get one notice, and the log has one line."""
    failing, sink = Failing(error), RecordingSink()
    run = make([calls(call("work")), "fine"], tool(), sinks=[failing, sink])

    assert end(run).text == "fine"
    check_event_order(sink.events)
    [notice] = sink.of(SinkFailedEvent)
    assert type(error).__name__ in notice.message
    assert notice.details["sink"] == repr(failing)
    assert [e for e in sink.events if e is not notice] == failing.events
    assert caplog.text.count("raised\n") == 1


def test_every_sink_may_raise():
    """Two failing sinks are each told of the other, and the run is what it was."""
    one, two = Failing(ValueError("one")), Failing(ValueError("two"))
    run = make(sinks=[one, two])

    assert end(run).text == "fine"
    for failing, other in ((one, "two"), (two, "one")):
        [notice] = [event for event in failing.events if isinstance(event, SinkFailedEvent)]
        assert other in notice.message


def test_a_sink_that_raises_at_the_end_brings_no_event_behind_it():
    """AgentEnd is the last event, whatever a sink makes of it."""
    sink = RecordingSink()
    run = make(sinks=[Failing(ValueError(), AgentEndEvent), sink])
    end(run)

    check_event_order(sink.events)
    assert sink.of(SinkFailedEvent) == []


def test_a_sink_without_a_sound_repr_is_named_by_its_class():
    """A sink whose `repr` raises is told of all the same."""

    class Odd(Failing):
        def __repr__(self):
            raise ValueError

    sink = RecordingSink()
    run = make(sinks=[Odd(ValueError("broken")), sink])

    assert end(run).text == "fine"
    assert sink.of(SinkFailedEvent)[0].details["sink"] == "Odd"


def test_a_failing_sink_hears_of_the_end_of_an_aborted_run():
    """A sink that raised before gets everything that a settler still tells."""
    failing = Failing(ValueError("broken"), AgentStartEvent)
    with Hold() as hold:
        run = make([lambda *_: hold()], sinks=[failing])
        hold.wait()
        run.signal.abort()
        end_without_thread(run)

    assert isinstance(failing.events[-1], AgentEndEvent)


def end_without_thread(run):
    """Wait for a run whose thread is still held."""
    assert run.wait(WAIT_S)
    return run.answer


# -- sinks that are slow, abort, or call back --


def test_a_sink_may_abort_the_run():
    """An abort from a sink ends the run, with what came and all its ends."""
    sink, signal = RecordingSink(), AbortSignal()
    run = make(
        [calls(call("work")), "never"],
        tool(),
        sinks=[At(ToolExecStartEvent, lambda: signal.abort("by a sink")), sink],
        signal=signal,
    )

    assert end(run).error_message == "aborted: by a sink"
    check_event_order(sink.events)


@pytest.mark.parametrize(
    "kind, stop_reason",
    [
        (AgentStartEvent, "aborted"),
        (MessageStartEvent, "aborted"),
        (MessageUpdateEvent, "stop"),
        (TurnEndEvent, "stop"),
        (AgentEndEvent, "stop"),
    ],
)
def test_a_sink_may_abort_anywhere(kind, stop_reason):
    """Wherever a sink aborts, the run ends with a whole grammar; an answer that was whole stands."""
    sink, signal = RecordingSink(), AbortSignal()
    run = make(sinks=[At(kind, signal.abort), sink], signal=signal)

    assert end(run).stop_reason == stop_reason
    check_event_order(sink.events)


def test_an_update_that_a_sink_makes_a_tool_emit_comes_after_what_it_was_told():
    """A sink that calls a tool's callback brings no event into the middle of another."""
    callbacks = []
    called = threading.Event()
    sink = RecordingSink()

    def function(_id, _args, _signal, update):
        callbacks.append(update)
        update("first")
        called.wait(WAIT_S)

    def call_back():
        callbacks[0]("second")
        called.set()

    run = make(
        [calls(call("work")), "fine"],
        tool(function=function),
        sinks=[At(ToolExecUpdateEvent, call_back), sink],
    )
    end(run)

    check_event_order(sink.events)
    assert [event.partial_result for event in sink.of(ToolExecUpdateEvent)] == ["first", "second"]


def test_a_callback_of_an_abandoned_tool_harms_no_sink():
    """A sink that calls back for a call that was answered for is not heard, and the run goes on."""
    callbacks = []
    sink = RecordingSink()
    with Hold() as hold:

        def function(_id, _args, _signal, update):
            callbacks.append(update)
            hold()

        run = make(
            [calls(call("work")), "fine"],
            tool(function=function, timeout_s=0.05),
            sinks=[
                At(ToolExecEndEvent, lambda: callbacks[0]("late")),
                At(AgentEndEvent, lambda: callbacks[0]("later")),
                sink,
            ],
        )
        answer = end(run)

    assert answer.text == "fine"
    assert run.dropped == 2
    check_event_order(sink.events)


def test_a_slow_sink_slows_its_run_only():
    """A sink that holds an event holds the run, and the run goes on when it returns."""
    with Hold() as hold:
        other = make()
        run = make(sinks=[At(TurnStartEvent, hold)])
        hold.wait()

        assert end(other).text == "fine"
        assert not run.wait(0.05)
    assert end(run).text == "fine"


STUCK = [
    AgentStartEvent,
    TurnStartEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    MessageEndEvent,
    ToolExecStartEvent,
    ToolExecUpdateEvent,
    ToolExecEndEvent,
    TurnEndEvent,
    AgentEndEvent,
]


@pytest.mark.parametrize("kind", STUCK, ids=lambda kind: kind.__name__)
def test_a_sink_stuck_beyond_the_grace_is_left_behind(kind, caplog):
    """Wherever a sink hangs, an abort settles the run without it; the others get a complete grammar."""

    def function(_id, _args, _signal, update):
        update("half")
        return "done"

    answer = [
        StartEvent("m"),
        TextStartEvent(0),
        TextDeltaEvent(0, "so"),
        DoneEvent(calls(call("work"), call("work"), text="so")),
    ]
    before, behind = RecordingSink(), RecordingSink()
    with Hold() as hold:
        stuck = At(kind, hold)
        run = make(
            [answer, "fine"],
            parallel(function=function),
            sinks=[before, stuck, behind],
            grace_s=0.05,
        )
        hold.wait()
        begun = time.monotonic()
        run.signal.abort("enough")
        end_without_thread(run)
        took = time.monotonic() - begun
        told = len(stuck.events)
    end(run)

    check_event_order(before.events)
    check_event_order(behind.events)
    assert before.events == behind.events
    assert len(stuck.events) == told
    assert took < 0.1 + SLACK_S
    assert run.answer.stop_reason == ("stop" if kind is AgentEndEvent else "aborted")
    assert "is still busy and gets no more of this run" in caplog.text


def test_a_sink_stuck_while_the_run_settles_does_not_keep_it_from_its_end():
    """A run that failed by itself and hangs in a sink's End is ended by an abort, with its own answer."""
    closed = []
    sink = RecordingSink()
    with Hold() as hold:
        run = make(
            work=raising(ValueError("broken")),
            sinks=[At(TurnStartEvent, hold), sink],
            grace_s=0.05,
            close_gate=lambda: closed.append(1),
        )
        hold.wait()
        run.signal.abort()
        answer = end_without_thread(run)
    end(run)

    check_event_order(sink.events)
    assert answer.error_message == "ValueError: broken"
    assert closed == [1]


@pytest.mark.parametrize("kind", [MessageEndEvent, TurnEndEvent, AgentEndEvent])
def test_a_sink_that_holds_the_settler_is_left_behind_too(kind):
    """A settler that a sink gets hold of is itself settled without that sink."""
    sink = RecordingSink()
    with Hold() as model, Hold() as hold:

        def stuck(event):
            ends = isinstance(event, kind) and getattr(event, "message", None) is not PROMPT
            if ends:
                hold()

        run = make(stuck_model(model), sinks=[stuck, sink, stuck], grace_s=0.05)
        model.wait()
        run.signal.abort()
        answer = end_without_thread(run)
    end(run)

    check_event_order(sink.events)
    assert answer.stop_reason == "aborted"


def test_a_sink_that_is_not_busy_is_not_cut_off():
    """A tool that floods the run with updates until it is abandoned leaves every sink a whole grammar."""
    flooded = threading.Event()
    stop = threading.Event()
    sinks = [RecordingSink(), RecordingSink()]

    def flood(_id, _args, _signal, update):
        while not stop.is_set():
            update("more")
            flooded.set()

    run = make([calls(call("work"))], tool(function=flood), sinks=sinks, grace_s=0.05)
    assert flooded.wait(WAIT_S)
    run.signal.abort()
    end(run)
    stop.set()

    for sink in sinks:
        check_event_order(sink.events)
    assert sinks[0].events == sinks[1].events


# -- an abort against the run's own thread --


def stuck_model(hold):
    def stream(_context, _options, _signal):
        yield StartEvent("m")
        yield TextStartEvent(0)
        yield TextDeltaEvent(0, "half")
        hold()
        yield DoneEvent(AssistantMessage("too late"))

    return stream


def test_a_model_that_ignores_the_abort_is_left_behind():
    """The answer is settled from what came; what the thread gives later is dropped and counted."""
    sink = RecordingSink()
    with Hold() as hold:
        run = make(stuck_model(hold), sinks=[sink], grace_s=0.05)
        hold.wait()
        run.signal.abort("enough")
        answer = end_without_thread(run)
        told = len(sink.events)
    end(run)

    assert (answer.stop_reason, answer.error_message) == ("aborted", "aborted: enough")
    assert run.new_messages[-1].text == "half"
    assert run.new_messages[-1].stop_reason == "aborted"
    assert (len(sink.events), run.dropped) == (told, 1)
    check_event_order(sink.events)


def test_a_plain_llm_call_that_ignores_the_abort_is_left_behind():
    """So is a function of the request dict that never looks at a signal."""
    sink = RecordingSink()
    with Hold() as hold:
        run = make(adapt_llm_call(hold), sinks=[sink], grace_s=0.05)
        hold.wait()
        begun = time.monotonic()
        run.signal.abort()
        answer = end_without_thread(run)
        took = time.monotonic() - begun
    end(run)

    assert answer.stop_reason == "aborted"
    assert 0.05 <= took < 0.15 + SLACK_S
    check_event_order(sink.events)


HOOKS = [
    "before_tool_call",
    "prepare_next_turn",
    "should_stop_after_turn",
    "transform_context",
    "convert_to_llm",
    "get_steering_messages",
    "get_follow_up_messages",
]


@pytest.mark.parametrize("name", HOOKS)
def test_a_stuck_hook_is_left_behind(name):
    """A hook that ignores the abort ends no later than its grace, with a complete grammar."""
    sink = RecordingSink()
    script = ["fine"] if name == "get_follow_up_messages" else [calls(call("work")), "fine"]
    with Hold() as hold:
        run = make(script, tool(), sinks=[sink], grace_s=0.05, config={name: hold})
        hold.wait()
        run.signal.abort()
        answer = end_without_thread(run)
    end(run)

    assert answer.stop_reason == "aborted"
    check_event_order(sink.events)


def test_a_stuck_after_hook_is_left_behind_with_its_call():
    """`after_tool_call` runs on its call's thread, and is abandoned with it."""
    sink = RecordingSink()
    with Hold() as hold:
        run = make(
            [calls(call("work"), call("work"))],
            parallel(),
            sinks=[sink],
            grace_s=0.05,
            config={"after_tool_call": hold},
        )
        hold.wait()
        run.signal.abort()
        end_without_thread(run)
    end(run)

    check_event_order(sink.events)
    assert [e.is_error for e in sink.of(ToolExecEndEvent)] == [True, True]


def test_the_settler_keeps_results_that_were_told():
    """A call that ended before the run's thread got stuck keeps its result, the others are answered for."""
    sink = RecordingSink()
    with Hold() as hold:

        def stuck(event):
            if isinstance(event, ToolExecEndEvent):
                hold()

        run = make(
            [calls(call("work"), call("work"))],
            tool(),
            sinks=[sink, stuck],
            grace_s=0.05,
        )
        hold.wait()
        run.signal.abort()
        end_without_thread(run)
    end(run)

    check_event_order(sink.events)
    assert [e.message.text for e in sink.of(ToolExecEndEvent)] == ["work done", "Operation aborted"]


def test_the_answer_comes_without_the_grace_where_everybody_heeds_the_signal():
    """A run that listens is over long before its grace is."""
    run = make([lambda _context, signal: signal.wait(WAIT_S) and "late"], grace_s=3600.0)
    begun = time.monotonic()
    run.signal.abort()

    assert end(run).stop_reason == "aborted"
    assert time.monotonic() - begun < SLACK_S


@pytest.mark.parametrize("grace_s", [0.0, math.inf])
def test_a_grace_may_be_nothing_or_endless(grace_s):
    """Both ends of the range work for a run that heeds its signal."""
    run = make([lambda _context, signal: signal.wait(WAIT_S) and "late"], grace_s=grace_s)
    run.signal.abort()

    assert end(run).stop_reason == "aborted"


def test_an_abort_before_the_start_aborts_the_run():
    """A signal that is set already gives a run with nothing but its ends."""
    signal = AbortSignal()
    signal.abort("too early")
    sink = RecordingSink()
    run = make(signal=signal, sinks=[sink])

    assert end(run).error_message == "aborted: too early"
    check_event_order(sink.events)


def test_an_abort_after_the_end_changes_nothing():
    """A finished run starts no settler any more."""
    run = make()
    end(run)
    before = threading.active_count()
    run.signal.abort()

    assert threading.active_count() == before
    assert run.answer.text == "fine"


def test_aborts_race_with_the_end_and_one_of_them_wins():
    """Whenever the abort comes, there is one AgentEnd, one closing, one answer and a whole grammar."""
    for number in range(60):
        sink, closed = RecordingSink(), []
        reached = threading.Event()

        def reach(event, reached=reached, position=number % 14 + 1):
            if event.sequence == position:
                reached.set()

        run = make(
            [calls(call("work")), "fine"],
            tool(),
            sinks=[reach, sink],
            grace_s=0.0,
            close_gate=lambda closed=closed: closed.append(1),
        )
        reached.wait(0.2)
        run.signal.abort()
        end(run)

        check_event_order(sink.events)
        assert closed == [1]
        assert sink.events[-1].answer is run.answer


# -- the end of the interpreter --

EXIT = """
import sys, threading, time
from yiemagent.config import AgentLoopConfig
from yiemagent.context import AgentContext
from yiemagent.event_stream import agent_loop
from yiemagent.testing import ScriptedModel, call, calls
from yiemagent.tool import AgentTool

running = threading.Event()
told = []

def hang(*_):
    running.set()
    time.sleep(3600)

def before(*_):
    if sys.argv[1] == "hook":
        hang()

def model(*_):
    if sys.argv[1] == "model":
        hang()
    return calls(call("hang"))

tool = AgentTool("hang", description="hangs", execute=hang)
stream = agent_loop("hi", AgentContext("", (), [tool]), AgentLoopConfig(before_tool_call=before),
                    stream_fn=ScriptedModel([model]))
assert running.wait(20)
print("exits", flush=True)
"""


@pytest.mark.parametrize("where", ["tool", "hook", "model"])
def test_the_interpreter_exits_with_a_run_that_hangs(where):
    """A tool, hook or model in `time.sleep(3600)` keeps the interpreter for 1 s at most."""
    assert quickest(lambda: exit_time(where), 1.0) <= 1.0


def exit_time(where):
    """Run a program in which something hangs, and give the seconds from its last line to its end."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", EXIT, where],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with process:
        told = process.stdout.readline()
        begun = time.monotonic()
        _, complaints = process.communicate(timeout=WAIT_S)
        took = time.monotonic() - begun

    assert (told, process.returncode, complaints) == ("exits\n", 0, "")
    return took


GATE = """
import atexit, threading
from yiemagent.abort import AbortSignal
from yiemagent.messages import AssistantMessage
from yiemagent.events import AgentStartEvent, NoticeEvent
from yiemagent.run import Run
from yiemagent.state import AgentState

def late():
    print("told", len(told), "aborted", run.signal.aborted, "done", run.done, flush=True)

atexit.register(late)  # called after the library's hook, which was registered later
told = []
running = threading.Event()

def work(run):
    run.emit(AgentStartEvent())
    running.set()
    run.signal.wait()
    run.emit(NoticeEvent("after the gate"))
    yield from ()
    return AssistantMessage("never")

run = Run(work, name="yiem-run", state=AgentState(), sinks=[told.append])
run.start()
assert running.wait(20)
"""


def test_no_sink_is_called_at_exit():
    """When the interpreter exits the signal is set, and what a run still emits reaches no sink."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", GATE],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=WAIT_S,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("told 1 aborted True done True\n", "")


FORK = """
import os, threading
from yiemagent.event_stream import agent_loop
from yiemagent.config import AgentLoopConfig
from yiemagent.context import AgentContext
from yiemagent.testing import ScriptedModel

hold = threading.Event()
running = threading.Event()

def model(*_):
    running.set()
    hold.wait(20)
    return "parent"

stream = agent_loop("hi", AgentContext(), AgentLoopConfig(), stream_fn=ScriptedModel([model]))
assert running.wait(20)
child = os.fork()
if child == 0:
    own = agent_loop("hi", AgentContext(), AgentLoopConfig(), stream_fn=ScriptedModel(["child"]))
    own.result(20)
    print(own.answer.text, flush=True)
else:
    assert os.waitpid(child, 0)[1] == 0
    hold.set()
    stream.result(20)
    print(stream.answer.text, flush=True)
"""


def test_a_forked_child_has_runs_of_its_own():
    """A child made in the middle of a run starts runs, and exits without the parent's."""
    done = subprocess.run(
        [sys.executable, "-c", FORK],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=WAIT_S,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "child\nparent\n"), done.stderr


FORK_IN_A_TOOL = """
import os
from yiemagent import AgentTool, YiemAgent, ask
from yiemagent.testing import ScriptedModel, call

def fork(*_):
    child = os.fork()
    if child:
        print("ended", os.waitpid(child, 0)[1], flush=True)
    return "forked"

def model(context, signal):
    print("asked", os.getpid() == parent, flush=True)
    return "fine"

parent = os.getpid()
tool = AgentTool("fork", description="forks", execute=fork)
print(ask(YiemAgent(ScriptedModel([call("fork"), model]), tools=[tool]), "go").text, flush=True)
"""


def test_a_child_that_comes_back_from_a_tool_ends():
    """Where a tool forks and its child returns, the run goes on in the parent alone."""
    done = subprocess.run(
        [sys.executable, "-c", FORK_IN_A_TOOL],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=WAIT_S,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "ended 0\nasked True\nfine\n"), done.stderr


def test_what_is_dropped_is_not_logged_as_an_error(caplog):
    """The unwinding of a thread that lost its run is nobody's bug."""
    with caplog.at_level(logging.DEBUG), Hold() as hold:
        run = make([lambda *_: hold() or "late"], grace_s=0.0)
        hold.wait()
        run.signal.abort()
        end_without_thread(run)
    end(run)

    assert "Traceback" not in caplog.text


# -- a record of what is told --


QUIET = (TurnStartEvent, MessageStartEvent, ToolExecUpdateEvent)


@pytest.mark.parametrize("with_sink", [True, False])
def test_each_event_is_recorded_once_before_anybody_is_told(with_sink):
    """What records has every event first, in order, but for those that tell nothing that others do not."""
    recorded, told, late = [], [], []

    def sink(event):
        told.append(event)
        if event not in recorded and not isinstance(event, QUIET):
            late.append(event)

    run = make(record=recorded.append, sinks=(sink,) if with_sink else ())

    assert end(run).text == "fine"
    assert late == []
    assert [type(event) for event in recorded] == [
        AgentStartEvent,
        MessageEndEvent,
        *[MessageUpdateEvent] * (len(recorded) - 5),
        MessageEndEvent,
        TurnEndEvent,
        AgentEndEvent,
    ]
    if with_sink:
        assert recorded == [event for event in told if not isinstance(event, QUIET)]


@pytest.mark.parametrize("with_sink", [True, False])
@pytest.mark.parametrize("kind", [AgentStartEvent, MessageEndEvent])
def test_a_run_whose_events_can_not_be_recorded_ends_at_once(with_sink, kind, caplog):
    """The model is not asked; what can't be recorded is told all the same, and the answer says why."""
    told, model = RecordingSink(), ScriptedModel(["never"])

    def record(event):
        if isinstance(event, kind):
            raise OSError("no space")

    run = make(model, record=record, sinks=(told,) if with_sink else ())
    answer = end(run)

    assert (answer.stop_reason, answer.error_message) == ("error", "OSError: no space")
    assert model.requests == []
    assert "could not be recorded: OSError: no space" in caplog.text
    assert run.new_messages == (PROMPT,)
    if with_sink:
        check_event_order(told.events)


@pytest.mark.parametrize(
    ("error", "traces"), [(SessionError("s.jsonl is closed"), 0), (TypeError("a slip"), 1)]
)
@pytest.mark.parametrize("where", ["event", "call"])
def test_what_keeps_a_run_from_being_recorded_is_logged_once(where, error, traces, caplog):
    """An error that a session means to give is one line, however often it comes; another has its traceback."""

    def fail(_given):
        raise error

    named = {"record" if where == "event" else "record_call": fail}
    run = make([calls(call("work")), "done"], tool("work", lambda *_: "x"), **named)

    assert end(run).error_message == error_text(error)
    [record] = caplog.records
    assert record.getMessage() == f"yiem-test-run could not be recorded: {error_text(error)}"
    assert caplog.text.count("Traceback") == traces


def test_each_reason_why_a_run_is_not_recorded_is_logged(caplog):
    """Another error than the one before is another line."""
    reasons = itertools.chain(["one"], itertools.repeat("two"))

    def record(_event):
        raise SessionError(next(reasons))

    end(make(record=record))

    said = [entry.getMessage().rpartition(": ")[2] for entry in caplog.records]
    assert said == ["one", "two"]


def test_an_abort_whose_end_can_not_be_recorded_says_so(caplog):
    """The answer stays aborted, and tells of what was not recorded."""

    def record(event):
        if isinstance(event, MessageEndEvent) and event.message is not PROMPT:
            raise OSError("no space")

    def model(_context, signal):
        run.signal.abort("enough")
        signal.wait(WAIT_S)
        return "too late"

    ready = threading.Event()
    run = make([lambda *given: ready.wait(WAIT_S) and model(*given)], record=record)
    ready.set()
    answer = end(run)

    assert answer.stop_reason == "aborted"
    assert "enough" in answer.error_message
    assert "no space" in answer.error_message
    assert "could not be recorded" in caplog.text


def test_a_tools_progress_does_not_take_the_error_of_a_record(caplog):
    """Only the run's own thread ends the run; a tool that tells of its progress meanwhile goes on."""
    started, go_on, raised = threading.Event(), threading.Event(), []

    def slow(_id, _args, signal, update):
        started.set()
        assert go_on.wait(WAIT_S)
        try:
            update("still here")
        except BaseException as error:
            raised.append(error)

    def quick(*_given):
        assert started.wait(WAIT_S)

    def record(event):
        if isinstance(event, ToolExecEndEvent):
            raise OSError("no space")

    model = [calls(call("slow", {}), call("quick", {}))]
    run = make(model, parallel("slow", slow), parallel("quick", quick), record=record)
    answer = end(run)
    go_on.set()

    assert answer.error_message == "OSError: no space"
    assert raised == []
    assert "could not be recorded" in caplog.text


def test_a_call_is_recorded_before_it_begins():
    """Each is recorded by itself, behind the answer that holds it and before its tool runs."""
    recorded = []

    def work(call_id, *_args):
        recorded.append(f"run {call_id}")

    run = make(
        [calls(call("work", {}, "a"), call("work", {}, "b")), "fine"],
        tool("work", work),
        record=lambda event: recorded.append(type(event).__name__),
        record_call=lambda one: recorded.append(f"begin {one.id}"),
    )

    assert end(run).text == "fine"
    assert [what for what in recorded if not what.endswith("UpdateEvent")] == [
        "AgentStartEvent",
        "MessageEndEvent",
        "MessageEndEvent",
        *["begin a", "run a", "ToolExecEndEvent", "MessageEndEvent"],
        *["begin b", "run b", "ToolExecEndEvent", "MessageEndEvent"],
        "TurnEndEvent",
        "MessageEndEvent",
        "TurnEndEvent",
        "AgentEndEvent",
    ]


def test_a_call_that_can_not_be_recorded_never_begins():
    """The run ends with an error that says why, and the call has a result."""
    ran, told = [], RecordingSink()

    def record_call(_call):
        raise OSError("no space")

    run = make(
        [calls(call("work"))],
        tool("work", lambda *_: ran.append(1)),
        sinks=(told,),
        record_call=record_call,
    )

    assert end(run).error_message == "OSError: no space"
    assert ran == []
    assert run.new_messages[-1].text == "The run failed: OSError: no space"
    check_event_order(told.events)


def test_a_call_of_a_run_that_was_settled_never_begins():
    """Where an abort's grace ended before the call was recorded, it is neither recorded nor run."""
    recorded, begun = [], []

    def work(run):
        run.emit(AgentStartEvent())
        hold()
        run.begin_call(call("work").tool_calls[0])
        begun.append(1)

    with Hold() as hold:
        run = make(work=work, grace_s=0.0, record_call=recorded.append)
        hold.wait()
        run.signal.abort()
        end_without_thread(run)
    end(run)

    assert (recorded, begun) == ([], [])


def test_what_comes_too_late_is_not_recorded(caplog):
    """Once a run is settled without its thread, what that thread emits is neither told nor recorded."""
    recorded = []
    with Hold() as hold:
        run = make([lambda *_: hold() or "late"], grace_s=0.0, record=recorded.append)
        hold.wait()
        run.signal.abort()
        end_without_thread(run)
    end(run)

    assert [type(event) for event in recorded[-2:]] == [TurnEndEvent, AgentEndEvent]
    assert [e.message.text for e in recorded if isinstance(e, MessageEndEvent)] == ["hi"]
