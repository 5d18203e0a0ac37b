"""Request bodies as bytes; what many requests share is encoded once."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from yiemagent.payload import FrozenDict

__all__ = ["BodyEncoder"]

_MAX_KEPT_BYTES = 16_777_216
_MAX_FRAGMENT_BYTES = 262_144


class BodyEncoder:
    """Encodes bodies; what an earlier body held too is not encoded again.

    Kept are the entries of lists at the top of a body that are frozen (`FrozenDict`), as those made once per message
    and tool are; what may change is encoded each time.
    """

    def __init__(self) -> None:
        # Guards the two fields below; nothing is encoded while it is held.
        self._lock = threading.Lock()
        # By identity, each with its object, so that the id stays its own.
        self._kept: dict[int, tuple[Any, bytes]] = {}
        self._size = 0

    def encode(self, body: Mapping[str, Any]) -> bytes:
        """Give the JSON of a body."""
        fields = [
            b"%b:%b" % (_dumps(key), self._list(value) if type(value) is list else _dumps(value))
            for key, value in body.items()
        ]
        return b"{%b}" % b",".join(fields)

    def _list(self, items: Sequence[Any]) -> bytes:
        kept = self._kept
        fragments = []
        for item in items:
            known = kept.get(id(item))
            fragments.append(self._fragment(item) if known is None else known[1])
        return b"[%b]" % b",".join(fragments)

    def _fragment(self, item: Any) -> bytes:
        fragment = _dumps(item)
        # Larger ones, images, are cheap for their size.
        if type(item) is FrozenDict and len(fragment) <= _MAX_FRAGMENT_BYTES:
            with self._lock:
                if self._size > _MAX_KEPT_BYTES:
                    self._kept = {}
                    self._size = 0
                self._kept[id(item)] = (item, fragment)
                self._size += len(fragment)
        return fragment


def _dumps(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")
