"""What a run consumes, and the limits that let no further request go out.

A limit does not take back what was asked: it is looked at before each further request of a run, so the last one may go
over it, and an answer that ends the run anyway is given. What can't be held, since nobody tells the usage or the price,
ends the run as well, in words that say so: a limit is never silently without effect.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from yiemagent.messages import AgentMessage, AssistantMessage, LlmUsage, ToolResultMessage

__all__ = ["Spending", "total_usage"]


def total_usage(messages: Iterable[AgentMessage]) -> LlmUsage:
    """Give what all of `messages` consumed: answers, and tool results whose tools asked models themselves.

    The cost is the sum of the known ones, None where none is known.
    """
    total = LlmUsage()
    for message in messages:
        if isinstance(message, (AssistantMessage, ToolResultMessage)) and message.usage is not None:
            total += message.usage
    return total


@attrs.define(eq=False, repr=False)
class Spending:
    """What a run has consumed so far; owned by the run's thread."""

    usage: LlmUsage = attrs.field(factory=LlmUsage)
    # The first whose usage, or whose cost, nobody told.
    unmetered: AgentMessage | None = None
    unpriced: AgentMessage | None = None

    def take(self, message: AgentMessage) -> None:
        """Count a message of the run."""
        if not isinstance(message, (AssistantMessage, ToolResultMessage)):
            return
        usage = message.usage
        if usage is None:
            # A tool need not ask models, and what an answer that failed consumed is often not told.
            if isinstance(message, AssistantMessage) and not message.failed:
                self.unmetered = self.unmetered or message
            return
        self.usage += usage
        if usage.cost is None:
            self.unpriced = self.unpriced or message

    def limit(self, max_cost: float | None, max_total_tokens: int | None) -> str | None:
        """Give the words of the limit that lets no further request go out, or None.

        Args:
            max_cost: US dollars; None: no limit.
            max_total_tokens: tokens of requests and answers together; None: no limit.
        """
        if max_total_tokens is not None:
            used = self.usage.total_tokens
            if used >= max_total_tokens:
                return f"stopped: the run used {used} tokens (max_total_tokens={max_total_tokens})"
            if self.unmetered is not None:
                return _cant_hold("max_total_tokens", max_total_tokens, self.unmetered)
        if max_cost is not None:
            cost = self.usage.cost or 0.0
            if cost >= max_cost:
                return f"stopped: the run cost ${cost:.6g} (max_cost={max_cost:g})"
            if self.unmetered is not None:
                return _cant_hold("max_cost", max_cost, self.unmetered)
            if self.unpriced is not None:
                return _no_price(max_cost, self.unpriced)
        return None


def _cant_hold(name: str, limit: float, message: AgentMessage) -> str:
    return (
        f"stopped: {name}={limit:g} can't be held, since {_who(message)} does not tell what an answer "
        f"consumed; leave the limit out, or use max_turns"
    )


def _no_price(max_cost: float, message: AgentMessage) -> str:
    hint = ""
    if isinstance(message, AssistantMessage) and message.provider and message.model:
        name = f"{message.provider}:{message.model}"
        hint = f"; set it with yiemagent.providers.prices.set_price({name!r}, …)"
    return (
        f"stopped: max_cost={max_cost:g} can't be held, since the price of {_who(message)} "
        f"is not known{hint}"
    )


def _who(message: AgentMessage) -> str:
    if isinstance(message, ToolResultMessage):
        return f"the tool {message.tool_name!r}"
    if isinstance(message, AssistantMessage) and message.model:
        return f"the model {message.model!r}"
    return "the model"
