"""One streamed answer of the OpenAI chat API, put together from its chunks; no I/O.

Servers that call themselves compatible differ: calls interleave, ids and indexes are missing or repeated, names come in
pieces, whole or again and again, arguments as text or as an object, content as text or as parts. What can only be meant
one way is taken that way. The order of the checks in `_CallSlots.slot_of` is that of how much they can be trusted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from yiemagent.builder import MessageBuilder
from yiemagent.errors import BadResponseError, LlmConnectionError
from yiemagent.messages import AssistantMessage, StopReason, TextContent, ThinkingContent, ToolCall
from yiemagent.openai_format import assistant_message, stop_reason, usage
from yiemagent.providers.failures import error_from_value
from yiemagent.providers.reasoning_details import (
    TEXT_FIELDS,
    details_text,
    merged_details,
    thought_field,
)
from yiemagent.providers.think_tags import ThinkTags
from yiemagent.streaming import (
    DoneEvent,
    ErrorEvent,
    StreamEvent,
    new_call_id,
)

__all__ = ["ChunkAssembler"]

Kind = Literal["text", "thinking"]

_THOUGHT_KEYS = frozenset({*TEXT_FIELDS, "reasoning_details"})


class ChunkAssembler:
    """Turns chunks into stream events and the final message.

    Args:
        model: the model that was asked; provider: who was; api: the wire API.
        think_tags: whether thinking may come in the text, between <think> and </think>.
        signals_end: whether the server tells the end of its streams; else the end of the body is one.
    """

    def __init__(
        self,
        model: str,
        provider: str,
        api: str,
        *,
        think_tags: bool = False,
        signals_end: bool = True,
    ) -> None:
        self._builder = MessageBuilder(model, provider, api)
        self._started = False
        self._said_anything = False
        self._usage: Any = None
        self._finish: str | None = None
        self._text: int | None = None  # the open text block
        self._thinking: int | None = None  # the open thinking block
        self._details: list[Any] = []  # of the open thinking block
        self._tags = ThinkTags() if think_tags else None  # until it is known that none come
        self._signals_end = signals_end
        self._refused = False
        self._calls = _CallSlots(self._builder)
        # First halves of characters whose second half is still to come, by block.
        self._held: dict[int, str] = {}

    @property
    def has_content(self) -> bool:
        """Whether any of the answer came: from then on it can't be asked for again."""
        return self._builder.has_content

    @property
    def is_finished(self) -> bool:
        """Whether the server gave a reason why the answer ended."""
        return self._finish is not None

    @property
    def is_over(self) -> bool:
        """Whether nothing can follow; never so: usage comes after the reason, and the end has its own mark."""
        return False

    def take(self, chunk: Any) -> Sequence[StreamEvent]:
        """Take the JSON value of the next chunk.

        Raises:
            LlmError: the chunk tells of an error.
        """
        try:  # the way of nearly every chunk: more text, and nothing else
            choice = chunk["choices"][0]
            delta = choice["delta"]
            text = delta["content"]
            if (
                self._text is not None
                and len(delta) == 1
                and text.__class__ is str
                and text
                and text.isascii()
                and not self._held
                and choice.get("finish_reason") is None
                and not choice.get("index")
                and chunk.get("usage") is None
            ):
                return (self._builder.text_delta(self._text, text),)
        except (KeyError, IndexError, TypeError, AttributeError):
            pass
        return self._take_any(chunk)

    def _take_any(self, chunk: Any) -> Sequence[StreamEvent]:
        if not isinstance(chunk, Mapping):
            return ()
        if chunk.get("error"):
            raise error_from_value(chunk)
        if chunk.get("usage"):
            self._usage = chunk["usage"]
        if isinstance(chunk.get("id"), str) and chunk["id"]:
            self._builder.response_id = chunk["id"]
        choice = _first_choice(chunk.get("choices"))
        if choice is None:
            return ()
        self._said_anything = True
        finish = choice.get("finish_reason")
        if isinstance(finish, str) and finish:
            self._finish = finish
        delta = choice.get("delta")
        if delta is None and not self.has_content:
            delta = choice.get("message")  # an answer that comes whole
        return self._delta(delta) if isinstance(delta, Mapping) else ()

    def _delta(self, delta: Mapping[str, Any]) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        self._think(delta, events)
        content = delta.get("content")
        if isinstance(content, str):
            self._speak(content, events)
        elif isinstance(content, (list, tuple, Mapping)):
            self._parts(content, events)
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refused = True
            self._say("text", refusal, events)
        calls = delta.get("tool_calls")
        if not calls and isinstance(delta.get("function_call"), Mapping):
            calls = [{"index": 0, "function": delta["function_call"]}]
        for entry in calls if isinstance(calls, (list, tuple)) else ():
            if isinstance(entry, Mapping):
                self._call(entry, events)
        if events and not self._started:
            self._started = True
            events.insert(0, self._builder.start)
        return events

    def _think(self, delta: Mapping[str, Any], events: list[StreamEvent]) -> None:
        if _THOUGHT_KEYS.isdisjoint(delta):  # as nearly always
            return
        given = delta.get("reasoning_details")
        details = given if isinstance(given, (list, tuple)) else ()
        field = thought_field(delta)
        text = delta[field] if field else details_text(details)
        if text:
            self._say("thinking", text, events)
        if details:
            self._block("thinking", events)
            self._details += details
        elif field and self._thinking is not None:
            self._builder.sign(self._thinking, field)

    def _speak(self, text: str, events: list[StreamEvent]) -> None:
        if self._tags is None:
            self._say("text", text, events)
            return
        for kind, piece in self._tags.feed(text):
            self._say(kind, piece, events)

    def _end_tags(self, events: list[StreamEvent]) -> None:
        """Look for tags no longer: what was held back is what it seems."""
        tags, self._tags = self._tags, None
        for kind, piece in tags.end() if tags is not None else ():
            self._say(kind, piece, events)

    def _parts(self, content: Any, events: list[StreamEvent]) -> None:
        for block in assistant_message({"role": "assistant", "content": content}).content:
            if isinstance(block, ThinkingContent):
                self._say("thinking", block.thinking, events)
            elif isinstance(block, TextContent):
                self._say("text", block.text, events)
            elif isinstance(block, ToolCall):
                function = {"name": block.name, "arguments": block.arguments}
                self._call({"id": block.id, "function": function}, events)

    def _say(self, kind: Kind, text: str, events: list[StreamEvent]) -> None:
        if not text:
            return
        index = self._block(kind, events)
        if text := self._whole_characters(index, text):
            builder = self._builder
            add = builder.text_delta if kind == "text" else builder.thinking_delta
            events.append(add(index, text))

    def _block(self, kind: Kind, events: list[StreamEvent]) -> int:
        """Give the open block of a kind; one of the other kind is ended, so that the order shows what came first."""
        index = self._text if kind == "text" else self._thinking
        if index is None:
            self._end_prose(events)
            index, event = self._builder.begin(kind)
            events.append(event)
        self._text, self._thinking = (index, None) if kind == "text" else (None, index)
        return index

    def _end_prose(self, events: list[StreamEvent]) -> None:
        self._sign_thinking()
        for index in (self._text, self._thinking):
            if index is not None:
                self._give_up_half(index, events)
                events.append(self._builder.end_block(index))
        self._text = self._thinking = None

    def _sign_thinking(self) -> None:
        """Keep with the open thinking block what must go back with it."""
        details, self._details = merged_details(self._details), []
        if details and self._thinking is not None:
            signature = json.dumps(details, separators=(",", ":"))
            self._builder.sign(self._thinking, signature, redacted=not details_text(details))

    def _call(self, entry: Mapping[str, Any], events: list[StreamEvent]) -> None:
        self._end_tags(events)
        if self._thinking is not None:
            self._end_prose(events)
        function = entry.get("function")
        inner = function if isinstance(function, Mapping) else entry
        arguments = inner.get("arguments")
        if arguments is not None and not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False, default=str)
        call_id, name = (_word(entry.get("id")), _word(inner.get("name")))
        slot, event = self._calls.slot_of(entry.get("index"), call_id, name, arguments or "")
        if event is not None:
            events.append(event)
        if arguments and (text := self._whole_characters(slot.index, arguments)):
            slot.pieces.append(text)
            events.append(self._builder.arguments_delta(slot.index, text))

    def _whole_characters(self, index: int, text: str) -> str:
        """Give text without lone surrogates; a first half at its end waits for what comes next."""
        if index in self._held:
            text = self._held.pop(index) + text
        elif text.isascii():
            return text
        if "\ud800" <= text[-1] <= "\udbff":
            self._held[index] = text[-1]
            text = text[:-1]
        return _joined(text)

    def _give_up_half(self, index: int, events: list[StreamEvent]) -> None:
        if self._held.pop(index, None) is None:
            return
        builder = self._builder
        add = {self._text: builder.text_delta, self._thinking: builder.thinking_delta}
        events.append(add.get(index, builder.arguments_delta)(index, "\ufffd"))

    def end(self, *, signalled: bool) -> list[StreamEvent]:
        """Take the end of the stream; gives the last events, Done or Error among them.

        Args:
            signalled: whether the server said that it was the end.

        Raises:
            LlmConnectionError: the stream broke off.
            BadResponseError: it ended, and held no answer.
        """
        if not signalled and self._finish is None and self._signals_end:
            raise LlmConnectionError(
                "the stream is incomplete: it ended without a finish reason", None, True
            )
        if not self._said_anything:
            raise BadResponseError("the stream held no answer", None, True)
        events: list[StreamEvent] = [] if self._started else [self._builder.start]
        self._end_tags(events)
        self._calls.settle()
        self._sign_thinking()
        for index in list(self._held):
            self._give_up_half(index, events)
        events += self._builder.end_blocks()
        reason = stop_reason(self._finish, has_calls=bool(self._calls.slots))
        if self._refused:
            reason = "error"
        if reason == "error":
            said = "the model refused to answer" if self._refused else "the model ended its answer"
            said += f" with {self._finish!r}" if self._finish not in {None, "stop"} else ""
            failure = BadResponseError(said)
            return [*events, ErrorEvent(self.message("error", said), failure)]
        return [*events, DoneEvent(self.message(reason))]

    def message(self, reason: StopReason, error_message: str | None = None) -> AssistantMessage:
        """Give the message as it stands."""
        self._builder.usage = usage(self._usage)
        return self._builder.message(
            reason, raw_stop_reason=self._finish, error_message=error_message
        )


class _Slot:
    """One tool call under way."""

    __slots__ = ("call_id", "index", "name", "pieces")

    def __init__(self, index: int, call_id: str, name: str) -> None:
        self.index = index
        self.call_id = call_id
        self.name = name
        self.pieces: list[str] = []

    def is_whole(self) -> bool:
        """Whether the arguments so far are one JSON value; read only where their end looks like one."""
        if not self.pieces or not self.pieces[-1].rstrip().endswith("}"):
            return False
        try:
            json.loads("".join(self.pieces))
        except (ValueError, RecursionError):
            return False
        return True


class _CallSlots:
    """Finds out which call a piece belongs to."""

    def __init__(self, builder: MessageBuilder) -> None:
        self.slots: list[_Slot] = []
        self._builder = builder
        self._by_index: dict[int, _Slot] = {}
        self._by_id: dict[str, _Slot] = {}

    def slot_of(
        self, index: Any, call_id: str, name: str, arguments: str
    ) -> tuple[_Slot, StreamEvent | None]:
        """Give the call of a piece; with its Start event where the piece begins it."""
        index = _number(index)
        slot = self._known(index, call_id)
        if slot is not None:
            at_new_index = index is not None and index not in self._by_index
            told_again = call_id == slot.call_id and not at_new_index
            if self._begins_another(slot, call_id, name, arguments, told_again=told_again):
                slot = None
        event = None
        if slot is None:
            content_index, event = self._builder.begin("toolCall", call_id=call_id, name=name)
            slot = _Slot(content_index, call_id, name)
            self.slots.append(slot)
        else:
            self._name(slot, call_id, name)
        if index is not None:
            self._by_index[index] = slot
        if slot.call_id:
            self._by_id[slot.call_id] = slot
        return slot, event

    def _known(self, index: int | None, call_id: str) -> _Slot | None:
        if index is not None and index in self._by_index:
            return self._by_index[index]
        if call_id:
            return self._by_id.get(call_id)
        if index is None and self.slots:
            return self.slots[-1]
        return None

    @staticmethod
    def _begins_another(
        slot: _Slot, call_id: str, name: str, arguments: str, *, told_again: bool
    ) -> bool:
        if call_id and slot.call_id and call_id != slot.call_id:
            return True
        if call_id and told_again and name in {"", slot.name}:
            return False
        return bool(name and (arguments or call_id)) and slot.is_whole()

    def _name(self, slot: _Slot, call_id: str, name: str) -> None:
        if call_id and not slot.call_id:
            slot.call_id = call_id
        if name and name != slot.name and not slot.pieces:
            # A piece is added; a name that begins with what there is, is the whole of it.
            slot.name = name if name.startswith(slot.name) else slot.name + name
        self._builder.name_call(slot.index, call_id=slot.call_id, name=slot.name)

    def settle(self) -> None:
        """Give each call that has no id, or that of another, one of its own."""
        seen: set[str] = set()
        for slot in self.slots:
            if not slot.call_id or slot.call_id in seen:
                slot.call_id = new_call_id()
                self._builder.name_call(slot.index, call_id=slot.call_id)
            seen.add(slot.call_id)


def _first_choice(choices: Any) -> Mapping[str, Any] | None:
    """Give the choice that is the answer; of several that were asked for, the others are left out."""
    for choice in choices if isinstance(choices, (list, tuple)) else ():
        if isinstance(choice, Mapping) and not choice.get("index"):
            return choice
    return None


def _word(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _number(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value if isinstance(value, int) else None


def _joined(text: str) -> str:
    """Join halves of characters that stand side by side; a half that stands alone becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
