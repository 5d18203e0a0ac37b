"""Read a text file, or look at an image, below one folder.

The folder is `YIEMAGENT_ROOT` of the environment, else the working folder when the tool is loaded.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from typing import Any

from yiemagent.abort import AbortSignal
from yiemagent.errors import ToolError
from yiemagent.excerpt import lines_from
from yiemagent.messages import ImageContent
from yiemagent.tool import AgentTool, AgentToolResult
from yiemagent.workspace import Workspace, workspace_from

__all__ = ["get_tool", "prepare_arguments"]

INPUT_SCHEMA = {
    "type": "object",
    "properties": {
        "path": {
            "type": "string",
            "description": "The file, from the working folder: 'src/main.py'",
        },
        "offset": {
            "type": "integer",
            "minimum": 1,
            "default": 1,
            "description": "The first line to read, from 1",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "default": 2000,
            "description": "How many lines to read at most",
        },
    },
    "required": ["path"],
}
EXAMPLES = (
    ("Show me README.md.", {"path": "README.md"}),
    ("What is on line 120 of src/app.py?", {"path": "src/app.py", "offset": 120, "limit": 1}),
)
MAX_FILE_BYTES = 32_000_000
MAX_IMAGE_BYTES = 5_000_000
MAX_CHARS = 40_000
IMAGES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg"}
IMAGES |= {".gif": "image/gif", ".webp": "image/webp"}


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
        return _read(workspace, args["path"], args.get("offset", 1), args.get("limit", 2000))

    return AgentTool(
        name="read_file",
        label="Read file",
        description="Read a text file or an image. A long file is given in parts: go on with the offset that is named.",
        input_schema=INPUT_SCHEMA,
        execute=execute,
        prepare_arguments=prepare_arguments,
        parallel_tool_execute=True,
        timeout_s=60.0,
        annotations={"readOnlyHint": True, "openWorldHint": False},
        examples=EXAMPLES,
    )


def prepare_arguments(args: dict[str, Any]) -> dict[str, Any]:
    """Take other names that models use for the path."""
    for other in ("file_path", "filename", "file"):
        if other in args:
            args.setdefault("path", args.pop(other))
    return args


def _read(workspace: Workspace, path: str, offset: int, limit: int) -> AgentToolResult:
    kind = IMAGES.get(os.path.splitext(path)[1].lower())  # noqa: PTH122 - of a path that need not be one
    if kind is not None:
        return _image(workspace.read(path, MAX_IMAGE_BYTES), path, kind)
    data = workspace.read(path, MAX_FILE_BYTES)
    text = _text(data, path)
    part = lines_from(text, offset, limit, MAX_CHARS)
    if part.last < offset and (part.total or offset > 1):
        raise ToolError(f"{path!r} has {part.total} lines; there is no line {offset}")
    shown = part.text or "(the file is empty)"
    if part.last < part.total:
        shown += (
            f"\n\n[lines {part.first} to {part.last} of {part.total}; "
            f"go on with offset={part.last + 1}]"
        )
    details = {"first_line": part.first, "last_line": part.last, "lines": part.total}
    return AgentToolResult(shown, details={"path": path, "size_bytes": len(data), **details})


def _text(data: bytes, path: str) -> str:
    if b"\0" in data[:8192]:
        raise ToolError(f"{path!r} is no text ({len(data)} bytes)")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        # Old files in another encoding are still worth reading; what can't be told is marked.
        return data.decode("utf-8", "replace").replace("\r\n", "\n")


def _image(data: bytes, path: str, kind: str) -> AgentToolResult:
    image = ImageContent(base64.b64encode(data).decode("ascii"), kind)
    details = {"path": path, "size_bytes": len(data)}
    return AgentToolResult([f"The image {path!r}:", image], details=details)
