"""The small model's recipe: prompts, schemas, probabilities and the check of answers, without a model."""

from __future__ import annotations

import json
import math

import jsonschema
import pytest

from yiemagent.context import LlmContext
from yiemagent.messages import AssistantMessage, ToolCall, ToolResultMessage, UserMessage
from yiemagent.providers import local_recipe as recipe
from yiemagent.tool import AgentTool


def tool(name="get_weather", examples=(("Is it hot in Oslo?", {"city": "Oslo"}),), **changes):
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "x-copy": True},
            "units": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            "days": {"type": "integer"},
        },
        "required": ["city"],
    }
    given = {"description": "Tell the weather. And more.", "input_schema": schema, **changes}
    return AgentTool(name, execute=lambda *_: None, examples=examples, **given)


PLAIN = AgentTool("list_tools", description="List the tools.", execute=lambda *_: None)
TOOLS = {"get_weather": tool(), "list_tools": PLAIN}


def test_a_copied_property_takes_only_the_users_words():
    """The schema of a call lets a copied property be a name of the question, and nothing else."""
    schema = recipe.call_schema(TOOLS, "Is it hot in New York?")

    jsonschema.validate({"name": "get_weather", "arguments": {"city": "New York"}}, schema)
    for wrong in ({"city": "New"}, {"city": "Oslo"}, {}, {"city": "New York", "more": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"name": "get_weather", "arguments": wrong}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"name": "other", "arguments": {}}, schema)


def test_a_question_without_names_leaves_a_required_copy_free():
    """Where nothing can be copied, a required property is any string and an optional one is left out."""
    schema = recipe.call_schema(TOOLS, "What time is it?")
    optional = tool(input_schema={"properties": {"city": {"type": "string", "x-copy": True}}})

    jsonschema.validate({"name": "get_weather", "arguments": {"city": "any"}}, schema)
    assert _arguments(recipe.call_schema({"t": optional}, "What time is it?"))["properties"] == {}


def _arguments(schema):
    return schema["anyOf"][0]["properties"]["arguments"]


def test_an_optional_choice_is_offered_where_the_words_name_it():
    """An optional enumeration is there, and must be given, only where the question names one of its values."""
    shown = (("In Oslo in Celsius?", {"city": "Oslo", "units": "celsius"}),)
    tools = {"get_weather": tool(examples=shown)}
    named = _arguments(recipe.call_schema(tools, "How hot is it in Boston in Fahrenheit?"))
    silent = _arguments(recipe.call_schema(tools, "How hot is it in Boston?"))

    assert named["properties"]["units"] == {"enum": ["fahrenheit"]}
    assert named["required"] == ["city", "units"]
    assert list(silent["properties"]) == ["city"]


def test_what_no_example_shows_is_left_out_of_a_call():
    """With examples, an optional property that none of them has is not offered; without, the schema stays whole."""
    question = "In Boston?"

    assert "days" not in _arguments(recipe.call_schema(TOOLS, question))["properties"]
    bare = _arguments(recipe.call_schema({"t": tool(examples=())}, question))
    assert bare["properties"]["days"] == {"type": "integer"}
    assert bare["required"] == ["city"]


def test_definitions_and_plain_rules_are_kept():
    """Shared definitions of a tool's schema come along, and a rule that is no mapping stays as it is."""
    schema = {"properties": {"any": True}, "$defs": {"x": {"type": "string"}}}
    arguments = _arguments(
        recipe.call_schema({"t": tool(examples=(), input_schema=schema)}, "Now?")
    )

    assert arguments["properties"] == {"any": True}
    assert arguments["$defs"] == {"x": {"type": "string"}}


def test_the_prompt_shows_worked_examples_and_the_nearest_last():
    """Each example stands in the prompt as a turn, the nearest once more right before the question."""
    context = recipe.call_context(TOOLS, "Is it hot in Boston?")
    texts = [message.text for message in context.messages]

    assert texts[-1] == "Is it hot in Boston?"
    assert texts[-3] == "Is it hot in Oslo?"
    assert json.loads(texts[-2]) == {"name": "get_weather", "arguments": {"city": "Oslo"}}
    assert texts.count("Is it hot in Oslo?") == 2
    assert "Hello!" in texts
    assert "- get_weather: Tell the weather.\n" in context.system_prompt


def test_a_tool_without_examples_is_shown_in_its_own_words():
    """A tool that takes nothing is asked for by its label and description; one that takes something is not shown."""
    asks = [m.text for m in recipe.call_context(TOOLS, "Hm?").messages]
    other = [m.text for m in recipe.call_context({"t": tool("t", examples=())}, "Hm?").messages]

    assert "List the tools." in asks
    assert not any('"t"' in text for text in other)


def test_earlier_calls_of_the_conversation_are_shown():
    """The last two questions that led to calls stand in the prompt, so that "and there?" is understood."""
    messages = []
    for city in ("Rome", "Lima", "Bonn"):
        call = ToolCall(city, "get_weather", {"city": city})
        messages += [UserMessage(f"In {city}?"), AssistantMessage((call,))]
    earlier = recipe.earlier_calls([*messages, UserMessage("And in Oslo?")])
    texts = [m.text for m in recipe.call_context(TOOLS, "And in Oslo?", earlier).messages]

    assert [said for said, _ in earlier] == ["In Rome?", "In Lima?", "In Bonn?"]
    assert "In Rome?" not in texts
    assert texts.index("In Lima?") < texts.index("In Bonn?")


def logprobs(*tokens):
    """Tokens in the OpenAI form; the last with its alternatives as {token: probability}."""
    *plain, last = tokens
    listed = [{"token": token, "top_logprobs": []} for token in plain]
    choices = [{"token": token, "logprob": math.log(p)} for token, p in last.items()]
    return [*listed, {"token": next(iter(last)), "top_logprobs": choices}]


def test_the_chance_of_a_call_is_its_share_of_the_first_word():
    """The probabilities of the tools' first tokens are weighed against those of the word for none."""
    tokens = logprobs('{"', "name", '":', ' "', {"get": 0.3, "list": 0.1, "re": 0.4, "x": 0.2})

    assert recipe.call_chance(tokens, TOOLS) == pytest.approx(0.5)
    assert recipe.call_chance(logprobs('{"name": "', {"x": 1.0}), TOOLS) == 0.0
    assert recipe.call_chance([], TOOLS) == 0.0


def test_the_bar_is_lower_for_a_question_about_a_tools_matter():
    """A question that shares a telling word with a tool leads to a call at a chance that is too low for another."""
    assert recipe.wants_tool(0.2, TOOLS, "What is the weather in Bonn?")
    assert not recipe.wants_tool(0.2, TOOLS, "Who is Bach?")
    assert recipe.wants_tool(0.4, TOOLS, "Who is Bach?")


def test_the_grammar_offers_every_tool_and_a_word_for_none():
    """The gate may write a tool's name or a word that none of the tools' names can be taken for."""
    assert '("reply" | "get_weather" | "list_tools")' in recipe.gate_grammar(TOOLS)
    assert '"talk"' in recipe.gate_grammar({"reply_mail": tool("reply_mail")})
    words = {name: tool(name) for name in ("reply", "talk", "none", "chat")}
    assert '"_no_tool"' in recipe.gate_grammar(words)


@pytest.mark.parametrize("text", ["", '{"name": "get_w', "[]", '{"name": "other"}'])
def test_what_is_no_call_is_none(text):
    """Text that is cut off, no object or names no tool gives no call."""
    assert recipe.parse_call(text, TOOLS) is None


def test_a_call_is_read_from_its_json():
    """A whole call gives its tool and arguments, and an id of its own."""
    call = recipe.parse_call('{"name": "get_weather", "arguments": {"city": "Bonn"}}', TOOLS)

    assert (call.name, dict(call.arguments)) == ("get_weather", {"city": "Bonn"})
    assert call.id


DATA = "Weather in Bonn, Germany: light rain, -3 °C, wind 7 km/h"


@pytest.mark.parametrize(
    "answer, holds",
    [
        ("In Bonn it is -3 °C with light rain.", True),
        ("It is raining lightly in Bonn.", False),
        ("It is 3 °C in Bonn.", False),
        ("It is -3 °C and sunny.", False),
        ("Yes, it is cold in Bonn.", False),
        ("It is cold in Bonn at -3 °C.", False),
        ("It is cold in Bonn.", False),
        ("The wind is 7 km/h.", True),
        ("In Bonn it is light rain and light rain.", False),
        ("In Bonn it is rain rain rain", False),
        ("", False),
    ],
)
def test_an_answer_holds_when_it_says_only_what_the_result_says(answer, holds):
    """A number or word that is in neither result nor question fails, as does an answer with nothing of the result."""
    assert recipe.is_grounded(answer, DATA, "Is it cold in Bonn?") is holds


def test_words_of_an_open_question_may_be_said_again():
    """What a question asks for by name may stand in its answer; what it asks a yes or no for may not."""
    answer = "The temperature in Bonn is -3 °C."

    assert recipe.is_grounded(answer, DATA, "What is the temperature in Bonn?")
    assert not recipe.is_grounded(answer, DATA, "Is the temperature in Bonn low?")


def test_a_list_is_told_whole():
    """An answer that leaves an item of a list out does not hold."""
    data = "Available tools:\n- get_time: Time — Tell it.\n- search: Search — Search."

    assert recipe.is_grounded("There are get_time and search.", data, "Which tools are there?")
    assert not recipe.is_grounded("There is search.", data, "Which tools are there?")


def test_a_date_beside_a_time_is_shown_only_where_it_is_asked_for():
    """The model reads the time alone, unless the question speaks of days."""
    data = "Current time in Bonn: 2026-11-30 08:15 (CET, UTC+01:00)"
    asked_time = recipe.answer_context("What time is it in Bonn?", data).messages[-1].text
    asked_date = recipe.answer_context("What date is it in Bonn?", data).messages[-1].text

    assert asked_time.endswith("Data: Current time in Bonn: 08:15 (CET, UTC+01:00)")
    assert asked_date.endswith(data)


def test_the_nearest_worked_answer_stands_last():
    """Right before the question stands the worked answer whose question is most like it."""
    context = recipe.answer_context("How cold is it in Bonn?", DATA)

    assert context.messages[-3].text.startswith("Question: How cold is it in Minsk?")


def test_pending_results_are_those_at_the_end():
    """Results that the model has answered already are not pending."""
    first, second = (ToolResultMessage(str(n), "t", str(n)) for n in range(2))
    messages = [UserMessage("a"), first, AssistantMessage("b"), UserMessage("c"), second, first]

    assert recipe.pending_results(messages) == (second, first)
    assert recipe.pending_results(messages[:3]) == ()
    assert recipe.last_question(messages) == "c"
    assert recipe.last_question([]) == ""


def test_talk_keeps_what_was_said_and_fits():
    """Calls and results are left out of plain talk, and the oldest messages where there is too much."""
    call = AssistantMessage((ToolCall("1", "t", {}),))
    messages = (
        UserMessage("old " * 30),
        AssistantMessage("older answer"),
        UserMessage("new"),
        call,
        ToolResultMessage("1", "t", "data"),
        AssistantMessage("told"),
        UserMessage("newest"),
    )
    kept = recipe.chat_context(LlmContext("be kind", messages, [PLAIN]), 40)

    assert [m.text for m in kept.messages] == ["new", "told", "newest"]
    assert kept.system_prompt == "be kind"
    assert not kept.tools


def test_one_message_that_is_too_long_keeps_its_end():
    """A single message beyond the limit is cut at its beginning."""
    kept = recipe.chat_context(LlmContext("", (UserMessage("x" * 50 + "end"),)), 10)

    assert [m.text for m in kept.messages] == ["x" * 7 + "end"]
