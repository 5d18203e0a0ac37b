"""Kills agents at random moments, and holds their sessions to what must hold; the long run of tests/sessions/crash.py.

python benchmarks/crash.py --quick    300 deaths, under a minute; exit code 1 where a session lost or doubled something
python benchmarks/crash.py            5,000 deaths
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from figures import Figure, report

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("jsonl", "sqlite")


def killed(kind: str, deaths: int, seed: int) -> Figure:
    """Kill agents on one kind of session so often."""
    command = [sys.executable, "tests/sessions/crash.py", str(deaths), str(seed), kind]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    what = f"deaths after which all holds, {kind} (seed {seed})"
    if done.returncode != 0:
        return Figure(what, 0, deaths, "", "see above", at_least=True)
    found = json.loads(done.stdout)
    note = f"{found['sessions']} sessions, {found['seconds']} s"
    return Figure(what, sum(found["deaths"].values()), deaths, "", note, at_least=True)


def figures(deaths: int, seed: int) -> Iterator[Figure]:
    for kind in KINDS:
        yield killed(kind, deaths // len(KINDS), seed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="300 deaths: under a minute")
    parser.add_argument("--deaths", type=int, default=5000, help="how often an agent is killed")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of all choices")
    chosen = parser.parse_args()
    return report(figures(300 if chosen.quick else chosen.deaths, chosen.seed))


if __name__ == "__main__":
    sys.exit(main())
