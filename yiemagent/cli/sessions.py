"""`yiemagent sessions`: list, show, go on with, fork and export conversations that were kept."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from yiemagent.cli.ask import add_run_options, converse
from yiemagent.cli.consent import check_person
from yiemagent.cli.conversation import as_markdown, summary_line
from yiemagent.cli.mixed_parser import MixedParser
from yiemagent.cli.terminal import Terminal, UsageProblem, one_line
from yiemagent.codec import to_json
from yiemagent.errors import SessionError
from yiemagent.llm import StreamFn
from yiemagent.messages import ToolCall

__all__ = ["SessionParts", "add_sessions", "note_not_run", "sessions_command"]


@attrs.frozen
class SessionParts:
    """What the command needs of sessions.

    Args:
        open: opens a file, as `Session.open` does.
        history: gives all messages of a path of entries.
        suffixes: the endings that files of sessions have.
        model: gives whom to ask, for the options with a model in them.
        waiting: gives the calls of a session that wait for approval.
        take_up: has these calls run by whoever resumes the session.
    """

    open: Callable[..., Any]
    history: Callable[[Sequence[Any]], Sequence[Any]]
    suffixes: Iterable[str]
    model: Callable[[argparse.Namespace], StreamFn | str]
    waiting: Callable[[Any], Sequence[ToolCall]]
    take_up: Callable[[Any], object]


def add_sessions(commands: Any) -> None:
    """Add the command to the parsers of `yiemagent`."""
    parser = commands.add_parser(
        "sessions",
        help="list, show, resume, fork or export conversations",
        description="Look after conversations that 'yiemagent ask --session FILE' or a program kept.",
    )
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="ACTION", parser_class=MixedParser
    )
    listing = _action(actions, "list", "list the sessions in a folder, oldest first")
    listing.add_argument("folder", nargs="?", metavar="DIR", type=Path, default=Path())
    listing.add_argument("--search", metavar="TEXT", help="only those in which somebody says this")
    show = _action(actions, "show", "show a conversation, or its entries")
    _add_file(show)
    show.add_argument("--entries", action="store_true", help="show every entry of every branch")
    show.add_argument("--at", type=int, metavar="ID", help="show it as it is at this entry")
    resume = _action(
        actions, "resume", "go on with what was interrupted or waits for approval, or ask more"
    )
    _add_file(resume)
    resume.add_argument("question", nargs="?", help="what to ask then")
    resume.add_argument(
        "--retry-idempotent",
        action="store_true",
        help="run interrupted calls again whose tools say that this does no harm",
    )
    add_run_options(resume, model_help="whom to ask (default: the session's model, else local)")
    fork = _action(actions, "fork", "begin a session with a copy of the conversation")
    _add_file(fork)
    fork.add_argument("--at", type=int, metavar="ID", help="only up to this entry")
    fork.add_argument("--to", metavar="PATH", type=Path, help="the new file, or its folder")
    export = _action(actions, "export", "write a conversation for people or programs")
    _add_file(export)
    export.add_argument("--format", choices=["md", "json"], default="md", help="default: md")
    export.add_argument("--at", type=int, metavar="ID", help="as it is at this entry")


def _action(actions: Any, name: str, does: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=does, description=f"{does.capitalize()}."
    )
    return parser


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="the session")


def _opened(parts: SessionParts, path: Path, **options: Any) -> Any:
    """Open a session.

    Raises:
        UsageProblem: there is no such file.
        SessionError: it is damaged, or in use.
    """
    if not path.exists() and not options.get("create"):
        raise UsageProblem(f"no such file: {path}")
    return parts.open(path, **options)


def sessions_command(options: argparse.Namespace, terminal: Terminal, parts: SessionParts) -> int:
    """Do what was asked for, and give the exit code.

    Raises:
        UsageProblem: there is no such file, folder or entry.
        SessionError: a session is damaged, or in use.
    """
    if options.action == "list":
        return _list(options, terminal, parts)
    if options.action == "resume":
        return _resume(options, terminal, parts)
    with _opened(parts, options.file, read_only=True) as session:
        for warning in session.warnings:
            terminal.note(f"warning: {warning}", "yellow")
        if options.action in {"show", "export"} and session.interrupted and options.at is None:
            terminal.note("note: the last run is not over: it still goes on, or was interrupted")
        match options.action:
            case "show" if options.entries:
                terminal.rows(_rows(session.entries(), session.labels, session.leaf_id))
            case "show":
                said = as_markdown(_messages(parts, session, options.at))
                terminal.say(said or "no messages\n")
            case "export" if options.format == "json":
                terminal.say(_as_json(session, _messages(parts, session, options.at)))
            case "export":
                title = session.header.name or f"Session {session.id[:8]}"
                terminal.say(f"# {title}\n\n{as_markdown(_messages(parts, session, options.at))}")
            case _:
                place = options.to or options.file.parent
                with session.fork(place, at=options.at) as fork:
                    terminal.say(f"{fork.path}\n")
    return 0


def _messages(parts: SessionParts, session: Any, at: int | None = None) -> Sequence[Any]:
    """Give all that was said up to an entry, also what the model sees only the summary of."""
    return parts.history(session.path_to(session.leaf_id if at is None else at))


def _as_json(session: Any, messages: Sequence[Any]) -> str:
    written = {
        "id": session.id,
        "name": session.header.name,
        "time": session.header.time.isoformat(),
        "messages": [to_json(message) for message in messages],
    }
    return f"{json.dumps(written, ensure_ascii=False, indent=2)}\n"


def _list(options: argparse.Namespace, terminal: Terminal, parts: SessionParts) -> int:
    if not options.folder.is_dir():
        raise UsageProblem(f"no such folder: {options.folder}")
    suffixes = set(parts.suffixes)
    files = [path for path in options.folder.iterdir() if path.suffix in suffixes]
    found = []
    for path in sorted(files):
        try:
            with parts.open(path, read_only=True) as session:
                if options.search is None or _says(session, options.search):
                    row = _row(path, session, _messages(parts, session), _state(parts, session))
                    found.append((session.header.time, row))
        except SessionError as error:
            terminal.note(f"warning: {error}", "yellow")
    if found:
        terminal.rows([row for _, row in sorted(found)])
    return 0


def _says(session: Any, wanted: str) -> bool:
    """Whether somebody says this on any branch, or in what waits or stands for what was said."""
    for entry in session.entries():
        message = getattr(entry.body, "message", None)
        text: str = getattr(message, "text", "") or getattr(entry.body, "summary", "")
        if wanted.casefold() in text.casefold():
            return True
    return False


def _state(parts: SessionParts, session: Any) -> str:
    """Say what a session is left with; whether somebody is still at work on it can't be told from its file."""
    if session.interrupted:
        return "unfinished"
    if session.waiting:
        return "waiting"
    return "approval" if parts.waiting(session) else ""


def _row(path: Path, session: Any, messages: Sequence[Any], state: str) -> tuple[str, ...]:
    first = next((message.text for message in messages if message.role == "user"), "")
    count = sum(message.role != "compactionSummary" for message in messages)
    return (
        one_line(str(path)),
        f"{session.header.time:%Y-%m-%d %H:%M}",
        f"{count} message" if count == 1 else f"{count} messages",
        state,
        one_line(session.header.name or first, limit=60),
    )


def _rows(
    entries: Sequence[Any], labels: Mapping[int, str], leaf: int | None
) -> list[tuple[str, ...]]:
    """Give a row for each entry: its id and that of the one before it, what it says, its label."""
    rows: list[tuple[str, ...]] = []
    for entry in entries:
        label = f"[{one_line(labels[entry.id], limit=40)}]" if entry.id in labels else ""
        mark = "*" if entry.id == leaf else ""
        parent = "" if entry.parent_id is None else str(entry.parent_id)
        rows.append((f"{entry.id}{mark}", parent, entry.type, label, summary_line(entry.body)))
    return rows or [("no entries",)]


def note_not_run(terminal: Terminal, calls: Sequence[ToolCall]) -> None:
    """Say which calls waited for approval that a new question leaves behind, if any."""
    if calls:
        names = ", ".join(call.name for call in calls)
        terminal.note(f"note: what waited for approval is not run: {names}", "yellow")


def _resume(options: argparse.Namespace, terminal: Terminal, parts: SessionParts) -> int:
    with _opened(parts, options.file) as session:
        for warning in session.warnings:
            terminal.note(f"warning: {warning}", "yellow")
        options.model = options.model or session.model or "local"
        calls = parts.waiting(session)
        if options.question is None and not (calls or session.interrupted or session.waiting):
            raise UsageProblem(f"nothing was interrupted in {options.file}; give a question")
        model = parts.model(options)
        if options.question is not None:
            note_not_run(terminal, calls)
        elif calls:
            options.waiting = [call.id for call in calls]
            check_person(options, sys.stdin or io.StringIO(), terminal)
            parts.take_up(session)
        return converse(options, terminal, model, options.question, session=session)
