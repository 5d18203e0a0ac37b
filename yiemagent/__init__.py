"""Agents that use tools, in ordinary blocking Python.

Importing this package loads nothing: each name is fetched from its room when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yiemagent.abort import AbortSignal, Deadline
    from yiemagent.agent import Receipt, YiemAgent
    from yiemagent.api import (
        abort_agent,
        ask,
        continue_agent,
        follow_up,
        prompt_agent,
        run_agent,
        steer,
        stop_agent,
        take_response,
    )
    from yiemagent.context import AgentContext, LlmContext
    from yiemagent.errors import (
        AbortedError,
        AgentStateError,
        AgentStopped,
        AuthenticationError,
        BadResponseError,
        ChannelFull,
        ConfigurationError,
        ContextOverflowError,
        DuplicateTool,
        HttpError,
        HttpTimeout,
        InvalidArguments,
        LlmConnectionError,
        LlmError,
        McpError,
        McpProtocolError,
        McpTransportError,
        RateLimitError,
        ResponseTimeout,
        SessionError,
        ToolError,
        ToolLoadError,
        ToolNotFound,
        YiemAgentError,
    )
    from yiemagent.event_stream import (
        EventStream,
        agent_loop,
        agent_loop_continue,
        run_agent_loop,
    )
    from yiemagent.events import (
        AgentEndEvent,
        AgentStartEvent,
        Event,
        FallbackEvent,
        MessageEndEvent,
        MessageStartEvent,
        MessageUpdateEvent,
        NoticeEvent,
        RateGateEvent,
        RetryScheduledEvent,
        SinkFailedEvent,
        ToolExecEndEvent,
        ToolExecStartEvent,
        ToolExecUpdateEvent,
        ToolsChangedEvent,
        TurnEndEvent,
        TurnStartEvent,
    )
    from yiemagent.hooks import (
        AfterToolCallContext,
        AfterToolCallResult,
        BeforeToolCallContext,
        BeforeToolCallResult,
        NextTurn,
        TurnContext,
    )
    from yiemagent.llm import StreamFn, StreamOptions
    from yiemagent.loop import AgentLoopConfig
    from yiemagent.messages import (
        AssistantMessage,
        BashExecutionMessage,
        BranchSummaryMessage,
        CompactionSummaryMessage,
        CustomMessage,
        ImageContent,
        LlmModel,
        LlmUsage,
        TextContent,
        ThinkingContent,
        ToolCall,
        ToolResultMessage,
        UserMessage,
    )
    from yiemagent.registry import (
        ToolStore,
        builtin_tools_dir,
        clear_tools,
        get_tools,
        list_tool,
        load_tools,
        register_tool,
    )
    from yiemagent.signature import tool
    from yiemagent.state import AgentState
    from yiemagent.tool import AgentTool, AgentToolResult

_ROOMS = {
    "abort": ("AbortSignal", "Deadline",),
    "agent": ("Receipt", "YiemAgent",),
    "api": ("abort_agent", "ask", "continue_agent", "follow_up", "prompt_agent", "run_agent", "steer", "stop_agent", "take_response",),
    "context": ("AgentContext", "LlmContext",),
    "errors": ("AbortedError", "AgentStateError", "AgentStopped", "AuthenticationError", "BadResponseError", "ChannelFull", "ConfigurationError", "ContextOverflowError", "DuplicateTool", "HttpError", "HttpTimeout", "InvalidArguments", "LlmConnectionError", "LlmError", "McpError", "McpProtocolError", "McpTransportError", "RateLimitError", "ResponseTimeout", "SessionError", "ToolError", "ToolLoadError", "ToolNotFound", "YiemAgentError",),
    "event_stream": ("EventStream", "agent_loop", "agent_loop_continue", "run_agent_loop",),
    "events": ("AgentEndEvent", "AgentStartEvent", "Event", "FallbackEvent", "MessageEndEvent", "MessageStartEvent", "MessageUpdateEvent", "NoticeEvent", "RateGateEvent", "RetryScheduledEvent", "SinkFailedEvent", "ToolExecEndEvent", "ToolExecStartEvent", "ToolExecUpdateEvent", "ToolsChangedEvent", "TurnEndEvent", "TurnStartEvent",),
    "hooks": ("AfterToolCallContext", "AfterToolCallResult", "BeforeToolCallContext", "BeforeToolCallResult", "NextTurn", "TurnContext",),
    "llm": ("StreamFn", "StreamOptions",),
    "loop": ("AgentLoopConfig",),
    "messages": ("AssistantMessage", "BashExecutionMessage", "BranchSummaryMessage", "CompactionSummaryMessage", "CustomMessage", "ImageContent", "LlmModel", "LlmUsage", "TextContent", "ThinkingContent", "ToolCall", "ToolResultMessage", "UserMessage",),
    "registry": ("ToolStore", "builtin_tools_dir", "clear_tools", "get_tools", "list_tool", "load_tools", "register_tool",),
    "signature": ("tool",),
    "state": ("AgentState",),
    "tool": ("AgentTool", "AgentToolResult",),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}

__version__ = "0.1.0"
__all__ = sorted(_ROOM_OF)


def __getattr__(name: str) -> Any:
    room = _ROOM_OF.get(name)
    if room is None:
        raise AttributeError(f"module 'yiemagent' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"yiemagent.{room}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
