"""Stream events of a model's answer, and how they fold to an `AssistantMessage`.

A stream is Start, then events of content blocks (each block is told apart by `content_index`, so blocks may interleave),
then exactly one Done or Error, which carries the whole message. Not streaming is a stream of one Done. Notices may stand
anywhere before the end. Where a provider collects a message piece by piece, `MessageBuilder` does it and gives the events.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias
from uuid import uuid4

import attrs

from yiemagent.messages import (
    AssistantContent,
    AssistantMessage,
    FrozenDict,
    LlmUsage,
    StopReason,
    TextContent,
    ThinkingContent,
    ToolCall,
    freeze_json,
    utc_now,
)

__all__ = [
    "DoneEvent",
    "ErrorEvent",
    "MessageBuilder",
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
]


@attrs.frozen
class StartEvent:
    """The answer begins: who answers. `timestamp` becomes the message's."""

    model: str = ""
    provider: str = ""
    api: str = ""
    timestamp: datetime = attrs.field(factory=utc_now)


@attrs.frozen
class TextStartEvent:
    """A text block begins at `content_index`."""

    content_index: int


@attrs.frozen
class TextDeltaEvent:
    """More text of the block at `content_index`."""

    content_index: int
    delta: str


@attrs.frozen
class TextEndEvent:
    """The text block at `content_index` is whole."""

    content_index: int
    text: str
    signature: str | None = None


@attrs.frozen
class ThinkingStartEvent:
    """A thinking block begins at `content_index`."""

    content_index: int


@attrs.frozen
class ThinkingDeltaEvent:
    """More of the thinking block at `content_index`."""

    content_index: int
    delta: str


@attrs.frozen
class ThinkingEndEvent:
    """The thinking block at `content_index` is whole."""

    content_index: int
    thinking: str
    signature: str | None = None
    redacted: bool = False


@attrs.frozen
class ToolCallStartEvent:
    """A tool call begins at `content_index`; id and name may still be empty and come whole with its end."""

    content_index: int
    id: str = ""
    name: str = ""


@attrs.frozen
class ToolCallDeltaEvent:
    """More of the arguments' JSON text of the call at `content_index`."""

    content_index: int
    delta: str


@attrs.frozen
class ToolCallEndEvent:
    """The tool call at `content_index` is whole."""

    content_index: int
    tool_call: ToolCall


@attrs.frozen
class DoneEvent:
    """The answer is whole; always the last event."""

    message: AssistantMessage


@attrs.frozen
class ErrorEvent:
    """The answer failed or was aborted; `message` holds what was received. Always the last event.

    Args:
        message: stop reason "error" or "aborted", with its error message.
        error: the exception behind it, or None.
    """

    message: AssistantMessage
    error: Exception | None = None


@attrs.frozen
class StreamNoticeEvent:
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
    return f"call_{uuid4().hex[:24]}"


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def tool_arguments(text: str) -> FrozenDict | str:
    """Give a call's arguments from their JSON text: an object where it is one, else the text as it came.

    Blank text is no arguments. Nothing is repaired here; `arguments.parse_arguments` decides what the text means.
    """
    if not text or text.isspace():
        return FrozenDict()
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text
    return FrozenDict(freeze_json(value)) if isinstance(value, dict) else text


# --- building a message -----------------------------------------------------------------------------------------------


class _Block:
    """One content block under construction: pieces are joined once, at its end."""

    __slots__ = ("call_id", "index", "kind", "name", "pieces", "redacted", "signature", "whole")

    def __init__(self, index: int, kind: str) -> None:
        self.index = index
        self.kind = kind
        self.pieces: list[str] = []
        self.signature: str | None = None
        self.redacted = False
        self.call_id = ""
        self.name = ""
        self.whole: AssistantContent | None = None

    def content(self, *, partial: bool = False) -> AssistantContent:
        if self.whole is not None:
            return self.whole
        text = "".join(self.pieces)
        if self.kind == "text":
            return TextContent(text, self.signature)
        if self.kind == "thinking":
            return ThinkingContent(text, self.signature, self.redacted)
        if partial:
            return ToolCall(self.call_id, self.name, FrozenDict(), text, self.signature)
        return ToolCall(
            self.call_id or new_call_id(), self.name, tool_arguments(text), None, self.signature
        )


_START: dict[str, Callable[[_Block], StreamEvent]] = {
    "text": lambda block: TextStartEvent(block.index),
    "thinking": lambda block: ThinkingStartEvent(block.index),
    "toolCall": lambda block: ToolCallStartEvent(block.index, block.call_id, block.name),
}


class MessageBuilder:
    """Collects an answer piece by piece: a provider tells it what came and yields the events it gives back.

    Used by one thread. Blocks keep the order in which they began; a block is ended by `end_block` or by `done`.
    """

    def __init__(self, model: str = "", provider: str = "", api: str = "") -> None:
        self.start = StartEvent(model, provider, api)
        self.usage: LlmUsage | None = None
        self.response_id: str | None = None
        self._blocks: list[_Block] = []
        self._open: dict[int, _Block] = {}

    @property
    def has_content(self) -> bool:
        """Whether any block has begun."""
        return bool(self._blocks)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls so far; open ones with what came of them."""
        calls = (block.content(partial=True) for block in self._blocks if block.kind == "toolCall")
        return tuple(call for call in calls if isinstance(call, ToolCall))

    def begin(
        self, kind: Literal["text", "thinking", "toolCall"], *, call_id: str = "", name: str = ""
    ) -> tuple[int, StreamEvent]:
        """Begin a block; gives its content index and its Start event."""
        block = _Block(len(self._blocks), kind)
        block.call_id, block.name = call_id, name
        self._blocks.append(block)
        self._open[block.index] = block
        return block.index, _START[kind](block)

    def text_delta(self, index: int, delta: str) -> StreamEvent:
        """Add text to the text block at `index`."""
        self._open[index].pieces.append(delta)
        return TextDeltaEvent(index, delta)

    def thinking_delta(self, index: int, delta: str) -> StreamEvent:
        """Add text to the thinking block at `index`."""
        self._open[index].pieces.append(delta)
        return ThinkingDeltaEvent(index, delta)

    def arguments_delta(self, index: int, delta: str) -> StreamEvent:
        """Add JSON text to the arguments of the call at `index`."""
        self._open[index].pieces.append(delta)
        return ToolCallDeltaEvent(index, delta)

    def name_call(self, index: int, *, call_id: str | None = None, name: str | None = None) -> None:
        """Set id or name of the call at `index`; None leaves it."""
        block = self._open[index]
        block.call_id = block.call_id if call_id is None else call_id
        block.name = block.name if name is None else name

    def call_name(self, index: int) -> str:
        """The name of the call at `index` so far."""
        return self._blocks[index].name

    def sign(self, index: int, signature: str, *, redacted: bool = False) -> None:
        """Set the provider's opaque mark of the block at `index`."""
        block = self._blocks[index]
        block.signature, block.redacted = signature, redacted or block.redacted

    def end_block(self, index: int) -> StreamEvent:
        """End the block at `index`; gives its End event."""
        block = self._open.pop(index)
        block.whole = content = block.content()
        if isinstance(content, TextContent):
            return TextEndEvent(index, content.text, content.signature)
        if isinstance(content, ThinkingContent):
            return ThinkingEndEvent(
                index, content.thinking, content.signature, redacted=content.redacted
            )
        assert isinstance(content, ToolCall)
        return ToolCallEndEvent(index, content)

    def end_blocks(self) -> list[StreamEvent]:
        """End every open block, in order; gives their End events."""
        return [self.end_block(index) for index in sorted(self._open)]

    def message(
        self,
        stop_reason: StopReason,
        *,
        raw_stop_reason: str | None = None,
        error_message: str | None = None,
    ) -> AssistantMessage:
        """Give the message as it stands; blocks that are still open are taken with what came of them."""
        return AssistantMessage(
            tuple(block.content() for block in self._blocks),
            api=self.start.api,
            provider=self.start.provider,
            model=self.start.model,
            usage=self.usage,
            stop_reason=stop_reason,
            raw_stop_reason=raw_stop_reason,
            error_message=error_message,
            response_id=self.response_id,
            timestamp=self.start.timestamp,
        )

    def set_model(self, model: str) -> None:
        """Note the model's name as the provider gives it."""
        self.start = attrs.evolve(self.start, model=model)


# --- a message while it comes ------------------------------------------------------------------------------------------


class PartialMessage:
    """The message that a growing list of stream events amounts to at one point; built when it is asked for.

    All partials of one stream share the list and the latest state of the fold, so that reading every one of them in turn
    costs what is new since the last. Safe to read from any thread.
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
        # The latest state: how many events are in it, the start, the blocks. Replaced whole and never changed, so that
        # threads may race for it: a loser folds again what it could have taken.
        self._state: tuple[int, StartEvent, tuple[AssistantContent, ...]] = (0, StartEvent(), ())

    def message(self, count: int) -> AssistantMessage:
        done, start, blocks = self._state
        if done > count:
            done, start, blocks = 0, StartEvent(), ()
        fresh = dict(enumerate(blocks))
        pieces: dict[int, list[str]] = {}
        for event in self.events[done:count]:
            if isinstance(event, StartEvent):
                start = event
            elif isinstance(event, (TextDeltaEvent, ThinkingDeltaEvent, ToolCallDeltaEvent)):
                pieces.setdefault(event.content_index, []).append(event.delta)
            else:
                _fold_block(fresh, pieces, event)
        for index, parts in pieces.items():
            fresh[index] = _longer(fresh[index], "".join(parts))
        blocks = tuple(fresh[index] for index in sorted(fresh))
        self._state = (count, start, blocks)
        return AssistantMessage(
            blocks, start.api, start.provider, start.model, timestamp=start.timestamp
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


# --- partial JSON -----------------------------------------------------------------------------------------------------


def parse_partial_json(text: str) -> Any:
    """Give the value that the beginning of a JSON text amounts to; for showing, never for running a tool.

    Strings and containers that are cut off are closed; a key without its value, and a number or word that may go on, are
    left out. Gives `{}` where nothing can be said yet.

    Args:
        text: the beginning of a JSON text; read once, so the cost grows with its length.
    """
    closers: list[str] = []
    in_string = escaped = False
    safe, safe_closers = 0, ""
    for position, char in enumerate(text):
        if in_string:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                in_string = False
            continue
        if char == '"':
            in_string = True
        elif char in "{[":
            closers.append("}" if char == "{" else "]")
            safe, safe_closers = position + 1, "".join(reversed(closers))
        elif char in "}]":
            if closers:
                closers.pop()
            safe, safe_closers = position + 1, "".join(reversed(closers))
        elif char == ",":
            safe, safe_closers = position, "".join(reversed(closers))
    tail = "".join(reversed(closers))
    for candidate in _candidates(text, tail, in_string=in_string):
        value = _loads(candidate)
        if value is not None:
            return value
    return _loads(text[:safe] + safe_closers) or {}


def _candidates(text: str, tail: str, *, in_string: bool) -> Sequence[str]:
    if in_string:
        cut = text[: text.rfind("\\")] if "\\" in text[-6:] else text
        return (text + '"' + tail, cut + '"' + tail)
    number_like = text[-1:].isalnum() or text[-1:] in {".", "+", "-"}
    return () if number_like else (text + tail,)


def _loads(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
