"""Going on with calls that a run left waiting for approval, in this process or another one."""

from __future__ import annotations

from yiemagent.errors import SessionError
from yiemagent.messages import AssistantMessage, ToolCall
from yiemagent.pausing import paused_calls
from yiemagent.sessions.bodies import MessageBody
from yiemagent.sessions.conversation import context_of
from yiemagent.sessions.recovery import TAKE_UP, taken_up_calls
from yiemagent.sessions.session import Session

__all__ = ["take_up_paused", "waiting_for_approval"]


def waiting_for_approval(session: Session) -> tuple[ToolCall, ...]:
    """Give the calls that wait for approval at the end of a session, in call order; none where it went on since."""
    with session._held():
        tail = session._log.tail()
    return paused_calls(context_of(tail)) or taken_up_calls(tail)


def take_up_paused(session: Session) -> tuple[ToolCall, ...]:
    """Go back to the answer whose calls wait for approval, so that `resume_agent` runs the calls of that answer.

    `before_tool_call` is asked about each of them again: see `yiemagent.approval.decided`. What said that they were not
    run stays in the session as a branch. Taking them up twice is no mistake: a process that ended in between changes
    nothing.

    Args:
        session: a session that no agent works on.

    Returns:
        The calls that wait.

    Raises:
        SessionError: none waits; or an agent works on the session.
    """
    waiting = waiting_for_approval(session)
    if not waiting:
        raise SessionError("no call of this session waits for approval")
    with session._held():
        session._check_free("take up what waits")
        tail = session._log.tail()
        if not taken_up_calls(tail):
            (answer,) = (
                entry.id
                for entry in tail
                if isinstance(entry.body, MessageBody)
                and isinstance(entry.body.message, AssistantMessage)
            )
            session._log.move(answer, TAKE_UP)
    return waiting
