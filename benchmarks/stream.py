"""Measures how fast each provider reads a streamed answer, beside the least that reads the same bytes.

    python benchmarks/stream.py --quick     under a minute; exit code 1 where a figure falls short
    python benchmarks/stream.py             the same with more rounds

The bare loop reads as the provider does (`read1`, split at line ends, `json.loads`) and counts characters; the floor
reads with `iter_lines`. What is measured is a whole agent with a sink that is told of every piece. The adapters take
turns in one process, and the median over the rounds is shown.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from figures import Figure, report
from run import measure, median, ratio, server
from wires import WIRES

FEW, MANY = 200, 2_000  # of about 20 characters each: 4 KB and 40 KB of arguments


def figures(rounds: int, chunks: int, url: str) -> Iterator[Figure]:
    for api in WIRES:
        found = measure(
            "wire", "floor,bare_loop,yiemagent", url=url, api=api, chunks=chunks, rounds=rounds
        )
        rate = f"{median(found, 'chunks_s'):,.0f}/s"
        for other, bound in (("floor", 0.4), ("bare_loop", 0.6)):
            what = f"{api}: {chunks:,} text chunks: rate to the {other.replace('_', ' ')}'s"
            value = ratio(found, "chunks_s", other=other)
            yield Figure(what, value, bound, "x", rate, at_least=True)
    for api, wire in WIRES.items():
        if not wire.streams_arguments:
            continue
        found = measure(
            "arguments", url=url, api=api, few=FEW, many=MANY, rounds=max(1, rounds // 5)
        )
        note = f"{median(found, 'many_us'):.1f} µs against {median(found, 'few_us'):.1f}"
        what = f"{api}: an argument chunk of {MANY:,} to one of {FEW}: CPU"
        yield Figure(what, median(found, "ratio"), 1.3, "x", note)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="fewer rounds, shorter answers: under a minute"
    )
    parser.add_argument("--rounds", type=int, help="how often each adapter takes its turn")
    parser.add_argument("--chunks", type=int, help="how many chunks of text an answer has")
    chosen = parser.parse_args()
    rounds, chunks = (5, 10_000) if chosen.quick else (15, 20_000)
    with server() as url:
        root = url.removesuffix("/v1")
        return report(figures(chosen.rounds or rounds, chosen.chunks or chunks, root))


if __name__ == "__main__":
    sys.exit(main())
