"""One thread for the whole process that sees to the time limits of calls which their callers wait for.

A thread that makes a call of user code can't give it up by itself. So it asks here to be looked after, which costs it
nothing as long as somebody looks sooner anyway, as is so for all calls but a few.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

import attrs

from yiemagent.daemon import DaemonThread

__all__ = ["Watch"]

logger = logging.getLogger("yiemagent.watch")


@attrs.define(eq=False)
class _Watcher:
    """A watching thread, and how it is told of what comes sooner than it knows; None: end."""

    asked: SimpleQueue[float | None] = attrs.field(factory=SimpleQueue)
    # When it looks, at the latest, as those who ask see it. Needs no lock: it may be too late, as where two ask at
    # once, and then one more asks; it is never sooner than what the thread knows or will find in its queue.
    looks_at: float = math.inf
    thread: threading.Thread | None = None


class Watch:
    """Looks after calls as long as somebody may make any.

    Args:
        look: called on the watching thread whenever something is due; gives when the next is, on the clock of
            `time.monotonic`; infinity: nothing is known to be. Must not block or raise.
    """

    def __init__(self, look: Callable[[], float]) -> None:
        self._look = look
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        """Have no users and no thread, as is so in a forked child, too."""
        # Protects the fields below it. Nothing else is done while it is held, but that a thread is started.
        self._lock = threading.Lock()
        self._users = 0
        self._watcher: _Watcher | None = None
        self._missed = False  # whether somebody asked in vain

    def enter(self) -> None:
        """Be somebody who may make calls."""
        with self._lock:
            self._users += 1

    def leave(self) -> None:
        """Be so no more; with the last the thread ends, which is waited for."""
        with self._lock:
            self._users -= 1
            watcher = None if self._users else self._watcher
            if watcher is not None:
                self._watcher = None
        if watcher is not None:
            watcher.asked.put(None)
            assert watcher.thread is not None
            watcher.thread.join()

    def ask(self, due: float) -> None:
        """Have somebody look at `due`, on the clock of `time.monotonic`, at the latest; may be called by users only."""
        watcher = self._watcher
        if watcher is None:
            try:
                watcher = self._started()
            except RuntimeError as error:  # the next call tries again
                self._missed = True
                logger.warning("no thread to keep the time limits of calls: %s", error)
                return
        if due < watcher.looks_at:
            watcher.looks_at = due
            watcher.asked.put(due)

    def _started(self) -> _Watcher:
        with self._lock:
            if self._watcher is None:
                watcher = _Watcher()
                watcher.thread = DaemonThread(
                    target=self._serve, args=(watcher,), name="yiem-watch"
                )
                watcher.thread.start()
                self._watcher = watcher
                if self._missed:  # somebody asked, and may have nobody else that looks
                    self._missed = False
                    watcher.asked.put(0.0)
            return self._watcher

    def _serve(self, watcher: _Watcher) -> None:
        looks_at = math.inf
        while True:
            try:
                asked = watcher.asked.get(timeout=_seconds_to(looks_at))
            except Empty:
                # What begins after this line asks; what began before is seen.
                watcher.looks_at = math.inf
                looks_at = self._look()
            else:
                if asked is None:
                    return
                looks_at = min(looks_at, asked)
            watcher.looks_at = looks_at


def _seconds_to(moment: float) -> float | None:
    """Give the seconds until then, never more than a wait can take; None: for ever."""
    if moment == math.inf:
        return None
    return min(max(0.0, moment - time.monotonic()), threading.TIMEOUT_MAX)
