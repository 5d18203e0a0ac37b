"""Which JSON Schemas OpenAI's strict mode takes ("Structured model outputs", section "Supported schemas")."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["fits_strict_mode"]

_MAX_PROPERTIES = 5000
_MAX_DEPTH = 10
_TYPES = frozenset({"string", "number", "boolean", "integer", "object", "array", "null"})
_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)
_ANYWHERE = frozenset({"$schema", "title", "description"})
_KEYWORDS = _ANYWHERE | {
    "type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$defs",
    "definitions", "pattern", "format", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum",
    "minItems", "maxItems",
}  # fmt: skip


def fits_strict_mode(schema: Any) -> bool:
    """Tell whether a schema can be sent as strict: all its objects are closed and all their properties required.

    Where it is in doubt, it is not: a request with `strict` and a schema that does not fit fails as a whole.
    """
    if not isinstance(schema, Mapping) or schema.get("type") != "object" or "anyOf" in schema:
        return False
    return _Walk().fits(schema, 0)


class _Walk:
    """One walk through a schema; counts its properties."""

    def __init__(self) -> None:
        self._properties = 0

    def fits(self, schema: Any, depth: int) -> bool:
        """Tell whether a subschema fits, `depth` objects deep."""
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
            return False
        if "$ref" in schema:  # nothing may stand beside it
            reference = schema["$ref"]
            return len(schema) == 1 and isinstance(reference, str) and reference.startswith("#")
        if not schema.keys() <= _KEYWORDS or not self._says_something(schema):
            return False
        return all(check(self, schema, depth) for check in _CHECKS)

    @staticmethod
    def _says_something(schema: Mapping[str, Any]) -> bool:
        return not schema.keys().isdisjoint({"type", "enum", "const", "anyOf"})

    def _types(self, schema: Mapping[str, Any], _depth: int) -> bool:
        given = schema.get("type", ())
        types = [given] if isinstance(given, str) else given
        return isinstance(types, (list, tuple)) and all(
            isinstance(kind, str) and kind in _TYPES for kind in types
        )

    def _object(self, schema: Mapping[str, Any], depth: int) -> bool:
        if not _is(schema, "object"):
            return "properties" not in schema
        properties, required = schema.get("properties"), schema.get("required", ())
        if not isinstance(properties, Mapping) or schema.get("additionalProperties") is not False:
            return False
        self._properties += len(properties)
        closed = (
            isinstance(required, (list, tuple))
            and len(required) == len(properties)
            and all(name in required for name in properties)
        )
        return (
            closed
            and self._properties <= _MAX_PROPERTIES
            and all(self.fits(inner, depth + 1) for inner in properties.values())
        )

    def _array(self, schema: Mapping[str, Any], depth: int) -> bool:
        if not _is(schema, "array"):
            return "items" not in schema
        return self.fits(schema.get("items"), depth)

    def _others(self, schema: Mapping[str, Any], depth: int) -> bool:
        kind = schema.get("format")
        if kind is not None and (not isinstance(kind, str) or kind not in _FORMATS):
            return False
        arms = schema.get("anyOf", ())
        if not isinstance(arms, (list, tuple)) or not all(self.fits(arm, depth) for arm in arms):
            return False
        groups = [schema[key] for key in ("$defs", "definitions") if key in schema]
        return all(
            isinstance(group, Mapping) and all(self.fits(inner, depth) for inner in group.values())
            for group in groups
        )


_CHECKS: tuple[Callable[[_Walk, Mapping[str, Any], int], bool], ...] = (
    _Walk._types,
    _Walk._object,
    _Walk._array,
    _Walk._others,
)


def _is(schema: Mapping[str, Any], kind: str) -> bool:
    given = schema.get("type", ())
    return given == kind or (isinstance(given, (list, tuple)) and kind in given)
