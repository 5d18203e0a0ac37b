"""The tool that tells a model which tools there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from yiemagent.tool import AgentTool, AgentToolResult

__all__ = ["HasTools", "list_tool", "tool_lines"]


class HasTools(Protocol):
    """A store of tools, as far as listing them goes."""

    def snapshot(self) -> Mapping[str, AgentTool]:
        """The tools by name, in order."""
        ...


def list_tool(store: HasTools) -> AgentTool:
    """Give the tool `list_tools`, which tells a model what is in a store at that moment."""

    def execute(
        tool_call_id: str, args: dict[str, Any], signal: object, on_partial_result: object
    ) -> AgentToolResult:
        del tool_call_id, args, signal, on_partial_result
        tools = store.snapshot()
        return AgentToolResult(tool_lines(tools.values()), details={"tools": list(tools)})

    return AgentTool(
        "list_tools",
        label="List tools",
        description="Lists the tools that are available now, with what each does.",
        execute=execute,
        parallel_tool_execute=True,
        annotations={"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False},
        examples=[("What tools are there?", {}), ("List your tools.", {})],
    )


def tool_lines(tools: Iterable[AgentTool]) -> str:
    """Give the text of `list_tools`: a head, and one line for each tool."""
    lines = [
        f"- {tool.name}: {tool.label} — {' '.join(tool.description.split())}" for tool in tools
    ]
    return "\n".join(["Available tools:", *lines])
