"""Our client with servers of others: the reference servers over stdio and HTTP, and the official Python SDK's."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import threading
from queue import SimpleQueue

import pytest

from tests.support.mcp_peers import node, reference_server, sdk_python
from yiemagent.errors import McpProtocolError, McpTimeout
from yiemagent.mcp import HttpServer, McpClient, StdioServer
from yiemagent.mcp.client_protocol import LogMessage

SDK_SERVER = str(pathlib.Path(__file__).parent / "conformance" / "sdk_server.py")

pytestmark = [pytest.mark.peers, pytest.mark.time_limit(120)]


def said(answer):
    return "".join(block.get("text", "") for block in answer["content"])


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


@contextlib.contextmanager
def serving(command, port, env=None):
    """Run a server program until the block ends; waits until it can be connected to."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env
    )
    try:
        pause = threading.Event()
        for _ in range(400):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            pause.wait(0.05)
        yield
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def everything(way, **options):
    """A client of server-everything, over a transport of it."""
    program = [node(), reference_server("everything")]
    if way == "stdio":
        with McpClient(StdioServer([*program, "stdio"]), **options) as client:
            yield client
        return
    port = free_port()
    path = {"streamableHttp": "mcp", "sse": "sse"}[way]
    with (
        serving([*program, way], port, {**os.environ, "PORT": str(port)}),
        McpClient(HttpServer(f"http://127.0.0.1:{port}/{path}"), **options) as client,
    ):
        yield client


WAYS = ["stdio", "streamableHttp", "sse"]


@pytest.mark.parametrize("way", WAYS)
def test_server_everything_is_used(way):
    """Tools, resources, prompts, completions, progress, and all that the server asks of us."""
    handlers = {
        "elicitation": lambda params: {"name": "Ann"},
        "sampling": lambda params: "from the model",
        "roots": ["/tmp"],
    }
    progress = []
    with everything(way, **handlers) as client:
        names = {tool["name"] for tool in client.list_tools()}
        assert {
            "echo",
            "get-sum",
            "trigger-elicitation-request",
            "trigger-sampling-request",
        } <= names
        assert "is 5" in said(client.call_tool("get-sum", {"a": 2, "b": 3}))
        text = "é 中 😀 \u2028 \x1b"
        assert text in said(client.call_tool("echo", {"message": text}))
        client.call_tool(
            "trigger-long-running-operation",
            {"duration": 0.4, "steps": 4},
            on_progress=lambda params: progress.append(params["progress"]),
        )
        assert progress == [1, 2, 3, 4]
        assert "file:///tmp" in said(client.call_tool("get-roots-list"))
        assert "Ann" in said(client.call_tool("trigger-elicitation-request"))
        asked = {"prompt": "hi", "maxTokens": 10}
        assert "from the model" in said(client.call_tool("trigger-sampling-request", asked))
        structured = client.call_tool("get-structured-content", {"location": "Chicago"})
        assert set(structured["structuredContent"]) >= {"temperature", "conditions"}
        assert client.call_tool("no-such-tool")["isError"]
        resources = client.list_resources()
        assert client.read_resource(resources[0]["uri"])[0]["text"]
        assert client.list_resource_templates()
        prompts = {prompt["name"] for prompt in client.list_prompts()}
        assert "simple-prompt" in prompts
        assert client.get_prompt("simple-prompt")["messages"]
        ref = {"type": "ref/prompt", "name": "completable-prompt"}
        assert client.complete(ref, "department", "E") == ["Engineering"]


@pytest.mark.parametrize("way", WAYS)
def test_server_everything_tells_of_changes(way):
    """Updates of a resource that was subscribed to, and log records."""
    logs, updates = SimpleQueue(), SimpleQueue()
    with everything(way, on_log=logs.put, log_level="debug") as client:
        uri = client.list_resources()[0]["uri"]
        end = client.subscribe_resource(uri, updates.put)
        client.call_tool("toggle-subscriber-updates")
        assert updates.get(timeout=60) == uri
        client.call_tool("toggle-subscriber-updates")
        end()
        client.call_tool("toggle-simulated-logging")
        assert isinstance(logs.get(timeout=60), LogMessage)


@pytest.mark.parametrize("way", WAYS)
def test_a_call_of_server_everything_is_over_in_time(way):
    """And the next one goes well."""
    with everything(way) as client:
        client.connect()
        with pytest.raises(McpTimeout):
            client.call_tool(
                "trigger-long-running-operation", {"duration": 60, "steps": 2}, timeout_s=0.5
            )
        assert said(client.call_tool("echo", {"message": "still there"})) == "Echo: still there"


def test_server_filesystem_is_used(tmp_path):
    """Inside its folder it reads and writes, outside it refuses with an error result."""
    (tmp_path / "a.txt").write_text("hello")
    command = [node(), reference_server("filesystem"), str(tmp_path)]
    with McpClient(StdioServer(command)) as client:
        names = {tool["name"] for tool in client.list_tools()}
        assert {"read_text_file", "write_file"} <= names
        read = client.call_tool("read_text_file", {"path": str(tmp_path / "a.txt")})
        assert said(read) == "hello"
        written = client.call_tool(
            "write_file", {"path": str(tmp_path / "b.txt"), "content": "bye"}
        )
        assert not written.get("isError")
        outside = client.call_tool("read_text_file", {"path": "/etc/passwd"})

    assert (tmp_path / "b.txt").read_text() == "bye"
    assert outside["isError"]
    assert "denied" in said(outside).lower()


def test_server_memory_keeps_every_update(tmp_path):
    """Twenty threads write at once, one call at a time, so that the server loses none."""
    path = tmp_path / "memory.jsonl"
    server = StdioServer([node(), reference_server("memory")], env={"MEMORY_FILE_PATH": str(path)})
    with McpClient(server) as client:
        client.list_tools()

        def create(number):
            entity = {"name": f"e{number}", "entityType": "thing", "observations": []}
            client.call_tool("create_entities", {"entities": [entity]})

        threads = [threading.Thread(target=create, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        graph = client.call_tool("read_graph")["structuredContent"]

    assert len(graph["entities"]) == 20
    assert len(path.read_text().splitlines()) == 20


@contextlib.contextmanager
def sdk(way, **options):
    """A client of a server that the official SDK made."""
    if way == "stdio":
        with McpClient(StdioServer([sdk_python(), SDK_SERVER, "stdio"]), **options) as client:
            yield client
        return
    port = free_port()
    with (
        serving([sdk_python(), SDK_SERVER, "http", str(port)], port),
        McpClient(HttpServer(f"http://127.0.0.1:{port}/mcp"), **options) as client,
    ):
        yield client


@pytest.mark.parametrize("way", ["stdio", "http"])
@pytest.mark.parametrize("era", ["auto", "legacy", "modern"])
def test_the_official_sdks_server_is_used(way, era):
    """In both eras and over both transports; left to itself, the newer one is found."""
    progress, logs = [], SimpleQueue()
    with sdk(
        way, protocol=era, elicitation=lambda params: {"name": "Ann"}, on_log=logs.put
    ) as client:
        facts = client.connect()
        assert facts.is_stateless == (era != "legacy")
        assert {tool["name"] for tool in client.list_tools()} == {"add", "steps", "who", "boom"}
        added = client.call_tool("add", {"a": 2, "b": 3})
        assert added["structuredContent"] == {"result": 5}
        told = lambda params: progress.append(params["progress"])
        assert said(client.call_tool("steps", {"n": 3}, on_progress=told)) == "3 steps"
        assert progress == [1, 2, 3]
        if era == "legacy":  # in the other era servers send no questions of their own
            assert said(client.call_tool("who")) == "hello Ann"
        assert client.call_tool("boom")["isError"]
        assert client.call_tool("no-such-tool")["isError"]
        assert json.loads(client.read_resource("data://numbers")[0]["text"]) == [1, 2]
        assert "Ann" in json.dumps(client.get_prompt("greet", {"name": "Ann"}))
        with pytest.raises(McpProtocolError):
            client.request("no/such")
