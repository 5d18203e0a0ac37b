"""Work that is relieved of a thread that a call holds."""

import math
import queue
import threading
import time

import pytest

from tests.support.loops import WAIT_S, Hold, raising
from yiemagent.abort import AbortSignal
from yiemagent.pool import DaemonPool
from yiemagent.relay import LeftBehind, OwnCall, Relay, finish


def working(*calls):
    """Work that makes some calls and gives what they gave."""
    given = []
    for call in calls:
        given.append((yield call))
    return given


def call(function=lambda: "made", ends_at=math.inf):
    return OwnCall(function, ends_at)


def relay(*calls):
    return Relay(working(*calls), lambda _ends_at: None)


def outcome(function):
    """Give what a function gives or raises, from a thread of its own, as a queue."""
    given = queue.Queue()

    def run():
        try:
            given.put(function())
        except BaseException as error:
            given.put(error)

    threading.Thread(target=run, daemon=True).start()
    return given


def test_calls_are_made_on_the_thread_of_the_work():
    """What a call gives is sent to the work, which goes on where it was."""
    seen = []
    work = relay(call(lambda: seen.append(threading.current_thread()) or 1), call(lambda: 2))

    assert work.go_on() == [1, 2]
    assert seen == [threading.current_thread()]


def test_whoever_finds_a_call_finds_its_thread_in_it():
    """A call that can be taken is one that the thread is in already, else both would do the work."""
    seen = []

    class Watched(Relay):
        @property
        def call(self):
            return self._call

        @call.setter
        def call(self, value):
            self._call = value
            if value is not None:
                seen.append(self.is_at_work())

    assert Watched(working(call(), call()), lambda _ends_at: None).go_on() == ["made", "made"]
    assert seen == [False, False]


def test_what_the_work_raises_comes_out():
    """An error of the work is no error of the relay's."""

    def broken():
        yield call()
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        Relay(broken(), lambda _ends_at: None).go_on()


def test_a_successor_goes_on_and_the_thread_that_comes_back_is_told():
    """Whoever takes the call goes on with None; the thread that made it is left behind, and does nothing more."""
    with Hold() as hold:
        work = relay(call(lambda: hold() or "late"), call())
        late = outcome(work.go_on)
        hold.wait()
        assert work.take()
        assert work.go_on() == [None, "made"]
    assert isinstance(late.get(timeout=WAIT_S), LeftBehind)


def test_a_call_is_taken_once():
    """Neither a second successor nor the thread that comes back goes on, too."""
    with Hold() as hold:
        work = relay(call(hold))
        late = outcome(work.go_on)
        hold.wait()
        assert [work.take(), work.take()] == [True, False]
    assert isinstance(late.get(timeout=WAIT_S), LeftBehind)


def test_nothing_can_be_taken_where_no_call_is_made():
    """Not before the first call, and not behind the last."""
    work = relay(call())
    before = work.take()
    work.go_on()

    assert (before, work.take()) == (False, False)


def test_a_thread_in_a_call_is_not_at_work():
    """What user code does on the thread of the work is not done for the work."""
    at_work = []

    def steps():
        at_work.append(work.is_at_work())
        yield call(lambda: at_work.append(work.is_at_work()))
        at_work.append(work.is_at_work())

    work = Relay(steps(), lambda _ends_at: None)
    at_work.append(work.is_at_work())
    work.go_on()

    assert at_work == [False, True, False, True]


def test_somebody_is_asked_to_look_after_calls_with_a_limit():
    """Before they begin, with what they end at; whoever looks then sees the call, and whether it is over."""
    asked = []

    def ask(ends_at):
        asked.append((ends_at, work.call.ends_at, work.call.is_over))

    work = Relay(working(call(), call(ends_at=500.0), call(ends_at=400.0)), ask)
    assert work.call is None
    work.go_on()

    assert asked == [(500.0, 500.0, False), (400.0, 400.0, False)]
    assert work.call is None  # it would hold the work's own objects


def test_threads_that_race_for_the_work_never_do_it_twice():
    """Of a thread that comes back and one that relieves it, exactly one goes on."""
    for _ in range(200):
        go = threading.Barrier(2)
        work = relay(call(lambda go=go: go.wait(WAIT_S)))
        first = outcome(work.go_on)
        go.wait(WAIT_S)
        went_on = work.go_on() if work.take() else None
        given = first.get(timeout=WAIT_S)
        assert isinstance(given, LeftBehind) == (went_on is not None)
        assert went_on in (None, [None])


# -- without a run --


def test_work_can_be_finished_on_a_thread_that_comes_back():
    """Each call is made on another thread, and given up once its time is up."""
    pool = DaemonPool("yiem-test-tool")
    with Hold() as hold:
        late = call(hold, ends_at=time.monotonic())
        assert finish(
            working(call(), late, call()), pool.start, signal=AbortSignal(), grace_s=1.0
        ) == ["made", None, "made"]
    pool.shutdown(wait=False)


def test_work_that_gets_no_thread_is_not_finished():
    """What starts threads may raise; the work ends there."""
    with pytest.raises(RuntimeError, match="no thread"):
        finish(
            working(call()),
            raising(RuntimeError("no thread")),
            signal=AbortSignal(),
            grace_s=1.0,
        )


def test_an_abort_leaves_a_call_its_grace_and_then_gives_it_up():
    """One that returns within the grace is heard, one that does not is given up."""
    pool = DaemonPool("yiem-test-tool")
    signal = AbortSignal()
    with Hold() as hold:
        heeding, deaf = call(lambda: signal.wait(WAIT_S)), call(hold)
        threading.Thread(target=lambda: (hold.wait(), signal.abort())).start()
        given = finish(working(deaf, heeding), pool.start, signal=signal, grace_s=0.05)
    pool.shutdown(wait=False)

    assert given == [None, True]
