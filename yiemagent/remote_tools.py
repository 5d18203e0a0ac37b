"""(first version, being replaced by its own helper)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from yiemagent.registry import ToolStore, list_tool, register_tool
from yiemagent.tool import AgentTool, AgentToolResult

__all__ = ["discovery_tool", "fetch_tools"]


def fetch_tools(mcp_server: Callable[..., Any], signal: Any = None) -> tuple[AgentTool, ...]:
    """Ask a server for its tools."""
    answer = mcp_server("tools/list")
    return tuple(_tool(mcp_server, spec) for spec in answer["result"]["tools"])


def _tool(mcp_server: Callable[..., Any], spec: dict[str, Any]) -> AgentTool:
    def execute(_id: str, args: dict[str, Any], _signal: Any, _partial: Any) -> str:
        answer = mcp_server("tools/call", spec["name"], args)
        return "".join(b.get("text", "") for b in answer["result"]["content"])

    return AgentTool(
        spec["name"],
        description=spec.get("description") or spec["name"],
        input_schema=spec["inputSchema"],
        execute=execute,
    )


def discovery_tool(store: ToolStore, mcp_server: Callable[..., Any]) -> AgentTool:
    """Give `list_tools` that discovers a server's tools."""

    def execute(*_args: Any) -> AgentToolResult:
        for tool in fetch_tools(mcp_server):
            register_tool(store, tool)
        return list_tool(store).execute("list")

    return AgentTool("list_tools", description="List the tools there are.", execute=execute)
