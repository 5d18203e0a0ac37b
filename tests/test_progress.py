"""What a run owes: from any point, the missing ends close everything that was opened."""

from __future__ import annotations

import pytest

from tests.support.loops import run, tool
from yiemagent.events import AgentEndEvent, MessageUpdateEvent, stamp
from yiemagent.history import check
from yiemagent.loop import made_answer
from yiemagent.messages import AssistantMessage, UserMessage
from yiemagent.progress import Progress
from yiemagent.streaming import (
    DoneEvent,
    StartEvent,
    TextDeltaEvent,
    TextStartEvent,
    ToolCallDeltaEvent,
    ToolCallStartEvent,
)
from yiemagent.testing import ScriptedModel, call, calls, check_event_order


def updating(_id, _args, _signal, update):
    update("half")
    return "done"


def streamed(_context, _options, _signal):
    """A model that streams a text and two calls without ids."""
    yield StartEvent("m")
    yield TextStartEvent(0)
    yield TextDeltaEvent(0, "I will")
    for index in (1, 2):
        yield ToolCallStartEvent(index, "", "work")
        yield ToolCallDeltaEvent(index, '{"a": ')
    yield DoneEvent(calls(call("work"), call("work"), text="I will"))


def model():
    """A model whose first answer is streamed and whose second ends the run."""
    answers = iter([streamed, ScriptedModel(["fine"])])

    def stream(context, options, signal):
        return next(answers)(context, options, signal)

    return stream


PROMPTS = (UserMessage("one"), UserMessage("two"))
WHOLE = run(model(), tool(function=updating), prompts=PROMPTS).events


def settled(events, prompts, answer):
    """Give the events of a run that was cut off behind `events`, with what it owes."""
    progress = Progress(prompts)
    for event in events:
        progress.take(event)
    owed = []
    for event in progress.missing_ends(answer):
        progress.take(event)
        owed.append(event)
    told = [*events, *owed, AgentEndEvent(tuple(progress.new), answer)]
    return [stamp(event, number, "run", 0.0) for number, event in enumerate(told, 1)], progress


@pytest.mark.parametrize("reason", ["aborted", "error"])
@pytest.mark.parametrize("cut", range(len(WHOLE)), ids=lambda cut: f"after {cut}")
def test_a_run_cut_off_anywhere_is_closed(cut, reason):
    """Behind any event of a run, what is owed completes the grammar and the pairing."""
    prompts = PROMPTS if WHOLE else ()
    events, progress = settled(WHOLE[:cut], prompts, made_answer(reason, "cut"))

    check_event_order(events)
    assert [message.text for message in progress.new[:2]] == ["one", "two"]
    left = [text for text in check(progress.new) if "is left out" not in text]
    assert [text for text in left if "answers no call" not in text] == []


def test_a_whole_run_owes_nothing():
    """A run that ended by itself has nothing missing."""
    progress = Progress(PROMPTS)
    for event in WHOLE[:-1]:
        progress.take(event)

    assert list(progress.missing_ends(made_answer("error", "x"))) == []


def test_an_answer_cut_off_is_kept_with_what_came():
    """It is marked with how the run ended; calls under way have ids of their own and their texts."""
    cut = max(
        i
        for i, event in enumerate(WHOLE)
        if isinstance(event, MessageUpdateEvent) and event.partial.tool_calls
    )
    _, progress = settled(WHOLE[: cut + 1], PROMPTS, made_answer("aborted", "aborted: enough"))
    answer = progress.last_answer

    assert (answer.text, answer.stop_reason) == ("I will", "aborted")
    assert answer.error_message == "aborted: enough"
    assert [one.arguments for one in answer.tool_calls] == ['{"a": ', '{"a": ']
    assert len({one.id for one in answer.tool_calls} - {""}) == 2


def test_an_answer_that_can_not_be_put_together_is_kept_without_it():
    """Pieces that break what came so far leave the message as it began."""
    broken = run(
        lambda _context, _options, _signal: iter(
            [StartEvent("m"), TextStartEvent(0), TextDeltaEvent(0, None)]
        )
    )

    assert broken.messages[-1] == AssistantMessage(
        model="m",
        stop_reason="error",
        error_message=broken.answer.error_message,
        timestamp=broken.messages[-1].timestamp,
    )


def test_a_finished_answer_does_not_make_a_cut_off_one_good():
    """An open message of a run whose answer says nothing about it is an error all the same."""
    _, progress = settled(WHOLE[:8], PROMPTS, AssistantMessage("fine"))

    assert progress.new[-1].error_message == "the run ended before the answer did"


def test_nothing_fits_behind_the_end():
    """After AgentEnd no event is taken, and never an update of a call that is not under way."""
    progress = Progress(())
    update = next(e for e in WHOLE if type(e).__name__ == "ToolExecUpdateEvent")

    assert progress.take(WHOLE[0])
    assert not progress.take(update)
    assert progress.take(AgentEndEvent((), AssistantMessage("x")))
    assert not progress.take(WHOLE[0])
