"""The chat provider against a server that is not ours: llama.cpp's, asked in the words of its profile."""

import json

import pytest

from yiemagent import YiemAgent, ask
from yiemagent.abort import AbortSignal
from yiemagent.context import LlmContext
from yiemagent.errors import AuthenticationError, ContextOverflowError, LlmError
from yiemagent.llm import StreamOptions
from yiemagent.messages import (
    AssistantMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.net.retry import RetryPolicy
from yiemagent.providers import OpenAIChat, fallback
from yiemagent.providers.local_models import pull
from yiemagent.providers.local_process import ServerSpec, server_for, stop_servers
from yiemagent.streaming import DoneEvent, ErrorEvent, StartEvent, TextDeltaEvent
from yiemagent.tool import AgentTool

HI = UserMessage("Say hello.")
LOOK = AgentTool(
    "look",
    description="Look around.",
    input_schema={"type": "object", "properties": {"where": {"type": "string"}}},
    execute=lambda *_: "A tree.",
)
OPTIONS = StreamOptions(temperature=0.0, max_tokens=12)
SCHEMA = {
    "type": "object",
    "properties": {"greeting": {"enum": ["hello", "goodbye"]}},
    "required": ["greeting"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def server():
    """The server, for all tests of this file."""
    server = server_for(ServerSpec(pull().resolve(), slots=1, context_tokens=512, threads=1))
    server.wait(AbortSignal())
    yield server
    stop_servers()


@pytest.fixture
def make(server):
    """Makes providers that ask it."""

    def make(**options):
        given = {"base_url": f"{server.url}/v1", "api_key": server.api_key, "client": server.client}
        given |= {"profile": "llamacpp", "extra_body": {"seed": 1}}
        return OpenAIChat("smollm2", **{**given, **options})

    yield make
    server.client.close()


def events_of(provider, *messages, options=OPTIONS, tools=None, signal=None):
    context = LlmContext("Be brief.", messages or (HI,), tools)
    return list(provider(context, options, signal or AbortSignal()))


def answer_of(provider, *messages, **asked):
    last = events_of(provider, *messages, **asked)[-1]
    assert isinstance(last, DoneEvent), last
    return last.message


def test_a_stream(make):
    """A streamed answer comes in pieces, with its usage."""
    events = events_of(make())
    message = events[-1].message
    pieces = [event.delta for event in events if isinstance(event, TextDeltaEvent)]

    assert isinstance(events[0], StartEvent)
    assert len(pieces) > 1
    assert "".join(pieces) == message.text
    assert message.stop_reason in {"stop", "length"}
    assert message.usage.output_tokens > 0
    assert (message.provider, message.model) == ("llamacpp", "smollm2")


def test_whole_and_streamed_are_the_same(make):
    """An answer that is not streamed says what the streamed one says."""
    assert answer_of(make(stream=False)).text == answer_of(make()).text


def test_everything_that_can_be_asked_for(make):
    """A request with all that a profile may add is understood."""
    options = StreamOptions(
        temperature=0.0,
        max_tokens=8,
        reasoning="low",
        thinking_budgets={"low": 16},
        session_id="s",
        cache="long",
    )

    assert answer_of(make(), options=options).text


def test_a_schema_of_the_answer(make):
    """An answer is held to its schema."""
    options = StreamOptions(temperature=0.0, max_tokens=40, output_schema=SCHEMA)
    given = json.loads(answer_of(make(), options=options).text)

    assert given["greeting"] in {"hello", "goodbye"}


def test_a_conversation_goes_back(make):
    """Its own thinking, calls with their results, and another model's answer are understood."""
    own = {"api": "openai-chat", "provider": "llamacpp", "model": "smollm2"}
    thought = ThinkingContent("A tree?", "reasoning_content")
    history = [
        HI,
        AssistantMessage([thought, TextContent("Hello.")], **own),
        UserMessage("Look."),
        AssistantMessage([ThinkingContent("Hm."), ToolCall("call_1", "look", {"where": "\u00fc"})]),
        ToolResultMessage("call_1", "look", "A tree."),
    ]

    assert answer_of(make(), *history, tools=[LOOK]).text


def test_an_agent(make):
    """An agent has its conversation with it."""
    with YiemAgent(make(), temperature=0.0, max_tokens=12) as agent:
        assert ask(agent, "Say hello.").text
        assert ask(agent, "Once more.").text


def test_too_much(make):
    """A conversation that is too long for the model is told as that."""
    last = events_of(make(), UserMessage("many words " * 600))[-1]

    assert isinstance(last, ErrorEvent)
    assert isinstance(last.error, ContextOverflowError)


def test_a_wrong_key(make):
    """A wrong key is told as that, without the key, and where it came from."""
    last = events_of(make(api_key="wrong-key-1"))[-1]

    assert isinstance(last.error, AuthenticationError)
    assert "wrong-key-1" not in last.message.error_message
    assert "check the key (api_key)" in last.message.error_message


def test_a_wrong_address(make, server):
    """A path that the server doesn't know says to check base_url."""
    provider = make(base_url=f"{server.url}/api", retry=RetryPolicy(max_retries=0))
    last = events_of(provider)[-1]

    assert isinstance(last.error, LlmError)
    assert f"check base_url, '{server.url}/api'" in last.message.error_message


def test_it_takes_over(make):
    """It answers where another server can't be asked."""
    nobody = OpenAIChat("x", base_url="http://127.0.0.1:9", retry=RetryPolicy(max_retries=0))
    notice, *events = events_of(fallback(nobody, make()))

    assert notice.details["to_model"] == "llamacpp:smollm2"
    assert events[-1].message.text


def test_abort(make):
    """An abort in the middle of a stream ends it, with what came."""
    signal = AbortSignal()
    events = []
    for event in make()(LlmContext("", (HI,)), StreamOptions(max_tokens=400), signal):
        events.append(event)
        if isinstance(event, TextDeltaEvent):
            signal.abort("enough")
    message = events[-1].message

    assert message.stop_reason == "aborted"
    assert message.text
