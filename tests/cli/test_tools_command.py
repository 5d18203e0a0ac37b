"""`yiemagent tools`: listing tools and checking tool files."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from yiemagent.cli.main import main
from yiemagent.cli.tools import load_folders
from yiemagent.tool_versions import VERSIONS, marked, replace_file

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

GOOD = """
from yiemagent.tool import AgentTool


def get_tool():
    return AgentTool("{name}", label="{label}", description="Does a thing.\\nWell.", execute=lambda *a: "ok")
"""


@pytest.fixture
def folder(tmp_path):
    """A folder of tool files, and how to add one."""

    def add(name, text=None, label="A Thing"):
        text = GOOD.format(name=name, label=label) if text is None else text
        (tmp_path / f"{name}.py").write_text(text)
        return str(tmp_path)

    return add


def test_the_built_in_tools_are_listed(capsys):
    """Without a folder the built-in tools are listed: name, label, description."""
    code = main(["tools", "list"])
    lines = capsys.readouterr().out.splitlines()

    assert code == 0
    names = [line.split()[0] for line in lines]
    assert names == ["get_time", "get_weather", "write_tool", "list_tools"]
    assert "Current Time" in lines[0]
    assert lines[0].endswith("Tell the current local time in a city, country or time zone.")


def test_the_tools_of_a_folder_are_listed(folder, capsys):
    """With a folder its tools are listed, one line each, and no built-in ones; bad files are a warning."""
    folder("broken", "1 +")
    code = main(["tools", "list", folder("one"), folder("two")])
    shown = capsys.readouterr()

    assert code == 0
    assert shown.out.splitlines()[:2] == [
        "one         A Thing     Does a thing. Well.",
        "two         A Thing     Does a thing. Well.",
    ]
    assert "get_time" not in shown.out
    assert shown.err.startswith("warning: ")
    assert "broken.py:1: " in shown.err


def test_the_folder_is_named_by_tools_too(folder, tmp_path, capsys):
    """`list` and `check` take `--tools DIR` as the other commands do, beside folders without it, each once."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "two.py").write_text(GOOD.format(name="two", label="B"))
    where = folder("one")
    for words in (
        ["--tools", where, "-t", str(other)],
        [where, "--tools", str(other)],
        ["--tools", str(other), where, "--tools", where],
    ):
        assert main(["tools", "list", *words]) == 0
        shown = capsys.readouterr().out
        assert sorted(line.split()[0] for line in shown.splitlines()) == [
            "list_tools",
            "one",
            "two",
        ]
        assert main(["tools", "check", *words]) == 0
        assert capsys.readouterr().err == "2 tools load, 0 with errors\n"
    for action in ("list", "check"):
        assert main(["tools", action, "--tools", "nowhere"]) == 2
        assert capsys.readouterr().err.endswith("no such folder: nowhere\n")


def test_a_folder_without_tools_lists_the_one_that_lists(tmp_path, capsys):
    """An empty folder gives `list_tools` alone."""
    assert main(["tools", "list", str(tmp_path)]) == 0
    assert capsys.readouterr().out.split()[0] == "list_tools"


def test_good_files_pass_the_check(folder, capsys):
    """Where every file loads, nothing is on stdout and the exit code is 0."""
    code = main(["tools", "check", folder("one")])
    shown = capsys.readouterr()

    assert code == 0
    assert shown.out == ""
    assert shown.err == "1 tool loads, 0 with errors\n"


def test_the_built_in_tools_pass_the_check(capsys):
    """Without a folder the built-in tools are checked, those of every group too, and pass; or those of one group."""
    assert main(["tools", "check"]) == 0
    assert capsys.readouterr().err == "9 tools load, 0 with errors\n"
    assert main(["tools", "check", "--with", "web"]) == 0
    assert capsys.readouterr().err == "1 tool loads, 0 with errors\n"


def test_a_folder_without_tool_files_is_told(tmp_path, capsys):
    """Where there is nothing to check, that is said, and which files are tool files."""
    (tmp_path / "_helper.py").write_text("1 +")
    assert main(["tools", "check", str(tmp_path)]) == 0
    assert capsys.readouterr().err.startswith(f"no tool file in {tmp_path}: ")


def test_a_group_is_listed_and_called(tmp_path, monkeypatch, capsys):
    """--with shows and calls the built-in tools of a group; without, a tool of one is told where it is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("hello\n")
    assert main(["tools", "list", "--with", "files"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert main(["tools", "call", "read_file", "path=a.txt", "--with", "files"]) == 0
    text = capsys.readouterr().out
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("below\n")
    words = ["path=a.txt", "--with", "files", "--root", "sub"]
    assert main(["tools", "call", "read_file", *words]) == 0
    assert capsys.readouterr().out == "below\n"
    assert main(["tools", "call", "read_file", "path=a.txt"]) == 2

    assert names == ["edit_file", "read_file", "search_files", "write_file", "list_tools"]
    assert text == "hello\n"
    assert "no tool 'read_file' unless you give --with files" in capsys.readouterr().err


def test_what_else_there_is_is_told(capsys):
    """The list of the built-in tools names the groups, on stderr; that of a folder does not."""
    main(["tools", "list"])
    said = capsys.readouterr().err

    assert "--with files, --with shell, --with web" in said
    assert "write_tool only from a folder of --tools" in said


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("x = 1\ndef get_tool(:\n", ":2: ", "syntax"),
        ("\n\nraise ValueError('no luck')\n", ":3: ", "no luck"),
        ("x = 1\n", ": ", "get_tool"),
        (
            GOOD.format(name="bad name", label=""),
            ":6: ",
            "'bad name'",
        ),
        ("def get_tool():\n    return 5\n", ": ", "AgentTool"),
    ],
)
def test_each_bad_file_is_reported_with_its_line(folder, capsys, text, place, reason):
    """The check reports every bad file as path, line and reason, counts them, and ends with 1."""
    folder("good")
    code = main(["tools", "check", folder("bad", text)])
    shown = capsys.readouterr()

    assert code == 1
    assert shown.out.count("\n") == 1
    assert f"bad.py{place}" in shown.out
    assert reason.lower() in shown.out.lower()
    assert shown.err == "1 tool loads, 1 with errors\n"


def test_a_name_that_is_taken_is_reported(folder, capsys):
    """Two files whose tools have one name are an error that names both."""
    folder("b", GOOD.format(name="a", label=""))
    code = main(["tools", "check", folder("a")])
    out = capsys.readouterr().out

    assert code == 1
    assert "b.py" in out
    assert "a.py" in out


def test_paths_are_shown_from_here(folder, capsys, monkeypatch):
    """A file below the current folder is named by its path from there."""
    where = pathlib.Path(folder("bad", "1 +"))
    monkeypatch.chdir(where.parent)
    main(["tools", "check", str(where)])

    assert capsys.readouterr().out.startswith(f"{where.name}/bad.py:1: ")


@pytest.mark.parametrize("action", ["list", "check"])
def test_a_folder_that_is_not_there_is_a_usage_problem(action, tmp_path, capsys):
    """A folder that does not exist ends with exit code 2."""
    assert main(["tools", action, str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.startswith("error: no such folder: ")


def test_a_file_is_no_folder(folder, capsys):
    """Where a file is given in place of its folder, the command says that it is none and ends with 2."""
    assert main(["tools", "check", f"{folder('one')}/one.py"]) == 2
    assert capsys.readouterr().err.startswith("error: not a folder: ")


def test_what_a_schema_can_not_hold_is_a_warning(folder, capsys):
    """A tool whose schema is not sound loads, and the check says on stderr what is wrong with the schema."""
    odd = GOOD.replace("label=", 'input_schema={{"type": "objekt"}}, label=')
    code = main(["tools", "check", folder("odd", odd.format(name="odd", label=""))])
    shown = capsys.readouterr()

    assert code == 0
    assert shown.err.startswith("warning: the schema of odd: ")
    assert "objekt" in shown.err


def test_a_file_that_ends_its_process_is_one_that_is_wrong(folder, capsys):
    """A file that exits for good, or hangs in C, is reported like any other, and the rest is checked."""
    folder("crash", "import ctypes\nctypes.string_at(0)\n")
    folder("gone", "import os\nos._exit(0)\n")
    code = main(["tools", "check", folder("well")])
    shown = capsys.readouterr()

    assert code == 1
    assert "crash.py: its process was killed by signal 11" in shown.out
    assert "gone.py: its process ended with exit code 0" in shown.out
    assert shown.err == "1 tool loads, 2 with errors\n"


def test_what_a_file_changes_stays_with_its_check(folder, capsys):
    """A check leaves the command's own process as it was."""
    before = dict(os.environ)
    text = "import os\nos.environ['CHANGED_8812'] = '1'\nprint('noise')\n"
    code = main(["tools", "check", folder("noisy", text + GOOD.format(name="noisy", label=""))])
    shown = capsys.readouterr()

    assert code == 0
    assert dict(os.environ) == before
    assert "noise" not in shown.out + shown.err


def test_the_built_in_tools_that_write_are_there_only_when_asked_for():
    """A command that offers the built-in tools to a model leaves out the one that writes tools."""
    store, _ = load_folders([], builtin=True)
    every, _ = load_folders([], builtin=True, every=True)

    assert "write_tool" not in store
    assert "write_tool" in every


def test_a_users_own_file_of_that_name_stays(folder):
    """A tool of the user's folder that has the name of a built-in one which writes is the user's to offer."""
    store, errors = load_folders([pathlib.Path(folder("write_tool"))], builtin=True)

    assert store.get("write_tool").execute("1").text == "ok"
    assert errors == []


# -- call -------------------------------------------------------------------------------------------------------------

ADD = """
from yiemagent.tool import AgentTool

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "array"}}, "required": ["a"]}


def execute(tool_call_id, args, signal, on_partial_result):
    on_partial_result("adding")
    print("noise")
    if args["a"] < 0:
        raise ValueError("too small")
    return {"sum": args["a"] + sum(args.get("b", []))}


def get_tool():
    return AgentTool("add", description="Adds.", input_schema=SCHEMA, execute=execute)
"""


@pytest.mark.parametrize(
    "words", [["a=1", "b=[2, 3]"], ['{"a": 1, "b": [2, 3]}'], [' {"a": "1", "b": "[2, 3]"}']]
)
def test_a_tool_is_called(folder, capsys, words):
    """Arguments come as name=value or as one JSON object; the result is on stdout, progress and prints on stderr."""
    code = main(["tools", "call", "add", *words, "--tools", folder("add", ADD)])
    shown = capsys.readouterr()

    assert code == 0
    assert shown.out == '{"sum": 6}\n'
    assert shown.err == "adding\nnoise\n"


def test_a_built_in_tool_is_called(capsys):
    """Without a folder the built-in tools can be called."""
    assert main(["tools", "call", "get_time", "city=Tokyo"]) == 0
    assert capsys.readouterr().out.startswith("Current time in Tokyo")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a=-1"], "error: ValueError: too small"),
        ([], "a: is missing"),
        (["a=x"], 'expected integer, not "x"'),
    ],
)
def test_an_error_result_ends_with_one(folder, capsys, words, said):
    """What the tool or its checks say is wrong is on stderr, and the exit code is 1."""
    code = main(["tools", "call", "add", *words, "-t", folder("add", ADD)])
    shown = capsys.readouterr()

    assert code == 1
    assert shown.out == ""
    assert said in shown.err


def test_a_whole_result_is_json(folder, capsys):
    """With --json the result message is one JSON object on stdout, an error, too."""
    where = folder("add", ADD)
    assert main(["tools", "call", "add", "a=1", "--json", "-t", where]) == 0
    good = json.loads(capsys.readouterr().out)
    assert main(["tools", "call", "add", "a=-1", "--json", "-t", where]) == 1
    bad = json.loads(capsys.readouterr().out)

    assert good == {
        "name": "add",
        "arguments": {"a": "1"},
        "result": '{"sum": 1}',
        "details": {"sum": 1},
        "is_error": False,
    }
    assert bad["is_error"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ad"], "there is no tool 'ad'; there are: add, "),
        (["add", "a"], "'a' is no argument; give name=value, or one JSON object"),
        (["add", "=1"], "'=1' is no argument"),
        (["add", "{1"], "no valid JSON"),
        (["add", "a=1", "{}"], "'{}' is no argument"),
    ],
)
def test_a_call_that_cannot_be_made_is_a_usage_problem(folder, capsys, words, said):
    """An unknown tool, and arguments that can't be read, end with exit code 2."""
    assert main(["tools", "call", *words, "-t", folder("add", ADD)]) == 2
    assert said in capsys.readouterr().err


def test_bad_files_beside_a_tool_that_is_called_are_a_warning(folder, capsys):
    """Files that can't be loaded don't keep another from being called."""
    folder("bad", "1 +")

    assert main(["tools", "call", "add", "a=1", "-t", folder("add", ADD)]) == 0
    assert "warning: " in capsys.readouterr().err


def test_ctrl_c_ends_a_call(folder):
    """A call is ended by Ctrl-C, with exit code 130; the tool is told by its signal."""
    source = ADD.replace(
        "    print(", "    import sys\n    sys.stderr.write(str(signal.wait(50)))\n    print("
    )
    command = [sys.executable, "-m", "yiemagent", "tools", "call", "add", "a=1"]
    with subprocess.Popen(
        [*command, "-t", folder("add", source)],
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr.readline() == "adding\n"
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()

    assert process.returncode == 130
    assert "interrupted" in rest


# -- new, history, revert ---------------------------------------------------------------------------------------------


def test_a_new_tool_file_is_one_that_works(tmp_path, capsys):
    """The file is written, named on stdout, passes the check and both linters, and can be called."""
    where = tmp_path / "mine"
    assert main(["tools", "new", "shout_it", "--tools", str(where)]) == 0
    path = where / "shout_it.py"
    shown = capsys.readouterr()
    assert shown.out == f"{path}\n"
    assert f"yiemagent tools call shout_it text=hello --tools {where}\n" in shown.err
    assert main(["tools", "check", str(where)]) == 0
    assert main(["tools", "call", "shout_it", "text=hi", "times=2", "-t", str(where)]) == 0
    assert capsys.readouterr().out == "hi hi\n"
    ruff = str(pathlib.Path(sys.executable).with_name("ruff"))
    config = ["--config", str(ROOT / "pyproject.toml")]
    for words in (
        ["check", "--isolated"],
        ["check", "--ignore", "INP001", *config],
        ["format", "--check", *config],
    ):
        done = subprocess.run(
            [ruff, *words, "--no-cache", str(path)],
            cwd=where,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout

    assert path.read_text().count("#") >= 6


def test_a_new_tool_is_found_with_its_folder(tmp_path, monkeypatch, capsys):
    """Code of the working folder is run by nobody who did not name it: a call says how to."""
    monkeypatch.chdir(tmp_path)
    assert main(["tools", "new", "one"]) == 0
    assert main(["tools", "call", "one", "text=hi"]) == 2
    assert "no tool 'one' unless you give --tools tools\n" in capsys.readouterr().err
    assert main(["tools", "call", "one", "--tools", "tools", "text=hi"]) == 0

    assert capsys.readouterr().out == "hi\n"


def test_options_and_words_come_in_any_order(folder, capsys):
    """An option may stand between the name and the arguments, or before both."""
    where = folder("one")
    for words in (
        ["one", "-t", where, "a=1"],
        ["-t", where, "one", "a=1"],
        ["one", "a=1", "-t", where],
    ):
        assert main(["tools", "call", *words]) == 0
        assert capsys.readouterr().out == "ok\n"
    assert main(["tools", "call", "one", "-t", where]) == 0
    assert main(["tools", "call", "-t", where]) == 2
    assert capsys.readouterr().err.endswith("required: NAME\n")
    assert main(["tools", "call", "one", "a=1", "--none"]) == 2
    assert "unrecognized arguments: --none" in capsys.readouterr().err


def test_a_long_error_keeps_its_lines(folder, capsys):
    """What a tool says is wrong comes whole, line by line, with blanks; what could steer the terminal does not."""
    source = GOOD.format(name="one", label="").replace('lambda *a: "ok"', "fail")
    source += "\n\ndef fail(*a):\n    raise ValueError('no\\n    luck\\x1b[31m' + 'x' * 900)\n"
    assert main(["tools", "call", "one", "-t", folder("one", source)]) == 1
    shown = capsys.readouterr()

    assert shown.out == ""
    assert shown.err.endswith(f"no\n    luck[31m{'x' * 900}\n")


def test_a_new_tool_file_goes_to_the_folder_of_the_environment(tmp_path, monkeypatch):
    """Without --tools it is the folder that the environment names, else `tools` in this one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("YIEMAGENT_TOOLS_DIR", str(tmp_path / "named"))
    assert main(["tools", "new", "one"]) == 0
    monkeypatch.delenv("YIEMAGENT_TOOLS_DIR")
    assert main(["tools", "new", "two"]) == 0

    assert (tmp_path / "named" / "one.py").is_file()
    assert (tmp_path / "tools" / "two.py").is_file()


def test_a_new_tool_file_takes_no_place_that_is_taken(folder, capsys, tmp_path):
    """A bad name, a file or link that is there, and a folder that can't be, end with an error; nothing is changed."""
    where = folder("there")
    (tmp_path / "linked.py").symlink_to(tmp_path / "outside")
    for name, code, said in (
        ("there", 2, "is there already"),
        ("linked", 2, "is no plain file"),
        ("class", 2, "is a word of Python's own"),
        ("a/b", 2, "must be 1 to 64 letters"),
    ):
        assert main(["tools", "new", name, "-t", where]) == code
        assert said in capsys.readouterr().err
    assert main(["tools", "new", "a", "-t", str(tmp_path / "there.py" / "x")]) == 1

    assert "can't be written" in capsys.readouterr().err
    assert (tmp_path / "there.py").read_text() == GOOD.format(name="there", label="A Thing")


@pytest.fixture
def versions(tmp_path):
    """A tool file with three versions: a person's, a model's, and one that was changed."""
    path = tmp_path / "shout.py"
    path.write_text("one = 1\n")
    replace_file(path, marked("two = 2\n", author="model", approval="Ann").encode())
    replace_file(path, marked("three = 3\n", author="model").replace("= 3", "= 4").encode())
    return path


def test_the_history_of_a_tool_is_shown(versions, capsys):
    """A line for each version: number, time, who wrote and approved it, and whether it was changed since."""
    assert main(["tools", "history", "shout", "--tools", str(versions.parent)]) == 0
    lines = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]

    assert cells[0] == ["version", "written", "by", "approved by", "sha256"]
    assert [row[0] for row in cells[1:]] == ["1", "2", "3"]
    assert [row[2:4] for row in cells[1:]] == [["person", "-"], ["model", "Ann"], ["model", "-"]]
    assert cells[3][5] == "in use, changed by somebody since"


def test_an_earlier_version_is_brought_back(versions, capsys):
    """With or without a number; the version in use is kept."""
    where = str(versions.parent)
    assert main(["tools", "revert", "shout", "1", "-t", where]) == 0
    assert capsys.readouterr().err == "shout: version 1 is in use again, as version 4\n"
    assert versions.read_text() == "one = 1\n"
    assert main(["tools", "revert", "shout.py", "-t", where]) == 0

    assert "three = 4" in versions.read_text()
    assert len(list((versions.parent / VERSIONS / "shout").iterdir())) == 4


def test_a_version_that_is_not_there_is_an_error(versions, capsys):
    """No such version, and no such tool, end with exit code 1; a path for a name with 2."""
    where = str(versions.parent)
    for words, code, said in (
        (["revert", "shout", "9"], 1, "no version 9 to go back to"),
        (["revert", "other"], 1, "no tool file 'other'"),
        (["history", "other"], 1, "no tool file 'other'"),
        (["revert", "shout", "3"], 1, "version 3 of 'shout' is the one in use"),
        (["history", "../shout"], 2, "is no name of a tool file"),
        (["revert", ".py"], 2, "is no name of a tool file"),
    ):
        assert main(["tools", *words, "-t", where]) == code
        assert said in capsys.readouterr().err


def test_without_a_folder_one_is_asked_for(tmp_path, monkeypatch, capsys):
    """Where a name is not in the usual folder, the error says how to name another."""
    monkeypatch.chdir(tmp_path)
    for action in ("history", "revert"):
        assert main(["tools", action, "shout"]) == 1
        assert (
            "no tool file 'shout' in tools; give its folder with --tools" in capsys.readouterr().err
        )


def test_a_version_that_cannot_be_written_is_an_error(versions, capsys, monkeypatch):
    """Where the disk fails, the error says so, and the file is as it was."""

    def fsync(_):
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "fsync", fsync)

    assert main(["tools", "revert", "shout", "-t", str(versions.parent)]) == 1
    assert "shout can't be written: the disk is full" in capsys.readouterr().err
    assert "three = 4" in versions.read_text()
