"""`@tool`: tools from annotated functions."""

from __future__ import annotations

import dataclasses
import enum
import functools
from typing import Annotated, Any, Literal

import jsonschema
import pytest

from yiemagent.abort import AbortSignal
from yiemagent.arguments import checker_for
from yiemagent.errors import ConfigurationError, InvalidArguments
from yiemagent.json_types import Form
from yiemagent.signature import tool
from yiemagent.tool import AgentTool, AgentToolResult


class Unit(enum.Enum):
    """A unit of temperature."""

    C = "celsius"
    F = "fahrenheit"


@dataclasses.dataclass
class Place:
    """Where."""

    lat: float
    lon: float = 0.0


@tool
def weather(
    city: str,
    days: Annotated[int, "how far ahead", {"minimum": 1}] = 1,
    unit: Unit = Unit.C,
    mode: Literal["short", "long"] | None = None,
    near: Place | None = None,
) -> str:
    """Tells the weather.

    Of any city.

    Args:
        city: its name,
            in English
        unit (Unit): of the temperature
        days: loses to what Annotated says
        mode: how long
        near: where

    Returns:
        Words: a sentence.
    """
    return f"{city} {days} {unit} {mode} {near}"


def test_a_function_becomes_a_tool():
    """Name, label and description come from the function, its docstring up to the first section included."""
    assert isinstance(weather, AgentTool)
    assert (weather.name, weather.label) == ("weather", "Weather")
    assert weather.description == "Tells the weather.\n\nOf any city."
    assert not weather.parallel_tool_execute


def test_the_parameters_become_the_schema():
    """Types, defaults, required names and descriptions are told, and no other name is taken."""
    schema = weather.input_schema
    jsonschema.Draft202012Validator.check_schema(schema)

    assert schema["type"] == "object"
    assert schema["required"] == ["city"]
    assert schema["additionalProperties"] is False
    properties = schema["properties"]
    assert properties["city"] == {"type": "string", "description": "its name, in English"}
    assert properties["days"] == {
        "type": "integer",
        "description": "how far ahead",
        "minimum": 1,
        "default": 1,
    }
    assert properties["unit"]["default"] == "celsius"
    assert properties["unit"]["description"] == "of the temperature"
    assert "default" not in properties["mode"]


def test_arguments_arrive_as_the_annotations_say():
    """An Enum member and a dataclass instance arrive as such; absent ones have the function's own default."""
    args = {"city": "Oslo", "days": 2, "unit": "fahrenheit", "near": {"lat": 1.5}}

    assert weather.execute("1", args).text == "Oslo 2 Unit.F None Place(lat=1.5, lon=0.0)"
    assert weather.execute("1", {"city": "Oslo"}).text == "Oslo 1 Unit.C None None"


def test_what_a_model_sends_reaches_the_function():
    """Checked and coerced arguments, defaults filled in, are what the function takes."""
    args = checker_for(weather).check({"city": "Oslo", "days": "3", "mode": None})

    assert weather.execute("1", args).text == "Oslo 3 Unit.C None None"


def test_the_decorator_takes_what_a_tool_has():
    """@tool(...) sets name, label, description and the fields of the tool."""

    @tool(
        name="adder",
        label="Plus",
        description="Adds.",
        parallel_tool_execute=True,
        timeout_s=None,
        annotations={"readOnlyHint": True},
    )
    def add(a: int, b: int) -> int:
        return a + b

    assert (add.name, add.label, add.description) == ("adder", "Plus", "Adds.")
    assert add.parallel_tool_execute
    assert add.timeout_s is None
    assert add.annotations == {"readOnlyHint": True}
    assert add.execute("1", {"a": 1, "b": 2}).text == "3"


def test_the_pipelines_gifts_are_no_arguments():
    """tool_call_id, signal and on_partial_result, or any AbortSignal, are given and stand in no schema."""
    told = []

    @tool
    def work(n: int, tool_call_id: str, signal, on_partial_result, stop: AbortSignal | None = None):
        """Works."""
        on_partial_result("half")
        return [n, tool_call_id, signal is stop, signal.aborted]

    signal = AbortSignal()
    signal.abort()

    assert list(work.input_schema["properties"]) == ["n"]
    assert work.execute("7", {"n": 1}, signal, told.append).text == '[1, "7", true, true]'
    assert told == ["half"]


def test_a_result_of_ones_own_is_handed_on():
    """A function may give an AgentToolResult."""

    @tool
    def end() -> AgentToolResult:
        """Ends."""
        return AgentToolResult("done", terminate=True)

    assert end.execute("1").terminate
    assert end.input_schema == {"type": "object", "properties": {}, "additionalProperties": False}


def test_other_callables_become_tools():
    """A bound method, a partial and an object with __call__ are functions too."""

    class Counter:
        """Counts."""

        def __init__(self):
            self.total = 0

        def add(self, n: int) -> int:
            """Adds to the total."""
            self.total += n
            return self.total

        def __call__(self, n: int) -> int:
            """Takes from the total."""
            self.total -= n
            return self.total

    def power(base: int, exponent: int) -> int:
        """Raises to a power."""
        return base**exponent

    counter = Counter()
    square = tool(functools.partial(power, exponent=2), name="square")

    assert tool(counter.add).execute("1", {"n": 3}).text == "3"
    assert tool(counter, name="take").execute("1", {"n": 1}).text == "2"
    assert tool(counter, name="take").description == "Takes from the total."
    assert square.execute("1", {"base": 3}).text == "9"
    assert square.input_schema["required"] == ["base"]
    assert square.input_schema["properties"]["exponent"]["default"] == 2


def test_positional_parameters_are_given_in_order():
    """Parameters before a slash arrive too, as far as there are values."""

    @tool
    def show(a: int, signal: AbortSignal, b: int = 5, /, *, c: int = 6) -> list:
        """Shows."""
        return [a, signal.aborted, b, c]

    assert show.execute("1", {"a": 1, "c": 2}).text == "[1, false, 5, 2]"
    assert show.execute("1", {"a": 1, "b": 2}).text == "[1, false, 2, 6]"
    with pytest.raises(TypeError):
        show.execute("1", {"b": 2})


def test_a_direct_call_raises_what_python_raises():
    """A direct call checks nothing: missing and unknown names are a TypeError of the function."""
    with pytest.raises(TypeError, match="city"):
        weather.execute("1", {})
    with pytest.raises(TypeError, match="town"):
        weather.execute("1", {"city": "x", "town": "y"})


def test_a_value_that_cannot_be_read_is_told_by_name():
    """Where the schema can't say all, the parameter's name and the reason are in the error."""

    @tool
    def at(when: __import__("datetime").date):
        """Waits."""

    with pytest.raises(InvalidArguments, match="when: Invalid isoformat"):
        at.execute("1", {"when": "tomorrow"})
    with pytest.raises(InvalidArguments, match="unit"):
        weather.execute("1", {"city": "x", "unit": "kelvin"})


def test_recursive_types_come_with_their_definitions():
    """A type that contains itself stands in $defs of the schema, and arguments of it are checked."""

    @tool
    def grow(tree: Tree):
        """Grows."""
        return tree.children[0].name

    args = {"tree": {"name": "a", "children": [{"name": "b"}]}}

    assert list(grow.input_schema["$defs"]) == ["Tree"]
    assert grow.execute("1", checker_for(grow).check(args)).text == "b"
    with pytest.raises(InvalidArguments, match="name: is missing"):
        checker_for(grow).check({"tree": {"name": "a", "children": [{}]}})


@dataclasses.dataclass
class Tree:
    """A node."""

    name: str
    children: list[Tree] = dataclasses.field(default_factory=list)


# --- refusals --------------------------------------------------------------------------------------------------------


def refusal(fn, **options):
    with pytest.raises(ConfigurationError) as caught:
        tool(fn, **options)
    return str(caught.value)


def test_a_coroutine_function_is_refused():
    """Functions, generators and objects that are asynchronous are told at once."""

    async def later(a: int):
        """Later."""

    async def many():
        """Many."""
        yield 1

    class Later:
        """An object."""

        async def __call__(self):
            """Later."""

    for fn in (later, many, Later(), functools.partial(later, 1)):
        assert "coroutine function" in refusal(fn, name="x")


def test_what_is_no_function_is_refused():
    """A class or a value is no tool."""
    assert "not of" in refusal(int)
    assert "not of" in refusal("text")


def test_a_tool_needs_words():
    """Neither docstring nor description is told, and so is a name that providers refuse."""

    def silent(a: int):
        pass

    assert "needs a docstring or description=" in refusal(silent)
    assert "needs a docstring" in refusal(silent, description="  ")
    assert "tool name '<lambda>'" in refusal(lambda: 1, description="d")


def test_parameters_that_cannot_be_told_are_refused_by_name():
    """Without annotation, of an unsupported type, starred, or with a reserved name: the error names the parameter."""

    def bare(a):
        """Does."""

    def raw(a: bytes):
        """Does."""

    def starred(*parts: str):
        """Does."""

    def named(**options: str):
        """Does."""

    def taken(signal: int):
        """Does."""

    def unknown(a: NoSuchType):  # noqa: F821 - the point of the test
        """Does."""

    assert "parameter 'a': needs an annotation, such as a: str" in refusal(bare)
    assert "parameter 'a': no JSON Schema for bytes" in refusal(raw)
    assert "parameter 'parts'" in refusal(starred)
    assert "parameter 'options'" in refusal(named)
    assert "parameter 'signal': this name is for the AbortSignal" in refusal(taken)
    assert "NoSuchType" in refusal(unknown)


# --- docstrings ------------------------------------------------------------------------------------------------------


def described(docstring):
    def fn(a: int, b: str = "", c: Any = None):
        pass

    fn.__doc__ = docstring
    made = tool(fn)
    return made.description, [
        p.get("description") for p in made.input_schema["properties"].values()
    ]


@pytest.mark.parametrize(
    ("docstring", "text", "notes"),
    [
        ("One line.", "One line.", [None, None, None]),
        (
            """Google.

            Args:
                a: first: with a colon
                    and a second line
                *b (str, optional): second

                c: third
            Raises:
                a: no parameter
            """,
            "Google.",
            ["first: with a colon and a second line", "second", "third"],
        ),
        (
            """NumPy.

            More words.

            Parameters
            ----------
            a : int
                The first
                of all.
            b, c : str, optional
                The others.

            Returns
            -------
            a : int
                No parameter.
            """,
            "NumPy.\n\nMore words.",
            ["The first of all.", "The others.", "The others."],
        ),
        (
            """reST.

            :param a: first
                and more
            :param str b: second
            :type c: str
            :returns: c: no parameter
            """,
            "reST.",
            ["first and more", "second", None],
        ),
        (
            """Words that end with Returns.

            Example:
                weather("x")
            """,
            "Words that end with Returns.",
            [None, None, None],
        ),
        ("Notes\nstay words.", "Notes\nstay words.", [None, None, None]),
        (":a: stays", ":a: stays", [None, None, None]),
    ],
)
def test_docstrings_of_three_styles_are_read(docstring, text, notes):
    """The text before the first section describes the tool, its parameter section the parameters."""
    assert described(docstring) == (text, notes)


def test_a_form_is_a_types_three_sides():
    """A form without a reader gives the value itself."""
    value = []

    assert Form({}, None, bool).value(value) is value
