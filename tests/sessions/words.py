"""What tests of sessions say: a moment, messages, and what a session holds in short."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from yiemagent.messages import AssistantMessage, ToolCall, UserMessage

if TYPE_CHECKING:
    from yiemagent.sessions import Session

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
HI, DONE = UserMessage("hi", NOON), AssistantMessage("done", timestamp=NOON)
A, B = ToolCall("a", "work"), ToolCall("b", "work")
CALLS = AssistantMessage((A, B), stop_reason="tool_use", timestamp=NOON)


def user(text: str) -> UserMessage:
    """Give a message of a person."""
    return UserMessage(text, NOON)


def texts(session: Session) -> list[str]:
    """Give the texts of a session's messages."""
    return [message.text for message in session.messages]
