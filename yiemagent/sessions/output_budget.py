"""A budget for what tools give back: what is over it is cut for the model and for the history, and the whole is kept in
a file.

    budget = OutputBudget(session)
    agent = YiemAgent(model, tools=[*tools, budget.reader()], session=session, after_tool_call=budget)
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import tempfile
import threading
import weakref
from collections.abc import Mapping
from typing import Any, Literal

import attrs

from yiemagent.abort import AbortSignal
from yiemagent.errors import ConfigurationError, ToolError
from yiemagent.history import clean_text
from yiemagent.hooks import (
    AfterToolCall,
    AfterToolCallContext,
    AfterToolCallResult,
    after_result,
)
from yiemagent.messages import TextContent, ToolCall
from yiemagent.record import Record
from yiemagent.sessions.clipping import head, size_bytes, tail
from yiemagent.sessions.session import Session
from yiemagent.tool import AgentTool, AgentToolResult, is_async

__all__ = ["OutputBudget", "OutputLimit", "cut_output"]

READER = "read_output"


def _one_or_more(_owner: Any, field: Any, value: Any) -> None:
    if value is not None and not (isinstance(value, int) and value >= 1):
        raise ConfigurationError(f"{field.name} must be 1 or more, or None, not {value!r}")


@attrs.frozen(kw_only=True, eq=False, repr=False)
class OutputLimit(Record):
    """How much of a tool's output is shown.

    Args:
        max_bytes: as UTF-8; None: no limit.
        max_lines: None: no limit.
        keep: which end is kept: "head" for what is read from its beginning, as files are; "tail" for what matters at
            its end, as the output of commands does.
    """

    max_bytes: int | None = attrs.field(default=50 * 1024, validator=_one_or_more)
    max_lines: int | None = attrs.field(default=2_000, validator=_one_or_more)
    keep: Literal["head", "tail"] = attrs.field(
        default="head", validator=attrs.validators.in_(("head", "tail"))
    )


NO_LIMIT = OutputLimit(max_bytes=None, max_lines=None)


def cut_output(text: str, limit: OutputLimit) -> str | None:
    """Give the part of a text that is kept: whole lines where there is a line's end near, never half a character.

    Returns:
        None where all of it is within the limit.
    """
    kept = text
    if limit.max_lines is not None:
        kept = _lines(kept, limit.max_lines, limit.keep)
    if limit.max_bytes is not None and size_bytes(kept) > limit.max_bytes:
        clip = head if limit.keep == "head" else tail
        kept = _at_line(clip(kept, limit.max_bytes), limit.keep)
    return None if len(kept) == len(text) else kept


def _lines(text: str, count: int, keep: str) -> str:
    """Give so many lines of a text; the end of the last one is not a line of its own."""
    if text.count("\n") < count:
        return text
    if keep == "head":
        place = -1
        for _ in range(count):
            place = text.find("\n", place + 1)
        return text[: place + 1]
    place = len(text) - text.endswith("\n")
    for _ in range(count):
        if place >= 0:  # else there are no more lines
            place = text.rfind("\n", 0, place)
    return text[place + 1 :]


def _at_line(text: str, keep: str) -> str:
    """Give a text that was cut, without the piece of a line at the cut, unless that were half of it."""
    place = text.rfind("\n") + 1 if keep == "head" else text.find("\n") + 1
    kept = text[:place] if keep == "head" else text[place:]
    return kept if place and len(kept) * 2 > len(text) else text


class OutputBudget:
    """Cuts the results of tools that are too large, says so, and keeps the whole in a file; an `after_tool_call` hook.

    Safe to share between agents. Where the whole can't be kept, the result is cut all the same, and says why.

    Args:
        place: where files go: a folder; or a `Session`, for a folder beside its file, `<its name>.outputs`. None, or a
            session without a file: a temporary folder, which is gone with this object or the process.
        limit: what a tool may give.
        per_tool: other limits, by tool name; None lifts it.
        after_tool_call: a hook of yours that is asked first; what it gives is cut.

    Raises:
        ConfigurationError: where an argument is of the wrong kind.
    """

    def __init__(
        self,
        place: str | os.PathLike[str] | Session | None = None,
        *,
        limit: OutputLimit | None = None,
        per_tool: Mapping[str, OutputLimit | None] | None = None,
        after_tool_call: AfterToolCall | None = None,
    ) -> None:
        self._limit = OutputLimit() if limit is None else limit
        self._per_tool = {READER: NO_LIMIT, **(per_tool or {})}
        for given in (self._limit, *self._per_tool.values()):
            if not isinstance(given, OutputLimit | None):
                raise ConfigurationError(f"a limit must be an OutputLimit, not {given!r}")
        _check_hook(after_tool_call)
        self._first = after_tool_call
        self._folder = _folder_of(place)
        self._lock = threading.Lock()  # guards making the temporary folder, once

    @property
    def folder(self) -> pathlib.Path:
        """Where the files are; a temporary folder is made when this is first asked for."""
        with self._lock:
            if self._folder is None:
                self._folder = pathlib.Path(tempfile.mkdtemp(prefix="yiemagent-outputs-"))
                weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            return self._folder

    def __call__(
        self, context: AfterToolCallContext, signal: AbortSignal
    ) -> AfterToolCallResult | None:
        """Cut a result, after the hook that goes first; None where there is nothing to change."""
        change = after_result(self._first(context, signal)) if self._first is not None else None
        result = context.result
        if change is not None:
            result, _ = change.apply(result, is_error=context.is_error)
        cut = self._cut(context.tool_call, result)
        if cut is None:
            return change
        return attrs.evolve(
            change or AfterToolCallResult(), content=cut.content, details=cut.details
        )

    def _cut(self, call: ToolCall, result: AgentToolResult) -> AgentToolResult | None:
        limit = self._per_tool.get(call.name, self._limit)
        if limit is None:
            return None
        texts = [block.text for block in result.content if isinstance(block, TextContent)]
        text = "\n".join(texts)
        kept = cut_output(text, limit)
        if kept is None:
            return None
        path, problem = self._keep(call, text)
        shown = _with_note(text, kept, limit, path, problem)
        others = [block for block in result.content if not isinstance(block, TextContent)]
        return AgentToolResult((TextContent(shown), *others), _details(result.details, text, path))

    def _keep(self, call: ToolCall, text: str) -> tuple[pathlib.Path | None, str]:
        """Write the whole to a file of its own; gives its path, or None and why there is none."""
        named = re.sub(r"[^A-Za-z0-9_-]", "_", f"{call.name[:64]}-{call.id}")[:120]
        try:
            folder = self.folder
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            while True:
                path = folder / f"{named}.txt"
                try:
                    with open(os.open(path, _NEW, 0o600), "wb") as file:  # noqa: PTH123 - a descriptor, no path
                        file.write(clean_text(text).encode())
                except FileExistsError:  # ids of calls may come again
                    named = f"{named[:120]}-{os.urandom(4).hex()}"
                else:
                    return path, ""
        except OSError as error:
            return None, error.strerror or str(error)

    def reader(self) -> AgentTool:
        """Give a tool with which the model reads what was kept; for agents that have no other tool that reads files."""
        return AgentTool(
            READER,
            label="Read output",
            description=(
                "Read on in the whole output of a tool, of which only a part was shown. Give the file named there."
            ),
            input_schema={
                "type": "object",
                "properties": {
                    "file": {"type": "string", "description": "the path that was named"},
                    "offset": {
                        "type": "integer",
                        "minimum": 0,
                        "default": 0,
                        "description": "the character to begin with",
                    },
                },
                "required": ["file"],
            },
            execute=lambda _id, args, _signal, _update: self._read(**args),
            annotations={"readOnlyHint": True, "idempotentHint": True},
        )

    def _read(self, file: str, offset: int = 0) -> str:
        path = (
            self.folder / pathlib.PurePath(file).name
        )  # whatever it says before that: no other folder is read
        try:
            text = path.read_bytes().decode()  # line ends as they are
        except OSError as error:
            raise ToolError(f"{file!r} can't be read: {error.strerror or error}") from error
        size = self._limit.max_bytes or OutputLimit().max_bytes or 1
        part = head(text[offset : offset + size], size)
        if not part:
            raise ToolError(
                f"the output has {len(text)} characters; offset {offset} is behind its end"
            )
        end = offset + len(part)
        rest = f"; go on with offset {end}" if end < len(text) else ", to its end"
        return f"{part}\n\n[Characters {offset} to {end} of {len(text)}{rest}.]"


_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


def _check_hook(given: Any) -> None:
    if given is not None and (not callable(given) or is_async(given)):
        raise ConfigurationError(f"after_tool_call must be a plain function, not {given!r}")


def _folder_of(place: Any) -> pathlib.Path | None:
    if isinstance(place, Session):
        path = place.path
        return None if path is None else path.with_name(f"{path.stem}.outputs").absolute()
    if place is None:
        return None
    if not isinstance(place, str | os.PathLike):
        raise ConfigurationError(f"place must be a folder or a Session, not {place!r}")
    return pathlib.Path(place).absolute()


def _with_note(
    text: str, kept: str, limit: OutputLimit, path: pathlib.Path | None, problem: str
) -> str:
    """Give what is kept, with words at the cut on what is missing and where it is."""
    end = "first" if limit.keep == "head" else "last"
    size = f"{_kilobytes(kept)} of {_kilobytes(text)} KB"
    lines = f"{_count(kept)} of {_count(text)} lines"
    where = f"The whole output is in {path}" if path else f"The rest could not be kept: {problem}"
    note = f"[Cut: these are the {end} {lines}, {size}. {where}.]"
    return f"{kept.rstrip()}\n\n{note}" if limit.keep == "head" else f"{note}\n\n{kept}"


def _kilobytes(text: str) -> str:
    return f"{size_bytes(text) / 1024:.1f}"


def _count(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def _details(details: Any, text: str, path: pathlib.Path | None) -> Any:
    """Give a tool's details with the facts of the cut, where they are an object."""
    if not isinstance(details, Mapping):
        return details
    facts: dict[str, Any] = {"truncated": True, "total_bytes": size_bytes(text)}
    facts["total_lines"] = _count(text)
    if path is not None:
        facts["full_output_path"] = str(path)
    return {**details, **facts}
