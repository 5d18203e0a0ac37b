"""A thin blocking client of NATS: requests with one or several answers, and subscriptions, over one connection.

Whoever asks waits in its own thread, so nothing here holds up a time limit or an abort. All answers come to one inbox.
A request that was sent when the connection broke ends with `NatsDisconnected`, since nobody knows what became of it.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import re
import secrets
import ssl
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Self, TypeAlias

from yiemagent.abort import AbortSignal
from yiemagent.errors import ConfigurationError, McpError, McpTimeout, McpTransportError
from yiemagent.mcp.nats_dial import NatsDialer, NatsLogin, parse_address
from yiemagent.mcp.nats_link import NatsDisconnected, NatsFrame, NatsLink, PayloadTooLarge
from yiemagent.mcp.nats_wire import (
    NO_RESPONDERS,
    NatsMessage,
    check_subject,
    publish_frame,
    subscribe_line,
    unsubscribe_line,
)

__all__ = [
    "NatsClient",
    "NatsDisconnected",
    "NatsPost",
    "NatsSubscription",
    "NoResponders",
    "PayloadTooLarge",
]

logger = logging.getLogger("yiemagent.mcp.nats")

_INBOX_SID = 1


class NoResponders(McpTransportError):
    """Nobody listens to the subject; the request reached nobody."""


Receive: TypeAlias = "Callable[[NatsMessage | McpError], object]"


class NatsPost:
    """A request under way; ends when it is closed, and then nothing more is received."""

    def __init__(self, client: NatsClient, subject: str, receive: Receive, token: str) -> None:
        self.subject = subject
        self.token = token
        self._client = client
        self._receive = receive
        self.frame: NatsFrame | None = None
        """What is sent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def inbox(self) -> str:
        """Where its answers come to; nobody else's do."""
        return self._client._inbox + self.token

    @property
    def is_sent(self) -> bool:
        """Whether all of it left, so that it may have had its effect."""
        return self.frame is not None and self.frame.is_sent

    def close(self) -> None:
        """Receive nothing more; what is not sent yet never is."""
        self._client._forget(self)

    def put(self, event: NatsMessage | McpError) -> None:
        """Hand on an answer, or the error that ends the request."""
        try:
            self._receive(event)
        except Exception:  # the receiver is anybody's; the connection must go on for the others
            logger.exception("the receiver of an answer from %r raised", self.subject)


class NatsSubscription:
    """A subject that is listened to."""

    def __init__(
        self,
        client: NatsClient,
        sid: int,
        subject: str,
        queue: str,
        receive: Callable[[NatsMessage], object],
    ) -> None:
        self.sid = sid
        self.subject = subject
        self.queue = queue
        self._client = client
        self._receive = receive

    @property
    def line(self) -> bytes:
        """What makes a server send its messages."""
        return subscribe_line(self.subject, self.sid, self.queue)

    def close(self) -> None:
        """Listen no more; a message that is on its way may still come."""
        self._client._unsubscribe(self)

    def put(self, message: NatsMessage) -> None:
        """Hand on a message."""
        try:
            self._receive(message)
        except Exception:  # the receiver is anybody's; the connection must go on for the others
            logger.exception("the receiver of a message to %r raised", self.subject)


class NatsClient:
    """A connection to NATS; connects at first use, and again when it broke. May be used from many threads at once.

    Args:
        servers: one address or several, of which any will do: `nats://host:port`, `tls://host:port`, `host:port`, with
            a user and password or a token before the host where there are such.
        user, password: who we are.
        token: the same, where the server knows tokens.
        tls: a context for TLS, with your own CA say; None: TLS where the address or the server wants it, checked
            against the CAs of the system.
        name: of the client, as the server shows it.
        connect_timeout_s: limit for connecting to one server.
        reconnect_wait_s: how long requests wait for a connection that broke to come back, each within its own limit.
        ping_interval_s: how often a silent server is asked whether it is there; two unanswered end the connection.

    Raises:
        ConfigurationError: an address is none, or a user comes without a password.
    """

    def __init__(
        self,
        servers: str | Sequence[str] = "nats://127.0.0.1:4222",
        *,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        name: str = "yiemagent",
        connect_timeout_s: float = 10.0,
        reconnect_wait_s: float = 10.0,
        ping_interval_s: float = 30.0,
    ) -> None:
        if (user is None) != (password is None):
            raise ConfigurationError("a NATS user needs a password, and a password a user")
        given = [servers] if isinstance(servers, str) else list(servers)
        self._addresses = [parse_address(url) for url in given]
        if not self._addresses:
            raise ConfigurationError("name a NATS server, such as nats://127.0.0.1:4222")
        login = NatsLogin(user, password, token)
        if login.is_empty:  # for servers that we learn of, too
            logins = (address.login for address in self._addresses)
            login = next((found for found in logins if not found.is_empty), login)
        self._dialer = NatsDialer(login, tls=tls, name=name, timeout_s=connect_timeout_s)
        self._reconnect_wait_s = reconnect_wait_s
        self._ping_interval_s = ping_interval_s
        self._reset()

    def _reset(self) -> None:
        self.late = 0
        """How many answers came that nobody waits for any more."""
        self._pid = os.getpid()
        self._inbox = f"_INBOX.{secrets.token_hex(11)}."
        self._numbers = itertools.count(_INBOX_SID + 1)
        self._posts: dict[str, NatsPost] = {}  # single steps of a dict are atomic, so no lock
        self._subscriptions: dict[int, NatsSubscription] = {}  # the same
        self._link = NatsLink(
            self,
            self._dialer,
            self._addresses,
            reconnect_wait_s=self._reconnect_wait_s,
            ping_interval_s=self._ping_interval_s,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection at present."""
        return self._link.is_connected

    @property
    def max_payload(self) -> int | None:
        """The most bytes that a message may have, or None before the first connection."""
        info = self._link.info
        return None if info is None else info.max_payload

    # --- what it does -----------------------------------------------------------------------------------------------

    def request(
        self,
        subject: str,
        data: bytes,
        timeout: float | None = 10.0,  # the name that NATS clients share
        *,
        signal: AbortSignal | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> NatsMessage:
        """Send a request and wait for its first answer.

        Args:
            subject: where to.
            data: the payload.
            timeout: seconds for all of it; None: no limit.
            signal: ends the wait within 0.1 s; None: nothing does.
            headers: beside the payload.

        Raises:
            NoResponders: nobody listens, which is known at once.
            McpTimeout: no answer in time; the request may have had its effect, unless there was no connection.
            NatsDisconnected, PayloadTooLarge: see there.
            AbortedError: the signal was set.
            McpTransportError: the server can't be reached, or the client was closed.
        """
        came: SimpleQueue[Any] = SimpleQueue()
        remove = None if signal is None else signal.add_callback(lambda: came.put(None))
        try:
            with self.open(subject, data, came.put, headers=headers):
                found = came.get(timeout=timeout)
        except Empty:
            raise McpTimeout(
                f"nobody answered {subject!r} within the time limit of {timeout:g} s"
            ) from None
        finally:
            if remove is not None:
                remove()
        if found is None:
            assert signal is not None
            signal.raise_if_aborted()
        if isinstance(found, McpError):
            raise found
        message: NatsMessage = found
        return message

    def open(
        self,
        subject: str,
        data: bytes,
        receive: Receive,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> NatsPost:
        """Send a request that may have several answers; returns at once.

        Args:
            subject: where to.
            data: the payload.
            receive: takes each answer, and the error that ends the request (`NoResponders`, `NatsDisconnected` and the
                like), on the reading thread; must return at once.
            headers: beside the payload.

        Returns:
            The request, to be closed when no more answers are wanted.

        Raises:
            ConfigurationError: the subject is none.
            PayloadTooLarge, McpTransportError: it can't be sent.
        """
        check_subject(subject)
        return self._post(subject, data, receive, headers)

    def _post(
        self, subject: str, data: bytes, receive: Receive, headers: Mapping[str, str] | None = None
    ) -> NatsPost:
        """Send a request; without a subject it goes to its own inbox, and so comes back."""
        link = self._current()
        post = NatsPost(self, subject, receive, str(next(self._numbers)))
        to, reply = (subject, post.inbox) if subject else (post.inbox, "")
        post.frame = self._frame(to, data, reply, headers, post)
        self._posts[post.token] = post
        try:
            link.send(post.frame)
        except BaseException:  # whatever it is, the caller gets no post to close
            self._posts.pop(post.token, None)
            raise
        return post

    def publish(
        self,
        subject: str,
        data: bytes,
        *,
        reply: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a message that wants no answer; returns at once, and it may get lost where the connection breaks.

        Args:
            subject: where to.
            data: the payload.
            reply: a subject that it names for answers.
            headers: beside the payload.

        Raises:
            ConfigurationError: a subject is none.
            PayloadTooLarge, McpTransportError: it can't be sent.
        """
        check_subject(subject)
        if reply:
            check_subject(reply)
        self._current().send(self._frame(subject, data, reply, headers))

    def subscribe(
        self, subject: str, receive: Callable[[NatsMessage], object], *, queue: str = ""
    ) -> NatsSubscription:
        """Listen to a subject, over every connection that there will be.

        Args:
            subject: what to listen to; may hold wildcards.
            receive: takes each message, on the reading thread; must return at once.
            queue: of those who listen under one such name, one gets each message.

        Raises:
            ConfigurationError: the subject or the queue's name is none.
            McpTransportError: the client was closed.
        """
        check_subject(subject, wildcards=True)
        if queue:
            check_subject(queue)
        link = self._current()
        made = NatsSubscription(self, next(self._numbers), subject, queue, receive)
        self._subscriptions[made.sid] = made  # first, so that a connection made meanwhile knows it
        try:
            link.control(made.line)  # a connection that was told already takes it once more
        except McpTransportError:
            self._subscriptions.pop(made.sid, None)
            raise
        return made

    def flush(self, timeout_s: float | None = 10.0) -> None:
        """Wait until the server has read all that was sent so far, subscriptions included.

        Raises:
            McpTimeout, McpTransportError: it did not.
        """
        came: SimpleQueue[Any] = SimpleQueue()
        try:
            with self._post("", b"", came.put):
                found = came.get(timeout=timeout_s)
        except Empty:
            raise McpTimeout(f"the NATS server did not answer within {timeout_s:g} s") from None
        if isinstance(found, McpError):
            raise found

    def _forget(self, post: NatsPost) -> None:
        self._posts.pop(post.token, None)
        if post.frame is not None and not post.is_sent:
            self._link.withdraw(post.frame)

    def _unsubscribe(self, subscription: NatsSubscription) -> None:
        if self._subscriptions.pop(subscription.sid, None) is not None:
            with contextlib.suppress(McpTransportError):  # closed: nothing is listened to any more
                self._link.control(unsubscribe_line(subscription.sid))

    def close(self) -> None:
        """End the connection and all that waits; may be called from any thread, and again. Never hangs."""
        self._subscriptions.clear()
        self._end_all("the NATS client was closed")
        self._link.close()
        self._end_all("the NATS client was closed")  # what was asked in between

    def _end_all(self, text: str) -> None:
        for post in list(self._posts.values()):
            self._fail(post, McpTransportError(text, outcome_unknown=post.is_sent))

    def _current(self) -> NatsLink:
        if self._pid != os.getpid():  # a fork: the parent's connection is not ours, nor is its lock
            self._reset()
        return self._link

    def _frame(
        self,
        subject: str,
        data: bytes,
        reply: str,
        headers: Mapping[str, str] | None,
        post: NatsPost | None = None,
    ) -> NatsFrame:
        whole = publish_frame(subject, data, reply, headers)
        control_line = whole.index(b"\n") + 1
        return NatsFrame(whole, len(whole) - control_line - 2, post)

    # --- what the link tells; see `NatsUser` ------------------------------------------------------------------------

    @property
    def is_listening(self) -> bool:
        """Whether there are subscriptions."""
        return bool(self._subscriptions)

    def greeting(self) -> bytes:
        """Give the subscriptions, that of the inbox first."""
        inbox = subscribe_line(f"{self._inbox}*", _INBOX_SID)
        return b"".join((inbox, *[each.line for each in list(self._subscriptions.values())]))

    def deliver(self, message: NatsMessage) -> None:
        """Hand a message to whom it is for."""
        if message.sid != _INBOX_SID:
            subscription = self._subscriptions.get(message.sid)
            if subscription is not None:
                subscription.put(message)
            return
        post = self._posts.get(message.subject.removeprefix(self._inbox))
        if post is None:
            self.late += 1
        elif message.status == NO_RESPONDERS:
            self._fail(post, NoResponders(f"nobody listens to the NATS subject {post.subject!r}"))
        else:
            post.put(message)

    def refused(self, reason: str) -> None:
        """End the requests that a refusal concerns: to its subject, or all where it is that of the inbox."""
        named = re.search(r'"([^"]*)"', reason)
        subject = named[1] if named else ""
        for post in list(self._posts.values()):
            if subject == post.subject or subject.startswith(self._inbox):
                self._fail(post, McpTransportError(f"the NATS server refused: {reason}"))

    def broke(self, text: str) -> None:
        """End the requests that were sent; the others will be."""
        for post in list(self._posts.values()):
            if post.is_sent:
                self._fail(post, NatsDisconnected(text, outcome_unknown=True))

    def failed(self, frame: NatsFrame, error: McpTransportError) -> None:
        """End the request that can't be sent."""
        if frame.sender is not None:
            self._fail(frame.sender, error)

    def _fail(self, post: NatsPost, error: McpError) -> None:
        if self._posts.pop(post.token, None) is not None:
            post.put(error)
