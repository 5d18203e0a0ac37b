"""What a model takes of a history."""

from __future__ import annotations

import re

import pytest

from yiemagent.errors import ConfigurationError
from yiemagent.messages import AssistantMessage
from yiemagent.providers.target import Target


@pytest.mark.parametrize(
    ("call_id", "pattern", "limit", "fits"),
    [
        ("call_1", "[a-z0-9_]+", 6, True),
        ("call_1", "[a-z0-9_]+", 5, False),
        ("call_1", "[a-z0-9]+", None, False),
        ("call_1\n", "[a-z0-9_]+", None, False),
        ("functions.look:0", None, None, True),
        ("", None, None, False),
    ],
)
def test_an_id_fits_as_a_whole(call_id, pattern, limit, fits):
    """An id matches the pattern from its first to its last character, is not too long, and is there."""
    target = Target(api="x", call_id=pattern and re.compile(pattern), max_call_id=limit)

    assert target.takes_id(call_id) is fits


@pytest.mark.parametrize(("limit", "length"), [(9, 9), (64, 24), (None, 24)])
def test_made_ids_are_the_same_each_time(limit, length):
    """What stands for an id depends on the id and the attempt alone, and fits."""
    target = Target(api="x", max_call_id=limit)
    made = target.made_id("a", 0)

    assert made == Target(api="y", max_call_id=limit).made_id("a", 0)
    assert len({made, target.made_id("a", 1), target.made_id("b", 0)}) == 3
    assert len(made) == length
    assert target.takes_id(made)


def test_a_target_that_no_id_fits_is_refused():
    """A pattern that hexadecimal digits can't match would leave ids without a replacement."""
    with pytest.raises(ConfigurationError, match="call_id must take"):
        Target(api="x", call_id=re.compile("call_.*"))


def test_an_answer_is_its_own_models():
    """Model, provider and API must all be the target's."""
    target = Target(api="a", provider="p", model="m")

    assert target.owns(AssistantMessage(api="a", provider="p", model="m"))
    assert not target.owns(AssistantMessage(api="a", provider="p", model="other"))


def test_equal_targets_are_one():
    """Targets compare and hash by what they say, so that they can be keys."""
    types = ("image/png", "image/jpeg")

    assert Target(api="x", image_types=types) == Target(api="x", image_types=types[::-1])
    assert len({Target(api="x", image_types=types), Target(api="x", image_types=list(types))}) == 1
