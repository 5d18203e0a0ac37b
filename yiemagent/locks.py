"""Locks by name: calls of tools that share one never overlap, whichever agent of this process makes them.

A call claims all its names in one step and gets them when nobody who came before needs one of them, so several names
need no order and nobody starves. A tool may run another agent and wait for it; the calls of that agent work under what
their caller holds: they don't wait for it, but exclude each other. Where calls would wait for each other in a circle,
the one that would close it fails at once.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from queue import SimpleQueue

from yiemagent.abort import AbortSignal
from yiemagent.errors import ToolError

__all__ = ["Waiting", "holding", "waiting", "work_alone"]


class _Claim:
    """What one call needs: it waits for that, and then has it until it ends."""

    def __init__(
        self, names: Iterable[str], who: str, signal: AbortSignal, caller: _Claim | None
    ) -> None:
        self.who = who
        self.caller = caller
        self.granted = False
        self.began = False  # stays so where the wait is aborted
        self.signal = signal
        self.woken: SimpleQueue[None] = SimpleQueue()
        # A name that a caller holds is claimed among that caller's calls only.
        self.keys: dict[str, _Claim | None] = {name: self._holder(name) for name in names}

    def callers(self) -> Iterator[_Claim]:
        """Give the calls that this one works for and that still run, the nearest first."""
        claim = self.caller
        while claim is not None:
            if claim.granted:
                yield claim
            claim = claim.caller

    def _holder(self, name: str) -> _Claim | None:
        return next((claim for claim in self.callers() if name in claim.keys), None)

    def shares(self, other: _Claim) -> bool:
        return any(
            name in other.keys and other.keys[name] is holder for name, holder in self.keys.items()
        )


# Guards the list below and every claim in it; held for no more than a look through it, never while anybody waits.
_lock = threading.RLock()  # re-entrant, since a signal handler may abort a wait in the same thread
_claims: list[_Claim] = []  # in the order in which they came

_working_under: ContextVar[_Claim | None] = ContextVar("yiemagent_locks", default=None)


def work_alone() -> None:
    """Have what runs in this context from now on hold nothing of its caller's, since nobody there waits for it."""
    _working_under.set(None)


@contextlib.contextmanager
def holding(names: Iterable[str], signal: AbortSignal, who: str) -> Iterator[None]:
    """Hold locks for the length of a `with`; waits until they are free.

    Args:
        names: the locks.
        signal: ends the wait.
        who: who needs them, for error texts.

    Raises:
        AbortedError: the signal was set meanwhile.
        ToolError: waiting would never end, since whoever holds one of them waits for this call.
    """
    _hook_forks()
    with _lock:
        claim = _Claim(names, who, signal, _working_under.get())
        _claims.append(claim)
    try:
        with _lock:
            _grant()
            if not claim.granted:
                _refuse_circle(claim)
        _wait(claim, signal)
        token = _working_under.set(claim)
        try:
            yield
        finally:
            _working_under.reset(token)
    finally:
        _release(claim)


class Waiting:
    """A call that waits for locks.

    Args:
        claim: what it needs.
        blocker: who holds one of them, or came before.
    """

    def __init__(self, claim: _Claim, blocker: _Claim) -> None:
        self._claim = claim
        names = ", ".join(repr(name) for name in sorted(set(claim.keys) & set(blocker.keys)))
        self.what = f"the lock {names}, which {blocker.who} holds or waits for"

    @property
    def never_began(self) -> bool:
        """Whether the call never ran, and never will; once its signal is set."""
        return not self._claim.began


def waiting(signal: AbortSignal) -> Waiting | None:
    """Give what the call with this signal waits for; None: for no lock."""
    with _lock:
        for claim in _claims:
            blockers = _blockers(claim) if claim.signal is signal and not claim.granted else []
            if blockers:
                return Waiting(claim, blockers[0])
    return None


def _wait(claim: _Claim, signal: AbortSignal) -> None:
    remove = signal.add_callback(lambda: claim.woken.put(None))
    try:
        if not claim.granted:
            claim.woken.get()
    finally:
        remove()
    claim.began = True  # before it looks for the last time: see `Waiting`
    signal.raise_if_aborted()


def _grant() -> None:
    for claim in _claims:
        if not claim.granted and not _blockers(claim):
            claim.granted = True
            claim.woken.put(None)


def _blockers(claim: _Claim) -> list[_Claim]:
    """Give whom a claim waits for: who has what it needs; and who came before and needs it too, except where a caller
    of the claim holds something: those who wait for that must not wait for each other.
    """
    urgent = any(claim.callers())
    found = []
    before = True
    for other in _claims:
        if other is claim:
            before = False
        elif (other.granted or (before and not urgent)) and other.shares(claim):
            found.append(other)
    return found


def _refuse_circle(claim: _Claim) -> None:
    """Raise where the claim would wait for a call that waits for this one."""
    ours = {claim, *claim.callers()}
    seen: set[_Claim] = set()
    todo = [(blocker, blocker) for blocker in _blockers(claim)]
    while todo:
        other, first = todo.pop()
        if other in ours:
            names = ", ".join(repr(name) for name in sorted(set(claim.keys) & set(first.keys)))
            raise ToolError(
                f"{claim.who} needs the lock {names}, which {first.who} holds or waits for, "
                f"and that waits for this call; try again later"
            )
        if other in seen:
            continue
        seen.add(other)
        waiting = _blockers(other) if not other.granted else _calls_of(other)
        todo += [(one, first) for one in waiting]


def _calls_of(claim: _Claim) -> list[_Claim]:
    """Give the calls that a running call waits for, as far as they wait for a lock."""
    return [one for one in _claims if not one.granted and claim in one.callers()]


def _release(claim: _Claim) -> None:
    with _lock:
        if claim not in _claims:  # a fork, in whose child nobody holds anything
            return
        _claims.remove(claim)
        claim.granted = False
        for other in _claims:  # what it started and left behind goes on under the lock itself
            for name, holder in other.keys.items():
                if holder is claim:
                    other.keys[name] = claim.keys[name]
        _grant()


@functools.cache
def _hook_forks() -> None:
    """Have a forked child begin without claims, since the threads that made them are not there; done once."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_begin_anew)


def _begin_anew() -> None:
    global _lock  # noqa: PLW0603 - the one of the room, perhaps held by a thread that is not there
    # Guards the same as the one above.
    _lock = threading.RLock()
    _claims.clear()
