"""The fakes and checks that are part of the product: they do what they say, and the grammar sees each fault."""

from __future__ import annotations

import threading

import attrs
import pytest

from tests.support.loops import WAIT_S, run, tool
from yiemagent import testing
from yiemagent.abort import AbortSignal
from yiemagent.context import LlmContext
from yiemagent.events import (
    AgentEndEvent,
    AgentStartEvent,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    NoticeEvent,
    ToolExecEndEvent,
    ToolExecStartEvent,
    ToolExecUpdateEvent,
    TurnEndEvent,
    TurnStartEvent,
    stamp,
)
from yiemagent.llm import StreamOptions
from yiemagent.messages import AssistantMessage, UserMessage
from yiemagent.streaming import DoneEvent, ErrorEvent, StartEvent, TextDeltaEvent
from yiemagent.testing import (
    FakeClock,
    RecordingSink,
    ScriptedModel,
    call,
    calls,
    check_event_order,
    failure,
)


def ask(model, signal=None):
    """Ask a scripted model once."""
    return list(model(LlmContext(), StreamOptions(), signal or AbortSignal()))


# -- the model --


@pytest.mark.parametrize("text", ["hello", "a b a", "  two  spaces ", " ", "one\ntwo three"])
def test_a_text_streams_word_by_word(text):
    """The pieces of a text are the text, and the last event carries it whole."""
    events = ask(ScriptedModel([text]))
    pieces = [event.delta for event in events if isinstance(event, TextDeltaEvent)]

    assert "".join(pieces) == text
    assert isinstance(events[0], StartEvent)
    assert events[-1].message.text == text
    assert len(pieces) == max(1, len(text.split(" ")) - (text.startswith(" ")))


def test_an_answer_can_come_whole():
    """`stream=False` gives one Done."""
    [event] = ask(ScriptedModel(["hello"], stream=False))

    assert isinstance(event, DoneEvent)


def test_every_kind_of_answer_ends_a_stream():
    """Texts, calls, messages, failures, events and functions of the context all end in Done or Error."""
    message = AssistantMessage("whole")
    script = [
        "text",
        call("work"),
        message,
        failure("no luck"),
        [DoneEvent(message)],
        lambda context, _signal: context.system_prompt or "empty",
    ]
    model = ScriptedModel(script)
    ends = [ask(model)[-1] for _ in script]

    assert [type(end) for end in ends] == [*[DoneEvent] * 3, ErrorEvent, *[DoneEvent] * 2]
    assert ends[1].message.tool_calls[0].name == "work"
    assert (ends[2].message, ends[4].message) == (message, message)
    assert ends[5].message.text == "empty"


def test_an_exception_is_raised():
    """A scripted exception is what the model raises."""
    with pytest.raises(ConnectionError):
        ask(ScriptedModel([ConnectionError()]))


def test_a_script_that_is_used_up_is_an_error_unless_there_is_a_default():
    """Behind the script stands the default, or a failure that says so."""
    assert ask(ScriptedModel())[-1].message.error_message == "the script of the model is used up"
    model = ScriptedModel(["first"], default="more")
    assert [ask(model)[-1].message.text for _ in range(3)] == ["first", "more", "more"]


def test_an_aborted_signal_gives_an_aborted_answer():
    """A scripted model heeds the signal."""
    signal = AbortSignal()
    signal.abort()

    assert ask(ScriptedModel(["hello"]), signal)[-1].message.stop_reason == "aborted"


def test_the_model_keeps_what_it_was_asked():
    """Contexts and options of all requests are kept, in order."""
    model = ScriptedModel(default="x")
    context, options = LlmContext("a"), StreamOptions(model="m")
    list(model(context, options, AbortSignal()))

    assert (model.requests, model.options) == ([context], [options])


def test_many_threads_share_a_script():
    """Each answer of a script is given once."""
    model = ScriptedModel([str(number) for number in range(64)], stream=False)
    given = []
    threads = [
        threading.Thread(target=lambda: given.extend(ask(model)[0].message.text for _ in range(8)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)

    assert sorted(map(int, given)) == list(range(64))


def test_calls_make_an_answer():
    """`call` and `calls` make what a model would send."""
    answer = calls(call("a", {"n": 1}), call("b", "{broken", "id"), text="now")

    assert (answer.text, answer.stop_reason) == ("now", "tool_use")
    assert [(c.name, c.arguments, c.id) for c in answer.tool_calls] == [
        ("a", {"n": 1}, ""),
        ("b", "{broken", "id"),
    ]


# -- sink and clock --


def test_a_recording_sink_gives_what_it_kept():
    """Events can be asked for by kind and by name."""
    sink = RecordingSink()
    sink(TurnStartEvent(1))
    sink(TurnEndEvent(None))

    assert sink.names() == ["TurnStartEvent", "TurnEndEvent"]
    assert sink.of(TurnStartEvent) == [TurnStartEvent(1)]
    assert sink.wait_for(TurnEndEvent) is sink.events[1]
    assert sink.wait_for(lambda event: isinstance(event, TurnStartEvent)) is sink.events[0]


def test_a_recording_sink_wakes_who_waits():
    """`wait_for` blocks until the event is told, and no longer than its limit."""
    sink = RecordingSink()
    teller = threading.Thread(target=lambda: [sink(TurnEndEvent(None)), sink(TurnStartEvent(1))])
    teller.start()

    assert isinstance(sink.wait_for(TurnStartEvent, WAIT_S), TurnStartEvent)
    teller.join(WAIT_S)
    with pytest.raises(TimeoutError):
        sink.wait_for(AgentEndEvent, 0.01)


def test_a_fake_clock_goes_when_told():
    """The clock stands until it is advanced."""
    clock = FakeClock(5.0)
    clock.advance(2.5)

    assert clock() == 7.5


# -- the grammar --


def good():
    """The events of a sound run with two turns, a call with an update, and a notice."""

    def function(_id, _args, _signal, update):
        update("half")
        return "done"

    return run([calls(call("work")), "fine"], tool(function=function)).events


def renumbered(events):
    """Events anew, numbered from 1 on, as of one run."""
    return [
        stamp(attrs.evolve(event), number, "run", 0.0) for number, event in enumerate(events, 1)
    ]


def first(events, kind):
    """Where the first event of a kind stands."""
    return next(index for index, event in enumerate(events) if isinstance(event, kind))


def test_a_sound_run_passes():
    """The grammar has nothing against a run of the loop, notices included."""
    events = good()
    events.insert(3, NoticeEvent("by the way"))

    check_event_order(renumbered(events))


@pytest.mark.parametrize(
    "kind",
    [
        AgentStartEvent,
        TurnStartEvent,
        TurnEndEvent,
        MessageStartEvent,
        MessageEndEvent,
        ToolExecStartEvent,
        ToolExecEndEvent,
        AgentEndEvent,
    ],
)
@pytest.mark.parametrize("fault", ["missing", "doubled"])
def test_a_missing_or_doubled_event_is_seen(kind, fault):
    """Each event that opens or closes something must be there exactly once."""
    events = good()
    index = first(events, kind)
    events[index : index + 1] = [] if fault == "missing" else [events[index]] * 2

    with pytest.raises(AssertionError):
        check_event_order(renumbered(events))


def swap(kind, other):
    """Swap the first events of two kinds."""

    def change(events):
        one, two = first(events, kind), first(events, other)
        events[one], events[two] = events[two], events[one]

    return change


def replace(kind, **fields):
    """Change fields of the first event of a kind."""

    def change(events):
        index = first(events, kind)
        events[index] = attrs.evolve(events[index], **fields)

    return change


def add(event, behind):
    """Put an event behind the first of a kind."""

    def change(events):
        events.insert(first(events, behind) + 1, event)

    return change


STRAY = ToolExecUpdateEvent("nobody", "work", {}, "half")
FAULTS = {
    "update before its call": swap(ToolExecStartEvent, ToolExecUpdateEvent),
    "update after its call": swap(ToolExecUpdateEvent, ToolExecEndEvent),
    "update of nobody": add(STRAY, ToolExecStartEvent),
    "call before its answer": add(ToolExecStartEvent("x", "work", {}), TurnStartEvent),
    "update without an answer": add(
        MessageUpdateEvent(TextDeltaEvent(0, "x"), None), TurnStartEvent
    ),
    "turns not counted": replace(TurnStartEvent, turn=2),
    "turn without its results": replace(TurnEndEvent, tool_results=()),
    "turn with another answer": replace(TurnEndEvent, message=AssistantMessage("other")),
    "run without its messages": replace(AgentEndEvent, messages=()),
    "message that changes kind": replace(MessageEndEvent, message=AssistantMessage("x")),
    "stranger in the run": add(MessageEndEvent(UserMessage("x")), TurnStartEvent),
    "event after the end": lambda events: events.append(NoticeEvent("late")),
}


@pytest.mark.parametrize("change", FAULTS.values(), ids=FAULTS)
def test_each_fault_is_seen(change):
    """What is out of place, or says something else than was told before, is a fault."""
    events = good()
    change(events)

    with pytest.raises(AssertionError, match=r"event \d+, .*: "):
        check_event_order(renumbered(events))


def test_results_out_of_call_order_are_seen():
    """Result messages come in call order, and are what their calls ended with."""
    events = run([calls(call("work"), call("work")), "fine"], tool()).events
    starts = [
        index
        for index, event in enumerate(events)
        if isinstance(event, MessageStartEvent) and event.message.role == "toolResult"
    ]
    one, two = starts
    swapped = [*events]
    swapped[one : one + 2], swapped[two : two + 2] = events[two : two + 2], events[one : one + 2]
    with pytest.raises(AssertionError):
        check_event_order(renumbered(swapped))

    other = attrs.evolve(events[one].message, is_error=True)
    changed = [*events]
    changed[one], changed[one + 1] = MessageStartEvent(other), MessageEndEvent(other)
    with pytest.raises(AssertionError, match="is not the result that its call ended with"):
        check_event_order(renumbered(changed))


def test_a_wrong_number_and_a_foreign_run_are_seen():
    """Sequences count from 1 without a gap, and one run has one id."""
    events = good()
    with pytest.raises(AssertionError, match="the sequence should be 1"):
        check_event_order(events[1:])
    stranger = renumbered(events)
    stamp(stranger[2], 3, "other", 0.0)
    with pytest.raises(AssertionError, match="belongs to another run"):
        check_event_order(stranger)


def test_a_run_that_never_ends_is_seen():
    """Events without an AgentEnd, and no events at all, are no run."""
    with pytest.raises(AssertionError, match="no AgentEnd after 0 events"):
        check_event_order([])
    with pytest.raises(AssertionError, match="no AgentEnd"):
        check_event_order(good()[:-1])


def test_calls_that_share_an_id_are_seen():
    """The calls of one answer have ids of their own."""
    answer = calls(call("work", call_id="same"), call("work", call_id="same"))
    events = [
        AgentStartEvent(),
        TurnStartEvent(1),
        MessageStartEvent(answer),
        MessageEndEvent(answer),
    ]

    with pytest.raises(AssertionError, match="share an id"):
        check_event_order(renumbered(events))


# -- the names --


def test_every_name_of_testing_is_handed_on():
    """Each public name is there, `dir` knows it, and no other is made up."""
    assert [name for name in testing.__all__ if not hasattr(testing, name)] == []
    assert set(testing.__all__) <= set(dir(testing))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        testing.nothing  # noqa: B018 - asking is the point
