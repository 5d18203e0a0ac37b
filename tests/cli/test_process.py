"""`yiemagent` as a process of its own, against a local server that speaks the OpenAI chat API."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.support.http_server import Answer, ScriptedServer, json_answer, sse, sse_answer

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

TOOL = """
import time
from yiemagent.tool import AgentTool


def execute_tool(tool_call_id, args, signal, on_partial_result):
    print("running", flush=True)  # on stderr, since the command keeps stdout for the answer
    {body}


def get_tool():
    return AgentTool("{name}", description="A drop-in tool.", execute=execute_tool)
"""


def chunk(delta, finish_reason=None):
    """One chunk of a streamed answer."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"id": "a", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}


def words(*pieces):
    """A streamed answer in words."""
    chunks = [chunk({"content": piece}) for piece in pieces]
    return sse_answer(sse(*chunks, chunk({}, "stop")))


def tool_call(name, arguments=None):
    """A streamed answer that calls a tool."""
    function = {"name": name, "arguments": json.dumps(arguments or {})}
    call = {"index": 0, "id": "c1", "type": "function", "function": function}
    return sse_answer(sse(chunk({"tool_calls": [call]}), chunk({}, "tool_calls")))


@pytest.fixture
def drop_in(tmp_path):
    """A folder with one tool file, whose function has the given body."""

    def write(name, body):
        (tmp_path / f"{name}.py").write_text(TOOL.format(name=name, body=body))
        return str(tmp_path)

    return write


@contextlib.contextmanager
def started(server, *arguments, stdin=subprocess.DEVNULL, **variables):
    """A process of the command, with further environment variables; it is ended with the block."""
    environment = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
    environment |= {
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "OPENAI_API_KEY": "sk-secret-of-the-test",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "",
        **variables,
    }
    with subprocess.Popen(
        [sys.executable, "-m", "yiemagent", *arguments],
        env=environment,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def run(server, *arguments, stdin=""):
    """Run the command to its end; gives exit code, stdout and stderr."""
    with started(server, *arguments, stdin=subprocess.PIPE) as process:
        out, err = process.communicate(stdin, timeout=50)
        return process.returncode, out, err


def interrupt(process):
    """Press Ctrl-C; gives the exit code, how long the process took to end, and the rest of both streams."""
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    return process.returncode, time.monotonic() - began, out, err


ASK = ("ask", "--model", "openai:m")


def test_an_answer_ends_with_0():
    """A question is answered on stdout with exit code 0 and an empty stderr."""
    with ScriptedServer(words("It is ", "noon.")) as server:
        assert run(server, *ASK, "What time is it?") == (0, "It is noon.\n", "")
        body = server.requests[0].json

    assert body["stream"] is True
    assert body["messages"][-1] == {"role": "user", "content": "What time is it?"}
    assert {tool["function"]["name"] for tool in body["tools"]} == {
        "get_time",
        "get_weather",
        "list_tools",
    }


def test_a_piped_question_is_answered():
    """What is piped in is the question."""
    with ScriptedServer(words("Hi.")) as server:
        assert run(server, *ASK, stdin="Hello\n")[:2] == (0, "Hi.\n")
        assert server.requests[0].json["messages"][-1]["content"] == "Hello"


def test_without_streaming_the_request_is_not_streamed():
    """With `--no-stream` the server is asked for a whole answer."""
    message = {"role": "assistant", "content": "It is noon."}
    answer = {"model": "m", "choices": [{"message": message, "finish_reason": "stop"}]}
    with ScriptedServer(json_answer(answer)) as server:
        assert run(server, *ASK, "--no-stream", "Time?") == (0, "It is noon.\n", "")
        assert not server.requests[0].json.get("stream")


def test_a_drop_in_tool_is_called(drop_in):
    """A file in the folder of `--tools` is called, shown on stderr, and its result is sent to the model."""
    folder = drop_in("shout", 'return args["word"].upper()')
    with ScriptedServer(tool_call("shout", {"word": "ho"}), words("Done.")) as server:
        code, out, err = run(server, *ASK, "--tools", folder, "Shout ho")
        sent = server.requests[1].json["messages"]

    assert (code, out) == (0, "Done.\n")
    assert err.replace("running\n", "") == '→ shout {"word": "ho"}\n← shout: HO\n'
    assert sent[-1] == {"role": "tool", "tool_call_id": "c1", "content": "HO"}


def test_json_comes_alone_on_stdout(drop_in):
    """With `--json` stdout is one JSON object."""
    folder = drop_in("shout", 'return "HO"')
    with ScriptedServer(tool_call("shout"), words("Done.")) as server:
        code, out, _ = run(server, *ASK, "--json", "--tools", folder, "Shout")
    report = json.loads(out)

    assert code == 0
    assert report["answer"] == "Done."
    assert [call["result"] for call in report["tool_calls"]] == ["HO"]


def test_a_failed_run_ends_with_1():
    """A refusal of the server is one line on stderr, without the key, and exit code 1."""
    refusal = json_answer({"error": {"message": "Incorrect API key"}}, status=401)
    with ScriptedServer(refusal) as server:
        code, out, err = run(server, *ASK, "Hello")

    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "Incorrect API key" in err
    assert "sk-secret" not in err


def test_words_are_there_before_the_answer_is_whole():
    """The first words are on stdout while the server is still holding the rest back."""
    gate = threading.Event()
    first, rest = chunk({"content": "It is"}), chunk({"content": " noon."})
    body = [sse(first, done=False), gate, sse(rest, chunk({}, "stop"))]
    with ScriptedServer(sse_answer(body)) as server, started(server, *ASK, "Time?") as process:
        early = process.stdout.read(5)
        gate.set()
        late, _ = process.communicate(timeout=20)

    assert early == "It is"
    assert late == " noon.\n"
    assert process.returncode == 0


def test_ctrl_c_ends_a_stream_at_once():
    """Ctrl-C in the middle of an answer ends the process with 130, one line, and no traceback."""
    body = [sse(chunk({"content": "It is"}), done=False), threading.Event()]
    with ScriptedServer(sse_answer(body)) as server, started(server, *ASK, "Time?") as process:
        assert process.stdout.read(5) == "It is"
        code, seconds, _, err = interrupt(process)

    assert code == 130
    assert err == "interrupted\n"
    assert seconds < 2


def test_ctrl_c_ends_a_run_whose_tool_hangs(drop_in):
    """Ctrl-C while a tool ignores everything ends the process with 130 after the tool's grace."""
    folder = drop_in("hang", "time.sleep(3600)")
    with (
        ScriptedServer(tool_call("hang")) as server,
        started(server, *ASK, "--tools", folder, "Hang") as process,
    ):
        assert "running\n" in (process.stderr.readline(), process.stderr.readline())
        code, seconds, out, err = interrupt(process)

    assert (code, out, err) == (130, "", "interrupted\n")
    assert seconds < 3


def test_ctrl_c_gives_a_tool_its_grace(drop_in, tmp_path):
    """A tool that watches its signal can finish after Ctrl-C."""
    folder = drop_in("watch", f"signal.wait(60); open({str(tmp_path / 'done')!r}, 'w').close()")
    with (
        ScriptedServer(tool_call("watch")) as server,
        started(server, *ASK, "--tools", folder, "Watch") as process,
    ):
        assert "running\n" in (process.stderr.readline(), process.stderr.readline())
        code, seconds, *_ = interrupt(process)

    assert code == 130
    assert (tmp_path / "done").exists()
    assert seconds < 2


def test_ctrl_c_ends_the_wait_for_a_question():
    """Ctrl-C while the question is read from a pipe that stays open ends the process with 130."""
    with (
        ScriptedServer(Answer()) as server,
        started(server, *ASK, "-", stdin=subprocess.PIPE) as process,
    ):
        process.stdin.write(
            "x" * 200_000
        )  # more than the pipe holds: written when it is being read
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        process.wait(20)
        err = process.stderr.read()

    assert process.returncode == 130
    assert err == "interrupted\n"


def test_a_reader_that_goes_away_ends_the_run_quietly():
    """A closed stdout, as `| head` leaves it, ends the run with 141 and without a word."""
    gate = threading.Event()
    first, rest = chunk({"content": "It is\n"}), chunk({"content": " noon."})
    body = [sse(first, done=False), gate, sse(rest, done=False), threading.Event()]
    with ScriptedServer(sse_answer(body)) as server, started(server, *ASK, "Time?") as process:
        assert process.stdout.readline() == "It is\n"
        process.stdout.close()
        gate.set()
        process.wait(20)
        err = process.stderr.read()

    assert process.returncode == 141
    assert err == ""


def test_a_model_that_was_not_pulled_is_one_line(tmp_path):
    """With the default model and none pulled, or without what it needs, one line says what to run."""
    with (
        ScriptedServer(Answer()) as server,
        started(server, "ask", "Hello", YIEMAGENT_CACHE=str(tmp_path)) as process,
    ):
        out, err = process.communicate(timeout=20)

    assert process.returncode == 2
    assert out == ""
    assert err.count("\n") == 1
    assert "yiemagent local pull" in err or "pip install 'yiemagent[local]'" in err


def test_the_models_are_listed_without_the_extra(tmp_path):
    """`yiemagent local list` needs neither network nor model."""
    with (
        ScriptedServer(Answer()) as server,
        started(server, "local", "list", YIEMAGENT_CACHE=str(tmp_path)) as process,
    ):
        out, err = process.communicate(timeout=20)
    first = out.splitlines()[0]

    assert (process.returncode, err) == (0, "")
    assert "(default)" in first
    assert first.endswith("not pulled")
