"""JSON Schemas as tools bring them, made sound: a copy that a validator of their dialect can hold.

Schemas come from people, generators and servers of all ages. What the dialect can't hold is translated where its
meaning is plain (a boolean `exclusiveMinimum`, a list in `items`) and left out otherwise, so that checking arguments
never raises; each change is told in words. Nothing here needs a validator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["draft_of", "plain_copy", "resolve_reference", "sound_schema", "without_reference"]

LATEST = 2020
TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})

_ONE = {
    "additionalItems",
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
}
_REFERENCES = {"$dynamicRef", "$recursiveRef", "$ref"}
_LISTS = {"allOf", "anyOf", "oneOf", "prefixItems"}
# What says more about the same value, not about one inside of it.
_SAME_VALUE = {"allOf", "anyOf", "dependentSchemas", "else", "if", "not", "oneOf", "then"}
_CIRCLES = 20  # how many are opened one by one
_MAPS = {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_names(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value)


def _is_anchor(value: Any) -> bool:
    return isinstance(value, str) and bool(re.fullmatch(r"[A-Za-z_][-A-Za-z0-9._]*", value))


def _is_pattern(value: Any) -> bool:
    try:
        re.compile(value)
    except (re.error, TypeError, RecursionError, OverflowError):
        return False
    return True


def _is_type(value: Any) -> bool:
    if isinstance(value, str):
        return value in TYPES
    return isinstance(value, (list, tuple)) and bool(value) and all(map(_is_type_name, value))


def _is_type_name(value: Any) -> bool:
    return isinstance(value, str) and value in TYPES


_VALUES: dict[str, Callable[[Any], bool]] = {
    "$anchor": _is_anchor,
    "$dynamicAnchor": _is_anchor,
    "$dynamicRef": lambda value: isinstance(value, str),
    "$id": lambda value: isinstance(value, str),
    "$ref": lambda value: isinstance(value, str),
    "dependentRequired": lambda value: (
        isinstance(value, Mapping) and all(map(_is_names, value.values()))
    ),
    "enum": lambda value: isinstance(value, (list, tuple)),
    "exclusiveMaximum": _is_number,
    "exclusiveMinimum": _is_number,
    "format": lambda value: isinstance(value, str),
    "maxContains": _is_count,
    "maxItems": _is_count,
    "maxLength": _is_count,
    "maxProperties": _is_count,
    "maximum": _is_number,
    "minContains": _is_count,
    "minItems": _is_count,
    "minLength": _is_count,
    "minProperties": _is_count,
    "minimum": _is_number,
    "multipleOf": lambda value: _is_number(value) and value > 0,
    "pattern": _is_pattern,
    "required": _is_names,
    "type": _is_type,
    "uniqueItems": lambda value: isinstance(value, bool),
}


def draft_of(schema: Mapping[str, Any]) -> int:
    """Give the dialect that `$schema` names: 3, 4, 6, 7, 2019 or 2020; 2020 where it names none that is known."""
    name = schema.get("$schema")
    found = re.search(r"draft(?:/|-0?)(\d+)", name) if isinstance(name, str) else None
    draft = int(found[1]) if found else LATEST
    return draft if draft in {3, 4, 6, 7, 2019} else LATEST


def plain_copy(value: Any) -> Any:
    """Give a JSON value anew, as plain dicts and lists."""
    if isinstance(value, Mapping):
        return {key: plain_copy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_copy(item) for item in value]
    return value


def sound_schema(schema: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Make a schema sound.

    Args:
        schema: as it came; never changed.

    Returns:
        A plain copy without what its dialect can't hold, and each change in words.
    """
    notes: list[str] = []
    sound = _Sound(draft_of(schema), notes).schema(schema, "")
    assert isinstance(sound, dict)
    if draft_of(sound) == LATEST:  # which is what no name means, too; an unknown name means nothing
        sound.pop("$schema", None)
    _drop_lost_references(sound, notes)
    _drop_endless_references(sound, notes)
    return sound, notes


class _Sound:
    """One walk over a schema of one dialect."""

    def __init__(self, draft: int, notes: list[str]) -> None:
        self._draft = draft
        self._notes = notes

    def schema(self, node: Any, where: str) -> dict[str, Any] | bool:
        if isinstance(node, bool):
            return node
        if not isinstance(node, Mapping):
            self._drop(where, node)
            return True
        sound: dict[str, Any] = {}
        for key, value in node.items():
            if isinstance(key, str):
                self._keyword(sound, key, value, f"{where}/{key}")
            else:
                self._drop(f"{where}/{key!r}", value)
        self._translate(sound, where)
        return sound

    def _keyword(self, sound: dict[str, Any], key: str, value: Any, where: str) -> None:
        if key == "items" and isinstance(value, (list, tuple)):
            sound[key] = [self.schema(item, f"{where}/{i}") for i, item in enumerate(value)]
        elif key in _ONE and isinstance(value, (Mapping, bool)):
            sound[key] = self.schema(value, where)
        elif key in _LISTS and isinstance(value, (list, tuple)) and value:
            sound[key] = [self.schema(item, f"{where}/{i}") for i, item in enumerate(value)]
        elif key in _MAPS and isinstance(value, Mapping):
            sound[key] = self._map(key, value, where)
        elif key in _ONE or key in _LISTS or key in _MAPS:
            self._drop(where, value)
        else:
            self._value(sound, key, value, where)

    def _map(self, key: str, value: Mapping[Any, Any], where: str) -> dict[str, Any]:
        kept = {}
        for name, node in value.items():
            if not isinstance(name, str) or (key == "patternProperties" and not _is_pattern(name)):
                self._drop(f"{where}/{name}", node)
            else:
                kept[name] = self.schema(node, f"{where}/{name}")
        return kept

    def _value(self, sound: dict[str, Any], key: str, value: Any, where: str) -> None:
        if key == "type" and not _is_type(value):
            value = _lower_case(value)
        legal = _VALUES.get(key)
        if key == "$id" and self._draft >= 2019 and "#" in str(value).rstrip("#"):
            legal = _never  # a name inside the schema is an $anchor since then
        older = key in {"exclusiveMinimum", "exclusiveMaximum"} and isinstance(value, bool)
        if (
            legal is None
            or legal(value)
            or older
            or (self._draft == 3 and key in {"required", "type"})
        ):
            sound[key] = plain_copy(value)
        else:
            self._drop(where, value)

    def _translate(self, sound: dict[str, Any], where: str) -> None:
        if self._draft > 4:
            for key, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
                if isinstance(sound.get(key), bool):
                    self._exclusive(sound, key, bound, where)
        if self._draft == LATEST and isinstance(sound.get("items"), list):
            first = sound.pop("items")
            if first:
                sound["prefixItems"] = first
            if "additionalItems" in sound:
                sound["items"] = sound.pop("additionalItems")
            self._notes.append(f"{where}/items: a list is read as prefixItems")

    def _exclusive(self, sound: dict[str, Any], key: str, bound: str, where: str) -> None:
        if sound.pop(key) and bound in sound:
            sound[key] = sound.pop(bound)
        self._notes.append(f"{where}/{key}: a boolean is read as in draft 4")

    def _drop(self, where: str, value: Any) -> None:
        text = repr(value)
        self._notes.append(f"{where}: {text if len(text) < 60 else text[:57] + '...'} is left out")


def _never(value: Any) -> bool:
    del value
    return False


def _lower_case(value: Any) -> Any:
    """Give type names as JSON Schema writes them, where they are these names in capitals."""
    if isinstance(value, str):
        return value.lower()
    if isinstance(value, (list, tuple)):
        return [_lower_case(item) for item in value]
    return value


def _drop_lost_references(root: dict[str, Any], notes: list[str]) -> None:
    nodes = list(_nodes(root))
    if any("$id" in node or "id" in node for node in nodes if node is not root):
        return  # references count from there; the validator knows how
    for node in nodes:
        reference = node.get("$ref")
        if isinstance(reference, str) and resolve_reference(root, reference) is None:
            notes.append(f"$ref {reference!r} leads nowhere inside the schema and is left out")
            del node["$ref"]


def _drop_endless_references(root: dict[str, Any], notes: list[str]) -> None:
    """Drop references that lead back to themselves without coming to another value: to check them would never end."""
    nodes = list(_nodes(root))
    referring = [node for node in nodes if _REFERENCES & node.keys()]
    if any("$id" in node or "id" in node for node in nodes if node is not root):
        return  # references count from there
    for left in reversed(range(_CIRCLES)):
        circle = _circle(root) if referring else []
        if not circle:
            return
        # Whatever a circle is made of, a reference closes it.
        closing = [node for node in circle if _REFERENCES & node.keys()]
        for node in closing[:1] if left else referring:
            found = sorted(_REFERENCES & node.keys())
            notes += [
                f"{key} {node.pop(key)!r} leads back to itself and is left out" for key in found
            ]


def _circle(root: dict[str, Any]) -> list[dict[str, Any]]:
    """Give subschemas that lead to each other in a circle, all about the same value; none where there is no circle."""
    from graphlib import CycleError, TopologicalSorter  # few schemas have references

    nodes = {id(node): node for node in _nodes(root)}
    leads = {
        own: [id(other) for other in _about_the_same(node, root)] for own, node in nodes.items()
    }
    try:
        TopologicalSorter(leads).prepare()
    except CycleError as error:
        return [nodes[own] for own in error.args[1] if own in nodes]
    return []


def _about_the_same(node: dict[str, Any], root: dict[str, Any]) -> Iterator[Any]:
    """Give the subschemas that a subschema has its own value checked by."""
    for key in _REFERENCES & node.keys():
        if isinstance(node[key], str):
            yield resolve_reference(root, node[key])
    for key in _SAME_VALUE & node.keys():
        value = node[key]
        if key == "dependentSchemas":
            yield from value.values()
        else:
            yield from value if isinstance(value, list) else [value]


def without_reference(schema: dict[str, Any], reference: str) -> tuple[dict[str, Any], list[str]]:
    """Give a sound schema without the references of this text; where none has it, without any.

    Returns:
        A new schema with fewer references, and each change in words.
    """
    copy: dict[str, Any] = plain_copy(schema)
    notes: list[str] = []
    referring = [node for node in _nodes(copy) if _REFERENCES & node.keys()]
    lost = [node for node in referring if node.get("$ref") == reference]
    for node in lost or referring:
        found = sorted(_REFERENCES & node.keys())
        notes += [f"{key} {node.pop(key)!r} leads nowhere and is left out" for key in found]
    if not notes:  # it stands where only the validator looks
        return {}, [f"a reference to {reference!r} leads nowhere, so nothing is checked"]
    return copy, notes


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    """Every subschema of a sound schema, itself included."""
    if not isinstance(node, dict):
        return
    yield node
    for key, value in node.items():
        if key in _MAPS:
            for item in value.values():
                yield from _nodes(item)
        elif key in _LISTS or isinstance(value, list):
            for item in value if key in _LISTS or key == "items" else ():
                yield from _nodes(item)
        elif key in _ONE:
            yield from _nodes(value)


def resolve_reference(root: dict[str, Any], reference: str) -> Any:
    """Give the subschema that a `$ref` inside `root` means, or None where it is not in there."""
    base, _, fragment = reference.partition("#")
    if base and base != root.get("$id", root.get("id")):
        return None
    if not fragment:
        return root
    if not fragment.startswith("/"):
        anchors = ("$anchor", "$dynamicAnchor")
        named = (n for n in _nodes(root) if fragment in [n.get(key) for key in anchors])
        return next(named, None)
    node: Any = root
    for part in fragment[1:].split("/"):
        name = _unescaped(part)
        if isinstance(node, dict) and name in node:
            node = node[name]
        elif isinstance(node, list) and name.isdecimal() and int(name) < len(node):
            node = node[int(name)]
        else:
            return None
    return node if isinstance(node, (dict, bool)) else None


def _unescaped(part: str) -> str:
    if "%" in part:
        part = re.sub(
            r"(?:%[0-9A-Fa-f]{2})+",
            lambda found: bytes.fromhex(found[0].replace("%", "")).decode("utf-8", "replace"),
            part,
        )
    return part.replace("~1", "/").replace("~0", "~")
