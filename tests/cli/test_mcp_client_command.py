"""`yiemagent mcp list`, `mcp call` and `ask --mcp`, against a server of ours in a process of its own."""

from __future__ import annotations

import argparse
import io
import json
import pathlib
import shlex
import sys

import pytest

from yiemagent.cli.main import main
from yiemagent.cli.mcp_client import call_command, list_command
from yiemagent.cli.terminal import Terminal
from yiemagent.testing import ScriptedServer, json_answer

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

TOOLS = """
from yiemagent.tool import AgentTool, AgentToolResult

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "note": {"type": "string"}},
    "required": ["a", "b"],
}


def execute_tool(tool_call_id, args, signal, on_partial_result):
    if args["a"] < 0:
        raise ValueError("a is below zero")
    return AgentToolResult(f"{args['a'] + args['b']} {args.get('note', '')}".strip())


def get_tool():
    return AgentTool(
        "add_up", label="Add up", description="Adds two numbers.", input_schema=SCHEMA, execute=execute_tool
    )
"""


@pytest.fixture
def server(tmp_path, monkeypatch):
    """The command of a server with one tool."""
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "add_up.py").write_text(TOOLS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("YIEMAGENT_MCP_CONFIG", raising=False)
    words = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "yiemagent", "mcp", "serve"]
    return shlex.join([*words, str(folder)])


def test_tools_of_a_server_are_listed(server, capsys):
    """Name, title and description, or the definitions as JSON."""
    assert main(["mcp", "list", server]) == 0
    assert capsys.readouterr().out.split("  ") == ["add_up", "Add up", "Adds two numbers.\n"]
    assert main(["mcp", "list", "--json", server]) == 0
    [definition] = json.loads(capsys.readouterr().out)

    assert definition["inputSchema"]["required"] == ["a", "b"]


@pytest.mark.parametrize(
    "words, shown",
    [
        (["a=2", "b=3"], "5\n"),
        (["a=2", "b=3", "note=7"], "5 7\n"),
        (['{"a": 2, "b": 3, "note": "x"}'], "5 x\n"),
    ],
)
def test_a_tool_is_called(server, capsys, words, shown):
    """Arguments are words, read as the tool's schema wants them, or one JSON object."""
    assert main(["mcp", "call", server, "add_up", *words]) == 0
    assert capsys.readouterr().out == shown


def test_a_whole_result_is_shown_as_json(server, capsys):
    """`--json` gives the result as the server sent it."""
    assert main(["mcp", "call", "--json", server, "add_up", "a=1", "b=1"]) == 0
    assert json.loads(capsys.readouterr().out)["content"] == [{"type": "text", "text": "2"}]


def test_a_call_that_fails_says_so(server, capsys):
    """A tool's error is shown and is the exit code 1."""
    assert main(["mcp", "call", server, "add_up", "a=-1", "b=1"]) == 1
    assert "a is below zero" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, said",
    [
        (["nope"], "no tool 'nope'; it has: add_up"),
        (["add_up", "a"], "NAME=VALUE"),
        (["add_up", "=1"], "NAME=VALUE"),
        (["add_up", "{nope"], "no JSON"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(server, capsys, words, said):
    """An unknown tool and arguments that are none are mistakes of the command line."""
    assert main(["mcp", "call", server, *words]) == 2
    assert said in capsys.readouterr().err


def test_a_server_is_named_by_a_file(server, tmp_path, capsys):
    """A name in `.mcp.json`, or in the file that is named, stands for its server."""
    command, *args = shlex.split(server)
    entry = {"mcpServers": {"mine": {"command": command, "args": args}}}
    (tmp_path / ".mcp.json").write_text(json.dumps(entry))
    assert main(["mcp", "list", "mine"]) == 0
    (tmp_path / ".mcp.json").rename(tmp_path / "other.json")
    assert main(["mcp", "list", "--mcp-config", "other.json", "mine"]) == 0
    assert main(["mcp", "list", "mine-not"]) == 2

    assert "no address and no program" in capsys.readouterr().err


def test_a_server_that_ends_is_told_with_its_last_words(capsys):
    """What can't be used is an error with the server's own words and the exit code 1."""
    script = "import sys; print('no key', file=sys.stderr); sys.exit(3)"
    assert main(["mcp", "list", shlex.join([sys.executable, "-c", script])]) == 1
    told = capsys.readouterr().err

    assert "exit code 3" in told and "no key" in told


class Prepared:
    """A server whose one tool gives a prepared result."""

    def __init__(self, result):
        self.result = result

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def list_tools(self):
        return [{"name": "it", "annotations": {"title": "The  tool"}}]

    def call_tool(self, name, arguments=None):
        return self.result


@pytest.mark.parametrize(
    "result, shown",
    [
        ({"content": [{"type": "image", "data": "QUJD", "mimeType": "image/png"}]}, ["image/png"]),
        ({"content": [], "structuredContent": {"sum": 5}}, ['"sum": 5']),
        ({"structuredContent": [5]}, ["5"]),
        ({"content": ["odd", {"type": "text", "text": "a\n"}]}, ["a"]),
        ({"content": None}, []),
    ],
)
def test_results_of_every_kind_are_shown(result, shown):
    """Text as it is, other blocks as JSON without their data, and what is structured where there is nothing else."""
    out = io.StringIO()
    options = argparse.Namespace(server="s", mcp_config=None, tool="it", arguments=[], json=False)
    code = call_command(
        options, Terminal(out, io.StringIO()), lambda named, config: Prepared(result)
    )

    assert code == 0
    assert all(text in out.getvalue() for text in shown) and "QUJD" not in out.getvalue()


def test_a_title_may_stand_in_the_annotations():
    """A tool without a title of its own has that of its annotations, and may have no description."""
    out = io.StringIO()
    options = argparse.Namespace(server="s", mcp_config=None, json=False)
    list_command(options, Terminal(out, io.StringIO()), lambda named, config: Prepared({}))

    assert out.getvalue().split() == ["it", "The", "tool"]


def completion(message):
    """An answer of a chat API."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return json_answer({"id": "1", "object": "chat.completion", "model": "m", "choices": [choice]})


def test_an_agent_asks_with_the_tools_of_a_server(server, capsys, monkeypatch):
    """`ask --mcp` offers the server's tools, and the model's call reaches it."""
    function = {"name": "add_up", "arguments": '{"a": 2, "b": 3}'}
    called = {"tool_calls": [{"id": "c1", "type": "function", "function": function}]}
    with ScriptedServer(completion(called), completion({"content": "It is 5."})) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.url)
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        words = ["--model", "openai:m", "--no-stream", "--no-builtin-tools", "--mcp", server]
        code = main(["ask", *words, "add 2 and 3 with the tool"])
        first, second = model.requests
    output = capsys.readouterr()

    assert (code, output.out) == (0, "It is 5.\n")
    assert "add_up" in [tool["function"]["name"] for tool in first.json["tools"]]
    assert second.json["messages"][-1]["content"] == "5"


def test_tools_of_several_servers_are_kept_apart(server, tmp_path, monkeypatch):
    """With two servers each tool's name begins with its server's."""
    command, *args = shlex.split(server)
    entry = {"command": command, "args": args}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"one": entry, "two": entry}}))
    with ScriptedServer(completion({"content": "Hi."})) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.url)
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        words = ["--model", "openai:m", "--no-stream", "--no-builtin-tools"]
        assert main(["ask", *words, "--mcp", "one", "--mcp", "two", "hi"]) == 0
        [asked] = model.requests
    names = {tool["function"]["name"] for tool in asked.json["tools"]}

    assert {"one__add_up", "two__add_up"} <= names


def test_a_server_that_cant_be_used_ends_the_question(capsys, monkeypatch):
    """Where a server of tools is missing, no model is asked."""
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert main(["ask", "--model", "openai:m", "--mcp", "no-such-server", "hi"]) == 2
    assert "no-such-server" in capsys.readouterr().err
