"""Tool files: each load is a module of its own, and what goes wrong is told with path and line."""

from __future__ import annotations

import compileall
import os
import pickle
import sys
import textwrap
import traceback

import pytest

from yiemagent.errors import ToolLoadError
from yiemagent.tool_files import forget, load_file


@pytest.fixture
def write(tmp_path):
    """Write a file into the folder."""

    def write(name, text, encoding="utf-8"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(textwrap.dedent(text).encode(encoding))
        return path.resolve()

    return write


@pytest.fixture(autouse=True)
def _modules_as_before():
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("yiemagent_tool_files_"):
            del sys.modules[name]


def load(path):
    return load_file(path).given


def failure(path):
    with pytest.raises(ToolLoadError) as caught:
        load_file(path)
    error = caught.value
    assert error.path == str(path)
    assert str(error).startswith(str(path))
    assert not [
        name for name, module in sys.modules.items() if getattr(module, "__file__", "") == str(path)
    ]
    return error


def test_get_tool_gives_what_a_file_is_for(write):
    """The file is run and its get_tool() is called, once."""
    path = write("one.py", "CALLS = []\ndef get_tool():\n    CALLS.append(1)\n    return CALLS\n")

    assert load(path) == [1]


def test_two_loads_never_meet(write):
    """Each load has globals of its own, also of the same file."""
    path = write("one.py", "SEEN = []\ndef get_tool():\n    SEEN.append(1)\n    return SEEN\n")
    first, second = load(path), load(path)

    assert first == second == [1]
    assert first is not second


def test_a_file_named_like_a_library_harms_nobody(write):
    """`json.py` is a tool file like any other, and imports the real json."""
    path = write("json.py", "import json\ndef get_tool():\n    return json\n")

    assert load(path) is sys.modules["json"]
    assert not hasattr(sys.modules["json"], "get_tool")


def test_classes_of_a_file_work_as_anywhere(write):
    """Dataclasses, type hints and pickling find the module under its name."""
    path = write(
        "typed-one.py",
        """
        from __future__ import annotations
        import dataclasses, typing

        @dataclasses.dataclass
        class Row:
            name: str
            limit: typing.ClassVar[int] = 3

        def get_tool():
            return Row("x"), typing.get_type_hints(Row)
        """,
    )
    row, hints = load(path)

    assert pickle.loads(pickle.dumps(row)) == row
    assert hints["name"] is str
    assert type(row).__module__.endswith(".typed_one")
    assert sys.modules[type(row).__module__].__file__ == str(path)


def test_tracebacks_show_the_source(write):
    """A traceback out of a tool's function shows the line of its file."""
    get = load(
        write(
            "bad.py", "def fail():\n    raise ValueError('x')\ndef get_tool():\n    return fail\n"
        )
    )
    with pytest.raises(ValueError) as caught:
        get()

    assert "raise ValueError('x')" in "".join(traceback.format_exception(caught.value))


def test_helpers_beside_a_file_are_imported_relatively(write):
    """Modules and packages of the folder are found, each load with its own; nothing gets onto sys.path."""
    write("_shared.py", "WORDS = []\n")
    write("_lib/__init__.py", "from .inner import VALUE\n")
    write("_lib/inner.py", "from .._shared import WORDS\nVALUE = 7\nWORDS.append('inner')\n")
    source = """
        from . import _shared
        from ._lib import VALUE

        def get_tool():
            return VALUE, _shared.WORDS
        """
    before = list(sys.path)
    first, second = load(write("a.py", source)), load(write("b.py", source))

    assert first == second == (7, ["inner"])
    assert first[1] is not second[1]
    assert sys.path == before


def test_no_bytecode_is_read_or_written(write, tmp_path):
    """What is run is the source as it is now, whatever a cache beside it says."""
    path = write("one.py", "from ._h import V\ndef get_tool():\n    return 1, V\n")
    helper = write("_h.py", "V = 1\n")
    stamp = (1e9, 1e9)
    for file in (path, helper):
        os.utime(file, stamp)
    compileall.compile_dir(tmp_path, quiet=1)
    cached = sorted((tmp_path / "__pycache__").iterdir())
    contents = [file.read_bytes() for file in cached]
    path.write_text("from ._h import V\ndef get_tool():\n    return 2, V\n")
    helper.write_text("V = 2\n")
    for file in (path, helper):
        os.utime(file, stamp)

    assert load(path) == (2, 2)
    assert [file.read_bytes() for file in cached] == contents
    assert sorted((tmp_path / "__pycache__").iterdir()) == cached


def test_whether_a_load_is_current_is_told_by_content(write):
    """A change of the file or of a helper counts, a new time does not."""
    helper = write("_h.py", "V = 1\n")
    path = write("one.py", "from . import _h\ndef get_tool():\n    return 1\n")
    loaded = load_file(path)
    os.utime(path, (1, 1))
    assert loaded.is_current()
    helper.write_text("V = 2\n")
    assert not loaded.is_current()
    helper.unlink()

    assert not loaded.is_current()


def test_forgetting_removes_the_modules_of_one_load(write):
    """File and helpers go from sys.modules, other loads stay, and functions go on."""
    write("_h.py", "V = 1\n")
    path = write(
        "one.py",
        "from . import _h\ndef value():\n    return _h.V\ndef get_tool():\n    return value\n",
    )
    one, other = load_file(path), load_file(path)
    forget(one.package)

    assert [name for name in sys.modules if name.startswith(f"{one.package}.")] == []
    assert f"{other.package}._h" in sys.modules
    assert one.given() == 1


def test_the_encoding_is_what_the_coding_line_says(write):
    """Latin-1 with its line, and UTF-8 with a byte order mark, are read."""
    text = "# -*- coding: latin-1 -*-\nWORD = 'café'\ndef get_tool():\n    return WORD\n"

    assert load(write("latin.py", text, "latin-1")) == "café"
    assert (
        load(write("bom.py", "WORD = 'café'\ndef get_tool():\n    return WORD\n", "utf-8-sig"))
        == "café"
    )


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        ("x = 1\ndef get_tool(:\n", 2, "SyntaxError: "),
        ("import module_that_is_not_there\n", 1, "module_that_is_not_there"),
        ("import sys\nsys.exit(4)\n", 2, "SystemExit: 4"),
        ("\nraise KeyboardInterrupt\n", 2, "KeyboardInterrupt"),
        ("raise BaseException('odd')\n", 1, "BaseException: odd"),
        ("def get_tool():\n    raise RuntimeError('no licence')\n", 2, "RuntimeError: no licence"),
        ("import json\njson.loads('{')\n", 2, "JSONDecodeError"),
        ("", None, "get_tool"),
        ("get_tool = 5\n", None, "get_tool"),
        ("async def get_tool():\n    return 1\n", None, "get_tool"),
        ("from ._missing import x\n", 1, "_missing"),
        ("from .one import x\nfrom ._bad import y\n", 1, "x"),
        ("x = 'a\0'\n", 1, "null"),
        ("# coding: no-such-code\n", None, "no-such-code"),
    ],
)
def test_what_goes_wrong_is_told_with_its_line(write, source, line, words):
    """Whatever a file raises is one error with path, line and reason, and leaves no module."""
    error = failure(write("one.py", source))

    assert error.line == line
    assert words in error.reason


def test_a_file_that_is_no_text_is_told_with_its_line(write):
    """Bytes that are no UTF-8, without a coding line, are an encoding error of that line."""
    error = failure(write("one.py", "x = 1\ny = 'café'\n", "latin-1"))

    assert error.line == 2
    assert "encoding" in error.reason


def test_a_broken_helper_is_told_with_its_own_place(write):
    """The line is that of the import, and the reason names the helper's line."""
    helper = write("_bad.py", "x = 1\ndef f(:\n")
    error = failure(write("one.py", "import sys\nfrom . import _bad\n"))

    assert error.line == 2
    assert f"{helper}, line 2" in error.reason


def test_a_helper_that_raises_an_interrupt_is_a_failure(write):
    """KeyboardInterrupt that code raises by itself is no wish of a person."""
    helper = write("_bad.py", "raise KeyboardInterrupt\n")
    error = failure(write("one.py", "from . import _bad\n"))

    assert error.reason == f"KeyboardInterrupt ({helper}, line 1)"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("from ._gone import x", "ModuleNotFoundError: there is no file {}/_gone.py"),
        ("from . import _gone", "ImportError: there is no file {}/_gone.py"),
        ("from ._empty import x", "ImportError: cannot import name 'x' from '{}/_empty.py'"),
        (
            "from . import _empty\n_empty.x",
            "AttributeError: module '{}/_empty.py' has no attribute 'x'",
        ),
        (
            "from ._empty.deep import x",
            "ModuleNotFoundError: there is no file {0}/_empty/deep.py; '{0}/_empty.py' is not a package",
        ),
        ("from ._pack import y", "ImportError: cannot import name 'y' from '{}/_pack/__init__.py'"),
        (
            "from ._pack import x, _bad",
            "ModuleNotFoundError: No module named 'not_there_9' ({}/_pack/_bad.py, line 2)",
        ),
        (
            "from ._pack import x\ndef get_tool(): x()",
            "ValueError: no ({}/_pack/__init__.py, line 2)",
        ),
        ("from .the_file import x", "ImportError: cannot import name 'x' from '{}/the-file.py'"),
    ],
)
def test_a_helper_is_named_by_its_file(write, source, reason):
    """Whatever fails about one, the reason has the path that people know, and no name that a load made up."""
    write("_empty.py", "")
    write("_pack/__init__.py", "def x():\n    raise ValueError('no')\n")
    write("_pack/_bad.py", "\nimport not_there_9\n")
    path = write("the-file.py", source)

    assert failure(path).reason == reason.format(path.parent)


def test_a_long_text_is_cut(write):
    """Of what a file raises the beginning is told, with its line, and where a helper raised it, with that place."""
    error = failure(write("one.py", "raise ValueError('x' * 10**6)\n"))
    helper = write("_bad.py", "raise ValueError('x' * 10**6)\n")
    by_helper = failure(write("two.py", "\nfrom . import _bad\n"))

    assert (error.line, by_helper.line) == (1, 2)
    assert error.reason.startswith("ValueError: xxx")
    assert error.reason.endswith("x [… 998,042 more characters]")
    assert by_helper.reason.endswith(f"more characters] ({helper}, line 1)")
    assert max(map(len, (str(error), str(by_helper)))) < 3000


def test_an_exception_without_words_is_told_by_its_class(write):
    """Also one that raises when it is asked for them, or whose words are no text."""
    nasty = "class E(Exception):\n    def __str__(self):\n        raise SystemExit\nraise E\n"

    assert failure(write("one.py", nasty)).reason == "E"
    assert failure(write("one.py", "raise SyntaxError\n")).reason == "SyntaxError"
    assert failure(write("one.py", "raise SyntaxError(5)\n")).reason == "SyntaxError: 5"


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    """A file that is gone is an error like any other."""
    assert "FileNotFoundError" in failure(tmp_path.resolve() / "gone.py").reason


def test_a_person_may_interrupt_a_load(write):
    """Ctrl-C during a file that does not end leaves as KeyboardInterrupt, and no module stays."""
    # The file sends it: from another thread it may come just before a wait that then never ends.
    path = write(
        "slow.py", "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nwhile True:\n    pass\n"
    )
    with pytest.raises(KeyboardInterrupt):
        load_file(path)

    assert not [
        module
        for module in list(sys.modules.values())
        if getattr(module, "__file__", "") == str(path)
    ]
