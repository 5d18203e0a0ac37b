"""The output items of a response under way: which of them an event is about, and the blocks that they become.

Servers that call themselves compatible leave out indexes or ids, give every item the same index, or change ids from
event to event. So an item is found by id, else by its place, else as the last of its kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["Block", "Item", "Items", "number", "word"]


def word(value: Any) -> str:
    """Give text where it is text; else none."""
    return value if isinstance(value, str) else ""


def number(value: Any) -> int | None:
    """Give a number where it is one; else None."""
    return value if isinstance(value, int) else None


class Block:
    """A content block under way.

    Args:
        index: its content index in the message.
        part: the number of the part of its item that it is.
    """

    __slots__ = ("held", "index", "item_id", "part", "taken")

    def __init__(self, index: int, part: int) -> None:
        self.index = index
        self.part = part
        self.item_id: str | None = None  # as the last delta named it
        self.taken = 0  # characters that were given
        self.held = ""  # the first half of a character, whose second is still to come

    def whole_characters(self, text: str) -> str:
        """Give text without lone surrogates; a first half at its end waits for what comes next."""
        if self.held:
            text, self.held = self.held + text, ""
        elif text.isascii():
            return text
        if "\ud800" <= text[-1] <= "\udbff":
            text, self.held = text[:-1], text[-1]
        try:
            text.encode()
        except UnicodeEncodeError:
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return text


class Item:
    """One output item under way; its blocks by the number of their part."""

    __slots__ = ("blocks", "call_id", "is_done", "kind", "name", "section")

    def __init__(self, kind: str, call_id: str, name: str) -> None:
        self.kind = kind
        self.call_id = call_id
        self.name = name
        self.blocks: dict[int, Block] = {}
        self.section: Any = None  # of reasoning: what the last delta belonged to
        self.is_done = False


class Items:
    """The output items so far, in their order."""

    def __init__(self) -> None:
        self.all: list[Item] = []
        self._by_id: dict[str, Item] = {}
        self._by_place: dict[int, Item] = {}

    def add(self, given: Mapping[str, Any], place: int | None) -> Item:
        """Note a new item under its ids and its place."""
        ids = _ids(given)
        call_id = word(given.get("call_id")) or (ids[0] if ids else "")
        item = Item(word(given.get("type")), call_id, word(given.get("name")))
        for name in ids:
            self._by_id[name] = item
        self._by_place[len(self.all) if place is None else place] = item
        self.all.append(item)
        return item

    def announced(self, given: Mapping[str, Any]) -> bool:
        """Whether an item with one of these ids, and of this kind, is there already."""
        found = (self._by_id.get(name) for name in _ids(given))
        return any(item is not None and item.kind == given.get("type") for item in found)

    def told(self, given: Mapping[str, Any], place: int | None) -> Item | None:
        """Give the item that is told whole here; None where it is a new one."""
        kind = word(given.get("type"))
        for name in _ids(given):
            item = self._by_id.get(name)
            if item is not None and item.kind == kind:
                return item
        if place is not None:
            item = self._by_place.get(place)
            return item if item is not None and item.kind == kind else None
        return next((item for item in self.all if item.kind == kind and not item.is_done), None)

    def meant(self, event: Mapping[str, Any], kind: str) -> Item | None:
        """Give the item of a kind that an event is about; None where none can be meant."""
        item = self._by_id.get(word(event.get("item_id")))
        if item is not None and item.kind == kind:
            return item
        place = number(event.get("output_index"))
        if place is not None:
            item = self._by_place.get(place)
            return item if item is not None and item.kind == kind else None
        return next((item for item in reversed(self.all) if item.kind == kind), None)


def _ids(given: Mapping[str, Any]) -> list[str]:
    return [name for name in (word(given.get("id")), word(given.get("call_id"))) if name]
