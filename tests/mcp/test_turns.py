"""Places that calls take turns in."""

from __future__ import annotations

import threading

import pytest

from yiemagent.abort import AbortSignal
from yiemagent.errors import AbortedError
from yiemagent.mcp.turns import Turns


class Waiter(AbortSignal):
    """A signal that tells when somebody waits with it."""

    def __init__(self):
        super().__init__()
        self.waits = threading.Event()

    def add_callback(self, callback):
        """Tell it."""
        forget = super().add_callback(callback)
        self.waits.set()
        return forget


class Guest:
    """Takes a place on a thread of its own, and holds it until it may go on."""

    def __init__(self, turns, order, name):
        self.signal = Waiter()
        self.inside = threading.Event()
        self.go_on = threading.Event()
        self.thread = threading.Thread(target=self.work, args=(turns, order, name), daemon=True)
        self.thread.start()

    def work(self, turns, order, name):
        """Take the place."""
        try:
            with turns.turn(self.signal):
                order.append(name)
                self.inside.set()
                self.go_on.wait(10)
        except AbortedError:
            order.append(f"{name} gave up")

    def leave(self):
        """Give the place back."""
        self.go_on.set()
        self.thread.join(10)


def test_a_place_is_had_by_one_at_a_time_in_order():
    """Whoever comes first has it first; the next begins when it is given back."""
    turns, order = Turns(1), []
    guests = [Guest(turns, order, 0)]
    assert guests[0].inside.wait(10)
    for number in (1, 2):
        guests.append(Guest(turns, order, number))
        assert guests[number].signal.waits.wait(10)

    assert order == [0]
    for guest in guests:
        assert guest.inside.wait(10)
        guest.leave()
    assert order == [0, 1, 2]


def test_who_gives_up_holds_nobody_up():
    """An abort ends the wait, and the place goes to the next."""
    turns, order = Turns(1), []
    first = Guest(turns, order, "a")
    assert first.inside.wait(10)
    second = Guest(turns, order, "b")
    assert second.signal.waits.wait(10)
    third = Guest(turns, order, "c")
    assert third.signal.waits.wait(10)
    second.signal.abort()
    second.thread.join(10)
    first.leave()
    assert third.inside.wait(10)
    third.leave()

    assert order == ["a", "b gave up", "c"]
    with turns.turn(AbortSignal()):
        pass


def test_a_place_that_comes_with_the_abort_goes_to_the_next():
    """A place that was given to somebody who had just given up is not lost."""

    class Late(AbortSignal):
        """A signal that is set as soon as somebody waits with it, before the place is free."""

        def add_callback(self, callback):
            """Have it set, and the place given back."""
            forget = super().add_callback(callback)
            self.abort()
            turns._give_back()
            return forget

    turns = Turns(1)
    turns._take(AbortSignal())
    with pytest.raises(AbortedError), turns.turn(Late()):
        pass

    assert turns._free == 1


def test_an_abort_beforehand_does_not_take_a_place():
    """Where the signal is set and no place is free, the wait ends at once and nothing is lost."""
    turns, signal = Turns(1), AbortSignal()
    signal.abort()
    with turns.turn(AbortSignal()), pytest.raises(AbortedError), turns.turn(signal):
        pass

    with turns.turn(AbortSignal()):
        assert turns._free == 0
    assert turns._free == 1


def test_several_places_are_had_at_once():
    """So many as there are may be held together."""
    turns = Turns(2)

    with turns.turn(AbortSignal()), turns.turn(AbortSignal()):
        assert turns._free == 0
