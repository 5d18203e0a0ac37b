"""Streamed answers of each model API that hold all that must be handed on: thinking, marks, text and calls.

Each function takes a number, which is in every id and mark so that two answers differ as a server's would, and gives
the body of the stream. What is opaque begins with the API's name.
"""

from __future__ import annotations

import json

from yiemagent.testing import sse

__all__ = ["ANSWERS", "FINAL"]

TOOL_ARGUMENTS = {"what": "ü"}


def _named(events):
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), json.dumps(event).encode())
        for event in events
    )


# --- Anthropic -------------------------------------------------------------------------------------------------------


def _anthropic(blocks, stop):
    usage = {"input_tokens": 9, "output_tokens": 1}
    about = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    events = [{"type": "message_start", "message": {**about, "stop_reason": None, "usage": usage}}]
    for index, (block, deltas) in enumerate(blocks):
        begin = {"type": "content_block_start", "index": index, "content_block": block}
        events += [
            begin,
            *({"type": "content_block_delta", "index": index, "delta": d} for d in deltas),
        ]
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": stop, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": 9}})
    return _named([*events, {"type": "message_stop"}])


def anthropic(number):
    """Thinking, redacted thinking, text, a call, thinking of which only the signature is told, and another call."""
    mark = f"anthropic-{number}"
    thinking = {"type": "thinking", "thinking": "", "signature": ""}
    return _anthropic(
        [
            (
                thinking,
                [
                    {"type": "thinking_delta", "thinking": "Let me look."},
                    {"type": "signature_delta", "signature": f"{mark}-a"},
                ],
            ),
            ({"type": "redacted_thinking", "data": f"{mark}-b"}, []),
            ({"type": "text", "text": ""}, [{"type": "text_delta", "text": "I look."}]),
            _anthropic_call(f"toolu_{number}a"),
            (thinking, [{"type": "signature_delta", "signature": f"{mark}-c"}]),
            _anthropic_call(f"toolu_{number}b"),
        ],
        "tool_use",
    )


def _anthropic_call(call_id):
    block = {"type": "tool_use", "id": call_id, "name": "look", "input": {}}
    return block, [{"type": "input_json_delta", "partial_json": json.dumps(TOOL_ARGUMENTS)}]


def anthropic_final():
    """Text alone."""
    return _anthropic(
        [({"type": "text", "text": ""}, [{"type": "text_delta", "text": "Done."}])], "end_turn"
    )


# --- OpenAI chat -----------------------------------------------------------------------------------------------------


def _chat(delta, finish):
    about = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m"}
    choices = [
        {"index": 0, "delta": delta, "finish_reason": None},
        {"index": 0, "delta": {}, "finish_reason": finish},
    ]
    return sse(*({**about, "choices": [choice]} for choice in choices))


def chat(number, ids=("functions.look:0", "functions.look:1")):
    """Thinking, text and two calls, with ids that begin anew in each answer, as some servers give them."""
    calls = [
        {
            "index": index,
            "id": call_id,
            "type": "function",
            "function": {"name": "look", "arguments": json.dumps(TOOL_ARGUMENTS)},
        }
        for index, call_id in enumerate(ids)
    ]
    delta = {"role": "assistant", "content": f"I look {number}.", "tool_calls": calls}
    return _chat({**delta, "reasoning_content": "Let me look."}, "tool_calls")


def mistral(number):
    """As `chat`, with ids as Mistral's server gives them."""
    return chat(number, [f"D681PevK{number}", f"a9f3bC0x{number}"])


def chat_final():
    """Text alone."""
    return _chat({"role": "assistant", "content": "Done."}, "stop")


# --- OpenAI Responses ------------------------------------------------------------------------------------------------


def _responses(items):
    about = {"id": "resp_1", "object": "response", "model": "m"}
    events = [{"type": "response.created", "response": {**about, "status": "in_progress"}}]
    for place, item in enumerate(items):
        for kind in ("added", "done"):
            events.append(
                {"type": f"response.output_item.{kind}", "output_index": place, "item": item}
            )
    whole = {**about, "status": "completed", "output": items}
    whole["usage"] = {"input_tokens": 9, "output_tokens": 9, "total_tokens": 18}
    return _named([*events, {"type": "response.completed", "response": whole}])


def _responses_text(item_id, text):
    part = {"type": "output_text", "text": text, "annotations": []}
    about = {"type": "message", "id": item_id, "role": "assistant", "status": "completed"}
    return {**about, "content": [part]}


def _responses_call(number, letter):
    about = {"type": "function_call", "status": "completed", "name": "look"}
    arguments = json.dumps(TOOL_ARGUMENTS)
    # An id as long as the API gives them, and longer than some others take.
    call_id = f"call_{number}{letter}_" + "0" * 48
    return {**about, "id": f"fc_{number}{letter}", "call_id": call_id, "arguments": arguments}


def responses(number):
    """Encrypted reasoning, text and a call, then reasoning without a summary and another call."""
    summary = [{"type": "summary_text", "text": "Let me look."}]
    return _responses(
        [
            {
                "type": "reasoning",
                "id": f"rs_{number}a",
                "summary": summary,
                "encrypted_content": f"responses-{number}-a",
            },
            _responses_text(f"msg_{number}", "I look."),
            _responses_call(number, "a"),
            {
                "type": "reasoning",
                "id": f"rs_{number}b",
                "summary": [],
                "encrypted_content": f"responses-{number}-b",
            },
            _responses_call(number, "b"),
        ]
    )


def responses_final():
    """Text alone."""
    return _responses([_responses_text("msg_done", "Done.")])


# --- Gemini ----------------------------------------------------------------------------------------------------------


def _gemini(*parts):
    content = {"role": "model", "parts": list(parts)}
    candidate = {"content": content, "index": 0, "finishReason": "STOP"}
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 9, "totalTokenCount": 18}
    value = {
        "candidates": [candidate],
        "usageMetadata": usage,
        "modelVersion": "m",
        "responseId": "r",
    }
    return b"data: %b\r\n\r\n" % json.dumps(value).encode()


def gemini(number):
    """Thinking, signed text, a signed call and one beside it, and an empty part with a signature."""
    calls = [
        {"functionCall": {"id": f"fc-{number}-{letter}", "name": "look", "args": TOOL_ARGUMENTS}}
        for letter in "ab"
    ]
    return _gemini(
        {"text": "Let me look.", "thought": True},
        {"text": "I look.", "thoughtSignature": f"gemini-{number}-a"},
        {**calls[0], "thoughtSignature": f"gemini-{number}-b"},
        calls[1],
        {"text": "", "thoughtSignature": f"gemini-{number}-c"},
    )


def gemini_final():
    """Text alone."""
    return _gemini({"text": "Done."})


# By API, or by provider where its server differs.
ANSWERS = {
    "mistral": mistral,
    "anthropic-messages": anthropic,
    "openai-chat": chat,
    "openai-responses": responses,
    "gemini": gemini,
}
FINAL = {
    "anthropic-messages": anthropic_final,
    "openai-chat": chat_final,
    "openai-responses": responses_final,
    "gemini": gemini_final,
}
