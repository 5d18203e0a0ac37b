"""A local HTTP server that follows a script, faults included, and remembers what it was asked."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, Self, TypeAlias

Step: TypeAlias = "bytes | str | float | threading.Event"
Ending: TypeAlias = Literal["keep", "close", "reset", "hang"]


class Request(NamedTuple):
    """One request as it came; header names in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Answer:
    """One scripted answer.

    Args:
        body: bytes, or steps: bytes or text to send, seconds to wait, or an event to wait for.
        status: the HTTP status; None sends no head at all.
        headers: further headers.
        piece: cut the body in pieces of so many bytes, each sent by itself; None: as it stands.
        chunked: send each piece as a chunk; False: with a length, or up to the end of the connection.
        length: send a Content-Length; only where the body has no waits and isn't chunked.
        then: keep the connection, close it, reset it, or leave it open and silent until the server is closed.
    """

    def __init__(
        self,
        body: bytes | str | Iterable[Step] = b"",
        *,
        status: int | None = 200,
        headers: Sequence[tuple[str, str]] = (),
        piece: int | None = None,
        chunked: bool = False,
        length: bool = True,
        then: Ending = "close",
    ) -> None:
        self.steps: list[Step] = [body] if isinstance(body, (bytes, str)) else list(body)
        self.status = status
        self.headers = list(headers)
        self.piece = piece
        self.chunked = chunked
        self.length = length and all(isinstance(step, (bytes, str)) for step in self.steps)
        self.then: Ending = then


def sse(*events: Any, done: bool = True) -> bytes:
    """Give JSON values as server-sent events, with the closing [DONE]."""
    text = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    return (text + ("data: [DONE]\n\n" if done else "")).encode()


def sse_answer(body: bytes | str | Iterable[Step], **options: Any) -> Answer:
    """Give a stream of server-sent events as an answer; sent up to the end of the connection unless chunked."""
    headers = [("Content-Type", "text/event-stream"), *options.pop("headers", ())]
    return Answer(body, headers=headers, **{"length": False, **options})


def json_answer(value: Any, **options: Any) -> Answer:
    """Give a JSON value as an answer."""
    headers = [("Content-Type", "application/json"), *options.pop("headers", ())]
    return Answer(json.dumps(value).encode(), headers=headers, **options)


class ScriptedServer:
    """Serves on a port of 127.0.0.1 from its making until `close`; one thread each for the listener and connections.

    Args:
        answers: given in turn, the last one again and again; or a function of the request.
        tls: certificate and key file, to speak TLS.
        greet: False accepts connections and never says or reads a word.
    """

    def __init__(
        self,
        *answers: Answer | Callable[[Request], Answer],
        tls: tuple[str, str] | None = None,
        greet: bool = True,
    ) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self._answers = list(answers)
        self._greet = greet
        self._context = None
        if tls is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(*tls)
        # Guards the lists; whoever waits for requests or connections waits on it.
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._open: set[socket.socket] = set()
        self._gates: list[
            threading.Event
        ] = []  # what answers wait for; opened when the server is closed
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._waker, self._woken = socket.socketpair()
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    @property
    def url(self) -> str:
        """Scheme, host and port; a certificate must be for localhost."""
        return (
            f"https://localhost:{self.port}" if self._context else f"http://127.0.0.1:{self.port}"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_for(self, *, requests: int = 0, connections: int = 0, timeout_s: float = 10.0) -> None:
        """Block until so many requests and connections have come."""

        def there() -> bool:
            return len(self.requests) >= requests and self.connections >= connections

        with self._changed:
            if not self._changed.wait_for(there, timeout_s):
                raise AssertionError(f"only {len(self.requests)} requests came")

    def wait_until_idle(self, timeout_s: float = 10.0) -> None:
        """Block until every connection has ended, whoever ended it."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._open, timeout_s):
                raise AssertionError(f"{len(self._open)} connections are still open")

    def close(self) -> None:
        """End every connection and thread."""
        self._closing.set()
        self._waker.close()
        with self._changed:
            for gate in self._gates:
                gate.set()
            for sock in self._open:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10.0)
        self._woken.close()
        self._listener.close()

    def _start(self, work: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=work, args=args, name="scripted-server", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            ready, _, _ = select.select([self._listener, self._woken], [], [])
            if self._woken in ready:
                return
            sock, _ = self._listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._changed:
                self.connections += 1
                number = self.connections
                self._open.add(sock)
                self._changed.notify_all()
            self._start(self._serve, sock, number)

    def _serve(self, raw: socket.socket, number: int) -> None:
        sock = raw
        try:
            if not self._greet:
                _wait_for_end(raw, self._woken)
                return
            if self._context is not None:
                sock = self._context.wrap_socket(raw, server_side=True)
                with self._changed:
                    self._open.add(sock)
            with sock.makefile("rb") as reader:
                while self._one(sock, reader, number):
                    pass
        except (OSError, ValueError):
            pass  # the client went away: what it then missed is its own affair
        finally:
            sock.close()
            raw.close()
            with self._changed:
                self._open -= {sock, raw}
                self._changed.notify_all()

    def _one(self, sock: socket.socket, reader: Any, number: int) -> bool:
        request = _read_request(reader, number)
        if request is None:
            return False
        with self._changed:
            turn = len(self.requests)
            self.requests.append(request)
            self._changed.notify_all()
        scripted = self._answers[min(turn, len(self._answers) - 1)]
        answer = scripted if isinstance(scripted, Answer) else scripted(request)
        self._send(sock, answer)
        if answer.then == "hang":
            _wait_for_end(sock, self._woken)
        if answer.then == "reset":
            linger = struct.pack("ii", 1, 0)  # closing sends a reset instead of an orderly end
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        return answer.then == "keep"

    def _send(self, sock: socket.socket, answer: Answer) -> None:
        if answer.status is not None:
            sock.sendall(_head(answer))
        for step in answer.steps:
            if isinstance(step, float):
                self._closing.wait(step)
            elif isinstance(step, threading.Event):
                with self._changed:
                    self._gates.append(step)
                if not self._closing.is_set():
                    step.wait()
            else:
                data = step.encode() if isinstance(step, str) else step
                for at in range(0, len(data), answer.piece or len(data) or 1):
                    piece = data[at : at + (answer.piece or len(data))]
                    sock.sendall(b"%x\r\n%b\r\n" % (len(piece), piece) if answer.chunked else piece)
        if answer.chunked and answer.then in {"keep", "close"}:
            sock.sendall(b"0\r\n\r\n")


def _wait_for_end(sock: socket.socket, woken: socket.socket) -> None:
    """Wait until the client hangs up, whatever it sends, or the server is closed."""
    ends = select.poll()
    ends.register(sock, getattr(select, "POLLRDHUP", select.POLLHUP))
    ends.register(woken, select.POLLIN)
    ends.poll()


def _head(answer: Answer) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} Scripted"]
    lines += [f"{name}: {value}" for name, value in answer.headers]
    if answer.chunked:
        lines.append("Transfer-Encoding: chunked")
    elif answer.length:
        lines.append(f"Content-Length: {sum(len(step) for step in answer.steps)}")
    if answer.then == "close":
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode()


def _read_request(reader: Any, number: int) -> Request | None:
    first = reader.readline()
    if not first.strip():
        return None
    method, target, _ = first.decode().split(" ")
    headers: dict[str, str] = {}
    while (line := reader.readline().decode().rstrip("\r\n")) != "":
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = reader.read(int(headers.get("content-length", 0)))
    return Request(method, target, headers, body, number)
