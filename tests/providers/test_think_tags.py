"""Thinking inside of text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.providers.think_tags import ThinkTags


def read(*pieces):
    tags = ThinkTags()
    found = [piece for text in pieces for piece in tags.feed(text)] + tags.end()
    return [
        "".join([text for kind, text in found if kind == wanted]) for wanted in ("thinking", "text")
    ]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("<think>hm</think>ok", ["hm", "ok"]),
        ("\n <think>\nhm\n</think>\n\nok\n", ["hm\n", "ok\n"]),
        ("<think></think>ok", ["", "ok"]),
        ("<think>never ended", ["never ended", ""]),
        ("<think>a</thin", ["a</thin", ""]),
        ("<think>a < b </ c</think>", ["a < b </ c", ""]),
        ("<think>a</think> b <think>c</think>", ["a", "b <think>c</think>"]),
        ("The tag <think> is", ["", "The tag <think> is"]),
        ("<thinking>x", ["", "<thinking>x"]),
        ("<thi", ["", "<thi"]),
        ("  plain", ["", "  plain"]),
        (" \n", ["", " \n"]),
        ("", ["", ""]),
    ],
)
def test_texts(text, expected):
    """Only what stands in the tags at the beginning of an answer is thinking."""
    assert read(text) == expected


@given(
    st.text("<>/think ab\n", max_size=40).map(lambda text: "<think>" + text)
    | st.text("<>/think ab\n", max_size=40),
    st.lists(st.integers(0, 50), max_size=6),
)
def test_any_split(text, cuts):
    """However the text is cut, thinking and text are the same."""
    ends = sorted({min(cut, len(text)) for cut in cuts} | {len(text)})
    pieces = [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    assert read(*pieces) == read(text)
    assert (
        not text
        or any(read(text))
        or not text.replace("<think>", "").replace("</think>", "").strip()
    )


def test_text_is_given_at_once():
    """What can't be part of a tag is not held back."""
    tags = ThinkTags()

    assert tags.feed("Hel") == [("text", "Hel")]
    assert tags.feed("<think>") == [("text", "<think>")]
    assert tags.feed("") == []
