"""What a context has in tokens: what was reported, and an estimate of the rest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from yiemagent.context import AgentContext
from yiemagent.messages import (
    AssistantMessage,
    BashExecutionMessage,
    CompactionSummaryMessage,
    ImageContent,
    LlmUsage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.sessions.tokens import (
    IMAGE_TOKENS,
    MESSAGE_TOKENS,
    Meter,
    fixed_tokens,
    message_tokens,
    text_tokens,
)
from yiemagent.tool import AgentTool
from yiemagent.transcript import Transcript

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
LONG = "word " * 1400  # 2,000 tokens as they are estimated


def answer(used=None, text="a", at=NOON, **fields):
    """An answer whose provider reported so many tokens in all."""
    usage = None if used is None else LlmUsage(used - 10, 10)
    return AssistantMessage(text, usage=usage, timestamp=at, **fields)


def measured(*messages, meter=None):
    """The size of messages, and the meter that measured it."""
    meter = meter or Meter()
    return meter.size(Transcript(messages)), meter


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("a", 1), ("x" * 35, 10), ("東京", 2), ("é" * 35, 20), ("\ud800", 1), ("🗼" * 7, 8)],
)
def test_a_text_is_estimated_by_its_bytes(text, tokens):
    """Every language is: a letter has a byte or two, a character of Chinese or Japanese three."""
    assert text_tokens(text) == tokens


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (UserMessage("x" * 35), 10),
        (
            UserMessage([TextContent("x" * 35), ImageContent("QUJD", "image/png")]),
            10 + IMAGE_TOKENS,
        ),
        (AssistantMessage([ThinkingContent("x" * 35), TextContent("y" * 7)]), 12),
        (AssistantMessage([ToolCall("c", "x" * 7, {"a": 1})]), 2 + MESSAGE_TOKENS + 3),
        (AssistantMessage([ToolCall("c", "x" * 7, "{cut")]), 2 + MESSAGE_TOKENS + 2),
        (ToolResultMessage("c", "work", "x" * 35, {"big": "y" * 900}), 10),
    ],
)
def test_a_message_is_estimated_by_its_blocks(message, tokens):
    """Text, thinking and arguments by their length, an image as a large one; details are not sent."""
    assert message_tokens(message) == MESSAGE_TOKENS + tokens


def test_what_is_not_sent_has_no_tokens():
    """Answers that failed, and messages that are kept from the model, take no room."""
    failed = AssistantMessage(LONG, stop_reason="error")
    hidden = BashExecutionMessage("ls", LONG, exclude_from_context=True)

    assert (message_tokens(failed), message_tokens(hidden)) == (0, 0)


def test_instructions_and_tools_take_room():
    """The system prompt, and each tool's name, description and schema."""
    tool = AgentTool("work", description="x" * 70, execute=lambda *_: "", input_schema={})

    assert fixed_tokens("x" * 35, {}) == 10
    assert 25 < fixed_tokens("", {"work": tool}) < 40


def test_an_estimate_counts_where_nothing_was_reported():
    """Without any usage all messages are estimated."""
    assert measured(UserMessage(LONG), answer())[0] == 2 * MESSAGE_TOKENS + 2001


def test_what_was_reported_counts_with_what_follows():
    """The last reported usage stands for all up to its answer; what came after it is estimated."""
    size, _ = measured(UserMessage("hi"), answer(900), answer(1_000), UserMessage("x" * 35))

    assert size == 1_000 + MESSAGE_TOKENS + 10


@pytest.mark.parametrize("stop", ["error", "aborted"])
def test_a_failed_answer_reports_nothing(stop):
    """What an answer that failed had used says nothing of the context."""
    size, _ = measured(answer(900), answer(9_999, stop_reason=stop), UserMessage("x" * 35))

    assert size == 900 + MESSAGE_TOKENS + 10


def test_an_absurd_report_does_not_count():
    """A report far below the estimate, such as of what was not cached only, is none."""
    size, _ = measured(UserMessage(LONG), answer(15))
    behind, _ = measured(UserMessage("hi"), answer(100), UserMessage(LONG), answer(15))

    assert size == 2 * MESSAGE_TOKENS + 2001
    assert behind == 100 + size


def test_an_answer_to_a_larger_context_reports_nothing():
    """What was answered before the summary at the head was answered to what the summary stands for."""
    summary = CompactionSummaryMessage("s", timestamp=NOON)
    before, after = NOON - timedelta(seconds=1), NOON + timedelta(seconds=1)

    assert measured(summary, answer(90_000, at=before))[0] < 100
    assert measured(summary, answer(90_000, at=after))[0] == 90_000


def test_a_growing_context_is_walked_once():
    """Each message is estimated once, however often the context is measured."""
    seen = []

    class Watched(UserMessage):
        __slots__ = ()

        def to_llm(self):
            seen.append(self.text)
            return self

    history, meter = Transcript(), Meter()
    for n in range(20):
        history = history.append(Watched(str(n)))
        meter.size(history)
        meter.size(Transcript(history))

    assert seen == [str(n) for n in range(20)]


def test_another_context_is_estimated_anew():
    """Where somebody replaced the context, no report of the old one counts."""
    _, meter = measured(UserMessage("hi"), answer(50_000))

    assert measured(UserMessage("other"), answer(50_000), meter=meter)[0] < 100
    assert measured(UserMessage("x"), meter=meter)[0] < 100


def test_a_context_that_nobody_answered_to_is_estimated():
    """After a compaction the reports in what is kept count no more, those that follow do."""
    meter = Meter()
    kept = Transcript([CompactionSummaryMessage("s", timestamp=NOON), answer(50_000)])
    meter.begin_anew(kept)

    assert meter.size(kept) < 100
    assert meter.size(kept.append(answer(700))) == 700


def test_a_model_that_counts_more_scales_the_estimate():
    """Where a model reports more tokens than were estimated, what follows is counted in its way."""
    size, meter = measured(UserMessage(LONG * 2), answer(8_500), UserMessage("x" * 3_500))

    assert 1.9 < meter.scale < 2.1
    assert 10_300 < size < 10_700
    assert 9_500 < meter.estimate < 10_500


@pytest.mark.parametrize(("used", "scale"), [(100_000, 4.0), (1_500, 1.0)])
def test_the_scale_has_bounds(used, scale):
    """No report makes it more than four, or less than one."""
    _, meter = measured(UserMessage(LONG), answer(used))

    assert meter.scale == scale


def test_what_is_small_says_nothing_of_a_models_way_to_count():
    """What a provider adds by itself would be most of it."""
    _, meter = measured(UserMessage("hi"), answer(600))

    assert meter.scale == 1.0


def test_what_is_fixed_is_measured_once():
    """The same instructions and tools are not measured again; others are."""
    meter = Meter()
    context = AgentContext("x" * 35)
    for shown in (context, AgentContext("x" * 35, (), context.tools), AgentContext("x" * 70)):
        meter.measure_fixed(shown)

    assert meter.fixed == 20
    assert meter.size(Transcript()) == 20
