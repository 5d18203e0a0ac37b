"""The `yiemagent` command: the one place that knows every part and puts them together."""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yiemagent import __version__
from yiemagent.cli.ask import MoreTools, add_ask, ask_command
from yiemagent.cli.local import LocalParts, add_local, local_command
from yiemagent.cli.mcp import McpParts, Serving, add_mcp, mcp_command
from yiemagent.cli.mixed_parser import CommandParser
from yiemagent.cli.sessions import SessionParts, add_sessions, note_not_run, sessions_command
from yiemagent.cli.terminal import OutputClosed, OutputFailed, Terminal, UsageProblem
from yiemagent.cli.tools import add_tools, tools_command
from yiemagent.errors import AuthenticationError, ConfigurationError, YiemAgentError
from yiemagent.llm import StreamFn
from yiemagent.mcp.serve_stdio import serve_stdio
from yiemagent.mcp.server import McpServer
from yiemagent.providers import create, local, local_models
from yiemagent.providers.http_provider import HttpProvider
from yiemagent.registry import ToolStore
from yiemagent.sessions import Session, history_of, take_up_paused, waiting_for_approval
from yiemagent.sessions.places import SUFFIXES

if TYPE_CHECKING:
    from yiemagent.mcp.client import McpClient

__all__ = ["main"]

EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED, EXIT_PIPE = 1, 2, 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: its arguments; None: those of the process.

    Returns:
        The exit code: 0 done, 1 failed, 2 the command line is wrong, 130 interrupted, 141 the reader of the output went
        away.
    """
    # What the library logs stays with whoever asks for it; the command says itself what a person needs to know.
    logging.getLogger("yiemagent").addHandler(logging.NullHandler())
    terminal = Terminal.of_process()
    try:
        options = _parser().parse_args(argv)
        # Tools and their files may print; only what was asked for goes to stdout, which the terminal has already.
        with contextlib.redirect_stdout(sys.stderr):
            return _run(options, terminal)
    except SystemExit as ending:  # argparse has said what is wrong, or has shown help
        return ending.code if isinstance(ending.code, int) else EXIT_USAGE
    except KeyboardInterrupt:
        with contextlib.suppress(OutputClosed, OutputFailed):
            terminal.note("interrupted", "yellow")
        return EXIT_INTERRUPTED
    except OutputFailed as error:
        with contextlib.suppress(OutputClosed, OutputFailed):
            terminal.error(str(error))
        _let_go_of_output()
        return EXIT_FAILED
    except OutputClosed:
        _let_go_of_output()
        return EXIT_PIPE


def _run(options: argparse.Namespace, terminal: Terminal) -> int:
    try:
        match options.command:
            case "ask":
                return _ask(options, terminal)
            case "local":
                return local_command(options, terminal, _local_parts())
            case "sessions":
                return sessions_command(options, terminal, _session_parts())
            case "mcp":
                return mcp_command(options, terminal, _mcp_parts())
            case _:
                return tools_command(options, terminal)
    except (UsageProblem, ConfigurationError) as error:
        terminal.error(str(error))
        return EXIT_USAGE
    except YiemAgentError as error:
        terminal.error(str(error))
        return EXIT_FAILED


def _ask(options: argparse.Namespace, terminal: Terminal) -> int:
    stdin = sys.stdin or io.StringIO()
    file: Path | None = options.session
    if file is None or not file.exists():
        options.model = options.model or "local"
        model, tools = _model(options), _mcp_tools(options)
        begin = None if file is None else functools.partial(Session.open, file, create=True)
        return ask_command(options, terminal, stdin, model, begin=begin, more_tools=tools)
    with Session.open(file) as session:
        options.model = options.model or session.model or "local"
        model, tools = _model(options), _mcp_tools(options)
        note_not_run(terminal, waiting_for_approval(session))
        return ask_command(options, terminal, stdin, model, session=session, more_tools=tools)


def _session_parts() -> SessionParts:
    return SessionParts(
        open=Session.open,
        history=history_of,
        suffixes=SUFFIXES,
        model=_model,
        waiting=waiting_for_approval,
        take_up=take_up_paused,
    )


def _model(options: argparse.Namespace) -> StreamFn | str:
    """Give whom to ask.

    Raises:
        UsageProblem: an option is not for this model, or there is no key.
        ConfigurationError: no such provider is known.
    """
    provider, _, name = options.model.partition(":")
    settings = _provider_settings(options)
    if provider == "local":
        for option in ("base_url", "api_key"):
            if option in settings:
                raise UsageProblem("--base-url and --api-key-env are not for the local model")
        return str(options.model)
    model = create(provider, name, **settings)
    if isinstance(model, HttpProvider):
        try:
            model.check_key()
        except AuthenticationError as error:
            raise UsageProblem(str(error)) from error
    return model


def _provider_settings(options: argparse.Namespace) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if options.no_stream:
        settings["stream"] = False
    if options.base_url is not None:
        settings["base_url"] = options.base_url
    if options.api_key_env is not None:
        key = os.environ.get(options.api_key_env)
        if not key:
            raise UsageProblem(f"the environment variable {options.api_key_env} holds no key")
        settings["api_key"] = key
    return settings


def _local_parts() -> LocalParts:
    return LocalParts(
        default=local_models.DEFAULT_MODEL,
        models=local_models.catalogue(),
        file=local_models.model_file,
        pull=local_models.pull,
        bench=lambda model: local.bench(model).rows(),
    )


def _serve_stdio(store: ToolStore) -> None:
    with McpServer(store, version=__version__) as server:
        serve_stdio(server)


@contextlib.contextmanager
def _serve_http(store: ToolStore, /, **options: Any) -> Iterator[Serving]:
    from yiemagent.mcp.serve_http import HttpServing  # what is not used is not loaded

    with McpServer(store, version=__version__) as server, HttpServing(server, **options) as serving:
        yield serving


def _open_server(named: str, config: Path | None, /) -> McpClient:
    from yiemagent.mcp.client import McpClient  # what is not used is not loaded
    from yiemagent.mcp.config import find_server

    name, server = find_server(named, config)
    return McpClient(server, name=name)


def _mcp_tools(options: argparse.Namespace) -> MoreTools:
    """Give what has the tools of the MCP servers that the command line names in a store, for a `with` block."""

    @contextlib.contextmanager
    def more(store: ToolStore) -> Iterator[None]:
        from yiemagent.mcp.connecting import connect  # what is not used is not loaded

        with contextlib.ExitStack() as stack:
            for named in options.mcp:
                client = stack.enter_context(_open_server(named, options.mcp_config))
                # One server's tools keep their short names; those of several are kept apart.
                client.prefix = client.name if len(options.mcp) > 1 else ""
                stack.callback(connect(store, client).disconnect)
            yield

    return more


def _mcp_parts() -> McpParts:
    return McpParts(_serve_stdio, _serve_http, _open_server)


_EXAMPLES = """\
examples:
  yiemagent local pull                        get the small model that runs on this machine
  yiemagent ask "What time is it in Tokyo?"   ask it
  yiemagent ask --model openai:gpt-5.1 --tools my_tools "What can you do?"
  yiemagent ask --model openai:gpt-5.1 --with files "Which of these files is the longest?"
  yiemagent ask --session trip.jsonl "And in Oslo?"
  yiemagent sessions list                     see which conversations are kept here
  yiemagent tools check my_tools              see what is wrong with tool files
  yiemagent mcp serve my_tools                serve them to an MCP client
  yiemagent mcp list "node server.js"         see what an MCP server can do

'yiemagent COMMAND --help' says more about a command.
"""


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="yiemagent",
        description="Agents that use tools, from the command line.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = f"yiemagent {__version__}"
    parser.add_argument("--version", action="version", version=version, help="show the version")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_ask(commands)
    add_tools(commands)
    add_mcp(commands)
    add_local(commands)
    add_sessions(commands)
    return parser


def _let_go_of_output() -> None:
    """Point the streams that can't be written at nothing, else Python complains about them when it ends."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(io.UnsupportedOperation):  # a stream of a test has no file
                os.dup2(nothing, stream.fileno())
    finally:
        os.close(nothing)
