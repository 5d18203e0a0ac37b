"""Abort signals and deadlines."""

from __future__ import annotations

import gc
import logging
import signal as signals
import threading
import time
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.loops import WAIT_S
from yiemagent.abort import AbortSignal, Deadline
from yiemagent.errors import AbortedError


def test_a_signal_is_set_once():
    """The first abort counts, with its reason and time; later ones change nothing."""
    signal = AbortSignal()
    assert (signal.aborted, signal.aborted_at, signal.reason) == (False, None, None)
    before = time.monotonic()
    assert signal.abort("enough")
    assert not signal.abort("again")

    assert signal.aborted
    assert signal.reason == "enough"
    assert before <= signal.aborted_at <= time.monotonic()


def test_a_wait_ends_when_the_signal_is_set():
    """Every waiter wakes, and a wait on a set signal does not begin."""
    signal, woken = AbortSignal(), []
    threads = [threading.Thread(target=lambda: woken.append(signal.wait(30))) for _ in range(4)]
    for thread in threads:
        thread.start()
    signal.abort()
    for thread in threads:
        thread.join()

    assert woken == [True] * 4
    assert signal.wait()
    assert signal.wait(0)


def test_a_wait_ends_at_its_limit():
    """Where nothing is set, the wait says so."""
    signal = AbortSignal()

    assert not signal.wait(0)
    assert not signal.wait(0.01)


def test_callbacks_are_called_once():
    """Those that are there when it is set, in order; one that comes later at once; one taken back never."""
    signal, called = AbortSignal(), []
    signal.add_callback(lambda: called.append(1))
    remove = signal.add_callback(lambda: called.append(2))
    signal.add_callback(lambda: called.append(3))
    remove()
    remove()
    signal.abort()
    signal.abort()
    late = signal.add_callback(lambda: called.append(4))
    late()

    assert called == [1, 3, 4]


def test_a_callback_that_raises_keeps_no_other_from_being_told(caplog):
    """It is logged, the others are called, and abort does not raise."""
    signal, called = AbortSignal(), []
    signal.add_callback(lambda: 1 / 0)
    signal.add_callback(lambda: called.append(1))
    with caplog.at_level(logging.WARNING):
        signal.abort()
        signal.add_callback(lambda: 1 / 0)

    assert called == [1]
    assert caplog.text.count("an abort callback raised") == 2


def test_callbacks_run_without_the_lock():
    """One may use the signal, from another thread too."""
    signal, seen = AbortSignal(), []

    def callback():
        thread = threading.Thread(target=lambda: seen.append(signal.wait(0)))
        thread.start()
        thread.join()
        signal.add_callback(lambda: seen.append("inner"))

    signal.add_callback(callback)
    signal.abort()

    assert seen == [True, "inner"]


def test_a_child_is_aborted_with_its_parent():
    """With the parent's reason; alone it leaves the parent as it is."""
    parent = AbortSignal()
    child, other = AbortSignal(parent), AbortSignal(parent)
    other.abort("too long")
    assert not parent.aborted
    parent.abort("stop")

    assert (child.aborted, child.reason) == (True, "stop")
    assert other.reason == "too long"
    assert AbortSignal(parent).reason == "stop"


def test_a_released_child_stays_what_it_is():
    """It costs the parent nothing more and is not aborted any more."""
    parent = AbortSignal()
    child = AbortSignal(parent)
    child.release()
    child.release()
    waiting, told = AbortSignal(parent), []
    waiting.add_callback(lambda: told.append(1))
    gone = weakref.ref(waiting)
    waiting.release()
    del waiting
    gc.collect()
    parent.abort()

    assert not child.aborted
    assert (gone(), told) == (None, [])


def test_a_child_that_nobody_asked_is_what_its_parent_became():
    """The reason and the time are the parent's, also where the child was let go before anybody looked."""
    parent = AbortSignal()
    child, released, alone = (AbortSignal(parent) for _ in range(3))
    alone.abort("its own")
    parent.abort("enough")
    released.release()

    assert (child.reason, child.aborted_at) == ("enough", parent.aborted_at)
    assert (released.aborted, released.reason) == (True, "enough")
    assert alone.reason == "its own"
    assert not child.abort("later")


def test_a_child_may_be_let_go_while_somebody_begins_to_wait_for_it():
    """The wait of a call that was left behind never fails, whoever comes first."""
    raised = []

    def waiting(child, go):
        go.wait(WAIT_S)
        try:
            child.wait(0)
        except Exception as error:
            raised.append(error)

    for _ in range(200):
        child, go = AbortSignal(AbortSignal()), threading.Barrier(2)
        thread = threading.Thread(target=waiting, args=(child, go))
        thread.start()
        go.wait(WAIT_S)
        child.release()
        thread.join(WAIT_S)

    assert raised == []


def test_a_callback_of_a_child_is_called_by_the_parents_abort():
    """Through any number of generations, in the thread that aborts."""
    parent, told = AbortSignal(), []
    grandchild = AbortSignal(AbortSignal(parent))
    grandchild.add_callback(lambda: told.append(threading.current_thread()))
    grandchild.add_callback(lambda: told.append(grandchild.reason))
    parent.abort("enough")

    assert told == [threading.current_thread(), "enough"]


def test_an_aborted_signal_raises_when_asked():
    """raise_if_aborted says why, where there is a reason."""
    signal = AbortSignal()
    signal.raise_if_aborted()
    signal.abort("enough")
    with pytest.raises(AbortedError, match=r"^aborted: enough$"):
        signal.raise_if_aborted()
    bare = AbortSignal()
    bare.abort()
    with pytest.raises(AbortedError, match=r"^aborted$"):
        bare.raise_if_aborted()


def test_a_signal_shows_its_state():
    """Its repr is for log lines."""
    signal = AbortSignal()
    assert repr(signal) == "<AbortSignal not aborted>"
    signal.abort("x")

    assert repr(signal) == "<AbortSignal aborted: 'x'>"


def test_one_of_many_aborts_is_the_first():
    """Of threads that abort at once exactly one set the signal."""
    signal, start, won, called = AbortSignal(), threading.Barrier(8), [], []
    signal.add_callback(lambda: called.append(1))

    def abort(number):
        start.wait()
        if signal.abort(str(number)):
            won.append(str(number))

    threads = [threading.Thread(target=abort, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert won == [signal.reason]
    assert called == [1]


def test_a_signal_handler_may_abort():
    """An abort from a handler that interrupts a method of the same signal does not block."""
    signal, called = AbortSignal(), []
    before = signals.signal(signals.SIGINT, lambda *_: signal.abort("handler"))
    try:
        with signal._lock:
            signals.raise_signal(signals.SIGINT)
        signal.add_callback(lambda: called.append(1))
    finally:
        signals.signal(signals.SIGINT, before)

    assert signal.reason == "handler"
    assert called == [1]


# --- deadlines -------------------------------------------------------------------------------------------------------


class Clock:
    """A clock that stands where it is put."""

    now = 100.0

    def __call__(self):
        return self.now


def test_a_deadline_is_carried_over_several_waits():
    """What one wait used up is gone for the next; it never goes below zero."""
    clock = Clock()
    deadline = Deadline(5.0, clock)
    assert deadline.remaining_s() == 5.0
    clock.now = 103.0
    assert deadline.remaining_s() == 2.0
    assert not deadline.expired
    clock.now = 200.0

    assert deadline.remaining_s() == 0.0
    assert deadline.expired


def test_no_deadline_never_ends():
    """None is no limit."""
    clock = Clock()
    deadline = Deadline(None, clock)
    clock.now = 1e12

    assert deadline.remaining_s() is None
    assert not deadline.expired


@pytest.mark.parametrize("limit", [float("inf"), 1e300, threading.TIMEOUT_MAX])
def test_a_limit_beyond_all_waits_is_a_wait_that_long(limit):
    """What remains is never more than a lock can wait for."""
    lock = threading.Lock()

    assert lock.acquire(timeout=Deadline(limit).remaining_s())
    assert not Deadline(limit).expired


def test_a_wait_takes_any_number_as_its_limit():
    """A limit below zero is over at once, and one without end is no limit."""
    signal = AbortSignal()
    assert not signal.wait(-1)
    waiter = threading.Thread(target=lambda: signal.wait(float("inf")))
    waiter.start()
    signal.abort()
    waiter.join()

    assert signal.wait(float("inf"))


@given(st.floats(0, 1e6), st.lists(st.floats(0, 1e5), max_size=10))
def test_a_deadline_only_gets_nearer(limit, steps):
    """Whatever time passes, what remains shrinks, and it is expired exactly when nothing remains."""
    clock = Clock()
    deadline = Deadline(limit, clock)
    last = limit + 1
    for step in steps:
        clock.now += step
        remaining = deadline.remaining_s()
        assert 0 <= remaining <= last
        assert deadline.expired == (remaining == 0)
        last = remaining

    assert isinstance(Deadline(limit).remaining_s(), float)
