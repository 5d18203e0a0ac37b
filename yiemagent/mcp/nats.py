"""MCP over NATS: each request is one message to a subject, its answers come to an inbox of its own.

Only the stateless era fits, since any member of a queue group may answer: nothing is shaken hands about. Requests carry
ids that no other client uses, and an answer must carry its own. Messages before the answer are progress and what else a
server says unasked. That nobody waits any more is told to `SUBJECT.cancel`, which all members hear.

Whatever has `request(subject, data, timeout)` carries the requests: a `NatsClient`, which also takes several answers
and abandons a request at once, or anything of yours, which is given a thread for each request.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from yiemagent.errors import (
    ConfigurationError,
    McpError,
    McpProtocolError,
    McpTimeout,
    McpTransportError,
    error_text,
)
from yiemagent.mcp import jsonrpc
from yiemagent.mcp.calls import Call, unreadable
from yiemagent.mcp.client_protocol import Progress, event_of
from yiemagent.mcp.connection import Asked, encode
from yiemagent.mcp.jsonrpc import (
    METHOD_NOT_FOUND,
    ErrorResponse,
    Malformed,
    Noise,
    Notification,
    Response,
    id_key,
)
from yiemagent.mcp.nats_client import NatsClient, NatsPost
from yiemagent.mcp.nats_wire import NatsMessage, check_subject
from yiemagent.mcp.versions import LATEST_STATELESS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from yiemagent.mcp.client_protocol import ClientProtocol
    from yiemagent.mcp.desk import Desk

__all__ = ["NatsRequester", "NatsServer", "cancel_subject"]

logger = logging.getLogger("yiemagent.mcp.nats")

_DISCOVER = "server/discover"
# What a server is taken for that doesn't know the question: one with tools, as plain MCP over NATS has them.
_PLAIN = {"supportedVersions": [LATEST_STATELESS], "capabilities": {"tools": {}}}


class NatsRequester(Protocol):
    """What carries requests.

    Contract: `request` blocks until the first answer is there and gives it as bytes, text, or something whose `data` or
    `payload` is one of these. It is called on many threads at once, and raises where there is no answer: a
    `TimeoutError` where the time is up, an `McpTransportError` to say more; of everything else the outcome counts as
    unknown.
    """

    def request(self, subject: str, data: bytes, timeout: float | None) -> Any:
        """Send a request and give its answer; `timeout` is in seconds, None for none."""


def cancel_subject(subject: str) -> str:
    """Give the subject at which servers hear that nobody waits for an answer any more."""
    return f"{subject}.cancel"


class NatsServer:
    """A server that listens to a NATS subject.

    Args:
        subject: where.
        requester: what carries requests, which stays open; or the address of a NATS server, or several, to which a
            connection is made that ends with the client's.
        plain: whether the server knows `tools/list` and `tools/call` alone: then it is not asked what it is, and
            requests carry no `_meta`.

    Raises:
        ConfigurationError: the subject or an address is none, or the requester has no `request`.
    """

    ways = ("nats",)

    def __init__(
        self,
        subject: str,
        requester: NatsRequester | str | Sequence[str] = "nats://127.0.0.1:4222",
        *,
        plain: bool = False,
    ) -> None:
        self.subject = check_subject(subject)
        self.plain = plain
        self._requester: Any = requester
        self._is_own = isinstance(requester, (str, list, tuple))
        if self._is_own:
            NatsClient(requester)  # type: ignore[arg-type]  # checks the addresses; connects to nothing
        elif not callable(getattr(requester, "request", None)):
            raise ConfigurationError(
                f"{requester!r:.200} has no request(subject, data, timeout) to carry requests with"
            )

    @classmethod
    def from_url(cls, url: str) -> NatsServer:
        """Read `nats://host:port/subject`, or `tls://…`; `?plain=1` behind it means what `plain` does.

        Raises:
            ConfigurationError: it names no subject, or no server.
        """
        place, slash, rest = url.partition("://")
        place, rest = (place, rest) if slash else ("nats", url)
        host, _, path = rest.partition("/")
        parts = urlsplit(f"//x/{path}")
        if not parts.path.strip("/"):
            raise ConfigurationError(
                "the address of an MCP server over NATS names its subject: nats://host:port/subject"
            )
        return cls(parts.path.strip("/"), f"{place}://{host}", plain=parts.query == "plain=1")

    @property
    def name(self) -> str:
        """What the server is called where the user gave no name."""
        return self.subject

    def dial(self, way: str, protocol: ClientProtocol, desk: Desk) -> NatsConnection:
        """Give a connection; see `link.Dialer`. It speaks the stateless era, whatever was to be found out."""
        del way
        if protocol.era == "legacy":
            raise ConfigurationError("over NATS only the stateless era of MCP is spoken")
        protocol.era = "modern"
        requester = NatsClient(self._requester) if self._is_own else self._requester
        return NatsConnection(self, requester, desk, is_own=self._is_own)

    def __repr__(self) -> str:
        return f"<NatsServer {self.subject}>"


class NatsConnection:
    """A connection as `connection.Connection` has it, over a requester.

    Args:
        server: where requests go.
        requester: what carries them.
        desk: takes what the server says unasked.
        is_own: whether the requester is to be closed with the connection.
    """

    def __init__(
        self, server: NatsServer, requester: Any, desk: Desk, *, is_own: bool = False
    ) -> None:
        self._server = server
        self._requester = requester
        self._desk = desk
        self._is_own = is_own
        self._takes_several = callable(getattr(requester, "open", None))
        self._prefix = f"{secrets.token_hex(8)}-"
        self._pending: dict[int, Call] = {}  # single steps of a dict are atomic, so no lock
        self._failure: McpTransportError | None = None

    @property
    def failure(self) -> McpTransportError | None:
        """Why the connection can't be used any more: it was closed; else None, since requesters reconnect."""
        return self._failure

    def exchange(self, asked: Asked, call: Call) -> Response | ErrorResponse:
        """Send a request and wait for its answer; see `connection.Connection`."""
        if asked.method == _DISCOVER and self._server.plain:
            return Response(asked.number, _PLAIN)
        if not self._takes_several and asked.method == "subscriptions/listen":
            text = "a requester that takes one answer can't be told of changes"
            return ErrorResponse(asked.number, METHOD_NOT_FOUND, text)
        self._pending[asked.number] = call
        try:
            if (
                self._failure is not None
            ):  # asked after the call is known: it may be closed meanwhile
                raise McpTransportError(str(self._failure))
            number = f"{self._prefix}{asked.number}"
            answers = _Answers(number, call, self._desk)
            data = encode({**asked.message, "id": number, "params": self._params(asked)})
            answer = self._carry(asked, call, answers, data)
        finally:
            self._pending.pop(asked.number, None)
        if asked.method == _DISCOVER and _is_unknown(answer):
            return Response(asked.number, _PLAIN)
        return answer

    def tell(self, message: Mapping[str, Any]) -> None:
        """Drop a notification: in the stateless era there is none that a server needs."""
        logger.debug("a notification is not sent over NATS: %s", message.get("method"))

    def open_stream(self, call: Call) -> None:
        """Do nothing: what a server says comes to the inbox of a request."""

    def close(self) -> None:
        """End the connection and the calls that wait; may be called from any thread, and again."""
        self._failure = McpTransportError("the connection to the server was closed")
        for number in list(self._pending):
            call = self._pending.pop(number, None)
            if call is not None:
                call.put(self._failure)
        if self._is_own:
            self._requester.close()

    # --- one request ------------------------------------------------------------------------------------------------

    def _params(self, asked: Asked) -> dict[str, Any]:
        params = dict(asked.params)
        meta = dict(params.pop("_meta", None) or {})
        if not self._takes_several:  # progress would be taken for the answer
            meta.pop("progressToken", None)
        return params if self._server.plain or not meta else {**params, "_meta": meta}

    def _carry(
        self, asked: Asked, call: Call, answers: _Answers, data: bytes
    ) -> Response | ErrorResponse:
        if not self._takes_several:
            self._desk.work(self._request, call, answers, data)
            return self._wait(asked, call, answers, None)
        with self._requester.open(self._server.subject, data, answers.take) as post:
            return self._wait(asked, call, answers, post)

    def _wait(
        self, asked: Asked, call: Call, answers: _Answers, post: NatsPost | None
    ) -> Response | ErrorResponse:
        try:
            return call.wait()
        except (McpTransportError, McpProtocolError):
            raise
        except BaseException as error:  # an abort, a limit or the keyboard: nobody waits any more
            if asked.may_cancel and (post is None or post.is_sent):
                reason = str(error) or "cancelled"
                self._desk.work(self._cancel, answers.number, reason, post.inbox if post else "")
            raise

    def _cancel(self, number: str, reason: str, inbox: str) -> None:
        """Tell all members that nobody waits; the inbox tells requests of one id apart."""
        params = {"requestId": number, "reason": reason}
        data = encode(jsonrpc.notification("notifications/cancelled", params))
        publish = getattr(self._requester, "publish", None)
        named = {"reply": inbox} if inbox else {}
        try:
            if callable(publish):
                publish(cancel_subject(self._server.subject), data, **named)
        except Exception:  # a requester is anybody's; nobody waits for this
            logger.debug("a cancellation could not be sent", exc_info=True)

    def _request(self, call: Call, answers: _Answers, data: bytes) -> None:
        """Ask a requester that blocks; on a thread that is left behind where it doesn't return."""
        subject, limit_s = self._server.subject, call.remaining_s()
        try:
            answers.take(self._requester.request(subject, data, limit_s))
        except McpError as error:
            call.put(error)
        except TimeoutError:
            call.put(McpTimeout(f"nobody answered {call.method} at {subject!r} in time"))
        except Exception as error:  # a requester is anybody's and raises what it likes
            text = f"the request to {subject!r} failed: {error_text(error)}"
            failure = McpTransportError(text, outcome_unknown=True)
            failure.__cause__ = error
            call.put(failure)


class _Answers:
    """Takes what comes to one request."""

    def __init__(self, number: str, call: Call, desk: Desk) -> None:
        self.number = number
        self._call = call
        self._desk = desk

    def take(self, event: Any) -> None:
        """Take an answer, or the error that ends the request; returns at once."""
        if isinstance(event, McpError):
            self._call.put(event)
            return
        data = _payload(event)
        if data is None:
            self._call.put(unreadable(self._call.method, f"{type(event).__name__} is no payload"))
            return
        found = jsonrpc.parse(data)
        for item in found:
            self._take(item)
        if not found:
            self._call.suspect("it is empty")

    def _take(self, item: jsonrpc.Incoming) -> None:
        if isinstance(item, Response | ErrorResponse):
            if item.id is not None and id_key(item.id) != self.number:
                self._call.suspect(f"it answers another request ({item.id!r:.60})")
            else:
                self._call.put(item)
        elif isinstance(item, Notification):
            event = event_of(item)
            if isinstance(event, Progress):
                self._call.put(event)
            else:
                self._desk.take(event)
        elif isinstance(item, Malformed):
            self._call.put(unreadable(self._call.method, item.reason))
        elif isinstance(item, Noise):
            self._call.suspect(f"it is no JSON-RPC: {item.excerpt}")


def _payload(answer: Any) -> bytes | None:
    """Give the payload of whatever a requester gives, or None."""
    if isinstance(answer, NatsMessage):
        return answer.data
    for name in ("data", "payload"):
        answer = getattr(answer, name, answer)
    if isinstance(answer, str):
        return answer.encode("utf-8", "replace")
    return bytes(answer) if isinstance(answer, bytes | bytearray | memoryview) else None


def _is_unknown(answer: Response | ErrorResponse) -> bool:
    return isinstance(answer, ErrorResponse) and answer.code == METHOD_NOT_FOUND
