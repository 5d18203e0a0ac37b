"""Bodies of requests."""

import json
import threading

import pytest

from yiemagent.context import LlmContext
from yiemagent.llm import StreamOptions
from yiemagent.messages import UserMessage
from yiemagent.providers.openai_body import BodyEncoder, request_body
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


def test_encoding_is_json():
    """The bytes are the body's JSON, on the second time as well, and plain ASCII."""
    encoder = BodyEncoder()
    given = body(tools=[TOOL]) | {"x": ["ü", None, 1.5], "empty": {}}
    given["messages"].append({"role": "user", "content": "\U0001f600"})
    first = encoder.encode(given)

    assert json.loads(first) == given
    assert list(json.loads(first)) == list(given)
    assert encoder.encode(given) == first
    assert first.isascii()
    assert json.loads(encoder.encode({})) == {}


def test_encoding_keeps_what_is_frozen():
    """Messages and tools of an earlier body aren't encoded again; a new list of them is no new work."""
    encoder = BodyEncoder()
    encoder.encode(body(tools=[TOOL]))
    size = encoder._size
    encoder.encode(body(tools=[TOOL]) | {"temperature": 1})

    assert encoder._size - size < 80  # the user's message is a new one each time


def test_encoding_is_bounded():
    """What is kept is let go of above a limit, and large messages aren't kept at all."""
    encoder = BodyEncoder()
    encoder.encode({"messages": [{"content": "x" * 1_000_000}]})
    assert encoder._size == 0

    messages = [{"content": "x" * 250_000} for _ in range(80)]
    for message in messages:
        encoder.encode({"messages": [message]})

    assert encoder._size < 17_000_000
    assert json.loads(encoder.encode({"messages": messages}))["messages"] == messages


def test_encoding_from_threads():
    """Threads that share an encoder each get their own body."""
    encoder = BodyEncoder()
    shared = [{"content": str(number)} for number in range(50)]
    wrong = []

    def work(number):
        given = {"messages": [*shared[number:], {"content": f"mine {number}"}]}
        wrong.extend([] if json.loads(encoder.encode(given)) == given else [number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong
