"""An agent on a disk that is full: a small one of its own, and a quota where the system lets nobody make one."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# Mounts a disk of 400 kB over the folder $0, seen by this process only, and runs the rest there.
MOUNTED = 'mount -t tmpfs -o size=400k tmpfs "$0" && exec "$@"'

SCRIPT = """
import pathlib, resource, sys

from yiemagent import YiemAgent, ask, run_agent
from yiemagent.errors import SessionError
from yiemagent.history import check
from yiemagent.sessions import Session
from yiemagent.testing import ScriptedModel, call

folder, name, how, fsync = pathlib.Path(sys.argv[1]), *sys.argv[2:]
file, ballast = folder / name, folder / "ballast"
TEXT = "word " * 4000


def fill():
    if how == "quota":
        size = max(path.stat().st_size for path in folder.iterdir())
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        return
    with open(ballast, "wb", buffering=0) as out:
        try:
            while out.write(bytes(4096)):
                pass
        except OSError:
            pass


def free():
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    ballast.unlink(missing_ok=True)


def work() -> str:
    "Do what takes space."
    fill()
    return TEXT


session = Session.create(file, fsync=fsync)
model = ScriptedModel(["one is done", call("work", {})], default="more is done")
with session, YiemAgent(model, session=session, tools=[work]) as agent:
    assert ask(agent, "one").text == "one is done"
    broken = ask(agent, "two")  # its tool fills the disk, and its result does not fit
    print(broken.stop_reason, broken.error_message)
    try:
        run_agent(agent, TEXT)
    except SessionError as error:
        print("refused", error)
    free()
    assert ask(agent, "three").text == "more is done"
    kept = agent.messages
    assert session.messages == kept
    assert session.waiting == ()

assert check([m for m in kept if not getattr(m, "failed", False)]) == []
assert [m.text for m in kept if m.role == "user"] == ["one", "two", "three"]
assert [m.text for m in kept if m.role == "toolResult"] == [TEXT]
with Session.open(file) as again:
    assert again.messages == kept
    assert again.warnings == ()
    assert not again.interrupted
print("as it was")
"""


def small_disk(folder):
    """What a command begins with to have a small disk at a folder, and how the disk is called: that, or a quota."""
    begin = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNTED, str(folder)]
    try:
        tried = subprocess.run([*begin, "true"], check=False, capture_output=True, timeout=20)
    except FileNotFoundError:
        return [], "quota"
    return (begin, "disk") if tried.returncode == 0 else ([], "quota")


@pytest.mark.parametrize("name", ["chat.jsonl", "chat.db"])
@pytest.mark.parametrize("fsync", ["always", "never"])
@pytest.mark.parametrize("how", ["disk", "quota"])
def test_an_agent_on_a_full_disk_loses_nothing(how, fsync, name, tmp_path):
    """A run ends with an error, a message is refused, and with space again all that was told is in the session."""
    begin, how = small_disk(tmp_path) if how == "disk" else ([], how)
    done = subprocess.run(
        [*begin, sys.executable, "-c", SCRIPT, tmp_path, name, how, fsync],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
    )

    said = done.stdout.splitlines()
    assert said[-1:] == ["as it was"], done.stderr
    assert said[0].startswith("error SessionError: ")
    assert f"{name} can't be written" in said[0]
    assert said[1].startswith("refused ")
    assert len(said) == 3
