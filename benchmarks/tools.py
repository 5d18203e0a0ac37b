"""Measures what folders of tool files cost, beside the least that the same work costs.

    python benchmarks/tools.py --quick     under a minute; exit code 1 where a figure falls short
    python benchmarks/tools.py             the same with more rounds

A reload check is what an agent with a watched folder does at every turn: it finds out, by content, that nothing
changed; the least is reading the files. Loading is compared with importing the same files as modules, without bytecode.
Both take turns in this process, and the median over the rounds is shown; CPU time counts.

A call of a tool in a process of its own is compared with a line of JSON that a bare child echoes over pipes, and the
first one, which starts the process and loads the file, with `python -c "import jsonschema"`. Of these the time on the
clock counts, and of the first the CPU time of the children, too.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from figures import Figure, report

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

FILES = 500
CALLS = 50  # in a row, in one round
ECHO = (
    "import json, sys\nfor line in sys.stdin:\n    print(json.dumps(json.loads(line)), flush=True)"
)
TOOL = '''"""Look something up, number {number}."""

from collections.abc import Callable
from typing import Any

from yiemagent.abort import AbortSignal
from yiemagent.tool import AgentTool, AgentToolResult

INPUT_SCHEMA: dict[str, Any] = {{
    "type": "object",
    "properties": {{
        "query": {{"type": "string", "description": "What to look for"}},
        "limit": {{"type": "integer", "minimum": 1, "maximum": 50, "default": 10}},
        "order": {{"type": "string", "enum": ["date", "name", "size"]}},
    }},
    "required": ["query"],
}}


def prepare_arguments(args: dict[str, Any]) -> dict[str, Any]:
    """Take another name for the query."""
    if "text" in args:
        args["query"] = args.pop("text")
    return args


def execute_tool(
    tool_call_id: str,
    args: dict[str, Any],
    signal: AbortSignal,
    on_partial_result: Callable[[Any], None],
) -> AgentToolResult:
    """Look it up."""
    found = []
    for number in range(args.get("limit", 10)):
        signal.raise_if_aborted()
        on_partial_result({{"looked_at": number}})
        found.append(f"{{args['query']}} {{number + {number}}}")
    return AgentToolResult("\\n".join(found), details={{"found": len(found), "call": tool_call_id}})


def get_tool() -> AgentTool:
    """Give the tool."""
    return AgentTool(
        name="look_up_{number}",
        label="Look Up",
        description="Look something up in list {number}, by name, date or size.",
        input_schema=INPUT_SCHEMA,
        execute=execute_tool,
        prepare_arguments=prepare_arguments,
        parallel_tool_execute=True,
    )
'''


def figures(rounds: int, folder: Path, count: int) -> Iterator[Figure]:
    from yiemagent.registry import ToolStore, get_tools, load_tools

    store = ToolStore()
    store.watch(folder)
    assert len(get_tools(store)) == count + 1, store.load_errors
    checks = _turns(rounds * 3, lambda: _read(folder, count), lambda: _looked(store))
    yield _figure(f"a reload check of {count} unchanged files to reading them: CPU", checks, 4)
    again = _turns(rounds * 3, lambda: _read(folder, count), lambda: load_tools(store, folder))
    yield _figure(f"load_tools again, {count} unchanged files, to reading them: CPU", again, 4)
    loads = _turns(
        rounds,
        lambda: _import_plainly(folder, count),
        lambda: load_tools(ToolStore(), folder, on_error="raise"),
    )
    yield _figure(f"loading {count} tool files to importing them plainly: CPU", loads, 6)


def isolation_figures(rounds: int, folder: Path) -> Iterator[Figure]:
    from yiemagent.registry import ToolStore, load_tools

    (folder / "look_up.py").write_text(TOOL.format(number=1))
    store = ToolStore(isolation="process")
    tool = load_tools(store, folder, on_error="raise")["look_up_1"]

    def called() -> None:
        assert tool.execute("call_1", {"query": "tea", "limit": 1}).text == "tea 1"

    with _echoing() as echo:
        warm = [(_wall_s(echo, CALLS), _wall_s(called, CALLS)) for _ in range(rounds * 4 + 1)][1:]
    yield _figure(f"{CALLS} calls in a warm process to {CALLS} lines echoed: clock", warm, 30)
    store.close()
    cold = [(_import_cost(), _first_call_cost(called, store.close)) for _ in range(rounds * 2)]
    clock = [(least[0], ours[0]) for least, ours in cold]
    yield _figure("a first call, in a new process, to importing jsonschema: clock", clock, 3)
    cpu = [(least[1], ours[1]) for least, ours in cold]
    yield _figure("a first call, in a new process, to importing jsonschema: CPU", cpu, 3)


@contextlib.contextmanager
def _echoing() -> Iterator[Callable[[], None]]:
    """Have a bare child echo lines; gives what sends it a call as JSON and takes the echo."""
    params = {"name": "look_up_1", "arguments": {"query": "tea", "limit": 1}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", ECHO], **pipes) as child:

        def echo() -> None:
            child.stdin.write(line.encode() + b"\n")
            child.stdin.flush()
            assert json.loads(child.stdout.readline())["id"] == 1

        yield echo
        child.stdin.close()


def _import_cost() -> tuple[float, float]:
    """Give the seconds on the clock and of CPU of a Python that imports jsonschema."""
    began, cpu = time.perf_counter(), _children_cpu_s()
    subprocess.run([sys.executable, "-c", "import jsonschema"], check=True)
    return time.perf_counter() - began, _children_cpu_s() - cpu


def _first_call_cost(called: Callable[[], None], close: Callable[[], None]) -> tuple[float, float]:
    """Give the same of a call that starts a process; its end is in the CPU time and not on the clock."""
    began, cpu = time.perf_counter(), _children_cpu_s()
    called()
    took = time.perf_counter() - began
    close()
    return took, _children_cpu_s() - cpu


def _children_cpu_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _wall_s(work: Callable[[], object], count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        work()
    return time.perf_counter() - began


def _figure(what: str, pairs: list[tuple[float, float]], bound: float) -> Figure:
    ratio = statistics.median(ours / least for least, ours in pairs)
    least, ours = (1000 * statistics.median(times) for times in zip(*pairs, strict=True))
    return Figure(what, ratio, bound, "x", f"{ours:.1f} ms against {least:.1f}")


def _turns(
    rounds: int, least: Callable[[], object], ours: Callable[[], object]
) -> list[tuple[float, float]]:
    """Let both take turns, once without counting, and give their CPU seconds, round by round."""
    pairs = [(_cpu_s(least), _cpu_s(ours)) for _ in range(rounds + 1)]
    return pairs[1:]


def _cpu_s(work: Callable[[], object]) -> float:
    gc.collect()
    began = time.process_time()
    work()
    return time.process_time() - began


def _read(folder: Path, count: int) -> None:
    read = [path.read_bytes() for path in sorted(folder.glob("*.py"))]
    assert len(read) == count


def _looked(store: object) -> None:
    assert store.look() == ()


def _import_plainly(folder: Path, count: int) -> None:
    with _on_path(folder):
        tools = [importlib.import_module(f"tool_{number:03}").get_tool() for number in range(count)]
    assert len(tools) == count


@contextlib.contextmanager
def _on_path(folder: Path) -> Iterator[None]:
    """Let the files be imported by name, without bytecode, and forget them again."""
    sys.path.insert(0, str(folder))
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.startswith("tool_")]:
            del sys.modules[name]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds: under a minute")
    parser.add_argument("--rounds", type=int, help="how often each takes its turn")
    parser.add_argument("--files", type=int, default=FILES, help="how many tool files there are")
    chosen = parser.parse_args()
    rounds = chosen.rounds or (5 if chosen.quick else 21)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()
        for number in range(chosen.files):
            (folder / f"tool_{number:03}.py").write_text(TOOL.format(number=number))
        isolated = folder / "isolated"
        isolated.mkdir()
        return report(
            itertools.chain(
                isolation_figures(rounds, isolated), figures(rounds, folder, chosen.files)
            )
        )


if __name__ == "__main__":
    sys.exit(main())
