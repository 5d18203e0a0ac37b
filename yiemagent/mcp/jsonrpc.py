"""JSON-RPC 2.0 as MCP uses it: messages out of bytes and bytes out of messages; no I/O.

What comes in may be anything: banners, log lines, a byte order mark, JSON nested a hundred thousand deep. Nothing here
raises on it. A line is a message, `Noise` that has nothing to do with the protocol, or `Malformed`: meant as a message
and unreadable, with the id that it answers where that can be seen.

What goes out is ASCII where it can be, so that it survives servers that read their input in another encoding.
"""

from __future__ import annotations

import functools
import json
import re
import reprlib
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import attrs

from yiemagent.record import Record

__all__ = [
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "PARSE_ERROR",
    "ErrorResponse",
    "Incoming",
    "LineReader",
    "Malformed",
    "Noise",
    "Notification",
    "Request",
    "Response",
    "RpcId",
    "RpcMessage",
    "dump",
    "error_response",
    "id_key",
    "notification",
    "parse",
    "read_message",
    "request",
    "response",
]

RpcId: TypeAlias = int | str

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

_BOM = b"\xef\xbb\xbf"
_EXCERPT_CHARS = 200
_END_BYTES = 512


# --- messages --------------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False, repr=False)
class Request(Record):
    """A question: `id` as it came, to be echoed as it is; `params` is empty where there were none."""

    id: RpcId
    method: str
    params: dict[str, Any] = attrs.field(factory=dict)


@attrs.frozen(eq=False, repr=False)
class Notification(Record):
    """Something said that wants no answer."""

    method: str
    params: dict[str, Any] = attrs.field(factory=dict)


@attrs.frozen(eq=False, repr=False)
class Response(Record):
    """The good answer to the request `id`; MCP wants an object as the result, and whoever reads it checks."""

    id: RpcId
    result: Any


@attrs.frozen(eq=False, repr=False)
class ErrorResponse(Record):
    """The error that answers the request `id`; None where the other side could not tell which one."""

    id: RpcId | None
    code: int
    message: str
    data: Any = None


@attrs.frozen(eq=False, repr=False)
class Malformed(Record):
    """What was meant as a message and can't be read.

    Args:
        reason: what is wrong, in words.
        id: the request it belongs to where that can be seen, else None.
        code: the JSON-RPC code for it: `PARSE_ERROR` or `INVALID_REQUEST`.
        excerpt: how it begins.
        is_answer: whether it looks like an answer (True), a request (False), or neither (None).
    """

    reason: str
    id: RpcId | None = None
    code: int = INVALID_REQUEST
    excerpt: str = ""
    is_answer: bool | None = None


@attrs.frozen(eq=False, repr=False)
class Noise(Record):
    """A line that is no message and was not meant as one, such as a banner; `excerpt` is how it begins."""

    excerpt: str


RpcMessage: TypeAlias = Request | Notification | Response | ErrorResponse
Incoming: TypeAlias = RpcMessage | Malformed | Noise


def id_key(value: RpcId | None) -> RpcId | None:
    """Give the id under which an answer is looked up: servers send "7" for 7, and 7 was asked."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        return int(value)
    return value


# --- in --------------------------------------------------------------------------------------------------------------


def parse(data: bytes | str, *, strict: bool = False) -> list[Incoming]:
    """Read what one line, or one HTTP body, holds.

    Args:
        data: JSON, as text or as bytes; what is no UTF-8 is read as U+FFFD.
        strict: whether a message without `"jsonrpc": "2.0"` is malformed; without it such ones are taken.

    Returns:
        One entry; several where it is a batch, which 2025-03-26 allows; none where it is blank.
    """
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    if not text.strip():
        return []
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:  # too deep is no ValueError
        return [_unreadable(text, error)]
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return [read_message(item, strict=strict) for item in value]
    return [read_message(value, strict=strict)]


def read_message(value: Any, *, strict: bool = False) -> Incoming:
    """Read one JSON value as a message; see `parse`."""
    if not isinstance(value, dict):
        return Noise(reprlib.repr(value))
    if not ("jsonrpc" in value or "method" in value or "id" in value):
        return Noise(reprlib.repr(value))
    if strict and value.get("jsonrpc") != "2.0":
        return _malformed(value, 'there is no "jsonrpc": "2.0"')
    if "method" in value:
        return _asked(value)
    if "result" in value or "error" in value:
        return _answered(value)
    if "jsonrpc" in value:
        return _malformed(value, "there is neither a method, a result nor an error")
    return Noise(reprlib.repr(value))


def _asked(value: dict[str, Any]) -> Incoming:
    method, params = value["method"], value.get("params")
    if not isinstance(method, str):
        return _malformed(value, "the method is no text")
    if params is None:
        params = {}
    elif not isinstance(params, dict):
        return _malformed(value, "the params are no object")
    if "id" not in value:
        return Notification(method, params)
    found = _id(value["id"])
    if found is None:
        return _malformed(value, "the id is neither text nor a whole number")
    return Request(found, method, params)


def _answered(value: dict[str, Any]) -> Incoming:
    error, found = value.get("error"), _id(value.get("id"))
    if error is None and "result" in value:
        if found is None:
            return _malformed(value, "the answer names no request")
        return Response(found, value["result"])
    if error is None or value.get("result") is not None:
        return _malformed(value, "there is both a result and an error, or neither")
    if not isinstance(error, dict):
        return ErrorResponse(found, INTERNAL_ERROR, str(error))
    code = error.get("code")
    is_code = isinstance(code, int) and not isinstance(code, bool)
    words = error.get("message")
    message = words if isinstance(words, str) and words else "no message"
    return ErrorResponse(
        found, cast("int", code) if is_code else INTERNAL_ERROR, message, error.get("data")
    )


def _id(value: Any) -> RpcId | None:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    return value


def _malformed(value: dict[str, Any], reason: str) -> Malformed:
    asks = "method" in value
    answers = None if "id" not in value and not asks else not asks
    return Malformed(reason, _id(value.get("id")), INVALID_REQUEST, reprlib.repr(value), answers)


# The id of a message that can't be parsed, seen where encoders write it: first, behind "jsonrpc", or last.
_ID = r'"id"\s*:\s*(-?\d{1,15}|"(?:[^"\\]|\\.){0,200}")'
_ID_FIRST = re.compile(rf'\s*\{{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?{_ID}')
_ID_LAST = re.compile(rf'{_ID}\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}}\s*$')


def _unreadable(text: str, error: Exception) -> Incoming:
    beginning = text[:_END_BYTES].lstrip()
    if beginning.startswith('"jsonrpc"'):
        reason = "a message is spread over several lines, and each must be a line of its own"
        return Malformed(reason, None, PARSE_ERROR, _excerpt(text))
    if not beginning.startswith(("{", "[{")):
        return Noise(_excerpt(text))
    if not ('"jsonrpc"' in text or '"method"' in text or '"id"' in text):
        return Noise(_excerpt(text))
    reason = (
        "it is nested too deeply"
        if isinstance(error, RecursionError)
        else f"it is no JSON: {error}"
    )
    return _from_ends(text[:_END_BYTES], text[-_END_BYTES:], reason)


def _from_ends(beginning: str, end: str, reason: str) -> Malformed:
    found = _ID_FIRST.match(beginning) or _ID_LAST.search(end)
    number = None if found is None else cast("RpcId", json.loads(found[1]))
    asks = '"method"' in beginning
    return Malformed(
        reason, number, PARSE_ERROR, _excerpt(beginning), None if number is None else not asks
    )


def _excerpt(text: str) -> str:
    return text if len(text) <= _EXCERPT_CHARS else f"{text[:_EXCERPT_CHARS]}…"


class LineReader:
    """Cuts a stream of bytes into lines and reads each as `parse` does.

    A line above the limit is skipped to its end and given as one `Malformed`, so that only the request which it answers
    fails. A byte order mark before the first line is dropped, and so is what ends a line beside the line feed.

    Args:
        max_line_bytes: the limit.
        strict: see `parse`.
    """

    def __init__(self, max_line_bytes: int = 67_108_864, *, strict: bool = False) -> None:
        self.noise_count = 0
        """How many lines were noise."""
        self._max = max_line_bytes
        self._strict = strict
        self._pieces: list[bytes] = []  # of the line whose end hasn't come
        self._size = 0
        self._started = False

    def feed(self, data: bytes) -> list[Incoming]:
        """Take the next bytes and give what they complete, in order."""
        found: list[Incoming] = []
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._add(line)
            found += self._line()
        self._add(rest)
        return found

    def end(self) -> list[Incoming]:
        """Take the end of the bytes: a last line without a line feed is a line where it is whole, else nothing."""
        return [item for item in self._line() if not isinstance(item, Malformed)]

    def _add(self, piece: bytes) -> None:
        if not piece:
            return
        self._size += len(piece)
        if self._size <= self._max:
            self._pieces.append(piece)
        else:  # keep the ends only, where the id may be
            held = b"".join((*self._pieces, piece))
            beginning, end = held[:_END_BYTES], held[max(_END_BYTES, len(held) - _END_BYTES) :]
            self._pieces = [beginning, end]

    def _line(self) -> list[Incoming]:
        line, size = b"".join(self._pieces), self._size
        self._pieces, self._size = [], 0
        if not self._started and line:
            self._started = True
            line = line.removeprefix(_BOM)
        if size > self._max:
            beginning = line[:_END_BYTES].decode("utf-8", "replace")
            end = line[-_END_BYTES:].decode("utf-8", "replace")
            return [_from_ends(beginning, end, f"a line is longer than {self._max} bytes")]
        found = parse(line, strict=self._strict)
        self.noise_count += sum(isinstance(item, Noise) for item in found)
        return found


# --- out -------------------------------------------------------------------------------------------------------------


def request(id: RpcId, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:  # noqa: A002 - its name on the wire
    """Give a request as the dict that goes out."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": id, "method": method}
    if params is not None:
        message["params"] = params
    return message


def notification(method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Give a notification as the dict that goes out."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return message


def response(id: RpcId, result: Mapping[str, Any]) -> dict[str, Any]:  # noqa: A002 - its name on the wire
    """Give a good answer as the dict that goes out."""
    return {"jsonrpc": "2.0", "id": id, "result": result}


def error_response(
    id: RpcId | None,  # noqa: A002 - its name on the wire
    code: int,
    message: str,
    data: Any = None,
) -> dict[str, Any]:
    """Give an error answer as the dict that goes out; `data` is left out where it is None."""
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": id, "error": error}


_to_json = functools.partial(json.dumps, separators=(",", ":"), allow_nan=False)


def dump(message: Any) -> bytes:
    """Give a message as one line of JSON without a line end; half characters become U+FFFD.

    Raises:
        ValueError: it holds a number that JSON has not (NaN, Infinity), or it holds itself.
        TypeError: it holds a value that is no JSON.
        RecursionError: it is nested too deeply.
    """
    text = _to_json(message)
    if "\\ud" not in text:
        return text.encode("ascii")
    # There are characters beyond the basic plane, or halves of such: send them as they are and mend the halves.
    raw = _to_json(message, ensure_ascii=False)
    whole = raw.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").encode()
