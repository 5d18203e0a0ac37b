"""Folders of tool files: which files are in them, what these hold, and what changed between two looks.

Told by content, never by time. Nothing is loaded here: the store does that, and asks here what there is to do.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

import attrs

from yiemagent.errors import ToolLoadError
from yiemagent.payload import freeze_json, thaw_json
from yiemagent.record import Record
from yiemagent.tool import AgentTool

__all__ = [
    "FolderContents",
    "ToolChange",
    "ToolNews",
    "WatchedFolders",
    "schema_diff",
    "tool_files",
]

logger = logging.getLogger("yiemagent.registry")

KEPT_CHANGES = 256  # for agents that look rarely


def tool_files(folder: Path) -> list[Path]:
    """Give the tool files of a folder, resolved, in alphabetical order; none where the folder is gone."""
    paths = []
    for name, path in _python_files(folder):
        if name.startswith("_") or "registry" in name:
            logger.info("%s is no tool file by its name and is skipped", path)
        else:
            paths.append(path)
    return paths


def _python_files(folder: Path) -> list[tuple[str, Path]]:
    """Give names and resolved paths of the Python files of a resolved folder."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".py") and _may_hold_code(entry):
                    path = Path(entry.path)
                    found.append((entry.name, path.resolve() if entry.is_symlink() else path))
    except FileNotFoundError:
        return []
    return sorted(found)


def _may_hold_code(entry: os.DirEntry[str]) -> bool:
    """Whether it is a file, or a link that leads nowhere, which is told; reading a pipe or device may never end."""
    return entry.is_file() or not os.path.exists(entry.path)  # noqa: PTH110 - every turn looks at every file


# --- what changed ----------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False, repr=False)
class ToolNews(Record):
    """A change that no file made, in words and for programs; `number` counts with those of files."""

    number: int
    message: str
    details: Mapping[str, Any]


@attrs.frozen(eq=False, repr=False)
class ToolChange(Record):
    """What happened to one tool file.

    Args:
        number: 1, 2, 3 … in the store.
        kind: "added", "changed", "removed", or "broken": it can't be loaded, and what was loaded before stays.
        path: the file.
        before, after: its tool, where it had one.
        error: what is wrong with a broken file.
    """

    number: int
    kind: Literal["added", "changed", "removed", "broken"]
    path: Path
    before: AgentTool | None = None
    after: AgentTool | None = None
    error: ToolLoadError | None = None

    @property
    def message(self) -> str:
        """The change in one line."""
        if self.error is not None:
            stays = f"; {self.before.name} stays as it was" if self.before else ""
            return f"a tool file is broken: {self.error}{stays}"
        named = self.after or self.before
        assert named is not None
        return f"the tool {named.name} was {self.kind}: {self.path}"

    @property
    def details(self) -> dict[str, Any]:
        """The change for programs.

        `added`, `removed` and `changed` are lists of tools by name. `fields` are the fields of the tool that differ,
        and `schema` is what differs in its input schema, as `schema_diff` gives it. A broken file has `line` and
        `reason`.
        """
        before, after = self.before, self.after
        details: dict[str, Any] = {"kind": self.kind, "path": str(self.path)}
        if self.error is not None:
            nothing: dict[str, Any] = {"added": [], "removed": [], "changed": []}
            return details | nothing | {"line": self.error.line, "reason": self.error.reason}
        old, new = (None if tool is None else tool.name for tool in (before, after))
        details["added"] = [new] if new is not None and new != old else []
        details["removed"] = [old] if old is not None and new != old else []
        details["changed"] = [new] if new is not None and new == old else []
        details["fields"] = _fields_that_differ(before, after)
        schemas = (None if tool is None else tool.input_schema for tool in (before, after))
        details["schema"] = schema_diff(*schemas)
        return details


_SHOWN = ("name", "label", "description", "input_schema", "parallel_tool_execute", "timeout_s")


def _fields_that_differ(before: AgentTool | None, after: AgentTool | None) -> list[str]:
    if before is None or after is None:
        return []
    return [name for name in _SHOWN if getattr(before, name) != getattr(after, name)]


_NOTHING = object()


def schema_diff(before: Any, after: Any) -> list[dict[str, Any]]:
    """Give what makes one schema of another, each step in the words of JSON Patch (RFC 6902).

    Args:
        before: the schema that was; None: there was none.
        after: the schema that is; None: there is none.

    Returns:
        Steps with `op` ("add", "remove", "replace") and `path` (a JSON Pointer), `value` where something comes, and,
        beyond the RFC, `was` where something goes.
    """
    steps: list[dict[str, Any]] = []
    _differ(
        steps,
        "",
        _NOTHING if before is None else before,
        _NOTHING if after is None else after,
    )
    return steps


def _differ(steps: list[dict[str, Any]], path: str, before: Any, after: Any) -> None:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [*before, *(key for key in after if key not in before)]:
            inside = f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"
            _differ(steps, inside, before.get(key, _NOTHING), after.get(key, _NOTHING))
    elif before is _NOTHING and after is not _NOTHING:
        steps.append({"op": "add", "path": path, "value": _plain(after)})
    elif after is _NOTHING and before is not _NOTHING:
        steps.append({"op": "remove", "path": path, "was": _plain(before)})
    elif type(before) is not type(after) or before != after:
        step = {"op": "replace", "path": path, "value": _plain(after), "was": _plain(before)}
        steps.append(step)


def _plain(value: Any) -> Any:
    return thaw_json(freeze_json(value))


# --- looking again ---------------------------------------------------------------------------------------------------


@attrs.frozen
class FolderContents:
    """What a store has of a folder.

    Args:
        tools: what its files gave, by file.
        errors: what is wrong with them, by file.
        loaded: the files that they were loaded from, helpers included.
    """

    tools: Mapping[Path, AgentTool]
    errors: Mapping[Path, ToolLoadError]
    loaded: AbstractSet[Path]


@attrs.define(eq=False)
class _Look:
    """What was seen of a folder at the last look."""

    contents: Mapping[Path, bytes | None]
    had: FolderContents


class WatchedFolders:
    """The folders that a store looks at again and again, and what changed in them.

    Args:
        lock: the store's; protects the fields. No file is read and nothing is loaded while it is held.
        has: gives what the store has of a folder.
        load: loads a folder into the store again.
    """

    def __init__(
        self,
        lock: AbstractContextManager[Any],
        has: Callable[[Path], FolderContents],
        load: Callable[[Path], None],
    ) -> None:
        self.number = 0  # of the latest change
        self._lock = lock  # see above
        self._has = has
        self._load = load
        self._looks: dict[Path, _Look] = {}
        self._looking = False  # one thread looks; others go on with what is there
        self._changes: deque[ToolChange | ToolNews] = deque(maxlen=KEPT_CHANGES)

    def add(self, folder: Path) -> None:
        """Watch a folder that was loaded just now."""
        had = self._has(folder)
        look = _Look(_contents(folder, had.loaded), had)
        with self._lock:
            self._looks[folder] = look

    def remove(self, folder: Path) -> None:
        """Watch a folder no more."""
        with self._lock:
            self._looks.pop(folder, None)

    def clear(self) -> None:
        """Watch no folder any more; numbers go on, so that nobody who looked before misses what comes."""
        with self._lock:
            self._looks.clear()

    def announce(self, message: str, details: Mapping[str, Any]) -> None:
        """Put a change among those of the folders, for whoever looks next."""
        with self._lock:
            self.number += 1
            self._changes.append(ToolNews(self.number, message, details))

    def look(self, since: int) -> tuple[ToolChange | ToolNews, ...]:
        """Look at every folder, unless another thread does, and give the changes after number `since`."""
        with self._lock:
            mine = not self._looking
            self._looking = True
            looks = tuple(self._looks.items()) if mine else ()
        try:
            for folder, look in looks:
                self._look_at(folder, look)
        finally:
            if mine:
                self._looking = False
        with self._lock:
            return tuple(change for change in self._changes if change.number > since)

    def _look_at(self, folder: Path, look: _Look) -> None:
        try:
            contents = _contents(folder, look.had.loaded)
            if contents != look.contents:
                self._load(folder)
        except OSError as error:  # it can't be read: its tools stay
            logger.warning("the folder %s can't be looked at: %s", folder, error)
            return
        had = self._has(folder)
        changes = _changes(look.had, had)
        look.contents, look.had = contents, had
        with self._lock:
            for change in changes:
                self.number += 1
                self._changes.append(attrs.evolve(change, number=self.number))


def _changes(before: FolderContents, after: FolderContents) -> list[ToolChange]:
    """Give what happened between two looks; the changes have no numbers yet."""
    found: list[ToolChange] = []
    for path in sorted({*before.tools, *after.tools, *before.errors, *after.errors}):
        old, new, error = before.tools.get(path), after.tools.get(path), after.errors.get(path)
        if error is not None:
            if str(error) != str(before.errors.get(path)):
                found.append(ToolChange(0, "broken", path, old, None, error))
        elif old is not new and old is None:
            found.append(ToolChange(0, "added", path, None, new))
        elif old is not new and new is None:
            found.append(ToolChange(0, "removed", path, old, None))
        elif new is not None and (old is not new or path in before.errors):
            found.append(ToolChange(0, "changed", path, old, new))
    return found


def _contents(folder: Path, loaded: AbstractSet[Path]) -> dict[Path, bytes | None]:
    """Read the files of a folder, and those elsewhere that these were loaded from."""
    paths = {path for _, path in _python_files(folder)}
    return {path: _content(path) for path in [*paths, *(loaded - paths)]}


def _content(path: Path) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - every turn reads every file
            return hashlib.sha256(file.read()).digest()
    except OSError:
        return None
