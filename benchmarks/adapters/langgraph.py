"""LangGraph through langchain's create_agent: a subclass of BaseChatModel."""

from __future__ import annotations

from typing import Any

import workload
from adapters import events
from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI

CONFIG = {"recursion_limit": 10**9}
PROMPT = {"messages": [{"role": "user", "content": workload.PROMPT}]}


class Fake(BaseChatModel):
    script: Any = None

    @property
    def _llm_type(self):
        return "bench-fake"

    def bind_tools(self, tools, **_):
        return self.bind(tools=tools)  # not converted: no other fake model converts either

    def _generate(self, *_, **__):
        return self._answer(self.script.next())

    async def _agenerate(self, *_, **__):
        return self._answer(await self.script.next_async())

    def _answer(self, calls):
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        told = [
            {"name": c.name, "args": c.args, "id": c.id, "type": "tool_call"} for c in calls or ()
        ]
        text = workload.FINAL if calls is None else ""
        message = AIMessage(content=text, usage_metadata=usage, tool_calls=told)
        return ChatResult(generations=[ChatGeneration(message=message)])


def _graph(model, tools):
    chosen = [
        StructuredTool.from_function(func=t.function, name=t.name, description=t.description)
        for t in tools
    ]
    return create_agent(model, tools=chosen, system_prompt=workload.SYSTEM)


def build(script, tools):
    return _graph(Fake(script=script), tools)


def run(graph):
    return graph.invoke(PROMPT, CONFIG)["messages"][-1].content


async def _run(graph):
    return (await graph.ainvoke(PROMPT, CONFIG))["messages"][-1].content


def run_all(graphs):
    return events.gather(map(_run, graphs))


def client(url, model, tools):
    graph = _graph(ChatOpenAI(model=model, base_url=url, api_key="x"), tools)

    async def stream():
        seen = 0
        async for message, _ in graph.astream(PROMPT, CONFIG, stream_mode="messages"):
            if isinstance(message, AIMessageChunk) and isinstance(message.content, str):
                seen += len(message.content)
        return seen

    return lambda: events.wait(stream())
