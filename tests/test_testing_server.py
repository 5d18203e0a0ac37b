"""The scripted HTTP server: what it sends is the script, byte by byte, and nothing is left of it."""

from __future__ import annotations

import socket
import ssl
import threading
import time

import pytest

from tests.support.certificate import CERTFILE, KEYFILE
from yiemagent.errors import ConfigurationError
from yiemagent.testing import (
    HttpAnswer,
    HttpRequest,
    ScriptedServer,
    json_answer,
    sse,
    sse_answer,
)

GET = b"GET /a?b=c HTTP/1.1\r\nHost: x\r\nX-One: 1\r\n\r\n"


def connect(server):
    """A connection to a server, with a time limit, and TLS where it speaks that."""
    sock = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    if not server.url.startswith("https:"):
        return sock
    try:
        return ssl.create_default_context(cafile=CERTFILE).wrap_socket(
            sock, server_hostname="localhost"
        )
    except BaseException:
        sock.close()
        raise


def all_of(sock):
    """What a connection brings up to its end."""
    return b"".join(iter(lambda: sock.recv(65_536), b""))


def exchange(*answers, request=GET, **options):
    """Send a request to a server with a script; gives what came back and the server's record of it."""
    with ScriptedServer(*answers, **options) as server, connect(server) as sock:
        sock.sendall(request)
        return all_of(sock), server.requests


# -- answers --


def test_an_answer_is_what_the_script_says():
    """Status, headers, length and body leave as they are written, and the connection ends."""
    came, _ = exchange(HttpAnswer("hi", status=418, headers=[("X-A", "b")]))

    assert came == (
        b"HTTP/1.1 418 Scripted\r\nX-A: b\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"
    )


def test_a_request_is_kept_as_it_came():
    """Method, target, path, headers in lower case, body and connection are known afterwards."""
    body = b'POST /p?q=1 HTTP/1.1\r\nContent-Length: 9\r\nX-A: B\r\n\r\n{"a": 12}'
    _, [request] = exchange(HttpAnswer(), request=body)

    assert (request.method, request.target, request.path) == ("POST", "/p?q=1", "/p")
    assert (request.headers["x-a"], request.json, request.connection) == ("B", {"a": 12}, 1)


def test_a_chunked_request_is_read():
    """A body that comes in chunks is kept in one piece."""
    head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    _, [request] = exchange(HttpAnswer(), request=head + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n")

    assert request.body == b"abcde"


def test_answers_come_in_turn_and_the_last_again():
    """The script goes on over connections; its last answer is given as often as it is asked for."""
    with ScriptedServer(HttpAnswer("1"), HttpAnswer("2")) as server:
        came = []
        for _ in range(3):
            with connect(server) as sock:
                sock.sendall(GET)
                came.append(all_of(sock)[-1:])

    assert came == [b"1", b"2", b"2"]
    assert [request.connection for request in server.requests] == [1, 2, 3]


def test_a_function_gives_the_answer_to_its_request():
    """A script may look at what it is asked."""
    came, _ = exchange(lambda request: json_answer({"at": request.target}))

    assert came.endswith(b'{"at": "/a?b=c"}')


def test_a_function_that_raises_is_an_answer_that_says_so():
    """Nobody waits for an answer that no script gives."""

    def broken(request: HttpRequest) -> HttpAnswer:
        raise LookupError("no such page")

    came, _ = exchange(broken)

    assert b" 500 " in came and came.endswith(b"LookupError: no such page")


def test_a_server_without_a_script_says_so():
    """An empty script is an answer of status 500."""
    came, _ = exchange()

    assert b" 500 " in came and b"script of this server is empty" in came


def test_a_connection_may_be_kept():
    """With `then="keep"` one connection serves request after request."""
    with ScriptedServer(HttpAnswer("x", then="keep")) as server, connect(server) as sock:
        for _ in range(2):
            sock.sendall(GET)
            came = b""
            while not came.endswith(b"x"):
                came += sock.recv(1000)
        sock.sendall(GET)
        server.wait_for(requests=3)

    assert {request.connection for request in server.requests} == {1}


def test_noise_in_place_of_a_request_ends_the_connection():
    """What is no HTTP gets no answer and harms nobody."""
    came, requests = exchange(HttpAnswer("x"), request=b"hello\r\n\r\n")

    assert (came, requests) == (b"", [])


# -- the wire --


@pytest.mark.parametrize(("piece", "chunks"), [(None, [b"abcde"]), (2, [b"ab", b"cd", b"e"])])
def test_chunks_are_as_large_as_the_script_says(piece, chunks):
    """Each piece is a chunk of its own."""
    came, _ = exchange(HttpAnswer("abcde", chunked=True, piece=piece))
    _, _, body = came.partition(b"\r\n\r\n")

    assert body == b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"


def test_server_sent_events():
    """JSON values become events, named ones with their name, and the end mark where it is wanted."""
    assert sse({"a": 1}, ("ping", {}), done=False) == (
        b'data: {"a": 1}\n\nevent: ping\ndata: {}\n\n'
    )
    came, _ = exchange(sse_answer(sse(7)))

    assert b"Content-Type: text/event-stream\r\n" in came and b"Content-Length" not in came
    assert came.endswith(b"data: 7\n\ndata: [DONE]\n\n")


def test_steps_happen_in_order():
    """A function is called where it stands, and an event is waited for."""
    called, gate = [], threading.Event()
    answer = HttpAnswer(["a", lambda: called.append(1), gate, "b"])
    with ScriptedServer(answer) as server, connect(server) as sock:
        sock.sendall(GET)
        came = b""
        while not came.endswith(b"a"):
            came += sock.recv(1000)
        gate.set()
        came += all_of(sock)

    assert called == [1] and came.endswith(b"\r\n\r\nab")


def test_slow_bytes_take_their_time():
    """With a pause between pieces a body drips."""
    began = time.monotonic()
    came, _ = exchange(HttpAnswer("abcd", piece=1, pause_s=0.02))

    assert came.endswith(b"abcd")
    assert time.monotonic() - began >= 0.06


def test_a_step_may_be_a_wait_in_seconds():
    """Numbers among the steps are seconds."""
    began = time.monotonic()
    exchange(HttpAnswer(["a", 0.05, "b"]))

    assert time.monotonic() - began >= 0.05


# -- faults --


@pytest.mark.parametrize("chunked", [True, False])
def test_a_cut_body_ends_early(chunked):
    """The head promises what the body doesn't hold, and no last chunk comes."""
    came, _ = exchange(HttpAnswer(["abc", "def", "ghi"], cut=4, chunked=chunked))
    _, _, body = came.partition(b"\r\n\r\n")

    assert body == (b"3\r\nabc\r\n1\r\nd\r\n" if chunked else b"abcd")
    assert chunked or b"Content-Length: 9" in came


def test_a_cut_behind_the_end_cuts_nothing():
    """A body that is shorter than the cut goes out whole."""
    came, _ = exchange(HttpAnswer("abc", cut=4, chunked=True))

    assert came.endswith(b"3\r\nabc\r\n0\r\n\r\n")


def test_no_head_leaves_only_the_body():
    """Without a status the body's bytes are all that leaves, whatever they are."""
    assert exchange(HttpAnswer("SSH-2.0", status=None))[0] == b"SSH-2.0"


def test_a_reset_is_a_reset():
    """The client is told that the connection broke, not that it ended."""
    with pytest.raises(ConnectionResetError):
        exchange(HttpAnswer("x", then="reset"))


def test_a_server_that_hangs_ends_with_its_client():
    """A stalled connection stays open until the client hangs up, whatever that still sends."""
    with ScriptedServer(HttpAnswer(status=None, then="hang")) as server:
        with connect(server) as sock:
            sock.sendall(GET)
            server.wait_for(requests=1)
            sock.sendall(b"more")
            with pytest.raises(TimeoutError, match="1 connections are still open"):
                server.wait_until_idle(timeout_s=0.05)
        server.wait_until_idle()


def test_connections_are_greeted_as_the_script_says():
    """The first connection is reset, the second stalls, and from the third on they are served."""
    greetings = ["reset", "stall", "serve"]
    with ScriptedServer(HttpAnswer("x"), on_connect=greetings) as server:
        with pytest.raises(ConnectionResetError), connect(server) as sock:
            sock.recv(1)
        with connect(server) as sock:
            sock.sendall(GET)
            sock.settimeout(0.05)
            with pytest.raises(TimeoutError):
                sock.recv(1)
        for _ in range(2):
            with connect(server) as sock:
                sock.sendall(GET)
                assert all_of(sock).endswith(b"x")

    assert server.connections == 4
    assert len(server.requests) == 2


# -- TLS --


def test_it_speaks_tls_with_a_certificate():
    """With certificate and key the URL is https, and the answer comes over TLS."""
    came, _ = exchange(HttpAnswer("safe"), certfile=CERTFILE, keyfile=KEYFILE)

    assert came.endswith(b"safe")


def test_a_handshake_may_stall():
    """A server that stalls accepts the connection and says nothing, so the handshake hangs."""
    with ScriptedServer(certfile=CERTFILE, keyfile=KEYFILE, on_connect="stall") as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=0.05) as sock:
            context = ssl.create_default_context(cafile=CERTFILE)
            with pytest.raises(TimeoutError):
                context.wrap_socket(sock, server_hostname="localhost")
        server.wait_until_idle()

        assert server.connections == 1


def test_a_client_that_refuses_the_certificate_harms_nobody():
    """A failed handshake ends that connection alone."""
    with ScriptedServer(HttpAnswer("x"), certfile=CERTFILE, keyfile=KEYFILE) as server:
        sock = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        with sock, pytest.raises(ssl.SSLCertVerificationError):
            ssl.create_default_context().wrap_socket(sock, server_hostname="localhost")
        server.wait_until_idle()
        with connect(server) as sock:
            sock.sendall(GET)
            assert all_of(sock).endswith(b"x")


@pytest.mark.parametrize(
    "options", [{"certfile": CERTFILE}, {"keyfile": KEYFILE}, {"on_connect": "sing"}, {"on_connect": []}]
)  # fmt: skip
def test_a_server_that_cannot_work_is_refused(options):
    """Half a pair of files, or a greeting that nobody knows, raises at once."""
    with pytest.raises(ConfigurationError):
        ScriptedServer(**options)


def test_an_ending_that_nobody_knows_is_refused():
    """A typo in a script raises where it is written."""
    with pytest.raises(ValueError, match="then"):
        HttpAnswer(then="sleep")


# -- waiting and closing --


def test_waiting_for_requests_has_a_limit():
    """What doesn't come in time is an error that says how much did."""
    with ScriptedServer() as server, pytest.raises(TimeoutError, match="only 0 requests over 0"):
        server.wait_for(requests=1, timeout_s=0.01)


@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.parametrize(
    "make",
    [
        lambda: HttpAnswer(status=None, then="hang"),
        lambda: HttpAnswer(["x", threading.Event()]),
        lambda: HttpAnswer(["x", 60.0]),
        lambda: HttpAnswer("x" * 50_000_000),
        lambda: HttpAnswer("x", then="keep"),
    ],
    ids=["hangs", "waits for an event", "waits for a time", "sends", "reads"],
)
def test_closing_ends_whatever_goes_on(make, tls):
    """`close` returns at once, ends every thread and socket, and may be called again."""
    files = {"certfile": CERTFILE, "keyfile": KEYFILE} if tls else {}
    before = threading.active_count()
    server = ScriptedServer(make(), **files)
    with connect(server) as sock:
        sock.sendall(GET)
        server.wait_for(requests=1)
        began = time.monotonic()
        server.close()
        server.close()

        assert time.monotonic() - began < 5
        assert threading.active_count() == before


def test_closing_sets_what_a_script_waits_for():
    """Whoever shares an event with the script waits no longer than the server is open."""
    gate = threading.Event()
    with ScriptedServer(HttpAnswer(["x", gate])) as server, connect(server) as sock:
        sock.sendall(GET)
        came = b""
        while not came.endswith(b"x"):
            came += sock.recv(1000)
        server.close()

        assert gate.is_set()


def test_closing_ends_a_handshake():
    """A connection that says nothing, where TLS is spoken, ends with the server."""
    before = threading.active_count()
    with ScriptedServer(certfile=CERTFILE, keyfile=KEYFILE) as server:
        sock = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        server.wait_for(connections=1)
    with sock:
        assert sock.recv(1) == b""
    assert threading.active_count() == before


def test_many_connections_at_once():
    """Each of many threads gets its answer."""
    came = []

    def work(server):
        with connect(server) as sock:
            sock.sendall(GET)
            came.append(all_of(sock)[-1:])

    with ScriptedServer(HttpAnswer("x")) as server:
        threads = [threading.Thread(target=work, args=(server,)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert came == [b"x"] * 20
    assert repr(server) == f"ScriptedServer('http://127.0.0.1:{server.port}')"
