"""Run a shell command in a folder.

The command starts in `YIEMAGENT_ROOT` of the environment, else in the working folder when the tool is loaded. That is
where it starts, not where it stays: a command can do whatever this process can. Variables whose names say that they
hold keys, tokens or passwords are not handed on.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from typing import Any

from yiemagent.abort import AbortSignal
from yiemagent.errors import ToolError
from yiemagent.net.programs import Finished, run_process, without_secrets
from yiemagent.tool import AgentTool, AgentToolResult
from yiemagent.workspace import Workspace, workspace_from

__all__ = ["get_tool", "prepare_arguments"]

MAX_TIMEOUT_S = 3600
INPUT_SCHEMA = {
    "type": "object",
    "properties": {
        "command": {
            "type": "string",
            "minLength": 1,
            "description": "A command line for the shell; it can't be asked for input",
        },
        "folder": {
            "type": "string",
            "default": ".",
            "description": "Where it starts, from the working folder",
        },
        "timeout_s": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": MAX_TIMEOUT_S,
            "default": 120,
            "description": "Seconds after which it is ended",
        },
    },
    "required": ["command"],
}
EXAMPLES = (
    ("Run the tests.", {"command": "python -m pytest -q", "timeout_s": 600}),
    ("How many lines has app.py?", {"command": "wc -l app.py"}),
)
MAX_OUTPUT_BYTES = 40_000
UPDATE_EVERY_S = 0.25


def get_tool(root: str | None = None) -> AgentTool:
    """Give the tool.

    Args:
        root: the folder in which commands start; None: the environment's.
    """
    workspace = workspace_from(os.environ) if root is None else Workspace(root)

    def execute(
        tool_call_id: str,
        args: dict[str, Any],
        signal: AbortSignal,
        on_partial_result: Callable[[Any], None],
    ) -> AgentToolResult:
        del tool_call_id
        return _run(workspace, args, signal, on_partial_result)

    return AgentTool(
        name="run_command",
        label="Run command",
        description=(
            "Run a shell command and give its output. What it leaves in the background is ended with it; "
            "of long output the beginning and the end are given."
        ),
        input_schema=INPUT_SCHEMA,
        execute=execute,
        prepare_arguments=prepare_arguments,
        timeout_s=MAX_TIMEOUT_S + 60.0,
        annotations={"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True},
        examples=EXAMPLES,
    )


def prepare_arguments(args: dict[str, Any]) -> dict[str, Any]:
    """Take other names that models use."""
    for other, name in {"cmd": "command", "cwd": "folder", "timeout": "timeout_s"}.items():
        if other in args:
            args.setdefault(name, args.pop(other))
    return args


def _run(
    workspace: Workspace,
    args: dict[str, Any],
    signal: AbortSignal,
    on_partial_result: Callable[[Any], None],
) -> AgentToolResult:
    limit_s = float(args.get("timeout_s", 120))
    done = run_process(
        [shutil.which("bash") or "/bin/sh", "-c", args["command"]],
        cwd=workspace.folder(args.get("folder", ".")),
        env=without_secrets(os.environ),
        signal=signal,
        timeout_s=limit_s,
        max_output_bytes=MAX_OUTPUT_BYTES,
        on_output=_Updates(on_partial_result),
    )
    output = _text(done)
    if done.timed_out:
        raise ToolError(
            f"the command was ended after {limit_s:g} s; its output until then:\n{output}"
        )
    return AgentToolResult(
        output if done.exit_code == 0 else f"{output}\n[{_ending(done.exit_code)}]",
        details={"exit_code": done.exit_code, "left_out_bytes": done.left_out},
    )


def _text(done: Finished) -> str:
    output = done.output
    if done.left_out:
        mark = f"\n[… {done.left_out} bytes left out …]\n".encode()
        output = output[: done.kept_first] + mark + output[done.kept_first :]
    return output.decode("utf-8", "replace").rstrip("\n") or "(no output)"


def _ending(code: int | None) -> str:
    if code is None:
        return "the command could not be ended"
    return f"exit code {code}" if code >= 0 else f"ended by signal {-code}"


class _Updates:
    """Hands output on as it comes, in pieces that don't come too often."""

    def __init__(self, tell: Callable[[Any], None]) -> None:
        self._tell = tell
        self._due = time.monotonic()
        self._held = b""

    def __call__(self, data: bytes) -> None:
        self._held = (self._held + data)[-4000:]
        if time.monotonic() >= self._due:
            self._tell(self._held.decode("utf-8", "replace"))
            self._held = b""
            self._due = time.monotonic() + UPDATE_EVERY_S
