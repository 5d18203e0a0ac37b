"""The agent among threads and processes: nothing is lost or doubled, nothing hangs, nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import pathlib
import signal as signals
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.loops import quickest
from yiemagent import (
    AgentStopped,
    AgentTool,
    ChannelFull,
    YiemAgent,
    abort_agent,
    ask,
    continue_agent,
    follow_up,
    run_agent,
    steer,
    stop_agent,
    take_response,
)
from yiemagent.agent_core import AgentCore
from yiemagent.events import AgentEndEvent, MessageUpdateEvent, ToolExecStartEvent
from yiemagent.history import check
from yiemagent.run import Run
from yiemagent.sessions import Session
from yiemagent.testing import RecordingSink, ScriptedModel, call, calls, check_event_order, failure


def tool(name, function, **options):
    return AgentTool(name, description=f"the tool {name}", execute=function, **options)


def runs_of(events):
    """Split recorded events into the runs they belong to, in the order in which the runs began."""
    runs = {}
    for event in events:
        runs.setdefault(event.run_id, []).append(event)
    return list(runs.values())


# -- nothing lost, nothing doubled --


class Conversation(RuleBasedStateMachine):
    """Random messages, aborts and failures: each message ends in one place, each accepted run in one answer."""

    def __init__(self):
        super().__init__()
        self.sink = RecordingSink()
        self.agent = YiemAgent(
            ScriptedModel(default=self._answer),
            tools=[tool("noop", lambda *_: "ok", parallel_tool_execute=True)],
            event_sink=self.sink,
            max_turns=5,
        )
        self.sent = []
        self.answers_due = 0
        self.answers = []
        self.asked = 0

    def _answer(self, context, _signal):
        text = context.messages[-1].text
        if context.messages[-1].role == "user" and "tool" in text:
            return calls(call("noop"), call("noop"))
        return failure("as the test wishes") if "fail" in text else f"re {text}"

    def _next(self, kind):
        self.sent.append(f"{len(self.sent)} {kind}")
        return self.sent[-1]

    @rule(kind=st.sampled_from(["text", "tool", "fail"]))
    def run(self, kind):
        message = self._next(kind)
        try:
            run_agent(self.agent, message)
            self.answers_due += 1
        except ChannelFull:
            self.sent.remove(message)

    @rule(kind=st.sampled_from(["text", "tool", "fail"]), verb=st.sampled_from([steer, follow_up]))
    def join(self, kind, verb):
        message = self._next(kind)
        try:
            self.answers_due += verb(self.agent, message).started
        except ChannelFull:
            self.sent.remove(message)

    @rule()
    def abort(self):
        abort_agent(self.agent, "as the test wishes")

    @precondition(lambda self: self.answers_due > len(self.answers))
    @rule()
    def take(self):
        self.answers.append(take_response(self.agent, 20))

    @rule(kind=st.sampled_from(["text", "tool"]))
    def ask(self, kind):
        message = self._next(kind)
        answer = ask(self.agent, message, timeout_s=20)
        self.asked += 1
        assert answer.stop_reason in {"stop", "aborted", "error"}

    @invariant()
    def the_history_has_what_was_sent_once(self):
        texts = [m.text for m in self.agent.messages if m.role == "user"]
        assert len(set(texts)) == len(texts)
        assert set(texts) <= set(self.sent)

    def finish(self):
        """Take the answers that are due; each accepted run gives one."""
        while len(self.answers) < self.answers_due:
            self.answers.append(take_response(self.agent, 20))

    def teardown(self):
        self.finish()
        left = [message.text for message in stop_agent(self.agent)]
        with pytest.raises(AgentStopped):
            while True:
                self.answers.append(take_response(self.agent, 0))
        history = [m.text for m in self.agent.messages if m.role == "user"]
        ends = self.sink.of(AgentEndEvent)

        assert sorted(left + history) == sorted(self.sent)
        assert left == sorted(left, key=self.sent.index)
        assert len(self.answers) + self.asked == len(ends)
        assert [e.answer for e in ends if any(e.answer is a for a in self.answers)] == self.answers
        for events in runs_of(self.sink.events):
            check_event_order(events)
        assert not [fault for fault in check(self.agent.messages) if "left out" not in fault]


class StoppedConversation(Conversation):
    """The same, stopped in the middle of whatever is going on."""

    def finish(self):
        """Leave everything as it is."""


TestConversation = Conversation.TestCase
TestConversation.settings = settings(max_examples=40, stateful_step_count=25)
TestStoppedConversation = StoppedConversation.TestCase
TestStoppedConversation.settings = settings(max_examples=40, stateful_step_count=25)


# -- many threads, many agents --


@pytest.mark.time_limit(120)
def test_five_hundred_agents_at_once():
    """Each of 500 agents does one turn with a tool; all answer, and no thread is left after they stop."""
    add = tool("add", lambda *_: "3", parallel_tool_execute=True)
    before = threading.active_count()
    agents = [YiemAgent(ScriptedModel([call("add"), "three"]), tools=[add]) for _ in range(500)]
    for agent in agents:
        run_agent(agent, "go")
    answers = [take_response(agent, 60).text for agent in agents]
    for agent in agents:
        stop_agent(agent)
    for thread in threading.enumerate():
        if thread.name.startswith("yiem-"):
            thread.join(10)

    assert answers == ["three"] * 500
    assert threading.active_count() == before


def test_threads_that_switch_all_the_time():
    """With the shortest switch interval, askers, steerers and an aborter get what they should."""
    model = ScriptedModel(default=lambda context, _signal: f"re {context.messages[-1].text}")
    wrong = []

    def asker(agent, name):
        for number in range(20):
            answer = ask(agent, f"{name}-{number}", timeout_s=30)
            if answer.stop_reason == "stop" and not answer.text.startswith("re "):
                wrong.append(answer)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with YiemAgent(model) as agent:
            threads = [threading.Thread(target=asker, args=(agent, n)) for n in range(4)]
            for thread in threads:
                thread.start()
            for _ in range(200):
                abort_agent(agent)
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(before)

    assert wrong == []


# -- aborts, in every state --

HANG = 3600


def hang(*_args):
    threading.Event().wait(HANG)


def _hanging(place):
    """Give an agent that hangs at a place and ignores its signal, and an event that says it is there."""
    there = threading.Event()

    def stuck(*_args):
        there.set()
        hang()

    def stuck_sink(event):
        if isinstance(event, MessageUpdateEvent) and not there.is_set():
            stuck()

    options = {
        "tool": {"tools": [tool("stuck", stuck)]},
        "parallel batch": {
            "tools": [
                tool("stuck", stuck, parallel_tool_execute=True),
                tool("quick", lambda *_: "ok", parallel_tool_execute=True),
            ]
        },
        "hook": {"tools": [tool("stuck", lambda *_: "ok")], "before_tool_call": stuck},
        "after hook": {"tools": [tool("stuck", lambda *_: "ok")], "after_tool_call": stuck},
        "sink": {"event_sink": stuck_sink},
        "llm_call": {},
    }[place]
    first = calls(call("stuck"), call("quick")) if "batch" in place else call("stuck")
    answers = ["some words"] if place == "sink" else [first]
    model = stuck if place == "llm_call" else ScriptedModel(answers, default="fine")
    sinks = [*filter(None, [options.pop("event_sink", None)]), recorder := RecordingSink()]
    agent = YiemAgent(model, event_sink=sinks, abort_grace_s=0.2, **options)
    return agent, there, recorder


@pytest.mark.abandons_threads(2)
@pytest.mark.parametrize(
    "place", ["tool", "parallel batch", "hook", "after hook", "sink", "llm_call"]
)
def test_user_code_that_ignores_an_abort_is_left_behind(place):
    """Abort returns at once; when the grace is over the aborted answer is there, with a whole grammar."""
    agent, there, recorder = _hanging(place)
    run_agent(agent, "go")
    assert there.wait(10)
    started = time.monotonic()
    assert abort_agent(agent, "enough")
    returned = time.monotonic()
    answer = take_response(agent, 10)
    answered = time.monotonic()

    assert answer.stop_reason == "aborted"
    assert returned - started < 1
    assert answered - started < 2.5
    check_event_order(recorder.events)
    assert not [fault for fault in check(agent.messages) if "left out" not in fault]
    if place != "llm_call":
        assert ask(agent, "again", timeout_s=10).stop_reason in {"stop", "error"}
    assert stop_agent(agent, timeout_s=0) == ()


# -- the agent's thread --


def test_another_thread_serves_where_a_call_does_not_return():
    """Runs go on on one that took over, which is the agent's thread from then on; what came back ends."""
    served = []
    held, release = threading.Event(), threading.Event()

    def work(*_):
        served.append(threading.current_thread())
        if len(served) == 1:
            held.set()
            release.wait(30)
        return "worked"

    model = ScriptedModel([call("work"), "one", call("work"), "two"])
    agent = YiemAgent(model, tools=[tool("work", work, timeout_s=0.05)], name="ann")
    assert ask(agent, "go", timeout_s=10).text == "one"
    assert "timed out" in agent.messages[2].text
    assert ask(agent, "go", timeout_s=10).text == "two"
    assert [message.text for message in agent.messages[4:]][2] == "worked"
    stop_agent(agent)

    first, second = served
    assert first is not second
    assert second.name == "yiem-ann-loop"
    assert (first.is_alive(), second.is_alive()) == (True, False)
    release.set()
    first.join(10)
    assert not first.is_alive()


def test_an_agent_serves_on_while_what_it_left_behind_is_held():
    """However many of its threads are held, messages are answered in order, and stopping waits for none of them."""
    there, release = threading.Semaphore(0), threading.Event()

    def stuck(context, signal):
        there.release()
        release.wait(30)
        return "late"

    agent = YiemAgent(ScriptedModel([stuck, "a", stuck, "b", stuck]), abort_grace_s=0.0)
    for expected in ("a", "b"):
        run_agent(agent, "hang")
        assert there.acquire(timeout=10)
        abort_agent(agent)
        assert take_response(agent, 10).stop_reason == "aborted"
        assert ask(agent, "go on", timeout_s=10).text == expected
    run_agent(agent, "hang")
    assert there.acquire(timeout=10)
    stop_agent(agent, timeout_s=0)
    assert take_response(agent, 10).stop_reason == "aborted"
    release.set()


def test_an_agent_that_another_thread_serves_keeps_no_run_that_is_over(monkeypatch):
    """Neither a successor nor a settler holds on to the run that brought it."""
    runs = []
    made = Run.__init__

    def init(self, *args, **options):
        made(self, *args, **options)
        runs.append(weakref.ref(self))

    monkeypatch.setattr(Run, "__init__", init)
    there, release = threading.Event(), threading.Event()
    held = []

    def hang(*_):
        held.append(threading.current_thread())
        there.set()
        release.wait(30)
        return "late"

    model = ScriptedModel([call("hang"), "one", hang, "two"])
    tools = [tool("hang", hang, timeout_s=0.05)]
    with YiemAgent(model, tools=tools, abort_grace_s=0.0) as agent:
        assert ask(agent, "go", timeout_s=10).text == "one"
        there.clear()
        run_agent(agent, "go")
        assert there.wait(10)
        abort_agent(agent)
        assert take_response(agent, 10).stop_reason == "aborted"
        release.set()
        for thread in held:
            thread.join(10)
        gc.collect()

        assert [run() for run in runs] == [None, None]


def test_a_gate_that_is_closed_late_stays_open_for_the_next_run(monkeypatch):
    """A thread that is left behind on its way to close a run's gate closes no later run's."""
    late, closed, release = threading.Event(), threading.Event(), threading.Event()
    there, go_on = threading.Event(), threading.Event()
    close = AgentCore._close_gate

    def close_gate(self, *args):
        first = not late.is_set()
        late.set()
        if first:
            release.wait(30)
        close(self, *args)
        if first:
            closed.set()

    def model(context, signal):
        there.set()
        go_on.wait(30)
        return "two"

    monkeypatch.setattr(AgentCore, "_close_gate", close_gate)
    with YiemAgent(ScriptedModel(["one", model, "three"]), abort_grace_s=0.0) as agent:
        run_agent(agent, "go")
        assert late.wait(10)
        abort_agent(agent)
        take_response(agent, 10)
        run_agent(agent, "go")
        assert there.wait(10)
        release.set()
        assert closed.wait(10)
        assert not steer(agent, "and").started
        go_on.set()
        assert take_response(agent, 10).text == "three"


def test_what_an_earlier_run_left_is_dropped_in_a_later_one():
    """Calls of several runs share the agent's thread: what tells of the first late harms no other."""
    kept = []

    def work(_id, _args, _signal, on_partial_result):
        kept.append(on_partial_result)
        kept[0]("late")
        return "worked"

    recorder = RecordingSink()
    model = ScriptedModel([call("work"), "one", call("work"), "two"])
    with YiemAgent(model, tools=[tool("work", work)], event_sink=recorder) as agent:
        ask(agent, "go", timeout_s=10)
        assert ask(agent, "go", timeout_s=10).text == "two"

    assert agent.messages[6].text == "worked"
    first, second = runs_of(recorder.events)
    check_event_order(first)
    check_event_order(second)
    assert "ToolExecUpdateEvent" not in [type(event).__name__ for event in second]


def test_a_message_is_refused_where_no_thread_can_be_had(monkeypatch):
    """Nothing is kept of it, and the next that finds a thread is served."""

    def start(_self):
        raise RuntimeError("can't start new thread")

    session = Session.in_memory()
    with YiemAgent(ScriptedModel(["fine"]), session=session) as agent:
        with monkeypatch.context() as patched:
            patched.setattr("yiemagent.agent_core.DaemonThread.start", start)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                run_agent(agent, "lost")
        assert session.entries() == []
        run_agent(agent, "hi")
        assert take_response(agent, 10).text == "fine"
        assert [message.text for message in agent.messages] == ["hi", "fine"]


# -- inside other programs --


def test_inside_a_running_event_loop():
    """A coroutine may use the blocking verbs, as a notebook cell does."""

    async def cell():
        with YiemAgent(ScriptedModel(["hello"])) as agent:
            return ask(agent, "hi", timeout_s=10).text

    assert asyncio.run(cell()) == "hello"


def test_in_a_flask_view():
    """A view asks an agent that all requests share."""
    flask = pytest.importorskip("flask")
    app = flask.Flask(__name__)
    agent = YiemAgent(ScriptedModel(default=lambda c, _s: f"re {c.messages[-1].text}"))

    @app.get("/ask/<text>")
    def view(text):
        return ask(agent, text, timeout_s=10).text

    with agent:
        answers = [app.test_client().get(f"/ask/q{number}").text for number in range(3)]

    assert answers == ["re q0", "re q1", "re q2"]


def script(*parts):
    """Run a Python program, and give what came of it."""
    prelude = """
        import os, signal, sys, threading, time
        from yiemagent import *
        from yiemagent.testing import ScriptedModel, call
    """
    program = "\n".join(textwrap.dedent(part) for part in (prelude, *parts))
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "PYTHONPATH": str(pathlib.Path.cwd())},
    )


HANGING_TOOL = """
    there = threading.Event()

    def stuck(*_):
        there.set()
        time.sleep(3600)

    stuck_tool = AgentTool("stuck", description="hangs", execute=stuck)
    agent = YiemAgent(ScriptedModel([call("stuck")]), tools=[stuck_tool], abort_grace_s=0.2)
    run_agent(agent, "go")
    there.wait()
"""


def exit_time(*parts):
    """Run a program whose tool hangs, and give the seconds from its last line to its end."""
    done = script(HANGING_TOOL, *parts, "print(time.time())")
    ended = time.time()
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    return ended - float(done.stdout)


def test_the_interpreter_exits_after_stop():
    """With a tool that hangs, the process ends within 1 s after stop_agent has returned."""
    assert quickest(lambda: exit_time("stop_agent(agent, timeout_s=0)"), 1.0) <= 1.0


STOP_AT_EXIT = """
    import atexit

    @atexit.register  # before the agent's own, which so comes first
    def stop():
        stop_agent(agent)
        print("stopped", flush=True)
"""


def test_an_agent_can_be_stopped_at_interpreter_exit():
    """A handler of the program's that stops an agent in the middle of a run waits for nobody."""
    done = script(STOP_AT_EXIT, HANGING_TOOL)

    assert (done.stdout, done.returncode, done.stderr) == ("stopped\n", 0, "")


WAIT_AT_EXIT = """
    import atexit

    @atexit.register  # before the agent's own, which so comes first
    def wait():
        for verb in (lambda: take_response(agent), lambda: ask(agent, "more")):
            try:
                verb()
            except AgentStopped:
                print("stopped", flush=True)
"""


def test_nobody_waits_at_interpreter_exit_for_what_never_comes():
    """A handler of the program's that wants an answer of an agent that was in the middle of a run is told."""
    done = script(WAIT_AT_EXIT, HANGING_TOOL)

    assert (done.stdout, done.returncode, done.stderr) == ("stopped\nstopped\n", 0, "")


READ_AT_EXIT = """
    import atexit
    from yiemagent.testing import call

    @atexit.register
    def read():
        print(next(reversed(list(stream))).__class__.__name__, len(stream.result()), flush=True)

    there = threading.Event()

    def stuck(*_):
        there.set()
        time.sleep(3600)

    tools = [AgentTool("stuck", description="hangs", execute=stuck)]
    context = AgentContext("", tools=tools)
    model = ScriptedModel([call("stuck")])
    stream = agent_loop([UserMessage("go")], context, AgentLoopConfig(), stream_fn=model)
    there.wait()
"""


def test_nobody_reads_for_ever_at_interpreter_exit():
    """A stream of events whose run is cut by the exit ends where it was."""
    done = script(READ_AT_EXIT)

    assert (done.stdout, done.returncode, done.stderr) == ("ToolExecStartEvent 2\n", 0, "")


def test_the_interpreter_exits_without_stop():
    """With a tool that hangs and nobody stopping the agent, the process ends within 1 s, too."""
    assert quickest(exit_time, 1.0) <= 1.0


@pytest.mark.parametrize(
    "wait",
    ["take_response(agent)", "stop_agent(agent)", "ask(agent, 'more')"],
)
def test_ctrl_c_while_waiting(wait):
    """A KeyboardInterrupt ends every wait of the main thread at once."""
    done = script(
        HANGING_TOOL,
        f"""
    killer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    killer.start()
    try:
        {wait}
    except KeyboardInterrupt:
        print("interrupted", agent.channel_state.name)
    """,
    )

    assert done.stdout.startswith("interrupted"), done.stderr


def test_ctrl_c_in_a_with_block():
    """A KeyboardInterrupt that leaves the block aborts the run, and the process ends."""
    done = script(
        HANGING_TOOL,
        """
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        with agent:
            take_response(agent)
    except KeyboardInterrupt:
        print(take_response(agent).stop_reason)
    """,
    )

    assert done.stdout.strip() == "aborted", done.stderr


def test_ctrl_c_in_ask_aborts_its_run():
    """An interrupted ask that has begun aborts its run."""
    done = script(
        """
    there, over = threading.Event(), threading.Event()

    def model(context, options, abort):
        there.set()
        abort.wait()
        over.set()
        yield ErrorEvent(AssistantMessage(stop_reason="aborted", error_message="aborted"))

    def interrupt():
        there.wait()
        for _ in range(20):  # again where it came just before the wait began, and so was not seen
            os.kill(os.getpid(), signal.SIGINT)
            if over.wait(1):
                break

    from yiemagent.streaming import ErrorEvent
    from yiemagent.testing import RecordingSink
    sink = RecordingSink()
    agent = YiemAgent(model, event_sink=sink)
    threading.Thread(target=interrupt).start()
    try:
        ask(agent, "go")
    except KeyboardInterrupt:
        print(sink.wait_for(AgentEndEvent).answer.stop_reason)
    stop_agent(agent)
    """
    )

    assert done.stdout.strip() == "aborted", done.stderr


def test_ctrl_c_while_a_message_is_sent():
    """An ask that is interrupted just after its message was put in leaves no run that nobody waits for."""
    done = script(
        """
    from yiemagent.channels import Channel
    from yiemagent.streaming import ErrorEvent

    def model(context, options, abort):
        abort.wait()
        yield ErrorEvent(AssistantMessage(stop_reason="aborted", error_message="aborted"))

    def interrupt(frame, event, argument):
        if event == "return":
            raise KeyboardInterrupt
        return interrupt if frame.f_code is Channel.put.__code__ else None

    agent = YiemAgent(model)
    sys.settrace(interrupt)
    try:
        ask(agent, "go")
    except KeyboardInterrupt:
        sys.settrace(None)
        print("interrupted", stop_agent(agent))
    """
    )

    assert done.stdout.strip() == "interrupted ()", done.stderr


def test_ctrl_c_while_the_thread_starts():
    """An agent whose first message was interrupted when its thread had just started has one thread all the same."""
    done = script(
        """
    from yiemagent import daemon

    def interrupt(frame, event, argument):
        if event == "return":
            sys.settrace(None)
            raise KeyboardInterrupt
        return interrupt if frame.f_code is daemon._at_once.__code__ else None

    agent = YiemAgent(ScriptedModel(default="fine"), name="ann")
    sys.settrace(interrupt)
    try:
        ask(agent, "go")
    except KeyboardInterrupt:
        (first,) = (t for t in threading.enumerate() if t.name.startswith("yiem-ann"))
        first.join(10)
        print("interrupted", first.is_alive(), ask(agent, "go", timeout_s=10).text)
    print([t.name for t in threading.enumerate() if t.name.startswith("yiem")])
    """
    )

    assert done.stdout == "interrupted False fine\n['yiem-ann-loop']\n", done.stderr


FORK = """
    def child(work):
        pid = os.fork()
        if pid == 0:
            try:
                work()
                os._exit(0)
            except BaseException as error:
                print(type(error).__name__, error, flush=True)
                os._exit(1)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def test_fork_before_first_use():
    """An agent that was made and not used before a fork works in the child, and in the parent."""
    done = script(
        FORK,
        """
    agent = YiemAgent(ScriptedModel(default="hello"))

    def use():
        assert ask(agent, "hi", timeout_s=10).text == "hello"
        assert stop_agent(agent) == ()

    print(child(use))
    use()
    """,
    )

    assert done.stdout.strip() == "0", done.stderr + done.stdout


def test_fork_after_use():
    """An agent that was in use before a fork raises in the child, and has nothing to stop; the parent's goes on."""
    done = script(
        FORK,
        """
    agent = YiemAgent(ScriptedModel(default="hello"))
    ask(agent, "hi", timeout_s=10)

    def use():
        for verb in (
            lambda: ask(agent, "x"),
            lambda: run_agent(agent, "x"),
            lambda: take_response(agent, 1),
            lambda: steer(agent, "x"),
            lambda: follow_up(agent, "x"),
            lambda: continue_agent(agent),
        ):
            try:
                verb()
            except AgentStateError as error:
                assert "forked" in str(error), error
            else:
                raise AssertionError(verb)
        assert stop_agent(agent) == ()
        assert not abort_agent(agent)
        with agent:
            pass
        fresh = YiemAgent(ScriptedModel(default="hello"))
        assert ask(fresh, "hi", timeout_s=10).text == "hello"

    print(child(use))
    assert ask(agent, "hi", timeout_s=10).text == "hello"
    """,
    )

    assert done.stdout.strip() == "0", done.stderr + done.stdout


def test_signal_handlers_stay_as_they_were():
    """Using an agent changes no signal handler."""
    before = signals.getsignal(signals.SIGINT), signals.getsignal(signals.SIGTERM)
    with YiemAgent(ScriptedModel(["hello"])) as agent:
        ask(agent, "hi", timeout_s=10)

    assert (signals.getsignal(signals.SIGINT), signals.getsignal(signals.SIGTERM)) == before


def test_a_second_continue_is_refused():
    """A run that was asked for and has not begun counts as going on."""
    sink = RecordingSink()
    with YiemAgent(ScriptedModel([failure("broken")], default="ok"), event_sink=sink) as agent:
        ask(agent, "go", timeout_s=10)
        continue_agent(agent)

        assert take_response(agent, 10).text == "ok"
        assert len(sink.of(ToolExecStartEvent)) == 0


# -- a run costs what is new --


def test_a_run_goes_on_with_what_earlier_requests_worked_out():
    """Runs hand on the part of the history that is repaired already, so that none walks it again."""
    with YiemAgent(ScriptedModel(default="fine")) as agent:
        ask(agent, "one")
        (first,) = agent._core._requests
        ask(agent, "two")
        (second,) = agent._core._requests

    assert second is first
    assert first.repairer._source[0].text == "one"


def test_a_run_that_was_abandoned_hands_on_nothing():
    """What an abandoned run holds is shared with no later run."""
    release = threading.Event()
    stuck = threading.Event()

    def hang(context, signal):
        stuck.set()
        release.wait(30)
        return "late"

    with YiemAgent(ScriptedModel([hang, "fine"]), abort_grace_s=0.05) as agent:
        run_agent(agent, "one")
        assert stuck.wait(10)
        abort_agent(agent)
        take_response(agent, 10)

        assert agent._core._requests == []
        assert ask(agent, "two", timeout_s=10).text == "fine"
        release.set()
