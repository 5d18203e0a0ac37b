"""The tree that entries form: paths, the leaf, labels, and which messages still wait. Pure.

It holds numbers only, some forty bytes for each entry, so that a session of a hundred thousand entries opens at once;
what the entries say stays in the store.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping

from yiemagent.errors import InvalidJson
from yiemagent.sessions.bodies import (
    DeliveredBody,
    LabelBody,
    LeafBody,
    PartialBody,
    QueuedBody,
    QueuedKind,
    WithdrawnBody,
)
from yiemagent.sessions.entries import Entry

__all__ = ["Tree"]

_MOST = 2**63 - 2  # the greatest id that an array holds, and one that may follow it
_ROOT, _SIDE = -1, -2  # in place of a parent's position
_MESSAGES = frozenset(
    {"message", "delivered", "branch_summary"}
)  # kinds that are messages to the model


class Tree:
    """Where each entry stands; it grows by `add`, one entry after another, as they stand in the file.

    An entry has a position (0, 1, 2 … in the file) and an id, which counts up but may leave some out.
    """

    def __init__(self) -> None:
        self.next_id = 1  # the id of the next entry
        self.leaf_id: int | None = (
            None  # what the conversation goes on behind; None: it has not begun
        )
        self._ids = array("q")
        self._parents = array("q")  # positions
        self._kinds = array("H")
        self._kind_names: list[str] = []
        self._kind_numbers: dict[str, int] = {}
        self._leaf = _ROOT
        self._labels: dict[int, str] = {}
        self._waiting: dict[int, QueuedKind] = {}
        self._partials: dict[
            int, list[int]
        ] = {}  # positions of partials, by that of what they follow

    # -- growing --

    def add(self, entry: Entry) -> None:
        """Take in the entry that follows all others.

        Raises:
            InvalidJson: where it can't stand there: its id does not count up, or it names an entry that is not there.
        """
        body = entry.body
        self.check(entry)
        self.add_bare(entry.id, entry.parent_id, body.type, is_side=body.is_side)
        self._note(entry)

    def check(self, entry: Entry) -> None:
        """See that what an entry says of others is so.

        Raises:
            InvalidJson: it names an entry that is not there.
        """
        match entry.body:
            case LabelBody(target, _):
                self._position(target, "target")
            case DeliveredBody(queued):
                if self.kind(self._position(queued, "queued")) != QueuedBody.type:
                    raise InvalidJson(f"queued: entry {queued} holds no message that waits")
            case LeafBody(place) | PartialBody(place, _) if place is not None:
                self._check_in_tree(place)
            case _:
                pass

    def add_bare(
        self, entry_id: int, parent_id: int | None, kind: str, *, is_side: bool = False
    ) -> None:
        """Take in an entry of a kind that says nothing of others; what `add` does for it, without reading it."""
        if entry_id < self.next_id:
            raise InvalidJson(
                f"id: {entry_id} does not count up; {self.next_id} is the least it may be"
            )
        if entry_id > _MOST:
            raise InvalidJson(f"id: {entry_id} is more than {_MOST}")
        number = self._kind_numbers.get(kind)
        if number is None:
            number = self._kind_numbers[kind] = len(self._kind_names)
            self._kind_names.append(kind)
        if is_side:
            self._parents.append(_SIDE)
        else:
            # Nearly every entry follows the leaf.
            parent = self._leaf if parent_id == self.leaf_id else self._place(parent_id)
            self._parents.append(parent)
            self._leaf, self.leaf_id = len(self._ids), entry_id
            if self._partials and kind in {"message", "delivered"}:
                self._partials.pop(parent, None)
        self._ids.append(entry_id)
        self._kinds.append(number)
        self.next_id = entry_id + 1

    def _note(self, entry: Entry) -> None:
        match entry.body:
            case LeafBody(target):
                self._leaf, self.leaf_id = self._place(target), target
            case LabelBody(target, label):
                self._labels.pop(target, None)
                if label is not None:
                    self._labels[target] = label
            case QueuedBody(kind, _):
                self._waiting[entry.id] = kind
            case DeliveredBody(queued):
                self._waiting.pop(queued, None)
            case WithdrawnBody(queued_ids):
                for queued in queued_ids:
                    self._waiting.pop(queued, None)
            case PartialBody(after, _):
                self._partials.setdefault(self._place(after), []).append(len(self._ids) - 1)
            case _:
                pass

    # -- looking --

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def labels(self) -> Mapping[int, str]:
        """The names of entries, by id."""
        return dict(self._labels)

    @property
    def waiting(self) -> Mapping[int, QueuedKind]:
        """The messages that were accepted and are neither delivered nor withdrawn: kind by id, oldest first."""
        return dict(self._waiting)

    def partials(self, leaf_id: int | None) -> list[int]:
        """Give the positions of what came of an answer behind `leaf_id` that never became whole."""
        return list(self._partials.get(self._place(leaf_id), ()))

    def kind(self, position: int) -> str:
        """The kind of the entry at a position."""
        return self._kind_names[self._kinds[position]]

    def id_at(self, position: int) -> int:
        """The id of the entry at a position."""
        return self._ids[position]

    def parent_id(self, entry_id: int) -> int | None:
        """The entry before it in the conversation; None at the root and beside the tree."""
        parent = self._parents[self._position(entry_id, "id")]
        return None if parent < 0 else self._ids[parent]

    def position(self, entry_id: int) -> int:
        """Give where the entry stands in the file.

        Raises:
            InvalidJson: there is none of this id.
        """
        return self._position(entry_id, "id")

    def path(self, leaf_id: int | None) -> list[int]:
        """Give the positions of the entries from the root to `leaf_id`, in this order.

        Raises:
            InvalidJson: there is none of this id in the tree.
        """
        position = self._place(leaf_id, "")
        found = []
        while position >= 0:
            found.append(position)
            position = self._parents[position]
        found.reverse()
        return found

    def first_of_last(self, count: int) -> int:
        """Give the id of the first of the last `count` messages; the next id where they are none."""
        position, found = self._leaf, self.next_id
        while count > 0 and position >= 0:
            if self.kind(position) in _MESSAGES:
                count, found = count - 1, self._ids[position]
            position = self._parents[position]
        return found

    def leaves(self) -> list[int]:
        """Give the ids of the entries in the tree that no other follows, oldest first."""
        has_child = bytearray(len(self._ids))
        for parent in self._parents:
            if parent >= 0:
                has_child[parent] = 1
        return [self._ids[p] for p in self._in_tree() if not has_child[p]]

    def _in_tree(self) -> Iterator[int]:
        return (position for position, parent in enumerate(self._parents) if parent != _SIDE)

    def _place(self, entry_id: int | None, key: str = "parent") -> int:
        return _ROOT if entry_id is None else self._check_in_tree(entry_id, key)

    def _check_in_tree(self, entry_id: int, key: str = "parent") -> int:
        position = self._position(entry_id, key)
        if self._parents[position] == _SIDE:
            raise InvalidJson(f"entry {entry_id} stands beside the tree: nothing can follow it")
        return position

    def _position(self, entry_id: int, key: str) -> int:
        where = key and f"{key}: "
        if not isinstance(entry_id, int):
            raise InvalidJson(f"{where}expected the id of an entry, not {entry_id!r}")
        position = bisect_left(self._ids, entry_id)
        if position == len(self._ids) or self._ids[position] != entry_id:
            raise InvalidJson(f"{where}there is no entry {entry_id}")
        return position
