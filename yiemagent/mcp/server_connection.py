"""One client of a server: its protocol, its calls under way, and the questions that it was asked.

A transport feeds it the client's messages, each with the channel by which the answer goes back, and runs the calls that
it gives on threads of its own choice. It never learns how messages travel.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Mapping
from queue import SimpleQueue
from typing import Any, Protocol

import attrs

from yiemagent.abort import AbortSignal
from yiemagent.errors import AbortedError, ToolError
from yiemagent.mcp import changes
from yiemagent.mcp.caller import Reach
from yiemagent.mcp.changes import Changes
from yiemagent.mcp.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    Incoming,
    RpcId,
    id_key,
    notification,
    request,
)
from yiemagent.mcp.server_protocol import (
    Answer,
    Call,
    Cancel,
    Reply,
    RpcFailure,
    Said,
    ServerFacts,
    ServerProtocol,
)
from yiemagent.mcp.versions import SUBSCRIPTION_ID_META
from yiemagent.pool import DaemonPool

__all__ = ["Channel", "Host", "ServerConnection"]

logger = logging.getLogger("yiemagent.mcp.server")


class Channel(Protocol):
    """Takes messages for the client; called on any thread, and raises nothing."""

    def send(self, message: dict[str, Any]) -> None:
        """Take a message that is no answer to a request."""

    def finish(
        self, call_id: RpcId | None, message: dict[str, Any] | None, code: int | None
    ) -> None:
        """Take the answer to a request, with the code of its error; None where there will be no answer."""

    def interrupt(self) -> None:
        """End the stream to the client where it can come back for the rest; else do nothing."""


class Host(Protocol):
    """The server behind the connection."""

    @property
    def facts(self) -> ServerFacts:
        """What it says of itself."""

    @property
    def changes(self) -> Changes:
        """Who is told of changes."""

    @property
    def closing(self) -> AbortSignal:
        """Set when it closes."""

    def handle(self, call: Call, reach: Reach) -> dict[str, Any]:
        """Give the result of a call."""


@attrs.define(eq=False)
class _UnderWay:
    call: Call
    signal: AbortSignal
    channel: Channel
    subscription: _Subscription | None = None


class ServerConnection:
    """One client; its messages come from one thread at a time.

    Args:
        host: the server.
        home: takes what belongs to no request; may be set later, and only clients that shook hands are sent such.
        principal: who the client is, where the transport knows.
        max_calls: how many calls may be under way at once.
    """

    def __init__(
        self,
        host: Host,
        home: Channel | None = None,
        principal: str | None = None,
        *,
        max_calls: int = 1024,
    ) -> None:
        self._max_calls = max_calls
        self.home = home
        self.principal = principal
        self._host = host
        # Guards the fields below. Sending and work happen when it is free again.
        self._lock = threading.Lock()
        self._protocol = ServerProtocol(host.facts)
        self._under_way: dict[RpcId | None, _UnderWay] = {}
        self._asked: dict[RpcId | None, SimpleQueue[Answer | None]] = {}
        self._numbers = itertools.count(1)

    @property
    def version(self) -> str | None:
        """What was agreed on by `initialize`, or None."""
        return self._protocol.version

    @property
    def idle(self) -> bool:
        """Whether no call is under way."""
        return not self._under_way

    def receive(self, message: Incoming, channel: Channel) -> Call | None:
        """Take a message of the client.

        Args:
            message: what came.
            channel: takes the answer, and what belongs to the request.

        Returns:
            A call that is to be run by `run`; None where there is nothing to do.
        """
        with self._lock:
            self._protocol.facts = self._host.facts
            event = self._protocol.receive(message)
            under_way = self._note(event, channel)
        match event:
            case Reply(message=reply, code=code):
                channel.finish(reply.get("id"), reply, code)
            case Call():
                assert under_way is not None
                if len(self._under_way) > self._max_calls:
                    busy = RpcFailure(INTERNAL_ERROR, "too many requests at once; wait for answers")
                    self._end(under_way, {}, busy)
                    return None
                if event.method == "subscriptions/listen":
                    self._listen(under_way)
                    return None
                return event
            case Cancel(reason=reason):
                self._give_up(under_way, reason)
            case Answer():
                self._answered(event)
            case Said(method="notifications/initialized"):
                self._host.changes.add(self)
            case Said() | None:
                pass
        return None

    def _note(self, event: Any, channel: Channel) -> _UnderWay | None:
        if isinstance(event, Call):
            mine = _UnderWay(event, AbortSignal(self._host.closing), channel)
            self._under_way[id_key(event.id)] = mine
            return mine
        if isinstance(event, Cancel):
            return self._under_way.pop(id_key(event.call.id), None)
        return None

    def start(self, call: Call, pool: DaemonPool) -> None:
        """Run a call on a thread of a pool, or on this one where none is to be had."""
        try:
            pool.start(self.run, call)
        except (
            RuntimeError
        ):  # the pool has ended with the server, or the machine has no thread left
            self.run(call)

    def run(self, call: Call) -> None:
        """Do what a call asks for, and send the answer; blocks until it is there."""
        mine = self._under_way.get(id_key(call.id))
        if mine is None:  # cancelled before it began
            return
        try:
            result, failure = self._result(mine), None
        except AbortedError as error:
            result, failure = {}, RpcFailure(INTERNAL_ERROR, str(error))
        except RpcFailure as error:
            result, failure = {}, error
        except (
            Exception
        ) as error:  # a fault of ours; the client must not wait for ever because of it
            logger.exception("a call could not be answered")
            failure = RpcFailure(INTERNAL_ERROR, f"the server failed: {type(error).__name__}")
            result = {}
        mine.signal.abort("the call is over")
        mine.signal.release()
        self._end(mine, result, failure)

    def close(self) -> None:
        """Give up every call and question: the client is gone."""
        self._host.changes.remove(self)
        with self._lock:
            calls, asked = list(self._under_way.values()), list(self._asked.values())
            self._under_way.clear()
            self._asked.clear()
        for call in calls:
            self._give_up(call, "the client is gone")
        for question in asked:
            question.put(None)

    def end_subscriptions(self) -> None:
        """End what was listened for in good order; calls go on."""
        with self._lock:
            mine = [each.subscription for each in self._under_way.values()]
        for subscription in mine:
            if subscription is not None:
                self._host.changes.remove(subscription)
                subscription.end()

    # -- calls ---------------------------------------------------------------------------------------------------

    def _result(self, mine: _UnderWay) -> dict[str, Any]:
        call, uris = mine.call, self._protocol.resource_uris
        if call.method in {"resources/subscribe", "resources/unsubscribe"}:
            uri = call.params.get("uri")
            if not isinstance(uri, str):
                raise RpcFailure(INVALID_PARAMS, "'uri' must be given as text")
            with self._lock:
                (uris.add if call.method == "resources/subscribe" else uris.discard)(uri)
            return {}
        reach = Reach(
            mine.signal,
            mine.channel.send,
            lambda method, params: self._ask(mine, method, params),
            self.principal,
            mine.channel.interrupt,
        )
        return self._host.handle(call, reach)

    def _end(self, mine: _UnderWay, result: Mapping[str, Any], failure: RpcFailure | None) -> None:
        with self._lock:
            if self._under_way.pop(id_key(mine.call.id), None) is not mine:
                return  # given up meanwhile
            if failure is not None:
                answer = self._protocol.fail(mine.call, failure)
            else:
                answer = self._protocol.finish(mine.call, result)
        code = None if failure is None else failure.code
        mine.channel.finish(mine.call.id, answer, code)

    def _give_up(self, mine: _UnderWay | None, reason: str | None) -> None:
        if mine is None:
            return
        if mine.subscription is not None:
            self._host.changes.remove(mine.subscription)
        mine.signal.abort(reason or "cancelled by the client")
        mine.channel.finish(mine.call.id, None, None)

    # -- questions to the client ---------------------------------------------------------------------------------

    def _ask(self, mine: _UnderWay, method: str, params: Mapping[str, Any]) -> Any:
        """Send a request to the client and give the answer.

        Raises:
            AbortedError: the call is over.
            ToolError: the client answered with an error.
        """
        number = next(self._numbers)
        answered: SimpleQueue[Answer | None] = SimpleQueue()
        with self._lock:
            self._asked[number] = answered
        forget = mine.signal.add_callback(lambda: answered.put(None))
        mine.channel.send(request(number, method, params))
        answer = answered.get()
        forget()
        with self._lock:
            self._asked.pop(number, None)
        if answer is None:
            mine.channel.send(notification("notifications/cancelled", {"requestId": number}))
            raise AbortedError(mine.signal.reason or "the client is gone")
        if answer.code is not None:
            raise ToolError(f"the client refused {method}: {answer.message} (code {answer.code})")
        return answer.result

    def _answered(self, answer: Answer) -> None:
        with self._lock:
            waiting = self._asked.get(id_key(answer.id))
        if waiting is not None:
            waiting.put(answer)

    # -- changes -------------------------------------------------------------------------------------------------

    def changed(self, method: str, params: Mapping[str, Any]) -> None:
        """Tell a client that shook hands of a change; resources only where it subscribed to them."""
        if method == changes.RESOURCE and params.get("uri") not in self._protocol.resource_uris:
            return
        if self.home is not None:
            self.home.send(notification(method, params or None))

    def end(self) -> None:
        """Take that there will be no more changes."""

    def _listen(self, mine: _UnderWay) -> None:
        wanted = mine.call.params.get("notifications")
        if not isinstance(wanted, dict):
            failure = RpcFailure(INVALID_PARAMS, "subscriptions/listen must say what to listen for")
            self._end(mine, {}, failure)
            return
        mine.subscription = _Subscription(self, mine, wanted, self._protocol.facts.capabilities)
        mine.subscription.begin(self._host.changes)


# What can be listened for (specification 2026-07-28, "Subscriptions"): its field, its capability, its notification.
_LISTS = (
    ("toolsListChanged", "tools", changes.TOOLS),
    ("promptsListChanged", "prompts", changes.PROMPTS),
    ("resourcesListChanged", "resources", changes.RESOURCES),
)


class _Subscription:
    """One `subscriptions/listen`: what the client wants to hear, of what the server has."""

    def __init__(
        self,
        connection: ServerConnection,
        mine: _UnderWay,
        wanted: Mapping[str, Any],
        capabilities: Mapping[str, Any],
    ) -> None:
        self._connection = connection
        self._mine = mine
        self._meta = {SUBSCRIPTION_ID_META: mine.call.id}
        self._granted: dict[str, Any] = {}
        self._telling = threading.Lock()  # what is told is told after the beginning
        self._methods = set()
        for field, capability, method in _LISTS:
            if wanted.get(field) is True and capability in capabilities:
                self._granted[field] = True
                self._methods.add(method)
        uris = wanted.get("resourceSubscriptions")
        if isinstance(uris, list) and uris and "resources" in capabilities:
            self._granted["resourceSubscriptions"] = [u for u in uris if isinstance(u, str)]

    def begin(self, told: changes.Changes) -> None:
        """Listen, and say so first: what changes from here on is told, behind that."""
        with self._telling:
            told.add(self)
            self._send("notifications/subscriptions/acknowledged", {"notifications": self._granted})

    def changed(self, method: str, params: Mapping[str, Any]) -> None:
        uris = self._granted.get("resourceSubscriptions", ())
        if method in self._methods or (method == changes.RESOURCE and params.get("uri") in uris):
            with self._telling:
                self._send(method, params)

    def end(self) -> None:
        """End it in good order: the server closes."""
        self._connection._end(self._mine, {"_meta": self._meta}, None)

    def _send(self, method: str, params: Mapping[str, Any]) -> None:
        self._mine.channel.send(notification(method, {**params, "_meta": self._meta}))
