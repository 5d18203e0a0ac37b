"""One tool call: whatever a model, a tool or a hook does, it ends in exactly one result and raises nothing."""

from __future__ import annotations

import copy
import threading

import pytest

from tests.support.loops import WAIT_S, raising, tool
from yiemagent.abort import AbortSignal
from yiemagent.context import AgentContext
from yiemagent.errors import ConfigurationError, InvalidArguments, ToolFailure, ToolNotFound
from yiemagent.hooks import AfterToolCallResult, BeforeToolCallResult, Hooks
from yiemagent.messages import AssistantMessage, ImageContent, LlmUsage, TextContent
from yiemagent.pipeline import (
    ABORTED_TEXT,
    ExecutedOutcome,
    FinalizedOutcome,
    ImmediateOutcome,
    PreparedToolCall,
    create_error_tool_result,
    create_tool_result_message,
    execute_prepared_tool_call,
    finalize_executed_tool_call,
    prepare_tool_call,
    should_terminate,
)
from yiemagent.registry import ToolStore, register_tool
from yiemagent.testing import RecordingSink, call, calls
from yiemagent.tool import AgentToolResult

NUMBER = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "unit": {"type": "string", "default": "km"}},
    "required": ["n"],
}


class OwnError(BaseException):
    """What no `except Exception` sees."""


class Wordless(Exception):
    """An exception that can't say what it is."""

    def __str__(self):
        raise SystemExit("no words")


FOREIGN_ERRORS = [
    ValueError("broken"),
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit(),
    RecursionError("too deep"),
    OwnError("own"),
    Wordless(),
]
BY_NAME = {"ids": lambda value: type(value).__name__}


def prepare(one_call, *tools, signal=None, before=None):
    """Prepare a call with a signal and a `before_tool_call`."""
    return prepare_tool_call(
        AgentContext(tools=tools),
        calls(one_call),
        one_call,
        Hooks(before_tool_call=before),
        signal or AbortSignal(),
    )


def execute(a_tool, signal=None, emit=None):
    """Execute a call of a tool without arguments."""
    prepared = PreparedToolCall(a_tool, call(a_tool.name, call_id="c1"), {})
    return execute_prepared_tool_call(prepared, signal or AbortSignal(), emit or RecordingSink())


def finalize(after, executed=None, *, args=None, terminate=False):
    """Finalize an executed call with an `after_tool_call`."""
    prepared = PreparedToolCall(tool(), call("work", args), args or {}, terminate)
    return finalize_executed_tool_call(
        AgentContext(),
        calls(prepared.tool_call),
        prepared,
        executed or ExecutedOutcome(AgentToolResult("done", {"a": 1})),
        hooks=Hooks(after_tool_call=after),
        signal=AbortSignal(),
    )


# -- prepare --


def test_a_call_is_prepared_with_checked_arguments():
    """Arguments are coerced, completed by defaults and a private plain copy."""
    one_call = call("work", {"n": "5"})
    prepared = prepare(one_call, tool(input_schema=NUMBER))

    assert prepared.args == {"n": 5, "unit": "km"}
    assert type(prepared.args) is dict
    assert prepared.tool_call is one_call
    assert one_call.arguments == {"n": "5"}


def test_an_unknown_tool_is_an_error_that_names_the_known_ones():
    """The model is told which tools exist, and which of them has a name like it."""
    outcome = prepare(call("wrok"), tool("work"), tool("play"))

    assert outcome.is_error
    assert outcome.result.text == (
        "Tool 'wrok' not found; did you mean 'work'? Available tools: work, play"
    )
    assert prepare(call("zzz"), tool("work")).result.text == (
        "Tool 'zzz' not found. Available tools: work"
    )


def test_an_unknown_tool_among_none_says_so():
    """Without any tool the model is told that there is none."""
    assert prepare(call("work")).result.text == "Tool 'work' not found: no tools are available"


@pytest.mark.parametrize("arguments", [{}, {"n": "many"}, {"n": 4.5}, "{broken", "[1]", '{"n": 1'])
def test_bad_arguments_are_an_error_and_the_hook_is_not_asked(arguments):
    """Arguments that don't fit are answered with what is wrong, before anybody is asked to allow them."""
    asked = []
    outcome = prepare(
        call("work", arguments),
        tool(input_schema=NUMBER),
        before=lambda *given: asked.append(given),
    )

    assert isinstance(outcome, ImmediateOutcome)
    assert outcome.is_error
    assert outcome.result.text.startswith("Invalid arguments for work: ")
    assert asked == []


def test_prepare_arguments_works_on_a_private_copy_before_the_check():
    """What `prepare_arguments` gives is what is checked; the model's arguments stay as they were."""

    def shout(args):
        args["n"] = args.pop("number")
        return args

    one_call = call("work", {"number": 4})
    prepared = prepare(one_call, tool(input_schema=NUMBER, prepare_arguments=shout))

    assert prepared.args == {"n": 4, "unit": "km"}
    assert one_call.arguments == {"number": 4}


def test_prepare_arguments_must_give_a_dict():
    """Anything else is an error result."""
    outcome = prepare(call("work"), tool(prepare_arguments=lambda _args: None))

    assert outcome.result.text == (
        "Invalid arguments for work: prepare_arguments gave None instead of a dict"
    )


def test_the_tools_own_check_adds_to_the_schemas():
    """`validate_required_args` sees arguments that fit the schema, and its words reach the model."""
    seen = []

    def check(args):
        seen.append(copy.deepcopy(args))
        args.clear()
        return "n must be even" if seen[-1]["n"] % 2 else None

    a_tool = tool(input_schema=NUMBER, validate_required_args=check)

    assert prepare(call("work", {"n": 2}), a_tool).args == {"n": 2, "unit": "km"}
    assert prepare(call("work", {"n": 3}), a_tool).result.text == (
        "Invalid arguments for work: n must be even"
    )
    assert isinstance(prepare(call("work", {}), a_tool), ImmediateOutcome)
    assert seen == [{"n": 2, "unit": "km"}, {"n": 3, "unit": "km"}]


@pytest.mark.parametrize("error", FOREIGN_ERRORS, **BY_NAME)
@pytest.mark.parametrize("where", ["prepare_arguments", "validate_required_args", "before"])
def test_whatever_preparing_raises_is_an_error_result(error, where):
    """A check, a preparation or a hook that raises keeps the tool from running: it fails closed."""
    if where == "before":
        outcome = prepare(call("work"), tool(), before=raising(error))
    else:
        outcome = prepare(call("work"), tool(**{where: raising(error)}))

    assert isinstance(outcome, ImmediateOutcome)
    assert outcome.is_error
    assert type(error).__name__ in outcome.result.text


def test_arguments_nested_beyond_measure_are_an_error_result():
    """Arguments too deep for Python are answered, not raised."""
    depth = 100_000
    outcome = prepare(call("work", '{"a":' + "[" * depth + "]" * depth + "}"), tool())

    assert outcome.is_error


def test_before_tool_call_is_shown_the_call_and_its_checked_arguments():
    """The hook sees the answer, the raw call, the checked arguments, the context, and the run's signal."""
    seen = []
    signal = AbortSignal()
    one_call = call("work", {"n": "5"})
    prepare(
        one_call,
        tool(input_schema=NUMBER),
        signal=signal,
        before=lambda shown, given: seen.append((shown, given)),
    )
    [(shown, given)] = seen

    assert given is signal
    assert shown.tool_call is one_call
    assert shown.assistant_message.tool_calls == (one_call,)
    assert shown.args == {"n": 5, "unit": "km"}
    assert list(shown.context.tools) == ["work"]


@pytest.mark.parametrize(
    "decision",
    [BeforeToolCallResult(True, "not today"), {"block": True, "reason": "not today"}],
    ids=["typed", "dict"],
)
def test_a_block_is_an_error_with_its_reason(decision):
    """A blocked call is answered with the reason."""
    outcome = prepare(call("work"), tool(), before=lambda *_: decision)

    assert (outcome.result.text, outcome.is_error) == ("not today", True)
    assert not outcome.result.terminate


def test_a_block_without_a_reason_says_that_it_was_blocked():
    """The default reason is the reference's."""
    outcome = prepare(call("work"), tool(), before=lambda *_: BeforeToolCallResult(True))

    assert outcome.result.text == "Tool execution was blocked"


def test_a_block_may_ask_the_agent_to_stop():
    """`terminate` of a block is in its result."""
    outcome = prepare(call("work"), tool(), before=lambda *_: {"block": True, "terminate": True})

    assert outcome.result.terminate


def test_the_hook_may_ask_to_stop_after_a_call_that_runs():
    """`terminate` without a block is in the result of the call."""
    prepared = prepare(call("work"), tool(), before=lambda *_: {"terminate": True})

    assert prepared.terminate
    assert finalize(None, terminate=True).result.terminate
    assert finalize(raising(ValueError("x")), terminate=True).result.terminate


@pytest.mark.parametrize("given", [True, "no", 1, [], {"blocked": True}], ids=repr)
def test_what_a_hook_may_not_give_keeps_the_tool_from_running(given):
    """A decision of another kind fails closed, and says what is allowed."""
    outcome = prepare(call("work"), tool(), before=lambda *_: given)

    assert outcome.is_error
    assert "ConfigurationError: before_tool_call gave" in outcome.result.text


def test_arguments_that_the_hook_gives_are_checked_again():
    """Replaced arguments are coerced and checked; bad ones keep the tool from running."""
    a_tool = tool(input_schema=NUMBER)
    good = prepare(call("work", {"n": 1}), a_tool, before=lambda *_: {"args": {"n": "7"}})
    bad = prepare(call("work", {"n": 1}), a_tool, before=lambda *_: {"args": {"n": "x"}})

    assert good.args == {"n": 7, "unit": "km"}
    assert bad.result.text.startswith("Invalid arguments for work: ")


def test_arguments_that_the_hook_changes_in_place_are_checked_again():
    """A change to the shown arguments counts like one that is given back."""

    def before(value):
        def change(shown, _signal):
            shown.args["n"] = value

        return change

    a_tool = tool(input_schema=NUMBER)

    assert prepare(call("work", {"n": 1}), a_tool, before=before("8")).args["n"] == 8
    assert prepare(call("work", {"n": 1}), a_tool, before=before("x")).is_error


def test_what_the_hook_keeps_can_not_change_the_call():
    """The arguments that run are no longer those that the hook was shown."""
    kept = []
    prepared = prepare(
        call("work", {"n": [1]}), tool(), before=lambda shown, _: kept.append(shown.args)
    )
    kept[0]["n"].append(2)

    assert prepared.args == {"n": [1]}


def test_an_abort_before_the_hook_leaves_it_unasked():
    """An aborted call is answered as aborted, and nobody is asked."""
    signal = AbortSignal()
    signal.abort()
    asked = []
    outcome = prepare(call("work"), tool(), signal=signal, before=lambda *_: asked.append(1))

    assert (outcome.result.text, asked) == (ABORTED_TEXT, [])


def test_an_abort_inside_the_hook_counts_before_its_decision():
    """A call whose hook aborts the run is answered as aborted, not as blocked."""

    def before(_shown, signal):
        signal.abort()
        return BeforeToolCallResult(True, "blocked")

    assert prepare(call("work"), tool(), before=before).result.text == ABORTED_TEXT


# -- execute --


def test_a_tool_is_run_with_its_id_and_arguments():
    """The tool gets the id, its own copy of the arguments and the signal, and its text is the result."""
    seen = []
    signal = AbortSignal()

    def function(call_id, args, given, _update):
        seen.append((call_id, args, given))
        args["n"] = 9
        return f"n was {len(args)}"

    prepared = PreparedToolCall(tool(function=function), call("work", call_id="c1"), {"n": 1})
    outcome = execute_prepared_tool_call(prepared, signal, RecordingSink())

    assert outcome == ExecutedOutcome(AgentToolResult("n was 1"))
    assert (seen[0][0], seen[0][2]) == ("c1", signal)
    assert prepared.args == {"n": 1}


@pytest.mark.parametrize("error", FOREIGN_ERRORS, **BY_NAME)
def test_whatever_a_tool_raises_is_its_error_result(error):
    """Not even `SystemExit`, `KeyboardInterrupt` or a foreign `BaseException` leaves the pipeline."""
    outcome = execute(tool(function=raising(error)))

    assert isinstance(outcome, ExecutedOutcome)
    assert outcome.is_error
    assert outcome.result.text.startswith(type(error).__name__)


def test_a_failure_may_bring_content():
    """What a failed tool gave all the same is shown in place of its words, images too."""
    image = ImageContent("QQ==", "image/png")
    error = ToolFailure("no disk", (TextContent("no disk"), image), {"code": 5})
    outcome = execute(tool(function=raising(error)))

    assert outcome.is_error
    assert outcome.result.content == (TextContent("no disk"), image)
    assert outcome.result.details == {"code": 5}
    assert execute(tool(function=raising(ToolFailure("no disk")))).result.text == "no disk"
    assert execute(tool(function=raising(ToolFailure("no disk", 5)))).result.text == "no disk"


def test_a_tool_without_end_is_its_error_result():
    """A tool that recurses for ever is answered with its RecursionError."""

    def function(*given):
        return function(*given)

    assert execute(tool(function=function)).result.text.startswith("RecursionError")


def test_an_error_of_our_own_tree_speaks_for_itself():
    """A `ToolError` is for the model: its words stand alone."""
    assert (
        execute(tool(function=raising(ToolNotFound("no such tool")))).result.text == "no such tool"
    )
    assert execute(tool(function=raising(InvalidArguments("bad n")))).result.text == "bad n"
    assert execute(tool(function=raising(ConfigurationError("x")))).result.text == (
        "ConfigurationError: x"
    )


def test_an_abort_before_the_tool_begins_keeps_it_from_running():
    """No effect starts after an abort: what stands for the call is an outcome that never ran."""
    signal = AbortSignal()
    signal.abort()
    ran = []
    outcome = execute(tool(function=lambda *_: ran.append(1)), signal)

    assert outcome == ImmediateOutcome(create_error_tool_result(ABORTED_TEXT))
    assert ran == []


def test_a_tool_that_raises_when_aborted_is_answered_as_aborted():
    """What a tool raises on its way out of an abort is not shown."""

    def function(_id, _args, signal, _update):
        signal.abort()
        signal.raise_if_aborted()

    assert execute(tool(function=function)).result.text == ABORTED_TEXT


def test_what_a_tool_gives_in_spite_of_an_abort_counts():
    """A tool that returns after an abort has its result kept."""

    def function(_id, _args, signal, _update):
        signal.abort()
        return "half of it"

    assert execute(tool(function=function)) == ExecutedOutcome(AgentToolResult("half of it"))


def test_updates_are_told_in_order_and_frozen():
    """Each partial result is an event with the call's id; what the tool changes later stays out of it."""
    sink = RecordingSink()

    def function(_id, _args, _signal, update):
        partial = {"percent": [1]}
        update(partial)
        partial["percent"].append(2)
        update("second")

    execute(tool(function=function), emit=sink)

    assert [event.partial_result for event in sink.events] == [{"percent": [1]}, "second"]
    assert {(event.tool_call_id, event.tool_name) for event in sink.events} == {("c1", "work")}


def test_updates_after_the_end_are_dropped():
    """A callback that a tool keeps is deaf once the tool has returned or raised."""
    sink = RecordingSink()
    kept = []

    def function(_id, _args, _signal, update):
        kept.append(update)
        raise ValueError

    execute(tool(function=function), emit=sink)
    kept[0]("late")
    outside = threading.Thread(target=kept[0], args=("later",))
    outside.start()
    outside.join(WAIT_S)

    assert sink.events == []


def test_tools_registered_by_a_call_are_named_in_its_result():
    """What a tool registers is in `added_tool_names`, once, behind what it names itself."""
    store = ToolStore()

    def function(*_):
        register_tool(store, tool("one"))
        register_tool(store, tool("two"))
        return AgentToolResult("ok", added_tool_names=("two", "three"))

    assert execute(tool(function=function)).result.added_tool_names == ("two", "three", "one")
    assert execute(tool()).result.added_tool_names == ()


# -- finalize --


def test_without_a_hook_the_result_stays():
    """No `after_tool_call`, or one that gives None, changes nothing."""
    executed = ExecutedOutcome(AgentToolResult("done", {"a": 1}))

    assert finalize(None, executed).result is executed.result
    assert finalize(lambda *_: None, executed).result is executed.result
    assert not finalize(lambda *_: None, executed).is_error


@pytest.mark.parametrize(
    "change, expected",
    [
        ({"content": "masked"}, (AgentToolResult("masked", {"a": 1}), False)),
        ({"details": None}, (AgentToolResult("done", None), False)),
        ({"usage": LlmUsage(1, 2)}, (AgentToolResult("done", {"a": 1}, LlmUsage(1, 2)), False)),
        ({"terminate": True}, (AgentToolResult("done", {"a": 1}, terminate=True), False)),
        ({"is_error": True}, (AgentToolResult("done", {"a": 1}), True)),
        ({"isError": True}, (AgentToolResult("done", {"a": 1}), True)),
        ({}, (AgentToolResult("done", {"a": 1}), False)),
    ],
    ids=lambda value: next(iter(value), "nothing") if isinstance(value, dict) else "",
)
def test_after_tool_call_replaces_field_by_field(change, expected):
    """A field that is given replaces, every other stays; a dict and the typed result mean the same."""
    outcome = finalize(lambda *_: change)
    assert (outcome.result, outcome.is_error) == expected

    typed = {"is_error" if key == "isError" else key: value for key, value in change.items()}
    outcome = finalize(lambda *_: AfterToolCallResult(**typed))
    assert (outcome.result, outcome.is_error) == expected


def test_a_whole_result_keeps_whether_it_is_an_error():
    """An `AgentToolResult` of the hook replaces four fields; names of added tools and the error stay."""
    executed = ExecutedOutcome(
        AgentToolResult("bad", {"a": 1}, terminate=True, added_tool_names=("x",)), is_error=True
    )
    outcome = finalize(lambda *_: AgentToolResult("good", usage=LlmUsage(1, 1)), executed)

    assert outcome.result == AgentToolResult("good", usage=LlmUsage(1, 1), added_tool_names=("x",))
    assert outcome.is_error


@pytest.mark.parametrize("error", FOREIGN_ERRORS, **BY_NAME)
def test_after_tool_call_fails_closed(error):
    """A hook that raises hides the result: it may have been there to mask a secret."""
    outcome = finalize(
        raising(error), ExecutedOutcome(AgentToolResult("secret", {"key": "secret"}))
    )

    assert outcome.is_error
    assert "secret" not in outcome.result.text
    assert outcome.result.details == {}
    assert outcome.result.text.startswith(type(error).__name__)


@pytest.mark.parametrize("given", ["masked", 7, {"contents": "x"}, {"content": 7}], ids=repr)
def test_what_after_tool_call_may_not_give_hides_the_result(given):
    """A replacement of another kind fails closed too."""
    outcome = finalize(lambda *_: given)

    assert outcome.is_error
    assert "done" not in outcome.result.text


def test_after_tool_call_is_shown_what_ran():
    """The hook sees the arguments that ran as a copy, the result, whether it is an error, and a signal."""
    seen = []

    def after(shown, signal):
        seen.append((shown, signal))
        shown.args["n"] = 2

    executed = ExecutedOutcome(AgentToolResult("bad"), is_error=True)
    finalize(after, executed, args={"n": 1})
    [(shown, signal)] = seen

    assert (shown.result, shown.is_error) == (executed.result, True)
    assert shown.tool_call.arguments == {"n": 1}
    assert isinstance(signal, AbortSignal)


# -- results --


def test_a_result_message_carries_the_whole_result():
    """Content, details, usage, added tools and the error go into the history under the call's id."""
    result = AgentToolResult(
        (TextContent("a"), ImageContent("aGk=", "image/png")),
        {"n": 1},
        LlmUsage(1, 2),
        added_tool_names=("x",),
    )
    message = create_tool_result_message(FinalizedOutcome(call("work", call_id="c1"), result, True))

    assert (message.tool_call_id, message.tool_name) == ("c1", "work")
    assert (message.content, message.details, message.usage) == (
        result.content,
        {"n": 1},
        LlmUsage(1, 2),
    )
    assert (message.added_tool_names, message.is_error) == (("x",), True)


@pytest.mark.parametrize(
    "asked, stops", [([], False), ([True], True), ([True, True], True), ([True, False], False)]
)
def test_a_batch_stops_only_where_every_result_asks(asked, stops):
    """An empty batch never stops, one that is not empty does where all ask."""
    outcomes = [
        FinalizedOutcome(call("work"), AgentToolResult("x", terminate=wish), False)
        for wish in asked
    ]

    assert should_terminate(outcomes) is stops


def test_an_answer_is_never_changed_by_its_calls():
    """Neither tool nor hook can change the message that holds the call."""
    one_call = call("work", {"list": [1]})
    message = AssistantMessage((one_call,))
    prepared = prepare(one_call, tool(), before=lambda shown, _: shown.args["list"].append(2))

    assert prepared.args == {"list": [1, 2]}
    assert message.tool_calls[0].arguments == {"list": [1]}
