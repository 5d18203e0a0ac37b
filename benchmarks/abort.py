"""Measures how long an abort takes, wherever a request to a model may wait, over http and over https.

    python benchmarks/abort.py --quick      under a minute; exit code 1 where a figure falls short
    python benchmarks/abort.py              every provider in each place, not one after the other

From the abort to the aborted answer 0.1 s may pass, in each of 100 tries: of a provider alone, from its signal to its
last event, and of an agent, from `abort_agent` to `take_response`. The bound holds on a machine that is otherwise idle.
The places are those of tests/providers/contract/stalls.py, and so is their staging.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from figures import Figure, report

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.providers.contract.apis import APIS
from tests.providers.contract.asking import AgentAsking, Asking
from tests.providers.contract.stalls import STALLS

TRIES = 100
LIMIT_S = 0.1
WHO = {"a provider": Asking, "an agent": AgentAsking}
ONLY_TLS = {"shaking_hands"}


def took_s(place: str, api: Any, who: Any, *, secure: bool) -> float:
    """Seconds from the abort of one held request to its aborted answer."""
    with STALLS[place](api, secure, who) as asking:
        message = asking.abort()
    if message.stop_reason != "aborted":
        raise AssertionError(f"{place}: {message.error_message}")
    return asking.ended_at - asking.aborted_at


def figures(apis: Sequence[Any], tries: int) -> Iterator[Figure]:
    """One figure for each place, scheme and way to ask; the tries go round the providers."""
    for place, secure, who in itertools.product(STALLS, (False, True), WHO):
        if place in ONLY_TLS and not secure:
            continue
        turns = itertools.cycle(apis)
        times = [took_s(place, next(turns), WHO[who], secure=secure) for _ in range(tries)]
        scheme = "https" if secure else "http"
        what = f"{place.replace('_', ' ')}, {scheme}, {who}: tries within 0.1 s"
        note = f"median {statistics.median(times) * 1e3:.1f} ms, longest {max(times) * 1e3:.1f} ms"
        within = sum(seconds <= LIMIT_S for seconds in times)
        yield Figure(what, within, tries, "", note, at_least=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="100 tries a place, not 100 a provider: under a minute"
    )
    parser.add_argument("--tries", type=int, default=TRIES, help="tries in each place")
    chosen = parser.parse_args()
    tries = chosen.tries * (1 if chosen.quick else len(APIS))
    return report(figures(APIS, tries))


if __name__ == "__main__":
    sys.exit(main())
