"""A thread pool for user code that may hang: its threads never keep the interpreter from exiting.

`ThreadPoolExecutor` joins its workers at interpreter exit, so one hung tool would keep the process alive for ever. The
workers here are daemons that are kept out of that list.
"""

from __future__ import annotations

import functools
import logging
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.thread import _worker  # no public name
from queue import Empty, SimpleQueue
from typing import Any

from yiemagent.daemon import DaemonThread

__all__ = ["DaemonPool"]

logger = logging.getLogger("yiemagent.pool")

_UNBOUNDED = (
    1_000_000  # whoever submits counts for itself; a hung worker must not take another's place
)


class DaemonPool(ThreadPoolExecutor):
    """A `ThreadPoolExecutor` with daemon workers, made on demand and as many as there are tasks.

    Args:
        name: workers are called `<name>-1`, `<name>-2`, ….
    """

    def __init__(self, name: str) -> None:
        super().__init__(_UNBOUNDED, thread_name_prefix=name)
        # The executor's own semaphore is written in Python, and costs as much as waking a thread.
        self._idle_semaphore: Any = _IdleWorkers()

    @property
    def has_threads(self) -> bool:
        """Whether it ever had to do anything."""
        return bool(self._threads)

    def start(self, function: Callable[..., Any], *args: Any) -> None:
        """Have `function` called on a worker: `submit` without a future, which costs more than all the rest.

        What it raises is logged, what it gives is dropped.

        Raises:
            RuntimeError: where the pool has ended, or no thread can be had; the function is not called then.
        """
        with self._shutdown_lock:
            if self._shutdown:
                raise RuntimeError("the pool has ended")
            # Before the task is in the queue: one that gets no thread must not lie there for another worker.
            self._adjust_thread_count()
            self._work_queue.put(_Task(function, args))  # type: ignore[arg-type]  # all that a worker asks for is `run`

    def _adjust_thread_count(self) -> None:
        if self._idle_semaphore.acquire():
            return
        thread = DaemonThread(
            target=_worker,
            name=f"{self._thread_name_prefix}-{len(self._threads) + 1}",
            args=self._worker_arguments(),
        )
        thread.start()
        self._threads.add(thread)  # type: ignore[attr-defined]  # a set in every version

    def _worker_arguments(self) -> tuple[Any, ...]:
        work_queue = self._work_queue

        def wake(_reference: Any) -> None:
            work_queue.put(None)  # type: ignore[arg-type]  # the sentinel that ends an idle worker

        reference = weakref.ref(self, wake)
        if sys.version_info >= (3, 14):
            return reference, self._create_worker_context(), work_queue
        return reference, work_queue, self._initializer, self._initargs


class _IdleWorkers:
    """Counts the workers that wait for a task, as a semaphore does, by the atomic steps of a queue."""

    __slots__ = ("_permits", "release")

    def __init__(self) -> None:
        self._permits: SimpleQueue[None] = SimpleQueue()
        self.release = functools.partial(self._permits.put, None)

    def acquire(self, timeout: float = 0) -> bool:
        """Count one worker less, waiting for one for `timeout` seconds at most; gives False where there is none."""
        try:
            self._permits.get(timeout > 0, timeout)
        except Empty:
            return False
        return True


class _Task:
    """A call that nobody waits for."""

    __slots__ = ("_args", "_function")

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._function = function
        self._args = args

    def run(self, *_context: Any) -> None:  # from Python 3.14 on it is given the worker's context
        try:
            self._function(*self._args)
        except BaseException:  # anybody's function may raise anything, and no worker ends of it
            logger.warning("a task raised", exc_info=True)
