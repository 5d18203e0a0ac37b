"""What a client wants to hear of a server outside of answers, and every new connection is told.

Listeners, subscribed resources and the log level outlive a connection: whenever one is opened, it is brought up to
them, and since its server may be another process by then, all lists are told as changed.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable, Mapping
from typing import Any

from yiemagent.errors import ConfigurationError, McpError
from yiemagent.mcp.calls import Call
from yiemagent.mcp.client_protocol import (
    ClientProtocol,
    ListChanged,
    LogMessage,
    ResourceUpdated,
    server_error,
)
from yiemagent.mcp.connection import Asked, Connection
from yiemagent.mcp.desk import Desk
from yiemagent.mcp.handlers import ServerRequests
from yiemagent.mcp.jsonrpc import ErrorResponse
from yiemagent.mcp.link import Link
from yiemagent.mcp.listening import Listening
from yiemagent.mcp.versions import LOG_LEVELS

__all__ = ["Attendance", "check_level"]

logger = logging.getLogger("yiemagent.mcp.attendance")

_LISTS = ("tools", "prompts", "resources")


def check_level(level: str) -> None:
    """Raise where there is no such log level.

    Raises:
        ConfigurationError: it names the levels.
    """
    if level not in LOG_LEVELS:
        raise ConfigurationError(f"no log level is called {level!r}; know: {', '.join(LOG_LEVELS)}")


class Attendance:
    """What one client wants to hear.

    Args:
        name: of the server.
        link: gives the connection.
        desk: tells listeners.
        requests: the handlers; where there is one, servers may ask, and where they ask has to be listened to.
    """

    def __init__(self, name: str, link: Link, desk: Desk, requests: ServerRequests) -> None:
        self.log_level: str | None = None
        """The least severe level that is wanted, or None."""
        self._link = link
        self._desk = desk
        self._may_be_asked = bool(requests.capabilities)
        self._listening = Listening(name, link.numbers, desk.take)
        # How many listeners each list and each resource has; single steps of a dict are atomic, so no lock.
        self._lists: collections.Counter[str] = collections.Counter()
        self._resources: collections.Counter[str] = collections.Counter()
        self._was_open = False

    def opened(self, connection: Connection, protocol: ClientProtocol, call: Call) -> None:
        """Bring a new connection up to what is wanted."""
        self.attend(connection, protocol, call)
        facts = protocol.facts
        if facts is not None and not facts.is_stateless:
            if self.log_level is not None and facts.can("logging"):
                self._ask(connection, "logging/setLevel", {"level": self.log_level}, call)
            for uri in tuple(+self._resources):
                self._ask(connection, "resources/subscribe", {"uri": uri}, call)
        if self._was_open:
            for kind in _LISTS:
                self._desk.take(ListChanged(kind))
        self._was_open = True

    def attend(self, connection: Connection, protocol: ClientProtocol, call: Call) -> None:
        """Have a connection tell what is wanted now."""
        if protocol.is_stateless:
            self._listening.listen(connection, protocol, self._wanted(protocol))
        elif self._may_be_asked or any(
            map(self._desk.has_listeners, (ListChanged, ResourceUpdated, LogMessage))
        ):
            connection.open_stream(call)

    def list_changed(
        self, kind: str, listener: Callable[[], object], call: Call
    ) -> Callable[[], None]:
        """Have `listener` called when a list changed; gives a function that takes it back.

        Raises:
            ConfigurationError: there is no such list.
        """
        if kind not in _LISTS:
            raise ConfigurationError(f"no list is called {kind!r}; know: {', '.join(_LISTS)}")

        def listen(event: ListChanged) -> None:
            if event.kind == kind:
                listener()

        take_back = self._desk.listen(ListChanged, listen)
        self._lists[kind] += 1
        current = self._link.current
        if current is not None:
            self._desk.work(self._attend_later, *current, call)

        def end() -> None:
            take_back()
            self._lists[kind] -= 1

        return _once(end)

    def subscribe(
        self, uri: str, listener: Callable[[str], object], call: Call
    ) -> Callable[[], None]:
        """Have `listener` called with the address when a resource changes; gives a function that ends it.

        Raises:
            AbortedError, McpError: as every call; nothing is subscribed to then.
        """

        def listen(event: ResourceUpdated) -> None:
            if event.uri.startswith(uri):  # a part of what was subscribed to may be named
                listener(event.uri)

        take_back = self._desk.listen(ResourceUpdated, listen)
        self._resources[uri] += 1

        def end() -> None:
            take_back()
            self._resources[uri] -= 1
            if self._resources[uri] <= 0:
                self._desk.work(self._unsubscribe, uri)

        end = _once(end)
        try:
            connection, protocol = self._link.get(call)
            self.attend(connection, protocol, call)
            if self._resources[uri] == 1 and not protocol.is_stateless:
                self._demand(connection, "resources/subscribe", {"uri": uri}, call)
        except BaseException:  # whatever it is, nobody is subscribed then
            end()
            raise
        return end

    def set_log_level(self, level: str, call: Call) -> None:
        """Say which log records are wanted from now on.

        Raises:
            ConfigurationError: there is no such level.
            AbortedError, McpError: as every call.
        """
        check_level(level)
        self.log_level = level
        connection, protocol = self._link.get(call)
        protocol.log_level = level
        if not protocol.is_stateless:
            self._demand(connection, "logging/setLevel", {"level": level}, call)

    def close(self) -> None:
        """End the listening."""
        self._listening.close()

    def _wanted(self, protocol: ClientProtocol) -> dict[str, Any]:
        facts = protocol.facts
        assert facts is not None
        wanted: dict[str, Any] = {
            f"{kind}ListChanged": True
            for kind in _LISTS
            if self._lists[kind] > 0 and facts.can(kind, "listChanged")
        }
        if uris := sorted(+self._resources):
            wanted["resourceSubscriptions"] = uris
        return wanted

    def _attend_later(self, connection: Connection, protocol: ClientProtocol, call: Call) -> None:
        try:
            self.attend(connection, protocol, call)
        except McpError as error:
            logger.debug("can't listen to the server: %s", error)

    def _unsubscribe(self, uri: str) -> None:
        current = self._link.current
        if current is None or self._resources[uri] > 0:
            return
        connection, protocol = current
        call = Call("resources/unsubscribe", timeout_s=10.0)
        if protocol.is_stateless:
            self._attend_later(connection, protocol, call)
        else:
            self._ask(connection, "resources/unsubscribe", {"uri": uri}, call)

    def _ask(
        self, connection: Connection, method: str, params: Mapping[str, Any], call: Call
    ) -> None:
        """Ask for what is good to have; that it fails breaks nothing."""
        try:
            self._demand(connection, method, params, call)
        except McpError as error:
            if connection.failure is not None:
                raise
            logger.warning("the server does not do %s: %s", method, error)

    def _demand(
        self, connection: Connection, method: str, params: Mapping[str, Any], call: Call
    ) -> None:
        step = Call(method, signal=call.signal, timeout_s=call.remaining_s())
        asked = Asked(next(self._link.numbers), method, params)
        answer = connection.exchange(asked, step)
        if isinstance(answer, ErrorResponse):
            raise server_error(method, answer)


def _once(function: Callable[[], None]) -> Callable[[], None]:
    """Give a function that does so the first time and nothing after it."""
    left = [function]

    def call() -> None:
        if left:
            left.pop()()

    return call
