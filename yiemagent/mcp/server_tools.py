"""Tools of a store as a server runs them: by the pipeline that agents use, one call at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yiemagent.abort import AbortSignal
from yiemagent.batch import execute_tool_calls
from yiemagent.config import AgentLoopConfig
from yiemagent.context import AgentContext
from yiemagent.events import Event, ToolExecEndEvent, ToolExecUpdateEvent
from yiemagent.hooks import Hooks
from yiemagent.mcp.caller import McpCaller
from yiemagent.mcp.jsonrpc import INVALID_PARAMS
from yiemagent.mcp.server_protocol import Call, RpcFailure
from yiemagent.mcp.server_results import StructuredOutput, call_result
from yiemagent.mcp.turns import Turns
from yiemagent.messages import AssistantMessage, ToolCall
from yiemagent.pool import DaemonPool
from yiemagent.registry import ToolStore
from yiemagent.relay import finish
from yiemagent.tool import AgentTool

__all__ = ["ToolRunner"]


class ToolRunner:
    """Runs the tools of a store for clients.

    Tools that may run beside others do, up to `max_parallel_tools`; of the rest one runs at a time.

    Args:
        store: the tools.
        hooks: `before_tool_call` and `after_tool_call` are called, as in an agent; the message that they are shown
            holds the one call.
        pool: the tools' threads.
        max_parallel_tools: how many calls run at once; more wait for their turn.
        abort_grace_s: how long a cancelled tool is waited for.
    """

    def __init__(
        self,
        store: ToolStore,
        hooks: Hooks,
        pool: DaemonPool,
        *,
        max_parallel_tools: int,
        abort_grace_s: float,
    ) -> None:
        self._store = store
        self._pool = pool
        self._config = AgentLoopConfig(
            before_tool_call=hooks.before_tool_call,
            after_tool_call=hooks.after_tool_call,
            max_parallel_tools=max_parallel_tools,
            abort_grace_s=abort_grace_s,
        )
        self._places = Turns(max_parallel_tools)
        self._alone = Turns(1)
        # By name, with the tool that they were made for; written by whoever comes first, since each is as good.
        self._outputs: dict[str, tuple[AgentTool, StructuredOutput | None]] = {}

    def run(self, call: Call, caller: McpCaller, signal: AbortSignal) -> dict[str, Any]:
        """Run the tool of a `tools/call` and give the result.

        Raises:
            RpcFailure: there is no such tool, or the parameters are no call of one.
            AbortedError: cancelled before it began.
        """
        name, arguments = call.params.get("name"), call.params.get("arguments")
        if not isinstance(name, str):
            raise RpcFailure(INVALID_PARAMS, "tools/call must name a tool")
        if arguments is not None and not isinstance(arguments, dict):
            raise RpcFailure(INVALID_PARAMS, f"the arguments of {name!r} must be an object")
        tools = self._store.snapshot()
        tool = tools.get(name)
        tool_call = ToolCall(str(call.id), name, arguments or {})
        if tool is None:
            end = self._execute(tools, tool_call, caller, signal)
            raise RpcFailure(INVALID_PARAMS, end.result.text)
        with (self._places if tool.parallel_tool_execute else self._alone).turn(signal):
            end = self._execute(tools, tool_call, caller, signal)
        if caller.failure is not None:
            raise caller.failure
        if caller.needed:
            return {}
        return call_result(
            end.result,
            caller.content,
            self._output(tool),
            is_error=end.is_error,
            version=call.version,
        )

    def _execute(
        self,
        tools: Mapping[str, AgentTool],
        tool_call: ToolCall,
        caller: McpCaller,
        signal: AbortSignal,
    ) -> ToolExecEndEvent:
        ends: list[ToolExecEndEvent] = []

        def emit(event: Event) -> None:
            if isinstance(event, ToolExecUpdateEvent):
                caller.partial(event.partial_result)
            elif isinstance(event, ToolExecEndEvent):
                ends.append(event)

        message = AssistantMessage((tool_call,), api="mcp", stop_reason="tool_use")
        context = AgentContext(messages=(message,), tools=tools)
        steps = execute_tool_calls(context, message, self._config, signal, emit, pool=self._pool)
        finish(steps, self._pool.start, signal=signal, grace_s=self._config.abort_grace_s)
        return ends[0]

    def _output(self, tool: AgentTool) -> StructuredOutput | None:
        held = self._outputs.get(tool.name)
        if held is None or held[0] is not tool:
            output = None if tool.output_schema is None else StructuredOutput(tool)
            held = self._outputs[tool.name] = (tool, output)
        return held[1]
