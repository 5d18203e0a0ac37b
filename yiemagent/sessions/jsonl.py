r"""A session as one file of JSON lines that is only ever appended to.

Each line ends in `,"sum":"xxxxxxxx"}`: the CRC-32 of the line before that comma, begun with the sum of the line above
it. So a line that was changed, added, doubled, moved or taken out is noticed where it stands. A last line without its
newline is what a process leaves that was killed while it wrote: nobody was told that it is there, and it is dropped.
The one damage that can't be told is a file cut at the end of a line.

The writer holds a lock on the file itself, which goes with the process, whatever happens to it; readers ask for none.
"""

from __future__ import annotations

import errno
import logging
import os
import pathlib
import re
import stat
import weakref
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, NamedTuple, NoReturn, Self

from yiemagent.errors import InvalidJson, SessionError
from yiemagent.sessions.files import disown_in_children, flush, lock, named_whole
from yiemagent.sessions.store import Fsync

__all__ = ["JsonlStore"]

logger = logging.getLogger("yiemagent.sessions")

_TAIL = len(b',"sum":"12345678"}\n')
_SEAL = re.compile(rb',"sum":"([0-9a-f]{8})("\}|)')
_BLANK = b" \t\r\n\0"
_BLOCK = 1 << 20
_BINARY: int = getattr(os, "O_BINARY", 0)
_NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)


class _End(NamedTuple):
    """Where the file ends: its size, the sum of its last line, and how many lines stand behind the header."""

    size: int
    sum: int
    lines: int


class JsonlStore:
    """A session file; made by `create` and `open`.

    Args:
        path: the file.
        fd: the file, open.
        fsync: when what was written is made to survive a power failure.
        writable: whether it may be appended to.
    """

    def __init__(self, path: pathlib.Path, fd: int, *, fsync: Fsync, writable: bool) -> None:
        self.path = path
        self.header = ""
        self.warnings: tuple[str, ...] = ()
        self._fd = fd
        self._fsync = fsync
        self._refusal = "" if writable else "was opened for reading"
        self._offsets = array("q")  # where each line begins
        self._sums = array("I")  # the sum of each line
        self._header_end = _End(0, 0, 0)
        self._end = self._header_end  # replaced whole, so that an interrupt never leaves half of it
        self._unsure = False  # whether there may be more in the file than was noted
        self._close = weakref.finalize(self, os.close, fd)
        if writable:
            disown_in_children(self)

    # -- making and opening --

    @classmethod
    def create(
        cls, path: pathlib.Path, header: str, lines: Iterable[str] = (), *, fsync: Fsync = "always"
    ) -> Self:
        """Make a file with a header and lines, and be its writer; it appears when all of it is there.

        Raises:
            SessionError: there is a file already, or none can be made there.
        """
        with named_whole(path) as hidden:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | _BINARY
            store = cls(path, os.open(hidden, flags, 0o600), fsync=fsync, writable=True)
            lock(store._fd)
            store._begin(header, lines)
            if fsync != "never":
                flush(store._fd)
        return store

    def _begin(self, header: str, lines: Iterable[str]) -> None:
        line, total = _sealed(header, 0)
        if os.write(self._fd, line) != len(line):
            _full()
        self.header = header
        self._header_end = self._end = _End(len(line), total, 0)
        for more in lines:
            self.append(more, durable=False)

    @classmethod
    def open(
        cls,
        path: pathlib.Path,
        *,
        fsync: Fsync = "always",
        read_only: bool = False,
        take: Callable[[str], None] | None = None,
    ) -> Self:
        """Open a file and check every line of it.

        Args:
            path: the file.
            fsync: when what is written is made to survive a power failure.
            read_only: whether it is only looked at.
            take: called with each line behind the header, in order; an `InvalidJson` from it is given the line's place.

        Raises:
            SessionError: it can't be read, is damaged, or somebody else writes it.
        """
        flags = (os.O_RDONLY if read_only else os.O_RDWR | os.O_APPEND) | _BINARY
        try:
            fd = os.open(path, flags | _NO_WAIT)
        except OSError as error:
            raise SessionError(f"{path} can't be opened: {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):  # a pipe would be waited for
            os.close(fd)
            raise SessionError(f"{path} can't be opened: it is no regular file")
        store = cls(path, fd, fsync=fsync, writable=not read_only)
        try:
            if not read_only:
                store._lock()
            store._load(take)
        except OSError as error:
            store.close()
            raise SessionError(f"{path} can't be read: {error.strerror}") from error
        except BaseException:  # whatever it is, nobody gets the store: the lock must go
            store.close()
            raise
        return store

    def _lock(self) -> None:
        if not lock(self._fd):
            raise SessionError(
                f"{self.path} is in use: another agent or process writes it; close it there, or open it "
                f"with read_only=True"
            )

    def _load(self, take: Callable[[str], None] | None) -> None:
        """Check every line, note where it stands, and mend the end of the file where a writer died."""
        with open(self._fd, "rb", closefd=False) as file:
            for number, line in enumerate(file, 1):
                total = zlib.crc32(memoryview(line)[:-_TAIL], self._end.sum)
                if line[-_TAIL:] != _seal(total):
                    self._mend(line, _rest(file), number, take)
                    break
                self._note(line, total, take)
        if not self.header:
            raise SessionError(f"{self.path}, line 1: no session header; this is no session file")

    def _note(self, line: bytes, total: int, take: Callable[[str], None] | None) -> None:
        """Note where a whole line stands, and hand it on."""
        size = self._end.size
        if not self.header:
            self.header = _opened(line)
            self._header_end = self._end = _End(len(line), total, 0)
            return
        self._offsets.append(size)
        self._sums.append(total)
        self._end = _End(size + len(line), total, len(self._sums))
        if take is not None:
            try:
                take(_opened(line))
            except InvalidJson as error:
                raise SessionError(f"{self.place(len(self._sums) - 1)}: {error}") from error

    def _mend(
        self, line: bytes, rest: bytes, number: int, take: Callable[[str], None] | None
    ) -> None:
        """Deal with the first line that is not whole: it may be the last, which a writer left when it was killed.

        Args:
            line: the line.
            rest: a little of what stands behind it.
            number: of the line, from 1 on.
            take: takes the line, should it be whole.

        Raises:
            SessionError: the file is damaged.
        """
        at_end = not rest.strip(_BLANK)
        total = self._end.sum
        if at_end and self.header:
            if _whole(line, total) == len(line):  # all of it is there but its newline
                self._note(line + b"\n", zlib.crc32(line[: 1 - _TAIL], total), take)
                if not self._refusal:
                    os.write(self._fd, b"\n")
                return
            if not line.strip(_BLANK):
                self._drop(f"{number}: blank lines at the end were dropped")
                return
            torn = (
                _whole(line, total) is None
                if line[-1:] != b"\n"
                else rest and not _ends(line, total)
            )
            if torn:
                why = "its writer was stopped in the middle of it"
                if self._refusal:
                    why += ", or is still writing it"
                size = len(line)
                self._drop(f"{number}: a torn last line of {size} bytes was dropped: {why}")
                return
        self._refuse(number)

    def _drop(self, what: str) -> None:
        """Let the file end where its last whole line does."""
        self.warnings = (f"{self.path}, line {what}",)
        if not self._refusal:
            logger.warning("%s", self.warnings[0])
            os.ftruncate(self._fd, self._end.size)

    def _refuse(self, number: int) -> NoReturn:
        what = "damaged: the line, or the one above it, is not as it was written"
        if number == 1:
            what = "no session header; this is no session file, or its first line was damaged"
        raise SessionError(f"{self.path}, line {number}: {what}")

    # -- writing --

    def __len__(self) -> int:
        return self._end.lines

    def append(self, line: str, *, durable: bool = True) -> None:
        """Add a line in one write; see `Store`."""
        if self._refusal:
            raise SessionError(f"{self.path} {self._refusal}")
        if self._unsure:
            self._take_back()
        size, before, lines = self._end
        # Written out, since every entry of a session comes through here: see `_sealed`.
        data = line[:-1].encode()
        total = zlib.crc32(data, before)
        data += b',"sum":"%08x"}\n' % total
        now = os.fstat(self._fd)
        if now.st_size != size or not now.st_nlink:
            self._changed(now)
        self._unsure = True  # an interrupt may come between any two of the following steps
        try:
            if os.write(self._fd, data) != len(data):
                _full()
            if durable and self._fsync == "always":
                self._flush()
            self._offsets.append(size)
            self._sums.append(total)
            self._end = _End(size + len(data), total, lines + 1)
            self._unsure = False
        except OSError as error:
            self._take_back()
            raise SessionError(f"{self.path} can't be written: {error.strerror}") from error
        except BaseException:  # an interrupt: what nobody was told of must not be there
            self._take_back()
            raise

    def _changed(self, now: os.stat_result) -> NoReturn:
        """Refuse to write to a file that is not as this writer left it; writing to one that was deleted succeeds."""
        if now.st_nlink == 0:
            raise SessionError(
                f"{self.path} vanished: it was deleted or replaced while it was written"
            )
        raise SessionError(
            f"{self.path} was changed by somebody else while it was written: it has {now.st_size} bytes "
            f"in place of {self._end.size}; open it again"
        )

    def _take_back(self) -> None:
        """Make the file again what it was before the write that failed."""
        end = self._end
        del self._offsets[end.lines :], self._sums[end.lines :]
        try:
            os.ftruncate(self._fd, end.size)
        except OSError as error:
            self._refusal = f"can't be written any more ({error.strerror}); open it again"
        self._unsure = False

    def _flush(self) -> None:
        try:
            flush(self._fd)
        except OSError as error:
            # What was not written through is dropped from memory, and later calls succeed: nothing is sure any more.
            self._refusal = f"may have lost what was written last ({error.strerror}); open it again"
            raise

    def sync(self) -> None:
        """Write through to the disk; see `Store`."""
        if self._fsync == "never" or self._refusal:
            return
        try:
            self._flush()
        except OSError as error:
            raise SessionError(f"{self.path} can't be written: {error.strerror}") from error

    # -- reading --

    def lines(self, start: int = 0, stop: int | None = None) -> Iterator[str]:
        """Give lines; see `Store`."""
        last = self._end.lines if stop is None else min(stop, self._end.lines)
        while start < last:
            until = start + 1
            begin = self._offsets[start]
            while until < last and self._line_end(until) - begin <= _BLOCK:
                until += 1
            block = self._read(begin, self._line_end(until - 1))
            for index in range(start, until):
                line = block[self._offsets[index] - begin : self._line_end(index) - begin]
                if line[-_TAIL:] != _seal(self._sums[index]):
                    self._refuse(index + 2)
                before = self._sums[index - 1] if index else self._header_end.sum
                if zlib.crc32(memoryview(line)[:-_TAIL], before) != self._sums[index]:
                    self._refuse(index + 2)
                yield _opened(line)
            start = until

    def _line_end(self, index: int) -> int:
        return self._offsets[index + 1] if index + 1 < self._end.lines else self._end.size

    def _read(self, begin: int, end: int) -> bytes:
        if self._fd < 0:
            raise SessionError(f"{self.path} {self._refusal}")
        os.lseek(self._fd, begin, os.SEEK_SET)
        parts = []
        while begin < end and (part := os.read(self._fd, end - begin)):
            parts.append(part)
            begin += len(part)
        # A reader may have found the last line without its newline.
        return b"".join(parts) + (b"" if begin == end else b"\n")

    def place(self, index: int) -> str:
        """Say where a line is, for error texts."""
        return f"{self.path}, line {index + 2}"

    # -- the end --

    def close(self) -> None:
        """Write through what is not, and let go of the file and its lock; see `Store`."""
        if self._fd < 0:
            return
        try:
            if self._unsure:
                self._take_back()
            self.sync()
        finally:
            self._refusal = "is closed; open it again"
            self._fd = -1
            self._close()

    def disown(self) -> None:
        """Let go of the file in a child process: it is the parent's."""
        self._refusal = "belongs to the process that this one was forked from; open it here"
        self._fd = -1
        self._close()


def _full() -> NoReturn:
    raise OSError(errno.ENOSPC, "the disk is full")


def _sealed(line: str, before: int) -> tuple[bytes, int]:
    """Give a line as it stands in the file, and its sum."""
    body = line[:-1].encode()
    total = zlib.crc32(body, before)
    return body + _seal(total), total


def _seal(total: int) -> bytes:
    """Give what a line of this sum ends in."""
    return b',"sum":"%08x"}\n' % total


def _opened(line: bytes) -> str:
    """Give a line as it was before it was sealed."""
    return f"{line[:-_TAIL].decode()}}}"


def _whole(line: bytes, before: int) -> int | None:
    """Give how long the whole line is that `line` begins with, without its newline; None: it begins with none."""
    for seal in _SEAL.finditer(line):
        if seal[2] and int(seal[1], 16) == zlib.crc32(line[: seal.start()], before):
            return seal.end()
    return None


def _ends(line: bytes, before: int) -> bool:
    """Whether what a line says is all there, whatever became of its end."""
    return any(
        int(seal[1], 16) == zlib.crc32(line[: seal.start()], before)
        for seal in _SEAL.finditer(line)
    )


def _rest(file: BinaryIO) -> bytes:
    """Give what stands behind the lines that were read, up to the first block of it that is not blank."""
    found = b""
    while block := file.read(_BLOCK):
        found = block
        if block.strip(_BLANK):
            break
    return found
