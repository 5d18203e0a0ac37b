"""Bounded channels and the doorbell."""

from __future__ import annotations

import threading

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from yiemagent.channels import Channel, Doorbell
from yiemagent.errors import AgentStopped, ChannelFull, ResponseTimeout


def in_thread(function):
    """Run a function on a thread; gives a function that waits for it and gives its result or raises its error."""
    outcome = []

    def work():
        try:
            outcome.append((function(), None))
        except Exception as error:  # handed to the test
            outcome.append((None, error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()

    def result():
        thread.join(10)
        assert not thread.is_alive()
        value, error = outcome[0]
        if error is not None:
            raise error
        return value

    return result


def test_items_come_out_in_order():
    """A channel is first in, first out."""
    channel = Channel("test", 3)
    for item in "abc":
        channel.put(item)

    assert [channel.get(0), channel.get(0), channel.get(0)] == ["a", "b", "c"]


def test_a_full_channel_refuses_at_once():
    """Without a time limit a full channel raises and keeps what it has."""
    channel = Channel("test", 1)
    channel.put("a")

    with pytest.raises(ChannelFull, match="test channel"):
        channel.put("b")
    assert channel.drain() == ("a",)


def test_a_full_channel_refuses_after_the_time_allowed():
    """A put waits as long as it may, and then raises."""
    channel = Channel("test", 1)
    channel.put("a")

    with pytest.raises(ChannelFull):
        channel.put("b", timeout_s=0.01)


def test_a_waiting_put_goes_on_when_a_place_comes_free():
    """A put that may wait gets the place that a get frees."""
    channel = Channel("test", 1)
    channel.put("a")
    put = in_thread(lambda: channel.put("b", timeout_s=None))

    assert channel.get() == "a"
    put()
    assert channel.get() == "b"


def test_an_empty_channel_times_out():
    """A get that may not wait for ever raises and changes nothing."""
    channel = Channel("test", 1)

    with pytest.raises(ResponseTimeout):
        channel.get(0.01)
    with pytest.raises(TimeoutError):
        channel.get(0)
    channel.put("a")
    assert channel.get(0) == "a"


def test_a_closed_channel_wakes_a_blocked_get():
    """Closing wakes a get that waits for ever, and it raises."""
    channel = Channel("test", 1)
    get = in_thread(channel.get)
    channel.close()

    with pytest.raises(AgentStopped):
        get()


def test_a_closed_channel_wakes_a_blocked_put():
    """Closing wakes a put that waits for ever, and it raises."""
    channel = Channel("test", 1)
    channel.put("a")
    put = in_thread(lambda: channel.put("b", timeout_s=None))
    channel.close()

    with pytest.raises(AgentStopped):
        put()


def test_a_closed_channel_can_be_emptied():
    """What is in a closed channel can still be taken; then it raises."""
    channel = Channel("test", 2)
    channel.put("a")
    channel.close()

    assert channel.closed
    assert channel.get() == "a"
    with pytest.raises(AgentStopped):
        channel.get()
    with pytest.raises(AgentStopped):
        channel.put("b")


def test_what_was_drained_can_be_restored():
    """Items that are put back come out first, in their order."""
    channel = Channel("test", 3)
    channel.put("a")
    channel.put("b")
    drained = channel.drain()
    channel.put("c")
    channel.restore(drained)

    assert channel.drain() == ("a", "b", "c")


def test_one_item_can_be_taken_out():
    """The oldest wanted item is removed and the others stay."""
    channel = Channel("test", 3)
    for item in (1, 2, 3):
        channel.put(item)

    assert channel.remove(lambda item: item > 1) == 2
    assert channel.remove(lambda item: item > 5) is None
    assert channel.drain() == (1, 3)


def test_looking_takes_nothing():
    """Peek shows the oldest item and leaves it there; take gives None where there is none."""
    channel = Channel("test", 1)

    assert channel.peek() is None
    assert channel.take() is None
    channel.put("a")
    assert channel.peek() == "a"
    assert channel.take() == "a"


def test_putting_and_closing_ring():
    """The bell rings after a put and after closing."""
    bell = Doorbell()
    channel = Channel("test", 1, bell)
    channel.put("a")
    bell.wait()
    channel.close()
    bell.wait()
    assert channel.closed


def test_rings_before_the_wait_are_not_lost_and_not_counted():
    """A bell rung twice before anybody waits wakes once, and then waits for the next ring."""
    bell = Doorbell()
    bell.ring()
    bell.ring()
    bell.wait()
    woken = in_thread(bell.wait)
    bell.ring()
    woken()
    assert bell._rings.empty()


class ChannelModel(RuleBasedStateMachine):
    """A channel behaves as a bounded list."""

    def __init__(self):
        super().__init__()
        self.channel = Channel("model", 3)
        self.items = []
        self.closed = False

    @precondition(lambda self: not self.closed)
    @rule(item=st.integers())
    def put(self, item):
        if len(self.items) >= 3:
            with pytest.raises(ChannelFull):
                self.channel.put(item)
        else:
            self.channel.put(item)
            self.items.append(item)

    @rule()
    def get(self):
        if self.items:
            assert self.channel.get(0) == self.items.pop(0)
        else:
            with pytest.raises(AgentStopped if self.closed else ResponseTimeout):
                self.channel.get(0)

    @rule()
    def drain_and_restore(self):
        drained = self.channel.drain()
        assert list(drained) == self.items
        self.channel.restore(drained)

    @rule()
    def close(self):
        self.channel.close()
        self.closed = True

    @invariant()
    def the_same_length(self):
        assert len(self.channel) == len(self.items)


TestChannelModel = ChannelModel.TestCase
TestChannelModel.settings = settings(max_examples=50, stateful_step_count=20)
