"""What goes back to a client over HTTP: the outlet of one answer, and streams that outlive it.

An `Outlet` is what one connection waits at. In the stateless era it takes the messages itself. In the handshake era a
`Stream` stands before it, which numbers the messages and keeps the latest, so that a client whose connection broke can
come back for them (specification 2025-11-25, "Transports", "Resumability and Redelivery").
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
from collections import deque
from typing import Any, Literal, NamedTuple

from yiemagent.abort import Deadline
from yiemagent.mcp.jsonrpc import RpcId, dump
from yiemagent.mcp.serve_stdio import dump_answer

__all__ = ["Item", "Outlet", "Stream"]

logger = logging.getLogger("yiemagent.mcp.http")

KEPT_EVENTS = 256


class Item(NamedTuple):
    """Something for the connection to send.

    Args:
        kind: "message"; "answer", the last message; or "end": there is nothing more.
        data: JSON; empty for a priming event and for an end.
        event_id: the number by which a client can come back.
        code: the code of the error that an answer is.
    """

    kind: Literal["message", "answer", "end"]
    data: bytes = b""
    event_id: str | None = None
    code: int | None = None


class Outlet:
    """What one connection waits at: for messages, and for its client to go away."""

    def __init__(self) -> None:
        # Guards the fields below: whoever puts sees whether somebody waits.
        self._lock = threading.Lock()
        self._items: list[Item] = []
        self._pipe: tuple[socket.socket, socket.socket] | None = None

    def put(self, item: Item) -> None:
        """Take something to send; from any thread."""
        with self._lock:
            self._items.append(item)
            if self._pipe is not None:
                # A full pipe has woken the reader already.
                with contextlib.suppress(OSError):
                    self._pipe[0].send(b"\0")

    def wait(self, sock: socket.socket, timeout_s: float | None) -> list[Item] | None:
        """Wait for something to send.

        Args:
            sock: the client's connection.
            timeout_s: how long at most, in seconds.

        Returns:
            What there is, nothing after the time; None where the client has gone.
        """
        with self._lock:
            if self._items:
                return self._taken()
            if self._pipe is None:
                self._pipe = socket.socketpair()
                for end in self._pipe:
                    end.setblocking(False)
            woken = self._pipe[1]
        deadline = Deadline(timeout_s)
        with selectors.DefaultSelector() as selector:
            selector.register(woken, selectors.EVENT_READ)
            selector.register(sock, selectors.EVENT_READ)
            while ready := [key.fileobj for key, _ in selector.select(deadline.remaining_s())]:
                if woken in ready:
                    with contextlib.suppress(OSError):
                        woken.recv(4096)
                if sock in ready:
                    if not _is_open(sock):
                        return None
                    selector.unregister(
                        sock
                    )  # the next request came already; it waits for its turn
                with self._lock:
                    if self._items:
                        return self._taken()
        return []

    def _taken(self) -> list[Item]:
        items, self._items = self._items, []
        return items

    def ready(self) -> bytes:
        """Give what there is, without waiting, as one body."""
        with self._lock:
            return b"".join(item.data for item in self._taken())

    def end(self) -> None:
        """Have whoever waits go on."""
        self.put(Item("end"))

    def close(self) -> None:
        """Let go of the pipe."""
        with self._lock:
            pipe, self._pipe = self._pipe, None
        for end in pipe or ():
            end.close()

    # -- the channel of a stateless request ----------------------------------------------------------------------

    def send(self, message: dict[str, Any]) -> None:
        """Take a message that is no answer; one that JSON can't say is logged and dropped."""
        data = _dumped(message)
        if data is not None:
            self.put(Item("message", data))

    def finish(
        self, call_id: RpcId | None, message: dict[str, Any] | None, code: int | None
    ) -> None:
        """Take an answer; None: there will be none."""
        if message is None:
            self.put(Item("end"))
        else:
            self.put(Item("answer", dump_answer(call_id, message), None, code))

    def interrupt(self) -> None:
        """Do nothing: nobody could come back for the rest."""


def _is_open(sock: socket.socket) -> bool:
    """Whether there is something to read on a socket, and not its end."""
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except OSError:
        return False


def _dumped(message: dict[str, Any]) -> bytes | None:
    try:
        return dump(message)
    except (ValueError, TypeError, RecursionError):
        logger.warning("a message could not be sent", exc_info=True)
        return None


class Stream:
    """Messages to a client that shook hands, in an order that survives its connections.

    Args:
        stream_id: its name in the session; without "/".
        calls: how many answers it carries before it ends; None: it does not end by itself.
        primed: whether it begins with an event without data, so that clients can come back from the start.
    """

    def __init__(self, stream_id: str, calls: int | None = 1, *, primed: bool = False) -> None:
        self.stream_id = stream_id
        # Guards the fields below: numbers and order. Putting into an outlet never waits.
        self._lock = threading.Lock()
        self._left = calls
        self._number = 0
        self._kept: deque[tuple[int, Item]] = deque(maxlen=KEPT_EVENTS)
        self._delivered = 0  # up to which number outlets were given
        self._outlet: Outlet | None = None
        if primed:
            self._put(Item("message"))

    @property
    def attached(self) -> bool:
        """Whether a connection waits for its messages."""
        return self._outlet is not None

    @property
    def ended(self) -> bool:
        """Whether all its answers are there."""
        return self._left == 0

    def attach(self, outlet: Outlet, after: int | None = None) -> None:
        """Have messages go to an outlet from now on; another that had them gets its end.

        Args:
            outlet: takes them.
            after: the number of the last message that the client has; None: the last that any connection was given.
        """
        with self._lock:
            if self._outlet is not None:
                self._outlet.put(Item("end"))
            self._outlet = outlet
            start = self._delivered if after is None else after
            for number, item in self._kept:
                if number > start:
                    outlet.put(item)
            self._delivered = self._number
            if self.ended:
                outlet.put(Item("end"))

    def detach(self, outlet: Outlet) -> None:
        """Have an outlet take no more, if it is the one that does."""
        with self._lock:
            if self._outlet is outlet:
                self._outlet = None

    def send(self, message: dict[str, Any]) -> None:
        """Take a message that is no answer; one that JSON can't say is logged and dropped."""
        data = _dumped(message)
        if data is not None:
            with self._lock:
                self._put(Item("message", data))

    def finish(
        self, call_id: RpcId | None, message: dict[str, Any] | None, code: int | None
    ) -> None:
        """Take an answer; None: one less will come."""
        with self._lock:
            if self._left is not None:
                self._left -= 1
            last = self._left == 0
            if message is not None:
                data = dump_answer(call_id, message)
                self._put(Item("answer" if last else "message", data, None, code))
            elif last and self._outlet is not None:
                self._outlet.put(Item("end"))

    def interrupt(self) -> None:
        """End the present connection; the client comes back by the number of its last message."""
        with self._lock:
            if self._outlet is not None:
                self._outlet.put(Item("end"))
                self._outlet = None

    def end(self) -> None:
        """End it for good."""
        with self._lock:
            self._left = 0
            if self._outlet is not None:
                self._outlet.put(Item("end"))

    def _put(self, item: Item) -> None:
        self._number += 1
        item = item._replace(event_id=f"{self.stream_id}/{self._number}")
        self._kept.append((self._number, item))
        if self._outlet is not None:
            self._outlet.put(item)
            self._delivered = self._number
