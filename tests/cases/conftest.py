"""Prints, after a run of the cases, what is left to parts that are not built yet."""

from __future__ import annotations

from tests.cases.left import NOTED


def pytest_terminal_summary(terminalreporter, config):
    """List what was left, with the part that brings it."""
    noted = config.stash.get(NOTED, [])
    if noted:
        terminalreporter.section("left to parts that are not built yet")
    for entry in sorted(set(noted)):
        terminalreporter.line(entry)
