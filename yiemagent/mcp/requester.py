"""How one question of the caller's becomes an answer: over a connection that may break, in as many rounds as it takes.

What may be sent twice is decided here and nowhere else. A tool call whose outcome is not known is never sent again,
unless the tool claims to be idempotent and the user allows it. What the server refused without acting on it (a lost
session, a header that doesn't fit) is sent again once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yiemagent.errors import McpProtocolError, McpTransportError
from yiemagent.mcp.calls import Call, Gate
from yiemagent.mcp.client_protocol import InputRequired, complete_or_input, server_error
from yiemagent.mcp.connection import Asked
from yiemagent.mcp.handlers import ServerRequests
from yiemagent.mcp.jsonrpc import ErrorResponse
from yiemagent.mcp.link import Link, SessionLost
from yiemagent.mcp.toolbook import FreshAnswers, ToolBook
from yiemagent.mcp.versions import HEADER_MISMATCH

__all__ = ["Requester"]

_MAX_ROUNDS = 10
_MAX_SENDS = 2
_MAX_PAGES = 1000


class Requester:
    """Asks one server.

    Args:
        link: gives the connection.
        requests: the handlers for what the server wants to know first.
        max_concurrency: how many calls of tools that don't say they only read may run at once; None: all.
        resend_idempotent: whether calls of tools that claim to be idempotent, or only to read, may be sent again.
    """

    def __init__(
        self,
        link: Link,
        requests: ServerRequests,
        *,
        max_concurrency: int | None = 1,
        resend_idempotent: bool = False,
    ) -> None:
        self.book = ToolBook()
        self.fresh = FreshAnswers()
        self._link = link
        self._requests = requests
        self._gate = Gate(max_concurrency)
        self._resend_idempotent = resend_idempotent

    def ask(self, method: str, params: Mapping[str, Any] | None, call: Call) -> dict[str, Any]:
        """Ask the server and give its result.

        Raises:
            AbortedError, McpTimeout: the call is over.
            McpProtocolError: the server answered with an error (`code` is set), or with what is no answer.
            McpTransportError: the connection broke; `outcome_unknown` says whether the request may have had its effect.
        """
        if method == "tools/call":
            return self._call_tool(dict(params or {}), call)
        if call.on_progress is None and (kept := self.fresh.get(method, params)) is not None:
            return kept
        _, protocol = self._link.get(
            call
        )  # before the generation: what opens a connection makes all stale
        generation = self.fresh.generation()
        result, rounds = self._rounds(method, params, call)
        if method == "tools/list":
            result = self.book.note(result, stateless=protocol.is_stateless)
        if rounds == 1:  # an answer to further input is nobody else's
            self.fresh.put(method, params, result, generation)
        return result

    def _call_tool(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        name = str(params.get("name"))
        if self.book.hints(name, "readOnlyHint"):
            return self._call(params, call)
        self._gate.enter(call)
        try:
            return self._call(params, call)
        finally:
            self._gate.leave()

    def _call(self, params: dict[str, Any], call: Call) -> dict[str, Any]:
        try:
            return self._rounds("tools/call", params, call)[0]
        except McpProtocolError as error:
            if error.code != HEADER_MISMATCH:
                raise
        # The server wants headers that its list tells of, and refused the call; so it is read again, and once.
        self.fresh.forget("tools")
        self._list_all_tools(call)
        return self._rounds("tools/call", params, call)[0]

    def _list_all_tools(self, call: Call) -> None:
        cursors: set[str] = set()
        params: dict[str, Any] = {}
        for _ in range(_MAX_PAGES):
            cursor = self.ask("tools/list", params, call).get("nextCursor")
            if not isinstance(cursor, str) or cursor in cursors:
                return
            cursors.add(cursor)
            params = {"cursor": cursor}

    def _rounds(
        self, method: str, params: Mapping[str, Any] | None, call: Call
    ) -> tuple[dict[str, Any], int]:
        """Ask, and answer what the server wants to know first, until it gives its result."""
        more: dict[str, Any] = {}
        for number in range(1, _MAX_ROUNDS + 1):
            result = self._send({**(params or {}), **more}, method, call)
            if not isinstance(result, InputRequired):
                return result, number
            more = {} if result.state is None else {"requestState": result.state}
            if result.requests:
                more["inputResponses"] = {
                    key: self._input(question) for key, question in result.requests.items()
                }
            call.check()
        raise McpProtocolError(f"the server wanted more for {method} {_MAX_ROUNDS} times")

    def _input(self, question: Any) -> dict[str, Any]:
        method = question.get("method") if isinstance(question, Mapping) else None
        if not isinstance(method, str):
            raise McpProtocolError(f"the server wants {question!r:.100}, which is no question")
        params = question.get("params")
        return self._requests.answer(method, params if isinstance(params, Mapping) else {})

    def _send(
        self, params: Mapping[str, Any], method: str, call: Call
    ) -> dict[str, Any] | InputRequired:
        is_call = method == "tools/call"
        name = str(params.get("name"))
        may_repeat = not is_call or (
            self._resend_idempotent and self.book.hints(name, "idempotentHint", "readOnlyHint")
        )
        schema = self.book.schema(name) if is_call else None
        for sent in range(1, _MAX_SENDS + 1):
            connection, protocol = self._link.get(call)
            number = next(self._link.numbers)
            token = number if call.on_progress is not None else None
            whole = protocol.params(params, progress_token=token)
            asked = Asked(number, method, whole, schema=schema, may_repeat=may_repeat)
            try:
                answer = connection.exchange(asked, call)
            except SessionLost:
                self._link.drop(connection)
                if sent == _MAX_SENDS:
                    raise
                continue
            except McpTransportError as error:
                broke = connection.failure is not None
                if broke:
                    self._link.drop(connection)
                if error.outcome_unknown and not may_repeat:
                    raise _unknown(error) from error
                if not broke or sent == _MAX_SENDS:
                    raise
                continue
            if isinstance(answer, ErrorResponse):
                raise server_error(method, answer)
            return complete_or_input(method, answer.result, stateless=protocol.is_stateless)
        raise AssertionError  # the last round returned or raised


def _unknown(error: McpTransportError) -> McpTransportError:
    text = f"{error}. Whether the call had its effect is not known, so it is not sent again"
    return McpTransportError(text, outcome_unknown=True, status=error.status)
