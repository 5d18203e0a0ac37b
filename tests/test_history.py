"""Histories: checked and repaired so that every call has exactly one result."""

from __future__ import annotations

import re

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.history import NO_RESULT, Repairer, check, clean_text, repair
from yiemagent.messages import (
    AssistantMessage,
    BashExecutionMessage,
    CustomMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.transcript import Transcript


def answer(*ids, text="", stop="tool_use"):
    calls = [ToolCall(call_id, "add", {"k": call_id}) for call_id in ids]
    return AssistantMessage([TextContent(text), *calls] if text else calls, stop_reason=stop)


def result(call_id, text="3"):
    return ToolResultMessage(call_id, "add", text)


def shape(messages):
    """Roles with the ids of calls and results, for reading."""
    return [
        (m.role, *[c.id for c in m.tool_calls])
        if isinstance(m, AssistantMessage)
        else (m.role, m.tool_call_id)
        if isinstance(m, ToolResultMessage)
        else (m.role,)
        for m in messages
    ]


SOUND = [
    UserMessage("hi"),
    answer("a", "b"),
    result("a"),
    result("b"),
    answer(text="5", stop="stop"),
]


def test_a_sound_history_comes_back_as_the_same_object():
    """Nothing wrong: the same list, and no problem."""
    assert repair(SOUND) is SOUND
    assert check(SOUND) == []


def test_an_empty_history_is_sound():
    """No messages are no problem."""
    empty = Transcript()

    assert repair(empty) is empty
    assert Repairer().repair(empty) is empty
    assert check([]) == []


def test_a_call_without_result_is_answered():
    """The missing result is an error that says so, with the answer's time, in its place."""
    asked = answer("a", "b")
    history = [UserMessage("hi"), asked, result("b"), UserMessage("go on")]
    repaired = repair(history)

    assert shape(repaired) == [
        ("user",),
        ("assistant", "a", "b"),
        ("toolResult", "a"),
        ("toolResult", "b"),
        ("user",),
    ]
    assert repaired[2].text == NO_RESULT
    assert repaired[2].is_error
    assert repaired[2].timestamp == asked.timestamp
    assert check(history) == [
        "the result for 'b' is out of its place",
        "the call 'a' has no result",
    ]


def test_results_come_directly_behind_their_answer_in_call_order():
    """Results in the order of completion, behind a steering message, move to their place."""
    history = [answer("a", "b"), UserMessage("quick"), result("b", "2"), result("a", "1")]

    assert shape(repair(history)) == [
        ("assistant", "a", "b"),
        ("toolResult", "a"),
        ("toolResult", "b"),
        ("user",),
    ]
    assert [m.text for m in repair(history)[1:3]] == ["1", "2"]


def test_results_without_a_call_are_dropped():
    """A result at the beginning, a second one for a call, and one of an unknown call are left out."""
    history = [result("x"), answer("a"), result("a"), result("a"), result("y"), UserMessage("hi")]

    assert shape(repair(history)) == [("assistant", "a"), ("toolResult", "a"), ("user",)]
    assert len(check(history)) == 3


@pytest.mark.parametrize("stop", ["error", "aborted"])
def test_failed_answers_and_their_results_are_left_out(stop):
    """What a failed answer called is not sent, and what is said after it stays."""
    history = [UserMessage("a"), answer("a", stop=stop), result("a"), UserMessage("b")]

    assert shape(repair(history)) == [("user",), ("user",)]


def test_a_result_behind_a_later_answer_is_too_late():
    """A call has its result before the next answer; what comes later answers nothing."""
    history = [answer("a"), answer(text="so?", stop="stop"), result("a")]

    assert shape(repair(history)) == [("assistant", "a"), ("toolResult", "a"), ("assistant",)]
    assert repair(history)[1].text == NO_RESULT


def test_empty_and_doubled_ids_become_distinct_with_their_results():
    """Results follow their calls' new ids, in call order where ids were the same; other messages' ids stay."""
    history = [
        answer("", "", "dup", "dup", "dup_2"),
        result("", "1"),
        result("", "2"),
        result("dup", "3"),
        result("dup", "4"),
        result("dup_2", "5"),
        answer("dup"),
        result("dup", "6"),
    ]
    repaired = repair(history)
    ids = [call.id for call in repaired[0].tool_calls]

    assert len(set(ids)) == 5
    assert "" not in ids
    assert ids[2] == "dup"
    assert ids[4] == "dup_2"
    assert [m.tool_call_id for m in repaired[1:6]] == ids
    assert [m.text for m in repaired[1:6]] == ["1", "2", "3", "4", "5"]
    assert repaired[6:] == history[6:]
    assert [call.arguments for call in repaired[0].tool_calls] == [
        call.arguments for call in history[0].tool_calls
    ]


def test_the_same_history_is_repaired_to_equal_messages():
    """Two repairs of one history give equal messages, so that a prompt cache holds."""
    history = [answer("", "dup", "dup"), result("dup")]

    assert list(repair(history)) == list(repair(history))


def test_application_kinds_become_model_messages():
    """A command becomes a user message, one without content for the model is left out."""
    history = [UserMessage("hi"), BashExecutionMessage("ls", "a.txt"), CustomMessage("mark")]
    repaired = repair(history)

    assert shape(repaired) == [("user",), ("user",)]
    assert "a.txt" in repaired[1].text
    assert check(history) == []


# --- surrogates
# --------------------------------------------------------------------------------------------------------

HIGH, LOW = "\ud83d", "\ude00"


def test_lone_surrogates_are_replaced_everywhere():
    """Text, thinking, names, ids, arguments and their keys can be encoded after repair."""
    history = [
        UserMessage(f"hi {HIGH}"),
        AssistantMessage(
            [
                ThinkingContent(f"{LOW} hm"),
                ToolCall(f"c{LOW}", f"n{HIGH}", {f"k{HIGH}": [f"v{LOW}", {"x": "fine"}]}),
                ToolCall("raw", "n", f'{{"k": "{HIGH}'),
            ],
            stop_reason="tool_use",
        ),
        ToolResultMessage(f"c{LOW}", f"n{HIGH}", f"{HIGH}{LOW} and {HIGH}"),
        ToolResultMessage("raw", "n", "é"),
    ]
    repaired = repair(history)

    assert repaired[0].text == "hi \ufffd"
    assert repaired[1].thinking == "\ufffd hm"
    first, second = repaired[1].tool_calls
    assert first == ToolCall("c\ufffd", "n\ufffd", {"k\ufffd": ["v\ufffd", {"x": "fine"}]})
    assert second.arguments == '{"k": "\ufffd'
    assert repaired[2].tool_call_id == "c\ufffd"
    assert repaired[2].tool_name == "n\ufffd"
    assert repaired[2].text == "\U0001f600 and \ufffd"
    assert repaired[3] is history[3]
    assert repair(repaired) is repaired


def test_ids_that_clean_to_the_same_are_kept_apart():
    """Two ids that differ only in what can't be sent stay two ids."""
    repaired = repair([answer(HIGH, LOW), result(HIGH, "1"), result(LOW, "2")])
    ids = [call.id for call in repaired[0].tool_calls]

    assert len(set(ids)) == 2
    assert [(m.tool_call_id, m.text) for m in repaired[1:]] == [(ids[0], "1"), (ids[1], "2")]


@given(st.text(st.characters() | st.sampled_from([HIGH, LOW])))
def test_clean_text_joins_pairs_and_replaces_the_rest(text):
    """Clean text can be encoded; pairs are one character, lone halves U+FFFD, and all else is as it was."""
    pair = r"([\ud800-\udbff])([\udc00-\udfff])"
    joined = re.sub(
        pair, lambda m: chr(0x10000 + (ord(m[1]) - 0xD800) * 1024 + ord(m[2]) - 0xDC00), text
    )
    clean = clean_text(text)

    assert clean == re.sub(r"[\ud800-\udfff]", "\ufffd", joined)
    assert clean_text(clean) is clean


# --- any history
# -------------------------------------------------------------------------------------------------------

IDS = st.sampled_from(["a", "b", "", f"c{HIGH}"])
STOPS = st.sampled_from(["stop", "tool_use", "length", "error", "aborted"])
MESSAGES = st.one_of(
    st.builds(UserMessage, st.sampled_from(["hi", HIGH])),
    st.builds(lambda ids, stop: answer(*ids, stop=stop), st.lists(IDS, max_size=3), STOPS),
    st.builds(result, IDS),
    st.builds(BashExecutionMessage, st.just("ls"), exclude_from_context=st.booleans()),
)
HISTORIES = st.lists(MESSAGES, max_size=12)


@given(HISTORIES)
def test_a_repaired_history_is_sound_and_stays(history):
    """After repair there is no problem, a second repair gives the same object, and every call has its result."""
    repaired = repair(history)

    assert check(repaired) == []
    assert repair(repaired) is repaired
    assert_paired(repaired)


def assert_paired(messages):
    awaited = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            assert awaited
            assert message.tool_call_id == awaited.pop(0)
            continue
        assert awaited == []
        if isinstance(message, AssistantMessage):
            assert not message.failed
            awaited = [call.id for call in message.tool_calls]
            assert len(set(awaited)) == len(awaited)
            assert all(awaited)
    assert awaited == []


@given(HISTORIES)
def test_nothing_that_was_said_is_lost(history):
    """Every user message and every answer that did not fail is still there, in order."""
    kept = [m for m in history if m.role == "user" or (m.role == "assistant" and not m.failed)]
    told = [m.to_llm() for m in history if m.role in {"user", "bashExecution"}]
    repaired = repair(history)

    assert [m.role for m in repaired].count("assistant") == [m.role for m in kept].count(
        "assistant"
    )
    assert [m.role for m in repaired].count("user") == len([m for m in told if m is not None])


@given(HISTORIES, st.lists(st.integers(0, 4), max_size=8), st.booleans())
def test_a_growing_history_is_repaired_as_a_whole_one(history, steps, as_transcript):
    """However it grows, a repairer gives what repair gives for the whole."""
    repairer, length = Repairer(), 0
    transcript = Transcript()
    for step in [*steps, len(history)]:
        transcript = transcript.extend(history[length : length + step])
        length = len(transcript)
        given_ = transcript if as_transcript else list(transcript)
        whole = repair(given_)
        grown = repairer.repair(given_)

        assert list(grown) == list(whole)
        assert (grown is given_) == (whole is given_)


@given(HISTORIES, HISTORIES, st.integers(0, 12))
def test_a_repairer_takes_any_other_history(one, other, common):
    """A history that is shorter, or goes another way, is repaired afresh."""
    repairer = Repairer()
    repairer.repair(one)
    other = one[:common] + other

    assert list(repairer.repair(other)) == list(repair(other))
    assert list(repairer.repair(one[:common])) == list(repair(one[:common]))


def test_a_list_changed_in_place_is_looked_at_again():
    """A repairer keeps its own record of what it saw, so that the owner of a list may change it."""
    history = [UserMessage("hi"), answer("a"), result("a"), answer(text="5", stop="stop")]
    repairer = Repairer()
    repairer.repair(history)
    history[2] = result("b")

    assert repairer.repair(history)[2].text == NO_RESULT


def test_a_growing_history_is_walked_once():
    """A repairer reads each message a bounded number of times, however often the history grows."""
    reads = 0

    @attrs.frozen
    class CountedMessage(UserMessage):
        def to_llm(self):
            nonlocal reads
            reads += 1
            return self

    repairer, transcript = Repairer(), Transcript([answer("lost")])
    for _ in range(50):
        transcript = transcript.append(CountedMessage("hi")).append(answer("lost"))
        repairer.repair(transcript)

    assert 50 <= reads <= 150
