"""How a run comes to an answer that fits its schema: what is offered, asked, read, and told."""

from __future__ import annotations

import pytest

from tests.support.loops import parallel, tool
from yiemagent.config import AgentLoopConfig
from yiemagent.context import AgentContext
from yiemagent.final_answer import FinalAnswer
from yiemagent.messages import AssistantMessage, ToolCall, ToolResultMessage, UserMessage
from yiemagent.output import output_schema
from yiemagent.testing import ScriptedModel

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
OUTPUT = output_schema(SCHEMA)


class Native:
    """A model that knows structured output."""

    native_output = True


def final(*, native=False, output=OUTPUT):
    """Give the part of a run that looks after its answer."""
    return FinalAnswer(output, native)


def calls(*names, stop_reason="tool_use"):
    """Give an answer that calls tools, with the ids 1, 2 and so on."""
    made = [ToolCall(str(number), name, {"n": number}) for number, name in enumerate(names, 1)]
    return AssistantMessage(made, stop_reason=stop_reason, api="a", provider="p", model="m")


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
    message = answer.read(calls("final_answer"))
    taken = offered.tools["final_answer"].execute("1", {"n": 1})
    given = answer.given(message, (result(1, "final_answer", taken.text),))

    assert (given.parsed, given.text, given.stop_reason) == ({"n": 1}, '{"n": 1}', "stop")
    assert (given.api, given.provider, given.model, given.usage) == ("a", "p", "m", None)
    assert not answer.failed


def test_of_several_answers_the_first_that_fits_counts():
    """In call order, whatever order they ran in."""
    answer = final()
    execute = answer.offer(AgentContext()).tools["final_answer"].execute
    message = answer.read(calls("final_answer", "look", "final_answer", "final_answer"))
    execute("4", {"n": 4})
    execute("3", {"n": 3})
    refused = result(1, "final_answer", "no", is_error=True)

    assert answer.given(message, (refused,)).parsed == {"n": 3}


def test_an_id_that_comes_again_brings_no_earlier_answer():
    """Some servers count the calls of each answer anew."""
    answer = final()
    answer.offer(AgentContext()).tools["final_answer"].execute("1", {"n": 1})
    message = answer.read(calls("final_answer"))

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
        calls("look"),
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
    message = answer.read(calls("look", "final_answer"))
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
    assert answer.given(answer.read(calls("final_answer")), ()) is None
    assert answer.refused == 1


def test_an_answer_that_fits_wipes_the_slate_clean():
    """A run that goes on after an answer has its tries again."""
    answer = final()
    answer.given(answer.read(AssistantMessage("seven")), ())
    answer.given(answer.read(AssistantMessage('{"n": 7}')), ())
    answer.given(answer.read(AssistantMessage("eight")), ())

    assert not answer.failed
    answer.offer(AgentContext())
    message = answer.read(calls("final_answer"))
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
