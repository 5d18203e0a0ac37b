"""How an abort reaches a request wherever it blocks, step by step."""

import socket
import threading
import types

import pytest

from yiemagent.abort import AbortSignal
from yiemagent.errors import AbortedError
from yiemagent.net.exchange import Exchange, origin_of, resolve, shut_down


@pytest.fixture
def pair():
    one, other = socket.socketpair()
    yield one, other
    one.close()
    other.close()


def is_shut(other):
    other.setblocking(False)
    try:
        return other.recv(1) == b""
    except BlockingIOError:
        return False


def test_abort_shuts_the_watched_socket(pair):
    """A set signal shuts the socket down that the exchange watches."""
    signal = AbortSignal()
    exchange = Exchange(signal)
    exchange.watch(pair[0])
    signal.abort("enough")

    assert exchange.aborted
    assert str(exchange.abort_error()) == "aborted: enough"
    assert is_shut(pair[1])
    exchange.end()


def test_socket_that_comes_late(pair):
    """A socket that is to be watched after the abort is shut down at once."""
    exchange = Exchange()
    exchange.abort()
    exchange.watch(pair[0])

    assert is_shut(pair[1])
    assert str(exchange.abort_error()) == "aborted"


@pytest.mark.parametrize("leave", [Exchange.forget, Exchange.end])
def test_forgotten_socket_is_left_alone(pair, leave):
    """A socket that was given back isn't touched by a late abort."""
    exchange = Exchange()
    exchange.watch(pair[0])
    leave(exchange)
    exchange.abort()
    exchange.set_timeout(1.0)

    assert not is_shut(pair[1])
    assert pair[0].gettimeout() is None


def test_exchange_that_is_over_is_not_aborted():
    """An abort after the end changes nothing, and the signal keeps nothing."""
    signal = AbortSignal()
    exchange = Exchange(signal)
    exchange.end()
    assert not signal._callbacks
    exchange.abort()

    assert not exchange.aborted


def test_dial_after_the_abort():
    """With the signal set nothing is dialled."""
    exchange = Exchange()
    exchange.abort()
    called = []
    with pytest.raises(AbortedError):
        exchange.dial(lambda: called.append("connect"), lambda: called.append("hang up"))

    assert not called


def test_dial_hands_on_what_connect_raised():
    """What goes wrong while connecting is raised to the caller."""

    def connect():
        raise ConnectionRefusedError("no")

    with pytest.raises(ConnectionRefusedError):
        Exchange().dial(connect, lambda: None)


def test_late_connection_is_hung_up():
    """A connect that comes back after the abort is hung up by the thread that made it."""
    exchange = Exchange()
    gate, hung_up = threading.Event(), threading.Event()

    def connect():
        exchange.abort()
        gate.wait()

    with pytest.raises(AbortedError):
        exchange.dial(connect, hung_up.set)
    assert not hung_up.is_set()
    gate.set()

    assert hung_up.wait(5.0)


def test_wrapped_socket(pair):
    """What wraps a socket, as TLS in TLS does, is shut down by its socket; a closed one does no harm."""
    shut_down(types.SimpleNamespace(socket=pair[0]))
    assert is_shut(pair[1])

    pair[0].close()
    shut_down(pair[0])


def test_resolve():
    """Addresses are given as the system's resolver gives them."""
    [(family, kind, _, _, address), *_] = resolve("127.0.0.1", 80)

    assert (family, kind, address) == (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 80))


@pytest.mark.parametrize(
    "url, origin",
    [
        ("https://user:word@a.test:8443/p?key=k#f", "https://a.test:8443"),
        ("http://a.test", "http://a.test"),
        ("http://a.test:port", "a malformed URL"),
    ],
)
def test_origin(url, origin):
    """Texts name scheme, host and port, never where keys may be."""
    assert origin_of(url) == origin
