"""A branch that is left can be summarised by a model."""

from __future__ import annotations

import pytest

from yiemagent.abort import AbortSignal
from yiemagent.errors import CompactionError, SessionError
from yiemagent.messages import AssistantMessage, UserMessage
from yiemagent.sessions import (
    CompactionBody,
    LabelBody,
    Session,
    SummaryPrompts,
    branch_messages,
    summarise_branch,
)
from yiemagent.testing import ScriptedModel, failure


def conversation():
    """A session of three turns, and the id of the first answer."""
    session = Session.in_memory()
    ids = []
    for n in range(3):
        session.add_message(UserMessage(f"question {n}"))
        ids.append(session.add_message(AssistantMessage(f"answer {n}")))
    return session, ids


def test_what_is_left_is_what_lies_behind_where_the_ways_part():
    """The messages that both have are none of it."""
    session, ids = conversation()

    texts = [message.text for message in branch_messages(session, ids[0])]
    assert texts == ["question 1", "answer 1", "question 2", "answer 2"]
    assert branch_messages(session, ids[2]) == ()
    assert len(branch_messages(session, None)) == 6

    session.branch(ids[0])
    session.add_message(UserMessage("another"))
    assert [message.text for message in branch_messages(session, ids[2])] == ["another"]


def test_a_summary_of_the_branch_goes_with_the_move():
    """The model is shown what is left, and its summary is what the next one sees of it."""
    session, ids = conversation()
    model = ScriptedModel(["Two questions were tried."])
    prompts = SummaryPrompts(branch="BRANCH")
    summary = summarise_branch(session, ids[0], model, instructions="Be brief.", prompts=prompts)
    session.branch(ids[0], summary=summary)

    [request] = model.requests
    told = request.messages[0].text
    assert "question 1" in told
    assert "question 0" not in told
    assert told.endswith("BRANCH\n\nThe user adds: Be brief.")
    assert [message.role for message in session.messages] == ["user", "assistant", "branchSummary"]
    assert session.messages[-1].summary == "Two questions were tried."


def test_a_summary_on_the_branch_stands_for_what_it_stands_for():
    """Where the branch itself was compacted, its summary is what is shown of its beginning."""
    session, ids = conversation()
    session.append(CompactionBody("so far", ids[2]))
    model = ScriptedModel(["short"])
    summarise_branch(session, ids[0], model)

    told = model.requests[0].messages[0].text
    assert "so far" in told
    assert "answer 2" in told
    assert "answer 1" not in told


def test_nothing_is_asked_where_nothing_is_left():
    """Moving to where one is leaves nothing behind."""
    session, ids = conversation()
    session.append(LabelBody(ids[0], "here"))

    assert summarise_branch(session, ids[2], ScriptedModel()) is None


def test_a_plain_function_can_summarise():
    """Anything that an agent takes as its model can."""
    session, _ = conversation()

    assert summarise_branch(session, None, lambda _request: "all of it") == "all of it"


def test_what_fails_is_said():
    """No summary, an entry that is not there, an abort: each in its own words, and the leaf stays."""
    session, ids = conversation()
    signal = AbortSignal()
    signal.abort()
    before = session.leaf_id

    with pytest.raises(CompactionError, match="the summary failed: no credit"):
        summarise_branch(session, ids[0], ScriptedModel([failure("no credit")]))
    with pytest.raises(CompactionError, match="aborted"):
        summarise_branch(session, ids[0], ScriptedModel(["x"]), signal=signal)
    with pytest.raises(SessionError, match="99"):
        summarise_branch(session, 99, ScriptedModel())
    assert session.leaf_id == before
