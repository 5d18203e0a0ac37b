"""A session keeps calls that wait for approval, and an agent takes them up, in this process or another."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from tests.support.loops import WAIT_S, tool
from yiemagent.agent import YiemAgent
from yiemagent.api import ask, resume_agent, take_response
from yiemagent.approval import allow, ask_later, decided
from yiemagent.errors import SessionError
from yiemagent.sessions import (
    Session,
    ToolCallStartedBody,
    take_up_paused,
    waiting_for_approval,
)
from yiemagent.sessions.recovery import INTERRUPTED_TEXT
from yiemagent.testing import ScriptedModel, call, calls

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def session():
    """A session in memory, closed with the test."""
    with Session.in_memory() as opened:
        yield opened


class Work:
    """Two tools that note what they did."""

    def __init__(self):
        self.done = []
        self.tools = [
            tool(name, lambda _id, args, *_: self.done.append(args["n"]) or f"did {args['n']}")
            for name in ("safe", "risky")
        ]


SCRIPT = calls(call("safe", {"n": 1}), call("risky", {"n": 2}), call("risky", {"n": 3}))
RULES = allow("safe") | ask_later()


def pause(session, work):
    """Do a run that waits for approval; gives its answer."""
    with YiemAgent(
        ScriptedModel([SCRIPT]), tools=work.tools, session=session, before_tool_call=RULES
    ) as agent:
        return ask(agent, "go", timeout_s=WAIT_S)


def go_on(session, work, rules, *answers):
    """Take up what waits; gives the answer and the conversation."""
    model = ScriptedModel(answers)
    with YiemAgent(model, tools=work.tools, session=session, before_tool_call=rules) as agent:
        assert resume_agent(agent)
        return take_response(agent, timeout_s=WAIT_S), agent.messages


def test_calls_wait_and_go_on(session):
    """Nothing runs until it is decided; then every call of the answer has the result that the decision gives it."""
    work = Work()
    answer = pause(session, work)
    assert answer.text == "Waiting for approval: risky."
    assert work.done == []
    first, second = waiting_for_approval(session)
    assert [dict(first.arguments), dict(second.arguments)] == [{"n": 2}, {"n": 3}]

    assert take_up_paused(session) == (first, second)
    rules = decided({first.id: True, second.id: "Once is enough."}) | RULES
    answer, messages = go_on(session, work, rules, "All done.")

    assert work.done == [1, 2]
    assert answer.text == "All done."
    assert [m.text for m in messages] == [
        "go",
        "",
        "did 1",
        "did 2",
        "Once is enough.",
        "All done.",
    ]
    assert session.messages == tuple(messages)
    assert waiting_for_approval(session) == ()


def test_what_is_not_decided_waits_on(session):
    """Where the rules pause again, nothing runs, and it can be taken up again."""
    work = Work()
    pause(session, work)
    first, second = take_up_paused(session)
    answer, _ = go_on(session, work, decided({first.id: True}) | RULES)
    assert answer.text == "Waiting for approval: risky."
    assert work.done == []
    assert waiting_for_approval(session) == (second,)

    take_up_paused(session)
    go_on(session, work, decided({first.id: True, second.id: True}) | RULES, "fine")
    assert work.done == [1, 2, 3]


def test_a_conversation_that_goes_on_lets_them_lapse(session):
    """Without a decision the model is told that the calls were not run, and nothing waits any more."""
    work = Work()
    pause(session, work)
    model = ScriptedModel(["Then not."])
    with YiemAgent(model, tools=work.tools, session=session) as agent:
        assert ask(agent, "Never mind.", timeout_s=WAIT_S).text == "Then not."

    assert work.done == []
    with pytest.raises(SessionError, match="no call of this session waits"):
        take_up_paused(session)


def test_a_session_that_is_in_use_is_not_moved(session):
    """While an agent works on the session, nothing is taken up."""
    work = Work()
    pause(session, work)
    with (
        YiemAgent(ScriptedModel([]), tools=work.tools, session=session),
        pytest.raises(SessionError, match="works on the session"),
    ):
        take_up_paused(session)

    assert len(waiting_for_approval(session)) == 2


def test_what_was_taken_up_and_not_begun_waits_on(tmp_path):
    """A process that ends between taking up and running changes nothing, however often."""
    path, work = tmp_path / "talk.jsonl", Work()
    with Session.create(path) as session:
        pause(session, work)
        waiting = take_up_paused(session)
    for _ in range(2):
        with Session.open(path) as session:
            assert [one.arguments["n"] for one in waiting_for_approval(session)] == [1, 2, 3]
            assert len(take_up_paused(session)) == 3
    with Session.open(path) as session:
        rules = decided({one.id: True for one in waiting}) | RULES
        answer, _ = go_on(session, work, rules, "fine")

        assert answer.text == "fine"
        assert work.done == [1, 2, 3]
    with Session.open(path) as session:
        assert waiting_for_approval(session) == ()


def test_a_call_that_had_begun_is_not_run_again(tmp_path):
    """After a crash in the middle, what had begun is closed as interrupted, and the rest is run."""
    path, work = tmp_path / "talk.jsonl", Work()
    with Session.create(path) as session:
        pause(session, work)
        first = take_up_paused(session)[0]
        session.append(ToolCallStartedBody(first.id, first.name))
    with Session.open(path) as session:
        _, messages = go_on(session, work, allow(), "fine")

    assert work.done == [1, 3]
    assert [m.text for m in messages[2:5] if m.text.startswith("Interrupted")] == [INTERRUPTED_TEXT]


PROGRAM = """
import json, pathlib, sys
from yiemagent import YiemAgent, ask, resume_agent, take_response, tool
from yiemagent.approval import ask_later, decided
from yiemagent.sessions import Session, take_up_paused
from yiemagent.testing import ScriptedModel, call

@tool
def note(text: str) -> str:
    "Note something."
    with open("notes", "a") as file:
        file.write(text)
    return "noted"

session = Session.open("talk.jsonl", create=True)
if sys.argv[1] == "ask":
    script, rules = [call("note", {"text": "x"})], ask_later()
else:
    script, rules = ["Noted."], decided({one.id: True for one in take_up_paused(session)})
with YiemAgent(ScriptedModel(script), tools=[note], session=session, before_tool_call=rules) as agent:
    if sys.argv[1] == "ask":
        answer = ask(agent, "Note x.")
    else:
        assert resume_agent(agent)
        answer = take_response(agent)
session.close()
print(json.dumps([answer.text, pathlib.Path("notes").exists()]))
"""


def test_another_process_goes_on(tmp_path):
    """One process pauses and ends; the next one has the decisions and goes on, and the effect is there once."""
    told = []
    for step in ("ask", "go on"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, step],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        told.append(json.loads(done.stdout))

    assert told == [["Waiting for approval: note.", False], ["Noted.", True]]
    assert (tmp_path / "notes").read_text() == "x"
