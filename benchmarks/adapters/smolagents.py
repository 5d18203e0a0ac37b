"""smolagents: ToolCallingAgent with a subclass of its Model, console output off; it ends by its own final_answer."""

from __future__ import annotations

import json

import workload
from smolagents import LogLevel, Model, OpenAIModel, Tool, ToolCallingAgent
from smolagents.models import (
    ChatMessage,
    ChatMessageStreamDelta,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
)
from smolagents.monitoring import TokenUsage

NO_LIMIT = 10**9


def _call(name, arguments, call_id):
    function = ChatMessageToolCallFunction(arguments=arguments, name=name)
    return ChatMessageToolCall(function=function, id=call_id, type="function")


class Fake(Model):
    def __init__(self, script):
        super().__init__(model_id="fake")
        self.script = script

    def generate(self, *_, **__):
        calls = self.script.next()
        told = [_call(c.name, c.args_json, c.id) for c in calls or ()]
        if calls is None:
            told = [_call("final_answer", json.dumps({"answer": workload.FINAL}), "call_final")]
        return ChatMessage(
            role=MessageRole.ASSISTANT,
            content=None,
            tool_calls=told,
            token_usage=TokenUsage(input_tokens=10, output_tokens=5),
        )


_made = {}


def _tool(definition):
    """A Tool subclass around the shared function, since the decorator wants source that it can read."""
    kept = _made.get(definition.name)
    if kept is not None and kept[0] is definition:
        return kept[1]
    function = definition.function
    if "path" in definition.schema["properties"]:

        def forward(self, path: str, content: str) -> str:
            return function(path=path, content=content)
    else:

        def forward(self, a: int, b: int) -> int:
            return function(a=a, b=b)

    properties = definition.schema["properties"]
    kinds = {"integer": int, "string": str}
    forward.__annotations__ = {name: kinds[p["type"]] for name, p in properties.items()}
    fields = {
        "name": definition.name,
        "description": definition.description,
        "inputs": {name: dict(p) for name, p in properties.items()},
        "output_type": "string" if "path" in properties else "integer",
        "forward": forward,
    }
    tool = type(f"T_{definition.name}", (Tool,), fields)()
    _made[definition.name] = (definition, tool)
    return tool


def build(script, tools):
    return ToolCallingAgent(
        tools=[_tool(t) for t in tools],
        model=Fake(script),
        verbosity_level=LogLevel.OFF,
        max_steps=NO_LIMIT,
    )


def run(agent):
    return agent.run(workload.PROMPT)


def client(url, model, tools):
    agent = ToolCallingAgent(
        tools=[_tool(t) for t in tools],
        model=OpenAIModel(model_id=model, api_base=url, api_key="x"),
        verbosity_level=LogLevel.OFF,
        stream_outputs=True,
        # A plain text is no final answer to it: the run ends after one step.
        max_steps=NO_LIMIT if model.startswith("loop") else 1,
    )

    def go():
        return sum(
            len(event.content)
            for event in agent.run(workload.PROMPT, stream=True)
            if isinstance(event, ChatMessageStreamDelta) and event.content
        )

    return go
