"""Shortening a conversation because somebody asks for it: a run of its own that asks no question."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from yiemagent.abort import AbortSignal
from yiemagent.agent_core import AgentCore
from yiemagent.asking import answer_to
from yiemagent.config import AgentLoopConfig, FitRequest
from yiemagent.context import AgentContext
from yiemagent.errors import AbortedError, CompactionError, ConfigurationError
from yiemagent.events import (
    AgentStartEvent,
    CompactionEndEvent,
    Event,
    TurnEndEvent,
    TurnStartEvent,
)
from yiemagent.loop import LoopPorts, made_answer
from yiemagent.messages import AgentMessage, AssistantMessage, CompactionSummaryMessage
from yiemagent.relay import Steps
from yiemagent.waiting_chain import refuse_waiting_for_itself

__all__ = ["compact"]


def compact(
    core: AgentCore, instructions: str | None, *, timeout_s: float | None
) -> CompactionSummaryMessage:
    """Shorten an agent's conversation once the run going on is over, and give the summary.

    Raises:
        ConfigurationError: the agent has no `compaction`.
        CompactionError: it can't be shortened, or the summary failed; the conversation is as it was.
        AbortedError: it was aborted.
    """
    refuse_waiting_for_itself(core, "compact_agent")
    if core._config.compaction is None:
        raise ConfigurationError(
            f"agent {core.name!r} has no compaction; make it with compaction=yiemagent.sessions.Compaction()"
        )
    loop = _CompactionLoop(instructions or "")
    entry = core._entry(None, waits=True)
    entry.loop = loop
    answer = answer_to(core, entry, timeout_s)
    if loop.summary is not None:
        return loop.summary
    text = answer.error_message or "the run ended before the summary came"
    raise AbortedError(text) if answer.stop_reason == "aborted" else CompactionError(text)


@attrs.define(eq=False)
class _CompactionLoop:
    """Does a run in place of `run_loop`: one turn without an answer, in which the conversation is shortened."""

    instructions: str
    summary: CompactionSummaryMessage | None = None

    def __call__(
        self,
        prompts: Sequence[AgentMessage],
        context: AgentContext,
        config: AgentLoopConfig,
        signal: AbortSignal,
        ports: LoopPorts,
    ) -> Steps[AssistantMessage]:
        yield from ()  # it calls no tools
        compactor = ports.requests.compactor_of(config)
        assert compactor is not None
        assert not prompts
        tools = context.tools if ports.live_tools is None else ports.live_tools()

        def emit(event: Event) -> None:
            ports.emit(event)
            if isinstance(event, CompactionEndEvent):
                self.summary = event.summary

        ports.emit(AgentStartEvent(config.session_id))
        ports.emit(TurnStartEvent(1))
        answer = AssistantMessage()
        try:
            compactor.fit(
                FitRequest(
                    context=AgentContext(context.system_prompt, context.messages, tools),
                    options=ports.requests.options_of(config),
                    stream_fn=ports.stream_fn,
                    signal=signal,
                    emit=emit,
                    asked_for=self.instructions,
                )
            )
        except CompactionError as error:
            answer = made_answer("aborted" if signal.aborted else "error", str(error))
        ports.emit(TurnEndEvent(None))
        return answer
