"""The one event tree: everything that a run does, in order.

A run is AgentStart … AgentEnd, its turns are TurnStart … TurnEnd and don't nest, every message is MessageStart …
MessageEnd, every tool call ToolExecStart … ToolExecEnd. Every Start has its End, on every path. Notices may stand
anywhere; outside a run they have no `run_id` and a sequence of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias, TypeVar

import attrs

from yiemagent.messages import (
    AgentMessage,
    AssistantMessage,
    CompactionSummaryMessage,
    LlmUsage,
    ToolResultMessage,
)
from yiemagent.payload import FrozenDict, freeze_json
from yiemagent.record import Record
from yiemagent.streaming import PartialMessage, StreamEvent, StreamNoticeEvent
from yiemagent.tool import AgentToolResult

__all__ = [
    "AgentEndEvent",
    "AgentEvent",
    "AgentStartEvent",
    "CompactionEndEvent",
    "CompactionStartEvent",
    "Event",
    "EventSink",
    "FallbackEvent",
    "MessageEndEvent",
    "MessageStartEvent",
    "MessageUpdateEvent",
    "NoticeEvent",
    "RateGateEvent",
    "RetryScheduledEvent",
    "SinkFailedEvent",
    "ToolExecEndEvent",
    "ToolExecStartEvent",
    "ToolExecUpdateEvent",
    "ToolsChangedEvent",
    "TurnEndEvent",
    "TurnStartEvent",
    "notice_of",
    "stamp",
]


@attrs.frozen(eq=False, repr=False)
class Event(Record):
    """What all events share.

    Args:
        sequence: 1, 2, 3 … within the run.
        run_id: the run, or None for an event outside a run.
        time_s: when it was emitted, in seconds since 1970 (UTC).
    """

    sequence: int = attrs.field(default=0, kw_only=True)
    run_id: str | None = attrs.field(default=None, kw_only=True)
    time_s: float = attrs.field(default=0.0, kw_only=True)

    @property
    def timestamp(self) -> datetime:
        """When it was emitted, in UTC."""
        return datetime.fromtimestamp(self.time_s, UTC)


_E = TypeVar("_E", bound=Event)
_set = object.__setattr__


def stamp(event: _E, sequence: int, run_id: str | None, time_s: float) -> _E:
    """Number an event that nobody has seen yet, in place; called by whoever emits it, once."""
    _set(event, "sequence", sequence)
    _set(event, "run_id", run_id)
    _set(event, "time_s", time_s)
    return event


@attrs.frozen(eq=False, repr=False)
class AgentStartEvent(Event):
    """A run begins; `session_id` is the opaque key it runs under."""

    session_id: str | None = None


@attrs.frozen(eq=False, repr=False)
class TurnStartEvent(Event):
    """A turn begins: one model answer and the tools it calls. `turn` counts from 1."""

    turn: int


@attrs.frozen(eq=False, repr=False)
class MessageStartEvent(Event):
    """A message begins; an assistant's is still empty."""

    message: AgentMessage


@attrs.frozen(eq=False, repr=False)
class MessageUpdateEvent(Event):
    """More of the assistant's message came: the stream event itself, and the message so far when asked for."""

    stream_event: StreamEvent
    partial_message: PartialMessage = attrs.field(repr=False, eq=False)

    @property
    def partial(self) -> AssistantMessage:
        """The message so far; built when read."""
        return self.partial_message.build()


@attrs.frozen(eq=False, repr=False)
class MessageEndEvent(Event):
    """A message is whole and in the history."""

    message: AgentMessage


@attrs.frozen(eq=False, repr=False)
class ToolExecStartEvent(Event):
    """A tool call is taken up; `arguments` are as the model sent them."""

    tool_call_id: str
    tool_name: str
    arguments: FrozenDict | str


@attrs.frozen(eq=False, repr=False)
class ToolExecUpdateEvent(Event):
    """A tool tells of its progress; `partial_result` is whatever it gave."""

    tool_call_id: str
    tool_name: str
    arguments: FrozenDict | str
    partial_result: Any


@attrs.frozen(eq=False, repr=False)
class ToolExecEndEvent(Event):
    """A tool call is answered for: its whole result, and the message that will stand for it in the history."""

    tool_call_id: str
    tool_name: str
    result: AgentToolResult
    is_error: bool
    message: ToolResultMessage


@attrs.frozen(eq=False, repr=False)
class TurnEndEvent(Event):
    """A turn is over: its answer, None where it had none, and the results of its calls, in call order."""

    message: AssistantMessage | None
    tool_results: tuple[ToolResultMessage, ...] = ()


@attrs.frozen(eq=False, repr=False)
class AgentEndEvent(Event):
    """The last event of a run.

    Args:
        messages: what the run added to the history, oldest first.
        answer: what `take_response` gives for it.
        usage: what the run consumed: its answers, and what its tools asked of models.
    """

    messages: Sequence[AgentMessage]
    answer: AssistantMessage
    usage: LlmUsage = attrs.field(factory=LlmUsage)


@attrs.frozen(eq=False, repr=False)
class NoticeEvent(Event):
    """Something a person may want to know; `message` says it in words."""

    message: str
    details: Mapping[str, Any] = attrs.field(factory=FrozenDict, converter=freeze_json)


class RetryScheduledEvent(NoticeEvent):
    """A failed request will be sent again; details: `attempt`, `delay_ms`, `reason`, `status`."""

    __slots__ = ()


class RateGateEvent(NoticeEvent):
    """A request waits because the provider asked to slow down; details: `delay_ms`."""

    __slots__ = ()


class FallbackEvent(NoticeEvent):
    """Another model takes over; details: `from_model`, `to_model`, `reason`."""

    __slots__ = ()


class CompactionStartEvent(NoticeEvent):
    """A conversation is being shortened for the model; details: `tokens_before`, `reason`."""

    __slots__ = ()


@attrs.frozen(eq=False, repr=False)
class CompactionEndEvent(NoticeEvent):
    """A conversation was shortened for the model, or that failed and it is as it was.

    Details: `tokens_before`, `tokens_after`, `usage` of the summary; where it failed `tokens_before` and `error`.

    Args:
        summary: what stands from now on for all but the last messages of the history; None where none does.
        kept: how many messages at the end of the history the model still sees as they are.
    """

    summary: CompactionSummaryMessage | None = None
    kept: int = 0


class ToolsChangedEvent(NoticeEvent):
    """The tools on offer changed; details: `added`, `removed`, `changed`."""

    __slots__ = ()


class SinkFailedEvent(NoticeEvent):
    """An event sink raised; details: `sink`, `error`. Told once per run, to the other sinks."""

    __slots__ = ()


# What a sink gives back is dropped.
EventSink: TypeAlias = Callable[[Event], object]

AgentEvent: TypeAlias = (
    AgentStartEvent
    | TurnStartEvent
    | MessageStartEvent
    | MessageUpdateEvent
    | MessageEndEvent
    | ToolExecStartEvent
    | ToolExecUpdateEvent
    | ToolExecEndEvent
    | TurnEndEvent
    | AgentEndEvent
    | NoticeEvent
)

_NOTICES: dict[str, type[NoticeEvent]] = {
    "retry_scheduled": RetryScheduledEvent,
    "rate_gate": RateGateEvent,
    "fallback": FallbackEvent,
}


def notice_of(event: StreamNoticeEvent) -> NoticeEvent:
    """Give the event of a run that means the same as a stream's notice."""
    return _NOTICES[event.kind](event.message, event.details)
