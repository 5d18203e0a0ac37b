"""What a tool's process and its parent say beyond MCP comes back as it was."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.errors import InvalidJson
from yiemagent.mcp.worker_words import (
    partial_of,
    partial_words,
    result_facts,
    tool_facts,
    with_result_facts,
)
from yiemagent.messages import LlmUsage, TextContent
from yiemagent.tool import AgentTool, AgentToolResult

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def crossed(value):
    return json.loads(json.dumps(value))


@given(json_values)
def test_progress_comes_back(value):
    """Whatever JSON holds arrives as it was given."""
    assert partial_of(crossed(partial_words(3, value))) == value


def test_progress_is_mcps():
    """It is a number that grows, and a text."""
    words = partial_words(7, {"any": "thing"})

    assert words["progress"] == 7
    assert isinstance(words["message"], str)


@pytest.mark.parametrize("params", [{}, {"message": "half"}, {"message": None}, {"message": "{}"}])
def test_what_is_no_progress_is_refused(params):
    """Words that something else put there are no progress."""
    with pytest.raises(InvalidJson):
        partial_of(params)


@given(json_values, st.booleans(), st.lists(st.text(min_size=1), max_size=3))
def test_a_result_comes_back(details, terminate, names):
    """Details, usage, the wish to stop and added names arrive, whatever they are."""
    usage = LlmUsage(1, 2, 3, 4, 5, 0.25)
    result = AgentToolResult("x", details, usage, terminate, names)

    assert with_result_facts(result.content, crossed(result_facts(result))) == result


def test_a_plain_result_says_nothing_more():
    """What only has content costs no words."""
    assert result_facts(AgentToolResult("x")) == {}


@pytest.mark.parametrize("facts", [None, 5, [], {}, {"usage": 5}, {"terminate": "yes"}])
def test_facts_that_are_none_are_left_out(facts):
    """What a process may have put there does no harm."""
    assert with_result_facts([TextContent("x")], facts) == AgentToolResult("x")


def test_the_facts_of_a_tool():
    """What MCP has no word for, and which functions the file has."""
    tool = AgentTool(
        "t",
        description="T.",
        execute=print,
        timeout_s=None,
        lock="a",
        examples=[("Say.", {"x": [1]})],
        prepare_arguments=dict,
    )

    assert tool_facts(tool) == {
        "parallel_tool_execute": False,
        "timeout_s": None,
        "lock": ["a"],
        "examples": [["Say.", {"x": [1]}]],
        "prepares": True,
        "validates": False,
    }
