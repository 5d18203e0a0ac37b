"""JSON Schemas as the Anthropic Messages API takes them."""

import json

import jsonschema
import pytest

from yiemagent.providers.anthropic_schema import answer_schema, input_schema

EMPTY = {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    "schema, given",
    [
        ({}, EMPTY),
        ({"type": "object"}, EMPTY),
        ({"type": "object", "properties": None, "required": None}, EMPTY),
        ({"type": "string"}, EMPTY),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "description": "d"},
            {**EMPTY, "description": "d"},
        ),
        ({**EMPTY, "additionalProperties": False}, {**EMPTY, "additionalProperties": False}),
    ],
)
def test_input_schema(schema, given):
    """A tool's schema is an object with properties, and stays what it was."""
    before = json.dumps(schema)

    assert input_schema(schema) == given
    assert json.dumps(schema) == before


def test_older_dialects():
    """A schema of an older dialect is sent as the latest has it."""
    schema = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
            "pair": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]},
        },
    }
    given = input_schema(schema)
    jsonschema.Draft202012Validator.check_schema(given)

    assert given["properties"]["n"] == {"type": "integer", "exclusiveMinimum": 0}
    assert given["properties"]["pair"]["prefixItems"] == [{"type": "string"}, {"type": "integer"}]


def test_choices_at_the_top():
    """Choices at the top are refused by the API: the model is shown what all their arms name."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "anyOf": [
            {"properties": {"b": {"type": "integer"}}, "required": ["b"]},
            {"properties": {"a": {"type": "integer"}, "c": {"$ref": "#/$defs/C"}}},
            True,
        ],
        "allOf": [{"properties": {"d": {}}, "required": ["d", "a"]}],
        "$defs": {"C": {"type": "boolean"}},
    }
    given = input_schema(schema)

    assert given == {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "b": {"type": "integer"},
            "c": {"$ref": "#/$defs/C"},
            "d": {},
        },
        "required": ["a", "d"],
        "$defs": {"C": {"type": "boolean"}},
    }


def test_reference_into_a_choice():
    """A reference into an arm that is gone is left out."""
    schema = {
        "properties": {"a": {"$ref": "#/oneOf/0/properties/b"}},
        "oneOf": [{"properties": {"b": {"type": "integer"}}}],
    }

    assert input_schema(schema)["properties"] == {"a": {}, "b": {"type": "integer"}}


def test_answer_schema():
    """Objects take no other names; what the API does not know is told in words; defaults and the like are left out."""
    schema = {
        "title": "Person",
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "description": "Full.", "default": "x"},
            "age": {"type": ["integer", "null"], "minimum": 0},
            "when": {"type": "string", "format": "date"},
            "how": {"type": "string", "format": "color"},
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
            "more": {"type": "array", "minItems": 2},
            "kind": {"enum": ["a", "b"]},
            "one": {"const": 1},
            "either": {"oneOf": [{"type": "string"}, {"$ref": "#/$defs/Pet"}]},
            "both": {"allOf": [{"$ref": "#/$defs/Pet"}]},
        },
        "required": ["name"],
        "additionalProperties": True,
        "$defs": {"Pet": {"type": "object", "properties": {"legs": {"type": "integer"}}}},
    }
    given = answer_schema(schema)
    jsonschema.Draft202012Validator.check_schema(given)

    assert given["additionalProperties"] is False
    assert given["required"] == ["name"]
    assert given["properties"] == {
        "name": {"type": "string", "description": 'Full. {"minLength": 1}'},
        "age": {"type": ["integer", "null"], "description": '{"minimum": 0}'},
        "when": {"type": "string", "format": "date"},
        "how": {"type": "string", "description": '{"format": "color"}'},
        "tags": {
            "type": "array",
            "items": {"type": "string"},
            "minItems": 1,
            "description": '{"maxItems": 3}',
        },
        "more": {"type": "array", "description": '{"minItems": 2}'},
        "kind": {"enum": ["a", "b"]},
        "one": {"const": 1},
        "either": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/Pet"}]},
        "both": {"allOf": [{"$ref": "#/$defs/Pet"}]},
    }
    assert given["$defs"]["Pet"]["additionalProperties"] is False


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object", "patternProperties": {"a": {}}, "properties": {"a": {}}},
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {"type": "object", "properties": {"a": True}},
        {"type": "object", "properties": {"a": {"type": "array", "items": False}}},
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/Tree"}},
            "$defs": {"Tree": {"properties": {"kids": {"items": {"$ref": "#/$defs/Tree"}}}}},
        },
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/properties/b"}, "b": {"type": "string"}},
        },
    ],
)
def test_schemas_that_can_not_be_held_to(schema):
    """An object with any names, a schema that holds itself, and one that leads elsewhere can't be held to."""
    assert answer_schema(schema) is None


def test_object_without_any_names():
    """An object that may have no names at all can be held to."""
    assert answer_schema({"type": "object", "additionalProperties": False}) == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }
