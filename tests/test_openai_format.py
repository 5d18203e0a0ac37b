"""The OpenAI chat form, out and back."""

from __future__ import annotations

import gc
import json
import math
import threading

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent import openai_format
from yiemagent.context import AgentContext, LlmContext
from yiemagent.errors import BadResponseError
from yiemagent.messages import (
    AssistantMessage,
    BashExecutionMessage,
    CustomMessage,
    ImageContent,
    LlmUsage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.openai_format import (
    assistant_message,
    format_msg_for_llm,
    message_dict,
    openai_messages,
    openai_tools,
    stop_reason,
    tool_calls,
    usage,
    user_message,
)
from yiemagent.payload import FrozenDict
from yiemagent.tool import AgentTool
from yiemagent.transcript import Transcript

PNG = ImageContent("iVBORw0KGgo=", "image/png")


def request_of(*messages, system=""):
    return openai_messages(LlmContext(system, messages))


def call(arguments, call_id="c1", name="get"):
    return AssistantMessage((ToolCall(call_id, name, arguments),), stop_reason="tool_use")


def sent_arguments(arguments):
    (message,) = request_of(call(arguments))
    return message["tool_calls"][0]["function"]["arguments"]


def make_tool(name="get", schema=None, **fields):
    return AgentTool(
        name, description="Gets.", input_schema=schema or {}, execute=lambda *_: "ok", **fields
    )


# -- requests -------------------------------------------------------------------------------------------------------


def test_the_system_prompt_is_the_first_message():
    """The system prompt stands first, as plain text."""
    sent = request_of(UserMessage("hi"), system="Be brief.")

    assert sent == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]


def test_no_system_prompt_gives_no_system_message():
    """An empty system prompt is not sent."""
    assert [message["role"] for message in request_of(UserMessage("hi"))] == ["user"]


def test_an_empty_history_gives_the_system_prompt_alone():
    """A request without messages holds what there is."""
    assert request_of(system="s") == [{"role": "system", "content": "s"}]
    assert request_of() == []


def test_text_only_content_is_a_plain_string():
    """Several text blocks of a user go out as one string, in order."""
    (sent,) = request_of(UserMessage((TextContent("one"), TextContent("two"))))

    assert sent["content"] == "one\ntwo"


def test_an_image_is_sent_as_a_data_uri():
    """Content with an image is a list of parts, the image as a data URI."""
    (sent,) = request_of(UserMessage((TextContent("What is this?"), PNG)))

    assert sent["content"] == [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
    ]


def test_an_answer_with_calls_and_text_holds_both():
    """Text and calls of one answer go out in one message; thinking stays at home."""
    answer = AssistantMessage(
        (ThinkingContent("hm"), TextContent("Let me look."), ToolCall("c1", "get", {"k": 1}))
    )

    assert request_of(answer) == [
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "get", "arguments": '{"k": 1}'},
                }
            ],
        }
    ]


@pytest.mark.parametrize("text", ["", " \n"])
def test_blank_text_beside_calls_is_null(text):
    """An answer whose text is blank has null content beside its calls, never an empty string."""
    answer = AssistantMessage((TextContent(text), ToolCall("c1", "get")))
    (sent,) = request_of(answer)

    assert sent["content"] is None


@pytest.mark.parametrize(
    "content", [(), (TextContent(" "),), (ThinkingContent("hm"),)], ids=["none", "blank", "thought"]
)
def test_an_answer_with_nothing_to_send_is_left_out(content):
    """An answer without text and calls gives no message."""
    assert request_of(AssistantMessage(content)) == []


def test_a_tool_result_names_its_call():
    """A tool result goes out under the role tool with its call's id; the blocks' texts are lines."""
    result = ToolResultMessage("c1", "get", (TextContent("a"), TextContent("b")))

    assert request_of(result) == [{"role": "tool", "tool_call_id": "c1", "content": "a\nb"}]


@pytest.mark.parametrize("content", [(), "", " \n"])
def test_an_empty_tool_result_says_so(content):
    """A tool result without text is sent with words in its place."""
    (sent,) = request_of(ToolResultMessage("c1", "get", content))

    assert sent["content"] == "(no output)"


def test_images_of_tool_results_follow_the_group():
    """Images of tool results stand in user messages behind the last result of the group."""
    sent = request_of(
        ToolResultMessage("c1", "draw", (TextContent("drawn"), PNG)),
        ToolResultMessage("c2", "snap", (PNG,)),
        UserMessage("Nice."),
    )

    assert [message["role"] for message in sent] == ["tool", "tool", "user", "user", "user"]
    assert [message["content"] for message in sent[:2]] == ["drawn", "(the image follows)"]
    assert [part["type"] for part in sent[2]["content"]] == ["text", "image_url"]
    assert "'draw'" in sent[2]["content"][0]["text"]
    assert "'snap'" in sent[3]["content"][0]["text"]


@pytest.mark.parametrize("arguments", ["", "  ", "null", {}, None])
def test_no_arguments_are_an_empty_object(arguments):
    """However a model wrote no arguments, the replayed call carries an empty object."""
    assert sent_arguments(arguments) == "{}"


def test_arguments_keep_the_digits_of_large_integers():
    """Integers above 2**53 go out with the digits that came in."""
    assert sent_arguments({"id": 2512292042121000001}) == '{"id": 2512292042121000001}'


def test_arguments_keep_their_order_and_their_script():
    """Arguments are sent in the model's order, characters as they are."""
    assert sent_arguments({"z": "東京", "a": 1}) == '{"z": "東京", "a": 1}'


def test_repaired_arguments_are_sent_as_strict_json():
    """Raw control characters, which a tool was run with, go out escaped."""
    assert sent_arguments('{"body": "a\nb"}') == '{"body": "a\\nb"}'


def test_arguments_in_a_string_are_sent_as_the_object():
    """An object that came encoded twice goes out encoded once."""
    assert sent_arguments('"{\\"k\\": 1}"') == '{"k": 1}'


@pytest.mark.parametrize("text", ['{"k": 1', "[1]", "city = Oslo", '"text"'])
def test_arguments_that_are_no_object_are_shown_in_one(text):
    """What is no JSON object is sent inside one, since servers refuse a request they can't parse."""
    assert json.loads(sent_arguments(text)) == {"invalid_arguments": text}


def test_arguments_that_json_lacks_are_null():
    """NaN and infinity, which JSON can't hold, go out as null."""
    assert sent_arguments({"a": float("nan"), "b": [float("-inf")]}) == '{"a": null, "b": [null]}'


def test_lone_surrogates_are_replaced():
    """What can't be encoded is replaced, in text and in arguments; halves that belong together are joined."""
    sent = request_of(UserMessage("a\ud83d"), UserMessage("\ud83d\ude00"), call({"k": "\udc00"}))

    assert sent[0]["content"] == "a\ufffd"
    assert sent[1]["content"] == "😀"
    assert sent[2]["tool_calls"][0]["function"]["arguments"] == '{"k": "\ufffd"}'


def test_an_image_in_an_answer_is_not_sent():
    """An answer's own image has no place in the form and is left out."""
    assert request_of(AssistantMessage((TextContent("Here."), PNG))) == [
        {"role": "assistant", "content": "Here."}
    ]


def test_an_agent_context_is_brought_into_the_models_words():
    """Application messages of an agent's context go out as what they tell a model."""
    context = AgentContext(
        "",
        [
            BashExecutionMessage("ls", "a.txt"),
            BashExecutionMessage("secret", exclude_from_context=True),
            CustomMessage("note", "Mind the gap."),
        ],
    )
    sent = openai_messages(context)

    assert [message["role"] for message in sent] == ["user", "user"]
    assert "a.txt" in sent[0]["content"]
    assert sent[1]["content"] == "Mind the gap."


def test_an_agent_context_is_repaired():
    """A failed answer and a call without result in an agent's context make no invalid request."""
    context = AgentContext(
        "",
        [
            UserMessage("a"),
            AssistantMessage("half", stop_reason="aborted"),
            call({}),
            UserMessage("b"),
        ],
    )
    sent = openai_messages(context)

    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "user"]


def test_the_request_has_tools_only_where_there_are_any():
    """`tools` is left out where there are none."""
    tool = make_tool()
    with_tool = format_msg_for_llm(AgentContext("", [UserMessage("a")], [tool]))

    assert set(with_tool) == {"messages", "tools"}
    assert set(format_msg_for_llm(LlmContext("", [UserMessage("a")]))) == {"messages"}


def test_a_request_is_json():
    """A whole request can be written as JSON."""
    context = LlmContext("s", [UserMessage(("x", PNG)), call({"k": [1]})], [make_tool()])
    request = format_msg_for_llm(context)

    assert json.loads(json.dumps(request)) == request


# -- tools ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": None, "required": None},
        {"properties": {}},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"},
    ],
)
def test_parameters_are_always_an_object_with_properties(schema):
    """A schema without parameters is sent as an object with empty properties and stays as it was."""
    tool = make_tool(schema=schema)
    (sent,) = openai_tools({"get": tool})

    assert sent["function"]["parameters"]["type"] == "object"
    assert sent["function"]["parameters"]["properties"] == {}
    assert tool.input_schema == schema


def test_a_whole_schema_is_sent_as_it_is():
    """A schema with references goes out whole and unchanged."""
    schema = {
        "type": "object",
        "properties": {"q": {"$ref": "#/$defs/Q", "description": "what"}},
        "$defs": {"Q": {"type": "string"}},
    }
    tool = make_tool(schema=schema)
    (sent,) = openai_tools({"get": tool})

    assert sent == {
        "type": "function",
        "function": {"name": "get", "description": "Gets.", "parameters": schema},
    }


def test_tools_keep_their_order():
    """Definitions come in the order of the mapping."""
    tools = {name: make_tool(name) for name in ("b", "a", "c")}

    assert [sent["function"]["name"] for sent in openai_tools(tools)] == ["b", "a", "c"]


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_a_message_is_converted_once():
    """The dicts of a message are the same objects in every request, also behind other messages."""
    first, second = UserMessage("a"), AssistantMessage("b")
    one = request_of(first, second)
    other = request_of(UserMessage("before"), first, second)

    assert one[0] is other[1]
    assert one[1] is other[2]


def test_a_tool_is_converted_once():
    """The definition of a tool is the same object in every request."""
    tool = make_tool()

    assert openai_tools({"get": tool})[0] is openai_tools({"get": tool})[0]


def test_a_growing_history_gives_what_a_fresh_one_gives():
    """Requests of a growing conversation hold the same as requests built from nothing."""
    history = Transcript()
    kept = []
    for number in range(6):
        turn = (
            UserMessage(f"q{number}"),
            call({"n": number}, call_id=f"c{number}"),
            ToolResultMessage(f"c{number}", "get", (TextContent("r"), PNG)),
            AssistantMessage(f"a{number}"),
        )
        for message in turn:
            history = history.append(message)
            kept.append((openai_messages(LlmContext("", history)), list(history)))

    for sent, messages in kept:
        assert sent == request_of(*(attrs.evolve(message) for message in messages))


def test_two_branches_of_a_history_do_not_mix():
    """Histories that share their beginning, or their last message, are kept apart."""
    root, end = UserMessage("root"), UserMessage("end")
    left, right = AssistantMessage("left"), AssistantMessage("right")
    sent = [request_of(root, side, end) for side in (left, right, left)]

    assert [messages[1]["content"] for messages in sent] == ["left", "right", "left"]


def test_a_group_of_tool_results_may_be_cut():
    """A request that ends within a group of results does not misplace images in the next one."""
    first = ToolResultMessage("c1", "draw", (PNG,))
    second = ToolResultMessage("c2", "get", "x")
    request_of(first)
    sent = request_of(first, second)

    assert [message["role"] for message in sent] == ["tool", "tool", "user"]


def test_the_lists_of_a_request_are_the_callers():
    """Changing the list of a request changes no later request."""
    message = UserMessage("a")
    request_of(message).append("junk")
    request_of(message).clear()

    assert len(request_of(message)) == 1


def test_the_dicts_of_a_request_refuse_changes():
    """A user's function can't corrupt the dicts that later requests share."""
    (sent,) = request_of(call({"k": 1}))

    with pytest.raises(TypeError):
        sent["content"] = "x"
    with pytest.raises(TypeError):
        sent["tool_calls"][0]["function"]["arguments"] = "{}"


def test_nothing_is_kept_of_a_conversation_that_is_gone():
    """With a conversation's last message all that was kept of it goes."""
    gc.collect()
    before = (len(openai_format.message_dicts._kept), len(openai_format._conversations._kept))
    history = [UserMessage(f"m{number}") for number in range(50)]
    request_of(*history)
    del history
    gc.collect()

    after = (len(openai_format.message_dicts._kept), len(openai_format._conversations._kept))
    assert after == before


def test_the_number_of_kept_conversations_is_bounded():
    """However many conversations live, so many converted ones are kept and the rest made anew."""
    conversations = openai_format.Conversations()
    messages = [UserMessage(str(number)) for number in range(openai_format.MAX_CONVERSATIONS + 5)]
    for message in messages:
        conversations.messages([message])

    assert len(conversations._kept) == openai_format.MAX_CONVERSATIONS
    assert conversations.messages([messages[0]]) == [{"role": "user", "content": "0"}]


def test_threads_may_format_one_history_at_once():
    """Threads that format growing pieces of one history all get the right dicts."""
    history = [UserMessage(str(number)) for number in range(200)]
    start = threading.Barrier(8)
    wrong = []

    def work():
        start.wait()
        for end in range(1, 200):
            sent = request_of(*history[:end])
            if [message["content"] for message in sent] != [str(n) for n in range(end)]:
                wrong.append(end)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


# -- answers ----------------------------------------------------------------------------------------------------------


def response(message, finish="stop", **fields):
    return {
        "id": "r1",
        "model": "m",
        "choices": [{"message": message, "finish_reason": finish}],
        **fields,
    }


def test_text_is_an_answer():
    """A string is an answer of one text block."""
    assert assistant_message("hi").content == (TextContent("hi"),)


def test_a_message_is_the_answer_it_is():
    """An `AssistantMessage` comes back as the same object, also from inside a dict."""
    answer = AssistantMessage("hi")

    assert assistant_message(answer) is answer
    assert assistant_message({"message": answer}) is answer


def test_a_response_tells_of_model_usage_and_id():
    """An OpenAI response gives the message with what the response says about it."""
    counts = {"prompt_tokens": 20, "completion_tokens": 5}
    answer = assistant_message(response({"role": "assistant", "content": "hi"}, usage=counts))

    assert (answer.text, answer.model, answer.response_id) == ("hi", "m", "r1")
    assert answer.usage == LlmUsage(20, 5)
    assert (answer.stop_reason, answer.raw_stop_reason) == ("stop", "stop")


def test_the_references_dict_is_an_answer():
    """A dict of message, finish_reason, api, provider, model and usage gives all of them."""
    answer = assistant_message(
        {
            "message": {"role": "assistant", "content": [{"type": "text", "text": "hi"}]},
            "finish_reason": "length",
            "api": "a",
            "provider": "p",
            "model": "m",
            "usage": LlmUsage(100, 50),
        }
    )

    assert (answer.text, answer.stop_reason) == ("hi", "length")
    assert (answer.api, answer.provider, answer.model) == ("a", "p", "m")
    assert answer.usage == LlmUsage(100, 50)


@pytest.mark.parametrize(
    "message", ["hi", {"content": "hi"}, {"role": "assistant", "content": "hi"}]
)
def test_a_message_may_be_text_or_a_dict(message):
    """The message of a dict may itself be text."""
    assert assistant_message({"message": message}).text == "hi"


@pytest.mark.parametrize(
    "answer",
    [
        None,
        7,
        ["hi"],
        {},
        {"x": 1},
        {"choices": []},
        {"choices": None},
        {"choices": ["x"]},
        {"choices": [{"message": None}]},
        {"message": 7},
        {"role": "user", "content": "hi"},
        {"content": 5},
        {"content": False, "reasoning": "Hm."},
        {"content": "", "tool_calls": "x"},
        {"tool_calls": 5},
        {"choices": [{"message": {"content": None, "function_call": "x"}}]},
    ],
)
def test_what_is_no_answer_is_a_bad_response(answer):
    """What holds no assistant message raises BadResponseError and shows what came."""
    with pytest.raises(BadResponseError):
        assistant_message(answer)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"content": 5}, "gave 5 as the content of its message; give text or a list of parts"),
        ({"tool_calls": "x"}, "gave 'x' as the tool calls of its message; give a list of them"),
    ],
)
def test_what_a_message_holds_in_place_of_content_is_named(answer, text):
    """A message that says nothing, since what is in it can't be read, is no empty answer: the text shows it."""
    with pytest.raises(BadResponseError, match=text):
        assistant_message(answer)


def test_what_can_be_read_counts_beside_what_can_not():
    """An answer is read leniently: one that says something is an answer, whatever else is in it."""
    assert assistant_message({"content": "hi", "tool_calls": "x"}).text == "hi"
    assert assistant_message({"content": 5, "tool_calls": [FLAT]}).tool_calls[0].name == "get"


@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"message": "quota"}},
        {"error": "quota"},
        {"choices": [], "error": {"message": "quota"}},
    ],
)
def test_an_error_body_is_named(answer):
    """An error object in place of an answer raises with the server's words."""
    with pytest.raises(BadResponseError, match="quota"):
        assistant_message(answer)


NESTED = {"id": "c1", "type": "function", "function": {"name": "get", "arguments": '{"k": 1}'}}
FLAT = {"id": "c1", "name": "get", "arguments": {"k": 1}}


@pytest.mark.parametrize(
    "message",
    [
        {"tool_calls": [NESTED]},
        {"tool_calls": [FLAT]},
        {"tool_calls": NESTED},
        {"tool_call": FLAT},
        {"content": [{"type": "tool_calls", "tool_calls": [NESTED]}]},
        {"content": [{"type": "tool_calls", "tool_calls": [FLAT]}]},
        {"content": [{"type": "tool_call", **FLAT}]},
        {"content": [{"type": "toolCall", **FLAT}]},
        {"content": {"type": "tool_call", **FLAT}},
        {"content": [{"type": "tool_use", "id": "c1", "name": "get", "input": {"k": 1}}]},
        {"content": [ToolCall("c1", "get", {"k": 1})]},
        {"tool_calls": [ToolCall("c1", "get", {"k": 1})]},
    ],
)
def test_every_known_shape_of_a_call_is_read(message):
    """Calls are found in every shape: nested or flat, in a list or alone, beside the content or in it."""
    answer = assistant_message({"role": "assistant", **message})

    assert answer.tool_calls == (ToolCall("c1", "get", {"k": 1}),)
    assert answer.stop_reason == "tool_use"


def test_the_old_function_call_is_read():
    """A message with the deprecated function_call gives a call with a fresh id."""
    answer = assistant_message(
        response({"function_call": {"name": "get", "arguments": "{}"}}, "function_call")
    )

    assert answer.tool_calls[0].name == "get"
    assert answer.tool_calls[0].id.startswith("call_")


def test_a_call_without_a_name_keeps_its_place():
    """A call whose name never came is a call of no tool, not nothing."""
    assert tool_calls([{"type": "tool_call", "arguments": {}}])[0].name == ""


def test_a_function_may_be_named_directly():
    """A call whose `function` is the bare name is read."""
    (found,) = tool_calls([{"type": "tool_call", "function": "get", "arguments": "{}"}])

    assert (found.name, found.arguments) == ("get", {})


def test_missing_and_doubled_ids_become_fresh():
    """Ids that are empty, null or doubled are replaced; the first holder keeps its own."""
    calls = [{"id": given, "name": "get"} for given in ("", None, "dup", "dup", 7)]
    answer = assistant_message({"tool_calls": calls})
    ids = [found.id for found in answer.tool_calls]

    assert len(set(ids)) == 5
    assert "" not in ids
    assert (ids[2], ids[4]) == ("dup", "7")


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ('{"k": 1}', {"k": 1}),
        ({"k": 1}, {"k": 1}),
        (None, {}),
        ("", {}),
        ("  ", {}),
        ('{"k": ', '{"k": '),
        ("[1]", "[1]"),
        ([1], "[1]"),
        (5, "5"),
    ],
)
def test_arguments_are_kept_as_the_model_sent_them(sent, stored):
    """Arguments are an object where they are one; anything else stays as its text."""
    (found,) = tool_calls([{"type": "tool_call", "name": "get", "arguments": sent}])

    assert found.arguments == stored


def test_text_and_unknown_parts_hold_no_calls():
    """Content without calls gives none."""
    assert tool_calls("text") == ()
    assert tool_calls(None) == ()
    assert tool_calls([{"type": "strange"}, 7]) == ()


@pytest.mark.parametrize(
    ("finish", "has_calls", "expected"),
    [
        ("stop", False, "stop"),
        ("stop", True, "tool_use"),
        ("tool_calls", True, "tool_use"),
        ("tool_calls", False, "tool_use"),
        ("function_call", True, "tool_use"),
        ("length", True, "length"),
        ("LENGTH", False, "length"),
        ("max_tokens", False, "length"),
        ("content_filter", True, "error"),
        ("error", False, "error"),
        ("other", True, "tool_use"),
        ("other", False, "stop"),
        (None, True, "tool_use"),
        (None, False, "stop"),
    ],
)
def test_stop_reasons_are_mapped(finish, has_calls, expected):
    """Calls decide about unknown words; being cut off or filtered decides over calls."""
    assert stop_reason(finish, has_calls=has_calls) == expected


def test_a_filtered_answer_says_so():
    """An answer that the content filter ended is an error that names the server's word."""
    answer = assistant_message(response({"content": "ha"}, "content_filter"))

    assert answer.stop_reason == "error"
    assert "content_filter" in answer.error_message


def test_content_parts_are_joined_and_thinking_is_told_apart():
    """Text parts join to the text, thinking parts to the thinking, unknown parts are left out."""
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "An"},
        {"type": "strange", "x": 1},
        {"type": "output_text", "text": {"value": "swer"}},
        "!",
        "",
        {"type": "text", "text": None},
        {"type": "reasoning"},
        7,
    ]
    answer = assistant_message(response({"content": parts}))

    assert (answer.text, answer.thinking) == ("Answer!", "hm")


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_a_field_of_reasoning_becomes_thinking(field):
    """Reasoning beside the content is a thinking block before it."""
    answer = assistant_message(response({"content": "42", field: "Let me think."}))

    assert answer.content == (ThinkingContent("Let me think."), TextContent("42"))


def test_mirrored_reasoning_is_taken_once():
    """Reasoning that stands in the content and beside it is read once."""
    parts = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "42"}]
    answer = assistant_message(response({"content": parts, "reasoning_content": "hm"}))

    assert answer.thinking == "hm"


def test_a_refusal_is_the_answers_text():
    """A refusal in the place of content is shown as the text."""
    answer = assistant_message(response({"content": None, "refusal": "I can't."}))

    assert answer.text == "I can't."


def test_an_image_in_an_answer_is_read():
    """A data URI in an answer becomes an image block; an address does not."""
    parts = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    ]

    assert assistant_message({"content": parts}).content == (PNG,)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        ("many", None),
        ({}, None),
        ({"prompt_tokens": None, "completion_tokens": None}, None),
        ({"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}, LlmUsage(12, 3)),
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 30,
                "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
                "completion_tokens_details": {"reasoning_tokens": 20},
                "cost": 0.5,
            },
            LlmUsage(30, 30, 60, 10, 20, 0.5),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 1, "prompt_cache_hit_tokens": 8},
            LlmUsage(2, 1, 8),
        ),
        ({"prompt_tokens": 5, "completion_tokens": 1, "cached_tokens": 9}, LlmUsage(0, 1, 9)),
        ({"input_tokens": 5, "output_tokens": 2}, LlmUsage(5, 2)),
        ({"prompt_tokens": 5, "completion_tokens": math.inf}, LlmUsage(5)),
        ({"prompt_tokens": math.nan, "completion_tokens": 2}, LlmUsage(0, 2)),
        ({"prompt_tokens": 5, "cost": math.inf}, LlmUsage(5)),
        ({"prompt_tokens": 5, "cost": 10**400}, LlmUsage(5)),
        (LlmUsage(1, 2), LlmUsage(1, 2)),
    ],
)
def test_usage_keeps_the_counts_apart(given, expected):
    """Cached input is taken out of the input; what is no count is no count."""
    assert usage(given) == expected


def test_message_dict_is_a_plain_openai_message():
    """An answer as a dict is plain, may be changed, and reads back as the same content."""
    answer = AssistantMessage(
        (TextContent("hi"), ToolCall("c1", "get", {"k": 1})), stop_reason="tool_use"
    )
    given = message_dict(answer)
    again = assistant_message(given)
    given["tool_calls"][0]["function"]["name"] = "other"

    assert again.content == answer.content
    assert type(given) is dict
    assert message_dict(AssistantMessage("hi")) == {"role": "assistant", "content": "hi"}


# -- users' messages --------------------------------------------------------------------------------------------------


def test_a_user_message_is_the_message_it_is():
    """A `UserMessage` comes back as the same object."""
    message = UserMessage("hi")

    assert user_message(message) is message


@pytest.mark.parametrize(
    "message",
    [
        "hi",
        TextContent("hi"),
        [TextContent("hi")],
        ["hi"],
        {"role": "user", "content": "hi"},
        {"content": "hi"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "user", "content": {"type": "text", "text": "hi"}},
        {"role": "user", "content": ["hi"]},
    ],
)
def test_text_in_every_form_is_a_user_message(message):
    """Text, blocks and OpenAI dicts all say the same."""
    assert user_message(message).content == (TextContent("hi"),)


@pytest.mark.parametrize(
    "part",
    [
        PNG,
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        {"type": "image_url", "image_url": "data:image/png;base64,iVBOR\nw0KGgo="},
        {"type": "image_url", "image_url": {"url": "data:image/png,%89PNG%0D%0A%1A%0A"}},
        {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
    ],
)
def test_images_are_read_from_data_uris(part):
    """An image is taken from a data URI, in base64 or percent-encoded, or from its data."""
    assert user_message({"role": "user", "content": [part]}).content == (PNG,)


@pytest.mark.parametrize("message", [None, 7, b"hi", [7], {"content": 7}, AssistantMessage("hi")])
def test_what_is_no_message_is_a_type_error(message):
    """What is neither text nor a user message raises in the caller's thread."""
    with pytest.raises(TypeError):
        user_message(message)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "hi"},
        {"role": "user"},
        {"role": "user", "content": None},
        {"content": [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]},
        {"content": [{"type": "input_audio", "input_audio": {"data": "x" * 500}}]},
        {"content": [{"type": "text"}]},
    ],
)
def test_what_cannot_be_sent_is_a_value_error(message):
    """A dict of another role, or with parts that can't be sent, raises with what to do."""
    with pytest.raises(ValueError, match=r"message|content part"):
        user_message(message)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_arguments_survive_the_way_out_and_back(arguments):
    """What a model sent as arguments is what it sees replayed."""
    text = sent_arguments(FrozenDict(arguments))
    (found,) = tool_calls([{"type": "tool_call", "name": "get", "arguments": text}])

    assert found.arguments == arguments


@given(JSON)
def test_no_answer_raises_anything_else(answer):
    """Whatever a server sends, reading it gives a message or a BadResponseError."""
    for wrapped in (answer, {"message": answer}, {"choices": [{"message": answer}]}):
        try:
            message = assistant_message(wrapped)
        except BadResponseError:
            continue
        assert isinstance(message, AssistantMessage)


@given(st.lists(JSON, max_size=4))
def test_no_content_raises(parts):
    """Whatever stands in the content of an answer, what is known in it is read."""
    answer = assistant_message({"role": "assistant", "content": parts, "tool_calls": parts})

    assert isinstance(answer, AssistantMessage)
