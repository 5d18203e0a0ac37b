"""Changes told to whoever listens."""

from __future__ import annotations

import logging
import queue
import threading

from yiemagent.mcp.changes import RESOURCE, TOOLS, Changes


class Ear:
    """A listener that keeps what it is told."""

    def __init__(self, fails=False):
        self.heard = queue.SimpleQueue()
        self.fails = fails

    def changed(self, method, params):
        """Keep it."""
        self.heard.put((method, dict(params)))
        if self.fails:
            raise RuntimeError("deaf")

    def end(self):
        """Nothing."""


def test_what_comes_together_is_told_once():
    """Thirty changes of the tools and one of a resource are two notifications."""
    changes, ear = Changes(), Ear()
    changes.add(ear)
    for _ in range(30):
        changes.tell(TOOLS)
    changes.tell(RESOURCE, "a:b")

    assert ear.heard.get(timeout=10) == (TOOLS, {})
    assert ear.heard.get(timeout=10) == (RESOURCE, {"uri": "a:b"})
    changes.close()
    assert ear.heard.empty()


def test_a_listener_that_fails_keeps_nothing_from_the_others(caplog):
    """The others are told, and the failure is logged."""
    changes, deaf, ear = Changes(), Ear(fails=True), Ear()
    changes.add(deaf)
    changes.add(ear)
    with caplog.at_level(logging.WARNING, "yiemagent.mcp.changes"):
        changes.tell(TOOLS)
        assert ear.heard.get(timeout=10) == (TOOLS, {})
        changes.close()

    assert "could not be told" in caplog.text


def test_nobody_is_told_after_going():
    """A listener that was taken back hears nothing more."""
    changes, gone, ear = Changes(), Ear(), Ear()
    changes.add(gone)
    changes.add(ear)
    changes.remove(gone)
    changes.remove(Ear())
    changes.tell(TOOLS)

    assert ear.heard.get(timeout=10) == (TOOLS, {})
    assert gone.heard.empty()
    assert changes.listeners() == (ear,)
    changes.close()


def test_without_listeners_there_is_no_thread():
    """Changes before the first listener are nobody's, and closing ends what there is."""
    changes = Changes()
    changes.tell(TOOLS)
    changes.close()
    changes.add(Ear())

    assert changes.listeners() == ()
    assert not [t for t in threading.enumerate() if t.name == "yiem-mcp-changes"]


def test_closing_while_changes_are_gathered_ends_the_thread():
    """An end that comes among the changes is an end."""
    changes, ear = Changes(), Ear()
    changes.add(ear)
    changes.tell(TOOLS)
    changes.close()
    changes.close()

    assert changes.listeners() == ()
