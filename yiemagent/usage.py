"""Models, and what their answers consume."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from yiemagent.record import Record

__all__ = ["LlmModel", "LlmUsage", "model_id", "string_tuple"]


@attrs.frozen(eq=False, repr=False)
class LlmUsage(Record):
    """What one model answer consumed; the five counts don't overlap, except that output holds reasoning.

    Args:
        input_tokens: input that was read afresh, neither from a cache nor into one.
        output_tokens: output, reasoning included.
        cache_read_tokens: input read from the provider's prompt cache.
        cache_write_tokens: input written to the provider's prompt cache.
        reasoning_tokens: the part of the output that is reasoning.
        cost: price of all of it in US dollars, or None where prices are unknown.
    """

    # Some providers count in floats, which no session would take.
    input_tokens: int = attrs.field(default=0, converter=int)
    output_tokens: int = attrs.field(default=0, converter=int)
    cache_read_tokens: int = attrs.field(default=0, converter=int)
    cache_write_tokens: int = attrs.field(default=0, converter=int)
    reasoning_tokens: int = attrs.field(default=0, converter=int)
    cost: float | None = None

    @property
    def total_tokens(self) -> int:
        """Every token of the request and its answer."""
        return (
            self.input_tokens
            + self.output_tokens
            + self.cache_read_tokens
            + self.cache_write_tokens
        )

    def __add__(self, other: LlmUsage) -> LlmUsage:
        known = [cost for cost in (self.cost, other.cost) if cost is not None]
        return LlmUsage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            sum(known) if known else None,
        )


def string_tuple(names: Iterable[str] | None) -> tuple[str, ...]:
    """Give names as a tuple; None is none."""
    return tuple(names or ())


@attrs.frozen(eq=False, repr=False)
class LlmModel(Record):
    """A model and what is known of it.

    Args:
        id: the provider's own name of the model.
        provider: who serves it, for example "openai".
        api: the wire API it is spoken to with, for example "openai-chat".
        context_window: tokens that request and answer may have together, or None where unknown.
        max_output_tokens: tokens that an answer may have, or None where unknown.
        input_kinds: kinds of content it can read: "text", "image".
        reasoning: whether it can think before it answers.
    """

    id: str
    provider: str = ""
    api: str = ""
    context_window: int | None = None
    max_output_tokens: int | None = None
    input_kinds: tuple[str, ...] = attrs.field(default=("text", "image"), converter=string_tuple)
    reasoning: bool = False


def model_id(model: LlmModel | str | None) -> str:
    """The provider's own name of a model; empty where none is set."""
    return model.id if isinstance(model, LlmModel) else model or ""
