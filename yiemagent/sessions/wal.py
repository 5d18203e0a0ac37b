"""What SQLite says nothing of: entries that it leaves out, since its write-ahead log is damaged.

While a database is written, and after its writer was killed, what was written last stands in a log beside it. SQLite
takes that log up to the first frame whose sum is wrong, and leaves out whatever stands behind it: entries that somebody
was told of would be missing without a word. So the log is read here before SQLite sees it.

Only in the last transaction a wrong sum is no damage: nobody was told of one that was not whole when the process was
killed, or the power failed. Source: SQLite's "Database File Format", section 4, "The Write-Ahead Log".
"""

from __future__ import annotations

import pathlib
import struct

from yiemagent.errors import SessionError

__all__ = ["check_log"]

_HEADER = struct.Struct(">8I")  # magic, version, page size, number of restarts, two salts, two sums
_FRAME = struct.Struct(">6I")  # page, size of the database after a commit or 0, two salts, two sums
_MAGIC = {0x377F0682: "<", 0x377F0683: ">"}  # and the byte order of the words that are summed
_MASK = 0xFFFFFFFF
_SUMMED_OF_HEADER = 24  # bytes


def check_log(path: pathlib.Path) -> str | None:
    """Look at the log of a database that is about to be opened.

    Args:
        path: the database.

    Returns:
        What is left out and is no error, since it was not whole; None: nothing.

    Raises:
        SessionError: what SQLite would leave out is more than that.
        OSError: the log can't be read.
    """
    log = path.with_name(f"{path.name}-wal")
    found = _left_out(_read(log))
    # Looked at again, since a writer may be at work: what it is writing is not half there twice, and damage stays.
    if found is None or found != _left_out(_read(log)):
        return None
    frame, is_last = found
    if is_last:
        return (
            f"{path}: the last transaction was dropped, from frame {frame} of {log.name} on: its writer was stopped in "
            f"the middle of it, or it is damaged"
        )
    where = f"frame {frame}" if frame else "its head"
    raise SessionError(
        f"{path} can't be opened: {log.name} is damaged at {where}, and what was written after that would be lost; "
        f"without that file the session is as it was before any of it"
    )


def _read(log: pathlib.Path) -> bytes:
    try:
        return log.read_bytes()
    except FileNotFoundError:
        return b""


def _left_out(log: bytes) -> tuple[int, bool] | None:
    """Give the first frame that SQLite leaves out, from 1 on (0: the head), and whether all that it leaves out is one
    transaction, the last one; None: nothing.
    """
    if len(log) < _HEADER.size:
        return None
    magic, _, page, restarts, *salts, first, second = _HEADER.unpack_from(log)
    order = _MAGIC.get(magic)
    if order is None or _summed(log[:_SUMMED_OF_HEADER], (0, 0), order) != (first, second):
        return 0, False
    sums, broken, is_over = (first, second), 0, False
    unfinished = 0  # the first whole frame of a transaction whose end did not come yet
    size = _FRAME.size + page
    for number, begin in enumerate(range(_HEADER.size, len(log) - _FRAME.size + 1, size), 1):
        _, commit, *salted, first, second = _FRAME.unpack_from(log, begin)
        if restarts and salted != salts:  # what stood there before the log was begun anew
            continue
        if is_over:
            return broken, False
        if not broken:
            frame = log[begin : begin + size]
            sums = _summed(frame[:8] + frame[_FRAME.size :], sums, order)
            # Salts are in no sum.
            is_whole = len(frame) == size and sums == (first, second) and salted == salts
            broken = 0 if is_whole else number
            unfinished = 0 if commit and is_whole else unfinished or number
        is_over = bool(broken and commit)
    return (unfinished, True) if unfinished else None


def _summed(data: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    """Give the two sums of words, begun with those of what stands before them."""
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data[: len(data) // 4 * 4])
    for one, other in zip(words[::2], words[1::2], strict=False):
        first = (first + one + second) & _MASK
        second = (second + other + first) & _MASK
    return first, second
