"""The `mcpServers` JSON in which people keep their servers already, read as it is.

    {"mcpServers": {"files": {"command": "npx", "args": ["-y", "server-files", "${HOME}/notes"], "env": {"K": "${K}"}},
                    "wiki": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}}}

In every text of a server `${VAR}` (or `${env:VAR}`) stands for a variable of the environment, `${VAR:-text}` for the
text where it is not set or empty; one that is not set is an error, since a server started without its key fails later
and in worse words. Nothing else is expanded: `$VAR` and `~` stay what they are. Keys that programs keep there for
themselves are passed over, and so is a server that is disabled.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from yiemagent.errors import ConfigurationError
from yiemagent.mcp.dialers import StdioServer, dialer_for
from yiemagent.mcp.http_server import HttpServer
from yiemagent.mcp.nats import NatsServer

__all__ = ["ServerEntry", "find_server", "load_servers", "read_servers"]

ServerEntry: TypeAlias = StdioServer | HttpServer | NatsServer

# The words that programs have for the transports.
_KINDS = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamablehttp": "http",
    "sse": "sse",
    "nats": "nats",
}
_ADDRESSES = ("url", "serverUrl", "httpUrl")
_DEFAULT_FILES = (".mcp.json", "mcp.json")
_FILE_VARIABLE = "YIEMAGENT_MCP_CONFIG"
_PLACE = re.compile(r"\$\{([^}]*)\}")
_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


def find_server(
    named: str, config: str | os.PathLike[str] | None = None
) -> tuple[str | None, ServerEntry]:
    """Give the server that a command line names: by its name in a file, by an address, or by a command.

    Args:
        named: `files`, `https://…`, `nats://host/subject`, or `node server.js`.
        config: the file of servers; None: the one that `YIEMAGENT_MCP_CONFIG` names, else `.mcp.json` or `mcp.json` in
            the present folder where there is one. Only the entry of that name is read, and where `named` may be a
            command or an address, a file that was not given here may be broken.

    Returns:
        The name if it was one, else None; and the server.

    Raises:
        ConfigurationError: it is none of these, or the file is not what it should be.
    """
    files = _files(config)
    may_be_other = re.search(r"\s|/", named) is not None
    for file in files if named else ():
        try:
            found = load_servers(file, only=named)
        except ConfigurationError:
            if config is not None or not may_be_other:
                raise
            continue  # a command does not need the file, whatever is wrong with it
        if named in found:
            return named, found[named]
    if "://" in named or re.search(r"\s", named) or shutil.which(named):
        dialer: Any = dialer_for(named)
        return None, dialer
    places = f"no server of {' or '.join(map(str, files))}" if files else "no server of a file"
    raise ConfigurationError(f"{named!r} is {places}, no address and no program")


def _files(config: str | os.PathLike[str] | None) -> list[pathlib.Path]:
    given = config or os.environ.get(_FILE_VARIABLE)
    if given:
        return [pathlib.Path(given)]
    return [path for name in _DEFAULT_FILES if (path := pathlib.Path(name)).is_file()]


def load_servers(
    path: str | os.PathLike[str],
    *,
    env: Mapping[str, str] | None = None,
    only: str | None = None,
) -> dict[str, ServerEntry]:
    """Read a file of servers.

    Args:
        path: of a JSON file.
        env: what `${VAR}` stands for; None: the environment.
        only: the one server to read, so that what others lack does not matter; None: all.

    Returns:
        The servers by name in their order, each ready for `McpClient(server, name=name)`.

    Raises:
        ConfigurationError: it can't be read, or is not what it should be; the text names the path and the key.
    """
    place = os.fspath(path)
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{place} can't be read: {error}") from error
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{place} is no JSON: {error}") from error
    return read_servers(data, where=place, env=env, only=only)


def read_servers(
    data: Any,
    *,
    where: str = "mcpServers",
    env: Mapping[str, str] | None = None,
    only: str | None = None,
) -> dict[str, ServerEntry]:
    """Read servers from the dict that such a file holds.

    Args:
        data: `{"mcpServers": {name: {…}}}`; `servers` in place of `mcpServers` is taken, too.
        where: what errors call it.
        env: what `${VAR}` stands for; None: the environment.
        only: the one server to read; None: all.

    Raises:
        ConfigurationError: it is not what it should be; the text names the key, and no value of `env` or `headers`.
    """
    known = ("mcpServers", "servers")
    key = next((key for key in known if isinstance(data, dict) and key in data), None)
    if key is None:
        raise ConfigurationError(f'{where}: there is no "mcpServers"')
    named = data[key]
    if not isinstance(named, dict):
        raise ConfigurationError(f"{where}: {key}: must be an object of servers by name")
    environment = os.environ if env is None else env
    found: dict[str, ServerEntry] = {}
    for name, entry in named.items():
        if only is not None and name != only:
            continue
        reader = _Entry(f"{where}: {key}.{name}", entry, environment)
        if not reader.is_disabled:
            found[name] = reader.server()
    return found


class _Entry:
    """One server's entry, and where it stands."""

    def __init__(self, where: str, entry: Any, env: Mapping[str, str]) -> None:
        self._where = where
        self._env = env
        if not isinstance(entry, dict):
            raise self._wrong("", f"must be an object, not {type(entry).__name__}")
        self._entry: dict[str, Any] = entry

    @property
    def is_disabled(self) -> bool:
        return self._entry.get("disabled") is True or self._entry.get("enabled") is False

    def server(self) -> ServerEntry:
        addresses = [key for key in _ADDRESSES if self._entry.get(key)]
        has_command = bool(self._entry.get("command"))
        kind = self._kind()
        if has_command == bool(addresses):
            words = "has both a command and a url" if has_command else "has no command and no url"
            raise self._wrong("", f"{words}; it needs one of them")
        if has_command != (kind == "stdio" or (kind is None and has_command)):
            needs = "url" if has_command else "command"
            raise self._wrong("type", f"{kind!r} needs a {needs}")
        try:
            return self._stdio() if has_command else self._remote(addresses[0], kind)
        except ConfigurationError as error:
            if str(error).startswith(self._where):
                raise
            raise self._wrong("", str(error)) from error

    def _kind(self) -> str | None:
        key = "type" if "type" in self._entry else "transport"
        given = self._entry.get(key)
        if given is None:
            return None
        kind = _KINDS.get(given.lower()) if isinstance(given, str) else None
        if kind is None:
            raise self._wrong(key, f"{given!r:.80} is none of stdio, http, sse and nats")
        return kind

    def _stdio(self) -> StdioServer:
        command = self._text("command", self._entry["command"])
        args = self._entry.get("args")
        if args is not None and not isinstance(args, list):
            raise self._wrong("args", "must be a list of texts")
        words = [self._text(f"args[{n}]", word) for n, word in enumerate(args or ())]
        cwd = self._entry.get("cwd")
        return StdioServer(
            [command, *words],
            env=self._texts("env", self._value),
            cwd=None if cwd is None else self._text("cwd", cwd),
        )

    def _remote(self, key: str, kind: str | None) -> ServerEntry:
        url = self._text(key, self._entry[key])
        if kind == "nats" or (kind is None and url.startswith(("nats://", "tls://"))):
            return NatsServer.from_url(url)
        headers = self._texts("headers", self._value)
        if kind == "http":
            return HttpServer(url, headers=headers, transport="http")
        if kind == "sse":
            return HttpServer(url, headers=headers, transport="sse")
        return HttpServer(url, headers=headers)

    # --- values -----------------------------------------------------------------------------------------------------

    def _texts(self, key: str, read: Callable[[str, Any], str]) -> dict[str, str]:
        given = self._entry.get(key)
        if given is None:
            return {}
        if not isinstance(given, dict):
            raise self._wrong(key, "must be an object of texts by name")
        return {name: read(f"{key}.{name}", value) for name, value in given.items()}

    def _value(self, key: str, value: Any) -> str:
        """Read a value of `env` or `headers`, where people write numbers, too."""
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value) if isinstance(value, (int, float)) else self._text(key, value)

    def _text(self, key: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self._wrong(key, f"must be text, not {type(value).__name__}")
        return _PLACE.sub(lambda found: self._variable(key, found[1]), value)

    def _variable(self, key: str, named: str) -> str:
        found = _VARIABLE.fullmatch(named)
        if found is None:
            raise self._wrong(
                key, f"${{{named}}} is not known; ${{NAME}} and ${{NAME:-otherwise}} are"
            )
        name, otherwise = found[1], found[2]
        value = self._env.get(name)
        if value or (value is not None and otherwise is None):
            return value
        if otherwise is None:
            raise self._wrong(key, f"the environment variable {name} is not set")
        return otherwise

    def _wrong(self, key: str, reason: str) -> ConfigurationError:
        return ConfigurationError(f"{self._where}{'.' if key else ''}{key}: {reason}")
