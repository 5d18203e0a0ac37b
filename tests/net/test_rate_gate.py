"""Gates that close for whoever has the same server and key."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from yiemagent.net.rate_gate import RateGates, gate_id

ONE, OTHER = gate_id("https://a.test", "k1"), gate_id("https://a.test", "k2")


class Clock:
    """Seconds that go on when a test says so."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def test_a_closed_gate_opens_by_itself():
    """A gate is open until it is closed, and again when its time is over."""
    clock = Clock()
    gates = RateGates(clock)
    assert gates.remaining_ms(ONE) == 0

    gates.close(ONE, 1500)
    found = []
    for _ in range(4):
        found.append(gates.remaining_ms(ONE))
        clock.now += 0.5

    assert found == [1500, 1000, 500, 0]


def test_gates_are_kept_apart():
    """Another key, and another server, has a gate of its own."""
    gates = RateGates(Clock())
    gates.close(ONE, 1500)

    assert gates.remaining_ms(OTHER) == 0
    assert gates.remaining_ms(gate_id("https://b.test", "k1")) == 0
    assert gates.remaining_ms(gate_id("https://a.test", "k1")) == 1500
    assert gates.remaining_ms(gate_id("https://a.test", None)) == 0


def test_a_shorter_wait_does_not_open_a_gate():
    """A longer wait keeps a gate closed, a shorter one changes nothing."""
    gates = RateGates(Clock())
    for delay_ms in (1000, 5000, 10, 0):
        gates.close(ONE, delay_ms)

    assert gates.remaining_ms(ONE) == 5000


def test_a_wait_is_never_too_short():
    """What is left of a millisecond counts as a whole one."""
    clock = Clock()
    gates = RateGates(clock)
    gates.close(ONE, 1)
    clock.now += 0.0004

    assert gates.remaining_ms(ONE) == 1


def test_nothing_is_kept_of_open_gates():
    """Gates whose time is over are let go of, when they are asked and when another one is closed."""
    clock = Clock()
    gates = RateGates(clock)
    for number in range(100):
        gates.close(gate_id("https://a.test", str(number)), 1000)
    assert len(gates) == 100
    clock.now += 2
    gates.remaining_ms(gate_id("https://a.test", "0"))
    assert len(gates) == 99
    gates.close(ONE, 1000)

    assert len(gates) == 1
    gates.close(OTHER, 0)
    assert len(gates) == 1


def test_the_key_is_not_held():
    """A gate's name holds nothing of the key."""
    assert b"secret" not in gate_id("https://a.test", "sk-secret")[1]
    assert "secret" not in repr(gate_id("https://a.test", "sk-secret\ud800"))


@given(
    st.lists(st.tuples(st.sampled_from([ONE, OTHER]), st.integers(0, 3000), st.integers(0, 2000)))
)
def test_any_order(steps):
    """Whatever comes when, a gate is closed for exactly as long as it was asked to be at most."""
    clock = Clock()
    gates = RateGates(clock)
    due = {ONE: 0.0, OTHER: 0.0}
    for gate, delay_ms, passed_ms in steps:
        gates.close(gate, delay_ms)
        due[gate] = max(due[gate], clock.now + delay_ms / 1000)
        clock.now += passed_ms / 1000
        for one, opens_at in due.items():
            assert abs(gates.remaining_ms(one) - max(0, opens_at - clock.now) * 1000) < 1.01


def test_from_many_threads():
    """Threads that close gates at once leave the longest wait."""
    gates = RateGates(Clock())
    threads = [
        threading.Thread(target=lambda n=number: [gates.close(ONE, n * step) for step in range(50)])
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert gates.remaining_ms(ONE) == 7 * 49
