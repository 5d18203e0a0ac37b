"""A server at an HTTP address, and how it is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from yiemagent.errors import ConfigurationError
from yiemagent.mcp.client_http import HttpConnection
from yiemagent.mcp.connection import Connection, DuplexConnection
from yiemagent.mcp.http_reading import MAX_BODY_BYTES
from yiemagent.mcp.legacy_sse import LegacySsePipe
from yiemagent.mcp.poster import Headers, OnUnauthorized, Poster

if TYPE_CHECKING:
    from yiemagent.mcp.client_protocol import ClientProtocol
    from yiemagent.mcp.desk import Desk

__all__ = ["HttpServer"]


class HttpServer:
    """A server that is reached over HTTP.

    Args:
        url: its address.
        headers: sent with every request, such as `{"Authorization": "Bearer …"}`; a function is asked each time.
        transport: "http" is Streamable HTTP; "sse" the older transport of two addresses; "auto" tries both, in order.
        on_unauthorized: is told what an answer of 401 wants (`WWW-Authenticate`) and gives whether to ask again, once,
            with the headers that there are by then.
        connect_timeout_s: limit for each connection; None: none.
        max_message_bytes: a larger message of the server's fails the call that it answers.

    Raises:
        ConfigurationError: the address is none.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Headers | None = None,
        transport: Literal["auto", "http", "sse"] = "auto",
        on_unauthorized: OnUnauthorized | None = None,
        connect_timeout_s: float | None = 10.0,
        max_message_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigurationError(
                "the address of a server begins with http:// or https:// and names a host"
            )
        if transport not in {"auto", "http", "sse"}:
            raise ConfigurationError(
                f"transport must be 'auto', 'http' or 'sse', not {transport!r}"
            )
        self.url = url
        self.name: str = parts.hostname
        self.ways = ("http", "sse") if transport == "auto" else (transport,)
        self._headers = headers
        self._on_unauthorized = on_unauthorized
        self._connect_timeout_s = connect_timeout_s
        self._max_message_bytes = max_message_bytes

    def dial(self, way: str, protocol: ClientProtocol, desk: Desk) -> Connection:
        """Make a connection; nothing is sent yet over Streamable HTTP. See `link.Dialer`."""
        poster = Poster(
            self.url,
            headers=self._headers,
            name=desk.name,
            on_unauthorized=self._on_unauthorized,
            connect_timeout_s=self._connect_timeout_s,
        )
        if way == "http":
            return HttpConnection(poster, protocol, desk, desk.name, self._max_message_bytes)
        return DuplexConnection(
            lambda receive, ended: LegacySsePipe(poster, desk.name, receive, ended), desk
        )

    def __repr__(self) -> str:
        parts = urlsplit(self.url)
        return f"<HttpServer {parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}>"
