"""Blocks that are told which tools came within them; through stores this is tested in test_registry."""

from __future__ import annotations

import contextvars

from yiemagent.registrations import collect_registrations, note_registration


def test_the_innermost_block_is_told():
    """A name is noted once, in the innermost block of the context; outside of any block nobody is told."""
    note_registration("before")
    with collect_registrations() as outer:
        note_registration("a")
        with collect_registrations() as inner:
            note_registration("b")
            note_registration("b")
        contextvars.copy_context().run(note_registration, "c")
    note_registration("after")

    assert outer == ["a", "c"]
    assert inner == ["b"]
