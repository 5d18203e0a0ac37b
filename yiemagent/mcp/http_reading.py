"""What an HTTP answer of an MCP server holds: the answer to one request, and what is said on the way to it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias, cast

from yiemagent.errors import HttpError, McpProtocolError, McpTransportError
from yiemagent.mcp import jsonrpc
from yiemagent.mcp.calls import Call, unreadable
from yiemagent.mcp.client_protocol import LISTEN, Cancelled, Progress, event_of
from yiemagent.mcp.jsonrpc import (
    ErrorResponse,
    Incoming,
    Malformed,
    Notification,
    Response,
    id_key,
)
from yiemagent.mcp.link import Refused
from yiemagent.net.http import HttpResponse
from yiemagent.net.sse import SseEvent, SseParser

__all__ = ["MAX_BODY_BYTES", "Answer", "Reading", "content_type", "refusal", "rpc_error"]

logger = logging.getLogger("yiemagent.mcp.http_reading")

Answer: TypeAlias = Response | ErrorResponse
Aside: TypeAlias = Callable[[Incoming], None]

MAX_BODY_BYTES = 67_108_864
_MAX_ERROR_BYTES = 1_048_576
# What a server says that does not know this transport, or this address of it.
_REFUSALS = {400, 404, 405, 406, 410, 415, 501}


def content_type(response: HttpResponse) -> str:
    """Give the media type of an answer, without parameters and in lower case."""
    return (response.headers.get("content-type") or "").partition(";")[0].strip().lower()


class Reading:
    """What comes for one request, over one stream or several.

    Args:
        number: the request's id; None takes no answer.
        call: is told of progress; None where nobody waits.
        aside: takes every message that is neither answer nor progress of this request.
        progressed: called after each word of progress.
        max_bytes: a larger message is an error.
    """

    def __init__(
        self,
        number: int | None,
        call: Call | None,
        aside: Aside,
        progressed: Callable[[], object] = lambda: None,
        max_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self.last_id = ""
        """The id of the last event; a stream is resumed with it."""
        self.retry_ms: int | None = None
        """How long the server wants to be left alone before that."""
        self.count = 0
        """How many events came."""
        self._number = number
        self._call = call
        self._aside = aside
        self._progressed = progressed
        self._max_bytes = max_bytes
        self._suspicion = ""

    def json(self, response: HttpResponse) -> Answer:
        """Read a JSON body, which must hold the answer.

        Raises:
            McpProtocolError: it doesn't.
            AbortedError: the request's signal was set.
            McpTransportError: the connection broke.
        """
        try:
            body = response.read(self._max_bytes)
        except HttpError as error:
            if "larger than" in str(error):
                raise McpProtocolError(str(error)) from error
            raise McpTransportError(str(error), outcome_unknown=True) from error
        found = self._among(jsonrpc.parse(body))
        if found is None:
            text = body[:200].decode("utf-8", "replace")
            raise unreadable(self._method, self._suspicion or f"it is no answer to it: {text!r}")
        return found

    def events(self, response: HttpResponse) -> Answer | None:
        """Read a stream of events up to the answer; None where it ends or breaks before that.

        Raises:
            McpProtocolError: an event can't be read and must have been the answer, or is too large.
            AbortedError: the request's signal was set.
        """
        parser = SseParser(self._max_bytes)
        try:
            for data in response.iter_bytes():
                found = self._events(parser.feed(data))
                self._note(parser)
                if found is not None:
                    response.finish()
                    return found
            found = self._events(parser.end())
        except HttpError as error:
            self._note(parser)
            if "larger than" in str(error):
                raise McpProtocolError(str(error)) from error
            logger.debug("a stream of events broke: %s", error)
            return None
        if found is None and self._suspicion:
            raise unreadable(self._method, self._suspicion)
        return found

    @property
    def _method(self) -> str:
        return self._call.method if self._call is not None else "nothing"

    def _note(self, parser: SseParser) -> None:
        self.last_id = parser.last_event_id or self.last_id
        self.retry_ms = parser.retry_ms if parser.retry_ms is not None else self.retry_ms

    def _events(self, events: list[SseEvent]) -> Answer | None:
        for event in events:
            self.count += 1
            found = self._among(jsonrpc.parse(event.data))
            if found is not None:
                return found
        return None

    def _among(self, items: list[Incoming]) -> Answer | None:
        answer: Answer | None = None
        for item in items:
            if isinstance(item, (Response, ErrorResponse)) and self._is_mine(item):
                answer = answer or item
            elif (
                isinstance(item, Malformed)
                and self._number is not None
                and item.is_answer is not False
            ):
                if id_key(item.id) == self._number:
                    raise unreadable(self._method, item.reason)
                self._suspicion = item.reason
            elif self._ends_listening(item):
                answer = answer or Response(cast("int", self._number), {})
            else:
                self._other(item)
        return answer

    def _is_mine(self, item: Answer) -> bool:
        key = id_key(item.id)
        return self._number is not None and (key is None or key == self._number)

    def _ends_listening(self, item: Incoming) -> bool:
        if not isinstance(item, Notification) or self._call is None or self._call.method != LISTEN:
            return False
        event = event_of(item)
        return isinstance(event, Cancelled) and event.request_id == self._number

    def _other(self, item: Incoming) -> None:
        event = event_of(item) if isinstance(item, Notification) else None
        if not isinstance(event, Progress):
            self._aside(item)
        elif self._call is not None and event.token == self._number:
            self._call.progressed(event)
            self._progressed()


def rpc_error(response: HttpResponse) -> tuple[ErrorResponse | None, str]:
    """Read the body of an answer that is no success: the error in it, if it is JSON-RPC, and how it begins.

    Raises:
        AbortedError: the request's signal was set.
    """
    try:
        body = response.read(_MAX_ERROR_BYTES)
    except HttpError as error:
        return None, str(error)
    text = " ".join(body[:300].decode("utf-8", "replace").split())
    if content_type(response) == "text/event-stream":
        parser = SseParser()
        items = [i for e in [*parser.feed(body), *parser.end()] for i in jsonrpc.parse(e.data)]
    else:
        items = jsonrpc.parse(body)
    return next((item for item in items if isinstance(item, ErrorResponse)), None), text


def refusal(response: HttpResponse, text: str) -> McpTransportError:
    """Give the error that tells of an HTTP status."""
    status = response.status
    said = f"{response.origin} answered {status}{f': {text}' if text else ''}"
    if 300 <= status < 400:
        to = response.headers.get("location") or "nowhere"
        return McpTransportError(f"{said}; it redirects to {to}: give that address", status=status)
    kind = Refused if status in _REFUSALS else McpTransportError
    return kind(said, outcome_unknown=status >= 500, status=status)
