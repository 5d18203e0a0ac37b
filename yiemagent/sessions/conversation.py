"""What the entries of a path amount to: the messages that the model sees, where they may be cut, and what an
interrupted run left open. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from yiemagent.messages import (
    AgentMessage,
    AssistantMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    ToolCall,
    ToolResultMessage,
)
from yiemagent.record import Record
from yiemagent.sessions.bodies import (
    BranchSummaryBody,
    CompactionBody,
    MessageBody,
    RunEndBody,
    ToolCallStartedBody,
)
from yiemagent.sessions.entries import Entry
from yiemagent.transcript import in_call_order

__all__ = ["OpenCall", "context_of", "cut_points", "history_of", "is_unfinished", "open_calls"]


@attrs.frozen(eq=False, repr=False)
class OpenCall(Record):
    """A tool call without a result, and whether it had started: then its effect may be there."""

    call: ToolCall
    started: bool


def context_of(path: Sequence[Entry]) -> list[AgentMessage]:
    """Give the messages that a path amounts to, oldest first.

    Where it was compacted, the latest summary stands for what came before the first entry that is kept. Results of
    one answer's calls stand in call order, in whichever order they came.

    Args:
        path: from the root to the leaf; messages that waited as `MessageBody`.
    """
    context = _Context()
    first_kept = 0
    compaction = next((e for e in reversed(path) if isinstance(e.body, CompactionBody)), None)
    if compaction is not None and isinstance(compaction.body, CompactionBody):
        first_kept = compaction.body.first_kept_id
        summary, tokens = compaction.body.summary, compaction.body.tokens_before
        context.add(CompactionSummaryMessage(summary, tokens, compaction.time))
    for entry in path:
        if entry.id < first_kept:
            continue
        match entry.body:
            case MessageBody(message):
                context.add(message)
            case BranchSummaryBody(summary, from_id):
                context.add(BranchSummaryMessage(summary, str(from_id), entry.time))
            case _:
                pass
    return context.messages()


def history_of(path: Sequence[Entry]) -> list[AgentMessage]:
    """Give all messages of a path, oldest first: also those that a summary stands for, with the summary behind them.

    Args:
        path: as `Session.path_to` gives it.
    """
    history = _Context()
    for entry in path:
        match entry.body:
            case MessageBody(message):
                history.add(message)
            case BranchSummaryBody(summary, from_id):
                history.add(BranchSummaryMessage(summary, str(from_id), entry.time))
            case CompactionBody(summary=summary, tokens_before=tokens):
                history.add(CompactionSummaryMessage(summary, tokens, entry.time))
            case _:
                pass
    return history.messages()


class _Context:
    """Messages as they are gathered; the results behind an answer are put in call order."""

    def __init__(self) -> None:
        self._messages: list[AgentMessage] = []
        self._results: list[ToolResultMessage] = []

    def add(self, message: AgentMessage) -> None:
        if isinstance(message, ToolResultMessage):
            self._results.append(message)
            return
        self._put_results()
        self._messages.append(message)

    def messages(self) -> list[AgentMessage]:
        self._put_results()
        return self._messages

    def _put_results(self) -> None:
        results, self._results = self._results, []
        if len(results) > 1:
            results = in_call_order(results, self._messages[-1] if self._messages else None)
        self._messages.extend(results)


def cut_points(path: Sequence[Entry]) -> tuple[int, ...]:
    """Give the ids of the entries at which the part of a path that is kept may begin: never between a call and its
    result.
    """
    return tuple(
        entry.id
        for entry in path
        if isinstance(entry.body, BranchSummaryBody)
        or (
            isinstance(entry.body, MessageBody)
            and not isinstance(entry.body.message, ToolResultMessage)
        )
    )


def open_calls(path: Sequence[Entry]) -> tuple[OpenCall, ...]:
    """Give the calls of the path's last answer that have no result, in call order."""
    started, answered = set(), set()
    for entry in reversed(path):
        match entry.body:
            case ToolCallStartedBody(call_id, _):
                started.add(call_id)
            case MessageBody(ToolResultMessage() as result):
                answered.add(result.tool_call_id)
            case MessageBody(AssistantMessage() as answer):
                calls = (call for call in answer.tool_calls if call.id not in answered)
                return tuple(OpenCall(call, call.id in started) for call in calls)
            case MessageBody():
                return ()
            case _:
                pass
    return ()


def is_unfinished(path: Sequence[Entry]) -> bool:
    """Whether a path ends in the middle of a run: with something that a model has not answered, and no run's end."""
    for entry in reversed(path):
        match entry.body:
            case RunEndBody():
                return False
            case MessageBody(AssistantMessage() as answer):
                return answer.failed or bool(answer.tool_calls)
            case MessageBody():
                return True
            case _:
                pass
    return False
