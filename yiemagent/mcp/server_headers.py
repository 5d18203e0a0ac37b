"""Headers that repeat what a request's body says, as a server checks them; no I/O.

Proxies act on the headers and the server on the body, so what differs is refused. Facts from the specification
2026-07-28, "Streamable HTTP", "Request Metadata".
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from yiemagent.mcp.jsonrpc import Request
from yiemagent.mcp.server_protocol import RpcFailure
from yiemagent.mcp.versions import HEADER_MISMATCH, PROTOCOL_VERSION_META

__all__ = ["check_headers"]

SchemaOf = Callable[[str], Mapping[str, Any] | None]

_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_ENCODED = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)
_UNSENDABLE = re.compile(r"[^\t\x20-\x7e]")


def check_headers(headers: Mapping[str, str], request: Request, schema_of: SchemaOf) -> None:
    """Hold a stateless request's headers against its body.

    Args:
        headers: by lower-case name.
        request: the body.
        schema_of: gives the input schema of a tool by its name, or None.

    Raises:
        RpcFailure: one is missing, unreadable, or says something else than the body.
    """
    meta = request.params.get("_meta")
    version = meta.get(PROTOCOL_VERSION_META) if isinstance(meta, dict) else None
    if isinstance(version, str):  # else the body itself is refused
        _compare("MCP-Protocol-Version", headers.get("mcp-protocol-version"), version)
    _compare("Mcp-Method", headers.get("mcp-method"), request.method)
    field = _NAMED.get(request.method)
    if field is not None and isinstance(request.params.get(field), str):
        _compare("Mcp-Name", _decoded("Mcp-Name", headers.get("mcp-name")), request.params[field])
    if request.method == "tools/call":
        _check_parameters(headers, request, schema_of)


def _check_parameters(headers: Mapping[str, str], request: Request, schema_of: SchemaOf) -> None:
    name, arguments = request.params.get("name"), request.params.get("arguments")
    schema = schema_of(name) if isinstance(name, str) else None
    if schema is None:
        return
    for label, path in _mirrored(schema, ()):
        header = f"Mcp-Param-{label}"
        value: Any = arguments
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        said = _decoded(header, headers.get(header.lower()))
        if value is None:
            if said is not None:
                raise _mismatch(f"the header {header} stands for an argument that is not there")
        elif not _same(said, value):
            raise _mismatch(f"the header {header} is {said!r}, and the argument {value!r}")


def _mirrored(
    schema: Mapping[str, Any], path: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Give the label and the path of each property that is mirrored in a header."""
    properties = schema.get("properties")
    for name, node in properties.items() if isinstance(properties, Mapping) else ():
        if not isinstance(node, Mapping):
            continue
        label = node.get("x-mcp-header")
        if isinstance(label, str) and label:
            yield label, (*path, name)
        yield from _mirrored(node, (*path, name))


def _same(said: str | None, value: Any) -> bool:
    if said is None:
        return False
    if isinstance(value, bool):
        return said == ("true" if value else "false")
    if isinstance(value, (int, float)):
        try:
            return float(said) == float(value)
        except ValueError:
            return False
    return bool(said == value)


def _decoded(header: str, said: str | None) -> str | None:
    """Give a header's value out of the Base64 that stands for what headers can't hold."""
    if said is None:
        return None
    if _UNSENDABLE.search(said):
        raise _mismatch(f"the header {header} holds characters that headers can't hold")
    encoded = _ENCODED.fullmatch(said)
    if encoded is None:
        return said
    try:
        return base64.b64decode(encoded[1], validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        raise _mismatch(f"the header {header} is no Base64 of UTF-8") from None


def _compare(header: str, said: str | None, meant: str) -> None:
    if said is None:
        raise _mismatch(f"the header {header} is missing")
    if said != meant:
        raise _mismatch(f"the header {header} is {said!r}, and the body says {meant!r}")


def _mismatch(text: str) -> RpcFailure:
    return RpcFailure(HEADER_MISMATCH, text)
