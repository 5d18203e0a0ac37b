"""Places where a request may wait, each with a provider that is held there: for tests of aborts, and their benchmark.

Each is a context manager that takes an API, whether to speak TLS, and who asks: `Asking` the provider alone, or
`AgentAsking` an agent. It gives what is waiting there.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from tests.providers.contract.apis import Api, transcript
from tests.providers.contract.asking import WAIT_S, ask
from tests.support.certificate import CERTFILE, KEYFILE
from yiemagent.net.http import HttpClient
from yiemagent.net.retry import RetryPolicy
from yiemagent.testing import HttpAnswer, ScriptedServer, json_answer, sse_answer

__all__ = ["STALLS", "Stall", "client_of", "server_of"]

Who: TypeAlias = Callable[[Any], Any]
Stall: TypeAlias = Callable[[Api, bool, Who], contextlib.AbstractContextManager[Any]]
STALLS: dict[str, Stall] = {}
ADDRESS = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
LONG_WAIT = [("Retry-After", "30")]
PATIENT = RetryPolicy(max_retries=3)
_KEYS = itertools.count()


def stall(function: Callable[[Api, bool, Who], Iterator[Any]]) -> Stall:
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
def _asking(who: Who, api: Api, url: str, **options: Any) -> Iterator[Any]:
    provider = api.make(url, **{"client": client_of(), **options})
    asking = who(provider)
    try:
        yield asking
    finally:
        asking.abort()
        provider.close()


@stall
def resolving(api: Api, secure: bool, who: Who) -> Iterator[Any]:
    """The name of the host is looked up, and nobody answers."""
    begun, gate = threading.Event(), threading.Event()

    def resolver(_host: str, _port: int) -> list[Any]:
        begun.set()
        gate.wait(WAIT_S)
        return []

    url = f"{'https' if secure else 'http'}://api.test"
    with _asking(who, api, url, client=client_of(resolver=resolver)) as asking:
        assert begun.wait(WAIT_S)
        yield asking
        gate.set()


@stall
def connecting(api: Api, secure: bool, who: Who) -> Iterator[Any]:
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
        stalled = _asking(who, api, url, client=client, connect_timeout_s=None)
        asking = stack.enter_context(stalled)
        assert begun.wait(WAIT_S)
        threading.Event().wait(0.02)  # nobody tells that a connect waits
        yield asking


@stall
def shaking_hands(api: Api, _secure: bool, who: Who) -> Iterator[Any]:
    """The server took the connection and says nothing of TLS."""
    with (
        server_of(secure=True, on_connect="stall") as server,
        _asking(who, api, server.url, connect_timeout_s=None) as asking,
    ):
        server.wait_for(connections=1)
        yield asking
        asking.abort()
        server.wait_until_idle()


@stall
def before_headers(api: Api, secure: bool, who: Who) -> Iterator[Any]:
    """The request is sent, and no answer comes."""
    with (
        server_of(HttpAnswer(status=None, then="hang"), secure=secure) as server,
        _asking(who, api, server.url) as asking,
    ):
        server.wait_for(requests=1)
        yield asking
        asking.abort()
        server.wait_until_idle()


def _mid_stream(api: Api, secure: bool, who: Who, name: str) -> Iterator[Any]:
    with (
        server_of(sse_answer(transcript(api, name), then="hang"), secure=secure) as server,
        _asking(who, api, server.url) as asking,
    ):
        asking.wait_for_text()
        yield asking
        asking.abort()
        server.wait_until_idle()


@stall
def between_events(api: Api, secure: bool, who: Who) -> Iterator[Any]:
    """Part of the answer came, and no more."""
    yield from _mid_stream(api, secure, who, "cut")


@stall
def inside_an_event(api: Api, secure: bool, who: Who) -> Iterator[Any]:
    """Part of the answer came, and part of an event."""
    yield from _mid_stream(api, secure, who, "cut_in_an_event")


@stall
def backing_off(api: Api, secure: bool, who: Who) -> Iterator[Any]:
    """The server is busy, and it will be asked again in half a minute."""
    busy = json_answer({"error": {"message": "busy"}}, status=503, headers=LONG_WAIT)
    with (
        server_of(busy, secure=secure) as server,
        _asking(who, api, server.url, retry=PATIENT) as asking,
    ):
        asking.wait_for_notice("retry_scheduled")
        yield asking


@stall
def in_the_rate_gate(api: Api, secure: bool, who: Who) -> Iterator[Any]:
    """Another request with the same key was asked to wait for half a minute, and so all wait."""
    busy = json_answer({"error": {"message": "slow down"}}, status=429, headers=LONG_WAIT)
    key = f"sk-gate-{next(_KEYS)}"  # of its own, since a gate outlives its server
    with server_of(busy, secure=secure) as server:
        first = api.make(server.url, client=client_of(), api_key=key)
        ask(first)
        first.close()
        with _asking(who, api, server.url, retry=PATIENT, api_key=key) as asking:
            asking.wait_for_notice("rate_gate")
            yield asking
