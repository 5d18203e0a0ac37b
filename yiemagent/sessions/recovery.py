"""What an interrupted run left, made whole: an answer that broke off is kept as aborted, and calls without a result are
closed. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import attrs

from yiemagent.messages import AssistantMessage, ToolCall, ToolResultMessage
from yiemagent.payload import FrozenDict
from yiemagent.sessions.bodies import CustomBody, MessageBody
from yiemagent.sessions.conversation import OpenCall, open_calls
from yiemagent.sessions.entries import Entry
from yiemagent.streaming import PartialMessage, StreamEvent, with_own_ids

__all__ = ["INTERRUPTED_TEXT", "TAKE_UP", "closings", "taken_up_calls"]

INTERRUPTED_TEXT = (
    "Interrupted: the program ended while this call was running, so its outcome is unknown. It may have had its "
    "effect; find that out before you call again."
)
NOT_RUN_TEXT = (
    "This call was not run: the program ended before it began, so it had no effect. Call again if it is still "
    "needed."
)
BROKEN_OFF_TEXT = (
    "This call was not run: the program ended before the answer that holds it was whole."
)
# Stands behind an answer whose calls waited for approval, and are now to be run.
TAKE_UP = CustomBody("yiemagent.take_up")


def _none(_call: ToolCall) -> bool:
    return False


def closings(
    path: Sequence[Entry],
    partial: Iterable[StreamEvent] = (),
    leave_open: Callable[[ToolCall], bool] = _none,
) -> list[MessageBody]:
    """Give the messages that close what is open at the end of a path.

    Args:
        path: at least from its last message that is no result.
        partial: the stream events of an answer that never became whole.
        leave_open: called with each call that has no result; True leaves it without one, to be run. Those that are
            taken up and have not started stay open anyway.
    """
    answer = _broken_off(partial)
    if answer is None:
        taken_up = {call.id for call in taken_up_calls(path)}
        return [
            MessageBody(_result(call))
            for call in open_calls(path)
            if call.call.id not in taken_up and not leave_open(call.call)
        ]
    results = [_closed(call, BROKEN_OFF_TEXT) for call in answer.tool_calls]
    return [MessageBody(answer), *map(MessageBody, results)]


def taken_up_calls(path: Sequence[Entry]) -> tuple[ToolCall, ...]:
    """Give the calls at the end of a path that are to be taken up and have not started: those behind `TAKE_UP`."""
    if not any(entry.body == TAKE_UP for entry in path):
        return ()
    return tuple(call.call for call in open_calls(path) if not call.started)


def _broken_off(events: Iterable[StreamEvent]) -> AssistantMessage | None:
    partial = PartialMessage.first()
    for event in events:
        partial = partial.add(event)
    message = partial.build()
    if not message.content:
        return None
    text = "aborted: the program ended while this answer came"
    return with_own_ids(attrs.evolve(message, stop_reason="aborted", error_message=text))


def _result(call: OpenCall) -> ToolResultMessage:
    text = INTERRUPTED_TEXT if call.started else NOT_RUN_TEXT
    return _closed(call.call, text, started=call.started)


def _closed(call: ToolCall, text: str, *, started: bool = False) -> ToolResultMessage:
    details = FrozenDict(interrupted=True, started=started)
    return ToolResultMessage(call.id, call.name, text, details, is_error=True)
