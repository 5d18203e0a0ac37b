"""What a tool's process and its parent say to each other beyond MCP: facts in `_meta`, and what a tool tells of itself.

Both ends are of one version, since the parent starts the child. So nothing here is negotiated, and a fact that is not
there is a fault of the tool's file, which may do in its process whatever it likes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yiemagent.events import ToolExecUpdateEvent
from yiemagent.messages import LlmUsage
from yiemagent.payload import FrozenDict, thaw_json
from yiemagent.tool import AgentTool, AgentToolResult

__all__ = [
    "CALL_META",
    "PREPARE",
    "RESULT_META",
    "TOOL_META",
    "VALIDATE",
    "partial_of",
    "partial_words",
    "result_facts",
    "tool_facts",
    "with_result_facts",
]

TOOL_META = "yiemagent/tool"
"""In a definition: what MCP has no word for."""
CALL_META = "yiemagent/call"
"""In a call: its id as the pipeline knows it."""
RESULT_META = "yiemagent/result"
"""In a result: what MCP has no word for."""

PREPARE, VALIDATE = "-prepare_arguments", "-validate_required_args"
"""The tools by which the parent reaches these two functions of a file that it did not load."""


def tool_facts(tool: AgentTool) -> dict[str, Any]:
    """Give what a tool is beside its definition in MCP."""
    return {
        "parallel_tool_execute": bool(tool.parallel_tool_execute),
        "timeout_s": tool.timeout_s,
        "lock": list(tool.lock),
        "examples": [[text, thaw_json(arguments)] for text, arguments in tool.examples],
        "prepares": tool.prepare_arguments is not None,
        "validates": tool.validate_required_args is not None,
    }


def result_facts(result: AgentToolResult) -> dict[str, Any]:
    """Give what a result is beside its content."""
    facts: dict[str, Any] = {}
    if result.details != {}:
        from yiemagent.codec import json_payload

        facts["details"] = json_payload(result.details)
    if result.usage is not None:
        facts["usage"] = {name: getattr(result.usage, name) for name in _USAGE}
    if result.terminate:
        facts["terminate"] = True
    if result.added_tool_names:
        facts["added_tool_names"] = list(result.added_tool_names)
    return facts


_USAGE = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cost",
)


def with_result_facts(content: Any, facts: Any) -> AgentToolResult:
    """Give the result that `result_facts` told of."""
    if not isinstance(facts, Mapping):
        return AgentToolResult(content)
    usage = facts.get("usage")
    return AgentToolResult(
        content,
        details=facts.get("details", {}),
        usage=LlmUsage(**usage) if isinstance(usage, dict) else None,
        terminate=facts.get("terminate") is True,
        added_tool_names=facts.get("added_tool_names") or (),
    )


def partial_words(number: int, partial: Any) -> dict[str, Any]:
    """Give progress of any kind in the words of MCP: a number that grows, and a text, which holds it as JSON."""
    from yiemagent.codec import dumps

    event = ToolExecUpdateEvent("", "", FrozenDict(), partial)
    return {"progress": number, "message": dumps(event)}


def partial_of(params: Mapping[str, Any]) -> Any:
    """Give the progress that `partial_words` told of.

    Raises:
        InvalidJson: it is none.
    """
    from yiemagent.codec import loads

    return loads(str(params.get("message"))).partial_result
