"""The servers' rules that other tests hold bodies to: each finds what it is there for."""

from __future__ import annotations

import copy
import functools

import pytest

from tests.support import wire_rules

TEXT = {"type": "text", "text": "hi"}
USE = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "r"}
THINKING = {"type": "thinking", "thinking": "", "signature": "own"}
ANTHROPIC = {
    "model": "m",
    "max_tokens": 9,
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [THINKING, TEXT, USE]},
        {"role": "user", "content": [RESULT, TEXT]},
    ],
}
FUNCTION = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
CHAT = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [TEXT]},
        {"role": "assistant", "content": None, "tool_calls": [FUNCTION]},
        {"role": "tool", "tool_call_id": "c", "content": "r"},
    ],
}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "look", "arguments": "{}"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "own"}
RESPONSES = {
    "model": "m",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        REASONING,
        CALL,
        {"type": "function_call_output", "call_id": "c", "output": "r"},
    ],
}
GEMINI_CALL = {
    "functionCall": {"id": "c", "name": "look", "args": {}},
    "thoughtSignature": "own",
}
GEMINI = {
    "contents": [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"text": "ok"}, GEMINI_CALL]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"id": "c", "name": "look", "response": {}}}],
        },
    ]
}
GOOD = {
    wire_rules.anthropic_faults: ANTHROPIC,
    wire_rules.chat_faults: CHAT,
    wire_rules.responses_faults: RESPONSES,
    wire_rules.gemini_faults: GEMINI,
}
OWN = {"own", "fc_1", "rs_1"}


@pytest.mark.parametrize(("faults", "body"), GOOD.items(), ids=lambda x: getattr(x, "__name__", ""))
def test_a_sound_body_has_no_faults(faults, body):
    """What the APIs' documentation shows as a request is one."""
    assert faults(body, OWN) == []


IMAGE = {"type": "base64", "media_type": "image/svg+xml", "data": "eA=="}
ANTHROPIC_FAULTS = [
    (("max_tokens",), None, "max_tokens is required"),
    (("messages",), [], "at least one message"),
    (("messages", 0, "content"), " ", "non-whitespace"),
    (("messages", 0, "content"), [], "must not be empty"),
    (("messages", 0, "content"), "\ud83d", "lone surrogates"),
    (("messages", 0, "role"), "assistant", "first message must be a user's"),
    (("messages", 2, "role"), "assistant", "roles must alternate"),
    (("messages", 1, "content", 2, "id"), "a|b", "id 'a|b'"),
    (("messages", 1, "content", 2, "name"), "", "name ''"),
    (("messages", 1, "content", 2, "input"), "{}", "input must be an object"),
    (("messages", 1, "content", 1), USE, "must be unique"),
    (("messages", 1, "content", 0, "signature"), "theirs", "a foreign signature"),
    (("messages", 1, "content", 0, "signature"), "", "a signature is empty"),
    (("messages", 1, "content", 0), {"type": "redacted_thinking", "data": "x"}, "foreign"),
    (("messages", 2, "content"), [TEXT, RESULT], "must be first"),
    (("messages", 2, "content"), [TEXT], "results [] for calls ['c']"),
    (("messages", 2, "content", 0, "content"), [{"type": "text", "text": ""}], "non-whitespace"),
    (("messages", 2, "content", 1), {"type": "image", "source": IMAGE}, "image/svg+xml"),
    (("messages", 2, "content", 1), USE, "'tool_use' in a message of the role user"),
    (("messages", 2, "content"), [RESULT, *[{**TEXT, "cache_control": {}}] * 5], "4 are allowed"),
    (("thinking",), {"type": "enabled", "budget_tokens": 9}, "budget_tokens 9"),
    (("messages", 1, "content", 2, "input"), {"n": float("nan")}, "no JSON"),
]
CHAT_FAULTS = [
    (("messages",), [], "at least one message"),
    (("messages", 1, "content"), [], "content []"),
    (("messages", 1, "content", 0, "text"), " ", "non-whitespace"),
    (("messages", 1, "content", 0), {"type": "image_url", "image_url": {"url": "x"}}, "data URI"),
    (("messages", 2, "tool_calls"), [], "tool_calls must not be empty"),
    (("messages", 2, "tool_calls"), None, "content is required"),
    (("messages", 2, "tool_calls", 0, "id"), "x" * 41, "an id of 41 characters"),
    (("messages", 2, "tool_calls", 0, "function", "arguments"), "[1]", "no JSON object"),
    (("messages", 2, "tool_calls", 0, "function", "name"), "a b", "a b"),
    (("messages", 3, "tool_call_id"), "d", "must follow a message with tool_calls"),
    (("messages", 3, "role"), "user", "did not have response messages"),
    (("messages", 3, "content"), "", "content is empty"),
    (("messages", 2, "reasoning_details"), [{"data": "x"}], "a foreign signature"),
]
RESPONSES_FAULTS = [
    (("input",), [], "at least one item"),
    (("input", 0, "content", 0, "text"), "", "non-whitespace"),
    (("input", 0, "content", 0, "type"), "text", "a part of the type 'text'"),
    (("input", 1, "encrypted_content"), "theirs", "a foreign signature"),
    (("input", 1, "id"), "rs_2", "a foreign id"),
    (("input", 2, "id"), "c", "must begin with 'fc'"),
    (("input", 2, "call_id"), "x" * 65, "call_id of 65 characters"),
    (("input", 2, "arguments"), "{", "no JSON object"),
    (("input", 2), REASONING, "without its required following item"),
    (("input", 3, "call_id"), "d", "no tool call found"),
    (("input", 3, "call_id"), "d", "no tool output found for {'c'}"),
]
GEMINI_FAULTS = [
    (("contents",), [], "contents is not specified"),
    (("contents", 0, "role"), "model", "must be of the role user"),
    (("contents", 0, "parts"), [], "at least one parts field"),
    (("contents", 0, "parts", 0, "text"), "", "non-whitespace"),
    (("contents", 0, "parts", 0), {"thought": True}, "oneof field"),
    (("contents", 1, "parts", 1, "thoughtSignature"), "theirs", "a foreign signature"),
    (("contents", 1, "parts", 1), {"functionCall": GEMINI_CALL["functionCall"]}, "is missing a"),
    (("contents", 1, "parts", 1, "functionCall", "name"), "2fast", "name '2fast'"),
    (("contents", 2, "parts", 0, "functionResponse", "name"), "x", "must be those of the calls"),
    (("contents", 2, "role"), "model", "functionResponse of the role model"),
]


@pytest.mark.parametrize(
    ("faults", "path", "value", "says"),
    [
        (faults, *row)
        for faults, rows in zip(
            GOOD, (ANTHROPIC_FAULTS, CHAT_FAULTS, RESPONSES_FAULTS, GEMINI_FAULTS), strict=True
        )
        for row in rows
    ],
)
def test_each_rule_finds_its_fault(faults, path, value, says):
    """A sound body with one thing changed has the fault that the server tells of."""
    body = copy.deepcopy(GOOD[faults])
    *way, last = path
    functools.reduce(lambda at, key: at[key], way, body)[last] = value
    found = faults(body, OWN)

    assert any(says in fault for fault in found), found
