"""What a run consumes, and the limits that let no further request go out."""

from __future__ import annotations

import attrs
import pytest

from tests.support.loops import run, tool
from yiemagent.agent import YiemAgent
from yiemagent.api import abort_agent, ask
from yiemagent.events import AgentEndEvent, CompactionEndEvent, TurnEndEvent
from yiemagent.limits import Spending, noted_usage, total_usage
from yiemagent.messages import (
    AssistantMessage,
    CompactionSummaryMessage,
    LlmUsage,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.state import AgentState, reduce
from yiemagent.testing import RecordingSink, ScriptedModel, call
from yiemagent.tool import AgentToolResult

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


# -- whole runs --


def costly(*blocks, cost=0.4, tokens=100):
    """Give an answer that consumed something; with calls it goes on."""
    reason = "tool_use" if any(isinstance(block, ToolCall) for block in blocks) else "stop"
    return AssistantMessage(
        blocks, model="m", stop_reason=reason, usage=LlmUsage(tokens, 0, cost=cost)
    )


def looking(count):
    """Give a script that calls a tool so many times and then answers."""
    return [costly(call("look")) for _ in range(count)] + [costly(TextContent("done"))]


@pytest.mark.parametrize(
    ("limits", "requests", "text"),
    [
        ({"max_cost": 0.8}, 2, "stopped: the run cost $0.8 (max_cost=0.8)"),
        ({"max_cost": 1.0}, 3, "stopped: the run cost $1.2 (max_cost=1)"),
        (
            {"max_total_tokens": 200},
            2,
            "stopped: the run used 200 tokens (max_total_tokens=200)",
        ),
        ({"max_turns": 2, "max_cost": 9}, 2, "stopped after 2 turns (max_turns=2)"),
    ],
    ids=["cost", "cost between", "tokens", "turns"],
)
def test_a_run_at_its_limit_asks_no_further(limits, requests, text):
    """The error says which limit and what was used; every call that was made has its result."""
    done = run(looking(9), tool("look"), **limits)

    assert done.answer.stop_reason == "error"
    assert done.answer.error_message.startswith(text)
    assert len(done.model.requests) == len(done.results) == requests


def test_an_answer_that_ends_the_run_is_given_whatever_it_cost():
    """A limit keeps requests from going out; it takes no answer back."""
    done = run(looking(2), tool("look"), max_cost=1.2, max_total_tokens=300)

    assert done.answer.text == "done"
    assert done.answer.stop_reason == "stop"


def test_what_waits_stays_queued_at_a_limit():
    """Steering and follow-ups are not taken in by a run that may not ask for them any more."""
    looked = []

    def steering():
        looked.append("steering")
        return []

    def follow_ups():
        looked.append("follow-ups")
        return [UserMessage("more")]

    done = run(
        looking(0),
        max_cost=0.1,
        get_steering_messages=steering,
        get_follow_up_messages=follow_ups,
    )

    assert done.answer.text == "done"
    assert looked == ["steering"]


def test_what_a_tool_asks_of_models_is_counted_once():
    """A tool's usage spends from the run's limits and stands in its total."""
    used = LlmUsage(1000, 0, cost=2.0)
    asks = tool("look", lambda *_: AgentToolResult("seen", usage=used))
    stopped = run(looking(3), asks, max_cost=2.0)
    done = run(looking(2), asks)
    [end] = done.of(AgentEndEvent)

    assert "$2.4 (max_cost=2)" in stopped.answer.error_message
    assert end.usage.total_tokens == 2300
    assert end.usage.cost == pytest.approx(5.2)


def test_an_empty_answer_is_not_asked_for_again_over_a_limit():
    """A request that would go over a limit is none, whatever it is for."""
    empty = AssistantMessage(usage=LlmUsage(10, 0, cost=1.0))
    done = run([empty, "hi"], max_cost=1.0)

    assert done.answer.error_message == "stopped: the run cost $1 (max_cost=1)"
    assert len(done.model.requests) == 1
    assert run([empty, "hi"], max_cost=2.0).answer.text == "hi"


def test_an_answer_that_must_be_given_again_is_a_request_like_any_other():
    """A run whose answer does not fit is not asked again over a limit."""
    done = run([costly(TextContent("seven"))], output_schema=int, max_cost=0.1)

    assert done.answer.error_message == "stopped: the run cost $0.4 (max_cost=0.1)"


def test_a_limit_without_a_price_ends_a_run_that_would_go_on():
    """A scripted model has no price, so a limit on cost can't be held, and the run says so."""
    done = run([call("look"), "done"], tool("look"), max_cost=1)

    assert "max_cost=1 can't be held" in done.answer.error_message
    assert run(["done"], max_cost=1).answer.text == "done"


def test_a_terminated_batch_is_an_answer_at_a_limit():
    """What tools hand off needs no further request."""
    stop = tool("stop", lambda *_: AgentToolResult("stopping", terminate=True))

    assert run([costly(call("stop"))], stop, max_cost=0.1).answer.stop_reason == (
        "tool_use_terminated"
    )


# -- totals of runs and agents --


def test_a_run_ends_with_what_it_consumed():
    """The last event holds the total of the run, prompts and earlier history apart."""
    before = [UserMessage("hi"), costly(TextContent("hello"))]
    done = run(looking(2), tool("look"), history=before)
    [end] = done.of(AgentEndEvent)

    assert end.usage == total_usage(done.messages)
    assert end.usage.cost == pytest.approx(1.2)


def test_an_agent_knows_what_it_consumed():
    """The total of an agent grows with its runs; a history that was given cost somebody else."""
    model = ScriptedModel([costly(TextContent("one")), costly(call("look")), "plain"])
    before = [UserMessage("hi"), costly(TextContent("hello"))]
    with YiemAgent(model, tools=[tool("look")], messages=before) as agent:
        assert agent.usage == LlmUsage()
        ask(agent, "first", timeout_s=10)
        assert (agent.usage.total_tokens, agent.usage.cost) == (100, 0.4)
        ask(agent, "second", timeout_s=10)

    assert agent.usage.total_tokens == 215
    assert agent.usage.cost == pytest.approx(0.8)
    assert agent.state.usage is agent.usage


def test_an_aborted_run_counts_what_it_consumed():
    """What was asked was paid for, whatever became of the run."""
    sink = RecordingSink()

    def stopping(*_):
        abort_agent(agent, "enough")
        return "stopped"

    model = ScriptedModel([costly(call("stop"))])
    with YiemAgent(model, tools=[tool("stop", stopping)], event_sink=sink) as agent:
        answer = ask(agent, "go", timeout_s=10)

    [end] = sink.of(AgentEndEvent)
    assert answer.stop_reason == "aborted"
    assert end.usage == agent.usage == LlmUsage(100, 0, cost=0.4)


def test_an_answer_that_the_library_makes_counts_nothing_twice():
    """A terminated batch, a limit and a final answer carry no usage of their own."""
    stop = tool("stop", lambda *_: AgentToolResult("stopping", terminate=True))
    terminated = run([costly(call("stop"))], stop)
    limited = run(looking(3), tool("look"), max_turns=1)
    final = run([costly(call("final_answer", {"answer": 1}))], output_schema=int)

    for done in (terminated, limited, final):
        assert done.answer.usage is None
        assert done.of(AgentEndEvent)[0].usage.total_tokens == 100


# -- summaries --


class Summarising:
    """A compaction that asks a model before each request, and shortens nothing."""

    def __init__(self, usage=None, *, lasts=False):
        self.usage = usage or LlmUsage(50, 0, cost=1.0)
        self.lasts = lasts

    def begin(self):
        return self

    def fit(self, request):
        details = {"usage": attrs.asdict(self.usage)}
        summary = CompactionSummaryMessage("so far") if self.lasts else None
        kept = len(request.context.messages)
        request.emit(CompactionEndEvent("shortened", details, summary=summary, kept=kept))
        return request.context.messages


@pytest.mark.parametrize("lasts", [True, False])
def test_what_summaries_consume_is_part_of_the_totals(lasts):
    """A summary that keeps a conversation within the window costs like any other request."""
    done = run(looking(1), tool("look"), compaction=Summarising(lasts=lasts))
    [end] = done.of(AgentEndEvent)
    model = ScriptedModel(looking(1))
    with YiemAgent(model, tools=[tool("look")], compaction=Summarising(lasts=lasts)) as agent:
        ask(agent, "go", timeout_s=10)

    assert end.usage.total_tokens == 300
    assert end.usage.cost == pytest.approx(2.8)
    assert agent.usage == end.usage


def test_a_summary_may_be_the_last_that_a_run_can_pay_for():
    """The request that it was made for does not go out."""
    done = run(looking(5), tool("look"), compaction=Summarising(), max_cost=2.0)

    assert done.answer.error_message == "stopped: the run cost $2.4 (max_cost=2)"
    assert len(done.model.requests) == 1
    assert done.of(TurnEndEvent)[-1].message is None


def test_an_empty_answer_and_a_summary_over_the_limit_end_the_turn():
    """The turn ends with the answer that it had, and the words say both."""
    empty = AssistantMessage(usage=LlmUsage(10, 0, cost=0.5))
    done = run([empty, "hi"], compaction=Summarising(), max_cost=2.5)

    assert "empty answer" in done.answer.error_message
    assert done.answer.error_message.endswith("the run cost $2.5 (max_cost=2.5)")


def test_a_summary_whose_cost_is_not_known_is_named():
    """A limit on cost can't be held where a summary has no price."""
    done = run(looking(5), tool("look"), compaction=Summarising(LlmUsage(50, 0)), max_cost=9.0)

    assert "the price of the model that summarised is not known" in done.answer.error_message


@pytest.mark.parametrize("details", [{}, {"usage": None}, {"usage": 3}])
def test_an_event_need_not_tell_a_usage(details):
    """Where the end of a compaction tells none, none is counted."""
    event = CompactionEndEvent("shortened", details)

    assert noted_usage(details) is None
    assert reduce(AgentState(), event) == AgentState()


def test_a_usage_in_an_event_may_know_more_than_we_do():
    """What a newer version adds to a usage is left out."""
    assert noted_usage({"usage": {"input_tokens": 3, "joules": 7}}) == LlmUsage(3)
