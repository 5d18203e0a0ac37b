"""The harness of the benchmarks works; what it measures is no matter here."""

from __future__ import annotations

import json
import pathlib
import runpy
import subprocess
import sys

import pytest

BENCHMARKS = pathlib.Path(__file__).resolve().parent.parent / "benchmarks"
_FIGURES = runpy.run_path(str(BENCHMARKS / "figures.py"))
Figure, report = _FIGURES["Figure"], _FIGURES["report"]
WIRES = ("openai-chat", "anthropic-messages", "openai-responses", "gemini")


def worker(scenario, adapters, **params):
    """Run a scenario of some adapters once and give its figures."""
    given = json.dumps({"rounds": 1, "warm": False, **params})
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "worker.py"), scenario, adapters, given],
        env={"PYTHONPATH": str(BENCHMARKS.parent)},
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.fixture
def url():
    """The address of the local server."""
    command = [sys.executable, str(BENCHMARKS / "server.py")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        process.stdin.close()


@pytest.mark.parametrize(
    ("scenario", "params"),
    [
        ("loop", {"turns": 2, "tools": 3}),
        ("batch", {"calls": 2}),
        ("crowd", {"agents": 2, "turns": 2, "delay_s": 0.001}),
        ("idle", {"agents": 2, "seconds": 0.01}),
        ("wakeup", {"messages": 2}),
    ],
)
def test_every_scenario_runs_for_the_floor_and_for_us(scenario, params):
    """A run that is not what it should be, in calls or in text, would be an error."""
    adapters = "yiemagent" if scenario in {"idle", "wakeup"} else "floor,yiemagent"
    found = worker(scenario, adapters, **params)

    assert sorted(found) == sorted(adapters.split(","))
    assert all(values for figures in found.values() for values in figures.values())


@pytest.mark.parametrize("mode", ["text", "tool"])
def test_streams_are_read_by_all_three(url, mode):
    """The floor, the bare loop and the library read the same stream to its end."""
    found = worker("stream", "floor,bare_loop,yiemagent", url=url, mode=mode, chunks=20)

    assert sorted(found) == ["bare_loop", "floor", "yiemagent"]


@pytest.mark.parametrize("api", WIRES)
def test_streams_of_every_api_are_read_by_all_three(url, api):
    """The floor, the bare loop and an agent read the same characters out of each API's stream."""
    adapters = "floor,bare_loop,yiemagent"
    found = worker("wire", adapters, url=url.removesuffix("/v1"), api=api, chunks=20)

    assert sorted(found) == ["bare_loop", "floor", "yiemagent"]


@pytest.mark.parametrize("api", WIRES[:3])  # Gemini sends arguments whole
def test_arguments_of_every_api_are_read(url, api):
    """Each provider puts the arguments together that the server cut."""
    found = worker("arguments", "yiemagent", url=url.removesuffix("/v1"), api=api, few=5, many=10)

    assert sorted(found["yiemagent"]) == ["few_us", "many_us", "ratio"]


@pytest.mark.parametrize(
    ("program", "options", "figures"),
    [
        ("stream.py", ["--rounds", "1", "--chunks", "50"], 11),
        ("abort.py", ["--quick", "--tries", "1"], 30),
        ("tools.py", ["--rounds", "1", "--files", "10"], 6),
    ],
)
def test_a_benchmark_prints_each_figure_beside_its_bound(program, options, figures):
    """Every figure is a line with its bound, and the exit code says whether one falls short."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / program), *options],
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    rows = [line for line in done.stdout.splitlines() if " ≥ " in line or " ≤ " in line]

    assert done.stderr == ""
    assert len(rows) == figures
    assert done.returncode == (1 if "FALLS SHORT" in done.stdout else 0)


def test_the_benchmark_of_mcp_says_what_it_needs():
    """Without the SDK to measure beside, it measures nothing and says how to get it."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "mcp.py"), "--quick"],
        env={"PATH": ""},
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )

    assert (done.returncode, done.stderr) == (2, "")
    assert "YIEMAGENT_MCP_PEERS" in done.stdout


def test_our_side_of_the_benchmark_of_mcp_calls_a_server():
    """The worker calls the server that echoes and prints what a call took."""
    command = [sys.executable, str(BENCHMARKS / "mcp_echo.py")]
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "mcp_worker.py"), "3", *command],
        env={"PYTHONPATH": str(BENCHMARKS.parent)},
        capture_output=True,
        text=True,
        timeout=55,
        check=True,
    )
    found = json.loads(done.stdout)

    assert 0 < found["wall_s"] < 5
    assert found["cpu_s"] > 0


def test_a_figure_that_falls_short_ends_with_one(capsys):
    """The report of a benchmark counts the figures that hold, and tells by its exit code."""
    good, bad = Figure("a", 1, 2, "x"), Figure("b", 1, 2, "x", at_least=True)

    assert report([good]) == 0
    assert report([good, bad]) == 1
    out = capsys.readouterr().out
    assert "1 of 2 figures hold their bounds" in out
    assert out.count("FALLS SHORT") == 1


def test_turns_go_over_http(url):
    """The real clients call the tool and get their final text."""
    assert sorted(worker("http", "floor,yiemagent", url=url, turns=2)) == ["floor", "yiemagent"]


def test_a_failed_check_is_told():
    """Where fewer calls ran than were asked for, the result says so."""
    assert "tool calls: 0" in worker("batch", "yiemagent", calls=0.5)["error"]
