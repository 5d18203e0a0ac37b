"""State is a fold over events, and costs what is new."""

from __future__ import annotations

import attrs

from tests.support.loops import run, tool
from yiemagent.context import AgentContext
from yiemagent.events import (
    AgentEndEvent,
    AgentStartEvent,
    MessageEndEvent,
    MessageStartEvent,
    ToolExecEndEvent,
    ToolExecStartEvent,
    TurnEndEvent,
    TurnStartEvent,
)
from yiemagent.messages import AssistantMessage, ToolCall, ToolResultMessage, UserMessage
from yiemagent.progress import Progress
from yiemagent.state import AgentState, reduce
from yiemagent.testing import call, calls, failure
from yiemagent.tool import AgentToolResult


def test_a_new_state_is_empty():
    """A state has no messages, no tools and no run until it is told of some."""
    state = AgentState()

    assert (list(state.messages), dict(state.tools), state.active_run) == ([], {}, False)
    assert (state.pending_tool_calls, state.error_message) == (frozenset(), None)


def test_a_message_enters_the_history_when_it_is_whole():
    """MessageStart changes nothing, MessageEnd appends, and the earlier state stays as it was."""
    message = UserMessage("hi")
    before = AgentState()

    assert reduce(before, MessageStartEvent(message)) is before
    after = reduce(before, MessageEndEvent(message))
    assert (list(after.messages), list(before.messages)) == ([message], [])


def test_a_call_is_pending_while_it_is_under_way():
    """A call's id is pending from its Start to its End."""
    started = reduce(AgentState(), ToolExecStartEvent("a", "work", {}))
    both = reduce(started, ToolExecStartEvent("b", "work", {}))
    result = ToolResultMessage("a", "work", "done")
    ended = reduce(both, ToolExecEndEvent("a", "work", AgentToolResult("done"), False, result))

    assert both.pending_tool_calls == {"a", "b"}
    assert ended.pending_tool_calls == {"b"}


def test_a_run_is_active_from_its_start_to_its_end():
    """AgentStart makes a run active and forgets the last error, AgentEnd notes a new one."""
    running = reduce(AgentState(error_message="old"), AgentStartEvent())
    failed = reduce(running, AgentEndEvent((), failure("broken")))
    good = reduce(running, AgentEndEvent((), AssistantMessage("fine")))

    assert (running.active_run, running.error_message) == (True, None)
    assert (failed.active_run, failed.error_message) == (False, "broken")
    assert (good.active_run, good.error_message) == (False, None)


def test_a_run_that_ends_leaves_nothing_pending():
    """AgentEnd clears what was pending."""
    pending = reduce(AgentState(), ToolExecStartEvent("a", "work", {}))

    assert reduce(pending, AgentEndEvent((), failure("x"))).pending_tool_calls == frozenset()


def test_other_events_change_nothing():
    """An event that says nothing about the state gives the same object back."""
    state = AgentState()

    assert reduce(state, TurnStartEvent(1)) is state


def test_a_fold_over_the_events_of_a_run_gives_its_history():
    """The state that a run's events lead to holds what the run added."""
    done = run([calls(call("work")), "fine"], tool())
    state = AgentState("be brief", tools=[tool()])
    for event in done.events:
        state = reduce(state, event)

    assert tuple(state.messages) == done.messages
    assert (state.system_prompt, list(state.tools)) == ("be brief", ["work"])
    assert (state.active_run, state.pending_tool_calls) == (False, frozenset())


def test_results_of_calls_that_were_taken_up_get_their_place():
    """When their turn ends, they stand in call order among those that were there, in either fold over the events."""
    answer = AssistantMessage([ToolCall(one, "work") for one in "abc"])
    a, b, c = (ToolResultMessage(one, "work", one) for one in "abc")
    first = AgentState(messages=(UserMessage("go"), answer, b))
    events = [
        AgentStartEvent(),
        TurnStartEvent(1),
        MessageEndEvent(a),
        MessageEndEvent(c),
        TurnEndEvent(None, (a, c)),
        TurnStartEvent(2),
        MessageEndEvent(AssistantMessage("done")),
    ]
    progress, state = Progress((), first), first
    for event in events:
        progress.take(event)
        state = reduce(state, event)
        assert progress.state() == state
    lazy = Progress((), first)
    for event in events:
        lazy.take(event)

    assert [message.text for message in state.messages] == ["go", "", "a", "b", "c", "done"]
    assert lazy.state() == state


def test_a_turn_whose_results_are_in_order_changes_nothing():
    """The state stays the same object where they came in call order, and where a turn has none."""
    answer = AssistantMessage([ToolCall("a", "work")])
    result = ToolResultMessage("a", "work", "done")
    state = AgentState(messages=(answer, result))

    assert reduce(state, TurnEndEvent(None, (result,))) is state
    assert reduce(state, TurnEndEvent(None)) is state


def test_histories_of_states_share_their_storage():
    """A longer history goes on in the storage of the shorter one."""
    shorter = reduce(AgentState(), MessageEndEvent(UserMessage("a")))
    longer = reduce(shorter, MessageEndEvent(UserMessage("b")))

    assert longer.messages.continues(shorter.messages)
    assert AgentContext(messages=longer.messages).messages is longer.messages
    assert attrs.evolve(longer).messages is longer.messages
