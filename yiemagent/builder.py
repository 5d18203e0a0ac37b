"""Building a model's answer piece by piece, as a provider or a scripted model does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import attrs

from yiemagent.messages import (
    AssistantContent,
    AssistantMessage,
    LlmUsage,
    StopReason,
    TextContent,
    ThinkingContent,
    ToolCall,
)
from yiemagent.payload import FrozenDict
from yiemagent.streaming import (
    StartEvent,
    StreamEvent,
    TextDeltaEvent,
    TextEndEvent,
    TextStartEvent,
    ThinkingDeltaEvent,
    ThinkingEndEvent,
    ThinkingStartEvent,
    ToolCallDeltaEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
    new_call_id,
    tool_arguments,
)

__all__ = ["MessageBuilder"]


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
