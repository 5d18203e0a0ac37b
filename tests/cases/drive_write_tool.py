"""Tools that write tools: the kind `write_tool`, with the names of the case and the reference's fields."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.cases.stage import loaded
from yiemagent import ToolStore, get_tools, load_tools
from yiemagent.abort import AbortSignal
from yiemagent.config import AgentLoopConfig
from yiemagent.context import AgentContext
from yiemagent.messages import AssistantMessage, ToolCall
from yiemagent.pipeline import (
    FinalizedOutcome,
    ImmediateOutcome,
    create_tool_result_message,
    execute_prepared_tool_call,
    finalize_executed_tool_call,
    prepare_tool_call,
)
from yiemagent.registry import builtin_tools_dir

_FIELDS = {"label": "label", "description": "description", "inputSchema": "input_schema"}
_NAMES = {"RESULT": "AgentToolResult", "TEXT": "TextContent"}
_OUTSIDE = "# the target of a link, outside of the folder\n"


def drive_write_tool(case, data):
    """Write tools with bad, good, linked and existing names, and compare the folder's tree before and after."""
    with tempfile.TemporaryDirectory() as root:
        stage = _Stage(case, Path(root).resolve(), data)
        stage.bad(data["names_bad"])
        stage.good(data["names_good"])
        stage.linked(data["name_linked"])
        stage.existing(data["names_good"][0])


class _Stage:
    def __init__(self, case, root, data):
        self.case = case
        self.root = root
        self.folder = root / "tools"
        self.folder.mkdir()
        shutil.copy(builtin_tools_dir() / "write_tool.py", self.folder)
        self.store = ToolStore("case")
        load_tools(self.store, self.folder, on_error="raise")
        code = data["executeCode"]
        for neutral, own in _NAMES.items():
            code = code.replace(neutral, own)
        self.fields = {own: data[neutral] for neutral, own in _FIELDS.items()}
        self.fields["execute_code"] = code

    def write(self, name):
        """Call the tool as a loop does, and give its result message."""
        call = ToolCall("call_1", "write_tool", {**self.fields, "name": name})
        message = AssistantMessage((call,), stop_reason="tool_use")
        context = AgentContext("", (message,), self.store.snapshot())
        hooks, signal = AgentLoopConfig(), AbortSignal()
        prepared = prepare_tool_call(context, message, call, hooks, signal)
        if isinstance(prepared, ImmediateOutcome):
            return create_tool_result_message(
                FinalizedOutcome(call, prepared.result, is_error=True)
            )
        executed = execute_prepared_tool_call(prepared, signal, lambda _event: None)
        return create_tool_result_message(
            finalize_executed_tool_call(
                context, message, prepared, executed, hooks=hooks, signal=signal
            )
        )

    def tree(self):
        """The files of the folder and its parent, with what they hold; links with where they lead."""
        return {
            str(path.relative_to(self.root)): str(path.readlink())
            if path.is_symlink()
            else path.read_bytes()
            if path.is_file()
            else None
            for path in self.root.rglob("*")
        }

    def bad(self, names):
        """Bad names are errors, and change nothing."""
        words = "isError true for each; the folder tree (tools and its parent) is byte-identical before and after"
        if self.case.field("bad") != words:
            self.case.problem("bad", ["can't drive these words"])
        before = self.tree()
        for name in names:
            result = self.write(name)
            if not result.is_error:
                self.case.problem(f"bad name {name!r}", [f"it is written: {result.text}"])
            if self.tree() != before:
                self.case.problem(f"bad name {name!r}", ["the folder tree changed"])

    def good(self, names):
        """A good name is one new file, whose tool answers after a reload."""
        case = self.case
        if (
            case.field("good")
            != "one new file tools/good_tool.py; after reload the tool answers 'made'"
        ):
            case.problem("good", ["can't drive these words"])
        for name in names:
            before = self.tree()
            result = self.write(name)
            new = self.tree().keys() - before.keys()
            if result.is_error or new != {f"tools/{name}.py"}:
                case.problem(f"good name {name!r}", [f"new are {sorted(new)}: {result.text}"])
                continue
            load_tools(self.store, self.folder)
            for tools in (get_tools(self.store), loaded(self.folder)):
                if (text := tools[name].execute("case", {}).text) != "made":
                    case.problem(f"good name {name!r}", [f"the tool answers {text!r}"])

    def linked(self, name):
        """A link of the name is not followed."""
        if self.case.field("linked") != "the link target outside is unchanged":
            self.case.problem("linked", ["can't drive these words"])
        outside = self.root / "outside.py"
        outside.write_text(_OUTSIDE)
        (self.folder / f"{name}.py").symlink_to(outside)
        result = self.write(name)
        if outside.read_text() != _OUTSIDE:
            self.case.problem("linked", [f"the target is changed: {result.text}"])

    def existing(self, name):
        """A tool that is there is not written over without a word."""
        expected = "writing good_tool again: error, or replaced and the result text says that it replaced it"
        if self.case.field("existing") != expected:
            self.case.problem("existing", ["can't drive these words"])
        before = (self.folder / f"{name}.py").read_bytes()
        result = self.write(name)
        same = (self.folder / f"{name}.py").read_bytes() == before
        if not (result.is_error and same) and "replaced" not in result.text.lower():
            self.case.problem("existing", [f"is_error {result.is_error}: {result.text}"])
