"""Measures what yiemagent costs, beside the least that the same work costs, and prints each figure beside its bound.

    python benchmarks/run.py --quick          under a minute; exit code 1 where a figure falls short
    python benchmarks/run.py                  the same with more rounds
    python benchmarks/run.py --peers DIR      also other frameworks, each from its virtual environment in DIR

Ratios are taken inside one process whose adapters take turns, or, where a fresh process is what is measured, between
processes that take turns; the median over the rounds is shown. CPU time counts what the processor does, wall time what
a person waits for.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib.metadata
import itertools
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from figures import Figure, report

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PEERS = ("llm", "smolagents", "pydantic_ai", "openai_agents", "strands", "langgraph")
PROVIDER = "from yiemagent.providers import OpenAIChat"
NAMES = "from yiemagent import YiemAgent, ToolStore, load_tools, run_agent, take_response"
BESIDE = "floor,yiemagent"
TIME_LIMIT_S = 120


# --- processes


def environment() -> dict[str, str]:
    """The process's own, without what would change the figures; the checkout first on the path."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.lower().endswith("_proxy") and not name.startswith("PYTHON")
    }
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "NO_COLOR": "1"}


def start(scenario: str, adapters: str, python: str, **params: Any) -> subprocess.Popen[str]:
    command = [python, str(HERE / "worker.py"), scenario, adapters, json.dumps(params)]
    return subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def measure(
    scenario: str, adapters: str = "yiemagent", python: str = sys.executable, **params: Any
) -> dict[str, dict[str, list[float]]]:
    """Give the figures of a scenario, by adapter; each a list with one value a round."""
    return result_of(start(scenario, adapters, python, **params))


def result_of(process: subprocess.Popen[str]) -> dict[str, dict[str, list[float]]]:
    try:
        out, complaints = process.communicate(timeout=TIME_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise RuntimeError(f"no result within {TIME_LIMIT_S} s") from None
    if not out.strip():
        raise RuntimeError(f"exit code {process.returncode}: {complaints[-800:]}")
    result = json.loads(out)
    if "error" in result:
        raise RuntimeError(f"{result['error']}\n{complaints[-800:]}")
    return dict(result)


def cpu_ms(code: str) -> float:
    """CPU milliseconds of a fresh process that runs `code`."""
    arguments = [sys.executable, "-c", code]
    process = os.posix_spawn(sys.executable, arguments, environment())
    _, status, used = os.wait4(process, 0)
    if status:
        raise RuntimeError(f"{code!r} failed")
    return (used.ru_utime + used.ru_stime) * 1e3


def interleaved(rounds: int, **codes: str) -> dict[str, float]:
    """The median CPU milliseconds of several codes, each in fresh processes that take turns."""
    times: dict[str, list[float]] = {name: [] for name in codes}
    for number in range(rounds + 1):
        for name, code in codes.items():
            used = cpu_ms(code)
            if number:  # the first round fills the disk cache
                times[name].append(used)
    return {name: statistics.median(values) for name, values in times.items()}


@contextlib.contextmanager
def server() -> Iterator[str]:
    """A local server in a process of its own; gives its base URL."""
    command = [sys.executable, str(HERE / "server.py")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        process.stdin.close()


# --- figures


def ratio(figures: Any, figure: str, one: str = "yiemagent", other: str = "floor") -> float:
    """The median of the rounds' ratios."""
    pairs = zip(figures[one][figure], figures[other][figure], strict=True)
    return statistics.median(mine / theirs for mine, theirs in pairs)


def median(figures: Any, figure: str, adapter: str = "yiemagent") -> float:
    return statistics.median(figures[adapter][figure])


def turns(rounds: int) -> Iterator[Figure]:
    a_turn = {}
    for count, repeat in ((10, 8), (100, 2), (1000, 1)):
        found = measure("loop", BESIDE, turns=count, repeat=repeat, rounds=rounds)
        a_turn[count] = median(found, "cpu_us_turn")
        note = (
            f"{a_turn[count]:.0f} µs against {median(found, 'cpu_us_turn', 'floor'):.0f} (aim 2.5)"
        )
        what = f"a turn with one call, {count} turns: CPU to the floor's"
        yield Figure(what, ratio(found, "cpu_us_turn"), 4, "x", note)
    growth = measure("growth", rounds=rounds)
    what = "a turn at 1,000 turns to one at 100: CPU"
    yield Figure(what, median(growth, "ratio"), 1.15, "x")
    many = measure("tools", rounds=rounds, tools=500, turns=100)
    yield Figure("a turn with 500 tools to one with 1: CPU", median(many, "ratio"), 1.2, "x")


def _beside(found: Any, form: str) -> str:
    ours, floors = (median(found, "wall_ms", adapter) for adapter in ("yiemagent", "floor"))
    return f"{ours:{form}} ms, the floor {floors:{form}}"


def together(rounds: int) -> Iterator[Figure]:
    for calls, bound in ((8, 1.1), (64, 1.25)):
        found = measure("batch", BESIDE, calls=calls, rounds=rounds)
        what = f"{calls} parallel calls of 50 ms: time to 50 ms"
        yield Figure(what, median(found, "wall_ms") / 50, bound, "x", _beside(found, ".1f"))
    found = measure("crowd", BESIDE, agents=200, turns=5, delay_s=0.02, rounds=rounds)
    what = "200 agents, 5 turns, model of 20 ms: time to the ideal"
    yield Figure(what, median(found, "wall_ms") / 100, 1.5, "x", _beside(found, ".0f"))
    waits = median(measure("wakeup", messages=60, rounds=rounds), "ms")
    yield Figure("a message to an idle agent until its model is asked", waits, 1, " ms")


def streams(rounds: int, url: str) -> Iterator[Figure]:
    three = "floor,bare_loop,yiemagent"
    for mode, words in (("text", "text"), ("tool", "argument")):
        found = measure("stream", three, url=url, mode=mode, chunks=20_000, rounds=rounds)
        rate = f"{median(found, 'chunks_s'):,.0f}/s"
        for other, bound in (("floor", 0.4), ("bare_loop", 0.6)):
            what = f"20,000 {words} chunks: rate to the {other.replace('_', ' ')}'s"
            value = ratio(found, "chunks_s", other=other)
            yield Figure(what, value, bound, "x", rate, at_least=True)
    short = measure("stream", url=url, mode="tool", chunks=5_000, rounds=rounds)
    value = median(found, "cpu_us_chunk") / median(short, "cpu_us_chunk")
    yield Figure("an argument chunk of 20,000 to one of 5,000: CPU", value, 1.15, "x")


def over_http(rounds: int, url: str) -> Iterator[Figure]:
    found = measure("http", "floor,yiemagent", url=url, turns=50, rounds=rounds)
    note = f"{median(found, 'cpu_us_turn'):.0f} µs a turn"
    yield Figure(
        "50 turns over HTTP: CPU to the floor's", ratio(found, "cpu_us_turn"), 1.5, "x", note
    )


def idle(process: subprocess.Popen[str]) -> Iterator[Figure]:
    found = result_of(process)
    yield Figure("100 idle agents for 10 s: CPU", median(found, "cpu_s"), 0.01, " s")
    yield Figure("an idle agent: memory", median(found, "kb_agent"), 60, " KB")


def start_up(rounds: int, url: str) -> Iterator[Figure]:
    found = interleaved(
        rounds, bare="pass", attrs="import attrs", alone="import yiemagent", names=NAMES
    )
    attrs = found["attrs"] - found["bare"]
    note = f"import attrs {attrs:.0f} ms"
    alone, names = found["alone"] - found["bare"], found["names"] - found["bare"]
    yield Figure("`import yiemagent` to `import attrs`: CPU", alone / attrs, 1.1, "x", note)
    yield Figure("importing what an agent needs to `import attrs`: CPU", names / attrs, 3.2, "x")
    loaded = modules_after(NAMES)
    yield Figure("modules after that", len(loaded), 140)
    heavy = sorted({"requests", "jsonschema", "asyncio"} & loaded)
    yield Figure("of them requests, jsonschema, asyncio", len(heavy), 0, note=", ".join(heavy))
    first = {a: f"{FIRST}main({a!r}, {url!r})" for a in ("floor", "yiemagent")}
    both = interleaved(rounds, **first)
    note = f"{both['yiemagent']:.0f} ms against {both['floor']:.0f}"
    what = "the process of a first agent with a provider: CPU to the floor's"
    yield Figure(what, both["yiemagent"] / both["floor"], 1.2, "x", note)
    ours, others = our_mb(), dependencies_mb()
    core = ours["core"] + ours["net"]
    note = f"{others:.1f} of it dependencies; {sum(ours.values()) + others:.1f} with all wings"
    yield Figure("the installed core with its dependencies", core + others, 10, " MB", note)


FIRST = f"""
import importlib, sys
sys.path.insert(0, {str(HERE)!r})
def main(adapter, url):
    import workload
    importlib.import_module("adapters." + adapter).client(url, "loop-1-add", [workload.add_tool()])()
"""


def modules_after(code: str) -> set[str]:
    """The modules that `code` loads in a bare interpreter."""
    probe = f"import sys; before = set(sys.modules); {code}; print(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-c", probe], env=environment(), capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def our_mb() -> dict[str, float]:
    """What the library takes on disk, compiled files included: by wing, and as "core" what is in none."""
    sizes: dict[str, float] = collections.defaultdict(float)
    for folder in (ROOT / "yiemagent", ROOT / "tools"):
        for path in folder.rglob("*"):
            if path.is_file() and (
                path.suffix != ".pyc" or sys.implementation.cache_tag in path.name
            ):
                places = path.relative_to(ROOT).parts
                wing = places[1] if places[0] == "yiemagent" and len(places) > 2 else "core"
                sizes["core" if wing == "__pycache__" else wing] += path.stat().st_size / 1e6
    return sizes


def dependencies_mb() -> float:
    """What the dependencies take on disk, as installed."""
    seen: set[str] = set()
    size = 0
    waiting = ["attrs", "jsonschema", "requests", "urllib3"]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        found = importlib.metadata.distribution(name)
        for file in found.files or ():
            with contextlib.suppress(FileNotFoundError):
                size += Path(str(file.locate())).stat().st_size
        wanted = [r for r in found.requires or () if "extra ==" not in r]
        waiting += [_name(requirement) for requirement in wanted if _applies(requirement)]
    return size / 1e6


def _name(requirement: str) -> str:
    end = next((i for i, c in enumerate(requirement) if not (c.isalnum() or c in "-_.")), None)
    return requirement[:end]


def _applies(requirement: str) -> bool:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        importlib.metadata.distribution(_name(requirement))
        return True
    return False  # for another Python or another system


# --- peers


def compare(folder: Path, url: str) -> None:
    """Print a table of other frameworks: CPU to the floor's, from processes that take turns."""
    small = {"rounds": 3}
    jobs: list[tuple[str, str, str, dict[str, Any]]] = [
        ("turn, 10 turns", "loop", "cpu_us_turn", {"turns": 10, "repeat": 3, **small}),
        ("turn, 100 turns", "loop", "cpu_us_turn", {"turns": 100, **small}),
        ("turn, 500 tools", "loop", "cpu_us_turn", {"turns": 20, "tools": 500, **small}),
        ("8 calls, ms", "batch", "wall_ms", {"calls": 8, **small}),
        ("64 calls, ms", "batch", "wall_ms", {"calls": 64, **small}),
        ("200 agents, ms", "crowd", "wall_ms", {"agents": 200, "turns": 5, "delay_s": 0.02, "rounds": 1}),
        ("text chunk", "stream", "cpu_us_chunk", {"url": url, "mode": "text", "chunks": 2000, **small}),
        ("turn over HTTP", "http", "cpu_us_turn", {"url": url, "turns": 20, **small}),
    ]  # fmt: skip
    names = ["floor", "yiemagent", *(n for n in PEERS if (folder / n / "bin" / "python").exists())]
    print(f"\n{'CPU µs, or wall ms where it says so':<18}", *(f"{name:>15}" for name in names))
    for title, scenario, figure, params in jobs:
        cells = []
        for name in names:
            python = str(folder / name / "bin" / "python") if name in PEERS else sys.executable
            try:
                cells.append(
                    f"{median(measure(scenario, name, python, **params), figure, name):,.0f}"
                )
            except RuntimeError as error:
                cells.append(str(error).splitlines()[0][:14])
        print(f"{title:<36}", *(f"{cell:>15}" for cell in cells), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds: under a minute")
    parser.add_argument(
        "--peers",
        nargs="?",
        type=Path,
        const=HERE / ".venvs",
        metavar="DIR",
        help="also measure the frameworks whose virtual environments setup_peers.py put there",
    )
    chosen = parser.parse_args()
    rounds = 5 if chosen.quick else 15
    resting = start(
        "idle", "yiemagent", sys.executable, agents=100, seconds=10, rounds=1, warm=False
    )
    assert resting.stderr is not None
    resting.stderr.readline()  # its agents are made; from now on it sleeps, and hinders nobody
    with server() as url:
        parts = (
            turns(rounds),
            together(rounds),
            streams(rounds, url),
            over_http(rounds, url),
            start_up(rounds, url),
            idle(resting),
        )
        code = report(itertools.chain.from_iterable(parts))
        if chosen.peers is not None:
            compare(chosen.peers, url)
    return code


if __name__ == "__main__":
    sys.exit(main())
