"""The verbs: what callers do with an agent, each a plain blocking function.

A `timeout_s` that is no number of seconds raises `TypeError`, one below 0 or NaN `ValueError`, before anything is done.
So does a message that is neither text, the OpenAI dict of a user's message, nor a message. An agent that was in use
when this process was forked raises `AgentStateError` in the child; `abort_agent` and `stop_agent` do nothing there.
"""

from __future__ import annotations

from typing import Any

from yiemagent.abort import checked_timeout
from yiemagent.agent import YiemAgent
from yiemagent.agent_core import AgentCore
from yiemagent.asking import ask_agent
from yiemagent.entry import Receipt
from yiemagent.messages import AgentMessage, AssistantMessage, CompactionSummaryMessage
from yiemagent.resuming import go_on, resume

__all__ = [
    "abort_agent",
    "ask",
    "compact_agent",
    "continue_agent",
    "follow_up",
    "prompt_agent",
    "resume_agent",
    "run_agent",
    "steer",
    "stop_agent",
    "take_response",
]


def run_agent(
    agent: YiemAgent, message: Any, *, output_schema: Any = None, timeout_s: float | None = 0
) -> None:
    """Send a message that gets a run of its own, and so exactly one answer at `take_response`.

    Runs of one agent follow one another in the order in which they were sent. The context variables of the caller
    hold in the run, its hooks, sinks and tools.

    Args:
        agent: the agent.
        message: text, an OpenAI message dict, or a message.
        output_schema: what the answer must be, as for `ask`.
        timeout_s: seconds to wait for a place; 0: not at all, None: for ever.

    Raises:
        ConfigurationError: where output_schema says no schema.
        ChannelFull: where 16 answers are queued, running or untaken, after the time allowed.
        AbortedError: where the tool's call or the run that this waits in was aborted; nothing was sent.
        AgentStopped: where the agent was stopped.
        AgentStateError: where waiting would wait for the run that this is called in.
    """
    _core(agent).submit(message, output_schema, timeout_s=checked_timeout(timeout_s))


prompt_agent = run_agent


def take_response(agent: YiemAgent, timeout_s: float | None = None) -> AssistantMessage:
    """Take the oldest answer that nobody took; a failed or aborted run is an answer too.

    Args:
        agent: the agent.
        timeout_s: seconds to wait; None: for ever.

    Raises:
        ResponseTimeout: where none came in time; nothing is changed.
        AbortedError: where the tool's call or the run that this is part of was aborted meanwhile; nothing is changed.
        AgentStopped: where the agent was stopped and no answer is left.
        AgentStateError: where this would wait for the run that it is called in.
    """
    return _core(agent).take(checked_timeout(timeout_s))


def ask(
    agent: YiemAgent, message: Any, *, output_schema: Any = None, timeout_s: float | None = None
) -> AssistantMessage:
    """Send a message and block until its answer; safe from many threads at once, each gets its own.

    Interrupted or timed out, it takes its message back if that has not begun. If it has, a time-out leaves the run
    going, with its answer only in the history, and a KeyboardInterrupt aborts it. So does an abort, or the time limit,
    of the tool or the hook that calls this; then it raises `AbortedError`.

    Args:
        agent: the agent.
        message: text, an OpenAI message dict, or a message.
        output_schema: what the answer must be: a JSON Schema, or a type such as a dataclass, an attrs class, a
            TypedDict or `list[str]`. The value is then `answer.parsed`, and `read_output` makes an object of it; a
            model that gives none that fits, told once what was wrong, has failed. None: the agent's own, if it has one.
        timeout_s: seconds to wait; None: for ever.

    Raises:
        ConfigurationError: where output_schema says no schema.
        ResponseTimeout: where no answer came in time.
        AbortedError: where the tool's call or the run that this is part of was aborted.
        AgentStopped: where the agent was or is stopped before the message began.
        AgentStateError: where this would wait for the run that it is called in.
    """
    return ask_agent(_core(agent), message, output_schema, timeout_s=checked_timeout(timeout_s))


def steer(agent: YiemAgent, message: Any) -> Receipt:
    """Send a message that joins the run going on at its next turn; on an idle agent it starts a run.

    Raises:
        ChannelFull: where 32 such messages wait; or it would start a run, and there is no place for its answer.
        AgentStopped: where the agent was stopped.
    """
    return _core(agent).join(message, "steering")


def follow_up(agent: YiemAgent, message: Any) -> Receipt:
    """Send a message that joins the run going on when it would stop; on an idle agent it starts a run.

    Raises:
        ChannelFull: where 32 such messages wait; or it would start a run, and there is no place for its answer.
        AgentStopped: where the agent was stopped.
    """
    return _core(agent).join(message, "follow_up")


def continue_agent(agent: YiemAgent) -> None:
    """Start a run on the history as it is: after a tool's hand-off, an error or an abort. It gives one answer.

    Raises:
        AgentStateError: where a run is going on, the history is empty, or there is nothing to answer.
        ChannelFull: where 16 answers are untaken.
        AgentStopped: where the agent was stopped.
    """
    go_on(_core(agent))


def resume_agent(agent: YiemAgent, *, retry_idempotent: bool = False) -> bool:
    """Go on where the process before this one was interrupted, as its session tells; call it before anything else.

    A run that broke off goes on and gives one answer; each message that waited for a run of its own gets it, and its
    answer. Calls that were under way are answered with an error result that says that their outcome is unknown, and
    those that had not begun with one that says that they were not run; the model may call again.

    Args:
        agent: an agent on a session that was opened again.
        retry_idempotent: run those of all these calls whose tools say that a second time does no harm
            (`annotations={"idempotentHint": True}`); `before_tool_call` is asked again.

    Returns:
        False where there is nothing to go on with: nothing was begun, and no answer will come.

    Raises:
        AgentStateError: the agent has no session, or was sent something already.
        AgentStopped: where the agent was stopped.
    """
    return resume(_core(agent), retry_idempotent=retry_idempotent)


def abort_agent(agent: YiemAgent, reason: str | None = None) -> bool:
    """Abort the run going on and return at once; its answer follows with stop reason "aborted".

    An answer that is whole by then counts. May be called from anywhere, tools, hooks and sinks included. Queued
    messages still get their runs.

    Returns:
        False where nothing was running, or it was aborted already.
    """
    return _core(agent).abort(reason)


def compact_agent(
    agent: YiemAgent, instructions: str | None = None, *, timeout_s: float | None = None
) -> CompactionSummaryMessage:
    """Have an agent's conversation shortened for the model, whatever its size, and block until it is.

    It happens once the run going on and those that were asked for before are over, as a run of its own that gives no
    answer to take. Interrupted or timed out, it is taken back if it has not begun. If it has, a time-out leaves it
    going on, and a KeyboardInterrupt aborts it.

    Args:
        agent: an agent with a `compaction`.
        instructions: what this summary should heed, beside what the agent's `compaction` says.
        timeout_s: seconds to wait; None: for ever.

    Returns:
        What stands for what is old from now on.

    Raises:
        ConfigurationError: the agent has no `compaction`.
        CompactionError: there is nothing to shorten, or the summary failed; the conversation is as it was.
        AbortedError: it was aborted, or the tool's call or the run that this is part of.
        ResponseTimeout: where it was not over in time.
        AgentStopped: where the agent was or is stopped before it began.
        AgentStateError: where this would wait for the run that it is called in.
    """
    from yiemagent.compacting import compact  # needed here only

    return compact(_core(agent), instructions, timeout_s=checked_timeout(timeout_s))


def stop_agent(agent: YiemAgent, *, timeout_s: float | None = None) -> tuple[AgentMessage, ...]:
    """End the agent: the run going on ends without looking at its queues again, and its answer can still be taken.

    Args:
        agent: the agent.
        timeout_s: seconds that the run may take; then it is aborted. None: as long as it takes.

    Returns:
        The messages that entered no run, in order; `()` from a second call, and in a child that was forked after the
        agent's first message.

    Raises:
        AgentStateError: where this would wait for the run that it is called in.
    """
    return _core(agent).stop(checked_timeout(timeout_s), hands_back=True)


def _core(agent: Any) -> AgentCore:
    if not isinstance(agent, YiemAgent):
        raise TypeError(f"the agent comes first, and must be a YiemAgent, not {agent!r}")
    return agent._core
