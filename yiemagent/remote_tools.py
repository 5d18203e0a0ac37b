"""Tools of a server: any callable that answers `tools/list` and `tools/call` in JSON-RPC dicts gives `AgentTool`s.

The callable is called as `mcp_server("tools/list")`, for a further page as `mcp_server("tools/list", {"cursor": …})`
(one that takes no second argument gives its first page only), and as `mcp_server("tools/call", name, arguments)`. Where
it has a parameter `signal`, it gets the call's `AbortSignal`, where it has `on_partial_result`, the call's callback. It
gives the response, or its result alone. It may block: an abort abandons the call. What a server says is data: names
are made to fit, descriptions are text, schemas are made sound.

A client may say more of itself, in attributes: `prefix` goes before its tools' names; `timeout_s` limits its calls;
`on_tools_changed(listener)` tells that its tools are others; `may_run_beside_others(definition)` says which tools may.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import logging
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from yiemagent.abort import AbortSignal
from yiemagent.arguments import ArgumentChecker
from yiemagent.errors import (
    ConfigurationError,
    DuplicateTool,
    InvalidArguments,
    ToolError,
    YiemAgentError,
    error_text,
)
from yiemagent.registry import ToolStore, tool_lines
from yiemagent.remote_content import RemoteToolError, json_text, remote_result
from yiemagent.remote_names import plain_text, remote_tool_name
from yiemagent.tool import AgentTool, AgentToolResult

__all__ = [
    "Discovery",
    "McpServer",
    "RemoteToolError",
    "RemoteTools",
    "ToolPins",
    "discovery_tool",
    "fetch_tools",
]

logger = logging.getLogger("yiemagent.remote_tools")

McpServer: TypeAlias = Callable[..., Any]
Definition: TypeAlias = Mapping[str, Any]

MAX_PAGES = 1000
CALL_TIMEOUT_S = 120.0
_GRACE_S = 5.0  # what a call has beside the server's own limit, whose error says more


class ToolPins(Protocol):
    """Says which definitions of a server's tools are trusted."""

    def judge(self, server: str, definition: Definition) -> tuple[Definition | None, str]:
        """Give the definition to show for a tool (None: none at all), and why it may not be called ("": it may)."""

    def on_approved(self, listener: Callable[[], object]) -> Callable[[], object]:
        """Have `listener` called when more is trusted; gives a function that takes it back."""


class RemoteTools:
    """A server's tools in a store: registered, brought up to date, and taken out again. Safe to use from many threads.

    Args:
        store: where the tools go.
        mcp_server: answers `tools/list` and `tools/call`.
        pins: which definitions are trusted; None: all are.

    Raises:
        ConfigurationError: where `mcp_server` can't be called.
    """

    def __init__(
        self, store: ToolStore, mcp_server: McpServer, *, pins: ToolPins | None = None
    ) -> None:
        _check_callable(mcp_server)
        self._store = store
        self._server = mcp_server
        self._pins = pins
        self._prefix = str(getattr(mcp_server, "prefix", ""))
        self._turns = itertools.count(1)
        # Guards the fields below, while tools are put into the store; the server is never asked while it is held.
        self._lock = threading.Lock()
        self._known: dict[str, tuple[tuple[Any, ...], AgentTool]] = {}
        self._done = 0  # the turn of the newest list that was applied
        self._take_back: list[Callable[[], object]] = []
        self._is_over = False

    @property
    def names(self) -> Mapping[str, str]:
        """The server's own name of each of its tools, by the name that models know it under."""
        with self._lock:
            return MappingProxyType({tool.name: name for name, (_, tool) in self._known.items()})

    def update(self, signal: AbortSignal | None = None) -> None:
        """Ask the server for its tools and bring the store up to them: new ones, changed ones, and none that are gone.

        From then on the same happens whenever the server tells that they changed.

        Raises:
            ToolError: where the server answers with an error, or with nothing that is an answer.
            McpError: where the connection to it failed.
            AbortedError: where the signal was set.
        """
        self._listen()  # before asking, or a change in between would be missed
        self._list(signal)

    def _list(self, signal: AbortSignal | None = None) -> None:
        turn = next(self._turns)
        definitions = _definitions(self._server, signal or AbortSignal())
        judged = [(definition["name"], *self._judged(definition)) for definition in definitions]
        with self._lock:
            if self._is_over or turn < self._done:  # a newer list was here first
                return
            self._done = turn
            changes = self._apply(judged)
        if turn > 1 and any(changes.values()):
            parts = [f"{kind}: {', '.join(names)}" for kind, names in changes.items() if names]
            name = getattr(self._server, "name", "") or "a server"
            self._store.announce(f"the tools of {name} changed ({'; '.join(parts)})", changes)

    def disconnect(self) -> None:
        """Take the server's tools out of the store and listen to it no more."""
        with self._lock:
            self._is_over = True
            known, self._known = self._known, {}
            take_back, self._take_back = self._take_back, []
            for _, tool in known.values():
                self._remove(tool)
        for function in take_back:
            function()

    def _listen(self) -> None:
        with self._lock:
            if self._take_back or self._is_over:
                return
            self._take_back = [_nothing]  # once
        subscribe = getattr(self._server, "on_tools_changed", None)
        found = [subscribe(self._update_later)] if callable(subscribe) else []
        if self._pins is not None:
            found.append(self._pins.on_approved(self._update_later))
        with self._lock:
            self._take_back += found

    def _update_later(self) -> None:
        try:
            self.update()
        except Exception as error:  # the server may be anybody's function; what is there stays
            if not self._is_over:  # else the server was closed, most likely, and nobody cares
                logger.warning("the tools of %r could not be listed again: %s", self._server, error)

    def _apply(self, judged: list[tuple[str, Definition | None, str]]) -> dict[str, list[str]]:
        shown = [
            (name, (definition, why)) for name, definition, why in judged if definition is not None
        ]
        there = {name for name, _ in shown}
        changes: dict[str, list[str]] = {"added": [], "removed": [], "changed": [], "blocked": []}
        for name in [name for name in self._known if name not in there]:
            _, tool = self._known.pop(name)
            if self._remove(tool):
                changes["removed"].append(tool.name)
        for name, told in shown:
            try:
                self._put(name, told, changes)
            except (
                Exception
            ) as error:  # a definition may be anything, and one tool must not cost the others
                logger.warning(
                    "the tool %r can't be used and is left out: %s", name, error_text(error)
                )
        return changes

    def _put(self, name: str, told: tuple[Definition, str], changes: dict[str, list[str]]) -> None:
        before, held = self._known.get(name, (None, None))
        if held is None or self._store.get(held.name) is not held:
            tool = self._register(name, told)
            changes["added"].append(tool.name)
        elif before == told:
            return
        else:
            tool = self._store.replace(held, self._tool(held.name, *told))
            changes["changed"].append(tool.name)
        self._known[name] = (told, tool)
        changes["blocked"] += [tool.name] if told[1] else []

    def _register(self, name: str, told: tuple[Definition, str]) -> AgentTool:
        while True:
            free = remote_tool_name(name, self._prefix, self._store.snapshot())
            with contextlib.suppress(
                DuplicateTool
            ):  # somebody else was quicker: another name, then
                return self._store.register(self._tool(free, *told))

    def _judged(self, definition: Definition) -> tuple[Definition | None, str]:
        if self._pins is None:
            return definition, ""
        return self._pins.judge(self._prefix, definition)

    def _tool(self, name: str, definition: Definition, blocked: str) -> AgentTool:
        return _tool(self._server, definition, name, blocked)

    def _remove(self, tool: AgentTool) -> bool:
        if self._store.get(tool.name) is not tool:
            return False
        self._store.remove(tool.name)
        return True


class Discovery:
    """What `list_tools` does: it asks servers for their tools and registers them.

    Args:
        store: where the tools go, and what is listed.
    """

    def __init__(self, store: ToolStore) -> None:
        self._store = store
        self._sources: tuple[RemoteTools, ...] = ()

    def add(self, source: RemoteTools) -> None:
        """Ask one more server."""
        self._sources = (*self._sources, source)

    def __call__(
        self,
        tool_call_id: str,
        args: dict[str, Any],
        signal: AbortSignal,
        on_partial_result: object,
    ) -> AgentToolResult:
        """Bring the store up to date and list what it has; a server that fails hides no other's tools."""
        del tool_call_id, args, on_partial_result
        failures = []
        for source in self._sources:
            try:
                source.update(signal)
            except YiemAgentError as error:
                signal.raise_if_aborted()
                if len(self._sources) == 1:
                    raise
                failures.append(f"A server could not be asked: {error}")
        tools = self._store.snapshot()
        text = "\n".join([tool_lines(tools.values()), *failures])
        return AgentToolResult(text, details={"tools": list(tools)})


def discovery_tool(store: ToolStore, *servers: McpServer | RemoteTools) -> AgentTool:
    """Give the tool `list_tools` that asks servers for their tools and registers them.

    Its text lists all that is in the store then; what it registered can be called in the next turn. Asked again, it
    brings the store up to date: new tools, changed ones in their place, and none that are gone.

    Args:
        store: where the tools go.
        servers: each answers `tools/list` and `tools/call`, or is already tied to the store.

    Raises:
        ConfigurationError: where one of them can't be called.
    """
    discovery = Discovery(store)
    for server in servers:
        discovery.add(server if isinstance(server, RemoteTools) else RemoteTools(store, server))
    return AgentTool(
        "list_tools",
        label="List tools",
        description="Finds the tools that are available now, with what each does; they can be called afterwards.",
        execute=discovery,
        timeout_s=CALL_TIMEOUT_S,
        annotations={"readOnlyHint": True, "idempotentHint": True},
    )


def fetch_tools(mcp_server: McpServer, signal: AbortSignal | None = None) -> tuple[AgentTool, ...]:
    """Ask a server for its tools.

    Args:
        mcp_server: answers `tools/list` and `tools/call`.
        signal: ends the asking between two pages; None never does.

    Raises:
        ToolError: where the server answers with an error, or with nothing that is an answer.
        ConfigurationError: where `mcp_server` can't be called.
    """
    store = ToolStore()
    RemoteTools(store, mcp_server)._list(signal)
    return tuple(store.snapshot().values())


# --- asking ----------------------------------------------------------------------------------------------------------


def _check_callable(mcp_server: Any) -> None:
    if not callable(mcp_server):
        raise ConfigurationError(
            f"mcp_server must be a function that answers 'tools/list' and 'tools/call', not {mcp_server!r}"
        )
    call = mcp_server if inspect.isroutine(mcp_server) else type(mcp_server).__call__
    if inspect.iscoroutinefunction(call):
        raise ConfigurationError("mcp_server is a coroutine function; give a plain function")


def _ask(
    mcp_server: McpServer, words: tuple[Any, ...], signal: AbortSignal, progress: Any = None
) -> Mapping[str, Any]:
    """Give the result of one request."""
    signal.raise_if_aborted()
    named = {"signal": signal} if _takes(mcp_server, "signal") else {}
    if progress is not None and _takes(mcp_server, "on_partial_result"):
        named["on_partial_result"] = progress
    answer = mcp_server(*words, **named)
    if not isinstance(answer, Mapping):
        raise ToolError(
            f"the server answered {words[0]} with {answer!r}, which is no JSON-RPC response"
        )
    error = answer.get("error")
    if error is not None:
        raise ToolError(f"the server answered {words[0]} with an error: {_error_text(error)}")
    result = answer.get("result", answer)
    if not isinstance(result, Mapping):
        raise ToolError(
            f"the server answered {words[0]} with the result {result!r}, which is no object"
        )
    return result


def _error_text(error: Any) -> str:
    if not isinstance(error, Mapping):
        return str(error)
    text = str(error.get("message") or "no message")
    if "code" in error:
        text += f" (code {error['code']})"
    return f"{text}: {json_text(error['data'])}" if error.get("data") is not None else text


def _takes(mcp_server: McpServer, parameter: str) -> bool:
    try:
        return parameter in inspect.signature(mcp_server).parameters
    except (TypeError, ValueError):
        return False


def _definitions(mcp_server: McpServer, signal: AbortSignal) -> list[Mapping[str, Any]]:
    """Give what a server says of its tools, page by page; each name once, unnamed ones left out.

    By name, since servers list in any order and prompt caches hold only where requests begin alike.
    """
    found: dict[str, Mapping[str, Any]] = {}
    words: tuple[Any, ...] = ("tools/list",)
    cursors: set[str] = set()
    for _ in range(MAX_PAGES):
        result = _ask(mcp_server, words, signal)
        for definition in _listed(result):
            found.setdefault(definition["name"], definition)
        cursor = result.get("nextCursor")
        if cursor is None:  # an empty one is a cursor like any other
            break
        words = ("tools/list", {"cursor": cursor})
        if str(cursor) in cursors or not _can_take(mcp_server, words):
            logger.warning("the server's tools are listed up to the cursor %r only", cursor)
            break
        cursors.add(str(cursor))
    else:
        logger.warning("the server's tools are listed up to page %d only", MAX_PAGES)
    return [found[name] for name in sorted(found)]


def _listed(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed = result.get("tools")
    if not isinstance(listed, (list, tuple)):
        raise ToolError(
            f"the server answered tools/list without a list of tools: {json_text(result)[:200]}"
        )
    named = [
        d for d in listed if isinstance(d, Mapping) and isinstance(d.get("name"), str) and d["name"]
    ]
    if len(named) < len(listed):
        logger.warning(
            "%d tools of the server have no name and are left out", len(listed) - len(named)
        )
    return named


def _can_take(mcp_server: McpServer, words: tuple[Any, ...]) -> bool:
    try:
        signature = inspect.signature(mcp_server)
    except (TypeError, ValueError):
        return True
    named = {"signal": None} if "signal" in signature.parameters else {}
    try:
        signature.bind(*words, **named)
    except TypeError:
        return False
    return True


# --- one tool --------------------------------------------------------------------------------------------------------


def _tool(mcp_server: McpServer, definition: Definition, name: str, blocked: str) -> AgentTool:
    remote_name = definition["name"]
    hints = definition.get("annotations")
    hints = hints if isinstance(hints, Mapping) else {}
    label = _text(definition.get("title")) or _text(hints.get("title")) or name
    schema, output = definition.get("inputSchema"), definition.get("outputSchema")
    output = output if isinstance(output, Mapping) else None
    checker = ArgumentChecker(output, name) if output is not None else None

    def execute(
        tool_call_id: str, args: dict[str, Any], signal: AbortSignal, on_partial_result: Any
    ) -> AgentToolResult:
        del tool_call_id
        if blocked:
            raise ToolError(blocked)
        words = ("tools/call", remote_name, args)
        result = remote_result(_ask(mcp_server, words, signal, on_partial_result))
        _check_output(result, checker, name)
        return result

    beside = getattr(mcp_server, "may_run_beside_others", None)
    return AgentTool(
        name,
        label=label,
        description=_text(definition.get("description")) or label,
        input_schema=schema if isinstance(schema, Mapping) else {"type": "object"},
        execute=execute,
        parallel_tool_execute=bool(callable(beside) and beside(definition)),
        timeout_s=_limit_s(mcp_server),
        annotations=hints,
        output_schema=output,
    )


def _limit_s(mcp_server: McpServer) -> float | None:
    limit_s = getattr(mcp_server, "timeout_s", CALL_TIMEOUT_S - _GRACE_S)
    return limit_s + _GRACE_S if isinstance(limit_s, (int, float)) else None


def _check_output(result: AgentToolResult, checker: ArgumentChecker | None, name: str) -> None:
    """Warn where structured content is not what the server said it would be; what there is stays useful."""
    structured = result.details.get("structuredContent") if checker is not None else None
    if checker is None or not isinstance(structured, dict):
        return
    try:
        checker.check(dict(structured))
    except InvalidArguments as error:
        logger.warning("what %s gave is not what its server says it gives: %s", name, error)


def _text(value: Any) -> str:
    text = plain_text(value) if isinstance(value, str) else ""
    return text if text.strip() else ""


def _nothing() -> None:
    """Take nothing back."""
