"""Write a whole file below one folder, in one step.

The folder is `YIEMAGENT_ROOT` of the environment, else the working folder when the tool is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from yiemagent.abort import AbortSignal
from yiemagent.errors import ToolError
from yiemagent.tool import AgentTool, AgentToolResult
from yiemagent.workspace import Workspace, workspace_from

__all__ = ["get_tool", "prepare_arguments"]

INPUT_SCHEMA = {
    "type": "object",
    "properties": {
        "path": {
            "type": "string",
            "description": "The file, from the working folder: 'docs/notes.md'",
        },
        "content": {"type": "string", "description": "All that is to be in the file"},
        "overwrite": {
            "type": "boolean",
            "default": False,
            "description": "Whether a file that is there already is replaced",
        },
    },
    "required": ["path", "content"],
}
EXAMPLES = (
    ("Save 'hello' as greeting.txt.", {"path": "greeting.txt", "content": "hello\n"}),
    (
        "Replace todo.md by an empty list.",
        {"path": "todo.md", "content": "# To do\n", "overwrite": True},
    ),
)


def get_tool(root: str | None = None) -> AgentTool:
    """Give the tool.

    Args:
        root: the folder that it stays in; None: the environment's.
    """
    workspace = workspace_from(os.environ) if root is None else Workspace(root)

    def execute(
        tool_call_id: str,
        args: dict[str, Any],
        signal: AbortSignal,
        on_partial_result: Callable[[Any], None],
    ) -> AgentToolResult:
        del tool_call_id, signal, on_partial_result
        return _write(
            workspace, args["path"], args["content"], overwrite=args.get("overwrite", False)
        )

    return AgentTool(
        name="write_file",
        label="Write file",
        description="Write a new text file, with the folders that it needs. To change a part of a file use edit_file.",
        input_schema=INPUT_SCHEMA,
        execute=execute,
        prepare_arguments=prepare_arguments,
        lock=f"files of {workspace.root}",
        timeout_s=60.0,
        annotations={"readOnlyHint": False, "destructiveHint": True, "openWorldHint": False},
        examples=EXAMPLES,
    )


def prepare_arguments(args: dict[str, Any]) -> dict[str, Any]:
    """Take other names that models use for path and content."""
    for other, name in {"file_path": "path", "filename": "path", "text": "content"}.items():
        if other in args:
            args.setdefault(name, args.pop(other))
    return args


def _write(workspace: Workspace, path: str, content: str, *, overwrite: bool) -> AgentToolResult:
    try:
        data = content.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolError(f"the content can't be written as UTF-8: {error.reason}") from error
    is_new = workspace.write(path, data, overwrite=overwrite)
    lines = content.count("\n") + (not content.endswith("\n") and content != "")
    return AgentToolResult(
        f"{'Wrote' if is_new else 'Replaced'} {path}: {lines} lines, {len(data)} bytes",
        details={"path": path, "is_new": is_new, "size_bytes": len(data)},
    )
