"""The client over stdio, against servers that behave and servers that don't."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
from queue import SimpleQueue

import pytest

from yiemagent.abort import AbortSignal
from yiemagent.errors import (
    AbortedError,
    ConfigurationError,
    McpError,
    McpProtocolError,
    McpTimeout,
    McpTransportError,
)
from yiemagent.mcp.client import McpClient
from yiemagent.mcp.client_protocol import LogMessage
from yiemagent.mcp.dialers import StdioServer

SERVER = str(pathlib.Path(__file__).with_name("bad_server.py"))


@pytest.fixture
def make():
    """A function that makes clients of the badly behaved server, which are closed after the test."""
    made = []

    def make(*how, **options):
        options.setdefault("timeout_s", 20)
        made.append(McpClient([sys.executable, SERVER, *how], **options))
        return made[-1]

    yield make
    for client in made:
        client.close()


def said(result):
    """The text of a tool's result."""
    return result["content"][0]["text"]


def echo(client, words="x", **options):
    return said(client.call_tool("echo", {"t": words}, **options))


# --- using a server --------------------------------------------------------------------------------------------------


def test_a_blocking_script_uses_a_server():
    """It is started by the first call, asked, and gone after the block."""
    with McpClient(f"{sys.executable} {SERVER}") as client:
        assert client.server is None
        names = [tool["name"] for tool in client.list_tools()]
        assert echo(client) == "echo x"
        pid = json.loads(said(client.call_tool("pid")))["pid"]
        assert client.server.version == "2025-11-25"
        assert client.server.info == {"name": "bad", "version": "0"}
        client.ping()

    assert names == ["echo", "slow", "env", "pid", "report", "exit"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_client_is_callable_as_an_agent_wants_it(make):
    """Lists and calls give JSON-RPC dicts; a server's error is one, too."""
    client = make("error")

    assert client("tools/list")["result"]["tools"][0]["name"] == "echo"
    assert client("tools/call", "pid")["result"]["content"]
    assert client("tools/call", "echo", {"t": 1})["error"]["code"] == -32602
    assert "bad params" in client("tools/call", "echo", {})["error"]["message"]
    assert client("tools/call", "nobody", None)["result"]["isError"]


def test_an_error_keeps_code_and_data(make):
    """What the server's error held is on the exception."""
    with pytest.raises(McpProtocolError, match=r"bad params \(code -32602\)") as caught:
        echo(make("error"))

    assert (caught.value.code, caught.value.data) == (-32602, {"field": "t"})


def test_progress_is_told_on_the_calling_thread(make):
    """Each step as it comes, before the result."""
    told = []
    result = make().call_tool(
        "slow",
        {"steps": 3, "s": 0.01},
        on_progress=lambda params: told.append((params["progress"], threading.get_ident())),
    )

    assert said(result) == "slow"
    assert told == [(step, threading.get_ident()) for step in (1, 2, 3)]


def test_a_callback_may_use_the_client(make):
    """Nothing is held while it runs: a call within a call works."""
    client = make()
    inner = []
    client.call_tool(
        "slow", {"s": 0.01}, on_progress=lambda params: inner.append(client.list_tools()[0]["name"])
    )

    assert inner == ["echo"]


def test_logs_are_told_to_who_asks(make):
    """Each record of the server's, in order."""
    told = SimpleQueue()
    client = make("flood_notes", on_log=told.put, log_level="info")
    assert echo(client) == "echo x"

    assert told.get(timeout=5) == LogMessage("info", "note 0")


# --- many calls ------------------------------------------------------------------------------------------------------


def in_parallel(function, count):
    """What `count` threads get of a function, and how long it took."""
    results = SimpleQueue()
    threads = [threading.Thread(target=lambda: results.put(function())) for _ in range(count)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results.get() for _ in range(count)], time.monotonic() - started


def test_calls_of_a_tool_that_may_write_run_one_by_one(make):
    """Servers lose updates otherwise, so that is the default."""
    client = make()
    client.connect()
    results, took_s = in_parallel(lambda: said(client.call_tool("slow", {"s": 0.1})), 4)

    assert results == ["slow"] * 4
    assert took_s >= 0.4


@pytest.mark.parametrize(
    "how, options",
    [((), {"max_concurrency": 20}), ((), {"max_concurrency": None}), (("readonly",), {})],
)
def test_other_calls_take_the_time_of_the_longest(make, how, options):
    """Where the user allows it, or the tool only reads, all run at once over the one connection."""
    client = make(*how, **options)
    client.list_tools()
    results, took_s = in_parallel(lambda: said(client.call_tool("slow", {"s": 0.5})), 20)

    assert results == ["slow"] * 20
    assert took_s < 3


def test_waiting_for_a_turn_counts(make):
    """A call whose turn doesn't come within its limit is over, and nothing of it was sent."""
    client, busy = make(), threading.Event()
    client.connect()
    first = threading.Thread(
        target=client.call_tool,
        args=("slow", {"steps": 2, "s": 0.3}),
        kwargs={"on_progress": lambda params: busy.set()},
    )
    first.start()
    assert busy.wait(10)
    with pytest.raises(McpTimeout, match=r"waited for its turn .* was not sent"):
        client.call_tool("echo", {"t": "mine"}, timeout_s=0.1)
    first.join()
    told = json.loads(said(client.call_tool("report")))

    assert [message for message in told if message.get("method") == "notifications/cancelled"] == []


def test_the_first_calls_share_one_connection(make):
    """However many threads come first, one server is started."""
    client = make(max_concurrency=None)
    results, _ = in_parallel(lambda: said(client.call_tool("pid")), 10)

    assert len(set(results)) == 1


# --- ends of a call --------------------------------------------------------------------------------------------------


def test_a_deadline_ends_a_call_and_the_server_hears_of_it(make):
    """The call is cancelled, its late answer dropped, and the connection is as good as before."""
    client = make("late")
    client.connect()
    with pytest.raises(McpTimeout, match=r"time limit of 0\.1 s"):
        echo(client, timeout_s=0.1)
    assert said(client.call_tool("slow", {"s": 0.5})) == "slow"
    told = json.loads(said(client.call_tool("report")))

    assert told[-1]["method"] == "notifications/cancelled"
    assert told[-1]["params"]["requestId"] > 0
    assert client._link.current[0].late == 1


def test_an_abort_ends_a_call_at_once(make):
    """Within 0.1 s, from any thread, with its reason; the server goes on for others."""
    client, signal = make("silent"), AbortSignal()
    client.connect()
    timer = threading.Timer(0.1, signal.abort, ["no need"])
    timer.start()
    with pytest.raises(AbortedError, match="no need"):
        echo(client, signal=signal)
    ended_at = time.monotonic()
    timer.join()

    assert ended_at - signal.aborted_at < 0.1
    assert "no need" in said(client.call_tool("report"))
    with pytest.raises(AbortedError):
        echo(client, signal=signal)


def test_silence_ends_a_call_where_progress_would_not(make):
    """The idle limit begins anew with each word of progress."""
    client = make(idle_timeout_s=0.4)
    client.connect()

    assert said(client.call_tool("slow", {"steps": 4, "s": 0.2}, on_progress=lambda params: None))
    with pytest.raises(McpTimeout, match="said nothing"):
        client.call_tool("slow", {"s": 5})


def test_closing_ends_what_waits(make):
    """From another thread, within its time, and the call says why it ended."""
    client, caught = make("silent"), SimpleQueue()
    client.connect()

    def wait():
        try:
            echo(client)
        except McpError as error:
            caught.put(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    in_parallel(client.close, 3)
    waiting.join()

    assert "closed" in caught.get()
    with pytest.raises(McpTransportError, match="the client was closed"):
        echo(client)


def test_whoever_closes_waits_for_the_end(make):
    """Also who was not the first: when it comes back, the server is gone."""
    client, alive = make("ignore_term"), SimpleQueue()
    pid = json.loads(said(client.call_tool("pid")))["pid"]

    def close():
        client.close()
        alive.put(pathlib.Path(f"/proc/{pid}/cmdline").exists())

    in_parallel(close, 3)

    assert [alive.get() for _ in range(3)] == [False] * 3


class Noticed(StdioServer):
    """A server that tells when it was started."""

    def __init__(self, *how):
        super().__init__([sys.executable, SERVER, *how])
        self.started = threading.Event()

    def dial(self, *args):
        connection = super().dial(*args)
        self.started.set()
        return connection


def test_closing_while_it_opens_ends_that_too():
    """Who waits for the connection is told, and no server is left."""
    server, caught = Noticed("silent_probe"), SimpleQueue()
    client = McpClient(server, probe_timeout_s=30)

    def connect():
        try:
            client.connect()
        except McpError as error:
            caught.put(str(error))

    threads = [threading.Thread(target=connect) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert server.started.wait(10)
    client.close()
    for thread in threads:
        thread.join()

    assert [caught.get() for _ in threads] == ["the client was closed"] * 3


def test_a_client_may_be_closed_before_it_was_used(make):
    """Nothing was started, and nothing ends."""
    client = make()
    client.close()
    client.close()

    assert client.server is None


# --- badly behaved servers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how",
    [
        ("banner", "noise"),
        ("bom",),
        ("crlf",),
        ("id_as_text",),
        ("duplicate",),
        ("misdelivered",),
        ("server_asks",),
        ("flood_stderr",),
        ("flood_notes",),
        ("no_newline",),
        ("leaving_wrapper",),
        ("wrapper",),
    ],
)
def test_a_call_survives(make, how):
    """Noise, floods, odd ids and wrappers cost nothing."""
    assert echo(make(*how)) == "echo x"


def test_broken_characters_are_replaced(make):
    """Bytes that are no UTF-8 become U+FFFD; half a surrogate pair comes as it is, for whoever sends it on to mend."""
    assert echo(make("bad_utf8")) == "\ufffdecho x"
    assert echo(make("surrogate")) == "\ud83d"


def test_twenty_megabytes_come_and_go(make):
    """Lines have no small limit."""
    client = make("long_line")

    assert len(echo(client)) == 20_000_000
    assert client.call_tool("nobody", {"t": "x" * 20_000_000})["isError"]


@pytest.mark.parametrize(
    "how, words",
    [
        ("exit_start", "ended with exit code 3; its last words: no database"),
        ("exit_initialize", "ended with exit code 5; its last words: no licence"),
        ("exit_call", "ended with exit code 4; its last words: Traceback: it broke\nKeyError: 'x'"),
        ("half_line", "ended with exit code 0"),
        ("killed", "was ended by SIGKILL"),
        ("close_output", "closed its output"),
        ("neither", "neither a method, a result nor an error"),
        ("both", "both a result and an error"),
        ("deep", "nested too deeply"),
        ("huge_number", "no JSON"),
        ("no_id", "names no request"),
        ("pretty", "spread over several lines"),
        ("null_id_error", "what was that"),
        ("no_object", "no object"),
        ("old", "1999-01-01"),
        ("new", "2026-07-28"),
    ],
)
def test_a_call_fails_at_once_and_says_why(make, how, words):
    """Long before its deadline, with exit code and last words where the server ended."""
    client = make(how)
    started = time.monotonic()
    with pytest.raises(McpError) as caught:
        echo(client)

    assert words in str(caught.value)
    assert time.monotonic() - started < 8


@pytest.mark.parametrize("how", ["silent", "wrong_id"])
def test_an_answer_that_never_comes_ends_at_the_deadline(make, how):
    """What else could it do."""
    client = make(how)
    client.connect()
    with pytest.raises(McpTimeout):
        echo(client, timeout_s=0.2)


def test_a_line_above_the_limit_fails_its_call_alone():
    """The limit is the user's, and the next call goes well."""
    server = StdioServer([sys.executable, SERVER, "long_line"], max_line_bytes=1_000_000)
    with McpClient(server) as client:
        with pytest.raises(McpProtocolError, match="longer than 1000000 bytes"):
            echo(client)
        assert client.call_tool("pid")["content"]


def test_not_a_number_is_read_as_python_reads_it(make):
    """JSON has no NaN, but servers that send one mean it."""
    result = make("nan").call_tool("echo")

    assert str(result["content"][0]["text"]) == "nan"


def test_a_server_that_does_not_read_ends_the_call_at_its_deadline(make):
    """What it doesn't take blocks nobody, and that server is ended: the next call starts another one."""
    client = make("deaf", protocol="legacy")
    client.connect()
    with pytest.raises(McpTimeout):
        client.call_tool("echo", {"t": "x" * 300_000}, timeout_s=0.3)
    with pytest.raises(McpTimeout):
        client.call_tool("echo", {"t": "x"}, timeout_s=1)


# --- the list --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how, count",
    [
        ("same_cursor", 2),
        ("endless_cursors", 1000),
        ("empty_cursor", 2),
        ("null_tools", 0),
        ("lost_cursor", 1),
    ],
)
def test_a_list_comes_to_an_end(make, how, count):
    """Cursors that repeat or never end are cut, an empty one is followed, a lost one begins the list anew."""
    assert len(make(how).list_tools()) == count


def test_a_list_that_never_comes_ends_at_the_deadline(make):
    """All pages together have one limit."""
    client = make("list_hangs")
    client.connect()
    with pytest.raises(McpTimeout):
        client.list_tools(timeout_s=0.2)


# --- eras ------------------------------------------------------------------------------------------------------------


def test_a_server_that_is_silent_when_probed_is_shaken_hands_with(make):
    """On the same process, after the probe's own limit; the verdict is kept for the next connection."""
    client = make("silent_probe", probe_timeout_s=0.3)
    assert echo(client) == "echo x"
    client.call_tool("pid")
    with pytest.raises(McpTransportError):
        client.call_tool("exit")
    started = time.monotonic()
    assert echo(client) == "echo x"

    assert client._link._era == "legacy"
    assert time.monotonic() - started < 5


def test_a_server_that_ends_when_probed_is_started_again(make):
    """Once, and then without the question that it didn't bear."""
    client = make("exit_probe")

    assert echo(client) == "echo x"
    assert len(client._link._ends) == 0


# --- broken connections ----------------------------------------------------------------------------------------------


def test_the_next_call_starts_the_server_again(make):
    """A server that ended is gone; who listens to its tools is told to list them anew."""
    client, changed = make(), threading.Event()
    first = said(client.call_tool("pid"))
    client.on_tools_changed(changed.set)
    with pytest.raises(McpTransportError) as caught:
        client.call_tool("exit")
    second = said(client.call_tool("pid"))

    assert caught.value.outcome_unknown
    assert "not known" in str(caught.value)
    assert first != second
    assert changed.wait(5)


def test_a_server_that_ended_between_two_calls_is_started_again(make):
    """Nobody was asked anything, so nothing is lost."""
    client = make()
    first = said(client.call_tool("pid"))
    pipe = client._link.current[0].pipe
    pipe._process.signal_group(9)
    assert pipe._closed.wait(10)

    assert client.server is None
    assert said(client.call_tool("pid")) != first


def test_a_server_that_takes_nothing_any_more_is_ended(make):
    """Its input closed, it can't be asked; the call that finds out is sent to another one, since it never left."""
    client = make("close_input")
    assert echo(client) == "echo x"

    assert said(client.call_tool("pid"))
    assert len(client._link._ends) == 1


def test_who_waits_for_another_to_connect_may_leave():
    """By its own signal and its own limit; the connection goes on being opened."""
    server, signal, told = Noticed("silent_probe"), AbortSignal(), SimpleQueue()
    with McpClient(server, probe_timeout_s=1.5) as client:
        opening = threading.Thread(target=lambda: told.put(client.connect(timeout_s=20)))
        opening.start()
        assert server.started.wait(10)
        with pytest.raises(McpTimeout):
            client.connect(timeout_s=0.1)
        signal.abort()
        with pytest.raises(AbortedError):
            client.connect(signal=signal)
        opening.join()

        assert told.get().version == "2025-11-25"


def test_who_waits_opens_the_connection_itself_where_the_first_left():
    """An abort is the first one's own affair."""
    server, signal, told = Noticed("silent_probe"), AbortSignal(), SimpleQueue()

    def give_up():
        with contextlib.suppress(AbortedError):
            client.connect(signal=signal)

    with McpClient(server, probe_timeout_s=0.5) as client:
        threads = [
            threading.Thread(target=give_up),
            threading.Thread(target=lambda: told.put(client.connect())),
        ]
        threads[0].start()
        assert server.started.wait(10)
        threads[1].start()
        signal.abort()
        for thread in threads:
            thread.join()

        assert told.get().version == "2025-11-25"


def test_a_server_that_keeps_ending_is_left_alone(make):
    """After three ends within a minute it isn't started any more, and the error says what happened last."""
    client = make("exit_call")
    for _ in range(3):
        with pytest.raises(McpTransportError, match="exit code 4"):
            echo(client)
    with pytest.raises(
        McpTransportError, match=r"left alone for a while; the last time:.*exit code 4"
    ):
        echo(client)


@pytest.mark.parametrize(
    "how, options, starts",
    [
        ((), {}, 1),
        (("idempotent",), {}, 1),
        ((), {"resend_idempotent": True}, 1),
        (("idempotent",), {"resend_idempotent": True}, 2),
        (("readonly",), {"resend_idempotent": True}, 2),
    ],
)
def test_a_call_is_sent_again_only_where_tool_and_user_allow_it(
    make, tmp_path, how, options, starts
):
    """Never by default: whether it had its effect is not known."""
    client = make("exit_call", *how, **options)
    client.list_tools()
    with pytest.raises(McpTransportError):
        echo(client)

    assert len(client._link._ends) == starts


def test_what_only_reads_is_asked_again(make):
    """A list that was on its way when the server ended comes from the next one."""
    client = make()
    client.connect()
    client._link.current[0].pipe._process.signal_group(9)

    assert client.list_tools()


def test_a_forked_child_has_a_server_of_its_own(tmp_path):
    """The parent's stays the parent's."""
    script = f"""
import os, sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, {str(pathlib.Path(__file__).resolve().parent.parent.parent)!r})
from yiemagent.mcp.client import McpClient
client = McpClient([sys.executable, {SERVER!r}])
pid = lambda: client.call_tool("pid")["content"][0]["text"]
before = pid()
child = os.fork()
if child == 0:
    os.write(1, b"other\\n" if pid() != before else b"same\\n")
    client.close()
    os._exit(0)
os.waitpid(child, 0)
print("kept" if pid() == before else "lost")
client.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=50, check=False
    )

    assert (done.stdout.split(), done.stderr) == (["other", "kept"], "")


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", ["", [], [""], "a 'b", 5, None, b"x", object()])
def test_what_is_no_server_is_refused(server):
    """The mistake is told where it is made."""
    with pytest.raises(ConfigurationError):
        McpClient(server)


@pytest.mark.parametrize(
    "options",
    [
        {"protocol": "new"},
        {"timeout_s": 0},
        {"idle_timeout_s": -1},
        {"probe_timeout_s": 0},
        {"max_concurrency": 0},
        {"log_level": "loud"},
        {"elicitation": 5},
    ],
)
def test_options_that_make_no_sense_are_refused(options):
    """Before anything is started."""
    with pytest.raises(ConfigurationError):
        McpClient("x", **options)


def test_a_command_that_does_not_exist_is_told_by_the_first_call():
    """As a mistake of the caller's."""
    client = McpClient("/no/such/server --stdio")
    with (
        client,
        pytest.raises(ConfigurationError, match="can't start the server '/no/such/server'"),
    ):
        client.list_tools()


def test_a_client_is_named_after_its_server():
    """Its script, or what the user calls it; and its text shows no variable."""
    server = StdioServer(["npx", "-y", "@scope/server-files", "/tmp"], env={"KEY": "sk-1"})

    assert McpClient(server).name == "server-files"
    assert McpClient(server).prefix == ""
    assert McpClient(server, name="files").prefix == "files"
    assert McpClient(["python3", "-u", "server.py"]).name == "server"
    assert McpClient(["python3"]).name == "python3"
    assert "sk-1" not in repr(McpClient(server))


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("node /srv/server-memory/dist/index.js", "server-memory"),
        ("node dist/index.js stdio", "index"),
        ("/usr/bin/env python3.11 ../src/server.py", "server"),
        ("npx -y sheets-mcp", "sheets-mcp"),
        ("bash shop.sh", "shop"),
    ],
)
def test_a_name_tells_servers_apart(command, name):
    """What half of all scripts are called gives way to their folder, and a name that begins like a runner is one."""
    assert McpClient(command).name == name


def test_errors_name_the_server_as_the_user_does(make):
    """They have the name that it was given, and not its script's."""
    with pytest.raises(McpTransportError, match=r"the server 'files' ended with exit code"):
        echo(make("exit_call", name="files"))
