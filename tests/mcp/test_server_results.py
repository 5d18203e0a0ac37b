"""Tools and results in the words of MCP."""

from __future__ import annotations

import pytest

from yiemagent.errors import InvalidArguments
from yiemagent.mcp.server_protocol import RpcFailure
from yiemagent.mcp.server_results import StructuredOutput, call_result, page, tool_definition
from yiemagent.messages import ImageContent, TextContent
from yiemagent.tool import AgentTool, AgentToolResult


def tool(**options):
    """A tool."""
    return AgentTool("t", description="Does.", execute=lambda *_: None, **options)


WEATHER = {"type": "object", "properties": {"c": {"type": "number"}}, "required": ["c"]}


def test_a_tool_is_told_with_all_it_has():
    """Label, schemas and hints go out; the schema is an object's in any case."""
    told = tool_definition(
        tool(
            label="T",
            input_schema={"properties": {"a": {"type": "string", "x-mcp-header": "A"}}},
            annotations={"readOnlyHint": True},
            output_schema=WEATHER,
        ),
        "2025-06-18",
    )

    assert told == {
        "name": "t",
        "title": "T",
        "description": "Does.",
        "inputSchema": {
            "properties": {"a": {"type": "string", "x-mcp-header": "A"}},
            "type": "object",
        },
        "annotations": {"readOnlyHint": True},
        "outputSchema": WEATHER,
    }


def test_an_output_that_is_no_object_is_told_in_the_stateless_era_only():
    """Clients of earlier versions would refuse the whole list for it."""
    lists = tool(output_schema={"type": "array", "items": {"type": "integer"}})

    assert "outputSchema" not in tool_definition(lists, "2025-11-25")
    assert tool_definition(lists, "2026-07-28")["outputSchema"]["type"] == "array"


def result(given, *added, output=None, is_error=False, version="2025-11-25"):
    """The result of a call."""
    return call_result(
        AgentToolResult(*given if isinstance(given, tuple) else (given,)),
        added,
        output,
        is_error=is_error,
        version=version,
    )


def test_blocks_become_content():
    """Text and images of the tool come first, what was added behind them."""
    added = {"type": "audio", "data": "", "mimeType": "audio/wav"}

    assert result([TextContent("a"), ImageContent("eA==", "image/png")], added) == {
        "content": [
            {"type": "text", "text": "a"},
            {"type": "image", "data": "eA==", "mimeType": "image/png"},
            added,
        ]
    }


def test_an_error_says_so_and_has_nothing_structured():
    """The words of a failure are its content."""
    output = StructuredOutput(tool(output_schema=WEATHER))

    assert result("no", is_error=True, output=output) == {
        "content": [{"type": "text", "text": "no"}],
        "isError": True,
    }


def test_details_are_structured_where_the_tool_has_a_schema():
    """They fit the schema: what plainly means it is made to; without a schema they stay here."""
    output = StructuredOutput(tool(output_schema=WEATHER))

    assert result(("x", {"c": "5"}), output=output)["structuredContent"] == {"c": 5}
    assert result(("x", {"structuredContent": {"c": 1}}), output=output)["structuredContent"] == {
        "c": 1
    }
    assert "structuredContent" not in result(("x", {"c": 1}))


@pytest.mark.parametrize("details", [{}, {"c": "warm"}, [1], {"structuredContent": 5}])
def test_details_that_do_not_fit_are_an_error(details):
    """A tool that breaks its own schema fails, in words that say how."""
    output = StructuredOutput(tool(output_schema=WEATHER))
    answer = result(("x", details), output=output)

    assert answer["isError"]
    assert "output schema" in answer["content"][0]["text"]


def test_a_structured_result_may_be_any_json():
    """A list is structured content in the stateless era, and text alone before it."""
    lists = tool(
        output_schema={
            "type": "array",
            "items": {"$ref": "#/$defs/n"},
            "$defs": {"n": {"type": "integer"}},
        }
    )
    output = StructuredOutput(lists)

    assert result(("x", [1, 2]), output=output, version="2026-07-28")["structuredContent"] == [1, 2]
    assert "structuredContent" not in result(("x", [1, 2]), output=output)
    with pytest.raises(InvalidArguments):
        output.fit(["a"])


@pytest.mark.parametrize(
    ("block", "version", "text"),
    [
        ({"type": "audio", "mimeType": "audio/wav"}, "2024-11-05", "[audio, audio/wav]"),
        (
            {"type": "resource_link", "uri": "a:b", "name": "n", "description": "D"},
            "2025-03-26",
            "[resource: n, a:b, D]",
        ),
    ],
)
def test_what_a_version_lacks_is_told_in_words(block, version, text):
    """Clients of versions before a kind of content get text in its place."""
    assert result([], block, version=version)["content"] == [{"type": "text", "text": text}]
    assert result([], block)["content"] == [block]


def test_pages_hold_every_item_once():
    """A walk by cursors gives all items in order, whatever the size of a page."""
    items = [(f"k{n}", n) for n in range(7)]
    for size in (1, 3, 7, 100):
        cursor, found = None, []
        while True:
            shown, cursor = page(items, cursor, size)
            found += shown
            if cursor is None:
                break

        assert found == list(range(7))
    assert page([], None, 5) == ([], None)


def test_a_cursor_stays_where_it_is_when_the_list_changes():
    """What comes or goes before it moves nothing; where its own item is gone, its number counts."""
    items = [(f"k{n}", n) for n in range(6)]
    _, cursor = page(items, None, 2)

    assert page(items[1:], cursor, 2)[0] == [2, 3]
    assert page([("new", -1), *items], cursor, 2)[0] == [2, 3]
    assert page([items[0], *items[2:]], cursor, 2)[0] == [3, 4]


@pytest.mark.parametrize("cursor", ["garbage", "", 5, None, "AAAA", "w7w="])
def test_a_cursor_of_somebody_else_is_refused(cursor):
    """What this server did not give is an error; None is the first page."""
    if cursor is None:
        assert page([("a", 1)], cursor, 1) == ([1], None)
        return
    with pytest.raises(RpcFailure, match="cursor"):
        page([("a", 1)], cursor, 1)
