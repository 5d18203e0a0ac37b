"""The documentation runs: each Python block as a program, each command line against the command, each table as it is.

The blocks of one file run in order in one process of their own, in a folder of their own, without a network. Where they
ask a provider, it is a server on this machine that calls a tool when the question is one it knows.
"""

from __future__ import annotations

import functools
import os
import pathlib
import re
import runpy
import shlex
import shutil
import subprocess
import sys

import pytest

from tests.support.http_server import ScriptedServer
from tests.support.stand_in import stand_in
from yiemagent.machine import ROWS

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = pathlib.Path(__file__).with_name("run_blocks.py")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [path.relative_to(ROOT).as_posix() for path in PAGES]
SHELLS = {"sh", "console", "bash", "shell"}

_program = runpy.run_path(str(PROGRAM))
blocks, printed, fits, file_named = (
    _program[name] for name in ("blocks", "printed", "fits", "file_named")
)


def run_page(page, folder):
    """Run the Python blocks of a page; gives the exit code and what went wrong."""
    shutil.copytree(ROOT / "tools", folder / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    with ScriptedServer(stand_in) as server:
        done = subprocess.run(
            [sys.executable, "-W", "error", str(PROGRAM), str(page)],
            cwd=folder,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(folder),
                "PYTHONPATH": str(ROOT),
                "PYTHONUTF8": "1",
                "OPENAI_BASE_URL": f"{server.url}/v1",
                "OPENAI_API_KEY": "sk-nobody",
                "ANTHROPIC_BASE_URL": server.url,
                "ANTHROPIC_API_KEY": "sk-nobody",
                "GOOGLE_GEMINI_BASE_URL": server.url,
                "GEMINI_API_KEY": "nobody",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_python_block_runs(page, tmp_path):
    """The Python blocks of a page run in order, without a network, and print what they say."""
    code, text = run_page(page, tmp_path)

    assert code == 0, text


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("```python\nprint(2)  # prints: 3\n```", "says it prints ['3'], prints ['2']"),
        ("```python\n1 / 0\n```", "ZeroDivisionError"),
        (
            "```python\nimport socket\nsocket.create_connection(('example.org', 80))\n```",
            "the documentation reaches out to 'example.org'",
        ),
        ("text\n\n```python\nx = 1\n```\n\n```python\ny\n```", "page.md, line 8"),
    ],
)
def test_a_block_that_is_wrong_fails(source, fault, tmp_path):
    """A block that prints something else, raises, or reaches out is reported with its line."""
    page = tmp_path / "page.md"
    page.write_text(source)
    code, text = run_page(page, tmp_path)

    assert code == 1
    assert fault in text


@pytest.mark.parametrize(
    ("said", "got", "fit"),
    [
        (["a"], ["a"], True),
        (["a ... c"], ["a b c"], True),
        (["a", "b"], ["a"], False),
        (["a.c"], ["abc"], False),
    ],
)
def test_printed_lines_are_compared(said, got, fit):
    """What a block prints is compared line by line, with three dots for any text."""
    assert fits(said, got) is fit


def test_blocks_are_found():
    """A block is found with its language and the line of its first code; its prints and its file are read."""
    (block,) = blocks("a\n\n```python\n# x/y.py\nprint(1)  # prints: 1\n```\n")
    language, line, code = block

    assert (language, line) == ("python", 4)
    assert printed(code) == ["1"]
    assert file_named(code) == "x/y.py"


def test_the_typed_program_runs(tmp_path):
    """The program that shows the public API to the type checker runs, without a warning."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "tests" / "typing_user.py")],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "'cba', 'stop'" in done.stdout


# -- command lines -----------------------------------------------------------------------------------------------------


def command_lines():
    """Each line of the shell blocks, continuations joined, as (page, line)."""
    found = []
    for page in PAGES:
        for language, _line, code in blocks(page.read_text(encoding="utf-8")):
            if language in SHELLS:
                lines = code.replace("\\\n", " ").splitlines()
                found += [
                    (page.name, line.removeprefix("$ "))
                    for line in lines
                    if line.strip() and not line.startswith("#")
                ]
    return found


def commands(line):
    """The simple `yiemagent` commands in a line, each as its words after the program's name."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    found, words = [], []
    for token in [*lexer, ";"]:
        if set(token) <= set("&|;()<>"):
            if words and words[0].rpartition("/")[2] == "yiemagent":
                found.append(tuple(words[1:]))
            words = []
        elif words or not re.fullmatch(r"\w+=.*", token):  # settings stand before a program
            words.append(token)
    return found


@functools.cache
def help_of(*subcommand):
    """The help text of a subcommand."""
    done = subprocess.run(
        [sys.executable, "-m", "yiemagent", *subcommand, "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, f"{subcommand}: {done.stdout}{done.stderr}"
    return done.stdout


def subcommand_of(words):
    """The words of a command that name what to do: `ask`, `tools list`, `local pull`."""
    depth = 2 if words and words[0] in {"tools", "local", "mcp", "sessions"} else 1
    return tuple(word for word in words[:depth] if not word.startswith("-"))


def test_every_command_line_is_shell():
    """Each line of a shell block is something that a shell can read."""
    broken = []
    for page, line in command_lines():
        done = subprocess.run(
            ["sh", "-n", "-c", line], capture_output=True, text=True, timeout=20, check=False
        )
        if done.returncode != 0:
            broken.append(f"{page}: {line}: {done.stderr}")

    assert broken == []


def test_every_command_exists():
    """Each `yiemagent` command in the documentation exists, with each option it is given."""
    unknown = []
    shown = [(page, words) for page, line in command_lines() for words in commands(line)]
    for page, words in shown:
        text = help_of(*subcommand_of(words))
        unknown += [
            f"{page}: yiemagent {shlex.join(words)}: {word}"
            for word in words
            if word.startswith("--") and not re.search(rf"{re.escape(word)}\b", text)
        ]

    assert len(shown) >= 5
    assert unknown == []


def test_commands_are_found_in_a_line():
    """The commands of the product are found between others, whatever the folder they are called from."""
    line = 'A=1 .venv/bin/yiemagent local pull && yiemagent ask --json "what; now?" | cat; pip install x'

    assert commands(line) == [("local", "pull"), ("ask", "--json", "what; now?")]
    assert subcommand_of(("ask", "hello")) == ("ask",)


def test_the_readme_has_the_two_commands():
    """README's first two shell blocks are one line each: the main job, and the tests."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first, second = [code for language, _, code in blocks(text) if language in SHELLS][:2]

    assert len(first.splitlines()) == 1
    assert [words[0] for words in commands(first)] == ["local", "ask"]
    assert second == "sh tests/run.sh\n"


# -- tables and links --------------------------------------------------------------------------------------------------


def states_table():
    """The six states as a Markdown table."""
    lines = [
        "| | state | run | input | follow-up | the agent's thread |",
        "|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        name = row.state.name.lower().replace("_", " ")
        lines.append(
            f"| {row.state.value} | {name} | {row.run} | {row.input} | {row.follow_up} | {row.does} |"
        )
    return "\n".join(lines)


def test_the_readme_shows_the_six_states():
    """README's table of the six states is the table that the machine is documented by."""
    assert states_table() in (ROOT / "README.md").read_text(encoding="utf-8"), states_table()


def anchors(page):
    """The anchors of a page's headings."""
    text = page.read_text(encoding="utf-8")
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_link_leads_somewhere(page):
    """Each link to a file of the repository names one that is there, and a heading that it has."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(target)

    assert broken == []


def test_every_page_is_reached_from_the_readme():
    """README links to each page of docs/, by itself or through the README of the page's folder."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lost = []
    for page, name in zip(PAGES[1:], NAMES[1:], strict=True):
        folder = page.with_name("README.md")
        through = folder.is_file() and f"]({page.name})" in folder.read_text(encoding="utf-8")
        if f"]({name})" not in text and not through:
            lost.append(name)

    assert lost == []
