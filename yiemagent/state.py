"""An agent's state as a fold over its events: frozen, so reading it needs no lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from yiemagent.context import AgentContext, tool_mapping
from yiemagent.events import (
    AgentEndEvent,
    AgentStartEvent,
    CompactionEndEvent,
    Event,
    MessageEndEvent,
    ToolExecEndEvent,
    ToolExecStartEvent,
    TurnEndEvent,
)
from yiemagent.limits import noted_usage, total_usage
from yiemagent.messages import AgentMessage, CompactionSummaryMessage, LlmModel, LlmUsage
from yiemagent.record import Record
from yiemagent.tool import AgentTool
from yiemagent.transcript import transcript, with_results_in_order

__all__ = ["AgentState", "reduce"]


@attrs.frozen(eq=False, repr=False)
class AgentState(Record):
    """What an agent is at one moment.

    Args:
        system_prompt: instructions for the model.
        model: the model asked for, or None for the provider's own.
        tools: by name, as the latest turn had them.
        messages: the history, oldest first.
        pending_tool_calls: ids of the calls that are under way.
        active_run: whether a run is going on.
        error_message: what went wrong in the latest run, or None.
        summary: what the model sees in place of the messages before `first_kept`; None: it sees them all.
        first_kept: the place in `messages` of the first that the model sees as it is.
        usage: what the agent consumed since it was made: answers, summaries, and what tools asked of models.
    """

    system_prompt: str = ""
    model: LlmModel | str | None = None
    tools: Mapping[str, AgentTool] = attrs.field(default=None, converter=tool_mapping)
    messages: Sequence[AgentMessage] = attrs.field(default=(), converter=transcript)
    pending_tool_calls: frozenset[str] = frozenset()
    active_run: bool = False
    error_message: str | None = None
    summary: CompactionSummaryMessage | None = None
    first_kept: int = 0
    usage: LlmUsage = attrs.field(factory=LlmUsage)

    @property
    def context_messages(self) -> Sequence[AgentMessage]:
        """What a model is shown of the history: the latest summary and what follows; all of it where there is none."""
        if self.summary is None:
            return self.messages
        return transcript((self.summary, *self.messages[self.first_kept :]))

    def showing(self, context: AgentContext) -> AgentState:
        """Give the state with what a model is shown in place of the whole conversation."""
        return attrs.evolve(
            self,
            system_prompt=context.system_prompt,
            messages=context.messages,
            tools=context.tools,
            summary=None,
            first_kept=0,
        )


def reduce(state: AgentState, event: Event) -> AgentState:
    """Give the state that `event` leads to; the same object where it changes nothing."""
    match event:
        case MessageEndEvent():
            history = transcript(state.messages).append(event.message)
            usage = state.usage + total_usage((event.message,))
            return attrs.evolve(state, messages=history, usage=usage)
        case ToolExecStartEvent():
            pending = state.pending_tool_calls | {event.tool_call_id}
            return attrs.evolve(state, pending_tool_calls=pending)
        case ToolExecEndEvent():
            pending = state.pending_tool_calls - {event.tool_call_id}
            return attrs.evolve(state, pending_tool_calls=pending)
        case TurnEndEvent(message=None, tool_results=results) if results:
            # Of calls that an interrupted run left: others of the same answer may have had their results already.
            history = with_results_in_order(state.messages)
            return state if history is state.messages else attrs.evolve(state, messages=history)
        case AgentStartEvent():
            return attrs.evolve(state, active_run=True, error_message=None)
        case AgentEndEvent():
            error = event.answer.error_message if event.answer.failed else None
            return attrs.evolve(
                state, pending_tool_calls=frozenset(), active_run=False, error_message=error
            )
        case CompactionEndEvent():
            used = noted_usage(event.details)
            if used is not None:
                state = attrs.evolve(state, usage=state.usage + used)
            if event.summary is None:
                return state
            first_kept = len(state.messages) - event.kept
            return attrs.evolve(state, summary=event.summary, first_kept=first_kept)
        case _:
            return state
