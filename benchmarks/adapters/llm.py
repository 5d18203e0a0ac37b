"""llm: `chain()` with tools; its own OpenAI chat model."""

from __future__ import annotations

import llm
import workload
from llm.default_plugins.openai_models import Chat


class Fake(llm.Model):
    model_id = "bench-fake"
    supports_tools = True
    can_stream = True

    def __init__(self, script):
        self.script = script

    def execute(self, prompt, stream, response, conversation=None):
        del prompt, stream, conversation  # called by name
        calls = self.script.next()
        response.set_usage(input=10, output=5)
        for call in calls or ():
            response.add_tool_call(
                llm.ToolCall(name=call.name, arguments=call.args, tool_call_id=call.id)
            )
        if calls is None:
            yield workload.FINAL


def _tools(tools):
    return [llm.Tool(t.name, t.description, t.schema, t.function) for t in tools]


def build(script, tools):
    return Fake(script).conversation(), _tools(tools)


def run(handle):
    conversation, tools = handle
    chain = conversation.chain(workload.PROMPT, system=workload.SYSTEM, tools=tools, chain_limit=0)
    return chain.text()


def client(url, model, tools):
    chat = Chat(model, api_base=url, supports_tools=True, can_stream=True)
    chosen = _tools(tools)

    def go():
        pieces = chat.conversation().chain(
            workload.PROMPT, system=workload.SYSTEM, tools=chosen, chain_limit=0, key="x"
        )
        return sum(map(len, pieces))

    return go
