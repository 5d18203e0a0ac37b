"""Places where a request may wait, each with a provider that is held there: for tests of aborts, and their benchmark.

Each is a context manager that takes an API, and whether to speak TLS; it gives an `Asking` that is waiting there.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from tests.providers.contract.apis import NEVER, Api, transcript
from tests.providers.contract.asking import WAIT_S, Asking
from tests.support.certificate import CERTFILE, KEYFILE
from yiemagent.net.http import HttpClient
from yiemagent.net.retry import RetryPolicy
from yiemagent.testing import HttpAnswer, ScriptedServer, json_answer, sse_answer

__all__ = ["STALLS", "Stall", "client_of", "server_of"]

Stall: TypeAlias = Callable[[Api, bool], contextlib.AbstractContextManager[Asking]]
STALLS: dict[str, Stall] = {}
ADDRESS = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
LONG_WAIT = [("Retry-After", "30")]
PATIENT = RetryPolicy(max_retries=3)


def stall(function: Callable[[Api, bool], Iterator[Asking]]) -> Stall:
    """Note a place under its name."""
    manager = contextlib.contextmanager(function)
    STALLS[function.__name__] = manager
    return manager


def server_of(*answers: Any, secure: bool, **options: Any) -> ScriptedServer:
    """A scripted server that speaks TLS or doesn't."""
    files = {"certfile": CERTFILE, "keyfile": KEYFILE} if secure else {}
    return ScriptedServer(*answers, **files, **options)


def client_of(**options: Any) -> HttpClient:
    """A client that trusts the scripted servers and nobody's environment."""
    return HttpClient(environ={}, ca_bundle=CERTFILE, **options)


@contextlib.contextmanager
def _asking(api: Api, url: str, client: HttpClient | None = None, **options: Any) -> Iterator[Any]:
    provider = api.make(url, client=client or client_of(), **{"retry": NEVER, **options})
    asking = Asking(provider)
    try:
        yield asking
    finally:
        asking.abort()
        provider.close()


@stall
def resolving(api: Api, secure: bool) -> Iterator[Asking]:
    """The name of the host is looked up, and nobody answers."""
    begun, gate = threading.Event(), threading.Event()

    def resolver(_host: str, _port: int) -> list[Any]:
        begun.set()
        gate.wait(WAIT_S)
        return []

    url = f"{'https' if secure else 'http'}://api.test"
    with _asking(api, url, client_of(resolver=resolver)) as asking:
        assert begun.wait(WAIT_S)
        yield asking
        gate.set()


@stall
def connecting(api: Api, secure: bool) -> Iterator[Asking]:
    """The connection is begun, and the other side is too busy to take it."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):  # the queue of those who wait to be accepted is full after that
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        begun = threading.Event()

        def resolver(_host: str, _port: int) -> list[Any]:
            begun.set()
            return [(*ADDRESS, listener.getsockname())]

        url = f"{'https' if secure else 'http'}://api.test"
        client = client_of(resolver=resolver)
        asking = stack.enter_context(_asking(api, url, client, connect_timeout_s=None))
        assert begun.wait(WAIT_S)
        threading.Event().wait(0.02)  # nobody tells that a connect waits
        yield asking


@stall
def shaking_hands(api: Api, _secure: bool) -> Iterator[Asking]:
    """The server took the connection and says nothing of TLS."""
    with (
        server_of(secure=True, on_connect="stall") as server,
        _asking(api, server.url, connect_timeout_s=None) as asking,
    ):
        server.wait_for(connections=1)
        yield asking
        asking.abort()
        server.wait_until_idle()


@stall
def before_headers(api: Api, secure: bool) -> Iterator[Asking]:
    """The request is sent, and no answer comes."""
    with (
        server_of(HttpAnswer(status=None, then="hang"), secure=secure) as server,
        _asking(api, server.url) as asking,
    ):
        server.wait_for(requests=1)
        yield asking
        asking.abort()
        server.wait_until_idle()


def _mid_stream(api: Api, secure: bool, name: str) -> Iterator[Asking]:
    with (
        server_of(sse_answer(transcript(api, name), then="hang"), secure=secure) as server,
        _asking(api, server.url) as asking,
    ):
        asking.wait_for_text()
        yield asking
        asking.abort()
        server.wait_until_idle()


@stall
def between_events(api: Api, secure: bool) -> Iterator[Asking]:
    """Part of the answer came, and no more."""
    yield from _mid_stream(api, secure, "cut")


@stall
def inside_an_event(api: Api, secure: bool) -> Iterator[Asking]:
    """Part of the answer came, and part of an event."""
    yield from _mid_stream(api, secure, "cut_in_an_event")


@stall
def backing_off(api: Api, secure: bool) -> Iterator[Asking]:
    """The server is busy, and it will be asked again in half a minute."""
    busy = json_answer({"error": {"message": "busy"}}, status=503, headers=LONG_WAIT)
    with (
        server_of(busy, secure=secure) as server,
        _asking(api, server.url, retry=PATIENT) as asking,
    ):
        asking.wait_for_notice("retry_scheduled")
        yield asking
