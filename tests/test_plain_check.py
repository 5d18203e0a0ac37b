"""The short check: narrow, and never of another mind than coercion and the validator."""

from __future__ import annotations

import subprocess
import sys

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.coercion import Coercer
from yiemagent.plain_check import plain_check
from yiemagent.schema import sound_schema

ANY = {"type": "object", "properties": {"a": {}}}


def the_long_way(schema, args):
    """Give what coercion makes of arguments, or None where the validator refuses that."""
    validator = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)(schema)
    made = Coercer(
        schema, lambda node, value: validator.evolve(schema=node).is_valid(value)
    ).coerce(schema, args)
    return made if validator.is_valid(made) else None


def takes(node, value):
    """Whether the short check takes a value for a property."""
    check = plain_check({"type": "object", "properties": {"a": node}, "required": ["a"]})
    return check({"a": value}) is not None


@pytest.mark.parametrize(
    ("node", "fits", "fails"),
    [
        ({"type": "integer"}, [5, -1], [5.0, "5", True, None]),
        ({"type": "number"}, [5, 0.5], ["5", True]),
        ({"type": "string"}, ["", "x"], [5, None]),
        ({"type": "boolean"}, [True, False], [1, "true"]),
        ({"type": ["string", "null"]}, ["x", None], [5]),
        ({"type": "integer", "minimum": 1, "maximum": 3}, [1, 3], [0, 4]),
        ({"type": "number", "exclusiveMinimum": 1, "exclusiveMaximum": 3}, [2], [1, 3]),
        ({"type": "string", "minLength": 1, "maxLength": 2}, ["x", "xy"], ["", "xyz"]),
        ({"type": "string", "pattern": "^a", "format": "date"}, ["ab"], ["ba"]),
        ({"enum": ["x", "y"], "title": "t", "x-copy": True}, ["x"], ["z", 1, ["x"]]),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, [5, None], ["5"]),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 1}, [[1]], [[], ["1"], {}]),
        ({"type": "array", "maxItems": 1}, [[], ["x"]], [[1, 2]]),
        ({"type": "object", "properties": {"k": {"type": "string"}}}, [{}, {"k": "v"}], [{"k": 1}]),
        (True, [None, {}], []),
    ],
)
def test_common_schemas_are_checked(node, fits, fails):
    """What plainly fits is taken, all else is left to the long way."""
    assert [value for value in fits if not takes(node, value)] == []
    assert [value for value in fails if takes(node, value)] == []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {}}},
        {"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}]}}},
        {"type": "object", "properties": {"a": {"enum": ["x", 1]}}},
        {"type": "object", "properties": {"a": {"minimum": 1}}},
        {"type": "object", "properties": {"a": False}},
        {"type": "object", "properties": {"a": {"type": "integer", "default": "5"}}},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "patternProperties": {"a": {}}},
        {"type": "array", "items": {"type": "object", "properties": {"a": {"default": 1}}}},
        {"properties": {}},
        {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"},
    ],
)
def test_what_says_more_is_left_to_the_validator(schema):
    """A schema with keywords beyond the common ones has no short check."""
    assert plain_check(schema) is None


def test_absent_properties_get_their_defaults():
    """The defaults are fresh copies, behind what was given; complete arguments stay the object they are."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "array", "default": []}, "b": {"type": "integer"}},
    }
    check = plain_check(schema)
    given = {"b": 1}
    made = check(given)
    made["a"].append("x")

    assert list(made.items()) == [("b", 1), ("a", ["x"])]
    assert check(given) == {"b": 1, "a": []}
    assert check(whole := {"a": [1]}) is whole


def test_closed_objects_take_nothing_unknown():
    """`additionalProperties` of false keeps other names out, and its absence lets them in."""
    closed = plain_check({"type": "object", "properties": {"a": {}}, "additionalProperties": False})

    assert closed({"b": 1}) is None
    assert plain_check(ANY)({"b": 1}) == {"b": 1}


def test_the_validator_is_not_loaded_for_plain_arguments():
    """`jsonschema` stays away as long as arguments are plain."""
    code = (
        "import sys; from yiemagent.arguments import ArgumentChecker as Checker; "
        "Checker({'type': 'object', 'properties': {'a': {'type': 'integer'}}}).check({'a': 1}); "
        "print('jsonschema' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"


TYPES = st.sampled_from(["array", "boolean", "integer", "null", "number", "object", "string"])
BOUNDS = st.integers(-1, 2)
KEYWORDS = {
    "default": st.none() | st.integers(-1, 2) | st.sampled_from(["a", "5", [], {}]),
    "enum": st.lists(st.sampled_from(["a", "5", ""]), min_size=1, unique=True),
    "exclusiveMinimum": BOUNDS,
    "maximum": BOUNDS,
    "maxLength": st.integers(0, 2),
    "minItems": st.integers(0, 2),
    "pattern": st.sampled_from(["a", "^$"]),
    "required": st.lists(st.sampled_from("ab"), unique=True),
    "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
}
NODES = st.recursive(
    st.booleans() | st.fixed_dictionaries({}, optional=KEYWORDS),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            **KEYWORDS,
            "additionalProperties": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "items": inner,
            "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
        },
    ),
    max_leaves=6,
)
SCHEMAS = st.fixed_dictionaries(
    {
        "type": st.just("object"),
        "properties": st.dictionaries(st.sampled_from("abc"), NODES, max_size=3),
    },
    optional={
        "$schema": st.sampled_from(
            ["http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-04/schema#"]
        ),
        "additionalProperties": st.booleans(),
        "required": st.lists(st.sampled_from("abc"), unique=True),
    },
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.floats(allow_infinity=False)
    | st.sampled_from(["a", "5", "true", "[]", ""])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=6,
)


@given(SCHEMAS, st.dictionaries(st.sampled_from("abcd"), VALUES))
def test_the_short_way_is_never_of_another_mind(schema, args):
    """Where the short check takes arguments, the long way takes them too and makes the same of them."""
    sound, _ = sound_schema(schema)
    check = plain_check(sound)
    made = check(args) if check is not None else None
    if made is None:
        return
    long_made = the_long_way(sound, args)

    assert repr(made) == repr(long_made)
    assert (made is args) == (long_made is args)
