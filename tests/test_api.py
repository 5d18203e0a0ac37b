"""The verbs on an agent: one answer per run, in order; nothing lost, nothing doubled, nothing that hangs."""

from __future__ import annotations

import contextvars
import math
import threading
from decimal import Decimal
from fractions import Fraction

import pytest

from yiemagent import (
    AgentStateError,
    AgentStopped,
    AgentTool,
    AgentToolResult,
    AssistantMessage,
    BashExecutionMessage,
    ChannelFull,
    ResponseTimeout,
    ToolExecStartEvent,
    ToolResultMessage,
    UserMessage,
    YiemAgent,
    YiemAgentError,
    abort_agent,
    ask,
    compact_agent,
    continue_agent,
    follow_up,
    prompt_agent,
    run_agent,
    steer,
    stop_agent,
    take_response,
)
from yiemagent.events import AgentEndEvent, AgentStartEvent, MessageEndEvent, TurnEndEvent
from yiemagent.testing import RecordingSink, ScriptedModel, call, calls, check_event_order, failure


class Gate:
    """A place in a scripted model or a tool where the test holds the run."""

    def __init__(self):
        self.reached = threading.Semaphore(0)
        self.opened = threading.Event()

    def answer(self, answer):
        """Give a scripted answer that waits here until the test opens the gate, or the run is aborted."""

        def waiting(_context, signal):
            self.reached.release()
            signal.add_callback(self.opened.set)
            assert self.opened.wait(20)
            return answer

        return waiting

    def wait(self):
        assert self.reached.acquire(timeout=20)

    def open(self):
        self.opened.set()


def texts(agent):
    """The history as (role, text)."""
    return [(message.role, message.text) for message in agent.messages]


def tool(name, function, **options):
    return AgentTool(name, description=f"the tool {name}", execute=function, **options)


# -- run_agent and take_response --


def test_a_run_gives_one_answer():
    """A message sent is answered once, and both are in the history."""
    with YiemAgent(ScriptedModel(["hello"])) as agent:
        run_agent(agent, "hi")

        assert take_response(agent, 10).text == "hello"
        assert texts(agent) == [("user", "hi"), ("assistant", "hello")]
        with pytest.raises(ResponseTimeout):
            take_response(agent, 0.01)


def test_prompt_agent_is_run_agent():
    """The reference's second name is the same function."""
    assert prompt_agent is run_agent


def test_answers_come_in_the_order_of_their_messages():
    """Ten messages sent at once get ten answers, in order."""
    model = ScriptedModel(default=lambda context, _signal: f"re {context.messages[-1].text}")
    with YiemAgent(model) as agent:
        for number in range(10):
            run_agent(agent, f"m{number}")
        answers = [take_response(agent, 10).text for _ in range(10)]

    assert answers == [f"re m{number}" for number in range(10)]


@pytest.mark.parametrize(
    "message",
    ["hi", {"role": "user", "content": "hi"}, UserMessage("hi")],
    ids=["text", "openai dict", "message"],
)
def test_messages_of_every_form_are_taken(message):
    """Text, an OpenAI dict and a message mean the same."""
    with YiemAgent(ScriptedModel(["hello"])) as agent:
        assert ask(agent, message, timeout_s=10).text == "hello"
        assert texts(agent)[0] == ("user", "hi")


@pytest.mark.parametrize("verb", [run_agent, steer, follow_up])
def test_messages_of_the_application_are_taken(verb):
    """A message of an application's kind begins a run like a user's, and stays what it is."""
    note = BashExecutionMessage("ls", "a.txt")
    with YiemAgent(ScriptedModel(["one file"])) as agent:
        verb(agent, note)

        assert take_response(agent, 10).text == "one file"
        assert agent.messages[0] is note


@pytest.mark.parametrize("message", [AssistantMessage("hi"), ToolResultMessage("id", "t", "hi")])
def test_what_only_a_run_says_is_no_message(message):
    """A model's answer or a tool's result can't be sent to an agent."""
    with YiemAgent(ScriptedModel()) as agent, pytest.raises(TypeError, match="UserMessage"):
        run_agent(agent, message)


def test_a_bad_message_raises_in_the_caller():
    """What is no message is refused at once, and nothing is sent."""
    with YiemAgent(ScriptedModel(["hello"])) as agent:
        with pytest.raises((TypeError, YiemAgentError)) as raised:
            run_agent(agent, 42)

        assert "42" in str(raised.value)
        assert agent.messages == ()


@pytest.mark.parametrize("verb", [run_agent, ask, steer, follow_up])
def test_the_agent_comes_first(verb):
    """A verb whose arguments are swapped says so in words."""
    with pytest.raises(TypeError, match="the agent comes first"):
        verb("Hello.", YiemAgent(ScriptedModel()))


WAITING_VERBS = {
    "ask": lambda agent, limit: ask(agent, "hi", timeout_s=limit),
    "run_agent": lambda agent, limit: run_agent(agent, "hi", timeout_s=limit),
    "take_response": lambda agent, limit: take_response(agent, timeout_s=limit),
    "stop_agent": lambda agent, limit: stop_agent(agent, timeout_s=limit),
    "compact_agent": lambda agent, limit: compact_agent(agent, timeout_s=limit),
}


@pytest.mark.parametrize(
    ("limit", "error"),
    [
        ("5", TypeError),
        (True, TypeError),
        ([1], TypeError),
        (-1, ValueError),
        (-math.inf, ValueError),
        (math.nan, ValueError),
    ],
)
@pytest.mark.parametrize("verb", WAITING_VERBS)
def test_what_is_no_timeout_is_refused_before_anything_happens(verb, limit, error):
    """A limit that is no number of seconds is named, and the agent is as it was."""
    with YiemAgent(ScriptedModel(["hello"])) as agent:
        with pytest.raises(error) as raised:
            WAITING_VERBS[verb](agent, limit)

        assert str(raised.value) == (
            f"timeout_s must be a number of seconds, 0 or more, or None to wait for ever, not {limit!r}"
        )
        assert agent.messages == ()
        assert ask(agent, "hi", timeout_s=10).text == "hello"


@pytest.mark.parametrize("limit", [10**400, math.inf, Decimal(10), Fraction(21, 2), None])
def test_any_number_of_seconds_is_a_timeout(limit):
    """Whatever number it is, and however large, it can be waited for."""
    with YiemAgent(ScriptedModel(["hello"])) as agent:
        assert ask(agent, "hi", timeout_s=limit).text == "hello"
        assert stop_agent(agent, timeout_s=limit) == ()


def test_seventeen_untaken_answers_are_too_many():
    """When 16 answers are queued, running or untaken, the next message is refused at once and nothing is lost."""
    with YiemAgent(ScriptedModel(default="ok")) as agent:
        for number in range(16):
            run_agent(agent, f"m{number}", timeout_s=10)
        with pytest.raises(ChannelFull, match="take answers first"):
            run_agent(agent, "one too many")
        with pytest.raises(ChannelFull):
            run_agent(agent, "one too many", timeout_s=0.01)

        assert [take_response(agent, 10).text for _ in range(16)] == ["ok"] * 16
        assert [text for role, text in texts(agent) if role == "user"] == [
            f"m{n}" for n in range(16)
        ]


def test_a_waiting_run_agent_goes_on_when_an_answer_is_taken():
    """A sender that may wait gets the place that a taken answer frees."""
    with YiemAgent(ScriptedModel(default="ok")) as agent:
        for number in range(16):
            run_agent(agent, f"m{number}", timeout_s=10)
        sender = threading.Thread(
            target=run_agent, args=(agent, "late"), kwargs={"timeout_s": None}
        )
        sender.start()
        answers = [take_response(agent, 10).text for _ in range(17)]
        sender.join(10)

    assert answers == ["ok"] * 17


def test_ask_needs_no_place_in_the_output_channel():
    """With 16 untaken answers, ask still gets its turn."""
    with YiemAgent(ScriptedModel(default="ok")) as agent:
        for number in range(16):
            run_agent(agent, f"m{number}", timeout_s=10)

        assert ask(agent, "and this", timeout_s=10).text == "ok"


# -- ask --


@pytest.mark.time_limit(120)
def test_sixteen_threads_ask_fifty_times():
    """Every answer goes to its asker."""
    model = ScriptedModel(default=lambda context, _signal: f"re {context.messages[-1].text}")
    wrong = []

    def asker(agent, name):
        for number in range(50):
            sent = f"{name}-{number}"
            if ask(agent, sent, timeout_s=60).text != f"re {sent}":
                wrong.append(sent)

    with YiemAgent(model) as agent:
        threads = [threading.Thread(target=asker, args=(agent, name)) for name in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert wrong == []
        assert len(agent.messages) == 16 * 50 * 2


def test_a_timed_out_ask_takes_back_what_has_not_begun():
    """An ask behind a run that takes long leaves nothing in the history."""
    gate = Gate()
    with YiemAgent(ScriptedModel([gate.answer("slow"), "next"])) as agent:
        run_agent(agent, "first")
        gate.wait()
        with pytest.raises(ResponseTimeout, match="taken back"):
            ask(agent, "second", timeout_s=0.01)
        gate.open()

        assert take_response(agent, 10).text == "slow"
        assert ("user", "second") not in texts(agent)
        assert ask(agent, "third", timeout_s=10).text == "next"


def test_a_timed_out_ask_that_has_begun_goes_on():
    """An ask that has begun leaves its run going; the answer is only in the history."""
    gate = Gate()
    with YiemAgent(ScriptedModel([gate.answer("slow"), "next"])) as agent:
        with pytest.raises(ResponseTimeout, match="goes on"):
            ask(agent, "first", timeout_s=0.05)
        gate.open()

        assert ask(agent, "second", timeout_s=10).text == "next"
        assert ("assistant", "slow") in texts(agent)
        with pytest.raises(ResponseTimeout):
            take_response(agent, 0.01)


def test_a_time_limit_may_be_infinite():
    """An infinite time limit is one that never ends, in every verb that takes one."""
    endless = float("inf")
    agent = YiemAgent(ScriptedModel(["one", "two"]))
    run_agent(agent, "first", timeout_s=endless)

    assert take_response(agent, endless).text == "one"
    assert ask(agent, "second", timeout_s=endless).text == "two"
    assert stop_agent(agent, timeout_s=endless) == ()


# -- steering and follow-ups --


def test_steering_joins_at_the_next_turn():
    """A message that steers a run comes before the run's next request, and gives no answer of its own."""
    gate = Gate()
    model = ScriptedModel([gate.answer(call("noop")), "done"])
    with YiemAgent(model, tools=[tool("noop", lambda *_: "ok")]) as agent:
        run_agent(agent, "go")
        gate.wait()
        receipt = steer(agent, "this way")
        gate.open()

        assert receipt.started is False
        assert take_response(agent, 10).text == "done"
        assert [m.role for m in agent.messages] == [
            "user",
            "assistant",
            "toolResult",
            "user",
            "assistant",
        ]
        assert model.requests[1].messages[-1].text == "this way"
        with pytest.raises(ResponseTimeout):
            take_response(agent, 0.01)


def test_a_follow_up_joins_when_the_run_would_stop():
    """A follow-up is taken in after the answer, and the run's last answer is the one given."""
    gate = Gate()
    with YiemAgent(ScriptedModel([gate.answer("first"), "second"])) as agent:
        run_agent(agent, "go")
        gate.wait()
        assert follow_up(agent, "and then?").started is False
        gate.open()

        assert take_response(agent, 10).text == "second"
        assert texts(agent) == [
            ("user", "go"),
            ("assistant", "first"),
            ("user", "and then?"),
            ("assistant", "second"),
        ]


def test_steering_comes_before_follow_ups():
    """When both wait, steering joins first."""
    gate = Gate()
    with YiemAgent(ScriptedModel([gate.answer("one"), "two", "three"])) as agent:
        run_agent(agent, "go")
        gate.wait()
        follow_up(agent, "later")
        steer(agent, "now")
        gate.open()

        assert take_response(agent, 10).text == "three"
        assert [text for role, text in texts(agent) if role == "user"] == ["go", "now", "later"]


@pytest.mark.parametrize("verb", [steer, follow_up])
def test_joining_an_idle_agent_starts_a_run(verb):
    """On an idle agent both start a run, with an answer of its own."""
    with YiemAgent(ScriptedModel(["hello"])) as agent:
        assert verb(agent, "hi").started is True
        assert take_response(agent, 10).text == "hello"


@pytest.mark.parametrize(("verb", "kind"), [(steer, "steering"), (follow_up, "follow-up")])
def test_thirty_three_joining_messages_are_too_many(verb, kind):
    """Steering and follow-up channels hold 32 messages each; one more is told whose they are and when they go."""
    gate = Gate()
    with YiemAgent(ScriptedModel([gate.answer("one")], default="more"), name="busy") as agent:
        run_agent(agent, "go")
        gate.wait()
        for number in range(32):
            verb(agent, f"j{number}")
        with pytest.raises(ChannelFull) as raised:
            verb(agent, "one too many")
        assert str(raised.value).startswith(f"agent 'busy' holds 32 {kind} messages that no run")
        assert "timeout_s" not in str(raised.value)
        gate.open()
        take_response(agent, 10)

        users = [text for role, text in texts(agent) if role == "user"]
        assert users == ["go", *[f"j{number}" for number in range(32)]]


def test_from_the_last_event_on_a_message_begins_the_next_run():
    """A message that a sink sends at AgentEnd starts a run of its own."""
    receipts = []

    def sink(event):
        if isinstance(event, AgentEndEvent) and not receipts:
            receipts.append(steer(agent, "more"))

    agent = YiemAgent(ScriptedModel(["one", "two"]), event_sink=sink)
    with agent:
        run_agent(agent, "go")

        assert take_response(agent, 10).text == "one"
        assert take_response(agent, 10).text == "two"
        assert receipts[0].started is True


def test_what_joined_a_failed_run_waits_for_the_next():
    """After a failed run, steering comes after the next run's first message and follow-ups at its end."""
    gate = Gate()
    model = ScriptedModel([gate.answer(failure("broken")), "a", "b"])
    with YiemAgent(model) as agent:
        run_agent(agent, "go")
        gate.wait()
        steer(agent, "steered")
        follow_up(agent, "followed")
        gate.open()
        failed = take_response(agent, 10)

        assert (failed.stop_reason, failed.error_message) == ("error", "broken")
        with pytest.raises(ResponseTimeout):
            take_response(agent, 0.01)
        assert ask(agent, "again", timeout_s=10).text == "b"
        assert [text for role, text in texts(agent) if role == "user"] == [
            "go",
            "again",
            "steered",
            "followed",
        ]


# -- abort --


def test_abort_on_an_idle_agent_does_nothing():
    """Aborting when nothing runs says so."""
    with YiemAgent(ScriptedModel(["hello"])) as agent:
        assert abort_agent(agent) is False
        assert ask(agent, "hi", timeout_s=10).text == "hello"
        assert abort_agent(agent) is False


def test_an_aborted_run_is_an_answer():
    """The answer of an aborted run says so, with the reason, and the next message gets its run."""
    gate = Gate()
    with YiemAgent(ScriptedModel([gate.answer(failure("aborted", "aborted")), "next"])) as agent:
        run_agent(agent, "go")
        run_agent(agent, "and go on")
        gate.wait()
        assert abort_agent(agent, "enough") is True
        assert abort_agent(agent) is False

        assert take_response(agent, 10).stop_reason == "aborted"
        assert take_response(agent, 10).text == "next"


def test_a_run_that_has_not_begun_can_be_aborted():
    """Aborting right after sending reaches the run, whether or not it has begun."""
    for _ in range(50):
        with YiemAgent(ScriptedModel(default="never mind")) as agent:
            run_agent(agent, "go")
            if not abort_agent(agent):  # it was quicker, and is over
                assert take_response(agent, 10).text == "never mind"
                continue
            answer = take_response(agent, 10)
            assert answer.stop_reason in {"aborted", "stop"}
            assert texts(agent)[0] == ("user", "go")


def test_a_tool_may_abort_its_own_run():
    """Abort from inside a tool returns at once, and the run ends aborted with a result for every call."""
    sink = RecordingSink()

    def stop_it(*_):
        assert abort_agent(agent, "the tool says so")
        return "done"

    agent = YiemAgent(
        ScriptedModel([calls(call("stop_it"), call("other")), "never"]),
        tools=[tool("stop_it", stop_it), tool("other", lambda *_: "ran")],
        event_sink=sink,
    )
    with agent:
        run_agent(agent, "go")
        answer = take_response(agent, 10)

        assert (answer.stop_reason, answer.error_message) == (
            "aborted",
            "aborted: the tool says so",
        )
        results = agent.messages[2:]
        assert [(r.text, r.is_error) for r in results] == [
            ("done", False),
            ("Operation aborted", True),
        ]
        check_event_order(sink.events)


# -- continue --


def test_continue_after_a_failure():
    """After an error the run can be tried again on the history as it is."""
    with YiemAgent(ScriptedModel([failure("broken"), "fine"])) as agent:
        run_agent(agent, "go")
        assert take_response(agent, 10).stop_reason == "error"
        continue_agent(agent)

        assert take_response(agent, 10).text == "fine"
        assert [m.role for m in agent.messages] == ["user", "assistant", "assistant"]


def test_nothing_to_continue():
    """An empty history and a finished answer can't be continued."""
    with YiemAgent(ScriptedModel(["hello"])) as agent:
        with pytest.raises(AgentStateError, match="empty"):
            continue_agent(agent)
        ask(agent, "hi", timeout_s=10)
        with pytest.raises(AgentStateError, match="nothing to answer"):
            continue_agent(agent)


def test_continue_beside_a_run_is_refused():
    """While a run is going on there is nothing to continue."""
    gate = Gate()
    with YiemAgent(ScriptedModel([gate.answer("slow")])) as agent:
        run_agent(agent, "go")
        gate.wait()
        with pytest.raises(AgentStateError, match="going on"):
            continue_agent(agent)
        gate.open()
        take_response(agent, 10)


# -- stop --


def test_stop_hands_back_what_entered_no_run():
    """Stopping gives the messages that began no run, in the order in which they were sent."""
    gate = Gate()
    agent = YiemAgent(ScriptedModel([gate.answer("slow")]))
    run_agent(agent, "runs")
    gate.wait()
    run_agent(agent, "one")
    steer(agent, "two")
    run_agent(agent, "three")
    follow_up(agent, "four")
    opener = threading.Thread(target=lambda: (agent_closed(agent), gate.open()))
    opener.start()
    left = stop_agent(agent)
    opener.join(10)

    assert [message.text for message in left] == ["one", "two", "three", "four"]
    assert stop_agent(agent) == ()
    assert take_response(agent).text == "slow"
    with pytest.raises(AgentStopped):
        take_response(agent)


def test_messages_that_a_with_block_leaves_behind_are_named(caplog):
    """Whoever leaves before the answers is told that messages entered no run; with nothing left, nothing is said."""
    gate = Gate()
    with YiemAgent(ScriptedModel([gate.answer("one")]), name="ann") as agent:
        run_agent(agent, "first")
        gate.wait()
        run_agent(agent, "second")
        opener = threading.Thread(target=lambda: (agent_closed(agent), gate.open()))
        opener.start()
    opener.join(10)
    assert "agent 'ann' was left with 1 message(s) that entered no run" in caplog.text
    caplog.clear()

    with YiemAgent(ScriptedModel(["ok"])) as agent:
        ask(agent, "hi", timeout_s=10)
    assert caplog.text == ""


def agent_closed(agent):
    """Wait until an agent takes nothing more in."""
    core = agent._core
    with core._gate:
        while not core._input.closed:
            core._places.wait(10)


def test_a_stopped_agent_refuses_everything():
    """Nothing hangs on a stopped agent: every verb raises at once."""
    agent = YiemAgent(ScriptedModel(["hello"]))
    ask(agent, "hi", timeout_s=10)
    stop_agent(agent)

    for verb in (run_agent, ask, steer, follow_up):
        with pytest.raises(AgentStopped):
            verb(agent, "hi")
    with pytest.raises(AgentStopped):
        continue_agent(agent)
    with pytest.raises(AgentStopped):
        take_response(agent)
    assert abort_agent(agent) is False


def test_an_agent_that_was_never_used_can_be_stopped():
    """Stopping an unused agent starts no thread and gives nothing back."""
    agent = YiemAgent(ScriptedModel(["hello"]))

    assert stop_agent(agent) == ()
    with pytest.raises(AgentStopped):
        take_response(agent)


def test_stopping_wakes_everybody_who_waits():
    """A waiting ask, a waiting run_agent and a waiting take_response all raise when the agent is stopped."""
    gate = Gate()
    agent = YiemAgent(ScriptedModel([gate.answer("slow")]))
    run_agent(agent, "go")
    gate.wait()
    for number in range(15):
        run_agent(agent, f"m{number}")
    raised = []

    def waiter(function):
        try:
            function()
        except AgentStopped:
            raised.append(function)

    waits = [
        lambda: ask(agent, "asked"),
        lambda: run_agent(agent, "sent", timeout_s=None),
        lambda: (take_response(agent), take_response(agent)),
    ]
    threads = [threading.Thread(target=waiter, args=(wait,)) for wait in waits]
    for thread in threads:
        thread.start()
    while len(agent._core._input) < 16:  # until `asked` waits there, too
        pass
    stopper = threading.Thread(target=stop_agent, args=(agent,))
    stopper.start()
    agent_closed(agent)
    gate.open()
    for thread in (*threads, stopper):
        thread.join(10)

    assert len(raised) == 3


def test_stop_aborts_a_run_that_takes_too_long():
    """After the time allowed the run is aborted, and its answer can still be taken."""
    gate = Gate()
    agent = YiemAgent(ScriptedModel([gate.answer(failure("aborted", "aborted"))]))
    run_agent(agent, "go")
    gate.wait()

    assert stop_agent(agent, timeout_s=0.01) == ()
    assert take_response(agent).stop_reason == "aborted"


def test_leaving_the_with_block_by_an_exception_aborts():
    """An exception that leaves the block ends the run at once, and is the one that is seen."""
    gate = Gate()
    agent = YiemAgent(ScriptedModel([gate.answer(failure("aborted", "aborted"))]))
    with pytest.raises(KeyboardInterrupt), agent:
        run_agent(agent, "go")
        gate.wait()
        raise KeyboardInterrupt

    assert take_response(agent).stop_reason == "aborted"


def test_a_stopping_run_does_not_look_at_its_queues_again():
    """What waits when the agent is stopped does not join the run that is ending."""
    gate = Gate()
    agent = YiemAgent(ScriptedModel([gate.answer("first")], default="never"))
    run_agent(agent, "go")
    gate.wait()
    follow_up(agent, "too late")
    opener = threading.Thread(target=lambda: (agent_closed(agent), gate.open()))
    opener.start()
    left = stop_agent(agent)
    opener.join(10)

    assert [message.text for message in left] == ["too late"]
    assert take_response(agent).text == "first"


# -- waiting for oneself --


@pytest.mark.parametrize(
    ("what", "verb"),
    [
        ("ask", lambda agent: ask(agent, "x")),
        ("take_response", lambda agent: take_response(agent, 1)),
        ("stop_agent", stop_agent),
        ("run_agent", lambda agent: run_agent(agent, "x", timeout_s=1)),
        ("stop_agent", lambda agent: agent.__exit__(None, None, None)),
    ],
)
@pytest.mark.parametrize("place", ["tool", "hook", "sink"])
def test_waiting_for_the_run_that_one_is_in_is_refused(what, verb, place):
    """A call that would wait for its own run raises and names the chain, from tools, hooks and sinks."""
    raised = []

    def wait(*_args):
        try:
            verb(agent)
        except AgentStateError as error:
            raised.append(str(error))

    def sink(event):
        if place == "sink" and isinstance(event, AgentStartEvent):
            wait()

    agent = YiemAgent(
        ScriptedModel([call("waiter"), "done"]),
        tools=[tool("waiter", lambda *_: wait() if place == "tool" else None)],
        before_tool_call=(lambda *_: wait()) if place == "hook" else None,
        event_sink=sink,
        name="outer",
    )
    with agent:
        assert ask(agent, "go", timeout_s=10).text == "done"

    assert len(raised) == 1
    assert what in raised[0]
    assert "outer -> outer" in raised[0]


def test_waiting_in_a_circle_is_refused():
    """A tool of an agent that is asked by a tool of another can't ask the first."""
    raised = []

    def ask_outer(*_):
        with pytest.raises(AgentStateError) as error:
            ask(outer, "x")
        raised.append(str(error.value))
        return "refused"

    inner = YiemAgent(
        ScriptedModel([call("up"), "inner done"]), tools=[tool("up", ask_outer)], name="inner"
    )
    outer = YiemAgent(
        ScriptedModel([call("down"), "outer done"]),
        tools=[tool("down", lambda *_: ask(inner, "go").text)],
        name="outer",
    )
    with inner, outer:
        assert ask(outer, "go", timeout_s=10).text == "outer done"

    assert "outer -> inner -> outer" in raised[0]


def test_a_run_that_nobody_waits_for_may_be_asked_back():
    """run_agent waits for nothing, so what it starts may ask the agent that sent it."""
    answers = []

    def send_on(*_):
        run_agent(helper, "go")
        return "sent"

    helper = YiemAgent(
        ScriptedModel([call("back"), "helped"]),
        tools=[tool("back", lambda *_: answers.append(ask(main, "hello back").text))],
    )
    main = YiemAgent(
        ScriptedModel([call("send"), "sent it", "hello"]), tools=[tool("send", send_on)]
    )
    with main, helper:
        assert ask(main, "go", timeout_s=10).text == "sent it"
        assert take_response(helper, 10).text == "helped"

    assert answers == ["hello"]


# -- nesting, contexts, sinks --


def test_agents_inside_tools_of_agents_three_deep():
    """Parallel tools each run an agent, three levels deep, and none starves."""

    def agent_of(level):
        if level == 0:
            return YiemAgent(ScriptedModel(default="leaf"))
        below = level - 1

        def run_inner(*_):
            with agent_of(below) as inner:
                return ask(inner, "go", timeout_s=30).text

        names = [f"t{index}" for index in range(3)]
        tools = [tool(name, run_inner, parallel_tool_execute=True) for name in names]
        model = ScriptedModel(
            [
                calls(*[call(name) for name in names]),
                lambda context, _s: "+".join(m.text for m in context.messages[-3:]),
            ]
        )
        return YiemAgent(model, tools=tools)

    with agent_of(3) as agent:
        answer = ask(agent, "go", timeout_s=50)

    assert answer.text.count("leaf") == 27


def test_the_context_of_the_caller_holds_in_its_run():
    """Context variables of the sender are seen by hooks, sinks and tools of its run, and by no other run."""
    user = contextvars.ContextVar("user", default="nobody")
    seen = []

    def note(place):
        seen.append((place, user.get()))

    agent = YiemAgent(
        ScriptedModel([call("who"), "one", call("who"), "two"]),
        tools=[tool("who", lambda *_: note("tool"))],
        before_tool_call=lambda *_: note("hook"),
        event_sink=lambda event: note("sink") if isinstance(event, AgentStartEvent) else None,
    )
    with agent:
        for name in ("ann", "ben"):
            user.set(name)
            ask(agent, "go", timeout_s=10)

    assert seen == [
        ("sink", "ann"),
        ("hook", "ann"),
        ("tool", "ann"),
        ("sink", "ben"),
        ("hook", "ben"),
        ("tool", "ben"),
    ]


def test_an_answer_is_delivered_after_its_last_event():
    """Sinks have seen AgentEnd when the answer can be taken."""
    sink = RecordingSink()
    with YiemAgent(ScriptedModel(["hello"]), event_sink=sink) as agent:
        ask(agent, "hi", timeout_s=10)

        assert isinstance(sink.events[-1], AgentEndEvent)
        assert sink.events[-1].answer.text == "hello"
        check_event_order(sink.events)


def test_the_made_answer_is_in_no_history():
    """The answer of a terminated batch is delivered and enters neither the history nor a request."""
    model = ScriptedModel([call("finish"), "later"])
    finish = tool("finish", lambda *_: AgentToolResult("all set", terminate=True))
    with YiemAgent(model, tools=[finish]) as agent:
        answer = ask(agent, "go", timeout_s=10)

        assert answer.stop_reason == "tool_use_terminated"
        assert "Tool execution completed." in answer.text
        assert "all set" in answer.text
        assert [m.role for m in agent.messages] == ["user", "assistant", "toolResult"]
        continue_agent(agent)
        assert take_response(agent, 10).text == "later"
        assert len(model.requests[1].messages) == 3


def test_a_bug_in_a_hook_is_an_answer():
    """A hook that raises ends its run with an error answer, and the agent goes on."""
    sink = RecordingSink()
    bombs = [ValueError("boom")]

    def transform(messages, _signal):
        if bombs:
            raise bombs.pop()
        return messages

    with YiemAgent(ScriptedModel(["fine"]), transform_context=transform, event_sink=sink) as agent:
        failed = ask(agent, "go", timeout_s=10)

        assert (failed.stop_reason, failed.error_message) == ("error", "ValueError: boom")
        assert agent.state.error_message == "ValueError: boom"
        check_event_order(sink.events)
        assert ask(agent, "again", timeout_s=10).text == "fine"
        assert agent.state.error_message is None


def test_messages_answered_while_tools_run_are_in_the_state():
    """The state shows the run as it goes: active, the pending call, the history so far."""
    states = []

    def work(*_):
        states.append(agent.state)
        return "ok"

    agent = YiemAgent(ScriptedModel([call("work", None, "c1"), "done"]), tools=[tool("work", work)])
    with agent:
        ask(agent, "go", timeout_s=10)

    assert states[0].active_run
    assert states[0].pending_tool_calls == {"c1"}
    assert [m.role for m in states[0].messages] == ["user", "assistant"]
    assert not agent.state.active_run


def test_an_answer_is_an_assistant_message():
    """take_response gives an AssistantMessage."""
    with YiemAgent(ScriptedModel(["hello"])) as agent:
        run_agent(agent, "hi")

        assert isinstance(take_response(agent, 10), AssistantMessage)


def test_events_carry_turns_and_messages_in_order():
    """A run with one tool call has two turns, and its messages end in history order."""
    sink = RecordingSink()
    model = ScriptedModel([call("noop"), "done"])
    with YiemAgent(model, tools=[tool("noop", lambda *_: "ok")], event_sink=sink) as agent:
        ask(agent, "go", timeout_s=10)

        assert [e.message for e in sink.of(MessageEndEvent)] == list(agent.messages)
        assert len(sink.of(TurnEndEvent)) == 2
        assert sink.of(ToolExecStartEvent)[0].tool_name == "noop"
