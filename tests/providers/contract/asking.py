"""Asking a provider: its events checked and made comparable, over a connection that cuts where a test wants."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from tests.providers.contract.apis import CONTEXT, KEY
from yiemagent import YiemAgent, abort_agent, codec, run_agent, stop_agent, take_response
from yiemagent.abort import AbortSignal
from yiemagent.events import MessageUpdateEvent, RateGateEvent, RetryScheduledEvent
from yiemagent.llm import StreamOptions
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
)

__all__ = ["AgentAsking", "Asking", "Pieces", "ask", "check_stream", "plain"]

WAIT_S = 20.0
NOTICES = {"retry_scheduled": RetryScheduledEvent, "rate_gate": RateGateEvent}
_STARTS = (TextStartEvent, ThinkingStartEvent, ToolCallStartEvent)
_DELTAS = (TextDeltaEvent, ThinkingDeltaEvent, ToolCallDeltaEvent)
_ENDS = (TextEndEvent, ThinkingEndEvent, ToolCallEndEvent)


def ask(
    provider: Any, options: StreamOptions | None = None, signal: AbortSignal | None = None
) -> list[Any]:
    """Ask once; gives the events, checked."""
    events = list(provider(CONTEXT, options or StreamOptions(), signal or AbortSignal()))
    check_stream(events)
    return events


def check_stream(events: Sequence[Any]) -> None:
    """Hold events to what every stream keeps: one end, blocks that begin and end once, no key, a message that reads
    back, and that is what its deltas say.
    """
    ends = [event for event in events if isinstance(event, (DoneEvent, ErrorEvent))]
    assert ends == [events[-1]], ends
    message = events[-1].message
    assert message.failed == isinstance(events[-1], ErrorEvent)
    assert bool(message.error_message) == message.failed
    kinds: dict[int, Any] = {}
    texts: dict[int, str] = {}
    open_blocks: set[int] = set()
    partial = PartialMessage.first()
    for number, event in enumerate(events):
        partial = partial.add(event)
        if isinstance(event, StartEvent):
            assert not kinds, "Start comes before the first block"
        elif isinstance(event, _STARTS):
            assert event.content_index not in kinds
            kinds[event.content_index] = _STARTS.index(type(event))
            texts[event.content_index] = ""
            open_blocks.add(event.content_index)
        elif isinstance(event, (*_DELTAS, *_ENDS)):
            table = _DELTAS if isinstance(event, _DELTAS) else _ENDS
            assert kinds[event.content_index] == table.index(type(event)), (number, event)
            assert event.content_index in open_blocks
            if isinstance(event, _DELTAS):
                assert event.delta
                texts[event.content_index] += event.delta
            else:
                open_blocks.remove(event.content_index)
    if isinstance(events[-1], DoneEvent) and kinds:
        assert not open_blocks
        assert sorted(kinds) == list(range(len(message.content)))
    if kinds:
        assert "".join(texts[i] for i in sorted(kinds) if kinds[i] == 0) == message.text
    assert partial.build().content == message.content
    assert codec.loads(codec.dumps(message)) == message
    assert KEY not in repr(events)
    assert KEY not in codec.dumps(events[-1])


def plain(events: Sequence[Any]) -> list[Any]:
    """Give events so that those of equal streams are equal: no times, and ids that were made up are counted."""
    ids: dict[str, str] = {}

    def stripped(value: Any) -> Any:
        if isinstance(value, dict):
            kept = {k: stripped(v) for k, v in value.items() if k != "timestamp"}
            if isinstance(kept.get("id"), str):
                kept["id"] = ids.setdefault(kept["id"], f"id {len(ids)}")
            return kept
        return [stripped(item) for item in value] if isinstance(value, list) else value

    return [stripped(codec.to_json(event)) for event in events]


class Pieces:
    """In place of an `HttpClient`: answers each request with a body that comes in given pieces."""

    def __init__(self, pieces: Sequence[bytes], *, kind: str = "text/event-stream") -> None:
        self._pieces = pieces
        self.status = 200
        self.headers = {"content-type": kind}
        self.origin = "http://pieces.test"

    def request(self, *_args: Any, **_options: Any) -> contextlib.nullcontext[Self]:
        """The answer, at once."""
        return contextlib.nullcontext(self)

    def iter_bytes(self, *, only_noted_progress: bool = False) -> Iterator[bytes]:
        """The pieces, one by one."""
        return (piece for piece in self._pieces if piece)

    def read(self, max_bytes: int = 0) -> bytes:
        """All of them."""
        return b"".join(self._pieces)

    def note_progress(self) -> None:
        """Nothing stalls here."""

    def finish(self) -> None:
        """Nothing is left open."""


class Asking:
    """A provider that is asked in a thread of its own, so that its signal can be set from outside."""

    def __init__(self, provider: Any, options: StreamOptions | None = None) -> None:
        self.signal = AbortSignal()
        self.events: list[Any] = []
        self.aborted_at: float | None = 0.0  # both on the clock of `time.monotonic`
        self.ended_at = 0.0
        # Guards the list; whoever waits for an event waits on it.
        self._changed = threading.Condition()
        self._stream = provider(CONTEXT, options or StreamOptions(), self.signal)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for event in self._stream:
            with self._changed:
                self.events.append(event)
                self.ended_at = time.monotonic()
                self._changed.notify_all()

    def wait_for(self, wanted: Callable[[Any], bool]) -> Any:
        """Block until an event is `wanted`; gives it."""
        with self._changed:
            found = self._changed.wait_for(
                lambda: next(filter(wanted, self.events), None), timeout=WAIT_S
            )
        assert found is not None, self.events
        return found

    def wait_for_text(self) -> None:
        """Block until the answer said something."""
        self.wait_for(lambda event: isinstance(event, TextDeltaEvent))

    def wait_for_notice(self, kind: str) -> None:
        """Block until a notice of a kind came."""
        self.wait_for(lambda event: isinstance(event, StreamNoticeEvent) and event.kind == kind)

    def abort(self) -> Any:
        """Set the signal, wait for the end, and give the message."""
        if self.signal.aborted_at is None:
            self.signal.abort("enough")
            self.aborted_at = self.signal.aborted_at
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the stream did not end"
        return self.events[-1].message


class AgentAsking(Asking):
    """The same through an agent, that is aborted by `abort_agent`; the events are those that its sink is told."""

    def __init__(self, provider: Any) -> None:
        self.events = []
        self.aborted_at = 0.0
        self._answer: Any = None
        self._changed = (
            threading.Condition()
        )  # guards the list; whoever waits for an event waits on it
        self._agent = YiemAgent(provider, system_prompt="Be brief.", event_sink=self._sink)
        run_agent(self._agent, "hi")

    def _sink(self, event: Any) -> None:
        if isinstance(event, MessageUpdateEvent):
            event = event.stream_event
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def wait_for_notice(self, kind: str) -> None:
        """Block until a notice of a kind came."""
        wanted = NOTICES[kind]
        self.wait_for(lambda event: isinstance(event, wanted))

    def abort(self) -> Any:
        """Abort the run, take its answer, and stop the agent."""
        if self._answer is None:
            self.aborted_at = time.monotonic()
            assert abort_agent(self._agent, "enough")
            self._answer = take_response(self._agent, WAIT_S)
            self.ended_at = time.monotonic()
            stop_agent(self._agent)
        return self._answer
