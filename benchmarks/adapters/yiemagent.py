"""yiemagent: a live agent; where it streams, with a sink that is told of every piece."""

from __future__ import annotations

import importlib

import wires
import workload

from yiemagent import AgentTool, YiemAgent, run_agent, stop_agent, take_response
from yiemagent.abort import AbortSignal
from yiemagent.context import LlmContext
from yiemagent.events import MessageUpdateEvent
from yiemagent.llm import StreamOptions
from yiemagent.messages import AssistantMessage, ToolCall, UserMessage
from yiemagent.streaming import DoneEvent, TextDeltaEvent

IMPORT = "from yiemagent import YiemAgent, ToolStore, load_tools, run_agent, take_response"
FINAL = AssistantMessage(workload.FINAL)


def model_of(script):
    def stream(_context, _options, _signal):
        calls = script.next()
        message = FINAL
        if calls is not None:
            content = tuple([ToolCall(c.id, c.name, c.args) for c in calls])
            message = AssistantMessage(content, stop_reason="tool_use")
        yield DoneEvent(message)

    return stream


_tools = {}


def tool_of(definition):
    """The same tool for every agent, as an application has it."""
    kept = _tools.get(id(definition))
    if kept is None:
        function = definition.function
        tool = AgentTool(
            definition.name,
            description=definition.description,
            input_schema=definition.schema,
            execute=lambda _id, args, _signal, _update: str(function(**args)),
            parallel_tool_execute=True,
        )
        kept = _tools[id(definition)] = (definition, tool)
    return kept[1]


def build(script, tools):
    return YiemAgent(
        model_of(script),
        system_prompt=workload.SYSTEM,
        tools=[tool_of(t) for t in tools],
        max_turns=None,
    )


def run(agent):
    run_agent(agent, workload.PROMPT)
    return take_response(agent).text


def close(agent):
    stop_agent(agent)


def client(url, model, tools):
    from yiemagent.providers import OpenAIChat

    provider = OpenAIChat(model, base_url=url, api_key="x")
    return _asking(provider, [tool_of(t) for t in tools])


def _asking(provider, tools):
    seen = [0]

    def sink(event):
        if isinstance(event, MessageUpdateEvent):
            piece = event.stream_event
            if isinstance(piece, TextDeltaEvent):
                seen[0] += len(piece.delta)

    def go():
        seen[0] = 0
        agent = YiemAgent(
            provider,
            system_prompt=workload.SYSTEM,
            tools=tools,
            event_sink=sink,
            max_turns=None,
        )
        run_agent(agent, workload.PROMPT)
        answer = take_response(agent)
        if answer.failed:
            raise RuntimeError(answer.error_message)
        stop_agent(agent)
        return seen[0]

    return go


def provider_of(url, api, model):
    """The provider of an API, asking the benchmark's server."""
    wire = wires.WIRES[api]
    room = importlib.import_module(f"yiemagent.providers.{wire.room}")
    return getattr(room, wire.name)(model, base_url=url + wire.base, api_key="x")


def reader(url, api, model):
    """An agent whose sink counts the characters of a streamed text, over any API."""
    return _asking(provider_of(url, api, model), [])


def asker(url, api, model):
    """The provider alone; gives the whole answer of a stream."""
    provider = provider_of(url, api, model)
    context = LlmContext(workload.SYSTEM, [UserMessage(workload.PROMPT)])

    def go():
        last = None
        for event in provider(context, StreamOptions(), AbortSignal()):
            last = event
        if last.message.failed:
            raise RuntimeError(last.message.error_message)
        return last.message

    return go
