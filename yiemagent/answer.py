"""One answer of a model: what is sent, how it streams in, and how the history keeps it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from yiemagent.abort import AbortSignal
from yiemagent.config import AgentLoopConfig, Compaction, Compactor
from yiemagent.context import AgentContext, LlmContext
from yiemagent.errors import BadResponseError, ConfigurationError, error_text
from yiemagent.events import MessageStartEvent, MessageUpdateEvent, notice_of
from yiemagent.history import Repairer
from yiemagent.llm import StreamFn, StreamOptions
from yiemagent.messages import (
    AgentMessage,
    AssistantMessage,
    LlmMessage,
    LlmUsage,
    StopReason,
    TextContent,
    model_id,
)
from yiemagent.pipeline import Emit
from yiemagent.streaming import (
    DoneEvent,
    ErrorEvent,
    PartialMessage,
    StartEvent,
    StreamNoticeEvent,
    TextDeltaEvent,
    TextEndEvent,
    TextStartEvent,
    ThinkingDeltaEvent,
    ThinkingEndEvent,
    ThinkingStartEvent,
    ToolCallDeltaEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
    with_own_ids,
)

__all__ = ["EMPTY_TEXT", "Requests", "stream_assistant_response"]


@attrs.define(eq=False, repr=False)
class Requests:
    """What requests of one loop share: the part of the history that is repaired already, and the options.

    `error` is what the latest answer failed with, where a stream told.
    """

    repairer: Repairer = attrs.field(factory=Repairer)
    config: AgentLoopConfig | None = None
    options: StreamOptions | None = None
    error: Exception | None = None
    compaction: Compaction | None = None
    compactor: Compactor | None = None

    def messages(
        self, context: AgentContext, config: AgentLoopConfig, signal: AbortSignal
    ) -> Sequence[LlmMessage]:
        """Give the messages to send: transformed, converted, and with every call paired with its result."""
        source: Sequence[AgentMessage] = context.messages
        if config.transform_context is not None:
            source = _given("transform_context", config.transform_context(source, signal))
        if config.convert_to_llm is not None:
            source = _given("convert_to_llm", config.convert_to_llm(source))
        return self.repairer.repair(source)

    def options_of(self, config: AgentLoopConfig) -> StreamOptions:
        """Give what `config` asks of a model."""
        if self.options is None or config is not self.config:
            self.config, self.options = config, config.options()
        return self.options

    def compactor_of(self, config: AgentLoopConfig) -> Compactor | None:
        """Give what keeps the requests of this loop within the window, as `config` asks for it."""
        if config.compaction is not self.compaction:
            self.compaction = config.compaction
            self.compactor = None if config.compaction is None else config.compaction.begin()
        return self.compactor


def stream_assistant_response(
    context: AgentContext,
    config: AgentLoopConfig,
    signal: AbortSignal,
    *,
    emit: Emit,
    stream_fn: StreamFn,
    requests: Requests | None = None,
) -> AssistantMessage:
    """Ask the model for one answer; emits its MessageStart and updates, and leaves MessageEnd to the caller.

    Args:
        context: what to send, after `prepare_context`.
        config: how to ask.
        signal: the run's.
        emit: takes the events.
        stream_fn: asks the model.
        requests: what earlier requests of the loop already worked out; None begins anew.

    Returns:
        The whole answer; where the stream failed, raised or never ended, one whose stop reason is "error".

    Raises:
        Exception: what `transform_context` or `convert_to_llm` raises.
    """
    if not isinstance(context, AgentContext):
        raise ConfigurationError(f"prepare_context gave {context!r}; give an AgentContext")
    requests = requests or Requests()
    sent = LlmContext(
        context.system_prompt, requests.messages(context, config, signal), context.tools
    )
    answer = _Answer(emit, model_id(config.model))
    try:
        for event in stream_fn(sent, requests.options_of(config), signal):
            if answer.take(event):
                break
    except Exception as error:  # a stream of the user's own may raise anything: the answer failed
        answer.end(signal.why if signal.aborted else error_text(error), signal)
        answer.error = error
    requests.error = answer.error
    return answer.message(signal)


def _given(hook: str, messages: Any) -> tuple[AgentMessage, ...]:
    """Give what a hook gave as messages."""
    given = tuple(messages) if isinstance(messages, Iterable) else (messages,)
    for message in given:
        if not hasattr(message, "to_llm"):
            raise ConfigurationError(f"{hook} gave {message!r}; give messages, such as UserMessage")
    return given


@attrs.define(eq=False, repr=False)
class _Answer:
    """An answer while it comes; owned by the run's thread."""

    emit: Emit
    model: str
    started: bool = False
    partial: PartialMessage | None = None
    final: AssistantMessage | None = None
    error: Exception | None = None

    def take(self, event: Any) -> bool:
        """Tell of a stream event; gives whether the stream is over."""
        if isinstance(event, (DoneEvent, ErrorEvent)):
            self.final = _checked(event)
            self.error = event.error if isinstance(event, ErrorEvent) else None
            return True
        if isinstance(event, StreamNoticeEvent):
            self.emit(notice_of(event))
            return False
        if not isinstance(event, _PIECES):
            raise BadResponseError(f"the stream gave {event!r}, which is no stream event")
        self.partial = (self.partial or PartialMessage.first()).add(event)
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

    def end(self, text: str, signal: AbortSignal) -> None:
        """End the answer with what came of it."""
        so_far = (self.partial or PartialMessage.first()).build()
        reason: StopReason = "aborted" if signal.aborted else "error"
        self.final = attrs.evolve(
            so_far, model=so_far.model or self.model, stop_reason=reason, error_message=text
        )

    def message(self, signal: AbortSignal) -> AssistantMessage:
        """Give the answer as the history keeps it."""
        if self.final is None:
            cut = "the stream ended without a Done or Error event"
            self.end(signal.why if signal.aborted else cut, signal)
        assert self.final is not None
        final = _marked_if_empty(with_own_ids(self.final))
        if not self.started:
            self._start(_empty(final))
        return final


def _empty(message: AssistantMessage) -> AssistantMessage:
    """Give a message as it was when it began; by hand, since every answer that comes whole needs it."""
    return AssistantMessage(
        (),
        message.api,
        message.provider,
        message.model,
        None,
        message.stop_reason,
        message.raw_stop_reason,
        message.error_message,
        message.response_id,
        message.timestamp,
    )


_PIECES = (
    TextDeltaEvent,
    ToolCallDeltaEvent,
    ThinkingDeltaEvent,
    StartEvent,
    TextStartEvent,
    TextEndEvent,
    ThinkingStartEvent,
    ThinkingEndEvent,
    ToolCallStartEvent,
    ToolCallEndEvent,
)


def _checked(event: DoneEvent | ErrorEvent) -> AssistantMessage:
    """Give the message that a stream ends with; that of an Error event failed, whatever it says of itself."""
    message = event.message
    if not isinstance(message, AssistantMessage):
        raise BadResponseError(f"the stream ended with {message!r}, which is no AssistantMessage")
    misfit = _misfit(message.usage)
    if misfit is not None:
        raise BadResponseError(f"the stream ended with a message whose {misfit}")
    if message.failed or isinstance(event, DoneEvent):
        return message
    text = message.error_message or error_text(event.error or BadResponseError("the stream failed"))
    return attrs.evolve(message, stop_reason="error", error_message=text)


def _misfit(usage: Any) -> str | None:
    """Say why what an answer consumed can't be added to what the run did; None: it can."""
    if usage is None:
        return None
    if not isinstance(usage, LlmUsage):
        return f"usage is {usage!r}; give an LlmUsage"
    cost: Any = usage.cost
    if not isinstance(cost, float | int | None):
        return f"usage.cost is {cost!r}; give a number, or None"
    return None


EMPTY_TEXT = "the model gave an empty answer: neither text nor a tool call"


def _marked_if_empty(message: AssistantMessage) -> AssistantMessage:
    """Mark an answer that says nothing as an error, so that it is asked for again and left out of requests."""
    if message.failed or message.tool_calls:
        return message
    says = any(
        (isinstance(b, TextContent) and b.text.strip()) or b.type == "image"
        for b in message.content
    )
    if says and message.stop_reason != "tool_use":
        return message
    return attrs.evolve(message, stop_reason="error", error_message=EMPTY_TEXT)
