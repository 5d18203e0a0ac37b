"""The neutral words of the cases: how they compare with what the library holds."""

from __future__ import annotations

import json
import re

from yiemagent.messages import (
    AssistantMessage,
    ImageContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.tool import AgentTool, AgentToolResult

NORMAL_STOPS = {"tool_use_terminated": "stop"}
LIST_TOOL_NAME = "list_tools"


def same(one, other):
    """Whether two JSON values are equal in type and value: 5 is neither 5.0 nor true."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    kinds = [
        next(k for k in (bool, int, float, str, object) if isinstance(v, k)) for v in (one, other)
    ]
    return kinds[0] is kinds[1] and one == other


def neutral(message):
    """Give an assistant message in the words of the cases."""
    usage = message.usage
    return {
        "text": message.text,
        "thinking": message.thinking,
        "tool_calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments}
            for call in message.tool_calls
        ],
        "stop": NORMAL_STOPS.get(message.stop_reason, message.stop_reason),
        "usage": usage
        and {
            "input": usage.input_tokens,
            "output": usage.output_tokens,
            "cache_read": usage.cache_read_tokens,
            "cache_write": usage.cache_write_tokens,
        },
    }


def assistant_problems(expected, message):
    """Say where an assistant message is not what a case expects; what it does not speak of may be anything."""
    if message is None:
        return ["there is no assistant message"]
    found = neutral(message)
    problems = []
    for key, value in expected.items():
        if key == "tool_calls":
            problems += calls_problems(value, found["tool_calls"])
        elif key == "usage":
            held = {name: (found["usage"] or {}).get(name) for name in value}
            if not same(value, held):
                problems.append(f"usage is {held}, expected {value}")
        elif key not in found:
            problems.append(f"can't drive the field assistant.{key}")
        elif not same(value, found[key]):
            problems.append(f"{key} is {found[key]!r}, expected {value!r}")
    return problems


def calls_problems(expected, found):
    """Say where tool calls are not the expected ones."""
    if len(expected) != len(found):
        return [f"there are {len(found)} calls ({found}), expected {len(expected)}"]
    problems = []
    for wanted, call in zip(expected, found, strict=True):
        for key, value in wanted.items():
            if key == "id":
                good = bool(call["id"]) and ("*" in value or call["id"] == value)
            elif key in {"name", "arguments"}:
                good = same(value, call[key])
            else:
                problems.append(f"can't drive the field tool_calls.{key}")
                continue
            if not good:
                problems.append(f"a call's {key} is {call.get(key)!r}, expected {value!r}")
    return problems


def result_problems(expected, result):
    """Say where a tool result is not what a case expects."""
    if result is None:
        return ["there is no tool result"]
    problems = []
    for key, value in expected.items():
        text = result.text.lower()
        if key == "isError":
            good = result.is_error is value
        elif key == "mentions":
            good = all(word.lower() in text for word in _list(value))
        elif key == "mentions_any":
            good = any(word.lower() in text for word in value)
        elif key == "text":
            good = result.text == value
        else:
            problems.append(f"can't drive the field {key} of a result")
            continue
        if not good:
            problems.append(
                f"the result (isError {result.is_error}) {result.text!r} does not fit {key} {value!r}"
            )
    return problems


def _list(value):
    return [value] if isinstance(value, str) else value


def history_of(data):
    """Give a neutral history as messages."""
    return [_MESSAGES[message["role"]](message) for message in data]


def _blocks(content):
    return content if isinstance(content, str) else tuple(_BLOCKS[b["type"]](b) for b in content)


def _result(message):
    return ToolResultMessage(
        message["toolCallId"],
        message.get("toolName", ""),
        _blocks(message["content"]),
        details=message.get("details", {}),
        is_error=message.get("isError", False),
    )


def _assistant(message):
    blocks = _blocks(message["content"])
    calls = any(isinstance(block, ToolCall) for block in blocks)
    stop = message.get("stopReason", "tool_use" if calls else "stop")
    stop = re.sub(r"(?<!^)(?=[A-Z])", "_", stop).lower()
    return AssistantMessage(blocks, stop_reason=stop, error_message=message.get("errorMessage"))


_MESSAGES = {
    "user": lambda message: UserMessage(_blocks(message["content"])),
    "assistant": _assistant,
    "toolResult": _result,
}
_BLOCKS = {
    "text": lambda block: TextContent(block["text"]),
    "thinking": lambda block: ThinkingContent(
        block["thinking"], block.get("signature"), block.get("redacted", False)
    ),
    "image": lambda block: ImageContent(block["data"], block.get("mimeType", "image/png")),
    "toolCall": lambda block: ToolCall(block["id"], block["name"], block["arguments"]),
}


def request_problems(body):
    """Say what an OpenAI chat server would refuse in a request."""
    problems = []
    owed = []
    for position, message in enumerate(body["messages"]):
        where = f"message {position} ({message.get('role')})"
        if message["role"] == "tool":
            if not owed or message["tool_call_id"] not in owed:
                problems.append(f"{where} answers no call before it")
            else:
                owed.remove(message["tool_call_id"])
            if not message.get("content"):
                problems.append(f"{where} has no content")
            continue
        if owed:
            problems.append(f"{where} comes before the results of {owed}")
        calls = message.get("tool_calls", [])
        owed = [call["id"] for call in calls]
        if len(set(owed)) != len(owed) or not all(owed):
            problems.append(f"{where} has ids {owed}")
        for call in calls:
            if not isinstance(json.loads(call["function"]["arguments"]), dict):
                problems.append(f"{where} has arguments that are no object")
        if not calls and not message.get("content"):
            problems.append(f"{where} says nothing")
    if owed:
        problems.append(f"calls {owed} have no result")
    return problems


# -- the names that tool files use ------------------------------------------------------------------------------------

_FIELDS = {
    "inputSchema": "input_schema",
    "prepareArguments": "prepare_arguments",
    "validateRequiredArgs": "validate_required_args",
    "parallelToolExecute": "parallel_tool_execute",
}
ADAPTER_LINE = "from tests.cases.vocabulary import LIST_TOOL_NAME, RESULT, TEXT, TOOL  # noqa"


def TOOL(**fields):  # noqa: N802 - the cases' own name
    """Make a tool from the reference's fields."""
    return AgentTool(**{_FIELDS.get(name, name): value for name, value in fields.items()})


def RESULT(content, details=None, usage=None, terminate=False):  # noqa: N802 - the cases' own name
    """Make a tool result from the reference's fields."""
    return AgentToolResult(content, {} if details is None else details, usage, terminate)


def TEXT(text):  # noqa: N802 - the cases' own name
    """Make a text block."""
    return TextContent(text)
