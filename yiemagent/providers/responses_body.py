"""The body of a request to the OpenAI Responses API: input items, tools and settings.

Facts are from the API reference ("Create a model response") and its guides on reasoning, function calling, structured
outputs and prompt caching. Nothing is kept on the server: each request holds the whole conversation, reasoning in its
encrypted form included. What goes out is made once per frozen message and tool and shared between requests.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, assert_never

import attrs

from yiemagent.context import LlmContext
from yiemagent.history import clean_text
from yiemagent.llm import StreamOptions
from yiemagent.memo import Memo
from yiemagent.messages import (
    AssistantMessage,
    ImageContent,
    LlmMessage,
    MessageContent,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.openai_format import NO_OUTPUT, Conversations, message_dict, openai_tools
from yiemagent.payload import FrozenDict, FrozenList, freeze_json
from yiemagent.providers.handover import Target, hand_over
from yiemagent.providers.models import model_facts
from yiemagent.providers.openai_efforts import reasoning_effort
from yiemagent.providers.strict_schema import fits_strict_mode
from yiemagent.record import Record
from yiemagent.tool import AgentTool

__all__ = ["Manner", "Summary", "request_body"]

Summary = Literal["auto", "concise", "detailed"]

IMAGE_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")
OUTPUT_NAME = "answer"
CUSTOM_CALL = "custom_tool_call"
MAX_ID = 64
# Items whose ids the server links with each other.
_LINKED = frozenset({"reasoning", "message", "function_call", CUSTOM_CALL})
MAX_CACHE_KEY = 64
# Models that may be told not to write to their prompt cache at all.
_CACHE_ON_DEMAND = re.compile(r"gpt-(?:5\.[6-9]|[6-9])")


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Manner(Record):
    """How one provider asks.

    Args:
        provider: who is asked, as messages name it; api: the wire API, as messages name it.
        stream: whether the answer should be streamed.
        store: whether the server should keep the response.
        summary: what kind of summary of the reasoning is asked for, where reasoning is; None: none.
        images_in_results: whether a tool's result may hold images; else they follow in a user message.
    """

    provider: str
    api: str
    stream: bool = True
    store: bool = False
    summary: Summary | None = "auto"
    images_in_results: bool = True


def request_body(
    context: LlmContext, options: StreamOptions, manner: Manner, *, model: str
) -> dict[str, Any]:
    """Give the body of a request.

    Args:
        context: what it says.
        options: what else it asks for. Budgets of thinking tokens are unknown to this API.
        manner: how it is asked.
        model: the model to ask.
    """
    facts = model_facts(options.model, manner.provider, default=model)
    target = _target(manner.api, manner.provider, model, reads_images="image" in facts.input_kinds)
    body: dict[str, Any] = {"model": model}
    if context.system_prompt:
        body["instructions"] = clean_text(context.system_prompt)
    form = _form(store=manner.store, images_in_results=manner.images_in_results)
    body["input"] = _as_custom(form.messages(list(hand_over(target, context.messages))))
    if context.tools:
        body["tools"] = [_tool(tool) for tool in context.tools.values()]
        if options.tool_choice:
            body["tool_choice"] = _tool_choice(options.tool_choice)
    if options.output_schema is not None:
        body["text"] = {"format": _format(options.output_schema)}
    body |= _reasoning(options, manner, model, thinks=facts.reasoning)
    if options.temperature is not None:
        body["temperature"] = options.temperature
    if options.max_tokens is not None:
        body["max_output_tokens"] = options.max_tokens
    return {**body, **_caching(options, model), "store": manner.store, "stream": manner.stream}


@functools.lru_cache(maxsize=256)
def _target(api: str, provider: str, model: str, *, reads_images: bool) -> Target:
    return Target(
        api=api,
        provider=provider,
        model=model,
        reads_images=reads_images,
        image_types=IMAGE_TYPES,
        max_call_id=MAX_ID,
        unsigned_thinking="keep",  # to be seen here: what belongs to reasoning that is lost has no ids
    )


def _tool_choice(choice: str) -> Any:
    if choice in {"auto", "none", "required"}:
        return choice
    return {"type": "function", "name": choice}


def _format(schema: Mapping[str, Any]) -> dict[str, Any]:
    strict = fits_strict_mode(schema)
    return {"type": "json_schema", "name": OUTPUT_NAME, "schema": schema, "strict": strict}


def _reasoning(
    options: StreamOptions, manner: Manner, model: str, *, thinks: bool
) -> dict[str, Any]:
    asked = options.reasoning not in {None, "off"}
    effort = reasoning_effort(options.reasoning, model)
    fields: dict[str, Any] = {}
    if effort is not None:
        fields["reasoning"] = {"effort": effort}
        if asked and manner.summary is not None:
            fields["reasoning"]["summary"] = manner.summary
    # Models that don't think refuse it.
    if not manner.store and (thinks or (asked and effort is not None)):
        fields["include"] = ["reasoning.encrypted_content"]
    return fields


def _caching(options: StreamOptions, model: str) -> dict[str, Any]:
    if options.cache == "none":
        name = model.rpartition("/")[2]
        return (
            {"prompt_cache_options": {"mode": "explicit"}} if _CACHE_ON_DEMAND.match(name) else {}
        )
    fields: dict[str, Any] = {}
    if key := options.session_id:
        if len(key) > MAX_CACHE_KEY:
            key = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
        fields["prompt_cache_key"] = key
    if options.cache == "long":
        fields["prompt_cache_retention"] = "24h"
    return fields


def _convert_tool(tool: AgentTool) -> FrozenDict:
    function = openai_tools({tool.name: tool})[0]["function"]
    # Left out, it would mean true, and every optional argument would become a required one.
    strict = fits_strict_mode(function["parameters"])
    return FrozenDict(type="function", **function, strict=strict)


_tool = Memo(_convert_tool)


# --- input items -----------------------------------------------------------------------------------------------------

_Items = tuple[tuple[FrozenDict, ...], tuple[FrozenDict, ...]]


@functools.cache
def _form(*, store: bool, images_in_results: bool) -> Conversations:
    def convert(message: LlmMessage) -> _Items:
        match message:
            case UserMessage():
                return (FrozenDict(role="user", content=_content(message.content)),), ()
            case AssistantMessage():
                return tuple(map(freeze_json, _answer_items(message, store=store))), ()
            case ToolResultMessage():
                return _result_items(message, images_in_results=images_in_results)
            case _:
                assert_never(message)

    return Conversations(Memo(convert))


def _content(blocks: Sequence[MessageContent]) -> str | FrozenList:
    if any(isinstance(block, ImageContent) for block in blocks):
        return FrozenList([_part(block) for block in blocks])
    return "\n".join([block.text for block in blocks if isinstance(block, TextContent)])


def _part(block: MessageContent) -> FrozenDict:
    if isinstance(block, TextContent):
        return FrozenDict(type="input_text", text=block.text)
    url = f"data:{block.mime_type};base64,{block.data}"
    return FrozenDict(type="input_image", detail="auto", image_url=url)


def _result_items(message: ToolResultMessage, *, images_in_results: bool) -> _Items:
    images = [block for block in message.content if isinstance(block, ImageContent)]
    texts = [block for block in message.content if isinstance(block, TextContent)]
    output: str | FrozenList = _content(texts)
    if not texts:
        output = "(the image follows)" if images else NO_OUTPUT
    behind: tuple[FrozenDict, ...] = ()
    if images and images_in_results:
        output = FrozenList([_part(block) for block in message.content])
    elif images:
        lead = f"What the tool {message.tool_name!r} shows (call {message.tool_call_id}):"
        shown = _content([TextContent(lead), *images])
        behind = (FrozenDict(role="user", content=shown),)
    own = FrozenDict(type="function_call_output", call_id=message.tool_call_id, output=output)
    return (own,), behind


def _as_custom(items: list[FrozenDict]) -> list[FrozenDict]:
    """Give the results of custom tools the type that the API wants for them."""
    ids = {item["call_id"] for item in items if item.get("type") == CUSTOM_CALL}
    if not ids:
        return items
    return [
        FrozenDict(item, type=f"{CUSTOM_CALL}_output")
        if item.get("type") == "function_call_output" and item["call_id"] in ids
        else item
        for item in items
    ]


def _answer_items(message: AssistantMessage, *, store: bool) -> list[dict[str, Any]]:
    """Give the items of an answer, those of its own model as they came.

    A server that gave ids checks that reasoning and what follows it belong together. So reasoning that nothing follows
    is left out, and where any item has lost its id, or its reasoning, all go without.
    """
    texts = [call["function"]["arguments"] for call in message_dict(message).get("tool_calls", ())]
    arguments = iter(texts)
    items: list[dict[str, Any]] = []
    whole = True
    for block in message.content:
        marks = _marks(getattr(block, "signature", None))
        if isinstance(block, TextContent):
            _add_text(items, block.text, marks)
        elif isinstance(block, ToolCall):
            items.append(_call_item(block, next(arguments), marks))
        elif _is_kept(marks, store=store):
            items.append(marks)
        else:
            whole = False
    while items and items[-1].get("type") == "reasoning":
        items.pop()
    return items if whole and all(map(_has_id, items)) else list(map(_without_id, items))


def _has_id(item: Mapping[str, Any]) -> bool:
    return item.get("type") not in _LINKED or 0 < len(item.get("id", "")) <= MAX_ID


def _without_id(item: Mapping[str, Any]) -> dict[str, Any]:
    dropped = {"id", "status"} if item.get("type") in _LINKED else set()
    return {key: value for key, value in item.items() if key not in dropped}


def _marks(signature: str | None) -> dict[str, Any]:
    """Give what a signature of ours says; nothing where it is another's."""
    try:
        marks = json.loads(signature or "null")
    except (ValueError, RecursionError):
        return {}
    return marks if isinstance(marks, dict) else {}


def _is_kept(item: Mapping[str, Any], *, store: bool) -> bool:
    """Whether an item can go back: reasoning that is neither kept by the server nor here can't."""
    if item.get("type") == "reasoning":
        return store or bool(item.get("encrypted_content") or item.get("content"))
    return "type" in item


def _add_text(items: list[dict[str, Any]], text: str, marks: Mapping[str, Any]) -> None:
    if not text.strip():
        return
    part = {"type": "output_text", "text": text, "annotations": []}
    item_id = marks.get("id")
    last = items[-1] if items else {}
    if isinstance(item_id, str) and last.get("type") == "message" and last.get("id") == item_id:
        last["content"].append(part)
        return
    item: dict[str, Any] = {"type": "message", "role": "assistant", "content": [part]}
    if isinstance(marks.get("phase"), str):
        item["phase"] = marks["phase"]
    items.append(
        {**item, "id": item_id, "status": "completed"} if isinstance(item_id, str) else item
    )


def _call_item(call: ToolCall, arguments: str, marks: Mapping[str, Any]) -> dict[str, Any]:
    item: dict[str, Any] = {"type": "function_call", "call_id": call.id, "name": call.name}
    if isinstance(marks.get("id"), str):
        item["id"] = marks["id"]
    text = call.arguments.get("input") if isinstance(call.arguments, Mapping) else None
    if marks.get("type") == CUSTOM_CALL and isinstance(text, str):
        return {**item, "type": CUSTOM_CALL, "input": text}
    return {**item, "arguments": arguments}
