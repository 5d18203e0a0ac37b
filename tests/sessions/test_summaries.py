"""What a model is asked for a summary, and what becomes of its answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.abort import AbortSignal
from yiemagent.errors import CompactionError
from yiemagent.events import RetryScheduledEvent
from yiemagent.llm import StreamOptions
from yiemagent.messages import (
    AssistantMessage,
    BashExecutionMessage,
    CustomMessage,
    ImageContent,
    LlmUsage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.sessions.clipping import size_bytes
from yiemagent.sessions.summaries import Summariser, Summary, SummaryPrompts, laid_out, parts
from yiemagent.sessions.tokens import BYTES_PER_TOKEN
from yiemagent.streaming import DoneEvent, ErrorEvent, StreamNoticeEvent
from yiemagent.testing import ScriptedModel, call, calls, failure

HI, DONE = UserMessage("hi"), AssistantMessage("done")
PROMPTS = SummaryPrompts(
    system="SYSTEM", first="FIRST", update="UPDATE", turn="TURN", branch="BRANCH"
)


def summariser(model, *, window=16_000, max_tokens=100, emit=list, **fields):
    """Somebody who summarises with a model."""
    options = StreamOptions(max_tokens=max_tokens)
    fields = {"prompts": PROMPTS, **fields}
    return Summariser(stream_fn=model, options=options, window=window, emit=emit, **fields)


def asked(model):
    """What the model was told in each request."""
    return [request.messages[0].text for request in model.requests]


# -- laying out --


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (HI, "[user]\nhi"),
        (AssistantMessage([ThinkingContent("hm"), TextContent("yes")]), "[assistant]\nyes"),
        (
            AssistantMessage([TextContent("I look."), ToolCall("c", "read", {"path": "é"})]),
            '[assistant]\nI look.\n[calls read: {"path": "é"}]',
        ),
        (AssistantMessage([ToolCall("c", "read", "{cut")]), "[assistant]\n[calls read: {cut]"),
        (ToolResultMessage("c", "read", "text"), "[result of read]\ntext"),
        (ToolResultMessage("c", "read", "no", is_error=True), "[result of read failed]\nno"),
        (UserMessage([ImageContent("QUJD", "image/png")]), "[user]\n[an image]"),
        (CustomMessage("note", "look"), "[user]\nlook"),
        (CustomMessage("note"), ""),
        (BashExecutionMessage("ls", "x", exclude_from_context=True), ""),
        (AssistantMessage("half", stop_reason="aborted"), ""),
        (AssistantMessage([ThinkingContent("hm")]), ""),
        (UserMessage("a</conversation>b"), "[user]\na< /conversation>b"),
    ],
)
def test_a_message_is_laid_out_as_text(message, text):
    """Each says who it is of, calls and images in words; what the model never saw or only thought is left out."""
    assert laid_out(message) == text


def test_of_a_long_result_the_ends_are_shown():
    """A summary needs no more of it."""
    text = laid_out(ToolResultMessage("c", "read", "b" + "x" * 9_000 + "e"))

    assert size_bytes(text) < 2_100
    assert text.startswith("[result of read]\nb")
    assert text.endswith("e")
    assert "characters …]" in text


@given(st.lists(st.builds(UserMessage, st.text(max_size=900)), max_size=12), st.integers(200, 500))
def test_parts_hold_every_message_in_order_and_have_their_size(messages, tokens):
    """Nothing is left out but the middle of a message that is larger than a part."""
    made = list(parts(messages, lambda: tokens))

    assert all(size_bytes(part) <= tokens * BYTES_PER_TOKEN for part in made)
    if all(size_bytes(message.text) < 500 for message in messages):
        assert "\n\n".join(made) == "\n\n".join(filter(None, map(laid_out, messages)))


# -- asking --


def test_a_first_summary_is_asked_for_with_the_conversation():
    """The conversation stands between tags, what is wanted behind it; the answer's text is the summary."""
    model = ScriptedModel([" all of it\n"])
    done = summariser(model).conversation(None, [HI, DONE], (), AbortSignal())

    assert done == Summary("all of it", LlmUsage(10, 5))
    assert asked(model) == [
        "<conversation>\n[user]\nhi\n\n[assistant]\ndone\n</conversation>\n\nFIRST"
    ]
    [request], [options] = model.requests, model.options
    assert (request.system_prompt, dict(request.tools)) == ("SYSTEM", {})
    assert options.max_tokens == 100


def test_an_earlier_summary_is_brought_up_to_date():
    """It is handed over with what came since, and not summarised again."""
    model = ScriptedModel(["new"])
    summariser(model).conversation("the </earlier-summary> old", [HI], (), AbortSignal())

    [text] = asked(model)
    assert text == (
        "<earlier-summary>\nthe < /earlier-summary> old\n</earlier-summary>\n\n"
        "<conversation>\n[user]\nhi\n</conversation>\n\nUPDATE"
    )


def test_the_beginning_of_a_turn_is_summarised_by_itself():
    """Whole turns and the beginning of the one that is split are asked for one after the other, and put together."""
    model = ScriptedModel(["before", "now"])
    done = summariser(model).conversation(None, [HI, DONE], [HI], AbortSignal())

    assert done == Summary("before\n\n# The turn under way\n\nnow", LlmUsage(20, 10))
    assert [text.rpartition("\n")[2] for text in asked(model)] == ["FIRST", "TURN"]
    assert "earlier-summary" not in asked(model)[1]


def test_a_turn_alone_leaves_the_earlier_summary_as_it_is():
    """Where only the beginning of a turn is new, nothing else is asked for."""
    model = ScriptedModel(["now", "now"])
    alone = summariser(model).conversation(None, (), [HI], AbortSignal())
    behind = summariser(model).conversation("old", (), [HI], AbortSignal())

    assert alone.text == "# The turn under way\n\nnow"
    assert behind.text == "old\n\n# The turn under way\n\nnow"


def test_a_branch_is_summarised_with_its_own_words():
    """What is asked for is what was tried on it."""
    model = ScriptedModel(["tried"])
    done = summariser(model).branch([HI, DONE], AbortSignal())

    assert done.text == "tried"
    assert asked(model)[0].endswith("BRANCH")


def test_what_the_user_adds_is_in_every_request():
    """Instructions hold for turns that are split, too."""
    model = ScriptedModel(["a", "b"])
    summariser(model, instructions="Keep all prices.").conversation(None, [HI], [HI], AbortSignal())

    assert [text.endswith("\n\nThe user adds: Keep all prices.") for text in asked(model)] == [
        True,
        True,
    ]


def test_a_conversation_larger_than_the_window_comes_in_parts():
    """Each request fits into the window, and the summary of one part is brought up to date with the next."""
    model = ScriptedModel([f"summary {n}" for n in range(1, 9)])
    history = [UserMessage(f"{n} " + "x" * 3_000) for n in range(6)]
    done = summariser(model, window=1_600).conversation(None, history, (), AbortSignal())

    texts = asked(model)
    assert done.text == f"summary {len(texts)}"
    assert 3 <= len(texts) <= 6
    assert all(size_bytes(text) / BYTES_PER_TOKEN + 100 < 1_600 for text in texts)
    assert [text.rpartition("\n")[2] for text in texts] == ["FIRST"] + ["UPDATE"] * (len(texts) - 1)
    assert all(f"[user]\n{n} x" in "".join(texts) for n in range(6))
    assert "summary 1" in texts[1]


def test_a_summary_has_no_more_than_it_was_allowed():
    """A model that heeds no limit can't fill the window with its summary."""
    done = summariser(ScriptedModel(["word " * 9_000])).conversation(None, [HI], (), AbortSignal())

    assert size_bytes(done.text) <= 100 * BYTES_PER_TOKEN * 1.5


def test_a_summary_without_a_limit_stays_as_it_is():
    """Where no limit is asked for, none is made up."""
    long = "word " * 9_000
    asking = summariser(ScriptedModel([long]), max_tokens=None)

    assert asking.branch([HI], AbortSignal()).text == long.strip()


def test_usage_that_is_not_told_is_none():
    """What nobody told is not made up."""
    silent = AssistantMessage("text")
    model = ScriptedModel([silent, silent, silent, "told", silent, "told"])
    asking = summariser(model)

    assert asking.conversation(None, [HI], (), AbortSignal()).usage is None
    assert asking.conversation(None, [HI], [HI], AbortSignal()).usage is None
    assert asking.conversation(None, [HI], [HI], AbortSignal()).usage == LlmUsage(10, 5)


NOTICE = StreamNoticeEvent("retry_scheduled", "waiting")


def test_notices_of_the_request_are_told():
    """A retry of the summary's request is an event as any other."""
    told = []
    model = ScriptedModel([[NOTICE, DoneEvent(AssistantMessage("text"))]])
    summariser(model, emit=told.append).branch([HI], AbortSignal())

    assert [type(event) for event in told] == [RetryScheduledEvent]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (failure("no credit"), "no credit"),
        (
            [ErrorEvent(AssistantMessage("x", stop_reason="error"), ValueError("deep"))],
            "ValueError: deep",
        ),
        ([ErrorEvent(AssistantMessage("x"))], "it failed"),
        (ValueError("burst"), "ValueError: burst"),
        ([], "the stream ended without an answer"),
        (AssistantMessage("  "), "the model gave no text"),
        (calls(call("work")), "the model gave no text"),
    ],
)
def test_a_summary_that_fails_is_a_clear_error(answer, words):
    """The text says what went wrong, whichever way it did."""
    with pytest.raises(CompactionError, match=f"the summary failed: {words}"):
        summariser(ScriptedModel([answer])).branch([HI], AbortSignal())


def test_an_abort_ends_the_asking():
    """A summary that comes after the abort is none, and no further part is asked for."""
    signal = AbortSignal()

    def late(_context, given):
        given.abort()
        return AssistantMessage("text")

    model = ScriptedModel([late], default="more")
    with pytest.raises(CompactionError, match="aborted"):
        summariser(model).conversation(None, [HI], [HI], signal)

    assert len(model.requests) == 1


def test_nothing_to_tell_is_asked_of_nobody():
    """Messages that say nothing give an empty summary."""
    model = ScriptedModel()
    failed = AssistantMessage("half", stop_reason="error")

    assert summariser(model).conversation(None, [failed], (), AbortSignal()) == Summary("")
    assert model.requests == []


def test_the_words_come_with_the_library():
    """Each prompt says something, and none is the same as another."""
    words = SummaryPrompts()
    texts = {words.system, words.first, words.update, words.turn, words.branch, words.turn_heading}

    assert len(texts) == 6
    assert all(texts)
