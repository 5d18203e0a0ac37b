"""Nothing is lost and nothing happens twice, wherever a process is killed."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
KILLS = 160  # for each kind of session


@pytest.mark.slow
@pytest.mark.time_limit(240)
@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
def test_nothing_is_lost_whenever_the_process_is_killed(kind):
    """After each SIGKILL the session opens, every acknowledged message is there once, every call has one result, no
    effect came twice, and the resumed run ends well.
    """
    done = subprocess.run(
        [sys.executable, "tests/sessions/crash.py", str(KILLS), "2026", kind],
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=230,
    )

    assert done.stderr == ""
    assert sum(json.loads(done.stdout)["deaths"].values()) >= KILLS
