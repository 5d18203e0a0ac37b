"""A request to a model in words that compare: what the model sees, and nothing that differs from run to run."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from yiemagent import codec
from yiemagent.context import LlmContext
from yiemagent.llm import StreamOptions
from yiemagent.messages import LlmMessage, model_id
from yiemagent.testing.secrets import REMOVED

__all__ = ["difference", "request_json"]

_OPTIONS = (
    "reasoning",
    "thinking_budgets",
    "temperature",
    "max_tokens",
    "tool_choice",
    "output_schema",
)
_SEEN = ("role", "content", "tool_call_id", "tool_name", "is_error")
_AROUND = 30  # characters of a long text that are shown around the first that differs


def request_json(context: LlmContext, options: StreamOptions) -> dict[str, Any]:
    """Give what a request says as JSON values.

    Times, usage and details of messages are left out, since no model sees them; ids of calls are counted, since many
    are made at random; images are there by their hash.
    """
    chosen = {name: getattr(options, name) for name in _OPTIONS}
    request = {
        "model": model_id(options.model) or None,
        **chosen,
        "system_prompt": context.system_prompt,
        "messages": _messages(context.messages),
        "tools": [
            {"name": t.name, "description": t.description, "input_schema": t.input_schema}
            for t in context.tools.values()
        ],
    }
    said = {name: value for name, value in request.items() if value not in (None, {}, [], "")}
    plain: dict[str, Any] = json.loads(json.dumps(said, default=str))
    return plain


def _messages(messages: Sequence[LlmMessage]) -> list[dict[str, Any]]:
    counter = itertools.count(1)
    numbers: dict[str, str] = {}

    def counted(call_id: str) -> str:
        if call_id not in numbers:
            numbers[call_id] = f"call {next(counter)}"
        return numbers[call_id]

    told = []
    for message in messages:
        written = codec.to_json(message)
        seen = {name: written[name] for name in _SEEN if name in written}
        seen["content"] = [_block(block, counted) for block in written.get("content", ())]
        if "tool_call_id" in seen:
            seen["tool_call_id"] = counted(seen["tool_call_id"])
        told.append(seen)
    return told


def _block(block: dict[str, Any], counted: Any) -> dict[str, Any]:
    if block["type"] == "toolCall":
        return {**block, "id": counted(block["id"])}
    if block["type"] == "image":
        return {**block, "data": f"sha256 {hashlib.sha256(block['data'].encode()).hexdigest()}"}
    return block


def difference(recorded: Any, given: Any, path: str = "") -> str | None:
    """Say where a request first differs from a recorded one, or None where it is the same.

    `REMOVED` in a recorded text stands for anything.
    """
    if isinstance(recorded, Mapping) and isinstance(given, Mapping):
        for name in (*recorded, *(name for name in given if name not in recorded)):
            where = f"{path}.{name}" if path else str(name)
            if name not in given or name not in recorded:
                return (
                    f"{where}: {_side(recorded, name)} was recorded, {_side(given, name)} is asked"
                )
            if found := difference(recorded[name], given[name], where):
                return found
        return None
    if isinstance(recorded, list) and isinstance(given, list):
        for number, pair in enumerate(zip(recorded, given, strict=False)):
            if found := difference(*pair, f"{path}[{number}]"):
                return found
        if len(recorded) != len(given):
            return f"{path}: {len(recorded)} were recorded, {len(given)} are asked"
        return None
    if recorded == given or (isinstance(recorded, str) and _fits(recorded, given)):
        return None
    shown, asked = _short(recorded, given), _short(given, recorded)
    return f"{path}: {shown} was recorded, {asked} is asked"


def _fits(recorded: str, given: Any) -> bool:
    if REMOVED not in recorded or not isinstance(given, str):
        return False
    pattern = ".*".join(re.escape(piece) for piece in recorded.split(REMOVED))
    return re.fullmatch(pattern, given, re.DOTALL) is not None


def _side(values: Mapping[str, Any], name: str) -> str:
    return _short(values[name], None) if name in values else "nothing"


def _short(value: Any, other: Any) -> str:
    """Show a value; of a long text the part around the first character that differs."""
    if not isinstance(value, str) or len(value) <= 2 * _AROUND:
        text = repr(value)
        return text if len(text) <= 4 * _AROUND else f"{text[: 4 * _AROUND]}…"
    pairs = zip(value, other if isinstance(other, str) else "", strict=False)
    at = next((number for number, (a, b) in enumerate(pairs) if a != b), len(str(other or "")))
    start, end = max(0, at - _AROUND), at + _AROUND
    left, right = "…" if start else "", "…" if end < len(value) else ""
    return f"{left}{value[start:end]!r}{right}"
