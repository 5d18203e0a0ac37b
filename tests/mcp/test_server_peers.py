"""Our server driven by clients of others: the Inspector, and the official Python SDK."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.support.mcp_peers import inspector, sdk_python
from yiemagent.mcp.serve_http import HttpServing
from yiemagent.mcp.server import McpServer
from yiemagent.registry import ToolStore
from yiemagent.tool import AgentTool, AgentToolResult

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FIXTURE = HERE / "conformance" / "fixture_server.py"
SDK_CLIENT = HERE / "conformance" / "sdk_client.py"

pytestmark = [pytest.mark.peers, pytest.mark.time_limit(180)]

ERAS = ["legacy", "auto", "modern"]
# The Inspector gives a server few variables of its own accord.
STDIO = ["-e", f"PYTHONPATH={ROOT}", sys.executable, str(FIXTURE), "stdio"]
COMMAND = ["-e", f"PYTHONPATH={ROOT}", sys.executable, "-m", "yiemagent", "mcp", "serve"]


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def adds(call_id, args, signal, partial):
    """Add."""
    return AgentToolResult(str(args["a"] + args["b"]), details={"sum": args["a"] + args["b"]})


@contextlib.contextmanager
def over_http():
    """A server over HTTP with a tool that adds; gives its URL."""
    store = ToolStore("test")
    number = {"type": "integer"}
    store.register(
        AgentTool(
            "add",
            description="Adds two numbers.",
            input_schema={
                "type": "object",
                "properties": {"a": number, "b": number},
                "required": ["a", "b"],
            },
            output_schema={
                "type": "object",
                "properties": {"sum": number},
                "required": ["sum"],
            },
            execute=adds,
            parallel_tool_execute=True,
        )
    )
    with McpServer(store) as server, HttpServing(server) as serving:
        yield serving.url


# -- the Inspector ----------------------------------------------------------------------------------------------------


def inspect(home, era, *words):
    """What the Inspector found; it must end well."""
    done = inspector(home, "--protocol-era", era, *words)
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    return json.loads(done.stdout)["result"]


@pytest.mark.parametrize("era", ERAS)
def test_the_inspector_lists_and_calls_over_stdio(era, tmp_path):
    """The built-in tools are there, their schemas portable by its strict rules, and one is called."""
    listed = inspect(tmp_path, era, "--strict", *COMMAND, "--method", "tools/list")
    called = inspect(
        tmp_path,
        era,
        *COMMAND,
        *("--method", "tools/call", "--tool-name", "get_time", "--tool-arg", "city=Tokyo"),
    )

    assert {"get_time", "get_weather"} <= {tool["name"] for tool in listed["tools"]}
    assert "Tokyo" in called["content"][0]["text"]


@pytest.mark.parametrize("era", ERAS)
def test_the_inspector_lists_and_calls_over_http(era, tmp_path):
    """Schemas and structured results pass its checks."""
    with over_http() as url:
        listed = inspect(tmp_path, era, "--strict", url, "--method", "tools/list")
        called = inspect(
            tmp_path,
            era,
            url,
            *("--method", "tools/call", "--tool-name", "add"),
            *("--tool-arg", "a=2", "--tool-arg", "b=3"),
        )

    assert [tool["name"] for tool in listed["tools"]] == ["add"]
    assert called["structuredContent"] == {"sum": 5}


@pytest.mark.parametrize("era", ERAS)
def test_the_inspector_reads_resources_and_prompts(era, tmp_path):
    """What a server offers beside its tools is listed, read and rendered."""
    read = inspect(
        tmp_path, era, *STDIO, "--method", "resources/read", "--uri", "test://static-text"
    )
    prompt = inspect(
        tmp_path, era, *STDIO, "--method", "prompts/get", "--prompt-name", "test_simple_prompt"
    )

    assert read["contents"][0]["text"].startswith("This is the content")
    assert prompt["messages"][0]["content"]["text"].startswith("This is a simple prompt")


def test_a_tool_that_fails_is_seen_as_such(tmp_path):
    """The Inspector ends with its code for an error of a tool."""
    done = inspector(
        tmp_path,
        *STDIO,
        *("--method", "tools/call", "--tool-name", "test_error_handling"),
    )

    assert done.returncode == 5


# -- the official SDK -------------------------------------------------------------------------------------------------


def sdk(mode, *words):
    """What a client of the official SDK found."""
    done = subprocess.run(
        [sdk_python(), str(SDK_CLIENT), mode, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_official_sdk_finds_everything(mode, transport):
    """Tools, progress, logs, questions, resources, prompts and completions work in each era and transport."""
    with contextlib.ExitStack() as stack:
        if transport == "stdio":
            target = [sys.executable, FIXTURE, "stdio"]
        else:
            target = [stack.enter_context(fixture_over_http())]
        found = sdk(mode, *target)

    assert found["version"] == ("2025-11-25" if mode == "legacy" else "2026-07-28")
    assert "test_simple_text" in found["tools"]
    assert found["text"] == "This is a simple text response for testing."
    assert found["kinds"] == ["text", "image", "resource"]
    assert found["error"] == [True, "This tool intentionally returns an error for testing"]
    assert found["progress"] == [0, 50, 100]
    assert found["logs"] == [
        "Tool execution started",
        "Tool processing data",
        "Tool execution completed",
    ]
    assert found["greeting"] == "Hello, Ann!"
    assert found["resource"] == "This is the content of the static text resource."
    assert found["template"]["id"] == "7"
    assert found["prompt"] == "Prompt with arguments: arg1='a', arg2='b'"
    assert found["completion"] == ["1", "12", "123"]
    assert found["changed"] >= 1


@contextlib.contextmanager
def fixture_over_http():
    """The fixture server over HTTP; gives its URL."""
    process = subprocess.Popen(
        [sys.executable, str(FIXTURE), "http"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process.stdout.readline().strip()
        process.stdin.close()
