"""What the entries of a path amount to."""

from __future__ import annotations

import itertools

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sessions.words import CALLS, DONE, HI, NOON, A, B
from yiemagent.history import check
from yiemagent.messages import (
    BranchSummaryMessage,
    CompactionSummaryMessage,
    ToolCall,
    ToolResultMessage,
)
from yiemagent.sessions.bodies import (
    BranchSummaryBody,
    CompactionBody,
    CustomBody,
    MessageBody,
    ModelChangeBody,
    RunEndBody,
    ToolCallStartedBody,
)
from yiemagent.sessions.conversation import (
    OpenCall,
    context_of,
    cut_points,
    history_of,
    is_unfinished,
    open_calls,
)
from yiemagent.sessions.entries import Entry


def result(call_id):
    """The result of a call."""
    return ToolResultMessage(call_id, "work", f"{call_id} done", timestamp=NOON)


def path(*said):
    """A path of entries: messages, and bodies as they are."""
    bodies = [MessageBody(one) if hasattr(one, "role") else one for one in said]
    return [Entry(n, n - 1 or None, NOON, body) for n, body in enumerate(bodies, 1)]


def test_a_context_is_the_messages_of_the_path():
    """Entries that are no messages tell the model nothing."""
    told = path(HI, ModelChangeBody("x:y"), DONE, CustomBody("note", 1), RunEndBody("stop"))

    assert context_of(told) == [HI, DONE]


def test_results_stand_in_call_order():
    """Results are written as they come and read as the history has them, call by call."""
    told = path(HI, CALLS, ToolCallStartedBody("a", "work"), result("b"), result("a"), DONE)

    assert context_of(told) == [HI, CALLS, result("a"), result("b"), DONE]


def test_results_of_unknown_calls_come_last():
    """Where a result answers no call of the answer before it, the others keep their order."""
    assert context_of(path(CALLS, result("x"), result("b"))) == [CALLS, result("b"), result("x")]
    assert context_of(path(result("b"), result("a"))) == [result("b"), result("a")]


def test_a_summary_stands_for_what_was_compacted():
    """The latest compaction holds: its summary, what is kept, and what came afterwards."""
    told = path(
        HI, DONE, CompactionBody("first", 2), HI, CALLS, CompactionBody("then", 4, 99), DONE
    )

    assert context_of(told) == [CompactionSummaryMessage("then", 99, NOON), HI, CALLS, DONE]


def test_a_history_is_all_of_it():
    """What a summary stands for is there as well, the summary where it was written, and results in call order."""
    told = path(CALLS, result("b"), result("a"), CompactionBody("short", 1, 90), HI)
    told += [Entry(6, 5, NOON, BranchSummaryBody("left", 3))]

    assert history_of(told) == [
        CALLS,
        result("a"),
        result("b"),
        CompactionSummaryMessage("short", 90, NOON),
        HI,
        BranchSummaryMessage("left", "3", NOON),
    ]


def test_a_compaction_may_keep_nothing():
    """Where nothing before it is kept, the summary is followed by what came afterwards."""
    told = path(HI, DONE, CompactionBody("all", 3), HI)

    assert context_of(told) == [CompactionSummaryMessage("all", 0, NOON), HI]


def test_a_branch_summary_is_a_message():
    """A branch that was left is told of where the conversation went on."""
    assert context_of(path(HI, BranchSummaryBody("tried", 7))) == [
        HI,
        BranchSummaryMessage("tried", "7", NOON),
    ]


def test_cut_points_are_never_between_a_call_and_its_result():
    """What is kept may begin with anything but a result."""
    told = path(HI, CALLS, result("a"), result("b"), BranchSummaryBody("x", 1), DONE)

    assert cut_points(told) == (1, 2, 5, 6)


KINDS = st.lists(st.sampled_from(["user", "calls", "done", "note"]), max_size=12)


@given(KINDS, st.data())
def test_no_cut_breaks_the_pairing(kinds, data):
    """Whichever cut point a compaction keeps from, every call has its result and no result stands alone."""
    said, numbers = [], itertools.count()
    for kind in kinds:
        if kind == "calls":
            calls = [ToolCall(f"c{next(numbers)}", "work") for _ in range(2)]
            answers = data.draw(st.permutations([result(call.id) for call in calls]))
            said += [attrs.evolve(CALLS, content=tuple(calls)), *answers]
        else:
            said.append({"user": HI, "done": DONE, "note": CustomBody("note")}[kind])
    for cut in cut_points(path(*said)):
        assert check(context_of(path(*said, CompactionBody("short", cut)))) == []


# -- what an interrupted run left -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ((), ()),
        ((HI,), ()),
        ((HI, DONE), ()),
        ((HI, CALLS), (OpenCall(A, started=False), OpenCall(B, started=False))),
        (
            (HI, CALLS, ToolCallStartedBody("a", "work"), ToolCallStartedBody("b", "work")),
            (OpenCall(A, started=True), OpenCall(B, started=True)),
        ),
        (
            (
                HI,
                CALLS,
                ToolCallStartedBody("a", "work"),
                ToolCallStartedBody("b", "work"),
                result("b"),
            ),
            (OpenCall(A, started=True),),
        ),
        ((HI, CALLS, ToolCallStartedBody("a", "work")), (OpenCall(A, True), OpenCall(B, False))),
        ((HI, CALLS, result("a"), result("b")), ()),
        ((CALLS, HI), ()),
    ],
)
def test_open_calls_are_those_of_the_last_answer_without_a_result(said, left):
    """Each call that was asked for and has no result is named, with whether it had started."""
    assert open_calls(path(*said)) == left


@pytest.mark.parametrize(
    ("said", "unfinished"),
    [
        ((), False),
        ((CustomBody("note"),), False),
        ((HI,), True),
        ((HI, CustomBody("note")), True),
        ((HI, DONE), False),
        ((HI, DONE, RunEndBody("stop")), False),
        ((HI, CALLS), True),
        ((HI, CALLS, result("a"), result("b")), True),
        ((HI, CALLS, result("a"), result("b"), RunEndBody("tool_use_terminated")), False),
        ((HI, attrs.evolve(DONE, stop_reason="error")), True),
        ((HI, attrs.evolve(DONE, stop_reason="error"), RunEndBody("error")), False),
        ((HI, DONE, RunEndBody("stop"), HI), True),
    ],
)
def test_a_path_is_unfinished_where_a_run_broke_off(said, unfinished):
    """A run that ended says so; one that was killed left something that nobody answered."""
    assert is_unfinished(path(*said)) is unfinished
