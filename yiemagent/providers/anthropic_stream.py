"""One answer of the Anthropic Messages API, put together from its stream events; no I/O.

The API tells of its answer block by block, by index. Text, thinking and tool calls become blocks of ours. What has no
block of ours (calls of tools that run on the server, their results, and whatever the API learns to say) is kept whole
as the signature of an empty text block, and so are the citations of a text, so that the same model is sent back
exactly what it said. `anthropic_body` reads these signatures.

Text and thinking begin with their first words: a block that stays empty leaves nothing behind, and an answer that
fails before it says anything can be asked for again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from yiemagent.builder import MessageBuilder
from yiemagent.errors import BadResponseError, LlmConnectionError, LlmError
from yiemagent.history import clean_text
from yiemagent.messages import AssistantMessage, LlmUsage, StopReason
from yiemagent.providers.failures import error_from_value, shortened
from yiemagent.quoting import Quoting
from yiemagent.streaming import DoneEvent, ErrorEvent, StreamEvent

__all__ = ["AnthropicAssembler", "error_of", "whole_answer"]

# What each kind of error means in HTTP; an error in a stream comes with the status 200.
_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_STOP_REASONS: dict[str | None, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_use",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "error",
}
# The fields of a call that have a place of their own; any other is kept in its signature.
_CALL_FIELDS = {"type", "id", "name", "input"}


class AnthropicAssembler:
    """Turns the events of a stream into stream events of ours and the final message.

    Args:
        model: the model that was asked; provider: who was; api: the wire API.
    """

    def __init__(self, model: str, provider: str, api: str) -> None:
        self._builder = MessageBuilder(model, provider, api)
        self._started = False
        self._said_anything = False
        self._blocks: dict[int, _Block] = {}  # those that are open, by the API's index
        self._usage: dict[str, Any] = {}
        self._finish: str | None = None
        self._refusal: Mapping[str, Any] = {}
        self._has_calls = False
        self.is_over = False

    @property
    def has_content(self) -> bool:
        """Whether any of the answer came: from then on it can't be asked for again."""
        return self._builder.has_content

    @property
    def is_finished(self) -> bool:
        """Whether the server gave a reason why the answer ended."""
        return self._finish is not None

    def take(self, chunk: Any) -> Sequence[StreamEvent]:
        """Take the JSON value of the next event.

        Raises:
            LlmError: the event tells of an error.
        """
        try:  # the way of nearly every event: more of an open block, and nothing to look after in it
            block = self._blocks[chunk["index"]]
            text = chunk["delta"][block.delta_key]
            index = block.content_index
            if index is not None and text.__class__ is str and text.isascii() and not block.held:
                return (block.add(index, text),) if text else ()
        except (KeyError, TypeError):
            pass
        return self._take_any(chunk) if isinstance(chunk, Mapping) else ()

    def _take_any(self, event: Mapping[str, Any]) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        match event.get("type"):
            case "content_block_start":
                self._begin(
                    _number(event.get("index")), _mapping(event.get("content_block")), events
                )
            case "content_block_delta":
                block = self._blocks.get(_number(event.get("index")))
                if block is not None:
                    block.take(_mapping(event.get("delta")), events)
            case "content_block_stop":
                block = self._blocks.pop(_number(event.get("index")), None)
                if block is not None:
                    block.end(events)
            case "message_start":
                self._message_start(_mapping(event.get("message")))
            case "message_delta":
                self._message_delta(event)
            case "message_stop":
                self._said_anything = self.is_over = True
            case "error":
                raise error_of(event)
            case kind if kind is None and event.get("error"):
                raise error_of(event)
        if events and not self._started:
            self._started = True
            events.insert(0, self._builder.start)
        return events

    def _message_start(self, message: Mapping[str, Any]) -> None:
        self._said_anything = True
        if isinstance(message.get("id"), str):
            self._builder.response_id = message["id"]
        self._note_usage(message.get("usage"))

    def _message_delta(self, event: Mapping[str, Any]) -> None:
        self._said_anything = True
        delta = _mapping(event.get("delta"))
        if isinstance(delta.get("stop_reason"), str):
            self._finish = delta["stop_reason"]
            self._refusal = _mapping(delta.get("stop_details"))
        self._note_usage(event.get("usage"))

    def _note_usage(self, usage: Any) -> None:
        # The counts are totals, so the last one of each field counts; one that is left out keeps its value.
        self._usage |= {key: value for key, value in _mapping(usage).items() if value is not None}

    def _begin(self, index: int, fields: Mapping[str, Any], events: list[StreamEvent]) -> None:
        if (unended := self._blocks.pop(index, None)) is not None:
            unended.end(events)
        make = _BLOCKS.get(str(fields.get("type")), _OpaqueBlock)
        self._has_calls = self._has_calls or make is _CallBlock
        self._said_anything = True
        self._blocks[index] = block = make(self._builder, fields)
        block.begin(events)

    def end(self, *, signalled: bool) -> list[StreamEvent]:
        """Take the end of the stream; gives the last events, Done or Error among them.

        Args:
            signalled: whether the server said that it was the end.

        Raises:
            LlmConnectionError: the stream broke off.
            BadResponseError: it ended, and held no answer.
        """
        if not signalled and self._finish is None:
            raise LlmConnectionError(
                "the stream is incomplete: it ended without a stop reason", None, True
            )
        if not self._said_anything:
            raise BadResponseError("the stream held no answer", None, True)
        events: list[StreamEvent] = []
        for index in sorted(self._blocks):
            self._blocks.pop(index).end(events)
        if not self._started:
            events.insert(0, self._builder.start)
        reason = _stop_reason(self._finish, has_calls=self._has_calls)
        if reason == "error":
            said = _refused(self._finish, self._refusal)
            return [*events, ErrorEvent(self.message("error", said), BadResponseError(said))]
        return [*events, DoneEvent(self.message(reason))]

    def message(self, reason: StopReason, error_message: str | None = None) -> AssistantMessage:
        """Give the message as it stands."""
        self._builder.usage = _usage(self._usage)
        return self._builder.message(
            reason, raw_stop_reason=self._finish, error_message=error_message
        )


def whole_answer(value: Any) -> AssistantMessage:
    """Give an answer that came as one JSON value; api, provider and model are left empty.

    Raises:
        BadResponseError: it is no answer of this API.
        LlmError: it tells of an error.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("content"), (list, tuple)):
        if isinstance(value, Mapping) and value.get("error"):
            raise error_of(value)
        before = "the model's server sent no message: "
        raise BadResponseError(Quoting(before, repr(shortened(str(value), 200))), None, True)
    assembler = AnthropicAssembler("", "", "")
    assembler.take({"type": "message_start", "message": value})
    for index, block in enumerate(value["content"]):
        assembler.take({"type": "content_block_start", "index": index, "content_block": block})
        assembler.take({"type": "content_block_stop", "index": index})
    assembler.take({"type": "message_delta", "delta": value})
    last = assembler.end(signalled=True)[-1]
    assert isinstance(last, (DoneEvent, ErrorEvent))
    return last.message


def error_of(value: Mapping[str, Any]) -> LlmError:
    """Give the error that an error event or an error body means; its kind stands for the HTTP status."""
    kind = _mapping(value.get("error")).get("type")
    return error_from_value(value, _STATUSES.get(str(kind)))


def _stop_reason(raw: str | None, *, has_calls: bool) -> StopReason:
    reason = _STOP_REASONS.get(raw, "stop")
    if has_calls and reason == "stop":
        return "tool_use"
    return "stop" if reason == "tool_use" and not has_calls else reason


def _refused(raw: str | None, details: Mapping[str, Any]) -> str:
    said = f"the model ended its answer with {raw!r}"
    if isinstance(details.get("category"), str):
        said += f" ({details['category']})"
    if isinstance(details.get("explanation"), str):
        said += f": {details['explanation']}"
    return said


def _usage(counts: Mapping[str, Any]) -> LlmUsage | None:
    if not counts:
        return None
    return LlmUsage(
        _count(counts.get("input_tokens")),
        _count(counts.get("output_tokens")),
        _count(counts.get("cache_read_input_tokens")),
        _count(counts.get("cache_creation_input_tokens")),
        _count(_mapping(counts.get("output_tokens_details")).get("thinking_tokens")),
    )


def _count(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


def _number(value: Any) -> int:
    return value if isinstance(value, int) else -1


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


# --- blocks ---------------------------------------------------------------------------------------------------------


class _Block:
    """One block under way: text, or what reads like it.

    `content_index` is the place among our blocks, or None while the block has not begun there.
    """

    delta_key = "text"

    def __init__(self, builder: MessageBuilder, fields: Mapping[str, Any]) -> None:
        self.builder = builder
        self.fields = fields
        self.content_index: int | None = None
        self.add: Callable[[int, str], StreamEvent] = builder.text_delta
        self.held = ""  # the first half of a character whose second half is still to come
        self.citations: list[Any] = []

    def begin(self, events: list[StreamEvent]) -> None:
        """Take what stands in the block's beginning already."""
        self._say(self.fields.get(self.delta_key), events)
        citations = self.fields.get("citations")
        self.citations = list(citations) if isinstance(citations, (list, tuple)) else []

    def take(self, delta: Mapping[str, Any], events: list[StreamEvent]) -> None:
        """Take a delta, of whatever kind."""
        self._say(delta.get(self.delta_key), events)
        if delta.get("citation") is not None:
            self.citations.append(delta["citation"])

    def end(self, events: list[StreamEvent]) -> None:
        """Take the block's end; one that said nothing never was."""
        if self.held:
            self.held = ""
            events.append(self.add(self._begun(events), "\ufffd"))
        if self.citations:
            self.builder.sign(self._begun(events), json.dumps({"citations": self.citations}))
        if self.content_index is not None:
            events.append(self.builder.end_block(self.content_index))

    def _begun(self, events: list[StreamEvent]) -> int:
        if self.content_index is None:
            self.content_index, event = self._start()
            events.append(event)
        return self.content_index

    def _start(self) -> tuple[int, StreamEvent]:
        return self.builder.begin("text")

    def _say(self, text: Any, events: list[StreamEvent]) -> None:
        """Add text; the first half of a character at its end waits for the other."""
        if not isinstance(text, str) or not text:
            return
        text, self.held = self.held + text, ""
        if "\ud800" <= text[-1] <= "\udbff":
            text, self.held = text[:-1], text[-1]
        if text:
            events.append(self.add(self._begun(events), clean_text(text)))


class _ThinkingBlock(_Block):
    """Thinking: its signature, without which it can't be sent back, comes last."""

    delta_key = "thinking"

    def __init__(self, builder: MessageBuilder, fields: Mapping[str, Any]) -> None:
        super().__init__(builder, fields)
        self.add = builder.thinking_delta

    def begin(self, events: list[StreamEvent]) -> None:
        super().begin(events)
        self._sign(self.fields, events)

    def take(self, delta: Mapping[str, Any], events: list[StreamEvent]) -> None:
        super().take(delta, events)
        self._sign(delta, events)

    def _sign(self, fields: Mapping[str, Any], events: list[StreamEvent]) -> None:
        if isinstance(fields.get("signature"), str) and fields["signature"]:
            self.builder.sign(self._begun(events), fields["signature"])

    def _start(self) -> tuple[int, StreamEvent]:
        return self.builder.begin("thinking")


class _RedactedBlock(_ThinkingBlock):
    """Thinking that the API withholds: only its signature comes, under another name."""

    def begin(self, events: list[StreamEvent]) -> None:
        self.builder.sign(self._begun(events), str(self.fields.get("data") or ""), redacted=True)


class _CallBlock(_Block):
    """A call of one of our tools."""

    delta_key = "partial_json"

    def __init__(self, builder: MessageBuilder, fields: Mapping[str, Any]) -> None:
        super().__init__(builder, fields)
        self.add = self._first_piece
        self._is_told = False

    def _first_piece(self, index: int, text: str) -> StreamEvent:
        self._is_told, self.add = True, self.builder.arguments_delta
        return self.add(index, text)

    def begin(self, events: list[StreamEvent]) -> None:
        index = self._begun(events)
        more = {key: value for key, value in self.fields.items() if key not in _CALL_FIELDS}
        if any(value is not None for value in more.values()):
            self.builder.sign(index, json.dumps(more))

    def end(self, events: list[StreamEvent]) -> None:
        given = self.fields.get("input")
        if given and not self._is_told:  # a server that says it all at once
            self._say(given if isinstance(given, str) else json.dumps(given), events)
        super().end(events)

    def _start(self) -> tuple[int, StreamEvent]:
        call_id, name = self.fields.get("id"), self.fields.get("name")
        return self.builder.begin("toolCall", call_id=str(call_id or ""), name=str(name or ""))


class _OpaqueBlock(_Block):
    """A block that is kept as it came: nothing of it is shown, all of it is sent back."""

    delta_key = ""  # no delta takes the short way

    def begin(self, events: list[StreamEvent]) -> None:
        self.pieces: dict[str, list[str]] = {}
        self._begun(events)

    def take(self, delta: Mapping[str, Any], _events: list[StreamEvent]) -> None:
        for key, value in delta.items():
            if key != "type" and isinstance(value, str):
                self.pieces.setdefault(key, []).append(value)

    def end(self, events: list[StreamEvent]) -> None:
        block = dict(self.fields)
        for key, pieces in self.pieces.items():
            text = "".join(pieces)
            if key == "partial_json":
                block["input"] = _json_or(text, block.get("input"))
            else:
                block[key] = f"{block.get(key) or ''}{text}"
        self.builder.sign(self._begun(events), json.dumps({"block": block}))
        super().end(events)


def _json_or(text: str, other: Any) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return other


_BLOCKS: dict[str, type[_Block]] = {
    "text": _Block,
    "thinking": _ThinkingBlock,
    "redacted_thinking": _RedactedBlock,
    "tool_use": _CallBlock,
}
