"""Schemas of tools as APIs of models take them."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.offered_schema import offered_schema
from yiemagent.openai_format import openai_tools
from yiemagent.payload import freeze_json
from yiemagent.tool import AgentTool

EMPTY = {"type": "object", "properties": {}}
TEXT = {"type": "string"}


@pytest.mark.parametrize(
    "schema",
    [
        EMPTY,
        {"type": "object", "properties": {"a": TEXT}, "required": ["a"]},
        {
            "type": "object",
            "properties": {
                "a": {"type": ["string", "null"], "default": None, "enum": ["x", None]},
                "b": {"type": "array", "items": {"$ref": "#/$defs/B"}},
            },
            "$defs": {"B": {"anyOf": [TEXT, {"type": "array", "prefixItems": [TEXT]}]}},
            "additionalProperties": False,
        },
    ],
)
def test_a_schema_that_fits_is_given_back_itself(schema):
    """What every API takes is not touched, so that requests stay the same to the byte."""
    frozen = freeze_json(schema)

    assert offered_schema(frozen) is frozen


@pytest.mark.parametrize(
    "schema, fit",
    [
        ({}, EMPTY),
        ({"type": "object"}, EMPTY),
        ({"type": "object", "properties": None, "required": None}, EMPTY),
        ({"properties": {"a": TEXT}}, {"type": "object", "properties": {"a": TEXT}}),
        ({"type": "string"}, EMPTY),
        (
            {"type": "object", "properties": {"a": {"type": "array"}}},
            {"type": "object", "properties": {"a": {"type": "array", "items": {}}}},
        ),
        (
            {"type": "object", "properties": {"a": {"type": "string", "description": None}}},
            {"type": "object", "properties": {"a": TEXT}},
        ),
        (
            {"type": "object", "properties": {"a": {"$ref": "#/$defs/Gone"}}},
            {"type": "object", "properties": {"a": {}}},
        ),
        (
            {
                "anyOf": [
                    {"properties": {"a": TEXT}, "required": ["a"]},
                    {"properties": {"b": TEXT}},
                ]
            },
            {"type": "object", "properties": {"a": TEXT, "b": TEXT}},
        ),
        (
            {"allOf": [{"properties": {"a": TEXT}, "required": ["a"]}, {"not": {}}]},
            {"type": "object", "properties": {"a": TEXT}, "required": ["a"]},
        ),
        (
            {
                "$ref": "#/$defs/A",
                "$defs": {"A": {"type": "object", "properties": {"a": TEXT}, "required": ["a"]}},
            },
            {
                "type": "object",
                "properties": {"a": TEXT},
                "required": ["a"],
                "$defs": {"A": {"type": "object", "properties": {"a": TEXT}, "required": ["a"]}},
            },
        ),
        (
            {"oneOf": [{"$ref": "#/$defs/A"}], "$defs": {"A": {"properties": {"a": TEXT}}}},
            {
                "type": "object",
                "properties": {"a": TEXT},
                "$defs": {"A": {"properties": {"a": TEXT}}},
            },
        ),
        ({"$ref": "#"}, EMPTY),
        (
            {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}},
            {**EMPTY, "$defs": {"A": {}}},
        ),
    ],
)
def test_a_schema_is_made_fit(schema, fit):
    """An object with properties comes out, without a choice at its top, without null, with lists that say what."""
    before = copy.deepcopy(schema)

    assert offered_schema(schema) == fit
    assert schema == before


def test_a_tools_own_schema_stays_as_it_is():
    """What a request offers is made at the border; the tool keeps what its server said."""
    schema = {"anyOf": [{"properties": {"a": TEXT}}], "title": "T"}
    tool = AgentTool("t", description="d", input_schema=schema, execute=lambda *a: "")
    [offered] = openai_tools({"t": tool})

    assert offered["function"]["parameters"]["properties"] == {"a": TEXT}
    assert tool.input_schema == schema


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "object", "#/$defs/a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "items", "anyOf", "allOf", "$ref", "$defs", "required", "a"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["type", "properties", "anyOf", "$ref", "$defs"]), JSON))
def test_no_schema_is_too_odd_to_be_offered(schema):
    """Whatever a server sends, an object with properties comes out, and it fits from then on."""
    fit = offered_schema(schema)

    assert fit["type"] == "object"
    assert isinstance(fit["properties"], dict)
    assert not {"anyOf", "allOf", "oneOf", "$ref"} & fit.keys()
    assert offered_schema(fit) == fit
