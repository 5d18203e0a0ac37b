"""Measures the MCP client beside the official SDK's, in one run and against the same servers.

    python benchmarks/mcp.py --quick      under a minute; exit code 1 where a figure falls short
    python benchmarks/mcp.py              more rounds, for figures that hold still

It needs the SDK: `sh tests/mcp/peers/install.sh FOLDER`, and YIEMAGENT_MCP_PEERS=FOLDER. The two clients take turns,
each in a process of its own; of each the best round counts, the one that the rest of the machine disturbed least.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from figures import Figure, report

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from yiemagent.mcp.client import McpClient

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
ECHO = [sys.executable, str(HERE / "mcp_echo.py")]
TOOL = """
from yiemagent.tool import AgentTool

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


def get_tool():
    return AgentTool(
        "echo", description="Echoes.", input_schema=SCHEMA, execute=lambda i, args, s, p: args["text"]
    )
"""
IMPORTS = {
    "import yiemagent.mcp": "import yiemagent.mcp",
    "import of our client and server": "from yiemagent.mcp import McpServer; "
    "from yiemagent.mcp.client import McpClient; import requests",
}


def sdk_python() -> str | None:
    """The Python that has the SDK."""
    folder = os.environ.get("YIEMAGENT_MCP_PEERS", "")
    found = Path(folder) / "venv/bin/python"
    return str(found) if folder and found.is_file() else None


def run(command: Sequence[str]) -> str:
    """What a program prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{command} failed: {done.stderr[-2000:]}")
    return done.stdout


def in_turns(python: str, target: Sequence[str], calls: int, rounds: int) -> Any:
    """The best round of ours and of the SDK's, by wall time and by processor time."""
    ours, theirs = [], []
    for _ in range(rounds):
        words = [str(calls), *target]
        ours.append(json.loads(run([sys.executable, str(HERE / "mcp_worker.py"), *words])))
        # -P: this file has the SDK's name, and must not be taken for it
        theirs.append(json.loads(run([python, "-P", str(HERE / "mcp_sdk_worker.py"), *words])))
    return [{key: min(each[key] for each in found) for key in found[0]} for found in (ours, theirs)]


@contextlib.contextmanager
def http_server(folder: Path) -> Iterator[str]:
    """Our server over HTTP with the tool `echo`; gives its address."""
    (folder / "echo.py").write_text(TOOL)
    command = [sys.executable, "-m", "yiemagent", "mcp", "serve", "--http", "127.0.0.1:0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [*command, str(folder)], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        said = process.stderr.readline()
        try:
            yield said.partition(" at ")[2].partition(";")[0]
        finally:
            process.terminate()


def stdio(python: str, calls: int, rounds: int) -> Iterator[Figure]:
    ours, theirs = in_turns(python, ECHO, calls, rounds)
    note = (
        f"{ours['wall_s'] * 1e6:.0f} µs, the SDK's {theirs['wall_s'] * 1e6:.0f} µs "
        f"({theirs['awaited_s'] * 1e6:.0f} µs awaited on its loop)"
    )
    yield Figure(
        "stdio: a call's time, to the SDK's", ours["wall_s"] / theirs["wall_s"], 0.35, "", note
    )


def http(python: str, calls: int, rounds: int, folder: Path) -> Iterator[Figure]:
    with http_server(folder) as url:
        ours, theirs = in_turns(python, [url], calls, rounds)
    for what, key, bound in (("processor time", "cpu_s", 1), ("time", "wall_s", 1.15)):
        note = f"{ours[key] * 1e6:.0f} µs, the SDK's {theirs[key] * 1e6:.0f} µs"
        yield Figure(
            f"HTTP: a call's {what}, to the SDK's", ours[key] / theirs[key], bound, "", note
        )


def imports(python: str, rounds: int) -> Iterator[Figure]:
    timed = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"
    sdk = min(float(run([python, "-P", "-c", timed.format("import mcp")])) for _ in range(rounds))
    for what, statement in IMPORTS.items():
        command = [sys.executable, "-c", timed.format(statement)]
        ours = min(float(run(command)) for _ in range(rounds))
        note = f"{ours * 1e3:.0f} ms, the SDK's {sdk * 1e3:.0f} ms"
        yield Figure(f"{what}, to `import mcp`", ours / sdk, 0.5, "", note)


def parallel(calls: int = 20) -> Iterator[Figure]:
    with McpClient(ECHO, protocol="legacy", max_concurrency=calls) as client:
        client.list_tools()
        threads = [
            threading.Thread(target=client.call_tool, args=("slow", {"text": "x"}))
            for _ in range(calls)
        ]
        begun = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - begun
    yield Figure(f"{calls} calls of 1 s at once, on one connection", took, 1.6, " s")


def figures(python: str, *, quick: bool, folder: Path) -> Iterator[Figure]:
    calls, rounds = (200, 3) if quick else (1000, 5)
    yield from stdio(python, calls, rounds)
    yield from http(python, calls, rounds, folder)
    yield from imports(python, 2)
    yield from parallel()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer calls: under a minute")
    chosen = parser.parse_args()
    python = sdk_python()
    if python is None:
        print("YIEMAGENT_MCP_PEERS names no folder of peers; see the head of benchmarks/mcp.py")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        return report(figures(python, quick=chosen.quick, folder=Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
