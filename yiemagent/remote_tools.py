"""Tools of a server: any callable that answers `tools/list` and `tools/call` in JSON-RPC dicts gives `AgentTool`s.

The callable is called as `mcp_server("tools/list")`, for a further page as `mcp_server("tools/list", {"cursor": …})`
(one that takes no second argument gives its first page only), and as `mcp_server("tools/call", name, arguments)`. Where
it has a parameter `signal`, it gets the call's `AbortSignal`. It gives the response, or its result alone. It may block:
an abort abandons the call. What a server says is data: names are made to fit, descriptions are text, schemas are made
sound.
"""

from __future__ import annotations

import inspect
import json
import logging
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from yiemagent.abort import AbortSignal
from yiemagent.errors import ConfigurationError, ToolError
from yiemagent.messages import ImageContent, MessageContent, TextContent, content_text
from yiemagent.registry import ToolStore, tool_lines
from yiemagent.tool import AgentTool, AgentToolResult

__all__ = ["McpServer", "RemoteToolError", "discovery_tool", "fetch_tools"]

logger = logging.getLogger("yiemagent.remote_tools")

McpServer: TypeAlias = Callable[..., Any]

MAX_PAGES = 1000
CALL_TIMEOUT_S = 120.0
_NAME_CHARACTERS = 64


class RemoteToolError(ToolError):
    """A server answered a call with an error; the text is what it said.

    Args:
        message: the text.
        content: all that the answer held, images included.
    """

    def __init__(self, message: str, content: tuple[MessageContent, ...] = ()) -> None:
        super().__init__(message)
        self.content = content

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.content)


def discovery_tool(store: ToolStore, mcp_server: McpServer) -> AgentTool:
    """Give the tool `list_tools` that asks a server for its tools and registers them.

    Its text lists all that is in the store then; what it registered can be called in the next turn. Asked again, it
    brings the store up to date: new tools, changed ones in their place, and none that are gone.

    Args:
        store: where the tools go.
        mcp_server: answers `tools/list` and `tools/call`.

    Raises:
        ConfigurationError: where `mcp_server` can't be called.
    """
    _check_callable(mcp_server)
    known: dict[str, tuple[Mapping[str, Any], AgentTool]] = {}

    def execute(
        tool_call_id: str, args: dict[str, Any], signal: AbortSignal, on_partial_result: object
    ) -> AgentToolResult:
        del tool_call_id, args, on_partial_result
        _update(store, known, mcp_server, _definitions(mcp_server, signal))
        tools = store.snapshot()
        return AgentToolResult(tool_lines(tools.values()), details={"tools": list(tools)})

    return AgentTool(
        "list_tools",
        label="List tools",
        description="Finds the tools that are available now, with what each does; they can be called afterwards.",
        execute=execute,
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
    _check_callable(mcp_server)
    tools: dict[str, AgentTool] = {}
    for definition in _definitions(mcp_server, signal or AbortSignal()):
        name = _free_name(definition["name"], tools)
        tools[name] = _tool(mcp_server, definition, name)
    return tuple(tools.values())


def _update(
    store: ToolStore,
    known: dict[str, tuple[Mapping[str, Any], AgentTool]],
    mcp_server: McpServer,
    definitions: list[Mapping[str, Any]],
) -> None:
    there = {definition["name"] for definition in definitions}
    for name in [name for name in known if name not in there]:
        _, tool = known.pop(name)
        if store.get(tool.name) is tool:
            store.remove(tool.name)
    for definition in definitions:
        told, held = known.get(definition["name"], (None, None))
        if held is not None and store.get(held.name) is held:
            if told != definition:
                tool = store.replace(held, _tool(mcp_server, definition, held.name))
                known[definition["name"]] = (definition, tool)
            continue
        name = _free_name(definition["name"], store.snapshot())
        tool = store.register(_tool(mcp_server, definition, name))
        known[definition["name"]] = (definition, tool)


# --- asking ----------------------------------------------------------------------------------------------------------


def _check_callable(mcp_server: Any) -> None:
    if not callable(mcp_server):
        raise ConfigurationError(
            f"mcp_server must be a function that answers 'tools/list' and 'tools/call', not {mcp_server!r}"
        )
    call = mcp_server if inspect.isroutine(mcp_server) else type(mcp_server).__call__
    if inspect.iscoroutinefunction(call):
        raise ConfigurationError("mcp_server is a coroutine function; give a plain function")


def _ask(mcp_server: McpServer, signal: AbortSignal, *words: Any) -> Mapping[str, Any]:
    """Give the result of one request."""
    signal.raise_if_aborted()
    named = {"signal": signal} if _takes_signal(mcp_server) else {}
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
    return f"{text}: {_json(error['data'])}" if error.get("data") is not None else text


def _takes_signal(mcp_server: McpServer) -> bool:
    try:
        return "signal" in inspect.signature(mcp_server).parameters
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
        result = _ask(mcp_server, signal, *words)
        for definition in _listed(result):
            found.setdefault(definition["name"], definition)
        cursor = result.get("nextCursor")
        if not cursor:
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
            f"the server answered tools/list without a list of tools: {_json(result)[:200]}"
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


def _free_name(name: str, taken: Collection[str]) -> str:
    """Give a name that providers take and that is not taken: a number behind it tells it apart."""
    plain = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:_NAME_CHARACTERS]
    free, number = plain, 2
    while free in taken:
        ending = f"_{number}"
        free, number = plain[: _NAME_CHARACTERS - len(ending)] + ending, number + 1
    return free


def _tool(mcp_server: McpServer, definition: Mapping[str, Any], name: str) -> AgentTool:
    remote_name = definition["name"]
    hints = definition.get("annotations")
    hints = hints if isinstance(hints, Mapping) else {}
    label = _text(definition.get("title")) or _text(hints.get("title")) or name
    schema, output = definition.get("inputSchema"), definition.get("outputSchema")

    def execute(
        tool_call_id: str, args: dict[str, Any], signal: AbortSignal, on_partial_result: object
    ) -> AgentToolResult:
        del tool_call_id, on_partial_result
        return _result(_ask(mcp_server, signal, "tools/call", remote_name, args))

    return AgentTool(
        name,
        label=label,
        description=_text(definition.get("description")) or label,
        input_schema=schema if isinstance(schema, Mapping) else {"type": "object"},
        execute=execute,
        timeout_s=CALL_TIMEOUT_S,
        annotations=hints,
        output_schema=output if isinstance(output, Mapping) else None,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value.strip() else ""


def _result(answer: Mapping[str, Any]) -> AgentToolResult:
    given = answer.get("content", [])
    items = given if isinstance(given, (list, tuple)) else [given]
    content = tuple(_block(item) for item in items)
    structured = answer.get("structuredContent")
    if structured is not None and not content:
        content = (TextContent(_json(structured)),)
    if answer.get("isError"):
        raise RemoteToolError(_error_words(content), content)
    details = {} if structured is None else {"structuredContent": structured}
    return AgentToolResult(content, details=details)


def _error_words(content: tuple[MessageContent, ...]) -> str:
    return content_text(content).strip() or "the server says that the call failed, and not why"


def _block(item: Any) -> MessageContent:
    if not isinstance(item, Mapping):
        return TextContent(item if isinstance(item, str) else _json(item))
    kind = item.get("type")
    if kind == "text" and isinstance(item.get("text"), str):
        return TextContent(item["text"])
    if kind == "image" and isinstance(item.get("data"), str):
        return ImageContent(item["data"], str(item.get("mimeType") or "image/png"))
    if kind == "audio":
        return TextContent(
            f"[audio, {item.get('mimeType') or 'of an unknown kind'}, can't be shown]"
        )
    if kind == "resource" and isinstance(item.get("resource"), Mapping):
        return _resource(item["resource"])
    if kind == "resource_link":
        words = (item.get("title") or item.get("name"), item.get("uri"), item.get("description"))
        return TextContent(f"[resource: {', '.join(str(word) for word in words if word)}]")
    return TextContent(_json(item))


def _resource(resource: Mapping[str, Any]) -> MessageContent:
    uri, mime_type = resource.get("uri") or "without a name", str(resource.get("mimeType") or "")
    if isinstance(resource.get("text"), str):
        return TextContent(f"[resource: {uri}]\n{resource['text']}")
    if isinstance(resource.get("blob"), str) and mime_type.startswith("image/"):
        return ImageContent(resource["blob"], mime_type)
    return TextContent(f"[resource: {uri}, {mime_type or 'of an unknown kind'}, can't be shown]")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
