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
from yiemagent.sessions.conversation import context_of, cut_points
from yiemagent.sessions.entries import Entry, Header
from yiemagent.sessions.session import Session

__all__ = [
    "Body",
    "BranchSummaryBody",
    "CompactionBody",
    "CustomBody",
    "DeliveredBody",
    "Entry",
    "Header",
    "LabelBody",
    "LeafBody",
    "MessageBody",
    "ModelChangeBody",
    "PartialBody",
    "QueuedBody",
    "RunEndBody",
    "Session",
    "ThinkingChangeBody",
    "ToolCallStartedBody",
    "UnknownBody",
    "WithdrawnBody",
    "context_of",
    "cut_points",
]
