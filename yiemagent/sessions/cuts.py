"""Where a conversation may be cut, and how tool results are shortened that are too large for the model. Pure.

A cut never stands between a call and its result. What a request makes of a history is decided per window, an answer
and all that follows it up to the next one: so a cut inside a window must have all of the window's results before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from yiemagent.messages import (
    AgentMessage,
    AssistantMessage,
    CompactionSummaryMessage,
    ImageContent,
    TextContent,
    ToolResultMessage,
)
from yiemagent.record import Record
from yiemagent.sessions.clipping import middle_out
from yiemagent.sessions.tokens import (
    BYTES_PER_TOKEN,
    IMAGE_TOKENS,
    MESSAGE_TOKENS,
    message_tokens,
)

__all__ = [
    "Cut",
    "cut_places",
    "find_cut",
    "last_turn_tokens",
    "result_batches",
    "shorten_batch",
    "shorten_result",
]

_NOTE_TOKENS = 60
_LEAST_TOKENS = 100  # a result is never shortened below this: it could say nothing any more


@attrs.frozen(eq=False, repr=False)
class Cut(Record):
    """Where a conversation is cut.

    Args:
        start: the place of the first message that is not summarised yet.
        turn_start: the place where the turn begins that the cut splits; None: it splits none.
        kept: the place of the first message that is kept.
        kept_tokens: what is kept, in tokens.
    """

    start: int
    turn_start: int | None
    kept: int
    kept_tokens: int


def cut_places(messages: Sequence[AgentMessage]) -> Iterator[int]:
    """Give the places at which the part that is kept may begin, the last first; walks no further than it is asked."""
    owed = False  # whether a result was seen whose call may stand further ahead
    for place in range(len(messages) - 1, 0, -1):
        message = messages[place]
        if isinstance(message, ToolResultMessage):
            owed = True
        elif isinstance(message, AssistantMessage):
            owed = False
            if not message.failed:  # a failed answer is sent to no model: nothing begins with it
                yield place
        elif not owed:
            yield place


def find_cut(messages: Sequence[AgentMessage], keep_tokens: int) -> Cut | None:
    """Give the cut that keeps as much as fits into so many tokens, and the latest messages whatever their size.

    It stands between turns where more than half of what is kept then stays, so that few turns are split.

    Args:
        messages: a summary of what was before, or nothing, and then the conversation.
        keep_tokens: how much to keep.

    Returns:
        None where no cut leaves anything to summarise.
    """
    start = 1 if messages and isinstance(messages[0], CompactionSummaryMessage) else 0
    kept: tuple[int, int] | None = None
    between: tuple[int, int] | None = None
    tokens, seen = 0, len(messages)
    for place in cut_places(messages):
        if place <= start:
            break
        tokens += sum(map(message_tokens, messages[place:seen]))
        seen = place
        if tokens > keep_tokens and kept is not None:
            break
        kept = (place, tokens)
        if not _is_of_turn(messages[place]):
            between = kept
    if kept is None:
        return None
    if between is not None and between[1] * 2 > kept[1]:
        kept = between
    return Cut(start, _turn_start(messages, start, kept[0]), *kept)


def _turn_start(messages: Sequence[AgentMessage], start: int, kept: int) -> int | None:
    """Give where the turn begins that a cut splits; None where it splits none, or one that began before `start`."""
    if not _is_of_turn(messages[kept]):
        return None
    for place in range(kept - 1, start - 1, -1):
        if not _is_of_turn(messages[place]):
            return place
    return None


def last_turn_tokens(messages: Sequence[AgentMessage]) -> int | None:
    """Give the size of the last turn; None where nothing but a summary is before it."""
    for place in range(len(messages) - 1, 0, -1):
        if not _is_of_turn(messages[place]):
            alone = place == 1 and isinstance(messages[0], CompactionSummaryMessage)
            return None if alone else sum(map(message_tokens, messages[place:]))
    return None


def _is_of_turn(message: AgentMessage) -> bool:
    """Whether a message goes on with a turn, rather than begin one."""
    return isinstance(message, (AssistantMessage, ToolResultMessage))


# -- results that are too large ---------------------------------------------------------------------------------------


def result_batches(messages: Sequence[AgentMessage], start: int) -> Iterator[tuple[int, int]]:
    """Give where results stand together, from `start` on: the place of the first, and that behind the last."""
    first: int | None = None
    for place in range(start, len(messages)):
        if isinstance(messages[place], ToolResultMessage):
            first = place if first is None else first
        elif first is not None:
            yield first, place
            first = None
    if first is not None:
        yield first, len(messages)


def shorten_batch(sizes: Iterable[int], one: int, together: int) -> int:
    """Give how many tokens each result of a batch may have: as much as possible, and the same for all that are larger.

    Args:
        sizes: what they have.
        one: what one may have at most.
        together: what all may have.
    """
    room, rest = together, sorted(sizes)
    while rest:
        share = room // len(rest)
        if rest[0] > share:
            return max(_LEAST_TOKENS, min(one, share))
        room -= rest.pop(0)
    return one


def shorten_result(result: ToolResultMessage, max_tokens: int) -> ToolResultMessage:
    """Give a result that has about so many tokens at most: its beginning and its end, and a word on what is missing."""
    images = [block for block in result.content if isinstance(block, ImageContent)]
    left_out = ""
    room = max_tokens - MESSAGE_TOKENS - _NOTE_TOKENS
    if images and IMAGE_TOKENS * len(images) > room // 2:
        left_out = f"[{len(images)} image(s) of this result are left out: there is no room]\n"
        images = []
    room -= IMAGE_TOKENS * len(images)
    text = "".join(block.text for block in result.content if isinstance(block, TextContent))
    text = middle_out(text, max(0, int(room * BYTES_PER_TOKEN)), _note(result.details))
    blocks = [TextContent(left_out + text)] if left_out or text else []
    return attrs.evolve(result, content=(*blocks, *images))


def _note(details: Any) -> Any:
    path = details.get("full_output_path") if isinstance(details, Mapping) else None
    where = f"; the whole is in {path}" if path else "; the conversation keeps the whole"

    def note(characters: int) -> str:
        return f"\n[… {characters} characters are left out here to save room{where} …]\n"

    return note
