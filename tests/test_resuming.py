"""Going on with what a session kept; how an agent does it with each kind of session is in tests/sessions."""

from __future__ import annotations

import threading

import pytest

from tests.support.loops import tool
from yiemagent.agent import YiemAgent
from yiemagent.api import ask, run_agent, stop_agent, take_response
from yiemagent.errors import AgentStateError, AgentStopped
from yiemagent.messages import AssistantMessage, ToolCall, UserMessage
from yiemagent.resuming import go_on, resume
from yiemagent.testing import ScriptedModel

HI = UserMessage("hi")
CALLS = AssistantMessage((ToolCall("a", "safe"), ToolCall("b", "unsafe"), ToolCall("c", "gone")))


class Kept:
    """A session that was left with messages, some of them waiting."""

    id = "s"

    def __init__(self, *messages, waiting=(), interrupted=False):
        self.messages = messages
        self.waiting = waiting
        self.interrupted = interrupted
        self.left_open = None

    def restored(self):
        return self.waiting

    def reopen(self, leave_open):
        self.left_open = [call.name for call in CALLS.tool_calls if leave_open(call)]
        return self.messages

    def __getattr__(self, _name):
        return lambda *_given: None


def agent_on(session, *answers):
    """An agent on such a session."""
    tools = [
        tool("safe", annotations={"idempotentHint": True}),
        tool("unsafe", annotations={"readOnlyHint": True}),
    ]
    return YiemAgent(ScriptedModel(answers, default="done"), session=session, tools=tools)


def test_a_history_that_needs_an_answer_gets_one():
    """A run on the history as it is gives one answer."""
    with YiemAgent(ScriptedModel(["done"]), messages=[HI]) as agent:
        go_on(agent._core)
        assert take_response(agent, 10).text == "done"


def test_going_on_needs_something_to_answer():
    """An empty history, an answer at its end, a run under way and an agent that was stopped are errors."""
    entered, leave = threading.Event(), threading.Event()

    def wait(*_given):
        entered.set()
        assert leave.wait(10)
        return "done"

    with YiemAgent(ScriptedModel([wait])) as agent:
        with pytest.raises(AgentStateError, match="the history is empty"):
            go_on(agent._core)
        run_agent(agent, "hi")
        assert entered.wait(10)
        with pytest.raises(AgentStateError, match="a run is going on"):
            go_on(agent._core)
        leave.set()
        take_response(agent, 10)
        with pytest.raises(AgentStateError, match="the last message is the assistant's"):
            go_on(agent._core)
    with pytest.raises(AgentStopped):
        go_on(agent._core)


def test_an_interrupted_run_goes_on():
    """The model is asked with the messages that the session gives."""
    with agent_on(Kept(HI, interrupted=True)) as agent:
        assert resume(agent._core, retry_idempotent=False)
        assert take_response(agent, 10).text == "done"


@pytest.mark.parametrize(("asked", "left_open"), [(True, ["safe"]), (False, [])])
def test_only_calls_of_idempotent_tools_may_run_again(asked, left_open):
    """A call is left open where that is asked for and its tool, known still, says that it does no harm."""
    session = Kept(HI, interrupted=True)
    with agent_on(session) as agent:
        resume(agent._core, retry_idempotent=asked)
        take_response(agent, 10)

    assert session.left_open == left_open


def test_what_waited_is_where_it_was():
    """Restored messages wait in their channels, in order, and start nothing."""
    waiting = [("input", HI), ("steering", HI), ("follow_up", HI), ("input", HI)]
    agent = agent_on(Kept(waiting=waiting))
    core = agent._core

    assert [len(core.channel(kind)) for kind in ("input", "steering", "follow_up")] == [2, 1, 1]
    assert core._thread is None
    assert len(stop_agent(agent)) == 4


def test_more_may_wait_than_a_channel_holds():
    """What was accepted keeps its place, however many there are."""
    with agent_on(Kept(waiting=[("input", HI)] * 16 + [("follow_up", HI)] * 40)) as agent:
        assert resume(agent._core, retry_idempotent=False)
        assert [take_response(agent, 10).text for _ in range(16)] == ["done"] * 16


def test_nothing_to_go_on_with_begins_nothing():
    """A session whose last run ended gives False, and the agent takes messages as ever."""
    with agent_on(Kept(HI)) as agent:
        assert not resume(agent._core, retry_idempotent=False)
        assert ask(agent, "hi", timeout_s=10).text == "done"
        with pytest.raises(AgentStateError, match="is at work already"):
            resume(agent._core, retry_idempotent=False)
