"""The error tree: everything the library raises on purpose.

Errors carry plain values only, so that they pickle and can cross a process. A caller's mistake raises at once in the
caller's thread; what a model or a tool does wrong is a value in the conversation and never one of these.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AbortedError",
    "AgentStateError",
    "AgentStopped",
    "AuthenticationError",
    "BadResponseError",
    "ChannelFull",
    "CompactionError",
    "ConfigurationError",
    "ContextOverflowError",
    "DuplicateTool",
    "HttpError",
    "HttpTimeout",
    "InvalidArguments",
    "InvalidJson",
    "LlmConnectionError",
    "LlmError",
    "McpError",
    "McpProtocolError",
    "McpTimeout",
    "McpTransportError",
    "RateLimitError",
    "ResponseTimeout",
    "SessionError",
    "ToolError",
    "ToolFailure",
    "ToolLoadError",
    "ToolNotFound",
    "YiemAgentError",
    "error_text",
    "safe_repr",
    "shortened",
]

LONGEST_REASON = 2_000


class YiemAgentError(Exception):
    """The root of every error that this library raises."""


class ConfigurationError(YiemAgentError):
    """Something was set up in a way that can't work; the text says what to change."""


class AgentStateError(YiemAgentError):
    """The agent can't do this in the state that it is in."""


class AgentStopped(AgentStateError):
    """The agent was stopped and takes or gives nothing any more."""


class ChannelFull(AgentStateError):
    """A bounded channel has no place left, after the time that the caller allowed."""


class ResponseTimeout(YiemAgentError, TimeoutError):
    """No answer came within the time that the caller allowed; nothing was lost."""


class AbortedError(YiemAgentError):
    """The work was aborted through its signal."""


class ToolError(YiemAgentError):
    """The root of errors about tools."""


class ToolLoadError(ToolError):
    """A tool file could not be loaded.

    What is wrong is often in the words of foreign code, or of a child process. So both texts are cut here, whoever
    raises it: 2,000 characters, beside the path.

    Args:
        message: what is wrong, with path and line in it.
        path: the file.
        line: the line in the file (1-based), or None where no line is to blame.
        reason: the bare reason, without path and line.
    """

    def __init__(
        self, message: str, path: str = "", line: int | None = None, reason: str = ""
    ) -> None:
        super().__init__(shortened(message, LONGEST_REASON + len(path) + _PLACE))
        self.path = path
        self.line = line
        self.reason = shortened(reason or message)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.path, self.line, self.reason)


class ToolNotFound(ToolError):
    """No tool of this name is registered."""


class ToolFailure(ToolError):
    """A call of a tool failed, and gave something all the same.

    Args:
        message: what went wrong.
        content: what the model is shown in place of the message: content blocks, images too; empty for the message.
        details: facts for programs.
    """

    def __init__(self, message: str, content: Any = (), details: Any = None) -> None:
        super().__init__(message)
        self.content = content
        self.details = {} if details is None else details

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.content, self.details)


class InvalidArguments(ToolError):
    """Tool-call arguments don't fit the tool's schema; the text names the path and what was expected."""


class DuplicateTool(ToolError):
    """The name is taken by another tool; the earlier one stays."""


class HttpError(YiemAgentError):
    """An HTTP request failed: no connection, a broken or over-long body, or a status that means failure.

    Args:
        message: what went wrong, in words for a person; names the server, never a key or the query of a URL.
        status: the HTTP status, or None where there was no response.
        retryable: whether asking again may help.
        reached: False where there was no connection, so that the server can't have seen the request.
    """

    def __init__(
        self,
        message: str,
        status: int | None = None,
        retryable: bool = False,
        reached: bool = True,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable
        self.reached = reached

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.status, self.retryable, self.reached)


class HttpTimeout(HttpError, TimeoutError):
    """The server did not connect, answer or go on within the time limit."""


class LlmError(YiemAgentError):
    """A request to a model failed.

    Args:
        message: what went wrong, in words for a person; never holds a key.
        status: the HTTP status, or None where there was no response.
        retryable: whether asking again may help.
        retry_after_ms: how long the server asked to wait, in milliseconds, or None.
    """

    def __init__(
        self,
        message: str,
        status: int | None = None,
        retryable: bool = False,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable
        self.retry_after_ms = retry_after_ms

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.status, self.retryable, self.retry_after_ms)


class AuthenticationError(LlmError):
    """The key is missing or was refused."""


class RateLimitError(LlmError):
    """The provider asks to slow down, or the quota is used up."""


class ContextOverflowError(LlmError):
    """The request is larger than the model's context window."""


class BadResponseError(LlmError):
    """The provider answered with something that is no valid answer."""


class LlmConnectionError(LlmError):
    """The provider could not be reached, or the connection broke or stalled."""


class McpError(YiemAgentError):
    """The root of errors about MCP servers."""


class McpProtocolError(McpError):
    """The server answered with an error or broke the protocol.

    Args:
        message: what went wrong, in words for a person.
        code: the code of the server's error, or None where it gave no error but broke the protocol.
        data: what the server's error held beside its text, or None.
    """

    def __init__(self, message: str, code: int | None = None, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.code, self.data)


class McpTransportError(McpError):
    """The connection to the server failed.

    Args:
        message: what went wrong, in words for a person.
        outcome_unknown: whether the request may have reached the server, so that its effect may have happened.
        status: the HTTP status, or None where there was none.
    """

    def __init__(
        self, message: str, outcome_unknown: bool = False, status: int | None = None
    ) -> None:
        super().__init__(message)
        self.outcome_unknown = outcome_unknown
        self.status = status

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.outcome_unknown, self.status)


class McpTimeout(McpError, TimeoutError):
    """A server did not answer within the time limit; whether the request had its effect is not known."""


class CompactionError(YiemAgentError):
    """A conversation could not be shortened for the model, and is as it was; the text says why."""


class InvalidJson(YiemAgentError, ValueError):
    """JSON that is no message or event of ours; the text names the place and what was expected there."""


class SessionError(YiemAgentError):
    """A session file can't be opened, read or written; the text names path and line."""


_LEFT_OUT = " [… {:,} more characters]"
_PLACE = 20  # what joins a path with a reason: the number of a line, and punctuation


def shortened(text: str, max_chars: int = LONGEST_REASON) -> str:
    """Give a text whole where it fits, else its beginning and how much is left out.

    Args:
        text: the whole.
        max_chars: how long what is given may be, the words about the rest included; what was cut once stays as it is.
    """
    if len(text) <= max_chars:
        return text
    kept = max_chars - len(_LEFT_OUT.format(len(text)))
    return f"{text[:kept]}{_LEFT_OUT.format(len(text) - kept)}"


def safe_repr(value: object) -> str:
    """Give the `repr` of anybody's object; where that raises, the name of its class."""
    try:
        return shortened(repr(value))
    except Exception:  # the object is anybody's, and so is its repr
        return type(value).__name__


def error_text(error: BaseException) -> str:
    """Give an exception's class and words as one text; never raises, whatever the exception's own `__str__` does."""
    try:
        words = str(error)
    except (
        BaseException
    ):  # a foreign `__str__` may raise anything, and nothing may hang on its account
        words = ""
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
