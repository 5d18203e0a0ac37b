"""Lines that hold a text or match an expression."""

from __future__ import annotations

import os
import pathlib
import signal as signals
import threading
import time

import pytest

from yiemagent.abort import AbortSignal
from yiemagent.errors import AbortedError, ToolError
from yiemagent.net.line_search import expression_finder, text_finder

TEXTS = ["one\nTwo\nthree two", "", "two", "none"]


def expression(pattern, *, ignore_case=False, most=9, signal=None, timeout_s=20.0):
    """Give a finder with the usual limits."""
    return expression_finder(
        pattern,
        ignore_case=ignore_case,
        most=most,
        signal=signal or AbortSignal(),
        timeout_s=timeout_s,
    )


def test_lines_that_hold_a_text_are_found():
    """Each text has the numbers of its lines, from 0."""
    assert text_finder("two", ignore_case=False, most=9)(TEXTS) == [[2], [], [0], []]
    assert text_finder("TWO", ignore_case=True, most=9)(TEXTS) == [[1, 2], [], [0], []]
    assert text_finder("two", ignore_case=True, most=1)(TEXTS) == [[1], [], [0], []]


def test_lines_that_match_are_found():
    """An expression gives the same form, with its own case and limit."""
    assert expression(r"^\w+ two$")(TEXTS) == [[2], [], [], []]
    assert expression(r"^t", ignore_case=True)(TEXTS) == [[1, 2], [], [0], []]
    assert expression(r"^t", ignore_case=True, most=1)(TEXTS) == [[1], [], [0], []]


def test_a_large_text_goes_there_and_back():
    """Megabytes are matched without either side waiting for the other."""
    [numbers] = expression("7$", most=10**6)(["\n".join(map(str, range(400_000)))])

    assert numbers == list(range(7, 400_000, 10))


@pytest.mark.parametrize("pattern", ["(", "[", "*", "(?P<a>x)(?P<a>y)", "a{99999999999999999999}"])
def test_a_wrong_expression_is_told(pattern):
    """What is no expression is an error in words."""
    with pytest.raises(ToolError, match="the regular expression is wrong"):
        expression(pattern)


def test_an_endless_match_ends_at_its_limit():
    """An expression that would match for ever is stopped, and says so."""
    begun = time.monotonic()
    with pytest.raises(ToolError, match=r"took more than 0.5 s"):
        expression(r"(a+)+$", timeout_s=0.5)(["a" * 60 + "b"])

    assert time.monotonic() - begun < 10


def test_an_abort_ends_an_endless_match():
    """A set signal ends the search while it matches, and this process goes on meanwhile."""
    signal = AbortSignal()
    timer = threading.Timer(0.3, signal.abort)
    timer.start()
    with pytest.raises(AbortedError):
        expression(r"(a+)+$", signal=signal)(["a" * 60 + "b"])
    timer.join()


def test_more_than_can_be_told_is_an_error():
    """Where more was found than can be told, that is said, and half of it is not taken for the whole."""
    with pytest.raises(ToolError, match="more was found than can be told"):
        expression("", most=10**7)(["\n" * 1_200_000])


def _kill_children():
    for path in pathlib.Path("/proc/self/task").glob("*/children"):
        for pid in path.read_text().split():
            os.kill(int(pid), signals.SIGKILL)


def test_a_search_that_breaks_down_is_told():
    """Where the searching process is killed, as for want of memory, that is said."""
    timer = threading.Timer(0.3, _kill_children)
    timer.start()
    with pytest.raises(ToolError, match="the search ended with exit code -9"):
        expression(r"(a+)+$")(["a" * 60 + "b"])
    timer.join()
