"""What a client says and how it reads what a server says, in both eras of the protocol; no I/O.

A connection is opened by a generator of questions (`ClientProtocol.opening`): whoever moves the bytes sends each one
and hands its answer back. It finds out the era, since that is a property of the server: a stateless one answers
`server/discover`, and everything else is asked to shake hands. Facts from the specifications 2024-11-05 to 2026-07-28,
"Lifecycle", "Versioning" and "Discovery".
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Literal, TypeAlias

import attrs

from yiemagent.errors import McpProtocolError
from yiemagent.mcp.jsonrpc import ErrorResponse, Notification, Response, RpcId, id_key
from yiemagent.mcp.versions import (
    CLIENT_CAPABILITIES_META,
    CLIENT_INFO_META,
    HANDSHAKE_VERSIONS,
    HEADER_MISMATCH,
    LATEST_HANDSHAKE,
    LATEST_STATELESS,
    LOG_LEVEL_META,
    MISSING_CAPABILITY,
    PROTOCOL_VERSION_META,
    SERVER_INFO_META,
    STATELESS_VERSIONS,
    SUBSCRIPTION_ID_META,
    UNSUPPORTED_VERSION,
    is_stateless,
    newest_common,
)
from yiemagent.record import Record

__all__ = [
    "LISTEN",
    "Acknowledged",
    "Ask",
    "Cancelled",
    "ClientProtocol",
    "Era",
    "InputRequired",
    "ListChanged",
    "LogMessage",
    "NoAnswer",
    "Opening",
    "Progress",
    "ResourceUpdated",
    "ServerError",
    "ServerEvent",
    "ServerFacts",
    "complete_or_input",
    "event_of",
    "server_error",
]

LISTEN = "subscriptions/listen"
"""The one request that a server may end with `notifications/cancelled`, and a client as with any other."""

Era: TypeAlias = Literal["auto", "legacy", "modern"]


# --- what a server says unasked --------------------------------------------------------------------------------------


@attrs.frozen(eq=False, repr=False)
class Progress(Record):
    """How far the request with this token is; `params` as they came."""

    token: RpcId | None
    params: Mapping[str, Any]


@attrs.frozen(eq=False, repr=False)
class LogMessage(Record):
    """A log record of the server's: `level` is one of `versions.LOG_LEVELS`, `data` any JSON value."""

    level: str
    data: Any
    logger: str = ""


@attrs.frozen(eq=False, repr=False)
class ListChanged(Record):
    """A list of the server's is another one now: "tools", "prompts" or "resources"."""

    kind: str


@attrs.frozen(eq=False, repr=False)
class ResourceUpdated(Record):
    """A resource that was subscribed to changed."""

    uri: str


@attrs.frozen(eq=False, repr=False)
class Cancelled(Record):
    """The server gave up a request: one of its own, or the one that listens to it."""

    request_id: RpcId | None


@attrs.frozen(eq=False, repr=False)
class Acknowledged(Record):
    """The server took a subscription; `honored` says which of the wishes."""

    subscription_id: RpcId | None
    honored: Mapping[str, Any]


ServerEvent: TypeAlias = (
    Progress | LogMessage | ListChanged | ResourceUpdated | Cancelled | Acknowledged
)

_LISTS = {
    f"notifications/{kind}/list_changed": ListChanged(kind)
    for kind in ("tools", "prompts", "resources")
}


def event_of(notification: Notification) -> ServerEvent | None:
    """Give what a notification says, or None where it says nothing that is known."""
    method, params = notification.method, notification.params
    if method == "notifications/progress":
        return Progress(_rpc_id(params.get("progressToken")), params)
    if method in _LISTS:
        return _LISTS[method]
    if method == "notifications/message":
        return LogMessage(
            str(params.get("level") or "info"), params.get("data"), str(params.get("logger") or "")
        )
    if method == "notifications/resources/updated":
        return ResourceUpdated(str(params.get("uri") or ""))
    if method == "notifications/cancelled":
        return Cancelled(_rpc_id(params.get("requestId")))
    if method == "notifications/subscriptions/acknowledged":
        meta, honored = params.get("_meta"), params.get("notifications")
        number = meta.get(SUBSCRIPTION_ID_META) if isinstance(meta, dict) else None
        return Acknowledged(_rpc_id(number), honored if isinstance(honored, dict) else {})
    return None


def _rpc_id(value: Any) -> RpcId | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return id_key(value) if isinstance(value, (int, str)) else None


# --- results ---------------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False, repr=False)
class InputRequired(Record):
    """A request can't be answered yet: it is to be sent again with answers to `requests` (by key) and with `state`.

    Both as they came; `state` is opaque and None where none came, and then none is sent back.
    """

    requests: Mapping[str, Any]
    state: str | None


def complete_or_input(
    method: str, result: Any, *, stateless: bool
) -> dict[str, Any] | InputRequired:
    """Check a result by what every result must be.

    Raises:
        McpProtocolError: it is no object, or of a type that is not known.
    """
    if not isinstance(result, dict):
        raise McpProtocolError(f"the server answered {method} with {result!r:.100}, no object")
    kind = result.get("resultType", "complete") if stateless else "complete"
    if kind == "complete":
        return result
    if kind != "input_required":
        raise McpProtocolError(
            f"the server answered {method} with a result of the type {kind!r:.100}, which is not known"
        )
    requests, state = result.get("inputRequests"), result.get("requestState")
    if requests is None and state is None:
        raise McpProtocolError(f"the server wants more for {method} and does not say what")
    if not isinstance(requests or {}, dict) or not isinstance(state or "", str):
        raise McpProtocolError(f"the server wants more for {method} in a way that can't be read")
    return InputRequired(requests or {}, state)


class ServerError(McpProtocolError):
    """The server answered with an error; `words` are its own, without ours around them."""

    def __init__(
        self, message: str, code: int | None = None, data: Any = None, words: str = ""
    ) -> None:
        super().__init__(message, code, data)
        self.words = words or message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.code, self.data, self.words)


def server_error(method: str, error: ErrorResponse) -> ServerError:
    """Give the exception that tells of a server's error."""
    text = f"the server answered {method} with an error: {error.message} (code {error.code})"
    return ServerError(text, error.code, error.data, error.message)


# --- opening ---------------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False, repr=False)
class Ask(Record):
    """A question to send; one that only finds out the era (`is_probe`) may fail and has less time."""

    method: str
    params: dict[str, Any]
    is_probe: bool = False


@attrs.frozen(eq=False, repr=False)
class NoAnswer(Record):
    """What stands for the answer to a probe that nobody understood: no time left, or refused by the transport."""

    reason: str


Opening: TypeAlias = Generator[Ask, "Response | ErrorResponse | NoAnswer", None]


@attrs.frozen(eq=False, repr=False)
class ServerFacts(Record):
    """What a server said of itself when the connection was opened.

    Args:
        version: the version of the protocol that was agreed on.
        info: its name, version and more, as it gave them.
        capabilities: what it can do, as it gave it.
        instructions: how to use it, for a model; data of the server's, not to be trusted.
    """

    version: str
    info: Mapping[str, Any] = attrs.field(factory=dict)
    capabilities: Mapping[str, Any] = attrs.field(factory=dict)
    instructions: str = ""

    @property
    def is_stateless(self) -> bool:
        """Whether the connection speaks the stateless era."""
        return is_stateless(self.version)

    def can(self, capability: str, feature: str = "") -> bool:
        """Whether the server has a capability, and of it the feature."""
        found = self.capabilities.get(capability)
        if not feature:
            return found is not None and found is not False
        return isinstance(found, Mapping) and bool(found.get(feature))


class ClientProtocol:
    """One connection's words.

    Args:
        info: name and version of the program.
        capabilities: what the program does for servers; only what it has handlers for.
        era: "auto" finds out; "legacy" shakes hands at once; "modern" takes a stateless server only.
        log_level: the least severe level that a stateless server may send log records of; None: none at all.
    """

    def __init__(
        self,
        info: Mapping[str, Any],
        capabilities: Mapping[str, Any],
        *,
        era: Era = "auto",
        log_level: str | None = None,
    ) -> None:
        self.facts: ServerFacts | None = None
        """What the server is, once the connection is open."""
        self.era: Era = era
        self.log_level = log_level
        self._info = dict(info)
        self._capabilities = dict(capabilities)

    @property
    def is_stateless(self) -> bool:
        """Whether the connection is open and speaks the stateless era."""
        return self.facts is not None and self.facts.is_stateless

    def params(
        self,
        params: Mapping[str, Any] | None,
        *,
        progress_token: RpcId | None = None,
        version: str | None = None,
    ) -> dict[str, Any]:
        """Give a request's params with what the era wants in `_meta`; the given ones stay as they are.

        Args:
            params: the request's own.
            progress_token: under which the server may tell of progress; None: it is not asked to.
            version: the version to name; None: the one that was agreed on.
        """
        whole = dict(params or {})
        named = version or (self.facts.version if self.facts else "")
        meta: dict[str, Any] = {}
        if progress_token is not None:
            meta["progressToken"] = progress_token
        if named and is_stateless(named):
            meta |= {
                PROTOCOL_VERSION_META: named,
                CLIENT_INFO_META: self._info,
                CLIENT_CAPABILITIES_META: self._capabilities,
            }
            if self.log_level is not None:
                meta[LOG_LEVEL_META] = self.log_level
        if meta:
            whole["_meta"] = {**(whole.get("_meta") or {}), **meta}
        return whole

    def opening(self) -> Opening:
        """Open the connection: give the questions to send, take their answers, and end with `facts` set.

        A handshake is over when `notifications/initialized` was sent, which is left to the caller.

        Raises:
            McpProtocolError: the server refuses, or shares no version.
        """
        if self.era == "legacy":
            yield from self._shake_hands()
            return
        named: str | None = LATEST_STATELESS
        for _ in range(2):
            assert named is not None
            named = yield from self._discover(named)
            if self.facts is not None:
                return
            if named is None:
                if self.era == "modern":
                    raise McpProtocolError("the server speaks no stateless version of MCP")
                named = yield from self._shake_hands()
                if named is None:
                    return
        raise McpProtocolError(f"the server names the version {named} and then refuses it")

    def _discover(
        self, version: str
    ) -> Generator[Ask, Response | ErrorResponse | NoAnswer, str | None]:
        """Ask what the server is; gives a version to try next, or None where it has to be shaken hands with."""
        answer = yield Ask("server/discover", self.params({}, version=version), is_probe=True)
        if isinstance(answer, Response) and isinstance(answer.result, dict):
            result = answer.result
            common = newest_common(STATELESS_VERSIONS, _versions(result.get("supportedVersions")))
            if common is not None:
                meta = result.get("_meta")
                info = meta.get(SERVER_INFO_META) if isinstance(meta, dict) else None
                self._settle(common, result, info)
            return None
        if not isinstance(answer, ErrorResponse):
            return None
        if answer.code == UNSUPPORTED_VERSION:
            return self._other_version(answer)
        if answer.code in {HEADER_MISMATCH, MISSING_CAPABILITY}:
            raise server_error("server/discover", answer)
        return None

    def _other_version(self, answer: ErrorResponse) -> str | None:
        data = answer.data if isinstance(answer.data, dict) else {}
        supported = _versions(data.get("supported"))
        common = newest_common(STATELESS_VERSIONS, supported)
        if common is not None:  # also the one that was tried: it is asked again, once
            return common
        if supported and newest_common(HANDSHAKE_VERSIONS, supported) is None:
            raise McpProtocolError(
                f"the server speaks {', '.join(supported)}, and this client "
                f"{', '.join((*STATELESS_VERSIONS, *HANDSHAKE_VERSIONS))}",
                answer.code,
                answer.data,
            )
        return None

    def _shake_hands(self) -> Generator[Ask, Response | ErrorResponse | NoAnswer, str | None]:
        """Shake hands; gives a stateless version where the server turns out to want one."""
        params = {
            "protocolVersion": LATEST_HANDSHAKE,
            "capabilities": self._capabilities,
            "clientInfo": self._info,
        }
        answer = yield Ask("initialize", params)
        if isinstance(answer, ErrorResponse):
            data = answer.data if isinstance(answer.data, dict) else {}
            common = newest_common(STATELESS_VERSIONS, _versions(data.get("supported")))
            # A probe that was given up may have been taken after all: then only the stateless era is left.
            if answer.code == UNSUPPORTED_VERSION and common is not None and self.era == "auto":
                return common
            raise server_error("initialize", answer)
        if isinstance(answer, NoAnswer):
            raise McpProtocolError(f"the server does not answer initialize: {answer.reason}")
        result = complete_or_input("initialize", answer.result, stateless=False)
        assert isinstance(result, dict)
        version = result.get("protocolVersion")
        if version not in HANDSHAKE_VERSIONS:
            raise McpProtocolError(
                f"the server wants the version {version!r:.100}, and this client shakes hands in "
                f"{', '.join(HANDSHAKE_VERSIONS)}"
            )
        self._settle(version, result, result.get("serverInfo"))
        return None

    def _settle(self, version: str, result: Mapping[str, Any], info: Any) -> None:
        capabilities, words = result.get("capabilities"), result.get("instructions")
        self.facts = ServerFacts(
            version,
            info if isinstance(info, dict) else {},
            capabilities if isinstance(capabilities, dict) else {},
            words if isinstance(words, str) else "",
        )


def _versions(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
