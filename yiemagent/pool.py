"""Threads for user code that may hang: as many as there are tasks, kept for the next ones, and never a reason for the
interpreter not to exit.

`concurrent.futures` is not used: it joins its workers at exit, so that one hung tool would keep the process alive for
ever, and its futures and locks cost more than handing a task over. Here a worker waits at a lock of its own, and who
has a task takes an idle worker off the list and opens that lock.
"""

from __future__ import annotations

import itertools
import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeAlias

__all__ = ["DaemonPool"]

logger = logging.getLogger("yiemagent.pool")

_Task: TypeAlias = "tuple[Callable[..., Any], tuple[Any, ...]]"


class DaemonPool:
    """Daemon threads made on demand and used again; they end with the pool, or when it is dropped.

    Any thread may use it. There is no limit: whoever submits counts, and a hung worker takes nobody's place.

    Args:
        name: workers are called `<name>-1`, `<name>-2`, ….
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._numbers = itertools.count(1)
        self._crew = _Crew()
        self._end = weakref.finalize(self, self._crew.end)
        self._end.atexit = False

    def submit(self, function: Callable[..., Any], *args: Any) -> None:
        """Have `function` called on a worker's thread; what it raises is logged, what it gives is dropped.

        Raises:
            RuntimeError: where the pool has ended, or no thread can be had; the function is not called then.
        """
        crew = self._crew
        if crew.ended:
            raise RuntimeError("the pool has ended")
        try:
            worker = crew.idle.pop()
        except IndexError:
            self._hire((function, args))
            return
        worker.task = (function, args)
        worker.door.release()

    def _hire(self, task: _Task) -> None:
        worker = _Worker(task)
        name = f"{self._name}-{next(self._numbers)}"
        threading.Thread(target=worker.serve, args=(self._crew,), name=name, daemon=True).start()

    def shutdown(self) -> None:
        """Take no more tasks and let the workers end; waits for nobody."""
        self._end()


class _Crew:
    """What workers share with their pool, which they don't hold: who is idle, and whether it is over.

    `append`, `pop` and `remove` of a list are atomic, so it needs no lock: who takes a worker off has it for itself.
    """

    __slots__ = ("ended", "idle")

    def __init__(self) -> None:
        self.ended = False
        self.idle: list[_Worker] = []

    def end(self) -> None:
        """Let idle workers end now, and the others when they have done their tasks."""
        self.ended = True
        while self.idle:
            try:
                worker = self.idle.pop()
            except IndexError:  # a worker or another thread was quicker
                return
            worker.door.release()


class _Worker:
    """One thread: does a task, then waits at its door for the next."""

    __slots__ = ("door", "task")

    def __init__(self, task: _Task) -> None:
        self.task: _Task | None = task
        # Shut while the worker is idle. Nothing is protected by it: a lock is the cheapest thing to wait at.
        self.door = threading.Lock()
        self.door.acquire()

    def serve(self, crew: _Crew) -> None:
        while self.task is not None:
            self._work()
            crew.idle.append(self)
            # Asked when it is on the list already: else nobody would wake it.
            if crew.ended and self._leaves(crew):
                return
            self.door.acquire()

    def _work(self) -> None:
        assert self.task is not None
        function, args = self.task
        self.task = None  # an idle worker holds on to nothing
        try:
            function(*args)
        except BaseException:  # user code may raise anything, and no worker ends of it
            logger.warning("a task raised", exc_info=True)

    def _leaves(self, crew: _Crew) -> bool:
        """Take this worker off the list; gives False where somebody else has it, and will open the door."""
        try:
            crew.idle.remove(self)
        except ValueError:
            return False
        return True
