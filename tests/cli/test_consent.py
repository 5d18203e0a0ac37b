"""Which built-in tools a run at the command has, and which of their calls a person is asked about."""

from __future__ import annotations

import argparse
import io
import json
import os
import pathlib
import pty
import shutil
import subprocess
import sys

import pytest

from tests.support.http_server import ScriptedServer, json_answer
from tests.support.tool_writing import SHOUT, writing_folder
from yiemagent import ToolStore, YiemAgent, ask, builtin_tools_dir, load_tools
from yiemagent.approval import allow, ask_later
from yiemagent.cli.ask import add_ask, ask_command
from yiemagent.cli.main import main
from yiemagent.cli.sessions import SessionParts, add_sessions, sessions_command
from yiemagent.cli.terminal import Terminal, UsageProblem
from yiemagent.sessions import Session, history_of, take_up_paused, waiting_for_approval
from yiemagent.testing import ScriptedModel, call, calls

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ASKED = "The agent wants to call {}"
NOBODY = "This call needs a person's yes, and there is no terminal to ask at"
# The command with stdin as the terminal of its session, so that Ctrl-C is a signal.
AT_A_TERMINAL = (
    "import fcntl, sys, termios\n"
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    "from yiemagent.cli.main import main\n"
    "sys.exit(main())\n"
)


class Watched(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self):
        return True


class Keyboard(Watched):
    """A terminal at which a person has typed lines."""

    def __init__(self, typed):
        super().__init__()
        self._read, write = os.pipe()
        os.write(write, typed.encode())
        os.close(write)

    def fileno(self):
        return self._read

    def close(self):
        os.close(self._read)
        super().close()


class Asked:
    """One question at the command, and what came of it."""

    def __init__(self, script, *words, typed=None, stderr=None):
        parser = argparse.ArgumentParser()
        add_ask(parser.add_subparsers())
        options = parser.parse_args(["ask", "Go.", *map(str, words)])
        out, err = io.StringIO(), stderr or (io.StringIO() if typed is None else Watched())
        self.model = ScriptedModel([script, "Done."])
        with io.StringIO() if typed is None else Keyboard(typed) as stdin:
            self.code = ask_command(options, Terminal(out, err), stdin, self.model)
        self.out, self.err = out.getvalue(), err.getvalue()

    @property
    def offered(self):
        """The names of the tools in the first request."""
        return set(self.model.requests[0].tools)

    @property
    def results(self):
        """What the calls gave."""
        return [m.text for m in self.model.requests[1].messages if m.role == "toolResult"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A working folder with a file in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("YIEMAGENT_ROOT", raising=False)
    (tmp_path / "a.txt").write_text("hello\n")
    return tmp_path


def write(path="b.txt"):
    """A call that writes a file."""
    return call("write_file", {"path": path, "text": "new"})


# -- which tools are there --------------------------------------------------------------------------------------------


def test_groups_are_there_when_they_are_named():
    """Each group that is named comes beside the tools that are always there, or alone; `write_tool` never does."""
    plain = {"get_time", "get_weather", "list_tools"}
    files = {"read_file", "write_file", "edit_file", "search_files"}

    assert Asked("Hi.").offered == plain
    assert Asked("Hi.", "--with", "files").offered == plain | files
    both = Asked("Hi.", "--with", "shell", "--with", "web", "--with", "web", "--no-builtin-tools")
    assert both.offered == {"run_command", "fetch_url", "list_tools"}


def test_a_group_that_is_none_is_a_usage_error(capsys):
    """The error names the groups that there are."""
    with pytest.raises(SystemExit) as ending:
        Asked("Hi.", "--with", "everything")

    assert ending.value.code == 2
    assert "'files', 'shell', 'web'" in capsys.readouterr().err


def test_files_and_commands_stay_where_they_are_told(here, monkeypatch):
    """It is the folder that --root names, else that of the environment, else this one; the environment stays."""
    for name in ("named", "other"):
        (here / name).mkdir()
        (here / name / "a.txt").write_text(f"{name}\n")
    script = calls(
        call("read_file", {"path": "a.txt"}), call("run_command", {"command": "cat a.txt"})
    )
    words = ("--with", "files", "--with", "shell", "--yes")

    assert Asked(script, *words).results == ["hello", "hello"]
    monkeypatch.setenv("YIEMAGENT_ROOT", str(here / "other"))
    assert Asked(script, *words).results == ["other", "other"]
    assert Asked(script, *words, "--root", "named").results == ["named", "named"]
    assert os.environ["YIEMAGENT_ROOT"] == str(here / "other")
    monkeypatch.delenv("YIEMAGENT_ROOT")
    Asked(script, *words, "--root", "named")
    assert "YIEMAGENT_ROOT" not in os.environ


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--with", "files", "--root", "nowhere"), "--root names no folder: nowhere"),
        (("--with", "files", "--root", "a.txt"), "--root names no folder: a.txt"),
        (("--with", "web", "--root", "."), "--root is for --with files and --with shell"),
        (("--yes", "--ask", "get_time"), "give one of them"),
        (("--yes", "--approvals", "f"), "has no decisions to keep"),
    ],
)
def test_options_that_can_not_be_followed_are_usage_problems(words, said):
    """Nothing is ignored: a folder that is none, or options that say opposite things, end the command."""
    with pytest.raises(UsageProblem, match=said):
        Asked("Hi.", *words)


# -- who is asked -----------------------------------------------------------------------------------------------------


def test_what_only_reads_goes_through():
    """A tool that says that it changes nothing is called without a word."""
    asked = Asked(call("read_file", {"path": "a.txt"}), "--with", "files", typed="")

    assert asked.results == ["hello"]
    assert "wants to call" not in asked.err


@pytest.mark.parametrize(
    ("name", "arguments", "group"),
    [
        ("write_file", {"path": "b.txt", "text": "new"}, "files"),
        ("edit_file", {"path": "a.txt", "old_text": "hello", "new_text": "bye"}, "files"),
        ("run_command", {"command": "echo > b.txt"}, "shell"),
    ],
)
def test_what_changes_something_is_asked_about(here, name, arguments, group):
    """The person sees the call and its arguments; with a yes it is done, with a no the model has the reason."""
    before = sorted(path.name for path in here.iterdir()), (here / "a.txt").read_text()
    no = Asked(call(name, arguments), "--with", group, typed="n not today\n")
    same = sorted(path.name for path in here.iterdir()), (here / "a.txt").read_text()
    yes = Asked(call(name, arguments), "--with", group, typed="y\n")
    after = sorted(path.name for path in here.iterdir()), (here / "a.txt").read_text()

    assert ASKED.format(name) in no.err
    assert all(str(value) in no.err for value in arguments.values())
    assert no.results == ["The user did not allow this call. They said: not today"]
    assert same == before
    assert ASKED.format(name) in yes.err
    assert after != before


def test_a_question_comes_after_what_was_said_before():
    """What the model said, and which tool it calls, is shown before the question, and the result after it."""
    asked = Asked(calls(write(), text="I write it."), "--with", "files", typed="y\n")
    order = [
        asked.err.index(piece)
        for piece in ("→ write_file", ASKED.format("write_file"), "← write_file")
    ]

    assert order == sorted(order)
    assert asked.out == "I write it.\nDone.\n"


@pytest.mark.parametrize("seen", [True, False])
def test_without_a_person_nothing_is_changed(here, seen):
    """Where stdin is no terminal, or nobody would see the question, calls are denied, and both learn how to allow."""
    typed, stderr = (None, Watched()) if seen else ("y\n", io.StringIO())
    asked = Asked(write(), "--with", "files", typed=typed, stderr=stderr)

    assert NOBODY in asked.results[0]
    assert "--allow write_file" in asked.results[0]
    assert f"✗ write_file: {NOBODY}" in asked.err
    assert not (here / "b.txt").exists()


@pytest.mark.parametrize(
    "words", [("--yes",), ("-y",), ("--allow", "write_file"), ("--allow", "write_*")]
)
def test_what_is_allowed_is_not_asked_about(here, words):
    """--yes lets every call through, --allow those of the tools that it names, without a terminal too."""
    asked = Asked(write(), "--with", "files", *words)

    assert asked.results == ["Wrote b.txt: 1 lines, 3 bytes"]
    assert (here / "b.txt").read_text() == "new"


def test_one_that_is_allowed_allows_no_other():
    """What --allow does not name is asked about as before."""
    script = calls(write(), call("run_command", {"command": "ls"}))
    asked = Asked(script, "--with", "files", "--with", "shell", "--allow", "write_file")

    assert asked.results[0].startswith("Wrote b.txt")
    assert asked.results[1].startswith(NOBODY)


def test_a_decision_for_ever_is_kept_where_it_is_told(here):
    """With --approvals it is offered, counts in later runs, without a terminal too, and is about that tool alone."""
    (here / "root").mkdir()
    words = ("--with", "files", "--with", "shell", "--root", "root", "--approvals", "kept.jsonl")
    first = Asked(write(), *words, typed="f\n")
    script = calls(write("c.txt"), call("run_command", {"command": "ls"}))
    second = Asked(script, *words)
    without = Asked(write(), "--with", "files", typed="f\nn\n")
    with pytest.raises(UsageProblem, match="where tools may write; keep it elsewhere"):
        Asked(write(), "--with", "files", "--approvals", "kept.jsonl")

    assert "[f] any arguments for ever" in first.err
    assert json.loads((here / "kept.jsonl").read_text())["tool"] == "write_file"
    assert second.results[0].startswith("Wrote c.txt")
    assert second.results[1].startswith(NOBODY)
    assert "'f' is none of the answers" in without.err


def test_more_may_be_asked_about():
    """--ask names further tools, whatever they say of themselves; --allow goes before it."""
    script = calls(call("get_time", {"zone": "UTC"}), call("list_tools"))
    asked = Asked(script, "--ask", "*", "--allow", "list_*", typed="n\n")

    assert asked.results[0] == "The user did not allow this call."
    assert asked.results[1].startswith("Available tools:")


def test_a_name_that_fits_no_tool_is_a_warning():
    """A name that was mistyped is told, and the run goes on."""
    asked = Asked("Hi.", "--with", "files", "--allow", "write_fil", "--ask", "get_*")

    assert asked.err.startswith("warning: there is no tool 'write_fil' now")
    assert asked.err.count("warning") == 1


def test_a_tool_that_writes_tools_is_asked_about(here):
    """`write_tool` in a folder of one's own writes nothing unasked; what it wrote with a yes can be called."""
    mine = writing_folder(here / "mine")
    no = Asked(call("write_tool", SHOUT), "--tools", mine)
    assert no.results[0].startswith(NOBODY)
    assert sorted(path.name for path in mine.iterdir()) == ["write_tool.py"]
    yes = Asked(call("write_tool", SHOUT), "--tools", mine, typed="y\n")

    assert "return args['text'].upper()" in yes.err
    assert yes.results[0].startswith("Wrote the tool shout.")


def test_a_session_that_goes_on_asks_too(here, capsys):
    """`sessions resume` has the same options, and denies without a terminal."""
    answers = [
        {"tool_calls": [_call("write_file", {"path": "b.txt", "text": "new"})]},
        {"content": "I may not."},
    ]
    with _model(*answers) as server:
        words = ["--model", "openai:m", "--base-url", f"{server.url}/v1", "--no-stream"]
        words += ["--api-key-env", "HOME", "--with", "files"]
        assert main(["ask", "Go.", "--session", "talk.jsonl", *words]) == 0
    with _model(*answers) as server:
        words[3] = f"{server.url}/v1"
        assert main(["sessions", "resume", "talk.jsonl", "Again.", *words]) == 0

    assert capsys.readouterr().err.count(NOBODY) == 2
    assert not (here / "b.txt").exists()


@pytest.fixture
def paused(here):
    """A session whose run of a program waits for approval of two calls, one of a tool that only reads."""
    rules = allow("list_tools") | ask_later()
    store = ToolStore()
    load_tools(store, builtin_tools_dir("files"))
    script = [calls(call("read_file", {"path": "a.txt"}), write())]
    with (
        Session.create(here / "talk.jsonl") as session,
        YiemAgent(
            ScriptedModel(script), tool_store=store, session=session, before_tool_call=rules
        ) as agent,
    ):
        ask(agent, "Go.", timeout_s=20)
    return here / "talk.jsonl"


def resumed(path, *words, typed=None):
    """Run `sessions resume`; gives the exit code, what went to stderr, and the results that the model was given."""
    parser = argparse.ArgumentParser()
    add_sessions(parser.add_subparsers())
    options = parser.parse_args(["sessions", "resume", str(path), "--with", "files", *words])
    err = Watched()
    model = ScriptedModel(default="Done.")
    parts = SessionParts(
        Session.open, history_of, (), lambda _: model, waiting_for_approval, take_up_paused
    )
    before = sys.stdin
    with io.StringIO() if typed is None else Keyboard(typed) as stdin:
        sys.stdin = stdin
        try:
            code = sessions_command(options, Terminal(io.StringIO(), err), parts)
        finally:
            sys.stdin = before
    results = [m.text for m in model.requests[0].messages if m.role == "toolResult"]
    return code, err.getvalue(), results


def test_what_waits_for_approval_is_asked_about(paused, here):
    """Whoever resumes the session at a terminal is asked about each call that waits, whatever it is."""
    code, err, results = resumed(paused, typed="y\nn\n")

    assert code == 0
    assert err.count("The agent wants to call") == 2
    assert results == ["hello", "The user did not allow this call."]
    assert not (here / "b.txt").exists()


def test_without_a_person_what_waits_waits_on(paused, here):
    """Without a terminal nothing is decided; what is allowed by name is run, and so is everything with --yes."""
    with pytest.raises(
        UsageProblem, match="there is no terminal to ask at; give --allow TOOL or --yes"
    ):
        resumed(paused)
    with Session.open(paused) as session:
        assert [one.name for one in waiting_for_approval(session)] == ["read_file", "write_file"]
    shutil.copy(paused, here / "copy.jsonl")
    (here / "kept").write_text('{"tool": "read_file", "decision": "allow"}\n')
    (here / "root").mkdir()
    (here / "root" / "a.txt").write_text("hello\n")
    shutil.copy(paused, here / "other.jsonl")
    for path, words in (
        ("copy.jsonl", ["--allow", "read_file"]),
        ("other.jsonl", ["--approvals", "kept", "--root", "root"]),
    ):
        results = resumed(here / path, *words)[2]
        assert results[0] == "hello"
        assert results[1].startswith(NOBODY)

    assert resumed(paused, "--yes")[2][1].startswith("Wrote b.txt")


def test_a_question_goes_on_without_what_waits(paused, here, capsys):
    """Asked something else, by either command, the session goes on, what waited is not run, and that is told."""
    shutil.copy(paused, here / "copy.jsonl")
    with _model({"content": "All right."}) as server:
        words = ["--model", "openai:m", "--base-url", f"{server.url}/v1", "--api-key-env", "HOME"]
        assert main(["ask", "Never mind.", "--session", "copy.jsonl", "--no-stream", *words]) == 0
    assert "what waited for approval is not run: read_file, write_file" in capsys.readouterr().err
    code, err, results = resumed(paused, "Never mind.", typed="")

    assert code == 0
    assert "note: what waited for approval is not run: read_file, write_file\n" in err
    assert all("was not run" in result for result in results)


def _call(name, arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": "c1", "type": "function", "function": function}


def _model(*messages):
    """A server whose model gives these messages."""
    return ScriptedServer(
        *(
            json_answer(
                {
                    "id": "a",
                    "object": "chat.completion",
                    "model": "m",
                    "choices": [
                        {
                            "index": 0,
                            "message": {"role": "assistant", **message},
                            "finish_reason": "tool_calls" if "tool_calls" in message else "stop",
                        }
                    ],
                }
            )
            for message in messages
        )
    )


def _answered(process, terminal, typed):
    """Type an answer and give what the program prints; Ctrl-C again where it has no effect, as a person would.

    An interpreter that is about to wait when the signal comes does not see it before it wakes: no person is so quick.
    """
    for _ in range(6):
        os.write(terminal, typed)
        try:
            return process.communicate(timeout=5 if typed == b"\x03" else 30)[0]
        except subprocess.TimeoutExpired:
            if typed != b"\x03":
                raise
    raise AssertionError("Ctrl-C has no effect")


@pytest.mark.parametrize(("typed", "written"), [(b"y\n", True), (b"n\n", False), (b"\x03", False)])
def test_a_person_at_a_real_terminal_decides(here, typed, written):
    """At a terminal the question is seen, and a yes, a no and Ctrl-C are answers to it."""
    ours, theirs = pty.openpty()
    arguments = {"command": "echo done > b.txt"}
    with _model(
        {"tool_calls": [_call("run_command", arguments)]}, {"content": "So it is."}
    ) as server:
        process = subprocess.Popen(
            [
                *(sys.executable, "-c", AT_A_TERMINAL, "ask", "Go.", "--with", "shell"),
                *("--model", "openai:m", "--no-stream"),
            ],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT),
                "OPENAI_BASE_URL": f"{server.url}/v1",
                "OPENAI_API_KEY": "sk-nobody",
            },
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        seen = b""
        try:
            while b"[s] show all > " not in seen:
                seen += os.read(ours, 1000)
            out = _answered(process, ours, typed)
        finally:
            process.kill()
            os.close(ours)

    assert b"The agent wants to call run_command (Run command):\r\n  command: " in seen
    assert (process.returncode, out) == ((130, b"") if typed == b"\x03" else (0, b"So it is.\n"))
    assert (here / "b.txt").exists() is written
