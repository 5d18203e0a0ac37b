"""Code as the body of a function: what is refused and where, and how it is indented."""

from __future__ import annotations

import pytest

from yiemagent.tool_code import CODE_CHARACTERS, CodeProblem, problem_at, read_body

PARAMETERS = ("tool_call_id", "args", "signal", "on_partial_result")


def body(text):
    return read_body("execute_code", text, PARAMETERS)


def refused(text):
    with pytest.raises(CodeProblem) as caught:
        body(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("x = (1,\n  y = 3", "line 1, column 5", "was never closed"),
        ("\n\nif x\n  y", "line 3, column 5", "expected ':'"),
        ("    x = 1\n    é = é +* 2", "line 2, column 12", "invalid syntax"),
        ("\tx = 1\ny = 2", "line 2, column 1", "indented less than the first line"),
        ("  if a:\n    b\nelse:\n  c", "line 4, column 1", "indented less than the first line"),
        ("x = 1\n  y = 2", "line 2", "unexpected indent"),
        ("if x:\n\ty\n        z", "line 3", "TabError"),
        ("break", "line 1, column 1", "'break' outside loop"),
        ("x = 1; é = 2; nonlocal q", "line 1, column 15", "no binding for nonlocal 'q'"),
        ("from os import *", "line 1", "import * only allowed at module level"),
        ("global args", "line 1, column 1", "parameter and global"),
        ("def f():\n    return 1\n", "line 1", "never calls it"),
        ("import os\nclass A: pass\ndef f(): pass\n'text'", "line 3", "never calls it"),
        ("x = 1\nfrom __future__ import annotations\nx", "line 2", "must occur at the beginning"),
        ("from __future__ import nothing\n1", "line 1", "future feature nothing is not defined"),
        ("from __future__ import division; x = 1", "line 1", "its line to itself"),
        ("x = 1; from __future__ import division", "line 1", "must occur at the beginning"),
        ("x = '\0'", "line 1, column 6", "a null character"),
        ("x = 1\nüy = '\ud800'", "line 2, column 7", "half of a surrogate pair"),
        ("x = 1  # \u202e 2", "line 1, column 10", r"write \u202e in a string"),
        ("'''", "line 1, column 1", "unterminated"),
        ("x = 1 +", "line 1", "invalid syntax"),
        ("return f'{'", "line 1", "f-string"),
    ],
)
def test_what_python_refuses_is_told_with_its_place(text, place, reason):
    """Line and column are those of the code as it was sent, in characters, whatever its indentation is."""
    told = refused(text)

    assert told.startswith(f"execute_code, {place}")
    assert reason in told


@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        ("async def f():\n    pass\nf()", "line 1, column 1", "async def"),
        ("x = 1\nif x:\n    y = await x", "line 3, column 9", "await"),
        ("async with a as b:\n    pass", "line 1, column 1", "async with"),
        ("async for a in b:\n    pass", "line 1, column 1", "async for"),
        ("é = [1 async for a in b]", "line 1, column 18", "async for"),
        ("def f():\n    async def g(): pass\nf()", "line 2, column 5", "async def"),
    ],
)
def test_code_for_an_event_loop_is_refused(text, place, word):
    """Anything asynchronous is refused with its place and the reason: tools run on plain threads."""
    told = refused(text)

    assert told.startswith(f"execute_code, {place}: {word} is refused: tools run on plain threads")


@pytest.mark.parametrize("text", ["", "\n \n", "# nothing\n", "from __future__ import annotations"])
def test_code_that_does_nothing_is_refused(text):
    """Code without a statement is no body."""
    assert refused(text) == "execute_code holds no statement"


def test_code_has_a_limit():
    """More than a hundred thousand characters are refused before anything reads them."""
    assert refused("x" * (CODE_CHARACTERS + 1)).startswith("execute_code has 100,001 characters")


@pytest.mark.parametrize("text", ["x = " + "(" * 5000 + ")" * 5000, "x = " + "-" * 50_000 + "1"])
def test_code_that_is_nested_too_deeply_is_refused(text):
    """What the parser or the compiler can't nest is an error like any other."""
    assert refused(text).startswith("execute_code")


def test_the_line_is_shown_with_a_mark():
    """A problem shows its line and marks the column; a line that is too long or can't be shown is left out."""
    assert (
        str(problem_at("x", "a = 1\nb = = 2", 2, 5, "no"))
        == "x, line 2, column 5: no\n    b = = 2\n        ^"
    )
    assert str(problem_at("x", "a = 1", 1, None, "no")) == "x, line 1: no\n    a = 1"
    assert str(problem_at("x", "y" * 101, 1, 1, "no")) == "x, line 1, column 1: no"
    assert str(problem_at("x", "\ta", 1, 1, "no")) == "x, line 1, column 1: no"
    assert str(problem_at("x", "a", 7, 1, "no")) == "x, line 7, column 1: no"


@pytest.mark.parametrize(
    ("text", "placed"),
    [
        ("return 1", ["    return 1"]),
        ("\n\n  x = 1  \n\n  return x\n\n", ["    x = 1", "", "    return x"]),
        (
            "if a:\n\tb\n\tif c:\n\t d\nelse:\n e",
            ["    if a:", "        b", "        if c:", "            d", "    else:", "        e"],
        ),
        ("x = '''a\n  b\t\n'''  \ny", ["    x = '''a", "  b\t", "'''", "    y"]),
        ("f(1,\n  2,\n\n  3)", ["    f(1,", "      2,", "", "      3)"]),
        ("  f(1,\n    2,\n 3)", ["    f(1,", "      2,", "    3)"]),
        ("x = 1 + \\\n  2", ["    x = 1 + \\", "      2"]),
        (
            "if a:\n  # inner\n  b\n  # still\n# outer\nc\n# end",
            [
                "    if a:",
                "        # inner",
                "        b",
                "        # still",
                "    # outer",
                "    c",
                "    # end",
            ],
        ),
        ("if a:\n    b\n    # end", ["    if a:", "        b", "        # end"]),
        ("if a:\n    b\n# end", ["    if a:", "        b", "    # end"]),
        ("x\r\ny\rz", ["    x", "    y", "    z"]),
        ("\ufeffreturn 1", ["    return 1"]),
        ("if a:\n  \\\n  \\\n    b\nc", ["    if a:", "", "", "        b", "    c"]),
        ("a + \\\n \\\n  b", ["    a + \\", "     \\", "      b"]),
        ("x = 1\x0c\n\x0cy", ["    x = 1", "    y"]),
    ],
)
def test_lines_are_indented_for_their_place(text, placed):
    """Blocks are indented by four; inner lines of strings, and how far a line goes on, stay as they are."""
    assert list(body(text).lines) == placed


def test_lines_keep_their_numbers():
    """The first line is counted from where the code begins, blank lines before it and a future import too."""
    found = body("\nfrom __future__ import annotations\n\nx: y = 1\nreturn x")

    assert found.first == 4
    assert found.lines == ("    x: y = 1", "    return x")
    assert found.futures == ("from __future__ import annotations",)


def test_names_are_found_in_every_scope():
    """All names that are read, set or deleted, or declared, and where one is first read."""
    found = body(
        "ü = a; x = b + a\ndef f(y):\n    global g\n    del ü\n    return [z for z in y]\nreturn f"
    )

    assert found.names() == {"a", "b", "f", "g", "x", "y", "z", "ü"}
    assert found.places_of({"a", "b", "x"}) == {"a": (1, 5), "b": (1, 12)}


def test_needed_modules_are_found():
    """Each import counts, in whatever block, but for those that are tried and those of helpers beside the file."""
    found = body(
        "import a, b.c as d\nif a:\n  from e.f import g\ntry:\n  import h\nexcept ImportError:\n  import i\n"
        "from . import j\nfrom .k import l\ntry:\n  import m\nexcept* OSError:\n  pass"
    )

    assert found.imported() == [("a", 1), ("b.c", 1), ("e.f", 3)]
