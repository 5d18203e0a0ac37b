"""The NATS client, and MCP over it, through the real NATS server."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import subprocess
import threading
import time
from queue import SimpleQueue

import pytest

from tests.support.certificate import CERTFILE, KEYFILE
from tests.support.mcp_peers import nats_server
from yiemagent.errors import McpProtocolError, McpTimeout
from yiemagent.mcp.nats_client import NatsClient, NatsDisconnected, NoResponders, PayloadTooLarge
from yiemagent.mcp.over_nats import nats_mcp_server
from yiemagent.mcp.serve_nats import NatsServing
from yiemagent.mcp.server import McpServer
from yiemagent.registry import ToolStore
from yiemagent.tool import AgentTool, AgentToolResult

pytestmark = [pytest.mark.peers, pytest.mark.time_limit(60)]

SUBJECT = "tools.peers"


def free_port():
    """A port that nothing listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextlib.contextmanager
def running(*options, port=None):
    """A NATS server; gives its port once it listens."""
    port = port or free_port()
    command = [nats_server(), "-a", "127.0.0.1", "-p", str(port), *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        for line in process.stderr:
            if "Server is ready" in line:
                break
        else:
            pytest.fail("the NATS server did not start")
        drain = threading.Thread(target=process.stderr.read, daemon=True)
        drain.start()
        yield port
    finally:
        process.terminate()
        process.wait(10)
        drain.join(10)
        process.stderr.close()


@pytest.fixture
def port():
    """The port of a NATS server."""
    with running() as port:
        yield port


def adds(call_id, args, signal, partial):
    """Add two numbers, with progress."""
    partial({"progress": 1, "total": 2})
    return AgentToolResult(str(args["a"] + args["b"]))


def big(call_id, args, signal, partial):
    """Give more than NATS carries."""
    return AgentToolResult("x" * 2_000_000)


def store(**functions):
    """A store of tools."""
    made = ToolStore("peers")
    for name, function in functions.items():
        made.register(AgentTool(name, description=name, execute=function))
    return made


def test_requests_and_their_failures_are_told_apart(port):
    """An answer, nobody, too late and too large each are what they are."""
    with NatsClient(f"127.0.0.1:{port}") as client, NatsClient(f"127.0.0.1:{port}") as other:
        other.subscribe("echo", lambda m: other.publish(m.reply, m.data, headers=m.headers))
        other.subscribe("silent", lambda _message: None)
        other.flush()

        answer = client.request("echo", b"x" * 1_000_000, 20, headers={"Trace": "1"})
        assert (len(answer.data), answer.headers) == (1_000_000, {"Trace": "1"})
        begun = time.monotonic()
        with pytest.raises(NoResponders):
            client.request("nobody", b"", 30)
        assert time.monotonic() - begun < 5
        with pytest.raises(McpTimeout):
            client.request("silent", b"", 0.1)
        with pytest.raises(PayloadTooLarge):
            client.request("echo", b"x" * 1_100_000, 10)
        assert client.request("echo", b"still", 10).data == b"still"


def test_a_server_that_dies_is_told_at_once_and_comes_back():
    """A request under way ends with its connection; the next goes to the server that was started again."""
    port = free_port()
    lost = SimpleQueue()
    with NatsClient(f"127.0.0.1:{port}", reconnect_wait_s=30) as client:
        with running(port=port), NatsClient(f"127.0.0.1:{port}") as other:
            heard = SimpleQueue()
            other.subscribe("silent", heard.put)
            other.flush()
            client.open("silent", b"", lost.put)
            heard.get(timeout=10)
        error = lost.get(timeout=5)
        with running(port=port), pytest.raises(NoResponders):
            client.request("nobody", b"", 30)

    assert isinstance(error, NatsDisconnected) and error.outcome_unknown


@pytest.mark.parametrize(
    "options, good, bad",
    [
        (("--user", "u", "--pass", "p"), {"user": "u", "password": "p"}, {"token": "x"}),
        (("--auth", "secret"), {"token": "secret"}, {}),
    ],
)
def test_the_real_server_lets_in_who_it_knows(options, good, bad):
    """User and password, or a token; who is not known is told so."""
    with running(*options) as port:
        with NatsClient(f"127.0.0.1:{port}", **good) as client:
            client.flush()
        with (
            NatsClient(f"127.0.0.1:{port}", **bad) as client,
            pytest.raises(NatsDisconnected, match="Authorization Violation"),
        ):
            client.flush()


def test_tls_with_the_real_server():
    """A server that requires TLS gets it, checked against the CA that was named."""
    context = ssl.create_default_context(cafile=CERTFILE)
    with running("--tls", "--tlscert", CERTFILE, "--tlskey", KEYFILE) as port:
        with NatsClient(f"localhost:{port}", tls=context) as client:
            client.subscribe("echo", lambda m: client.publish(m.reply, m.data))

            assert len(client.request("echo", b"x" * 900_000, 20).data) == 900_000
        with (
            NatsClient(f"localhost:{port}") as client,
            pytest.raises(NatsDisconnected, match="certificate"),
        ):
            client.flush()


def test_tools_over_the_real_server(port):
    """Tools are listed and called, with progress; an answer that is too large is an error, and all goes on."""
    with (
        McpServer(store(add=adds, big=big)) as server,
        NatsServing(server, f"127.0.0.1:{port}", SUBJECT),
        nats_mcp_server(f"127.0.0.1:{port}", SUBJECT, timeout_s=20) as client,
    ):
        told = []
        asked = {"name": "add", "arguments": {"a": 2, "b": 3}}
        result = client.request("tools/call", asked, on_progress=told.append)
        with pytest.raises(McpProtocolError, match="carries 1048576 at most"):
            client.request("tools/call", {"name": "big", "arguments": {}})

        assert [tool["name"] for tool in client("tools/list")["result"]["tools"]] == ["add", "big"]
        assert result["content"] == [{"type": "text", "text": "5"}]
        assert [params["progress"] for params in told] == [1]
        assert client.request("tools/call", asked)["content"][0]["text"] == "5"


def test_a_group_shares_and_survives_on_the_real_server(port):
    """Requests are shared by a queue group, and when one of it goes the other has them all."""
    counts = {"one": 0, "two": 0}

    def counting(name):
        def function(call_id, args, signal, partial):
            counts[name] += 1
            return AgentToolResult(name)

        return function

    with (
        McpServer(store(who=counting("one"))) as one,
        McpServer(store(who=counting("two"))) as two,
        nats_mcp_server(f"127.0.0.1:{port}", SUBJECT, timeout_s=20) as client,
        NatsServing(one, f"127.0.0.1:{port}", SUBJECT),
    ):
        with NatsServing(two, f"127.0.0.1:{port}", SUBJECT):
            for _ in range(40):
                client.request("tools/call", {"name": "who", "arguments": {}})
        assert min(counts.values()) > 0 and sum(counts.values()) == 40
        before = counts["one"]
        for _ in range(5):
            client.request("tools/call", {"name": "who", "arguments": {}})

        assert counts["one"] == before + 5


def test_a_limit_is_told_to_the_group(port):
    """A call that is given up is cancelled at whoever has it."""
    ended = SimpleQueue()

    def wait(call_id, args, signal, partial):
        signal.wait(20)
        ended.put(signal.aborted)
        return AgentToolResult("late")

    with (
        McpServer(store(wait=wait)) as server,
        NatsServing(server, f"127.0.0.1:{port}", SUBJECT),
        nats_mcp_server(f"127.0.0.1:{port}", SUBJECT) as client,
    ):
        client.connect()
        with pytest.raises(McpTimeout):
            client.request("tools/call", {"name": "wait", "arguments": {}}, timeout_s=0.3)

        assert ended.get(timeout=10) is True


def test_a_plain_request_of_another_program_is_answered(port):
    """JSON-RPC without anything else, with a constant id, has its answer."""
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    with (
        McpServer(store(add=adds)) as server,
        NatsServing(server, f"127.0.0.1:{port}", SUBJECT),
        NatsClient(f"127.0.0.1:{port}") as plain,
    ):
        answer = json.loads(plain.request(SUBJECT, json.dumps(asked).encode(), 20).data)

    assert (answer["id"], [tool["name"] for tool in answer["result"]["tools"]]) == (1, ["add"])
