"""What a run consumes, and the limits that let no further request go out."""

from __future__ import annotations

import pytest

from yiemagent.limits import Spending, total_usage
from yiemagent.messages import AssistantMessage, LlmUsage, ToolResultMessage, UserMessage

PRICED = AssistantMessage("a", usage=LlmUsage(10, 5, 2, 1, 3, 0.25))
CHEAP = AssistantMessage("b", usage=LlmUsage(1, 1, cost=0.05))
UNPRICED = AssistantMessage("c", provider="openai", model="gpt-x", usage=LlmUsage(100, 50))
UNMETERED = AssistantMessage("d", model="quiet")
RESULT = ToolResultMessage("1", "ask_other", "ok", usage=LlmUsage(7, 3, cost=0.5))


def spent(*messages):
    """Give what these messages consumed."""
    spending = Spending()
    for message in messages:
        spending.take(message)
    return spending


# -- totals --


def test_totals_are_the_sum_of_answers_and_of_what_tools_asked_for():
    """Answers and tool results count once each; what people said consumes nothing."""
    total = total_usage(
        [UserMessage("hi"), PRICED, ToolResultMessage("2", "plain"), RESULT, UNMETERED]
    )

    assert total == LlmUsage(17, 8, 2, 1, 3, 0.75)
    assert total.total_tokens == 28


def test_of_nothing_nothing_is_the_total():
    """Without a usage there are no tokens and no known cost."""
    assert total_usage([]) == LlmUsage()
    assert total_usage([UNMETERED, UserMessage("hi")]).cost is None


def test_a_total_has_the_costs_that_are_known():
    """A model without a price adds its tokens and no cost."""
    assert total_usage([PRICED, UNPRICED]) == LlmUsage(110, 55, 2, 1, 3, 0.25)


def test_spending_counts_as_the_total_does():
    """The running sum of a run is the total of its messages."""
    messages = [UserMessage("hi"), PRICED, RESULT, CHEAP, UNPRICED, UNMETERED]

    assert spent(*messages).usage == total_usage(messages)


# -- limits --


def test_without_limits_nothing_stops_a_run():
    """No limit is looked at that nobody set, whatever is known of usage and prices."""
    assert spent(PRICED, UNPRICED, UNMETERED).limit(None, None) is None


@pytest.mark.parametrize(("limit", "stops"), [(18, True), (17, True), (19, False)])
def test_tokens_are_limited(limit, stops):
    """A run that used as many tokens as it may asks no further; cached ones count."""
    text = spent(PRICED).limit(None, limit)

    assert (text is not None) == stops
    if stops:
        assert text == f"stopped: the run used 18 tokens (max_total_tokens={limit})"


@pytest.mark.parametrize(("limit", "stops"), [(0.3, True), (0.25, True), (0.31, False)])
def test_cost_is_limited(limit, stops):
    """A run that cost as much as it may asks no further."""
    text = spent(PRICED, CHEAP).limit(limit, None)

    assert (text is not None) == stops
    if stops:
        assert text == f"stopped: the run cost $0.3 (max_cost={limit:g})"


def test_what_tools_ask_for_counts():
    """A tool that asks models itself spends from the same purse."""
    assert "$0.55 (max_cost=0.5)" in spent(CHEAP, RESULT).limit(0.5, None)
    assert "12 tokens (max_total_tokens=12)" in spent(CHEAP, RESULT).limit(None, 12)


def test_a_limit_that_cant_be_held_says_so():
    """Where nobody tells the usage, a limit on it stops the run rather than count for nothing."""
    spending = spent(CHEAP, UNMETERED)

    assert "max_total_tokens=1000 can't be held" in spending.limit(None, 1000)
    assert "the model 'quiet' does not tell" in spending.limit(None, 1000)
    assert "max_cost=1 can't be held" in spending.limit(1, None)


def test_a_cost_without_a_price_says_how_to_set_it():
    """Where the price is not known, the words name the call that sets it; tokens can be limited all the same."""
    spending = spent(CHEAP, UNPRICED)

    assert "set_price('openai:gpt-x', …)" in spending.limit(1, None)
    assert spending.limit(None, 1000) is None
    no_name = spent(AssistantMessage("x", usage=LlmUsage(1, 1)))
    assert no_name.limit(1, None).endswith("the price of the model is not known")


def test_a_tool_whose_cost_is_not_known_is_named():
    """A tool's own usage may lack a cost as well."""
    spending = spent(ToolResultMessage("1", "ask_other", "ok", usage=LlmUsage(1, 1)))

    assert "the price of the tool 'ask_other' is not known" in spending.limit(1, None)


def test_the_first_of_several_is_named():
    """What stopped the run is what came first."""
    spending = spent(UNMETERED, AssistantMessage("e", model="other"))

    assert "'quiet'" in spending.limit(None, 5)


def test_an_answer_that_failed_need_not_tell_its_usage():
    """What failed often consumed nothing, and is no reason to end a run."""
    spending = spent(AssistantMessage(stop_reason="error", error_message="no"), CHEAP)

    assert spending.limit(1, 1000) is None
