"""The tool calls of one answer: which run side by side, how long each may take, and in which order they are told of.

The run's thread prepares all calls in order. A call that runs alone it makes itself; calls that run side by side it
hands to the pool, and waits at one queue for whatever comes first: a result, an abort, a time limit. Only that thread
emits Starts, Ends and result messages, so their order needs no lock.
"""

from __future__ import annotations

import contextvars
import functools
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX

import attrs

from yiemagent.abort import AbortSignal
from yiemagent.config import AgentLoopConfig
from yiemagent.context import AgentContext
from yiemagent.events import (
    MessageEndEvent,
    MessageStartEvent,
    ToolExecEndEvent,
    ToolExecStartEvent,
)
from yiemagent.locks import waiting
from yiemagent.messages import AssistantMessage, ToolCall, ToolResultMessage
from yiemagent.pausing import BESIDE_TEXT, PAUSED_DETAILS
from yiemagent.pipeline import (
    ABORTED_TEXT,
    Emit,
    FinalizedOutcome,
    ImmediateOutcome,
    PreparedToolCall,
    create_error_tool_result,
    create_tool_result_message,
    execute_prepared_tool_call,
    finalize_executed_tool_call,
    prepare_tool_call,
    should_terminate,
)
from yiemagent.pool import DaemonPool
from yiemagent.record import Record
from yiemagent.relay import OwnCall, Steps
from yiemagent.tool import AgentToolResult

__all__ = [
    "ToolCallBatch",
    "execute_tool_calls",
    "fail_tool_calls",
    "fail_tool_calls_from_truncated_message",
]

logger = logging.getLogger("yiemagent.batch")

TRUNCATED_TEXT = (
    "This call was not run: the answer hit the output limit and was cut off, so the arguments may be "
    "incomplete. Call again, in smaller pieces if the arguments are long."
)


@attrs.frozen(eq=False, repr=False)
class ToolCallBatch(Record):
    """The result messages of one answer's calls, in call order; whether they ask the agent to stop, and whether none
    was run since one waits for approval.
    """

    messages: tuple[ToolResultMessage, ...]
    terminate: bool = False
    is_paused: bool = False


def execute_tool_calls(
    context: AgentContext,
    assistant_message: AssistantMessage,
    config: AgentLoopConfig,
    signal: AbortSignal,
    emit: Emit,
    *,
    pool: DaemonPool,
    begin: Callable[[ToolCall], None] | None = None,
    name: str = "a run",
) -> Steps[ToolCallBatch]:
    """Run the calls of an answer and give their results; every call gets exactly one, whatever happens.

    A generator: it yields each call that is to be made on the run's thread, and is sent what that gave, or None where
    it is given up.

    Args:
        context: what the model was offered.
        assistant_message: the answer.
        config: its hooks, which calls run side by side, and how long an aborted one may go on.
        signal: the run's.
        emit: takes the events, in order.
        pool: runs the calls that run side by side.
        begin: called with each call right before it begins; what it raises keeps the call from running, and is raised
            here.
        name: the run's, for the log.
    """
    batch = _Batch(context, assistant_message, config, signal, emit, begin, name)
    batch.prepare()
    for group in batch.groups():
        if len(group) == 1:
            yield from batch.run_one(group[0])
        else:
            _SideBySide(batch, pool).run(group)
    terminate = should_terminate(batch.outcomes.values())
    return ToolCallBatch(tuple(batch.messages), terminate, batch.is_paused)


def fail_tool_calls(calls: Sequence[ToolCall], text: str, emit: Emit) -> ToolCallBatch:
    """Answer calls that will not run with an error result each."""
    messages = []
    for call in calls:
        emit(ToolExecStartEvent(call.id, call.name, call.arguments))
        outcome = FinalizedOutcome(call, create_error_tool_result(text), is_error=True)
        message = create_tool_result_message(outcome)
        emit(ToolExecEndEvent(call.id, call.name, outcome.result, is_error=True, message=message))
        emit(MessageStartEvent(message))
        emit(MessageEndEvent(message))
        messages.append(message)
    return ToolCallBatch(tuple(messages))


def fail_tool_calls_from_truncated_message(calls: Sequence[ToolCall], emit: Emit) -> ToolCallBatch:
    """Answer the calls of an answer that the output limit cut off: none runs, whatever its arguments look like."""
    return fail_tool_calls(calls, TRUNCATED_TEXT, emit)


@attrs.define(eq=False, repr=False)
class _Running:
    """A call that was begun: its own signal, and when its time is up; infinity: never."""

    prepared: PreparedToolCall
    signal: AbortSignal
    ends_at: float


@attrs.define(eq=False, repr=False)
class _Batch:
    """One batch under way; owned by the run's thread."""

    context: AgentContext
    assistant_message: AssistantMessage
    config: AgentLoopConfig
    signal: AbortSignal
    emit: Emit
    begin: Callable[[ToolCall], None] | None
    name: str
    prepared: dict[int, PreparedToolCall] = attrs.field(factory=dict)
    outcomes: dict[int, FinalizedOutcome] = attrs.field(factory=dict)
    waiting_messages: dict[int, ToolResultMessage] = attrs.field(factory=dict)
    messages: list[ToolResultMessage] = attrs.field(factory=list)
    is_paused: bool = False

    # -- preparing --

    def prepare(self) -> None:
        """Prepare all calls, in order; what may not run is answered at once, and no call where one is to wait."""
        paused: dict[int, FinalizedOutcome] = {}
        for index, call in enumerate(self.assistant_message.tool_calls):
            self.emit(ToolExecStartEvent(call.id, call.name, call.arguments))
            if self.signal.aborted:
                self.settle_failed(index, call, ABORTED_TEXT)
                continue
            prepared = prepare_tool_call(
                self.context, self.assistant_message, call, self.config, self.signal
            )
            if isinstance(prepared, ImmediateOutcome) and prepared.is_paused:
                paused[index] = FinalizedOutcome(call, prepared.result, prepared.is_error)
            elif isinstance(prepared, ImmediateOutcome):
                self.settle(index, FinalizedOutcome(call, prepared.result, prepared.is_error))
            else:
                self.prepared[index] = prepared
        if paused:
            self._pause(paused)

    def _pause(self, paused: dict[int, FinalizedOutcome]) -> None:
        """Answer the calls that wait for approval, and with them those that could run."""
        if self.signal.aborted:  # the others are answered when they are to run
            for index, outcome in paused.items():
                self.settle_failed(index, outcome.tool_call, ABORTED_TEXT)
            return
        self.is_paused = True
        beside = AgentToolResult(BESIDE_TEXT, details=PAUSED_DETAILS)
        for index, prepared in self.prepared.items():
            paused[index] = FinalizedOutcome(prepared.tool_call, beside, is_error=True)
        self.prepared.clear()
        for index in sorted(paused):
            self.settle(index, paused[index])

    def groups(self) -> Iterator[list[int]]:
        """Give the calls that may run as groups: one after another, the calls of one group side by side."""
        indices = list(self.prepared)
        mode = self.config.tool_execution
        if len(indices) < 2 or (mode == "parallel" and self._all_parallel()):
            yield indices
        elif mode != "barrier":
            yield from ([index] for index in indices)
        else:
            group: list[int] = []
            for index in indices:
                if self.prepared[index].tool.parallel_tool_execute:
                    group.append(index)
                    continue
                yield from (part for part in (group, [index]) if part)
                group = []
            if group:
                yield group

    def _all_parallel(self) -> bool:
        tools = (self.context.tools.get(c.name) for c in self.assistant_message.tool_calls)
        return all(tool.parallel_tool_execute for tool in tools if tool is not None)

    # -- running --

    def run_one(self, index: int) -> Steps[None]:
        """Run a call that has nothing beside it, on the run's thread."""
        prepared = self.prepared[index]
        if self.signal.aborted_at is not None:
            self.settle_failed(index, prepared.tool_call, ABORTED_TEXT)
            return
        call = self.begun(prepared)
        work = functools.partial(
            contextvars.copy_context().run, self.finalized, prepared, call.signal
        )
        outcome = yield OwnCall(work, call.ends_at)
        if outcome is None:
            self.leave_behind(index, call, time.monotonic())
        else:
            call.signal.release()
            self.settle(index, outcome)

    def begun(self, prepared: PreparedToolCall) -> _Running:
        """Begin a call: its time counts from here."""
        if self.begin is not None:
            self.begin(prepared.tool_call)
        limit = prepared.tool.timeout_s
        ends_at = math.inf if limit is None else time.monotonic() + limit
        return _Running(prepared, AbortSignal(self.signal), ends_at)

    def finalized(self, prepared: PreparedToolCall, signal: AbortSignal) -> FinalizedOutcome:
        """Make a call and give its outcome; never raises."""
        executed = execute_prepared_tool_call(prepared, signal, self.emit)
        if isinstance(executed, ImmediateOutcome):
            return FinalizedOutcome(prepared.tool_call, executed.result, executed.is_error)
        return finalize_executed_tool_call(
            self.context,
            self.assistant_message,
            prepared,
            executed,
            hooks=self.config,
            signal=signal,
        )

    def grace_over(self, now: float) -> bool:
        """Whether the run was aborted, and user code had its time to return."""
        aborted_at = self.signal.aborted_at
        return aborted_at is not None and now >= aborted_at + self.config.abort_grace_s

    def leave_behind(self, index: int, call: _Running, now: float) -> None:
        """Answer for a call whose time is up; its thread is left behind."""
        tool = call.prepared.tool
        over = self.grace_over(now) or tool.timeout_s is None
        text = ABORTED_TEXT if over else f"{tool.name} timed out after {tool.timeout_s:g} s"
        held_up = waiting(call.signal) if tool.lock else None
        call.signal.abort(text)
        call.signal.release()
        if held_up is not None and held_up.never_began:
            if not over:
                text = f"{tool.name} was not run: it waited {tool.timeout_s:g} s for {held_up.what}"
        elif tool.isolation == "thread":  # else it is ended with its process
            left = "%s: tool %s did not return in time and was left behind: %s"
            logger.warning(left, self.name, tool.name, text)
        self.settle_failed(index, call.prepared.tool_call, text)

    # -- settling --

    def settle_failed(self, index: int, call: ToolCall, text: str) -> None:
        """Answer a call with an error."""
        self.settle(index, FinalizedOutcome(call, create_error_tool_result(text), is_error=True))

    def settle(self, index: int, outcome: FinalizedOutcome) -> None:
        """Tell of a call's end at once, and of its message as soon as all before it are there."""
        call = outcome.tool_call
        message = create_tool_result_message(outcome)
        self.outcomes[index] = outcome
        self.waiting_messages[index] = message
        self.emit(ToolExecEndEvent(call.id, call.name, outcome.result, outcome.is_error, message))
        while len(self.messages) in self.waiting_messages:
            ready = self.waiting_messages.pop(len(self.messages))
            self.messages.append(ready)
            self.emit(MessageStartEvent(ready))
            self.emit(MessageEndEvent(ready))


@attrs.define(eq=False, repr=False)
class _SideBySide:
    """The calls of one group on their workers; owned by the run's thread, except `settled`, which workers write to."""

    batch: _Batch
    pool: DaemonPool
    # (index, outcome) of a call that is done, or None: the run was aborted.
    settled: SimpleQueue[tuple[int, FinalizedOutcome] | None] = attrs.field(factory=SimpleQueue)
    running: dict[int, _Running] = attrs.field(factory=dict)

    def run(self, group: list[int]) -> None:
        """Run the calls, as many at once as the rules allow."""
        wake = self.batch.signal.add_callback(lambda: self.settled.put(None))
        try:
            self._run_all(group)
        except (
            BaseException
        ):  # what tells of the calls can't go on: nobody waits for those that still run
            self._leave()
            raise
        finally:
            wake()

    def _run_all(self, group: list[int]) -> None:
        waiting = deque(group)
        while waiting or self.running:
            while waiting and (self.batch.signal.aborted or self._has_place()):
                self._start(waiting.popleft())
            if not self.running:
                continue
            self._take(self._remaining_s())
            if self.running:
                self._give_up(time.monotonic())

    def _has_place(self) -> bool:
        return len(self.running) < self.batch.config.max_parallel_tools

    def _start(self, index: int) -> None:
        prepared = self.batch.prepared[index]
        if self.batch.signal.aborted:
            self.batch.settle_failed(index, prepared.tool_call, ABORTED_TEXT)
            return
        call = self.running[index] = self.batch.begun(prepared)
        context = contextvars.copy_context()
        try:
            self.pool.start(context.run, self._work, index, prepared, call.signal)
        except RuntimeError as error:  # the interpreter is shutting down, or no thread can be had
            call.signal.release()
            del self.running[index]
            over = self.batch.signal.aborted_at is not None
            text = ABORTED_TEXT if over else f"The call was not run: {error}"
            self.batch.settle_failed(index, prepared.tool_call, text)

    def _work(self, index: int, prepared: PreparedToolCall, signal: AbortSignal) -> None:
        """Run one call; on a worker's thread."""
        self.settled.put((index, self.batch.finalized(prepared, signal)))

    def _remaining_s(self) -> float | None:
        """Seconds until the next time limit or the end of an abort's grace; None: there is none."""
        ends_at = min(call.ends_at for call in self.running.values())
        if self.batch.signal.aborted_at is not None:
            ends_at = min(ends_at, self.batch.signal.aborted_at + self.batch.config.abort_grace_s)
        if ends_at == math.inf:
            return None
        return min(max(0.0, ends_at - time.monotonic()), TIMEOUT_MAX)

    def _take(self, timeout_s: float | None) -> None:
        """Wait for what comes first, and then take all that is there."""
        try:
            settled = self.settled.get(timeout=timeout_s)
        except Empty:
            return
        self._took(settled)
        while not self.settled.empty():  # this thread alone takes, so what is there stays
            self._took(self.settled.get())

    def _took(self, settled: tuple[int, FinalizedOutcome] | None) -> None:
        if settled is not None and settled[0] in self.running:
            self.running.pop(settled[0]).signal.release()
            self.batch.settle(*settled)

    def _give_up(self, now: float) -> None:
        """Answer for calls whose time is up."""
        grace_over = self.batch.grace_over(now)
        for index, call in list(self.running.items()):
            if grace_over or now >= call.ends_at:
                del self.running[index]
                self.batch.leave_behind(index, call, now)

    def _leave(self) -> None:
        """Tell the calls that still run to end; nobody takes what they give."""
        for call in self.running.values():
            call.signal.abort("the run ended")
            call.signal.release()
