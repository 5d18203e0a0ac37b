"""Who waits for whom up the call chain: an agent whose answer is waited for inside its own run would never give it."""

from __future__ import annotations

import contextvars
from typing import Protocol

from yiemagent.errors import AgentStateError

__all__ = ["refuse_waiting_for_itself", "remember_waiting"]


class _Named(Protocol):
    name: str


# The agents whose answers somebody up the call chain is waiting for, outermost first.
_waiting_for: contextvars.ContextVar[tuple[_Named, ...]] = contextvars.ContextVar(
    "yiemagent_waiting_for", default=()
)


def remember_waiting(agent: _Named, *, waits: bool) -> None:
    """Note, in the context of an agent's run, that it is under way, and whether the caller waits for it."""
    chain = _waiting_for.get() if waits else ()
    _waiting_for.set((*chain, agent))


def refuse_waiting_for_itself(agent: _Named, what: str) -> None:
    """Raise `AgentStateError` where `what` would wait for the run that it is called in."""
    chain = _waiting_for.get()
    if agent in chain:
        names = " -> ".join(other.name for other in (*chain, agent))
        raise AgentStateError(
            f"{what} would wait for the run that it is called in ({names}); from inside a run use "
            f"steer, follow_up, abort_agent or run_agent with timeout_s=0"
        )
