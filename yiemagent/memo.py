"""Keeping what was made of a frozen object for as long as that object lives."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, cast

__all__ = ["Kept", "Memo"]

_S = TypeVar("_S")
_V = TypeVar("_V")


class Kept(weakref.ref[Any]):
    """What was made of an object, beside a reference that does not keep it alive.

    Args:
        source: the object; `key` is its id.
        forget: called with this when the object goes.
        value: what was made of it; it must not hold the object.
    """

    __slots__ = ("key", "value")

    def __new__(cls, source: Any, forget: Callable[[Any], None], value: Any) -> Self:
        """Refer to the object, and remember its id: when it is gone, that can't be asked for."""
        kept = super().__new__(cls, source, forget)
        kept.key = id(source)
        kept.value = value
        return kept

    def __init__(self, source: Any, forget: Callable[[Any], None], _value: Any) -> None:
        super().__init__(source, forget)  # type: ignore[call-arg]  # typeshed knows only __new__

    key: int
    value: Any


class Memo(Generic[_S, _V]):
    """Calls a function once per frozen object and keeps the value for as long as the object lives.

    By identity, since frozen objects hash and compare by their whole content. Each step is one atomic dict operation;
    threads that race make the same value twice.
    """

    def __init__(self, function: Callable[[_S], _V]) -> None:
        self._function = function
        self._kept: dict[int, Kept] = {}

    def __call__(self, source: _S) -> _V:
        """Give the function's value for an object."""
        kept = self._kept.get(id(source))
        if kept is None:
            kept = Kept(source, self._forget, self._function(source))
            self._kept[kept.key] = kept
        return cast("_V", kept.value)

    def __len__(self) -> int:
        """How many values are kept."""
        return len(self._kept)

    def _forget(self, kept: Kept) -> None:
        self._kept.pop(kept.key, None)
