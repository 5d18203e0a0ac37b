"""Server-sent events out of bytes, as the WHATWG HTML standard, section 9.2, reads them; no I/O.

Whole events are decoded and split a buffer at a time, since a model's answer is thousands of small ones. What is left
of a buffer, the beginning of an event, goes line by line into the state that the next bytes continue. So bytes may be
cut anywhere, inside a character or between CR and LF, and the events are the same.
"""

from __future__ import annotations

from typing import NamedTuple

from yiemagent.errors import HttpError

__all__ = ["SseEvent", "SseParser"]

_BOM = b"\xef\xbb\xbf"
_MAX_STRAY_CHARS = 65_536


class SseEvent(NamedTuple):
    """One event: its data lines joined by line feeds, its type, and the last id that the server has named."""

    data: str
    event: str = "message"
    id: str = ""


class SseParser:
    """Turns the bytes of one `text/event-stream` body into events.

    Args:
        max_event_chars: a longer event, or a line without end, is an `HttpError`.
    """

    def __init__(self, max_event_chars: int = 16_777_216) -> None:
        self.retry_ms: int | None = None
        """The reconnection time that the server asked for last, in milliseconds."""
        self._max = max_event_chars
        self._tail: list[
            bytes
        ] = []  # pieces of a line whose end hasn't come; joined once, so long lines stay linear
        self._tail_bytes = 0
        self._started = False
        self._after_cr = False
        self._data: list[str] = []
        self._data_chars = 0
        self._event = ""
        self._id = ""
        self._stray: list[str] = []
        self._stray_chars = 0

    @property
    def last_event_id(self) -> str:
        """The last id that the server has named, also by an event without data; empty where it named none."""
        return self._id

    @property
    def stray(self) -> str:
        """The lines that were no field of any event (the first 64 KiB), such as an error body without framing."""
        return "\n".join(self._stray)

    def feed(self, data: bytes) -> list[SseEvent]:
        """Take the next bytes.

        Returns:
            The events that they complete, in order.

        Raises:
            HttpError: an event is larger than the limit.
        """
        if not self._started:
            data = self._without_bom(data)
        if b"\r" in data or self._after_cr:
            data = self._unix_lines(data)
        cut = data.rfind(b"\n") + 1
        if not cut:
            self._keep(data)
            return []
        whole = b"".join((*self._tail, data[:cut])) if self._tail else data[:cut]
        self._tail.clear()
        self._tail_bytes = 0
        events = self._lines(whole.decode("utf-8", "replace"))
        if cut < len(data):
            self._keep(data[cut:])
        return events

    def end(self) -> list[SseEvent]:
        """Take the end of the bytes.

        Returns:
            The event that was begun and not finished by a blank line, its last line even without a line end; the
            standard drops it, but some servers never send the last blank line. Its reader judges whether it is whole.
        """
        rest = b"".join(self._tail)
        self._tail.clear()
        self._tail_bytes = 0
        return self._lines(rest.decode("utf-8", "replace") + "\n\n")

    def _keep(self, piece: bytes) -> None:
        self._tail.append(piece)
        self._tail_bytes += len(piece)
        self._check(self._tail_bytes)

    def _check(self, size: int) -> None:
        if size > self._max:
            raise HttpError(f"a server-sent event is larger than {self._max} characters")

    def _without_bom(self, data: bytes) -> bytes:
        start = b"".join((*self._tail, data))
        self._tail.clear()
        self._tail_bytes = 0
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._keep(start)
            return b""
        self._started = True
        return start.removeprefix(_BOM)

    def _unix_lines(self, data: bytes) -> bytes:
        if (
            self._after_cr and data
        ):  # that CR ended its line when it came; a LF after it ends nothing more
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if data.endswith(b"\r"):
            self._after_cr = True
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _lines(self, text: str) -> list[SseEvent]:
        """Take whole lines: finished events by the block, the rest line by line."""
        blocks = text.split("\n\n")
        last = blocks.pop()
        events: list[SseEvent] = []
        if blocks and (
            self._data or self._event
        ):  # the first block goes on with what earlier bytes began
            events += self._block(blocks.pop(0) + "\n\n")
        last_id, limit = self._id, self._max
        for block in blocks:
            if block[:6] == "data: " and "\n" not in block and len(block) <= limit:
                events.append(SseEvent(block[6:], "message", last_id))
            else:
                events += self._block(block + "\n\n")
                last_id = self._id
        if last:
            events += self._block(last)
        return events

    def _block(self, text: str) -> list[SseEvent]:
        events: list[SseEvent] = []
        for line in text.split("\n")[:-1]:
            if line:
                self._field(line)
            elif event := self._dispatch():
                events.append(event)
        return events

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._data.append(value)
                self._data_chars += len(value)
                self._check(self._data_chars)
            case "event":
                self._event = value
            case "id":
                if "\0" not in value:
                    self._id = value
            case "retry":
                if value.isascii() and value.isdigit():
                    self.retry_ms = int(value)
            case "":
                pass  # a comment
            case _ if self._stray_chars < _MAX_STRAY_CHARS:
                self._stray.append(line[:_MAX_STRAY_CHARS])
                self._stray_chars += len(line)

    def _dispatch(self) -> SseEvent | None:
        data, event = self._data, self._event or "message"
        self._data, self._data_chars, self._event = [], 0, ""
        return SseEvent("\n".join(data), event, self._id) if data else None
