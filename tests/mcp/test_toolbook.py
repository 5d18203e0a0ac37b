"""What a client knows of a server: hints, schemas, and answers that stay fresh."""

from __future__ import annotations

import pytest

from yiemagent.mcp.toolbook import FreshAnswers, ToolBook


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    """A clock of the test's."""
    return Clock()


def kept(fresh, answer, method="tools/list", params=None):
    """What is held after an answer was put."""
    fresh.put(method, params, answer, fresh.generation())
    return fresh.get(method, params)


def test_hints_and_schemas_are_known_by_name():
    """As they were listed last; only a plain yes is a hint."""
    book = ToolBook()
    hints = {"readOnlyHint": True, "idempotentHint": "yes"}
    book.note(
        {"tools": [{"name": "a", "inputSchema": {"x": 1}, "annotations": hints}]}, stateless=True
    )

    assert book.hints("a", "idempotentHint", "readOnlyHint")
    assert not book.hints("a", "idempotentHint")
    assert not book.hints("b", "readOnlyHint")
    assert book.schema("a") == {"x": 1}
    assert book.schema("b") is None


@pytest.mark.parametrize(
    "result",
    [{}, {"tools": None}, {"tools": [5, None, {}, {"name": 5}, {"name": "a", "annotations": 5}]}],
)
def test_a_list_that_makes_no_sense_is_noted_as_far_as_it_does(result):
    """Nothing raises, and the page stays what it is."""
    book = ToolBook()

    assert book.note(result, stateless=True) is result
    assert not book.hints("a", "readOnlyHint")


def test_an_answer_stays_fresh_for_as_long_as_it_says(clock):
    """And for exactly what was asked."""
    fresh = FreshAnswers(clock)
    answer = {"tools": [], "ttlMs": 1500}

    assert kept(fresh, answer, params={"cursor": "x"}) == answer
    assert fresh.get("tools/list", None) is None
    assert fresh.get("prompts/list", {"cursor": "x"}) is None
    clock.now += 1.4
    assert fresh.get("tools/list", {"cursor": "x"}) == answer
    clock.now += 0.2
    assert fresh.get("tools/list", {"cursor": "x"}) is None


def test_a_kept_answer_cannot_be_spoilt():
    """Whoever gets it has a copy of their own."""
    fresh, answer = FreshAnswers(), {"tools": [{"name": "a"}], "ttlMs": 60_000}
    kept(fresh, answer)["tools"].clear()
    answer["tools"].clear()

    assert fresh.get("tools/list", None)["tools"] == [{"name": "a"}]


@pytest.mark.parametrize("ttl", [None, 0, -5, True, "60000", float("nan"), [1]])
def test_an_answer_that_says_nothing_sensible_is_not_kept(ttl):
    """A negative time is none."""
    assert kept(FreshAnswers(), {"ttlMs": ttl}) is None


def test_only_lists_and_contents_are_kept():
    """A call is never answered twice with the same."""
    assert kept(FreshAnswers(), {"ttlMs": 60_000}, method="tools/call") is None


def test_a_change_makes_its_kind_stale():
    """A list of resources concerns their contents, too."""
    fresh, answer = FreshAnswers(), {"ttlMs": 60_000}
    methods = [
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    ]

    def after(kind):
        for method in methods:
            kept(fresh, answer, method)
        fresh.forget(kind)
        return [method for method in methods if fresh.get(method, None) is None]

    assert after("tools") == ["tools/list"]
    assert after("resources") == ["resources/list", "resources/templates/list", "resources/read"]
    assert after("read") == ["resources/read"]
    assert after("") == methods


def test_an_answer_that_was_on_its_way_at_a_change_is_not_kept():
    """It may be that of before."""
    fresh = FreshAnswers()
    generation = fresh.generation()
    fresh.forget("tools")
    fresh.put("tools/list", None, {"ttlMs": 60_000}, generation)

    assert fresh.get("tools/list", None) is None


def test_not_everything_is_kept():
    """The oldest answers go first."""
    fresh = FreshAnswers()
    for number in range(300):
        kept(fresh, {"ttlMs": 60_000}, "resources/read", {"uri": str(number)})

    assert fresh.get("resources/read", {"uri": "0"}) is None
    assert fresh.get("resources/read", {"uri": "299"})
