"""Calls that wait for a decision: none of the answer's calls is run, and the run ends with a whole history."""

from __future__ import annotations

import pytest

from tests.support.loops import parallel, run, tool
from yiemagent.abort import AbortSignal
from yiemagent.approval import allow, ask_later, decided, deny
from yiemagent.errors import ConfigurationError
from yiemagent.messages import AssistantMessage, ToolCall, ToolResultMessage, UserMessage
from yiemagent.pausing import (
    BESIDE_TEXT,
    PAUSED_DETAILS,
    PAUSED_TEXT,
    paused_answer,
    paused_calls,
)
from yiemagent.pipeline import ABORTED_TEXT
from yiemagent.testing import ScriptedModel, call, calls

HI = UserMessage("hi")
TWO = AssistantMessage((ToolCall("a", "one"), ToolCall("b", "two")))


def paused(call_id, name, text=PAUSED_TEXT):
    return ToolResultMessage(call_id, name, text, PAUSED_DETAILS, is_error=True)


# -- what waits --


@pytest.mark.parametrize(
    "messages, ids",
    [
        ([], ""),
        ([HI], ""),
        ([HI, TWO], ""),
        ([HI, TWO, paused("a", "one"), paused("b", "two")], "ab"),
        ([HI, TWO, paused("a", "one", BESIDE_TEXT), paused("b", "two")], "b"),
        ([HI, TWO, ToolResultMessage("a", "one", PAUSED_TEXT), paused("b", "two")], "b"),
        ([HI, TWO, paused("a", "one"), paused("b", "two"), HI], ""),
        ([HI, TWO, paused("a", "one"), paused("b", "two"), AssistantMessage("fine")], ""),
    ],
)
def test_what_waits_is_at_the_end_of_a_conversation(messages, ids):
    """Calls wait as long as nothing came behind their results, in call order."""
    assert "".join(one.id for one in paused_calls(messages)) == ids


def test_the_answer_names_what_waits():
    """Each tool once, and no calls beside them."""
    results = [paused("a", "one"), paused("b", "two", BESIDE_TEXT)]
    answer = paused_answer(TWO, results)

    assert (answer.text, answer.stop_reason) == (
        "Waiting for approval: one.",
        "tool_use_terminated",
    )


# -- in a run --


@pytest.mark.parametrize("mode", ["parallel", "sequential", "barrier"])
def test_a_paused_call_ends_the_run_and_nothing_runs(mode):
    """No call of the answer is run, each has its result, refused ones their own, and the model is not asked again."""
    ran = []
    tools = [parallel(name, lambda *_: ran.append(1)) for name in ("free", "asks", "denied")]
    model = ScriptedModel([calls(*map(call, ["free", "asks", "denied", "none"]))])
    rules = deny("denied", reason="No.") | ask_later("asks") | allow()
    done = run(model, *tools, before_tool_call=rules, tool_execution=mode)

    assert ran == []
    assert done.results[:3] == [(BESIDE_TEXT, True), (PAUSED_TEXT, True), ("No.", True)]
    assert done.results[3][0].startswith("Tool 'none' not found")
    assert (done.answer.text, done.answer.stop_reason) == (
        "Waiting for approval: asks.",
        "tool_use_terminated",
    )
    assert [one.name for one in paused_calls(done.messages)] == ["asks"]
    assert len(model.requests) == 1


def test_a_hook_may_pause_with_a_dict():
    """`{"pause": True}` pauses; a block goes before it."""
    done = run([call("work")], tool("work"), before_tool_call=lambda *_: {"pause": True})
    blocked = run(
        [call("work"), "fine"],
        tool("work"),
        before_tool_call=lambda *_: {"pause": True, "block": True},
    )

    assert done.results == [(PAUSED_TEXT, True)]
    assert blocked.answer.text == "fine"


def test_a_paused_run_leaves_the_queues_alone():
    """Messages that wait stay queued, and `should_stop_after_turn` is not asked."""
    asked = []
    done = run(
        [call("work")],
        tool("work"),
        before_tool_call=ask_later(),
        get_follow_up_messages=lambda: asked.append("follow-up"),
        should_stop_after_turn=lambda *_: asked.append("stop"),
    )

    assert done.answer.text == "Waiting for approval: work."
    assert asked == []


def test_an_abort_while_pausing_aborts_every_call():
    """Where the run is aborted while its calls are prepared, none waits."""
    signal = AbortSignal()

    def hook(shown, _signal):
        if shown.tool_call.name == "asks":
            return {"pause": True}
        signal.abort()
        return None

    answer = calls(call("asks"), call("aborts"))
    done = run([answer], tool("asks"), tool("aborts"), before_tool_call=hook, signal=signal)

    assert done.results == [(ABORTED_TEXT, True), (ABORTED_TEXT, True)]
    assert done.answer.stop_reason == "aborted"
    assert paused_calls(done.messages) == ()


# -- deciding by id --


def test_decisions_are_about_single_calls():
    """True runs a call, False and a reason block it, and other calls are a matter of the next rule."""
    script = [
        calls(*(call("work", call_id=call_id) for call_id in "abcd")),
        "fine",
    ]
    rules = decided({"a": True, "b": False, "c": "Not today."}) | deny(reason="Who is that?")
    done = run(script, tool("work"), before_tool_call=rules)

    assert [text for text, _ in done.results] == [
        "work done",
        "The user did not allow this call.",
        "Not today.",
        "Who is that?",
    ]


def test_a_decision_that_is_none_is_refused():
    """A decision is True, False or a reason."""
    with pytest.raises(ConfigurationError, match="must be True, False or a reason"):
        decided({"a": None})
