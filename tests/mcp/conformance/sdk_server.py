"""A server made with the official Python SDK: `python sdk_server.py stdio`, or `http PORT`."""

from __future__ import annotations

import sys

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import BaseModel

server = MCPServer("sdk")


class Name(BaseModel):
    """What is asked for."""

    name: str


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def steps(n: int, ctx: Context) -> str:
    """Tell of progress."""
    for step in range(n):
        await ctx.report_progress(step + 1, n)
    return f"{n} steps"


@server.tool()
async def who(ctx: Context) -> str:
    """Ask for a name."""
    answer = await ctx.elicit("who are you", Name)
    return f"hello {answer.data.name}"


@server.tool()
def boom() -> str:
    """Fail."""
    raise ValueError("boom")


@server.resource("data://numbers")
def numbers() -> str:
    """Give numbers."""
    return "[1, 2]"


@server.prompt()
def greet(name: str) -> str:
    """Greet."""
    return f"Say hello to {name}."


if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
