"""Agents that work longer than the model's window, and what they do where nothing helps."""

from __future__ import annotations

import json
import math
import re
import threading
import time

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.loops import run, tool
from yiemagent import YiemAgent, abort_agent, ask, run_agent, stop_agent, take_response
from yiemagent.abort import AbortSignal
from yiemagent.codec import json_payload
from yiemagent.config import FitRequest
from yiemagent.context import AgentContext
from yiemagent.errors import CompactionError, ConfigurationError, ContextOverflowError
from yiemagent.events import CompactionEndEvent, CompactionStartEvent
from yiemagent.history import check
from yiemagent.llm import StreamOptions
from yiemagent.messages import (
    AssistantMessage,
    CompactionSummaryMessage,
    LlmModel,
    LlmUsage,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.sessions.compaction import Compaction, window_told
from yiemagent.sessions.summaries import SummaryPrompts
from yiemagent.sessions.tokens import message_tokens
from yiemagent.streaming import DoneEvent, ErrorEvent
from yiemagent.testing import RecordingSink, ScriptedModel, call, calls, failure
from yiemagent.transcript import Transcript

WINDOW = 16_000
WORDS = SummaryPrompts(system="SYSTEM", first="FIRST", update="UPDATE", turn="TURN")


def counted(context, per_token=4.0):
    """How many tokens a model counts in a request, with so many characters in each."""
    parts = [
        context.system_prompt,
        *(json.dumps(json_payload(t.input_schema)) for t in context.tools.values()),
    ]
    for message in context.messages:
        for block in message.content:
            parts.append(
                getattr(block, "text", "")
                or json.dumps(json_payload(getattr(block, "arguments", "")))
            )
    return math.ceil(sum(map(len, parts)) / per_token) + 3 * len(parts)


@attrs.define
class Worker:
    """A model with a window: calls a tool in each of so many turns, and summarises where it is asked to.

    A request that does not fit is refused, as a server would, which may tell its window. `asked` holds the size of each
    request, `summaries` what it was told to summarise.
    """

    turns: int
    window: int = WINDOW
    per_token: float = 4.0
    reports: bool = True
    tells: bool = False
    turn: int = 0
    refused: int = 0
    asked: list = attrs.field(factory=list)
    summaries: list = attrs.field(factory=list)
    problems: list = attrs.field(factory=list)

    def __call__(self, context, options, signal):
        size = counted(context, self.per_token)
        self.asked.append(size)
        self.problems += check(context.messages)
        if size > self.window:
            self.refused += 1
            text = f"the prompt has {size} tokens" + (
                f" > {self.window} maximum" if self.tells else ""
            )
            yield ErrorEvent(failure(text), ContextOverflowError(text))
            return
        usage = LlmUsage(size, 20) if self.reports else None
        if not context.tools:
            self.summaries.append(context.messages[0].text)
            seen = max(map(int, re.findall(r"result (\d+)", context.messages[0].text)), default=0)
            yield DoneEvent(AssistantMessage(f"summary up to result {seen}", usage=usage))
            return
        self.turn += 1
        if self.turn > self.turns:
            yield DoneEvent(AssistantMessage("all done", usage=usage))
            return
        asked = ToolCall(f"c{self.turn}", "read", {"n": self.turn})
        yield DoneEvent(AssistantMessage((asked,), usage=usage, stop_reason="tool_use"))


def read(_id, args, _signal, _update):
    """Give a result that is small, large, larger, or larger than the window."""
    number = args["n"]
    return f"result {number} " + "word " * (50, 1_000, 3_000, 20_000)[number % 4]


READ = tool("read", read)


# -- working longer than the window --


@pytest.mark.time_limit(30)
@pytest.mark.parametrize("reports", [True, False], ids=["usage told", "usage not told"])
def test_an_agent_works_through_500_turns_in_a_window_of_16000(reports):
    """Every request fits, nothing is refused, every call keeps its result, and the history holds all of it."""
    model, sink = Worker(500, reports=reports), RecordingSink()
    began = time.perf_counter()
    with YiemAgent(
        model,
        tools=[READ],
        max_turns=None,
        compaction=Compaction(context_window=WINDOW),
        event_sink=sink,
    ) as agent:
        answer = ask(agent, "Read all 500.")
        messages = agent.messages
    took_s = time.perf_counter() - began

    assert answer.text == "all done"
    assert (max(model.asked) <= WINDOW, model.refused, model.problems) == (True, 0, [])
    results = [message.text for message in messages if isinstance(message, ToolResultMessage)]
    assert results == [read("", {"n": n}, None, None) for n in range(1, 501)]
    assert len(messages) == 1 + 2 * 500 + 1
    assert all("earlier-summary" in told for told in model.summaries[1:])
    assert len(sink.of(CompactionStartEvent)) == len(sink.of(CompactionEndEvent)) > 10
    assert took_s < 10


@pytest.mark.parametrize("reports", [True, False])
@pytest.mark.parametrize("per_token", [1.7, 2.5, 6.0])
def test_a_model_that_counts_otherwise_is_learned(per_token, reports):
    """Whatever a token is to the model, the agent gets to its end; where it tells, with few refusals at most."""
    model = Worker(120, per_token=per_token, reports=reports)
    done = run(model, READ, max_turns=None, compaction=Compaction(context_window=WINDOW))

    assert done.answer.text == "all done"
    assert model.problems == []
    assert model.refused <= (2 if reports else 6)


def test_a_turn_costs_what_is_new():
    """Late turns look at no more messages than early ones."""
    looks = []

    class Watched(ToolResultMessage):
        __slots__ = ()

        def to_llm(self):
            looks.append(1)
            return self

    compactor = Compaction(context_window=1_000_000).begin()
    history, costs = Transcript([UserMessage("hi")]), []
    for n in range(300):
        answer = AssistantMessage((ToolCall(str(n), "read"),), usage=LlmUsage(10 * n, 10))
        history = history.append(answer).append(Watched(str(n), "read", "x" * 400))
        compactor.fit(fitting(history))
        costs.append(len(looks))
        looks.clear()

    assert set(costs) == {2}


def fitting(messages, stream_fn=None, emit=[].append, **fields):
    """A request as the loop shows it."""
    options = fields.pop("options", StreamOptions())
    return FitRequest(
        context=AgentContext("", messages),
        options=options,
        stream_fn=stream_fn or ScriptedModel(),
        signal=fields.pop("signal", AbortSignal()),
        emit=emit,
        **fields,
    )


# -- what is sent and what is kept --


def long_history(turns, size=2_000):
    """So many turns of a question and an answer with so many characters."""
    made = []
    for n in range(turns):
        made += [UserMessage(f"question {n}"), AssistantMessage(f"answer {n} " + "x" * size)]
    return made


def test_the_summary_stands_for_what_is_old():
    """What is old is summarised once, what is recent stays, and both are told of."""
    model = ScriptedModel(["the summary", "fine"])
    done = run(
        model,
        history=long_history(22),
        compaction=Compaction(context_window=WINDOW, prompts=WORDS),
    )

    asked, answered = model.requests
    assert asked.system_prompt == "SYSTEM"
    assert "answer 0 x" in asked.messages[0].text
    assert "the summary" in answered.messages[0].text
    assert [message.text[:11] for message in answered.messages[-3:]] == [
        "question 21",
        "answer 21 x",
        "hi",
    ]
    [start], [end] = done.of(CompactionStartEvent), done.of(CompactionEndEvent)
    assert start.details == {"tokens_before": end.details["tokens_before"], "reason": "size"}
    assert 12_000 < end.details["tokens_before"] < 25_000
    assert 3_000 < end.details["tokens_after"] < 6_000
    assert end.details["usage"]["input_tokens"] == 10
    assert (end.summary.summary, end.kept) == ("the summary", len(answered.messages) - 1)
    assert end.summary.tokens_before == end.details["tokens_before"]


def test_an_earlier_summary_is_brought_up_to_date():
    """In a history that begins with one, as that of a session does, it is handed over, not summarised."""
    model = ScriptedModel(["new", "fine"])
    history = [CompactionSummaryMessage("the old one"), *long_history(22)]
    run(model, history=history, compaction=Compaction(context_window=WINDOW, prompts=WORDS))

    told = model.requests[0].messages[0].text
    assert told.startswith("<earlier-summary>\nthe old one\n</earlier-summary>")
    assert told.count("the old one") == 1
    assert told.endswith("UPDATE")


def test_a_turn_that_is_split_is_summarised_by_itself():
    """What was asked for in it is not lost among what was before."""
    model = ScriptedModel(["before", "this turn", "fine"])
    steps = [part for n in range(20) for part in (called(n), result(n, "x" * 2_000))]
    run(
        model,
        prompts="go on",
        history=[*long_history(2), UserMessage("Do it."), *steps],
        compaction=Compaction(context_window=WINDOW, prompts=WORDS, instructions="Be kind."),
    )

    first, second, answered = model.requests
    assert "question 1" in first.messages[0].text
    assert "Do it." not in first.messages[0].text
    assert second.messages[0].text.startswith("<conversation>\n[user]\nDo it.")
    assert "before\n\n# The turn under way\n\nthis turn" in answered.messages[0].text
    assert all(r.messages[0].text.endswith("The user adds: Be kind.") for r in (first, second))


def called(number):
    """An answer that calls the tool."""
    return AssistantMessage((ToolCall(f"c{number}", "work"),), stop_reason="tool_use")


def result(number, text):
    """The result of that call."""
    return ToolResultMessage(f"c{number}", "work", text)


def test_summaries_of_turns_do_not_pile_up():
    """Where the earlier summary is long already, the beginning of a turn is worked into it."""
    model = ScriptedModel(["worked in", "fine"])
    steps = [part for n in range(17) for part in (called(n), result(n, "x" * 2_000))]
    run(
        model,
        history=[CompactionSummaryMessage("old " * 3_000), UserMessage("Do it."), *steps],
        compaction=Compaction(context_window=WINDOW, prompts=WORDS),
    )

    assert len(model.requests) == 2
    assert model.requests[0].messages[0].text.endswith("UPDATE")


def test_several_runs_go_on_behind_one_summary():
    """The next run does not begin anew with the whole history, and asks for no second summary."""
    model = ScriptedModel(["the summary", "one", "two", "three"])
    with YiemAgent(
        model, messages=long_history(22), compaction=Compaction(context_window=WINDOW)
    ) as agent:
        for text in "abc":
            ask(agent, text)
        messages = agent.messages

    sizes = [len(request.messages) for request in model.requests[1:]]
    assert sizes == [sizes[0], sizes[0] + 2, sizes[0] + 4]
    assert len(messages) == 44 + 6


def test_a_result_larger_than_its_share_is_shortened_for_the_model():
    """The model sees its ends and how much is missing, the same each time; the history holds it whole."""
    whole = "begin " + "word " * 20_000 + "end"
    model = ScriptedModel([calls(call("work")), "one", "two"])
    with YiemAgent(
        model, tools=[tool(function=lambda *_: whole)], compaction=Compaction(context_window=WINDOW)
    ) as agent:
        ask(agent, "a")
        ask(agent, "b")
        kept = agent.messages[2].text

    shown = [request.messages[2] for request in model.requests[1:]]
    assert kept == whole
    assert shown[0].text.startswith("begin word")
    assert shown[0].text.endswith("word end")
    assert re.search(r"\[… \d{5} characters are left out here", shown[0].text)
    assert len(shown[0].text) < 4_100 * 3.5
    assert shown[0] is shown[1]


def test_the_results_of_one_turn_share_what_there_is_room_for():
    """Many large results in one answer fit together."""
    model = Worker(0)
    wide = AssistantMessage([ToolCall(f"c{n}", "work") for n in range(12)], stop_reason="tool_use")
    history = [UserMessage("hi"), wide, *(result(n, "x" * 40_000) for n in range(12))]
    done = run(
        model, READ, prompts="go on", history=history, compaction=Compaction(context_window=WINDOW)
    )

    assert done.answer.text == "all done"
    assert len(model.asked) == 1
    assert model.asked[0] < 6_500


# -- models that refuse --


def test_a_refusal_is_answered_by_one_summary():
    """Without a known window the model's refusal is what says that the context is too long."""
    model = ScriptedModel(
        ["one", refusal("maximum context length is 8192 tokens"), "half", "the summary", "fine"]
    )
    sink = RecordingSink()
    with YiemAgent(
        model, messages=long_history(12), compaction=Compaction(prompts=WORDS), event_sink=sink
    ) as agent:
        ask(agent, "a")
        answer = ask(agent, "b")

    assert answer.text == "fine"
    refused, *summaries, retried = model.requests[1:]
    assert len(retried.messages) < len(refused.messages)
    assert max(map(counted, summaries)) < 8_192
    assert [event.details["reason"] for event in sink.of(CompactionStartEvent)] == ["overflow"]


def refusal(text):
    """What a server says that refuses a request as too long."""
    return [ErrorEvent(failure(text), ContextOverflowError(text, 400))]


def test_what_a_model_refused_is_remembered():
    """The next time the history is shortened before the model has to refuse it."""
    model = Worker(60, window=9_000, per_token=3.0, tells=True)
    done = run(model, READ, max_turns=None, compaction=Compaction())

    assert done.answer.text == "all done"
    assert model.refused == 1


def test_a_model_that_names_no_window_is_asked_for_less():
    """Then half of what it refused, or what it took before, is what it is sent at most."""
    model = Worker(60, window=9_000, per_token=3.0)
    small = tool("read", lambda _id, args, *_: f"result {args['n']} " + "word " * 500)
    done = run(model, small, max_turns=None, compaction=Compaction())

    assert done.answer.text == "all done"
    assert model.refused == 1
    assert max(model.asked[-40:]) > 4_500


def test_another_model_is_asked_for_what_it_takes():
    """What one model refused is not held against another."""
    compactor = Compaction().begin()
    history = Transcript(long_history(10))
    small, large = StreamOptions(model="small"), StreamOptions(model="large")
    overflow = ContextOverflowError("context size is 2048 tokens")
    model = ScriptedModel(default="the summary")
    short = compactor.fit(fitting(history, model, overflow=overflow, options=small))

    assert len(short) < len(history)
    assert compactor.fit(fitting(history, model, options=large)) is history
    assert len(compactor.fit(fitting(history, model, options=small))) < len(history)


def test_a_server_that_always_refuses_ends_the_run():
    """There is an error within few requests, and the history is as it was, with the refusal."""
    model = ScriptedModel(default=refusal("the prompt is too long"))
    done = run(model, history=long_history(10), compaction=Compaction())

    assert done.answer.stop_reason == "error"
    assert len(model.requests) == 2
    assert done.answer.error_message == (
        "the prompt is too long; the summary failed: the prompt is too long"
    )
    [end] = done.of(CompactionEndEvent)
    assert (end.summary, end.details["error"]) == (
        None,
        "the summary failed: the prompt is too long",
    )


@pytest.mark.parametrize(
    ("text", "window"),
    [
        (
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9120 tokens.",
            8_192,
        ),
        ("prompt is too long: 210321 tokens > 200000 maximum", 200_000),
        ("request (6009 tokens) exceeds the available context size (4096 tokens)", 4_096),
        ("Range of input length should be [1, 202745]", 202_745),
        ("the maximum number of tokens allowed (1048576)", 1_048_576),
        ("exceeds the limit of 128,000 tokens", 128_000),
        ("Context size has been exceeded.", None),
        ("the limit of 100 requests", None),
        ("model gpt-4o-2024-08-06 refused 9000 tokens", None),
    ],
)
def test_a_refusal_may_name_the_window(text, window):
    """What the server says of its window is believed."""
    assert window_told(text) == window


# -- when nothing helps --


def test_a_message_larger_than_the_window_is_a_clear_error():
    """It can't be summarised away, so the run ends in words that say so, and nothing is sent."""
    model = ScriptedModel()
    done = run(model, prompts="x" * 80_000, compaction=Compaction(context_window=WINDOW))

    assert (done.answer.stop_reason, model.requests) == ("error", [])
    assert re.fullmatch(
        r"cannot compact: there is nothing before the latest messages, and they have about 228\d\d tokens "
        r"in a window of 16000",
        done.answer.error_message,
    )


def test_latest_messages_larger_than_the_window_are_a_clear_error():
    """The same where there is something to summarise before them."""
    done = run(
        ScriptedModel(),
        prompts="x" * 80_000,
        history=long_history(2),
        compaction=Compaction(context_window=WINDOW),
    )

    assert done.answer.error_message.startswith(
        "cannot compact: the latest messages alone have about 228"
    )


def test_instructions_that_fill_the_window_are_a_clear_error():
    """Where the system prompt leaves no room, no summary can make any."""
    with YiemAgent(
        ScriptedModel(),
        system_prompt="x" * 60_000,
        messages=long_history(4),
        compaction=Compaction(context_window=WINDOW),
    ) as agent:
        answer = ask(agent, "hi")

    assert answer.error_message.startswith(
        "cannot compact: the system prompt and the tools take about 171"
    )


def test_what_may_still_fit_is_sent():
    """A context in the reserve that can't be shortened is sent: the estimate alone ends no run."""
    model = ScriptedModel(["fine"])
    done = run(model, prompts="x" * 48_000, compaction=Compaction(context_window=WINDOW))

    assert done.answer.text == "fine"
    assert done.of(CompactionStartEvent) == []


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (failure("no credit"), "the summary failed: no credit"),
        (ValueError("burst"), "the summary failed: ValueError: burst"),
        (AssistantMessage(" "), "the summary failed: the model gave no text"),
    ],
)
def test_a_failing_summary_is_a_clear_error_and_changes_nothing(broken, words):
    """The run ends with it; the next one finds the history as it was, and tries again."""
    model = ScriptedModel([broken, "the summary", "fine"])
    sink = RecordingSink()
    with YiemAgent(
        model,
        messages=long_history(22),
        compaction=Compaction(context_window=WINDOW),
        event_sink=sink,
    ) as agent:
        failed = ask(agent, "a")
        state = agent.state
        answer = ask(agent, "b")

    assert (failed.stop_reason, failed.error_message) == ("error", words)
    assert (state.summary, len(state.messages)) == (None, 45)
    assert answer.text == "fine"
    ends = sink.of(CompactionEndEvent)
    assert [(end.details.get("error"), end.summary is None) for end in ends] == [
        (words, True),
        (None, False),
    ]


def test_what_holds_nothing_to_tell_is_not_summarised():
    """Where all that is old says nothing, no empty summary stands for it."""
    silent = [UserMessage(" " * 9_000), AssistantMessage(" " * 9_000)] * 6
    done = run(ScriptedModel(), history=silent, compaction=Compaction(context_window=WINDOW))

    assert done.answer.error_message == (
        "cannot compact: what is old holds nothing that could be told"
    )


def test_an_abort_ends_a_summary():
    """The run's answer is an aborted one, at once, and the history is as it was."""
    asked = threading.Event()

    def waiting(_context, signal):
        asked.set()
        signal.wait(20)
        return failure("aborted", "aborted")

    agent = YiemAgent(
        ScriptedModel([waiting]),
        messages=long_history(22),
        compaction=Compaction(context_window=WINDOW),
    )
    run_agent(agent, "a")
    asked.wait(20)
    abort_agent(agent, "enough")
    answer = take_response(agent, 20)
    state = agent.state
    stop_agent(agent)

    assert (answer.stop_reason, answer.error_message) == ("aborted", "aborted: enough")
    assert state.summary is None


# -- who summarises --


def test_another_provider_can_summarise():
    """It is asked with nothing of the agent's own request but how long to wait and where keys come from."""
    own, other = ScriptedModel(["fine"]), ScriptedModel(["the summary"])
    keys = {"x": "y"}.get
    run(
        own,
        history=long_history(22),
        model="big",
        get_api_key=keys,
        on_payload=dict,
        max_retry_delay_ms=5,
        session_id="s",
        reasoning="high",
        compaction=Compaction(context_window=WINDOW, model=other),
    )

    [options] = other.options
    assert (options.model, options.on_payload, options.session_id) == (None, None, None)
    assert (options.get_api_key, options.max_retry_delay_ms) == (keys, 5)
    assert (options.cache, options.reasoning, options.max_tokens) == ("none", None, 3_000)
    assert len(own.requests) == 1


@pytest.mark.parametrize("given", ["small", LlmModel("small", context_window=8_000)])
def test_another_model_of_the_same_provider_can_summarise(given):
    """A name or an `LlmModel` is asked for at the agent's own provider; a smaller window is kept to."""
    model = ScriptedModel(default="text")
    run(
        model,
        history=long_history(22),
        model="big",
        on_payload=dict,
        compaction=Compaction(context_window=WINDOW, model=given),
    )

    summaries = [options for options in model.options if options.cache == "none"]
    assert {options.model for options in summaries} == {given}
    assert {options.on_payload for options in summaries} == {dict}
    assert model.options[-1].model == "big"
    largest = max(counted(request) for request in model.requests[: len(summaries)])
    assert largest < 8_000 if isinstance(given, LlmModel) else largest > 6_000


def test_a_plain_function_can_summarise():
    """Anything that an agent takes as its model can."""
    model = ScriptedModel(["fine"])
    asked = []

    def plain(request):
        asked.append(request["messages"][0]["role"])
        return "the summary"

    run(model, history=long_history(22), compaction=Compaction(context_window=WINDOW, model=plain))

    assert asked == ["system"]
    assert "the summary" in model.requests[0].messages[0].text


# -- the window --


def test_the_window_is_what_is_known_of_the_model():
    """An `LlmModel` that says it, or a provider that knows its models, needs no setting."""

    class Knowing(ScriptedModel):
        def model_facts(self, model):
            return LlmModel("known", context_window=WINDOW)

    said = ScriptedModel(["the summary", "fine"])
    known = Knowing(["the summary", "fine"])
    run(
        said,
        history=long_history(22),
        model=LlmModel("m", context_window=WINDOW),
        compaction=Compaction(),
    )
    run(known, history=long_history(22), compaction=Compaction())

    assert (len(said.requests), len(known.requests)) == (2, 2)


def test_the_answers_own_limit_is_kept_free():
    """`max_tokens` is room that the answer may want: the history is shortened that much earlier."""
    model = ScriptedModel(["the summary", "fine"])
    settings = Compaction(context_window=WINDOW)
    run(model, history=long_history(15), max_tokens=9_000, compaction=settings)
    other = ScriptedModel(["fine"])
    run(other, history=long_history(15), compaction=settings)

    assert (len(model.requests), len(other.requests)) == (2, 1)


def test_settings_are_kept_to():
    """What is reserved, what is kept and how large a result may be."""
    model = ScriptedModel(["the summary", calls(call("work")), "fine"])
    done = run(
        model,
        tool(function=lambda *_: "x" * 9_000),
        history=long_history(30, 700),
        compaction=Compaction(
            context_window=WINDOW,
            reserve_tokens=9_500,
            keep_recent_tokens=1_000,
            max_result_tokens=500,
        ),
    )

    [end] = done.of(CompactionEndEvent)
    assert 6_500 < end.details["tokens_before"] < 8_000
    assert end.kept == 9
    assert len(model.requests[2].messages[-1].text) < 500 * 3.5


@pytest.mark.parametrize(
    "fields",
    [
        {"context_window": 0},
        {"context_window": "16k"},
        {"reserve_tokens": True},
        {"keep_recent_tokens": -1},
        {"max_result_tokens": 1.5},
        {"context_window": 1_000, "reserve_tokens": 600, "keep_recent_tokens": 400},
        {"model": "nobody:knows"},
        {"model": 5},
    ],
)
def test_settings_that_cannot_work_are_refused(fields):
    """At once, where they are made."""
    with pytest.raises(ConfigurationError):
        Compaction(**fields)


def test_prompts_are_prompts():
    """A text in their place is refused."""
    with pytest.raises(TypeError):
        Compaction(prompts="Summarise!")


# -- whatever comes --

STEPS = st.lists(
    st.one_of(
        st.builds(lambda n: [UserMessage("u" * n)], st.integers(0, 3_000)),
        st.builds(lambda n: [AssistantMessage("a" * n)], st.integers(1, 3_000)),
        st.builds(
            lambda sizes: [
                AssistantMessage([ToolCall(f"c{i}", "work") for i in range(len(sizes))]),
                *(ToolResultMessage(f"c{i}", "work", "r" * size) for i, size in enumerate(sizes)),
            ],
            st.lists(st.integers(0, 9_000), min_size=1, max_size=4),
        ),
        st.just([failure("broken")]),
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=60)
@given(
    STEPS,
    st.integers(500, 12_000),
    st.none() | st.integers(100, 4_000),
    st.booleans(),
    st.booleans(),
)
def test_whatever_is_shortened_keeps_its_pairs_and_its_end(steps, window, keep, refused, asked_for):
    """At any budget: a sound history stays sound, its latest messages are there, and what is sent got no larger."""
    history = Transcript(message for step in steps for message in step)
    asking = Compaction(
        context_window=window, keep_recent_tokens=min(keep, window - 1) if keep else None
    )
    overflow = ContextOverflowError("too long") if refused else None
    events = []
    model = ScriptedModel(default="short")
    request = fitting(
        history, model, events.append, overflow=overflow, asked_for="" if asked_for else None
    )
    try:
        sent = asking.begin().fit(request)
    except CompactionError:
        sent = history
        assert refused or asked_for or sum(map(message_tokens, history)) > window // 2
    problems = [problem for problem in check(sent) if "left out" not in problem]
    assert (
        problems
        == [problem for problem in check(history) if "left out" not in problem][: len(problems)]
    )
    assert [m.role for m in sent[-1:]] == [m.role for m in history[-1:]]
    ends = [event for event in events if isinstance(event, CompactionEndEvent) and event.summary]
    if ends:
        [end] = ends
        assert sent[0] is end.summary
        assert end.kept == len(sent) - 1
        shown, whole = sent[1:], history[len(history) - end.kept :]
    else:
        shown, whole = sent, history
    for one, other in zip(shown, whole, strict=True):
        assert one is other or one.tool_call_id == other.tool_call_id
