"""A tool that writes tools: a model gives the code, and can call the new tool in its next turn.

Put this file into the folder that may be written to. Where it is loaded from the built-in tools, the environment
variable `YIEMAGENT_WRITE_TOOL_DIR` names that folder. A new tool is checked, loaded in a child process and, where
example arguments are given, called there once, before anything can see it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from yiemagent.abort import AbortSignal
from yiemagent.errors import ToolError, ToolLoadError
from yiemagent.registry import ToolStore, builtin_tools_dir, load_tool_file, store_being_filled
from yiemagent.tool import AgentTool, AgentToolResult
from yiemagent.tool_code import problem_at
from yiemagent.tool_drafts import ToolDraft
from yiemagent.tool_trial import Trial, TrialReport, try_files
from yiemagent.tool_versions import (
    Version,
    check_place,
    marked,
    replace_file,
    take_back,
    write_new_file,
)
from yiemagent.tool_writer import ToolText, write_text

__all__ = ["execute_tool", "get_tool", "prepare_arguments"]

DIRECTORY_VARIABLE = "YIEMAGENT_WRITE_TOOL_DIR"

CODE = (
    "the body of a Python function, not a function: statements that use args (a dict that fits input_schema) and end "
    "with return. No async code."
)
INPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {
            "type": "string",
            "description": "Unique name: letters, digits and _, beginning with a letter",
        },
        "label": {"type": "string", "description": "Its name for people"},
        "description": {"type": "string", "description": "What it does, to choose it by"},
        "input_schema": {
            "type": "object",
            "description": "JSON Schema of its arguments: type 'object', with properties and required",
        },
        "execute_code": {
            "type": "string",
            "description": f"What it does: {CODE} Return text, a dict or a list; raise ToolError(text) on failure.",
        },
        "validate_code": {
            "type": "string",
            "description": f"Checks more than the schema can: {CODE} Return None, or what is wrong.",
        },
        "prepare_code": {
            "type": "string",
            "description": f"Changes args before they are checked: {CODE} Return args.",
        },
        "parallel": {
            "type": "boolean",
            "default": False,
            "description": "Whether it may run beside other calls",
        },
        "imports": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Import statements that the code needs, such as 'import json'",
        },
        "example_arguments": {
            "type": "object",
            "description": "Arguments for one trial call, which must succeed before the tool is kept",
        },
        "replace": {
            "type": "boolean",
            "default": False,
            "description": "Whether to replace a tool of this name; the earlier version is kept",
        },
    },
    "required": ["name", "label", "description", "input_schema", "execute_code"],
}
DRAFTED = [
    name for name in INPUT_SCHEMA["properties"] if name not in {"example_arguments", "replace"}
]
# What models call the arguments, too.
OTHER_NAMES = {
    "code": "execute_code",
    "executeCode": "execute_code",
    "exampleArguments": "example_arguments",
    "inputSchema": "input_schema",
    "overwrite": "replace",
    "parameters": "input_schema",
    "prepareCode": "prepare_code",
    "validateCode": "validate_code",
}


class _Place(NamedTuple):
    """Where new tools go, and who has a say in it."""

    folder: Path | None
    store: ToolStore | None
    approve: Callable[[str, str], bool | str | None] | None
    trial_s: float


def get_tool(
    *,
    directory: str | os.PathLike[str] | None = None,
    store: ToolStore | None = None,
    approve: Callable[[str, str], bool | str | None] | None = None,
    trial_s: float = 20.0,
) -> AgentTool:
    """Give the tool.

    Args:
        directory: the folder that new tools are written to; None: this file's own, or where it is a built-in one, the
            folder that `YIEMAGENT_WRITE_TOOL_DIR` names.
        store: where new tools can be called; None: the store that this file is being loaded into.
        approve: called with a tool's name and the text of its file, once that has passed every check; gives whether it
            may be kept, or who says so. It may block. None: nobody is asked.
        trial_s: how long loading a new tool and its trial call may take, in seconds.
    """
    place = _Place(
        folder=_folder(directory),
        store=store if store is not None else store_being_filled(),
        approve=approve,
        trial_s=trial_s,
    )
    return AgentTool(
        name="write_tool",
        label="Write Tool",
        description=(
            "Write a new tool in Python, which can be called from the next turn on. Look at list_tools first: "
            "write one only where none of the tools can do what is needed."
        ),
        input_schema=INPUT_SCHEMA,
        execute=functools.partial(execute_tool, place=place),
        prepare_arguments=prepare_arguments,
        timeout_s=300.0 if approve is None else None,  # a person may take hours
        annotations={"readOnlyHint": False, "destructiveHint": True, "openWorldHint": False},
    )


def prepare_arguments(args: dict[str, Any]) -> dict[str, Any]:
    """Take other names that models use for the arguments, and imports as one text."""
    given = dict(args)
    for other, name in OTHER_NAMES.items():
        if other in given:
            value = given.pop(other)
            given.setdefault(name, value)
    imports = given.get("imports")
    if isinstance(imports, str) and not imports.lstrip().startswith("["):
        given["imports"] = [imports]
    return given


def execute_tool(
    tool_call_id: str,
    args: dict[str, Any],
    signal: AbortSignal,
    on_partial_result: Callable[[Any], None],
    *,
    place: _Place,
) -> AgentToolResult:
    """Check, try and write a tool, and make it one of the store's.

    Raises:
        ToolError: what is wrong, for the model to mend; nothing was changed.
        AbortedError: the signal was set; nothing was changed.
    """
    del tool_call_id
    folder = place.folder
    if folder is None:
        raise ToolError(
            f"there is no folder to write tools to: put write_tool.py into it, or name it in {DIRECTORY_VARIABLE}"
        )
    draft = _draft(args)
    with _saying_so(draft.name):
        text = write_text(draft)
        over = _is_there(place, folder, draft.name, may_replace=bool(args.get("replace")))
        on_partial_result(f"trying {draft.name}")
        report = _try(
            place, folder, draft.name, text, arguments=args.get("example_arguments"), signal=signal
        )
        approval = _approved(place, draft.name, text.text)
        signal.raise_if_aborted()
        content = marked(text.text, author="model", approval=approval)
        kept = _written(place, folder / f"{draft.name}.py", content, over=over)
    return _result(
        folder / f"{draft.name}.py", kept, text, report, in_store=place.store is not None
    )


def _folder(directory: str | os.PathLike[str] | None) -> Path | None:
    if directory is not None:
        return Path(directory).resolve()
    own = Path(__file__).resolve().parent
    if own != builtin_tools_dir().resolve():
        return own
    named = os.environ.get(DIRECTORY_VARIABLE)
    return Path(named).resolve() if named else None


def _draft(args: Mapping[str, Any]) -> ToolDraft:
    named = {name: args[name] for name in DRAFTED if args.get(name) is not None}
    return ToolDraft(**{**dict.fromkeys(INPUT_SCHEMA["required"]), **named})


@contextlib.contextmanager
def _saying_so(name: Any) -> Iterator[None]:
    """Have every error say that nothing was written."""
    shown = str(name)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    try:
        yield
    except ToolError as error:
        problems = str(error) if str(error).startswith("- ") else f"- {error}"
        raise ToolError(
            f"{shown!r} was not written, and nothing was changed:\n{problems}\nMend it and call write_tool again."
        ) from error
    except OSError as error:
        raise ToolError(f"{shown!r} was not written: {error}") from error


def _is_there(place: _Place, folder: Path, name: str, *, may_replace: bool) -> bool:
    """Make sure that the name is free, or a file's that may be replaced; gives whether it is a file's.

    Raises:
        ToolError: it is neither.
    """
    check_place(folder, name)
    there = (folder / f"{name}.py").exists()
    if there and not may_replace:
        raise ToolError(f"there is a tool {name!r} already; take another name, or set replace")
    if not there and place.store is not None and name in place.store:
        raise ToolError(
            f"the name {name!r} is taken by a tool that is not in {folder}; take another"
        )
    return there


# --- trying --------------------------------------------------------------------------------------------------------


def _try(
    place: _Place,
    folder: Path,
    name: str,
    text: ToolText,
    *,
    arguments: Mapping[str, Any] | None,
    signal: AbortSignal,
) -> TrialReport:
    """Load the file in a child process from beside its place, under a name that no store loads.

    Raises:
        ToolError: the trial failed.
    """
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"_{name}_{secrets.token_hex(8)}.py"
    try:
        write_new_file(path, text.text)
        (report,) = try_files(
            [Trial(path, arguments, text.needed)], signal=signal, time_limit_s=place.trial_s
        )
    finally:
        path.unlink(missing_ok=True)
        if made:
            with contextlib.suppress(OSError):  # somebody has put something into it meanwhile
                folder.rmdir()
    if report.problem is not None:
        raise ToolError(f"{_placed(report, path, name, text)}")
    if report.name != name:
        raise ToolError(f"the file gives a tool of another name: {report.name!r}")
    return report


def _placed(report: TrialReport, path: Path, name: str, text: ToolText) -> str:
    """Give the problem with the line of the model's own code, where that is to blame."""
    problem = (report.problem or "").replace(str(path), f"{name}.py").replace(path.stem, name)
    place = None if report.line is None else text.place(report.line)
    if place is None:
        return f"when it was tried: {problem}"
    body, line = place
    return str(problem_at(body.piece, body.text, line, None, problem))


def _approved(place: _Place, name: str, text: str) -> str | None:
    """Give who approved of the file, or None where nobody is asked.

    Raises:
        ToolError: it was not approved.
    """
    if place.approve is None:
        return None
    answer = place.approve(name, text)
    if not answer:
        raise ToolError("a person looked at it and did not approve of it; ask before you try again")
    return answer if isinstance(answer, str) else "yes"


# --- writing -------------------------------------------------------------------------------------------------------


def _written(place: _Place, path: Path, content: str, *, over: bool) -> Version | None:
    """Write the file and load it into the store; gives the version that was there before, as it is kept.

    Raises:
        ToolError: it can't be had; the file is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = None
    if over:
        kept = replace_file(path, content.encode())
    else:
        try:
            write_new_file(path, content)
        except FileExistsError as error:
            raise ToolError(
                f"somebody else wrote {path.name} meanwhile; take another name"
            ) from error
    if place.store is not None:
        try:
            load_tool_file(place.store, path)
        except ToolLoadError as error:
            take_back(path, kept)
            raise ToolError(error.reason) from error
    return kept


def _result(
    path: Path,
    kept: Version | None,
    text: ToolText,
    report: TrialReport,
    *,
    in_store: bool,
) -> AgentToolResult:
    name = path.stem
    said = [
        f"Wrote the tool {name}."
        if kept is None
        else f"Replaced the tool {name}; the earlier version is kept."
    ]
    said.append(
        "It can be called from your next turn on."
        if in_store
        else f"It will be there when {path.parent} is loaded."
    )
    if report.text is not None:
        said.append(f"The trial call gave: {report.text or 'nothing'}")
    if text.left_out:
        said.append(f"Left out, since nothing uses it: {'; '.join(text.left_out)}")
    return AgentToolResult(
        "\n".join(said),
        details={
            "name": name,
            "path": str(path),
            "replaced": kept is not None,
            "source": path.read_text(encoding="utf-8"),
            "trial": report.text,
        },
        added_tool_names=(name,) if in_store else (),
    )
