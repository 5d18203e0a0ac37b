"""Bodies of requests to the Gemini API, by the generation of the model."""

import json

import pytest

from yiemagent.context import LlmContext
from yiemagent.errors import ConfigurationError
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
from yiemagent.providers import gemini_body
from yiemagent.providers.body_encoder import BodyEncoder
from yiemagent.providers.gemini_body import request_body, traits_of
from yiemagent.tool import AgentTool

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
LOOK = AgentTool("look", description="Looks.", input_schema=SCHEMA, execute=lambda *_: "x")
WAIT = AgentTool("wait", description="Waits.", execute=lambda *_: "x")
NEW, OLD = "gemini-3.8-flash", "gemini-2.5-flash"
HELLO = (UserMessage("hi"),)
PICTURE = ImageContent("aGk=", "image/png")
PICTURE_PART = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}


def body(messages=HELLO, options=None, *, model=NEW, system="", tools=()):
    context = LlmContext(system, list(messages), tools)
    return request_body(
        context, options or StreamOptions(), model=model, provider="gemini", api="gemini"
    )


def contents(*messages, model=NEW):
    made = body(messages, model=model)["contents"]
    json.dumps(made, allow_nan=False)
    return made


def answer(*blocks, model=NEW):
    return AssistantMessage(blocks, api="gemini", provider="gemini", model=model)


def config(options, model=NEW):
    return body(options=options, model=model).get("generationConfig")


# --- contents --------------------------------------------------------------------------------------------------------


def test_plain():
    """Without options a body has the system prompt and the contents, and nothing else."""
    assert body(system="Be brief.") == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
    }


def test_lone_surrogates_of_the_system_prompt_are_replaced():
    """A system prompt can be sent whatever is in it."""
    made = body(system="a\ud83d")

    assert made["systemInstruction"]["parts"] == [{"text": "a\ufffd"}]


def test_a_conversation_with_a_tool():
    """A call goes back with its id and signature, and its result under the same id and name."""
    given = contents(
        UserMessage("look"),
        answer(
            ThinkingContent("hm"),
            TextContent("I look."),
            ToolCall("c1", "look", {"n": 1}, None, "c2ln"),
        ),
        ToolResultMessage("c1", "look", "seen"),
        answer(TextContent("Seen.")),
    )

    assert given == [
        {"role": "user", "parts": [{"text": "look"}]},
        {
            "role": "model",
            "parts": [
                {"text": "I look."},
                {
                    "functionCall": {"id": "c1", "name": "look", "args": {"n": 1}},
                    "thoughtSignature": "c2ln",
                },
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "name": "look",
                        "id": "c1",
                        "response": {"output": "seen"},
                    }
                }
            ],
        },
        {"role": "model", "parts": [{"text": "Seen."}]},
    ]


def test_signatures_go_back_in_the_part_they_came_with():
    """Signed text, thinking and empty parts keep their signatures and their places; unsigned thinking is not sent."""
    message = answer(
        ThinkingContent("secret", "dGg="),
        ThinkingContent("not signed"),
        TextContent("Hello"),
        TextContent("", "ZW0="),
    )

    assert contents(UserMessage("hi"), message)[1]["parts"] == [
        {"text": "secret", "thought": True, "thoughtSignature": "dGg="},
        {"text": "Hello"},
        {"text": "", "thoughtSignature": "ZW0="},
    ]


def test_only_the_first_of_parallel_calls_is_signed():
    """Parallel calls stay in one content, and what was not signed is not signed."""
    message = answer(ToolCall("a", "look", {}, None, "c2ln"), ToolCall("b", "look", {}))
    model, results = contents(
        UserMessage("hi"), message, ToolResultMessage("a", "look", "1"), ToolResultMessage("b", "look", "2")
    )[1:]  # fmt: skip

    assert [part.get("thoughtSignature") for part in model["parts"]] == ["c2ln", None]
    assert [part["functionResponse"]["id"] for part in results["parts"]] == ["a", "b"]


def test_calls_of_another_model_are_marked_as_such():
    """A call that no Gemini model signed gets the mark for it, once per answer, and no foreign signature."""
    message = AssistantMessage(
        [ToolCall("a", "look", {}, None, "foreign"), ToolCall("b", "look", {})],
        api="anthropic-messages", provider="anthropic", model="claude",
    )  # fmt: skip
    results = ToolResultMessage("a", "look", "1"), ToolResultMessage("b", "look", "2")

    new = contents(UserMessage("hi"), message, *results)[1]["parts"]
    old = contents(UserMessage("hi"), message, *results, model=OLD)[1]["parts"]

    assert [part.get("thoughtSignature") for part in new] == [
        "skip_thought_signature_validator",
        None,
    ]
    assert [part.get("thoughtSignature") for part in old] == [None, None]


def test_signatures_of_another_gemini_model_are_dropped():
    """A signature is the model's own: another one gets the call without it."""
    message = answer(
        ThinkingContent("hm", "dGg="),
        ToolCall("a", "look", {}, None, "c2ln"),
        model="gemini-3-flash",
    )
    parts = contents(UserMessage("hi"), message, ToolResultMessage("a", "look", "1"))[1]["parts"]

    assert parts[0] == {"text": "hm"}
    assert parts[1]["thoughtSignature"] == "skip_thought_signature_validator"


def test_older_models_get_no_ids():
    """Before Gemini 3 calls and results are told apart by their order alone."""
    message = answer(ToolCall("a", "look", {"n": 1}), model=OLD)
    given = contents(UserMessage("hi"), message, ToolResultMessage("a", "look", "1"), model=OLD)

    assert given[1]["parts"] == [{"functionCall": {"name": "look", "args": {"n": 1}}}]
    assert given[2]["parts"] == [
        {"functionResponse": {"name": "look", "response": {"output": "1"}}}
    ]


def test_an_error_result_is_an_error():
    """What a tool failed with stands under "error", and no output is said in words."""
    messages = [
        UserMessage("hi"),
        answer(ToolCall("a", "look", {}), ToolCall("b", "look", {})),
        ToolResultMessage("a", "look", "no way", is_error=True),
        ToolResultMessage("b", "look", ""),
    ]
    responses = [part["functionResponse"]["response"] for part in contents(*messages)[2]["parts"]]

    assert responses == [{"error": "no way"}, {"output": "(no output)"}]


def test_images():
    """Images of a user go inline; a kind that models don't read becomes a note."""
    message = UserMessage([TextContent("see"), PICTURE, ImageContent("aGk=", "image/tiff")])
    parts = contents(message)[0]["parts"]

    assert parts[:2] == [{"text": "see"}, PICTURE_PART]
    assert "image/tiff" in parts[2]["text"]


def test_images_of_tool_results():
    """Newer models see an image inside the result, older ones in a content behind the results."""
    messages = [
        UserMessage("hi"),
        answer(ToolCall("a", "look", {}), ToolCall("b", "look", {})),
        ToolResultMessage("a", "look", [PICTURE]),
        ToolResultMessage("b", "look", "2"),
        UserMessage("and?"),
    ]
    new = contents(*messages)[2:]
    old = contents(*messages, model=OLD)[2:]

    assert new[0]["parts"][0]["functionResponse"]["parts"] == [PICTURE_PART]
    assert new[1:] == [{"role": "user", "parts": [{"text": "and?"}]}]
    assert [set(part) for part in old[0]["parts"]] == [{"functionResponse"}] * 2
    assert old[0]["parts"][0]["functionResponse"]["response"] == {"output": "(the image follows)"}
    assert old[1]["parts"] == [{"text": "What the tool 'look' shows:"}, PICTURE_PART]
    assert old[2] == new[1]


def test_the_models_own_image_goes_back():
    """An image that the model made goes back to it."""
    assert contents(UserMessage("draw"), answer(PICTURE))[1]["parts"] == [PICTURE_PART]


def test_neighbours_of_one_kind_are_one_content():
    """User messages in a row make one content, and so do answers; results stay apart from what a user says."""
    given = contents(
        UserMessage("a"), UserMessage("b"), answer(TextContent("c")), answer(ToolCall("x", "look", {})),
        ToolResultMessage("x", "look", "d"), UserMessage("e"),
    )  # fmt: skip

    assert [content["role"] for content in given] == ["user", "model", "user", "user"]
    assert given[0]["parts"] == [{"text": "a"}, {"text": "b"}]
    assert [len(content["parts"]) for content in given] == [2, 2, 1, 1]


def test_a_conversation_begins_with_the_user():
    """A history that begins with an answer gets a beginning."""
    assert [content["role"] for content in contents(answer(TextContent("a")))] == ["user", "model"]


def test_an_answer_that_says_nothing_is_left_out():
    """An answer of which nothing can be sent makes no content."""
    given = contents(UserMessage("a"), answer(ThinkingContent("hm")), UserMessage("b"))

    assert all(content["parts"] for content in given)
    assert "hm" not in json.dumps(given)


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ('{"n": 1', {"invalid_arguments": '{"n": 1'}),
        ('```json\n{"n": 1}\n```', {"n": 1}),
        ("", {}),
        ({"n": float("nan"), "m": [float("inf")]}, {"n": None, "m": [None]}),
    ],
)  # fmt: skip
def test_arguments_are_an_object_whatever_the_model_wrote(arguments, sent):
    """Arguments that were no object go back as one, and what JSON can't hold as null."""
    message = answer(ToolCall("a", "look", arguments))
    parts = contents(UserMessage("hi"), message, ToolResultMessage("a", "look", "1"))[1]["parts"]

    assert parts[0]["functionCall"]["args"] == sent


def test_what_was_sent_before_is_the_same_object():
    """The contents of an earlier request come again as the same objects, groups too, and are encoded once."""
    history = [
        UserMessage("a"), UserMessage("b"),
        answer(ToolCall("x", "look", {}), ToolCall("y", "look", {})),
        ToolResultMessage("x", "look", "1"), ToolResultMessage("y", "look", "2"),
    ]  # fmt: skip
    first = body(history, tools=[LOOK])
    second = body([*history, answer(TextContent("c")), UserMessage("d")], tools=[LOOK])

    assert [
        one is other for one, other in zip(first["contents"], second["contents"], strict=False)
    ] == [True] * 3
    assert first["tools"][0] is second["tools"][0]
    assert json.loads(BodyEncoder().encode(second)) == second


def test_a_group_that_changed_is_made_again():
    """The same last message behind another one is another content."""
    last = UserMessage("b")

    assert contents(UserMessage("a"), last)[0]["parts"] == [{"text": "a"}, {"text": "b"}]
    assert contents(UserMessage("z"), last)[0]["parts"] == [{"text": "z"}, {"text": "b"}]
    assert contents(last)[0]["parts"] == [{"text": "b"}]


def test_nothing_is_kept_of_messages_that_are_gone():
    """What was made of a message goes with it."""
    before = len(gemini_body._modern._kept)
    message = UserMessage("short-lived")
    contents(message)
    assert len(gemini_body._modern._kept) == before + 1
    del message

    assert len(gemini_body._modern._kept) == before


# --- tools -----------------------------------------------------------------------------------------------------------


def test_tools():
    """Tools are declared in order, with their schema as JSON Schema; one without parameters has none."""
    assert body(tools=[LOOK, WAIT])["tools"] == [
        {
            "functionDeclarations": [
                {"name": "look", "description": "Looks.", "parametersJsonSchema": SCHEMA},
                {"name": "wait", "description": "Waits."},
            ]
        }
    ]


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        ({"properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
        ({"type": "object", "additionalProperties": False}, None),
        ({"$ref": "#/$defs/A", "$defs": {"A": SCHEMA}},
         {**SCHEMA, "$defs": {"A": SCHEMA}}),
    ],
)  # fmt: skip
def test_schemas_are_objects(schema, sent):
    """A schema is sent as it is, and says that it is an object's."""
    tool = AgentTool("t", description="T.", input_schema=schema, execute=lambda *_: "x")
    (declared,) = body(tools=[tool])["tools"][0]["functionDeclarations"]

    assert declared.get("parametersJsonSchema") == sent


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ("look", {"mode": "ANY", "allowedFunctionNames": ["look"]}),
    ],
)
def test_tool_choice(choice, sent):
    """A choice is sent with tools only, since it is refused without."""
    options = StreamOptions(tool_choice=choice)

    assert body(options=options, tools=[LOOK])["toolConfig"] == {"functionCallingConfig": sent}
    assert "toolConfig" not in body(options=options)


def test_many_lists_of_tools_are_forgotten():
    """Lists of tools that change with each request are not kept without bound."""
    for number in range(80):
        tool = AgentTool(f"t{number}", description="T.", execute=lambda *_: "x")
        (declared,) = body(tools=[tool])["tools"][0]["functionDeclarations"]
        assert declared["name"] == f"t{number}"

    assert len(gemini_body._tools._kept) <= 64


# --- settings --------------------------------------------------------------------------------------------------------


def test_options():
    """Temperature and limit stand in the generation config."""
    assert config(StreamOptions(temperature=0.5, max_tokens=9)) == {
        "temperature": 0.5,
        "maxOutputTokens": 9,
    }


@pytest.mark.parametrize(
    ("model", "level", "sent"),
    [
        ("gemini-2.5-flash", "off", {"thinkingBudget": 0}),
        ("gemini-2.5-flash", "low", {"thinkingBudget": 2048, "includeThoughts": True}),
        ("gemini-2.5-flash", "max", {"thinkingBudget": 24_576, "includeThoughts": True}),
        ("gemini-2.5-pro", "off", {"thinkingBudget": 128}),
        ("gemini-2.5-pro", "max", {"thinkingBudget": 32_768, "includeThoughts": True}),
        ("gemini-3-pro-preview", "low", {"thinkingLevel": "LOW", "includeThoughts": True}),
        ("gemini-3-pro-preview", "medium", {"thinkingLevel": "HIGH", "includeThoughts": True}),
        ("gemini-3.1-pro", "medium", {"thinkingLevel": "MEDIUM", "includeThoughts": True}),
        (
            "gemini-3-flash-preview",
            "minimal",
            {"thinkingLevel": "MINIMAL", "includeThoughts": True},
        ),
        ("gemini-3-flash-preview", "off", {"thinkingLevel": "MINIMAL"}),
        ("gemini-3.8-flash", "minimal", {"thinkingLevel": "LOW", "includeThoughts": True}),
        ("gemini-3.8-flash", "xhigh", {"thinkingLevel": "HIGH", "includeThoughts": True}),
        ("gemini-4-argon", "off", {"thinkingLevel": "LOW"}),
        ("models/gemini-4-neon", "medium", {"thinkingLevel": "MEDIUM", "includeThoughts": True}),
        ("gemini-flash-latest", "high", {"thinkingLevel": "HIGH", "includeThoughts": True}),
        ("gemma-4-31b-it", "medium", {"thinkingLevel": "HIGH", "includeThoughts": True}),
        ("gemma-3-27b-it", "high", None),
        ("gemini-2.0-flash", "high", None),
    ],
)
def test_thinking(model, level, sent):
    """A level is sent in the words of the model's generation: a level it has, a budget, or nothing."""
    made = config(StreamOptions(reasoning=level), model) or {}

    assert made.get("thinkingConfig") == sent


def test_thinking_budgets():
    """A budget of the user's goes before ours, where the model takes budgets."""
    options = StreamOptions(reasoning="low", thinking_budgets={"low": 77})

    assert config(options, OLD)["thinkingConfig"]["thinkingBudget"] == 77
    assert "thinkingBudget" not in config(options)["thinkingConfig"]


def test_structured_output():
    """A schema for the answer is sent as JSON Schema; older models take it without tools only."""
    options = StreamOptions(output_schema=SCHEMA)
    sent = {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}

    assert config(options) == config(options, OLD) == sent
    assert body(options=options, tools=[LOOK])["generationConfig"] == sent
    with pytest.raises(ConfigurationError, match="not both"):
        body(options=options, tools=[LOOK], model=OLD)


def test_generations():
    """A name says what a model takes, in whatever path it stands; one that says nothing is a new model."""
    modern = ["gemini-3-flash", "tunedModels/gemini-4-argon-x", "gemini-pro-latest", "my-model"]

    assert [traits_of(name).is_modern for name in modern] == [True] * 4
    assert [
        traits_of(name).is_modern for name in ("gemini-2.5-pro", "gemini-1.5-flash", "gemma-3")
    ] == [False] * 3
