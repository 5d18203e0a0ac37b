"""Where a server is and how it is reached: a command to start, or an address."""

from __future__ import annotations

import functools
import os
import pathlib
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from yiemagent.errors import ConfigurationError
from yiemagent.mcp.connection import Connection, DuplexConnection
from yiemagent.mcp.stdio import StdioPipe

if TYPE_CHECKING:
    from yiemagent.mcp.client_protocol import ClientProtocol
    from yiemagent.mcp.desk import Desk
    from yiemagent.mcp.link import Dialer

__all__ = ["StdioServer", "dialer_for"]

# What runs a server, and what so many scripts and their folders are called that it names none of them.
_RUNNER = re.compile(r"(?:python|node|npx|uvx|uv|bunx|bun|deno|sh|bash|env)[0-9.]*")
_NO_NAMES = {"index", "main", "__main__", "server", "dist", "build", "src", "lib", "bin"}


class StdioServer:
    """A server that is started as a process and spoken to over its standard input and output.

    Args:
        command: the program and its arguments, as a sequence, or as one text that is split as a shell would.
        env: variables for it beside the few plain ones that it gets of ours (HOME, LOGNAME, PATH, SHELL, TERM, USER).
        cwd: the folder it runs in; None: ours.
        max_line_bytes: a longer message of the server's fails the call that it answers.

    Raises:
        ConfigurationError: the command is empty.
    """

    ways = ("stdio",)

    def __init__(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        max_line_bytes: int = 67_108_864,
    ) -> None:
        self.command = tuple(_words(command))
        self.env = dict(env or {})
        self.cwd = None if cwd is None else os.fspath(cwd)
        self.max_line_bytes = max_line_bytes
        if not self.command or not self.command[0]:
            raise ConfigurationError(f"the command of the server is empty: {command!r}")

    @property
    def name(self) -> str:
        """What the server is called where the user gave no name: its program, or the script that the program runs."""
        names = [_stem(word) for word in self.command if not word.startswith("-")]
        return next(
            (name for name in names if not _RUNNER.fullmatch(name)),
            names[0] if names else "server",
        )

    def dial(self, way: str, protocol: ClientProtocol, desk: Desk) -> Connection:
        """Start the server; see `link.Dialer`."""
        del way, protocol
        open_pipe = functools.partial(
            StdioPipe,
            self.command,
            env=self.env,
            cwd=self.cwd,
            name=desk.name,
            max_line_bytes=self.max_line_bytes,
        )
        return DuplexConnection(open_pipe, desk)

    def __repr__(self) -> str:
        return f"<StdioServer {shlex.join(self.command)}>"


def _stem(word: str) -> str:
    """Give the name of a program or script, or else of the folder that holds it: `files` of `files/dist/index.js`."""
    path = pathlib.PurePath(word)
    folders = [folder.name for folder in path.parents if folder.name not in {"", ".."}]
    return next((name for name in (path.stem, *folders) if name not in _NO_NAMES), path.stem)


def _words(command: str | Sequence[str]) -> list[str]:
    if isinstance(command, str):
        try:
            return shlex.split(command)
        except ValueError as error:
            raise ConfigurationError(f"can't split the command {command!r}: {error}") from error
    return [os.fspath(word) for word in command]


def dialer_for(server: Any) -> Dialer:
    """Give what dials a server that is named by a command, an address, or what dials it itself.

    Raises:
        ConfigurationError: it is none of these.
    """
    if isinstance(server, str) and urlsplit(server).scheme in {"http", "https"}:
        from yiemagent.mcp.http_server import HttpServer  # loads what HTTP needs

        return HttpServer(server)
    if isinstance(server, str) and urlsplit(server).scheme in {"nats", "tls"}:
        from yiemagent.mcp.nats import NatsServer  # loads what NATS needs

        return NatsServer.from_url(server)
    if isinstance(server, str) or (isinstance(server, Sequence) and not isinstance(server, bytes)):
        return StdioServer(server)
    if callable(getattr(server, "dial", None)) and hasattr(server, "ways"):
        dialer: Dialer = server
        return dialer
    raise ConfigurationError(
        f"a server is a command, an http or nats address, StdioServer(…), HttpServer(…) or NatsServer(…), "
        f"not {server!r:.200}"
    )
