"""What stores ask of the system: a lock that a dead process does not hold, and writing through to the disk."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from yiemagent.errors import SessionError

__all__ = ["LockFile", "disown_in_children", "flush", "flush_folder", "lock", "named_whole"]

if (
    sys.platform == "win32"
):  # pragma: no cover  # these lines are for a system that this suite does not run on
    import msvcrt

    _FAR = 1 << 40  # a lock on a byte keeps others from reading it, so it is one that no file has

    def lock(fd: int) -> bool:
        """Lock an open file for its one writer; gives whether that worked. The lock goes with the process."""
        here = os.lseek(fd, 0, os.SEEK_CUR)
        os.lseek(fd, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(fd, here, os.SEEK_SET)
        return True

else:
    import fcntl

    def lock(fd: int) -> bool:
        """Lock an open file for its one writer; gives whether that worked. The lock goes with the process."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class LockFile:
    """A file beside another, locked as long as that one is written; for formats that must not be locked themselves.

    Args:
        path: the lock file; it is gone when nobody writes.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._fd = -1

    def take(self) -> bool:
        """Lock it; gives whether that worked.

        Raises:
            OSError: it can't be made.
        """
        while True:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            if not lock(fd):
                os.close(fd)
                return False
            if _is_at(fd, self._path):
                self._fd = fd
                return True
            os.close(fd)  # its last holder took it away after it was opened here

    def release(self) -> None:
        """Take the file away, and then the lock."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                self._path.unlink()
            self.let_go()

    def let_go(self) -> None:
        """Close the file and leave it where it is; the lock stays with whoever else has it open."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _is_at(fd: int, path: pathlib.Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def flush(fd: int) -> None:
    """Have what was written survive a power failure.

    Raises:
        OSError: it may not; and whether it did can't be found out any more.
    """
    full: int | None = getattr(sys.modules.get("fcntl"), "F_FULLFSYNC", None)
    if full is not None:  # pragma: no cover  # where fsync leaves it in the drive's own memory
        fcntl.fcntl(fd, full)
    else:
        _write_through(fd)


_write_through: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


def flush_folder(folder: pathlib.Path) -> None:
    """Have the names in a folder survive a power failure, where the system has a way to say so."""
    with contextlib.suppress(
        OSError
    ):  # some file systems know no such thing, and lose nothing by it
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@contextlib.contextmanager
def named_whole(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Give a name to write a new file under; it gets its own name once it is whole, so nobody sees half of it.

    Raises:
        SessionError: there is a file of this name already, or none can be made there.
    """
    hidden = path.with_name(f".{path.name}.{os.urandom(4).hex()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield hidden
        _name(hidden, path)
        flush_folder(path.parent)
    except OSError as error:
        raise SessionError(f"{path} can't be made: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            hidden.unlink(missing_ok=True)


def _name(hidden: pathlib.Path, path: pathlib.Path) -> None:
    try:
        os.link(hidden, path)  # unlike a rename, this never takes the place of another file
    except FileExistsError:
        raise SessionError(f"{path} exists already; open it, or give another name") from None


# What children made by a fork must let go of. They share the lock with their parent, and would hold it when it died.
_owned: weakref.WeakSet[Any] = weakref.WeakSet()


def disown_in_children(store: Any) -> None:
    """Have `store.disown()` called in every child that this process forks."""
    if not _registered and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_disown)
        _registered.append(True)
    _owned.add(store)


_registered: list[bool] = []


def _disown() -> None:
    for store in list(_owned):
        store.disown()
    _owned.clear()
