"""The text protocol of NATS, read and written without a server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.errors import ConfigurationError, McpProtocolError
from yiemagent.mcp.nats_wire import (
    NatsInfo,
    NatsMessage,
    NatsPing,
    NatsPong,
    NatsReader,
    NatsRefusal,
    check_subject,
    connect_line,
    ping_line,
    pong_line,
    publish_frame,
    subscribe_line,
    unsubscribe_line,
)

STREAM = (
    b'INFO {"server_id":"N","max_payload":1048576,"headers":true}\r\n'
    b"+OK\r\n"
    b"PING\r\n"
    b"MSG a.b 7 5\r\nhe\r\no\r\n"
    b"MSG a.b 7 _INBOX.x.1 0\r\n\r\n"
    b"HMSG _INBOX.x.2 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"
    b"HMSG a 1 r 28 30\r\nNATS/1.0\r\nA: 1\r\nB:two:2 \r\n\r\nhi\r\n"
    b"-ERR 'Permissions Violation for Publish to \"x\"'\r\n"
    b"PONG\r\n"
)


def read(data):
    """All that a server's bytes say."""
    return NatsReader().feed(data)


def test_each_thing_that_a_server_says_is_read():
    """INFO, PING, PONG, messages with and without reply and headers, and refusals come out in order."""
    info, ping, hello, empty, nobody, headed, refusal, pong = read(STREAM)

    assert isinstance(info, NatsInfo) and info.max_payload == 1048576 and info.has_headers
    assert isinstance(ping, NatsPing) and isinstance(pong, NatsPong)
    assert hello == NatsMessage("a.b", 7, b"he\r\no")
    assert empty == NatsMessage("a.b", 7, b"", "_INBOX.x.1")
    assert nobody.status == 503 and nobody.data == b""
    assert headed.headers == {"A": "1", "B": "two:2"} and headed.data == b"hi"
    assert (headed.reply, headed.status) == ("r", None)
    assert isinstance(refusal, NatsRefusal) and refusal.reason.endswith('Publish to "x"')


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_bytes_split_in_any_way_say_the_same(cuts):
    """How the bytes arrive makes no difference."""
    reader, said, before = NatsReader(), [], 0
    for cut in [*sorted(cuts), len(STREAM)]:
        said += reader.feed(STREAM[before:cut])
        before = cut

    assert said == read(STREAM)


@given(
    st.from_regex(r"[a-z]+(\.[a-z]+){0,3}", fullmatch=True),
    st.binary(max_size=300),
    st.dictionaries(st.sampled_from(["A", "Trace-Id"]), st.text("abc :/é", max_size=9), max_size=2),
)
def test_what_is_published_is_what_is_read(subject, data, headers):
    """A published message, sent on by a server, is read with its payload and headers."""
    frame = publish_frame(subject, data, "re.ply", headers)
    word, _, rest = frame.partition(b" ")
    place, _, rest = rest.partition(b" ")
    [message] = read(word.replace(b"PUB", b"MSG") + b" " + place + b" 3 " + rest)

    assert (message.subject, message.sid, message.reply) == (subject, 3, "re.ply")
    assert message.data == data
    assert message.headers == {name: value.strip() for name, value in headers.items()}


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"INFO {\r\n",
        b"INFO []\r\n",
        b"INFO " + b"[" * 100_000 + b"\r\n",
        b"MSG a 1\r\n",
        b"MSG a one 5\r\n",
        b"MSG a 1 r x 5\r\n",
        b"MSG a 1 -5\r\n",
        b"HMSG a 1 9 5\r\n",
        b"MSG a 1 999999999999\r\n",
        b"MSG a 1 3\r\nlonger\r\n",
        b"x" * 2_000_000,
    ],
)
def test_what_no_nats_server_says_is_an_error(data):
    """Bytes that can't be understood end the reading with an error, not with a guess."""
    with pytest.raises(McpProtocolError, match="NATS server"):
        read(data)


@pytest.mark.parametrize(
    "reason, is_final",
    [
        ("Authorization Violation", True),
        ("Maximum Payload Violation", True),
        ("Slow Consumer", True),
        ("Stale Connection", True),
        ('Permissions Violation for Subscription to "a"', False),
        ("Invalid Subject", False),
    ],
)
def test_a_refusal_tells_whether_the_connection_ends(reason, is_final):
    """Only what concerns one subject leaves the connection open."""
    [refusal] = read(f"-ERR '{reason}'\r\n".encode())

    assert (refusal.reason, refusal.is_final) == (reason, is_final)


def test_info_has_defaults_and_names_the_cluster():
    """A server that says nothing of a limit has the usual one; other servers are those that are texts."""
    bare, full = read(b'INFO {}\r\nINFO {"tls_available":true,"connect_urls":["h:1",2]}\r\n')

    assert (bare.max_payload, bare.has_headers, bare.tls_available) == (1_048_576, False, False)
    assert bare.other_servers == ()
    assert full.tls_available and not full.tls_required
    assert full.other_servers == ("h:1",)


def test_the_client_says_what_the_protocol_wants():
    """Each line of the client's is as the protocol has it."""
    assert connect_line({"verbose": False}) == b'CONNECT {"verbose":false}\r\n'
    assert ping_line() == b"PING\r\n" and pong_line() == b"PONG\r\n"
    assert subscribe_line("a.>", 1) == b"SUB a.> 1\r\n"
    assert subscribe_line("a", 2, "workers") == b"SUB a workers 2\r\n"
    assert unsubscribe_line(2) == b"UNSUB 2\r\n"
    assert publish_frame("a", b"hi") == b"PUB a 2\r\nhi\r\n"
    assert publish_frame("a", b"hi", "r", {"K": "v"}) == (
        b"HPUB a r 18 20\r\nNATS/1.0\r\nK: v\r\n\r\nhi\r\n"
    )


@pytest.mark.parametrize("name, value", [("A B", "x"), ("A:", "x"), ("", "x"), ("A", "x\r\nB: y")])
def test_a_header_can_carry_no_line_of_its_own(name, value):
    """A header that would break the frame is refused."""
    with pytest.raises(ConfigurationError, match="header"):
        publish_frame("a", b"", headers={name: value})


@pytest.mark.parametrize("subject", ["", ".", "a..b", "a b", "a.", "a\r\nPUB b 0", "x" * 4000])
def test_what_is_no_subject_is_refused(subject):
    """Spaces, line ends, empty words and endless ones make no subject."""
    with pytest.raises(ConfigurationError, match="subject"):
        check_subject(subject)


def test_wildcards_are_for_listening_only():
    """`*` and a last `>` are allowed where a subject is listened to."""
    assert check_subject("a.*.>", wildcards=True) == "a.*.>"
    for subject, wildcards in [("a.*", False), (">", False), ("a.>.b", True)]:
        with pytest.raises(ConfigurationError, match="wildcards"):
            check_subject(subject, wildcards=wildcards)
