"""Places that calls take turns in: first come, first served, and whoever gives up waiting holds nobody up."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator
from queue import SimpleQueue

from yiemagent.abort import AbortSignal

__all__ = ["Turns"]


class Turns:
    """So many places, and a queue for them.

    Args:
        places: how many may be taken at once.
    """

    def __init__(self, places: int) -> None:
        # Guards the fields below: who has a place and who is next. Nobody waits while it is held.
        self._lock = threading.Lock()
        self._free = places
        self._waiting: deque[SimpleQueue[bool]] = deque()

    @contextlib.contextmanager
    def turn(self, signal: AbortSignal) -> Iterator[None]:
        """Wait for a place and hold it for a `with` block.

        Raises:
            AbortedError: the signal was set meanwhile.
        """
        self._take(signal)
        try:
            yield
        finally:
            self._give_back()

    def _take(self, signal: AbortSignal) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            mine: SimpleQueue[bool] = SimpleQueue()
            self._waiting.append(mine)
        forget = signal.add_callback(lambda: mine.put(False))
        has_place = mine.get()
        forget()
        if has_place:
            return
        with self._lock:
            if mine in self._waiting:
                self._waiting.remove(mine)
                has_place = True
        if not has_place:  # it was given a place in the same moment
            self._give_back()
        signal.raise_if_aborted()

    def _give_back(self) -> None:
        with self._lock:
            if not self._waiting:
                self._free += 1
                return
            following = self._waiting.popleft()
        following.put(True)
