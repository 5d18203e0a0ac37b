"""The event tree."""

from __future__ import annotations

from datetime import UTC, datetime

import attrs
import pytest

from yiemagent import events
from yiemagent.events import (
    AgentEndEvent,
    Event,
    FallbackEvent,
    MessageUpdateEvent,
    NoticeEvent,
    RateGateEvent,
    RetryScheduledEvent,
    TurnStartEvent,
    notice_of,
    stamp,
)
from yiemagent.messages import AssistantMessage
from yiemagent.streaming import PartialMessage, StreamNoticeEvent, TextDeltaEvent, TextStartEvent


def test_an_event_is_numbered_once_by_its_emitter():
    """Before that it has no place in a run; after it nobody else can change it."""
    event = TurnStartEvent(1)
    assert (event.sequence, event.run_id) == (0, None)
    assert stamp(event, 7, "r1", 1.5) is event

    assert (event.sequence, event.run_id, event.time_s) == (7, "r1", 1.5)
    assert event.timestamp == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        event.sequence = 8


def test_every_event_shares_its_first_fields():
    """All have sequence, run_id and a time, given by name only."""
    for name in events.__all__:
        kind = getattr(events, name)
        if isinstance(kind, type):
            assert issubclass(kind, Event)
            shared = {field.name for field in attrs.fields(kind) if field.kw_only}
            assert shared == {"sequence", "run_id", "time_s"}


def test_the_partial_message_is_built_when_read():
    """Each update gives the message as far as it had come then."""
    partial = PartialMessage.first().add(TextStartEvent(0))
    first = MessageUpdateEvent(TextDeltaEvent(0, "a"), partial.add(TextDeltaEvent(0, "a")))
    second = MessageUpdateEvent(
        TextDeltaEvent(0, "b"), first.partial_message.add(TextDeltaEvent(0, "b"))
    )

    assert second.partial.text == "ab"
    assert first.partial.text == "a"
    assert "partial_message" not in repr(first)


@pytest.mark.parametrize(
    ("kind", "event"),
    [
        ("retry_scheduled", RetryScheduledEvent),
        ("rate_gate", RateGateEvent),
        ("fallback", FallbackEvent),
    ],
)
def test_a_streams_notice_becomes_the_runs_event(kind, event):
    """Its words and facts are the same."""
    notice = notice_of(StreamNoticeEvent(kind, "wait", {"delay_ms": 5}))

    assert type(notice) is event
    assert isinstance(notice, NoticeEvent)
    assert (notice.message, notice.details) == ("wait", {"delay_ms": 5})


def test_a_notices_facts_cannot_change():
    """Whoever made it keeps a dict of its own."""
    facts = {"added": ["a"]}
    notice = NoticeEvent("tools", facts)
    facts["added"].append("b")

    assert notice.details == {"added": ["a"]}
    with pytest.raises(TypeError):
        notice.details["x"] = 1


def test_events_compare_by_what_they_say():
    """Two ends of equal runs are equal."""
    answer = AssistantMessage("x")

    assert AgentEndEvent((), answer) == AgentEndEvent((), answer)
    assert AgentEndEvent((), answer) != AgentEndEvent((), answer, sequence=2)
