"""Records compare, hash and show themselves as attrs would have them do."""

from __future__ import annotations

import attrs

from yiemagent.events import (
    AgentStartEvent,
    MessageUpdateEvent,
    RetryScheduledEvent,
    TurnStartEvent,
)
from yiemagent.messages import ImageContent, TextContent
from yiemagent.record import Record
from yiemagent.streaming import PartialMessage, TextDeltaEvent


@attrs.frozen(eq=False, repr=False)
class Point(Record):
    """A record with a field that is neither compared nor shown."""

    x: int
    y: list[int] = attrs.field(factory=list)
    note: str = attrs.field(default="", eq=False, repr=False)


@attrs.frozen
class Twin:
    """The same, its methods written by attrs."""

    x: int
    y: list[int] = attrs.field(factory=list)
    note: str = attrs.field(default="", eq=False, repr=False)


def test_records_are_equal_by_their_compared_fields():
    """Equal class and fields make equal records; another class never is equal."""
    assert Point(1, [2], "a") == Point(1, [2], "b")
    assert Point(1) != Point(2)
    assert Point(1) != Twin(1)
    assert TurnStartEvent(1) != AgentStartEvent()


def test_equal_records_hash_alike():
    """A record may be a key where its fields may."""
    assert {TextContent("a"): 1}[TextContent("a")] == 1
    assert hash(TextContent("a")) != hash(TextContent("b"))


def test_records_show_their_fields():
    """The form is that of attrs, custom representations included."""
    assert repr(Point(1, [2], "a")) == repr(Twin(1, [2], "a")).replace("Twin", "Point")
    assert repr(ImageContent("abc", "image/png")) == (
        "ImageContent(data=<3 base64 characters>, mime_type='image/png')"
    )


def test_a_kind_of_record_without_fields_of_its_own_is_one():
    """A plain subclass is compared by its class, shown by its name, and as frozen as its base."""
    notice = RetryScheduledEvent("soon")

    assert repr(notice).startswith("RetryScheduledEvent(")
    assert notice == RetryScheduledEvent("soon")
    assert not hasattr(notice, "__dict__")


def test_what_a_field_says_about_comparing_is_heeded():
    """An update is compared by its stream event, not by the message so far."""
    piece = TextDeltaEvent(0, "a")
    one, other = (MessageUpdateEvent(piece, PartialMessage.first()) for _ in range(2))

    assert one == other
