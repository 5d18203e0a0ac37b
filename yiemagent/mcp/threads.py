"""Threads of the client: daemons, and one error where the system gives none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from yiemagent.errors import McpTransportError

__all__ = ["start_daemon"]


def start_daemon(name: str, target: Callable[..., Any], *args: Any) -> None:
    """Have `target` called on a daemon thread of its own.

    Raises:
        McpTransportError: the system gives no thread, or the interpreter is shutting down.
    """
    thread = threading.Thread(target=target, args=args, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise McpTransportError(f"no thread {name!r} to be had: {error}") from error
