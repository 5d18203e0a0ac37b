"""The loop: ask the model, run the tools it calls, and again, until nothing is left to do.

One function, `run_loop`, serves both doors. It runs on the run's thread, iterates and never recurses, and a turn
costs what is new in it: no step walks the whole history for what an earlier one did. It emits everything from
AgentStart to the last TurnEnd and gives the run's answer; whoever runs it closes the run with AgentEnd.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from yiemagent.abort import AbortSignal
from yiemagent.answer import EMPTY_TEXT, Requests, stream_assistant_response
from yiemagent.batch import (
    ToolCallBatch,
    execute_tool_calls,
    fail_tool_calls,
    fail_tool_calls_from_truncated_message,
)
from yiemagent.config import AgentLoopConfig, FitRequest, GetMessages
from yiemagent.context import AgentContext
from yiemagent.errors import CompactionError, ContextOverflowError
from yiemagent.events import (
    AgentStartEvent,
    CompactionEndEvent,
    Event,
    MessageEndEvent,
    MessageStartEvent,
    TurnEndEvent,
    TurnStartEvent,
)
from yiemagent.hooks import NextTurn, TurnContext, next_turn
from yiemagent.limits import LimitReached, Spending, noted_usage
from yiemagent.llm import StreamFn
from yiemagent.messages import (
    AgentMessage,
    AssistantMessage,
    StopReason,
    TextContent,
    ToolCall,
    ToolResultMessage,
)
from yiemagent.pausing import paused_answer
from yiemagent.pipeline import Emit
from yiemagent.pool import DaemonPool
from yiemagent.relay import Steps
from yiemagent.tool import AgentTool
from yiemagent.transcript import Transcript, transcript, with_results_in_order

if TYPE_CHECKING:
    from yiemagent.final_answer import FinalAnswer

__all__ = [
    "LoopPorts",
    "made_answer",
    "run_loop",
    "terminated_answer",
]


@attrs.frozen(kw_only=True)
class LoopPorts:
    """What a loop needs of the world around it.

    Args:
        stream_fn: asks the model.
        emit: takes the events, in order.
        pool: runs the tool calls.
        live_tools: gives the tools on offer, asked once a turn; None: the context's own.
        prepare_context: shown the context of each request, gives the one to send; None sends it as it is.
        requests: what earlier requests of the conversation worked out; this loop's alone while it runs.
        get_steering_messages, get_follow_up_messages: the owner's queues; None: the config's.
        begin_call: called with each tool call right before it begins; what it raises keeps the call from running and
            ends the run. None: nobody needs to know.
        takes_up: whether to begin with the calls of the history's last answer that have no result.
        name: the run's, for the log.
    """

    stream_fn: StreamFn
    emit: Emit
    pool: DaemonPool
    live_tools: Callable[[], Mapping[str, AgentTool]] | None = None
    prepare_context: Callable[[AgentContext], AgentContext] | None = None
    requests: Requests = attrs.field(factory=Requests)
    get_steering_messages: GetMessages | None = None
    get_follow_up_messages: GetMessages | None = None
    begin_call: Callable[[ToolCall], None] | None = None
    takes_up: bool = False
    name: str = "a run"


def run_loop(
    prompts: Sequence[AgentMessage],
    context: AgentContext,
    config: AgentLoopConfig,
    signal: AbortSignal,
    ports: LoopPorts,
) -> Steps[AssistantMessage]:
    """Run until nothing is left to do, and give the answer.

    A generator: it yields the tool calls that are to be made on the run's thread, and gives the answer at its end.

    Args:
        prompts: messages that begin the run; none continues the history as it is.
        context: what the run begins with; it is not changed.
        config: how to work.
        signal: the run's.
        ports: the world.

    Returns:
        The run's last assistant message; or one that is made, where the run ended without a finished one.

    Raises:
        Exception: what a hook other than those around tool calls raises.
    """
    return _Loop(context, config, signal, ports).run(prompts)


def made_answer(
    stop_reason: StopReason, error_message: str, last: AssistantMessage | None = None
) -> AssistantMessage:
    """Give the answer of a run that ended without a finished one; it enters no history and no request."""
    if last is None:
        return AssistantMessage(stop_reason=stop_reason, error_message=error_message)
    return AssistantMessage(
        api=last.api,
        provider=last.provider,
        model=last.model,
        stop_reason=stop_reason,
        error_message=error_message,
    )


def terminated_answer(
    last: AssistantMessage, results: Sequence[ToolResultMessage]
) -> AssistantMessage:
    """Give the answer of a run whose tools asked it to stop: their texts."""
    texts = [
        block for result in results for block in result.content if isinstance(block, TextContent)
    ]
    failed = any(result.is_error for result in results)
    return AssistantMessage(
        (TextContent("Tool execution completed."), *texts),
        api=last.api,
        provider=last.provider,
        model=last.model,
        stop_reason="tool_use_terminated",
        error_message="One or more tool calls failed" if failed else None,
    )


@attrs.define(eq=False, repr=False)
class _Loop:
    """A loop under way; owned by the run's thread."""

    context: AgentContext
    config: AgentLoopConfig
    signal: AbortSignal
    ports: LoopPorts
    turn: int = 0
    latest: AssistantMessage | None = None
    answered: AssistantMessage | None = None  # the latest of this turn
    replaced: bool = False  # whether `prepare_next_turn` gave a context of its own
    # What the context does not hold yet is behind it here: a context is made when somebody is shown one.
    history: Transcript = attrs.field(init=False)
    new: list[AgentMessage] = attrs.field(factory=list)
    shown_new: Transcript = attrs.field(factory=Transcript)
    final: FinalAnswer | None = None  # looks after an answer that must fit a schema
    spending: Spending | None = None  # where there are limits to it
    over: str | None = None  # which limit kept an empty answer from being asked for again

    def __attrs_post_init__(self) -> None:
        self.history = transcript(self.context.messages)
        config = self.config
        if config.max_cost is not None or config.max_total_tokens is not None:
            self.spending = Spending()
        if config.output_schema is not None:
            from yiemagent.final_answer import FinalAnswer  # for who asks for one only

            self.final = FinalAnswer.of(config, self.ports.stream_fn)

    def run(self, prompts: Sequence[AgentMessage]) -> Steps[AssistantMessage]:
        self.ports.emit(AgentStartEvent(self.config.session_id))
        taken_up = (yield from self._take_up()) if self.ports.takes_up else ()
        if isinstance(taken_up, AssistantMessage):
            return taken_up
        pending = (*taken_up, *self._first(prompts))
        while True:
            try:
                message, batch = yield from self._turn(pending)
            except (CompactionError, LimitReached) as error:
                return self._not_sent(error)
            if message is None or message.failed:
                return self._failed(message)
            # Asked twice: an abort ends the run at once, its queues untouched, also where a hook was told of it.
            over = self.signal.aborted or batch.is_paused
            if over or self._stops(message, batch) or self.signal.aborted:
                return self._last(message, batch)
            answer = self._answer(message, batch)
            stop = self._must_stop(batch)
            if stop is not None:
                return answer or made_answer("error", stop, message)
            pending = self._steering()
            if answer is None:
                pending = (*self._reminder(message), *pending)
            elif not pending:
                pending = self._follow_ups()
                if not pending:
                    return answer

    def _first(self, prompts: Sequence[AgentMessage]) -> tuple[AgentMessage, ...]:
        pending = (*prompts, *self._steering())
        last = self.history[-1] if self.history else None
        if not pending and isinstance(last, AssistantMessage) and not last.failed:
            pending = self._follow_ups()
        return pending

    def _steering(self) -> tuple[AgentMessage, ...]:
        return _take(self.ports.get_steering_messages or self.config.get_steering_messages)

    def _follow_ups(self) -> tuple[AgentMessage, ...]:
        return _take(self.ports.get_follow_up_messages or self.config.get_follow_up_messages)

    def _take_up(self) -> Steps[AssistantMessage | tuple[AgentMessage, ...]]:
        """Run the calls that an interrupted run left without a result, as a turn of their own.

        Gives the run's answer where they end it, else what joins the next turn.
        """
        message = _with_open_calls(self.history)
        if message is None:
            return ()
        self.turn += 1
        self.ports.emit(TurnStartEvent(self.turn))
        live = self.ports.live_tools
        offered = self._shown_context(None if live is None else live())
        batch = yield from self._run_calls(message, offered)
        for result in batch.messages:
            self._add(result)
        self.history = with_results_in_order(self.history)
        self.ports.emit(TurnEndEvent(None, batch.messages))
        if self.signal.aborted:
            return self._aborted()
        if batch.is_paused:
            return paused_answer(message, batch.messages)
        if not batch.terminate:
            return ()
        waiting = self._steering() or self._follow_ups()
        return waiting or terminated_answer(message, batch.messages)

    # -- one turn --

    def _turn(
        self, pending: Sequence[AgentMessage]
    ) -> Steps[tuple[AssistantMessage | None, ToolCallBatch]]:
        """Take messages in, ask the model and run its calls; no message: the run was aborted before it was asked."""
        emit = self.ports.emit
        self.turn += 1
        self.answered = None
        emit(TurnStartEvent(self.turn))
        for joining in pending:
            emit(MessageStartEvent(joining))
            self._add(joining)
            emit(MessageEndEvent(joining))
        if self.signal.aborted:
            emit(TurnEndEvent(None))
            return None, ToolCallBatch(())
        message, offered = self._ask_twice()
        batch = yield from self._run_calls(message, offered)
        for result in batch.messages:
            self._add(result)
        emit(TurnEndEvent(message, batch.messages))
        return message, batch

    def _ask_twice(self) -> tuple[AssistantMessage, AgentContext]:
        """Ask the model, and once more where its answer is empty; the empty one stays in the history as an error."""
        message, offered = self._ask()
        if message.error_message == EMPTY_TEXT and not self.signal.aborted:
            self.over = self._over()
            if self.over is None:
                message, offered = self._ask()
        return message, offered

    def _ask(self) -> tuple[AssistantMessage, AgentContext]:
        """Ask the model, and once more with a shorter context where it refused this one as too long."""
        message, offered = self._ask_once()
        overflow = self.ports.requests.error
        if self.config.compaction is None or not isinstance(overflow, ContextOverflowError):
            return message, offered
        return self._ask_once(overflow)

    def _ask_once(
        self, overflow: ContextOverflowError | None = None
    ) -> tuple[AssistantMessage, AgentContext]:
        live = self.ports.live_tools
        offered = self._fitted(self._shown_context(None if live is None else live()), overflow)
        over = self._over()  # a summary may have been the last that the run could pay for
        if over is not None:
            raise LimitReached(over)
        if self.ports.prepare_context is not None:
            offered = self.ports.prepare_context(offered)
        config = self.config
        if self.final is not None:
            offered, config = self.final.offer(offered), self.final.asking(config)
        message = stream_assistant_response(
            offered,
            config,
            self.signal,
            emit=self.ports.emit,
            stream_fn=self.ports.stream_fn,
            requests=self.ports.requests,
        )
        if self.final is not None:
            message = self.final.read(message)
        self.latest = self.answered = message
        self._add(message)
        self.ports.emit(MessageEndEvent(message))
        return message, offered

    def _fitted(self, offered: AgentContext, overflow: ContextOverflowError | None) -> AgentContext:
        """Give the conversation as it fits into the model's window, and go on with that."""
        requests = self.ports.requests
        compactor = requests.compactor_of(self.config)
        if compactor is None:
            return offered
        request = FitRequest(
            context=offered,
            options=requests.options_of(self.config),
            stream_fn=self.ports.stream_fn,
            signal=self.signal,
            emit=self._count_summaries if self.spending is not None else self.ports.emit,
            overflow=overflow,
            lasting=not self.replaced,
        )
        self.history = transcript(compactor.fit(request))
        return self._shown_context(offered.tools)

    def _count_summaries(self, event: Event) -> None:
        """Emit what a compaction tells, and count what it consumed."""
        if isinstance(event, CompactionEndEvent) and self.spending is not None:
            used = noted_usage(event.details)
            if used is not None:
                self.spending.add(used, "the model that summarised")
        self.ports.emit(event)

    def _run_calls(self, message: AssistantMessage, offered: AgentContext) -> Steps[ToolCallBatch]:
        calls = message.tool_calls
        if not calls:
            return ToolCallBatch(())
        if message.failed:
            text = (
                f"This call was not run: the answer that holds it failed ({message.error_message})"
            )
            return fail_tool_calls(calls, text, self.ports.emit)
        if message.stop_reason == "length":
            return fail_tool_calls_from_truncated_message(calls, self.ports.emit)
        return (
            yield from execute_tool_calls(
                offered,
                message,
                self.config if self.final is None else self.final.running(self.config),
                self.signal,
                self.ports.emit,
                pool=self.ports.pool,
                begin=self.ports.begin_call,
                name=self.ports.name,
            )
        )

    def _add(self, message: AgentMessage) -> None:
        self.history = self.history.append(message)
        self.new.append(message)
        if self.spending is not None:
            self.spending.take(message)

    def _shown_context(self, tools: Mapping[str, AgentTool] | None = None) -> AgentContext:
        """Give the conversation so far, with `tools` where they are given."""
        context = self.context
        if tools is None:
            tools = context.tools
        if context.messages is not self.history or context.tools is not tools:
            self.context = AgentContext(context.system_prompt, self.history, tools)
        return self.context

    # -- between turns --

    def _stops(self, message: AssistantMessage, batch: ToolCallBatch) -> bool:
        """Let `prepare_next_turn` change what comes, and ask `should_stop_after_turn`."""
        config = self.config
        if config.prepare_next_turn is not None:
            change = next_turn(config.prepare_next_turn(self._shown(message, batch), self.signal))
            if change is not None:
                self._change(change)
        if config.should_stop_after_turn is None:
            return False
        return bool(config.should_stop_after_turn(self._shown(message, batch), self.signal))

    def _shown(self, message: AssistantMessage, batch: ToolCallBatch) -> TurnContext:
        self.shown_new = self.shown_new.extend(self.new[len(self.shown_new) :])
        return TurnContext(message, batch.messages, self._shown_context(), self.shown_new)

    def _change(self, change: NextTurn) -> None:
        if change.context is not None:
            if change.context.tools is not self.context.tools:
                self.ports = attrs.evolve(self.ports, live_tools=None)
            self.context = change.context
            self.history = transcript(change.context.messages)
            self.replaced = True
        if change.model is not None:
            self.config = attrs.evolve(self.config, model=change.model)
        if change.thinking_level is not None:
            self.config = attrs.evolve(self.config, reasoning=change.thinking_level)

    def _last(self, message: AssistantMessage, batch: ToolCallBatch) -> AssistantMessage:
        """Give the answer of a run that ends after this turn, whatever is left to do."""
        if self.signal.aborted and batch.messages:
            return self._aborted()
        return self._answer(message, batch) or message

    def _answer(self, message: AssistantMessage, batch: ToolCallBatch) -> AssistantMessage | None:
        """Give the answer that a turn came to; None: there is more to do."""
        if batch.is_paused:
            return paused_answer(message, batch.messages)
        if batch.terminate:
            return terminated_answer(message, batch.messages)
        if self.final is not None:
            return self.final.given(message, batch.messages)
        return None if batch.messages else message

    def _reminder(self, message: AssistantMessage) -> tuple[AgentMessage, ...]:
        return () if self.final is None else self.final.reminder(message)

    def _failed(self, message: AssistantMessage | None) -> AssistantMessage:
        if message is None:
            return self._aborted()
        return message if self.over is None else made_answer("error", self.over, message)

    def _aborted(self) -> AssistantMessage:
        return made_answer("aborted", self.signal.why, self.latest)

    def _not_sent(self, error: CompactionError | LimitReached) -> AssistantMessage:
        """End the turn whose request did not go out, too long or over a limit, and give the run's answer."""
        refused = self.answered
        self.ports.emit(TurnEndEvent(refused))
        if self.signal.aborted:
            return self._aborted()
        text = str(error) if refused is None else f"{refused.error_message}; {error}"
        return made_answer("error", text, self.latest)

    def _must_stop(self, batch: ToolCallBatch) -> str | None:
        """Give why no further request may go out, or None."""
        if self.final is not None and self.final.failed:
            return self.final.failure
        turns = self.config.max_turns
        if turns is None or self.turn < turns:
            return self._over()
        words = "1 turn" if turns == 1 else f"{turns} turns"
        left = "tool calls to go on" if batch.messages else "no answer that fits output_schema"
        return f"stopped after {words} (max_turns={turns}) with {left}"

    def _over(self) -> str | None:
        """Give which limit of what a run may spend is reached, or None."""
        if self.spending is None:
            return None
        return self.spending.limit(self.config.max_cost, self.config.max_total_tokens)


def _take(getter: GetMessages | None) -> tuple[AgentMessage, ...]:
    return tuple(getter()) if getter is not None else ()


def _with_open_calls(history: Sequence[AgentMessage]) -> AssistantMessage | None:
    """Give the last answer with those of its calls that have no result; None where there are none."""
    answered = set()
    for message in reversed(history):
        if isinstance(message, ToolResultMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AssistantMessage):
            left = [call for call in message.tool_calls if call.id not in answered]
            return attrs.evolve(message, content=left) if left else None
        else:
            break
    return None
