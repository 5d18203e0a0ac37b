"""Agents that use tools, in ordinary blocking Python.

Every public name is here and listed in docs/api.md; `yiemagent.providers` (models) and `yiemagent.testing` (fakes for
your tests) are imported by their own names. Importing this package loads nothing: each name is fetched from its room
when it is first used.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yiemagent.abort import AbortSignal, Deadline
    from yiemagent.agent import YiemAgent
    from yiemagent.api import (
        abort_agent,
        ask,
        compact_agent,
        continue_agent,
        follow_up,
        prompt_agent,
        resume_agent,
        run_agent,
        steer,
        stop_agent,
        take_response,
    )
    from yiemagent.config import AgentLoopConfig
    from yiemagent.context import AgentContext, LlmContext
    from yiemagent.entry import Receipt
    from yiemagent.errors import (
        AbortedError,
        AgentStateError,
        AgentStopped,
        AuthenticationError,
        BadResponseError,
        ChannelFull,
        CompactionError,
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
        McpTimeout,
        McpTransportError,
        RateLimitError,
        ResponseTimeout,
        SessionError,
        ToolError,
        ToolFailure,
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
        CompactionEndEvent,
        CompactionStartEvent,
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
    from yiemagent.isolation import ProcessLimits
    from yiemagent.llm import StreamFn, StreamOptions
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
    from yiemagent.output import read_output
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
    "abort": (
        "AbortSignal",
        "Deadline",
    ),
    "agent": ("YiemAgent",),
    "entry": ("Receipt",),
    "api": (
        "abort_agent",
        "ask",
        "compact_agent",
        "continue_agent",
        "follow_up",
        "prompt_agent",
        "resume_agent",
        "run_agent",
        "steer",
        "stop_agent",
        "take_response",
    ),
    "context": (
        "AgentContext",
        "LlmContext",
    ),
    "errors": (
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
    ),
    "event_stream": (
        "EventStream",
        "agent_loop",
        "agent_loop_continue",
        "run_agent_loop",
    ),
    "events": (
        "AgentEndEvent",
        "AgentStartEvent",
        "CompactionEndEvent",
        "CompactionStartEvent",
        "Event",
        "FallbackEvent",
        "MessageEndEvent",
        "MessageStartEvent",
        "MessageUpdateEvent",
        "NoticeEvent",
        "RateGateEvent",
        "RetryScheduledEvent",
        "SinkFailedEvent",
        "ToolExecEndEvent",
        "ToolExecStartEvent",
        "ToolExecUpdateEvent",
        "ToolsChangedEvent",
        "TurnEndEvent",
        "TurnStartEvent",
    ),
    "hooks": (
        "AfterToolCallContext",
        "AfterToolCallResult",
        "BeforeToolCallContext",
        "BeforeToolCallResult",
        "NextTurn",
        "TurnContext",
    ),
    "isolation": ("ProcessLimits",),
    "llm": (
        "StreamFn",
        "StreamOptions",
    ),
    "config": ("AgentLoopConfig",),
    "messages": (
        "AssistantMessage",
        "BashExecutionMessage",
        "BranchSummaryMessage",
        "CompactionSummaryMessage",
        "CustomMessage",
        "ImageContent",
        "LlmModel",
        "LlmUsage",
        "TextContent",
        "ThinkingContent",
        "ToolCall",
        "ToolResultMessage",
        "UserMessage",
    ),
    "output": ("read_output",),
    "registry": (
        "ToolStore",
        "builtin_tools_dir",
        "clear_tools",
        "get_tools",
        "list_tool",
        "load_tools",
        "register_tool",
    ),
    "signature": ("tool",),
    "state": ("AgentState",),
    "tool": (
        "AgentTool",
        "AgentToolResult",
    ),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}

__version__ = "0.1.0"
__all__ = [
    "AbortSignal",
    "AbortedError",
    "AfterToolCallContext",
    "AfterToolCallResult",
    "AgentContext",
    "AgentEndEvent",
    "AgentLoopConfig",
    "AgentStartEvent",
    "AgentState",
    "AgentStateError",
    "AgentStopped",
    "AgentTool",
    "AgentToolResult",
    "AssistantMessage",
    "AuthenticationError",
    "BadResponseError",
    "BashExecutionMessage",
    "BeforeToolCallContext",
    "BeforeToolCallResult",
    "BranchSummaryMessage",
    "ChannelFull",
    "CompactionEndEvent",
    "CompactionError",
    "CompactionStartEvent",
    "CompactionSummaryMessage",
    "ConfigurationError",
    "ContextOverflowError",
    "CustomMessage",
    "Deadline",
    "DuplicateTool",
    "Event",
    "EventStream",
    "FallbackEvent",
    "HttpError",
    "HttpTimeout",
    "ImageContent",
    "InvalidArguments",
    "LlmConnectionError",
    "LlmContext",
    "LlmError",
    "LlmModel",
    "LlmUsage",
    "McpError",
    "McpProtocolError",
    "McpTimeout",
    "McpTransportError",
    "MessageEndEvent",
    "MessageStartEvent",
    "MessageUpdateEvent",
    "NextTurn",
    "NoticeEvent",
    "ProcessLimits",
    "RateGateEvent",
    "RateLimitError",
    "Receipt",
    "ResponseTimeout",
    "RetryScheduledEvent",
    "SessionError",
    "SinkFailedEvent",
    "StreamFn",
    "StreamOptions",
    "TextContent",
    "ThinkingContent",
    "ToolCall",
    "ToolError",
    "ToolExecEndEvent",
    "ToolExecStartEvent",
    "ToolExecUpdateEvent",
    "ToolFailure",
    "ToolLoadError",
    "ToolNotFound",
    "ToolResultMessage",
    "ToolStore",
    "ToolsChangedEvent",
    "TurnContext",
    "TurnEndEvent",
    "TurnStartEvent",
    "UserMessage",
    "YiemAgent",
    "YiemAgentError",
    "abort_agent",
    "agent_loop",
    "agent_loop_continue",
    "ask",
    "builtin_tools_dir",
    "clear_tools",
    "compact_agent",
    "continue_agent",
    "follow_up",
    "get_tools",
    "list_tool",
    "load_tools",
    "prompt_agent",
    "read_output",
    "register_tool",
    "resume_agent",
    "run_agent",
    "run_agent_loop",
    "steer",
    "stop_agent",
    "take_response",
    "tool",
]


def __getattr__(name: str) -> Any:
    room = _ROOM_OF.get(name)
    if room is None:
        raise AttributeError(f"module 'yiemagent' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"yiemagent.{room}"), name)
    globals()[name] = value
    return value


class _Package(ModuleType):
    """This package, whose public names stay what they are where a room has the same name: `tool` is the decorator."""

    def __setattr__(self, name: str, value: Any) -> None:
        # Importing a room sets it on its package; `from yiemagent.tool import …` does not need that.
        if not (name in _ROOM_OF and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return [*globals(), *__all__]
