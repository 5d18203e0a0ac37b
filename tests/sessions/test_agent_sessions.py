"""An agent on a session: what is written when, and how it goes on."""

from __future__ import annotations

import gc
import itertools
import threading
import time
from datetime import UTC, datetime, timedelta

import attrs
import pytest

from tests.sessions.stores import HEADER
from tests.support.loops import parallel, tool
from yiemagent.agent import YiemAgent
from yiemagent.api import (
    abort_agent,
    ask,
    continue_agent,
    follow_up,
    resume_agent,
    run_agent,
    steer,
    stop_agent,
    take_response,
)
from yiemagent.errors import AgentStateError, AgentStopped, ConfigurationError, SessionError
from yiemagent.events import (
    AgentEndEvent,
    MessageEndEvent,
    ToolExecEndEvent,
    ToolExecStartEvent,
)
from yiemagent.history import check
from yiemagent.messages import AssistantMessage, ImageContent, ToolCall, UserMessage
from yiemagent.sessions import (
    MessageBody,
    QueuedBody,
    RunEndBody,
    Session,
    ToolCallStartedBody,
)
from yiemagent.sessions.store import MemoryStore
from yiemagent.streaming import DoneEvent
from yiemagent.testing import RecordingSink, ScriptedModel, call, calls, check_event_order
from yiemagent.tool import AgentToolResult

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
HI = UserMessage("hi", NOON)
CALLS = AssistantMessage((ToolCall("a", "work"), ToolCall("b", "work")), stop_reason="tool_use")
AGAIN = {"idempotentHint": True}


def kinds(session):
    """The kinds of a session's entries, in order."""
    return [entry.type for entry in session.entries()]


def texts(messages):
    """Roles and texts."""
    return [(message.role, message.text) for message in messages]


def interrupted(*bodies):
    """A session whose process was killed after these entries."""
    session = Session.in_memory()
    for body in bodies:
        session.append(body)
    return Session(session._store)


# -- what is written when ---------------------------------------------------------------------------------------------


def test_a_tools_impossible_result_hurts_no_session():
    """The model is told of it, the run goes on, and the session can be read and gone on with."""
    session = Session.in_memory()
    made = tool("work", lambda *_: ImageContent(b"png", "image/png"))
    model = ScriptedModel([call("work", {}, "c1"), "No image.", "Still here."])
    with YiemAgent(model, tools=[made], session=session) as agent:
        first, second = ask(agent, "Show me."), ask(agent, "And now?")

    assert (first.text, second.text) == ("No image.", "Still here.")
    result = Session(session._store).messages[2]
    assert result.text == "TypeError: ImageContent.data must be text, not bytes"


def test_everything_is_written_before_it_matters():
    """The question before the model is asked, the answer before its tools run, a call's start before its effect."""
    session = Session.in_memory()
    seen = {}

    def model(_context, _signal):
        seen.setdefault("asked", kinds(session))
        return calls(call("work", {}, "c1"))

    def work(*_args):
        seen["works"] = kinds(session)
        return "worked"

    with YiemAgent(
        ScriptedModel([model, "done"]), session=session, tools=[tool("work", work)]
    ) as agent:
        run_agent(agent, "hi")
        take_response(agent)

    assert seen["asked"] == ["queued", "delivered"]
    assert seen["works"] == ["queued", "delivered", "message", "tool_call_started"]
    assert kinds(session)[4:] == ["message", "message"]
    assert texts(session.messages) == [
        ("user", "hi"),
        ("assistant", ""),
        ("toolResult", "worked"),
        ("assistant", "done"),
    ]


def test_a_call_is_written_as_started_when_it_starts():
    """Not while a person is asked about it, and not while the calls before it run."""
    session = Session.in_memory()
    seen = {}

    def approve(context, _signal):
        seen[f"asked {context.tool_call.id}"] = kinds(session).count("tool_call_started")

    def work(call_id, *_args):
        seen[f"runs {call_id}"] = [
            e.body.call_id for e in session.entries() if isinstance(e.body, ToolCallStartedBody)
        ]

    model = ScriptedModel([calls(*[call("work", {}, name) for name in "abc"]), "done"])
    with YiemAgent(
        model, session=session, tools=[tool("work", work)], before_tool_call=approve
    ) as agent:
        ask(agent, "hi")

    assert seen == {
        "asked a": 0,
        "asked b": 0,
        "asked c": 0,
        "runs a": ["a"],
        "runs b": ["a", "b"],
        "runs c": ["a", "b", "c"],
    }


def test_calls_that_never_run_are_not_written_as_started():
    """One that is unknown, was blocked or came with a cut-off answer leaves its result only."""
    session = Session.in_memory()
    cut = attrs.evolve(calls(call("work", {}, "c")), stop_reason="length")
    model = ScriptedModel([calls(call("gone", {}, "a"), call("work", {}, "b")), cut, "done"])
    with YiemAgent(
        model,
        session=session,
        tools=[tool("work")],
        before_tool_call=lambda *_: {"block": True},
    ) as agent:
        ask(agent, "hi")

    assert kinds(session) == ["message"] * 7


def reopened_at(session, step):
    """What one who opens a session finds in its conversation's results, had its process been killed at a step."""
    killed = MemoryStore(session._store.header)
    for line in session._store.lines():
        killed.append(line)
    step.extend(m.text.split(":")[0] for m in Session(killed).messages if m.role == "toolResult")


def test_a_process_killed_while_a_person_is_asked_ran_nothing():
    """Opened again, no call of the answer is called interrupted: none was run."""
    session, found = Session.in_memory(), []
    model = ScriptedModel([calls(call("work", {}, "a"), call("work", {}, "b")), "done"])

    def approve(context, _signal):
        if context.tool_call.id == "b":
            reopened_at(session, found)

    with YiemAgent(model, session=session, tools=[tool("work")], before_tool_call=approve) as agent:
        ask(agent, "hi")

    assert found == ["This call was not run"] * 2


def test_a_process_killed_in_one_of_several_calls_left_one_unknown():
    """Where calls run one after another, the one under way is interrupted, and those behind it were not run."""
    session, found = Session.in_memory(), []

    def work(call_id, *_args):
        if call_id == "b":
            reopened_at(session, found)
        return f"{call_id} worked"

    model = ScriptedModel([calls(*[call("work", {}, name) for name in "abc"]), "done"])
    with YiemAgent(model, session=session, tools=[tool("work", work)]) as agent:
        ask(agent, "hi")

    assert found == ["a worked", "Interrupted", "This call was not run"]


def test_a_result_is_written_as_soon_as_it_is_there():
    """While another call of the batch still runs, the result of one that is done is in the session."""
    session = Session.in_memory()
    written = threading.Event()
    found = []

    def slow(*_args):
        assert written.wait(10)
        found.append(kinds(session)[-1])
        return "slow"

    def sink(event):
        if isinstance(event, ToolExecEndEvent):
            written.set()

    with YiemAgent(
        ScriptedModel([calls(call("slow", {}, "s"), call("quick", {}, "q")), "done"]),
        session=session,
        tools=[parallel("slow", slow), parallel("quick")],
        event_sink=sink,
    ) as agent:
        ask(agent, "hi")

    assert found == ["message"]
    assert [m.text for m in session.messages[2:4]] == ["slow", "quick done"]
    assert session.messages == agent.messages


def test_nobody_is_told_of_what_is_not_written():
    """When a sink hears of a message, it is in the session."""
    session = Session.in_memory()
    missing = []

    def sink(event):
        if isinstance(event, MessageEndEvent) and session.messages[-1] != event.message:
            missing.append(event.message)

    with YiemAgent(
        ScriptedModel([calls(call("work", {})), "done"]),
        session=session,
        tools=[tool()],
        event_sink=sink,
    ) as agent:
        ask(agent, "hi")

    assert missing == []
    assert session.messages == agent.messages


def test_a_message_is_written_before_it_is_accepted():
    """What run_agent, steer and follow_up returned for waits in the session, for what it was sent for."""
    session = Session.in_memory()
    entered, go_on = threading.Event(), threading.Event()

    def model(_context, _signal):
        entered.set()
        assert go_on.wait(10)
        return "done"

    with YiemAgent(ScriptedModel([model], default="more"), session=session) as agent:
        run_agent(agent, "one")
        assert entered.wait(10)
        run_agent(agent, "two")
        assert not steer(agent, "steer").started
        assert not follow_up(agent, "later").started
        waiting = [(kind, message.text) for kind, message in session.waiting]
        go_on.set()
        take_response(agent)
        take_response(agent)

    assert waiting == [("input", "two"), ("steering", "steer"), ("follow_up", "later")]
    assert session.waiting == ()
    assert [m.text for m in session.messages if m.role == "user"] == [
        "one",
        "steer",
        "later",
        "two",
    ]


def test_a_steer_that_starts_a_run_waits_for_one():
    """On an idle agent a message that would join is one that gets a run of its own."""
    session = Session.in_memory()
    with YiemAgent(ScriptedModel(["done"]), session=session) as agent:
        assert steer(agent, "go").started
        take_response(agent)

    assert session.entries()[0].body.kind == "input"


def test_an_aborted_run_is_written_to_its_end():
    """What came is kept as aborted, every call has its result, and the run's end is there."""
    session = Session.in_memory()

    def work(_id, _args, signal, _update):
        abort_agent(agent)
        signal.wait(10)
        return "too late"

    model = ScriptedModel([calls(call("work", {}), call("work", {}))])
    with YiemAgent(model, session=session, tools=[tool("work", work)]) as agent:
        answer = ask(agent, "hi")

    assert answer.stop_reason == "aborted"
    assert check(session.messages) == []
    assert session.messages == agent.messages
    assert session.entries()[-1].body == RunEndBody("aborted")
    assert not session.interrupted


def test_an_agent_that_starts_with_messages_writes_them():
    """Given messages begin an empty session; a session that has some begins the agent."""
    session = Session.in_memory()
    with YiemAgent(ScriptedModel(["done"]), session=session, messages=[HI]) as agent:
        assert agent.messages == (HI,)
        continue_agent(agent)
        take_response(agent)
    with YiemAgent(ScriptedModel(["again"]), session=session) as agent:
        assert texts(agent.messages) == [("user", "hi"), ("assistant", "done")]
        ask(agent, "more")

    assert [m.text for m in session.messages] == ["hi", "done", "more", "again"]


def test_the_session_is_the_cache_key():
    """The model is asked with the session's id, unless another is given."""
    session = Session.in_memory()
    for session_id, expected in ((None, session.id), ("mine", "mine")):
        asked = []

        def model(_context, options, _signal, asked=asked):
            asked.append(options.session_id)
            yield DoneEvent(AssistantMessage("done"))

        with YiemAgent(model, session=session, session_id=session_id) as agent:
            ask(agent, "hi")
        assert asked == [expected]


# -- whose the session is ---------------------------------------------------------------------------------------------


def test_what_is_no_session_is_refused():
    """Anything else is an error, and so is a session with messages beside messages."""
    with pytest.raises(
        ConfigurationError, match=r"session must be a Session, such as Session\.open"
    ):
        YiemAgent(ScriptedModel([]), session="chat.jsonl")
    session = Session.in_memory()
    session.add_message(HI)
    with pytest.raises(ConfigurationError, match="the session has messages already"):
        YiemAgent(ScriptedModel([]), session=session, messages=[HI])
    YiemAgent(ScriptedModel([]), session=session)


def test_one_agent_at_a_time_works_on_a_session():
    """A second agent is refused while the first is there, and welcome when it is stopped or nobody holds it."""
    session = Session.in_memory()
    first = YiemAgent(ScriptedModel(["done"]), session=session, name="first")
    with pytest.raises(ConfigurationError, match="agent 'first' works on this session"):
        YiemAgent(ScriptedModel([]), session=session)
    ask(first, "hi")
    stop_agent(first)
    unused = YiemAgent(ScriptedModel([]), session=session)
    del unused
    gc.collect()
    stopped = YiemAgent(ScriptedModel([]), session=session)
    stop_agent(stopped)
    with pytest.raises(ConfigurationError, match="has no option nonsense"):
        YiemAgent(ScriptedModel([]), session=session, nonsense=1)

    assert len(YiemAgent(ScriptedModel([]), session=session).messages) == 2


def test_an_agent_that_nobody_holds_finishes_and_lets_go():
    """What it accepted is done and written before the session is free."""
    session = Session.in_memory()
    over = threading.Event()

    def sink(event):
        if isinstance(event, AgentEndEvent):
            over.set()

    agent = YiemAgent(ScriptedModel(["done"]), session=session, event_sink=sink)
    run_agent(agent, "hi")
    thread = agent._core._thread
    del agent
    gc.collect()
    assert over.wait(10)
    thread.join(10)

    with YiemAgent(ScriptedModel([]), session=session) as agent:
        assert texts(agent.messages) == [("user", "hi"), ("assistant", "done")]


# -- messages that entered no run -------------------------------------------------------------------------------------


def failing_with_queue(session, end):
    """Have a run fail with a message queued, and end the agent; gives what `end` gave."""

    def model(_context, _signal):
        steer(agent, "later")
        return RuntimeError("no model")

    agent = YiemAgent(ScriptedModel([model]), session=session)
    ask(agent, "hi")
    return end(agent)


def test_what_stop_agent_hands_back_is_not_restored():
    """A message is handed back or waits in the session, never both."""
    session = Session.in_memory()

    assert [m.text for m in failing_with_queue(session, stop_agent)] == ["later"]
    assert session.waiting == ()


def test_what_nobody_takes_waits_in_the_session():
    """Leaving the `with` block gives nothing back, so what waited is restored for the next agent."""
    session = Session.in_memory()

    failing_with_queue(session, lambda agent: agent.__exit__(None, None, None))
    assert [(kind, m.text) for kind, m in session.waiting] == [("steering", "later")]

    with YiemAgent(ScriptedModel(["first", "second"]), session=session) as agent:
        ask(agent, "next")
    assert [m.text for m in session.messages if m.role == "user"] == ["hi", "next", "later"]


# -- going on ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["chat.jsonl", "chat.db"])
def test_a_clock_that_jumps_back_changes_nothing(name, tmp_path):
    """With each entry an hour older than the one before, an agent works, is killed and goes on as ever."""
    hours = itertools.count()

    def clock():
        return NOON - timedelta(hours=next(hours))

    def model(_context, _signal):
        follow_up(agent, "and then")
        return calls(call("work", {}, "a"), call("work", {}, "b"))

    with (
        Session.create(tmp_path / name, fsync="never", clock=clock) as session,
        YiemAgent(
            ScriptedModel([model, "one", "two"]), session=session, tools=[parallel("work")]
        ) as agent,
    ):
        ask(agent, "hi")
    with Session.open(tmp_path / name, clock=clock) as session:  # and somebody is killed
        for body in (QueuedBody("input", UserMessage("last")), MessageBody(HI), MessageBody(CALLS)):
            session.append(body)
        session.append(ToolCallStartedBody("b", "work"))
    with (
        Session.open(tmp_path / name, clock=clock) as session,
        YiemAgent(ScriptedModel(["three", "four"]), session=session) as agent,
    ):
        assert resume_agent(agent)
        assert [take_response(agent).text for _ in range(2)] == ["three", "four"]
    with Session.open(tmp_path / name, read_only=True) as session:
        entries, messages = session.entries(), session.messages

    assert [entry.id for entry in entries] == list(range(1, len(entries) + 1))
    assert [e.time for e in entries] == sorted((e.time for e in entries), reverse=True)
    assert [m.text.split(":")[0] for m in messages] == [
        *["hi", "", "work done", "work done", "one", "and then", "two"],
        *["hi", "", "This call was not run", "Interrupted", "three", "last", "four"],
    ]


def test_there_may_be_nothing_to_resume():
    """After a run that ended, resuming gives False and asks nobody."""
    session = Session.in_memory()
    for _ in range(2):
        with YiemAgent(ScriptedModel(["done"]), session=session) as agent:
            assert not resume_agent(agent)
            ask(agent, "hi")


def test_a_question_without_an_answer_is_answered():
    """A process that was killed while the model was asked: the model is asked again."""
    session = interrupted(MessageBody(HI))
    with YiemAgent(ScriptedModel(["done"]), session=session) as agent:
        assert resume_agent(agent)
        assert take_response(agent).text == "done"

    assert texts(session.messages) == [("user", "hi"), ("assistant", "done")]


def test_an_interrupted_call_is_answered_as_unknown():
    """The model is told that the outcome is unknown, and nothing runs again."""
    session = interrupted(MessageBody(HI), MessageBody(CALLS), ToolCallStartedBody("a", "work"))
    ran = []
    model = ScriptedModel(["I see"])
    work = tool("work", lambda *_args: ran.append(1), annotations=AGAIN)
    with YiemAgent(model, session=session, tools=[work]) as agent:
        assert resume_agent(agent)
        assert take_response(agent).text == "I see"

    assert ran == []
    assert [m.text.split(":")[0] for m in model.requests[0].messages[2:]] == [
        "Interrupted",
        "This call was not run",
    ]
    assert session.messages == agent.messages
    assert Session(session._store).messages == agent.messages


@pytest.mark.parametrize("started", ["abc", "ac", "bc"])
def test_idempotent_calls_run_again_where_that_is_asked_for(started):
    """Those whose tool says it does no harm run, had they started or not, before the model is asked; others are
    closed.
    """
    answer = AssistantMessage(
        (ToolCall("a", "safe", {"n": 1}), ToolCall("b", "unsafe"), ToolCall("c", "gone"))
    )
    session = interrupted(
        MessageBody(HI),
        MessageBody(answer),
        *[ToolCallStartedBody(call_id, "x") for call_id in started],
    )
    ran, sink = [], RecordingSink()
    approved = []
    tools = [
        tool(
            "safe",
            lambda call_id, args, *_: ran.append((call_id, args)) or "safe done",
            annotations=AGAIN,
        ),
        tool("unsafe", lambda *_: ran.append("unsafe"), annotations={"idempotentHint": False}),
    ]
    model = ScriptedModel(["done"])
    with YiemAgent(
        model,
        session=session,
        tools=tools,
        event_sink=sink,
        before_tool_call=lambda context, _signal: approved.append(context.tool_call.id),
    ) as agent:
        assert resume_agent(agent, retry_idempotent=True)
        assert take_response(agent).text == "done"

    check_event_order(sink.events)
    assert agent.messages == session.messages
    assert model.requests[0].messages == agent.messages[:-1]
    assert ran == [("a", {"n": 1})]
    assert approved == ["a"]
    assert [e.tool_call_id for e in sink.of(ToolExecStartEvent)] == ["a"]
    after = Session(session._store).messages
    assert [m.text.split(":")[0] for m in after[2:]] == [
        "safe done",
        "Interrupted" if "b" in started else "This call was not run",
        "Interrupted",
        "done",
    ]
    assert check(after) == []


def test_a_call_that_runs_again_may_end_the_run():
    """Where its result asks to stop, the run ends with it, as it would have."""
    session = interrupted(
        MessageBody(HI), MessageBody(calls(call("end", {}, "a"))), ToolCallStartedBody("a", "end")
    )
    end = tool("end", lambda *_: AgentToolResult("bye", terminate=True), annotations=AGAIN)
    with YiemAgent(ScriptedModel([]), session=session, tools=[end]) as agent:
        resume_agent(agent, retry_idempotent=True)
        answer = take_response(agent)

    assert answer.stop_reason == "tool_use_terminated"
    assert "bye" in answer.text
    assert not session.interrupted


def test_a_call_that_runs_again_can_be_aborted():
    """An abort answers it, and ends the run before the model is asked."""
    session = interrupted(
        MessageBody(HI), MessageBody(calls(call("work", {}, "a"))), ToolCallStartedBody("a", "work")
    )
    sink = RecordingSink()

    def work(_id, _args, signal, _update):
        abort_agent(agent)
        signal.wait(10)
        raise RuntimeError

    with YiemAgent(
        ScriptedModel([]),
        session=session,
        tools=[tool("work", work, annotations=AGAIN)],
        event_sink=sink,
    ) as agent:
        resume_agent(agent, retry_idempotent=True)
        assert take_response(agent).stop_reason == "aborted"

    check_event_order(sink.events)
    assert check(session.messages) == []
    assert session.messages == agent.messages


@pytest.mark.abandons_threads(1)
def test_a_call_that_runs_again_and_hangs_is_left_behind():
    """Where it ignores an abort, it is answered for after the grace, and the events keep their grammar."""
    session = interrupted(
        MessageBody(HI), MessageBody(calls(call("work", {}, "a"))), ToolCallStartedBody("a", "work")
    )
    sink, hang = RecordingSink(), threading.Event()

    def approve(_context, _signal):
        abort_agent(agent)
        hang.wait(20)

    agent = YiemAgent(
        ScriptedModel([]),
        session=session,
        tools=[tool("work", annotations=AGAIN)],
        event_sink=sink,
        before_tool_call=approve,
        abort_grace_s=0.05,
    )
    resume_agent(agent, retry_idempotent=True)
    answer = take_response(agent, 10)
    stop_agent(agent)
    hang.set()

    assert answer.stop_reason == "aborted"
    check_event_order(sink.events)
    assert check(session.messages) == []


def test_messages_that_waited_get_their_runs():
    """Each gets its run and its answer, in order, after the run that was interrupted."""
    session = interrupted(
        QueuedBody("input", UserMessage("two")), QueuedBody("input", UserMessage("three"))
    )
    with YiemAgent(ScriptedModel(["2", "3"]), session=session) as agent:
        assert resume_agent(agent)
        assert [take_response(agent).text for _ in range(2)] == ["2", "3"]
    session = interrupted(MessageBody(HI), QueuedBody("input", UserMessage("two")))
    with YiemAgent(ScriptedModel(["1", "2"]), session=session) as agent:
        assert resume_agent(agent)
        assert [take_response(agent).text for _ in range(2)] == ["1", "2"]

    assert [m.text for m in session.messages] == ["hi", "1", "two", "2"]
    assert session.waiting == ()


@pytest.mark.parametrize("kind", ["steering", "follow_up"])
def test_a_message_that_would_have_joined_starts_a_run(kind):
    """Where no run was interrupted, a message that waited to join one gets a run of its own."""
    session = interrupted(
        QueuedBody(kind, UserMessage("join")), QueuedBody(kind, UserMessage("too"))
    )
    with YiemAgent(ScriptedModel(["done"], default="more"), session=session) as agent:
        assert resume_agent(agent)
        take_response(agent)

    assert [m.text for m in session.messages if m.role == "user"] == ["join", "too"]
    assert session.waiting == ()


def test_messages_that_wait_go_before_new_ones():
    """Without resuming, they begin with the next message, in the order in which they were accepted."""
    session = interrupted(QueuedBody("input", UserMessage("old")))
    with YiemAgent(ScriptedModel(["1", "2"]), session=session) as agent:
        run_agent(agent, "new")
        assert [take_response(agent).text for _ in range(2)] == ["1", "2"]

    assert [m.text for m in session.messages] == ["old", "1", "new", "2"]


def test_resuming_comes_first():
    """An agent that was sent something, was stopped or has no session can't be resumed."""
    with pytest.raises(AgentStateError, match="agent 'plain' has no session to resume"):
        resume_agent(YiemAgent(ScriptedModel(["done"]), name="plain"))
    with YiemAgent(ScriptedModel(["done"]), session=Session.in_memory()) as agent:
        ask(agent, "hi")
        with pytest.raises(AgentStateError, match="is at work already"):
            resume_agent(agent)
    with pytest.raises(AgentStopped):
        resume_agent(agent)


# -- a disk that hangs ------------------------------------------------------------------------------------------------


class Hanging(MemoryStore):
    """A store whose writes hang, once it is told so, until they are let go."""

    def __init__(self):
        super().__init__(HEADER)
        self.hangs = False
        self.entered, self.go_on = threading.Event(), threading.Event()

    def append(self, line, *, durable=True):
        """Take a line, in its time."""
        if self.hangs:
            self.entered.set()
            assert self.go_on.wait(20)
        super().append(line, durable=durable)


def aborted_while(hangs):
    """Abort a run while a write of its session hangs; gives what abort_agent gave, and how many seconds it took.

    Args:
        hangs: given the agent and its store while the model is asked; has a write begin that hangs.
    """
    store, asked, leave = Hanging(), threading.Event(), threading.Event()

    def model(_context, signal):
        asked.set()
        assert leave.wait(20) or signal.aborted
        return "done"

    with YiemAgent(ScriptedModel([model], default="more"), session=Session(store)) as agent:
        run_agent(agent, "hi")
        assert asked.wait(20)
        store.hangs = True
        sender = threading.Thread(target=hangs, args=(agent, leave))
        sender.start()
        assert store.entered.wait(20)
        begun = time.monotonic()
        aborted = abort_agent(agent, "enough")
        took_s = time.monotonic() - begun
        leave.set()
        store.go_on.set()
        answer = take_response(agent)
        sender.join()

    assert Session(store).messages == agent.messages
    assert answer.stop_reason in {"aborted", "stop"}  # an answer that was whole stays one
    return aborted, took_s


@pytest.mark.parametrize(
    "hangs",
    [
        lambda agent, _leave: run_agent(agent, "next"),
        lambda agent, _leave: steer(agent, "also"),
        lambda _agent, leave: leave.set(),
    ],
    ids=["a message that is accepted", "a message that joins", "an answer"],
)
def test_an_abort_does_not_wait_for_a_disk_that_hangs(hangs):
    """Whichever write of the session hangs, abort_agent returns at once, and its signal is set."""
    found = [aborted_while(hangs) for _ in range(3)]

    assert [aborted for aborted, _ in found] == [True] * 3
    assert min(took_s for _, took_s in found) < 0.1


def test_an_abort_finds_nothing_where_a_disk_keeps_a_message_from_being_accepted():
    """What hangs is not accepted yet, so there is no run to abort, and it gets its run later."""
    store = Hanging()
    store.hangs = True
    with YiemAgent(ScriptedModel(["done"]), session=Session(store)) as agent:
        sender = threading.Thread(target=run_agent, args=(agent, "hi"))
        sender.start()
        assert store.entered.wait(20)
        aborted = abort_agent(agent)
        store.go_on.set()
        answer = take_response(agent)
        sender.join()

    assert (aborted, answer.text) == (False, "done")


# -- a disk that is full ----------------------------------------------------------------------------------------------


class Full(MemoryStore):
    """A store that takes so many more lines."""

    left = 99

    def append(self, line, *, durable=True):
        """Take a line, or none any more."""
        if self.left <= 0:
            raise SessionError("the disk is full")
        self.left -= 1
        super().append(line, durable=durable)


@pytest.fixture
def full():
    """A session over a store that can be full."""
    store = Full(HEADER)
    session = Session(store)
    session.disk = store
    return session


def test_a_message_that_can_not_be_written_is_not_accepted(full):
    """The sender is told, nothing waits and nothing runs; with space again the agent works."""
    with YiemAgent(ScriptedModel(["done"]), session=full) as agent:
        full.disk.left = 0
        with pytest.raises(SessionError, match="the disk is full"):
            run_agent(agent, "hi")
        full.disk.left = 99
        assert ask(agent, "again").text == "done"

    assert [m.text for m in full.messages] == ["again", "done"]
    assert full.waiting == ()


def test_a_steer_that_can_not_be_written_is_not_accepted(full):
    """A message that would have joined a run joins none."""
    refused = []

    def model(_context, _signal):
        full.disk.left = 0
        with pytest.raises(SessionError) as caught:
            steer(agent, "no")
        refused.append(str(caught.value))
        full.disk.left = 99
        return "done"

    with YiemAgent(ScriptedModel([model]), session=full) as agent:
        ask(agent, "hi")

    assert refused == ["the disk is full"]
    assert [m.text for m in full.messages] == ["hi", "done"]


@pytest.mark.parametrize("room", range(7))
def test_a_full_disk_is_an_error_answer_and_loses_nothing(room, full, caplog):
    """Wherever the disk is full, the run ends at once with an error; what it told is written with the next run."""
    ran, sink = [], RecordingSink()
    model = ScriptedModel([calls(call("work", {}, "c1"))], default="done")
    with YiemAgent(
        model, session=full, tools=[tool("work", lambda *_: ran.append(1))], event_sink=sink
    ) as agent:
        full.disk.left = room
        answer = ask(agent, "hi")
        asked, before = len(model.requests), len(ran)
        told = [event.message for event in sink.of(MessageEndEvent)]
        full.disk.left = 99
        assert agent.messages == tuple(told)
        assert ask(agent, "more").text == "done"

    assert full.messages == agent.messages
    assert check(full.messages) == []
    assert full.waiting == ()
    assert kinds(full).count("tool_call_started") == (room == 0 or room > 2)
    if room < 5:
        assert (answer.stop_reason, answer.error_message) == (
            "error",
            "SessionError: the disk is full",
        )
        assert asked == (room > 0) + (room > 3)
        assert before == (room > 2)
        assert len(caplog.records) >= 1
    else:
        assert answer.text == "done"


@pytest.mark.parametrize("when", ["before the run", "amid the run", "before a call"])
def test_a_session_that_is_closed_under_its_agent_is_logged_once(when, tmp_path, caplog):
    """The answer says so, and the log in one line; the agent can be stopped as ever."""
    session = Session.create(tmp_path / "talk.jsonl")

    def close(here, result=None):
        if when == here:
            session.close()
        return result

    agent = YiemAgent(
        ScriptedModel([lambda *_: close("amid the run", calls(call("work", {})))]),
        session=session,
        name="a",
        tools=[tool("work", lambda *_: "x")],
        before_tool_call=lambda *_: close("before a call"),
    )
    close("before the run")
    answer = ask(agent, "hi")
    stop_agent(agent)

    why = f"SessionError: {tmp_path / 'talk.jsonl'} is closed; open it again"
    assert (answer.stop_reason, answer.error_message) == ("error", why)
    [record] = caplog.records
    assert record.getMessage() == f"yiem-a-run-1 could not be recorded: {why}"
    assert (record.levelname, record.exc_info) == ("ERROR", None)


def test_what_closes_an_aborted_run_and_is_not_written_is_told(full):
    """The answer of an aborted run says that the session could not be written, and the next run writes it."""

    def work(_id, _args, signal, _update):
        full.disk.left = 0
        abort_agent(agent)
        signal.wait(10)
        return "x"

    with YiemAgent(
        ScriptedModel([calls(call("work", {}))], default="done"),
        session=full,
        tools=[tool("work", work)],
    ) as agent:
        answer = ask(agent, "hi")
        full.disk.left = 99
        ask(agent, "more")

    assert answer.stop_reason == "aborted"
    assert "the disk is full" in answer.error_message
    assert full.messages == agent.messages


def test_calls_beside_one_that_can_not_be_recorded_are_told_to_end(full):
    """Where the run ends in the middle of a batch, the signals of the calls that still run are set."""
    ended = threading.Event()

    def quick(*_args):
        assert under_way.wait(10)
        full.disk.left = 0

    def slow(_id, _args, signal, _update):
        under_way.set()
        signal.wait(10)
        ended.set()

    under_way = threading.Event()
    model = ScriptedModel([calls(call("slow", {}), call("quick", {}))])
    tools = [parallel("slow", slow), parallel("quick", quick)]
    with YiemAgent(model, session=full, tools=tools) as agent:
        answer = ask(agent, "hi")
        assert ended.wait(10)

    assert answer.error_message == "SessionError: the disk is full"
    assert [m.text[:11] for m in agent.messages[2:]] == ["The run fai", ""]
