"""Replace a piece of text in a file below one folder.

The folder is `YIEMAGENT_ROOT` of the environment, else the working folder when the tool is loaded.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable
from typing import Any

from yiemagent.abort import AbortSignal
from yiemagent.errors import ToolError
from yiemagent.excerpt import both_ends
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
        "old_text": {
            "type": "string",
            "minLength": 1,
            "description": "The text to replace, exactly as it is in the file, with enough around it to occur once",
        },
        "new_text": {"type": "string", "description": "What takes its place; empty removes it"},
        "replace_all": {
            "type": "boolean",
            "default": False,
            "description": "Whether every occurrence is replaced",
        },
    },
    "required": ["path", "old_text", "new_text"],
}
EXAMPLES = (
    (
        "Set DEBUG to False in settings.py.",
        {"path": "settings.py", "old_text": "DEBUG = True", "new_text": "DEBUG = False"},
    ),
)
MAX_FILE_BYTES = 8_000_000
MAX_DIFF_CHARS = 8000


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
        return _edit(workspace, args)

    return AgentTool(
        name="edit_file",
        label="Edit file",
        description="Replace a piece of text in a file by another one.",
        input_schema=INPUT_SCHEMA,
        execute=execute,
        prepare_arguments=prepare_arguments,
        lock=f"files of {workspace.root}",
        timeout_s=60.0,
        annotations={"readOnlyHint": False, "destructiveHint": True, "openWorldHint": False},
        examples=EXAMPLES,
    )


def prepare_arguments(args: dict[str, Any]) -> dict[str, Any]:
    """Take other names that models use."""
    others = {"file_path": "path", "old_string": "old_text", "new_string": "new_text"}
    for other, name in others.items():
        if other in args:
            args.setdefault(name, args.pop(other))
    return args


def _edit(workspace: Workspace, args: dict[str, Any]) -> AgentToolResult:
    path, replace_all = args["path"], args.get("replace_all", False)
    data = workspace.read(path, MAX_FILE_BYTES)
    try:
        before = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ToolError(f"{path!r} is no text in UTF-8, so it is left alone") from error
    old, new = args["old_text"], args["new_text"]
    if "\r\n" in before and "\r\n" not in old:  # the model was shown line feeds
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    if old == new:
        raise ToolError("old_text and new_text are the same")
    count = before.count(old)
    if count == 0:
        raise ToolError(f"{path!r} does not hold old_text{_near(before, old)}")
    if count > 1 and not replace_all:
        places = ", ".join(str(line) for line in _lines_of(before, old)[:10])
        raise ToolError(
            f"old_text occurs {count} times in {path!r}, on the lines {places}; "
            f"give more of what is around it, or replace_all"
        )
    after = before.replace(old, new)
    try:
        workspace.write(path, after.encode("utf-8"), expected=data)
    except UnicodeEncodeError as error:
        raise ToolError(f"new_text can't be written as UTF-8: {error.reason}") from error
    times = "" if count == 1 else f" in {count} places, the first of them"
    return AgentToolResult(
        f"Edited {path}{times}:\n{_diff(before, before.index(old), old, new)}",
        details={"path": path, "count": count},
    )


def _lines_of(text: str, piece: str) -> list[int]:
    starts = (found.start() for found in re.finditer(re.escape(piece), text))
    return [text.count("\n", 0, start) + 1 for start in starts]


def _near(text: str, piece: str) -> str:
    """Say where it would be but for its blanks, which is what models get wrong most."""
    wanted = [" ".join(line.split()) for line in piece.strip().splitlines()]
    lines = [" ".join(line.split()) for line in text.splitlines()]
    for number in range(len(lines) - len(wanted) + 1):
        if lines[number : number + len(wanted)] == wanted:
            return f"; line {number + 1} differs in blanks only: read it again and copy it exactly"
    return "; read the file again and copy the text exactly"


def _diff(before: str, start: int, old: str, new: str) -> str:
    """Give a change with two lines on either side."""
    first = before.count("\n", 0, start)
    begin = before.rfind("\n", 0, start) + 1
    for _ in range(min(2, first)):
        begin = before.rfind("\n", 0, begin - 1) + 1
    end = start + len(old)
    for _ in range(3):
        end = (before.find("\n", end) + 1) or len(before)
    after = before[begin:start] + new + before[start + len(old) : end]
    lines = difflib.unified_diff(
        before[begin:end].splitlines(), after.splitlines(), lineterm="", n=2
    )
    body = "\n".join(list(lines)[3:])
    return both_ends(f"@@ line {first + 1} @@\n{body}", MAX_DIFF_CHARS)
