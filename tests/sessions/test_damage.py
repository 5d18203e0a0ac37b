"""Damage of any kind to a session gives the same content or an error that names the place, never a silent change."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sessions.stores import HEADER, JSONL, SQLITE, sql
from yiemagent.errors import SessionError

LINES = [f'{{"id":{n},"text":"{"word " * (n % 5)}é"}}' for n in range(1, 9)]


@pytest.fixture(scope="module")
def session_file(tmp_path_factory):
    """The bytes of a session file, and a place for damaged copies."""
    path = JSONL.filled(tmp_path_factory.mktemp("damage"), LINES)
    return path, path.read_bytes()


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """The bytes of a session database, and a place for damaged copies."""
    path = SQLITE.filled(tmp_path_factory.mktemp("damage"), LINES)
    return path, path.read_bytes()


def outcome(kind, path, content):
    """What a copy with such bytes gives: lines and warnings, or the error."""
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
    path.write_bytes(content)
    try:
        store = kind.open(path.parent, read_only=True)
    except SessionError as error:
        return str(error)
    try:
        return store.header, list(store.lines()), store.warnings
    except SessionError as error:
        return str(error)
    finally:
        store.close()


def check(kind, path, content, *, torn=False):
    """The rule; where the end was cut off, lines may be missing there, with a warning."""
    found = outcome(kind, path, content)
    if isinstance(found, str):
        assert re.search(rf"{kind.name}(, (line|row) \d+: | can't be )", found)
        return
    header, lines, warnings = found
    assert header == HEADER
    if torn:
        assert lines == LINES[: len(lines)]
        assert warnings
    else:
        assert lines == LINES


@settings(max_examples=400)
@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_is_noticed(session_file, place, bit):
    """One bit that changed, anywhere, is an error that names the line, or it is the last newline's."""
    path, content = session_file
    changed = bytearray(content)
    changed[place % len(content)] ^= 1 << bit

    assert isinstance(outcome(JSONL, path, bytes(changed)), str)


def test_every_changed_byte_is_noticed(session_file):
    """Each byte in turn, replaced by another letter, a newline or nothing, is noticed where it stands."""
    path, content = session_file
    for place in range(len(content) - 1):
        for other in (b"x", b"\n", b"", b"\0"):
            changed = content[:place] + other + content[place + 1 :]
            if changed != content:
                found = outcome(JSONL, path, changed)
                line = content[:place].count(b"\n") + 1
                assert isinstance(found, str)
                assert f"line {line}:" in found or f"line {line + 1}:" in found


def test_every_cut_at_the_end_is_told(session_file):
    """A file cut anywhere in a line lacks that line, with a warning; one cut in its header is no session."""
    path, content = session_file
    for size in range(len(content) - 1):
        cut = content[:size]
        lines = max(cut.count(b"\n") - 1, 0)
        found = outcome(JSONL, path, cut)
        if size < len(content.splitlines(keepends=True)[0]):
            assert "line 1:" in found
        elif cut.endswith(b"\n"):  # the one damage that can't be told
            assert found == (HEADER, LINES[:lines], ())
        elif content[size : size + 1] == b"\n":
            assert found == (HEADER, LINES[: lines + 1], ())
        else:
            assert found[:2] == (HEADER, LINES[:lines])
            assert f"line {lines + 2}: a torn last line" in found[2][0]


@given(st.integers(0, 8), st.integers(0, 9))
def test_lines_that_were_doubled_or_moved_are_noticed(session_file, source, target):
    """A copy of a line anywhere, and a line at the place of another, are errors."""
    path, content = session_file
    lines = content.splitlines(keepends=True)
    doubled = [*lines[:target], lines[source], *lines[target:]]
    moved = list(lines)
    moved.insert(target, moved.pop(source))

    assert isinstance(outcome(JSONL, path, b"".join(doubled)), str)
    check(JSONL, path, b"".join(moved))


@given(st.integers(1, 8))
def test_lines_that_were_taken_out_are_noticed(session_file, index):
    """A line that is missing is noticed at the next, unless it was the last."""
    path, content = session_file
    lines = content.splitlines(keepends=True)
    found = outcome(JSONL, path, b"".join(lines[:index] + lines[index + 1 :]))

    assert (f"line {index + 1}: damaged" in found) if index < 8 else (found[1] == LINES[:-1])


@given(st.integers(0, 8), st.sampled_from([b"", b" ", b"\r", b",", b"\n\n", b"{}\n"]))
def test_lines_that_were_glued_are_noticed(session_file, index, between):
    """Two lines without their newline, or with something else in its place, are errors."""
    path, content = session_file
    lines = content.splitlines()
    glued = b"".join(
        line + (between if number == index else b"\n") for number, line in enumerate(lines)
    )

    check(JSONL, path, glued)


@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=30))
def test_bytes_that_were_inserted_are_noticed(session_file, place, more):
    """Anything between two bytes of the file is an error; behind its end it is a torn line."""
    path, content = session_file
    place %= len(content) + 1
    changed = content[:place] + more + content[place:]

    check(JSONL, path, changed, torn=place == len(content) and b"\n" not in more)


def test_lines_of_another_session_are_noticed(session_file, tmp_path):
    """Each session's sums begin with its own header."""
    path, content = session_file
    other = JSONL.create(tmp_path, HEADER.replace('"a"', '"b"'))
    for line in LINES:
        other.append(line)
    other.close()
    head, rest = content.splitlines(keepends=True)[0], (tmp_path / JSONL.name).read_bytes()

    mixed = head + b"".join(rest.splitlines(keepends=True)[1:])

    assert "line 2: damaged" in outcome(JSONL, path, mixed)


def test_a_file_that_is_damaged_while_it_is_open_is_noticed(tmp_path):
    """Each line is checked whenever it is read."""
    path = JSONL.filled(tmp_path, LINES)
    store = JSONL.open(tmp_path, read_only=True)
    path.write_bytes(path.read_bytes().replace(b'"id":5', b'"id":6'))

    with pytest.raises(SessionError, match="line 6: damaged"):
        list(store.lines())
    store.close()


# -- databases --------------------------------------------------------------------------------------------------------


@settings(max_examples=300)
@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_of_a_database_changes_nothing_silently(database, place, bit):
    """One bit that changed gives the same content, since nothing was there, or an error that names the file."""
    path, content = database
    changed = bytearray(content)
    changed[place % len(content)] ^= 1 << bit

    check(SQLITE, path, bytes(changed))


@settings(max_examples=200)
@given(place=st.integers(0, 10**6), more=st.binary(min_size=1, max_size=200))
def test_bytes_of_a_database_that_were_overwritten_change_nothing_silently(database, place, more):
    """The same holds for longer damage, and for a database that was cut off."""
    path, content = database
    place %= len(content)

    check(SQLITE, path, content[:place] + more + content[place + len(more) :])
    check(SQLITE, path, content[:place])


@pytest.mark.parametrize(
    ("change", "row"),
    [
        ("UPDATE session SET line = replace(line, 'word', 'world') WHERE n = 4", 4),
        ("UPDATE session SET sum = sum + 1 WHERE n = 4", 4),
        ("UPDATE session SET line = CAST(line AS BLOB) WHERE n = 4", 4),
        ("DELETE FROM session WHERE n = 4", 4),
        ("DELETE FROM session WHERE n = 8", 8),
        ("DELETE FROM session WHERE n = 0", 0),
        ("INSERT INTO session SELECT 9, line, sum FROM session WHERE n = 8", 9),
        ("UPDATE tail SET count = 7", 9),
        ("DELETE FROM tail", 9),
    ],
)
def test_rows_that_were_changed_are_noticed(change, row, tmp_path):
    """A row that was changed, taken out, added or doubled is noticed where it stands."""
    path = SQLITE.filled(tmp_path, LINES)
    sql(path, change)

    with pytest.raises(SessionError, match=f"chat.db, row {row}: damaged"):
        SQLITE.open(tmp_path)


@pytest.mark.parametrize(
    "change", ["UPDATE session SET line = 'x' WHERE n = 3", "DELETE FROM session WHERE n > 3"]
)
def test_a_database_that_is_damaged_while_it_is_open_is_noticed(change, tmp_path):
    """Each row is checked whenever it is read."""
    path = SQLITE.filled(tmp_path, LINES)
    store = SQLITE.open(tmp_path, read_only=True)
    sql(path, change)

    with pytest.raises(SessionError, match=r"row \d: damaged"):
        list(store.lines())
    store.close()
