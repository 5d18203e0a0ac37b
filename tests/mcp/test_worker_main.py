"""The child's end of a tool in a process, in this one: what it answers; its limits are tested where it is a child."""

import builtins
import errno
import re

import pytest

from tests.support.isolated_tools import RUN
from yiemagent.abort import AbortSignal
from yiemagent.errors import ToolError
from yiemagent.mcp.caller import Reach
from yiemagent.mcp.server_protocol import Call, RpcFailure
from yiemagent.mcp.versions import LATEST_STATELESS
from yiemagent.mcp.worker_main import _FileServer, _Limits
from yiemagent.mcp.worker_words import CALL_META, PREPARE, RESULT_META, TOOL_META, partial_of

LIMITS = {
    "memory_bytes": 1 << 30,
    "cpu_s": None,
    "file_bytes": 1 << 20,
    "open_files": 40,
    "processes": None,
}
PREPARED = RUN.replace(
    "@tool(", "@tool(prepare_arguments=lambda args: {**args, 'code': 'result = 1'}, "
)


class Served:
    """A server on a file, and what it sends."""

    def __init__(self, folder, text=RUN, sources=None):
        path = (folder / "run.py").resolve()
        path.write_text(text)
        work = {"file": str(path), "sources": sources}
        self.server = _FileServer(work, _Limits(LIMITS))
        self.sent = []

    def ask(self, method, **params):
        """What a request gives."""
        call = Call(1, method, params, LATEST_STATELESS, {}, {})
        reach = Reach(AbortSignal(), self.sent.append, lambda *_: None)
        return self.server.handle(call, reach)

    def run(self, code, name="run"):
        """What a call gives."""
        meta = {CALL_META: "the id", "progressToken": 7}
        return self.ask("tools/call", name=name, arguments={"code": code}, _meta=meta)


@pytest.fixture
def served(tmp_path):
    """The server on the file that runs code."""
    made = Served(tmp_path)
    yield made
    made.server.close()


def test_a_tool_is_listed_with_what_mcp_has_no_word_for(served):
    """The definition is the file's own, with its files and their contents beside it."""
    [told] = served.ask("tools/list")["tools"]

    assert (told["name"], told["inputSchema"]["required"]) == ("run", ["code"])
    assert told["_meta"][TOOL_META]["timeout_s"] == 30
    assert told["_meta"][TOOL_META]["files"][0][0].endswith("run.py")


def test_a_call_tells_its_details(served):
    """Content goes by MCP, the rest beside it, and nothing of it to the next call."""
    first = served.run("result = {'n': 1}")
    second = served.run("result = 'x'")

    assert first["content"] == [{"type": "text", "text": '{"n": 1}'}]
    assert first["_meta"][RESULT_META] == {"details": {"n": 1}}
    assert "_meta" not in second


def test_progress_is_sent_as_it_comes(served):
    """Each report is a notification under the call's token."""
    served.run("tell('a'); tell({'b': 2}); result = 'x'")
    params = [message["params"] for message in served.sent]

    assert [each["progressToken"] for each in params] == [7, 7]
    assert [partial_of(each) for each in params] == ["a", {"b": 2}]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "raise MemoryError",
            "MemoryError (the tool's process is limited to 1,073,741,824 bytes of",
        ),
        ("raise OSError(27, 'big')", "big (the tool's process is limited to 1,048,576 bytes in a"),
        ("raise OSError(24, 'many')", "many (the tool's process is limited to 40 open files)"),
        ("raise OSError(11, 'again')", "BlockingIOError: [Errno 11] again"),
        ("raise OSError(5, 'disk')", "OSError: [Errno 5] disk"),
        ("raise ValueError('no')", "ValueError: no"),
    ],
)
def test_a_failure_names_the_limit_that_it_comes_from(served, code, words):
    """One that is not set is not named, and other errors are what they are."""
    answer = served.run(code)

    assert answer["isError"]
    assert words in answer["content"][0]["text"]


def test_builtins_are_put_back(served):
    """Whatever a call replaced, the next one and the server itself find Python's own."""
    real = builtins.len
    served.run("import builtins; builtins.len = None; result = 'x'")

    assert builtins.len is real


def test_a_files_own_functions_are_tools_beside_it(tmp_path):
    """They are called as they are, and only where the file has them."""
    served = Served(tmp_path, PREPARED)
    answer = served.run("", name=PREPARE)
    served.server.close()

    assert answer["_meta"][RESULT_META] == {"details": {"given": {"code": "result = 1"}}}


def test_there_is_no_function_that_the_file_has_not(served):
    """Asking for it is an error."""
    with pytest.raises(RpcFailure, match="not found"):
        served.run("", name=PREPARE)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("builtins.len = None\nraise ValueError('no')", 3, "ValueError: no"),
        ("builtins.len = builtins.str = builtins.isinstance = None\n1 / 0", 3, "ZeroDivisionError"),
        ("builtins.len = builtins.getattr = None", None, "defines no function get_tool()"),
        (
            "def get_tool():\n    builtins.len = None\n    raise ValueError('no')",
            4,
            "ValueError: no",
        ),
    ],
)
def test_a_file_that_cannot_be_loaded_answers_with_the_reason(tmp_path, text, line, words):
    """Every request is answered with file, line and reason, whatever the file replaced, and builtins are put back."""
    real = builtins.len
    served = Served(tmp_path, f"import builtins\n{text}")
    with pytest.raises(RpcFailure, match=re.escape(words)) as caught:
        served.ask("tools/list")
    served.server.close()

    assert caught.value.data["line"] == line
    assert caught.value.data["path"].endswith("run.py")
    assert builtins.len is real


def test_given_contents_go_before_what_is_there(tmp_path):
    """The version that was loaded first is the one that is run."""
    path = str((tmp_path / "run.py").resolve())
    served = Served(tmp_path, "raise ValueError('newer')", {path: RUN})
    answer = served.run("result = 'older'")
    served.server.close()

    assert answer["content"][0]["text"] == "older"


def test_a_limit_that_a_system_call_ran_into_is_named():
    """Processes are named where they are limited."""
    error = _Limits({**LIMITS, "processes": 50}).explained(OSError(errno.EAGAIN, "no fork"))

    assert isinstance(error, ToolError)
    assert str(error).endswith("is limited to 50 processes and threads of its user)")
