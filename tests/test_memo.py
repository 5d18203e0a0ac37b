"""What is made of a frozen object is made once, and goes with it."""

import gc

from yiemagent.memo import Memo
from yiemagent.messages import UserMessage


def counted():
    """A memo of the texts of messages, and the list of what was converted."""
    made = []

    def convert(message):
        made.append(message.text)
        return [message.text]

    return Memo(convert), made


def test_a_value_is_made_once():
    """The same object gets the same value; it is made at the first call."""
    memo, made = counted()
    message = UserMessage("a")

    assert memo(message) is memo(message)
    assert made == ["a"]


def test_equal_objects_are_not_the_same():
    """Objects are told apart by identity, not by content."""
    memo, made = counted()
    first, second = UserMessage("a"), UserMessage("a")

    assert memo(first) is not memo(second)
    assert made == ["a", "a"]


def test_a_value_goes_with_its_object():
    """Nothing is kept of an object that is gone."""
    memo, _ = counted()
    message = UserMessage("a")
    memo(message)
    assert len(memo) == 1
    del message
    gc.collect()

    assert len(memo) == 0
