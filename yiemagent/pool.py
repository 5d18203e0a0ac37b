"""A thread pool for user code that may hang: its threads never keep the interpreter from exiting.

`ThreadPoolExecutor` joins its workers at interpreter exit, so one hung tool would keep the process alive for ever. The
workers here are daemons that are kept out of that list.
"""

from __future__ import annotations

import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.thread import _worker  # no public name
from typing import Any

__all__ = ["DaemonPool"]

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

    def _adjust_thread_count(self) -> None:
        if self._idle_semaphore.acquire(timeout=0):
            return
        thread = threading.Thread(
            target=_worker,
            name=f"{self._thread_name_prefix}-{len(self._threads) + 1}",
            args=self._worker_arguments(),
            daemon=True,
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
