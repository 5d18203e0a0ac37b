"""Tools in processes of their own: what such a process may use, and the port to the wing that runs them.

A tool with `isolation="process"` is run from its file, in a child process that can be ended, by whoever has the tool:
the store that it was loaded into, which knows the limits, or else a pool that belongs to nobody. The wing is imported
by name when the first such tool is loaded or called.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, cast

import attrs

from yiemagent.builtin_folder import builtin_tools_dir
from yiemagent.errors import ConfigurationError
from yiemagent.payload import FrozenDict
from yiemagent.record import Record

__all__ = [
    "Isolation",
    "IsolationMode",
    "ProcessLimits",
    "ToolProcesses",
    "is_bound",
    "isolated_function",
    "origin_of",
    "tool_file_of",
]

IsolationMode: TypeAlias = Literal["thread", "process"]

# The wing that knows processes: imported by name at run time, so that the core stands without it.
PROCESSES_MODULE = "yiemagent.mcp.isolation"

MAX_PROCESSES = 8
_STORE_TOOL = "write_tool.py"
_MODES = ("thread", "process")
_LEAST_MEMORY_BYTES = 256 << 20  # less is not enough for an interpreter and its threads
_LEAST_FILES = 16
_TOO_MUCH = 1 << 60  # the limits of a system can't say more than about this


def _env(given: Mapping[str, str] | Iterable[str]) -> tuple[str, ...] | FrozenDict:
    if isinstance(given, Mapping):
        if all(_is_variable(name) and _is_value(value) for name, value in given.items()):
            return FrozenDict(given)
    elif not isinstance(given, (str, bytes)):
        names = tuple(given)
        if all(map(_is_variable, names)):
            return names
    raise ConfigurationError(
        f"env must be names of variables to hand on, or a mapping of names to values, not {given!r}"
    )


def _is_variable(name: Any) -> bool:
    return _is_value(name) and bool(name) and "=" not in name


def _is_value(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value


def _cwd(given: str | os.PathLike[str] | None) -> str | None:
    if given is None:
        return None
    folder = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not (_is_value(folder) and folder):
        raise ConfigurationError(
            f"cwd must be a folder, or None for the one of this process, not {given!r}"
        )
    return folder


@attrs.frozen(eq=False, repr=False, kw_only=True)
class ProcessLimits(Record):
    """What a process that runs a tool may use; None lifts a limit.

    The system holds them (`setrlimit`), for the process and for each that it starts; root may lift them again. A limit
    that this process has itself holds on.

    Args:
        memory_bytes: address space, which is more than what is used: libraries that compute reserve a lot. Not held by
            macOS.
        cpu_s: CPU time of one call, rounded up to the next second; its time on the clock is the tool's `timeout_s`. A
            file that means to can lift it, or ignore its signal.
        file_bytes: size of a file that is written.
        open_files: files, sockets and pipes open at once.
        processes: how many processes and threads the user may have in all, counted over the whole system, so that what
            else runs counts too. Not held for root. None by default.
        cwd: the folder it runs in; None: the one of this process.
        env: names of variables of this process that it gets, or a mapping of names to values. Beside them it gets HOME,
            LANG, LOGNAME, PATH, SHELL, TERM, TMPDIR, TZ, USER and what begins with LC_, and nothing else.

    Raises:
        ConfigurationError: on a limit that is no number, or too low for any Python.
    """

    memory_bytes: int | None = 4 << 30
    cpu_s: float | None = None
    file_bytes: int | None = 1 << 30
    open_files: int | None = 256
    processes: int | None = None
    cwd: str | None = attrs.field(default=None, converter=_cwd)
    env: tuple[str, ...] | Mapping[str, str] = attrs.field(
        default=(),
        converter=_env,
        repr=lambda env: repr(tuple(env)),  # values may be keys
    )

    def __attrs_post_init__(self) -> None:
        for name, least in (
            ("memory_bytes", _LEAST_MEMORY_BYTES),
            ("file_bytes", 0),
            ("open_files", _LEAST_FILES),
            ("processes", 1),
        ):
            value = getattr(self, name)
            if value is not None and not (_is_number(value, int) and least <= value < _TOO_MUCH):
                raise ConfigurationError(
                    f"{name} must be a whole number, at least {least} and below 2**60, "
                    f"or None for no limit, not {value!r}"
                )
        if self.cpu_s is not None and not (
            _is_number(self.cpu_s, (int, float)) and 0 < self.cpu_s < _TOO_MUCH
        ):
            raise ConfigurationError(
                f"cpu_s must be seconds above 0 and below 2**60, or None for no limit, "
                f"not {self.cpu_s!r}"
            )


def _is_number(value: Any, kinds: Any) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


class ToolProcesses(Protocol):
    """The port to the wing: a bounded pool of processes that run tool files. Safe to use from many threads."""

    def load_ahead(self, paths: Sequence[Path], limits: ProcessLimits) -> None:
        """Begin to load files side by side; returns at once, and `load` gives what comes of each."""

    def load(self, path: Path, limits: ProcessLimits) -> Any:
        """Load a tool file in a process and give a `LoadedFile` whose `given` is a tool that runs there.

        Raises:
            ToolLoadError: whatever goes wrong in it, its end and a hang included.
        """

    def bind(self, tool: Any, path: Path, limits: ProcessLimits, digests: Any = None) -> Any:
        """Give a tool that was loaded here as one whose calls run in processes.

        Args:
            tool: an `AgentTool`.
            path: its file, resolved.
            limits: what its processes may use.
            digests: what was loaded, as `LoadedFile.digests`; None: what is there now.

        Raises:
            ToolLoadError: the file can't be read, or changed since it was loaded.
        """

    def close(self) -> None:
        """End every process; what still runs in one fails. A later call starts one anew."""


class Isolation:
    """How the tool files of one store are run; safe to use from many threads.

    Args:
        mode: for folders about which `set_folder` says nothing: "thread" runs a file here, "process" in a child.
        limits: for processes; None: the defaults.
        max_processes: how many there are at most.

    Raises:
        ConfigurationError: one of them makes no sense.
    """

    def __init__(
        self, mode: IsolationMode, limits: ProcessLimits | None, max_processes: int
    ) -> None:
        _check(mode, limits)
        if not (_is_number(max_processes, int) and max_processes > 0):
            raise ConfigurationError(f"max_processes must be at least 1, not {max_processes!r}")
        self._default = (mode, limits or ProcessLimits())
        self._max_processes = max_processes
        # Single steps of a dict are atomic, so no lock; a pool made in vain by two at once has no process yet.
        self._folders: dict[Path, tuple[IsolationMode, ProcessLimits]] = {}
        self._made: dict[str, ToolProcesses] = {}

    def set_folder(
        self, folder: Path, mode: IsolationMode | None, limits: ProcessLimits | None
    ) -> None:
        """Say how the files of a folder are run from now on; None: as it was said last, or as the store says.

        Raises:
            ConfigurationError: there is no such mode, or the limits are none.
        """
        before = self._folders.get(folder, self._default)
        _check(mode or before[0], limits)
        self._folders[folder] = (mode or before[0], limits or before[1])

    def load_ahead(self, paths: Iterable[Path]) -> None:
        """Begin to load the files of one folder side by side, as far as they are loaded in processes."""
        told = [(path, *self._of(path)) for path in paths]
        isolated = [path for path, mode, _ in told if mode == "process"]
        if isolated:
            self._processes().load_ahead(isolated, told[0][2])

    def load(self, path: Path) -> Any:
        """Load a file in a process and give what `ToolProcesses.load` does; None where it is to be loaded here."""
        mode, limits = self._of(path)
        return self._processes().load(path, limits) if mode == "process" else None

    def bound(self, tool: Any, loaded: Any = None) -> Any:
        """Give a tool as the store has it: one with `isolation="process"` runs in the store's processes.

        Args:
            tool: an `AgentTool`.
            loaded: the `LoadedFile` it came from; None: found out, and what the file holds now counts.

        Raises:
            ConfigurationError: it is to run in a process and comes from no tool file.
            ToolLoadError: its file can't be read.
        """
        if tool.isolation != "process" or is_bound(tool):
            return tool
        path = tool_file_of(tool) if loaded is None else loaded.path
        digests = None if loaded is None else loaded.digests
        return self._processes().bind(tool, path, self._of(path)[1], digests)

    def fits(self, tool: Any, path: Path) -> bool:
        """Whether a tool of a file is run as it is said now, so that it need not be loaded again."""
        mode, limits = self._of(path)
        if not is_bound(tool):
            return mode == "thread"
        return bool(
            tool.function.limits == limits and (origin_of(tool) is None) == (mode == "process")
        )

    def close(self) -> None:
        """End every process of the store."""
        processes = self._made.get("processes")
        if processes is not None:
            processes.close()

    def _of(self, path: Path) -> tuple[IsolationMode, ProcessLimits]:
        mode, limits = self._folders.get(path.parent, self._default)
        return ("thread" if mode == "process" and _works_on_the_store(path) else mode), limits

    def _processes(self) -> ToolProcesses:
        found = self._made.get("processes")
        return found or self._made.setdefault("processes", _new_processes(self._max_processes))


def _check(mode: Any, limits: Any) -> None:
    if mode not in _MODES:
        raise ConfigurationError(f"isolation must be 'thread' or 'process', not {mode!r}")
    if limits is not None and not isinstance(limits, ProcessLimits):
        raise ConfigurationError(f"limits must be ProcessLimits(…), not {limits!r}")


def _works_on_the_store(path: Path) -> bool:
    """Whether a file is a copy of the built-in tool that needs the store itself, which no process has."""
    if path.name != _STORE_TOOL:
        return False
    try:
        return path.read_bytes() == (builtin_tools_dir() / _STORE_TOOL).read_bytes()
    except OSError:  # loading it will say what is wrong
        return False


def _new_processes(max_processes: int) -> ToolProcesses:
    made = importlib.import_module(PROCESSES_MODULE).FileProcesses(max_processes)
    return cast("ToolProcesses", made)


# --- one tool --------------------------------------------------------------------------------------------------------


def is_bound(tool: Any) -> bool:
    """Whether a tool's calls go to a process already: its function is one that a `ToolProcesses` gave."""
    return getattr(tool.function, "runs_in_process", False) is True


def origin_of(tool: Any) -> Any:
    """Give the tool that a bound one was made of, or None."""
    return getattr(tool.function, "origin", None)


def isolated_function(tool: Any) -> Any:
    """Give what runs the calls of a tool with `isolation="process"`, whether it is in a store or not.

    Raises:
        ConfigurationError: it comes from no tool file.
        ToolLoadError: its file can't be read.
    """
    return (tool if is_bound(tool) else _of_no_store().bound(tool)).function


@functools.cache
def _of_no_store() -> Isolation:
    """How tools are run that are in no store."""
    return Isolation("thread", None, MAX_PROCESSES)


def tool_file_of(tool: Any) -> Path:
    """Give the tool file that a tool was made in.

    Raises:
        ConfigurationError: its function is in no file, or in one without `get_tool()`.
    """
    function = tool.function
    while isinstance(function, functools.partial) or hasattr(function, "__wrapped__"):
        function = getattr(function, "func", None) or function.__wrapped__
    if not hasattr(function, "__code__"):  # an object that can be called
        function = getattr(type(function), "__call__", None)  # noqa: B004 - to look at, not to ask
    scope = getattr(function, "__globals__", {})
    if callable(scope.get("get_tool")) and scope.get("__file__"):
        return Path(scope["__file__"]).resolve()
    raise ConfigurationError(
        f"tool {tool.name!r}: isolation='process' runs a tool from its file; put it into a file of its own that "
        f"has get_tool(), and load that with load_tools, or use isolation='thread'"
    )
