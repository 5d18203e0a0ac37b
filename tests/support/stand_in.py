"""A server that stands in for every provider of models, for the programs in the documentation.

It speaks the four APIs. It calls a tool when the question is one it knows and the tool is offered, tells what a tool
gave, and greets otherwise.
"""

from __future__ import annotations

import json

from yiemagent.testing import json_answer, sse, sse_answer

__all__ = ["stand_in"]

CALLS = {
    "What time is it in Tokyo?": ("get_time", {"city": "Tokyo"}),
    "How many people live in Tokyo?": ("get_population", {"city": "Tokyo"}),
    "How many words are in 'to be or not to be'?": ("count_words", {"text": "to be or not to be"}),
}
GREETING = "Hello from the stand-in."


def stand_in(request):
    """One answer, in the API that the request's path names, streamed where that is asked for."""
    path, body = request.target.partition("?")[0], request.json
    if path.endswith("/chat/completions"):
        return _chat(body)
    if path.endswith("/messages"):
        return _messages(body)
    if path.endswith("/responses"):
        return _responses(body)
    if "generateContent" in path or "streamGenerateContent" in path:
        return _gemini(body, is_streamed=":stream" in path)
    return json_answer({"error": {"message": f"no API is served at {path}"}}, status=404)


def _reply(said, offered, *, is_result=False):
    """What is answered: words, or the name of a tool and its arguments."""
    if is_result:
        return f"I looked: {said}", None
    name, arguments = CALLS.get(said, (None, {}))
    return (None, (name, arguments)) if name in offered else (GREETING, None)


def _words(content):
    if isinstance(content, str):
        return content
    return "".join([part.get("text", "") for part in content or ()])


def _events(*values):
    """Server-sent events whose names are the values' types."""
    return sse_answer(sse(*[(value["type"], value) for value in values], done=False))


# --- OpenAI chat completions -----------------------------------------------------------------------------------------


def _chat(body):
    last = body["messages"][-1]
    offered = {tool["function"]["name"] for tool in body.get("tools", ())}
    words, call = _reply(_words(last.get("content")), offered, is_result=last["role"] == "tool")
    message = {"role": "assistant", "content": words}
    if call:
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        message["tool_calls"] = [
            {"index": 0, "id": "call_1", "type": "function", "function": function}
        ]
    finish = "tool_calls" if call else "stop"
    usage = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}
    head = {"id": "chatcmpl-1", "created": 1, "model": body["model"]}
    if not body.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": finish}
        whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
        return json_answer(whole)
    chunk = {**head, "object": "chat.completion.chunk"}
    return sse_answer(
        sse(
            {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
            {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
            {**chunk, "choices": [], "usage": usage},
        )
    )


# --- Anthropic Messages ----------------------------------------------------------------------------------------------


def _messages(body):
    content = body["messages"][-1]["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    results = [part for part in parts if part["type"] == "tool_result"]
    said = _words(results[-1]["content"]) if results else _words(parts)
    offered = {tool["name"] for tool in body.get("tools", ())}
    words, call = _reply(said, offered, is_result=bool(results))
    block = {"type": "text", "text": words}
    if call:
        block = {"type": "tool_use", "id": "toolu_1", "name": call[0], "input": call[1]}
    stop = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
    usage = {"input_tokens": 12, "output_tokens": 5}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"]}
    if not body.get("stream"):
        return json_answer({**head, "content": [block], **stop, "usage": usage})
    delta = {"type": "text_delta", "text": words}
    if call:
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call[1])}
    begun = {**block, **({"input": {}} if call else {"text": ""})}
    message = {**head, "content": [], "stop_reason": None, "usage": usage | {"output_tokens": 1}}
    return _events(
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": begun},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    )


# --- OpenAI Responses ------------------------------------------------------------------------------------------------


def _responses(body):
    given = body["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    last = items[-1]
    is_result = last.get("type") == "function_call_output"
    said = _words(last["output"] if is_result else last["content"])
    offered = {tool.get("name") for tool in body.get("tools", ())}
    words, call = _reply(said, offered, is_result=is_result)
    if call:
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": call[0]}
        item |= {"arguments": json.dumps(call[1]), "status": "completed"}
        begun = item | {"arguments": "", "status": "in_progress"}
        deltas = [
            {"type": "response.function_call_arguments.delta", "delta": item["arguments"]},
            {"type": "response.function_call_arguments.done", "arguments": item["arguments"]},
        ]
    else:
        part = {"type": "output_text", "text": words, "annotations": []}
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        begun = item | {"content": [], "status": "in_progress"}
        item |= {"content": [part]}
        place = {"content_index": 0}
        deltas = [
            {"type": "response.content_part.added", **place, "part": part | {"text": ""}},
            {"type": "response.output_text.delta", **place, "delta": words},
            {"type": "response.output_text.done", **place, "text": words},
            {"type": "response.content_part.done", **place, "part": part},
        ]
    usage = {"input_tokens": 12, "output_tokens": 5, "total_tokens": 17}
    head = {"id": "resp_1", "object": "response", "model": body["model"]}
    done = {**head, "status": "completed", "output": [item], "usage": usage}
    if not body.get("stream"):
        return json_answer(done)
    started = {**head, "status": "in_progress", "output": []}
    about = {"item_id": item["id"], "output_index": 0}
    return _events(
        {"type": "response.created", "response": started},
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        *[delta | about for delta in deltas],
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": done},
    )


# --- Gemini ----------------------------------------------------------------------------------------------------------


def _gemini(body, *, is_streamed):
    parts = body["contents"][-1]["parts"]
    results = [part["functionResponse"] for part in parts if "functionResponse" in part]
    said = results[-1]["response"].get("output", "") if results else _words(parts)
    declared = [tool.get("functionDeclarations", ()) for tool in body.get("tools", ())]
    offered = {tool["name"] for tools in declared for tool in tools}
    words, call = _reply(said, offered, is_result=bool(results))
    part = {"text": words}
    if call:
        part = {"functionCall": {"id": "call_1", "name": call[0], "args": call[1]}}
        part["thoughtSignature"] = "c3RhbmQtaW4="
    candidate = {"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
    usage = {"promptTokenCount": 12, "candidatesTokenCount": 5, "totalTokenCount": 17}
    whole = {"candidates": [candidate], "usageMetadata": usage, "responseId": "response-1"}
    return sse_answer(sse(whole, done=False)) if is_streamed else json_answer(whole)
