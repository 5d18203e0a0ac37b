"""What a Responses API is sent for a conversation and its options."""

import json

import attrs
import pytest

from yiemagent.context import LlmContext
from yiemagent.llm import StreamOptions
from yiemagent.messages import (
    AssistantMessage,
    ImageContent,
    LlmModel,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.providers.body_encoder import BodyEncoder
from yiemagent.providers.responses_body import Manner, request_body
from yiemagent.tool import AgentTool

MODEL = "gpt-5.1"
MANNER = Manner(provider="openai", api="openai-responses")
HI = UserMessage("Hi")
IMAGE = ImageContent("aGk=", "image/png")
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}


def body_of(*messages, system="", tools=None, manner=MANNER, model=MODEL, **options):
    context = LlmContext(system, messages, tools)
    body = request_body(context, StreamOptions(**options), manner, model=model)
    return json.loads(BodyEncoder().encode(body))


def items_of(*messages, **fields):
    return body_of(*messages, **fields)["input"]


def answer(*blocks, model=MODEL, provider="openai", **fields):
    return AssistantMessage(blocks, "openai-responses", provider, model, **fields)


def signature(**marks):
    return json.dumps(marks)


def thinking(text="", **item):
    return ThinkingContent(text, json.dumps({**REASONING, **item}), redacted=not text)


def text(words, item_id="msg_1", **marks):
    return TextContent(words, signature(id=item_id, **marks))


def call(call_id="call_1", item_id="fc_1", name="t", arguments=None):
    return ToolCall(call_id, name, arguments or {"a": 1}, None, signature(id=item_id))


def result(*blocks, call_id="call_1", **fields):
    return ToolResultMessage(call_id, "t", blocks or "ok", **fields)


def tool(name="t", **schema):
    return AgentTool(name, description="Do it.", input_schema=schema, execute=lambda *_: None)


# --- input items ------------------------------------------------------------------------------------------------------


def test_plain_conversation():
    """Instructions stand apart, a user's text is a string, an answer of another model goes without id."""
    body = body_of(HI, AssistantMessage("Hello"), UserMessage("Bye"), system="Be brief.")

    assert body["instructions"] == "Be brief."
    assert body["input"] == [
        {"role": "user", "content": "Hi"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hello", "annotations": []}],
        },
        {"role": "user", "content": "Bye"},
    ]


def test_images():
    """Images of a user stand as data URIs beside the text."""
    (item,) = items_of(UserMessage([TextContent("See"), IMAGE]))

    assert item["content"] == [
        {"type": "input_text", "text": "See"},
        {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,aGk="},
    ]


def test_an_own_answer_goes_back_as_it_came():
    """Reasoning goes back whole and before what follows it, texts and calls with their ids, a text with its phase."""
    items = items_of(
        HI, answer(thinking("hm"), text("Look.", phase="commentary"), call()), result()
    )

    assert items[1:] == [
        REASONING,
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Look.", "annotations": []}],
            "phase": "commentary",
            "id": "msg_1",
            "status": "completed",
        },
        {
            "type": "function_call",
            "call_id": "call_1",
            "name": "t",
            "id": "fc_1",
            "arguments": '{"a": 1}',
        },
        {"type": "function_call_output", "call_id": "call_1", "output": "ok"},
    ]


def test_parts_of_one_message():
    """Texts that were parts of one message are one message again."""
    items = items_of(HI, answer(text("a"), text("b"), text("c", "msg_2")), HI)

    assert [[part["text"] for part in item["content"]] for item in items[1:3]] == [
        ["a", "b"],
        ["c"],
    ]


@pytest.mark.parametrize("other", [{"model": "gpt-5.2"}, {"provider": "azure"}])
def test_another_models_answer(other):
    """Of another model's answer nothing goes that only that model takes back: its thinking is text, ids are gone."""
    items = items_of(HI, answer(thinking("hm"), text("ok"), call(), **other), result())

    assert "reasoning" not in [item.get("type") for item in items]
    assert all("id" not in item for item in items)
    assert json.dumps(items).count("hm") == 1


def test_reasoning_that_nothing_follows():
    """Reasoning at the end of an answer is left out: the server wants what belongs to it."""
    items = items_of(HI, answer(text("ok"), thinking("hm"), stop_reason="length"), HI)

    assert [item.get("type", item.get("role")) for item in items] == ["user", "message", "user"]
    assert items[1]["id"] == "msg_1"


@pytest.mark.parametrize(
    "block",
    [
        thinking("hm", encrypted_content=None),
        ThinkingContent("hm", "{no json"),
        ThinkingContent("hm", "[1]"),
        ThinkingContent("hm"),
    ],
)
def test_reasoning_that_can_not_go_back(block):
    """Where reasoning is not held whole it is left out, and what followed it goes without its id."""
    items = items_of(HI, answer(block, text("Look."), call()), result())

    assert [item.get("type") for item in items[1:]] == [
        "message", "function_call", "function_call_output",
    ]  # fmt: skip
    assert all("id" not in item and "status" not in item for item in items)


def test_reasoning_that_the_server_keeps():
    """Where the server keeps responses it knows reasoning by its id."""
    manner = attrs.evolve(MANNER, store=True)
    items = items_of(HI, answer(thinking(encrypted_content=None), text("ok")), HI, manner=manner)

    assert items[1]["id"] == "rs_1"
    assert items[2]["id"] == "msg_1"


def test_open_reasoning():
    """Reasoning that a server told openly goes back with its text."""
    content = [{"type": "reasoning_text", "text": "hm"}]
    items = items_of(HI, answer(thinking("hm", encrypted_content="", content=content), text("ok")))

    assert items[1]["content"] == content


@pytest.mark.parametrize("item_id", ["", "x" * 65])
def test_all_ids_or_none(item_id):
    """Where one item has no id, or one that is too long, none has: the server links them with each other."""
    items = items_of(HI, answer(thinking("hm"), text("ok", item_id), call()), result())

    assert all("id" not in item for item in items)
    assert items[1]["encrypted_content"] == "gAAA"


def test_items_of_the_server():
    """What only the server understands goes back as it came."""
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}}
    block = ThinkingContent("", json.dumps(search), redacted=True)
    items = items_of(HI, answer(thinking("hm"), block, text("ok")))

    assert items[1:3] == [REASONING, search]


def test_custom_calls():
    """A call of a custom tool goes back with its text, and its result has a type of its own."""
    marks = signature(id="ctc_1", type="custom_tool_call")
    custom = ToolCall("call_1", "t", {"input": "print(1)"}, None, marks)
    items = items_of(HI, answer(custom, call("call_2")), result(), result(call_id="call_2"))

    assert items[1] == {
        "type": "custom_tool_call",
        "call_id": "call_1",
        "name": "t",
        "id": "ctc_1",
        "input": "print(1)",
    }
    assert items[3] == {"type": "custom_tool_call_output", "call_id": "call_1", "output": "ok"}
    assert items[4]["type"] == "function_call_output"


def test_custom_calls_whose_text_is_gone():
    """A call of a custom tool whose arguments hold no text is a function's."""
    marks = signature(id="ctc_1", type="custom_tool_call")
    items = items_of(HI, answer(ToolCall("call_1", "t", {"x": 1}, None, marks)), result())

    assert items[1]["type"] == "function_call"
    assert items[1]["arguments"] == '{"x": 1}'


def test_results():
    """A result is text; one with images is a list, or has them behind all results where the server takes none."""
    blocks = [TextContent("a"), TextContent("b"), IMAGE]
    image = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,aGk="}
    asked = [HI, answer(call(), call("call_2", "fc_2"))]
    results = [result(*blocks), result(IMAGE, call_id="call_2")]

    assert items_of(*asked, *results)[3:] == [
        {
            "type": "function_call_output",
            "call_id": "call_1",
            "output": [
                {"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}, image,
            ],
        },
        {"type": "function_call_output", "call_id": "call_2", "output": [image]},
    ]  # fmt: skip
    manner = attrs.evolve(MANNER, images_in_results=False)
    items = items_of(*asked, *results, manner=manner)[3:]
    assert [item.get("output") for item in items[:2]] == ["a\nb", "(the image follows)"]
    assert [item["role"] for item in items[2:]] == ["user", "user"]
    assert all(image in item["content"] for item in items[2:])


def test_an_empty_result():
    """A result without content says so."""
    assert items_of(HI, answer(call()), ToolResultMessage("call_1", "t"))[-1]["output"] == (
        "(no output)"
    )


def test_images_for_a_model_that_reads_none():
    """A model that is known to read no images is told that there was one."""
    asked = UserMessage([TextContent("See"), IMAGE])

    assert "image/png" in items_of(asked, model="o3-mini")[0]["content"]
    blind = LlmModel("mine", input_kinds=("text",))
    context = LlmContext("", (asked,))
    body = request_body(context, StreamOptions(model=blind), MANNER, model="mine")
    assert "image/png" in body["input"][0]["content"]


def test_answers_without_content():
    """An answer with nothing to send is left out."""
    assert len(items_of(HI, answer(text(" ")), HI)) == 2


def test_shared_between_requests():
    """What was sent before is the same object in the next request."""
    messages = [HI, answer(thinking("hm"), text("ok")), UserMessage("More")]
    options = StreamOptions()
    first = request_body(LlmContext("", messages[:1]), options, MANNER, model=MODEL)["input"]
    second = request_body(LlmContext("", messages), options, MANNER, model=MODEL)["input"]
    third = request_body(LlmContext("", messages), options, MANNER, model=MODEL)["input"]

    assert first[0] is second[0]
    assert all(one is other for one, other in zip(second, third, strict=True))
    assert second is not third


# --- settings ---------------------------------------------------------------------------------------------------------


def test_least_settings():
    """Nothing is asked for that nobody asked for; nothing is kept on the server."""
    assert body_of(HI, model="gpt-4.1") == {
        "model": "gpt-4.1",
        "input": [{"role": "user", "content": "Hi"}],
        "store": False,
        "stream": True,
    }


def test_settings():
    """Temperature and the limit of the answer are passed on."""
    body = body_of(HI, temperature=0.5, max_tokens=100, manner=attrs.evolve(MANNER, stream=False))

    assert (body["temperature"], body["max_output_tokens"]) == (0.5, 100)
    assert body["stream"] is False


def test_tools():
    """A tool is sent flat; strict where its schema fits that mode, and said not to be where it does not."""
    closed = {"additionalProperties": False, "required": ["a"]}
    tools = [
        tool("free", properties={"a": {"type": "integer"}}, type="object"),
        tool("closed", properties={"a": {"type": "integer"}}, type="object", **closed),
    ]
    free, strict = body_of(HI, tools=tools)["tools"]

    assert free == {
        "type": "function",
        "name": "free",
        "description": "Do it.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
        "strict": False,
    }
    assert strict["strict"] is True


@pytest.mark.parametrize(
    "choice, sent",
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ("t", {"type": "function", "name": "t"}),
    ],
)
def test_tool_choice(choice, sent):
    """A choice is a word, or names a function; without tools there is none."""
    assert body_of(HI, tools=[tool()], tool_choice=choice)["tool_choice"] == sent
    assert "tool_choice" not in body_of(HI, tool_choice=choice)


@pytest.mark.parametrize("closed", [True, False])
def test_structured_output(closed):
    """A schema for the answer is the text's format, strict where it fits."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    if closed:
        schema["additionalProperties"] = False

    assert body_of(HI, output_schema=schema)["text"] == {
        "format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": closed}
    }


def test_reasoning():
    """A level is an effort, with a summary; its encrypted form is asked for."""
    body = body_of(HI, reasoning="high")

    assert body["reasoning"] == {"effort": "high", "summary": "auto"}
    assert body["include"] == ["reasoning.encrypted_content"]


def test_no_summary():
    """The summary may be left out, and its kind be chosen."""
    for summary in (None, "detailed"):
        body = body_of(HI, reasoning="high", manner=attrs.evolve(MANNER, summary=summary))

        assert body["reasoning"].get("summary") == summary


@pytest.mark.parametrize(
    "model, level, reasoning, encrypted",
    [
        ("gpt-5.1", None, None, True),  # it may think all the same
        ("gpt-5.1", "off", {"effort": "none"}, True),
        ("o3", "off", {"effort": "low"}, True),
        ("gpt-4.1", "off", None, False),
        ("gpt-4.1", "high", None, False),
        ("mine", None, None, False),
        ("mine", "off", None, False),
        ("mine", "low", {"effort": "low", "summary": "auto"}, True),
    ],
)
def test_reasoning_by_model(model, level, reasoning, encrypted):
    """What is asked for fits the model; a model that does not think is not asked for thinking."""
    body = body_of(HI, model=model, reasoning=level)

    assert body.get("reasoning") == reasoning
    assert ("include" in body) is encrypted


def test_no_encrypted_reasoning_where_the_server_keeps_it():
    """Where the server keeps the response, its reasoning need not travel."""
    body = body_of(HI, reasoning="high", manner=attrs.evolve(MANNER, store=True))

    assert body["store"] is True
    assert "include" not in body


def test_caching():
    """The session is the key of the prompt cache, cut to what the API takes; "long" keeps it for a day."""
    assert body_of(HI, session_id="s1")["prompt_cache_key"] == "s1"
    assert len(body_of(HI, session_id="s" * 65)["prompt_cache_key"]) == 64
    assert body_of(HI, session_id="s1", cache="long")["prompt_cache_retention"] == "24h"
    assert "prompt_cache_retention" not in body_of(HI, cache="short")


def test_no_caching():
    """Without caching there is no key, and a model that can be told so writes to no cache."""
    body = body_of(HI, session_id="s1", cache="none")
    assert not any(key.startswith("prompt_cache") for key in body)

    new = body_of(HI, session_id="s1", cache="none", model="gpt-5.6-sol")
    assert new["prompt_cache_options"] == {"mode": "explicit"}
    assert "prompt_cache_key" not in new


def test_bad_characters():
    """Halves of characters are replaced everywhere."""
    body = body_of(UserMessage("a\ud83d"), system="b\ud83d", tools=[tool()])

    assert body["instructions"] == "b\ufffd"
    assert body["input"][0]["content"] == "a\ufffd"
