"""The embedded model's process as its user sees it: started once for each model and shared, ended with this process.

A server is started by a thread of its own, so that who waits for it can be aborted while others go on waiting. It holds
the reading end of a pipe whose writing end only this process has: when this process goes, the server does.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import json
import os
import pathlib
import secrets
import signal as signals
import subprocess
import sys
import threading
from typing import Any

import attrs

from yiemagent.abort import AbortSignal
from yiemagent.errors import ConfigurationError, LlmConnectionError
from yiemagent.net.http import HttpClient

__all__ = [
    "LocalServer",
    "ServerSpec",
    "check_extra",
    "server_for",
    "stop_servers",
    "thread_count",
    "why_not_started",
]

_SCRIPT = pathlib.Path(__file__).with_name("local_server.py")
_MISSING = "the embedded model needs: pip install 'yiemagent[local]'"


def check_extra() -> None:
    """Raise where what runs the model is not installed.

    Raises:
        ConfigurationError: it says what to install.
    """
    if importlib.util.find_spec("xllamacpp") is None:
        raise ConfigurationError(_MISSING)


def thread_count(cores: int | None = None) -> int:
    """How many threads a model computes with: one where there are two cores or fewer, else all but one.

    Two threads on two cores that others use too are slower than one, by ten times at worst: they wait spinning.
    """
    if cores is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return 1 if (cores or 1) <= 2 or os.environ.get("CI") else min((cores or 1) - 1, 8)


@attrs.frozen
class ServerSpec:
    """Which server is wanted; equal ones share one.

    Args:
        path: the GGUF file.
        slots: how many prompts are kept warm side by side.
        context_tokens: tokens that each of them may have, answer included.
        threads: how many it computes with.
    """

    path: pathlib.Path
    slots: int
    context_tokens: int
    threads: int


class LocalServer:
    """One process with one model in it; safe to use from many threads.

    Its `url`, `api_key` and `client` are for asking it, once `wait` has returned.
    """

    def __init__(self, spec: ServerSpec) -> None:
        self.spec = spec
        self.client = HttpClient(environ={})  # a proxy has no business on the way to 127.0.0.1
        self.api_key = secrets.token_urlsafe(24)
        self.url = ""
        self._failure: Exception | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = threading.Event()
        self._waiting: set[threading.Event] = set()
        # Guards the two fields that say how far the start is, and who is to be told; nothing waits while it is held.
        self._lock = threading.Lock()
        self._stopped = False

    @property
    def pid(self) -> int | None:
        """The id of its process, None before it has one."""
        return self._process.pid if self._process is not None else None

    @property
    def is_alive(self) -> bool:
        """Whether it is starting or can be asked."""
        if not self._ready.is_set():
            return True
        process = self._process
        return self._failure is None and process is not None and process.poll() is None

    def start(self) -> None:
        """Start it in a thread of its own."""
        threading.Thread(target=self._start, name="yiem-local-start", daemon=True).start()

    def wait(self, signal: AbortSignal) -> None:
        """Wait until it can be asked.

        Raises:
            AbortedError: the signal was set; the server goes on starting for the next one who asks.
            ConfigurationError: it can't work: the extra is missing, the file is damaged, …
            LlmConnectionError: it ended before it could be asked.
        """
        woken = threading.Event()
        with self._lock:
            self._waiting.add(woken)
            if self._ready.is_set():
                woken.set()
        take_back = signal.add_callback(woken.set)
        woken.wait()
        take_back()
        with self._lock:
            self._waiting.discard(woken)
        if not self._ready.is_set():
            signal.raise_if_aborted()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """End the process and wait until it is gone."""
        with self._lock:
            self._stopped = True
            process = self._process
        if process is not None:
            _end(process)
        self.client.close()

    def forget(self) -> None:
        """Let go of the pipe of another process's server; called in a forked child, whose server it is not."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                os.close(self._process.stdin.fileno())

    def _start(self) -> None:
        try:
            self.url = self._launch()
        except (
            Exception
        ) as error:  # whatever it is, those who wait for the server are told, in their threads
            self._failure = error
        with self._lock:
            self._ready.set()
            waiting = tuple(self._waiting)
        for woken in waiting:
            woken.set()

    def _launch(self) -> str:
        check_extra()
        command = [sys.executable, "-I", str(_SCRIPT)]
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and script
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # llama.cpp's log; what matters comes as a line of JSON
            start_new_session=True,  # Ctrl-C in a terminal is for the program, which may want its answer yet
        )
        with self._lock:
            self._process = process
            stopped = self._stopped
        if stopped:
            _end(process)
            raise LlmConnectionError("the embedded model was stopped while it started")
        try:
            return self._greet(process)
        except BaseException:  # an abort or Ctrl-C included: nobody would end the process any more
            _end(process)
            raise

    def _greet(self, process: subprocess.Popen[bytes]) -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        wish = {
            "path": str(self.spec.path),
            "api_key": self.api_key,
            "slots": self.spec.slots,
            "context_tokens": self.spec.context_tokens,
            "threads": self.spec.threads,
            "sys_path": [path for path in sys.path if path],
        }
        with contextlib.suppress(
            BrokenPipeError
        ):  # it ended at once: what it says, or its exit code, tells why
            process.stdin.write(json.dumps(wish).encode() + b"\n")
            process.stdin.flush()
        line = process.stdout.readline()
        process.stdout.close()
        answer: dict[str, Any] = json.loads(line) if line else {}
        if "url" in answer:
            return str(answer["url"])
        raise ConfigurationError(
            why_not_started(self.spec.path, answer, None if answer else process.wait())
        )


def why_not_started(path: pathlib.Path, answer: dict[str, Any], exit_code: int | None) -> str:
    """Say in one line why a server did not start."""
    if answer.get("error") == "import":
        return f"{_MISSING} ({answer['text']})"
    if not answer:
        illegal = exit_code in {-getattr(signals, "SIGILL", 4), 0xC000001D - (1 << 32), 0xC000001D}
        killed = exit_code == -getattr(signals, "SIGKILL", 9)
        if illegal:
            return "the embedded model needs a processor with AVX2, which this machine has not"
        reason = "was killed, for want of memory it seems" if killed else "ended"
        return f"the embedded model {reason} while it loaded {str(path)!r} (exit code {exit_code})"
    with contextlib.suppress(OSError), path.open("rb") as file:
        if file.read(4) != b"GGUF":
            return f"{str(path)!r} is no GGUF file"
    return f"the embedded model can't load {str(path)!r}: the file is damaged, of a kind not known, or memory is short"


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    process.kill()
    process.wait()


# --- one for each model and process ---------------------------------------------------------------------------------

# Guards the table of servers; no server is started, waited for or stopped while it is held. A fork takes it first, so
# that the child finds it free.
_lock = threading.Lock()
_servers: dict[ServerSpec, LocalServer] = {}


def server_for(spec: ServerSpec) -> LocalServer:
    """Give the server of this process for a model, started where there is none that can be asked."""
    _hook_process()
    with _lock:
        server = _servers.get(spec)
        if server is not None and server.is_alive:
            return server
        dead, server = server, LocalServer(spec)
        _servers[spec] = server
    if dead is not None:
        dead.stop()
    server.start()
    return server


def stop_servers() -> None:
    """End every embedded model of this process; the next question starts one again."""
    with _lock:
        servers = tuple(_servers.values())
        _servers.clear()
    for server in servers:
        server.stop()


@functools.cache
def _hook_process() -> None:
    """Have the end of the process and its forks told; done once."""
    atexit.register(stop_servers)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_leave_to_parent
        )


def _leave_to_parent() -> None:
    """Forget the parent's servers: a forked child starts its own."""
    servers = tuple(_servers.values())
    _servers.clear()
    _lock.release()
    for server in servers:
        server.forget()
