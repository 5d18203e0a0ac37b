"""`--isolate`: the user's tool files run in processes of their own."""

import argparse
import io
import os
import pathlib
import shlex

import pytest

from yiemagent.cli.ask import add_ask, ask_command
from yiemagent.cli.main import main
from yiemagent.cli.terminal import Terminal
from yiemagent.testing import ScriptedModel, call

WHO = """
import os
from yiemagent import tool


@tool(timeout_s=20)
def who(end: bool = False) -> str:
    '''Say which process this is.'''
    if end:
        os._exit(3)
    return str(os.getpid())


def get_tool():
    return who
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with the tool file."""
    (tmp_path / "who.py").write_text(WHO)
    return str(tmp_path)


def test_a_tool_is_called_in_a_process(folder, capsys):
    """With the flag a call runs in another process, and without it in this one."""
    codes = [main(["tools", "call", "who", "-t", folder, *flag]) for flag in (["--isolate"], [])]
    there, here = map(int, capsys.readouterr().out.split())

    assert codes == [0, 0]
    assert here == os.getpid() != there


def test_a_crash_is_an_error_result(folder, capsys):
    """The command tells what happened, and ends with one."""
    code = main(["tools", "call", "who", "end=true", "-t", folder, "--isolate"])
    shown = capsys.readouterr()

    assert code == 1
    assert shown.out == ""
    assert "error: who: its process ended with exit code 3" in shown.err


def test_a_file_that_ends_its_process_is_a_warning(folder, capsys):
    """Loading is done in a process, too, so that it can't end the command."""
    pathlib.Path(folder, "bad.py").write_text("import os\nos._exit(5)")
    code = main(["tools", "call", "who", "-t", folder, "--isolate"])
    shown = capsys.readouterr()

    assert code == 0
    assert "bad.py: its process ended with exit code 5" in shown.err


def test_an_agent_asks_with_tools_in_processes(folder):
    """A question is answered whatever a tool does to its process; built-in tools stay here."""
    model = ScriptedModel([call("who", {"end": True}), call("who"), "There."])
    parser = argparse.ArgumentParser()
    add_ask(parser.add_subparsers())
    words = ["ask", "--isolate", "--tools", shlex.quote(folder), "Who?"]
    out = io.StringIO()
    code = ask_command(parser.parse_args(words), Terminal(out, io.StringIO()), io.StringIO(), model)

    first, second = (request.messages[-1].text for request in model.requests[1:])
    assert (code, out.getvalue().strip()) == (0, "There.")
    assert first == "who: its process ended with exit code 3"
    assert int(second) != os.getpid()
    assert model.requests[0].tools["get_time"].isolation == "thread"
