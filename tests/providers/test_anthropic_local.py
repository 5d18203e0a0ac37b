"""The Anthropic provider against a server that is not ours: llama.cpp's, with the embedded model in it."""

import pytest

from yiemagent import YiemAgent, ask
from yiemagent.abort import AbortSignal
from yiemagent.context import LlmContext
from yiemagent.errors import AuthenticationError, ContextOverflowError
from yiemagent.llm import StreamOptions
from yiemagent.messages import AssistantMessage, ToolCall, ToolResultMessage, UserMessage
from yiemagent.providers.anthropic_messages import AnthropicMessages
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
        given = {"base_url": server.url, "api_key": server.api_key, "client": server.client}
        return AnthropicMessages("smollm2", **{**given, "extra_body": {"seed": 1}, **options})

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
    """A streamed answer comes in pieces, with its id and its counts."""
    events = events_of(make())
    message = events[-1].message
    pieces = [event.delta for event in events if isinstance(event, TextDeltaEvent)]

    assert isinstance(events[0], StartEvent)
    assert len(pieces) > 1
    assert "".join(pieces) == message.text
    assert message.stop_reason in {"stop", "length"}
    assert message.raw_stop_reason in {"end_turn", "max_tokens"}
    assert message.usage.output_tokens > 0
    assert message.usage.input_tokens + message.usage.cache_read_tokens > 0
    assert message.response_id


def test_whole_and_streamed_are_the_same(make):
    """An answer that is not streamed says what the streamed one says."""
    whole, streamed = answer_of(make(stream=False)), answer_of(make())

    assert (whole.text, whole.stop_reason) == (streamed.text, streamed.stop_reason)


def test_a_limit(make):
    """An answer that reaches its limit says so."""
    message = answer_of(make(), options=StreamOptions(temperature=0.0, max_tokens=2))

    assert (message.stop_reason, message.raw_stop_reason) == ("length", "max_tokens")


def test_a_conversation_goes_back(make):
    """Its own answer, and another model's calls with their results and what was said behind them, are understood."""
    provider = make()
    first = answer_of(provider)
    call = AssistantMessage((ToolCall("call_1", "look", {"where": "ü"}),))
    history = [
        HI,
        first,
        UserMessage("Look."),
        call,
        ToolResultMessage("call_1", "look", "A tree."),
        UserMessage("And now?"),
    ]
    again = answer_of(provider, *history, tools=[LOOK])

    assert again.text
    asked = (first.usage, again.usage)
    before, after = (usage.input_tokens + usage.cache_read_tokens for usage in asked)
    assert after > before


def test_an_agent(make):
    """An agent with a tool has its conversation with it."""
    with YiemAgent(make(), tools=[LOOK], temperature=0.0, max_tokens=12) as agent:
        assert ask(agent, "Say hello.").text
        assert ask(agent, "Once more.").text


def test_too_much(make):
    """A conversation that is too long for the model is told as that."""
    last = events_of(make(), UserMessage("many words " * 600))[-1]

    assert isinstance(last, ErrorEvent)
    assert isinstance(last.error, ContextOverflowError)


def test_a_wrong_key(make):
    """A wrong key is told as that, without the key."""
    last = events_of(make(api_key="wrong-key-1"))[-1]

    assert isinstance(last.error, AuthenticationError)
    assert "wrong-key-1" not in last.message.error_message


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
