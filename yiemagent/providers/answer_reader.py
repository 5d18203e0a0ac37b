"""Reading a model's answer off an HTTP response, whichever API it belongs to."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias
from urllib.parse import urljoin, urlsplit

from yiemagent.errors import BadResponseError, HttpError, LlmError
from yiemagent.messages import AssistantMessage, StopReason
from yiemagent.net.exchange import origin_of
from yiemagent.net.http import HttpResponse
from yiemagent.net.retry import parse_retry_after, parse_should_retry
from yiemagent.net.sse import SseEvent, SseParser
from yiemagent.providers.failures import (
    error_from_body,
    error_from_value,
    page_text,
    shortened,
)
from yiemagent.quoting import Quoting
from yiemagent.streaming import StreamEvent

__all__ = ["Assembler", "WholeAnswer", "check_status", "read_stream", "read_whole"]

# Makes the last events of an answer that came as one JSON value.
WholeAnswer: TypeAlias = Callable[[Any], Sequence[StreamEvent]]

END_MARK = "[DONE]"
_MAX_ERROR_BYTES = 1_048_576
_MAX_URL = 200
_REDIRECTS = {301, 302, 303, 307, 308}


class Assembler(Protocol):
    """Puts one answer together from the JSON values of its stream; no I/O. One for each request.

    Contract: used by one thread. Only an error that the stream tells of is raised, as an `LlmError`; damaged values
    are left out.
    """

    @property
    def has_content(self) -> bool:
        """Whether any of the answer came: from then on it can't be asked for again."""

    @property
    def is_finished(self) -> bool:
        """Whether the server gave a reason why the answer ended."""

    @property
    def is_over(self) -> bool:
        """Whether nothing can follow: the server said so."""

    def take(self, chunk: Any) -> Sequence[StreamEvent]:
        """Take the next JSON value; gives the events that it makes."""

    def end(self, *, signalled: bool) -> Sequence[StreamEvent]:
        """Take the end of the stream; gives the last events, Done or Error the very last.

        `signalled` tells whether the server said that it was the end. An answer that was cut is an Error event, or
        raises the `LlmError` that says so.
        """

    def message(self, reason: StopReason, error_message: str | None = None, /) -> AssistantMessage:
        """Give the message as it stands."""


def check_status(response: HttpResponse) -> None:
    """Raise what a status other than success means.

    Raises:
        LlmError: the response failed.
    """
    if 200 <= response.status < 300:
        return
    body = _beginning(response, _MAX_ERROR_BYTES)
    location = response.headers.get("location")
    if response.status < 400 and (location or (response.status in _REDIRECTS and not body.strip())):
        raise _redirect(response, location)
    wait_ms = parse_retry_after(response.headers, datetime.now(UTC))
    error = error_from_body(body, response.status, wait_ms)
    told = parse_should_retry(response.headers)
    if told is not None and told != error.retryable:
        error = type(error)(error.args[0], error.status, told, wait_ms)
    raise error


def _redirect(response: HttpResponse, location: str | None) -> LlmError:
    """Give the error for a redirect, which the key of a request goes nowhere by; the advice names the base URL."""
    before, after = (
        f"the model's server answered {response.status}: a redirect",
        ", which is not followed",
    )
    if not location:
        return BadResponseError(f"{before} that names no address{after}", response.status)
    text = Quoting(f"{before} to ", repr(_target(response.url, location)), after)
    return BadResponseError(text, response.status)


def _target(url: str, location: str) -> str:
    """Give where a redirect leads for texts: without user and query, where keys may be, and cut."""
    try:
        target = urljoin(url, location)
        path = urlsplit(target).path
    except ValueError:
        return "a malformed URL"
    return shortened(f"{origin_of(target)}{path}", _MAX_URL)


def _beginning(response: HttpResponse, max_bytes: int) -> bytes:
    """Give what comes of the body of a failure: its status says more than a body that is cut or too large."""
    pieces: list[bytes] = []
    size = 0
    with contextlib.suppress(HttpError):
        for data in response.iter_bytes():
            pieces.append(data)
            size += len(data)
            if size >= max_bytes:
                break
    return b"".join(pieces)[:max_bytes]


def read_stream(
    response: HttpResponse, answer: Assembler, whole: WholeAnswer
) -> Generator[StreamEvent, None, Sequence[StreamEvent]]:
    """Give the events of a stream as they come, and return the last ones.

    Args:
        response: what to read.
        answer: puts it together.
        whole: for a server that was asked for a stream and sends its answer whole.

    Raises:
        LlmError: the answer failed, or there is none.
        HttpError: the connection broke or stalled.
        AbortedError: the signal was set.
    """
    parser, loads, take = SseParser(), json.loads, answer.take
    for data in _pieces(response, answer):
        for event in parser.feed(data):
            text = event.data
            if text == END_MARK:
                response.finish()
                return answer.end(signalled=True)
            try:
                chunk = loads(text)
            except (ValueError, RecursionError):
                _check_noise(text)
                continue
            if event.event == "error":
                take(chunk)  # the API may know more of its errors, and raises then
                raise error_from_value(chunk)
            events = take(chunk)
            if events:
                response.note_progress()
                yield from events
            if answer.is_over:
                response.finish()
                return answer.end(signalled=True)
    events, ended = _replayed(parser.end(), answer)
    return [
        *events,
        *(answer.end(signalled=True) if ended else _rest(parser, response, answer, whole)),
    ]


def read_whole(
    response: HttpResponse, answer: Assembler, whole: WholeAnswer
) -> Sequence[StreamEvent]:
    """Give the last events of an answer that came whole; also where it is a stream under another name.

    Raises:
        LlmError: the answer failed, or there is none.
        HttpError: the connection broke or stalled.
        AbortedError: the signal was set.
    """
    body = response.read()
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        if body.lstrip().startswith((b"data:", b"event:", b":")):
            parser = SseParser()
            events, ended = _replayed([*parser.feed(body), *parser.end()], answer)
            return [
                *events,
                *(answer.end(signalled=True) if ended else _rest(parser, response, answer, whole)),
            ]
        raise _no_answer(body.decode("utf-8", "replace"), response) from None
    return _of_value(value, whole)


def _pieces(response: HttpResponse, answer: Assembler) -> Iterator[bytes]:
    """Give the body; what goes wrong with the connection after the answer's end is no matter."""
    try:
        yield from response.iter_bytes(only_noted_progress=True)
    except HttpError:
        if not answer.is_finished:
            raise


def _replayed(events: Sequence[SseEvent], answer: Assembler) -> tuple[list[StreamEvent], bool]:
    """Give what events that came together make, and whether the server's end was among them."""
    made: list[StreamEvent] = []
    for event in events:
        if event.data == END_MARK:
            return made, True
        chunk = _json_or_none(event.data)
        if event.event == "error":
            answer.take(chunk)
            raise error_from_value(event.data if chunk is None else chunk)
        made += answer.take(chunk)
        if answer.is_over:
            return made, True
    return made, False


def _rest(
    parser: SseParser, response: HttpResponse, answer: Assembler, whole: WholeAnswer
) -> Sequence[StreamEvent]:
    """Give what the end of the body amounts to: a break, or a body that was no stream."""
    stray = parser.stray.strip()
    if not stray or answer.has_content:
        return answer.end(signalled=False)
    value = _json_or_none(stray)
    if value is None:
        raise _no_answer(stray, response)
    return _of_value(value, whole)


def _no_answer(text: str, response: HttpResponse) -> LlmError:
    """Give the error for a body that is neither JSON nor a stream; a page of somebody's comes again, words may not."""
    said = text.strip()
    if said.startswith("<"):
        text = Quoting(
            f"{response.origin} sent a web page, ",
            repr(shortened(page_text(said))),
            ", where an API should answer; check base_url, and whether a proxy or a log-in page stands before it",
        )
        return BadResponseError(text, response.status)
    before = f"{response.origin} sent neither JSON nor a stream of events: "
    return BadResponseError(Quoting(before, repr(shortened(said))), response.status, True)


def _of_value(value: Any, whole: WholeAnswer) -> Sequence[StreamEvent]:
    if isinstance(value, Mapping) and value.get("error"):
        raise error_from_value(value)
    return whole(value)


def _json_or_none(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _check_noise(text: str) -> None:
    """Let pass what keeps a connection alive; refuse what should have been a chunk."""
    if text.lstrip().startswith("{"):
        before = "the model's server sent a damaged chunk: "
        raise BadResponseError(Quoting(before, repr(shortened(text, 200))), None, True)
