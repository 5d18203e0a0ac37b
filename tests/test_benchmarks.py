"""The harness of the benchmarks works; what it measures is no matter here."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

BENCHMARKS = pathlib.Path(__file__).resolve().parent.parent / "benchmarks"


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


def test_turns_go_over_http(url):
    """The real clients call the tool and get their final text."""
    assert sorted(worker("http", "floor,yiemagent", url=url, turns=2)) == ["floor", "yiemagent"]


def test_a_failed_check_is_told():
    """Where fewer calls ran than were asked for, the result says so."""
    assert "tool calls: 0" in worker("batch", "yiemagent", calls=0.5)["error"]
