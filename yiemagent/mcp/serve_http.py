"""A server over HTTP on sockets of its own: one thread listens, and each connection has one.

A connection's thread is the only one that writes to it. While it waits for an answer, it sees when its client hangs up.
For TLS, and for machines other than this one, put a web server in front.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
from collections.abc import Iterable, Mapping
from typing import BinaryIO, Self

from yiemagent.abort import Deadline
from yiemagent.errors import ConfigurationError
from yiemagent.mcp.http_endpoint import HttpEndpoint, HttpHost, Plain, Streaming, refusal_body
from yiemagent.mcp.http_guard import HttpGuard
from yiemagent.mcp.http_sessions import Sessions
from yiemagent.mcp.http_streams import Item
from yiemagent.mcp.http_wire import (
    LAST_CHUNK,
    HttpRefusal,
    RequestHead,
    chunk,
    read_body,
    read_head,
    response_head,
    sse_event,
)

__all__ = ["HttpServing"]

logger = logging.getLogger("yiemagent.mcp.http")

_BACKLOG = 128
_JSON = {"Content-Type": "application/json"}
_SSE = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",  # proxies must not keep events back
}
_KEEP_ALIVE = b": keep-alive\n\n"
_RETRY_MS = 1000
_DISCARDED_BYTES = 16_777_216
_LINGER_S = 2.0


class HttpServing:
    """Serves from its making until `close`; best used in a `with` block.

    Args:
        server: what is served, an `McpServer`; it stays open.
        host: the address to listen at; those of other machines reach it only where it is no loopback address.
        port: the port; 0: one that is free, see `port`.
        path: the endpoint's.
        token: what clients must bring as a bearer token, or such tokens by the name of whoever brings it; None: whoever
            reaches the server may use it.
        allowed_hosts: names, with their port, that it goes by beside those of this machine; see `HttpGuard`.
        allowed_origins: pages of these Origins may use it.
        max_body_bytes: a larger request is refused.
        keep_alive_s: seconds of silence after which a stream is sent a comment.
        idle_timeout_s: seconds of silence in which a connection may neither send what it owes nor take what it is sent.
        session_idle_s: seconds after which a session that nobody uses is forgotten.
        max_connections: more are refused.

    Raises:
        ConfigurationError: the address can't be listened at, or a token is too short.
    """

    def __init__(
        self,
        server: HttpHost,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        path: str = "/mcp",
        token: str | Mapping[str, str] | None = None,
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
        max_body_bytes: int = 4_194_304,
        keep_alive_s: float = 15.0,
        idle_timeout_s: float = 75.0,
        session_idle_s: float = 3600.0,
        max_connections: int = 256,
    ) -> None:
        self._max_body_bytes = max_body_bytes
        self._keep_alive_s = keep_alive_s
        self._idle_timeout_s = idle_timeout_s
        self._max_connections = max_connections
        self._listener = _listener(host, port)
        self.port: int = self._listener.getsockname()[1]
        """Where it listens."""
        self._sessions = Sessions(server, session_idle_s)
        try:
            guard = HttpGuard(allowed_hosts, allowed_origins, token, self.port)
        except ConfigurationError:
            self._listener.close()
            raise
        self._endpoint = HttpEndpoint(server, path, guard, self._sessions)
        self.url = f"http://{_shown(host)}:{self.port}{path}"
        """The endpoint's."""
        # Guards the fields below; `close` waits on it for answers that end. Held for nothing that blocks.
        self._changed = threading.Condition()
        self._closing = False
        self._open: dict[socket.socket, threading.Thread] = {}
        self._streaming: set[Streaming] = set()
        self._closed = threading.Event()
        self._waker, self._woken = socket.socketpair()
        self._acceptor = threading.Thread(target=self._accept, name="yiem-mcp-http", daemon=True)
        self._acceptor.start()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self) -> None:
        """Block until it is closed."""
        self._closed.wait()

    def close(self, grace_s: float = 1.0) -> None:
        """End it: no thread and no socket is left. The second time it does nothing.

        Args:
            grace_s: seconds that answers have to go out which can end in good order.
        """
        with self._changed:
            if self._closing:
                return
            self._closing = True
            streaming = list(self._streaming)
        self._waker.close()
        self._acceptor.join()
        for answer in streaming:
            answer.end()
        self._sessions.close()
        deadline = Deadline(grace_s)
        with self._changed:
            self._changed.wait_for(lambda: not self._streaming, deadline.remaining_s())
            for sock in self._open:
                with contextlib.suppress(OSError):  # the client was quicker
                    sock.shutdown(socket.SHUT_RDWR)
            threads = list(self._open.values())
        for thread in threads:
            thread.join()
        self._woken.close()
        self._listener.close()
        self._closed.set()

    # -- connections ---------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while all(key.fileobj is self._listener for key, _ in selector.select()):
                try:
                    sock, _ = self._listener.accept()
                except OSError:  # the client left between its knocking and our opening
                    continue
                self._serve_on_a_thread(sock)

    def _serve_on_a_thread(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(self._idle_timeout_s)
        thread = threading.Thread(
            target=self._connection, args=(sock,), name="yiem-mcp-http-connection", daemon=True
        )
        with self._changed:
            full = len(self._open) >= self._max_connections
            if not full:
                self._open[sock] = thread
        if full:
            with contextlib.suppress(OSError):
                sock.sendall(_plain(Plain(503, refusal_body("too many connections")), "close"))
            sock.close()
            return
        thread.start()

    def _connection(self, sock: socket.socket) -> None:
        try:
            with sock.makefile("rb") as reader:
                while self._exchange(sock, reader):
                    pass
        except (OSError, ValueError):  # the client went away, in the middle of something or not
            logger.debug("a connection broke", exc_info=True)
        finally:
            with (
                self._changed
            ):  # under the lock, so that `close` shuts down no socket of somebody else
                sock.close()
                del self._open[sock]

    def _exchange(self, sock: socket.socket, reader: BinaryIO) -> bool:
        """Take one request and answer it; gives whether there may be another."""
        body = _Body(sock, reader, self._max_body_bytes)
        head: RequestHead | None = None
        try:
            body.head = head = read_head(reader)
            if head is None:
                return False
            answer = self._endpoint.respond(head, body.read)
        except HttpRefusal as refusal:
            answer = Plain(refusal.status, refusal_body(str(refusal)), refusal.headers)
            if head is None or not body.is_read(
                head
            ):  # what is left must not be read as another request
                sock.sendall(_plain(answer, "close"))
                _let_go(sock)
                return False
        keeps = head.keeps_alive
        if isinstance(answer, Plain):
            sock.sendall(_plain(answer, "keep-alive" if keeps else "close"))
            return keeps
        return self._stream(sock, head, answer) and keeps

    def _stream(self, sock: socket.socket, head: RequestHead, answer: Streaming) -> bool:
        with self._changed:
            self._streaming.add(answer)
            if self._closing:
                answer.end()
        writer = _Writer(sock, head, answer)
        try:
            whole = self._pump(sock, writer, answer)
        finally:
            answer.gone()
            answer.outlet.close()
            with self._changed:
                self._streaming.discard(answer)
                self._changed.notify_all()
        return whole and writer.reusable

    def _pump(self, sock: socket.socket, writer: _Writer, answer: Streaming) -> bool:
        """Send what comes until the answer is whole; gives False where the client hung up first."""
        if not answer.lazy:
            writer.begin()
        while True:
            items = answer.outlet.wait(sock, self._keep_alive_s)
            if items is None:
                return False
            if writer.write(items):
                return True


class _Body:
    """The body of one request, which is read only where it is wanted."""

    def __init__(self, sock: socket.socket, reader: BinaryIO, max_bytes: int) -> None:
        self.head: RequestHead | None = None
        self._sock = sock
        self._reader = reader
        self._max_bytes = max_bytes
        self._read = False

    def read(self) -> bytes:
        """Give it; a client that asks whether to send it is told so."""
        assert self.head is not None
        length = self.head.headers.get("content-length", "")
        fits = not length.isdigit() or int(length) <= self._max_bytes
        if fits and self.head.headers.get("expect", "").lower() == "100-continue":
            self._sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = read_body(self._reader, self.head, self._max_bytes)
        self._read = True
        return body

    def is_read(self, head: RequestHead) -> bool:
        """Whether nothing of it is left to be read."""
        length = head.headers.get("content-length", "0")
        return self._read or (length == "0" and "transfer-encoding" not in head.headers)


class _Writer:
    """Puts what comes on one connection: as JSON where the answer comes first, else as events."""

    def __init__(self, sock: socket.socket, head: RequestHead, answer: Streaming) -> None:
        self._sock = sock
        self._answer = answer
        self._chunks = head.version == "1.1"
        self._connection = "keep-alive" if head.keeps_alive else "close"
        self._begun = False

    @property
    def reusable(self) -> bool:
        """Whether the connection shows where the answer ended."""
        return self._chunks or not self._begun

    def begin(self, events: bytes = b"") -> None:
        """Send the head of a stream, and its first events."""
        framing = {"Transfer-Encoding": "chunked"} if self._chunks else {}
        connection = self._connection if self._chunks else "close"
        head = response_head(200, {**_SSE, **framing, "Connection": connection})
        self._begun = True
        self._sock.sendall(head + self._framed(events))

    def write(self, items: list[Item]) -> bool:
        """Send what came, or a comment for nothing; gives whether it was the last."""
        if items and items[0].kind == "answer" and not self._begun:
            plain = Plain(self._answer.status(items[0].code), items[0].data)
            self._sock.sendall(_plain(plain, self._connection))
            return True
        events = b"".join(_event(item) for item in items) if items else _KEEP_ALIVE
        over = any(item.kind != "message" for item in items)
        if not self._begun:
            self.begin(events)
            events = b""
        if events or over:
            self._sock.sendall(
                self._framed(events) + (LAST_CHUNK if over and self._chunks else b"")
            )
        return over

    def _framed(self, data: bytes) -> bytes:
        return chunk(data) if self._chunks else data


def _event(item: Item) -> bytes:
    if item.kind == "end":
        return b""
    return sse_event(item.data, item.event_id, None if item.data else _RETRY_MS)


def _plain(answer: Plain, connection: str) -> bytes:
    headers = {**(_JSON if answer.body else {}), **answer.headers}
    if answer.status != 204:
        headers["Content-Length"] = str(len(answer.body))
    return response_head(answer.status, {**headers, "Connection": connection}) + answer.body


def _let_go(sock: socket.socket) -> None:
    """Read and drop what the client still sends, so that it reads our answer before it sees the end."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_WR)
        left, deadline = _DISCARDED_BYTES, Deadline(_LINGER_S)
        while left > 0 and not deadline.expired:
            sock.settimeout(deadline.remaining_s() or 0.001)
            data = sock.recv(65_536)
            if not data:
                return
            left -= len(data)


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if not 0 <= port <= 65_535:
        raise ConfigurationError(f"a port is a number from 0 to 65535, not {port}")
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigurationError(f"can't listen at {host}:{port}: {error}") from error


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
