"""Asking a person at the terminal, so that an abort ends the wait at once, on whichever thread.

Python's `input()` can't be interrupted outside the main thread, and keeps the interpreter from exiting in peace. Here
the wait is for the input's descriptor and for the signal together. POSIX only.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
from typing import TextIO

from yiemagent.abort import AbortSignal
from yiemagent.errors import ConfigurationError
from yiemagent.locks import holding

__all__ = ["ask_line", "shown"]

_MAX_LINE_BYTES = 10_000


def ask_line(
    question: str, signal: AbortSignal, *, stdin: int = 0, out: TextIO | None = None
) -> str | None:
    """Put a question and wait for a line; one question at a time in this process.

    What was typed before the question is no answer to it: where the input is a terminal, that is thrown away.

    Args:
        question: written as it is; `shown` makes text of others safe to show.
        signal: ends the wait.
        stdin: the descriptor to read from.
        out: where the question goes; None: stderr.

    Returns:
        The line, without what ends it; None at the end of the input.

    Raises:
        AbortedError: the signal was set.
        ConfigurationError: the system can't wait for both (Windows).
    """
    if not hasattr(select, "poll"):
        raise ConfigurationError("asking in a terminal needs a POSIX system")
    with holding([f"terminal {stdin}"], signal, "a question"):
        try:
            os.fstat(stdin)
        except OSError:  # closed; what is opened next would take its number
            return None
        if os.isatty(stdin):
            import termios

            termios.tcflush(stdin, termios.TCIFLUSH)
        stream = sys.stderr if out is None else out
        stream.write(question)
        stream.flush()
        return _line(stdin, signal)


def _line(stdin: int, signal: AbortSignal) -> str | None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        remove = signal.add_callback(lambda: _send(theirs))
        try:
            return _read(stdin, ours.fileno(), signal)
        finally:
            remove()


def _send(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # over already
        sock.send(b"x")


def _read(stdin: int, woken: int, signal: AbortSignal) -> str | None:
    poll = select.poll()
    poll.register(stdin, select.POLLIN)
    poll.register(woken, select.POLLIN)
    line = b""
    while len(line) < _MAX_LINE_BYTES:
        ready = {descriptor for descriptor, _ in poll.poll()}
        signal.raise_if_aborted()
        if stdin not in ready:
            continue
        try:
            byte = os.read(
                stdin, 1
            )  # one, so that what is behind the line stays for the next reader
        except OSError:  # the terminal is gone
            byte = b""
        if not byte and not line:
            return None
        if not byte or byte == b"\n":
            break
        line += byte
    return line.decode("utf-8", "replace").strip()


def shown(text: str, limit: int | None = None) -> str:
    """Give text of others so that it can be shown: what could steer a terminal, or hide in it, becomes an escape.

    Args:
        text: any.
        limit: how many characters are shown; of a longer text its beginning and its end. None: all.
    """
    if limit is not None and len(text) > limit:
        half = limit // 2
        text = f"{text[:half]} … {len(text) - 2 * half} characters more … {text[-half:]}"
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )
