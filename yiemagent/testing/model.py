"""A model that gives prepared answers, and short words for the answers that tests need."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from yiemagent.abort import AbortSignal
from yiemagent.builder import MessageBuilder
from yiemagent.context import LlmContext
from yiemagent.llm import StreamOptions
from yiemagent.messages import (
    AssistantContent,
    AssistantMessage,
    LlmUsage,
    StopReason,
    TextContent,
    ToolCall,
)
from yiemagent.streaming import DoneEvent, ErrorEvent, StreamEvent

__all__ = ["ScriptedModel", "call", "calls", "failure"]

Answer: TypeAlias = (
    "str | ToolCall | AssistantMessage | Sequence[StreamEvent] | Exception | "
    "Callable[[LlmContext, AbortSignal], Any]"
)


def call(
    name: str, arguments: Mapping[str, Any] | str | None = None, call_id: str = ""
) -> ToolCall:
    """Give a tool call; without an id the loop gives it one."""
    return ToolCall(call_id, name, {} if arguments is None else arguments)


def calls(*tool_calls: ToolCall, text: str = "") -> AssistantMessage:
    """Give an answer that calls tools."""
    blocks: list[AssistantContent] = [TextContent(text)] if text else []
    return AssistantMessage((*blocks, *tool_calls), stop_reason="tool_use", usage=LlmUsage(10, 5))


def failure(text: str, stop_reason: StopReason = "error") -> AssistantMessage:
    """Give an answer that failed."""
    return AssistantMessage(stop_reason=stop_reason, error_message=text)


class ScriptedModel:
    """A model that gives prepared answers, in turn: a `StreamFn`, safe to use from many threads.

    Args:
        answers: each a text, a `ToolCall`, an `AssistantMessage`, a list of stream events, an exception to raise, or a
            function `(context, signal)` that gives one of these.
        default: what to answer when the script is used up; None makes it an error.
        stream: True streams texts and calls piece by piece; False gives each answer whole.
    """

    def __init__(
        self, answers: Iterable[Answer] = (), *, default: Answer | None = None, stream: bool = True
    ) -> None:
        self._answers = iter(answers)
        self._default = default
        self._stream = stream
        self._lock = threading.Lock()  # protects the script and the list of requests
        self.requests: list[LlmContext] = []
        self.options: list[StreamOptions] = []

    def __call__(
        self, context: LlmContext, options: StreamOptions, signal: AbortSignal
    ) -> Iterator[StreamEvent]:
        """Stream the next answer."""
        with self._lock:
            self.requests.append(context)
            self.options.append(options)
            answer: Any = next(self._answers, self._default)
        while callable(answer):
            answer = answer(context, signal)
        if isinstance(answer, Exception):
            raise answer
        if signal.aborted:
            answer = failure(signal.why, "aborted")
        return self._events(answer)

    def _events(self, answer: Any) -> Iterator[StreamEvent]:
        if answer is None:
            answer = failure("the script of the model is used up")
        if isinstance(answer, ToolCall):
            answer = calls(answer)
        if isinstance(answer, str):
            answer = AssistantMessage(answer, model="scripted", usage=LlmUsage(10, 5))
        if not isinstance(answer, AssistantMessage):
            return iter(answer)
        if answer.failed:
            return iter((ErrorEvent(answer),))
        return _pieces(answer) if self._stream else iter((DoneEvent(answer),))


def _pieces(answer: AssistantMessage) -> Iterator[StreamEvent]:
    """Stream a whole answer: texts word by word, calls in one piece."""
    builder = MessageBuilder(answer.model, answer.provider, answer.api)
    yield builder.start
    for block in answer.content:
        if isinstance(block, TextContent):
            index, event = builder.begin("text")
            yield event
            for piece in re.findall(r" ?[^ ]*", block.text)[:-1]:
                yield builder.text_delta(index, piece)
            yield builder.end_block(index)
    yield DoneEvent(answer)
