"""`yiemagent ask`: one question, one run, its answer on stdout.

The run works on threads of its own and its events come through a queue, so the main thread, the only one that Python
interrupts, is always free to notice Ctrl-C or a reader that went away.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TextIO, TypeAlias

import attrs

from yiemagent.agent import YiemAgent
from yiemagent.api import abort_agent, resume_agent, run_agent, stop_agent
from yiemagent.cli.consent import add_consent, consent_of, unknown_names, working_in
from yiemagent.cli.keyboard import read_all
from yiemagent.cli.mcp_client import add_config
from yiemagent.cli.printer import EventPrinter
from yiemagent.cli.terminal import Terminal, UsageProblem
from yiemagent.cli.tool_call import ISOLATE_HELP, add_tool_folders
from yiemagent.cli.tools import load_folders
from yiemagent.codec import to_json
from yiemagent.config import REASONING_LEVELS
from yiemagent.events import AgentEndEvent, Event
from yiemagent.llm import StreamFn, stream_fn_of
from yiemagent.messages import AssistantMessage, LlmUsage, ToolCall
from yiemagent.registry import ToolStore

__all__ = ["MoreTools", "add_ask", "add_run_options", "ask_command", "converse", "run_report"]

ABORT_GRACE_S = 0.5

MoreTools: TypeAlias = "Callable[[ToolStore], AbstractContextManager[object]]"
BeginSession: TypeAlias = "Callable[[], AbstractContextManager[Any]]"

# Options that are fields of the agent's config under the same name.
_CONFIG = (
    "max_turns",
    "max_total_tokens",
    "max_cost",
    "reasoning",
    "temperature",
    "max_tokens",
)

_MORE = """\
models:
  local                   the small model that 'yiemagent local pull' gets
  local:/path/model.gguf  any other GGUF file
  openai:MODEL            OpenAI, or whatever server OPENAI_BASE_URL names
  PROVIDER:MODEL          anthropic, gemini, openai-responses, ollama, llamacpp, vllm, lmstudio,
                          openrouter, deepseek, mistral, groq

A key is taken from the provider's variable, such as OPENAI_API_KEY, and sent only to its own server
and to the one that its variable for the base URL names; with --base-url, give --api-key-env.

exit codes:
  0 an answer, 1 the run failed, 2 the command line is wrong, 130 interrupted,
  141 the reader of the output went away
"""


def add_ask(commands: Any) -> None:
    """Add the command to the parsers of `yiemagent`."""
    parser = commands.add_parser(
        "ask",
        help="ask a question; the model may use tools",
        description="Ask a model a question and print its answer. What its tools do is shown on stderr.",
        epilog=_MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "question", nargs="?", help="the question; '-', or none with input piped in, reads stdin"
    )
    parser.add_argument(
        "--session",
        metavar="FILE",
        type=Path,
        help="keep the conversation in this file, and go on with it where there is one",
    )
    parser.add_argument(
        "--mcp",
        action="append",
        default=[],
        metavar="SERVER",
        help="use the tools of this MCP server: a command to start, an address, or a name in a file of mcpServers; "
        "may be given again",
    )
    add_config(parser)
    add_run_options(parser, model_help="whom to ask (default: local); see below")
    parser.set_defaults(retry_idempotent=False)


def add_run_options(parser: argparse.ArgumentParser, *, model_help: str) -> None:
    """Add what a run needs: whom to ask, with which tools, and what is printed."""
    parser.add_argument("--model", "-m", help=model_help)
    parser.add_argument(
        "--base-url", metavar="URL", help="where the model's API is, if not where its provider is"
    )
    parser.add_argument(
        "--api-key-env",
        metavar="NAME",
        help="the environment variable that holds the key, if not the provider's own",
    )
    add_tool_folders(parser)
    parser.add_argument(
        "--no-builtin-tools",
        action="store_true",
        help="leave out the built-in tools that are there without --with",
    )
    parser.add_argument("--isolate", action="store_true", help=ISOLATE_HELP)
    add_consent(parser)
    parser.add_argument("--system", metavar="TEXT", help="instructions for the model")
    parser.add_argument(
        "--no-stream", action="store_true", help="take each message when it is whole"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object: answer, tool calls, usage, stop reason, error",
    )
    _add_limits(parser)
    _add_model_options(parser)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    """Add what ends a run that would go on."""
    parser.add_argument(
        "--max-turns", type=_count, metavar="N", help="end the run after N model answers"
    )
    parser.add_argument(
        "--max-total-tokens",
        type=_count,
        metavar="N",
        help="end the run once its requests and answers have N tokens together",
    )
    parser.add_argument(
        "--max-cost", type=_amount, metavar="USD", help="end the run once it cost this much"
    )


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add what a model is asked with; what is left out is the model's own choice."""
    parser.add_argument(
        "--reasoning",
        choices=REASONING_LEVELS,
        metavar="LEVEL",
        help=f"how much the model thinks: {', '.join(REASONING_LEVELS)}",
    )
    parser.add_argument(
        "--temperature", type=_amount, metavar="T", help="how freely the model picks its words"
    )
    parser.add_argument(
        "--max-tokens", type=_count, metavar="N", help="end each model answer after N tokens"
    )
    parser.add_argument(
        "--schema",
        type=Path,
        metavar="FILE",
        help="a JSON Schema that the answer must fit; the answer is then JSON",
    )


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {text!r}")
    return int(text)


def _amount(text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not 0 <= amount < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number, 0 or more, not {text!r}")
    return amount


def ask_command(
    options: argparse.Namespace,
    terminal: Terminal,
    stdin: TextIO,
    model: StreamFn | str,
    *,
    session: Any = None,
    begin: BeginSession | None = None,
    more_tools: MoreTools = nullcontext,
) -> int:
    """Ask, show the run, and give the exit code.

    Args:
        options: what the command line says.
        terminal: where to write.
        stdin: where a question may come from.
        model: whom to ask.
        session: keeps the conversation, or None.
        begin: begins the session that keeps it, for a `with` block; called once all else was found good.
        more_tools: registers tools for a `with` block, those of MCP servers.

    Raises:
        UsageProblem: there is no question, or no such folder.
        McpError: a server of tools can't be used.
        ConfigurationError: the model can't be used.
        KeyboardInterrupt: Ctrl-C; the run is over.
        OutputClosed: the reader of stdout went away; the run is over.
    """
    question = _question(options.question, stdin)
    return converse(
        options,
        terminal,
        model,
        question,
        stdin=stdin,
        session=session,
        begin=begin,
        more_tools=more_tools,
    )


def converse(
    options: argparse.Namespace,
    terminal: Terminal,
    model: StreamFn | str,
    question: str | None,
    *,
    stdin: TextIO | None = None,
    session: Any = None,
    begin: BeginSession | None = None,
    more_tools: MoreTools = nullcontext,
) -> int:
    """Go on with what a session left, ask the question, show the runs, and give the exit code.

    A person's yes to calls of tools comes from `stdin`, where it is given, else from that of the process.

    Raises:
        UsageProblem, ConfigurationError, KeyboardInterrupt, OutputClosed: as `ask_command` does.
    """
    events: SimpleQueue[Event | str] = SimpleQueue()
    keyboard = stdin or sys.stdin or io.StringIO()
    consent = consent_of(options, keyboard, terminal, question=events.put)
    with working_in(options):
        store, errors = load_folders(
            options.tools,
            builtin=not options.no_builtin_tools,
            groups=options.groups,
            isolate=options.isolate,
        )
    for error in errors:
        terminal.note(f"warning: {error}", "yellow")
    with contextlib.closing(store), more_tools(store), contextlib.ExitStack() as stack:
        for name in unknown_names(options, store.snapshot()):
            terminal.note(f"warning: there is no tool {name!r} now to allow or ask about", "yellow")
        stream_fn, settings = stream_fn_of(model), _settings(options)
        if begin is not None:  # last of all that may fail, so that no empty session is left behind
            session = stack.enter_context(begin())
        agent = YiemAgent(
            stream_fn,
            tool_store=store,
            event_sink=events.put,
            name="ask",
            abort_grace_s=ABORT_GRACE_S,
            session=session,
            before_tool_call=consent,
            **settings,
        )
        return _converse(options, terminal, agent, question, session=session, events=events)


def _converse(
    options: argparse.Namespace,
    terminal: Terminal,
    agent: YiemAgent,
    question: str | None,
    *,
    session: Any,
    events: SimpleQueue[Event | str],
) -> int:
    if session is not None:
        session.note_model(options.model)
    end: AgentEndEvent | None = None
    runs = _runs_left(session) + (question is not None)
    try:
        if session is not None:
            resume_agent(agent, retry_idempotent=options.retry_idempotent)
        if question is not None:
            run_agent(agent, question)
        for _ in range(runs):
            printer = EventPrinter(terminal, stream=not options.no_stream, quiet=options.json)
            end = _follow(events, printer, terminal)
    except (
        BaseException
    ):  # Ctrl-C or a closed pipe, mostly; whatever it is, the run must not outlive it
        abort_agent(agent, "interrupted")
        stop_agent(agent, timeout_s=0)
        raise
    stop_agent(agent)
    assert end is not None  # there is a question, or something was left
    if options.json:
        terminal.say(f"{json.dumps(run_report(end), ensure_ascii=False)}\n")
    return 1 if end.answer.failed else 0


def _runs_left(session: Any) -> int:
    """Give how many runs a session has left to do: the interrupted one, and those of messages that wait for one."""
    if session is None:
        return 0
    waiting = [kind for kind, _ in session.waiting]
    own = session.interrupted + waiting.count("input")
    return own or int(bool(waiting))


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    named = {"system_prompt": options.system, "output_schema": _schema(options.schema)}
    named |= {name: getattr(options, name) for name in _CONFIG}
    return {name: value for name, value in named.items() if value is not None}


def _schema(path: Path | None) -> Any:
    if path is None:
        return None
    try:
        schema = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageProblem(f"no JSON Schema could be read from {path}: {error}") from error
    if not isinstance(schema, dict):
        raise UsageProblem(f"{path} holds no JSON Schema, which is an object")
    return schema


def _question(given: str | None, stdin: TextIO) -> str:
    if given is None and stdin.isatty():
        raise UsageProblem("no question; give it as an argument or pipe it in")
    question = read_all(stdin) if given in {None, "-"} else given
    if not question or not question.strip():
        raise UsageProblem("the question is empty")
    return question.strip()


def _follow(
    events: SimpleQueue[Event | str], printer: EventPrinter, terminal: Terminal
) -> AgentEndEvent:
    """Show a run as it goes, and the questions that it has for the person, which come as text."""
    while True:
        event = events.get()
        if isinstance(event, str):
            terminal.ask(event)
            continue
        printer(event)
        if isinstance(event, AgentEndEvent):
            return event


def run_report(end: AgentEndEvent) -> dict[str, Any]:
    """Give a run as one JSON object: its answer, the tool calls with their results, usage, and every message.

    The answer's value is there where one was asked for; usage is None where nobody told any.
    """
    messages = [to_json(message) for message in end.messages]
    results = {m["tool_call_id"]: m for m in messages if m["role"] == "toolResult"}
    answers = [message for message in end.messages if isinstance(message, AssistantMessage)]
    return {
        "answer": end.answer.text,
        "value": end.answer.parsed,
        "stop_reason": end.answer.stop_reason,
        "error": end.answer.error_message,
        "model": end.answer.model or None,
        "tool_calls": [
            _call_report(block, results.get(block.id, {}))
            for message in answers
            for block in message.content
            if isinstance(block, ToolCall)
        ],
        "usage": attrs.asdict(end.usage) if end.usage != LlmUsage() else None,
        "messages": messages,
    }


def _call_report(call: ToolCall, result: dict[str, Any]) -> dict[str, Any]:
    blocks = result.get("content", [])
    return {
        "id": call.id,
        "name": call.name,
        "arguments": call.arguments,
        "result": "".join(block["text"] for block in blocks if block["type"] == "text"),
        "details": result.get("details", {}),
        "is_error": result.get("is_error", False),
    }
