"""An agent that makes the tool it lacks, in two processes with a pause for approval between, and writes it anew."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tool_writing import SHOUT, writing_folder
from yiemagent import ToolStore, YiemAgent, ask
from yiemagent.approval import allow, ask_in_terminal
from yiemagent.testing import ScriptedModel, call
from yiemagent.tool_versions import history

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = """
import json, sys
from yiemagent import ToolStore, YiemAgent, ask, resume_agent, take_response
from yiemagent.approval import allow, ask_later, decided
from yiemagent.sessions import Session, take_up_paused, waiting_for_approval
from yiemagent.testing import ScriptedModel, call

part = sys.argv[1]
store = ToolStore()
store.watch("tools")
tool = {
    "name": "shout",
    "label": "Shout",
    "description": "Say a text loudly.",
    "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "execute_code": "return args['text'].upper()",
    "example_arguments": {"text": "trial"},
}
mistaken = {**tool, "execute_code": "return args['text'.upper()"}
rules = allow("list_tools", "shout")
if part == "first":
    script = [call("list_tools"), call("write_tool", mistaken)]
    rules = rules | ask_later("write_tool")
elif part == "approved":
    script = [call("write_tool", tool), call("shout", {"text": "hello"}), "It says HELLO."]
    rules = rules | allow("write_tool")  # whoever approved of it wants it to work
else:
    script = ["I may not."]
with Session.open("talk.jsonl", create=True) as session:
    if part == "first":
        with YiemAgent(ScriptedModel(script), tool_store=store, session=session, before_tool_call=rules) as agent:
            answer = ask(agent, "Shout hello.", timeout_s=50)
    else:
        decisions = {waiting.id: part == "approved" for waiting in take_up_paused(session)}
        rules = decided(decisions) | rules
        with YiemAgent(ScriptedModel(script), tool_store=store, session=session, before_tool_call=rules) as agent:
            resume_agent(agent)
            answer = take_response(agent, 50)
    results = [m.text for m in agent.messages if m.role == "toolResult"]
    waiting = [w.name for w in waiting_for_approval(session)]
print(json.dumps({"answer": answer.text, "results": results, "waiting": waiting, "tools": list(store.snapshot())}))
"""


@pytest.fixture
def run(tmp_path):
    """Run a part of the program in a process of its own, and give what it says of itself."""
    writing_folder(tmp_path / "tools")

    def run(part):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", PROGRAM, part],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.mark.time_limit(120)
def test_the_tool_is_made_after_the_pause(run, tmp_path):
    """The first process ends with a call waiting; the second, told yes, mends a mistake, calls the tool and answers."""
    first = run("first")
    files = sorted(path.name for path in (tmp_path / "tools").iterdir())
    second = run("approved")

    assert first["answer"] == "Waiting for approval: write_tool."
    assert first["waiting"] == ["write_tool"]
    assert files == ["write_tool.py"]
    assert second["answer"] == "It says HELLO."
    listed, failed, written, said = second["results"]
    assert "- write_tool: Write Tool" in listed
    assert "execute_code, line 1, column 12: SyntaxError: '[' was never closed" in failed
    assert written.startswith("Wrote the tool shout.")
    assert said == "HELLO"
    assert second["waiting"] == []
    assert "shout" in second["tools"]
    assert history(tmp_path / "tools", "shout")[0].author == "model"


@pytest.mark.time_limit(120)
def test_no_tool_is_made_where_the_answer_is_no(run, tmp_path):
    """Told no, the second process writes nothing, and the model is told why."""
    run("first")
    second = run("refused")

    assert second["answer"] == "I may not."
    assert second["waiting"] == []
    assert sorted(path.name for path in (tmp_path / "tools").iterdir()) == ["write_tool.py"]


def test_a_tool_that_was_written_anew_is_asked_about_again(tmp_path):
    """What was allowed for ever is the tool as it was: with code that a model wrote anew, the person is asked again."""
    writing_folder(tmp_path / "tools")
    shout = call("shout", {"text": "a"})
    changed = {**SHOUT, "execute_code": "return 'evil'", "replace": True}
    read, write = os.pipe()
    os.write(write, b"f\nn\n")
    out = io.StringIO()
    keep = tmp_path / "approvals.jsonl"
    rules = ask_in_terminal("shout", keep=keep, stdin=read, out=out) | allow()

    def run(*script):
        store = ToolStore()
        store.watch(tmp_path / "tools")
        agent = YiemAgent(
            ScriptedModel([*script, "Done."]), tool_store=store, before_tool_call=rules
        )
        ask(agent, "Go.", timeout_s=50)
        return [message.text for message in agent.messages if message.role == "toolResult"]

    first = run(call("write_tool", SHOUT), shout)
    again = run(shout)
    questions = out.getvalue().count("The agent wants to call shout")
    anew = run(call("write_tool", changed), shout)
    os.close(read)
    os.close(write)

    assert first[1] == again[0] == "A"
    assert questions == 1
    assert out.getvalue().count("The agent wants to call shout") == 2
    assert out.getvalue().count("It was allowed for ever, and has changed since") == 1
    assert anew[1] == "The user did not allow this call."
