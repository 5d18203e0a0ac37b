"""The body of a request to an OpenAI chat API, as a dict and as bytes."""

from __future__ import annotations

from typing import Any

from yiemagent.context import LlmContext
from yiemagent.llm import StreamOptions
from yiemagent.openai_format import openai_messages, openai_tools

__all__ = ["request_body"]

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
