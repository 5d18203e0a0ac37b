"""The floor: the least Python that does the same work.

The answer of the script, `json.loads` of the arguments, a validator made once, the call, two messages appended; a
thread for each of several calls. Over HTTP: requests, `iter_lines` and `json.loads`.
"""

from __future__ import annotations

import json
import threading

import jsonschema
import wires
import workload

IMPORT = "import jsonschema, requests; jsonschema.Draft202012Validator"


def _call(call_id, name, arguments):
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


class Agent:
    def __init__(self, script, tools):
        self.script = script
        self.functions = {t.name: t.function for t in tools}
        self.validators = {t.name: jsonschema.Draft202012Validator(t.schema) for t in tools}
        self.messages = [{"role": "system", "content": workload.SYSTEM}]

    def one(self, name, arguments):
        args = json.loads(arguments)
        if not self.validators[name].is_valid(args):
            raise ValueError(arguments)
        return self.functions[name](**args)

    def run(self, prompt):
        messages, script = self.messages, self.script
        messages.append({"role": "user", "content": prompt})
        while (calls := script.next()) is not None:
            told = [_call(c.id, c.name, c.args_json) for c in calls]
            messages.append({"role": "assistant", "content": None, "tool_calls": told})
            alone = len(calls) == 1
            results = (
                [self.one(calls[0].name, calls[0].args_json)] if alone else self.together(calls)
            )
            for call, result in zip(calls, results, strict=True):
                content = str(result)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
        messages.append({"role": "assistant", "content": workload.FINAL})
        return workload.FINAL

    def together(self, calls):
        if len(calls) == 1:
            return [self.one(calls[0].name, calls[0].args_json)]
        results = [None] * len(calls)

        def work(i, call):
            results[i] = self.one(call.name, call.args_json)

        threads = [threading.Thread(target=work, args=pair) for pair in enumerate(calls)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results


build = Agent


def run(agent):
    return agent.run(workload.PROMPT)


def session():
    import requests

    made = requests.Session()
    made.trust_env = False
    return made


def lines(session, url, body):
    with session.post(url, json=body, stream=True) as response:
        yield from response.iter_lines()


def reader(url, api, model, lines=lines):
    """Read a stream of text of any API, and count its characters."""
    kept, wire = session(), wires.WIRES[api]
    address, body = url + wire.path.format(model=model), {"model": model, "stream": True}

    def go():
        seen = 0
        for line in lines(kept, address, body):
            if line.startswith(b"data: ") and line != b"data: [DONE]":
                seen += len(wire.text(json.loads(line[6:])))
        return seen

    return go


def client(url, model, tools, lines=lines):
    kept = session()
    agent = Agent(None, tools)
    specs = [
        {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.schema}}
        for t in tools
    ]  # fmt: skip

    def ask(messages, seen):
        pieces, call_id, name = [], None, None
        body = {"model": model, "messages": messages, "stream": True, "tools": specs}
        for line in lines(kept, f"{url}/chat/completions", body):
            if not line.startswith(b"data: "):
                continue
            data = line[6:]
            if data == b"[DONE]":
                break
            for choice in json.loads(data)["choices"]:
                delta = choice["delta"]
                if delta.get("content"):
                    seen[0] += len(delta["content"])
                for call in delta.get("tool_calls") or ():
                    if call.get("id"):
                        call_id, name = call["id"], call["function"]["name"]
                    pieces.append(call["function"]["arguments"])
        return call_id, name, "".join(pieces)

    def go():
        seen = [0]
        messages = [*agent.messages, {"role": "user", "content": workload.PROMPT}]
        while True:
            call_id, name, arguments = ask(messages, seen)
            if call_id is None:
                return seen[0]
            result = agent.one(name, arguments)
            told = [_call(call_id, name, arguments)]
            messages.append({"role": "assistant", "content": None, "tool_calls": told})
            messages.append({"role": "tool", "tool_call_id": call_id, "content": str(result)})

    return go
