"""A server on its own standard input and output, as clients start one.

The wire is moved away from descriptors 0 and 1 for as long as it serves: what a tool prints goes to stderr, what it
reads is empty, and so it is for every process that it starts. The thread that calls `serve_stdio` only reads, so what a
client does not read holds up no end.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any, Protocol

from yiemagent.mcp.jsonrpc import INTERNAL_ERROR, Incoming, LineReader, RpcId, dump, error_response
from yiemagent.mcp.server_connection import Host, ServerConnection
from yiemagent.mcp.server_protocol import Call
from yiemagent.pool import DaemonPool

__all__ = ["StdioHost", "own_descriptors", "serve_stdio"]

logger = logging.getLogger("yiemagent.mcp.stdio")

_READ_BYTES = 65_536
MAX_LINE_BYTES = 67_108_864


class StdioHost(Host, Protocol):
    """What is served: an `McpServer`."""

    @property
    def pool(self) -> DaemonPool:
        """The threads that calls run on."""


def serve_stdio(
    server: StdioHost,
    *,
    stdin: int | None = None,
    stdout: int | None = None,
    end_grace_s: float = 1.0,
    max_line_bytes: int = MAX_LINE_BYTES,
) -> None:
    """Serve one client until it closes its end; blocks.

    Args:
        server: what is served; it stays open.
        stdin: the wire, as a descriptor. None, or no stdout: descriptors 0 and 1 of the process, which are moved away
            meanwhile; to be called on the main thread then, or at least where no other thread uses them.
        stdout: its other half.
        end_grace_s: how long calls that are under way when the client has closed may go on, before they are aborted.
        max_line_bytes: a longer message is refused.
    """
    if stdin is not None and stdout is not None:
        _Wire(server, stdin, stdout, max_line_bytes).serve(end_grace_s)
        return
    with own_descriptors() as (reading, writing):
        _Wire(server, reading, writing, max_line_bytes).serve(end_grace_s)


@contextlib.contextmanager
def own_descriptors() -> Iterator[tuple[int, int]]:
    """Move descriptors 0 and 1 away for a `with` block, and give where they are; in it, 0 is empty and 1 is stderr."""
    reading, writing = os.dup(0), os.dup(1)  # not inherited by child processes
    if (
        sys.platform == "win32"
    ):  # there, descriptors translate line ends unless they are told not to
        import msvcrt

        for descriptor in (reading, writing):
            msvcrt.setmode(descriptor, os.O_BINARY)
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        yield reading, writing
    finally:
        os.dup2(reading, 0)
        os.dup2(writing, 1)
        for descriptor in (nothing, reading, writing):
            os.close(descriptor)


class _Wire:
    """The two descriptors and the client at their other end."""

    def __init__(self, server: StdioHost, reading: int, writing: int, max_line_bytes: int) -> None:
        self._reading = reading
        self._writing = writing
        self._pool = server.pool
        self._lines = LineReader(max_line_bytes, strict=True)
        self._connection = ServerConnection(server, home=self)
        # What goes out, in its order; None ends the writer.
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="yiem-mcp-writer", daemon=True)
        # Counts the work that was begun; whoever waits for its end waits on it.
        self._changed = threading.Condition()
        self._working = 0

    def serve(self, end_grace_s: float) -> None:
        """Read until the client has closed its end, and let what it asked for end."""
        self._writer.start()
        try:
            while data := self._read():
                self._take(self._lines.feed(data))
            self._take(self._lines.end())
            self._wait_for_work(end_grace_s)
        finally:
            self._connection.close()
            self._wait_for_work(end_grace_s)  # aborted calls end at once, or are left behind
            self._outbox.put(None)
            self._writer.join(end_grace_s)  # longer only where the client has stopped to read

    def _read(self) -> bytes:
        try:
            return os.read(self._reading, _READ_BYTES)
        except OSError:  # the other end was reset
            return b""

    def _take(self, messages: list[Incoming]) -> None:
        for message in messages:
            call = self._connection.receive(message, self)
            if call is not None:
                with self._changed:
                    self._working += 1
                try:
                    self._pool.start(self._work, call)
                except (
                    RuntimeError
                ):  # the server was closed, or there is no thread left: here, then
                    self._work(call)

    def _work(self, call: Call) -> None:
        try:
            self._connection.run(call)
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

    def _wait_for_work(self, timeout_s: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._working, timeout_s)

    # -- the channel of all messages -----------------------------------------------------------------------------

    def send(self, message: dict[str, Any]) -> None:
        """Take a message that is no answer; one that JSON can't say is logged and dropped."""
        try:
            self._outbox.put(dump(message))
        except (ValueError, TypeError, RecursionError):
            logger.warning("a message could not be sent", exc_info=True)

    def finish(
        self, call_id: RpcId | None, message: dict[str, Any] | None, code: int | None
    ) -> None:
        """Take an answer."""
        del code
        if message is not None:
            self._outbox.put(dump_answer(call_id, message))

    def interrupt(self) -> None:
        """Do nothing: there is one stream."""

    def _write(self) -> None:
        while (line := self._outbox.get()) is not None:
            pieces = [line]
            while not self._outbox.empty():  # this thread alone takes
                following = self._outbox.get()
                if following is None:
                    self._outbox.put(None)
                    break
                pieces.append(following)
            data = memoryview(b"\n".join([*pieces, b""]))
            try:
                while data:
                    data = data[os.write(self._writing, data) :]
            except (
                OSError
            ):  # the client does not read any more; that it is gone, the reader will see
                logger.debug("the client closed its end", exc_info=True)
                return


def dump_answer(call_id: RpcId | None, message: dict[str, Any]) -> bytes:
    """Give an answer as JSON; one that JSON can't say becomes an error."""
    try:
        return dump(message)
    except (ValueError, TypeError, RecursionError) as error:
        text = f"the result can't be sent as JSON: {error}"
        return dump(error_response(call_id, INTERNAL_ERROR, text))
