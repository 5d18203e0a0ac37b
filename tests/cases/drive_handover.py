"""What an answer's blocks become in the next request, to the same model, after saving, and to another."""

from __future__ import annotations

import json
import re

from tests.cases import prose
from tests.cases.lines import APIS, final_answer, line, request_for
from tests.cases.stage import Runs
from tests.cases.vocabulary import same
from tests.support.http_server import ScriptedServer, sse_answer
from yiemagent import AgentContext, AgentLoopConfig, UserMessage, run_agent_loop
from yiemagent.codec import from_json, to_json


def drive_replay(case):
    """Play each streamed answer, let its tools run, and check how the answer stands in the next request."""
    expected = case.field("next_request_assistant_content")
    for name in case.inputs(".sse"):
        data = (case.folder / name).read_bytes()
        api = "anthropic-messages" if data.startswith(b"event: message_start") else "openai-chat"
        body, history = _next_request(api, data)
        case.problem(name, _content_problems(expected, body))
        if case.has("then"):
            case.problem(name, prose.check("then", case.field("then"), body))
        if case.has("after_save_and_load"):
            words = case.field("after_save_and_load")
            case.problem(name, prose.check("after_save_and_load", words, (api, body, history)))
        if case.has("to_another_provider"):
            marks = {
                block[key] for block in expected for key in ("signature", "data") if key in block
            }
            others = [json.dumps(request_for(other, history)[0]) for other in APIS if other != api]
            words = case.field("to_another_provider")
            case.problem(name, prose.check("to_another_provider", words, (marks, others)))


def _next_request(api, data):
    """Give the request that follows an answer, and the history up to it."""
    names = re.findall(rb'"name":\s*"([A-Za-z0-9_-]{1,64})"', data)
    tools = [Runs().tool(name.decode()) for name in dict.fromkeys(names)]
    with ScriptedServer(sse_answer(data), final_answer(api)) as server:
        history = run_agent_loop(
            (UserMessage("Go."),),
            AgentContext("", (), tools),
            AgentLoopConfig(),
            lambda _: None,
            stream_fn=line(api, server),
        )
        return server.requests[1].json, history[:-1]


def content_of(body):
    """The content of the first answer in a request, without marks for caches."""
    content = next(m["content"] for m in body["messages"] if m["role"] == "assistant")
    return [{key: value for key, value in b.items() if key != "cache_control"} for b in content]


def _content_problems(expected, body):
    found = content_of(body)
    return [] if same(expected, found) else [f"the answer is sent as {found}"]


@prose.means("then", r"one user message with ((?:tool_result \w+|\w+|, )+) first")
def _(body, results):
    messages = body["messages"]
    place = next(n for n, message in enumerate(messages) if message["role"] == "assistant") + 1
    ids = re.findall(r"(?:tool_result |, )(\w+)", results)
    blocks = messages[place]["content"]
    if messages[place]["role"] != "user" or len(messages) != place + 1:
        yield f"the request goes on with {messages[place:]}"
    if [block.get("tool_use_id") for block in blocks[: len(ids)]] != ids:
        yield f"the message is {blocks}"


@prose.means("after_save_and_load", "same")
def _(given):
    api, body, history = given
    loaded = [from_json(json.loads(json.dumps(to_json(message)))) for message in history]
    again, _ = request_for(api, loaded, own=_marks(history))
    if content_of(again) != content_of(body):
        yield f"it is sent as {content_of(again)}"


def _marks(history):
    blocks = [block for message in history for block in message.content]
    return {getattr(block, "signature", None) for block in blocks}


@prose.means("to_another_provider", "no signature or redacted data is sent")
def _(given):
    marks, bodies = given
    for mark in marks:
        yield from (f"{mark!r} is in {body}" for body in bodies if mark in body)
