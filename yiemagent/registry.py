"""Where an agent's tools live: a store that changes while agents run, and folders of tool files that fill it.

A store is shared between threads; whoever reads takes a snapshot and works on that. Its one lock guards the tables
and is never held while code of a tool file runs.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import attrs

from yiemagent.builtin_folder import builtin_tools_dir, folder_to_load
from yiemagent.errors import ConfigurationError, DuplicateTool, ToolLoadError, ToolNotFound
from yiemagent.isolation import MAX_PROCESSES, Isolation, IsolationMode, ProcessLimits, origin_of
from yiemagent.registrations import collect_registrations, note_registration
from yiemagent.tool import AgentTool
from yiemagent.tool_listing import list_tool, tool_lines

if TYPE_CHECKING:
    from pathlib import Path

    from yiemagent.tool_files import LoadedFile
    from yiemagent.tool_folders import FolderContents, ToolChange, ToolNews, WatchedFolders

__all__ = [
    "ToolStore",
    "builtin_tools_dir",
    "clear_tools",
    "collect_registrations",
    "get_tools",
    "list_tool",
    "load_tool_file",
    "load_tools",
    "register_tool",
    "store_being_filled",
    "tool_lines",
]

logger = logging.getLogger("yiemagent.registry")


class _DuplicateToolFile(ToolLoadError, DuplicateTool):
    """A file's tool has a name that is taken."""


# The store that a tool file is loaded into, while it is.
_filling: ContextVar[ToolStore | None] = ContextVar("yiemagent_filling", default=None)


# --- the store -------------------------------------------------------------------------------------------------------


class ToolStore:
    """Tools by name, in the order in which they came; may be read and changed from any thread.

    Args:
        name: for people, in error texts.
        isolation: where tool files run: "thread": here, unless one says otherwise; "process": each in a child process.
        limits: what such a process may use; None: the defaults.
        max_processes: how many there are at once; calls wait for one.

    Raises:
        ConfigurationError: one of them makes no sense.
    """

    def __init__(
        self,
        name: str = "tools",
        *,
        isolation: IsolationMode = "thread",
        limits: ProcessLimits | None = None,
        max_processes: int = MAX_PROCESSES,
    ) -> None:
        self.name = name
        self._isolation = Isolation(isolation, limits, max_processes)
        # Guards the fields below. Re-entrant, since a signal handler may change the store in the same thread; no
        # code of a tool and no file access happens while it is held.
        self._lock = threading.RLock()
        self._tools: dict[str, AgentTool] = {}
        self._snapshot: Mapping[str, AgentTool] | None = None
        self._version = 0
        self._files: dict[
            Path, tuple[str, LoadedFile]
        ] = {}  # by resolved path: the tool's name, the load
        self._errors: dict[Path, ToolLoadError] = {}
        self._watchers: dict[object, Callable[[], None]] = {}
        self._watched: WatchedFolders | None = None

    @property
    def version(self) -> int:
        """A number that grows with every change."""
        return self._version

    @property
    def load_errors(self) -> tuple[ToolLoadError, ...]:
        """What is wrong with files that `load_tools` met, by path; a file that loads again is taken off."""
        with self._lock:
            return tuple(self._errors[path] for path in sorted(self._errors))

    def register(self, tool: AgentTool) -> AgentTool:
        """Add a tool at the end; the same tool again changes nothing. One for a process is given as it is in the store.

        Raises:
            DuplicateTool: where another tool has the name; that one stays.
            ConfigurationError: where it is no `AgentTool`, or is to run in a process and is from no tool file.
        """
        if not isinstance(tool, AgentTool):
            raise ConfigurationError(
                f"{tool!r} is no AgentTool; make one with AgentTool(...) or @tool"
            )
        _look_at_schema(tool)  # warns now about what its schema can't hold, not at the first call
        given: AgentTool = tool
        tool = self._isolation.bound(given)
        with self._lock:
            held = self._tools.get(tool.name)
            if held is not None and (held is given or origin_of(held) is given):
                return held
            if held is not None:
                raise DuplicateTool(
                    f"the name {tool.name!r} is taken in the store {self.name!r} by "
                    f"{self._origin(tool.name)}; remove that or give another name"
                )
            self._tools[tool.name] = tool
            self._changed()
        note_registration(tool.name)
        return tool

    def replace(self, old: AgentTool, new: AgentTool) -> AgentTool:
        """Put a tool in the place of another one, of the same name or not; calls that are running go on.

        Raises:
            ToolNotFound: where `old` is not in the store any more.
            DuplicateTool: where a third tool has the new name.
        """
        _look_at_schema(new)
        new = self._isolation.bound(new)
        with self._lock:
            if self._tools.get(old.name) is not old:
                raise ToolNotFound(
                    f"{old.name!r} in the store {self.name!r} is another tool by now"
                )
            if new.name != old.name and new.name in self._tools:
                raise DuplicateTool(f"the name {new.name!r} is taken by {self._origin(new.name)}")
            self._swap(old.name, new)
            self._files = {path: kept for path, kept in self._files.items() if kept[0] != old.name}
            self._changed()
        note_registration(new.name)
        return new

    def get(self, name: str) -> AgentTool | None:
        """The tool of this name, or None."""
        return self._tools.get(name)

    def remove(self, name: str) -> AgentTool:
        """Take a tool out; calls that are running go on.

        Raises:
            ToolNotFound: where there is none of this name.
        """
        with self._lock:
            if name not in self._tools:
                known = ", ".join(self._tools) or "none"
                raise ToolNotFound(f"no tool {name!r} in the store {self.name!r}; it has: {known}")
            tool = self._tools.pop(name)
            self._files = {path: kept for path, kept in self._files.items() if kept[0] != name}
            self._changed()
        return tool

    def snapshot(self) -> Mapping[str, AgentTool]:
        """The tools as they are now, read-only; the same object until something changes."""
        snapshot = self._snapshot
        if snapshot is None:
            with self._lock:
                snapshot = self._snapshot = MappingProxyType(dict(self._tools))
        return snapshot

    def clear(self) -> None:
        """Take every tool out, and forget what was loaded, what was wrong with it and what was watched."""
        with self._lock:
            self._tools.clear()
            self._files.clear()
            self._errors.clear()
            if self._watched is not None:
                self._watched.clear()
            self._changed()

    def close(self) -> None:
        """End the processes that its tools run in, as the store's own end does; a later call starts one anew."""
        self._isolation.close()

    def on_change(self, callback: Callable[[], None]) -> Callable[[], object]:
        """Have `callback` called after each change.

        Contract: it runs in the thread that made the change, while the store is locked: it notes the change and returns
        at once, and must not raise.

        Returns:
            A function that takes the callback back.
        """
        key = object()
        with self._lock:
            self._watchers[key] = callback
        return lambda: self._watchers.pop(key, None)

    def watch(self, directory: str | PathLike[str]) -> dict[str, AgentTool]:
        """Load the tool files of a folder, and look at them again whenever an agent with this store begins a turn.

        What changed is told by a `ToolsChangedEvent` for each file. A file that broke keeps its last good version, and
        calls that are running go on with theirs.

        Returns:
            The tools of this folder's files, in order.

        Raises:
            ConfigurationError: where there is no such folder.
        """
        tools = load_tools(self, directory)
        self._watching().add(_folder(directory))
        return tools

    def announce(self, message: str, details: Mapping[str, Any]) -> None:
        """Have each agent with this store tell of a change by a `ToolsChangedEvent`, when its next turn begins."""
        self._watching().announce(message, details)

    def _watching(self) -> WatchedFolders:
        from yiemagent.tool_folders import WatchedFolders

        with self._lock:
            if self._watched is None:
                self._watched = WatchedFolders(self._lock, self._of_folder, self._load_again)
            return self._watched

    def _load_again(self, folder: Path) -> None:
        _load_all(self, folder, "skip")

    def unwatch(self, directory: str | PathLike[str]) -> None:
        """Look at a folder no more; its tools stay."""
        if self._watched is not None:
            self._watched.remove(_folder(directory))

    @property
    def change_number(self) -> int:
        """The number of the latest change that was seen in a watched folder, or announced."""
        return 0 if self._watched is None else self._watched.number

    def look(self, since: int = 0) -> tuple[ToolChange | ToolNews, ...]:
        """Look at the watched folders and load what changed there.

        Only one thread looks at a time: who comes meanwhile gets what was found so far.

        Args:
            since: the number of a change.

        Returns:
            The changes after that one, oldest first; of very many the latest.
        """
        return () if self._watched is None else self._watched.look(since)

    def _of_folder(self, folder: Path) -> FolderContents:
        """What a folder's files gave, what is wrong with them, and what they were loaded with."""
        from yiemagent.tool_folders import FolderContents

        with self._lock:
            kept = {path: kept for path, kept in self._files.items() if path.parent == folder}
            return FolderContents(
                {path: self._tools[name] for path, (name, _) in kept.items()},
                {path: error for path, error in self._errors.items() if path.parent == folder},
                {path for _, loaded in kept.values() for path, _ in loaded.digests},
            )

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return f"<ToolStore {self.name!r}: {', '.join(self.snapshot()) or 'no tools'}>"

    def _swap(self, name: str, tool: AgentTool) -> None:
        pairs = [(tool.name, tool) if n == name else (n, t) for n, t in self._tools.items()]
        self._tools = dict(pairs)

    def _changed(self) -> None:
        self._snapshot = None
        self._version += 1
        for watcher in tuple(self._watchers.values()):
            watcher()

    def _origin(self, name: str) -> str:
        paths = [path for path, kept in self._files.items() if kept[0] == name]
        return str(paths[0]) if paths else "a registered tool"

    def _loaded(self, path: Path) -> tuple[LoadedFile, AgentTool] | None:
        with self._lock:
            kept = self._files.get(path)
            return None if kept is None else (kept[1], self._tools[kept[0]])

    def _put_file(self, loaded: LoadedFile, tool: AgentTool) -> None:
        """Register a file's tool: in the place of the one that the file gave before, else at the end."""
        path = loaded.path
        with self._lock:
            before = self._files.get(path)
            if tool.name in self._tools and (before is None or before[0] != tool.name):
                reason = (
                    f"the name {tool.name!r} is taken by {self._origin(tool.name)}, which stays"
                )
                raise _DuplicateToolFile(f"{path}: {reason}", str(path), None, reason)
            if before is None:
                self._tools[tool.name] = tool
            else:
                self._swap(before[0], tool)
            self._files[path] = (tool.name, loaded)
            self._errors.pop(path, None)
            self._changed()
        note_registration(tool.name)

    def _report(self, path: Path, error: ToolLoadError) -> None:
        with self._lock:
            self._errors[path] = error
        logger.warning("a tool file could not be loaded: %s", error)

    def _keep_only(self, folder: Path, present: Iterable[Path]) -> None:
        """Take out the tools, and what was wrong, of files of a folder that are gone."""
        there = set(present)
        with self._lock:
            gone = [p for p in self._files if p.parent == folder and p not in there]
            for path in gone:
                self._tools.pop(self._files.pop(path)[0])
            self._errors = {
                p: error for p, error in self._errors.items() if p.parent != folder or p in there
            }
            if gone:
                self._changed()
        for path in gone:
            logger.info("the tool file %s is gone, and its tool with it", path)


# --- folders of tool files -------------------------------------------------------------------------------------------


def load_tools(
    store: ToolStore,
    directory: str | PathLike[str],
    *,
    on_error: Literal["skip", "raise"] = "skip",
    isolation: IsolationMode | None = None,
    limits: ProcessLimits | None = None,
) -> dict[str, AgentTool]:
    """Load the tool files of a folder into a store, or load them again.

    Runs the code of the files, with `isolation="process"` in child processes only. `*.py` in alphabetical order; names
    that begin with `_` or contain "registry" are skipped. A file that did not change keeps its tool, one that changed
    replaces it in its place, one that is gone loses it, and one that broke keeps its last good version. `list_tools` is
    registered too.

    Args:
        store: where the tools go.
        directory: the folder.
        on_error: "skip" reports a bad file in `store.load_errors` and goes on; "raise" raises at the first.
        isolation: as of `ToolStore`, for this folder from now on; None: as before, or as the store says.
        limits: the same.

    Returns:
        The tools of this folder's files, in order.

    Raises:
        ConfigurationError: where there is no such folder, or an option makes no sense.
        ToolLoadError: where a file is bad and `on_error` is "raise"; what was loaded before it stays.
    """
    if not isinstance(store, ToolStore):
        raise ConfigurationError(
            f"the store comes first: load_tools(store, directory), not load_tools({store!r}, …)"
        )
    if on_error not in {"skip", "raise"}:
        raise ConfigurationError(f"on_error must be 'skip' or 'raise', not {on_error!r}")
    folder = folder_to_load(directory)
    store._isolation.set_folder(folder, isolation, limits)
    tools = _load_all(store, folder, on_error)
    if "list_tools" not in store:
        store.register(list_tool(store))
    return tools


def _folder(directory: str | PathLike[str]) -> Path:
    from pathlib import Path

    return Path(directory).resolve()


def _load_all(store: ToolStore, folder: Path, on_error: str) -> dict[str, AgentTool]:
    from yiemagent.tool_folders import tool_files

    tools: dict[str, AgentTool] = {}
    paths = tool_files(folder)
    store._keep_only(folder, paths)
    if on_error == "skip":  # each is asked for then, whatever comes of the others
        store._isolation.load_ahead(path for path in paths if store._loaded(path) is None)
    for path in paths:
        try:
            tool = load_tool_file(store, path)
        except ToolLoadError as error:
            store._report(path, error)
            if on_error == "raise":
                raise
            kept = store._loaded(path)
            if kept is None:
                continue
            tool = kept[1]
        tools[tool.name] = tool
    return tools


def load_tool_file(store: ToolStore, path: Path) -> AgentTool:
    """Load one tool file into a store, as `load_tools` does for each.

    Args:
        store: where the tool goes; in the place of the one that the file gave before, if any.
        path: the file, resolved.

    Raises:
        ToolLoadError: where it is bad; what it gave before stays.
    """
    kept, isolation = store._loaded(path), store._isolation
    if kept is not None and kept[0].is_current() and isolation.fits(kept[1], path):
        with store._lock:
            store._errors.pop(path, None)
        return kept[1]
    from yiemagent.signature import as_tool
    from yiemagent.tool_files import forget, load_file

    token = _filling.set(store)
    try:
        loaded = isolation.load(path) or load_file(path)
    finally:
        _filling.reset(token)
    try:
        given = isolation.bound(as_tool(loaded.given), loaded)
        tool: AgentTool = attrs.evolve(given, source_sha256=loaded.sha256)
        _look_at_schema(tool)
        store._put_file(loaded, tool)
    except ConfigurationError as error:
        forget(loaded.package)
        raise ToolLoadError(f"{path}: {error}", str(path), None, str(error)) from error
    except (DuplicateTool, ToolLoadError):
        forget(loaded.package)
        raise
    # Its modules stay as long as the tool does: a call that runs an older version may still import and pickle.
    weakref.finalize(tool, forget, loaded.package).atexit = False
    return tool


def store_being_filled() -> ToolStore | None:
    """The store that a tool file is being loaded into, for its `get_tool()`; None at any other time."""
    return _filling.get()


def _look_at_schema(tool: AgentTool) -> None:
    from yiemagent.arguments import checker_for  # loads with the first tool

    checker_for(tool)


# --- functions for users ---------------------------------------------------------------------------------------------


def register_tool(store: ToolStore, tool: AgentTool | Callable[..., Any]) -> AgentTool:
    """Add a tool to a store; a plain annotated function becomes one, as with `@tool`.

    Registered during a tool call, it can be called in the run's next turn, and the call's result names it.

    Raises:
        DuplicateTool: where another tool has the name; that one stays.
        ConfigurationError: where it can't become a tool.
    """
    if isinstance(tool, AgentTool):
        return store.register(tool)
    from yiemagent.signature import tool as tool_of

    return store.register(tool_of(tool))


def get_tools(store: ToolStore) -> dict[str, AgentTool]:
    """Give the tools by name, in order: a dict of your own."""
    return dict(store.snapshot())


def clear_tools(store: ToolStore) -> None:
    """Empty a store, `list_tools` included."""
    store.clear()
