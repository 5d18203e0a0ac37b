"""Sending a message and waiting for exactly its answer."""

from __future__ import annotations

from typing import Any

from yiemagent.abort import Deadline, current_signal
from yiemagent.agent_core import AgentCore
from yiemagent.entry import Entry, Reply, prompt_of
from yiemagent.errors import AbortedError, ChannelFull, ResponseTimeout
from yiemagent.messages import AssistantMessage
from yiemagent.waiting_chain import refuse_waiting_for_itself

__all__ = ["answer_to", "ask_agent"]


def ask_agent(
    core: AgentCore, message: Any, schema: Any, *, timeout_s: float | None
) -> AssistantMessage:
    """Have an agent accept a message, and wait for exactly its answer."""
    refuse_waiting_for_itself(core, "ask")
    entry = core._entry(prompt_of(message), waits=True, schema=schema)
    return answer_to(core, entry, timeout_s)


def answer_to(core: AgentCore, entry: Entry, timeout_s: float | None) -> AssistantMessage:
    """Send a message that is on its way already, and wait for its answer.

    Whoever waits and has to stop, since the call or the run that this is part of is aborted, or by a KeyboardInterrupt,
    leaves no work behind for nobody: the message is taken back, or its run is aborted.
    """
    deadline = Deadline(timeout_s)
    reply = entry.reply = Reply()
    outer = current_signal.get()
    unwatch = (
        None if outer is None else outer.add_callback(lambda: reply.give(AbortedError(outer.why)))
    )
    try:
        core._put(entry, reserve=False, timeout_s=timeout_s)
        if reply.wait(deadline.remaining_s()):
            return reply.take()
    except ChannelFull as error:
        raise ResponseTimeout(
            f"no place came free within {timeout_s} s; nothing was sent"
        ) from error
    except BaseException:  # whatever it is, it may come between any two steps
        if not core._take_back(entry):
            entry.signal.abort((outer and outer.reason) or "interrupted")
        raise
    finally:
        if unwatch is not None:
            unwatch()
    if core._take_back(entry):
        raise ResponseTimeout(f"no answer within {timeout_s} s; the message was taken back")
    if reply.wait(0):  # it came at the last moment
        return reply.take()
    raise ResponseTimeout(
        f"no answer within {timeout_s} s; the run goes on and its answer will be in the history"
    )
