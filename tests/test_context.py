"""What a model is shown."""

from __future__ import annotations

from types import MappingProxyType

import attrs
import pytest

from yiemagent.context import AgentContext, LlmContext, tool_mapping
from yiemagent.messages import UserMessage
from yiemagent.tool import AgentTool
from yiemagent.transcript import Transcript

A, B = (AgentTool(name, description="d", execute=lambda *_: None) for name in "ab")


@pytest.mark.parametrize("tools", [{"x": B, "y": A}, [B, A], (B, A), iter([B, A])])
def test_tools_are_a_read_only_mapping_in_order(tools):
    """A mapping or an iterable of tools is taken, and named by the tools' own names."""
    mapping = tool_mapping(tools)

    assert list(mapping.items()) == [("b", B), ("a", A)]
    with pytest.raises(TypeError):
        mapping["c"] = A


def test_a_mapping_that_is_read_only_is_kept():
    """A snapshot of a store is the same object in every context, so that caches per mapping hold."""
    snapshot = MappingProxyType({"a": A})

    assert AgentContext(tools=snapshot).tools is snapshot
    assert LlmContext(tools=snapshot).tools is snapshot
    assert tool_mapping(None) is tool_mapping(None)
    assert tool_mapping(None) == {}


def test_what_is_no_tool_is_refused():
    """The error names it and says how to make a tool."""
    with pytest.raises(TypeError, match="'a' is no AgentTool; make one"):
        tool_mapping(["a"])


def test_a_context_keeps_its_messages_as_a_history():
    """Any iterable becomes a Transcript; one that is one stays the same object."""
    history = Transcript([UserMessage("hi")])

    assert AgentContext("", list(history)).messages == history
    assert AgentContext("", history).messages is history
    assert isinstance(AgentContext("", iter(history)).messages, Transcript)
    assert AgentContext().messages == ()


def test_a_context_cannot_change():
    """A hook that wants another context makes one."""
    for context in (AgentContext("s"), LlmContext("s")):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            context.system_prompt = "other"
        assert attrs.evolve(context, system_prompt="other").system_prompt == "other"
