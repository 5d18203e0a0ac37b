"""Listening to a stateless server: one long request under which it tells what changes.

Without it such a server never says so. The request is made again when it ends, at most every few seconds, and what may
have changed meanwhile is told as changed. Facts from the specification 2026-07-28, "Subscriptions".
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from yiemagent.abort import AbortSignal
from yiemagent.errors import AbortedError, McpError, McpProtocolError
from yiemagent.mcp.calls import Call
from yiemagent.mcp.client_protocol import LISTEN, ClientProtocol, ListChanged, ServerEvent
from yiemagent.mcp.connection import Asked, Connection
from yiemagent.mcp.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, ErrorResponse
from yiemagent.mcp.threads import start_daemon

__all__ = ["Listening"]

logger = logging.getLogger("yiemagent.mcp.listening")

_FIRST_DELAY_S = 0.5
_LAST_DELAY_S = 30.0
_KINDS = {
    "toolsListChanged": "tools",
    "promptsListChanged": "prompts",
    "resourcesListChanged": "resources",
}


class Listening:
    """One client's listening, on a thread that lives as long as there is something to listen to.

    Args:
        name: of the server, for the thread.
        numbers: gives the ids of requests.
        tell: takes an event that is made up here, since something may have been missed.
    """

    def __init__(
        self, name: str, numbers: Iterator[int], tell: Callable[[ServerEvent], object]
    ) -> None:
        self._name = name
        self._numbers = numbers
        self._tell = tell
        # Guards the fields below; nothing waits while it is held.
        self._lock = threading.Lock()
        self._signal: AbortSignal | None = None
        self._connection: Connection | None = None
        self._wanted: Mapping[str, Any] = {}
        self._closed = False

    def listen(
        self, connection: Connection, protocol: ClientProtocol, wanted: Mapping[str, Any]
    ) -> None:
        """Listen over a connection from now on, to what is wanted; returns at once.

        Args:
            connection: a stateless one.
            protocol: its words.
            wanted: the filter of the request; an empty one ends the listening.

        Raises:
            McpTransportError: there is no thread to be had.
        """
        with self._lock:
            same = connection is self._connection and wanted == self._wanted
            if self._closed or (same and self._signal is not None):
                return
            old, self._signal = self._signal, AbortSignal() if wanted else None
            signal = self._signal
            self._connection, self._wanted = connection, dict(wanted)
        if old is not None:
            old.abort("another subscription takes its place")
        if signal is not None:
            name = f"yiem-mcp-{self._name}-listen"
            start_daemon(name, self._run, connection, protocol, dict(wanted), signal)

    def close(self) -> None:
        """End the listening; returns at once."""
        with self._lock:
            self._closed = True
            signal, self._signal = self._signal, None
        if signal is not None:
            signal.abort("the client was closed")

    def _run(
        self,
        connection: Connection,
        protocol: ClientProtocol,
        wanted: dict[str, Any],
        signal: AbortSignal,
    ) -> None:
        delay_s, missed = _FIRST_DELAY_S, False
        while not signal.aborted and connection.failure is None:
            try:
                delay_s = self._once(connection, protocol, wanted, signal, missed=missed)
            except AbortedError:
                return
            except _Unknown as error:
                logger.info("the server %r can't be listened to: %s", self._name, error)
                return
            except McpError as error:
                logger.debug("listening to the server %r ended: %s", self._name, error)
                delay_s = min(2 * delay_s, _LAST_DELAY_S)
            missed = True
            signal.wait(delay_s)

    def _once(
        self,
        connection: Connection,
        protocol: ClientProtocol,
        wanted: dict[str, Any],
        signal: AbortSignal,
        *,
        missed: bool,
    ) -> float:
        """Listen until the server ends it; gives how long to wait before the next time."""
        number = next(self._numbers)
        params = protocol.params({"notifications": wanted})
        if missed:
            for kind in [_KINDS[wish] for wish in wanted if wish in _KINDS]:
                self._tell(ListChanged(kind))
        call = Call(LISTEN, signal=signal)
        answer = connection.exchange(Asked(number, LISTEN, params), call)
        if isinstance(answer, ErrorResponse):
            text = f"{answer.message} (code {answer.code})"
            if answer.code in {METHOD_NOT_FOUND, INVALID_PARAMS}:
                raise _Unknown(text)
            raise McpProtocolError(text, answer.code)
        return _FIRST_DELAY_S


class _Unknown(McpProtocolError):
    """The server knows nothing of subscriptions, or not of these."""
