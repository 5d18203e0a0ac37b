"""Versions of tool files: where a file comes from, what it was before, and how it becomes that again.

A file that `write_tool` wrote ends with two lines that say who wrote it, when, who approved it, and the hash of all
above: so each file carries its own entry, wherever it is copied, and a change that was made behind its back shows. A
version that is replaced is kept, whole, in `.tool_versions/NAME/` beside it. The entries are notes for people, no
signature: whoever can write the file can write them, too.

A file appears at once or not at all: it is written beside its place, flushed to the disk and moved there.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import os
import re
import secrets
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import attrs

from yiemagent.errors import ToolError, ToolNotFound
from yiemagent.record import Record

__all__ = [
    "VERSIONS",
    "Version",
    "check_place",
    "history",
    "marked",
    "replace_file",
    "revert",
    "take_back",
    "write_new_file",
]

VERSIONS = ".tool_versions"

_MARK = re.compile(
    r"# Written by a (?P<author>model|person), (?P<time>\S+); "
    r"(?:not approved by a person|approved: (?P<approval>[^\n]*))\n"
    r"# sha256 of all above: (?P<sha256>[0-9a-f]{64})\n\Z"
)


@attrs.frozen(eq=False, repr=False)
class Version(Record):
    """One version of a tool file.

    Args:
        number: 1 is the oldest; the highest is the one in use, where the file is there.
        path: where it is.
        sha256: the hash of the whole file.
        time: when it was written, in UTC.
        author: "model" where `write_tool` wrote it, else "person".
        approval: who approved it, in words, or None.
        changed: whether it was changed by somebody else since it was written.
        in_use: whether it is the one that is loaded.
    """

    number: int
    path: Path
    sha256: str
    time: datetime
    author: Literal["model", "person"]
    approval: str | None = None
    changed: bool = False
    in_use: bool = False


def marked(text: str, *, author: Literal["model", "person"], approval: str | None = None) -> str:
    """Give the text of a file with the two lines that say where it comes from.

    Args:
        text: the file; ends with a line end.
        author: who wrote it.
        approval: who approved it, in words; None: nobody.
    """
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    words = " ".join(approval.split())[:60] if approval else ""
    approved = f"approved: {words}" if words else "not approved by a person"
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{text}\n# Written by a {author}, {now}; {approved}\n# sha256 of all above: {digest}\n"


# --- writing -----------------------------------------------------------------------------------------------------


def check_place(folder: Path, name: str) -> None:
    """Make sure that a tool file may be written: a plain file or none of that name, in whatever capitals.

    Raises:
        ToolError: where something else is there.
    """
    wanted = f"{name}.py"
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.lower() != wanted.lower():
                continue
            if entry.name != wanted:
                raise ToolError(f"{entry.name} is in {folder} already: too much like {wanted}")
            if not entry.is_file(follow_symlinks=False):
                raise ToolError(f"{wanted} in {folder} is no plain file, and is left alone")
    for place in (folder / VERSIONS, folder / VERSIONS / name):
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            raise ToolError(f"{place} is no folder, and is left alone")


def write_new_file(path: Path, text: str) -> None:
    """Write a file that must not be there yet.

    Raises:
        FileExistsError: it is there; nothing was changed.
        OSError: it can't be written; nothing was changed.
    """
    beside = _written_beside(path, text.encode())
    try:
        _appear(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    _flush_folder(path.parent)


def replace_file(path: Path, content: bytes) -> Version:
    """Put a new version of a file in its place, and keep the one that was there.

    Returns:
        The version that is kept.

    Raises:
        OSError: it can't be written; the file is as it was.
    """
    kept = _keep(path)
    beside = _written_beside(path, content)
    try:
        beside.chmod(stat.S_IMODE(path.stat().st_mode))
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    _flush_folder(path.parent)
    return kept


def take_back(path: Path, kept: Version | None) -> None:
    """Undo the writing of a file: put back what was kept for it; None: there was no file before."""
    if kept is None:
        path.unlink(missing_ok=True)
    else:
        kept.path.replace(path)
        with contextlib.suppress(OSError):  # other versions are kept there
            kept.path.parent.rmdir()
            kept.path.parent.parent.rmdir()
    _flush_folder(path.parent)


def _keep(path: Path) -> Version:
    folder = path.parent / VERSIONS / path.stem
    folder.mkdir(parents=True, exist_ok=True)
    kept = _kept(path.parent, path.stem)
    written = path.stat()
    beside = _written_beside(folder / path.name, path.read_bytes())
    try:
        os.utime(beside, ns=(written.st_atime_ns, written.st_mtime_ns))
        for number in itertools.count(kept[-1].number + 1 if kept else 1):
            with contextlib.suppress(FileExistsError):  # another process has just kept one
                _appear(beside, folder / f"{number:04d}.py")
                break
    finally:
        beside.unlink(missing_ok=True)
    _flush_folder(folder)
    return _version(folder / f"{number:04d}.py", number)


def _appear(beside: Path, path: Path) -> None:
    """Have a written file appear in a place that must be free."""
    try:
        os.link(beside, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links: take the place first
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        beside.replace(path)


def _written_beside(path: Path, content: bytes) -> Path:
    """Write content to a new file beside `path`, under a name that nobody loads, down to the disk."""
    beside = path.with_name(f".{path.stem}.{secrets.token_hex(8)}.tmp")
    descriptor = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        with io.FileIO(descriptor, "w") as file:
            rest = memoryview(content)
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(descriptor)
    except BaseException:  # whatever it is, nothing half may stay
        beside.unlink(missing_ok=True)
        raise
    return beside


def _flush_folder(folder: Path) -> None:
    """Have the names in a folder written to the disk, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# --- looking back --------------------------------------------------------------------------------------------------


def history(folder: Path, name: str) -> tuple[Version, ...]:
    """Give the versions of a tool file, oldest first; the last is in use, unless the file is gone.

    Raises:
        ToolNotFound: there is no such file, and never was.
    """
    versions = _kept(folder, name)
    path = folder / f"{name}.py"
    if path.is_file():
        number = versions[-1].number + 1 if versions else 1
        versions.append(attrs.evolve(_version(path, number), in_use=True))
    if not versions:
        raise ToolNotFound(f"there is no tool file {name!r} in {folder}")
    return tuple(versions)


def revert(folder: Path, name: str, number: int | None = None) -> Version:
    """Put an earlier version back in its place; the one that was there is kept.

    Args:
        folder: where the tool file is.
        name: the tool's.
        number: which version; None: the latest that differs from the one in use.

    Returns:
        The version that is in use now.

    Raises:
        ToolNotFound: there is no such version.
        OSError: it can't be written; the file is as it was.
    """
    check_place(folder, name)
    versions = history(folder, name)
    now = versions[-1] if versions[-1].in_use else None
    if number is None:
        chosen = next(
            (v for v in reversed(versions) if now is None or v.sha256 != now.sha256), None
        )
    else:
        chosen = next((v for v in versions if v.number == number and not v.in_use), None)
    if chosen is None:
        raise ToolNotFound(_no_version(name, number, versions))
    content = chosen.path.read_bytes()
    path = folder / f"{name}.py"
    if now is None:
        write_new_file(path, content.decode())
    else:
        replace_file(path, content)
    return history(folder, name)[-1]


def _no_version(name: str, number: int | None, versions: tuple[Version, ...]) -> str:
    """Say that there is no such version to go back to, and which there are."""
    if number is None:
        return f"{name!r} has no earlier version"
    if any(version.number == number and version.in_use for version in versions):
        return f"version {number} of {name!r} is the one in use"
    others = ", ".join(str(version.number) for version in versions if not version.in_use)
    return f"{name!r} has no version {number} to go back to; it has: {others or 'no earlier one'}"


def _kept(folder: Path, name: str) -> list[Version]:
    paths = (folder / VERSIONS / name).glob("*.py")
    found = [_version(p, int(p.stem)) for p in paths if p.stem.isdecimal() and p.is_file()]
    return sorted(found, key=lambda version: version.number)


def _version(path: Path, number: int) -> Version:
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    mark = _MARK.search(content.decode("utf-8", "replace").replace("\r\n", "\n"))
    if mark is None:
        # Where a model's versions are kept, a file without its lines was written over by somebody else.
        return Version(number, path, digest, written, "person")
    above = content.decode("utf-8", "replace").replace("\r\n", "\n")[: mark.start()]
    fits = hashlib.sha256(above.removesuffix("\n").encode()).hexdigest() == mark["sha256"]
    with contextlib.suppress(ValueError):
        written = datetime.fromisoformat(mark["time"]).astimezone(UTC) if fits else written
    author: Literal["model", "person"] = "model" if mark["author"] == "model" else "person"
    return Version(
        number, path, digest, written, author, mark["approval"] if fits else None, not fits
    )
