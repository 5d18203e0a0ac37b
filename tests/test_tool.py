"""Tools and what they give."""

from __future__ import annotations

import inspect

import attrs
import pytest

from yiemagent.abort import AbortSignal
from yiemagent.errors import ConfigurationError
from yiemagent.messages import ImageContent, LlmUsage, TextContent
from yiemagent.tool import AgentTool, AgentToolResult, as_tool_result

IMAGE = ImageContent("QUJD", "image/png")


def make(execute=lambda *_: "ok", **fields):
    return AgentTool(**{"name": "t", "description": "d", "execute": execute, **fields})


def test_a_tool_has_what_its_file_says():
    """Fields keep their values, and what is not given has its default."""
    tool = make(name="get_time", examples=[("What time?", {"city": "Oslo"})])

    assert tool.label == "Get Time"
    assert tool.input_schema == {"type": "object", "properties": {}}
    assert (tool.parallel_tool_execute, tool.timeout_s, tool.isolation) == (False, 600.0, "thread")
    assert tool.examples == (("What time?", {"city": "Oslo"}),)
    assert make(label="L").label == "L"
    assert make(annotations=None).annotations == {}
    assert make(input_schema=None).input_schema == {"type": "object", "properties": {}}


async def later(*_):
    """Is no plain function."""


async def many(*_):
    """Is no plain function either."""
    yield 1


class Later:
    """An object whose call is asynchronous."""

    async def __call__(self, *_):
        """Do nothing."""


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "get time"}, "tool name 'get time'"),
        ({"name": ""}, "tool name ''"),
        ({"name": "x" * 65}, "1 to 64"),
        ({"name": "größe"}, "tool name"),
        ({"name": "a\n"}, "tool name"),
        ({"name": 5}, "tool name 5"),
        ({"description": " \n"}, "needs a description"),
        ({"description": None}, "needs a description"),
        ({"input_schema": [1]}, "input_schema must be"),
        ({"execute": later}, "coroutine function"),
        ({"execute": many}, "coroutine function"),
        ({"execute": Later()}, "coroutine function"),
        ({"execute": "text"}, "must be callable"),
        ({"isolation": "vm"}, "isolation"),
        ({"isolation": []}, "isolation"),
        ({"parallel_tool_execute": "no"}, "parallel_tool_execute must be True or False"),
        ({"prepare_arguments": 5}, "prepare_arguments must be a plain function"),
        ({"validate_required_args": later}, "validate_required_args must be a plain function"),
        ({"examples": 5}, "examples must be pairs"),
        ({"examples": [("a",)]}, "examples must be pairs"),
        ({"lock": 0}, "lock must be a name or a list of names, not 0"),
        ({"lock": {"a": 1}}, "lock must be"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"timeout_s": -1}, "timeout_s"),
        ({"timeout_s": "5"}, "timeout_s must be a number of seconds above 0.* not '5'"),
        ({"timeout_s": True}, "timeout_s"),
        ({"timeout_s": float("nan")}, "timeout_s"),
    ],
)
def test_a_tool_that_cannot_work_is_refused(fields, words):
    """The error says at once which field, and what to change."""
    with pytest.raises(ConfigurationError, match=words):
        make(**fields)


def test_a_tool_cannot_change():
    """Neither its fields nor the schema that it keeps; the schema that was given stays as it was."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    tool = make(input_schema=schema)
    schema["properties"]["b"] = {}

    assert list(tool.input_schema["properties"]) == ["a"]
    with pytest.raises(TypeError):
        tool.input_schema["properties"]["c"] = {}
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        tool.name = "other"


def test_a_unit_test_may_call_execute_with_little():
    """Signal and callback are made up for, and the function gets what the contract says."""
    seen = []

    def execute(tool_call_id, args, signal, on_partial_result):
        on_partial_result("progress")
        seen.append((tool_call_id, args, signal.aborted))

    tool = make(execute)
    signal, told = AbortSignal(), []
    signal.abort()
    tool.execute("1")
    tool.execute("2", {"a": 1})
    tool.execute("3", {}, signal, told.append)

    assert seen == [("1", {}, False), ("2", {"a": 1}, False), ("3", {}, True)]
    assert told == ["progress"]


def test_a_tools_arguments_are_its_own():
    """What it does to them reaches nobody."""

    def greedy(tool_call_id, args, signal, on_partial_result):
        args["deep"]["list"].append("changed")
        args.clear()

    args = {"deep": {"list": ["a"]}}
    make(greedy).execute("1", args)

    assert args == {"deep": {"list": ["a"]}}


def test_execute_raises_what_the_tool_raises():
    """Nothing is caught, not even SystemExit."""

    def leave(*_):
        raise SystemExit(3)

    with pytest.raises(ZeroDivisionError):
        make(lambda *_: 1 / 0).execute("1")
    with pytest.raises(SystemExit):
        make(leave).execute("1")


class Opaque:
    """Has words of its own."""

    def __str__(self):
        return "opaque"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("plain", "plain"),
        (42, "42"),
        (1.5, "1.5"),
        (True, "true"),
        ({"a": 1, "b": [True, None]}, '{"a": 1, "b": [true, null]}'),
        ({"ö": Opaque()}, '{"ö": "opaque"}'),
        ({(1, 2): 3}, "{(1, 2): 3}"),
        (["x", 2], '["x", 2]'),
        ((1,), "[1]"),
        ([], "[]"),
        ({1}, "[1]"),
        ((i for i in range(3)), "[0, 1, 2]"),
        (b"caf\xc3\xa9", "café"),
        (bytearray(b"x"), "x"),
        (b"caf\xe9", "4 bytes that are no text, base64: Y2Fm6Q=="),
        (ValueError("as value"), "as value"),
        (Opaque(), "opaque"),
        (None, ""),
        (TextContent("t"), "t"),
        (["see ", IMAGE, {"k": 1}], 'see {"k": 1}'),
    ],
)
def test_whatever_a_tool_gives_becomes_a_result(given, text):
    """Text for the model is made of every kind of value."""
    assert as_tool_result(given).text == text


def test_content_and_results_are_kept():
    """Blocks are content as they are, a result is the same object, a dict is in the details too."""
    result = AgentToolResult("x", terminate=True)

    assert as_tool_result(result) is result
    assert as_tool_result(IMAGE).content == (IMAGE,)
    assert as_tool_result([TextContent("a"), IMAGE]).content == (TextContent("a"), IMAGE)
    assert as_tool_result(["a", IMAGE]).content == (TextContent("a"), IMAGE)
    assert as_tool_result({"a": [1]}).details == {"a": [1]}
    assert as_tool_result({(1, 2): 3}).details == {}


def test_a_coroutine_is_no_result():
    """A tool that gives a coroutine, which nobody would run, has failed; the coroutine is closed."""
    given = later()
    with pytest.raises(TypeError, match="gave a coroutine"):
        as_tool_result(given)

    assert inspect.getcoroutinestate(given) == inspect.CORO_CLOSED


def test_a_value_in_a_circle_has_words():
    """What JSON can't hold is told as Python tells it."""
    circle = {}
    circle["self"] = circle

    assert as_tool_result(circle).text == "{'self': {...}}"


def test_a_result_holds_all_that_a_tool_tells():
    """Content in any form, facts that can't change, usage, names."""
    result = AgentToolResult(
        ["a", IMAGE], details={"k": [1]}, usage=LlmUsage(1), terminate=True, added_tool_names=["x"]
    )

    assert result.content == (TextContent("a"), IMAGE)
    assert result.text == "a"
    assert result.added_tool_names == ("x",)
    with pytest.raises(TypeError):
        result.details["k"].append(2)
