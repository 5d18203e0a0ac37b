"""What an interrupted run left, made whole."""

from __future__ import annotations

from datetime import UTC, datetime

from yiemagent.history import check
from yiemagent.messages import (
    AssistantMessage,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.sessions.bodies import MessageBody, ToolCallStartedBody
from yiemagent.sessions.entries import Entry
from yiemagent.sessions.recovery import INTERRUPTED_TEXT, closings
from yiemagent.streaming import (
    StartEvent,
    TextDeltaEvent,
    TextStartEvent,
    ToolCallDeltaEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
)

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
CALLS = AssistantMessage((ToolCall("a", "work"), ToolCall("b", "work")), stop_reason="tool_use")


def path(*bodies):
    """A path of entries."""
    return [Entry(n, n - 1 or None, NOON, body) for n, body in enumerate(bodies, 1)]


def closed(found):
    """What closes a path: the call, the beginning of the text, and whether it is an error."""
    return [
        (b.message.tool_call_id, b.message.text.split(":")[0], b.message.is_error) for b in found
    ]


def test_nothing_closes_what_is_whole():
    """A conversation without open calls needs nothing."""
    assert closings(path(MessageBody(UserMessage("hi")))) == []
    assert closings([]) == []


def test_a_call_that_had_started_has_an_unknown_outcome():
    """A started call is closed as interrupted, and one that had not started as not run; both say so to programs."""
    found = closings(path(MessageBody(CALLS), ToolCallStartedBody("b", "work")))

    assert closed(found) == [("a", "This call was not run", True), ("b", "Interrupted", True)]
    assert found[1].message.text == INTERRUPTED_TEXT
    assert [body.message.details for body in found] == [
        {"interrupted": True, "started": False},
        {"interrupted": True, "started": True},
    ]
    assert check([CALLS, *[body.message for body in found]]) == []


def test_a_result_that_is_there_stays():
    """Only calls without a result are closed."""
    there = ToolResultMessage("b", "work", "done")
    found = closings(path(MessageBody(CALLS), ToolCallStartedBody("a", "work"), MessageBody(there)))

    assert closed(found) == [("a", "Interrupted", True)]


def test_calls_may_be_left_open_to_be_run():
    """A call for which that is asked stays open, whether it had started or not."""
    started = path(MessageBody(CALLS), ToolCallStartedBody("a", "work"))

    assert closings(started, leave_open=lambda _call: True) == []
    assert closed(closings(started, leave_open=lambda call: call.id == "b")) == [
        ("a", "Interrupted", True)
    ]


def test_an_answer_that_broke_off_is_kept_as_aborted():
    """What came of it is a message with the stop reason "aborted", and its calls are closed as not run."""
    start = StartEvent("m", "p", "a", NOON)
    events = (
        start,
        TextStartEvent(0),
        TextDeltaEvent(0, "I will"),
        ToolCallStartEvent(1, "a", "work"),
        ToolCallEndEvent(1, ToolCall("a", "work", {"n": 1})),
        ToolCallStartEvent(2, "b", "work"),
        ToolCallDeltaEvent(2, '{"n"'),
    )

    answer, *results = closings(path(MessageBody(UserMessage("hi"))), events)

    assert answer.message == AssistantMessage(
        (TextContent("I will"), ToolCall("a", "work", {"n": 1}), ToolCall("b", "work", '{"n"')),
        "a",
        "p",
        "m",
        stop_reason="aborted",
        error_message="aborted: the program ended while this answer came",
        timestamp=NOON,
    )
    assert closed(results) == [
        ("a", "This call was not run", True),
        ("b", "This call was not run", True),
    ]


def test_an_answer_of_which_nothing_came_is_none():
    """Where only the beginning of an answer was there, nothing is kept of it."""
    assert closings(path(MessageBody(UserMessage("hi"))), [StartEvent("m")]) == []
