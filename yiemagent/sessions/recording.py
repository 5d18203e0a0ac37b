"""What a session writes of a run: a fold over its events. Pure, but for the clock that says when a while has passed.

A user's message is written before the model is asked, an answer before its tools run, a result as soon as it is there,
whichever call of the batch it belongs to. Of an answer that takes long, what has come so far is written once a second.
The end of a run is written where its last message does not show that it is one. That a call begins is no event: it is
told of when it is taken up, and may then wait for a person, or for the calls before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from yiemagent.events import (
    AgentEndEvent,
    MessageEndEvent,
    MessageUpdateEvent,
    ToolExecEndEvent,
)
from yiemagent.messages import AgentMessage, AssistantMessage, ToolResultMessage
from yiemagent.sessions.bodies import (
    Body,
    MessageBody,
    PartialBody,
    RunEndBody,
)
from yiemagent.streaming import (
    StreamEvent,
    TextDeltaEvent,
    ThinkingDeltaEvent,
    ToolCallDeltaEvent,
)

__all__ = ["PARTIAL_AFTER_S", "Recording"]

PARTIAL_AFTER_S = 1.0


class Recording:
    """Turns events into what is to be written; takes them one at a time.

    Args:
        clock: seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answered: set[str] = set()  # calls of the last answer whose results are written
        self._coming: list[StreamEvent] = []  # of the answer under way, and not written
        self._written_at = 0.0
        self._last: AgentMessage | None = None  # that was written

    def take(self, event: Any) -> Body | None:
        """Give what is to be written of an event, before anybody is told of it; None: nothing.

        A `PartialBody` does not say yet what it follows.
        """
        # By class, one after another: every event of every run comes through here.
        kind = event.__class__
        if kind is MessageUpdateEvent:
            return self._update(event.stream_event)
        if kind is MessageEndEvent:
            return self._message(event.message)
        if kind is ToolExecEndEvent:
            self._answered.add(event.tool_call_id)
            self._last = event.message
            return MessageBody(event.message)
        if kind is AgentEndEvent and not _ends_a_run(self._last):
            return RunEndBody(event.answer.stop_reason)
        return None

    def _message(self, message: AgentMessage) -> Body | None:
        self._last = message
        if isinstance(message, ToolResultMessage):
            return None if message.tool_call_id in self._answered else MessageBody(message)
        if isinstance(message, AssistantMessage):
            self._answered.clear()
            self._coming.clear()
        return MessageBody(message)

    def _update(self, event: StreamEvent) -> PartialBody | None:
        now = self._clock()
        if not self._coming:
            self._written_at = now
        self._coming.append(event)
        if now - self._written_at < PARTIAL_AFTER_S:
            return None
        partial = PartialBody(None, _joined(self._coming))
        self._coming.clear()
        return partial


def _ends_a_run(message: AgentMessage | None) -> bool:
    """Whether a message says by itself that its run is over."""
    if not isinstance(message, AssistantMessage):
        return False
    return not (message.failed or message.tool_calls)


def _joined(events: Iterable[StreamEvent]) -> tuple[StreamEvent, ...]:
    """Give stream events with neighbouring deltas of one block joined."""
    joined: list[StreamEvent] = []
    pieces: list[str] = []
    for event in events:
        if not isinstance(event, _DELTAS):
            _put(joined, pieces)
            joined.append(event)
            continue
        last = joined[-1] if pieces else None
        if type(last) is not type(event) or last.content_index != event.content_index:
            _put(joined, pieces)
            joined.append(event)
        pieces.append(event.delta)
    _put(joined, pieces)
    return tuple(joined)


_DELTAS = (TextDeltaEvent, ThinkingDeltaEvent, ToolCallDeltaEvent)


def _put(joined: list[StreamEvent], pieces: list[str]) -> None:
    """Give the delta that is last in `joined` the text of all pieces."""
    if pieces and isinstance(joined[-1], _DELTAS):
        joined[-1] = attrs.evolve(joined[-1], delta="".join(pieces))
    pieces.clear()
