"""Sessions over HTTP, which clients of the handshake era have: who they belong to, and their streams.

Facts from the specification 2025-11-25, "Transports", "Session Management".
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable

from yiemagent.mcp.http_streams import Stream
from yiemagent.mcp.http_wire import HttpRefusal
from yiemagent.mcp.server_connection import Host, ServerConnection

__all__ = ["Session", "Sessions"]

HOME = "0"
KEPT_STREAMS = 64
MAX_SESSIONS = 1000


class Session:
    """One client that shook hands.

    Args:
        host: the server.
        principal: whom it belongs to, or None where the server asks for no token.
    """

    def __init__(self, host: Host, principal: str | None) -> None:
        self.session_id = secrets.token_urlsafe(32)
        self.principal = principal
        self.used_at = 0.0
        self.home = Stream(HOME, None)
        """Takes what belongs to no request, for the client's GET."""
        self.connection = ServerConnection(host, self.home, principal)
        # Guards the two fields below.
        self._lock = threading.Lock()
        self._streams: dict[str, Stream] = {HOME: self.home}
        self._count = 0

    @property
    def busy(self) -> bool:
        """Whether a call is under way or a connection waits."""
        return not self.connection.idle or self.home.attached

    def open_stream(self, calls: int, *, primed: bool) -> Stream:
        """Give a new stream for so many answers; the oldest that ended are forgotten."""
        with self._lock:
            self._count += 1
            stream = Stream(str(self._count), calls, primed=primed)
            self._streams[stream.stream_id] = stream
            ended = [key for key, kept in self._streams.items() if kept.ended]
            for key in ended[: max(0, len(self._streams) - KEPT_STREAMS)]:
                del self._streams[key]
        return stream

    def stream_at(self, event_id: str) -> tuple[Stream, int]:
        """Give the stream of an event, and the event's number in it.

        Raises:
            HttpRefusal: there is none.
        """
        name, _, number = event_id.partition("/")
        stream = self._streams.get(name)
        if stream is None or not (number.isascii() and number.isdigit() and len(number) < 16):
            raise HttpRefusal(404, "there is no such event to go on from")
        return stream, int(number)

    def close(self) -> None:
        """Give up its calls and end its streams."""
        self.connection.close()
        with self._lock:
            streams = list(self._streams.values())
        for stream in streams:
            stream.end()


class Sessions:
    """All sessions of a server.

    Args:
        host: the server.
        idle_s: seconds after which a session that nobody uses is forgotten.
        clock: seconds that never go back.
    """

    def __init__(
        self, host: Host, idle_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._host = host
        self._idle_s = idle_s
        self._clock = clock
        # Guards the table. Sessions are closed when it is free again.
        self._lock = threading.Lock()
        self._table: dict[str, Session] = {}

    def make(self, principal: str | None) -> Session:
        """Give a new session, which is not yet in the table."""
        return Session(self._host, principal)

    def keep(self, session: Session) -> None:
        """Take a session into the table, and forget those that nobody uses."""
        now = self._clock()
        with self._lock:
            session.used_at = now
            self._table[session.session_id] = session
            gone = [s for s in self._table.values() if self._is_stale(s, now)]
            by_age = sorted(self._table.values(), key=lambda s: (s.busy, s.used_at))
            gone += by_age[: max(0, len(self._table) - MAX_SESSIONS)]
            for each in gone:
                self._table.pop(each.session_id, None)
        for each in gone:
            each.close()

    def _is_stale(self, session: Session, now: float) -> bool:
        return not session.busy and now - session.used_at > self._idle_s

    def find(self, session_id: str, principal: str | None) -> Session:
        """Give a session to whom it belongs.

        Raises:
            HttpRefusal: there is none, or it is somebody else's.
        """
        with self._lock:
            session = self._table.get(session_id)
            if session is None or session.principal != principal:
                raise HttpRefusal(404, "there is no such session; open one with 'initialize'")
            session.used_at = self._clock()
        return session

    def drop(self, session: Session) -> None:
        """End a session."""
        with self._lock:
            self._table.pop(session.session_id, None)
        session.close()

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            sessions = list(self._table.values())
            self._table.clear()
        for session in sessions:
            session.close()
