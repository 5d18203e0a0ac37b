"""Connecting to a NATS server: where it is, who we are, TLS, and the first words of both sides; blocks.

Credentials go to the server only once it said that it is one, and in TLS where that was asked for: a server which then
has none to offer is refused.
"""

from __future__ import annotations

import socket
import ssl
import urllib.parse
from collections.abc import Callable
from typing import Any

import attrs

from yiemagent.abort import Deadline
from yiemagent.errors import ConfigurationError, McpProtocolError, McpTransportError
from yiemagent.mcp.nats_wire import (
    NatsInfo,
    NatsPong,
    NatsReader,
    NatsRefusal,
    NatsSaid,
    connect_line,
    ping_line,
)
from yiemagent.record import Record

__all__ = ["NatsAddress", "NatsDialer", "NatsLogin", "NatsStream", "parse_address"]

_PORT = 4222
_READ_BYTES = 65_536


@attrs.frozen(eq=False)
class NatsLogin(Record):
    """Who the client is to the server: a user and a password, or a token; never shown."""

    user: str | None = attrs.field(default=None, repr=False)
    password: str | None = attrs.field(default=None, repr=False)
    token: str | None = attrs.field(default=None, repr=False)

    def __repr__(self) -> str:
        return "NatsLogin(…)"

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing."""
        return self.user is None and self.password is None and self.token is None

    @property
    def facts(self) -> dict[str, str]:
        """What CONNECT says of it."""
        named = {"user": self.user, "pass": self.password, "auth_token": self.token}
        return {name: value for name, value in named.items() if value is not None}


@attrs.frozen(eq=False, repr=False)
class NatsAddress(Record):
    """Where a server is.

    Args:
        host, port: where.
        uses_tls: whether the address itself wants TLS.
        login: what it says of who we are.
    """

    host: str
    port: int = _PORT
    uses_tls: bool = False
    login: NatsLogin = attrs.field(factory=NatsLogin)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(url: str) -> NatsAddress:
    """Read `nats://host:port`, `tls://…`, or `host:port`; a user, a password or a token may stand before the host.

    Raises:
        ConfigurationError: it is none of these.
    """
    whole = url if "://" in url else f"nats://{url}"
    try:
        parts = urllib.parse.urlsplit(whole)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = parts = None
    if parts is None or parts.scheme not in {"nats", "tls"} or not host or parts.path.strip("/"):
        shown = url.rpartition("@")[2]  # what stands before is secret
        raise ConfigurationError(
            f"{shown!r:.200} is no NATS address, such as nats://127.0.0.1:4222"
        )
    user, password = _unquoted(parts.username), _unquoted(parts.password)
    login = NatsLogin(user, password) if password is not None else NatsLogin(token=user)
    return NatsAddress(host, port or _PORT, parts.scheme == "tls", login)


def _unquoted(text: str | None) -> str | None:
    return None if text is None else urllib.parse.unquote(text)


class NatsStream:
    """An open connection: its socket, what reads from it, and what the server said of itself."""

    def __init__(self, connected: socket.socket, address: NatsAddress) -> None:
        self.socket = connected
        self.address = address
        self.reader = NatsReader()
        self.info = NatsInfo({})
        self.said: list[NatsSaid] = []
        """What the server said that is not taken yet."""

    @property
    def is_tls(self) -> bool:
        """Whether it is encrypted."""
        return isinstance(self.socket, ssl.SSLSocket)

    def next(self, deadline: Deadline) -> NatsSaid:
        """Wait for the next thing that the server says."""
        while not self.said:
            self.socket.settimeout(_seconds_left(deadline))
            data = self.socket.recv(_READ_BYTES)
            if not data:
                raise McpTransportError(f"the NATS server {self.address} closed the connection")
            self.said += self.reader.feed(data)
        return self.said.pop(0)


class NatsDialer:
    """Connects to servers and logs in.

    Args:
        login: who we are; where it says nothing, the address does.
        tls: what TLS is to hold to, and that there is to be TLS; None: as the address and the server want it.
        name: of the client, as the server shows it.
        timeout_s: limit for connecting to one server.
    """

    def __init__(
        self, login: NatsLogin, *, tls: ssl.SSLContext | None, name: str, timeout_s: float
    ) -> None:
        self._login = login
        self._tls = tls
        self._name = name
        self._timeout_s = timeout_s

    def dial(self, address: NatsAddress, on_socket: Callable[[socket.socket], None]) -> NatsStream:
        """Connect to one server.

        Args:
            address: the server.
            on_socket: is given the socket, so that another thread may shut it down.

        Raises:
            McpTransportError: no connection, no TLS, or the server does not let us in.
            McpProtocolError: this is no NATS server.
        """
        connected: socket.socket | None = None
        try:
            deadline = Deadline(self._timeout_s)
            connected = socket.create_connection((address.host, address.port), self._timeout_s)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            on_socket(connected)
            stream = NatsStream(connected, address)
            _greet(stream, deadline)
            if self._tls is not None or address.uses_tls or stream.info.tls_required:
                connected = stream.socket = _in_tls(stream, self._tls, deadline)
                on_socket(connected)
            login = address.login if self._login.is_empty else self._login
            _log_in(stream, login, self._name, deadline)
            connected.setblocking(False)
        except BaseException as error:  # whatever it is, the socket must not stay open
            if connected is not None:
                connected.close()
            if isinstance(error, (OSError, ValueError)):  # a ValueError: a name that can't be one
                raise McpTransportError(
                    f"the NATS server {address} can't be reached: {_words(error)}"
                ) from error
            raise
        return stream


def _words(error: Exception) -> str:
    return "it took too long" if isinstance(error, TimeoutError) else str(error)


def _seconds_left(deadline: Deadline) -> float:
    left = deadline.remaining_s()
    assert left is not None
    if left == 0.0:
        raise TimeoutError
    return left


def _greet(stream: NatsStream, deadline: Deadline) -> None:
    said = stream.next(deadline)
    if isinstance(said, NatsRefusal):
        raise McpTransportError(f"the NATS server {stream.address} refused: {said.reason}")
    if not isinstance(said, NatsInfo):
        raise McpProtocolError(
            f"the server at {stream.address} does not begin as a NATS server does"
        )
    stream.info = said


def _in_tls(
    stream: NatsStream, context: ssl.SSLContext | None, deadline: Deadline
) -> ssl.SSLSocket:
    if not stream.info.tls_available:
        raise McpTransportError(f"the NATS server {stream.address} does not offer TLS")
    if stream.said:  # words in the clear must not pass for words in TLS
        raise McpProtocolError(f"the NATS server {stream.address} speaks before TLS has begun")
    context = context or ssl.create_default_context()
    stream.socket.settimeout(_seconds_left(deadline))
    return context.wrap_socket(stream.socket, server_hostname=stream.address.host)


def _log_in(stream: NatsStream, login: NatsLogin, name: str, deadline: Deadline) -> None:
    headers = stream.info.has_headers
    options: dict[str, Any] = {
        "verbose": False,
        "pedantic": False,
        "tls_required": stream.is_tls,
        "name": name,
        "lang": "python",
        "version": "1",
        "protocol": 1,
        "echo": True,
        "headers": headers,
        "no_responders": headers,
        **login.facts,
    }
    stream.socket.settimeout(_seconds_left(deadline))
    stream.socket.sendall(connect_line(options) + ping_line())
    while not isinstance(said := stream.next(deadline), NatsPong):
        if isinstance(said, NatsRefusal):
            raise McpTransportError(f"the NATS server {stream.address} refused: {said.reason}")
        if isinstance(said, NatsInfo):
            stream.info = said
