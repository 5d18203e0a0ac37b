"""How a very small model is brought to call tools and to answer truthfully: pure functions, no model in here.

A model of 135 million parameters ignores tool definitions and invents. With this recipe it calls the right tool:
- The prompt shows worked examples: the sentences of `AgentTool.examples` with the calls they ask for, and sentences
  that ask for no tool. Their order is mixed (a regular order is copied as a pattern: after "time, weather, time" came
  the weather, whatever was asked), and the nearest ones stand last once more.
- Whether to call at all is decided by the probability of the first word of the choice (`call_chance`, `wants_tool`).
- A call is constrained from its first token by the tools' JSON Schemas (`call_schema`). A property with
  `"x-copy": true` may only be a piece of the user's own words; an optional enumeration is offered only where they name
  one of its values.
- The answer is made from the result alone, by example, and checked: a sentence with a number or a word that is neither
  in the result nor in the question is not shown (`is_grounded`); the result itself is then, marked by `RESULT_MARK`.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from yiemagent.context import LlmContext
from yiemagent.messages import (
    AssistantMessage,
    LlmMessage,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.providers.local_words import (
    copy_names,
    copy_spans,
    likeness,
    stem,
    telling,
    words_of,
)
from yiemagent.streaming import new_call_id
from yiemagent.tool import AgentTool

__all__ = [
    "RESULT_MARK",
    "answer_context",
    "call_chance",
    "call_context",
    "call_schema",
    "chat_context",
    "earlier_calls",
    "gate_grammar",
    "is_grounded",
    "last_question",
    "marked_result",
    "parse_call",
    "pending_results",
    "wants_tool",
]

RESULT_MARK = "[tool result] "
NEAREST = 3
EARLIER_CALLS = 2
# The probability of a call from which on a tool is called; the lower one where the question shares a telling word with
# a tool.
# Fitted on some sixty sentences that are in no test.
CALL_CHANCE = 0.3
CALL_CHANCE_OF_KIN = 0.15

# Sentences that ask for no tool; as many kinds as there are ways to be wrong about it.
_CHAT_SENTENCES = (
    "Hello!",
    "What is the capital of Italy?",
    "Write a poem about trees.",
    "Thanks!",
    "Who painted the Mona Lisa?",
    "I feel great.",
    "How do plants grow?",
    "Tell me something funny.",
)

# Question, data and the sentence that answers with nothing but the data.
_ANSWERS = (
    (
        "What is the time in Bogota?",
        "Current time in Bogota: 2025-03-14 09:05 (UTC-05:00)",
        "It is 09:05 in Bogota.",
    ),
    (
        "How is the weather in Tunis today?",
        "Weather in Tunis: clear sky, 21 °C, wind 6 km/h",
        "The weather in Tunis is clear sky at 21 °C.",
    ),
    (
        "What tools are there?",
        "Available tools:\n- send_mail: Mail — Send a mail.\n- search: Search — Find it.\n- read_file: Read — Read.",
        "There are the tools send_mail, search and read_file.",
    ),
    (
        "How many chairs are left?",
        '{"item": "chairs", "left": 7}',
        "There are 7 chairs left.",
    ),
    (
        "My friend is in Perth. How late is it there?",
        "Current time in Perth: 2026-07-02 18:40 (AWST, UTC+08:00)",
        "It is 18:40 in Perth.",
    ),
    (
        "Is it raining in Riga?",
        "Weather in Riga: heavy snow, -3 °C, wind 31 km/h",
        "In Riga there is heavy snow at -3 °C.",
    ),
    (
        "Do I need a jacket in Lagos?",
        "Weather in Lagos: rain showers, 27 °C, wind 11 km/h",
        "In Lagos there are rain showers at 27 °C.",
    ),
    (
        "How cold is it in Minsk?",
        "Weather in Minsk: overcast, 4 °C, wind 2 km/h",
        "It is 4 °C in Minsk.",
    ),
)

_MINUS = "\N{MINUS SIGN}"
_YES_OR_NO = re.compile(
    r"(?:^|[.!?,]\s+)(?:is|are|was|were|do|does|did|will|would|should|has|have)\b", re.IGNORECASE
)
# The same word three times on end, or the same words twice.
_CIRCLE = re.compile(r"\b(\w+)(?:\W+\1){2}\b|\b(\w+\W+\w.{0,60}?)\W+(?:and\W+)?\2\b", re.DOTALL)
_NUMBER = re.compile(rf"(?<![\w.,:-])[-{_MINUS}]?\d+(?:[.,:]\d+)*")


# --- the call -----------------------------------------------------------------------------------------------------


def call_context(
    tools: Mapping[str, AgentTool], question: str, earlier: Iterable[tuple[str, ToolCall]] = ()
) -> LlmContext:
    """Give the prompt that both the gate and the call are asked with.

    Args:
        tools: what may be called.
        question: the user's sentence.
        earlier: questions of this conversation with the calls they led to, oldest first; the last two are shown.
    """
    reply = json.dumps({"name": _reply_word(tools)})
    examples = [(sentence, reply) for sentence in _CHAT_SENTENCES]
    for tool in tools.values():
        examples += [
            (sentence, _call_text(tool.name, arguments)) for sentence, arguments in _examples(tool)
        ]
    mixed = sorted(examples, key=lambda example: zlib.crc32(example[0].encode()))
    nearest = sorted(mixed, key=lambda example: likeness(example[0], question))[-NEAREST:]
    past = [(said, _call_text(call.name, call.arguments)) for said, call in earlier]
    lines = [f"- {tool.name}: {_first_sentence(tool.description)}" for tool in tools.values()]
    system = "\n".join(
        [
            "Choose the tool for the user's message and copy its arguments from the message. Tools:",
            *lines,
            f"- {_reply_word(tools)}: talk to the user without a tool",
        ]
    )
    return _few_shot(system, [*mixed, *past[-EARLIER_CALLS:], *nearest], question)


def _few_shot(system: str, turns: Iterable[tuple[str, str]], question: str) -> LlmContext:
    messages: list[LlmMessage] = []
    for said, answered in turns:
        messages += [UserMessage(said), AssistantMessage(answered)]
    return LlmContext(system, (*messages, UserMessage(question)))


def _examples(tool: AgentTool) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """Give a tool's worked examples; one that takes nothing and has none is asked for in its own words."""
    if tool.examples or tool.input_schema.get("required"):
        return tool.examples
    return ((tool.label + ".", {}), (_first_sentence(tool.description), {}))


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.!?])\s", " ".join(text.split()), maxsplit=1)[0][:200]


def _call_text(name: str, arguments: object) -> str:
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)


def _reply_word(tools: Mapping[str, AgentTool]) -> str:
    """Give the word for "no tool": one that no tool's name can be taken for."""
    words = ("reply", "talk", "none", "chat")
    free = [word for word in words if not any(name.startswith(word[:2]) for name in tools)]
    return free[0] if free else "_no_tool"


def call_schema(tools: Mapping[str, AgentTool], question: str) -> dict[str, Any]:
    """Give the JSON Schema of a call of one of `tools` in answer to `question`."""
    return {
        "anyOf": [
            {
                "type": "object",
                "properties": {
                    "name": {"const": tool.name},
                    "arguments": _arguments_schema(tool, question),
                },
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
            for tool in tools.values()
        ]
    }


def _arguments_schema(tool: AgentTool, question: str) -> dict[str, Any]:
    schema = tool.input_schema
    required = list(schema.get("required", ()))
    shown = {name for _, arguments in tool.examples for name in arguments}
    properties: dict[str, Any] = {}
    for name, rule in schema.get("properties", {}).items():
        offered = _property_schema(rule, question, is_required=name in required)
        if offered is None or (tool.examples and name not in shown and name not in required):
            continue  # what no example shows, a model this small only invents
        properties[name] = offered
        if offered is not rule and name not in required:
            required.append(name)
    rest = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
        **rest,
    }


def _property_schema(rule: Any, question: str, *, is_required: bool) -> Any:
    """Give what a property may be: `rule` itself, a narrower rule that must be kept, or None where it is left out."""
    if not isinstance(rule, Mapping):
        return rule
    if rule.get("x-copy") and "enum" not in rule:
        spans = copy_spans(question)
        return {"enum": list(spans)} if spans else {**rule, "x-copy": None} if is_required else None
    if "enum" in rule and not is_required:
        words = {word.lower() for word, _, _ in words_of(question)}
        named = [value for value in rule["enum"] if str(value).lower() in words]
        return {"enum": named} if named else None
    return rule


def parse_call(text: str, tools: Mapping[str, AgentTool]) -> ToolCall | None:
    """Give the call that the model wrote, or None where it is none (cut off by the limit)."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if not isinstance(value, Mapping) or value.get("name") not in tools:
        return None
    return ToolCall(new_call_id(), value["name"], value.get("arguments") or {})


# --- the gate -----------------------------------------------------------------------------------------------------


def gate_grammar(tools: Mapping[str, AgentTool]) -> str:
    """Give the grammar (GBNF) of the beginning of a choice: a tool's name or the word for none."""
    names = " | ".join(f'"{name}"' for name in (_reply_word(tools), *tools))
    return f'root ::= "{{\\"name\\": \\"" ({names})'


def call_chance(logprobs: Sequence[Mapping[str, Any]], tools: Mapping[str, AgentTool]) -> float:
    """Give the probability of a call, 0 to 1, from the log probabilities of a gate's tokens.

    Args:
        logprobs: the OpenAI form: each token with its `top_logprobs`.
        tools: as in `call_context`.
    """
    text = ""
    for token in logprobs:
        text += token["token"]
        if re.match(r'\{\s*"name":\s*"\S', text):
            alternatives = token["top_logprobs"]
            reply = _mass(alternatives, [_reply_word(tools)])
            call = _mass(alternatives, tools)
            return call / (call + reply) if call + reply else 0.0
    return 0.0


def _mass(alternatives: Sequence[Mapping[str, Any]], names: Iterable[str]) -> float:
    total = 0.0
    for alternative in alternatives:
        piece = alternative["token"].strip().strip('"')
        if piece and any(name.startswith(piece) for name in names):
            total += math.exp(alternative["logprob"])
    return total


def wants_tool(chance: float, tools: Mapping[str, AgentTool], question: str) -> bool:
    """Whether a tool is called: a matter of probability, the bar lower where the question speaks of a tool's matter."""
    kin = bool(telling(question) & _matters(tools.values()))
    return chance >= (CALL_CHANCE_OF_KIN if kin else CALL_CHANCE)


def _matters(tools: Iterable[AgentTool]) -> set[str]:
    words: set[str] = set()
    for tool in tools:
        words |= {stem(part) for part in tool.name.split("_")} | telling(tool.description)
        for sentence, _ in tool.examples:
            words |= telling(sentence)
    return words


# --- the answer ---------------------------------------------------------------------------------------------------


def answer_context(question: str, data: str) -> LlmContext:
    """Give the prompt that asks for a sentence which answers `question` with `data`."""
    nearest = max(
        _ANSWERS,
        key=lambda known: likeness(known[0], question) + likeness(_head(known[1]), _head(data)),
    )
    turns = [(_task(asked, given), sentence) for asked, given, sentence in (*_ANSWERS, nearest)]
    system = "Answer the question in one short sentence. Use only the data."
    return _few_shot(system, turns, _task(question, data))


def _head(data: str) -> str:
    """Give what the data are about: what stands before the first colon."""
    return data.partition(":")[0]


def _task(question: str, data: str) -> str:
    # A date beside a time draws the model to answer with the date; it is shown where it is asked for.
    if not re.search(r"\b(?:date|day|month|today|week|year)\b", question, re.IGNORECASE):
        data = re.sub(r"\b\d{4}-\d\d-\d\d[ T](?=\d\d:\d\d)", "", data)
    return f"Question: {question}\nData: {data}"


def is_grounded(answer: str, data: str, question: str) -> bool:
    """Whether an answer says nothing beyond the data and something of it.

    Every number must be in the data, every other word in the data, in the question or without a claim of its own; of a
    question for yes or no ("is it sunny?") only the names count, since its words are what is asked. A number or a word
    of the data that the question did not bring must be in it, and of a list every item. One that goes round in circles
    says nothing.
    """
    if _CIRCLE.search(answer):
        return False
    if not all(item in answer for item in re.findall(r"^- (\w[\w.-]*):", data, re.MULTILINE)):
        return False
    known_numbers = _numbers(data)
    numbers = _numbers(answer)
    said, given, asked = (telling(text, names=True) for text in (answer, data, question))
    words = {word for word in said if not word[0].isdigit()}
    if _YES_OR_NO.search(question):
        asked = {stem(part) for name in copy_names(question) for part in name.split()}
    if not numbers <= known_numbers or not words <= given | asked:
        return False
    return bool(numbers) or bool(words & (given - asked))


def _numbers(text: str) -> set[str]:
    """Give the numbers of a text; times of day are one each."""
    return {found.replace(_MINUS, "-") for found in _NUMBER.findall(text)}


def marked_result(data: str) -> str:
    """Give a tool's result as it is shown in place of an answer."""
    return RESULT_MARK + data


# --- the conversation ---------------------------------------------------------------------------------------------


def last_question(messages: Sequence[LlmMessage]) -> str:
    """Give the text of the user's last message."""
    return next((m.text for m in reversed(messages) if isinstance(m, UserMessage)), "")


def pending_results(messages: Sequence[LlmMessage]) -> tuple[ToolResultMessage, ...]:
    """Give the tool results at the end of a conversation, those that wait for an answer."""
    results: list[ToolResultMessage] = []
    for message in reversed(messages):
        if not isinstance(message, ToolResultMessage):
            break
        results.append(message)
    return tuple(reversed(results))


def earlier_calls(messages: Sequence[LlmMessage]) -> list[tuple[str, ToolCall]]:
    """Give the user's sentences with the calls that they led to, oldest first."""
    found: list[tuple[str, ToolCall]] = []
    question = ""
    for message in messages:
        if isinstance(message, UserMessage):
            question = message.text
        elif isinstance(message, AssistantMessage) and message.tool_calls and question:
            found.append((question, message.tool_calls[0]))
    return found


def chat_context(context: LlmContext, max_chars: int) -> LlmContext:
    """Give a conversation as plain talk: no tools, no calls, no more than fits.

    Args:
        context: the conversation; calls and results are left out, since the answers tell of them.
        max_chars: how much text is kept; the newest messages are, and the system prompt.
    """
    left = max_chars - len(context.system_prompt)
    kept: list[LlmMessage] = []
    for message in reversed(context.messages):
        if isinstance(message, ToolResultMessage) or not message.text.strip():
            continue
        left -= len(message.text)
        if left < 0 and kept:
            break
        text = message.text if left >= 0 else message.text[-max(1, left + len(message.text)) :]
        kind = UserMessage if isinstance(message, UserMessage) else AssistantMessage
        kept.append(kind((TextContent(text),)))
    while len(kept) > 1 and isinstance(kept[-1], AssistantMessage):
        kept.pop()
    return LlmContext(context.system_prompt, tuple(reversed(kept)))
