"""The thread that sees to the time limits of calls."""

import math
import queue
import subprocess
import sys
import threading
import time

import pytest

from tests.support.loops import WAIT_S
from yiemagent.watch import Watch


class Looks:
    """What a watch calls: notes when, and gives moments from a list, then infinity."""

    def __init__(self, *later):
        self.at = queue.Queue()
        self._later = list(later)

    def __call__(self):
        now = time.monotonic()
        self.at.put(now)
        return now + self._later.pop(0) if self._later else math.inf

    def next(self):
        """Give the moment of the next look."""
        return self.at.get(timeout=WAIT_S)


@pytest.fixture
def used():
    """A function that gives a watch with one user, which leaves at the end."""
    watches = []

    def make(looks):
        watch = Watch(looks)
        watch.enter()
        watches.append(watch)
        return watch

    yield make
    for watch in watches:
        watch.leave()


def ask_in_vain(watch, monkeypatch):
    """Ask while no thread can be had."""

    def start(_self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr("yiemagent.watch.DaemonThread.start", start)
        watch.ask(time.monotonic())


def watchers():
    return [thread for thread in threading.enumerate() if thread.name == "yiem-watch"]


def test_it_looks_when_it_was_asked_to(used):
    """Not sooner, and once."""
    looks = Looks()
    watch = used(looks)
    due = time.monotonic() + 0.02
    watch.ask(due)

    assert looks.next() >= due
    assert looks.at.empty()


def test_what_is_due_sooner_is_looked_at_sooner(used):
    """A watcher that sleeps for long is woken; what is due later than it looks anyway wakes nobody."""
    looks = Looks()
    watch = used(looks)
    begun = time.monotonic()
    for due_in_s in (500, 600, 0.02, 700):
        watch.ask(begun + due_in_s)

    assert looks.next() < begun + 400


def test_it_looks_again_when_the_look_says_so(used):
    """Until that gives infinity; then it can be asked again."""
    looks = Looks(0.01, 0.01)
    watch = used(looks)
    watch.ask(time.monotonic())
    for _ in range(3):
        looks.next()
    due = time.monotonic()
    watch.ask(due)

    assert looks.next() >= due
    assert looks.at.empty()


def test_what_is_due_beyond_all_waits_is_waited_for(used):
    """A limit of a century is no error."""
    looks = Looks()
    watch = used(looks)
    watch.ask(time.monotonic() + 4e9)
    due = time.monotonic()
    watch.ask(due)

    assert looks.next() >= due
    assert looks.at.empty()


def test_who_never_asks_needs_no_thread(used):
    """Nor does one that only came and went."""
    used(Looks())

    assert watchers() == []


def test_the_thread_ends_with_the_last_user(used):
    """It stays as long as anybody may ask; whoever asks afterwards gets another."""
    watch = used(Looks())
    watch.enter()
    watch.ask(time.monotonic() + 500)
    (first,) = watchers()
    watch.leave()
    assert watchers() == [first]
    watch.leave()
    assert watchers() == []

    watch.enter()
    watch.ask(time.monotonic() + 500)
    (second,) = watchers()
    assert second is not first


def test_no_thread_is_said(used, monkeypatch, caplog):
    """Nobody looks then, until a thread can be had again."""
    looks = Looks()
    watch = used(looks)
    ask_in_vain(watch, monkeypatch)
    assert "no thread to keep the time limits" in caplog.text
    assert looks.at.empty()
    watch.ask(time.monotonic())

    looks.next()


def test_who_asked_in_vain_is_looked_at_with_the_next_that_asks(used, monkeypatch):
    """What was due sooner than what the next one asks for is not forgotten."""
    looks = Looks()
    watch = used(looks)
    ask_in_vain(watch, monkeypatch)
    begun = time.monotonic()
    watch.ask(begun + 500)

    assert looks.next() < begun + 400


def test_many_that_ask_come_and_go():
    """Each is looked after, and nothing is left of the last."""
    looks = Looks()
    watch = Watch(looks)
    interval = sys.getswitchinterval()

    def use():
        for number in range(50):
            watch.enter()
            begun = time.monotonic()
            watch.ask(begun + 500)
            if number % 10 == 0:
                watch.ask(time.monotonic())
                while looks.next() < begun:
                    pass
                looks.at.put(time.monotonic())  # for another who waits
            watch.leave()

    threads = [threading.Thread(target=use, daemon=True) for _ in range(8)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
    finally:
        sys.setswitchinterval(interval)

    assert not any(thread.is_alive() for thread in threads)
    assert watchers() == []


FORKED = """
import os, queue, time, math
from yiemagent.watch import Watch

looked = queue.Queue()
watch = Watch(lambda: looked.put(1) or math.inf)
watch.enter()
watch.ask(time.monotonic() + 500)
if os.fork() == 0:
    watch.enter()
    watch.ask(time.monotonic())
    looked.get(timeout=10)
    watch.leave()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.wait()[1]))
watch.leave()
"""


def test_a_forked_child_begins_anew():
    """It has neither the thread nor the users of its parent."""
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=WAIT_S, check=False
    )

    assert (done.stdout, done.returncode) == ("7\n", 0), done.stderr
