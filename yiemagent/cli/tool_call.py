"""`yiemagent tools call`: one tool, called as an agent calls it, with arguments from the command line."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

from yiemagent.abort import AbortSignal
from yiemagent.arguments import parse_arguments
from yiemagent.batch import execute_tool_calls
from yiemagent.cli.consent import GROUPS, add_rooted_groups
from yiemagent.cli.terminal import Terminal, UsageProblem, one_line
from yiemagent.cli.tool_versions import new_tools_folder
from yiemagent.codec import to_json
from yiemagent.config import AgentLoopConfig
from yiemagent.context import AgentContext
from yiemagent.errors import InvalidArguments
from yiemagent.events import Event, ToolExecUpdateEvent
from yiemagent.messages import AssistantMessage, ToolCall, ToolResultMessage
from yiemagent.payload import freeze_json
from yiemagent.pool import DaemonPool
from yiemagent.registry import ToolStore, builtin_tools_dir
from yiemagent.relay import finish

__all__ = ["ISOLATE_HELP", "add_call", "add_tool_folders", "call_command"]

ISOLATE_HELP = "run the files of --tools in processes of their own, which have limits and are ended at a time limit"


def add_tool_folders(
    parser: argparse.ArgumentParser,
    does: str = "load the tool files of this folder, before the built-in ones; may be given again",
) -> None:
    """Add the option that has folders of tool files; `does` says what becomes of them."""
    parser.add_argument(
        "--tools", "-t", action="append", default=[], metavar="DIR", type=Path, help=does
    )


def add_call(actions: Any) -> None:
    """Add the action to the parser of `yiemagent tools`."""
    does = "call a tool with arguments from the command line"
    parser = actions.add_parser(
        "call",
        help=does,
        description=f"{does.capitalize()}, as an agent would: arguments are checked, the time limit holds.",
        epilog="exit codes: 0 the tool's result, 1 an error, 2 the command line is wrong, 130 interrupted, "
        "141 the reader of the output went away",
    )
    parser.add_argument("name", metavar="NAME", help="the tool's name")
    parser.add_argument(
        "arguments",
        nargs="*",
        default=[],
        metavar="ARGUMENT",
        help="name=value, a value in JSON where it is no text; or one JSON object",
    )
    add_tool_folders(parser)
    parser.add_argument("--isolate", action="store_true", help=ISOLATE_HELP)
    add_rooted_groups(parser)
    parser.add_argument(
        "--json", action="store_true", help="print the whole result as one JSON object"
    )


def call_command(options: argparse.Namespace, terminal: Terminal, store: ToolStore) -> int:
    """Call the tool, print its result, and give the exit code.

    Raises:
        UsageProblem: there is no such tool, or the arguments can't be read.
        KeyboardInterrupt: Ctrl-C; the tool's signal is set.
    """
    if options.name not in store:
        raise UsageProblem(_not_there(options.name, store))
    call = ToolCall("call_1", options.name, freeze_json(_arguments(options.arguments)))

    def emit(event: Event) -> None:
        if isinstance(event, ToolExecUpdateEvent):
            terminal.note(one_line(str(event.partial_result)), "dim")

    result = _called(store, call, emit)
    if options.json:
        report = {
            "name": call.name,
            "arguments": call.arguments,
            "result": result.text,
            "details": to_json(result).get("details", {}),
            "is_error": result.is_error,
        }
        terminal.say(f"{json.dumps(report, ensure_ascii=False)}\n")
    elif result.is_error:
        terminal.complain(f"error: {result.text}", "bold red")
    else:
        terminal.say(result.text)
        terminal.end_line()
    return 1 if result.is_error else 0


def _not_there(name: str, store: ToolStore) -> str:
    """Say that there is no such tool, and where it is, if that is known."""
    said = f"there is no tool {name!r}"
    for group in GROUPS:
        if (builtin_tools_dir(group) / f"{name}.py").is_file():
            return f"{said} unless you give --with {group}"
    folder = new_tools_folder()
    if "/" not in name and (folder / f"{name}.py").is_file():
        return f"{said} unless you give --tools {shlex.quote(str(folder))}"
    return f"{said}; there are: {', '.join(store.snapshot())}"


def _arguments(given: list[str]) -> dict[str, Any]:
    if len(given) == 1 and given[0].lstrip().startswith("{"):
        try:
            return parse_arguments(given[0])
        except InvalidArguments as error:
            raise UsageProblem(str(error)) from error
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageProblem(f"{text!r} is no argument; give name=value, or one JSON object")
        found[name] = value
    return found


def _called(store: ToolStore, call: ToolCall, emit: Any) -> ToolResultMessage:
    message = AssistantMessage((call,), stop_reason="tool_use")
    signal, pool = AbortSignal(), DaemonPool("yiem-call")
    try:
        context = AgentContext("", (message,), store.snapshot())
        config = AgentLoopConfig()
        steps = execute_tool_calls(context, message, config, signal, emit, pool=pool)
        batch = finish(steps, pool.start, signal=signal, grace_s=config.abort_grace_s)
    except BaseException:  # Ctrl-C, mostly; whatever it is, the tool is told
        signal.abort("interrupted")
        raise
    finally:
        pool.shutdown(wait=False)
    return batch.messages[0]
