"""What may be the name, the words and the schema of a tool that is written."""

from __future__ import annotations

import re

import attrs
import pytest

from yiemagent.tool_drafts import ToolDraft, draft_problems, name_problem

OBJECT = {"type": "object", "properties": {}}
DRAFT = ToolDraft(
    name="good_tool", label="Good", description="Does good.", input_schema=OBJECT, execute_code="1"
)


def wrong(**fields):
    return draft_problems(attrs.evolve(DRAFT, **fields))


@pytest.mark.parametrize("name", ["good_tool", "a", "Get2", "x" * 64, "match", "json_reader"])
def test_names_that_may_be(name):
    """Letters, digits and underscores, beginning with a letter, up to 64 of them."""
    assert name_problem(name) is None
    assert wrong(name=name) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        *(
            (name, "must be 1 to 64 letters")
            for name in ["", " x", "x ", "two words", "a-b", "1tool"]
        ),
        *(
            (name, "must be 1 to 64 letters")
            for name in ["../evil", "..\\evil", "/opt/evil", "a/b"]
        ),
        *((name, "must be 1 to 64 letters") for name in ["evil.py", "tool\n", "tool\0", "con:1"]),
        *((name, "must be 1 to 64 letters") for name in ["naïve", "x" * 65, "x" * 300, "_x"]),
        *(
            (name, "must be 1 to 64 letters")
            for name in ["__init__", "__class__", None, 5, "\uff58"]
        ),
        *((name, "word of Python's own") for name in ["class", "None", "lambda"]),
        *((name, "can't be replaced") for name in ["list_tools", "write_tool"]),
        *((name, "is a module's") for name in ["json", "os", "JSON", "antigravity", "yiemagent"]),
        ("my_registry_tool", "such files are not loaded"),
        *((name, "device's on Windows") for name in ["con", "NUL", "com1", "lpt9"]),
    ],
)
def test_names_that_may_not_be(name, said):
    """Each kind of bad name has its reason; a long name is shown shortened."""
    problem = name_problem(name)

    assert said in problem
    assert len(problem) < 250
    assert wrong(name=name) == [problem]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"label": " \n"}, "label must be a text that says something"),
        ({"description": None}, "description must be a text that says something"),
        ({"label": "x" * 101}, "label has 101 characters; it may have 100"),
        ({"description": "x" * 4001}, "description has 4,001 characters; it may have 4,000"),
        ({"description": "a\ud800"}, "description holds half of a surrogate pair"),
    ],
)
def test_words_that_may_not_be(fields, said):
    """Empty, very long and broken words are refused."""
    (problem,) = wrong(**fields)

    assert problem.startswith(said)


def deep(levels):
    schema = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (None, "must be a JSON Schema whose type is 'object'"),
        ([], "must be a JSON Schema"),
        ({}, "whose type is 'object'"),
        ({"type": "string"}, "whose type is 'object'"),
        (
            {**OBJECT, "properties": {"a": {"type": "strin"}}},
            r"#?/properties/a/type: 'strin' is left out",
        ),
        ({**OBJECT, "properties": {"a": {"$ref": "https://example.org/s.json"}}}, "leads nowhere"),
        ({**OBJECT, "properties": {"a": {"$ref": "#/$defs/b"}}}, "leads nowhere inside the schema"),
        ({**OBJECT, "allOf": [{"$ref": "#"}]}, r"\$ref '#' leads back to itself"),
        ({**OBJECT, "properties": {"a": {"pattern": "("}}}, "is left out"),
        ({**OBJECT, "properties": None}, "is left out"),
        ({**OBJECT, "required": ["a"]}, "required names 'a', which is not among the properties"),
        ({**OBJECT, "x": float("nan")}, "is no JSON"),
        ({**OBJECT, "x": {1, 2}}, "is no JSON"),
        ({**OBJECT, "x": 10**5000}, "is no JSON"),
        (
            {**OBJECT, "description": "x" * 10_000_000},
            "has 10,000,0.. characters; it may have 65,536",
        ),
        (deep(30), "nested deeper than 40 levels"),
        (deep(100_000), "nested deeper than 40 levels"),
    ],
)
def test_schemas_that_may_not_be(schema, said):
    """What is no schema of an object, refers elsewhere, is no JSON, too large or too deep is refused."""
    problem = "\n".join(wrong(input_schema=schema))

    assert problem.startswith("input_schema")
    assert re.search(said, problem)


def test_a_schema_may_refer_to_itself():
    """References inside of the schema, in a circle too, are sound."""
    tree = {"type": "object", "properties": {"next": {"$ref": "#"}, "b": {"$ref": "#/$defs/b"}}}

    assert wrong(input_schema={**tree, "$defs": {"b": {"type": "integer"}}}) == []
