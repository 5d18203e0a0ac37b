"""HTTP/1.1 as the server reads and writes it."""

from __future__ import annotations

import io
import pickle

import pytest

from yiemagent.mcp.http_wire import (
    HttpRefusal,
    RequestHead,
    chunk,
    read_body,
    read_head,
    response_head,
    sse_event,
)


def head_of(text):
    """Read a head out of text."""
    return read_head(io.BytesIO(text.replace("\n", "\r\n").encode("latin-1")))


def status_of(read, *args):
    """The status by which reading refuses."""
    with pytest.raises(HttpRefusal) as refusal:
        read(*args)
    return refusal.value.status


def test_a_head_is_read():
    """Method, target and headers, whose names don't differ by case; lists are joined."""
    head = head_of("\nPOST /mcp?x=1 HTTP/1.1\nHost: a\nACCEPT: b\nAccept:  c \n\nrest")

    assert (head.method, head.target, head.path, head.version) == (
        "POST",
        "/mcp?x=1",
        "/mcp",
        "1.1",
    )
    assert head.headers == {"host": "a", "accept": "b, c"}


@pytest.mark.parametrize(
    ("text", "keeps"),
    [
        ("GET / HTTP/1.1\n\n", True),
        ("GET / HTTP/1.1\nConnection: Close\n\n", False),
        ("GET / HTTP/1.0\n\n", False),
    ],
)
def test_a_connection_is_kept_where_the_client_keeps_it(text, keeps):
    """From 1.1 on, unless the client says otherwise."""
    assert head_of(text).keeps_alive is keeps


@pytest.mark.parametrize("text", ["", "\n", "GET / HTTP", "GET / HTTP/1.1\nHost: a"])
def test_an_end_is_no_request(text):
    """A connection that ends before a head does has none."""
    assert head_of(text) is None


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("hello\n\n", 400),
        ("GET  / HTTP/1.1\n\n", 400),
        ("G@T / HTTP/1.1\n\n", 400),
        ("GET / HTTP/2\n\n", 505),
        ("GET / HTTP/1.1\nno colon\n\n", 400),
        ("GET / HTTP/1.1\nHost : a\n\n", 400),
        ("GET / HTTP/1.1\nA: 1\n folded\n\n", 400),
        ("GET / HTTP/1.1\nA: x\x00y\n\n", 400),
        ("GET / HTTP/1.1\nHost: a\nhost: b\n\n", 400),
        ("GET / HTTP/1.1\nContent-Length: 1\nContent-Length: 1\n\n", 400),
        ("GET / HTTP/1.1\nA: " + "x" * 20_000 + "\n\n", 431),
        ("GET / HTTP/1.1\n" + "".join(f"A{n}: x\n" for n in range(120)) + "\n", 431),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(text, status):
    """Loose spaces, folded lines, doubled headers, control characters, and too much of anything."""
    assert status_of(head_of, text) == status


def body_of(data, limit=100, **headers):
    """Read a body."""
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return read_body(io.BytesIO(data), RequestHead("POST", "/", "1.1", named), limit)


def test_a_body_is_read_by_its_length_or_its_chunks():
    """What stands behind it stays unread."""
    chunks = b"3\r\nabc\r\nA;x=1\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nrest"

    assert body_of(b"abcrest", content_length="3") == b"abc"
    assert body_of(chunks, transfer_encoding="Chunked") == b"abc0123456789"


@pytest.mark.parametrize(
    ("data", "headers", "status"),
    [
        (b"", {}, 411),
        (b"", {"content_length": "-1"}, 400),
        (b"", {"content_length": "٣"}, 400),
        (b"ab", {"content_length": "3"}, 400),
        (b"x" * 200, {"content_length": "101"}, 413),
        (b"", {"content_length": "9" * 30}, 400),
        (b"", {"transfer_encoding": "gzip"}, 400),
        (b"", {"transfer_encoding": "chunked", "content_length": "3"}, 400),
        (b"xyz\r\n", {"transfer_encoding": "chunked"}, 400),
        (b"", {"transfer_encoding": "chunked"}, 400),
        (b"3\r\nabcX\r\n0\r\n\r\n", {"transfer_encoding": "chunked"}, 400),
        (b"65\r\n" + b"x" * 101 + b"\r\n0\r\n\r\n", {"transfer_encoding": "chunked"}, 413),
        (b"0\r\n" + b"A: b\r\n" * 200, {"transfer_encoding": "chunked"}, 431),
    ],
)
def test_a_body_without_a_clear_end_is_refused(data, headers, status):
    """No length, two of them, damaged chunks, or too many bytes."""
    assert status_of(lambda: body_of(data, **headers)) == status


def test_answers_are_written():
    """Heads, chunks and events have the form that they must have."""
    assert response_head(202, {"A": "b"}) == b"HTTP/1.1 202 Accepted\r\nA: b\r\n\r\n"
    assert response_head(299, {}) == b"HTTP/1.1 299 Status\r\n\r\n"
    assert (chunk(b"abc"), chunk(b"")) == (b"3\r\nabc\r\n", b"")
    assert sse_event(b"{}") == b"data: {}\n\n"
    assert sse_event(b"", "1/2", 500) == b"id: 1/2\nretry: 500\ndata: \n\n"


def test_a_refusal_survives_pickling():
    """Status, words and headers come back."""
    refusal = pickle.loads(pickle.dumps(HttpRefusal(405, "no", {"Allow": "POST"})))

    assert (refusal.status, str(refusal), refusal.headers) == (405, "no", {"Allow": "POST"})
