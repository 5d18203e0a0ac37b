"""Our server under the conformance suite of the protocol, for the newest version of each era."""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import subprocess
import sys

import pytest

from tests.support.mcp_peers import conformance

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FIXTURE = HERE / "conformance" / "fixture_server.py"
BASELINE = HERE / "conformance" / "server_baseline.yml"

pytestmark = [pytest.mark.peers, pytest.mark.time_limit(300)]


@contextlib.contextmanager
def fixture_server():
    """The server that the suite wants to meet; gives its URL."""
    process = subprocess.Popen(
        [sys.executable, str(FIXTURE), "http"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(ROOT)},
        text=True,
    )
    with process:
        yield process.stdout.readline().strip()
        process.stdin.close()  # which ends it


def required(version):
    """The server scenarios that a version requires."""
    listed = conformance("list", "--requirements", version).stdout
    servers = listed.partition("Server scenarios")[2].partition("Client scenarios")[0]
    return set(re.findall(r"^\s+- (\S+)$", servers, re.MULTILINE))


@pytest.mark.parametrize(("version", "count"), [("2025-11-25", 30), ("2026-07-28", 37)])
def test_every_required_scenario_passes(version, count, tmp_path):
    """Nothing fails or warns but what the baseline lists, and what it lists still fails."""
    with fixture_server() as url:
        done = conformance(
            "server",
            *("--url", url, "--requirements", version, "-o", tmp_path),
            *("--expected-failures", BASELINE),
        )
    passed = set(re.findall(r"^✓ (\S+): \d+ passed, 0 failed$", done.stdout, re.MULTILINE))
    wanted = required(version)

    assert done.returncode == 0, done.stdout[-5000:]
    assert len(wanted) == count
    assert wanted <= passed
    assert warnings(tmp_path, wanted) == []


def warnings(folder, scenarios):
    """What the suite warned of in these scenarios."""
    found = []
    for path in folder.rglob("checks.json"):
        scenario = re.sub(r"^server-(.+)-\d{4}-\d\d-\d\dT.*$", r"\1", path.parent.name)
        checks = json.loads(path.read_text())
        if scenario in scenarios:
            found += [check["id"] for check in checks if check["status"] == "WARNING"]
    return found


def test_a_stale_entry_of_the_baseline_fails(tmp_path):
    """A scenario that is listed and passes is noticed."""
    stale = tmp_path / "baseline.yml"
    stale.write_text("server:\n  - tools-list\n")
    with fixture_server() as url:
        done = conformance(
            "server",
            *("--url", url, "--scenario", "tools-list", "--spec-version", "2026-07-28"),
            *("-o", tmp_path, "--expected-failures", stale),
        )

    assert done.returncode != 0
