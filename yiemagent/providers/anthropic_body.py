"""The body of a request to the Anthropic Messages API: what it asks for, and how it thinks, answers and is cached.

Cache marks stand at places that stay: the last tool, the system prompt, and the last two messages of the user's side.
The later of these is where the next request finds what this one wrote to the cache, whatever number of blocks came in
between; the earlier is where this one finds what the last one wrote. Four marks are what the API allows.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from yiemagent.context import LlmContext
from yiemagent.history import clean_text
from yiemagent.llm import CacheUse, StreamOptions
from yiemagent.memo import Memo
from yiemagent.payload import FrozenDict, freeze_json
from yiemagent.providers.anthropic_history import history, mapping, marked
from yiemagent.providers.anthropic_models import Traits, nearest_effort, traits_of
from yiemagent.providers.anthropic_schema import answer_schema, input_schema
from yiemagent.providers.handover import Target, hand_over
from yiemagent.tool import AgentTool

__all__ = ["request_body"]

logger = logging.getLogger("yiemagent.providers.anthropic_body")

# An answer that comes whole is waited for in silence, so it is asked for in a size that servers finish in time.
MAX_WHOLE_TOKENS = 20_000
# The least that a thinking budget may be, and what is left for the answer beside one.
MIN_BUDGET = 1_024
_BUDGETS = {
    "minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 24_576, "max": 32_768,
}  # fmt: skip
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}


def request_body(
    context: LlmContext,
    options: StreamOptions,
    *,
    target: Target,
    max_tokens: int | None,
    stream: bool,
    eager_input: bool = False,
    server_tools: Sequence[FrozenDict] = (),
) -> dict[str, Any]:
    """Give the body of a request.

    Args:
        context: what it says.
        options: what else it asks for.
        target: the model that is asked, as `target_of` gives it.
        max_tokens: what the model's answers may have, or None where that is not known.
        stream: whether the answer should be streamed.
        eager_input: whether tools' arguments are streamed as they come, before they are known to be JSON.
        server_tools: definitions of tools that run on the server; they stand before ours.
    """
    traits = traits_of(target.model)
    mark = options.cache or "short"
    messages = history(hand_over(target, context.messages), mark)
    limit = max_tokens or traits.max_output_tokens
    if not stream:
        limit = min(limit, MAX_WHOLE_TOKENS)
    body: dict[str, Any] = {"model": target.model, "max_tokens": options.max_tokens or limit}
    if context.system_prompt.strip():
        text = FrozenDict(type="text", text=clean_text(context.system_prompt))
        body["system"] = [marked(text, mark)]
    if context.tools or server_tools:
        ours = _tools(context.tools, mark, eager_input=eager_input) if context.tools else []
        body["tools"] = [*server_tools, *ours]
        if options.tool_choice:
            body["tool_choice"] = _tool_choice(options.tool_choice)
    _add_thinking(body, options, traits, messages)
    _add_temperature(body, options, traits)
    _add_output(body, options)
    body["messages"] = messages
    body["stream"] = stream
    return body


# --- what a request asks for ----------------------------------------------------------------------------------------


def _tool_choice(choice: str) -> dict[str, Any]:
    if choice in _CHOICES:
        return {"type": _CHOICES[choice]}
    return {"type": "tool", "name": choice}


def _add_thinking(
    body: dict[str, Any],
    options: StreamOptions,
    traits: Traits,
    messages: Sequence[Mapping[str, Any]],
) -> None:
    level = options.reasoning
    forced = mapping(body.get("tool_choice")).get("type") in {"any", "tool"}
    if forced and traits.off in {"omit", "disabled"} and traits.thinking != "none":
        # The API takes no forced call together with thinking.
        if level not in {None, "off"}:
            _tell(body["model"], "thinking, since tool_choice forces a call")
        if level is not None or traits.thinking == "adaptive":
            level = "off"
    if level is None or traits.thinking == "none":
        return
    if level == "off":
        if traits.off in {"disabled", "between_tools"}:
            body["thinking"] = {"type": traits.off}
        elif traits.off == "least":
            body["output_config"] = {"effort": nearest_effort("minimal", traits.efforts)}
    elif traits.thinking == "adaptive":
        shown = {"display": "summarized"} if traits.hides_thinking else {}
        body["thinking"] = {"type": "adaptive", **shown}
        body["output_config"] = {"effort": nearest_effort(level, traits.efforts)}
    else:
        _add_budget(body, level, options, messages)


def _add_budget(
    body: dict[str, Any],
    level: str,
    options: StreamOptions,
    messages: Sequence[Mapping[str, Any]],
) -> None:
    wanted = options.thinking_budgets.get(level, _BUDGETS[level])
    budget = min(max(wanted, MIN_BUDGET), body["max_tokens"] - MIN_BUDGET)
    if budget < MIN_BUDGET:
        _tell(
            body["model"], f"thinking, since max_tokens={body['max_tokens']} leaves no room for it"
        )
    elif not _goes_on_without_thinking(messages):
        body["thinking"] = {"type": "enabled", "budget_tokens": budget}


def _goes_on_without_thinking(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a turn goes on, behind tool results, that began without thinking, as another model's may: with a budget
    the API asks for thinking at its beginning.
    """
    beginning: Mapping[str, Any] | None = None
    for message in reversed(messages):
        if message["role"] == "assistant":
            beginning = message
        elif message["content"][-1]["type"] != "tool_result":
            break
    if beginning is None or messages[-1]["role"] == "assistant":
        return False
    return beginning["content"][0]["type"] not in {"thinking", "redacted_thinking"}


def _add_temperature(body: dict[str, Any], options: StreamOptions, traits: Traits) -> None:
    if options.temperature is None:
        return
    if not traits.samples:
        _tell(body["model"], "the temperature, since this model takes none")
    elif mapping(body.get("thinking")).get("type") in {"adaptive", "enabled"}:
        _tell(body["model"], "the temperature, since a model that thinks takes none")
    else:
        body["temperature"] = options.temperature


def _add_output(body: dict[str, Any], options: StreamOptions) -> None:
    if options.output_schema is None:
        return
    schema = answer_schema(options.output_schema)
    if schema is not None:
        format_ = {"type": "json_schema", "schema": schema}
        body["output_config"] = {**body.get("output_config", {}), "format": format_}
        return
    words = json.dumps(options.output_schema, ensure_ascii=False)
    text = f"Answer with one JSON object and nothing else. It must fit this JSON Schema: {words}"
    body["system"] = [*body.get("system", ()), FrozenDict(type="text", text=clean_text(text))]


@functools.lru_cache(maxsize=256)
def _tell(model: str, what: str) -> None:
    """Say what is left out of requests to a model, once."""
    logger.warning("a request to %s leaves out %s", model, what)


# --- tools ----------------------------------------------------------------------------------------------------------


def _tools(
    tools: Mapping[str, AgentTool], mark: CacheUse, *, eager_input: bool
) -> list[FrozenDict]:
    *others, last = tools.values()
    plain, last_one = _definitions("none", eager_input), _definitions(mark, eager_input)
    return [*map(plain, others), last_one(last)]


@functools.cache
def _definitions(mark: CacheUse, eager_input: bool) -> Memo[AgentTool, FrozenDict]:  # noqa: FBT001 - a cache's key
    """Give what makes definitions of tools, once per tool."""

    def define(tool: AgentTool) -> FrozenDict:
        fields: dict[str, Any] = {"name": tool.name, "description": clean_text(tool.description)}
        fields["input_schema"] = freeze_json(input_schema(tool.input_schema))
        if eager_input:
            fields["eager_input_streaming"] = True
        return marked(FrozenDict(fields), mark)

    return Memo(define)
