"""Tool files tried in a child process: what they give, and every way in which they go wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.processes import has_ended
from yiemagent.abort import AbortSignal
from yiemagent.errors import AbortedError, ConfigurationError
from yiemagent.tool_trial import Trial, try_files

HEAD = "from yiemagent.tool import AgentTool\n"
FORGE = """import os, time
for fd in range(3, 20):
    try:
        os.write(fd, b'[]\\n')
    except OSError:
        pass
time.sleep(60)"""
TAIL = """
def get_tool():
    return AgentTool("a", description="d", execute=execute, {more})
"""
SCHEMA = "input_schema={'type': 'object', 'properties': {'n': {'type': 'integer'}}}"


@pytest.fixture
def write(tmp_path):
    """Write a tool file: what stands before its function, what that does, and more of its tool."""

    def write(does="return 'ok'", before="", more="", name="a"):
        path = tmp_path / f"{name}.py"
        body = "\n".join(f"    {line}" for line in does.split("\n"))
        execute = f"def execute(tool_call_id, args, signal, on_partial_result):\n{body}\n"
        path.write_text(f"{HEAD}{before}\n{execute}{TAIL.format(more=more)}")
        return path

    return write


def tried(path, arguments=None, needed=(), **options):
    (report,) = try_files([Trial(path, arguments, needed)], **options)
    assert report.path == path
    return report


# -- what a trial gives -----------------------------------------------------------------------------------------------


def test_a_good_file_is_loaded(write):
    """The tool's name comes back, with what of its schema can't be checked; nothing is called."""
    path = write("raise ValueError", more="input_schema={'type': 'object', 'x': 1, 'minimum': 'a'}")
    report = tried(path)

    assert (report.problem, report.name, report.text) == (None, "a", None)
    assert report.notes == ("/minimum: 'a' is left out",)


def test_a_call_is_made_as_in_a_run(write):
    """Arguments are prepared, coerced, checked and validated; what the tool gives comes back as text."""
    path = write(
        "return {'n': args['n'] + 1}",
        before="def prepare(args):\n    args['n'] = args.pop('m')\n    return args\n",
        more=f"{SCHEMA}, prepare_arguments=prepare, validate_required_args=lambda args: None",
    )

    assert tried(path, {"m": "41"}).text == '{"n": 42}'


def test_a_long_result_is_shortened(write):
    """Of a very long text the beginning comes back."""
    report = tried(write("return 'x' * 100_000"), {})

    assert len(report.text) <= 2000
    assert report.text.endswith("x [… 98,028 more characters]")


def test_the_child_finds_what_this_process_finds(write, tmp_path, monkeypatch):
    """Modules on this process's path, and in its working folder's files, are there for the child, too."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "only_here_7731.py").write_text("WORD = 'found'\n")
    monkeypatch.syspath_prepend(str(elsewhere))
    monkeypatch.chdir(tmp_path)
    path = write("return only_here_7731.WORD + open('a.py').name", before="import only_here_7731")

    assert tried(path, {}, [("only_here_7731", "here"), (".helper", "here")]).text == "founda.py"


def test_many_files_share_a_child(write):
    """Files are tried in order by one child, which goes on after a file that only raises."""
    pid = "import os\nPID = os.getppid(), os.getpid()"
    paths = [
        write("return str(PID)", pid, name="a"),
        write("pass", "1 / 0", name="b"),
        write("return str(PID)", pid, name="c"),
    ]
    first, second, third = try_files([Trial(path, {}) for path in paths])

    assert first.text == third.text
    assert first.text.startswith(f"({os.getpid()}, ")
    assert second.line == 2
    assert list(try_files([])) == []


def test_a_file_that_ends_its_child_costs_the_others_nothing(write):
    """The file is to blame for it, and the rest is tried by another child."""
    paths = [write(name="a"), write("pass", "import os\nos._exit(7)", name="b"), write(name="c")]
    reports = list(try_files([Trial(path) for path in paths]))

    assert [report.problem for report in reports] == [
        None,
        "its process ended with exit code 7 before it was done",
        None,
    ]


# -- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "line", "said"),
    [
        ("x = 1\ndef get_tool(:\n", 2, "SyntaxError"),
        ("import module_that_is_not_there_8161", 1, "module_that_is_not_there_8161"),
        ("import sys\nsys.exit(4)", 2, "SystemExit: 4"),
        ("raise KeyboardInterrupt", 1, "KeyboardInterrupt"),
        ("x = 1", None, "get_tool"),
        ("def get_tool():\n    return 5", None, "must give an AgentTool"),
        ("raise ValueError('x' * 2_000_000)", 1, "ValueError: xxx"),
        ("import os\nos.fork()", 2, "must not fork"),
        ("import pty\n\npty.fork()", 3, "must not fork"),
        (
            "import builtins\nbuiltins.len = None\nbuiltins.str = None\n1 / 0",
            None,
            "replaces builtins of Python: len, str",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_told(tmp_path, source, line, said):
    """Whatever a file does while it is loaded is told with its line, where one is to blame."""
    path = tmp_path / "a.py"
    path.write_text(source)
    report = tried(path)

    assert said in report.problem
    assert line is None or report.line == line
    assert report.text is None
    assert len(report.problem) < 3000


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("raise ValueError('no luck')", "the trial call failed: ValueError: no luck"),
        ("import sys\nsys.exit()", "the trial call failed: SystemExit"),
        ("return x.y", "the trial call failed: NameError"),
        ("import os\nos._exit(0)", "its process ended with exit code 0 before it was done"),
        (
            "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
            "was killed by signal 9 (Killed)",
        ),
        ("import ctypes\nctypes.string_at(0)", "was killed by signal 11"),
        ("import os\nos.fork()", "must not fork"),
        (
            "import builtins, sys\nbuiltins.isinstance = sys.exit\nreturn 1",
            "replaces builtins of Python: isinstance",
        ),
        ("import os\nos.remove(__file__)\nreturn 1", "it changed or removed its own file"),
        ("open(__file__, 'a').write('#')\nreturn 1", "it changed or removed its own file"),
        ("return 'x' * 10**11", "MemoryError"),
        (
            "import tempfile\nwith tempfile.TemporaryFile() as f:\n    f.truncate(10**10)",
            "bytes to one file",
        ),
        ("raise type('E', (Exception,), {'__str__': lambda self: 'x' * 10**6})", "…"),
        (
            FORGE,
            "wrote into the report",
        ),
    ],
)
def test_what_a_call_does_is_told(write, does, said):
    """Whatever the code does when it is called, exits and crashes included, is told in words."""
    report = tried(write(does), {})

    assert said in report.problem
    assert report.text is None or "own file" in said or "builtins" in said
    assert len(report.problem) < 3000


def test_a_report_that_a_file_writes_itself_is_cut(write):
    """Whatever a child says of itself, no text of it is long here."""
    forged = f'{{"problem": "{"x" * 9000}", "notes": ["{"y" * 9000}"], "name": "{"z" * 9000}"}}\n'
    report = tried(write(FORGE.replace("b'[]\\n'", repr(forged.encode()))), {})

    assert report.problem.startswith("xxx")
    assert [*map(len, (report.problem, *report.notes, report.name))] == [2000] * 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"n": "many"}, "InvalidArguments"),
        ({"n": 13}, "the example is refused: unlucky"),
        ({"list": 1}, "instead of a dict"),
    ],
)
def test_an_example_must_be_what_the_tool_takes(write, arguments, said):
    """Arguments that the tool's own checks refuse are no example."""
    path = write(
        before="def prepare(args):\n    return args if 'list' not in args else []\n",
        more=f"{SCHEMA}, prepare_arguments=prepare, "
        "validate_required_args=lambda a: 'unlucky' if a['n'] == 13 else None",
    )

    assert said in tried(path, arguments).problem


@pytest.mark.parametrize("place", ["load", "call"])
def test_a_file_that_hangs_is_ended(write, place):
    """At its time limit the child is killed, wherever it hangs; the time counts for each file."""
    hang = "while True:\n    pass"
    path = write(hang) if place == "call" else write("pass", hang)
    began = time.monotonic()
    report = tried(path, {}, time_limit_s=1.5)

    assert report.problem == "it did not end within 1.5 s, and was ended"
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("place", ["load", "call"])
def test_a_file_that_floods_the_output_is_ended(write, place):
    """More output than may be ends the child; less is dropped."""
    flood = "while True:\n    print('x' * 100_000)"
    path = write(flood) if place == "call" else write("pass", flood)

    assert tried(path, {}).problem == "it printed more than 1,000,000 bytes, and was ended"
    assert tried(write("print('x' * 900_000)\nreturn 'ok'"), {}).text == "ok"


@pytest.mark.parametrize(
    "module",
    ["module_that_is_not_there_8161", "json.nothing", "sys.nothing", "module_not_there_8161.x", ""],
)
def test_needed_modules_must_be_there(write, module):
    """A module that isn't found is told with its place, and the file is not loaded."""
    report = tried(write(), None, [("json", "here"), (module, "imports, line 7")])

    assert report.problem == f"imports, line 7: there is no module {module!r} here"
    assert tried(write(), None, [("os.path", "here")]).problem is None


def test_what_a_file_starts_ends_with_it(write, tmp_path):
    """A process that the code left running in its group is killed, and holds nothing up."""
    lock = tmp_path / "pid"
    path = write(
        "import subprocess, sys\n"
        "code = 'import time; print(1, flush=True); time.sleep(600)'\n"
        "p = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE)\n"
        "p.stdout.readline()\n"
        f"open({str(lock)!r}, 'w').write(str(p.pid))\n"
        "return 'left it'"
    )

    assert tried(path, {}).text == "left it"
    assert has_ended(int(lock.read_text()))


def test_an_abort_ends_the_trial(write, tmp_path):
    """When the signal is set, the child is killed at once, and nothing more is given."""
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    path = write(f"open({str(begun)!r}, 'w').close()\nwhile True: pass")
    signal = AbortSignal()
    took = []

    def abort():
        begun.read_bytes()
        took.append(time.monotonic())
        signal.abort("enough")

    thread = threading.Thread(target=abort)
    thread.start()
    with pytest.raises(AbortedError, match="enough"):
        tried(path, {}, signal=signal)
    thread.join()

    assert time.monotonic() - took[0] < 5
    with pytest.raises(AbortedError):
        tried(path, {}, signal=signal)


def test_without_a_python_there_is_no_trial(write, monkeypatch):
    """Where this process knows no Python to start, the error says so."""
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(ConfigurationError, match="needs a Python of its own"):
        tried(write())


def test_a_child_that_cannot_start_leaves_nothing_behind(write, monkeypatch):
    """Where the child can't be started, the error is the system's, and no pipe stays open."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(FileNotFoundError):
        tried(write())


def test_a_child_whose_parent_is_gone_ends_by_itself():
    """The child has an alarm of its own a few seconds after its time, should nobody be left to end it."""
    code = (
        "import signal\nfrom yiemagent import tool_trial\ntool_trial._limit(20)\n"
        "print(signal.alarm(0), signal.getsignal(signal.SIGALRM) == signal.SIG_DFL)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(Path(__file__).resolve().parent.parent)},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )

    assert done.stdout.split() == ["25", "True"]
