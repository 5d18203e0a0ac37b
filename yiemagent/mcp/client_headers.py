"""Headers that repeat for proxies what a request's body says, as a client writes them; no I/O.

Facts from the specification 2026-07-28, "Streamable HTTP", "Request Metadata" and "Custom
Headers from Tool Parameters".
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["header_fault", "header_value", "request_headers"]

Path = tuple[str, ...]

_ANNOTATION = "x-mcp-header"
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2
_PLAIN = re.compile(r"|[!-~]|[!-~][ -~\t]*[!-~]")
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_MAX_DEPTH = 64


def request_headers(
    version: str, method: str, params: Mapping[str, Any], schema: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Give the headers of a stateless request.

    Args:
        version: of the protocol.
        method: of the request.
        params: of the request.
        schema: the input schema of the tool that is called, where it is known.
    """
    headers = {"MCP-Protocol-Version": version, "Mcp-Method": method}
    name = params.get(_NAMED.get(method, ""))
    if isinstance(name, str):
        headers["Mcp-Name"] = header_value(name)
    if method == "tools/call" and schema is not None:
        for path, label, _ in _annotated(schema):
            value = _at(params.get("arguments"), path)
            if value is not None:
                headers[f"Mcp-Param-{label}"] = header_value(value)
    return headers


def header_value(value: Any) -> str:
    """Give a value as text that survives a header: as it is, or wrapped in `=?base64?…?=`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if _PLAIN.fullmatch(text) and not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'replace')).decode('ascii')}?="


def header_fault(schema: Any) -> str | None:
    """Say what is wrong with the header annotations of an input schema, or None; a tool with a fault is dropped."""
    seen: set[str] = set()
    for path, label, field in _annotated(schema):
        where = ".".join(path)
        if not isinstance(label, str) or not _TOKEN.fullmatch(label):
            return f"the header of {where!r} is {label!r:.80}, which is no header's name"
        if label.lower() in seen:
            return f"two parameters want the header {label!r}"
        if field.get("type") not in ("string", "integer", "boolean"):
            return f"{where!r} wants a header and is no string, integer or boolean"
        seen.add(label.lower())
    if _count(schema, 0) > len(seen):
        return "a header is wanted by something that is no plain property"
    return None


def _annotated(schema: Any, path: Path = ()) -> Iterator[tuple[Path, Any, Mapping[str, Any]]]:
    """Give the annotated properties that a chain of plain properties leads to: path, wanted header, schema."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping) or len(path) > _MAX_DEPTH:
        return
    for name, field in properties.items():
        if isinstance(field, Mapping):
            if _ANNOTATION in field:
                yield (*path, name), field[_ANNOTATION], field
            yield from _annotated(field, (*path, name))


def _count(value: Any, depth: int) -> int:
    """Count the annotations anywhere in a schema; a property may be called like one."""
    if depth > 2 * _MAX_DEPTH:
        return 0
    if isinstance(value, Mapping):
        return sum(
            sum(_count(field, depth + 2) for field in item.values())
            if key == "properties" and isinstance(item, Mapping)
            else (key == _ANNOTATION) + _count(item, depth + 1)
            for key, item in value.items()
            if key not in {"default", "const", "enum", "examples"}
        )
    if isinstance(value, (list, tuple)):
        return sum(_count(item, depth + 1) for item in value)
    return 0


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value if isinstance(value, (str, int)) else None
