"""Find files by their names, or by what they say, below one folder.

The folder is `YIEMAGENT_ROOT` of the environment, else the working folder when the tool is loaded. Regular expressions
are matched in a process of their own: one that takes for ever would stop every thread of this one.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

from yiemagent.abort import AbortSignal
from yiemagent.errors import ToolError
from yiemagent.net.line_search import expression_finder, text_finder
from yiemagent.tool import AgentTool, AgentToolResult
from yiemagent.workspace import Workspace, workspace_from

__all__ = ["get_tool"]

INPUT_SCHEMA = {
    "type": "object",
    "properties": {
        "text": {
            "type": "string",
            "minLength": 1,
            "description": "What the lines must hold; left out, the files themselves are listed",
        },
        "files": {
            "type": "string",
            "default": "*",
            "description": "Names of files to look at: '*.py', 'test_*', 'src/*.js'",
        },
        "path": {"type": "string", "default": ".", "description": "The folder or file to look at"},
        "regex": {
            "type": "boolean",
            "default": False,
            "description": "Whether the text is a regular expression of Python",
        },
        "ignore_case": {"type": "boolean", "default": False},
    },
}
EXAMPLES = (
    ("Where is parse_date defined?", {"text": "def parse_date", "files": "*.py"}),
    ("Which Markdown files are there?", {"files": "*.md"}),
)
SKIPPED = {".git", ".hg", ".svn", "__pycache__", "node_modules", ".venv", ".tox"}
SKIPPED |= {".mypy_cache", ".pytest_cache", ".ruff_cache"}
MAX_FILE_BYTES = 4_000_000
MAX_HITS = 200
MAX_LINE = 300
BATCH_CHARS = 4_000_000
REGEX_TIMEOUT_S = 20.0
Texts = list[tuple[str, str]]


def get_tool(root: str | None = None) -> AgentTool:
    """Give the tool.

    Args:
        root: the folder that it stays in; None: the environment's.
    """
    workspace = workspace_from(os.environ) if root is None else Workspace(root)

    def execute(
        tool_call_id: str,
        args: dict[str, Any],
        signal: AbortSignal,
        on_partial_result: Callable[[Any], None],
    ) -> AgentToolResult:
        del tool_call_id, on_partial_result
        names = _named(workspace, args, signal)
        if not args.get("text"):
            return _answer(list(names), "file")
        return _answer(_hits(workspace, names, args, signal), "line")

    return AgentTool(
        name="search_files",
        label="Search files",
        description="Find lines that hold a text, or files by their names, in a folder and all below it.",
        input_schema=INPUT_SCHEMA,
        execute=execute,
        parallel_tool_execute=True,
        timeout_s=120.0,
        annotations={"readOnlyHint": True, "openWorldHint": False},
        examples=EXAMPLES,
    )


def _named(workspace: Workspace, args: dict[str, Any], signal: AbortSignal) -> Iterator[str]:
    wanted = args.get("files") or "*"
    whole = "/" in wanted
    matches = re.compile(fnmatch.translate(wanted.replace("**/", "*"))).match
    for count, name in enumerate(workspace.files(args.get("path") or ".", SKIPPED)):
        if count % 100 == 0:
            signal.raise_if_aborted()
        if matches(name if whole else name.rpartition("/")[2]):
            yield name


def _hits(
    workspace: Workspace, names: Iterator[str], args: dict[str, Any], signal: AbortSignal
) -> list[str]:
    ignore_case, most = args.get("ignore_case", False), MAX_HITS + 1
    find = (
        expression_finder(
            args["text"],
            ignore_case=ignore_case,
            most=most,
            signal=signal,
            timeout_s=REGEX_TIMEOUT_S,
        )
        if args.get("regex")
        else text_finder(args["text"], ignore_case=ignore_case, most=most)
    )
    hits: list[str] = []
    for batch in _batches(workspace, names, signal):
        for (name, text), numbers in zip(batch, find([text for _, text in batch]), strict=True):
            lines = text.split("\n") if numbers else []
            hits += (f"{name}:{number + 1}: {_short(lines[number])}" for number in numbers)
        if len(hits) > MAX_HITS:
            break
    return hits


def _batches(workspace: Workspace, names: Iterator[str], signal: AbortSignal) -> Iterator[Texts]:
    """Give texts, some at a time; files that are no text, too large or gone by now are passed over."""
    batch: Texts = []
    size = 0
    for name in names:
        signal.raise_if_aborted()
        try:
            data = workspace.read(name, MAX_FILE_BYTES)
        except ToolError:
            continue
        if b"\0" in data[:8192]:
            continue
        batch.append((name, data.decode("utf-8", "replace").replace("\r\n", "\n")))
        size += len(data)
        if size > BATCH_CHARS:
            yield batch
            batch, size = [], 0
    yield batch


def _short(line: str) -> str:
    line = line.strip()
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}…"


def _answer(found: list[str], what: str) -> AgentToolResult:
    shown = found[:MAX_HITS]
    text = "\n".join(shown) or f"no {what} found"
    if len(found) > MAX_HITS:
        text += f"\n[only the first {MAX_HITS} are shown; ask more narrowly]"
    return AgentToolResult(text, details={"count": len(shown), "is_all": len(found) <= MAX_HITS})
