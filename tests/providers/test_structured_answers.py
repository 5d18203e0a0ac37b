"""Whole runs whose answer must fit a schema, over HTTP, with every provider."""

from __future__ import annotations

import contextlib
import dataclasses
import json

import pytest

from tests.support.http_server import ScriptedServer
from yiemagent import YiemAgent, ask, read_output, tool
from yiemagent.providers import create
from yiemagent.testing import json_answer

# By provider: a model of it, and the wire API and the base path that it is asked with.
PROVIDERS = {
    "openai": ("gpt-5.1", "chat", "/v1"),
    "openai-responses": ("gpt-5.1", "responses", "/v1"),
    "anthropic": ("claude-sonnet-5", "anthropic", ""),
    "gemini": ("gemini-3.8-flash", "gemini", "/v1beta"),
    "ollama": ("qwen3", "chat", "/v1"),
    "llamacpp": ("qwen3", "chat", "/v1"),
    "vllm": ("Qwen/Qwen3-8B", "chat", "/v1"),
    "lmstudio": ("qwen/qwen3-8b", "chat", "/v1"),
    "openrouter": ("openai/gpt-5.1", "chat", "/api/v1"),
    "deepseek": ("deepseek-v4-pro", "chat", "/v1"),
    "mistral": ("mistral-large-latest", "chat", "/v1"),
    "groq": ("openai/gpt-oss-120b", "chat", "/openai/v1"),
}
EACH = pytest.mark.parametrize("name", PROVIDERS)


@dataclasses.dataclass
class Place:
    """What is asked for."""

    city: str
    people: int = 0


@tool
def look(city: str) -> str:
    """Look how many live in a city."""
    return f"13 million live in {city}"


# -- whole answers of each API --


def chat(text, call):
    """A chat completion."""
    message = {"role": "assistant", "content": text}
    if call:
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if call else "stop"}
    return {
        "model": "m",
        "choices": [choice],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5},
    }


def responses(text, call):
    """A response of the Responses API."""
    item = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
    if call:
        item = {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": call[0],
            "arguments": json.dumps(call[1]),
            "status": "completed",
        }
    return {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "model": "m",
        "output": [item],
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }


def anthropic(text, call):
    """A message of the Messages API."""
    block = {"type": "text", "text": text}
    if call:
        block = {"type": "tool_use", "id": "toolu_1", "name": call[0], "input": call[1]}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [block],
        "stop_reason": "tool_use" if call else "end_turn",
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }


def gemini(text, call):
    """A response of generateContent."""
    part = {"functionCall": {"name": call[0], "args": call[1]}} if call else {"text": text}
    content = {"role": "model", "parts": [part]}
    return {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5},
    }


ANSWERS = {"chat": chat, "responses": responses, "anthropic": anthropic, "gemini": gemini}


@contextlib.contextmanager
def serving(name, *answers):
    """A server that gives these answers, and the provider that asks it; an answer is a text or a call."""
    model, api, path = PROVIDERS[name]
    whole = [
        ANSWERS[api](answer, None)
        if isinstance(answer, str)
        else ANSWERS[api](None if api == "chat" else "", answer)
        for answer in answers
    ]
    with ScriptedServer(*map(json_answer, whole)) as server:
        url = server.url + path
        provider = create(name, model, base_url=url, api_key="key-1", stream=False)
        yield server, provider
        provider.close()


def is_native(name):
    """Whether a provider is sent the schema."""
    model, _api, _path = PROVIDERS[name]
    with contextlib.closing(create(name, model, base_url="http://127.0.0.1:9")) as provider:
        return provider.native_output


def given(name, value):
    """How a server answers, by the provider's name."""
    return json.dumps(value) if is_native(name) else ("final_answer", value)


@EACH
def test_a_run_with_tools_ends_with_an_answer_that_fits(name):
    """The model looks, and then answers as the schema says; the schema or the tool was in both requests."""
    answer = given(name, {"city": "Tokyo", "people": "13"})
    with (
        serving(name, ("look", {"city": "Tokyo"}), answer) as (server, provider),
        YiemAgent(provider, tools=[look]) as agent,
    ):
        got = ask(agent, "How many live in Tokyo?", output_schema=Place, timeout_s=10)

    assert read_output(got, Place) == Place("Tokyo", 13), got.error_message
    bodies = [request.json for request in server.requests]
    assert len(bodies) == 2
    for body in bodies:
        offered = json.dumps(body.get("tools"))
        assert ("final_answer" in offered) == (not provider.native_output)
        rest = {key: value for key, value in body.items() if key != "tools"}
        assert ('"people"' in json.dumps(rest)) == provider.native_output
    assert agent.usage.total_tokens == 30


@EACH
def test_an_answer_that_does_not_fit_is_given_again(name):
    """What was wrong goes to the server, in a request that it takes, and the second answer is right."""
    first, second = given(name, {"people": 1}), given(name, {"city": "Rome"})
    with serving(name, first, second) as (server, provider), YiemAgent(provider) as agent:
        got = ask(agent, "Where?", output_schema=Place, timeout_s=10)

    assert got.parsed == {"city": "Rome", "people": 0}, got.error_message
    assert "city: is missing" in server.requests[1].body.decode()


@EACH
def test_the_next_question_of_the_agent_is_a_plain_one(name):
    """A conversation with a structured answer in it goes on without a schema."""
    answer = given(name, {"city": "Rome"})
    welcome = "You are welcome."
    with serving(name, answer, welcome) as (server, provider), YiemAgent(provider) as agent:
        ask(agent, "Where?", output_schema=Place, timeout_s=10)
        thanks = ask(agent, "Thank you.", timeout_s=10)

    assert (thanks.text, thanks.parsed) == ("You are welcome.", None)
    last = server.requests[1].json
    assert '"people"' not in json.dumps({k: v for k, v in last.items() if k == "tools"})
