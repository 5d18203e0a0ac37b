"""Texts are cut to a size in bytes, never inside a character."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.sessions.clipping import head, middle_out, size_bytes, tail

TEXTS = st.text(st.characters(codec=None), max_size=60)  # lone surrogates included
SIZES = st.integers(0, 120)


@given(TEXTS, SIZES)
def test_a_head_is_the_most_that_fits(text, size):
    """It is a beginning of the text, fits, and one character more would not."""
    kept = head(text, size)

    assert text.startswith(kept)
    assert size_bytes(kept) <= size
    assert kept == text or size_bytes(text[: len(kept) + 1]) > size


@given(TEXTS, SIZES)
def test_a_tail_is_the_most_that_fits(text, size):
    """It is an end of the text, fits, and one character more would not."""
    kept = tail(text, size)

    assert text.endswith(kept)
    assert size_bytes(kept) <= size
    assert kept == text or size_bytes(text[len(text) - len(kept) - 1 :]) > size


@pytest.mark.parametrize(
    ("size", "begin", "end"),
    [(0, "", ""), (2, "", ""), (3, "東", "京"), (5, "東", "京"), (6, "東京", "東京")],
)
def test_no_character_is_cut(size, begin, end):
    """What has room for half a character leaves it out."""
    assert (head("東京", size), tail("東京", size)) == (begin, end)


@given(TEXTS, SIZES)
def test_the_middle_is_left_out_and_counted(text, size):
    """Beginning and end stay, and the note is told how many characters are missing; what fits stays whole."""
    kept = middle_out(text, size, lambda missing: f"<<{missing}>>")

    if size_bytes(text) <= size:
        assert kept == text
    else:
        begin, _, rest = kept.rpartition("<<")
        missing, _, end = rest.partition(">>")
        assert text.startswith(begin)
        assert text.endswith(end)
        assert len(begin) + int(missing) + len(end) == len(text)
        assert size_bytes(begin) + size_bytes(end) <= size
