"""Tools and their results in the words of MCP; no I/O."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from yiemagent.arguments import ArgumentChecker
from yiemagent.errors import InvalidArguments
from yiemagent.mcp.jsonrpc import INVALID_PARAMS
from yiemagent.mcp.server_protocol import RpcFailure
from yiemagent.messages import ImageContent, MessageContent
from yiemagent.payload import thaw_json
from yiemagent.tool import AgentTool, AgentToolResult

__all__ = ["StructuredOutput", "call_result", "page", "tool_definition"]

_T = TypeVar("_T")

# The version that brought a kind of content; clients of older ones can't read it.
_SINCE = {"audio": "2025-03-26", "resource_link": "2025-06-18"}
_STRUCTURED = "structuredContent"
_WRAPPED = "result"
_ROOT_KEYS = ("$schema", "$defs", "definitions")


def tool_definition(tool: AgentTool, version: str) -> dict[str, Any]:
    """Give a tool as `tools/list` tells it to a client of a version."""
    told: dict[str, Any] = {
        "name": tool.name,
        "title": tool.label,
        "description": tool.description,
        "inputSchema": {**thaw_json(tool.input_schema), "type": "object"},
    }
    if tool.annotations:
        told["annotations"] = thaw_json(tool.annotations)
    output = tool.output_schema
    # Before the stateless era an output was an object, and clients refuse a list with any other tool in it.
    if output is not None and (version >= "2026" or output.get("type") == "object"):
        told["outputSchema"] = thaw_json(output)
    return told


class StructuredOutput:
    """Holds a tool's structured results to its output schema.

    Args:
        tool: it has an output schema.
    """

    def __init__(self, tool: AgentTool) -> None:
        schema = thaw_json(tool.output_schema)
        self._wrapped = schema.get("type") != "object" and "properties" not in schema
        if self._wrapped:  # a checker takes objects
            outer = {key: schema.pop(key) for key in _ROOT_KEYS if key in schema}
            schema = {**outer, "type": "object", "properties": {_WRAPPED: schema}}
            schema["required"] = [_WRAPPED]
        self._checker = ArgumentChecker(schema, tool.name)

    def fit(self, details: Any) -> Any:
        """Give a result's details as the schema has them: what plainly means it is made to fit.

        Raises:
            InvalidArguments: they don't fit.
        """
        plain = thaw_json(details)
        if isinstance(plain, dict) and set(plain) == {_STRUCTURED}:
            plain = plain[
                _STRUCTURED
            ]  # a remote tool holds under MCP's own name what its server gave
        if self._wrapped:
            return self._checker.check({_WRAPPED: plain})[_WRAPPED]
        if not isinstance(plain, dict):
            raise InvalidArguments(f"an object is expected, not {plain!r}")
        return self._checker.check(plain)


def call_result(
    result: AgentToolResult,
    added: Iterable[Mapping[str, Any]],
    output: StructuredOutput | None,
    *,
    is_error: bool,
    version: str,
) -> dict[str, Any]:
    """Give what a tool gave as the result of `tools/call`.

    Args:
        result: what it gave.
        added: blocks in MCP's form, behind the content.
        output: holds its details to its output schema; None where it has none.
        is_error: whether it failed.
        version: what the client speaks; what that does not have is told in words.
    """
    content = [_block(block) for block in result.content]
    content += [_readable(block, version) for block in added]
    answer: dict[str, Any] = {"content": content}
    if is_error:
        return {**answer, "isError": True}
    if output is None:
        return answer
    try:
        structured = output.fit(result.details)
    except InvalidArguments as error:
        text = f"the tool's result does not fit its output schema: {error}"
        return {"content": [{"type": "text", "text": text}], "isError": True}
    if version >= "2026" or isinstance(structured, dict):
        answer[_STRUCTURED] = structured
    return answer


def _block(block: MessageContent) -> dict[str, Any]:
    if isinstance(block, ImageContent):
        return {"type": "image", "data": block.data, "mimeType": block.mime_type}
    return {"type": "text", "text": block.text}


def _readable(block: Mapping[str, Any], version: str) -> dict[str, Any]:
    kind = str(block.get("type"))
    if version >= _SINCE.get(kind, ""):
        return {**block}
    if kind == "audio":
        return {"type": "text", "text": f"[audio, {block.get('mimeType')}]"}
    words = (block.get("title") or block.get("name"), block.get("uri"), block.get("description"))
    return {"type": "text", "text": f"[resource: {', '.join(str(w) for w in words if w)}]"}


def page(items: Sequence[tuple[str, _T]], cursor: Any, size: int) -> tuple[list[_T], str | None]:
    """Give one page of a list, and the cursor of the next page, or None behind the last.

    Args:
        items: all of them, with their keys.
        cursor: what the page before gave, or None for the first page. It names the last item that was given, so that
            what comes and goes meanwhile moves nothing.
        size: items on a page.

    Raises:
        RpcFailure: the cursor is none of ours.
    """
    start = 0 if cursor is None else _start(items, cursor)
    shown = items[start : start + size]
    following = None
    if start + size < len(items):
        mark = f"{start + size}:{shown[-1][0]}"
        following = base64.urlsafe_b64encode(mark.encode()).decode("ascii")
    return [item for _, item in shown], following


def _start(items: Sequence[tuple[str, _T]], cursor: Any) -> int:
    try:
        mark = base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
        position, _, key = mark.partition(":")
        index = int(position)
    except (TypeError, ValueError, binascii.Error):
        raise RpcFailure(
            INVALID_PARAMS, f"the cursor {cursor!r} is not one of this server"
        ) from None
    places = {name: place for place, (name, _) in enumerate(items)}
    return places[key] + 1 if key in places else min(max(index, 0), len(items))
