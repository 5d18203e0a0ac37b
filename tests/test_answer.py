"""One answer of a model: what is sent, how it streams in, and how a broken stream ends."""

from __future__ import annotations

import attrs
import pytest

from tests.support.loops import Done, raising, run, tool
from yiemagent.abort import AbortSignal
from yiemagent.answer import EMPTY_TEXT, stream_assistant_response
from yiemagent.config import AgentLoopConfig
from yiemagent.context import AgentContext
from yiemagent.errors import ConfigurationError
from yiemagent.events import (
    FallbackEvent,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    RateGateEvent,
    RetryScheduledEvent,
)
from yiemagent.messages import (
    AssistantMessage,
    CustomMessage,
    LlmUsage,
    TextContent,
    ThinkingContent,
    ToolCall,
    UserMessage,
)
from yiemagent.streaming import (
    DoneEvent,
    ErrorEvent,
    StartEvent,
    StreamNoticeEvent,
    TextDeltaEvent,
    TextEndEvent,
    TextStartEvent,
    ToolCallDeltaEvent,
    ToolCallStartEvent,
)
from yiemagent.testing import RecordingSink, ScriptedModel, call, calls, failure

FINE = DoneEvent(AssistantMessage("fine"))


class OwnError(BaseException):
    """What no `except Exception` sees."""


def answers(done: Done):
    """The assistant messages that a run added."""
    return [message for message in done.messages if message.role == "assistant"]


def streaming(*events, error=None):
    """A model that gives these events at every request, and then raises."""

    def stream(_context, _options, _signal):
        yield from events
        if error is not None:
            raise error

    return stream


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ({"usage": {"input_tokens": 3}}, "usage is {'input_tokens': 3}; give an LlmUsage"),
        ({"usage": LlmUsage(10, 3, cost="3")}, "usage.cost is '3'; give a number, or None"),
    ],
)
def test_an_answer_that_holds_what_it_may_not_is_an_error(odd, said):
    """A model of the user's own may give anything: what can't be added up is said, and the run ends."""
    done = run(streaming(DoneEvent(attrs.evolve(AssistantMessage("fine"), **odd))))

    assert done.answer.stop_reason == "error"
    assert f"BadResponseError: the stream ended with a message whose {said}" in (
        done.answer.error_message
    )
    assert [message.stop_reason for message in answers(done)] == ["error"]


def test_an_answer_may_cost_whole_dollars():
    """A price is any number."""
    usage = LlmUsage(10, 3, cost=2)

    assert run(streaming(DoneEvent(AssistantMessage("fine", usage=usage)))).answer.usage == usage


# -- how it streams in --


def test_an_answer_starts_updates_and_ends():
    """MessageStart is empty, each piece is an update with the message so far, MessageEnd has it whole."""
    done = run(["one two"])
    start, end = done.of(MessageStartEvent)[1], done.of(MessageEndEvent)[1]
    updates = done.of(MessageUpdateEvent)

    assert (start.message.model, start.message.content) == ("scripted", ())
    assert [update.partial.text for update in updates] == ["", "one", "one two", "one two"]
    assert end.message.text == "one two"


def test_an_answer_that_comes_whole_has_no_updates():
    """One Done is a MessageStart and a MessageEnd."""
    done = run(ScriptedModel(["fine"], stream=False))

    assert done.of(MessageUpdateEvent) == []
    assert done.of(MessageStartEvent)[1].message.content == ()
    assert done.answer.text == "fine"


def test_a_piece_before_the_start_starts_the_answer():
    """A stream that forgets its Start is heard all the same, and its model is the one asked."""
    done = run(streaming(TextStartEvent(0), TextDeltaEvent(0, "fine"), FINE), model="asked")

    assert done.of(MessageStartEvent)[1].message.model == "asked"
    assert [update.partial.text for update in done.of(MessageUpdateEvent)] == ["", "fine"]


def test_a_second_start_is_none():
    """MessageStart comes once."""
    done = run(streaming(StartEvent("a"), StartEvent("b"), FINE))

    assert done.steps.count("MessageStart") == 2


def test_a_piece_of_a_block_that_never_began_is_left_out():
    """A delta without its block breaks nothing."""
    done = run(streaming(StartEvent(), TextDeltaEvent(3, "lost"), FINE))

    assert [update.partial.content for update in done.of(MessageUpdateEvent)] == [()]
    assert done.answer.text == "fine"


@pytest.mark.parametrize(
    "kind, event",
    [
        ("retry_scheduled", RetryScheduledEvent),
        ("rate_gate", RateGateEvent),
        ("fallback", FallbackEvent),
    ],
)
def test_a_notice_of_the_stream_is_one_of_the_run(kind, event):
    """A notice becomes the event of the same meaning, also before the answer starts."""
    done = run(streaming(StreamNoticeEvent(kind, "words", {"delay_ms": 5}), FINE))
    [notice] = done.of(event)

    assert (notice.message, notice.details) == ("words", {"delay_ms": 5})
    assert done.steps.index(event.__name__.removesuffix("Event")) == 4


def test_nothing_is_read_behind_the_end():
    """Done ends the stream; what would follow is never asked for, and the stream is closed."""
    seen = []

    def stream(_context, _options, _signal):
        try:
            yield FINE
            seen.append("behind")
        finally:
            seen.append("closed")

    assert run(stream).answer.text == "fine"
    assert seen == ["closed"]


# -- broken streams --


@pytest.mark.parametrize("error", [ValueError("broken"), RecursionError(), KeyError("x")], ids=repr)
def test_a_stream_that_raises_is_an_answer_that_failed(error):
    """What a `StreamFn` raises ends the answer with what came before."""
    pieces = (StartEvent("m"), TextStartEvent(0), TextDeltaEvent(0, "half"))
    done = run(streaming(*pieces, error=error))
    [answer] = answers(done)

    assert (answer.stop_reason, answer.text, answer.model) == ("error", "half", "m")
    assert answer.error_message.startswith(type(error).__name__)
    assert done.answer == answer


@pytest.mark.parametrize(
    "error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), OwnError()], ids=repr
)
@pytest.mark.parametrize("pieces", [(), (StartEvent(), TextStartEvent(0))], ids=["none", "half"])
def test_a_stream_that_raises_beyond_exceptions_fails_the_run(error, pieces):
    """Not even `SystemExit` leaves a run without its end."""
    done = run(streaming(*pieces, error=error))

    assert (done.answer.stop_reason, done.answer.error_message) == (
        "error",
        f"{type(error).__name__}: {error}".removesuffix(": "),
    )
    assert [answer.stop_reason for answer in answers(done)] == ["error"] * bool(pieces)


def test_a_stream_fn_that_raises_at_once_is_an_answer_that_failed():
    """A function that raises before it gives a stream is no different."""
    done = run(raising_stream)

    assert done.history == [("user", "hi"), ("assistant", "")]
    assert done.answer.error_message == "ConnectionError: no net"


def raising_stream(_context, _options, _signal):
    raise ConnectionError("no net")


@pytest.mark.parametrize("given", [None, 7, "text"], ids=repr)
def test_a_stream_fn_that_gives_no_stream_is_an_answer_that_failed(given):
    """What can't be read as stream events is an error of the answer."""
    done = run(lambda _context, _options, _signal: given)

    assert done.answer.stop_reason == "error"
    assert len(answers(done)) == 1


@pytest.mark.parametrize("garbage", [None, "text", 7, {"type": "done"}, UserMessage("x")])
def test_garbage_in_a_stream_ends_the_answer(garbage):
    """An event that is none is named, and what came before is kept."""
    done = run(streaming(StartEvent(), TextStartEvent(0), TextDeltaEvent(0, "half"), garbage, FINE))

    assert (done.answer.stop_reason, done.answer.text) == ("error", "half")
    assert "is no stream event" in done.answer.error_message


@pytest.mark.parametrize("kind", [DoneEvent, ErrorEvent])
def test_an_end_without_a_message_is_an_answer_that_failed(kind):
    """A Done or Error that carries something else is garbage too."""
    done = run(streaming(StartEvent(), kind("fine")))

    assert done.answer.stop_reason == "error"
    assert "is no AssistantMessage" in done.answer.error_message


def test_a_stream_without_an_end_is_an_answer_that_failed():
    """A stream that just stops is an error with what was received."""
    done = run(streaming(StartEvent(), TextStartEvent(0), TextDeltaEvent(0, "half")))

    assert (done.answer.stop_reason, done.answer.text) == ("error", "half")
    assert done.answer.error_message == "the stream ended without a Done or Error event"
    assert run(streaming()).answer.stop_reason == "error"


def test_an_error_event_is_the_answer_with_what_was_received():
    """The message of an Error event is kept with its text and usage."""
    message = AssistantMessage(
        "half", usage=LlmUsage(5, 1), stop_reason="error", error_message="lost"
    )
    done = run(streaming(StartEvent(), ErrorEvent(message)))

    assert done.answer is message
    assert done.messages[-1] is message


def test_an_error_event_whose_message_did_not_fail_fails_it():
    """An Error event is an error, whatever stop reason its message has."""
    done = run(streaming(ErrorEvent(AssistantMessage("half"), ValueError("lost"))))
    assert (done.answer.stop_reason, done.answer.error_message) == ("error", "ValueError: lost")

    wordless = run(streaming(ErrorEvent(AssistantMessage("half"))))
    assert wordless.answer.error_message == "BadResponseError: the stream failed"


def test_pieces_that_can_not_be_put_together_end_the_run():
    """A delta that is no text can't be shown, and still every Start has its End."""
    done = run(streaming(StartEvent(), TextStartEvent(0), TextDeltaEvent(0, None)))

    assert done.answer.stop_reason == "error"
    assert answers(done)[0].stop_reason == "error"


def test_a_call_that_broke_off_keeps_the_text_of_its_arguments():
    """A call under way when the stream breaks gets an id, its text so far, and an error result."""
    done = run(
        streaming(
            StartEvent(), ToolCallStartEvent(0, "", "work"), ToolCallDeltaEvent(0, '{"a": 1')
        ),
        tool(),
    )
    [answer] = answers(done)
    [kept] = answer.tool_calls

    assert (kept.name, kept.arguments, kept.partial_json) == ("work", '{"a": 1', None)
    assert kept.id.startswith("call_")
    assert done.results == [
        (
            (
                "This call was not run: the answer that holds it failed "
                "(the stream ended without a Done or Error event)"
            ),
            True,
        )
    ]


# -- what the history keeps --


def test_missing_and_doubled_ids_become_fresh_ones():
    """The calls of an answer have ids of their own, in the history and in the events."""
    answer = calls(*[call("work", call_id=given) for given in ("", "a", "a", "")])
    done = run([answer, "fine"], tool())
    ids = [one.id for one in answers(done)[0].tool_calls]

    assert len(set(ids)) == 4
    assert ids[1] == "a"
    assert [m.tool_call_id for m in done.messages if m.role == "toolResult"] == ids


def test_a_signature_of_a_call_is_kept():
    """A call that gets a fresh id keeps everything else."""
    answer = AssistantMessage(
        (ToolCall("", "work", {"a": 1}, None, "sig"),), stop_reason="tool_use"
    )
    [kept] = answers(run([answer, "fine"], tool()))[0].tool_calls

    assert (kept.name, kept.arguments, kept.signature) == ("work", {"a": 1}, "sig")


EMPTY = {
    "nothing": AssistantMessage(),
    "blank": AssistantMessage(" \n "),
    "thinking": AssistantMessage((ThinkingContent("hm"),)),
    "tool use without calls": AssistantMessage("I will", stop_reason="tool_use"),
    "length": AssistantMessage(stop_reason="length"),
}


@pytest.mark.parametrize("empty", EMPTY.values(), ids=EMPTY)
def test_an_empty_answer_is_asked_for_again_once(empty):
    """It is announced, marked as an error, left out of the next request, and the second answer is the run's."""
    done = run([empty, "fine"])
    first, second = answers(done)

    assert (first.stop_reason, first.error_message) == ("error", EMPTY_TEXT)
    assert first.content == empty.content
    assert (second.text, done.answer.text) == ("fine", "fine")
    assert [len(request.messages) for request in done.model.requests] == [1, 1]
    assert done.steps.count("TurnStart") == 1


def test_a_second_empty_answer_is_the_runs_error():
    """The model is asked twice and no more."""
    done = run(ScriptedModel(default=AssistantMessage()))

    assert len(done.model.requests) == 2
    assert (done.answer.stop_reason, done.answer.error_message) == ("error", EMPTY_TEXT)


def test_an_empty_answer_is_not_asked_for_again_after_an_abort():
    """An abort beside an empty answer ends the run."""
    asked = []

    def empty(_context, _options, signal):
        asked.append(1)
        signal.abort()
        yield DoneEvent(AssistantMessage())

    done = run(empty)

    assert (len(asked), done.answer.error_message) == (1, EMPTY_TEXT)


# -- what is sent --


def test_hooks_change_the_request_and_never_the_history():
    """`transform_context` sees the history, `convert_to_llm` what that gives; both are for one request."""
    order = []

    def transform(messages, signal):
        order.append(("transform", len(messages), signal.aborted))
        return [*messages, UserMessage("and be brief")]

    def convert(messages):
        order.append(("convert", len(messages)))
        return [message for message in messages if message.text != "hi"]

    done = run(["fine"], transform_context=transform, convert_to_llm=convert)

    assert order == [("transform", 1, False), ("convert", 2)]
    assert [message.text for message in done.model.requests[0].messages] == ["and be brief"]
    assert done.history == [("user", "hi"), ("assistant", "fine")]


def test_messages_of_other_kinds_become_a_models_by_themselves():
    """Without `convert_to_llm` each kind says itself what a model is sent for it."""
    custom = CustomMessage("note", "remember")
    done = run(["fine"], prompts=[custom, "hi"])
    sent = done.model.requests[0].messages

    assert [message.role for message in sent] == ["user", "user"]
    assert done.messages[0] is custom


def test_a_request_is_repaired_for_the_model():
    """A history with an unanswered call is sent with a result for it, and stays as it was."""
    history = [UserMessage("a"), calls(call("work", call_id="c1"))]
    done = run(["fine"], history=history)
    sent = done.model.requests[0].messages

    assert [message.role for message in sent] == ["user", "assistant", "toolResult", "user"]
    assert done.history == [("user", "hi"), ("assistant", "fine")]


def test_answers_that_failed_are_left_out_of_requests():
    """A failed answer and its results stay in the history and are not sent."""
    broken = attrs.evolve(calls(call("work", call_id="c")), stop_reason="error", error_message="x")
    first = run([broken], tool())
    done = run(["fine"], history=first.messages)

    assert [message.role for message in first.messages] == ["user", "assistant", "toolResult"]
    assert [message.role for message in done.model.requests[0].messages] == ["user", "user"]


@pytest.mark.parametrize("hook", ["transform_context", "convert_to_llm"])
@pytest.mark.parametrize("given", [None, [{"role": "user", "content": "hi"}], ["hi"]])
def test_a_hook_that_gives_no_messages_is_told_so(hook, given):
    """What is no message is named, with the hook that gave it."""
    done = run(["never"], **{hook: lambda *_: given})

    assert done.answer.error_message.startswith(f"ConfigurationError: {hook} gave ")
    assert done.model.requests == []


@pytest.mark.parametrize("hook", ["transform_context", "convert_to_llm"])
@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(2)], ids=repr)
def test_a_hook_that_raises_before_the_request_fails_the_run(hook, error):
    """The run ends with the hook's error, the prompt in the history, the model unasked."""
    done = run(["never"], **{hook: raising(error)})

    assert done.answer.error_message.startswith(type(error).__name__)
    assert (done.history, done.model.requests) == ([("user", "hi")], [])


def test_the_options_of_the_config_reach_the_model():
    """Model, temperature and the rest are the request's options, and one object while they stay."""
    model = ScriptedModel([calls(call("work")), "fine"])
    run(model, tool(), model="m", temperature=0.5, max_tokens=7, session_id="s", tool_choice="auto")
    first, second = model.options

    assert first is second
    assert (first.model, first.temperature, first.max_tokens) == ("m", 0.5, 7)
    assert (first.session_id, first.tool_choice) == ("s", "auto")


def test_a_response_can_be_asked_for_alone():
    """`stream_assistant_response` leaves MessageEnd to its caller and gives the whole answer."""
    sink = RecordingSink()
    message = stream_assistant_response(
        AgentContext(messages=[UserMessage("hi")]),
        AgentLoopConfig(),
        AbortSignal(),
        emit=sink,
        stream_fn=ScriptedModel(["fine"], stream=False),
    )

    assert message.content == (TextContent("fine"),)
    assert sink.names() == ["MessageStartEvent"]


def test_a_context_of_another_kind_is_refused():
    """What `prepare_context` may not give is named."""
    with pytest.raises(ConfigurationError, match="prepare_context gave None"):
        stream_assistant_response(
            None, AgentLoopConfig(), AbortSignal(), emit=print, stream_fn=ScriptedModel()
        )


def test_an_answer_after_an_abort_counts_as_it_is():
    """A stream that ends after the abort without an Error is kept whole."""

    def late(_context, _options, signal):
        yield StartEvent()
        signal.abort()
        yield TextStartEvent(0)
        yield TextEndEvent(0, "fine")
        yield FINE

    done = run(late)

    assert (done.answer.text, done.answer.stop_reason) == ("fine", "stop")


def test_a_stream_that_raises_when_aborted_is_an_aborted_answer():
    """What a `StreamFn` raises after the abort is the abort's, and what came is kept."""

    def stream(_context, _options, signal):
        yield StartEvent()
        yield TextStartEvent(0)
        yield TextDeltaEvent(0, "half")
        signal.abort()
        raise ConnectionError

    done = run(stream)

    assert (done.answer.stop_reason, done.answer.text) == ("aborted", "half")


@pytest.mark.parametrize("end", [raising(ConnectionError()), lambda: None, lambda: "a text"])
def test_an_aborted_answer_says_why(end):
    """However a model takes note of the abort, the answer names the reason that was given."""

    def stream(_context, _options, signal):
        signal.abort("the user left")
        if end() is None:
            return iter(())
        return ScriptedModel(["too late"])(_context, _options, signal)

    done = run(stream)

    assert (done.answer.stop_reason, done.answer.error_message) == (
        "aborted",
        "aborted: the user left",
    )


def test_a_failed_script_ends_the_run():
    """A failed answer is the run's, and nothing else is asked."""
    done = run([failure("no luck"), "never"])

    assert done.answer.error_message == "no luck"
    assert len(done.model.requests) == 1
