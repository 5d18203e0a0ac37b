"""Calls of tools in processes: what they carry there and back, with real child processes."""

import base64
import os
import resource
import sys
import threading

import pytest

from tests.support.isolated_tools import RUN, does, isolated, pid_of
from yiemagent import (
    AgentToolResult,
    ImageContent,
    LlmUsage,
    TextContent,
    ToolError,
    ToolExecUpdateEvent,
    ToolStore,
    YiemAgent,
    ask,
    load_tools,
)
from yiemagent.testing import ScriptedModel, call, calls

PIXEL = base64.b64encode(b"\x89PNG").decode()

WHOLE = """
from yiemagent import AgentTool

def prepare_arguments(args):
    args.setdefault("text", "nothing")
    return args

def get_tool():
    return AgentTool(
        "whole",
        label="The whole",
        description="Have everything.",
        input_schema={"type": "object", "properties": {"text": {"type": "string"}}},
        execute=lambda i, args, s, p: f"{i}: {args['text']}",
        prepare_arguments=prepare_arguments,
        validate_required_args=lambda args: "too long" if len(args["text"]) > 9 else None,
        parallel_tool_execute=True,
        timeout_s=12.5,
        lock=["b", "a"],
        annotations={"readOnlyHint": True},
        output_schema={"type": "object", "properties": {"n": {"type": "integer"}}},
        examples=[("Say it.", {"text": "it"})],
    )
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A store whose process many tests use."""
    with isolated(tmp_path_factory.mktemp("tools")) as store:
        does(store, "result = 1")
        yield store


def test_a_call_runs_in_a_warm_process(shared):
    """Calls run in one process after another, which is not this one."""
    assert pid_of(shared) == pid_of(shared) != os.getpid()


def test_no_code_of_a_file_runs_here(tmp_path):
    """Loading a file runs it in a child only."""
    note = tmp_path / "loaded_by"
    text = f"import os\nopen({str(note)!r}, 'a').write(f'{{os.getpid()}} ')\n{RUN}"
    before = set(sys.modules)
    with isolated(tmp_path, {"run": text}) as store:
        pid = pid_of(store)

    assert note.read_text().split() == [str(pid)]
    assert not [name for name in set(sys.modules) - before if "tool_files_" in name]


def test_a_tool_is_described_as_its_file_describes_it(tmp_path):
    """Every field arrives, and `list_tools` stays here."""
    with isolated(tmp_path, {"whole": WHOLE}) as store:
        tool = store.get("whole")
        prepared = tool.prepare_arguments({})
        refused = tool.validate_required_args({"text": "0123456789"})
        fine = tool.validate_required_args({"text": "0"})

    assert (tool.label, tool.description) == ("The whole", "Have everything.")
    assert tool.input_schema == {"type": "object", "properties": {"text": {"type": "string"}}}
    assert (tool.parallel_tool_execute, tool.timeout_s, tool.lock) == (True, 12.5, ("a", "b"))
    assert (tool.isolation, tool.annotations) == ("process", {"readOnlyHint": True})
    assert tool.output_schema["properties"] == {"n": {"type": "integer"}}
    assert tool.examples == (("Say it.", {"text": "it"}),)
    assert (prepared, refused, fine) == ({"text": "nothing"}, "too long", None)
    assert list(store.snapshot()) == ["whole", "list_tools"]


def test_arguments_are_prepared_and_checked_there_as_they_are_here(tmp_path):
    """An agent's call goes through the file's own functions, in their process, and the id reaches the tool."""
    model = ScriptedModel(
        [
            call("whole", {}, "one"),
            call("whole", {"text": "0123456789"}),
            call("whole", {"text": []}),
            "done",
        ]
    )
    with isolated(tmp_path, {"whole": WHOLE}) as store:
        agent = YiemAgent(model, tool_store=store)
        ask(agent, "Go.")

    texts = [message.text for message in agent.messages if message.role == "toolResult"]
    assert texts[0] == "one: nothing"
    assert texts[1] == "Invalid arguments for whole: too long"
    assert texts[2].startswith("Invalid arguments for whole: the arguments don't fit")


REFUSING = WHOLE.replace(
    '    args.setdefault("text", "nothing")\n',
    """
    from yiemagent import InvalidArguments
    if "text" not in args:
        raise InvalidArguments("no text")
    if args["text"] == "boom":
        raise ValueError("it went off")
    if args["text"] == "die":
        import os
        os._exit(7)
""",
)


def test_what_a_files_own_check_raises_is_an_error_result(tmp_path):
    """A refusal names the arguments, any other exception is told, and the end of the process, too."""
    turns = [call("whole", {}), call("whole", {"text": "boom"}), call("whole", {"text": "die"})]
    with isolated(tmp_path, {"whole": REFUSING}) as store:
        agent = YiemAgent(ScriptedModel([*turns, "done"]), tool_store=store)
        ask(agent, "Go.")

    texts = [message.text for message in agent.messages if message.role == "toolResult"]
    assert texts == [
        "Invalid arguments for whole: no text",
        "ValueError: it went off",
        "whole: its process ended with exit code 7",
    ]


def test_a_result_arrives_whole(shared):
    """Text, images, details, usage, the wish to stop and added names arrive as the tool gave them."""
    result = does(
        shared,
        f"""
        from yiemagent import AgentToolResult, ImageContent, LlmUsage, TextContent
        result = AgentToolResult(
            ["a\\ud800b", ImageContent({PIXEL!r}, "image/png")],
            details={{"n": 1, "deep": [{{"x": None}}]}},
            usage=LlmUsage(input_tokens=3, output_tokens=4, cost=0.5),
            terminate=True,
            added_tool_names=["x"],
        )
        """,
    )

    assert result == AgentToolResult(
        [TextContent("a\ufffdb"), ImageContent(PIXEL, "image/png")],
        details={"n": 1, "deep": [{"x": None}]},
        usage=LlmUsage(input_tokens=3, output_tokens=4, cost=0.5),
        terminate=True,
        added_tool_names=["x"],
    )


@pytest.mark.parametrize(
    ("code", "text", "details"),
    [
        ("result = None", "", {}),
        ("result = ''", "", {}),
        ("result = {'a': [1]}", '{"a": [1]}', {"a": [1]}),
        (
            "from yiemagent import AgentToolResult as R; result = R('t', details={1: {2}})",
            "t",
            {"1": [2]},
        ),
        (
            "from yiemagent import AgentToolResult as R; result = R('t', details=[float('nan')])",
            "t",
            [None],
        ),
        ("from yiemagent import AgentToolResult as R; result = R('t', details=5)", "t", 5),
    ],
)
def test_results_of_every_form_arrive(shared, code, text, details):
    """What a tool may return here it may return there; what JSON lacks becomes what JSON has."""
    result = does(shared, code)

    assert (result.text, result.details) == (text, details)


def test_a_failure_brings_its_content(shared):
    """What a `ToolFailure` shows the model and tells programs arrives with the error."""
    code = f"""
        from yiemagent import ImageContent, ToolFailure
        raise ToolFailure("no", ["look", ImageContent({PIXEL!r}, "image/png")], {{"why": 1}})
    """
    with pytest.raises(ToolError, match="look") as caught:
        does(shared, code)

    assert caught.value.content == (TextContent("look"), ImageContent(PIXEL, "image/png"))
    assert caught.value.details == {"why": 1}


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("raise ValueError('boom')", "ValueError: boom"),
        ("import sys; sys.exit(4)", "SystemExit: 4"),
        ("from yiemagent import ToolError; raise ToolError('as it is')", "as it is"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise OSError(5, 'bad disk')", r"OSError: \[Errno 5\] bad disk"),
    ],
)
def test_what_a_tool_raises_is_told_and_keeps_its_process(shared, code, text):
    """An exception is an error with its words; the process goes on to the next call."""
    before = pid_of(shared)
    with pytest.raises(ToolError, match=f"^{text}$"):
        does(shared, code)

    assert pid_of(shared) == before


def test_progress_arrives_in_order_and_whole(shared):
    """Whatever a tool reports arrives as it reported it, a result with an image, too."""
    told = []
    code = f"""
        from yiemagent import AgentToolResult, ImageContent
        for partial in (1, "two", {{"three": [3.5, None]}}, [4], None):
            tell(partial)
        tell(AgentToolResult(["half", ImageContent({PIXEL!r}, "image/png")], details={{"n": 1}}))
        result = "done"
    """
    does(shared, code, tell=told.append)

    assert told[:5] == [1, "two", {"three": [3.5, None]}, [4], None]
    assert told[5:] == [
        AgentToolResult([TextContent("half"), ImageContent(PIXEL, "image/png")], details={"n": 1})
    ]


def test_progress_is_an_event_of_the_run(shared):
    """An agent's sink is told of progress while the tool runs."""
    events = []
    model = ScriptedModel([call("run", {"code": "tell({'at': 1}); result = 'x'"}), "done"])
    ask(YiemAgent(model, tool_store=shared, event_sink=events.append), "Go.")

    updates = [event for event in events if isinstance(event, ToolExecUpdateEvent)]
    assert [event.partial_result for event in updates] == [{"at": 1}]


def test_what_is_printed_disturbs_nothing(shared):
    """Neither prints nor what a program of the tool's prints gets into the connection, and stdin is empty."""
    code = """
        import os, subprocess, sys
        print('{"jsonrpc": "2.0", "id": 1, "result": {}}')
        sys.stdout.write("no line end")
        os.write(1, b"\\n{}\\n")
        subprocess.run(["echo", "from a program"], check=True)
        result = sys.stdin.read() + "done"
    """

    assert does(shared, code).text == "done"


def test_a_flood_of_output_costs_no_memory_here(shared):
    """A gigabyte of prints is drained, and not kept."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code = "import os\nfor _ in range(1024): os.write(1, bytes(1 << 20))\nresult = 'printed'"

    assert does(shared, code).text == "printed"
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 40_000


def test_a_process_is_light(tmp_path):
    """It loads no HTTP, no event loop and, where its file needs none, no schema library."""
    with isolated(tmp_path) as store:
        loaded = set(does(store, "import sys; result = {'all': list(sys.modules)}").details["all"])

    heavy = {"requests", "urllib3", "http.client", "asyncio", "ssl", "jsonschema", "referencing"}
    assert not loaded & heavy
    assert "yiemagent.mcp.server" in loaded


def test_large_arguments_and_results_cross(shared):
    """Megabytes go there and back."""
    result = does(shared, f"text = {'x' * 3_000_000!r}\nresult = text + 'é'")

    assert len(result.text) == 3_000_001


def test_a_result_that_is_too_large_is_an_error(tmp_path):
    """More than 64 MB in one message is refused in words, and the next call works."""
    with isolated(tmp_path) as store:
        with pytest.raises(ToolError, match=r"run: .* a line is longer than 67108864 bytes"):
            does(store, "result = 'x' * 70_000_000")

        assert pid_of(store) > 0


def test_arguments_that_json_lacks_are_an_error(tmp_path):
    """A direct call with a set is refused in words, and the next call works."""
    with isolated(tmp_path) as store:
        with pytest.raises(ToolError, match=r"run: .*can't be sent as JSON"):
            store.get("run").execute("id", {"code": {1, 2}})

        assert pid_of(store) > 0


def test_calls_side_by_side_have_a_process_each(tmp_path):
    """Calls of one answer run at once: each waits for the other, over a pipe that both open."""
    fifo = tmp_path / "meeting"
    os.mkfifo(fifo)
    wait = f"import os; open({str(fifo)!r}).read(); result = os.getpid()"
    come = f"import os; open({str(fifo)!r}, 'w').close(); result = os.getpid()"
    both = calls(call("run", {"code": wait}), call("run", {"code": come}))
    model = ScriptedModel([both, "done"])
    with isolated(tmp_path) as store:
        agent = YiemAgent(model, tool_store=store)
        ask(agent, "Meet.")

    pids = {message.text for message in agent.messages if message.role == "toolResult"}
    assert len(pids) == 2
    assert all(pid.isdigit() for pid in pids)


def test_many_agents_share_a_store(tmp_path):
    """Agents with one store call its tools at the same time, and each gets its own results."""
    texts = {}

    def work(number):
        model = ScriptedModel([call("run", {"code": f"result = {number} * 2"})] * 3 + ["done"])
        agent = YiemAgent(model, tool_store=store)
        ask(agent, "Go.")
        texts[number] = [m.text for m in agent.messages if m.role == "toolResult"]

    with isolated(tmp_path, max_processes=2) as store:
        threads = [threading.Thread(target=work, args=[number]) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert texts == {number: [str(number * 2)] * 3 for number in range(6)}


MARKED = RUN.replace("@tool(", "@tool(isolation='process', ")


def test_a_file_may_ask_for_a_process_itself(tmp_path):
    """A store of threads runs such a tool, and no other, in a process."""
    (tmp_path / "marked.py").write_text(MARKED)
    (tmp_path / "plain.py").write_text(RUN.replace("run", "plain"))
    store = ToolStore()
    load_tools(store, tmp_path, on_error="raise")
    code = {"code": "import os; result = os.getpid()"}
    try:
        pids = [int(store.get(name).execute("id", code).text) for name in ("run", "plain", "run")]
    finally:
        store.close()

    assert pids[0] == pids[2] != os.getpid()
    assert pids[1] == os.getpid()


def test_a_process_loads_what_was_loaded_here(tmp_path):
    """What is in the file and its helpers later is no matter until they are loaded again."""
    (tmp_path / "_helper.py").write_text("WORD = 'first'\n")
    text = MARKED.replace('return scope["result"]', "return _helper.WORD + ' 1'")
    (tmp_path / "run.py").write_text("from . import _helper\n" + text)
    store = ToolStore()
    load_tools(store, tmp_path, on_error="raise")
    (tmp_path / "_helper.py").unlink()
    (tmp_path / "run.py").write_text("raise ValueError('not any more')")
    try:
        result = does(store, "")
    finally:
        store.close()

    assert result.text == "first 1"


def test_a_tool_outside_of_a_store_runs_in_a_process_too(tmp_path):
    """`execute` of what `get_tool()` gives goes to a process, as a unit test of a tool file would have it."""
    path = tmp_path / "marked.py"
    path.write_text(MARKED)
    scope = {"__file__": str(path), "__name__": "marked"}
    exec(MARKED, scope)
    tool = scope["get_tool"]()
    try:
        pids = {tool.execute("id", {"code": "import os; result = os.getpid()"}).text for _ in "ab"}
    finally:
        from yiemagent.isolation import _of_no_store

        _of_no_store().close()

    assert len(pids) == 1
    assert pids != {str(os.getpid())}


def test_a_registered_tool_uses_the_processes_of_its_store(tmp_path):
    """It has the store's limits, may be registered again, and is given as it is in the store."""
    from yiemagent import ProcessLimits

    path = tmp_path / "marked.py"
    path.write_text(MARKED)
    scope = {"__file__": str(path), "__name__": "marked"}
    exec(MARKED, scope)
    store = ToolStore(limits=ProcessLimits(cwd=tmp_path))
    try:
        tool = store.register(scope["get_tool"]())
        again = store.register(scope["get_tool"]())
        once_more = store.register(tool)
        where = does(store, "import os; result = os.getcwd()").text
    finally:
        store.close()

    assert tool is again is once_more is store.get("run")
    assert where == str(tmp_path)
