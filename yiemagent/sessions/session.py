"""`Session`: a conversation that survives, as programs hold it; what an agent does with it is in `agent_side`."""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Callable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self

from yiemagent.messages import AgentMessage, utc_now
from yiemagent.sessions.agent_side import AgentSide
from yiemagent.sessions.bodies import (
    Body,
    BranchSummaryBody,
    CustomBody,
    LabelBody,
    MessageBody,
    ModelChangeBody,
    QueuedKind,
    ThinkingChangeBody,
)
from yiemagent.sessions.conversation import context_of
from yiemagent.sessions.entries import Entry, Header, encode_header
from yiemagent.sessions.log import grow
from yiemagent.sessions.places import begun, checked_fsync, file_of, store_of
from yiemagent.sessions.store import Fsync, MemoryStore
from yiemagent.sessions.tree import Tree

__all__ = ["Session"]


class Session(AgentSide):
    """A conversation kept in a store; made by `create`, `open` and `in_memory`. Any thread may use it.

    What it gives is what was written: a message is there before anybody is told of it. Give it to one agent at a time
    as `session=`; the agent goes on from its messages.
    """

    # -- making and opening --

    @classmethod
    def create(
        cls,
        place: str | os.PathLike[str],
        *,
        name: str | None = None,
        store: Literal["jsonl", "sqlite"] = "jsonl",
        fsync: Fsync = "always",
        clock: Callable[[], datetime] = utc_now,
    ) -> Self:
        """Begin a session.

        Args:
            place: a folder, in which the file gets a name from time and id; or a file, told by its ending: `.jsonl`,
                `.db`, `.sqlite`, `.sqlite3`.
            name: what people call it.
            store: the kind of file in a folder.
            fsync: "always": what must not be lost survives a power failure once anybody is told of it; "batch": once
                its turn is over; "never": when the system writes it. Whatever it is, a killed process loses nothing.
            clock: gives the time of entries.

        Raises:
            SessionError: the file exists, or can't be made.
        """
        header = Header(os.urandom(16).hex(), clock(), name)
        made = begun(file_of(pathlib.Path(place), header, store), header, fsync)
        return cls(made, batch=fsync == "batch", clock=clock)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        create: bool = False,
        read_only: bool = False,
        fsync: Fsync = "always",
        clock: Callable[[], datetime] = utc_now,
    ) -> Self:
        """Open a session to go on with it.

        Args:
            path: the file.
            create: begin one where there is none.
            read_only: only look at it, also while another process writes it.
            fsync: see `create`.
            clock: gives the time of entries.

        Raises:
            SessionError: there is none, it is damaged (the text names the line), or somebody else writes it.
        """
        file = pathlib.Path(path)
        if create and not read_only and not file.exists():
            made = begun(file, Header(os.urandom(16).hex(), clock()), fsync)
            return cls(made, batch=fsync == "batch", clock=clock)
        tree = Tree()
        opened = store_of(file).open(
            file,
            fsync=checked_fsync(fsync),
            read_only=read_only,
            take=functools.partial(grow, tree),
        )
        try:
            return cls(opened, batch=fsync == "batch", clock=clock, tree=tree)
        except BaseException:  # whatever it is, nobody gets the session: the lock must go
            opened.close()
            raise

    @classmethod
    def in_memory(cls, *, name: str | None = None, clock: Callable[[], datetime] = utc_now) -> Self:
        """Begin a session that is gone with the process; for tests, and to branch without a file."""
        return cls(
            MemoryStore(encode_header(Header(os.urandom(16).hex(), clock(), name))), clock=clock
        )

    # -- looking --

    @property
    def header(self) -> Header:
        """Its first line."""
        return self._log.header

    @property
    def path(self) -> pathlib.Path | None:
        """Its file, or None."""
        return self._store.path

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was found when it was opened and is no error: a torn last line that was dropped."""
        return self._store.warnings

    @property
    def leaf_id(self) -> int | None:
        """The entry behind which the conversation goes on; None: it has not begun."""
        return self._log.tree.leaf_id

    @property
    def labels(self) -> Mapping[int, str]:
        """The labels of entries, by id."""
        with self._held():
            return self._log.tree.labels

    @property
    def waiting(self) -> tuple[tuple[QueuedKind, AgentMessage], ...]:
        """The messages that were accepted and entered no run: what they wait for, and the message, oldest first."""
        with self._held():
            return tuple((kind, message) for _, kind, message in self._queued())

    def entries(self) -> list[Entry]:
        """Give all entries that are written, oldest first."""
        with self._held():
            return self._log.all()

    def path_to(self, entry_id: int | None) -> list[Entry]:
        """Give the entries from the root to one, the messages that waited as what they are.

        Raises:
            SessionError: there is no such entry in the tree.
        """
        with self._held():
            return self._log.path(entry_id)

    def messages_at(self, entry_id: int | None) -> tuple[AgentMessage, ...]:
        """Give the conversation as it is at an entry.

        Raises:
            SessionError: there is no such entry in the tree.
        """
        return tuple(context_of(self.path_to(entry_id)))

    def leaves(self) -> list[int]:
        """Give the ids of the entries that end a branch, oldest first."""
        with self._held():
            return self._log.tree.leaves()

    # -- writing --

    def append(self, body: Body) -> int:
        """Write an entry at the leaf, or beside the tree, and give its id.

        Raises:
            SessionError: it is not written; or an agent works on the session.
        """
        with self._held():
            self._check_free("write entries")
            return self._log.write(body)

    def add_message(self, message: AgentMessage) -> int:
        """Write a message at the leaf and give its entry's id; see `append`."""
        with self._held():
            self._check_free("write entries")
            return self._log.write(MessageBody(message))

    def add_custom(self, custom_type: str, data: Any = None) -> int:
        """Write what an application wants to keep at the leaf, and give its entry's id; no model sees it.

        Args:
            custom_type: the application's name for it.
            data: JSON values; what JSON lacks (NaN) becomes null, what is no JSON value its text.
        """
        with self._held():  # it changes no conversation, so it may come while an agent works
            return self._log.write(CustomBody(custom_type, data))

    def note_model(self, model: str) -> None:
        """Write which model is asked from here on, where that is news."""
        self._note(ModelChangeBody(model), lambda body: getattr(body, "model", None))

    def note_thinking(self, level: str) -> None:
        """Write how much the model thinks from here on, where that is news."""
        self._note(ThinkingChangeBody(level), lambda body: getattr(body, "level", None))

    def _note(self, body: Body, said: Callable[[Body], Any]) -> None:
        with self._held():
            if self._latest(type(body), said) != said(body):
                self._log.write(body)

    def _latest(self, kind: type, said: Callable[[Body], Any]) -> Any:
        tree = self._log.tree
        for position in reversed(tree.path(tree.leaf_id)):
            if tree.kind(position) == kind.type:  # type: ignore[attr-defined]  # a class of the kinds
                [entry] = self._log.entries([position])
                return said(entry.body)
        return None

    @property
    def model(self) -> str | None:
        """The model that is asked at the leaf, as `note_model` was told."""
        with self._held():
            model: str | None = self._latest(
                ModelChangeBody, lambda body: getattr(body, "model", None)
            )
            return model

    def label(self, entry_id: int, label: str | None) -> None:
        """Give an entry a name; None takes it away.

        Raises:
            SessionError: there is no such entry.
        """
        with self._held():
            self._log.write(LabelBody(entry_id, label))

    def branch(self, entry_id: int | None, *, summary: str | None = None) -> None:
        """Move the leaf: the conversation goes on behind another entry, and what was behind it stays as a branch.

        Args:
            entry_id: any entry of the tree; None: before the first.
            summary: what the model is told of the branch that is left.

        Raises:
            SessionError: there is no such entry in the tree; or an agent works on the session.
        """
        with self._held():
            self._check_free("move the leaf")
            left = self._log.tree.leaf_id
            self._log.move(entry_id)
            if summary is not None and left is not None:
                self._log.write(BranchSummaryBody(summary, left))

    def fork(
        self,
        place: str | os.PathLike[str],
        *,
        at: int | None = None,
        name: str | None = None,
        fsync: Fsync = "always",
    ) -> Session:
        """Begin a session that is a copy of this one's path to an entry; lines are taken over as they are.

        Args:
            place: a folder or a file, as for `create`.
            at: the entry; None: the leaf.
            name: what people call it; None: as this one.
            fsync: see `create`.

        Raises:
            SessionError: there is no such entry in the tree, or the file exists or can't be made.
        """
        with self._held():
            leaf = self._log.tree.leaf_id if at is None else at
            forked_from = {"session": self.id, "entry": leaf}
            header = Header(os.urandom(16).hex(), utc_now(), name or self.header.name, forked_from)
            lines = self._log.copy(leaf)
        path = file_of(pathlib.Path(place), header, "jsonl")
        return Session(begun(path, header, fsync, lines), batch=fsync == "batch")

    # -- the end --

    def close(self) -> None:
        """Let go of the file; calling it twice does nothing. An agent that works on it can write nothing more."""
        with self._held():
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Session {self.id[:8]} {self.path or 'in memory'}>"
