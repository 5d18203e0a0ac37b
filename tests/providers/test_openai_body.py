"""Bodies of requests."""

import attrs
import pytest

from yiemagent.context import LlmContext
from yiemagent.llm import StreamOptions
from yiemagent.messages import UserMessage
from yiemagent.providers.openai_body import request_body
from yiemagent.providers.profiles import Profile, profile
from yiemagent.tool import AgentTool

TOOL = AgentTool("look", description="Looks.", execute=lambda *_: "x")
OTHER = AgentTool("hear", description="Hears.", execute=lambda *_: "x")
MESSAGES = [{"role": "user", "content": "hi"}]
PLAIN = Profile(name="plain")
CLOSED = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def body(options=None, spoken=PLAIN, *, tools=(), stream=False, model="m"):
    context = LlmContext("Be brief.", [UserMessage("hi")], tools)
    return request_body(
        context, options or StreamOptions(), spoken, messages=MESSAGES, model=model, stream=stream
    )


def test_plain():
    """Without options a body has the model and the messages, and nothing else."""
    assert body() == {"model": "m", "messages": MESSAGES}


def test_stream():
    """A stream is asked for with its usage, where that must be asked for."""
    assert body(stream=True)["stream_options"] == {"include_usage": True}
    assert body(stream=True)["stream"] is True
    assert "stream_options" not in body(stream=True, spoken=attrs.evolve(PLAIN, usage_field=None))


@pytest.mark.parametrize(
    "choice, heeded, names, sent",
    [
        (None, None, ["look", "hear"], None),
        ("auto", None, ["look", "hear"], "auto"),
        ("none", None, ["look", "hear"], "none"),
        ("required", None, ["look", "hear"], "required"),
        ("hear", None, ["look", "hear"], {"type": "function", "function": {"name": "hear"}}),
        ("hear", ["auto", "none", "required"], ["hear"], "required"),
        ("hear", ["auto"], ["hear"], None),
        ("gone", ["auto"], ["look", "hear"], None),
        ("required", ["auto"], ["look", "hear"], None),
        ("none", ["auto"], [], None),
    ],
)
def test_tools(choice, heeded, names, sent):
    """Tools go in order, a choice only with them; what a server doesn't heed is said by the tools that are offered."""
    spoken = PLAIN if heeded is None else attrs.evolve(PLAIN, tool_choices=heeded)
    options = StreamOptions(tool_choice=choice)
    with_tools = body(options, spoken, tools=[TOOL, OTHER])

    assert [tool["function"]["name"] for tool in with_tools.get("tools", ())] == names
    assert with_tools.get("tool_choice") == sent
    assert not {"tools", "tool_choice"} & body(options, spoken).keys()


def test_limits():
    """Temperature and limit go under the names that the server knows."""
    options = StreamOptions(temperature=0.0, max_tokens=9)

    assert body(options) == {**body(), "temperature": 0.0, "max_tokens": 9}
    assert body(options, profile("openai"))["max_completion_tokens"] == 9


def test_levels_by_model():
    """A level has the word that the model's name asks for; without one nothing is sent."""
    spoken = attrs.evolve(PLAIN, efforts=[("^new", {"off": "none"}), ("", {"low": "low"})])

    def effort(level, model):
        return body(StreamOptions(reasoning=level), spoken, model=model).get("reasoning_effort")

    assert effort("off", "new-1") == "none" and effort("off", "a-new") is None
    assert effort("low", "a") == "low" and effort("low", "new-1") is None
    assert effort("strange", "a") is None
    assert "reasoning_effort" not in body(StreamOptions(reasoning="low"), PLAIN)


def test_levels_of_openai():
    """OpenAI's models are asked for the efforts that they have."""

    def effort(level, model):
        options = StreamOptions(reasoning=level)
        return body(options, profile("openai"), model=model).get("reasoning_effort")

    assert effort("off", "gpt-5.1") == "none" and effort("off", "gpt-5") == "minimal"
    assert effort("max", "o3") == "high" and effort("high", "gpt-4o") is None


def test_budgets():
    """A budget goes beside the level's word, or in its place where one object takes either."""
    options = StreamOptions(reasoning="low", thinking_budgets={"low": 512, "high": 9})

    assert body(options, profile("vllm")) == {
        **body(),
        "thinking_token_budget": 512,
        "reasoning_effort": "low",
    }
    assert body(options, profile("openrouter")) == {**body(), "reasoning": {"max_tokens": 512}}
    assert body(StreamOptions(reasoning="medium"), profile("openrouter")) == {
        **body(),
        "reasoning": {"effort": "medium"},
    }
    assert body(options, profile("openai")) == {**body(), "reasoning_effort": "low"}


def test_thinking_switch():
    """A switch goes with each level; "off" and a forced tool turn it off."""
    spoken = profile("deepseek")

    def fields(**options):
        given = body(StreamOptions(**options), spoken, tools=[TOOL])
        return {key: given[key] for key in ("thinking", "reasoning_effort") if key in given}

    assert fields() == {}
    assert fields(reasoning="medium") == {
        "thinking": {"type": "enabled"},
        "reasoning_effort": "high",
    }
    assert fields(reasoning="off") == {"thinking": {"type": "disabled"}}
    assert fields(tool_choice="look") == {"thinking": {"type": "disabled"}}
    assert fields(tool_choice="required", reasoning="high") == {"thinking": {"type": "disabled"}}
    assert fields(tool_choice="none") == {}


@pytest.mark.parametrize("schema, strict", [(CLOSED, True), ({**CLOSED, "required": []}, False)])
def test_output_schema(schema, strict):
    """A schema for the answer is sent as strict where it is closed and all it has is required."""
    sent = body(StreamOptions(output_schema=schema), profile("openai"))["response_format"]

    assert sent["type"] == "json_schema"
    assert sent["json_schema"] == {"name": "answer", "schema": schema, "strict": strict}


def test_output_schema_beside_tools():
    """A server that can't have both is sent no schema beside tools, and one that takes none never."""
    options = StreamOptions(output_schema=CLOSED)

    assert "response_format" in body(options)
    assert "response_format" not in body(options, tools=[TOOL])
    assert "response_format" in body(options, profile("openai"), tools=[TOOL])
    assert "response_format" not in body(options, profile("deepseek"))


def test_cache_key():
    """The session's id goes where the server looks for it; one that is too long as a digest; none without a cache."""
    spoken = profile("openai")
    long = body(StreamOptions(session_id="x" * 65), spoken)["prompt_cache_key"]

    assert body(StreamOptions(session_id="s"), spoken)["prompt_cache_key"] == "s"
    assert (
        len(long) == 64
        and long == body(StreamOptions(session_id="x" * 65), spoken)["prompt_cache_key"]
    )
    assert body(StreamOptions(session_id="s")) == body()
    assert body(StreamOptions(session_id="s", cache="none"), spoken) == body()


def test_cache_fields():
    """How long the cache should last is asked for in the server's words, where the model has any."""
    spoken = profile("openrouter")

    def mark(cache, model):
        return body(StreamOptions(cache=cache), spoken, model=model).get("cache_control")

    assert mark("short", "anthropic/claude") == {"type": "ephemeral"}
    assert mark("long", "anthropic/claude") == {"type": "ephemeral", "ttl": "1h"}
    assert mark("none", "anthropic/claude") is None and mark("long", "openai/gpt") is None
    assert body(StreamOptions(cache="long"), profile("openai"))["prompt_cache_retention"] == "24h"
    assert body(StreamOptions(cache="short"), profile("openai")) == body()


def test_order_is_stable():
    """Equal requests are equal to the last field's place."""
    options = StreamOptions(
        reasoning="low",
        temperature=1,
        max_tokens=2,
        session_id="s",
        cache="long",
        tool_choice="auto",
    )

    assert list(body(options, profile("openai"), tools=[TOOL], stream=True)) == [
        "model", "messages", "tools", "tool_choice", "stream", "stream_options", "temperature",
        "max_completion_tokens", "reasoning_effort", "prompt_cache_key", "prompt_cache_retention",
    ]  # fmt: skip
