"""Fakes and checks for tests of agents: a scripted model, a recording sink, a clock, the grammar of events.

Part of the product: the library's own tests use nothing else.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from yiemagent.abort import AbortSignal
from yiemagent.builder import MessageBuilder
from yiemagent.context import LlmContext
from yiemagent.events import (
    AgentEndEvent,
    AgentStartEvent,
    Event,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    NoticeEvent,
    ToolExecEndEvent,
    ToolExecStartEvent,
    ToolExecUpdateEvent,
    TurnEndEvent,
    TurnStartEvent,
)
from yiemagent.llm import StreamOptions
from yiemagent.messages import (
    AgentMessage,
    AssistantContent,
    AssistantMessage,
    LlmUsage,
    StopReason,
    TextContent,
    ToolCall,
    ToolResultMessage,
)
from yiemagent.streaming import DoneEvent, ErrorEvent, StreamEvent

__all__ = [
    "FakeClock",
    "RecordingSink",
    "ScriptedModel",
    "call",
    "calls",
    "check_event_order",
    "failure",
]

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
            answer = failure("aborted", "aborted")
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


class RecordingSink:
    """An event sink that keeps what it is told, and wakes who waits for something."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = threading.Condition()  # protects the list; waiters wait on it

    def __call__(self, event: Event) -> None:
        """Keep an event."""
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def wait_for(
        self, wanted: type[Event] | Callable[[Event], bool], timeout_s: float = 10.0
    ) -> Event:
        """Block until an event that is `wanted` was kept, and give the first.

        Raises:
            TimeoutError: where none came in time.
        """
        check = (lambda e: isinstance(e, wanted)) if isinstance(wanted, type) else wanted
        with self._changed:
            found = self._changed.wait_for(
                lambda: next(filter(check, self.events), None), timeout_s
            )
        if found is None:
            raise TimeoutError(
                f"no {wanted!r} among {len(self.events)} events within {timeout_s} s"
            )
        return found

    def of(self, *kinds: type[Event]) -> list[Any]:
        """Give the events of some kinds, in order."""
        return [event for event in self.events if isinstance(event, kinds)]

    def names(self) -> list[str]:
        """Give the names of the events' classes, in order."""
        return [type(event).__name__ for event in self.events]


class FakeClock:
    """A clock that goes when it is told to; call it for the time in seconds."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        """The time in seconds."""
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds


# --- the grammar of events
# ------------------------------------------------------------------------------------------------


def check_event_order(events: Iterable[Event]) -> None:
    """Check that the events of one run, in order, keep the grammar.

    Raises:
        AssertionError: naming the first event that breaks it.
    """
    grammar = _Grammar()
    position = 0
    for position, event in enumerate(events, 1):
        grammar.take(position, event)
    grammar.close(position)


@attrs.define
class _Grammar:
    run_id: str | None = None
    started: bool = False
    ended: bool = False
    in_turn: bool = False
    turns: int = 0
    message: Any = None
    answer: AssistantMessage | None = None
    new: list[AgentMessage] = attrs.field(factory=list)
    open_calls: dict[str, ToolExecStartEvent] = attrs.field(factory=dict)
    owed: list[str] = attrs.field(factory=list)
    results: list[ToolResultMessage] = attrs.field(factory=list)
    ended_calls: dict[str, ToolResultMessage] = attrs.field(factory=dict)

    def take(self, position: int, event: Event) -> None:
        def need(claim: bool, words: str) -> None:  # noqa: FBT001 - reads as an assertion
            if not claim:
                raise AssertionError(f"event {position}, {event!r}: {words}")

        need(event.sequence == position, f"the sequence should be {position}")
        need(not self.ended, "comes after AgentEnd")
        if isinstance(event, AgentStartEvent):
            need(not self.started, "a run starts once")
            self.started, self.run_id = True, event.run_id
        need(self.started, "comes before AgentStart")
        need(event.run_id == self.run_id, "belongs to another run")
        if not isinstance(event, NoticeEvent):
            self._step(event, need)

    def _step(self, event: Event, need: Callable[[bool, str], None]) -> None:
        match event:
            case TurnStartEvent():
                need(not self.in_turn, "turns do not nest")
                need(event.turn == self.turns + 1, "turns are counted from 1")
                self.in_turn, self.turns = True, event.turn
                self.results, self.ended_calls, self.answer = [], {}, None
            case TurnEndEvent():
                need(self.in_turn and self.message is None, "ends a turn that is not complete")
                need(not self.open_calls and not self.owed, "leaves calls without a result")
                need(list(event.tool_results) == self.results, "should carry the turn's results")
                need(event.message == self.answer, "should carry the turn's last answer")
                self.in_turn = False
            case MessageStartEvent():
                need(self.in_turn and self.message is None, "messages do not nest")
                self.message = event.message
            case MessageUpdateEvent():
                need(isinstance(self.message, AssistantMessage), "updates no message under way")
            case MessageEndEvent():
                self._message_end(event, need)
            case ToolExecStartEvent():
                need(event.tool_call_id in self.owed, "starts a call that nobody made")
                need(event.tool_call_id not in self.open_calls, "starts twice")
                self.open_calls[event.tool_call_id] = event
            case ToolExecUpdateEvent():
                need(event.tool_call_id in self.open_calls, "updates no call under way")
            case ToolExecEndEvent():
                need(event.tool_call_id in self.open_calls, "ends no call under way")
                del self.open_calls[event.tool_call_id]
                self.ended_calls[event.tool_call_id] = event.message
            case AgentEndEvent():
                need(not self.in_turn, "ends a run inside a turn")
                need(list(event.messages) == self.new, "should carry all messages of the run")
                self.ended = True
            case _:
                pass

    def _message_end(self, event: MessageEndEvent, need: Callable[[bool, str], None]) -> None:
        need(self.message is not None, "ends no message")
        need(type(self.message) is type(event.message), "ends another message than began")
        self.message = None
        self.new.append(event.message)
        if isinstance(event.message, AssistantMessage):
            self.answer = event.message
            need(not self.owed, "comes before the results of the answer before it")
            self.owed = [tool_call.id for tool_call in event.message.tool_calls]
            need(len(set(self.owed)) == len(self.owed), "has calls that share an id")
        elif isinstance(event.message, ToolResultMessage):
            expected = self.owed[0] if self.owed else None
            need(event.message.tool_call_id == expected, f"should be the result of {expected!r}")
            need(
                self.ended_calls.get(event.message.tool_call_id) == event.message,
                "is not the result that its call ended with",
            )
            self.owed.pop(0)
            self.results.append(event.message)

    def close(self, position: int) -> None:
        if not self.ended:
            raise AssertionError(f"no AgentEnd after {position} events")
