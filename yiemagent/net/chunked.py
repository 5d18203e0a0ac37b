"""The chunked transfer coding (RFC 9112, section 7.1) out of bytes, many chunks at a time; no I/O.

A streamed answer is thousands of chunks of one event each; `http.client` reads them one by one, which costs more than
all else that is done with them.
"""

from __future__ import annotations

from yiemagent.errors import HttpError

__all__ = ["ChunkedBody"]

_MAX_LINE_BYTES = 65_536


class ChunkedBody:
    """Turns the bytes of one chunked body into what they carry."""

    def __init__(self) -> None:
        self.ended = False
        """Whether the last chunk and its trailer have come; later bytes are ignored."""
        self._rest = b""  # the beginning of a line, or of the line end behind a chunk
        self._left = 0  # bytes of the present chunk that are still to come
        self._behind_chunk = False
        self._in_trailer = False

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes; gives what they carry, which may be nothing.

        Raises:
            HttpError: the coding is damaged.
        """
        if len(data) < self._left:
            self._left -= len(data)
            return data
        carried = []
        at, self._left = self._left, 0
        if at:
            carried.append(data[:at])
            self._behind_chunk = True
        elif self._rest:
            data = self._rest + data
        size = len(data)
        find = data.find
        while not self.ended:
            if self._behind_chunk:
                if size - at < 2:
                    break
                if data[at : at + 2] != b"\r\n":
                    raise _damaged()
                at += 2
                self._behind_chunk = False
            line_end = find(b"\n", at)
            if line_end < 0:
                break
            if self._in_trailer:
                self.ended = not data[at:line_end].strip()
                at = line_end + 1
                continue
            start = line_end + 1
            end = start + _size(data[at:line_end])
            at = min(end, size)
            if at > start:
                carried.append(data[start:at])
            if end > size:
                self._left = end - size
                break
            self._in_trailer = end == start
            self._behind_chunk = end > start
        self._rest = data[at:]
        if len(self._rest) > _MAX_LINE_BYTES:
            raise _damaged()
        return carried[0] if len(carried) == 1 else b"".join(carried)


def _size(line: bytes) -> int:
    try:
        size = int(line, 16)
    except ValueError:
        try:
            size = int(line.partition(b";")[0], 16)  # without the chunk's extensions
        except ValueError:
            raise _damaged() from None
    if size < 0:
        raise _damaged()
    return size


def _damaged() -> HttpError:
    return HttpError("the connection broke: its chunked body is damaged", None, True)
