"""HTTP: requests, kept connections, time limits, aborts at every blocking point, and the errors."""

import contextlib
import gzip
import json
import os
import pathlib
import re
import socket
import ssl
import subprocess
import sys
import threading
import time

import pytest

from tests.support.http_server import Answer, ScriptedServer, json_answer
from yiemagent.abort import AbortSignal
from yiemagent.errors import AbortedError, ConfigurationError, HttpError, HttpTimeout
from yiemagent.net import transport
from yiemagent.net.exchange import Exchange
from yiemagent.net.http import HttpClient, get_json

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOON_S = 1.0  # 0.1 s is the promise; the rest is for a busy machine


@pytest.fixture
def client():
    client = HttpClient(environ={})
    yield client
    client.close()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A certificate for localhost that nobody knows, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
         "30", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


def connection_thread_is_gone():
    threads = [t for t in threading.enumerate() if t.name == "yiem-net-connect"]
    for thread in threads:
        thread.join(5.0)
    return not any(thread.is_alive() for thread in threads)


class Abort:
    """Sets a signal from a thread once `ready` returns; measures how long the caller then still took."""

    def __init__(self, ready):
        self.signal = AbortSignal()
        self._thread = threading.Thread(target=self._run, args=(ready,))

    def _run(self, ready):
        ready()
        self.signal.abort("enough")

    def __enter__(self):
        self._thread.start()
        return self.signal

    def __exit__(self, kind, error, trace):
        took_s = time.monotonic() - (self.signal.aborted_at or 0.0)
        self._thread.join()
        assert kind is AbortedError and str(error) == "aborted: enough"
        assert took_s < SOON_S
        assert not self.signal._callbacks
        return True


# --- requests and answers ----------------------------------------------------------------------------------------


def test_request_and_answer(client):
    """What is asked arrives, and status, headers and body come back."""
    with ScriptedServer(Answer(b"hello", status=201, headers=[("X-A", "b")])) as server:
        with client.request(
            "post", f"{server.url}/p?a=1", params={"b": "ü"}, headers={"X-Key": "k"}, json={"c": 2}
        ) as response:
            assert (response.status, response.headers["x-a"]) == (201, "b")
            assert response.read() == b"hello"
            assert response.read() == b""
        [request] = server.requests

    assert request.method == "POST"
    assert request.target == "/p?a=1&b=%C3%BC"
    assert request.headers["x-key"] == "k"
    assert request.headers["content-type"] == "application/json"
    assert request.json == {"c": 2}


@pytest.mark.parametrize("body", [b"raw \xff", "tëxt"])
def test_plain_body(client, body):
    """A body of bytes or text goes out as it is."""
    with ScriptedServer(Answer()) as server:
        client.request("PUT", server.url, body=body).close()

    assert server.requests[0].body == (body.encode() if isinstance(body, str) else body)


@pytest.mark.parametrize(
    "options",
    [{}, {"chunked": True, "piece": 3}, {"chunked": True, "then": "keep"}, {"length": False}, {"piece": 1}],
)  # fmt: skip
def test_framing(client, options):
    """A body comes whole however it is framed."""
    with (
        ScriptedServer(Answer(b"0123456789", **options)) as server,
        client.request("GET", server.url) as response,
    ):
        assert b"".join(response.iter_bytes()) == b"0123456789"


@pytest.mark.parametrize("chunked", [True, False])
def test_bytes_come_as_they_are_sent(client, chunked):
    """A piece is given when it is sent, whatever comes later."""
    gate = threading.Event()
    answer = Answer([b"first", gate, b"second"], chunked=chunked)
    with ScriptedServer(answer) as server, client.request("GET", server.url) as response:
        pieces = response.iter_bytes()

        assert next(pieces) == b"first"

        gate.set()

        assert b"".join(pieces) == b"second"


def test_compressed_body(client):
    """A compressed body is asked for and decompressed, but for streams."""
    body = gzip.compress(b"x" * 100_000)
    with ScriptedServer(Answer(body, headers=[("Content-Encoding", "gzip")])) as server:
        with client.request("GET", server.url) as response:
            assert response.read() == b"x" * 100_000
        client.request("GET", server.url, stream=True).close()

        assert [r.headers["accept-encoding"] for r in server.requests] == [
            "gzip, deflate",
            "identity",
        ]


def test_damaged_compression(client):
    """A body that can't be decompressed is an error, and asking again is no use."""
    answer = Answer(b"no gzip at all", headers=[("Content-Encoding", "gzip")])
    with ScriptedServer(answer) as server, client.request("GET", server.url) as response:
        with pytest.raises(HttpError, match="broke") as caught:
            response.read()

        assert not caught.value.retryable


def test_size_limit(client):
    """A larger body than allowed is an error."""
    with ScriptedServer(Answer(b"x" * 101)) as server:
        with (
            client.request("GET", server.url) as response,
            pytest.raises(HttpError, match="larger than 100 bytes"),
        ):
            response.read(100)
        with client.request("GET", server.url) as response:
            assert len(response.read(101)) == 101


@pytest.mark.parametrize(
    "url, headers, text",
    [
        ("ftp://a.test/x", {}, "only http and https"),
        ("nothing", {}, "can't send a request"),
        ("http://a.test:port/", {}, "can't send a request"),
        ("http://[::1", {}, "a malformed URL"),
        ("http://a.test", {"X-A": "secret\nc: d"}, "header 'X-A'"),
        ("http://a.test", {"X-A": "secret\u2028"}, "header 'X-A'"),
        ("http://a.test", {"X-A": " secret"}, "header 'X-A'"),
        ("http://a.test", {"X A": "secret"}, "header 'X A'"),
        ("http://a.test:port/?key=secret", {}, "can't send a request"),
        ("http://./?key=secret", {}, "can't send a request"),
    ],
)
def test_malformed_request(client, url, headers, text):
    """A URL or header that is none is the caller's mistake, told without the values, which may be keys."""
    with pytest.raises(ConfigurationError, match=text) as caught:
        client.request("GET", url, headers=headers)

    assert "secret" not in str(caught.value)


def test_header_values(client):
    """Empty values, spaces inside and the letters of Latin-1 can be sent."""
    with ScriptedServer(Answer()) as server:
        client.request("GET", server.url, headers={"X-A": "", "X-B": "a b\tc"}).close()

        assert server.requests[0].headers["x-a"] == ""
        assert server.requests[0].headers["x-b"] == "a b\tc"


# --- connections -------------------------------------------------------------------------------------------------


def test_connection_is_kept(client):
    """An answer that was read to its end leaves its connection to the next request."""
    with ScriptedServer(
        Answer(b"a", then="keep"), Answer(b"b", chunked=True, then="keep")
    ) as server:
        for _ in range(4):
            client.request("GET", server.url).read()

        assert {request.connection for request in server.requests} == {1}
        client.close()


def test_close_ends_kept_connections_at_once(client):
    """Whoever still refers to their pool; one that is under way ends with its answer, and the next is a new one."""
    with ScriptedServer(Answer(b"text", then="keep")) as server:
        under_way = client.request("GET", server.url)
        client.request("GET", server.url).read()
        client.close()
        under_way.read()

        server.wait_until_idle()
        assert client.request("GET", server.url).read() == b"text"
        assert server.connections == 3
        client.close()


def test_pool_that_is_closed_meanwhile():
    """A request that has found its pool when another thread closes it gets a connection of its own."""

    class Closing(transport.Adapter):
        def get_connection_with_tls_context(self, *args, **options):
            pool = super().get_connection_with_tls_context(*args, **options)
            self.close()
            return pool

    exchange = Exchange()
    with ScriptedServer(Answer(b"text", then="keep")) as server:
        prepared = transport.prepare("GET", server.url, {}, None, None)
        response = Closing(dict).exchange(prepared, exchange, None)

        assert response.raw.read() == b"text"
        server.wait_until_idle()
    exchange.end()


@pytest.mark.parametrize("read", [False, True])
def test_unread_answer_closes_its_connection(client, read):
    """A connection whose answer wasn't read to its end is closed, not kept."""
    with ScriptedServer(Answer(b"part", chunked=True, then="hang")) as server:
        for _ in range(2):
            response = client.request("GET", server.url)
            if read:
                assert next(response.iter_bytes()) == b"part"
            response.close()
        server.wait_for(connections=2)
        client.close()
        server.wait_until_idle()


def test_finish_keeps_the_connection(client):
    """What remains of a body that is nearly at its end is read, so that the connection is kept."""
    with ScriptedServer(Answer(b"done", chunked=True, then="keep")) as server:
        for _ in range(3):
            response = client.request("GET", server.url)
            assert next(response.iter_bytes()) == b"done"
            response.finish(5.0)
            response.finish()

        assert {request.connection for request in server.requests} == {1}
        client.close()


@pytest.mark.parametrize("steps", [[b"done"], [b"done", b"more", b"x" * 10]])
def test_finish_does_not_wait(client, steps):
    """Where the end doesn't come at once, or more comes, the connection is closed."""
    with ScriptedServer(Answer(steps, chunked=True, then="hang")) as server:
        response = client.request("GET", server.url)
        next(response.iter_bytes())
        began = time.monotonic()
        response.finish()

        assert time.monotonic() - began < SOON_S
        server.wait_until_idle()


def test_stale_connection_is_replaced(client):
    """A kept connection that the server closes on the request is replaced once, for a POST as well."""
    answers = [Answer(b"a", then="keep"), Answer(status=None), Answer(b"b")]
    with ScriptedServer(*answers) as server:
        client.request("GET", server.url).read()
        response = client.request("POST", server.url, json=1)

        assert response.read() == b"b"
        assert [request.connection for request in server.requests] == [1, 1, 2]


def test_stale_connection_is_replaced_once(client):
    """A fresh connection that breaks before the answer is an error, not one more try."""
    answers = [Answer(b"a", then="keep"), Answer(status=None), Answer(status=None), Answer(b"b")]
    with ScriptedServer(*answers) as server:
        client.request("GET", server.url).read()
        with pytest.raises(HttpError, match="no connection") as caught:
            client.request("POST", server.url, json=1)

        assert caught.value.retryable
        assert len(server.requests) == 3


def test_stale_connection_is_not_replaced_where_that_is_forbidden(client):
    """What must never arrive twice is not sent again, and the error says that it may have arrived."""
    answers = [Answer(b"a", then="keep"), Answer(status=None), Answer(b"b")]
    with ScriptedServer(*answers) as server:
        client.request("GET", server.url).read()
        with pytest.raises(HttpError) as caught:
            client.request("POST", server.url, json=1, resend=False)

        assert caught.value.reached
        assert len(server.requests) == 2


def test_fresh_connection_is_not_replaced(client):
    """A first connection that the server closes without an answer is an error."""
    with ScriptedServer(Answer(status=None, then="reset")) as server:
        with pytest.raises(HttpError):
            client.request("GET", server.url)

        assert len(server.requests) == 1


def test_answer_that_broke_is_not_asked_again(client):
    """Where the answer had begun, a kept connection that breaks is an error."""
    answers = [Answer(b"a", then="keep"), Answer(b"HTTP/1.1 200 OK\r\nX-", status=None)]
    with ScriptedServer(*answers, Answer(b"b")) as server:
        client.request("GET", server.url).read()
        with contextlib.suppress(HttpError):
            client.request("GET", server.url).read()

        assert len(server.requests) == 2


def test_many_threads(client):
    """Threads that share a client each get their own answer."""
    with ScriptedServer(lambda request: Answer(request.body, then="keep")) as server:
        wrong = []

        def work(number):
            for turn in range(10):
                body = f"{number}-{turn}".encode()
                got = client.request("POST", server.url, body=body).read()
                wrong.extend([] if got == body else [(body, got)])

        threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert not wrong
        assert server.connections <= 12
        client.close()


def test_fork(client):
    """A child process opens connections of its own."""
    with ScriptedServer(Answer(b"a", then="keep")) as server:
        client.request("GET", server.url).read()
        child = os.fork()
        if child == 0:
            ok = client.request("GET", server.url).read() == b"a"
            os._exit(0 if ok else 1)
        _, status = os.waitpid(child, 0)
        client.request("GET", server.url).read()

        assert os.waitstatus_to_exitcode(status) == 0
        assert [request.connection for request in server.requests] == [1, 2, 1]
        client.close()


# --- redirects, proxies, TLS --------------------------------------------------------------------------------------


def test_redirect_is_followed(client):
    """A GET without a key follows redirects, relative ones included."""
    with ScriptedServer(
        Answer(status=302, headers=[("Location", "/b?c=1")]), Answer(b"there")
    ) as server:
        assert client.request("GET", f"{server.url}/a", params={"x": 1}).read() == b"there"
        assert [request.target for request in server.requests] == ["/a?x=1", "/b?c=1"]


@pytest.mark.parametrize(
    "method, headers",
    [
        ("GET", {"Authorization": "Bearer k"}),
        ("GET", {"X-Api-Key": "k"}),
        ("GET", {"Cookie": "k"}),
        ("POST", {}),
    ],
)
def test_redirect_is_not_followed(client, method, headers):
    """With a key, or for a POST, the redirect itself is the answer."""
    with ScriptedServer(Answer(status=307, headers=[("Location", "/b")])) as server:
        with client.request(method, server.url, headers=headers) as response:
            assert response.status == 307
        assert len(server.requests) == 1


def test_redirect_out_of_tls(certificate):
    """A redirect from https to http isn't followed."""
    client = HttpClient(environ={}, ca_bundle=certificate[0])
    away = Answer(status=302, headers=[("Location", "http://localhost/")])
    with (
        ScriptedServer(away, tls=certificate) as server,
        client.request("GET", server.url) as response,
    ):
        assert response.status == 302


def test_redirect_circle(client):
    """Redirects end after five."""
    with ScriptedServer(Answer(status=301, headers=[("Location", "/")])) as server:
        with pytest.raises(HttpError, match="more than 5 times"):
            client.request("GET", server.url)

        assert len(server.requests) == 6


def test_proxy():
    """Through a proxy the request names the whole URL, and this machine is reached directly."""
    with ScriptedServer(Answer(b"by proxy")) as proxy, ScriptedServer(Answer(b"direct")) as server:
        client = HttpClient(environ={"ALL_PROXY": proxy.url.replace("//", "//user:word@")})

        assert client.request("GET", "http://api.test/x").read() == b"by proxy"
        assert client.request("GET", server.url).read() == b"direct"
        assert proxy.requests[0].target == "http://api.test/x"
        assert proxy.requests[0].headers["proxy-authorization"] == "Basic dXNlcjp3b3Jk"


def test_proxy_over_tls(certificate):
    """A proxy may itself be reached over TLS."""
    with ScriptedServer(Answer(b"by proxy"), tls=certificate) as proxy:
        client = HttpClient(environ={"ALL_PROXY": proxy.url, "SSL_CERT_FILE": certificate[0]})

        assert client.request("GET", "http://api.test/x").read() == b"by proxy"
        assert proxy.requests[0].target == "http://api.test/x"


def test_tls_proxy_refuses():
    """An https request asks its proxy for a tunnel; a refusal is an error that names neither path nor key."""
    with ScriptedServer(Answer(status=403)) as proxy:
        client = HttpClient(environ={"HTTPS_PROXY": proxy.url})
        with pytest.raises(HttpError, match="Tunnel connection failed: 403") as caught:
            client.request("GET", "https://api.test/secret-path?key=secret")

        assert proxy.requests[0].method == "CONNECT"
        assert "secret" not in str(caught.value)


def test_tls(certificate):
    """A server whose certificate is in the given bundle is talked to, over kept connections as well."""
    client = HttpClient(environ={"SSL_CERT_FILE": certificate[0]})
    with ScriptedServer(Answer(b"safe", then="keep"), tls=certificate) as server:
        assert client.request("GET", server.url).read() == b"safe"
        assert client.request("GET", server.url).read() == b"safe"
        assert server.connections == 1
        client.close()


def test_untrusted_certificate(client, certificate):
    """A certificate that nobody vouches for is refused, with the way to trust it, and isn't tried again."""
    with ScriptedServer(Answer(b"safe"), tls=certificate) as server:
        with pytest.raises(
            HttpError, match=r"certificate of .* is not trusted.*SSL_CERT_FILE"
        ) as caught:
            client.request("GET", server.url)

        assert not caught.value.retryable


def test_ca_folder(certificate, tmp_path):
    """The trusted certificates may be a folder of them."""
    words = ["openssl", "x509", "-hash", "-noout", "-in", certificate[0]]
    name = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    (tmp_path / f"{name}.0").write_bytes(pathlib.Path(certificate[0]).read_bytes())
    client = HttpClient(environ={}, ca_bundle=str(tmp_path))
    with ScriptedServer(Answer(b"safe"), tls=certificate) as server:
        assert client.request("GET", server.url).read() == b"safe"


def test_netrc_is_not_read(client, tmp_path):
    """A .netrc adds no key, and the environment's proxies of later don't count."""
    code = """
import os, sys
from yiemagent.net.http import HttpClient
client = HttpClient()
client.request("GET", sys.argv[1]).read()
os.environ["ALL_PROXY"] = "http://127.0.0.1:1"
client.request("GET", sys.argv[1], headers={"Authorization": "Bearer mine"}).read()
"""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login a password b\n")
    (tmp_path / ".netrc").chmod(0o600)
    with ScriptedServer(Answer(b"x")) as server:
        environ = {
            "HOME": str(tmp_path),
            "PYTHONPATH": str(ROOT),
            "NETRC": str(tmp_path / ".netrc"),
        }
        subprocess.run([sys.executable, "-c", code, server.url], env=environ, check=True)

        assert [r.headers.get("authorization") for r in server.requests] == [None, "Bearer mine"]


def test_libraries_load_at_first_use():
    """Importing the room loads neither requests nor urllib3."""
    code = "import sys, yiemagent.net.http; assert not {'requests', 'urllib3', 'ssl'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT)}, check=True)


# --- time limits and broken connections ---------------------------------------------------------------------------


def test_nobody_listens(client):
    """A refused connection is an error that names the server and may be tried again."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(
        HttpError, match=f"no connection to http://127.0.0.1:{port}: Connection refused"
    ) as caught:
        client.request("GET", f"http://127.0.0.1:{port}/v1?key=secret")

    assert caught.value.retryable and caught.value.status is None
    assert not caught.value.reached


def test_unknown_name():
    """A name that can't be resolved is an error in the resolver's words."""

    def resolver(host, port):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(
        HttpError, match=r"no connection to http://api.test: Name or service not known"
    ):
        HttpClient(environ={}, resolver=resolver).request("GET", "http://api.test")


def test_next_address():
    """Where one address doesn't answer, the next is tried."""

    def resolver(host, port):
        dead = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1))
        return [dead, (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))]

    with ScriptedServer(Answer(b"here")) as server:
        client = HttpClient(environ={}, resolver=resolver)

        assert client.request("GET", f"http://api.test:{server.port}").read() == b"here"


def test_no_address():
    """A name without addresses is an error."""
    with pytest.raises(HttpError, match=r"no address of 'api.test'"):
        HttpClient(environ={}, resolver=lambda host, port: []).request("GET", "http://api.test")


def test_connect_time_limit():
    """Resolving and connecting end at their limit, whatever still hangs."""
    gate = threading.Event()
    client = HttpClient(environ={}, resolver=lambda host, port: gate.wait() and [])
    with pytest.raises(
        HttpTimeout, match=r"no connection to http://api.test within 0.05 s"
    ) as caught:
        client.request("GET", "http://api.test", connect_timeout_s=0.05)
    gate.set()

    assert caught.value.retryable
    assert connection_thread_is_gone()


def test_handshake_time_limit(client):
    """The limit for connecting holds for the TLS handshake too."""
    with ScriptedServer(greet=False) as server:
        with pytest.raises(
            HttpTimeout, match=r"no connection to https://127.0.0.1:\d+ within 0.1 s"
        ):
            client.request("GET", f"https://127.0.0.1:{server.port}", connect_timeout_s=0.1)

        assert connection_thread_is_gone()


def test_no_time_limit(client):
    """Without limits a request simply waits."""
    with ScriptedServer(Answer([0.1, b"late"])) as server:
        response = client.request("GET", server.url, connect_timeout_s=None, idle_timeout_s=None)

        assert b"".join(response.iter_bytes(only_noted_progress=True)) == b"late"


def test_headers_time_limit(client):
    """A server that doesn't answer ends at the idle limit."""
    with (
        ScriptedServer(Answer(status=None, then="hang")) as server,
        pytest.raises(HttpTimeout, match=r"sent nothing new for 0.1 s") as caught,
    ):
        client.request("GET", server.url, idle_timeout_s=0.1)

    assert caught.value.retryable


def test_body_time_limit(client):
    """A body that stops coming ends at the idle limit, one that comes slowly doesn't."""
    with ScriptedServer(Answer([b"a", 0.15, b"b", 0.15, b"c", 0.15, b"d"], then="hang")) as server:
        got = []
        with (
            client.request("GET", server.url, idle_timeout_s=0.4) as response,
            pytest.raises(HttpTimeout),
        ):
            got.extend(response.iter_bytes())

        assert b"".join(got) == b"abcd"


def test_time_limit_between_noted_progress(client):
    """Where only noted progress counts, bytes that say nothing don't lengthen the idle limit."""
    steps = [step for _ in range(100) for step in (b":", 0.05)]
    with ScriptedServer(Answer(steps)) as server:
        began = time.monotonic()
        with (
            client.request("GET", server.url, idle_timeout_s=0.3) as response,
            pytest.raises(HttpTimeout),
        ):
            for _ in response.iter_bytes(only_noted_progress=True):
                pass
        took_s = time.monotonic() - began

        assert 0.3 <= took_s < 0.3 + SOON_S


def test_noted_progress(client):
    """Each noted progress begins the idle limit anew."""
    steps = [step for _ in range(12) for step in (b":", 0.05)]
    with (
        ScriptedServer(Answer(steps)) as server,
        client.request("GET", server.url, idle_timeout_s=0.4) as response,
    ):
        size = 0
        for data in response.iter_bytes(only_noted_progress=True):
            size += len(data)
            if size % 3 == 0:
                response.note_progress()

        assert size == 12


def test_idle_limit_that_passed_between_reads(client):
    """The idle limit also holds where the reader came back late."""
    with (
        ScriptedServer(Answer([b"a", 0.05, b"b", 0.1, b"c"], then="hang")) as server,
        client.request("GET", server.url, idle_timeout_s=0.1) as response,
        pytest.raises(HttpTimeout),
    ):
        for _ in response.iter_bytes(only_noted_progress=True):
            threading.Event().wait(0.06)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(b"half", headers=[("Content-Length", "8")], length=False),
        Answer(b"half", chunked=True, then="reset"),
        Answer(b"zz\r\n", headers=[("Transfer-Encoding", "chunked")], length=False),
        Answer([b"half", 0.05], then="reset"),
    ],
)
def test_broken_body(client, answer):
    """A body that ends too early is an error that may be tried again."""
    with ScriptedServer(answer) as server, client.request("GET", server.url) as response:
        with pytest.raises(HttpError, match="broke") as caught:
            response.read()

        assert caught.value.retryable


# --- aborts -------------------------------------------------------------------------------------------------------


def test_abort_before_the_request(client):
    """With a signal that is set, nothing is sent."""
    signal = AbortSignal()
    signal.abort("enough")
    with ScriptedServer(Answer()) as server:
        with pytest.raises(AbortedError, match="aborted: enough"):
            client.request("GET", server.url, signal=signal)

        assert not server.requests


def test_abort_while_resolving():
    """An abort doesn't wait for the resolver; what it still connects to is closed."""
    resolving, gate = threading.Event(), threading.Event()

    def resolver(host, port):
        resolving.set()
        gate.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))]

    with ScriptedServer(Answer()) as server:
        client = HttpClient(environ={}, resolver=resolver)
        with Abort(resolving.wait) as signal:
            client.request("GET", f"http://api.test:{server.port}", signal=signal)
        gate.set()

        assert connection_thread_is_gone()
        assert not server.requests


def test_abort_while_connecting():
    """An abort ends a connect that hangs, and the thread that connects ends soon."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        for _ in range(4):  # fill the queue of those who wait to be accepted
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        began = threading.Event()

        def resolver(host, port):
            began.set()
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address)]

        client = HttpClient(environ={}, resolver=resolver)
        with Abort(lambda: began.wait() and threading.Event().wait(0.1)) as signal:
            client.request("GET", "http://api.test", signal=signal, connect_timeout_s=None)

        assert connection_thread_is_gone()


def test_abort_while_shaking_hands(client):
    """An abort ends a TLS handshake that hangs."""
    with ScriptedServer(greet=False) as server:
        with Abort(lambda: server.wait_for(connections=1)) as signal:
            client.request(
                "GET", f"https://127.0.0.1:{server.port}", signal=signal, connect_timeout_s=None
            )

        assert connection_thread_is_gone()
        server.wait_until_idle()


def test_abort_while_sending(client):
    """An abort ends the sending of a body that nobody reads."""
    with ScriptedServer(greet=False) as server:
        body = b"x" * 50_000_000
        with Abort(lambda: server.wait_for(connections=1) or threading.Event().wait(0.1)) as signal:
            client.request("POST", server.url, body=body, signal=signal, idle_timeout_s=None)

        assert not server.requests


@pytest.mark.parametrize("secure", [False, True])
def test_abort_before_headers(certificate, secure):
    """An abort ends the wait for the headers, with and without TLS."""
    client = HttpClient(environ={}, ca_bundle=certificate[0])
    tls = certificate if secure else None
    with ScriptedServer(Answer(status=None, then="hang"), tls=tls) as server:
        with Abort(lambda: server.wait_for(requests=1)) as signal:
            client.request("GET", server.url, signal=signal)
        server.wait_until_idle()

        assert len(server.requests) == 1


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("options", [{"chunked": True}, {}, {"headers": [("Content-Length", "9")]}])
def test_abort_in_the_body(certificate, secure, options):
    """An abort ends the wait for more of the body, however it is framed, with and without TLS."""
    client = HttpClient(environ={}, ca_bundle=certificate[0])
    arrived = threading.Event()
    answer = Answer(b"first", then="hang", **{"length": False, **options})
    with ScriptedServer(answer, tls=certificate if secure else None) as server:
        with Abort(arrived.wait) as signal:
            response = client.request("GET", server.url, signal=signal)
            for data in response.iter_bytes():
                assert data == b"first"
                arrived.set()
        server.wait_until_idle()


def test_abort_on_a_kept_connection(client):
    """An abort before the headers reaches a kept connection too, and is no reason to ask again."""
    with ScriptedServer(Answer(b"a", then="keep"), Answer(status=None, then="hang")) as server:
        client.request("GET", server.url).read()
        with Abort(lambda: server.wait_for(requests=2)) as signal:
            client.request("GET", server.url, signal=signal)

        assert len(server.requests) == 2


def test_late_abort_hits_nobody(client):
    """A signal that is set after its answer was read leaves the connection, now another's, alone."""
    gate = threading.Event()
    with ScriptedServer(Answer(b"a", then="keep"), Answer([b"b", gate, b"c"])) as server:
        mine = AbortSignal()
        client.request("GET", server.url, signal=mine).read()
        response = client.request("GET", server.url)
        pieces = response.iter_bytes()
        assert next(pieces) == b"b"
        mine.abort()
        gate.set()

        assert b"".join(pieces) == b"c"
        assert {request.connection for request in server.requests} == {1}


def test_signal_forgets_requests(client):
    """A long-lived signal keeps nothing of requests that are over, however they ended."""
    signal = AbortSignal()
    with ScriptedServer(Answer(b"abc", then="keep")) as server:
        for turn in range(30):
            response = client.request("GET", server.url, signal=signal)
            if turn % 3 == 0:
                response.read()
            elif turn % 3 == 1:
                next(response.iter_bytes())
                response.close()
            else:
                response.close()
        client.close()
    with pytest.raises(HttpError):
        client.request("GET", server.url, signal=signal)

    assert not signal._callbacks


def test_interrupt_while_connecting():
    """Ctrl-C ends the wait for a connection and goes to the caller as it is."""
    code = """
import os, signal, sys, threading
from yiemagent.net.http import HttpClient
def resolver(host, port):
    while True:  # again where it came just before the wait began, and so was not seen
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(5)
try:
    HttpClient(environ={}, resolver=resolver).request("GET", "http://api.test")
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "interrupted\n"


def test_no_thread_to_be_had(client):
    """Where the system gives no thread to connect with, that is an error which says so."""
    before = threading.stack_size(2**46)
    try:
        with pytest.raises(HttpError, match="no thread to connect with"):
            client.request("GET", "http://127.0.0.1:1")
    finally:
        threading.stack_size(before)


# --- get_json -----------------------------------------------------------------------------------------------------


def test_get_json():
    """The value of a JSON answer is given, and the query is encoded."""
    with ScriptedServer(json_answer({"a": [1, "ü"]})) as server:
        value = get_json(f"{server.url}/x", params={"q": "New York", "n": 1}, headers={"X-A": "b"})

        assert value == {"a": [1, "ü"]}
        assert server.requests[0].target == "/x?q=New+York&n=1"
        assert server.requests[0].headers["accept"] == "application/json"
        assert server.requests[0].headers["x-a"] == "b"


@pytest.mark.parametrize(
    "answer, status, text",
    [
        (json_answer({"reason": "no such\n city"}, status=404), 404, 'answered 404: {"reason"'),
        (Answer(b"", status=302), 302, "answered 302"),
        (Answer(b"<html>"), None, "is no JSON"),
        (Answer(b"[" * 100_000), None, "is no JSON"),
        (Answer(b"\xff"), None, "is no JSON"),
        (Answer(b" " * 9_000_000 + b"1"), None, "larger than 8388608 bytes"),
    ],
)  # fmt: skip
def test_get_json_errors(answer, status, text):
    """A status that means failure, no JSON, or too much of it, is an error that says so."""
    with ScriptedServer(answer) as server:
        with pytest.raises(HttpError, match=re.escape(text)) as caught:
            get_json(server.url)

        assert caught.value.status == status


def test_get_json_time_limit():
    """The whole body must come within the time limit, however it drips."""
    steps = [step for _ in range(100) for step in (b" ", 0.05)]
    with (
        ScriptedServer(Answer(steps)) as server,
        pytest.raises(HttpTimeout, match=r"for 0.3 s"),
    ):
        get_json(server.url, timeout_s=0.3)


def test_get_json_without_time_limit():
    """None turns the limit off."""
    with ScriptedServer(json_answer(json.loads("[1]"))) as server:
        assert get_json(server.url, timeout_s=None) == [1]


def test_get_json_abort():
    """A tool's signal ends its request."""
    half = Answer(b"[", headers=[("Content-Length", "2")], length=False, then="hang")
    with ScriptedServer(half) as server:
        with Abort(lambda: server.wait_for(requests=1)) as signal:
            get_json(server.url, signal=signal)

        assert len(server.requests) == 1


def test_server_speaks_no_tls(client):
    """A plain server asked for TLS is an error of the connection."""
    with ScriptedServer(Answer(b"x")) as server, pytest.raises(HttpError, match="no connection"):
        client.request("GET", server.url.replace("http:", "https:"))


def test_tls_context_is_shared():
    """All clients with the same certificates share one TLS context."""
    from yiemagent.net.transport import tls_context

    assert tls_context(None) is tls_context(None)
    assert tls_context(None).verify_mode is ssl.CERT_REQUIRED
