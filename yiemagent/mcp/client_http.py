"""The Streamable HTTP transport, the client's side: each request is a POST, and its answer JSON or a stream of events.

The calling thread sends its own request and reads its own answer, so calls share nothing but the pool of connections.
In the handshake era there are sessions, which get lost; streams that are resumed by the id of their last event; and one
stream beside all answers, for what the server says unasked. Facts from the specifications 2025-11-25 and 2026-07-28,
"Transports".
"""

from __future__ import annotations

import copy
import functools
import logging
import re
import threading
from collections.abc import Mapping
from typing import Any

from yiemagent.abort import AbortSignal
from yiemagent.errors import AbortedError, HttpError, McpError, McpProtocolError, McpTransportError
from yiemagent.mcp import jsonrpc
from yiemagent.mcp.calls import Call
from yiemagent.mcp.client_headers import request_headers
from yiemagent.mcp.client_protocol import ClientProtocol, event_of
from yiemagent.mcp.connection import Asked, encode
from yiemagent.mcp.desk import Desk
from yiemagent.mcp.http_reading import (
    MAX_BODY_BYTES,
    Answer,
    Reading,
    content_type,
    refusal,
    rpc_error,
)
from yiemagent.mcp.jsonrpc import Incoming, Malformed, Notification, Request
from yiemagent.mcp.link import SessionLost
from yiemagent.mcp.poster import Limits, Poster
from yiemagent.mcp.threads import start_daemon
from yiemagent.mcp.versions import PROTOCOL_VERSION_META
from yiemagent.net.http import HttpResponse

__all__ = ["HttpConnection"]

logger = logging.getLogger("yiemagent.mcp.client_http")

_SESSION = re.compile(r"[\x21-\x7e]+")
_EVENTS = "text/event-stream"
_SIDE_LIMIT_S = 10.0  # for what nobody waits for: notifications, answers to the server
_GOODBYE_LIMIT_S = 1.0
_STREAM_OPENS_WITHIN_S = 5.0
_MAX_RESUMES = 5
_RETRY_MS = 1000
_LAST_RETRY_MS = 30_000


class HttpConnection:
    """A connection over Streamable HTTP; see `connection.Connection`.

    Args:
        poster: sends the requests.
        protocol: the words of the connection.
        desk: takes what the server says unasked.
        name: of the server, for threads.
        max_bytes: a larger message is an error.
    """

    def __init__(
        self,
        poster: Poster,
        protocol: ClientProtocol,
        desk: Desk,
        name: str,
        max_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self._max_bytes = max_bytes
        self._poster = poster
        self._protocol = protocol
        self._desk = desk
        self._name = name
        self._session = ""
        self._is_lost = False
        self._failure: McpTransportError | None = None
        # Guards the fields below; nothing waits while it is held.
        self._lock = threading.Lock()
        self._stream_signal: AbortSignal | None = None
        self._has_closed = False

    @property
    def failure(self) -> McpTransportError | None:
        """Why the connection can't be used any more, or None: HTTP itself never breaks for good."""
        return self._failure

    def exchange(self, asked: Asked, call: Call) -> Answer:
        """Send a request and wait for its answer; see `Connection`."""
        if self._failure is not None:
            raise copy.copy(self._failure)
        body = encode(asked.message)
        call.check()
        with self._poster.limits(call) as limits:
            try:
                return self._converse(asked, body, call, limits)
            except AbortedError as error:
                raise self._given_up(asked, call, error) from error
            except KeyboardInterrupt:
                self._cancel(asked, "interrupted")
                raise

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send a notification or an answer, waiting ten seconds at most; what fails is logged."""
        call = Call(str(message.get("method") or "an answer"), timeout_s=_SIDE_LIMIT_S)
        try:
            with self._poster.limits(call) as limits:
                headers = {**self._headers(), "Content-Type": "application/json"}
                response = self._poster.send("POST", headers, limits.signal, body=encode(message))
                with response:
                    if response.status >= 300:
                        logger.debug("%s was answered with %d", call.method, response.status)
                    response.finish()
        except (McpError, AbortedError) as error:
            logger.debug("%s could not be sent: %s", call.method, error)

    def close(self) -> None:
        """End the connection and the calls that wait; the server is told that the session is over."""
        with self._lock:
            first, self._has_closed = not self._has_closed, True
            stream, self._stream_signal = self._stream_signal, None
        if not first:
            return
        if stream is not None:
            stream.abort("the client was closed")
        if (
            not self._is_lost
        ):  # else calls may still be answered, and new ones go over another connection
            self._failure = McpTransportError("the connection to the server was closed")
            self._poster.abort()
            self._say_goodbye()
        self._poster.drain()

    # --- one request ------------------------------------------------------------------------------------------------

    def _headers(self, asked: Asked | None = None) -> dict[str, str]:
        headers = {"Accept": f"application/json, {_EVENTS}"}
        meta = asked.params.get("_meta") if asked is not None else None
        version = meta.get(PROTOCOL_VERSION_META) if isinstance(meta, dict) else None
        if asked is not None and isinstance(version, str):
            return headers | request_headers(version, asked.method, asked.params, asked.schema)
        facts = self._protocol.facts
        if facts is not None and not facts.is_stateless:
            headers["MCP-Protocol-Version"] = facts.version
        if self._session:
            headers["MCP-Session-Id"] = self._session
        return headers

    def _converse(self, asked: Asked, body: bytes, call: Call, limits: Limits) -> Answer:
        headers = {**self._headers(asked), "Content-Type": "application/json"}
        reading = Reading(asked.number, call, self._aside, limits.extend, self._max_bytes)
        response = self._poster.send(
            "POST", headers, limits.signal, body=body, resend=asked.may_repeat
        )
        with response:
            if not 200 <= response.status < 300:
                return self._refused(response, session=headers.get("MCP-Session-Id", ""))
            if asked.method == "initialize":
                self._note_session(response)
            if content_type(response) != _EVENTS:
                return reading.json(response)
            answer = reading.events(response)
        return answer or self._resumed(reading, call, limits)

    def _note_session(self, response: HttpResponse) -> None:
        session = response.headers.get("mcp-session-id") or ""
        if session and not _SESSION.fullmatch(session):
            raise McpProtocolError(
                f"the server gave the session id {session!r:.80}, which can't be sent"
            )
        self._session = session

    def _refused(self, response: HttpResponse, session: str) -> Answer:
        """Give the error in an answer that is no success, or raise what its status means."""
        error, text = rpc_error(response)
        is_about_session = response.status == 404 or (
            response.status == 400 and "session" in text.lower()
        )
        if session and is_about_session:
            self._is_lost = True
            raise SessionLost(f"the server lost the session: {text or response.status}")
        if error is not None and response.status not in {401, 403}:
            return error
        raise refusal(response, text)

    def _resumed(self, reading: Reading, call: Call, limits: Limits) -> Answer:
        """Go on with a stream that ended before the answer, where the server has given its events ids."""
        fruitless = 0
        while reading.last_id and not self._protocol.is_stateless and fruitless < _MAX_RESUMES:
            before = reading.count
            if limits.signal.wait(_delay_s(reading.retry_ms, fruitless)):
                limits.signal.raise_if_aborted()
            headers = {**self._headers(), "Accept": _EVENTS, "Last-Event-ID": reading.last_id}
            try:
                with self._poster.send("GET", headers, limits.signal) as response:
                    if response.status != 200 or content_type(response) != _EVENTS:
                        break
                    answer = reading.events(response)
            except McpTransportError as error:
                logger.debug("a stream could not be resumed: %s", error)
                answer = None
            if answer is not None:
                return answer
            fruitless = 0 if reading.count > before else fruitless + 1
        raise McpTransportError(
            f"the stream ended before the answer to {call.method}", outcome_unknown=True
        )

    def _given_up(self, asked: Asked, call: Call, error: AbortedError) -> Exception:
        """Tell the server that nobody waits, and give the error that tells the caller why."""
        if self._failure is not None:
            return McpTransportError(str(self._failure), outcome_unknown=True)
        reason: Exception = error
        try:
            call.check()
        except (AbortedError, McpError) as found:
            reason = found
        self._cancel(asked, str(reason))
        return reason

    def _cancel(self, asked: Asked, reason: str) -> None:
        """Tell a server that keeps sessions; a stateless one has heard the stream end."""
        if asked.may_cancel and not self._protocol.is_stateless:
            params = {"requestId": asked.number, "reason": reason}
            self._desk.work(self.tell, jsonrpc.notification("notifications/cancelled", params))

    def _aside(self, item: Incoming) -> None:
        """Take what the server says beside an answer; on the reading thread, so nothing here waits."""
        reply = functools.partial(self._desk.work, self.tell)
        if isinstance(item, Notification):
            self._desk.take(event_of(item))
        elif isinstance(item, Request):
            self._desk.answer(item, reply)
        elif isinstance(item, Malformed) and item.is_answer is False:
            reply(jsonrpc.error_response(item.id, item.code, item.reason))
        else:
            logger.debug("the server said what nobody waits for: %s", item)

    # --- the stream beside all answers -------------------------------------------------------------------------------

    def open_stream(self, call: Call) -> None:
        """Have what the server says outside of answers come in, over a stream of its own; see `Connection`."""
        with self._lock:
            if self._stream_signal is not None or self._has_closed or self._protocol.is_stateless:
                return
            signal = self._stream_signal = AbortSignal()
        opened = threading.Event()
        start_daemon(f"yiem-mcp-{self._name}-stream", self._stream, signal, opened)
        remaining_s = call.remaining_s()
        limit_s = _STREAM_OPENS_WITHIN_S if remaining_s is None else remaining_s
        remove = call.signal.add_callback(opened.set) if call.signal is not None else None
        opened.wait(min(limit_s, _STREAM_OPENS_WITHIN_S))
        if remove is not None:
            remove()

    def _stream(self, signal: AbortSignal, opened: threading.Event) -> None:
        reading, fruitless = Reading(None, None, self._aside, max_bytes=self._max_bytes), 0
        try:
            while not signal.aborted:
                before = reading.count
                if not self._stream_once(reading, signal, opened):
                    return
                fruitless = 0 if reading.count > before else fruitless + 1
                signal.wait(_delay_s(reading.retry_ms, fruitless))
        except AbortedError:
            return
        finally:
            opened.set()

    def _stream_once(self, reading: Reading, signal: AbortSignal, opened: threading.Event) -> bool:
        """Read the stream to its end; gives whether to open it again."""
        headers = {**self._headers(), "Accept": _EVENTS}
        if reading.last_id:
            headers["Last-Event-ID"] = reading.last_id
        try:
            with (
                self._poster.limits(Call("the stream", signal=signal)) as limits,
                self._poster.send("GET", headers, limits.signal) as response,
            ):
                if response.status != 200 or content_type(response) != _EVENTS:
                    logger.debug("the server has no stream of its own: %d", response.status)
                    return False
                opened.set()
                reading.events(response)
        except (McpTransportError, McpProtocolError) as error:
            logger.debug("the stream of the server %r broke: %s", self._name, error)
        return self._failure is None

    def _say_goodbye(self) -> None:
        if not self._session:
            return
        try:
            with self._poster.limits(Call("DELETE", timeout_s=_GOODBYE_LIMIT_S)) as limits:
                self._poster.send("DELETE", self._headers(), limits.signal).close()
        except (McpError, AbortedError, HttpError) as error:
            logger.debug("the session could not be ended: %s", error)


def _delay_s(retry_ms: int | None, fruitless: int) -> float:
    """Give how long to leave the server alone: what it asks for at least, and longer while nothing comes."""
    asked_ms = _RETRY_MS if retry_ms is None else retry_ms
    grown_ms = 0 if fruitless == 0 else min(_RETRY_MS * 2**fruitless, _LAST_RETRY_MS)
    return max(asked_ms, grown_ms) / 1000
