"""What a client does for servers when they ask."""

from __future__ import annotations

import pathlib

import pytest

from yiemagent.errors import ConfigurationError, McpProtocolError
from yiemagent.mcp.handlers import ServerRequests

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "default": "Ann"}, "age": {"type": "integer"}},
}


def elicited(given, schema=SCHEMA):
    """The result where the handler gives so."""
    requests = ServerRequests(elicitation=lambda params: given)
    return requests.answer("elicitation/create", {"message": "m", "requestedSchema": schema})


def test_only_what_has_a_handler_is_declared():
    """A client without handlers offers nothing, so that no server waits for it."""

    def handler(params):
        return None

    assert ServerRequests().capabilities == {}
    assert ServerRequests(elicitation=handler).capabilities == {"elicitation": {"form": {}}}
    assert ServerRequests(elicitation_url=handler).capabilities == {"elicitation": {"url": {}}}
    assert ServerRequests(sampling=handler, roots=[]).capabilities == {"sampling": {}, "roots": {}}


@pytest.mark.parametrize(
    "method", ["elicitation/create", "sampling/createMessage", "roots/list", "x"]
)
def test_what_has_no_handler_is_refused(method):
    """The error says which, with the code that means an unknown method."""
    with pytest.raises(McpProtocolError, match="does not offer") as caught:
        ServerRequests().answer(method, {})

    assert caught.value.code == -32601


@pytest.mark.parametrize(
    "given, result",
    [
        ({"age": 5}, {"action": "accept", "content": {"name": "Ann", "age": 5}}),
        ({"name": "Bob"}, {"action": "accept", "content": {"name": "Bob"}}),
        (True, {"action": "accept", "content": {"name": "Ann"}}),
        (None, {"action": "decline"}),
        (False, {"action": "decline"}),
        ({"action": "cancel"}, {"action": "cancel"}),
        (
            {"action": "accept", "content": {"age": 1}},
            {"action": "accept", "content": {"name": "Ann", "age": 1}},
        ),
        ({"action": "decline", "content": {}}, {"action": "decline"}),
    ],
)
def test_a_handler_says_in_few_words_what_was_entered(given, result):
    """Values, None, or a whole result; what is left out gets the schema's default."""
    assert elicited(given) == result


def test_a_value_may_be_called_action():
    """Where the schema has a field of that name, a dict is values."""
    schema = {"properties": {"action": {"type": "string"}}}

    assert elicited({"action": "cancel"}, schema) == {
        "action": "accept",
        "content": {"action": "cancel"},
    }


@pytest.mark.parametrize("schema", [None, [], {"properties": 5}, {"properties": {"a": 5}}])
def test_a_schema_that_is_none_has_no_defaults(schema):
    """Whatever the server sends as the schema, the values are given back."""
    assert elicited({"a": 1}, schema) == {"action": "accept", "content": {"a": 1}}


def test_a_handler_that_gives_no_values_is_a_mistake():
    """It is told to the server as an internal error."""
    with pytest.raises(McpProtocolError, match="no dict of values") as caught:
        elicited("yes")

    assert caught.value.code == -32603


def test_a_page_is_visited_by_its_own_handler_only():
    """A form's handler is never asked for a page, nor is anything opened."""
    params = {"mode": "url", "message": "m", "url": "https://example.com"}
    asked = []
    requests = ServerRequests(elicitation_url=lambda given: asked.append(given["url"]) or True)

    assert requests.answer("elicitation/create", params) == {"action": "accept"}
    assert asked == ["https://example.com"]
    refusing = ServerRequests(elicitation_url=lambda given: False)
    assert refusing.answer("elicitation/create", params) == {"action": "decline"}
    with pytest.raises(McpProtocolError, match="'url'") as caught:
        ServerRequests(elicitation=lambda given: {}).answer("elicitation/create", params)
    assert caught.value.code == -32602


def test_a_model_is_asked_by_the_handler():
    """Its text becomes a result, and a whole result stays what it is."""
    whole = {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"}
    as_text = ServerRequests(sampling=lambda params: f"saw {len(params['messages'])}")
    as_dict = ServerRequests(sampling=lambda params: whole)

    result = as_text.answer("sampling/createMessage", {"messages": [1, 2]})
    assert result["content"] == {"type": "text", "text": "saw 2"}
    assert result["role"] == "assistant"
    assert as_dict.answer("sampling/createMessage", {"messages": []}) == whole
    with pytest.raises(McpProtocolError, match="neither text"):
        ServerRequests(sampling=lambda params: 5).answer("sampling/createMessage", {})


def test_roots_are_paths_or_addresses(tmp_path):
    """Each becomes what the protocol wants; a function is asked each time."""
    given = ["https://example.com/x", tmp_path, {"uri": "file:///a", "name": "A"}]

    assert ServerRequests(roots=given).answer("roots/list", {})["roots"] == [
        {"uri": "https://example.com/x"},
        {"uri": pathlib.Path(tmp_path).as_uri(), "name": tmp_path.name},
        {"uri": "file:///a", "name": "A"},
    ]
    assert len(ServerRequests(roots=str(tmp_path)).answer("roots/list", {})["roots"]) == 1
    assert ServerRequests(roots=lambda: given[:1]).answer("roots/list", {}) == {
        "roots": [{"uri": given[0]}]
    }


def test_a_handler_cannot_change_what_came():
    """Handlers get a copy of their own."""

    def spoil(params):
        params["requestedSchema"]["properties"].clear()
        return {}

    params = {"requestedSchema": SCHEMA}
    result = ServerRequests(elicitation=spoil).answer("elicitation/create", params)

    assert result["content"] == {"name": "Ann"}
    assert SCHEMA["properties"]


def test_a_handler_that_cannot_be_called_is_refused():
    """The mistake is told where it is made."""
    with pytest.raises(ConfigurationError, match="sampling"):
        ServerRequests(sampling="yes")
