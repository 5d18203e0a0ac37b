"""A figure beside its bound, and the report of a benchmark."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable
from typing import NamedTuple


class Figure(NamedTuple):
    """A figure beside its bound."""

    what: str
    value: float
    bound: float
    unit: str = ""
    note: str = ""
    at_least: bool = False

    @property
    def holds(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def row(self) -> str:
        sign = "≥" if self.at_least else "≤"
        mark = "ok" if self.holds else "FALLS SHORT"
        shown = f"{self.value:,.4g}{self.unit}"
        return f"{self.what:<62} {shown:>12} {sign} {self.bound:g}{self.unit:<4} {mark:<12} {self.note}"


def report(figures: Iterable[Figure]) -> int:
    """Print figures as they come, and what they amount to; gives the exit code, 1 where one falls short."""
    begun = time.monotonic()
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
    )
    count = short = 0
    for figure in figures:
        count, short = count + 1, short + (not figure.holds)
        print(figure.row(), flush=True)
    took = time.monotonic() - begun
    print(f"{count - short} of {count} figures hold their bounds; {took:.0f} s")
    return 1 if short else 0
