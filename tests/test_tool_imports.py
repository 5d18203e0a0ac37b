"""Import statements as a model gives them, and as they stand in a file."""

from __future__ import annotations

import pytest

from yiemagent.tool_code import CodeProblem
from yiemagent.tool_imports import Import, import_lines, read_imports


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["json"], [Import("json")]),
        ([" os.path "], [Import("os.path")]),
        (["import a, b.c as d"], [Import("a"), Import("b.c", "", "d")]),
        (["from a import b, c as d"], [Import("a", "b"), Import("a", "c", "d")]),
        (["from a import (\n  b,\n  c)"], [Import("a", "b"), Import("a", "c")]),
        (["import a\nimport b; import c"], [Import("a"), Import("b"), Import("c")]),
        (["import a", "a", "import a as a"], [Import("a")]),
        (["import a.b", "import a.c"], [Import("a.b"), Import("a.c")]),
        (["from ._helpers import x"], [Import("._helpers", "x")]),
        (["from . import x"], [Import(".", "x")]),
        (["", "  "], []),
        ([], []),
    ],
)
def test_imports_are_read(given, read):
    """Statements of either kind, several at once, and bare names of modules; each once."""
    assert list(read_imports(given)) == read


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["import a b"], "imports, line 1, column 10: invalid syntax; give import statements"),
        (["import a\nprint(1)"], "imports, line 2: is no import statement"),
        (["from a import *"], "name what is imported in place of '*'"),
        (["from ..a import b"], "reaches out of the folder"),
        (["import a", "import b as a"], "'import b as a' and 'import a' bind the same name"),
        (["import a.b", "from c import a"], "bind the same name"),
        (["import \0a"], "imports"),
        (["(" * 5000], "imports"),
        (["rm -rf /"], "imports, line 1"),
    ],
)
def test_anything_else_is_refused(given, said):
    """What is no import, takes everything, leaves the folder, or binds a name twice, is refused with the reason."""
    with pytest.raises(CodeProblem) as caught:
        read_imports(given)

    assert said in str(caught.value)


def test_imports_stand_in_groups():
    """Futures, the standard library, other libraries, helpers, each sorted; modules before what is taken from some."""
    given = [
        "import zlib",
        "from os import path",
        "from . import _x",
        "import attrs",
        "from json import b, A, CC",
    ]
    imports = [Import("__future__", "annotations"), *read_imports([*given, "from b import c as d"])]

    assert import_lines(imports) == [
        "from __future__ import annotations",
        "",
        "import zlib",
        "from json import CC, A, b",
        "from os import path",
        "",
        "import attrs",
        "from b import c as d",
        "",
        "from . import _x",
    ]
    assert import_lines([]) == []


def test_a_long_import_has_a_line_for_each_name():
    """What doesn't fit a line is put into brackets, a name on each line."""
    names = [f"a_rather_long_name_{number}" for number in range(5)]
    lines = import_lines(Import("json", name) for name in names)

    assert lines == ["from json import (", *(f"    {name}," for name in names), ")"]
