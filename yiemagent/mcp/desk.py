"""Where what a server says unasked goes: its questions to the handlers, its news to those who listen.

Whoever reads from the server only drops things here and goes on; handlers and listeners run on threads of a pool. News
that repeats what still waits to be told is told once, and where nobody listens nothing is kept.
"""

from __future__ import annotations

import collections
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from yiemagent.errors import McpProtocolError, error_text
from yiemagent.mcp import jsonrpc
from yiemagent.mcp.client_protocol import (
    Cancelled,
    ListChanged,
    LogMessage,
    ResourceUpdated,
    ServerEvent,
)
from yiemagent.mcp.handlers import ServerRequests
from yiemagent.mcp.jsonrpc import Request, RpcId, id_key
from yiemagent.pool import DaemonPool

__all__ = ["Desk", "Listener", "News"]

logger = logging.getLogger("yiemagent.mcp.desk")

News: TypeAlias = ListChanged | ResourceUpdated | LogMessage
Listener: TypeAlias = Callable[[Any], object]
Reply: TypeAlias = Callable[[dict[str, Any]], object]

_MAX_NEWS = 1000
_MAX_QUESTIONS = 32


class Desk:
    """Takes what one server says unasked.

    Args:
        name: of the server, for texts and threads.
        requests: the handlers for its questions.
        notice: is told everything first, on the thread that reads; must return at once and not raise.
    """

    def __init__(
        self,
        name: str,
        requests: ServerRequests,
        notice: Callable[[ServerEvent], object] = lambda _event: None,
    ) -> None:
        self.dropped = 0
        """How many pieces of news were dropped because a listener was slow."""
        self.name = name
        """What the server is called in texts."""
        self._requests = requests
        self._notice = notice
        self._pid = os.getpid()
        self._pool = DaemonPool(f"yiem-mcp-{name}-work")
        # Guards the fields below; no handler or listener runs while it is held.
        self._lock = threading.Lock()
        self._listeners: dict[type, list[Listener]] = {}
        self._news: collections.deque[News] = collections.deque()
        self._telling = False
        self._open: set[RpcId] = set()
        self._closed = False

    def listen(self, kind: type, listener: Listener) -> Callable[[], None]:
        """Have `listener` told of each piece of news of a kind, one after another, on a thread of the desk's.

        Returns:
            A function that takes the listener back.
        """
        with self._lock:
            self._listeners = {**self._listeners, kind: [*self._listeners.get(kind, ()), listener]}

        def take_back() -> None:
            with self._lock:
                left = list(self._listeners.get(kind, ()))
                if listener in left:
                    left.remove(listener)
                self._listeners = {**self._listeners, kind: left}

        return take_back

    def has_listeners(self, kind: type) -> bool:
        """Whether anybody listens to news of this kind."""
        return bool(self._listeners.get(kind))

    def take(self, event: ServerEvent | None) -> None:
        """Take a piece of news; returns at once."""
        if event is None:
            return
        self._notice(event)
        if event.__class__ is Cancelled:
            with self._lock:
                self._open.discard(event.request_id)
        if not self._listeners.get(event.__class__):
            return
        assert isinstance(event, (ListChanged, ResourceUpdated, LogMessage))
        with self._lock:
            if self._closed or (event.__class__ is not LogMessage and event in self._news):
                return
            if len(self._news) >= _MAX_NEWS:
                self._news.popleft()
                self.dropped += 1
            self._news.append(event)
            if self._telling:
                return
            self._telling = True
        self.work(self._tell)

    def answer(self, request: Request, reply: Reply) -> None:
        """Have a server's question answered; returns at once.

        Args:
            request: the question.
            reply: sends the answer; called here, or on a thread of the desk's. What it raises is logged.
        """
        if request.method == "ping":
            reply(jsonrpc.response(request.id, {}))
            return
        number = id_key(request.id)
        assert number is not None
        with self._lock:
            too_many = len(self._open) >= _MAX_QUESTIONS
            if not too_many:
                self._open.add(number)
        if too_many:
            text = f"more than {_MAX_QUESTIONS} requests wait for an answer"
            reply(jsonrpc.error_response(request.id, jsonrpc.INTERNAL_ERROR, text))
        else:
            self.work(self._answer, request, reply)

    def work(self, function: Callable[..., Any], *args: Any) -> None:
        """Have `function` called on a thread of the desk's; after `close` nothing is."""
        if self._pid != os.getpid():  # a fork: the parent's workers are not here
            self._pid, self._pool = os.getpid(), DaemonPool(f"yiem-mcp-{self.name}-work")
        try:
            self._pool.start(function, *args)
        except RuntimeError:  # the pool or the interpreter ends: nobody waits for it any more
            logger.debug("the server %r is closed; %r is not called", self.name, function)

    def close(self) -> None:
        """Take nothing any more; what runs goes on and is not waited for."""
        with self._lock:
            self._closed = True
            self._news.clear()
        self._pool.shutdown(wait=False)

    def _tell(self) -> None:
        while True:
            with self._lock:
                if not self._news:
                    self._telling = False
                    return
                event = self._news.popleft()
                listeners = tuple(self._listeners.get(event.__class__, ()))
            for listener in listeners:
                try:
                    listener(event)
                except (
                    Exception
                ):  # a listener is anybody's; its mistake must not keep the others from being told
                    logger.warning("a listener to the server %r raised", self.name, exc_info=True)

    def _answer(self, request: Request, reply: Reply) -> None:
        try:
            answer = jsonrpc.response(
                request.id, self._requests.answer(request.method, request.params)
            )
        except McpProtocolError as error:
            code = jsonrpc.INTERNAL_ERROR if error.code is None else error.code
            answer = jsonrpc.error_response(request.id, code, str(error))
        except Exception as error:  # a handler is anybody's; the server must hear that it failed
            logger.warning("the handler of %s raised", request.method, exc_info=True)
            answer = jsonrpc.error_response(request.id, jsonrpc.INTERNAL_ERROR, error_text(error))
        with self._lock:
            number = id_key(request.id)
            wanted = number in self._open
            if number is not None:
                self._open.discard(number)
        if wanted:
            reply(answer)
