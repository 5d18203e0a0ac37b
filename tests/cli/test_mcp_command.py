"""`yiemagent mcp serve`: tool files as an MCP server, on standard input and output and over HTTP."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests.support.mcp_wire import HttpPeer, initialize, stateless
from yiemagent.cli.main import main

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

TOOL = """
from yiemagent.tool import AgentTool

print("loading {name}")


def get_tool():
    return AgentTool("{name}", description="Does a thing.", execute=lambda *a: "{name} did it")
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with two tool files, one of them broken."""
    (tmp_path / "one.py").write_text(TOOL.format(name="one"))
    (tmp_path / "broken.py").write_text("1 +")
    return str(tmp_path)


def command(*words):
    """The command as a process."""
    return [sys.executable, "-m", "yiemagent", "mcp", "serve", *words]


def start(*words, **variables):
    """Start it."""
    return subprocess.Popen(
        command(*words),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
    )


def run(*words, lines):
    """Run it with these messages as its input, to its end."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    with start(*words) as process:
        out, err = process.communicate(text.encode(), timeout=30)
    return process.returncode, [json.loads(line) for line in out.splitlines()], err.decode()


def test_a_folder_is_a_server(folder):
    """Its tools are listed and called; what is wrong with a file, and what files print, is on stderr."""
    code, answers, err = run(
        folder, lines=[stateless(1, "tools/list"), stateless(2, "tools/call", name="one")]
    )
    found = {answer["id"]: answer["result"] for answer in answers}

    assert code == 0
    assert [tool["name"] for tool in found[1]["tools"]] == ["one"]
    assert found[2]["content"][0]["text"] == "one did it"
    assert "loading one" in err
    assert "broken.py" in err


def test_without_a_folder_the_built_in_tools_are_served():
    """Those that change nothing, without the library's `list_tools`, since clients have a request for it."""
    _, [opened, listed], _ = run(
        lines=[initialize(), {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}]
    )

    assert opened["result"]["serverInfo"]["name"] == "yiemagent"
    tools = {tool["name"]: tool for tool in listed["result"]["tools"]}
    assert {"get_time", "get_weather"} <= set(tools)
    assert not {"list_tools", "write_tool"} & set(tools)
    assert all(tool["annotations"]["readOnlyHint"] for tool in tools.values())


def test_a_group_of_built_in_tools_is_served(tmp_path):
    """A group that is named is served alone, those that change something too, and works in the folder that is named."""
    (tmp_path / "a.txt").write_text("hello\n")
    arguments = {"path": "b.txt", "text": "new"}
    _, answers, _ = run(
        *("--with", "files", "--root", str(tmp_path)),
        lines=[
            stateless(1, "tools/list"),
            stateless(2, "tools/call", name="write_file", arguments=arguments),
        ],
    )
    found = {answer["id"]: answer["result"] for answer in answers}

    assert {tool["name"] for tool in found[1]["tools"]} == {
        "edit_file",
        "read_file",
        "search_files",
        "write_file",
    }
    assert (tmp_path / "b.txt").read_text() == "new"


@contextlib.contextmanager
def over_http(*words, **variables):
    """A server over HTTP, and a client's connection to it."""
    with start(*words, "--http", "127.0.0.1:0", **variables) as process:
        try:
            line = b""
            while b"serving" not in line:
                line = process.stderr.readline()
                assert line, "it ended"
            port = int(line.decode().split("127.0.0.1:")[1].split("/")[0])
            yield process, type("Serving", (), {"port": port})
        finally:
            process.kill()
            process.communicate(timeout=10)


def test_a_folder_is_served_over_http(folder):
    """It says where it serves, and Ctrl-C ends it."""
    with over_http(folder) as (process, serving):
        with HttpPeer(serving) as peer:
            status, [answer] = peer.stateless(stateless(1, "tools/call", name="one"))
        process.send_signal(signal.SIGINT)

        assert (status, answer["result"]["content"][0]["text"]) == (200, "one did it")
        assert process.wait(10) == 130


def test_a_token_is_read_from_the_environment(folder):
    """Without it nothing is answered."""
    with over_http(folder, "--token-env", "MY_TOKEN", MY_TOKEN="a-long-secret") as (_, serving):
        with HttpPeer(serving) as nobody:
            refused, _ = nobody.stateless(stateless(1, "tools/list"))
        with HttpPeer(serving, Authorization="Bearer a-long-secret") as somebody:
            taken, _ = somebody.stateless(stateless(1, "tools/list"))

        assert (refused, taken) == (401, 200)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["/nowhere"], "no such folder"),
        (["--token-env", "PATH"], "--http"),
        (["--allow-host", "a"], "--http"),
        (["--http", "127.0.0.1:0", "--token-env", "NOT_SET_AT_ALL"], "holds no token"),
        (["--http", "8931"], "HOST:PORT"),
        (["--http", ":8931"], "HOST:PORT"),
        (["--http", "127.0.0.1:99999"], "HOST:PORT"),
        (["--http", "256.0.0.1:0"], "can't listen"),
    ],
)
def test_a_command_line_that_is_wrong_ends_with_2(words, problem, capsys):
    """It says what to change."""
    assert main(["mcp", "serve", *words]) == 2
    assert problem in capsys.readouterr().err


def test_a_server_for_other_machines_without_a_token_is_warned_of(folder):
    """Whoever reaches it can call its tools."""
    with start(folder, "--http", "0.0.0.0:0") as process:
        try:
            lines = [process.stderr.readline().decode() for _ in range(5)]
        finally:
            process.kill()
            process.communicate(timeout=10)

    assert any("whoever reaches 0.0.0.0" in line for line in lines)
    assert any("--allow-host" in line for line in lines)
