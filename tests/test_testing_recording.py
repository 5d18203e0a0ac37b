"""Recordings: what is replayed is what was recorded, a strange request is told apart, and no secret is in the file."""

from __future__ import annotations

import json
import threading

import pytest

from yiemagent import AgentTool, YiemAgent, ask
from yiemagent.abort import AbortSignal
from yiemagent.context import LlmContext
from yiemagent.errors import BadResponseError, ConfigurationError, RateLimitError
from yiemagent.llm import StreamOptions
from yiemagent.messages import (
    AssistantMessage,
    ImageContent,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.providers import OpenAIChat, fallback
from yiemagent.streaming import (
    DoneEvent,
    ErrorEvent,
    StartEvent,
    StreamNoticeEvent,
    TextDeltaEvent,
    TextEndEvent,
    TextStartEvent,
    ToolCallDeltaEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
)
from yiemagent.testing import (
    ScriptedModel,
    ScriptedServer,
    call,
    record,
    replay,
    sse,
    sse_answer,
)

KEY = "sk-live-0123456789abcdef"


def context(*said, system="", tools=()):
    """A request with the texts of a user."""
    return LlmContext(system, [UserMessage(text) for text in said], tools)


def stream(model, asked=None, options=None, signal=None):
    """Ask a model; gives its events."""
    return list(model(asked or context("hi"), options or StreamOptions(), signal or AbortSignal()))


@pytest.fixture
def path(tmp_path):
    """Where the recording is."""
    return tmp_path / "talk.jsonl"


# -- the same again --


def test_a_replay_gives_the_events_that_were_recorded(path):
    """Every event, the order, the times and the last message are equal, as often as the file is replayed."""
    error = RateLimitError("slow down", 429, True, 2000)
    notice = StreamNoticeEvent("retry_scheduled", "retry 1", {"attempt": 1})
    failed = AssistantMessage("half", stop_reason="error", error_message="slow down")
    script = ["a text", call("look", {"at": "x"}, "c1"), [notice, ErrorEvent(failed, error)]]
    recorder = record(ScriptedModel(script), path)
    recorded = [stream(recorder, context(str(n))) for n in range(3)]

    for _ in range(2):
        player = replay(path)
        again = [stream(player, context(str(n))) for n in range(3)]
        assert again[:2] == recorded[:2]
        assert again[2][0] == notice and again[2][1].message == failed
        assert type(again[2][1].error) is RateLimitError
        assert again[2][1].error.retry_after_ms == 2000
        assert player.unused == 0


def test_an_agent_runs_from_a_recording(path):
    """A whole run with tools, whose calls had no ids of their own, comes out the same, and nobody is asked."""
    tool = AgentTool("look", description="Looks.", execute=lambda *_: "a cat")

    def answer(model):
        with YiemAgent(model, tools=[tool], system_prompt="Be brief.") as agent:
            return ask(agent, "What is there?", timeout_s=20).text

    script = ScriptedModel([call("look"), "A cat."])
    first = answer(record(script, path))

    assert first == answer(replay(path)) == "A cat."
    assert len(script.requests) == 2


def test_anything_that_is_a_model_can_be_recorded(path):
    """A plain function of the request dict is recorded like a provider."""
    stream(record(lambda request: f"you said {request['messages'][-1]['content']}", path))

    assert stream(replay(path))[-1].message.text == "you said hi"


def test_what_a_provider_can_do_is_kept(path):
    """Whether answers come as the schema says is the same at the replay."""
    model = ScriptedModel(["x"])
    model.native_output = True

    assert record(model, path).native_output
    assert replay(path).native_output
    assert not record(ScriptedModel(), path).native_output
    assert not replay(path).native_output


def test_a_recording_begins_anew(path):
    """What the file held before is gone."""
    for text in ("old", "new"):
        stream(record(ScriptedModel([text]), path))

    assert stream(replay(path))[-1].message.text == "new"
    assert len(path.read_text().splitlines()) == 2


def test_an_answer_that_is_not_read_to_its_end_is_not_recorded(path):
    """Half an answer is none."""
    events = record(ScriptedModel(["a b c"]), path)(context(), StreamOptions(), AbortSignal())
    next(events)
    events.close()

    assert replay(path).unused == 0


def test_an_answer_is_in_the_file_with_its_last_event(path):
    """Who reads no further than Done loses nothing."""
    events = record(ScriptedModel(["x"]), path)(context(), StreamOptions(), AbortSignal())
    while not isinstance(next(events), DoneEvent):
        pass

    assert replay(path).unused == 1
    events.close()


def test_equal_requests_get_their_answers_in_order(path):
    """The same question twice gets the first answer, then the second, then an error."""
    recorder = record(ScriptedModel(["1", "2"]), path)
    stream(recorder)
    stream(recorder)
    player = replay(path)

    assert [stream(player)[-1].message.text for _ in range(2)] == ["1", "2"]
    last = stream(player)[-1]
    assert isinstance(last, ErrorEvent) and isinstance(last.error, BadResponseError)
    assert last.message.error_message == f"{path} has 2 answers, and all were given already"


def test_threads_find_their_own_answers(path):
    """Agents that share a recording each get what they got, in whatever order they ask."""

    def answers(model, order):
        found = {}

        def work(number):
            found[number] = stream(model, context(f"question {number}"))[-1].message.text

        threads = [threading.Thread(target=work, args=(number,)) for number in order]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    echo = ScriptedModel(default=lambda asked, _signal: f"echo {asked.messages[0].text}")
    recorded = answers(record(echo, path), range(20))

    assert answers(replay(path), reversed(range(20))) == recorded
    assert len(path.read_text().splitlines()) == 21


def test_a_replay_heeds_the_signal(path):
    """An abort ends a replayed answer between two events."""
    stream(record(ScriptedModel(["a b c"]), path))
    signal = AbortSignal()
    events = replay(path)(context("hi"), StreamOptions(), signal)
    assert isinstance(next(events), StartEvent)
    signal.abort("enough")
    [last] = events

    assert last.message.stop_reason == "aborted"
    assert last.message.error_message == "aborted: enough"


# -- another request --

TOOL = AgentTool("look", description="Looks.", execute=lambda *_: "")
OTHER = AgentTool("look", description="Looks twice.", execute=lambda *_: "")
LONG = "na " * 100


@pytest.mark.parametrize(("asked", "options", "words"), [
    (context("ho"), {}, "messages[0].content[0].text: 'hi' was recorded, 'ho' is asked"),
    (context(), {}, "messages: [{"),
    (context("hi", "hi"), {}, "messages: 1 were recorded, 2 are asked"),
    (context("hi", system="Be kind."), {}, "system_prompt: nothing was recorded, 'Be kind.' is asked"),
    (context("hi", tools=[TOOL]), {}, "tools: nothing was recorded"),
    (context("hi"), {"model": "m"}, "model: nothing was recorded, 'm' is asked"),
    (context("hi"), {"temperature": 0.5}, "temperature: nothing was recorded, 0.5 is asked"),
    (context("hi"), {"max_tokens": 9}, "max_tokens"),
    (context("hi"), {"reasoning": "low"}, "reasoning"),
    (context("hi"), {"tool_choice": "none"}, "tool_choice"),
    (context("hi"), {"output_schema": {"type": "object"}}, "output_schema"),
    (LlmContext("", [AssistantMessage("hi")]), {}, "messages[0].role: 'user' was recorded, 'assistant' is asked"),
])  # fmt: skip
def test_a_request_that_was_not_recorded_names_the_difference(path, asked, options, words):
    """The error says in which line the recording expects what, and where the request is another."""
    stream(record(ScriptedModel(["x"]), path))
    player = replay(path)
    [last] = stream(player, asked, StreamOptions(**options))

    assert isinstance(last, ErrorEvent) and not last.error.retryable
    assert f"the request is not the one in {path}, line 2: " in last.message.error_message
    assert words in last.message.error_message
    assert player.unused == 1


def test_a_missing_part_is_named(path):
    """What was recorded and is not asked any more is a difference, too."""
    stream(record(ScriptedModel(["x"]), path), context("hi", system="Be kind.", tools=[TOOL]))
    texts = [
        stream(replay(path), context("hi", tools=[TOOL]))[-1].message.error_message,
        stream(replay(path), context("hi", system="Be kind.", tools=[OTHER]))[-1].message.text,
    ]

    assert "system_prompt: 'Be kind.' was recorded, nothing is asked" in texts[0]
    assert texts[1] == ""


def test_of_a_long_text_the_part_that_differs_is_shown(path):
    """A difference far inside a long text is shown with a little around it."""
    stream(record(ScriptedModel(["x"]), path), context(f"{LONG}one{LONG}"))
    [last] = stream(replay(path), context(f"{LONG}two{LONG}"))
    text = last.message.error_message

    assert "one" in text and "two" in text
    assert len(text) < 350 + len(str(path))


def test_of_a_long_text_that_goes_on_the_end_is_shown(path):
    """Where one text is the beginning of the other, the difference is where it ends."""
    stream(record(ScriptedModel(["x"]), path), context(LONG))
    [last] = stream(replay(path), context(f"{LONG}and more"))

    assert "and more" in last.message.error_message


def test_what_no_model_sees_makes_no_difference(path):
    """Times, usage, details and ids of calls differ from run to run and are not compared."""

    def talk(call_id, details):
        said = AssistantMessage([ToolCall(call_id, "look", {})], stop_reason="tool_use")
        return LlmContext("", [
            UserMessage("hi"), said, ToolResultMessage(call_id, "look", "a cat", details=details),
        ])  # fmt: skip

    stream(record(ScriptedModel(["x"]), path), talk("a", {"n": 1}))

    assert stream(replay(path), talk("b", {"n": 2}))[-1].message.text == "x"


def test_images_are_compared_by_their_hash(path):
    """An image is in the file as a hash, and another one is told apart."""

    def picture(data):
        return LlmContext("", [UserMessage([ImageContent(data, "image/png"), TextContent("?")])])

    stream(record(ScriptedModel(["x"]), path), picture("aGVsbG8gd29ybGQ="))

    assert "aGVsbG8gd29ybGQ" not in path.read_text()
    assert stream(replay(path), picture("aGVsbG8gd29ybGQ="))[-1].message.text == "x"
    assert "sha256" in stream(replay(path), picture("Zm9v"))[-1].message.error_message


@pytest.mark.parametrize("text", [
    "",
    "no JSON\n",
    "[]\n",
    '{"recording": 2}\n',
    '{"recording": 1}\n{"request": {}}\n',
    '{"recording": 1}\n{"request": {}, "events": [{"stream": "nothing"}]}\n',
    '{"recording": 1}\n{"request": {}, "eve',
    '{"recording": 1}\n' + "[" * 100_000,
    '{"recording": 1}\n\udcff',
])  # fmt: skip
def test_a_file_that_is_no_recording_is_refused(path, text):
    """The error names the file and the line."""
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    line = max(1, len(text.splitlines()))

    with pytest.raises(ConfigurationError, match=rf"talk.jsonl, line {line}, is no recording"):
        replay(path)


# -- secrets --


def recorded_text(path, answer, asked=None, options=None, **given):
    """Record one answer; gives the text of the file, checked to be JSON lines."""
    stream(record(ScriptedModel([answer]), path, **given), asked, options)
    text = path.read_text()
    assert [json.loads(line) for line in text.splitlines()]
    return text


@pytest.mark.parametrize("text", [
    f"the key is {KEY}.",
    f"Authorization: Bearer {KEY}",
    "authorization=Basic dXNlcjpwYXNzd29yZA==",
    "x-api-key: 0123456789",
    "Cookie: session-0123456789",
    "https://a.test/v1?key=0123456789&b=c",
    "https://joe:pa55word@a.test/",
    'sent {"api_key": "0123456789", "b": 1}',
    "AIzaSyA0123456789abcdefghijklmnopqrstu",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
])  # fmt: skip
def test_what_looks_like_a_secret_is_removed(path, text):
    """Keys, headers, passwords of URLs and secret fields of JSON texts are gone, in requests, answers and errors."""
    failed = AssistantMessage(text, stop_reason="error", error_message=text)
    written = recorded_text(
        path,
        [ErrorEvent(failed, BadResponseError(text))],
        context(text, system=text),
        StreamOptions(model="m"),
    )

    assert written.count("[removed]") == 5
    for part in ("0123456789", "dXNlcjpwYXNzd29yZA", "pa55word", "eyJzdWIi"):
        assert part not in written


def test_what_get_api_key_gives_is_removed(path):
    """A key that the hook gives is gone, whatever it looks like."""

    def model(_context, options, _signal):
        key = options.get_api_key("openai")
        yield DoneEvent(AssistantMessage(f"your key is {key.strip()}"))

    stream(record(model, path), options=StreamOptions(get_api_key=lambda _: " not-a-usual-key\n"))

    assert "not-a-usual-key" not in path.read_text()
    assert stream(replay(path))[-1].message.text == "your key is [removed]"


@pytest.mark.parametrize("behind", [False, True], ids=["alone", "behind another"])
def test_what_a_provider_was_given_is_removed(path, behind):
    """The key in the provider's making and those in its headers are gone, whatever they look like."""
    said = {"delta": {"content": "my-plain-key of the-team-token"}, "finish_reason": "stop"}
    with ScriptedServer(sse_answer(sse({"choices": [said]}))) as server:
        headers = {"X-Team-Token": "the-team-token"}
        provider = OpenAIChat("m", base_url=server.url, api_key="my-plain-key", headers=headers)
        stream(record(fallback(broken, provider) if behind else provider, path))
        provider.close()

    assert stream(replay(path))[-1].message.text == "[removed] of [removed]"


def broken(_request):
    raise ConnectionError


def test_a_hook_without_a_key_is_heeded(path):
    """`get_api_key` may give nothing."""

    def model(_context, options, _signal):
        yield DoneEvent(AssistantMessage(str(options.get_api_key("openai"))))

    stream(record(model, path), options=StreamOptions(get_api_key=lambda _: None))

    assert stream(replay(path))[-1].message.text == "None"


def test_keys_of_the_environment_and_given_secrets_are_removed(path, monkeypatch):
    """Values of variables that are named like a key, and what is named by hand, are gone."""
    monkeypatch.setenv("ACME_API_KEY", "plain-words-as-key")
    monkeypatch.setenv("ACME_PLACE", "plain-words-as-place")
    text = recorded_text(
        path,
        "plain-words-as-key plain-words-as-place street-no-12",
        secrets=["street-no-12", "a"],
    )

    assert "plain-words-as-key" not in text and "street-no-12" not in text
    assert "plain-words-as-place" in text


def test_secret_fields_of_arguments_are_removed(path):
    """A call's argument that is named like a secret is gone, however deep; what only sounds like one stays."""
    arguments = {
        "apiKey": "abc", "auth": [{"Access-Token": "def", "password": "ghi"}], "max_tokens": 12345,
        "page_token": "next-one", "token": "", "key": "value", "secret": {"is": "open"},
    }  # fmt: skip
    recorded_text(path, call("log_in", arguments, "c1"))
    [given] = stream(replay(path))[-1].message.tool_calls

    assert given.arguments == {
        **arguments,
        "apiKey": "[removed]",
        "auth": [{"Access-Token": "[removed]", "password": "[removed]"}],
    }


def test_a_secret_that_deltas_share_is_removed(path):
    """A key that comes in pieces is gone from the pieces; what is left comes in the first of them."""
    message = AssistantMessage(f"It is {KEY}, yes.")
    arguments = '{"password": "open sesame", "n": 1}'
    made = ToolCall("c", "log_in", {"password": "open sesame", "n": 1})
    events = [
        StartEvent("m"),
        TextStartEvent(0),
        *[TextDeltaEvent(0, piece) for piece in ("It is ", KEY[:6], KEY[6:], ", yes.")],
        TextEndEvent(0, message.text),
        ToolCallStartEvent(1, "c", "log_in"),
        *[ToolCallDeltaEvent(1, piece) for piece in (arguments[:18], arguments[18:])],
        ToolCallEndEvent(1, made),
        TextStartEvent(2),
        TextDeltaEvent(2, "no "),
        TextDeltaEvent(2, "secret"),
        DoneEvent(message),
    ]
    text = recorded_text(path, events)
    deltas = [event.delta for event in stream(replay(path)) if hasattr(event, "delta")]

    assert KEY[:8] not in text and "sesame" not in text
    assert deltas == [
        "It is [removed], yes.", '{"password": "[removed]", "n": 1}', "no ", "secret",
    ]  # fmt: skip


def test_a_removed_secret_stands_for_anything(path):
    """A request that holds the secret, or another one in its place, is still the one that was recorded."""
    stream(record(ScriptedModel(["x"]), path), context(f"my key is {KEY}, use it"))
    for key in (KEY, "sk-another", ""):
        assert stream(replay(path), context(f"my key is {key}, use it"))[-1].message.text == "x"

    assert isinstance(stream(replay(path), context("my key is gone"))[-1], ErrorEvent)
    assert "[removed]" in stream(replay(path), context("my key is gone"))[-1].message.error_message


def test_neither_shows_more_than_its_file(path):
    """The repr of both names the file."""
    assert repr(record(ScriptedModel(), path)) == f"Recorder({str(path)!r})"
    assert repr(replay(path)) == f"Replay({str(path)!r}, unused=0)"
