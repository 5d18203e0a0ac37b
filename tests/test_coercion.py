"""Coercion: what a schema plainly asks for, and nothing else."""

from __future__ import annotations

import math

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.coercion import Coercer, loads_json
from yiemagent.schema import sound_schema


def coercer(schema):
    """A coercer whose question of fitting is answered by a validator."""

    def fits(node, value):
        return jsonschema.Draft202012Validator(schema).evolve(schema=node).is_valid(value)

    return Coercer(schema, fits)


def coerced(schema, value):
    """What becomes of a value."""
    return coercer(schema).coerce(schema, value)


def same(one, other):
    """Equal in type and value, all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@pytest.mark.parametrize(
    ("types", "value", "becomes"),
    [
        ("integer", "5", 5),
        ("integer", " -5 ", -5),
        ("integer", "5.0", 5),
        ("integer", 5.0, 5),
        ("integer", "12345678901234567890", 12345678901234567890),
        ("number", "0.5", 0.5),
        ("number", "9007199254740993", 9007199254740993),
        ("number", "1e3", 1000.0),
        ("boolean", "true", True),
        ("boolean", "False", False),
        ("null", "null", None),
        ("string", 1, "1"),
        ("string", 1.5, "1.5"),
        ("object", '{"k": 1}', {"k": 1}),
        ("array", "[1, [2]]", [1, [2]]),
        (["integer", "null"], "5", 5),
        (["integer", "null"], "null", None),
        (["boolean", "object"], "{}", {}),
    ],
)
def test_what_is_plain_is_coerced(types, value, becomes):
    """A value of the wrong type with one meaning becomes that."""
    assert same(coerced({"type": types}, value), becomes)


@pytest.mark.parametrize(
    ("types", "value"),
    [
        ("integer", "abc"),
        ("integer", ""),
        ("integer", "42.1"),
        ("integer", "007"),
        ("integer", "+5"),
        ("integer", "1" * 5000),
        ("integer", 5.5),
        ("integer", True),
        ("number", "Infinity"),
        ("number", "1e999"),
        ("number", "0x1"),
        ("number", True),
        ("number", 5.0),
        ("boolean", "1"),
        ("boolean", 1),
        ("boolean", "yes"),
        ("null", ""),
        ("string", True),
        ("string", None),
        ("string", {}),
        ("string", "007"),
        ("object", "[1]"),
        ("object", "{"),
        ("object", "k"),
        ("array", "1, 2"),
        ("array", "x"),
        (["array", "string"], "[1]"),
        (["number", "string"], "0.5"),
        (["string", "null"], "null"),
        (["integer", "number"], 5.0),
        ([], "5"),
    ],
)
def test_what_is_not_plain_stays(types, value):
    """A value that may mean two things, or nothing, is the checker's business."""
    assert coerced({"type": types}, value) is value


def test_null_for_an_optional_property_is_left_out():
    """Where the property can be null, or must be there, or is not named, null stays."""
    schema = {
        "properties": {
            "gone": {"type": "string"},
            "kept": {"type": ["string", "null"]},
            "any": {},
            "must": {"type": "string"},
            "one": {"enum": [None, 1]},
            "off": {"const": 1},
            "never": False,
        },
        "required": ["must"],
    }
    value = dict.fromkeys(["gone", "kept", "any", "must", "one", "off", "never", "unnamed"])

    assert list(coerced(schema, value)) == ["kept", "any", "must", "one", "unnamed"]
    assert coerced({"properties": {"a": {"type": "string"}}, "required": True}, {"a": None}) == {}


def test_defaults_are_fresh_copies():
    """An absent property gets its default, each call one of its own; one that is there keeps its value."""
    schema = {
        "properties": {
            "tags": {"type": "array", "default": []},
            "nest": {"properties": {"deep": {"default": 3}}},
            "unit": {"type": "string"},
        }
    }
    filler = coercer(schema)
    first, second = filler.coerce(schema, {}), filler.coerce(schema, {"tags": ["x"], "nest": {}})
    first["tags"].append("changed")

    assert second == {"tags": ["x"], "nest": {"deep": 3}}
    assert filler.coerce(schema, {}) == {"tags": []}
    assert schema["properties"]["tags"]["default"] == []


def test_a_default_that_its_own_schema_refuses_is_not_used():
    """Such a default would fail every call, and the model could not know why."""
    schema = {
        "properties": {"a": {"type": "string", "default": None}, "b": {"enum": [1], "default": 2}}
    }

    assert coerced(schema, {}) == {}


def test_a_default_is_found_through_references():
    """The nearest default on a chain of references counts; a circle has none."""
    schema = {
        "$defs": {
            "a": {"$ref": "#/$defs/b", "type": "integer"},
            "b": {"default": 7},
            "round": {"$ref": "#/$defs/round"},
            "open": True,
        },
        "properties": {
            "x": {"$ref": "#/$defs/a"},
            "y": {"$ref": "#/$defs/a", "default": 1},
            "z": {"$ref": "#/$defs/open"},
        },
    }

    assert coerced(schema, {}) == {"x": 7, "y": 1}
    assert coercer(schema)._default(schema["$defs"]["round"]) is coercer(schema)._default({})


def test_a_value_that_fits_an_arm_of_a_union_stays():
    """Only where no arm takes it the arms are tried, in order."""
    either = {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]}
    numbers = {"oneOf": [{"type": "integer"}, {"type": "boolean"}, False]}

    assert coerced(either, "5") == "5"
    assert coerced(numbers, "5") == 5
    assert coerced(numbers, "true") is True
    assert coerced(numbers, "x") == "x"
    assert coerced({"anyOf": [{"type": "integer", "minimum": 6}, {"type": "number"}]}, "5") == 5
    assert same(coerced({"anyOf": [{"type": "integer"}, {"type": "number"}]}, 5.0), 5.0)
    assert same(coerced({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 5.0), 5)


def test_coercion_goes_into_every_part():
    """Nested objects, lists, tuples, references, all-of, patterns and other properties are reached."""
    schema = {
        "$defs": {"n": {"type": "integer"}},
        "properties": {
            "list": {"items": {"$ref": "#/$defs/n"}},
            "pair": {"prefixItems": [{"type": "integer"}], "items": {"type": "boolean"}},
            "old": {"items": [{"type": "integer"}], "additionalItems": {"type": "boolean"}},
            "both": {"allOf": [{"type": "integer"}, {"minimum": 1}]},
            "free": {"items": True},
        },
        "patternProperties": {"^n_": {"type": "integer"}},
        "additionalProperties": {"type": "boolean"},
    }
    value = {
        "list": ["1", 2],
        "pair": ["1", "true", "x"],
        "old": ["1", "true"],
        "both": "3",
        "free": ["1"],
        "n_x": "4",
        "rest": "false",
    }

    assert same(
        coerced(schema, value),
        {
            "list": [1, 2],
            "pair": [1, True, "x"],
            "old": [1, True],
            "both": 3,
            "free": ["1"],
            "n_x": 4,
            "rest": False,
        },
    )
    assert value["list"] == ["1", 2]


SIMPLE = st.sampled_from(
    [
        {"type": "integer"},
        {"type": "number", "minimum": 0},
        {"type": ["string", "null"]},
        {"type": "boolean"},
        {"enum": ["a", 1, None]},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        {"type": "array", "items": {"type": "integer"}},
        {"type": "object", "properties": {"a": {"type": "integer"}}},
        {},
        True,
    ]
)
SCHEMAS = st.fixed_dictionaries(
    {"properties": st.dictionaries(st.sampled_from("abc"), SIMPLE)},
    optional={"required": st.lists(st.sampled_from("abc"), unique=True)},
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(["5", "true", "[]"])
)
VALUES = st.dictionaries(
    st.sampled_from("abcd"),
    LEAVES
    | st.lists(LEAVES, max_size=3)
    | st.dictionaries(st.sampled_from("ab"), LEAVES, max_size=2),
)


@given(SCHEMAS, VALUES)
def test_coercion_only_helps(schema, value):
    """A valid value stays equal, a second coercion changes nothing, and what was given is not changed."""
    before = repr(value)
    once = coerced(schema, value)

    assert repr(value) == before
    assert coerced(schema, once) is once
    if jsonschema.Draft202012Validator(schema).is_valid(value):
        assert once == value
    assert sound_schema(schema)[0] == schema


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}', "1e999", "'a'", ""])
def test_only_strict_json_is_read(text):
    """What is no JSON, or more than a float holds, raises."""
    with pytest.raises(ValueError):
        loads_json(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_is_read(number):
    """Each finite number comes back as itself."""
    assert loads_json(repr(number)) == number
    assert math.isfinite(loads_json(repr(number)))
