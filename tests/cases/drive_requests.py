"""Histories as requests, and requests that a prompt cache must know again: the kind `request`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import attrs

from tests.cases import prose
from tests.cases.lines import api_of, request_for
from tests.cases.stage import Stage, body_answers
from tests.cases.vocabulary import history_of
from yiemagent.abort import AbortSignal
from yiemagent.remote_tools import fetch_tools

ROOT = Path(__file__).resolve().parent.parent.parent


def drive_history(case, name, data):
    """Send a neutral history through the loop to a server of each target, and check the request that comes."""
    expected = case.field(name) if case.has(name) else None
    messages = history_of(data["history"])
    for target, checks in _targets(case, expected):
        api = api_of(target)
        if api is None:
            case.problem(name, [f"can't drive the target {target}"])
            continue
        body, problems = request_for(api, messages, data.get("system", ""))
        case.problem(f"{name} {target}", problems)
        if isinstance(checks, dict):
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


def _field_problems(key, value, body):
    messages = [message for message in body["messages"] if message["role"] != "system"]
    roles = [message["role"] for message in messages]
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
