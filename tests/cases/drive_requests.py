"""Histories as requests, and requests that a prompt cache must know again: the kind `request`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import attrs

from tests.cases import left, prose
from tests.cases.stage import Stage, body_answers, done_answer, provider
from tests.cases.vocabulary import history_of, request_problems
from tests.support.http_server import ScriptedServer
from yiemagent import AgentContext, AgentLoopConfig, UserMessage, run_agent_loop
from yiemagent.abort import AbortSignal
from yiemagent.remote_tools import fetch_tools

ROOT = Path(__file__).resolve().parent.parent.parent


def drive_history(case, name, data):
    """Send a neutral history through the loop to a server, and check the request that comes."""
    expected = case.field(name) if case.has(name) else None
    targets = _targets(case, expected)
    messages = history_of(data["history"])
    body = _request(data.get("system", ""), messages)
    case.problem(name, request_problems(body))
    for target, checks in targets:
        if "anthropic" in target:
            case.leave(f"{name} for {target}", left.ANTHROPIC)
        elif "openai" not in target:
            case.problem(name, [f"can't drive the target {target}"])
        elif isinstance(checks, dict):
            for key, value in checks.items():
                case.problem(f"{name} {target}", _field_problems(key, value, body))
        else:
            for words in checks or ():
                case.problem(f"{name} {target}", prose.check("request", words, body))


def _targets(case, expected):
    """Give pairs of a target and its checks."""
    if expected is None:
        expected = {"target": case.field("target"), "checks": case.field("checks")}
    target, checks = expected["target"], expected.get("checks")
    if isinstance(target, dict):
        return list(target.items())
    names = [target] if isinstance(target, str) else target
    return [(name, checks.get(name) if isinstance(checks, dict) else checks) for name in names]


def _request(system, messages):
    prompts = () if not messages or messages[-1].role != "assistant" else (UserMessage("Go on."),)
    with ScriptedServer(done_answer()) as server:
        run_agent_loop(
            prompts,
            AgentContext(system, messages),
            AgentLoopConfig(),
            lambda _: None,
            stream_fn=provider(server),
        )
        body = server.requests[0].json
    if prompts:
        body["messages"].pop()
    return body


def _field_problems(key, value, body):
    roles = [message["role"] for message in body["messages"] if message["role"] != "system"]
    messages = [message for message in body["messages"] if message["role"] != "system"]
    if key == "roles":
        return [] if roles == value else [f"the roles are {roles}, expected {value}"]
    if key == "roles_subsequence":
        rest = iter(roles)
        return [] if all(role in rest for role in value) else [f"the roles are {roles}"]
    if key == "no_message_between":
        return prose.check(key, value, body)
    if found := re.fullmatch(r"message\[(\d+)\]", key):
        return prose.check("message", value, messages[int(found[1])])
    return [f"can't drive the field {key}"]


# -- prompt caches ----------------------------------------------------------------------------------------------------


@attrs.define
class Cache:
    """The requests of each listing's run, and the tools of one run by hash seed."""

    requests: list
    by_seed: dict


def drive_listings(case, name, data):
    """Run the turns with each listing of a server's tools, and in processes with other hash seeds."""
    listings = [data[key] for key in sorted(data) if key.startswith("listing_")]
    cache = Cache([_cached(listing, data["turns"]) for listing in listings], {})
    for seed in data.get("hash_seeds", ()):
        done = subprocess.run(
            [sys.executable, "-m", "tests.cases.drive_requests", str(case.folder / name)],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            timeout=60,
            check=True,
            text=True,
        )
        cache.by_seed[seed] = done.stdout
    for words in case.field("checks"):
        case.problem(name, prose.check("cache", words, cache))


def _cached(listing, turns):
    def server(method, *_):
        return (
            {"tools": listing}
            if method == "tools/list"
            else {"content": [{"type": "text", "text": "ok"}]}
        )

    tools = fetch_tools(server, AbortSignal())
    with Stage(body_answers(turns), tools, stream=False) as stage:
        stage.ask()
        return stage.requests


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    print(json.dumps(_cached(given["listing_1"], given["turns"])[0]["tools"]))
