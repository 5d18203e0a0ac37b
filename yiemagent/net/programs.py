"""One program, run to its end: its output kept within bounds, and it and all that it starts ended in time.

The program leads a session and process group of its own. The group is ended at the time limit, on abort, when this
process ends or is killed, and also when the program itself has ended, so that nothing stays behind in the background.
Only what left the group by itself, a daemon, is out of reach. POSIX only.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import selectors
import signal as signals
import socket
import subprocess
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Self

import attrs

from yiemagent.abort import AbortSignal, Deadline
from yiemagent.errors import AbortedError, ConfigurationError, ToolError
from yiemagent.net.group_watch import GroupWatch
from yiemagent.record import Record

__all__ = ["Finished", "run_process", "without_secrets"]

_BLOCK = 65_536
_TERM_S, _KILL_S = 0.25, 1.0  # how long a group has to end after SIGTERM, and after SIGKILL
_SECRET_WORDS = ("AUTH", "COOKIE", "CREDENTIAL", "KEY", "PASSW", "PRIVATE", "SECRET", "TOKEN")


@attrs.frozen(eq=False, repr=False)
class Finished(Record):
    """What became of a program.

    Args:
        exit_code: its own; negative: the signal that ended it; None: it could not be ended within a second.
        output: what it wrote to stdout and stderr, in order; where that was more than the limit, the first quarter of
            the limit and the last three quarters.
        kept_first: how much of `output` comes before what was left out.
        left_out: how many bytes were left out.
        timed_out: whether it was ended at its time limit.
    """

    exit_code: int | None
    output: bytes
    kept_first: int = 0
    left_out: int = 0
    timed_out: bool = False


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Give an environment without the variables whose names say that they hold keys, tokens or passwords."""
    return {
        name: value
        for name, value in environ.items()
        if not any(word in name.upper() for word in _SECRET_WORDS)
    }


def run_process(
    command: Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    signal: AbortSignal | None = None,
    timeout_s: float | None = None,
    max_output_bytes: int = 200_000,
    on_output: Callable[[bytes], None] | None = None,
) -> Finished:
    """Run a program to its end.

    Args:
        command: the program and its arguments; no shell is involved.
        cwd: the folder it runs in; None: ours.
        env: all of its environment; None: ours.
        stdin: what it reads.
        signal: ends it when it is set.
        timeout_s: ends it after so many seconds; None: no limit.
        max_output_bytes: how much of its output is kept.
        on_output: is told of output as it comes, on this thread, but not of the last, which comes with the end; what it
            raises ends the program.

    Raises:
        AbortedError: the signal was set; the program has ended.
        ToolError: it can't be started.
        ConfigurationError: this is no POSIX system.
    """
    if os.name != "posix":
        raise ConfigurationError("running programs needs a POSIX system")
    if signal is not None:
        signal.raise_if_aborted()
    _hook_process()
    try:
        process = subprocess.Popen(  # noqa: S603 - what to run is the caller's business, and no shell is involved
            list(command),
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            cwd=cwd,
            env=None if env is None else dict(env),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise ToolError(f"can't start {command[0]!r}: {error}") from error
    keeper = _Ends(max_output_bytes)
    with _Watched(process, stdin, signal, keeper, on_output) as watched:
        timed_out = watched.wait(Deadline(timeout_s))
    if signal is not None and signal.aborted:
        raise AbortedError(f"aborted: {signal.reason}" if signal.reason else "aborted")
    output, first = keeper.result()
    return Finished(process.returncode, output, first, keeper.left_out, timed_out)


class _Ends:
    """Keeps the beginning and the end of a stream within a limit."""

    def __init__(self, max_bytes: int) -> None:
        self._head = bytearray()
        self._max_head = max_bytes // 4
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._max_tail = max_bytes - self._max_head
        self.left_out = 0

    def add(self, data: bytes) -> None:
        free = self._max_head - len(self._head)
        if free > 0:
            self._head += data[:free]
            data = data[free:]
        if not data:
            return
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size > self._max_tail:
            oldest = self._tail.popleft()
            dropped = min(len(oldest), self._tail_size - self._max_tail)
            if dropped < len(oldest):
                self._tail.appendleft(oldest[dropped:])
            self._tail_size -= dropped
            self.left_out += dropped

    def result(self) -> tuple[bytes, int]:
        return bytes(self._head) + b"".join(self._tail), len(self._head)


class _Watched:
    """A program that runs, and one thread, the caller's, that waits for all that may happen to it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        stdin: bytes,
        signal: AbortSignal | None,
        keeper: _Ends,
        on_output: Callable[[bytes], None] | None,
    ) -> None:
        self._process = process
        self._input = memoryview(stdin)
        self._signal = signal
        self._keeper = keeper
        self._on_output = on_output
        self._ended = threading.Event()
        self._watch = GroupWatch(process.pid)
        self._ours, self._theirs = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._remove: Callable[[], object] = _nothing

    def __enter__(self) -> Self:
        _running.add(self)
        self._ours.setblocking(False)
        self._theirs.setblocking(False)
        self._selector.register(self._ours, selectors.EVENT_READ, self._woken)
        self._attach(self._process.stdout, selectors.EVENT_READ, self._read)
        self._attach(self._process.stdin, selectors.EVENT_WRITE, self._write)
        try:
            threading.Thread(target=self._reap, name="yiem-process-wait", daemon=True).start()
        except RuntimeError as error:  # the interpreter is shutting down, or there are too many
            self.__exit__()
            raise ToolError(f"no thread to wait for the program: {error}") from error
        if self._signal is not None:
            self._remove = self._signal.add_callback(self._wake)
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()
        # The first to have ended is a zombie until now, so that the number of the group is nobody else's.
        self.send(signals.SIGKILL)
        self._ended.wait(_KILL_S)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILL_S)
        self._watch.dismiss()
        with contextlib.suppress(OSError):
            self._drain()
        _running.discard(self)
        self._selector.close()
        self._ours.close()
        self._theirs.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what it never read is left in the pipe
                    pipe.close()

    def wait(self, deadline: Deadline) -> bool:
        """Wait for the end, or bring it about; gives whether the time was up."""
        timed_out = False
        kill = Deadline(None)
        stopping = killed = False
        while not self._ended.is_set():
            self._look(kill.remaining_s() if stopping else deadline.remaining_s())
            aborted = self._signal is not None and self._signal.aborted
            if not stopping and (aborted or deadline.expired):
                stopping, timed_out = True, not aborted and not self._ended.is_set()
                self.send(signals.SIGTERM)
                kill = Deadline(_TERM_S)
            elif stopping and kill.expired:
                if killed:  # not even that ended it, as where a disk hangs
                    break
                killed = True
                self.send(signals.SIGKILL)
                kill = Deadline(_KILL_S)
        return timed_out

    def send(self, number: int) -> None:
        """Send a signal to the program and to all that it started."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _attach(self, pipe: IO[bytes] | None, event: int, react: Callable[[], None]) -> None:
        if pipe is not None:
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, event, react)

    def _look(self, timeout_s: float | None) -> None:
        for key, _ in self._selector.select(timeout_s):
            key.data()

    def _woken(self) -> None:
        self._ours.recv(_BLOCK)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full, so that it wakes anyway; or over
            self._theirs.send(b"x")

    def _reap(self) -> None:
        """Wait for the program's end, on a thread of its own; who waits for the pipes may wait for its children."""
        with contextlib.suppress(ChildProcessError):  # somebody else was told of its end
            if hasattr(os, "waitid"):
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            else:
                self._process.wait()
        self._ended.set()
        self._wake()

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            data = os.read(self._process.stdout.fileno(), _BLOCK)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(self._process.stdout)
            return
        self._keeper.add(data)
        if self._on_output is not None:
            self._on_output(data)

    def _write(self) -> None:
        assert self._process.stdin is not None
        try:
            self._input = self._input[
                os.write(self._process.stdin.fileno(), self._input[:_BLOCK]) :
            ]
        except BlockingIOError:
            return
        except OSError:  # it reads no more
            self._input = self._input[:0]
        if not self._input:
            self._selector.unregister(self._process.stdin)
            self._process.stdin.close()

    def _drain(self) -> None:
        """Take what is still in the pipe; a daemon that holds it open is not waited for."""
        assert self._process.stdout is not None
        ends_at = time.monotonic() + _TERM_S  # a daemon may also write without end
        while time.monotonic() < ends_at:
            data = os.read(self._process.stdout.fileno(), _BLOCK)
            if not data:
                return
            self._keeper.add(data)


def _nothing() -> None:
    """Take nothing back."""


# --- the end of this process -----------------------------------------------------------------------------------------

_running: weakref.WeakSet[_Watched] = weakref.WeakSet()


@functools.cache
def _hook_process() -> None:
    """Have the end of the process and its forks told; done once."""
    atexit.register(_end_all)
    os.register_at_fork(after_in_child=_running.clear)


def _end_all() -> None:
    for watched in list(_running):
        watched.send(signals.SIGKILL)
