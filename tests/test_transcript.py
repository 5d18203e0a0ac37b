"""Histories that share their storage."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.messages import AssistantMessage, ToolCall, ToolResultMessage, UserMessage
from yiemagent.transcript import Transcript, transcript, with_results_in_order

MESSAGES = [UserMessage(str(i)) for i in range(20)]


def test_a_longer_history_leaves_the_shorter_as_it_is():
    """Appending gives a new history; the one before keeps its length and its end."""
    short = Transcript(MESSAGES[:2])
    long = short.append(MESSAGES[2]).extend(MESSAGES[3:5])

    assert list(short) == MESSAGES[:2]
    assert list(long) == MESSAGES[:5]
    assert short[-1] is MESSAGES[1]
    assert long.continues(short)
    assert not short.continues(long)
    assert not long.continues(MESSAGES)


def test_two_continuations_of_one_history_never_meet():
    """The first goes on in the shared storage, the second in its own; the same message twice is one history."""
    base = Transcript(MESSAGES[:2])
    one, other, again = base.append(MESSAGES[2]), base.append(MESSAGES[3]), base.append(MESSAGES[2])

    assert list(one) == MESSAGES[:3]
    assert list(other) == [*MESSAGES[:2], MESSAGES[3]]
    assert again is one
    assert not other.continues(base)
    assert list(base) == MESSAGES[:2]


def test_a_history_is_a_sequence():
    """Indexes, slices, search, reversal and comparison work as with a tuple."""
    history = Transcript(MESSAGES[:5])

    assert history[1:3] == tuple(MESSAGES[1:3])
    assert history[::-2] == tuple(MESSAGES[4::-2])
    assert history[-5] is MESSAGES[0]
    assert list(reversed(history)) == MESSAGES[4::-1]
    assert history.index(MESSAGES[3]) == 3
    assert MESSAGES[9] not in history
    for index in (5, -6):
        with pytest.raises(IndexError, match=f"no message {index} in a history of 5"):
            history[index]


def test_histories_compare_by_their_messages():
    """Equal to any sequence of equal messages, and to nothing else."""
    history = Transcript(MESSAGES[:2])

    assert history == MESSAGES[:2] == history
    assert history == tuple(MESSAGES[:2])
    assert history != MESSAGES[:3]
    assert history != "ab"
    assert history != 5
    assert hash(history) == hash(Transcript(MESSAGES[:2]))
    assert repr(Transcript()) == "Transcript([])"


def test_a_history_is_taken_as_it_is():
    """transcript() gives the same object for a history, and a new one for anything else."""
    history = Transcript(MESSAGES[:2])

    assert transcript(history) is history
    assert transcript(iter(MESSAGES[:2])) == history


def test_copies_hold_only_their_own_messages():
    """Pickling and copying take the history, not what longer ones put behind it, however long it grew."""
    history = Transcript()
    first = history
    for _ in range(2000):
        history = history.append(MESSAGES[0])

    for twin in (copy.copy(first), copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        assert list(twin) == []
    assert pickle.loads(pickle.dumps(history)) == history


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 19)), max_size=30))
def test_any_tree_of_histories_is_what_lists_would_be(steps):
    """However histories branch, each stays what it was when it was made."""
    histories, lists = [Transcript()], [[]]
    for number, message in steps:
        parent = number % len(histories)
        histories.append(histories[parent].append(MESSAGES[message]))
        lists.append([*lists[parent], MESSAGES[message]])

    assert [list(history) for history in histories] == lists


def test_many_threads_may_append_to_one_history():
    """Each gets the history that it asked for."""
    base, start = Transcript(MESSAGES[:1]), threading.Barrier(8)
    results = {}

    def append(number):
        start.wait()
        history = base
        for _ in range(50):
            history = history.append(MESSAGES[number])
        results[number] = history

    threads = [threading.Thread(target=append, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for number, history in results.items():
        assert list(history) == [MESSAGES[0], *[MESSAGES[number]] * 50]


ANSWER = AssistantMessage([ToolCall(one, "work") for one in "abc"])


@pytest.mark.parametrize(
    ("ids", "ordered"),
    [("bca", "abc"), ("ca", "ac"), ("xba", "abx"), ("abc", "abc"), ("b", "b"), ("", "")],
)
def test_results_at_the_end_are_put_in_call_order(ids, ordered):
    """Those that answer no call come last; a history that is in order is given as it is."""
    before = Transcript([MESSAGES[0], ANSWER])
    history = before.extend(ToolResultMessage(one, "work", one) for one in ids)
    sound = with_results_in_order(history)

    assert [message.text for message in sound[2:]] == [*ordered]
    assert sound[:2] == before[:]
    assert (sound is history) == (ids == ordered)
    assert [message.text for message in history[2:]] == [*ids]


def test_results_without_an_answer_stay_as_they_are():
    """Nobody's order is theirs, whether something else is before them or nothing."""
    results = [ToolResultMessage(one, "work", one) for one in "ba"]
    for history in (Transcript(results), Transcript([MESSAGES[0], *results]), Transcript()):
        assert with_results_in_order(history) is history
