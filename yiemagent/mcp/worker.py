"""One child process that runs the tool of one file, as its parent sees it: a connection that speaks MCP, and its end.

It does one call at a time, so that ending it costs nobody else anything.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import signal as signals
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from yiemagent.errors import (
    ConfigurationError,
    McpTransportError,
    ToolError,
    ToolLoadError,
    shortened,
)
from yiemagent.isolation import ProcessLimits
from yiemagent.mcp.calls import Call
from yiemagent.mcp.client_protocol import ClientProtocol, complete_or_input
from yiemagent.mcp.connection import Asked, DuplexConnection
from yiemagent.mcp.desk import Desk
from yiemagent.mcp.handlers import ServerRequests
from yiemagent.mcp.jsonrpc import ErrorResponse
from yiemagent.mcp.stdio import StdioPipe
from yiemagent.mcp.versions import LATEST_STATELESS
from yiemagent.record import Record

__all__ = ["ToolSource", "Worker"]

# -I: nothing of the environment and of the working folder decides what is imported; the path comes with the work.
_BEGIN = (
    "import sys; wire = open(0, 'rb', 0, closefd=False); size = int(wire.readline()); data = b''\n"
    "while len(data) < size: data += wire.read(size - len(data))\n"
    "import json; work = json.loads(data); del wire, data; sys.path[:] = work['path']\n"
    "from yiemagent.mcp.worker_main import main; main(work)"
)
_INHERITED = {"LANG", "TMPDIR", "TZ"}
_HELD_THERE = ("memory_bytes", "cpu_s", "file_bytes", "open_files", "processes")
_PATH_CHARACTERS = 4_096  # the longest that Linux has
_INFO = {"name": "yiemagent", "version": "1"}


@attrs.frozen(eq=False, repr=False)
class ToolSource(Record):
    """A version of a tool file, and how it is run.

    Args:
        path: the file, resolved.
        digests: what it and its helpers hold, as `LoadedFile.digests`; empty: whatever is there.
        limits: what its processes may use.
        sources: the contents by path; None: what is there.
    """

    path: Path
    digests: tuple[tuple[Path, str], ...]
    limits: ProcessLimits
    sources: Mapping[Path, bytes] | None = attrs.field(default=None, eq=False, repr=False)

    @classmethod
    def of_files(
        cls, path: Path, digests: tuple[tuple[Path, str], ...], limits: ProcessLimits
    ) -> ToolSource:
        """Keep the contents of files, as long as they are what was loaded.

        Args:
            path: the tool file.
            digests: the files, each with what it held when it was loaded, as SHA-256; empty for what it holds now.
            limits: what its processes may use.

        Raises:
            ToolLoadError: they are not, or can't be read.
        """
        sources, found = {}, []
        for file, digest in digests:
            try:
                sources[file] = file.read_bytes()
            except OSError as error:
                raise _unreadable(path, f"{file} can't be read: {error}") from error
            found.append((file, hashlib.sha256(sources[file]).hexdigest()))
            if digest not in {"", found[-1][1]}:
                raise _unreadable(path, f"{file} changed while it was loaded; load it again")
        return cls(path, tuple(found), limits, sources)


def _unreadable(path: Path, reason: str) -> ToolLoadError:
    return ToolLoadError(f"{path}: {reason}", str(path), None, reason)


class Worker:
    """A child process that was started for a tool; used by one thread at a time.

    Args:
        source: the tool's file.

    Raises:
        ConfigurationError: no process can be had here.
        McpTransportError: it can't be started, or there is no thread to read from it.
    """

    def __init__(self, source: ToolSource) -> None:
        if os.name != "posix" or not sys.executable:
            raise ConfigurationError(
                "a tool in a process needs a POSIX system, and a Python that knows where it is"
            )
        cwd = source.limits.cwd
        if cwd is not None and not os.path.isdir(cwd):  # noqa: PTH112 - it is a text, for the child
            raise ConfigurationError(
                f"{cwd!r}, the folder that the limits give a tool's process to run in, is no folder"
            )
        work = json.dumps(_work(source)).encode()
        self.source = source
        self._owner = os.getpid()
        self._was_ended = False
        self._numbers = itertools.count(1)
        self._words = ClientProtocol(_INFO, {}, era="modern")
        name = source.path.stem
        open_pipe = functools.partial(
            StdioPipe,
            [sys.executable, "-I", "-X", "utf8", "-c", _BEGIN],
            env=_environment(source.limits.env, os.environ),
            cwd=cwd,
            name=f"tool-{name}",
        )
        try:
            self._connection = DuplexConnection(open_pipe, Desk(name, ServerRequests()))
        except ConfigurationError as error:  # it speaks of a server, where nobody configured one
            raise McpTransportError(str(error.__cause__ or error)) from error
        pipe = self._connection.pipe
        assert isinstance(pipe, StdioPipe)
        self._pipe = pipe
        self._pipe.send(b"%d\n%s" % (len(work), work))

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked anything; a process that just ended may not be noticed yet."""
        return self._connection.failure is None

    def ask(self, method: str, params: Mapping[str, Any], call: Call) -> dict[str, Any]:
        """Ask the server in the process.

        Raises:
            AbortedError, McpTimeout: the call is over, and the process is of no use any more.
            ToolLoadError: the file can't be loaded.
            ToolError: the process ended, or answered with an error; the text says what happened.
        """
        number = next(self._numbers)
        token = number if call.on_progress is not None else None
        whole = self._words.params(params, progress_token=token, version=LATEST_STATELESS)
        try:
            answer = self._connection.exchange(Asked(number, method, whole, may_cancel=False), call)
        except McpTransportError as error:
            raise ToolError(self._ending()) from error
        if isinstance(answer, ErrorResponse):
            raise self._refusal(answer)
        result = complete_or_input(method, answer.result, stateless=True)
        if not isinstance(result, dict):
            raise ToolError("a tool in a process can't ask its caller for more")
        return result

    def end(self) -> None:
        """End the process and all that it started; returns at once and takes no lock, for use anywhere."""
        # Else its number may be another's by now, or it is a fork's parent that has it.
        if self._connection.failure is None and self._owner == os.getpid():
            self._was_ended = True
            self._pipe.end_at_once()

    def close(self) -> None:
        """Let the process end by itself, or else end it within three seconds."""
        if self._owner == os.getpid():
            self._connection.close()

    def _refusal(self, answer: ErrorResponse) -> ToolError:
        told = answer.data
        if not isinstance(told, dict) or not isinstance(told.get("reason"), str):
            return ToolError(shortened(answer.message))
        # What it tells may be the file's own doing.
        path, line = shortened(str(told.get("path")), _PATH_CHARACTERS), told.get("line")
        line = line if isinstance(line, int) else None
        where = path if line is None else f"{path}:{line}"
        return ToolLoadError(f"{where}: {told['reason']}", path, line, told["reason"])

    def _ending(self) -> str:
        """Say what happened to the process."""
        if self._was_ended:  # while a call was under way, which ends its own process only later
            return "its process was ended, since its store was closed"
        code, words = self._pipe.exit_code, self._pipe.last_words
        if code is None:
            text = "its process closed the connection"
        elif code >= 0:
            text = f"its process ended with exit code {code}"
        else:
            text = f"its process was ended by {_signal_words(-code, self.source.limits)}"
        return f"{text}; its last words: {words}" if words else text


def _signal_words(number: int, limits: ProcessLimits) -> str:
    try:
        name = signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
    if number == signals.SIGXCPU and limits.cpu_s is not None:
        return f"{name}: a call may use {limits.cpu_s:g} s of CPU time"
    if number == signals.SIGKILL:
        return f"{name}, perhaps since the system has no memory left"
    what = signals.strsignal(number)
    if number in {signals.SIGSEGV, signals.SIGBUS, signals.SIGABRT} and limits.memory_bytes:
        return f"{name} ({what}); it may have {limits.memory_bytes:,} bytes of memory"
    return f"{name} ({what})"


def _environment(
    given: tuple[str, ...] | Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, str]:
    """Give what a process gets beside the plain variables that every server gets."""
    found = {
        name: value
        for name, value in environ.items()
        if name in _INHERITED or name.startswith("LC_")
    }
    if isinstance(given, Mapping):
        return {**found, **given}
    return {**found, **{name: environ[name] for name in given if name in environ}}


def _work(source: ToolSource) -> dict[str, Any]:
    sources = source.sources
    return {
        "path": _import_path(),
        "file": str(source.path),
        "sources": None
        if sources is None
        else {str(path): data.decode("latin-1") for path, data in sources.items()},
        "limits": {name: getattr(source.limits, name) for name in _HELD_THERE},
    }


def _import_path() -> list[str]:
    """Give the places of modules, wherever the child runs; relative ones are nowhere once our folder is deleted."""
    try:
        return [os.path.abspath(place) for place in sys.path]  # noqa: PTH100 - as texts, and empty is here
    except FileNotFoundError:
        return [place for place in sys.path if os.path.isabs(place)]  # noqa: PTH117 - as above
