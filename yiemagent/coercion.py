"""Arguments turned into what the schema plainly asks for: types that models get wrong, and defaults.

Only what can mean one thing is changed: "5" for an integer, "true" for a boolean, an object or a list sent as JSON
text, null for an optional property. A value that fits already, be it one arm of a union, stays as it is.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from yiemagent.schema import plain_copy, resolve_reference

__all__ = ["Coercer", "loads_json"]

_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.0+)?")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is too large")
    return number


_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)


def loads_json(text: str) -> Any:
    """Give the value of a strict JSON text: no NaN, no infinity, nothing that a float can't hold.

    Raises:
        ValueError: where it is none.
        RecursionError: where it is nested too deeply.
    """
    return _DECODER.decode(text)


class Coercer:
    """Coerces values for one sound schema; used by any thread.

    Args:
        root: the schema, as `sound_schema` gives it.
        fits: says whether a value is valid for a subschema of it.
    """

    def __init__(self, root: dict[str, Any], fits: Callable[[Any, Any], bool]) -> None:
        self._root = root
        self._fits = fits
        # What is known about subschemas, by their identity: they live as long as the root. A lost race costs a
        # look-up.
        self._references: dict[str, Any] = {}
        self._sound_defaults: dict[int, bool] = {}

    def coerce(self, node: Any, value: Any) -> Any:
        """Give `value` as the subschema `node` asks for; the same object where nothing is to change."""
        if not isinstance(node, dict):
            return value
        if "$ref" in node:
            value = self.coerce(self._target(node["$ref"]), value)
        for part in node.get("allOf", ()):
            value = self.coerce(part, value)
        for key in ("anyOf", "oneOf"):
            if key in node:
                value = self._union(node[key], value)
        if "type" in node:
            value = _convert(node["type"], value)
        if isinstance(value, dict):
            return self._object(node, value)
        if isinstance(value, list):
            return self._array(node, value)
        return value

    def _target(self, reference: str) -> Any:
        if reference not in self._references:
            self._references[reference] = resolve_reference(self._root, reference)
        return self._references[reference]

    def _union(self, arms: list[Any], value: Any) -> Any:
        fitting = [arm for arm in arms if self._fits(arm, value)]
        if fitting:
            return self.coerce(fitting[0], value) if len(fitting) == 1 else value
        for arm in arms:
            changed = self.coerce(arm, value)
            if changed is not value and self._fits(arm, changed):
                return changed
        return value

    def _object(self, node: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
        properties = node.get("properties", {})
        required = node.get("required")
        required = required if isinstance(required, list) else ()  # draft 3 has a boolean
        result: dict[str, Any] = {}
        changed = False
        for name, item in value.items():
            if name in properties:
                fresh = self.coerce(properties[name], item)
                if (
                    fresh is None
                    and name not in required
                    and not self._fits(properties[name], None)
                ):
                    changed = True
                    continue
            else:
                fresh = self._unnamed(node, name, item)
            result[name] = fresh
            changed = changed or fresh is not item
        for name, schema in properties.items():
            if name not in result and self._has_default(schema):
                result[name] = plain_copy(self._default(schema))
                changed = True
        return result if changed else value

    def _unnamed(self, node: dict[str, Any], name: str, item: Any) -> Any:
        for pattern, schema in node.get("patternProperties", {}).items():
            if re.search(pattern, name):
                return self.coerce(schema, item)
        return self.coerce(node.get("additionalProperties"), item)

    def _has_default(self, schema: Any) -> bool:
        """Whether there is a default, and one that its own schema allows: a false one would fail every call."""
        if not isinstance(schema, dict):
            return False
        known = self._sound_defaults.get(id(schema))
        if known is None:
            default = self._default(schema)
            known = default is not _NONE and self._fits(schema, default)
            self._sound_defaults[id(schema)] = known
        return known

    def _default(self, schema: dict[str, Any]) -> Any:
        for _ in range(8):  # a chain of references ends somewhere, or it is a circle
            if "default" in schema:
                return schema["default"]
            target = self._target(schema["$ref"]) if "$ref" in schema else None
            if not isinstance(target, dict):
                break
            schema = target
        return _NONE

    def _array(self, node: dict[str, Any], value: list[Any]) -> list[Any]:
        items = node.get("items")
        first = node.get("prefixItems", items if isinstance(items, list) else [])
        rest = node.get("additionalItems") if isinstance(items, list) else items
        if not first and not isinstance(rest, dict):
            return value
        result = [
            self.coerce(first[i] if i < len(first) else rest, item) for i, item in enumerate(value)
        ]
        same = all(one is other for one, other in zip(result, value, strict=True))
        return value if same else result


_NONE: Any = object()


def _convert(types: Any, value: Any) -> Any:
    names = (types,) if isinstance(types, str) else types
    if isinstance(value, str):
        return value if "string" in names else _from_text(names, value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or "number" in names:
        return value
    if "integer" in names:
        return int(value) if isinstance(value, float) and value.is_integer() else value
    return json.dumps(value) if "string" in names else value


def _from_text(names: Any, text: str) -> Any:
    for name, read in _READERS.items():
        if name in names:
            try:
                return read(text.strip())
            except (ValueError, RecursionError):
                continue
    return text


def _integer(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError(text)
    return int(text.partition(".")[0])


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    return _finite(text) if set(text) & set(".eE") else int(text)


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[_one_of(text.lower(), ("true", "false"))]


def _null(text: str) -> None:
    _one_of(text.lower(), ("null",))


def _one_of(text: str, words: tuple[str, ...]) -> str:
    if text not in words:
        raise ValueError(text)
    return text


def _container(kind: type, text: str) -> Any:
    value = loads_json(text) if text[:1] in {"{", "["} else None
    if isinstance(value, kind):
        return value
    raise ValueError(text)


_READERS: Mapping[str, Callable[[str], Any]] = {
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "null": _null,
    "object": lambda text: _container(dict, text),
    "array": lambda text: _container(list, text),
}
