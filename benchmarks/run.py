"""Measures yiemagent against the floor and prints each figure beside its bound; exits 1 where one falls short.

    python benchmarks/run.py            # each figure over more rounds
    python benchmarks/run.py --quick    # under a minute
    python benchmarks/run.py --peers DIR  # the turn cost of peers, each in its own environment below DIR

Everything is a ratio of what was measured in one run, in turns, since machines are noisy; CPU time where the work is
CPU's. The floor is the least Python that does the same work (`adapters/floor.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
from typing import Any, NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
OURS, FLOOR, BARE = "yiemagent", "floor", "bare_loop"
IMPORTS = "from yiemagent import YiemAgent, ToolStore, load_tools, run_agent, take_response"
PROVIDER = (
    "from yiemagent import YiemAgent; from yiemagent.providers import OpenAIChat\n"
    "YiemAgent(OpenAIChat('m', api_key='x'))"
)


class Figure(NamedTuple):
    """One figure, its bound, and whether more or less is better."""

    name: str
    value: float
    bound: float
    unit: str = "x"
    least: bool = False

    @property
    def holds(self) -> bool:
        return self.value >= self.bound if self.least else self.value <= self.bound

    def row(self) -> str:
        sign = ">=" if self.least else "<="
        mark = "ok" if self.holds else "SHORT"
        return f"{self.name:<58} {self.value:>9.2f} {sign} {self.bound:<6g} {self.unit:<4} {mark}"


def worker(scenario: str, adapters: list[str], python: str = sys.executable, **params: Any) -> Any:
    """Run a scenario in a fresh process and give its figures by adapter."""
    command = [python, str(HERE / "worker.py"), scenario, ",".join(adapters), json.dumps(params)]
    environ = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(
        command, cwd=HERE, env=environ, capture_output=True, text=True, check=False
    )
    result = (
        json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {"error": "nothing"}
    )
    if "error" in result:
        raise RuntimeError(f"{scenario} {adapters}: {result['error']}\n{done.stderr[-2000:]}")
    return result


def middle(values: list[float]) -> float:
    return statistics.median(values)


def ratio(figures: Any, figure: str, ours: str = OURS, other: str = FLOOR) -> float:
    """The median over rounds of ours to the other's in the same round."""
    pairs = zip(figures[ours][figure], figures[other][figure], strict=True)
    return middle([one / two for one, two in pairs])


@contextlib.contextmanager
def server() -> Any:
    """A local model server; gives its URL."""
    process = subprocess.Popen(
        [sys.executable, str(HERE / "server.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=HERE,
        text=True,
    )
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.stdin.close()
        process.wait(10)


# --- the figures -------------------------------------------------------------------------------------------------


def turns(rounds: int) -> list[Figure]:
    found, per_turn = [], {}
    for count, repeat in ((10, 20), (100, 3), (1000, 1)):
        figures = worker("loop", [OURS, FLOOR], turns=count, repeat=repeat, rounds=rounds)
        found.append(
            Figure(
                f"turn with a tool, CPU to the floor, {count} turns",
                ratio(figures, "cpu_us_turn"),
                4,
            )
        )
        per_turn[count] = min(figures[OURS]["cpu_us_turn"])
    found.append(
        Figure("a turn at 1,000 turns to one at 100", per_turn[1000] / per_turn[100], 1.15)
    )
    offered = {
        tools: min(
            worker("loop", [OURS], turns=100, repeat=3, tools=tools, rounds=rounds)[OURS][
                "cpu_us_turn"
            ]
        )
        for tools in (1, 500)
    }
    found.append(Figure("a turn with 500 tools to one with 1", offered[500] / offered[1], 1.2))
    return found


def batches(rounds: int) -> list[Figure]:
    return [
        Figure(
            f"{calls} parallel tools of 50 ms, to 50 ms",
            min(worker("batch", [OURS], calls=calls, rounds=rounds)[OURS]["wall_ms"]) / 50,
            bound,
        )
        for calls, bound in ((8, 1.1), (64, 1.25))
    ]


def crowd(rounds: int) -> list[Figure]:
    figures = worker("crowd", [OURS], agents=200, turns=5, delay_s=0.02, rounds=rounds)
    return [
        Figure(
            "200 agents of 5 turns, to the ideal 100 ms", min(figures[OURS]["wall_ms"]) / 100, 1.5
        )
    ]


def streams(rounds: int) -> list[Figure]:
    found = []
    with server() as url:
        for mode, label in (("text", "text"), ("tool", "argument")):
            chunks = 20_000 if mode == "text" else 4_000
            figures = worker(
                "stream", [OURS, FLOOR, BARE], url=url, mode=mode, chunks=chunks, rounds=rounds
            )
            rate = ratio(figures, "chunks_s")
            bare = ratio(figures, "chunks_s", OURS, BARE)
            found.append(Figure(f"{label} chunks a second, to the floor", rate, 0.4, least=True))
            found.append(Figure(f"{label} chunks a second, to a bare loop", bare, 0.6, least=True))
        cost = {
            chunks: min(
                worker("stream", [OURS], url=url, mode="tool", chunks=chunks, rounds=rounds)[OURS][
                    "cpu_us_chunk"
                ]
            )
            for chunks in (2_000, 16_000)
        }
        found.append(
            Figure("an argument chunk of 16,000 to one of 2,000", cost[16_000] / cost[2_000], 1.25)
        )
        figures = worker("http", [OURS, FLOOR], url=url, turns=50, rounds=rounds)
        found.append(
            Figure("50 turns over HTTP, CPU to the floor", ratio(figures, "cpu_us_turn"), 1.5)
        )
    return found


def idle() -> list[Figure]:
    figures = worker("idle", [OURS], agents=100, seconds=10, rounds=1, warm=False)[OURS]
    woken = worker("wakeup", [OURS], messages=100, rounds=1)[OURS]["ms"]
    return [
        Figure("100 idle agents for 10 s, CPU", figures["cpu_s"][0], 0.01, "s"),
        Figure("an idle agent, memory", figures["kb_agent"][0], 60, "KB"),
        Figure("a message to an idle agent, until its model is asked", min(woken), 1.0, "ms"),
    ]


def process_cpu(code: str) -> float:
    """CPU seconds of a process that runs `code`, from its own accounting."""
    tail = "\nimport resource as r; u = r.getrusage(r.RUSAGE_SELF); print(u.ru_utime + u.ru_stime)"
    done = subprocess.run(
        [sys.executable, "-c", code + tail],
        capture_output=True,
        text=True,
        check=True,
        cwd=HERE.parent,
    )
    return float(done.stdout.splitlines()[-1])


def imports(rounds: int) -> list[Figure]:
    codes = {"bare": "", "attrs": "import attrs", "all": IMPORTS, "package": "import yiemagent"}
    codes |= {"provider": PROVIDER, "floor": "import requests, jsonschema, json, threading"}
    times: dict[str, list[float]] = {name: [] for name in codes}
    for _ in range(rounds * 3):
        for name, code in codes.items():
            times[name].append(process_cpu(code))
    cost = {name: min(values) for name, values in times.items()}
    attrs = cost["attrs"] - cost["bare"]
    counted = subprocess.run(
        [sys.executable, "-c", IMPORTS + "\nimport sys; print(len(sys.modules), *sys.modules)"],
        capture_output=True, text=True, check=True, cwd=HERE.parent,
    ).stdout.split()  # fmt: skip
    heavy = {"requests", "jsonschema", "asyncio"} & set(counted)
    return [
        Figure(
            "import of the first names, to import attrs", (cost["all"] - cost["bare"]) / attrs, 3.2
        ),
        Figure("modules after it", float(counted[0]), 140, ""),
        Figure("of these requests, jsonschema or asyncio", float(len(heavy)), 0, ""),
        Figure("import yiemagent, to import attrs", (cost["package"] - cost["bare"]) / attrs, 1.1),
        Figure(
            "process of a first agent with a provider, to the floor's",
            cost["provider"] / cost["floor"],
            1.2,
        ),
    ]


def weight() -> list[Figure]:
    """What the core and its dependencies take on disk, installed."""
    code = (
        "import importlib.metadata as m, re, pathlib\n"
        "todo, seen, size = ['yiemagent'], set(), 0\n"
        "while todo:\n"
        "    name = todo.pop()\n"
        "    if name in seen: continue\n"
        "    seen.add(name)\n"
        "    d = m.distribution(name)\n"
        "    for f in d.files or ():\n"
        "        p = pathlib.Path(d.locate_file(f))\n"
        "        if p.is_file() and p.suffix != '.pyc': size += p.stat().st_size\n"
        "    for r in d.requires or ():\n"
        "        wanted = 'extra ==' not in r and 'python_version <' not in r\n"
        "        if wanted: todo.append(re.match(r'[\\w.-]+', r).group())\n"
        "print(size)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"not measured, yiemagent is not installed here: {done.stderr.splitlines()[-1]}")
        return []
    size = int(done.stdout)
    size += sum(
        p.stat().st_size
        for p in (HERE.parent / "yiemagent").rglob("*")
        if p.suffix != ".pyc" and p.is_file()
    )
    return [Figure("installed core with its dependencies", size / 1e6, 10, "MB")]


def peers(folder: pathlib.Path) -> None:
    """Print the turn cost of each peer that has an adapter and an environment of its own below `folder`."""
    for environment in sorted(folder.iterdir()):
        adapter = HERE / "adapters" / f"{environment.name}.py"
        if not adapter.exists():
            continue
        python = str(environment / "bin" / "python")
        figures = worker("loop", [environment.name], python, turns=100, rounds=3)
        print(
            f"{environment.name:<20} {min(figures[environment.name]['cpu_us_turn']):>10.0f} us a turn"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, under a minute")
    parser.add_argument(
        "--peers",
        type=pathlib.Path,
        metavar="DIR",
        help="measure peers in the environments below DIR",
    )
    options = parser.parse_args()
    rounds = 3 if options.quick else 9
    figures = []
    groups = [turns, batches, crowd, streams, imports]
    for group in groups:
        for figure in group(rounds):
            print(figure.row(), flush=True)
            figures.append(figure)
    for figure in (*idle(), *weight()):
        print(figure.row(), flush=True)
        figures.append(figure)
    if options.peers:
        peers(options.peers)
    short = [figure.name for figure in figures if not figure.holds]
    print(
        f"{len(figures) - len(short)} of {len(figures)} figures hold"
        + (f"; short: {'; '.join(short)}" if short else "")
    )
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
