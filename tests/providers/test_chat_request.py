"""Request dicts in the OpenAI chat form, read for another API."""

import pytest

from yiemagent.errors import ConfigurationError
from yiemagent.messages import ImageContent, TextContent, ToolCall
from yiemagent.openai_format import format_msg_for_llm
from yiemagent.providers.chat_request import read_request

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}


def function(name, **fields):
    return {"type": "function", "function": {"name": name, **fields}}


def call(call_id, name, arguments):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "look"},
    {"role": "assistant", "content": "I look.", "tool_calls": [call("c1", "look", '{"n": 1}')]},
    {"role": "tool", "tool_call_id": "c1", "content": "seen"},
    {"role": "assistant", "content": "Seen."},
]


def test_a_conversation():
    """Instructions, messages, calls and results are read as what they are."""
    context, _ = read_request({"messages": CONVERSATION})
    user, answer, result, last = context.messages

    assert context.system_prompt == "Be brief."
    assert user.text == "look"
    assert answer.content == (TextContent("I look."), ToolCall("c1", "look", {"n": 1}))
    assert (result.tool_call_id, result.tool_name, result.text) == ("c1", "look", "seen")
    assert last.text == "Seen."


def test_what_is_read_goes_out_again_as_it_was():
    """A conversation that is read and formatted again is the same."""
    context, _ = read_request(
        {"messages": CONVERSATION, "tools": [function("look", parameters=SCHEMA)]}
    )
    given = format_msg_for_llm(context)

    assert [message["role"] for message in given["messages"]] == [
        message["role"] for message in CONVERSATION
    ]
    assert given["messages"][0] == CONVERSATION[0]
    assert given["messages"][3] == CONVERSATION[3]
    assert given["tools"][0]["function"]["parameters"] == SCHEMA


def test_instructions_are_joined():
    """Instructions from several messages, in either role, make one text."""
    messages = [
        {"role": "system", "content": "A"},
        {"role": "user", "content": "hi"},
        {"role": "developer", "content": [{"type": "text", "text": "B"}]},
    ]

    assert read_request({"messages": messages})[0].system_prompt == "A\n\nB"


def test_images():
    """Images of users and of tool results are images."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    messages = [
        {"role": "user", "content": [image]},
        {"role": "assistant", "content": None, "tool_calls": [call("c1", "look", "{}")]},
        {"role": "tool", "tool_call_id": "c1", "content": [image]},
    ]
    context, _ = read_request({"messages": messages})

    assert (
        context.messages[0].content
        == context.messages[2].content
        == (ImageContent("aGk=", "image/png"),)
    )


def test_pairing_is_repaired():
    """A call without a result gets one, and a result without a call is dropped."""
    messages = [
        {"role": "tool", "tool_call_id": "x", "name": "look", "content": "stray"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [call("c1", "look", "{}")]},
        {"role": "user", "content": "and?"},
    ]
    context, _ = read_request({"messages": messages})

    assert [message.role for message in context.messages] == [
        "user",
        "assistant",
        "toolResult",
        "user",
    ]


def test_options():
    """Settings are carried over, under either of their names; what is None is not set."""
    given = {
        "messages": [],
        "model": "m",
        "temperature": 0.5,
        "max_tokens": 7,
        "reasoning_effort": "low",
        "stream": True,
        "stream_options": {"include_usage": True},
        "seed": None,
    }
    _, options = read_request(given)
    _, other = read_request(
        {"messages": [], "max_completion_tokens": 9, "reasoning_effort": "none"}
    )

    assert (options.model, options.temperature, options.max_tokens, options.reasoning) == (
        "m",
        0.5,
        7,
        "low",
    )
    assert (other.model, other.max_tokens, other.reasoning) == (None, 9, "off")


@pytest.mark.parametrize(
    ("choice", "expected"),
    [("auto", "auto"), ("required", "required"), (function("look"), "look"), (None, None)],
)
def test_tool_choice(choice, expected):
    """A choice is a word or a tool's name."""
    assert read_request({"messages": [], "tool_choice": choice})[1].tool_choice == expected


def test_tools():
    """Tools are read nested or flat; one without a description is described by its name."""
    tools = [
        function("look", description="Looks.", parameters=SCHEMA),
        {"type": "function", "name": "wait"},
    ]
    context, _ = read_request({"messages": [], "tools": tools})

    assert list(context.tools) == ["look", "wait"]
    assert context.tools["look"].input_schema == SCHEMA
    assert context.tools["wait"].description == "wait"


@pytest.mark.parametrize(
    ("request_dict", "said"),
    [
        ({}, "a list of messages"),
        ({"messages": "hi"}, "a list of messages"),
        ({"messages": [], "seed": 1, "logprobs": True}, "logprobs, seed"),
        ({"messages": ["hi"]}, "'hi' is no message"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "is no message"),
        ({"messages": [{"role": "user", "content": 5}]}, "content must be text"),
        ({"messages": [], "tools": ["look"]}, "'look' is no tool"),
        ({"messages": [], "tools": [{"type": "web_search"}]}, "is no tool"),
        ({"messages": [], "tools": [function("no spaces allowed")]}, "no spaces allowed"),
    ],
)
def test_what_can_not_be_read_is_named(request_dict, said):
    """A request that can't be carried over is refused in words that name why."""
    with pytest.raises(ConfigurationError, match=said):
        read_request(request_dict)
