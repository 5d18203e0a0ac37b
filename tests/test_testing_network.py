"""`forbid_network`: nothing reaches another machine inside of it, and outside everything is as before."""

from __future__ import annotations

import contextlib
import socket
import threading
import urllib.error
import urllib.request

import pytest
import requests

from yiemagent import YiemAgent, ask
from yiemagent.providers import OpenAIChat
from yiemagent.testing import (
    HttpAnswer,
    NetworkForbidden,
    ScriptedServer,
    forbid_network,
    json_answer,
)

# Addresses for documentation (RFC 5737, RFC 3849): nobody has them.
FAR, FAR_6 = "192.0.2.1", "2001:db8::1"


def tcp(host, port=443, family=socket.AF_INET):
    """Try to connect, without waiting for an answer."""
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sock.connect((host, port))


def udp(send):
    """Hand a datagram socket to a function."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        send(sock)


@pytest.mark.parametrize("attempt", [
    lambda: tcp(FAR),
    lambda: tcp(FAR_6, family=socket.AF_INET6),
    lambda: tcp("127.0.0.1"),
    lambda: socket.create_connection((FAR, 443), timeout=1),
    lambda: socket.create_connection(("api.test", 443), timeout=1),
    lambda: socket.getaddrinfo("api.test", 443),
    lambda: socket.getaddrinfo(b"api.test", 443),
    lambda: socket.getaddrinfo("localhost", 443),
    lambda: socket.gethostbyname("api.test"),
    lambda: udp(lambda sock: sock.sendto(b"x", (FAR, 53))),
    lambda: udp(lambda sock: sock.sendmsg([b"x"], [], 0, (FAR, 53))),
    lambda: udp(lambda sock: sock.connect_ex((FAR, 53))),
    lambda: urllib.request.urlopen("http://api.test/", timeout=1),
    lambda: requests.get(f"http://{FAR}/", timeout=1),
])  # fmt: skip
def test_every_way_out_is_closed(attempt):
    """Connections, datagrams and the resolving of names raise, whichever library tries."""
    with forbid_network(), pytest.raises(NetworkForbidden, match="the network is forbidden here"):
        attempt()


@pytest.mark.parametrize("attempt", [
    lambda: tcp(FAR),
    lambda: socket.getaddrinfo("localhost.api.test", 443),
    lambda: socket.getaddrinfo("api.test", 443),
    lambda: tcp("::ffff:192.0.2.1", family=socket.AF_INET6),
])  # fmt: skip
def test_loopback_is_this_machine_alone(attempt):
    """With loopback allowed another machine is still out of reach."""
    with forbid_network(loopback=True), pytest.raises(NetworkForbidden):
        attempt()


def test_the_error_names_whom_and_what_to_do():
    """The text says who was to be reached and what a test has instead."""
    with forbid_network(), pytest.raises(NetworkForbidden) as caught:
        tcp(FAR, 8443)

    assert f"tried to reach '{FAR}', port 8443; use a ScriptedServer" in str(caught.value)


def test_loopback_may_be_allowed():
    """With `loopback=True` a local server answers, under its address and by name."""
    with ScriptedServer(HttpAnswer("x")) as server, forbid_network(loopback=True):
        for host in ("127.0.0.1", "localhost"):
            with urllib.request.urlopen(f"http://{host}:{server.port}/", timeout=10) as answer:
                assert answer.read() == b"x"
        with contextlib.suppress(OSError):  # nobody listens, or the machine has no IPv6
            tcp("::ffff:127.0.0.1", server.port, socket.AF_INET6)


def test_what_is_no_network_goes_on():
    """Listening, pairs of sockets, addresses that need no resolving, and datagrams to nobody pass."""
    with forbid_network():
        with socket.create_server(("127.0.0.1", 0)):
            pass
        one, other = socket.socketpair()
        with one, other:
            one.sendall(b"x")
            assert other.recv(1) == b"x"
        assert socket.getaddrinfo(FAR, 80)
        assert socket.getaddrinfo(None, 80)
        with socket.socket(socket.AF_UNIX) as sock, pytest.raises(FileNotFoundError):
            sock.connect("/nowhere/at/all")


def test_outside_all_is_as_before():
    """After the block, left by an exception or not, connections are made again."""
    with ScriptedServer(HttpAnswer("x")) as server:
        with pytest.raises(ZeroDivisionError), forbid_network():
            raise ZeroDivisionError
        with forbid_network():
            pass
        with urllib.request.urlopen(server.url, timeout=10) as answer:
            assert answer.read() == b"x"


def test_blocks_nest_and_the_strictest_counts():
    """An inner block can't open what an outer one closed, and ends alone."""
    with ScriptedServer(HttpAnswer("x")) as server, forbid_network(loopback=True):
        with forbid_network():
            with forbid_network(loopback=True), pytest.raises(NetworkForbidden):
                tcp("127.0.0.1", server.port)
            with pytest.raises(NetworkForbidden):
                tcp("127.0.0.1", server.port)
        with socket.create_connection(("127.0.0.1", server.port), timeout=10):
            pass


def test_it_counts_in_every_thread():
    """Threads that were started before the block are held to it."""
    raised = []
    go, done = threading.Event(), threading.Event()

    def work():
        go.wait(10)
        with contextlib.suppress(NetworkForbidden):
            tcp(FAR)
            raised.append("nothing")
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    with forbid_network():
        go.set()
        assert done.wait(10)
    thread.join()

    assert raised == []


@forbid_network()
def test_it_may_decorate_a_test():
    """A function may be held to it as a whole."""
    with pytest.raises(NetworkForbidden):
        tcp(FAR)


def test_an_agent_that_asks_a_provider_fails_at_once():
    """The answer says that the network is forbidden, and nothing is asked again."""
    provider = OpenAIChat("m", base_url="http://api.test/v1")
    with forbid_network(), YiemAgent(provider) as agent:
        answer = ask(agent, "hi", timeout_s=20)

    assert answer.stop_reason == "error"
    assert "tried to reach 'api.test'" in answer.error_message


def test_an_agent_may_ask_a_local_server():
    """With loopback allowed a provider answers from a scripted server."""
    body = {"choices": [{"message": {"content": "Hello."}, "finish_reason": "stop"}]}
    with ScriptedServer(json_answer(body)) as server, forbid_network(loopback=True):
        provider = OpenAIChat("m", base_url=f"{server.url}/v1")
        with YiemAgent(provider) as agent:
            assert ask(agent, "hi", timeout_s=20).text == "Hello."
        provider.close()
