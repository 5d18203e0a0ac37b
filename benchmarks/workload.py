"""What every adapter is given: a scripted model, tools, payloads. Standard library only.

An adapter turns these neutral objects into its framework's own. The script costs the same at every turn and looks at no
history, so a cost per turn that grows is the framework's.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

SYSTEM = "You are a helpful assistant."
PROMPT = "Please add the numbers."
FINAL = "done"
ARGS = {"a": 1, "b": 2}
ARGS_JSON = json.dumps(ARGS)
NAP_S = 0.050
CHARS_PER_TOKEN = 4

CALLS = itertools.count()  # every tool ticks it, which is atomic; see `calls_made`
WRITTEN: list[int] = []  # lengths of what the tool `write` was given
_seen = [0]


def calls_made() -> int:
    """How many tool calls ran since this was last asked."""
    now = next(CALLS)
    made, _seen[0] = now - _seen[0], now + 1
    return made


class Call(NamedTuple):
    id: str
    name: str
    args_json: str
    args: dict[str, Any]


class Script:
    """The fake model: `turns` answers of `k` calls each, then the text FINAL."""

    __slots__ = ("delay_s", "done", "k", "tool", "turns")

    def __init__(self, turns: int, k: int = 1, tool: str = "add", delay_s: float = 0.0) -> None:
        self.turns, self.k, self.tool, self.delay_s, self.done = turns, k, tool, delay_s, 0

    def next(self) -> list[Call] | None:
        """The next answer: calls, or None for the final text."""
        if self.delay_s:
            time.sleep(self.delay_s)
        return self._next()

    async def next_async(self) -> list[Call] | None:
        """The same inside an event loop."""
        import asyncio

        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        return self._next()

    def _next(self) -> list[Call] | None:
        turn, self.done = self.done, self.done + 1
        if turn >= self.turns:
            return None
        return [Call(f"call_{turn}_{j}", self.tool, ARGS_JSON, dict(ARGS)) for j in range(self.k)]


class ToolDef(NamedTuple):
    name: str
    description: str
    schema: dict[str, Any]
    function: Callable[..., Any]  # typed and documented, for frameworks that read the signature


def _schema(**properties: tuple[str, str]) -> dict[str, Any]:
    described = {name: {"type": t, "description": d} for name, (t, d) in properties.items()}
    return {"type": "object", "properties": described, "required": list(properties)}


TWO_NUMBERS = _schema(a=("integer", "first number"), b=("integer", "second number"))
A_FILE = _schema(path=("string", "where to write"), content=("string", "what to write"))


def _tool(name: str, text: str, schema: dict[str, Any], function: Callable[..., Any]) -> ToolDef:
    described = schema["properties"].items()
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{text}\n\nArgs:\n" + "".join(
        f"    {n}: {p['description']}\n" for n, p in described
    )
    # Real types: this module postpones its annotations, as a user's own would not.
    kinds = {"integer": int, "string": str}
    types = {n: kinds[p["type"]] for n, p in described}
    function.__annotations__ = {**types, "return": types[next(iter(types))]}
    return ToolDef(name, text, schema, function)


def add_tool(name: str = "add") -> ToolDef:
    def function(a: int, b: int) -> int:
        next(CALLS)
        return a + b

    return _tool(name, "Add two integers.", TWO_NUMBERS, function)


def nap_tool() -> ToolDef:
    def function(a: int, b: int) -> int:
        next(CALLS)
        time.sleep(NAP_S)
        return a + b

    return _tool("nap", "Sleep 50 ms, then add two integers.", TWO_NUMBERS, function)


def write_tool() -> ToolDef:
    def function(path: str, content: str) -> str:
        next(CALLS)
        WRITTEN.append(len(content))
        return path

    return _tool("write", "Write a text file.", A_FILE, function)


def many_tools(count: int) -> list[ToolDef]:
    return [add_tool(f"tool_{i:03d}") for i in range(count)]


# --- what the server streams


def text_token(i: int) -> str:
    return f"{i % 1000:03d} "  # varied, since some clients stop on a token that repeats


def argument_pieces(chunks: int) -> list[str]:
    """JSON arguments for `write`, about 20 characters a chunk, with quotes and escapes in them."""
    line = 'def f_%d(x, y="a\\b"):\n    return {"k": [x, y, %d]}\n'
    content = "".join(line % (i, i) for i in range(max(1, chunks * 20 // 64)))
    raw = json.dumps({"path": "/srv/x.py", "content": content})
    cuts = [len(raw) * i // chunks for i in range(chunks + 1)]
    return [raw[start:end] for start, end in itertools.pairwise(cuts)]


def written_length(chunks: int) -> int:
    return len(json.loads("".join(argument_pieces(chunks)))["content"])
