"""A server that listens to a NATS subject, alone or as one of a queue group.

Each message is one request of the stateless era and is answered to its inbox, progress before the result. A request
without `_meta`, as the plain form of MCP over NATS has it, is taken as one of a client that can nothing beside. What a
server could only keep for one client, a handshake, is refused.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Sequence
from typing import Any, Self

from yiemagent.errors import McpTransportError
from yiemagent.mcp.jsonrpc import (
    INTERNAL_ERROR,
    Incoming,
    Notification,
    Request,
    RpcId,
    dump,
    error_response,
    id_key,
    parse,
)
from yiemagent.mcp.nats import cancel_subject
from yiemagent.mcp.nats_client import NatsClient, NatsPost, NatsSubscription, NoResponders
from yiemagent.mcp.nats_wire import NatsMessage, check_subject
from yiemagent.mcp.serve_stdio import StdioHost, dump_answer
from yiemagent.mcp.server_connection import ServerConnection
from yiemagent.mcp.server_protocol import Call, RpcFailure, names_stateless
from yiemagent.mcp.versions import (
    CLIENT_CAPABILITIES_META,
    LATEST_STATELESS,
    PROTOCOL_VERSION_META,
    STATELESS_VERSIONS,
    UNSUPPORTED_VERSION,
)

__all__ = ["NatsServing"]

logger = logging.getLogger("yiemagent.mcp.nats")


class NatsServing:
    """Serves over NATS from its making until it is closed; best used in a `with` block.

    Args:
        server: what is served; it stays open.
        client: the connection to NATS, which stays open; or the address of a NATS server, or several, to which one is
            made that ends with the serving.
        subject: where to listen.
        queue: the queue group: of all that listen under this name, one gets each request.

    Raises:
        ConfigurationError: the subject, the queue's name or an address is none.
        McpTransportError, McpTimeout: NATS can't be reached.
    """

    def __init__(
        self,
        server: StdioHost,
        client: NatsClient | str | Sequence[str],
        subject: str,
        *,
        queue: str = "mcp",
    ) -> None:
        self.subject = check_subject(subject)
        self._server = server
        self._is_own = not isinstance(client, NatsClient)
        self._client = client if isinstance(client, NatsClient) else NatsClient(client)
        # Guards the table below, and tells when it is empty; nothing else is done while it is held.
        self._changed = threading.Condition()
        self._under_way: dict[tuple[str, RpcId | None], ServerConnection] = {}
        self._closed = threading.Event()
        self._subscriptions: list[NatsSubscription] = []
        try:
            for place, receive, group in (
                (self.subject, self._asked, queue),
                (cancel_subject(self.subject), self._cancelled, ""),
            ):
                self._subscriptions.append(self._client.subscribe(place, receive, queue=group))
            self._client.flush()
        except BaseException:  # whatever it is, nothing must go on listening
            self.close(0)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self) -> None:
        """Block until it is closed."""
        self._closed.wait()

    def close(self, grace_s: float = 1.0) -> None:
        """Listen no more, and end what is under way; may be called from any thread, and again.

        Args:
            grace_s: seconds that requests under way have to be answered, before they are aborted.
        """
        for subscription in self._subscriptions:
            subscription.close()
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way, grace_s)
            left = list(self._under_way.values())
        for connection in left:
            connection.close()
        if self._is_own:
            self._client.close()
        self._closed.set()

    # --- what comes; on the reading thread --------------------------------------------------------------------------

    def _asked(self, message: NatsMessage) -> None:
        if not message.reply:
            logger.debug("a message to %r names no inbox and is not answered", self.subject)
            return
        for item in parse(message.data, strict=True):
            self._take(item, message.reply)

    def _take(self, item: Incoming, reply: str) -> None:
        channel = _Inbox(self._client, reply)
        if isinstance(item, Request):
            if item.method == "initialize":
                failure = _no_handshake(item)
                channel.finish(item.id, failure.reply(item.id), failure.code)
                return
            item = _with_meta(item)
        connection = ServerConnection(self._server)
        if not isinstance(item, Request):
            connection.receive(item, channel)
            return
        key = (reply, id_key(item.id))
        channel.on_end = functools.partial(self._forget, key, connection)
        channel.on_gone = connection.close
        with self._changed:
            self._under_way[key] = connection
        call = connection.receive(item, channel)
        if call is not None:
            self._server.pool.start(self._run, connection, call, channel)

    def _run(self, connection: ServerConnection, call: Call, channel: _Inbox) -> None:
        try:
            connection.run(call)
        finally:
            channel.on_end()

    def _forget(self, key: tuple[str, RpcId | None], connection: ServerConnection) -> None:
        with self._changed:
            if self._under_way.get(key) is connection:
                del self._under_way[key]
                self._changed.notify_all()

    def _cancelled(self, message: NatsMessage) -> None:
        for item in parse(message.data, strict=True):
            if isinstance(item, Notification):
                connection = self._meant(message.reply, item.params.get("requestId"))
                if connection is not None:
                    connection.receive(item, _Inbox(self._client, ""))

    def _meant(self, inbox: str, number: Any) -> ServerConnection | None:
        """Give the request that is cancelled; without its inbox only where no other one has its id."""
        if not isinstance(number, (int, str)):
            return None
        wanted = id_key(number)
        with self._changed:
            found = [
                connection
                for (reply, key), connection in self._under_way.items()
                if key == wanted and inbox in {"", reply}
            ]
        return found[0] if len(found) == 1 else None


def _with_meta(request: Request) -> Request:
    """Give a request that says nothing of its era as a stateless one."""
    if names_stateless(request.params):
        return request
    meta = {
        PROTOCOL_VERSION_META: LATEST_STATELESS,
        CLIENT_CAPABILITIES_META: {},
        **(request.params.get("_meta") or {}),
    }
    return Request(request.id, request.method, {**request.params, "_meta": meta})


def _no_handshake(request: Request) -> RpcFailure:
    text = "over NATS there is no handshake, since any server of a group may answer"
    data = {
        "supported": [*STATELESS_VERSIONS],
        "requested": request.params.get("protocolVersion"),
    }
    return RpcFailure(UNSUPPORTED_VERSION, text, data)


class _Inbox:
    """Where the answers to one request go; a `server_connection.Channel`."""

    def __init__(self, client: NatsClient, reply: str) -> None:
        self.on_end: Any = lambda: None
        self.on_gone: Any = lambda: None
        self._client = client
        self._reply = reply
        self._post: NatsPost | None = None  # of the last message that was no answer

    def send(self, message: dict[str, Any]) -> None:
        """Send what is no answer; where nobody takes it any more, the request is given up."""
        try:
            post = self._client.open(self._reply, dump(message), self._told)
        except (McpTransportError, ValueError, TypeError, RecursionError) as error:
            logger.warning("a message could not be sent: %s", error)
            return
        before, self._post = self._post, post
        if before is not None:
            before.close()

    def finish(
        self, call_id: RpcId | None, message: dict[str, Any] | None, code: int | None
    ) -> None:
        """Send an answer; one that is larger than NATS carries becomes an error."""
        del code
        if self._post is not None:
            self._post.close()
        if message is not None and self._reply:
            self._send(call_id, dump_answer(call_id, message))
        self.on_end()

    def interrupt(self) -> None:
        """Do nothing: a client can't come back for the rest."""

    def _send(self, call_id: RpcId | None, data: bytes) -> None:
        limit = self._client.max_payload
        if limit is not None and len(data) > limit:
            text = f"the answer has {len(data)} bytes, and NATS carries {limit} at most"
            data = dump(error_response(call_id, INTERNAL_ERROR, text))
        try:
            self._client.publish(self._reply, data)
        except McpTransportError as error:
            logger.warning("an answer could not be sent: %s", error)

    def _told(self, event: Any) -> None:
        if isinstance(event, NoResponders):
            self.on_gone()
            self.on_end()
