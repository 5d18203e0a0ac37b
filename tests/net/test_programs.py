"""Programs run to their end: whatever they do, they and their children end in time, and output stays in bounds."""

from __future__ import annotations

import os
import pathlib
import signal as signals
import subprocess
import sys
import threading
import time

import pytest

from tests.support.processes import has_ended
from yiemagent.abort import AbortSignal
from yiemagent.errors import AbortedError, ToolError
from yiemagent.net.programs import run_process, without_secrets

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WAIT_S = 20.0


def python(code, **options):
    """Run Python code as a program of its own."""
    return run_process([sys.executable, "-c", code], timeout_s=WAIT_S, **options)


def test_output_and_exit_code_are_told():
    """What goes to stdout and stderr comes in the order in which it was written."""
    done = run_process(["/bin/sh", "-c", "echo one; echo two >&2; echo three; exit 3"])

    assert (done.output, done.exit_code, done.timed_out) == (b"one\ntwo\nthree\n", 3, False)


def test_input_is_read_to_its_end():
    """A megabyte goes through a program that answers while it reads."""
    data = b"0123456789abcdef" * 65_536
    done = run_process(["/bin/cat"], stdin=data, max_output_bytes=2_000_000, timeout_s=WAIT_S)

    assert done.output == data


def test_a_program_that_does_not_read_does_no_harm():
    """Input that nobody takes is dropped when the program ends."""
    done = run_process(["/bin/sh", "-c", "exit 0"], stdin=b"x" * 1_000_000, timeout_s=WAIT_S)

    assert done.exit_code == 0


def test_without_input_there_is_nothing_to_read():
    """A program that asks for input meets the end of it at once."""
    assert run_process(["/bin/cat"], timeout_s=WAIT_S).output == b""


def test_of_endless_output_both_ends_are_kept():
    """Of more output than allowed, a quarter is the beginning's, the rest the end's, and the middle is counted."""
    code = "import sys; sys.stdout.write('a' * 500_000 + 'b' * 500_000)"
    done = python(code, max_output_bytes=1000)

    assert done.output == b"a" * 250 + b"b" * 750
    assert (done.kept_first, done.left_out) == (250, 999_000)


def test_output_is_told_as_it_comes():
    """Each piece is handed on before the program ends."""
    told = []
    signal = AbortSignal()

    def on_output(data):
        told.append(data)
        signal.abort("seen")

    with pytest.raises(AbortedError, match="seen"):
        python(
            "import time; print('here', flush=True); time.sleep(99)",
            signal=signal,
            on_output=on_output,
        )

    assert told[0].startswith(b"here")


def test_whoever_listens_may_raise():
    """An error of the listener ends the program and is raised."""

    def on_output(data):
        raise LookupError(data)

    with pytest.raises(LookupError):
        python("import time; print(1, flush=True); time.sleep(99)", on_output=on_output)


def test_the_whole_group_ends_at_the_time_limit(tmp_path):
    """At its limit the program, its children and their children end, one that ignores SIGTERM, too."""
    script = (
        "trap '' TERM; sh -c 'trap \"\" TERM; sleep 99 & echo $! > inner; wait' & echo $! > child; "
        "sleep 99; sleep 99"
    )
    begun = time.monotonic()
    done = run_process(["/bin/sh", "-c", script], cwd=tmp_path, timeout_s=0.3)

    assert done.timed_out
    assert done.exit_code == -signals.SIGKILL
    assert time.monotonic() - begun < 5
    assert has_ended(int((tmp_path / "child").read_text()))
    assert has_ended(int((tmp_path / "inner").read_text()))


def test_a_program_may_end_in_peace_at_the_time_limit(tmp_path):
    """SIGTERM comes first: a program that handles it can clean up."""
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('bye'), sys.exit(7)))\n"
        "print('ready', flush=True); time.sleep(99)\n"
    )
    done = run_process([sys.executable, "-c", code], cwd=tmp_path, timeout_s=1)

    assert done.timed_out
    assert (done.exit_code, done.output) == (7, b"ready\nbye\n")


def test_an_abort_ends_the_group(tmp_path):
    """A set signal ends the program and its children, and is raised when they have ended."""
    signal = AbortSignal()
    script = "sleep 99 & echo $! > child; echo ready; wait"
    with pytest.raises(AbortedError):
        run_process(
            ["/bin/sh", "-c", script],
            cwd=tmp_path,
            signal=signal,
            on_output=lambda _: signal.abort(),
        )

    assert has_ended(int((tmp_path / "child").read_text()))


def test_an_abort_before_the_start_starts_nothing(tmp_path):
    """With a signal that is set already no program runs."""
    signal = AbortSignal()
    signal.abort()
    with pytest.raises(AbortedError):
        run_process(["/bin/sh", "-c", "echo > ran"], cwd=tmp_path, signal=signal)

    assert list(tmp_path.iterdir()) == []


def test_nothing_stays_in_the_background(tmp_path):
    """What a program leaves in the background ends with it, and holding its output open delays nothing."""
    begun = time.monotonic()
    done = run_process(
        ["/bin/sh", "-c", "sleep 99 & echo $! > child; echo done"], cwd=tmp_path, timeout_s=WAIT_S
    )

    assert (done.output, done.exit_code) == (b"done\n", 0)
    assert time.monotonic() - begun < 5
    assert has_ended(int((tmp_path / "child").read_text()))


def test_a_daemon_that_holds_the_output_delays_nothing(tmp_path):
    """A process that left the group is out of reach, and the call ends all the same."""
    code = (
        "import os, sys, time\n"
        "if os.fork():\n    time.sleep(0.05); sys.exit(0)\n"
        "os.setsid(); open('daemon', 'w').write(str(os.getpid())); os.write(1, b'x'); time.sleep(99)\n"
    )
    begun = time.monotonic()
    done = python(code, cwd=tmp_path)
    elapsed = time.monotonic() - begun
    daemon = int((tmp_path / "daemon").read_text())
    os.kill(daemon, signals.SIGKILL)

    assert done.exit_code == 0
    assert elapsed < 5
    assert has_ended(daemon)


@pytest.mark.parametrize("command", [["/no/such/program"], ["/etc/passwd"], ["a\0b"]])
def test_what_can_not_be_started_is_an_error(command):
    """A missing program, a file that is none and a null character are told in words."""
    with pytest.raises(ToolError, match="can't start"):
        run_process(command)


def test_the_environment_is_the_given_one():
    """A program sees the variables that it is given, and no others."""
    done = run_process(["/usr/bin/env"], env={"ONE": "1"})

    assert done.output == b"ONE=1\n"


def test_variables_that_look_like_secrets_are_left_out():
    """Names with key, token, secret, password or the like are not handed on, the others are."""
    environ = {
        "PATH": "/bin",
        "OPENAI_API_KEY": "sk-1",
        "github_token": "t",
        "DB_PASSWORD": "p",
        "AWS_SECRET_ACCESS": "s",
        "LANG": "C",
    }

    assert without_secrets(environ) == {"PATH": "/bin", "LANG": "C"}


def test_no_program_outlives_this_process(tmp_path):
    """When the interpreter exits while a thread runs a program, the program ends with it."""
    code = (
        "import threading, sys\n"
        "from yiemagent.net.programs import run_process\n"
        "ready = threading.Event()\n"
        "work = lambda: run_process(['/bin/sh', '-c', 'echo $$ > pid; echo; sleep 99 & wait'],\n"
        "    on_output=lambda _: ready.set())\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "ready.wait(20)\n"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=WAIT_S,
        check=True,
    )

    assert has_ended(int((tmp_path / "pid").read_text()))


def test_no_program_outlives_this_process_where_it_is_killed(tmp_path):
    """Killed without warning in the middle of a run: the program, which ignores SIGTERM, and its child end, too."""
    code = (
        "import os, signal\n"
        "from yiemagent.net.programs import run_process\n"
        "script = 'trap \"\" TERM; sleep 99 & echo $$ > pid; echo $! > child; echo; wait; sleep 99'\n"
        "kill = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "run_process(['/bin/sh', '-c', script], on_output=kill)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=WAIT_S,
        check=False,
    )

    assert done.returncode == -signals.SIGKILL
    assert has_ended(int((tmp_path / "pid").read_text()))
    assert has_ended(int((tmp_path / "child").read_text()))


def test_without_a_thread_to_wait_nothing_runs_on(tmp_path):
    """Where no thread can be had, that is told, and the program that was started has ended."""
    before = threading.stack_size(1 << 46)
    try:
        with pytest.raises(ToolError, match="no thread to wait for the program"):
            run_process(["/bin/sh", "-c", "echo $$ > pid; sleep 99"], cwd=tmp_path)
    finally:
        threading.stack_size(before)
    started = [int(pid) for path in tmp_path.iterdir() for pid in path.read_text().split()]

    assert all(map(has_ended, started))
