"""`yiemagent sessions`, and `yiemagent ask --session`."""

from __future__ import annotations

import argparse
import io
import json
import pathlib
from datetime import UTC, datetime

import pytest

from tests.support.http_server import ScriptedServer
from tests.support.stand_in import GREETING, stand_in
from yiemagent import AgentTool, YiemAgent, ask
from yiemagent.cli.conversation import as_markdown, summary_line
from yiemagent.cli.main import main
from yiemagent.cli.sessions import SessionParts, add_sessions, sessions_command
from yiemagent.cli.terminal import Terminal
from yiemagent.messages import (
    AssistantMessage,
    BashExecutionMessage,
    ImageContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.sessions import (
    CompactionBody,
    LabelBody,
    MessageBody,
    QueuedBody,
    Session,
    ToolCallStartedBody,
    WithdrawnBody,
    history_of,
    take_up_paused,
    waiting_for_approval,
)
from yiemagent.testing import ScriptedModel, call

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
CALLS = AssistantMessage(("I look.", ToolCall("a", "work", {"n": 1})), stop_reason="tool_use")


@pytest.fixture
def kept(tmp_path):
    """A session in a file: a question, a call, its result, an answer."""
    with Session.create(tmp_path / "trip.jsonl", clock=lambda: NOON) as session:
        session.add_message(UserMessage("Where to?"))
        session.add_message(CALLS)
        session.append(ToolCallStartedBody("a", "work"))
        session.add_message(ToolResultMessage("a", "work", "a beach"))
        session.add_message(AssistantMessage("To the beach."))
        session.label(1, "start")
    return tmp_path / "trip.jsonl"


def shown(capsys, *words):
    """What the command prints, after it ended well."""
    code = main(["sessions", *map(str, words)])
    printed = capsys.readouterr()
    assert (code, printed.err) == (0, "")
    return printed.out


def resumed(model, *words):
    """Run `sessions resume` with a model; gives exit code, stdout and stderr."""
    parser = argparse.ArgumentParser()
    add_sessions(parser.add_subparsers())
    options = parser.parse_args(["sessions", "resume", *map(str, words), "--no-builtin-tools"])
    out, err = io.StringIO(), io.StringIO()
    asked = []
    parts = SessionParts(
        open=Session.open,
        history=history_of,
        suffixes=(".jsonl",),
        model=lambda options: asked.append(options.model) or model,
        waiting=waiting_for_approval,
        take_up=take_up_paused,
    )
    code = sessions_command(options, Terminal(out, err), parts)
    return code, out.getvalue(), err.getvalue(), asked


def test_the_sessions_of_a_folder_are_listed(kept, capsys):
    """A line for each: file, time, size, state, and how it began; other files are left out."""
    (kept.parent / "notes.txt").write_text("no session")
    with Session.create(kept.parent / "a.db", name="errands") as session:
        session.append(QueuedBody("input", UserMessage("milk")))

    first, second = shown(capsys, "list", kept.parent).splitlines()

    assert first.split("  ")[:1] == [str(kept)]
    assert "2026-01-31 12:00  4 messages" in first
    assert first.endswith("Where to?")
    assert "waiting" in second
    assert second.endswith("errands")


def test_a_run_that_is_not_over_is_told_of(kept, capsys):
    """It may be at work in another process or have been killed, and the command can't tell which."""
    with Session.open(kept) as session:
        session.add_message(UserMessage("And then?"))
        assert "unfinished" in shown(capsys, "list", kept.parent)
        for action in ("show", "export"):
            assert main(["sessions", action, str(kept)]) == 0
            assert "it still goes on, or was interrupted\n" in capsys.readouterr().err
    assert shown(capsys, "show", kept, "--at", 1).startswith("## User")


def test_calls_that_wait_for_approval_are_told_of(kept, capsys):
    """In the list."""
    with (
        Session.create(kept.parent / "orders.jsonl") as session,
        YiemAgent(
            ScriptedModel([call("pay")]),
            session=session,
            tools=[AgentTool("pay", description="Pay.", execute=lambda *_: "paid")],
            before_tool_call=lambda _context, _signal: {"pause": True},
        ) as agent,
    ):
        ask(agent, "Pay.")

    assert "approval" in shown(capsys, "list", kept.parent)


def test_sessions_can_be_searched(kept, capsys):
    """Only those in which somebody says the words are listed, whatever their case."""
    assert "trip.jsonl" in shown(capsys, "list", kept.parent, "--search", "BEACH")
    assert shown(capsys, "list", kept.parent, "--search", "mountain") == ""


def test_what_was_summarised_is_still_listed_found_and_shown(kept, capsys):
    """A summary hides nothing from people: all that was said is there, and the summary behind it."""
    with Session.open(kept) as session:
        session.append(CompactionBody("They go.", 5))
        session.add_message(UserMessage("When?"))
        session.add_message(AssistantMessage("In May."))

    listed = shown(capsys, "list", kept.parent, "--search", "BEACH")
    assert "6 messages" in listed
    assert listed.endswith("Where to?\n")
    assert shown(capsys, "list", kept.parent, "--search", "they go") != ""
    markdown = shown(capsys, "show", kept)
    assert markdown.index("a beach") < markdown.index("## Summary") < markdown.index("When?")
    written = json.loads(shown(capsys, "export", kept, "--format", "json"))["messages"]
    roles = ["user", "assistant", "toolResult", "assistant", "compactionSummary"]
    assert [message["role"] for message in written] == [*roles, "user", "assistant"]


def test_other_branches_are_searched(kept, capsys):
    """So is what waits for its run."""
    with Session.open(kept) as session:
        session.branch(1)
        session.append(QueuedBody("input", UserMessage("And in winter?")))
    for words in ("a beach", "winter"):
        assert "1 message  " in shown(capsys, "list", kept.parent, "--search", words)


def test_what_is_damaged_is_a_warning_in_the_list(kept, capsys):
    """A session that can't be read doesn't hide the others."""
    (kept.parent / "bad.jsonl").write_bytes(kept.read_bytes().replace(b"beach", b"bench"))

    code = main(["sessions", "list", str(kept.parent)])
    printed = capsys.readouterr()

    assert code == 0
    assert printed.out.count("\n") == 1
    assert printed.err.startswith("warning: ")
    assert "bad.jsonl, line 5: damaged" in printed.err


def test_a_conversation_is_shown_as_markdown(kept, capsys):
    """Each message has its heading; calls and results are code."""
    assert shown(capsys, "show", kept) == (
        "## User\n\nWhere to?\n\n"
        '## Assistant\n\nI look.\n\nCalls `work`:\n\n```json\n{\n  "n": 1\n}\n```\n\n'
        "## Result of work\n\n```\na beach\n```\n\n"
        "## Assistant\n\nTo the beach.\n"
    )
    assert shown(capsys, "show", kept, "--at", 1) == "## User\n\nWhere to?\n"


def test_an_empty_session_is_shown_as_empty(tmp_path, capsys):
    """A session in which nobody said anything yet is a line that says so."""
    Session.create(tmp_path / "new.jsonl").close()

    assert shown(capsys, "show", tmp_path / "new.jsonl") == "no messages\n"


def test_entries_are_shown_in_rows(kept, capsys):
    """Each entry is a line: id, parent, kind, label, what it says; the leaf has a mark."""
    rows = shown(capsys, "show", kept, "--entries").splitlines()

    assert rows[0].split() == ["1", "message", "[start]", "user:", "Where", "to?"]
    assert rows[1].endswith("assistant: I look. → work")
    assert rows[4].startswith("5*")
    assert rows[5].split()[1:] == ["label", "target=1", "label=start"]
    Session.create(kept.parent / "new.jsonl").close()
    assert shown(capsys, "show", kept.parent / "new.jsonl", "--entries") == "no entries\n"


def test_a_session_is_exported(kept, capsys):
    """As Markdown with a title, or as JSON with every message."""
    assert shown(capsys, "export", kept).startswith("# Session ")
    written = json.loads(shown(capsys, "export", kept, "--format", "json"))

    assert [message["role"] for message in written["messages"]] == [
        "user",
        "assistant",
        "toolResult",
        "assistant",
    ]
    assert written["time"] == "2026-01-31T12:00:00+00:00"


def test_a_session_is_forked(kept, capsys):
    """The new file is printed; it is beside the old one, or where that is asked for."""
    beside = pathlib.Path(shown(capsys, "fork", kept).strip())
    there = shown(capsys, "fork", kept, "--at", 1, "--to", kept.parent / "one.db").strip()

    assert beside.parent == kept.parent
    with Session.open(beside) as session:
        assert len(session.messages) == 4
    with Session.open(there) as session:
        assert [message.text for message in session.messages] == ["Where to?"]


@pytest.mark.parametrize(
    ("words", "code", "wrong"),
    [
        (["show", "nothing.jsonl"], 2, "error: no such file: nothing.jsonl\n"),
        (["list", "nowhere"], 2, "error: no such folder: nowhere\n"),
        (["show", "{kept}", "--at", "99"], 1, "there is no entry 99\n"),
        (["resume", "{kept}"], 2, "give a question\n"),
    ],
)
def test_what_can_not_be_done_is_one_line(words, code, wrong, kept, capsys):
    """A mistake on the command line ends with 2, a session that lacks something with 1."""
    assert main(["sessions", *[word.format(kept=kept) for word in words]]) == code
    assert capsys.readouterr().err.endswith(wrong)


def test_a_torn_line_is_a_warning(kept, capsys):
    """What was dropped at the end of a file is told of."""
    kept.write_bytes(kept.read_bytes()[:-9])

    assert main(["sessions", "show", str(kept)]) == 0
    assert "line 7: a torn last line" in capsys.readouterr().err


def test_an_interrupted_run_goes_on(kept):
    """The run that was interrupted is gone on with, what waited gets its run, and then the question is asked."""
    with Session.open(kept) as session:
        session.note_model("x:old")
        session.add_message(UserMessage("And then?"))
        session.append(QueuedBody("input", UserMessage("And after that?")))
    kept.write_bytes(kept.read_bytes() + b'{"torn')
    model = ScriptedModel(["Home.", "To bed.", "Sleep."])

    code, out, err, asked = resumed(model, kept, "And at last?")

    assert (code, out) == (0, "Home.\nTo bed.\nSleep.\n")
    assert "torn last line" in err
    assert asked == ["x:old"]
    with Session.open(kept, read_only=True) as session:
        assert [m.text for m in session.messages[4:]] == [
            "And then?",
            "Home.",
            "And after that?",
            "To bed.",
            "And at last?",
            "Sleep.",
        ]


def test_a_message_that_would_have_joined_is_gone_on_with(kept):
    """Without a question, and with nothing but a message that waited, there is one run."""
    with Session.open(kept) as session:
        session.append(QueuedBody("follow_up", UserMessage("And then?")))

    assert resumed(ScriptedModel(["Home."]), kept, "--model", "y:new")[:2] == (0, "Home.\n")
    with Session.open(kept) as session:
        assert session.model == "y:new"


def test_a_question_may_stand_behind_options(kept):
    """Words and options of the command come in any order."""
    model = ScriptedModel(["Home."])
    assert resumed(model, "--model", "x:y", kept, "--system", "Be brief.", "And?")[1] == "Home.\n"


def test_asking_with_a_session_goes_on_with_it(tmp_path, capsys):
    """`ask --session` begins a session, and goes on with it the next time; the model is the session's then."""
    path = tmp_path / "trip.jsonl"
    with ScriptedServer(stand_in) as server:
        words = ["--session", str(path), "--base-url", f"{server.url}/v1", "--no-stream"]
        assert main(["ask", *words, "--model", "openai:x", "Hi"]) == 0
        assert main(["ask", *words, "And?"]) == 0

    assert capsys.readouterr().out == f"{GREETING}\n{GREETING}\n"
    with Session.open(path) as session:
        assert session.model == "openai:x"
        assert len(session.messages) == 4


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--tools", "nodir"], "no such folder: nodir"),
        (["--schema", "no.json"], "no JSON Schema could be read from no.json"),
        (["--schema", "list.json"], "list.json holds no JSON Schema"),
        (["--root", "nowhere"], "--root is for"),
        (["--yes", "--ask", "work"], "give one of them"),
        (["--api-key-env", "NOT_SET"], "NOT_SET holds no key"),
        (["--mcp", "nobody"], "nobody"),
        (["--model", "openai:"], "such as 'openai:gpt-5.1'"),
        (["--model", "local:none.gguf"], "error: "),
        (["--model", "nobody:x"], "no provider 'nobody' is known"),
        (["--foo"], "unrecognized arguments: --foo"),
        ([""], "unrecognized arguments: "),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else "",
)
def test_a_wrong_command_line_begins_no_session(words, wrong, tmp_path, capsys, monkeypatch):
    """Nothing is created before everything else of the command line was found good."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.json").write_text("[]")
    monkeypatch.setenv("OPENAI_API_KEY", "a key that is not sent")

    code = main(["ask", "--session", "new.jsonl", "--model", "openai:x", "hi", *words])

    assert code in {1, 2}
    assert wrong in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["list.json"]


def test_an_empty_question_begins_no_session(tmp_path, capsys, monkeypatch):
    """Nor is one begun for a question that is none."""
    monkeypatch.setenv("OPENAI_API_KEY", "a key that is not sent")
    path = tmp_path / "new.jsonl"

    assert main(["ask", "--session", str(path), "--model", "openai:x", " "]) == 2
    assert "the question is empty" in capsys.readouterr().err
    assert not path.exists()


# -- in words ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            AssistantMessage((ThinkingContent("one\ntwo"), "done")),
            "## Assistant\n\n> one\n> two\n\ndone\n",
        ),
        (
            AssistantMessage("so", stop_reason="aborted", error_message="aborted: bye"),
            "## Assistant\n\nso\n\n*aborted: aborted: bye*\n",
        ),
        (
            AssistantMessage(ToolCall("a", "work", "{bro")),
            "## Assistant\n\nCalls `work`:\n\n```json\n{bro\n```\n",
        ),
        (
            UserMessage((TextContent("see"), ImageContent("", "image/png"))),
            "## User\n\nsee\n\n*an image, image/png*\n",
        ),
        (
            ToolResultMessage("a", "work", "```\n", is_error=True),
            "## Result of work, an error\n\n````\n```\n\n````\n",
        ),
        (
            AssistantMessage((ToolCall("a", "go", {"to": "Tromsø"}),)),
            '## Assistant\n\nCalls `go`:\n\n```json\n{\n  "to": "Tromsø"\n}\n```\n',
        ),
        (BashExecutionMessage("ls", exclude_from_context=True), "## bashExecution\n"),
        (
            BashExecutionMessage("ls"),
            "## bashExecution\n\nI ran the command `ls`.\nIt printed nothing.\n",
        ),
    ],
)
def test_each_message_is_markdown(message, text):
    """Whatever kind a message is, it has a heading and its text."""
    assert as_markdown([message]) == text


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (MessageBody(UserMessage("a\nb")), "user: a b"),
        (CompactionBody("short", 3), "summary=short first_kept=3 tokens_before=0 details={}"),
        (LabelBody(4), "target=4"),
        (WithdrawnBody((1, 2)), "queued_ids=(1, 2)"),
    ],
)
def test_each_entry_is_one_line(body, line):
    """What an entry says fits one line."""
    assert summary_line(body) == line


@pytest.mark.parametrize("action", ["list", "show", "resume", "fork", "export"])
def test_each_action_says_what_it_does(action, capsys):
    """Each action has a help text with its options, and ends with 0."""
    assert main(["sessions", action, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: yiemagent sessions {action}")
