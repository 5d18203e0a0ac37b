"""strands-agents: a subclass of its Model, a stream of events; no callback handler, since the default one prints."""

from __future__ import annotations

import workload
from adapters import events
from strands import Agent, tool
from strands.models import Model
from strands.models.openai import OpenAIModel


class Fake(Model):
    def __init__(self, script):
        self.script = script

    def update_config(self, **_):
        pass

    def get_config(self):
        return {}

    async def structured_output(self, *_, **__):
        raise NotImplementedError
        yield

    async def stream(self, *_, **__):
        calls = await self.script.next_async()
        yield {"messageStart": {"role": "assistant"}}
        if calls is None:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": workload.FINAL}}}
            yield {"contentBlockStop": {}}
        for c in calls or ():
            use = {"name": c.name, "toolUseId": c.id}
            yield {"contentBlockStart": {"start": {"toolUse": use}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": c.args_json}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if calls is None else "tool_use"}}
        usage = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 0}}}


def _agent(model, tools):
    chosen = [tool(name=t.name, description=t.description)(t.function) for t in tools]
    return Agent(model=model, tools=chosen, system_prompt=workload.SYSTEM, callback_handler=None)


def build(script, tools):
    return _agent(Fake(script), tools)


async def _run(agent):
    return str(await agent.invoke_async(workload.PROMPT))


def run(agent):
    return events.wait(_run(agent))


def run_all(agents):
    return events.gather(map(_run, agents))


def client(url, model, tools):
    agent = _agent(
        OpenAIModel(client_args={"base_url": url, "api_key": "x"}, model_id=model), tools
    )

    async def stream():
        seen = 0
        async for event in agent.stream_async(workload.PROMPT):
            seen += len(event.get("data", ""))
        return seen

    return lambda: events.wait(stream())
