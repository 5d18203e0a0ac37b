"""What the servers of the model APIs refuse, as their public documentation and their error messages tell it.

Written from the APIs' own side and independent of the library's bodies: each function takes a request body and gives
its faults in words. `own` is what may be opaque in it: the signatures, redacted data and encrypted reasoning that the
asked model itself gave.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ANTHROPIC_ID = re.compile(r"[a-zA-Z0-9_-]+")
ANTHROPIC_IMAGES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
GEMINI_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
# What Gemini 3 takes in place of a signature for calls that it did not make ("Thought signatures").
NO_SIGNATURES = {"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"}


class Faults(list):
    """Faults in words, each with its place."""

    def unless(self, good, where, says):
        """Note a fault unless something is good; gives whether it is."""
        if not good:
            self.append(f"{where}: {says}")
        return bool(good)

    def text(self, value, where):
        """Text must be there, be more than white space, and be UTF-8."""
        good = isinstance(value, str) and bool(value.strip())
        if self.unless(good, where, f"text must contain non-whitespace, not {value!r}"):
            self.unless(_can_be_sent(value), where, "text holds lone surrogates")

    def base64(self, value, where):
        """Data of an image must be base64, and some."""
        try:
            good = bool(value) and bool(base64.b64decode(value, validate=True))
        except (TypeError, ValueError, binascii.Error):
            good = False
        self.unless(good, where, f"no base64 data: {value!r}")

    def object_text(self, value, where):
        """Arguments as text must be one JSON object."""
        try:
            parsed = json.loads(value, parse_constant=_refuse)
        except (TypeError, ValueError):
            parsed = None
        self.unless(isinstance(parsed, dict), where, f"arguments are no JSON object: {value!r}")

    def opaque(self, value, own, where):
        """A signature must be there and be the asked model's own."""
        if self.unless(isinstance(value, str) and value, where, "a signature is empty"):
            self.unless(value in own, where, f"a foreign signature {value!r}")


def _can_be_sent(text):
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(word):
    raise ValueError(word)


def _strict_json(body, faults):
    """A body must be JSON as servers read it: no NaN, no lone surrogates."""
    try:
        text = json.dumps(body, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        faults.append(f"body: no JSON: {error}")
    else:
        faults.unless(_can_be_sent(text), "body", "lone surrogates")


# --- Anthropic Messages ----------------------------------------------------------------------------------------------


def anthropic_faults(body, own=frozenset()):
    """What the Messages API refuses."""
    faults = Faults()
    _strict_json(body, faults)
    faults.unless(body.get("model"), "body", "model is required")
    limit = body.get("max_tokens")
    faults.unless(isinstance(limit, int) and limit >= 1, "body", "max_tokens is required")
    _anthropic_thinking(body, faults)
    messages = body.get("messages")
    if not faults.unless(messages, "messages", "at least one message is required"):
        return faults
    faults.unless(messages[0]["role"] == "user", "messages.0", "the first message must be a user's")
    faults.unless(messages[-1]["role"] == "user", "messages.-1", "must end with a user message")
    seen, owed, role = set(), [], None
    for position, message in enumerate(messages):
        where = f"messages.{position}"
        faults.unless(message["role"] != role, where, "roles must alternate")
        role = message["role"]
        faults.unless(role in {"user", "assistant"}, where, f"unknown role {role!r}")
        blocks = _anthropic_blocks(message["content"], role, own, where, faults)
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        good = sorted(answered) == sorted(owed)
        faults.unless(good, where, f"results {answered} for calls {owed}")
        owed = [block["id"] for block in blocks if block["type"] == "tool_use"]
        distinct = len(set(owed)) == len(owed) and seen.isdisjoint(owed)
        faults.unless(distinct, where, "tool_use ids must be unique")
        seen.update(owed)
    faults.unless(not owed, "messages", f"no tool_result for {owed}")
    marks = json.dumps(body).count('"cache_control"')
    faults.unless(marks <= 4, "body", f"{marks} blocks with cache_control, 4 are allowed")
    return faults


def _anthropic_blocks(content, role, own, where, faults):
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    faults.unless(blocks, where, "content must not be empty")
    behind = [block["type"] != "tool_result" for block in blocks]
    faults.unless(behind == sorted(behind), where, "tool_result blocks must be first")
    wanted = {"text", "image", "tool_result"} if role == "user" else _ANTHROPIC_ANSWER
    for number, block in enumerate(blocks):
        place, kind = f"{where}.content.{number}", block["type"]
        if faults.unless(kind in wanted, place, f"{kind!r} in a message of the role {role}"):
            _anthropic_block(block, own, place, faults)
    return blocks


_ANTHROPIC_ANSWER = {"text", "thinking", "redacted_thinking", "tool_use"}


def _anthropic_block(block, own, where, faults):
    match block["type"]:
        case "text":
            faults.text(block["text"], where)
        case "image":
            source = block["source"]
            faults.unless(
                source["media_type"] in ANTHROPIC_IMAGES, where, f"{source['media_type']}"
            )
            faults.base64(source["data"], where)
        case "tool_use":
            faults.unless(ANTHROPIC_ID.fullmatch(block["id"]), where, f"id {block['id']!r}")
            faults.unless(NAME.fullmatch(block["name"]), where, f"name {block['name']!r}")
            faults.unless(isinstance(block["input"], Mapping), where, "input must be an object")
        case "thinking":
            faults.unless("cache_control" not in block, where, "thinking can't be cached")
            faults.unless(isinstance(block.get("thinking"), str), where, "thinking is required")
            faults.opaque(block.get("signature"), own, where)
        case "redacted_thinking":
            faults.opaque(block.get("data"), own, where)
        case "tool_result":
            content = block.get("content")
            if isinstance(content, str):
                faults.text(content, where)
            for number, part in enumerate(content if isinstance(content, (list, tuple)) else ()):
                place = f"{where}.content.{number}"
                if faults.unless(part["type"] in {"text", "image"}, place, f"{part['type']!r}"):
                    _anthropic_block(part, own, place, faults)


def _anthropic_thinking(body, faults):
    thinking = body.get("thinking") or {}
    if thinking.get("type") not in {"enabled", "adaptive"}:
        return
    if thinking["type"] == "enabled":
        budget = thinking.get("budget_tokens", 0)
        good = 1024 <= budget < body.get("max_tokens", 0)
        faults.unless(good, "thinking", f"budget_tokens {budget} against {body.get('max_tokens')}")
    faults.unless(body.get("temperature", 1) == 1, "temperature", "must be 1 with thinking")
    choice = (body.get("tool_choice") or {}).get("type", "auto")
    faults.unless(choice in {"auto", "none"}, "tool_choice", f"{choice!r} with thinking")


# --- OpenAI chat completions -----------------------------------------------------------------------------------------


def chat_faults(body, own=frozenset(), max_call_id=40, call_id=None, parts=("text",)):
    """What the chat completions API refuses.

    `max_call_id` and `call_id` are the server's rules for ids of others, `parts` what it takes in an answer's content.
    """
    faults = Faults()
    _strict_json(body, faults)
    faults.unless(body.get("model"), "body", "model is required")
    messages = body.get("messages")
    faults.unless(messages, "messages", "at least one message is required")
    owed = []
    for position, message in enumerate(messages or ()):
        where = f"messages[{position}]"
        role = message["role"]
        known = {"system", "developer", "user", "assistant", "tool"}
        faults.unless(role in known, where, f"unknown role {role!r}")
        if role == "tool":
            good = message["tool_call_id"] in owed
            if faults.unless(good, where, "must follow a message with tool_calls"):
                owed.remove(message["tool_call_id"])
            _chat_content(message["content"], {"text"}, where, faults)
            continue
        faults.unless(not owed, where, f"{owed} did not have response messages")
        owed = []
        if role == "assistant":
            owed = _chat_answer(message, own, parts, where, faults)
        else:
            _chat_content(message["content"], {"text", "image_url"}, where, faults)
        for one in owed:
            good = one and (not max_call_id or len(one) <= max_call_id)
            faults.unless(good, where, f"an id of {len(one)} characters")
            faults.unless(not call_id or re.fullmatch(call_id, one), where, f"the id {one!r}")
    faults.unless(not owed, "messages", f"{owed} did not have response messages")
    return faults


def _chat_answer(message, own, parts, where, faults):
    calls = message.get("tool_calls")
    faults.unless(calls is None or calls, where, "tool_calls must not be empty")
    if message.get("content") is not None:
        _chat_content(message["content"], parts, where, faults)
    else:
        faults.unless(calls, where, "content is required where there are no tool_calls")
    for detail in message.get("reasoning_details") or ():
        for key in ("signature", "data"):
            if detail.get(key):
                faults.opaque(detail[key], own, where)
    ids = []
    for call in calls or ():
        ids.append(call["id"])
        faults.unless(call["type"] == "function", where, f"type {call['type']!r}")
        faults.unless(NAME.fullmatch(call["function"]["name"]), where, call["function"]["name"])
        faults.object_text(call["function"]["arguments"], where)
    faults.unless(len(set(ids)) == len(ids), where, f"ids {ids}")
    return ids


def _chat_content(content, kinds, where, faults):
    if isinstance(content, str):
        faults.unless(content, where, "content is empty")
        faults.unless(_can_be_sent(content), where, "text holds lone surrogates")
        return
    if faults.unless(isinstance(content, list) and content, where, f"content {content!r}"):
        for part in content:
            faults.unless(part["type"] in kinds, where, f"a part of the type {part['type']!r}")
            if part["type"] == "text":
                faults.text(part["text"], where)
            if part["type"] == "image_url":
                _data_uri(part["image_url"]["url"], where, faults)


def _data_uri(url, where, faults):
    found = re.fullmatch(r"data:(image/[\w.+-]+);base64,(.*)", url)
    if faults.unless(found, where, f"no data URI: {url!r}"):
        faults.base64(found[2], where)


# --- OpenAI Responses ------------------------------------------------------------------------------------------------


def responses_faults(body, own=frozenset()):
    """What the Responses API refuses; `own` holds the ids of items too."""
    faults = Faults()
    _strict_json(body, faults)
    faults.unless(body.get("model"), "body", "model is required")
    items = body.get("input")
    faults.unless(items, "input", "at least one item is required")
    owed, calls, ids = set(), set(), set()
    for position, item in enumerate(items or ()):
        where = f"input[{position}]"
        _item_id(item, own, ids, where, faults)
        match item.get("type", "message"):
            case "function_call":
                call_id = item["call_id"]
                faults.unless(
                    0 < len(call_id) <= 64, where, f"call_id of {len(call_id)} characters"
                )
                faults.unless(call_id not in calls, where, f"the call_id {call_id!r} comes again")
                faults.unless(NAME.fullmatch(item["name"]), where, f"name {item['name']!r}")
                faults.object_text(item["arguments"], where)
                calls.add(call_id)
                owed.add(call_id)
            case "function_call_output":
                if faults.unless(item["call_id"] in owed, where, "no tool call found for it"):
                    owed.remove(item["call_id"])
                parts = {"input_text", "input_image"}
                _item_content(item["output"], parts, where, faults)
            case "reasoning":
                faults.opaque(item.get("encrypted_content"), own, where)
                faults.unless(isinstance(item.get("summary"), list), where, "summary is required")
                follows = items[position + 1 : position + 2]
                good = follows and _is_output(follows[0])
                faults.unless(good, where, "without its required following item")
            case "message":
                role = item["role"]
                faults.unless(role in _ITEM_PARTS, where, f"unknown role {role!r}")
                _item_content(item["content"], _ITEM_PARTS.get(role, ()), where, faults)
                faults.unless(role == "assistant" or not owed, where, f"no output for {owed}")
            case kind:
                faults.append(f"{where}: unknown type {kind!r}")
    faults.unless(not owed, "input", f"no tool output found for {owed}")
    return faults


_ITEM_PARTS = {
    "user": {"input_text", "input_image"},
    "system": {"input_text"},
    "developer": {"input_text"},
    "assistant": {"output_text", "refusal"},
}
_ITEM_IDS = {"function_call": "fc", "reasoning": "rs", "message": "msg"}


def _is_output(item):
    kind = item.get("type", "message")
    return kind in {"function_call", "reasoning"} or item.get("role") == "assistant"


def _item_id(item, own, seen, where, faults):
    item_id = item.get("id")
    if item_id is None:
        return
    lead = _ITEM_IDS.get(item.get("type", "message"), "")
    faults.unless(item_id.startswith(lead), where, f"id {item_id!r} must begin with {lead!r}")
    faults.unless(len(item_id) <= 64, where, f"an id of {len(item_id)} characters")
    faults.unless(item_id in own, where, f"a foreign id {item_id!r}")
    faults.unless(item_id not in seen, where, f"the id {item_id!r} comes again")
    seen.add(item_id)


def _item_content(content, kinds, where, faults):
    if isinstance(content, str):
        faults.unless(content, where, "content is empty")
        return
    if faults.unless(isinstance(content, list) and content, where, f"content {content!r}"):
        for part in content:
            faults.unless(part["type"] in kinds, where, f"a part of the type {part['type']!r}")
            if part["type"] in {"input_text", "output_text"}:
                faults.text(part["text"], where)
            if part["type"] == "input_image":
                _data_uri(part["image_url"], where, faults)


# --- Gemini ----------------------------------------------------------------------------------------------------------


def gemini_faults(body, own=frozenset(), *, wants_signatures=True):
    """What generateContent refuses; from Gemini 3 on, calls of the present turn must be signed."""
    faults = Faults()
    _strict_json(body, faults)
    contents = body.get("contents")
    if not faults.unless(contents, "contents", "contents is not specified"):
        return faults
    faults.unless(contents[0]["role"] == "user", "contents[0]", "must be of the role user")
    faults.unless(contents[-1]["role"] == "user", "contents[-1]", "must be of the role user")
    calls = []
    for position, content in enumerate(contents):
        where = f"contents[{position}]"
        role, parts = content["role"], content["parts"]
        faults.unless(role in {"user", "model"}, where, f"unknown role {role!r}")
        faults.unless(parts, where, "must include at least one parts field")
        if role == "model" and position:
            faults.unless(contents[position - 1]["role"] == "user", where, "roles must alternate")
        for number, part in enumerate(parts):
            _gemini_part(role, part, own, f"{where}.parts[{number}]", faults)
        answered = [p["functionResponse"] for p in parts if "functionResponse" in p]
        good = [(a.get("id"), a["name"]) for a in answered] == [
            (c.get("id"), c["name"]) for c in calls
        ]
        faults.unless(good, where, "function responses must be those of the calls before")
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
    faults.unless(not calls, "contents", f"no responses for {calls}")
    if wants_signatures:
        _gemini_turn(contents, faults)
    return faults


_GEMINI_DATA = ("text", "inlineData", "functionCall", "functionResponse")


def _gemini_part(role, part, own, where, faults):
    given = [name for name in _GEMINI_DATA if name in part]
    if not faults.unless(len(given) == 1, where, f"required oneof field 'data': {sorted(part)}"):
        return
    if (mark := part.get("thoughtSignature")) is not None and mark not in NO_SIGNATURES:
        faults.opaque(mark, own, where)
    wrong = "functionCall" if role == "user" else "functionResponse"
    faults.unless(wrong not in part, where, f"{wrong} of the role {role}")
    if "text" in part and not mark:
        faults.text(part["text"], where)
    if "inlineData" in part:
        faults.base64(part["inlineData"]["data"], where)
    if "functionCall" in part:
        call = part["functionCall"]
        faults.unless(GEMINI_NAME.fullmatch(call["name"]), where, f"name {call['name']!r}")
        faults.unless(isinstance(call.get("args", {}), Mapping), where, "args must be an object")
    if "functionResponse" in part:
        answer = part["functionResponse"]
        faults.unless(isinstance(answer["response"], Mapping), where, "response must be an object")


def _gemini_turn(contents, faults):
    """The first call of each step since the user last spoke must have a signature."""
    for position in range(len(contents) - 1, -1, -1):
        content = contents[position]
        parts = content["parts"]
        if content["role"] == "user" and not any("functionResponse" in part for part in parts):
            return
        first = next((part for part in parts if "functionCall" in part), None)
        if first is not None:
            where = f"contents[{position}]"
            faults.unless(first.get("thoughtSignature"), where, "is missing a thought_signature")
