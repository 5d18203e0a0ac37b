"""A conversation is shortened because somebody asks for it."""

from __future__ import annotations

import threading

import pytest

from tests.support.loops import WAIT_S, Hold, tool
from yiemagent import (
    AbortedError,
    AgentStateError,
    AgentStopped,
    AssistantMessage,
    CompactionError,
    ConfigurationError,
    ResponseTimeout,
    UserMessage,
    YiemAgent,
    abort_agent,
    ask,
    compact_agent,
    run_agent,
    steer,
    stop_agent,
    take_response,
)
from yiemagent.events import CompactionEndEvent, CompactionStartEvent
from yiemagent.machine import State
from yiemagent.sessions import Compaction, Session, SummaryPrompts
from yiemagent.testing import RecordingSink, ScriptedModel, call, check_event_order, failure

OLD = [UserMessage("question " * 50), AssistantMessage("answer " * 50)] * 4
WORDS = SummaryPrompts(first="FIRST", update="UPDATE", turn="TURN")
SETTINGS = Compaction(context_window=16_000, prompts=WORDS, instructions="Be kind.")


def made(answers, **options):
    """An agent with a history that fits, and a model that gives these answers."""
    model = ScriptedModel(answers)
    return model, YiemAgent(model, messages=OLD, **{"compaction": SETTINGS, **options})


def test_a_conversation_that_fits_is_shortened_where_somebody_asks():
    """The summary is given, the model sees it from then on, and the history holds every message."""
    sink = RecordingSink()
    model, agent = made(["the summary", "fine"], event_sink=sink)
    with agent:
        summary = compact_agent(agent, "Keep names.", timeout_s=WAIT_S)
        state = agent.state
        events = list(sink.events)
        ask(agent, "go on")

    assert summary.summary == "the summary"
    assert state.summary is summary
    assert list(state.messages) == OLD
    assert len(state.context_messages) == 3
    assert model.requests[0].messages[0].text.endswith("The user adds: Be kind. Keep names.")
    assert [message.role for message in model.requests[1].messages] == [
        "user",
        "user",
        "assistant",
        "user",
    ]
    check_event_order(events)
    [start] = [event for event in events if isinstance(event, CompactionStartEvent)]
    assert start.details["reason"] == "asked for"


def test_it_is_a_run_that_gives_no_answer_to_take():
    """Nothing waits in the output channel afterwards, and the agent is idle."""
    _, agent = made(["the summary"])
    with agent:
        compact_agent(agent)

        with pytest.raises(ResponseTimeout):
            take_response(agent, 0)
        assert agent.channel_state is State.IDLE


def test_it_waits_for_the_run_going_on():
    """What was asked for before comes first."""
    hold = Hold()
    _, agent = made([call("work"), "fine", "the summary"], tools=[tool(function=hold)])
    with agent:
        run_agent(agent, "work")
        hold.wait()
        hold.let_go()
        summary = compact_agent(agent, timeout_s=WAIT_S)

        assert summary.summary == "the summary"
        assert take_response(agent, WAIT_S).text == "fine"
        assert len(agent.messages) == len(OLD) + 4


def test_a_message_that_comes_meanwhile_gets_a_run():
    """Steering joins no run that asks no question: it starts its own."""
    asked, go_on = threading.Event(), threading.Event()

    def slow(_context, _signal):
        asked.set()
        go_on.wait(WAIT_S)
        return "the summary"

    _, agent = made([slow, "fine"])
    with agent:
        compacting = threading.Thread(target=compact_agent, args=(agent,))
        compacting.start()
        asked.wait(WAIT_S)
        receipt = steer(agent, "hurry")
        go_on.set()
        compacting.join(WAIT_S)

        assert receipt.started
        assert take_response(agent, WAIT_S).text == "fine"


def test_a_session_keeps_it(tmp_path):
    """Opened again, the conversation goes on behind the summary."""
    with Session.create(tmp_path / "chat.jsonl") as session:
        _, agent = made(["the summary"], session=session)
        with agent:
            compact_agent(agent)
        roles = [message.role for message in session.messages]
        interrupted = session.interrupted

    assert roles == ["compactionSummary", "user", "assistant"]
    assert not interrupted


def test_a_failing_summary_is_raised():
    """The conversation is as it was, and the agent goes on."""
    _, agent = made([failure("no credit"), "fine"])
    with agent:
        with pytest.raises(CompactionError, match="the summary failed: no credit"):
            compact_agent(agent)

        assert agent.state.summary is None
        assert ask(agent, "go on").text == "fine"


def test_there_may_be_nothing_to_shorten():
    """That is said, and no model is asked."""
    model = ScriptedModel()
    with (
        YiemAgent(model, compaction=Compaction()) as agent,
        pytest.raises(CompactionError, match="cannot compact: there is nothing before"),
    ):
        compact_agent(agent)

    assert model.requests == []


def test_an_abort_ends_it():
    """Whoever asked for it is told."""

    def aborting(_context, signal):
        abort_agent(agent, "enough")
        signal.wait(WAIT_S)
        return failure("aborted", "aborted")

    sink = RecordingSink()
    _, agent = made([aborting], event_sink=sink)
    with agent, pytest.raises(AbortedError):
        compact_agent(agent)

    assert agent.state.summary is None
    assert [event.summary for event in sink.of(CompactionEndEvent)] == [None]


def test_who_has_no_compaction_is_told():
    """The text says what to give the agent."""
    with (
        YiemAgent(ScriptedModel(), messages=OLD) as agent,
        pytest.raises(ConfigurationError, match=r"compaction=yiemagent\.sessions"),
    ):
        compact_agent(agent)


def test_a_run_can_not_wait_for_itself():
    """A tool that asked for it would wait for ever."""
    errors = []

    def work(*_):
        try:
            compact_agent(agent)
        except AgentStateError as error:
            errors.append(str(error))
        return "done"

    _, agent = made([call("work"), "fine"], tools=[tool(function=work)])
    with agent:
        ask(agent, "work")

    assert "compact_agent would wait for the run that it is called in" in errors[0]


def test_a_stopped_agent_takes_it_no_more():
    """As any other message."""
    _, agent = made([])
    stop_agent(agent)

    with pytest.raises(AgentStopped):
        compact_agent(agent)
