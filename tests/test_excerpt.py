"""Parts of long texts: what is left out is always said."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from yiemagent.excerpt import both_ends, lines_from


def test_lines_are_counted_from_one():
    """The lines asked for come with their numbers and the number of all."""
    part = lines_from("a\nb\nc\nd\n", 2, 2, 100)

    assert (part.text, part.first, part.last, part.total) == ("b\nc", 2, 3, 4)


def test_an_empty_text_has_no_lines():
    """Nothing has no first line."""
    part = lines_from("", 1, 10, 100)

    assert (part.text, part.first, part.last, part.total) == ("", 1, 0, 0)


def test_a_long_line_is_cut_and_says_so():
    """Of a line of 3000 characters 2000 are shown, and how many are not."""
    part = lines_from("x" * 3000 + "\nend", 1, 10, 10_000)

    assert part.text == "x" * 2000 + " […1000 more characters in this line]\nend"


@given(st.text(alphabet="ab\n", max_size=60), st.integers(1, 5), st.integers(1, 30))
def test_reading_on_gives_every_line_once(text, max_lines, max_chars):
    """Part after part, each beginning behind the last line of the one before, gives the whole text."""
    lines, first = [], 1
    while True:
        part = lines_from(text, first, max_lines, max_chars)
        if part.last < first:
            break
        lines += part.text.split("\n")
        first = part.last + 1

    assert lines == text.removesuffix("\n").split("\n") if text else lines == []


def test_a_text_that_fits_stays():
    """What is short enough comes back as it is."""
    assert both_ends("abc", 3) == "abc"


def test_of_a_long_text_both_ends_stay():
    """A quarter of the place is the beginning's, the rest the end's, and between is said how much is missing."""
    assert both_ends("a" * 50 + "b" * 50, 8) == "aa\n[… 92 characters left out …]\nbbbbbb"
