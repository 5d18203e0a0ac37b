"""Sessions: conversations that survive whatever happens to the process that has them.

`Session.open("chat.jsonl", create=True)` gives one, and `YiemAgent(…, session=session)` goes on with it.
"""

from __future__ import annotations

from yiemagent.sessions.bodies import (
    Body,
    BranchSummaryBody,
    CompactionBody,
    CustomBody,
    DeliveredBody,
    LabelBody,
    LeafBody,
    MessageBody,
    ModelChangeBody,
    PartialBody,
    QueuedBody,
    RunEndBody,
    ThinkingChangeBody,
    ToolCallStartedBody,
    UnknownBody,
    WithdrawnBody,
)
from yiemagent.sessions.branch_summaries import branch_messages, summarise_branch
from yiemagent.sessions.compaction import Compaction
from yiemagent.sessions.conversation import context_of, cut_points, history_of
from yiemagent.sessions.entries import Entry, Header
from yiemagent.sessions.output_budget import OutputBudget, OutputLimit
from yiemagent.sessions.paused import take_up_paused, waiting_for_approval
from yiemagent.sessions.session import Session
from yiemagent.sessions.summaries import SummaryPrompts

__all__ = [
    "Body",
    "BranchSummaryBody",
    "Compaction",
    "CompactionBody",
    "CustomBody",
    "DeliveredBody",
    "Entry",
    "Header",
    "LabelBody",
    "LeafBody",
    "MessageBody",
    "ModelChangeBody",
    "OutputBudget",
    "OutputLimit",
    "PartialBody",
    "QueuedBody",
    "RunEndBody",
    "Session",
    "SummaryPrompts",
    "ThinkingChangeBody",
    "ToolCallStartedBody",
    "UnknownBody",
    "WithdrawnBody",
    "branch_messages",
    "context_of",
    "cut_points",
    "history_of",
    "summarise_branch",
    "take_up_paused",
    "waiting_for_approval",
]
