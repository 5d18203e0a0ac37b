"""The body of a request to an OpenAI chat API, in the words of one profile."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from yiemagent.context import LlmContext
from yiemagent.llm import StreamOptions
from yiemagent.openai_format import openai_tools
from yiemagent.payload import FrozenDict
from yiemagent.providers.openai_efforts import reasoning_effort
from yiemagent.providers.profiles import Profile, by_model
from yiemagent.providers.strict_schema import fits_strict_mode

__all__ = ["request_body", "stream_fields"]


def request_body(
    context: LlmContext,
    options: StreamOptions,
    profile: Profile,
    *,
    messages: list[FrozenDict],
    model: str,
    stream: bool,
) -> dict[str, Any]:
    """Give the body of a request, its fields in a stable order.

    Args:
        context: what it says; its tools are sent.
        options: what else it asks for.
        profile: how the server speaks.
        messages: what the context's prompt and messages are for this server.
        model: the model to ask.
        stream: whether the answer should be streamed, with its usage.
    """
    body: dict[str, Any] = {"model": model, "messages": messages}
    body |= _tools(context, options.tool_choice, profile)
    if stream:
        body |= stream_fields(profile)
    if options.temperature is not None:
        body["temperature"] = options.temperature
    if options.max_tokens is not None:
        body[profile.max_tokens_field] = options.max_tokens
    is_forced = body.get("tool_choice", "auto") not in ("auto", "none")
    body |= _reasoning(options, profile, model, is_forced=is_forced)
    body |= _output(options.output_schema, profile, has_tools="tools" in body)
    return body | _caching(options, profile, model)


def stream_fields(profile: Profile) -> dict[str, Any]:
    """Give the fields that ask for a stream, with its usage."""
    fields: dict[str, Any] = {"stream": True}
    if profile.usage_field is not None:
        fields["stream_options"] = {profile.usage_field: True}
    return fields


def _tools(context: LlmContext, choice: str | None, profile: Profile) -> dict[str, Any]:
    heeded = profile.tool_choices
    if not context.tools or (choice == "none" and "none" not in heeded):
        return {}
    if choice is None or choice in {"auto", "none", "required"}:
        fields: dict[str, Any] = {"tools": openai_tools(context.tools)}
        return fields | {"tool_choice": choice} if choice in heeded else fields
    if "named" in heeded:
        named = {"type": "function", "function": {"name": choice}}
        return {"tools": openai_tools(context.tools), "tool_choice": named}
    only = {name: tool for name, tool in context.tools.items() if name == choice}
    fields = {"tools": openai_tools(only or context.tools)}
    return fields | {"tool_choice": "required"} if "required" in heeded else fields


def _reasoning(
    options: StreamOptions, profile: Profile, model: str, *, is_forced: bool
) -> dict[str, Any]:
    level = options.reasoning
    if profile.thinking_switch and (is_forced or level == "off"):
        return {"thinking": {"type": "disabled"}}
    if level is None:
        return {}
    fields: dict[str, Any] = {"thinking": {"type": "enabled"}} if profile.thinking_switch else {}
    effort = (
        reasoning_effort(level, model)
        if profile.efforts is None
        else by_model(profile.efforts, model).get(level)
    )
    budget = options.thinking_budgets.get(level)
    if budget is not None and profile.budget_field is not None:
        _put(fields, profile.budget_field, budget)
        if "." in profile.budget_field:  # one object, which takes either
            return fields
    if effort is not None:
        _put(fields, profile.effort_field, effort)
    return fields


def _put(fields: dict[str, Any], path: str, value: Any) -> None:
    outer, _, inner = path.partition(".")
    fields[outer] = {inner: value} if inner else value


def _output(
    schema: Mapping[str, Any] | None, profile: Profile, *, has_tools: bool
) -> dict[str, Any]:
    if schema is None or profile.schema_output == "never":
        return {}
    if has_tools and profile.schema_output == "without_tools":
        return {}
    described = {"name": "answer", "schema": schema, "strict": fits_strict_mode(schema)}
    return {"response_format": {"type": "json_schema", "json_schema": described}}


def _caching(options: StreamOptions, profile: Profile, model: str) -> dict[str, Any]:
    if options.cache == "none":
        return {}
    fields: dict[str, Any] = {}
    if options.session_id and profile.cache_key_field is not None:
        key = options.session_id
        if len(key) > profile.max_cache_key:
            key = hashlib.sha256(key.encode()).hexdigest()
        fields[profile.cache_key_field] = key
    if options.cache is not None:
        fields |= by_model(profile.cache_fields, model).get(options.cache, {})
    return fields
