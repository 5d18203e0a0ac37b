"""A tool's schema as APIs of models take it, made at the border; the tool's own stays as it is.

One schema that an API refuses fails the whole request, whatever the other tools are, and schemas from servers of tools
are anybody's. What most APIs agree on: an object with properties and no choice between schemas at its top, lists that
say what they hold, references that lead somewhere, nothing null. A schema that is so already is given back itself. What
is lost on the way is checked all the same when the tool is called, against the tool's own schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from yiemagent.schema import resolve_reference, sound_schema

__all__ = ["offered_schema", "plain_object"]

_CHOICES = ("allOf", "anyOf", "oneOf")
# What OpenAI refuses at the top beside them ("schema must have type 'object' and not have …").
_NOT_AT_TOP = (*_CHOICES, "enum", "const", "not", "if", "then", "else", "$ref")


def offered_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give a schema as APIs take it: itself where it is so already, else a plain copy made fit."""
    sound, notes = sound_schema({key: value for key, value in schema.items() if value is not None})
    lists = [node for node in _nodes(sound) if _is_open_list(node)]
    if not notes and not lists and _is_plain(schema) and not _has_null(schema):
        return schema
    for node in lists:
        node["items"] = {}
    return plain_object(_without_null(sound))


def plain_object(sound: Mapping[str, Any]) -> dict[str, Any]:
    """Give a sound schema as an object with properties, and no choice between schemas at its top.

    The model is shown what all arms of a choice name; what stands in all of them or in an `allOf` stays required.
    """
    whole = _followed(dict(sound))
    properties = dict(_mapping(whole.get("properties")))
    required = list(whole.get("required") or ())
    for key in _CHOICES:
        for arm in map(_mapping, whole.get(key) or ()):
            arm = _followed({**_definitions(whole), **arm})  # noqa: PLW2901 - the same arm, its reference followed
            for name, value in _mapping(arm.get("properties")).items():
                properties.setdefault(name, value)
            required += (arm.get("required") or ()) if key == "allOf" else ()
    given = {key: value for key, value in whole.items() if key not in _NOT_AT_TOP}
    given |= {"type": "object", "properties": properties}
    if required:
        given["required"] = list(dict.fromkeys(required))
    sound, _ = sound_schema(given)  # a reference may have led into an arm
    return sound


def _followed(schema: dict[str, Any]) -> dict[str, Any]:
    """Give a schema with what a reference at its top leads to; one that leads in a circle to nothing."""
    seen: set[str] = set()
    while isinstance(reference := schema.get("$ref"), str):
        target = _mapping(resolve_reference(schema, reference))
        own = {key: value for key, value in schema.items() if key != "$ref"}
        if reference in seen or not target:
            return own
        seen.add(reference)
        schema = {**target, **own}
        if "$ref" in target and target is not schema:
            schema["$ref"] = target["$ref"]
    return schema


def _definitions(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: schema[key] for key in ("$defs", "definitions") if key in schema}


def _is_plain(schema: Mapping[str, Any]) -> bool:
    return (
        schema.get("type") == "object"
        and isinstance(schema.get("properties"), Mapping)
        and schema.keys().isdisjoint(_NOT_AT_TOP)
    )


def _is_open_list(node: Mapping[str, Any]) -> bool:
    kind = node.get("type")
    is_list = kind == "array" or (isinstance(kind, list) and "array" in kind)
    return is_list and "items" not in node and "prefixItems" not in node


# What holds values of the user's, where null is one.
_VALUES = {"const", "default", "enum", "example", "examples"}


def _has_null(node: Any) -> bool:
    if isinstance(node, Mapping):
        return any(
            value is None or _has_null(value) for key, value in node.items() if key not in _VALUES
        )
    return isinstance(node, (list, tuple)) and any(map(_has_null, node))


def _without_null(node: Any) -> Any:
    if isinstance(node, dict):
        return {
            key: value if key in _VALUES else _without_null(value)
            for key, value in node.items()
            if value is not None or key in _VALUES
        }
    return [_without_null(item) for item in node] if isinstance(node, list) else node


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    """Every object in a schema that may be a subschema."""
    if isinstance(node, dict):
        yield node
        for key, value in node.items():
            if key not in _VALUES:
                yield from _nodes(value)
    elif isinstance(node, list):
        for item in node:
            yield from _nodes(item)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
