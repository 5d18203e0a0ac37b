"""The summary of a branch that is left: a model writes what was tried on it."""

from __future__ import annotations

from typing import Any

from yiemagent.abort import AbortSignal
from yiemagent.events import Event
from yiemagent.llm import StreamOptions, stream_fn_of
from yiemagent.messages import AgentMessage
from yiemagent.sessions.compaction import known_window
from yiemagent.sessions.conversation import context_of
from yiemagent.sessions.session import Session
from yiemagent.sessions.summaries import Summariser, SummaryPrompts

__all__ = ["branch_messages", "summarise_branch"]

_ASSUMED_WINDOW = 16_000  # of a model of which nothing is known
_MOST_TOKENS = 2_000


def branch_messages(session: Session, entry_id: int | None) -> tuple[AgentMessage, ...]:
    """Give the messages that would be left behind if the leaf moved to an entry: those behind where the two part.

    Raises:
        SessionError: there is no such entry in the tree.
    """
    kept = {entry.id for entry in session.path_to(entry_id)}
    return tuple(context_of([e for e in session.path_to(session.leaf_id) if e.id not in kept]))


def summarise_branch(
    session: Session,
    entry_id: int | None,
    llm_call: Any,
    *,
    instructions: str | None = None,
    prompts: SummaryPrompts | None = None,
    signal: AbortSignal | None = None,
) -> str | None:
    """Have a model summarise the branch that is left if the leaf moves to an entry; for `Session.branch(…, summary=…)`.

    Args:
        session: the conversation, its leaf at the end of the branch.
        entry_id: where it would go on.
        llm_call: who summarises: anything that an agent takes as its model.
        instructions: what the summary should heed beside what `prompts` say.
        prompts: what the model is told; its `branch` says what the summary should hold.
        signal: ends the asking.

    Returns:
        None where nothing is left behind.

    Raises:
        SessionError: there is no such entry in the tree.
        CompactionError: no summary came; the text says why.
    """
    messages = branch_messages(session, entry_id)
    stream_fn = stream_fn_of(llm_call)
    options = StreamOptions(max_tokens=_MOST_TOKENS, cache="none")
    summariser = Summariser(
        stream_fn=stream_fn,
        options=options,
        window=known_window(stream_fn, options) or _ASSUMED_WINDOW,
        emit=_quiet,
        prompts=prompts or SummaryPrompts(),
        instructions=instructions,
    )
    return summariser.branch(messages, signal or AbortSignal()).text or None


def _quiet(_event: Event) -> None:
    """Tell nobody."""
