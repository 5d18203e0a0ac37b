"""Signals that tell a test what is done with them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from yiemagent.abort import AbortSignal


class Noticed(AbortSignal):
    """A signal that tells when somebody begins to wait for it."""

    __slots__ = ("waited_for",)

    def __init__(self) -> None:
        super().__init__()
        self.waited_for = threading.Event()

    def add_callback(self, callback: Callable[[], object]) -> Callable[[], object]:
        """Take the callback, and tell of it."""
        remove = super().add_callback(callback)
        self.waited_for.set()
        return remove
