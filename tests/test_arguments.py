"""Arguments: parsed, repaired where that is safe, coerced, completed and checked."""

from __future__ import annotations

import gc
import json
import logging
import socket
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent import arguments
from yiemagent.arguments import ArgumentChecker, checker_for, parse_arguments
from yiemagent.errors import InvalidArguments
from yiemagent.payload import FrozenDict, freeze_json
from yiemagent.tool import AgentTool


def refusal(call, *given):
    """The words of the refusal."""
    with pytest.raises(InvalidArguments) as caught:
        call(*given)
    return str(caught.value)


# --- parsing and repair ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw", [None, "", "  \n", "null", "{}", "\ufeff", '"{}"', FrozenDict(), "```json\n{}\n```"]
)
def test_nothing_is_no_arguments(raw):
    """Missing, null and blank arguments are an empty object."""
    assert parse_arguments(raw) == {}


def test_an_object_becomes_a_private_copy():
    """A frozen payload comes back as plain dicts and lists that nobody shares."""
    payload = freeze_json({"nested": {"deep": ["a"]}})
    args = parse_arguments(payload)
    args["nested"]["deep"].append("b")

    assert type(args["nested"]) is dict
    assert payload == {"nested": {"deep": ["a"]}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1, "a": 2}', {"a": 2}),
        ('{"a": "it\'s, }{"}', {"a": "it's, }{"}),
        ('"{\\"a\\": [\\"x\\"]}"', {"a": ["x"]}),
        ('{"a": 12345678901234567890}', {"a": 12345678901234567890}),
    ],
)
def test_valid_json_is_taken_as_it_is(text, value):
    """An object, be it inside a JSON string, is what it says."""
    assert parse_arguments(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, 2,], "b": "x",}', {"a": [1, 2], "b": "x"}),
        (
            "{'a': 'x', 'on': True, 'off': False, 'n': None}",
            {"a": "x", "on": True, "off": False, "n": None},
        ),
        ("{'a': 'say \"hi\"', \"b\": 'it\\'s'}", {"a": 'say "hi"', "b": "it's"}),
        ('{"a": "it\\\'s"}', {"a": "it's"}),
        ('```json\n{"a": "x"}\n```', {"a": "x"}),
        ('```\n{"a": "x",}\n```', {"a": "x"}),
        ('{"a": "one\ntwo\tthree\r\x07"}', {"a": "one\ntwo\tthree\r\x07"}),
        ('{"a": "True, None,}",}', {"a": "True, None,}"}),
        ("\"{'a': 1}\"", {"a": 1}),
        ('{"a": "\\u00e9\\\\", "b": {"c": [True,],},}', {"a": "é\\", "b": {"c": [True]}}),
    ],
)
def test_habits_of_models_are_repaired(text, value):
    """Fences, trailing commas, raw control characters, Python's quotes and words have one meaning."""
    assert parse_arguments(text) == value


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "x',
        '{"a": "x"',
        '{"a": ',
        '{"a": [1, 2',
        '```json\n{"a": 1',
        '```json\n{"a": 1}',
        '{"a": 1} {"b": 2}',
        "{a: 1}",
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": -Infinity}',
        '{"a": "C:\\dir"}',
        '{"a": [,]}',
        '{"a": 1,,}',
        "{,}",
        '{"a":,}',
        "{'a': (1, 2)}",
        "hello",
        '{"a": 1} trailing',
        "{" * 5000,
    ],
)
def test_what_may_mean_two_things_is_refused(text):
    """Text that is cut off, doubled or no JSON at all is told as such, and never completed."""
    assert "json" in refusal(parse_arguments, text).lower()


def test_a_refused_text_is_told_with_the_place():
    """The model reads where its JSON breaks off."""
    words = refusal(parse_arguments, '{"city": "Oslo", "days" 2}')

    assert "at character 24" in words
    assert "days" in words


@pytest.mark.parametrize("text", ["[1, 2]", '"hello"', "7", "true", '"[1]"'])
def test_what_is_no_object_is_refused(text):
    """A list, a text or a number is no set of arguments."""
    assert "object" in refusal(parse_arguments, text)


def test_a_text_too_deep_to_read_is_refused():
    """Nesting beyond what Python can read is a refusal and no crash."""
    assert "too deeply" in refusal(parse_arguments, '{"a": ' * 100_000 + "1" + "}" * 100_000)


def test_a_number_too_long_to_read_is_refused():
    """A number of more digits than Python converts is a refusal."""
    assert "json" in refusal(parse_arguments, f'{{"a": {"1" * 5000}}}').lower()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=4)


@given(OBJECTS, st.booleans())
def test_every_json_object_is_read_as_json_reads_it(value, ascii_only):
    """Text that is JSON is never repaired into something else."""
    text = json.dumps(value, ensure_ascii=ascii_only)

    assert parse_arguments(text) == json.loads(text)


@given(OBJECTS, st.data())
def test_a_text_that_is_cut_off_is_never_completed(value, data):
    """No beginning of an object's text is taken for arguments."""
    text = json.dumps(value)
    cut = text[: data.draw(st.integers(1, len(text) - 1))]

    assert refusal(parse_arguments, cut)


@given(OBJECTS)
def test_python_texts_are_read_as_python_reads_them(value):
    """The repr of a dict, in which models write arguments at times, gives the dict."""
    if all(char not in repr(value) for char in ("\\x", "\\U", "\\a")):
        assert parse_arguments(repr(value)) == value


# --- checking --------------------------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1},
        "unit": {"enum": ["c", "f"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "where": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]},
    },
    "required": ["city"],
    "additionalProperties": False,
}


def check(args, schema=SCHEMA):
    return ArgumentChecker(schema).check(args)


def test_fitting_arguments_come_back_as_they_are():
    """Nothing to change: the same object."""
    args = {"city": "Oslo", "days": 2, "where": {"lat": 59.9}}

    assert check(args) is args


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({}, "city: is missing; expected string"),
        ({"city": 5.5, "days": []}, "days: expected integer, not [] (array)"),
        ({"city": "x", "days": 0}, "days: 0 is less than the minimum of 1"),
        ({"city": "x", "unit": "k"}, 'unit: expected one of "c", "f", not "k" (string)'),
        ({"city": "x", "where": {}}, "where.lat: is missing; expected number"),
        ({"city": "x", "tags": ["a", {}]}, "tags[1]: expected string, not {} (object)"),
        (
            {"city": "x", "town": 1},
            "arguments: unknown 'town'; known names: city, days, unit, tags, where",
        ),
    ],
)
def test_a_refusal_helps_the_model(args, words):
    """It names the path, what was expected and given, and the names that exist."""
    text = refusal(check, args)

    assert f"- {words}" in text.splitlines()
    assert "Known arguments: city, days, unit, tags, where." in text


def test_a_union_is_explained_by_the_arm_that_was_meant():
    """Of an object that fits no arm the fault inside is told, of another value the kinds that would do."""
    schema = {
        "properties": {
            "at": {
                "anyOf": [
                    {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
                    {"type": "null"},
                ]
            },
            "kind": {"const": "k"},
        },
    }

    assert "at.x: is missing; expected integer" in refusal(check, {"at": {}}, schema)
    assert "at: expected object or null, not 7 (integer)" in refusal(check, {"at": 7}, schema)
    assert 'kind: expected "k", not "z"' in refusal(check, {"kind": "z"}, schema)


def test_expectations_without_a_type_are_said_in_words():
    """A missing value is described by what its schema says of it."""
    schema = {
        "required": ["a", "b", "c"],
        "properties": {
            "a": {"properties": {}},
            "b": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
    }
    words = refusal(check, {}, schema)

    assert "a: is missing; expected an object" in words
    assert "b: is missing; expected string or null" in words
    assert "c: is missing; expected a value" in words


def test_long_refusals_are_cut():
    """At most eight faults are told, and a large value is shown by its beginning."""
    schema = {"required": [f"name{i}" for i in range(20)]}
    words = refusal(check, {}, schema)
    long = refusal(check, {"city": {"x": "y" * 10_000}})

    assert "and 12 more" in words
    assert len(long) < 1000


def test_arguments_too_deep_to_check_are_refused():
    """A value that a recursive schema can't be followed through is a refusal and no crash."""
    value = {}
    for _ in range(3000):
        value = {"child": value}
    schema = {"$defs": {"n": {"properties": {"child": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"}

    assert "too deeply" in refusal(check, value, schema)


def test_the_schema_is_never_changed():
    """A checker works on its own copy."""
    schema = json.loads(json.dumps(SCHEMA))
    schema["properties"]["days"]["exclusiveMinimum"] = True
    before = json.dumps(schema)
    ArgumentChecker(schema).check({"city": "x"})

    assert json.dumps(schema) == before


def test_a_schema_that_was_made_sound_is_warned_about_once(caplog):
    """One warning at the making, with the tool's name; none at the checks."""
    with caplog.at_level(logging.WARNING):
        checker = ArgumentChecker({"properties": {"a": {"type": "str"}, "b": None}}, "odd")
        checker.check({"a": 1})
        checker.check({"a": 1})

    assert len(caplog.records) == 1
    assert "'odd'" in caplog.text
    assert "/properties/a/type" in caplog.text


def test_nothing_is_ever_fetched(monkeypatch):
    """A `$ref` to another place is left out, and no socket is opened for it."""
    asked = []
    monkeypatch.setattr(socket, "create_connection", lambda *args, **_: asked.append(args))
    schema = {"properties": {"a": {"$ref": "http://127.0.0.1:1/schema.json", "type": "integer"}}}

    assert check({"a": "5"}, schema) == {"a": 5}
    assert asked == []


def test_a_reference_that_only_fails_when_followed_lets_arguments_pass(caplog):
    """Where the schema has identifiers of its own, what can't be resolved is warned about and not the model's fault."""
    schema = {
        "$defs": {"x": {"$id": "http://example.test/x", "type": "integer"}},
        "properties": {
            "a": {"$ref": "http://example.test/other"},
            "b": {"$ref": "http://example.test/x"},
        },
    }
    with caplog.at_level(logging.WARNING):
        assert check({"a": 1}, schema) == {"a": 1}

    assert "http://example.test/other" in caplog.text
    assert "b: expected integer" in refusal(check, {"b": "x"}, schema)


@pytest.mark.parametrize(
    ("dialect", "keywords", "good", "bad"),
    [
        ("http://json-schema.org/draft-03/schema#", {"divisibleBy": 2}, 4, 3),
        ("http://json-schema.org/draft-04/schema#", {"minimum": 1, "exclusiveMinimum": True}, 2, 1),
        ("http://json-schema.org/draft-06/schema#", {"const": 3}, 3, 4),
        ("http://json-schema.org/draft-07/schema#", {"if": True, "then": {"minimum": 3}}, 3, 2),
        ("https://json-schema.org/draft/2019-09/schema", {"exclusiveMinimum": 3}, 4, 3),
        ("https://json-schema.org/draft/2020-12/schema", {"multipleOf": 2}, 4, 3),
        ("https://example.test/mine", {"maximum": 2}, 2, 3),
        (7, {"maximum": 2}, 2, 3),
    ],
)
def test_the_dialect_is_that_of_the_schema(dialect, keywords, good, bad):
    """Each draft's own keywords hold; an unknown dialect is the latest."""
    schema = {"$schema": dialect, "properties": {"n": keywords}}

    assert check({"n": good}, schema) == {"n": good}
    assert "n: " in refusal(check, {"n": bad}, schema)


def test_a_tools_checker_is_made_once_and_goes_with_it():
    """The same tool has one checker; it is not kept when the tool is gone."""
    tool = AgentTool("t", description="d", execute=lambda *_: None)
    checker = checker_for(tool)
    gone, key = weakref.ref(checker), id(tool)

    assert checker_for(tool) is checker
    assert key in arguments._CHECKERS
    del tool, checker
    gc.collect()
    assert gone() is None
    assert key not in arguments._CHECKERS
