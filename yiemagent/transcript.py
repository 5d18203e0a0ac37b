"""Histories: sequences of messages that can't change, and of which a longer one shares the storage of a shorter."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast, overload

from yiemagent.messages import AgentMessage, AssistantMessage, ToolResultMessage

__all__ = ["Transcript", "in_call_order", "transcript", "with_results_in_order"]


class Transcript(Sequence[AgentMessage]):
    """A history that can't change; a longer one made by `append` shares its storage, so that it costs no copy.

    Equal to any sequence of equal messages. Safe to read and to append to from any thread: of several that append to
    the same history, one goes on in the shared storage and the others get storage of their own.
    """

    __slots__ = ("_items", "_length", "_next", "_permit")

    def __init__(self, messages: Iterable[AgentMessage] = ()) -> None:
        self._items: list[AgentMessage] = list(messages)
        self._length = len(self._items)
        # Whoever pops the one permit may write behind this history in the shared list; `list.pop` is atomic, so no
        # lock is needed. The history it made is kept, so that a fold that appends the same message shares it too.
        self._permit: list[None] = [None]
        self._next: Transcript | None = None

    def append(self, message: AgentMessage) -> Transcript:
        """Give the history that is this one and then `message`."""
        longer = self._next
        if longer is not None and longer._items[self._length] is message:
            return longer
        try:
            self._permit.pop()
        except IndexError:
            return Transcript(itertools.chain(self, (message,)))
        self._items.append(message)
        longer = Transcript.__new__(Transcript)
        longer._items, longer._length = self._items, self._length + 1
        longer._permit, longer._next = [None], None
        self._next = longer
        return longer

    def extend(self, messages: Iterable[AgentMessage]) -> Transcript:
        """Give the history that is this one and then `messages`."""
        longer = self
        for message in messages:
            longer = longer.append(message)
        return longer

    def continues(self, earlier: object) -> bool:
        """Whether this history is `earlier` and then more, as far as shared storage tells; costs no walk."""
        return (
            isinstance(earlier, Transcript)
            and earlier._items is self._items
            and earlier._length <= self._length
        )

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[AgentMessage]:
        return itertools.islice(self._items, self._length)

    @overload
    def __getitem__(self, index: int) -> AgentMessage: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[AgentMessage, ...]: ...

    def __getitem__(self, index: int | slice) -> AgentMessage | tuple[AgentMessage, ...]:
        if isinstance(index, slice):
            if index.stop is index.step is None and (index.start or 0) >= 0:  # what is new, mostly
                return tuple(self._items[index.start : self._length])
            start, stop, step = index.indices(self._length)
            if step == 1:
                return tuple(self._items[start:stop])
            return tuple(self._items[i] for i in range(start, stop, step))
        if not -self._length <= index < self._length:
            raise IndexError(f"no message {index} in a history of {self._length}")
        return self._items[index if index >= 0 else index + self._length]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, (str, bytes)):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return Transcript, (tuple(self),)  # not the shared storage, which may hold more

    def __repr__(self) -> str:
        return f"Transcript({list(self)!r})"


def transcript(messages: Iterable[AgentMessage]) -> Transcript:
    """Give `messages` as a transcript: the same object where it is one."""
    return messages if isinstance(messages, Transcript) else Transcript(messages)


def in_call_order(
    results: Iterable[ToolResultMessage], answer: AgentMessage | None
) -> list[ToolResultMessage]:
    """Give results in the order of an answer's calls; behind them those that answer none of them, as they came."""
    calls = answer.tool_calls if isinstance(answer, AssistantMessage) else ()
    order = {call.id: index for index, call in enumerate(calls)}
    return sorted(results, key=lambda result: order.get(result.tool_call_id, len(order)))


def with_results_in_order(messages: Sequence[AgentMessage]) -> Transcript:
    """Give a history with the results that it ends with in call order; the same object where it is one and they are."""
    history = transcript(messages)
    behind = itertools.takewhile(lambda m: isinstance(m, ToolResultMessage), reversed(history))
    size = len(history) - sum(1 for _ in behind)
    results = cast("tuple[ToolResultMessage, ...]", history[size:])
    ordered = in_call_order(results, history[size - 1] if size else None)
    if all(map(operator.is_, ordered, results)):
        return history
    return Transcript((*history[:size], *ordered))
