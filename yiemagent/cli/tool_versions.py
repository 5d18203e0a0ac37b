"""`yiemagent tools new`, `history` and `revert`: tool files that begin, and what they were before."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import Any

from yiemagent.cli.terminal import Terminal, UsageProblem
from yiemagent.errors import ToolError, ToolNotFound
from yiemagent.tool_drafts import name_problem
from yiemagent.tool_versions import Version, check_place, history, revert, write_new_file

__all__ = [
    "add_versions",
    "history_command",
    "new_command",
    "new_tools_folder",
    "revert_command",
]

FOLDER_VARIABLE = "YIEMAGENT_TOOLS_DIR"
DEFAULT_FOLDER = "tools"

TEMPLATE = '''\
"""{label}: say here what the tool is for."""

from collections.abc import Callable
from typing import Any

from yiemagent import AbortSignal, AgentTool, AgentToolResult, ToolError

# What a model may send: JSON Schema. It is checked before execute_tool runs, and describes each argument to the model.
INPUT_SCHEMA: dict[str, Any] = {{
    "type": "object",
    "properties": {{
        "text": {{"type": "string", "description": "The text to work on"}},
        "times": {{"type": "integer", "minimum": 1, "default": 1, "description": "How often"}},
    }},
    "required": ["text"],
}}


def execute_tool(
    tool_call_id: str,
    args: dict[str, Any],
    signal: AbortSignal,
    on_partial_result: Callable[[Any], None],
) -> AgentToolResult:
    """Do the work, on a thread of its own."""
    del tool_call_id  # the id of this call, for logs
    on_partial_result("working")  # tell of progress; delete the line where there is none
    signal.raise_if_aborted()  # in long work, ask now and then; wait with signal.wait(seconds)
    if not args["text"].strip():
        raise ToolError("the text is empty")  # the model reads this, and may try again
    # The text is for the model, the details for programs.
    said = " ".join([args["text"]] * args["times"])
    return AgentToolResult(said, details={{"times": args["times"]}})


def get_tool() -> AgentTool:
    """Give the tool; every tool file has this function."""
    return AgentTool(
        name="{name}",
        label="{label}",
        description="Say what the tool does: the model chooses by this.",
        input_schema=INPUT_SCHEMA,
        execute=execute_tool,
        # Further fields: parallel_tool_execute (it may run beside other calls), timeout_s (how long a call may take),
        # annotations (readOnlyHint: it changes nothing), prepare_arguments, validate_required_args, examples.
    )
'''


def add_versions(actions: Any) -> None:
    """Add the actions to the parser of `yiemagent tools`."""
    for action, does in (
        ("new", "begin a tool: write a commented tool file"),
        ("history", "show the versions of a tool file: who wrote which, and when"),
        ("revert", "put an earlier version of a tool file back; the one in use is kept"),
    ):
        parser = actions.add_parser(action, help=does, description=f"{does.capitalize()}.")
        parser.add_argument("name", metavar="NAME", help="the tool's name, which is its file's")
        if action == "revert":
            parser.add_argument(
                "number",
                nargs="?",
                type=int,
                metavar="VERSION",
                help="which one (default: the latest that differs)",
            )
        parser.add_argument(
            "--tools",
            "-t",
            metavar="DIR",
            type=Path,
            help=f"the folder of the file (default: {FOLDER_VARIABLE}, else {DEFAULT_FOLDER})",
        )


def new_command(options: argparse.Namespace, terminal: Terminal) -> int:
    """Write a new tool file, and say where it is.

    Raises:
        UsageProblem: the name can't be one, or is taken.
    """
    folder = _folder(options)
    if problem := name_problem(options.name):
        raise UsageProblem(problem)
    path = folder / f"{options.name}.py"
    text = TEMPLATE.format(name=options.name, label=options.name.replace("_", " ").title())
    try:
        check_place(folder, options.name)
        folder.mkdir(parents=True, exist_ok=True)
        write_new_file(path, text)
    except (ToolError, FileExistsError) as error:
        problem = str(error) if isinstance(error, ToolError) else f"{path} is there already"
        raise UsageProblem(problem) from error
    except OSError as error:
        raise ToolError(f"{path} can't be written: {error}") from error
    terminal.say(f"{path}\n")
    call = f"yiemagent tools call {options.name} text=hello --tools {shlex.quote(str(folder))}"
    terminal.note(f"it works as it is, try it: {call}")
    return 0


def history_command(options: argparse.Namespace, terminal: Terminal) -> int:
    """Show the versions, oldest first.

    Raises:
        ToolNotFound: there is no such file.
    """
    rows = [_row(version) for version in _versions(options)]
    terminal.rows([("version", "written", "by", "approved by", "sha256", ""), *rows])
    return 0


def _row(version: Version) -> tuple[str, ...]:
    states = ["in use"] * version.in_use + ["changed by somebody since"] * version.changed
    return (
        str(version.number),
        version.time.strftime("%Y-%m-%d %H:%M:%SZ"),
        version.author,
        version.approval or "-",
        version.sha256[:12],
        ", ".join(states),
    )


def revert_command(options: argparse.Namespace, terminal: Terminal) -> int:
    """Bring an earlier version back.

    Raises:
        ToolError: there is no such version, or its place is taken by something else.
    """
    name = _name(options)
    before = _versions(options)
    try:
        now = revert(_folder(options), name, options.number)
    except OSError as error:
        raise ToolError(f"{name} can't be written: {error}") from error
    back = next(v.number for v in reversed(before) if v.sha256 == now.sha256)
    terminal.note(f"{name}: version {back} is in use again, as version {now.number}")
    return 0


def _versions(options: argparse.Namespace) -> tuple[Version, ...]:
    try:
        return history(_folder(options), _name(options))
    except ToolNotFound as error:
        if options.tools is not None:
            raise
        raise ToolNotFound(f"{error}; give its folder with --tools") from error


def _folder(options: argparse.Namespace) -> Path:
    given: Path | None = options.tools
    return given or new_tools_folder()


def new_tools_folder() -> Path:
    """Give the folder that new tool files go to where no other is named."""
    return Path(os.environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER)


def _name(options: argparse.Namespace) -> str:
    name = str(options.name).removesuffix(".py")
    if not name or name != Path(name).name:
        raise UsageProblem(
            f"{options.name!r} is no name of a tool file; give the folder with --tools"
        )
    return name
