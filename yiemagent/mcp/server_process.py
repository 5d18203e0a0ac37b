"""The process of a stdio server: started with little of our environment, and ended with all that it started.

It leads a session and process group of its own, so that wrappers such as npx, uvx and `sh -c` end together with the
server that they start. It does not outlive this process: at a normal end an exit hook ends it, and where this process
is killed, a watching shell does. All of this is POSIX; what left the group by itself, a daemon, is out of reach.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal as signals
import subprocess
import time
import weakref
from collections.abc import Mapping, Sequence

from yiemagent.errors import ConfigurationError
from yiemagent.net.group_watch import GroupWatch

__all__ = ["ServerProcess", "server_environment"]

_INHERITED = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
_GRACE_S = (
    1  # how long it has to end by itself, when this process is gone and it has no more to read
)
_AT_EXIT_S = 0.5


def server_environment(
    given: Mapping[str, str] | None, environ: Mapping[str, str]
) -> dict[str, str]:
    """Give the environment of a server: a few plain variables of ours, and what the user gives.

    Args:
        given: the user's; goes before ours.
        environ: ours. Of it only what programs need to run is handed on; API keys are not.
    """
    # A value that begins so is a function that an old shell exported, and would be run by another.
    plain = {
        name: environ[name]
        for name in _INHERITED
        if name in environ and not environ[name].startswith("()")
    }
    return {**plain, **(given or {})}


class ServerProcess:
    """A server that runs; its three pipes are not read or written here.

    Args:
        command: the program and its arguments.
        env: all of its environment.
        cwd: the folder it runs in; None: ours.

    Raises:
        ConfigurationError: it can't be started.
    """

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], cwd: str | None = None
    ) -> None:
        if os.name != "posix":
            raise ConfigurationError(
                "servers over stdio need a POSIX system; use the server's HTTP transport"
            )
        _hook_process()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own command, without a shell
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=dict(env),
                cwd=cwd,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"can't start the server {command[0]!r}: {error}") from error
        self._watch = GroupWatch(self._process.pid, grace_s=_GRACE_S)
        _running.add(self)

    @property
    def pid(self) -> int:
        """The id of the process, and of its group."""
        return self._process.pid

    @property
    def pipes(self) -> tuple[int, int, int]:
        """The descriptors of what it reads, writes and complains to."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        return process.stdin.fileno(), process.stdout.fileno(), process.stderr.fileno()

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the process to end; gives its exit code, or None where it still runs."""
        try:
            return self._process.wait(max(0.0, timeout_s))
        except subprocess.TimeoutExpired:
            return None

    def signal_group(self, number: int) -> None:
        """Send a signal to the process and to all that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def kill(self) -> int | None:
        """End the group at once; gives the exit code, or None where even that takes longer than a second."""
        self.signal_group(signals.SIGKILL)
        code = self.wait(1.0)
        _running.discard(self)
        self._watch.dismiss()
        return code

    def close_stdin(self) -> None:
        """Close what it reads."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def close_outputs(self) -> None:
        """Close what it writes to."""
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _leave_to_parent(self) -> None:
        """Let go of our end in a forked child, so that the server sees the parent's end."""
        self.close_stdin()


# --- the end of this process -----------------------------------------------------------------------------------------

_running: weakref.WeakSet[ServerProcess] = weakref.WeakSet()


@functools.cache
def _hook_process() -> None:
    """Have the end of the process and its forks told; done once."""
    atexit.register(_end_all)
    os.register_at_fork(after_in_child=_leave_all)


def _end_all() -> None:
    """End every server, all together within half a second."""
    ends_at = time.monotonic() + _AT_EXIT_S
    servers = list(_running)
    for server in servers:
        server.close_stdin()
        server.signal_group(signals.SIGTERM)
    for server in servers:
        server.wait(ends_at - time.monotonic())
    for server in servers:
        server.kill()


def _leave_all() -> None:
    for server in list(_running):
        server._leave_to_parent()
    _running.clear()
