"""Bounded channels that can be closed and ring a doorbell, over `queue.Queue`.

An agent has four: input, follow-up, steering and output. Whoever puts something in rings the doorbell, and the agent's
thread, which waits at the door and nowhere else, looks at all of them at once.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, cast

from yiemagent.abort import AbortSignal, Deadline
from yiemagent.errors import AgentStopped, ChannelFull, ResponseTimeout

__all__ = ["Channel", "Doorbell", "Waiters"]

T = TypeVar("T")


class Doorbell:
    """A bell that stays rung until it is answered: one waiter, any number of ringers.

    Over a `SimpleQueue`, since a finalizer may ring in the middle of anything, and its `put` is safe there.
    """

    __slots__ = ("_rings",)

    def __init__(self) -> None:
        self._rings: queue.SimpleQueue[None] = queue.SimpleQueue()

    def ring(self) -> None:
        """Wake the waiter, now or at its next wait."""
        if self._rings.empty():  # else the waiter has not answered yet, and will look after this
            self._rings.put(None)

    def wait(self) -> None:
        """Block until it rings, and answer it; look at the channels after this, never before, else a ring is lost."""
        self._rings.get()
        while not self._rings.empty():
            self._rings.get()


class Waiters:
    """Those who wait under a lock until something changes, or until a signal of theirs is set.

    What wakes one of them is a `SimpleQueue`, whose `put` an abort may call in the middle of anything.

    Args:
        lock: is held by whoever waits or tells.
    """

    __slots__ = ("_lock", "_waiting")

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._waiting: list[queue.SimpleQueue[None]] = []  # under the lock

    def wait(self, timeout_s: float | None, signal: AbortSignal | None = None) -> None:
        """Let the lock go until somebody tells.

        Args:
            timeout_s: seconds to wait at most; None: for ever.
            signal: ends the wait.

        Raises:
            AbortedError: the signal is set.
        """
        woken: queue.SimpleQueue[None] = queue.SimpleQueue()
        unwatch = None if signal is None else signal.add_callback(lambda: woken.put(None))
        self._waiting.append(woken)
        try:
            self._lock.release()  # first in here: a KeyboardInterrupt comes behind it
            woken.get(timeout=timeout_s)
        except queue.Empty:
            pass
        finally:
            self._lock.acquire()
            self._waiting.remove(woken)
            if unwatch is not None:
                unwatch()
        if signal is not None:
            signal.raise_if_aborted()

    def tell(self) -> None:
        """Have all of them look again."""
        for woken in self._waiting:
            woken.put(None)


class Channel(Generic[T]):
    """A bounded first-in-first-out channel.

    Args:
        name: for error texts.
        capacity: how many items it holds.
        bell: is rung after each put and at closing; None for a channel that nobody waits at.
    """

    def __init__(self, name: str, capacity: int, bell: Doorbell | None = None) -> None:
        self.name = name
        self.capacity = capacity
        self._queue: queue.Queue[T] = queue.Queue(capacity)
        self._waiters = Waiters(self._queue.mutex)
        # Nobody waits at the queue's own conditions, and three of them would be most of an idle agent's memory.
        self._queue.not_full = self._queue.all_tasks_done = self._queue.not_empty
        self._bell = bell
        self._closed = False  # read and written under the queue's own mutex

    def put(self, item: T, timeout_s: float | None = 0) -> None:
        """Put an item in, and ring.

        Args:
            item: anything.
            timeout_s: seconds to wait for a place; 0 not at all, None for ever.

        Raises:
            ChannelFull: where no place came free in time.
            AgentStopped: where the channel is closed, also while waiting.
        """
        deadline = Deadline(timeout_s)
        with self._queue.mutex:
            while not self._closed and len(self._queue.queue) >= self.capacity:
                remaining = deadline.remaining_s()
                if remaining == 0.0:
                    raise ChannelFull(
                        f"the {self.name} channel holds {self.capacity} items already; take some out "
                        f"first, or wait with timeout_s"
                    )
                self._waiters.wait(remaining)
            self._refuse_if_closed()
            self._queue.queue.append(item)
            self._waiters.tell()
        self._ring()

    def get(self, timeout_s: float | None = None, signal: AbortSignal | None = None) -> T:
        """Take the oldest item.

        Args:
            timeout_s: seconds to wait for one; None waits for ever.
            signal: ends the wait.

        Raises:
            AbortedError: where the signal is set while nothing is there.
            ResponseTimeout: where none came in time; nothing is changed.
            AgentStopped: where the channel is closed and empty, also while waiting.
        """
        deadline = Deadline(timeout_s)
        with self._queue.mutex:
            while not self._queue.queue:
                self._refuse_if_closed()
                remaining = deadline.remaining_s()
                if remaining == 0.0:
                    raise ResponseTimeout(f"nothing came within {timeout_s} s; nothing is lost")
                self._waiters.wait(remaining, signal)
            item = cast("T", self._queue.queue.popleft())
            self._waiters.tell()
        return item

    def take(self) -> T | None:
        """Take the oldest item, or give None where there is none."""
        with self._queue.mutex:
            if not self._queue.queue:
                return None
            self._waiters.tell()
            return cast("T", self._queue.queue.popleft())

    def peek(self) -> T | None:
        """Give the oldest item and leave it there; None where there is none."""
        with self._queue.mutex:
            return cast("T", self._queue.queue[0]) if self._queue.queue else None

    def drain(self) -> tuple[T, ...]:
        """Take all items, oldest first."""
        with self._queue.mutex:
            items = tuple(self._queue.queue)
            self._queue.queue.clear()
            self._waiters.tell()
        return items

    def restore(self, items: Iterable[T]) -> None:
        """Put items that were taken back at the front, oldest first; they had their place, so it is never full."""
        with self._queue.mutex:
            self._queue.queue.extendleft(reversed(tuple(items)))
            self._waiters.tell()

    def remove(self, wanted: Callable[[T], bool]) -> T | None:
        """Take the oldest item that is `wanted`, or give None where there is none."""
        with self._queue.mutex:
            for item in self._queue.queue:
                if wanted(item):
                    self._queue.queue.remove(item)
                    self._waiters.tell()
                    return cast("T", item)
        return None

    def close(self) -> None:
        """Take nothing more in and wake everybody who waits; what is in it can still be taken."""
        with self._queue.mutex:
            self._closed = True
            self._waiters.tell()
        self._ring()

    @property
    def closed(self) -> bool:
        """Whether it takes nothing more in."""
        return self._closed

    def __len__(self) -> int:
        return len(self._queue.queue)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise AgentStopped("the agent was stopped; make a new one")

    def _ring(self) -> None:
        if self._bell is not None:
            self._bell.ring()
