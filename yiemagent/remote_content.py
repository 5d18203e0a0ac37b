"""What servers give as content, as content blocks: text and images, and a text for all that a model can't be shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from yiemagent.errors import ToolFailure
from yiemagent.messages import ImageContent, MessageContent, TextContent, content_text
from yiemagent.tool import AgentToolResult

__all__ = ["RemoteToolError", "json_text", "remote_result"]

_NOTHING = "the tool gave no content"
_NO_REASON = "the server says that the call failed, and not why"


class RemoteToolError(ToolFailure):
    """A server answered a call with an error; the text is what it said, `content` all that the answer held."""


def remote_result(answer: Mapping[str, Any]) -> AgentToolResult:
    """Give the result of `tools/call` as a tool's result.

    Structured content is in the details, and is the text where there is none.

    Raises:
        RemoteToolError: the result says that the call failed.
    """
    given = answer.get("content")
    items = given if isinstance(given, (list, tuple)) else [] if given is None else [given]
    content = tuple(_block(item) for item in items)
    structured = answer.get("structuredContent")
    if structured is not None and not content:
        content = (TextContent(json_text(structured)),)
    details = {} if structured is None else {"structuredContent": structured}
    if answer.get("isError"):
        words = content_text(content).strip()
        if not words:
            content = (
                TextContent(_NO_REASON),
                *[b for b in content if not isinstance(b, TextContent)],
            )
        raise RemoteToolError(words or _NO_REASON, content, details)
    return AgentToolResult(content or (TextContent(_NOTHING),), details=details)


def _block(item: Any) -> MessageContent:
    if not isinstance(item, Mapping):
        return TextContent(item if isinstance(item, str) else json_text(item))
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
    return TextContent(json_text(item))


def _resource(resource: Mapping[str, Any]) -> MessageContent:
    uri, mime_type = resource.get("uri") or "without a name", str(resource.get("mimeType") or "")
    if isinstance(resource.get("text"), str):
        return TextContent(f"[resource: {uri}]\n{resource['text']}")
    if isinstance(resource.get("blob"), str) and mime_type.startswith("image/"):
        return ImageContent(resource["blob"], mime_type)
    return TextContent(f"[resource: {uri}, {mime_type or 'of an unknown kind'}, can't be shown]")


def json_text(value: Any) -> str:
    """Give a value as JSON text, whatever it is."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)
