"""The provider against a scripted server: requests, answers, retries, failures, aborts."""

import contextlib
import json
import logging
import threading
import time

import pytest

from tests.support.http_server import Answer, ScriptedServer, json_answer, sse, sse_answer
from yiemagent.abort import AbortSignal
from yiemagent.context import LlmContext
from yiemagent.errors import (
    AbortedError,
    AuthenticationError,
    BadResponseError,
    ConfigurationError,
    ContextOverflowError,
    LlmConnectionError,
    LlmError,
    RateLimitError,
)
from yiemagent.llm import StreamOptions
from yiemagent.messages import LlmModel, UserMessage
from yiemagent.net.http import HttpClient
from yiemagent.net.retry import RetryPolicy
from yiemagent.providers import OpenAIChat
from yiemagent.providers.prices import set_price
from yiemagent.streaming import (
    DoneEvent,
    ErrorEvent,
    StartEvent,
    StreamNoticeEvent,
    TextDeltaEvent,
    TextEndEvent,
    TextStartEvent,
)
from yiemagent.tool import AgentTool

SOON_S = 1.0  # 0.1 s is the promise; the rest is for a busy machine
QUICK = RetryPolicy(base_delay_ms=1)
NEVER = RetryPolicy(max_retries=0)
CONTEXT = LlmContext("Be brief.", [UserMessage("hi")])
TOOL = AgentTool("look", description="Looks.", execute=lambda *_: "x")


def text(content, finish=None):
    return {"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": finish}]}


HELLO = sse(text("Hel"), text("lo", "stop"))


@contextlib.contextmanager
def serving(*answers, **options):
    """A server with the answers, and a provider that asks it."""
    with ScriptedServer(*answers) as server:
        provider = OpenAIChat("m", base_url=f"{server.url}/v1", **{"retry": QUICK, **options})
        yield server, provider
        provider.close()


def ask(provider, options=None, *, context=CONTEXT, signal=None):
    return list(provider(context, options or StreamOptions(), signal or AbortSignal()))


def failure_of(provider, options=None):
    last = ask(provider, options)[-1]
    assert isinstance(last, ErrorEvent)
    assert last.message.stop_reason == "error"
    assert last.message.error_message
    return last.error


# --- answers -----------------------------------------------------------------------------------------------------


def test_streamed_answer():
    """A stream gives Start, deltas, ends and one Done, whose message is the answer."""
    with serving(sse_answer(HELLO)) as (server, provider):
        events = ask(provider)
        request = server.requests[0]
    message = events[-1].message

    assert [type(event) for event in events] == [
        StartEvent, TextStartEvent, TextDeltaEvent, TextDeltaEvent, TextEndEvent, DoneEvent,
    ]  # fmt: skip
    assert (message.text, message.stop_reason) == ("Hello", "stop")
    assert (message.model, message.provider, message.api) == ("m", "openai", "openai-chat")
    assert (request.method, request.target) == ("POST", "/v1/chat/completions")
    assert request.headers["accept-encoding"] == "identity"
    assert "authorization" not in request.headers
    assert request.json["stream"] is True
    assert request.json["messages"][1] == {"role": "user", "content": "hi"}


@pytest.mark.parametrize("piece", [None, 1, 7])
@pytest.mark.parametrize("chunked", [True, False])
def test_pieces(piece, chunked):
    """However the bytes are cut, the answer is the same."""
    body = sse(text("na\u00efve \u5317\u4eac \U0001f30d \u2028"), text("", "stop"))
    with serving(sse_answer(body, piece=piece, chunked=chunked)) as (_, provider):
        assert ask(provider)[-1].message.text == "na\u00efve \u5317\u4eac \U0001f30d \u2028"


def test_deltas_come_as_they_are_sent():
    """A delta is given when it arrives, whatever comes later."""
    gate = threading.Event()
    with serving(sse_answer([sse(text("Hel"), done=False), gate, sse(text("lo", "stop"))])) as (
        _,
        provider,
    ):
        events = provider(CONTEXT, StreamOptions(), AbortSignal())
        first = [next(events) for _ in range(3)]
        gate.set()

        assert first[2] == TextDeltaEvent(0, "Hel")
        assert list(events)[-1].message.text == "Hello"


def test_answer_that_is_not_streamed():
    """Not streaming is a stream of one Done."""
    call = {"id": "c", "function": {"name": "look", "arguments": "{}"}}
    answer = {
        "id": "r1",
        "model": "m-2026",
        "choices": [{"message": {"content": "x", "tool_calls": [call]}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
    }
    with serving(json_answer(answer), stream=False) as (server, provider):
        [done] = ask(provider)

        assert isinstance(done, DoneEvent)
        assert (done.message.text, done.message.stop_reason) == ("x", "tool_use")
        assert (done.message.model, done.message.api, done.message.response_id) == (
            "m",
            "openai-chat",
            "r1",
        )
        assert done.message.usage.output_tokens == 1
        assert "stream" not in server.requests[0].json


def test_json_where_a_stream_was_asked_for():
    """A server that doesn't stream although asked is understood."""
    with serving(json_answer({"choices": [{"message": {"content": "x"}}]})) as (_, provider):
        assert ask(provider)[-1].message.text == "x"


@pytest.mark.parametrize("kind", ["application/json", "text/plain", None])
@pytest.mark.parametrize(
    "body",
    [HELLO, HELLO[:-1], HELLO[:-2], HELLO[:-14], HELLO[:-16], b": hi\n\n" + HELLO],
)
def test_stream_under_another_name(kind, body):
    """A stream with the wrong content type, or none, and without its end mark, is understood."""
    headers = [("Content-Type", kind)] if kind else []
    with serving(Answer(body, headers=headers)) as (_, provider):
        assert ask(provider)[-1].message.text == "Hello"


def test_json_under_the_name_of_a_stream():
    """A whole answer that claims to be a stream is understood."""
    body = json.dumps(
        {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}, indent=1
    )
    with serving(sse_answer(body)) as (_, provider):
        assert ask(provider)[-1].message.text == "x"


def test_failed_finish_without_a_stream():
    """A whole answer whose finish reason means failure is an error."""
    answer = {"choices": [{"message": {"content": "x"}, "finish_reason": "content_filter"}]}
    with serving(json_answer(answer), stream=False) as (_, provider):
        failure = failure_of(provider)

        assert "content_filter" in str(failure)


def test_noise_in_a_stream():
    """Comments, blank data, retry times and keep-alives of all sorts pass."""
    noise = b": hi\n\nretry: 30\n\ndata:\n\ndata: \n\ndata: : keepalive\n\nevent: ping\ndata: {}\n\ndata: 7\n\n"
    with serving(sse_answer(noise + HELLO)) as (_, provider):
        assert ask(provider)[-1].message.text == "Hello"


def test_connection_is_kept():
    """After its end mark the connection serves the next request, streamed or not."""
    with serving(sse_answer(HELLO, chunked=True, then="keep")) as (server, provider):
        for _ in range(3):
            ask(provider)

        assert {request.connection for request in server.requests} == {1}


def test_server_that_leaves_the_connection_open():
    """After the end mark nobody waits for the connection to end."""
    with serving(sse_answer(sse(text("Hello")), then="hang")) as (_, provider):
        began = time.monotonic()

        assert ask(provider)[-1].message.text == "Hello"
        assert time.monotonic() - began < SOON_S


def test_connection_that_breaks_after_the_finish():
    """Once a finish reason came, what happens to the connection is no matter."""
    with serving(sse_answer([sse(text("Hello", "stop"), done=False), 0.05], then="reset")) as (
        _,
        provider,
    ):
        assert ask(provider)[-1].message.text == "Hello"


def test_from_many_threads():
    """Threads that share a provider each get their own answer."""

    def echo(request):
        return sse_answer(
            sse(text(request.json["messages"][0]["content"], "stop")), chunked=True, then="keep"
        )

    with serving(echo) as (_, provider):
        wrong = []

        def work(number):
            for turn in range(8):
                said = f"{number}-{turn}"
                got = ask(provider, context=LlmContext("", [UserMessage(said)]))[-1].message.text
                wrong.extend([] if got == said else [(said, got)])

        threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert not wrong


# --- requests ----------------------------------------------------------------------------------------------------


def test_request_options():
    """Options, extra fields and headers go into the request; given ones go before ours, None leaves a field out."""
    extra = {"top_k": 5, "temperature": None, "stream_options": None}
    headers = {"X-A": "b", "user-agent": "mine"}
    options = StreamOptions(model=LlmModel("other"), temperature=1.0, max_tokens=7)
    context = LlmContext("", [UserMessage("hi")], [TOOL])
    with serving(sse_answer(HELLO), extra_body=extra, headers=headers) as (server, provider):
        message = ask(provider, options, context=context)[-1].message
        request = server.requests[0]

    assert message.model == "other"
    assert request.json["model"] == "other"
    assert request.json["top_k"] == 5 and request.json["max_tokens"] == 7
    assert "temperature" not in request.json and "stream_options" not in request.json
    assert request.json["tools"][0]["function"]["name"] == "look"
    assert (request.headers["x-a"], request.headers["user-agent"]) == ("b", "mine")


def test_hooks_of_the_request():
    """on_payload sees the body and may give another; on_response sees status and headers."""
    seen = []
    options = StreamOptions(
        on_payload=lambda body: {**body, "seed": 1} if body["stream"] else None,
        on_response=lambda status, headers: seen.append((status, headers["content-type"])),
    )
    with serving(sse_answer(HELLO)) as (server, provider):
        ask(provider, options)
        ask(provider, StreamOptions(on_payload=lambda body: None))

        assert server.requests[0].json["seed"] == 1
        assert server.requests[1].json["model"] == "m"
    assert seen == [(200, "text/event-stream")]


@pytest.mark.parametrize("name", ["on_payload", "on_response", "get_api_key"])
def test_hook_that_raises(name, caplog):
    """What a hook raises is an error event, logged with its traceback, and nothing is asked again."""

    def hook(*_):
        raise ZeroDivisionError("oops")

    with serving(sse_answer(HELLO)) as (server, provider), caplog.at_level(logging.ERROR):
        failure = failure_of(provider, StreamOptions(**{name: hook}))

        assert isinstance(failure, ZeroDivisionError)
        assert len(server.requests) <= 1
    assert "Traceback" in caplog.text and "oops" in caplog.text


def test_keys(monkeypatch):
    """The key is the one given, which may be a function asked each time, else the hook's, else the environment's."""
    monkeypatch.setenv("OPENAI_API_KEY", "env-key")
    turns = iter("ab")
    asked = []
    options = StreamOptions(get_api_key=lambda name: asked.append(name) or " hook\n")
    with serving(sse_answer(HELLO), api_key=lambda: next(turns)) as (server, provider):
        ask(provider)
        ask(provider, options)

        sent = [request.headers["authorization"] for request in server.requests]
    with serving(sse_answer(HELLO), provider="mine") as (server, provider):
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        by_environment = OpenAIChat("m", api_key=lambda: None, provider="mine")
        ask(by_environment, options)
        ask(by_environment, StreamOptions(get_api_key=asked.append))

        sent += [request.headers["authorization"] for request in server.requests]

    assert sent == ["Bearer a", "Bearer b", "Bearer hook", "Bearer env-key"]
    assert asked == ["mine", "mine"]


def test_environment(monkeypatch):
    """OPENAI_BASE_URL names the server, and only to it and OpenAI's own OPENAI_API_KEY is sent."""
    monkeypatch.setenv("OPENAI_API_KEY", "env-key")
    with ScriptedServer(sse_answer(HELLO)) as server:
        ask(OpenAIChat("m", base_url=server.url))
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/base/")
        ask(OpenAIChat("m"))

        assert [request.headers.get("authorization") for request in server.requests] == [
            None,
            "Bearer env-key",
        ]
        assert server.requests[1].target == "/base/chat/completions"


def test_missing_key(monkeypatch):
    """OpenAI's own server isn't asked without a key; the error names the variable."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    failure = failure_of(OpenAIChat("gpt-5.1"))

    assert isinstance(failure, AuthenticationError)
    assert "OPENAI_API_KEY" in str(failure)


def test_key_in_given_headers(monkeypatch):
    """A header for the key makes the key itself needless."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    client = HttpClient(environ={}, resolver=lambda host, port: [])
    provider = OpenAIChat(
        "m",
        base_url="https://api.openai.com/v1",
        headers={"authorization": "x"},
        client=client,
        retry=NEVER,
    )

    assert isinstance(failure_of(provider), LlmConnectionError)


@pytest.mark.parametrize(
    "options",
    [
        {"model": ""},
        {"base_url": "nothing"},
        {"base_url": "ftp://a.test"},
        {"base_url": "http://[::1"},
        {"base_url": "http://a.test:99999/v1"},
        {"base_url": "http://a.test:eighty/v1"},
    ],
)
def test_malformed_provider(options):
    """A provider without a model, or with a base URL that is none, is refused at once."""
    with pytest.raises(ConfigurationError):
        OpenAIChat(**{"model": "m", **options})


def test_key_is_not_shown():
    """The key is neither in the repr nor in an error, even where the server repeats it."""
    error = {"error": {"message": "Incorrect API key: sk-secret"}}
    with serving(json_answer(error, status=401), api_key="sk-secret") as (_, provider):
        last = ask(provider)[-1]

        assert isinstance(last.error, AuthenticationError)
        assert "Incorrect API key: …" in last.message.error_message
        assert "sk-secret" not in repr(last) + repr(last.error) + repr(provider)
        assert repr(provider) == "OpenAIChat('m', host='127.0.0.1')"


def test_malformed_key_is_not_shown():
    """A key that can't be sent is an error that doesn't show it."""
    with serving(sse_answer(HELLO), api_key="sk-secret\u2028x") as (server, provider):
        failure = failure_of(provider)

        assert isinstance(failure, ConfigurationError)
        assert "Authorization" in str(failure) and "secret" not in str(failure)
        assert not server.requests


# --- as a plain llm_call -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_plain_call(stream):
    """Called with a request dict it gives the whole answer."""
    answer = (
        sse_answer(HELLO)
        if stream
        else json_answer({"choices": [{"message": {"content": "Hello"}}]})
    )
    request = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0}
    with serving(answer, stream=stream, extra_body={"seed": 1}) as (server, provider):
        message = provider(request)
        sent = server.requests[0].json

    assert message.text == "Hello"
    assert (sent["model"], sent["temperature"], sent["stream"], sent["seed"]) == ("m", 0, stream, 1)
    assert request == {"messages": [{"role": "user", "content": "hi"}], "temperature": 0}


def test_plain_call_fails():
    """Called with a request dict it raises what went wrong."""
    with serving(json_answer({"error": {"message": "bad"}}, status=400)) as (_, provider):
        with pytest.raises(LlmError, match="bad"):
            provider({"messages": [], "model": "other"})
        with pytest.raises(TypeError, match="request dict"):
            provider("hi")


# --- failures and retries ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 429, 500, 503, 529])
def test_retry(status):
    """A failure that may pass is asked again; each wait is a notice, and the answer is the second one's."""
    failed = json_answer(
        {"error": {"message": "busy"}}, status=status, headers=[("retry-after-ms", "20")]
    )
    with serving(failed, sse_answer(HELLO)) as (server, provider):
        notice, *events = ask(provider)

        assert isinstance(notice, StreamNoticeEvent)
        assert notice.kind == "retry_scheduled"
        assert "busy" in notice.message
        assert dict(notice.details)["attempt"] == 1
        assert dict(notice.details)["delay_ms"] == 20
        assert dict(notice.details)["status"] == status
        assert events[-1].message.text == "Hello"
        assert server.requests[0].body == server.requests[1].body


@pytest.mark.parametrize("answer", [
    Answer(status=None),
    Answer(status=None, then="reset"),
    sse_answer(b""),
    sse_answer(b": hi\n\n"),
    sse_answer(sse({"error": {"message": "went away", "code": 502}})),
    sse_answer(b'event: error\ndata: {"message": "overloaded"}\n\n'),
    sse_answer(b'data: {"choices": [\n\n'),
    sse_answer(sse({"choices": []})),
    Answer(b"try again", headers=[("Content-Type", "application/json")]),
    json_answer({"error": {"type": "server_error"}}),
])  # fmt: skip
def test_retry_before_content(answer):
    """Whatever breaks before the first content is asked again."""
    with serving(answer, sse_answer(HELLO)) as (server, provider):
        events = ask(provider)

        assert [type(event) for event in events[:2]] == [StreamNoticeEvent, StartEvent]
        assert events[-1].message.text == "Hello"
        assert len(server.requests) == 2


@pytest.mark.parametrize("then", ["close", "reset"])
def test_no_retry_after_content(then):
    """Once content came, a break is an error that keeps it, and nothing is asked again."""
    with serving(
        sse_answer([sse(text("Half"), done=False), 0.05], then=then), sse_answer(HELLO)
    ) as (server, provider):
        last = ask(provider)[-1]

        assert isinstance(last, ErrorEvent)
        assert isinstance(last.error, LlmConnectionError)
        assert last.message.text == "Half"
        assert len(server.requests) == 1


def test_retries_run_out():
    """After the last retry the error says how often was asked."""
    twice = RetryPolicy(base_delay_ms=1, max_retries=2)
    with serving(json_answer({"error": "busy"}, status=503), retry=twice) as (server, provider):
        events = ask(provider)

        assert [type(event) for event in events] == [
            StreamNoticeEvent,
            StreamNoticeEvent,
            ErrorEvent,
        ]
        assert "gave up after 3 requests" in events[-1].message.error_message
        assert events[-1].error.status == 503
        assert len(server.requests) == 3


@pytest.mark.parametrize(
    "asked, own, limit_s", [(60_000, None, 60), (None, 2000, 2), (9000, 5000, 5)]
)
def test_wait_too_long(asked, own, limit_s):
    """A wait above the smaller limit fails at once and says how long the server asked for."""
    busy = json_answer({"error": "busy"}, status=429, headers=[("Retry-After", "86400")])
    with serving(busy, retry=RetryPolicy(max_delay_ms=own)) as (server, provider):
        failure = failure_of(provider, StreamOptions(max_retry_delay_ms=asked))

        assert isinstance(failure, RateLimitError)
        assert failure.retry_after_ms == 86_400_000
        assert "86400 s" in str(failure) and f"limit of {limit_s} s" in str(failure)
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    "answer, expected, words",
    [
        (json_answer({"error": {"message": "bad field"}}, status=400), LlmError, "bad field"),
        (json_answer({"error": {"message": "no credit", "type": "insufficient_quota"}}), RateLimitError, "no credit"),
        (sse_answer('{"error": {"code": 400, "message": "exceeds the available context size"}}'), ContextOverflowError,
         "context size"),
        (sse_answer("<html>log in</html>"), BadResponseError, "log in"),
        (json_answer({"choices": []}), BadResponseError, "no choice"),
        (json_answer([1]), BadResponseError, "gave"),
        (Answer(status=307, headers=[("Location", "https://b.test/v1")]), BadResponseError, "https://b.test/v1"),
        (Answer(status=304), LlmError, "304"),
    ],
)  # fmt: skip
def test_no_retry(answer, expected, words):
    """What asking again can't help is asked once, and the server's words are kept."""
    with serving(answer) as (server, provider):
        failure = failure_of(provider)

        assert type(failure) is expected
        assert words in str(failure)
        assert len(server.requests) == 1


def test_idle_limit():
    """Keep-alive comments don't lengthen the wait for the next event."""
    steps = [
        sse(text("Half"), done=False),
        *[step for _ in range(100) for step in (": hi\n\n", 0.05)],
    ]
    with serving(sse_answer(steps), idle_timeout_s=0.3) as (_, provider):
        began = time.monotonic()
        failure = failure_of(provider)

        assert isinstance(failure, LlmConnectionError)
        assert "nothing new for 0.3 s" in str(failure)
        assert time.monotonic() - began < 0.3 + SOON_S


def test_events_lengthen_the_wait():
    """Each event begins the idle limit anew."""
    steps = [step for _ in range(10) for step in (sse(text("x"), done=False), 0.06)]
    with serving(sse_answer([*steps, sse(text("", "stop"))]), idle_timeout_s=0.5) as (_, provider):
        assert ask(provider)[-1].message.text == "x" * 10


# --- aborts ------------------------------------------------------------------------------------------------------


def aborted(provider, ready, context=CONTEXT):
    """Ask, set the signal once `ready` returns, and give the last event if it came soon after."""
    signal = AbortSignal()
    thread = threading.Thread(target=lambda: (ready(), signal.abort("enough")))
    thread.start()
    last = ask(provider, signal=signal, context=context)[-1]
    took_s = time.monotonic() - (signal.aborted_at or 0.0)
    thread.join()
    assert took_s < SOON_S
    assert isinstance(last, ErrorEvent) and isinstance(last.error, AbortedError)
    assert last.message.stop_reason == "aborted"
    assert last.message.error_message == "aborted: enough"
    assert not signal._callbacks
    return last.message


def test_abort_at_once():
    """With a signal that is set nothing is asked."""
    signal = AbortSignal()
    signal.abort("enough")
    with serving(sse_answer(HELLO)) as (server, provider):
        [last] = ask(provider, signal=signal)

        assert last.message.stop_reason == "aborted"
        assert not server.requests


def test_abort_while_connecting():
    """An abort ends the wait for a connection."""
    resolving, gate = threading.Event(), threading.Event()

    def resolver(host, port):
        resolving.set()
        gate.wait()
        return []

    provider = OpenAIChat(
        "m", base_url="http://api.test", client=HttpClient(environ={}, resolver=resolver)
    )
    assert aborted(provider, resolving.wait).content == ()
    gate.set()


def test_abort_before_headers():
    """An abort ends the wait for the headers."""
    with serving(Answer(status=None, then="hang")) as (server, provider):
        assert aborted(provider, lambda: server.wait_for(requests=1)).content == ()
        server.wait_until_idle()
        assert len(server.requests) == 1  # and it is not asked again


def test_abort_mid_stream():
    """An abort in the middle of a stream keeps what came."""
    arrived = threading.Event()
    with serving(sse_answer(sse(text("Half"), done=False), then="hang")) as (server, provider):
        signal = AbortSignal()
        events = provider(CONTEXT, StreamOptions(), signal)
        assert [next(events) for _ in range(3)][2] == TextDeltaEvent(0, "Half")
        thread = threading.Thread(target=lambda: (arrived.wait(), signal.abort()))
        thread.start()
        arrived.set()
        last = list(events)[-1]
        thread.join()

        assert time.monotonic() - signal.aborted_at < SOON_S
        assert (last.message.stop_reason, last.message.text) == ("aborted", "Half")
        server.wait_until_idle()


def test_abort_in_back_off():
    """An abort ends the wait before a retry, and nothing is asked again."""
    busy = json_answer({"error": "busy"}, status=429, headers=[("Retry-After", "30")])
    with serving(busy) as (server, provider):
        signal = AbortSignal()
        events = provider(CONTEXT, StreamOptions(), signal)
        assert isinstance(next(events), StreamNoticeEvent)
        timer = threading.Timer(0.1, signal.abort)
        timer.start()
        [last] = events
        timer.join()

        assert last.message.stop_reason == "aborted"
        assert time.monotonic() - signal.aborted_at < SOON_S
        assert len(server.requests) == 1


def test_stream_that_is_left():
    """A stream that its reader leaves closes its connection."""
    with serving(sse_answer(sse(text("Half"), done=False), then="hang")) as (server, provider):
        signal = AbortSignal()
        events = provider(CONTEXT, StreamOptions(), signal)
        next(events)
        events.close()
        server.wait_until_idle()

        assert not signal._callbacks


# --- what an answer costs -----------------------------------------------------------------------------------------


USAGE = {"prompt_tokens": 1_000_000, "completion_tokens": 0}


@pytest.mark.parametrize("stream", [True, False])
def test_cost(stream):
    """An answer carries what it cost, where the model's price is known; a cut one too."""
    set_price("openai:priced-in-a-test", input=2, output=8)
    whole = {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}], "usage": USAGE}
    streamed = sse({**text("x", "stop"), "usage": USAGE})
    answer = sse_answer(streamed) if stream else json_answer(whole)
    with serving(answer, stream=stream) as (_, provider):
        known, other = (
            ask(provider, StreamOptions(model=name))[-1].message
            for name in ("priced-in-a-test", "m")
        )
    with serving(sse_answer(sse({**text("x"), "usage": USAGE}, done=False))) as (_, provider):
        cut = ask(provider, StreamOptions(model="priced-in-a-test"))[-1].message

    assert (known.usage.cost, other.usage.cost) == (2.0, None)
    assert (cut.stop_reason, cut.usage.cost) == ("error", 2.0)
