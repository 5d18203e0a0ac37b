"""One open connection to a server at a time, and a new one when it broke.

The first who needs the connection opens it, in its own thread and time; others wait for it, each no longer than its own
call lasts. No lock is held while anybody waits. A server that keeps ending is left alone for a while.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Protocol

from yiemagent.errors import McpError, McpProtocolError, McpTimeout, McpTransportError
from yiemagent.mcp import jsonrpc
from yiemagent.mcp.calls import Call
from yiemagent.mcp.client_protocol import ClientProtocol, Era, NoAnswer
from yiemagent.mcp.connection import Asked, Connection
from yiemagent.mcp.desk import Desk
from yiemagent.mcp.jsonrpc import ErrorResponse, Response

__all__ = ["Dialer", "Link", "Refused", "SessionLost"]

logger = logging.getLogger("yiemagent.mcp.link")

_MAX_ENDS = 3
_ENDS_WITHIN_S = 60.0
_LEGACY_WAYS = {"sse"}  # transports that only the handshake era has


class Refused(McpTransportError):
    """The transport itself refused the request, without a word of JSON-RPC: the server may speak another one."""


class SessionLost(McpTransportError):
    """The server does not know the session any more; the request had no effect."""


class Dialer(Protocol):
    """Makes connections to one server.

    Contract: `dial` is given the protocol that the connection will speak and the desk; it may start a process, and does
    not wait for the server. Where the opening is `Refused`, the next of `ways` is dialled.
    """

    @property
    def ways(self) -> tuple[str, ...]:
        """The names of the transports to try, in order."""

    def dial(self, way: str, protocol: ClientProtocol, desk: Desk) -> Connection:
        """Make a connection.

        Raises:
            ConfigurationError, McpTransportError: it can't be made.
        """


OnOpen = Callable[[Connection, ClientProtocol, Call], None]


class _Opening:
    """A connection that one thread opens and others wait for."""

    def __init__(self) -> None:
        self.waiters: list[SimpleQueue[McpError | None]] = []
        self.connection: Connection | None = None  # once it is dialled, so that `close` can end it


class Link:
    """Gives the open connection to a server.

    Args:
        dialer: makes connections.
        desk: takes what the server says unasked.
        make_protocol: makes the words of a new connection, given the era.
        era: which era to expect; "auto" finds out, and remembers it.
        probe_timeout_s: limit for finding out.
        on_open: called with each connection that was opened, before it is given to anybody; what it raises ends it.
    """

    def __init__(
        self,
        dialer: Dialer,
        desk: Desk,
        make_protocol: Callable[[Era], ClientProtocol],
        *,
        era: Era = "auto",
        probe_timeout_s: float = 5.0,
        on_open: OnOpen = lambda _connection, _protocol, _call: None,
    ) -> None:
        self.numbers: Iterator[int] = itertools.count(1)
        """Gives the ids of requests."""
        self._dialer = dialer
        self._desk = desk
        self._make_protocol = make_protocol
        self._wanted_era = era
        self._probe_timeout_s = probe_timeout_s
        self._on_open = on_open
        self._reset()
        self._closed = False
        self._era = era  # what was found out
        self._way: str | None = None  # the same of transports

    def _reset(self) -> None:
        self._pid = os.getpid()
        # Guards the fields below; nothing waits and no foreign code runs while it is held.
        self._lock = threading.Lock()
        self._current: tuple[Connection, ClientProtocol] | None = None
        self._opening: _Opening | None = None
        self._ends: collections.deque[float] = collections.deque(maxlen=_MAX_ENDS)
        self._last_end: McpTransportError | None = None
        self._closing: list[Connection] = []

    @property
    def current(self) -> tuple[Connection, ClientProtocol] | None:
        """The connection if it is open now, and its words."""
        current = self._current
        return current if current is not None and current[0].failure is None else None

    def get(self, call: Call) -> tuple[Connection, ClientProtocol]:
        """Give the open connection and its words, opening one where there is none.

        Raises:
            AbortedError, McpTimeout: the call is over.
            ConfigurationError, McpError: none can be opened, or the link was closed.
        """
        if self._pid != os.getpid():  # a fork: the parent's server is not ours, nor is its lock
            self._reset()
        while True:
            current = self.current
            if current is not None:
                return current
            with self._lock:
                self._check_open()
                others, mine = self._opening, _Opening()
                waiter: SimpleQueue[McpError | None] = SimpleQueue()
                if others is None:
                    self._opening = mine
                else:
                    others.waiters.append(waiter)
            if others is None:
                return self._open_for_all(mine, call)
            _wait(waiter, call)

    def drop(self, connection: Connection) -> None:
        """Let go of a connection that is of no use any more; the next `get` opens another."""
        with self._lock:
            current = self._current
            if current is None or current[0] is not connection:
                return
            self._current = None
            if connection.failure is not None:
                self._note_end(connection.failure)
        connection.close()

    def close(self) -> None:
        """End the connection and everybody who waits for one; may be called from any thread, and again."""
        with self._lock:
            self._closed = True
            current, self._current = self._current, None
            half_open = self._opening.connection if self._opening is not None else None
            found = (current[0] if current is not None else None, half_open)
            self._closing += [connection for connection in found if connection is not None]
            closing = list(self._closing)  # those of others too: whoever closes waits for the end
        for connection in closing:
            connection.close()

    # --- opening ----------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise McpTransportError("the client was closed")
        current = self._current
        if current is not None and current[0].failure is not None:
            self._note_end(current[0].failure)
            self._current = None
        recent = [at for at in self._ends if at > time.monotonic() - _ENDS_WITHIN_S]
        if len(recent) >= _MAX_ENDS:
            raise McpTransportError(
                f"the server ended {_MAX_ENDS} times within {_ENDS_WITHIN_S:g} s and is left alone for "
                f"a while; the last time: {self._last_end}"
            )

    def _note_end(self, failure: McpTransportError) -> None:
        self._ends.append(time.monotonic())
        self._last_end = failure

    def _open_for_all(self, opening: _Opening, call: Call) -> tuple[Connection, ClientProtocol]:
        failure: McpError | None = None
        opened: tuple[Connection, ClientProtocol] | None = None
        try:
            opened = self._open(opening, call)
            return opened
        except (McpTransportError, McpProtocolError) as error:
            failure = error
            raise
        finally:  # whatever happened, the others must not wait for it
            with self._lock:
                self._opening = None
                closed = self._closed
                if not closed:
                    self._current = opened
            for waiter in opening.waiters:
                waiter.put(failure)
            if closed and opened is not None:
                opened[0].close()

    def _open(self, opening: _Opening, call: Call) -> tuple[Connection, ClientProtocol]:
        """Try the ways and eras that are left to try."""
        ways = [self._way] if self._way is not None else list(self._dialer.ways)
        era, refused = self._era, None
        while True:
            if ways[0] in _LEGACY_WAYS and era == "auto":
                era = "legacy"
            try:
                found = self._try(opening, ways[0], era, call)
            except Refused as error:
                ways.pop(0)
                refused = refused or error  # of what was tried first
                if not ways:
                    self._way = None
                    raise refused from None
                era = "legacy"
            except _EndedAtProbe as error:  # some end at a method that they don't know
                logger.debug("the server ended when it was probed and is started again: %s", error)
                era = "legacy"
            except McpProtocolError:
                if era == self._wanted_era or self._era != era:
                    raise
                era = self._era = self._wanted_era  # the server is another one now than it was
            else:
                self._way, self._era = ways[0], "modern" if found[1].is_stateless else "legacy"
                return found

    def _try(
        self, opening: _Opening, way: str, era: Era, call: Call
    ) -> tuple[Connection, ClientProtocol]:
        protocol = self._make_protocol(era)
        self._note_half_open(opening, None)
        connection = self._dialer.dial(way, protocol, self._desk)
        try:
            self._note_half_open(opening, connection)
            self._converse(connection, protocol, call)
            self._on_open(connection, protocol, call)
        except BaseException as error:  # whatever it is, nobody else knows the connection yet
            with self._lock:
                failure = connection.failure
                if failure is not None and not isinstance(error, _EndedAtProbe):
                    self._note_end(failure)
            connection.close()
            raise
        return connection, protocol

    def _note_half_open(self, opening: _Opening, connection: Connection | None) -> None:
        with self._lock:
            opening.connection = connection
            if self._closed:
                raise McpTransportError("the client was closed")

    def _converse(self, connection: Connection, protocol: ClientProtocol, call: Call) -> None:
        conversation = protocol.opening()
        ask = next(conversation)
        while True:
            asked = Asked(next(self.numbers), ask.method, ask.params, may_cancel=False)
            limits = [call.remaining_s()]
            if ask.is_probe and protocol.era == "auto":
                limits.append(self._probe_timeout_s)
            limit_s = min((limit for limit in limits if limit is not None), default=None)
            step = Call(ask.method, signal=call.signal, timeout_s=limit_s)
            answer = self._answer(connection, asked, step, is_probe=ask.is_probe)
            call.check()
            try:
                ask = conversation.send(answer)
            except StopIteration:
                break
        if not protocol.is_stateless:
            connection.tell(jsonrpc.notification("notifications/initialized"))

    def _answer(
        self, connection: Connection, asked: Asked, step: Call, *, is_probe: bool
    ) -> Response | ErrorResponse | NoAnswer:
        try:
            return connection.exchange(asked, step)
        except McpTimeout as error:
            if is_probe:
                return NoAnswer(str(error))
            raise
        except Refused as error:
            if is_probe:
                return NoAnswer(str(error))
            raise
        except McpProtocolError as error:
            if is_probe:
                return NoAnswer(str(error))
            raise
        except McpTransportError as error:
            if is_probe and connection.failure is not None and self._wanted_era == "auto":
                raise _EndedAtProbe(str(error)) from error
            raise


class _EndedAtProbe(McpTransportError):
    """The server ended when it was asked which era it is of."""


def _wait(waiter: SimpleQueue[McpError | None], call: Call) -> None:
    """Wait until the connection is open or its opening failed; raises why it did."""
    aborted = object()
    remove = None
    if call.signal is not None:
        remove = call.signal.add_callback(functools.partial(waiter.put, aborted))  # type: ignore[arg-type]  # a mark
    failure: object = None
    with contextlib.suppress(Empty):
        try:
            failure = waiter.get(timeout=call.remaining_s())
        finally:
            if remove is not None:
                remove()
    call.check()
    if isinstance(failure, McpError):
        raise copy.copy(failure) from failure
