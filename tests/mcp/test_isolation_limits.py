"""What a tool in a process can't do to its caller: crash it, hang it, outgrow its limits, outlive its end."""

import os
import pathlib
import re
import resource
import signal
import sys
import threading
import time

import pytest

from tests.support.isolated_tools import RUN, does, isolated, pid_of
from tests.support.processes import has_ended
from yiemagent import (
    AbortSignal,
    ProcessLimits,
    ToolError,
    YiemAgent,
    abort_agent,
    ask,
    run_agent,
    take_response,
)
from yiemagent.errors import AbortedError
from yiemagent.testing import ScriptedModel, call

# Holds the interpreter lock for longer than any test lasts, without looking at signals.
IN_C = "sum(range(10**13))"
BACKTRACKING = "import re; re.match('(a|a)*b', 'a' * 60)"


@pytest.fixture
def store(tmp_path):
    """A store of its own, with small limits."""
    limits = ProcessLimits(
        memory_bytes=1 << 30, cpu_s=1, file_bytes=1 << 20, open_files=40, processes=5_000
    )
    with isolated(tmp_path, limits=limits) as made:
        yield made


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import ctypes; ctypes.string_at(0)", "was ended by SIGSEGV (Segmentation fault)"),
        ("import os; os._exit(3)", "ended with exit code 3"),
        ("import os; os._exit(0)", "ended with exit code 0"),
        ("import os; os.abort()", "was ended by SIGABRT (Aborted)"),
        ("import os; os.kill(os.getpid(), 9)", "was ended by SIGKILL, perhaps since the system"),
        ("import os; os.kill(os.getpid(), 15)", "was ended by SIGTERM"),
        ("import os; os.kill(os.getpid(), 40)", "was ended by signal 40"),
        ("import os; os.write(2, b'I am done for'); os._exit(1)", "its last words: I am done for"),
        ("import os; os.closerange(3, 40); os._exit(5)", "ended with exit code 5"),
        (f"import os; os.closerange(3, 40); {IN_C}", "its process closed the connection"),
        ("while True: pass", "was ended by SIGXCPU: a call may use 1 s of CPU time"),
        ("sum(range(10**13))", "was ended by SIGXCPU: a call may use 1 s of CPU time"),
    ],
)
def test_a_crash_is_an_error_and_the_next_call_works(store, code, words):
    """The error names the signal or the exit code and the last words; another process does the next call."""
    before = pid_of(store)
    with pytest.raises(ToolError, match=re.escape(words)):
        does(store, code)

    assert pid_of(store) != before
    assert has_ended(before)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("bytearray(2 << 30)", "MemoryError (the tool's process is limited to 1,073,741,824 bytes"),
        (
            "f = open({path!r}, 'wb')\nf.write(bytes(2 << 20))\nf.close()",
            "File too large (the tool's process is limited to 1,048,576 bytes in a file)",
        ),
        (
            "kept = [open('/dev/null') for _ in range(50)]",
            "Too many open files: '/dev/null' (the tool's process is limited to 40 open files)",
        ),
    ],
)
def test_a_limit_is_named_where_it_is_hit(store, tmp_path, code, words):
    """Memory, file size and open files are held by the system, and the error says which it was."""
    before = pid_of(store)
    with pytest.raises(ToolError, match=re.escape(words)):
        does(store, code.format(path=str(tmp_path / "big")))

    assert pid_of(store) == before


def test_the_limits_are_the_systems(store):
    """They are set for the process and what it starts, no core is dumped, and they can't be lifted by a user."""
    names = ("AS", "FSIZE", "NOFILE", "NPROC", "CORE")
    code = f"import resource\nresult = [resource.getrlimit(getattr(resource, 'RLIMIT_' + n)) for n in {names}]"
    told = dict(
        zip(names, does(store, code + "\nresult = {'all': result}").details["all"], strict=True)
    )
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    processes = 5_000 if hard == resource.RLIM_INFINITY else min(hard, 5_000)

    assert told == {
        "AS": [1 << 30] * 2,
        "FSIZE": [1 << 20] * 2,
        "NOFILE": [40] * 2,
        "NPROC": [processes] * 2,
        "CORE": [0] * 2,
    }


def test_a_limit_that_is_lifted_is_not_set(tmp_path):
    """None leaves what this process has."""
    limits = ProcessLimits(memory_bytes=None, file_bytes=None, open_files=None)
    code = """
        import resource
        result = {"all": [resource.getrlimit(kind) for kind in (
            resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_CPU)]}
    """
    with isolated(tmp_path, limits=limits) as store:
        found = does(store, code).details["all"]

    kinds = (resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_CPU)
    assert found == [list(resource.getrlimit(kind)) for kind in kinds]


def test_cpu_time_counts_anew_for_each_call(store):
    """A warm process may use the limit again in each call."""
    burn = "import os, time\nwhile time.thread_time() < 0.6: pass\nresult = os.getpid()"

    assert len({does(store, burn).text for _ in range(3)}) == 1


def test_a_process_gets_little_of_the_environment(tmp_path, monkeypatch):
    """A few plain variables, what is named, and nothing else."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("WANTED", "yes")
    code = "import os; result = dict(os.environ)"
    with isolated(tmp_path, limits=ProcessLimits(env=["WANTED", "NOT_THERE"])) as store:
        named = does(store, code).details
    with isolated(tmp_path, limits=ProcessLimits(env={"GIVEN": "1"})) as store:
        given = does(store, code).details

    plain = {"HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}
    assert {name for name in named if not name.startswith("LC_")} <= plain | {"WANTED"}
    assert (named["WANTED"], named["LC_TIME"]) == ("yes", "C")
    assert given["GIVEN"] == "1"
    assert "WANTED" not in given


def test_a_process_works_in_its_folder_and_finds_the_same_modules(tmp_path):
    """`cwd` is the folder it runs in; what can be imported here can be imported there."""
    folder = tmp_path / "work"
    folder.mkdir()
    code = "import os, sys, attrs; result = {'cwd': os.getcwd(), 'path': sys.path}"
    with isolated(tmp_path, limits=ProcessLimits(cwd=folder)) as store:
        told = does(store, code).details

    assert told["cwd"] == str(folder)
    assert told["path"] == [str(pathlib.Path(place).absolute()) for place in sys.path]


def test_no_descriptor_is_inherited(store):
    """A process has its three pipes, the wire, and nothing of ours, even what was made inheritable."""
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    try:
        code = """
            import os
            result = {"open": [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")
                               if os.path.exists(f"/proc/self/fd/{n}")]}
        """
        store.close()  # so that the next process starts now
        found = does(store, code).details["open"]
        ours = str(pathlib.Path(f"/proc/self/fd/{writing}").readlink())
    finally:
        os.close(reading)
        os.close(writing)

    assert ours not in found


# -- time limits and aborts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("work", [IN_C, BACKTRACKING, "while True: pass"])
def test_a_loop_in_c_is_ended_at_the_time_limit(tmp_path, work):
    """Neither Python code nor C code that keeps the interpreter lock outlives the limit, and the batch goes on."""
    text = RUN.replace("timeout_s=30", "timeout_s=3")
    model = ScriptedModel([call("run", {"code": work}), "It took too long."])
    with isolated(tmp_path, {"run": text}) as store:
        pid = pid_of(store)
        agent = YiemAgent(model, tool_store=store)
        answer = ask(agent, "Go.")
        ended = has_ended(pid)
        after = pid_of(store)

    assert answer.text == "It took too long."
    assert agent.messages[2].text == "run timed out after 3 s"
    assert agent.messages[2].is_error
    assert ended
    assert after != pid


def test_a_direct_call_has_the_time_limit_too(tmp_path):
    """`execute` outside of an agent ends as well."""
    text = RUN.replace("timeout_s=30", "timeout_s=2.5")
    with isolated(tmp_path, {"run": text}) as store:
        does(store, "")
        with pytest.raises(ToolError, match=r"^run timed out after 2\.5 s$"):
            does(store, IN_C)


def started(fifo):
    """Code that tells that it runs, and then hangs in C."""
    return f"import os; os.close(os.open({str(fifo)!r}, os.O_WRONLY)); {IN_C}"


def test_an_abort_ends_a_loop_in_c_at_once(tmp_path):
    """The aborted result does not wait for any grace, and the process is gone."""
    fifo = tmp_path / "started"
    os.mkfifo(fifo)
    model = ScriptedModel([call("run", {"code": started(fifo)}), "never"])
    with isolated(tmp_path) as store:
        pid = pid_of(store)
        agent = YiemAgent(model, tool_store=store, abort_grace_s=30)
        answers = []
        thread = threading.Thread(target=lambda: answers.append(ask(agent, "Go.")))
        thread.start()
        fifo.read_bytes()
        begun = time.monotonic()
        abort_agent(agent)
        thread.join()
        took_s = time.monotonic() - begun
        ended = has_ended(pid)

    assert answers[0].stop_reason == "aborted"
    assert agent.messages[2].text == "Operation aborted"
    assert ended
    assert took_s < 5  # of a grace of 30


@pytest.mark.parametrize("function", ["prepare_arguments", "validate_required_args"])
def test_an_abort_ends_what_looks_at_arguments_at_once(tmp_path, function):
    """A file's own check that hangs is ended with the run, and does not go on until the time limit."""
    fifo = tmp_path / "started"
    os.mkfifo(fifo)
    text = f"""
    import os
    from yiemagent import AgentTool

    def hang(args):
        descriptor = os.open({str(fifo)!r}, os.O_WRONLY)
        os.write(descriptor, str(os.getpid()).encode())
        os.close(descriptor)
        {IN_C}

    def get_tool():
        return AgentTool("run", description="Run.", execute=print, {function}=hang)
    """
    with isolated(tmp_path, {"run": text}) as store:
        agent = YiemAgent(ScriptedModel([call("run")]), tool_store=store, abort_grace_s=30)
        run_agent(agent, "Go.")
        pid = int(fifo.read_bytes())
        abort_agent(agent)
        answer = take_response(agent)
        ended = has_ended(pid)

    assert answer.stop_reason == "aborted"
    assert agent.messages[2].text == "Operation aborted"
    assert ended


def test_an_abort_raises_in_a_direct_call(tmp_path):
    """Its signal ends it, and one that is set before lets nothing start."""
    fifo = tmp_path / "started"
    os.mkfifo(fifo)
    signal_ = AbortSignal()

    def abort():
        fifo.read_bytes()
        signal_.abort("enough")

    thread = threading.Thread(target=abort)
    thread.start()
    with isolated(tmp_path) as store:
        with pytest.raises(AbortedError, match="enough"):
            does(store, started(fifo), signal_)
        thread.join()
        with pytest.raises(AbortedError, match="enough"):
            does(store, f"open({str(tmp_path / 'ran')!r}, 'w')", signal_)

    assert not (tmp_path / "ran").exists()


CHILDREN = """
    import os, subprocess, sys
    sleeper = [sys.executable, "-c", "import signal; signal.pause()"]
    pids = [subprocess.Popen(sleeper).pid for _ in range(3)]
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            import signal
            signal.pause()
        pids.append(pid)
"""


@pytest.mark.parametrize("end", ["os._exit(3)", "while True: pass", IN_C])
def test_what_a_tool_started_ends_with_it(tmp_path, end):
    """Children and forks end with the process, whether it crashed or was ended at its limit."""
    fifo = tmp_path / "pids"
    os.mkfifo(fifo)
    found = []
    reader = threading.Thread(target=lambda: found.extend(fifo.read_text().split()))
    reader.start()
    text = RUN.replace("timeout_s=30", "timeout_s=5")
    code = f"{CHILDREN}\n    open({str(fifo)!r}, 'w').write(' '.join(map(str, pids)))\n    {end}"
    with isolated(tmp_path, {"run": text}) as store:
        does(store, "")
        with pytest.raises(ToolError, match=r"exit code 3|timed out"):
            does(store, code)
        reader.join()

    assert len(found) == 6
    assert all(has_ended(int(pid)) for pid in found)


def test_a_fork_does_not_keep_the_connection_open(tmp_path):
    """A copy of the process that lives on does not delay the news of the original's end."""
    code = """
        import os, signal
        if os.fork() == 0:
            os.setsid()
            signal.alarm(20)
            signal.pause()
        os._exit(3)
    """
    with isolated(tmp_path) as store:
        does(store, "")
        begun = time.monotonic()
        with pytest.raises(ToolError, match="exit code 3"):
            does(store, code)

        assert time.monotonic() - begun < 10


def test_signals_of_the_terminal_do_not_reach_it(store):
    """It leads a session of its own, so that Ctrl-C is ours alone."""
    code = "import os; result = {'own': os.getsid(0) == os.getpid() == os.getpgrp()}"

    assert does(store, code).details == {"own": True}
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
