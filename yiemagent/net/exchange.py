"""One request on its way, and how an abort reaches it wherever it blocks.

Resolving a name can't be interrupted, and a socket that connects or shakes hands belongs to a library. So all that
happens before the request is sent runs in a thread of its own (`Exchange.dial`), which is left behind when the signal
is set: what it still opens, it closes. From then on the exchange knows the socket, and an abort shuts it down, which
wakes whoever sends to it or reads from it; closing it would not.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from yiemagent.abort import AbortSignal, Deadline
from yiemagent.errors import AbortedError, HttpError, HttpTimeout

__all__ = ["Exchange", "Resolver", "origin_of", "resolve", "shut_down"]

Address: TypeAlias = tuple[Any, Any, int, str, Any]
Resolver: TypeAlias = Callable[[str, int], Sequence[Address]]
SocketOptions: TypeAlias = Iterable[tuple[int, int, int | bytes]]


def resolve(host: str, port: int) -> Sequence[Address]:
    """Give the addresses of `host`, as `socket.getaddrinfo` does."""
    return socket.getaddrinfo(host, port, socket.AF_UNSPEC, socket.SOCK_STREAM)


def origin_of(url: Any) -> str:
    """Give scheme, host and port of a URL for texts: no user, no path, no query, where keys may be."""
    try:
        parts = urlsplit(str(url))
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "a malformed URL"
    return f"{parts.scheme}://{parts.hostname or ''}{port}"


def shut_down(sock: Any) -> None:
    """End both directions of a socket, or of what wraps one: blocked readers and writers return at once.

    A TLS socket's own `shutdown` also forgets its session, so that bytes of a writer could leave unencrypted; hence the
    plain socket's.
    """
    plain = sock if isinstance(sock, socket.socket) else sock.socket
    with contextlib.suppress(OSError):  # it was closed, or never connected
        socket.socket.shutdown(plain, socket.SHUT_RDWR)


class Exchange:
    """One request and its answer.

    Args:
        signal: ends the exchange when it is set; None: nothing does.
        origin: whom it is with, for texts.
        connect_timeout_s: the limit for resolving, connecting and the TLS handshake together; None for none.
        idle_timeout_s: the limit for each wait for the answer; None for none.
        resolver: gives the addresses of a host.
        fresh: whether only a connection that has not been used will do.
    """

    def __init__(
        self,
        signal: AbortSignal | None = None,
        *,
        origin: str = "",
        connect_timeout_s: float | None = 10.0,
        idle_timeout_s: float | None = 120.0,
        resolver: Resolver = resolve,
        fresh: bool = False,
    ) -> None:
        self.origin = origin
        self.connect_timeout_s = connect_timeout_s
        self.idle_timeout_s = idle_timeout_s
        self.fresh = fresh
        self.connected = False
        """Whether a connection was made for this exchange; else it uses one that was kept."""
        self.answered = False
        """Whether any of the answer has come."""
        self.reached = False
        """Whether there was a connection, so that the server may have seen the request."""
        self._resolver = resolver
        # Guards the fields below and every shutdown, so that one never hits a socket that was given back or closed.
        # Held for nothing that blocks. Re-entrant, since a signal handler may abort while its thread is in here.
        self._lock = threading.RLock()
        self._sock: Any = None
        self._copy: socket.socket | None = None
        self._aborted = False
        self._over = False
        self._wake: Callable[[], None] | None = None
        self._signal = signal
        self._release = signal.add_callback(self.abort) if signal else _nothing

    @property
    def aborted(self) -> bool:
        """Whether the signal was set before the exchange was over."""
        return self._aborted

    def abort_error(self) -> AbortedError:
        """The error that tells of the abort."""
        reason = self._signal.reason if self._signal else None
        return AbortedError(f"aborted: {reason}" if reason else "aborted")

    def connect_error(self) -> HttpTimeout:
        """The error that tells of the limit for the connection."""
        limit = f"{self.connect_timeout_s:g} s"
        return HttpTimeout(f"no connection to {self.origin} within {limit}", None, True, False)

    def idle_error(self) -> HttpTimeout:
        """The error that tells of the limit for the answer."""
        limit = f"{self.idle_timeout_s:g} s"
        return HttpTimeout(f"{self.origin} sent nothing new for {limit}", None, True)

    def abort(self) -> None:
        """End the exchange: shut its socket down and wake who waits for a connection. Returns at once."""
        with self._lock:
            if self._over:
                return
            self._aborted = True
            if self._sock is not None:
                shut_down(self._sock)
            if self._wake is not None:
                self._wake()

    def watch(self, sock: Any) -> None:
        """Have an abort shut `sock` down from now on; shut it down at once where the exchange is over or aborted."""
        with self._lock:
            self._let_go()
            if self._aborted or self._over:
                shut_down(sock)
            else:
                self._sock, self.reached = sock, True

    def forget(self) -> None:
        """Leave the socket alone from now on: it is closed next, or given to somebody else."""
        with self._lock:
            self._let_go()

    def set_timeout(self, timeout_s: float | None) -> None:
        """Limit each wait on the watched socket."""
        with self._lock:
            if self._sock is not None:
                self._sock.settimeout(timeout_s)

    def end(self) -> None:
        """End the exchange in peace: no abort reaches it any more, and the signal knows nothing of it."""
        with self._lock:
            self._over = True
            self._let_go()
        self._release()

    def _let_go(self) -> None:
        self._sock = None
        if self._copy is not None:
            self._copy.close()
            self._copy = None

    def dial(self, connect: Callable[[], None], hang_up: Callable[[], None]) -> None:
        """Run `connect` in a thread of its own and wait for it, for the signal, or for the time limit.

        Args:
            connect: opens the connection; it may use `open_tcp`.
            hang_up: closes it; called in that thread when `connect` came back too late.

        Raises:
            AbortedError: the signal was set.
            TimeoutError: the time limit was reached.
            Exception: whatever `connect` raised.
        """
        self.connected = True
        call = _Call(connect, hang_up)
        with self._lock:
            if self._aborted:
                raise self.abort_error()
            self._wake = call.done.set
        try:
            _start(call)
            call.done.wait(self.connect_timeout_s)
        finally:  # also where the wait was interrupted from the keyboard
            came_back = call.leave()
            with self._lock:
                self._wake = None
                self._over = self._over or not came_back
                if not came_back and self._sock is not None:
                    shut_down(self._sock)  # so that the thread left behind ends soon
        if self._aborted:
            raise self.abort_error()
        if not came_back:
            raise TimeoutError
        if call.error is not None:
            raise call.error

    def open_tcp(self, host: str, port: int, options: SocketOptions = ()) -> socket.socket:
        """Resolve `host` and connect to the first of its addresses that answers; called in the thread of `dial`.

        An abort reaches the connection until the next `watch`, also while it is wrapped for TLS.

        Raises:
            OSError: no address answered, `socket.gaierror` included.
            AbortedError: the exchange ended meanwhile.
        """
        deadline = Deadline(self.connect_timeout_s)
        addresses = self._resolver(host, port)
        failure: OSError = OSError(f"no address of {host!r}")
        for tried, address in enumerate(addresses):
            remaining_s = deadline.remaining_s()
            share_s = (
                None if remaining_s is None else max(remaining_s, 0.001) / (len(addresses) - tried)
            )
            try:
                sock = self._try_address(address, share_s, options)
            except OSError as error:
                failure = error
                continue
            sock.settimeout(deadline.remaining_s() or self.connect_timeout_s)
            return sock
        raise failure

    def _try_address(
        self, address: Address, timeout_s: float | None, options: SocketOptions
    ) -> socket.socket:
        family, kind, protocol, _, where = address
        sock = socket.socket(family, kind, protocol)
        try:
            for option in options:
                sock.setsockopt(*option)
            sock.settimeout(timeout_s)
            # A copy of its own, since wrapping for TLS takes the socket away from its object.
            self._watch_copy(sock.dup())
            sock.connect(where)
        except BaseException:  # nothing may go by and leave the socket open
            self.forget()
            sock.close()
            raise
        return sock

    def _watch_copy(self, copy: socket.socket) -> None:
        with self._lock:
            self._let_go()
            if self._aborted or self._over:
                copy.close()
                raise self.abort_error()
            self._sock = self._copy = copy


class _Call:
    """A connect that runs in a thread of its own."""

    def __init__(self, connect: Callable[[], None], hang_up: Callable[[], None]) -> None:
        self.done = threading.Event()
        self.error: BaseException | None = None
        self._connect = connect
        self._hang_up = hang_up
        # Decides between the thread that comes back and the caller that leaves; nothing is called while it is held.
        self._lock = threading.Lock()
        self._finished = False
        self._left = False

    def run(self) -> None:
        try:
            self._connect()
        except BaseException as error:  # handed to the thread that waits, whatever it is
            self.error = error
        with self._lock:
            self._finished = not self._left
        if not self._finished:
            self._hang_up()
        self.done.set()

    def leave(self) -> bool:
        """Stop waiting; gives whether the thread came back before."""
        with self._lock:
            self._left = True
            return self._finished


def _start(call: _Call) -> None:
    thread = threading.Thread(target=call.run, name="yiem-net-connect", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        if sys.is_finalizing() or "shutdown" in str(error):
            raise AbortedError("aborted: the interpreter is shutting down") from error
        raise HttpError(f"no thread to connect with: {error}", None, True, False) from error


def _nothing() -> None:
    """Take nothing back: no signal was given."""
