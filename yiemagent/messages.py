"""Content blocks and messages: the words that a conversation is made of.

Everything here is frozen. JSON payloads inside are `FrozenDict` and `FrozenList`, which read like dict and list and
refuse to change, so that neither a hook, a sink nor a tool can corrupt a history. A history itself is a `Transcript`:
a sequence that shares its storage with the shorter histories it grew from, so that keeping one costs no copy.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, cast, overload

import attrs

__all__ = [
    "AgentMessage",
    "AssistantContent",
    "AssistantMessage",
    "BashExecutionMessage",
    "BranchSummaryMessage",
    "CompactionSummaryMessage",
    "ContentLike",
    "CustomMessage",
    "FrozenDict",
    "FrozenList",
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
    "Transcript",
    "UserMessage",
    "content_blocks",
    "content_text",
    "freeze_json",
    "model_id",
    "thaw_json",
    "utc_now",
]

StopReason: TypeAlias = Literal[
    "stop", "length", "tool_use", "error", "aborted", "tool_use_terminated"
]


def utc_now() -> datetime:
    """The present moment, timezone-aware, in UTC."""
    return datetime.now(UTC)


# --- JSON payloads -------------------------------------------------------------------------------------------------


def _refuse(self: object, *_args: object, **_kwargs: object) -> Any:
    raise TypeError(f"this {type(self).__name__} is part of a message and can't change; copy.deepcopy it first")


class FrozenDict(dict[str, Any]):
    """A dict that refuses to change; `copy.deepcopy` and pickling give a plain dict."""

    __slots__ = ()

    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = _refuse
    __ior__ = _refuse  # type: ignore[assignment]  # never returns

    def __hash__(self) -> int:  # type: ignore[override]  # a frozen mapping may be a key
        return hash(frozenset((key, _hashable(value)) for key, value in self.items()))

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return cast("dict[str, Any]", thaw_json(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (cast("dict[str, Any]", thaw_json(self)),)


class FrozenList(list[Any]):
    """A list that refuses to change; `copy.deepcopy` and pickling give a plain list."""

    __slots__ = ()

    __setitem__ = __delitem__ = append = clear = extend = insert = pop = remove = _refuse  # type: ignore[assignment]  # never returns
    reverse = sort = __iadd__ = __imul__ = _refuse  # type: ignore[assignment]  # never returns

    def __hash__(self) -> int:  # type: ignore[override]  # a frozen sequence may be a key
        return hash(tuple(_hashable(value) for value in self))

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return cast("list[Any]", thaw_json(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (cast("list[Any]", thaw_json(self)),)


def _hashable(value: Any) -> Any:
    # 1, 1.0 and True are equal and hash alike, so equal payloads still hash alike; any other object counts by identity.
    try:
        return hash(value)
    except TypeError:
        return id(value)


def freeze_json(value: Any) -> Any:
    """Give `value` with every dict and list in it read-only; values of other kinds stay the objects they are.

    A payload that is read-only already is given back as it is.
    """
    if isinstance(value, (FrozenDict, FrozenList)):
        return value
    if isinstance(value, Mapping):
        return FrozenDict({key: freeze_json(item) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return FrozenList([freeze_json(item) for item in value])
    return value


def thaw_json(value: Any) -> Any:
    """Give a plain private copy of a payload: dicts and lists anew, other values the objects they are."""
    if isinstance(value, dict):
        return {key: thaw_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [thaw_json(item) for item in value]
    return value


# --- usage and models ----------------------------------------------------------------------------------------------


@attrs.frozen
class LlmUsage:
    """What one model answer consumed; the five counts don't overlap, except that output holds reasoning.

    Args:
        input_tokens: input that was read afresh, neither from a cache nor into one.
        output_tokens: output, reasoning included.
        cache_read_tokens: input read from the provider's prompt cache.
        cache_write_tokens: input written to the provider's prompt cache.
        reasoning_tokens: the part of the output that is reasoning.
        cost: price of all of it in US dollars, or None where prices are unknown.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None

    @property
    def total_tokens(self) -> int:
        """Every token of the request and its answer."""
        return (
            self.input_tokens
            + self.output_tokens
            + self.cache_read_tokens
            + self.cache_write_tokens
        )

    def __add__(self, other: LlmUsage) -> LlmUsage:
        known = [cost for cost in (self.cost, other.cost) if cost is not None]
        return LlmUsage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            sum(known) if known else None,
        )


@attrs.frozen
class LlmModel:
    """A model and what is known of it.

    Args:
        id: the provider's own name of the model.
        provider: who serves it, for example "openai".
        api: the wire API it is spoken to with, for example "openai-chat".
        context_window: tokens that request and answer may have together, or None where unknown.
        max_output_tokens: tokens that an answer may have, or None where unknown.
        input_kinds: kinds of content it can read: "text", "image".
        reasoning: whether it can think before it answers.
    """

    id: str
    provider: str = ""
    api: str = ""
    context_window: int | None = None
    max_output_tokens: int | None = None
    input_kinds: tuple[str, ...] = attrs.field(default=("text", "image"), converter=tuple)
    reasoning: bool = False


def model_id(model: LlmModel | str | None) -> str:
    """The provider's own name of a model; empty where none is set."""
    return model.id if isinstance(model, LlmModel) else model or ""


# --- content blocks ------------------------------------------------------------------------------------------------


@attrs.frozen
class TextContent:
    """Plain text; `signature` is the provider's opaque mark, sent back to the same model."""

    text: str
    signature: str | None = None
    type: ClassVar[str] = "text"


@attrs.frozen
class ImageContent:
    """An image: `data` is base64 text, `mime_type` for example "image/png"."""

    data: str = attrs.field(repr=lambda data: f"<{len(data)} base64 characters>")
    mime_type: str
    type: ClassVar[str] = "image"


@attrs.frozen
class ThinkingContent:
    """What the model thought; `signature` is the provider's opaque mark, `redacted` says the text is withheld."""

    thinking: str
    signature: str | None = None
    redacted: bool = False
    type: ClassVar[str] = "thinking"


def _freeze_arguments(arguments: Any) -> FrozenDict | str:
    if isinstance(arguments, str):
        return arguments
    if arguments is None:
        return FrozenDict()
    if isinstance(arguments, Mapping):
        return cast("FrozenDict", freeze_json(arguments))
    raise TypeError(f"arguments must be a mapping or the model's text, not {arguments!r}")


@attrs.frozen
class ToolCall:
    """A model's wish to have a tool run.

    Args:
        id: pairs the call with its result; unique in its message.
        name: the tool's name, as the model wrote it.
        arguments: what the model sent: an object, or its raw text where that is no JSON object.
        partial_json: the text of the arguments so far; only while the call is streamed.
        signature: the provider's opaque mark, sent back to the same model.
    """

    id: str
    name: str
    arguments: FrozenDict | str = attrs.field(factory=FrozenDict, converter=_freeze_arguments)
    partial_json: str | None = None
    signature: str | None = None
    type: ClassVar[str] = "toolCall"


MessageContent: TypeAlias = TextContent | ImageContent
AssistantContent: TypeAlias = TextContent | ThinkingContent | ToolCall | ImageContent
ContentLike: TypeAlias = "str | MessageContent | Iterable[MessageContent]"
_Block = TypeVar("_Block")


def content_blocks(content: Any) -> tuple[Any, ...]:
    """Give content as a tuple of blocks: a string becomes one text block, one block a tuple of it.

    Raises:
        TypeError: where it is neither a string, a block nor blocks.
    """
    if isinstance(content, str):
        return (TextContent(content),)
    if isinstance(content, tuple) and all(isinstance(block, _BLOCKS) for block in content):
        return content
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


_BLOCKS = (TextContent, ImageContent, ThinkingContent, ToolCall)


def content_text(blocks: Iterable[Any]) -> str:
    """Join the text blocks of `blocks`."""
    return "".join([block.text for block in blocks if isinstance(block, TextContent)])


# --- messages ------------------------------------------------------------------------------------------------------


def _string_tuple(names: Iterable[str] | None) -> tuple[str, ...]:
    return tuple(names or ())


@attrs.frozen
class UserMessage:
    """What a person said: text and images."""

    content: tuple[MessageContent, ...] = attrs.field(converter=content_blocks)
    timestamp: datetime = attrs.field(factory=utc_now)
    role: ClassVar[str] = "user"

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return content_text(self.content)

    def to_llm(self) -> LlmMessage | None:
        """The message that a model is sent for this one: itself."""
        return self


@attrs.frozen
class AssistantMessage:
    """What a model answered.

    Args:
        content: text, thinking and tool calls, in the order the model gave them.
        api: the wire API that was spoken, provider: who answered, model: the model's name.
        usage: what it consumed, or None where the provider did not say.
        stop_reason: why the answer ended; raw_stop_reason: the provider's own word for it.
        error_message: what went wrong where the stop reason is "error" or "aborted".
        response_id: the provider's id of the answer, or None.
        timestamp: when the answer began, in UTC.
    """

    content: tuple[AssistantContent, ...] = attrs.field(default=(), converter=content_blocks)
    api: str = ""
    provider: str = ""
    model: str = ""
    usage: LlmUsage | None = None
    stop_reason: StopReason = "stop"
    raw_stop_reason: str | None = None
    error_message: str | None = None
    response_id: str | None = None
    timestamp: datetime = attrs.field(factory=utc_now)
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


@attrs.frozen
class ToolResultMessage:
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
    content: tuple[MessageContent, ...] = attrs.field(default=(), converter=content_blocks)
    details: Any = attrs.field(factory=FrozenDict, converter=freeze_json)
    usage: LlmUsage | None = None
    added_tool_names: tuple[str, ...] = attrs.field(default=(), converter=_string_tuple)
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


@attrs.frozen
class BashExecutionMessage:
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

    def to_llm(self) -> LlmMessage | None:
        """A user message that tells of the command; None where it is excluded from the context."""
        if self.exclude_from_context:
            return None
        lines = [f"I ran the command `{self.command}`."]
        lines.append(f"```\n{self.output.rstrip()}\n```" if self.output.strip() else "It printed nothing.")
        if self.cancelled:
            lines.append("I cancelled it.")
        elif self.exit_code:
            lines.append(f"It failed with exit code {self.exit_code}.")
        if self.truncated and self.full_output_path:
            lines.append(f"The output is cut; all of it is in {self.full_output_path}.")
        return UserMessage("\n".join(lines), self.timestamp)


@attrs.frozen
class CompactionSummaryMessage:
    """What stands for the part of a conversation that was compacted; `tokens_before` is its size before."""

    summary: str
    tokens_before: int = 0
    timestamp: datetime = attrs.field(factory=utc_now)
    role: ClassVar[str] = "compactionSummary"

    def to_llm(self) -> LlmMessage | None:
        """A user message that holds the summary."""
        lead = "The conversation before this point was shortened to this summary:"
        return UserMessage(f"{lead}\n<summary>\n{self.summary}\n</summary>", self.timestamp)


@attrs.frozen
class BranchSummaryMessage:
    """What stands for a branch of the conversation that was left at the entry `from_id`."""

    summary: str
    from_id: str = ""
    timestamp: datetime = attrs.field(factory=utc_now)
    role: ClassVar[str] = "branchSummary"

    def to_llm(self) -> LlmMessage | None:
        """A user message that holds the summary."""
        lead = "We tried another branch of this conversation and came back; this is its summary:"
        return UserMessage(f"{lead}\n<summary>\n{self.summary}\n</summary>", self.timestamp)


@attrs.frozen
class CustomMessage:
    """A message of the application's own kind.

    Args:
        custom_type: the application's name of the kind.
        content: what a model is told; empty content is not sent.
        display: whether a user interface should show it.
        details: facts for programs, never shown to the model.
        timestamp: when it was made, in UTC.
    """

    custom_type: str
    content: tuple[MessageContent, ...] = attrs.field(default=(), converter=content_blocks)
    display: bool = True
    details: Any = attrs.field(factory=FrozenDict, converter=freeze_json)
    timestamp: datetime = attrs.field(factory=utc_now)
    role: ClassVar[str] = "custom"

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


# --- histories -----------------------------------------------------------------------------------------------------


class Transcript(Sequence[AgentMessage]):
    """A history that can't change; a longer one made by `append` shares its storage, so that it costs no copy.

    Equal to any sequence of equal messages. Safe to read and to append to from any thread: of several that append to
    the same history, one goes on in the shared storage and the others get storage of their own.
    """

    __slots__ = ("_items", "_length", "_next", "_permit")

    def __init__(self, messages: Iterable[AgentMessage] = ()) -> None:
        self._items: list[AgentMessage] = list(messages)
        self._length = len(self._items)
        # Whoever pops the one permit may write behind this history in the shared list; `list.pop` is atomic, so no
        # lock is needed. The history it made is kept, so that a fold that appends the same message shares it too.
        self._permit: list[None] = [None]
        self._next: Transcript | None = None

    @classmethod
    def of(cls, messages: Iterable[AgentMessage]) -> Transcript:
        """Give `messages` as a transcript: the same object where it is one."""
        return messages if isinstance(messages, Transcript) else cls(messages)

    def append(self, message: AgentMessage) -> Transcript:
        """Give the history that is this one and then `message`."""
        try:
            self._permit.pop()
        except IndexError:
            longer = self._next
            if longer is not None and longer._items[self._length] is message:  # noqa: SLF001 - its own class
                return longer
            return Transcript(itertools.chain(self, (message,)))
        self._items.append(message)
        longer = Transcript.__new__(Transcript)
        longer._items, longer._length = self._items, self._length + 1  # noqa: SLF001 - its own class
        longer._permit, longer._next = [None], None  # noqa: SLF001 - its own class
        self._next = longer
        return longer

    def extend(self, messages: Iterable[AgentMessage]) -> Transcript:
        """Give the history that is this one and then `messages`."""
        longer = self
        for message in messages:
            longer = longer.append(message)
        return longer

    def continues(self, earlier: object) -> bool:
        """Whether this history is `earlier` and then more, as far as shared storage tells; costs no walk."""
        return (
            isinstance(earlier, Transcript)
            and earlier._items is self._items  # noqa: SLF001 - its own class
            and earlier._length <= self._length  # noqa: SLF001 - its own class
        )

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[AgentMessage]:
        return itertools.islice(self._items, self._length)

    @overload
    def __getitem__(self, index: int) -> AgentMessage: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[AgentMessage, ...]: ...

    def __getitem__(self, index: int | slice) -> AgentMessage | tuple[AgentMessage, ...]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            if step == 1:
                return tuple(self._items[start:stop])
            return tuple(self._items[i] for i in range(start, stop, step))
        if not -self._length <= index < self._length:
            raise IndexError(f"no message {index} in a history of {self._length}")
        return self._items[index if index >= 0 else index + self._length]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, (str, bytes)):
            return NotImplemented
        return len(self) == len(other) and all(map(_equal, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Transcript({list(self)!r})"


_equal: Callable[[object, object], bool] = lambda one, other: one == other  # noqa: E731 - `operator.eq` is untyped
