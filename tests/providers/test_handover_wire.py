"""Histories that one provider made, as requests to every other: what the servers' own rules say of them."""

from __future__ import annotations

import contextlib
import functools
import json

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import wire_answers, wire_rules
from tests.support.http_server import ScriptedServer, sse_answer
from yiemagent import (
    AgentContext,
    AgentLoopConfig,
    AgentTool,
    ImageContent,
    TextContent,
    UserMessage,
    run_agent_loop,
)
from yiemagent.abort import AbortSignal
from yiemagent.codec import from_json, to_json
from yiemagent.context import LlmContext
from yiemagent.errors import LlmError
from yiemagent.history import repair
from yiemagent.llm import StreamOptions
from yiemagent.messages import AssistantMessage, ThinkingContent, ToolCall, ToolResultMessage
from yiemagent.providers import create

PNG = ImageContent("iVBORw0KGgo=", "image/png")
SVG = ImageContent("PHN2Zz48L3N2Zz4=", "image/svg+xml")
TOOL = AgentTool(
    "look", description="Looks.", execute=lambda *_: ("I saw", PNG), input_schema={"type": "object"}
)


@attrs.frozen
class Line:
    """A model on a provider, and the rules of its server."""

    provider: str
    model: str
    api: str
    faults: object

    def open(self, **options):
        """Give the provider; without a base URL it is set to its own server, which no test here asks."""
        return create(self.provider, self.model, api_key="key", **options)

    def body(self, messages, **options):
        """Give the body of the request for a history, as the server would read it."""
        seen = []

        def keep(body):
            seen.append(json.dumps(body))
            raise LlmError("seen")  # before anything is sent

        provider = self.open()
        context = LlmContext("Be brief.", messages, [TOOL])
        options = StreamOptions(on_payload=keep, **options)
        (event,) = provider(context, options, AbortSignal())
        provider.close()
        assert "seen" in event.message.error_message
        return json.loads(seen[0])

    def found(self, messages, **options):
        """Give what the server would refuse in the request for a history."""
        own = marks_of([m for m in messages if isinstance(m, AssistantMessage) and self.made(m)])
        return self.faults(self.body(messages, **options), own)

    def made(self, message):
        return (message.api, message.model) == (self.api, self.model)


def marks_of(messages):
    """All that is opaque in messages, and what their server would take for an id."""
    marks = set()
    for message in messages:
        for block in message.content:
            mark = getattr(block, "signature", None)
            marks |= {mark}
            with contextlib.suppress(ValueError):
                marks |= _words(json.loads(mark or "null"))
    return marks - {None}


def _words(value):
    """Every string in a JSON value."""
    if isinstance(value, str):
        return {value}
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set().union(*map(_words, items))


CHAT = "openai-chat"
older_gemini = functools.partial(wire_rules.gemini_faults, wants_signatures=False)
deepseek = functools.partial(wire_rules.chat_faults, max_call_id=64)
mistral = functools.partial(
    wire_rules.chat_faults,
    max_call_id=9,
    call_id="[a-zA-Z0-9]{9}",
    parts=("text", "thinking"),
)
LINES = [
    Line("anthropic", "claude-sonnet-4-5", "anthropic-messages", wire_rules.anthropic_faults),
    Line("openai", "gpt-5.1", CHAT, wire_rules.chat_faults),
    Line("openai-responses", "gpt-5.1", "openai-responses", wire_rules.responses_faults),
    Line("gemini", "gemini-3.1-pro-preview", "gemini", wire_rules.gemini_faults),
    Line("gemini", "gemini-2.5-flash", "gemini", older_gemini),
    Line("mistral", "mistral-medium-latest", CHAT, mistral),
    Line("deepseek", "deepseek-chat", CHAT, deepseek),
]
# Those that are asked and have no answers here.
TARGETS = [
    *LINES,
    Line("anthropic", "claude-opus-4-8", "anthropic-messages", wire_rules.anthropic_faults),
    Line("openai-responses", "gpt-4.1", "openai-responses", wire_rules.responses_faults),
    Line("openrouter", "anthropic/claude-sonnet-4.5", CHAT, deepseek),
    Line("groq", "openai/gpt-oss-120b", CHAT, deepseek),
    Line("ollama", "qwen3", CHAT, deepseek),
    Line("llamacpp", "qwen3", CHAT, deepseek),
]
NAMES = [f"{line.provider}:{line.model}" for line in LINES]


def conversation(line, number):
    """The history of a run in which a model of a line called the tool twice, from its streamed answers."""
    answer = wire_answers.ANSWERS.get(line.provider) or wire_answers.ANSWERS[line.api]
    answers = [answer(number), wire_answers.FINAL[line.api]()]
    with ScriptedServer(*map(sse_answer, answers)) as server:
        provider = line.open(base_url=f"{server.url}/v1")
        messages = run_agent_loop(
            [UserMessage(["What is this?", PNG])],
            AgentContext("Be brief.", (), [TOOL]),
            AgentLoopConfig(),
            lambda _: None,
            stream_fn=provider,
        )
        provider.close()
    return list(messages)


@functools.cache
def answers(number):
    """The answer of each line that calls the tool twice, its marks with a number of its own."""
    return [conversation(line, number)[1] for line in LINES]


@pytest.mark.parametrize("target", LINES, ids=NAMES)
@pytest.mark.parametrize("maker", LINES, ids=NAMES)
def test_a_history_of_any_provider_suits_every_other(maker, target):
    """A run of one model is a request that the server of another takes, and so is one saved and loaded."""
    history = [*conversation(maker, 1), UserMessage("Go on.")]
    loaded = [from_json(json.loads(json.dumps(to_json(m)))) for m in history]
    roles = ["user", "assistant", "toolResult", "toolResult", "assistant", "user"]

    assert [m.role for m in history] == roles
    assert target.found(history) == []
    assert target.body(loaded) == target.body(history)


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        (LINES[0], ["anthropic-1-a", "anthropic-1-b", "I look.", "anthropic-1-c"]),
        (LINES[2], ["responses-1-a", "msg_1", "fc_1a", "responses-1-b", "fc_1b"]),
        (LINES[3], ["gemini-1-a", "gemini-1-b", "gemini-1-c"]),
        (LINES[4], ["gemini-1-a", "gemini-1-b", "gemini-1-c"]),
        (LINES[5], ["thinking", "Let me look.", "I look 1."]),
        (LINES[6], ["I look 1.", "Let me look."]),
    ],
    ids=NAMES[:1] + NAMES[2:],
)
def test_a_model_is_sent_its_own_thinking_and_marks(line, sent):
    """What is opaque in a model's answer, or its thinking in plain words, goes back to it whole and in its order."""
    text = json.dumps(line.body(conversation(line, 1)[:-1]))

    assert [mark for mark in sorted(sent, key=text.find) if mark in text] == sent


@pytest.mark.parametrize("target", LINES, ids=NAMES)
def test_another_model_is_sent_the_thinking_as_text(target):
    """A model reads what the one before it thought, and nothing that only that one can read."""
    for maker in LINES:
        text = json.dumps(target.body([*conversation(maker, 1), UserMessage("Go on.")]))
        foreign = maker.model != target.model
        assert "Let me look." in text or not foreign
        assert f"{maker.api.partition('-')[0]}-1-" not in text or not foreign


def test_an_id_that_we_made_suits_a_server_that_checks_ids():
    """Where Mistral's server gave a call no id, the one that the call got here is replaced before it goes back."""
    line = LINES[5]
    call = ToolCall("call_0123456789abcdef", "look")
    made = AssistantMessage([call], api=line.api, provider=line.provider, model=line.model)
    history = [UserMessage("Look."), made, ToolResultMessage(call.id, "look", "seen")]

    assert line.found(history) == []


# --- any history -----------------------------------------------------------------------------------------------------

TEXTS = st.sampled_from(["", " \n", "hi", "ü\n", "\ud83d", "a\x00b"])
SHOWN = st.lists(st.one_of(st.builds(TextContent, TEXTS), st.sampled_from([PNG, SVG])), max_size=3)
MARKS = st.sampled_from([None, "", "mark", '{"id": "rs_1"}', '["x"]'])
IDS = st.sampled_from(["", "a|b", "a:b", "call_0", "x" * 90, "ü", "fc_1", "call_0\ud83d"])
NAMES_OF_TOOLS = st.sampled_from(["look", "", "get weather", "2fast", "n" * 70])
ARGUMENTS = st.sampled_from([{}, {"n": float("nan")}, "{broken", "[1]", "", {"k": "\ud83d"}])
BLOCKS = st.lists(
    st.one_of(
        st.builds(TextContent, TEXTS, MARKS),
        st.builds(ThinkingContent, TEXTS, MARKS, st.booleans()),
        st.builds(ToolCall, IDS, NAMES_OF_TOOLS, ARGUMENTS, signature=MARKS),
        st.sampled_from([PNG, SVG]),
    ),
    max_size=4,
)
STRANGER = {
    "api": "openai-responses",
    "provider": "openai",
    "model": "older",
    "stop_reason": "stop",
}
TURNS = st.one_of(
    st.tuples(st.just("user"), SHOWN),
    st.tuples(st.just("stranger"), BLOCKS, SHOWN),
    st.tuples(st.just("line"), st.integers(0, len(LINES) - 1), SHOWN),
)


def messages_of(turns):
    """The repaired history of such turns, ended by the user."""
    messages = []
    for number, (kind, *parts) in enumerate(turns):
        if kind == "user":
            messages.append(UserMessage(parts[0]))
            continue
        answer = (
            answers(number)[parts[0]] if kind == "line" else AssistantMessage(parts[0], **STRANGER)
        )
        results = [ToolResultMessage(call.id, call.name, parts[1]) for call in answer.tool_calls]
        messages += [answer, *results]
    return repair([*messages, UserMessage("Go on.")])


@settings(max_examples=100)
@given(st.lists(TURNS, max_size=5), st.sampled_from(TARGETS))
def test_any_history_suits_any_server(turns, target):
    """Whoever made the answers, and whatever is empty, doubled, foreign or broken in them, the server's rules hold."""
    assert target.found(messages_of(turns)) == []


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "reasoning": st.sampled_from(["off", "minimal", "low", "high", "max"]),
        "temperature": st.sampled_from([0.0, 0.5]),
        "max_tokens": st.sampled_from([1, 2000, 64_000]),
        "tool_choice": st.sampled_from(["auto", "none", "required", "look"]),
        "cache": st.sampled_from(["none", "short", "long"]),
        "session_id": st.just("s" * 100),
    },
)


@settings(max_examples=100)
@given(st.lists(TURNS, max_size=3), st.sampled_from(TARGETS), OPTIONS)
def test_any_options_suit_any_server(turns, target, options):
    """What is asked of a call goes together on the wire, whatever the history holds."""
    assert target.found(messages_of(turns), **options) == []
