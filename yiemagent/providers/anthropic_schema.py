"""JSON Schemas as the Anthropic Messages API takes them: of a tool's input, and of a structured answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from yiemagent.schema import sound_schema

__all__ = ["answer_schema", "input_schema"]

_CHOICES = ("allOf", "anyOf", "oneOf")


# --- tools ----------------------------------------------------------------------------------------------------------


def input_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Give a tool's schema as `input_schema`: an object with properties, and no choice between schemas at its top.

    The API refuses "anyOf", "oneOf" and "allOf" there. The model is shown what all their arms name; which of them may
    stand together is checked when the tool is called, against the tool's own schema.
    """
    sound = _latest(schema)
    properties = dict(_mapping(sound.get("properties")))
    required = list(sound.get("required") or ())
    choices = {key: sound.pop(key) for key in _CHOICES if key in sound}
    for key, arms in choices.items():
        for arm in map(_mapping, arms):
            for name, value in _mapping(arm.get("properties")).items():
                properties.setdefault(name, value)
            required += (arm.get("required") or ()) if key == "allOf" else ()
    given = {key: value for key, value in sound.items() if value is not None}
    given |= {"type": "object", "properties": properties}
    if required:
        given["required"] = list(dict.fromkeys(required))
    return _latest(given) if choices else given  # a reference may have led into an arm


def _latest(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Give a schema as the dialect 2020-12 has it, which is the API's, whatever dialect it names."""
    sound, _ = sound_schema({key: value for key, value in schema.items() if key != "$schema"})
    return sound


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


# --- structured answers ---------------------------------------------------------------------------------------------

# What the API can hold an answer to ("Structured outputs", JSON Schema limitations). Any other keyword is told to the
# model in words; the whole schema is checked when the answer is here.
_KEPT = {"type", "enum", "const", "description", "title", "$ref"}
_KEPT_VALUES: Mapping[str, tuple[Any, ...]] = {
    "format": (
        "date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid",
    ),
    "minItems": (0, 1),
}  # fmt: skip
_SILENT = {"$id", "$comment", "default", "examples", "readOnly", "writeOnly"}


class _Unfit(Exception):
    """The API can't hold an answer to this schema."""


def answer_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Give a schema of an answer as `output_config.format` takes it; None where it can't say the same.

    It can't where an object may have any names, and where a schema holds itself.
    """
    sound = _latest(schema)
    try:
        return _strict(sound, _definitions(sound))
    except _Unfit:
        return None


def _definitions(sound: Mapping[str, Any]) -> Mapping[str, Any]:
    definitions = {
        f"#/{key}/{name}": value
        for key in ("$defs", "definitions")
        for name, value in _mapping(sound.get(key)).items()
    }
    for name in definitions:
        _refuse_circle(name, definitions, ())
    return definitions


def _refuse_circle(name: str, definitions: Mapping[str, Any], path: tuple[str, ...]) -> None:
    if name in path or name not in definitions:
        raise _Unfit
    for other in _references(definitions[name]):
        _refuse_circle(other, definitions, (*path, name))


def _references(node: Any) -> list[str]:
    if isinstance(node, list):
        return [found for item in node for found in _references(item)]
    if not isinstance(node, dict):
        return []
    own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
    return own + [found for value in node.values() for found in _references(value)]


def _strict(node: Any, definitions: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(node, dict):
        raise _Unfit
    if any(name not in definitions for name in _references(node)):
        raise _Unfit
    strict: dict[str, Any] = {}
    told: dict[str, Any] = {}
    for key, value in node.items():
        if key in _KEPT or value in _KEPT_VALUES.get(key, ()):
            strict[key] = value
        elif key in {"anyOf", "oneOf", "allOf"} and isinstance(value, list):
            strict["allOf" if key == "allOf" else "anyOf"] = [
                _strict(arm, definitions) for arm in value
            ]
        elif key in {"$defs", "definitions"}:
            strict[key] = {name: _strict(item, definitions) for name, item in value.items()}
        elif key == "items":
            strict[key] = _strict(value, definitions)
        elif key not in {"properties", "required", "additionalProperties"} | _SILENT:
            told[key] = value
    if _is_object(node):
        strict |= _object(node, definitions)
    if told:
        words = json.dumps(told, ensure_ascii=False, default=str)
        strict["description"] = f"{strict.get('description', '')} {words}".strip()
    return strict


def _is_object(node: Mapping[str, Any]) -> bool:
    kind = node.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind) or "properties" in node


def _object(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    properties = _mapping(node.get("properties"))
    more = node.get("additionalProperties")
    if (
        isinstance(more, Mapping)
        or "patternProperties" in node
        or (not properties and more is not False)
    ):
        raise _Unfit
    strict: dict[str, Any] = {
        "properties": {name: _strict(value, definitions) for name, value in properties.items()},
        "additionalProperties": False,
    }
    if node.get("required"):
        strict["required"] = list(node["required"])
    return strict
