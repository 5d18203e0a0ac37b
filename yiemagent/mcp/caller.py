"""Who calls: what a tool, a resource or a prompt can say to the MCP client behind its call, and ask of it.

`current_caller()` gives it inside of a call, or None where the code runs for somebody else, an agent say. It goes with
the context: threads that copy theirs have it, too.

A question works in both eras. Where client and server shook hands, it goes out and `ask` waits for the answer. In the
stateless era nobody waits: `ask` ends the call, the client brings the answers with the same call again, and this time
`ask` gives them. So code up to the last question runs once more for each: do what has effects behind it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

import attrs

from yiemagent.abort import AbortSignal
from yiemagent.arguments import ArgumentChecker
from yiemagent.errors import InvalidArguments, ToolError
from yiemagent.mcp.jsonrpc import INVALID_PARAMS, notification
from yiemagent.mcp.server_protocol import Call, RpcFailure
from yiemagent.mcp.versions import LOG_LEVELS, MISSING_CAPABILITY
from yiemagent.record import Record

__all__ = ["InputNeeded", "McpCaller", "Reach", "caller_of", "current_caller"]

# What a client must have declared to be asked this.
_CAPABILITIES = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
_ACTIONS = {"accept", "decline", "cancel"}

caller_of: ContextVar[McpCaller | None] = ContextVar("yiemagent_mcp_caller", default=None)
"""The caller of the present context; set by the server."""


def current_caller() -> McpCaller | None:
    """Give the client behind the present call, or None where there is none."""
    return caller_of.get()


class InputNeeded(ToolError):
    """The call ends here, and is made again with the answers; nothing is wrong. Let it pass."""


@attrs.frozen(eq=False, repr=False)
class Reach(Record):
    """How a call's client is reached.

    Args:
        signal: the call's: set where the client cancels or goes away, and when the call is over.
        send: takes a message that belongs to the call.
        ask_client: sends a request, waits for the answer and gives it; only where client and server shook hands.
        principal: who the client is, where the transport knows; or None.
        interrupt: ends the stream that the answer goes by, and has the client come back for it; or None.
    """

    signal: AbortSignal
    send: Callable[[dict[str, Any]], None]
    ask_client: Callable[[str, Mapping[str, Any]], Any]
    principal: str | None = None
    interrupt: Callable[[], None] | None = None


class McpCaller:
    """The client behind one call; may be used from any thread, and is silent after the call has ended.

    Args:
        call: the call.
        reach: how the client is reached.
        answers: what earlier rounds and this one brought, by key; only in the stateless era.
    """

    def __init__(self, call: Call, reach: Reach, answers: Mapping[str, Any] | None = None) -> None:
        self.call = call
        """The request: its `method`, `params`, `version`, `client_info`, `capabilities` and `meta`."""
        self.signal = reach.signal
        """Set where the client cancels or goes away, and when the call is over."""
        self.principal = reach.principal
        """Who the client is, where the server knows; or None."""
        self.content: list[dict[str, Any]] = []
        """What `add_content` was given."""
        self.answered: dict[str, Any] = {}
        """The answers that `ask` gave so far."""
        self.needed: dict[str, Any] = {}
        """The questions that the call ended at."""
        self.failure: RpcFailure | None = None
        """The error that answers the call in place of a result."""
        self._reach = reach
        self._answers = dict(answers or {})
        # Guards the two fields below, so that progress goes out in its order and not behind the answer. Sending happens
        # while it is held: it is a queue's put, or a write that the client must read to let go of.
        self._lock = threading.Lock()
        self._progress: float | None = None
        self._ended = False

    # -- saying --------------------------------------------------------------------------------------------------

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Send a log message, if the client wants such.

        Args:
            level: one of the eight of `LOG_LEVELS`, "info" say.
            data: JSON: a text or facts, no secrets.
            logger: which part speaks, or None.

        Raises:
            ValueError: where there is no such level.
        """
        severity = LOG_LEVELS.index(level)
        wanted = self.call.log_level
        if wanted is None or severity < LOG_LEVELS.index(wanted):
            return
        params: dict[str, Any] = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        with self._lock:
            if not self._is_over():
                self._reach.send(notification("notifications/message", params))

    def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress, if the client asked for it; a number that is not above the one before is dropped.

        `on_partial_result` of a tool comes here, too: with a number, with a dict of these three, or with a text.
        """
        token = self.call.progress_token
        if token is None:
            return
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        with self._lock:
            if self._is_over() or (self._progress is not None and progress <= self._progress):
                return
            self._progress = progress
            self._reach.send(notification("notifications/progress", params))

    def partial(self, given: Any) -> None:
        """Report what a tool gave its `on_partial_result`."""
        text = getattr(given, "text", given)  # of a result or a block
        if isinstance(text, Mapping):
            total, words = text.get("total"), text.get("message")
            if _is_number(text.get("progress")):
                self.progress(
                    text["progress"],
                    total if _is_number(total) else None,
                    words if isinstance(words, str) else None,
                )
                return
        if _is_number(text):
            self.progress(text)
            return
        self.progress((self._progress or 0) + 1, None, str(text))

    def add_content(self, *blocks: Mapping[str, Any]) -> None:
        """Add blocks in MCP's own form behind the tool's content: audio, resources, links to them."""
        self.content += [{**block} for block in blocks]

    def interrupt(self) -> None:
        """End the stream that the answer would go by, and have the client come back for it, where it can."""
        if self._reach.interrupt is not None:
            self._reach.interrupt()

    # -- asking --------------------------------------------------------------------------------------------------

    def require(self, *capabilities: str) -> None:
        """Refuse the call where the client did not declare a capability, such as "sampling".

        Raises:
            ToolError: it did not; in the stateless era the call's answer is the error that says so.
        """
        missing = [name for name in capabilities if name not in self.call.capabilities]
        if missing:
            text = f"the client does not have what this needs: {', '.join(missing)}"
            data: dict[str, Any] = {"requiredCapabilities": {name: {} for name in missing}}
            self._fail(RpcFailure(MISSING_CAPABILITY, text, data))

    def ask(self, questions: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Ask the client, and give its answers.

        Args:
            questions: by a key of your own, different for each question of the call: `{"method": …, "params": …}` with
                the method `elicitation/create`, `sampling/createMessage` or `roots/list`.

        Returns:
            The answers by key, as MCP has them; checked, an elicitation's content against its schema.

        Raises:
            InputNeeded: the client brings the answers with the next call. Let it pass.
            ToolError: the client can't be asked this, or its answer is none.
        """
        self.require(*dict.fromkeys(_capability(question) for question in questions.values()))
        if self.call.stateless:
            missing = {key: q for key, q in questions.items() if key not in self._answers}
            if missing:
                self.needed = {key: dict(question) for key, question in missing.items()}
                raise InputNeeded("the client is asked, and calls again with the answer")
        given = {}
        for key, question in questions.items():
            if key not in self.answered:
                answer = self._answers[key] if self.call.stateless else self._asked(question)
                self.answered[key] = self._checked(key, question, answer)
            given[key] = self.answered[key]
        return given

    def elicit(self, key: str, message: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
        """Ask the person at the client to fill in a form; gives its content, or None where that was declined.

        Args:
            key: see `ask`.
            message: what is asked.
            schema: JSON Schema of a flat object.

        Raises:
            InputNeeded, ToolError: see `ask`.
        """
        params = {"message": message, "requestedSchema": schema}
        question = {"method": "elicitation/create", "params": params}
        answer = self.ask({key: question})[key]
        return (answer.get("content") or {}) if answer["action"] == "accept" else None

    def _asked(self, question: Mapping[str, Any]) -> Any:
        return self._reach.ask_client(question["method"], question.get("params") or {})

    def _checked(self, key: str, question: Mapping[str, Any], answer: Any) -> dict[str, Any]:
        problem = _problem(question, answer)
        if problem is not None:
            self._fail(RpcFailure(INVALID_PARAMS, f"the answer to {key!r} {problem}"))
        checked: dict[str, Any] = answer
        return checked

    def _fail(self, failure: RpcFailure) -> None:
        if self.call.stateless:
            self.failure = failure
        raise ToolError(str(failure)) from failure

    def _is_over(self) -> bool:
        return self._ended or self.signal.aborted

    def end(self) -> None:
        """Fall silent: the call has its answer."""
        with self._lock:
            self._ended = True


def _capability(question: Mapping[str, Any]) -> str:
    method = question.get("method")
    if method not in _CAPABILITIES:
        raise ValueError(f"a client can't be asked {method!r}; know: {', '.join(_CAPABILITIES)}")
    return _CAPABILITIES[method]


def _problem(question: Mapping[str, Any], answer: Any) -> str | None:
    """Give what is wrong with an answer, or None."""
    if not isinstance(answer, dict):
        return f"is no object: {answer!r}"
    if question["method"] == "roots/list":
        return None if isinstance(answer.get("roots"), list) else "holds no roots"
    if question["method"] == "sampling/createMessage":
        return None if "content" in answer and "role" in answer else "holds no message"
    if answer.get("action") not in _ACTIONS:
        return "says neither accept, decline nor cancel"
    schema = (question.get("params") or {}).get("requestedSchema")
    if answer["action"] != "accept" or schema is None:
        return None
    content = answer.get("content", {})
    if not isinstance(content, dict):
        return "holds no form"
    try:
        ArgumentChecker(schema, "elicitation").check(content)
    except InvalidArguments as error:
        return f"does not fit the form: {error}"
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
