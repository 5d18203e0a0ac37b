"""What the suite asks of every test, shown on tests that break it.

All of them stand in one file, which runs once in a fresh process under this suite's own conftest and settings.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent

EXAMPLES = """
import socket, subprocess, sys, threading, warnings
import pytest

stop = threading.Event()
kept = []

def start(name, daemon, seconds=None):
    threading.Thread(target=stop.wait, args=(seconds,), name=name, daemon=daemon).start()

def teardown_module():
    stop.set()
    for item in kept:
        item.close() if isinstance(item, socket.socket) else (item.kill(), item.wait())

@pytest.mark.time_limit(0.2)
def test_hangs():
    threading.Event().wait()

def test_after_the_one_that_hangs():
    assert True

def test_leaves_a_thread_that_blocks_the_exit():
    start("mine", daemon=False)

def test_leaves_a_thread_of_the_library():
    start("yiem-a-loop", daemon=True)

def test_leaves_a_daemon_of_its_own():
    start("mine", daemon=True)

def test_leaves_a_thread_that_is_just_ending():
    start("yiem-x", daemon=True, seconds=0.1)

@pytest.mark.abandons_threads(1)
def test_abandons_more_than_announced():
    start("yiem-1", daemon=True)
    start("yiem-2", daemon=True)

@pytest.mark.abandons_threads(2)
def test_abandons_what_is_announced():
    start("yiem-1", daemon=True)
    start("yiem-2", daemon=True)

def test_leaves_a_child():
    kept.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))

def test_leaves_a_socket():
    kept.append(socket.socket())

@pytest.mark.leaves_open("this is what the example shows")
def test_leaves_a_socket_and_says_so():
    kept.append(socket.socket())

def test_leaves_a_socket_that_nobody_holds():
    one, two = socket.socketpair()
    circle = [one, two]
    circle.append(circle)
    one.close()
    two.close()

def test_warns():
    warnings.warn("old")
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run test files under this suite's conftest in a fresh process; gives exit code and output."""

    def run_source(source, *options):
        folder = tmp_path_factory.mktemp("suite")
        (folder / "conftest.py").write_text((HERE / "conftest.py").read_text())
        (folder / "pyproject.toml").write_text((HERE.parent / "pyproject.toml").read_text())
        (folder / "test_it.py").write_text(source)
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-rA",
                "-o",
                "settle_s=0.4",
                *options,
                "test_it.py",
            ],
            cwd=folder,
            env=os.environ | {"NO_COLOR": "1", "COLUMNS": "400"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return run_source


@pytest.fixture(scope="module")
def examples(run):
    """The output of the examples, and per example what the summary says: each outcome with its reason."""
    code, text = run(EXAMPLES)
    assert code == 1
    summary = {}
    for outcome, name, reason in re.findall(
        r"^(\w+) test_it\.py::(\w+)(?: - (.*))?$", text, re.MULTILINE
    ):
        if outcome != "PASSED":
            summary.setdefault(name, []).append(f"{outcome} {reason}")
    return text, summary


def test_a_test_that_hangs_fails_at_its_limit(examples):
    """A test that waits for ever fails at its limit, with all stacks shown, and the next one runs."""
    text, summary = examples

    assert "the test did not end within its limit of 0.2 s" in summary["test_hangs"][0]
    assert "most recent call first" in text
    assert "PASSED test_it.py::test_after_the_one_that_hangs" in text


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("test_leaves_a_thread_that_blocks_the_exit", "threads left behind: ['mine']"),
        ("test_leaves_a_thread_of_the_library", "threads left behind: ['yiem-a-loop']"),
        ("test_abandons_more_than_announced", "threads left behind: ['yiem-1', 'yiem-2']"),
        ("test_leaves_a_child", "child processes left behind"),
        ("test_leaves_a_socket", "sockets or pipes left open"),
        ("test_warns", "UserWarning: old"),
    ],
)
def test_what_is_left_behind_fails_the_test(examples, name, fault):
    """A thread of the library or one that holds the interpreter, a child, a socket, a warning: each fails its test."""
    _, summary = examples

    assert len(summary[name]) == 1
    assert fault in summary[name][0]


@pytest.mark.parametrize(
    "name",
    [
        "test_after_the_one_that_hangs",
        "test_leaves_a_daemon_of_its_own",
        "test_leaves_a_thread_that_is_just_ending",
        "test_abandons_what_is_announced",
        "test_leaves_a_socket_and_says_so",
        "test_leaves_a_socket_that_nobody_holds",
    ],
)
def test_what_is_allowed_passes(examples, name):
    """A test that leaves nothing, or only what it may, passes."""
    text, summary = examples

    assert f"PASSED test_it.py::{name}" in text
    assert name not in summary


def test_a_mark_that_nobody_registered_is_an_error(run):
    """A misspelt mark does not pass in silence."""
    code, text = run("import pytest\n@pytest.mark.slwo\ndef test_it():\n    assert True\n")

    assert code != 0
    assert "slwo" in text


def test_the_suite_may_come_in_two_runs(run, tmp_path):
    """What ran in several processes is noted, shown at their end, and known to a run that comes after."""
    ran = tmp_path / "ran"
    one = "import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test_a(n, show): show(f'{n} eggs')\n"
    two = (
        "def test_b(ran_tests):\n"
        "    assert ran_tests.whole_suite\n"
        "    assert ran_tests.full_ids == {'test_it.py::test_a[1]', 'test_it.py::test_a[2]'}\n"
        "    assert ran_tests.node_ids == {'test_it.py::test_a'}\n"
    )
    code, text = run(one, "-n", "2", "--note-ran", str(ran))

    assert code == 0, text
    assert {"1 eggs", "2 eggs"} <= set(text.splitlines())
    assert run(two, "--ran-before", str(ran))[0] == 0


def test_generated_examples_are_not_traced(run):
    """Coverage is that of examples that are written down."""
    source = (
        "import pytest, hypothesis, hypothesis.strategies as st\n"
        "@hypothesis.given(st.none())\n"
        "def test_a(x): assert x is None\n"
        "@pytest.fixture(autouse=True)\n"
        "def marks(request):\n"
        "    traced = request.node.get_closest_marker('no_cover') is None\n"
        "    assert traced == (request.node.name == 'test_b')\n"
        "def test_b(): assert True\n"
    )
    code, text = run(source)

    assert code == 0, text


def test_ci_calls_the_command_of_the_readme():
    """The README's test command is one line, and CI calls exactly it."""
    command = "sh tests/run.sh"

    assert command in (HERE.parent / "README.md").read_text().splitlines()
    assert (HERE.parent / ".ci" / "run").read_text().rstrip().endswith(f"exec {command}")
