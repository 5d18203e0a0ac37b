"""A request on its way, its place in the queue, and the clock that ends it."""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue

import pytest

from yiemagent.abort import AbortSignal
from yiemagent.errors import AbortedError, McpProtocolError, McpTimeout, McpTransportError
from yiemagent.mcp.calls import Alarm, Call, Gate
from yiemagent.mcp.client_protocol import Progress
from yiemagent.mcp.jsonrpc import ErrorResponse, Response

ANSWER = Response(1, {"a": 1})


@pytest.fixture
def alarm():
    """An alarm that is stopped after the test."""
    alarm = Alarm("yiem-test-alarm")
    yield alarm
    alarm.stop()


@pytest.mark.parametrize("answer", [ANSWER, ErrorResponse(1, -1, "no")])
def test_an_answer_ends_the_wait(answer):
    """A result and an error are both answers."""
    call = Call("m")
    call.put(answer)

    assert call.wait() is answer


def test_progress_is_told_in_order_on_the_waiting_thread():
    """Each word before the answer is told, by the thread that waits."""
    told = []
    call = Call(
        "m", on_progress=lambda params: told.append((params["p"], threading.current_thread()))
    )
    for number in range(3):
        call.put(Progress(1, {"p": number}))
    call.put(ANSWER)

    assert call.wait() is ANSWER
    assert told == [(number, threading.current_thread()) for number in range(3)]


def test_a_progress_callback_that_raises_costs_nothing(caplog):
    """Its mistake is logged, and the answer comes."""
    call = Call("m", on_progress=lambda params: params["no such thing"])
    call.put(Progress(1, {}))
    call.put(ANSWER)

    assert call.wait() is ANSWER
    assert "no such thing" in caplog.text


def test_progress_that_piles_up_is_dropped():
    """A flood of progress takes a bounded place, and never the answer's."""
    told = []
    call = Call("m", on_progress=told.append)
    for number in range(50_000):
        call.put(Progress(1, {"p": number}))
    call.put(ANSWER)

    assert call.wait() is ANSWER
    assert 0 < len(told) <= 256


def test_an_abort_ends_the_wait():
    """The signal, set before or meanwhile, ends the wait with its reason."""
    signal = AbortSignal()
    call = Call("m", signal=signal)
    timer = threading.Timer(0.05, signal.abort, ["enough"])
    timer.start()
    with pytest.raises(AbortedError, match="enough"):
        call.wait()

    with pytest.raises(AbortedError):
        Call("m", signal=signal).wait()
    timer.join()


def test_a_deadline_ends_the_wait():
    """Its error names the method and the limit."""
    with pytest.raises(McpTimeout, match=r"tools/call within its time limit of 0\.05 s"):
        Call("tools/call", timeout_s=0.05).wait()


def test_progress_extends_the_idle_limit_and_not_the_deadline():
    """Silence ends the call, words keep it going, and the deadline holds all the same."""
    with pytest.raises(McpTimeout, match="said nothing"):
        Call("m", timeout_s=10, idle_timeout_s=0.05).wait()

    call = Call("m", timeout_s=0.2, idle_timeout_s=0.15)
    stop = threading.Event()

    def talk():
        while not stop.wait(0.02):
            call.put(Progress(1, {}))

    talker = threading.Thread(target=talk)
    talker.start()
    with pytest.raises(McpTimeout, match=r"within its time limit of 0\.2 s"):
        call.wait()
    stop.set()
    talker.join()


def test_an_error_ends_the_wait():
    """What broke the connection is raised, as an error of the call's own."""
    error = McpTransportError("gone", outcome_unknown=True)
    call = Call("m")
    call.put(error)
    with pytest.raises(McpTransportError, match="gone") as caught:
        call.wait()

    assert caught.value is not error
    assert caught.value.outcome_unknown


def test_an_unreadable_answer_leaves_a_moment_for_a_good_one():
    """What can't be read may have been something else; only when nothing follows, it is the call's error."""
    call = Call("m", timeout_s=60)
    call.suspect("it is no JSON")
    call.put(ANSWER)
    assert call.wait() is ANSWER

    call = Call("m", timeout_s=60)
    call.suspect("it is no JSON")
    started = time.monotonic()
    with pytest.raises(McpProtocolError, match="it is no JSON"):
        call.wait()
    assert time.monotonic() - started < 5


# --- the gate --------------------------------------------------------------------------------------------------------


class Noticed(Call):
    """A call that tells when it begins to wait for its place."""

    def __init__(self):
        super().__init__("m")
        self.waits = threading.Event()

    def remaining_s(self):
        self.waits.set()
        return super().remaining_s()


def test_a_gate_lets_so_many_in_and_the_others_in_order():
    """Who comes when all places are taken waits for one, first come, first served."""
    gate, entered, threads = Gate(1), SimpleQueue(), []
    gate.enter(Call("m"))
    for number in range(3):
        call = Noticed()

        def enter(number=number, call=call):
            gate.enter(call)
            entered.put(number)

        threads.append(threading.Thread(target=enter))
        threads[-1].start()
        assert call.waits.wait(5)
    order = []
    for _ in range(3):
        assert entered.empty()
        gate.leave()
        order.append(entered.get(timeout=5))
    for thread in threads:
        thread.join()

    assert order == [0, 1, 2]


def test_a_gate_without_a_limit_lets_all_in():
    """None means that nobody waits."""
    gate = Gate(None)
    for _ in range(100):
        gate.enter(Call("m"))
    gate.leave()
    over = Call("m", timeout_s=0)
    gate.enter(over)

    assert over.deadline.expired  # and it did not wait


def test_waiting_for_a_place_ends_with_the_call():
    """A deadline and an abort end it, and the place that comes later is for somebody else."""
    gate = Gate(1)
    gate.enter(Call("m"))
    signal = AbortSignal()
    signal.abort()
    with pytest.raises(McpTimeout, match="m waited for its turn"):
        gate.enter(Call("m", timeout_s=0.02))
    with pytest.raises(AbortedError):
        gate.enter(Call("m", signal=signal))
    gate.leave()

    gate.enter(Call("m", timeout_s=5))


# --- the clock -------------------------------------------------------------------------------------------------------


def test_an_alarm_rings_in_order_of_time(alarm):
    """Whatever the order in which they were set."""
    rung = SimpleQueue()
    alarm.set(0.1, lambda: rung.put("late"))
    alarm.set(0.02, lambda: rung.put("early"))

    assert [rung.get(timeout=5), rung.get(timeout=5)] == ["early", "late"]


def test_an_alarm_that_was_taken_back_is_silent(alarm):
    """Also each of many, which are cleared away together; at once, so that none is due before."""
    rung = SimpleQueue()
    for _ in range(500):
        take_back = alarm.set(0.3, lambda: rung.put("no"))
        take_back()
        take_back()
    alarm.set(0.4, lambda: rung.put("yes"))

    assert rung.get(timeout=5) == "yes"
    assert rung.empty()
    assert len(alarm._heap) < 100


def test_a_stopped_alarm_rings_no_more():
    """Its thread ends, and what is set afterwards is not called."""
    alarm, rung = Alarm("yiem-test-stop"), SimpleQueue()
    alarm.set(0.05, lambda: rung.put("no"))
    alarm.stop()
    alarm.set(0.01, lambda: rung.put("no"))
    for thread in threading.enumerate():
        if thread.name == "yiem-test-stop":
            thread.join(5)

    assert rung.empty()
