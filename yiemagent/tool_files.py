"""Tool files as modules: each load of a file is a module of its own that meets nobody else's.

A file is compiled by us from its bytes (no bytecode is read or written) and run as the module `<package>.<file
name>` of a package made for this one load, so dataclasses, pickling and tracebacks work, a file called `json.py`
harms nobody, and helper files beside it (`from ._shared import x`) are loaded with it, anew for each file that uses
them. Nothing is put on `sys.path`. Modules of a load that failed are removed.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import inspect
import itertools
import linecache
import os
import re
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from yiemagent.errors import ToolLoadError, error_text, shortened

__all__ = ["LoadedFile", "forget", "load_file"]

_loads = itertools.count(1)
_BEFORE_A_PLACE = 1_000  # so many characters of a text, so that its place is not cut off


@attrs.frozen
class LoadedFile:
    """What a file gave.

    Args:
        path: the file, resolved.
        digests: the contents that it was loaded from: the file's and its helpers', each with its path.
        package: the package made for it.
        given: what its `get_tool()` gave.
    """

    path: Path
    digests: tuple[tuple[Path, str], ...]
    package: str
    given: Any

    @property
    def sha256(self) -> str:
        """One hash of all that it was loaded from; the same wherever the folder is."""
        contents = [(os.path.relpath(path, self.path.parent), one) for path, one in self.digests]
        return hashlib.sha256(repr(sorted(contents)).encode()).hexdigest()

    def is_current(self) -> bool:
        """Whether the files still hold what they were loaded from; told by content, not by time."""
        return all(_digest(path) == digest for path, digest in self.digests)


def load_file(
    path: Path,
    sources: Mapping[Path, bytes] | None = None,
    restore: Callable[[], object] | None = None,
) -> LoadedFile:
    """Run a tool file and call its `get_tool()`.

    Args:
        path: the file, resolved.
        sources: what to take in place of what is in the file, and in helpers, by path; None: nothing.
        restore: called behind code of the file, before its failure is looked at: puts back what the file may have
            replaced in Python itself. None: what it replaced stays.

    Raises:
        ToolLoadError: whatever goes wrong in it, `SystemExit` included; names path and line.
        KeyboardInterrupt: where a person asked for it (one that the file raises by itself is its failure).
    """
    package = f"yiemagent_tool_files_{next(_loads)}"
    folder = _Folder(path.parent, {}, sources or {})
    module_name = f"{package}.{_module_stem(path)}"
    home = types.ModuleType(package)
    home.__path__ = folder
    sys.modules[package] = home
    try:
        module = _run(module_name, path, folder)
        if restore is not None:
            restore()
        given = _get_tool(module, path)()
    except ToolLoadError:
        forget(package)
        raise
    except BaseException as error:  # a file may raise anything, SystemExit included
        if restore is not None:
            restore()
        forget(package)
        if isinstance(error, KeyboardInterrupt) and not _raised_by_itself(error):
            raise
        raise _explained(error, path, package, folder) from error
    return LoadedFile(path, tuple(folder.digests.items()), package, given)


def forget(package: str) -> None:
    """Remove the modules of one load from `sys.modules`; what still uses them keeps them."""
    for name in list(sys.modules):
        if name == package or name.startswith(f"{package}."):
            sys.modules.pop(name, None)


def _module_stem(path: Path) -> str:
    return re.sub(r"[^0-9A-Za-z_]", "_", path.stem)


def _run(name: str, path: Path, folder: _Folder) -> types.ModuleType:
    if _finder not in sys.meta_path:
        sys.meta_path.append(_finder)
    spec = _spec(name, path, folder)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    assert spec.loader is not None
    spec.loader.exec_module(module)
    return module


def _get_tool(module: types.ModuleType, path: Path) -> Callable[[], Any]:
    get_tool = getattr(module, "get_tool", None)
    if callable(get_tool) and not inspect.iscoroutinefunction(get_tool):
        return get_tool  # type: ignore[no-any-return]  # a file's own
    raise _failure(path, None, "defines no function get_tool() that gives an AgentTool")


# --- how helpers are found -------------------------------------------------------------------------------------------


class _Folder(list[str]):
    """The `__path__` of a package made for a load: empty, so that only our own finder looks behind it."""

    def __init__(
        self, folder: Path, digests: dict[Path, str], sources: Mapping[Path, bytes]
    ) -> None:
        super().__init__()
        self.folder = folder
        self.digests = digests
        self.sources = sources

    def has(self, path: Path) -> bool:
        return path in self.sources or path.is_file()

    def read(self, path: Path) -> bytes:
        source = self.sources.get(path)
        if source is None:
            source = path.read_bytes()
        self.digests[path] = hashlib.sha256(source).hexdigest()
        return source


class _Finder:
    """Finds the helpers beside a tool file; names of other packages are none of its business."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        del target
        if not isinstance(path, _Folder):
            return None
        stem = name.rpartition(".")[2]
        inner = path.folder / stem
        if path.has(inner / "__init__.py"):
            spec = _spec(name, inner / "__init__.py", path)
            spec.submodule_search_locations = _Folder(inner, path.digests, path.sources)
            return spec
        helper = path.folder / f"{stem}.py"
        return _spec(name, helper, path) if path.has(helper) else None


_finder = _Finder()


class _Loader:
    """Compiles a file from its bytes and notes what they were."""

    def __init__(self, path: Path, folder: _Folder) -> None:
        self._path = path
        self._folder = folder

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Have the module made in the usual way."""

    def exec_module(self, module: types.ModuleType) -> None:
        source = self._folder.read(self._path)
        code = compile(_decoded(source, self._path), str(self._path), "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102 - running the file is what loading means


def _spec(name: str, path: Path, folder: _Folder) -> importlib.machinery.ModuleSpec:
    loader: Any = _Loader(path, folder)
    spec = importlib.machinery.ModuleSpec(name, loader, origin=str(path))
    spec.has_location = True
    return spec


def _decoded(source: bytes, path: Path) -> str:
    try:
        text: str = importlib.util.decode_source(source)
    except UnicodeDecodeError as error:
        line = source[: error.start].count(b"\n") + 1
        reason = f"the encoding is not {error.encoding}, and no coding line names another: {error}"
        raise _failure(path, line, reason) from error
    if "\0" in text:
        raise _failure(path, text[: text.index("\0")].count("\n") + 1, "holds a null character")
    return text


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


# --- what went wrong -------------------------------------------------------------------------------------------------


def _explained(error: BaseException, path: Path, package: str, folder: _Folder) -> ToolLoadError:
    text = _with_paths(error_text(error), path, package, folder)
    place: tuple[str | None, int | None] | None = _place(error, folder)
    if isinstance(error, SyntaxError):
        text = f"{type(error).__name__}: {error.msg}" if error.msg else type(error).__name__
        place = (error.filename, error.lineno) if error.filename else place
    if place is not None and place[0] != str(path):
        text = f"{shortened(text, _BEFORE_A_PLACE)} ({place[0]}, line {place[1]})"
    return _failure(path, _line(error, path), text)


def _with_paths(text: str, path: Path, package: str, folder: _Folder) -> str:
    """Put paths in the place of the module names of a load, which nobody else knows."""
    names = rf"'{package}((?:\.\w+)*)'"
    nowhere = rf"cannot import name '(\w+)' from '{package}' \(unknown location\)"
    shown: list[str] = []

    def file(found: re.Match[str]) -> str:
        shown.append(str(_helper(found[1].strip(".").split("."), path, folder)))
        return shown[-1]

    text = re.sub(nowhere, lambda found: f"there is no file {file(found)}", text)
    text = re.sub(f"No module named {names}", lambda found: f"there is no file {file(found)}", text)
    text = re.sub(names, lambda found: f"'{file(found)}'", text)
    for one in shown:  # Python tells it, too, where it is there
        text = text.removesuffix(f" ({one})")
    return text


def _helper(names: Sequence[str], path: Path, folder: _Folder) -> Path:
    """Give the file that a module is loaded from, or would be if it were there."""
    if list(names) == [_module_stem(path)]:
        return path
    inner = path.parent.joinpath(*names)
    return inner / "__init__.py" if folder.has(inner / "__init__.py") else Path(f"{inner}.py")


def _failure(path: Path, line: int | None, reason: str) -> ToolLoadError:
    where = str(path) if line is None else f"{path}:{line}"
    return ToolLoadError(f"{where}: {reason}", str(path), line, reason)


def _place(error: BaseException, folder: _Folder) -> tuple[str, int] | None:
    """Give the last line of the load's own files that an exception came through, or None."""
    own = {str(path) for path in folder.digests}
    places = [place for place in _frames(error) if place[0] in own]
    return places[-1] if places else None


def _line(error: BaseException, path: Path) -> int | None:
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    lines = [
        line
        for frame, line in _frames(error)
        if os.path.normcase(frame) == os.path.normcase(str(path))
    ]
    return lines[-1] if lines else None


def _frames(error: BaseException) -> list[tuple[str, int]]:
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    return frames


def _raised_by_itself(error: BaseException) -> bool:
    """Whether a `raise` raised it; a signal interrupts other statements."""
    file, line = _frames(error)[-1]
    linecache.checkcache(file)
    return "raise" in linecache.getline(file, line)
