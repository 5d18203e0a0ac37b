"""What waits inside a tool or a hook ends with it, and leaves no work behind for nobody."""

from __future__ import annotations

import threading
import time

import pytest

from tests.support.loops import WAIT_S, tool
from yiemagent import (
    AgentContext,
    AgentLoopConfig,
    YiemAgent,
    abort_agent,
    ask,
    run_agent,
    run_agent_loop,
    stop_agent,
    take_response,
)
from yiemagent.errors import AbortedError
from yiemagent.events import AgentEndEvent
from yiemagent.testing import ScriptedModel, call


class Waiting:
    """A model that waits until its run is aborted, and notes what it was asked and why it ended."""

    def __init__(self):
        self.asked = []
        self.began = threading.Semaphore(0)
        self.ended = threading.Semaphore(0)
        self.why = []

    def __call__(self, context, signal):
        self.asked.append(context.messages[-1].text)
        self.began.release()
        assert signal.wait(WAIT_S)
        self.why.append(signal.reason)
        self.ended.release()
        return "too late"


def raised_in(function):
    """Give a tool's function that notes what `function` raises, and lets it out."""
    errors = []

    def work(*_args):
        try:
            return function()
        except Exception as error:
            errors.append(error)
            raise

    return work, errors


def test_a_time_limit_reaches_what_is_asked_in_the_tool():
    """The run that the tool waits for is aborted; messages that had not begun are taken back and ask nobody."""
    model = Waiting()
    helper = YiemAgent(ScriptedModel(default=model), abort_grace_s=0.1)
    work, errors = raised_in(lambda: ask(helper, f"job {len(model.asked)}").text)
    delegate = tool("delegate", work, timeout_s=0.1)
    script = [call("delegate"), call("delegate"), "gave up"]
    with helper, YiemAgent(ScriptedModel(script), tools=[delegate]) as boss:
        assert ask(boss, "go", timeout_s=WAIT_S).text == "gave up"
        assert model.ended.acquire(timeout=WAIT_S)

    assert model.asked in (["job 0"], ["job 0", "job 1"])
    assert model.why[0] == "delegate timed out after 0.1 s"
    assert {type(error) for error in errors} == {AbortedError}


def test_a_message_that_did_not_begin_is_taken_back():
    """A tool that waits behind another's message leaves nothing in the queue when it is given up."""
    model = Waiting()
    helper = YiemAgent(ScriptedModel(default=model))
    run_agent(helper, "first")
    assert model.began.acquire(timeout=WAIT_S)
    delegate = tool("delegate", lambda *_: ask(helper, "second").text, timeout_s=0.05)
    with YiemAgent(ScriptedModel([call("delegate"), "gave up"]), tools=[delegate]) as boss:
        assert ask(boss, "go", timeout_s=WAIT_S).text == "gave up"
    abort_agent(helper)
    take_response(helper, WAIT_S)

    assert stop_agent(helper) == ()
    assert model.asked == ["first"]


def test_an_abort_ends_nested_agents_at_once():
    """Three deep, each waits for the next: the innermost is told, and nobody waits for a grace."""
    model = Waiting()
    agent = YiemAgent(ScriptedModel([model]), name="innermost")
    agents = [agent]
    for level in range(3):
        delegate = tool("delegate", lambda *_, below=agent: ask(below, "go").text)
        agent = YiemAgent(
            ScriptedModel([call("delegate")]), tools=[delegate], name=f"level {level}"
        )
        agents.append(agent)
    run_agent(agent, "go")
    assert model.began.acquire(timeout=WAIT_S)
    begun = time.monotonic()
    abort_agent(agent, "enough")
    answer = take_response(agent, WAIT_S)

    assert answer.stop_reason == "aborted"
    assert time.monotonic() - begun < 0.9  # the grace is a second
    assert model.ended.acquire(timeout=WAIT_S)
    assert "aborted" in model.why[0] or model.why[0] == "enough"
    for one in agents:
        stop_agent(one)


@pytest.mark.parametrize("what", ["take_response", "run_agent", "run_agent_loop"])
def test_other_waits_in_a_tool_end_with_it(what):
    """Waiting for an answer, for a place, and for a loop."""
    model = Waiting()
    helper = YiemAgent(ScriptedModel(default=model))
    run_agent(helper, "first")
    assert model.began.acquire(timeout=WAIT_S)
    if what == "run_agent":
        for number in range(15):
            run_agent(helper, f"m{number}")
    waits = {
        "take_response": lambda: take_response(helper),
        "run_agent": lambda: run_agent(helper, "one too many", timeout_s=None),
        "run_agent_loop": lambda: run_agent_loop(
            ["go"],
            AgentContext(""),
            AgentLoopConfig(),
            lambda _: None,
            stream_fn=ScriptedModel([model]),
        ),
    }
    reached = threading.Event()

    def wait():
        reached.set()
        waits[what]()
        return "done"

    work, errors = raised_in(wait)
    agent = YiemAgent(ScriptedModel([call("work")]), tools=[tool("work", work)])
    run_agent(agent, "go")
    assert reached.wait(WAIT_S)
    if what == "run_agent_loop":
        assert model.began.acquire(timeout=WAIT_S)
    begun = time.monotonic()
    abort_agent(agent, "enough")
    answer = take_response(agent, WAIT_S)
    took_s = time.monotonic() - begun
    stop_agent(agent)
    stop_agent(helper, timeout_s=0)

    assert (answer.stop_reason, took_s < 0.9) == ("aborted", True)
    assert [type(error) for error in errors] == ([] if what == "run_agent_loop" else [AbortedError])


@pytest.mark.parametrize("hook", ["before_tool_call", "transform_context"])
def test_a_hook_that_waits_for_an_agent_ends_with_the_run(hook, caplog):
    """So does whatever else of the user's the run's thread does, but sinks."""
    model = Waiting()
    judge = YiemAgent(ScriptedModel([model]))
    agent = YiemAgent(
        ScriptedModel([call("work")]),
        tools=[tool("work")],
        **{hook: lambda *_: ask(judge, "may it?") and None},
    )
    run_agent(agent, "go")
    assert model.began.acquire(timeout=WAIT_S)
    begun = time.monotonic()
    abort_agent(agent, "enough")
    answer = take_response(agent, WAIT_S)

    assert (answer.stop_reason, time.monotonic() - begun < 0.9) == ("aborted", True)
    stop_agent(agent)
    stop_agent(judge)
    assert "failed" not in caplog.text


def test_a_sink_may_ask_another_agent_about_an_aborted_run():
    """What a sink waits for is not part of the run that it hears of."""
    said = []
    clerk = YiemAgent(ScriptedModel(["noted"]))

    def sink(event):
        if isinstance(event, AgentEndEvent):
            said.append(ask(clerk, event.answer.error_message, timeout_s=WAIT_S).text)

    model = Waiting()
    with clerk, YiemAgent(ScriptedModel([model]), event_sink=sink) as agent:
        run_agent(agent, "go")
        assert model.began.acquire(timeout=WAIT_S)
        abort_agent(agent, "enough")
        assert take_response(agent, WAIT_S).stop_reason == "aborted"

    assert said == ["noted"]


def test_what_a_tool_sends_without_waiting_goes_on():
    """A run that was begun for its own sake is not part of the call."""
    helper = YiemAgent(ScriptedModel(["done in peace"]))
    send = tool("send", lambda *_: run_agent(helper, "go") or "sent")
    with helper, YiemAgent(ScriptedModel([call("send"), "sent it"]), tools=[send]) as agent:
        assert ask(agent, "go", timeout_s=WAIT_S).text == "sent it"
        assert take_response(helper, WAIT_S).text == "done in peace"
