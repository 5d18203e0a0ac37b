"""`docs/promises.md`: each promise names the tests that walk it, and they exist and ran."""

from __future__ import annotations

import ast
import functools
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROMISES = ROOT / "docs" / "promises.md"
PROVIDERS = ROOT / "docs" / "providers" / "README.md"
MCP = ROOT / "docs" / "mcp" / "README.md"
CELLS = "tests/providers/test_what_works.py"

pytestmark = pytest.mark.alone  # looks back at all that ran


def rows(text):
    """The promises of a Markdown table: pairs of the promise and the test ids in its last column."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) > 1 and not set(cells[-1]) <= set(":- ") and "tests/" in line:
            found.append((" | ".join(cells[:-1]), tuple(re.findall(r"`(tests/[^`]+)`", cells[-1]))))
    return found


@functools.cache
def promises():
    """The promises of `docs/promises.md`."""
    assert PROMISES.is_file(), f"{PROMISES} is missing; its table ends with the ids of tests"
    return rows(PROMISES.read_text(encoding="utf-8"))


@functools.cache
def defined(path):
    """The names of the tests of a file, methods as `TestClass::test_name`."""
    names = set()
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {f"{node.name}::{n.name}" for n in node.body if isinstance(n, ast.FunctionDef)}
        elif isinstance(node, ast.Assign):  # `TestMachine = Machine.TestCase` of a stateful test
            names |= {
                f"{target.id}::runTest" for target in node.targets if isinstance(target, ast.Name)
            }
    return names


def exists(node_id):
    """Whether a test of this id stands in the tree."""
    path, _, name = node_id.partition("::")
    return (ROOT / path).is_file() and name.partition("[")[0] in defined(path)


def test_every_promise_names_its_tests():
    """Each row of the table names at least one test, and there are as many rows as a house needs."""
    assert [text for text, ids in promises() if not ids] == []
    assert len(promises()) >= 40


def test_every_named_test_exists():
    """Each test that a promise names stands in the tree."""
    missing = [node_id for _, ids in promises() for node_id in ids if not exists(node_id)]

    assert not missing, "\n".join(missing)


def test_every_named_test_ran(ran_tests):
    """In a run of the whole suite each named test ran its body; a smaller run is held to the names alone."""
    named = {node_id.partition("[")[0] for _, ids in promises() for node_id in ids}
    expected = named if ran_tests.whole_suite else named & ran_tests.node_ids

    assert not expected - ran_tests.node_ids, "\n".join(sorted(expected - ran_tests.node_ids))


def test_every_cell_of_the_providers_table_ran(ran_tests):
    """Each cell of the table of providers is a test that exists, and in a run of the whole suite it ran."""
    table = [line for line in PROVIDERS.read_text(encoding="utf-8").splitlines() if "|" in line]
    columns = next(line for line in table if line.startswith("| what |")).split("|")[2:-2]
    tests = [name for line in table for name in re.findall(r"\| `(test_\w+)` \|$", line)]
    cells = {f"{CELLS}::{name}[{column.strip()}]" for name in tests for column in columns}
    ran = cells if not ran_tests.whole_suite else ran_tests.full_ids

    assert len(columns) >= 12 and len(tests) >= 15
    assert [name for name in tests if not exists(f"{CELLS}::{name}")] == []
    assert not cells - ran, "\n".join(sorted(cells - ran))


def test_every_feature_of_mcp_names_its_tests(ran_tests):
    """Each row of the table of MCP names tests that exist, and in a run of the whole suite they ran."""
    features = rows(MCP.read_text(encoding="utf-8"))
    named = {node_id for _, ids in features for node_id in ids}

    assert len(features) >= 20
    assert [text for text, ids in features if not ids] == []
    assert [node_id for node_id in sorted(named) if not exists(node_id)] == []
    assert not (named - ran_tests.node_ids if ran_tests.whole_suite else set())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("| a | `tests/a.py::test_b` |", [("a", ("tests/a.py::test_b",))]),
        (
            "| 5.1 | a \\| b | `tests/a.py::t`, `tests/a.py::T::u` |",
            [("5.1 | a \\| b", ("tests/a.py::t", "tests/a.py::T::u"))],
        ),
        ("|---|---|", []),
        ("| promise | tests |", []),
        ("text", []),
    ],
)
def test_rows_are_read_from_the_table(line, expected):
    """A row gives its promise and the ids of its last column; rules, heads and text give nothing."""
    assert rows(line) == expected


@pytest.mark.parametrize(
    ("node_id", "there"),
    [
        ("tests/test_promises.py::test_every_named_test_exists", True),
        ("tests/test_promises.py::test_rows_are_read_from_the_table[text]", True),
        ("tests/test_promises.py::test_nobody_wrote", False),
        ("tests/test_nobody.py::test_a", False),
    ],
)
def test_only_tests_in_the_tree_exist(node_id, there):
    """An id exists when its file and its function do."""
    assert exists(node_id) is there
