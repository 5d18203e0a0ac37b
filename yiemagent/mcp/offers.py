"""What a server offers beside its tools: resources, families of resources, and prompts.

The functions given here are the user's. They are called on threads of the server, several at once, each within the
server's time limit for one request.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias
from urllib.parse import unquote

import attrs

from yiemagent.errors import ConfigurationError
from yiemagent.messages import ImageContent, TextContent
from yiemagent.payload import FrozenDict, freeze_json
from yiemagent.record import Record

__all__ = [
    "Completer",
    "Prompt",
    "PromptArgument",
    "Resource",
    "ResourceTemplate",
    "prompt_result",
    "read_result",
]

Completer: TypeAlias = Callable[[str, Mapping[str, str]], Iterable[str]]

_VARIABLE = re.compile(r"\{(\+?)([A-Za-z_][A-Za-z0-9_]*)\}")


def _hints(given: Mapping[str, Any] | None) -> FrozenDict:
    frozen: FrozenDict = freeze_json(given or {})
    return frozen


@attrs.frozen(eq=False, repr=False)
class Resource(Record):
    """Something that clients can read.

    Args:
        uri: its unique name, such as "notes://today".
        name: a short name, for programs.
        read: gives the content: text, bytes, or a list of MCP's `contents`; called without arguments.
        title: its name for people, or None.
        description: what it is, or None.
        mime_type: its kind, or None: "text/plain" for text.
        size: its size in bytes, or None.
        annotations: MCP's hints: `audience`, `priority`, `lastModified`.
    """

    uri: str
    name: str
    read: Callable[[], Any] = attrs.field(kw_only=True, repr=False)
    title: str | None = attrs.field(default=None, kw_only=True)
    description: str | None = attrs.field(default=None, kw_only=True)
    mime_type: str | None = attrs.field(default=None, kw_only=True)
    size: int | None = attrs.field(default=None, kw_only=True)
    annotations: Mapping[str, Any] = attrs.field(factory=FrozenDict, converter=_hints, kw_only=True)

    def definition(self) -> dict[str, Any]:
        """Give it as `resources/list` tells it."""
        return _told({"uri": self.uri, "name": self.name, "size": self.size}, self)


@attrs.frozen(eq=False, repr=False)
class ResourceTemplate(Record):
    """A family of resources whose URIs differ in some places.

    Args:
        uri_template: a URI with `{name}` for a part without a slash, and `{+name}` for one that may hold some.
        name: a short name, for programs.
        read: gives the content of one; called with what stands in these places, by name, percent signs decoded.
            What stands there is the client's word: check it before it becomes a path.
        title, description, mime_type, annotations: see `Resource`.
        complete: by the name of a place, what can stand there: called with what was typed so far and with what stands
            in the other places.

    Raises:
        ConfigurationError: where there is no such place.
    """

    uri_template: str
    name: str
    read: Callable[..., Any] = attrs.field(kw_only=True, repr=False)
    title: str | None = attrs.field(default=None, kw_only=True)
    description: str | None = attrs.field(default=None, kw_only=True)
    mime_type: str | None = attrs.field(default=None, kw_only=True)
    annotations: Mapping[str, Any] = attrs.field(factory=FrozenDict, converter=_hints, kw_only=True)
    complete: Mapping[str, Completer] = attrs.field(factory=FrozenDict, kw_only=True, repr=False)
    _pattern: re.Pattern[str] = attrs.field(
        default=attrs.Factory(lambda self: _pattern(self.uri_template), takes_self=True),
        init=False,
        repr=False,
    )

    def definition(self) -> dict[str, Any]:
        """Give it as `resources/templates/list` tells it."""
        return _told({"uriTemplate": self.uri_template, "name": self.name}, self)

    def match(self, uri: str) -> dict[str, str] | None:
        """Give what stands in the places of a URI, or None where it is none of the family."""
        found = self._pattern.fullmatch(uri)
        return (
            None
            if found is None
            else {name: unquote(text) for name, text in found.groupdict().items()}
        )


def _pattern(template: str) -> re.Pattern[str]:
    pieces, end = [], 0
    for found in _VARIABLE.finditer(template):
        pieces.append(re.escape(template[end : found.start()]))
        pieces.append(f"(?P<{found[2]}>{'.+' if found[1] else '[^/]+'})")
        end = found.end()
    rest = template[end:]
    if not pieces or "{" in rest or any("{" in piece for piece in pieces[::2]):
        raise ConfigurationError(
            f"the URI template {template!r} must have places such as {{name}} or {{+path}}, and no others"
        )
    try:
        return re.compile("".join([*pieces, re.escape(rest)]), re.DOTALL)
    except re.error as error:
        raise ConfigurationError(f"the URI template {template!r}: {error}") from error


@attrs.frozen(eq=False, repr=False)
class PromptArgument(Record):
    """What a prompt can be asked with; `complete` gives what can stand for it, see `ResourceTemplate`."""

    name: str
    description: str | None = None
    required: bool = attrs.field(default=False, kw_only=True)
    complete: Completer | None = attrs.field(default=None, kw_only=True, repr=False)

    def definition(self) -> dict[str, Any]:
        """Give it as `prompts/list` tells it."""
        told: dict[str, Any] = {"name": self.name, "required": self.required}
        return told if self.description is None else {**told, "description": self.description}


def _arguments(given: Iterable[PromptArgument | str]) -> tuple[PromptArgument, ...]:
    return tuple(PromptArgument(item) if isinstance(item, str) else item for item in given)


@attrs.frozen(eq=False, repr=False)
class Prompt(Record):
    """A text, or messages, that people choose to begin with.

    Args:
        name: its unique name.
        render: gives it: text, or a list of messages (`{"role": …, "content": …}`, where the content may be text, a
            block, or a block in MCP's form); called with the arguments by name.
        arguments: what it can be asked with; a bare name is one that may be left out.
        title: its name for people, or None.
        description: what it is for, or None.
    """

    name: str
    render: Callable[..., Any] = attrs.field(kw_only=True, repr=False)
    arguments: tuple[PromptArgument, ...] = attrs.field(
        default=(), converter=_arguments, kw_only=True
    )
    title: str | None = attrs.field(default=None, kw_only=True)
    description: str | None = attrs.field(default=None, kw_only=True)

    def definition(self) -> dict[str, Any]:
        """Give it as `prompts/list` tells it."""
        told: dict[str, Any] = {"name": self.name}
        if self.arguments:
            told["arguments"] = [argument.definition() for argument in self.arguments]
        return told | _present({"title": self.title, "description": self.description})


def _told(named: Mapping[str, Any], offer: Resource | ResourceTemplate) -> dict[str, Any]:
    told = {
        **named,
        "title": offer.title,
        "description": offer.description,
        "mimeType": offer.mime_type,
        "annotations": offer.annotations or None,
    }
    return _present(told)


def _present(told: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in told.items() if value is not None}


def read_result(uri: str, given: Any, mime_type: str | None) -> dict[str, Any]:
    """Give what a resource's `read` gave as the result of `resources/read`.

    Raises:
        TypeError: where it is nothing that can be read.
    """
    if isinstance(given, str):
        return {"contents": [{"uri": uri, "mimeType": mime_type or "text/plain", "text": given}]}
    if isinstance(given, (bytes, bytearray)):
        kind = mime_type or "application/octet-stream"
        blob = base64.b64encode(given).decode("ascii")
        return {"contents": [{"uri": uri, "mimeType": kind, "blob": blob}]}
    if isinstance(given, Mapping):
        given = [given]
    if isinstance(given, (list, tuple)) and all(isinstance(item, Mapping) for item in given):
        return {"contents": [{"uri": uri, **item} for item in given]}
    raise TypeError(f"a resource gave {given!r}; it must give text, bytes or a list of contents")


def prompt_result(given: Any, description: str | None) -> dict[str, Any]:
    """Give what a prompt's `render` gave as the result of `prompts/get`.

    Raises:
        TypeError: where it is neither text nor messages.
    """
    messages = [given] if isinstance(given, (str, Mapping)) else given
    if not isinstance(messages, (list, tuple)):
        raise TypeError(f"a prompt gave {given!r}; it must give text or a list of messages")
    told = _present({"description": description})
    return {**told, "messages": [_message(message) for message in messages]}


def _message(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        return {"role": "user", "content": _content(given)}
    if given.get("role") not in {"user", "assistant"} or "content" not in given:
        raise TypeError(
            f"a prompt gave {given!r}; a message has a role, user or assistant, and content"
        )
    return {**given, "content": _content(given["content"])}


def _content(given: Any) -> dict[str, Any]:
    if isinstance(given, str):
        return {"type": "text", "text": given}
    if isinstance(given, TextContent):
        return {"type": "text", "text": given.text}
    if isinstance(given, ImageContent):
        return {"type": "image", "data": given.data, "mimeType": given.mime_type}
    if isinstance(given, Mapping):
        return {**given}
    raise TypeError(f"a prompt gave the content {given!r}; it must be text or a block")
