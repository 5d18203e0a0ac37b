"""Code that a model wrote, as the body of one function of a tool file.

The code is read without being run: what Python refuses is told with line and column of the code itself, and its lines
are indented for their place in the file token by token, so that no literal changes. Whatever indentation it came in,
blocks are indented by four; the inner lines of strings stay as they are.
"""

from __future__ import annotations
import __future__ as futures

import ast
import bisect
import io
import re
import tokenize
from collections.abc import Collection, Iterable, Iterator, Sequence

import attrs

from yiemagent.errors import ToolError, error_text
from yiemagent.tool_refusals import refusals

__all__ = ["CODE_CHARACTERS", "Body", "CodeProblem", "problem_at", "read_body"]

CODE_CHARACTERS = 100_000
SHOWN_CHARACTERS = 100
INDENT = "    "
# What no file can hold, and what has people read other code than runs ("Trojan Source", CVE-2021-42574).
_UNFIT = re.compile("[\0\ud800-\udfff\u200f\u202a-\u202e\u2066-\u2069]")


class CodeProblem(ToolError):
    """Something is wrong with a piece of code; the text names the place in it and shows the line."""


@attrs.frozen
class Body:
    """A piece of code that can be the body of a function.

    Args:
        piece: what it is called, such as "execute_code".
        text: the code as it came.
        lines: its lines as they stand in a file, indented by four and more.
        first: the line of the code (1-based) that the first of `lines` is.
        futures: its `from __future__` imports, as statements; they are no part of `lines`.
        statements: the statements that `lines` say.
    """

    piece: str
    text: str
    lines: tuple[str, ...]
    first: int
    futures: tuple[str, ...]
    statements: tuple[ast.stmt, ...]

    def names(self) -> set[str]:
        """The names that the code reads, sets or deletes, in whatever scope."""
        found = {node.id for node in self._nodes() if isinstance(node, ast.Name)}
        for node in self._nodes():
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                found.update(node.names)
        return found

    def imported(self) -> list[tuple[str, int]]:
        """The modules that it can't do without, each with its line; those it tries to import are not among them."""
        tried = {
            id(inner)
            for node in self._nodes()
            if isinstance(node, (ast.Try, ast.TryStar))
            for inner in ast.walk(node)
        }
        found = []
        for node in self._nodes():
            if id(node) in tried:
                continue
            if isinstance(node, ast.Import):
                found += [(alias.name, node.lineno) for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.append((node.module, node.lineno))
        return found

    def places_of(self, names: Collection[str]) -> dict[str, tuple[int, int]]:
        """Line and column (both 1-based) where names are first read; those that are read nowhere are left out."""
        first: dict[str, tuple[int, int]] = {}
        for node in self._nodes():
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
                place = (node.lineno, node.col_offset)
                first[node.id] = min(first.get(node.id, place), place)
        return {
            name: (line, _characters(self.text, line, offset) + 1)
            for name, (line, offset) in first.items()
        }

    def _nodes(self) -> Iterator[ast.AST]:
        for statement in self.statements:
            yield from ast.walk(statement)


def read_body(piece: str, text: str, parameters: Sequence[str]) -> Body:
    """Read code as the body of a function with these parameters.

    Raises:
        CodeProblem: where it can't be one.
    """
    text = _plain(piece, text)
    lines = text.split("\n")
    # Code that is indented as a whole is read below an `if`, one line further down.
    down = 1 if _is_indented(lines) else 0
    statements = _statements(piece, text, down)
    _refuse(piece, text, statements)
    hoisted, statements = _without_futures(piece, text, statements)
    _refuse_nothing_done(piece, text, statements)
    _compile(piece, text, statements, parameters, futures_=hoisted)
    for node in hoisted:
        assert node.end_lineno is not None
        for number in range(node.lineno, node.end_lineno + 1):
            lines[number - 1] = ""
    first, placed = _trimmed(_indented(lines, down))
    return Body(
        piece, text, tuple(placed), first, tuple(map(ast.unparse, hoisted)), tuple(statements)
    )


def problem_at(piece: str, text: str, line: int, column: int | None, reason: str) -> CodeProblem:
    """Give a problem with its place, and the line that it is in.

    Args:
        piece: what the code is called.
        text: the code.
        line: 1-based.
        column: 1-based, in characters, or None where only the line is known.
        reason: what is wrong.
    """
    where = f"{piece}, line {line}" + ("" if column is None else f", column {column}")
    lines = text.split("\n")
    shown = lines[line - 1].rstrip() if 0 < line <= len(lines) else ""
    if not shown.strip() or len(shown) > SHOWN_CHARACTERS or not shown.isprintable():
        return CodeProblem(f"{where}: {reason}")
    pointer = "" if column is None else f"\n{INDENT}{' ' * (column - 1)}^"
    return CodeProblem(f"{where}: {reason}\n{INDENT}{shown}{pointer}")


# --- reading ---------------------------------------------------------------------------------------------------------


def _plain(piece: str, text: str) -> str:
    """Give code with the line ends that Python makes of any others, or say which character it can't have."""
    if len(text) > CODE_CHARACTERS:
        raise CodeProblem(
            f"{piece} has {len(text):,} characters; a tool may have {CODE_CHARACTERS:,}"
        )
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if found := _UNFIT.search(text):
        line = text.count("\n", 0, found.start()) + 1
        column = found.start() - (text.rfind("\n", 0, found.start()) + 1) + 1
        raise problem_at(piece, text, line, column, _unfit(found[0]))
    return text


def _unfit(character: str) -> str:
    if "\ud800" <= character <= "\udfff":
        return "half of a surrogate pair can't be in a file"
    if character == "\0":
        return "a null character can't be in a file"
    escape = character.encode("unicode_escape").decode("ascii")
    return f"a character that turns the order of others is refused; write {escape} in a string"


def _is_indented(lines: Iterable[str]) -> bool:
    for line in lines:
        if line.strip() and not line.lstrip().startswith("#"):
            return line[0] in " \t"
    return False


def _statements(piece: str, text: str, down: int) -> list[ast.stmt]:
    source = "if True:\n" * down + text
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise _refused(piece, text, error, down) from error
    except (ValueError, RecursionError, MemoryError) as error:  # nested too deeply for the parser
        raise CodeProblem(f"{piece} can't be read: {error_text(error)}") from error
    if not down:
        return tree.body
    first = tree.body[0]
    assert isinstance(first, ast.If)
    stray = [*first.orelse, *tree.body[1:]]
    ast.increment_lineno(tree, -down)
    if stray:
        line = min(stray[0].lineno, len(text.split("\n")))
        raise problem_at(
            piece, text, line, 1, "is indented less than the first line; indent both alike"
        )
    return first.body


def _refused(piece: str, text: str, error: SyntaxError, down: int = 0) -> CodeProblem:
    line = max(1, (error.lineno or 1) - down)
    column = error.offset if error.offset and error.offset > 0 else None
    return problem_at(piece, text, line, column, f"{type(error).__name__}: {error.msg}")


def _without_futures(
    piece: str, text: str, statements: list[ast.stmt]
) -> tuple[list[ast.ImportFrom], list[ast.stmt]]:
    """Take the `__future__` imports off the beginning: in a file they stand at its head."""
    rest = list(statements)
    kept = [rest.pop(0)] if rest and _is_text(rest[0]) else []
    taken: list[ast.ImportFrom] = []
    while rest and isinstance(node := rest[0], ast.ImportFrom) and node.module == "__future__":
        for alias in node.names:
            if alias.name not in futures.all_feature_names:
                reason = f"SyntaxError: future feature {alias.name} is not defined"
                raise problem_at(piece, text, node.lineno, None, reason)
        if not _is_alone(text, node):
            reason = "a __future__ import must have its line to itself"
            raise problem_at(piece, text, node.lineno, None, reason)
        taken.append(node)
        rest.pop(0)
    return taken, kept + rest


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_alone(text: str, node: ast.stmt) -> bool:
    lines = text.split("\n")
    assert node.end_lineno is not None
    before = lines[node.lineno - 1].encode()[: node.col_offset]
    after = lines[node.end_lineno - 1].encode()[node.end_col_offset :].strip()
    return not before.strip() and (not after or after.startswith(b"#"))


def _refuse(piece: str, text: str, statements: Sequence[ast.stmt]) -> None:
    for node, reason in refusals(statements):
        column = _characters(text, node.lineno, node.col_offset) + 1
        raise problem_at(piece, text, node.lineno, column, reason)


def _refuse_nothing_done(piece: str, text: str, statements: Sequence[ast.stmt]) -> None:
    if not statements:
        raise CodeProblem(f"{piece} holds no statement")
    named = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    doing = [node for node in statements if not isinstance(node, named) and not _is_text(node)]
    defining = [node for node in statements if isinstance(node, ast.FunctionDef)]
    if not doing and defining:
        reason = (
            f"defines {defining[-1].name}() and never calls it; give the body of the function, not a "
            f"function: it runs as it is and ends with return"
        )
        raise problem_at(piece, text, defining[-1].lineno, None, reason)


def _compile(
    piece: str,
    text: str,
    statements: list[ast.stmt],
    parameters: Sequence[str],
    *,
    futures_: Sequence[ast.ImportFrom],
) -> None:
    """Have the compiler look at the code inside of a function: it refuses more than the parser does."""
    tree = ast.parse(f"def body({', '.join(parameters)}): pass")
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body = statements
    flags = 0
    for node in futures_:
        for alias in node.names:
            flags |= getattr(futures, alias.name).compiler_flag
    try:
        compile(tree, f"<{piece}>", "exec", flags=flags, dont_inherit=True)
    except SyntaxError as error:
        if error.offset is not None and error.lineno is not None:  # of a tree: in bytes
            error.offset = _characters(text, error.lineno, error.offset - 1) + 1
        raise _refused(piece, text, error) from error
    except (ValueError, RecursionError, MemoryError) as error:  # nested too deeply
        raise CodeProblem(f"{piece} can't be compiled: {error_text(error)}") from error


def _characters(text: str, line: int, offset_bytes: int) -> int:
    lines = text.split("\n")
    if not 0 < line <= len(lines):
        return offset_bytes
    return len(lines[line - 1].encode()[: max(0, offset_bytes)].decode("utf-8", "ignore"))


# --- indenting -------------------------------------------------------------------------------------------------------


@attrs.define
class _Layout:
    """What the tokens say of each row of a source (1-based)."""

    depths: dict[int, int] = attrs.field(factory=dict)  # of rows that begin a statement
    statements: list[int] = attrs.field(factory=list)  # these rows, in order
    heads: dict[int, int] = attrs.field(factory=dict)  # of rows that go on: the row that began
    inner: set[int] = attrs.field(factory=set)  # rows that begin inside of a string
    comments: dict[int, tuple[int, int]] = attrs.field(factory=dict)  # column and depth before it


_BETWEEN = {
    tokenize.NL,
    tokenize.COMMENT,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
# Strings with expressions in them are several tokens from Python 3.12 on.
_OPENS, _CLOSES = (
    {getattr(tokenize, f"{kind}STRING_{end}", -1) for kind in "FT"} for end in ("START", "END")
)


def _layout(source: str) -> _Layout:
    layout = _Layout()
    depth, reached, opened = 0, 0, []
    head = None
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        row = token.start[0]
        depth += (token.type == tokenize.INDENT) - (token.type == tokenize.DEDENT)
        if token.type in _OPENS:
            opened.append(row)
        if token.type == tokenize.STRING or token.type in _CLOSES:
            began = opened.pop() if token.type in _CLOSES else row
            layout.inner.update(range(began + 1, token.end[0] + 1))
        if head is None and token.type == tokenize.COMMENT:
            layout.comments[row] = (token.start[1], depth)
        elif head is None and token.type not in _BETWEEN:
            head = reached = row
            layout.depths[row] = depth
            layout.statements.append(row)
        if head is not None and token.end[0] > reached:
            layout.heads.update(dict.fromkeys(range(reached + 1, token.end[0] + 1), head))
            reached = token.end[0]
        if token.type == tokenize.NEWLINE:
            head = None
    return layout


def _indented(lines: Sequence[str], down: int) -> list[str]:
    """Give lines as they stand in a function at the top of a file."""
    source = "\n".join([*["if True:"] * down, *lines, ""])
    rows = source.split("\n")
    layout = _layout(source)
    placed = []
    for number in range(1 + down, len(rows)):
        line = rows[number - 1]
        if number not in layout.inner:
            line = _placed(line, number, rows, layout, down=down)
        if number + 1 not in layout.inner:  # else the line goes on inside of a string
            line = line.rstrip()
        placed.append(line)
    return placed


def _placed(line: str, number: int, rows: Sequence[str], layout: _Layout, *, down: int) -> str:
    bare = line.lstrip(" \t\f")
    if number in layout.depths:
        return INDENT * (layout.depths[number] + 1 - down) + bare
    if number in layout.comments:
        return INDENT * (_comment_depth(number, rows, layout) + 1 - down) + bare
    head = layout.heads.get(number)
    if (
        head is None
    ):  # nothing, or a backslash before a statement, which would put that at its own column
        return ""
    before = _white(rows[head - 1])
    rest = line[len(before) :] if line.startswith(before) else bare
    return INDENT * (layout.depths[head] + 1 - down) + rest


def _comment_depth(number: int, rows: Sequence[str], layout: _Layout) -> int:
    """Give the block that a comment is in: that of the statement behind it, unless it stands further right."""
    column, depth = layout.comments[number]
    behind = bisect.bisect(layout.statements, number)
    if behind == len(layout.statements):
        return depth if column else layout.depths[layout.statements[0]]
    following = layout.statements[behind]
    if layout.depths[following] > depth or column <= len(_white(rows[following - 1])):
        return layout.depths[following]
    return depth


def _white(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t\f"))]


def _trimmed(lines: list[str]) -> tuple[int, list[str]]:
    """Give the number of the first line that is not blank, and the lines from there to the last such."""
    full = [number for number, line in enumerate(lines) if line.strip()]
    return full[0] + 1, lines[full[0] : full[-1] + 1]
