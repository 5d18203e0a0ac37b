"""The command as a whole: help, version, and what each ending gives."""

from __future__ import annotations

import io
import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest

import yiemagent
from tests.support.http_server import ScriptedServer, json_answer
from tests.support.stand_in import stand_in
from yiemagent.cli.main import main

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize(
    "words",
    [[], ["ask"], ["tools"], ["tools", "list"], ["tools", "check"]],
)
def test_help_says_what_a_command_does(words, capsys):
    """Each command has a help text that names its options and ends with exit code 0."""
    code = main([*words, "--help"])
    out = capsys.readouterr().out

    assert code == 0
    assert out.startswith(f"usage: {' '.join(['yiemagent', *words])}")
    assert len(out.splitlines()) > 5


def test_the_help_of_ask_names_every_option(capsys):
    """The help of `ask` names the documented options and the exit codes."""
    main(["ask", "--help"])
    out = capsys.readouterr().out
    named = set(re.findall(r"--[a-z-]+", out))

    assert {"--model", "--tools", "--system", "--no-stream", "--json", "--max-turns"} <= named
    assert {"--base-url", "--api-key-env"} <= named
    codes = " ".join(out.partition("exit codes:")[2].split())
    assert codes == (
        "0 an answer, 1 the run failed, 2 the command line is wrong, 130 interrupted, "
        "141 the reader of the output went away"
    )


def test_the_version_is_shown(capsys):
    """`--version` shows the version of the package."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"yiemagent {yiemagent.__version__}\n"


@pytest.mark.parametrize("words", [[], ["nope"], ["tools"], ["tools", "nope"], ["ask", "--nope"]])
def test_a_wrong_command_line_ends_with_2(words, capsys):
    """A command line that is wrong shows how it is used, on stderr."""
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("usage: yiemagent")


@pytest.mark.parametrize(
    "command",
    [
        ["ask"],
        ["tools", "list"],
        ["tools", "check"],
        ["tools", "call"],
        ["mcp", "serve"],
        ["local", "pull"],
        ["sessions", "show"],
    ],
    ids=" ".join,
)
def test_an_unknown_option_shows_the_usage_of_its_command(command, capsys):
    """An option that a command does not know shows the usage of that command, not that of `yiemagent`."""
    assert main([*command, "word", "--foo"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"usage: yiemagent {' '.join(command)} [-h]")
    assert err.endswith(f"yiemagent {' '.join(command)}: error: unrecognized arguments: --foo\n")


def test_an_unknown_option_before_the_command(capsys):
    """An option that stands before the command is the whole program's, and so is the usage."""
    assert main(["--foo", "ask", "hi"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("usage: yiemagent [-h] [--version] COMMAND ...\n")
    assert err.endswith("yiemagent: error: unrecognized arguments: --foo\n")


def test_a_model_that_nobody_knows_ends_with_2(capsys):
    """A model string with an unknown provider is one line that names those that are known."""
    code = main(["ask", "--model", "nobody:x", "Hello"])
    err = capsys.readouterr().err

    assert code == 2
    assert err.count("\n") == 1
    assert err.startswith("error: no provider 'nobody'")
    assert "openai" in err


def test_a_model_that_cannot_be_fetched_ends_with_1(monkeypatch, capsys, tmp_path):
    """A download that fails is one line and exit code 1, and leaves no file that looks like a model."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("YIEMAGENT_CACHE", str(tmp_path))
    monkeypatch.setenv("HTTPS_PROXY", nobody)
    monkeypatch.setenv("https_proxy", nobody)
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")
    code = main(["local", "pull", "qwen2.5-0.5b"])
    lines = capsys.readouterr().err.splitlines()

    assert code == 1
    assert lines[0].startswith("getting qwen2.5-0.5b: 491.4 MB")
    assert lines[-1].startswith("error: ")
    assert list(tmp_path.rglob("*.gguf")) == []


@pytest.mark.parametrize("words", [["bench", "--model", "/none/x.gguf"], ["pull", "nobody"]])
def test_a_local_model_that_nobody_knows_ends_with_2(words, capsys, monkeypatch, tmp_path):
    """A name or file that is not there is one line and exit code 2, with the extra installed or without."""
    monkeypatch.setenv("YIEMAGENT_CACHE", str(tmp_path))
    code = main(["local", *words])
    err = capsys.readouterr().err

    assert code == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_a_server_without_streaming_is_asked_for_a_whole_answer(monkeypatch, capsys):
    """With `--no-stream` an OpenAI-compatible server gets a request that is not streamed."""
    message = {"role": "assistant", "content": "Hi."}
    answer = json_answer({"model": "m", "choices": [{"message": message, "finish_reason": "stop"}]})
    with ScriptedServer(answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        code = main(["ask", "--model", "openai:m", "--no-stream", "Hello"])
        body = server.requests[0].json

    assert (code, capsys.readouterr().out) == (0, "Hi.\n")
    assert not body.get("stream")


def hello(server_answer, monkeypatch, capsys, *words, **environ):
    """Ask a server of our own by --base-url; gives the exit code, what was printed, and the request."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with ScriptedServer(server_answer) as server:
        code = main(["ask", "--base-url", f"{server.url}/v1", *words, "Hello"])
        return code, capsys.readouterr(), server.requests[0]


CHAT = {"model": "m", "choices": [{"message": {"content": "Hi."}, "finish_reason": "stop"}]}


PATHS = {
    "openai": "/v1/chat/completions",
    "ollama": "/v1/chat/completions",
    "groq": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "openai-responses": "/v1/responses",
    "gemini": "/v1/models/m:streamGenerateContent?alt=sse",
}


@pytest.mark.parametrize("provider", PATHS)
def test_the_base_url_names_the_server(provider, monkeypatch, capsys):
    """`--base-url` names the server of any provider; a key that is meant for another is not sent there."""
    names = ("OPENAI_API_KEY", "GROQ_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY")
    keys = dict.fromkeys(names, "sk-secret")
    words = ["--model", f"{provider}:m"]
    code, printed, request = hello(stand_in, monkeypatch, capsys, *words, **keys)

    assert (code, printed.out, printed.err) == (0, "Hello from the stand-in.\n", "")
    assert request.target == PATHS[provider]
    assert "sk-secret" not in repr(request)


def test_the_key_comes_from_the_variable_that_is_named(monkeypatch, capsys):
    """`--api-key-env` names the variable whose key is sent, wherever the server is."""
    words = ["--model", "openai:m", "--api-key-env", "MY_KEY"]
    code, _, request = hello(json_answer(CHAT), monkeypatch, capsys, *words, MY_KEY="sk-mine")

    assert code == 0
    assert request.headers["authorization"] == "Bearer sk-mine"


@pytest.mark.parametrize(
    "words, said",
    [
        (["--model", "openai:m"], "set OPENAI_API_KEY"),
        (["--model", "groq:m"], "set GROQ_API_KEY"),
        (["--model", "openai:m", "--api-key-env", "NO_SUCH_KEY"], "NO_SUCH_KEY holds no key"),
        (["--model", "openai"], "openai:gpt-5.1"),
        (["--model", "ollama:"], "ollama:qwen3"),
        (["--model", "openai:m", "--base-url", "nowhere"], "base_url must begin with http"),
        (["--model", "local", "--base-url", "http://127.0.0.1:1"], "not for the local model"),
    ],
)
def test_what_is_not_set_up_ends_with_2(words, said, monkeypatch, capsys):
    """A key, a model's name or an address that is missing or wrong is one line, before anything is asked."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "GROQ_API_KEY", "GROQ_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    code = main(["ask", *words, "Hello"])
    err = capsys.readouterr().err

    assert code == 2
    assert err.startswith("error: ") and err.count("\n") == 1
    assert said in err


class Interrupted(io.StringIO):
    """A stdin at which somebody presses Ctrl-C."""

    def read(self, size=-1):
        raise KeyboardInterrupt


def test_ctrl_c_ends_with_130(monkeypatch, capsys):
    """Ctrl-C anywhere in a command is one word on stderr and exit code 130."""
    monkeypatch.setattr(sys, "stdin", Interrupted())

    assert main(["ask", "-"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_closed_stdout_ends_with_141(monkeypatch, capsys):
    """A command whose output nobody reads ends with 141 and says nothing."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)

        assert main(["tools", "list"]) == 141
    assert capsys.readouterr().err == ""


def test_a_full_disk_ends_with_1(monkeypatch, capsys):
    """A command whose output can't be written says so in one line."""
    with pathlib.Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)

        assert main(["tools", "list"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: the output can't be written: ")
    assert err.count("\n") == 1


def test_what_a_tool_file_prints_is_on_stderr(tmp_path, capsys):
    """A tool file that prints while it is loaded leaves stdout to what was asked for."""
    (tmp_path / "loud.py").write_text(
        "from yiemagent import list_tool, ToolStore\n"
        "print('loading')\n"
        "def get_tool():\n    return list_tool(ToolStore())\n"
    )
    code = main(["tools", "list", str(tmp_path)])
    shown = capsys.readouterr()

    assert code == 0
    assert shown.err == "loading\n"
    assert shown.out.startswith("list_tools ")


def test_a_process_without_streams_can_run(monkeypatch):
    """Where the process has neither stdin nor stdout nor stderr, a command still ends with its own exit code."""
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)

    assert main(["tools", "list"]) == 0
    assert main(["ask"]) == 2


def test_what_an_encoding_lacks_is_written_as_an_escape(monkeypatch):
    """On a stream that can't hold every character nothing fails."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stderr", stream)
    main(["ask", "--model", "nöbody:x", "Hello"])

    assert b"n\\xf6body" in stream.buffer.getvalue()


def test_ctrl_c_while_the_command_is_loaded_ends_with_130():
    """Ctrl-C before the command has begun is one word on stderr, too."""
    program = """
import sys
from yiemagent.__main__ import main

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "yiemagent.cli.main":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
sys.exit(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_python_runs_the_command():
    """`python -m yiemagent` is the command."""
    done = subprocess.run(
        [sys.executable, "-m", "yiemagent", "--version"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )

    assert done.stdout == f"yiemagent {yiemagent.__version__}\n"
