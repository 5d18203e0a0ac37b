"""Values as Python source that a formatter leaves alone: double quotes, a hundred columns, a comma behind each item."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["docstring", "literal"]

COLUMNS = 100
SUMMARY_CHARACTERS = 90
STEP = 4


def literal(value: Any, indent: int, column: int) -> str:
    """Give a JSON value as source.

    Args:
        value: dicts, lists, texts, numbers, booleans and None.
        indent: the indentation of the line that it begins in.
        column: the column that it begins at; what comes behind it is a comma at most.
    """
    whole = _inline(value)
    if column + len(whole) + 1 <= COLUMNS:
        return whole
    inner = " " * (indent + STEP)
    if isinstance(value, Mapping):
        items = []
        for key, item in value.items():
            name = f"{_quoted(key)}: "
            items.append(f"{name}{literal(item, indent + STEP, indent + STEP + len(name))}")
    elif isinstance(value, (list, tuple)):
        items = [literal(item, indent + STEP, indent + STEP) for item in value]
    elif isinstance(value, str) and len(pieces := _pieces(value, COLUMNS - indent - STEP)) > 1:
        lines = "\n".join(f"{inner}{piece}" for piece in pieces)
        return f"(\n{lines}\n{' ' * indent})"
    else:
        return whole
    start, end = "{}" if isinstance(value, Mapping) else "[]"
    lines = "".join(f"{inner}{item},\n" for item in items)
    return f"{start}\n{lines}{' ' * indent}{end}"


def docstring(text: str) -> str:
    """Give the first sentence of a text as the inside of a docstring: one line, with a full stop."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    line = line.replace("\\", "/").replace('"', "'")
    line = line.partition(". ")[0].rstrip(" .")
    if len(line) > SUMMARY_CHARACTERS:
        line = line[:SUMMARY_CHARACTERS].rpartition(" ")[0] or line[:SUMMARY_CHARACTERS]
    line = line.rstrip(" .,;:-") or "A tool"
    return f"{line[0].upper()}{line[1:]}{'' if line[-1] in '!?' else '.'}"


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_quoted(k)}: {_inline(v)}' for k, v in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_inline, value))}]"
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    quote = "'" if '"' in text and "'" not in text else '"'
    return f"{quote}{''.join(_character(c, quote) for c in text)}{quote}"


def _character(character: str, quote: str) -> str:
    if character in {"\\", quote}:
        return f"\\{character}"
    return character if character.isprintable() else repr(character)[1:-1]


def _pieces(text: str, width: int) -> list[str]:
    """Give a text as several literals, cut behind blanks, each in quotes and as long as fits."""
    pieces: list[str] = []
    begin = 0
    while begin < len(text):
        end = _end(text, begin, width)
        pieces.append(text[begin:end])
        begin = end
    return list(map(_quoted, pieces))


def _end(text: str, begin: int, width: int) -> int:
    """Give where a piece of a text ends: behind the last blank that fits, else behind the next."""
    best = 0
    for end in range(begin + 1, len(text) + 1):
        if end == len(text) or text[end - 1] in " \n":
            if len(_quoted(text[begin:end])) > width:
                return best or end
            best = end
    return best
