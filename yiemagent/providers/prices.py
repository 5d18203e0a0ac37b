"""What models cost: public list prices as data, and prices of the user's own.

A price is US dollars per million tokens. `data/prices.json` holds what the providers' price pages said on the day that
it names. Prices change, so whoever relies on a cost sets the price: `set_price("openai:gpt-5.5", input=5, output=30)`,
or many at once with `load_prices(path)`. A model whose price is not known costs None, never 0. Models that run on a
machine of one's own cost 0.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import threading
from collections.abc import Iterable, Mapping
from typing import Any, cast

import attrs

from yiemagent.errors import ConfigurationError
from yiemagent.llm import CacheUse
from yiemagent.messages import AssistantMessage, LlmUsage
from yiemagent.providers.models import canonical, names_of
from yiemagent.record import Record

__all__ = ["Price", "cost_of", "load_prices", "price_of", "set_price", "with_cost"]

_LIST = pathlib.Path(__file__).parent / "data" / "prices.json"
_ANY = "*"


def _amount(_price: Any, field: Any, value: object) -> None:
    if value is None:
        return
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (is_number and 0 <= cast("float", value) < float("inf")):
        raise ConfigurationError(
            f"{field.name} must be dollars per million tokens, 0 or more, not {value!r}"
        )


def _needed(price: Any, field: Any, value: object) -> None:
    if value is None:
        raise ConfigurationError(f"a price needs {field.name}=, dollars per million tokens")
    _amount(price, field, value)


def _tiers(given: Iterable[Price | Mapping[str, Any]]) -> tuple[Price, ...]:
    made = [tier if isinstance(tier, Price) else Price.of(tier) for tier in given]
    return tuple(sorted(made, key=lambda tier: tier.above_input_tokens))


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Price(Record):
    """What a model costs, in US dollars per million tokens.

    Args:
        input: input that is read afresh.
        output: output, reasoning included.
        cache_read: input read from the provider's cache; None: as `input`.
        cache_write: input written to the provider's cache; None: as `input`.
        cache_write_long: the same with `cache="long"`; None: as `cache_write`.
        above_input_tokens: of a tier: it holds for the whole of a request with more input than this, cached or not.
        tiers: prices of longer requests.
    """

    input: float = attrs.field(default=None, validator=_needed)
    output: float = attrs.field(default=None, validator=_needed)
    cache_read: float | None = attrs.field(default=None, validator=_amount)
    cache_write: float | None = attrs.field(default=None, validator=_amount)
    cache_write_long: float | None = attrs.field(default=None, validator=_amount)
    above_input_tokens: int = attrs.field(default=0, validator=_amount)
    tiers: tuple[Price, ...] = attrs.field(default=(), converter=_tiers)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Price:
        """Give the price that a mapping of these fields says.

        Raises:
            ConfigurationError: where it is none.
        """
        if not isinstance(given, Mapping):
            raise ConfigurationError(f"a price must be an object, not {given!r}")
        known = [field.name for field in attrs.fields(cls)]
        if unknown := sorted(set(given) - set(known)):
            raise ConfigurationError(
                f"a price has no field {', '.join(map(str, unknown))}; it has {', '.join(known)}"
            )
        return cls(**given)

    def cost(self, usage: LlmUsage, *, long_cache: bool = False) -> float:
        """Give what `usage` costs in US dollars; `long_cache`: the cache was asked to keep it long."""
        read = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        holds = [tier for tier in self.tiers if read > tier.above_input_tokens]
        return (holds[-1] if holds else self)._sum(usage, long_cache=long_cache)

    def _sum(self, usage: LlmUsage, *, long_cache: bool) -> float:
        cache_read = self.input if self.cache_read is None else self.cache_read
        cache_write = self.input if self.cache_write is None else self.cache_write
        if long_cache and self.cache_write_long is not None:
            cache_write = self.cache_write_long
        return (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + usage.cache_read_tokens * cache_read
            + usage.cache_write_tokens * cache_write
        ) / 1_000_000


# --- looking up
# -------------------------------------------------------------------------------------------------------

_Prices = Mapping[tuple[str, str], Price]

# Guards the change of `_own`, so that two threads that set prices at once lose none; held for a copy of the mapping.
# Readers need no lock, since the mapping is replaced whole.
_changing = threading.Lock()
_own: _Prices = {}


@functools.cache
def _listed() -> _Prices:
    return _prices_of(json.loads(_LIST.read_text(encoding="utf-8"))["prices"])


def _prices_of(data: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, str], Price]:
    return {
        (canonical(provider), model): Price.of(price)
        for provider, models in data.items()
        for model, price in models.items()
    }


def price_of(provider: str, model: str) -> Price | None:
    """Give what a provider's model costs, or None where that is not known.

    Args:
        provider: as answers carry it and model strings name it, such as "openai".
        model: the provider's name of the model; a date or "latest" at its end is left out where the whole name has no
            price.
    """
    provider = canonical(provider)
    names = (*names_of(model), _ANY)
    for prices in (_own, _listed()):
        for name in names:
            price = prices.get((provider, name))
            if price is not None:
                return price
    return None


def cost_of(
    usage: LlmUsage, provider: str, model: str, *, cache: CacheUse | None = None
) -> float | None:
    """Give what an answer cost in US dollars, or None where the price is not known.

    Args:
        usage: what it consumed.
        provider: who answered.
        model: the model's name.
        cache: how long the request asked the provider to keep the prompt.
    """
    price = price_of(provider, model)
    return None if price is None else price.cost(usage, long_cache=cache == "long")


def with_cost(message: AssistantMessage, *, cache: CacheUse | None = None) -> AssistantMessage:
    """Give an answer with its cost; as it is where it has one already, no usage is known, or no price."""
    usage = message.usage
    if usage is None or usage.cost is not None:
        return message
    cost = cost_of(usage, message.provider, message.model, cache=cache)
    if cost is None:
        return message
    return attrs.evolve(message, usage=attrs.evolve(usage, cost=cost))


# --- prices of the user's own
# -----------------------------------------------------------------------------------------


def set_price(model: str, price: Price | None = None, /, **amounts: Any) -> None:
    """Set what a model costs, for all agents of this process.

    Args:
        model: a model string, such as "openai:gpt-5.5"; "openai:*" is every model of the provider that you set no price
            of.
        price: the price.
        **amounts: or its fields: `input=5, output=30, cache_read=0.5`.

    Raises:
        ConfigurationError: where the model has no provider, or the price is none.
    """
    provider, separator, name = model.partition(":")
    if not (separator and provider and name):
        raise ConfigurationError(
            f"name the model with its provider, such as 'openai:gpt-5.5', not {model!r}"
        )
    _add({(canonical(provider), name): price or Price.of(amounts)})


def load_prices(path: str | os.PathLike[str]) -> None:
    """Set prices from a JSON file: providers by name, each with its models by name, each with the fields of a `Price`.

    Raises:
        ConfigurationError: where the file can't be read, or holds anything else; then no price is changed.
    """
    try:
        data = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        prices = _prices_of(data.get("prices", data))
    except (OSError, ValueError, AttributeError, ConfigurationError) as error:
        raise ConfigurationError(f"no prices could be read from {path}: {error}") from error
    _add(prices)


def _add(prices: _Prices) -> None:
    global _own  # noqa: PLW0603 - one list of prices for the process, replaced whole
    with _changing:
        _own = {**_own, **prices}
