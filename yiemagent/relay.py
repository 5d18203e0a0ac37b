"""Work that makes its calls of user code on its own thread, and goes on without that thread where one takes too long.

The work is a generator: it yields each call that it wants made and is sent what the call gave. While user code runs,
the work itself runs nowhere, so any thread can go on with it: the one that made the call, or, once its time is up, a
successor, which sends None. One atomic step decides which.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Generator
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar

from yiemagent.abort import AbortSignal, Deadline

__all__ = ["LeftBehind", "OwnCall", "Relay", "Steps", "finish"]

T = TypeVar("T")


class OwnCall:
    """A call of user code that is made on the thread of the work.

    Args:
        function: makes it; does not raise.
        ends_at: when its time is up, on the clock of `time.monotonic`; infinity: never.
    """

    __slots__ = ("_permit", "ends_at", "function")

    def __init__(self, function: Callable[[], Any], ends_at: float) -> None:
        self.function = function
        self.ends_at = ends_at
        self._permit = [None]  # who pops it goes on with the work; `list.pop` is atomic

    def take(self) -> bool:
        """Be the one that goes on with the work; gives False where somebody else is."""
        try:
            self._permit.pop()
        except IndexError:
            return False
        return True

    @property
    def is_over(self) -> bool:
        """Whether somebody has gone on."""
        return not self._permit

    def remaining_s(self) -> float | None:
        """Seconds until its time is up, never more than a wait can take; None: it never is."""
        if self.ends_at == math.inf:
            return None
        return min(max(0.0, self.ends_at - time.monotonic()), threading.TIMEOUT_MAX)


Steps: TypeAlias = Generator[OwnCall, Any, T]


class LeftBehind(BaseException):
    """Tells a thread that came back from a call too late that a successor went on."""


class Relay(Generic[T]):
    """Work that one thread does at a time, and may be relieved of while it makes a call.

    Its fields need no lock: they are written by the thread that does the work, and each single write is atomic.

    Args:
        steps: the work.
        ask: called with when a call's time is up, before it begins; somebody is to look at `call` then.
    """

    def __init__(self, steps: Steps[T], ask: Callable[[float], None]) -> None:
        self.thread: threading.Thread | None = None
        self.call: OwnCall | None = None  # the latest
        self._steps = steps
        self._ask = ask
        self._calling = False

    def go_on(self) -> T:
        """Do the work on this thread.

        Raises:
            LeftBehind: a successor went on while this thread made a call.
            BaseException: what the work raises.
        """
        self.thread = threading.current_thread()
        given = None
        while True:
            self._calling = False
            try:
                call = self._steps.send(given)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]  # what `Steps` says
            # In this order: who finds the call may take it, and then does the work, in no call.
            self._calling = True
            self.call = call
            if call.ends_at != math.inf:
                self._ask(
                    call.ends_at
                )  # behind the write of the call, which whoever looks is to see
            given = call.function()
            if not call.take():
                raise LeftBehind
            self.call = None  # it holds what tells of it, and so the run: no cycle should stay

    def is_at_work(self) -> bool:
        """Whether the calling thread does the work, and is not in a call."""
        return not self._calling and threading.current_thread() is self.thread

    def take(self) -> bool:
        """Relieve the thread that is making a call; gives False where none is. Whoever took it has to go on."""
        call = self.call  # read once: the thread that makes it lets it go
        return call is not None and call.take()


def finish(
    steps: Steps[T],
    start: Callable[[Callable[[], None]], None],
    *,
    signal: AbortSignal,
    grace_s: float,
) -> T:
    """Do work on this thread, which is to come back whatever a call does; gives what the work gives.

    Args:
        steps: the work.
        start: has a function called on another thread, such as `DaemonPool.start`; calls are made there.
        signal: the work's.
        grace_s: seconds that a call has to return after an abort.
    """
    given = None
    while True:
        try:
            call = steps.send(given)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what `Steps` says
        given = _made(call, start, signal, grace_s)


def _made(
    call: OwnCall,
    start: Callable[[Callable[[], None]], None],
    signal: AbortSignal,
    grace_s: float,
) -> Any:
    """Give what a call gave, or None once its time or the grace is over."""
    news: SimpleQueue[tuple[Any] | None] = SimpleQueue()
    unwatch = signal.add_callback(lambda: news.put(None))
    try:
        start(lambda: news.put((call.function(),)))
        done = news.get(timeout=call.remaining_s())
        if done is None:  # aborted
            done = news.get(timeout=Deadline(grace_s).remaining_s())
    except Empty:
        return None
    finally:
        unwatch()
    return None if done is None else done[0]
