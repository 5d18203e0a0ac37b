"""An interrupt between any two steps of a write loses and doubles nothing."""

from __future__ import annotations

import gc
import os
import signal

import pytest

from tests.sessions.stores import JSONL, SQLITE
from yiemagent.errors import SessionError
from yiemagent.events import MessageEndEvent
from yiemagent.messages import UserMessage
from yiemagent.sessions import Session

INTERRUPTS = 60

both = pytest.mark.parametrize("kind", [JSONL, SQLITE], ids=["jsonl", "sqlite"])


class Stop(BaseException):
    """What a signal handler raises, as Ctrl-C does."""


def interrupted(act):
    """Do something again and again, interrupted at any step; gives what it returned for."""
    done, armed, count = [], [False], 0

    def stop(_number, _frame):
        if armed[0]:
            raise Stop

    # Python says of what a finalizer raises that nobody can see it: none of somebody else's garbage runs meanwhile.
    gc.collect()
    gc.disable()
    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.001, 0.001)
    number = 0
    try:
        while count < INTERRUPTS:
            number += 1
            try:
                armed[0] = True
                act(number)
                done.append(number)
                armed[0] = False
            except Stop:
                armed[0] = False
                count += 1
    finally:
        armed[0] = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        gc.enable()
    return done


def check(done, found):
    """What was done is there, each once, in order; what was interrupted may be."""
    assert found == sorted(set(found))
    assert set(done) <= set(found)


@both
def test_a_store_is_whole_after_any_interrupt(kind, tmp_path):
    """Each line that `append` returned for is there once, and the file is sound."""
    store = kind.create(tmp_path, fsync="never")
    done = interrupted(lambda number: store.append(f'{{"id":{number}}}'))
    held = list(store.lines())
    store.append('{"id":0}')
    store.close()

    again = kind.open(tmp_path, read_only=True)
    assert list(again.lines()) == [*held, '{"id":0}']
    again.close()
    check(done, [int(line[6:-1]) for line in held])


@pytest.mark.parametrize("name", ["a.jsonl", "a.db"])
@pytest.mark.parametrize("way", ["add", "record"])
def test_a_session_is_whole_after_any_interrupt(name, way, tmp_path):
    """Messages that were written are there once; one whose record was interrupted waits and is written next."""
    with Session.create(tmp_path / name, fsync="never") as session:

        def write(number):
            message = UserMessage(str(number))
            if way == "add":
                session.add_message(message)
            else:
                session.record(MessageEndEvent(message))

        done = interrupted(write)
        held = [message.text for message in session.messages]
        session.add_message(UserMessage("last"))
        entries = session.entries()
    with Session.open(tmp_path / name) as session:
        assert [message.text for message in session.messages] == [*held, "last"]
    assert [entry.parent_id for entry in entries] == [None, *[e.id for e in entries[:-1]]]
    check(done, [int(text) for text in held])


# -- what can't be undone ---------------------------------------------------------------------------------------------


def test_a_disk_that_can_not_be_written_through_is_not_trusted_again(tmp_path):
    """Once writing through failed, nobody knows what is on the disk, and nothing more is written behind it."""
    store = JSONL.create(tmp_path)
    store.append('{"id":1}')
    read, write = os.pipe()
    os.dup2(write, store._fd)  # a pipe can't be written through

    with pytest.raises(SessionError, match="can't be written"):
        store.sync()
    with pytest.raises(SessionError, match="may have lost what was written last"):
        store.append('{"id":2}')
    store.sync()
    store.close()
    for end in (read, write):
        os.close(end)


def test_a_write_that_can_not_be_taken_back_is_the_last(tmp_path):
    """Where what failed can't be undone, nothing is written behind it, and opening anew shows what is there."""
    store = JSONL.create(tmp_path)
    store.append('{"id":1}')
    read_only = os.open(store.path, os.O_RDONLY)
    os.dup2(read_only, store._fd)
    os.close(read_only)

    with pytest.raises(SessionError, match="can't be written: "):
        store.append('{"id":2}')
    with pytest.raises(SessionError, match="can't be written any more"):
        store.append('{"id":3}')
    store.close()
    again = JSONL.open(tmp_path)
    assert list(again.lines()) == ['{"id":1}']
    again.close()


@both
def test_a_closed_store_can_not_be_read(kind, tmp_path):
    """What is closed gives nothing more."""
    store = kind.create(tmp_path)
    store.append('{"id":1}')
    store.close()

    with pytest.raises(SessionError, match="closed"):
        list(store.lines())
