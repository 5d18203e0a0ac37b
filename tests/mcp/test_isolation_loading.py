"""Loading tool files in processes: side by side, within a time, and whatever a file does told with its name."""

import os
import pathlib
import re
import subprocess
import sys
import textwrap
import threading

import pytest

from tests.support.isolated_tools import RUN, does, isolated
from yiemagent import ProcessLimits, ToolError, ToolLoadError, ToolStore, load_tools
from yiemagent.mcp.isolation import FileProcesses

ROOT = pathlib.Path(__file__).resolve().parents[2]
# A file that changes the server in its process.
LIES = "import yiemagent.mcp.worker_main; yiemagent.mcp.worker_main."
ASKS = {"resultType": "input_required", "requestState": "x"}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("raise ValueError('no')", 1, "ValueError: no"),
        ("x = (\n", 1, "SyntaxError"),
        ("import sys\nsys.exit(2)", 2, "SystemExit: 2"),
        ("import os\nos._exit(2)", None, "its process ended with exit code 2"),
        ("import ctypes\nctypes.string_at(0)", None, "its process was ended by SIGSEGV"),
        ("import os\nos.close(0); os.closerange(3, 50)", None, "its process"),
        ("x = 1", None, "defines no function get_tool()"),
        ("def get_tool(): return 5", None, "get_tool() gave 5; it must give an AgentTool"),
        ("import nothing_of_this_name", 1, "ModuleNotFoundError"),
        (f"import os\nos.unlink(__file__)\n{RUN}", None, "bad.py can't be read"),
        (
            f"open(__file__, 'a').write('#')\n{RUN}",
            None,
            "bad.py changed while it was loaded; load it again",
        ),
        (
            f"{LIES} tool_facts = lambda tool: {{}}\n{RUN}",
            None,
            "does not tell what it is: KeyError",
        ),
        (f"{LIES} _FileServer.handle = lambda *_: {{'tools': []}}\n{RUN}", None, "does not tell"),
        (f"{LIES} _FileServer.handle = lambda *_: {ASKS}\n{RUN}", None, "can't ask its caller"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_reported(tmp_path, text, line, words):
    """The error names file, line and reason, the others load, and no process is left."""
    (tmp_path / "bad.py").write_text(text)
    (tmp_path / "run.py").write_text(RUN)
    store = ToolStore(isolation="process")
    try:
        loaded = load_tools(store, tmp_path)
        [error] = store.load_errors
    finally:
        store.close()

    assert list(loaded) == ["run"]
    assert error.path == str(tmp_path / "bad.py")
    assert error.line == line
    assert words in error.reason
    assert str(error).startswith(f"{error.path}:")


@pytest.mark.parametrize(
    "text",
    [
        "raise ValueError('x' * 10**6)",
        "get_tool = lambda: 'x' * 10**6",
        "import os, sys\nsys.stderr.write('x' * 10**6)\nsys.stderr.flush()\nos._exit(1)",
        f"{LIES} tool_facts = lambda tool: {{}}['x' * 10**6]\n{RUN}",
        f"{LIES} _FileServer.handle = lambda *_: {{'tools': [{{'_meta': {{'x' * 10**6: 1}}}}]}}\n{RUN}",
        (
            "import yiemagent.mcp.worker_main as main\n"
            "raise main.ToolLoadError('x' * 10**6, 'y' * 10**6, 2, 'z' * 10**6)"
        ),
    ],
)
def test_what_a_process_tells_of_a_bad_file_is_short(tmp_path, text):
    """However long the words of the file, or of the process that it has taken over, are."""
    (tmp_path / "bad.py").write_text(text)
    store = ToolStore(isolation="process")
    try:
        load_tools(store, tmp_path)
        [error] = store.load_errors
    finally:
        store.close()

    assert len(error.reason) <= 2000
    assert len(error.path) <= 4096
    assert len(str(error)) < 2100 + len(error.path)


def test_what_a_process_answers_in_place_of_a_result_is_short(tmp_path):
    """An error that its server gives, since the file has taken that over, is cut."""
    taken_over = """
        import yiemagent.mcp.worker_main as main

        def handle(*_):
            raise main.RpcFailure(main.INTERNAL_ERROR, "x" * 10**6)

        main._FileServer.handle = handle
    """
    with isolated(tmp_path) as store:
        does(store, taken_over)
        with pytest.raises(ToolError, match=r"run: xxx.* more characters\]$") as caught:
            does(store, "")

    assert len(str(caught.value)) < 2100


def test_a_file_that_hangs_is_ended(tmp_path):
    """Loading has a limit of its own, C code included."""
    path = tmp_path / "bad.py"
    path.write_text("sum(range(10**13))")
    processes = FileProcesses(1, load_timeout_s=2.0)

    with pytest.raises(ToolLoadError, match=r"bad\.py: it did not load within 2 s, and was ended"):
        processes.load(path, ProcessLimits())


def test_a_file_that_finds_no_process_is_told_so(tmp_path):
    """Where calls have all of them, loading does not wait for ever, and does not blame the file."""
    fifo, path = tmp_path / "started", tmp_path / "run.py"
    os.mkfifo(fifo)
    path.write_text(RUN)
    (tmp_path / "other.py").write_text(RUN)
    processes = FileProcesses(1, load_timeout_s=5.0)
    tool = processes.load(path, ProcessLimits()).given
    hang = f"import os; os.close(os.open({str(fifo)!r}, os.O_WRONLY)); sum(range(10**13))"
    failures = []

    def call():
        try:
            tool.execute("id", {"code": hang})
        except ToolError as error:
            failures.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    fifo.read_bytes()
    with pytest.raises(
        ToolLoadError, match=r"other\.py: no process was free to load it within 5 s"
    ):
        processes.load(tmp_path / "other.py", ProcessLimits())
    processes.close()
    thread.join()

    assert failures == ["run: its process was ended, since its store was closed"]


def test_files_are_loaded_side_by_side(tmp_path):
    """Each of two files waits for the other while it is loaded, and both load; what is wrong with a third is told."""
    fifo = tmp_path / "meeting"
    os.mkfifo(fifo)
    for name, mode in (("a", "r"), ("b", "w")):
        text = RUN.replace("def run", f"def {name}").replace("return run", f"return {name}")
        (tmp_path / f"{name}.py").write_text(f"open({str(fifo)!r}, {mode!r}).close()\n{text}")
    (tmp_path / "c.py").write_text("raise ValueError('no')")
    store = ToolStore(isolation="process")
    try:
        loaded = load_tools(store, tmp_path)
        [error] = store.load_errors
        again = load_tools(store, tmp_path)
    finally:
        store.close()

    assert list(loaded) == ["a", "b"]
    assert again == loaded
    assert error.reason == "ValueError: no"


def test_a_file_that_changed_since_it_was_loaded_ahead_is_loaded_again(tmp_path):
    """What `load` gives is what is there when it is asked for."""
    paths = [tmp_path / f"{name}.py" for name in "ab"]
    for path in paths:
        path.write_text(RUN.replace("run", path.stem))
    processes = FileProcesses(2)
    limits = ProcessLimits()
    processes.load_ahead(paths, limits)
    first = processes.load(paths[0], limits)
    loaders = [t for t in threading.enumerate() if t.name.startswith("yiem-tool-loader")]
    for loader in loaders:
        loader.join()
    paths[1].write_text(RUN.replace("run", "changed"))
    second = processes.load(paths[1], limits)
    processes.close()

    assert (first.given.name, second.given.name) == ("a", "changed")


def test_memory_that_is_too_little_is_told(tmp_path):
    """A file that needs more than its limit while it is loaded is an error of the file."""
    (tmp_path / "bad.py").write_text("x = bytearray(1 << 30)\n" + RUN)
    store = ToolStore(isolation="process", limits=ProcessLimits(memory_bytes=256 << 20))
    load_tools(store, tmp_path)
    [error] = store.load_errors
    store.close()

    assert error.reason == "MemoryError"
    assert error.line == 1


def test_a_folder_that_is_not_there_is_told(tmp_path):
    """A working folder that does not exist is an error that names it."""
    (tmp_path / "run.py").write_text(RUN)
    store = ToolStore(isolation="process", limits=ProcessLimits(cwd=tmp_path / "nowhere"))
    load_tools(store, tmp_path)
    [error] = store.load_errors

    assert re.fullmatch(
        "'.*nowhere', the folder that the limits give a tool's process to run in, is no folder",
        error.reason,
    )


def test_a_program_whose_folder_was_deleted_still_has_processes(tmp_path, monkeypatch):
    """What is imported from the folder is gone, and the rest is found."""
    tools, gone = tmp_path / "tools", tmp_path / "gone"
    tools.mkdir()
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.syspath_prepend("")
    gone.rmdir()
    with isolated(tools, limits=ProcessLimits(cwd=tmp_path)) as store:
        given = does(store, "import os; result = os.getcwd()").text
    monkeypatch.chdir(tmp_path)

    assert given == str(tmp_path)


def test_what_a_file_does_to_its_process_is_gone_with_it(tmp_path):
    """A fork, replaced builtins and a file that deletes itself later harm nobody else."""
    text = f"import builtins, os\nif os.fork() == 0:\n    import signal; signal.pause()\n{RUN}"
    with isolated(tmp_path, {"run": text}) as store:
        does(store, "import builtins; builtins.len = None")
        with pytest.raises(ToolError, match="'NoneType' object is not callable"):
            does(store, "import builtins; builtins.isinstance = None")
        with pytest.raises(ToolError, match="exit code 1"):
            does(store, f"import os; os.unlink({str(tmp_path / 'run.py')!r}); os._exit(1)")
        again = does(store, "result = len('abc')").text

    assert again == "3"


def test_a_tool_that_changes_its_name_is_not_found(tmp_path):
    """Where the file gives another tool in its process, the call is an error that says so."""
    text = """
        import os
        from yiemagent import AgentTool

        def get_tool():
            name = f"me_{os.getpid()}"
            return AgentTool(name, description="Me.", execute=print, isolation="process")
    """
    (tmp_path / "me.py").write_text(textwrap.dedent(text))
    store = ToolStore()
    name = f"me_{os.getpid()}"
    try:
        load_tools(store, tmp_path, on_error="raise")
        with pytest.raises(ToolError, match=f"^{name}: Tool '{name}' not found"):
            store.get(name).execute("id", {})
    finally:
        store.close()


def test_a_file_that_loads_only_here_is_told_when_it_is_called(tmp_path):
    """A tool that was loaded here and can't be loaded in its process is an error with the reason."""
    text = RUN.replace("@tool(", "@tool(isolation='process', ")
    (tmp_path / "run.py").write_text(f"import os\nassert os.getpid() == {os.getpid()}\n{text}")
    store = ToolStore()
    try:
        load_tools(store, tmp_path, on_error="raise")
        with pytest.raises(
            ToolError, match=r"run can't be loaded in its process: .*run\.py:2: Assert"
        ):
            does(store, "")
    finally:
        store.close()


def test_without_a_python_there_is_no_process(tmp_path, monkeypatch):
    """Where Python does not know where it is, as in a frozen program, loading says so."""
    (tmp_path / "run.py").write_text(RUN)
    monkeypatch.setattr(sys, "executable", "")

    with pytest.raises(ToolLoadError, match="needs a POSIX system, and a Python"):
        load_tools(ToolStore(isolation="process"), tmp_path, on_error="raise")


def test_a_process_that_cannot_be_started_is_told(tmp_path, monkeypatch):
    """The words are the system's, and speak of no server."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    with (
        pytest.raises(ToolLoadError, match=r"no process could be started: .*no-python") as raised,
        isolated(tmp_path),
    ):
        pass

    assert "server" not in raised.value.reason


def test_without_a_thread_there_is_no_process(tmp_path, monkeypatch):
    """Where the system gives no thread to read from it, no process and no place is left behind."""
    processes = FileProcesses(1)
    path = tmp_path / "run.py"
    path.write_text(RUN)

    def refuse(_thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(ToolLoadError, match="no process could be started"):
            processes.load(path, ProcessLimits())

    loaded = processes.load(path, ProcessLimits())
    processes.close()
    assert loaded.given.name == "run"


FORKED = """
    import os, sys
    from pathlib import Path
    from yiemagent import ProcessLimits
    from yiemagent.mcp.isolation import FileProcesses
    files = [Path(sys.argv[1], name) for name in ("a.py", "b.py")]
    processes = FileProcesses(2)
    processes.load_ahead(files, ProcessLimits())
    child = os.fork()
    name = processes.load(files[0], ProcessLimits()).given.name
    if child == 0:
        processes.close()
        os._exit(0 if name == "run" else 1)
    print(name, os.waitpid(child, 0)[1])
    processes.close()
"""


def test_a_program_that_forks_while_files_load_loads_them_in_both(tmp_path):
    """The child has none of the threads that load ahead, and waits for none of them."""
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(RUN)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORKED), str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=50,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("run 0\n", "")


def test_a_loading_that_was_broken_off_leaves_nothing_to_the_next(tmp_path):
    """What was told of a file then is not told of it as it is now."""
    paths = [tmp_path / name for name in ("a.py", "b.py")]
    for path in paths:
        path.write_text("broken(")
    processes = FileProcesses(2)
    try:
        processes.load_ahead(paths, ProcessLimits())
        for path in paths:
            path.write_text(RUN)
        processes.load_ahead(paths[:1], ProcessLimits())
        names = [processes.load(path, ProcessLimits()).given.name for path in paths]
    finally:
        processes.close()

    assert names == ["run", "run"]
