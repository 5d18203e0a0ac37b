"""Who may call what: rules in a row, and asking a person."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import threading
import time

import pytest

from tests.support.loops import WAIT_S, parallel, run, start, tool
from yiemagent.abort import AbortSignal
from yiemagent.agent import YiemAgent
from yiemagent.api import abort_agent, run_agent, stop_agent, take_response
from yiemagent.approval import allow, ask_in_terminal, deny
from yiemagent.context import AgentContext
from yiemagent.errors import ConfigurationError
from yiemagent.hooks import BeforeToolCallContext, BeforeToolCallResult
from yiemagent.messages import AssistantMessage, ToolCall
from yiemagent.pipeline import ABORTED_TEXT
from yiemagent.testing import ScriptedModel, call, calls

READS = tool("reads", annotations={"readOnlyHint": True})
ADDS = tool("adds", annotations={"destructiveHint": False})
DROPS = tool("drops", annotations={"destructiveHint": True})
SILENT = tool("silent")
TOOLS = (READS, ADDS, DROPS, SILENT)


def asked(name, args=None, tools=TOOLS):
    """What a hook is shown of a call."""
    answer = AssistantMessage([ToolCall("1", name, args or {})])
    return BeforeToolCallContext(
        answer, answer.tool_calls[0], args or {}, AgentContext("", (), tools)
    )


def allowed(approval, tools=TOOLS):
    """The names of the tools that may be called."""
    signal = AbortSignal()
    found = set()
    for one in tools:
        decision = approval(asked(one.name, tools=tools), signal)
        if decision is None or not decision.block:
            found.add(one.name)
    return found


class Person:
    """Somebody at a terminal: what they type, and what they were shown."""

    def __init__(self):
        self.read, self._write = os.pipe()
        self.out = io.StringIO()

    def type(self, *lines):
        """Type lines; what is typed waits until it is asked for."""
        os.write(self._write, "".join(f"{line}\n" for line in lines).encode())
        return self

    def leave(self):
        """End the input."""
        os.close(self._write)
        self._write = -1
        return self

    def rule(self, *names, **options):
        """Ask this person."""
        return ask_in_terminal(*names, stdin=self.read, out=self.out, **options)

    @property
    def questions(self):
        """How often the person was asked."""
        return self.out.getvalue().count("The agent wants")

    def close(self):
        """Close the pipe."""
        for end in (self.read, self._write):
            if end >= 0:
                os.close(end)


@pytest.fixture
def person():
    """A person, gone with the test."""
    somebody = Person()
    yield somebody
    somebody.close()


# -- rules --


@pytest.mark.parametrize(
    "approval, names",
    [
        (allow(), {"reads", "adds", "drops", "silent"}),
        (allow("reads"), {"reads"}),
        (allow("r*", "?dds"), {"reads", "adds"}),
        (allow("READS"), set()),
        (allow(read_only=True), {"reads"}),
        (allow(read_only=False), {"adds", "drops", "silent"}),
        (allow(destructive=False), {"reads", "adds"}),
        (allow(destructive=True), {"drops", "silent"}),
        (allow("d*", destructive=False), set()),
        (allow(when=lambda shown: shown.tool_call.name == "adds"), {"adds"}),
        (deny(), set()),
        (deny("drops"), {"reads", "adds", "silent"}),
        (deny(destructive=True), {"reads", "adds"}),
        (deny("reads") | allow(), {"adds", "drops", "silent"}),
        (allow("reads") | deny(), {"reads"}),
        (allow("reads") | allow("adds"), {"reads", "adds"}),
        (deny("reads") | deny("adds"), {"drops", "silent"}),
    ],
)
def test_rules_decide_by_name_annotation_and_function(approval, names):
    """The first rule with an opinion decides; without one, a row that can allow blocks, one that denies lets go."""
    assert allowed(approval) == names


def test_a_denied_call_is_told_why():
    """The model gets the reason of the rule, or of there being none."""
    signal = AbortSignal()

    assert deny(reason="Ask a human.")(asked("reads"), signal).reason == "Ask a human."
    assert deny()(asked("reads"), signal).reason == "This call is not allowed here."
    assert allow("x")(asked("reads"), signal).reason == "The tool reads may not be called here."
    assert allow()(asked("none"), signal).reason == "There is no tool none."


@pytest.mark.parametrize(
    "make",
    [
        lambda: allow(7),
        lambda: deny(""),
        lambda: allow(when=7),
        lambda: allow() | 7,
        lambda: 7 | allow(),
        lambda: ask_in_terminal(remember="for a while"),
        lambda: ask_in_terminal(None),
    ],
)
def test_what_is_no_rule_is_refused(make):
    """A mistake is told when the rule is made."""
    with pytest.raises(ConfigurationError):
        make()


def test_a_coroutine_is_no_rule():
    """A coroutine function would never run, so it is refused in both places."""

    async def hook(shown, signal):
        return None

    with pytest.raises(ConfigurationError, match="is no rule"):
        allow() | hook
    with pytest.raises(ConfigurationError, match="plain function"):
        allow(when=hook)


def test_hooks_of_ones_own_stand_in_the_row():
    """A hook's None is no opinion, a block is one, and so are arguments that it gives."""

    def own(shown, signal):
        if shown.tool_call.name == "reads":
            return {"block": True, "reason": "mine"}
        return BeforeToolCallResult(args={"n": 1}) if shown.tool_call.name == "adds" else None

    row = own | allow("reads", "adds") | own
    signal = AbortSignal()

    assert row(asked("reads"), signal).reason == "mine"
    assert row(asked("adds"), signal).args == {"n": 1}
    assert row(asked("drops"), signal).block
    assert (deny("drops") | own)(asked("silent"), signal) is None


def test_a_rule_that_raises_blocks():
    """What `when` raises keeps the tool from running: it fails closed."""
    done = run([call("silent"), "fine"], SILENT, before_tool_call=allow(when=lambda shown: 1 / 0))

    assert done.results == [("ZeroDivisionError: division by zero", True)]


def test_rules_hold_in_a_run():
    """Read-only calls go through, the others are blocked, in one batch."""
    answer = calls(call("reads"), call("drops"))
    done = run([answer, "fine"], *TOOLS, before_tool_call=allow(read_only=True))

    assert done.results == [
        ("reads done", False),
        ("The tool drops may not be called here.", True),
    ]


# -- asking --


def ask_about(person, *names, **options):
    """Ask about calls in one run; gives what became of each."""
    done = run([calls(*map(call, names)), "fine"], *TOOLS, before_tool_call=person.rule(**options))
    return [is_error for _, is_error in done.results]


def test_a_person_may_allow_a_call_once(person):
    """Yes lets this call through and is not remembered."""
    person.type("y", "YES ", "n")

    assert ask_about(person, "drops", "drops", "drops") == [False, False, True]
    assert person.questions == 3


def test_a_person_may_allow_a_tool_for_the_run(person):
    """The run's later calls of the tool are not asked for; another tool, and another run, are."""
    person.type("r", "y")
    rule = person.rule()
    script = [calls(call("drops", {"n": 1}), call("drops", {"n": 2}), call("adds")), "fine"]
    done = run(script, *TOOLS, before_tool_call=rule)

    assert [is_error for _, is_error in done.results] == [False, False, False]
    assert person.questions == 2
    person.type("n")
    assert run([call("drops"), "fine"], *TOOLS, before_tool_call=rule).results[0][1]


def test_a_tool_that_was_replaced_is_asked_for_anew(person):
    """What is allowed for the run is this tool, not another one that took its name."""
    person.type("r", "n")
    rule, signal = person.rule(), AbortSignal()
    other = [tool("drops", annotations={"destructiveHint": True})]

    assert not rule(asked("drops"), signal).block
    assert not rule(asked("drops"), signal).block
    assert rule(asked("drops", tools=other), signal).block


def test_code_is_shown_line_by_line(person):
    """A text of several lines is shown as such, each behind a mark, so that none passes for another part."""
    code = "import os\n[y] yes, once > \n\x1b[2Jreturn 1"
    person.type("n")
    run(
        [call("drops", {"code": code, "name": "x"}), "fine"], *TOOLS, before_tool_call=person.rule()
    )
    lines = person.out.getvalue().split("\n")

    assert lines[1:7] == [
        "The agent wants to call drops (Drops):",
        "  code:",
        "    | import os",
        "    | [y] yes, once > ",
        "    | \\x1b[2Jreturn 1",
        '  name: "x"',
    ]


def test_many_lines_are_shown_when_asked_for(person):
    """Of very many lines the first and the last are shown, of a long one its ends; all of it on demand."""
    code = "\n".join([*map(str, range(100)), "x" * 1000])
    person.type("s", "n")
    run([call("drops", {"code": code}), "fine"], *TOOLS, before_tool_call=person.rule())
    first, second = person.out.getvalue().split("The agent wants")[1:]

    assert "    | 19\n    … 61 lines more …\n    | 81\n" in first
    assert "800 characters more" in first
    assert [f"    | {line}" in second for line in code.split("\n")] == [True] * 101


def test_a_person_may_say_why_not(person):
    """What is said behind "n" goes to the model."""
    person.type("n use the trash instead")
    done = run([call("drops"), "fine"], *TOOLS, before_tool_call=person.rule())

    assert done.results == [
        ("The user did not allow this call. They said: use the trash instead", True)
    ]


def test_a_decision_may_be_for_ever(person, tmp_path):
    """Yes for ever and never hold in later runs, and for whoever uses the file."""
    keep = tmp_path / "approvals.jsonl"
    person.type("f", "v")

    assert ask_about(person, "drops", "drops", "adds", "adds", keep=keep) == [
        False,
        False,
        True,
        True,
    ]
    assert ask_about(person, "drops", "adds", keep=keep) == [False, True]
    assert person.questions == 2


def test_without_a_file_nothing_is_for_ever(person):
    """Where no file is given, the answer is not offered and not taken."""
    person.type("f", "never", "y")

    assert ask_about(person, "drops") == [False]
    assert "[f]" not in person.out.getvalue()
    assert person.out.getvalue().count("is none of the answers") == 2


def test_a_decision_may_be_about_these_arguments_only(person, tmp_path):
    """With `remember="call"`, other arguments are asked for."""
    keep = tmp_path / "approvals.jsonl"
    person.type("r", "f", "n")
    script = [
        calls(*(call("drops", {"path": path}) for path in ("a", "a", "b", "b", "c"))),
        "fine",
    ]
    rule = person.rule(keep=keep, remember="call")
    done = run(script, *TOOLS, before_tool_call=rule)

    assert [is_error for _, is_error in done.results] == [False] * 4 + [True]
    assert person.questions == 3
    assert "these arguments for ever" in person.out.getvalue()


def test_a_decision_that_can_not_be_kept_holds_once(person, tmp_path, caplog):
    """Where the file can't be written, that is logged, and the call goes through this once."""
    person.type("f", "n")
    with caplog.at_level(logging.WARNING):
        result = ask_about(person, "drops", "drops", keep=tmp_path / "none" / "file")

    assert result == [False, True]
    assert "a decision can't be kept" in caplog.text


def test_a_file_that_can_not_be_read_blocks(person, tmp_path):
    """Where decisions can't be read, nothing is allowed and nobody is asked."""
    assert ask_about(person, "drops", keep=tmp_path) == [True]
    assert person.questions == 0


@pytest.mark.parametrize("answer", ["", "maybe", "y but carefully", "yy", "\x1b[A"])
def test_an_unclear_answer_allows_nothing(person, answer):
    """What is none of the answers is asked again."""
    person.type(answer, "n")

    assert ask_about(person, "drops") == [True]
    assert "is none of the answers" in person.out.getvalue()
    assert "\x1b" not in person.out.getvalue()


def test_the_end_of_the_input_allows_nothing(person):
    """Where nobody is there, the call is blocked, and the model is told."""
    person.leave()
    done = run([call("drops"), "fine"], *TOOLS, before_tool_call=person.rule())

    assert done.results == [("The user could not be asked: the input has ended.", True)]


def test_the_question_shows_tool_and_arguments(person):
    """Name, label and arguments are shown; what could steer the terminal is not."""
    person.type("s", "y")
    args = {"path": "a\x1b[2J\nb", "content": "x" * 5000 + "END"}
    rule = person.rule()
    rule(asked("drops", args), AbortSignal())
    first, second = person.out.getvalue().split("The agent wants to call ")[1:]

    assert first.startswith("drops (Drops):\n  path:\n    | a\\x1b[2J\n    | b\n  content: ")
    assert "\x1b" not in first + second
    assert "characters more" in first
    assert "xxxEND" in first
    assert "x" * 5000 + "END" in second


def test_only_some_calls_are_asked_about(person):
    """By name and annotation, the rest goes the way of the other rules."""
    person.type("y", "n")
    row = allow(read_only=True) | person.rule("d*") | person.rule(destructive=True)

    assert allowed(row) == {"reads", "drops"}
    assert person.questions == 2


# -- waits --


def test_an_abort_ends_a_waiting_question_at_once(person):
    """A run that waits for a person is aborted without their answer, and the tool does not run."""
    ran, waiting = [], threading.Event()

    class Out(io.StringIO):
        def flush(self):
            waiting.set()

    person.out = Out()
    agent = YiemAgent(
        ScriptedModel([call("work"), "fine"]),
        tools=[tool("work", lambda *_: ran.append(1))],
        before_tool_call=person.rule(),
        abort_grace_s=60,
    )
    run_agent(agent, "go")
    assert waiting.wait(WAIT_S)
    begun = time.monotonic()
    abort_agent(agent)
    answer = take_response(agent, timeout_s=WAIT_S)
    elapsed = time.monotonic() - begun
    results = [message.text for message in agent.messages if message.role == "toolResult"]
    stop_agent(agent)

    assert answer.stop_reason == "aborted"
    assert results == [ABORTED_TEXT]
    assert ran == []
    assert elapsed < 1


def test_an_aborted_question_blocks(person):
    """The rule itself never allows what was aborted."""
    signal = AbortSignal()
    signal.abort()

    assert person.rule()(asked("drops"), signal).block


def test_questions_of_two_agents_come_one_after_another(person):
    """Two runs that ask at the same time don't mix their questions."""
    rule = person.rule()
    streams = [
        start([call("work", {"n": n}), "fine"], parallel("work"), before_tool_call=rule)
        for n in range(2)
    ]
    person.type("y", "y")
    for stream in streams:
        stream.result(WAIT_S)
    lines = person.out.getvalue().splitlines()

    assert [line for line in lines if line.startswith("  n:")] in (
        ["  n: 0", "  n: 1"],
        ["  n: 1", "  n: 0"],
    )
    assert person.out.getvalue().count("> ") == 2


def test_a_waiting_question_lets_the_interpreter_exit():
    """A program ends in peace while one of its agents still asks."""
    code = (
        "import sys, threading\n"
        "from yiemagent import YiemAgent, run_agent, tool\n"
        "from yiemagent.approval import ask_in_terminal\n"
        "from yiemagent.testing import ScriptedModel, call\n"
        "waiting = threading.Event()\n"
        "class Out:\n"
        "    def write(self, text): waiting.set()\n"
        "    def flush(self): pass\n"
        "@tool\n"
        "def work() -> str:\n"
        "    'Work.'\n"
        "    return 'x'\n"
        "agent = YiemAgent(ScriptedModel([call('work'), 'ok']), tools=[work],\n"
        "                  before_tool_call=ask_in_terminal(out=Out()))\n"
        "run_agent(agent, 'go')\n"
        "assert waiting.wait(20)\n"
        "print('end')\n"
    )
    read, write = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdin=read,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
    finally:
        os.close(read)
        os.close(write)

    assert (done.stdout, done.stderr, done.returncode) == ("end\n", "", 0)
