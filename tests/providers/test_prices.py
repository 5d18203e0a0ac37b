"""What answers cost: the list, its tiers, and prices of the user's own."""

from __future__ import annotations

import json
import threading

import pytest

from yiemagent.errors import ConfigurationError
from yiemagent.messages import AssistantMessage, LlmUsage
from yiemagent.providers import models, prices
from yiemagent.providers.prices import (
    Price,
    cost_of,
    load_prices,
    price_of,
    set_price,
    with_cost,
)

LISTED = json.loads(prices._LIST.read_text(encoding="utf-8"))
MILLION = 1_000_000


def usage(fresh=0, output=0, read=0, written=0):
    """Give a usage in short."""
    return LlmUsage(fresh, output, read, written)


# -- the list --


def test_every_listed_price_is_sound():
    """Each line of the list is a price, cached input is no dearer than fresh, and tiers cost more the longer."""
    for provider, named in LISTED["prices"].items():
        assert provider == models.canonical(provider)
        for name in named:
            price = price_of(provider, "any" if name == "*" else name)
            assert (price.cache_read or 0) <= price.input <= max(price.output, price.input)
            assert all(tier.input > price.input for tier in price.tiers)


def test_the_kinds_of_tokens_are_charged_apart():
    """Fresh, cached, written and given tokens each have their own price."""
    price = Price(input=4, output=20, cache_read=0.2, cache_write=5)

    assert price.cost(usage(fresh=MILLION)) == 4
    assert price.cost(usage(output=MILLION)) == 20
    assert price.cost(usage(read=MILLION)) == pytest.approx(0.2)
    assert price.cost(usage(written=MILLION)) == 5
    assert price.cost(usage(MILLION, MILLION, MILLION, MILLION)) == pytest.approx(29.2)
    assert price.cost(usage()) == 0


def test_reasoning_is_part_of_the_output():
    """Reasoning tokens are counted in the output and are not charged twice."""
    with_thoughts = LlmUsage(0, 1000, reasoning_tokens=900)

    assert Price(input=1, output=10).cost(with_thoughts) == pytest.approx(0.01)


def test_without_a_price_of_its_own_cached_input_costs_as_fresh():
    """A cost is never too low for want of a cache's price."""
    price = Price(input=3, output=0)

    assert price.cost(usage(read=MILLION)) == price.cost(usage(written=MILLION)) == 3


def test_a_prompt_kept_long_costs_more_to_write():
    """What a request asks of the cache decides what writing costs."""
    written = usage(written=MILLION)

    assert cost_of(written, "anthropic", "claude-opus-5-5") == 5
    assert cost_of(written, "anthropic", "claude-opus-5-5", cache="short") == 5
    assert cost_of(written, "anthropic", "claude-opus-5-5", cache="long") == 8
    assert Price(input=1, output=1).cost(written, long_cache=True) == 1


def test_a_long_request_costs_its_tier_as_a_whole():
    """Above a tier's bound all tokens of the request cost what the tier says; cached input counts."""
    price = Price(
        input=2,
        output=12,
        tiers=[
            {"above_input_tokens": 400_000, "input": 8, "output": 24},
            {"above_input_tokens": 200_000, "input": 4, "output": 18, "cache_read": 0.4},
        ],
    )

    assert price.cost(usage(200_000)) == pytest.approx(0.4)
    assert price.cost(usage(200_001)) == pytest.approx(0.800004)
    assert price.cost(usage(100_000, MILLION, 100_001)) == pytest.approx(0.4 + 18 + 0.0400004)
    assert price.cost(usage(500_000)) == pytest.approx(4)


@pytest.mark.parametrize(
    ("provider", "model", "expected"),
    [
        ("openai", "gpt-5.1", 11.25),
        ("openai", "gpt-5.1-2025-11-13", 11.25),
        ("openai-responses", "gpt-5.1", 11.25),
        ("anthropic", "claude-haiku-4-5-20251001", 6),
        ("google", "gemini-2.5-flash", 2.8),
        ("ollama", "whatever", 0),
        ("local", "", 0),
        ("openai", "gpt-5.1-imaginary", None),
        ("nobody", "gpt-5.1", None),
        ("", "", None),
    ],
)
def test_a_model_costs_what_its_provider_says(provider, model, expected):
    """Dated names and second names are found; what is not known costs None, never 0."""
    assert cost_of(usage(MILLION, MILLION), provider, model) == expected


# -- answers --


def test_an_answer_is_given_its_cost():
    """The cost of an answer stands in its usage."""
    message = AssistantMessage("hi", provider="openai", model="gpt-4.1", usage=LlmUsage(MILLION, 0))

    assert with_cost(message).usage.cost == 2
    assert with_cost(message).text == "hi"


@pytest.mark.parametrize(
    "message",
    [
        AssistantMessage("hi", provider="openai", model="gpt-4.1"),
        AssistantMessage("hi", provider="nobody", model="m", usage=LlmUsage(1, 1)),
        AssistantMessage("hi", provider="openai", model="gpt-4.1", usage=LlmUsage(1, 1, cost=9.0)),
    ],
    ids=["no usage", "no price", "told by the provider"],
)
def test_an_answer_whose_cost_is_known_or_unknowable_stays(message):
    """A cost that the provider told is kept, and none is made up."""
    assert with_cost(message) is message


# -- prices of the user's own --


def test_a_price_of_the_users_own_goes_before_the_list():
    """`set_price` sets what a model costs, under each name of its provider."""
    set_price("own-a:small", input=1, output=2)
    set_price("own-a:*", Price(input=5, output=5))

    assert cost_of(usage(MILLION, MILLION), "own-a", "small") == 3
    assert cost_of(usage(MILLION), "own-a", "other") == 5
    set_price("google:my-gemini", input=7, output=7)
    assert cost_of(usage(MILLION), "gemini", "my-gemini") == 7
    set_price("local:my-own.gguf", input=0.5, output=0.5)
    assert cost_of(usage(MILLION), "local", "my-own.gguf") == 0.5
    assert cost_of(usage(MILLION), "local", "another.gguf") == 0


def test_prices_are_read_from_a_file(tmp_path):
    """A file has the form of the list, with or without what stands around it."""
    path = tmp_path / "prices.json"
    path.write_text(json.dumps({"own-b": {"m:1": {"input": 1, "output": 3}}}), encoding="utf-8")
    load_prices(path)

    assert cost_of(usage(output=MILLION), "own-b", "m:1") == 3
    path.write_text(
        json.dumps({"as_of": "2026-12-01", "prices": {"own-b": {"n": {"input": 9, "output": 9}}}}),
        encoding="utf-8",
    )
    load_prices(str(path))
    assert price_of("own-b", "n") == Price(input=9, output=9)
    assert price_of("own-b", "m:1") is not None


@pytest.mark.parametrize(
    "text",
    [
        None,
        "no json",
        "[]",
        '{"own-c": []}',
        '{"own-c": {"good": {"input": 1, "output": 1}, "bad": {"input": 1}}}',
        '{"own-c": {"good": {"input": 1, "output": 1}, "bad": 7}}',
        '{"own-c": {"good": {"input": 1, "output": 1}, "bad": {"input": 1, "output": -1}}}',
        '{"own-c": {"good": {"input": 1, "output": 1}, "bad": {"in": 1, "output": 1}}}',
    ],
)
def test_a_file_that_is_no_list_of_prices_changes_nothing(tmp_path, text):
    """One wrong line, and none of the file holds; the error names the file."""
    path = tmp_path / "prices.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")

    with pytest.raises(ConfigurationError, match=r"prices\.json"):
        load_prices(path)
    assert price_of("own-c", "good") is None


@pytest.mark.parametrize("model", ["gpt-5.1", ":gpt-5.1", "openai:", ""])
def test_a_price_needs_a_provider_and_a_model(model):
    """A name alone could mean anybody's model."""
    with pytest.raises(ConfigurationError, match="with its provider"):
        set_price(model, input=1, output=1)


@pytest.mark.parametrize(
    ("amounts", "problem"),
    [
        ({}, "input"),
        ({"input": 1}, "output"),
        ({"input": "1", "output": 1}, "input"),
        ({"input": True, "output": 1}, "input"),
        ({"input": 1, "output": float("nan")}, "output"),
        ({"input": 1, "output": float("inf")}, "output"),
        ({"input": 1, "output": 1, "cache_read": -0.1}, "cache_read"),
        ({"input": 1, "output": 1, "cached": 1}, "cached"),
        ({"input": 1, "output": 1, "tiers": [3]}, "3"),
    ],
)
def test_what_is_no_price_is_refused(amounts, problem):
    """The words name the field that is wrong."""
    with pytest.raises(ConfigurationError, match=problem):
        set_price("own-d:m", **amounts)
    assert price_of("own-d", "m") is None


def test_prices_set_at_once_are_all_kept():
    """Threads that set prices side by side lose none of them."""
    start = threading.Barrier(8)

    def work(number):
        start.wait()
        for index in range(20):
            set_price(f"own-e:m-{number}-{index}", input=number, output=index)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    missing = [(n, i) for n in range(8) for i in range(20) if not price_of("own-e", f"m-{n}-{i}")]
    assert missing == []
