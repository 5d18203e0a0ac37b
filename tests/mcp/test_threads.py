"""Threads of the client."""

from __future__ import annotations

import threading
from queue import SimpleQueue

import pytest

from yiemagent.errors import McpTransportError
from yiemagent.mcp.calls import Alarm
from yiemagent.mcp.client import McpClient
from yiemagent.mcp.http_server import HttpServer
from yiemagent.mcp.threads import start_daemon


@pytest.fixture
def no_thread():
    """For the test the system gives no thread: none has so much memory for its stack."""
    before = threading.stack_size(2**46)
    yield
    threading.stack_size(before)


def test_a_daemon_runs_its_function():
    """With its arguments and under its name."""
    seen = SimpleQueue()
    start_daemon("yiem-test", lambda word: seen.put((word, threading.current_thread().name)), "x")

    assert seen.get(timeout=5) == ("x", "yiem-test")


def test_no_thread_to_be_had_is_an_error_of_the_transport(no_thread):
    """Where the system gives none, and nothing is half begun."""
    with pytest.raises(McpTransportError, match="no thread 'yiem-test' to be had"):
        start_daemon("yiem-test", print)
    alarm = Alarm("yiem-test-alarm")
    with pytest.raises(McpTransportError):
        alarm.set(1, print)
    with pytest.raises(McpTransportError):
        McpClient(HttpServer("http://127.0.0.1:1/sse", transport="sse")).connect()
