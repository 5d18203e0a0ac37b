"""Where a command writes: its product to stdout, everything else to stderr; in colour where `rich` is there.

A command writes from the main thread only. Once the reader of either stream has gone away, writing raises
`OutputClosed`; where a stream can't be written for another reason, such as a full disk, `OutputFailed`.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import shutil
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, Protocol, TextIO

__all__ = [
    "OutputClosed",
    "OutputFailed",
    "Progress",
    "Terminal",
    "UsageProblem",
    "one_line",
    "size_text",
]

_BAR_WIDTH = 30


class OutputClosed(Exception):
    """The reader of what is written has gone away, as `| head` does."""


class OutputFailed(Exception):
    """What is written can't be kept, as on a full disk; the text says why."""


class UsageProblem(Exception):
    """The command line can't be followed; the text says what to change."""


class Progress(Protocol):
    """Told of progress: how much is done, and of how much, where that is known."""

    def __call__(self, done: int, total: int | None, /) -> None:
        """Show the progress."""


class Terminal:
    """The two streams of a command.

    Args:
        out: for what was asked for; err: for everything else.
        rich: the `rich` package, or None to do without it.
    """

    def __init__(self, out: TextIO, err: TextIO, *, rich: ModuleType | None = None) -> None:
        self._out = out
        self._err = err
        self._mid_line = False
        self._console: Any = None
        if rich is not None and err.isatty():
            self._console = importlib.import_module("rich.console").Console(
                file=err, highlight=False, soft_wrap=True
            )

    @classmethod
    def of_process(cls) -> Terminal:
        """Give the terminal over the streams of this process; what an encoding lacks is written as an escape."""
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        # A process may be started without one of them.
        return cls(sys.stdout or io.StringIO(), sys.stderr or io.StringIO(), rich=_rich())

    @property
    def is_watched(self) -> bool:
        """Whether a person sees what is written to stderr."""
        return self._err.isatty()

    def say(self, text: str) -> None:
        """Write text to stdout as it is, at once; control characters are left out where a person reads it."""
        if not text:
            return
        shown = _without_controls(text) if self._out.isatty() else text
        with _closing():
            self._out.write(shown)
            self._out.flush()
        self._mid_line = not text.endswith("\n")

    def end_line(self) -> None:
        """End the line on stdout, where one is begun."""
        if self._mid_line:
            self.say("\n")

    def note(self, text: str, style: str = "") -> None:
        """Write one line to stderr.

        Args:
            text: the line; line breaks in it become blanks.
            style: a style of `rich`, such as "dim" or "bold red".
        """
        if self._mid_line and self._out.isatty():
            self.end_line()
        line = one_line(text)
        with _closing():
            if self._console is not None:
                self._console.print(line, style=style or None, markup=False)
                return
            self._err.write(f"{line}\n")
            self._err.flush()

    def ask(self, question: str) -> None:
        """Write a question to stderr, as it is; the line stays open for the answer."""
        if self._mid_line and self._out.isatty():
            self.end_line()
        with _closing():
            self._err.write(question)
            self._err.flush()

    def complain(self, text: str, style: str = "") -> None:
        """Write text of several lines to stderr, blanks and all; what could steer a terminal is left out."""
        if self._mid_line and self._out.isatty():
            self.end_line()
        shown = _without_controls(text.replace("\t", "    "))
        with _closing():
            if self._console is not None:
                self._console.print(shown, style=style or None, markup=False)
                return
            self._err.write(f"{shown}\n")
            self._err.flush()

    def error(self, text: str) -> None:
        """Write one line to stderr that says what went wrong; a long one loses its middle, since its end says why."""
        line = one_line(f"error: {text}", limit=len(text) + 7)
        self.note(line if len(line) <= 300 else f"{line[:99]}…{line[-200:]}", "bold red")

    def rows(self, rows: Sequence[Sequence[str]]) -> None:
        """Write rows to stdout, their cells aligned in columns."""
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            self.say(f"{'  '.join(cells).rstrip()}\n")

    @contextlib.contextmanager
    def progress(self, label: str) -> Iterator[Progress]:
        """Show how far something is, on stderr, for the length of a `with`: a bar on a terminal, else a few lines."""
        if self._console is not None:
            with _rich_bar(self._console, label) as show:
                yield show
            return
        show = _Bar(self._err, label) if self._err.isatty() else _Lines(self, label)
        try:
            yield show
        finally:
            show.end()


@contextlib.contextmanager
def _closing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise OutputClosed from error
    except OSError as error:
        raise OutputFailed(f"the output can't be written: {error.strerror or error}") from error


def _rich() -> ModuleType | None:
    try:
        return importlib.import_module("rich")
    except ImportError:
        return None


def one_line(text: str, limit: int = 300) -> str:
    """Give text as one line for a person: blanks for line breaks, no control characters, cut at `limit`."""
    line = _without_controls(" ".join(text.split()))
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _without_controls(text: str) -> str:
    """Leave out what could steer a terminal."""
    if text.isprintable():
        return text
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) != "Cc")


def size_text(size_bytes: int) -> str:
    """Give a size in words: "94.2 MB"."""
    size = float(size_bytes)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


class _Bar:
    """A bar that is drawn over itself."""

    def __init__(self, err: TextIO, label: str) -> None:
        self._err = err
        self._label = label
        self._shown = ""

    def __call__(self, done: int, total: int | None) -> None:
        amount = size_text(done)
        if total:
            filled = min(_BAR_WIDTH, _BAR_WIDTH * done // total)
            bar = "#" * filled + "-" * (_BAR_WIDTH - filled)
            amount = f"[{bar}] {min(100, 100 * done // total):3d} % of {size_text(total)}"
        line = f"{self._label} {amount}"[: shutil.get_terminal_size().columns - 1]
        if line == self._shown:
            return
        with _closing():
            self._err.write(f"\r{line.ljust(len(self._shown))}")
            self._err.flush()
        self._shown = line

    def end(self) -> None:
        if self._shown:
            with _closing():
                self._err.write("\n")


class _Lines:
    """A line for each quarter, for logs."""

    def __init__(self, terminal: Terminal, label: str) -> None:
        self._terminal = terminal
        self._label = label
        self._quarter = -1

    def __call__(self, done: int, total: int | None) -> None:
        quarter = min(4, 4 * done // total) if total else 0
        if quarter > self._quarter:
            self._quarter = quarter
            whole = f"{25 * quarter} % of {size_text(total)}" if total else "size unknown"
            self._terminal.note(f"{self._label}: {whole}")

    def end(self) -> None:
        """Leave the lines as they are."""


@contextlib.contextmanager
def _rich_bar(console: Any, label: str) -> Iterator[Progress]:
    parts = importlib.import_module("rich.progress")
    columns = (
        parts.TextColumn("{task.description}"),
        parts.BarColumn(),
        parts.DownloadColumn(),
        parts.TransferSpeedColumn(),
        parts.TimeRemainingColumn(),
    )
    with parts.Progress(*columns, console=console) as bars:
        task = bars.add_task(label, total=None)

        def show(done: int, total: int | None) -> None:
            bars.update(task, completed=done, total=total)

        yield show
