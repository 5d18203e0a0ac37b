"""`yiemagent tools call`: one tool, called as an agent calls it, with arguments from the command line."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from yiemagent.abort import AbortSignal
from yiemagent.arguments import parse_arguments
from yiemagent.batch import execute_tool_calls
from yiemagent.cli.terminal import Terminal, UsageProblem, one_line
from yiemagent.codec import to_json
from yiemagent.config import AgentLoopConfig
from yiemagent.context import AgentContext
from yiemagent.errors import InvalidArguments
from yiemagent.events import Event, ToolExecUpdateEvent
from yiemagent.messages import AssistantMessage, ToolCall, ToolResultMessage
from yiemagent.payload import freeze_json
from yiemagent.pool import DaemonPool
from yiemagent.registry import ToolStore
from yiemagent.relay import finish

__all__ = ["add_call", "call_command"]


def add_call(actions: Any) -> None:
    """Add the action to the parser of `yiemagent tools`."""
    does = "call a tool with arguments from the command line"
    parser = actions.add_parser(
        "call",
        help=does,
        description=f"{does.capitalize()}, as an agent would: arguments are checked, the time limit holds.",
        epilog="exit codes: 0 the tool's result, 1 an error, 2 the command line is wrong, 130 interrupted",
    )
    parser.add_argument("name", metavar="NAME", help="the tool's name")
    parser.add_argument(
        "arguments",
        nargs="*",
        metavar="ARGUMENT",
        help="name=value, a value in JSON where it is no text; or one JSON object",
    )
    parser.add_argument(
        "--tools",
        "-t",
        action="append",
        default=[],
        metavar="DIR",
        type=Path,
        help="load the tool files of this folder, before the built-in ones; may be given again",
    )
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
        raise UsageProblem(
            f"there is no tool {options.name!r}; there are: {', '.join(store.snapshot())}"
        )
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
        terminal.note(f"error: {result.text}", "bold red")
    else:
        terminal.say(result.text)
        terminal.end_line()
    return 1 if result.is_error else 0


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
