"""Where sessions are kept: which store a file has, and which name a new one gets."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable
from typing import Any

from yiemagent.errors import ConfigurationError
from yiemagent.sessions.entries import Header, encode_header
from yiemagent.sessions.jsonl import JsonlStore
from yiemagent.sessions.store import Fsync

__all__ = ["SUFFIXES", "begun", "checked_fsync", "file_of", "store_of"]

SUFFIXES = {".jsonl": "jsonl", ".db": "sqlite", ".sqlite": "sqlite", ".sqlite3": "sqlite"}


def file_of(place: pathlib.Path, header: Header, store: str) -> pathlib.Path:
    """Give the file of a new session: a name from time and id in a folder, or what was given.

    Raises:
        ConfigurationError: there is no such kind of store.
    """
    if place.suffix in SUFFIXES and not place.is_dir():
        return place
    if store not in SUFFIXES.values():
        raise ConfigurationError(f"store must be 'jsonl' or 'sqlite', not {store!r}")
    suffix = ".jsonl" if store == "jsonl" else ".db"
    return place / f"{header.time:%Y%m%d-%H%M%S}-{header.id[:8]}{suffix}"


def store_of(path: pathlib.Path) -> Any:
    """Give the store of a file, told by its ending; anything but a database is JSON lines."""
    if SUFFIXES.get(path.suffix) != "sqlite":
        return JsonlStore
    from yiemagent.sessions.sqlite import SqliteStore  # loads with the first database

    return SqliteStore


def begun(path: pathlib.Path, header: Header, fsync: Fsync, lines: Iterable[str] = ()) -> Any:
    """Begin a session in a file, and give its store; where the path is a link to nothing yet, at its end.

    Raises:
        SessionError: there is a file of this name already, or none can be made.
    """
    if path.is_symlink() and not path.exists():
        path = pathlib.Path(os.path.realpath(path))
    return store_of(path).create(path, encode_header(header), lines, fsync=checked_fsync(fsync))


def checked_fsync(fsync: Fsync) -> Fsync:
    """Give what was asked for where it is one of the three.

    Raises:
        ConfigurationError: it is not.
    """
    if fsync not in {"always", "batch", "never"}:
        raise ConfigurationError(f"fsync must be 'always', 'batch' or 'never', not {fsync!r}")
    return fsync
