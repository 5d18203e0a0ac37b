"""One request on its way, its place in the queue, and the clock that ends it.

The caller's own thread waits, for the answer, for its deadline and for its abort signal at once, and runs the callbacks
for progress; whoever reads from the server only puts things into the call's queue and so never waits for anybody.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from yiemagent.abort import AbortSignal, Deadline
from yiemagent.errors import McpError, McpProtocolError, McpTimeout
from yiemagent.mcp.client_protocol import Progress
from yiemagent.mcp.jsonrpc import ErrorResponse, Response
from yiemagent.mcp.threads import start_daemon

__all__ = ["Alarm", "Call", "Gate", "ProgressCallback", "unreadable"]

logger = logging.getLogger("yiemagent.mcp.calls")

ProgressCallback: TypeAlias = Callable[[Mapping[str, Any]], object]

_MAX_PROGRESS_WAITING = 256
_SUSPECT_GRACE_S = 1.0
_ABORTED = object()


class Call:
    """A request that one thread waits for and others answer.

    Args:
        method: what is asked, for texts.
        signal: ends the waiting within 0.1 s of being set; None: nothing does.
        timeout_s: limit for all of it; None: none.
        idle_timeout_s: limit for each wait for the answer or a word of progress, within `timeout_s`; None: none.
        on_progress: is told each progress notification's params, in order, on the waiting thread.
    """

    def __init__(
        self,
        method: str,
        *,
        signal: AbortSignal | None = None,
        timeout_s: float | None = None,
        idle_timeout_s: float | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> None:
        self.method = method
        self.signal = signal
        self.on_progress = on_progress
        self.deadline = Deadline(timeout_s)
        self._timeout_s = timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._idle = Deadline(idle_timeout_s)
        self._events: SimpleQueue[Any] = SimpleQueue()
        self._suspicion: _Suspicion | None = None
        self._grace = Deadline(None)

    def put(self, event: Response | ErrorResponse | Progress | McpError) -> None:
        """Hand something to the waiting thread: the answer, progress, or the error that ends the call.

        Progress that piles up behind a slow callback is dropped, since each word of it replaces the last.
        """
        if event.__class__ is not Progress or self._events.qsize() < _MAX_PROGRESS_WAITING:
            self._events.put(event)

    def suspect(self, reason: str) -> None:
        """Note that what may have been the answer can't be read: the call ends soon unless its answer comes."""
        self._events.put(_Suspicion(reason))

    def wait(self) -> Response | ErrorResponse:
        """Wait for the answer.

        Raises:
            AbortedError: the signal was set.
            McpTimeout: a time limit was reached.
            McpError: what `put` was given.
        """
        with self.watching():
            while True:
                event = self._next()
                if event.__class__ is Response or event.__class__ is ErrorResponse:
                    answer: Response | ErrorResponse = event
                    return answer
                if event.__class__ is Progress:
                    self.progressed(event)
                elif event is _ABORTED:
                    self.check()
                elif event.__class__ is _Suspicion:
                    self._suspicion, self._grace = event, Deadline(_SUSPECT_GRACE_S)
                else:
                    raise copy.copy(
                        event
                    ) from event  # one error may end many calls, each in its thread

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Have the signal wake `wait` in a `with` block."""
        if self.signal is None:
            yield
            return
        remove = self.signal.add_callback(functools.partial(self._events.put, _ABORTED))
        try:
            yield
        finally:
            remove()

    def check(self) -> None:
        """Raise where the call is over by now.

        Raises:
            AbortedError: the signal was set.
            McpTimeout: a time limit was reached.
        """
        if self.signal is not None:
            self.signal.raise_if_aborted()
        if self.remaining_s() == 0.0:
            raise self.too_late()

    def progressed(self, event: Progress) -> None:
        """Begin the idle limit anew and tell the callback."""
        self._idle = Deadline(self._idle_timeout_s)
        if self.on_progress is None:
            return
        try:
            self.on_progress(event.params)
        except Exception:  # the callback is the caller's; its mistake must not cost the answer
            logger.warning("a progress callback of %s raised", self.method, exc_info=True)

    def remaining_s(self) -> float | None:
        """Seconds until the nearest limit, or None."""
        limits = [
            limit
            for limit in (
                self.deadline.remaining_s(),
                self._idle.remaining_s(),
                self._grace.remaining_s(),
            )
            if limit is not None
        ]
        return min(limits, default=None)

    def too_late(self) -> McpError:
        """Give the error that tells which limit was reached."""
        if self._suspicion is not None:
            return unreadable(self.method, self._suspicion.reason)
        if self.deadline.expired and self._timeout_s is not None:
            return McpTimeout(
                f"the server did not answer {self.method} within its time limit of {self._timeout_s:g} s"
            )
        return McpTimeout(
            f"the server said nothing of {self.method} within the time limit of {self._idle_timeout_s:g} s"
        )

    def _next(self) -> Any:
        try:
            return self._events.get(timeout=self.remaining_s())
        except Empty:
            raise self.too_late() from None


class _Suspicion:
    """What may have been a call's answer and can't be read."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def unreadable(method: str, reason: str) -> McpProtocolError:
    """Give the error that tells of an answer that can't be read."""
    return McpProtocolError(f"the server answered {method} with what can't be read: {reason}")


class Gate:
    """Lets so many in at once, the others in the order in which they came.

    Args:
        places: how many; None: all.
    """

    def __init__(self, places: int | None) -> None:
        # Guards the two fields below; nothing waits while it is held.
        self._lock = threading.Lock()
        self._free = places
        self._waiting: collections.deque[SimpleQueue[bool]] = collections.deque()

    def enter(self, call: Call) -> None:
        """Take a place, waiting for one.

        Raises:
            AbortedError, McpTimeout: as `Call.check`; no place is taken then.
        """
        with self._lock:
            if self._free is None:
                return
            if self._free > 0:
                self._free -= 1
                return
            turn: SimpleQueue[bool] = SimpleQueue()
            self._waiting.append(turn)
        if not self._wait(turn, call):
            if call.signal is not None:
                call.signal.raise_if_aborted()
            raise McpTimeout(
                f"{call.method} waited for its turn until its time limit and was not sent; "
                "max_concurrency lets more calls run at once"
            )

    def leave(self) -> None:
        """Give the place to the next, or back."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().put(True)
            elif self._free is not None:
                self._free += 1

    def _wait(self, turn: SimpleQueue[bool], call: Call) -> bool:
        remove = (
            call.signal.add_callback(functools.partial(turn.put, False)) if call.signal else None
        )
        has_place = False
        try:
            has_place = turn.get(timeout=call.remaining_s())
        except Empty:
            pass
        finally:  # also where the wait was interrupted from the keyboard
            if remove is not None:
                remove()
            if not has_place:
                self._step_out(turn)
        return has_place

    def _step_out(self, turn: SimpleQueue[bool]) -> None:
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return
        self.leave()  # the place came in the same moment


class Alarm:
    """Calls back at set times, on one thread that ends when nothing is left for a while.

    Args:
        name: of the thread.
    """

    _LINGER_S = 5.0

    def __init__(self, name: str) -> None:
        self._name = name
        # Guards the fields below; callbacks run outside of it.
        self._lock = threading.Lock()
        self._heap: list[tuple[float, int, list[Callable[[], object]]]] = []
        self._numbers = itertools.count()
        self._unset = 0
        self._wake: SimpleQueue[None] | None = None  # the running thread's
        self._stopped = False

    def set(self, delay_s: float, callback: Callable[[], object]) -> Callable[[], None]:
        """Have `callback` called after a delay; it must return at once and not raise.

        Returns:
            A function that takes the callback back.

        Raises:
            McpTransportError: there is no thread to be had.
        """
        entry = [callback]
        with self._lock:
            item = (time.monotonic() + delay_s, next(self._numbers), entry)
            heapq.heappush(self._heap, item)
            if self._wake is None and not self._stopped:
                wake: SimpleQueue[None] = SimpleQueue()
                start_daemon(self._name, self._run, wake)
                self._wake = wake
            elif self._heap[0] is item and self._wake is not None:
                self._wake.put(None)
        return functools.partial(self._unset_one, entry)

    def stop(self) -> None:
        """End the thread; what was set is forgotten."""
        with self._lock:
            self._stopped = True
            self._heap.clear()
            if self._wake is not None:
                self._wake.put(None)

    def _unset_one(self, entry: list[Callable[[], object]]) -> None:
        with self._lock:
            if entry:
                entry.clear()
                self._unset += 1
            if self._unset > 64 and self._unset * 2 > len(self._heap):
                self._heap = [item for item in self._heap if item[2]]
                heapq.heapify(self._heap)
                self._unset = 0

    def _run(self, wake: SimpleQueue[None]) -> None:
        while True:
            due, wait_s = self._due()
            for callback in due:
                callback()
            if due:
                continue
            with contextlib.suppress(Empty):
                wake.get(timeout=wait_s)
            with self._lock:
                if self._stopped or (not self._heap and wake.empty() and wait_s == self._LINGER_S):
                    self._wake = None
                    return

    def _due(self) -> tuple[list[Callable[[], object]], float]:
        due: list[Callable[[], object]] = []
        with self._lock:
            while self._heap:
                when, _, entry = self._heap[0]
                wait_s = when - time.monotonic()
                if entry and wait_s > 0:
                    return due, wait_s
                heapq.heappop(self._heap)
                if entry:
                    due += entry
                    entry.clear()
                else:
                    self._unset -= 1
        return due, self._LINGER_S
