"""JSON values as Python source."""

from __future__ import annotations

import ast
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.tool_literals import docstring, literal

_texts = st.text(max_size=200) | st.text("ab'\"\\ \n", max_size=200)
_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | _texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_texts, inner, max_size=4),
    max_leaves=12,
)


@given(_values, st.sampled_from([0, 4, 8]))
def test_a_literal_says_exactly_what_it_stands_for(value, indent):
    """Read back as Python, every JSON value is the one it was, to the type of each number."""
    text = literal(value, indent, indent + 10)
    again = ast.literal_eval(f"(\n{text}\n)")

    assert json.dumps(again) == json.dumps(value)
    assert type(again) is type(value)
    assert "\0" not in text


@given(st.text(max_size=300))
def test_a_docstring_is_one_line_of_its_own(text):
    """Any text gives one line that stands between three quotes, ends a sentence, and has no backslash."""
    line = docstring(text)
    (statement,) = ast.parse(f'"""{line}"""').body

    assert ast.literal_eval(statement.value) == line
    assert line[-1] in ".!?"
    assert line.isprintable()
    assert len(line) <= 91
    assert "\\" not in line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("get the time. And more.", "Get the time."),
        ("What is it?", "What is it?"),
        ('say """x"""\n\\n', "Say '''x''' /n."),
        ("", "A tool."),
        ("word " * 40, "Word " + "word " * 16 + "word."),
        ("x" * 120, "X" + "x" * 89 + "."),
    ],
)
def test_a_docstring_is_the_first_sentence(text, line):
    """It begins with a capital, ends with a full stop, and is cut between words where it is long."""
    assert docstring(text) == line


def test_long_values_are_broken_as_a_formatter_would():
    """What fits stands on its line; what doesn't has a line for each item and a comma behind each."""
    assert literal({"a": [1, None]}, 0, 10) == '{"a": [1, None]}'
    assert literal({"a": "x" * 40, "b": ["y" * 40]}, 4, 12) == (
        "{\n" + f'        "a": "{"x" * 40}",\n' + f'        "b": ["{"y" * 40}"],\n' + "    }"
    )
    words = "word " * 30
    assert literal(words, 8, 20) == (
        f'(\n            "{"word " * 17}"\n            "{"word " * 13}"\n        )'
    )
    assert literal("x" * 150, 8, 20) == f'"{"x" * 150}"'


def test_quotes_are_those_that_need_no_escape():
    """Double quotes, unless only these are in the text."""
    assert literal("it's", 0, 0) == '"it\'s"'
    assert literal('a "b"', 0, 0) == "'a \"b\"'"
    assert literal("'a' \"b\"", 0, 0) == '"\'a\' \\"b\\""'
    assert literal("é\u202e\ud800\n", 0, 0) == '"é\\u202e\\ud800\\n"'
