"""`yiemagent tools`: listing tools and checking tool files."""

from __future__ import annotations

import pathlib

import pytest

from yiemagent.cli.main import main

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
    assert [line.split()[0] for line in lines] == ["get_time", "get_weather", "list_tools"]
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
    """Without a folder the built-in tools are checked, and pass."""
    assert main(["tools", "check"]) == 0
    assert capsys.readouterr().err == "2 tools load, 0 with errors\n"


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
