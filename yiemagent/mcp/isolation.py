"""Tools in processes of their own: our MCP server on a tool file in a child process, driven by our client.

A file that is loaded here runs in the child alone: what the tool is, the child tells, and its `prepare_arguments` and
`validate_required_args` run there as its calls do. A tool that was loaded by its parent, since its own file asks for a
process, is known already, and its calls alone go to a child, which loads the same contents.

The process is ended, with all that it started, at the tool's time limit, on abort, and whenever a call ends in a way
that leaves unknown what it is doing. The next call gets another one.
"""

from __future__ import annotations

import collections
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeAlias

import attrs

from yiemagent.abort import AbortSignal, current_signal
from yiemagent.errors import (
    ConfigurationError,
    InvalidArguments,
    InvalidJson,
    McpError,
    McpTimeout,
    McpTransportError,
    ToolError,
    ToolLoadError,
    shortened,
)
from yiemagent.isolation import ProcessLimits
from yiemagent.mcp.calls import Call
from yiemagent.mcp.threads import start_daemon
from yiemagent.mcp.worker import ToolSource
from yiemagent.mcp.worker_pool import WorkerPool
from yiemagent.mcp.worker_words import (
    CALL_META,
    PREPARE,
    RESULT_META,
    TOOL_META,
    VALIDATE,
    partial_of,
    with_result_facts,
)
from yiemagent.remote_content import RemoteToolError, remote_result
from yiemagent.tool import AgentTool, AgentToolResult, PartialResultCallback
from yiemagent.tool_files import LoadedFile

__all__ = ["FileProcesses", "ProcessFunction"]

LOAD_TIMEOUT_S = 20.0

# A file that is loaded ahead: with which limits, and by which process.
_Ahead: TypeAlias = tuple[Path, ProcessLimits, int]


class FileProcesses:
    """The processes of one store; fulfils the core's port `isolation.ToolProcesses`.

    Args:
        max_processes: how many there are at most.
        load_timeout_s: how long a file may take to load, its process to start, and a place to come free for that.
    """

    def __init__(self, max_processes: int, load_timeout_s: float = LOAD_TIMEOUT_S) -> None:
        self._pool = WorkerPool(max_processes)
        self._max_loaders = min(max_processes, max(2, os.cpu_count() or 1))
        self._load_timeout_s = load_timeout_s
        # What comes of files that are loaded ahead; single steps of a dict are atomic, and who pops it has it.
        self._ahead: dict[_Ahead, SimpleQueue[LoadedFile | BaseException]] = {}

    def load_ahead(self, paths: Sequence[Path], limits: ProcessLimits) -> None:
        """Begin to load files side by side; returns at once, and `load` gives what comes of each."""
        self._ahead = {}  # nothing of a loading that was broken off
        if len(paths) < 2:
            return
        # With the process: a forked child has none of the threads that would fill them.
        self._ahead = {(path, limits, os.getpid()): SimpleQueue() for path in paths}
        work = collections.deque(self._ahead.items())
        for number in range(min(len(paths), self._max_loaders)):
            try:
                start_daemon(f"yiem-tool-loader-{number + 1}", self._load_all, work)
            except McpTransportError:  # those that run do it all; without any, `load` does
                if number == 0:
                    self._ahead = {}
                return

    def _load_all(self, work: collections.deque[tuple[_Ahead, SimpleQueue[Any]]]) -> None:
        while work:
            with contextlib.suppress(IndexError):  # another took the last
                (path, limits, _), outcome = work.popleft()
                try:
                    outcome.put(self._load(path, limits))
                except BaseException as error:  # whatever it is, it is raised where somebody waits
                    outcome.put(error)

    def load(self, path: Path, limits: ProcessLimits) -> LoadedFile:
        """Load a file in a process and give what it gave: a tool that runs there. No code of it runs here.

        Raises:
            ToolLoadError: whatever goes wrong, the end of the process and a hang included.
        """
        ahead = self._ahead.pop((path, limits, os.getpid()), None)
        found = None if ahead is None else ahead.get()
        if isinstance(found, BaseException):
            raise found
        return found if found is not None and found.is_current() else self._load(path, limits)

    def _load(self, path: Path, limits: ProcessLimits) -> LoadedFile:
        limit_s = self._load_timeout_s
        late = f"no process was free to load it within {limit_s:g} s"
        wait = Call("tools/list", timeout_s=limit_s)
        try:
            with self._pool.worker(ToolSource(path, (), limits), wait) as worker:
                late = f"it did not load within {limit_s:g} s, and was ended"
                told = _told(worker.ask("tools/list", {}, Call("tools/list", timeout_s=limit_s)))
                digests = tuple((Path(file), str(digest)) for file, digest in told.facts["files"])
                worker.source = source = ToolSource.of_files(path, digests, limits)
                tool = told.tool(self._pool, source)
        except ToolLoadError:
            raise
        except McpTimeout:
            raise _not_loaded(path, late) from None
        except (McpError, ToolError, ConfigurationError) as error:
            raise _not_loaded(path, error) from error
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise _not_loaded(path, f"its process does not tell what it is: {error!r}") from error
        self._pool.renew(source)
        return LoadedFile(path, digests, "", tool)

    def bind(
        self,
        tool: AgentTool,
        path: Path,
        limits: ProcessLimits,
        digests: tuple[tuple[Path, str], ...] | None = None,
    ) -> AgentTool:
        """Give a tool that was loaded here as one whose calls run in processes; see the port.

        Raises:
            ToolLoadError: the file can't be read, or changed since it was loaded.
        """
        source = ToolSource.of_files(path, ((path, ""),) if digests is None else digests, limits)
        self._pool.renew(source)
        function = ProcessFunction(self._pool, source, tool.name, tool.timeout_s, origin=tool)
        return attrs.evolve(tool, execute=function)

    def close(self) -> None:
        """End every process; what still runs in one fails. A later call starts one anew."""
        self._pool.close()


class ProcessFunction:
    """Runs the calls of one tool in processes of a pool; what `AgentTool.execute` calls.

    Args:
        pool: gives the processes.
        source: the file that they load.
        name: the tool's.
        timeout_s: how long a call may take, the wait for a process included; None: any time.
        origin: the tool as its file made it where it was loaded here; None: it was loaded in a process.
    """

    runs_in_process = True

    def __init__(
        self,
        pool: WorkerPool,
        source: ToolSource,
        name: str,
        timeout_s: float | None,
        *,
        origin: AgentTool | None = None,
    ) -> None:
        self._pool = pool
        self._source = source
        self._name = name
        self._timeout_s = timeout_s
        self.origin = origin
        self.limits = source.limits

    def __call__(
        self,
        tool_call_id: str,
        args: dict[str, Any],
        signal: AbortSignal | None,
        on_partial_result: PartialResultCallback,
    ) -> AgentToolResult:
        """Run one call.

        Raises:
            AbortedError: the signal was set; the process has been ended.
            ToolError: the tool failed, took too long, or its process ended; the text says what happened.
        """

        def on_progress(params: Mapping[str, Any]) -> None:
            with contextlib.suppress(InvalidJson):  # what it says is its business
                on_partial_result(partial_of(params))

        answer = self._asked(
            self._name,
            args,
            tool_call_id,
            signal,
            timeout_s=self._timeout_s,
            on_progress=on_progress,
        )
        meta = answer.get("_meta")
        facts = meta.get(RESULT_META) if isinstance(meta, Mapping) else None
        try:
            content = remote_result(answer).content if answer.get("content") else ()
        except RemoteToolError as error:
            failed = with_result_facts(error.content, facts)
            raise RemoteToolError(str(error), failed.content, failed.details) from error
        return with_result_facts(content, facts)

    def prepare(self, args: dict[str, Any]) -> Any:
        """Give what the file's own `prepare_arguments` makes of arguments."""
        return self._given(PREPARE, args)

    def validate(self, args: dict[str, Any]) -> Any:
        """Give what the file's own `validate_required_args` says of arguments."""
        return self._given(VALIDATE, args)

    def _given(self, name: str, args: dict[str, Any]) -> Any:
        limit_s = self._timeout_s or LOAD_TIMEOUT_S
        answer = self._asked(name, args, "", current_signal.get(), timeout_s=limit_s)
        remote_result({**answer, "content": answer.get("content") or "."})  # raises what failed
        meta = answer.get("_meta")
        facts = meta.get(RESULT_META) if isinstance(meta, Mapping) else None
        details = facts.get("details") if isinstance(facts, Mapping) else None
        details = details if isinstance(details, Mapping) else {}
        if "refused" in details:
            raise InvalidArguments(str(details["refused"]))
        return details.get("given")

    def _asked(
        self,
        name: str,
        args: dict[str, Any],
        tool_call_id: str,
        signal: AbortSignal | None,
        *,
        timeout_s: float | None,
        on_progress: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> dict[str, Any]:
        params = {"name": name, "arguments": args, "_meta": {CALL_META: tool_call_id}}
        call = Call("tools/call", signal=signal, timeout_s=timeout_s, on_progress=on_progress)
        try:
            with self._pool.worker(self._source, call) as worker:
                return worker.ask("tools/call", params, call)
        except McpTimeout:
            raise ToolError(f"{self._name} timed out after {timeout_s or 0:g} s") from None
        except ToolLoadError as error:
            raise ToolError(f"{self._name} can't be loaded in its process: {error}") from error
        except (
            ToolError,
            McpError,
        ) as error:  # of the last: an answer that is none, or arguments that JSON has not
            raise ToolError(f"{self._name}: {shortened(str(error))}") from error


@attrs.frozen
class _Definition:
    """What a process told of its tool."""

    given: Mapping[str, Any]
    facts: Mapping[str, Any]

    def tool(self, pool: WorkerPool, source: ToolSource) -> AgentTool:
        """Give the tool that runs there."""
        given, facts = self.given, self.facts
        function = ProcessFunction(pool, source, given["name"], facts["timeout_s"])
        return AgentTool(
            given["name"],
            label=given["title"],
            description=given["description"],
            input_schema=given["inputSchema"],
            execute=function,
            prepare_arguments=function.prepare if facts["prepares"] is True else None,
            validate_required_args=function.validate if facts["validates"] is True else None,
            parallel_tool_execute=facts["parallel_tool_execute"] is True,
            timeout_s=facts["timeout_s"],
            isolation="process",
            lock=facts["lock"],
            annotations=given.get("annotations"),
            output_schema=given.get("outputSchema"),
            examples=facts["examples"],
        )


def _told(answer: Mapping[str, Any]) -> _Definition:
    given = answer["tools"][0]
    return _Definition(given, given["_meta"][TOOL_META])


def _not_loaded(path: Path, why: object) -> ToolLoadError:
    reason = str(why)
    return ToolLoadError(f"{path}: {reason}", str(path), None, reason)
