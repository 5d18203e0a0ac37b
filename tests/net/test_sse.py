"""The SSE parser: whole events from bytes cut anywhere."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.errors import HttpError
from yiemagent.net.sse import SseEvent, SseParser


def parse(*pieces, end=False):
    parser = SseParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + (parser.end() if end else [])


def cut(data, size):
    return [data[at : at + size] for at in range(0, len(data), size)]


def by_the_book(data):
    """The events of a whole body, read line by line as the standard words it."""
    text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")[:-1]
    events, fields, name, last_id = [], [], "", ""
    for line in lines:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if fields:
                events.append(SseEvent("\n".join(fields), name or "message", last_id))
            fields, name = [], ""
        elif field == "data":
            fields.append(value)
        elif field == "event":
            name = value
        elif field == "id" and "\0" not in value:
            last_id = value
    return events


@pytest.mark.parametrize(
    "data, expected",
    [
        (b"data: a\n\n", [SseEvent("a")]),
        (b"data:a\n\n", [SseEvent("a")]),
        (b"data:  a\n\n", [SseEvent(" a")]),
        (b"data: a\ndata: b\n\n", [SseEvent("a\nb")]),
        (b"data\n\ndata\ndata\n\ndata:", [SseEvent(""), SseEvent("\n")]),
        (b"\xef\xbb\xbfdata: a\n\n", [SseEvent("a")]),
        (b": note\n\n:\n\ndata: a\n\n", [SseEvent("a")]),
        (b"event: ping\ndata: a\n\ndata: b\n\n", [SseEvent("a", "ping"), SseEvent("b")]),
        (b"event: ping\n\ndata: b\n\n", [SseEvent("b")]),
        (b"id: 7\ndata: a\n\ndata: b\n\n", [SseEvent("a", id="7"), SseEvent("b", id="7")]),
        (b"id: 7\ndata: a\n\nid\ndata: b\n\n", [SseEvent("a", id="7"), SseEvent("b")]),
        (b"id: 7\0\ndata: a\n\n", [SseEvent("a")]),
        (b"data: a\r\n\r\ndata: b\r\r", [SseEvent("a"), SseEvent("b")]),
        (b"\n\n\ndata: a\n\n\n\ndata: b\n\n", [SseEvent("a"), SseEvent("b")]),
        (b"data: a\n", []),
        (b"", []),
        (
            "data: a\u2028b\u2029c\u0085d\x0be\n\n".encode(),
            [SseEvent("a\u2028b\u2029c\u0085d\x0be")],
        ),
        (b"data: \xff\xf0\x9f\n\n", [SseEvent("\ufffd\ufffd")]),
        (b"other: x\nData: y\ndata: a\n\n", [SseEvent("a")]),
    ],
)
def test_standard(data, expected):
    """Fields, comments, ids, line ends and the byte order mark are read as the standard says."""
    assert parse(data) == expected
    assert parse(*cut(data, 1)) == expected
    assert by_the_book(data) == expected


_PIECES = st.sampled_from(
    [
        b"data: ", b"data", b"event: e", b"id: 1", b"retry: 5", b":", b" ", b"\n", b"\n\n", b"\r", b"\r\n", b"x",
        "ü\U0001f30d\u2028".encode(), b"\xef\xbb\xbf", b"\xff", b"data: {}\n\n",
    ]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=30).map(b"".join), st.lists(st.integers(0, 40), max_size=8))
def test_any_split(data, cuts):
    """However the bytes are cut, the events are those of the standard's own line-by-line reading."""
    edges = sorted({0, len(data), *(at for at in cuts if at < len(data))})
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]

    assert parse(*pieces) == by_the_book(data)
    assert parse(*cut(data, 1)) == by_the_book(data)


def test_event_comes_at_once():
    """An event is given as soon as its blank line is there, a lone CR included."""
    parser = SseParser()

    assert parser.feed(b"data: a\r") == []
    assert parser.feed(b"\r") == [SseEvent("a")]
    assert parser.feed(b"\ndata: b\n") == []
    assert parser.feed(b"\n") == [SseEvent("b")]


def test_end_gives_the_unfinished_event():
    """What a server left without its blank line, or without any line end, is given at the end."""
    assert parse(b"data: a\n\ndata: b\n", end=True) == [SseEvent("a"), SseEvent("b")]
    assert parse(b"event: x\ndata: b\ndata: c", end=True) == [SseEvent("b\nc", "x")]
    assert parse(b"data: a\n\n", end=True) == [SseEvent("a")]
    assert parse(b"data: \xf0\x9f", end=True) == [SseEvent("\ufffd")]
    assert parse(b"", end=True) == []


def test_retry():
    """The reconnection time is kept when it is a whole number, and only then."""
    parser = SseParser()
    parser.feed(b"retry: 3000\n\nretry: soon\n\nretry: -1\n\n")

    assert parser.retry_ms == 3000


def test_stray_lines():
    """A body without framing is kept as stray text, up to a limit."""
    parser = SseParser()
    parser.feed(b'{"error":\n {"message": "no"}}\n')
    parser.end()

    assert parser.stray == '{"error":\n {"message": "no"}}'

    parser.feed(b"junk: " + b"x" * 200_000 + b"\nmore\n")

    assert len(parser.stray) < 70_000
    assert not parser.stray.endswith("more")


@pytest.mark.parametrize(
    "pieces",
    [
        [b"data: " + b"x" * 101 + b"\n\n"],
        [b"data: ", *[b"x" * 10] * 11],
        [b"data: 123456789\n"] * 12,
        [b"data: ok\n\ndata: " + b"x" * 101 + b"\n\n"],
    ],
)
def test_size_limit(pieces):
    """An event or a line above the limit is an error that names the limit."""
    parser = SseParser(max_event_chars=100)

    with pytest.raises(HttpError, match="larger than 100 characters"):
        for piece in pieces:
            parser.feed(piece)


def test_many_events_below_the_limit():
    """The limit is for one event, however many there are."""
    parser = SseParser(max_event_chars=100)

    assert len(parser.feed(b"data: 0123456789\n\n" * 1000)) == 1000


def test_the_last_id_is_known_without_data():
    """An event that holds an id and nothing else is none, but its id counts."""
    parser = SseParser()

    assert parser.last_event_id == ""
    assert parser.feed(b"id: 5\n\n") == []
    assert parser.last_event_id == "5"
    assert parser.feed(b"id: 6\ndata: x\n\n") == [SseEvent("x", "message", "6")]
    assert parser.last_event_id == "6"
