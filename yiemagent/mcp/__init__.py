"""The wing that speaks MCP: a blocking client and a server, over stdio, HTTP and more, in both eras of the protocol."""

from __future__ import annotations

__all__: list[str] = []
