"""The child's end of a tool in a process of its own: it takes its limits, loads the tool file, and serves it.

The work comes as the first message on stdin; what follows is MCP. Nothing of the file runs before the limits hold and
the wire is out of its reach. The parent checks arguments, holds the time limit and ends the process; nothing of that is
done here.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import functools
import math
import os
import resource
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from yiemagent.errors import (
    ConfigurationError,
    InvalidArguments,
    ToolError,
    ToolLoadError,
    error_text,
    shortened,
)
from yiemagent.hooks import AfterToolCallContext, Hooks
from yiemagent.mcp.caller import Reach, current_caller
from yiemagent.mcp.jsonrpc import INTERNAL_ERROR
from yiemagent.mcp.serve_stdio import own_descriptors, serve_stdio
from yiemagent.mcp.server import McpServer
from yiemagent.mcp.server_protocol import Call, RpcFailure
from yiemagent.mcp.server_results import tool_definition
from yiemagent.mcp.worker_words import (
    CALL_META,
    PREPARE,
    RESULT_META,
    TOOL_META,
    VALIDATE,
    partial_words,
    result_facts,
    tool_facts,
)
from yiemagent.registry import ToolStore
from yiemagent.signature import as_tool
from yiemagent.tool import AgentTool, AgentToolResult
from yiemagent.tool_files import load_file

__all__ = ["main"]

_IS_MACOS = sys.platform == "darwin"  # takes no such limit
_ANY = {"type": "object"}  # the parent has checked the arguments


def main(work: Mapping[str, Any]) -> None:
    """Do what the child process is there for; returns when the parent closes its end.

    Args:
        work: `file`, its path; `sources`, the contents to load by path, as Latin-1 text, or None for what is there;
            `limits`, the fields of `ProcessLimits` that are held here.
    """
    limits = _Limits(work["limits"])
    limits.take()
    with own_descriptors() as (reading, writing):
        os.register_at_fork(after_in_child=functools.partial(_leave_wire, reading, writing))
        with _FileServer(work, limits) as server:
            serve_stdio(server, stdin=reading, stdout=writing, end_grace_s=0.1)


def _leave_wire(*descriptors: int) -> None:
    """Close the wire in a copy of this process, so that the parent sees when the original ends."""
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


class _Limits:
    """What the process may use."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given

    def take(self) -> None:
        """Hold all of them from now on, for what this process starts, too."""
        for kind, name in (
            (resource.RLIMIT_FSIZE, "file_bytes"),
            (resource.RLIMIT_NOFILE, "open_files"),
            (resource.RLIMIT_NPROC, "processes"),
            (resource.RLIMIT_AS, "memory_bytes"),
        ):
            value = self._given[name]
            if value is not None and not (kind == resource.RLIMIT_AS and _IS_MACOS):
                _lower(kind, value)
        _lower(resource.RLIMIT_CORE, 0)
        self.begin()

    def begin(self) -> None:
        """Begin to count CPU time anew, for another call."""
        cpu_s = self._given["cpu_s"]
        if cpu_s is None:
            return
        used = resource.getrusage(resource.RUSAGE_SELF)
        ends_at = math.ceil(used.ru_utime + used.ru_stime + cpu_s)
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        soft = ends_at if hard == resource.RLIM_INFINITY else min(ends_at, hard)
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))

    def explained(self, error: BaseException) -> BaseException:
        """Give an error with the limit that it comes from, where it comes from one."""
        name, what = "", ""
        if isinstance(error, MemoryError):
            name, what = "memory_bytes", "bytes of memory"
        elif isinstance(error, OSError):
            name, what = _OF_ERRNO.get(error.errno or 0, ("", ""))
        if not name or self._given[name] is None:
            return error
        text = shortened(error_text(error))
        return ToolError(f"{text} (the tool's process is limited to {self._given[name]:,} {what})")


_OF_ERRNO = {
    errno.EFBIG: ("file_bytes", "bytes in a file"),
    errno.EMFILE: ("open_files", "open files"),
    errno.EAGAIN: ("processes", "processes and threads of its user"),
    errno.ENOMEM: ("memory_bytes", "bytes of memory"),
}


def _lower(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)  # a lower one holds already
    resource.setrlimit(kind, (value, value))


class _FileServer(McpServer):
    """Serves the tool of one file; where the file can't be loaded, every request is answered with what is wrong."""

    def __init__(self, work: Mapping[str, Any], limits: _Limits) -> None:
        store = ToolStore()
        # What the file replaces among Python's builtins is put back, since this server needs them to answer.
        restore = functools.partial(vars(builtins).update, dict(vars(builtins)))
        self._limits = limits
        self._facts: dict[str, Any] = {}
        self._tool: AgentTool | None = None
        self._failure: RpcFailure | None = None
        try:
            self._tool, self._files = _loaded(work, restore)
            restore()
            for tool in _served(self._tool, limits, restore):
                store.register(tool)
        except ToolLoadError as error:
            restore()
            told = {"path": error.path, "line": error.line, "reason": error.reason}
            self._failure = RpcFailure(INTERNAL_ERROR, error.reason, told)
        super().__init__(store, hooks=Hooks(after_tool_call=self._note))

    def handle(self, call: Call, reach: Reach) -> dict[str, Any]:
        """Do what a call asks for, and tell beside it what MCP has no word for."""
        if self._tool is None:
            assert self._failure is not None
            raise self._failure
        if call.method == "tools/list":
            facts = {**tool_facts(self._tool), "files": self._files}
            definition = tool_definition(self._tool, call.version)
            return {"tools": [{**definition, "_meta": {TOOL_META: facts}}]}
        self._limits.begin()
        result = super().handle(call, reach)
        facts, self._facts = self._facts, {}
        return {**result, "_meta": {RESULT_META: facts}} if facts else result

    def _note(self, done: AfterToolCallContext, _signal: object) -> None:
        self._facts = result_facts(done.result)


def _loaded(
    work: Mapping[str, Any], restore: Callable[[], object]
) -> tuple[AgentTool, list[list[str]]]:
    sources = work["sources"]
    if sources is not None:
        sources = {Path(path): text.encode("latin-1") for path, text in sources.items()}
    path = Path(work["file"])
    loaded = load_file(path, sources, restore)
    try:
        tool = as_tool(loaded.given)
    except ConfigurationError as error:
        raise ToolLoadError(f"{path}: {error}", str(path), None, str(error)) from error
    return tool, [[str(path), digest] for path, digest in loaded.digests]


def _served(tool: AgentTool, limits: _Limits, restore: Callable[[], object]) -> list[AgentTool]:
    """Give a tool as it is served, and those by which the parent reaches its two functions."""

    def execute(_id: str, args: dict[str, Any], signal: Any, on_partial: Any) -> AgentToolResult:
        caller = current_caller()
        assert caller is not None
        number = 0

        def on_partial_result(partial: Any) -> None:
            nonlocal number
            number += 1
            on_partial(partial_words(number, partial))

        try:
            run = attrs.evolve(tool, isolation="thread")
            return run.execute(
                str(caller.call.meta.get(CALL_META)), args, signal, on_partial_result
            )
        except (MemoryError, OSError) as error:
            restore()
            raise limits.explained(error) from error
        finally:
            restore()

    served = [_plain(tool.name, execute)]
    if tool.prepare_arguments is not None:
        served.append(_plain(PREPARE, _as_tool(tool.prepare_arguments)))
    if tool.validate_required_args is not None:
        served.append(_plain(VALIDATE, _as_tool(tool.validate_required_args)))
    return served


def _plain(name: str, execute: Callable[..., Any]) -> AgentTool:
    """Give a tool without any limit and check, since the parent has done all that."""
    return AgentTool(
        name,
        description="Run in a process.",
        input_schema=_ANY,
        execute=execute,
        parallel_tool_execute=True,
        timeout_s=None,
    )


def _as_tool(function: Callable[[dict[str, Any]], Any]) -> Callable[..., AgentToolResult]:
    def execute(_id: str, args: dict[str, Any], *_: object) -> AgentToolResult:
        try:
            return AgentToolResult(details={"given": function(args)})
        except InvalidArguments as error:
            return AgentToolResult(details={"refused": str(error)})

    return execute
