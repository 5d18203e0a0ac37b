"""What changed on a server, told to the clients that want to know: each change once, however often it came."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from yiemagent.abort import Deadline

__all__ = ["Changes", "Listener"]

logger = logging.getLogger("yiemagent.mcp.changes")

GATHER_S, GATHER_AT_MOST_S = 0.02, 0.5

TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
RESOURCES = "notifications/resources/list_changed"
RESOURCE = "notifications/resources/updated"


class Listener(Protocol):
    """A client that may want to know."""

    def changed(self, method: str, params: Mapping[str, Any]) -> None:
        """Take a change; called on the thread of `Changes`."""

    def end(self) -> None:
        """Take that there will be no more: the server closes."""


class Changes:
    """Gathers changes for a moment and tells whoever listens, on a thread that begins with the first listener."""

    def __init__(self) -> None:
        # Guards the fields below. Nobody is told anything while it is held.
        self._lock = threading.Lock()
        self._listeners: dict[int, Listener] = {}
        self._thread: threading.Thread | None = None
        self._closed = False
        self._news: SimpleQueue[tuple[str, str | None] | None] = SimpleQueue()

    def add(self, listener: Listener) -> None:
        """Have a listener told from now on."""
        with self._lock:
            if self._closed:
                return
            self._listeners[id(listener)] = listener
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name="yiem-mcp-changes", daemon=True)
            self._thread = thread
        thread.start()

    def remove(self, listener: Listener) -> None:
        """Tell a listener nothing more; unknown ones are ignored."""
        with self._lock:
            self._listeners.pop(id(listener), None)

    def listeners(self) -> tuple[Listener, ...]:
        """Those who listen."""
        with self._lock:
            return tuple(self._listeners.values())

    def tell(self, method: str, uri: str | None = None) -> None:
        """Note a change; returns at once, and may be called while any lock is held."""
        if self._thread is not None:  # before there was a listener, nobody has seen what changed
            self._news.put((method, uri))

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            self._closed = True
            self._listeners.clear()
            thread = self._thread
        self._news.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)  # longer only where a client does not read; then it is left behind

    def _run(self) -> None:
        while (news := self._news.get()) is not None:
            gathered = {news: None}
            for following in self._rest():
                if following is None:
                    return
                gathered[following] = None
            for method, uri in gathered:
                self._spread(method, {} if uri is None else {"uri": uri})

    def _rest(self) -> Iterable[tuple[str, str | None] | None]:
        """Give what comes until nothing does for a moment, or for too long already."""
        deadline = Deadline(GATHER_AT_MOST_S)
        while not deadline.expired:
            try:
                yield self._news.get(timeout=GATHER_S)
            except Empty:
                return

    def _spread(self, method: str, params: Mapping[str, Any]) -> None:
        for listener in self.listeners():
            try:
                listener.changed(method, params)
            except Exception:  # a transport's failure; the other clients want to know all the same
                logger.warning("a client could not be told of a change", exc_info=True)
