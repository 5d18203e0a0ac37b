"""The grammar of a run's events: what may follow what, and that nothing is missing at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs

from yiemagent.events import (
    AgentEndEvent,
    AgentStartEvent,
    Event,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    NoticeEvent,
    ToolExecEndEvent,
    ToolExecStartEvent,
    ToolExecUpdateEvent,
    TurnEndEvent,
    TurnStartEvent,
)
from yiemagent.messages import AgentMessage, AssistantMessage, ToolResultMessage

__all__ = ["check_event_order"]


def check_event_order(events: Iterable[Event]) -> None:
    """Check that the events of one run, in order, keep the grammar.

    Raises:
        AssertionError: naming the first event that breaks it.
    """
    grammar = _Grammar()
    position = 0
    for position, event in enumerate(events, 1):
        grammar.take(position, event)
    grammar.close(position)


@attrs.define
class _Grammar:
    run_id: str | None = None
    started: bool = False
    ended: bool = False
    in_turn: bool = False
    turns: int = 0
    message: Any = None
    answer: AssistantMessage | None = None
    new: list[AgentMessage] = attrs.field(factory=list)
    open_calls: dict[str, ToolExecStartEvent] = attrs.field(factory=dict)
    owed: list[str] = attrs.field(factory=list)
    results: list[ToolResultMessage] = attrs.field(factory=list)
    ended_calls: dict[str, ToolResultMessage] = attrs.field(factory=dict)

    def take(self, position: int, event: Event) -> None:
        def need(claim: bool, words: str) -> None:  # noqa: FBT001 - reads as an assertion
            if not claim:
                raise AssertionError(f"event {position}, {event!r}: {words}")

        need(event.sequence == position, f"the sequence should be {position}")
        need(not self.ended, "comes after AgentEnd")
        if isinstance(event, AgentStartEvent):
            need(not self.started, "a run starts once")
            self.started, self.run_id = True, event.run_id
        need(self.started, "comes before AgentStart")
        need(event.run_id == self.run_id, "belongs to another run")
        if not isinstance(event, NoticeEvent):
            self._step(event, need)

    def _step(self, event: Event, need: Callable[[bool, str], None]) -> None:
        match event:
            case TurnStartEvent():
                need(not self.in_turn, "turns do not nest")
                need(event.turn == self.turns + 1, "turns are counted from 1")
                self.in_turn, self.turns = True, event.turn
                self.results, self.ended_calls, self.answer = [], {}, None
            case TurnEndEvent():
                need(self.in_turn and self.message is None, "ends a turn that is not complete")
                need(not self.open_calls and not self.owed, "leaves calls without a result")
                need(list(event.tool_results) == self.results, "should carry the turn's results")
                need(event.message == self.answer, "should carry the turn's last answer")
                self.in_turn = False
            case MessageStartEvent():
                need(self.in_turn and self.message is None, "messages do not nest")
                self.message = event.message
            case MessageUpdateEvent():
                need(isinstance(self.message, AssistantMessage), "updates no message under way")
            case MessageEndEvent():
                self._message_end(event, need)
            case ToolExecStartEvent():
                if self.turns == 1 and not self.new:  # a call that an interrupted run left
                    self.owed.append(event.tool_call_id)
                need(event.tool_call_id in self.owed, "starts a call that nobody made")
                need(event.tool_call_id not in self.open_calls, "starts twice")
                self.open_calls[event.tool_call_id] = event
            case ToolExecUpdateEvent():
                need(event.tool_call_id in self.open_calls, "updates no call under way")
            case ToolExecEndEvent():
                need(event.tool_call_id in self.open_calls, "ends no call under way")
                del self.open_calls[event.tool_call_id]
                self.ended_calls[event.tool_call_id] = event.message
            case AgentEndEvent():
                need(not self.in_turn, "ends a run inside a turn")
                need(list(event.messages) == self.new, "should carry all messages of the run")
                self.ended = True
            case _:
                pass

    def _message_end(self, event: MessageEndEvent, need: Callable[[bool, str], None]) -> None:
        need(self.message is not None, "ends no message")
        need(type(self.message) is type(event.message), "ends another message than began")
        self.message = None
        self.new.append(event.message)
        if isinstance(event.message, AssistantMessage):
            self.answer = event.message
            need(not self.owed, "comes before the results of the answer before it")
            self.owed = [tool_call.id for tool_call in event.message.tool_calls]
            need(len(set(self.owed)) == len(self.owed), "has calls that share an id")
        elif isinstance(event.message, ToolResultMessage):
            expected = self.owed[0] if self.owed else None
            need(event.message.tool_call_id == expected, f"should be the result of {expected!r}")
            need(
                self.ended_calls.get(event.message.tool_call_id) == event.message,
                "is not the result that its call ended with",
            )
            self.owed.pop(0)
            self.results.append(event.message)

    def close(self, position: int) -> None:
        if not self.ended:
            raise AssertionError(f"no AgentEnd after {position} events")
