"""Bodies of requests to the Anthropic Messages API: what they ask for."""

import json
import logging

import pytest

from yiemagent.context import LlmContext
from yiemagent.llm import StreamOptions
from yiemagent.messages import (
    AssistantMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.payload import FrozenDict
from yiemagent.providers import anthropic_body
from yiemagent.providers.anthropic_body import MAX_WHOLE_TOKENS, request_body
from yiemagent.providers.anthropic_history import target_of
from yiemagent.providers.anthropic_models import nearest_effort, traits_of
from yiemagent.tool import AgentTool

API = "anthropic-messages"
OPUS, SONNET = "claude-opus-5-5", "claude-sonnet-4-5"


def tool(name="look", **schema):
    return AgentTool(
        name, description=f"Does {name}.", execute=lambda *_: "x", input_schema=schema or None
    )


def body(
    options=None, *, model=OPUS, system="Be brief.", tools=(), messages=None, stream=True, **more
):
    context = LlmContext(system, messages or [UserMessage("hi")], tools)
    return request_body(
        context,
        options or StreamOptions(),
        target=target_of(model, "anthropic", API, own_server=True),
        max_tokens=more.pop("max_tokens", 64_000),
        stream=stream,
        **more,
    )


def asked(model=OPUS, **options):
    """The fields that options make, beside those of every request."""
    plain = body(model=model)
    made = body(StreamOptions(**options), model=model, tools=[tool()])
    return {key: made[key] for key in made if made[key] != plain.get(key) and key != "tools"}


@pytest.fixture(autouse=True)
def fresh_warnings():
    """What was told in an earlier test is told again."""
    anthropic_body._tell.cache_clear()


def test_plain():
    """A request names its model, the most tokens that the answer may have, the system prompt and the messages."""
    assert body(StreamOptions(cache="none")) == {
        "model": OPUS,
        "max_tokens": 64_000,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "stream": True,
    }


def test_no_system_prompt():
    """A blank system prompt is not sent, since the API refuses blank text."""
    assert "system" not in body(system=" \n")
    assert body(system="a\ud800")["system"][0]["text"] == "a\ufffd"


@pytest.mark.parametrize(
    "asks, known, stream, given",
    [
        (None, 64_000, True, 64_000),
        (None, None, True, 128_000),
        (None, 64_000, False, MAX_WHOLE_TOKENS),
        (None, 8_192, False, 8_192),
        (500, 64_000, True, 500),
        (30_000, 64_000, False, 30_000),
    ],
)
def test_max_tokens(asks, known, stream, given):
    """The API wants a limit: the one asked for, else the model's, less for an answer that comes whole."""
    made = body(StreamOptions(max_tokens=asks), max_tokens=known, stream=stream)

    assert (made["max_tokens"], made["stream"]) == (given, stream)


@pytest.mark.parametrize(
    "choice, given",
    [
        ("auto", {"type": "auto"}),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        ("look", {"type": "tool", "name": "look"}),
    ],
)
def test_tool_choice(choice, given):
    """A tool choice has the API's own words; without tools there is none."""
    assert body(StreamOptions(tool_choice=choice), tools=[tool()])["tool_choice"] == given
    assert "tool_choice" not in body(StreamOptions(tool_choice=choice))


def test_tools():
    """Tools stand in their order, behind those that run on the server, each made once."""
    search = FrozenDict(type="web_search_20260318", name="web_search")
    tools = [tool("b"), tool("a", type="object", properties={"x": {"type": "integer"}})]
    made = body(StreamOptions(cache="none"), tools=tools, server_tools=[search])["tools"]

    assert made[0] is search
    assert made[1:] == [
        {
            "name": "b",
            "description": "Does b.",
            "input_schema": {"type": "object", "properties": {}},
        },
        {
            "name": "a",
            "description": "Does a.",
            "input_schema": {"type": "object", "properties": {"x": {"type": "integer"}}},
        },
    ]
    again = body(StreamOptions(cache="none"), tools=tools)["tools"]
    assert all(one is other for one, other in zip(made[1:], again, strict=True))
    assert body(server_tools=[search])["tools"] == [search]


def test_eager_input():
    """Tools say so where their arguments are to come as they are made."""
    made = body(tools=[tool()], eager_input=True)["tools"]

    assert made[0]["eager_input_streaming"] is True
    assert "eager_input_streaming" not in body(tools=[tool()])["tools"][0]


# -- caching ----------------------------------------------------------------------------------------------------------


def marks(value, path=""):
    """Where cache marks stand, each with what it says."""
    found = {}
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "cache_control":
                found[path] = item
            else:
                found |= marks(item, f"{path}/{key}")
    if isinstance(value, list):
        for place, item in enumerate(value):
            found |= marks(item, f"{path}/{place}")
    return found


HISTORY = [
    UserMessage("one"),
    AssistantMessage((ToolCall("c1", "look"), ToolCall("c2", "look")), stop_reason="tool_use"),
    ToolResultMessage("c1", "look", "x"),
    ToolResultMessage("c2", "look", "y"),
    AssistantMessage("two"),
    UserMessage("three"),
]


@pytest.mark.parametrize(
    "cache, says",
    [
        (None, {"type": "ephemeral"}),
        ("short", {"type": "ephemeral"}),
        ("long", {"type": "ephemeral", "ttl": "1h"}),
    ],
)
def test_cache_marks(cache, says):
    """Marks stand at the last tool, the system prompt, and the last blocks of the last two messages of the user's
    side.
    """
    made = body(StreamOptions(cache=cache), tools=[tool("a"), tool("b")], messages=HISTORY)

    assert marks(made) == dict.fromkeys(
        ["/tools/1", "/system/0", "/messages/2/content/1", "/messages/4/content/0"], says
    )


def test_no_cache_marks():
    """Without caching there is no mark."""
    assert marks(body(StreamOptions(cache="none"), tools=[tool()], messages=HISTORY)) == {}


def test_a_longer_history_keeps_its_beginning():
    """What an earlier request held is the same in a later one, but for the marks; unmarked messages are the same
    objects.
    """
    first = body(messages=HISTORY)["messages"]
    longer = [*HISTORY, AssistantMessage("four"), UserMessage("five")]
    second = body(messages=longer)["messages"]
    third = body(messages=[*longer, AssistantMessage("six"), UserMessage("seven")])["messages"]

    def bare(messages):
        return json.loads(
            json.dumps(messages).replace(', "cache_control": {"type": "ephemeral"}', "")
        )

    assert bare(second[:5]) == bare(first)
    assert second[4] is first[4]
    assert third[0] is second[0] and third[1] is second[1] and third[3] is second[3]
    assert set(marks(second)) == {"/4/content/0", "/6/content/0"}


# -- thinking ---------------------------------------------------------------------------------------------------------

SHOWN = {"type": "adaptive", "display": "summarized"}


@pytest.mark.parametrize(
    "model, level, fields",
    [
        (OPUS, None, {}),
        (OPUS, "minimal", {"thinking": SHOWN, "output_config": {"effort": "low"}}),
        (OPUS, "xhigh", {"thinking": SHOWN, "output_config": {"effort": "xhigh"}}),
        (OPUS, "off", {"output_config": {"effort": "low"}}),
        ("claude-fable-5-2", "max", {"thinking": SHOWN, "output_config": {"effort": "max"}}),
        ("claude-opus-5", "off", {"thinking": {"type": "disabled"}}),
        ("claude-haiku-5-5", "off", {"thinking": {"type": "disabled"}}),
        ("claude-sonnet-5-5", "off", {"thinking": {"type": "between_tools"}}),
        ("claude-opus-4-8", "off", {}),
        (
            "claude-opus-4-6",
            "xhigh",
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
        ),
        (SONNET, "off", {}),
        (SONNET, "minimal", {"thinking": {"type": "enabled", "budget_tokens": 1_024}}),
        (SONNET, "high", {"thinking": {"type": "enabled", "budget_tokens": 16_384}}),
        (SONNET, "max", {"thinking": {"type": "enabled", "budget_tokens": 32_768}}),
        ("claude-3-5-haiku-latest", "high", {}),
        ("kimi-k3", "off", {"thinking": {"type": "disabled"}}),
        ("kimi-k3", "low", {"thinking": {"type": "enabled", "budget_tokens": 2_048}}),
        ("claude-of-tomorrow-9", "high", {"thinking": SHOWN, "output_config": {"effort": "high"}}),
    ],
)
def test_reasoning(model, level, fields):
    """A reasoning level is what the model's generation takes: effort, a budget, or a word that turns thinking off."""
    assert asked(model, reasoning=level) == fields


@pytest.mark.parametrize(
    "budgets, max_tokens, given",
    [
        ({"high": 5_000}, None, 5_000),
        ({"low": 5_000}, None, 16_384),
        ({"high": 10}, None, 1_024),
        ({"high": 500_000}, None, 64_000 - 1_024),
        ({}, 4_000, 4_000 - 1_024),
        ({}, 2_048, 1_024),
    ],
)
def test_budgets(budgets, max_tokens, given):
    """A budget is the user's or the level's, at least what the API takes, and leaves room for the answer."""
    options = StreamOptions(reasoning="high", thinking_budgets=budgets, max_tokens=max_tokens)

    assert body(options, model=SONNET)["thinking"]["budget_tokens"] == given


def test_no_room_to_think(caplog):
    """Where the limit leaves no room for it, nothing is thought, and that is told once."""
    options = StreamOptions(reasoning="high", max_tokens=2_047)
    with caplog.at_level(logging.WARNING):
        assert "thinking" not in body(options, model=SONNET)
        assert "thinking" not in body(options, model=SONNET)

    assert [record.getMessage() for record in caplog.records] == [
        "a request to claude-sonnet-4-5 leaves out thinking, since max_tokens=2047 leaves no room for it"
    ]


@pytest.mark.parametrize(
    "model, level, expected",
    [
        (SONNET, "high", ({}, True)),
        (SONNET, None, ({}, False)),
        (SONNET, "off", ({}, False)),
        ("claude-opus-5", "high", ({"thinking": {"type": "disabled"}}, True)),
        ("claude-opus-5", None, ({"thinking": {"type": "disabled"}}, False)),
        ("claude-opus-4-8", "high", ({}, True)),
        ("claude-3-5-haiku-latest", "high", ({}, False)),
        ("kimi-k3", None, ({}, False)),
        (OPUS, "high", ({"thinking": SHOWN, "output_config": {"effort": "high"}}, False)),
    ],
)
@pytest.mark.parametrize("choice", ["required", "look"])
def test_forced_calls(model, level, expected, choice, caplog):
    """A forced call goes before thinking, since the API takes only one of them; models that can't but think are asked
    as the user wants, so that the server can say so.
    """
    with caplog.at_level(logging.WARNING):
        made = asked(model, reasoning=level, tool_choice=choice)
    del made["tool_choice"]

    assert (made, bool(caplog.records)) == expected


def turn(*thoughts):
    """A turn under way: a prompt, an answer that may begin with thinking, a result."""
    answer = AssistantMessage(
        (*thoughts, ToolCall("c1", "look")),
        api=API,
        provider="anthropic",
        model=SONNET,
        stop_reason="tool_use",
    )
    return [UserMessage("go"), answer, ToolResultMessage("c1", "look", "x")]


def further(*thoughts):
    """One more answer of the turn and its result."""
    answer = AssistantMessage((*thoughts, ToolCall("c2", "look")), stop_reason="tool_use")
    return [answer, ToolResultMessage("c2", "look", "y")]


THOUGHT = ThinkingContent("hm", "sig")
REDACTED = ThinkingContent("", "data", redacted=True)


@pytest.mark.parametrize(
    "messages, thinks",
    [
        (turn(THOUGHT), True),
        (turn(REDACTED), True),
        (turn(), False),
        (turn(TextContent("Look.")), False),
        (turn(THOUGHT) + further(), True),
        (turn() + further(), False),
        ([*turn(), UserMessage("and")], True),
        ([*turn(), AssistantMessage("so")], True),
        ([*turn(), AssistantMessage("so"), UserMessage("and")], True),
    ],
)
def test_turns_that_began_without_thinking(messages, thinks):
    """With a budget, a turn that began without thinking goes on without it, as the API wants."""
    made = body(StreamOptions(reasoning="high"), model=SONNET, messages=messages)

    assert ("thinking" in made) is thinks
    assert "thinking" in body(StreamOptions(reasoning="high"), messages=messages)


@pytest.mark.parametrize(
    "model, level, given",
    [
        (SONNET, None, 0.5),
        (SONNET, "off", 0.5),
        (SONNET, "high", None),
        ("claude-opus-4-6", "high", None),
        ("claude-opus-4-6", None, 0.5),
        (OPUS, None, None),
        ("qwen3", None, 0.5),
    ],
)
def test_temperature(model, level, given, caplog):
    """A temperature is sent where the model takes one; where it is left out, that is told."""
    with caplog.at_level(logging.WARNING):
        made = body(StreamOptions(temperature=0.5, reasoning=level), model=model)

    assert made.get("temperature") == given
    assert bool(caplog.records) is (given is None)
    assert "temperature" not in body(model=SONNET)


# -- structured output ------------------------------------------------------------------------------------------------


def test_output_schema():
    """A schema goes beside the effort, as the API's format."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    made = asked(output_schema=schema, reasoning="low")

    assert made["output_config"] == {
        "effort": "low",
        "format": {
            "type": "json_schema",
            "schema": {
                "type": "object",
                "properties": {"n": {"type": "integer"}},
                "required": ["n"],
                "additionalProperties": False,
            },
        },
    }


def test_output_schema_that_the_api_does_not_take():
    """A schema that the API can't hold an answer to is told to the model in words, behind the system prompt."""
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    made = body(StreamOptions(output_schema=schema))

    assert "output_config" not in made
    assert made["system"][0]["text"] == "Be brief."
    assert json.dumps(schema) in made["system"][1]["text"]
    assert len(body(StreamOptions(output_schema=schema), system="")["system"]) == 1


# -- what is known of models ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model, expected",
    [
        ("claude-opus-5-5", ("adaptive", "least", False, True, 128_000)),
        ("us.anthropic.claude-opus-5-5-v1:0", ("adaptive", "least", False, True, 128_000)),
        ("anthropic/claude-opus-4.6", ("adaptive", "omit", True, True, 128_000)),
        ("claude-opus-5", ("adaptive", "disabled", False, True, 128_000)),
        ("claude-sonnet-5", ("adaptive", "disabled", False, True, 128_000)),
        ("claude-opus-5-20260724", ("adaptive", "disabled", False, True, 128_000)),
        ("claude-opus-5-6", ("adaptive", "least", False, True, 128_000)),
        ("claude-opus-50", ("adaptive", "least", False, True, 128_000)),
        ("claude-mythos-preview", ("adaptive", "least", False, True, 128_000)),
        ("claude-sonnet-4-5-20250929", ("budget", "omit", True, True, 64_000)),
        ("claude-opus-4-1-20250805", ("budget", "omit", True, False, 32_000)),
        ("claude-sonnet-4@20250514", ("budget", "omit", True, False, 64_000)),
        ("claude-3-7-sonnet-latest", ("budget", "omit", True, False, 64_000)),
        ("claude-3-5-haiku-20241022", ("none", "omit", True, False, 8_192)),
        ("claude-3-haiku-20240307", ("none", "omit", True, False, 4_096)),
        ("Qwen3-8B", ("budget", "disabled", True, False, 8_192)),
    ],
)
def test_traits(model, expected):
    """A model's generation is read from its name, however it is spelled; a newer one counts as the newest known."""
    traits = traits_of(model)
    found = (traits.thinking, traits.off, traits.samples, traits.native_output)

    assert (*found, traits.max_output_tokens) == expected


@pytest.mark.parametrize(
    "level, efforts, given",
    [
        ("high", ("low", "high"), "high"),
        ("medium", ("low", "high"), "low"),
        ("max", ("low", "medium"), "medium"),
        ("minimal", ("medium", "high"), "medium"),
        ("high", (), None),
    ],
)
def test_nearest_effort(level, efforts, given):
    """Where a level is missing, the next lower counts, else the least."""
    assert nearest_effort(level, efforts) == given


def test_nothing_said_yet():
    """A request without messages thinks as any other."""
    target = target_of(SONNET, "anthropic", API, own_server=True)
    made = request_body(
        LlmContext(), StreamOptions(reasoning="low"), target=target, max_tokens=None, stream=True
    )

    assert made["messages"] == []
    assert made["thinking"]["budget_tokens"] == 2_048
