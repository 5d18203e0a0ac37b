"""Abort signals and deadlines: how every wait in the library ends early.

One `AbortSignal` belongs to a run and is handed to everything that works for it: hooks, the model call, tools. A child
signal is aborted with its parent and can be aborted alone, as a tool call is at its time limit.
"""

from __future__ import annotations

import functools
import logging
import math
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from queue import Empty, SimpleQueue
from typing import Any

from yiemagent.errors import AbortedError

__all__ = ["AbortSignal", "Deadline", "checked_timeout", "current_signal"]

logger = logging.getLogger("yiemagent.abort")

current_signal: ContextVar[AbortSignal | None] = ContextVar("yiemagent_signal", default=None)
"""The signal of the run, or of the tool call, that user code is part of: ends what it waits for without naming it."""


class AbortSignal:
    """A flag that is set once, wakes whoever waits for it, and calls back.

    Args:
        parent: a signal whose abort also aborts this one; None for a signal of its own.
    """

    __slots__ = (
        "__weakref__",
        "_aborted_at",
        "_callbacks",
        "_lock",
        "_parent",
        "_reason",
        "_unfollow",
    )

    def __init__(self, parent: AbortSignal | None = None) -> None:
        # Decides which call of `abort` is the first. Re-entrant, since a signal handler or a finalizer may abort while
        # the same thread is in here; callbacks never run while it is held. Waiters have a `SimpleQueue` each, whose
        # `put` may be called from anywhere, where an `Event` could deadlock.
        self._lock = threading.RLock()
        self._aborted_at: float | None = None
        self._reason: str | None = None
        # Without a lock, since every tool call comes and goes here: single steps of a dict are atomic, and who pops a
        # callback is the one to call it.
        self._callbacks: dict[object, Callable[[], None]] = {}
        # Asked whenever somebody looks; it calls back only where somebody waits here, since most tools never do.
        self._parent = parent
        self._unfollow: list[Callable[[], object]] = []

    @property
    def aborted(self) -> bool:
        """Whether the signal was set."""
        if self._parent is None:
            return self._aborted_at is not None
        return self.aborted_at is not None

    @property
    def aborted_at(self) -> float | None:
        """When the signal was set, on the clock of `time.monotonic`, or None."""
        if self._parent is not None:
            self._look_up()
        return self._aborted_at

    @property
    def reason(self) -> str | None:
        """What `abort` was told, or None."""
        return self._reason if self.aborted else None

    @property
    def why(self) -> str:
        """What an answer or an error says of the abort: "aborted", and the reason, if one was given."""
        reason = self.reason
        return f"aborted: {reason}" if reason else "aborted"

    def abort(self, reason: str | None = None) -> bool:
        """Set the signal, wake its waiters and call its callbacks in this thread; may be called from anywhere.

        Args:
            reason: why, in words; the first call's reason stays.

        Returns:
            True for the call that set the signal, False for every later one.
        """
        return not self.aborted and self._set(reason, time.monotonic())

    def _set(self, reason: str | None, aborted_at: float) -> bool:
        with self._lock:
            if self._aborted_at is not None:
                return False
            self._reason = reason
            self._aborted_at = aborted_at
        for key in tuple(self._callbacks):
            self._call_back(key)
        return True

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until the signal is set.

        Args:
            timeout_s: how long to wait at most, in seconds; None waits for ever.

        Returns:
            Whether the signal is set.
        """
        woken: SimpleQueue[None] = SimpleQueue()
        remove = self.add_callback(lambda: woken.put(None))
        try:
            woken.get(timeout=Deadline(timeout_s).remaining_s())
        except Empty:
            return self.aborted
        finally:
            remove()
        return True

    def add_callback(self, callback: Callable[[], None]) -> Callable[[], object]:
        """Have `callback` called once when the signal is set, at once where it is set already.

        Contract: it runs in the thread that aborts, must return at once and must not raise (what it raises is logged).

        Returns:
            A function that takes the callback back; calling it twice does nothing.
        """
        parent = (
            self._parent
        )  # read once: a call that was left behind may wait while its signal is let go
        if parent is not None and not self._unfollow:
            self._unfollow.append(parent.add_callback(self._look_up))
        key = object()
        self._callbacks[key] = callback
        # Asked after it was added: an abort comes between any two lines, and may have looked before.
        if self._aborted_at is not None:
            self._call_back(key)
        return functools.partial(self._callbacks.pop, key, None)

    def raise_if_aborted(self) -> None:
        """Raise `AbortedError` where the signal is set."""
        if self.aborted:
            raise AbortedError(self.why)

    def release(self) -> None:
        """Let go of the parent: a child that is done stays what it is and costs the parent nothing more."""
        self._look_up()
        self._parent = None
        for unfollow in self._unfollow:
            unfollow()

    def _look_up(self) -> None:
        """Be set where the parent is."""
        parent = self._parent
        if parent is not None and self._aborted_at is None:
            aborted_at = parent.aborted_at
            if aborted_at is not None:
                self._set(parent.reason, aborted_at)

    def _call_back(self, key: object) -> None:
        """Call a callback, unless it was called or taken back."""
        callback = self._callbacks.pop(key, None)
        if callback is None:
            return
        try:
            callback()
        except (
            Exception
        ):  # a callback is anybody's; one that fails must not keep the others from being told
            logger.warning("an abort callback raised", exc_info=True)

    def __repr__(self) -> str:
        state = f"aborted: {self._reason!r}" if self.aborted else "not aborted"
        return f"<AbortSignal {state}>"


def checked_timeout(timeout_s: Any) -> float | None:
    """Give what a caller says that a call may take, before the call does anything.

    Args:
        timeout_s: a number of seconds, 0 or more, infinity too; None: for ever.

    Raises:
        TypeError: where it is neither a number nor None.
        ValueError: where it is below 0, or NaN.
    """
    if timeout_s is None:
        return None
    kind = type(timeout_s)
    if kind is bool or not hasattr(kind, "__float__"):
        raise TypeError(_no_timeout(timeout_s))
    if not timeout_s >= 0:  # NaN is no limit either
        raise ValueError(_no_timeout(timeout_s))
    if kind is int or kind is float:
        return timeout_s if timeout_s <= threading.TIMEOUT_MAX else math.inf
    return float(timeout_s)  # a `Decimal` or a number of numpy can't be added to a time


def _no_timeout(given: Any) -> str:
    return (
        f"timeout_s must be a number of seconds, 0 or more, or None to wait for ever, not {given!r}"
    )


class Deadline:
    """One time limit carried over several waits.

    Args:
        timeout_s: seconds from now; None never ends.
        clock: a function giving seconds that never go back.
    """

    __slots__ = ("_clock", "_ends_at")

    def __init__(
        self, timeout_s: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._ends_at = None if timeout_s is None else clock() + timeout_s

    def remaining_s(self) -> float | None:
        """Seconds left, never below 0 and never more than a wait can take; None where there is no limit."""
        if self._ends_at is None:
            return None
        return min(max(0.0, self._ends_at - self._clock()), threading.TIMEOUT_MAX)

    @property
    def expired(self) -> bool:
        """Whether the limit is reached."""
        return self.remaining_s() == 0.0
