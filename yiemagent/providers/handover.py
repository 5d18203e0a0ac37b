"""Handing a history from one provider to another: messages as the model that is asked next can be sent them.

A history holds marks that only the model that made them takes back (signatures, redacted thinking), ids and names that
follow another API's rules, and content that the next model can't read. `HandOver` puts that right for one `Target`. It
is pure and idempotent, gives the same object where nothing is wrong, and of a history that grows it walks only what is
new. Calls and results are paired before, by `history.Repairer`; what stands together in one message of an API is that
API's body's own business.

What was put right for a message stays so when more messages follow: prompt caches hold.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Sequence
from typing import Any

import attrs

from yiemagent.history import clean_message, clean_text
from yiemagent.memo import Kept
from yiemagent.messages import (
    AssistantMessage,
    ImageContent,
    LlmMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.providers.target import Target

__all__ = ["BEGINNING", "EMPTY_MESSAGE", "HandOver", "Target", "hand_over"]

BEGINNING = "(The conversation begins.)"
EMPTY_MESSAGE = "(empty message)"
MAX_CONVERSATIONS = 1024
MAX_TARGETS = 256

_NOT_PLAIN = re.compile(r"[^a-zA-Z0-9_-]")


# --- one message after the other -------------------------------------------------------------------------------------


class _Fold:
    """What is known of the messages so far, and how the next is given."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._begun = False
        self._taken: set[str] = set()  # ids of the calls so far, as they are given
        self._tries: dict[str, int] = {}  # how many ids were made for one id
        self._calls: dict[str, ToolCall] = {}  # of the last answer, as given, by the id before

    def copy(self) -> _Fold:
        """Give a fold that goes on by itself."""
        fold = _Fold(self._target)
        fold._begun, fold._taken = self._begun, self._taken.copy()
        fold._tries, fold._calls = self._tries.copy(), self._calls
        return fold

    def take(self, message: LlmMessage) -> Sequence[LlmMessage]:
        """Give what is sent for the next message: none, itself, or others."""
        message = clean_message(message)
        if isinstance(message, AssistantMessage):
            return self._answer(message)
        self._begun = True
        if isinstance(message, UserMessage):
            blocks = _shown(message.content, self._target, reads=self._target.reads_images)
            blocks = blocks or (TextContent(EMPTY_MESSAGE),)
            return (_with_content(message, blocks),)
        return (self._result(message),)

    def _answer(self, message: AssistantMessage) -> Sequence[LlmMessage]:
        own = self._target.owns(message)
        self._calls = {}
        blocks = _answer_blocks(message.content, self._target, own=own)
        if not blocks:
            return ()
        if not self._target.unique_call_ids:
            self._taken = set()
        blocks = [self._call(b, own=own) if isinstance(b, ToolCall) else b for b in blocks]
        given = _with_content(message, blocks)
        if self._begun or not self._target.user_first:
            self._begun = True
            return (given,)
        self._begun = True
        return UserMessage(BEGINNING, message.timestamp), given

    def _call(self, call: ToolCall, *, own: bool) -> ToolCall:
        call_id, name = self._id(call.id, own=own), _tool_name(call.name, self._target)
        given = call
        if call_id != call.id or name != call.name:
            given = attrs.evolve(call, id=call_id, name=name)
        self._calls[call.id] = given
        return given

    def _id(self, call_id: str, *, own: bool) -> str:
        target = self._target
        fit, fits = call_id, call_id != ""
        if not own or target.checks_own_ids:
            fit = call_id if target.takes_id(call_id) else _NOT_PLAIN.sub("_", call_id)
            fits = target.takes_id(fit)
        if not fits or fit in self._taken:
            fit = self._made(call_id)
        self._taken.add(fit)
        return fit

    def _made(self, call_id: str) -> str:
        attempt = self._tries.get(call_id, 0)
        while (made := self._target.made_id(call_id, attempt)) in self._taken:
            attempt += 1
        self._tries[call_id] = attempt + 1
        return made

    def _result(self, message: ToolResultMessage) -> ToolResultMessage:
        target = self._target
        reads = target.reads_images and target.reads_tool_images
        given: ToolResultMessage = _with_content(
            message, _shown(message.content, target, reads=reads)
        )
        call = self._calls.get(clean_text(message.tool_call_id))
        call_id, name = (call.id, call.name) if call else (given.tool_call_id, given.tool_name)
        if call_id != given.tool_call_id or name != given.tool_name:
            given = attrs.evolve(given, tool_call_id=call_id, tool_name=name)
        return given


def _with_content(message: Any, blocks: Sequence[Any]) -> Any:
    before = message.content
    if len(blocks) == len(before) and all(map(_is, blocks, before)):
        return message
    return attrs.evolve(message, content=tuple(blocks))


def _is(one: object, other: object) -> bool:
    return one is other


def _tool_name(name: str, target: Target) -> str:
    """Give a tool's name as the target takes it; a model may have called what no tool is named."""
    if target.tool_name.fullmatch(name):
        return name
    plain = _NOT_PLAIN.sub("_", name)[:64] or "unnamed_tool"
    return plain if target.tool_name.fullmatch(plain) else f"_{plain[:63]}"


# --- blocks ----------------------------------------------------------------------------------------------------------


def _shown(blocks: Sequence[Any], target: Target, *, reads: bool) -> Sequence[Any]:
    """Give the blocks of a user message or a tool result: images that can't be sent as a note, no blank text."""
    shown: list[Any] = []
    unseen: list[ImageContent] = []
    for block in blocks:
        if isinstance(block, ImageContent):
            if reads and _is_readable(block, target):
                _note(unseen, shown)
                shown.append(_with_type(block))
            else:
                unseen.append(block)
        elif block.text.strip():
            _note(unseen, shown)
            shown.append(block)
    _note(unseen, shown)
    return shown


def _is_readable(image: ImageContent, target: Target) -> bool:
    types = target.image_types
    return bool(image.data) and (types is None or _mime_type(image) in types)


def _mime_type(image: ImageContent) -> str:
    kind = image.mime_type.partition(";")[0].strip().lower()
    return "image/jpeg" if kind == "image/jpg" else kind


def _with_type(image: ImageContent) -> ImageContent:
    """Give an image under the registered name of its type, which is the one that servers compare with."""
    kind = _mime_type(image)
    return image if kind == image.mime_type else attrs.evolve(image, mime_type=kind)


def _note(unseen: list[ImageContent], shown: list[Any]) -> None:
    """Say which images were here, where there were any; they count as told of then."""
    if unseen:
        types = ", ".join([image.mime_type for image in unseen])
        count = "An image" if len(unseen) == 1 else f"{len(unseen)} images"
        was = "was" if len(unseen) == 1 else "were"
        shown.append(TextContent(f"[{count} ({types}) {was} here, which can't be shown to you.]"))
        unseen.clear()


def _answer_blocks(blocks: Sequence[Any], target: Target, *, own: bool) -> list[Any]:
    given: list[Any] = []
    unseen: list[ImageContent] = []
    told: list[int] = []  # where thinking stands that became text
    for block in blocks:
        if isinstance(block, ImageContent):
            if own and target.keeps_answer_images and _is_readable(block, target):
                given.append(block)
            else:
                unseen.append(block)
            continue
        _note(unseen, given)
        fit = _fit(block, target, own=own)
        if fit is not None:
            if isinstance(block, ThinkingContent) and isinstance(fit, TextContent):
                told.append(len(given))
            given.append(fit)
    _note(unseen, given)
    for place in told:
        given[place] = _set_apart(given, place)
    return given


def _fit(block: Any, target: Target, *, own: bool) -> Any:
    """Give a block of an answer as the target takes it, or None."""
    if isinstance(block, ThinkingContent):
        return _thinking(block, target, own=own)
    if isinstance(block, TextContent) and not block.text.strip() and not (own and block.signature):
        return None
    if block.signature is not None and not own:
        return attrs.evolve(block, signature=None)
    return block


def _thinking(block: ThinkingContent, target: Target, *, own: bool) -> Any:
    if own and block.signature:
        return block
    if block.redacted or not block.thinking.strip():
        return None
    fate = target.unsigned_thinking if own else target.foreign_thinking
    if fate == "keep":
        return block
    return TextContent(block.thinking.strip()) if fate == "text" else None


def _set_apart(blocks: Sequence[Any], place: int) -> TextContent:
    """Give a text that was thinking with empty lines where it stands beside other text."""
    before = place > 0 and isinstance(blocks[place - 1], TextContent)
    behind = place + 1 < len(blocks) and isinstance(blocks[place + 1], TextContent)
    lead = "\n\n" if before and not blocks[place - 1].text.endswith("\n\n") else ""
    return TextContent(lead + blocks[place].text + ("\n\n" if behind else ""))


# --- histories that grow ---------------------------------------------------------------------------------------------


@attrs.define
class _Walk:
    """How far a history was walked: the messages, what is given for them where it differs, and the fold behind them."""

    before: list[LlmMessage]
    given: list[LlmMessage] | None
    fold: _Fold
    # What was given for the message behind these, where that differs: given again next time, so that what bodies made
    # of it is known by identity.
    tail: Sequence[LlmMessage] | None = None

    def go(self, message: LlmMessage) -> None:
        """Walk one message further."""
        taken = self.fold.take(message)
        if self.tail is not None:
            taken, self.tail = self.tail, None
        if self.given is None and (len(taken) != 1 or taken[0] is not message):
            self.given = self.before.copy()
        if self.given is not None:
            self.given += taken
        self.before.append(message)


class HandOver:
    """Gives histories as one target takes them. Safe to share between threads.

    What is known of a history is kept for as long as its last message lives. A thread takes it out to walk further,
    which is one atomic step; another thread that finds it gone walks from the start.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._kept: dict[int, Kept] = {}

    def messages(self, messages: Sequence[LlmMessage]) -> Sequence[LlmMessage]:
        """Give `messages` as the target takes them.

        Args:
            messages: oldest first, every call paired with its result, as in an `LlmContext`.

        Returns:
            The same object where nothing is wrong; else a list of the caller's own.
        """
        if not messages:
            return messages
        history = list(messages)
        walk = self._longest_known(history)
        for message in itertools.islice(history, len(walk.before), len(history) - 1):
            walk.go(message)
        last = history[-1]
        # The last message is walked again next time, so that nothing kept here holds it and the entry can go with it.
        fold = walk.fold.copy() if isinstance(last, AssistantMessage) else walk.fold
        taken = fold.take(last)
        given = walk.given.copy() if walk.given is not None else None
        walk.tail = None if any(message is last for message in taken) else taken
        self._keep(last, walk)
        if given is None:
            if len(taken) == 1 and taken[0] is last:
                return messages
            given = history[:-1]
        return given + list(taken)

    def _longest_known(self, history: list[LlmMessage]) -> _Walk:
        for position in range(len(history) - 1, -1, -1):
            kept = self._kept.pop(id(history[position]), None)
            if kept is not None:
                walk: _Walk = kept.value
                if len(walk.before) == position and walk.before == history[:position]:
                    return walk
                self._kept[kept.key] = kept
        return _Walk([], None, _Fold(self._target))

    def _keep(self, last: LlmMessage, walk: _Walk) -> None:
        self._kept[id(last)] = Kept(last, self._forget, walk)
        if len(self._kept) > MAX_CONVERSATIONS:
            self._kept.pop(next(iter(self._kept.copy())), None)

    def _forget(self, kept: Kept) -> None:
        self._kept.pop(kept.key, None)


@functools.lru_cache(maxsize=MAX_TARGETS)
def _of(target: Target) -> HandOver:
    return HandOver(target)


def hand_over(target: Target, messages: Sequence[LlmMessage]) -> Sequence[LlmMessage]:
    """Give `messages` as a target takes them, by the one `HandOver` that equal targets share.

    Args:
        target: the model that is asked.
        messages: as for `HandOver.messages`.
    """
    return _of(target).messages(messages)
