"""The tool that lists tools, for anything that has some; with a store it is tested in test_registry."""

from __future__ import annotations

from yiemagent.tool import AgentTool
from yiemagent.tool_listing import list_tool, tool_lines


class Shelf:
    """A store that is none of ours."""

    def __init__(self):
        self.tools = {}

    def snapshot(self):
        """What is on the shelf."""
        return self.tools


def test_anything_that_has_tools_can_be_listed():
    """The tool asks for a snapshot when it is called, and writes a line for each tool."""
    shelf = Shelf()
    tool = list_tool(shelf)
    shelf.tools["a"] = AgentTool("a", label="Ay", description="One\n  two.", execute=lambda *_: 1)
    result = tool.execute("1")

    assert result.text == "Available tools:\n- a: Ay — One two."
    assert result.details == {"tools": ["a"]}
    assert tool_lines([]) == "Available tools:"
    assert tool.annotations["readOnlyHint"]
