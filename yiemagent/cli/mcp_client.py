"""`yiemagent mcp list` and `mcp call`: MCP servers of others, looked at and used."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from yiemagent.cli.terminal import Terminal, UsageProblem, one_line

__all__ = [
    "OpenServer",
    "RemoteServer",
    "add_config",
    "add_list_and_call",
    "call_command",
    "list_command",
]

_SERVERS = """\
SERVER is one of
  a command to start, as one word:    "node server.js --fast"
  an address:                         https://example.com/mcp, nats://host:4222/subject
  a name in a file of mcpServers:     the one that --mcp-config or YIEMAGENT_MCP_CONFIG names,
                                      else .mcp.json or mcp.json in this folder

A command is run with your rights, and what a server says reaches the model: use servers you trust.
"""
_CALL = """\
arguments:
  yiemagent mcp call SERVER add a=2 b=3
  yiemagent mcp call SERVER add '{"a": 2, "b": 3}'

exit codes:
  0 a result, 1 the call failed, 2 the command line is wrong, 130 interrupted,
  141 the reader of the output went away
"""


class RemoteServer(Protocol):
    """A server that is open."""

    def list_tools(self) -> list[dict[str, Any]]:
        """Give the definitions of its tools."""

    def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Call a tool and give its result."""


class OpenServer(Protocol):
    """Opens a server that a command line names."""

    def __call__(self, named: str, config: Path | None, /) -> AbstractContextManager[RemoteServer]:
        """Open it for a `with` block; it connects when it is used."""


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add the option that names a file of servers."""
    parser.add_argument(
        "--mcp-config",
        metavar="FILE",
        type=Path,
        help="a JSON file with mcpServers to take names from",
    )


def add_list_and_call(actions: Any) -> None:
    """Add both to the actions of `yiemagent mcp`."""
    listing = _action(actions, "list", "list a server's tools: name, title, description", _SERVERS)
    listing.add_argument("--json", action="store_true", help="print the definitions as JSON")
    call = _action(actions, "call", "call a tool of a server", f"{_SERVERS}\n{_CALL}")
    call.add_argument("tool", metavar="TOOL", help="the tool's name, as the server has it")
    call.add_argument(
        "arguments",
        nargs="*",
        metavar="NAME=VALUE",
        help="its arguments; or all in one JSON object",
    )
    call.add_argument("--json", action="store_true", help="print the whole result as JSON")


def _action(actions: Any, name: str, does: str, more: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name,
        help=does,
        description=f"{does.capitalize()}.",
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("server", metavar="SERVER", help="see below")
    add_config(parser)
    return parser


def list_command(options: argparse.Namespace, terminal: Terminal, open_server: OpenServer) -> int:
    """List a server's tools, and give the exit code.

    Raises:
        ConfigurationError: there is no such server.
        McpError: it can't be used.
    """
    with open_server(options.server, options.mcp_config) as server:
        tools = server.list_tools()
    if options.json:
        terminal.say(f"{json.dumps(tools, ensure_ascii=False, indent=2)}\n")
        return 0
    terminal.rows(
        [
            (str(tool.get("name")), _title(tool), one_line(str(tool.get("description") or "")))
            for tool in tools
        ]
    )
    return 0


def _title(tool: Mapping[str, Any]) -> str:
    hints = tool.get("annotations")
    hints = hints if isinstance(hints, dict) else {}
    return one_line(str(tool.get("title") or hints.get("title") or tool.get("name")))


def call_command(options: argparse.Namespace, terminal: Terminal, open_server: OpenServer) -> int:
    """Call a tool, print its result, and give the exit code.

    Raises:
        UsageProblem: there is no such tool, or an argument is none.
        ConfigurationError: there is no such server.
        McpError: it can't be used.
    """
    with open_server(options.server, options.mcp_config) as server:
        tools = {str(tool.get("name")): tool for tool in server.list_tools()}
        if options.tool not in tools:
            known = ", ".join(tools) or "none"
            raise UsageProblem(f"the server has no tool {options.tool!r}; it has: {known}")
        arguments = _arguments(options.arguments, tools[options.tool])
        result = server.call_tool(options.tool, arguments)
    if options.json:
        terminal.say(f"{json.dumps(result, ensure_ascii=False, indent=2)}\n")
    else:
        _show(result, terminal)
    return 1 if result.get("isError") else 0


def _arguments(words: list[str], tool: Mapping[str, Any]) -> dict[str, Any]:
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        try:
            whole = json.loads(words[0])
        except ValueError as error:
            raise UsageProblem(f"the arguments are no JSON: {error}") from error
        return dict(whole)
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    properties = properties if isinstance(properties, dict) else {}
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise UsageProblem(
                f"an argument is NAME=VALUE, or all are one JSON object; not {word!r}"
            )
        found[name] = _value(text, properties.get(name))
    return found


def _value(text: str, schema: Any) -> Any:
    """Read a value: as text where the tool wants text, else as JSON where it is some."""
    if isinstance(schema, dict) and schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _show(result: Mapping[str, Any], terminal: Terminal) -> None:
    content = result.get("content")
    blocks = (
        [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    )
    for block in blocks:
        if block.get("type") == "text":
            terminal.say(f"{str(block.get('text')).rstrip()}\n")
        else:
            facts = {key: value for key, value in block.items() if key not in {"data", "blob"}}
            terminal.say(f"{json.dumps(facts, ensure_ascii=False)}\n")
    if not blocks and result.get("structuredContent") is not None:
        terminal.say(f"{json.dumps(result['structuredContent'], ensure_ascii=False, indent=2)}\n")
