"""What a person decided about tool calls, once and for all: a text file with one decision a line.

Each line is a JSON object; the last line that fits a call decides. A line is added in one step, so several processes
may share a file. A person may read it, and take lines out or write some. Whoever may write the file decides what is
allowed: keep it where no tool can write.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs

from yiemagent.errors import ToolError
from yiemagent.payload import FrozenDict, freeze_json, thaw_json
from yiemagent.record import Record
from yiemagent.tool import AgentTool

__all__ = ["Decided", "DecisionFile", "fingerprint", "same_arguments"]

logger = logging.getLogger("yiemagent.decisions")

Decided: TypeAlias = Literal["allow", "deny"]


def fingerprint(tool: AgentTool) -> str:
    """Give a short text that changes with a tool: what it says of itself, and the code of the tool file it came from.

    Of itself it says a name, a description, a schema and annotations. The code of a tool from no tool file is not
    looked at; nor is what code imports from elsewhere, or only when it is called.
    """
    said = [tool.name, tool.description, thaw_json(tool.input_schema), thaw_json(tool.annotations)]
    if tool.source_sha256 is not None:
        said.append(tool.source_sha256)
    text = json.dumps(said, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def same_arguments(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether arguments are the same JSON: 1 is not true, nor 1.0, which they are in Python."""
    first, second = (
        json.dumps(thaw_json(args), sort_keys=True, default=str) for args in (one, other)
    )
    return first == second


@attrs.frozen(eq=False, repr=False)
class _Entry(Record):
    tool: str
    decision: Decided
    arguments: FrozenDict | None  # None: whatever they are
    fingerprint: str | None  # None: whatever the tool is now

    def is_about(self, tool: AgentTool, arguments: Mapping[str, Any]) -> bool:
        if self.tool != tool.name:
            return False
        return self.arguments is None or same_arguments(self.arguments, arguments)

    def fits(self, tool: AgentTool, arguments: Mapping[str, Any]) -> bool:
        if not self.is_about(tool, arguments):
            return False
        # A tool that was denied stays so whatever it becomes; one that was allowed is asked for anew.
        return self.decision == "deny" or self.fingerprint in {None, fingerprint(tool)}


class DecisionFile:
    """A file of decisions; it is made with the first one, readable by its owner only.

    Args:
        path: the file.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)

    def find(self, tool: AgentTool, arguments: Mapping[str, Any]) -> Decided | None:
        """Give what was decided about a call, or None; the file is read each time, so changes count at once.

        Raises:
            ToolError: the file is there and can't be read.
        """
        decided: Decided | None = None
        for entry in self._entries():
            if entry.fits(tool, arguments):
                decided = entry.decision
        return decided

    def allowed_another(self, tool: AgentTool, arguments: Mapping[str, Any]) -> bool:
        """Whether the latest decision about such a call allowed it when the tool of this name was another.

        Raises:
            ToolError: the file is there and can't be read.
        """
        latest: _Entry | None = None
        for entry in self._entries():
            if entry.is_about(tool, arguments):
                latest = entry
        return latest is not None and not latest.fits(tool, arguments)

    def add(
        self, tool: AgentTool, decision: Decided, arguments: Mapping[str, Any] | None = None
    ) -> None:
        """Keep a decision.

        Args:
            tool: the tool.
            decision: what was decided.
            arguments: the only ones that it is about; None: whatever they are.

        Raises:
            OSError: it can't be written.
        """
        entry: dict[str, Any] = {"tool": tool.name, "decision": decision}
        if arguments is not None:
            entry["arguments"] = dict(arguments)
        entry["fingerprint"] = fingerprint(tool)
        entry["decided_at"] = datetime.now(UTC).isoformat(timespec="seconds")
        line = f"{json.dumps(entry, default=str)}\n".encode()
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            # A line that was cut off, or written by hand without an end, gets one.
            whole = size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"
            os.write(descriptor, line if whole else b"\n" + line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _entries(self) -> Iterator[_Entry]:
        try:
            lines = self.path.read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            raise ToolError(f"the decisions in {self.path} can't be read: {error}") from error
        for number, line in enumerate(lines, 1):
            if line.strip():
                entry = _entry(line)
                if entry is None:
                    logger.warning("%s:%d is no decision and is passed over", self.path, number)
                else:
                    yield entry


def _entry(line: str) -> _Entry | None:
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(given, dict) or given.get("decision") not in ("allow", "deny"):
        return None
    name, arguments, mark = given.get("tool"), given.get("arguments"), given.get("fingerprint")
    if not isinstance(name, str) or not isinstance(arguments, (dict, type(None))):
        return None
    if not isinstance(mark, (str, type(None))):
        return None
    return _Entry(name, given["decision"], freeze_json(arguments), mark)
