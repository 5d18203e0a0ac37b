"""`Session`: a conversation that survives, as programs hold it."""

from __future__ import annotations

import functools
import os
import pathlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self

from yiemagent.errors import ConfigurationError, SessionError
from yiemagent.events import (
    AgentEndEvent,
    AgentStartEvent,
    CompactionEndEvent,
    Event,
    TurnEndEvent,
)
from yiemagent.messages import AgentMessage, ToolCall, utc_now
from yiemagent.sessions.bodies import (
    Body,
    BranchSummaryBody,
    CustomBody,
    DeliveredBody,
    LabelBody,
    MessageBody,
    ModelChangeBody,
    PartialBody,
    QueuedBody,
    QueuedKind,
    ThinkingChangeBody,
    ToolCallStartedBody,
    WithdrawnBody,
)
from yiemagent.sessions.conversation import context_of, is_unfinished
from yiemagent.sessions.entries import Entry, Header, encode_header
from yiemagent.sessions.log import Log, grow
from yiemagent.sessions.places import checked_fsync, file_of, store_of
from yiemagent.sessions.recording import Recording
from yiemagent.sessions.store import Fsync, MemoryStore, Store
from yiemagent.sessions.tree import Tree

__all__ = ["Session"]

_SYNCED = frozenset({TurnEndEvent, AgentEndEvent})  # what makes a batch safe from a power failure


class Session:
    """A conversation kept in a store; made by `create`, `open` and `in_memory`. Any thread may use it.

    What it gives is what was written: a message is there before anybody is told of it. Give it to one agent at a time
    as `session=`; the agent goes on from its messages.
    """

    def __init__(
        self,
        store: Store,
        *,
        batch: bool = False,
        clock: Callable[[], datetime] = utc_now,
        tree: Tree | None = None,
    ) -> None:
        # Guards the log, what waits and whose the session is; held while one entry is written. Nobody's code runs
        # while it is held.
        self._lock = threading.Lock()
        self._store = store
        self._log = Log(store, clock, tree)
        self._recording = Recording()
        self._batch = batch
        self._owner: str | None = None
        # Messages that wait, as objects, with the entries that hold them: a run tells of them by the object.
        self._waiting: dict[int, deque[tuple[AgentMessage, int]]] = {}
        self._pid = os.getpid()

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
        path = file_of(pathlib.Path(place), header, store)
        made = store_of(path).create(path, encode_header(header), fsync=checked_fsync(fsync))
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
        if create and not file.exists():
            return cls.create(file, fsync=fsync, clock=clock)
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
    def id(self) -> str:
        """The session's own id, random."""
        return self._log.header.id

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
    def messages(self) -> tuple[AgentMessage, ...]:
        """The conversation as the model sees it, oldest first: the path to the leaf, compacted parts as summaries."""
        with self._held():
            return tuple(context_of(self._log.path(self._log.tree.leaf_id)))

    @property
    def waiting(self) -> tuple[tuple[QueuedKind, AgentMessage], ...]:
        """The messages that were accepted and entered no run: what they wait for, and the message, oldest first."""
        with self._held():
            return tuple((kind, message) for _, kind, message in self._queued())

    @property
    def interrupted(self) -> bool:
        """Whether the conversation ends in the middle of a run: the process that had it was killed."""
        with self._held():
            return is_unfinished(self._log.tail())

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
        """Write what an application wants to keep at the leaf, and give its entry's id; no model sees it."""
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
        store = store_of(path).create(
            path, encode_header(header), lines, fsync=checked_fsync(fsync)
        )
        return Session(store, batch=fsync == "batch")

    def _held(self) -> threading.Lock:
        """Give the lock to hold; not in a forked child, whose copy of it may never be let go."""
        if self._pid != os.getpid():
            raise SessionError(
                "the session belongs to the process that this one was forked from; open it here"
            )
        return self._lock

    def _check_free(self, what: str) -> None:
        if self._owner is not None:
            raise SessionError(
                f"agent {self._owner!r} works on the session: stop it before you {what}"
            )

    # -- what an agent does --

    def attach(self, owner: str) -> None:
        """Begin to work on the session, alone.

        Raises:
            ConfigurationError: another agent works on it.
        """
        with self._held():
            if self._owner is not None:
                raise ConfigurationError(
                    f"agent {self._owner!r} works on this session; an agent needs one of its own, such as a fork"
                )
            self._owner = owner

    def detach(self) -> None:
        """End working on it; another agent may begin. Takes no lock: finalizers call it in the middle of anything."""
        self._owner = None

    def add_messages(self, messages: Iterable[AgentMessage]) -> None:
        """Write the messages that an agent begins with.

        Raises:
            SessionError: they are not all written.
        """
        with self._held():
            for message in messages:
                self._log.write(MessageBody(message))

    def restored(self) -> Sequence[tuple[QueuedKind, AgentMessage]]:
        """Give the messages that wait, for the agent that goes on with them."""
        with self._held():
            self._waiting.clear()
            found = []
            for entry_id, kind, message in self._queued():
                self._waits(message, entry_id)
                found.append((kind, message))
            return found

    def record(self, event: Event) -> None:
        """Write what an event of a run says, before anybody else is told of it.

        Raises:
            SessionError: it is not written, and waits; it goes before whatever is written next.
        """
        kind = event.__class__
        if kind is TurnEndEvent and not self._batch:
            return
        with self._lock:  # a forked child has no run of its parent's, and so records nothing here
            body = self._recording.take(event)
            if body is None:
                if kind is AgentStartEvent:
                    self._log.flush()
                elif isinstance(event, CompactionEndEvent) and event.summary is not None:
                    self._log.write_compaction(event.summary, event.kept, event.details)
            elif isinstance(body, PartialBody):
                self._log.write_partial(body)
            else:
                self._log.write_later(self._as_delivered(body) if self._waiting else body)
            if self._batch and kind in _SYNCED:
                self._store.sync()

    def record_call(self, call: ToolCall) -> None:
        """Write that a tool call begins, before it does: from here on it may have had its effect.

        Raises:
            SessionError: it is not written, and the call must not begin.
        """
        with self._lock:
            self._log.write(ToolCallStartedBody(call.id, call.name))

    def accept(self, kind: QueuedKind, message: AgentMessage) -> None:
        """Write that a message was accepted and waits.

        Raises:
            SessionError: it is not written, and so was not accepted.
        """
        with self._held():
            self._waits(message, self._log.write(QueuedBody(kind, message)))

    def hand_back(self, messages: Iterable[AgentMessage]) -> None:
        """Write that messages wait no more: whoever sent them has them again.

        Raises:
            SessionError: it is not written; they will be restored.
        """
        with self._held():
            ids = [
                entry_id for message in messages if (entry_id := self._taken(message)) is not None
            ]
            if ids:
                self._log.write(WithdrawnBody(tuple(ids)))

    def reopen(self, leave_open: Callable[[ToolCall], bool]) -> tuple[AgentMessage, ...]:
        """Give the messages with the calls left open that had no result when the process was killed and may run now.

        Args:
            leave_open: called with each such call, begun or not; True leaves it without a result.
        """
        with self._held():
            if self._log.recovering:
                self._log.recover(leave_open)
            return tuple(context_of(self._log.path(self._log.tree.leaf_id)))

    def _queued(self) -> list[tuple[int, QueuedKind, AgentMessage]]:
        waiting = self._log.tree.waiting
        return [(id_, kind, self._log.queued(id_).message) for id_, kind in waiting.items()]

    def _waits(self, message: AgentMessage, entry_id: int) -> None:
        self._waiting.setdefault(id(message), deque()).append((message, entry_id))

    def _taken(self, message: AgentMessage) -> int | None:
        places = self._waiting.get(id(message))
        if places is None:
            return None
        _, entry_id = places.popleft()
        if not places:
            del self._waiting[id(message)]
        return entry_id

    def _as_delivered(self, body: Body) -> Body:
        """Give a message that waited as what it is now: delivered."""
        if isinstance(body, MessageBody):
            entry_id = self._taken(body.message)
            if entry_id is not None:
                return DeliveredBody(entry_id)
        return body

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
