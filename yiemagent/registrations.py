"""Which tools a block of code made available, in whatever store: told through its context, to nobody else."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from types import TracebackType

__all__ = ["collect_registrations", "note_registration"]

_registered: ContextVar[list[str] | None] = ContextVar("yiemagent_registered", default=None)


class _Collection:
    """The block of `collect_registrations`; a class, since every tool call opens one."""

    __slots__ = ("_token",)

    def __enter__(self) -> list[str]:
        names: list[str] = []
        self._token: Token[list[str] | None] = _registered.set(names)
        return names

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _registered.reset(self._token)


def collect_registrations() -> AbstractContextManager[list[str], None]:
    """Collect the names of tools that are registered in a `with` block, in its context, in any store."""
    return _Collection()


def note_registration(name: str) -> None:
    """Tell the block around, where there is one, that a tool of this name can be had now."""
    names = _registered.get()
    if names is not None and name not in names:
        names.append(name)
