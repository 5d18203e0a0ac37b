"""What a run at the command may do beyond telling something, and what a person is asked about first.

The built-in tools that reach files, commands or the web are there when their group is named. Calls of those that may
change something are asked about, and so are those of `write_tool`, wherever that comes from.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import functools
import io
import operator
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from yiemagent.approval import Approval, allow, ask_in_terminal, deny
from yiemagent.cli.terminal import Terminal, UsageProblem
from yiemagent.decisions import DecisionFile
from yiemagent.hooks import BeforeToolCallContext
from yiemagent.registry import builtin_tools_dir
from yiemagent.workspace import ROOT_VARIABLE

__all__ = [
    "GROUPS",
    "add_consent",
    "add_groups",
    "add_rooted_groups",
    "check_person",
    "consent_of",
    "unknown_names",
    "working_in",
]

When: TypeAlias = Callable[[BeforeToolCallContext], object]

GROUPS = ("files", "shell", "web")
# The groups whose tools work in a folder.
_ROOTED = frozenset({"files", "shell"})
_ALWAYS_ASKED = frozenset({"write_tool"})
_NOBODY_THERE = (
    "This call needs a person's yes, and there is no terminal to ask at; the user may allow it with --allow {}, or "
    "every call with --yes."
)


def add_groups(parser: argparse.ArgumentParser) -> None:
    """Add the option that has groups of built-in tools."""
    parser.add_argument(
        "--with",
        action="append",
        default=[],
        dest="groups",
        choices=GROUPS,
        metavar="GROUP",
        help="load the built-in tools of this group, too: files (read, write, edit, search), shell (run commands) or "
        "web (fetch pages); may be given again",
    )


def add_rooted_groups(parser: argparse.ArgumentParser) -> None:
    """Add the options that have groups of built-in tools and say where these work."""
    add_groups(parser)
    parser.add_argument(
        "--root",
        metavar="DIR",
        type=Path,
        help=f"the folder of --with files, and where commands of --with shell start (default: {ROOT_VARIABLE}, else "
        "this one)",
    )


def add_consent(parser: argparse.ArgumentParser) -> None:
    """Add what decides which tools are there, where they work, and who is asked."""
    add_rooted_groups(parser)
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="TOOL",
        help="call this tool without asking; a pattern such as 'write_*' will do; may be given again",
    )
    parser.add_argument(
        "--ask",
        action="append",
        default=[],
        metavar="TOOL",
        help="ask before each call of this tool, or pattern, too; may be given again (asked about anyway: tools of "
        "--with that change something, and write_tool)",
    )
    parser.add_argument(
        "--approvals",
        metavar="FILE",
        type=Path,
        help="keep what you decide for ever in this file, and go by what is in it; keep it where no tool can write",
    )
    parser.add_argument(
        "--yes", "-y", action="store_true", help="call every tool without asking; not with --ask"
    )
    parser.set_defaults(waiting=())  # the calls of a session that do


@contextlib.contextmanager
def working_in(options: argparse.Namespace) -> Iterator[None]:
    """Have the tools that are loaded in a `with` block work in the folder that the command line names.

    Raises:
        UsageProblem: there is no such folder, or nothing that would work in it.
    """
    root: Path | None = options.root
    if root is None:
        yield
        return
    if not _ROOTED.intersection(options.groups):
        raise UsageProblem("--root is for --with files and --with shell")
    if not root.is_dir():
        raise UsageProblem(f"--root names no folder: {root}")
    before = os.environ.get(ROOT_VARIABLE)
    os.environ[ROOT_VARIABLE] = str(root.resolve())
    try:
        yield
    finally:
        if before is None:
            del os.environ[ROOT_VARIABLE]
        else:
            os.environ[ROOT_VARIABLE] = before


def consent_of(
    options: argparse.Namespace,
    stdin: TextIO,
    terminal: Terminal,
    *,
    question: Callable[[str], object],
) -> Approval | None:
    """Give the rules for calls: what may change something is asked about where a person is there, else denied.

    Args:
        options: what the command line says.
        stdin: where answers come from.
        terminal: where questions can be seen, or not.
        question: puts a question to the person, at once or soon; called by the thread of the run.

    Returns:
        A `before_tool_call` hook; None: every call goes through.

    Raises:
        UsageProblem: the options don't go together.
    """
    if options.yes:
        if options.ask:
            raise UsageProblem("--yes asks about no call, and --ask about some; give one of them")
        if options.approvals is not None:
            raise UsageProblem("--yes asks about no call, so --approvals has no decisions to keep")
        return None
    keep = _kept_apart(options)
    there = _is_there(stdin, terminal)

    def asked(names: Iterable[str], **which: Any) -> Approval:
        if there:
            questions = _Questions(question)
            return ask_in_terminal(*names, keep=keep, stdin=stdin.fileno(), out=questions, **which)
        rules = (
            deny(name, reason=_NOBODY_THERE.format(shlex.quote(name)), **which) for name in names
        )
        denied = functools.reduce(operator.or_, rules)
        return denied if keep is None else _allowed_in(keep, names, **which) | denied

    # A rule without names would be about every tool.
    first = allow(*options.allow) if options.allow else Approval([])
    if options.waiting:
        # Whoever had it wait had rules of their own; nothing that they would have asked about goes through unasked.
        first |= asked(["*"], when=lambda call: call.tool_call.id in options.waiting)
        first |= asked(["*"], read_only=False)
    if options.ask:
        first |= asked(options.ask)
    return first | asked(sorted(_changing(options.groups)), read_only=False) | allow()


def check_person(options: argparse.Namespace, stdin: TextIO, terminal: Terminal) -> None:
    """Make sure that somebody decides about calls that wait for approval.

    Raises:
        UsageProblem: nobody can be asked, and nothing allows them.
    """
    if not (options.yes or options.allow or options.approvals or _is_there(stdin, terminal)):
        raise UsageProblem(
            "calls wait for approval, and there is no terminal to ask at; give --allow TOOL or --yes"
        )


def _is_there(stdin: TextIO, terminal: Terminal) -> bool:
    return stdin.isatty() and terminal.is_watched


def _kept_apart(options: argparse.Namespace) -> Path | None:
    """Give the file of decisions.

    Raises:
        UsageProblem: tools that may write files could write their own approvals into it.
    """
    keep: Path | None = options.approvals
    root = Path(options.root or os.environ.get(ROOT_VARIABLE) or ".").resolve()
    if keep is not None and "files" in options.groups and keep.resolve().is_relative_to(root):
        raise UsageProblem(f"--approvals is in {root}, where tools may write; keep it elsewhere")
    return keep


def _allowed_in(
    keep: Path, names: Iterable[str], when: When | None = None, **which: Any
) -> Approval:
    """Give a rule that lets calls through which the file allows for ever."""
    file = DecisionFile(keep)

    def is_allowed(call: BeforeToolCallContext) -> bool:
        if when is not None and not when(call):
            return False
        tool = call.context.tools[call.tool_call.name]
        return file.find(tool, call.args) == "allow"

    return allow(*names, when=is_allowed, **which)


def _changing(groups: Sequence[str]) -> set[str]:
    """Give the names of the tools that may be asked about; each is that of its file."""
    folders = map(builtin_tools_dir, groups)
    return {path.stem for folder in folders for path in folder.glob("[!_]*.py")} | _ALWAYS_ASKED


class _Questions(io.StringIO):
    """Hands questions on instead of writing them: only the main thread writes to the terminal."""

    def __init__(self, question: Callable[[str], object]) -> None:
        super().__init__()
        self._question = question

    def write(self, text: str) -> int:
        """Put the question."""
        self._question(text)
        return len(text)


def unknown_names(options: argparse.Namespace, tools: Iterable[str]) -> list[str]:
    """Give what --allow and --ask name and no tool is called; a tool may come later."""
    known = list(tools)
    return [name for name in [*options.allow, *options.ask] if not fnmatch.filter(known, name)]
