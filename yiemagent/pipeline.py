"""One tool call: prepare, execute, finalize, and the result message that stands for it.

Nothing that a model, a tool or a hook does raises out of here: every failure is an error result in words that help the
model. `BaseException` is caught on purpose: a tool that calls `sys.exit()` must not end the program.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import attrs

from yiemagent.abort import AbortSignal, current_signal
from yiemagent.arguments import checker_for, parse_arguments
from yiemagent.context import AgentContext
from yiemagent.errors import InvalidArguments, ToolError, ToolFailure, error_text
from yiemagent.events import Event, ToolExecUpdateEvent
from yiemagent.hooks import (
    AfterToolCallContext,
    BeforeToolCallContext,
    BeforeToolCallResult,
    Hooks,
    after_result,
    before_result,
)
from yiemagent.locks import holding
from yiemagent.messages import AssistantMessage, ToolCall, ToolResultMessage
from yiemagent.pausing import PAUSED_DETAILS, PAUSED_TEXT
from yiemagent.payload import freeze_json, thaw_json
from yiemagent.record import Record
from yiemagent.registry import collect_registrations
from yiemagent.tool import AgentTool, AgentToolResult

__all__ = [
    "ABORTED_TEXT",
    "ExecutedOutcome",
    "FinalizedOutcome",
    "ImmediateOutcome",
    "PreparedToolCall",
    "create_error_tool_result",
    "create_tool_result_message",
    "execute_prepared_tool_call",
    "finalize_executed_tool_call",
    "prepare_tool_call",
    "should_terminate",
]

ABORTED_TEXT = "Operation aborted"
BLOCKED_TEXT = "Tool execution was blocked"
_AT_ONCE = contextlib.nullcontext()

Emit: TypeAlias = Callable[[Event], None]


@attrs.frozen(eq=False, repr=False)
class PreparedToolCall(Record):
    """A call that may run: its tool, the call as the model sent it, and the checked arguments, a plain private
    copy; and whether `before_tool_call` asked the agent to stop after it.
    """

    tool: AgentTool
    tool_call: ToolCall
    args: dict[str, Any]
    terminate: bool = False


@attrs.frozen(eq=False, repr=False)
class ImmediateOutcome(Record):
    """What stands for a call that never ran; and whether it waits for approval, and may run later."""

    result: AgentToolResult
    is_error: bool = True
    is_paused: bool = False


@attrs.frozen(eq=False, repr=False)
class ExecutedOutcome(Record):
    """What a call gave, before `after_tool_call`."""

    result: AgentToolResult
    is_error: bool = False


@attrs.frozen(eq=False, repr=False)
class FinalizedOutcome(Record):
    """What a call gave in the end."""

    tool_call: ToolCall
    result: AgentToolResult
    is_error: bool


def create_error_tool_result(message: str, *, terminate: bool = False) -> AgentToolResult:
    """Give the result that tells the model what went wrong."""
    return AgentToolResult(message, terminate=terminate)


def prepare_tool_call(
    context: AgentContext,
    assistant_message: AssistantMessage,
    tool_call: ToolCall,
    hooks: Hooks,
    signal: AbortSignal,
) -> PreparedToolCall | ImmediateOutcome:
    """Find the tool, read and check the arguments, and ask `before_tool_call`; never raises.

    Args:
        context: what the model was offered: a tool that is not in it is unknown.
        assistant_message: the answer that holds the call.
        tool_call: the call.
        hooks: of them `before_tool_call` is asked.
        signal: the run's.

    Returns:
        The call ready to run, or what stands for it where it may not run.
    """
    tool = context.tools.get(tool_call.name)
    if tool is None:
        return _failed(_unknown_tool(tool_call.name, context.tools))
    try:
        args = _checked(tool, _prepared_arguments(tool, tool_call, signal), signal)
        if signal.aborted:
            return _failed(ABORTED_TEXT)
        if hooks.before_tool_call is None:
            return PreparedToolCall(tool, tool_call, args)
        shown = thaw_json(args)
        asked = BeforeToolCallContext(assistant_message, tool_call, shown, context)
        decision = before_result(hooks.before_tool_call(asked, signal))
        return _decided(tool, tool_call, args, shown, decision=decision, signal=signal)
    except InvalidArguments as error:
        return _failed(f"Invalid arguments for {tool.name}: {error}")
    except (
        BaseException
    ) as error:  # arguments, checks and the hook may raise anything: the tool is not run
        return _failed(ABORTED_TEXT if signal.aborted else _exception_text(error))


def _prepared_arguments(
    tool: AgentTool, tool_call: ToolCall, signal: AbortSignal
) -> dict[str, Any]:
    args = parse_arguments(tool_call.arguments)
    if tool.prepare_arguments is None:
        return args
    prepared = _under(signal, tool.prepare_arguments, thaw_json(args))
    if not isinstance(prepared, dict):
        raise InvalidArguments(f"prepare_arguments gave {prepared!r} instead of a dict")
    return prepared


def _checked(tool: AgentTool, args: dict[str, Any], signal: AbortSignal) -> dict[str, Any]:
    checked = checker_for(tool).check(args)
    if tool.validate_required_args is not None:
        problem = _under(signal, tool.validate_required_args, thaw_json(checked))
        if problem is not None:
            raise InvalidArguments(str(problem))
    return checked


def _under(
    signal: AbortSignal, function: Callable[[dict[str, Any]], Any], args: dict[str, Any]
) -> Any:
    """Call a function that is given no signal, so that one that runs in a process can end with the run."""
    token = current_signal.set(signal)
    try:
        return function(args)
    finally:
        current_signal.reset(token)


def _decided(
    tool: AgentTool,
    tool_call: ToolCall,
    args: dict[str, Any],
    shown: dict[str, Any],
    *,
    decision: BeforeToolCallResult | None,
    signal: AbortSignal,
) -> PreparedToolCall | ImmediateOutcome:
    if signal.aborted:
        return _failed(ABORTED_TEXT)
    if decision is not None and decision.block:
        return ImmediateOutcome(
            create_error_tool_result(
                decision.reason or BLOCKED_TEXT, terminate=bool(decision.terminate)
            )
        )
    if decision is not None and decision.pause:
        return ImmediateOutcome(
            AgentToolResult(PAUSED_TEXT, details=PAUSED_DETAILS), is_paused=True
        )
    wanted = shown if decision is None or decision.args is None else thaw_json(dict(decision.args))
    if wanted != args:
        args = _checked(tool, wanted, signal)
    return PreparedToolCall(
        tool, tool_call, args, decision is not None and bool(decision.terminate)
    )


def execute_prepared_tool_call(
    prepared: PreparedToolCall, signal: AbortSignal, emit: Emit
) -> ExecutedOutcome | ImmediateOutcome:
    """Run the tool; never raises.

    Updates are emitted in the order in which the tool gives them, while it runs; what comes after it settled is
    dropped. What is registered meanwhile is named in the result's `added_tool_names`. A tool with locks waits for them
    first; an abort ends that wait, and so does the call's time limit, which aborts its signal.

    Args:
        prepared: the call.
        signal: the call's own, a child of the run's.
        emit: takes a `ToolExecUpdateEvent`; called on whichever thread the tool calls back on.

    Returns:
        What the tool gave; or, where the signal was set before it began, what stands for a call that never ran.
    """
    if signal.aborted:  # between preparing and running: no effect may start after an abort
        return _failed(ABORTED_TEXT)
    call = prepared.tool_call
    accepting = [True]

    def on_partial_result(partial: Any) -> None:
        if accepting:
            emit(ToolExecUpdateEvent(call.id, call.name, call.arguments, freeze_json(partial)))

    tool = prepared.tool
    alone = holding(tool.lock, signal, tool.name) if tool.lock else _AT_ONCE
    outer = current_signal.set(signal)
    try:
        with collect_registrations() as added, alone:
            result = tool.execute(call.id, prepared.args, signal, on_partial_result)
    except BaseException as error:  # a tool may raise anything; see the head of the room
        if signal.aborted_at is not None:
            return ExecutedOutcome(create_error_tool_result(ABORTED_TEXT), is_error=True)
        return ExecutedOutcome(_failure_result(error), is_error=True)
    finally:
        current_signal.reset(outer)
        accepting.clear()
    new = tuple(name for name in added if name not in result.added_tool_names)
    if new:
        result = attrs.evolve(result, added_tool_names=result.added_tool_names + new)
    return ExecutedOutcome(result)


def finalize_executed_tool_call(
    context: AgentContext,
    assistant_message: AssistantMessage,
    prepared: PreparedToolCall,
    executed: ExecutedOutcome,
    *,
    hooks: Hooks,
    signal: AbortSignal,
) -> FinalizedOutcome:
    """Let `after_tool_call` change the result; never raises.

    Where the hook raises, its error is the result: it may be there to hide secrets, so what it failed on is not shown.
    """
    result, is_error = executed.result, executed.is_error
    if prepared.terminate:
        result = attrs.evolve(result, terminate=True)
    if hooks.after_tool_call is not None:
        try:
            shown = AfterToolCallContext(
                assistant_message,
                prepared.tool_call,
                thaw_json(prepared.args),
                result,
                is_error,
                context,
            )
            change = after_result(hooks.after_tool_call(shown, signal))
            if change is not None:
                result, is_error = change.apply(result, is_error=is_error)
        except BaseException as error:  # a hook may raise anything, and fails closed
            text = _exception_text(error)
            result, is_error = create_error_tool_result(text, terminate=prepared.terminate), True
    return FinalizedOutcome(prepared.tool_call, result, is_error)


def create_tool_result_message(finalized: FinalizedOutcome) -> ToolResultMessage:
    """Give the message that stands for a call's result in the history."""
    result = finalized.result
    return ToolResultMessage(
        finalized.tool_call.id,
        finalized.tool_call.name,
        result.content,
        result.details,
        result.usage,
        result.added_tool_names,
        finalized.is_error,
    )


def should_terminate(outcomes: Iterable[FinalizedOutcome]) -> bool:
    """Whether a batch asks the agent to stop: it is not empty and every result of it asks."""
    asked = [outcome.result.terminate for outcome in outcomes]
    return bool(asked) and all(asked)


def _failed(text: str) -> ImmediateOutcome:
    return ImmediateOutcome(create_error_tool_result(text))


def _failure_result(error: BaseException) -> AgentToolResult:
    """Give what a tool raised as a result: its content where it brought some, else its words."""
    if isinstance(error, ToolFailure) and error.content:
        try:
            return AgentToolResult(error.content, error.details)
        except Exception:  # the content is whatever the tool put there: then its words must do
            return create_error_tool_result(_exception_text(error))
    return create_error_tool_result(_exception_text(error))


def _unknown_tool(name: str, names: Iterable[str]) -> str:
    known = list(names)
    if not known:
        return f"Tool {name!r} not found: no tools are available"
    import difflib  # for a name that is wrong only

    near = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"Tool {name!r} not found{hint} Available tools: {', '.join(known)}"


def _exception_text(error: BaseException) -> str:
    """Give an exception in words for the model: a `ToolError` speaks for itself, any other names its class."""
    text = error_text(error)
    prefix = f"{type(error).__name__}: "
    return text.removeprefix(prefix) if isinstance(error, ToolError) else text
