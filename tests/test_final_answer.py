"""How a run comes to an answer that fits its schema: what is offered, asked, read, and told."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.loops import parallel, raising, run, tool
from yiemagent.abort import AbortSignal
from yiemagent.agent import YiemAgent
from yiemagent.api import ask, run_agent, take_response
from yiemagent.codec import from_json, to_json
from yiemagent.config import AgentLoopConfig
from yiemagent.context import AgentContext
from yiemagent.errors import ConfigurationError
from yiemagent.events import AgentEndEvent, MessageUpdateEvent
from yiemagent.final_answer import FinalAnswer
from yiemagent.llm import adapt_llm_call
from yiemagent.messages import AssistantMessage, ToolCall, ToolResultMessage, UserMessage
from yiemagent.output import output_schema, read_output
from yiemagent.streaming import (
    DoneEvent,
    StartEvent,
    ToolCallDeltaEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
)
from yiemagent.testing import ScriptedModel, call, calls, failure
from yiemagent.tool import AgentToolResult

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
OUTPUT = output_schema(SCHEMA)


class Native:
    """A model that knows structured output."""

    native_output = True


def final(*, native=False, output=OUTPUT):
    """Give the part of a run that looks after its answer."""
    return FinalAnswer(output, native)


def calling(*names):
    """Give an answer that calls tools, with the ids 1, 2 and so on."""
    made = [ToolCall(str(number), name, {"n": number}) for number, name in enumerate(names, 1)]
    return AssistantMessage(made, stop_reason="tool_use", api="a", provider="p", model="m")


def result(number, name, text="", *, is_error=False):
    """Give the result of a call."""
    return ToolResultMessage(str(number), name, text, is_error=is_error)


# -- what is offered --


def test_the_tool_for_the_answer_comes_last_and_takes_the_schema():
    """A request offers the tools of the context, and behind them the one that takes the answer."""
    context = AgentContext("be brief", [UserMessage("hi")], [tool("a"), tool("b")])
    offered = final().offer(context)

    assert list(offered.tools) == ["a", "b", "final_answer"]
    assert offered.tools["final_answer"].input_schema == SCHEMA
    assert (offered.system_prompt, offered.messages) == (context.system_prompt, context.messages)
    assert list(context.tools) == ["a", "b"]


def test_its_name_never_clashes():
    """Where the user has a tool of the name, another is taken, and back where it is free again."""
    answer = final()
    taken = AgentContext("", [], [tool("final_answer"), tool("final_answer_2")])

    assert list(answer.offer(taken).tools)[-1] == "final_answer_3"
    assert list(answer.offer(AgentContext()).tools) == ["final_answer"]


def test_the_tool_is_the_same_in_every_request():
    """It is made once, so that what is made of it for a wire is, too."""
    answer = final()
    first = answer.offer(AgentContext()).tools["final_answer"]

    assert answer.offer(AgentContext("", [], [tool("a")])).tools["final_answer"] is first


def test_a_model_that_knows_structured_output_is_offered_nothing_more():
    """The schema goes with the request, so the context stays as it is."""
    context = AgentContext("", [], [tool("a")])

    assert final(native=True).offer(context) is context


# -- how is asked --


@pytest.mark.parametrize(
    ("settings", "choice"),
    [
        ({}, "required"),
        ({"reasoning": "off"}, "required"),
        ({"reasoning": "high"}, None),
        ({"tool_choice": "auto"}, "auto"),
        ({"tool_choice": "none"}, "final_answer"),
        ({"tool_choice": "none", "reasoning": "high"}, "final_answer"),
        ({"tool_choice": "look"}, "look"),
    ],
    ids=str,
)
def test_the_model_must_call_a_tool_unless_it_thinks(settings, choice):
    """A model that thinks is left free, since several APIs refuse to force it; what the user chose holds."""
    asked = final().asking(AgentLoopConfig(**settings))

    assert asked.tool_choice == choice
    assert asked.output_schema is None


def test_the_way_of_asking_is_made_once_per_config():
    """The same config gives the same object, so that requests share what is made of it."""
    answer, config, other = final(), AgentLoopConfig(), AgentLoopConfig(reasoning="low")

    assert answer.asking(config) is answer.asking(config)
    assert answer.asking(other).reasoning == "low"
    assert answer.asking(config).tool_choice == "required"


def test_a_model_that_knows_structured_output_is_asked_as_the_config_says():
    """Nothing is forced where the answer is a text."""
    config = AgentLoopConfig(tool_choice="none")

    assert final(native=True).asking(config) is config


def test_hooks_around_tool_calls_are_not_asked_about_the_tool():
    """The tool is not the user's: an approval or a guard sees the user's own tools only."""
    seen = []

    def hook(context, _signal):
        seen.append(context.tool_call.name)

    answer = final()
    config = AgentLoopConfig(before_tool_call=hook, after_tool_call=hook)
    running = answer.running(config)
    for name in ("look", "final_answer"):
        shown = type("Shown", (), {"tool_call": ToolCall("1", name)})()
        running.before_tool_call(shown, None)
        running.after_tool_call(shown, None)

    assert seen == ["look", "look"]
    assert answer.running(config) is running
    assert answer.running(AgentLoopConfig(max_turns=2)).before_tool_call is None
    only_after = answer.running(AgentLoopConfig(after_tool_call=hook))
    assert only_after.before_tool_call is None


# -- answers --


def test_a_call_of_the_tool_is_the_answer():
    """What the tool ran with is the value, and the text is its JSON."""
    answer = final()
    offered = answer.offer(AgentContext())
    message = answer.read(calling("final_answer"))
    taken = offered.tools["final_answer"].execute("1", {"n": 1})
    given = answer.given(message, (result(1, "final_answer", taken.text),))

    assert (given.parsed, given.text, given.stop_reason) == ({"n": 1}, '{"n": 1}', "stop")
    assert (given.api, given.provider, given.model, given.usage) == ("a", "p", "m", None)
    assert not answer.failed


def test_of_several_answers_the_first_that_fits_counts():
    """In call order, whatever order they ran in."""
    answer = final()
    execute = answer.offer(AgentContext()).tools["final_answer"].execute
    message = answer.read(calling("final_answer", "look", "final_answer", "final_answer"))
    execute("4", {"n": 4})
    execute("3", {"n": 3})
    refused = result(1, "final_answer", "no", is_error=True)

    assert answer.given(message, (refused,)).parsed == {"n": 3}


def test_an_id_that_comes_again_brings_no_earlier_answer():
    """Some servers count the calls of each answer anew."""
    answer = final()
    answer.offer(AgentContext()).tools["final_answer"].execute("1", {"n": 1})
    message = answer.read(calling("final_answer"))

    assert answer.given(message, (result(1, "final_answer", "no", is_error=True),)) is None


@pytest.mark.parametrize("native", [True, False])
def test_an_answer_in_json_that_fits_is_taken(native):
    """The message that is kept carries the value of its text."""
    answer = final(native=native)
    message = answer.read(AssistantMessage('```json\n{"n": "7"}\n```'))

    assert message.parsed == {"n": 7}
    assert answer.given(message, ()) is message


def test_null_can_be_an_answer():
    """A value of null is given as any other."""
    answer = final(output=output_schema({"type": "null"}), native=True)
    message = answer.read(AssistantMessage('{"answer": null}'))

    assert answer.given(message, ()) is message
    assert message.parsed is None


@pytest.mark.parametrize(
    "message",
    [
        calling("look"),
        AssistantMessage("half", stop_reason="aborted", error_message="aborted"),
    ],
    ids=["calls", "failed"],
)
def test_an_answer_that_is_none_yet_is_left_alone(message):
    """Calls of other tools are no answer and no refusal."""
    answer = final()

    assert answer.read(message) is message
    assert message.failed or answer.given(message, ()) is None
    assert not answer.refused
    assert answer.reminder(message) == ()


def test_an_answer_that_does_not_fit_is_told_to_the_model_once():
    """The first time the model is told what was wrong; the second time there is nothing left to try."""
    answer = final()
    message = answer.read(AssistantMessage("seven"))

    assert answer.given(message, ()) is None
    assert not answer.failed
    (told,) = answer.reminder(message)
    assert (told.custom_type, told.display) == ("output_problem", False)
    assert "no valid JSON" in told.to_llm().text
    assert "calling the tool final_answer" in told.to_llm().text

    again = answer.read(AssistantMessage('{"n": "seven"}'))
    assert answer.given(again, ()) is None
    assert answer.failed
    assert "n: expected integer" in answer.failure
    assert "output_schema" in answer.failure


def test_a_refused_call_is_told_by_its_result():
    """The model reads of it where the result of its call is, so it is told nothing more."""
    answer = final()
    message = answer.read(calling("look", "final_answer"))
    told = "Invalid arguments for final_answer: n: is missing"
    given = answer.given(message, (result(1, "look"), result(2, "final_answer", told)))

    assert given is None
    assert answer.refused == 1
    assert answer.reminder(message) == ()
    assert told in answer.failure


def test_a_model_that_knows_structured_output_is_told_to_answer_in_json():
    """It has no tool to call; and what it calls by that name is a tool of the user's."""
    answer = final(native=True)
    message = answer.read(AssistantMessage('{"n": ', stop_reason="length"))

    assert answer.given(message, ()) is None
    text = answer.reminder(message)[0].to_llm().text
    assert "cut off at the output limit" in text
    assert "nothing but JSON" in text
    assert answer.given(answer.read(calling("final_answer")), ()) is None
    assert answer.refused == 1


def test_an_answer_that_fits_wipes_the_slate_clean():
    """A run that goes on after an answer has its tries again."""
    answer = final()
    answer.given(answer.read(AssistantMessage("seven")), ())
    answer.given(answer.read(AssistantMessage('{"n": 7}')), ())
    answer.given(answer.read(AssistantMessage("eight")), ())

    assert not answer.failed
    answer.offer(AgentContext())
    message = answer.read(calling("final_answer"))
    answer.offer(AgentContext()).tools["final_answer"].execute("1", {"n": 1})
    answer.given(message, ())
    assert answer.refused == 0


# -- which way --


def test_a_run_without_a_schema_needs_none_of_it():
    """Where no schema is asked for, nothing is looked after."""
    assert FinalAnswer.of(AgentLoopConfig(), ScriptedModel()) is None


def test_calls_that_run_side_by_side_may_do_so_beside_the_answer():
    """The tool stands in nobody's way: it may run beside others."""
    offered = final().offer(AgentContext("", [], [parallel("a")]))

    assert all(each.parallel_tool_execute for each in offered.tools.values())


@pytest.mark.parametrize(
    ("model", "native"), [(ScriptedModel(), False), (Native(), True), (object(), False)]
)
def test_the_model_says_whether_it_knows_structured_output(model, native):
    """`native_output = True` is how a `StreamFn` says so."""
    assert FinalAnswer.of(AgentLoopConfig(output_schema=SCHEMA), model).native == native


# -- whole runs --


class NativeModel(ScriptedModel):
    """A scripted model that knows structured output."""

    native_output = True


def answer_call(arguments, name="final_answer", call_id=""):
    """Give a call of the tool that takes the answer."""
    return call(name, arguments, call_id)


def test_a_run_ends_with_the_call_of_the_tool():
    """The model works with its tools and then gives the answer; the history holds each call with its result."""
    done = run([call("look"), answer_call({"n": 3})], tool("look"), output_schema=SCHEMA)

    assert (done.answer.parsed, done.answer.text) == ({"n": 3}, '{"n": 3}')
    assert done.answer.stop_reason == "stop"
    assert [role for role, _ in done.history] == [
        "user",
        "assistant",
        "toolResult",
        "assistant",
        "toolResult",
    ]
    assert done.results == [("look done", False), ("This is the answer.", False)]
    assert [list(request.tools) for request in done.model.requests] == [
        ["look", "final_answer"],
        ["look", "final_answer"],
    ]
    assert {options.tool_choice for options in done.model.options} == {"required"}
    assert {options.output_schema for options in done.model.options} == {None}


def test_a_run_without_a_schema_is_as_it_was():
    """Nothing is offered or asked that nobody wants, and an answer has no value."""
    done = run(["hi"], tool("look"))

    assert done.answer.parsed is None
    assert list(done.model.requests[0].tools) == ["look"]
    assert done.model.options[0].tool_choice is None


def test_a_model_that_knows_structured_output_is_sent_the_schema():
    """Its text is the answer; tools may be called on the way."""
    done = run(NativeModel([call("look"), '{"n": 4}']), tool("look"), output_schema=SCHEMA)

    assert done.answer.parsed == {"n": 4}
    assert done.answer is done.messages[-1]
    assert [options.output_schema for options in done.model.options] == [SCHEMA, SCHEMA]
    assert list(done.model.requests[0].tools) == ["look"]


def test_a_value_of_any_kind_can_be_asked_for():
    """A list travels inside an object, in the tool's arguments and in the schema that is sent."""
    wrapped = answer_call({"answer": ["a", "b"]})
    assert run([wrapped], output_schema=list[str]).answer.parsed == ["a", "b"]

    done = run(NativeModel(['{"answer": ["a"]}']), output_schema=list[str])
    assert done.answer.parsed == ["a"]
    assert done.model.options[0].output_schema["required"] == ["answer"]


def test_a_plain_function_can_be_asked_too():
    """A function of a request dict sees the tool and calls it as any other."""

    def llm_call(request):
        (offered,) = request["tools"]
        assert request["tool_choice"] == "required"
        function = {"name": offered["function"]["name"], "arguments": '{"n": 5}'}
        return {"role": "assistant", "tool_calls": [{"id": "1", "function": function}]}

    assert run(adapt_llm_call(llm_call), output_schema=SCHEMA).answer.parsed == {"n": 5}


def test_calls_beside_the_answer_run_and_have_their_results():
    """What the model asked for in the same breath is done, whatever fails among it, and the answer stands."""
    broken = tool("broken", raising(ValueError("no")))
    together = ScriptedModel(
        [calls(call("look"), answer_call({"n": 1}), call("broken"), answer_call({"n": 2}))]
    )
    done = run(together, tool("look"), broken, output_schema=SCHEMA)

    assert done.answer.parsed == {"n": 1}
    assert [failed for _, failed in done.results] == [False, False, True, False]
    assert len(done.model.requests) == 1


def test_a_batch_that_hands_off_beside_the_answer_gives_the_answer():
    """An answer in the batch is more than the wish of other tools to stop."""
    stop = tool("stop", lambda *_: AgentToolResult("stopping", terminate=True))
    done = run([calls(call("stop"), answer_call({"n": 1}))], stop, output_schema=SCHEMA)
    handed = run([call("stop")], stop, output_schema=SCHEMA)

    assert done.answer.parsed == {"n": 1}
    assert (handed.answer.stop_reason, handed.answer.parsed) == ("tool_use_terminated", None)


def test_a_call_that_does_not_fit_is_tried_once_more():
    """The result of the call says what was wrong, and the next call may be right."""
    done = run([answer_call({"n": "seven"}), answer_call({"n": "7"})], output_schema=SCHEMA)

    assert done.answer.parsed == {"n": 7}
    (refusal, failed), _ = done.results
    assert failed
    assert 'n: expected integer, not "seven"' in refusal


def test_words_instead_of_a_call_are_answered_once():
    """A model that talks is told to call the tool, in a message that the history keeps."""
    done = run(["It is seven.", answer_call({"n": 7})], output_schema=SCHEMA)

    assert done.answer.parsed == {"n": 7}
    told = done.messages[2]
    assert (told.role, told.custom_type, told.display) == ("custom", "output_problem", False)
    assert done.model.requests[1].messages[-1].text == told.to_llm().text


def test_json_that_fits_is_an_answer_without_a_call():
    """Words that are the answer need not be called for again, and the message in the history carries the value."""
    done = run(['{"n": 7}'], output_schema=SCHEMA)

    assert done.answer.parsed == {"n": 7}
    assert done.messages[-1] is done.answer


@pytest.mark.parametrize(
    "script",
    [
        [answer_call({}), answer_call({"n": None})],
        ["seven", "seven"],
        ["seven", answer_call({})],
        [answer_call("{"), '{"m": 1}'],
    ],
)
@pytest.mark.parametrize("model", [ScriptedModel, NativeModel])
def test_a_model_that_fails_twice_has_failed(script, model):
    """The second answer that does not fit ends the run with an error that says what was wrong."""
    if model is NativeModel:
        script = ["seven", '{"n": "seven"}']
    done = run(model(script), output_schema=SCHEMA)

    assert done.answer.stop_reason == "error"
    assert "no answer that fits output_schema, 2 times" in done.answer.error_message
    assert done.answer.parsed is None
    assert len(done.model.requests) == 2


def test_an_answer_that_was_cut_off_is_asked_for_again():
    """Neither half a call nor half a text is an answer."""
    cut_call = attrs.evolve(calls(answer_call({"n": 1})), stop_reason="length")
    cut_text = AssistantMessage('{"n": ', stop_reason="length")

    assert run([cut_call, answer_call({"n": 2})], output_schema=SCHEMA).answer.parsed == {"n": 2}
    done = run(NativeModel([cut_text, '{"n": 3}']), output_schema=SCHEMA)
    assert done.answer.parsed == {"n": 3}
    assert "cut off" in done.model.requests[1].messages[-1].text


def test_a_failed_answer_ends_the_run_as_always():
    """An error of the model's is no answer to be told about."""
    done = run([failure("overloaded")], output_schema=SCHEMA)

    assert done.answer.error_message == "overloaded"
    assert len(done.model.requests) == 1


def test_a_user_may_have_a_tool_of_the_name():
    """The user's `final_answer` is called as it is, and the answer is taken under another name."""
    script = [call("final_answer"), answer_call({"n": 1}, "final_answer_2")]
    done = run(script, tool("final_answer"), output_schema=SCHEMA)

    assert done.answer.parsed == {"n": 1}
    assert done.results[0] == ("final_answer done", False)


def test_the_tool_is_only_there_for_its_run():
    """The next run of the agent is offered the agent's own tools."""
    model = ScriptedModel([answer_call({"n": 1}), "hi"])
    with YiemAgent(model, tools=[tool("look")]) as agent:
        first = ask(agent, "count", output_schema=SCHEMA, timeout_s=10)
        second = ask(agent, "hello", timeout_s=10)

        assert (first.parsed, second.parsed) == ({"n": 1}, None)
        assert list(agent.state.tools) == ["look"]
    assert [list(request.tools) for request in model.requests] == [
        ["look", "final_answer"],
        ["look"],
    ]
    roles = [message.role for message in model.requests[1].messages]
    assert roles == ["user", "assistant", "toolResult", "user"]


def test_each_question_brings_its_own_schema():
    """`run_agent` takes one as well, and an agent's own holds where a question brings none."""
    model = ScriptedModel(
        [answer_call({"answer": 1}), answer_call({"n": 2}), answer_call({"answer": ["c"]})]
    )
    with YiemAgent(model, output_schema=int) as agent:
        run_agent(agent, "one")
        run_agent(agent, "two", output_schema=SCHEMA)

        assert [take_response(agent, 10).parsed for _ in range(2)] == [1, {"n": 2}]
        assert ask(agent, "three", output_schema=list[str], timeout_s=10).parsed == ["c"]


def test_an_answer_becomes_an_object():
    """`read_output` makes of the value what it was asked for with."""

    @attrs.frozen
    class Count:
        n: int
        unit: str = "pieces"

    with YiemAgent(ScriptedModel([answer_call({"n": 3})])) as agent:
        answer = ask(agent, "count", output_schema=Count, timeout_s=10)

    assert answer.parsed == {"n": 3, "unit": "pieces"}
    assert read_output(answer, Count) == Count(3, "pieces")


@pytest.mark.parametrize("verb", [ask, run_agent])
def test_what_says_no_schema_is_refused_at_once(verb):
    """A caller's mistake raises in the caller's thread, and nothing is sent."""
    model = ScriptedModel(["hi"])
    with YiemAgent(model) as agent, pytest.raises(ConfigurationError, match="output_schema"):
        verb(agent, "count", output_schema="Person")

    assert model.requests == []


def test_steering_that_waits_is_answered_before_the_run_ends():
    """An answer is the run's last word only where nothing is left to say, as without a schema."""
    more = iter([[], [UserMessage("and now?")], []])
    done = run(
        [answer_call({"n": 1}, call_id="1"), answer_call({"n": 2}, call_id="1")],
        output_schema=SCHEMA,
        get_steering_messages=lambda: next(more),
    )

    assert done.answer.parsed == {"n": 2}


def test_follow_ups_come_after_an_answer_and_get_one_of_their_own():
    """A follow-up goes on where the answer is given."""
    more = iter([[UserMessage("and now?")], []])
    done = run(
        [answer_call({"n": 1}), "two", answer_call({"n": 2})],
        output_schema=SCHEMA,
        get_follow_up_messages=lambda: next(more),
    )

    assert done.answer.parsed == {"n": 2}


def test_hooks_see_the_users_tools_only():
    """An approval of every call is asked about the user's tools, in whole runs too."""
    asked = []

    def approve(context, _signal):
        asked.append(context.tool_call.name)
        return {"block": context.tool_call.name != "look"}

    done = run(
        [calls(call("look"), answer_call({"n": 1}))],
        tool("look"),
        output_schema=SCHEMA,
        before_tool_call=approve,
        after_tool_call=lambda context, _signal: asked.append(context.tool_call.name),
    )

    assert done.answer.parsed == {"n": 1}
    assert asked == ["look", "look"]


def test_a_hook_that_stops_the_run_stops_it():
    """`should_stop_after_turn` ends the run with what the turn came to, an answer that fits or not."""
    stop = {"output_schema": SCHEMA, "should_stop_after_turn": lambda *_: True}

    assert run([answer_call({"n": 1})], **stop).answer.parsed == {"n": 1}
    assert run(["seven"], **stop).answer.text == "seven"


def test_a_hook_may_hide_the_tools_and_the_answer_is_taken():
    """The tool joins what `prepare_context` gives, and what is no context is an error as ever."""
    model = ScriptedModel([answer_call({"n": 1})])
    with YiemAgent(
        model, tools=[tool("look")], prepare_context=lambda state: AgentContext("", state.messages)
    ) as agent:
        assert ask(agent, "count", output_schema=SCHEMA, timeout_s=10).parsed == {"n": 1}
    assert list(model.requests[0].tools) == ["final_answer"]
    with YiemAgent(ScriptedModel(), prepare_context=lambda _state: 3) as agent:
        failed = ask(agent, "count", output_schema=SCHEMA, timeout_s=10)
    assert "prepare_context gave 3" in failed.error_message


def test_the_turn_limit_says_that_no_answer_fits():
    """Where no turn is left to say it again, the error says what is missing."""
    done = run(["seven"], output_schema=SCHEMA, max_turns=1)

    assert done.answer.error_message == (
        "stopped after 1 turn (max_turns=1) with no answer that fits output_schema"
    )
    assert run([answer_call({"n": 1})], output_schema=SCHEMA, max_turns=1).answer.parsed == {"n": 1}


def test_an_abort_beside_the_answer_is_an_abort():
    """A run that is aborted in its last batch gives an aborted answer; every call has its result."""
    signal = AbortSignal()
    done = run(
        [calls(answer_call({"n": 1}), call("stop"))],
        tool("stop", lambda *_: signal.abort("enough")),
        output_schema=SCHEMA,
        signal=signal,
    )

    assert done.answer.stop_reason == "aborted"
    assert len(done.results) == 2


def test_an_answer_is_streamed_as_any_other():
    """The events of a streamed call are told as they come, and its value is read at its end."""
    message = calls(answer_call({"n": 1}, call_id="1"))
    pieces = [
        StartEvent("m"),
        ToolCallStartEvent(0, "1", "final_answer"),
        ToolCallDeltaEvent(0, '{"n"'),
        ToolCallDeltaEvent(0, ": 1}"),
        ToolCallEndEvent(0, message.tool_calls[0]),
        DoneEvent(message),
    ]
    done = run([pieces], output_schema=SCHEMA)

    assert done.answer.parsed == {"n": 1}
    assert len(done.of(MessageUpdateEvent)) == 4


def test_an_answer_survives_being_stored():
    """The value of an answer is part of its JSON form."""
    done = run(NativeModel(['{"n": 7}']), output_schema=SCHEMA)
    [end] = done.of(AgentEndEvent)
    loaded = from_json(to_json(end))

    assert loaded == end
    assert loaded.answer.parsed == {"n": 7}


ANSWERS = st.sampled_from(
    [
        "words",
        '{"n": 1}',
        call("look"),
        answer_call({"n": 1}),
        answer_call({"n": "one"}),
        answer_call("{", call_id="same"),
        answer_call({"n": 2}, call_id="same"),
        calls(call("look"), answer_call({"n": 3}), call("nobody")),
        calls(answer_call({}), answer_call({"n": 4})),
        attrs.evolve(calls(answer_call({"n": 5})), stop_reason="length"),
        AssistantMessage('{"n": 6}', stop_reason="length"),
        AssistantMessage(),
        failure("overloaded"),
    ]
)


@given(st.lists(ANSWERS, min_size=1, max_size=6), st.sampled_from([ScriptedModel, NativeModel]))
def test_whatever_a_model_says_the_run_ends_with_a_value_that_fits_or_an_error(script, model):
    """The grammar of the events holds, every call has its result, and nobody is asked a third time."""
    done = run(model(script, default="words"), tool("look"), output_schema=SCHEMA, max_turns=9)
    made = [c.id for m in done.messages if m.role == "assistant" for c in m.tool_calls]
    told = [m for m in done.messages if m.role == "custom"]

    assert done.answer.failed == (done.answer.parsed is None)
    assert done.answer.failed or OUTPUT.check(done.answer.parsed) == done.answer.parsed
    assert [m.tool_call_id for m in done.messages if m.role == "toolResult"] == made
    assert len(told) <= 1
    assert len(done.model.requests) <= 9
