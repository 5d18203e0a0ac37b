"""An agent's side of its session."""

from __future__ import annotations

import pytest

from yiemagent.errors import ConfigurationError
from yiemagent.events import TurnStartEvent
from yiemagent.journal import Journal
from yiemagent.messages import UserMessage
from yiemagent.testing import RecordingSink

HI = UserMessage("hi")


class Kept:
    """A session that remembers what it was told."""

    id = "s"
    interrupted = False

    def __init__(self, *messages):
        self.messages = messages
        self.told = []

    def __getattr__(self, name):
        return lambda *given: self.told.append((name, *given))


def test_without_a_session_nothing_is_kept():
    """A journal without one begins with what is given and does nothing else."""
    journal = Journal(None, "a")
    journal.accept("input", HI)
    journal.hand_back([HI])
    journal.end()

    assert journal.begin([HI]) == [HI]
    assert (journal.record, journal.record_call, list(journal.restored())) == (None, None, [])


def test_a_session_is_told_what_happens_to_messages():
    """Who works on it, what waits, what is handed back, and the end."""
    session = Kept()
    journal = Journal(session, "a")
    journal.accept("input", HI)
    journal.accept("input", None)
    journal.hand_back([])
    journal.hand_back([HI])
    journal.end()

    assert session.told == [
        ("attach", "a"),
        ("accept", "input", HI),
        ("hand_back", [HI]),
        ("detach",),
    ]


def test_events_go_to_the_session():
    """What records is the session's own function."""
    session, event = Kept(), TurnStartEvent(1)
    record = Journal(session, "a").record
    record(event)

    assert session.told[-1] == ("record", event)


def test_the_history_comes_from_one_place():
    """A session's messages, or given ones, which are written; never both."""
    new, old = Kept(), Kept(HI)

    assert Journal(new, "a").begin([HI]) == [HI]
    assert new.told[-1] == ("add_messages", [HI])
    assert Journal(old, "a").begin([]) == (HI,)
    with pytest.raises(ConfigurationError, match="the session has messages already"):
        Journal(old, "a").begin([HI])


def test_what_is_no_session_is_refused():
    """A path, or any other object, says what to give instead."""
    for given in ("chat.jsonl", RecordingSink()):
        with pytest.raises(ConfigurationError, match=r"such as Session\.open\(path\)"):
            Journal(given, "a")
