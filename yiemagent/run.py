"""One `run_loop` on one thread: ordered events, abort, and an end that comes exactly once.

The loop hands out the calls that it makes on this thread. Where one does not return in time, its thread is left behind
and another goes on with the loop, as the run's thread from then on, and with whatever comes after the run.

A run is settled by whoever claims it: its own thread, when the loop has given the answer or raised; or, when an
abort's grace is over and user code still holds that thread, a settler. A settler also takes over from a thread that a
sink holds while it settles, an earlier settler's included. The settler closes what is open from what was emitted so
far, so every Start has its End on that path too.
"""

from __future__ import annotations

import atexit
import contextvars
import functools
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from yiemagent.abort import AbortSignal, Deadline, current_signal
from yiemagent.daemon import DaemonThread
from yiemagent.errors import AbortedError, error_text
from yiemagent.events import AgentEndEvent, Event, EventSink
from yiemagent.loop import made_answer
from yiemagent.messages import AgentMessage, AssistantMessage, ToolCall
from yiemagent.progress import Progress
from yiemagent.relay import LeftBehind, OwnCall, Relay, Steps
from yiemagent.state import AgentState
from yiemagent.telling import RunAbandoned, Telling
from yiemagent.watch import Watch

__all__ = ["Run", "call_watch"]

logger = logging.getLogger("yiemagent.run")

# How much longer than user code's grace the settler waits: in it the run's thread settles what the grace left; and how
# long it then lets a sink go on.
_SETTLE_AFTER_S = 0.05
_EXIT_WAIT_S = 0.5
_TRY_AGAIN_S = 1.0


def _quiet(_message: AgentMessage) -> None:
    """Watch nothing."""


def _nothing() -> None:
    """Close nothing."""


class Run:
    """One run: its thread, its signal, its events, its answer.

    Args:
        work: does the run, in steps, and gives its answer; called once, on the run's thread, with this run.
        name: the thread's.
        state: what the run begins with.
        prompts: messages that the run begins with; they enter the history on every path.
        sinks: called with each event, in order, one event at a time; what they raise changes nothing.
        record: called with each event before anybody is told of it, one at a time, except for those that tell nothing
            that others do not: starts of turns, messages and tools, progress of tools. May block for as long as a
            write does. What it raises ends the run with an error.
        record_call: called with each tool call before it begins, and like `record` otherwise.
        signal: the run's.
        grace_s: seconds that user code has to return after an abort.
        context: the context variables to run in.
        on_message: called with each message that enters the history, before the sinks and under the gate; the owner's
            own, must not raise, block or emit.
        close_gate: called just before AgentEnd: what arrives afterwards belongs to the next run.
        on_done: called when the run is over, its last event included, by another thread than that which called
            `serve`; goes on in its place.
        on_exit: called instead where the interpreter is about to exit, in the middle of anything.
    """

    def __init__(
        self,
        work: Callable[[Run], Steps[AssistantMessage]],
        *,
        name: str,
        state: AgentState,
        prompts: Sequence[AgentMessage] = (),
        sinks: Sequence[EventSink] = (),
        record: Callable[[Event], None] | None = None,
        record_call: Callable[[ToolCall], None] | None = None,
        signal: AbortSignal | None = None,
        grace_s: float = 1.0,
        context: contextvars.Context | None = None,
        on_message: Callable[[AgentMessage], None] = _quiet,
        close_gate: Callable[[], None] = _nothing,
        on_done: Callable[[], None] = _nothing,
        on_exit: Callable[[], None] = _nothing,
    ) -> None:
        self.id = os.urandom(16).hex()
        self.name = name
        self.signal = signal or AbortSignal()
        self._relay = Relay(self._steps(work), call_watch.ask)
        self._grace_s = grace_s
        self._context = context or contextvars.copy_context()
        self._close_gate = close_gate
        self._on_done = on_done
        self._on_exit = on_exit
        self._progress = Progress(tuple(prompts), state)
        self._telling = Telling(
            self.id,
            name,
            self._progress,
            sinks=sinks,
            record=record,
            record_call=record_call,
            on_message=on_message,
            is_at_work=self._relay.is_at_work,
        )
        self.emit = self._telling.emit
        self.begin_call = self._telling.begin_call
        self._done = threading.Event()
        self._unwatch: Callable[[], object] = _nothing
        self._settles_at = math.inf  # when a settler is due that got no thread

    # -- the thread --

    def serve(self) -> bool:
        """Do the run on this thread; gives whether it is over, else `on_done` will be called once it is.

        Whoever calls this is a user of `call_watch`, until the run is over.
        """
        _remember(self)
        self._unwatch = self.signal.add_callback(self._settle_later)
        return self._context.run(self._go_on)

    def start(self) -> None:
        """Do the run on a thread of its own; `on_done` is called in any case."""
        call_watch.enter()
        then = self._on_done

        def done() -> None:
            call_watch.leave()
            then()

        def serve() -> None:
            if self.serve():
                done()

        self._on_done = done
        thread = self._relay.thread = DaemonThread(target=serve, name=self.name)
        try:
            thread.start()
        except (
            RuntimeError
        ):  # the interpreter is shutting down, or no thread can be had: this is an abort
            self.signal.abort("no thread could be started")
            self._relay.thread = None
            if self._settle(made_answer("aborted", "no thread could be started")):
                done()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until the run is over; gives whether it is."""
        return self._done.wait(timeout_s)

    @property
    def done(self) -> bool:
        """Whether the run is over, its last event included."""
        return self._done.is_set()

    @property
    def answer(self) -> AssistantMessage | None:
        """The run's answer; None while it is going on."""
        return self._telling.answer

    @property
    def dropped(self) -> int:
        """How many events came too late to be told."""
        return self._telling.dropped

    @property
    def state(self) -> AgentState:
        """The state that the events so far lead to; the same object until one changes something."""
        with self._telling.gate:
            return self._progress.state()

    @property
    def new_messages(self) -> tuple[AgentMessage, ...]:
        """What the run added to the history so far, oldest first."""
        return tuple(self._progress.new)

    def _steps(self, work: Callable[[Run], Steps[AssistantMessage]]) -> Steps[AssistantMessage]:
        """Give the work as steps that begin, and raise what they raise, on the run's thread."""
        current_signal.set(self.signal)  # in the run's own context
        return (yield from work(self))

    def _go_on(self) -> bool:
        """Go on with the loop on this thread; gives whether the run is over by it."""
        try:
            answer = self._relay.go_on()
        except (LeftBehind, RunAbandoned):
            return False
        except BaseException as error:  # hooks and models may raise anything: the run failed
            ended = self.signal.aborted and isinstance(error, AbortedError)
            if self._telling.is_owned_by(None) and not (ended or self._telling.has_logged(error)):
                logger.exception("%s failed", self.name)
            answer = self._failed_answer(error)
        return self._settle(answer)

    def _failed_answer(self, error: BaseException) -> AssistantMessage:
        last = self._progress.last_answer
        if self.signal.aborted:
            return made_answer("aborted", self.signal.why, last)
        return made_answer("error", error_text(error), last)

    # -- calls that do not return --

    def look(self, now: float) -> float:
        """Have a successor go on where the call under way has had its time, and a settler begin that could not when it
        should; gives when to look again, or infinity.

        Args:
            now: on the clock of `time.monotonic`, as what it gives.
        """
        if now >= self._settles_at:
            self._settles_at = math.inf
            self._settle_later(0.0)
        return min(self._look_at_call(now), self._settles_at)

    def _look_at_call(self, now: float) -> float:
        call = self._relay.call
        if call is None or call.is_over:  # the next asks for itself
            return math.inf
        if now < call.ends_at:
            return call.ends_at
        try:
            self._start_another("next", functools.partial(self._succeed, call))
        except RuntimeError as error:
            logger.warning("no thread to go on with %s: %s", self.name, error)
            return now + _TRY_AGAIN_S
        return math.inf

    def _succeed(self, call: OwnCall) -> bool:
        """Go on in place of the thread that makes a call, unless it is back; gives whether the run is over by it."""
        return call.take() and self._context.copy().run(self._go_on)

    def _start_another(self, what: str, step: Callable[[], bool]) -> None:
        """Start a thread for a step, and for what comes after the run, where it is over by that."""
        then = [self._on_done, step]
        DaemonThread(target=_do_and_go_on, args=(then,), name=f"{self.name}-{what}").start()

    # -- the end --

    def _settle_later(self, grace_s: float | None = None) -> None:
        """Settle the run without its thread, should that not do it within the grace; called by the abort."""
        grace_s = self._grace_s if grace_s is None else grace_s
        try:
            self._start_another("settle", functools.partial(self._settle_late, grace_s))
        except RuntimeError as error:
            logger.warning("no thread to settle %s: %s", self.name, error)
            self._settles_at = time.monotonic() + max(grace_s, _TRY_AGAIN_S)
            call_watch.ask(self._settles_at)

    def _settle_late(self, grace_s: float) -> bool:
        if self._done.wait(Deadline(grace_s).remaining_s()):
            return False
        if self._relay.take():
            self._settle_later(0.0)  # should user code hold this thread, too
            return self._context.copy().run(self._go_on)
        if self._done.wait(_SETTLE_AFTER_S):
            return False
        answer = made_answer("aborted", self.signal.why, self._progress.last_answer)
        # The next one is for a sink that holds this thread, too. It begins behind the claim: while a disk holds that
        # up, more who wait for it help nobody.
        return self._context.copy().run(self._settle, answer, self._settle_later)

    def _claim(self, answer: AssistantMessage) -> tuple[Event, int] | bool | None:
        """Take the run over; gives False where somebody has it for good, else what was being delivered.

        A settler takes it from whoever settles already, since a sink may hold that thread.
        """

        def may(is_first: bool) -> bool:  # noqa: FBT001 - as the contract says
            return is_first or threading.current_thread() is not self._relay.thread

        return self._telling.claim(answer, may=may)

    def _settle(self, answer: AssistantMessage, claimed: Callable[[], object] = _nothing) -> bool:
        """Close what is open, the gate, and the run; gives whether it is over by this thread, as it is by one alone."""
        owner = threading.current_thread()
        if owner is self._relay.thread:
            with self._telling.order:  # an update that is being delivered comes first
                closed = self._claim(answer) is not False and self._close(owner)
        else:
            closed = self._take_over(answer, owner, claimed)
        if not (closed and self._telling.finish(owner)):
            return False
        if owner is self._relay.thread:
            self._relay.thread = None  # it goes on with other work, and is not told by exceptions
        self._unwatch()
        _live.pop(self.id, None)
        self._done.set()
        return True

    def _take_over(
        self, answer: AssistantMessage, owner: threading.Thread, claimed: Callable[[], object]
    ) -> bool:
        """Settle the run for its thread; a sink that is busy, and stays so for a moment, gets no more of it."""
        stuck = self._claim(answer)
        if stuck is False:
            return False
        claimed()
        order = self._telling.order
        free = order.acquire(timeout=_SETTLE_AFTER_S)
        try:
            if isinstance(stuck, tuple):
                self._telling.deliver_rest(stuck, owner, gone=not free)
            return self._close(owner)
        finally:
            if free:
                order.release()

    def _close(self, owner: object) -> bool:
        """Emit what the run owes, and its end; gives whether it was `owner`'s up to the last event."""
        answer, telling = self.answer, self._telling
        assert answer is not None
        for event in self._progress.missing_ends(answer):
            if not telling.emit_as(event, owner):
                return False
        answer = telling.name_what_is_unrecorded()
        if telling.close(owner):
            self._close_gate()
        if self._progress.ended:
            return telling.is_owned_by(owner)
        new = tuple(self._progress.new)
        return telling.emit_as(AgentEndEvent(new, answer, self._progress.usage()), owner)

    def shut(self) -> None:
        """Emit nothing more and settle nothing; the interpreter is about to exit."""
        going_on = self._telling.shut()
        self._unwatch()
        self.signal.abort("the interpreter exits")
        if going_on:  # else its thread goes on with what comes after it
            self._done.set()  # as much as it ever will be: nobody should wait for it
            self._on_exit()

    def forsake(self) -> None:
        """End the calling thread's part in a run of the parent's, at the next event; this is a forked child."""
        self._telling.forsake()

    def join(self, timeout_s: float | None) -> None:
        """Wait for the run's thread to end."""
        thread = self._relay.thread
        if thread is not None:
            thread.join(Deadline(timeout_s).remaining_s())


def _do_and_go_on(then: list[Callable[[], Any]]) -> None:
    """Do the last of two, and then the other, where the last gives that the run is over.

    They are taken out of the list: an agent that goes on here for long keeps no run that is over.
    """
    if then.pop()():
        then.pop()()


# --- interpreter exit and fork
# ------------------------------------------------------------------------------------------

# The runs going on. A dict, whose single steps are atomic: no lock is needed, and none stays locked in a forked child.
_live: dict[str, Run] = {}
_hooked: list[bool] = []


def _look() -> float:
    """Look at the calls of all runs; gives when to look again."""
    now = time.monotonic()
    return min((run.look(now) for run in tuple(_live.values())), default=math.inf)


call_watch = Watch(_look)
"""Sees to the time limits of the calls that runs make on their own threads."""


def _remember(run: Run) -> None:
    _live[run.id] = run
    if not _hooked:
        _hooked.append(True)
        atexit.register(_at_exit)
        # The parent's runs have no threads in a child.
        os.register_at_fork(after_in_child=_forsake)


def _forsake() -> None:
    """Leave the runs to the parent: a thread that was forked in the middle of one does no more of it."""
    for run in _live.values():
        run.forsake()
    _live.clear()


def _at_exit() -> None:
    """Close every run's gate, set every signal, and give the threads a moment."""
    runs = list(_live.values())
    for run in runs:
        run.shut()
    deadline = Deadline(_EXIT_WAIT_S)
    for run in runs:
        run.join(deadline.remaining_s())
