"""The stdio transport: moves lines to and from a server's process.

One thread reads what the server writes and drains what it complains, so that it never blocks on a full pipe. Whoever
sends writes straight to the server's pipe, which never blocks; only what doesn't fit is left to that thread. So neither
a server that doesn't read nor one that doesn't answer holds anybody up.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import re
import select
import signal as signals
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from yiemagent.errors import McpTransportError
from yiemagent.mcp.jsonrpc import Incoming, LineReader, Noise
from yiemagent.mcp.server_process import ServerProcess, server_environment
from yiemagent.mcp.threads import start_daemon

__all__ = ["Frame", "StdioPipe"]

logger = logging.getLogger("yiemagent.mcp.stdio")

Receive: TypeAlias = Callable[[Incoming], None]
Ended: TypeAlias = Callable[[McpTransportError], None]

_READ_BYTES = 262_144
_TAIL_BYTES = 8_192
_TAIL_LINES = 8
_LAST_WORDS_S = 0.3
_POLITE_S = 1.0
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[^\t\x20-\x7e\xa0-\U0010ffff]")
# A line such as "    at run (node:internal/main:36:49)": JavaScript puts many of them behind the error.
_FRAME = re.compile(r"\s+at \S.*\d\)?(?: \{)?")
_SECRET = re.compile(r"key|token|secret|passw|auth|credential", re.IGNORECASE)


class Frame:
    """One message on its way out: how many of its bytes the server's pipe has taken."""

    __slots__ = ("data", "sent")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.sent = 0

    @property
    def is_sent(self) -> bool:
        """Whether the server may have read all of it; a part of a line is nothing to it."""
        return self.sent >= len(self.data)


class StdioPipe:
    """A server's process, as a pipe for messages.

    Args:
        command: the program and its arguments.
        env: variables for it beside the few that it gets of ours.
        cwd: the folder it runs in; None: ours.
        name: of the server, for texts and threads.
        max_line_bytes: a longer line of the server's is skipped and fails the call that it answers.
        receive: takes each message, on the reading thread; must return at once and not raise.
        ended: is told once why the pipe ended by itself, on the reading thread; the same holds for it.

    Raises:
        ConfigurationError: the server can't be started.
        McpTransportError: there is no thread to read from it.
    """

    def __init__(
        self,
        command: Sequence[str],
        receive: Receive,
        ended: Ended,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        name: str = "server",
        max_line_bytes: int = 67_108_864,
    ) -> None:
        self._name = name
        self._secrets = _secrets(env or {})
        self._reader = LineReader(max_line_bytes)
        self._stderr = bytearray()
        self._noise: collections.deque[str] = collections.deque(maxlen=3)
        # Guards what is to be written, and the descriptor written to; held for nothing that blocks.
        self._lock = threading.Lock()
        self._queue: collections.deque[Frame] = collections.deque()
        # Keeps the waking pipe from being closed while it is written to; held for that alone.
        self._wake_lock = threading.Lock()
        self._closing = False
        self._stdin_open = True
        self._end_by: float | None = None
        self._reason = ""
        self._over = threading.Event()  # no more messages will be read
        self._ended_politely = (
            threading.Event()
        )  # `close` has done what it does, and all may be let go of
        self._closed = threading.Event()  # all was let go of
        self._process = ServerProcess(command, server_environment(env, os.environ), cwd)
        self._stdin, self._stdout, self._stderr_fd = self._process.pipes
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._stdin, False)
        os.set_blocking(self._wake_w, False)
        try:
            start_daemon(f"yiem-mcp-{name}", self._run, receive, ended)
        except McpTransportError:
            self._let_go()
            raise

    @property
    def pid(self) -> int:
        """The id of the server's process."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How the server's process ended; negative: the signal that ended it; None: it still runs."""
        return self._process.wait(0)

    def end_at_once(self) -> None:
        """End the server and all that it started; returns at once, and takes no lock.

        Its end is then told as any other.
        """
        self._process.signal_group(signals.SIGKILL)

    @property
    def last_words(self) -> str:
        """The end of what the server wrote to stderr, or else what it wrote to stdout that is no message."""
        text = bytes(self._stderr).decode("utf-8", "replace").replace("\r\n", "\n")
        lines = [_CONTROL.sub("", line) for line in text.split("\n")]
        lines = [line for line in lines if line.strip() and not _FRAME.fullmatch(line)]
        tail = "\n".join(lines[-_TAIL_LINES:]) or "\n".join(self._noise)
        for secret in self._secrets:
            tail = tail.replace(secret, "***")
        return tail

    # --- sending ----------------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> Frame:
        """Send one message; returns at once.

        Raises:
            McpTransportError: the pipe is closed; nothing was sent.
        """
        frame = Frame(data + b"\n")
        with self._lock:
            if self._closing or not self._stdin_open:
                raise McpTransportError(f"the server {self._name!r} takes nothing any more")
            if not self._queue:
                self._write(frame)
            if not frame.is_sent:
                self._queue.append(frame)
        if not frame.is_sent:
            self._wake()
        return frame

    def withdraw(self, frame: Frame) -> bool:
        """Take a message back; gives whether none of it was sent."""
        with self._lock:
            if frame.sent or frame not in self._queue:
                return False
            self._queue.remove(frame)
            return True

    def _write(self, frame: Frame) -> None:
        try:
            frame.sent += os.write(self._stdin, memoryview(frame.data)[frame.sent :])
        except BlockingIOError:
            return
        except (
            OSError
        ):  # it closed its end; most often because it ends, which the other pipe tells better
            self._end_soon("closed its input")
            self._queue.clear()

    def _flush(self) -> None:
        with self._lock:
            while self._queue and self._stdin_open:
                frame = self._queue[0]
                before = frame.sent
                self._write(frame)
                if frame.is_sent:
                    self._queue.popleft()
                elif frame.sent == before:
                    return

    def _wake(self) -> None:
        with self._wake_lock, contextlib.suppress(OSError):  # it is full, and so wakes anyway
            if self._wake_w >= 0:
                os.write(self._wake_w, b"w")

    # --- reading ----------------------------------------------------------------------------------------------------

    def _run(self, receive: Receive, ended: Ended) -> None:
        try:
            self._read(receive)
        except Exception:  # a bug of ours must still end the calls that wait, and the process
            logger.exception("reading from the server %r failed", self._name)
        self._over.set()
        if not self._closing:
            ended(self._obituary())
        self._let_go()

    def _read(self, receive: Receive) -> None:
        poll, reading, writing = select.poll(), {self._stdout, self._stderr_fd}, False
        for descriptor in (*reading, self._wake_r):
            poll.register(descriptor, select.POLLIN)
        while reading and not self._is_over():
            for descriptor, _ in poll.poll(self._patience_ms()):
                if descriptor == self._wake_r:
                    os.read(self._wake_r, 4096)
                elif descriptor == self._stdin:
                    self._flush()
                elif not self._take(descriptor, receive):
                    poll.unregister(descriptor)
                    reading.discard(descriptor)
            writing = self._watch_stdin(poll, writing=writing)

    def _take(self, descriptor: int, receive: Receive) -> bool:
        """Take what a pipe holds; gives whether it is still open."""
        data = os.read(descriptor, _READ_BYTES)
        if descriptor != self._stdout:
            self._stderr += data
            del self._stderr[:-_TAIL_BYTES]
            return bool(data)
        for item in self._reader.feed(data) if data else self._reader.end():
            if item.__class__ is Noise:
                self._noise.append(item.excerpt)
                logger.debug("the server %r wrote no message: %s", self._name, item)
            receive(item)
        if not data:
            self._over.set()
            self._end_soon("closed its output")
        return bool(data)

    def _watch_stdin(self, poll: select.poll, *, writing: bool) -> bool:
        """Have the poll tell when there is place for what waits; gives whether it does."""
        with self._lock:
            wanted = bool(self._queue) and self._stdin_open
            if self._closing and self._stdin_open:
                self._stdin_open = wanted = False
                self._queue.clear()
                if writing:
                    poll.unregister(self._stdin)
                self._process.close_stdin()
                return False
        if wanted and not writing:
            poll.register(self._stdin, select.POLLOUT)
        elif writing and not wanted:
            poll.unregister(self._stdin)
        return wanted

    def _end_soon(self, reason: str) -> None:
        """Leave the server a moment for its last words, and then end the pipe."""
        if self._end_by is None:
            self._reason = reason
            self._end_by = time.monotonic() + _LAST_WORDS_S
            self._wake()

    def _patience_ms(self) -> float | None:
        if self._end_by is None or self._closing:
            return None
        return max(0.0, self._end_by - time.monotonic()) * 1000

    def _is_over(self) -> bool:
        if self._closing:
            return self._ended_politely.is_set()
        return self._end_by is not None and time.monotonic() >= self._end_by

    def _obituary(self) -> McpTransportError:
        code = self._process.wait(0.2)
        if code is None:
            happened = self._reason or "can't be read any more"
        elif code < 0:
            happened = f"was ended by {_signal_name(-code)}"
        else:
            happened = f"ended with exit code {code}"
        words = self.last_words
        said = f"; its last words: {words}" if words else " without a word on stderr"
        return McpTransportError(f"the server {self._name!r} {happened}{said}")

    # --- the end ----------------------------------------------------------------------------------------------------

    def kill(self, reason: str) -> None:
        """End the pipe and the server at once, because of what the server does (or doesn't)."""
        with self._lock:
            self._reason, self._end_by = reason, time.monotonic()
        self._wake()

    def close(self) -> None:
        """End the server: close its input, after a second ask it to end, after another end it, with all it started.

        Returns within about three seconds, whatever the server does. May be called from any thread, and again.
        """
        with self._lock:
            first, self._closing = not self._closing, True
        self._wake()
        if first:
            try:
                self._end_politely()
            finally:
                self._ended_politely.set()
                self._wake()
        self._closed.wait(3 * _POLITE_S)

    def _end_politely(self) -> None:
        for insistence in (signals.SIGTERM, signals.SIGKILL):
            ends_at = time.monotonic() + _POLITE_S
            is_silent = self._over.wait(_POLITE_S)
            if is_silent and self._process.wait(ends_at - time.monotonic()) is not None:
                return
            self._process.signal_group(insistence)

    def _let_go(self) -> None:
        if self._closing:
            self._ended_politely.wait()
        self._process.kill()
        with self._lock:
            self._stdin_open = False
            self._process.close_stdin()
        with self._wake_lock:
            os.close(self._wake_r)
            os.close(self._wake_w)
            self._wake_w = -1
        self._process.close_outputs()
        self._closed.set()


def _secrets(env: Mapping[str, str]) -> tuple[str, ...]:
    """Give the values that must not be shown, by the names of their variables."""
    return tuple(value for name, value in env.items() if len(value) >= 6 and _SECRET.search(name))


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
