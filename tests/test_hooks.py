"""Hooks: what they are shown, and what they may give back."""

from __future__ import annotations

import attrs
import pytest

from yiemagent.context import AgentContext
from yiemagent.errors import ConfigurationError
from yiemagent.hooks import (
    AfterToolCallResult,
    BeforeToolCallResult,
    Hooks,
    NextTurn,
    after_result,
    before_result,
    next_turn,
)
from yiemagent.messages import LlmUsage, TextContent
from yiemagent.tool import AgentToolResult

RESULT = AgentToolResult("old", details={"a": 1}, usage=LlmUsage(1), added_tool_names=["x"])


def test_a_before_hook_may_give_a_result_a_dict_or_nothing():
    """All three are one thing behind the border; what is not given has its default."""
    result = BeforeToolCallResult(True, "no")

    assert before_result(None) is None
    assert before_result(result) is result
    assert before_result({"block": True, "reason": "no"}) == result
    assert before_result({}) == BeforeToolCallResult()
    assert before_result({"args": {"a": 1}, "terminate": True}) == BeforeToolCallResult(
        args={"a": 1}, terminate=True
    )


@pytest.mark.parametrize("given", [True, "no", 5, {"blocked": True}, AgentToolResult("x")])
def test_a_before_hook_that_gives_something_else_is_told(given):
    """The error names the hook, and its fields where one is unknown."""
    with pytest.raises(ConfigurationError, match="before_tool_call gave"):
        before_result(given)


@pytest.mark.parametrize(
    ("given", "result", "is_error"),
    [
        (AfterToolCallResult(), RESULT, True),
        (AfterToolCallResult(content="new"), attrs.evolve(RESULT, content="new"), True),
        (AfterToolCallResult(details=None), attrs.evolve(RESULT, details=None), True),
        (AfterToolCallResult(usage=None, is_error=False), attrs.evolve(RESULT, usage=None), False),
        ({"content": [TextContent("new")]}, attrs.evolve(RESULT, content="new"), True),
        ({"isError": False, "terminate": True}, attrs.evolve(RESULT, terminate=True), False),
        ({"is_error": 0}, RESULT, False),
        ({"details": {"b": [2]}}, attrs.evolve(RESULT, details={"b": [2]}), True),
        (
            AgentToolResult("whole", terminate=True),
            AgentToolResult("whole", terminate=True, added_tool_names=["x"]),
            True,
        ),
    ],
)
def test_an_after_hook_replaces_field_by_field(given, result, is_error):
    """A field that is not given keeps its value; a whole result replaces its four fields and keeps is_error."""
    assert after_result(given).apply(RESULT, is_error=True) == (result, is_error)


def test_an_after_hook_that_gives_nothing_changes_nothing():
    """None keeps the result; an empty replacement gives the same object."""
    assert after_result(None) is None
    assert AfterToolCallResult().apply(RESULT, is_error=False)[0] is RESULT


def test_what_an_after_hook_gives_cannot_change_later():
    """Details are read-only, so the hook's own dict may change."""
    details = {"rows": [1]}
    replaced, _ = AfterToolCallResult(details=details).apply(RESULT, is_error=False)
    details["rows"].append(2)

    assert replaced.details == {"rows": [1]}


@pytest.mark.parametrize("given", ["text", 5, True, {"text": "x"}, BeforeToolCallResult()])
def test_an_after_hook_that_gives_something_else_is_told(given):
    """The error names the hook, and its fields where one is unknown."""
    with pytest.raises(ConfigurationError, match="after_tool_call gave"):
        after_result(given)


def test_content_that_is_none_is_refused():
    """An after hook that gives something that is no content raises, so that the call fails closed."""
    with pytest.raises(TypeError, match="content"):
        after_result({"content": 5})


def test_a_turn_hook_gives_the_next_turn_or_nothing():
    """Anything else is a caller's mistake."""
    turn = NextTurn(context=AgentContext("other"), model="m", thinking_level="off")

    assert next_turn(turn) is turn
    assert next_turn(None) is None
    for mistake in ({"model": "m"}, AgentContext(), True):
        with pytest.raises(ConfigurationError, match="prepare_next_turn gave"):
            next_turn(mistake)


async def later(*_):
    """Stand for a hook of an asynchronous program."""


class Later:
    """An object whose call is asynchronous."""

    async def __call__(self, *_):
        """Do nothing."""


@pytest.mark.parametrize("hook", [field.name for field in attrs.fields(Hooks)])
@pytest.mark.parametrize("given", [3, "name", later, Later()])
def test_a_hook_is_a_plain_function(hook, given):
    """What can't be called, or gives a coroutine that nobody would run, is refused when it is given."""
    with pytest.raises(
        ConfigurationError, match=f"{hook} (must be a function|is a coroutine function)"
    ):
        Hooks(**{hook: given})


def test_hooks_are_optional_and_frozen():
    """Without any, all are None."""
    hooks = Hooks()

    assert set(attrs.asdict(hooks).values()) == {None}
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        hooks.before_tool_call = print
