"""`yiemagent ask` in this process, against a scripted model."""

from __future__ import annotations

import argparse
import io
import json
import threading

import pytest

from yiemagent import codec
from yiemagent.cli.ask import add_ask, ask_command, run_report
from yiemagent.cli.terminal import OutputClosed, Terminal, UsageProblem
from yiemagent.errors import ConfigurationError
from yiemagent.events import AgentEndEvent
from yiemagent.messages import AssistantMessage, LlmUsage, UserMessage
from yiemagent.testing import ScriptedModel, call, calls, failure

SHOUT = '''
"""A drop-in tool."""
from yiemagent.tool import AgentTool


def get_tool():
    return AgentTool("{name}", description="Shouts.", execute=lambda i, args, s, p: "{text}")
'''


def options(*words):
    """The options of a command line."""
    parser = argparse.ArgumentParser()
    add_ask(parser.add_subparsers())
    return parser.parse_args(["ask", *map(str, words)])


class Keyboard(io.StringIO):
    """A stdin at which a person sits."""

    def isatty(self):
        return True


class Asked:
    """One command that was run, and what came of it."""

    def __init__(self, model, *words, stdin="", terminal=Terminal):
        self._out, self._err = io.StringIO(), io.StringIO()
        stdin = io.StringIO(stdin) if isinstance(stdin, str) else stdin
        self.code = ask_command(options(*words), terminal(self._out, self._err), stdin, model)
        self.model = model

    @property
    def out(self):
        return self._out.getvalue()

    @property
    def err(self):
        return self._err.getvalue()

    @property
    def offered(self):
        """The names of the tools in the first request."""
        return list(self.model.requests[0].tools)

    @property
    def said(self):
        """What the model was told last."""
        return self.model.requests[0].messages[-1].text


@pytest.fixture
def folder(tmp_path):
    """A folder of tool files, and how to add one."""

    def add(name, text=None):
        (tmp_path / f"{name}.py").write_text(
            SHOUT.format(name=name, text="HO") if text is None else text
        )
        return tmp_path

    return add


def test_the_answer_is_on_stdout():
    """The answer, and nothing but the answer, is on stdout, and the exit code is 0."""
    asked = Asked(ScriptedModel(["It is noon."]), "What time is it?")

    assert asked.code == 0
    assert asked.out == "It is noon.\n"
    assert asked.err == ""
    assert asked.said == "What time is it?"


def test_what_tools_do_is_on_stderr():
    """Each call and its result are a line on stderr; the answer follows on stdout."""
    model = ScriptedModel([call("get_time", {"zone": "UTC"}), "It is noon."])
    asked = Asked(model, "What time is it?")
    first, second = asked.err.splitlines()

    assert first == '→ get_time {"zone": "UTC"}'
    assert second.startswith("← get_time: Current time in UTC: ")
    assert asked.out == "It is noon.\n"


def test_the_built_in_tools_are_there():
    """Without any option the model is offered the built-in tools and `list_tools`."""
    asked = Asked(ScriptedModel(["Hi."]), "Hello")

    assert sorted(asked.offered) == ["get_time", "get_weather", "list_tools"]


def test_a_drop_in_file_is_used(folder):
    """A file copied into a folder is a tool of `--tools DIR`, beside the built-in ones."""
    model = ScriptedModel([call("shout"), "Done."])
    asked = Asked(model, "Shout!", "--tools", folder("shout"))

    assert sorted(asked.offered) == ["get_time", "get_weather", "list_tools", "shout"]
    assert "← shout: HO" in asked.err


def test_a_file_of_ones_own_replaces_a_built_in_tool(folder):
    """A tool of the user's folder that has a built-in tool's name is used in its place, without a word."""
    model = ScriptedModel([call("get_time"), "Done."])
    asked = Asked(model, "Time?", "-t", folder("get_time"))

    assert asked.err == "→ get_time {}\n← get_time: HO\n"


def test_the_built_in_tools_can_be_left_out(folder):
    """With `--no-builtin-tools` the model is offered the tools of the given folders alone."""
    asked = Asked(ScriptedModel(["Hi."]), "Hello", "--no-builtin-tools", "-t", folder("shout"))

    assert sorted(asked.offered) == ["list_tools", "shout"]


def test_a_bad_tool_file_is_a_warning(folder):
    """A file that does not load is named on stderr, and the others are used."""
    folder("broken", "def get_tool(:\n")
    asked = Asked(ScriptedModel(["Hi."]), "Hello", "--tools", folder("shout"))

    assert asked.err.startswith("warning: ")
    assert "broken.py" in asked.err
    assert "shout" in asked.offered


def test_a_folder_that_is_not_there_is_a_usage_problem(tmp_path):
    """A folder that does not exist is said before anything is asked."""
    model = ScriptedModel(["Hi."])
    with pytest.raises(UsageProblem, match="no such folder: "):
        Asked(model, "Hello", "--tools", tmp_path / "none")

    assert model.requests == []


@pytest.mark.parametrize("words", [(), ("-",)])
def test_a_piped_question_is_read(words):
    """Without a question, or with '-', what is piped in is the question."""
    assert Asked(ScriptedModel(["Hi."]), *words, stdin="  Hello\nthere \n").said == "Hello\nthere"


def test_a_dash_reads_from_the_keyboard_too():
    """With '-' the question is read to its end even where a person types it."""
    assert Asked(ScriptedModel(["Hi."]), "-", stdin=Keyboard("Hello\n")).said == "Hello"


@pytest.mark.parametrize(
    ("words", "stdin"), [((), Keyboard()), ((" ",), ""), (("-",), "\n"), ((), "")]
)
def test_no_question_is_a_usage_problem(words, stdin):
    """A person who gives no question, or an empty one, is told so."""
    with pytest.raises(UsageProblem, match="question"):
        Asked(ScriptedModel(["Hi."]), *words, stdin=stdin)


def test_system_and_max_turns_reach_the_agent():
    """The instructions are sent to the model, and the limit of turns ends the run with exit code 1."""
    model = ScriptedModel(default=call("get_time", {"zone": "UTC"}))
    asked = Asked(model, "Time?", "--system", "Be brief.", "--max-turns", "2")

    assert asked.code == 1
    assert len(model.requests) == 2
    assert model.requests[0].system_prompt == "Be brief."
    assert "max_turns" in asked.err.splitlines()[-1]


def test_what_a_model_is_asked_with_reaches_it():
    """How much to think, how freely, and how long an answer may be are options of the request."""
    model = ScriptedModel(["Done."])
    words = ("--reasoning", "high", "--temperature", "0.5", "--max-tokens", "900")
    asked = Asked(model, "Time?", *words)

    sent = model.options[0]
    assert (sent.reasoning, sent.temperature, sent.max_tokens) == ("high", 0.5, 900)
    assert asked.code == 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--max-total-tokens", "15"), "the run used 15 tokens (max_total_tokens=15)"),
        (("--max-cost", "0.5"), "max_cost=0.5 can't be held"),
    ],
)
def test_limits_end_a_run(words, text):
    """A run at its limit ends with an error that says which one, and exit code 1."""
    asked = Asked(ScriptedModel(default=call("get_time")), "Time?", *words)

    assert asked.code == 1
    assert text in asked.err.splitlines()[-1]


def test_a_limit_of_nothing_is_refused():
    """A run that may cost nothing at all could ask nobody."""
    with pytest.raises(ConfigurationError, match="max_cost"):
        Asked(ScriptedModel(["Done."]), "Time?", "--max-cost", "0")


def test_an_answer_that_must_fit_a_schema_is_json(tmp_path):
    """With `--schema FILE` stdout holds the answer as JSON, and the report its value."""
    path = tmp_path / "schema.json"
    schema = {"type": "object", "properties": {"hour": {"type": "integer"}}, "required": ["hour"]}
    path.write_text(json.dumps(schema), encoding="utf-8")
    script = [call("get_time"), call("final_answer", {"hour": "12"})]
    asked = Asked(ScriptedModel(script), "Time?", "--schema", path)
    report = Asked(ScriptedModel(script), "Time?", "--schema", path, "--json")

    assert json.loads(asked.out) == {"hour": 12}
    assert json.loads(report.out)["value"] == {"hour": 12}


@pytest.mark.parametrize("text", [None, "no json", "[1]"])
def test_a_file_that_holds_no_schema_is_a_usage_problem(tmp_path, text):
    """What can't be read, or is no object, is named before anything is asked."""
    path = tmp_path / "schema.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    model = ScriptedModel(["Done."])

    with pytest.raises(UsageProblem, match=r"schema\.json"):
        Asked(model, "Time?", "--schema", path)
    assert model.requests == []


def test_what_is_left_out_is_the_models_own():
    """Without options, nothing is asked of a model that its provider would have to know."""
    model = ScriptedModel(["Done."])
    Asked(model, "Time?")

    sent = model.options[0]
    assert (sent.reasoning, sent.temperature, sent.max_tokens) == (None, None, None)


@pytest.mark.parametrize(
    "words",
    [
        ("--max-turns", "0"),
        ("--max-turns", "x"),
        ("--max-tokens", "-1"),
        ("--max-cost", "much"),
        ("--max-total-tokens", "0"),
        ("--max-tokens", "²"),
        ("--temperature", "warm"),
        ("--temperature", "nan"),
        ("--temperature", "-0.1"),
        ("--reasoning", "lots"),
        ("--bogus",),
    ],
)
def test_a_wrong_option_is_a_usage_error(words, capsys):
    """A wrong value or option ends with exit code 2 and says what is wrong."""
    with pytest.raises(SystemExit) as ending:
        options("Hello", *words)

    assert ending.value.code == 2
    assert words[0] in capsys.readouterr().err


def test_a_failed_run_ends_with_1():
    """A run that fails says why on stderr, and the exit code is 1."""
    asked = Asked(ScriptedModel([failure("no luck")]), "Hello")

    assert asked.code == 1
    assert asked.err == "error: no luck\n"
    assert asked.out == ""


def test_without_streaming_the_answer_is_the_same():
    """With `--no-stream` the answer is written all the same."""
    asked = Asked(ScriptedModel(["It is noon."]), "Time?", "--no-stream")

    assert asked.out == "It is noon.\n"


def test_json_is_one_object():
    """With `--json` stdout holds one JSON object with the answer, the calls with their results, and the usage."""
    model = ScriptedModel(
        [
            calls(
                call("get_time", {"zone": "UTC"}, "c1"), call("nope", {}, "c2"), text="Let me look."
            ),
            AssistantMessage("It is noon.", model="m", usage=LlmUsage(10, 5)),
        ]
    )
    asked = Asked(model, "Time?", "--json")
    report = json.loads(asked.out)

    assert asked.out.count("\n") == 1
    assert {key: report[key] for key in ("answer", "stop_reason", "error", "model")} == {
        "answer": "It is noon.",
        "stop_reason": "stop",
        "error": None,
        "model": "m",
    }
    first, second = report["tool_calls"]
    assert (first["name"], first["arguments"], first["is_error"]) == (
        "get_time",
        {"zone": "UTC"},
        False,
    )
    assert first["result"].startswith("Current time in UTC: ")
    assert first["details"]["zone"] == "UTC"
    assert (second["name"], second["is_error"]) == ("nope", True)
    assert report["usage"]["input_tokens"] == 20
    assert [codec.from_json(message).role for message in report["messages"]] == [
        "user",
        "assistant",
        "toolResult",
        "toolResult",
        "assistant",
    ]
    assert "→ get_time" in asked.err


def test_json_of_a_failed_run_has_the_error():
    """With `--json` a failed run is one object, too, with what went wrong in it."""
    asked = Asked(ScriptedModel([failure("no luck")]), "Hello", "--json")
    report = json.loads(asked.out)

    assert asked.code == 1
    assert (report["answer"], report["stop_reason"], report["error"]) == ("", "error", "no luck")
    assert (report["tool_calls"], report["usage"], report["model"]) == ([], None, None)


def test_a_call_without_a_result_is_reported_without_one():
    """A call that the history holds no result for, as in a message that was cut, has an empty result."""
    message = calls(call("get_time", {}, "c1"))
    report = run_report(AgentEndEvent((UserMessage("x"), message), message))

    assert report["tool_calls"] == [
        {
            "id": "c1",
            "name": "get_time",
            "arguments": {},
            "result": "",
            "details": {},
            "is_error": False,
        }
    ]


def leaving(error, when=None):
    """A kind of terminal at which `error` happens when the answer is written, once `when` is set."""

    class Leaving(Terminal):
        def say(self, text):
            if text:
                assert when is None or when.wait(10)
                raise error

    return Leaving


@pytest.mark.parametrize("error", [KeyboardInterrupt, OutputClosed])
def test_leaving_in_the_middle_aborts_the_run(error):
    """Ctrl-C, or a reader that goes away, aborts the run: the request that is going on sees its signal."""
    asking, signals = threading.Event(), []

    def second(_context, signal):
        asking.set()
        signals.append(signal.wait(10))
        return failure("aborted", "aborted")

    model = ScriptedModel([calls(call("get_time", {"zone": "UTC"}), text="Let me look."), second])
    with pytest.raises(error):
        Asked(model, "Time?", terminal=leaving(error, asking))

    assert signals == [True]


def test_leaving_after_the_run_is_over_ends_the_agent():
    """Leaving while the last of the answer is written finds nothing to abort and still ends the agent."""
    with pytest.raises(KeyboardInterrupt):
        Asked(ScriptedModel(["x"], stream=False), "Hello", terminal=leaving(KeyboardInterrupt))
