"""The end of a process group when this process is gone, even where it is killed and can't do anything any more.

A watching shell holds the reading end of a pipe of ours: when that ends, so have we. (A signal at the parent's death,
which Linux offers, would come when the thread ends that started the child.) POSIX only.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import weakref

__all__ = ["GroupWatch"]

_WATCH = 'read -r _; sleep "$2"; kill -s TERM -- "-$1" && sleep 1 && kill -s KILL -- "-$1"'


class GroupWatch:
    """A shell that ends a process group when this process is gone; where there is no shell, nothing.

    Args:
        group: the group's id.
        grace_s: whole seconds for which the group may end by itself, before SIGTERM; SIGKILL comes a second later.
    """

    def __init__(self, group: int, *, grace_s: int = 0) -> None:
        _hook_forks()
        self._shell: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):
            self._shell = subprocess.Popen(  # noqa: S603 - a fixed command
                ["/bin/sh", "-c", _WATCH, "sh", str(group), str(grace_s)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,
            )
            _watches.add(self)

    def dismiss(self) -> None:
        """End the watch: the group has ended, and its id may become another's."""
        _watches.discard(self)
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.kill()
            shell.wait()
            _close(shell)

    def _leave_to_parent(self) -> None:
        shell, self._shell = self._shell, None
        if shell is not None:
            _close(shell)
            shell.returncode = 0  # it is no child of ours, and nobody is to wait for it


def _close(shell: subprocess.Popen[bytes]) -> None:
    if shell.stdin is not None:
        with contextlib.suppress(OSError):
            shell.stdin.close()


_watches: weakref.WeakSet[GroupWatch] = weakref.WeakSet()


@functools.cache
def _hook_forks() -> None:
    """Have a forked child let go of the pipes, else the shells would take it for us; done once."""
    os.register_at_fork(after_in_child=_leave_all)


def _leave_all() -> None:
    for watch in list(_watches):
        watch._leave_to_parent()
    _watches.clear()
