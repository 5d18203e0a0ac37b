"""`yiemagent tools`: what tool files give, and what is wrong with them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from yiemagent.cli.terminal import Terminal, UsageProblem, one_line
from yiemagent.errors import DuplicateTool, ToolLoadError
from yiemagent.registry import ToolStore, builtin_tools_dir, load_tools
from yiemagent.schema import sound_schema

__all__ = ["add_tools", "load_folders", "tools_command"]


def add_tools(commands: Any) -> None:
    """Add the command to the parsers of `yiemagent`."""
    parser = commands.add_parser(
        "tools", help="list or check tool files", description="Look at folders of tool files."
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for action, does, more in (
        ("list", "list the tools: name, label, description", ""),
        (
            "check",
            "load every file and report what is wrong, with file and line",
            "exit codes: 0 every file loads, 1 some file does not, 2 the command line is wrong",
        ),
    ):
        sub = actions.add_parser(
            action,
            help=does,
            description=f"{does.capitalize()}. Loading a tool file runs its code.",
            epilog=more,
        )
        sub.add_argument(
            "folders",
            nargs="*",
            metavar="DIR",
            type=Path,
            help="folders of tool files (default: the built-in tools)",
        )


def tools_command(options: argparse.Namespace, terminal: Terminal) -> int:
    """List or check, and give the exit code.

    Raises:
        UsageProblem: there is no such folder.
    """
    store, errors = load_folders(options.folders, builtin=not options.folders)
    if options.action == "list":
        for error in errors:
            terminal.note(f"warning: {_problem(error)}", "yellow")
        tools = store.snapshot().values()
        terminal.rows([(tool.name, tool.label, one_line(tool.description)) for tool in tools])
        return 0
    for error in errors:
        terminal.say(f"{_problem(error)}\n")
    for tool in store.snapshot().values():
        _, notes = sound_schema(tool.input_schema)
        if notes:  # the tool works, but checks less than its author wrote
            terminal.note(f"warning: the schema of {tool.name}: {'; '.join(notes)}", "yellow")
    good = len(store) - ("list_tools" in store)
    terminal.note(
        f"{good} {'tool loads' if good == 1 else 'tools load'}, {len(errors)} with errors"
    )
    return 1 if errors else 0


def load_folders(
    folders: Sequence[Path], *, builtin: bool
) -> tuple[ToolStore, list[ToolLoadError]]:
    """Load the user's folders, then the built-in tools whose names are free.

    Returns:
        The store, and what is wrong with files in it; a built-in tool that a user's replaces is nothing wrong.

    Raises:
        UsageProblem: there is no such folder.
    """
    store = ToolStore(name="command")
    for folder in folders:
        if not folder.is_dir():
            problem = "not a folder" if folder.exists() else "no such folder"
            raise UsageProblem(f"{problem}: {folder}")
        load_tools(store, folder)
    errors = list(store.load_errors)
    if builtin:
        load_tools(store, builtin_tools_dir())
        later = [error for error in store.load_errors if error not in errors]
        errors += [error for error in later if not isinstance(error, DuplicateTool)]
    return store, errors


def _problem(error: ToolLoadError) -> str:
    """Give an error as editors take it: path, line, reason; the path from here where it is below."""
    path = os.path.relpath(error.path)
    place = error.path if path.startswith("..") else path
    line = f":{error.line}" if error.line else ""
    return one_line(f"{place}{line}: {error.reason}", limit=1000)
