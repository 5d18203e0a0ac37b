"""The NATS client against a small server that routes and misbehaves."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
import time
from queue import SimpleQueue

import pytest

from tests.support.certificate import CERTFILE
from tests.support.nats_server import MiniNats
from yiemagent.abort import AbortSignal
from yiemagent.errors import (
    AbortedError,
    ConfigurationError,
    McpTimeout,
    McpTransportError,
)
from yiemagent.mcp.nats_client import (
    NatsClient,
    NatsDisconnected,
    NoResponders,
    PayloadTooLarge,
)
from yiemagent.mcp.nats_dial import NatsDialer, NatsLogin, parse_address
from yiemagent.mcp.nats_link import NatsFrame, NatsLink
from yiemagent.mcp.nats_wire import publish_frame


@pytest.fixture
def server():
    """A server that works."""
    with MiniNats() as server:
        yield server


@pytest.fixture
def client(server):
    """A client of it."""
    with NatsClient(server.url) as client:
        yield client


@pytest.fixture
def echo(server):
    """Somebody who answers `echo` with what was sent, and `twice` twice."""
    with NatsClient(server.url) as other:
        other.subscribe("echo", lambda m: other.publish(m.reply, m.data, headers=m.headers))

        def twice(message):
            other.publish(message.reply, b"1")
            other.publish(message.reply, b"2")

        other.subscribe("twice", twice)
        other.flush()
        yield other


def silent(server):
    """Have somebody listen to `silent` who never answers; gives what is heard."""
    heard = SimpleQueue()
    other = NatsClient(server.url)
    other.subscribe("silent", heard.put)
    other.flush()
    return other, heard


def gone(server, client):
    """Stop the server, and wait until the client has noticed."""
    noticed = SimpleQueue()
    client.subscribe("silent", lambda _message: server.drop())
    with client.open("silent", b"", noticed.put):
        server.close_door()
        noticed.get(timeout=10)
    server.stop()


# -- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("echo")
def test_a_request_has_its_answer(client):
    """The answer comes with payload and headers, and a payload may hold anything."""
    answer = client.request("echo", b"a\r\nb\0" + b"x" * 300_000, 5, headers={"A": "1"})

    assert answer.data == b"a\r\nb\0" + b"x" * 300_000
    assert answer.headers == {"A": "1"}


@pytest.mark.usefixtures("echo")
def test_many_threads_ask_over_one_connection(client, server):
    """Answers find the thread that asked."""
    found = {}

    def ask(number):
        for step in range(20):
            data = f"{number}:{step}".encode()
            found[data] = client.request("echo", data, 10).data

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 160 and all(sent == came for sent, came in found.items())
    assert server.connects.qsize() == 2  # the one who echoes, and this client


@pytest.mark.usefixtures("echo")
def test_a_request_may_have_several_answers(client):
    """Each answer is handed on until the request is closed."""
    came = SimpleQueue()
    with client.open("twice", b"", came.put) as post:
        answers = [came.get(timeout=5).data, came.get(timeout=5).data]

        assert post.inbox.startswith("_INBOX.")
    assert answers == [b"1", b"2"]


@pytest.mark.usefixtures("echo")
def test_an_answer_that_comes_late_is_dropped(client):
    """After the first answer nobody waits for the second."""
    client.request("twice", b"", 5)
    client.request("echo", b"", 5)

    assert client.late == 1


def test_nobody_listening_is_known_at_once(client):
    """Without a listener the request fails in no time, and reached nobody."""
    client.flush()
    begun = time.monotonic()
    with pytest.raises(NoResponders, match="'nobody'") as failure:
        client.request("nobody", b"", 30)

    assert time.monotonic() - begun < 5
    assert not failure.value.outcome_unknown


def test_no_answer_ends_at_the_time_limit(client, server):
    """Who is not answered gives up in time, and the next request is another one."""
    other, heard = silent(server)
    with other, pytest.raises(McpTimeout, match=r"0\.05 s"):
        client.request("silent", b"", 0.05)

    assert heard.get(timeout=5).subject == "silent"


def test_an_abort_ends_the_wait(client, server):
    """A set signal wakes the request within 0.1 s."""
    other, heard = silent(server)
    signal, ended = AbortSignal(), SimpleQueue()

    def ask():
        try:
            client.request("silent", b"", 30, signal=signal)
        except AbortedError:
            ended.put(time.monotonic())

    thread = threading.Thread(target=ask)
    thread.start()
    with other:
        heard.get(timeout=5)
        begun = time.monotonic()
        signal.abort("enough")
        took = ended.get(timeout=5) - begun
        thread.join()

    assert took < 0.1


def test_a_signal_that_is_set_already_sends_nothing_to_wait_for(client):
    """A request of an aborted run raises at once."""
    signal = AbortSignal()
    signal.abort()

    with pytest.raises(AbortedError):
        client.request("a", b"", 30, signal=signal)


def test_what_is_too_large_is_not_sent():
    """The server's limit is known, headers count, and the connection stays."""
    with MiniNats(max_payload=100) as server, NatsClient(server.url) as client:
        with pytest.raises(PayloadTooLarge, match=r"has 101 bytes.*carries 100"):
            client.request("a", b"x" * 101, 5)  # before the first connection
        with pytest.raises(PayloadTooLarge):
            client.publish("a", b"x" * 101)
        with pytest.raises(PayloadTooLarge):
            client.publish("a", b"x" * 90, headers={"A": "1"})
        client.publish("a", b"x" * 100)
        client.flush()

        assert client.max_payload == 100
        assert server.connects.qsize() == 1


# -- listening --------------------------------------------------------------------------------------------------------


def test_of_a_queue_one_gets_each_message(server, client):
    """Those with one queue name share the messages; who listens without gets all."""
    got, all_of_them = [SimpleQueue(), SimpleQueue()], SimpleQueue()
    with NatsClient(server.url) as one, NatsClient(server.url) as two:
        for worker, heard in zip((one, two), got, strict=True):
            worker.subscribe("work", heard.put, queue="q")
        one.subscribe(">", all_of_them.put)
        one.flush()
        two.flush()
        for number in range(10):
            client.publish("work", b"%d" % number)
        client.flush()
        one.flush()
        two.flush()

        assert got[0].qsize() == got[1].qsize() == 5
        assert all_of_them.qsize() >= 10


def test_who_closes_a_subscription_hears_no_more(server, client):
    """After closing, nobody listens."""
    subscription = client.subscribe("a", lambda _message: None)
    client.flush()
    subscription.close()
    subscription.close()

    with pytest.raises(NoResponders):
        client.request("a", b"", 5)


@pytest.mark.usefixtures("echo")
def test_a_receiver_that_raises_harms_nobody(client):
    """What a receiver raises is logged, and the connection goes on."""
    came = SimpleQueue()

    def receive(message):
        came.put(message)
        raise RuntimeError("mine")

    client.subscribe("a", receive)
    client.publish("a", b"")
    with client.open("echo", b"", receive):
        came.get(timeout=5)
        came.get(timeout=5)

        assert client.request("echo", b"on", 5).data == b"on"


# -- connections that break -------------------------------------------------------------------------------------------


def test_a_request_that_was_sent_ends_with_the_connection(client, server):
    """Nobody knows whether it had its effect, and that is said, at once."""
    other, heard = silent(server)
    came = SimpleQueue()
    with other, client.open("silent", b"", came.put):
        heard.get(timeout=5)
        server.drop()
        error = came.get(timeout=5)

    assert isinstance(error, NatsDisconnected) and error.outcome_unknown


def test_a_broken_connection_comes_back_with_its_subscriptions(server, client, echo):
    """After a cut everybody connects again and listens as before."""
    client.flush()
    server.drop()
    lines = [server.lines.get(timeout=5)]
    while sum(line.startswith("SUB twice") for line in lines) < 2:
        lines.append(server.lines.get(timeout=5))
    echo.flush()

    assert client.request("echo", b"again", 10).data == b"again"


def test_a_request_waits_for_a_server_that_restarts():
    """What is asked while there is no server is sent when it is back."""
    with MiniNats() as first, NatsClient(first.url, reconnect_wait_s=30) as client:
        gone(first, client)
        came = SimpleQueue()
        with client.open("a", b"kept", came.put) as post:
            assert not post.is_sent
            with MiniNats(port=first.port):
                error = came.get(timeout=10)

    assert isinstance(error, NoResponders)  # so it arrived


def test_a_server_that_stays_away_fails_requests_after_a_while():
    """Requests wait for a broken connection as long as they were told to, and were not sent then."""
    with MiniNats() as server, NatsClient(server.url, reconnect_wait_s=0.05) as client:
        gone(server, client)
        with pytest.raises(NatsDisconnected, match="can't be reached") as failure:
            client.request("a", b"", 30)

    assert not failure.value.outcome_unknown


def test_no_server_at_all_is_told_at_once():
    """Where nothing listens the first request says so, naming the place."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        NatsClient(f"127.0.0.1:{port}") as client,
        pytest.raises(NatsDisconnected, match=f"127.0.0.1:{port} can't be reached"),
    ):
        client.request("a", b"", 30)


def test_who_listens_waits_for_the_first_server():
    """A subscription made before there is a server holds once there is one; requests don't wait for it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    heard = SimpleQueue()
    with NatsClient(f"127.0.0.1:{port}") as client:
        client.subscribe("a", heard.put)
        with pytest.raises(NatsDisconnected):
            client.request("a", b"", 30)
        with MiniNats(port=port) as server:
            while not server.lines.get(timeout=10).startswith("SUB a"):
                pass
            client.publish("a", b"now")

            assert heard.get(timeout=5).data == b"now"


def test_another_server_of_the_list_is_taken():
    """Where the first can't be reached, the second is."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with MiniNats() as server, NatsClient([f"127.0.0.1:{port}", server.url]) as client:
        client.flush()

        assert client.is_connected


def test_a_server_of_the_cluster_is_taken_when_the_first_is_gone():
    """Servers that INFO names are tried when those of the list are not there, with the same login."""
    with MiniNats(token="t") as second:
        places = [f"127.0.0.1:{second.port}", 5, "no place at all"]
        with MiniNats(token="t", connect_urls=places) as first:
            client = NatsClient(f"nats://t@127.0.0.1:{first.port}")
            client.flush()
        with client:
            with contextlib.suppress(NatsDisconnected):  # its end was not seen yet
                client.flush()
            client.flush()

        assert second.connects.get(timeout=5)["auth_token"] == "t"


def test_a_silent_server_is_left():
    """Two unanswered pings end a connection, and a new one is made."""
    with MiniNats() as server, NatsClient(server.url, ping_interval_s=0.05) as client:
        lost = SimpleQueue()
        client.subscribe("silent", lambda _message: server.silence())
        with client.open("silent", b"", lost.put):
            error = lost.get(timeout=10)

    assert "it does not answer" in str(error)


def test_a_server_that_asks_is_answered(server, client):
    """PING gets its PONG."""
    client.flush()
    server.say(b"PING\r\n")

    while server.lines.get(timeout=5) != "PONG":
        pass
    assert client.is_connected


def test_a_refusal_of_one_subject_ends_its_request_only(server, client):
    """A subject that we may not publish to fails what was sent there; the connection stays."""
    came = SimpleQueue()
    other, heard = silent(server)
    with other, client.open("silent", b"", came.put):
        heard.get(timeout=5)
        server.say(b"-ERR 'Permissions Violation for Publish to \"other\"'\r\n")
        server.say(b"-ERR 'Permissions Violation for Publish to \"silent\"'\r\n")
        error = came.get(timeout=5)
        client.flush()

        assert server.connects.qsize() == 2
    assert isinstance(error, McpTransportError) and "Permissions Violation" in str(error)
    assert not isinstance(error, NatsDisconnected)


def test_a_final_refusal_is_named(server, client):
    """Where the server ends the connection, its reason is told."""
    came = SimpleQueue()
    other, heard = silent(server)
    with other, client.open("silent", b"", came.put):
        heard.get(timeout=5)
        server.say(b"-ERR 'Slow Consumer'\r\n")
        server.drop()
        error = came.get(timeout=5)

    assert "Slow Consumer" in str(error)


def test_a_server_that_talks_nonsense_is_left(server, client):
    """What can't be understood ends the connection."""
    came = SimpleQueue()
    other, heard = silent(server)
    with other, client.open("silent", b"", came.put):
        heard.get(timeout=5)
        server.say(b"HELLO\r\n")
        error = came.get(timeout=5)

    assert "no NATS server" in str(error)


class Faulty:
    """A user of a link that raises where it must not."""

    is_listening = False

    def __init__(self):
        self.told = SimpleQueue()

    def greeting(self):
        return b"SUB a 1\r\n"

    def deliver(self, message):
        raise RuntimeError("a fault")

    def refused(self, reason):
        self.told.put(reason)

    def broke(self, text):
        self.told.put(text)

    def failed(self, frame, error):
        self.told.put(error)


def test_a_fault_in_the_link_ends_what_waits(server, caplog):
    """A fault on the link's thread is logged and ends the connection; nobody waits for ever."""
    user = Faulty()
    dialer = NatsDialer(NatsLogin(), tls=None, name="t", timeout_s=5)
    link = NatsLink(
        user, dialer, [parse_address(server.url)], reconnect_wait_s=1, ping_interval_s=30
    )
    link.send(NatsFrame(publish_frame("a", b"hi"), 2))
    told = user.told.get(timeout=10)
    link.close()

    assert "a fault of ours" in told
    assert "RuntimeError" in caplog.text


# -- letting in -------------------------------------------------------------------------------------------------------


def test_user_and_password_let_us_in():
    """They go to the server, from the arguments or from the address."""
    with MiniNats(user="u", password="p:/") as server:
        for address, login in (
            (server.url, {"user": "u", "password": "p:/"}),
            (f"nats://u:p%3A%2F@127.0.0.1:{server.port}", {}),
        ):
            with NatsClient(address, **login) as client, pytest.raises(NoResponders):
                client.request("nobody", b"", 5)


def test_who_is_not_let_in_is_told_and_nothing_secret_is_shown():
    """The server's reason is told, and the password is in no text."""
    with MiniNats(user="u", password="right") as server:
        client = NatsClient(server.url, user="u", password="wrong-secret")
        with client, pytest.raises(NatsDisconnected, match="Authorization Violation") as failure:
            client.request("a", b"", 5)

        assert "wrong-secret" not in f"{failure.value!r}{client._dialer._login!r}"


def test_a_connection_goes_on_in_tls():
    """With TLS everything works as without, and large messages too."""
    context = ssl.create_default_context(cafile=CERTFILE)
    with MiniNats(tls=True) as server:
        url = f"tls://localhost:{server.port}"
        with NatsClient(url, tls=context) as client, NatsClient(url, tls=context) as other:
            other.subscribe("echo", lambda m: other.publish(m.reply, m.data))
            other.flush()

            assert client.request("echo", b"x" * 900_000, 20).data == b"x" * 900_000
            assert server.connects.get(timeout=5)["tls_required"]


def test_a_certificate_that_nobody_vouches_for_is_refused():
    """TLS is checked against the system's CAs unless it is told otherwise."""
    with MiniNats(tls=True) as server:
        client = NatsClient(f"nats://localhost:{server.port}")
        with client, pytest.raises(NatsDisconnected, match="certificate"):
            client.request("a", b"", 10)


def test_tls_that_was_asked_for_is_not_done_without():
    """A server that offers none is refused, and no secret is sent to it."""
    with MiniNats() as server:
        client = NatsClient(f"tls://t@localhost:{server.port}")
        with client, pytest.raises(NatsDisconnected, match="does not offer TLS"):
            client.request("a", b"", 10)

        assert server.connects.empty()


@pytest.mark.parametrize(
    "greeting, words",
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no NATS server"),
        (b"PING\r\n", "does not begin as a NATS server"),
        (b"-ERR 'maximum connections exceeded'\r\n", "maximum connections"),
        (b"INFO {]\r\n", "can't be read"),
    ],
)
def test_what_is_no_nats_server_is_told(greeting, words):
    """A server that begins otherwise is no NATS server, or lets nobody in."""
    with (
        MiniNats(greeting=greeting) as server,
        NatsClient(server.url) as client,
        pytest.raises(NatsDisconnected, match=words),
    ):
        client.request("a", b"", 10)


def test_words_before_tls_are_not_believed():
    """What a server says in the clear behind its INFO must not pass for words in TLS."""
    greeting = b'INFO {"tls_required":true}\r\nPING\r\n'
    with (
        MiniNats(greeting=greeting) as server,
        NatsClient(server.url) as client,
        pytest.raises(NatsDisconnected, match="before TLS"),
    ):
        client.request("a", b"", 10)


def test_a_server_that_says_nothing_is_given_up():
    """Connecting has a time limit of its own."""
    with MiniNats(greeting=b"") as server:
        client = NatsClient(server.url, connect_timeout_s=0.1)
        with client, pytest.raises(NatsDisconnected, match="took too long"):
            client.request("a", b"", 10)


# -- the end ----------------------------------------------------------------------------------------------------------


def test_closing_ends_what_waits_and_does_not_hang(client, server):
    """Requests under way end, closing again does nothing, and nothing can be asked any more."""
    other, heard = silent(server)
    came = SimpleQueue()
    with other:
        client.open("silent", b"", came.put)
        heard.get(timeout=5)
        begun = time.monotonic()
        client.close()
        client.close()
        took = time.monotonic() - begun

    assert "was closed" in str(came.get(timeout=1)) and took < 1
    for ask in (
        lambda: client.request("a", b"", 5),
        lambda: client.publish("a", b""),
        lambda: client.subscribe("a", print),
    ):
        with pytest.raises(McpTransportError, match="was closed"):
            ask()


def test_closing_while_connecting_does_not_wait_for_it():
    """A connection that is being made is given up."""
    with MiniNats(greeting=b"") as server:
        client = NatsClient(server.url, connect_timeout_s=30)
        came = SimpleQueue()
        client.open("a", b"", came.put)
        begun = time.monotonic()
        client.close()

        assert time.monotonic() - begun < 2
        assert "was closed" in str(came.get(timeout=1))


def test_a_request_that_is_closed_before_it_was_sent_never_is():
    """What waits for a connection can be taken back."""
    with MiniNats() as first, NatsClient(first.url, reconnect_wait_s=30) as client:
        gone(first, client)
        client.open("never", b"", print).close()
        with MiniNats(port=first.port) as second:
            client.flush()
            lines = [second.lines.get() for _ in range(second.lines.qsize())]

    assert not any("never" in line for line in lines)


def test_a_server_that_does_not_read_holds_nobody_up():
    """Sending never blocks; the time limit holds for what can't be sent."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = NatsClient(f"127.0.0.1:{listener.getsockname()[1]}")
        connected = SimpleQueue()

        def accept():
            connection, _ = listener.accept()
            connection.sendall(b'INFO {"max_payload":60000000}\r\nPONG\r\n')
            connected.put(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        with client:
            begun = time.monotonic()
            with pytest.raises(McpTimeout):
                client.request("a", b"x" * 50_000_000, 0.3)
            took = time.monotonic() - begun
        thread.join()
        connected.get().close()

    assert took < 3


def test_a_forked_child_has_a_connection_of_its_own(client, server, echo):
    """The child neither uses nor harms its parent's connection."""
    client.request("echo", b"", 5)
    child = os.fork()
    if child == 0:
        answer = client.request("echo", b"child", 10).data
        os._exit(0 if answer == b"child" else 1)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert client.request("echo", b"parent", 5).data == b"parent"


# -- what can't be ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "servers",
    ["", "http://a", "nats://", "nats://a:x", "nats://u:secret@", "nats://a/b", [], "nats://[::1"],
)
def test_what_is_no_address_is_refused(servers):
    """An address that is none is told at once, without what may be secret in it."""
    with pytest.raises(ConfigurationError) as failure:
        NatsClient(servers)

    assert "secret" not in str(failure.value)


def test_a_user_needs_a_password():
    """One without the other is a mistake."""
    with pytest.raises(ConfigurationError, match="password"):
        NatsClient(user="u")


def test_a_subject_with_spaces_is_refused_before_anything_is_sent(client):
    """No subject can smuggle a command."""
    for ask in (
        lambda: client.request("a b", b""),
        lambda: client.publish("a", b"", reply="r\r\nPUB x 0"),
        lambda: client.subscribe("a", print, queue="q q"),
    ):
        with pytest.raises(ConfigurationError):
            ask()


def test_a_header_that_cant_be_one_is_refused(client):
    """No header can smuggle a line."""
    with pytest.raises(ConfigurationError):
        client.publish("a", b"", headers={"A": "x\ny"})
