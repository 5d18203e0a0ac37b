"""HTTP whose every wait ends with an abort signal.

`requests` and `urllib3` load at the first request. Of `requests` the prepared request and the adapter are used; a
session would add cookies, `.netrc` and the environment of the moment, none of which is wanted. Nothing is asked again
here, with one exception: where a kept connection turns out to have been closed by the server before any of the answer
came, the request goes out once more on a fresh connection, whatever its method, unless the caller forbids it.
"""

from __future__ import annotations

import contextlib
import functools
import json as json_module
import os
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urljoin

from yiemagent.abort import AbortSignal
from yiemagent.errors import HttpError
from yiemagent.net.environment import NetEnvironment, read_environment
from yiemagent.net.exchange import Exchange, Resolver, origin_of, resolve

if TYPE_CHECKING:
    from yiemagent.net import transport

__all__ = ["HttpClient", "HttpResponse", "get_json"]

_READ_BYTES = 65_536
_MAX_REDIRECTS = 5
_REDIRECTS = {301, 302, 303, 307, 308}
_KEY_WORDS = ("auth", "cookie", "key", "secret", "token")


class HttpClient:
    """Sends requests and keeps connections for the next ones; safe to use from many threads.

    Args:
        environ: where proxies and the CA bundle are read from, at the first request; None: the process's environment.
        ca_bundle: file of the certificates to trust instead; None: the environment's, else those of `certifi`.
        resolver: gives the addresses of a host.
    """

    def __init__(
        self,
        *,
        environ: Mapping[str, str] | None = None,
        ca_bundle: str | None = None,
        resolver: Resolver = resolve,
    ) -> None:
        self._environ = environ
        self._ca_bundle = ca_bundle
        self._resolver = resolver
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        # Guards the making of the adapter; no request runs while it is held.
        self._lock = threading.Lock()
        self._adapter: transport.Adapter | None = None
        self._environment: NetEnvironment | None = None

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        body: bytes | str | None = None,
        signal: AbortSignal | None = None,
        connect_timeout_s: float | None = 10.0,
        idle_timeout_s: float | None = 120.0,
        stream: bool = False,
        resend: bool = True,
    ) -> HttpResponse:
        """Send a request and wait for the headers of the answer.

        Redirects are followed for GET and HEAD, up to five, unless a header looks like a key; all else is given as it
        comes, errors included.

        Args:
            method: "GET", "POST", …
            url: http or https.
            headers: sent with the request.
            params: added to the URL as its query.
            json: a value to send as JSON.
            body: what to send where `json` is None.
            signal: ends the request, and the reading of its answer, within 0.1 s of being set.
            connect_timeout_s: limit for resolving, connecting and the TLS handshake together; None: none.
            idle_timeout_s: limit for each wait for bytes of the answer; None: none.
            stream: ask for a body that isn't compressed, so that it can be read as it comes.
            resend: False where it must never arrive twice, not even for a kept connection that was closed.

        Raises:
            AbortedError: the signal was set.
            HttpError: the server can't be reached, or the connection broke; `HttpTimeout`: a time limit was reached.
            ConfigurationError: the URL, a header or the proxy is none.
        """
        from yiemagent.net import transport

        sent = {"Accept-Encoding": "identity" if stream else "gzip, deflate", **(headers or {})}
        if json is not None:
            body = json_module.dumps(json, separators=(",", ":"))
            sent.setdefault("Content-Type", "application/json")
        prepared = transport.prepare(method.upper(), url, sent, params, body)
        begin = functools.partial(
            Exchange,
            signal,
            connect_timeout_s=connect_timeout_s,
            idle_timeout_s=idle_timeout_s,
            resolver=self._resolver,
        )
        for _ in range(_MAX_REDIRECTS + 1):
            response = self._send(prepared, signal, begin, resend=resend)
            target = _redirect(prepared, response)
            if target is None:
                return response
            response.close()
            prepared = transport.prepare(method.upper(), target, sent, None, None)
        raise HttpError(f"{origin_of(url)} redirects more than {_MAX_REDIRECTS} times")

    def close(self) -> None:
        """Close the kept connections; the client can still be used and opens new ones."""
        with self._lock:
            adapter, self._adapter = self._adapter, None
        if adapter is not None:
            adapter.close()

    def _send(
        self, prepared: Any, signal: AbortSignal | None, begin: Any, *, resend: bool
    ) -> HttpResponse:
        from yiemagent.net import transport

        adapter, environment = self._ready()
        proxy = environment.proxy_for(prepared.url)
        for fresh in (False, True):
            if signal is not None:
                signal.raise_if_aborted()
            exchange = begin(origin=origin_of(prepared.url), fresh=fresh)
            try:
                return HttpResponse(adapter.exchange(prepared, exchange, proxy), exchange)
            except BaseException as error:  # whatever it is, the signal must forget the exchange
                exchange.end()
                if fresh or not resend or not transport.is_stale(error, exchange):
                    transport.fail(error, exchange)
        raise AssertionError  # the second round returned or raised

    def _ready(self) -> tuple[transport.Adapter, NetEnvironment]:
        from yiemagent.net import transport

        if (
            self._pid != os.getpid()
        ):  # a fork: the parent's connections are not ours, nor is its lock
            self._reset()
        with self._lock:
            if self._environment is None:
                environ = os.environ if self._environ is None else self._environ
                self._environment = read_environment(environ)
            if self._adapter is None:
                ca_bundle = self._ca_bundle or self._environment.ca_bundle
                tls = functools.partial(transport.tls_context, ca_bundle)
                self._adapter = transport.Adapter(tls)
            return self._adapter, self._environment


def _redirect(prepared: Any, response: HttpResponse) -> str | None:
    """Give where to go on, or None: with a key nothing is followed, nor is a way out of TLS."""
    location = response.headers.get("location")
    if response.status not in _REDIRECTS or not location or prepared.method not in {"GET", "HEAD"}:
        return None
    if any(word in name.lower() for name in prepared.headers for word in _KEY_WORDS):
        return None
    target: str = urljoin(prepared.url, location)
    if prepared.url.startswith("https:") and not target.startswith("https:"):
        return None
    return target


class HttpResponse:
    """An answer whose body is still to be read; to be closed, or read to its end. Used by one thread.

    A connection whose answer was read to the end is kept for the next request; else it is closed.
    """

    def __init__(self, response: Any, exchange: Exchange) -> None:
        self.status: int = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self.url: str = response.url
        """Where the answer came from, after redirects."""
        self.origin = exchange.origin
        self._raw = response.raw
        self._exchange = exchange
        self._due: float | None = None
        self._shortened = False
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def iter_bytes(self, *, only_noted_progress: bool = False) -> Iterator[bytes]:
        """Give the body as it comes, decompressed, in pieces that are never empty.

        Args:
            only_noted_progress: whether the idle limit begins anew only with `note_progress`, not with every byte.

        Raises:
            AbortedError: the signal was set.
            HttpTimeout: the idle limit was reached.
            HttpError: the connection broke before the end.
        """
        self.note_progress()
        while not self._ended:
            if only_noted_progress:
                self._shorten_wait()
            data = self._read1()
            if not data:
                self._end()
                return
            yield data

    def note_progress(self) -> None:
        """Begin the idle limit anew."""
        self._due = None
        if self._shortened:
            self._shortened = False
            self._exchange.set_timeout(self._exchange.idle_timeout_s)

    def _shorten_wait(self) -> None:
        """Leave what is left of the idle limit to the next read; the first read since progress has all of it."""
        limit_s = self._exchange.idle_timeout_s
        if limit_s is None:
            return
        now = time.monotonic()
        if self._due is None:
            self._due = now + limit_s
        elif self._due > now:
            self._shortened = True
            self._exchange.set_timeout(self._due - now)
        else:
            self.close()
            raise self._exchange.idle_error()

    def _read1(self) -> bytes:
        try:
            data: bytes | None = self._raw.read1(_READ_BYTES, decode_content=True)
        except BaseException as error:  # whatever it is, the connection is no use any more
            self.close()
            from yiemagent.net import transport

            transport.fail(error, self._exchange)
        if self._exchange.aborted:  # a socket that was shut down looks like the end of the body
            self.close()
            raise self._exchange.abort_error()
        return data or b""

    def read(self, max_bytes: int = 67_108_864, *, whole_within_idle_limit: bool = False) -> bytes:
        """Give the rest of the body.

        Args:
            max_bytes: a larger body is an error.
            whole_within_idle_limit: whether all of it must come within the idle limit, not each piece.

        Raises:
            AbortedError, HttpTimeout, HttpError: as `iter_bytes`.
        """
        pieces, size = [], 0
        for data in self.iter_bytes(only_noted_progress=whole_within_idle_limit):
            pieces.append(data)
            size += len(data)
            if size > max_bytes:
                self.close()
                raise HttpError(f"the answer of {self.origin} is larger than {max_bytes} bytes")
        return b"".join(pieces)

    def finish(self, within_s: float = 0.05) -> None:
        """Read the very end of the body, so that the connection can be kept; close it where more comes, or nothing."""
        if self._ended:
            return
        self._exchange.set_timeout(within_s)
        with contextlib.suppress(
            Exception
        ):  # the answer is complete: whatever happens now harms nothing
            if not self._raw.read1(_READ_BYTES, decode_content=True):
                self._end()
        self.close()

    def close(self) -> None:
        """Let go of the answer; does nothing at its end. It does not wake a reader, only the signal does."""
        if not self._ended:
            self._end()
            self._raw.close()
            self._raw.release_conn()

    def _end(self) -> None:
        self._ended = True
        self._exchange.end()


@functools.cache
def _default_client() -> HttpClient:
    return HttpClient()


def get_json(
    url: str,
    *,
    params: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    signal: AbortSignal | None = None,
    timeout_s: float | None = 30.0,
    max_bytes: int = 8_388_608,
) -> Any:
    """Get a JSON value from a web API; for tools.

    Args:
        url: where to ask.
        params: added to the URL as its query.
        headers: sent with the request.
        signal: ends the request within 0.1 s of being set.
        timeout_s: limit for the connection, for the headers, and for the whole body; None: none.
        max_bytes: a larger answer is an error.

    Raises:
        AbortedError: the signal was set.
        HttpError: no connection, a time limit, a status that means failure (`status` is set), or no JSON.
    """
    connect_s = 10.0 if timeout_s is None else min(10.0, timeout_s)
    client = _default_client()
    with client.request(
        "GET",
        url,
        params=params,
        headers={"Accept": "application/json", **(headers or {})},
        signal=signal,
        connect_timeout_s=connect_s,
        idle_timeout_s=timeout_s,
    ) as response:
        body = response.read(max_bytes, whole_within_idle_limit=True)
        if response.status >= 300:
            text = " ".join(body[:500].decode("utf-8", "replace").split())
            raise HttpError(
                f"{response.origin} answered {response.status}: {text}", response.status
            )
        try:
            return json_module.loads(body)
        except (ValueError, RecursionError) as error:
            raise HttpError(f"the answer of {response.origin} is no JSON: {error}") from error
