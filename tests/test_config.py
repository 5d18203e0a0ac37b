"""The port to what keeps requests within the window: when the loop asks it, and what becomes of what it gives."""

from __future__ import annotations

import math

import attrs
import pytest

from tests.support.loops import run, tool
from yiemagent import YiemAgent, ask
from yiemagent.abort import AbortSignal
from yiemagent.config import AgentLoopConfig
from yiemagent.context import AgentContext
from yiemagent.errors import CompactionError, ConfigurationError, ContextOverflowError
from yiemagent.events import CompactionEndEvent, MessageEndEvent, TurnEndEvent
from yiemagent.hooks import NextTurn
from yiemagent.messages import AssistantMessage, CompactionSummaryMessage, LlmModel, UserMessage
from yiemagent.streaming import ErrorEvent
from yiemagent.testing import ScriptedModel, call, calls, failure

TOO_LONG = [ErrorEvent(failure("the prompt is too long"), ContextOverflowError("too long", 400))]


@attrs.define
class Scissors:
    """Keeps the last messages of a context that has more than `most`, a summary in place of the others."""

    most: int
    kept: int = 1
    begun: int = 0
    requests: list = attrs.field(factory=list)
    lasting: bool = True

    def begin(self):
        self.begun += 1
        return self

    def fit(self, request):
        self.requests.append(request)
        messages = request.context.messages
        if len(messages) <= self.most and request.overflow is None:
            return messages
        if self.kept >= len(messages):
            raise CompactionError("cannot compact: nothing is left to cut")
        summary = CompactionSummaryMessage(f"{len(messages) - self.kept} messages")
        told = summary if request.lasting and self.lasting else None
        request.emit(CompactionEndEvent("shortened", summary=told, kept=self.kept))
        return [summary, *messages[-self.kept :]]


def sent(model):
    """The texts of each request's messages."""
    return [[message.text for message in request.messages] for request in model.requests]


def summary_of(count):
    """The text that a model is sent for a summary of so many messages."""
    return CompactionSummaryMessage(f"{count} messages").to_llm().text


# -- when the loop asks --


def test_every_request_is_fitted_and_the_loop_goes_on_with_what_fits():
    """Before each request the context is shown; what comes back is sent, and grows on."""
    scissors = Scissors(most=3, kept=2)
    model = ScriptedModel([calls(call("work")), calls(call("work")), "fine"])
    done = run(model, tool(), compaction=scissors)

    assert [len(request.context.messages) for request in scissors.requests] == [1, 3, 5]
    assert sent(model) == [
        ["hi"],
        ["hi", "", "work done"],
        [summary_of(3), "", "work done"],
    ]
    assert len(done.messages) == 6
    assert scissors.begun == 1


def test_without_compaction_nothing_is_asked():
    """A loop without it sends its whole history."""
    model = ScriptedModel([calls(call("work")), "fine"])
    run(model, tool())

    assert [len(request.messages) for request in model.requests] == [1, 3]


def test_prepare_context_is_shown_what_fits():
    """`prepare_context` comes after: it is shown the summary, and state and messages agree."""
    shown = []

    def prepare(state):
        shown.append((state.summary, [message.role for message in state.messages]))
        return AgentContext(state.system_prompt, state.messages, state.tools)

    model = ScriptedModel(["one", "two"])
    with YiemAgent(model, compaction=Scissors(most=2), prepare_context=prepare) as agent:
        ask(agent, "a")
        ask(agent, "b")

    assert shown == [(None, ["user"]), (None, ["compactionSummary", "user"])]


# -- a model that refuses --


def test_a_refused_context_is_shortened_and_sent_once_more():
    """An overflow is answered by a shorter context, in the same turn; the refusal stays in the history."""
    scissors = Scissors(most=100, kept=2)
    model = ScriptedModel([TOO_LONG, "fine"])
    done = run(model, history=[UserMessage("a"), AssistantMessage("b")], compaction=scissors)

    assert done.answer.text == "fine"
    assert sent(model) == [["a", "b", "hi"], [summary_of(2), "hi"]]
    assert str(scissors.requests[1].overflow) == "too long"
    assert [message.role for message in done.messages] == ["user", "assistant", "assistant"]


def test_a_context_refused_twice_is_the_runs_error():
    """There is one shorter request for each refusal, never a loop."""
    model = ScriptedModel([TOO_LONG], default=TOO_LONG)
    done = run(model, compaction=Scissors(most=100, kept=1))

    assert (len(model.requests), done.answer.stop_reason) == (2, "error")
    assert done.answer.error_message == "the prompt is too long"


def test_a_refusal_without_compaction_is_the_runs_error():
    """Nobody shortens anything that nobody asked to be shortened."""
    model = ScriptedModel([TOO_LONG, "fine"])
    done = run(model)

    assert (len(model.requests), done.answer.error_message) == (1, "the prompt is too long")


def test_an_exception_of_a_stream_can_be_the_refusal():
    """A stream that raises `ContextOverflowError` says the same as one that ends with it."""
    model = ScriptedModel([ContextOverflowError("too long"), "fine"])
    done = run(model, compaction=Scissors(most=100))

    assert done.answer.text == "fine"


# -- what can't be shortened --


def test_what_cannot_be_shortened_is_a_clear_error():
    """The run ends with the reason, its turn closed, and nothing was sent."""
    model = ScriptedModel(["fine"])
    done = run(model, compaction=Scissors(most=0, kept=1))

    assert (done.answer.stop_reason, len(model.requests)) == ("error", 0)
    assert done.answer.error_message == "cannot compact: nothing is left to cut"
    assert done.of(TurnEndEvent)[0].message is None
    assert done.history == [("user", "hi")]


def test_a_refused_context_that_cannot_be_shortened_tells_both():
    """The error says what the model said and why nothing helped."""
    model = ScriptedModel([TOO_LONG])
    done = run(model, compaction=Scissors(most=100, kept=9))

    assert done.answer.error_message == (
        "the prompt is too long; cannot compact: nothing is left to cut"
    )
    assert done.of(TurnEndEvent)[0].message.error_message == "the prompt is too long"


def test_an_abort_meanwhile_is_an_abort():
    """Where the run is aborted while the context is being shortened, its answer says so."""
    signal = AbortSignal()

    @attrs.define
    class Aborting(Scissors):
        def fit(self, request):
            signal.abort("enough")
            raise CompactionError("the summary failed")

    done = run(["fine"], compaction=Aborting(0), signal=signal)

    assert (done.answer.stop_reason, done.answer.error_message) == ("aborted", "aborted: enough")


# -- what lasts --


def test_the_next_run_goes_on_behind_the_summary():
    """The history keeps every message; the model sees the summary and what follows, in later runs too."""
    model = ScriptedModel(["one", "two", "three"])
    scissors = Scissors(most=4)
    with YiemAgent(model, compaction=scissors) as agent:
        for text in "abc":
            ask(agent, text)
        state = agent.state
        texts = [message.text for message in agent.messages]
        ask(agent, "d")

    assert texts == ["a", "one", "b", "two", "c", "three"]
    assert (state.summary.summary, state.first_kept) == ("4 messages", 4)
    assert [message.role for message in state.context_messages] == [
        "compactionSummary",
        "user",
        "assistant",
    ]
    assert sent(model)[2:] == [[summary_of(4), "c"], [summary_of(4), "c", "three", "d"]]
    assert scissors.begun == 1


def test_a_failed_shortening_leaves_the_state_alone():
    """An end without a summary changes nothing that lasts."""
    model = ScriptedModel(["one", "two"])
    with YiemAgent(model, compaction=Scissors(most=2, lasting=False)) as agent:
        ask(agent, "a")
        ask(agent, "b")
        state = agent.state

    assert (state.summary, state.first_kept) == (None, 0)
    assert list(state.context_messages) == list(state.messages)


def test_a_context_of_prepare_next_turn_is_shortened_for_this_run_only():
    """What a hook put in place of the history is no part of it, so its summary does not last."""
    other = AgentContext("", [UserMessage(text) for text in "vwxyz"])
    changes = iter([NextTurn(context=other), None])
    scissors = Scissors(most=4)
    model = ScriptedModel([calls(call("work")), "fine"])
    done = run(model, tool(), compaction=scissors, prepare_next_turn=lambda *_: next(changes, None))

    assert [request.lasting for request in scissors.requests] == [True, False]
    assert [event.summary for event in done.of(CompactionEndEvent)] == [None]
    assert len(done.of(MessageEndEvent)) == 4


@pytest.mark.parametrize("given", ["yes", 5, object()])
def test_what_is_no_compaction_is_refused(given):
    """`compaction` takes what can begin with a conversation, and None."""
    with pytest.raises(ConfigurationError, match=r"sessions\.Compaction"):
        AgentLoopConfig(compaction=given)
    with pytest.raises(ConfigurationError, match=r"sessions\.Compaction"):
        YiemAgent(ScriptedModel(), compaction=given)


def test_a_failed_answer_behind_a_refusal_is_no_refusal():
    """Another failure of the shorter request is the run's error as it is."""
    broken = AssistantMessage(stop_reason="error", error_message="broken")
    done = run([TOO_LONG, broken], compaction=Scissors(most=100))

    assert done.answer.error_message == "broken"


# -- settings that no model takes --


LEVELS = "'off', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'"
COUNT = "a whole number, 1 or more, or None for no limit"

WRONG = [
    ("model", 7, "the name of a model, an LlmModel, or None"),
    ("reasoning", "lots", LEVELS.replace(", 'max'", ", 'max' or None")),
    ("reasoning", ["low"], LEVELS.replace(", 'max'", ", 'max' or None")),
    ("thinking_budgets", 5, f"a mapping of {LEVELS} to numbers of tokens, or None"),
    ("thinking_budgets", {"lots": 5}, f"a mapping of {LEVELS} to numbers of tokens, or None"),
    ("thinking_budgets", {"low": "5"}, f"a mapping of {LEVELS} to numbers of tokens, or None"),
    ("thinking_budgets", {"low": True}, f"a mapping of {LEVELS} to numbers of tokens, or None"),
    ("temperature", True, "a number, 0 or more, or None"),
    ("max_tokens", True, COUNT),
    ("max_tokens", 1.5, COUNT),
    ("tool_choice", 5, "'auto', 'none', 'required', a tool's name, or None"),
    ("tool_choice", "", "'auto', 'none', 'required', a tool's name, or None"),
    ("tool_choice", "the best one", "'auto', 'none', 'required', a tool's name, or None"),
    ("cache", "forever", "'none', 'short', 'long' or None"),
    ("session_id", 5, "a string or None"),
    ("tool_execution", "sideways", "'parallel', 'sequential' or 'barrier'"),
    ("tool_execution", None, "'parallel', 'sequential' or 'barrier'"),
    ("max_parallel_tools", 0, "a whole number, 1 or more"),
    ("max_parallel_tools", True, "a whole number, 1 or more"),
    ("max_turns", 0, COUNT),
    ("max_turns", True, COUNT),
    ("max_turns", "3", COUNT),
    ("max_cost", 0, "a number above 0, or None for no limit"),
    ("max_cost", math.nan, "a number above 0, or None for no limit"),
    ("max_cost", True, "a number above 0, or None for no limit"),
    ("max_total_tokens", False, COUNT),
    ("max_retry_delay_ms", -5, "a number, 0 or more, or None"),
    ("max_retry_delay_ms", "5", "a number, 0 or more, or None"),
    ("max_retry_delay_ms", math.nan, "a number, 0 or more, or None"),
    ("compaction", "yes", "a yiemagent.sessions.Compaction, or None"),
    ("abort_grace_s", -1, "a number, 0 or more"),
    ("abort_grace_s", math.nan, "a number, 0 or more"),
    ("abort_grace_s", True, "a number, 0 or more"),
    ("abort_grace_s", None, "a number, 0 or more"),
    ("get_api_key", "sk", "a function that can be called with (provider), or None"),
    ("on_payload", 5, "a function that can be called with (payload), or None"),
    ("on_response", 5, "a function that can be called with (status, headers), or None"),
    ("before_tool_call", 5, "a function that can be called with (context, signal), or None"),
]


@pytest.mark.parametrize(("setting", "value", "what"), WRONG)
def test_what_a_setting_must_be_is_said(setting, value, what):
    """A wrong setting raises where it is given, to a config or an agent: its name, what it must be, what was given."""
    for made in (AgentLoopConfig, lambda **given: YiemAgent(ScriptedModel(), **given)):
        with pytest.raises(ConfigurationError) as raised:
            made(**{setting: value})

        assert str(raised.value) == f"{setting} must be {what}, not {value!r}"


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("model", LlmModel("m")),
        ("model", ""),
        ("thinking_budgets", {"low": 512, "max": -1}),
        ("thinking_budgets", {}),
        ("temperature", 0),
        ("tool_choice", "required"),
        ("tool_choice", "get_weather"),
        ("max_cost", math.inf),
        ("max_retry_delay_ms", 0),
        ("max_retry_delay_ms", 1.5),
        ("abort_grace_s", 0),
        ("abort_grace_s", math.inf),
        ("get_steering_messages", list),
        ("on_payload", dict),
    ],
)
def test_what_a_setting_may_be_is_kept(setting, value):
    """What a model, a server or a person may want is taken as it is."""
    assert getattr(AgentLoopConfig(**{setting: value}), setting) == value


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("temperature", -1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("temperature", True),
        ("max_tokens", 0),
        ("max_tokens", 1.5),
        ("tool_choice", 5),
    ],
)
def test_settings_of_the_wrong_kind_are_refused_at_once(setting, value):
    """A mistake is the caller's and raises in its thread, naming the setting."""
    with pytest.raises(ConfigurationError, match=setting):
        YiemAgent(ScriptedModel([]), **{setting: value})
