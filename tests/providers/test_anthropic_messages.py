"""The provider for the Anthropic Messages API, before a local server."""

import json
import logging

import pytest

from tests.support.http_server import Answer, ScriptedServer, json_answer, sse_answer
from yiemagent import AbortSignal, AgentTool, YiemAgent, ask
from yiemagent.context import LlmContext
from yiemagent.errors import (
    AuthenticationError,
    BadResponseError,
    ConfigurationError,
    ContextOverflowError,
    LlmError,
)
from yiemagent.llm import StreamOptions, resolve, stream_fn_of
from yiemagent.messages import (
    AssistantMessage,
    LlmModel,
    LlmUsage,
    TextContent,
    ThinkingContent,
    ToolCall,
    UserMessage,
)
from yiemagent.net.retry import RetryPolicy
from yiemagent.providers import AnthropicMessages, create
from yiemagent.providers.anthropic_messages import MAX_LOST, MAX_PAUSES
from yiemagent.streaming import DoneEvent, ErrorEvent, StartEvent, StreamNoticeEvent, TextDeltaEvent

MODEL, API = "claude-opus-5-5", "anthropic-messages"
FAST = RetryPolicy(base_delay_ms=1)
NEVER = RetryPolicy(max_retries=0)


def message(*blocks, stop="end_turn", **usage):
    """An answer as one JSON value."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks],
        "stop_reason": stop,
        "usage": usage or {"input_tokens": 5, "output_tokens": 2},
    }


def events(*blocks, stop="end_turn", **usage):
    """The same answer as a stream."""
    whole = message(*blocks, stop=stop, **usage)
    told = [{"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}]
    for index, block in enumerate(whole["content"]):
        told.append({"type": "content_block_start", "index": index, "content_block": block})
        told.append({"type": "content_block_stop", "index": index})
    told.append({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": whole["usage"]})
    return [*told, {"type": "message_stop"}]


def stream(*blocks, **options):
    return sse_answer(body_of(events(*blocks, **options)))


def body_of(told):
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in told)


def failure(status, kind, said, **options):
    error = {"type": "error", "error": {"type": kind, "message": said}}
    return json_answer(error, status=status, **options)


def provider(server, model=MODEL, **options):
    given = {"base_url": server.url, "api_key": "sk-ant-test", "retry": FAST, **options}
    return AnthropicMessages(model, **given)


def asked(asking, *messages, options=None, tools=()):
    """Ask once; gives the events."""
    context = LlmContext("Be brief.", messages or [UserMessage("hi")], tools)
    told = list(asking(context, options or StreamOptions(), AbortSignal()))
    asking.close()
    assert sum(isinstance(event, (DoneEvent, ErrorEvent)) for event in told) == 1
    return told


def answer_to(*answers, messages=(), options=None, **more):
    """The message and the requests that it took."""
    with ScriptedServer(*answers) as server:
        told = asked(provider(server, **more), *messages, options=options)
        return told[-1], server.requests


# -- requests ---------------------------------------------------------------------------------------------------------


def test_a_request():
    """A request goes to /v1/messages with the key, the version and a body that asks for a stream."""
    last, requests = answer_to(stream("Hi"))

    assert (last.message.text, last.message.stop_reason) == ("Hi", "stop")
    assert (last.message.api, last.message.provider) == (API, "anthropic")
    assert last.message.usage == LlmUsage(5, 2, cost=last.message.usage.cost)
    assert requests[0].target == "/v1/messages"
    assert requests[0].headers["x-api-key"] == "sk-ant-test"
    assert requests[0].headers["anthropic-version"] == "2023-06-01"
    assert "anthropic-beta" not in requests[0].headers
    assert "authorization" not in requests[0].headers
    assert requests[0].json["model"] == MODEL
    assert requests[0].json["stream"] is True
    assert requests[0].json["max_tokens"] == 128_000


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
def test_base_urls(path):
    """A base URL may end in /v1 or not."""
    with ScriptedServer(stream("Hi")) as server:
        asked(provider(server, base_url=server.url + path))

        assert server.requests[0].target == "/v1/messages"


def test_whole_answers():
    """Without streaming the answer comes whole, and says the same."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"a": 1}}
    last, requests = answer_to(json_answer(message("Hi", call, stop="tool_use")), stream=False)

    assert requests[0].json["stream"] is False
    assert last.message.text == "Hi"
    assert last.message.tool_calls == (ToolCall("toolu_1", "look", {"a": 1}),)
    assert (last.message.stop_reason, last.message.response_id) == ("tool_use", "msg_1")
    assert (last.message.api, last.message.model) == (API, MODEL)


def test_a_whole_answer_to_a_stream():
    """A server that was asked for a stream and answers whole is understood."""
    last, _ = answer_to(json_answer(message("Hi")))

    assert last.message.text == "Hi"


def test_what_else_a_request_carries():
    """Betas go in their header, own headers and fields go before ours, and an own output_config joins ours."""
    last, requests = answer_to(
        stream("Hi"),
        betas=["one-2026-01-01", "two-2026-01-01"],
        headers={"x-extra": "1", "anthropic-version": "2099-01-01"},
        extra_body={"top_k": 5, "output_config": {"task_budget": 9}, "max_tokens": 7},
        options=StreamOptions(reasoning="low"),
    )

    assert isinstance(last, DoneEvent)
    assert requests[0].headers["anthropic-beta"] == "one-2026-01-01,two-2026-01-01"
    assert requests[0].headers["anthropic-version"] == "2099-01-01"
    assert requests[0].headers["x-extra"] == "1"
    assert requests[0].json["top_k"] == 5
    assert requests[0].json["max_tokens"] == 7
    assert requests[0].json["output_config"] == {"effort": "low", "task_budget": 9}


def test_one_beta_as_text():
    """One beta may be given as text."""
    _, requests = answer_to(stream("Hi"), betas="one-2026-01-01", extra_body={"output_config": {}})

    assert requests[0].headers["anthropic-beta"] == "one-2026-01-01"


def test_tools_of_both_sides():
    """Tools that run on the server stand before ours; ours may send their arguments as they are made."""
    search = {"type": "web_search_20260318", "name": "web_search"}
    tool = AgentTool("look", description="Looks.", execute=lambda *_: "x")
    with ScriptedServer(stream("Hi")) as server:
        asking = provider(server, server_tools=[search], eager_tool_input=True)
        asked(asking, tools=[tool])
        body = server.requests[0].json

    assert body["tools"][0] == search
    assert body["tools"][1]["name"] == "look"
    assert body["tools"][1]["eager_input_streaming"] is True


def test_model_of_the_options():
    """The options' model goes before the provider's, and what they say of its limit before the list."""
    model = LlmModel("claude-sonnet-4-5", max_output_tokens=777)
    last, requests = answer_to(stream("Hi"), options=StreamOptions(model=model))

    assert requests[0].json["model"] == last.message.model == "claude-sonnet-4-5"
    assert requests[0].json["max_tokens"] == 777


@pytest.mark.parametrize(
    "model, most",
    [("claude-sonnet-4-5-20250929", 64_000), ("claude-3-5-haiku-latest", 8_192), ("other", 8_192)],
)
def test_limits_of_models(model, most):
    """The limit is what is known of the model."""
    _, requests = answer_to(stream("Hi"), model=model)

    assert requests[0].json["max_tokens"] == most


class Refusing:
    """In place of an `HttpClient`: keeps what it is asked with, and asks nobody."""

    def __init__(self):
        self.seen = {}

    def request(self, *_, **options):
        self.seen = options
        raise LlmError("seen")

    def close(self):
        """Nothing is open."""


@pytest.mark.parametrize("given, seconds", [({}, 600.0), ({"idle_timeout_s": 5.0}, 5.0)])
def test_idle_limit(given, seconds):
    """Models that think say nothing for long, so a stream may pause for ten minutes."""
    client = Refusing()
    asked(AnthropicMessages(MODEL, api_key="sk-ant-test", client=client, **given))

    assert client.seen["idle_timeout_s"] == seconds


def test_native_output():
    """Models that can be held to a schema say so."""
    assert AnthropicMessages(MODEL).native_output
    assert not AnthropicMessages("claude-opus-4-1").native_output
    assert not AnthropicMessages("kimi-k3", base_url="http://127.0.0.1:1").native_output


# -- keys -------------------------------------------------------------------------------------------------------------


def test_keys(monkeypatch):
    """The key is the one given, or what a function gives, or the environment's, which another server does not get."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-environment")
    with ScriptedServer(stream("Hi")) as server:
        asked(provider(server, api_key=lambda: " sk-ant-asked "))
        asked(provider(server, api_key=None))
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        asked(AnthropicMessages(MODEL))
        keys = [request.headers.get("x-api-key") for request in server.requests]

    assert keys == ["sk-ant-asked", None, "sk-ant-environment"]


def test_no_key(monkeypatch):
    """Without a key Anthropic's own server is not asked, and the error names the variable; a token in a header does."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    last = asked(AnthropicMessages(MODEL))[-1]

    assert isinstance(last.error, AuthenticationError)
    assert "ANTHROPIC_API_KEY" in last.message.error_message
    AnthropicMessages(MODEL, headers={"Authorization": "Bearer x"}).check_key()
    assert "sk-ant-test" not in repr(AnthropicMessages(MODEL, api_key="sk-ant-test"))


def test_model_strings():
    """A model string gives the provider; without a model it says what to write."""
    assert isinstance(resolve("anthropic:claude-opus-5-5"), AnthropicMessages)
    assert create("anthropic", MODEL, base_url="http://127.0.0.1:1").model == MODEL
    with pytest.raises(ConfigurationError, match="anthropic:claude"):
        resolve("anthropic:")
    with pytest.raises(ConfigurationError, match="name of a model"):
        AnthropicMessages("")


# -- as a plain function ----------------------------------------------------------------------------------------------


def test_request_dict_in_the_chat_form():
    """Called with a request dict in the OpenAI chat form, it gives the whole answer."""
    function = {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}
    request = {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": function}],
        "max_tokens": 50,
    }
    with ScriptedServer(stream("Hi")) as server:
        asking = provider(server)
        answer = asking(request)
        body = server.requests[0].json
        asking.close()

    assert isinstance(answer, AssistantMessage)
    assert answer.text == "Hi"
    assert body["system"][0]["text"] == "Be brief."
    assert body["tools"][0]["input_schema"] == {"type": "object", "properties": {}}
    assert (body["max_tokens"], body["stream"]) == (50, True)


@pytest.mark.parametrize(
    "fields",
    [
        {"system": "Be brief."},
        {"stop_sequences": ["x"], "model": "claude-other"},
        {"tools": [{"name": "look", "input_schema": {"type": "object"}}]},
    ],
)
def test_request_dict_in_its_own_form(fields):
    """Called with a request dict in the API's own form, it sends that, with the limit that the API wants."""
    request = {"messages": [{"role": "user", "content": "hi"}], **fields}
    with ScriptedServer(stream("Hi")) as server:
        asking = provider(server)
        assert asking(request).text == "Hi"
        body = server.requests[0].json
        asking.close()

    assert (
        body
        == {
            "model": MODEL,
            "max_tokens": 128_000,
            "stream": True,
            **request,
        }
        or "model" in fields
    )
    assert body["model"] == fields.get("model", MODEL)


def test_request_dict_that_fails():
    """A request dict that gets no answer raises."""
    with ScriptedServer(failure(404, "not_found_error", "model: none")) as server:
        asking = provider(server)
        with pytest.raises(LlmError, match="model: none"):
            asking({"messages": [{"role": "user", "content": "hi"}]})
        with pytest.raises(TypeError, match="request dict"):
            asking("hi")
        asking.close()


# -- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "status, kind, said, error",
    [
        (401, "authentication_error", "invalid x-api-key", AuthenticationError),
        (404, "not_found_error", "model: claude-none", LlmError),
        (400, "invalid_request_error", "max_tokens: too large", LlmError),
        (400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum", ContextOverflowError),
        (
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 9 + 9 > 10, decrease input length",
            ContextOverflowError,
        ),
    ],
)  # fmt: skip
def test_refused_requests(status, kind, said, error):
    """A refused request is asked once, and its error holds the server's own words."""
    last, requests = answer_to(failure(status, kind, said))

    assert type(last.error) is error
    assert said in last.message.error_message
    assert last.error.status == status
    assert len(requests) == 1


@pytest.mark.parametrize(
    "status, kind",
    [(529, "overloaded_error"), (500, "api_error"), (429, "rate_limit_error")],
)
def test_requests_that_are_asked_again(status, kind):
    """An overloaded server is asked again, with a notice."""
    with ScriptedServer(failure(status, kind, "busy"), stream("Hi")) as server:
        told = asked(provider(server))

    assert told[-1].message.text == "Hi"
    assert [event.details["status"] for event in told if isinstance(event, StreamNoticeEvent)][
        :1
    ] == [status]


def test_overload_in_the_stream():
    """An error event before the first words is asked again; behind them it is the answer's end."""
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "too busy now"}}
    early = sse_answer(body_of([*events(stop=None)[:1], error]))
    start = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "The answer"},
        },
    ]
    late = sse_answer(body_of([*events(stop=None)[:1], *start, error]))
    with ScriptedServer(early, late) as server:
        told = asked(provider(server))
        assert len(server.requests) == 2

    assert isinstance(told[-1], ErrorEvent)
    assert told[-1].message.text == "The answer"
    assert "too busy now" in told[-1].message.error_message


@pytest.mark.parametrize(
    "kind, asked_again", [("api_error", True), ("invalid_request_error", False)]
)
def test_kinds_of_errors_in_the_stream(kind, asked_again):
    """An error event means what its kind means, whatever it says."""
    error = {"type": "error", "error": {"type": kind, "message": "An odd thing"}}
    early = body_of([*events(stop=None)[:1], error])
    under_another_name = Answer(early, headers=[("Content-Type", "application/json")])
    for broken in (sse_answer(early), under_another_name):
        with ScriptedServer(broken, stream("Hi")) as server:
            told = asked(provider(server))

        assert isinstance(told[-1], DoneEvent) is asked_again
        assert len(server.requests) == 1 + asked_again


def test_refusal():
    """A refusal is an error that says so, and is not asked again."""
    last, requests = answer_to(stream("I can't", stop="refusal"))

    assert isinstance(last.error, BadResponseError)
    assert last.message.raw_stop_reason == "refusal"
    assert len(requests) == 1


def test_value_that_is_no_answer():
    """A server that sends other JSON gave no answer."""
    last, _ = answer_to(json_answer({"choices": []}), stream=False, retry=NEVER)

    assert isinstance(last.error, BadResponseError)
    assert "sent no message" in last.message.error_message


# -- answers in parts -------------------------------------------------------------------------------------------------

USE = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}


def test_an_answer_that_pauses():
    """An answer that pauses is gone on with: one stream, one message, the counts of all parts together."""
    first = stream("Let me see. ", USE, stop="pause_turn")
    second = stream("Found it.", input_tokens=20, output_tokens=3)
    with ScriptedServer(first, second) as server:
        told = asked(provider(server))
        sent = server.requests[1].json["messages"]
    last = told[-1].message

    assert sent[-1] == {
        "role": "assistant",
        "content": [{"type": "text", "text": "Let me see. "}, USE],
    }
    assert [type(event) for event in told].count(StartEvent) == 1
    assert [event.content_index for event in told if isinstance(event, TextDeltaEvent)] == [0, 2]
    assert last.text == "Let me see. Found it."
    assert len(last.content) == 3
    assert (last.stop_reason, last.raw_stop_reason) == ("stop", "end_turn")
    assert (last.usage.input_tokens, last.usage.output_tokens) == (25, 5)


def test_an_answer_that_pauses_whole():
    """An answer that pauses is gone on with where it comes whole, too, and asked again where that fails."""
    first = json_answer({**message("One. ", stop="pause_turn"), "usage": None})
    busy = failure(529, "overloaded_error", "busy")
    second = json_answer({**message("Two."), "usage": None})
    with ScriptedServer(first, busy, second) as server:
        told = asked(provider(server, stream=False))

    assert told[-1].message.text == "One. Two."
    assert told[-1].message.usage is None
    assert [event.kind for event in told if isinstance(event, StreamNoticeEvent)][:1]


def test_an_answer_that_pauses_and_fails():
    """What came before a failure stays in the message."""
    first = stream("One. ", stop="pause_turn")
    last, _ = answer_to(first, failure(400, "invalid_request_error", "no more"))

    assert isinstance(last, ErrorEvent)
    assert last.message.text == "One. "
    assert "no more" in last.message.error_message


def test_an_answer_that_pauses_for_ever():
    """An answer that only pauses is an error in the end, not half an answer for a whole one."""
    last, requests = answer_to(stream("x", stop="pause_turn"))

    assert isinstance(last, ErrorEvent)
    assert len(requests) == MAX_PAUSES + 1
    assert last.message.text == "x" * (MAX_PAUSES + 1)
    assert "paused" in last.message.error_message


def test_a_pause_with_calls():
    """An answer that pauses with calls of ours has them run."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    last, requests = answer_to(stream(call, stop="pause_turn"))

    assert last.message.stop_reason == "tool_use"
    assert len(requests) == 1


# -- thinking that is not taken back ----------------------------------------------------------------------------------


def said(signature):
    """An answer of the model's own that thought."""
    blocks = (ThinkingContent("hm", signature), TextContent("ok"))
    return AssistantMessage(blocks, API, "anthropic", MODEL)


BOUND = "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation."


def thinking_in(request):
    return [
        block["signature"]
        for sent in request.json["messages"]
        for block in sent["content"]
        if block["type"] == "thinking"
    ]


def test_thinking_that_is_bound_to_what_was_changed(caplog):
    """Thinking that the server takes back no more is left out at once and from then on; newer thinking is sent."""
    refused = failure(400, "invalid_request_error", BOUND)
    old = [UserMessage("a"), said("s1"), UserMessage("b")]
    with ScriptedServer(refused, stream("Hi"), stream("Ho")) as server, caplog.at_level("WARNING"):
        asking = provider(server)
        first = asked(asking, *old)
        second = asked(asking, *old, said("s2"), UserMessage("c"))
        sent = [thinking_in(request) for request in server.requests]

    assert (first[-1].message.text, second[-1].message.text) == ("Hi", "Ho")
    assert sent == [["s1"], [], ["s2"]]
    assert [type(event) for event in first].count(StartEvent) == 1
    assert "takes back no thinking" in caplog.text
    assert "s1" not in caplog.text


def test_thinking_that_is_refused_twice():
    """A refusal that stays without thinking is the answer's end."""
    last, requests = answer_to(
        failure(400, "invalid_request_error", BOUND),
        messages=[UserMessage("a"), said("s1"), UserMessage("b")],
    )

    assert isinstance(last, ErrorEvent)
    assert len(requests) == 2


def test_other_refusals():
    """A request without thinking, and one that is refused for another reason, are not asked again."""
    bound = failure(400, "invalid_request_error", BOUND)
    other = failure(400, "invalid_request_error", "messages.1: bad")

    assert len(answer_to(bound)[1]) == 1
    assert len(answer_to(other, messages=[UserMessage("a"), said("s"), UserMessage("b")])[1]) == 1


def test_signatures_that_are_remembered():
    """Not more than so many signatures are remembered; what is forgotten is learned again."""
    refused = failure(400, "invalid_request_error", BOUND)
    with ScriptedServer(refused, stream("Hi")) as server:
        asking = provider(server)
        asking._lost = frozenset(map(str, range(MAX_LOST + 1)))
        asked(asking, UserMessage("a"), said("s2"), UserMessage("b"))

    assert asking._lost == {"s2"}


# -- in an agent ------------------------------------------------------------------------------------------------------


def test_an_agent():
    """An agent asks it, runs the tool and answers; the second request holds what the first one did."""
    tool = AgentTool("look", description="Looks.", execute=lambda *_: "seen")
    thought = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    with (
        ScriptedServer(stream(thought, call, stop="tool_use"), stream("Done.")) as server,
        YiemAgent(provider(server), tools=[tool], reasoning="high") as agent,
    ):
        answer = ask(agent, "Look.")
        first, second = [request.json for request in server.requests]

    assert answer.text == "Done."
    assert first["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert second["messages"][1]["content"] == [thought, {**call}]
    (result,) = second["messages"][2]["content"]
    assert (result["type"], result["tool_use_id"], result["content"]) == ("tool_result", "toolu_1", "seen")  # fmt: skip
    assert second["system"] == first["system"]
    assert second["tools"] == first["tools"]


def test_it_is_a_stream_fn():
    """It is taken for a StreamFn, not for a plain function."""
    asking = AnthropicMessages(MODEL)

    assert stream_fn_of(asking) is asking


def test_abort():
    """An abort before the request ends with an aborted answer and asks nobody."""
    signal = AbortSignal()
    signal.abort("enough")
    with ScriptedServer(stream("Hi")) as server:
        asking = provider(server)
        context = LlmContext("", [UserMessage("hi")])
        (last,) = asking(context, StreamOptions(), signal)
        asking.close()

    assert last.message.stop_reason == "aborted"
    assert server.requests == []


def test_nothing_is_logged(caplog):
    """A plain request logs nothing above DEBUG."""
    with caplog.at_level(logging.INFO):
        answer_to(stream("Hi"))

    assert not caplog.records
