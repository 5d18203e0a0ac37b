"""How large a context is, in tokens, as far as that can be told without asking: what the last answer reported, and an
estimate of what came after it.

Every model counts in its own way, so an estimate is made to be rather too high than too low: UTF-8 bytes, which come
out about right for European languages, for code and for languages that spend a token on each character.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from yiemagent.codec import json_payload
from yiemagent.context import AgentContext
from yiemagent.messages import (
    AgentMessage,
    AssistantMessage,
    CompactionSummaryMessage,
    ImageContent,
    TextContent,
    ThinkingContent,
    ToolCall,
)
from yiemagent.tool import AgentTool
from yiemagent.transcript import Transcript

__all__ = [
    "BYTES_PER_TOKEN",
    "IMAGE_TOKENS",
    "MESSAGE_TOKENS",
    "Meter",
    "fixed_tokens",
    "message_tokens",
    "text_tokens",
]

BYTES_PER_TOKEN = 3.5
IMAGE_TOKENS = 1_600  # what a large image costs with most providers; none says it beforehand
MESSAGE_TOKENS = 6  # what stands around a message: its role, its marks, the id of a call
# A reported size below this part of the estimate is none: some servers report nothing, or only what was not cached.
_LEAST_REPORTED = 0.25


def text_tokens(text: str) -> int:
    """Estimate the tokens of a text."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return math.ceil(size / BYTES_PER_TOKEN)


def message_tokens(message: AgentMessage) -> int:
    """Estimate the tokens that a message has in a request; 0 for one that no model is sent."""
    if isinstance(message, AssistantMessage) and message.failed:
        return 0
    sent = message.to_llm()
    if sent is None:
        return 0
    return MESSAGE_TOKENS + sum(map(_block_tokens, sent.content))


def _block_tokens(block: Any) -> int:
    match block:
        case TextContent():
            return text_tokens(block.text)
        case ThinkingContent():
            return text_tokens(block.thinking)
        case ImageContent():
            return IMAGE_TOKENS
        case ToolCall():
            return MESSAGE_TOKENS + text_tokens(block.name) + _json_tokens(block.arguments)
        case _:
            return text_tokens(str(block))


def _json_tokens(value: Any) -> int:
    return text_tokens(value if isinstance(value, str) else _json(value))


def _json(value: Any) -> str:
    return json.dumps(json_payload(value), ensure_ascii=False)


def fixed_tokens(system_prompt: str, tools: Mapping[str, AgentTool]) -> int:
    """Estimate the tokens of what every request holds beside its messages."""
    total = text_tokens(system_prompt) if system_prompt else 0
    for tool in tools.values():
        words = f"{tool.name} {tool.description} {_json(tool.input_schema)}"
        total += MESSAGE_TOKENS + text_tokens(words)
    return total


class Meter:
    """Measures a context that grows, and walks only what is new. Used by one thread.

    What a model reported counts where it answered to this context; an answer that is older than the summary at the
    context's head was given to a larger one.
    """

    def __init__(self) -> None:
        self._seen: Transcript | None = None
        self._estimate = 0  # of the messages seen
        self._reported: int | None = None  # the size up to some message of those seen
        self._since = 0  # the estimate of the messages behind that
        self._fixed_of: tuple[str, Mapping[str, AgentTool]] | None = None
        self._fixed = 0

    def size(self, context: AgentContext) -> int:
        """Give how many tokens a request with this context has, about."""
        messages = _transcript(context.messages)
        self._measure_fixed(context)
        if self._seen is not None and messages.continues(self._seen):
            self._take(messages[len(self._seen) :])
        elif self._seen is None:
            self._begin(messages, trusted=True)
        else:  # somebody gave another context: nobody has reported the size of that
            self._begin(messages, trusted=False)
        self._seen = messages
        return self._total()

    def begin_anew(self, messages: Transcript) -> None:
        """Measure `messages`, to which no model has answered yet, in place of all that was measured before."""
        self._begin(messages, trusted=False)
        self._seen = messages

    @property
    def fixed(self) -> int:
        """The estimate of what the latest context holds beside its messages."""
        return self._fixed

    def _total(self) -> int:
        estimate = self._fixed + self._estimate
        if self._reported is None:
            return estimate
        return max(self._reported + self._since, int(estimate * _LEAST_REPORTED))

    def _measure_fixed(self, context: AgentContext) -> None:
        known = self._fixed_of
        if known is None or known[0] != context.system_prompt or known[1] is not context.tools:
            self._fixed = fixed_tokens(context.system_prompt, context.tools)
            self._fixed_of = (context.system_prompt, context.tools)

    def _begin(self, messages: Sequence[AgentMessage], *, trusted: bool) -> None:
        self._estimate, self._reported, self._since = 0, None, 0
        self._take(messages, trusted=trusted)

    def _take(self, messages: Iterable[AgentMessage], *, trusted: bool = True) -> None:
        summary: CompactionSummaryMessage | None = None
        for message in messages:
            tokens = message_tokens(message)
            self._estimate += tokens
            self._since += tokens
            if isinstance(message, CompactionSummaryMessage):
                summary = message
            elif trusted and isinstance(message, AssistantMessage) and not message.failed:
                used = message.usage.total_tokens if message.usage is not None else 0
                if used and (summary is None or message.timestamp >= summary.timestamp):
                    self._reported, self._since = used, 0


def _transcript(messages: Sequence[AgentMessage]) -> Transcript:
    return messages if isinstance(messages, Transcript) else Transcript(messages)
