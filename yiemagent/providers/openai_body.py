"""The body of a request to an OpenAI chat API, as a dict and as bytes."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from yiemagent.context import LlmContext
from yiemagent.llm import StreamOptions
from yiemagent.openai_format import openai_messages, openai_tools

__all__ = ["BodyEncoder", "request_body"]

_MAX_KEPT_BYTES = 16_777_216
_MAX_FRAGMENT_BYTES = 262_144
_EFFORTS = {
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "xhigh",
}


def request_body(
    context: LlmContext, options: StreamOptions, *, model: str, stream: bool, own_server: bool
) -> dict[str, Any]:
    """Give the body of a request.

    Args:
        context: what it says.
        options: what else it asks for.
        model: the model to ask.
        stream: whether the answer should be streamed, with its usage.
        own_server: whether OpenAI's own server is asked, which has newer names for some fields and knows more of them.
    """
    body: dict[str, Any] = {"model": model, "messages": openai_messages(context)}
    if context.tools:
        body["tools"] = openai_tools(context.tools)
        if options.tool_choice:
            body["tool_choice"] = _tool_choice(options.tool_choice)
    if stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    if options.temperature is not None:
        body["temperature"] = options.temperature
    if options.max_tokens is not None:
        body["max_completion_tokens" if own_server else "max_tokens"] = options.max_tokens
    if options.reasoning in _EFFORTS:
        body["reasoning_effort"] = _EFFORTS[options.reasoning]
    if options.session_id and own_server:
        body["prompt_cache_key"] = options.session_id
    return body


def _tool_choice(choice: str) -> Any:
    if choice in {"auto", "none", "required"}:
        return choice
    return {"type": "function", "function": {"name": choice}}


class BodyEncoder:
    """Encodes bodies; what an earlier body held too, messages and tools, is not encoded again."""

    def __init__(self) -> None:
        # Guards the two fields below; nothing is encoded while it is held.
        self._lock = threading.Lock()
        self._kept: dict[
            int, tuple[Any, bytes]
        ] = {}  # by identity, each with its object, so that the id stays its own
        self._size = 0

    def encode(self, body: Mapping[str, Any]) -> bytes:
        """Give the JSON of a body. Its messages and tools must not change later."""
        fields = [
            b"%b:%b" % (_dumps(key), self._list(value) if key in {"messages", "tools"} else _dumps(value))
            for key, value in body.items()
        ]  # fmt: skip
        return b"{%b}" % b",".join(fields)

    def _list(self, items: Sequence[Any]) -> bytes:
        kept = self._kept
        fragments = []
        for item in items:
            known = kept.get(id(item))
            fragments.append(self._fragment(item) if known is None else known[1])
        return b"[%b]" % b",".join(fragments)

    def _fragment(self, item: Any) -> bytes:
        fragment = _dumps(item)
        if len(fragment) <= _MAX_FRAGMENT_BYTES:  # larger ones, images, are cheap for their size
            with self._lock:
                if self._size > _MAX_KEPT_BYTES:
                    self._kept = {}
                    self._size = 0
                self._kept[id(item)] = (item, fragment)
                self._size += len(fragment)
        return fragment


def _dumps(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")
