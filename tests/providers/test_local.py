"""The embedded model as a provider: its phases, its errors, its measuring."""

from __future__ import annotations

import json
import math
import threading
import time

import pytest

from tests.support.http_server import Answer, ScriptedServer, json_answer, sse, sse_answer
from yiemagent.abort import AbortSignal
from yiemagent.context import LlmContext
from yiemagent.errors import ConfigurationError, LlmConnectionError
from yiemagent.llm import StreamOptions, resolve
from yiemagent.messages import AssistantMessage, ToolCall, ToolResultMessage, UserMessage
from yiemagent.net.http import HttpClient
from yiemagent.providers.local import LocalModel, _Recipe, bench, create, stop_servers
from yiemagent.providers.local_models import pull
from yiemagent.providers.local_recipe import RESULT_MARK
from yiemagent.providers.openai_chat import OpenAIChat
from yiemagent.streaming import (
    DoneEvent,
    ErrorEvent,
    StartEvent,
    TextDeltaEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
)
from yiemagent.tool import AgentTool

CALL = ToolCall("call_1", "get_weather", {"city": "Bonn"})
DATA = "Weather in Bonn, Germany: fog, 4 °C, wind 7 km/h"
WEATHER = AgentTool(
    "get_weather",
    description="Tell the weather in a city.",
    input_schema={
        "type": "object",
        "properties": {"city": {"type": "string", "x-copy": True}},
        "required": ["city"],
    },
    execute=lambda *_: None,
    examples=[("What is the weather in Oslo?", {"city": "Oslo"})],
)
ASKED = LlmContext("", (UserMessage("What is the weather in Bonn?"),), [WEATHER])


def answered(text=DATA, *, is_error=False):
    """The conversation after the tool's result."""
    result = ToolResultMessage("call_1", "get_weather", text, is_error=is_error)
    return LlmContext("", (*ASKED.messages, AssistantMessage((CALL,)), result), [WEATHER])


# --- with a scripted server -----------------------------------------------------------------------------------------


class Spec:
    """What a recipe asks of a server's specification."""

    context_tokens = 4096


class Server:
    """What the recipe sees of a `LocalServer`, with a scripted one behind it."""

    def __init__(self, scripted):
        self.url, self.api_key, self.spec = scripted.url, "secret", Spec()
        self.client = HttpClient(environ={})


def said(text, finish="stop"):
    """A streamed answer of one piece."""
    usage = {"prompt_tokens": 10, "completion_tokens": 2}
    return sse_answer(
        sse(
            {"choices": [{"delta": {"role": "assistant", "content": text}}]},
            {"choices": [{"delta": {}, "finish_reason": finish}]},
            {"choices": [], "usage": usage},
        )
    )


def chance(of_call):
    """A gate's answer in which a call has this probability."""
    words = {"get": of_call, "reply": 1 - of_call}
    top = [{"token": token, "logprob": math.log(p)} for token, p in words.items()]
    tokens = [{"token": '{"name": "', "top_logprobs": []}, {"token": "get", "top_logprobs": top}]
    choice = {"message": {"content": ""}, "logprobs": {"content": tokens}}
    return json_answer({"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 3}})


def run(scripted, context, options=None, signal=None):
    """Give the events of one answer by the recipe, all failures raised."""
    server = Server(scripted)
    chat = OpenAIChat(
        "m", base_url=f"{server.url}/v1", api_key="secret", provider="local", client=server.client
    )
    recipe = _Recipe(server, chat, options or StreamOptions(), signal or AbortSignal())
    try:
        return list(recipe.answer(context))
    finally:
        server.client.close()


def test_a_likely_call_is_made_under_its_schema():
    """Above the bar the call is asked for, under the tool's schema, and comes as a tool call; usage adds up."""
    text = json.dumps({"name": "get_weather", "arguments": {"city": "Bonn"}})
    with ScriptedServer(chance(0.9), said(text)) as scripted:
        events = run(scripted, ASKED)
        gate, call = (request.json for request in scripted.requests)
    message = events[-1].message

    assert "grammar" in gate
    assert call["id_slot"] == gate["id_slot"]
    assert call["messages"] == gate["messages"]
    assert call["response_format"]["json_schema"]["schema"]["anyOf"]
    assert "tools" not in call
    assert [type(event) for event in events[:3:2]] == [StartEvent, type(events[2])]
    assert isinstance(events[1], ToolCallStartEvent)
    assert isinstance(events[-2], ToolCallEndEvent)
    assert message.stop_reason == "tool_use"
    assert dict(message.tool_calls[0].arguments) == {"city": "Bonn"}
    assert (message.usage.input_tokens, message.usage.output_tokens) == (15, 5)


def test_an_unlikely_call_is_talk():
    """Below the bar the model talks: the conversation is asked as it is, without tools."""
    with ScriptedServer(chance(0.01), said("Hello!")) as scripted:
        events = run(scripted, ASKED)
        talk = scripted.requests[1].json

    assert events[-1].message.text == "Hello!"
    assert talk["messages"] == [{"role": "user", "content": "What is the weather in Bonn?"}]
    assert "response_format" not in talk


@pytest.mark.parametrize("choice", ["required", "get_weather"])
def test_a_required_call_is_not_weighed(choice):
    """Where a call is required there is no gate, after a result as well."""
    text = json.dumps({"name": "get_weather", "arguments": {"city": "Bonn"}})
    with ScriptedServer(said(text)) as scripted:
        first = run(scripted, ASKED, StreamOptions(tool_choice=choice))
        second = run(scripted, answered(), StreamOptions(tool_choice=choice))

    assert first[-1].message.tool_calls
    assert second[-1].message.tool_calls


def test_no_tools_wanted_is_talk():
    """With tool_choice "none" nothing is weighed or called; max_tokens holds, and the payload hook has its say."""
    options = StreamOptions(
        tool_choice="none", max_tokens=7, on_payload=lambda body: {**body, "mine": 1}
    )
    with ScriptedServer(said("Hi")) as scripted:
        run(scripted, ASKED, options)
        body = scripted.requests[0].json

    assert (body["max_tokens"], body["mine"]) == (7, 1)


def test_a_call_that_is_cut_off_is_an_error():
    """Half a call is never run: the answer is an error that shows it."""
    with ScriptedServer(chance(0.9), said('{"name": "get_w', "length")) as scripted:
        end = run(scripted, ASKED)[-1]

    assert isinstance(end, ErrorEvent)
    assert "no whole call" in end.message.error_message
    assert end.message.content == ()


def test_words_that_hold_are_given_as_they_came():
    """An answer that says only what the result says is the model's own stream."""
    with ScriptedServer(said("In Bonn it is 4 °C with fog.")) as scripted:
        events = run(scripted, answered())
        body = scripted.requests[0].json

    assert events[-1].message.text == "In Bonn it is 4 °C with fog."
    assert any(isinstance(event, TextDeltaEvent) for event in events)
    assert body["messages"][-1]["content"].endswith(DATA)


@pytest.mark.parametrize(
    "answer", [said("In Bonn it is 40 °C."), said("In Bonn it is 4 °C", "length")]
)
def test_words_that_contradict_the_result_are_not_shown(answer):
    """For a sentence with a number that the result has not, or without an end, the result itself is shown, marked."""
    with ScriptedServer(answer) as scripted:
        events = run(scripted, answered())

    shown = "".join(event.delta for event in events if isinstance(event, TextDeltaEvent))
    assert shown == events[-1].message.text == RESULT_MARK + DATA
    assert events[-1].message.usage.output_tokens == 2


@pytest.mark.parametrize(
    "context", [answered("unknown city 'Bonn'", is_error=True), answered("x" * 5000), answered("")]
)
def test_what_a_small_model_can_not_tell_is_shown_itself(context):
    """A tool's error, a result that is too long, and an empty one are shown as they are, without asking."""
    with ScriptedServer(said("never")) as scripted:
        events = run(scripted, context)

    assert events[-1].message.text == RESULT_MARK + context.messages[-1].text
    assert scripted.requests == []


@pytest.mark.parametrize("context", [ASKED, answered()])
def test_a_failure_of_the_model_is_the_answers_end(context):
    """An error of the server, in the call or in the answer, ends the stream as an error."""
    options = StreamOptions(tool_choice="auto" if context is not ASKED else "required")
    failure = json_answer({"error": {"message": "broken"}}, status=400)
    with ScriptedServer(failure) as scripted:
        end = run(scripted, context, options)[-1]

    assert isinstance(end, ErrorEvent)
    assert "broken" in end.message.error_message


@pytest.mark.parametrize(
    "answer, words",
    [
        (json_answer({"choices": []}), "gave no probabilities"),
        (json_answer({"error": {"message": "too long"}}, status=400), "too long"),
        (json_answer([]), "gave no probabilities"),
    ],
)
def test_a_gate_that_fails_says_so(answer, words):
    """A gate's answer without probabilities, or a failing status, is an error with its words."""
    with ScriptedServer(answer) as scripted, pytest.raises(Exception, match=words):
        run(scripted, ASKED)


def test_a_server_that_is_gone_is_a_connection_error():
    """Where the model's process has ended, the gate's error says that it is gone."""
    with (
        ScriptedServer(Answer(status=None, then="reset")) as scripted,
        pytest.raises(LlmConnectionError, match="is gone"),
    ):
        run(scripted, ASKED)


# --- the model itself -------------------------------------------------------------------------------------------------


kept = pytest.mark.leaves_open("the connection to the model is kept for the next question")


@pytest.fixture(scope="module", autouse=True)
def model_ends():
    """The model's process ends with this file's tests."""
    yield
    stop_servers()


@pytest.fixture(scope="module")
def local():
    """The default model, started, so that no test counts its process as left behind."""
    model = LocalModel(str(pull()), profile="recipe")
    list(model(LlmContext("", (UserMessage("Hi"),)), StreamOptions(max_tokens=1), AbortSignal()))
    return model


@kept
def test_talk_streams_and_is_the_same_each_time(local):
    """A conversation without tools is streamed as it comes; temperature and seed are fixed."""
    context = LlmContext("Be brief.", (UserMessage("Say hello."),))
    options = StreamOptions(max_tokens=12)
    first, second = (list(local(context, options, AbortSignal())) for _ in range(2))

    assert sum(isinstance(event, TextDeltaEvent) for event in first) > 3
    assert first[-1].message.text == second[-1].message.text != ""
    assert first[-1].message.provider == "local"


@kept
def test_the_call_phase_of_the_real_model_is_constrained(local):
    """What the real server gives under a tool's schema is a call with an argument from the question."""
    events = list(local(ASKED, StreamOptions(tool_choice="required"), AbortSignal()))

    assert dict(events[-1].message.tool_calls[0].arguments) == {"city": "Bonn"}


def test_an_abort_ends_the_answer_at_once(local):
    """An abort in the middle of an answer ends it, with what was received."""
    signal = AbortSignal()
    events = local(LlmContext("", (UserMessage("Tell me a story."),)), StreamOptions(), signal)
    for event in events:
        if isinstance(event, TextDeltaEvent):
            break
    signal.abort()
    begun = time.monotonic()
    end = list(events)[-1]

    assert time.monotonic() - begun < 1
    assert end.message.stop_reason == "aborted"
    assert end.message.text


def test_an_abort_before_the_start_starts_nothing():
    """A signal that is set already ends the answer before a process is started."""
    signal = AbortSignal()
    signal.abort()
    end = list(LocalModel(str(pull()))(ASKED, StreamOptions(), signal))[-1]

    assert end.message.stop_reason == "aborted"


@kept
def test_other_threads_go_on_while_the_model_writes(local):
    """The model computes in a process of its own: this one's threads are not held up."""
    done, counted = threading.Event(), 0
    context, options = LlmContext("", (UserMessage("Count."),)), StreamOptions(max_tokens=20)

    def ask():
        list(local(context, options, AbortSignal()))
        done.set()

    thread = threading.Thread(target=ask)
    thread.start()
    while not done.wait(0.001):
        counted += 1
    thread.join()

    assert counted > 20


@kept
def test_the_window_of_the_model_is_known(local):
    """It is what the server was started with, so that compaction needs no setting."""
    assert local.model_facts("whichever").context_window == 4_096


@kept
def test_a_request_dict_is_answered_whole(local):
    """Called with a request dict alone, the provider is a plain llm_call."""
    answer = local({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5})

    assert answer.text


def test_the_profile_of_a_file_comes_from_its_template(local):
    """A file whose chat template knows no tools is asked by the recipe; the profile can be set."""
    model = LocalModel(str(pull()))
    events = list(model(ASKED, StreamOptions(tool_choice="required"), AbortSignal()))
    native = LocalModel(str(pull()), profile="native")
    words = list(native(ASKED, StreamOptions(max_tokens=3), AbortSignal()))
    stop_servers()

    assert events[-1].message.tool_calls
    assert isinstance(words[-1], DoneEvent)
    assert words[-1].message.text


def test_a_file_that_is_no_model_ends_the_answer(tmp_path):
    """A damaged file is an error event with one clear line, never an exception of the stream."""
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF and nothing more")
    end = list(LocalModel(str(path))(ASKED, StreamOptions(), AbortSignal()))[-1]

    assert isinstance(end, ErrorEvent)
    assert "is damaged" in end.message.error_message


def test_a_model_that_is_not_there_says_what_to_run(monkeypatch, tmp_path):
    """With no model pulled, the model string "local" fails at once and names the command."""
    monkeypatch.setenv("YIEMAGENT_CACHE", str(tmp_path))

    with pytest.raises(ConfigurationError, match=r"run: yiemagent local pull$"):
        resolve("local")
    with pytest.raises(ConfigurationError, match="no model file"):
        create("/nowhere/model.gguf")


def test_the_extra_is_asked_for_first(monkeypatch):
    """Without the runtime the provider names the extra, whether a model is there or not."""
    monkeypatch.setitem(__import__("sys").modules, "xllamacpp", None)

    with pytest.raises(ConfigurationError) as caught:
        create("")
    assert str(caught.value) == "the embedded model needs: pip install 'yiemagent[local]'"


def test_a_wrong_profile_is_refused():
    """A profile that is none is the caller's mistake."""
    with pytest.raises(ConfigurationError, match="profile must be"):
        LocalModel(profile="magic")


def test_bench_measures_load_speed_and_memory():
    """Measuring gives figures above zero, in words as well, and leaves no process."""
    measured = bench(str(pull()))

    assert 0 < measured.load_s < 60
    assert measured.prompt_tokens_per_s > 0
    assert measured.generated_tokens_per_s > 0
    assert measured.peak_rss_bytes is None or measured.peak_rss_bytes > 100_000_000
    assert measured.rows()["load"].endswith(" s")
