"""What `net.http` needs of `requests` and `urllib3`; the only room that knows them, loaded at the first request.

An adapter whose connections know the exchange that they work for: they connect through `Exchange.dial`, have their
socket watched while a request uses it, and let the exchange forget it before it is closed or kept for the next request.
And the one place where the errors of both libraries become ours.
"""

from __future__ import annotations

import functools
import pathlib
import re
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import Any, NoReturn

import requests
from requests.adapters import HTTPAdapter
from requests.certs import where  # type: ignore[attr-defined]  # not in the stubs
from urllib3 import PoolManager, exceptions
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from yiemagent.errors import ConfigurationError, HttpError
from yiemagent.net.chunked import ChunkedBody
from yiemagent.net.exchange import Exchange, origin_of
from yiemagent.quoting import Quoting

__all__ = ["Adapter", "fail", "is_stale", "prepare", "tls_context"]

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2
_HEADER_VALUE = re.compile(r"|[!-~\x80-\xff]([\t -~\x80-\xff]*[!-~\x80-\xff])?")
_READ_BYTES = 65_536
_POOLS, _KEPT_PER_POOL = (
    64,
    256,
)  # servers, and idle connections to each: many agents share one provider
_current = (
    threading.local()
)  # the exchange that this thread works for, told past urllib3 to the classes below
_FAILURES = (
    OSError,
    HTTPException,
    exceptions.HTTPError,
)  # what is about the connection; all else is a bug
_CLOSED = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)


class _Answer(HTTPResponse):
    def __init__(self, exchange: Exchange, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._exchange = exchange
        self._chunks = ChunkedBody()

    def _read1_chunked(
        self, _size: int
    ) -> bytes:  # many chunks for one call, where its base gives one
        carried = b""
        while not carried:
            data = self.fp.read1(_READ_BYTES)
            if not data:
                raise IncompleteRead(b"")
            carried = self._chunks.feed(data)
            if self._chunks.ended:
                self._close_conn()
                break
        return carried

    def _read_status(self) -> tuple[str, int, str]:
        status: tuple[str, int, str] = super()._read_status()  # type: ignore[misc]  # not in the stubs
        self._exchange.answered = True
        return status

    def _close_conn(self) -> None:  # the answer was read to its end, or is given up
        self._exchange.forget()
        super()._close_conn()  # type: ignore[misc]  # not in the stubs


class _Connection(HTTPConnection):
    def connect(self) -> None:
        exchange: Exchange = _current.exchange

        def work() -> None:
            _current.exchange = exchange  # in the thread of the dial
            super(_Connection, self).connect()

        try:
            exchange.dial(work, self.close)
        except TimeoutError as error:
            raise exceptions.ConnectTimeoutError(self, "no connection in time") from error
        exchange.watch(self.sock)

    def _new_conn(self) -> Any:
        exchange: Exchange = _current.exchange
        try:
            return exchange.open_tcp(self._dns_host, self.port, self.socket_options or ())
        except OSError as error:
            raise exceptions.NewConnectionError(self, str(error)) from error

    def request(self, *args: Any, **options: Any) -> None:
        exchange: Exchange = _current.exchange
        if self.sock is not None:
            exchange.watch(self.sock)
        self.response_class = functools.partial(_Answer, exchange)  # type: ignore[assignment]  # called like a class
        super().request(*args, **options)


class _TlsConnection(_Connection, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection

    def _get_conn(self, timeout: float | None = None) -> Any:
        try:
            conn = super()._get_conn(timeout)
        except exceptions.ClosedPoolError:  # by another thread, since this one has found the pool
            return self._new_conn()
        if _current.exchange.fresh:
            conn.close()
        return conn


class _TlsPool(_Pool, HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


_POOL_CLASSES = {"http": _Pool, "https": _TlsPool}


class Adapter(HTTPAdapter):
    """Sends prepared requests through connections that end with their exchange.

    Args:
        tls: gives the TLS context; asked when the first https request is sent.
    """

    def __init__(self, tls: Callable[[], ssl.SSLContext]) -> None:
        self._tls = tls
        super().__init__(_POOLS, _KEPT_PER_POOL)

    def exchange(
        self, prepared: requests.PreparedRequest, exchange: Exchange, proxy: str | None
    ) -> requests.Response:
        """Send a request and wait for the headers of its answer."""
        _current.exchange = exchange
        try:
            return self.send(
                prepared,
                stream=True,
                timeout=(exchange.connect_timeout_s, exchange.idle_timeout_s),  # type: ignore[arg-type]  # None is fine
                proxies={"all": proxy} if proxy else {},
            )
        finally:
            _current.exchange = None

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """Make the pools of direct connections."""
        connections, maxsize = args
        self.poolmanager = PoolManager(connections, maxsize=maxsize, block=options["block"])
        self.poolmanager.pool_classes_by_scheme = _POOL_CLASSES

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        """Give the pools of connections through `proxy`."""
        if proxy.startswith("https:"):
            options["proxy_ssl_context"] = self._tls()
        manager = super().proxy_manager_for(proxy, **options)
        manager.pool_classes_by_scheme = _POOL_CLASSES
        return manager

    def build_connection_pool_key_attributes(self, *args: Any, **options: Any) -> Any:
        """Have every https pool use the one context."""
        host, pool = super().build_connection_pool_key_attributes(*args, **options)
        if host["scheme"] == "https":
            pool = {**pool, "ssl_context": self._tls()}
        return host, pool

    def close(self) -> None:
        """Close the kept connections; those under way are closed when they are given back.

        The libraries only drop their pools, whose connections then stay open until nothing refers to them any more.
        """
        for manager in (self.poolmanager, *self.proxy_manager.values()):
            for key in manager.pools.keys():  # noqa: SIM118 - these pools can't be iterated
                if pool := manager.pools.get(key):
                    pool.close()
        super().close()

    def cert_verify(self, *args: Any, **options: Any) -> None:
        """Load nothing: the context of the pool has the certificates already."""


@functools.cache
def tls_context(ca_bundle: str | None) -> ssl.SSLContext:
    """Give the process's one TLS context for a CA bundle, None for that of `certifi`; making it costs some 30 ms."""
    path = pathlib.Path(ca_bundle or where())
    if path.is_dir():
        return ssl.create_default_context(capath=path)
    return ssl.create_default_context(cafile=path)


def prepare(
    method: str,
    url: str,
    headers: Mapping[str, str],
    params: Mapping[str, Any] | None,
    body: bytes | str | None,
) -> requests.PreparedRequest:
    """Check and encode a request.

    Raises:
        ConfigurationError: the URL or a header is none.
    """
    for name, value in headers.items():
        # Told by the name alone and before the libraries look: they show the value, which may be a key.
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ConfigurationError(f"the header {name!r} holds characters that can't be sent")
    prepared = requests.PreparedRequest()
    data = body.encode() if isinstance(body, str) else body
    try:
        prepared.prepare(method, url, dict(headers), data=data, params=dict(params or {}))
    except (ValueError, requests.RequestException) as error:
        # Without its text and itself, which show the whole URL.
        text = f"can't send a request to {origin_of(url)}: {type(error).__name__}"
        raise ConfigurationError(text) from None
    if not str(prepared.url).startswith(("http://", "https://")):
        raise ConfigurationError(
            f"can't send a request to {origin_of(url)}: only http and https are known"
        )
    return prepared


# --- errors --------------------------------------------------------------------------------------------------------


def is_stale(error: BaseException, exchange: Exchange) -> bool:
    """Whether a kept connection turned out to be closed by the server before any of the answer came."""
    untouched = not (exchange.connected or exchange.answered or exchange.aborted)
    return untouched and any(isinstance(cause, _CLOSED) for cause in _causes(error))


def fail(error: BaseException, exchange: Exchange) -> NoReturn:
    """Raise what an error of the libraries means."""
    if exchange.aborted and isinstance(error, Exception):
        raise exchange.abort_error() from error
    if not isinstance(error, _FAILURES):
        raise error
    causes = list(_causes(error))
    if any(type(cause) is exceptions.ConnectTimeoutError for cause in causes):
        raise exchange.connect_error() from error
    if any(isinstance(cause, exceptions.ReadTimeoutError) for cause in causes):
        raise exchange.idle_error() from error
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        hint = "SSL_CERT_FILE may name a file of certificates to trust"
        text = Quoting(
            f"the certificate of {exchange.origin} is not trusted: ", _reason(causes), f"; {hint}"
        )
        raise HttpError(text, reached=False) from error
    what = "the connection to {} broke" if exchange.answered else "no connection to {}"
    text = Quoting(f"{what.format(exchange.origin)}: ", _reason(causes))
    broken = not any(isinstance(cause, exceptions.DecodeError) for cause in causes)
    raise HttpError(text, None, broken, exchange.reached) from error


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Give an error and what it was made of: the libraries keep that in `reason`, in arguments, or as the cause."""
    seen: set[int] = set()
    stack: list[Any] = [error]
    while stack:
        current = stack.pop()
        if isinstance(current, BaseException) and id(current) not in seen:
            seen.add(id(current))
            yield current
            stack += [current.__cause__, *current.args, getattr(current, "reason", None)]


def _reason(causes: list[BaseException]) -> str:
    """Give the system's own words for a failure, where they are known."""
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return cause.verify_message
    for cause in causes:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
    last = causes[-1]
    return str(last) or type(last).__name__
