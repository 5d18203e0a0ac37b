"""The text of a tool file, written from what a model gives: a file that a person would have written.

Nothing is run and nothing is touched here. Whatever is wrong is collected, so that a model can mend it all at once.
The finished text is parsed again, and the code in it compared with what came: no literal may change.
"""

from __future__ import annotations

import ast
import builtins
import symtable
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import attrs

from yiemagent.errors import ToolError, shortened
from yiemagent.tool_code import Body, CodeProblem, problem_at, read_body
from yiemagent.tool_drafts import ToolDraft, draft_problems
from yiemagent.tool_imports import Import, import_lines, read_imports
from yiemagent.tool_literals import docstring, literal

__all__ = ["ToolText", "write_text"]

PROBLEMS_CHARACTERS = 8_000

# What a tool's code may use of the library without importing it.
OFFERED = frozenset(
    {
        "AbortSignal",
        "AbortedError",
        "AgentTool",
        "AgentToolResult",
        "ImageContent",
        "InvalidArguments",
        "LlmUsage",
        "TextContent",
        "ToolError",
    }
)
_PARAMETERS = {
    "execute_code": ("tool_call_id", "args", "signal", "on_partial_result"),
    "validate_code": ("args",),
    "prepare_code": ("args",),
}
_FUNCTIONS = {
    "prepare_code": "prepare_arguments",
    "validate_code": "validate_required_args",
    "execute_code": "execute_tool",
}
_OWN_NAMES = {"INPUT_SCHEMA", "get_tool", *_FUNCTIONS.values()}
_MODULE_NAMES = {
    "__annotations__",
    "__builtins__",
    "__cached__",
    "__doc__",
    "__file__",
    "__loader__",
    "__name__",
    "__package__",
    "__spec__",
}
# Functions that see names without naming them: where one is used, nothing is left out as unused.
_LOOKING = {"dir", "eval", "exec", "globals", "locals", "vars"}
_T = TypeVar("_T")


@attrs.frozen
class ToolText:
    """The text of a tool file.

    Args:
        text: the whole file.
        bodies: the pieces of code in it, each with the line of the file (1-based) that it begins at.
        needed: modules that the code can't do without, each with the place of its import in words.
        left_out: imports that nothing uses, and which are not in it.
    """

    text: str
    bodies: tuple[tuple[Body, int], ...]
    needed: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...]

    def place(self, line: int) -> tuple[Body, int] | None:
        """The piece of code that a line of the file belongs to, and the line in it; None for any other line."""
        for body, begin in self.bodies:
            if begin <= line < begin + len(body.lines):
                return body, line - begin + body.first
        return None


def write_text(draft: ToolDraft) -> ToolText:
    """Write the text of a tool file.

    Raises:
        ToolError: names everything that is wrong with the draft, a line or more for each.
    """
    problems = draft_problems(draft)
    bodies = [
        body
        for piece, parameters in _PARAMETERS.items()
        if (code := getattr(draft, piece)) is not None
        and (body := _tried(problems, lambda c=code, p=piece, a=parameters: read_body(p, c, a)))  # type: ignore[misc]  # mypy can't tell a lambda's defaults
    ]
    imports = _tried(problems, lambda: read_imports(draft.imports))
    if imports is not None:
        problems += _clashes(imports)
    if problems or imports is None:
        raise _refused(problems)
    return _Writer(draft, bodies, imports).written()


def _refused(problems: Sequence[str]) -> ToolError:
    """Give all that is wrong as one error, for a model that reads it: each problem is cut, and their list."""
    listed = "\n".join(f"- {shortened(problem)}" for problem in problems)
    return ToolError(shortened(listed, PROBLEMS_CHARACTERS))


def _tried(problems: list[str], read: Callable[[], _T]) -> _T | None:
    try:
        return read()
    except CodeProblem as problem:
        problems.append(str(problem))
        return None


# --- imports -------------------------------------------------------------------------------------------------------


_FRAME = {
    "Any": Import("typing", "Any"),
    "Callable": Import("collections.abc", "Callable"),
    "AbortSignal": Import("yiemagent", "AbortSignal"),
    "AgentTool": Import("yiemagent", "AgentTool"),
}


def _clashes(imports: Sequence[Import]) -> Iterator[str]:
    for one in imports:
        if one.bound in _OWN_NAMES:
            yield f"imports: {one.statement()!r} takes a name that the file itself uses; import it as another"
        frame = _FRAME.get(one.bound)
        if frame is not None and one not in {frame, Import("typing", "Callable")}:
            yield f"imports: {one.statement()!r} hides {frame.statement()!r}; import it as another"


# --- writing -------------------------------------------------------------------------------------------------------


@attrs.define
class _Writer:
    """Writes one file."""

    draft: ToolDraft
    bodies: list[Body]
    given: tuple[Import, ...]
    own: dict[str, Import] = attrs.field(factory=dict)  # what the code uses of the library
    starts: dict[str, int] = attrs.field(factory=dict)
    lines: list[str] = attrs.field(factory=list)

    def written(self) -> ToolText:
        text = self._text()
        self._compare(text)
        undefined = self._undefined(text)
        self.own = {name: Import("yiemagent", name) for name in undefined if name in OFFERED}
        if self.own:
            text = self._text()
        if undefined - OFFERED:
            raise _refused(self._are_undefined(undefined - OFFERED))
        kept = self._imports()
        needed = [(one.module, f"imports, {one.statement()!r}") for one in kept]
        needed += [
            (module, f"{body.piece}, line {line}")
            for body in self.bodies
            for module, line in body.imported()
        ]
        return ToolText(
            text,
            tuple((body, self.starts[body.piece]) for body in self.bodies),
            tuple(needed),
            tuple(one.statement() for one in self.given if one not in kept),
        )

    def _text(self) -> str:
        draft = self.draft
        self.lines = [f'"""{docstring(draft.label)}"""', ""]
        frame = {name: one for name, one in _FRAME.items() if self._needs(name)}
        future = {
            Import(node.module or "", alias.name, alias.asname or "")
            for body in self.bodies
            for text in body.futures
            for node in ast.parse(text).body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        every = dict.fromkeys([*future, *frame.values(), *self.own.values(), *self._imports()])
        self.lines += [*import_lines(every), ""]
        self.lines += f"INPUT_SCHEMA: dict[str, Any] = {literal(draft.input_schema, 0, 31)}".split(
            "\n"
        )
        by_piece = {body.piece: body for body in self.bodies}
        for piece, function in _FUNCTIONS.items():
            if piece in by_piece:
                self._function(function, by_piece[piece])
        self._get_tool(by_piece)
        return "\n".join([*self.lines, ""])

    def _needs(self, name: str) -> bool:
        """Whether the file's own import of a name is needed: not where the model's stands for it."""
        return all(one.bound != name for one in self.given)

    def _imports(self) -> tuple[Import, ...]:
        """The model's imports without those that nothing uses."""
        used = {name for body in self.bodies for name in body.names()}
        if used & _LOOKING:
            return self.given
        return tuple(one for one in self.given if one.bound in used or one.bound in _FRAME)

    def _function(self, name: str, body: Body) -> None:
        used = body.names()
        parameters = _PARAMETERS[body.piece]
        unused = [one for one in parameters if not used & {one, *_LOOKING}]
        self.lines += ["", ""]
        if parameters == ("args",):
            self.lines.append(f"def {name}(args: {_TYPES['args']}) -> {_RETURNS[name]}:")
        else:
            self.lines.append(f"def {name}(")
            self.lines += [f"    {one}: {_TYPES[one]}," for one in parameters]
            self.lines.append(f") -> {_RETURNS[name]}:")
        self.lines.append(f'    """{docstring(_SUMMARIES.get(name) or self.draft.description)}"""')
        if unused:
            self.lines.append(f"    del {', '.join(unused)}")
        self.starts[body.piece] = len(self.lines) + 1
        self.lines += body.lines
        if name in _AT_THE_END and not isinstance(body.statements[-1], (ast.Return, ast.Raise)):
            self.lines.append(f"    return {_AT_THE_END[name]}")

    def _get_tool(self, by_piece: Mapping[str, Body]) -> None:
        draft = self.draft
        fields = [
            ("name", literal(draft.name, 8, 16)),
            ("label", literal(draft.label, 8, 16)),
            ("description", literal(draft.description, 8, 22)),
            ("input_schema", "INPUT_SCHEMA"),
            ("execute", "execute_tool"),
        ]
        if "prepare_code" in by_piece:
            fields.append(("prepare_arguments", "prepare_arguments"))
        if "validate_code" in by_piece:
            fields.append(("validate_required_args", "validate_required_args"))
        if draft.parallel:
            fields.append(("parallel_tool_execute", "True"))
        self.lines += ["", "", "def get_tool() -> AgentTool:", '    """Give the tool."""']
        self.lines.append("    return AgentTool(")
        for name, value in fields:
            self.lines += f"        {name}={value},".split("\n")
        self.lines.append("    )")

    # -- looking at what was written --

    def _undefined(self, text: str) -> set[str]:
        """Give the names that the code uses and nobody defines."""
        top = symtable.symtable(text, self.draft.name, "exec")
        bound = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
        bound |= {s.get_name() for s in top.get_symbols() if s.is_namespace()}
        read: set[str] = set()
        tables = list(top.get_children())
        while tables:
            table = tables.pop()
            tables += table.get_children()
            for symbol in table.get_symbols():
                if symbol.is_global() and symbol.is_referenced():
                    read.add(symbol.get_name())
                if symbol.is_declared_global() and symbol.is_assigned():
                    bound.add(symbol.get_name())
        return read - bound - _MODULE_NAMES - set(dir(builtins))

    def _are_undefined(self, names: set[str]) -> list[str]:
        reasons = {}
        for name in sorted(names):
            is_module = name in sys.stdlib_module_names
            add = f"; add 'import {name}' to imports" if is_module else ""
            reasons[name] = f"the name {name!r} is not defined{add}"
        told = dict(reasons)
        for body in reversed(self.bodies):  # so that the first that reads a name has the last word
            for name, place in body.places_of(names).items():
                told[name] = str(problem_at(body.piece, body.text, *place, reasons[name]))
        return list(told.values())

    def _compare(self, text: str) -> None:
        """Make sure that the code in the file says what the model's says, to the last literal."""
        try:
            top = ast.parse(text).body
        except (
            SyntaxError
        ):  # a backslash before an indented statement, which Python's own tokenizer doesn't follow
            top = []
        functions = {node.name: node.body for node in top if isinstance(node, ast.FunctionDef)}
        for body in self.bodies:
            begin = self.starts[body.piece]
            inside = [n for n in functions.get(_FUNCTIONS[body.piece], ()) if n.lineno >= begin]
            inside = inside[: len(body.statements)]  # without a return that was added
            if [ast.dump(n) for n in inside] != [ast.dump(n) for n in body.statements]:
                raise ToolError(f"- {body.piece} can't be indented; begin no line with a backslash")


# What is given where the code ends without saying so.
_AT_THE_END = {"prepare_arguments": "args", "validate_required_args": "None"}
_TYPES = {
    "tool_call_id": "str",
    "args": "dict[str, Any]",
    "signal": "AbortSignal",
    "on_partial_result": "Callable[[Any], None]",
}
_RETURNS = {
    "execute_tool": "Any",
    "prepare_arguments": "dict[str, Any]",
    "validate_required_args": "str | None",
}
_SUMMARIES = {
    "prepare_arguments": "Change the arguments before they are checked.",
    "validate_required_args": "Check what the schema can't say: give None, or what is wrong.",
}
