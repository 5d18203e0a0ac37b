"""Histories as the messages of the Anthropic Messages API.

Neighbours of one side, user messages and tool results, make one message of the API; what was made of them is kept for
as long as the last of them lives, so that equal beginnings of requests are the same objects. What `anthropic_stream`
kept in signatures is sent back as it came.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, assert_never

from yiemagent.arguments import parse_arguments
from yiemagent.errors import InvalidArguments
from yiemagent.llm import CacheUse
from yiemagent.memo import Kept, Memo
from yiemagent.messages import (
    AssistantContent,
    AssistantMessage,
    ImageContent,
    LlmMessage,
    MessageContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.openai_format import INVALID_ARGUMENTS_KEY, NO_OUTPUT
from yiemagent.payload import FrozenDict, FrozenList, freeze_json
from yiemagent.providers.handover import Target

__all__ = [
    "going_on",
    "history",
    "mapping",
    "marked",
    "signatures",
    "target_of",
    "without_thinking",
]

IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")


@functools.lru_cache(maxsize=256)
def target_of(model: str, provider: str, api: str, *, own_server: bool) -> Target:
    """Give a model as the one that a history is handed to.

    Anthropic's own server refuses thinking without a signature; others that speak its API give none, and some want
    what they thought back.
    """
    return Target(
        api=api,
        provider=provider,
        model=model,
        image_types=frozenset(IMAGE_TYPES),
        unsigned_thinking="drop" if own_server else "keep",
        user_first=True,
    )


def mapping(value: Any) -> Mapping[str, Any]:
    """Give a JSON object where it is one; else an empty one."""
    return value if isinstance(value, Mapping) else {}


# --- cache marks ----------------------------------------------------------------------------------------------------

_MARKS = {"short": FrozenDict(type="ephemeral"), "long": FrozenDict(type="ephemeral", ttl="1h")}


def marked(block: FrozenDict, mark: CacheUse) -> FrozenDict:
    """Give a block with a cache mark, unless that is none."""
    return block if mark == "none" else FrozenDict(block, cache_control=_MARKS[mark])


# --- messages -------------------------------------------------------------------------------------------------------


class _Group:
    """Neighbouring messages of one side as one message of the API."""

    __slots__ = ("_by_mark", "before")

    def __init__(self, role: str, messages: Sequence[LlmMessage]) -> None:
        self.before = messages[:-1]  # the last one is what this is kept with, and must not be held
        blocks = [block for message in messages for block in _blocks(message)]
        results = [block for block in blocks if block["type"] == "tool_result"]
        content = results + [block for block in blocks if block["type"] != "tool_result"]
        plain = FrozenDict(role=role, content=FrozenList(content))
        self._by_mark: dict[CacheUse, FrozenDict] = {"none": plain}

    def message(self, mark: CacheUse) -> FrozenDict:
        """Give the message, with a mark on its last block."""
        found = self._by_mark.get(mark)
        if found is None:
            *others, last = self._by_mark["none"]["content"]
            content = FrozenList([*others, marked(last, mark)])
            found = FrozenDict(self._by_mark["none"], content=content)
            self._by_mark[mark] = found
        return found


class _Groups:
    """Gives the groups of histories; each is made once, and kept for as long as its last message lives."""

    def __init__(self) -> None:
        self._kept: dict[int, Kept] = {}

    def of(self, messages: Iterable[LlmMessage]) -> list[tuple[str, _Group]]:
        """Give the groups of a history, each with its role."""
        sayings = [message for message in messages if _blocks(message)]
        return [
            (role, self._group(role, list(members)))
            for role, members in itertools.groupby(sayings, key=_role)
        ]

    def _group(self, role: str, members: list[LlmMessage]) -> _Group:
        kept = self._kept.get(id(members[-1]))
        if kept is not None:
            group: _Group = kept.value
            if len(group.before) == len(members) - 1 and all(
                one is other for one, other in zip(group.before, members, strict=False)
            ):
                return group
        group = _Group(role, members)
        kept = Kept(members[-1], self._forget, group)
        self._kept[kept.key] = kept
        return group

    def _forget(self, kept: Kept) -> None:
        self._kept.pop(kept.key, None)


_groups = _Groups()


def _role(message: LlmMessage) -> str:
    return "assistant" if isinstance(message, AssistantMessage) else "user"


def history(messages: Iterable[LlmMessage], mark: CacheUse) -> list[FrozenDict]:
    """Give messages as those of a request, with a mark on the last two of the user's side.

    Args:
        messages: as they were handed over to the model.
        mark: how long what stands before a mark is kept in the server's cache.
    """
    groups = _groups.of(messages)
    users = [place for place, (role, _) in enumerate(groups) if role == "user"][-2:]
    given = [
        group.message(mark if place in users else "none") for place, (_, group) in enumerate(groups)
    ]
    if groups and groups[-1][0] == "assistant":
        given[-1:] = _without_trailing_space(given[-1])
    return given


def _without_trailing_space(message: FrozenDict) -> list[FrozenDict]:
    """Give an answer that the model is to go on with; its text must not end in white space."""
    *others, last = message["content"]
    if last["type"] != "text":
        return [message]
    text = last["text"].rstrip()
    content = [*others, FrozenDict(last, text=text)] if text else others
    return [FrozenDict(message, content=FrozenList(content))] if content else []


def _convert(message: LlmMessage) -> tuple[FrozenDict, ...]:
    match message:
        case UserMessage():
            return tuple(map(_shown, message.content))
        case AssistantMessage():
            return tuple([made for block in message.content for made in _said(block)])
        case ToolResultMessage():
            return (_result(message),)
        case _:
            assert_never(message)


_blocks = Memo(_convert)


def going_on(body: Mapping[str, Any], said: AssistantMessage) -> dict[str, Any]:
    """Give the body of a request for the rest of an answer that paused."""
    answer = FrozenDict(role="assistant", content=FrozenList(_blocks(said)))
    return {**body, "messages": [*body["messages"], answer]}


def signatures(body: Mapping[str, Any]) -> set[str]:
    """Give the signatures of all thinking that a body sends back."""
    return {_signature(block) for _, blocks in _said_in(body) for block in blocks} - {""}


def without_thinking(body: Mapping[str, Any], lost: Container[str]) -> dict[str, Any]:
    """Give a body without the thinking of these signatures."""
    said = {id(message): blocks for message, blocks in _said_in(body)}
    messages = []
    for message in body["messages"]:
        blocks = said.get(id(message), ())
        kept = [block for block in blocks if _signature(block) not in lost]
        if len(kept) == len(blocks):
            messages.append(message)
        elif kept:
            messages.append(FrozenDict(message, content=FrozenList(kept)))
    return {**body, "messages": messages}


def _said_in(body: Mapping[str, Any]) -> Iterable[tuple[Any, Sequence[Any]]]:
    """Give the answers in a body that hold blocks, each with these."""
    for message in body.get("messages") or ():
        content = mapping(message).get("content")
        if mapping(message).get("role") == "assistant" and isinstance(content, list):
            yield message, content


def _signature(block: Any) -> str:
    kind = mapping(block).get("type")
    key = {"thinking": "signature", "redacted_thinking": "data"}.get(str(kind), "")
    return str(mapping(block).get(key) or "")


def _shown(block: MessageContent) -> FrozenDict:
    if isinstance(block, TextContent):
        return FrozenDict(type="text", text=block.text)
    source = FrozenDict(type="base64", media_type=block.mime_type, data=block.data)
    return FrozenDict(type="image", source=source)


def _result(message: ToolResultMessage) -> FrozenDict:
    content: Any = "\n".join([b.text for b in message.content if isinstance(b, TextContent)])
    if any(isinstance(block, ImageContent) for block in message.content):
        content = FrozenList(map(_shown, message.content))
    elif not content.strip():
        content = NO_OUTPUT
    result = FrozenDict(type="tool_result", tool_use_id=message.tool_call_id, content=content)
    return FrozenDict(result, is_error=True) if message.is_error else result


def _said(block: AssistantContent) -> Iterable[FrozenDict]:
    match block:
        case ThinkingContent(thinking, signature, redacted):
            if redacted:
                yield FrozenDict(type="redacted_thinking", data=signature or "")
            else:
                yield FrozenDict(type="thinking", thinking=thinking, signature=signature or "")
        case TextContent(text, signature):
            kept = _kept_fields(signature)
            if isinstance(kept.get("block"), Mapping):
                yield freeze_json(kept["block"])
            elif text.strip():
                cited = {"citations": freeze_json(kept["citations"])} if "citations" in kept else {}
                yield FrozenDict(type="text", text=text, **cited)
        case ToolCall():
            fields = {"id": block.id, "name": block.name, "input": _object(block.arguments)}
            yield FrozenDict({"type": "tool_use", **fields, **_kept_fields(block.signature)})
        case ImageContent():
            pass  # no model of this API takes back an image of its own
        case _:
            assert_never(block)


def _kept_fields(signature: str | None) -> dict[str, Any]:
    """Give what `anthropic_stream` kept in a signature."""
    try:
        value = json.loads(signature) if signature else {}
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


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
        return freeze_json(json.loads(text, parse_constant=lambda _: None))
    return arguments
