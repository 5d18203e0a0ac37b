"""HTTP/1.1 as a server needs it: requests out of a buffered reader, answers into bytes (RFC 9112).

Strict on purpose: what two readers could understand in two ways is refused, so that no proxy in front is fooled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import BinaryIO

import attrs

from yiemagent.errors import YiemAgentError
from yiemagent.record import Record

__all__ = [
    "LAST_CHUNK",
    "HttpRefusal",
    "RequestHead",
    "chunk",
    "read_body",
    "read_head",
    "response_head",
    "sse_event",
]

_MAX_LINE_BYTES = 16_384
_MAX_HEADERS = 100
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BAD_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# Several of these would be joined by a comma and mean something else.
_LISTS = {"accept", "accept-encoding", "accept-language", "cache-control", "connection", "via"}

LAST_CHUNK = b"0\r\n\r\n"


class HttpRefusal(YiemAgentError):
    """A request is answered with a status that says no.

    Args:
        status: the HTTP status.
        message: why, for people.
        headers: of the answer.
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})

    def __reduce__(self) -> tuple[type[HttpRefusal], tuple[int, str, dict[str, str]]]:
        return type(self), (self.status, str(self), self.headers)


@attrs.frozen(eq=False, repr=False)
class RequestHead(Record):
    """A request without its body.

    Args:
        method: in capitals.
        target: path and query, as sent.
        version: "1.1" or "1.0".
        headers: by lower-case name; several of one name are joined where that is the same.
    """

    method: str
    target: str
    version: str
    headers: Mapping[str, str]

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    @property
    def keeps_alive(self) -> bool:
        """Whether the client may send another request over the connection."""
        words = self.headers.get("connection", "").lower()
        return self.version == "1.1" and "close" not in words


def read_head(reader: BinaryIO) -> RequestHead | None:
    """Read a request up to its body; None where the client has closed the connection instead.

    Raises:
        HttpRefusal: it is no HTTP that this server takes.
        OSError: the connection broke or timed out.
    """
    line = _line(reader)
    if line == "":  # some clients send an empty line behind a body
        line = _line(reader)
    if line is None:
        return None
    words = line.split(" ")
    if len(words) != 3 or not _TOKEN.fullmatch(words[0]) or not words[2].startswith("HTTP/"):
        raise HttpRefusal(400, "that is no HTTP request")
    if words[2] not in {"HTTP/1.1", "HTTP/1.0"}:
        raise HttpRefusal(505, "only HTTP/1.1 is spoken here")
    headers: dict[str, str] = {}
    for _ in range(_MAX_HEADERS + 1):
        line = _line(reader)
        if line is None:
            return None
        if not line:
            return RequestHead(words[0], words[1], words[2].removeprefix("HTTP/"), headers)
        _add_header(headers, line)
    raise HttpRefusal(431, "there are too many headers")


def _line(reader: BinaryIO) -> str | None:
    """Give the next line without its end; None at the end of the bytes."""
    line = reader.readline(_MAX_LINE_BYTES + 1)
    if len(line) > _MAX_LINE_BYTES:
        raise HttpRefusal(431, "a line is too long")
    if not line.endswith(b"\n"):
        return None
    return line.decode("latin-1").removesuffix("\n").removesuffix("\r")


def _add_header(headers: dict[str, str], line: str) -> None:
    name, colon, value = line.partition(":")
    value = value.strip(" \t")
    if not colon or not _TOKEN.fullmatch(name) or _BAD_VALUE.search(value):
        raise HttpRefusal(400, "a header can't be read")
    key = name.lower()
    if key not in headers:
        headers[key] = value
    elif key in _LISTS:
        headers[key] += f", {value}"
    else:
        raise HttpRefusal(400, f"the header {name} is there twice")


def read_body(reader: BinaryIO, head: RequestHead, max_bytes: int) -> bytes:
    """Read the body of a request.

    Raises:
        HttpRefusal: it is too large, or nothing says where it ends.
        OSError: the connection broke or timed out.
    """
    length, coding = head.headers.get("content-length"), head.headers.get("transfer-encoding")
    if coding is not None:
        if coding.lower() != "chunked" or length is not None:
            raise HttpRefusal(400, "the body can be chunked or have a Content-Length, nothing else")
        return _chunked_body(reader, max_bytes)
    if length is None:
        raise HttpRefusal(411, "the request must say how long its body is")
    if not (length.isascii() and length.isdigit()) or len(length) > 15:
        raise HttpRefusal(400, "the Content-Length is no number")
    if int(length) > max_bytes:
        raise _too_large(max_bytes)
    return _exactly(reader, int(length))


def _chunked_body(reader: BinaryIO, max_bytes: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while True:
        word = (_line(reader) or "").partition(";")[0].strip()
        if not re.fullmatch(r"[0-9A-Fa-f]{1,15}", word):
            raise HttpRefusal(400, "the chunks of the body are damaged")
        length = int(word, 16)
        size += length
        if size > max_bytes:
            raise _too_large(max_bytes)
        if not length:
            break
        pieces.append(_exactly(reader, length))
        if _line(reader) != "":
            raise HttpRefusal(400, "the chunks of the body are damaged")
    for _ in range(_MAX_HEADERS):  # the trailer, which nobody reads
        if not _line(reader):
            return b"".join(pieces)
    raise HttpRefusal(431, "there are too many trailers")


def _exactly(reader: BinaryIO, length: int) -> bytes:
    data = reader.read(length)
    if len(data) < length:
        raise HttpRefusal(400, "the body ended too soon")
    return data


def _too_large(max_bytes: int) -> HttpRefusal:
    return HttpRefusal(413, f"the body is larger than {max_bytes} bytes")


def response_head(status: int, headers: Mapping[str, str]) -> bytes:
    """Give the beginning of an answer, up to its body."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Status"
    lines = [
        f"HTTP/1.1 {status} {phrase}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def chunk(data: bytes) -> bytes:
    """Give bytes as one chunk of a body; nothing for none, since that would end it."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def sse_event(data: bytes, event_id: str | None = None, retry_ms: int | None = None) -> bytes:
    """Give one server-sent event; `data` has no line ends in it."""
    lines = []
    if event_id is not None:
        lines.append(b"id: " + event_id.encode("ascii"))
    if retry_ms is not None:
        lines.append(b"retry: %d" % retry_ms)
    lines.append(b"data: " + data)
    return b"\n".join([*lines, b"", b""])
