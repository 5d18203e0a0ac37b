"""What the MCP endpoint answers to each HTTP request, in both eras; it knows no sockets.

A request with `initialize` opens a session, and its id marks what belongs to the handshake era; a request that names a
stateless version is answered by itself. Facts from the specifications 2025-11-25, "Transports", and 2026-07-28,
"Streamable HTTP".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import attrs

from yiemagent.mcp.http_guard import HttpGuard
from yiemagent.mcp.http_sessions import Session, Sessions
from yiemagent.mcp.http_streams import Outlet, Stream
from yiemagent.mcp.http_wire import HttpRefusal, RequestHead
from yiemagent.mcp.jsonrpc import (
    INVALID_REQUEST,
    Incoming,
    Malformed,
    Noise,
    Notification,
    Request,
    dump,
    parse,
)
from yiemagent.mcp.server_connection import Host, ServerConnection
from yiemagent.mcp.server_headers import check_headers
from yiemagent.mcp.server_protocol import Call, RpcFailure, http_status, names_stateless
from yiemagent.mcp.versions import HANDSHAKE_VERSIONS, is_stateless
from yiemagent.pool import DaemonPool
from yiemagent.record import Record
from yiemagent.registry import ToolStore

__all__ = ["HttpEndpoint", "HttpHost", "Plain", "Streaming", "refusal_body"]

_BATCHES = "2025-03-26"  # the one version that has them
_PRIMED_SINCE = "2025-11-25"
# Done on the connection's own thread: no code of a user runs for them.
_QUICK = {
    "tools/list",
    "resources/list",
    "resources/templates/list",
    "prompts/list",
    "resources/subscribe",
    "resources/unsubscribe",
}


class HttpHost(Host, Protocol):
    """What is served: an `McpServer`."""

    @property
    def pool(self) -> DaemonPool:
        """The threads that calls run on."""

    @property
    def store(self) -> ToolStore:
        """The tools, whose parameters headers may repeat."""


@attrs.frozen(eq=False, repr=False)
class Plain(Record):
    """An answer that is there."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen(eq=False, repr=False)
class Streaming(Record):
    """An answer that comes.

    Args:
        outlet: where it comes.
        lazy: whether it is plain JSON where the answer is the first that comes; else it is a stream at once.
        gone: to be called when the connection takes no more of it, whether it is whole or not.
        end: has it end in good order, where it does not end by itself.
        statuses: whether an error has an HTTP status of its own.
    """

    outlet: Outlet
    lazy: bool
    gone: Callable[[], None]
    end: Callable[[], None]
    statuses: bool

    def status(self, code: int | None) -> int:
        """Give the HTTP status of a plain answer by its error code."""
        return http_status(code) if self.statuses else 200


Response: TypeAlias = Plain | Streaming


def refusal_body(message: str, code: int = INVALID_REQUEST) -> bytes:
    """Give the body of a refusal: a JSON-RPC error without an id."""
    return dump(RpcFailure(code, message).reply(None))


class HttpEndpoint:
    """Answers requests; used by many threads.

    Args:
        host: what is served.
        path: the endpoint's.
        guard: who may use it.
        sessions: of the handshake era.
    """

    def __init__(self, host: HttpHost, path: str, guard: HttpGuard, sessions: Sessions) -> None:
        self._host = host
        self._path = path
        self._guard = guard
        self._sessions = sessions

    def respond(self, head: RequestHead, read_body: Callable[[], bytes]) -> Response:
        """Answer a request.

        Args:
            head: all but the body.
            read_body: gives that; called where all else is right.

        Raises:
            HttpRefusal: the answer is a status that says no.
        """
        principal = self._guard.admit(head.headers)
        if head.path != self._path:
            raise HttpRefusal(404, f"the endpoint is {self._path}")
        match head.method:
            case "POST":
                _check_post(head.headers)
                return self._post(head.headers, read_body(), principal)
            case "GET" | "DELETE" if "mcp-session-id" in head.headers:
                session = self._session(head.headers, principal)
                return self._get(head, session) if head.method == "GET" else self._delete(session)
        raise HttpRefusal(405, "POST is what this endpoint takes", {"Allow": "POST"})

    # -- POST ----------------------------------------------------------------------------------------------------

    def _post(self, headers: Mapping[str, str], body: bytes, principal: str | None) -> Response:
        messages = parse(body, strict=True)
        if not messages or isinstance(messages[0], Noise):
            return Plain(400, refusal_body("the body is no JSON-RPC message", -32700))
        first = messages[0]
        if isinstance(first, Malformed) and len(messages) == 1 and not first.is_answer:
            return _refused(RpcFailure(first.code, first.reason), first.id)
        if _is_stateless(headers, first):
            return self._stateless(headers, messages, principal)
        if isinstance(first, Request) and first.method == "initialize" and len(messages) == 1:
            return self._initialize(first, principal)
        return self._in_session(headers, messages, principal)

    def _stateless(
        self, headers: Mapping[str, str], messages: Sequence[Incoming], principal: str | None
    ) -> Response:
        request = messages[0]
        if isinstance(request, Notification) and len(messages) == 1:
            return Plain(202)
        if not isinstance(request, Request) or len(messages) > 1:
            raise HttpRefusal(400, "the body must be one request")
        try:
            check_headers(headers, request, self._schema)
        except RpcFailure as failure:
            return _refused(failure, request.id)
        connection, outlet = ServerConnection(self._host, principal=principal), Outlet()
        self._begin(connection, connection.receive(request, outlet))
        return Streaming(
            outlet, True, connection.close, connection.end_subscriptions, statuses=True
        )

    def _schema(self, name: str) -> Mapping[str, Any] | None:
        tool = self._host.store.get(name)
        return None if tool is None else tool.input_schema

    def _initialize(self, request: Request, principal: str | None) -> Plain:
        session, outlet = self._sessions.make(principal), Outlet()
        session.connection.receive(request, outlet)
        answer = outlet.ready()
        if session.connection.version is None:
            return Plain(200, answer)
        self._sessions.keep(session)
        return Plain(200, answer, {"Mcp-Session-Id": session.session_id})

    def _in_session(
        self, headers: Mapping[str, str], messages: Sequence[Incoming], principal: str | None
    ) -> Response:
        session = self._session(headers, principal)
        connection = session.connection
        if len(messages) > 1 and connection.version != _BATCHES:
            raise HttpRefusal(400, f"batches belong to the protocol version {_BATCHES}")
        answers = sum(map(_is_answered, messages))
        calls = [m for m in messages if isinstance(m, Request) and m.method == "tools/call"]
        stream = Stream("", 0)
        if answers:
            primed = bool(calls) and (connection.version or "") >= _PRIMED_SINCE
            stream = session.open_stream(answers, primed=primed)
        outlet = Outlet()
        stream.attach(outlet)
        for message in messages:
            self._begin(connection, connection.receive(message, stream))
        if not answers:
            return Plain(202)
        return Streaming(
            outlet, not calls, lambda: stream.detach(outlet), stream.end, statuses=False
        )

    def _begin(self, connection: ServerConnection, call: Call | None) -> None:
        if call is None:
            return
        if call.method in _QUICK:
            connection.run(call)
        else:
            connection.start(call, self._host.pool)

    # -- sessions ------------------------------------------------------------------------------------------------

    def _session(self, headers: Mapping[str, str], principal: str | None) -> Session:
        session_id = headers.get("mcp-session-id")
        if session_id is None:
            raise HttpRefusal(
                400, "the header Mcp-Session-Id is missing; open a session with 'initialize'"
            )
        version = headers.get("mcp-protocol-version")
        if version is not None and version not in HANDSHAKE_VERSIONS:
            raise HttpRefusal(400, f"the protocol version {version!r} has no sessions here")
        return self._sessions.find(session_id, principal)

    def _get(self, head: RequestHead, session: Session) -> Streaming:
        if not _accepts(head.headers, "text/event-stream"):
            raise HttpRefusal(406, "a GET must accept text/event-stream")
        last, stream, after = head.headers.get("last-event-id"), session.home, None
        if last:
            stream, after = session.stream_at(last)
        elif stream.attached:
            raise HttpRefusal(409, "the session has its stream already")
        outlet = Outlet()
        stream.attach(outlet, after)
        return Streaming(
            outlet,
            False,
            lambda: stream.detach(outlet),
            outlet.end,
            statuses=False,
        )

    def _delete(self, session: Session) -> Plain:
        self._sessions.drop(session)
        return Plain(204)


def _is_stateless(headers: Mapping[str, str], message: Incoming) -> bool:
    named = isinstance(message, (Request, Notification)) and names_stateless(message.params)
    return named or is_stateless(headers.get("mcp-protocol-version", ""))


def _is_answered(message: Incoming) -> bool:
    if isinstance(message, Malformed):
        return not message.is_answer
    return isinstance(message, (Request, Noise))


def _refused(failure: RpcFailure, request_id: Any) -> Plain:
    return Plain(http_status(failure.code), dump(failure.reply(request_id)))


def _check_post(headers: Mapping[str, str]) -> None:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HttpRefusal(415, "the body must be application/json")
    if not (_accepts(headers, "application/json") and _accepts(headers, "text/event-stream")):
        raise HttpRefusal(406, "a POST must accept application/json and text/event-stream")


def _accepts(headers: Mapping[str, str], kind: str) -> bool:
    family = kind.partition("/")[0]
    ranges = {
        part.partition(";")[0].strip().lower() for part in headers.get("accept", "").split(",")
    }
    return not ranges.isdisjoint({kind, f"{family}/*", "*/*"})
