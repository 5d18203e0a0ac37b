"""One streamed answer of the OpenAI Responses API, put together from its events; no I/O.

An answer is a list of output items, of which each is announced, filled by deltas and told whole at its end; the last
event holds all of them once more. What deltas left out is taken from where it is told whole.

What has to go back to the same model is kept in signatures, as JSON: of reasoning, and of items that only the server
understands, the whole item; of texts and calls their ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, TypeAlias

from yiemagent.builder import MessageBuilder
from yiemagent.errors import BadResponseError, LlmConnectionError
from yiemagent.messages import AssistantMessage, StopReason
from yiemagent.openai_reading import usage
from yiemagent.providers.failures import error_from_value, shortened
from yiemagent.providers.responses_items import Block, Item, Items, number, word
from yiemagent.quoting import Quoting
from yiemagent.streaming import DoneEvent, ErrorEvent, StreamEvent

__all__ = ["ResponseAssembler", "whole_answer"]

Kind: TypeAlias = Literal["text", "thinking", "toolCall"]
_Handler: TypeAlias = "Callable[[ResponseAssembler, Mapping[str, Any], list[StreamEvent]], None]"

TEXT_DELTA = "response.output_text.delta"
CUSTOM_CALL = "custom_tool_call"
_CALLS: Final = {"function_call", CUSTOM_CALL}
_SECTION_BREAK = "\n\n"


class ResponseAssembler:
    """Turns the events of a response into stream events and the final message.

    Args:
        model: the model that was asked; provider: who was; api: the wire API.
    """

    def __init__(self, model: str, provider: str, api: str) -> None:
        self._builder = MessageBuilder(model, provider, api)
        self._items = Items()
        # Reasoning begins with what comes next: a failure before that can still be asked for again.
        self._waiting: list[Item] = []
        self._given = False
        self._status: str | None = None
        self._raw: str | None = None
        self._refused = False
        self._usage: Any = None
        self._text: Block | None = None  # the block that text came for last

    @property
    def has_content(self) -> bool:
        """Whether any of the answer came: from then on it can't be asked for again."""
        return self._given

    @property
    def is_finished(self) -> bool:
        """Whether the server told how the answer ended."""
        return self._status is not None

    @property
    def is_over(self) -> bool:
        """Whether nothing can follow: the response was told whole."""
        return self._status is not None

    def take(self, chunk: Any) -> Sequence[StreamEvent]:
        """Take the JSON value of the next event.

        Raises:
            LlmError: the event tells of an error.
        """
        block = self._text
        try:  # the way of nearly every event: more text, and nothing else
            delta = chunk["delta"]
            if (
                block is not None
                and chunk["type"] == TEXT_DELTA
                and chunk["item_id"] == block.item_id
                and chunk.get("content_index", 0) == block.part
                and delta.__class__ is str
                and delta
                and delta.isascii()
                and not block.held
            ):
                block.taken += len(delta)
                return (self._builder.text_delta(block.index, delta),)
        except (KeyError, TypeError, AttributeError):
            pass
        return self._take_any(chunk)

    def _take_any(self, chunk: Any) -> Sequence[StreamEvent]:
        if not isinstance(chunk, Mapping):
            return ()
        kind = chunk.get("type")
        if kind == "error" or (kind is None and chunk.get("error")):
            raise error_from_value(chunk)
        handler = self._HANDLERS.get(kind) if isinstance(kind, str) else None
        if handler is None:
            return ()
        events: list[StreamEvent] = []
        handler(self, chunk, events)
        return self._with_start(events) if events else ()

    def _with_start(self, events: list[StreamEvent]) -> list[StreamEvent]:
        if not self._given:
            self._given = True
            events.insert(0, self._builder.start)
        return events

    # -- the response --------------------------------------------------------------------------------------------

    def _note_response(self, chunk: Mapping[str, Any], _events: list[StreamEvent]) -> None:
        response = chunk.get("response")
        if not isinstance(response, Mapping):
            return
        if isinstance(response.get("id"), str) and response["id"]:
            self._builder.response_id = response["id"]
        if response.get("usage"):
            self._usage = response["usage"]

    def _end_response(self, chunk: Mapping[str, Any], events: list[StreamEvent]) -> None:
        """Take the end: what is told whole here and did not come before is part of the answer too."""
        self._note_response(chunk, events)
        given = chunk.get("response")
        response: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        status = word(response.get("status")) or chunk["type"].removeprefix("response.")
        if status == "failed":
            raise error_from_value(response.get("error") or "the response failed")
        details = response.get("incomplete_details")
        reason = word(details.get("reason")) if isinstance(details, Mapping) else ""
        self._status, self._raw = status, reason or status
        self._take_output(response.get("output"), events)

    def _take_output(self, output: Any, events: list[StreamEvent]) -> None:
        """Take the items that did not come before; of a kind that came, none is taken for new: a call is made once."""
        came = {item.kind for item in self._items.all}
        for place, given in enumerate(_mappings(output)):
            known = self._items.told(given, place) is not None
            if known or word(given.get("type")) not in came:
                self._finish_item(given, place, events)

    # -- items ---------------------------------------------------------------------------------------------------

    def _add_item(self, chunk: Mapping[str, Any], events: list[StreamEvent]) -> None:
        given = chunk.get("item")
        if isinstance(given, Mapping) and not self._items.announced(given):
            self._begin_item(given, number(chunk.get("output_index")), events)

    def _begin_item(
        self, given: Mapping[str, Any], place: int | None, events: list[StreamEvent]
    ) -> Item:
        item = self._items.add(given, place)
        if item.kind == "reasoning":
            self._waiting.append(item)
        elif item.kind in _CALLS:
            self._begin(item, 0, "toolCall", events)
        return item

    def _end_item(self, chunk: Mapping[str, Any], events: list[StreamEvent]) -> None:
        given = chunk.get("item")
        if isinstance(given, Mapping):
            self._finish_item(given, number(chunk.get("output_index")), events)

    def _finish_item(
        self, given: Mapping[str, Any], place: int | None, events: list[StreamEvent]
    ) -> None:
        """Take an item whole: what the deltas left out, what has to go back, and its end."""
        item = self._items.told(given, place) or self._begin_item(given, place, events)
        if item.is_done or not item.kind:
            return
        item.is_done = True
        if item.kind == "message":
            self._finish_message(item, given, events)
        elif item.kind in _CALLS:
            self._finish_call(item, given, events)
        else:
            self._finish_opaque(item, given, events)
        self._close(item, events)

    def _finish_message(
        self, item: Item, given: Mapping[str, Any], events: list[StreamEvent]
    ) -> None:
        for place, part in enumerate(_mappings(given.get("content"))):
            refusal = word(part.get("refusal"))
            self._refused |= bool(refusal)
            self._complete(item, place, "text", word(part.get("text")) or refusal, events)
        marks = {"id": word(given.get("id")), "phase": word(given.get("phase"))}
        known = {key: value for key, value in marks.items() if value}
        for block in item.blocks.values() if known else ():
            self._builder.sign(block.index, _json(known))

    def _finish_call(self, item: Item, given: Mapping[str, Any], events: list[StreamEvent]) -> None:
        block = self._begin(item, 0, "toolCall", events)
        call_id, name = word(given.get("call_id")), word(given.get("name"))
        self._builder.name_call(block.index, call_id=call_id or None, name=name or None)
        if item.kind == CUSTOM_CALL:
            whole = _custom_arguments(given)
        else:
            arguments = given.get("arguments")
            whole = arguments if isinstance(arguments, str) else _json(arguments or {})
        self._complete(item, 0, "toolCall", whole, events)
        marks = {"type": CUSTOM_CALL} if item.kind == CUSTOM_CALL else {}
        if item_id := word(given.get("id")):
            marks["id"] = item_id
        if marks:
            self._builder.sign(block.index, _json(marks))

    def _finish_opaque(
        self, item: Item, given: Mapping[str, Any], events: list[StreamEvent]
    ) -> None:
        """End reasoning; and what is none of ours, such as a search on the server, which goes back all the same."""
        block = self._begin(item, 0, "thinking", events)
        # A field that is null is told, but not taken back by every server.
        kept = {key: value for key, value in given.items() if value is not None}
        if item.kind == "reasoning":
            kept.setdefault(
                "summary", []
            )  # told by some servers only where there is one, but wanted by all
            texts = [*_texts(given.get("summary")), *_texts(given.get("content"))]
            if not block.taken:
                self._say(block, "thinking", _SECTION_BREAK.join(texts), events)
        self._builder.sign(block.index, _json(kept), redacted=not block.taken)

    # -- pieces --------------------------------------------------------------------------------------------------

    def _add_text(self, chunk: Mapping[str, Any], events: list[StreamEvent]) -> None:
        part = number(chunk.get("content_index")) or 0
        item = self._item_of(chunk, "message", events)
        self._refused |= chunk["type"] == "response.refusal.delta"
        delta = word(chunk.get("delta"))
        if delta and not item.is_done:
            block = self._begin(item, part, "text", events)
            self._say(block, "text", delta, events)
            block.item_id = word(chunk.get("item_id"))
            self._text = block

    def _add_thinking(self, chunk: Mapping[str, Any], events: list[StreamEvent]) -> None:
        item = self._item_of(chunk, "reasoning", events)
        delta = word(chunk.get("delta"))
        if not delta or item.is_done:
            return
        block = self._begin(item, 0, "thinking", events)
        section = (chunk["type"], chunk.get("summary_index") or chunk.get("content_index") or 0)
        if block.taken and section != item.section:
            delta = _SECTION_BREAK + delta
        item.section = section
        self._say(block, "thinking", delta, events)

    def _add_arguments(self, chunk: Mapping[str, Any], events: list[StreamEvent]) -> None:
        item = self._item_of(chunk, "function_call", events)
        delta = chunk.get("delta")
        if delta is not None and not isinstance(delta, str):
            delta = _json(delta)
        if delta and not item.is_done:
            self._say(self._begin(item, 0, "toolCall", events), "toolCall", delta, events)

    def _add_input(self, chunk: Mapping[str, Any], events: list[StreamEvent]) -> None:
        item = self._item_of(chunk, CUSTOM_CALL, events)
        delta = word(chunk.get("delta"))
        if delta and not item.is_done:
            block = self._begin(item, 0, "toolCall", events)
            text = _json(delta, ascii_only=False)[1:-1]
            self._say(block, "toolCall", text if block.taken else '{"input":"' + text, events)

    def _end_text(self, chunk: Mapping[str, Any], events: list[StreamEvent]) -> None:
        item = self._item_of(chunk, "message", events)
        refusal = word(chunk.get("refusal"))
        self._refused |= bool(refusal)
        if not item.is_done:
            part = number(chunk.get("content_index")) or 0
            self._complete(item, part, "text", word(chunk.get("text")) or refusal, events)

    def _end_arguments(self, chunk: Mapping[str, Any], events: list[StreamEvent]) -> None:
        item = self._item_of(chunk, "function_call", events)
        if not item.is_done:
            self._complete(item, 0, "toolCall", word(chunk.get("arguments")), events)

    def _end_input(self, chunk: Mapping[str, Any], events: list[StreamEvent]) -> None:
        item = self._item_of(chunk, CUSTOM_CALL, events)
        if not item.is_done:
            self._complete(item, 0, "toolCall", _custom_arguments(chunk), events)

    def _item_of(self, chunk: Mapping[str, Any], kind: str, events: list[StreamEvent]) -> Item:
        """Give the item that an event is about; one that was never announced begins here."""
        item = self._items.meant(chunk, kind)
        if item is None:
            given = {"type": kind, "id": chunk.get("item_id"), "name": chunk.get("name")}
            item = self._begin_item(given, number(chunk.get("output_index")), events)
        return item

    def _begin(self, item: Item, part: int, kind: Kind, events: list[StreamEvent]) -> Block:
        waiting, self._waiting = self._waiting, []
        for earlier in waiting:
            self._begin(earlier, 0, "thinking", events)
        block = item.blocks.get(part)
        if block is None:
            index, event = self._builder.begin(kind, call_id=item.call_id, name=item.name)
            block = item.blocks[part] = Block(index, part)
            events.append(event)
        return block

    def _complete(
        self, item: Item, part: int, kind: Kind, whole: str, events: list[StreamEvent]
    ) -> None:
        """Add what of a text, told whole, did not come yet."""
        known = item.blocks.get(part)
        if len(whole) > (known.taken if known is not None else 0):
            block = self._begin(item, part, kind, events)
            block.held = ""  # the half of a character that waits is in what is missing, whole
            self._say(block, kind, whole[block.taken :], events)

    def _say(self, block: Block, kind: Kind, text: str, events: list[StreamEvent]) -> None:
        if text := block.whole_characters(text):
            block.taken += len(text)
            builder = self._builder
            if kind == "text":
                events.append(builder.text_delta(block.index, text))
            elif kind == "thinking":
                events.append(builder.thinking_delta(block.index, text))
            else:
                events.append(builder.arguments_delta(block.index, text))

    def _close(self, item: Item, events: list[StreamEvent]) -> None:
        kind: Kind = "text" if item.kind == "message" else "thinking"
        if item.kind in _CALLS:
            kind = "toolCall"
        for block in item.blocks.values():
            if block.held:
                block.held = ""
                self._say(block, kind, "\ufffd", events)
            events.append(self._builder.end_block(block.index))
            if block is self._text:
                self._text = None
        item.is_done = True

    # -- the end -------------------------------------------------------------------------------------------------

    def end(self, *, signalled: bool) -> list[StreamEvent]:
        """Take the end of the stream; gives the last events, Done or Error among them.

        Args:
            signalled: whether the server said that it was the end.

        Raises:
            LlmConnectionError: the stream broke off.
            BadResponseError: it ended, and held no answer.
        """
        if not signalled and self._status is None:
            raise LlmConnectionError(
                "the stream is incomplete: it ended before the response did", None, True
            )
        if self._status is None and not self._given:
            raise BadResponseError("the stream held no answer", None, True)
        events: list[StreamEvent] = []
        for item in self._items.all:
            if not item.is_done:
                self._close(item, events)
        if events or not self._given:
            events = self._with_start(events)
        reason, said = self._outcome()
        if said is not None:
            return [*events, ErrorEvent(self.message("error", said), BadResponseError(said))]
        return [*events, DoneEvent(self.message(reason))]

    def _outcome(self) -> tuple[StopReason, str | None]:
        """Give the stop reason, and what went wrong where it is an error."""
        if self._refused:
            self._raw = "refusal"  # the status says no more than that the response is over
            return "error", "the model refused to answer"
        if self._raw == "content_filter" or self._status == "cancelled":
            return "error", f"the model ended its answer with {self._raw!r}"
        if self._status == "incomplete":  # whatever the reason is, a part is missing
            return "length", None
        has_calls = any(item.kind in _CALLS for item in self._items.all)
        return "tool_use" if has_calls else "stop", None

    def message(self, reason: StopReason, error_message: str | None = None, /) -> AssistantMessage:
        """Give the message as it stands."""
        self._builder.usage = usage(self._usage)
        return self._builder.message(reason, raw_stop_reason=self._raw, error_message=error_message)

    _HANDLERS: ClassVar[Mapping[str, _Handler]] = {
        "response.created": _note_response,
        "response.in_progress": _note_response,
        "response.output_item.added": _add_item,
        "response.reasoning_summary_text.delta": _add_thinking,
        "response.reasoning_text.delta": _add_thinking,
        TEXT_DELTA: _add_text,
        "response.output_text.done": _end_text,
        "response.refusal.delta": _add_text,
        "response.refusal.done": _end_text,
        "response.function_call_arguments.delta": _add_arguments,
        "response.function_call_arguments.done": _end_arguments,
        "response.custom_tool_call_input.delta": _add_input,
        "response.custom_tool_call_input.done": _end_input,
        "response.output_item.done": _end_item,
        "response.completed": _end_response,
        "response.incomplete": _end_response,
        "response.failed": _end_response,
        "response.cancelled": _end_response,
    }


def whole_answer(value: Any, model: str, provider: str, api: str) -> AssistantMessage:
    """Give the message of a response that was not streamed.

    Raises:
        BadResponseError: it is no response, or one that is not over.
        LlmError: it failed.
    """
    status = value.get("status") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(value.get("output"), list):
        before = "the model's server sent no response object: "
        raise BadResponseError(Quoting(before, shortened(_json(value), 200)))
    if status in ("queued", "in_progress"):
        raise BadResponseError(f"the response is {status}: it was left to run in the background")
    answer = ResponseAssembler(model, provider, api)
    answer.take({"type": "response.completed", "response": value})
    last = answer.end(signalled=True)[-1]
    assert isinstance(last, (DoneEvent, ErrorEvent))
    return last.message


# --- values -----------------------------------------------------------------------------------------------------


def _mappings(values: Any) -> list[Mapping[str, Any]]:
    given = values if isinstance(values, (list, tuple)) else ()
    return [value for value in given if isinstance(value, Mapping)]


def _texts(parts: Any) -> list[str]:
    return [text for part in _mappings(parts) if (text := word(part.get("text")))]


def _custom_arguments(given: Mapping[str, Any]) -> str:
    return _json({"input": word(given.get("input"))}, ascii_only=False)


def _json(value: Any, *, ascii_only: bool = True) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=ascii_only, default=str)
