"""Our client under the conformance suite of the protocol, for the newest version of each era."""

from __future__ import annotations

import pathlib
import re
import sys

import pytest

from tests.support.mcp_peers import conformance

HERE = pathlib.Path(__file__).resolve().parent / "conformance"
ROOT = HERE.parent.parent.parent
BASELINE = HERE / "client_baseline.yml"

pytestmark = [pytest.mark.peers, pytest.mark.time_limit(400)]


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def run(*words, baseline=BASELINE):
    """Run the suite against the client; gives the finished process."""
    command = f"{sys.executable} {HERE / 'client.py'}"
    return conformance(
        *("client", "--command", command, "--timeout", 180_000, "--expected-failures", baseline),
        *words,
        timeout_s=380,
    )


def required(version):
    """The client scenarios that a version requires and that are not about OAuth."""
    listed = conformance("list", "--requirements", version).stdout
    clients = listed.partition("Client scenarios")[2].partition("Not scored")[0]
    names = set(re.findall(r"^\s+- (\S+)$", clients, re.MULTILINE))
    return {name for name in names if not name.startswith("auth/")}


@pytest.mark.parametrize(("version", "count"), [("2025-11-25", 4), ("2026-07-28", 7)])
def test_every_required_scenario_passes(version, count, tmp_path):
    """Nothing fails or warns but what the baseline lists, and what it lists still fails."""
    done = run("--requirements", version, "-o", tmp_path)
    passed = set(re.findall(r"^✓ (\S+): \d+ passed, 0 failed$", done.stdout, re.MULTILINE))
    wanted = required(version)

    assert done.returncode == 0, done.stdout[-5000:]
    assert len(wanted) == count
    assert wanted <= passed


def test_a_stale_entry_of_the_baseline_fails(tmp_path):
    """A scenario that is listed and passes is noticed."""
    stale = tmp_path / "baseline.yml"
    stale.write_text("client:\n  - tools_call\n")
    done = run(
        *("--scenario", "tools_call", "--spec-version", "2026-07-28", "-o", tmp_path),
        baseline=stale,
    )

    assert done.returncode != 0


def test_the_baseline_lists_oauth_alone():
    """Whatever else fails is a regression."""
    entries = re.findall(r"^  - (\S+)$", BASELINE.read_text(), re.MULTILINE)

    assert entries
    assert [entry for entry in entries if not entry.startswith("auth/")] == []
