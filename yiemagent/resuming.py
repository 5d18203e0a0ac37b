"""Going on with a history as it is, and where a process left off that was killed, with what its session kept."""

from __future__ import annotations

import attrs

from yiemagent.agent_core import AgentCore
from yiemagent.entry import Entry
from yiemagent.errors import AgentStateError
from yiemagent.messages import AssistantMessage, ToolCall
from yiemagent.transcript import Transcript

__all__ = ["go_on", "restore", "resume"]


def go_on(core: AgentCore) -> None:
    """Accept a run on the history as it is.

    Raises:
        AgentStateError: a run is going on, or there is nothing to answer.
    """
    with core._gate:
        core._check_usable()
        if core._run is not None or core._input:
            raise AgentStateError("a run is going on; continue_agent goes on from where one ended")
        _check_can_go_on(core)
        core._put(core._entry(None, waits=False), reserve=True, timeout_s=0)


def _check_can_go_on(core: AgentCore) -> None:
    history = core._state.messages
    if not history:
        raise AgentStateError("the history is empty: there is nothing to continue; use run_agent")
    queued = bool(core._steering) or bool(core._follow_up)
    if isinstance(history[-1], AssistantMessage) and not history[-1].failed and not queued:
        raise AgentStateError(
            "the last message is the assistant's: there is nothing to answer; use run_agent"
        )


def restore(core: AgentCore) -> None:
    """Have the messages wait that waited when the process before this one ended; they start nothing yet."""
    for kind, message in core.journal.restored():
        channel = core.channel(kind)
        channel.restore([*channel.drain(), core._entry(message, waits=False)])
        core._reserved += kind == "input"


def resume(core: AgentCore, *, retry_idempotent: bool) -> bool:
    """Go on with what was interrupted or waits; gives whether there is anything to go on with.

    Raises:
        AgentStateError: the agent has no session, or was sent something already.
    """
    with core._gate:
        core._check_usable()
        if core.journal.session is None:
            raise AgentStateError(f"agent {core.name!r} has no session to resume")
        if core._thread is not None:
            raise AgentStateError(
                f"agent {core.name!r} is at work already; resume it before it is sent anything"
            )
        first = _first(core, retry_idempotent=retry_idempotent)
        if first is not None:
            core._input.restore([first])
            core._reserved += 1
        if not core._input:
            return False
        core._start_thread()
        core._bell.ring()
        return True


def _first(core: AgentCore, *, retry_idempotent: bool) -> Entry | None:
    """Give what begins the first run; None: a message that waits for a run of its own, or nothing."""
    session = core.journal.session
    assert session is not None
    if session.interrupted:
        messages = session.reopen(lambda call: retry_idempotent and _may_run_again(core, call))
        core._state = attrs.evolve(core._state, messages=Transcript(messages))
        entry = core._entry(None, waits=False)
        entry.takes_up = True
        return entry
    if core._input:
        return None
    return core._steering.take() or core._follow_up.take()


def _may_run_again(core: AgentCore, call: ToolCall) -> bool:
    tool = core.store.snapshot().get(call.name)
    return tool is not None and tool.annotations.get("idempotentHint") is True
