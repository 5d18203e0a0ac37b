"""Content blocks and messages: the words that a conversation is made of.

Everything here is frozen, JSON payloads inside included (`payload`), so that neither a hook, a sink nor a tool can
corrupt a history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal, TypeAlias, cast, get_args

import attrs

from yiemagent.payload import FrozenDict, freeze_json
from yiemagent.record import Record
from yiemagent.usage import LlmModel, LlmUsage, model_id, string_tuple

__all__ = [
    "AgentMessage",
    "AssistantContent",
    "AssistantMessage",
    "BashExecutionMessage",
    "BranchSummaryMessage",
    "CompactionSummaryMessage",
    "ContentLike",
    "CustomMessage",
    "ImageContent",
    "LlmMessage",
    "LlmModel",
    "LlmUsage",
    "MessageContent",
    "StopReason",
    "TextContent",
    "ThinkingContent",
    "ToolCall",
    "ToolResultMessage",
    "UserMessage",
    "content_blocks",
    "content_text",
    "model_id",
    "shown_blocks",
    "utc_now",
]

StopReason: TypeAlias = Literal[
    "stop", "length", "tool_use", "error", "aborted", "tool_use_terminated"
]


def utc_now() -> datetime:
    """The present moment, timezone-aware, in UTC."""
    return datetime.now(UTC)


# --- content blocks ------------------------------------------------------------------------------------------------


def _is_text(held: Any, field: Any, value: Any) -> None:
    """Refuse what is no text where it is made: what a session could not keep ends no run then."""
    if not isinstance(value, str):
        kind = type(held).__name__
        raise TypeError(f"{kind}.{field.name} must be text, not {type(value).__name__}")


@attrs.frozen(eq=False, repr=False)
class TextContent(Record):
    """Plain text; `signature` is the provider's opaque mark, sent back to the same model."""

    text: str = attrs.field(validator=_is_text)
    signature: str | None = None
    type: ClassVar[str] = "text"


@attrs.frozen(eq=False, repr=False)
class ImageContent(Record):
    """An image: `data` is base64 text, `mime_type` for example "image/png"."""

    data: str = attrs.field(
        validator=_is_text, repr=lambda data: f"<{len(data)} base64 characters>"
    )
    mime_type: str = attrs.field(validator=_is_text)
    type: ClassVar[str] = "image"


@attrs.frozen(eq=False, repr=False)
class ThinkingContent(Record):
    """What the model thought; `signature` is the provider's opaque mark, `redacted` says the text is withheld."""

    thinking: str = attrs.field(validator=_is_text)
    signature: str | None = None
    redacted: bool = False
    type: ClassVar[str] = "thinking"


def _freeze_arguments(arguments: Any) -> FrozenDict | str:
    if isinstance(arguments, (FrozenDict, str)):
        return arguments
    if arguments is None:
        return FrozenDict()
    if isinstance(arguments, (dict, Mapping)):
        return cast("FrozenDict", freeze_json(arguments))
    raise TypeError(f"arguments must be a mapping or the model's text, not {arguments!r}")


@attrs.frozen(eq=False, repr=False)
class ToolCall(Record):
    """A model's wish to have a tool run.

    Args:
        id: pairs the call with its result; unique in its message.
        name: the tool's name, as the model wrote it.
        arguments: what the model sent: an object, or its raw text where that is no JSON object.
        partial_json: the text of the arguments so far; only while the call is streamed.
        signature: the provider's opaque mark, sent back to the same model.
    """

    id: str
    name: str = attrs.field(validator=_is_text)
    arguments: FrozenDict | str = attrs.field(factory=FrozenDict, converter=_freeze_arguments)
    partial_json: str | None = None
    signature: str | None = None
    type: ClassVar[str] = "toolCall"


MessageContent: TypeAlias = TextContent | ImageContent
AssistantContent: TypeAlias = TextContent | ThinkingContent | ToolCall | ImageContent
ContentLike: TypeAlias = "str | MessageContent | Iterable[MessageContent]"


def content_blocks(content: Any) -> tuple[Any, ...]:
    """Give content as a tuple of blocks: a string becomes one text block, one block a tuple of it.

    Raises:
        TypeError: where it is neither a string, a block nor blocks.
    """
    if content.__class__ is tuple and _are_all(content, _KINDS):
        blocks: tuple[Any, ...] = content
        return blocks
    if isinstance(content, str):
        return (TextContent(content),)
    if isinstance(content, _BLOCKS):
        return (content,)
    if content is None:
        return ()
    if not isinstance(content, Iterable) or isinstance(content, (bytes, Mapping)):
        raise TypeError(f"content must be a string or content blocks, not {content!r}")
    blocks = tuple(TextContent(block) if isinstance(block, str) else block for block in content)
    for block in blocks:
        if not isinstance(block, _BLOCKS):
            raise TypeError(f"content holds {block!r}, which is no content block")
    return blocks


def _are_all(blocks: tuple[Any, ...], kinds: frozenset[type]) -> bool:
    """Whether all blocks are of these kinds themselves; a loop, since there are few, and nearly all content is such."""
    for block in blocks:  # noqa: SIM110 - a generator costs as much again
        if block.__class__ not in kinds:
            return False
    return True


_BLOCKS = (TextContent, ImageContent, ThinkingContent, ToolCall)
_KINDS = frozenset(_BLOCKS)
_SHOWN = frozenset({TextContent, ImageContent})


def shown_blocks(content: Any) -> tuple[MessageContent, ...]:
    """Give content as a tuple of text and images: what is shown to a model, by a person or a tool.

    Raises:
        TypeError: where it holds anything else, such as the thinking or the tool calls of an answer.
    """
    if content.__class__ is tuple and _are_all(content, _SHOWN):
        shown: tuple[MessageContent, ...] = content
        return shown
    blocks = content_blocks(content)
    for block in blocks:
        if not isinstance(block, (TextContent, ImageContent)):
            kind = type(block).__name__
            raise TypeError(
                f"content holds {kind}, which only a model's answer may hold; give text or images"
            )
    return blocks


def content_text(blocks: Iterable[Any]) -> str:
    """Join the text blocks of `blocks`."""
    return "".join([block.text for block in blocks if isinstance(block, TextContent)])


# --- messages ------------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False, repr=False)
class UserMessage(Record):
    """What a person said: text and images."""

    content: tuple[MessageContent, ...] = attrs.field(converter=shown_blocks)
    timestamp: datetime = attrs.field(factory=utc_now)
    role: ClassVar[str] = "user"

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return content_text(self.content)

    def to_llm(self) -> LlmMessage | None:
        """The message that a model is sent for this one: itself."""
        return self


def _is_answer(held: Any, _field: Any, value: Any) -> None:
    """Check the texts of an answer in one go, since every answer is made more than once."""
    if not held.api.__class__ is held.provider.__class__ is held.model.__class__ is str:
        for field in attrs.fields(AssistantMessage)[1:4]:
            _is_text(held, field, getattr(held, field.name))
    if value not in _STOP_REASONS:
        known = ", ".join(repr(reason) for reason in get_args(StopReason))
        raise ValueError(f"AssistantMessage.stop_reason must be one of {known}, not {value!r}")


_STOP_REASONS = frozenset(get_args(StopReason))


@attrs.frozen(eq=False, repr=False)
class AssistantMessage(Record):
    """What a model answered.

    Args:
        content: text, thinking and tool calls, in the order the model gave them.
        api: the wire API that was spoken, provider: who answered, model: the model's name.
        usage: what it consumed, or None where the provider did not say.
        stop_reason: why the answer ended; raw_stop_reason: the provider's own word for it.
        error_message: what went wrong where the stop reason is "error" or "aborted".
        response_id: the provider's id of the answer, or None.
        timestamp: when the answer began, in UTC.
        parsed: the answer's JSON value, read-only, where it was asked for with `output_schema` and fits; else None.
    """

    content: tuple[AssistantContent, ...] = attrs.field(default=(), converter=content_blocks)
    api: str = ""
    provider: str = ""
    model: str = ""
    usage: LlmUsage | None = None
    stop_reason: StopReason = attrs.field(default="stop", validator=_is_answer)
    raw_stop_reason: str | None = None
    error_message: str | None = None
    response_id: str | None = None
    timestamp: datetime = attrs.field(factory=utc_now)
    parsed: Any = attrs.field(default=None, converter=freeze_json)
    role: ClassVar[str] = "assistant"

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return content_text(self.content)

    @property
    def thinking(self) -> str:
        """The thinking blocks, joined."""
        return "".join([b.thinking for b in self.content if isinstance(b, ThinkingContent)])

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in the model's order."""
        return tuple([block for block in self.content if isinstance(block, ToolCall)])

    @property
    def failed(self) -> bool:
        """Whether the answer ended in an error or an abort; such a message is left out of requests."""
        return self.stop_reason in {"error", "aborted"}

    def to_llm(self) -> LlmMessage | None:
        """The message that a model is sent for this one: itself."""
        return self


@attrs.frozen(eq=False, repr=False)
class ToolResultMessage(Record):
    """What a tool gave for a call.

    Args:
        tool_call_id: the id of the call that this answers.
        tool_name: the tool's name.
        content: text and images for the model.
        details: facts for programs, never shown to the model.
        usage: what the tool's own model calls consumed, or None.
        added_tool_names: tools that this call made available.
        is_error: whether the call failed.
        timestamp: when the result was there, in UTC.
    """

    tool_call_id: str
    tool_name: str
    content: tuple[MessageContent, ...] = attrs.field(default=(), converter=shown_blocks)
    details: Any = attrs.field(factory=FrozenDict, converter=freeze_json)
    usage: LlmUsage | None = None
    added_tool_names: tuple[str, ...] = attrs.field(default=(), converter=string_tuple)
    is_error: bool = False
    timestamp: datetime = attrs.field(factory=utc_now)
    role: ClassVar[str] = "toolResult"

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return content_text(self.content)

    def to_llm(self) -> LlmMessage | None:
        """The message that a model is sent for this one: itself."""
        return self


@attrs.frozen(eq=False, repr=False)
class BashExecutionMessage(Record):
    """A command that the user ran beside the conversation, and what it printed.

    Args:
        command: the command line; output: what it printed.
        exit_code: its exit code, or None where it did not end by itself.
        cancelled: whether the user ended it; truncated: whether the output was cut.
        full_output_path: where the whole output is kept, or None.
        exclude_from_context: True keeps it out of what models are sent.
        timestamp: when it ended, in UTC.
    """

    command: str
    output: str = ""
    exit_code: int | None = None
    cancelled: bool = False
    truncated: bool = False
    full_output_path: str | None = None
    exclude_from_context: bool = False
    timestamp: datetime = attrs.field(factory=utc_now)
    role: ClassVar[str] = "bashExecution"

    @property
    def text(self) -> str:
        """What the command printed."""
        return self.output

    def to_llm(self) -> LlmMessage | None:
        """A user message that tells of the command; None where it is excluded from the context."""
        if self.exclude_from_context:
            return None
        lines = [f"I ran the command `{self.command}`."]
        lines.append(
            f"```\n{self.output.rstrip()}\n```" if self.output.strip() else "It printed nothing."
        )
        if self.cancelled:
            lines.append("I cancelled it.")
        elif self.exit_code:
            lines.append(f"It failed with exit code {self.exit_code}.")
        if self.truncated and self.full_output_path:
            lines.append(f"The output is cut; all of it is in {self.full_output_path}.")
        return UserMessage("\n".join(lines), self.timestamp)


@attrs.frozen(eq=False, repr=False)
class CompactionSummaryMessage(Record):
    """What stands for the part of a conversation that was compacted; `tokens_before` is its size before."""

    summary: str
    tokens_before: int = 0
    timestamp: datetime = attrs.field(factory=utc_now)
    role: ClassVar[str] = "compactionSummary"

    @property
    def text(self) -> str:
        """The summary."""
        return self.summary

    def to_llm(self) -> LlmMessage | None:
        """A user message that holds the summary."""
        lead = "The conversation before this point was shortened to this summary:"
        return UserMessage(f"{lead}\n<summary>\n{self.summary}\n</summary>", self.timestamp)


@attrs.frozen(eq=False, repr=False)
class BranchSummaryMessage(Record):
    """What stands for a branch of the conversation that was left at the entry `from_id`."""

    summary: str
    from_id: str = ""
    timestamp: datetime = attrs.field(factory=utc_now)
    role: ClassVar[str] = "branchSummary"

    @property
    def text(self) -> str:
        """The summary."""
        return self.summary

    def to_llm(self) -> LlmMessage | None:
        """A user message that holds the summary."""
        lead = "We tried another branch of this conversation and came back; this is its summary:"
        return UserMessage(f"{lead}\n<summary>\n{self.summary}\n</summary>", self.timestamp)


@attrs.frozen(eq=False, repr=False)
class CustomMessage(Record):
    """A message of the application's own kind.

    Args:
        custom_type: the application's name of the kind.
        content: what a model is told; empty content is not sent.
        display: whether a user interface should show it.
        details: facts for programs, never shown to the model.
        timestamp: when it was made, in UTC.
    """

    custom_type: str
    content: tuple[MessageContent, ...] = attrs.field(default=(), converter=shown_blocks)
    display: bool = True
    details: Any = attrs.field(factory=FrozenDict, converter=freeze_json)
    timestamp: datetime = attrs.field(factory=utc_now)
    role: ClassVar[str] = "custom"

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return content_text(self.content)

    def to_llm(self) -> LlmMessage | None:
        """A user message with the same content; None where there is none."""
        return UserMessage(self.content, self.timestamp) if self.content else None


LlmMessage: TypeAlias = UserMessage | AssistantMessage | ToolResultMessage
AgentMessage: TypeAlias = (
    UserMessage
    | AssistantMessage
    | ToolResultMessage
    | BashExecutionMessage
    | CompactionSummaryMessage
    | BranchSummaryMessage
    | CustomMessage
)
