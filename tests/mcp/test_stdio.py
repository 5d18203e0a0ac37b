"""The stdio transport against servers that behave and servers that don't."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from queue import SimpleQueue

import pytest

from tests.support.processes import has_ended
from yiemagent.errors import ConfigurationError, McpTransportError
from yiemagent.mcp import jsonrpc
from yiemagent.mcp.jsonrpc import Malformed, Noise, Response
from yiemagent.mcp.server_process import server_environment
from yiemagent.mcp.stdio import StdioPipe

SERVER = str(pathlib.Path(__file__).with_name("bad_server.py"))


class Server:
    """A pipe to the badly behaved server, and what came out of it."""

    def __init__(self, *how, command=None, **options):
        self.received = SimpleQueue()
        self.ends = SimpleQueue()
        command = command or [sys.executable, SERVER, *how]
        self.pipe = StdioPipe(command, self.received.put, self.ends.put, name="bad", **options)
        self.count = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.pipe.close()

    def send(self, method, params=None):
        self.count += 1
        return self.pipe.send(jsonrpc.dump(jsonrpc.request(self.count, method, params)))

    def get(self):
        """The next message."""
        return self.received.get(timeout=20)

    def call(self, name, **arguments):
        self.send("tools/call", {"name": name, "arguments": arguments})
        return self.get()

    def told(self, name, **arguments):
        """What a tool says, read as JSON."""
        return json.loads(self.call(name, **arguments).result["content"][0]["text"])

    def end(self):
        """Why the pipe ended by itself."""
        return self.ends.get(timeout=20)


# --- messages --------------------------------------------------------------------------------------------------------


def test_messages_go_out_and_come_in():
    """Each is a line, in both directions, whatever it holds."""
    with Server() as server:
        answer = server.call("echo", t="é中😀\u2028\n")

    assert answer == Response(1, {"content": [{"type": "text", "text": "echo é中😀\u2028\n"}]})


def test_many_messages_come_in_order():
    """What is sent in a row, from many threads too, arrives whole."""
    with Server() as server:
        threads = [threading.Thread(target=server.send, args=("ping",)) for _ in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        answers = {server.get().id for _ in range(50)}

    assert len(answers) == len({*answers}) > 0


def test_a_large_message_goes_out_while_the_server_writes():
    """Ten megabytes leave piece by piece, and nobody blocks meanwhile."""
    with Server() as server:
        frame = server.send("tools/call", {"name": "echo", "arguments": {"t": "x" * 10_000_000}})
        assert not frame.is_sent
        answer = server.get()

        assert len(answer.result["content"][0]["text"]) == 10_000_005
        assert frame.is_sent


def test_noise_and_a_byte_order_mark_are_no_messages():
    """Banners come as noise, and the first message is read behind its mark."""
    with Server("bom", "banner", "noise") as server:
        server.send("tools/call", {"name": "echo", "arguments": {"t": 1}})
        first = [server.get() for _ in range(6)]
        last = server.get()

    assert [type(item) for item in first] == [Noise] * 6
    assert isinstance(last, Response)


def test_a_line_above_the_limit_is_one_malformed_message():
    """Twenty megabytes are too many for a small limit; the id is seen, and the next line is read."""
    with Server("long_line", max_line_bytes=1_000_000) as server:
        answer = server.call("echo")
        pong = server.send("ping") and server.get()

    assert isinstance(answer, Malformed)
    assert answer.id == 1
    assert pong == Response(2, {})


# --- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how, words",
    [
        ("exit_start", "ended with exit code 3; its last words: no database"),
        ("exit_call", "ended with exit code 4; its last words: Traceback: it broke\nKeyError: 'x'"),
        (
            "exit_stack",
            "exit code 1; its last words: Error: Cannot find module 'x'\n  code: 'E'\n}",
        ),
        ("killed", "was ended by SIGKILL without a word on stderr"),
        ("half_line", "ended with exit code 0"),
        ("close_output", "closed its output"),
    ],
)
def test_an_end_is_told_with_exit_code_and_last_words(how, words):
    """However the server ends, the pipe says so within a second, with what stderr held."""
    with Server(how) as server:
        if how not in {"exit_start", "exit_stack"}:
            server.send("tools/call", {"name": "echo", "arguments": {}})
        started = time.monotonic()
        error = server.end()

    assert isinstance(error, McpTransportError)
    assert words in str(error)
    assert time.monotonic() - started < 5


def test_a_last_line_without_an_end_is_read():
    """An answer that is whole counts, although the server ended before it ended the line."""
    with Server("no_newline") as server:
        assert isinstance(server.call("echo"), Response)
        assert "exit code 0" in str(server.end())


def test_what_is_sent_to_a_server_that_ended_raises():
    """Nothing goes out any more, and nobody waits for an answer."""
    with Server("exit_start") as server:
        server.end()
        server.pipe._closed.wait(5)
        with pytest.raises(McpTransportError, match="takes nothing any more"):
            server.send("ping")


def test_standard_output_tells_where_standard_error_is_silent():
    """A server that complains in the wrong place is quoted, too."""
    command = [sys.executable, "-c", "print('usage: give a folder'); raise SystemExit(2)"]
    with Server(command=command) as server:
        error = server.end()

    assert "exit code 2; its last words: usage: give a folder" in str(error)


def test_values_of_keys_are_not_shown():
    """What the user gave the server as a key never stands in an error."""
    script = "import os,sys; sys.stderr.write('bad key ' + os.environ['API_KEY']); sys.exit(1)"
    with Server(command=[sys.executable, "-c", script], env={"API_KEY": "sk-123456789"}) as server:
        error = server.end()

    assert "bad key ***" in str(error)


# --- the environment -------------------------------------------------------------------------------------------------


def test_a_server_gets_little_of_the_environment():
    """A handful of plain variables, and what the user gives; no key of ours."""
    ours = {"PATH": "/bin", "HOME": "/root", "OPENAI_API_KEY": "sk-1", "TERM": "() { :; }"}

    assert server_environment({"A": "1", "HOME": "/h"}, ours) == {
        "PATH": "/bin",
        "HOME": "/h",
        "A": "1",
    }
    assert server_environment(None, ours) == {"PATH": "/bin", "HOME": "/root"}


def test_a_server_runs_in_the_environment_and_folder_given(tmp_path, monkeypatch):
    """No variable of ours leaks, and the folder is the one asked for."""
    monkeypatch.setenv("SOME_API_KEY", "secret")
    with Server(env={"GIVEN": "yes"}, cwd=str(tmp_path)) as server:
        found, place = server.told("env"), server.told("pid")

    assert found["GIVEN"] == "yes"
    assert "SOME_API_KEY" not in found
    assert place["cwd"] == str(tmp_path)


@pytest.mark.parametrize("command", [["/no/such/program"], ["."], ["a\0b"]])
def test_a_command_that_cannot_be_started_is_told_at_once(command):
    """No such file, no program: a mistake of the caller's, with nothing left open."""
    with pytest.raises(ConfigurationError, match="can't start the server"):
        Server(command=command)


def test_a_server_that_cannot_be_read_from_is_ended():
    """Where the system gives no thread, nothing is left of it."""
    before = threading.stack_size(2**46)
    try:
        with pytest.raises(McpTransportError, match="no thread"):
            Server()
    finally:
        threading.stack_size(before)


# --- closing ---------------------------------------------------------------------------------------------------------


def test_a_server_ends_when_its_input_does():
    """A good server is gone in no time, and asked by no signal."""
    server = Server()
    server.send("ping")
    server.get()
    started = time.monotonic()
    server.pipe.close()
    server.pipe.close()

    assert time.monotonic() - started < 1
    assert server.ends.empty()


@pytest.mark.parametrize("how", [("ignore_eof",), ("ignore_eof", "ignore_term")])
def test_a_server_that_ignores_its_end_is_ended(how):
    """First it is asked to, then it has no choice; closing takes a few seconds at most."""
    server = Server(*how)
    pid = server.told("pid")["pid"]
    started = time.monotonic()
    server.pipe.close()

    assert time.monotonic() - started < 4
    assert has_ended(pid)


@pytest.mark.parametrize(
    "how",
    [
        ("wrapper", "ignore_eof", "ignore_term"),
        ("leaving_wrapper", "ignore_eof", "ignore_term"),
        ("leaving_wrapper",),
        ("helper",),
    ],
)
def test_what_a_wrapper_started_ends_with_it(how):
    """The whole group goes, also where the wrapper left before, and where a helper holds the pipes."""
    server = Server(*how)
    pid = server.told("pid")["pid"]
    server.pipe.close()

    assert has_ended(pid)


def test_a_flood_on_standard_error_blocks_nobody():
    """It is drained, and its end kept."""
    with Server("flood_stderr") as server:
        assert isinstance(server.call("echo"), Response)
        assert 0 < len(server.pipe.last_words) < 100_000


def test_closing_from_many_threads_ends_once():
    """Each returns when all is gone."""
    server = Server("ignore_eof")
    threads = [threading.Thread(target=server.pipe.close) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with pytest.raises(ProcessLookupError):
        os.kill(server.pipe.pid, 0)


def test_a_server_that_does_not_read_holds_nobody_up():
    """What doesn't fit waits; it can be taken back where none of it went, and the pipe can be ended."""
    with Server("deaf") as server:
        server.send("initialize", {"protocolVersion": "2025-11-25"})
        server.get()
        stuck = server.send("tools/call", {"name": "echo", "arguments": {"t": "x" * 300_000}})
        behind = server.send("ping")

        assert not stuck.is_sent
        assert not server.pipe.withdraw(stuck)
        assert server.pipe.withdraw(behind)
        assert not server.pipe.withdraw(behind)
        server.pipe.kill("does not read what it is sent")
        assert "does not read what it is sent" in str(server.end())


PARENT = """
import os, signal, sys
sys.path.insert(0, {root!r})
from yiemagent.mcp.stdio import StdioPipe
from yiemagent.mcp import jsonrpc
def told(message):
    print(message.result["content"][0]["text"], flush=True)
    {then}
pipe = StdioPipe([sys.executable, {server!r}, "ignore_eof", "ignore_term"], told, print)
pipe.send(jsonrpc.dump(jsonrpc.request(1, "tools/call", {{"name": "pid"}})))
signal.pause()
"""


@pytest.mark.parametrize(
    "then",
    ["os.kill(os.getpid(), signal.SIGKILL)", "os.kill(os.getpid(), signal.SIGINT)"],
)
def test_no_server_outlives_its_parent(then):
    """Killed without warning or ended in the usual way: the server that ignores everything is gone soon after."""
    root = str(pathlib.Path(__file__).resolve().parent.parent.parent)
    script = PARENT.format(root=root, server=SERVER, then=then)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=50, check=False
    )
    pid = json.loads(done.stdout.splitlines()[0])["pid"]

    assert done.returncode == (-signal.SIGKILL if "SIGKILL" in then else -signal.SIGINT)
    assert has_ended(pid)


def test_a_forked_child_holds_no_server_up():
    """A child that was forked keeps neither end of the pipes, so that a server still hears its parent's end."""
    server = Server()
    server.send("ping")
    server.get()
    ready, release = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(ready[1], b"x")
        os.read(release[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    started = time.monotonic()
    server.pipe.close()
    took_s = time.monotonic() - started
    os.write(release[1], b"x")
    os.waitpid(child, 0)
    for descriptor in (*ready, *release):
        os.close(descriptor)

    assert took_s < 1
