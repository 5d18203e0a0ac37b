"""One `run_loop` on one daemon thread: ordered events, abort, and an end that comes exactly once.

A run is settled by whoever claims it: its own thread, when the loop has given the answer or raised; or, when an
abort's grace is over and user code still holds that thread, a settler. A settler also takes over from a thread that a
sink holds while it settles, an earlier settler's included. The claim is a compare-and-set under the gate lock; what
the loser still emits is dropped and counted. The settler closes what is open from what was emitted so far, so every
Start has its End on that path too.
"""

from __future__ import annotations

import atexit
import contextvars
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import attrs

from yiemagent.abort import AbortSignal, Deadline
from yiemagent.errors import error_text
from yiemagent.events import (
    AgentEndEvent,
    Event,
    EventSink,
    MessageEndEvent,
    MessageStartEvent,
    SinkFailedEvent,
    ToolExecStartEvent,
    ToolExecUpdateEvent,
    TurnStartEvent,
    stamp,
)
from yiemagent.loop import made_answer
from yiemagent.messages import (
    AgentMessage,
    AssistantMessage,
    ToolCall,
)
from yiemagent.payload import FrozenDict
from yiemagent.progress import Progress
from yiemagent.state import AgentState

__all__ = ["Run"]

logger = logging.getLogger("yiemagent.run")

# How much longer than user code's grace the settler waits: in it the run's own thread settles what the grace left;
# and how long it then lets a sink go on.
_SETTLE_AFTER_S = 0.05
_EXIT_WAIT_S = 0.5


# Events that a record does without.
_UNRECORDED = frozenset(
    {MessageStartEvent, ToolExecStartEvent, ToolExecUpdateEvent, TurnStartEvent}
)


class RunAbandoned(BaseException):
    """Unwinds a run's thread that somebody else settled; never seen outside this room."""


def _quiet(_message: AgentMessage) -> None:
    """Watch nothing."""


def _nothing() -> None:
    """Close nothing."""


class Run:
    """One run: its thread, its signal, its events, its answer.

    Args:
        work: does the run and gives its answer; called once, on the run's thread, with this run.
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
        on_done: called when the run is over, its last event included.
    """

    def __init__(
        self,
        work: Callable[[Run], AssistantMessage],
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
    ) -> None:
        self.id = os.urandom(16).hex()
        self.name = name
        self.signal = signal or AbortSignal()
        self.answer: AssistantMessage | None = None
        self.dropped = 0
        self._work = work
        self._record = record
        self._record_call = record_call
        self._unrecorded: Exception | None = (
            None  # what `record` raised last; whoever emits looks at it
        )
        self._grace_s = grace_s
        self._context = context or contextvars.copy_context()
        self._on_message = on_message
        self._close_gate = close_gate
        self._on_done = on_done
        # Serialises emission, so that sinks need no locks of their own. Held while sinks run, by the one emitter
        # that may; re-entrant, since a sink may call back into what emits. A settler waits for it briefly only, and
        # then passes it by.
        self._order = threading.RLock()
        # Held while an event is recorded and then admitted, and while the owner changes: what is recorded is told, and
        # the other way round. Taken before the gate; nobody's code runs while it is held.
        self._recording = threading.Lock()
        # The gate: protects the fields below it. Never held while user code runs.
        self._gate = threading.Lock()
        self._owner: object | None = None
        self._closed = False
        self._sequence = 0
        self._progress = Progress(tuple(prompts), state)
        # The event being told, and which sink has it; None: nothing is being told.
        self._delivering: tuple[Event, int] | None = None
        # Guarded by the order lock: what is emitted while a sink of the same thread is being told of something.
        self._later: deque[Event] = deque()
        self._emitting = False
        self._sinks: list[EventSink | None] = list(sinks)
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._unwatch: Callable[[], object] = _nothing

    # -- the thread --

    def start(self) -> None:
        """Start the run's thread."""
        _remember(self)
        self._unwatch = self.signal.add_callback(self._settle_later)
        self._thread = threading.Thread(
            target=self._context.run, args=(self._serve,), name=self.name, daemon=True
        )
        try:
            self._thread.start()
        except (
            RuntimeError
        ):  # the interpreter is shutting down, or no thread can be had: this is an abort
            self.signal.abort("no thread could be started")
            self._thread = None
            self._settle(made_answer("aborted", "no thread could be started"))

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until the run is over; gives whether it is."""
        return self._done.wait(timeout_s)

    @property
    def done(self) -> bool:
        """Whether the run is over, its last event included."""
        return self._done.is_set()

    @property
    def state(self) -> AgentState:
        """The state that the events so far lead to; the same object until one changes something."""
        with self._gate:
            return self._progress.state()

    @property
    def new_messages(self) -> tuple[AgentMessage, ...]:
        """What the run added to the history so far, oldest first."""
        return tuple(self._progress.new)

    def _serve(self) -> None:
        try:
            answer = self._work(self)
        except RunAbandoned:
            return
        except BaseException as error:  # hooks and models may raise anything: the run failed
            if self._owner is None:
                logger.exception("%s failed", self.name)
            answer = self._failed_answer(error)
        self._settle(answer)

    def _failed_answer(self, error: BaseException) -> AssistantMessage:
        last = self._progress.last_answer
        if self.signal.aborted:
            return made_answer("aborted", _why(self.signal), last)
        return made_answer("error", error_text(error), last)

    # -- events --

    def emit(self, event: Event) -> None:
        """Number an event, fold it into the state and tell the sinks; any thread of the run may call it.

        On the run's own thread this raises (an exception that only the run's thread sees) once somebody else settled
        the run; on other threads the event is dropped.
        """
        # Asked without the lock, which a tool that emits without end may hold most of the time.
        if self._owner is not None:
            self._drop()
        elif not self._sinks:  # nobody to be told in order
            if not self._admit(event, None):
                self._drop()
        else:
            self._emit_in_order(event)
        if self._unrecorded is not None:
            self._stop_unrecorded()

    def begin_call(self, call: ToolCall) -> None:
        """Have it recorded that a tool call begins; on the run's own thread, right before it does.

        Raises:
            Exception: it is not recorded, so the call must not begin, and the run ends.
        """
        if self._record_call is None:
            return
        with self._recording:
            if self._owner is not None:
                raise RunAbandoned
            self._record_call(call)

    def _stop_unrecorded(self) -> None:
        """End the run whose events can't be recorded: nothing may be asked or run that leaves no trace."""
        error = self._unrecorded
        if error is not None and threading.current_thread() is self._thread:
            raise error  # what closes the run looks at it again

    def _emit_in_order(self, event: Event) -> None:
        with self._order:
            if self._emitting:  # a sink called back: all sinks get what it was told of first
                self._later.append(event)
                return
            self._emitting = True
            try:
                if not self._tell(event, None):
                    self._drop()
                while self._later:
                    if not self._tell(self._later.popleft(), None):
                        self._drop()
            finally:
                self._emitting = False

    def _drop(self) -> None:
        thread = self._thread
        with self._gate:
            self.dropped += 1
            abandoned = self._owner not in (None, thread)
        if abandoned and threading.current_thread() is thread:
            raise RunAbandoned

    def _admit(self, event: Event, owner: object | None) -> bool:
        """Record an event, number it and fold it in; gives False where `owner` may not emit it."""
        if self._record is None or event.__class__ in _UNRECORDED:
            return self._take_in(event, owner)
        with self._recording:
            if self._owner is not owner or self._progress.ended:
                return False
            try:
                self._record(event)
            except Exception as error:  # it is told all the same, and then the run ends
                logger.warning("%s could not be recorded: %s", self.name, error_text(error))
                self._unrecorded = error
            return self._take_in(event, owner)

    def _take_in(self, event: Event, owner: object | None) -> bool:
        with self._gate:
            if self._owner is not owner or not self._progress.take(event):
                return False
            self._sequence = sequence = self._sequence + 1
            stamp(event, sequence, self.id, time.time())
            if event.__class__ is MessageEndEvent:
                self._on_message(event.message)
            if self._sinks:
                self._delivering = (event, 0)
        return True

    def _tell(self, event: Event, owner: object | None, *, skip: int = -1) -> bool:
        """Admit an event and tell the sinks, except `skip`; gives False where `owner` may not emit it."""
        if not self._admit(event, owner):
            return False
        if self._sinks:
            self._deliver(event, 0, owner, skip=skip)
        return True

    def _deliver(self, event: Event, first: int, owner: object | None, *, skip: int = -1) -> None:
        """Call the sinks from `first` on, except `skip`, as long as the run is `owner`'s."""
        failed: list[tuple[int, BaseException]] = []
        for index, sink in enumerate(self._sinks):
            if sink is None or index < first or index == skip:
                continue
            # The first sink's turn was noted when the event was admitted: every event needs that, and locks cost.
            if index and not self._note_turn(event, index, owner):
                return
            try:
                sink(event)
            except BaseException as raised:  # a sink may raise anything; it never changes the run
                failed.append((index, raised))
        if self._owner is not owner:
            return
        self._delivering = (
            None  # needs no lock: who took the run over has read it, and nobody reads it again
        )
        for index, error in failed:
            self._sink_failed(index, error, owner)

    def _note_turn(self, event: Event, index: int, owner: object | None) -> bool:
        """Note which sink is told next; gives False where the run is not `owner`'s any more."""
        with self._gate:
            if self._owner is not owner:
                return False
            self._delivering = (event, index)
            return True

    def _sink_failed(self, index: int, error: BaseException, owner: object | None) -> None:
        """Log a failing sink once per run, and tell the others."""
        if index in self._progress.failed_sinks:
            return
        self._progress.failed_sinks.add(index)
        sink = _shown(self._sinks[index])
        logger.warning("event sink %s raised", sink, exc_info=error)
        text = error_text(error)
        notice = SinkFailedEvent(
            f"an event sink raised {text}", FrozenDict({"sink": sink, "error": text})
        )
        self._tell(notice, owner, skip=index)

    # -- the end --

    def _settle_later(self) -> None:
        """Settle the run without its thread, should that not do it within the grace; called by the abort."""
        settler = threading.Thread(
            target=self._context.copy().run,
            args=(self._settle_late,),
            name=f"{self.name}-settle",
            daemon=True,
        )
        try:
            settler.start()
        except (
            RuntimeError
        ):  # the interpreter is shutting down: nobody waits for an answer any more
            logger.debug("no settler for %s", self.name)

    def _settle_late(self) -> None:
        limit = min(self._grace_s + _SETTLE_AFTER_S, threading.TIMEOUT_MAX)
        if not self._done.wait(limit):
            self._settle_later()  # should a sink hold this thread, too
            self._settle(made_answer("aborted", _why(self.signal), self._progress.last_answer))

    def _claim(self, answer: AssistantMessage) -> tuple[Event, int] | bool | None:
        """Take the run over; gives False where somebody has it for good, else what was being delivered.

        A settler takes it from whoever settles already, since a sink may hold that thread. The answer is the first
        claimer's.
        """
        mine = threading.current_thread()
        with self._recording, self._gate:
            lost = self._owner is not None and mine is self._thread
            if lost or self._owner is _EXIT or self._done.is_set():
                return False
            self._owner = mine
            self.answer = self.answer or answer
            return self._delivering

    def _settle(self, answer: AssistantMessage) -> None:
        """Close what is open, the gate, and the run; once."""
        owner = threading.current_thread()
        if owner is self._thread:
            with self._order:  # an update that is being delivered comes first
                over = self._claim(answer) is not False and self._close(owner)
        else:
            over = self._take_over(answer, owner)
        if over:
            self._unwatch()
            _live.pop(self.id, None)
            self._done.set()
            self._on_done()

    def _take_over(self, answer: AssistantMessage, owner: threading.Thread) -> bool:
        """Settle the run for its thread; a sink that is busy, and stays so for a moment, gets no more of it."""
        stuck = self._claim(answer)
        if stuck is False:
            return False
        free = self._order.acquire(timeout=_SETTLE_AFTER_S)
        try:
            if isinstance(stuck, tuple):
                event, index = stuck
                if not free:
                    sink, self._sinks[index] = _shown(self._sinks[index]), None
                    logger.warning("event sink %s is still busy and gets no more of this run", sink)
                self._deliver(event, index + 1, owner)
            return self._close(owner)
        finally:
            if free:
                self._order.release()

    def _close(self, owner: object) -> bool:
        """Emit what the run owes, and its end; gives whether it was `owner`'s up to the last event."""
        answer = self.answer
        assert answer is not None
        for event in self._progress.missing_ends(answer):
            if not self._emit_as(event, owner):
                return False
        answer = self._told_of_what_is_unrecorded(answer)
        with self._gate:
            closing = self._owner is owner and not self._closed
            self._closed = self._closed or closing
        if closing:
            self._close_gate()
        if not self._progress.ended:
            new = tuple(self._progress.new)
            self._emit_as(AgentEndEvent(new, answer, self._progress.usage()), owner)
        return self._owner is owner

    def _told_of_what_is_unrecorded(self, answer: AssistantMessage) -> AssistantMessage:
        """Have the answer of a run that failed say so where what closed it could not be recorded either."""
        error, self._unrecorded = self._unrecorded, None
        text = "" if error is None else error_text(error)
        before = answer.error_message or ""
        if text and text not in before:
            self.answer = attrs.evolve(answer, error_message=f"{before}; {text}".removeprefix("; "))
        return self.answer or answer

    def _emit_as(self, event: Event, owner: object) -> bool:
        self._tell(event, owner)
        return self._owner is owner

    def shut(self) -> None:
        """Emit nothing more and settle nothing; the interpreter is about to exit."""
        with self._gate:
            self._owner = _EXIT
        self._unwatch()
        self.signal.abort("the interpreter exits")

    def join(self, timeout_s: float | None) -> None:
        """Wait for the run's thread to end."""
        if self._thread is not None:
            self._thread.join(timeout_s)


_EXIT = object()


def _shown(sink: object) -> str:
    try:
        return repr(sink)
    except Exception:  # a sink is anybody's object, and so is its repr
        return type(sink).__name__


def _why(signal: AbortSignal) -> str:
    return f"aborted: {signal.reason}" if signal.reason else "aborted"


# --- interpreter exit and fork
# ------------------------------------------------------------------------------------------

# The runs going on. A dict, whose single steps are atomic: no lock is needed, and none stays locked in a forked child.
_live: dict[str, Run] = {}
_hooked: list[bool] = []


def _remember(run: Run) -> None:
    _live[run.id] = run
    if not _hooked:
        _hooked.append(True)
        atexit.register(_at_exit)
        # The parent's runs have no threads in a child.
        os.register_at_fork(after_in_child=_live.clear)


def _at_exit() -> None:
    """Close every run's gate, set every signal, and give the threads a moment."""
    runs = list(_live.values())
    for run in runs:
        run.shut()
    deadline = Deadline(_EXIT_WAIT_S)
    for run in runs:
        run.join(deadline.remaining_s())
