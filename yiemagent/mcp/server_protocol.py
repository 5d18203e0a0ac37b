"""What a server makes of a client's messages, in both eras; no I/O and no threads.

One `ServerProtocol` belongs to one client that keeps a connection: a stdio process, or a session over HTTP. It answers
by itself what needs nothing but the protocol, refuses what is not allowed, and gives the rest as `Call`s. A call is in
flight until `finish` or `fail` gives its answer; a cancelled one has none. A client that speaks the stateless era needs
no connection, and may speak it over one that shook hands, too: each request says what it is.

Facts from the specifications, "Lifecycle" (2025-11-25), "Base Protocol" and "Versioning" (2026-07-28).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs

from yiemagent.errors import McpError
from yiemagent.mcp.jsonrpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    ErrorResponse,
    Incoming,
    Malformed,
    Noise,
    Notification,
    Request,
    Response,
    RpcId,
    error_response,
    id_key,
    response,
)
from yiemagent.mcp.versions import (
    CLIENT_CAPABILITIES_META,
    CLIENT_INFO_META,
    HANDSHAKE_VERSIONS,
    HEADER_MISMATCH,
    LATEST_HANDSHAKE,
    LOG_LEVEL_META,
    LOG_LEVELS,
    MISSING_CAPABILITY,
    PROTOCOL_VERSION_META,
    SERVER_INFO_META,
    STATELESS_VERSIONS,
    UNSUPPORTED_VERSION,
    is_stateless,
)
from yiemagent.record import Record

__all__ = [
    "Answer",
    "Call",
    "Cancel",
    "Reply",
    "RpcFailure",
    "Said",
    "ServerEvent",
    "ServerFacts",
    "ServerProtocol",
    "http_status",
    "names_stateless",
    "stateless_call",
]


class RpcFailure(McpError):
    """A request is answered with a JSON-RPC error.

    Args:
        code: the error's code.
        message: what is wrong.
        data: facts for programs, or None.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, str(self), self.data)

    def reply(self, request_id: RpcId | None) -> dict[str, Any]:
        """Give the error as the message that goes out; without an id where the request's can't be told."""
        message = error_response(request_id, self.code, str(self), self.data)
        if request_id is None:
            del message["id"]  # the schemas know no null; they let it be absent
        return message


@attrs.frozen(eq=False, repr=False)
class ServerFacts(Record):
    """What a server says of itself.

    Args:
        info: name, version, and what else an `Implementation` may have.
        capabilities: by name; a method whose capability is not there does not exist.
        instructions: how to use the server, for models; or None.
        ttl_ms: how long clients may keep lists, in milliseconds.
        cache_scope: "public" where every client may see the same lists, else "private".
    """

    info: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    instructions: str | None = None
    ttl_ms: int = 0
    cache_scope: str = "private"


@attrs.frozen(eq=False, repr=False)
class Call(Record):
    """A request that passed all checks of the protocol.

    Args:
        id: as the client sent it.
        method: what is asked for; the server has it.
        params: its parameters.
        version: the protocol version that it is spoken in.
        capabilities: the client's.
        client_info: who the client says it is.
        log_level: the least severe log message that is wanted, or None for none at all.
    """

    id: RpcId
    method: str
    params: Mapping[str, Any]
    version: str
    capabilities: Mapping[str, Any]
    client_info: Mapping[str, Any]
    log_level: str | None = None

    @property
    def stateless(self) -> bool:
        """Whether it is spoken in the era without sessions."""
        return is_stateless(self.version)

    @property
    def meta(self) -> Mapping[str, Any]:
        """The request's `_meta`."""
        found = self.params.get("_meta")
        return found if isinstance(found, dict) else {}

    @property
    def progress_token(self) -> RpcId | None:
        """What progress is reported under, or None where nobody wants to know."""
        token = self.meta.get("progressToken")
        return token if isinstance(token, (int, str)) and not isinstance(token, bool) else None


@attrs.frozen(eq=False, repr=False)
class Reply(Record):
    """An answer that the protocol gives by itself; `code` is that of an error."""

    message: dict[str, Any]
    code: int | None = None


@attrs.frozen(eq=False, repr=False)
class Cancel(Record):
    """The client no longer wants the answer of a call that was in flight, which is given up already."""

    call: Call
    reason: str | None = None


@attrs.frozen(eq=False, repr=False)
class Answer(Record):
    """The client answered a request of the server: with a result, or with an error (`code` is set)."""

    id: RpcId | None
    result: Any = None
    code: int | None = None
    message: str = ""


@attrs.frozen(eq=False, repr=False)
class Said(Record):
    """A notification of the client, such as `notifications/initialized`."""

    method: str
    params: Mapping[str, Any]


ServerEvent: TypeAlias = Call | Reply | Cancel | Answer | Said

# The capability that brings a method; None: every server has it.
_BOTH_ERAS = {
    "tools/list": "tools",
    "tools/call": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resources",
    "resources/read": "resources",
    "prompts/list": "prompts",
    "prompts/get": "prompts",
    "completion/complete": "completions",
}
_HANDSHAKE_METHODS = {
    **_BOTH_ERAS,
    "initialize": None,
    "ping": None,
    "resources/subscribe": "resources",
    "resources/unsubscribe": "resources",
    "logging/setLevel": "logging",
}
_STATELESS_METHODS = {**_BOTH_ERAS, "server/discover": None, "subscriptions/listen": None}

# What a client may keep (specification 2026-07-28, "Caching").
_CACHEABLE = {
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
}

_HTTP_STATUS = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}


def http_status(code: int | None) -> int:
    """Give the HTTP status of a stateless answer by its error code; None: it is no error."""
    return _HTTP_STATUS.get(code, 200) if code is not None else 200


def names_stateless(params: Mapping[str, Any]) -> bool:
    """Whether a request's parameters say that it is of the stateless era."""
    meta = params.get("_meta")
    return isinstance(meta, dict) and PROTOCOL_VERSION_META in meta


def stateless_call(facts: ServerFacts, request: Request) -> Call:
    """Check a request of the stateless era.

    Raises:
        RpcFailure: it says too little, or wants what the server has not.
    """
    meta = request.params.get("_meta")
    if not isinstance(meta, dict):
        raise RpcFailure(
            INVALID_PARAMS,
            f"params._meta is missing; it must hold {PROTOCOL_VERSION_META} and "
            f"{CLIENT_CAPABILITIES_META} (or open the connection with 'initialize')",
        )
    version, capabilities = meta.get(PROTOCOL_VERSION_META), meta.get(CLIENT_CAPABILITIES_META)
    if not isinstance(version, str):
        raise RpcFailure(INVALID_PARAMS, f"params._meta must name {PROTOCOL_VERSION_META}")
    if version not in STATELESS_VERSIONS:
        raise RpcFailure(
            UNSUPPORTED_VERSION,
            f"the protocol version {version!r} is not supported",
            {"supported": [*STATELESS_VERSIONS], "requested": version},
        )
    if not isinstance(capabilities, dict):
        raise RpcFailure(INVALID_PARAMS, f"params._meta must hold {CLIENT_CAPABILITIES_META}")
    level = meta.get(LOG_LEVEL_META)
    if level is not None and level not in LOG_LEVELS:
        raise RpcFailure(
            INVALID_PARAMS, f"{level!r} is no log level; know: {', '.join(LOG_LEVELS)}"
        )
    _check_method(facts, request.method, _STATELESS_METHODS)
    info = meta.get(CLIENT_INFO_META)
    return Call(
        request.id,
        request.method,
        request.params,
        version,
        capabilities,
        info if isinstance(info, dict) else {},
        level,
    )


def _check_level(level: Any) -> None:
    if level not in LOG_LEVELS:
        raise RpcFailure(
            INVALID_PARAMS, f"{level!r} is no log level; know: {', '.join(LOG_LEVELS)}"
        )


def _check_method(facts: ServerFacts, method: str, known: Mapping[str, str | None]) -> None:
    capability = known.get(method)
    there = method in known and (capability is None or capability in facts.capabilities)
    if method.endswith("subscribe"):
        there = there and bool(facts.capabilities["resources"].get("subscribe"))
    if not there:
        raise RpcFailure(METHOD_NOT_FOUND, f"there is no method {method!r} here")


class ServerProtocol:
    """One client's side of a server: what it may do, and what it asked for. Not thread-safe.

    Args:
        facts: what the server says of itself; asked anew for each request, since it may learn more.
    """

    def __init__(self, facts: ServerFacts) -> None:
        self.facts = facts
        self.version: str | None = None
        """What `initialize` agreed on; None before."""
        self.capabilities: Mapping[str, Any] = {}
        """What the client declared at `initialize`."""
        self.client_info: Mapping[str, Any] = {}
        self.log_level = "info"
        """The least severe log message that a client which shook hands wants."""
        self.resource_uris: set[str] = set()
        """The resources that it wants to hear of, by `resources/subscribe`."""
        self._in_flight: dict[RpcId | None, Call] = {}

    @property
    def in_flight(self) -> tuple[Call, ...]:
        """The calls that have no answer yet, oldest first."""
        return tuple(self._in_flight.values())

    def receive(self, message: Incoming) -> ServerEvent | None:
        """Take one message; gives what follows from it, or None where nothing does."""
        match message:
            case Request():
                try:
                    return self._asked(message)
                except RpcFailure as failure:
                    return Reply(failure.reply(message.id), failure.code)
            case Notification("notifications/cancelled", params):
                return self._cancelled(params)
            case Notification(method, params):
                return Said(method, params)
            case Response(answered, result):
                return Answer(answered, result)
            case ErrorResponse(answered, code, words):
                return Answer(answered, None, code, words)
            case Malformed(reason, request_id, code, _, is_answer):
                if is_answer:
                    return None
                return Reply(RpcFailure(code, reason).reply(request_id), code)
            case Noise():
                unread = RpcFailure(PARSE_ERROR, "that is no JSON-RPC message")
                return Reply(unread.reply(None), unread.code)

    def finish(self, call: Call, result: Mapping[str, Any]) -> dict[str, Any] | None:
        """Give the message that answers a call; None where it was cancelled meanwhile."""
        if self._in_flight.pop(id_key(call.id), None) is None:
            return None
        return response(call.id, self._dressed(call, result))

    def fail(self, call: Call, failure: RpcFailure) -> dict[str, Any] | None:
        """Give the message that answers a call with an error; None where it was cancelled meanwhile."""
        if self._in_flight.pop(id_key(call.id), None) is None:
            return None
        return failure.reply(call.id)

    def _dressed(self, call: Call, result: Mapping[str, Any]) -> dict[str, Any]:
        """Give a result with what its era adds to it."""
        if not call.stateless:
            return {**result}
        dressed = {"resultType": "complete", **result}
        dressed["_meta"] = {**result.get("_meta", {}), SERVER_INFO_META: {**self.facts.info}}
        if call.method in _CACHEABLE and dressed["resultType"] == "complete":
            dressed.setdefault("ttlMs", self.facts.ttl_ms)
            dressed.setdefault("cacheScope", self.facts.cache_scope)
        return dressed

    # -- requests ------------------------------------------------------------------------------------------------

    def _asked(self, request: Request) -> ServerEvent:
        if id_key(request.id) in self._in_flight:
            raise RpcFailure(
                INVALID_REQUEST, f"the request {request.id!r} is still being worked on"
            )
        if names_stateless(request.params) or request.method == "server/discover":
            call = stateless_call(self.facts, request)
        elif request.method == "initialize":
            return Reply(response(request.id, self._initialized(request)))
        else:
            call = self._handshake_call(request)
        self._in_flight[id_key(call.id)] = call
        result = self._own_result(call)
        if result is None:
            return call
        return Reply(self.finish(call, result) or {})

    def _handshake_call(self, request: Request) -> Call:
        _check_method(self.facts, request.method, _HANDSHAKE_METHODS)
        if self.version is None and request.method != "ping":
            raise RpcFailure(
                INVALID_PARAMS,
                f"open the connection with 'initialize', or name {PROTOCOL_VERSION_META} in params._meta",
            )
        if request.method == "logging/setLevel":
            _check_level(request.params.get("level"))
        return Call(
            request.id,
            request.method,
            request.params,
            self.version or LATEST_HANDSHAKE,
            self.capabilities,
            self.client_info,
            self.log_level,
        )

    def _own_result(self, call: Call) -> dict[str, Any] | None:
        """Give the result of what the protocol answers by itself, else None."""
        if call.method == "ping":
            return {}
        if call.method == "logging/setLevel":
            self.log_level = call.params["level"]
            return {}
        if call.method == "server/discover":
            versions = [*STATELESS_VERSIONS]
            capabilities = {**self.facts.capabilities}
            return self._with_instructions(
                {"supportedVersions": versions, "capabilities": capabilities}
            )
        return None

    def _initialized(self, request: Request) -> dict[str, Any]:
        if self.version is not None:
            raise RpcFailure(INVALID_REQUEST, "the connection is open already")
        wanted, capabilities = (
            request.params.get("protocolVersion"),
            request.params.get("capabilities"),
        )
        if not isinstance(wanted, str):
            raise RpcFailure(INVALID_PARAMS, "initialize must name a protocolVersion")
        self.version = wanted if wanted in HANDSHAKE_VERSIONS else LATEST_HANDSHAKE
        self.capabilities = capabilities if isinstance(capabilities, dict) else {}
        info = request.params.get("clientInfo")
        self.client_info = info if isinstance(info, dict) else {}
        result = {
            "protocolVersion": self.version,
            "capabilities": {**self.facts.capabilities},
            "serverInfo": {**self.facts.info},
        }
        return self._with_instructions(result)

    def _with_instructions(self, result: dict[str, Any]) -> dict[str, Any]:
        if self.facts.instructions is not None:
            result["instructions"] = self.facts.instructions
        return result

    def _cancelled(self, params: Mapping[str, Any]) -> Cancel | None:
        """Give up a call; what was cancelled before, or never asked for, is ignored."""
        wanted, reason = params.get("requestId"), params.get("reason")
        if not isinstance(wanted, (int, str)) or isinstance(wanted, bool):
            return None
        call = self._in_flight.pop(id_key(wanted), None)
        if call is None:
            return None
        return Cancel(call, reason if isinstance(reason, str) else None)
