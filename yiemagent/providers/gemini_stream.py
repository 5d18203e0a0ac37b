"""One answer of the Gemini API, put together from its chunks; no I/O.

Each chunk is a whole GenerateContentResponse whose first candidate has the next parts (Gemini API reference, section
"Generating content"). Text that is streamed comes as many parts of one kind, which make one block. A part with a
thought signature is a block of its own, even an empty one, since the signature must go back in the part that it came
with (Gemini API, "Thought signatures"). Calls come whole. There is no mark of the end but the finish reason; usage
counts up from chunk to chunk, and may come behind it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs

from yiemagent.builder import MessageBuilder
from yiemagent.errors import BadResponseError, LlmConnectionError
from yiemagent.messages import AssistantMessage, ImageContent, LlmUsage, StopReason
from yiemagent.providers.failures import error_from_value, shortened
from yiemagent.streaming import DoneEvent, ErrorEvent, StreamEvent, new_call_id

__all__ = ["GeminiAssembler"]

Kind = Literal["text", "thinking"]

_INT64 = re.compile(r"[0-9]{1,19}")
# What the answer's limit or the request's own limit cut off.
_CUT = frozenset({"MAX_TOKENS", "CONTINUATION"})
# A slip of the model: asking again may give a good answer.
_SLIPS = frozenset(
    {"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "NO_IMAGE"}
)
_FAILURES = _SLIPS | {
    "BLOCKLIST", "IMAGE_OTHER", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "IMAGE_SAFETY", "LANGUAGE",
    "MISSING_THOUGHT_SIGNATURE", "MODEL_ARMOR", "OTHER", "PROHIBITED_CONTENT", "RECITATION", "SAFETY", "SPII",
    "TOO_MANY_TOOL_CALLS",
}  # fmt: skip


class GeminiAssembler:
    """Turns chunks into stream events and the final message.

    Args:
        model: the model that was asked; provider: who was; api: the wire API.
    """

    def __init__(self, model: str, provider: str, api: str) -> None:
        self._builder = MessageBuilder(model, provider, api)
        self._started = False
        self._said_anything = False
        self._usage: dict[str, Any] = {}
        self._finish: str | None = None
        self._why: str = ""  # the server's words about the finish reason
        self._blocked = False  # the prompt was refused, so there is no answer
        self._text: int | None = None  # the open text block
        self._thinking: int | None = None  # the open thinking block
        self._half = ""  # the first half of a character whose second half is still to come
        self._calls: dict[str, str] = {}  # what each call was, by id
        self._images: list[ImageContent] = []

    @property
    def has_content(self) -> bool:
        """Whether any of the answer came: from then on it can't be asked for again."""
        return self._builder.has_content or bool(self._images)

    @property
    def is_finished(self) -> bool:
        """Whether the server gave a reason why the answer ended."""
        return self._finish is not None

    @property
    def is_over(self) -> bool:
        """Whether nothing can follow: never said; usage and signatures may come behind the finish reason."""
        return False

    def take(self, chunk: Any) -> Sequence[StreamEvent]:
        """Take the JSON value of the next chunk.

        Raises:
            LlmError: the chunk tells of an error.
        """
        try:  # the way of nearly every chunk: more text, and nothing else
            candidate = chunk["candidates"][0]
            (part,) = candidate["content"]["parts"]
            text = part["text"]
            if (
                self._text is not None
                and len(part) == 1
                and text.__class__ is str
                and text
                and text.isascii()
                and not self._half
                and "finishReason" not in candidate
                and "error" not in chunk
            ):
                self._usage |= chunk.get("usageMetadata") or {}
                return (self._builder.text_delta(self._text, text),)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            pass
        return self._take_any(chunk)

    def _take_any(self, chunk: Any) -> Sequence[StreamEvent]:
        if not isinstance(chunk, Mapping):
            return ()
        if chunk.get("error"):
            raise error_from_value(chunk)
        if isinstance(usage := chunk.get("usageMetadata"), Mapping):
            self._usage |= usage
        if (response_id := _word(chunk.get("responseId"))) and not self._builder.response_id:
            self._builder.response_id = response_id
        feedback = chunk.get("promptFeedback")
        if isinstance(feedback, Mapping) and (reason := _reason_word(feedback.get("blockReason"))):
            self._blocked = self._said_anything = True
            self._finish, self._why = reason, _word(feedback.get("blockReasonMessage"))
        candidate = _first(chunk.get("candidates"))
        return self._candidate(candidate) if isinstance(candidate, Mapping) else ()

    def _candidate(self, candidate: Mapping[str, Any]) -> list[StreamEvent]:
        self._said_anything = True
        if finish := _reason_word(candidate.get("finishReason")):
            self._finish, self._why = finish, _word(candidate.get("finishMessage"))
        content = candidate.get("content")
        parts = content.get("parts") if isinstance(content, Mapping) else None
        events: list[StreamEvent] = []
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, Mapping):
                self._part(part, events)
        if events and not self._started:
            self._started = True
            events.insert(0, self._builder.start)
        return events

    def _part(self, part: Mapping[str, Any], events: list[StreamEvent]) -> None:
        call, image = part.get("functionCall"), part.get("inlineData")
        signature = _word(part.get("thoughtSignature"))
        if isinstance(call, Mapping):
            self._call(call, signature, events)
        elif isinstance(image, Mapping):
            if part.get("thought") is not True:  # a sketch on the way to an image is no answer
                self._image(image, events)
        elif isinstance(text := part.get("text", ""), str) and (text or signature):
            kind: Kind = "thinking" if part.get("thought") is True else "text"
            self._say(kind, text, signature, events)

    def _say(self, kind: Kind, text: str, signature: str, events: list[StreamEvent]) -> None:
        if signature:
            self._end_prose(events)
        index = self._block(kind, events)
        if text := self._whole_characters(text):
            events.append(self._delta(index, text))
        if signature:
            self._builder.sign(index, signature)
            self._end_prose(events)

    def _delta(self, index: int, text: str) -> StreamEvent:
        if index == self._text:
            return self._builder.text_delta(index, text)
        return self._builder.thinking_delta(index, text)

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
        index = self._thinking if self._text is None else self._text
        if index is None:
            return
        if self._half:
            events.append(self._delta(index, "\ufffd"))
        events.append(self._builder.end_block(index))
        self._text, self._thinking, self._half = None, None, ""

    def _call(self, call: Mapping[str, Any], signature: str, events: list[StreamEvent]) -> None:
        name, call_id, arguments = _word(call.get("name")), _word(call.get("id")), call.get("args")
        if not isinstance(arguments, str):
            arguments = _json({} if arguments is None else arguments)
        what = f"{name} {arguments}"
        if call_id and self._calls.get(call_id) == what:
            return  # told again
        if not call_id or call_id in self._calls:
            call_id = new_call_id()
        self._calls[call_id] = what
        self._end_prose(events)
        index, start = self._builder.begin("toolCall", call_id=call_id, name=name)
        if signature:
            self._builder.sign(index, signature)
        events += [start, self._builder.arguments_delta(index, arguments)]
        events.append(self._builder.end_block(index))

    def _image(self, image: Mapping[str, Any], events: list[StreamEvent]) -> None:
        data, mime_type = _word(image.get("data")), _word(image.get("mimeType"))
        if data and mime_type:
            self._end_prose(events)
            self._images.append(ImageContent(data, mime_type))

    def _whole_characters(self, text: str) -> str:
        """Give text without lone surrogates; a first half at its end waits for what comes next."""
        if not self._half and text.isascii():
            return text
        text, self._half = self._half + text, ""
        if "\ud800" <= text[-1:] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return _joined(text)

    def end(self, *, signalled: bool) -> list[StreamEvent]:
        """Take the end of the stream; gives the last events, Done or Error the very last.

        Args:
            signalled: whether the server said that it was the end, other than by a finish reason.

        Raises:
            LlmConnectionError: the stream broke off.
            BadResponseError: it ended, and held no answer.
        """
        if not signalled and self._finish is None:
            raise LlmConnectionError(
                "the stream is incomplete: it ended without a finish reason", None, True
            )
        if not self._said_anything:
            raise BadResponseError("the stream held no answer", None, True)
        events: list[StreamEvent] = [] if self._started else [self._builder.start]
        self._end_prose(events)
        if self._blocked or self._finish in _FAILURES:
            said = self._complaint()
            failure = BadResponseError(said, None, self._finish in _SLIPS)
            return [*events, ErrorEvent(self.message("error", said), failure)]
        return [*events, DoneEvent(self.message(self._reason()))]

    def _reason(self) -> StopReason:
        if self._finish in _CUT:
            return "length"
        return "tool_use" if self._calls else "stop"

    def _complaint(self) -> str:
        what = "the provider refused the request" if self._blocked else "the model's answer ended"
        why = f": {shortened(self._why, 2000)}" if self._why else ""
        return f"{what} with {self._finish!r}{why}"

    def message(self, reason: StopReason, error_message: str | None = None, /) -> AssistantMessage:
        """Give the message as it stands; images stand behind all else."""
        self._builder.usage = _usage(self._usage)
        message = self._builder.message(
            reason, raw_stop_reason=self._finish, error_message=error_message
        )
        if self._images:
            message = attrs.evolve(message, content=(*message.content, *self._images))
        return message


def _usage(fields: Mapping[str, Any]) -> LlmUsage | None:
    """Give usage in our terms: the prompt's count holds the cached part, and candidates' don't hold the thoughts."""
    if not fields:
        return None
    prompt, cached, candidates, thoughts, tool_use = (
        _count(fields.get(name))
        for name in (
            "promptTokenCount",
            "cachedContentTokenCount",
            "candidatesTokenCount",
            "thoughtsTokenCount",
            "toolUsePromptTokenCount",
        )
    )
    return LlmUsage(
        input_tokens=max(prompt - cached, 0) + tool_use,
        output_tokens=candidates + thoughts,
        cache_read_tokens=cached,
        reasoning_tokens=thoughts,
    )


def _count(value: Any) -> int:
    if isinstance(value, str) and _INT64.fullmatch(value):  # as JSON of a proto
        value = int(value)
    return value if type(value) is int and value > 0 else 0


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _reason_word(value: Any) -> str:
    """Give a reason; the value that stands for none is none."""
    word = _word(value)
    return "" if word.endswith("_UNSPECIFIED") else word


def _json(value: Any) -> str:
    try:
        return _joined(json.dumps(value, ensure_ascii=False))
    except RecursionError:
        raise BadResponseError("a call's arguments are nested too deeply") from None


def _joined(text: str) -> str:
    """Join halves of characters that stand side by side; a half that stands alone becomes U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else None
