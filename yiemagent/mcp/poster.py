"""HTTP requests to one MCP server, each with a deadline that holds whatever the server sends meanwhile.

The limits of a socket count from byte to byte, so a server that sends a comment now and then would never be late. Here
a clock aborts the request at its deadline, through the same signal that ends it for every other reason.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from yiemagent.abort import AbortSignal
from yiemagent.errors import HttpError, McpTransportError
from yiemagent.mcp.calls import Alarm, Call
from yiemagent.mcp.link import SessionLost
from yiemagent.net.http import HttpClient, HttpResponse

__all__ = ["Headers", "Limits", "OnUnauthorized", "Poster"]

Headers: TypeAlias = "Mapping[str, str] | Callable[[], Mapping[str, str]]"
OnUnauthorized: TypeAlias = Callable[[str], Any]


class Limits:
    """What ends one request: its call's signal and limits, and the end of the poster.

    Its `signal` is for the request; it is aborted by whatever comes first.
    """

    def __init__(self, call: Call, alarm: Alarm) -> None:
        self.signal = AbortSignal(call.signal)
        self._call = call
        self._alarm = alarm
        self._remove: Callable[[], None] | None = None
        self.extend()

    def extend(self) -> None:
        """Set the clock anew, after a word of progress."""
        self.release_clock()
        remaining_s = self._call.remaining_s()
        if remaining_s is not None:
            self._remove = self._alarm.set(
                remaining_s, functools.partial(self.signal.abort, "time limit")
            )

    def release_clock(self) -> None:
        """Take the clock back."""
        if self._remove is not None:
            self._remove()
            self._remove = None


class Poster:
    """Sends requests to one address.

    Args:
        url: of the server.
        headers: sent with every request beside the protocol's own; a function is asked each time.
        name: of the server, for threads.
        on_unauthorized: is told what a 401 wants (`WWW-Authenticate`) and gives whether to ask again, once.
        connect_timeout_s: limit for each connection; None: none.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Headers | None = None,
        name: str = "server",
        on_unauthorized: OnUnauthorized | None = None,
        connect_timeout_s: float | None = 10.0,
    ) -> None:
        self.url = url
        self._headers = headers
        self._on_unauthorized = on_unauthorized
        self._connect_timeout_s = connect_timeout_s
        self._http = HttpClient()
        self._alarm = Alarm(f"yiem-mcp-{name}-clock")
        # Guards the fields below; nothing waits while it is held.
        self._lock = threading.Lock()
        self._active: set[AbortSignal] = set()
        self._ending = False

    @contextlib.contextmanager
    def limits(self, call: Call) -> Iterator[Limits]:
        """Watch over a call's requests in a `with` block.

        Raises:
            SessionLost: the poster was drained, since another connection takes its place; nothing was sent.
        """
        limits = Limits(call, self._alarm)
        with self._lock:
            ending = self._ending
            if not ending:
                self._active.add(limits.signal)
        if ending:
            limits.release_clock()
            raise SessionLost("the connection to the server was given up for another")
        try:
            yield limits
        finally:
            limits.release_clock()
            limits.signal.release()
            with self._lock:
                self._active.discard(limits.signal)
                is_last = self._ending and not self._active
            if is_last:
                self._shut()

    def send(
        self,
        method: str,
        headers: Mapping[str, str],
        signal: AbortSignal,
        *,
        body: bytes | None = None,
        url: str | None = None,
        resend: bool = True,
    ) -> HttpResponse:
        """Send a request and give its answer, whose body is still to be read.

        Args:
            method: "POST", "GET" or "DELETE".
            headers: the protocol's own; they go before the user's.
            signal: from `limits`.
            body: what to send.
            url: another address than the server's; None: the server's.
            resend: whether it may arrive twice.

        Raises:
            AbortedError: the signal was set.
            McpTransportError: no connection, or it broke; `outcome_unknown` says whether the request may have arrived.
            ConfigurationError: the address or a header is none.
        """
        response = self._send(method, headers, signal, body, url, resend=resend)
        if response.status != 401 or self._on_unauthorized is None:
            return response
        wanted = response.headers.get("www-authenticate") or ""
        if not self._on_unauthorized(wanted):
            return response
        response.close()
        return self._send(method, headers, signal, body, url, resend=resend)

    def drain(self) -> None:
        """End when the requests that are on their way have ended."""
        with self._lock:
            self._ending = True
            is_over = not self._active
        if is_over:
            self._shut()

    def abort(self) -> None:
        """End every request that is on its way."""
        with self._lock:
            active = tuple(self._active)
        for signal in active:
            signal.abort("the client was closed")

    def _send(
        self,
        method: str,
        headers: Mapping[str, str],
        signal: AbortSignal,
        body: bytes | None,
        url: str | None,
        *,
        resend: bool,
    ) -> HttpResponse:
        own = {name.lower() for name in headers}
        given = self._headers() if callable(self._headers) else self._headers or {}
        theirs = {name: value for name, value in given.items() if name.lower() not in own}
        try:
            return self._http.request(
                method,
                url or self.url,
                headers={**theirs, **headers},
                body=body,
                signal=signal,
                connect_timeout_s=self._connect_timeout_s,
                idle_timeout_s=None,
                stream=True,
                resend=resend,
            )
        except HttpError as error:
            raise McpTransportError(str(error), outcome_unknown=error.reached) from error

    def _shut(self) -> None:
        self._alarm.stop()
        self._http.close()
