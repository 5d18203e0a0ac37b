"""Where what a server says unasked goes."""

from __future__ import annotations

import subprocess
import sys
import threading
from queue import SimpleQueue

import pytest

from yiemagent.mcp.client_protocol import (
    Cancelled,
    ListChanged,
    LogMessage,
    Progress,
    ResourceUpdated,
)
from yiemagent.mcp.desk import Desk
from yiemagent.mcp.handlers import ServerRequests
from yiemagent.mcp.jsonrpc import Request

ELICIT = Request("q", "elicitation/create", {"requestedSchema": {}})


@pytest.fixture
def make():
    """A function that makes desks, which are closed after the test."""
    made = []

    def make(**handlers):
        made.append(Desk("test", ServerRequests(**handlers)))
        return made[-1]

    yield make
    for desk in made:
        desk.close()


def test_news_is_told_to_those_who_listen(make):
    """Each kind to its own listeners, in order; what nobody wants is dropped at once."""
    desk, told = make(), SimpleQueue()
    desk.listen(LogMessage, told.put)
    take_back = desk.listen(ListChanged, told.put)
    for event in (
        LogMessage("info", 1),
        ListChanged("tools"),
        ResourceUpdated("a"),
        Progress(1, {}),
        None,
    ):
        desk.take(event)

    assert [told.get(timeout=5), told.get(timeout=5)] == [
        LogMessage("info", 1),
        ListChanged("tools"),
    ]
    assert desk.has_listeners(ListChanged)
    take_back()
    take_back()
    desk.take(ListChanged("tools"))
    desk.take(LogMessage("info", 2))
    assert told.get(timeout=5) == LogMessage("info", 2)
    assert not desk.has_listeners(ListChanged)


def test_all_is_noticed_first():
    """Whoever keeps what the news make stale hears them before any listener, and hears of everything."""
    noticed = []
    desk = Desk("test", ServerRequests(), noticed.append)
    desk.take(ListChanged("tools"))
    desk.take(Cancelled(1))
    desk.take(None)
    desk.close()

    assert noticed == [ListChanged("tools"), Cancelled(1)]


def test_news_that_repeats_is_told_once(make):
    """While a listener is busy, the same change of a list waits once; log records are all different."""
    desk, told, busy, go_on = make(), SimpleQueue(), threading.Event(), threading.Event()

    def listen(event):
        busy.set()
        go_on.wait(10)
        told.put(event)

    desk.listen(ListChanged, listen)
    desk.listen(LogMessage, listen)
    desk.take(ListChanged("tools"))
    busy.wait(5)
    for _ in range(5):
        desk.take(ListChanged("tools"))
        desk.take(LogMessage("info", "same"))
    desk.take(ListChanged("prompts"))
    go_on.set()
    events = [told.get(timeout=5) for _ in range(8)]

    assert events.count(ListChanged("tools")) == 2
    assert events.count(LogMessage("info", "same")) == 5
    assert events[-1] == ListChanged("prompts")


def test_a_slow_listener_loses_the_oldest_news(make):
    """A flood takes a bounded place and blocks nobody; what was lost is counted."""
    desk, told, busy, go_on = make(), SimpleQueue(), threading.Event(), threading.Event()

    def listen(event):
        busy.set()
        go_on.wait(10)
        told.put(event.data)

    desk.listen(LogMessage, listen)
    desk.take(LogMessage("info", -1))
    busy.wait(5)
    for number in range(50_000):
        desk.take(LogMessage("info", number))
    go_on.set()
    seen = [told.get(timeout=5) for _ in range(1001)]

    assert seen == [-1, *range(49_000, 50_000)]
    assert desk.dropped == 49_000


def test_a_listener_that_raises_keeps_nobody_from_being_told(make, caplog):
    """It is logged, and the others hear."""
    desk, told = make(), SimpleQueue()
    desk.listen(ListChanged, lambda event: event.no_such_thing)
    desk.listen(ListChanged, told.put)
    desk.take(ListChanged("tools"))

    assert told.get(timeout=5) == ListChanged("tools")
    assert "no_such_thing" in caplog.text


def test_a_ping_is_answered_at_once(make):
    """By whoever reads it, without a thread."""
    replies = []
    make().answer(Request("p", "ping"), replies.append)

    assert replies == [{"jsonrpc": "2.0", "id": "p", "result": {}}]


def test_questions_are_answered_by_the_handlers(make):
    """On threads of their own, so that one that takes long holds nobody up."""
    replies, go_on = SimpleQueue(), threading.Event()

    def handler(params):
        if params.get("slow"):
            go_on.wait(10)
        return {"a": 1}

    desk = make(elicitation=handler)
    desk.answer(Request(0, "elicitation/create", {"slow": True}), replies.put)
    desk.answer(ELICIT, replies.put)
    first = replies.get(timeout=5)
    go_on.set()
    second = replies.get(timeout=5)

    assert first == {
        "jsonrpc": "2.0",
        "id": "q",
        "result": {"action": "accept", "content": {"a": 1}},
    }
    assert second["id"] == 0


@pytest.mark.parametrize(
    "request_, code, words",
    [
        (Request(1, "roots/list"), -32601, "does not offer"),
        (Request(1, "no/such"), -32601, "does not offer"),
        (ELICIT, -32603, "KeyError: 'oops'"),
    ],
)
def test_a_question_that_fails_is_answered_with_an_error(make, request_, code, words):
    """No handler, or one that raises: the server never waits in vain."""
    replies = SimpleQueue()
    make(elicitation=lambda params: {}["oops"]).answer(request_, replies.put)
    reply = replies.get(timeout=5)

    assert reply["error"]["code"] == code
    assert words in reply["error"]["message"]


def test_a_question_that_was_taken_back_gets_no_answer(make):
    """The server cancelled it while the handler was busy."""
    replies, busy, go_on, done = (
        SimpleQueue(),
        threading.Event(),
        threading.Event(),
        threading.Event(),
    )

    def handler(params):
        busy.set()
        go_on.wait(10)
        return {}

    desk = make(elicitation=handler)
    desk.answer(ELICIT, replies.put)
    busy.wait(5)
    desk.take(Cancelled("q"))
    go_on.set()
    desk.work(done.set)
    done.wait(5)
    desk.answer(Request(2, "roots/list"), replies.put)

    assert replies.get(timeout=5)["id"] == 2


def test_too_many_questions_are_refused(make):
    """A server that floods the client with questions gets errors, not threads."""
    replies, go_on = SimpleQueue(), threading.Event()
    desk = make(elicitation=lambda params: go_on.wait(10) and {})
    for number in range(40):
        desk.answer(Request(number, "elicitation/create", {}), replies.put)
    refused = [replies.get(timeout=5) for _ in range(8)]
    go_on.set()
    answered = [replies.get(timeout=5) for _ in range(32)]

    assert all("wait for an answer" in reply["error"]["message"] for reply in refused)
    assert all("result" in reply for reply in answered)


def test_a_forked_child_has_workers_of_its_own():
    """The parent's are not there."""
    script = (
        "import os, sys, threading, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "from yiemagent.mcp.desk import Desk\n"
        "from yiemagent.mcp.handlers import ServerRequests\n"
        "desk, done = Desk('test', ServerRequests()), threading.Event()\n"
        "desk.work(done.set)\n"
        "done.wait(10)\n"
        "done = threading.Event()\n"
        "if os.fork() == 0:\n"
        "    desk.work(done.set)\n"
        "    os._exit(0 if done.wait(10) else 1)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], timeout=50, check=False)

    assert done.returncode == 0


def test_a_closed_desk_takes_nothing(make):
    """News and questions after the end are dropped."""
    desk, told = make(elicitation=lambda params: {}), SimpleQueue()
    desk.listen(ListChanged, told.put)
    desk.close()
    desk.close()
    desk.take(ListChanged("tools"))
    desk.answer(ELICIT, told.put)

    assert told.empty()
