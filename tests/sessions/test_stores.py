"""One suite for every store: what is appended is there, whole and in order, and nothing else is."""

from __future__ import annotations

import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import pytest

from tests.sessions.stores import HEADER, JSONL, SQLITE
from yiemagent.errors import SessionError
from yiemagent.sessions.files import LockFile, lock
from yiemagent.sessions.store import MemoryStore

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LINES = ['{"id":1}', '{"id":2,"text":"é \\u2028 \u2028 日本"}', '{"id":3}']

both = pytest.mark.parametrize("kind", [JSONL, SQLITE], ids=["jsonl", "sqlite"])
policies = pytest.mark.parametrize("fsync", ["always", "batch", "never"])


@pytest.fixture(params=["memory", "jsonl", "sqlite"])
def store(request, tmp_path):
    """An empty store of each kind."""
    kinds = {"jsonl": JSONL, "sqlite": SQLITE}
    kind = kinds.get(request.param)
    made = MemoryStore(HEADER) if kind is None else kind.create(tmp_path)
    yield made
    made.close()


# -- every store ------------------------------------------------------------------------------------------------------


def test_an_empty_store_has_its_header(store):
    """A new session is its header and nothing else."""
    assert store.header == HEADER
    assert (len(store), list(store.lines()), store.warnings) == (0, [], ())


def test_lines_come_back_as_they_were_written(store):
    """Whatever a line holds, it comes back to the letter, in order, and any part of the whole can be asked for."""
    for line in LINES:
        store.append(line)

    assert list(store.lines()) == LINES
    assert list(store.lines(1)) == LINES[1:]
    assert list(store.lines(1, 2)) == LINES[1:2]
    assert list(store.lines(2, 9)) == LINES[2:]
    assert list(store.lines(3)) == []
    assert len(store) == 3


def test_lines_may_be_appended_while_others_are_read(store):
    """A reader goes on where it was, and sees what was there when it began."""
    store.append(LINES[0])
    store.append(LINES[1])
    reading = store.lines(0, 2)

    first = next(reading)
    store.append(LINES[2])

    assert [first, *reading] == LINES[:2]


def test_a_closed_store_takes_nothing_more(store):
    """After `close`, which may be called twice, appending is an error."""
    store.close()
    store.close()

    with pytest.raises(SessionError, match="is closed; open it again"):
        store.append(LINES[0])


def test_a_place_names_the_line(store):
    """Error texts say which line is meant."""
    assert any(words in store.place(0) for words in ("line 2", "row 1"))


def test_writing_through_changes_nothing(store):
    """`sync` may be called at any time."""
    store.append(LINES[0], durable=False)
    store.sync()

    assert list(store.lines()) == LINES[:1]


# -- stores with a file -----------------------------------------------------------------------------------------------


@both
@policies
def test_a_store_is_there_when_it_is_opened_again(kind, fsync, tmp_path):
    """After closing and opening, everything is there, and it goes on."""
    first = kind.create(tmp_path, fsync=fsync)
    first.append(LINES[0])
    first.append(LINES[1], durable=False)
    first.sync()
    first.close()

    again = kind.open(tmp_path, fsync=fsync)
    again.append(LINES[2])

    assert again.header == HEADER
    assert list(again.lines()) == LINES
    assert (len(again), again.warnings) == (3, ())
    again.close()
    assert [path.name for path in tmp_path.iterdir()] == [kind.name]


@both
def test_a_long_store_is_read_in_parts(kind, tmp_path):
    """What does not fit one block is read block by block, and each part of it can be."""
    lines = [
        f'{{"id":{n},"text":"{"x" * (200_000 if n % 400 == 7 else 10)}"}}' for n in range(1300)
    ]
    kind.filled(tmp_path, lines)
    store = kind.open(tmp_path)

    assert list(store.lines()) == lines
    assert list(store.lines(1299)) == lines[1299:]
    assert list(store.lines(5, 1250)) == lines[5:1250]
    store.close()


@both
def test_there_is_one_writer(kind, tmp_path):
    """A second writer is refused with the reason, in the same process too, until the first is done."""
    writer = kind.create(tmp_path)

    with pytest.raises(SessionError, match="is in use: another agent or process writes it"):
        kind.open(tmp_path)
    writer.close()
    kind.open(tmp_path).close()


@both
def test_there_is_one_writer_by_whatever_name(kind, tmp_path):
    """A link to a session is the same session: whoever opens it is refused as well."""
    writer = kind.create(tmp_path / "real")
    (tmp_path / kind.name).symlink_to(tmp_path / "real" / kind.name)

    with pytest.raises(SessionError, match="is in use: another agent or process writes it"):
        kind.open(tmp_path)
    writer.close()
    through_link = kind.open(tmp_path)
    through_link.append(LINES[0])

    with pytest.raises(SessionError, match="is in use: another agent or process writes it"):
        kind.open(tmp_path / "real")
    through_link.close()
    assert [path.name for path in (tmp_path / "real").iterdir()] == [kind.name]


@both
def test_a_reader_leaves_nothing_behind(kind, tmp_path):
    """Once the last reader of a session that nobody writes is done, its file stands alone, as before."""
    kind.filled(tmp_path, LINES)
    first, second = (kind.open(tmp_path, read_only=True) for _ in range(2))
    first.close()
    assert list(second.lines()) == LINES
    second.close()

    assert [path.name for path in tmp_path.iterdir()] == [kind.name]


def test_a_reader_leaves_the_log_of_a_killed_writer_as_it_is(tmp_path):
    """It belongs to whoever goes on with the session."""
    SQLITE.create(tmp_path).close()
    with child(SQLITE, tmp_path) as process:
        process.kill()
    log = tmp_path / f"{SQLITE.name}-wal"
    before = log.read_bytes()
    assert before

    reader = SQLITE.open(tmp_path, read_only=True)
    assert len(list(reader.lines())) == 1
    reader.close()

    assert log.read_bytes() == before


@both
def test_a_session_is_for_its_owners_eyes(kind, tmp_path):
    """Nobody else may read a conversation, whatever the mode of new files is."""
    before = os.umask(0o022)
    try:
        writer = kind.create(tmp_path)
        writer.append(LINES[0])
        modes = {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()}
        writer.close()
    finally:
        os.umask(before)
    assert modes == {0}


@both
def test_a_closed_store_gives_nothing_more(kind, tmp_path):
    """Reading from it is the same clear error as writing to it."""
    writer = kind.create(tmp_path)
    writer.append(LINES[0])
    reader = kind.open(tmp_path, read_only=True)
    for store in (writer, reader):
        store.close()
        with pytest.raises(SessionError, match="is closed; open it again"):
            list(store.lines())


@both
def test_readers_wait_for_nobody(kind, tmp_path):
    """A session can be read while it is written; a reader sees what was there when it opened it."""
    writer = kind.create(tmp_path)
    writer.append(LINES[0])

    reader = kind.open(tmp_path, read_only=True)
    writer.append(LINES[1])
    later = kind.open(tmp_path, read_only=True)

    assert (reader.header, list(reader.lines())) == (HEADER, LINES[:1])
    assert list(later.lines()) == LINES[:2]
    with pytest.raises(SessionError, match="was opened for reading"):
        reader.append(LINES[1])
    for store in (reader, later, writer):
        store.close()


CHILD = """
import os, pathlib, sys, signal
from tests.sessions.stores import JSONL, SQLITE
kind = {"jsonl": JSONL, "sqlite": SQLITE}[sys.argv[1]]
store = kind.open(pathlib.Path(sys.argv[2]))
store.append('{"id":1}')
print("there", flush=True)
sys.stdin.read()
"""


def child(kind, folder, program=CHILD):
    """A process that holds the session and waits."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            program,
            kind.name.replace("chat.db", "sqlite").split(".")[-1],
            folder,
        ],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "there\n"
    return process


@both
def test_a_killed_writer_holds_no_lock(kind, tmp_path):
    """Another process's lock is seen, and goes with it when it is killed; what it wrote is there."""
    kind.create(tmp_path).close()
    with child(kind, tmp_path) as process:
        with pytest.raises(SessionError, match="is in use"):
            kind.open(tmp_path)
        process.kill()
        process.wait()

    store = kind.open(tmp_path)

    assert list(store.lines()) == LINES[:1]
    store.close()


@both
def test_a_forked_child_neither_writes_nor_holds_the_session(kind, tmp_path):
    """The session stays the parent's: a child is refused, and one that outlives the parent holds no lock."""
    store = kind.create(tmp_path)
    go_on, told = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            store.append(LINES[0])
        except SessionError as error:
            os.write(told[1], str(error).encode())
        os.read(go_on[0], 1)
        os._exit(0)

    answer = os.read(told[0], 500).decode()
    store.append(LINES[1])
    store.close()
    again = kind.open(tmp_path)
    lines = list(again.lines())
    again.close()
    os.write(go_on[1], b"x")
    os.waitpid(pid, 0)
    for end in (*go_on, *told):
        os.close(end)

    assert "belongs to the process that this one was forked from" in answer
    assert lines == LINES[1:2]


@both
def test_a_file_of_that_name_is_not_replaced(kind, tmp_path):
    """Making a session never takes the place of another file, and leaves nothing of its own behind."""
    (tmp_path / kind.name).write_text("mine")

    with pytest.raises(SessionError, match="exists already"):
        kind.create(tmp_path)

    assert (tmp_path / kind.name).read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


@both
def test_missing_folders_are_made(kind, tmp_path):
    """A session may be the first thing in its folder."""
    kind.create(tmp_path / "new" / "folder").close()

    assert (tmp_path / "new" / "folder" / kind.name).is_file()


@both
def test_what_is_not_there_can_not_be_opened(kind, tmp_path):
    """A missing file, and a folder, are errors that name the path."""
    with pytest.raises(SessionError, match=f"{kind.name} can't be opened"):
        kind.open(tmp_path)
    (tmp_path / kind.name).mkdir()
    for options in ({}, {"read_only": True}):
        with pytest.raises(SessionError, match=f"{kind.name} can't be"):
            kind.open(tmp_path, **options)


@both
def test_a_pipe_is_no_session_and_is_not_waited_for(kind, tmp_path):
    """A folder may hold anything under a session's name; what is no file is refused at once."""
    os.mkfifo(tmp_path / kind.name)
    for options in ({}, {"read_only": True}):
        with pytest.raises(SessionError, match=f"{kind.name} can't be opened"):
            kind.open(tmp_path, **options)


@both
@pytest.mark.parametrize("content", ["", "hello\n", "hello", '{"id":1}\n', "SQLite format 3\0"])
def test_what_is_no_session_is_refused_and_left_alone(kind, content, tmp_path):
    """Any other file is an error, and stays as it was."""
    path = tmp_path / kind.name
    path.write_text(content)

    with pytest.raises(SessionError, match=kind.name):
        kind.open(tmp_path)

    assert path.read_text() == content


@both
def test_a_file_that_vanished_is_an_error(kind, tmp_path):
    """What is written to a deleted file would be lost, so it is refused."""
    store = kind.create(tmp_path)
    (tmp_path / kind.name).unlink()

    with pytest.raises(SessionError, match="vanished: it was deleted"):
        store.append(LINES[0])

    assert len(store) == 0
    store.close()


@both
def test_a_file_that_was_replaced_is_an_error(kind, tmp_path):
    """So is another file at its place."""
    store = kind.create(tmp_path)
    (tmp_path / "other").write_text("other")
    (tmp_path / "other").replace(tmp_path / kind.name)

    with pytest.raises(SessionError, match="vanished: it was deleted"):
        store.append(LINES[0])
    store.close()


def test_a_file_that_somebody_else_changed_is_an_error(tmp_path):
    """A line that another program wrote behind the lock's back is noticed before anything is written behind it."""
    store = JSONL.create(tmp_path)
    with (tmp_path / JSONL.name).open("a") as file:
        file.write("{}\n")

    with pytest.raises(SessionError, match="was changed by somebody else"):
        store.append(LINES[0])
    store.close()


# -- a full disk ------------------------------------------------------------------------------------------------------

FULL = """
import pathlib, resource, sys
from tests.sessions.stores import HEADER, JSONL, SQLITE
from yiemagent.errors import SessionError
kind = {"jsonl": JSONL, "sqlite": SQLITE}[sys.argv[1]]
store = kind.open(pathlib.Path(sys.argv[2]), fsync=sys.argv[3])
line = '{"text":"' + "x" * 3000 + '"}'
kept = 0
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    for _ in range(200):
        store.append(line)
        kept += 1
except SessionError as error:
    print(str(error))
assert len(store) == kept, (len(store), kept)
assert list(store.lines()) == [line] * kept
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.append('{"more":1}')
assert list(store.lines()) == [*[line] * kept, '{"more":1}']
store.close()
store = kind.open(pathlib.Path(sys.argv[2]))
assert list(store.lines()) == [*[line] * kept, '{"more":1}']
store.close()
print(kept)
"""


@both
@policies
def test_a_full_disk_is_an_error_and_loses_nothing(kind, fsync, tmp_path):
    """A line that does not fit is not there, those before it are, and with space again it goes on."""
    kind.create(tmp_path).close()
    word = "jsonl" if kind is JSONL else "sqlite"

    done = subprocess.run(
        [sys.executable, "-c", FULL, word, tmp_path, fsync],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
    )

    assert done.stderr == ""
    said, kept = done.stdout.splitlines()
    assert f"{kind.name} can't be written" in said
    assert 4 < int(kept) < 40


def test_a_folder_that_can_not_be_written_is_an_error(tmp_path):
    """Where no file can be made, that is said, with the path."""
    (tmp_path / "file").write_text("")

    for kind in (JSONL, SQLITE):
        with pytest.raises(SessionError, match="can't be made"):
            kind.create(tmp_path / "file")


@pytest.fixture
def plain_user():
    """Give up the rights of root, which may write anywhere, for a while."""
    if os.geteuid() == 0:
        os.seteuid(65534)
        yield
        os.seteuid(0)
    else:
        yield


@pytest.fixture
def read_only_folder():
    """A folder that only root may write, with a session of each kind in it."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for kind in (JSONL, SQLITE):
            kind.filled(folder, LINES).chmod(0o444)
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o755)


@both
def test_a_read_only_folder_can_be_read_and_not_written(kind, read_only_folder, plain_user):
    """Where nothing may be written, opening for writing and making are errors, and reading works."""
    with pytest.raises(SessionError, match=rf"{kind.name} can't be opened: .*"):
        kind.open(read_only_folder)
    with pytest.raises(SessionError, match="can't be made"):
        kind.store.create(read_only_folder / "new", HEADER)
    reader = kind.open(read_only_folder, read_only=True)

    assert list(reader.lines()) == LINES
    reader.close()


# -- the end of a file ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 2, 10, 18, 25])
def test_a_torn_last_line_is_dropped_with_a_warning(cut, tmp_path, caplog):
    """What a writer left that was killed in the middle of a line is dropped; the rest is there and goes on."""
    path = JSONL.filled(tmp_path, LINES)
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines(keepends=True)[-1][:cut])

    reader = JSONL.open(tmp_path, read_only=True)
    with caplog.at_level(logging.WARNING, "yiemagent.sessions"):
        store = JSONL.open(tmp_path)
    store.append('{"id":4}')

    assert list(reader.lines()) == LINES
    assert f"chat.jsonl, line 5: a torn last line of {cut} bytes was dropped" in reader.warnings[0]
    assert [record.message for record in caplog.records] == list(store.warnings)
    assert list(store.lines()) == [*LINES, '{"id":4}']
    for one in (reader, store):
        one.close()
    again = JSONL.open(tmp_path)
    assert (len(again), again.warnings) == (4, ())
    again.close()


@pytest.mark.parametrize(
    ("cut", "tail", "kept"),
    [
        (9, b"\n\n", 2),
        (19, b"\n \r\n", 2),
        (25, b"\n" + bytes(64), 2),
        (9, bytes(64), 2),
        (1, b"\n\n\n", 3),
        (0, b"\n", 3),
        (0, b" ", 3),
        (0, bytes(64), 3),
        (0, bytes(3_000_000), 3),
    ],
)
def test_blank_ends_are_dropped_with_a_warning(cut, tail, kept, tmp_path):
    """What an editor, or a disk that lost power, left behind the last line is dropped, with the line that is torn."""
    path = JSONL.filled(tmp_path, LINES)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - cut] + tail)

    store = JSONL.open(tmp_path)
    store.append('{"id":4}')
    store.close()
    again = JSONL.open(tmp_path, read_only=True)

    assert f"chat.jsonl, line {kept + 2}: " in store.warnings[0]
    assert list(again.lines()) == [*LINES[:kept], '{"id":4}']
    assert again.warnings == ()
    again.close()


@pytest.mark.parametrize(
    ("cut", "tail"), [(9, b"\n"), (9, b"\n\nx"), (9, b"\n" + bytes(2_000_000) + b"x"), (2, b"\n\n")]
)
def test_an_end_that_no_writer_leaves_is_damage(cut, tail, tmp_path):
    """A line that was ended though it is torn, or one whose last letter changed, is not dropped."""
    path = JSONL.filled(tmp_path, LINES)
    path.write_bytes(path.read_bytes()[:-cut] + tail)

    with pytest.raises(SessionError, match="line 4: damaged"):
        JSONL.open(tmp_path)


def test_a_last_line_that_lacks_its_newline_is_kept(tmp_path):
    """A line of which only the newline is missing is whole."""
    path = JSONL.filled(tmp_path, LINES)
    path.write_bytes(path.read_bytes()[:-1])

    reader = JSONL.open(tmp_path, read_only=True)
    first = list(reader.lines())
    store = JSONL.open(tmp_path)
    store.append('{"id":4}')

    assert first == LINES
    assert list(store.lines()) == [*LINES, '{"id":4}']
    for one in (reader, store):
        one.close()


# -- locks ------------------------------------------------------------------------------------------------------------


def test_a_lock_file_is_gone_when_nobody_writes(tmp_path):
    """It is taken away with the lock, and one that a killed process left is taken over."""
    path = tmp_path / "lock"
    path.write_text("")
    first, second = LockFile(path), LockFile(path)

    assert (first.take(), second.take()) == (True, False)
    first.release()
    assert not path.exists()
    assert second.take()
    second.release()
    second.release()


def test_a_lock_on_a_file_that_was_taken_away_is_no_lock(tmp_path):
    """Who waits for the lock while its holder takes the file away locks the new file, not the old one."""
    path = tmp_path / "lock"
    turns, held = range(200), []
    inside = []

    def take_turns():
        for _ in turns:
            lock_file = LockFile(path)
            if lock_file.take():
                inside.append(1)
                held.append(len(inside))
                inside.pop()
                lock_file.release()

    threads = [threading.Thread(target=take_turns) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert set(held) == {1}


def test_a_lock_says_whether_it_is_had(tmp_path):
    """A file can be locked once, however often it is opened."""
    (tmp_path / "file").write_text("")
    with (tmp_path / "file").open() as one, (tmp_path / "file").open() as other:
        assert lock(one.fileno())
        assert not lock(other.fileno())
