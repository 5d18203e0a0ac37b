"""The imports of a tool file that is written: read from what a model gave, and put in order."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Sequence

import attrs

from yiemagent.errors import error_text
from yiemagent.tool_code import CodeProblem, problem_at

__all__ = ["Import", "import_lines", "read_imports"]

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_LINE_CHARACTERS = 100


@attrs.frozen(order=False)
class Import:
    """One imported name: `import module as alias`, or `from module import name as alias`.

    Args:
        module: the module; with a leading dot for a helper beside the file.
        name: what is taken from it; "" takes the module.
        alias: the name it gets, or "".
    """

    module: str
    name: str = ""
    alias: str = ""

    @property
    def bound(self) -> str:
        """The name that stands for it in the file."""
        return self.alias or self.name or self.module.partition(".")[0]

    def statement(self) -> str:
        """The import as a line of its own."""
        what = f"{self.name or self.module}{f' as {self.alias}' if self.alias else ''}"
        return f"from {self.module} import {what}" if self.name else f"import {what}"


def read_imports(given: Sequence[str]) -> tuple[Import, ...]:
    """Read import statements; the bare name of a module is one, too.

    Raises:
        CodeProblem: where something else is among them, or one name would stand for two things.
    """
    found: dict[str, Import] = {}
    for text in given:
        for one in _read(text):
            other = found.setdefault(one.statement(), one)
            clash = [o for o in found.values() if o is not other and o.bound == one.bound]
            if clash and not _are_one_package(one, clash[0]):
                raise CodeProblem(
                    f"imports: {one.statement()!r} and {clash[0].statement()!r} bind the same name"
                )
    return tuple(found.values())


def _are_one_package(one: Import, other: Import) -> bool:
    return not (one.name or one.alias or other.name or other.alias)


def _read(text: str) -> Iterable[Import]:
    text = text.strip()
    source = f"import {text}" if _MODULE.fullmatch(text) else text
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        reason = f"{error.msg}; give import statements"
        raise problem_at("imports", source, error.lineno or 1, error.offset, reason) from error
    except (
        ValueError,
        RecursionError,
        MemoryError,
    ) as error:  # null characters, or nested too deeply
        raise CodeProblem(f"imports can't be read: {error_text(error)}") from error
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, "", _alias(alias)) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _from(source, node)
        else:
            raise problem_at("imports", source, node.lineno, None, "is no import statement")


def _from(source: str, node: ast.ImportFrom) -> Iterable[Import]:
    module = f"{'.' * node.level}{node.module or ''}"
    if node.level > 1:
        reason = "reaches out of the folder of the tools; one dot names a file beside the tool"
        raise problem_at("imports", source, node.lineno, None, reason)
    for alias in node.names:
        if alias.name == "*":
            reason = "name what is imported in place of '*'"
            raise problem_at("imports", source, node.lineno, None, reason)
        yield Import(module, alias.name, _alias(alias))


def _alias(alias: ast.alias) -> str:
    return alias.asname if alias.asname and alias.asname != alias.name else ""


# --- in order --------------------------------------------------------------------------------------------------------


def import_lines(imports: Iterable[Import]) -> list[str]:
    """Give imports as the lines of a file: in groups, each in alphabetical order, blank lines between them."""
    groups: dict[int, list[Import]] = {}
    for one in imports:
        groups.setdefault(_group(one.module), []).append(one)
    lines: list[str] = []
    for number in sorted(groups):
        lines += ["", *_group_lines(groups[number])]
    return lines[1:]


def _group(module: str) -> int:
    if module == "__future__":
        return 0
    if module.startswith("."):
        return 3
    return 1 if module.partition(".")[0] in sys.stdlib_module_names else 2


def _group_lines(imports: Iterable[Import]) -> list[str]:
    plain = sorted((one for one in imports if not one.name), key=_key)
    taken: dict[str, list[Import]] = {}
    for one in imports:
        if one.name:
            taken.setdefault(one.module, []).append(one)
    lines = [one.statement() for one in plain]
    for module in sorted(taken, key=lambda name: (name.lower(), name)):
        lines += _from_lines(module, sorted(taken[module], key=_key))
    return lines


def _key(one: Import) -> tuple[int, str, str]:
    name = one.name or one.module
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return (kind if one.name else 2), name.lower(), name


def _from_lines(module: str, imports: Sequence[Import]) -> list[str]:
    """Give the lines of what is taken from one module: names as they are together, each other name by itself."""
    together = [one for one in imports if not one.alias]
    groups = sorted(
        [*([together] if together else []), *([one] for one in imports if one.alias)],
        key=lambda group: _key(group[0]),
    )
    return [line for group in groups for line in _from_line(module, group)]


def _from_line(module: str, group: Sequence[Import]) -> list[str]:
    if len(group) == 1:
        return [group[0].statement()]
    names = [one.name for one in group]
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= _LINE_CHARACTERS:
        return [line]
    return [f"from {module} import (", *(f"    {name}," for name in names), ")"]
