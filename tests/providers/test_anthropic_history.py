"""Histories as the messages of the Anthropic Messages API."""

import gc
import json

import pytest

from yiemagent.context import LlmContext
from yiemagent.llm import StreamOptions
from yiemagent.messages import (
    AssistantMessage,
    ImageContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.providers import anthropic_history
from yiemagent.providers.anthropic_body import request_body
from yiemagent.providers.anthropic_history import (
    going_on,
    signatures,
    target_of,
    without_thinking,
)

MODEL, PROVIDER, API = "claude-opus-5-5", "anthropic", "anthropic-messages"
PNG = ImageContent("aGk=", "image/png")
PNG_WIRE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
}


def text(said, **more):
    return {"type": "text", "text": said, **more}


def own(*blocks, **fields):
    """An answer of the asked model's own."""
    calls = any(isinstance(block, ToolCall) for block in blocks)
    fields.setdefault("stop_reason", "tool_use" if calls else "stop")
    return AssistantMessage(blocks, API, PROVIDER, MODEL, **fields)


def wire(*messages, own_server=True):
    """The messages of a request, as JSON."""
    target = target_of(MODEL, PROVIDER, API, own_server=own_server)
    options = StreamOptions(cache="none")
    body = request_body(LlmContext("", messages), options, target=target, max_tokens=9, stream=True)
    return json.loads(json.dumps(body["messages"], allow_nan=False))


def test_users():
    """Neighbouring user messages make one, text and images in their order."""
    given = wire(UserMessage("one"), UserMessage((PNG, TextContent("two"))), UserMessage("three"))

    assert given == [
        {"role": "user", "content": [text("one"), PNG_WIRE, text("two"), text("three")]}
    ]


def test_results_and_users():
    """Results and what the user says behind them make one message, the results first, in call order."""
    calls = own(TextContent("Look."), ToolCall("a", "look", {"n": 1}), ToolCall("b", "look"))
    given = wire(
        UserMessage("go"),
        calls,
        ToolResultMessage("a", "look", "x"),
        ToolResultMessage("b", "look", "no", is_error=True),
        UserMessage("and"),
    )

    assert given[1]["content"] == [
        text("Look."),
        {"type": "tool_use", "id": "a", "name": "look", "input": {"n": 1}},
        {"type": "tool_use", "id": "b", "name": "look", "input": {}},
    ]
    assert given[2] == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": "x"},
            {"type": "tool_result", "tool_use_id": "b", "content": "no", "is_error": True},
            text("and"),
        ],
    }


def result(*blocks):
    calls = own(ToolCall("a", "look"))
    (content,) = wire(UserMessage("go"), calls, ToolResultMessage("a", "look", blocks))[2][
        "content"
    ]
    return content["content"]


def test_contents_of_results():
    """A result's text is one text; with images it is a list; without anything it says so."""
    assert result(TextContent("x"), TextContent("y")) == "x\ny"
    assert result(TextContent("x"), PNG, TextContent("y")) == [text("x"), PNG_WIRE, text("y")]
    assert result(PNG) == [PNG_WIRE]
    assert result() == result(TextContent(" \n")) == "(no output)"


def test_images():
    """An image of a kind that the models don't read becomes a note, and a type's other name the one they know."""
    (message,) = wire(
        UserMessage((ImageContent("aGk=", "image/svg+xml"), ImageContent("aGk=", "image/jpg")))
    )

    assert message["content"][0]["type"] == "text"
    assert "image/svg+xml" in message["content"][0]["text"]
    assert message["content"][1]["source"]["media_type"] == "image/jpeg"


def test_blank_text():
    """Blank text is never sent; an answer that is nothing else is left out, and its neighbours join."""
    given = wire(
        UserMessage("a"),
        own(TextContent(" \n")),
        UserMessage("b"),
        own(TextContent(""), ToolCall("c", "look")),
        ToolResultMessage("c", "look", "x"),
        own(TextContent(" ", json.dumps({"citations": [{"cited_text": "x"}]}))),
        UserMessage(" "),
    )

    assert [message["role"] for message in given] == ["user", "assistant", "user"]
    assert given[0]["content"] == [text("a"), text("b")]
    assert given[1]["content"] == [{"type": "tool_use", "id": "c", "name": "look", "input": {}}]
    assert [block["type"] for block in given[2]["content"]] == ["tool_result", "text"]
    assert all(
        block["text"].strip()
        for message in given
        for block in message["content"]
        if block["type"] == "text"
    )


def test_first_message():
    """A history that begins with an answer gets a user message before it."""
    assert [message["role"] for message in wire(own(TextContent("hi")), UserMessage("a"))] == [
        "user",
        "assistant",
        "user",
    ]


def test_no_messages():
    """Without messages there are none; the server says what it thinks of that."""
    assert wire() == []


@pytest.mark.parametrize(
    "blocks, content",
    [
        ((TextContent("The answer is \n"),), [text("The answer is")]),
        ((TextContent("a "), TextContent(" \n")), [text("a")]),
        ((TextContent("a "), ToolCall("c", "look")), None),
    ],
)
def test_answer_at_the_end(blocks, content):
    """An answer that the model is to go on with does not end in white space."""
    given = wire(UserMessage("go"), own(*blocks), *(() if content else [ToolResultMessage("c", "look")]))  # fmt: skip

    if content:
        assert given[-1]["content"] == content
    else:
        assert given[1]["content"][0] == text("a ")
    assert wire(UserMessage("go"), own(TextContent("x "))) == [
        {"role": "user", "content": [text("go")]},
        {"role": "assistant", "content": [text("x")]},
    ]


def test_call_at_the_end():
    """An answer at the end that ends in a call stays as it is."""
    given = wire(UserMessage("go"), own(TextContent("x "), ToolCall("c", "look")))

    assert given[-1]["content"][0] == text("x ")


@pytest.mark.parametrize(
    "arguments, given",
    [
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
        ("", {}),
        ('{"a": 1,}', {"a": 1}),
        ('{"a": "cut', {"invalid_arguments": '{"a": "cut'}),
        ("[1]", {"invalid_arguments": "[1]"}),
        ({"a": float("nan"), "b": [float("inf")]}, {"a": None, "b": [None]}),
    ],
)
def test_arguments(arguments, given):
    """The input of a call is an object, whatever the model wrote."""
    messages = wire(UserMessage("go"), own(ToolCall("c", "look", arguments)))

    assert messages[1]["content"][0]["input"] == given


# -- what is sent back as it came -------------------------------------------------------------------------------------


def test_thinking_of_its_own():
    """Thinking goes back in its place with its signature, withheld thinking as its data, without words too."""
    answer = own(
        ThinkingContent("hm", "s1"),
        ThinkingContent("", "opaque", redacted=True),
        ThinkingContent("", "s2"),
        TextContent("ok"),
    )

    assert wire(UserMessage("go"), answer, UserMessage("on"))[1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "s1"},
        {"type": "redacted_thinking", "data": "opaque"},
        {"type": "thinking", "thinking": "", "signature": "s2"},
        text("ok"),
    ]


def test_thinking_without_a_signature():
    """Anthropic's own server refuses unsigned thinking, so it is left out; others get it back."""
    messages = (UserMessage("go"), own(ThinkingContent("hm"), TextContent("ok")), UserMessage("on"))

    assert wire(*messages)[1]["content"] == [text("ok")]
    assert wire(*messages, own_server=False)[1]["content"][0] == {
        "type": "thinking",
        "thinking": "hm",
        "signature": "",
    }


def test_thinking_of_another_model():
    """Another model's thinking goes as text, without its signature."""
    answer = AssistantMessage(
        (ThinkingContent("hm", "theirs"), TextContent("ok", "theirs")),
        API,
        PROVIDER,
        "claude-other",
    )
    given = wire(UserMessage("go"), answer, UserMessage("on"))

    assert "theirs" not in json.dumps(given)
    assert {block["type"] for block in given[1]["content"]} == {"text"}


def test_blocks_of_the_server():
    """What was kept of the server's own tools, of citations and of a call's caller goes back as it came."""
    use = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    caller = {"type": "code_execution_20260120", "tool_id": "s2"}
    answer = own(
        TextContent("", json.dumps({"block": use})),
        TextContent("", json.dumps({"block": found})),
        TextContent("So.", json.dumps({"citations": [{"cited_text": "x"}]})),
        ToolCall("c", "look", {}, signature=json.dumps({"caller": caller})),
    )

    assert wire(UserMessage("go"), answer, ToolResultMessage("c", "look", "x"))[1]["content"] == [
        use,
        found,
        text("So.", citations=[{"cited_text": "x"}]),
        {"type": "tool_use", "id": "c", "name": "look", "input": {}, "caller": caller},
    ]


@pytest.mark.parametrize("signature", ["no json", "[1]", "7", '{"block": 7}', "[" * 100_000])
def test_signatures_of_another_kind(signature):
    """A signature that is not of ours says nothing."""
    answer = own(TextContent("x", signature), ToolCall("c", "look", {}))

    assert wire(UserMessage("go"), answer)[1]["content"][0] == text("x")


def test_images_of_answers():
    """An image in an answer does not go back as an image."""
    answer = own(TextContent("x"), PNG)
    converted = anthropic_history._blocks(answer)

    assert converted == (text("x"),)
    assert PNG_WIRE not in wire(UserMessage("go"), answer, UserMessage("on"))[1]["content"]


# -- parts of an answer, and thinking that is not taken back ----------------------------------------------------------


def test_going_on():
    """The rest of an answer is asked for with what was said behind the messages."""
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    longer = going_on(body, own(TextContent("so far ")))

    assert longer["messages"] == [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [text("so far ")]},
    ]
    assert len(body["messages"]) == 1


THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s1"}
WITHHELD = {"type": "redacted_thinking", "data": "s2"}
SAID = {
    "messages": [
        {"role": "user", "content": [text("x")]},
        {"role": "assistant", "content": [THOUGHT, text("y")]},
        {"role": "assistant", "content": "text"},
        {"role": "assistant", "content": [WITHHELD]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "unsigned"}]},
    ]
}


def test_signatures():
    """The signatures of a body are those of all thinking in it."""
    assert signatures(SAID) == {"s1", "s2"}
    assert signatures({"messages": None}) == set()
    assert signatures({"messages": ["odd", {"role": "assistant", "content": ["odd"]}]}) == set()


def test_without_thinking():
    """Thinking with a lost signature is left out, and an answer that is nothing else goes; the rest stays the same."""
    made = without_thinking(SAID, {"s1", "s2"})["messages"]

    assert made[0] is SAID["messages"][0]
    assert made[1] == {"role": "assistant", "content": [text("y")]}
    assert made[2:] == [SAID["messages"][2], SAID["messages"][4]]
    assert without_thinking(SAID, {"other"})["messages"] == SAID["messages"]


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_messages_are_made_once():
    """A message is the same object in each request that has it, even where a neighbour joined and went again."""
    target = target_of(MODEL, PROVIDER, API, own_server=True)
    options = StreamOptions(cache="none")
    first, second, third = UserMessage("a"), own(TextContent("b")), UserMessage("c")

    def made(*messages):
        body = request_body(
            LlmContext("", messages), options, target=target, max_tokens=9, stream=True
        )
        return body["messages"]

    once = made(first, second, third)
    joined = made(UserMessage("z"), first, second, third)

    assert made(first, second, third)[2] is once[2]
    assert joined[0]["content"] == [text("z"), text("a")]
    assert joined[1:] == once[1:]
    assert made(first, second, third) == once


def test_nothing_outlives_its_message():
    """What was made of a message goes with it."""
    gc.collect()
    before = len(anthropic_history._groups._kept), len(anthropic_history._blocks)
    wire(UserMessage("a"), own(TextContent("b")), UserMessage("c"))
    gc.collect()

    assert (len(anthropic_history._groups._kept), len(anthropic_history._blocks)) == before
