"""A blocking client of one MCP server.

Any thread may use it, and many may at once. Every call has a deadline and ends on its abort signal; nothing is held
while a call waits, and callbacks may use the client. The connection is opened by the first call, and again by the next
one where it broke. How a question becomes an answer is in `requester`, how a connection is kept in `link`.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, cast

from yiemagent.abort import AbortSignal
from yiemagent.errors import ConfigurationError
from yiemagent.mcp.attendance import Attendance, check_level
from yiemagent.mcp.calls import Call, ProgressCallback
from yiemagent.mcp.client_protocol import (
    ClientProtocol,
    Era,
    ListChanged,
    LogMessage,
    ResourceUpdated,
    ServerError,
    ServerEvent,
    ServerFacts,
)
from yiemagent.mcp.connection import Connection
from yiemagent.mcp.desk import Desk
from yiemagent.mcp.dialers import dialer_for
from yiemagent.mcp.features import LIMIT_OF_CLIENT, ServerFeatures
from yiemagent.mcp.handlers import ElicitationHandler, Roots, SamplingHandler, ServerRequests
from yiemagent.mcp.link import Dialer, Link
from yiemagent.mcp.requester import Requester

__all__ = ["McpClient"]


class McpClient(ServerFeatures):
    """Uses one MCP server; a context manager that closes it.

    Args:
        server: a command ("node server.js" or a sequence of words), an http address, or a `StdioServer` or
            `HttpServer` with more to say.
        name: what the server is called in errors, and before its tools' names in an agent; None: made from `server`,
            and tools keep their names.
        protocol: "auto" finds out which era the server speaks; "legacy" shakes hands; "modern" is stateless.
        timeout_s: limit for each call, waiting for its turn included; None: none.
        idle_timeout_s: limit for each wait for an answer or a word of progress, within `timeout_s`; None: none.
        probe_timeout_s: how long to wait for a server that may not know the question which era it speaks.
        max_concurrency: how many calls of tools that don't say they only read may run at once (many servers lose
            updates otherwise); None: all.
        resend_idempotent: whether a call of a tool that claims to be idempotent, or only to read, may be sent again
            where the connection broke and its outcome is not known.
        elicitation: gives input that the server wants of a person; see `handlers.ServerRequests` for all four.
        elicitation_url: lets a person visit a page.
        sampling: asks a model for the server.
        roots: folders that the server may work in.
        on_log: is told of each `LogMessage` of the server's.
        log_level: the least severe level that is wanted, one of `versions.LOG_LEVELS`; None: the server's own choice,
            which a stateless server takes as none at all.
        client_info: name and version that the server is told; None: this library's.

    Raises:
        ConfigurationError: an argument makes no sense.
    """

    def __init__(
        self,
        server: Any,
        *,
        name: str | None = None,
        protocol: Era = "auto",
        timeout_s: float | None = 120.0,
        idle_timeout_s: float | None = None,
        probe_timeout_s: float = 5.0,
        max_concurrency: int | None = 1,
        resend_idempotent: bool = False,
        elicitation: ElicitationHandler | None = None,
        elicitation_url: Callable[[dict[str, Any]], Any] | None = None,
        sampling: SamplingHandler | None = None,
        roots: Roots | None = None,
        on_log: Callable[[LogMessage], object] | None = None,
        log_level: str | None = None,
        client_info: Mapping[str, Any] | None = None,
    ) -> None:
        _check(protocol, log_level, max_concurrency, (timeout_s, idle_timeout_s, probe_timeout_s))
        self._dialer: Dialer = dialer_for(server)
        self.prefix = name or ""
        self.name = name or str(getattr(self._dialer, "name", "server"))
        self.timeout_s = timeout_s
        self.idle_timeout_s = idle_timeout_s
        self._info = dict(client_info or _own_info())
        self._requests = ServerRequests(
            elicitation=elicitation, elicitation_url=elicitation_url, sampling=sampling, roots=roots
        )
        self._max_concurrency = max_concurrency
        self._desk = Desk(self.name, self._requests, self._notice)
        if on_log is not None:
            self._desk.listen(LogMessage, on_log)
        self._link = Link(
            self._dialer,
            self._desk,
            self._make_protocol,
            era=protocol,
            probe_timeout_s=probe_timeout_s,
            on_open=self._opened,
        )
        self._requester = Requester(
            self._link,
            self._requests,
            max_concurrency=max_concurrency,
            resend_idempotent=resend_idempotent,
        )
        self._attendance = Attendance(self.name, self._link, self._desk, self._requests)
        self._attendance.log_level = log_level

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<McpClient {self.name!r}: {self._dialer!r}>"

    # --- the connection ---------------------------------------------------------------------------------------------

    def connect(
        self, *, signal: AbortSignal | None = None, timeout_s: float | None = LIMIT_OF_CLIENT
    ) -> ServerFacts:
        """Open the connection if it isn't, and give what the server said of itself.

        Raises:
            AbortedError, McpTimeout, McpError: as every call.
            ConfigurationError: the server can't be started, or its address is none.
        """
        _, protocol = self._link.get(self._call("connect", signal=signal, timeout_s=timeout_s))
        return cast("ServerFacts", protocol.facts)

    @property
    def server(self) -> ServerFacts | None:
        """What the server said of itself when the connection was opened; None while none is open."""
        current = self._link.current
        return None if current is None else current[1].facts

    def close(self) -> None:
        """End the connection, the server that was started for it, and the calls that wait.

        May be called from any thread, and again; takes about three seconds at most, whatever the server does.
        """
        self._attendance.close()
        self._link.close()
        self._desk.close()

    # --- asking -----------------------------------------------------------------------------------------------------

    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        signal: AbortSignal | None = None,
        timeout_s: float | None = LIMIT_OF_CLIENT,
        on_progress: ProgressCallback | None = None,
    ) -> dict[str, Any]:
        """Send any request and give its result.

        Args:
            method: for example "tools/call".
            params: what it is asked with.
            signal: ends the call within 0.1 s of being set.
            timeout_s: limit for this call; None: none; left out: the client's.
            on_progress: is told the params of each progress notification, on this thread.

        Raises:
            AbortedError: the signal was set.
            McpTimeout: a time limit was reached.
            McpProtocolError: the server answered with an error (`code` and `data` are set), or with no answer.
            McpTransportError: the connection broke; `outcome_unknown` says whether the request may have had its effect.
        """
        call = self._call(method, signal=signal, timeout_s=timeout_s, on_progress=on_progress)
        return self._requester.ask(method, params, call)

    def __call__(
        self,
        method: str,
        *words: Any,
        signal: AbortSignal | None = None,
        timeout_s: float | None = LIMIT_OF_CLIENT,
        on_partial_result: ProgressCallback | None = None,
    ) -> dict[str, Any]:
        """Answer as the callable that an agent takes: `("tools/list")`, `("tools/call", name, arguments)`.

        Returns:
            The result, or the server's error, each as JSON-RPC has it. What is no answer raises, as in `request`.
        """
        if method == "tools/call":
            name, arguments = (*words, None)[:2]
            params: Any = {"name": name, "arguments": {} if arguments is None else arguments}
        else:
            params = words[0] if words else None
        try:
            result = self.request(
                method, params, signal=signal, timeout_s=timeout_s, on_progress=on_partial_result
            )
        except ServerError as error:
            told = {"code": error.code, "message": error.words, "data": error.data}
            return {"jsonrpc": "2.0", "error": told}
        return {"jsonrpc": "2.0", "result": result}

    def may_run_beside_others(self, definition: Mapping[str, Any]) -> bool:
        """Whether an agent may call this tool while others run: it says that it only reads, or the user allows it."""
        hints = definition.get("annotations")
        only_reads = isinstance(hints, Mapping) and hints.get("readOnlyHint") is True
        return only_reads or self._max_concurrency != 1

    def ping(
        self, *, signal: AbortSignal | None = None, timeout_s: float | None = LIMIT_OF_CLIENT
    ) -> None:
        """Ask whether the server is there; a stateless one is asked what it is."""
        call = self._call("ping", signal=signal, timeout_s=timeout_s)
        stateless = self._link.get(call)[1].is_stateless
        self._requester.ask("server/discover" if stateless else "ping", None, call)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _make_protocol(self, era: Era) -> ClientProtocol:
        level = self._attendance.log_level
        return ClientProtocol(self._info, self._requests.capabilities, era=era, log_level=level)

    def _notice(self, event: ServerEvent) -> None:
        """Drop what an event makes stale; on the reading thread."""
        if isinstance(event, ListChanged):
            self._requester.fresh.forget(event.kind)
        elif isinstance(event, ResourceUpdated):
            self._requester.fresh.forget("read")

    def _opened(self, connection: Connection, protocol: ClientProtocol, call: Call) -> None:
        self._requester.fresh.forget("")
        self._attendance.opened(connection, protocol, call)


def _check(
    protocol: str,
    log_level: str | None,
    max_concurrency: int | None,
    limits_s: Iterable[float | None],
) -> None:
    if protocol not in {"auto", "legacy", "modern"}:
        raise ConfigurationError(f"protocol must be 'auto', 'legacy' or 'modern', not {protocol!r}")
    if log_level is not None:
        check_level(log_level)
    if max_concurrency is not None and max_concurrency < 1:
        raise ConfigurationError(f"max_concurrency must be at least 1, not {max_concurrency!r}")
    for limit_s in limits_s:
        if limit_s is not None and not limit_s > 0:
            raise ConfigurationError(
                f"a time limit must be above 0, or None for none, not {limit_s!r}"
            )


def _own_info() -> dict[str, Any]:
    return {"name": "yiemagent", "version": _version()}


@functools.cache
def _version() -> str:
    try:
        return importlib.metadata.version("yiemagent")
    except importlib.metadata.PackageNotFoundError:  # a bare checkout
        return "0"
