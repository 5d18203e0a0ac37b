"""The OpenAI Responses provider against a scripted server: requests, answers, keys, failures."""

import contextlib
import json

import pytest

from tests.support.http_server import ScriptedServer, json_answer, sse_answer
from yiemagent import YiemAgent, ask, providers
from yiemagent.abort import AbortSignal
from yiemagent.context import LlmContext
from yiemagent.errors import (
    AuthenticationError,
    BadResponseError,
    ConfigurationError,
    LlmConnectionError,
    LlmError,
    RateLimitError,
)
from yiemagent.llm import StreamOptions, resolve
from yiemagent.messages import ImageContent, UserMessage
from yiemagent.net.retry import RetryPolicy
from yiemagent.providers.openai_responses import OpenAIResponses, create
from yiemagent.streaming import DoneEvent, ErrorEvent, StreamNoticeEvent, TextDeltaEvent
from yiemagent.tool import AgentTool, AgentToolResult

QUICK = RetryPolicy(base_delay_ms=1)
CONTEXT = LlmContext("Be brief.", [UserMessage("hi")])
USAGE = {"input_tokens": 12, "output_tokens": 5, "total_tokens": 17}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
IMAGE = ImageContent("aGk=", "image/png")


def text_item(text, item_id="msg_1"):
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": item_id, "role": "assistant", "content": [part]}


def call_item(name="look", arguments="{}", call_id="call_1"):
    fields = {"name": name, "arguments": arguments, "status": "completed"}
    return {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, **fields}


def response(*output, status="completed", **fields):
    whole = {"id": "resp_1", "object": "response", "status": status, "output": list(output)}
    return {**whole, "usage": USAGE, **fields}


def stream_bytes(*items, end="completed", **fields):
    """The body of a stream that tells of these items, with the event lines that the API has."""
    events = [{"type": "response.created", "response": {"id": "resp_1"}}]
    for place, item in enumerate(items):
        empty = {**item, "content": [], "arguments": ""}
        events.append({"type": "response.output_item.added", "output_index": place, "item": empty})
        if item["type"] == "message":
            delta = {"item_id": item["id"], "output_index": place, "content_index": 0}
            text = item["content"][0]["text"]
            events.append({"type": "response.output_text.delta", "delta": text, **delta})
        events.append({"type": "response.output_item.done", "output_index": place, "item": item})
    whole = response(*items, status=end, **fields)
    events.append({"type": f"response.{end}", "response": whole})
    text = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events)
    return text.encode()


def stream(*items, **fields):
    """The same as an answer."""
    return sse_answer(stream_bytes(*items, **fields))


@pytest.fixture(autouse=True)
def without_keys(monkeypatch):
    """No key or address of this machine's environment is used."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@contextlib.contextmanager
def serving(*answers, model="gpt-5.1", **options):
    """A server with the answers, and a provider that asks it."""
    with ScriptedServer(*answers) as server:
        given = {"base_url": f"{server.url}/v1", "retry": QUICK, "api_key": "sk-key-1", **options}
        provider = OpenAIResponses(model, **given)
        yield server, provider
        provider.close()


def events_of(provider, options=None, *, context=CONTEXT):
    return list(provider(context, options or StreamOptions(), AbortSignal()))


def failure_of(provider, options=None):
    last = events_of(provider, options)[-1]
    assert isinstance(last, ErrorEvent)
    return last


# --- answers ----------------------------------------------------------------------------------------------------------


def test_a_streamed_answer():
    """A stream is asked for at /responses, with the key as a bearer token, and gives the answer."""
    with serving(stream(text_item("Hello"))) as (server, provider):
        events = events_of(provider)
        (request,) = server.requests
    message = events[-1].message

    assert (request.method, request.target) == ("POST", "/v1/responses")
    assert request.headers["authorization"] == "Bearer sk-key-1"
    assert request.json["instructions"] == "Be brief."
    assert request.json["stream"] is True
    assert request.json["store"] is False
    assert [event.delta for event in events if isinstance(event, TextDeltaEvent)] == ["Hello"]
    assert (message.text, message.stop_reason) == ("Hello", "stop")
    assert (message.api, message.provider, message.model) == (
        "openai-responses", "openai", "gpt-5.1",
    )  # fmt: skip
    assert (message.usage.input_tokens, message.usage.output_tokens) == (12, 5)


def test_a_whole_answer():
    """Without a stream the whole response is one JSON object."""
    with serving(json_answer(response(text_item("Hello"))), stream=False) as (server, provider):
        (last,) = events_of(provider)
        (request,) = server.requests

    assert request.json["stream"] is False
    assert isinstance(last, DoneEvent)
    assert last.message.text == "Hello"


def test_a_whole_answer_that_is_cut_off():
    """A whole response that is incomplete is cut off."""
    details = {"reason": "max_output_tokens"}
    whole = response(text_item("He"), status="incomplete", incomplete_details=details)
    with serving(json_answer(whole), stream=False) as (_, provider):
        message = events_of(provider)[-1].message

    assert (message.stop_reason, message.raw_stop_reason) == ("length", "max_output_tokens")


def test_another_model_and_key():
    """The options' model is asked, and the key of `get_api_key` used where the provider has none."""
    with serving(stream(text_item("Hello")), api_key=None) as (server, provider):
        options = StreamOptions(model="gpt-5.2", get_api_key=lambda name: f"key-of-{name}")
        message = events_of(provider, options)[-1].message
        (request,) = server.requests

    assert request.json["model"] == message.model == "gpt-5.2"
    assert request.headers["authorization"] == "Bearer key-of-openai"


def test_an_agent_with_a_reasoning_model():
    """Reasoning, call and result go back in the next request as the API wants them, and the answer is given."""
    look = AgentTool("look", description="Looks.", execute=lambda *_: AgentToolResult([IMAGE]))
    answers = [stream(REASONING, call_item()), stream(text_item("A tree."))]
    with serving(*answers) as (server, provider):
        with YiemAgent(provider, tools=[look]) as agent:
            answer = ask(agent, "What is there?")
        first, second = (request.json for request in server.requests)

    assert answer.text == "A tree."
    assert first["tools"][0]["name"] == "look"
    assert first["prompt_cache_key"] == second["prompt_cache_key"]
    assert second["input"][: len(first["input"])] == first["input"]
    assert second["input"][1] == REASONING
    assert second["input"][2]["id"] == "fc_call_1"
    assert [item.get("type") for item in second["input"][3:]] == ["function_call_output", None]
    # A server other than OpenAI's gets a result's images in a user message: few take them elsewhere.
    assert second["input"][3]["output"] == "(the image follows)"
    assert second["input"][4]["content"][1]["type"] == "input_image"


def test_structured_output():
    """The provider takes a schema for its answers natively."""
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    with serving(stream(text_item("{}"))) as (server, provider):
        events_of(provider, StreamOptions(output_schema=schema))
        (request,) = server.requests

    assert provider.native_output
    assert request.json["text"]["format"]["schema"] == schema


def test_extra_body():
    """Objects of extra_body are merged into ours, lists stand behind ours, None leaves a field out."""
    extra = {
        "reasoning": {"summary": "detailed"},
        "include": ["file_search_call.results"],
        "tools": [{"type": "web_search"}],
        "prompt_cache_key": None,
        "top_p": 0.5,
    }
    context = LlmContext("", [UserMessage("hi")], [AgentTool("t", description="T.", execute=print)])
    with serving(stream(text_item("Hello")), extra_body=extra) as (server, provider):
        options = StreamOptions(reasoning="low", session_id="s")
        for _ in range(2):
            events_of(provider, options, context=context)
        body, again = (request.json for request in server.requests)

    assert body == again
    assert body["reasoning"] == {"effort": "low", "summary": "detailed"}
    assert body["include"] == ["reasoning.encrypted_content", "file_search_call.results"]
    assert [tool["type"] for tool in body["tools"]] == ["function", "web_search"]
    assert "prompt_cache_key" not in body
    assert body["top_p"] == 0.5


def test_options_of_the_provider():
    """Storing and the kind of summary are the provider's own options."""
    given = {"store": True, "reasoning_summary": None}
    with serving(stream(text_item("Hello")), **given) as (server, provider):
        events_of(provider, StreamOptions(reasoning="low"))
        (request,) = server.requests

    assert request.json["store"] is True
    assert request.json["reasoning"] == {"effort": "low"}


# --- request dicts ----------------------------------------------------------------------------------------------------


def test_a_request_in_the_apis_own_form():
    """A request dict in the API's own form is sent as it is, and gives the whole answer."""
    with serving(stream(text_item("Hello"))) as (server, provider):
        message = provider({"input": "hi", "previous_response_id": "resp_0", "store": True})
        (request,) = server.requests

    assert message.text == "Hello"
    assert request.json == {
        "model": "gpt-5.1",
        "store": True,
        "input": "hi",
        "previous_response_id": "resp_0",
        "stream": True,
    }


def test_a_request_in_the_chat_form():
    """A request dict in the OpenAI chat form is made into the API's."""
    request_dict = {
        "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "hi"}],
        "max_tokens": 9,
    }
    with serving(stream(text_item("Hello"))) as (server, provider):
        message = provider(request_dict)
        (request,) = server.requests

    assert message.text == "Hello"
    assert request.json["instructions"] == "S"
    assert request.json["input"] == [{"role": "user", "content": "hi"}]
    assert request.json["max_output_tokens"] == 9


def test_a_request_that_fails_raises():
    """A request dict whose answer fails raises what went wrong."""
    refusal = {**text_item(""), "content": [{"type": "refusal", "refusal": "No."}]}
    with (
        serving(json_answer(response(refusal)), stream=False) as (_, provider),
        pytest.raises(BadResponseError, match="refused"),
    ):
        provider({"input": "hi"})


# --- model strings ----------------------------------------------------------------------------------------------------


def test_model_strings():
    """A string "openai-responses:model" is this provider; without a model it says what to write."""
    assert OpenAIResponses is providers.OpenAIResponses
    assert isinstance(resolve("openai-responses:gpt-5.1"), OpenAIResponses)
    assert create("gpt-5.1", base_url="http://127.0.0.1:1/v1").model == "gpt-5.1"
    with pytest.raises(ConfigurationError, match=r"openai-responses:gpt-5\.1"):
        create("")


def test_a_missing_key():
    """Without a key OpenAI's own server is not asked, and the variable is named."""
    provider = OpenAIResponses("gpt-5.1")
    failure = failure_of(provider)

    assert isinstance(failure.error, AuthenticationError)
    assert "OPENAI_API_KEY" in failure.message.error_message


# --- failures ---------------------------------------------------------------------------------------------------------


def error_answer(status, code, message):
    return json_answer({"error": {"message": message, "type": code, "code": code}}, status=status)


@pytest.mark.parametrize(
    "answer, kind, words",
    [
        (
            error_answer(401, "invalid_api_key", "Bad key sk-key-1."),
            AuthenticationError,
            "Bad key …",
        ),
        (error_answer(404, "model_not_found", "No such model."), LlmError, "No such model."),
        (json_answer({"choices": []}), BadResponseError, "no response object"),
        (json_answer(response(status="queued")), BadResponseError, "queued"),
        (stream(text_item("Hel"), end="cancelled"), BadResponseError, "cancelled"),
        (sse_answer(b'event: error\ndata: {"message": "broken"}\n\n'), LlmError, "broken"),
    ],
)
def test_failures(answer, kind, words):
    """What a server refuses, or what is no answer, is an error that says so, without the key."""
    with serving(answer) as (_, provider):
        failure = failure_of(provider)

    assert isinstance(failure.error, kind)
    assert words in failure.message.error_message
    assert "sk-key-1" not in failure.message.error_message


def bare(*events):
    """A stream of these events and no more."""
    return sse_answer("".join(f"data: {json.dumps(one)}\n\n" for one in events).encode())


@pytest.mark.parametrize(
    "first",
    [
        error_answer(503, "server_error", "Later."),
        bare({"type": "response.created", "response": {}}),
        bare(
            {"type": "response.output_item.added", "output_index": 0, "item": REASONING},
            {"type": "response.failed", "response": {"error": {"code": "server_error"}}},
        ),
    ],
)
def test_retries(first):
    """What may pass is asked for again, while nothing came of the answer; the user is told."""
    with serving(first, stream(text_item("Hello"))) as (server, provider):
        events = events_of(provider)

    assert isinstance(events[0], StreamNoticeEvent)
    assert events[-1].message.text == "Hello"
    assert len(server.requests) == 2


def test_a_rate_limit_in_the_stream():
    """A response that fails for the rate of requests is one, with what came."""
    error = {"code": "rate_limit_exceeded", "message": "Slow down."}
    with serving(stream(text_item("Hel"), end="failed", error=error)) as (server, provider):
        failure = failure_of(provider)

    assert isinstance(failure.error, RateLimitError)
    assert failure.message.text == "Hel"
    assert failure.message.usage.output_tokens == 5
    assert len(server.requests) == 1


def test_a_stream_that_breaks_off():
    """A stream that ends before its response did is an error with what came."""
    whole = stream_bytes(text_item("Hel"))
    cut = sse_answer(whole[: whole.index(b"event: response.completed")])
    with serving(cut) as (_, provider):
        failure = failure_of(provider)

    assert isinstance(failure.error, LlmConnectionError)
    assert failure.message.text == "Hel"


def test_silence():
    """A stream that says nothing for longer than its limit is an error, keep-alive events or not."""
    alive = b'event: keepalive\ndata: {"type": "keepalive"}\n\n'
    answer = sse_answer([alive, 0.1, alive, 0.1, alive, 0.1, alive], then="hang")
    once = RetryPolicy(max_retries=0)
    with serving(answer, idle_timeout_s=0.2, retry=once) as (_, provider):
        failure = failure_of(provider)

    assert isinstance(failure.error, LlmConnectionError)


def test_what_follows_the_end_is_not_waited_for():
    """The answer is over with its last event, though the server keeps the connection open."""
    answer = sse_answer(stream_bytes(text_item("Hello")), then="hang")
    with serving(answer, idle_timeout_s=5) as (_, provider):
        assert events_of(provider)[-1].message.text == "Hello"
