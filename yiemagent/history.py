"""The one rule of histories that providers insist on, checked and repaired: every call has exactly one result.

A history falls into windows: an assistant message and all that follows it up to the next one. In a sound window the
results stand directly behind the assistant message, one for each of its calls, in call order. Repair moves results to
their place, answers calls that have none, drops results that answer nothing, leaves out answers that failed, with
their results, makes call ids distinct inside a message, and replaces text that can't be sent (lone surrogates). It is
pure and idempotent: a sound history comes back as the same object.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, cast

import attrs

from yiemagent.messages import (
    AgentMessage,
    AssistantMessage,
    ImageContent,
    LlmMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.payload import FrozenDict, FrozenList
from yiemagent.transcript import Transcript

__all__ = ["NO_RESULT", "Repairer", "check", "clean_message", "clean_text", "repair"]

NO_RESULT = "No result: the call was interrupted before it gave one."


def repair(messages: Sequence[AgentMessage]) -> Sequence[LlmMessage]:
    """Give `messages` as a model may be sent them.

    Kinds that are no model's become what `to_llm` gives for them.

    Args:
        messages: oldest first.

    Returns:
        The same object where nothing is wrong.
    """
    problems: list[str] = []
    sound = _repaired(messages, problems)
    return cast("Sequence[LlmMessage]", messages) if _same(sound, messages) else sound


def check(messages: Sequence[AgentMessage]) -> list[str]:
    """Give what `repair` would put right, each fault in words; empty for a sound history."""
    problems: list[str] = []
    _repaired(messages, problems)
    return problems


class Repairer:
    """Repairs a history that grows, and walks only what is new.

    Used by one thread. Give it each time the whole history: where that goes on from the one before (a `Transcript`
    that shares its storage, or the same message objects), what was checked then is not walked again.
    """

    def __init__(self) -> None:
        self._source: Sequence[AgentMessage] = Transcript()
        self._done = 0  # so many messages of the source are in closed windows, and repaired
        self._sound: Transcript | None = None  # these, repaired; None where they needed no repair
        self._open = 0  # so many messages of the window behind them were found sound the last time

    def repair(self, messages: Sequence[AgentMessage]) -> Sequence[LlmMessage]:
        """Give `messages` as `repair` does."""
        if self._goes_on_soundly(messages):
            return cast("Sequence[LlmMessage]", messages)
        if not self._goes_on(messages):
            self._done, self._sound, self._open = 0, None, 0
        # A list may be changed by its owner later, so what was checked is kept by itself.
        self._source = messages if isinstance(messages, Transcript) else tuple(messages)
        last: Sequence[AgentMessage] = ()
        sound: Sequence[AgentMessage] = ()
        for window in _windows(messages[self._done :]):
            self._close(last, sound)
            last = window
            known = 0 < self._open == len(window)
            sound = window if known else _sound_window(window, [])
            self._open = 0
        self._open = len(last) if sound is last else 0
        if self._sound is not None:
            return cast("Sequence[LlmMessage]", self._sound.extend(sound))
        if sound is last:
            return cast("Sequence[LlmMessage]", messages)
        return cast("Sequence[LlmMessage]", Transcript(messages[: self._done]).extend(sound))

    def _goes_on_soundly(self, messages: Sequence[AgentMessage]) -> bool:
        """Whether all was sound, and the one window that is new is; the way of nearly every turn."""
        known = self._done + self._open
        if self._sound is not None or (known and not self._open):
            return False
        if not (isinstance(messages, Transcript) and messages.continues(self._source)):
            return False
        fresh = messages[known:]
        if not fresh or not _is_sound(fresh):
            return False
        if isinstance(fresh[0], AssistantMessage):
            self._done, self._open = known, 0
        self._open += len(fresh)
        self._source = messages
        return True

    def _goes_on(self, messages: Sequence[AgentMessage]) -> bool:
        if len(messages) < self._done + self._open:
            return False
        before = self._source
        if isinstance(messages, Transcript) and messages.continues(before):
            return True
        return all(map(operator.is_, islice(before, self._done + self._open), messages))

    def _close(self, window: Sequence[AgentMessage], sound: Sequence[AgentMessage]) -> None:
        if self._sound is None and sound is not window:
            self._sound = Transcript(self._source[: self._done])
        if self._sound is not None:
            self._sound = self._sound.extend(sound)
        self._done += len(window)


def _repaired(messages: Sequence[AgentMessage], problems: list[str]) -> list[LlmMessage]:
    return [message for window in _windows(messages) for message in _sound_window(window, problems)]


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(map(operator.is_, one, other))


def _windows(messages: Iterable[AgentMessage]) -> Iterator[list[AgentMessage]]:
    window: list[AgentMessage] = []
    for message in messages:
        if isinstance(message, AssistantMessage) and window:
            yield window
            window = []
        window.append(message)
    if window:
        yield window


# --- one window ------------------------------------------------------------------------------------------------------


def _sound_window(window: Sequence[AgentMessage], problems: list[str]) -> Sequence[LlmMessage]:
    """Give a window repaired; the same object where it is sound."""
    if _is_sound(window):
        return cast("Sequence[LlmMessage]", window)
    first, others = window[0], window[1:]
    if not isinstance(first, AssistantMessage):
        return _paired(None, window, problems)
    if first.failed:
        problems.append(f"an answer that ended in {first.stop_reason!r} is left out")
        return _paired(None, others, problems)
    return _paired(first, others, problems)


def _is_sound(window: Sequence[AgentMessage]) -> bool:
    """Whether there is nothing to repair: what nearly every window is asked, so it is quick to say yes."""
    first, behind = window[0], 0
    if isinstance(first, AssistantMessage):
        if first.failed:
            return False
        ids = [block.id for block in first.content if isinstance(block, ToolCall)]
        behind = 1 + len(ids)
        given = [getattr(message, "tool_call_id", None) for message in window[1:behind]]
        if given != ids or len(set(ids)) < len(ids) or "" in ids:
            return False
    for position, message in enumerate(window):
        if position >= behind and not isinstance(message, UserMessage):
            return False
        if not _is_clean(message):
            return False
    return True


def _paired(
    answer: AssistantMessage | None, others: Sequence[AgentMessage], problems: list[str]
) -> list[LlmMessage]:
    calls = answer.tool_calls if answer is not None else ()
    ids = _distinct([clean_text(call.id) for call in calls], problems)
    results: list[ToolResultMessage | None] = [None] * len(calls)
    rest: list[LlmMessage] = []
    for position, message in enumerate(others):
        if isinstance(message, ToolResultMessage):
            place = _place(message, calls, results)
            if place is None:
                problems.append(f"a result for {message.tool_call_id!r} answers no call")
                continue
            if place != position:
                problems.append(f"the result for {message.tool_call_id!r} is out of its place")
            results[place] = message
        elif (model_message := message.to_llm()) is not None:
            rest.append(_clean_message(model_message, problems))
    sound: list[LlmMessage] = []
    if answer is not None:
        sound.append(_clean_message(_renamed(answer, ids), problems))
    for call, call_id, result in zip(calls, ids, results, strict=True):
        answered = result or _interrupted(answer, call, problems)
        if answered.tool_call_id != call_id:
            answered = attrs.evolve(answered, tool_call_id=call_id)
        sound.append(_clean_message(answered, problems))
    return sound + rest


def _place(
    result: ToolResultMessage,
    calls: Sequence[ToolCall],
    results: Sequence[ToolResultMessage | None],
) -> int | None:
    for place, call in enumerate(calls):
        if results[place] is None and call.id == result.tool_call_id:
            return place
    return None


def _interrupted(
    answer: AssistantMessage | None, call: ToolCall, problems: list[str]
) -> ToolResultMessage:
    assert answer is not None
    problems.append(f"the call {call.id!r} has no result")
    # The time of the answer, so that the same history is repaired to the same bytes.
    return ToolResultMessage(
        call.id, call.name, NO_RESULT, is_error=True, timestamp=answer.timestamp
    )


def _distinct(ids: list[str], problems: list[str]) -> list[str]:
    """Give the ids with the empty and the doubled ones replaced; the same replacements each time."""
    if len(set(ids)) == len(ids) and "" not in ids:
        return ids
    problems.append("call ids in one message are empty or not distinct")
    taken, fresh = set(ids), []
    seen: set[str] = set()
    for call_id in ids:
        name, number = call_id, 2
        while not name or name in seen or (name != call_id and name in taken):
            name, number = f"{call_id or 'call'}_{number}", number + 1
        seen.add(name)
        fresh.append(name)
    return fresh


def _renamed(answer: AssistantMessage, ids: list[str]) -> AssistantMessage:
    if all(call.id == call_id for call, call_id in zip(answer.tool_calls, ids, strict=True)):
        return answer
    fresh = iter(ids)
    content = [
        attrs.evolve(block, id=next(fresh)) if isinstance(block, ToolCall) else block
        for block in answer.content
    ]
    return attrs.evolve(answer, content=tuple(content))


# --- text that can be sent -------------------------------------------------------------------------------------------


def clean_text(text: str) -> str:
    """Give `text` as UTF-8 can hold it: halves of a surrogate pair joined, lone ones replaced by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean_message(message: LlmMessage) -> LlmMessage:
    """Give a message with the text in its blocks, and a result's tool name, as `clean_text` gives it.

    Returns:
        The same object where nothing is to be replaced.
    """
    return message if _is_clean(message) else _clean_message(message, [])


def _is_clean(message: Any) -> bool:
    for block in message.content:
        for value in _TEXTS[block.__class__](block):
            if not (value.__class__ is str and value.isascii()) and not _is_clean_json(value):
                return False
    return message.role != "toolResult" or _is_clean_json(message.tool_name)


def _is_clean_json(value: Any) -> bool:
    if isinstance(value, str):
        return value.isascii() or clean_text(value) is value
    items = (*value, *value.values()) if isinstance(value, dict) else value
    if isinstance(items, (tuple, list)):
        for item in items:
            if item.__class__ is str and item.isascii():
                continue
            if isinstance(item, (str, dict, list)) and not _is_clean_json(item):
                return False
    return True


def _clean_message(message: LlmMessage, problems: list[str]) -> LlmMessage:
    content = _clean_items(message.content, _clean_block)
    fields: dict[str, Any] = {} if content is message.content else {"content": tuple(content)}
    if isinstance(message, ToolResultMessage):
        name = clean_text(message.tool_name)
        if name is not message.tool_name:
            fields["tool_name"] = name
    if not fields:
        return message
    problems.append(f"a message of the role {message.role!r} holds lone surrogates")
    return cast("LlmMessage", attrs.evolve(cast("UserMessage", message), **fields))


def _clean_items(items: Sequence[Any], clean: Callable[[Any], Any]) -> Sequence[Any]:
    cleaned = [clean(item) for item in items]
    return items if _same(cleaned, items) else cleaned


_TEXT_FIELDS = {
    TextContent: ("text",),
    ThinkingContent: ("thinking",),
    ImageContent: (),
    ToolCall: ("id", "name", "arguments"),
}


def _texts_of(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda block: tuple([getattr(block, name) for name in names])


_TEXTS = {kind: _texts_of(names) for kind, names in _TEXT_FIELDS.items()}


def _clean_block(block: Any) -> Any:
    changes = {}
    for name in _TEXT_FIELDS[type(block)]:
        value = getattr(block, name)
        cleaned = _clean_json(value)
        if cleaned is not value:
            changes[name] = cleaned
    return attrs.evolve(block, **changes) if changes else block


def _clean_json(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        pairs = [(_clean_json(key), _clean_json(item)) for key, item in value.items()]
        same = all(
            key is old_key and item is old
            for (key, item), (old_key, old) in zip(pairs, value.items(), strict=True)
        )
        return value if same else FrozenDict(pairs)
    if isinstance(value, list):
        cleaned = _clean_items(value, _clean_json)
        return value if cleaned is value else FrozenList(cleaned)
    return value
