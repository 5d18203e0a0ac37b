"""The streams of the APIs that the providers speak: what a server sends, and the least that a client does to read it.

`events` gives the events of an answer of N deltas, as the services send them; `text` takes one event's value apart, for
the floor. An API is named as messages carry it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import workload

USAGE = {"input_tokens": 10, "output_tokens": 20, "total_tokens": 30}


class Wire(NamedTuple):
    """One API.

    Args:
        room: of the provider, below `yiemagent.providers`.
        name: of its class.
        base: behind the server's address, for the provider.
        path: where the floor posts, below the server's address; {model} is the model's name.
        events: `(kind, n)` gives the events of an answer of n deltas: names ("" for none) and values.
        text: gives the text that an event's value brings.
        streams_arguments: whether the arguments of a call come in pieces.
    """

    room: str
    name: str
    base: str
    path: str
    events: Callable[[str, int], Iterator[tuple[str, Any]]] | None
    text: Callable[[Any], str]
    streams_arguments: bool = True


def render(wire: Wire, kind: str, n: int) -> bytes:
    """The chunked body of an answer, each event a chunk of its own."""
    assert wire.events is not None
    lines = [
        (f"event: {name}\n" if name else "")
        + f"data: {json.dumps(value, separators=(',', ':'))}\n\n"
        for name, value in wire.events(kind, n)
    ]
    encoded = [line.encode() for line in lines]
    return b"".join(b"%x\r\n%b\r\n" % (len(line), line) for line in encoded) + b"0\r\n\r\n"


def _pieces(kind: str, n: int) -> list[str]:
    if kind == "text":
        return [workload.text_token(i) for i in range(n)]
    return workload.argument_pieces(n)


# --- OpenAI chat, whose streams `server` renders


def _chat_text(value: Any) -> str:
    for choice in value["choices"]:
        return choice["delta"].get("content") or ""
    return ""


# --- Anthropic messages


def _messages(kind: str, n: int) -> Iterator[tuple[str, Any]]:
    usage = {"input_tokens": 10, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "bench"}
    values: list[Any] = [
        {"type": "message_start", "message": {**message, "content": [], "usage": usage}}
    ]
    block: Any = {"type": "text", "text": ""}
    delta, field = "text_delta", "text"
    if kind == "tool":
        block = {"type": "tool_use", "id": "toolu_1", "name": "write", "input": {}}
        delta, field = "input_json_delta", "partial_json"
    values.append({"type": "content_block_start", "index": 0, "content_block": block})
    values += [
        {"type": "content_block_delta", "index": 0, "delta": {"type": delta, field: piece}}
        for piece in _pieces(kind, n)
    ]
    reason = "tool_use" if kind == "tool" else "end_turn"
    values += [
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": 20},
        },
        {"type": "message_stop"},
    ]
    yield from ((value["type"], value) for value in values)


def _messages_text(value: Any) -> str:
    return value["delta"].get("text", "") if value["type"] == "content_block_delta" else ""


# --- OpenAI responses


def _responses(kind: str, n: int) -> Iterator[tuple[str, Any]]:
    pieces = _pieces(kind, n)
    values = [*_call_values(pieces)] if kind == "tool" else [*_text_values(pieces)]
    item = values[-1]["item"]
    response = {"id": "resp_1", "object": "response", "created_at": 1790000000, "model": "bench"}
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    ended = {**response, "status": "completed", "output": [item], "usage": USAGE}
    values.insert(0, {"type": "response.created", "response": begun})
    values.append({"type": "response.completed", "response": ended})
    for number, value in enumerate(values):
        yield value["type"], {**value, "sequence_number": number}


def _text_values(pieces: list[str]) -> Iterator[Any]:
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": "".join(pieces)}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    added = {**item, "status": "in_progress", "content": []}
    yield {"type": "response.output_item.added", "output_index": 0, "item": added}
    yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
    for piece in pieces:
        yield {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **at, "part": part}
    whole = {**item, "content": [part]}
    yield {"type": "response.output_item.done", "output_index": 0, "item": whole}


def _call_values(pieces: list[str]) -> Iterator[Any]:
    at = {"item_id": "fc_1", "output_index": 0}
    item = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "write"}
    added = {**item, "status": "in_progress", "arguments": ""}
    yield {"type": "response.output_item.added", "output_index": 0, "item": added}
    for piece in pieces:
        yield {"type": "response.function_call_arguments.delta", **at, "delta": piece}
    whole = "".join(pieces)
    yield {"type": "response.function_call_arguments.done", **at, "arguments": whole}
    done = {**item, "status": "completed", "arguments": whole}
    yield {"type": "response.output_item.done", "output_index": 0, "item": done}


def _responses_text(value: Any) -> str:
    return value["delta"] if value["type"] == "response.output_text.delta" else ""


# --- Gemini


def _gemini(kind: str, n: int) -> Iterator[tuple[str, Any]]:
    parts: list[Any] = [{"text": piece} for piece in _pieces("text", n)]
    if kind == "tool":
        arguments = json.loads("".join(_pieces(kind, n)))
        parts = [{"functionCall": {"name": "write", "args": arguments}}]
    usage = {"promptTokenCount": 10, "totalTokenCount": 30, "candidatesTokenCount": 20}
    for number, part in enumerate(parts, 1):
        candidate: Any = {"content": {"parts": [part], "role": "model"}, "index": 0}
        if number == len(parts):
            candidate["finishReason"] = "STOP"
        value = {"candidates": [candidate], "usageMetadata": usage}
        yield "", {**value, "modelVersion": "bench", "responseId": "r1"}


def _gemini_text(value: Any) -> str:
    return "".join(part.get("text", "") for part in value["candidates"][0]["content"]["parts"])


WIRES = {
    "openai-chat": Wire(
        "openai_chat",
        "OpenAIChat",
        "/v1",
        "/v1/chat/completions",
        None,
        _chat_text,
    ),
    "anthropic-messages": Wire(
        "anthropic_messages",
        "AnthropicMessages",
        "",
        "/v1/messages",
        _messages,
        _messages_text,
    ),
    "openai-responses": Wire(
        "openai_responses",
        "OpenAIResponses",
        "/v1",
        "/v1/responses",
        _responses,
        _responses_text,
    ),
    "gemini": Wire(
        "gemini",
        "Gemini",
        "/v1beta",
        "/v1beta/models/{model}:streamGenerateContent?alt=sse",
        _gemini,
        _gemini_text,
        streams_arguments=False,
    ),
}


def api_of(path: str) -> str:
    """The API that a request's path belongs to."""
    for api, wire in WIRES.items():
        if path.startswith(wire.path.partition("{")[0]):
            return api
    raise ValueError(path)
