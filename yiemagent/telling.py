"""How the events of one run are told: numbered, recorded, folded into the run's progress, and handed to the sinks.

One owner at a time may tell events: the run's own thread and its tools, until somebody claims the run to settle it. The
claim is a compare-and-set under the gate lock; what the loser still emits is dropped and counted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import attrs

from yiemagent.abort import current_signal
from yiemagent.errors import YiemAgentError, error_text, safe_repr
from yiemagent.events import (
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
from yiemagent.messages import AgentMessage, AssistantMessage, ToolCall
from yiemagent.payload import FrozenDict
from yiemagent.progress import Progress

__all__ = ["RunAbandoned", "Telling"]

logger = logging.getLogger("yiemagent.run")

# Events that a record does without.
_UNRECORDED = frozenset(
    {MessageStartEvent, ToolExecStartEvent, ToolExecUpdateEvent, TurnStartEvent}
)
# Owners that tell nothing: the run is over; the interpreter is about to exit.
_OVER = object()
_EXIT = object()


class RunAbandoned(BaseException):
    """Unwinds the thread of a run that somebody else settled; never seen by user code."""


class Telling:
    """The events of one run, on their way to its record, its progress and its sinks.

    Args:
        run_id: the run's.
        name: the run's, for the log.
        progress: what they are folded into.
        sinks: as for `Run`, like the rest.
        record, record_call: see there.
        on_message: see there.
        is_at_work: whether the calling thread does the run's own work, and so may be told by an exception.
    """

    def __init__(
        self,
        run_id: str,
        name: str,
        progress: Progress,
        *,
        sinks: Sequence[EventSink],
        record: Callable[[Event], None] | None,
        record_call: Callable[[ToolCall], None] | None,
        on_message: Callable[[AgentMessage], None],
        is_at_work: Callable[[], bool],
    ) -> None:
        self.dropped = 0
        self.answer: AssistantMessage | None = None  # the first claimer's
        self._run_id = run_id
        self._name = name
        self._record = record
        self._record_call = record_call
        self._unrecorded: Exception | None = (
            None  # what `record` raised last; whoever emits looks at it
        )
        self._logged = ""  # what was logged of that last
        self._on_message = on_message
        self._is_at_work = is_at_work
        # Serialises emission, so that sinks need no locks of their own. Held while sinks run, by the one emitter
        # that may; re-entrant, since a sink may call back into what emits. A settler waits for it briefly only, and
        # then passes it by.
        self.order = threading.RLock()
        # Held while an event is recorded and then admitted, and while the owner changes: what is recorded is told, and
        # the other way round. Taken before the gate; nobody's code runs while it is held.
        self._recording = threading.Lock()
        # The gate: protects the fields below it. Never held while user code runs.
        self.gate = threading.Lock()
        self._owner: object | None = None
        self._closed = False
        self._sequence = 0
        self._progress = progress
        # The event being told, and which sink has it; None: nothing is being told.
        self._delivering: tuple[Event, int] | None = None
        # Guarded by the order lock: what is emitted while a sink of the same thread is being told of something.
        self._later: deque[Event] = deque()
        self._emitting = False
        self._sinks: list[EventSink | None] = list(sinks)
        self._unheard = not sinks and record is None

    # -- the run's own events --

    def emit(self, event: Event) -> None:
        """Number an event, fold it into the state and tell the sinks; any thread of the run may call it.

        On the run's own thread this raises (an exception that only the run's thread sees) once somebody else settled
        the run; on other threads the event is dropped.
        """
        # Asked without the lock, which a tool that emits without end may hold most of the time.
        if self._owner is not None:
            self._drop()
        elif self._unheard:  # nobody to be told in order: it counts, and that is all
            with self.gate:
                owner: object | None = self._owner  # claimed meanwhile, perhaps
                counts = owner is None and self._progress.take(event)
                if counts and event.__class__ is MessageEndEvent:
                    self._on_message(event.message)
            if not counts:
                self._drop()
        else:
            if self._sinks:
                self._emit_in_order(event)
            elif not self._admit(event, None):
                self._drop()
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
            try:
                self._record_call(call)
            except (
                Exception
            ) as error:  # a session's own code; whatever it is, the call must not begin
                self._log_unrecorded(error)
                raise

    def _log_unrecorded(self, error: Exception) -> None:
        """Log why nothing is recorded, once: what closes the run often fails for the same reason."""
        text = error_text(error)
        if text == self._logged:
            return
        self._logged = text
        # Of an error that the session means to give, the words say all.
        trace = None if isinstance(error, YiemAgentError) else error
        logger.error("%s could not be recorded: %s", self._name, text, exc_info=trace)

    def has_logged(self, error: BaseException) -> bool:
        """Whether an error that ended the run was logged as what kept it from being recorded."""
        return self._logged == error_text(error)

    def _stop_unrecorded(self) -> None:
        """End the run whose events can't be recorded: nothing may be asked or run that leaves no trace."""
        error = self._unrecorded
        if error is not None and self._is_at_work():
            raise error  # what closes the run looks at it again

    def _emit_in_order(self, event: Event) -> None:
        with self.order:
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
        with self.gate:
            self.dropped += 1
            abandoned = self._owner is not None and self._owner is not threading.current_thread()
        if abandoned and self._is_at_work():
            raise RunAbandoned

    # -- telling --

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
                self._log_unrecorded(error)
                self._unrecorded = error
            return self._take_in(event, owner)

    def _take_in(self, event: Event, owner: object | None) -> bool:
        with self.gate:
            if self._owner is not owner or not self._progress.take(event):
                return False
            if event.__class__ is MessageEndEvent:
                self._on_message(event.message)
            if self._sinks:  # else nobody sees the event any more
                self._sequence = sequence = self._sequence + 1
                stamp(event, sequence, self._run_id, time.time())
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
        # What a sink waits for is not part of the run: it hears of the end of an aborted one, too.
        outer = current_signal.set(None)
        try:
            failed = self._call_sinks(event, first, owner, skip)
        finally:
            current_signal.reset(outer)
        if self._owner is not owner:
            return
        self._delivering = (
            None  # needs no lock: who took the run over has read it, and nobody reads it again
        )
        for index, error in failed:
            self._sink_failed(index, error, owner)

    def _call_sinks(
        self, event: Event, first: int, owner: object | None, skip: int
    ) -> list[tuple[int, BaseException]]:
        """Give what the sinks raised."""
        failed: list[tuple[int, BaseException]] = []
        for index, sink in enumerate(self._sinks):
            if sink is None or index < first or index == skip:
                continue
            # The first sink's turn was noted when the event was admitted: every event needs that, and locks cost.
            if index and not self._note_turn(event, index, owner):
                break
            try:
                sink(event)
            except BaseException as raised:  # a sink may raise anything; it never changes the run
                failed.append((index, raised))
        return failed

    def _note_turn(self, event: Event, index: int, owner: object | None) -> bool:
        """Note which sink is told next; gives False where the run is not `owner`'s any more."""
        with self.gate:
            if self._owner is not owner:
                return False
            self._delivering = (event, index)
            return True

    def _sink_failed(self, index: int, error: BaseException, owner: object | None) -> None:
        """Log a failing sink once per run, and tell the others."""
        if index in self._progress.failed_sinks:
            return
        self._progress.failed_sinks.add(index)
        sink = safe_repr(self._sinks[index])
        logger.warning("event sink %s raised", sink, exc_info=error)
        text = error_text(error)
        notice = SinkFailedEvent(
            f"an event sink raised {text}", FrozenDict({"sink": sink, "error": text})
        )
        self._tell(notice, owner, skip=index)

    # -- whose they are --

    def is_owned_by(self, owner: object | None) -> bool:
        """Whether the run is `owner`'s; None: nobody claimed it."""
        return self._owner is owner

    def claim(
        self, answer: AssistantMessage, *, may: Callable[[bool], bool]
    ) -> tuple[Event, int] | bool | None:
        """Take the run over for the calling thread; gives False where it may not, else what was being delivered.

        Args:
            answer: the run's, if this is the first claim.
            may: asked under the gate whether it may, with whether this is the first claim.
        """
        with self._recording, self.gate:
            if self._owner in (_OVER, _EXIT) or not may(self._owner is None):
                return False
            self._owner = threading.current_thread()
            self.answer = self.answer or answer
            return self._delivering

    def deliver_rest(self, stuck: tuple[Event, int], owner: object, *, gone: bool) -> None:
        """Tell the other sinks of an event that the run was telling when it was claimed.

        Args:
            stuck: the event, and the sink that was told of it last.
            owner: who claimed the run.
            gone: whether that sink is still busy, and gets no more.
        """
        event, index = stuck
        if gone:
            sink, self._sinks[index] = safe_repr(self._sinks[index]), None
            logger.warning("event sink %s is still busy and gets no more of this run", sink)
        self._deliver(event, index + 1, owner)

    def emit_as(self, event: Event, owner: object) -> bool:
        """Tell an event as the run's owner; gives whether it still is."""
        self._tell(event, owner)
        return self._owner is owner

    def close(self, owner: object) -> bool:
        """Note that `owner` closes the run; gives whether it is the first to."""
        with self.gate:
            closing = self._owner is owner and not self._closed
            self._closed = self._closed or closing
            return closing

    def finish(self, owner: object) -> bool:
        """Tell nothing more; gives whether the run was `owner`'s up to here, as it is for one thread alone."""
        with self.gate:
            finishing = self._owner is owner
            if finishing:
                self._owner = _OVER
            return finishing

    def name_what_is_unrecorded(self) -> AssistantMessage:
        """Give the answer; that of a run which failed says so where what closed it could not be recorded either."""
        answer, error = self.answer, self._unrecorded
        assert answer is not None
        self._unrecorded = None
        text = "" if error is None else error_text(error)
        before = answer.error_message or ""
        if text and text not in before:
            text = f"{before}; {text}".removeprefix("; ")
            answer = self.answer = attrs.evolve(answer, error_message=text)
        return answer

    def shut(self) -> bool:
        """Tell nothing more: the interpreter is about to exit; gives False where the run was over."""
        with self.gate:
            going_on = self._owner is not _OVER
            if going_on:
                self._owner = _EXIT
            return going_on

    def forsake(self) -> None:
        """Tell nothing more: this is a forked child, and the run its parent's."""
        self.gate = threading.Lock()  # a thread that stayed behind may hold the other
        self._owner = _EXIT
