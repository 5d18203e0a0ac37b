"""Texts of ours that quote somebody else: a server that is sent a key may repeat it, the library never does."""

from __future__ import annotations

from typing import Self

__all__ = ["Quoting"]


class Quoting(str):
    """A text that knows which part of it somebody else said; the message of an error, whose `str` is plain text.

    Args:
        before: our words.
        said: theirs.
        after: ours again.
    """

    __slots__ = ("after", "before", "said")
    before: str
    said: str
    after: str

    def __new__(cls, before: str, said: str, after: str = "") -> Self:
        """Make the text of its parts."""
        made = super().__new__(cls, f"{before}{said}{after}")
        made.before, made.said, made.after = before, said, after
        return made
