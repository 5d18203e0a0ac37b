"""Calls that wait for somebody's decision, while nothing runs.

Where `before_tool_call` pauses a call, none of the calls of its answer is run; each gets a result that says so, and the
run ends. The conversation stays whole, whatever is done with it: a session can go back to the answer and take its
calls up, and without that a model sees calls that were not run. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from yiemagent.messages import (
    AgentMessage,
    AssistantMessage,
    TextContent,
    ToolCall,
    ToolResultMessage,
)
from yiemagent.payload import FrozenDict

__all__ = ["BESIDE_TEXT", "PAUSED_DETAILS", "PAUSED_TEXT", "paused_answer", "paused_calls"]

PAUSED_TEXT = "This call was not run yet: it waits for approval."
BESIDE_TEXT = "This call was not run yet: another call of the same answer waits for approval, and they go together."
PAUSED_DETAILS = FrozenDict(paused=True)


def paused_calls(messages: Sequence[AgentMessage]) -> tuple[ToolCall, ...]:
    """Give the calls that wait for approval at the end of a conversation, in call order; none where it went on.

    Args:
        messages: oldest first.
    """
    waiting = set()
    for message in reversed(messages):
        if isinstance(message, ToolResultMessage):
            # Those that were not run for another call's sake don't wait for anything themselves.
            if message.details == PAUSED_DETAILS and message.text == PAUSED_TEXT:
                waiting.add(message.tool_call_id)
        elif isinstance(message, AssistantMessage):
            return tuple(call for call in message.tool_calls if call.id in waiting)
        else:
            break
    return ()


def paused_answer(last: AssistantMessage, results: Sequence[ToolResultMessage]) -> AssistantMessage:
    """Give the answer of a run that ended since calls of its last message wait for approval."""
    names = dict.fromkeys(call.name for call in paused_calls((last, *results)))
    return AssistantMessage(
        (TextContent(f"Waiting for approval: {', '.join(names)}."),),
        api=last.api,
        provider=last.provider,
        model=last.model,
        stop_reason="tool_use_terminated",
    )
