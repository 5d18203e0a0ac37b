"""`yiemagent tools`: what tool files give, what is wrong with them, new ones, and a call of one."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from yiemagent.cli.consent import GROUPS, add_groups, working_in
from yiemagent.cli.mixed_parser import MixedParser
from yiemagent.cli.terminal import Terminal, UsageProblem, one_line
from yiemagent.cli.tool_call import add_call, add_tool_folders, call_command
from yiemagent.cli.tool_versions import (
    add_versions,
    history_command,
    new_command,
    revert_command,
)
from yiemagent.errors import DuplicateTool, ToolLoadError
from yiemagent.registry import ToolStore, builtin_tools_dir, load_tools
from yiemagent.tool_folders import tool_files
from yiemagent.tool_trial import Trial, TrialReport, try_files

__all__ = ["add_tools", "load_folders", "tools_command"]

# Built-in tools that write: offered by no command unless a folder that has them is named.
WRITING = frozenset({"write_tool"})


def add_tools(commands: Any) -> None:
    """Add the command to the parsers of `yiemagent`."""
    parser = commands.add_parser(
        "tools",
        help="list, check, call and write tool files",
        description="Look at tool files, and work on them.",
    )
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="ACTION", parser_class=MixedParser
    )
    for action, does, notes, more in (
        (
            "list",
            "list the tools: name, label, description",
            "Loading a tool file runs its code.",
            "",
        ),
        (
            "check",
            "load every file and report what is wrong, with file and line",
            "Each is loaded in a child process with limits, so that none can end the others.",
            "exit codes: 0 every file loads, 1 some file does not, 2 the command line is wrong",
        ),
    ):
        sub = actions.add_parser(
            action, help=does, description=f"{does.capitalize()}. {notes}", epilog=more
        )
        sub.add_argument(
            "folders",
            nargs="*",
            default=[],
            metavar="DIR",
            type=Path,
            help="folders of tool files (default: the built-in tools)",
        )
        add_tool_folders(sub, "such a folder, as the other commands take it; may be given again")
        add_groups(sub)
    add_call(actions)
    add_versions(actions)


def tools_command(options: argparse.Namespace, terminal: Terminal) -> int:
    """Do what the action says, and give the exit code.

    Raises:
        UsageProblem: the command line can't be followed.
        YiemAgentError: it can't be done.
    """
    actions: dict[str, Callable[[argparse.Namespace, Terminal], int]] = {
        "list": _list,
        "check": _check,
        "new": new_command,
        "history": history_command,
        "revert": revert_command,
    }
    if options.action == "call":
        with working_in(options):
            store, errors = load_folders(
                options.tools,
                builtin=True,
                every=True,
                groups=options.groups,
                isolate=options.isolate,
            )
        _warn_of(errors, terminal)
        with contextlib.closing(store):
            return call_command(options, terminal, store)
    return actions[options.action](options, terminal)


def _folders(options: argparse.Namespace) -> list[Path]:
    """Give the folders that were named in either way, each once."""
    return list(dict.fromkeys([*options.folders, *options.tools]))


def _list(options: argparse.Namespace, terminal: Terminal) -> int:
    folders = _folders(options)
    plain = not folders and not options.groups
    store, errors = load_folders(folders, builtin=plain, every=True, groups=options.groups)
    _warn_of(errors, terminal)
    tools = store.snapshot().values()
    terminal.rows([(tool.name, tool.label, one_line(tool.description)) for tool in tools])
    if plain:
        more = ", ".join(f"--with {group}" for group in GROUPS)
        terminal.note(f"more, for files, commands and web pages: {more}", "dim")
        terminal.note("'yiemagent ask' has write_tool only from a folder of --tools", "dim")
    return 0


def _warn_of(errors: Sequence[ToolLoadError], terminal: Terminal) -> None:
    for error in errors:
        problem = _problem(Path(error.path), error.line, error.reason)
        terminal.note(f"warning: {problem}", "yellow")


def _check(options: argparse.Namespace, terminal: Terminal) -> int:
    named = _folders(options)
    folders = [_folder(folder).resolve() for folder in named]
    folders += map(builtin_tools_dir, options.groups)
    if not folders:
        folders = [builtin_tools_dir(), *map(builtin_tools_dir, GROUPS)]
    paths = [path for folder in dict.fromkeys(folders) for path in tool_files(folder)]
    if not paths:
        where = ", ".join(map(str, named))
        terminal.note(f"no tool file in {where}: a tool file is a .py file without a leading _")
        return 0
    good: dict[str, Path] = {}
    bad = 0
    for report in try_files([Trial(path) for path in paths]):
        problem = report.problem or _clash(report, good)
        if problem is not None:
            bad += 1
            terminal.say(f"{_problem(report.path, report.line, problem)}\n")
            continue
        assert report.name is not None
        good[report.name] = report.path
        if report.notes:  # the tool works, but checks less than its author wrote
            terminal.note(
                f"warning: the schema of {report.name}: {'; '.join(report.notes)}", "yellow"
            )
    loads = "tool loads" if len(good) == 1 else "tools load"
    terminal.note(f"{len(good)} {loads}, {bad} with errors")
    return 1 if bad else 0


def _clash(report: TrialReport, good: dict[str, Path]) -> str | None:
    other = good.get(report.name or "")
    return None if other is None else f"the name {report.name!r} is taken by {other}, which stays"


def load_folders(
    folders: Sequence[Path],
    *,
    builtin: bool,
    every: bool = False,
    groups: Sequence[str] = (),
    isolate: bool = False,
) -> tuple[ToolStore, list[ToolLoadError]]:
    """Load the user's folders, then the built-in tools whose names are free.

    Args:
        folders: the user's.
        builtin: whether to load the built-in ones that are there without being asked for.
        every: whether the built-in ones that write are among them.
        groups: the groups of built-in tools to load, too.
        isolate: whether the user's run in processes of their own.

    Returns:
        The store, and what is wrong with files in it; a built-in tool that a user's replaces is nothing wrong.

    Raises:
        UsageProblem: there is no such folder.
    """
    store = ToolStore(name="command")
    for folder in folders:
        load_tools(store, _folder(folder), isolation="process" if isolate else None)
    errors = list(store.load_errors)
    own = set(store.snapshot())
    if builtin:
        load_tools(store, builtin_tools_dir())
        for name in WRITING - own if not every else ():
            store.remove(name)
    for group in dict.fromkeys(groups):
        load_tools(store, builtin_tools_dir(group))
    later = [error for error in store.load_errors if error not in errors]
    errors += [error for error in later if not isinstance(error, DuplicateTool)]
    return store, errors


def _folder(folder: Path) -> Path:
    if not folder.is_dir():
        problem = "not a folder" if folder.exists() else "no such folder"
        raise UsageProblem(f"{problem}: {folder}")
    return folder


def _problem(path: Path, line: int | None, reason: str) -> str:
    """Give a problem as editors take it: path, line, reason; the path from here where it is below."""
    here = os.path.relpath(path)
    place = str(path) if here.startswith("..") else here
    return one_line(f"{place}{f':{line}' if line else ''}: {reason}", limit=1000)
