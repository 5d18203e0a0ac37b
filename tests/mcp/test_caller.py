"""What code can say to the client behind its call, and ask of it."""

from __future__ import annotations

import queue

import pytest

from yiemagent.abort import AbortSignal
from yiemagent.errors import ToolError
from yiemagent.mcp.caller import InputNeeded, McpCaller, Reach, current_caller
from yiemagent.mcp.server_protocol import Call
from yiemagent.tool import AgentToolResult

FORM = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
ELICIT = {
    "method": "elicitation/create",
    "params": {"message": "How many?", "requestedSchema": FORM},
}
ROOTS = {"method": "roots/list"}
SAMPLE = {"method": "sampling/createMessage", "params": {}}
ALL = {"elicitation": {}, "sampling": {}, "roots": {}}


class Peer:
    """A caller whose client is a queue and a table of answers."""

    def __init__(
        self,
        version="2025-11-25",
        *,
        capabilities=ALL,
        token=None,
        level=None,
        answers=None,
        replies=(),
        interrupt=None,
    ):
        self.sent = queue.SimpleQueue()
        self.asked = []
        self.replies = list(replies)
        params = {} if token is None else {"_meta": {"progressToken": token}}
        call = Call(1, "tools/call", params, version, capabilities, {}, level)
        reach = Reach(AbortSignal(), self.sent.put, self.reply, interrupt=interrupt)
        self.caller = McpCaller(call, reach, answers)

    def reply(self, method, params):
        """Give the next answer of the client."""
        self.asked.append((method, dict(params)))
        return self.replies.pop(0)

    def all_sent(self):
        """The method and parameters of what was sent so far."""
        found = []
        while not self.sent.empty():
            message = self.sent.get()
            found.append((message["method"], message["params"]))
        return found


def test_outside_of_a_call_there_is_no_caller():
    """Code that runs for somebody else finds none."""
    assert current_caller() is None


# -- saying -----------------------------------------------------------------------------------------------------------


def test_logs_go_out_from_the_level_that_is_wanted():
    """What is less severe stays here, and so does everything where no level is named."""
    peer, silent = Peer(level="warning"), Peer()
    for level in ("info", "warning", "emergency"):
        peer.caller.log(level, {"l": level}, "part")
        silent.caller.log(level, "x")

    assert peer.all_sent() == [
        ("notifications/message", {"level": level, "data": {"l": level}, "logger": "part"})
        for level in ("warning", "emergency")
    ]
    assert silent.all_sent() == []
    with pytest.raises(ValueError):
        peer.caller.log("loud", "x")


def test_progress_only_grows():
    """Numbers that are not above the one before are dropped."""
    peer = Peer(token="t")
    for done in (0, 1, 1, 0.5, 2):
        peer.caller.progress(done, 2, "m")

    assert [params["progress"] for _, params in peer.all_sent()] == [0, 1, 2]


def test_without_a_token_there_is_no_progress():
    """Nobody asked for it."""
    peer = Peer()
    peer.caller.progress(1)
    peer.caller.partial("x")

    assert peer.all_sent() == []


@pytest.mark.parametrize(
    ("given", "params"),
    [
        (3, {"progress": 3}),
        (
            {"progress": 5, "total": 10, "message": "half"},
            {"progress": 5, "total": 10, "message": "half"},
        ),
        ({"progress": 5, "total": "many", "message": 1}, {"progress": 5}),
        ("first", {"progress": 1, "message": "first"}),
        (True, {"progress": 1, "message": "True"}),
        ({"a": 1}, {"progress": 1, "message": "{'a': 1}"}),
        (AgentToolResult("half"), {"progress": 1, "message": "half"}),
    ],
)
def test_what_a_tool_tells_becomes_progress(given, params):
    """Numbers and dicts of MCP's form are progress, anything else is a message that counts."""
    peer = Peer(token=7)
    peer.caller.partial(given)

    assert peer.all_sent() == [("notifications/progress", {"progressToken": 7, **params})]


def test_after_its_end_a_call_is_silent():
    """Neither logs nor progress go out behind the answer."""
    peer = Peer(token=1, level="debug")
    peer.caller.end()
    peer.caller.log("error", "x")
    peer.caller.progress(1)

    assert peer.all_sent() == []


def test_a_stream_is_interrupted_where_it_can_be():
    """Where the transport can't, nothing happens."""
    times = []
    Peer(interrupt=lambda: times.append(1)).caller.interrupt()
    Peer().caller.interrupt()

    assert times == [1]


# -- asking, after a handshake ----------------------------------------------------------------------------------------


def test_a_question_waits_for_its_answer():
    """Each question goes out in turn, and an answer is asked for once."""
    good = {"action": "accept", "content": {"n": 3}}
    peer = Peer(replies=[good, {"roots": []}])
    answers = peer.caller.ask({"how_many": ELICIT, "where": ROOTS})

    assert answers == {"how_many": good, "where": {"roots": []}}
    assert peer.asked == [("elicitation/create", ELICIT["params"]), ("roots/list", {})]
    assert peer.caller.ask({"where": ROOTS}) == {"where": {"roots": []}}
    assert len(peer.asked) == 2


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        ({"action": "accept", "content": {"n": 3}}, {"n": 3}),
        ({"action": "decline"}, None),
        ({"action": "cancel"}, None),
    ],
)
def test_a_form_gives_its_content_or_none(answer, content):
    """A form that was declined or closed has none."""
    assert Peer(replies=[answer]).caller.elicit("k", "How many?", FORM) == content


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (ELICIT, None),
        (ELICIT, {"action": "maybe"}),
        (ELICIT, {"action": "accept", "content": {"n": "many"}}),
        (ELICIT, {"action": "accept", "content": 5}),
        (ELICIT, {"action": "accept"}),
        (ROOTS, {}),
        (SAMPLE, {"role": "assistant"}),
    ],
)
def test_an_answer_that_is_none_is_an_error(question, answer):
    """The tool fails in words that name the question."""
    with pytest.raises(ToolError, match="'k'"):
        Peer(replies=[answer]).caller.ask({"k": question})


@pytest.mark.parametrize("question", [ELICIT, ROOTS, SAMPLE])
def test_a_client_is_asked_what_it_declared(question):
    """Without the capability nothing goes out, and the tool fails."""
    peer = Peer(capabilities={})

    with pytest.raises(ToolError, match="does not have"):
        peer.caller.ask({"k": question})
    assert peer.asked == []
    assert peer.caller.failure is None


def test_a_client_can_be_asked_three_things():
    """Any other method is a mistake of the tool."""
    with pytest.raises(ValueError, match="can't be asked"):
        Peer().caller.ask({"k": {"method": "tools/call"}})


# -- asking, in the stateless era -------------------------------------------------------------------------------------


def stateless(**options):
    """A caller of the stateless era."""
    return Peer("2026-07-28", **options)


def test_a_question_ends_the_call_and_its_answer_comes_with_the_next():
    """What is missing is noted for the client; what came is given."""
    first = stateless()
    with pytest.raises(InputNeeded):
        first.caller.ask({"where": ROOTS, "how_many": ELICIT})
    good = {"action": "accept", "content": {"n": 3}}
    second = stateless(answers={"where": {"roots": []}, "how_many": good, "more": {}})

    assert first.caller.needed == {"where": ROOTS, "how_many": ELICIT}
    assert second.caller.ask({"where": ROOTS, "how_many": ELICIT})["how_many"] == good
    assert second.caller.needed == {}
    assert second.caller.answered == {"where": {"roots": []}, "how_many": good}
    assert first.asked == second.asked == []


def test_only_what_is_missing_is_asked_again():
    """An answer that came is not asked for once more."""
    peer = stateless(answers={"where": {"roots": []}})
    with pytest.raises(InputNeeded):
        peer.caller.ask({"where": ROOTS, "how_many": ELICIT})

    assert list(peer.caller.needed) == ["how_many"]


def test_a_missing_capability_is_the_answer():
    """The error names what the client would have to declare."""
    peer = stateless(capabilities={"roots": {}})
    with pytest.raises(ToolError):
        peer.caller.ask({"a": ROOTS, "b": SAMPLE})

    assert peer.caller.failure.code == -32021
    assert peer.caller.failure.data == {"requiredCapabilities": {"sampling": {}}}
    peer.caller.require("roots")


def test_a_bad_answer_is_the_error():
    """An answer that does not fit its form is refused as bad parameters."""
    peer = stateless(answers={"k": {"action": "accept", "content": {"n": "many"}}})
    with pytest.raises(ToolError):
        peer.caller.ask({"k": ELICIT})

    assert peer.caller.failure.code == -32602
