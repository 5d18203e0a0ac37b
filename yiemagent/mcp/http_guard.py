"""Who may speak to a server over HTTP: the Host, the Origin and the token of a request; no I/O.

A web page can have a browser send requests to servers on the same machine, under a name of its own that leads there
(DNS rebinding). So the Host must be one that the server goes by, and a page's Origin one that it knows: exactly, since
"127.0.0.1:80.evil.com" begins like one. Facts from the specifications, "Streamable HTTP", "Security".
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping

from yiemagent.errors import ConfigurationError
from yiemagent.mcp.http_wire import HttpRefusal

__all__ = ["HttpGuard"]

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_MIN_TOKEN_CHARS = 8


class HttpGuard:
    """Decides by the headers of a request.

    Args:
        hosts: the values of Host that are right beside those of this machine itself, with their port where it is not
            80: "tools.example.com".
        origins: the values of Origin that are right beside `http://` and one of the hosts.
        token: what clients must bring as a bearer token, or such tokens by the name of whoever brings it; None: whoever
            reaches the server may use it.
        port: the server's.

    Raises:
        ConfigurationError: a token is too short to be one.
    """

    def __init__(
        self,
        hosts: Iterable[str],
        origins: Iterable[str],
        token: str | Mapping[str, str] | None,
        port: int,
    ) -> None:
        local = [f"{name}:{port}" for name in _LOOPBACK]
        local += _LOOPBACK if port == 80 else ()
        self._hosts = {host.lower() for host in (*local, *hosts)}
        self._origins = {f"http://{host}" for host in self._hosts}
        self._origins |= {origin.lower() for origin in origins}
        tokens = {"client": token} if isinstance(token, str) else token
        if tokens is not None and any(len(text) < _MIN_TOKEN_CHARS for text in tokens.values()):
            raise ConfigurationError(f"a token must have {_MIN_TOKEN_CHARS} characters at least")
        self._tokens = None if tokens is None else {k: v.encode() for k, v in tokens.items()}

    def admit(self, headers: Mapping[str, str]) -> str | None:
        """Give the name of whoever sends a request; None where the server asks for no token.

        Args:
            headers: by lower-case name.

        Raises:
            HttpRefusal: the request is not for this server, or nobody's who may use it.
        """
        host, origin = headers.get("host"), headers.get("origin")
        if host is None or host.lower() not in self._hosts:
            raise HttpRefusal(421, "this server does not go by that Host")
        if origin is not None and origin.lower() not in self._origins:
            raise HttpRefusal(403, "pages of that Origin may not use this server")
        return None if self._tokens is None else self._owner(headers.get("authorization", ""))

    def _owner(self, authorization: str) -> str:
        scheme, _, word = authorization.partition(" ")
        # latin-1, as headers are read; a token of other characters was sent as UTF-8.
        brought = word.strip().encode("latin-1")
        owner = None
        for name, token in (self._tokens or {}).items():  # all of them, whichever it is
            if hmac.compare_digest(brought, token):
                owner = name
        if owner is None or scheme.lower() != "bearer":
            challenge = {"WWW-Authenticate": 'Bearer realm="mcp"'}
            raise HttpRefusal(401, "a bearer token is needed", challenge)
        return owner
