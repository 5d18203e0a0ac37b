"""What frozen records share: they compare, hash and show themselves by their fields.

attrs can write these methods, and compiles them for each class: with the sixty records here that is a fifth of what it
takes to start an agent. So records leave them to one base, `@attrs.frozen(eq=False, repr=False)`.
"""

from __future__ import annotations

import functools
from typing import Any, cast

import attrs

__all__ = ["Record"]


class Record:
    """Base of frozen attrs classes: equal where the class and all compared fields are."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        kind: Any = type(self)
        return all(getattr(self, name) == getattr(other, name) for name in _compared(kind))

    def __hash__(self) -> int:
        kind: Any = type(self)
        return hash((kind, *[getattr(self, name) for name in _compared(kind)]))

    def __repr__(self) -> str:
        kind = type(self)
        shown = [
            f"{field.name}={(field.repr if callable(field.repr) else repr)(getattr(self, field.name))}"
            for field in _fields(kind)
            if field.repr
        ]
        return f"{kind.__qualname__}({', '.join(shown)})"


def _fields(kind: type) -> tuple[attrs.Attribute[Any], ...]:
    return cast("tuple[attrs.Attribute[Any], ...]", attrs.fields(kind))


@functools.cache
def _compared(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in _fields(kind) if field.eq)
