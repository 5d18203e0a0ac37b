"""A server on its standard input and output."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import textwrap
import threading

import pytest

from tests.support.mcp_wire import StdioPeer, asked, initialize, stateless
from yiemagent.mcp.server import McpServer
from yiemagent.registry import ToolStore
from yiemagent.tool import AgentTool, AgentToolResult


def tool(name, execute, **options):
    """A tool that may run beside others."""
    return AgentTool(
        name, description="Does.", execute=execute, parallel_tool_execute=True, **options
    )


def server(*tools):
    """A server with these tools."""
    store = ToolStore("test")
    for each in tools:
        store.register(each)
    return McpServer(store)


def text(answer):
    """The text of an answer."""
    return answer["result"]["content"][0]["text"]


def test_both_eras_are_served_on_one_wire():
    """A stateless request and one after a handshake are answered, each in its way."""
    with server(tool("t", lambda *_: "hi")) as served, StdioPeer(served) as peer:
        new = peer.ask(stateless(1, "tools/call", name="t"))
        opened = peer.shake_hands()
        old = peer.ask(asked(2, "tools/call", name="t"))

        assert (text(new), new["result"]["resultType"]) == ("hi", "complete")
        assert opened["result"]["protocolVersion"] == "2025-11-25"
        assert (text(old), "resultType" in old["result"]) == ("hi", False)


def test_calls_run_side_by_side():
    """Two calls meet in the same barrier, and the quicker is answered first."""
    both, gate = threading.Barrier(2, timeout=10), threading.Event()

    def meets(call_id, args, signal, partial):
        both.wait()
        if call_id == "slow":
            gate.wait(10)
        return call_id

    with server(tool("t", meets)) as served, StdioPeer(served) as peer:
        peer.send(stateless("slow", "tools/call", name="t"))
        peer.send(stateless("quick", "tools/call", name="t"))
        first = peer.receive()
        gate.set()

        assert (first["id"], peer.receive()["id"]) == ("quick", "slow")


def test_changes_are_told_unasked_after_a_handshake():
    """A tool that comes is a notification on the wire."""
    with server() as served, StdioPeer(served) as peer:
        peer.shake_hands()
        peer.ask(asked(1, "ping"))
        served.store.register(tool("t", lambda *_: None))

        assert peer.receive()["method"] == "notifications/tools/list_changed"


def test_noise_and_cut_lines_are_refused_one_by_one():
    """Whatever comes, in whatever pieces, the next request is answered."""
    with server() as served, StdioPeer(served, max_line_bytes=2000) as peer:
        peer.raw(b"\xef\xbb\xbfhello\r\n\n")
        noise = peer.receive()
        peer.raw(b'{"jsonrpc":"2.0","id":5,"method":"x","params":{"a":"' + b"y" * 5000 + b'"}}\n')
        long = peer.receive()
        whole = json.dumps(initialize()).encode() + b"\r\n"
        peer.raw(whole[:20])
        peer.raw(whole[20:])

        assert "id" not in noise
        assert (long["id"], "longer than 2000" in long["error"]["message"]) == (5, True)
        assert peer.receive()["id"] == 0


def test_what_json_cannot_say_is_an_error_of_its_call():
    """A result with a number that is none is answered with an error, and a log with one is dropped."""

    def gives(call_id, args, signal, partial):
        partial({"progress": 1, "total": math.inf})
        return AgentToolResult("x", details={"x": math.nan})

    nan = tool("t", gives, output_schema={"type": "object"})
    with server(nan) as served, StdioPeer(served) as peer:
        request = stateless(1, "tools/call", name="t")
        request["params"]["_meta"]["progressToken"] = 1
        answer = peer.ask(request)

        assert answer["error"]["code"] == -32603
        assert "JSON" in answer["error"]["message"]


def test_a_cancelled_call_is_not_answered():
    """The next answer on the wire is that of the next request."""
    began = threading.Event()

    def waits(call_id, args, signal, partial):
        began.set()
        signal.wait(10)

    with server(tool("t", waits)) as served, StdioPeer(served) as peer:
        peer.send(stateless(1, "tools/call", name="t"))
        assert began.wait(10)
        peer.send(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        )
        peer.send(stateless(2, "tools/list"))

        assert peer.receive()["id"] == 2


def test_a_server_that_was_closed_answers_all_the_same():
    """Calls are refused and nothing breaks."""
    with server(tool("t", lambda *_: "hi")) as served, StdioPeer(served) as peer:
        served.close()
        answer = peer.ask(stateless(1, "tools/call", name="t"))

        assert answer["result"]["isError"]


# -- the end ----------------------------------------------------------------------------------------------------------


def test_what_was_asked_before_the_end_is_answered():
    """A client that closes its end at once still reads its answers, a last line without an end too."""
    with server(tool("t", lambda *_: "hi")) as served, StdioPeer(served) as peer:
        peer.raw(json.dumps(stateless(1, "tools/call", name="t")).encode())
        peer.hang_up()

        assert text(peer.receive()) == "hi"
        assert peer.reader.readline() == b""


def test_at_the_end_calls_are_aborted():
    """A call that goes on after the grace has its signal set, and serving ends."""
    aborted = threading.Event()

    def waits(call_id, args, signal, partial):
        if signal.wait(10):
            aborted.set()

    with server(tool("t", waits)) as served, StdioPeer(served, end_grace_s=0.05) as peer:
        peer.send(stateless(1, "tools/call", name="t"))
        peer.ask(stateless(2, "tools/list"))
        peer.hang_up()
        peer.thread.join(10)

        assert not peer.thread.is_alive()
        assert aborted.wait(10)


@pytest.mark.abandons_threads(2)
def test_a_tool_that_hangs_holds_up_no_end():
    """Serving ends although the tool does not."""
    gate = threading.Event()
    hangs = tool("t", lambda *_: gate.wait(30))
    with server(hangs) as served, StdioPeer(served, end_grace_s=0.05) as peer:
        peer.send(stateless(1, "tools/call", name="t"))
        peer.ask(stateless(2, "tools/list"))
        peer.hang_up()
        peer.thread.join(10)
        ended = not peer.thread.is_alive()
        gate.set()

        assert ended


def test_a_client_that_does_not_read_holds_up_no_end():
    """More than a pipe holds is waiting to be read, and serving ends all the same."""
    big = tool("t", lambda *_: "x" * 1_000_000)
    with server(big) as served, StdioPeer(served, end_grace_s=0.2) as peer:
        peer.send(stateless(1, "tools/call", name="t"), stateless(2, "tools/call", name="t"))
        peer.hang_up()
        peer.thread.join(10)
        ended = not peer.thread.is_alive()
        peer.reader.read()

        assert ended


def test_a_client_that_closed_its_reading_end_is_no_error():
    """What can't be written is dropped, and serving goes on to the end of the input."""
    with server() as served, StdioPeer(served) as peer:
        peer.reader.close()
        peer.send(stateless(1, "tools/list"), stateless(2, "tools/list"))
        peer.hang_up()
        peer.thread.join(10)

        assert not peer.thread.is_alive()


def test_a_broken_input_is_an_end():
    """An input that can't be read ends serving."""
    with server() as served:
        reading, writing = os.pipe()
        os.close(writing)
        peer = StdioPeer(served)
        os.close(peer._in)
        peer._in = reading
        with peer:
            peer.thread.join(10)

            assert not peer.thread.is_alive()


# -- a process of its own ---------------------------------------------------------------------------------------------

PROGRAM = """
    import os, subprocess, sys
    from yiemagent.mcp.serve_stdio import serve_stdio
    from yiemagent.mcp.server import McpServer
    from yiemagent.registry import ToolStore
    from yiemagent.tool import AgentTool

    def noisy(call_id, args, signal, partial):
        print("to stdout")
        os.write(1, b"to descriptor 1\\n")
        subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
        child = subprocess.run(
            [sys.executable, "-c", "import sys; print(repr(sys.stdin.read()))"],
            stdout=subprocess.PIPE, check=True,
        )
        return f"child read {child.stdout.decode().strip()}, input gives {sys.stdin.read()!r}"

    def hangs(call_id, args, signal, partial):
        while True:
            signal.wait(0.01) and __import__("threading").Event().wait()

    store = ToolStore("t")
    for name, execute in (("noisy", noisy), ("hangs", hangs)):
        store.register(AgentTool(name, description="Does.", execute=execute))
    with McpServer(store) as server:
        serve_stdio(server, end_grace_s=float(sys.argv[1]))
    print("stdout is back")
    heavy = {"requests", "urllib3", "jsonschema", "http", "email", "ssl", "asyncio"}
    print(sorted(heavy & set(sys.modules)), file=sys.stderr)
"""


def run(*messages, end_grace_s=20):
    """Run the program with these messages as its input, and its calls' time at the end; gives the process."""
    lines = "".join(json.dumps(message) + "\n" for message in messages)
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(end_grace_s)],
        input=lines.encode(),
        capture_output=True,
        check=True,
        timeout=30,
    )


def test_prints_and_children_never_reach_the_wire():
    """What a tool or its child prints goes to stderr, and neither can read the client's messages."""
    done = run(stateless(1, "tools/call", name="noisy"), stateless(2, "tools/list"))
    *answers, last = done.stdout.decode().splitlines()
    found = {answer["id"]: answer for answer in map(json.loads, answers)}

    assert text(found[1]) == "child read '', input gives ''"
    assert set(found) == {1, 2}
    assert last == "stdout is back"
    for words in (b"to stdout", b"to descriptor 1", b"from a child"):
        assert words in done.stderr


def test_a_hanging_tool_does_not_keep_the_process():
    """The process ends soon after its input does."""
    done = run(stateless(1, "tools/call", name="hangs"), end_grace_s=0.2)

    assert done.returncode == 0
    assert done.stdout == b"stdout is back\n"


def test_serving_by_stdio_loads_nothing_heavy():
    """Neither HTTP, TLS nor a schema library is loaded, so that child processes start quickly."""
    done = run(stateless(1, "tools/list"))

    assert done.stderr.decode().splitlines()[-1] == "[]"
