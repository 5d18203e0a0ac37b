"""A session's entries in their store: writing one behind the other, and reading paths. Used by one thread at a time.

What could not be written, and what closes an interrupted run, waits in a backlog that goes before anything else.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import attrs

from yiemagent.errors import InvalidJson, SessionError
from yiemagent.messages import CompactionSummaryMessage, ToolCall, ToolResultMessage, utc_now
from yiemagent.sessions.bodies import (
    Body,
    CompactionBody,
    DeliveredBody,
    LabelBody,
    LeafBody,
    MessageBody,
    PartialBody,
    QueuedBody,
)
from yiemagent.sessions.entries import Entry, Header, decode, decode_header, encode, encode_message
from yiemagent.sessions.recovery import closings
from yiemagent.sessions.store import Store
from yiemagent.sessions.tree import Tree

__all__ = ["Log", "grow"]

# Kinds that may be lost with the power: what matters in them is told by others, too.
_PASSING = frozenset({"partial", "run_end", "model_change", "thinking_change", "label"})

# How the lines begin that say nothing of other entries; they need not be read to know where they stand.
_BARE = re.compile(
    r'\{"id":(\d+),"parent":(\d+|null),"time":"[^"]*","type":"'
    r'(message|tool_call_started|run_end|model_change|thinking_change|custom|compaction|branch_summary)"'
)


def grow(tree: Tree, line: str) -> None:
    """Take the entry of a line into the tree.

    Raises:
        InvalidJson: it is none, or can't stand there.
    """
    bare = _BARE.match(line)
    if bare is None:
        tree.add(decode(line))
    else:
        number, parent, kind = bare.groups()
        tree.add_bare(int(number), None if parent == "null" else int(parent), kind)


# What waits to be written, oldest first, and the id under which the first of it began to be written (None: it did not
# begin). Replaced whole, so that an interrupt never leaves half of it.
_Backlog: TypeAlias = tuple[tuple[Body, ...], int | None]
_EMPTY: _Backlog = ((), None)


class Log:
    """The entries of a session.

    Args:
        store: keeps them.
        clock: gives the time of new ones.
        tree: of what is in the store; None: it is read.

    Raises:
        SessionError: the store holds something that is no session, or an entry that can't stand where it stands.
    """

    def __init__(
        self,
        store: Store,
        clock: Callable[[], datetime] = utc_now,
        tree: Tree | None = None,
    ) -> None:
        self.store = store
        self._tree = tree or Tree()
        self._clock = clock
        self._backlog: _Backlog = _EMPTY
        self._unsure = tree is None  # whether the tree may not be that of what is in the store
        self.recovering = (
            False  # whether the backlog is what closes an interrupted run, and nothing else
        )
        try:
            self.header: Header = decode_header(store.header)
        except InvalidJson as error:
            raise SessionError(f"{store.place(-1)}: {error}") from error
        self.recover()

    @property
    def tree(self) -> Tree:
        """Where the entries stand."""
        if self._unsure:
            self._read_tree()
        return self._tree

    def _read_tree(self) -> None:
        """Make the tree of what is in the store."""
        tree = Tree()
        for line in self.store.lines():
            with self._placed(len(tree)):
                grow(tree, line)
        self._tree, self._unsure = tree, False

    @contextlib.contextmanager
    def _placed(self, position: int) -> Iterator[None]:
        try:
            yield
        except InvalidJson as error:
            raise SessionError(f"{self.store.place(position)}: {error}") from error

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Have an error about what a caller asked for name the session."""
        try:
            yield
        except InvalidJson as error:
            raise SessionError(f"{self.store.path or 'the session'}: {error}") from error

    # -- writing --

    def write(self, body: Body) -> int:
        """Write an entry at the leaf, or beside the tree, and give its id; what waits goes before one in the tree.

        Raises:
            SessionError: it is not written.
        """
        if self._backlog[0]:
            if body.is_side:
                self._settle()
            else:
                self.flush()
        elif not body.is_side:
            self.recovering = False
        return self._write(body)

    def write_later(self, body: Body) -> None:
        """Write an entry behind those that wait; where that fails it waits, too.

        Raises:
            SessionError: it waits.
        """
        bodies, begun = self._backlog
        if bodies:
            self._backlog = ((*bodies, body), begun)
            self.flush()
            return
        # What `flush` would do with it alone: nearly every entry comes through here.
        self.recovering = False
        self._backlog = ((body,), self.tree.next_id)
        self._write(body)
        self._backlog = _EMPTY

    def flush(self) -> None:
        """Write what waits.

        Raises:
            SessionError: it waits on.
        """
        self.recovering = False
        self._settle()
        while bodies := self._backlog[0]:
            self._backlog = (bodies, self.tree.next_id)
            self._write(bodies[0])
            self._backlog = (bodies[1:], None)

    def _settle(self) -> None:
        """Find out whether what was being written when an interrupt came, or a write failed, is there."""
        bodies, begun = self._backlog
        if begun is not None:
            self._backlog = (bodies[1:] if self.tree.next_id > begun else bodies, None)

    def _write(self, body: Body) -> int:
        """Write an entry and give its id."""
        tree, store = self.tree, self.store
        number, parent, now = tree.next_id, tree.leaf_id, self._clock()
        entry: Entry | None = None
        try:
            if isinstance(body, MessageBody):
                line = encode_message(number, parent, now, body.message)
            else:
                entry = Entry(number, None if body.is_side else parent, now, body)
                line = encode(entry)
                tree.check(entry)
        except InvalidJson as error:
            raise SessionError(f"{store.path or 'the session'}: {error}") from error
        self._unsure = True  # an interrupt may come between any two of the following steps
        try:
            store.append(line, durable=body.type not in _PASSING)
        except SessionError:
            self._unsure = False
            raise
        if entry is None:
            tree.add_bare(number, parent, "message")
        else:
            tree.add(entry)
        self._unsure = False
        return number

    def write_compaction(self, summary: CompactionSummaryMessage, kept: int, details: Any) -> None:
        """Write that a summary stands for all but the last `kept` messages.

        Raises:
            SessionError: it is not written.
        """
        self.flush()
        first_kept = self.tree.first_of_last(kept)
        self._write(CompactionBody(summary.summary, first_kept, summary.tokens_before, details))

    def write_partial(self, partial: PartialBody) -> None:
        """Write what came of an answer, unless messages wait that it would have to follow.

        Raises:
            SessionError: it is not written.
        """
        if not self._backlog[0]:
            self._write(attrs.evolve(partial, after_id=self.tree.leaf_id))

    # -- reading --

    def entries(self, positions: Sequence[int]) -> Iterator[Entry]:
        """Give the entries at positions, which count up; messages that waited and were delivered as what they are.

        Raises:
            SessionError: one of them can't be read.
        """
        wanted = iter(positions)
        position = next(wanted, None)
        if position is None:
            return
        for here, line in enumerate(self.store.lines(position, positions[-1] + 1), position):
            if here == position:
                yield self._delivered(self._decoded(line, here))
                position = next(wanted, None)

    def _delivered(self, entry: Entry) -> Entry:
        if not isinstance(entry.body, DeliveredBody):
            return entry
        return attrs.evolve(entry, body=MessageBody(self.queued(entry.body.queued_id).message))

    def _decoded(self, line: str, position: int) -> Entry:
        with self._placed(position):
            return decode(line)

    def raw(self, position: int) -> str:
        """Give the line at a position as it was written."""
        return next(self.store.lines(position, position + 1))

    def entry(self, entry_id: int) -> Entry:
        """Give the entry of an id as it was written.

        Raises:
            SessionError: there is none, or it can't be read.
        """
        with self._named():
            position = self.tree.position(entry_id)
        return self._decoded(self.raw(position), position)

    def queued(self, entry_id: int) -> QueuedBody:
        """Give the message that an entry holds waiting.

        Raises:
            SessionError: it can't be read.
        """
        body = self.entry(entry_id).body
        assert isinstance(body, QueuedBody)  # the tree lets nothing say otherwise
        return body

    def path(self, leaf_id: int | None) -> list[Entry]:
        """Give the entries from the root to `leaf_id`; where that is the leaf, those that wait follow.

        Raises:
            SessionError: there is no such entry in the tree, or one can't be read.
        """
        self._settle()
        with self._named():
            positions = self.tree.path(leaf_id)
        found = list(self.entries(positions))
        if leaf_id == self.tree.leaf_id:
            found += self._waiting()
        return found

    def _waiting(self) -> list[Entry]:
        """Give what waits as the entries that it will be."""
        found: list[Entry] = []
        parent, number = self.tree.leaf_id, self.tree.next_id
        for body in self._backlog[0]:
            entry = Entry(number, parent, self._clock(), body)
            found.append(self._delivered(entry))
            parent, number = number, number + 1
        return found

    def all(self) -> list[Entry]:
        """Give all entries as they were written, oldest first."""
        return [self._decoded(line, place) for place, line in enumerate(self.store.lines())]

    def copy(self, leaf_id: int | None) -> list[str]:
        """Give the lines that the path to an entry needs elsewhere: its own, the messages that waited, its labels.

        Behind the leaf, what could not be written here follows, so that a full disk or a file that vanished keeps it
        from nobody.

        Raises:
            SessionError: there is no such entry in the tree, or one can't be read.
        """
        self._settle()
        tree = self.tree
        with self._named():
            wanted = set(tree.path(leaf_id))
        ids = {tree.id_at(position) for position in wanted}
        if leaf_id == tree.leaf_id:
            wanted.update(tree.partials(leaf_id))
        lines = dict(enumerate(self.store.lines()))
        for position, line in lines.items():
            if tree.kind(position) not in {"delivered", "label"}:
                continue
            body = self._decoded(line, position).body
            if isinstance(body, DeliveredBody) and position in wanted:
                wanted.add(tree.position(body.queued_id))
            elif isinstance(body, LabelBody) and body.target_id in ids:
                wanted.add(position)
        unwritten = (
            () if self.recovering or leaf_id != tree.leaf_id else map(encode, self._waiting())
        )
        return [*(lines[position] for position in sorted(wanted)), *unwritten]

    # -- recovery --

    def move(self, leaf_id: int | None, mark: Body | None = None) -> None:
        """Move the leaf, and have what is open there wait to be closed.

        Args:
            leaf_id: the new leaf; None: before the first entry.
            mark: written behind it, before what is open there is worked out.

        Raises:
            SessionError: there is no such entry in the tree, or it is not written.
        """
        if not self.recovering:
            self.flush()
        self._write(LeafBody(leaf_id))
        if mark is not None:
            self._write(mark)
        self.recover()

    def recover(self, leave_open: Callable[[ToolCall], bool] = lambda _call: False) -> None:
        """Have what closes the run that was interrupted at the leaf wait to be written."""
        self._backlog = _EMPTY  # what closed it before is worked out anew
        positions = self.tree.partials(self.tree.leaf_id)
        partial = [
            event
            for entry in self.entries(positions)
            if isinstance(entry.body, PartialBody)
            for event in entry.body.events
        ]
        self._backlog = (tuple(closings(self.tail(), partial, leave_open)), None)
        self.recovering = True

    def tail(self) -> list[Entry]:
        """Give the end of the path to the leaf: from its last message that is no tool's result."""
        self._settle()
        found: list[Entry] = []
        for position in reversed(self.tree.path(self.tree.leaf_id)):
            [entry] = self.entries([position])
            found.append(entry)
            body = entry.body
            if isinstance(body, MessageBody) and not isinstance(body.message, ToolResultMessage):
                break
        return [*reversed(found), *self._waiting()]
