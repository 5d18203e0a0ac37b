"""What a run has told so far, and so what it still owes: every Start has its End, whoever ends the run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import attrs

from yiemagent.events import (
    AgentEndEvent,
    AgentStartEvent,
    CompactionEndEvent,
    Event,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    ToolExecEndEvent,
    ToolExecStartEvent,
    ToolExecUpdateEvent,
    TurnEndEvent,
    TurnStartEvent,
)
from yiemagent.limits import noted_usage
from yiemagent.messages import (
    AgentMessage,
    AssistantMessage,
    CompactionSummaryMessage,
    LlmUsage,
    StopReason,
    ToolCall,
    ToolResultMessage,
)
from yiemagent.pipeline import (
    ABORTED_TEXT,
    FinalizedOutcome,
    create_error_tool_result,
    create_tool_result_message,
)
from yiemagent.state import AgentState
from yiemagent.streaming import with_own_ids
from yiemagent.transcript import transcript, with_results_in_order

__all__ = ["Progress"]

logger = logging.getLogger("yiemagent.progress")


@attrs.define(eq=False, repr=False)
class Progress:
    """What a run has told so far, and so what it still owes: a fold over its events."""

    owed_prompts: tuple[AgentMessage, ...]
    latest: AgentState = attrs.field(factory=AgentState)
    folded: int = 0  # so many of the new messages are in the latest state
    started: bool = False
    ended: bool = False
    in_turn: bool = False
    turns: int = 0
    new: list[AgentMessage] = attrs.field(factory=list)
    used: list[LlmUsage] = attrs.field(factory=list)
    counted: int = 0  # so many of these usages are in the latest state
    last_answer: AssistantMessage | None = None
    open_message: AgentMessage | None = None
    update: MessageUpdateEvent | None = None
    turn_message: AssistantMessage | None = None
    taken_up: list[ToolCall] = attrs.field(
        factory=list
    )  # calls of the turn before it has an answer
    turn_results: list[ToolResultMessage] = attrs.field(factory=list)
    open_calls: dict[str, ToolExecStartEvent] = attrs.field(factory=dict)
    ended_calls: dict[str, ToolResultMessage] = attrs.field(factory=dict)
    failed_sinks: set[int] = attrs.field(factory=set)
    # The latest summary, and the place in the history of the first message behind it.
    compacted: tuple[CompactionSummaryMessage | None, int] = attrs.field(
        default=attrs.Factory(lambda self: _compacted(self.latest), takes_self=True)
    )
    failure: str | None = attrs.field(
        default=attrs.Factory(lambda self: self.latest.error_message, takes_self=True)
    )

    def take(self, event: Any) -> bool:
        """Fold an event in; gives False where it may not be emitted: nothing may after AgentEnd, and no update of a
        call that is not under way.
        """
        if self.ended:
            return False
        # By class, one after another: every event of every run comes through here.
        kind = event.__class__
        if kind is MessageUpdateEvent:
            self.update = event
        elif kind is MessageStartEvent:
            self.open_message = event.message
        elif kind is MessageEndEvent:
            self._message_ended(event.message)
        elif kind is ToolExecStartEvent:
            self.open_calls[event.tool_call_id] = event
            if self.turn_message is None:
                self.taken_up.append(ToolCall(event.tool_call_id, event.tool_name, event.arguments))
        elif kind is ToolExecEndEvent:
            self.open_calls.pop(event.tool_call_id, None)
            self.ended_calls[event.tool_call_id] = event.message
        elif kind is ToolExecUpdateEvent:
            return event.tool_call_id in self.open_calls
        elif kind is TurnStartEvent:
            self.in_turn, self.turns, self.turn_message = True, event.turn, None
            self.turn_results, self.ended_calls, self.taken_up = [], {}, []
        elif kind is TurnEndEvent:
            self._turn_ended(event)
        elif kind is AgentStartEvent:
            self.started, self.failure = True, None
        elif kind is AgentEndEvent:
            self.ended, self.failure = True, _failure(event.answer)
        elif kind is CompactionEndEvent:
            self._compaction_ended(event)
        return True

    def _compaction_ended(self, event: CompactionEndEvent) -> None:
        used = noted_usage(event.details)
        if used is not None:
            self.used.append(used)
        if event.summary is not None:
            total = len(self.latest.messages) + len(self.new) - self.folded
            self.compacted = (event.summary, total - event.kept)

    def _turn_ended(self, event: TurnEndEvent) -> None:
        self.in_turn = False
        if event.message is not None or not event.tool_results:
            return
        # Of calls that an interrupted run left: others of the same answer may have had their results already.
        state = self.state()
        history = with_results_in_order(state.messages)
        if history is not state.messages:
            self.latest = attrs.evolve(state, messages=history)

    def _message_ended(self, message: AgentMessage) -> None:
        self.new.append(message)
        self.open_message = self.update = None
        if self.owed_prompts and self.owed_prompts[0] is message:
            self.owed_prompts = self.owed_prompts[1:]
        if isinstance(message, AssistantMessage):
            self.turn_message = self.last_answer = message
        elif isinstance(message, ToolResultMessage):
            self.turn_results.append(message)
        else:
            return
        if message.usage is not None:
            self.used.append(message.usage)

    def usage(self) -> LlmUsage:
        """Give what the run consumed so far."""
        return sum(self.used, LlmUsage())

    def state(self) -> AgentState:
        """Give the state that the events so far lead to; the same object until one changes something."""
        before, new, used = self.latest, self.new[self.folded :], self.used[self.counted :]
        active = self.started and not self.ended
        parts = (frozenset(self.open_calls), active, self.failure, *self.compacted)
        known = (before.pending_tool_calls, before.active_run, before.error_message)
        if new or used or parts != (*known, *_compacted(before)):
            history = transcript(before.messages).extend(new)
            tools = before.tools
            usage = sum(used, before.usage)
            self.latest = AgentState(
                before.system_prompt, before.model, tools, history, *parts, usage
            )
            self.folded += len(new)
            self.counted += len(used)
        return self.latest

    def missing_ends(self, answer: AssistantMessage) -> Iterator[Event]:
        """Give the events that a run owes where it ends out of turn; none where it ended by itself.

        Lazy: each is asked for when the one before it was folded in.
        """
        if not self.started:
            yield AgentStartEvent()
        if not self.in_turn and (self.owed_prompts or not self.turns):
            yield TurnStartEvent(self.turns + 1)
        if self.open_message is not None:
            yield MessageEndEvent(self._whole(answer))
        for prompt in self.owed_prompts:
            yield MessageStartEvent(prompt)
            yield MessageEndEvent(prompt)
        if self.in_turn:
            answered = self.turn_message
            for call in self.taken_up if answered is None else answered.tool_calls:
                yield from self._missing_result(call, answer)
            yield TurnEndEvent(self.turn_message, tuple(self.turn_results))

    def _whole(self, answer: AssistantMessage) -> AgentMessage:
        """Give the message that is open as it is kept: an answer is marked with how the run ended."""
        if not isinstance(self.open_message, AssistantMessage):
            assert self.open_message is not None
            return self.open_message
        so_far = self.open_message
        if self.update is not None:
            try:
                so_far = self.update.partial
            except Exception:  # a foreign stream may have given anything; a run ends all the same
                logger.warning("what came of an answer could not be put together", exc_info=True)
        reason: StopReason = "aborted" if answer.stop_reason == "aborted" else "error"
        text = answer.error_message or "the run ended before the answer did"
        return with_own_ids(attrs.evolve(so_far, stop_reason=reason, error_message=text))

    def _missing_result(self, call: ToolCall, answer: AssistantMessage) -> Iterator[Event]:
        if any(result.tool_call_id == call.id for result in self.turn_results):
            return
        message = self.ended_calls.get(call.id)
        if message is None:
            if call.id not in self.open_calls:
                yield ToolExecStartEvent(call.id, call.name, call.arguments)
            aborted = answer.stop_reason == "aborted"
            text = ABORTED_TEXT if aborted else f"The run failed: {answer.error_message}"
            outcome = FinalizedOutcome(call, create_error_tool_result(text), is_error=True)
            message = create_tool_result_message(outcome)
            yield ToolExecEndEvent(
                call.id, call.name, outcome.result, is_error=True, message=message
            )
        yield MessageStartEvent(message)
        yield MessageEndEvent(message)


def _compacted(state: AgentState) -> tuple[CompactionSummaryMessage | None, int]:
    return state.summary, state.first_kept


def _failure(answer: AssistantMessage) -> str | None:
    return answer.error_message if answer.failed else None
