"""A connection to NATS that comes back: one thread which connects, reads and writes.

Whoever sends writes straight to the socket where that does not wait; the rest is left to the thread, and in TLS all of
it. What was not sent when the connection broke is kept and sent over the next one; what was sent is not sent again.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import random
import select
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol

from yiemagent.abort import Deadline
from yiemagent.errors import ConfigurationError, McpProtocolError, McpTransportError
from yiemagent.mcp.nats_dial import NatsAddress, NatsDialer, NatsStream, parse_address
from yiemagent.mcp.nats_wire import (
    NatsInfo,
    NatsMessage,
    NatsPing,
    NatsPong,
    NatsRefusal,
    NatsSaid,
    ping_line,
    pong_line,
)

__all__ = ["NatsDisconnected", "NatsFrame", "NatsLink", "NatsUser", "PayloadTooLarge"]

logger = logging.getLogger("yiemagent.mcp.nats")

_READ_BYTES = 262_144
_MAX_PINGS_OUT = 2
_CLOSE_S = 1.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0


class NatsDisconnected(McpTransportError):
    """The connection to the NATS server broke, or there is none.

    `outcome_unknown` says whether the request was sent, so that it may have had its effect.
    """


class PayloadTooLarge(McpTransportError):
    """The message is larger than the NATS server carries; nothing was sent."""


class NatsFrame:
    """Bytes on their way out: how many of them the socket has taken.

    Args:
        data: the bytes.
        size: of the payload and its headers, which the server limits.
        sender: whoever is to be told where it can't be sent.
    """

    __slots__ = ("data", "is_control", "sender", "sent", "size")

    def __init__(self, data: bytes, size: int = 0, sender: Any = None) -> None:
        self.data = data
        self.size = size
        self.sender = sender
        self.sent = 0
        self.is_control = False  # of one connection, so that it is not sent over the next

    @property
    def is_sent(self) -> bool:
        """Whether the server may have read all of it; a part is nothing to it."""
        return self.sent >= len(self.data)


class NatsUser(Protocol):
    """Who uses a link; all is called on the link's thread, must return at once and not raise."""

    @property
    def is_listening(self) -> bool:
        """Whether a connection is wanted although nothing is to be sent."""

    def greeting(self) -> bytes:
        """Give what each connection begins with; the link is locked meanwhile."""

    def deliver(self, message: NatsMessage) -> None:
        """Take a message."""

    def refused(self, reason: str) -> None:
        """Take that the server refused something and goes on."""

    def broke(self, text: str) -> None:
        """Take that the connection ended, and with it the answers to what was sent."""

    def failed(self, frame: NatsFrame, error: McpTransportError) -> None:
        """Take that a frame never will be sent."""


class NatsLink:
    """Carries the frames of one user.

    Args:
        user: who is told.
        dialer: connects to a server.
        addresses: of the servers; more are learned from them.
        reconnect_wait_s: how long frames wait for a connection that broke to come back.
        ping_interval_s: how often the server is asked whether it is there.
    """

    def __init__(
        self,
        user: NatsUser,
        dialer: NatsDialer,
        addresses: Sequence[NatsAddress],
        *,
        reconnect_wait_s: float,
        ping_interval_s: float,
    ) -> None:
        self._user = user
        self._dialer = dialer
        self._addresses = list(addresses)
        self._reconnect_wait_s = reconnect_wait_s
        self._ping_interval_s = ping_interval_s
        # Guards the fields below, and writing to a socket that is not in TLS; nothing blocks while it is held, and of
        # the user only `greeting` is called.
        self._lock = threading.Lock()
        self._queue: collections.deque[NatsFrame] = collections.deque()
        self._stream: NatsStream | None = None
        self._dialling: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._wake: socket.socket | None = None
        self._closing = threading.Event()
        # Of the thread alone.
        self._learned: list[NatsAddress] = []
        self._broken_by = ""
        self._pings_out = 0
        self.info: NatsInfo | None = None
        """What the server said of itself last; None before the first connection."""

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection at present."""
        return self._stream is not None

    # --- sending ----------------------------------------------------------------------------------------------------

    def send(self, frame: NatsFrame) -> None:
        """Send a frame; returns at once.

        Raises:
            PayloadTooLarge: it is larger than the server takes.
            McpTransportError: the link was closed.
        """
        if self.info is not None and frame.size > self.info.max_payload:
            raise _too_large(frame, self.info)
        with self._lock:
            self._start()
            self._enqueue(frame)
        if not frame.is_sent:
            self._poke()

    def control(self, line: bytes) -> None:
        """Send a line to the server where it is connected; a new connection begins with the user's greeting."""
        frame = NatsFrame(line)
        frame.is_control = True
        with self._lock:
            self._start()
            if self._stream is None:
                return
            self._enqueue(frame)
        if not frame.is_sent:
            self._poke()

    def withdraw(self, frame: NatsFrame) -> None:
        """Take a frame back, unless some of it was sent."""
        with self._lock:
            if frame.sent == 0 and frame in self._queue:
                self._queue.remove(frame)

    def close(self) -> None:
        """End the connection and its thread; may be called from any thread, and again.

        Returns within a second, whatever the server does. What was to be sent is sent if that does not wait.
        """
        with self._lock:
            self._closing.set()
            thread, dialling = self._thread, self._dialling
            for frame in [frame for frame in self._queue if frame.sender is not None]:
                self._queue.remove(frame)
        self._poke()
        if dialling is not None:
            with contextlib.suppress(OSError):  # it is not connected yet, or not any more
                dialling.shutdown(socket.SHUT_RDWR)
        if thread is not None and thread is not threading.current_thread():
            thread.join(_CLOSE_S)  # longer only where a name is being looked up

    def _start(self) -> None:
        """See that the thread runs; the lock is held."""
        if self._closing.is_set():
            raise McpTransportError("the NATS client was closed")
        if self._thread is not None:
            return
        self._wake, mine = socket.socketpair()
        self._wake.setblocking(False)
        self._thread = threading.Thread(
            target=self._run, args=(mine,), name="yiem-mcp-nats", daemon=True
        )
        self._thread.start()

    def _enqueue(self, frame: NatsFrame) -> None:
        """Write a frame, or leave it to the thread; the lock is held."""
        stream = self._stream
        if stream is not None and not stream.is_tls and not self._queue:
            with contextlib.suppress(OSError):  # full; or broken, which the thread finds out
                frame.sent += stream.socket.send(frame.data)
        if not frame.is_sent:
            self._queue.append(frame)

    def _poke(self) -> None:
        wake = self._wake
        if wake is not None:
            with contextlib.suppress(OSError):  # full, and so it wakes anyway; or the thread ended
                wake.send(b"w")

    # --- connecting -------------------------------------------------------------------------------------------------

    def _run(self, wake: socket.socket) -> None:
        try:
            while (stream := self._connect()) is not None:
                reason = self._serve(stream, wake)
                self._lost(stream, reason)
        except Exception:  # a fault of ours must still end what waits
            logger.exception("the connection to NATS failed")
            if self._stream is not None:
                self._lost(self._stream, "a fault of ours")
        finally:
            self._rest()
            wake.close()

    def _connect(self) -> NatsStream | None:
        """Try the servers, again and again where there was a connection before; None where it is given up."""
        was_connected, patience = self.info is not None, Deadline(self._reconnect_wait_s)
        pause_s = _FIRST_PAUSE_S
        while not self._closing.is_set():
            failure = ""
            for address in [*self._addresses, *self._learned]:
                try:
                    return self._take_up(self._dial(address))
                except (McpTransportError, McpProtocolError) as error:
                    failure = str(error)
                    logger.debug("%s", error)
                if self._closing.is_set():
                    return None
            if not was_connected or patience.expired:
                if not self._user.is_listening:
                    self._broken_by = failure
                    return None
                self._fail_all(NatsDisconnected(failure))
            self._closing.wait(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads reconnecting clients
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        return None

    def _dial(self, address: NatsAddress) -> NatsStream:
        try:
            return self._dialer.dial(address, self._note_dialling)
        finally:
            with self._lock:
                self._dialling = None

    def _note_dialling(self, connected: socket.socket) -> None:
        with self._lock:
            self._dialling = connected
            if self._closing.is_set():
                raise McpTransportError("the NATS client was closed")

    def _take_up(self, stream: NatsStream) -> NatsStream:
        """Take a connection into use: the greeting first, then what waited."""
        self._learn(stream.info, stream)
        self._broken_by = ""
        with self._lock:
            greeting = NatsFrame(self._user.greeting())
            greeting.is_control = True
            self._queue.appendleft(greeting)
            self._stream = stream
        return stream

    def _learn(self, info: NatsInfo, stream: NatsStream) -> None:
        self.info = info
        scheme = "tls" if stream.is_tls else "nats"
        self._learned = []
        for place in info.other_servers:
            with contextlib.suppress(ConfigurationError):
                self._learned.append(parse_address(f"{scheme}://{place}"))
        with self._lock:
            too_large = [frame for frame in self._queue if frame.size > info.max_payload]
            for frame in too_large:
                self._queue.remove(frame)
        for frame in too_large:
            self._user.failed(frame, _too_large(frame, info))

    def _lost(self, stream: NatsStream, reason: str) -> None:
        """Let go of a connection; what was not sent is kept."""
        with self._lock:
            self._stream = None
            kept = [frame for frame in self._queue if not frame.is_control]
            self._queue = collections.deque(kept)
            for frame in kept:
                frame.sent = 0  # a part of it is nothing to the server
        stream.socket.close()
        if not self._closing.is_set():
            text = f"the connection to the NATS server {stream.address} ended: {self._broken_by or reason}"
            logger.warning("%s", text)
            self._user.broke(text)

    def _fail_all(self, error: McpTransportError) -> None:
        with self._lock:
            frames, self._queue = self._queue, collections.deque()
        for frame in frames:
            self._user.failed(frame, error)

    def _rest(self) -> None:
        """End the thread; who sends next starts another. What came in the last moment fails."""
        with self._lock:
            self._thread = None
            wake, self._wake = self._wake, None
            frames, self._queue = self._queue, collections.deque()
        if wake is not None:
            wake.close()
        reason = self._broken_by or "there is no connection to NATS"
        for frame in frames:
            self._user.failed(frame, NatsDisconnected(reason))

    # --- an open connection -----------------------------------------------------------------------------------------

    def _serve(self, stream: NatsStream, wake: socket.socket) -> str:
        """Read and write until the connection ends; gives why it did."""
        poll, sock = select.poll(), stream.socket
        poll.register(sock, select.POLLIN)
        poll.register(wake, select.POLLIN)
        self._pings_out, ping_at = 0, time.monotonic() + self._ping_interval_s
        try:
            self._hear(stream, stream.said)
            while True:
                if time.monotonic() >= ping_at:
                    if self._pings_out >= _MAX_PINGS_OUT:
                        return "it does not answer"
                    self._pings_out += 1
                    ping_at = time.monotonic() + self._ping_interval_s
                    self.control(ping_line())
                wants_to_write = self._flush(stream)
                if self._closing.is_set():
                    return "closed"
                poll.modify(sock, select.POLLIN | (select.POLLOUT if wants_to_write else 0))
                for descriptor, _ in poll.poll(max(0.0, ping_at - time.monotonic()) * 1000):
                    if descriptor == wake.fileno():
                        wake.recv(4096)
                    else:
                        self._read(stream)
        except OSError as error:
            return str(error) or type(error).__name__
        except (
            McpProtocolError,
            McpTransportError,
        ) as error:  # the latter where it is being closed
            return str(error)

    def _read(self, stream: NatsStream) -> None:
        sock = stream.socket
        while True:
            try:
                data = sock.recv(_READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            if not data:
                raise ConnectionError("it closed the connection")
            self._hear(stream, stream.reader.feed(data))
            if not (isinstance(sock, ssl.SSLSocket) and sock.pending()):
                return

    def _flush(self, stream: NatsStream) -> bool:
        """Send what waits, as far as the socket takes it; gives whether something is left."""
        with self._lock:
            while self._queue:
                frame = self._queue[0]
                try:
                    frame.sent += stream.socket.send(memoryview(frame.data)[frame.sent :])
                except (BlockingIOError, ssl.SSLWantWriteError):
                    return True
                except ssl.SSLWantReadError:
                    return False
                if frame.is_sent:
                    self._queue.popleft()
            return False

    def _hear(self, stream: NatsStream, said: Sequence[NatsSaid]) -> None:
        for each in said:
            match each:
                case NatsMessage():
                    self._user.deliver(each)
                case NatsPing():
                    self.control(pong_line())
                case NatsPong():
                    self._pings_out = 0
                case NatsInfo():
                    self._learn(each, stream)
                case NatsRefusal(reason):
                    if each.is_final:
                        self._broken_by = reason
                    else:
                        logger.warning("the NATS server refused: %s", reason)
                        self._user.refused(reason)


def _too_large(frame: NatsFrame, info: NatsInfo) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"the message has {frame.size} bytes, and the NATS server carries {info.max_payload} at most"
    )
