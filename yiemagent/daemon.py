"""Threads that start without being waited for, and never keep the interpreter from exiting."""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["DaemonThread"]


class DaemonThread(threading.Thread):
    """A daemon thread whose `start` does not wait until it runs.

    A plain `start` hands the interpreter over to the new thread and back, each time: a large batch would have begun
    only when the last of its threads did. Until it runs, such a thread is not alive, and `join` waits for it.
    """

    _started: threading.Event

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, daemon=True)
        self._started = _Unawaited()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread runs, and then until it has ended; `timeout` seconds for each at most."""
        if threading.Event.wait(self._started, timeout):
            super().join(timeout)


class _Unawaited(threading.Event):
    """The flag that a thread sets when it runs; nobody waits for it."""

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002 - see above
        return True
