"""The pool of user code: on demand, daemons, and never a reason for the interpreter to stay."""

from __future__ import annotations

import concurrent.futures.thread
import contextlib
import gc
import logging
import pathlib
import shutil
import subprocess
import sys
import threading
from queue import SimpleQueue

import pytest

from tests.support.loops import WAIT_S, Hold, raising
from yiemagent.pool import DaemonPool

ROOT = pathlib.Path(__file__).resolve().parent.parent


@contextlib.contextmanager
def pooled(name="yiem-test-tool"):
    """A pool that is ended without waiting for anybody."""
    pool = DaemonPool(name)
    try:
        yield pool
    finally:
        pool.shutdown()


def result(pool, function, *args):
    """Run a function on a worker and give what it gives."""
    given = SimpleQueue()
    pool.submit(lambda: given.put(function(*args)))
    return given.get(timeout=WAIT_S)


class Idle(list):
    """A list of idle workers that tells when one comes: a moment after its result is there."""

    def __init__(self):
        super().__init__()
        self.came = threading.Semaphore(0)

    def append(self, worker):
        super().append(worker)
        self.came.release()


def test_workers_are_named_daemons_unknown_to_the_exit_hook():
    """A worker is a daemon with a name that counts, and `concurrent.futures` does not wait for it at exit."""
    with pooled() as pool:
        worker = result(pool, threading.current_thread)

        assert worker.daemon
        assert worker.name == "yiem-test-tool-1"
        assert worker not in concurrent.futures.thread._threads_queues


def test_tasks_never_wait_for_each_other():
    """As many tasks as there are run side by side."""
    barrier, given = threading.Barrier(20), SimpleQueue()
    with pooled() as pool:
        for _ in range(20):
            pool.submit(lambda: given.put(barrier.wait(WAIT_S)))

        assert sorted(given.get(timeout=WAIT_S) for _ in range(20)) == list(range(20))


def test_an_idle_worker_is_used_again():
    """One task after another needs no second thread."""
    with pooled() as pool:
        pool._crew.idle = Idle()
        first = result(pool, threading.get_ident)
        assert pool._crew.idle.came.acquire(timeout=WAIT_S)

        assert result(pool, threading.get_ident) == first


def test_a_hung_task_takes_nobodys_place():
    """A worker that never comes back leaves the next task a thread of its own."""
    with Hold() as hold, pooled() as pool:
        pool.submit(hold)
        hold.wait()

        assert result(pool, lambda: 7) == 7


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), ValueError()], ids=repr)
def test_a_task_that_raises_ends_no_worker(error, caplog):
    """What a task raises is logged, and its worker goes on."""
    caplog.set_level(logging.WARNING, "yiemagent.pool")
    with pooled() as pool:
        pool._crew.idle = Idle()
        pool.submit(raising(error))
        assert pool._crew.idle.came.acquire(timeout=WAIT_S)

        assert result(pool, threading.current_thread).name == "yiem-test-tool-1"
    assert [record.exc_info[1] for record in caplog.records] == [error]


def test_a_pool_that_ended_takes_nothing():
    """`submit` after `shutdown` is a RuntimeError."""
    with pooled() as pool:
        pass

    with pytest.raises(RuntimeError, match="the pool has ended"):
        pool.submit(lambda: 7)


def test_idle_workers_end_with_their_pool():
    """Idle workers end when the pool is shut down, and when it is dropped."""
    with pooled() as pool:
        worker = result(pool, threading.current_thread)
    worker.join(WAIT_S)
    assert not worker.is_alive()

    pool = DaemonPool("yiem-test-dropped")
    worker = result(pool, threading.current_thread)
    del pool
    gc.collect()
    worker.join(WAIT_S)

    assert not worker.is_alive()


def test_a_busy_worker_ends_when_its_task_is_done():
    """A worker that has a task when its pool ends does it, and then ends."""
    given = SimpleQueue()
    with Hold() as hold, pooled() as pool:
        pool.submit(lambda: (hold(), given.put(threading.current_thread())))
        hold.wait()
        pool.shutdown()
    worker = given.get(timeout=WAIT_S)
    worker.join(WAIT_S)

    assert not worker.is_alive()


def test_submitting_beside_the_end_loses_no_task_it_took():
    """Each task that `submit` accepted runs, whatever moment the pool ends at."""
    for _ in range(50):
        pool, ran, accepted = DaemonPool("yiem-test-tool"), SimpleQueue(), 0
        result(pool, int)
        ender = threading.Thread(target=pool.shutdown)
        ender.start()
        with contextlib.suppress(RuntimeError):
            for _ in range(20):
                pool.submit(ran.put, None)
                accepted += 1
        ender.join(WAIT_S)
        for _ in range(accepted):
            ran.get(timeout=WAIT_S)

        assert ran.empty()


HUNG = """
import importlib.util, threading, sys
spec = importlib.util.spec_from_file_location("pool", sys.argv[1])
pool_room = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pool_room)
pool = pool_room.DaemonPool("yiem-test")
started, done = threading.Event(), threading.Event()
import time
pool.submit(lambda: (started.set(), time.sleep(3600)))
assert started.wait(20)
pool.submit(done.set)
assert done.wait(20)
print("done")
"""


def pythons():
    """This Python, and each newer one at hand that the pool must work with."""
    found = [sys.executable]
    for minor in range(12, 16):
        path = shutil.which(f"python3.{minor}")
        if path is None:
            continue
        works = subprocess.run([path, "-V"], capture_output=True, check=False).returncode == 0
        if works:
            found.append(path)
    return found


@pytest.mark.parametrize("python", pythons())
def test_the_interpreter_exits_with_a_hung_worker(python):
    """A worker in `time.sleep(3600)` keeps no version of Python from exiting."""
    room = ROOT / "yiemagent" / "pool.py"
    done = subprocess.run(
        [python, "-W", "error", "-c", HUNG, str(room)],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
