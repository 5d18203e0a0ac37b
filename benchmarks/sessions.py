"""What a session costs: appending, opening, memory, and recording a run.

    python benchmarks/sessions.py --quick    under a minute; exit code 1 where a figure falls short of its bound
    python benchmarks/sessions.py            more rounds

Compared are things that take turns, batch by batch, in one process; of each the least CPU time counts, since other
programs only ever add to it. What `recording` measures, and why not the time that passes, stands there.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from figures import Figure, report

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from yiemagent.agent import YiemAgent
from yiemagent.api import ask, stop_agent
from yiemagent.messages import AssistantMessage, LlmUsage, ToolCall, UserMessage
from yiemagent.sessions import Session
from yiemagent.streaming import DoneEvent

ROOT = Path(__file__).resolve().parent.parent
ENTRIES = 100_000
BATCH = 100


def messages(size: int) -> Iterator[Any]:
    """Questions and answers of so many characters, in turn, without end."""
    usage = LlmUsage(1000, 50)
    question = UserMessage("q" * size)
    answer = AssistantMessage("a" * size, "openai-chat", "openai", "gpt-5.1", usage)
    return itertools.cycle((question, answer))


def filled(path: Path, entries: int, size: int) -> Path:
    """A session file with so many messages."""
    with Session.create(path, fsync="never") as session:
        for message in itertools.islice(messages(size), entries):
            session.add_message(message)
    return path


def least(rounds: int, **acts: Callable[[], Any]) -> dict[str, float]:
    """The least CPU time of each act, in seconds; they take turns."""
    found = dict.fromkeys(acts, float("inf"))
    for _ in range(rounds):
        for name, act in acts.items():
            gc.collect()
            begun = time.thread_time()
            act()
            found[name] = min(found[name], time.thread_time() - begun)
    return found


# -- appending --------------------------------------------------------------------------------------------------------


def writing(folder: Path, rounds: int, size: int) -> Iterator[Figure]:
    """An entry beside `json.dumps` and `os.write` of its line."""
    path = filled(folder / f"lines{size}.jsonl", BATCH, size)
    data = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    session = Session.create(folder / f"entries{size}.jsonl", fsync="never")
    fd = os.open(folder / f"plain{size}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    said = messages(size)

    def ours() -> None:
        for message in itertools.islice(said, BATCH):
            session.add_message(message)

    def plain() -> None:
        for entry in data:
            os.write(fd, f"{json.dumps(entry)}\n".encode())

    found = least(rounds * 20, ours=ours, plain=plain)
    session.close()
    os.close(fd)
    note = f"{found['ours'] / BATCH * 1e6:.1f} and {found['plain'] / BATCH * 1e6:.1f} us"
    what = f"an entry of {size:,} characters beside json.dumps and os.write"
    yield Figure(what, found["ours"] / found["plain"], 2.5, "x", note)


def appending(folder: Path, long_file: Path) -> Iterator[Figure]:
    """The 10th entry beside the 100,000th: batches of a short session and of a long one take turns."""
    long = Session.open(long_file, fsync="never")
    said = messages(1000)
    times: dict[str, list[float]] = {"long": [], "short": []}
    for _ in range(30):
        with Session.create(folder / "short.jsonl", fsync="never") as short:
            for name, session in (("long", long), ("short", short)):
                begun = time.thread_time()
                for message in itertools.islice(said, BATCH):
                    session.add_message(message)
                times[name].append((time.thread_time() - begun) / BATCH)
        (folder / "short.jsonl").unlink()
    long.close()
    first, last = min(times["short"]), min(times["long"])
    note = f"{first * 1e6:.1f} and {last * 1e6:.1f} us"
    yield Figure("an entry: the 100,000th beside the 10th", last / first, 1.2, "x", note)


# -- opening ----------------------------------------------------------------------------------------------------------


def opening(path: Path, rounds: int, size: int) -> Iterator[Figure]:
    """Opening a file beside `json.loads` of its lines."""
    lines = path.read_text().splitlines()

    def plain() -> None:
        for line in lines:
            json.loads(line)

    found = least(rounds, ours=lambda: Session.open(path, read_only=True).close(), plain=plain)
    note = f"{found['ours']:.2f} and {found['plain']:.2f} s"
    what = f"opening 100,000 entries of {size:,} beside json.loads"
    yield Figure(what, found["ours"] / found["plain"], 3, "x", note)


MEMORY = """
import gc, sys
from yiemagent.sessions import Session

def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

Session.in_memory().messages
before = resident()
session = Session.open(sys.argv[1], read_only=True)
messages = session.messages
print(resident() - before)
"""


def memory(path: Path, size: int, bound: float) -> Iterator[Figure]:
    """What an open session takes, with all of its messages read, beside its file."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, path],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    taken, file = int(done.stdout), path.stat().st_size
    note = f"{taken / 1e6:.0f} and {file / 1e6:.0f} MB, all messages read"
    yield Figure(
        f"memory beside the file, {size:,} characters a message", taken / file, bound, "x", note
    )


# -- recording --------------------------------------------------------------------------------------------------------


def agents(
    folder: Path, take: Callable[[], None], *, calls_tool: bool = False
) -> dict[str, YiemAgent]:
    """An agent without a session and one with, on a model that takes its time for each answer."""
    text = AssistantMessage("a" * 1000, usage=LlmUsage(1000, 50))
    call = AssistantMessage((ToolCall("c", "work"),), usage=LlmUsage(1000, 50))

    def model(context: Any, _options: Any, _signal: Any) -> Iterator[Any]:
        take()
        yield DoneEvent(call if calls_tool and context.messages[-1].role == "user" else text)

    def work() -> str:
        """Do what the model asks for."""
        return "w" * 1000

    file = folder / f"runs{len(list(folder.iterdir()))}.jsonl"
    session = Session.create(file, fsync="never")
    return {
        "without": YiemAgent(model, tools=[work]),
        "with": YiemAgent(model, tools=[work], session=session),
    }


def sleep_2_ms() -> None:
    """Wait for 2 ms, as for a server."""
    time.sleep(0.002)


def of_runs(
    given: dict[str, YiemAgent],
    clock: Callable[[], float],
    *,
    batches: int,
    batch: int,
    place: float,
) -> dict[str, float]:
    """Seconds of one run of each agent; they take turns, batch by batch.

    Args:
        given: the agents; they are stopped.
        clock: what is measured by.
        batches: how often each has its turn.
        batch: how many runs a turn is.
        place: which of an agent's turns counts: 0 the least, 0.5 the median.
    """
    found: dict[str, list[float]] = {name: [] for name in given}
    for _ in range(batches):
        for name, agent in given.items():
            begun = clock()
            for _ in range(batch):
                ask(agent, "q" * 1000)
            found[name].append((clock() - begun) / batch)
    for agent in given.values():
        stop_agent(agent)
    return {name: sorted(times)[int(len(times) * place)] for name, times in found.items()}


def recording(folder: Path, rounds: int) -> Iterator[Figure]:
    """What a session adds to a run, beside a run whose model takes 2 ms.

    What counts is CPU time: that of the whole process for a run with a session, less that for one without, both with a
    model that answers at once; and 2 ms more for the run that it stands beside. So the figure is that of the library
    on a machine that is otherwise idle, and the same on a busy one. The note has the time that passes with a model
    that does sleep for 2 ms, as the median of single runs that take turns: there whoever else has the processor
    meanwhile is measured, too, and empties its caches before each run. And it has what a session adds to a run with a
    tool, whose two more messages and start of a call are written.
    """

    def cpu(*, calls_tool: bool = False) -> dict[str, float]:
        given = agents(folder, lambda: None, calls_tool=calls_tool)
        return of_runs(given, time.process_time, batches=rounds * 30, batch=10, place=0)

    def added(times: dict[str, float]) -> float:
        return times["with"] - times["without"]

    plain, tool = cpu(), cpu(calls_tool=True)
    sleeping = of_runs(
        agents(folder, sleep_2_ms), time.perf_counter, batches=rounds * 150, batch=1, place=0.5
    )
    note = (
        f"{added(plain) * 1e6:.0f} us, {added(tool) * 1e6:.0f} us with a tool; "
        f"of the time that passes {added(sleeping) / sleeping['without'] * 100:.1f} %"
    )
    what = "recording a run whose model takes 2 ms"
    yield Figure(what, added(plain) / (0.002 + plain["without"]) * 100, 5, "%", note)


def figures(folder: Path, rounds: int) -> Iterator[Figure]:
    for size, bound in ((1000, 2), (100, 3)):
        yield from writing(folder, rounds, size)
        path = filled(folder / f"file{size}.jsonl", ENTRIES, size)
        if size == 1000:
            yield from appending(folder, path)
        yield from opening(path, rounds, size)
        yield from memory(path, size, bound)
    yield from recording(folder, rounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds: under a minute")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        return report(figures(Path(name), 2 if chosen.quick else 8))


if __name__ == "__main__":
    sys.exit(main())
