"""Locks of tools: calls that share one never overlap, and nobody waits for ever."""

from __future__ import annotations

import itertools
import os
import threading

import pytest

from tests.support.loops import WAIT_S, Hold, finish, parallel, run, start
from tests.support.signals import Noticed
from yiemagent.abort import AbortSignal
from yiemagent.agent import YiemAgent
from yiemagent.api import ask, run_agent, stop_agent, take_response
from yiemagent.batch import ABORTED_TEXT
from yiemagent.errors import AbortedError, ConfigurationError, ToolError
from yiemagent.locks import holding
from yiemagent.signature import tool as tool_of
from yiemagent.testing import ScriptedModel, call, calls


class Overlap:
    """What tools do: notes whether another one that shares its counter was at it, too."""

    def __init__(self):
        self._busy = {}
        self._guard = threading.Lock()
        self.order = []
        self.overlapped = False

    def tool(self, name, *locks, function=None, **options):
        """Give a parallel tool that holds `locks`."""

        def execute(*given):
            with self._guard:
                self.overlapped |= any(self._busy.get(lock) for lock in locks)
                self._busy.update(dict.fromkeys(locks, name))
                self.order.append(name)
            try:
                return function(*given) if function else name
            finally:
                with self._guard:
                    self._busy.update(dict.fromkeys(locks))

        return parallel(name, execute, lock=locks, **options)


def in_thread(function, *args):
    """Run a function on a daemon thread."""
    thread = threading.Thread(target=function, args=args, daemon=True)
    thread.start()
    return thread


# -- what a tool says --


def test_a_lock_is_a_name_or_names():
    """One name and several are the same kind of thing, sorted and each once."""
    assert parallel(lock="repo").lock == ("repo",)
    assert parallel(lock=["repo", "db", "repo"]).lock == ("db", "repo")
    assert parallel().lock == parallel(lock=None).lock == ()


@pytest.mark.parametrize("lock", ["", " ", ["repo", ""], [7], 7])
def test_a_lock_without_a_name_is_refused(lock):
    """What is no name is a configuration error that shows it."""
    with pytest.raises(ConfigurationError, match="lock must be a name"):
        parallel(lock=lock)


def test_the_decorator_takes_a_lock():
    """`@tool(lock=…)` makes a tool that has it."""

    @tool_of(lock="repo")
    def commit() -> str:
        """Commit."""
        return "done"

    assert commit.lock == ("repo",)


# -- one answer, many answers --


def test_calls_that_share_a_lock_never_overlap_and_the_others_run_beside_them():
    """Of one answer's calls those with the lock come one by one, while another meets one of them."""
    seen, meeting = Overlap(), threading.Barrier(2)
    first = seen.tool("first", "repo", function=lambda *_: meeting.wait(WAIT_S))
    free = parallel("free", lambda *_: meeting.wait(WAIT_S))
    rest = [seen.tool(f"more{n}", "repo") for n in range(5)]
    names = ["first", "free", *(one.name for one in rest)]
    done = run([calls(*map(call, names)), "fine"], first, free, *rest)

    assert not seen.overlapped
    assert sorted(seen.order) == sorted({"first", *(one.name for one in rest)})
    assert [is_error for _, is_error in done.results] == [False] * 7


def test_calls_of_many_agents_share_locks():
    """Calls of agents that know nothing of each other never overlap where they share a lock."""
    seen = Overlap()
    tool = seen.tool("work", "repo", "db")
    streams = [start([calls(*[call("work")] * 3), "fine"], tool) for _ in range(6)]
    for stream in streams:
        finish(stream)

    assert not seen.overlapped
    assert len(seen.order) == 18


def test_a_lock_works_together_with_a_barrier():
    """With `barrier`, neighbours that share a lock exclude each other, and the call that runs alone comes between."""
    seen = Overlap()
    alone = parallel("alone", lambda *_: seen.order.append("alone"))
    alone = type(alone)("alone", description="alone", execute=alone.function)
    tools = [seen.tool(name, "repo") for name in ("a", "b", "c", "d")]
    answer = calls(*map(call, ["a", "b", "alone", "c", "d"]))
    done = run([answer, "fine"], *tools, alone, tool_execution="barrier")

    assert not seen.overlapped
    assert set(seen.order[:2]) == {"a", "b"}
    assert seen.order[2] == "alone"
    assert [is_error for _, is_error in done.results] == [False] * 5


def test_a_call_that_raises_gives_its_lock_back():
    """The next call gets the lock however the one before it ended."""
    done = run(
        [call("bad"), call("good"), "fine"],
        parallel("bad", lambda *_: 1 / 0, lock="repo"),
        parallel("good", lock="repo"),
    )

    assert [is_error for _, is_error in done.results] == [True, False]


# -- waits end --


def test_an_abort_ends_the_wait_for_a_lock():
    """A run whose call waits for a lock of somebody else's is aborted without waiting for it, and nothing runs."""
    ran = []
    with Hold() as hold:
        other = start([call("slow"), "fine"], parallel("slow", hold, lock="repo"))
        hold.wait()
        signal, started = AbortSignal(), threading.Event()
        waiting = parallel("waiting", lambda *_: ran.append(1), lock="repo")
        results = []
        model = ScriptedModel([call("waiting"), "fine"])
        thread = in_thread(
            lambda: results.append(
                run(model, waiting, signal=signal, sinks=_on_tool_start(started), abort_grace_s=60)
            )
        )
        assert started.wait(WAIT_S)
        signal.abort()
        thread.join(WAIT_S)

        assert results[0].results == [(ABORTED_TEXT, True)]
        assert ran == []
        hold.let_go()
        finish(other)


def _on_tool_start(started):
    def sink(event):
        if type(event).__name__ == "ToolExecStartEvent":
            started.set()

    return sink


def test_a_time_limit_holds_while_a_call_waits_for_a_lock(caplog):
    """A call that waits for a lock is answered for at its limit, never runs, and says so; no thread is left behind."""
    ran = []
    with Hold() as hold:
        other = start([call("slow"), "fine"], parallel("slow", hold, lock="repo"))
        hold.wait()
        waiting = parallel("waiting", lambda *_: ran.append(1), lock="repo", timeout_s=0.05)
        done = run([call("waiting"), "fine"], waiting)

        why = "waiting was not run: it waited 0.05 s for the lock 'repo', which slow holds or waits for"
        assert done.results == [(why, True)]
        hold.let_go()
        finish(other)
    assert ran == []
    assert "left behind" not in caplog.text


def test_a_call_left_behind_keeps_its_lock_until_it_ends():
    """A call over its limit still works, so the next one waits for it."""
    order = []
    with Hold() as hold:

        def slow(*_args):
            hold()
            order.append("slow")

        run([call("slow"), "fine"], parallel("slow", slow, lock="repo", timeout_s=0.05))
        stream = start(
            [call("next"), "fine"], parallel("next", lambda *_: order.append("next"), lock="repo")
        )
        hold.let_go()
        finish(stream)

    assert order == ["slow", "next"]


# -- several locks, nested agents --


def test_several_locks_in_any_order_never_block_each_other():
    """Calls that need two of three locks, in every order, all end."""
    seen = Overlap()
    tools = [seen.tool(f"t{n}", *pair) for n, pair in enumerate(itertools.permutations("abc", 2))]
    answer = calls(*[call(one.name) for one in tools] * 3)
    done = run([answer, "fine"], *tools)

    assert not seen.overlapped
    assert [is_error for _, is_error in done.results] == [False] * 18


def test_whoever_came_first_is_served_first():
    """A call that needs two locks is not passed over by those who need one."""
    order = []
    with holding(["a"], AbortSignal(), "outer"):
        both = _waiting(["a", "b"], "both", order)
        one = _waiting(["b"], "one", order)
    both.join(WAIT_S)
    one.join(WAIT_S)

    assert order == ["both", "one"]


def _waiting(names, who, order):
    """Start a thread that needs locks, and come back once it waits for them."""
    signal = Noticed()

    def take():
        with holding(names, signal, who):
            order.append(who)

    thread = in_thread(take)
    assert signal.waited_for.wait(WAIT_S)
    return thread


def test_a_nested_agent_works_under_the_lock_of_its_caller():
    """A tool that holds a lock may ask an agent whose tools need it: they don't wait for it, and exclude each other."""
    seen = Overlap()

    def delegate(*_args):
        model = ScriptedModel([calls(*[call("inner")] * 4), "done"])
        with YiemAgent(model, tools=[inner]) as agent:
            return ask(agent, "go", timeout_s=WAIT_S).text

    inner = seen.tool("inner", "repo")
    done = run([call("delegate"), "fine"], parallel("delegate", delegate, lock="repo"))

    assert done.results == [("done", False)]
    assert seen.order == ["inner"] * 4
    assert not seen.overlapped


def test_an_agent_that_nobody_waits_for_waits_for_the_lock():
    """What a tool starts with `run_agent` and does not wait for works on its own account: it waits its turn."""
    order = []
    inner = parallel("inner", lambda *_: order.append("inner"), lock="repo")
    agent = YiemAgent(ScriptedModel([call("inner"), "done"]), tools=[inner])

    def outer(*_args):
        run_agent(agent, "go")
        order.append("outer")

    run([call("outer"), "fine"], parallel("outer", outer, lock="repo"))
    take_response(agent, timeout_s=WAIT_S)
    stop_agent(agent)

    assert order == ["outer", "inner"]


def test_what_a_call_leaves_behind_goes_on_under_the_lock():
    """A loop that outlives the call which started it keeps its lock to itself when that call ends."""
    order, later = [], []
    with Hold() as hold:

        def inner(*_args):
            hold()
            order.append("inner")

        def outer(*_args):
            later.append(start([call("inner"), "fine"], parallel("inner", inner, lock="repo")))
            hold.wait()

        run([call("outer"), "fine"], parallel("outer", outer, lock="repo"))
        stranger = start(
            [call("other"), "fine"],
            parallel("other", lambda *_: order.append("other"), lock="repo"),
        )
        hold.let_go()
        finish(later[0])
        finish(stranger)

    assert order == ["inner", "other"]


def test_calls_that_would_wait_for_each_other_are_told():
    """Where two callers hold what the other's agent needs, one call fails at once and both runs end."""
    meeting = threading.Barrier(2)
    inner = {name: parallel(f"need_{name}", lock=name) for name in "ab"}

    def crossing(needs):
        def execute(*_args):
            meeting.wait(WAIT_S)
            model = ScriptedModel([call(f"need_{needs}"), "done"])
            with YiemAgent(model, tools=[inner[needs]]) as agent:
                ask(agent, "go", timeout_s=WAIT_S)
                return next(m for m in agent.messages if m.role == "toolResult").text

        return execute

    streams = [
        start([call("cross"), "fine"], parallel("cross", crossing(needs), lock=holds))
        for holds, needs in ("ab", "ba")
    ]
    texts = sorted(finish(stream).results[0][0] for stream in streams)
    refused = [text for text in texts if "needs the lock" in text]

    assert len(refused) == 1
    assert "cross holds or waits for, and that waits for this call" in refused[0]


# -- the block itself --


def test_a_set_signal_takes_no_lock():
    """Whoever is aborted already gets no lock and leaves none behind."""
    signal = AbortSignal()
    signal.abort("over")
    with pytest.raises(AbortedError), holding(["x"], signal, "one"):
        raise AssertionError

    with holding(["x"], AbortSignal(), "two"):
        pass


def test_a_refused_claim_leaves_nothing_behind():
    """A circle is refused, and both locks are free once their holders have ended."""
    inner_signal, signal, let_go = Noticed(), AbortSignal(), threading.Event()

    def other():
        with holding(["b"], signal, "other"), holding(["a"], inner_signal, "inner"):
            let_go.wait(WAIT_S)

    with holding(["a"], signal, "outer"):
        thread = in_thread(other)
        assert inner_signal.waited_for.wait(WAIT_S)
        with pytest.raises(ToolError, match="mine needs the lock 'b', which other holds"):
            _take(["b"], "mine")
    let_go.set()
    thread.join(WAIT_S)

    assert _take(["a", "b"], "last") is None


def _take(names, who):
    with holding(names, AbortSignal(), who):
        pass


def test_a_forked_child_begins_without_locks():
    """Locks that threads of the parent hold are free in a forked child."""
    with Hold() as hold:

        def holder():
            with holding(["repo"], AbortSignal(), "parent"):
                hold()

        thread = in_thread(holder)
        hold.wait()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                with holding(["repo"], AbortSignal(), "child"):
                    code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        hold.let_go()
        thread.join(WAIT_S)

    assert os.waitstatus_to_exitcode(status) == 0
