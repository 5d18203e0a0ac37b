"""What an answer must be: schemas and types as one, and answers read by them."""

from __future__ import annotations

import copy
import dataclasses
import enum
import json
from typing import Literal, NotRequired, TypedDict

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.arguments import ArgumentChecker
from yiemagent.errors import ConfigurationError, InvalidArguments
from yiemagent.messages import AssistantMessage
from yiemagent.output import OutputSchema, output_schema, read_output


class Size(enum.Enum):
    """A size."""

    SMALL = "small"
    LARGE = "large"


@dataclasses.dataclass
class Person:
    """A person."""

    name: str
    age: int = 0


@attrs.frozen
class Order:
    """An order with a person in it."""

    buyer: Person
    size: Size
    items: list[str] = attrs.field(factory=list)


class Place(TypedDict):
    """A place."""

    city: str
    country: NotRequired[str]


@dataclasses.dataclass
class Node:
    """A tree."""

    name: str
    children: list[Node] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Car:
    """Is no Person."""

    wheels: int


def answer(value):
    """Give an answer with a value."""
    return AssistantMessage("…", parsed=value)


# -- what may be asked for --


def test_a_schema_of_an_object_is_sent_as_it_is():
    """An object's schema needs no wrapping, and the caller's own stays the caller's."""
    schema = {"properties": {"n": {"type": "integer"}}, "required": ["n"]}
    asked = output_schema(schema)
    schema["properties"].clear()

    assert not asked.is_wrapped
    assert asked.schema == {"properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert output_schema(asked) is asked


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Person, {"name": "Ada", "age": 36}),
        (Order, {"buyer": {"name": "Ada", "age": 0}, "size": "small", "items": ["tea"]}),
        (Place, {"city": "Rome"}),
        (Node, {"name": "root", "children": [{"name": "leaf", "children": []}]}),
        (dict[str, int], {"a": 1}),
    ],
)
def test_a_class_says_the_schema(kind, value):
    """Records and mappings are objects: their answers are read as their fields say."""
    asked = output_schema(kind)

    assert not asked.is_wrapped
    assert asked.schema["type"] == "object"
    assert asked.read(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (list[Person], [{"name": "Ada", "age": 36}]),
        (list[Node], [{"name": "a", "children": [{"name": "b", "children": []}]}]),
        (int, 3),
        (Literal["yes", "no"], "yes"),
        (Person | Car, {"wheels": 4}),
        (str | None, None),
        ({"type": "array", "items": {"type": "integer"}}, [1, 2]),
        ({"enum": ["a", "b"]}, "b"),
    ],
    ids=str,
)
def test_what_is_no_object_travels_inside_one(kind, value):
    """Any other value is asked for as the field of an object, and comes out of it again."""
    asked = output_schema(kind)

    assert asked.is_wrapped
    assert asked.schema["type"] == "object"
    assert asked.read(json.dumps({"answer": value})) == value
    assert asked.read(json.dumps(value)) == value  # a model may leave the wrapping out


def test_references_hold_where_a_schema_is_wrapped():
    """Definitions stay at the root, and a reference to the schema itself follows it."""
    asked = output_schema(
        {
            "$defs": {"word": {"type": "string"}},
            "anyOf": [
                {"$ref": "#/$defs/word"},
                {"type": "array", "items": {"$ref": "#"}},
            ],
        }
    )

    assert asked.schema["$defs"] == {"word": {"type": "string"}}
    assert asked.read('{"answer": ["a", ["b", ["c"]]]}') == ["a", ["b", ["c"]]]
    with pytest.raises(InvalidArguments):
        asked.read('{"answer": ["a", [{"b": 1}]]}')


def test_a_root_that_is_a_reference_becomes_what_it_names():
    """Providers want an object at the root, so a class that contains itself is written out there."""
    schema = output_schema(Node).schema

    assert "$ref" not in schema
    assert set(schema["properties"]) == {"name", "children"}
    assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}


@pytest.mark.parametrize("given", ["Person", 3, Person("Ada"), object, len, [Person]])
def test_what_says_no_schema_is_refused(given):
    """A name, a value or a function is no schema, and a class without fields says none."""
    if given is object:
        given = type("Empty", (), {})
    with pytest.raises(ConfigurationError, match=r"output_schema"):
        output_schema(given)


def test_a_schema_is_a_record():
    """Two that say the same are equal, and what they hold can't change."""
    asked = output_schema(Person)

    assert asked == output_schema(Person)
    assert asked != output_schema(Car)
    assert hash(asked) == hash(output_schema(Person))
    assert "Person" in repr(output_schema(Node | Person)) or "anyOf" in repr(
        output_schema(Node | Person)
    )
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        asked.is_wrapped = True
    with pytest.raises(TypeError, match="can't change"):
        asked.schema["type"] = "array"


# -- answers --


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Ada", "age": 36}',
        '```json\n{"name": "Ada", "age": 36}\n```',
        "{'name': 'Ada', 'age': 36,}",
        '{"name": "Ada", "age": "36"}',
        ' \n{"name": "Ada", "age": 36.0}\n',
    ],
)
def test_an_answer_is_read_as_arguments_are(text):
    """Fences, habits of models and what a schema makes plain are no obstacle."""
    assert output_schema(Person).read(text) == {"name": "Ada", "age": 36}


def test_defaults_are_filled_in_and_the_value_is_frozen():
    """What the model left out and the class knows is there, and nobody can change it."""
    value = output_schema(Person).read('{"name": "Ada"}')

    assert value == {"name": "Ada", "age": 0}
    with pytest.raises(TypeError, match="can't change"):
        value["age"] = 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the answer is empty"),
        ("It is Ada.", "the answer is no valid JSON"),
        ('{"name": "Ada"', "the answer is no valid JSON"),
        ("[1]", "the answer must be one JSON object"),
        ("{}", "name: is missing; expected string"),
        ('{"name": "Ada", "height": 3}', "answer: unknown 'height'"),
        ('{"name": "Ada", "age": "old"}', 'age: expected integer, not "old"'),
        ("[" * 100_000, "the answer"),
    ],
)
def test_what_does_not_fit_is_told_in_words(text, problem):
    """The model can do better next time: the words name the place and what was expected."""
    with pytest.raises(InvalidArguments) as told:
        output_schema(Person).read(text)

    assert problem in str(told.value)
    assert "argument" not in str(told.value)


def test_the_first_problem_is_told_where_a_value_fits_neither_way():
    """Of a wrapped schema the model is told what was asked for, not what would have done, too."""
    with pytest.raises(InvalidArguments, match=r"answer\[0\]: expected integer"):
        output_schema(list[int]).read('{"answer": ["a"]}')
    with pytest.raises(InvalidArguments, match="no valid JSON"):
        output_schema(list[int]).read("one, two")


WORDS = st.text(max_size=10)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


@given(VALUES)
def test_any_json_value_comes_back_from_its_text(value):
    """Whatever the schema lets pass is the value that the model wrote."""
    asked = output_schema({})

    assert asked.is_wrapped
    assert asked.read(json.dumps({"answer": value})) == value


@given(st.text(max_size=40) | VALUES.map(json.dumps))
def test_whatever_a_model_writes_is_a_value_or_a_problem(text):
    """Reading an answer raises nothing but what the model can be told."""
    asked = output_schema(Person)
    try:
        value = asked.read(text)
    except InvalidArguments:
        value = {"name": "nobody", "age": 0}

    assert ArgumentChecker(asked.schema).check(copy.deepcopy(value)) == value


# -- objects --


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Person, {"name": "Ada", "age": 36}, Person("Ada", 36)),
        (
            Order,
            {"buyer": {"name": "Ada"}, "size": "large", "items": ["tea"]},
            Order(Person("Ada"), Size.LARGE, ["tea"]),
        ),
        (Place, {"city": "Rome"}, {"city": "Rome"}),
        (Node, {"name": "a", "children": [{"name": "b"}]}, Node("a", [Node("b")])),
        (list[Person], [{"name": "Ada"}], [Person("Ada")]),
    ],
)
def test_a_value_becomes_an_object_of_its_class(kind, value, expected):
    """`read_output` builds what the class says, with plain dicts and lists in it."""
    built = read_output(answer(value), kind)

    assert built == expected
    if isinstance(built, Order):
        built.items.append("cake")


def test_an_answer_without_a_value_says_why():
    """A failed answer has no value, and neither has one that nobody asked a schema of."""
    failed = AssistantMessage(stop_reason="error", error_message="no luck")
    with pytest.raises(ValueError, match="no luck"):
        read_output(failed, Person)
    with pytest.raises(ValueError, match="without output_schema"):
        read_output(AssistantMessage("hi"), Person)


@pytest.mark.parametrize("value", [{"wheels": 4}, [1], "x", {"name": "Ada", "size": 1}])
def test_a_value_of_another_kind_is_named(value):
    """A value that was asked for as something else is no object of the class."""
    with pytest.raises(ValueError, match="no Person"):
        read_output(answer(value), Person)


def test_a_value_in_a_message_is_frozen():
    """What an answer carries can't change, whoever made it."""
    value = {"list": [1]}
    message = answer(value)
    value["list"].append(2)

    assert message.parsed == {"list": [1]}
    with pytest.raises(TypeError, match="can't change"):
        message.parsed["list"].append(3)
    assert isinstance(output_schema(Person), OutputSchema)
