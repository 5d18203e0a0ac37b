"""What a session writes of a run's events."""

from __future__ import annotations

import pytest

from yiemagent.events import (
    AgentEndEvent,
    AgentStartEvent,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    ToolExecEndEvent,
    ToolExecStartEvent,
    TurnEndEvent,
)
from yiemagent.messages import AssistantMessage, ToolCall, ToolResultMessage, UserMessage
from yiemagent.payload import FrozenDict
from yiemagent.sessions.bodies import MessageBody, PartialBody, RunEndBody
from yiemagent.sessions.recording import Recording
from yiemagent.streaming import (
    PartialMessage,
    StartEvent,
    TextDeltaEvent,
    TextStartEvent,
    ThinkingDeltaEvent,
)
from yiemagent.testing import FakeClock
from yiemagent.tool import AgentToolResult

HI = UserMessage("hi")
CALLS = AssistantMessage((ToolCall("a", "work"), ToolCall("b", "work")), stop_reason="tool_use")
DONE = AssistantMessage("done")
PARTIAL = PartialMessage.first()


def result(call_id):
    """The result of a call, and the event that carries it."""
    message = ToolResultMessage(call_id, "work", "done")
    return message, ToolExecEndEvent(call_id, "work", AgentToolResult("done"), False, message)


def update(event):
    """An update of an answer."""
    return MessageUpdateEvent(event, PARTIAL)


def written(events, clock=None):
    """What is written of events, each thing with the event that it was written before."""
    recording = Recording(clock or FakeClock())
    taken = [(event, recording.take(event)) for event in events]
    return [(type(event).__name__, body) for event, body in taken if body is not None]


def test_a_run_is_written_in_the_order_in_which_it_is_told():
    """Messages, results as soon as they are there, and the end; nothing twice, nothing of calls taken up."""
    (a, a_end), (b, b_end) = result("a"), result("b")
    events = [
        AgentStartEvent(),
        MessageStartEvent(HI),
        MessageEndEvent(HI),
        MessageStartEvent(CALLS),
        MessageEndEvent(CALLS),
        ToolExecStartEvent("a", "work", FrozenDict()),
        ToolExecStartEvent("b", "work", FrozenDict()),
        b_end,
        a_end,
        MessageEndEvent(a),
        MessageEndEvent(b),
        TurnEndEvent(CALLS, (a, b)),
        MessageEndEvent(DONE),
        AgentEndEvent((), DONE),  # the last message shows that the run is over
    ]

    assert written(events) == [
        ("MessageEndEvent", MessageBody(HI)),
        ("MessageEndEvent", MessageBody(CALLS)),
        ("ToolExecEndEvent", MessageBody(b)),
        ("ToolExecEndEvent", MessageBody(a)),
        ("MessageEndEvent", MessageBody(DONE)),
    ]


@pytest.mark.parametrize(
    "last",
    [
        MessageEndEvent(HI),
        MessageEndEvent(CALLS),
        MessageEndEvent(AssistantMessage("", stop_reason="error", error_message="x")),
        result("a")[1],
        AgentStartEvent(),
    ],
)
def test_the_end_of_a_run_is_written_where_nothing_else_shows_it(last):
    """After anything but a finished answer without calls, only its end says that a run is over."""
    answer = AssistantMessage(stop_reason="aborted", error_message="aborted")

    assert written([last, AgentEndEvent((), answer)])[-1] == (
        "AgentEndEvent",
        RunEndBody("aborted"),
    )


def test_a_call_id_that_comes_again_is_another_call():
    """Models use ids again; each answer's results are written."""
    (message, end) = result("a")
    turn = [MessageEndEvent(CALLS), end, MessageEndEvent(message)]

    assert [body for _, body in written(turn * 2)] == [MessageBody(CALLS), MessageBody(message)] * 2


def test_a_result_that_ended_no_call_is_written():
    """A result that is told of without its call's end is not lost."""
    message, _ = result("a")

    assert written([MessageEndEvent(message)]) == [("MessageEndEvent", MessageBody(message))]


def test_an_answer_that_comes_quickly_is_written_once():
    """Within a second nothing is written of what comes; the answer is."""
    events = [update(StartEvent()), update(TextStartEvent(0)), update(TextDeltaEvent(0, "done"))]

    assert written([*events, MessageEndEvent(DONE)]) == [("MessageEndEvent", MessageBody(DONE))]


def test_what_came_of_an_answer_is_written_once_a_second():
    """Of an answer that takes long, each second's pieces are written, neighbours joined, each piece once."""
    clock = FakeClock()
    recording = Recording(clock)
    found = []
    start = StartEvent("m")
    for event in (
        start,
        TextStartEvent(0),
        *[TextDeltaEvent(0, letter) for letter in "abc"],
        ThinkingDeltaEvent(1, "x"),
        ThinkingDeltaEvent(2, "y"),
        ThinkingDeltaEvent(2, "z"),
        *[TextDeltaEvent(0, letter) for letter in "defgh"],
    ):
        clock.advance(0.25)
        body = recording.take(update(event))
        if body is not None:
            found.append(body)

    assert found == [
        PartialBody(None, (start, TextStartEvent(0), TextDeltaEvent(0, "abc"))),
        PartialBody(
            None,
            (
                ThinkingDeltaEvent(1, "x"),
                ThinkingDeltaEvent(2, "yz"),
                TextDeltaEvent(0, "de"),
            ),
        ),
    ]


def test_pieces_of_one_answer_are_no_part_of_the_next():
    """What was not written when an answer was whole is forgotten."""
    clock = FakeClock()
    recording = Recording(clock)
    recording.take(update(TextDeltaEvent(0, "old")))
    recording.take(MessageEndEvent(DONE))
    recording.take(update(TextDeltaEvent(0, "a")))
    clock.advance(1.0)

    assert recording.take(update(TextDeltaEvent(0, "b"))) == PartialBody(
        None, (TextDeltaEvent(0, "ab"),)
    )
