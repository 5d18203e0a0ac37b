"""openai-agents: a subclass of its Model; tracing off, since it would export over the network."""

from __future__ import annotations

import agents
import workload
from adapters import events
from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool
from agents.items import ModelResponse
from agents.usage import Usage
from openai import AsyncOpenAI
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

agents.set_tracing_disabled(True)
NO_LIMIT = 10**9


class Fake(agents.Model):
    def __init__(self, script):
        self.script = script

    async def get_response(self, *_, **__):
        calls = await self.script.next_async()
        output = [
            ResponseFunctionToolCall(
                type="function_call",
                id=f"fc_{c.id}",
                call_id=c.id,
                name=c.name,
                arguments=c.args_json,
                status="completed",
            )
            for c in calls or ()
        ]
        if calls is None:
            text = ResponseOutputText(
                type="output_text", text=workload.FINAL, annotations=[], logprobs=[]
            )
            output = [
                ResponseOutputMessage(
                    id="msg_1", type="message", role="assistant", status="completed", content=[text]
                )
            ]
        usage = Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)
        return ModelResponse(output=output, usage=usage, response_id=None)

    def stream_response(self, *_, **__):
        raise NotImplementedError


def _agent(model, tools):
    chosen = [function_tool(t.function, name_override=t.name) for t in tools]
    return Agent(name="bench", instructions=workload.SYSTEM, model=model, tools=chosen)


def build(script, tools):
    return _agent(Fake(script), tools)


async def _run(agent):
    return (await Runner.run(agent, workload.PROMPT, max_turns=NO_LIMIT)).final_output


def run(agent):
    return events.wait(_run(agent))


def run_all(handles):
    return events.gather(map(_run, handles))


def client(url, model, tools):
    openai = AsyncOpenAI(base_url=url, api_key="x")
    agent = _agent(OpenAIChatCompletionsModel(model=model, openai_client=openai), tools)

    async def stream():
        seen = 0
        result = Runner.run_streamed(agent, workload.PROMPT, max_turns=NO_LIMIT)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and (
                event.data.type == "response.output_text.delta"
            ):
                seen += len(event.data.delta)
        return seen

    return lambda: events.wait(stream())
