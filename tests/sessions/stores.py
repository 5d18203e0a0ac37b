"""What tests of stores share: how each store is made, opened and told by its file."""

from __future__ import annotations

import pathlib
import sqlite3
from typing import Any

import attrs
import pytest

from yiemagent.sessions import Session
from yiemagent.sessions.jsonl import JsonlStore
from yiemagent.sessions.sqlite import SqliteStore

HEADER = '{"type":"session","version":1,"id":"a","time":"2026-01-31T12:00:00+00:00"}'


@attrs.frozen
class Kind:
    """A store that keeps a file."""

    name: str
    store: Any

    def create(self, folder: pathlib.Path, header: str = HEADER, **options: Any) -> Any:
        """Make a session in a folder."""
        return self.store.create(folder / self.name, header, **options)

    def open(self, folder: pathlib.Path, **options: Any) -> Any:
        """Open it."""
        return self.store.open(folder / self.name, **options)

    def filled(self, folder: pathlib.Path, lines: list[str]) -> pathlib.Path:
        """Make a session with lines, close it, and give its file."""
        store = self.create(folder, fsync="never")
        for line in lines:
            store.append(line)
        store.close()
        return folder / self.name


JSONL = Kind("chat.jsonl", JsonlStore)
SQLITE = Kind("chat.db", SqliteStore)
FILES = [JSONL.name, SQLITE.name]

files = pytest.mark.parametrize("name", FILES)


def new_session(name: str, folder: pathlib.Path) -> Session:
    """Begin a session over the store of a file of this name; "memory": over none."""
    return Session.in_memory() if name == "memory" else Session.create(folder / name)


def sql(path: pathlib.Path, statement: str) -> None:
    """Change a database behind its store's back."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()
