"""Reading the OpenAI chat form: users' messages and models' answers, in every shape that is known to come.

A user's message is a caller's own and read strictly; an answer is read leniently: parts of an unknown kind are left
out, ids that are missing or doubled are made fresh, and only what holds no answer at all is an error.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import re
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Any, cast

import attrs

from yiemagent.errors import BadResponseError
from yiemagent.messages import (
    AssistantContent,
    AssistantMessage,
    ImageContent,
    LlmUsage,
    MessageContent,
    StopReason,
    TextContent,
    ThinkingContent,
    ToolCall,
    UserMessage,
    content_blocks,
)
from yiemagent.quoting import Quoting
from yiemagent.streaming import new_call_id, tool_arguments

__all__ = ["assistant_message", "stop_reason", "tool_calls", "usage", "user_message"]

_GAVE = "the model call gave "


# --- messages of users
# ------------------------------------------------------------------------------------------------


def user_message(message: Any) -> UserMessage:
    """Give what a user said as a `UserMessage`: the same object where it is one.

    Args:
        message: text, a content block or a sequence of them, or an OpenAI user message; images in it as data URIs.

    Raises:
        TypeError: where it is none of these.
        ValueError: where the dict is no user message, or holds what can't be sent.
    """
    if isinstance(message, UserMessage):
        return message
    if not isinstance(message, Mapping):
        if isinstance(message, (str, TextContent, ImageContent, list, tuple)):
            return UserMessage(_user_blocks(message))
        raise TypeError(f"a message must be text, an OpenAI dict or a UserMessage, not {message!r}")
    role = message.get("role", "user")
    if role != "user":
        raise ValueError(f"a message to an agent must have the role 'user', not {role!r}")
    if message.get("content") is None:
        raise ValueError(f"the message {message!r} has no content")
    return UserMessage(_user_blocks(message["content"]))


def _user_blocks(content: Any) -> tuple[MessageContent, ...]:
    if isinstance(content, (str, TextContent, ImageContent)):
        return cast("tuple[MessageContent, ...]", content_blocks(content))
    parts = [content] if isinstance(content, Mapping) else content
    if not isinstance(parts, (list, tuple)):
        raise TypeError(f"content must be text or a list of parts, not {content!r}")
    return tuple(_user_block(part) for part in parts)


def _user_block(part: Any) -> MessageContent:
    if isinstance(part, (TextContent, ImageContent)):
        return part
    if isinstance(part, str):
        return TextContent(part)
    if not isinstance(part, Mapping):
        raise TypeError(f"a content part must be text, a dict or a content block, not {part!r}")
    if part.get("type") in {"text", "input_text"} and isinstance(part.get("text"), str):
        return TextContent(part["text"])
    image = _image(part)
    if image is None:
        raise ValueError(
            f"content part {_short(part)} can't be sent; give text, or an image as "
            f"{{'type': 'image_url', 'image_url': {{'url': 'data:image/png;base64,…'}}}}"
        )
    return image


_DATA_URI = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),(.*)", re.DOTALL | re.IGNORECASE)


def _image(part: Mapping[str, Any]) -> ImageContent | None:
    """Give the image of a part: a data URI, or data beside its type; None where there is none."""
    if part.get("type") == "image" and isinstance(part.get("data"), str):
        kind = part.get("mimeType") or part.get("mime_type") or "image/png"
        return ImageContent(part["data"], str(kind))
    url = part.get("image_url")
    if isinstance(url, Mapping):
        url = url.get("url")
    found = _DATA_URI.fullmatch(url) if isinstance(url, str) else None
    if found is None:
        return None
    mime_type, options, data = found.groups()
    if "base64" not in options.lower():
        data = base64.b64encode(urllib.parse.unquote_to_bytes(data)).decode("ascii")
    return ImageContent("".join(data.split()), mime_type or "image/png")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


# --- answers
# ----------------------------------------------------------------------------------------------------------


def assistant_message(answer: Any) -> AssistantMessage:
    """Give a whole answer as an `AssistantMessage`.

    Args:
        answer: text, an `AssistantMessage`, an OpenAI response (`choices`), an OpenAI message, or
            `{"message": …, "finish_reason": …}` with api, provider, model and usage where they are known.

    Raises:
        BadResponseError: where it is none of these.
    """
    if isinstance(answer, AssistantMessage):
        return answer
    if isinstance(answer, str):
        return AssistantMessage(answer)
    if not isinstance(answer, Mapping):
        after = "; give an AssistantMessage, an OpenAI response or message dict, or text"
        raise BadResponseError(Quoting(_GAVE, _short(answer), after))
    if "choices" in answer:
        return _from_response(answer)
    if "message" in answer:
        return _from_message(answer["message"], answer, answer.get("finish_reason"))
    if answer.get("error") and not answer.get("content"):
        raise BadResponseError(Quoting(f"{_GAVE}an error: ", _error_text(answer["error"])))
    if not {"role", "content", "tool_calls"} & answer.keys():
        raise BadResponseError(Quoting(_GAVE, _short(answer), ", which holds no message"))
    return _from_message(answer, answer, answer.get("finish_reason"))


def _error_text(error: Any) -> str:
    if isinstance(error, Mapping) and error.get("message"):
        return str(error["message"])
    return _short(error)


def _from_response(response: Mapping[str, Any]) -> AssistantMessage:
    choices = response["choices"]
    if not isinstance(choices, (list, tuple)) or not choices:
        if response.get("error"):
            raise BadResponseError(Quoting(f"{_GAVE}an error: ", _error_text(response["error"])))
        raise BadResponseError("the model's response holds no choice")
    choice = choices[0]
    if not isinstance(choice, Mapping) or choice.get("message") is None:
        raise BadResponseError(Quoting("the model's response holds no message: ", _short(choice)))
    return _from_message(choice["message"], response, choice.get("finish_reason"))


def _from_message(message: Any, about: Mapping[str, Any], finish: Any) -> AssistantMessage:
    if isinstance(message, AssistantMessage):
        return message
    if isinstance(message, str):
        message = {"content": message}
    if not isinstance(message, Mapping):
        raise BadResponseError(Quoting(_GAVE, _short(message), " as its message"))
    role = message.get("role") or "assistant"
    if role != "assistant":
        raise BadResponseError(Quoting(f"{_GAVE}a message of the role ", repr(role)))
    blocks = _answer_blocks(message)
    raw = finish if isinstance(finish, str) and finish else None
    reason = stop_reason(raw, has_calls=any(isinstance(block, ToolCall) for block in blocks))
    return AssistantMessage(
        blocks,
        api=_text_field(about, "api"),
        provider=_text_field(about, "provider"),
        model=_text_field(about, "model"),
        usage=usage(about.get("usage")),
        stop_reason=reason,
        raw_stop_reason=raw,
        error_message=f"the model ended its answer with {raw!r}" if reason == "error" else None,
        response_id=_text_field(about, "id") or None,
    )


def _text_field(about: Mapping[str, Any], name: str) -> str:
    value = about.get(name)
    return value if isinstance(value, str) else ""


_STOP_REASONS: dict[str, StopReason] = {
    "stop": "stop",
    "end_turn": "stop",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "tool_use": "tool_use",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "error",
    "error": "error",
    "aborted": "aborted",
}


def stop_reason(finish_reason: str | None, *, has_calls: bool) -> StopReason:
    """Give the stop reason that a server's word means.

    Calls decide, not the word, unless it says that the answer is cut off or failed: servers send "stop", null and
    words of their own with calls.
    """
    known = _STOP_REASONS.get((finish_reason or "").lower())
    if known in {"length", "error", "aborted"}:
        return cast("StopReason", known)
    if has_calls:
        return "tool_use"
    return known or "stop"


def usage(given: Any) -> LlmUsage | None:
    """Give what a server says an answer consumed, the counts kept apart; None where it says nothing."""
    if isinstance(given, LlmUsage) or not isinstance(given, Mapping):
        return given if isinstance(given, LlmUsage) else None
    details = _mapping(given.get("prompt_tokens_details") or given.get("input_tokens_details"))
    spent = _mapping(given.get("completion_tokens_details") or given.get("output_tokens_details"))
    read = _first_count(
        details.get("cached_tokens"),
        given.get("prompt_cache_hit_tokens"),
        given.get("cached_tokens"),
    )
    written = _first_count(details.get("cache_write_tokens"), details.get("cache_creation_tokens"))
    asked = _first_count(given.get("prompt_tokens"), given.get("input_tokens"))
    said = _first_count(given.get("completion_tokens"), given.get("output_tokens"))
    if not (asked or said):
        return None
    return LlmUsage(
        max(0, asked - read - written),
        said,
        read,
        written,
        _first_count(spent.get("reasoning_tokens")),
        _price(given.get("cost")),
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _price(value: Any) -> float | None:
    """Give what a server says an answer cost; what no float can hold is no price."""
    try:
        price = float(value) if isinstance(value, (int, float)) else math.nan
    except OverflowError:  # an integer of hundreds of digits
        return None
    return price if math.isfinite(price) else None


def _first_count(*values: Any) -> int:
    for value in values:
        # Python reads 1e400 in JSON as infinity.
        if isinstance(value, (int, float)) and 0 < value < math.inf:
            return int(value)
    return 0


# --- content of answers
# -----------------------------------------------------------------------------------------------


def _answer_blocks(message: Mapping[str, Any]) -> tuple[AssistantContent, ...]:
    parts = _parts(message.get("content"))
    blocks = list(itertools.chain.from_iterable(map(_read_part, parts)))
    thought = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(thought, str) and not any(isinstance(b, ThinkingContent) for b in blocks):
        blocks.insert(0, ThinkingContent(thought))
    refusal = message.get("refusal")
    if isinstance(refusal, str) and not any(isinstance(block, TextContent) for block in blocks):
        blocks.append(TextContent(refusal))
    calls = message.get("tool_calls") or message.get("tool_call") or message.get("function_call")
    blocks.extend(_read_calls(calls))
    if not any(isinstance(block, _SAYING) for block in blocks):
        _refuse_unreadable(message.get("content"), calls)
    return _with_ids(blocks)


_SAYING = (TextContent, ImageContent, ToolCall)
_READABLE = (*_SAYING, ThinkingContent, list, tuple, Mapping)


def _refuse_unreadable(content: Any, calls: Any) -> None:
    """Raise where a message that says nothing holds what can't be read as content or as calls.

    Raises:
        BadResponseError: it would count as an empty answer else, and be asked for again without a word of why.
    """
    if content is not None and not isinstance(content, (str, *_READABLE)):
        raise BadResponseError(
            f"the model call gave {_short(content)} as the content of its message; give text or a list of parts"
        )
    if calls and not isinstance(calls, _READABLE):
        raise BadResponseError(
            f"the model call gave {_short(calls)} as the tool calls of its message; give a list of them"
        )


def tool_calls(blocks: Any) -> tuple[ToolCall, ...]:
    """Give the tool calls among content blocks, in order, each with an id of its own.

    Args:
        blocks: content blocks, or dicts with their fields: `{"type": "tool_calls", "tool_calls": […]}`,
            `{"type": "tool_call", …}`, each call flat or with a nested `function`; text without calls gives none.
    """
    found = itertools.chain.from_iterable(map(_read_part, _parts(blocks)))
    return tuple(block for block in _with_ids(list(found)) if isinstance(block, ToolCall))


def _parts(content: Any) -> Iterable[Any]:
    if content is None:
        return ()
    if isinstance(content, (list, tuple)):
        return content
    return (content,)


def _read_part(part: Any) -> Iterable[AssistantContent]:
    """Give what a content part holds; a part of an unknown kind holds nothing."""
    if isinstance(part, (TextContent, ThinkingContent, ToolCall, ImageContent)):
        return (part,)
    if isinstance(part, str):
        return (TextContent(part),) if part else ()
    if not isinstance(part, Mapping):
        return ()
    kind = str(part.get("type", "text"))
    if kind in _CALL_KINDS or "tool_calls" in part:
        return _read_calls(part.get("tool_calls") or part)
    if kind in _TEXT_KINDS:
        text = _part_text(part.get("text") or part.get("refusal"))
        return (TextContent(text),) if text else ()
    if kind in {"thinking", "reasoning"}:
        text = _part_text(part.get("thinking") or part.get("reasoning") or part.get("text"))
        return (ThinkingContent(text),) if text else ()
    image = _image(part)
    return () if image is None else (image,)


_TEXT_KINDS = {"text", "output_text", "refusal"}
_CALL_KINDS = {"tool_calls", "tool_call", "toolCall", "function", "function_call", "tool_use"}


def _part_text(value: Any) -> str:
    """Join a part's text: a string, an object with the string in it, or a list of such."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return _part_text(value.get("text") or value.get("value"))
    if isinstance(value, (list, tuple)):
        return "".join(map(_part_text, value))
    return ""


def _read_calls(given: Any) -> list[ToolCall]:
    calls = given if isinstance(given, (list, tuple)) else _parts(given)
    return [call for call in map(_read_call, calls) if call is not None]


def _read_call(given: Any) -> ToolCall | None:
    if isinstance(given, ToolCall) or not isinstance(given, Mapping):
        return given if isinstance(given, ToolCall) else None
    function = given.get("function")
    inner = function if isinstance(function, Mapping) else given
    name = function if isinstance(function, str) else inner.get("name")
    arguments = inner.get("arguments", inner.get("input"))
    call_id = given.get("id") or given.get("call_id") or given.get("tool_call_id")
    return ToolCall(str(call_id or ""), str(name or ""), _read_arguments(arguments))


def _read_arguments(arguments: Any) -> Any:
    if arguments is None or isinstance(arguments, Mapping):
        return arguments
    if isinstance(arguments, str):
        return tool_arguments(arguments) if arguments.strip() else None
    return json.dumps(arguments, ensure_ascii=False, default=str)


def _with_ids(blocks: Iterable[AssistantContent]) -> tuple[AssistantContent, ...]:
    """Give each call without an id, or with that of an earlier call, a fresh one."""
    seen: set[str] = set()
    return tuple(_named(block, seen) for block in blocks)


def _named(block: AssistantContent, seen: set[str]) -> AssistantContent:
    if not isinstance(block, ToolCall):
        return block
    if not block.id or block.id in seen:
        return attrs.evolve(block, id=new_call_id())
    seen.add(block.id)
    return block
