"""The tool that runs shell commands."""

from __future__ import annotations

import os
import threading
import time

import jsonschema
import pytest

from tests.support.loops import WAIT_S, start
from tools.shell import run_command
from yiemagent.abort import AbortSignal
from yiemagent.errors import AbortedError, ToolError
from yiemagent.events import ToolExecUpdateEvent
from yiemagent.testing import call


@pytest.fixture
def use(tmp_path):
    """Call the tool in a folder of its own."""
    tool = run_command.get_tool(str(tmp_path))

    def execute(command, signal=None, on_partial_result=None, **args):
        return tool.execute("call_1", {"command": command, **args}, signal, on_partial_result)

    return execute


def test_schema_and_examples_are_sound(tmp_path):
    """The schema is one, the examples fit it, and it says that it can do harm."""
    tool = run_command.get_tool(str(tmp_path))
    jsonschema.Draft202012Validator.check_schema({**tool.input_schema})
    for _, arguments in tool.examples:
        jsonschema.validate({**arguments}, {**tool.input_schema})

    assert tool.annotations["destructiveHint"]
    assert not tool.parallel_tool_execute
    assert tool.timeout_s > run_command.MAX_TIMEOUT_S


def test_names_that_models_use_are_taken():
    """`cmd`, `cwd` and `timeout` are the command, the folder and the limit."""
    given = run_command.prepare_arguments({"cmd": "ls", "cwd": "src", "timeout": 3})

    assert given == {"command": "ls", "folder": "src", "timeout_s": 3}


def test_output_and_errors_are_given(use):
    """What goes to stdout and stderr comes in order, without its last line break."""
    result = use("echo one; echo two >&2; echo three")

    assert result.text == "one\ntwo\nthree"
    assert {**result.details} == {"exit_code": 0, "left_out_bytes": 0}


@pytest.mark.parametrize(
    "command, text, code",
    [
        ("exit 3", "(no output)\n[exit code 3]", 3),
        ("echo no; false", "no\n[exit code 1]", 1),
        ("kill -9 $$", "(no output)\n[ended by signal 9]", -9),
        ("true", "(no output)", 0),
    ],
)
def test_the_exit_code_is_told(use, command, text, code):
    """A command that fails is no error of the tool: the model is told how it ended."""
    result = use(command)

    assert (result.text, result.details["exit_code"]) == (text, code)


def test_it_starts_in_the_folder(use, tmp_path):
    """Commands start in the root or in a folder below it, and nowhere else."""
    (tmp_path / "sub").mkdir()

    assert use("pwd").text == str(tmp_path)
    assert use("pwd", folder="sub").text == str(tmp_path / "sub")
    for folder in ("..", "/", "sub/../.."):
        with pytest.raises(ToolError, match="is outside of the folder"):
            use("touch ran", folder=folder)
    with pytest.raises(ToolError, match="No such file"):
        use("touch ran", folder="none")


def test_it_can_not_be_asked_for_input(use):
    """A command that reads meets the end of its input at once."""
    assert use("read -r line; echo \"got '$line'\"").text == "got ''"


def test_secrets_are_not_handed_on(use, monkeypatch):
    """A variable that looks like a key is not in the command's environment, others are."""
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret")
    monkeypatch.setenv("SOME_SETTING", "plain")

    assert use('echo "$SOME_API_KEY|$SOME_SETTING"').text == "|plain"


def test_long_output_is_cut_in_the_middle(use):
    """Of a megabyte the beginning and the end come, and how much is missing."""
    result = use("echo first; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo last")

    assert len(result.text) < run_command.MAX_OUTPUT_BYTES + 200
    assert result.text.startswith("first\nxxx")
    assert result.text.endswith("xxx\nlast")
    assert f"[… {result.details['left_out_bytes']} bytes left out …]" in result.text


def test_a_command_over_its_limit_is_ended(use):
    """At its limit it is ended, and the model is told what came until then."""
    begun = time.monotonic()
    with pytest.raises(ToolError, match=r"was ended after 0.3 s; its output until then:\nstarted"):
        use("echo started; sleep 99", timeout_s=0.3)

    assert time.monotonic() - begun < 10


def test_an_abort_ends_the_command(use):
    """A set signal ends a command that runs."""
    signal = AbortSignal()
    with pytest.raises(AbortedError):
        use("echo started; sleep 99", signal, lambda _: signal.abort())


def test_output_is_told_while_it_runs(tmp_path):
    """The run's events have the output before the command ends."""
    os.mkfifo(tmp_path / "go")
    tool = run_command.get_tool(str(tmp_path))
    stream = start(
        [call("run_command", {"command": "echo here; read -r x < go; echo end"}), "ok"], tool
    )
    seen = threading.Event()
    updates = []
    for event in stream:
        if isinstance(event, ToolExecUpdateEvent) and not seen.is_set():
            seen.set()
            updates.append(event.partial_result)
            (tmp_path / "go").write_text("on\n")
    results = [message.text for message in stream.result(WAIT_S) if message.role == "toolResult"]

    assert updates == ["here\n"]
    assert results == ["here\nend"]


def test_much_output_is_told_now_and_then():
    """Updates come no more often than a person can read, and each holds the newest output only."""
    told = []
    tell = run_command._Updates(told.append)
    for _ in range(1000):
        tell(b"x" * 100)

    assert len(told) <= 20
    assert max(map(len, told)) <= 4000
