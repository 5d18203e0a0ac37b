"""The Gemini provider against a scripted server: requests, answers, keys, failures."""

import contextlib

import pytest

from tests.support.http_server import Answer, ScriptedServer, json_answer, sse, sse_answer
from yiemagent import YiemAgent, ask
from yiemagent.abort import AbortSignal
from yiemagent.context import LlmContext
from yiemagent.errors import (
    AuthenticationError,
    BadResponseError,
    ConfigurationError,
    ContextOverflowError,
    LlmConnectionError,
    LlmError,
    RateLimitError,
)
from yiemagent.llm import StreamOptions, resolve
from yiemagent.messages import TextContent, ToolCall, UserMessage
from yiemagent.net.retry import RetryPolicy
from yiemagent.providers import Gemini
from yiemagent.streaming import DoneEvent, ErrorEvent, StreamNoticeEvent
from yiemagent.tool import AgentTool

QUICK = RetryPolicy(base_delay_ms=1)
CONTEXT = LlmContext("Be brief.", [UserMessage("hi")])
LOOK = AgentTool("look", description="Looks.", execute=lambda *_: "A tree.")


def chunk(*parts, finish=None, **fields):
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    return {"candidates": [candidate | ({"finishReason": finish} if finish else {})], **fields}


USAGE = {"promptTokenCount": 12, "candidatesTokenCount": 5}
HELLO = sse(
    chunk({"text": "Hel"}), chunk({"text": "lo"}, finish="STOP", usageMetadata=USAGE), done=False
)
CALL = {"functionCall": {"name": "look", "args": {"n": 1}, "id": "c1"}, "thoughtSignature": "c2ln"}
CALLS = sse(chunk({"text": "hm", "thought": True}), chunk(CALL, finish="STOP"), done=False)


@pytest.fixture(autouse=True)
def without_keys(monkeypatch):
    """No key or address of this machine's environment is used."""
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@contextlib.contextmanager
def serving(*answers, model="gemini-3.8-flash", **options):
    """A server with the answers, and a provider that asks it."""
    with ScriptedServer(*answers) as server:
        provider = Gemini(
            model, **{"base_url": server.url, "retry": QUICK, "api_key": "key-1"} | options
        )
        yield server, provider
        provider.close()


def events_of(provider, options=None, *, context=CONTEXT):
    return list(provider(context, options or StreamOptions(), AbortSignal()))


def failure_of(provider, options=None):
    last = events_of(provider, options)[-1]
    assert isinstance(last, ErrorEvent)
    assert last.message.stop_reason == "error"
    return last


# --- answers ---------------------------------------------------------------------------------------------------------


def test_a_streamed_answer():
    """A stream is asked for as server-sent events, with the key in a header, and gives the answer."""
    with serving(sse_answer(HELLO)) as (server, provider):
        message = events_of(provider)[-1].message
        request = server.requests[0]

    assert (message.text, message.stop_reason) == ("Hello", "stop")
    assert (message.model, message.provider, message.api) == (
        "gemini-3.8-flash",
        "gemini",
        "gemini",
    )
    assert (message.usage.input_tokens, message.usage.output_tokens) == (12, 5)
    assert request.method == "POST"
    assert request.target == "/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse"
    assert request.headers["x-goog-api-key"] == "key-1"
    assert "authorization" not in request.headers
    assert request.json["contents"] == [{"role": "user", "parts": [{"text": "hi"}]}]


@pytest.mark.parametrize("body", [HELLO, CALLS], ids=["text", "call"])
@pytest.mark.parametrize("piece", [1, 7])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_pieces(body, piece, ends):
    """However the bytes are cut, and whichever way lines end, the events are the same."""
    text = body.decode().replace("\n", ends).encode()
    with serving(sse_answer(body), sse_answer(text, piece=piece, chunked=True)) as (_, provider):
        whole, cut = events_of(provider), events_of(provider)

    assert [type(event) for event in cut] == [type(event) for event in whole]
    assert cut[-1].message.content == whole[-1].message.content


def test_an_answer_that_is_not_streamed():
    """Not streaming asks the other method, and is a stream of one Done."""
    answer = chunk({"text": "x"}, CALL, finish="STOP", usageMetadata=USAGE, responseId="r1")
    with serving(json_answer(answer), stream=False) as (server, provider):
        [done] = events_of(provider)

        assert isinstance(done, DoneEvent)
        assert done.message.content == (
            TextContent("x"),
            ToolCall("c1", "look", {"n": 1}, None, "c2ln"),
        )
        assert (done.message.stop_reason, done.message.response_id) == ("tool_use", "r1")
        assert server.requests[0].target == "/v1beta/models/gemini-3.8-flash:generateContent"


def test_a_stream_as_one_list():
    """A server that sends the chunks of a stream as one JSON list is understood."""
    chunks = [chunk({"text": "Hel"}), chunk({"text": "lo"}, finish="STOP")]
    with serving(json_answer(chunks)) as (_, provider):
        assert events_of(provider)[-1].message.text == "Hello"


def test_a_tool_is_called_and_its_result_goes_back():
    """In an agent a call runs its tool, and the next request has call, signature and result."""
    with serving(sse_answer(CALLS), sse_answer(HELLO)) as (server, provider):
        with YiemAgent(provider, tools=[LOOK]) as agent:
            answer = ask(agent, "Look.")
        sent = server.requests[1].json["contents"]

    assert answer.text == "Hello"
    assert sent[1] == {"role": "model", "parts": [CALL]}
    response = {"name": "look", "id": "c1", "response": {"output": "A tree."}}
    assert sent[2] == {"role": "user", "parts": [{"functionResponse": response}]}


def test_a_request_dict():
    """A plain call takes the OpenAI chat form and the API's own, and gives the whole answer."""
    with serving(sse_answer(HELLO)) as (server, provider):
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
        first = provider({"messages": messages, "max_tokens": 9})
        second = provider({"model": "gemini-4-argon", "contents": [{"parts": [{"text": "hi"}]}]})
        chat, own = server.requests

    assert first.text == second.text == "Hello"
    assert chat.json == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "generationConfig": {"maxOutputTokens": 9},
    }
    assert own.json == {"contents": [{"parts": [{"text": "hi"}]}]}
    assert own.target.startswith("/v1beta/models/gemini-4-argon:")


def test_a_request_dict_that_fails_raises():
    """A plain call raises what went wrong."""
    error = {"error": {"code": 404, "message": "models/x is not found", "status": "NOT_FOUND"}}
    with serving(json_answer(error, status=404)) as (_, provider):
        with pytest.raises(LlmError, match="models/x is not found"):
            provider({"messages": [{"role": "user", "content": "hi"}]})
        with pytest.raises(ConfigurationError, match="seed"):
            provider({"messages": [], "seed": 1})


# --- requests --------------------------------------------------------------------------------------------------------


def test_extra_fields_are_merged():
    """Objects of extra_body add to ours and go before them; None and other values replace."""
    extra = {
        "generationConfig": {"topP": 0.9, "temperature": 0},
        "safetySettings": [],
        "systemInstruction": None,
    }
    options = StreamOptions(temperature=1.0, max_tokens=7)
    with serving(sse_answer(HELLO), extra_body=extra) as (server, provider):
        for _ in range(2):
            events_of(provider, options)
        first, second = [request.json for request in server.requests]

    assert first == second
    assert first["generationConfig"] == {"temperature": 0, "maxOutputTokens": 7, "topP": 0.9}
    assert first["safetySettings"] == []
    assert "systemInstruction" not in first


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("gemini-3.8-flash", "/v1beta/models/gemini-3.8-flash:"),
        ("tunedModels/mine", "/v1beta/tunedModels/mine:"),
        ("a b?c", "/v1beta/models/a%20b%3Fc:"),
    ],
)
def test_models_in_the_path(model, path):
    """The model stands in the path, under "models" where it says nothing else."""
    with serving(sse_answer(HELLO), model=model) as (server, provider):
        events_of(provider)

        assert server.requests[0].target.startswith(path)


def test_another_version_of_the_api():
    """A base URL with a path is taken as it is."""
    with ScriptedServer(sse_answer(HELLO)) as server:
        provider = Gemini("m", base_url=f"{server.url}/v1alpha/", api_key="k")
        events_of(provider, StreamOptions(model="other"))
        provider.close()

        assert server.requests[0].target.startswith("/v1alpha/models/other:")


def test_the_key_of_the_environment(monkeypatch):
    """GEMINI_API_KEY counts, then GOOGLE_API_KEY; they go to the server that the environment names."""
    with ScriptedServer(sse_answer(HELLO)) as server:
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", server.url)
        monkeypatch.setenv("GOOGLE_API_KEY", "second")
        with contextlib.closing(Gemini("m")) as provider:
            events_of(provider)
            monkeypatch.setenv("GEMINI_API_KEY", "first")
            events_of(provider)
        with contextlib.closing(Gemini("m", base_url=server.url)) as elsewhere:
            events_of(elsewhere)
        keys = [request.headers.get("x-goog-api-key") for request in server.requests]

    assert keys == ["second", "first", None]


def test_a_missing_key_names_the_variables():
    """Without a key nothing is sent, and the error says which variables may hold it."""
    failure = failure_of(Gemini("gemini-3.8-flash"))

    assert isinstance(failure.error, AuthenticationError)
    assert "GEMINI_API_KEY or GOOGLE_API_KEY" in failure.message.error_message


def test_model_strings(monkeypatch):
    """The prefixes "gemini" and "google" give this provider; without a model they say what is missing."""
    monkeypatch.setenv("GEMINI_API_KEY", "k")

    for provider in ("gemini", "google"):
        made = resolve(f"{provider}:gemini-3.8-flash")
        assert isinstance(made, Gemini)
        assert made.model == "gemini-3.8-flash"
        with pytest.raises(ConfigurationError, match="gemini:"):
            resolve(provider)


def test_native_output():
    """Structured output goes together with tools from Gemini 3 on, and the provider says so."""
    assert [Gemini(name).native_output for name in ("gemini-3.8-flash", "gemini-2.5-flash")] == [
        True,
        False,
    ]


# --- failures --------------------------------------------------------------------------------------------------------


def google_error(code, status, message, *details):
    error = {"code": code, "message": message, "status": status, "details": list(details)}
    return json_answer({"error": error}, status=code)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (google_error(400, "INVALID_ARGUMENT", "Not valid.", {"reason": "API_KEY_INVALID"}), AuthenticationError),
        (google_error(403, "PERMISSION_DENIED", "Not you."), AuthenticationError),
        (google_error(404, "NOT_FOUND", "models/x is not found for API version v1beta"), LlmError),
        (google_error(400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum number of tokens "
                      "allowed (8)."), ContextOverflowError),
        (Answer(b"<html>Bad Gateway</html>", status=502, headers=[("Content-Type", "text/html")]), LlmError),
        (Answer(b"<html>Welcome</html>", headers=[("Content-Type", "text/html")]), LlmError),
        (json_answer({"hello": "world"}), BadResponseError),
    ],
)  # fmt: skip
def test_failures(answer, kind):
    """Each failure is one error of its kind, with the server's words and without the key."""
    with serving(answer, api_key="secret-key") as (_, provider):
        failure = failure_of(provider)

    assert isinstance(failure.error, kind)
    assert failure.message.error_message
    assert "secret-key" not in failure.message.error_message


def test_the_delay_that_the_server_asks_for():
    """The delay among an error's details is waited, and said in the notice."""
    busy = google_error(
        429, "RESOURCE_EXHAUSTED", "Slow down.",
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.02s"},
    )  # fmt: skip
    with serving(busy, sse_answer(HELLO)) as (server, provider):
        notice, *_, last = events_of(provider)

        assert isinstance(notice, StreamNoticeEvent)
        assert notice.details["delay_ms"] == 20
        assert last.message.text == "Hello"
        assert len(server.requests) == 2


def test_a_delay_above_the_limit_fails_at_once():
    """A longer delay than allowed is not waited for, and the error says how long it was."""
    busy = google_error(429, "RESOURCE_EXHAUSTED", "Slow down.", {"retryDelay": "3600s"})
    with serving(busy) as (server, provider):
        failure = failure_of(provider)

        assert isinstance(failure.error, RateLimitError)
        assert "3600 s" in failure.message.error_message
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    "body", [sse(chunk({"text": "Hel"}), done=False), b""], ids=["cut", "empty"]
)
def test_a_stream_that_is_cut_is_an_error(body):
    """Half an answer is never taken for a whole one, and what came is kept."""
    with serving(sse_answer(body)) as (server, provider):
        failure = failure_of(provider)

        assert isinstance(failure.error, LlmConnectionError)
        assert failure.message.text == ("Hel" if body else "")
        assert len(server.requests) == (1 if body else 4)


def test_an_error_in_the_stream():
    """An error that comes in the stream is the answer's."""
    error = {"error": {"code": 500, "message": "Broken.", "status": "INTERNAL"}}
    with serving(sse_answer(sse(chunk({"text": "Hel"}), error, done=False))) as (_, provider):
        failure = failure_of(provider)

        assert "Broken." in failure.message.error_message
        assert failure.message.text == "Hel"


def test_a_refused_prompt():
    """A prompt that a filter blocked is an error at once."""
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}}
    with serving(sse_answer(sse(blocked, done=False)), json_answer(blocked)) as (server, provider):
        for _ in range(2):
            failure = failure_of(provider)
            assert "refused the request" in failure.message.error_message
            assert failure.message.raw_stop_reason == "SAFETY"

        assert len(server.requests) == 2


@pytest.mark.parametrize("stream", [True, False])
def test_a_malformed_call_is_asked_again(stream):
    """Where a model failed to write a call and nothing else came, it is asked again."""
    slip = chunk(finish="MALFORMED_FUNCTION_CALL")
    answers = (
        [sse_answer(sse(slip, done=False)), sse_answer(HELLO)]
        if stream
        else [json_answer(slip), json_answer(chunk({"text": "Hello"}, finish="STOP"))]
    )
    with serving(*answers, stream=stream) as (server, provider):
        assert events_of(provider)[-1].message.text == "Hello"
        assert len(server.requests) == 2
