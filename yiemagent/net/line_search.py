"""Which lines of texts hold a text, or match a regular expression.

An expression is matched in a process of its own: one that takes for ever would stop every thread of this one, the abort
included, since matching never lets go of the interpreter.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import TypeAlias

from yiemagent.abort import AbortSignal, Deadline
from yiemagent.errors import ToolError
from yiemagent.net.programs import run_process, without_secrets

__all__ = ["Finder", "expression_finder", "text_finder"]

Finder: TypeAlias = Callable[[Sequence[str]], list[list[int]]]
"""Takes texts and gives, for each, the numbers of the lines found, from 0, as many as were asked for at most."""

_MATCHER = """
import json, re, sys
pattern, flags, texts, most = json.load(sys.stdin)
search = re.compile(pattern, flags).search
found = []
for text in texts:
    numbers = []
    for number, line in enumerate(text.split("\\n")):
        if search(line):
            numbers.append(number)
            if len(numbers) >= most:
                break
    found.append(numbers)
print(json.dumps(found))
"""


def text_finder(wanted: str, *, ignore_case: bool, most: int) -> Finder:
    """Give a finder of lines that hold a text.

    Args:
        wanted: the text.
        ignore_case: whether upper and lower case are the same.
        most: how many lines of each text are told at most.
    """

    def fold(text: str) -> str:
        return text.casefold() if ignore_case else text

    def find(texts: Sequence[str]) -> list[list[int]]:
        found = []
        for text in texts:
            lines = text.split("\n") if fold(wanted) in fold(text) else []
            numbers = [n for n, line in enumerate(lines) if fold(wanted) in fold(line)]
            found.append(numbers[:most])
        return found

    return find


def expression_finder(
    pattern: str, *, ignore_case: bool, most: int, signal: AbortSignal, timeout_s: float
) -> Finder:
    """Give a finder of lines that match a regular expression of Python.

    Args:
        pattern: the expression.
        ignore_case: whether upper and lower case are the same.
        most: how many lines of each text are told at most.
        signal: ends the search.
        timeout_s: limit for all of the finder's searches together.

    Raises:
        ToolError: the expression is wrong; the finder raises it, too, where the time is up.
    """
    flags = re.IGNORECASE if ignore_case else 0
    try:
        re.compile(pattern, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise ToolError(f"the regular expression is wrong: {error}") from error
    deadline = Deadline(timeout_s)

    def find(texts: Sequence[str]) -> list[list[int]]:
        done = run_process(
            [sys.executable or "python3", "-I", "-S", "-c", _MATCHER],
            env=without_secrets(os.environ),
            stdin=json.dumps([pattern, flags, list(texts), most]).encode(),
            signal=signal,
            timeout_s=deadline.remaining_s(),
            max_output_bytes=8_000_000,
        )
        if done.timed_out:
            raise ToolError(
                f"the regular expression took more than {timeout_s:g} s; make it simpler, or look at fewer files"
            )
        if done.left_out:  # the two ends of what it told may look whole
            raise ToolError("more was found than can be told; look at fewer files")
        try:
            found: list[list[int]] = json.loads(done.output)
        except ValueError as error:
            raise ToolError(f"the search ended with exit code {done.exit_code}") from error
        return found

    return find
