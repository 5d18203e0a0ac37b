"""`yiemagent mcp`: serve tool files to MCP clients, and look at servers of others.

The parts that do the work are handed in by `main`, since no room of the roof but that one knows the wings.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import attrs

from yiemagent.cli.consent import add_rooted_groups, working_in
from yiemagent.cli.mcp_client import OpenServer, add_list_and_call, call_command, list_command
from yiemagent.cli.terminal import Terminal, UsageProblem
from yiemagent.cli.tools import load_folders
from yiemagent.registry import ToolStore

__all__ = ["McpParts", "Serving", "add_mcp", "mcp_command"]

_MORE = """\
An MCP client starts it by this command, in its configuration:

  {"mcpServers": {"my-tools": {"command": "yiemagent", "args": ["mcp", "serve", "/path/to/tools"]}}}

Loading a tool file runs its code, and whoever reaches the server can call its tools. Over HTTP that
is every program on this machine, unless --token-env names a variable that holds a token.

exit codes:
  0 the client closed its end, 2 the command line is wrong, 130 interrupted
"""


class Serving(Protocol):
    """A server over HTTP that listens."""

    @property
    def url(self) -> str:
        """Where."""

    def wait(self) -> None:
        """Block until it is closed."""


class ServeHttp(Protocol):
    """Gives a server over HTTP."""

    def __call__(
        self,
        store: ToolStore,
        /,
        *,
        host: str,
        port: int,
        token: str | None,
        allowed_hosts: tuple[str, ...],
    ) -> AbstractContextManager[Serving]:
        """Serve a store for a `with` block."""


@attrs.frozen
class McpParts:
    """What the command works with.

    Args:
        serve_stdio: serves a store on standard input and output, until the client closes its end.
        serve_http: serves a store over HTTP.
        open_server: opens a server of others.
    """

    serve_stdio: Callable[[ToolStore], None]
    serve_http: ServeHttp
    open_server: OpenServer


def add_mcp(commands: Any) -> None:
    """Add the command to the parsers of `yiemagent`."""
    parser = commands.add_parser(
        "mcp",
        help="serve tools over MCP, or look at a server",
        description="Tools over the Model Context Protocol.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_serve(actions)
    add_list_and_call(actions)


def _add_serve(actions: Any) -> None:
    serve = actions.add_parser(
        "serve",
        help="serve tool files to MCP clients",
        description="Serve tool files to an MCP client, on standard input and output or over HTTP.",
        epilog=_MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serve.add_argument(
        "folders",
        nargs="*",
        metavar="DIR",
        type=Path,
        help="folders of tool files (default: the built-in tools that change nothing)",
    )
    add_rooted_groups(serve)
    serve.add_argument(
        "--http",
        metavar="HOST:PORT",
        type=_address,
        help="serve over HTTP, at 127.0.0.1:8931 say, instead of standard input and output",
    )
    serve.add_argument(
        "--token-env",
        metavar="NAME",
        help="the environment variable that holds the token which HTTP clients must bring",
    )
    serve.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="HOST[:PORT]",
        help="a name that HTTP clients may reach this server by, beside those of this machine; may be given again",
    )


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdecimal()) or int(port) > 65_535:
        raise argparse.ArgumentTypeError(f"must be HOST:PORT, such as 127.0.0.1:8931, not {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def mcp_command(options: argparse.Namespace, terminal: Terminal, parts: McpParts) -> int:
    """Serve, list or call, and give the exit code.

    Raises:
        UsageProblem: there is no such folder or tool, an option is for HTTP only, or there is no token.
        ConfigurationError: the address can't be listened at, or there is no such server.
        McpError: a server of others can't be used.
        KeyboardInterrupt: Ctrl-C.
    """
    if options.action == "list":
        return list_command(options, terminal, parts.open_server)
    if options.action == "call":
        return call_command(options, terminal, parts.open_server)
    return _serve(options, terminal, parts)


def _serve(options: argparse.Namespace, terminal: Terminal, parts: McpParts) -> int:
    token = _token(options)
    plain = not options.folders and not options.groups
    with working_in(options):
        store, errors = load_folders(options.folders, builtin=plain, groups=options.groups)
    for error in errors:
        terminal.note(f"warning: {error}", "yellow")
    _leave_out(store, changing=plain)
    if options.http is None:
        parts.serve_stdio(store)
        return 0
    host, port = options.http
    if not _is_loopback(host):
        if token is None:
            terminal.note(f"warning: whoever reaches {host} can call these tools", "yellow")
        if not options.allow_host:
            terminal.note(
                "warning: requests by other names than this machine's own are refused; see --allow-host",
                "yellow",
            )
    hosts = tuple(options.allow_host)
    with parts.serve_http(store, host=host, port=port, token=token, allowed_hosts=hosts) as serving:
        count = f"{len(store)} tool{'' if len(store) == 1 else 's'}"
        terminal.note(f"serving {count} at {serving.url}; Ctrl-C ends it")
        serving.wait()
    return 0


def _token(options: argparse.Namespace) -> str | None:
    if options.http is None and (options.token_env is not None or options.allow_host):
        raise UsageProblem("--token-env and --allow-host are for --http")
    if options.token_env is None:
        return None
    token = os.environ.get(options.token_env)
    if not token:
        raise UsageProblem(f"the environment variable {options.token_env} holds no token")
    return token


def _leave_out(store: ToolStore, *, changing: bool) -> None:
    """Take out the library's own `list_tools`, since clients have a request for it; and what changes anything, where
    nobody asked for it by naming a folder or a group.
    """
    for name, tool in store.snapshot().items():
        own = name == "list_tools" and tool.function.__module__.startswith("yiemagent.")
        if own or (changing and tool.annotations.get("readOnlyHint") is not True):
            store.remove(name)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
