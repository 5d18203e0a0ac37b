"""Resources, families of them and prompts, in the words of MCP."""

from __future__ import annotations

import pytest

from yiemagent.errors import ConfigurationError
from yiemagent.mcp.offers import (
    Prompt,
    PromptArgument,
    Resource,
    ResourceTemplate,
    prompt_result,
    read_result,
)
from yiemagent.messages import ImageContent, TextContent


def test_a_resource_tells_what_it_has():
    """Only what is given is told, under MCP's names."""
    bare = Resource("a:b", "b", read=str)
    full = Resource(
        "a:c",
        "c",
        read=str,
        title="C",
        description="See.",
        mime_type="text/plain",
        size=3,
        annotations={"priority": 1},
    )

    assert bare.definition() == {"uri": "a:b", "name": "b"}
    assert full.definition() == {
        "uri": "a:c",
        "name": "c",
        "title": "C",
        "description": "See.",
        "mimeType": "text/plain",
        "size": 3,
        "annotations": {"priority": 1},
    }


@pytest.mark.parametrize(
    ("template", "uri", "places"),
    [
        ("note://{name}", "note://a%20b", {"name": "a b"}),
        ("note://{name}", "note://a/b", None),
        ("note://{name}", "note://", None),
        ("file:///{+path}", "file:///a/b.txt", {"path": "a/b.txt"}),
        ("x:{a}-{b}.txt", "x:1-2.txt", {"a": "1", "b": "2"}),
        ("x:{a}-{b}.txt", "x:1-2-txt", None),
    ],
)
def test_a_family_knows_its_own(template, uri, places):
    """A place without a plus holds no slash, and what stands between is literal."""
    assert ResourceTemplate(template, "n", read=str).match(uri) == places


@pytest.mark.parametrize("template", ["a:b", "a:{", "a:{b", "a:{?q}", "a:{b*}", "a:{b}{b}", ""])
def test_a_template_must_have_places_that_are_known(template):
    """One without places, or with others, is refused when it is made."""
    with pytest.raises(ConfigurationError, match="template"):
        ResourceTemplate(template, "n", read=str)


def test_a_family_tells_its_template():
    """Its definition has the template in the place of the URI."""
    family = ResourceTemplate("a:{b}", "n", read=str, title="N")

    assert family.definition() == {"uriTemplate": "a:{b}", "name": "n", "title": "N"}


def test_a_prompt_tells_its_arguments():
    """A bare name is an argument that may be left out."""
    prompt = Prompt(
        "p", render=str, arguments=["a", PromptArgument("b", "B", required=True)], title="P"
    )

    assert Prompt("q", render=str).definition() == {"name": "q"}
    assert prompt.definition() == {
        "name": "p",
        "arguments": [
            {"name": "a", "required": False},
            {"name": "b", "required": True, "description": "B"},
        ],
        "title": "P",
    }


@pytest.mark.parametrize(
    ("given", "mime_type", "contents"),
    [
        ("hi", None, [{"uri": "a:b", "mimeType": "text/plain", "text": "hi"}]),
        ("{}", "application/json", [{"uri": "a:b", "mimeType": "application/json", "text": "{}"}]),
        (b"\0", None, [{"uri": "a:b", "mimeType": "application/octet-stream", "blob": "AA=="}]),
        ({"text": "x"}, None, [{"uri": "a:b", "text": "x"}]),
        ([{"uri": "a:c", "text": "x"}], None, [{"uri": "a:c", "text": "x"}]),
        ([], None, []),
    ],
)
def test_what_was_read_becomes_contents(given, mime_type, contents):
    """Text, bytes and contents in MCP's form are taken."""
    assert read_result("a:b", given, mime_type) == {"contents": contents}


@pytest.mark.parametrize("given", [5, None, ["text"], object()])
def test_what_cannot_be_read_is_refused(given):
    """Anything else is a mistake of the function that gave it."""
    with pytest.raises(TypeError, match="resource gave"):
        read_result("a:b", given, None)


@pytest.mark.parametrize(
    ("given", "messages"),
    [
        ("hi", [{"role": "user", "content": {"type": "text", "text": "hi"}}]),
        (
            {"role": "assistant", "content": "hi"},
            [{"role": "assistant", "content": {"type": "text", "text": "hi"}}],
        ),
        (
            ["a", TextContent("b"), ImageContent("eA==", "image/png")],
            [
                {"role": "user", "content": {"type": "text", "text": "a"}},
                {"role": "user", "content": {"type": "text", "text": "b"}},
                {
                    "role": "user",
                    "content": {"type": "image", "data": "eA==", "mimeType": "image/png"},
                },
            ],
        ),
        (
            [{"role": "user", "content": {"type": "audio", "data": "", "mimeType": "a/b"}}],
            [{"role": "user", "content": {"type": "audio", "data": "", "mimeType": "a/b"}}],
        ),
    ],
)
def test_what_a_prompt_gave_becomes_messages(given, messages):
    """Texts, blocks and messages are taken, blocks in MCP's form as they are."""
    assert prompt_result(given, None) == {"messages": messages}
    assert prompt_result(given, "D")["description"] == "D"


@pytest.mark.parametrize(
    "given", [5, None, [5], {"role": "system", "content": "x"}, [{"role": "user"}]]
)
def test_what_is_no_prompt_is_refused(given):
    """Anything else is a mistake of the function that gave it."""
    with pytest.raises(TypeError, match="prompt gave"):
        prompt_result(given, None)
