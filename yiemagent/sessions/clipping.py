"""Cutting texts to a size in bytes, on character boundaries. Pure."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["head", "middle_out", "size_bytes", "tail"]


def size_bytes(text: str) -> int:
    """Give the size of a text as UTF-8."""
    return len(text) if text.isascii() else len(_encoded(text))


def head(text: str, max_bytes: int) -> str:
    """Give as much of a text's beginning as fits into so many bytes of UTF-8."""
    begin = text[: max(0, max_bytes)]  # a character has one byte at least
    if begin.isascii():
        return begin
    data = _encoded(begin)
    end = min(len(data), max_bytes)
    while 0 < end < len(data) and _continues(data[end]):
        end -= 1
    return _decoded(data[:end])


def tail(text: str, max_bytes: int) -> str:
    """Give as much of a text's end as fits into so many bytes of UTF-8."""
    end = text[-max_bytes:] if max_bytes > 0 else ""
    if end.isascii():
        return end
    data = _encoded(end)
    begin = max(0, len(data) - max_bytes)
    while begin < len(data) and _continues(data[begin]):
        begin += 1
    return _decoded(data[begin:])


def middle_out(text: str, max_bytes: int, note: Callable[[int], str]) -> str:
    """Give a text with its middle left out where it is larger than so many bytes: two thirds beginning, one third end.

    Args:
        text: the text.
        max_bytes: what of it is kept; the note comes on top.
        note: given the number of characters that are left out, gives what stands in their place.
    """
    if len(text) <= max_bytes and size_bytes(text) <= max_bytes:
        return text
    begin = head(text, max_bytes * 2 // 3)
    end = tail(text, max_bytes // 3)
    return f"{begin}{note(len(text) - len(begin) - len(end))}{end}"


def _continues(byte: int) -> bool:
    """Whether a byte is a later one of its character."""
    return byte & 0xC0 == 0x80


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # lone surrogates are kept as they are


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
