"""The one JSON form of messages and events: what sessions store, traces record and programs exchange.

A message is an object with its `role`, an event one with `event`, a stream event one with `stream`; fields keep their
own names, and one that has its default is left out. `v` is the version of the form. What a newer version added to a
known kind is ignored when it is read, so whoever stores messages keeps the lines as they were written; a kind that is
not known is an error, since nothing right can be made of it.

The form is data: how each type of field is written stands in one table, and a class needs no line of its own. JSON is
strict: what it lacks (NaN, infinity) is written as null, and what is no JSON value inside a payload as its text.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, get_args

import attrs

from yiemagent import errors, events, messages
from yiemagent.errors import InvalidJson, LlmError, YiemAgentError
from yiemagent.messages import LlmUsage, StopReason
from yiemagent.payload import FrozenDict, compact_json, freeze_json, text_of
from yiemagent.streaming import PartialMessage, StreamEvent
from yiemagent.tool import AgentToolResult
from yiemagent.transcript import Transcript

__all__ = ["VERSION", "dumps", "from_json", "json_payload", "loads", "to_json"]

VERSION = 1


# --- the border ---


def to_json(value: Any) -> dict[str, Any]:
    """Give a message, an event or a stream event as plain dicts and lists that any JSON writer takes.

    The partial message of an update and the traceback of an error are not written.

    Raises:
        TypeError: where it is none of these.
        InvalidJson: where a field holds what `from_json` would not take, or a payload is nested too deeply.
    """
    kind: Any = type(value)
    tag, _ = _plan(kind)
    if not tag or "type" in tag:
        raise TypeError(f"{value!r} is no message or event")
    try:
        return _write(value, {"v": VERSION})
    except RecursionError:
        raise InvalidJson(f"a {type(value).__name__} is nested too deeply for JSON") from None


def from_json(data: Any) -> Any:
    """Give the message or event that `to_json` gave `data` for.

    The partial message of an update is empty; the stream events before it amount to it.

    Raises:
        InvalidJson: where it is none; the text names the place and what was expected there.
    """
    if not isinstance(data, (dict, Mapping)):  # dict first: asking Mapping is slow
        raise InvalidJson(f"a message or event must be a JSON object, not {_short(data)}")
    version = data.get("v", VERSION)
    if not isinstance(version, int) or version < 1:
        raise InvalidJson(f"v: the version must be a whole number from 1 on, not {_short(version)}")
    newer = f" (written by a newer version: {version})" if version > VERSION else ""
    for key in ("role", "event", "stream"):
        if key in data:
            return _read_tagged(data, key, str(data[key]), newer)
    raise InvalidJson(f"{_short(dict(data))} has no role, event or stream that says what it is")


def dumps(value: Any) -> str:
    """Give a message or event as one line of JSON, encodable as UTF-8 whatever is in it; raises as `to_json` does."""
    kind: Any = type(value)
    tag = _tag_of(kind)
    if tag is None or tag[0] == "type":
        raise TypeError(f"{value!r} is no message or event")
    try:
        text = f'{{"v":{VERSION},{_text(value)[1:]}'
    except RecursionError:
        raise InvalidJson(f"a {type(value).__name__} is nested too deeply for JSON") from None
    except (TypeError, LookupError):
        to_json(value)  # names the field that holds what it can't hold
        raise
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return json.dumps(
        to_json(value), allow_nan=False, separators=(",", ":")
    )  # they survive as escapes


_SURROGATE = re.compile("[\ud800-\udfff]")


def loads(text: str | bytes) -> Any:
    """Give the message or event of a JSON text.

    Raises:
        InvalidJson: where the text is no JSON, or no message or event.
    """
    try:
        data = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise InvalidJson("the JSON is nested too deeply") from None
    except ValueError as error:
        raise InvalidJson(f"no valid JSON: {error}") from None
    return from_json(data)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


# --- classes ---


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name.removesuffix("Event")).lower()


@functools.cache
def _classes() -> Mapping[str, Mapping[str, type]]:
    """The classes by the key that tags them, and by tag."""
    told = [kind for name in events.__all__ if isinstance(kind := getattr(events, name), type)]
    return {
        "role": {kind.role: kind for kind in get_args(messages.AgentMessage)},
        "event": {_snake(kind.__name__): kind for kind in told if kind is not events.Event},
        "stream": {_snake(kind.__name__): kind for kind in get_args(StreamEvent)},
        "type": {kind.type: kind for kind in get_args(messages.AssistantContent)},
    }


@functools.cache
def _tag_of(kind: Any) -> tuple[str, str] | None:
    for key, tagged in _classes().items():
        for tag, candidate in tagged.items():
            if candidate is kind:
                return key, tag
    return None


@attrs.frozen
class _Field:
    name: str
    required: bool
    default: Any
    write: Callable[[Any], Any]
    read: Callable[[Any, str], Any]


@functools.cache
def _fields(kind: Any) -> tuple[_Field, ...]:
    return tuple(
        _Field(
            field.name,
            field.default is attrs.NOTHING,
            _default(field.default),
            *_TYPES[str(field.type)],
        )
        for field in attrs.fields(kind)
        if str(field.type) != "PartialMessage"
    )


def _default(given: Any) -> Any:
    factory = getattr(given, "factory", None)
    return given if factory is None else factory()


@functools.cache
def _plan(kind: Any) -> tuple[dict[str, Any], tuple[tuple[str, Any, Any, Any], ...]]:
    """What writing a value of a class needs: its tag, and its fields with the class of their default and a writer.

    A required field has no such class.
    """
    tag = _tag_of(kind)
    if tag is None and not attrs.has(kind):
        return {}, ()
    fields = (
        (
            field.name,
            field.default,
            _Field if field.required else type(field.default),
            _writer(field, f"{tag[1] if tag else kind.__name__}.{field.name}"),
        )
        for field in _fields(kind)
    )
    return {} if tag is None else {tag[0]: tag[1]}, tuple(fields)


def _writer(field: _Field, path: str) -> Callable[[Any], Any]:
    """Give what writes a field; a text or number is written as it would be read, and so is nothing: or refused."""
    if field.write is _same:
        return lambda held: field.read(held, path)
    return lambda held: field.read(None, path) if held is None else field.write(held)


def _write(value: Any, begun: dict[str, Any] | None = None) -> dict[str, Any]:
    tag, fields = _plan(value.__class__)
    written = {**begun, **tag} if begun else tag.copy()
    # Every message of a session comes through here, so what could be called is written out.
    for name, default, default_kind, write in fields:
        held = getattr(value, name)
        # Told apart by class, too: 0, 0.0 and False are equal, and so are a plain and a frozen payload.
        if held is default or (held.__class__ is default_kind and held == default):
            continue
        written[name] = write(held)
    return written


@functools.cache
def _text_plan(
    kind: Any,
) -> tuple[tuple[str, ...], tuple[tuple[str, Any, Any, str, Any, Any], ...]]:
    """What `_text` needs: the same as a plan, with the JSON of tag and names, and writers that give JSON."""
    tag, fields = _plan(kind)
    types = {field.name: str(field.type) for field in attrs.fields(kind)}
    return tuple(f'"{key}":"{name}"' for key, name in tag.items()), tuple(
        (
            name,
            default,
            default_kind,
            f'"{name}":',
            _TEXTS.get(types[name]) or _texts_by(write),
            write,
        )
        for name, default, default_kind, write in fields
    )


def _texts_by(write: Callable[[Any], Any]) -> Callable[[Any], str]:
    return lambda held: compact_json(write(held))


def _text(value: Any) -> str:
    """Give the JSON of what `_write` gives: what is written most, in one step and in the same form."""
    begun, fields = _text_plan(value.__class__)
    items = [*begun]
    for name, default, default_kind, key, write, check in fields:
        held = getattr(value, name)
        if held is default or (held.__class__ is default_kind and held == default):
            continue
        items.append(key + (compact_json(check(None)) if held is None else write(held)))
    return f"{{{','.join(items)}}}"


def _read_tagged(data: Any, key: str, path: str, note: str = "") -> Any:
    if not isinstance(data, (dict, Mapping)):
        raise InvalidJson(f"{path}: expected an object, not {_short(data)}")
    tag = data.get(key)
    kind = _classes()[key].get(tag) if isinstance(tag, str) else None
    if kind is None:
        known = ", ".join(_classes()[key])
        raise InvalidJson(f"{path}: unknown {key} {_short(tag)}{note}; known are {known}")
    return _read(kind, data, path)


def _read(kind: Any, data: Any, path: str) -> Any:
    if not isinstance(data, (dict, Mapping)):
        raise InvalidJson(f"{path}: expected an object, not {_short(data)}")
    given: dict[str, Any] = {}
    for field in _fields(kind):
        if field.name in data:
            given[field.name] = field.read(data[field.name], f"{path}.{field.name}")
        elif field.required:
            given[field.name] = field.read(None, f"{path}.{field.name}")
    if kind is events.MessageUpdateEvent:
        given["partial_message"] = PartialMessage.first()
    return kind(**given)


# --- fields ---


def json_payload(value: Any) -> Any:
    """Give a payload as JSON values: what JSON lacks becomes null, what is no JSON value its text."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):  # Python neither writes nor reads more than 4300 digits
        return value if value.bit_length() < 14_000 else hex(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): json_payload(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [json_payload(item) for item in value]
    if isinstance(value, AgentToolResult):
        return {_RESULT: _write(value)}
    return text_of(value)


_RESULT = "$tool_result"  # a tool result that a tool gave as its progress


def _read_payload(value: Any, path: str) -> Any:
    if isinstance(value, Mapping) and value.keys() == {_RESULT}:
        return _read(AgentToolResult, value[_RESULT], path)
    return value


def _same(value: Any) -> Any:
    return value


def _expected(what: str, value: Any, path: str) -> InvalidJson:
    given = "nothing" if value is None else _short(value)
    return InvalidJson(f"{path}: expected {what}, not {given}")


def _scalar(what: str, *kinds: type, optional: bool = False) -> tuple[Any, Any]:
    def read(value: Any, path: str) -> Any:
        fits = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        if fits or (optional and value is None):
            return value
        raise _expected(what, value, path)

    return _same, read


def _one_of(*values: str) -> tuple[Any, Any]:
    def read(value: Any, path: str) -> Any:
        if value in values:
            return value
        raise _expected(" or ".join(map(repr, values)), value, path)

    return _same, read


def _object(kind: Any, *, optional: bool = False) -> tuple[Any, Any]:
    def read(value: Any, path: str) -> Any:
        return None if optional and value is None else _read(kind, value, path)

    return _write, read


def _tagged(key: str, *kinds: type, optional: bool = False) -> tuple[Any, Any]:
    def read(value: Any, path: str) -> Any:
        if optional and value is None:
            return None
        held = _read_tagged(value, key, path)
        if kinds and not isinstance(held, kinds):
            raise _expected(" or ".join(kind.__name__ for kind in kinds), value, path)
        return held

    return _write, read


def _many(item: tuple[Any, Any], gather: Callable[[Iterable[Any]], Any] = tuple) -> tuple[Any, Any]:
    write_item, read_item = item

    def write(held: Iterable[Any]) -> list[Any]:
        if write_item is _same:
            return [read_item(value, f"[{index}]") for index, value in enumerate(held)]
        return [write_item(value) for value in held]

    def read(value: Any, path: str) -> Any:
        if not isinstance(value, (list, tuple)):
            raise _expected("a list", value, path)
        return gather(read_item(held, f"{path}[{index}]") for index, held in enumerate(value))

    return write, read


def _write_time(value: datetime) -> str:
    return (value if value.tzinfo is UTC else value.astimezone(UTC)).isoformat()


def _read_time(value: Any, path: str) -> datetime:
    try:
        read = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise _expected("a time such as 2026-01-31T12:00:00+00:00", value, path) from None
    if read.tzinfo is None:
        raise _expected("a time with its offset", value, path)
    return read.astimezone(UTC)


def _read_object(value: Any, path: str) -> FrozenDict:
    if not isinstance(value, (dict, Mapping)):
        raise _expected("an object", value, path)
    return FrozenDict(freeze_json(value))


def _read_arguments(value: Any, path: str) -> FrozenDict | str:
    return value if isinstance(value, str) else _read_object(value, path)


def _write_error(error: Exception) -> dict[str, Any]:
    written: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, LlmError):
        written |= {name: getattr(error, name) for name in _LLM_FACTS}
    return written


_LLM_FACTS = ("status", "retryable", "retry_after_ms")


def _read_error(value: Any, path: str) -> Exception | None:
    """Give an error of the library as what it was, any other as a `YiemAgentError` that names it."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
        raise _expected("an error's type and message", value, path)
    name, text = value["type"], str(value.get("message", ""))
    kind: Any = getattr(errors, name, None) if name in errors.__all__ else None
    if kind is None:
        return YiemAgentError(f"{name}: {text}")
    facts: tuple[Any, ...] = ()
    if issubclass(kind, LlmError):
        status, retryable, retry_after_ms = (value.get(fact) for fact in _LLM_FACTS)
        facts = status, bool(retryable), retry_after_ms
    made: Exception = kind(text, *facts)
    return made


_BLOCKS = _many(_tagged("type"))
_CONTENT = _many(_tagged("type", messages.TextContent, messages.ImageContent))
_TEXT = _scalar("text", str)

# How a field of each type is written and read, by the type as its class spells it.
_TYPES: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any, str], Any]]] = {
    "str": _TEXT,
    "str | None": _scalar("text", str, optional=True),
    "int": _scalar("a whole number", int),
    "int | None": _scalar("a whole number", int, optional=True),
    "float": _scalar("a number", int, float),
    "float | None": _scalar("a number", int, float, optional=True),
    "bool": _scalar("true or false", bool),
    "StopReason": _one_of(*get_args(StopReason)),
    "Literal['retry_scheduled', 'rate_gate', 'fallback']": _one_of(
        "retry_scheduled", "rate_gate", "fallback"
    ),
    "datetime": (_write_time, _read_time),
    "Any": (json_payload, _read_payload),
    "Mapping[str, Any]": (json_payload, _read_object),
    "FrozenDict | str": (json_payload, _read_arguments),
    "tuple[str, ...]": _many(_TEXT),
    "LlmUsage": _object(LlmUsage),
    "LlmUsage | None": _object(LlmUsage, optional=True),
    "AgentToolResult": _object(AgentToolResult),
    "tuple[MessageContent, ...]": _CONTENT,
    "tuple[AssistantContent, ...]": _BLOCKS,
    "ToolCall": _tagged("type", messages.ToolCall),
    "AgentMessage": _tagged("role"),
    "AssistantMessage": _tagged("role", messages.AssistantMessage),
    "AssistantMessage | None": _tagged("role", messages.AssistantMessage, optional=True),
    "ToolResultMessage": _tagged("role", messages.ToolResultMessage),
    "CompactionSummaryMessage | None": _tagged(
        "role", messages.CompactionSummaryMessage, optional=True
    ),
    "tuple[ToolResultMessage, ...]": _many(_tagged("role", messages.ToolResultMessage)),
    "Sequence[AgentMessage]": _many(_tagged("role"), Transcript),
    "StreamEvent": _tagged("stream"),
    "Exception | None": (_write_error, _read_error),
}


_quoted: Callable[[str], str] = json.encoder.encode_basestring


def _texts(values: Iterable[Any]) -> str:
    blocks = [*values]
    if len(blocks) == 1:  # as nearly all messages have
        return f"[{_block(blocks[0])}]"
    return f"[{','.join(map(_block, blocks))}]"


def _block(value: Any) -> str:
    if value.__class__ is messages.TextContent and value.signature is None:  # as nearly all are
        return f'{{"type":"text","text":{_quoted(value.text)}}}'
    return _text(value)


# The JSON of the types that are written most; of any other it is that of what its writer gives.
_TEXTS: Mapping[str, Callable[[Any], str]] = {
    "str": _quoted,
    "str | None": _quoted,
    "int": int.__repr__,
    "bool": {True: "true", False: "false"}.__getitem__,
    "StopReason": {reason: _quoted(reason) for reason in get_args(StopReason)}.__getitem__,
    "datetime": lambda value: (
        f'"{(value if value.tzinfo is UTC else value.astimezone(UTC)).isoformat()}"'
    ),
    "tuple[MessageContent, ...]": _texts,
    "tuple[AssistantContent, ...]": _texts,
    "LlmUsage | None": _text,
}
