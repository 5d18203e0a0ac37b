"""Every provider beyond one stream: whole answers, request dicts, agents, shared and left connections, recordings."""

from __future__ import annotations

import json
import threading

import pytest

from tests.providers.contract.apis import APIS, CONTEXT, KEY, TRANSCRIPTS, WORDS, transcript
from tests.providers.contract.asking import Pieces, ask, plain
from yiemagent import AgentTool, YiemAgent
from yiemagent import ask as ask_agent
from yiemagent.abort import AbortSignal
from yiemagent.context import LlmContext
from yiemagent.errors import AbortedError, LlmError
from yiemagent.llm import StreamOptions, stream_fn_of
from yiemagent.messages import LlmUsage, ThinkingContent, UserMessage
from yiemagent.streaming import DoneEvent, StartEvent, TextDeltaEvent
from yiemagent.testing import HttpAnswer, ScriptedServer, json_answer, record, replay, sse_answer

EACH = [pytest.param(api, id=api.name) for api in APIS]
REQUEST = {"messages": [{"role": "user", "content": "hi"}]}


def whole_answer(api, **options):
    """The answer of a transcript that comes as one JSON value."""
    body = (TRANSCRIPTS / api.name / "whole.json").read_bytes()
    return HttpAnswer(body, headers=[("Content-Type", "application/json")], **options)


def streamed(api, name="text", **options):
    """The answer of a transcript that is streamed."""
    return sse_answer(transcript(api, name), **options)


# -- whole answers --


@pytest.mark.parametrize("api", EACH)
@pytest.mark.parametrize("stream", [True, False], ids=["stream asked for", "no stream"])
def test_a_whole_answer_is_a_stream_of_one_done(api, stream):
    """An answer that comes as one JSON value, asked for so or not, has text, thinking, calls and usage in one event."""
    with ScriptedServer(whole_answer(api)) as server:
        provider = api.make(server.url, stream=stream)
        [done] = ask(provider)
        provider.close()
    message = done.message
    [thought] = [block for block in message.content if isinstance(block, ThinkingContent)]

    assert isinstance(done, DoneEvent)
    assert (message.text, thought.thinking) == ("Looking.", "Let me think.")
    assert [(c.name, c.arguments) for c in message.tool_calls] == [
        ("get_weather", {"city": "\u5317\u4eac"})
    ]
    assert message.stop_reason == "tool_use"
    assert message.usage == LlmUsage(*api.usage)
    assert (message.api, message.model) == (api.name, "the-model")


@pytest.mark.parametrize("api", EACH)
def test_a_whole_answer_says_what_its_stream_says(api):
    """Signatures, ids and raw reasons of a whole answer are those that a stream would bring."""
    with ScriptedServer(whole_answer(api)) as server:
        provider = api.make(server.url, stream=False)
        message = ask(provider)[-1].message
        provider.close()
    streams = ask(api.make("http://pieces.test", client=Pieces([transcript(api, "thinking")])))
    signed = [block.signature for block in message.content if block.signature]

    assert signed
    assert (message.response_id is None) == (streams[-1].message.response_id is None)
    assert message.raw_stop_reason == api.raw["tool_calls"]


# -- a request dict alone --


@pytest.mark.parametrize("api", EACH)
@pytest.mark.parametrize("stream", [True, False])
def test_a_request_dict_alone_gives_the_whole_answer(api, stream):
    """Called with a request dict in the OpenAI form, a provider is a plain `llm_call`."""
    answer = streamed(api, "thinking") if stream else whole_answer(api)
    with ScriptedServer(answer) as server:
        provider = api.make(server.url, stream=stream)
        message = provider(REQUEST)
        provider.close()
        [request] = server.requests

    assert message.text == ("So: 4" if stream else "Looking.")
    assert "hi" in request.body.decode()
    assert REQUEST == {"messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize("api", EACH)
def test_a_request_dict_alone_raises_what_went_wrong(api):
    """There is no event to carry a failure, so it is raised, without the key."""
    refused = json_answer({"error": {"message": f"no {KEY}"}}, status=400)
    with ScriptedServer(refused, streamed(api, "cut")) as server:
        provider = api.make(server.url)
        with pytest.raises(LlmError, match="no …"):
            provider(REQUEST)
        with pytest.raises(LlmError, match="incomplete"):
            provider(REQUEST)
        provider.close()
    with pytest.raises(TypeError):
        provider("hi")


@pytest.mark.parametrize("api", EACH)
def test_it_is_a_stream_fn_although_it_is_both(api):
    """An agent asks a provider with contexts."""
    provider = api.make("http://pieces.test")

    assert stream_fn_of(provider) is provider


# -- agents --


@pytest.mark.parametrize("api", EACH)
def test_an_agent_calls_tools_over_every_api(api):
    """The calls of a streamed answer run, and the next request carries their results and the answer that made them."""
    tools = [
        AgentTool("get_weather", description="Weather.", execute=lambda _id, args, *_: f"rain in {args['city']}"),
        AgentTool("get_time", description="Time.", execute=lambda _id, args, *_: f"noon {args['zone']}"),
    ]  # fmt: skip
    with ScriptedServer(streamed(api, "tool_calls"), streamed(api)) as server:
        provider = api.make(server.url)
        with YiemAgent(provider, tools=tools) as agent:
            answer = ask_agent(agent, "What is it like?", timeout_s=20)
            history = agent.messages
        provider.close()
        first, second = server.requests

    assert answer.text == WORDS
    assert [m.role for m in history] == [
        "user",
        "assistant",
        "toolResult",
        "toolResult",
        "assistant",
    ]
    sent = json.dumps(second.json, ensure_ascii=False)
    assert "rain in \u5317\u4eac" in sent and "noon UTC" in sent
    assert "rain" not in first.body.decode()
    assert second.body.startswith(
        first.body[:20]
    )  # fields keep their order, so that prompt caches hold


@pytest.mark.parametrize("api", EACH)
def test_thinking_goes_back_to_the_model_that_thought(api):
    """What an answer was signed with is in the next request to the same model."""
    with ScriptedServer(streamed(api, "thinking"), streamed(api)) as server:
        provider = api.make(server.url)
        with YiemAgent(provider) as agent:
            first = ask_agent(agent, "hi", timeout_s=20)
            ask_agent(agent, "and now?", timeout_s=20)
        provider.close()
        second = json.dumps(server.requests[1].json)
    marks = {"openai-chat": "Let me think.", "anthropic-messages": "EqQBCg",
             "openai-responses": "gAAAAAB", "gemini": "c2ln"}  # fmt: skip

    assert first.text == "So: 4"
    assert marks[api.name] in second


# -- connections --


@pytest.mark.parametrize("api", EACH)
def test_a_connection_serves_one_request_after_the_other(api):
    """After an answer's end its connection is used again, streamed or whole."""
    answers = [
        streamed(api, chunked=True, then="keep"),
        whole_answer(api, then="keep"),
        streamed(api, chunked=True, then="keep"),
    ]
    with ScriptedServer(*answers) as server:
        provider = api.make(server.url)
        for _ in answers:
            ask(provider)
        provider.close()

        assert [request.connection for request in server.requests] == [1, 1, 1]


@pytest.mark.parametrize("api", EACH)
def test_a_stream_that_is_left_closes_its_connection(api):
    """Who reads no further holds nothing open, and the signal forgets the request."""
    with ScriptedServer(streamed(api, "cut", then="hang")) as server:
        provider = api.make(server.url)
        events = provider(CONTEXT, StreamOptions(), AbortSignal())
        assert isinstance(next(events), StartEvent)
        events.close()
        server.wait_until_idle()
        provider.close()


@pytest.mark.parametrize("api", EACH)
def test_deltas_come_as_they_are_sent(api):
    """A delta is there when it arrives, whatever comes later."""
    body = transcript(api, "text")
    gate = threading.Event()
    parts = [transcript(api, "cut"), gate, body]
    with ScriptedServer(sse_answer(parts, chunked=True)) as server:
        provider = api.make(server.url)
        events = provider(CONTEXT, StreamOptions(), AbortSignal())
        said = next(event.delta for event in events if isinstance(event, TextDeltaEvent))
        gate.set()
        list(events)
        provider.close()

    assert said == "Half a"


@pytest.mark.parametrize("api", EACH)
def test_threads_share_a_provider(api):
    """Each thread gets its own answer, and an abort of one leaves the others alone."""

    def reply(request):
        if b"stop me" in request.body:
            return streamed(api, "cut", then="hang")
        return streamed(api, chunked=True, then="keep")

    wrong = []
    with ScriptedServer(reply) as server:
        provider = api.make(server.url)

        def work(number):
            for turn in range(4):
                stopped = number % 4 == 0
                said = "stop me" if stopped else f"{number}-{turn}"
                signal = AbortSignal()
                context = LlmContext("", [UserMessage(said)])
                for event in provider(context, StreamOptions(), signal):
                    if stopped and isinstance(event, TextDeltaEvent):
                        signal.abort()
                last = event.message
                expected = ("aborted", "Half a") if stopped else ("stop", WORDS)
                if (last.stop_reason, last.text) != expected:
                    wrong.append(last)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        provider.close()

    assert wrong == []


# -- recordings --


@pytest.mark.parametrize("api", EACH)
@pytest.mark.parametrize("name", ["text", "thinking", "tool_calls", "cut", "refusal"])
def test_a_provider_can_be_recorded_and_replayed(api, name, tmp_path):
    """A replay gives the provider's events without a server, and the file holds no key."""
    path = tmp_path / "talk.jsonl"
    options = StreamOptions(get_api_key=lambda _: KEY)
    with ScriptedServer(streamed(api, name)) as server:
        provider = api.make(server.url, api_key=None)
        recorded = ask(record(provider, path), options)
        provider.close()

    assert plain(ask(replay(path))) == plain(recorded)
    assert KEY not in path.read_text()


@pytest.mark.parametrize("api", EACH)
def test_what_a_provider_can_do_is_recorded(api, tmp_path):
    """Whether a model can be held to a schema is the same at the replay."""
    provider = api.make("http://pieces.test")
    recorder = record(provider, tmp_path / "talk.jsonl")

    assert recorder.native_output == provider.native_output
    assert replay(tmp_path / "talk.jsonl").native_output == provider.native_output


@pytest.mark.parametrize("api", EACH)
def test_an_abort_of_a_recorded_answer_ends_it(api, tmp_path):
    """The recorder hands the signal on, and records the aborted answer."""
    with ScriptedServer(streamed(api, "cut", then="hang")) as server:
        provider = api.make(server.url)
        signal = AbortSignal()
        events = []
        for event in record(provider, tmp_path / "talk.jsonl")(CONTEXT, StreamOptions(), signal):
            events.append(event)
            if isinstance(event, TextDeltaEvent):
                signal.abort()
        provider.close()

    assert events[-1].message.stop_reason == "aborted"
    assert isinstance(ask(replay(tmp_path / "talk.jsonl"))[-1].error, AbortedError)
