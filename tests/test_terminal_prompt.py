"""Asking at the terminal: an answer, the end of the input, or an abort, whichever comes first."""

from __future__ import annotations

import io
import os
import pty
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.abort import AbortSignal
from yiemagent.errors import AbortedError
from yiemagent.terminal_prompt import ask_line, shown

WAIT_S = 20.0


@pytest.fixture
def pipe():
    """The two ends of a pipe, closed with the test."""
    ends = os.pipe()
    left = list(ends)
    yield ends
    for end in left:
        try:
            os.close(end)
        except OSError:
            continue


class Noticed(io.StringIO):
    """A stream that says when something was written."""

    def __init__(self):
        super().__init__()
        self.written = threading.Event()

    def flush(self):
        """Say so."""
        if self.getvalue():
            self.written.set()


def test_a_line_is_an_answer(pipe):
    """The question is written, and the line comes without its end."""
    out = io.StringIO()
    os.write(pipe[1], b" yes please \r\nnext")

    assert ask_line("ok? ", AbortSignal(), stdin=pipe[0], out=out) == "yes please"
    assert out.getvalue() == "ok? "
    assert os.read(pipe[0], 100) == b"next"


def test_the_end_of_the_input_is_none(pipe):
    """Where nothing more comes there is no answer; a last line without an end is one."""
    os.write(pipe[1], b"one\ntwo")
    os.close(pipe[1])
    answers = [ask_line("", AbortSignal(), stdin=pipe[0], out=io.StringIO()) for _ in range(3)]

    assert answers == ["one", "two", None]


def test_a_closed_input_is_none(pipe):
    """A descriptor that is closed is the end of the input."""
    os.close(pipe[0])

    assert ask_line("", AbortSignal(), stdin=pipe[0], out=io.StringIO()) is None


def test_a_terminal_that_is_gone_is_none():
    """Where the other end of the terminal was closed, there is no answer."""
    ours, theirs = pty.openpty()
    os.close(ours)
    try:
        assert ask_line("", AbortSignal(), stdin=theirs, out=io.StringIO()) is None
    finally:
        os.close(theirs)


def test_an_endless_line_ends(pipe):
    """A line without an end is taken up to a limit."""
    os.write(pipe[1], b"x" * 20_000)

    assert len(ask_line("", AbortSignal(), stdin=pipe[0], out=io.StringIO())) == 10_000


def test_an_abort_ends_the_wait_at_once(pipe):
    """A set signal ends the question within a tenth of a second, on a thread that is not the main one."""
    signal, out, ended = AbortSignal(), Noticed(), []

    def ask():
        try:
            ask_line("ok? ", signal, stdin=pipe[0], out=out)
        except AbortedError:
            ended.append(time.monotonic())

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    assert out.written.wait(WAIT_S)
    begun = time.monotonic()
    signal.abort()
    thread.join(WAIT_S)

    assert ended[0] - begun < 0.5


def test_an_abort_before_asks_nothing(pipe):
    """With a set signal no question is put."""
    signal, out = AbortSignal(), io.StringIO()
    signal.abort()
    with pytest.raises(AbortedError):
        ask_line("ok? ", signal, stdin=pipe[0], out=out)

    assert out.getvalue() == ""


def test_one_question_at_a_time(pipe):
    """A second question is put when the first has its answer."""
    signal = AbortSignal()
    outs = [Noticed(), Noticed()]
    answers = {}

    def ask(n):
        answers[n] = ask_line(f"question {n}", signal, stdin=pipe[0], out=outs[n])

    threads = [threading.Thread(target=ask, args=(n,), daemon=True) for n in range(2)]
    threads[0].start()
    assert outs[0].written.wait(WAIT_S)
    threads[1].start()
    early = outs[1].getvalue()
    os.write(pipe[1], b"first\nsecond\n")
    for thread in threads:
        thread.join(WAIT_S)

    assert early == ""
    assert answers == {0: "first", 1: "second"}


def test_what_was_typed_before_is_no_answer():
    """At a terminal, keys that were hit before the question do not answer it."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, b"y\n")
        out = Noticed()
        answers = []

        def ask():
            answers.append(ask_line("ok? ", AbortSignal(), stdin=theirs, out=out))

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        assert out.written.wait(WAIT_S)
        os.write(ours, b"n\n")
        thread.join(WAIT_S)
    finally:
        os.close(ours)
        os.close(theirs)

    assert answers == ["n"]


@pytest.mark.parametrize(
    "text, safe",
    [
        ("plain é 漢", "plain é 漢"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("one\ntwo\r", "one\\ntwo\\r"),
        ("evil\u202etxt", "evil\\u202etxt"),
        ("\ud800", "\\ud800"),
    ],
)
def test_nothing_steers_the_terminal(text, safe):
    """Escapes, line breaks, bidirectional marks and surrogates are shown as what they are."""
    assert shown(text) == safe


@given(st.text(max_size=200), st.integers(2, 50))
def test_what_is_shown_is_printable(text, limit):
    """Whatever the text, what is shown is printable, and says how much is missing."""
    result = shown(text, limit)

    assert result.isprintable()
    assert (" characters more " in result) == (len(text) > limit) or " characters more " in text
