"""Several models as one."""

import threading
import time

import pytest

from tests.support.http_server import Answer, ScriptedServer, json_answer, sse, sse_answer
from yiemagent import AgentTool, YiemAgent, ask
from yiemagent.abort import AbortSignal
from yiemagent.context import LlmContext
from yiemagent.errors import (
    AuthenticationError,
    BadResponseError,
    ConfigurationError,
    ContextOverflowError,
    HttpError,
    LlmConnectionError,
    LlmError,
    RateLimitError,
    ToolError,
)
from yiemagent.events import FallbackEvent
from yiemagent.llm import StreamOptions, stream_fn_of
from yiemagent.messages import AssistantMessage, UserMessage
from yiemagent.net.retry import RetryPolicy
from yiemagent.providers import OpenAIChat, fallback
from yiemagent.streaming import (
    DoneEvent,
    ErrorEvent,
    StartEvent,
    StreamNoticeEvent,
    TextDeltaEvent,
    TextEndEvent,
    TextStartEvent,
)

SOON_S = 1.0  # 0.1 s is the promise; the rest is for a busy machine
CONTEXT = LlmContext("", [UserMessage("hi")])


def good(text="Hello", model="second"):
    """A stream that answers."""
    seen = []

    def stream(context, options, signal):
        seen.append(options)
        yield StartEvent(model)
        yield TextStartEvent(0)
        yield TextDeltaEvent(0, text)
        yield TextEndEvent(0, text)
        yield DoneEvent(AssistantMessage(text, model=model))

    stream.seen = seen
    return stream


def bad(error, *events, message=None):
    """A stream that fails, after other events."""

    def failing(context, options, signal):
        yield from events
        yield ErrorEvent(
            message or AssistantMessage(stop_reason="error", error_message=str(error)), error
        )

    return failing


def asked(*models, signal=None, **options):
    chain = fallback(*models)
    return list(chain(CONTEXT, StreamOptions(**options), signal or AbortSignal()))


@pytest.mark.parametrize(
    "error",
    [
        LlmConnectionError("no connection", None, True),
        AuthenticationError("wrong key", 401),
        RateLimitError("slow down", 429, True),
        RateLimitError("no credit", 402),
        BadResponseError("a web page", 200),
        LlmError("sorry", 503, True),
        LlmError("the model's server answered 404: no such model", 404),
        LlmError("the model's server answered 400: x is not a valid model ID", 400),
        LlmError("who knows"),
        HttpError("broke"),
        ValueError("of a function of somebody's"),
        None,
    ],
)
def test_the_next_one_is_asked(error):
    """What is wrong with one server, key or model is not with the next, which is asked; a notice tells of it."""
    notice, *events = asked(bad(error, StartEvent("first")), good())

    assert isinstance(notice, StreamNoticeEvent) and notice.kind == "fallback"
    assert (notice.details["from_model"], notice.details["to_model"]) == ("failing", "stream")
    assert notice.details["reason"] == str(error)
    assert [type(event) for event in events] == [
        StartEvent, TextStartEvent, TextDeltaEvent, TextEndEvent, DoneEvent,
    ]  # fmt: skip
    assert events[-1].message.model == "second"


@pytest.mark.parametrize(
    "error",
    [
        LlmError("the model's server answered 400: bad schema", 400),
        LlmError("the model's server answered 422: field required", 422),
        LlmError("the model's server answered 413: too large", 413),
        ContextOverflowError("too long", 400),
        ConfigurationError("a header that can't be sent"),
        ToolError("strange"),
    ],
)
def test_what_the_next_one_would_say_too(error):
    """A request that is wrong as such, or too long, ends the answer."""
    second = good()
    [last] = asked(bad(error), second)

    assert isinstance(last, ErrorEvent) and last.error is error
    assert second.seen == []


@pytest.mark.parametrize(
    "message",
    [
        AssistantMessage("half", stop_reason="error", error_message="cut"),
        AssistantMessage(stop_reason="error", raw_stop_reason="content_filter"),
        AssistantMessage(stop_reason="aborted", error_message="aborted"),
    ],
)
def test_an_answer_that_failed_is_an_answer(message):
    """What a model answered, refused or broke off in the middle is not asked of another one."""
    [last] = asked(bad(BadResponseError("x", None, True), message=message), good())

    assert last.message is message


def test_after_the_first_content():
    """Once content came nobody else is asked, and what came is given."""
    error = LlmConnectionError("broke", None, True)
    first = [StartEvent("first"), TextStartEvent(0), TextDeltaEvent(0, "Hal")]
    events = asked(bad(error, *first), good())

    assert events[:3] == first
    assert [type(event) for event in events[3:]] == [ErrorEvent]


def test_the_last_failure_is_the_answer():
    """Where all fail, the last failure is given, and a notice for each step."""
    errors = [LlmError(str(number), 503, True) for number in range(3)]
    *notices, last = asked(*map(bad, errors))

    assert [notice.kind for notice in notices] == ["fallback", "fallback"]
    assert last.error is errors[2]


def test_the_first_one_is_asked_each_time():
    """Each request begins with the first model."""
    first, second = good(model="first"), good()
    chain = fallback(first, second)
    for _ in range(2):
        list(chain(CONTEXT, StreamOptions(), AbortSignal()))

    assert (len(first.seen), len(second.seen)) == (2, 0)


def test_a_stream_that_breaks_its_promise():
    """A stream that raises, or ends without an answer, has failed like any other."""

    def raising(context, options, signal):
        raise ZeroDivisionError("oops")

    def silent(context, options, signal):
        yield StartEvent("x")

    events = asked(raising, silent, good())

    assert "oops" in events[0].message and "without an answer" in events[1].message
    assert isinstance(events[-1], DoneEvent)


def test_the_model_of_the_request_is_the_first_ones():
    """A model that the request names is for the first one; the others are asked for their own."""
    first, second = bad(LlmError("no", 503)), good()
    notice, *_ = asked(first, second, model="special", temperature=0.5)

    assert notice.details["from_model"] == "special"
    assert (second.seen[0].model, second.seen[0].temperature) == (None, 0.5)


def test_plain_functions_and_model_strings(monkeypatch):
    """Plain functions and model strings may be among the models."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)

    def mine(request):
        return f"said {request['messages'][-1]['content']}"

    notice, last = asked("openai:gpt-5.1", mine)

    assert notice.details["from_model"] == "openai:gpt-5.1" and "OPENAI_API_KEY" in notice.message
    assert last.message.text == "said hi"
    assert repr(fallback("openai:gpt-5.1", mine)) == "fallback(openai:gpt-5.1, mine)"


def test_too_few_models():
    """One model has nothing to fall back to, and what is no model is refused."""
    with pytest.raises(ConfigurationError, match="two models"):
        fallback(good())
    with pytest.raises(ConfigurationError, match="llm_call must be"):
        fallback(good(), 7)


def test_native_output():
    """A schema is left to the servers only where all of them hold answers to one."""
    openai, ollama = OpenAIChat("m", profile="openai"), OpenAIChat("m", profile="ollama")

    assert fallback(openai, openai).native_output
    assert not fallback(openai, ollama).native_output
    assert not fallback(openai, good()).native_output


# --- with providers and agents -----------------------------------------------------------------------------------


def hello(text="Hello"):
    return sse_answer(
        sse({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]})
    )


def provider_of(server, **options):
    retry = options.pop("retry", RetryPolicy(max_retries=0))
    return OpenAIChat("m", base_url=server.url, api_key="k", retry=retry, **options)


def test_retries_come_first():
    """A provider's own retries come before the next one is asked."""
    busy = json_answer({"error": "busy"}, status=503)
    with ScriptedServer(busy) as one, ScriptedServer(hello()) as other:
        first = provider_of(one, retry=RetryPolicy(base_delay_ms=1, max_retries=2))
        events = asked(first, provider_of(other))
        kinds = [event.kind for event in events if isinstance(event, StreamNoticeEvent)]

        assert kinds == ["retry_scheduled", "retry_scheduled", "fallback"]
        assert (len(one.requests), len(other.requests)) == (3, 1)
        assert events[-1].message.text == "Hello"


def test_a_hook_that_raises_ends_the_answer():
    """What a hook raises would be raised again, so the next one is not asked."""

    def hook(_payload):
        raise ZeroDivisionError("oops")

    with ScriptedServer(hello()) as one, ScriptedServer(hello()) as other:
        [last] = asked(provider_of(one), provider_of(other), on_payload=hook)

        assert isinstance(last.error, ZeroDivisionError)
        assert not other.requests


def test_abort_while_the_first_one_is_asked():
    """An abort ends the answer at once, and nobody else is asked."""
    signal = AbortSignal()
    with ScriptedServer(Answer(status=None, then="hang")) as one, ScriptedServer(hello()) as other:
        thread = threading.Thread(target=lambda: (one.wait_for(requests=1), signal.abort()))
        thread.start()
        [last] = asked(provider_of(one), provider_of(other), signal=signal)
        thread.join()

        assert last.message.stop_reason == "aborted"
        assert time.monotonic() - signal.aborted_at < SOON_S
        assert not other.requests


def test_as_a_plain_call():
    """Called with a request dict it gives the first answer that comes, or raises what the last one failed with."""
    request = {"messages": [{"role": "user", "content": "hi"}], "model": "special", "seed": 1}
    busy = json_answer({"error": "busy"}, status=503)
    with ScriptedServer(busy) as one, ScriptedServer(hello()) as other:
        chain = fallback(provider_of(one), provider_of(other))
        message = chain(request)
        sent = [server.requests[0].json for server in (one, other)]
        plain = fallback(provider_of(one), lambda request: request["messages"][0]["content"])
        nested = fallback(fallback(provider_of(one), provider_of(one)), good())
        failing = fallback(provider_of(one), provider_of(one))

        assert message.text == "Hello"
        assert [(body["model"], body["seed"]) for body in sent] == [("special", 1), ("m", 1)]
        assert plain(request).text == "hi"
        assert nested({"messages": request["messages"]}).text == "Hello"
        with pytest.raises(LlmError, match="busy"):
            failing(request)
        with pytest.raises(TypeError, match="request dict"):
            failing("hi")
        chain.close()


def test_an_agent_tells_of_it():
    """The agent's events tell who took over, and its answer is that one's."""
    events = []
    tool = AgentTool("look", description="Looks.", execute=lambda *_: "x")
    with ScriptedServer(json_answer({"error": "no"}, status=401)) as one:
        chain = fallback(provider_of(one), good())
        with YiemAgent(chain, tools=[tool], event_sink=events.append) as agent:
            answer = ask(agent, "hi")

    assert stream_fn_of(chain) is chain
    assert answer.text == "Hello"
    [told] = [event for event in events if isinstance(event, FallbackEvent)]
    assert told.details["from_model"] == "openai:m" and told.details["status"] == 401
    assert "sk-" not in told.message
