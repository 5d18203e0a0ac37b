"""The embedded model's process: one for each model, one clear line where it fails, gone with who started it."""

from __future__ import annotations

import os
import pathlib
import signal as signals
import subprocess
import sys
import threading

import pytest

from tests.support.processes import has_ended
from yiemagent.abort import AbortSignal
from yiemagent.errors import AbortedError, ConfigurationError, LlmConnectionError
from yiemagent.net.http import HttpClient
from yiemagent.providers.local_models import pull
from yiemagent.providers.local_process import (
    LocalServer,
    ServerSpec,
    server_for,
    stop_servers,
    thread_count,
    why_not_started,
)

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def spec():
    yield ServerSpec(pull().resolve(), slots=1, context_tokens=256, threads=1)
    stop_servers()


def broken_spec(path):
    return ServerSpec(path, slots=1, context_tokens=256, threads=1)


def run_script(text, *args):
    """Run Python with the library in reach; gives the process, its output in pipes."""
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{text}"
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )


START = """
import os, pathlib
from yiemagent.abort import AbortSignal
from yiemagent.providers.local_process import ServerSpec, _servers, server_for
server = server_for(ServerSpec(pathlib.Path(sys.argv[1]), 1, 256, 1))
server.wait(AbortSignal())
print(server.pid, flush=True)
"""


@pytest.mark.parametrize("ending", ["", "os.kill(os.getpid(), 9)", "os._exit(3)"])
def test_the_server_goes_with_its_process(ending):
    """However the process that started it ends, the server ends, and nothing of it is on stdout or stderr."""
    done = run_script(START + ending, pull())

    assert has_ended(int(done.stdout))
    assert done.stderr == ""


def test_a_forked_child_leaves_the_server_to_its_parent():
    """A child of a fork has no server, and the parent's goes on answering."""
    script = START + (
        "child = os.fork()\n"
        "if child == 0:\n    os._exit(7 if not _servers else 1)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), server.is_alive)\n"
    )
    lines = run_script(script, pull()).stdout.split("\n")

    assert lines[1] == "7 True"


def test_one_model_has_one_server_started_by_whoever_comes_first(spec):
    """Many threads that ask for a model at once get the same server."""
    barrier, got = threading.Barrier(8), []

    def ask():
        barrier.wait(10)
        server = server_for(spec)
        server.wait(AbortSignal())
        got.append((server, server.pid))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(got) == 8
    assert len(set(got)) == 1


def test_a_server_that_died_is_started_again(spec):
    """After a crash of the model's process the next question starts another."""
    first = server_for(spec)
    first.wait(AbortSignal())
    os.kill(first.pid, signals.SIGKILL)
    assert has_ended(first.pid)
    second = server_for(spec)
    second.wait(AbortSignal())

    assert second is not first
    assert not first.is_alive
    assert second.is_alive


def test_the_listener_asks_for_its_key_and_lets_no_web_page_in(spec):
    """Without the key nothing is answered, and no origin is allowed."""
    server = server_for(spec)
    server.wait(AbortSignal())
    client = HttpClient(environ={})
    url = f"{server.url}/v1/models"
    with client.request("GET", url, headers={"Origin": "http://evil.example"}) as refused:
        refused.read()
    key = {"Authorization": f"Bearer {server.api_key}", "Origin": "http://evil.example"}
    with client.request("GET", url, headers=key) as answered:
        answered.read()
    client.close()

    assert server.url.startswith("http://127.0.0.1:")
    assert refused.status == 401
    assert answered.status == 200
    assert not answered.headers.get("Access-Control-Allow-Origin")


def test_an_abort_ends_the_wait_and_not_the_start(spec):
    """Who is aborted before the model is there waits no longer; the others get it."""
    server = LocalServer(spec)
    signal = AbortSignal()
    signal.abort()
    with pytest.raises(AbortedError):
        server.wait(signal)
    server.start()
    server.wait(AbortSignal())

    assert server.is_alive
    server.stop()
    assert not server.is_alive


def failure_of(server):
    server.start()
    with pytest.raises((ConfigurationError, LlmConnectionError)) as caught:
        server.wait(AbortSignal())
    assert not server.is_alive
    return str(caught.value)


def test_a_damaged_file_is_one_clear_line(tmp_path):
    """A file that is cut off, or none of its kind, is named as such, and this process lives on."""
    cut, other = tmp_path / "cut.gguf", tmp_path / "other.gguf"
    with pull().open("rb") as whole:
        cut.write_bytes(whole.read(100_000))
    other.write_bytes(b"PK" * 1000)

    assert "is damaged" in failure_of(LocalServer(broken_spec(cut)))
    assert failure_of(LocalServer(broken_spec(other))) == f"{str(other)!r} is no GGUF file"


def test_without_the_extra_it_says_what_to_install(monkeypatch, tmp_path):
    """Where the runtime is not installed, the error names the extra."""
    monkeypatch.setitem(sys.modules, "xllamacpp", None)

    text = failure_of(LocalServer(broken_spec(tmp_path / "any.gguf")))
    assert text == "the embedded model needs: pip install 'yiemagent[local]'"


@pytest.mark.parametrize(
    "answer, exit_code, words",
    [
        (
            {"error": "import", "text": "no such library"},
            None,
            "yiemagent[local]' (no such library)",
        ),
        ({}, -4, "needs a processor with AVX2"),
        ({}, -9, "for want of memory"),
        ({}, 1, "exit code 1"),
        ({"error": "load"}, None, "can't load"),
    ],
)
def test_every_failure_to_start_is_put_in_words(answer, exit_code, words, tmp_path):
    """What the process said, or how it ended, becomes one line."""
    text = why_not_started(tmp_path / "none.gguf", answer, exit_code)

    assert words in text
    assert "\n" not in text


def test_a_server_stopped_while_it_starts_is_not_left_behind(spec):
    """Stopping before the process is there ends it as soon as it is."""
    server = LocalServer(spec)
    server.stop()

    assert "was stopped" in failure_of(server)


@pytest.mark.parametrize(
    "cores, ci, threads", [(1, "", 1), (2, "", 1), (4, "", 3), (64, "", 8), (4, "1", 1)]
)
def test_few_cores_mean_one_thread(cores, ci, threads, monkeypatch):
    """One thread on two cores or fewer and where CI runs, else all cores but one, at most eight."""
    monkeypatch.setenv("CI", ci)

    assert thread_count(cores) == threads
    assert thread_count() >= 1
