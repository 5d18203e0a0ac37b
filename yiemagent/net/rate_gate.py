"""Waiting together: what one request was asked to wait, all with the same server and key wait. No I/O, no threads.

A server that answers 429 with `Retry-After` counts requests by key, so whoever asks it again with that key, from
whatever agent of this process, before the time is over, is refused too and may make it longer. `rate_gates` holds for
each server and key that asked for time until when. It opens by itself, and nothing is kept of it then.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

__all__ = ["GateId", "RateGates", "gate_id", "rate_gates"]

GateId: TypeAlias = tuple[str, bytes]


def gate_id(origin: str, key: str | None) -> GateId:
    """Name the gate of a server and a key, without holding the key."""
    return origin, hashlib.sha256((key or "").encode("utf-8", "replace")).digest()


class RateGates:
    """The gates of many servers and keys; safe to use from many threads.

    Args:
        clock: a function giving seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Guards the dict; nothing else is done while it is held.
        self._lock = threading.Lock()
        self._open_at: dict[GateId, float] = {}

    def close(self, gate: GateId, delay_ms: int) -> None:
        """Close a gate for so long from now; it stays closed for longer where it was to be."""
        now = self._clock()
        opens_at = now + delay_ms / 1000
        with self._lock:
            self._drop_open(now)
            if opens_at > self._open_at.get(gate, now):
                self._open_at[gate] = opens_at

    def remaining_ms(self, gate: GateId) -> int:
        """Give how long a gate stays closed, rounded up; 0 where it is open."""
        now = self._clock()
        with self._lock:
            opens_at = self._open_at.get(gate, now)
            if opens_at <= now:
                self._open_at.pop(gate, None)
                return 0
        return math.ceil((opens_at - now) * 1000)

    def __len__(self) -> int:
        """How many gates are kept."""
        return len(self._open_at)

    def _drop_open(self, now: float) -> None:
        for gate in [gate for gate, opens_at in self._open_at.items() if opens_at <= now]:
            del self._open_at[gate]


rate_gates = RateGates()
"""The gates of this process."""
