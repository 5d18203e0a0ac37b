"""Reading what is typed or piped in, so that Ctrl-C always ends the wait.

Python notices a signal between two steps of its own. One that comes just before a `read` begins is noticed when that
returns, which may be never; so the wait is for the input and for the signal together.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any, TextIO

__all__ = ["read_all"]

_READ_BYTES = 65_536


def read_all(stdin: TextIO) -> str:
    """Give everything up to the end of the input.

    Raises:
        KeyboardInterrupt: Ctrl-C, whenever it comes.
    """
    try:
        source = stdin.fileno()
    except io.UnsupportedOperation:  # text in memory
        return stdin.read()
    if os.name == "nt" or threading.current_thread() is not threading.main_thread():
        return stdin.read()  # there, a wait for both is not to be had
    pieces: list[bytes] = []
    with _signals() as woken:
        waited_for: list[Any] = [source, woken]
        while True:
            ready = select.select(waited_for, [], [])[0]
            if woken in ready:
                woken.recv(_READ_BYTES)  # a signal that ends nothing: Ctrl-C has raised by now
            if source not in ready:
                continue
            piece = os.read(source, _READ_BYTES)
            if not piece:
                return b"".join(pieces).decode(stdin.encoding or "utf-8", "replace")
            pieces.append(piece)


@contextlib.contextmanager
def _signals() -> Iterator[socket.socket]:
    """Give a socket that becomes readable with the first signal."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        try:
            yield ours
        finally:
            signal.set_wakeup_fd(before)
