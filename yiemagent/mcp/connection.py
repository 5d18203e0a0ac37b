"""Connections: what carries requests to a server and answers back.

`Connection` is the port that every transport fulfils. `DuplexConnection` does for those that are one stream in each
direction (stdio, the old HTTP+SSE): it keeps who waits for which answer, and hands on what comes unasked.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

import attrs

from yiemagent.errors import McpProtocolError, McpTimeout, McpTransportError
from yiemagent.mcp import jsonrpc
from yiemagent.mcp.calls import Call, unreadable
from yiemagent.mcp.client_protocol import LISTEN, Cancelled, Progress, event_of
from yiemagent.mcp.desk import Desk
from yiemagent.mcp.jsonrpc import (
    ErrorResponse,
    Incoming,
    Malformed,
    Notification,
    Request,
    Response,
    RpcId,
    id_key,
)
from yiemagent.record import Record

__all__ = ["Asked", "Connection", "DuplexConnection", "Pipe", "encode"]

logger = logging.getLogger("yiemagent.mcp.connection")


@attrs.frozen(eq=False, repr=False)
class Asked(Record):
    """A request as it goes out.

    Args:
        number: its id, unique in the client.
        method: what is asked.
        params: all of them, `_meta` included.
        schema: the input schema of the tool that is called, where it is known.
        may_repeat: whether it may be sent again although it may have had its effect.
        may_cancel: whether the server may be told that nobody waits any more.
    """

    number: int
    method: str
    params: Mapping[str, Any]
    schema: Mapping[str, Any] | None = None
    may_repeat: bool = True
    may_cancel: bool = True

    @property
    def message(self) -> dict[str, Any]:
        """The request as JSON-RPC."""
        return jsonrpc.request(self.number, self.method, self.params)


class Connection(Protocol):
    """What carries requests to a server; used by many threads at once.

    Contract: `exchange` blocks the calling thread until the answer is there or the call is over, and then tells the
    server that nobody waits any more. What the server says unasked goes to the desk that the connection was made with.
    """

    @property
    def failure(self) -> McpTransportError | None:
        """Why the connection can't be used any more, or None."""

    def exchange(self, asked: Asked, call: Call) -> Response | ErrorResponse:
        """Send a request and wait for its answer.

        Raises:
            AbortedError, McpTimeout: the call is over.
            McpTransportError: the connection broke; `outcome_unknown` says whether the request may have arrived.
            McpProtocolError: what came as the answer is none.
        """

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send a notification or an answer; does not wait for anything, and what fails is logged."""

    def open_stream(self, call: Call) -> None:
        """Have what the server says outside of answers come in from now on, where that takes a stream of its own.

        Waits, no longer than the call lasts, until it is open; that it can't be opened is no error.
        """

    def close(self) -> None:
        """End the connection and the calls that wait; may be called from any thread, and again."""


def encode(message: Mapping[str, Any]) -> bytes:
    """Give a message as bytes.

    Raises:
        McpProtocolError: it holds what JSON has not.
    """
    try:
        return jsonrpc.dump(message)
    except (TypeError, ValueError, RecursionError) as error:
        raise McpProtocolError(f"{message.get('method')} can't be sent as JSON: {error}") from error


# --- one stream in each direction ------------------------------------------------------------------------------------


class _Frame(Protocol):
    @property
    def is_sent(self) -> bool: ...


class Pipe(Protocol):
    """Moves messages over one stream in each direction; `stdio.StdioPipe` says what each function promises."""

    def send(self, data: bytes) -> Any:
        """Send one message; gives a frame, whose `is_sent` says whether all of it left."""

    def withdraw(self, frame: Any) -> bool:
        """Take a message back; gives whether none of it was sent."""

    def kill(self, reason: str) -> None:
        """End the pipe at once, because of what the server does."""

    def close(self) -> None:
        """End the pipe and wait for its end."""


Receive: TypeAlias = Callable[[Incoming], None]
Ended: TypeAlias = Callable[[McpTransportError], None]


class DuplexConnection:
    """A connection over a pipe.

    Args:
        open_pipe: makes the pipe, given where messages go and whom to tell of its end.
        desk: takes what the server says unasked.
    """

    def __init__(self, open_pipe: Callable[[Receive, Ended], Pipe], desk: Desk) -> None:
        self.late = 0
        """How many answers came that nobody waits for."""
        self._desk = desk
        self._failure: McpTransportError | None = None
        self._pending: dict[RpcId, Call] = {}  # single steps of a dict are atomic, so no lock
        self._ready = (
            threading.Event()
        )  # what the server says first may come before the next line ends
        self._pipe = open_pipe(self._receive, self._ended)
        self._ready.set()

    @property
    def pipe(self) -> Pipe:
        """What moves the messages."""
        return self._pipe

    @property
    def failure(self) -> McpTransportError | None:
        """Why the connection can't be used any more, or None."""
        return self._failure

    def exchange(self, asked: Asked, call: Call) -> Response | ErrorResponse:
        """Send a request and wait for its answer; see `Connection`."""
        data = encode(asked.message)
        self._pending[asked.number] = call
        try:
            if (
                self._failure is not None
            ):  # asked after the call is known: its end may have come before
                raise copy.copy(self._failure)
            return self._wait(asked, call, self._pipe.send(data))
        finally:
            self._pending.pop(asked.number, None)

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send a notification or an answer; see `Connection`."""
        self._ready.wait()
        try:
            self._pipe.send(encode(message))
        except (McpTransportError, McpProtocolError) as error:
            logger.debug("a message could not be sent: %s", error)

    def open_stream(self, call: Call) -> None:
        """Do nothing: all that the server says comes through the pipe."""

    def close(self) -> None:
        """End the connection and the calls that wait; see `Connection`."""
        self._ended(McpTransportError("the connection to the server was closed"))
        self._pipe.close()

    def _wait(self, asked: Asked, call: Call, frame: _Frame) -> Response | ErrorResponse:
        try:
            return call.wait()
        except McpTransportError as error:
            raise type(error)(str(error), frame.is_sent, error.status) from error
        except McpProtocolError:
            raise
        except BaseException as error:  # an abort, a limit or the keyboard: nobody waits any more
            self._give_up(asked, frame, error)
            raise

    def _give_up(self, asked: Asked, frame: _Frame, error: BaseException) -> None:
        if self._pipe.withdraw(frame):
            return
        if not frame.is_sent and isinstance(error, McpTimeout):
            self._pipe.kill("does not read what it is sent")
        elif asked.may_cancel:
            params = {"requestId": asked.number, "reason": str(error) or "cancelled"}
            self.tell(jsonrpc.notification("notifications/cancelled", params))

    # --- what comes -------------------------------------------------------------------------------------------------

    def _receive(self, item: Incoming) -> None:
        """Take a message; on the reading thread, so nothing here waits."""
        if isinstance(item, Response):
            self._answered(item.id, item)
        elif isinstance(item, Notification):
            self._notified(item)
        elif isinstance(item, ErrorResponse):
            self._answered(item.id, item)
        elif isinstance(item, Request):
            self._desk.answer(item, self.tell)
        elif isinstance(item, Malformed):
            self._garbled(item)

    def _answered(self, number: RpcId | None, item: Response | ErrorResponse) -> None:
        key = id_key(number)
        call = self._only_call() if key is None else self._pending.pop(key, None)
        if call is not None:
            call.put(item)
        else:
            self.late += 1
            logger.debug("an answer came that nobody waits for: %s", number)

    def _notified(self, item: Notification) -> None:
        event = event_of(item)
        if isinstance(event, Progress):
            call = self._pending.get(event.token) if event.token is not None else None
            if call is not None:
                call.put(event)
            return
        if isinstance(event, Cancelled) and event.request_id is not None:
            call = self._pending.get(event.request_id)
            if (
                call is not None and call.method == LISTEN
            ):  # else it is a question of the server's own
                call.put(Response(event.request_id, {}))
        self._desk.take(event)

    def _garbled(self, item: Malformed) -> None:
        logger.warning("the server sent what can't be read, %s: %s", item.reason, item.excerpt)
        key = id_key(item.id)
        if item.is_answer is False:
            self.tell(jsonrpc.error_response(item.id, item.code, item.reason))
        elif key is not None:
            call = self._pending.pop(key, None)
            if call is not None:
                call.put(unreadable(call.method, item.reason))
        elif (only := self._only_call()) is not None:
            only.suspect(item.reason)

    def _only_call(self) -> Call | None:
        """The call that must be meant where no id says which: the only one there is."""
        calls = list(self._pending.values())
        return calls[0] if len(calls) == 1 else None

    def _ended(self, failure: McpTransportError) -> None:
        if self._failure is None:
            self._failure = failure
        for key in list(self._pending):
            call = self._pending.pop(key, None)
            if call is not None:
                call.put(failure)
