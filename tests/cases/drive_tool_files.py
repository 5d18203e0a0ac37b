"""Folders of tool files that are loaded, reloaded and called: the kind `tool_files`."""

from __future__ import annotations

import compileall
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import attrs

from tests.cases.stage import adapt, copy_tools
from yiemagent import ToolStore, get_tools, load_tools

MTIME = 1_700_000_000


@attrs.define
class Loaded:
    """What loading a folder gave."""

    store: ToolStore
    folder: Path

    @property
    def names(self):
        """The names of the tools, in order."""
        return [name for name in get_tools(self.store) if name != "list_tools"]

    @property
    def reported(self):
        """What was reported, by file name."""
        return {Path(error.path).name: error for error in self.store.load_errors}

    def text(self, name):
        """What a tool says."""
        return get_tools(self.store)[name].execute("case", {}).text


def drive_tool_files(case):
    """Load a copy of the case's folder and check what is there, what is reported and what is left behind."""
    environment = dict(os.environ)
    path = list(sys.path)
    with tempfile.TemporaryDirectory() as target:
        folder = copy_tools(case.take_tools(), Path(target))
        try:
            given = Loaded(ToolStore("case"), folder)
            load_tools(given.store, folder)
            for key in [
                key
                for key in case.expect
                if key in _FIELDS or key.removesuffix(".py") in given_names(case)
            ]:
                check = _FIELDS.get(key, _one_tool(key))
                case.problem(key, check(case.field(key), given))
            if case.has("sys_path") and (
                case.field("sys_path") != "same before and after" or sys.path != path
            ):
                case.problem("sys_path", [f"it is {sys.path}"])
        finally:
            os.environ.clear()
            os.environ.update(environment)


def given_names(case):
    """The names of the case's tool files."""
    return set(case.tool_inputs())


def _loaded(expected, given):
    if given.names != expected:
        yield f"loaded are {given.names}"
    for name in expected:
        if not given.text(name):
            yield f"{name} says nothing"


def _loaded_at_least(expected, given):
    for name in expected:
        if name not in given.names:
            yield f"{name} is not loaded: {given.reported.get(f'{name}.py')}"


def _texts(expected, given):
    for name, text in expected.items():
        if given.text(name) != text:
            yield f"{name} says {given.text(name)!r}"


def _one_tool(key):
    def check(words, given):
        found = re.fullmatch(r"text '(.*)', or one reported failure that names (\S+)", words)
        if found is None:
            yield f"can't drive {words!r}"
        elif key in given.names:
            yield from _texts({key: found[1]}, given)
        elif found[2] not in given.reported:
            yield "it is neither loaded nor reported"

    return check


# What must stand in the text of a report, by the words of the case where these are more than the text itself.
_REPORTS = {
    "SyntaxError and line 2": ["SyntaxError|syntax", "2"],
    "wrong type (or accepted as a description that lacks fields, then an error)": ["."],
    "encoding": ["(?i)utf-8|encod|decod"],
    "KeyboardInterrupt is reported, or leaves load as KeyboardInterrupt with no tool half registered": [
        "KeyboardInterrupt"
    ],
}


def _reported(expected, given):
    for name, words in expected.items():
        error = given.reported.get(name)
        if error is None:
            yield f"{name} is not reported"
            continue
        for pattern in _REPORTS.get(words, [re.escape(words)]):
            if not re.search(pattern, f"{error} {error.line}"):
                yield f"{name} is reported as {str(error)!r}"


def _not_reported(expected, given):
    for name in expected:
        if name in given.reported or name.removesuffix(".py") in given.names:
            yield f"{name} is loaded or reported: {given.reported.get(name)}"


def _twice(words, given):
    if words != "loading the folder twice gives the same result":
        yield f"can't drive {words!r}"
    before = (given.names, [str(error) for error in given.store.load_errors])
    load_tools(given.store, given.folder)
    after = (given.names, [str(error) for error in given.store.load_errors])
    if before != after:
        yield f"before {before}, after {after}"


def _modules(words, given):
    if words != "no module whose __file__ is one of the failed files":
        yield f"can't drive {words!r}"
    failed = {str(error.path) for error in given.store.load_errors}
    # A copy in one step: a tool that is collected meanwhile takes its module away.
    for name, module in sys.modules.copy().items():
        if str(getattr(module, "__file__", None)) in failed:
            yield f"{name} is still there"


def _alive(words, given):
    if words != "process alive":
        yield f"can't drive {words!r}"


_FIELDS = {
    "loaded": _loaded,
    "loaded_at_least": _loaded_at_least,
    "texts": _texts,
    "reported": _reported,
    "not_reported": _not_reported,
    "ignored": _not_reported,
    "twice": _twice,
    "sys_modules": _modules,
    "exit": _alive,
}


# -- reloading --------------------------------------------------------------------------------------------------------

COMPILED = "with an existing tools/__pycache__ made by 'python -m compileall' from v1"
_COPY = re.compile(
    r"copy (\S+) (?:to tools/(\S+) )?with (?:the same )?mtime T, (?:re)?load, call(?:)?"
)
_DELETE = re.compile(r"delete tools/(\S+), reload")


def drive_steps(case, data):
    """Change a tool file step by step, reload and call, with and without compiled files beside it."""
    variants = [False, True] if data.get("also") == COMPILED else [False]
    if data.get("also") not in {COMPILED, None}:
        case.problem("also", ["can't drive these words"])
    for compiled in variants:
        with tempfile.TemporaryDirectory() as target:
            _Steps(case, Path(target) / "tools", compiled=compiled).go(data["steps"])


class _Steps:
    def __init__(self, case, folder, *, compiled):
        self.case = case
        self.compiled = compiled
        folder.mkdir()
        (folder / "another.py").write_text(_ANOTHER, encoding="utf-8")
        adapt(folder / "another.py")
        self.given = Loaded(ToolStore("case"), folder)
        self.file = None
        self.order = None
        self.texts = []

    def go(self, steps):
        case = self.case
        for number, words in enumerate(steps, 1):
            if found := _COPY.fullmatch(words):
                self._copy(*found.groups())
            elif found := _DELETE.fullmatch(words):
                self._delete(found[1])
            else:
                case.problem(f"step {number}", [f"can't drive {words!r}"])
                continue
            if case.has(f"step_{number}"):
                case.problem(f"step {number}", self._report(case.field(f"step_{number}")))
        if self.texts != case.field("texts"):
            case.problem("texts", [f"they are {self.texts}"])
        if case.field("listing_order") not in {"unchanged by reloads", None}:
            case.problem("listing_order", ["can't drive these words"])

    def _copy(self, source, name):
        folder = self.given.folder
        self.file = folder / name if name else self.file
        shutil.copyfile(self.case.folder / source, self.file)
        self.case.take(source)
        adapt(self.file)
        os.utime(self.file, (MTIME, MTIME))
        if self.compiled and not self.texts:
            compileall.compile_dir(str(folder), quiet=2)
        load_tools(self.given.store, folder)
        self.texts.append(self.given.text(self.file.stem))
        self._same_order()

    def _delete(self, name):
        (self.given.folder / name).unlink()
        load_tools(self.given.store, self.given.folder)

    def _same_order(self):
        self.order = self.order or self.given.names
        if self.given.names != self.order:
            self.case.problem("listing_order", [f"was {self.order}, is {self.given.names}"])

    def _report(self, words):
        errors = self.given.reported
        if found := re.fullmatch(r"reload reports (\w+) for (\S+)", words):
            text = str(errors.get(found[2], ""))
            return [] if re.search(f"(?i){found[1]}|syntax", text) else [f"reported are {errors}"]
        if found := re.fullmatch(
            r"(\w+) is no longer listed, or the report says the file is gone", words
        ):
            gone = found[1] not in self.given.names or f"{found[1]}.py" in errors
            return [] if gone else [f"listed are {self.given.names}"]
        return [f"can't drive {words!r}"]


_ANOTHER = """#ADAPTER#
def execute(tool_call_id, args, signal, on_partial_result):
    return RESULT([TEXT('another')])


def get_tool():
    return TOOL(name='another', description='stands before the one that changes', execute=execute)
"""
