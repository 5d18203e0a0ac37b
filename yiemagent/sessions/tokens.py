"""How large a context is, in tokens, as far as that can be told without asking: what the last answer reported, and an
estimate of what came after it.

Every model counts in its own way, so an estimate is made to be rather too high than too low: UTF-8 bytes, which come
out about right for European languages, for code and for languages that spend a token on each character.
"""

from __future__ import annotations

import json
import math
import operator
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
# What is reported below this part of the estimate is no size: some servers tell only what was not cached, and models
# for tests tell anything. A model that takes images cheaply stays above it.
_LEAST_REPORTED = 0.15
# What a model counts is compared with an estimate that is large enough for what providers add by themselves not to
# matter; and no model counts so many more tokens, so beyond that something else is reported.
_ENOUGH, _OVERHEAD, _MOST_SCALE = 2_000, 500, 4.0


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
        case _:  # a tool call
            return MESSAGE_TOKENS + text_tokens(block.name) + _json_tokens(block.arguments)


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
    context's head was given to a larger one. Where it counts more tokens than the estimate, so are those of the
    messages behind it.

    Attributes:
        fixed: the estimate of what a request holds beside its messages.
        scale: how many tokens the model counts for one of the estimate; never below 1.
        reported: what it counted up to its last answer; None where it did not say.
    """

    def __init__(self) -> None:
        self.fixed = 0
        self.scale = 1.0
        self.reported: int | None = None
        self._seen: Sequence[AgentMessage] | None = None
        self._estimate = 0  # of the messages seen
        self._since = 0  # the estimate of the messages behind what was reported
        self._fixed_of: tuple[str, Mapping[str, AgentTool]] | None = None

    def measure_fixed(self, context: AgentContext) -> None:
        """Measure what requests with this context hold beside their messages."""
        known = self._fixed_of
        if known is None or known[0] != context.system_prompt or known[1] is not context.tools:
            self.fixed = fixed_tokens(context.system_prompt, context.tools)
            self._fixed_of = (context.system_prompt, context.tools)

    def size(self, messages: Sequence[AgentMessage]) -> int:
        """Give how many tokens a request with these messages has, about."""
        if self._seen is None:
            self._begin(messages, trusted=True)
        elif self._goes_on(messages):
            self._take(messages[len(self._seen) :])
        else:  # somebody gave another context: nobody has reported the size of that
            self._begin(messages, trusted=False)
        self._seen = messages
        return self.estimate if self.reported is None else self.reported + self.scaled(self._since)

    @property
    def estimate(self) -> int:
        """The size of the messages measured last, whatever was reported of it."""
        return self.scaled(self.fixed + self._estimate)

    def scaled(self, tokens: int) -> int:
        """Give an estimate as the model would count it."""
        return int(tokens * self.scale)

    def begin_anew(self, messages: Sequence[AgentMessage]) -> None:
        """Measure messages to which no model has answered yet, in place of all that was measured before."""
        self._begin(messages, trusted=False)
        self._seen = messages

    def _goes_on(self, messages: Sequence[AgentMessage]) -> bool:
        seen = self._seen
        assert seen is not None
        if isinstance(messages, Transcript) and messages.continues(seen):
            return True
        return len(messages) >= len(seen) and all(map(operator.is_, seen, messages))

    def _begin(self, messages: Sequence[AgentMessage], *, trusted: bool) -> None:
        self._estimate, self.reported, self._since = 0, None, 0
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
                    self._report(used)

    def _report(self, used: int) -> None:
        """Take what a model counted up to here, unless it can't be so."""
        estimate = self.fixed + self._estimate
        if used < estimate * _LEAST_REPORTED:
            return
        self.reported, self._since = used, 0
        if estimate >= _ENOUGH:
            self.scale = min(_MOST_SCALE, max(1.0, (used - _OVERHEAD) / estimate))
