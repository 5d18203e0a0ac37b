"""The pool of processes: bounded, first come first served, renewed with its files, and gone with whoever had it."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from tests.support.isolated_tools import RUN, does, isolated, pid_of
from tests.support.processes import has_ended
from tests.support.signals import Noticed
from yiemagent import (
    AbortSignal,
    ProcessLimits,
    ToolError,
    ToolStore,
    YiemAgent,
    ask,
    load_tools,
)
from yiemagent.errors import AbortedError
from yiemagent.mcp.calls import Call
from yiemagent.mcp.worker import ToolSource
from yiemagent.mcp.worker_pool import WorkerPool
from yiemagent.testing import ScriptedModel, call

OTHER = RUN.replace("def run", "def other").replace("return run", "return other")
HANGS = "import os; os.close(os.open({!r}, os.O_WRONLY)); sum(range(10**13))"


def other_pid(store):
    """The process that the next call of the other tool runs in."""
    code = {"code": "import os; result = os.getpid()"}
    return int(store.get("other").execute("id", code).text)


def test_there_are_never_more_processes_than_allowed(tmp_path):
    """An idle process of another file makes way for one that is needed, and is ended."""
    with isolated(tmp_path, {"run": RUN, "other": OTHER}, max_processes=1) as store:
        one = pid_of(store)
        two = other_pid(store)
        one_ended = has_ended(one)
        three = pid_of(store)
        two_ended = has_ended(two)

    assert one_ended
    assert two_ended
    assert len({one, two, three}) == 3


def test_each_file_keeps_its_process_while_there_is_a_place(tmp_path):
    """Processes of several files stay warm side by side."""
    with isolated(tmp_path, {"run": RUN, "other": OTHER}, max_processes=2) as store:
        pids = [(pid_of(store), other_pid(store)) for _ in range(2)]

    assert pids[0] == pids[1]


class Held:
    """A call that runs in a process until it is let go of."""

    def __init__(self, store, folder, name="run"):
        self.gate, started = folder / "gate", folder / "started"
        os.mkfifo(self.gate)
        os.mkfifo(started)
        code = f"""
            import os
            os.close(os.open({str(started)!r}, os.O_WRONLY))
            open({str(self.gate)!r}).read()
            result = os.getpid()
        """
        self.results = []
        work = {"code": textwrap.dedent(code)}
        self.thread = threading.Thread(
            target=lambda: self.results.append(store.get(name).execute("id", work).text)
        )
        self.thread.start()
        started.read_bytes()

    def let_go(self):
        """Let the call end, and give its process."""
        self.gate.write_bytes(b"")
        self.thread.join()
        return int(self.results[0])


def test_a_call_waits_for_a_process_and_gets_the_same_one(tmp_path):
    """Where all are busy a call waits; then it runs in the warm process of its file."""
    with isolated(tmp_path, max_processes=1) as store:
        held = Held(store, tmp_path)
        pids = []
        waiting = [threading.Thread(target=lambda: pids.append(pid_of(store))) for _ in range(3)]
        for thread in waiting:
            thread.start()
        pid = held.let_go()
        for thread in waiting:
            thread.join()

    assert pids == [pid] * 3


def test_a_call_of_another_file_waits_for_the_place(tmp_path):
    """The process that was busy with another file ends, and its place is taken."""
    with isolated(tmp_path, {"run": RUN, "other": OTHER}, max_processes=1) as store:
        held = Held(store, tmp_path)
        pids = []
        waiting = threading.Thread(target=lambda: pids.append(other_pid(store)))
        waiting.start()
        pid = held.let_go()
        waiting.join()
        ended = has_ended(pid)

    assert ended
    assert pids[0] != pid


def test_waiting_for_a_process_ends_on_abort_and_at_the_time_limit(tmp_path):
    """Neither takes a place with it."""
    quick = OTHER.replace("timeout_s=30", "timeout_s=0.2")
    with isolated(tmp_path, {"run": RUN, "other": quick}, max_processes=1) as store:
        held = Held(store, tmp_path)
        with pytest.raises(ToolError, match=r"other timed out after 0\.2 s"):
            store.get("other").execute("id", {"code": ""})
        stop, failures = AbortSignal(), []

        def wait():
            try:
                does(store, "", stop)
            except AbortedError as error:
                failures.append(str(error))

        thread = threading.Thread(target=wait)
        thread.start()
        stop.abort("enough")
        thread.join()
        pid = held.let_go()
        after = pid_of(store)

    assert failures == ["aborted: enough"]
    assert after == pid


def test_a_call_that_was_ended_gives_its_place_back(tmp_path):
    """With one place, a crash does not keep the next call from running."""
    with isolated(tmp_path, max_processes=1) as store:
        for _ in range(3):
            with pytest.raises(ToolError, match="exit code 1"):
                does(store, "import os; os._exit(1)")

        assert does(store, "result = 'fine'").text == "fine"


def test_a_process_that_died_idle_is_not_used(tmp_path):
    """Who kills an idle process from outside costs no call, once that is known."""
    with isolated(tmp_path, max_processes=1) as store:
        pid = pid_of(store)
        os.kill(pid, signal.SIGKILL)
        [reader] = [t for t in threading.enumerate() if t.name == "yiem-mcp-tool-run"]
        reader.join()

        assert pid_of(store) != pid


def test_a_changed_file_is_run_by_a_new_process(tmp_path):
    """After loading again calls run what is in the file; one under way ends with what it began with."""
    with isolated(tmp_path, max_processes=2) as store:
        held = Held(store, tmp_path)
        idle = pid_of(store)
        changed = RUN.replace('return scope["result"]', "return f\"changed {scope['result']}\"")
        (tmp_path / "run.py").write_text(changed)
        load_tools(store, tmp_path)
        idle_ended = has_ended(idle)
        text = does(store, "result = 1").text
        old = held.let_go()
        old_ended = has_ended(old)

    assert text == "changed 1"
    assert idle_ended
    assert old_ended


def test_a_watched_folder_is_reloaded_between_turns(tmp_path):
    """An agent's next turn calls what the file holds then; a file that broke keeps its last good version."""
    path = tmp_path / "run.py"
    path.write_text(RUN)
    changed = RUN.replace('return scope["result"]', "return 'changed'")
    changes = {1: changed, 2: "import os\nos._exit(3)"}

    def model_turn(request):
        turns.append(1)
        if len(turns) in changes:
            path.write_text(changes[len(turns)])
        if len(turns) == 4:
            return "done"
        function = {"name": "run", "arguments": '{"code": ""}'}
        return {"tool_calls": [{"id": f"c{len(turns)}", "function": function}]}

    turns = []
    store = ToolStore(isolation="process")
    store.watch(tmp_path)
    try:
        agent = YiemAgent(model_turn, tool_store=store)
        ask(agent, "Go.")
        [error] = store.load_errors
    finally:
        store.close()

    texts = [message.text for message in agent.messages if message.role == "toolResult"]
    assert texts == ["", "changed", "changed"]
    assert error.reason == "its process ended with exit code 3"


def test_a_folder_may_change_where_it_runs(tmp_path):
    """Loading it again with another isolation or other limits loads its files anew; otherwise nothing changes."""
    (tmp_path / "run.py").write_text(RUN)
    store = ToolStore()
    try:
        here = load_tools(store, tmp_path)["run"]
        there = load_tools(store, tmp_path, isolation="process")["run"]
        same = load_tools(store, tmp_path)["run"]
        smaller = load_tools(store, tmp_path, limits=ProcessLimits(open_files=30))["run"]
        limit = does(
            store, "import resource; result = resource.getrlimit(resource.RLIMIT_NOFILE)[0]"
        )
        back = load_tools(store, tmp_path, isolation="thread")["run"]
    finally:
        store.close()

    assert (here.isolation, there.isolation, back.isolation) == ("thread", "process", "thread")
    assert there is same is not smaller
    assert limit.text == "30"


def test_a_process_that_comes_with_an_abort_is_not_lost(tmp_path):
    """Whichever of the two a waiting call hears of first, the process and its place are there for the next."""
    path = tmp_path / "run.py"
    path.write_text(RUN)
    source = ToolSource.of_files(path, ((path, ""),), ProcessLimits())
    pool = WorkerPool(1)
    got = []

    def wait(signal):
        try:
            with pool.worker(source, Call("tools/call", signal=signal)) as worker:
                got.append(worker)
        except AbortedError:
            got.append(None)

    first = None
    for number in range(40):
        signal = Noticed()
        with pool.worker(source, Call("tools/call")) as held:
            first = first or held
            thread = threading.Thread(target=wait, args=[signal])
            thread.start()
            signal.waited_for.wait()
            if number % 2:
                signal.abort()
        if not number % 2:
            signal.abort()
        thread.join()
    with pool.worker(source, Call("tools/call")) as last:
        pass
    pool.close()

    assert len(got) == 40
    assert set(got) <= {None, first}
    assert last is first


def test_a_process_that_comes_behind_an_abort_goes_to_the_next(tmp_path):
    """A call that has heard of its abort gives back what it is given in the same moment."""
    path = tmp_path / "run.py"
    path.write_text(RUN)
    source = ToolSource.of_files(path, ((path, ""),), ProcessLimits())
    pool = WorkerPool(1)
    results = []

    class Slow(Noticed):
        """Lets the process come before the call steps out of the line."""

        __slots__ = ()

        def add_callback(self, callback):
            remove = super().add_callback(callback)

            def remove_late():
                came.wait()
                remove()

            return remove_late

    def wait():
        try:
            with pool.worker(source, Call("tools/call", signal=signal)):
                results.append("a process")
        except AbortedError:
            results.append("aborted")

    for end in (
        None,
        ValueError,
    ):  # the process is given back, or ended, so that its place is given
        came, signal = threading.Event(), Slow()
        with contextlib.suppress(ValueError), pool.worker(source, Call("tools/call")):
            thread = threading.Thread(target=wait)
            thread.start()
            signal.waited_for.wait()
            signal.abort()
            if end is not None:
                raise end
        came.set()
        thread.join()
    with pool.worker(source, Call("tools/call", timeout_s=30)):
        results.append("free again")
    pool.close()

    assert results == ["aborted", "aborted", "free again"]


# -- the end ----------------------------------------------------------------------------------------------------------


def test_closing_ends_idle_and_busy_processes(tmp_path):
    """What runs fails, and a later call starts a new process."""
    (tmp_path / "run.py").write_text(RUN)
    fifo = tmp_path / "started"
    os.mkfifo(fifo)
    store = ToolStore(isolation="process", max_processes=2)
    load_tools(store, tmp_path)
    failures = []

    def hang():
        try:
            does(store, HANGS.format(str(fifo)))
        except ToolError as error:
            failures.append(str(error))

    thread = threading.Thread(target=hang)
    thread.start()
    fifo.read_bytes()
    idle = pid_of(store)
    store.close()
    thread.join()
    later = pid_of(store)
    store.close()
    store.close()

    assert failures == ["run: its process was ended, since its store was closed"]
    assert has_ended(idle)
    assert has_ended(later)


def test_processes_end_with_their_store(tmp_path):
    """A store that nobody refers to any more leaves none behind, and no thread."""
    (tmp_path / "run.py").write_text(RUN)
    store = ToolStore(isolation="process")
    load_tools(store, tmp_path)
    pid = pid_of(store)
    readers = [t for t in threading.enumerate() if t.name == "yiem-mcp-tool-run"]
    del store
    gc.collect()

    assert has_ended(pid)
    for reader in readers:
        reader.join()


PROGRAM = """
    import sys, threading
    from yiemagent import ToolStore, YiemAgent, load_tools, run_agent
    from yiemagent.testing import ScriptedModel, call
    store = ToolStore(isolation="process")
    load_tools(store, sys.argv[1])
    pid = store.get("run").execute("id", {"code": "import os; result = os.getpid()"}).text
    agent = YiemAgent(ScriptedModel([call("run", {"code": sys.argv[2]}), "done"]), tool_store=store)
    run_agent(agent, "Go.")
    print(pid, flush=True)
    sys.stdin.read()
"""


def program(folder, fifo):
    """A program with a call that hangs in C in a process; gives it and the process."""
    (folder / "run.py").write_text(RUN)
    os.mkfifo(fifo)
    started = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(folder), HANGS.format(str(fifo))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    fifo.read_bytes()
    return started, int(started.stdout.readline())


def test_a_program_exits_while_a_call_hangs_in_c(tmp_path):
    """The interpreter does not wait for it, and leaves no process behind."""
    started, pid = program(tmp_path, tmp_path / "fifo")
    with started:
        started.communicate("", timeout=20)

    assert started.returncode == 0
    assert has_ended(pid)


def test_no_process_outlives_a_program_that_is_killed(tmp_path):
    """Even one that hangs in C and reads nothing ends within seconds of its parent."""
    started, pid = program(tmp_path, tmp_path / "fifo")
    with started:
        started.kill()
        started.wait()

    assert has_ended(pid)


def test_a_fork_starts_processes_of_its_own(tmp_path):
    """A copy of this process leaves the parent's alone, at its end, too."""
    reading, writing = os.pipe()
    with isolated(tmp_path) as store:
        mine = pid_of(store)
        forked = os.fork()
        if forked == 0:
            code = 1
            try:
                os.write(writing, str(pid_of(store)).encode())
                store.close()
                code = 0
            finally:
                os._exit(code)
        os.close(writing)
        status = os.waitpid(forked, 0)[1]
        theirs = int(os.read(reading, 100))
        os.close(reading)
        still_mine = pid_of(store)

    assert status == 0
    assert mine == still_mine != theirs
    assert has_ended(theirs)


def test_a_fork_is_not_held_up_by_what_another_thread_was_doing(tmp_path):
    """A copy that is made while a pool is in the middle of a step can use and close it."""
    pool = WorkerPool(1)
    with pool._lock:
        forked = os.fork()
        if forked == 0:
            code = 1
            try:
                pool.close()
                code = 0
            finally:
                os._exit(code)
        ended = has_ended(forked)
    if not ended:
        os.kill(forked, signal.SIGKILL)

    assert os.waitpid(forked, 0)[1] == 0


def test_an_agent_is_answered_while_its_tools_processes_die(tmp_path):
    """Every call gets one result, in order, whatever ends its process."""
    codes = [
        "import os; os._exit(2)",
        "result = 'a'",
        "import ctypes; ctypes.string_at(0)",
        "result = 'b'",
    ]
    model = ScriptedModel([*(call("run", {"code": code}) for code in codes), "done"])
    with isolated(tmp_path, max_processes=1) as store:
        agent = YiemAgent(model, tool_store=store)
        answer = ask(agent, "Go.")

    results = [m for m in agent.messages if m.role == "toolResult"]
    assert answer.text == "done"
    assert [m.is_error for m in results] == [True, False, True, False]
    assert [m.text for m in results[1::2]] == ["a", "b"]
