"""Bodies of requests."""

import pytest

from yiemagent.context import LlmContext
from yiemagent.llm import StreamOptions
from yiemagent.messages import UserMessage
from yiemagent.providers.openai_body import request_body
from yiemagent.tool import AgentTool

TOOL = AgentTool("look", description="Looks.", execute=lambda *_: "x")


def body(options=None, *, tools=(), stream=False, own_server=False):
    context = LlmContext("Be brief.", [UserMessage("hi")], tools)
    return request_body(
        context, options or StreamOptions(), model="m", stream=stream, own_server=own_server
    )


def test_plain():
    """Without options a body has the model and the messages, and nothing else."""
    assert body() == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hi"},
        ],
    }


def test_stream():
    """A stream is asked for with its usage."""
    assert body(stream=True)["stream_options"] == {"include_usage": True}
    assert body(stream=True)["stream"] is True


@pytest.mark.parametrize(
    "choice, sent",
    [
        ("auto", "auto"),
        ("required", "required"),
        ("look", {"type": "function", "function": {"name": "look"}}),
    ],
)
def test_tools(choice, sent):
    """Tools are sent in order, a choice only with them, a tool's name in the long form."""
    options = StreamOptions(tool_choice=choice)
    with_tools = body(options, tools=[TOOL])

    assert [tool["function"]["name"] for tool in with_tools["tools"]] == ["look"]
    assert with_tools["tool_choice"] == sent
    assert "tool_choice" not in body(options)


def test_options():
    """Temperature, limits, effort and the cache key have the names that the server knows."""
    options = StreamOptions(temperature=0.0, max_tokens=9, reasoning="max", session_id="s")
    theirs, other = body(options, own_server=True), body(options)

    assert theirs["temperature"] == 0.0
    assert (theirs["max_completion_tokens"], other["max_tokens"]) == (9, 9)
    assert "max_tokens" not in theirs and "max_completion_tokens" not in other
    assert theirs["reasoning_effort"] == "xhigh"
    assert theirs["prompt_cache_key"] == "s" and "prompt_cache_key" not in other
    assert "reasoning_effort" not in body(StreamOptions(reasoning="off"))
