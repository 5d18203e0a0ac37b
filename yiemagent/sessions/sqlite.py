"""A session as an SQLite database in WAL mode; the standard library's `sqlite3` and nothing else.

Row 0 of the table `session` is the header, row n the n-th entry. Each row has the same sum as a line of a session file,
and the table `tail` the number of rows and the last sum, so that a database whose pages were damaged is noticed row by
row where SQLite itself notices nothing. The writer locks a file beside the database: locking the database itself would
meddle with SQLite's own locks.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import sqlite3
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from yiemagent.errors import InvalidJson, SessionError
from yiemagent.sessions.files import LockFile, disown_in_children, named_whole
from yiemagent.sessions.store import Fsync
from yiemagent.sessions.wal import check_log

__all__ = ["SqliteStore"]

logger = logging.getLogger("yiemagent.sessions")

_APPLICATION_ID = 0x5949454D  # "YIEM"
_BATCH = 500

_SCHEMA = """
PRAGMA application_id = 1497974093;
BEGIN;
CREATE TABLE session (n INTEGER PRIMARY KEY, line TEXT NOT NULL, sum INTEGER NOT NULL);
CREATE TABLE tail (count INTEGER NOT NULL, sum INTEGER NOT NULL);
INSERT INTO tail VALUES (0, 0);
CREATE TRIGGER follow AFTER INSERT ON session BEGIN UPDATE tail SET count = NEW.n, sum = NEW.sum; END;
COMMIT;
"""

_SYNCHRONOUS = {"always": "FULL", "batch": "NORMAL", "never": "OFF"}

# Connections that a forked child got from its parent: closing them there could hurt the parent's database.
_parents: list[Any] = []


class SqliteStore:
    """A session database; made by `create` and `open`.

    Args:
        path: the file.
        connection: the database, open.
        lock: held while it is written; None for reading.
    """

    def __init__(
        self, path: pathlib.Path, connection: sqlite3.Connection, lock: LockFile | None
    ) -> None:
        self.path = path
        self.header = ""
        self.warnings: tuple[str, ...] = ()
        self._connection = connection
        self._lock = lock
        self._refusal = "was opened for reading" if lock is None else ""
        self._file = path.stat()
        self._end = (
            0,
            0,
        )  # how many lines there are behind the header, and the last sum; replaced whole
        self._unsure = False  # whether there may be more in the database than was noted
        self._close = weakref.finalize(self, _close, connection, lock, path)
        if lock is not None:
            disown_in_children(self)

    # -- making and opening --

    @classmethod
    def create(
        cls, path: pathlib.Path, header: str, lines: Iterable[str] = (), *, fsync: Fsync = "always"
    ) -> Self:
        """Make a database with a header and lines, and be its writer; it appears when all of it is there.

        Raises:
            SessionError: there is a file already, or none can be made there.
        """
        with _translated(path, "made"), named_whole(path) as hidden:
            # For its owner's eyes; SQLite gives the files beside it the same mode.
            os.close(os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            connection = sqlite3.connect(hidden, isolation_level=None)
            with contextlib.closing(connection):
                connection.executescript(_SCHEMA)
                connection.execute("BEGIN")
                total = 0
                for n, line in enumerate((header, *lines)):
                    total = _sum(line, total)
                    connection.execute("INSERT INTO session VALUES (?, ?, ?)", (n, line, total))
                connection.execute("COMMIT")
        return cls.open(path, fsync=fsync)

    @classmethod
    def open(
        cls,
        path: pathlib.Path,
        *,
        fsync: Fsync = "always",
        read_only: bool = False,
        take: Callable[[str], None] | None = None,
    ) -> Self:
        """Open a database and check every row of it.

        Args:
            path: the file.
            fsync: when what is written is made to survive a power failure.
            read_only: whether it is only looked at.
            take: called with each line behind the header, in order; an `InvalidJson` from it is given the row's place.

        Raises:
            SessionError: it can't be read, is damaged, or somebody else writes it.
        """
        if not path.is_file():
            raise SessionError(f"{path} can't be opened: there is no such file")
        with _translated(path, "opened"):
            lock = None if read_only else _locked(path)
            try:
                left_out = check_log(_real(path))
                connection = _reading(path) if read_only else _writing(path, fsync)
                store = cls(path, connection, lock)
            except BaseException:  # whatever it is, nobody gets the store: the lock must go
                if lock is not None:
                    lock.release()
                raise
        if left_out is not None:
            store.warnings = (left_out,)
            logger.warning("%s", left_out)
        try:
            with _translated(path, "read"):
                store._load(take)
        except BaseException:  # the same
            store.close()
            raise
        return store

    def _load(self, take: Callable[[str], None] | None) -> None:
        _check_kind(self.path, self._connection)
        before = count = 0
        self._connection.execute("BEGIN")  # all of it as it was at one moment
        for n, line, total in self._connection.execute(
            "SELECT n, line, sum FROM session ORDER BY n"
        ):
            self._check(n, count, line, total, before=before)
            before, count = total, count + 1
            if n == 0:
                self.header = line
            elif take is not None:
                self._hand_on(line, n, take)
        tail = self._connection.execute("SELECT count, sum FROM tail").fetchall()
        self._connection.execute("COMMIT")
        if not self.header:
            raise SessionError(f"{self.path}, row 0: no session header; this is no session")
        if tail != [(count - 1, before)]:
            raise SessionError(f"{self.path}, row {count}: damaged: rows are missing at the end")
        self._end = (count - 1, before)

    def _hand_on(self, line: str, n: int, take: Callable[[str], None]) -> None:
        try:
            take(line)
        except InvalidJson as error:
            raise SessionError(f"{self.place(n - 1)}: {error}") from error

    def _check(self, n: Any, expected: int, line: Any, total: Any, *, before: int) -> None:
        if n != expected or not isinstance(line, str) or total != _sum(line, before):
            raise SessionError(
                f"{self.path}, row {expected}: damaged: the row, or the one above it, is not as it was written"
            )

    # -- writing --

    def __len__(self) -> int:
        return self._end[0]

    def append(self, line: str, *, durable: bool = True) -> None:  # noqa: ARG002  # SQLite is told once for all lines
        """Add a line in one transaction; see `Store`."""
        self._check_file()
        if self._unsure:
            self._take_back()
        count, before = self._end
        total = _sum(line, before)
        self._unsure = True  # an interrupt may come between any two of the following steps
        try:
            with _translated(self.path, "written"):
                self._connection.execute(
                    "INSERT INTO session VALUES (?, ?, ?)", (count + 1, line, total)
                )
            self._end = (count + 1, total)
            self._unsure = False
        except SessionError:  # SQLite has undone it
            self._unsure = False
            raise
        except BaseException:  # an interrupt: what nobody was told of must not be there
            self._take_back()
            raise

    def _check_file(self) -> None:
        if self._refusal:
            raise SessionError(f"{self.path} {self._refusal}")
        try:
            same = os.path.samestat(self._file, self.path.stat())
        except OSError:
            same = False
        if not same:
            raise SessionError(
                f"{self.path} vanished: it was deleted, moved or replaced while it was written"
            )

    def _take_back(self) -> None:
        """Make the database again what it was before the write that was interrupted."""
        try:
            self._connection.rollback()
            with self._connection:
                self._connection.execute("BEGIN")
                self._connection.execute("DELETE FROM session WHERE n > ?", self._end[:1])
                self._connection.execute("UPDATE tail SET count = ?, sum = ?", self._end)
        except sqlite3.Error as error:
            self._refusal = f"can't be written any more ({error}); open it again"
        self._unsure = False

    def sync(self) -> None:
        """Write through to the disk; see `Store`."""
        if not self._refusal:
            with _translated(self.path, "written"):
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    # -- reading --

    def lines(self, start: int = 0, stop: int | None = None) -> Iterator[str]:
        """Give lines; see `Store`."""
        last = self._end[0] if stop is None else min(stop, self._end[0])
        while start < last:
            if not self._close.alive:
                raise SessionError(f"{self.path} {self._refusal}")
            # The row above comes with them, since each sum is begun with the one before.
            until = min(start + _BATCH, last)
            with _translated(self.path, "read"):
                rows = self._connection.execute(
                    "SELECT n, line, sum FROM session WHERE n BETWEEN ? AND ? ORDER BY n",
                    (start, until),
                ).fetchall()
            if len(rows) != until - start + 1:
                raise SessionError(f"{self.path}, row {start}: damaged: rows are missing behind it")
            before = rows[0][2]
            for index, (n, line, total) in enumerate(rows[1:], start + 1):
                self._check(n, index, line, total, before=before)
                before = total
                yield line
            start = until

    def place(self, index: int) -> str:
        """Say where a line is, for error texts."""
        return f"{self.path}, row {index + 1}"

    # -- the end --

    def close(self) -> None:
        """Let go of the database and its lock; see `Store`."""
        if self._unsure and not self._refusal:
            self._take_back()
        self._refusal = "is closed; open it again"
        self._close()

    def disown(self) -> None:
        """Let go of the database in a child process: it is the parent's."""
        self._refusal = "belongs to the process that this one was forked from; open it here"
        self._close.detach()
        _parents.append(self._connection)
        if self._lock is not None:
            self._lock.let_go()


def _sum(line: str, before: int) -> int:
    return zlib.crc32(line.encode(), before)


def _locked(path: pathlib.Path) -> LockFile:
    lock = LockFile(_beside(path, "-lock"))
    if not lock.take():
        raise SessionError(
            f"{path} is in use: another agent or process writes it; close it there, or open it with "
            f"read_only=True"
        )
    return lock


def _real(path: pathlib.Path) -> pathlib.Path:
    """Give the database itself, where its path is a link and so one of many names."""
    return pathlib.Path(os.path.realpath(path))


def _beside(path: pathlib.Path, ending: str) -> pathlib.Path:
    real = _real(path)
    return real.with_name(f"{real.name}{ending}")


def _writing(path: pathlib.Path, fsync: Fsync) -> sqlite3.Connection:
    connection = _tried(f"{path.absolute().as_uri()}?mode=rw")
    try:
        _check_kind(path, connection)  # before anything is written
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[fsync]}")
    except BaseException:  # whatever it is, nobody gets the connection
        connection.close()
        raise
    return connection


def _check_kind(path: pathlib.Path, connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA application_id").fetchone() != (_APPLICATION_ID,):
        raise SessionError(f"{path} can't be opened: it is no session database")


def _reading(path: pathlib.Path) -> sqlite3.Connection:
    """Open a database for reading; one that nobody writes, in a folder that can't be written, as it is."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    try:
        return _tried(address)
    except sqlite3.OperationalError:
        if _beside(path, "-wal").exists():
            raise
        return _tried(f"{address}&immutable=1")


def _tried(address: str) -> sqlite3.Connection:
    # Any thread may use it: a session does so one at a time.
    connection = sqlite3.connect(address, isolation_level=None, check_same_thread=False, uri=True)
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema")
    except BaseException:  # whatever it is, nobody gets the connection
        connection.close()
        raise
    return connection


def _close(connection: sqlite3.Connection, lock: LockFile | None, path: pathlib.Path) -> None:
    try:
        connection.close()
    finally:
        if lock is not None:
            lock.release()
        else:
            _tidy(path)


def _tidy(path: pathlib.Path) -> None:
    """Take away the empty files that SQLite makes beside a database for a reader, who may not take them away itself.

    Whoever may write does so when it is the last to close, and SQLite's own locks tell whether it is. A log that is
    not empty is left to the next writer.
    """
    log = _beside(path, "-wal")
    with contextlib.suppress(OSError, sqlite3.Error):  # they harm nobody
        if log.stat().st_size == 0:
            _tried(f"{path.absolute().as_uri()}?mode=rw").close()


@contextlib.contextmanager
def _translated(path: pathlib.Path, done: str) -> Iterator[None]:
    """Give what SQLite and the system raise as a `SessionError`."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise SessionError(f"{path} can't be {done}: {error}") from error
    except (
        OverflowError,
        UnicodeError,
    ) as error:  # of what is damaged, error texts of SQLite included
        raise SessionError(f"{path} can't be {done}: damaged: {error}") from error
