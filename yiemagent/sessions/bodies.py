"""What an entry of a session can say, each kind as a frozen class.

Kinds in the tree are part of the conversation; those beside it (`is_side`) hold for the whole session: a label, a move
of the leaf, a message that waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal, TypeAlias

import attrs

from yiemagent.messages import AgentMessage
from yiemagent.payload import FrozenDict, freeze_json
from yiemagent.record import Record
from yiemagent.streaming import StreamEvent

__all__ = [
    "Body",
    "BranchSummaryBody",
    "CompactionBody",
    "CustomBody",
    "DeliveredBody",
    "LabelBody",
    "LeafBody",
    "MessageBody",
    "ModelChangeBody",
    "PartialBody",
    "QueuedBody",
    "QueuedKind",
    "RunEndBody",
    "ThinkingChangeBody",
    "ToolCallStartedBody",
    "UnknownBody",
    "WithdrawnBody",
]

QueuedKind: TypeAlias = Literal["input", "steering", "follow_up"]


def _numbers(given: Iterable[int]) -> tuple[int, ...]:
    return tuple(given)


def _events(given: Iterable[StreamEvent]) -> tuple[StreamEvent, ...]:
    return tuple(given)


@attrs.frozen(eq=False, repr=False)
class MessageBody(Record):
    """A message of the conversation."""

    message: AgentMessage
    type: ClassVar[str] = "message"
    is_side: ClassVar[bool] = False


@attrs.frozen(eq=False, repr=False)
class DeliveredBody(Record):
    """A message that waited joined the conversation here; the entry `queued_id` holds it."""

    queued_id: int
    type: ClassVar[str] = "delivered"
    is_side: ClassVar[bool] = False


@attrs.frozen(eq=False, repr=False)
class ToolCallStartedBody(Record):
    """A tool call is about to run: from here on it may have had its effect."""

    call_id: str
    tool_name: str
    type: ClassVar[str] = "tool_call_started"
    is_side: ClassVar[bool] = False


@attrs.frozen(eq=False, repr=False)
class RunEndBody(Record):
    """A run ended, and how; without it the run was interrupted."""

    stop_reason: str
    type: ClassVar[str] = "run_end"
    is_side: ClassVar[bool] = False


@attrs.frozen(eq=False, repr=False)
class CompactionBody(Record):
    """The conversation before `first_kept_id` is shortened to `summary` for the model.

    Args:
        summary: what stands for it.
        first_kept_id: the first entry of the path that the model still sees.
        tokens_before: the size of the context before, in tokens.
        details: facts for programs.
    """

    summary: str
    first_kept_id: int
    tokens_before: int = 0
    details: Any = attrs.field(factory=FrozenDict, converter=freeze_json)
    type: ClassVar[str] = "compaction"
    is_side: ClassVar[bool] = False


@attrs.frozen(eq=False, repr=False)
class BranchSummaryBody(Record):
    """What stands for the branch that was left at the entry `from_id`."""

    summary: str
    from_id: int
    details: Any = attrs.field(factory=FrozenDict, converter=freeze_json)
    type: ClassVar[str] = "branch_summary"
    is_side: ClassVar[bool] = False


@attrs.frozen(eq=False, repr=False)
class ModelChangeBody(Record):
    """From here on this model is asked; a model string such as "openai:gpt-5.1"."""

    model: str
    type: ClassVar[str] = "model_change"
    is_side: ClassVar[bool] = False


@attrs.frozen(eq=False, repr=False)
class ThinkingChangeBody(Record):
    """From here on the model thinks so much: "off" to "max"."""

    level: str
    type: ClassVar[str] = "thinking_change"
    is_side: ClassVar[bool] = False


@attrs.frozen(eq=False, repr=False)
class CustomBody(Record):
    """What an application keeps in the session; no model sees it."""

    custom_type: str
    data: Any = attrs.field(default=None, converter=freeze_json)
    type: ClassVar[str] = "custom"
    is_side: ClassVar[bool] = False


@attrs.frozen(eq=False, repr=False)
class LabelBody(Record):
    """A name for the entry `target_id`; None takes its name away."""

    target_id: int
    label: str | None = None
    type: ClassVar[str] = "label"
    is_side: ClassVar[bool] = True


@attrs.frozen(eq=False, repr=False)
class LeafBody(Record):
    """The conversation goes on behind the entry `target_id`; None: from the beginning."""

    target_id: int | None
    type: ClassVar[str] = "leaf"
    is_side: ClassVar[bool] = True


@attrs.frozen(eq=False, repr=False)
class QueuedBody(Record):
    """A message was accepted and waits: for a run of its own ("input"), or to join one."""

    kind: QueuedKind
    message: AgentMessage
    type: ClassVar[str] = "queued"
    is_side: ClassVar[bool] = True


@attrs.frozen(eq=False, repr=False)
class WithdrawnBody(Record):
    """Messages that waited were handed back to whoever sent them."""

    queued_ids: tuple[int, ...] = attrs.field(converter=_numbers)
    type: ClassVar[str] = "withdrawn"
    is_side: ClassVar[bool] = True


@attrs.frozen(eq=False, repr=False)
class PartialBody(Record):
    """What came of an answer since the last such entry; all of it is void once the message behind it is there."""

    after_id: int | None
    events: tuple[StreamEvent, ...] = attrs.field(converter=_events)
    type: ClassVar[str] = "partial"
    is_side: ClassVar[bool] = True


@attrs.frozen(eq=False, repr=False)
class UnknownBody(Record):
    """An entry of a kind that this version does not know; its fields are the entry's `extra`."""

    type: str
    is_side: bool = False


Body: TypeAlias = (
    MessageBody
    | DeliveredBody
    | ToolCallStartedBody
    | RunEndBody
    | CompactionBody
    | BranchSummaryBody
    | ModelChangeBody
    | ThinkingChangeBody
    | CustomBody
    | LabelBody
    | LeafBody
    | QueuedBody
    | WithdrawnBody
    | PartialBody
    | UnknownBody
)
