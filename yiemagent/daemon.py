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
        # The flag that the thread sets when it runs, and that `start` waits for.
        self._started.wait = _at_once  # type: ignore[method-assign]  # of this flag alone

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread runs, and then until it has ended; `timeout` seconds for each at most."""
        if threading.Event.wait(self._started, timeout):
            super().join(timeout)


def _at_once(timeout: float | None = None) -> bool:  # noqa: ARG001 - it stands for `Event.wait`
    return True
