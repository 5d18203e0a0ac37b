"""The text protocol of NATS: what a server says out of bytes, and what a client says as bytes; no I/O.

Facts from the NATS documentation, "Client Protocol" (2.10 and later): control lines end with CR LF, payloads are
counted and may hold anything, headers stand before the payload in the form of HTTP's and begin with `NATS/1.0`, where a
status such as 503 (nobody listens) may follow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from yiemagent.errors import ConfigurationError, McpProtocolError
from yiemagent.record import Record

__all__ = [
    "NO_RESPONDERS",
    "NatsInfo",
    "NatsMessage",
    "NatsPing",
    "NatsPong",
    "NatsReader",
    "NatsRefusal",
    "NatsSaid",
    "check_subject",
    "connect_line",
    "ping_line",
    "pong_line",
    "publish_frame",
    "subscribe_line",
    "unsubscribe_line",
]

NO_RESPONDERS = 503
"""The status that a server answers a request with when nobody listens to its subject."""

_CRLF = b"\r\n"
_HEADER_BEGIN = b"NATS/1.0"
_MAX_LINE_BYTES = 1_048_576  # INFO names every server of a cluster
_MAX_PAYLOAD_BYTES = 67_108_864  # the most that a server can be set up for
_MAX_SUBJECT_BYTES = 3_000  # a control line of a server's own default limit holds it and the rest
_TOKEN = re.compile(r"[^\s\x00-\x1f\x7f]+")
# The refusals after which the server goes on (nats-server, "Protocol Errors"); all others end the connection.
_MILD = re.compile(r"permissions violation|invalid (publish )?subject", re.IGNORECASE)


@attrs.frozen(eq=False, repr=False)
class NatsInfo(Record):
    """What a server says of itself: when a client connects, and when that changes; `facts` as they came."""

    facts: Mapping[str, Any]

    @property
    def max_payload(self) -> int:
        """The most bytes that a message may have, headers included."""
        found = self.facts.get("max_payload")
        return found if isinstance(found, int) and found > 0 else 1_048_576

    @property
    def tls_required(self) -> bool:
        """Whether the connection must go on in TLS."""
        return self.facts.get("tls_required") is True

    @property
    def tls_available(self) -> bool:
        """Whether the connection may go on in TLS."""
        return self.tls_required or self.facts.get("tls_available") is True

    @property
    def has_headers(self) -> bool:
        """Whether the server carries headers, and so can tell that nobody listens."""
        return self.facts.get("headers") is True

    @property
    def other_servers(self) -> tuple[str, ...]:
        """The servers of the cluster as `host:port`."""
        found = self.facts.get("connect_urls")
        return (
            tuple(url for url in found if isinstance(url, str)) if isinstance(found, list) else ()
        )


@attrs.frozen(eq=False, repr=False)
class NatsMessage(Record):
    """A message of a subscription.

    Args:
        subject: where it was sent to.
        sid: the subscription.
        data: the payload.
        reply: where an answer is expected, or an empty text.
        headers: by name as they came; of several of one name the last.
        status: the server's own word, such as 503; None in messages of others.
    """

    subject: str
    sid: int
    data: bytes
    reply: str = ""
    headers: Mapping[str, str] = attrs.field(factory=dict)
    status: int | None = None


@attrs.frozen(eq=False, repr=False)
class NatsPing(Record):
    """The server wants a PONG."""


@attrs.frozen(eq=False, repr=False)
class NatsPong(Record):
    """The server's answer to a PING."""


@attrs.frozen(eq=False, repr=False)
class NatsRefusal(Record):
    """The server does not like what it was sent; it closes the connection where `is_final`."""

    reason: str

    @property
    def is_final(self) -> bool:
        """Whether the server ends the connection for it."""
        return _MILD.match(self.reason) is None


NatsSaid: TypeAlias = NatsInfo | NatsMessage | NatsPing | NatsPong | NatsRefusal


# --- in --------------------------------------------------------------------------------------------------------------


class NatsReader:
    """Cuts the bytes of a server into what it says; split in any way, they give the same."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._held = 0  # bytes in the pieces
        self._wanted = 0  # bytes without which there is nothing to be found
        self._head: tuple[NatsMessage, int, int] | None = None  # a message whose payload is to come

    def feed(self, data: bytes) -> list[NatsSaid]:
        """Take the next bytes and give what they complete, in order.

        Raises:
            McpProtocolError: this is no NATS server, or not one that can be understood; there is no going on.
        """
        self._pieces.append(data)
        self._held += len(data)
        if self._held < self._wanted:  # a large payload is joined once, not with each piece of it
            return []
        held, at = b"".join(self._pieces), 0
        found: list[NatsSaid] = []
        while True:
            said, at, more = self._next(held, at)
            found += said
            if not more:
                break
        rest = held[at:]
        self._pieces, self._held = [rest], len(rest)
        return found

    def _next(self, held: bytes, at: int) -> tuple[list[NatsSaid], int, bool]:
        """Give what begins at a place, the place behind it, and whether there may be more."""
        if self._head is not None:
            message, header_size, size = self._head
            self._wanted = size + 2
            if len(held) - at < self._wanted:
                return [], at, False
            body = held[at : at + size]
            if held[at + size : at + size + 2] != _CRLF:
                raise McpProtocolError(
                    f"the NATS server's payload for {message.subject!r} is not as long as it says"
                )
            self._head, self._wanted = None, 0
            return [_whole(message, body, header_size)], at + size + 2, True
        end = held.find(b"\n", at)
        if end < 0:
            if len(held) - at > _MAX_LINE_BYTES:
                raise McpProtocolError("the NATS server's line does not end")
            return [], at, False
        return self._line(held[at:end].rstrip(b"\r")), end + 1, True

    def _line(self, line: bytes) -> list[NatsSaid]:
        word, _, rest = line.decode("utf-8", "replace").partition(" ")
        word = word.upper()
        if word in {"MSG", "HMSG"}:
            self._head = _head(word, rest.split())
            return []
        if word == "PING":
            return [NatsPing()]
        if word == "PONG":
            return [NatsPong()]
        if word == "-ERR":
            return [NatsRefusal(rest.strip().strip("'"))]
        if word == "INFO":
            return [NatsInfo(_info(rest))]
        if word == "+OK" or not line:
            return []
        raise McpProtocolError(f"this is no NATS server; it says {line[:100]!r}")


def _info(text: str) -> dict[str, Any]:
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise McpProtocolError(f"the NATS server's INFO can't be read: {text[:100]!r}") from error
    if not isinstance(facts, dict):
        raise McpProtocolError(f"the NATS server's INFO is no object: {text[:100]!r}")
    return facts


def _head(word: str, parts: Sequence[str]) -> tuple[NatsMessage, int, int]:
    """Read what stands behind MSG or HMSG; gives the message without payload, the header's size and that of both."""
    sizes = 2 if word == "HMSG" else 1
    places, counts = parts[: len(parts) - sizes], parts[len(parts) - sizes :]
    is_sound = len(places) in {2, 3} and all(
        number.isascii() and number.isdecimal() for number in (*places[1:2], *counts)
    )
    if not is_sound:
        raise McpProtocolError(f"the NATS server's {word} can't be read: {' '.join(parts)[:100]!r}")
    size, header_size = int(counts[-1]), int(counts[0]) if sizes == 2 else 0
    if header_size > size or size > _MAX_PAYLOAD_BYTES:
        raise McpProtocolError(f"the NATS server announces a message of {size} bytes")
    return NatsMessage(places[0], int(places[1]), b"", "".join(places[2:])), header_size, size


def _whole(message: NatsMessage, body: bytes, header_size: int) -> NatsMessage:
    status, headers = _headers(body[:header_size])
    return attrs.evolve(message, data=body[header_size:], headers=headers, status=status)


def _headers(block: bytes) -> tuple[int | None, dict[str, str]]:
    first, *lines = block.decode("utf-8", "replace").split("\r\n")
    words = first.split()
    status = int(words[1]) if len(words) > 1 and words[1].isdecimal() else None
    pairs = (line.partition(":") for line in lines if ":" in line)
    return status, {name: value.strip() for name, _, value in pairs}


# --- out -------------------------------------------------------------------------------------------------------------


def check_subject(subject: str, *, wildcards: bool = False) -> str:
    """Give a subject back where it is one.

    Args:
        subject: tokens joined by dots.
        wildcards: whether it may hold `*` and a last `>`, as one that is listened to may.

    Raises:
        ConfigurationError: it is none.
    """
    tokens = subject.split(".")
    sound = all(_TOKEN.fullmatch(token) for token in tokens)
    if not sound or len(subject.encode("utf-8", "replace")) > _MAX_SUBJECT_BYTES:
        raise ConfigurationError(
            f"{subject!r:.200} is no NATS subject: words joined by dots, without spaces"
        )
    has_wildcards = "*" in tokens or ">" in tokens
    if has_wildcards and (not wildcards or ">" in tokens[:-1]):
        raise ConfigurationError(f"the NATS subject {subject!r:.200} must not hold wildcards here")
    return subject


def connect_line(options: Mapping[str, Any]) -> bytes:
    """Give the CONNECT with which a client presents itself."""
    return b"CONNECT " + json.dumps(options, separators=(",", ":")).encode() + _CRLF


def ping_line() -> bytes:
    """Give a PING, which the server answers when it has read all before it."""
    return b"PING\r\n"


def pong_line() -> bytes:
    """Give the answer to the server's PING."""
    return b"PONG\r\n"


def subscribe_line(subject: str, sid: int, queue: str = "") -> bytes:
    """Give the SUB that listens to a subject; of those with one `queue`, one gets each message."""
    return " ".join(part for part in ("SUB", subject, queue, str(sid)) if part).encode() + _CRLF


def unsubscribe_line(sid: int) -> bytes:
    """Give the UNSUB that ends a subscription."""
    return f"UNSUB {sid}\r\n".encode()


def publish_frame(
    subject: str, data: bytes, reply: str = "", headers: Mapping[str, str] | None = None
) -> bytes:
    """Give the PUB, or with headers the HPUB, that sends a message.

    Raises:
        ConfigurationError: a header can't be one.
    """
    places = f"{subject} {reply} " if reply else f"{subject} "
    if not headers:
        return b"".join((f"PUB {places}{len(data)}\r\n".encode(), data, _CRLF))
    block = _header_block(headers)
    sizes = f"{len(block)} {len(block) + len(data)}"
    return b"".join((f"HPUB {places}{sizes}\r\n".encode(), block, data, _CRLF))


def _header_block(headers: Mapping[str, str]) -> bytes:
    lines = [_HEADER_BEGIN]
    for name, value in headers.items():
        if not re.fullmatch(r"[!-9;-~]+", name) or "\r" in value or "\n" in value:
            raise ConfigurationError(f"{name!r} can't be a NATS header")
        lines.append(f"{name}: {value}".encode())
    return _CRLF.join((*lines, b"", b""))
