"""The entries of a session and their lines."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import get_args

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_codec import JSON, MESSAGE, STREAM
from yiemagent.errors import InvalidJson
from yiemagent.messages import UserMessage
from yiemagent.payload import FrozenDict
from yiemagent.sessions.bodies import (
    Body,
    BranchSummaryBody,
    CompactionBody,
    LabelBody,
    LeafBody,
    MessageBody,
    UnknownBody,
)
from yiemagent.sessions.entries import (
    VERSION,
    Entry,
    Header,
    decode,
    decode_header,
    encode,
    encode_header,
)

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
TEXT = st.text(max_size=20)
ID = st.integers(1, 10**6)
BY_TYPE = {
    "str": TEXT,
    "str | None": st.none() | TEXT,
    "int": ID,
    "int | None": st.none() | ID,
    "Any": JSON,
    "QueuedKind": st.sampled_from(["input", "steering", "follow_up"]),
    "AgentMessage": MESSAGE,
    "tuple[int, ...]": st.lists(ID, max_size=3).map(tuple),
    "tuple[StreamEvent, ...]": st.lists(
        STREAM.filter(lambda event: not getattr(event, "error", None)), max_size=3
    ).map(tuple),
}
KINDS = [kind for kind in get_args(Body) if kind is not UnknownBody]


def built(kind):
    """Values of a kind of body, each field of it by its type."""
    fields = attrs.fields(kind)
    return st.builds(kind, **{field.alias: BY_TYPE[str(field.type)] for field in fields})


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.type)
@settings(max_examples=40)
@given(data=st.data())
def test_every_kind_comes_back_equal(kind, data):
    """An entry of each kind is one line that encodes as UTF-8, and comes back equal from it."""
    body = data.draw(built(kind))
    entry = Entry(data.draw(ID), None if kind.is_side else data.draw(ID | st.none()), NOON, body)

    line = encode(entry)

    assert "\n" not in line.encode().decode()
    assert decode(line) == entry


def test_an_entry_says_what_it_is_in_plain_json():
    """The form is what the documentation shows: short names, nothing that has its default."""
    said = encode(Entry(2, 1, NOON, MessageBody(UserMessage("hi", NOON))))
    label = encode(Entry(3, None, NOON, LabelBody(2, "here")))

    assert json.loads(said) == {
        "id": 2,
        "parent": 1,
        "time": "2026-01-31T12:00:00+00:00",
        "type": "message",
        "message": {
            "v": 1,
            "role": "user",
            "content": [{"type": "text", "text": "hi"}],
            "timestamp": "2026-01-31T12:00:00+00:00",
        },
    }
    assert json.loads(label) == {
        "id": 3,
        "time": "2026-01-31T12:00:00+00:00",
        "type": "label",
        "target": 2,
        "label": "here",
    }


def test_a_root_has_a_parent_of_null_and_a_side_entry_none():
    """Whether an entry stands in the tree is told by whether it names a parent."""
    root = json.loads(encode(Entry(1, None, NOON, MessageBody(UserMessage("hi")))))
    move = json.loads(encode(Entry(2, None, NOON, LeafBody(None))))

    assert root["parent"] is None
    assert "parent" not in move
    assert move["target"] is None


def test_fields_of_a_newer_version_are_kept():
    """A field that is not known comes back with the entry and goes out with it."""
    line = encode(Entry(1, None, NOON, CompactionBody("short", 1)))
    newer = json.dumps({**json.loads(line), "mood": {"is": "good"}})

    entry = decode(newer)

    assert entry.extra == {"mood": {"is": "good"}}
    assert json.loads(encode(entry)) == json.loads(newer)


@pytest.mark.parametrize("placed", [{"parent": None}, {"parent": 4}, {}])
def test_kinds_of_a_newer_version_are_kept(placed):
    """An entry of a kind that is not known keeps its place in or beside the tree and all of its fields."""
    line = json.dumps({"id": 7, **placed, "time": NOON.isoformat(), "type": "dream", "of": ["x"]})

    entry = decode(line)

    assert entry.body == UnknownBody("dream", not placed)
    assert entry.parent_id == placed.get("parent")
    assert json.loads(encode(entry)) == json.loads(line)


def test_a_payload_that_is_no_json_is_written_as_its_text():
    """What an application puts into an entry never keeps it from being written."""
    body = BranchSummaryBody("went wrong", 3, {"at": NOON, "n": float("nan")})

    assert decode(encode(Entry(4, 3, NOON, body))).body.details == {"at": str(NOON), "n": None}


def test_lone_surrogates_survive():
    """Half a character, as broken programs print it, comes back as it was."""
    entry = Entry(1, None, NOON, MessageBody(UserMessage("é \ud83d", NOON)))

    line = encode(entry)

    assert line.isascii()
    assert decode(line) == entry


def nested(depth):
    """A payload of so many dicts in one another."""
    value = FrozenDict()
    for _ in range(depth):
        value = FrozenDict(a=value)
    return value


def test_what_is_nested_too_deeply_is_refused():
    """A payload that no JSON writer or reader takes is an error, not a crash."""
    with pytest.raises(InvalidJson, match="nested too deeply"):
        encode(Entry(1, None, NOON, LabelBody(1), nested(100_000)))
    with pytest.raises(InvalidJson, match="nested too deeply"):
        decode("[" * 100_000)


ENTRY = {"id": 1, "parent": None, "time": NOON.isoformat(), "type": "message"}


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("", "no valid JSON"),
        ("[]", "expected a JSON object"),
        ({"id": "1"}, "id: expected a whole number"),
        ({"id": True}, "id: expected a whole number"),
        ({"parent": "1"}, "parent: expected a whole number or null"),
        ({"time": "noon"}, "time: expected a time with its offset"),
        ({"time": "2026-01-31T12:00:00"}, "time: expected a time with its offset"),
        ({"type": None}, "type: expected the kind"),
        ({}, "message: expected a message, not None"),
        ({"message": {"v": 1, "event": "turn_end"}}, "message: expected a message"),
        ({"message": {"v": 1, "role": "wizard"}}, "unknown role 'wizard'"),
        ({"type": "delivered", "queued": "x"}, "queued: expected a whole number"),
        ({"type": "model_change", "model": 1}, "model: expected text"),
        ({"type": "compaction", "summary": "s"}, "first_kept: expected a whole number, not None"),
    ],
)
def test_a_line_that_is_no_entry_is_refused_in_words(line, wrong):
    """The error says which field is wrong and what was expected there."""
    text = json.dumps({**ENTRY, **line}) if isinstance(line, dict) else line

    with pytest.raises(InvalidJson, match=wrong):
        decode(text)


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"type": "withdrawn", "queued_ids": 3}, "queued_ids: expected a list"),
        ({"type": "partial", "after": 1, "events": [{"v": 1, "role": "user"}]}, "a stream event"),
        ({"type": "queued", "kind": "shout", "message": {}}, "kind: expected input or steering"),
    ],
)
def test_a_side_line_that_is_no_entry_is_refused_in_words(fields, wrong):
    """The same holds for the kinds beside the tree."""
    with pytest.raises(InvalidJson, match=wrong):
        decode(json.dumps({"id": 1, "time": NOON.isoformat(), **fields}))


# -- the header -------------------------------------------------------------------------------------------------------


@given(
    st.builds(
        Header,
        st.text(min_size=1, max_size=20),
        st.just(NOON),
        st.none() | TEXT,
        st.none() | st.just(FrozenDict(session="a", entry=3)),
        st.dictionaries(st.just("mood"), JSON).map(FrozenDict),
    )
)
def test_a_header_comes_back_equal(header):
    """A header is one line, and comes back with all that is in it, unknown fields included."""
    assert decode_header(encode_header(header)) == header


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"type": "message"}, "the first line is no session header"),
        ({"version": "1"}, "version: expected a whole number"),
        ({"version": VERSION + 1}, "reads up to 1; update it"),
        ({"id": ""}, "id: expected the session's id"),
        ({"name": 3}, "name: expected text"),
        ({"forked_from": "x"}, "forked_from: expected an object"),
        ({"time": None}, "time: expected a time"),
    ],
)
def test_a_header_that_can_not_be_read_is_refused_in_words(change, wrong):
    """A header of a newer version, or with a field that is wrong, says so."""
    header = json.loads(encode_header(Header("abc", NOON)))

    with pytest.raises(InvalidJson, match=wrong):
        decode_header(json.dumps({**header, **change}))
