"""Hooks: functions of the user that the loop calls at fixed points, and what they are shown and may give back.

All hooks of one run are called on the run's thread, one at a time, except `after_tool_call`, which is called on the
thread of its tool call and so may run beside others. A hook that raises fails closed: `before_tool_call` keeps the
tool from running, `after_tool_call` replaces the result by an error; any other ends the run with an error answer. A
hook may block; an abort ends the run without waiting for it longer than its grace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from yiemagent.abort import AbortSignal
from yiemagent.context import AgentContext
from yiemagent.errors import ConfigurationError
from yiemagent.messages import (
    AgentMessage,
    AssistantMessage,
    LlmMessage,
    LlmModel,
    LlmUsage,
    MessageContent,
    ToolCall,
    ToolResultMessage,
    shown_blocks,
)
from yiemagent.options import function_of
from yiemagent.payload import freeze_json
from yiemagent.record import Record
from yiemagent.tool import AgentToolResult

__all__ = [
    "AfterToolCallContext",
    "AfterToolCallResult",
    "BeforeToolCallContext",
    "BeforeToolCallResult",
    "Hooks",
    "NextTurn",
    "TurnContext",
    "after_result",
    "before_result",
    "next_turn",
]


@attrs.frozen(eq=False, repr=False)
class BeforeToolCallContext(Record):
    """What `before_tool_call` is shown.

    Args:
        assistant_message: the answer that holds the call.
        tool_call: the call as the model sent it.
        args: the checked arguments, a plain private copy; what the hook changes in it is checked again and used.
        context: the conversation when the tools were called.
    """

    assistant_message: AssistantMessage
    tool_call: ToolCall
    args: dict[str, Any]
    context: AgentContext


@attrs.frozen(eq=False, repr=False)
class BeforeToolCallResult(Record):
    """What `before_tool_call` decides; None in its place means: go on.

    Args:
        block: True keeps the tool from running; the model gets an error result with the reason.
        reason: why, for the model; default "Tool execution was blocked".
        args: arguments to use instead, checked again; None keeps them.
        terminate: True asks the agent to stop after this batch.
        pause: True has somebody decide later: no call of this answer is run, and the run ends; see
            `yiemagent.sessions.take_up_paused`.
    """

    block: bool = False
    reason: str | None = None
    args: Mapping[str, Any] | None = None
    terminate: bool = False
    pause: bool = False


@attrs.frozen(eq=False, repr=False)
class AfterToolCallContext(Record):
    """What `after_tool_call` is shown: the call, the arguments it ran with (a plain copy), and what came of it."""

    assistant_message: AssistantMessage
    tool_call: ToolCall
    args: dict[str, Any]
    result: AgentToolResult
    is_error: bool
    context: AgentContext


_KEEP: Any = attrs.make_class("_Keep", [], frozen=True, slots=True)()


def _kept_content(content: Any) -> Any:
    return content if content is _KEEP else shown_blocks(content)


@attrs.frozen(eq=False, repr=False)
class AfterToolCallResult(Record):
    """What `after_tool_call` replaces, field by field; a field that is not given keeps its value."""

    content: tuple[MessageContent, ...] = attrs.field(default=_KEEP, converter=_kept_content)
    details: Any = attrs.field(default=_KEEP, converter=freeze_json)
    usage: LlmUsage | None = _KEEP
    terminate: bool = _KEEP
    is_error: bool = _KEEP

    def apply(self, result: AgentToolResult, *, is_error: bool) -> tuple[AgentToolResult, bool]:
        """Give `result` and `is_error` with what was replaced."""
        fields = {
            name: value
            for name in ("content", "details", "usage", "terminate")
            if (value := getattr(self, name)) is not _KEEP
        }
        kept = is_error if self.is_error is _KEEP else bool(self.is_error)
        return (attrs.evolve(result, **fields) if fields else result), kept


@attrs.frozen(eq=False, repr=False)
class TurnContext(Record):
    """What `prepare_next_turn` and `should_stop_after_turn` are shown.

    Args:
        message: the turn's answer.
        tool_results: the results of its calls, in call order.
        context: the conversation after the turn.
        new_messages: what the run added so far, oldest first.
    """

    message: AssistantMessage
    tool_results: tuple[ToolResultMessage, ...]
    context: AgentContext
    new_messages: Sequence[AgentMessage]


@attrs.frozen(eq=False, repr=False)
class NextTurn(Record):
    """What `prepare_next_turn` changes from the next turn on; None keeps what is.

    Args:
        context: another context to go on with.
        model: another model.
        thinking_level: another reasoning level; "off" ends reasoning.
    """

    context: AgentContext | None = None
    model: LlmModel | str | None = None
    thinking_level: str | None = None


BeforeToolCall: TypeAlias = Callable[
    [BeforeToolCallContext, AbortSignal], "BeforeToolCallResult | Mapping[str, Any] | None"
]
AfterToolCall: TypeAlias = Callable[
    [AfterToolCallContext, AbortSignal],
    "AfterToolCallResult | AgentToolResult | Mapping[str, Any] | None",
]


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Hooks(Record):
    """The hooks of a run; each may be None.

    Args:
        before_tool_call: `(BeforeToolCallContext, signal)`, before each call, in call order, on the run's thread.
            Gives a `BeforeToolCallResult`, a dict of its fields, or None to go on.
        after_tool_call: `(AfterToolCallContext, signal)`, after each call that ran, on the call's thread. Gives an
            `AfterToolCallResult`, a whole `AgentToolResult`, a dict of fields, or None to keep the result.
        prepare_next_turn: `(TurnContext, signal)`, after every turn that did not fail. Gives a `NextTurn` or None.
        should_stop_after_turn: `(TurnContext, signal)`, after `prepare_next_turn`. True ends the run, queues
            untouched.
        transform_context: `(messages, signal)`, before each request. Gives the messages for this request only.
        convert_to_llm: `(messages)`, after that. Gives messages that a model understands; None: each kind's own rule.
    """

    before_tool_call: BeforeToolCall | None = attrs.field(
        default=None, validator=function_of("context", "signal")
    )
    after_tool_call: AfterToolCall | None = attrs.field(
        default=None, validator=function_of("context", "signal")
    )
    prepare_next_turn: Callable[[TurnContext, AbortSignal], NextTurn | None] | None = attrs.field(
        default=None, validator=function_of("context", "signal")
    )
    should_stop_after_turn: Callable[[TurnContext, AbortSignal], bool] | None = attrs.field(
        default=None, validator=function_of("context", "signal")
    )
    transform_context: (
        Callable[[Sequence[AgentMessage], AbortSignal], Iterable[AgentMessage]] | None
    ) = attrs.field(default=None, validator=function_of("messages", "signal"))
    convert_to_llm: Callable[[Sequence[AgentMessage]], Iterable[LlmMessage]] | None = attrs.field(
        default=None, validator=function_of("messages")
    )


_BEFORE_KEYS = {name: name for name in ("block", "reason", "args", "terminate", "pause")}
_AFTER_KEYS = {
    "content": "content",
    "details": "details",
    "usage": "usage",
    "terminate": "terminate",
    "is_error": "is_error",
    "isError": "is_error",
}


def before_result(given: Any) -> BeforeToolCallResult | None:
    """Give what a `before_tool_call` hook returned as a `BeforeToolCallResult`, or None.

    Raises:
        ConfigurationError: where it is of another kind or names another field.
    """
    if given is None or isinstance(given, BeforeToolCallResult):
        return given
    if isinstance(given, Mapping):
        return BeforeToolCallResult(**_fields(given, _BEFORE_KEYS, "before_tool_call"))
    raise ConfigurationError(
        f"before_tool_call gave {given!r}; give a BeforeToolCallResult, a dict of its fields, or None"
    )


def after_result(given: Any) -> AfterToolCallResult | None:
    """Give what an `after_tool_call` hook returned as an `AfterToolCallResult`, or None.

    Raises:
        ConfigurationError: where it is of another kind or names another field.
    """
    if given is None or isinstance(given, AfterToolCallResult):
        return given
    if isinstance(given, AgentToolResult):
        return AfterToolCallResult(given.content, given.details, given.usage, given.terminate)
    if isinstance(given, Mapping):
        return AfterToolCallResult(**_fields(given, _AFTER_KEYS, "after_tool_call"))
    raise ConfigurationError(
        f"after_tool_call gave {given!r}; give an AfterToolCallResult, an AgentToolResult, "
        f"a dict of fields, or None"
    )


def next_turn(given: Any) -> NextTurn | None:
    """Give what a `prepare_next_turn` hook returned as a `NextTurn`, or None.

    Raises:
        ConfigurationError: where it is of another kind.
    """
    if given is None or isinstance(given, NextTurn):
        return given
    raise ConfigurationError(f"prepare_next_turn gave {given!r}; give a NextTurn or None")


def _fields(given: Mapping[Any, Any], keys: Mapping[str, str], hook: str) -> dict[str, Any]:
    unknown = [key for key in given if key not in keys]
    if unknown:
        raise ConfigurationError(f"{hook} gave {unknown!r}; its fields are {', '.join(keys)}")
    return {keys[key]: value for key, value in given.items()}
