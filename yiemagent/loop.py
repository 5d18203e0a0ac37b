"""The loop: ask the model, run the tools it calls, and again, until nothing is left to do.

One function, `run_loop`, serves both doors. It runs on the run's thread, iterates and never recurses, and a turn costs what is
new in it: no step walks the whole history for what an earlier one did. It emits everything from AgentStart to the last TurnEnd
and gives the run's answer; whoever runs it closes the run with AgentEnd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import attrs

from yiemagent.abort import AbortSignal
from yiemagent.batch import (
    BatchRules,
    ToolCallBatch,
    ToolExecution,
    execute_tool_calls,
    fail_tool_calls,
    fail_tool_calls_from_truncated_message,
)
from yiemagent.context import AgentContext, LlmContext
from yiemagent.errors import ConfigurationError
from yiemagent.events import (
    AgentStartEvent,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    TurnEndEvent,
    TurnStartEvent,
    notice_of,
)
from yiemagent.history import Repairer
from yiemagent.hooks import AfterToolCall, BeforeToolCall, Hooks, NextTurn, TurnContext, next_turn
from yiemagent.llm import StreamFn, StreamOptions
from yiemagent.messages import (
    AgentMessage,
    AssistantMessage,
    FrozenDict,
    LlmMessage,
    LlmModel,
    StopReason,
    TextContent,
    ToolCall,
    ToolResultMessage,
    Transcript,
    freeze_json,
    model_id,
)
from yiemagent.pipeline import Emit
from yiemagent.pool import DaemonPool
from yiemagent.streaming import (
    DoneEvent,
    ErrorEvent,
    PartialMessage,
    StartEvent,
    StreamNoticeEvent,
    new_call_id,
)
from yiemagent.tool import AgentTool

__all__ = [
    "AgentLoopConfig",
    "LoopPorts",
    "made_answer",
    "run_loop",
    "stream_assistant_response",
    "terminated_answer",
]

GetMessages = Callable[[], Iterable[AgentMessage]]


@attrs.frozen(kw_only=True)
class AgentLoopConfig:
    """How a loop works; every field has a default.

    Args:
        model: the model to ask, or None for the provider's own.
        reasoning: "off", "minimal", "low", "medium", "high", "xhigh", "max", or None for the provider's default.
        thinking_budgets: tokens that a reasoning level may think, by level.
        temperature, max_tokens, tool_choice: passed to the model; None leaves them to the provider.
        session_id: opaque key for caches and affinity, shown in events.
        tool_execution: "parallel": calls run side by side where every called tool allows it; "sequential": never;
            "barrier": neighbours that allow it run side by side, the others alone, in order.
        max_parallel_tools: how many calls run at once at most.
        max_turns: turns after which a run ends with an error; None lifts the limit.
        max_retry_delay_ms: the longest wait that a server may ask for.
        abort_grace_s: seconds that tools, hooks and sinks have to return after an abort.
        before_tool_call, after_tool_call, prepare_next_turn, should_stop_after_turn, transform_context,
            convert_to_llm: see `Hooks`.
        get_api_key, on_payload, on_response: see `StreamOptions`.
        get_steering_messages: gives messages that join the run before its next turn.
        get_follow_up_messages: gives messages that join the run when it would stop.
    """

    model: LlmModel | str | None = None
    reasoning: str | None = None
    thinking_budgets: Mapping[str, int] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    tool_choice: str | None = None
    session_id: str | None = None
    tool_execution: ToolExecution = attrs.field(
        default="parallel", validator=attrs.validators.in_(("parallel", "sequential", "barrier"))
    )
    max_parallel_tools: int = attrs.field(default=64, validator=attrs.validators.ge(1))
    max_turns: int | None = attrs.field(
        default=100, validator=attrs.validators.optional(attrs.validators.ge(1))
    )
    max_retry_delay_ms: int | None = 60_000
    abort_grace_s: float = attrs.field(default=1.0, validator=attrs.validators.ge(0))
    before_tool_call: BeforeToolCall | None = None
    after_tool_call: AfterToolCall | None = None
    prepare_next_turn: Callable[[TurnContext, AbortSignal], NextTurn | None] | None = None
    should_stop_after_turn: Callable[[TurnContext, AbortSignal], bool] | None = None
    transform_context: (
        Callable[[Sequence[AgentMessage], AbortSignal], Iterable[AgentMessage]] | None
    ) = None
    convert_to_llm: Callable[[Sequence[AgentMessage]], Iterable[LlmMessage]] | None = None
    get_api_key: Callable[[str], str | None] | None = None
    on_payload: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None
    on_response: Callable[[int, Mapping[str, str]], None] | None = None
    get_steering_messages: GetMessages | None = None
    get_follow_up_messages: GetMessages | None = None

    def hooks(self) -> Hooks:
        """The hooks of this config."""
        return Hooks(
            before_tool_call=self.before_tool_call,
            after_tool_call=self.after_tool_call,
            prepare_next_turn=self.prepare_next_turn,
            should_stop_after_turn=self.should_stop_after_turn,
            transform_context=self.transform_context,
            convert_to_llm=self.convert_to_llm,
        )

    def rules(self) -> BatchRules:
        """How this config runs tool calls."""
        return BatchRules(
            tool_execution=self.tool_execution,
            max_parallel_tools=self.max_parallel_tools,
            abort_grace_s=self.abort_grace_s,
        )

    def options(self) -> StreamOptions:
        """What this config asks of a model."""
        return StreamOptions(
            model=self.model,
            reasoning=self.reasoning,
            thinking_budgets=freeze_json(self.thinking_budgets or {}),
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            tool_choice=self.tool_choice,
            session_id=self.session_id,
            max_retry_delay_ms=self.max_retry_delay_ms,
            get_api_key=self.get_api_key,
            on_payload=self.on_payload,
            on_response=self.on_response,
        )


@attrs.frozen(kw_only=True)
class LoopPorts:
    """What a loop needs of the world around it.

    Args:
        stream_fn: asks the model.
        emit: takes the events, in order.
        pool: runs the tool calls.
        live_tools: gives the tools on offer, asked once a turn; None: the context's own.
        prepare_context: shown the context of each request, gives the one to send; None sends it as it is.
    """

    stream_fn: StreamFn
    emit: Emit
    pool: DaemonPool
    live_tools: Callable[[], Mapping[str, AgentTool]] | None = None
    prepare_context: Callable[[AgentContext], AgentContext] | None = None


def run_loop(
    prompts: Sequence[AgentMessage],
    context: AgentContext,
    config: AgentLoopConfig,
    signal: AbortSignal,
    ports: LoopPorts,
) -> AssistantMessage:
    """Run until nothing is left to do, and give the answer.

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
    texts = [block for result in results for block in result.content if isinstance(block, TextContent)]
    failed = any(result.is_error for result in results)
    return AssistantMessage(
        (TextContent("Tool execution completed."), *texts),
        api=last.api,
        provider=last.provider,
        model=last.model,
        stop_reason="tool_use_terminated",
        error_message="One or more tool calls failed" if failed else None,
    )


@attrs.define
class _Loop:
    """A loop under way; owned by the run's thread."""

    context: AgentContext
    config: AgentLoopConfig
    signal: AbortSignal
    ports: LoopPorts
    turn: int = 0
    new_messages: Transcript = attrs.field(factory=Transcript)
    requests: _Requests = attrs.field(factory=lambda: _Requests())

    def run(self, prompts: Sequence[AgentMessage]) -> AssistantMessage:
        self.ports.emit(AgentStartEvent(self.config.session_id))
        pending = self._first(prompts)
        while True:
            message, batch = self._turn(pending)
            if message is None or (self.signal.aborted and batch.messages and not message.failed):
                return self._aborted(message)
            if message.failed or self.signal.aborted:
                return message
            if self._stops(message, batch):
                return _answer(message, batch)
            more = bool(batch.messages) and not batch.terminate
            if self.config.max_turns is not None and self.turn >= self.config.max_turns:
                return self._limit(message) if more else _answer(message, batch)
            pending = _take(self.config.get_steering_messages)
            if not more and not pending:
                pending = _take(self.config.get_follow_up_messages)
                if not pending:
                    return _answer(message, batch)

    def _first(self, prompts: Sequence[AgentMessage]) -> tuple[AgentMessage, ...]:
        pending = (*prompts, *_take(self.config.get_steering_messages))
        history = self.context.messages
        if not pending and history and isinstance(history[-1], AssistantMessage):
            pending = _take(self.config.get_follow_up_messages)
        return pending

    # -- one turn --

    def _turn(
        self, pending: Sequence[AgentMessage]
    ) -> tuple[AssistantMessage | None, ToolCallBatch]:
        """Take messages in, ask the model and run its calls; no message: the run was aborted before it was asked."""
        emit = self.ports.emit
        self.turn += 1
        emit(TurnStartEvent(self.turn))
        for joining in pending:
            emit(MessageStartEvent(joining))
            self._add(joining)
            emit(MessageEndEvent(joining))
        if self.signal.aborted:
            emit(TurnEndEvent(None))
            return None, ToolCallBatch(())
        message, offered = self._ask_twice()
        batch = self._run_calls(message, offered)
        for result in batch.messages:
            self._add(result)
        emit(TurnEndEvent(message, batch.messages))
        return message, batch

    def _ask_twice(self) -> tuple[AssistantMessage, AgentContext]:
        """Ask the model, and once more where its answer is empty; the empty one stays in the history as an error."""
        message, offered = self._ask()
        if message.error_message == EMPTY_TEXT and not self.signal.aborted:
            message, offered = self._ask()
        return message, offered

    def _ask(self) -> tuple[AssistantMessage, AgentContext]:
        if self.ports.live_tools is not None:
            self.context = _with_tools(self.context, self.ports.live_tools())
        offered = self.context
        if self.ports.prepare_context is not None:
            offered = self.ports.prepare_context(offered)
        message = stream_assistant_response(
            offered, self.config, self.signal, self.ports, self.requests
        )
        self._add(message)
        self.ports.emit(MessageEndEvent(message))
        return message, offered

    def _run_calls(self, message: AssistantMessage, offered: AgentContext) -> ToolCallBatch:
        calls = message.tool_calls
        if not calls:
            return ToolCallBatch(())
        if message.failed:
            text = f"This call was not run: the answer that holds it failed ({message.error_message})"
            return fail_tool_calls(calls, text, self.ports.emit)
        if message.stop_reason == "length":
            return fail_tool_calls_from_truncated_message(calls, self.ports.emit)
        return execute_tool_calls(
            offered,
            message,
            self.config.hooks(),
            self.signal,
            self.ports.emit,
            rules=self.config.rules(),
            pool=self.ports.pool,
        )

    def _add(self, message: AgentMessage) -> None:
        history = Transcript.of(self.context.messages).append(message)
        self.context = AgentContext(self.context.system_prompt, history, self.context.tools)
        self.new_messages = self.new_messages.append(message)

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
        return TurnContext(message, batch.messages, self.context, self.new_messages)

    def _change(self, change: NextTurn) -> None:
        if change.context is not None:
            if change.context.tools is not self.context.tools:
                self.ports = attrs.evolve(self.ports, live_tools=None)
            self.context = change.context
        if change.model is not None:
            self.config = attrs.evolve(self.config, model=change.model)
        if change.thinking_level is not None:
            self.config = attrs.evolve(self.config, reasoning=change.thinking_level)

    def _aborted(self, last: AssistantMessage | None) -> AssistantMessage:
        reason = self.signal.reason
        return made_answer("aborted", f"aborted: {reason}" if reason else "aborted", last)

    def _limit(self, last: AssistantMessage) -> AssistantMessage:
        turns = self.config.max_turns
        return made_answer(
            "error", f"stopped after {turns} turns (max_turns={turns}) with tool calls to go on", last
        )


def _take(getter: GetMessages | None) -> tuple[AgentMessage, ...]:
    return tuple(getter()) if getter is not None else ()


def _answer(message: AssistantMessage, batch: ToolCallBatch) -> AssistantMessage:
    return terminated_answer(message, batch.messages) if batch.terminate else message


def _with_tools(context: AgentContext, tools: Mapping[str, AgentTool]) -> AgentContext:
    if tools is context.tools:
        return context
    return AgentContext(context.system_prompt, context.messages, tools)


# --- one model answer ------------------------------------------------------------------------------------------------


@attrs.define
class _Requests:
    """What requests of one loop share: the messages converted and repaired so far; and the options."""

    source: Transcript = attrs.field(factory=Transcript)
    converted: Transcript = attrs.field(factory=Transcript)
    repairer: Repairer = attrs.field(factory=Repairer)
    config: AgentLoopConfig | None = None
    options: StreamOptions = attrs.field(factory=StreamOptions)

    def messages(
        self, context: AgentContext, config: AgentLoopConfig, signal: AbortSignal
    ) -> Sequence[LlmMessage]:
        """Give the messages to send: transformed, converted, and with every call paired with its result."""
        source: Sequence[AgentMessage] = context.messages
        if config.transform_context is not None:
            source = tuple(config.transform_context(source, signal))
        if config.convert_to_llm is not None:
            converted = Transcript(config.convert_to_llm(source))
        else:
            converted = self._by_kind(Transcript.of(source))
        return self.repairer.repair(cast("Sequence[LlmMessage]", converted))

    def _by_kind(self, source: Transcript) -> Transcript:
        if not source.continues(self.source):
            self.source, self.converted = Transcript(), Transcript()
        for message in source[len(self.source) :]:
            sent = message.to_llm()
            if sent is not None:
                self.converted = self.converted.append(sent)
        self.source = source
        return self.converted

    def options_of(self, config: AgentLoopConfig) -> StreamOptions:
        """Give what `config` asks of a model."""
        if config is not self.config:
            self.config, self.options = config, config.options()
        return self.options


def stream_assistant_response(
    context: AgentContext,
    config: AgentLoopConfig,
    signal: AbortSignal,
    ports: LoopPorts,
    requests: _Requests | None = None,
) -> AssistantMessage:
    """Ask the model for one answer; emits its MessageStart and updates, and leaves MessageEnd to the caller.

    Args:
        context: what to send, after `prepare_context`.
        config: how to ask.
        signal: the run's.
        ports: whom to ask and whom to tell.
        requests: what earlier requests of the loop already worked out; None begins anew.

    Returns:
        The whole answer; where the stream failed, raised or never ended, one whose stop reason is "error".

    Raises:
        Exception: what `transform_context` or `convert_to_llm` raises.
    """
    if not isinstance(context, AgentContext):
        raise ConfigurationError(f"prepare_context gave {context!r}; give an AgentContext")
    requests = requests or _Requests()
    sent = LlmContext(
        context.system_prompt, requests.messages(context, config, signal), context.tools
    )
    answer = _Answer(ports.emit, model_id(config.model))
    try:
        for event in ports.stream_fn(sent, requests.options_of(config), signal):
            if answer.take(event):
                break
    except Exception as error:  # noqa: BLE001 - a user's StreamFn may raise anything; the run must end with an answer
        answer.fail(error, signal)
    return answer.message(signal)


@attrs.define
class _Answer:
    """An answer while it comes; owned by the run's thread."""

    emit: Emit
    model: str
    started: bool = False
    partial: PartialMessage = attrs.field(factory=PartialMessage.first)
    final: AssistantMessage | None = None

    def take(self, event: Any) -> bool:
        """Tell of a stream event; gives whether the stream is over."""
        if isinstance(event, (DoneEvent, ErrorEvent)):
            self.final = event.message
            return True
        if isinstance(event, StreamNoticeEvent):
            self.emit(notice_of(event))
            return False
        self.partial = self.partial.add(event)
        if isinstance(event, StartEvent):
            self._start(self.partial.build())
            return False
        if not self.started:
            self._start(AssistantMessage(model=self.model))
        self.emit(MessageUpdateEvent(event, self.partial))
        return False

    def _start(self, message: AssistantMessage) -> None:
        if not self.started:
            self.started = True
            self.emit(MessageStartEvent(message))

    def fail(self, error: Exception, signal: AbortSignal) -> None:
        """End the answer with what came of it."""
        self._end(f"{type(error).__name__}: {error}", signal)

    def _end(self, text: str, signal: AbortSignal) -> None:
        so_far = self.partial.build()
        reason: StopReason = "aborted" if signal.aborted else "error"
        self.final = attrs.evolve(
            so_far, model=so_far.model or self.model, stop_reason=reason, error_message=text
        )

    def message(self, signal: AbortSignal) -> AssistantMessage:
        """Give the answer as the history keeps it."""
        if self.final is None:
            self._end("the stream ended without a Done or Error event", signal)
        final = _marked_if_empty(_with_own_ids(cast("AssistantMessage", self.final)))
        if not self.started:
            self._start(attrs.evolve(final, content=(), usage=None))
        return final


EMPTY_TEXT = "the model gave an empty answer: neither text nor a tool call"


def _marked_if_empty(message: AssistantMessage) -> AssistantMessage:
    """Mark an answer that says nothing as an error, so that it is asked for again and left out of requests."""
    if message.failed or message.tool_calls:
        return message
    says = any(isinstance(b, TextContent) and b.text.strip() or b.type == "image" for b in message.content)
    if says and message.stop_reason != "tool_use":
        return message
    return attrs.evolve(message, stop_reason="error", error_message=EMPTY_TEXT)


def _with_own_ids(message: AssistantMessage) -> AssistantMessage:
    """Give every call of a message an id of its own: a missing or doubled one gets a fresh one."""
    seen: set[str] = set()
    changed = False
    blocks: list[Any] = []
    for block in message.content:
        kept = block
        if isinstance(block, ToolCall):
            if not block.id or block.id in seen or block.partial_json is not None:
                kept = _own(block, seen)
                changed = True
            seen.add(kept.id)
        blocks.append(kept)
    return attrs.evolve(message, content=tuple(blocks)) if changed else message


def _own(call: ToolCall, seen: set[str]) -> ToolCall:
    fresh = call.id if call.id and call.id not in seen else new_call_id()
    arguments: FrozenDict | str = call.arguments
    if call.partial_json is not None and not arguments:
        arguments = call.partial_json
    return ToolCall(fresh, call.name, arguments, None, call.signature)
