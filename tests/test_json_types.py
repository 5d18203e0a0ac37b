"""Python types as JSON Schema, and JSON values read back."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import pathlib
import sys
import typing
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    TypeVar,
    Union,
)

import attrs
import jsonschema
import pytest

from yiemagent.errors import ConfigurationError
from yiemagent.json_types import TypeReader, json_default


class Colour(enum.Enum):
    """Values are texts."""

    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    """Values are whole numbers."""

    S = 1
    L = 2


class Mixed(enum.Enum):
    """Values that JSON can't tell apart, so the names stand for them."""

    ONE = (1, 2)
    TWO = "two"


class Word(enum.StrEnum):
    """Values are texts of a subclass."""

    HI = "hi"


class Empty(enum.Enum):
    """No members."""


@dataclasses.dataclass
class Point:
    """A dataclass."""

    x: int
    colour: Colour = Colour.RED
    tags: list[str] = dataclasses.field(default_factory=list)
    seen: bool = dataclasses.field(default=False, init=False)


@attrs.frozen
class Box:
    """An attrs class with a private field."""

    _inner: Point
    size: Size = Size.S
    notes: dict[str, str] = attrs.field(factory=dict)
    made: int = attrs.field(default=1, init=False)


class Options(TypedDict):
    """A typed dict."""

    name: str
    limit: NotRequired[int]


@dataclasses.dataclass
class Node:
    """Contains itself."""

    name: str
    children: list[Node] = dataclasses.field(default_factory=list)
    parent: Node | None = None


UserId = NewType("UserId", int)
T = TypeVar("T")


def form(annotation):
    return TypeReader().form(annotation, "x")


def array(items, **more):
    return {"type": "array", "items": items, **more}


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (object, {}),
        (list, {"type": "array"}),
        (tuple, {"type": "array"}),
        (dict, {"type": "object"}),
        (list[int], array({"type": "integer"})),
        (typing.List[int], array({"type": "integer"})),  # noqa: UP006 - people write it
        (Sequence[str], array({"type": "string"})),
        (Iterable[str], array({"type": "string"})),
        (set[str], array({"type": "string"}, uniqueItems=True)),
        (tuple[int, ...], array({"type": "integer"})),
        (
            tuple[int, str],
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Mapping[str, Any], {"type": "object"}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045 - people write it
        (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}),  # noqa: UP007 - people write it
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal[1, 2], {"type": "integer", "enum": [1, 2]}),
        (Literal["a", True], {"enum": ["a", True]}),
        (Colour, {"type": "string", "enum": ["red", "blue"]}),
        (Size, {"type": "integer", "enum": [1, 2]}),
        (Mixed, {"type": "string", "enum": ["ONE", "TWO"]}),
        (Word, {"type": "string", "enum": ["hi"]}),
        (pathlib.Path, {"type": "string"}),
        (dt.datetime, {"type": "string", "format": "date-time"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (UserId, {"type": "integer"}),
        (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
        (Annotated[int, {"minimum": 1}, 5], {"type": "integer", "minimum": 1}),
        (Annotated[UserId, "who"], {"type": "integer", "description": "who"}),
        (
            Options,
            {
                "type": "object",
                "properties": {"name": {"type": "string"}, "limit": {"type": "integer"}},
                "required": ["name"],
                "additionalProperties": False,
            },
        ),
        (
            Point,
            {
                "type": "object",
                "properties": {
                    "x": {"type": "integer"},
                    "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
                    "tags": array({"type": "string"}),
                },
                "required": ["x"],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_a_type_has_a_schema(annotation, schema):
    """Each supported annotation says what JSON it takes."""
    made = form(annotation).schema

    assert made == schema
    jsonschema.Draft202012Validator.check_schema(made)


def test_an_attrs_class_is_told_by_its_arguments():
    """Private fields go by the name that the class takes, fields that it does not take are left out."""
    schema = form(Box).schema

    assert list(schema["properties"]) == ["inner", "size", "notes"]
    assert schema["required"] == ["inner"]
    assert schema["properties"]["size"]["default"] == 1


@pytest.mark.parametrize(
    ("annotation", "given", "value"),
    [
        (int, 5, 5),
        (list[int], [1], [1]),
        (set[int], [1, 2], {1, 2}),
        (frozenset[Colour], ["red"], frozenset({Colour.RED})),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[Colour, int], ["blue", 1], (Colour.BLUE, 1)),
        (tuple[Colour, ...], ["blue"], (Colour.BLUE,)),
        (list[Colour], ["red"], [Colour.RED]),
        (dict[str, Size], {"a": 1}, {"a": Size.S}),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (Colour, "red", Colour.RED),
        (Size, 2, Size.L),
        (Mixed, "ONE", Mixed.ONE),
        (Word, "hi", Word.HI),
        (pathlib.Path, "a/b", pathlib.Path("a/b")),
        (dt.date, "2026-01-02", dt.date(2026, 1, 2)),
        (dt.time, "10:30", dt.time(10, 30)),
        (Colour | None, None, None),
        (Colour | None, "red", Colour.RED),
        (int | str, "red", "red"),
        (Options, {"name": "n"}, {"name": "n"}),
        (Point, {"x": 1}, Point(1)),
        (Point, {"x": 1, "colour": "blue", "tags": ["t"]}, Point(1, Colour.BLUE, ["t"])),
        (Box, {"inner": {"x": 1}, "size": 2}, Box(Point(1), Size.L)),
        (Point | Box, {"inner": {"x": 1}}, Box(Point(1))),
        (Point | Box, {"x": 1}, Point(1)),
        (Colour | dict[str, Any], {"a": 1}, {"a": 1}),
        (bool | Size, True, True),
        (bool | Size, 1, Size.S),
        (list[Point] | Point, [{"x": 1}], [Point(1)]),
        (tuple[int, int] | tuple[str, ...], ["a"], ("a",)),
        (tuple[int, int] | tuple[str, ...], [1, 2], (1, 2)),
        (dict[str, int] | dict[str, Colour], {"a": "red"}, {"a": Colour.RED}),
        (dt.date | pathlib.Path, "2026-01-02", dt.date(2026, 1, 2)),
        (dt.date | pathlib.Path, "a/b", pathlib.Path("a/b")),
        (uuid.UUID | int, 5, 5),
        (Literal["a"] | Colour, "a", "a"),
        (Literal["a"] | Colour, "blue", Colour.BLUE),
        (Colour | Any, [5], [5]),
        (Colour | None, "no such", "no such"),
    ],
)
def test_a_value_is_read_as_the_type_says(annotation, given, value):
    """JSON becomes members, instances, tuples and sets; of a union the first arm that takes it."""
    read = form(annotation).value(given)

    assert read == value
    assert type(read) is type(value)


def test_a_type_alias_stands_for_its_type():
    """What `type X = …` makes, from Python 3.12 on, is read like what it names."""
    alias = type("TypeAliasType", (), {"__value__": Annotated[int, "n"]})()

    assert form(alias).schema == {"type": "integer", "description": "n"}


def test_a_plain_type_needs_no_reading():
    """What JSON holds already is handed on as it is."""
    for annotation in (int, list[int], dict[str, list[str]], int | None, Literal["a"], Any):
        assert form(annotation).read is None


def test_a_type_that_contains_itself_is_defined_once():
    """It becomes a definition with references to it, and is read to any depth."""
    reader = TypeReader()
    node = reader.form(Node, "x")
    again = reader.form(list[Node], "y")
    root = {"$defs": reader.definitions, **node.schema}
    value = {"name": "a", "children": [{"name": "b", "children": [{"name": "c"}]}], "parent": None}

    assert node.schema == {"$ref": "#/$defs/Node"}
    assert again.schema["items"]["$ref"].startswith("#/$defs/Node")
    jsonschema.Draft202012Validator(root).validate(value)
    assert node.value(value) == Node("a", [Node("b", [Node("c")])])
    assert node.accepts(value)
    assert not node.accepts({"name": "a", "children": [{"title": "b"}]})


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (bytes, "no JSON Schema for bytes"),
        (complex, "complex"),
        (T, "T"),
        (dict[int, str], "string keys"),
        (typing.Callable[[int], int], "Callable"),
        (type(sys), "module"),
        (Literal[b"a"], "Literal holds b'a'"),
        (Literal[Colour.RED], "Literal holds"),
        (Empty, "no members"),
        (list[bytes], r"x\[\]: no JSON Schema"),
        (dict[str, bytes], r"x\.\*: no JSON Schema"),
        (tuple[int, bytes], r"x\[1\]: no JSON Schema"),
    ],
)
def test_a_type_without_a_schema_is_refused(annotation, words):
    """The error names the place and says what to do."""
    with pytest.raises(ConfigurationError, match=words):
        form(annotation)


def test_a_class_with_unknown_annotations_is_refused():
    """A name that can't be resolved is told with its class."""

    @dataclasses.dataclass
    class Lost:
        field: NoSuchName  # noqa: F821 - the point of the test

    with pytest.raises(ConfigurationError, match="annotations of Lost"):
        form(Lost)


@pytest.mark.parametrize(
    ("default", "value"),
    [
        (5, 5),
        ("a", "a"),
        ((1, 2), [1, 2]),
        ({"b", "a"}, ["a", "b"]),
        (Colour.RED, "red"),
        (Mixed.ONE, "ONE"),
        ([Size.L, Colour.BLUE], [2, "blue"]),
        (None, None),
        (float("nan"), None),
        (object(), None),
        (b"a", None),
    ],
)
def test_a_default_is_said_where_json_can(default, value):
    """What JSON can't say is left to Python."""
    assert json_default(default) == value


def test_two_classes_of_one_name_are_kept_apart():
    """A definition never takes the name of another class."""

    def make(field):
        inner = dataclasses.make_dataclass("Same", [("next", Any), (field, int)])
        inner.__annotations__["next"] = inner | None
        return inner

    reader = TypeReader()
    reader.form(make("a"), "x")
    reader.form(make("b"), "y")

    assert list(reader.definitions) == ["Same", "Same_"]
