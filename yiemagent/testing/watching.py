"""What a test watches a run with: a sink that keeps the events, and a clock that goes when it is told to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from yiemagent.events import Event

__all__ = ["FakeClock", "RecordingSink"]


class RecordingSink:
    """An event sink that keeps what it is told, and wakes who waits for something."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = threading.Condition()  # protects the list; waiters wait on it

    def __call__(self, event: Event) -> None:
        """Keep an event."""
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def wait_for(
        self, wanted: type[Event] | Callable[[Event], bool], timeout_s: float = 10.0
    ) -> Event:
        """Block until an event that is `wanted` was kept, and give the first.

        Raises:
            TimeoutError: where none came in time.
        """
        check = (lambda e: isinstance(e, wanted)) if isinstance(wanted, type) else wanted
        with self._changed:
            found = self._changed.wait_for(
                lambda: next(filter(check, self.events), None), timeout_s
            )
        if found is None:
            raise TimeoutError(
                f"no {wanted!r} among {len(self.events)} events within {timeout_s} s"
            )
        return found

    def of(self, *kinds: type[Event]) -> list[Any]:
        """Give the events of some kinds, in order."""
        return [event for event in self.events if isinstance(event, kinds)]

    def names(self) -> list[str]:
        """Give the names of the events' classes, in order."""
        return [type(event).__name__ for event in self.events]


class FakeClock:
    """A clock that goes when it is told to; call it for the time in seconds."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        """The time in seconds."""
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds
