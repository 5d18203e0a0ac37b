"""The command as a whole: help, version, and what each ending gives."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

import yiemagent
from yiemagent.cli.main import main

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize(
    "words",
    [[], ["ask"], ["tools"], ["tools", "list"], ["tools", "check"]],
)
def test_help_says_what_a_command_does(words, capsys):
    """Each command has a help text that names its options and ends with exit code 0."""
    code = main([*words, "--help"])
    out = capsys.readouterr().out

    assert code == 0
    assert out.startswith(f"usage: {' '.join(['yiemagent', *words])}")
    assert len(out.splitlines()) > 5


def test_the_help_of_ask_names_every_option(capsys):
    """The help of `ask` names the documented options and the exit codes."""
    main(["ask", "--help"])
    out = capsys.readouterr().out
    named = set(re.findall(r"--[a-z-]+", out))

    assert {"--model", "--tools", "--system", "--no-stream", "--json", "--max-turns"} <= named
    assert "130 interrupted" in " ".join(out.split())


def test_the_version_is_shown(capsys):
    """`--version` shows the version of the package."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"yiemagent {yiemagent.__version__}\n"


@pytest.mark.parametrize("words", [[], ["nope"], ["tools"], ["tools", "nope"], ["ask", "--nope"]])
def test_a_wrong_command_line_ends_with_2(words, capsys):
    """A command line that is wrong shows how it is used, on stderr."""
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("usage: yiemagent")


def test_a_model_that_nobody_knows_ends_with_2(capsys):
    """A model string with an unknown provider is one line that names those that are known."""
    code = main(["ask", "--model", "nobody:x", "Hello"])
    err = capsys.readouterr().err

    assert code == 2
    assert err.count("\n") == 1
    assert err.startswith("error: no provider 'nobody'")
    assert "openai" in err


def test_python_runs_the_command():
    """`python -m yiemagent` is the command."""
    done = subprocess.run(
        [sys.executable, "-m", "yiemagent", "--version"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )

    assert done.stdout == f"yiemagent {yiemagent.__version__}\n"
