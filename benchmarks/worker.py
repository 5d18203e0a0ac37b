"""Runs one scenario of one or more adapters in this process and prints what it measured as one JSON object.

    python worker.py SCENARIO ADAPTER[,ADAPTER…] '{"rounds": 5, …}'

Several adapters take turns, round by round, so that a drift of the machine meets all of them. Each figure is a list
with one value a round; the first, unmeasured round warms up. Every run is checked: how many tool calls ran, the final
text, the length of what was streamed.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import statistics
import sys
import threading
import time
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import workload
from workload import Script


def resident_kb() -> int:
    """Memory of this process in KiB; where the system does not tell, 0."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text("ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    return 0


class Clock:
    """CPU and wall seconds of a block, the garbage of what came before it collected first."""

    def __enter__(self) -> Self:
        gc.collect()
        self._cpu, self._wall = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s = time.perf_counter() - self._wall
        self.cpu_s = time.process_time() - self._cpu


def expect(got: Any, wanted: Any, what: str) -> None:
    if got != wanted:
        raise AssertionError(f"{what}: {got!r:.300}, not {wanted!r}")


def close(adapter: ModuleType, handle: Any) -> None:
    getattr(adapter, "close", lambda _: None)(handle)


def timed(adapter: ModuleType, script: Script, tools: list[workload.ToolDef]) -> Clock:
    """One run of a fresh agent; building and closing it is not timed."""
    handle = adapter.build(script, tools)
    workload.calls_made()
    with Clock() as clock:
        text = adapter.run(handle)
    expect(workload.calls_made(), script.turns * script.k, "tool calls")
    expect(workload.FINAL in str(text), True, f"final text in {text!r:.200}")
    close(adapter, handle)
    return clock


# --- scenarios: each gives the figures of one round of one adapter

_tool_lists: dict[int, list[workload.ToolDef]] = {}


def tools_of(count: int) -> list[workload.ToolDef]:
    """The tools of a scenario, made once, as an application has them."""
    if count not in _tool_lists:
        _tool_lists[count] = workload.many_tools(count)
    return _tool_lists[count]


def loop(adapter: ModuleType, turns: int, tools: int = 1, repeat: int = 1) -> dict[str, float]:
    """A run of so many turns with one tool call each."""
    offered = tools_of(tools)
    name = offered[tools // 2].name
    runs = [timed(adapter, Script(turns, tool=name), offered) for _ in range(repeat)]
    return {
        "cpu_us_turn": statistics.median(run.cpu_s for run in runs) / turns * 1e6,
        "wall_us_turn": statistics.median(run.wall_s for run in runs) / turns * 1e6,
    }


def growth(adapter: ModuleType) -> dict[str, float]:
    """A turn of a long run to one of a short run."""
    short = loop(adapter, 100, repeat=5)
    return {"ratio": loop(adapter, 1000)["cpu_us_turn"] / short["cpu_us_turn"]}


def tools(adapter: ModuleType, tools: int, turns: int) -> dict[str, float]:
    """A turn with many tools to one with a single tool."""
    one = loop(adapter, turns, repeat=3)
    return {"ratio": loop(adapter, turns, tools, repeat=3)["cpu_us_turn"] / one["cpu_us_turn"]}


_nap = workload.nap_tool()


def batch(adapter: ModuleType, calls: int) -> dict[str, float]:
    """One answer with so many calls of 50 ms."""
    clock = timed(adapter, Script(1, k=calls, tool="nap"), [_nap])
    return {"wall_ms": clock.wall_s * 1e3, "cpu_ms": clock.cpu_s * 1e3}


def crowd(adapter: ModuleType, agents: int, turns: int, delay_s: float) -> dict[str, float]:
    """So many agents at once, each with a model that takes its time."""
    tools = tools_of(1)
    scripts = [Script(turns - 1, tool=tools[0].name, delay_s=delay_s) for _ in range(agents)]
    handles = [adapter.build(script, tools) for script in scripts]
    workload.calls_made()
    with Clock() as clock:
        texts = getattr(adapter, "run_all", lambda all_: _in_threads(adapter.run, all_))(handles)
    expect(workload.calls_made(), agents * (turns - 1), "tool calls")
    expect({workload.FINAL in str(text) for text in texts}, {True}, "final texts")
    for handle in handles:
        close(adapter, handle)
    return {"wall_ms": clock.wall_s * 1e3, "cpu_ms": clock.cpu_s * 1e3}


def _in_threads(run: Any, handles: list[Any]) -> list[Any]:
    texts: list[Any] = [None] * len(handles)

    def one(i: int) -> None:
        texts[i] = run(handles[i])

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(handles))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return texts


_write = workload.write_tool()


def stream(adapter: ModuleType, url: str, mode: str, chunks: int) -> dict[str, float]:
    """A streamed answer of so many chunks of text, or of a call's arguments."""
    go = adapter.client(url, f"{mode}-{chunks}", [_write])
    workload.WRITTEN.clear()
    with Clock() as clock:
        seen = go()
    if mode == "text":
        expect(seen, chunks * workload.CHARS_PER_TOKEN, "characters")
    else:
        expect(workload.WRITTEN, [workload.written_length(chunks)], "written")
    return {"chunks_s": chunks / clock.wall_s, "cpu_us_chunk": clock.cpu_s / chunks * 1e6}


def wire(adapter: ModuleType, url: str, api: str, chunks: int) -> dict[str, float]:
    """A streamed text of so many chunks, over any API."""
    go = adapter.reader(url, api, f"text-{chunks}")
    with Clock() as clock:
        seen = go()
    expect(seen, chunks * workload.CHARS_PER_TOKEN, "characters")
    return {"chunks_s": chunks / clock.wall_s, "cpu_us_chunk": clock.cpu_s / chunks * 1e6}


def arguments(adapter: ModuleType, url: str, api: str, few: int, many: int) -> dict[str, float]:
    """A chunk of arguments among many to one among few; what an answer of one chunk costs is taken off both."""
    clocks: dict[int, list[float]] = {1: [], few: [], many: []}
    for _ in range(5):  # in turns, so that a drift of the machine meets all three
        for chunks, seconds in clocks.items():
            seconds.append(_asked(adapter, url, api, chunks, max(1, many // max(chunks, 50))))
    once, *both = [statistics.median(seconds) for seconds in clocks.values()]
    few_us, many_us = [(s - once) / n * 1e6 for s, n in zip(both, (few, many), strict=True)]
    return {"ratio": many_us / few_us, "few_us": few_us, "many_us": many_us}


def _asked(adapter: ModuleType, url: str, api: str, chunks: int, times: int) -> float:
    """CPU seconds of one answer whose call's arguments come in so many chunks."""
    go = adapter.asker(url, api, f"tool-{chunks}")
    [call] = go().tool_calls
    expect(len(call.arguments["content"]), workload.written_length(chunks), "characters")
    with Clock() as clock:
        for _ in range(times):
            go()
    return clock.cpu_s / times


def http(adapter: ModuleType, url: str, turns: int, tools: int = 1) -> dict[str, float]:
    """Turns through the real client and a local server, streamed."""
    offered = tools_of(tools)
    go = adapter.client(url, f"loop-{turns}-{offered[tools // 2].name}", offered)
    workload.calls_made()
    with Clock() as clock:
        go()
    expect(workload.calls_made(), turns, "tool calls")
    return {"cpu_us_turn": clock.cpu_s / turns * 1e6, "wall_us_turn": clock.wall_s / turns * 1e6}


def idle(adapter: ModuleType, agents: int, seconds: float) -> dict[str, float]:
    """So many agents after one short run each, kept without work."""
    tools = tools_of(1)
    for _ in range(3):
        timed(adapter, Script(2, tool=tools[0].name), tools)
    gc.collect()
    before_kb = resident_kb()
    handles = [adapter.build(Script(1, tool=tools[0].name), tools) for _ in range(agents)]
    for handle in handles:
        adapter.run(handle)
    gc.collect()
    kb = (resident_kb() - before_kb) / agents
    print("idle", file=sys.stderr, flush=True)  # whoever started this may go on
    start = time.process_time()
    time.sleep(seconds)
    return {"cpu_s": time.process_time() - start, "kb_agent": kb}


def wakeup(adapter: ModuleType, messages: int) -> dict[str, float]:
    """From handing a message to an idle agent until its model is asked; the median over so many."""
    waits: list[float] = []
    sent = [0.0]

    class Asked(Script):
        def next(self) -> None:
            waits.append(time.perf_counter() - sent[0])

    handle = adapter.build(Asked(0), tools_of(1))
    for _ in range(messages):
        time.sleep(0.005)  # let everything come to rest
        sent[0] = time.perf_counter()
        adapter.run(handle)
    close(adapter, handle)
    return {"ms": statistics.median(waits) * 1e3}


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        loop, growth, tools, batch, crowd, stream, wire, arguments, http, idle, wakeup,
    )
}  # fmt: skip


def measure(name: str, adapters: list[str], rounds: int, *, warm: bool, **params: Any) -> Any:
    scenario = SCENARIOS[name]
    modules = {adapter: importlib.import_module(f"adapters.{adapter}") for adapter in adapters}
    figures: dict[str, dict[str, list[float]]] = {adapter: {} for adapter in adapters}
    for number in range(rounds + warm):
        for adapter, module in modules.items():
            result = scenario(module, **params)
            if number >= warm:
                for figure, value in result.items():
                    figures[adapter].setdefault(figure, []).append(value)
    return figures


def main() -> None:
    name, adapters, params = sys.argv[1], sys.argv[2].split(","), json.loads(sys.argv[3])
    out = os.dup(1)
    os.dup2(2, 1)  # some frameworks print
    try:
        result = measure(name, adapters, **{"rounds": 5, "warm": True, **params})
    except BaseException as error:
        traceback.print_exc()
        result = {"error": f"{type(error).__name__}: {error}"[:300]}
    os.write(out, json.dumps(result).encode() + b"\n")
    os._exit(0)  # some frameworks leave threads behind that don't end


if __name__ == "__main__":
    main()
