"""What holds for every test: a time limit, and nothing left behind.

- A test ends within its time limit (`time_limit`), or it fails; one that can't be interrupted ends the run with the
  stacks of all threads.
- No thread of the library, no thread that would keep the interpreter alive, no child process and no open socket or
  pipe may be left by a test. Where abandoning a thread is what a test shows, it says so (`abandons_threads`).
- Branch coverage is that of examples that are written down: no tracer runs while examples are generated.
- Which tests ran is noted, so that docs/promises.md can be held to it. The whole suite may come in two runs, the first
  by several processes and without the tests marked `alone`: `--note-ran FILE`, then `-m alone --ran-before FILE`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import pathlib
import select
import signal
import threading
import time

import pytest
from hypothesis import HealthCheck, settings

TIME_LIMIT_S = 60.0
HARD_LIMIT_EXTRA_S = 15.0  # for a test which sits in a C call that no signal interrupts

# The same examples in every run: a failure is a failure of the change, never of the day.
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")


class RanTests:
    """The tests of this session that ran their bodies, and whether the whole suite was asked for."""

    def __init__(self, *, whole_suite: bool) -> None:
        self.whole_suite = whole_suite
        self.node_ids: set[str] = set()  # without parameters
        self.full_ids: set[str] = set()

    def add(self, node_id: str) -> None:
        """Note a test, under its id with parameters."""
        self.node_ids.add(node_id.partition("[")[0])
        self.full_ids.add(node_id)


_RAN = pytest.StashKey[RanTests]()
_STDERR = pytest.StashKey[int]()


def pytest_addoption(parser):
    """Let the suite's own tests wait for less, and the cases come from another folder."""
    parser.addoption("--cases-dir", help="a folder of cases to drive in place of tests/cases")
    parser.addoption("--note-ran", help="a file for the ids of the tests that ran")
    parser.addoption(
        "--ran-before", help="such a file: with it, this run is the rest of the whole suite"
    )
    parser.addini("settle_s", "seconds that threads, children and sockets have to go", default="2")


def pytest_configure(config):
    """Keep the real stderr, for stacks that must be seen although output is captured."""
    config.stash[_STDERR] = os.dup(2)
    whole = config.args_source is config.ArgsSource.TESTPATHS
    selected = config.option.keyword or config.option.markexpr
    ran = RanTests(whole_suite=whole and not selected and not _is_one_of_several(config))
    if before := config.option.ran_before:
        ran.whole_suite = True
        for node_id in pathlib.Path(before).read_text(encoding="utf-8").splitlines():
            ran.add(node_id)
    config.stash[_RAN] = ran
    config.pluginmanager.register(_Recorder(ran))


def pytest_unconfigure(config):
    """Give the kept stderr back."""
    os.close(config.stash[_STDERR])


def _is_one_of_several(config):
    """Whether this is one of the processes that pytest-xdist started; each sees but its own tests."""
    return hasattr(config, "workerinput")


class _Recorder:
    def __init__(self, ran):
        self._ran = ran

    def pytest_runtest_logreport(self, report):
        if report.when == "call":
            self._ran.add(report.nodeid)

    def pytest_sessionfinish(self, session):
        path = session.config.option.note_ran
        if path and not _is_one_of_several(session.config):  # who starts them hears of all tests
            lines = "".join(f"{node_id}\n" for node_id in sorted(self._ran.full_ids))
            pathlib.Path(path).write_text(lines, encoding="utf-8")


def pytest_collection_modifyitems(config, items):
    """Leave out tests of programs of others where none are named, and run what looks back at the session last."""
    if not os.environ.get("YIEMAGENT_MCP_PEERS") and "peers" not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker("peers")]
        if left_out:
            config.stash[_RAN].whole_suite = False
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item not in left_out]
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            # What generated examples happen to reach does not count as covered; and traced, they take thrice as long.
            item.add_marker("no_cover")
    items.sort(key=lambda item: item.path.name == "test_promises.py")
    if _is_one_of_several(config):
        # A long file that comes last keeps one process busy while the others have nothing left.
        long = {item.path for item in items if any(map(item.get_closest_marker, ("slow", "peers")))}
        items.sort(key=lambda item: item.path not in long)


@pytest.fixture
def ran_tests(request):
    """The node ids of what ran so far, with their parameters and without."""
    return request.config.stash[_RAN]


@pytest.fixture
def show(request):
    """A function that takes text, what a test measured: it stands at the end of the run, whether the test passes."""
    return lambda text: request.node.user_properties.append(("shown", text))


def pytest_terminal_summary(terminalreporter):
    """Print what tests want shown; they can't print themselves, since the one who runs them may be another process."""
    reports = [
        report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind)
    ]
    for report in reports:
        for text in (text for name, text in report.user_properties if name == "shown"):
            if report.when == "call":
                terminalreporter.write_line(f"\n{text}")


# -- time limits ------------------------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Fail the test at its limit; a little later, end the run with all stacks."""
    mark = item.get_closest_marker("time_limit")
    limit_s = float(mark.args[0]) if mark else TIME_LIMIT_S
    stderr = item.config.stash[_STDERR]
    faulthandler.dump_traceback_later(limit_s + HARD_LIMIT_EXTRA_S, exit=True, file=stderr)
    try:
        with _alarm(limit_s, stderr):
            return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@contextlib.contextmanager
def _alarm(limit_s, stderr):
    if not hasattr(signal, "setitimer"):
        yield
        return

    def too_late(_number, _frame):
        faulthandler.dump_traceback(file=stderr)
        pytest.fail(f"the test did not end within its limit of {limit_s:g} s")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# -- nothing is left behind -------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _nothing_left_behind(request):
    threads, children, files = set(threading.enumerate()), _children(), _open_files()
    yield
    ends_at = time.monotonic() + float(request.config.getini("settle_s"))
    left = _threads_left(threads, ends_at)
    mark = request.node.get_closest_marker("abandons_threads")
    allowed = mark.args[0] if mark else 0
    blocking = [thread for thread in left if not thread.daemon]
    if blocking or len(left) > allowed:
        pytest.fail(f"threads left behind: {[thread.name for thread in left]}")
    if left_children := _children_left(children, ends_at):
        pytest.fail(f"child processes left behind: {left_children}")
    if request.node.get_closest_marker("leaves_open"):
        return
    if left_files := _files_left(files, threads, ends_at):
        pytest.fail(f"sockets or pipes left open: {left_files}")


def _threads_left(before, ends_at):
    new = [
        thread
        for thread in threading.enumerate()
        if thread not in before and (not thread.daemon or thread.name.startswith("yiem-"))
    ]
    for thread in new:
        thread.join(max(0.0, ends_at - time.monotonic()))
    return [thread for thread in new if thread.is_alive()]


def _children():
    """The ids of this process's children (Linux; elsewhere none is seen)."""
    found = set()
    for _ in range(
        2
    ):  # a thread that ends leaves its children to another, which may have been looked at before
        for task in pathlib.Path("/proc/self/task").glob("*/children"):
            with contextlib.suppress(OSError):  # a thread that ended meanwhile has no children
                found.update(map(int, task.read_text().split()))
    return found


def _children_left(before, ends_at):
    new = _children() - before
    if not new:
        return []
    gc.collect()  # a forgotten Popen reaps its process when it goes
    for pid in sorted(new):
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            try:
                select.select([descriptor], [], [], max(0.0, ends_at - time.monotonic()))
            finally:
                os.close(descriptor)
    left = {pid: _command(pid) for pid in _children() - before}
    # The standard library's own helper of multiprocessing stays for the life of the process.
    stays = ("resource_tracker", "(gone)")
    return [f"{pid} {text}" for pid, text in left.items() if not any(map(text.count, stays))]


def _command(pid):
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return "(gone)"
    return words.decode(errors="replace").strip() or "(ended, not waited for)"


def _open_files():
    """The open sockets and pipes, by descriptor and inode (Linux; elsewhere none is seen)."""
    found = set()
    for entry in pathlib.Path("/proc/self/fd").glob("*"):
        with contextlib.suppress(OSError):  # the descriptor of this very listing is gone already
            target = str(entry.readlink())
            if target.startswith(("socket:", "pipe:")):
                found.add((int(entry.name), target))
    return found


def _files_left(before, threads, ends_at):
    if not _open_files() - before:
        return []
    gc.collect()  # what nobody refers to any more is not left behind
    if not _open_files() - before:
        return []
    # A test server's handler closes its end in its own thread.
    for thread in set(threading.enumerate()) - threads:
        thread.join(max(0.0, ends_at - time.monotonic()))
    return sorted(_open_files() - before)
