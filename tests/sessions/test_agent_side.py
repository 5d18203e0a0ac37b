"""A session as an agent works on it."""

from __future__ import annotations

import pytest

from tests.sessions.stores import HEADER, files
from tests.sessions.words import CALLS, DONE, HI, NOON, A, B, texts, user
from yiemagent.errors import ConfigurationError, SessionError
from yiemagent.events import (
    AgentEndEvent,
    AgentStartEvent,
    CompactionEndEvent,
    MessageEndEvent,
    MessageUpdateEvent,
    TurnEndEvent,
)
from yiemagent.messages import (
    AssistantMessage,
    CompactionSummaryMessage,
    CustomMessage,
)
from yiemagent.sessions import (
    CompactionBody,
    MessageBody,
    PartialBody,
    Session,
    ToolCallStartedBody,
    WithdrawnBody,
)
from yiemagent.sessions.store import MemoryStore
from yiemagent.streaming import PartialMessage, StartEvent, TextDeltaEvent, TextStartEvent
from yiemagent.testing import FakeClock

# -- whose it is ------------------------------------------------------------------------------------------------------


def test_one_agent_works_on_a_session(session):
    """A second is refused; while one works, only it may change the conversation, and afterwards others may."""
    session.attach("one")
    with pytest.raises(ConfigurationError, match="agent 'one' works on this session"):
        session.attach("two")
    for change in (lambda: session.add_message(HI), lambda: session.branch(None)):
        with pytest.raises(SessionError, match="agent 'one' works on the session"):
            change()
    session.add_custom("note")
    session.detach()

    session.attach("two")


# -- what runs tell ---------------------------------------------------------------------------------------------------


def test_a_compaction_that_is_told_of_is_written(session):
    """The summary stands for all but the messages that are kept, however they came into the session."""
    queued = user("c")
    session.accept("input", queued)
    for message in (user("a"), user("b"), queued, user("d")):
        session.record(MessageEndEvent(message))
    session.record(CompactionEndEvent("failed", {"error": "x"}))
    summary = CompactionSummaryMessage("a and b", 50, NOON)
    session.record(CompactionEndEvent("shortened", {"n": 1}, summary=summary, kept=2))

    entry = session.entries()[-1]
    assert entry.body == CompactionBody("a and b", 4, 50, {"n": 1})
    assert texts(session) == ["a and b", "c", "d"]
    session.record(CompactionEndEvent("shortened", summary=summary, kept=0))
    assert session.messages[0].summary == "a and b"
    assert len(session.messages) == 1


@files
def test_calls_that_may_run_again_are_left_open(name, tmp_path):
    """Asked for it before anything else, the session leaves those open that had started and are agreed to."""
    with Session.create(tmp_path / name) as session:
        session.add_message(CALLS)
        session.append(ToolCallStartedBody("a", "work"))
        session.append(ToolCallStartedBody("b", "work"))
    with Session.open(tmp_path / name) as session:
        left = session.reopen(lambda call: call.id == "b")
        assert [message.role for message in left] == ["assistant", "toolResult"]
        assert left[1].tool_call_id == "a"
        session.record(AgentStartEvent())
        assert session.reopen(lambda _call: False) == left  # the run has begun
    with Session.open(tmp_path / name) as session:
        assert [m.tool_call_id for m in session.messages[1:]] == ["a", "b"]


# -- what waits -------------------------------------------------------------------------------------------------------


def test_what_was_accepted_waits_until_it_is_told_of(session):
    """A message that was accepted is written once, and is part of the conversation when the run tells of it."""
    steer, later = user("steer"), user("later")
    session.accept("steering", steer)
    session.accept("follow_up", later)
    assert session.waiting == (("steering", steer), ("follow_up", later))

    session.record(MessageEndEvent(later))

    assert session.waiting == (("steering", steer),)
    assert session.messages == (later,)
    assert [entry.type for entry in session.entries()] == ["queued", "queued", "delivered"]


def test_one_message_may_wait_twice(session):
    """The same object, sent twice, is delivered twice, one after the other."""
    session.accept("input", HI)
    session.accept("input", HI)
    session.record(MessageEndEvent(HI))
    assert len(session.waiting) == 1
    session.record(MessageEndEvent(HI))
    session.record(MessageEndEvent(HI))

    assert session.messages == (HI, HI, HI)
    assert session.waiting == ()
    assert session.entries()[-1].type == "message"


def test_what_is_handed_back_waits_no_more(session):
    """A message that its sender has again is not restored; others are."""
    one, two = user("one"), user("two")
    session.accept("steering", one)
    session.accept("input", two)
    session.hand_back([one, user("never seen")])
    session.hand_back([])

    assert session.waiting == (("input", two),)
    assert session.entries()[-1].body == WithdrawnBody((1,))


@files
def test_what_waited_is_restored(name, tmp_path):
    """After opening, the messages wait as before, and are delivered as the objects that were given."""
    with Session.create(tmp_path / name) as session:
        session.accept("input", user("one"))
        session.accept("follow_up", CustomMessage("note", "two", timestamp=NOON))
    with Session.open(tmp_path / name) as session:
        restored = session.restored()
        assert [(kind, message.content[0].text) for kind, message in restored] == [
            ("input", "one"),
            ("follow_up", "two"),
        ]
        session.record(MessageEndEvent(restored[1][1]))
        assert session.waiting == (restored[0],)


def test_what_comes_of_an_answer_is_written_after_a_while():
    """Whoever opens the session of a process that was killed then has it, as an answer that was aborted."""
    ticks, store = FakeClock(), MemoryStore(HEADER)
    session = Session(store, ticks=ticks)
    session.record(MessageEndEvent(HI))
    texts = [TextDeltaEvent(0, text) for text in ("There ", "are ", "seven")]
    for event in (StartEvent(), TextStartEvent(0), *texts):
        ticks.advance(0.3)
        session.record(MessageUpdateEvent(event, PartialMessage.first()))

    assert [entry.type for entry in session.entries()] == ["message", "partial"]
    answer = Session(store).messages[-1]
    assert (answer.text, answer.stop_reason) == ("There are seven", "aborted")


class Synced(MemoryStore):
    """A store that notes how many lines it had whenever it was written through."""

    def __init__(self):
        super().__init__(HEADER)
        self.at = []

    def sync(self):
        """Note how far it is."""
        self.at.append(len(self))


@pytest.mark.parametrize(("batch", "at"), [(True, [2, 3]), (False, [])])
def test_a_batch_is_written_through_when_its_turn_and_its_run_are_over(batch, at):
    """Not before, and not where each entry is written through by itself."""
    store = Synced()
    session = Session(store, batch=batch)
    failed = AssistantMessage(stop_reason="error", error_message="x")
    for event in (
        AgentStartEvent(),
        MessageEndEvent(HI),
        MessageEndEvent(failed),
        TurnEndEvent(failed),
        AgentEndEvent((), failed),
    ):
        session.record(event)

    assert store.at == at


# -- failures ---------------------------------------------------------------------------------------------------------


class Full(MemoryStore):
    """A store whose disk is full after so many more lines."""

    left = 0

    def append(self, line, *, durable=True):
        """Take a line, or none any more."""
        if self.left <= 0:
            raise SessionError("the disk is full")
        self.left -= 1
        super().append(line, durable=durable)


class Interrupted(MemoryStore):
    """A store in which an interrupt comes right after the write."""

    interrupted = False

    def append(self, line, *, durable=True):
        """Take a line, and be interrupted once."""
        super().append(line, durable=durable)
        if not self.interrupted:
            self.interrupted = True
            raise KeyboardInterrupt


def test_what_could_not_be_written_goes_before_anything_else():
    """What a run told and a full disk did not take is written, in order, as soon as there is space."""
    store = Full(HEADER)
    session = Session(store)
    for message in (HI, DONE):
        with pytest.raises(SessionError, match="the disk is full"):
            session.record(MessageEndEvent(message))
    assert session.messages == (HI, DONE)
    with pytest.raises(SessionError, match="the disk is full"):
        session.record(AgentStartEvent())
    with pytest.raises(SessionError, match="the disk is full"):
        session.branch(None)
    store.left = 1
    with pytest.raises(SessionError, match="the disk is full"):
        session.add_message(user("more"))
    assert [entry.body for entry in session.entries()] == [MessageBody(HI)]
    store.left = 9
    session.record(AgentStartEvent())

    assert [entry.body for entry in session.entries()] == [MessageBody(HI), MessageBody(DONE)]
    assert session.messages == (HI, DONE)


@files
def test_a_fork_has_what_could_not_be_written(name, tmp_path):
    """Another disk takes the whole conversation, and the one that is full is not written to."""
    store = Full(HEADER)
    session = Session(store)
    store.left = 2
    session.accept("steering", HI)
    session.add_message(user("go"))
    for message in (HI, DONE):
        with pytest.raises(SessionError, match="the disk is full"):
            session.record(MessageEndEvent(message))

    with session.fork(tmp_path / name) as fork:
        assert fork.messages == session.messages == (user("go"), HI, DONE)
        fork.add_message(user("more"))
    with Session.open(tmp_path / name) as again:
        assert again.messages == (*session.messages, user("more"))
    assert len(session.entries()) == 2


def test_a_message_that_is_not_accepted_does_not_wait():
    """Where it can't be written that a message waits, it does not, not even later."""
    store = Full(HEADER)
    session = Session(store)
    with pytest.raises(SessionError, match="the disk is full"):
        session.accept("steering", HI)
    store.left = 9
    session.record(AgentStartEvent())

    assert (session.waiting, session.entries()) == ((), [])


def test_a_call_whose_start_is_not_written_has_not_begun():
    """Its start does not wait: the call is not run, and nothing may say later that it was."""
    store = Full(HEADER)
    store.left = 1
    session = Session(store)
    session.record(MessageEndEvent(CALLS))
    with pytest.raises(SessionError, match="the disk is full"):
        session.record_call(A)
    store.left = 9
    session.record(AgentStartEvent())
    session.record_call(B)

    assert [entry.body for entry in session.entries()] == [
        MessageBody(CALLS),
        ToolCallStartedBody("b", "work"),
    ]


def test_a_piece_of_an_answer_that_is_not_written_is_forgotten():
    """Pieces are no messages: they don't wait, and none is written behind messages that do."""
    store = Full(HEADER)
    session = Session(store)
    with pytest.raises(SessionError):
        session.record(MessageEndEvent(HI))
    session._log.write_partial(PartialBody(None, (TextDeltaEvent(0, "x"),)))
    store.left = 9
    session.record(AgentStartEvent())

    assert [entry.type for entry in session.entries()] == ["message"]


def test_an_interrupt_right_after_a_write_loses_and_doubles_nothing():
    """What stands in the store is known to the session at its next step."""
    session = Session(Interrupted(HEADER))
    with pytest.raises(KeyboardInterrupt):
        session.record(MessageEndEvent(HI))
    session.record(MessageEndEvent(DONE))

    assert [(entry.id, entry.parent_id) for entry in session.entries()] == [(1, None), (2, 1)]
    assert session.messages == (HI, DONE)
