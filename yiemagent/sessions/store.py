"""Where the lines of a session are kept: the port that all stores fulfil, and the store in memory.

A store knows nothing of entries: it keeps lines of JSON, gives them back as they were written, and is the only place
that could lose them.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Literal, Protocol, TypeAlias

from yiemagent.errors import SessionError

__all__ = ["Fsync", "MemoryStore", "Store"]

Fsync: TypeAlias = Literal["always", "batch", "never"]


class Store(Protocol):
    """Keeps the lines of one session.

    Contract: one writer at a time, enforced across processes; readers never wait for it. A line that `append` returned
    for is there whatever happens to the process; one that it raised for is not there. Methods are called by one thread
    at a time. Every error is a `SessionError` that names the place.
    """

    @property
    def path(self) -> pathlib.Path | None:
        """The file, or None where there is none."""
        ...

    @property
    def header(self) -> str:
        """The first line of the session."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was found when it was opened and is no error, such as a torn last line that was dropped."""
        ...

    def __len__(self) -> int:
        """How many lines there are behind the header."""
        ...

    def append(self, line: str, *, durable: bool = True) -> None:
        """Add a line.

        Args:
            line: JSON without a newline.
            durable: whether it should survive a power failure once this returns, where the store was asked for that.

        Raises:
            SessionError: it is not there: the disk is full, the file vanished, somebody else changed it, it was opened
                for reading or in another process, or it is closed.
        """
        ...

    def sync(self) -> None:
        """Have what was appended survive a power failure, unless the store was asked for never.

        Raises:
            SessionError: it may not.
        """
        ...

    def lines(self, start: int = 0, stop: int | None = None) -> Iterator[str]:
        """Give the lines from `start` up to `stop`, as they were written; the first behind the header is 0.

        Raises:
            SessionError: the file was damaged or changed since it was opened.
        """
        ...

    def place(self, index: int) -> str:
        """Say where a line is, for error texts."""
        ...

    def close(self) -> None:
        """Let go of the file; calling it twice does nothing."""
        ...


class MemoryStore:
    """A store that lives as long as the process; what it holds is gone with it.

    Args:
        header: the first line.
    """

    def __init__(self, header: str) -> None:
        self.header = header
        self.path: pathlib.Path | None = None
        self.warnings: tuple[str, ...] = ()
        self._lines: list[str] = []
        self._closed = False

    def __len__(self) -> int:
        return len(self._lines)

    def append(self, line: str, *, durable: bool = True) -> None:  # noqa: ARG002  # memory lasts no longer either way
        """Add a line; see `Store`."""
        if self._closed:
            raise SessionError("the session is closed; open it again")
        self._lines.append(line)

    def sync(self) -> None:
        """Nothing is written later."""

    def lines(self, start: int = 0, stop: int | None = None) -> Iterator[str]:
        """Give lines; see `Store`."""
        return iter(self._lines[start:stop])

    def place(self, index: int) -> str:
        """Say where a line is, for error texts."""
        return f"line {index + 2} of the session in memory"

    def close(self) -> None:
        """Take nothing more in; see `Store`."""
        self._closed = True
