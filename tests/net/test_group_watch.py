"""The end of a process group when its watching process is gone."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

from tests.support.processes import has_ended
from yiemagent.net.group_watch import GroupWatch

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WAIT_S = 20.0
# Watches a group whose leader and child ignore SIGTERM, says their ids, and ends in some way.
PARENT = """
import os, signal, subprocess, sys
from yiemagent.net.group_watch import GroupWatch
child = "trap '' TERM; sleep 99 & echo $$ $!; wait; wait"
process = subprocess.Popen(["/bin/sh", "-c", child], stdout=subprocess.PIPE, start_new_session=True)
watch = GroupWatch(process.pid)
pids = process.stdout.readline().decode()
{before}
print(pids, end="", flush=True)
{then}
"""


def pids_of(then, before=""):
    """Run the parent, and give the ids that it says and its exit code."""
    done = subprocess.run(
        [sys.executable, "-c", PARENT.format(then=then, before=before)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=50,
        check=False,
    )
    return [int(word) for word in done.stdout.split()], done.returncode


def test_the_group_ends_where_this_process_is_killed():
    """Killed without warning: the leader and its child, which ignore SIGTERM, are gone soon after."""
    pids, code = pids_of("os.kill(os.getpid(), signal.SIGKILL)")

    assert code == -signal.SIGKILL
    assert len(pids) == 2
    assert all(map(has_ended, pids))


def test_a_forked_child_is_not_taken_for_this_process():
    """A child that was forked and lives on keeps no end of the pipe, so that its parent's end is noticed."""
    before = "forked = os.fork()\nif not forked:\n    os.close(1); signal.pause()\npids = pids[:-1] + f' {forked}'"
    (leader, child, forked), _ = pids_of("os.kill(os.getpid(), signal.SIGKILL)", before)

    assert has_ended(leader)
    assert has_ended(child)
    os.kill(forked, signal.SIGKILL)
    assert has_ended(forked)


def test_a_watch_that_is_dismissed_ends_nothing():
    """Dismissed, once or twice, it has no shell any more, and the group goes on."""
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, start_new_session=True) as process:
        watch = GroupWatch(process.pid)
        shell = watch._shell
        watch.dismiss()
        watch.dismiss()

        assert shell.returncode == -signal.SIGKILL
        assert process.poll() is None


def test_without_a_shell_there_is_no_watch(tmp_path):
    """Where no shell can be started, nothing is watched and nothing fails."""
    code = (
        "import os, sys\n"
        "from yiemagent.net.group_watch import GroupWatch\n"
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))\n"
        "watch = GroupWatch(os.getpid())\n"
        "watch.dismiss()\n"
        "print('fine')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert done.stdout == "fine\n", done.stderr
