"""Thinking that comes inside of an answer's text, between <think> and </think>; no I/O.

Servers that know nothing of a model's way to think send its words as they come. Only an answer that begins with the tag
is taken apart: further on the same words may be what the user asked about.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["Piece", "ThinkTags"]

Piece: TypeAlias = tuple[Literal["text", "thinking"], str]

OPEN, CLOSE = "<think>", "</think>"


class ThinkTags:
    """Tells thinking from text, however the text is cut. Used by one thread, for one answer."""

    def __init__(self) -> None:
        self._state: Literal["beginning", "thinking", "between", "text"] = "beginning"
        self._held = ""  # what may be part of a tag

    def feed(self, text: str) -> list[Piece]:
        """Take the next text; gives what is known of it so far."""
        if self._state == "text":
            return [("text", text)] if text else []
        text = self._held + text
        self._held = ""
        pieces: list[Piece] = []
        if self._state == "beginning":
            text = self._begin(text)
        if self._state == "thinking":
            text = self._think(text, pieces)
        if self._state == "between":
            text = text.lstrip()
            self._state = "text" if text else "between"
        if self._state == "text" and text:
            pieces.append(("text", text))
        return pieces

    def end(self) -> list[Piece]:
        """Take the end; gives what was held back."""
        held, self._held = self._held, ""
        if not held:
            return []
        return [("thinking" if self._state == "thinking" else "text", held)]

    def _begin(self, text: str) -> str:
        begun = text.lstrip()
        if begun.startswith(OPEN):
            self._state = "thinking"
            return begun[len(OPEN) :].lstrip()
        if OPEN.startswith(begun):  # also where there is nothing yet but white space
            self._held = text
            return ""
        self._state = "text"
        return text

    def _think(self, text: str, pieces: list[Piece]) -> str:
        thought, closing, rest = text.partition(CLOSE)
        if not closing:
            held = _begun_tag(thought)
            thought, self._held = thought[: len(thought) - held], thought[len(thought) - held :]
        else:
            self._state = "between"
        if thought:
            pieces.append(("thinking", thought))
        return rest


def _begun_tag(text: str) -> int:
    """Give how many characters at the end may begin the closing tag."""
    for size in range(min(len(CLOSE) - 1, len(text)), 0, -1):
        if text.endswith(CLOSE[:size]):
            return size
    return 0
