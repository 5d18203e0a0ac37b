"""Our client and our server: the same program in each era and over each transport."""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import sys
import threading

import pytest

from yiemagent.abort import AbortSignal
from yiemagent.errors import AbortedError, McpError
from yiemagent.mcp.client import McpClient
from yiemagent.mcp.dialers import StdioServer

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FIXTURE = HERE / "conformance" / "fixture_server.py"

WAYS = [(way, era) for way in ("stdio", "http") for era in ("auto", "legacy", "modern")]


@contextlib.contextmanager
def server(way):
    """What the client is given to reach the fixture server."""
    path = {"PYTHONPATH": str(ROOT)}
    if way == "stdio":
        yield StdioServer([sys.executable, str(FIXTURE), "stdio"], env=path)
        return
    process = subprocess.Popen(
        [sys.executable, str(FIXTURE), "http"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=path,
        text=True,
    )
    with process:
        yield process.stdout.readline().strip()
        process.stdin.close()


@pytest.fixture(params=WAYS, ids=["-".join(way) for way in WAYS])
def client(request):
    """A client that can answer forms, and what it was told."""
    way, era = request.param
    logs = []
    with (
        server(way) as target,
        McpClient(
            target,
            protocol=era,
            max_concurrency=None,
            elicitation=lambda params: {"action": "accept", "content": {"name": "Ann"}},
            on_log=lambda message: logs.append(message.data),
            log_level="info",
        ) as made,
    ):
        made.logs = logs
        yield made


def text(result):
    """The text of a result."""
    return "".join(block.get("text", "") for block in result["content"])


def test_everything_works_in_each_era_and_transport(client):
    """Tools, progress, logs, forms, resources, prompts and completions."""
    progress = []
    names = [tool["name"] for tool in client.list_tools()]
    failed = client.call_tool("test_error_handling")
    mixed = client.call_tool("test_multiple_content_types")
    client.call_tool("test_tool_with_progress", on_progress=progress.append)
    client.call_tool("test_tool_with_logging")
    greeting = client.call_tool("test_input_required_result_elicitation")
    template = client.read_resource("test://template/7/data")
    prompt = client.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
    with pytest.raises(McpError, match="no resource"):
        client.read_resource("test://nowhere")

    assert "test_simple_text" in names
    assert (failed["isError"], "intentionally" in text(failed)) == (True, True)
    assert [block["type"] for block in mixed["content"]] == ["text", "image", "resource"]
    assert len(progress) == 3
    assert client.logs == [
        "Tool execution started",
        "Tool processing data",
        "Tool execution completed",
    ]
    assert text(greeting) == "Hello, Ann!"
    assert json.loads(template[0]["text"])["id"] == "7"
    assert prompt["messages"][0]["content"]["text"].endswith("arg2='b'")
    assert len(client.list_resources()) == 3
    assert len(client.list_prompts()) == 5


def test_changes_are_told(client):
    """A tool that comes during a call is told to who listens."""
    told = threading.Event()
    forget = client.on_tools_changed(told.set)
    client.list_tools()
    told.clear()
    client.call_tool("test_trigger_tool_change")

    assert told.wait(10)
    forget()
    assert "test_added_1" in [tool["name"] for tool in client.list_tools()]


def test_an_abort_ends_a_call_and_the_next_is_served(client):
    """The client goes on at once, and the server takes the next call."""
    signal = AbortSignal()
    timer = threading.Timer(0.05, signal.abort)
    timer.start()
    with pytest.raises(AbortedError):
        for _ in range(1000):
            client.call_tool("test_tool_with_logging", signal=signal)
    timer.join()

    assert text(client.call_tool("test_simple_text")).startswith("This is a simple text")
