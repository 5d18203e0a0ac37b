"""The entries of a session: what each kind says, and its form as one line of JSON.

A session is a header and then entries, oldest first. Most entries stand in a tree: each names its parent, and the path
from the root to the leaf is the conversation. Those without a parent stand beside the tree (a label, a move of the
leaf, a message that waits for its run) and hold for the whole session.

What a newer version adds is kept: unknown fields of a known kind in `Entry.extra`, an unknown kind as an
`UnknownBody`. Stores keep the text that was written, so nothing is lost where entries are copied.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, get_args

import attrs

from yiemagent import codec
from yiemagent.errors import ConfigurationError, InvalidJson
from yiemagent.messages import AgentMessage
from yiemagent.payload import FrozenDict, compact_json, freeze_json
from yiemagent.record import Record
from yiemagent.sessions.bodies import Body, QueuedKind, UnknownBody
from yiemagent.streaming import StreamEvent

__all__ = [
    "VERSION",
    "Entry",
    "Header",
    "decode",
    "decode_header",
    "encode",
    "encode_header",
    "encode_message",
]

VERSION = 1


_NOTHING = FrozenDict()  # shared, since nobody can change it


@attrs.frozen(eq=False, repr=False)
class Entry(Record):
    """One entry.

    Args:
        id: counts up in the session; a fork keeps the ids of what it took over.
        parent_id: the entry before it in the conversation; None at the root and beside the tree.
        time: when it was written, in UTC. Nothing depends on it: clocks jump.
        body: what it says.
        extra: fields that this version does not know.
    """

    id: int
    parent_id: int | None
    time: datetime
    body: Body
    extra: Mapping[str, Any] = attrs.field(default=_NOTHING, converter=freeze_json)

    @property
    def type(self) -> str:
        """The kind of the entry."""
        return self.body.type


@attrs.frozen(eq=False, repr=False)
class Header(Record):
    """The first line of a session.

    Args:
        id: the session's own, random.
        time: when it was begun, in UTC.
        name: what people call it, or None.
        forked_from: the session that it was forked from, as `{"session": id, "entry": id}`, or None.
        extra: fields that this version does not know.
    """

    id: str
    time: datetime
    name: str | None = None
    forked_from: Mapping[str, Any] | None = attrs.field(default=None, converter=freeze_json)
    extra: Mapping[str, Any] = attrs.field(factory=FrozenDict, converter=freeze_json)


# --- writing ---------------------------------------------------------------------------------------------------------

_MESSAGES = frozenset(get_args(AgentMessage))

_ascii = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def encode(entry: Entry) -> str:
    """Give an entry as one line of JSON, without its newline; what `decode` would not take is not written.

    Raises:
        InvalidJson: where a field holds what it can't hold, or something that is nested too deeply to be written.
        TypeError: where it holds as a message what is none.
    """
    body = entry.body
    written: dict[str, Any] = {"id": entry.id}
    if not body.is_side:
        written["parent"] = entry.parent_id
    written["time"] = _written_time(entry.time)
    written["type"] = body.type
    kind: Any = type(body)
    for field in _fields(kind):
        value = getattr(body, field.name)
        if field.required or not field.is_default(value):
            written[field.key] = field.write(value)
    return _line({**written, **entry.extra})


def encode_message(
    entry_id: int, parent_id: int | None, time: datetime, message: AgentMessage
) -> str:
    """Give the line that `encode` gives for an entry with a message; nearly every entry is one, and this is quicker.

    Raises:
        InvalidJson, TypeError: see `encode`.
    """
    parent = "null" if parent_id is None else parent_id
    written = codec.dumps(_checked_message(message))
    return (
        f'{{"id":{entry_id},"parent":{parent},"time":"{_written_time(time)}",'
        f'"type":"message","message":{written}}}'
    )


def encode_header(header: Header) -> str:
    """Give a header as one line of JSON, without its newline.

    Raises:
        ConfigurationError: where its name is no text.
    """
    written = {
        "type": "session",
        "version": VERSION,
        "id": header.id,
        "time": _written_time(header.time),
    }
    if header.name is not None:
        if not isinstance(header.name, str):
            raise ConfigurationError(f"a session's name must be text, not {header.name!r}")
        written["name"] = header.name
    if header.forked_from is not None:
        written["forked_from"] = header.forked_from
    return _line({**written, **header.extra})


def _written_time(time: datetime) -> str:
    """Give a time in UTC; that of a clock without an offset is local time, as Python takes it."""
    return (time if time.tzinfo is UTC else time.astimezone(UTC)).isoformat()


def _checked_message(message: Any) -> Any:
    if message.__class__ not in _MESSAGES:
        raise TypeError(f"{message!r} is no message, such as UserMessage(…)")
    return message


def _line(data: dict[str, Any]) -> str:
    try:
        return _encodable(compact_json(data), data)
    except RecursionError:
        raise InvalidJson("the entry is nested too deeply for JSON") from None


def _encodable(text: str, data: dict[str, Any]) -> str:
    """Give the JSON of `data` so that it encodes as UTF-8: lone surrogates survive as escapes."""
    return _ascii(data) if not text.isascii() and _SURROGATE.search(text) else text


_SURROGATE = re.compile("[\ud800-\udfff]")


# --- reading ---------------------------------------------------------------------------------------------------------


def decode(text: str) -> Entry:
    """Give the entry of a line.

    Raises:
        InvalidJson: where it is none; the text says what is wrong.
    """
    data = _object(text)
    entry_id, parent = data.pop("id", None), data.pop("parent", _ABSENT)
    if type(entry_id) is not int:
        raise InvalidJson(f"id: expected a whole number, not {entry_id!r}")
    if parent is not _ABSENT and parent is not None and type(parent) is not int:
        raise InvalidJson(f"parent: expected a whole number or null, not {parent!r}")
    time, kind = _time(data.pop("time", None)), data.pop("type", None)
    if not isinstance(kind, str):
        raise InvalidJson(f"type: expected the kind of the entry, not {kind!r}")
    body = _body(kind, data, is_side=parent is _ABSENT)
    return Entry(entry_id, None if parent is _ABSENT else parent, time, body, data)


def decode_header(text: str) -> Header:
    """Give the header of a session's first line.

    Raises:
        InvalidJson: where it is none, or that of a newer version.
    """
    data = _object(text)
    if data.pop("type", None) != "session":
        raise InvalidJson("the first line is no session header")
    version = data.pop("version", None)
    if type(version) is not int or version < 1:
        raise InvalidJson(f"version: expected a whole number from 1 on, not {version!r}")
    if version > VERSION:
        raise InvalidJson(
            f"the session has version {version} and this library reads up to {VERSION}; update it"
        )
    session_id, name, forked = (
        data.pop("id", None),
        data.pop("name", None),
        data.pop("forked_from", None),
    )
    if not isinstance(session_id, str) or not session_id:
        raise InvalidJson(f"id: expected the session's id, not {session_id!r}")
    if name is not None and not isinstance(name, str):
        raise InvalidJson(f"name: expected text, not {name!r}")
    if forked is not None and not isinstance(forked, dict):
        raise InvalidJson(f"forked_from: expected an object, not {forked!r}")
    return Header(session_id, _time(data.pop("time", None)), name, forked, data)


_ABSENT: Any = object()


def _object(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except RecursionError:
        raise InvalidJson("the JSON is nested too deeply") from None
    except ValueError as error:
        raise InvalidJson(f"no valid JSON: {error}") from None
    if not isinstance(data, dict):
        raise InvalidJson("expected a JSON object")
    return data


def _time(value: Any) -> datetime:
    try:
        read = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise InvalidJson(f"time: expected a time with its offset, not {value!r}") from None
    if read.tzinfo is None:
        raise InvalidJson(f"time: expected a time with its offset, not {value!r}")
    return read.astimezone(UTC)


def _body(kind: str, data: dict[str, Any], *, is_side: bool) -> Body:
    """Give the body of an entry, its fields taken out of `data`."""
    body_class = _KINDS.get(kind)
    if body_class is None or body_class.is_side is not is_side:
        return UnknownBody(kind, is_side)
    given = {}
    for field in _fields(body_class):
        value = data.pop(field.key, _ABSENT)
        if value is not _ABSENT or field.required:
            given[field.name] = field.read(None if value is _ABSENT else value, field.key)
    return body_class(**given)  # type: ignore[no-any-return]  # a class of the table


# --- the form of each field ------------------------------------------------------------------------------------------


def _expected(what: str, value: Any, key: str) -> InvalidJson:
    return InvalidJson(f"{key}: expected {what}, not {value!r}")


def _read_text(value: Any, key: str) -> str:
    if not isinstance(value, str):
        raise _expected("text", value, key)
    return value


def _read_number(value: Any, key: str) -> int:
    if type(value) is not int:
        raise _expected("a whole number", value, key)
    return value


def _maybe(read: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    return lambda value, key: None if value is None else read(value, key)


def _read_kind(value: Any, key: str) -> QueuedKind:
    if value not in get_args(QueuedKind):
        raise _expected(" or ".join(get_args(QueuedKind)), value, key)
    return value  # type: ignore[no-any-return]  # one of the three


def _read_list(value: Any, key: str, read: Callable[[Any, str], Any]) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _expected("a list", value, key)
    return tuple(read(item, key) for item in value)


def _read_message(value: Any, key: str) -> Any:
    if not isinstance(value, dict) or "role" not in value:
        raise _expected("a message", value, key)
    return codec.from_json(value)


def _read_event(value: Any, key: str) -> Any:
    if not isinstance(value, dict) or "stream" not in value:
        raise _expected("a stream event", value, key)
    return codec.from_json(value)


def _write_events(events: Iterable[StreamEvent]) -> list[Any]:
    return [codec.to_json(event) for event in events]


def _write_message(message: AgentMessage) -> dict[str, Any]:
    return codec.to_json(_checked_message(message))


# How a field of each type is written and read, by the type as its class spells it; None: as it is read, so that
# nothing is written that can't be read again.
_FORMS: Mapping[str, tuple[Callable[[Any], Any] | None, Callable[[Any, str], Any]]] = {
    "str": (None, _read_text),
    "str | None": (None, _maybe(_read_text)),
    "int": (None, _read_number),
    "int | None": (None, _maybe(_read_number)),
    "Any": (codec.json_payload, lambda value, _key: value),
    "QueuedKind": (None, _read_kind),
    "AgentMessage": (_write_message, _read_message),
    "tuple[int, ...]": (list, functools.partial(_read_list, read=_read_number)),
    "tuple[StreamEvent, ...]": (_write_events, functools.partial(_read_list, read=_read_event)),
}

_KINDS: Mapping[str, Any] = {kind.type: kind for kind in get_args(Body) if kind is not UnknownBody}


@attrs.frozen
class _Field:
    """A field of a kind: its name here, its key in the file, and how it is written and read."""

    name: str
    key: str
    required: bool
    default: Any
    write: Callable[[Any], Any]
    read: Callable[[Any, str], Any]

    def is_default(self, value: Any) -> bool:
        # By type, too: an empty dict and an empty list of a payload are told apart.
        return type(value) is type(self.default) and value == self.default


@functools.cache
def _fields(kind: Any) -> tuple[_Field, ...]:
    if kind is UnknownBody:  # what it holds stands elsewhere in the entry
        return ()
    return tuple(_field(field) for field in attrs.fields(kind))


def _field(field: Any) -> _Field:
    # Keys are short: `target`, `first_kept`, `queued`, `from`, `after`; the id of a call is no entry's.
    key = field.name if field.name == "call_id" else field.name.removesuffix("_id")
    factory = getattr(field.default, "factory", None)
    default = field.default if factory is None else factory()
    write, read = _FORMS[str(field.type)]
    required = field.default is attrs.NOTHING
    return _Field(field.name, key, required, default, write or _as_read(read, key), read)


def _as_read(read: Callable[[Any, str], Any], key: str) -> Callable[[Any], Any]:
    return lambda value: read(value, key)
