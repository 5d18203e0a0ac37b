"""Where the command writes: the two streams, lines, rows and progress, with `rich` and without."""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import re

import pytest

from yiemagent.cli.terminal import OutputClosed, Terminal, one_line, size_text

RICH = importlib.import_module("rich") if importlib.util.find_spec("rich") else None


class Tty(io.StringIO):
    """A stream that a person reads."""

    def isatty(self):
        return True


def plain(text):
    """Text without the colours of a terminal."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


@pytest.fixture(params=[None, RICH], ids=["plain", "rich"])
def terminal(request):
    """A terminal whose streams are read by a person, with what it wrote as `out` and `err`."""
    made = Terminal(Tty(), Tty(), rich=request.param)
    made.out, made.err = made._out, made._err
    return made


def test_words_go_to_stdout_and_notes_to_stderr(terminal):
    """What was asked for is written to stdout as it is, a note is one line on stderr."""
    terminal.say("It is ")
    terminal.say("noon.\n")
    terminal.note("→ get_time [bold]x[/bold]\n  more", "dim")

    assert terminal.out.getvalue() == "It is noon.\n"
    assert plain(terminal.err.getvalue()) == "→ get_time [bold]x[/bold] more\n"


def test_a_note_does_not_cut_into_a_line(terminal):
    """On a terminal a note begins on a line of its own, although words were being written."""
    terminal.say("Let me look")
    terminal.note("→ get_time {}")
    terminal.say("It is noon.")
    terminal.end_line()
    terminal.end_line()

    assert terminal.out.getvalue() == "Let me look\nIt is noon.\n"


def test_a_piped_answer_is_left_as_it_is():
    """Where stdout is no terminal, a note adds no line end to it and every character is passed on."""
    out, err = io.StringIO(), io.StringIO()
    terminal = Terminal(out, err, rich=RICH)
    terminal.say("a\x1b[31m")
    terminal.note("note", "red")
    terminal.say("b")

    assert out.getvalue() == "a\x1b[31mb"
    assert err.getvalue() == "note\n"


def test_nothing_that_steers_a_terminal_is_shown(terminal):
    """Control characters in a model's words or a tool's result don't reach a terminal; lines and tabs do."""
    terminal.say("a\x1b]0;title\x07b\tc\n")
    terminal.note("x\x1b[2Jy")

    assert terminal.out.getvalue() == "a]0;titleb\tc\n"
    assert plain(terminal.err.getvalue()) == "x[2Jy\n"


def test_a_question_stands_on_a_line_of_its_own(terminal):
    """Where words were being written, their line is ended; the question's stays open for the answer."""
    terminal.say("I write it.")
    terminal.ask("May I? [y] yes > ")

    assert terminal.out.getvalue() == "I write it.\n"
    assert terminal.err.getvalue() == "May I? [y] yes > "


def test_a_text_of_several_lines_stays_so(terminal):
    """Lines, blanks and brackets are kept, tabs become blanks; the line on stdout is ended first."""
    terminal.say("half")
    terminal.complain("a: [b]\n\t  c\x1b[2J", "red")

    assert terminal.out.getvalue() == "half\n"
    assert plain(terminal.err.getvalue()) == "a: [b]\n      c[2J\n"


def test_a_long_note_is_cut():
    """A line for a person is cut where it would fill the screen, and says so."""
    line = one_line("word " * 200, limit=20)

    assert line == "word word word word…"
    assert one_line(" a \n b ") == "a b"


def test_an_error_is_cut_in_the_middle():
    """Its end is often what says why: a server's last words, an exception behind its frames."""
    err = io.StringIO()
    Terminal(io.StringIO(), err, rich=None).error(f"it ended: {'frame ' * 100}\nno such file")
    Terminal(io.StringIO(), err, rich=None).error("it is short")
    long, short = err.getvalue().splitlines()

    assert long.startswith("error: it ended: frame")
    assert long.endswith("frame no such file")
    assert len(long) == 300
    assert short == "error: it is short"


def test_rows_are_aligned():
    """Cells of one column begin below each other, and no line ends in blanks."""
    out = io.StringIO()
    Terminal(out, io.StringIO()).rows([("a", "one", ""), ("long", "b", "c")])

    assert out.getvalue() == "a     one\nlong  b    c\n"


def test_no_rows_are_nothing():
    """An empty table writes nothing."""
    out = io.StringIO()
    Terminal(out, io.StringIO()).rows([])

    assert out.getvalue() == ""


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (92_900_000, "92.9 MB"),
        (1_500, "1.5 kB"),
        (4.2e9, "4.2 GB"),
    ],
)
def test_sizes_are_words(size, text):
    """A size is given in the unit in which people read it."""
    assert size_text(size) == text


def test_a_bar_shows_progress_on_a_terminal(terminal):
    """On a terminal progress is drawn over itself and ends with a line of its own."""
    with terminal.progress("model") as show:
        show(0, 1000)
        show(500, 1000)
        show(1000, 1000)
    shown = plain(terminal.err.getvalue())

    assert "model" in shown
    assert "\r" in shown or RICH
    assert shown.endswith("\n")


def test_the_plain_bar_says_how_much_of_what():
    """Without `rich` the bar has a share and a size, or bytes where no size is known, and draws only changes."""
    err = Tty()
    with Terminal(io.StringIO(), err).progress("model") as show:
        show(2500, None)
        show(500_000, 1_000_000)
        show(500_001, 1_000_000)
        show(2_000_000, 1_000_000)
    drawn = [line.rstrip() for line in err.getvalue().split("\r")[1:]]

    assert drawn == [
        "model 2.5 kB",
        f"model [{'#' * 15}{'-' * 15}]  50 % of 1.0 MB",
        f"model [{'#' * 30}] 100 % of 1.0 MB",
    ]


def test_a_bar_that_was_never_drawn_leaves_nothing():
    """Progress without a single step writes nothing."""
    err = Tty()
    with Terminal(io.StringIO(), err).progress("model"):
        pass

    assert err.getvalue() == ""


def test_progress_in_a_log_is_a_few_lines():
    """Where stderr is no terminal, progress is a line for each quarter."""
    err = io.StringIO()
    with Terminal(io.StringIO(), err, rich=RICH).progress("model") as show:
        for done in range(0, 1_000_001, 1000):
            show(done, 1_000_000)

    assert err.getvalue().splitlines() == [
        f"model: {share} % of 1.0 MB" for share in (0, 25, 50, 75, 100)
    ]


def test_progress_of_unknown_size_is_one_line_in_a_log():
    """Where the size is not known, a log gets one line."""
    err = io.StringIO()
    with Terminal(io.StringIO(), err).progress("model") as show:
        show(1, None)
        show(2, None)

    assert err.getvalue() == "model: size unknown\n"


def test_a_reader_that_went_away_is_told_apart():
    """Writing to a pipe that nobody reads any more raises `OutputClosed`, on stdout, stderr and in a bar."""
    read, write = os.pipe()
    os.close(read)
    pipe = io.TextIOWrapper(io.FileIO(write, "w"), write_through=True)
    closed = Terminal(pipe, pipe)

    for writing in (lambda: closed.say("x\n"), lambda: closed.note("x")):
        with pytest.raises(OutputClosed):
            writing()
    with pytest.raises(OutputClosed), closed.progress("x") as show:
        show(1, 2)
    pipe.detach().close()
