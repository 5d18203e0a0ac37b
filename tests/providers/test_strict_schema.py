"""Which schemas can be sent as strict."""

import pytest

from yiemagent.payload import freeze_json
from yiemagent.providers.strict_schema import fits_strict_mode


def closed(**properties):
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


TEXT = {"type": "string"}


@pytest.mark.parametrize(
    "schema",
    [
        closed(),
        closed(a=TEXT, b={"type": ["integer", "null"], "minimum": 0}),
        closed(a={"type": "array", "items": closed(b=TEXT), "maxItems": 3}),
        closed(a={"enum": ["x", "y"]}, b={"const": 1}),
        closed(a={"anyOf": [TEXT, closed(b=TEXT)], "description": "either"}),
        closed(a={"type": "string", "format": "date", "pattern": "^2"}),
        {**closed(a={"$ref": "#/$defs/b"}), "$defs": {"b": closed(c=TEXT)}, "title": "T"},
        {**closed(a={"$ref": "#"}), "$schema": "https://json-schema.org/draft/2020-12/schema"},
        {**closed(), "required": []},
    ],
)
def test_schemas_that_fit(schema):
    """Closed objects whose properties are all required fit, with what strict mode knows in them; frozen as well."""
    assert fits_strict_mode(schema)
    assert fits_strict_mode(freeze_json(schema))


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {},
        TEXT,
        {"anyOf": [closed()]},
        {**closed(), "anyOf": [closed()]},
        {"type": "object"},
        {"type": "object", "properties": []},
        {**closed(a=TEXT), "required": []},
        {**closed(a=TEXT), "required": ["b"]},
        {**closed(a=TEXT), "required": "a"},
        {**closed(a=TEXT), "required": ["a", 1]},
        {**closed(a=TEXT), "additionalProperties": True},
        {key: value for key, value in closed(a=TEXT).items() if key != "additionalProperties"},
        closed(a={}),
        closed(a=True),
        closed(a={"type": "text"}),
        closed(a={"type": 1}),
        closed(a={"type": "string", "default": "x"}),
        closed(a={"type": "string", "minLength": 1}),
        closed(a={"type": "string", "format": "uri"}),
        closed(a={"type": "string", "format": ["date"]}),
        closed(a={"type": "string", "x-own": 1}),
        closed(a={"type": "array"}),
        closed(a={"type": "array", "items": {"type": "object"}}),
        closed(a={"type": "string", "items": TEXT}),
        closed(a={"type": "string", "properties": {}}),
        closed(a={"anyOf": [TEXT, {"type": "object"}]}),
        closed(a={"anyOf": "x"}),
        closed(a={"allOf": [TEXT]}),
        closed(a={"$ref": "#/$defs/b", "description": "d"}),
        closed(a={"$ref": "https://example.com/s"}),
        {**closed(), "$defs": {"b": {"type": "object"}}},
        {**closed(), "$defs": []},
        closed(**{f"p{number}": TEXT for number in range(5001)}),
    ],
)
def test_schemas_that_do_not_fit(schema):
    """What leaves an object open, a property optional, or uses what strict mode does not know, does not fit."""
    assert not fits_strict_mode(schema)


def test_depth():
    """Objects may be nested ten deep below the first."""
    schema = closed()
    for _ in range(10):
        schema = closed(a=schema)

    assert fits_strict_mode(schema)
    assert not fits_strict_mode(closed(a=schema))
    for _ in range(20):
        schema = {"anyOf": [schema]}
    assert not fits_strict_mode(closed(a=schema))
