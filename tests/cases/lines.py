"""The APIs that a case may name as its target: what each is sent for a history, and what its server would refuse."""

from __future__ import annotations

from tests.support import wire_answers, wire_rules
from tests.support.http_server import ScriptedServer, sse_answer
from yiemagent import AgentContext, AgentLoopConfig, UserMessage, run_agent_loop
from yiemagent.providers import create

# By words of a target's name, the first that fits: the API, and the provider that speaks it.
_NAMES = {
    "anthropic": ("anthropic-messages", "anthropic"),
    "gemini": ("gemini", "gemini"),
    "google": ("gemini", "gemini"),
    "responses": ("openai-responses", "openai-responses"),
    "openai": ("openai-chat", "openai"),
}
_FAULTS = {
    "anthropic-messages": wire_rules.anthropic_faults,
    "gemini": wire_rules.gemini_faults,
    "openai-responses": wire_rules.responses_faults,
    "openai-chat": wire_rules.chat_faults,
}
APIS = tuple(_FAULTS)
MODEL = "test-model"


def api_of(target):
    """The API that a target names, or None."""
    return next((api for word, (api, _) in _NAMES.items() if word in target), None)


def line(api, server, **options):
    """Give the provider of an API before a scripted server."""
    name = next(name for known, name in _NAMES.values() if known == api)
    return create(name, MODEL, base_url=f"{server.url}/v1", api_key="sk-test", **options)


def final_answer(api):
    """Give the answer of an API's server that ends a run."""
    return sse_answer(wire_answers.FINAL[api]())


def request_for(api, messages, system="", tools=(), own=frozenset()):
    """Send a history through the loop to a server of an API.

    Gives the body of the request that comes, without a user message that had to be added behind an answer, and what
    the API's server would refuse in it.
    """
    added = not messages or messages[-1].role == "assistant"
    with ScriptedServer(final_answer(api)) as server:
        run_agent_loop(
            (UserMessage("Go on."),) if added else (),
            AgentContext(system, messages, tools),
            AgentLoopConfig(),
            lambda _: None,
            stream_fn=line(api, server),
        )
        body = server.requests[0].json
    faults = _FAULTS[api](body, own)
    if added:
        key = {"openai-responses": "input", "gemini": "contents"}.get(api, "messages")
        body[key].pop()
    return body, faults


def definitions_for(api, tools):
    """Give the definitions of tools as an API's server gets them."""
    return request_for(api, (UserMessage("Go."),), tools=tools)[0]["tools"]
