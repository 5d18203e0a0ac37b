"""An agent's state as a fold over its events: frozen, so reading it needs no lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from yiemagent.context import tool_mapping
from yiemagent.events import (
    AgentEndEvent,
    AgentStartEvent,
    Event,
    MessageEndEvent,
    ToolExecEndEvent,
    ToolExecStartEvent,
)
from yiemagent.messages import AgentMessage, LlmModel
from yiemagent.record import Record
from yiemagent.tool import AgentTool
from yiemagent.transcript import transcript

__all__ = ["AgentState", "StateFold", "reduce"]


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
    """

    system_prompt: str = ""
    model: LlmModel | str | None = None
    tools: Mapping[str, AgentTool] = attrs.field(default=None, converter=tool_mapping)
    messages: Sequence[AgentMessage] = attrs.field(default=(), converter=transcript)
    pending_tool_calls: frozenset[str] = frozenset()
    active_run: bool = False
    error_message: str | None = None


def reduce(state: AgentState, event: Event) -> AgentState:
    """Give the state that `event` leads to; the same object where it changes nothing."""
    fold = StateFold(state)
    fold.take(event)
    return fold.state


class StateFold:
    """A state that goes along with events: taking one is cheap, and a state is made when somebody asks.

    One thread at a time takes events; any thread may ask.
    """

    __slots__ = ("_latest", "_parts")

    def __init__(self, state: AgentState) -> None:
        # What a run changes: the history, the calls under way, whether it is going on, and the error. This tuple, and
        # the state with the parts that it was made of, are replaced whole: no reader sees half a change.
        self._parts = (
            transcript(state.messages),
            state.pending_tool_calls,
            state.active_run,
            state.error_message,
        )
        self._latest = (state, self._parts)

    def take(self, event: Event) -> None:
        """Go along with an event."""
        if event.__class__ not in _CHANGING:
            return
        messages, pending, active, error = self._parts
        match event:
            case MessageEndEvent():
                messages = messages.append(event.message)
            case ToolExecStartEvent():
                pending |= {event.tool_call_id}
            case ToolExecEndEvent():
                pending -= {event.tool_call_id}
            case AgentStartEvent():
                active, error = True, None
            case AgentEndEvent():
                pending, active = frozenset(), False
                error = event.answer.error_message if event.answer.failed else None
            case _:
                pass
        self._parts = (messages, pending, active, error)

    @property
    def state(self) -> AgentState:
        """The state that the events so far lead to; the same object until one changes something."""
        parts = self._parts
        state, made_of = self._latest
        if parts is not made_of:
            state = AgentState(state.system_prompt, state.model, state.tools, *parts)
            self._latest = (state, parts)
        return state


_CHANGING = frozenset(
    {AgentEndEvent, AgentStartEvent, MessageEndEvent, ToolExecEndEvent, ToolExecStartEvent}
)
