"""The processes of one store's tools: reused while they are warm, and never more than a number.

A process runs one tool file in one version and does one call at a time. Who needs one gets an idle process of that
file, else a new one while there is a place for it, else the place of an idle process of another file, else waits, first
come, first served. No lock is held while anybody waits, starts a process or ends one.
"""

from __future__ import annotations

import collections
import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue

from yiemagent.errors import McpTransportError, ToolError
from yiemagent.mcp.calls import Call
from yiemagent.mcp.worker import ToolSource, Worker

__all__ = ["WorkerPool"]


class _Waiter:
    """Somebody who waits for a process of a file, or for a place to start one in (None)."""

    def __init__(self, source: ToolSource) -> None:
        self.source = source
        self.given: SimpleQueue[Worker | _Nothing | None] = SimpleQueue()


class _Nothing:
    """The call is over: there will be no process."""


class WorkerPool:
    """A bounded pool of worker processes; safe to use from many threads.

    They end with the pool: when nobody refers to it any more, when this process ends, and when it is killed.

    Args:
        max_workers: how many there are at most.
    """

    def __init__(self, max_workers: int) -> None:
        self._max = max_workers
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        # Guards the fields below; nothing waits and nobody's code runs while it is held.
        self._lock = threading.Lock()
        self._places = self._max
        self._idle: list[Worker] = []  # the one that waits longest first
        self._waiting: collections.deque[_Waiter] = collections.deque()
        self._newest: dict[Path, ToolSource] = {}
        self._busy: set[Worker] = set()
        self._all: set[Worker] = set()
        weakref.finalize(
            self, _end_all, self._all
        ).atexit = False  # the processes have a hook of their own

    @contextlib.contextmanager
    def worker(self, source: ToolSource, call: Call) -> Iterator[Worker]:
        """Have a process for a `with` block; one that the block is left by an exception with is ended.

        Args:
            source: what it must have loaded, or will load.
            call: limits the wait for it.

        Raises:
            AbortedError, McpTimeout: the call is over.
            ToolError: no process can be started.
            ConfigurationError: none can be had on this system.
        """
        worker = self._take(source, call)
        try:
            yield worker
        except BaseException:  # whatever it is, nobody knows what the process is doing
            self._discard(worker)
            raise
        self._give_back(worker)

    def renew(self, source: ToolSource) -> None:
        """Note the newest version of a file: idle processes of others are ended, and busy ones after their call."""
        with self._lock:
            self._newest[source.path] = source
            stale = [worker for worker in self._idle if self._is_stale(worker)]
            self._idle = [worker for worker in self._idle if worker not in stale]
        for worker in stale:
            self._discard(worker)

    def close(self) -> None:
        """End every process; a call that runs in one fails, and a later one starts a new process."""
        with self._lock:
            idle, self._idle = self._idle, []
            busy = list(self._busy)
        for worker in busy:
            worker.end()  # whoever has it gives its place back
        for worker in idle:
            worker.close()
            self._free(worker)

    # --- taking -----------------------------------------------------------------------------------------------------

    def _take(self, source: ToolSource, call: Call) -> Worker:
        call.check()
        waiter, victim = None, None
        with self._lock:
            found = self._idle_of(source)
            if found is None and self._places > 0:
                self._places -= 1
            elif found is None and self._idle:
                victim = self._idle.pop(0)
                self._all.discard(victim)
            elif found is None:
                waiter = _Waiter(source)
                self._waiting.append(waiter)
        if victim is not None:
            victim.end()
        if waiter is not None:
            found = self._wait(waiter, call)
        return found if found is not None else self._start(source)

    def _idle_of(self, source: ToolSource) -> Worker | None:
        """Take an idle process of a file, the one that was used last."""
        for worker in reversed(self._idle):
            if worker.is_alive and worker.source == source:
                self._idle.remove(worker)
                self._busy.add(worker)
                return worker
        return None

    def _wait(self, waiter: _Waiter, call: Call) -> Worker | None:
        over = _Nothing()
        remove = call.signal.add_callback(lambda: waiter.given.put(over)) if call.signal else None
        given: Worker | _Nothing | None = over
        try:
            with contextlib.suppress(Empty):
                given = waiter.given.get(timeout=call.remaining_s())
        finally:  # also where the wait was interrupted from the keyboard
            if remove is not None:
                remove()
            if isinstance(given, _Nothing):
                self._step_out(waiter)
        if isinstance(given, _Nothing):
            call.check()
            raise call.too_late()
        return given

    def _step_out(self, waiter: _Waiter) -> None:
        with self._lock:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
                return
        while True:  # it was given something in the same moment, perhaps behind the news that the call is over
            given = waiter.given.get()
            if isinstance(given, Worker):
                self._give_back(given)
                return
            if given is None:
                self._free(None)
                return

    def _start(self, source: ToolSource) -> Worker:
        try:
            worker = Worker(source)
        except McpTransportError as error:
            self._free(None)
            raise ToolError(f"no process could be started: {error}") from error
        except BaseException:  # the place must not be lost, whatever it is
            self._free(None)
            raise
        with self._lock:
            self._busy.add(worker)
            self._all.add(worker)
        return worker

    # --- giving back ------------------------------------------------------------------------------------------------

    def _give_back(self, worker: Worker) -> None:
        with self._lock:
            self._busy.discard(worker)
            useful = worker.is_alive and not self._is_stale(worker)
            if useful and not self._waiting:
                self._idle.append(worker)
                return
            if useful and self._waiting[0].source == worker.source:
                self._busy.add(worker)
                self._waiting.popleft().given.put(worker)
                return
        self._discard(worker)

    def _discard(self, worker: Worker) -> None:
        worker.end()
        self._free(worker)

    def _free(self, worker: Worker | None) -> None:
        """Give the place of a process that is gone to who waits, or back."""
        with self._lock:
            if worker is not None:
                self._busy.discard(worker)
                self._all.discard(worker)
            if self._waiting:
                self._waiting.popleft().given.put(None)
            else:
                self._places += 1

    def _is_stale(self, worker: Worker) -> bool:
        return self._newest.get(worker.source.path, worker.source) != worker.source


_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


def _begin_anew() -> None:
    """In a copy of this process: the workers are the parent's, and a lock may be held by a thread that is not here."""
    for pool in _pools:
        pool._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def _end_all(workers: set[Worker]) -> None:
    for worker in workers:
        worker.end()
