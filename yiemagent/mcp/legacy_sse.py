"""The transport of 2024-11-05: one stream of events for all that the server says, and an address to post to.

Deprecated since 2025-03-26 and still met. The first event names the address, which must be on the server's own origin.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeAlias
from urllib.parse import urljoin, urlsplit

from yiemagent.abort import AbortSignal
from yiemagent.errors import (
    AbortedError,
    ConfigurationError,
    HttpError,
    McpError,
    McpTransportError,
)
from yiemagent.mcp import jsonrpc
from yiemagent.mcp.calls import Call
from yiemagent.mcp.http_reading import MAX_BODY_BYTES, content_type, refusal, rpc_error
from yiemagent.mcp.jsonrpc import Incoming
from yiemagent.mcp.poster import Poster
from yiemagent.mcp.threads import start_daemon
from yiemagent.net.http import HttpResponse
from yiemagent.net.sse import SseParser

__all__ = ["LegacySsePipe"]

logger = logging.getLogger("yiemagent.mcp.legacy_sse")

Receive: TypeAlias = Callable[[Incoming], None]
Ended: TypeAlias = Callable[[McpTransportError], None]

_ACCEPT = {"Accept": "text/event-stream"}
_POST = {"Content-Type": "application/json"}


class _Frame:
    """One message on its way out."""

    __slots__ = ("data", "is_sent", "is_withdrawn")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.is_sent = False
        self.is_withdrawn = False


class LegacySsePipe:
    """A pipe for messages over the old transport; `stdio.StdioPipe` says what each function promises.

    One thread reads the stream, another posts, in order.

    Args:
        poster: sends the requests.
        name: of the server, for texts and threads.
        receive: takes each message.
        ended: is told once why the pipe ended by itself.
    """

    def __init__(self, poster: Poster, name: str, receive: Receive, ended: Ended) -> None:
        self._poster = poster
        self._name = name
        self._receive = receive
        self._ended = ended
        self._signal = AbortSignal()
        self._outgoing: SimpleQueue[_Frame | None] = SimpleQueue()
        self._address = ""
        self._has_address = threading.Event()
        # Decides who tells of the end, and whether a message leaves or is taken back; nothing waits while it is held.
        self._lock = threading.Lock()
        self._is_over = False
        try:
            for part, function in (("stream", self._read), ("post", self._post_all)):
                start_daemon(f"yiem-mcp-{name}-{part}", function)
        except McpTransportError:
            self.close()
            raise

    def send(self, data: bytes) -> _Frame:
        """Queue one message for sending."""
        if self._is_over:
            raise McpTransportError(f"the server {self._name!r} takes nothing any more")
        frame = _Frame(data)
        self._outgoing.put(frame)
        return frame

    def withdraw(self, frame: _Frame) -> bool:
        """Take a message back; gives whether none of it was sent."""
        with self._lock:
            frame.is_withdrawn = not frame.is_sent
            return frame.is_withdrawn

    def kill(self, reason: str) -> None:
        """End the pipe at once."""
        self._end(McpTransportError(f"the server {self._name!r} {reason}"))

    def close(self) -> None:
        """End the pipe."""
        self._end(None)

    def _end(self, failure: McpTransportError | None) -> None:
        with self._lock:
            first, self._is_over = not self._is_over, True
        if not first:
            return
        self._signal.abort("the pipe ended")
        self._has_address.set()
        self._outgoing.put(None)
        self._poster.drain()
        if (
            failure is not None
        ):  # a copy, since a traceback would keep the answer, and so its connection, alive
            self._ended(copy.copy(failure))

    # --- reading ----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        failure = McpTransportError(f"the server {self._name!r} ended its stream")
        try:
            with (
                self._poster.limits(Call("the stream", signal=self._signal)) as limits,
                self._poster.send("GET", _ACCEPT, limits.signal) as response,
            ):
                if response.status != 200 or content_type(response) != _ACCEPT["Accept"]:
                    _, text = rpc_error(response)
                    failure = refusal(response, text)
                else:
                    self._read_events(response)
        except AbortedError:
            return
        except (McpTransportError, HttpError, ConfigurationError) as error:
            failure = McpTransportError(f"the stream of the server {self._name!r} broke: {error}")
        self._end(failure)

    def _read_events(self, response: HttpResponse) -> None:
        parser = SseParser(MAX_BODY_BYTES)
        for data in response.iter_bytes():
            for event in parser.feed(data):
                if event.event == "endpoint":
                    self._note_address(event.data.strip())
                else:
                    for item in jsonrpc.parse(event.data):
                        self._receive(item)

    def _note_address(self, given: str) -> None:
        address = urljoin(self._poster.url, given)
        ours, theirs = urlsplit(self._poster.url), urlsplit(address)
        if (ours.scheme, ours.netloc) != (theirs.scheme, theirs.netloc):
            raise McpTransportError("it names an address of another server to post to")
        self._address = address
        self._has_address.set()

    # --- posting ----------------------------------------------------------------------------------------------------

    def _post_all(self) -> None:
        self._has_address.wait()
        while (frame := self._outgoing.get()) is not None:
            with self._lock:
                leaves = not (frame.is_withdrawn or self._is_over)
                frame.is_sent = leaves
            if leaves:
                self._post(frame)

    def _post(self, frame: _Frame) -> None:
        try:
            with self._poster.limits(Call("POST", signal=self._signal, timeout_s=60.0)) as limits:
                response = self._poster.send(
                    "POST", _POST, limits.signal, body=frame.data, url=self._address, resend=False
                )
                with response:
                    if response.status >= 300:
                        frame.is_sent = False
                        _, text = rpc_error(response)
                        raise refusal(response, text)
                    response.finish()
        except AbortedError as error:
            if not self._signal.aborted:
                self._end(McpTransportError(f"the server {self._name!r} takes no message: {error}"))
        except McpError as error:
            logger.debug("a message could not be posted: %s", error)
            self._end(error if isinstance(error, McpTransportError) else None)
