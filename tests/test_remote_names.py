"""Names for tools of servers."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.remote_names import plain_text, remote_tool_name

FIT = re.compile(r"[a-zA-Z0-9_-]{1,64}")
NAMES = st.text(min_size=1, max_size=90)


@pytest.mark.parametrize("name", ["a", "get-sum", "A_1", "x" * 64])
def test_a_name_that_fits_stays(name):
    """Nothing is added to it."""
    assert remote_tool_name(name) == name


@given(
    st.lists(NAMES, unique=True, max_size=20), st.sampled_from(["", "srv", "my server", "s" * 70])
)
def test_names_fit_and_differ(names, prefix):
    """Whatever servers call their tools, models get names that every provider takes, each its own."""
    taken = []
    for name in names:
        taken.append(remote_tool_name(name, prefix, taken))

    assert all(FIT.fullmatch(name) for name in taken)
    assert len(set(taken)) == len(names)


@given(NAMES, st.sampled_from(["", "srv"]))
def test_a_name_depends_on_itself_alone(name, prefix):
    """The same tool has the same name in every run, whatever else there is."""
    assert remote_tool_name(name, prefix) == remote_tool_name(name, prefix, ["else"])


def test_a_prefix_goes_before():
    """As far as there is room."""
    assert remote_tool_name("echo", "srv") == "srv__echo"
    assert remote_tool_name("e" * 60, "srv").startswith("srv__eee")


def test_names_that_are_cut_or_changed_differ():
    """Where the difference is cut off or replaced, the hash tells them apart."""
    long = [remote_tool_name("x" * 70 + end) for end in "12"]
    replaced = [remote_tool_name(name) for name in ("a.b", "a b", "a_b")]
    doubled = (
        remote_tool_name("b__c", "a"),
        remote_tool_name("c", "a__b", [remote_tool_name("b__c", "a")]),
    )

    assert len(set(long)) == 2
    assert len(set(replaced)) == 3
    assert len(set(doubled)) == 2


def test_text_loses_what_nobody_sees():
    """Controls, zero widths, directions and tags go; letters, line ends, tabs and pictures stay."""
    assert plain_text("é中😀 a\tb\r\nc\rd") == "é中😀 a\tb\nc\nd"
    assert plain_text("a\u200b\u200d\u202eb\ufeff\U000e0041\x00\x1b\x7f") == "ab"
