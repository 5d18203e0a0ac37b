"""Histories as messages for one server."""

import json

import attrs
import pytest

from yiemagent.messages import (
    AssistantMessage,
    ImageContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.providers.openai_messages import ChatMessages
from yiemagent.providers.profiles import Profile, profile

API = "openai-chat"
DETAILS = [{"type": "reasoning.text", "text": "hm", "signature": "s", "index": 0}]


def answer(*blocks, provider="p", model="m"):
    return AssistantMessage(blocks, api=API, provider=provider, model=model)


def sent(spoken, *messages, prompt="", model="m"):
    if isinstance(spoken, str):
        spoken = profile(spoken)
    return ChatMessages(spoken, API, "p").messages(prompt, messages, model)


def answer_sent(spoken, *blocks, **options):
    given = sent(spoken, UserMessage("hi"), answer(*blocks, **options))
    assert given[1]["role"] == "assistant"
    return {key: value for key, value in given[1].items() if key != "role"}


@pytest.mark.parametrize(
    "spoken, signature, expected",
    [
        ("deepseek", "reasoning_content", {"content": "ok", "reasoning_content": "hm"}),
        ("deepseek", None, {"content": "ok", "reasoning_content": "hm"}),
        ("llamacpp", "reasoning_content", {"content": "ok", "reasoning_content": "hm"}),
        ("vllm", "reasoning", {"content": "ok", "reasoning": "hm"}),
        ("vllm", "reasoning_content", {"content": "ok", "reasoning": "hm"}),
        ("ollama", "reasoning", {"content": "ok", "reasoning": "hm"}),
        ("groq", "reasoning", {"content": "ok", "reasoning": "hm"}),
        ("lmstudio", "reasoning", {"content": "ok", "reasoning": "hm"}),
        ("lmstudio", "reasoning_content", {"content": "ok", "reasoning_content": "hm"}),
        ("compatible", "reasoning_content", {"content": "ok", "reasoning_content": "hm"}),
        ("compatible", None, {"content": "ok"}),
        ("openai", "reasoning_content", {"content": "ok"}),
        ("openrouter", json.dumps(DETAILS), {"content": "ok", "reasoning_details": DETAILS}),
        ("openrouter", "reasoning", {"content": "ok", "reasoning": "hm"}),
        ("openrouter", "[no json", {"content": "ok", "reasoning": "hm"}),
        ("openrouter", "[]", {"content": "ok", "reasoning": "hm"}),
        ("mistral", None, {"content": [
            {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "ok"}]}),
    ],
)  # fmt: skip
def test_thinking_goes_back(spoken, signature, expected):
    """Thinking goes back to the model that had it, in the field in which its server wants it."""
    assert answer_sent(spoken, ThinkingContent("hm", signature), TextContent("ok")) == expected


@pytest.mark.parametrize("spoken", ["deepseek", "vllm", "openrouter", "mistral", "compatible"])
def test_thinking_of_another_model(spoken):
    """Another model's thinking is text, and goes into no field of the server's own."""
    given = answer_sent(
        spoken, ThinkingContent("hm", "reasoning"), TextContent("ok"), model="another"
    )

    assert "hm" in given["content"] and "ok" in given["content"]
    assert {key: value for key, value in given.items() if value} == {"content": given["content"]}


def test_encrypted_thinking_goes_back():
    """Thinking that only its model can read goes back with a call, in the order in which it came."""
    first, second = [{"type": "reasoning.encrypted", "data": word} for word in "ab"]
    given = answer_sent(
        "openrouter",
        ThinkingContent("", json.dumps([first]), redacted=True),
        ToolCall("c1", "look", {}),
        ThinkingContent("", json.dumps([second]), redacted=True),
    )

    assert given["reasoning_details"] == [first, second]
    assert given["tool_calls"][0]["id"] == "c1"


def test_thinking_that_must_be_there():
    """Where each answer must have its thinking, one without any has an empty one."""
    assert answer_sent("deepseek", TextContent("ok")) == {"content": "ok", "reasoning_content": ""}


def test_mistral_call_ids():
    """Calls have ids of nine letters and digits, the same in call and result; fitting ones stay."""
    call, fitting = ToolCall("call_0f-1", "look", {}), ToolCall("abcDEF123", "look", {})
    given = sent(
        "mistral",
        UserMessage("hi"),
        answer(call, fitting, model="another"),
        ToolResultMessage("call_0f-1", "look", "x"),
        ToolResultMessage("abcDEF123", "look", "y"),
    )
    ids = [one["id"] for one in given[1]["tool_calls"]]

    assert len(ids[0]) == 9 and ids[0].isalnum()
    assert ids[1] == "abcDEF123"
    assert [one["tool_call_id"] for one in given[2:]] == ids


def test_openai_call_ids():
    """An id longer than OpenAI takes is a shorter one, in call and result."""
    call = ToolCall("x" * 60, "look", {})
    given = sent(
        "openai",
        UserMessage("hi"),
        answer(call, model="b"),
        ToolResultMessage("x" * 60, "look", "y"),
    )

    assert len(given[1]["tool_calls"][0]["id"]) <= 40
    assert given[2]["tool_call_id"] == given[1]["tool_calls"][0]["id"]


def roles(*messages, spoken="mistral", in_steps=False):
    chat = ChatMessages(profile(spoken), API, "p")
    if in_steps:
        for end in range(1, len(messages)):
            chat.messages("", messages[:end], "m")
    return [message["role"] for message in chat.messages("", messages, "m")]


@pytest.mark.parametrize("in_steps", [False, True])
def test_bridge(in_steps):
    """Between a tool result and a user message stands an answer, where the server wants one there."""
    image = [TextContent("see"), ImageContent("aGk=", "image/png")]
    call = [UserMessage("hi"), answer(ToolCall("abcDEF123", "look", {}))]
    plain, shown = (ToolResultMessage("abcDEF123", "look", content) for content in ("x", image))
    tail = ["user", "assistant", "tool"]

    assert roles(*call, plain, UserMessage("and?"), in_steps=in_steps) == [
        *tail,
        "assistant",
        "user",
    ]
    assert roles(*call, plain, answer(TextContent("ok")), in_steps=in_steps) == [*tail, "assistant"]
    assert roles(*call, shown, in_steps=in_steps) == [*tail, "assistant", "user"]
    assert roles(*call, shown, UserMessage("and?"), in_steps=in_steps) == [
        *tail, "assistant", "user", "user",
    ]  # fmt: skip
    assert roles(*call, plain, UserMessage("and?"), spoken="openai") == [*tail, "user"]


def test_images():
    """Images that the server can't read are named in words; types it doesn't know too."""
    png, bmp = ImageContent("aGk=", "image/png"), ImageContent("aGk=", "image/bmp")

    [kept] = sent("ollama", UserMessage([png]))
    [noted] = sent("ollama", UserMessage([bmp]))
    [blind] = sent("deepseek", UserMessage([png]))

    assert kept["content"][0]["type"] == "image_url"
    assert "image/bmp" in noted["content"] and "image/png" in blind["content"]


def test_instructions():
    """Instructions go first, under the role that the profile names, as the same object each time."""
    chat = ChatMessages(Profile(name="x", system_role="developer"), API, "p")
    first, again = (chat.messages("Be brief.", [UserMessage("hi")], "m") for _ in range(2))

    assert first[0] == {"role": "developer", "content": "Be brief."}
    assert first[0] is again[0]
    assert chat.messages("", [], "m") == []


def test_messages_are_made_once():
    """What an earlier request held is the same object in the next one."""
    history = [UserMessage("hi"), answer(ThinkingContent("hm", "reasoning"), TextContent("ok"))]
    chat = ChatMessages(profile("vllm"), API, "p")
    first = chat.messages("", history, "m")
    again = chat.messages("", [*history, UserMessage("more")], "m")

    assert [one is other for one, other in zip(first, again, strict=False)] == [True, True]
    assert again[2]["content"] == "more"


def test_profile_of_ones_own():
    """A profile may be made of another one."""
    spoken = attrs.evolve(profile("vllm"), reasoning_field=None)

    assert answer_sent(spoken, ThinkingContent("hm", "reasoning"), TextContent("ok")) == {
        "content": "ok"
    }
