"""A local HTTP server that follows a script, faults included, and remembers what it was asked.

It stands on the sockets of the standard library, so that a script says what leaves the machine byte by byte: stalls,
resets, bodies that are cut or drip, chunks of any size, over plain connections and over TLS.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal, Self, TypeAlias

from yiemagent.errors import ConfigurationError
from yiemagent.testing.http_script import HttpAnswer, HttpRequest, read_request

__all__ = ["ScriptedServer"]

logger = logging.getLogger("yiemagent.testing.server")

Scripted: TypeAlias = HttpAnswer | Callable[[HttpRequest], HttpAnswer]
Greeting: TypeAlias = Literal["serve", "stall", "reset"]

_UNSCRIPTED = HttpAnswer("the script of this server is empty", status=500)
_BACKLOG = 128


class ScriptedServer:
    """Serves on a port of 127.0.0.1 from its making until `close`; best used in a `with` block.

    One thread listens and each connection has one; all of them, and every socket, are gone after `close`.

    Args:
        answers: given in turn, the last one again and again; each an `HttpAnswer`, or a function that takes the
            `HttpRequest` and gives one, called on the connection's thread.
        certfile: certificate to speak TLS with, for "localhost"; None for plain HTTP.
        keyfile: the certificate's key.
        on_connect: what to do with connections, in turn, the last again and again: "serve" them, "stall" (accept and
            neither read nor say a word, not even for the TLS handshake) or "reset" them.

    Raises:
        ConfigurationError: there is a certificate without its key, or `on_connect` knows no such word.
    """

    def __init__(
        self,
        *answers: Scripted,
        certfile: str | None = None,
        keyfile: str | None = None,
        on_connect: Greeting | Sequence[Greeting] = "serve",
    ) -> None:
        self.requests: list[HttpRequest] = []
        """What came, in order; a request is here before its answer goes out."""
        self.connections = 0
        """How many connections were accepted."""
        self._answers = answers or (_UNSCRIPTED,)
        self._greetings = [on_connect] if isinstance(on_connect, str) else [*on_connect]
        if not self._greetings or set(self._greetings) - {"serve", "stall", "reset"}:
            raise ConfigurationError(f"on_connect is {on_connect!r}; know: serve, stall, reset")
        self._tls = _tls_context(certfile, keyfile)
        # Guards the fields below and the lists; whoever waits for requests or connections waits on it. Held for nothing
        # that blocks.
        self._changed = threading.Condition()
        self._closing = False
        self._open: set[socket.socket] = set()
        self._gates: list[threading.Event] = []  # what steps wait for, opened at the end
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        self._waker, self._woken = socket.socketpair()
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def url(self) -> str:
        """Scheme, host and port, without a slash at the end; with TLS the host is "localhost"."""
        if self._tls is not None:
            return f"https://localhost:{self.port}"
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_for(self, *, requests: int = 0, connections: int = 0, timeout_s: float = 10.0) -> None:
        """Block until so many requests and connections have come.

        Raises:
            TimeoutError: they did not come in time.
        """

        def there() -> bool:
            return len(self.requests) >= requests and self.connections >= connections

        with self._changed:
            if not self._changed.wait_for(there, timeout_s):
                raise TimeoutError(
                    f"only {len(self.requests)} requests over {self.connections} connections came "
                    f"within {timeout_s:g} s"
                )

    def wait_until_idle(self, timeout_s: float = 10.0) -> None:
        """Block until every connection has ended, whoever ended it.

        Raises:
            TimeoutError: some are still open after that time.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: not self._open, timeout_s):
                raise TimeoutError(
                    f"{len(self._open)} connections are still open after {timeout_s:g} s"
                )

    def close(self) -> None:
        """End every connection and thread; events that a script waits for are set. Does nothing the second time."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            for gate in self._gates:
                gate.set()
            for sock in self._open:
                with contextlib.suppress(OSError):  # the client was quicker
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)
        self._waker.close()
        for thread in self._threads:
            thread.join(10.0)
        self._woken.close()
        self._listener.close()

    # -- connections ---------------------------------------------------------------------------------------------

    def _start(self, work: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=work, args=args, name="scripted-server", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while self._wait_to_read(self._listener):
            try:
                sock, _ = self._listener.accept()
            except OSError:  # the client left between its knocking and our opening
                continue
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._changed:
                if self._closing:
                    sock.close()
                    return
                self.connections += 1
                number = self.connections
                self._open.add(sock)
                self._changed.notify_all()
            self._start(self._connection, sock, number)

    def _connection(self, raw: socket.socket, number: int) -> None:
        sock = raw
        try:
            greeting = self._greetings[min(number, len(self._greetings)) - 1]
            if greeting == "stall":
                self._wait_for_the_end(raw)
            elif greeting == "reset":
                _reset_when_closed(raw)
            else:
                sock = self._wrapped(raw)
                if isinstance(sock, ssl.SSLSocket):
                    sock.do_handshake()
                self._serve(sock, number)
        except (OSError, ValueError):  # the client went away or sent no HTTP: its own affair
            logger.debug("connection %d of a scripted server broke", number, exc_info=True)
        finally:
            with (
                self._changed
            ):  # under the lock, so that `close` shuts down no socket of somebody else
                sock.close()
                raw.close()
                self._open -= {sock, raw}
                self._changed.notify_all()

    def _wrapped(self, raw: socket.socket) -> socket.socket:
        if self._tls is None:
            return raw
        sock = self._tls.wrap_socket(raw, server_side=True, do_handshake_on_connect=False)
        with self._changed:
            self._open.discard(raw)  # the wrapped one has its descriptor now
            self._open.add(sock)
            if self._closing:
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
        return sock

    def _serve(self, sock: socket.socket, number: int) -> None:
        with sock.makefile("rb") as reader:
            while True:
                request = read_request(reader, number)
                if request is None:
                    return
                answer = self._answer(request)
                self._send(sock, answer)
                if answer.then == "hang":
                    self._wait_for_the_end(sock)
                if answer.then == "reset":
                    _reset_when_closed(sock)
                if answer.then != "keep":
                    return

    def _answer(self, request: HttpRequest) -> HttpAnswer:
        with self._changed:
            turn = min(len(self.requests), len(self._answers) - 1)
            self.requests.append(request)
            self._changed.notify_all()
        scripted = self._answers[turn]
        if isinstance(scripted, HttpAnswer):
            return scripted
        try:
            return scripted(request)
        except Exception as error:  # a test's function may raise anything, and the client waits
            logger.exception("a scripted answer raised")
            return HttpAnswer(f"the script raised {type(error).__name__}: {error}", status=500)

    def _send(self, sock: socket.socket, answer: HttpAnswer) -> None:
        sock.sendall(answer.head())
        for step in answer.wire_steps():
            if isinstance(step, bytes):
                sock.sendall(step)
            elif isinstance(step, threading.Event):
                self._wait_at(step, None)
            elif callable(step):
                step()
            else:
                self._wait_at(threading.Event(), step)

    def _wait_at(self, gate: threading.Event, seconds: float | None) -> None:
        with self._changed:
            if self._closing:
                gate.set()
                return
            self._gates.append(gate)
        gate.wait(seconds)
        with self._changed:
            self._gates.remove(gate)

    # -- waits that end with the server --------------------------------------------------------------------------

    def _wait_to_read(self, sock: socket.socket) -> bool:
        """Wait until something can be read from a socket; False where the server is closed."""
        with selectors.DefaultSelector() as selector:
            selector.register(sock, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            return all(key.fileobj is not self._woken for key, _ in selector.select())

    def _wait_for_the_end(self, sock: socket.socket) -> None:
        """Wait until the client hangs up, whatever it sends, or the server is closed."""
        while self._wait_to_read(sock) and socket.socket.recv(sock, 65_536):
            pass  # past TLS, too: nobody reads on


def _tls_context(certfile: str | None, keyfile: str | None) -> ssl.SSLContext | None:
    if certfile is None and keyfile is None:
        return None
    if certfile is None or keyfile is None:
        raise ConfigurationError("give both certfile and keyfile, or neither")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certfile, keyfile)
    return context


def _reset_when_closed(sock: socket.socket) -> None:
    """Have the close of a socket send a reset instead of an orderly end."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
