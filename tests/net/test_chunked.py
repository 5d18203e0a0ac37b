"""Chunked bodies from bytes cut anywhere."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.errors import HttpError
from yiemagent.net.chunked import ChunkedBody


def carried(*pieces):
    body = ChunkedBody()
    return b"".join(body.feed(piece) for piece in pieces), body.ended


def encoded(chunks):
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


@pytest.mark.parametrize(
    "data, expected",
    [
        (b"0\r\n\r\n", (b"", True)),
        (b"3\r\nabc\r\n0\r\n\r\n", (b"abc", True)),
        (b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", (b"abcde", True)),
        (b"A;name=value\r\n0123456789\r\n0\r\n\r\n", (b"0123456789", True)),
        (b"0a\r\n0123456789\r\n000\r\n\r\n", (b"0123456789", True)),
        (b"3\r\nabc\r\n0\r\nX-Sum: 1\r\nX-B: 2\r\n\r\n", (b"abc", True)),
        (b"3\r\nabc\r\n0\r\nX-Sum: 1\r\n", (b"abc", False)),
        (b"4\r\n\r\n\r\n\r\n0\r\n\r\n", (b"\r\n\r\n", True)),
        (b"3\r\nabc\r\n0\r\n\r\nHTTP/1.1", (b"abc", True)),
        (b"3\r\nab", (b"ab", False)),
        (b"3\r\nabc", (b"abc", False)),
        (b"3\r\nabc\r\n0\r\n", (b"abc", False)),
    ],
)
def test_coding(data, expected):
    """Sizes, extensions, trailers and the end are read as the standard says, however the bytes are cut."""
    assert carried(data) == expected
    assert carried(*(data[at : at + 1] for at in range(len(data)))) == expected


@given(st.lists(st.binary(min_size=1, max_size=40)), st.lists(st.integers(0, 400), max_size=6))
def test_any_split(chunks, cuts):
    """However the bytes are cut, the body is what was encoded."""
    data = encoded(chunks)
    edges = sorted({0, len(data), *(at for at in cuts if at < len(data))})
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]

    assert carried(*pieces) == (b"".join(chunks), True)


@pytest.mark.parametrize(
    "data",
    [b"zz\r\n", b"-1\r\n", b"\r\n\r\n", b"3\r\nabcd\r\n", b"3\r\nabc0\r\n\r\n", b"1" * 70_000, b";x\r\n"],
)  # fmt: skip
def test_damage(data):
    """What is no size, or no line end behind a chunk, is an error that may be tried again."""
    with pytest.raises(HttpError, match="damaged") as caught:
        carried(data)

    assert caught.value.retryable
