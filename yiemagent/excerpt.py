"""Parts of texts that are too long for a model, always with words that say what was left out."""

from __future__ import annotations

import attrs

from yiemagent.record import Record

__all__ = ["Lines", "both_ends", "lines_from"]

_LONG_LINE = 2000


@attrs.frozen(eq=False, repr=False)
class Lines(Record):
    """Some lines of a text.

    Args:
        text: the lines.
        first, last: their numbers, from 1; `last` is before `first` where there are none.
        total: how many lines the whole has.
    """

    text: str
    first: int
    last: int
    total: int


def lines_from(text: str, first: int, max_lines: int, max_chars: int) -> Lines:
    """Give whole lines from a number on, as many as fit, at least one; a line that is very long is cut.

    Args:
        text: the whole; lines end with a line feed.
        first: the first line, from 1.
        max_lines: how many lines at most.
        max_chars: how many characters at most, all together.
    """
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    taken: list[str] = []
    size = 0
    for line in lines[first - 1 : first - 1 + max_lines]:
        short = line
        if len(line) > _LONG_LINE:
            short = f"{line[:_LONG_LINE]} […{len(line) - _LONG_LINE} more characters in this line]"
        size += len(short) + 1
        if taken and size > max_chars:
            break
        taken.append(short)
    return Lines("\n".join(taken), first, first - 1 + len(taken), len(lines))


def both_ends(text: str, max_chars: int) -> str:
    """Give a text whole where it fits; else its beginning and, three times as long, its end.

    Args:
        text: the whole.
        max_chars: how many of its characters are kept at most.
    """
    if len(text) <= max_chars:
        return text
    head = max_chars // 4
    tail = max_chars - head
    left_out = len(text) - head - tail
    return f"{text[:head]}\n[… {left_out} characters left out …]\n{text[-tail:]}"
