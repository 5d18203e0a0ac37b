"""What SQLite would leave out of a session without a word."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sessions.stores import SQLITE
from yiemagent.errors import SessionError
from yiemagent.sessions.wal import check_log

LINES = [f'{{"id":{n},"text":"{"word " * (n * 40 % 900)}é"}}' for n in range(1, 13)]
HEAD = 32
FRAME = 24 + 4096


def killed(folder, before=()):
    """The bytes of database and log as a killed process leaves them; after `before` the log is begun anew."""
    store = SQLITE.create(folder, fsync="never")
    for line in before:
        store.append(line)
    if before:
        store._connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
    for line in LINES[len(before) :]:
        store.append(line)
    path = folder / SQLITE.name
    left = path.read_bytes(), path.with_name("chat.db-wal").read_bytes()
    store.close()
    return left


class Left(tuple):
    """A place for copies, and the bytes of what was left; too many to be shown."""

    __slots__ = ()

    def __new__(cls, *parts):
        """Hold what is given."""
        return super().__new__(cls, parts)

    def __repr__(self):
        return str(self[0])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A place for damaged copies, and what a killed process left."""
    return Left(tmp_path_factory.mktemp("copies"), killed(tmp_path_factory.mktemp("killed")))


@pytest.fixture(scope="module")
def begun_anew(tmp_path_factory):
    """The same, with a log in which older frames stand behind the newer ones."""
    left = killed(tmp_path_factory.mktemp("killed"), LINES[:9])
    return Left(tmp_path_factory.mktemp("copies"), left)


def outcome(folder, database, log):
    """What a copy with such bytes gives: lines and warnings, or the error."""
    (folder / "chat.db-shm").unlink(missing_ok=True)
    (folder / "chat.db").write_bytes(database)
    (folder / "chat.db-wal").write_bytes(log)
    try:
        store = SQLITE.open(folder, read_only=True)
    except SessionError as error:
        return str(error)
    try:
        return list(store.lines()), store.warnings
    finally:
        store.close()


def flipped(log, where, bit):
    """A log with one bit changed."""
    changed = bytearray(log)
    changed[where] ^= 1 << bit
    return bytes(changed)


def commits(log):
    """Where each transaction ends: the ends of the frames that say so."""
    return [
        begin + FRAME
        for begin in range(HEAD, len(log), FRAME)
        if int.from_bytes(log[begin + 4 : begin + 8], "big")
    ]


def test_what_a_killed_process_left_is_whole(place, begun_anew):
    """All that it was told of is there, without a word, also where the log holds what is older."""
    for folder, (database, log) in (place, begun_anew):
        assert outcome(folder, database, log) == (LINES, ())


@settings(max_examples=300)
@given(where=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_of_a_log_loses_nothing_silently(place, where, bit):
    """It is an error that names the log and the frame; in the last transaction, which may not have been whole, a
    warning.
    """
    folder, (database, log) = place
    where %= len(log)
    found = outcome(folder, database, flipped(log, where, bit))
    last = commits(log)[-2]
    says_commit = range(last - FRAME + 4, last - FRAME + 8)

    if where in says_commit:  # then the last two transactions look like one
        assert found[0] == LINES[:-2]
        assert found[1]
    elif where < last:
        frame = (where - HEAD) // FRAME + 1
        assert (
            f"chat.db-wal is damaged at {f'frame {frame}' if where >= HEAD else 'its head'}"
            in found
        )
    else:
        assert found[0] == LINES[:-1]
        assert "the last transaction was dropped, from frame " in found[1][0]


@settings(max_examples=100)
@given(where=st.integers(0, 10**6), more=st.binary(min_size=1, max_size=9000))
def test_longer_damage_of_a_log_loses_nothing_silently(place, where, more):
    """The same holds for bytes that were written over others."""
    folder, (database, log) = place
    where %= len(log)
    changed = (log[:where] + more + log[where + len(more) :])[: len(log)]
    found = outcome(folder, database, changed)

    if changed == log:
        assert found == (LINES, ())
    elif isinstance(found, str):
        assert "chat.db-wal is damaged" in found
    else:
        assert found[0] in (LINES[:-1], LINES[:-2])
        assert found[1]


@settings(max_examples=60)
@given(where=st.integers(0, 10**6))
def test_a_log_that_was_cut_off_is_told_unless_between_transactions(place, where):
    """What stands before the cut is there, with a warning where it is in the middle of a transaction."""
    folder, (database, log) = place
    where %= len(log)
    found, warnings = outcome(folder, database, log[:where])
    before = [end for end in (HEAD, *commits(log)) if end <= where]

    assert found == LINES[: max(len(before) - 1, 0)]
    assert bool(warnings) == (bool(before) and where - before[-1] >= 24)


def test_what_is_older_in_a_log_may_be_anything(begun_anew):
    """Damage behind the last frame of a log that was begun anew changes nothing."""
    folder, (database, log) = begun_anew
    salts = log[16:24]
    own = sum(log[begin + 8 : begin + 16] == salts for begin in range(HEAD, len(log), FRAME))
    older = HEAD + own * FRAME

    assert HEAD < older < len(log) - FRAME
    assert outcome(folder, database, flipped(log, older + 500, 1)) == (LINES, ())
    assert outcome(folder, database, flipped(log, older - 500, 1))[0] == LINES[:-1]
    assert "damaged at frame 1," in outcome(folder, database, flipped(log, HEAD + 500, 1))


def resealed(log, order):
    """A log whose sums are made in an order of bytes."""
    first = second = 0
    done = bytearray()

    def seal(data):
        nonlocal first, second
        for here in range(0, len(data), 8):
            first = (first + int.from_bytes(data[here : here + 4], order) + second) % 2**32
            second = (second + int.from_bytes(data[here + 4 : here + 8], order) + first) % 2**32
        return first.to_bytes(4, "big") + second.to_bytes(4, "big")

    head = (0x377F0682 + (order == "big")).to_bytes(4, "big") + log[4:24]
    done += head + seal(head)
    for begin in range(HEAD, len(log), FRAME):
        frame = log[begin : begin + FRAME]
        done += frame[:16] + seal(frame[:8] + frame[24:]) + frame[24:]
    return bytes(done)


@pytest.mark.parametrize("order", ["big", "little"])
def test_a_log_says_in_which_order_of_bytes_its_sums_are(order, place, tmp_path):
    """Either is read, wherever the log was written."""
    _, (_, log) = place
    sealed = resealed(log, order)
    (tmp_path / "chat.db-wal").write_bytes(sealed)
    assert check_log(tmp_path / "chat.db") is None

    (tmp_path / "chat.db-wal").write_bytes(flipped(sealed, 3, 0))
    with pytest.raises(SessionError, match="damaged at its head"):
        check_log(tmp_path / "chat.db")


def test_no_log_is_no_damage(tmp_path):
    """Where nobody writes there is none, or one that is empty."""
    assert check_log(tmp_path / "chat.db") is None
    (tmp_path / "chat.db-wal").write_bytes(b"")
    assert check_log(tmp_path / "chat.db") is None


def test_a_writer_is_told_and_goes_on(place, tmp_path, caplog):
    """Who opens the session to write it gets the warning, in the log as well, and may append."""
    _, (database, log) = place
    (tmp_path / "chat.db").write_bytes(database)
    (tmp_path / "chat.db-wal").write_bytes(flipped(log, len(log) - 1, 0))
    store = SQLITE.open(tmp_path)
    store.append(LINES[-1])

    assert list(store.lines()) == LINES
    assert store.warnings[0] in caplog.text
    store.close()
    assert SQLITE.open(tmp_path, read_only=True).warnings == ()


def test_a_reader_beside_a_writer_sees_no_damage(tmp_path):
    """However far the writer is when the log is looked at, nothing is called damaged that it is about to write."""
    store = SQLITE.create(tmp_path, fsync="never")

    def write():
        for _ in range(300):
            store.append(LINES[0])

    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    while writer.is_alive():
        reader = SQLITE.open(tmp_path, read_only=True)
        seen.append((len(reader), reader.warnings))
        reader.close()
    writer.join()
    store.close()

    assert {warnings for _, warnings in seen} == {()}
    assert seen == sorted(seen)
