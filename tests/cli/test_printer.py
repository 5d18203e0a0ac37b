"""What a person sees of a run: the fold of its events over stdout and stderr."""

from __future__ import annotations

import io

import pytest

from yiemagent.cli.printer import EventPrinter
from yiemagent.cli.terminal import Terminal
from yiemagent.events import (
    AgentEndEvent,
    AgentStartEvent,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    RetryScheduledEvent,
    ToolExecEndEvent,
    ToolExecStartEvent,
)
from yiemagent.messages import (
    AssistantMessage,
    FrozenDict,
    ImageContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.streaming import (
    PartialMessage,
    TextDeltaEvent,
    TextStartEvent,
    ThinkingDeltaEvent,
)
from yiemagent.tool import AgentToolResult


class Shown:
    """A printer and what it wrote."""

    def __init__(self, **options):
        self._out, self._err = io.StringIO(), io.StringIO()
        self._printer = EventPrinter(Terminal(self._out, self._err), **options)

    def __call__(self, *events):
        for event in events:
            self._printer(event)
        return self

    @property
    def out(self):
        return self._out.getvalue()

    @property
    def err(self):
        return self._err.getvalue()


def update(stream_event):
    return MessageUpdateEvent(stream_event, PartialMessage.first())


def spoken(*deltas, whole=None):
    """The events of an assistant message that came in pieces."""
    message = AssistantMessage("".join(deltas) if whole is None else whole)
    return [
        MessageStartEvent(AssistantMessage()),
        update(TextStartEvent(0)),
        *(update(TextDeltaEvent(0, delta)) for delta in deltas),
        MessageEndEvent(message),
    ], message


def called(name="get_time", arguments=None, result="noon", *, is_error=False):
    """The events of one tool call."""
    given = result if isinstance(result, AgentToolResult) else AgentToolResult(result)
    arguments = FrozenDict(arguments or {}) if not isinstance(arguments, str) else arguments
    message = ToolResultMessage("c1", name, given.content, is_error=is_error)
    return (
        ToolExecStartEvent("c1", name, arguments),
        ToolExecEndEvent("c1", name, given, is_error, message),
    )


def test_words_are_written_as_they_come():
    """Each piece of the model's words is on stdout before the message is whole, and the line ends with it."""
    events, message = spoken("It is ", "noon.")
    shown = Shown()(AgentStartEvent(), *events[:3])
    early = shown.out
    shown(*events[3:], AgentEndEvent((message,), message))

    assert early == "It is "
    assert shown.out == "It is noon.\n"
    assert shown.err == ""


def test_without_streaming_a_message_comes_whole():
    """With `stream=False` nothing is written before the message is whole."""
    events, message = spoken("It is ", "noon.")
    shown = Shown(stream=False)(*events[:-1])
    early = shown.out
    shown(events[-1], AgentEndEvent((message,), message))

    assert early == ""
    assert shown.out == "It is noon.\n"


def test_a_message_that_did_not_stream_is_written_whole():
    """A model that gives its answer in one piece is shown all the same."""
    events, message = spoken(whole="It is noon.")
    shown = Shown()(*events, AgentEndEvent((message,), message))

    assert shown.out == "It is noon.\n"


def test_words_that_were_taken_back_are_followed_by_those_that_hold():
    """Where the whole message is not what was streamed, it follows on a line of its own."""
    events, message = spoken("It is fi", whole="It is noon.")
    shown = Shown()(*events, AgentEndEvent((message,), message))

    assert shown.out == "It is fi\nIt is noon.\n"


def test_quiet_keeps_stdout_free():
    """With `quiet` only stderr is written to."""
    events, message = spoken("It is noon.")
    shown = Shown(quiet=True)(*called(), *events, AgentEndEvent((message,), message))

    assert shown.out == ""
    assert shown.err != ""


def test_a_tool_call_is_two_lines_on_stderr():
    """A call shows the tool's name with its arguments, and then its result, one line each."""
    shown = Shown()(*called(arguments={"city": "São Paulo"}, result="noon\n or so"))

    assert shown.err == '→ get_time {"city": "São Paulo"}\n← get_time: noon or so\n'
    assert shown.out == ""


def test_a_failed_tool_call_is_marked():
    """An error result has another mark than a good one."""
    shown = Shown()(*called(result="unknown city 'Tokio'", is_error=True))

    assert shown.err.splitlines()[1] == "✗ get_time: unknown city 'Tokio'"


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (AgentToolResult(), "← get_time: (nothing)"),
        (AgentToolResult(ImageContent("aGk=", "image/png")), "← get_time: [image]"),
        (
            AgentToolResult((TextContent("a map"), ImageContent("aGk=", "image/png"))),
            "← get_time: a map [image]",
        ),
        (AgentToolResult("x" * 1000), f"← get_time: {'x' * 287}…"),
    ],
)
def test_every_result_is_one_line(result, line):
    """A result of nothing, of images, or of much text is one line, too."""
    shown = Shown()(*called(result=result))

    assert shown.err.splitlines()[1] == line


def test_arguments_that_are_no_json_are_shown_as_they_are():
    """What the model wrote in place of an object stands in the line as it is."""
    shown = Shown()(*called(arguments='{"city": '))

    assert shown.err.splitlines()[0] == '→ get_time {"city":'


def test_notices_go_to_stderr():
    """A retry is told of in words."""
    shown = Shown()(RetryScheduledEvent("asking again in 0.5 s: HTTP 503"))

    assert shown.err == "note: asking again in 0.5 s: HTTP 503\n"


def test_thoughts_and_questions_are_not_shown():
    """Neither the user's message nor the model's thinking is written anywhere."""
    message = AssistantMessage((ThinkingContent("hm"), TextContent("Hi.")))
    shown = Shown()(
        MessageStartEvent(UserMessage("Hello")),
        MessageEndEvent(UserMessage("Hello")),
        MessageStartEvent(AssistantMessage()),
        update(ThinkingDeltaEvent(0, "hm")),
        MessageEndEvent(message),
        AgentEndEvent((message,), message),
    )

    assert shown.out == "Hi.\n"
    assert shown.err == ""


def test_an_answer_that_no_model_gave_is_written_at_the_end():
    """The answer of a run that its tools ended is made by the library and shown like any other."""
    answer = AssistantMessage("Tool execution completed.", stop_reason="tool_use_terminated")
    call = AssistantMessage((ToolCall("c1", "get_time"),), stop_reason="tool_use")
    shown = Shown()(
        MessageStartEvent(AssistantMessage()), MessageEndEvent(call), AgentEndEvent((call,), answer)
    )

    assert shown.out == "Tool execution completed.\n"


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (
            AssistantMessage(stop_reason="error", error_message="HTTP 500: no\nluck"),
            "error: HTTP 500: no luck",
        ),
        (AssistantMessage(stop_reason="aborted"), "error: aborted"),
        (
            AssistantMessage("It is", stop_reason="length"),
            "note: the answer was cut at the model's output limit",
        ),
        (
            AssistantMessage("x", stop_reason="tool_use_terminated", error_message="one failed"),
            "note: one failed",
        ),
    ],
)
def test_what_is_wrong_with_the_answer_is_one_line(answer, line):
    """A failed, aborted, cut or half-failed answer says so on stderr."""
    shown = Shown()(
        MessageStartEvent(AssistantMessage()),
        MessageEndEvent(answer),
        AgentEndEvent((answer,), answer),
    )

    assert shown.err == f"{line}\n"


def test_what_was_received_before_a_failure_is_shown():
    """Words that came before the connection broke stay on stdout, on a line of their own."""
    message = AssistantMessage("It is", stop_reason="error", error_message="broken")
    shown = Shown()(
        MessageStartEvent(AssistantMessage()),
        update(TextDeltaEvent(0, "It is")),
        MessageEndEvent(message),
        AgentEndEvent((message,), message),
    )

    assert shown.out == "It is\n"
    assert shown.err == "error: broken\n"


def test_each_message_is_a_line_of_its_own():
    """Words before a tool call and the answer after it don't run together."""
    first, one = spoken("Let me look.")
    second, two = spoken("It is noon.")
    shown = Shown()(*first, *called(), *second, AgentEndEvent((one, two), two))

    assert shown.out == "Let me look.\nIt is noon.\n"
