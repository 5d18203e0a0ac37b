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
from yiemagent.daemon import DaemonThread
from yiemagent.pool import DaemonPool

ROOT = pathlib.Path(__file__).resolve().parent.parent


@contextlib.contextmanager
def pooled(name="yiem-test-tool"):
    """A pool that is ended without waiting for anybody."""
    pool = DaemonPool(name)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False)


def test_workers_are_named_daemons_unknown_to_the_exit_hook():
    """A worker is a daemon with a name that counts, and `concurrent.futures` does not wait for it at exit."""
    with pooled() as pool:
        worker = pool.submit(threading.current_thread).result(WAIT_S)

        assert worker.daemon
        assert worker.name == "yiem-test-tool-1"
        assert worker not in concurrent.futures.thread._threads_queues


def test_tasks_never_wait_for_each_other():
    """As many tasks as there are run side by side."""
    barrier = threading.Barrier(20)
    with pooled() as pool:
        futures = [pool.submit(barrier.wait, WAIT_S) for _ in range(20)]

        assert sorted(future.result(WAIT_S) for future in futures) == list(range(20))


def test_an_idle_worker_is_used_again():
    """One task after another needs no second thread."""
    with pooled() as pool:
        first = pool.submit(threading.get_ident).result(WAIT_S)
        # The worker counts as idle a moment after the result is there.
        assert pool._idle_semaphore.acquire(timeout=WAIT_S)
        pool._idle_semaphore.release()

        assert pool.submit(threading.get_ident).result(WAIT_S) == first


def test_a_hung_task_takes_nobodys_place():
    """A worker that never comes back leaves the next task a thread of its own."""
    with Hold() as hold, pooled() as pool:
        pool.submit(hold)
        hold.wait()

        assert pool.submit(lambda: 7).result(WAIT_S) == 7


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), ValueError()], ids=repr)
def test_a_task_that_raises_ends_no_worker(error):
    """What a task raises is in its future, and the pool goes on."""

    def task():
        raise error

    with pooled() as pool:
        assert pool.submit(task).exception(WAIT_S) is error
        assert pool.submit(lambda: 7).result(WAIT_S) == 7


def test_a_pool_that_ended_takes_nothing():
    """`submit` and `start` after `shutdown` are a RuntimeError."""
    with pooled() as pool:
        pass

    with pytest.raises(RuntimeError):
        pool.submit(lambda: 7)
    with pytest.raises(RuntimeError, match="the pool has ended"):
        pool.start(lambda: 7)


def test_a_started_task_runs_with_its_arguments():
    """`start` calls the function on a worker, the one that is idle already."""
    given = SimpleQueue()
    with pooled() as pool:
        pool.start(lambda *args: given.put((threading.current_thread().name, *args)), 1, 2)

        assert given.get(timeout=WAIT_S) == ("yiem-test-tool-1", 1, 2)


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), ValueError()], ids=repr)
def test_what_a_started_task_raises_is_logged(error, caplog):
    """Nobody waits for it, and its worker goes on."""
    caplog.set_level(logging.WARNING, "yiemagent.pool")
    with pooled() as pool:
        pool.start(raising(error))
        # The worker counts as idle a moment after the task is done.
        assert pool._idle_semaphore.acquire(timeout=WAIT_S)
        pool._idle_semaphore.release()

        assert pool.submit(threading.current_thread).result(WAIT_S).name == "yiem-test-tool-1"
    assert [record.exc_info[1] for record in caplog.records] == [error]


def test_workers_end_with_their_pool():
    """Idle workers end when the pool is shut down, and when it is dropped."""
    with pooled() as pool:
        worker = pool.submit(threading.current_thread).result(WAIT_S)
    worker.join(WAIT_S)
    assert not worker.is_alive()

    pool = DaemonPool("yiem-test-dropped")
    worker = pool.submit(threading.current_thread).result(WAIT_S)
    del pool
    gc.collect()
    worker.join(WAIT_S)

    assert not worker.is_alive()


HUNG = """
import importlib.util, threading, sys
spec = importlib.util.spec_from_file_location("pool", sys.argv[1])
pool_room = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pool_room)
pool = pool_room.DaemonPool("yiem-test")
started = threading.Event()
import time
pool.submit(lambda: (started.set(), time.sleep(3600)))
assert started.wait(20)
assert pool.submit(lambda: 7).result(20) == 7
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


def test_starting_a_worker_does_not_wait_for_it():
    """A worker that does not run yet is not alive and is waited for; then it is a thread like any other."""
    with Hold() as hold:
        worker = DaemonThread(target=hold, name="yiem-test-worker")
        worker.join(0.0)
        assert not worker.is_alive()
        worker.start()
        hold.wait()
        assert worker.is_alive()
        worker.join(0.0)
        assert worker.is_alive()
        with pytest.raises(RuntimeError):
            worker.start()
    worker.join(WAIT_S)
    assert not worker.is_alive()
