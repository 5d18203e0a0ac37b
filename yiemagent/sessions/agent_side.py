"""A session as an agent works on it: whose it is, what is recorded of runs, and which messages wait.

It fulfils what the core asks of a session (`yiemagent.journal.Session`); what programs do with one is in `session`.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

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
    DeliveredBody,
    MessageBody,
    PartialBody,
    QueuedBody,
    QueuedKind,
    ToolCallStartedBody,
    WithdrawnBody,
)
from yiemagent.sessions.conversation import context_of, is_unfinished
from yiemagent.sessions.log import Log
from yiemagent.sessions.recording import Recording
from yiemagent.sessions.store import Store
from yiemagent.sessions.tree import Tree

__all__ = ["AgentSide"]

_SYNCED = frozenset({TurnEndEvent, AgentEndEvent})  # what makes a batch safe from a power failure


class AgentSide:
    """What an agent does with a session. Any thread may call it; one agent works on it at a time.

    Args:
        store: keeps its entries.
        batch: whether what was written is made safe from a power failure at the end of each turn only.
        clock: gives the time of entries.
        ticks: seconds that never go back, for what is written after a while.
        tree: of what is in the store; None: it is read.

    Raises:
        SessionError: the store holds something that is no session.
    """

    def __init__(
        self,
        store: Store,
        *,
        batch: bool = False,
        clock: Callable[[], datetime] = utc_now,
        ticks: Callable[[], float] = time.monotonic,
        tree: Tree | None = None,
    ) -> None:
        # Guards the log, what waits and whose the session is; held while one entry is written. Nobody's code runs
        # while it is held.
        self._lock = threading.Lock()
        self._store = store
        self._log = Log(store, clock, tree)
        self._recording = Recording(ticks)
        self._batch = batch
        self._owner: str | None = None
        # Messages that wait, as objects, with the entries that hold them: a run tells of them by the object.
        self._waiting: dict[int, deque[tuple[AgentMessage, int]]] = {}
        self._pid = os.getpid()

    @property
    def id(self) -> str:
        """The session's own id, random."""
        return self._log.header.id

    @property
    def messages(self) -> tuple[AgentMessage, ...]:
        """The conversation as the model sees it, oldest first: the path to the leaf, compacted parts as summaries."""
        with self._held():
            return tuple(context_of(self._log.path(self._log.tree.leaf_id)))

    @property
    def interrupted(self) -> bool:
        """Whether the conversation ends in the middle of a run: its process was killed, or (`read_only`) is at work."""
        with self._held():
            return is_unfinished(self._log.tail())

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
