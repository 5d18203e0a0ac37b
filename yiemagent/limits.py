"""What a run consumes, and the limits that let no further request go out.

A limit does not take back what was asked: it is looked at before each further request of a run, so the last one may go
over it, and an answer that ends the run anyway is given. What can't be held, since nobody tells the usage or the price,
ends the run as well, in words that say so: a limit is never silently without effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from yiemagent.messages import AgentMessage, AssistantMessage, LlmUsage, ToolResultMessage

__all__ = ["LimitReached", "Spending", "noted_usage", "total_usage"]

_NOTHING = LlmUsage()


class LimitReached(Exception):
    """No further request may go out; the text says which limit, and what was used."""


def total_usage(messages: Iterable[AgentMessage]) -> LlmUsage:
    """Give what all of `messages` consumed: answers, and tool results whose tools asked models themselves.

    The cost is the sum of the known ones, None where none is known.
    """
    used = [usage for message in messages if (usage := getattr(message, "usage", None)) is not None]
    return sum(used, _NOTHING)


def noted_usage(details: Mapping[str, Any]) -> LlmUsage | None:
    """Give the usage that the details of an event tell, as the end of a compaction does; None where they tell none."""
    told = details.get("usage")
    if not isinstance(told, Mapping):
        return None
    names = [field.name for field in attrs.fields(LlmUsage)]
    return LlmUsage(**{name: told[name] for name in names if name in told})


@attrs.define(eq=False, repr=False)
class Spending:
    """What a run has consumed so far; owned by the run's thread."""

    usage: LlmUsage = _NOTHING
    # The first whose usage, or whose cost, nobody told, in words.
    unmetered: str | None = None
    unpriced: str | None = None

    def take(self, message: AgentMessage) -> None:
        """Count a message of the run."""
        if not isinstance(message, (AssistantMessage, ToolResultMessage)):
            return
        if message.usage is not None:
            self.add(message.usage, _who(message), _how_to_price(message))
        # A tool need not ask models, and what an answer that failed consumed is often not told.
        elif isinstance(message, AssistantMessage) and not message.failed:
            self.unmetered = self.unmetered or _who(message)

    def add(self, usage: LlmUsage, who: str, hint: str = "") -> None:
        """Count what somebody consumed for the run; `hint` says how a price could be set."""
        self.usage += usage
        if usage.cost is None:
            self.unpriced = self.unpriced or f"{who} is not known{hint}"

    def limit(self, max_cost: float | None, max_total_tokens: int | None) -> str | None:
        """Give the words of the limit that lets no further request go out, or None.

        Args:
            max_cost: US dollars; None: no limit.
            max_total_tokens: tokens of requests and answers together; None: no limit.
        """
        used, cost = self.usage.total_tokens, self.usage.cost or 0.0
        if max_total_tokens is not None and used >= max_total_tokens:
            return f"stopped: the run used {used} tokens (max_total_tokens={max_total_tokens})"
        if max_cost is not None and cost >= max_cost:
            return f"stopped: the run cost ${cost:.6g} (max_cost={max_cost:g})"
        return self._cant_hold(max_cost, max_total_tokens)

    def _cant_hold(self, max_cost: float | None, max_total_tokens: int | None) -> str | None:
        """Give the words of a limit that nobody can tell the state of, or None."""
        if self.unmetered is not None and (max_cost is not None or max_total_tokens is not None):
            name = "max_cost" if max_total_tokens is None else "max_total_tokens"
            limit = max_cost if max_total_tokens is None else max_total_tokens
            return (
                f"stopped: {name}={limit:g} can't be held, since {self.unmetered} does not tell what an "
                f"answer consumed; leave the limit out, or use max_turns"
            )
        if self.unpriced is not None and max_cost is not None:
            return (
                f"stopped: max_cost={max_cost:g} can't be held, since the price of {self.unpriced}"
            )
        return None


def _who(message: AssistantMessage | ToolResultMessage) -> str:
    if isinstance(message, ToolResultMessage):
        return f"the tool {message.tool_name!r}"
    return f"the model {message.model!r}" if message.model else "the model"


def _how_to_price(message: AssistantMessage | ToolResultMessage) -> str:
    if isinstance(message, AssistantMessage) and message.provider and message.model:
        name = f"{message.provider}:{message.model}"
        return f"; set it with yiemagent.providers.prices.set_price({name!r}, …)"
    return ""
