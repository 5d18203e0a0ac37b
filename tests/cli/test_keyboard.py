"""Reading all of the input, and being interrupted in it."""

from __future__ import annotations

import io
import os
import signal
import threading

import pytest

from yiemagent.cli.keyboard import read_all


@pytest.fixture
def pipe():
    """A text stream over a pipe, and the end to write to."""
    read, write = os.pipe()
    with os.fdopen(read, encoding="utf-8") as stream, os.fdopen(write, "wb", buffering=0) as end:
        yield stream, end


def test_all_of_a_pipe_is_read(pipe):
    """Everything up to the end is given, also where a character is cut in two and what is no text."""
    stream, end = pipe
    data = "å".encode() * 40_000
    writer = threading.Thread(
        target=lambda: (end.write(data[:1]), end.write(data[1:]), end.close())
    )
    writer.start()
    text = read_all(stream)
    writer.join()

    assert text == "å" * 40_000


def test_what_is_no_text_is_replaced(pipe):
    """Bytes that are no UTF-8 become the sign for that."""
    stream, end = pipe
    end.write(b"a\xffb")
    end.close()

    assert read_all(stream) == "a\ufffdb"


def test_text_in_memory_is_read():
    """A stream without a file is read as it is."""
    assert read_all(io.StringIO("Hello")) == "Hello"


def test_a_thread_of_its_own_may_read(pipe):
    """Outside the main thread, where no signal comes, the input is read all the same."""
    stream, end = pipe
    end.write(b"Hello")
    end.close()
    texts = []
    reader = threading.Thread(target=lambda: texts.append(read_all(stream)))
    reader.start()
    reader.join()

    assert texts == ["Hello"]


def test_a_signal_that_ends_nothing_is_passed_over(pipe):
    """A signal whose handler returns leaves the reading as it was, and the old wake-up descriptor is set again."""
    stream, end = pipe
    handled = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: (handled.set(), end.write(b"x"), end.close()))
    signaller = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    signaller.start()
    try:
        text = read_all(stream)
    finally:
        signaller.join()
        signal.signal(signal.SIGUSR1, before)

    assert text == "x"
    assert handled.is_set()
    assert signal.set_wakeup_fd(-1) == -1


def test_ctrl_c_ends_the_wait(pipe):
    """A KeyboardInterrupt leaves the reading although nothing comes and nothing ends."""
    stream, _ = pipe
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    signaller = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT))
    signaller.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            read_all(stream)
    finally:
        signaller.join()
        signal.signal(signal.SIGINT, before)
