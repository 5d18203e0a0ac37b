"""What a model is shown: an agent's context, and the part of it that goes into one request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs

from yiemagent.messages import AgentMessage, LlmMessage
from yiemagent.record import Record
from yiemagent.tool import AgentTool
from yiemagent.transcript import transcript

__all__ = ["AgentContext", "LlmContext", "tool_mapping"]


def tool_mapping(tools: Any) -> Mapping[str, AgentTool]:
    """Give tools as a read-only mapping by name, in their order.

    Args:
        tools: a mapping by name, an iterable of tools, or None.

    Raises:
        TypeError: where something in it is no `AgentTool`.
    """
    if isinstance(tools, MappingProxyType):
        return tools
    if tools is None:
        return _NO_TOOLS
    values: Iterable[Any] = tools.values() if isinstance(tools, Mapping) else tools
    named: dict[str, AgentTool] = {}
    for tool in values:
        if not isinstance(tool, AgentTool):
            raise TypeError(f"{tool!r} is no AgentTool; make one with AgentTool(...) or @tool")
        named[tool.name] = tool
    return MappingProxyType(named)


_NO_TOOLS: Mapping[str, AgentTool] = MappingProxyType({})


@attrs.frozen(eq=False, repr=False)
class AgentContext(Record):
    """A snapshot of a conversation: what the loop works on and the hooks are shown.

    Args:
        system_prompt: instructions for the model; empty for none.
        messages: the history, oldest first; any iterable, kept as a `Transcript`.
        tools: by name, in the order in which they are sent; a mapping or an iterable of tools.
    """

    system_prompt: str = ""
    messages: Sequence[AgentMessage] = attrs.field(default=(), converter=transcript)
    tools: Mapping[str, AgentTool] = attrs.field(default=None, converter=tool_mapping)


@attrs.frozen(eq=False, repr=False)
class LlmContext(Record):
    """What one request says: instructions, messages that a model understands, and the tools it may call.

    Args:
        system_prompt: instructions for the model; empty for none.
        messages: user, assistant and tool-result messages, oldest first, every call paired with its result.
        tools: in the order in which they are sent.
    """

    system_prompt: str = ""
    messages: Sequence[LlmMessage] = ()
    tools: Mapping[str, AgentTool] = attrs.field(default=None, converter=tool_mapping)
