"""The words of a scripted HTTP server: what it was asked, what it answers, and how the answer's bytes leave."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Literal, TypeAlias

import attrs

from yiemagent.record import Record

__all__ = ["HttpAnswer", "HttpRequest", "json_answer", "read_request", "sse", "sse_answer"]

Step: TypeAlias = bytes | str | float | threading.Event | Callable[[], object]
WireStep: TypeAlias = bytes | float | threading.Event | Callable[[], object]
Ending: TypeAlias = Literal["keep", "close", "reset", "hang"]


@attrs.frozen(eq=False, repr=False)
class HttpRequest(Record):
    """One request as it came.

    Args:
        method: "GET", "POST", …
        target: path and query.
        headers: names in lower case; of a repeated one, the last.
        body: its bytes, out of their chunks.
        connection: the number of the connection that it came over, from 1 on.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    connection: int

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


def _steps(body: bytes | str | Iterable[Step]) -> tuple[Step, ...]:
    return (body,) if isinstance(body, (bytes, str)) else tuple(body)


@attrs.frozen(eq=False, repr=False)
class HttpAnswer(Record):
    """One scripted answer, with whatever is wrong about it.

    Args:
        body: bytes or text; or steps: bytes or text to send, seconds to wait, a `threading.Event` to wait for, or a
            function to call. A script never waits longer than its server is open.
        status: the HTTP status; None sends no head, so that the body is all that leaves.
        headers: further headers, as pairs.
        piece: cut the body into pieces of so many bytes, each sent by itself; None sends each step whole.
        pause_s: seconds to wait before each piece but the first: slow bytes.
        chunked: send each piece as a chunk of its own.
        length: send a Content-Length; only where the body has nothing but bytes and isn't chunked. Else the body goes
            up to the end of the connection.
        cut: end after so many bytes of the body, although the head promises all of it; None for no such fault.
        then: "close" the connection, "keep" it for the next request, "reset" it, or "hang": leave it open and silent.
    """

    body: Sequence[Step] = attrs.field(default=b"", converter=_steps)
    status: int | None = attrs.field(default=200, kw_only=True)
    headers: Sequence[tuple[str, str]] = attrs.field(default=(), kw_only=True, converter=tuple)
    piece: int | None = attrs.field(default=None, kw_only=True)
    pause_s: float = attrs.field(default=0.0, kw_only=True)
    chunked: bool = attrs.field(default=False, kw_only=True)
    length: bool = attrs.field(default=True, kw_only=True)
    cut: int | None = attrs.field(default=None, kw_only=True)
    then: Ending = attrs.field(
        default="close",
        kw_only=True,
        validator=attrs.validators.in_(("keep", "close", "reset", "hang")),
    )

    def head(self) -> bytes:
        """The status line and the headers, as they leave; empty without a status."""
        if self.status is None:
            return b""
        lines = [f"HTTP/1.1 {self.status} Scripted"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        only_bytes = all(isinstance(step, (bytes, str)) for step in self.body)
        if self.chunked:
            lines.append("Transfer-Encoding: chunked")
        elif self.length and only_bytes:
            lines.append(f"Content-Length: {sum(len(_bytes(step)) for step in self.body)}")
        if self.then == "close":
            lines.append("Connection: close")
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def wire_steps(self) -> Iterator[WireStep]:
        """The body's steps, as they leave: bytes in their pieces and chunks, and what comes between them."""
        left, first = self.cut, True
        for step in self.body:
            if not isinstance(step, (bytes, str)):
                yield step
                continue
            data = _bytes(step)[:left]
            if left is not None:
                left -= len(data)
            for piece in _pieces(data, self.piece):
                if self.pause_s and not first:
                    yield self.pause_s
                first = False
                yield b"%x\r\n%b\r\n" % (len(piece), piece) if self.chunked else piece
            if left == 0:
                return
        if self.chunked and self.then in {"keep", "close"}:
            yield b"0\r\n\r\n"


def _bytes(step: Any) -> bytes:
    return step.encode() if isinstance(step, str) else bytes(step)


def _pieces(data: bytes, size: int | None) -> Iterator[bytes]:
    width = size or len(data) or 1
    for start in range(0, len(data), width):
        yield data[start : start + width]


def sse(*events: Any, done: bool = True) -> bytes:
    """Give JSON values as server-sent events.

    Args:
        events: each a JSON value, or a pair of the event's name and its value.
        done: add the `[DONE]` that ends a stream of the OpenAI chat API.
    """
    lines = []
    for event in events:
        name, value = event if isinstance(event, tuple) else ("", event)
        named = f"event: {name}\n" if name else ""
        lines.append(f"{named}data: {json.dumps(value)}\n\n")
    if done:
        lines.append("data: [DONE]\n\n")
    return "".join(lines).encode()


def sse_answer(body: bytes | str | Iterable[Step], **options: Any) -> HttpAnswer:
    """Give a stream of server-sent events as an answer; it goes up to the end of the connection unless chunked.

    Args:
        body: bytes of `sse`, or steps.
        options: those of `HttpAnswer`.
    """
    headers = [("Content-Type", "text/event-stream"), *options.pop("headers", ())]
    return HttpAnswer(body, headers=headers, **{"length": False, **options})


def json_answer(value: Any, **options: Any) -> HttpAnswer:
    """Give a JSON value as an answer; `options` are those of `HttpAnswer`."""
    headers = [("Content-Type", "application/json"), *options.pop("headers", ())]
    return HttpAnswer(json.dumps(value).encode(), headers=headers, **options)


# --- reading requests -----------------------------------------------------------------------------------------------


def read_request(reader: BinaryIO, connection: int) -> HttpRequest | None:
    """Read the next request of a connection; None where the client sends no more.

    Raises:
        ValueError: what came is no HTTP.
    """
    first = reader.readline()
    if not first.strip():
        return None
    method, target, _ = first.decode("latin-1").split(" ")
    headers: dict[str, str] = {}
    while (line := reader.readline().decode("latin-1").rstrip("\r\n")) != "":
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    if "chunked" in headers.get("transfer-encoding", ""):
        body = b"".join(iter(lambda: _read_chunk(reader), b""))
    else:
        body = reader.read(int(headers.get("content-length", 0)))
    return HttpRequest(method, target, headers, body, connection)


def _read_chunk(reader: BinaryIO) -> bytes:
    size = int(reader.readline().split(b";")[0], 16)
    data = reader.read(size)
    reader.readline()  # the end of the chunk's line, or of the trailers, which nobody sends
    return data
