"""The calls of one answer: every call one result, in call order, whatever happens while they run."""

from __future__ import annotations

import contextvars
import math
import threading
import time

import pytest

from tests.support.loops import WAIT_S, Done, Hold, parallel, raising, run, start, tool
from yiemagent.abort import AbortSignal
from yiemagent.batch import (
    ToolCallBatch,
    execute_tool_calls,
    fail_tool_calls,
    fail_tool_calls_from_truncated_message,
)
from yiemagent.config import AgentLoopConfig
from yiemagent.context import AgentContext
from yiemagent.events import (
    MessageEndEvent,
    ToolExecEndEvent,
    ToolExecStartEvent,
    ToolExecUpdateEvent,
)
from yiemagent.messages import AssistantMessage, UserMessage
from yiemagent.pipeline import ABORTED_TEXT
from yiemagent.pool import DaemonPool
from yiemagent.relay import finish
from yiemagent.testing import (
    RecordingSink,
    ScriptedModel,
    call,
    calls,
    check_event_order,
    failure,
)
from yiemagent.tool import AgentToolResult


class OwnError(BaseException):
    """What no `except Exception` sees."""


def batch(answer, *tools, **config):
    """Run the calls of one answer and then a last turn."""
    done = run([answer, "fine"], *tools, **config)
    results = [message for message in done.messages if message.role == "toolResult"]
    ids = [one.id for one in done.messages[1].tool_calls]
    assert [result.tool_call_id for result in results] == ids
    return done


# -- every call one result --


def test_every_way_to_end_gives_one_result():
    """Unknown, bad, blocked, raising and good calls of one answer are answered in call order."""

    def before(shown, _signal):
        if shown.tool_call.name == "blocked":
            return {"block": True, "reason": "no"}
        return {"broken": 1}["whole"] if shown.tool_call.name == "hooked" else None

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    names = ["unknown", "strict", "blocked", "hooked", "raises", "good"]
    done = batch(
        calls(*map(call, names)),
        parallel("strict", input_schema=schema),
        parallel("blocked"),
        parallel("hooked"),
        parallel("raises", raising(ValueError("broken"))),
        parallel("good"),
        before_tool_call=before,
    )
    texts = [text for text, _ in done.results]

    assert [is_error for _, is_error in done.results] == [True] * 5 + [False]
    assert texts[0].startswith("Tool 'unknown' not found")
    assert texts[1].startswith("Invalid arguments for strict: ")
    assert texts[2:] == ["no", "KeyError: 'whole'", "ValueError: broken", "good done"]


@pytest.mark.parametrize(
    "error",
    [SystemExit(2), KeyboardInterrupt(), GeneratorExit(), RecursionError(), OwnError("own")],
    ids=repr,
)
@pytest.mark.parametrize("make", [tool, parallel], ids=["alone", "parallel"])
def test_nothing_that_a_tool_raises_ends_the_run(error, make):
    """Whatever a tool raises, its neighbour is answered too and the run goes on."""
    done = batch(calls(call("bad"), call("good")), make("bad", raising(error)), make("good"))

    assert done.results[1] == ("good done", False)
    assert done.results[0][1]
    assert done.answer.text == "fine"


@pytest.mark.parametrize("error", [SystemExit(2), OwnError("own")], ids=repr)
@pytest.mark.parametrize("hook", ["before_tool_call", "after_tool_call"])
def test_nothing_that_a_hook_raises_ends_the_run(error, hook):
    """A hook around calls that raises gives each call its error result."""
    done = batch(calls(call("work"), call("work")), parallel(), **{hook: raising(error)})

    assert [is_error for _, is_error in done.results] == [True, True]
    assert done.answer.text == "fine"


def test_after_tool_call_is_asked_for_calls_that_ran_only():
    """Unknown, invalid and blocked calls are not shown to `after_tool_call`, failed ones are."""
    seen = []

    def after(shown, _signal):
        seen.append((shown.tool_call.name, shown.is_error))

    def before(shown, _signal):
        return {"block": shown.tool_call.name == "blocked"}

    batch(
        calls(call("unknown"), call("blocked"), call("work", "{bad"), call("work"), call("raises")),
        tool(),
        tool("blocked"),
        tool("raises", raising(ValueError())),
        before_tool_call=before,
        after_tool_call=after,
    )

    assert seen == [("work", False), ("raises", True)]


def test_a_truncated_answer_has_its_calls_failed():
    """Calls of an answer that the output limit cut off never run, and the model may try again."""
    ran = []
    answer = AssistantMessage((call("work", {"a": 1}), call("work")), stop_reason="length")
    done = batch(
        answer,
        tool(function=lambda *_: ran.append(1)),
        before_tool_call=lambda *_: ran.append(2),
        after_tool_call=lambda *_: ran.append(3),
    )

    assert ran == []
    assert [is_error for _, is_error in done.results] == [True, True]
    assert "output limit" in done.results[0][0]
    assert done.answer.text == "fine"


def test_a_failed_answer_has_its_calls_failed_and_ends_the_run():
    """Calls in an answer that failed get error results, and the answer is the run's."""
    ran = []
    failed = AssistantMessage((call("work"),), stop_reason="error", error_message="lost")
    done = run([failed, "never"], tool(function=lambda *_: ran.append(1)))

    assert (ran, done.answer.error_message) == ([], "lost")
    assert done.results == [("This call was not run: the answer that holds it failed (lost)", True)]


def test_stop_reason_does_not_decide_about_calls():
    """Calls run whenever there are any, whatever else the stop reason says."""
    answer = AssistantMessage((call("work"),), stop_reason="stop")

    assert batch(answer, tool()).results == [("work done", False)]


def test_failing_calls_alone_tells_of_each():
    """Calls that will not run have Start, End and message each."""
    sink = RecordingSink()
    one, two = call("a", call_id="1"), call("b", call_id="2")
    failed = fail_tool_calls([one, two], "no", sink)

    assert isinstance(failed, ToolCallBatch)
    assert [message.text for message in failed.messages] == ["no", "no"]
    assert not failed.terminate
    per_call = ["ToolExecStartEvent", "ToolExecEndEvent", "MessageStartEvent", "MessageEndEvent"]
    assert sink.names() == per_call * 2
    assert fail_tool_calls_from_truncated_message([], sink) == ToolCallBatch(())


# -- side by side, one by one, barriers --


def overlapping(mode, *tools, **config):
    """Run calls of the tools and give which of them were ever under way together."""
    under_way, together = set(), set()
    gate = threading.Lock()  # protects both sets
    side_by_side = threading.Event()

    def watched(name):
        def function(*_):
            with gate:
                under_way.add(name)
                together.update((name, other) for other in under_way if other != name)
                if len(under_way) > 1:
                    side_by_side.set()
            side_by_side.wait(0.05)
            with gate:
                under_way.discard(name)

        return function

    made = [make(name, watched(name)) for name, make in tools]
    done = batch(calls(*(call(name) for name, _ in tools)), *made, tool_execution=mode, **config)
    return done, {tuple(sorted(pair)) for pair in together}


def test_tools_that_allow_it_run_side_by_side():
    """All calls of a batch are under way at once where each tool opts in."""
    barrier = threading.Barrier(8)
    names = [f"t{number}" for number in range(8)]
    tools = [parallel(name, lambda *_: str(barrier.wait(WAIT_S) >= 0)) for name in names]

    assert batch(calls(*map(call, names)), *tools).results == [("True", False)] * 8


@pytest.mark.parametrize(
    "mode, tools",
    [
        ("sequential", [("a", parallel), ("b", parallel)]),
        ("parallel", [("a", parallel), ("b", tool), ("c", parallel)]),
        ("parallel", [("a", tool), ("b", tool)]),
    ],
    ids=["asked for", "one tool does not", "no tool does"],
)
def test_calls_run_one_by_one(mode, tools):
    """One tool that does not allow it, or the config, makes the whole batch sequential, in call order."""
    done, together = overlapping(mode, *tools)

    assert together == set()
    assert done.ended_calls == [name for name, _ in tools]


def test_unknown_tools_do_not_make_a_batch_sequential():
    """An unknown tool does not count."""
    barrier = threading.Barrier(2)
    one = parallel("one", lambda *_: barrier.wait(WAIT_S))
    two = parallel("two", lambda *_: barrier.wait(WAIT_S))
    done = batch(calls(call("one"), call("nobody"), call("two")), one, two)

    assert [is_error for _, is_error in done.results] == [False, True, False]


def test_a_blocked_call_of_a_tool_that_does_not_allow_it_counts():
    """What is called decides, not what may run in the end."""
    under_way = []

    def function(*_):
        under_way.append(threading.current_thread())
        return len({thread.name for thread in under_way})

    done = batch(
        calls(call("a"), call("lone"), call("a")),
        parallel("a", function),
        tool("lone"),
        before_tool_call=lambda shown, _: {"block": shown.tool_call.name == "lone"},
    )

    assert done.ended_calls == ["lone", "a", "a"]


def test_a_barrier_runs_neighbours_together_and_the_others_alone():
    """With "barrier", parallel-safe neighbours run side by side, everything else in order."""
    barriers = {"a": threading.Barrier(2), "b": threading.Barrier(3)}
    order = []

    def meet(name):
        def function(*_):
            barriers[name].wait(WAIT_S)
            order.append(name)

        return function

    def alone(*_):
        order.append("alone")

    done = batch(
        calls(*map(call, ["a", "a", "alone", "alone", "b", "b", "b"])),
        parallel("a", meet("a")),
        parallel("b", meet("b")),
        tool("alone", alone),
        tool_execution="barrier",
    )

    assert order == ["a", "a", "alone", "alone", "b", "b", "b"]
    assert len(done.results) == 7


def test_a_barrier_of_lonely_calls_is_sequential():
    """Without neighbours to run together, each call runs alone."""
    done, together = overlapping("barrier", ("a", tool), ("b", parallel), ("c", tool))

    assert (together, done.ended_calls) == (set(), ["a", "b", "c"])


def test_all_calls_are_prepared_before_any_runs():
    """Hooks see all calls in order, on one thread, before the first tool begins."""
    order = []
    threads = set()

    def before(shown, _signal):
        threads.add(threading.current_thread().name)
        order.append(f"asked {shown.tool_call.name}")

    def ran(name):
        return lambda *_: order.append(f"ran {name}")

    batch(
        calls(call("a"), call("b"), call("c")),
        *(tool(name, ran(name)) for name in "abc"),
        before_tool_call=before,
    )

    assert order == ["asked a", "asked b", "asked c", "ran a", "ran b", "ran c"]
    assert len(threads) == 1


def test_no_more_calls_run_than_allowed():
    """`max_parallel_tools` bounds the calls under way."""
    count, most = [0], []
    gate = threading.Lock()  # protects the count

    def function(*_):
        with gate:
            count[0] += 1
            most.append(count[0])
        both.wait(WAIT_S)
        with gate:
            count[0] -= 1

    both = threading.Barrier(2)
    done = batch(calls(*[call("work")] * 10), parallel("work", function), max_parallel_tools=2)

    assert max(most) == 2
    assert len(done.results) == 10


def test_ends_come_as_calls_complete_and_messages_in_call_order():
    """ToolExecEnd follows completion; a result's message waits for those before it."""
    with Hold() as hold:

        def slow(*_):
            hold()
            return "slow"

        stream = start(
            [calls(call("slow"), call("quick")), "fine"], parallel("slow", slow), parallel("quick")
        )
        hold.wait()
        seen = []
        for event in stream:
            seen.append(event)
            if isinstance(event, ToolExecEndEvent):
                break
        hold.let_go()
        done = finish_after(seen, stream)

    assert done.ended_calls == ["quick", "slow"]
    assert done.results == [("slow", False), ("quick done", False)]
    ends = [e for e in done.of(ToolExecEndEvent, MessageEndEvent) if not is_chat(e)]
    assert [type(event).__name__ for event in ends] == [
        "ToolExecEndEvent",
        "ToolExecEndEvent",
        "MessageEndEvent",
        "MessageEndEvent",
    ]


def is_chat(event):
    """Whether an event ends a message that is no tool result."""
    return isinstance(event, MessageEndEvent) and event.message.role != "toolResult"


def finish_after(seen, stream):
    """Read the rest of a stream and check it together with what was read before."""
    events = [*seen, *stream]
    check_event_order(events)
    return Done(events, None, stream.result(WAIT_S), stream.answer)


def test_an_end_carries_the_whole_result():
    """ToolExecEnd has result, error and the message that enters the history."""
    result = AgentToolResult("ok", {"n": 1}, terminate=False)
    done = batch(calls(call("work", {"a": 1})), tool(function=lambda *_: result))
    [end] = done.of(ToolExecEndEvent)
    [begin] = done.of(ToolExecStartEvent)

    assert (end.result, end.is_error) == (result, False)
    assert end.message is done.messages[2]
    assert begin.arguments == {"a": 1}


def test_the_start_shows_the_arguments_as_the_model_sent_them():
    """Raw text and strange values are not touched in events."""
    done = batch(calls(call("work", "{broken")), tool())

    assert done.of(ToolExecStartEvent)[0].arguments == "{broken"


# -- updates --


def test_updates_come_between_start_and_end():
    """Progress is told while the tool runs, in its order."""

    def function(_id, _args, _signal, update):
        for step in range(5):
            update({"step": step})

    done = batch(calls(call("work")), tool(function=function))
    steps = [event.partial_result["step"] for event in done.of(ToolExecUpdateEvent)]

    assert steps == [0, 1, 2, 3, 4]


def test_updates_of_an_abandoned_call_are_dropped():
    """A tool left behind at its time limit is not heard any more."""
    with Hold() as hold:
        late = threading.Event()

        def function(_id, _args, _signal, update):
            hold()
            update("late")
            late.set()
            return "late"

        done = batch(calls(call("work")), tool(function=function, timeout_s=0.05))
        hold.let_go()
        assert late.wait(WAIT_S)

    assert done.results == [("work timed out after 0.05 s", True)]
    assert done.of(ToolExecUpdateEvent) == []


# -- time limits --


def test_a_call_over_its_time_limit_is_answered_for():
    """The limit ends a call alone: its signal is set, its neighbour's is not, and the run goes on."""
    signals = {}
    with Hold() as hold:

        def slow(_id, _args, signal, _update):
            signals["slow"] = signal
            hold()

        def good(_id, _args, signal, _update):
            signals["good"] = signal
            return "good"

        done = batch(
            calls(call("slow"), call("good")),
            parallel("slow", slow, timeout_s=0.05),
            parallel("good", good),
        )

    assert done.results == [("slow timed out after 0.05 s", True), ("good", False)]
    assert (signals["slow"].aborted, signals["good"].aborted) == (True, False)
    assert signals["slow"].reason == "slow timed out after 0.05 s"


def test_an_abandoned_call_gives_its_place_back(caplog):
    """A hung call counts no longer among those that run, and a warning names it."""
    with Hold() as hold:
        done = batch(
            calls(call("slow"), call("slow"), call("good")),
            parallel("slow", hold, timeout_s=0.02),
            parallel("good"),
            max_parallel_tools=1,
        )

    assert [is_error for _, is_error in done.results] == [True, True, False]
    assert "yiem-loop-" in caplog.text
    assert ": tool slow did not return in time and was left behind" in caplog.text


@pytest.mark.parametrize("timeout_s", [None, math.inf, 1e300])
def test_a_time_limit_may_be_lifted(timeout_s):
    """None, and a limit beyond what a wait can take, wait for the tool."""
    done = batch(calls(call("work")), tool(timeout_s=timeout_s))

    assert done.results == [("work done", False)]


def test_the_result_that_is_late_is_ignored():
    """What an abandoned call gives, and what a hook makes of it, changes nothing."""
    after = threading.Event()
    with Hold() as hold:
        done = batch(
            calls(call("work")),
            tool(function=hold, timeout_s=0.3),
            after_tool_call=lambda *_: after.set(),
        )
        hold.let_go()
        assert after.wait(WAIT_S)

    assert done.results == [("work timed out after 0.3 s", True)]


# -- aborts --


def test_an_abort_while_preparing_answers_every_call():
    """A hook that aborts at the second call leaves no call without a result, and none runs."""
    ran = []
    asked = []

    def before(shown, signal):
        asked.append(shown.tool_call.name)
        if len(asked) == 2:
            signal.abort("enough")

    done = run(
        [calls(*map(call, "abc")), "never"],
        *(parallel(name, lambda *_: ran.append(1)) for name in "abc"),
        before_tool_call=before,
    )

    assert (asked, ran) == (["a", "b"], [])
    assert done.results == [(ABORTED_TEXT, True)] * 3
    assert (done.answer.stop_reason, done.answer.error_message) == ("aborted", "aborted: enough")
    assert len(done.model.requests) == 1


def test_an_abort_in_a_sequential_batch_keeps_what_came_and_starts_nothing_more():
    """The call that runs counts, the calls behind it are answered as aborted."""
    ran = []

    def first(_id, _args, signal, _update):
        signal_of_run.abort()
        return "kept"

    signal_of_run = AbortSignal()
    done = run(
        [calls(call("first"), call("second"), call("second")), "never"],
        tool("first", first),
        tool("second", lambda *_: ran.append(1)),
        signal=signal_of_run,
    )

    assert done.results == [("kept", False), (ABORTED_TEXT, True), (ABORTED_TEXT, True)]
    assert (ran, done.answer.stop_reason) == ([], "aborted")


def test_an_abort_reaches_every_tool_of_a_parallel_batch():
    """Each call's signal follows the run's, and tools that heed it end at once."""
    running = threading.Barrier(5)
    signal = AbortSignal()

    def heeding(_id, _args, own, _update):
        running.wait(WAIT_S)
        own.wait(WAIT_S)
        own.raise_if_aborted()

    def aborting(*_):
        running.wait(WAIT_S)
        signal.abort()

    begun = time.monotonic()
    done = run(
        [calls(*[call("heeding")] * 4, call("aborting")), "never"],
        parallel("heeding", heeding),
        parallel("aborting", aborting),
        signal=signal,
        abort_grace_s=WAIT_S,
    )

    assert time.monotonic() - begun < 5
    assert done.results == [(ABORTED_TEXT, True)] * 4 + [("", False)]


def test_a_tool_that_ignores_an_abort_is_left_behind_after_its_grace():
    """Within the grace results count; then the run goes on without who is still busy."""
    signal = AbortSignal()
    with Hold() as hold:

        def quick(*_):
            hold.wait()
            signal.abort("enough")
            return "kept"

        begun = time.monotonic()
        done = run(
            [calls(call("deaf"), call("quick")), "never"],
            parallel("deaf", hold),
            parallel("quick", quick),
            signal=signal,
            abort_grace_s=0.1,
        )
        took = time.monotonic() - begun

    assert done.results == [(ABORTED_TEXT, True), ("kept", False)]
    assert done.answer.error_message == "aborted: enough"
    assert 0.1 <= took < 2.5


def test_a_slow_result_within_the_grace_counts():
    """A tool that ends a little after the abort has its result kept."""
    signal = AbortSignal()

    def slow(_id, _args, own, _update):
        signal.abort()
        threading.Event().wait(0.05)
        return "kept"

    done = run([calls(call("slow")), "never"], tool("slow", slow), signal=signal)

    assert done.results == [("kept", False)]
    assert done.answer.stop_reason == "aborted"


def test_without_a_grace_nobody_is_waited_for():
    """`abort_grace_s=0` leaves a deaf tool behind at once, and may be without end."""
    signal = AbortSignal()
    with Hold() as hold:

        def deaf(*_):
            signal.abort()
            hold()

        done = run([calls(call("deaf")), "x"], tool("deaf", deaf), signal=signal, abort_grace_s=0)

    assert done.results == [(ABORTED_TEXT, True)]


def test_a_grace_without_end_waits_for_the_tool():
    """An infinite grace is allowed: what the tool gives counts, however late."""
    signal = AbortSignal()

    def deaf(*_):
        signal.abort()
        threading.Event().wait(0.05)
        return "kept"

    done = run(
        [calls(call("deaf")), "never"], tool("deaf", deaf), signal=signal, abort_grace_s=math.inf
    )

    assert done.results == [("kept", False)]


def test_calls_that_never_ran_are_not_shown_to_the_hook():
    """A call that the abort kept from running has no `after_tool_call`."""
    signal = AbortSignal()
    seen = []

    def first(*_):
        signal.abort()

    run(
        [calls(call("first"), call("second")), "never"],
        tool("first", first),
        tool("second"),
        signal=signal,
        after_tool_call=lambda shown, _: seen.append(shown.tool_call.name),
    )

    assert seen == ["first"]


def test_a_call_that_an_abort_meets_at_the_workers_door_never_runs():
    """An abort between handing a call over and its start keeps it from running, and the hook unasked."""
    signal = AbortSignal()
    seen = []

    class LatePool(DaemonPool):
        def start(self, *given):
            signal.abort()
            super().start(*given)

    pool = LatePool("yiem-test-tool")
    steps = execute_tool_calls(
        AgentContext(tools=[parallel(function=lambda *_: seen.append("ran"))]),
        calls(call("work", call_id="c1"), call("work", call_id="c2")),
        AgentLoopConfig(after_tool_call=lambda *_: seen.append("asked")),
        signal,
        RecordingSink(),
        pool=pool,
    )
    done = finish(steps, pool.start, signal=AbortSignal(), grace_s=1.0)
    pool.shutdown(wait=False)

    assert (seen, [message.text for message in done.messages]) == ([], [ABORTED_TEXT] * 2)


def test_a_call_that_an_abort_meets_before_its_first_line_never_runs():
    """So does one that the run's own thread is about to make."""
    signal = AbortSignal()
    seen = []
    steps = execute_tool_calls(
        AgentContext(tools=[tool(function=lambda *_: seen.append("ran"))]),
        calls(call("work")),
        AgentLoopConfig(after_tool_call=lambda *_: seen.append("asked")),
        signal,
        RecordingSink(),
        pool=None,
    )
    own = next(steps)
    signal.abort()
    with pytest.raises(StopIteration) as end:
        steps.send(own.function())

    assert (seen, end.value.value.messages[0].text) == ([], ABORTED_TEXT)


class FullPool(DaemonPool):
    """A pool whose threads can't be started, as when the system has no more."""

    def _adjust_thread_count(self):
        raise RuntimeError("can't start new thread")


def test_a_call_that_gets_no_thread_is_answered_and_never_runs():
    """Where no thread can be had the calls have error results, and do not run."""
    ran = []
    pool = FullPool("yiem-test-tool")
    steps = execute_tool_calls(
        AgentContext(tools=[parallel(function=lambda *_: ran.append(1))]),
        calls(call("work", call_id="c1"), call("work", call_id="c2")),
        AgentLoopConfig(),
        AbortSignal(),
        RecordingSink(),
        pool=pool,
    )
    done = finish(steps, pool.start, signal=AbortSignal(), grace_s=1.0)
    pool.shutdown(wait=False)

    texts = [message.text for message in done.messages]
    assert texts == ["The call was not run: can't start new thread"] * 2
    assert (ran, pool._work_queue.get_nowait()) == ([], None)  # the end, and no call before it


def begun(seen, *tools, begin=None, **config):
    """Run one answer's calls to these tools, noting in `seen` when each is said to begin."""
    pool = DaemonPool("yiem-test-tool")
    try:
        steps = execute_tool_calls(
            AgentContext(tools=tools),
            calls(*(call(one.name, call_id=one.name) for one in tools)),
            AgentLoopConfig(**config),
            AbortSignal(),
            RecordingSink(),
            pool=pool,
            begin=begin or (lambda one: seen.append(f"begin {one.id}")),
        )
        return finish(steps, pool.start, signal=AbortSignal(), grace_s=1.0)
    finally:
        pool.shutdown(wait=False)


def test_a_call_is_said_to_begin_right_before_it_does():
    """Not when it is prepared, and not while the call before it runs; one that is blocked never begins."""
    seen = []

    def before(shown, _signal):
        seen.append(f"asked {shown.tool_call.id}")
        return {"block": shown.tool_call.id == "b"}

    names = ["a", "b", "c"]
    begun(
        seen,
        *[tool(name, lambda call_id, *_: seen.append(f"run {call_id}")) for name in names],
        before_tool_call=before,
    )

    assert seen == ["asked a", "asked b", "asked c", "begin a", "run a", "begin c", "run c"]


def test_a_call_whose_begin_is_refused_never_runs():
    """What `begin` raises ends the batch: neither that call nor one behind it runs."""
    ran = []

    def begin(one):
        if one.id == "b":
            raise OSError("no space")

    tools = [tool(name, lambda call_id, *_: ran.append(call_id)) for name in "abc"]
    with pytest.raises(OSError, match="no space"):
        begun([], *tools, begin=begin)

    assert ran == ["a"]


# -- who sees what --


def test_context_variables_of_the_caller_are_seen_by_tools_and_hooks():
    """Each call runs in a copy of its own: what it sets, no other sees."""
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("callers")
    seen = []

    def function(*_):
        seen.append(variable.get())
        variable.set("tools")

    batch(
        calls(call("work"), call("work")),
        tool(function=function),
        before_tool_call=lambda *_: seen.append(variable.get()),
        after_tool_call=lambda *_: seen.append(variable.get()),
    )

    assert seen == ["callers", "callers", "callers", "tools", "callers", "tools"]
    assert variable.get() == "callers"


def test_a_tool_may_run_an_agent_of_its_own():
    """Runs nest to any depth beside each other, and no pool is starved."""

    def nested(depth):
        def function(*_):
            if depth == 0:
                return "deep"
            done = run(
                [calls(call("inner"), call("inner")), "up"],
                parallel("inner", nested(depth - 1)),
                max_parallel_tools=2,
            )
            return "+".join(text for text, _ in done.results)

        return function

    done = batch(calls(call("outer"), call("outer")), parallel("outer", nested(3)))

    assert done.results == [("+".join(["deep"] * 8), False)] * 2


# -- terminate --


def ending(text, **fields):
    """A tool that asks the agent to stop."""
    return lambda *_: AgentToolResult(text, terminate=True, **fields)


def test_a_batch_whose_results_all_ask_ends_the_run():
    """The results are not sent by themselves: the library makes the answer of their texts."""
    model = ScriptedModel([calls(call("a"), call("b")), "never"])
    done = run(model, parallel("a", ending("one")), parallel("b", ending("two")))

    assert len(model.requests) == 1
    assert done.answer.stop_reason == "tool_use_terminated"
    assert [block.text for block in done.answer.content] == [
        "Tool execution completed.",
        "one",
        "two",
    ]
    assert (done.answer.usage, done.answer.error_message) == (None, None)
    assert done.messages[-1].role == "toolResult"


def test_a_made_answer_names_the_model_and_a_failed_call():
    """Api, provider and model are the last answer's; an error among the results is said."""
    answer = AssistantMessage(
        (call("a"), call("b")), api="x", provider="y", model="z", stop_reason="tool_use"
    )
    done = run(
        [answer],
        tool("a", ending("one")),
        tool("b", ending("two")),
        after_tool_call=lambda shown, _: {"is_error": shown.tool_call.name == "b"},
    )

    assert (done.answer.api, done.answer.provider, done.answer.model) == ("x", "y", "z")
    assert done.answer.error_message == "One or more tool calls failed"


def test_a_batch_of_which_one_does_not_ask_goes_on():
    """One result without `terminate` sends them all to the model."""
    done = batch(calls(call("a"), call("b")), tool("a", ending("one")), tool("b"))

    assert done.answer.text == "fine"


@pytest.mark.parametrize("hook", ["before_tool_call", "after_tool_call"])
def test_a_hook_can_end_the_run(hook):
    """`terminate` of a hook counts like the tool's."""
    done = run([calls(call("a")), "never"], tool("a"), **{hook: lambda *_: {"terminate": True}})

    assert done.answer.text == "Tool execution completed.a done"


def test_a_block_with_terminate_ends_the_run():
    """A blocked call that asks to stop keeps the model from trying again."""
    block = {"block": True, "reason": "no", "terminate": True}
    done = run([calls(call("a")), "never"], tool("a"), before_tool_call=lambda *_: block)

    assert done.answer.stop_reason == "tool_use_terminated"
    assert done.answer.error_message == "One or more tool calls failed"


@pytest.mark.parametrize("queue", ["get_steering_messages", "get_follow_up_messages"])
def test_what_waits_gets_a_turn_after_a_terminated_batch(queue):
    """Steering or follow-ups that wait begin another turn, and its answer is the run's."""
    waiting = []

    def ending_late(*_):
        waiting.append("and this?")
        return AgentToolResult("one", terminate=True)

    def take():
        taken, waiting[:] = messages(waiting), []
        return taken

    done = run([calls(call("a")), "to that"], tool("a", ending_late), **{queue: take})

    assert done.answer.text == "to that"
    assert [message.role for message in done.model.requests[1].messages] == [
        "user",
        "assistant",
        "toolResult",
        "user",
    ]


def messages(texts):
    """Texts as user messages."""
    return [UserMessage(text) for text in texts]


def test_a_failed_answer_does_not_terminate():
    """Calls that never ran ask nobody to stop."""
    done = run([failure("no luck")], tool())

    assert done.answer.stop_reason == "error"
