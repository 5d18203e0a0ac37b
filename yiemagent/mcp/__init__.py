"""The wing that speaks MCP: a blocking client and a server, over stdio, HTTP and more, in both eras of the protocol.

Each name loads when it is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yiemagent.mcp.caller import McpCaller, current_caller
    from yiemagent.mcp.client import McpClient
    from yiemagent.mcp.config import load_servers, read_servers
    from yiemagent.mcp.connecting import connect
    from yiemagent.mcp.dialers import StdioServer
    from yiemagent.mcp.http_server import HttpServer
    from yiemagent.mcp.nats import NatsServer
    from yiemagent.mcp.nats_client import NatsClient
    from yiemagent.mcp.offers import Prompt, PromptArgument, Resource, ResourceTemplate
    from yiemagent.mcp.over_nats import nats_mcp_server
    from yiemagent.mcp.pinning import Pins
    from yiemagent.mcp.serve_http import HttpServing
    from yiemagent.mcp.serve_nats import NatsServing
    from yiemagent.mcp.serve_stdio import serve_stdio
    from yiemagent.mcp.server import McpServer

__all__ = [
    "HttpServer",
    "HttpServing",
    "McpCaller",
    "McpClient",
    "McpServer",
    "NatsClient",
    "NatsServer",
    "NatsServing",
    "Pins",
    "Prompt",
    "PromptArgument",
    "Resource",
    "ResourceTemplate",
    "StdioServer",
    "connect",
    "current_caller",
    "load_servers",
    "nats_mcp_server",
    "read_servers",
    "serve_stdio",
]

_ROOMS = {
    "HttpServer": "http_server",
    "HttpServing": "serve_http",
    "McpCaller": "caller",
    "McpClient": "client",
    "McpServer": "server",
    "NatsClient": "nats_client",
    "NatsServer": "nats",
    "NatsServing": "serve_nats",
    "Pins": "pinning",
    "Prompt": "offers",
    "PromptArgument": "offers",
    "Resource": "offers",
    "ResourceTemplate": "offers",
    "StdioServer": "dialers",
    "connect": "connecting",
    "current_caller": "caller",
    "load_servers": "config",
    "nats_mcp_server": "over_nats",
    "read_servers": "config",
    "serve_stdio": "serve_stdio",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"yiemagent.mcp.{_ROOMS[name]}"), name)
