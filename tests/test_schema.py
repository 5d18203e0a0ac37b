"""Schemas made sound: what a dialect can't hold is translated or left out, and said."""

from __future__ import annotations

import contextlib
import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.arguments import ArgumentChecker
from yiemagent.errors import InvalidArguments
from yiemagent.schema import (
    draft_of,
    plain_copy,
    resolve_reference,
    sound_schema,
    without_reference,
)


def made_sound(schema):
    """The sound schema alone."""
    return sound_schema(schema)[0]


def test_a_sound_schema_is_copied_and_nothing_is_said():
    """What the dialect holds stays, unknown keywords included."""
    schema = {
        "type": "object",
        "title": "t",
        "x-order": [1, {"a": None}],
        "properties": {
            "a": {"type": ["string", "null"], "pattern": "^a+$", "default": None},
            "b": True,
        },
        "patternProperties": {"^x": {"items": False}},
        "required": ["a"],
        "anyOf": [{"required": ["a"]}, {"not": {"required": ["b"]}}],
        "$defs": {"d": {"enum": [], "const": None, "$anchor": "d"}},
        "dependentRequired": {"a": ["b"]},
        "uniqueItems": False,
        "minLength": 1.0,
    }
    sound, notes = sound_schema(schema)

    assert sound == schema
    assert sound["properties"] is not schema["properties"]
    assert notes == []


@pytest.mark.parametrize(
    ("given_", "sound"),
    [
        ({"minimum": 0, "exclusiveMinimum": True}, {"exclusiveMinimum": 0}),
        ({"maximum": 9, "exclusiveMaximum": True}, {"exclusiveMaximum": 9}),
        ({"minimum": 0, "exclusiveMinimum": False}, {"minimum": 0}),
        ({"exclusiveMinimum": True}, {}),
        ({"items": [{"type": "null"}]}, {"prefixItems": [{"type": "null"}]}),
        (
            {"items": [True], "additionalItems": False},
            {"prefixItems": [True], "items": False},
        ),
        ({"pattern": "^\\p{L}+$"}, {}),
        ({"pattern": 5}, {}),
        ({"patternProperties": {"(": {}, "a": {}}}, {"patternProperties": {"a": {}}}),
        ({"type": "STRING"}, {"type": "string"}),
        ({"type": ["Integer", "null"]}, {"type": ["integer", "null"]}),
        ({"type": "float"}, {}),
        ({"type": ["string", "any"]}, {}),
        ({"type": None}, {}),
        ({"type": []}, {}),
        ({"properties": None, "required": None}, {}),
        ({"properties": {"a": None, "b": "string"}}, {"properties": {"a": True, "b": True}}),
        ({"properties": {"a": {"required": True}}}, {"properties": {"a": {}}}),
        ({"required": "a"}, {}),
        ({"anyOf": []}, {}),
        ({"oneOf": {"type": "null"}}, {}),
        ({"enum": "ab"}, {}),
        ({"minimum": "0"}, {}),
        ({"minLength": -1}, {}),
        ({"maxItems": True}, {}),
        ({"multipleOf": 0}, {}),
        ({"items": "string"}, {}),
        ({"$ref": 5, "$id": 6}, {}),
        ({"$ref": "#/$defs/lost"}, {}),
        ({"$ref": "http://example.test/x"}, {}),
        ({5: 6, "type": "null"}, {"type": "null"}),
        ({"dependentRequired": {"a": "b"}}, {}),
        ({"allOf": [None, {"type": "x"}]}, {"allOf": [True, {}]}),
        (
            {"$defs": {"a": {"minimum": 1, "exclusiveMinimum": True}}},
            {"$defs": {"a": {"exclusiveMinimum": 1}}},
        ),
    ],
)
def test_what_the_dialect_cannot_hold_is_translated_or_left_out(given_, sound):
    """The copy holds no such keyword, and what was done is said."""
    made, notes = sound_schema(given_)

    assert made == sound
    assert notes or given_ != sound
    jsonschema.Draft202012Validator.check_schema(made)


def test_changes_are_said_with_their_place():
    """A note names where in the schema it was."""
    _, notes = sound_schema({"properties": {"a": {"anyOf": [{"pattern": "("}]}}})

    assert notes == ["/properties/a/anyOf/0/pattern: '(' is left out"]


def test_long_values_are_shortened_in_notes():
    """A note stays short whatever was left out."""
    _, notes = sound_schema({"pattern": "(" * 10_000})

    assert len(notes[0]) < 100


@pytest.mark.parametrize(
    ("name", "draft"),
    [
        ("http://json-schema.org/draft-03/schema#", 3),
        ("http://json-schema.org/draft-04/schema#", 4),
        ("https://json-schema.org/draft-06/schema", 6),
        ("http://json-schema.org/draft-07/schema#", 7),
        ("https://json-schema.org/draft/2019-09/schema", 2019),
        ("https://json-schema.org/draft/2020-12/schema", 2020),
        ("http://json-schema.org/draft-99/schema#", 2020),
        ("mine", 2020),
        (None, 2020),
        ({}, 2020),
    ],
)
def test_the_dialect_is_read_from_its_name(name, draft):
    """Every draft that jsonschema knows is told, anything else is the latest."""
    assert draft_of({"$schema": name}) == draft


def test_a_dialect_that_nobody_knows_is_left_out():
    """So is the latest one's name, which changes nothing; an older one's stays."""
    for name in ("mine", "https://json-schema.org/draft/2020-12/schema", 5):
        assert made_sound({"$schema": name, "type": "null"}) == {"type": "null"}


def test_what_an_older_dialect_holds_stays():
    """Boolean bounds of draft 4, lists of items up to 2019, boolean `required` of draft 3."""
    four = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "minimum": 1,
        "exclusiveMinimum": True,
    }
    seven = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "items": [True],
        "additionalItems": False,
    }
    three = {
        "$schema": "http://json-schema.org/draft-03/schema#",
        "properties": {"a": {"required": True}},
    }

    for schema in (three, four, seven):
        assert sound_schema(schema) == (schema, [])


def test_boolean_bounds_are_translated_in_newer_drafts():
    """From draft 6 on a bound is a number."""
    schema = {
        "$schema": "http://json-schema.org/draft-06/schema#",
        "maximum": 1,
        "exclusiveMaximum": True,
    }

    assert made_sound(schema)["exclusiveMaximum"] == 1


# --- references ------------------------------------------------------------------------------------------------------

ROOT = {
    "$id": "http://example.test/root",
    "$defs": {
        "a": {"type": "null"},
        "x/y~z%": {"$anchor": "named", "type": "string"},
        "list": {"anyOf": [{"type": "integer"}, True]},
    },
    "properties": {"p": {"items": {"$dynamicAnchor": "deep"}}},
}


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("#", ROOT),
        ("#/$defs/a", {"type": "null"}),
        ("http://example.test/root#/$defs/a", {"type": "null"}),
        ("#/$defs/x~1y~0z%25", ROOT["$defs"]["x/y~z%"]),
        ("#named", ROOT["$defs"]["x/y~z%"]),
        ("#deep", {"$dynamicAnchor": "deep"}),
        ("#/$defs/list/anyOf/0", {"type": "integer"}),
        ("#/$defs/list/anyOf/1", True),
        ("#/$defs/list/anyOf/2", None),
        ("#/$defs/list/anyOf/x", None),
        ("#/$defs/a/type", None),
        ("#/lost", None),
        ("#lost", None),
        ("http://example.test/other", None),
    ],
)
def test_references_inside_a_schema_are_resolved(reference, found):
    """Pointers, anchors and the schema's own name lead to subschemas, anything else nowhere."""
    assert resolve_reference(ROOT, reference) == found


def test_references_below_an_identifier_are_the_validators_business():
    """Where a subschema has an `$id`, references are kept as they are."""
    schema = {"$defs": {"a": {"$id": "http://example.test/a"}}, "$ref": "http://example.test/a"}

    assert sound_schema(schema) == (schema, [])


@pytest.mark.parametrize(
    "parts",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"anyOf": [True, {"not": {"$ref": "#/anyOf/1"}}]},
        {"if": {"$ref": "#/then"}, "then": {"else": {"$ref": "#/if"}, "if": True}, "else": True},
        {"dependentSchemas": {"a": {"$ref": "#"}}},
        {"$recursiveRef": "#"},
        {
            "properties": {"a": {"$ref": "#/$defs/b"}},
            "$defs": {"b": {"oneOf": [{"$ref": "#/$defs/b"}]}},
        },
        {"$ref": "#/$defs/a/allOf/0", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}},
        {"$defs": {f"n{n}": {"$ref": f"#/$defs/n{(n + 1) % 500}"} for n in range(500)}},
        {"$defs": {f"n{n}": {"$ref": f"#/$defs/n{n}"} for n in range(500)}},
    ],
)
def test_references_that_never_end_are_left_out(parts):
    """A circle that comes to no other value is opened, is told, and any value can be checked."""
    sound, notes = sound_schema(parts)

    assert all("leads back to itself and is left out" in note for note in notes)
    assert notes
    assert sound_schema(sound) == (sound, [])
    validator = jsonschema.Draft202012Validator(sound)
    assert validator.is_valid({"a": {"a": 1}}) == (not list(validator.iter_errors({"a": {"a": 1}})))


def test_a_circle_through_other_values_stays():
    """A schema of trees refers to itself, and each check ends where the value does."""
    tree = {
        "properties": {"left": {"$ref": "#"}, "right": {"allOf": [{"$ref": "#"}]}},
        "additionalProperties": {"items": {"$ref": "#/properties/left"}},
    }

    assert sound_schema(tree) == (tree, [])


def test_circles_below_an_identifier_are_the_validators_business():
    """Where references count from an identifier inside, none is taken for a circle by mistake."""
    schema = {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"$id": "https://example.org/a", "allOf": [{"$ref": "#/$defs/a"}]}},
    }

    assert sound_schema(schema) == (schema, [])


def test_a_reference_can_be_taken_out():
    """The named one goes, else all of them; a schema where none is seen allows everything."""
    schema = {
        "allOf": [{"$ref": "a"}, {"$ref": "b", "type": "null"}],
        "items": {"$dynamicRef": "c"},
    }

    assert without_reference(schema, "a")[0] == {
        "allOf": [{}, {"$ref": "b", "type": "null"}],
        "items": {"$dynamicRef": "c"},
    }
    assert without_reference(schema, "?")[0] == {"allOf": [{}, {"type": "null"}], "items": {}}
    assert len(without_reference(schema, "?")[1]) == 3
    assert without_reference({"dependencies": {"a": {"$ref": "x"}}}, "x")[0] == {}
    assert schema["allOf"][0] == {"$ref": "a"}


# --- any schema ------------------------------------------------------------------------------------------------------

KEYWORDS = st.sampled_from(
    [
        "type",
        "properties",
        "required",
        "items",
        "prefixItems",
        "anyOf",
        "allOf",
        "not",
        "enum",
        "const",
        "minimum",
        "exclusiveMinimum",
        "maxLength",
        "pattern",
        "patternProperties",
        "additionalProperties",
        "$ref",
        "$id",
        "$defs",
        "$anchor",
        "uniqueItems",
        "multipleOf",
        "minItems",
        "contains",
        "if",
        "then",
        "dependentRequired",
        "dependentSchemas",
        "propertyNames",
        "unevaluatedProperties",
        "default",
        "format",
    ]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 5)
    | st.sampled_from(
        ["string", "integer", "object", "a", "(", "#", "#/$defs/a", "http://x.test/"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(KEYWORDS | st.sampled_from(["a", "b"]), inner, max_size=4)
    ),
    max_leaves=15,
)
SCHEMAS = st.dictionaries(KEYWORDS, VALUES, max_size=5)


@given(SCHEMAS, st.dictionaries(st.sampled_from("ab"), VALUES))
def test_checking_by_any_schema_never_breaks(schema, args):
    """Whatever a tool brings as its schema, arguments fit it or are refused in words."""
    with contextlib.suppress(InvalidArguments):
        ArgumentChecker(schema).check(args)


@given(SCHEMAS)
def test_a_sound_schema_stays(schema):
    """The copy is sound already, what was changed is said, and the given one stays as it was."""
    before = json.dumps(schema)
    sound, notes = sound_schema(schema)

    assert sound_schema(sound) == (sound, [])
    assert bool(notes) == (sound != schema)
    assert json.dumps(schema) == before


@given(VALUES)
def test_a_plain_copy_is_equal_and_shares_nothing(value):
    """Dicts and lists are new, down to the leaves."""
    copy = plain_copy(value)

    assert copy == value
    assert copy is not value or not isinstance(value, (dict, list))
