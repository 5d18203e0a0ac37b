"""Waiting for processes that are no children of the test's."""

import os
import select


def has_ended(pid, within_s=10):
    """Wait for a process of anybody's to end; gives whether it has. Told by the system, not by looking again."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], within_s)[0])
    finally:
        os.close(descriptor)
