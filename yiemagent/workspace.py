"""A folder that file tools stay in, whatever path they are given.

A path is walked name by name with open descriptors, and a symbolic link on the way is read and walked like the rest, so
what was checked is what is used: swapping a folder or a file for a link meanwhile leads nowhere else. Where the walk
would leave the root, by `..`, an absolute path or a link, it is refused. Only ordinary files are read and written;
devices, pipes and sockets are refused before they are opened. Hard links look like any other file, and whoever may make
them in the root may share a file with it; a file that is written is replaced, not written through.

It keeps honest tools in place. It is no sandbox against programs that run beside it with the same rights.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Self

from yiemagent.errors import ConfigurationError, ToolError

__all__ = ["Workspace", "workspace_from"]

ROOT_VARIABLE = "YIEMAGENT_ROOT"
_MAX_PATH_BYTES = 4096
_MAX_LINKS = 40
# A descriptor to walk by needs no right to list the folder, where the system has such a thing.
_WALK = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0)
_LIST = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
# What is opened never blocks, nor becomes this process's terminal.
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_BLOCK = 65_536


def workspace_from(environ: Mapping[str, str]) -> Workspace:
    """Give the folder that built-in tools work in: `YIEMAGENT_ROOT` of the environment, else the working folder."""
    return Workspace(environ.get(ROOT_VARIABLE) or ".")


class Workspace:
    """A root folder, and reading and writing below it.

    Args:
        root: the folder; resolved now.

    Raises:
        ConfigurationError: it is no folder, or the system can't walk by descriptors (Windows).
    """

    def __init__(self, root: str | PathLike[str]) -> None:
        given = Path(os.path.abspath(root))  # noqa: PTH100 - without resolving links, to know both names
        self.root = given.resolve()
        self._names = {given, self.root}
        if not self.root.is_dir():
            raise ConfigurationError(f"there is no folder {str(root)!r} for tools to work in")
        if not {os.open, os.stat, os.mkdir, os.rename, os.readlink} <= os.supports_dir_fd:
            raise ConfigurationError("file tools need a system that opens files by descriptor")

    def __repr__(self) -> str:
        return f"<Workspace {str(self.root)!r}>"

    def read(self, path: str, max_bytes: int) -> bytes:
        """Give the content of a file.

        Args:
            path: from the root, or absolute and below it.
            max_bytes: a larger file is an error.

        Raises:
            ToolError: there is no such file, it is no ordinary one or too large, or the path leaves the root.
        """
        with self.walk(path) as place, _told(path):
            return place.read(path, max_bytes)

    def write(
        self,
        path: str,
        data: bytes,
        *,
        overwrite: bool = True,
        expected: bytes | None = None,
    ) -> bool:
        """Write a whole file in one step, with the folders that it needs: nobody ever sees half of it.

        Args:
            path: from the root, or absolute and below it.
            data: the content.
            overwrite: whether a file that is there may be replaced; its permissions stay.
            expected: what must still be in it, or None.

        Returns:
            Whether the file is new.

        Raises:
            ToolError: it is there and may not be replaced, is no ordinary file or has changed, or the path leaves the
                root.
        """
        with self.walk(path, make_folders=True) as place, _told(path):
            return place.write(path, data, overwrite=overwrite, expected=expected)

    def folder(self, path: str) -> Path:
        """Give the real path of a folder below the root, for a program to run in.

        Raises:
            ToolError: there is none, or the path leaves the root.
        """
        with self.walk(path) as place, _told(path):
            place.close_after(place.open(_WALK))
            return self.root.joinpath(*place.names, place.name)

    def files(self, path: str, skipped: Collection[str] = ()) -> Iterator[str]:
        """Give the ordinary files below a folder, or the one file itself, sorted, as paths from the root.

        Links are not followed, so none comes twice; folders that can't be listed are passed over.

        Args:
            path: the folder or file.
            skipped: names of folders that are not looked into.

        Raises:
            ToolError: there is none, or the path leaves the root.
        """
        with self.walk(path) as place, _told(path):
            start = [*place.names, *([] if place.name == "." else [place.name])]
            if not stat.S_ISDIR(place.stat().st_mode):
                place.check_ordinary(path)
                yield "/".join(start)
                return
        todo = [start]
        while todo:
            here = todo.pop()
            files, folders = self._list(here)
            yield from ("/".join([*here, name]) for name in files)
            todo += [[*here, name] for name in reversed(folders) if name not in skipped]

    def _list(self, names: list[str]) -> tuple[list[str], list[str]]:
        """Give the names of the files and folders in a folder, as it is now."""
        files: list[str] = []
        folders: list[str] = []
        with (
            contextlib.suppress(OSError, ToolError),
            self.walk("/".join(names) or ".", links=0) as place,
            os.scandir(place.close_after(place.open(_LIST))) as entries,
        ):
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.is_file(follow_symlinks=False):
                    files.append(entry.name)
        return sorted(files), sorted(folders)

    def walk(self, path: str, *, make_folders: bool = False, links: int = _MAX_LINKS) -> _Walk:
        """Walk to the folder of a path; to be used in a `with`, for as long as the place is used.

        Args:
            path: from the root, or absolute and below it.
            make_folders: whether folders on the way that are missing are made.
            links: how many symbolic links may be on the way.

        Raises:
            ToolError: the path leaves the root, or something on the way is missing.
        """
        return _Walk(self, path, make_folders=make_folders, links=links)

    def names_of(self, path: str, shown: str) -> tuple[bool, list[str]]:
        """Give whether a path begins at the root, and its names.

        Raises:
            ToolError: it is absolute and not below the root.
        """
        if not path.startswith("/"):
            return False, _split(path)
        # Told by whole names, and as written: "/data-old" is not below "/data", nor is "/DATA".
        for root in self._names:
            names, ours = _split(path), _split(str(root))
            if names[: len(ours)] == ours:
                return True, names[len(ours) :]
        raise self.outside(shown)

    def outside(self, path: str) -> ToolError:
        """The error that tells of a way out."""
        return ToolError(
            f"{_short(path)} is outside of the folder {str(self.root)!r}; "
            f"give a path inside of it, such as 'notes.txt'"
        )


class _Walk:
    """A place below a root: the descriptor of a folder, and a name in it that was no link when it was looked at.

    `name` is "." where the path is the root or ends with `..`.
    """

    def __init__(self, workspace: Workspace, path: str, *, make_folders: bool, links: int) -> None:
        self._workspace = workspace
        self._path = path
        self._make_folders = make_folders
        self._links = links
        self._folders: list[int] = []
        self._others = contextlib.ExitStack()
        self.names: list[str] = []
        self.name = "."

    def __enter__(self) -> Self:
        _check_text(self._path)
        try:
            with _told(self._path):
                self._folders.append(os.open(self._workspace.root, _WALK | _SAFE))
                self._go()
        except BaseException:  # nothing may go by and leave descriptors open
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._others.close()
        while self._folders:
            os.close(self._folders.pop())

    def _go(self) -> None:
        todo = self._begin(self._path)
        while todo:
            name = todo.pop()
            if name == "..":
                self._up()
                continue
            link = self._link(name)
            if link is not None:
                self._links -= 1
                if self._links < 0:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                todo += self._begin(link)
            elif not todo:
                self.name = name
            else:
                self._down(name)

    def _begin(self, path: str) -> list[str]:
        """Give the names of a path or of a link's target, the first one last; an absolute one begins at the root."""
        from_root, names = self._workspace.names_of(path, self._path)
        while from_root and self.names:
            self._up()
        return names[::-1]

    def _up(self) -> None:
        if not self.names:
            raise self._workspace.outside(self._path)
        self.names.pop()
        os.close(self._folders.pop())

    def _down(self, name: str) -> None:
        try:
            self._folders.append(self._open(name, _WALK))
        except FileNotFoundError:
            if not self._make_folders:
                raise
            with contextlib.suppress(FileExistsError):  # somebody else was quicker
                os.mkdir(name, dir_fd=self._folders[-1])
            self._folders.append(self._open(name, _WALK))
        self.names.append(name)

    def _link(self, name: str) -> str | None:
        try:
            return os.readlink(name, dir_fd=self._folders[-1])
        except OSError as error:
            if error.errno in {errno.EINVAL, errno.ENOENT}:  # no link, or nothing
                return None
            raise

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, flags | _SAFE, 0o666, dir_fd=self._folders[-1])

    # -- what can be done there --

    def open(self, flags: int) -> int:
        """Open what is there; never a link."""
        return self._open(self.name, flags)

    def close_after(self, descriptor: int) -> int:
        """Close a descriptor when the walk ends; gives it back."""
        self._others.callback(os.close, descriptor)
        return descriptor

    def stat(self) -> os.stat_result:
        """Tell what is there, a link as a link."""
        return os.stat(self.name, dir_fd=self._folders[-1], follow_symlinks=False)

    def check_ordinary(self, path: str) -> os.stat_result:
        """Refuse what is no ordinary file, before it is opened: opening a device may do something.

        Raises:
            ToolError: it is something else.
        """
        found = self.stat()
        _refuse_other_kinds(found.st_mode, path)
        return found

    def read(self, path: str, max_bytes: int) -> bytes:
        """Give the content of the file."""
        too_large = ToolError(f"{_short(path)} is larger than {max_bytes} bytes")
        if self.check_ordinary(path).st_size > max_bytes:
            raise too_large
        descriptor = self.close_after(self.open(_READ))
        _refuse_other_kinds(os.fstat(descriptor).st_mode, path)  # it may be another one by now
        pieces, left = [], max_bytes + 1
        while left and (piece := os.read(descriptor, min(_BLOCK, left))):
            pieces.append(piece)
            left -= len(piece)
        if not left:  # it has grown, or the system does not tell sizes
            raise too_large
        return b"".join(pieces)

    def write(self, path: str, data: bytes, *, overwrite: bool, expected: bytes | None) -> bool:
        """Put a file here; gives whether it is new."""
        try:
            before = self.check_ordinary(path)
        except FileNotFoundError:
            before = None
        if before is not None and not overwrite:
            raise _is_there(path)
        if before is not None and not before.st_mode & 0o222:
            raise ToolError(f"{_short(path)} is read-only")
        if expected is not None:
            self._check_unchanged(path, expected)
        folder = self._folders[-1]
        # Its own name says nothing of the file's, which may be as long as a name can be.
        temporary = f".yiemagent-{secrets.token_hex(8)}.tmp"
        try:
            self._fill(temporary, data, before)
            if before is not None:
                os.rename(temporary, self.name, src_dir_fd=folder, dst_dir_fd=folder)
            else:
                self._put_new(temporary, path, overwrite=overwrite)
        except BaseException:  # whatever it is, nothing half-written may stay
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
        return before is None

    def _check_unchanged(self, path: str, expected: bytes) -> None:
        with contextlib.suppress(ToolError, OSError):  # gone, or larger now
            if self.read(path, len(expected)) == expected:
                return
        raise ToolError(f"{_short(path)} has changed meanwhile; read it again")

    def _fill(self, temporary: str, data: bytes, before: os.stat_result | None) -> None:
        descriptor = self._open(temporary, _CREATE)
        with os.fdopen(descriptor, "wb") as file:
            if before is not None:
                os.fchmod(descriptor, stat.S_IMODE(before.st_mode) & 0o777)
            file.write(data)
            file.flush()
            os.fsync(descriptor)

    def _put_new(self, temporary: str, path: str, *, overwrite: bool) -> None:
        folder = self._folders[-1]
        if not overwrite:
            # A link, since it fails where the name is taken; a file that appeared meanwhile stays.
            try:
                os.link(temporary, self.name, src_dir_fd=folder, dst_dir_fd=folder)
            except FileExistsError as error:
                raise _is_there(path) from error
            os.unlink(temporary, dir_fd=folder)
            return
        os.rename(temporary, self.name, src_dir_fd=folder, dst_dir_fd=folder)


def _split(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in {"", "."}]


def _check_text(path: str) -> None:
    if not path.strip():
        raise ToolError("the path is empty")
    if "\0" in path:
        raise ToolError(f"{_short(path)} holds a null character, which no path does")
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError as error:
        raise ToolError(f"{_short(path)} holds characters that no path does") from error
    if size > _MAX_PATH_BYTES:
        raise ToolError(f"{_short(path)} is longer than a path can be")


@contextlib.contextmanager
def _told(path: str) -> Iterator[None]:
    """Tell what the system says about a path in words for a model."""
    try:
        yield
    except OSError as error:
        swapped = error.errno in {errno.ELOOP, errno.EMLINK}
        reason = "a symbolic link that leads nowhere" if swapped else error.strerror
        raise ToolError(f"{_short(path)}: {reason or error}") from error


_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a symbolic link by now"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def _refuse_other_kinds(mode: int, path: str) -> None:
    if not stat.S_ISREG(mode):
        kind = next((words for test, words in _KINDS if test(mode)), "something else")
        raise ToolError(f"{_short(path)} is {kind}, not a file")


def _is_there(path: str) -> ToolError:
    return ToolError(f"{_short(path)} is there already; say overwrite to replace it")


def _short(path: str) -> str:
    return repr(path if len(path) <= 200 else f"{path[:100]}…{path[-60:]}")
