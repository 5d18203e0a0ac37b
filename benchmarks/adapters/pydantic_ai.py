"""pydantic-ai: its FunctionModel with an asynchronous function, since a plain one is sent to a thread at each call."""

from __future__ import annotations

import workload
from adapters import events
from pydantic_ai import Agent, Tool
from pydantic_ai.messages import (
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
)
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RequestUsage, UsageLimits

NO_LIMITS = UsageLimits(request_limit=None)


def _tools(tools):
    return [Tool(t.function, name=t.name, takes_ctx=False) for t in tools]


def build(script, tools):
    async def model(_messages, _info):
        calls = await script.next_async()
        usage = RequestUsage(input_tokens=10, output_tokens=5)
        parts = [ToolCallPart(c.name, c.args_json, tool_call_id=c.id) for c in calls or ()]
        return ModelResponse(parts=parts or [TextPart(workload.FINAL)], usage=usage)

    return Agent(FunctionModel(model), instructions=workload.SYSTEM, tools=_tools(tools))


async def _run(agent):
    return (await agent.run(workload.PROMPT, usage_limits=NO_LIMITS)).output


def run(agent):
    return events.wait(_run(agent))


def run_all(agents):
    return events.gather(map(_run, agents))


def client(url, model, tools):
    chat = OpenAIChatModel(model, provider=OpenAIProvider(base_url=url, api_key="x"))
    agent = Agent(chat, instructions=workload.SYSTEM, tools=_tools(tools))
    seen = [0]

    async def handler(_context, stream):
        async for event in stream:
            if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                seen[0] += len(event.delta.content_delta)
            elif isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                seen[0] += len(event.part.content)

    def go():
        seen[0] = 0
        events.wait(
            agent.run(workload.PROMPT, event_stream_handler=handler, usage_limits=NO_LIMITS)
        )
        return seen[0]

    return go
