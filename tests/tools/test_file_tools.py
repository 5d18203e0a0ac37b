"""The tools that read, write, edit and search files of one folder."""

from __future__ import annotations

import base64
import os
import threading

import jsonschema
import pytest

from tests.support.loops import run as run_loop
from tools.files import edit_file, read_file, search_files, write_file
from yiemagent.abort import AbortSignal
from yiemagent.errors import AbortedError, ToolError
from yiemagent.testing import call

TOOLS = {
    module.__name__.rpartition(".")[2]: module
    for module in (edit_file, read_file, search_files, write_file)
}


@pytest.fixture
def root(tmp_path):
    """A folder with a secret beside it."""
    (tmp_path / "secret.txt").write_text("secret")
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def use(root):
    """Call a tool over that folder."""

    def execute(name, signal=None, **args):
        tool = TOOLS[name].get_tool(str(root))
        if tool.prepare_arguments is not None:
            args = tool.prepare_arguments(args)
        return tool.execute("call_1", args, signal)

    return execute


def failing(use, name, **args):
    """The words of a call that fails."""
    with pytest.raises(ToolError) as caught:
        use(name, **args)
    return str(caught.value)


# -- all of them --


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_schema_and_examples_are_sound(name, root):
    """Each schema is one, and each example's arguments fit it."""
    tool = TOOLS[name].get_tool(str(root))
    schema = {**tool.input_schema}
    jsonschema.Draft202012Validator.check_schema(schema)
    for _, arguments in tool.examples:
        jsonschema.validate({**arguments}, schema)

    assert tool.name == name
    assert tool.examples


def test_who_changes_something_says_so(root):
    """Reading and searching are read-only and may run side by side; writing and editing share a lock."""
    tools = {name: module.get_tool(str(root)) for name, module in TOOLS.items()}

    assert {n for n, t in tools.items() if t.annotations["readOnlyHint"]} == {
        "read_file",
        "search_files",
    }
    assert {n for n, t in tools.items() if t.parallel_tool_execute} == {"read_file", "search_files"}
    assert tools["write_file"].lock == tools["edit_file"].lock == (f"files of {root}",)


@pytest.mark.parametrize("path", ["../secret.txt", "/etc/hostname", "link", "way/secret.txt"])
@pytest.mark.parametrize(
    "name, more",
    [
        ("read_file", {}),
        ("write_file", {"content": "x", "overwrite": True}),
        ("edit_file", {"old_text": "secret", "new_text": "x"}),
        ("search_files", {"text": "secret"}),
        ("search_files", {}),
    ],
)
def test_nothing_outside_is_reached(use, root, name, more, path):
    """Every tool refuses every way out, and the file outside stays as it was."""
    (root / "link").symlink_to(root.parent / "secret.txt")
    (root / "way").symlink_to("..")

    assert "is outside of the folder" in failing(use, name, path=path, **more)
    assert (root.parent / "secret.txt").read_text() == "secret"


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_the_folder_is_that_of_the_environment(name, root, monkeypatch):
    """Without an argument a tool works in `YIEMAGENT_ROOT`."""
    monkeypatch.setenv("YIEMAGENT_ROOT", str(root))
    (root / "a.txt").write_text("here")
    args = {"path": "a.txt", "content": "x", "overwrite": True, "old_text": "here", "new_text": "y"}
    result = TOOLS[name].get_tool().execute("call_1", args)

    assert "a.txt" in f"{result.text} {result.details}"


def test_a_model_uses_them_together(root):
    """In one run a file is written, edited, found and read, with names that models use for the arguments."""
    done = run_loop(
        [
            call("write_file", {"file_path": "src/a.py", "content": "x = 1\n"}),
            call("edit_file", {"path": "src/a.py", "old_string": "1", "new_string": "2"}),
            call("search_files", {"text": "x ="}),
            call("read_file", {"filename": "src/a.py"}),
            "done",
        ],
        *(module.get_tool(str(root)) for module in TOOLS.values()),
    )

    assert [text for text, _ in done.results] == [
        "Wrote src/a.py: 1 lines, 6 bytes",
        "Edited src/a.py:\n@@ line 1 @@\n-x = 1\n+x = 2",
        "src/a.py:1: x = 2",
        "x = 2",
    ]


# -- read_file --


def test_a_file_is_read(use, root):
    """Its lines come as they are, without a byte order mark and with line feeds only."""
    (root / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    result = use("read_file", path="a.txt")

    assert result.text == "one\ntwo"
    assert {**result.details} == {
        "path": "a.txt",
        "size_bytes": 13,
        "first_line": 1,
        "last_line": 2,
        "lines": 2,
    }


def test_a_long_file_is_read_in_parts(use, root):
    """A part says which lines it holds and how to go on, and the parts are the whole."""
    lines = [f"line {n} " + "x" * 50 for n in range(3000)]
    (root / "long.txt").write_text("\n".join(lines))
    got, offset = [], 1
    while True:
        text, _, note = use("read_file", path="long.txt", offset=offset).text.partition(
            "\n\n[lines "
        )
        got += text.split("\n")
        if not note:
            break
        assert note.startswith(f"{offset} to {len(got)} of 3000; ")
        offset = int(note.rpartition("=")[2].rstrip("]"))

    assert got == lines


def test_some_lines_are_read(use, root):
    """`offset` and `limit` choose the lines."""
    (root / "a.txt").write_text("a\nb\nc\nd\n")

    assert use("read_file", path="a.txt", offset=2, limit=2).text == (
        "b\nc\n\n[lines 2 to 3 of 4; go on with offset=4]"
    )
    assert "has 4 lines; there is no line 5" in failing(use, "read_file", path="a.txt", offset=5)


def test_an_empty_file_says_so(use, root):
    """Nothing is told in words."""
    (root / "a.txt").write_text("")

    assert use("read_file", path="a.txt").text == "(the file is empty)"
    assert "has 0 lines" in failing(use, "read_file", path="a.txt", offset=2)


def test_what_is_no_text_is_not_read(use, root):
    """A file with null bytes is refused; one in another encoding is read as far as it goes."""
    (root / "binary").write_bytes(b"\x7fELF\0\0")
    (root / "latin.txt").write_bytes(b"caf\xe9")

    assert failing(use, "read_file", path="binary") == "'binary' is no text (6 bytes)"
    assert use("read_file", path="latin.txt").text == "caf�"


def test_an_image_is_shown(use, root):
    """An image is given as one, with its kind."""
    (root / "a.PNG").write_bytes(b"\x89PNG")
    result = use("read_file", path="a.PNG")

    assert result.content[1].mime_type == "image/png"
    assert base64.b64decode(result.content[1].data) == b"\x89PNG"


def test_a_file_that_is_too_large_is_refused(use, root):
    """A file beyond the limit is not read into memory."""
    with (root / "huge").open("wb") as file:
        file.truncate(read_file.MAX_FILE_BYTES + 1)

    assert "is larger than" in failing(use, "read_file", path="huge")


# -- write_file --


def test_a_file_is_written_and_replaced_only_when_asked(use, root):
    """A new file is written with its folders; one that is there only with `overwrite`."""
    assert (
        use("write_file", path="a/b.txt", content="é\n").text == "Wrote a/b.txt: 1 lines, 3 bytes"
    )
    assert "is there already" in failing(use, "write_file", path="a/b.txt", content="x")
    result = use("write_file", path="a/b.txt", content="x\ny", overwrite=True)

    assert result.text == "Replaced a/b.txt: 2 lines, 3 bytes"
    assert (root / "a" / "b.txt").read_text() == "x\ny"


def test_text_that_is_none_is_not_written(use, root):
    """A lone surrogate is told, and nothing is written."""
    assert "can't be written as UTF-8" in failing(use, "write_file", path="a", content="\ud800")
    assert list(root.iterdir()) == []


# -- edit_file --


def test_a_piece_is_replaced(use, root):
    """The one occurrence changes, and the answer shows it with what is around it."""
    (root / "a.py").write_text("a\nb\nc\nd\ne\nf\ng\n")
    result = use("edit_file", path="a.py", old_text="d", new_text="D\nDD")

    assert (root / "a.py").read_text() == "a\nb\nc\nD\nDD\ne\nf\ng\n"
    assert result.text == "Edited a.py:\n@@ line 4 @@\n b\n c\n-d\n+D\n+DD\n e\n f"


def test_a_piece_that_occurs_often_is_not_guessed(use, root):
    """Several occurrences are an error with their lines, unless all are to be replaced."""
    (root / "a.py").write_text("x\ny\nx\n")

    assert "occurs 2 times in 'a.py', on the lines 1, 3" in failing(
        use, "edit_file", path="a.py", old_text="x", new_text="z"
    )
    result = use("edit_file", path="a.py", old_text="x", new_text="z", replace_all=True)
    assert result.text.startswith(
        "Edited a.py in 2 places, the first of them:\n@@ line 1 @@\n-x\n+z"
    )
    assert (root / "a.py").read_text() == "z\ny\nz\n"


def test_a_piece_that_differs_in_blanks_is_pointed_at(use, root):
    """Where only blanks differ, the line is named; else the model is told to read again."""
    (root / "a.py").write_text("one\nif  x:\n\treturn  1\n")

    assert "; line 2 differs in blanks only" in failing(
        use, "edit_file", path="a.py", old_text="if x:\n    return 1", new_text=""
    )
    assert failing(use, "edit_file", path="a.py", old_text="none", new_text="") == (
        "'a.py' does not hold old_text; read the file again and copy the text exactly"
    )


def test_line_ends_and_marks_stay(use, root):
    """A file with CRLF and a byte order mark keeps both, though the model was shown neither."""
    (root / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n")
    use("edit_file", path="a.txt", old_text="one\ntwo", new_text="1\n2")

    assert (root / "a.txt").read_bytes() == b"\xef\xbb\xbf1\r\n2\r\nthree\r\n"


def test_an_edit_that_can_not_be_made_changes_nothing(use, root):
    """The same text, a file in another encoding, and text that is none leave the file as it was."""
    (root / "a.txt").write_text("text")
    (root / "latin.txt").write_bytes(b"caf\xe9")

    assert "are the same" in failing(use, "edit_file", path="a.txt", old_text="t", new_text="t")
    assert "is no text in UTF-8" in failing(
        use, "edit_file", path="latin.txt", old_text="caf", new_text="x"
    )
    assert "can't be written as UTF-8" in failing(
        use, "edit_file", path="a.txt", old_text="text", new_text="\ud800"
    )
    assert (root / "a.txt").read_text() == "text"


# -- search_files --


@pytest.fixture
def tree(root):
    """Some files, one of them no text and one too large."""
    (root / "src" / "deep").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "a.py").write_text("import os\nprint('Hello')\n")
    (root / "src" / "b.py").write_text("hello = 1\n")
    (root / "src" / "deep" / "c.js").write_text("// hello\r\n")
    (root / ".git" / "config").write_text("hello")
    (root / "binary.py").write_bytes(b"hello\0")
    (root / "large.py").write_bytes(b"hello\n" * (search_files.MAX_FILE_BYTES // 6 + 1))
    return root


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize(
    "args, lines",
    [
        ({"text": "hello"}, ["src/b.py:1: hello = 1", "src/deep/c.js:1: // hello"]),
        (
            {"text": "HELLO", "ignore_case": True, "files": "*.py"},
            ["a.py:2: print('Hello')", "src/b.py:1: hello = 1"],
        ),
        ({"text": "^h.*1$", "regex": True}, ["src/b.py:1: hello = 1"]),
        ({"text": "^IMPORT", "regex": True, "ignore_case": True}, ["a.py:1: import os"]),
        ({"text": "hello", "path": "src/deep"}, ["src/deep/c.js:1: // hello"]),
        ({"text": "hello", "path": "src/b.py"}, ["src/b.py:1: hello = 1"]),
        ({"text": "h.*1"}, ["no line found"]),
        ({"files": "*.py"}, ["a.py", "binary.py", "large.py", "src/b.py"]),
        ({"files": "src/*"}, ["src/b.py", "src/deep/c.js"]),
        ({"files": "**/*.js"}, ["src/deep/c.js"]),
        ({"files": "*.md"}, ["no file found"]),
    ],
)
def test_what_is_asked_for_is_found(use, args, lines):
    """Lines and files are found by text, expression and name; other folders, binaries and giants are passed over."""
    assert use("search_files", **args).text.split("\n") == lines


def test_too_many_hits_are_cut(use, root):
    """Beyond the limit the answer says that there is more."""
    (root / "many.txt").write_text("x\n" * 500 + "y" * 1000 + "\n")
    result = use("search_files", text="x")
    lines = result.text.split("\n")

    assert lines[-1] == "[only the first 200 are shown; ask more narrowly]"
    assert len(lines) == 201
    assert {**result.details} == {"count": 200, "is_all": False}
    assert len(use("search_files", text="yy").text) < 400


@pytest.mark.usefixtures("tree")
def test_an_abort_ends_a_search(use):
    """A set signal ends it before the next file."""
    signal = AbortSignal()
    signal.abort()
    with pytest.raises(AbortedError):
        use("search_files", signal, text="hello")


def test_texts_are_searched_a_part_at_a_time(use, root):
    """More text than is searched at once is searched all the same."""
    for n in range(4):
        (root / f"{n}.txt").write_text("z" * 2_000_000 + f"\nneedle {n}\n")

    assert use("search_files", text="needle").text.split("\n") == [
        f"{n}.txt:2: needle {n}" for n in range(4)
    ]


def test_edits_of_two_agents_lose_nothing(root):
    """Two agents that edit one file at the same time both have their edits in it."""
    (root / "a.txt").write_text("".join(f"<{n}>\n" for n in range(20)))
    tool = edit_file.get_tool(str(root))

    def edit(numbers):
        answers = [
            call("edit_file", {"path": "a.txt", "old_text": f"<{n}>", "new_text": f"done {n}"})
            for n in numbers
        ]
        run_loop([*answers, "done"], tool)

    threads = [threading.Thread(target=edit, args=(range(k, 20, 2),)) for k in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (root / "a.txt").read_text() == "".join(f"done {n}\n" for n in range(20))
    assert os.listdir(root) == ["a.txt"]  # noqa: PTH208 - the names are what is looked at
