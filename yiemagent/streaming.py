"""Stream events of a model's answer, and how they fold to an `AssistantMessage`.

A stream is Start, then events of content blocks (each block is told apart by `content_index`, so blocks may
interleave), then exactly one Done or Error, which carries the whole message. Not streaming is a stream of one Done.
Notices may stand anywhere before the end. Where a provider collects a message piece by piece, a
`builder.MessageBuilder` does it and gives the events.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypeAlias

import attrs

from yiemagent.coercion import loads_json
from yiemagent.messages import (
    AssistantContent,
    AssistantMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    utc_now,
)
from yiemagent.payload import FrozenDict, freeze_json
from yiemagent.record import Record

__all__ = [
    "DoneEvent",
    "ErrorEvent",
    "PartialMessage",
    "StartEvent",
    "StreamEvent",
    "StreamNoticeEvent",
    "TextDeltaEvent",
    "TextEndEvent",
    "TextStartEvent",
    "ThinkingDeltaEvent",
    "ThinkingEndEvent",
    "ThinkingStartEvent",
    "ToolCallDeltaEvent",
    "ToolCallEndEvent",
    "ToolCallStartEvent",
    "new_call_id",
    "parse_partial_json",
    "tool_arguments",
    "with_own_ids",
]


@attrs.frozen(eq=False, repr=False)
class StartEvent(Record):
    """The answer begins: who answers. `timestamp` becomes the message's."""

    model: str = ""
    provider: str = ""
    api: str = ""
    timestamp: datetime = attrs.field(factory=utc_now)


@attrs.frozen(eq=False, repr=False)
class TextStartEvent(Record):
    """A text block begins at `content_index`."""

    content_index: int


@attrs.frozen(eq=False, repr=False)
class TextDeltaEvent(Record):
    """More text of the block at `content_index`."""

    content_index: int
    delta: str


@attrs.frozen(eq=False, repr=False)
class TextEndEvent(Record):
    """The text block at `content_index` is whole."""

    content_index: int
    text: str
    signature: str | None = None


@attrs.frozen(eq=False, repr=False)
class ThinkingStartEvent(Record):
    """A thinking block begins at `content_index`."""

    content_index: int


@attrs.frozen(eq=False, repr=False)
class ThinkingDeltaEvent(Record):
    """More of the thinking block at `content_index`."""

    content_index: int
    delta: str


@attrs.frozen(eq=False, repr=False)
class ThinkingEndEvent(Record):
    """The thinking block at `content_index` is whole."""

    content_index: int
    thinking: str
    signature: str | None = None
    redacted: bool = False


@attrs.frozen(eq=False, repr=False)
class ToolCallStartEvent(Record):
    """A tool call begins at `content_index`; id and name may still be empty and come whole with its end."""

    content_index: int
    id: str = ""
    name: str = ""


@attrs.frozen(eq=False, repr=False)
class ToolCallDeltaEvent(Record):
    """More of the arguments' JSON text of the call at `content_index`."""

    content_index: int
    delta: str


@attrs.frozen(eq=False, repr=False)
class ToolCallEndEvent(Record):
    """The tool call at `content_index` is whole."""

    content_index: int
    tool_call: ToolCall


@attrs.frozen(eq=False, repr=False)
class DoneEvent(Record):
    """The answer is whole; always the last event."""

    message: AssistantMessage


@attrs.frozen(eq=False, repr=False)
class ErrorEvent(Record):
    """The answer failed or was aborted; `message` holds what was received. Always the last event.

    Args:
        message: stop reason "error" or "aborted", with its error message.
        error: the exception behind it, or None.
    """

    message: AssistantMessage
    error: Exception | None = None


@attrs.frozen(eq=False, repr=False)
class StreamNoticeEvent(Record):
    """Something a person may want to know: a retry is scheduled, a rate gate waits, another model takes over.

    Args:
        kind: what it is.
        message: the same in words.
        details: facts for programs: `attempt`, `delay_ms`, `reason`, `status`, `from_model`, `to_model`.
    """

    kind: Literal["retry_scheduled", "rate_gate", "fallback"]
    message: str
    details: Mapping[str, Any] = attrs.field(factory=FrozenDict, converter=freeze_json)


StreamEvent: TypeAlias = (
    StartEvent
    | TextStartEvent
    | TextDeltaEvent
    | TextEndEvent
    | ThinkingStartEvent
    | ThinkingDeltaEvent
    | ThinkingEndEvent
    | ToolCallStartEvent
    | ToolCallDeltaEvent
    | ToolCallEndEvent
    | DoneEvent
    | ErrorEvent
    | StreamNoticeEvent
)


def new_call_id() -> str:
    """A fresh id for a tool call that came without one."""
    return f"call_{os.urandom(12).hex()}"


def tool_arguments(text: str) -> FrozenDict | str:
    """Give a call's arguments from their JSON text: an object where it is one, else the text as it came.

    Blank text is no arguments. Nothing is repaired here; `arguments.parse_arguments` decides what the text means.
    """
    if not text or text.isspace():
        return FrozenDict()
    try:
        value = loads_json(text)
        return FrozenDict(freeze_json(value)) if isinstance(value, dict) else text
    except (ValueError, RecursionError):
        return text


def with_own_ids(message: AssistantMessage) -> AssistantMessage:
    """Give an answer as it is kept: each call has an id of its own, fresh where it is missing or doubled, and one that
    broke off has the text of its arguments; the same object where nothing is to do.
    """
    if len(message.content) == 1:  # as nearly every answer has it
        (block,) = message.content
        if not isinstance(block, ToolCall) or (block.id and block.partial_json is None):
            return message
    seen: set[str] = set()
    changed = False
    blocks: list[AssistantContent] = []
    for block in message.content:
        if not isinstance(block, ToolCall):
            blocks.append(block)
            continue
        call = block
        if not call.id or call.id in seen or call.partial_json is not None:
            call, changed = _own(call, seen), True
        seen.add(call.id)
        blocks.append(call)
    return attrs.evolve(message, content=tuple(blocks)) if changed else message


def _own(call: ToolCall, seen: set[str]) -> ToolCall:
    fresh = call.id if call.id and call.id not in seen else new_call_id()
    arguments: FrozenDict | str = call.arguments
    if call.partial_json is not None and not arguments:
        arguments = call.partial_json
    return ToolCall(fresh, call.name, arguments, None, call.signature)


# --- a message while it comes ----------------------------------------------------------------------------------------


class PartialMessage:
    """The message that a growing list of stream events amounts to at one point; built when it is asked for.

    All partials of one stream share the list and the latest state of the fold, so that reading every one of them in
    turn costs what is new since the last. Safe to read from any thread.
    """

    __slots__ = ("_count", "_fold")

    def __init__(self, fold: _Fold, count: int) -> None:
        self._fold = fold
        self._count = count

    @classmethod
    def first(cls) -> PartialMessage:
        """Give the partial of a stream that has not begun."""
        return cls(_Fold(), 0)

    def add(self, event: StreamEvent) -> PartialMessage:
        """Give the partial that `event` leads to; called by the one thread that reads the stream."""
        self._fold.events.append(event)
        return PartialMessage(self._fold, self._count + 1)

    def build(self) -> AssistantMessage:
        """Give the message so far: calls under way carry `partial_json` and no arguments."""
        return self._fold.message(self._count)


class _Fold:
    __slots__ = ("_state", "events")

    def __init__(self) -> None:
        self.events: list[StreamEvent] = []
        # The latest state: how many events are in it, the start, the blocks by index. Replaced whole and never changed,
        # so that threads may race for it: a loser folds again what it could have taken.
        self._state: tuple[int, StartEvent, dict[int, AssistantContent]] = (0, StartEvent(), {})

    def message(self, count: int) -> AssistantMessage:
        done, start, blocks = self._state
        if done > count:
            done, start, blocks = 0, StartEvent(), {}
        fresh = dict(blocks)
        pieces: dict[int, list[str]] = {}
        for event in self.events[done:count]:
            if isinstance(event, StartEvent):
                start = event
            elif isinstance(event, (TextDeltaEvent, ThinkingDeltaEvent, ToolCallDeltaEvent)):
                pieces.setdefault(event.content_index, []).append(event.delta)
            else:
                _fold_block(fresh, pieces, event)
        for index, parts in pieces.items():
            if index in fresh:  # else its Start never came, and nobody knows what it is
                fresh[index] = _longer(fresh[index], "".join(parts))
        self._state = (count, start, fresh)
        content = tuple([fresh[index] for index in sorted(fresh)])
        return AssistantMessage(
            content, start.api, start.provider, start.model, timestamp=start.timestamp
        )


def _fold_block(
    blocks: dict[int, AssistantContent], pieces: dict[int, list[str]], event: StreamEvent
) -> None:
    match event:
        case TextStartEvent(index):
            blocks[index] = TextContent("")
        case ThinkingStartEvent(index):
            blocks[index] = ThinkingContent("")
        case ToolCallStartEvent(index, call_id, name):
            blocks[index] = ToolCall(call_id, name, FrozenDict(), "")
        case TextEndEvent(index, text, signature):
            blocks[index] = TextContent(text, signature)
            pieces.pop(index, None)
        case ThinkingEndEvent(index, thinking, signature, redacted):
            blocks[index] = ThinkingContent(thinking, signature, redacted)
            pieces.pop(index, None)
        case ToolCallEndEvent(index, tool_call):
            blocks[index] = tool_call
            pieces.pop(index, None)
        case DoneEvent(message) | ErrorEvent(message):
            pieces.clear()
            blocks.clear()
            blocks.update(enumerate(message.content))
        case _:
            pass


def _longer(block: AssistantContent, more: str) -> AssistantContent:
    match block:
        case TextContent(text):
            return attrs.evolve(block, text=text + more)
        case ThinkingContent(thinking):
            return attrs.evolve(block, thinking=thinking + more)
        case ToolCall():
            return attrs.evolve(block, partial_json=(block.partial_json or "") + more)
        case _:
            return block


# --- partial JSON ----------------------------------------------------------------------------------------------------


def parse_partial_json(text: str) -> Any:
    """Give the value that the beginning of a JSON text amounts to; for showing, never for running a tool.

    Strings and containers that are cut off are closed; a key without its value, and a number or word that may go on,
    are left out. Gives `{}` where nothing can be said yet.

    Args:
        text: the beginning of a JSON text; read once, so the cost grows with its length.
    """
    closers: list[str] = []
    in_string = escaped = False
    last_escape = earlier_escape = -1
    safe = 0  # behind it nothing opens or closes, so what is open at the end is open there
    for position, char in enumerate(text):
        if in_string:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
                last_escape, earlier_escape = position, last_escape
            elif char == '"':
                in_string = False
            continue
        if char == '"':
            in_string = True
        elif char in "{[":
            closers.append("}" if char == "{" else "]")
            safe = position + 1
        elif char in "}]":
            if closers:
                closers.pop()
            safe = position + 1
        elif char == ",":
            safe = position
    tail = "".join(reversed(closers))
    value = None
    if in_string:
        value = _loads(text[: _string_end(text, last_escape, earlier_escape)] + '"' + tail)
    elif not (text[-1:].isalnum() or text[-1:] in {".", "+", "-"}):
        value = _loads(text + tail)
    if value is None:
        value = _loads(text[:safe] + tail)
    return {} if value is None else value


def _string_end(text: str, last_escape: int, earlier_escape: int) -> int:
    """Where a string that is cut off may end: before an escape that goes on, or half a pair of surrogates."""
    end = len(text)
    last = text[last_escape:] if last_escape >= 0 else ""
    if last == "\\" or (last.startswith("\\u") and len(last) < 6):
        end, last_escape = last_escape, earlier_escape
    is_half = last_escape >= 0 and _HIGH_SURROGATE.fullmatch(text[last_escape:end])
    return last_escape if is_half else end


_HIGH_SURROGATE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}")


def _loads(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
