"""Tool files as they are written: what the code in them does, and how they look."""

from __future__ import annotations
import __future__ as futures

import ast
import functools
import json
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import yiemagent
from yiemagent.errors import ToolError
from yiemagent.tool_drafts import ToolDraft
from yiemagent.tool_files import forget, load_file
from yiemagent.tool_writer import OFFERED, write_text

ROOT = Path(__file__).resolve().parent.parent
DRAFT = ToolDraft(
    name="search_wine",
    label="Wine Search",
    description="Search a list of wines by name. Nothing else.",
    input_schema={"type": "object", "properties": {"query": {"type": "string"}}},
    execute_code="return args['query'].upper()",
)


def written(code, **fields):
    return write_text(attrs.evolve(DRAFT, execute_code=code, **fields))


def problems(code, **fields):
    with pytest.raises(ToolError) as caught:
        written(code, **fields)
    return str(caught.value)


@pytest.fixture
def load(tmp_path):
    """Load a text as a tool file and give its tool; its module goes with the test."""
    packages = []

    def load(text):
        path = tmp_path / "search_wine.py"
        path.write_text(text, encoding="utf-8")
        loaded = load_file(path.resolve())
        packages.append(loaded.package)
        return loaded.given

    yield load
    for package in packages:
        forget(package)


# -- the code says what it said ---------------------------------------------------------------------------------------


def by_itself(code):
    """Make the code a function without the writer: its statements, put into a function as a tree."""
    tree = ast.parse("def body(tool_call_id, args, signal, on_partial_result): pass")
    statements = ast.parse(code).body
    flags = 0
    while isinstance(statements[0], ast.ImportFrom) and statements[0].module == "__future__":
        for alias in statements.pop(0).names:
            flags |= getattr(futures, alias.name).compiler_flag
    tree.body[0].body = statements
    space = {}
    exec(compile(tree, "<by itself>", "exec", flags=flags, dont_inherit=True), space)
    return space["body"]


def outcome(function, args):
    """What a call gives: its value, or what it raises, in words."""
    try:
        return repr(function("1", args, None, print))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


ATOMS = [
    "1",
    "0x_ff",
    "1e-3j",
    "-7 // 2",
    "'single'",
    '"dou\\"ble"',
    "'é ü ß 漢字 \\u00e9 \U0001f600'",
    "r'\\d\\n'",
    "b'\\x00\\xff'",
    "'''one\n  two\n\tthree'''",
    '"""\n\n   """',
    '"""a "quoted" line\\\n   goes on"""',
    "'back\\\n  slash'",
    "f'{1 + 1!r:>4}'",
    'f"""{[x\n   for x in (1, 2)]}\n\t{{kept}}\n  """',
    "f'{args=}'",
    'rf"""\\w{1}\n    \\s"""',
    "('implicit '\n  'joined')",
    "(1,\n 2,\n\t3)",
    "{'k': [1,\n  # a comment inside\n   2]}",
    "[i * j for i in range(3)\n  for j in range(2) if i]",
    "(lambda x, *, y='''\n d''': (x, y))(1)",
    "1 + \\\n   2",
    "args.get('query')",
    "...",
    "'\\N{BULLET}'",
    "''' ends with a tab\t\n'''",
    "'''\r\n'''",
    "'\x0c'",
]
atoms = st.sampled_from(ATOMS)


@st.composite
def simple(draw):
    """One simple statement, or several on a line."""
    value = draw(atoms)
    return draw(
        st.sampled_from(
            [
                f"out.append({value})",
                f"out += [{value}, {value}]",
                f"x = {value}; out.append(x)",
                f"x: object = {value}\nout.append(x)",
                f"assert {value} or True, 'never'",
                f"{value}",
                "pass  # nothing",
                "import json as j; out.append(j.dumps([1]))",
                "from os import path",
                f"(y := {value}); out.append(y)",
                "del out[:1]",
                f"# a comment with {value.splitlines()[0]!r}\nout.append(0)",
            ]
        )
    )


HEADS = [
    ["if out:", "elif args:", "else:"],
    ["for i in range(2):", "else:"],
    ["while len(out) < 40:", "else:"],
    ["try:", "except ValueError as error:", "else:", "finally:"],
    ["with open('/dev/null') as f:"],
    ["def inner(a, b=1, *c, **d) -> int:"],
    ["@(lambda f: f)\n@staticmethod\ndef decorated():"],
    ["class Thing:"],
    ["match args:", None],
    ["async_ = 1\nif async_:"],
    ["def generate():\n  yield 1\nout += generate()\nif True:"],
]


def block(lines, unit):
    """Indent the lines of a block; what is inside of a string stays where it is."""
    return [(unit + text, fixed) if not fixed else (text, fixed) for text, fixed in lines]


@functools.cache
def as_lines(text):
    """Give a statement as lines, each with whether it begins inside of a string."""
    rows = text.split("\n")
    inner = set()
    for token in ast.walk(ast.parse(text)):
        if isinstance(token, (ast.Constant, ast.JoinedStr)) and token.end_lineno != token.lineno:
            inner.update(range(token.lineno + 1, token.end_lineno + 1))
    return [(row, number in inner) for number, row in enumerate(rows, 1)]


@st.composite
def bodies(draw, depth=0):
    """Statements as lines, in whatever indentation."""
    lines = []
    for _ in range(draw(st.integers(1, 4))):
        if depth < 3 and draw(st.booleans()):
            lines += draw(compound(depth))
        else:
            lines += as_lines(draw(simple()))
        lines += draw(
            st.sampled_from(
                [[], [("", False)], [("  \t", False)], [(" # c", False)], [("#", False)]]
            )
        )
    return lines


@st.composite
def compound(draw, depth):
    """A statement with blocks."""
    unit = draw(st.sampled_from([" ", "  ", "   ", "    ", "\t", "        "]))
    lines = []
    for head in draw(st.sampled_from(HEADS)):
        if head is None:  # cases of a match
            inner = block(draw(bodies(depth + 1)), unit)
            lines += block([("case {'query': str(q)} if q:", False), *inner], unit)
            inner = block(draw(bodies(depth + 1)), unit)
            lines += block([("case _:", False), *inner], unit)
            continue
        lines += [(row, False) for row in head.split("\n")]
        if not head.startswith("match"):
            inner = draw(bodies(depth + 1))
            if head.startswith("while"):
                inner.append(("break", False))
            lines += block(inner, unit)
    return lines


@st.composite
def codes(draw):
    """A whole piece of code: plain, and as it is sent, in some other look."""
    lines = [("out = []", False), *draw(bodies()), ("return out", False)]
    if draw(st.booleans()):
        lines.insert(0, ("from __future__ import annotations  # first", False))
    plain = "\n".join(text for text, _ in lines)
    whole = draw(st.sampled_from(["", "", "    ", "\t", "  "]))
    sent = "\n".join(text for text, _ in block(lines, whole))
    end = draw(st.sampled_from(["\n", "\n", "\r\n", "\r"]))
    return plain, draw(st.sampled_from(["", "\n", "  \n\n"])) + sent.replace("\r\n", "\n").replace(
        "\n", end
    )


def compiles(code):
    """Whether Python takes the code as a function's body: not every statement may stand everywhere."""
    try:
        by_itself(code)
    except SyntaxError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.time_limit(180)
@settings(max_examples=150)
@given(codes().filter(lambda pair: compiles(pair[0])))
def test_the_code_in_a_file_does_what_it_does_by_itself(tmp_path_factory, pair):
    """Any function body, sent in any look, gives in the written file what it gives by itself."""
    plain, sent = pair
    path = tmp_path_factory.getbasetemp() / "search_wine.py"
    path.write_text(written(sent).text, encoding="utf-8")
    loaded = load_file(path.resolve())
    try:
        for args in ({"query": "red"}, {}):
            expected = outcome(by_itself(plain), dict(args))
            assert outcome(loaded.given.function, dict(args)) == expected
    finally:
        forget(loaded.package)


@pytest.mark.parametrize("atom", ATOMS)
def test_every_kind_of_literal_stays_as_it_is(load, atom):
    """A literal or expression gives in a file what it gives by itself, deep inside of blocks in tabs, too."""
    code = f"if True:\n\tif args:\n\t\tx = {atom}\n\telse:\n\t\tx = ({atom},)\nreturn x"
    tool = load(written(code).text)

    for args in ({"query": "red"}, {}):
        assert outcome(tool.function, args) == outcome(by_itself(code), args)


def test_code_that_is_generated_step_by_step_runs_so(load):
    """Code that yields is a generator in the file, as it is by itself."""
    tool = load(written("yield 1\nyield from 'ab'").text)

    assert tool.execute("1", {}).text == '[1, "a", "b"]'


def test_a_future_import_stands_at_the_head_of_the_file(load):
    """It holds for the code, which keeps its line numbers, and is no statement of the function."""
    code = "from __future__ import (\n  annotations)\ndef f(x: nowhere): ...\nreturn f.__annotations__['x']"
    text = written(code, validate_code="from __future__ import division\nreturn None")
    lines = text.text.split("\n")

    assert lines[2:4] == ["from __future__ import annotations, division", ""]
    assert load(text.text).execute("1", {}).text == "nowhere"
    number = next(n for n, line in enumerate(lines, 1) if "return f.__ann" in line)
    body, line = text.place(number)
    assert (body.piece, line) == ("execute_code", 4)
    assert text.place(1) is None


def test_all_three_pieces_have_their_functions(load):
    """Arguments are prepared, checked and used by the pieces; code that ends without a word gives what is meant."""
    text = written(
        "return args['query']",
        prepare_code="if 'q' in args:\n    args['query'] = args.pop('q')",
        validate_code="if len(args['query']) > 3:\n    return 'too long'",
        parallel=True,
    )
    tool = load(text.text)

    assert tool.prepare_arguments({"q": "red"}) == {"query": "red"}
    assert tool.validate_required_args({"query": "long one"}) == "too long"
    assert tool.validate_required_args({"query": "red"}) is None
    assert tool.execute("1", {"query": "red"}).text == "red"
    assert tool.parallel_tool_execute
    assert not load(written("return 1").text).parallel_tool_execute


def test_the_tool_is_what_was_described(load):
    """Name, label, description and schema are what was given, whatever characters they have."""
    schema = {
        "type": "object",
        "properties": {
            "a\u2028\"'": {"type": "string", "description": "x " * 90, "default": "\\n\t\x00"},
            "n": {"type": ["integer", "null"], "enum": [1, -2.5, True, None, 1e300]},
            "deep": {"type": "object", "properties": {"k" * 95: {"type": "array", "items": {}}}},
        },
    }
    words = "One 'two' \"three\" \u202e\n" + "x" * 150 + " " + "word " * 40
    tool = load(written("return 1", input_schema=schema, label='L"\\', description=words).text)

    assert (tool.name, tool.label, tool.description) == ("search_wine", 'L"\\', words)
    assert json.dumps(tool.input_schema) == json.dumps(schema)


def test_code_that_cannot_be_placed_is_refused():
    """A backslash at the margin of a block is followed from Python 3.12 on; before, it is refused with the reason."""
    code = "if args:\n\\\n    x = 1\nreturn 1"
    told = ""
    try:
        written(code)
    except ToolError as error:
        told = str(error)

    refused = "- execute_code can't be indented; begin no line with a backslash"
    assert told == (refused if sys.version_info < (3, 12) else "")


# -- what the code may use --------------------------------------------------------------------------------------------


def test_names_of_the_library_need_no_import(load):
    """What a tool needs of the library is imported where the code uses it, and exists."""
    code = "return AgentToolResult([TextContent('made')], details={'a': 1})"
    text = written(code).text
    tool = load(text)

    assert "from yiemagent import AbortSignal, AgentTool, AgentToolResult, TextContent\n" in text
    assert tool.execute("1", {}).text == "made"
    assert set(yiemagent.__all__) >= OFFERED


def test_a_name_that_nobody_defines_is_told_with_its_place():
    """It is told where it is first read; a module of the standard library with what to add."""
    told = problems("x = [\n  json.dumps(1),\n  jsn]\nreturn x")

    assert (
        "- execute_code, line 2, column 3: the name 'json' is not defined; add 'import json'"
        in told
    )
    assert "- execute_code, line 3, column 3: the name 'jsn' is not defined\n" in told


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (f"return [{', '.join(f'name_{n}' for n in range(3000))}]", {}),
        (
            "return 1",
            {"imports": [f"import {'x' * 10**6} as args", f"import {'y' * 10**6} as args"]},
        ),
        (
            "return 1",
            {"input_schema": {"type": "object", "required": [f"r{n}" for n in range(5000)]}},
        ),
    ],
)
def test_however_much_is_wrong_the_error_is_short(code, fields):
    """The first problems are told, and that more is left out."""
    told = problems(code, **fields)

    assert told.startswith("- ")
    assert "more characters]" in told
    assert len(told) <= 8000


@pytest.mark.parametrize(
    "code",
    [
        "return __name__, __file__",
        "global made\nmade = 1\nreturn made",
        "def f():\n    global made\n    made = 1\nf()\nreturn made",
        "class A:\n    x = 1\n    y = [x for _ in (1,)][:0]\nreturn A",
        "return [a for a in range(3)], (lambda b: b)(1), INPUT_SCHEMA, Any",
        "try:\n    pass\nexcept OSError as e:\n    print(e)\nimport os.path as p\nreturn p.sep",
        "match args:\n    case {'a': x, **rest}:\n        return x, rest",
    ],
)
def test_names_that_are_defined_somehow_are_no_problem(code):
    """Names of the module, global ones, and those that any kind of statement binds are defined."""
    assert written(code.replace("[x for", "[1 for")).text


def test_imports_are_kept_where_they_are_used():
    """What the code uses is imported in order; what nothing uses is left out and named."""
    text = written(
        "return json.dumps(path.sep), re, dt, UTC, Any",
        imports=[
            "import os, re",
            "json",
            "from os import path",
            "from typing import Any",
            "from datetime import datetime as dt, timedelta, UTC",
            "import json",
        ],
    )
    head = text.text.split("INPUT_SCHEMA")[0].split("\n")

    assert head[2:11] == [
        "import json",
        "import re",
        "from collections.abc import Callable",
        "from datetime import UTC",
        "from datetime import datetime as dt",
        "from os import path",
        "from typing import Any",
        "",
        "from yiemagent import AbortSignal, AgentTool",
    ]
    assert text.left_out == ("import os", "from datetime import timedelta")
    assert ("json", "imports, 'import json'") in text.needed


def test_nothing_is_left_out_where_code_looks_at_names():
    """Code that evaluates text may use any import and any parameter."""
    text = written("return eval('json.dumps(signal)')", imports=["json"])

    assert text.left_out == ()
    assert "    del " not in text.text


def test_modules_that_the_code_needs_are_named():
    """Each import that the code can't do without is named with its place; one that it tries is not."""
    text = written(
        "import a.b\ntry:\n    import c\nexcept ImportError:\n    c = None\nfrom d import e\n"
        "from . import f\nreturn a, c, e, f",
        imports=["numpy"],
    )

    assert text.needed == (("a.b", "execute_code, line 1"), ("d", "execute_code, line 6"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("import json as get_tool", "takes a name that the file itself uses"),
        ("from x import Any", "hides 'from typing import Any'"),
        ("from x import AgentTool", "hides 'from yiemagent import AgentTool'"),
    ],
)
def test_an_import_must_not_hide_what_the_file_needs(given, said):
    """An import that takes a name of the file's own is refused with the reason."""
    assert said in problems("return 1", imports=[given])


def test_the_same_import_as_the_files_own_is_welcome(load):
    """Imports that the file has anyway, and the Callable of typing, are taken as they are."""
    text = written("return Callable, Any", imports=["from typing import Any, Callable"]).text

    assert "from typing import Any, Callable\n" in text
    assert "collections.abc" not in text
    assert load(text).name == "search_wine"


# -- everything that is wrong -----------------------------------------------------------------------------------------


def test_all_that_is_wrong_is_told_at_once():
    """Name, words, schema, imports and each piece of code have their line in one error."""
    with pytest.raises(ToolError) as caught:
        write_text(
            ToolDraft(
                name="class",
                label="",
                description=" ",
                input_schema={"type": "string"},
                execute_code="return (",
                validate_code="nonlocal x",
                prepare_code="",
                imports=["x y"],
            )
        )
    told = str(caught.value).split("\n- ")

    assert [
        line.split(" ")[0].strip("-:,") for line in ("x" + str(caught.value)[1:]).split("\n- ")
    ][1:] == [
        "label",
        "description",
        "input_schema",
        "execute_code",
        "validate_code",
        "prepare_code",
        "imports",
    ]
    assert told[0].startswith("- name 'class'")


# -- how a file looks -------------------------------------------------------------------------------------------------

NEAT = """
query = args["query"]
wines = ["red", "white"]
on_partial_result({"looked_at": len(wines)})
found = [j, ast, os, attrs, made, replace, field, _helper]
found += [Annotated, ClassVar, Concatenate, Final, Generic, Literal, NamedTuple]
found += [TYPE_CHECKING, ParamSpec, Protocol, TypeVar, cast]
return AgentToolResult([TextContent(", ".join(w for w in wines if query in w))], details=found)
"""


def test_a_file_is_as_a_person_would_have_written_it(tmp_path):
    """With neat code in it, a file passes the linter and the formatter as they come, and under the house's rules."""
    long = {"type": "string", "description": "The word to look for. " * 8}
    schema = {"type": "object", "properties": {"query": long}, "required": ["query"]}
    text = written(
        NEAT,
        prepare_code='args["query"] = args["query"].strip()',
        validate_code="return bad if len(args) > some else None",
        imports=[
            "from dataclasses import dataclass as made, asdict as bad, fields as some, replace, field",
            "import json as j, ast, os.path",
            "from . import _helper",
            "import attrs",
            "from typing import TypeVar, Annotated, ClassVar, Concatenate, Final, Generic, Literal",
            "from typing import cast, NamedTuple, ParamSpec, Protocol, TYPE_CHECKING",
        ],
        input_schema=schema,
        description="Search a 'list' of wines by name, region, or variety. " * 4,
    ).text
    path = tmp_path / "search_wine.py"
    path.write_text(text, encoding="utf-8")
    ruff = [str(Path(sys.executable).with_name("ruff"))]
    config = str(ROOT / "pyproject.toml")
    for command in (
        ["check", "--isolated"],
        ["check", "--config", config, "--ignore", "INP001"],
        ["format", "--check", "--config", config],
    ):
        done = subprocess.run(
            [*ruff, *command, "--no-cache", str(path)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
    assert max(map(len, text.split("\n"))) <= 100


def test_the_whole_file():
    """A small tool's file, from its docstring to its last bracket."""
    assert (
        written("return args['query'].upper()").text
        == '''"""Wine Search."""

from collections.abc import Callable
from typing import Any

from yiemagent import AbortSignal, AgentTool

INPUT_SCHEMA: dict[str, Any] = {"type": "object", "properties": {"query": {"type": "string"}}}


def execute_tool(
    tool_call_id: str,
    args: dict[str, Any],
    signal: AbortSignal,
    on_partial_result: Callable[[Any], None],
) -> Any:
    """Search a list of wines by name."""
    del tool_call_id, signal, on_partial_result
    return args['query'].upper()


def get_tool() -> AgentTool:
    """Give the tool."""
    return AgentTool(
        name="search_wine",
        label="Wine Search",
        description="Search a list of wines by name. Nothing else.",
        input_schema=INPUT_SCHEMA,
        execute=execute_tool,
    )
'''
    )
