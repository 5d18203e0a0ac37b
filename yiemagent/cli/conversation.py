"""Conversations in words: as Markdown for people, and an entry of a session in one line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from yiemagent.cli.terminal import one_line
from yiemagent.messages import (
    AgentMessage,
    AssistantMessage,
    ImageContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)

__all__ = ["as_markdown", "summary_line"]


def as_markdown(messages: Iterable[AgentMessage]) -> str:
    """Give a conversation as Markdown: a heading for each message, tool calls and results as code."""
    return "\n".join(_section(message) for message in messages)


def _section(message: AgentMessage) -> str:
    if isinstance(message, AssistantMessage):
        parts = [_block(block) for block in message.content]
        if message.failed:
            parts.append(f"*{message.stop_reason}: {message.error_message}*")
        return _headed("Assistant", parts)
    if isinstance(message, ToolResultMessage):
        name = f"Result of {message.tool_name}"
        return _headed(f"{name}, an error" if message.is_error else name, [_code(message.text)])
    if isinstance(message, UserMessage):
        return _headed("User", [_block(block) for block in message.content])
    told = message.to_llm()
    text = getattr(told, "text", "")
    return _headed(_TITLES.get(message.role, message.role), [text] if text else [])


_TITLES = {"compactionSummary": "Summary", "branchSummary": "Summary of another branch"}


def _json(arguments: Any) -> str:
    return json.dumps(arguments, ensure_ascii=False, indent=2)


def _headed(title: str, parts: Iterable[str]) -> str:
    body = "\n\n".join(part for part in parts if part)
    return f"## {title}\n\n{body}\n" if body else f"## {title}\n"


def _block(block: Any) -> str:
    match block:
        case TextContent(text):
            return text
        case ThinkingContent(thinking):
            return "\n".join(f"> {line}" for line in thinking.splitlines())
        case ToolCall():
            arguments = block.arguments
            text = arguments if isinstance(arguments, str) else _json(arguments)
            return f"Calls `{block.name}`:\n\n{_code(text, 'json')}"
        case ImageContent():
            return f"*an image, {block.mime_type}*"
        case _:
            return ""


def _code(text: str, language: str = "") -> str:
    """Give text as a code block whose fence is longer than any in it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"


def summary_line(body: Any) -> str:
    """Give what an entry of a session says in one line."""
    message = getattr(body, "message", None)
    if message is None:
        facts = (
            f"{name.removesuffix('_id')}={value}"
            for name in type(body).__slots__
            if name != "__weakref__" and (value := getattr(body, name)) not in (None, ())
        )
        return one_line(" ".join(facts), limit=100)
    calls = "".join(f" → {call.name}" for call in getattr(message, "tool_calls", ()))
    return one_line(f"{message.role}: {getattr(message, 'text', '')}{calls}", limit=100)
