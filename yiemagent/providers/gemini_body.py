"""The body of a request to the Gemini API: contents, tools and settings, by what a model's generation takes.

Facts are from the Gemini API reference ("Generating content", "Function calling", "Thinking", "Thought signatures",
"Structured outputs"). A message is converted once per form and kept by identity, so that equal beginnings of requests
are the same objects and prompt caches hold.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, assert_never

import attrs

from yiemagent.arguments import parse_arguments
from yiemagent.context import LlmContext
from yiemagent.errors import ConfigurationError, InvalidArguments
from yiemagent.history import clean_text
from yiemagent.llm import StreamOptions
from yiemagent.memo import Kept, Memo
from yiemagent.messages import (
    AssistantMessage,
    ImageContent,
    LlmMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.offered_schema import offered_schema
from yiemagent.openai_format import INVALID_ARGUMENTS_KEY, NO_OUTPUT
from yiemagent.payload import FrozenDict, FrozenList, freeze_json
from yiemagent.providers.handover import Target, hand_over
from yiemagent.record import Record
from yiemagent.tool import AgentTool

__all__ = ["Traits", "request_body", "traits_of"]

# What models read ("Image understanding"); others' images become a note.
IMAGE_TYPES = ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif")
# The signature for a call that no Gemini model made ("Thought signatures", on transferring a history).
NO_SIGNATURE = "skip_thought_signature_validator"
# Names of functions must not begin with a digit ("FunctionDeclaration").
_TOOL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")


# --- what a model takes ----------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Traits(Record):
    """What the models of one generation take.

    Args:
        levels: thinking levels, least first; empty where thinking is bounded by a budget, if at all.
        budgets: the tokens that the reasoning levels may think; empty where there is no budget.
        is_modern: Gemini 3 and later: calls have ids and must come back signed, images stand in tool results, and
            structured output goes together with tools.
    """

    levels: tuple[str, ...] = ()
    budgets: Mapping[str, int] = attrs.field(factory=FrozenDict, converter=FrozenDict)
    is_modern: bool = True


_ORDER = ("MINIMAL", "LOW", "MEDIUM", "HIGH")
_WANTED = {"off": 0, "minimal": 0, "low": 1, "medium": 2, "high": 3, "xhigh": 3, "max": 3}
_FLASH_BUDGETS = {
    "off": 0, "minimal": 512, "low": 2048, "medium": 8192, "high": 24_576, "xhigh": 24_576, "max": 24_576,
}  # fmt: skip
_PRO_BUDGETS = _FLASH_BUDGETS | {"off": 128, "minimal": 128, "xhigh": 32_768, "max": 32_768}
_VERSION = re.compile(r"(gemini|gemma)-(\d+)(?:\.(\d+))?")


@functools.lru_cache(maxsize=256)
def traits_of(model: str) -> Traits:
    """Give what a model takes, by its name; a name that says nothing, such as "gemini-flash-latest", is a new model."""
    found = _VERSION.search(model)
    if found is None:
        return Traits(levels=_ORDER[1:])
    family, version = found[1], (int(found[2]), int(found[3] or 0))
    if family == "gemma":
        return Traits(levels=("MINIMAL", "HIGH") if version >= (4, 0) else (), is_modern=False)
    if version < (2, 5):
        return Traits(is_modern=False)
    if version < (3, 0):
        return Traits(budgets=_PRO_BUDGETS if "pro" in model else _FLASH_BUDGETS, is_modern=False)
    if version == (3, 0) and "pro" in model:
        return Traits(levels=("LOW", "HIGH"))
    has_minimal = version < (3, 7) and "pro" not in model
    return Traits(levels=_ORDER if has_minimal else _ORDER[1:])


def _thinking(options: StreamOptions, traits: Traits) -> dict[str, Any] | None:
    """Give the thinking config. Thinking that can't be turned off is made as little as can be, and not shown."""
    wanted = options.reasoning or ""
    shown = {} if wanted == "off" else {"includeThoughts": True}
    if wanted not in _WANTED:
        return None
    if traits.levels:
        enough = (lv for lv in traits.levels if _ORDER.index(lv) >= _WANTED[wanted])
        return {"thinkingLevel": next(enough, traits.levels[-1]), **shown}
    if traits.budgets:
        budget = options.thinking_budgets.get(wanted, traits.budgets[wanted])
        return {"thinkingBudget": budget, **(shown if budget else {})}
    return None


# --- the body --------------------------------------------------------------------------------------------------------


def request_body(
    context: LlmContext, options: StreamOptions, *, model: str, provider: str, api: str
) -> dict[str, Any]:
    """Give the body of a request.

    Args:
        context: what it says.
        options: what else it asks for.
        model: the model to ask.
        provider: who is asked, as messages name it.
        api: the wire API, as messages name it.

    Raises:
        ConfigurationError: structured output is asked for together with tools, of a model that takes only one.
    """
    traits = traits_of(model)
    target = _target(model, provider, api)
    body: dict[str, Any] = {}
    if context.system_prompt:
        body["systemInstruction"] = {"parts": [{"text": clean_text(context.system_prompt)}]}
    messages = hand_over(target, context.messages)
    body["contents"] = (_modern if traits.is_modern else _older).contents(messages)
    if context.tools:
        body["tools"] = [_tools(tuple(map(_declaration, context.tools.values())))]
        if options.tool_choice:
            body["toolConfig"] = {"functionCallingConfig": _calling(options.tool_choice)}
    if config := _generation_config(context, options, traits, model):
        body["generationConfig"] = config
    return body


@functools.lru_cache(maxsize=256)
def _target(model: str, provider: str, api: str) -> Target:
    return Target(
        api=api,
        provider=provider,
        model=model,
        image_types=IMAGE_TYPES,
        keeps_answer_images=True,
        tool_name=_TOOL_NAME,
        unsigned_thinking="drop",  # models read nothing from it, and it would be paid for
        user_first=True,
    )


def _generation_config(
    context: LlmContext, options: StreamOptions, traits: Traits, model: str
) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if options.temperature is not None:
        config["temperature"] = options.temperature
    if options.max_tokens is not None:
        config["maxOutputTokens"] = options.max_tokens
    if thinking := _thinking(options, traits):
        config["thinkingConfig"] = thinking
    if options.output_schema is not None:
        if context.tools and not traits.is_modern:
            raise ConfigurationError(
                f"{model} takes structured output or tools, not both; ask a model from Gemini 3 on, or ask it by itself"
            )
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = options.output_schema
    return config


def _calling(choice: str) -> dict[str, Any]:
    modes = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
    if choice in modes:
        return {"mode": modes[choice]}
    return {"mode": "ANY", "allowedFunctionNames": [choice]}


def _declare(tool: AgentTool) -> FrozenDict:
    schema = freeze_json(offered_schema(tool.input_schema))
    declared = {"name": tool.name, "description": clean_text(tool.description)}
    if set(schema) <= {
        "type",
        "properties",
        "required",
        "additionalProperties",
        "$schema",
        "title",
    } and not (
        schema.get("properties")
    ):  # an object without properties is refused; left out it means the same
        return FrozenDict(declared)
    return FrozenDict(declared, parametersJsonSchema=schema)


_declaration = Memo(_declare)


class _Tools:
    """Keeps the last lists of tools, so that the same ones are the same object in each request."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, ...], tuple[tuple[FrozenDict, ...], FrozenDict]] = {}

    def __call__(self, declarations: tuple[FrozenDict, ...]) -> FrozenDict:
        key = tuple(map(id, declarations))
        kept = self._kept.get(key)  # with its declarations, so that the ids stay theirs
        if kept is None:
            kept = declarations, FrozenDict(functionDeclarations=FrozenList(declarations))
            self._kept[key] = kept
            if len(self._kept) > 64:
                self._kept.pop(next(iter(self._kept.copy())), None)
        return kept[1]


_tools = _Tools()


# --- contents --------------------------------------------------------------------------------------------------------


class _Form:
    """Contents in the form of one generation of models; neighbours of one kind make one content.

    What was made of a group of messages is kept for as long as its last message lives.
    """

    def __init__(self, convert: Callable[[LlmMessage], _Parts]) -> None:
        self._parts = Memo(convert)
        self._kept: dict[int, Kept] = {}

    def contents(self, messages: Iterable[LlmMessage]) -> list[FrozenDict]:
        """Give the contents of a request."""
        contents: list[FrozenDict] = []
        for _, group in itertools.groupby(messages, type):
            contents += self._group(list(group))
        return contents

    def _group(self, group: list[LlmMessage]) -> Sequence[FrozenDict]:
        last = group.pop()
        kept = self._kept.get(id(last))
        if kept is not None:
            before, contents = kept.value
            if len(before) == len(group) and all(
                one is other for one, other in zip(before, group, strict=True)
            ):
                return contents  # type: ignore[no-any-return]  # a reference keeps no type
        made = self._made([*group, last])
        kept = Kept(last, self._forget, (group, made))
        self._kept[kept.key] = kept
        return made

    def _made(self, group: list[LlmMessage]) -> Sequence[FrozenDict]:
        role = "model" if isinstance(group[0], AssistantMessage) else "user"
        own: list[FrozenDict] = []
        behind: list[FrozenDict] = []
        for message in group:
            parts, shown = self._parts(message)
            own += parts
            behind += shown
        return tuple(
            [FrozenDict(role=role, parts=FrozenList(parts)) for parts in (own, behind) if parts]
        )

    def _forget(self, kept: Kept) -> None:
        self._kept.pop(kept.key, None)


# A message's own parts, and those that stand behind its group of tool results.
_Parts = tuple[tuple[FrozenDict, ...], tuple[FrozenDict, ...]]


def _convert(message: LlmMessage, *, is_modern: bool) -> _Parts:
    match message:
        case UserMessage():
            return tuple(map(_shown, message.content)), ()
        case AssistantMessage():
            return _answer_parts(message, is_modern=is_modern), ()
        case ToolResultMessage():
            return _result_parts(message, is_modern=is_modern)
        case _:
            assert_never(message)


def _shown(block: TextContent | ImageContent) -> FrozenDict:
    if isinstance(block, TextContent):
        return FrozenDict(text=block.text)
    return FrozenDict(inlineData=FrozenDict(mimeType=block.mime_type, data=block.data))


def _answer_parts(message: AssistantMessage, *, is_modern: bool) -> tuple[FrozenDict, ...]:
    unsigned = is_modern and not any(call.signature for call in message.tool_calls)
    parts: list[FrozenDict] = []
    for block in message.content:
        match block:
            case TextContent() | ImageContent():
                part = dict(_shown(block))
            case ThinkingContent():
                part = {"text": block.thinking, "thought": True}
            case ToolCall():
                part = {"functionCall": _call(block, is_modern=is_modern)}
                if unsigned:  # the first of a step must be signed, and only that
                    part["thoughtSignature"] = NO_SIGNATURE
                    unsigned = False
            case _:
                assert_never(block)
        if not isinstance(block, ImageContent) and block.signature:
            part["thoughtSignature"] = block.signature
        parts.append(FrozenDict(part))
    return tuple(parts)


def _call(call: ToolCall, *, is_modern: bool) -> FrozenDict:
    fields = {"name": call.name, "args": _object(call.arguments)}
    return FrozenDict(id=call.id, **fields) if is_modern else FrozenDict(fields)


def _result_parts(message: ToolResultMessage, *, is_modern: bool) -> _Parts:
    images = [_shown(block) for block in message.content if isinstance(block, ImageContent)]
    text = "\n".join([block.text for block in message.content if isinstance(block, TextContent)])
    if not text.strip():
        text = "(the image follows)" if images else NO_OUTPUT
    fields: dict[str, Any] = {"name": message.tool_name}
    if is_modern:
        fields["id"] = message.tool_call_id
    fields["response"] = FrozenDict({"error" if message.is_error else "output": text})
    if images and is_modern:
        fields["parts"] = FrozenList(images)
        images = []
    own = FrozenDict(functionResponse=FrozenDict(fields))
    if not images:
        return (own,), ()
    return (own,), (FrozenDict(text=f"What the tool {message.tool_name!r} shows:"), *images)


def _object(arguments: FrozenDict | str) -> Any:
    """Give arguments as a JSON object, whatever the model wrote."""
    if isinstance(arguments, str):
        try:
            arguments = FrozenDict(parse_arguments(arguments))
        except InvalidArguments:
            arguments = FrozenDict({INVALID_ARGUMENTS_KEY: arguments})
    try:
        json.dumps(arguments, allow_nan=False)
    except (TypeError, ValueError):  # NaN and infinity are no JSON
        text = json.dumps(arguments, default=str)
        return FrozenDict(json.loads(text, parse_constant=lambda _: None))
    return arguments


_modern = _Form(functools.partial(_convert, is_modern=True))
_older = _Form(functools.partial(_convert, is_modern=False))
