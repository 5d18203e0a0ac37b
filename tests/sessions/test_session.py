"""A session, as programs hold it."""

from __future__ import annotations

import itertools
import os
import pathlib
import tempfile
import threading
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.sessions.stores import FILES, HEADER, JSONL, files
from tests.sessions.words import CALLS, DONE, HI, NOON, texts, user
from yiemagent.errors import ConfigurationError, SessionError
from yiemagent.events import AgentStartEvent, MessageEndEvent
from yiemagent.history import check
from yiemagent.messages import (
    BranchSummaryMessage,
    CompactionSummaryMessage,
    ToolResultMessage,
)
from yiemagent.sessions import (
    CompactionBody,
    DeliveredBody,
    Entry,
    MessageBody,
    PartialBody,
    RunEndBody,
    Session,
    ToolCallStartedBody,
)
from yiemagent.sessions.entries import encode
from yiemagent.streaming import TextDeltaEvent, TextStartEvent

# -- making and opening -----------------------------------------------------------------------------------------------


def test_a_session_in_a_folder_gets_a_name_from_time_and_id(tmp_path):
    """Files in a folder sort by their time and never meet."""
    with Session.create(tmp_path, clock=lambda: NOON, name="trip") as session:
        assert session.path == tmp_path / f"20260131-120000-{session.id[:8]}.jsonl"
        assert (session.header.name, session.header.time) == ("trip", NOON)
    with Session.create(tmp_path, store="sqlite") as session:
        assert session.path.suffix == ".db"


@files
def test_a_session_may_have_a_name_of_its_own(name, tmp_path):
    """A path with a known ending is the file itself; opened again it is the same session."""
    with Session.create(tmp_path / "new" / name) as made:
        made.add_message(HI)
        assert made.path == tmp_path / "new" / name
    with Session.open(str(tmp_path / "new" / name)) as again:
        assert (again.id, again.messages) == (made.id, (HI,))


@files
def test_a_session_may_be_made_where_there_is_none(name, tmp_path):
    """`create=True` begins a session the first time and opens it afterwards."""
    for count in range(3):
        with Session.open(tmp_path / name, create=True) as session:
            assert len(session.messages) == count
            session.add_message(HI)
    with pytest.raises(SessionError, match="can't be opened"):
        Session.open(tmp_path / "other.jsonl")


@pytest.mark.parametrize("name", ["chat", "chat.txt", "2026.01"])
def test_a_session_is_begun_in_the_file_that_was_named(name, tmp_path):
    """Whatever the ending of a path: what `create=True` begins is what is opened the next time."""
    for count in range(2):
        with Session.open(tmp_path / name, create=True) as session:
            assert len(session.messages) == count
            session.add_message(HI)
    assert (tmp_path / name).is_file()


@files
def test_a_session_may_be_begun_through_a_link(name, tmp_path):
    """A link to where no file is yet is where the session will be; one to a file is that file."""
    (tmp_path / name).symlink_to(tmp_path / "elsewhere" / name)
    for count in range(2):
        with Session.open(tmp_path / name, create=True) as session:
            assert len(session.messages) == count
            session.add_message(HI)
    assert (tmp_path / "elsewhere" / name).is_file()
    with pytest.raises(SessionError, match="exists already"):
        Session.create(tmp_path / name)


def test_a_session_that_is_only_looked_at_is_not_begun(tmp_path):
    """With `read_only=True` nothing is made, whatever else is asked for."""
    with pytest.raises(SessionError, match="can't be opened"):
        Session.open(tmp_path / "a.jsonl", create=True, read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_what_can_not_be_asked_for_is_refused(tmp_path):
    """A policy or a store that does not exist is an error before anything is made."""
    with pytest.raises(ConfigurationError, match="fsync must be 'always'"):
        Session.create(tmp_path, fsync="sometimes")
    with pytest.raises(ConfigurationError, match="store must be 'jsonl' or 'sqlite'"):
        Session.create(tmp_path, store="xml")
    assert list(tmp_path.iterdir()) == []


@files
@pytest.mark.parametrize(
    ("written", "wrong"),
    [
        (lambda session: session.label(1, 5), "label: expected text, not 5"),
        (lambda session: session.label(True, "x"), "target: expected a whole number, not True"),
        (lambda session: session.label("1", "x"), "target: expected a whole number, not '1'"),
        (lambda session: session.add_custom(5), "custom_type: expected text, not 5"),
        (lambda session: session.note_model(5), "model: expected text, not 5"),
        (lambda session: session.branch(1.0), "target: expected a whole number, not 1.0"),
        (lambda session: session.branch(None, summary=5), "summary: expected text, not 5"),
        (lambda session: session.accept("later", HI), "kind: expected input or steering or"),
        (lambda session: session.messages_at("1"), "expected the id of an entry, not '1'"),
        (lambda session: session.messages_at(9), r"chat\.\w+: there is no entry 9"),
    ],
)
def test_nothing_is_written_that_can_not_be_read_again(name, written, wrong, tmp_path):
    """What an entry can't hold is refused, and the session opens as before."""
    with Session.create(tmp_path / name) as session:
        session.add_message(HI)
        with pytest.raises(SessionError, match=wrong):
            written(session)
    with Session.open(tmp_path / name) as again:
        assert [entry.id for entry in again.entries()][:1] == [1]
        assert again.messages_at(1) == (HI,)


@pytest.mark.parametrize("given", ["hi", None, {"role": "user"}, AgentStartEvent()])
def test_only_messages_are_messages(given, session):
    """Anything else in place of a message is the caller's mistake, and is not written."""
    with pytest.raises(TypeError, match="is no message"):
        session.add_message(given)
    with pytest.raises(TypeError, match="is no message"):
        session.accept("input", given)
    assert session.entries() == []


@files
def test_a_clock_without_an_offset_gives_local_time(name, tmp_path):
    """Times are in UTC, whatever the clock's are in, and can be read again."""
    before = datetime.now(UTC)
    with Session.create(tmp_path / name, clock=datetime.now) as session:
        session.add_message(HI)
        session.add_custom("mark")
    with Session.open(tmp_path / name) as again:
        times = [again.header.time, *(entry.time for entry in again.entries())]
    assert all(before <= time <= datetime.now(UTC) for time in times)


def test_a_name_is_text(tmp_path):
    """A session with another one is not begun."""
    with pytest.raises(ConfigurationError, match="a session's name must be text, not 5"):
        Session.create(tmp_path, name=5)
    assert list(tmp_path.iterdir()) == []


@files
@pytest.mark.parametrize("fsync", ["always", "batch", "never"])
def test_every_policy_keeps_what_was_written(name, fsync, tmp_path):
    """Whatever survives a power failure, a closed session has it all."""
    with Session.create(tmp_path / name, fsync=fsync) as session:
        session.add_message(HI)
        session.record(MessageEndEvent(DONE))
    with Session.open(tmp_path / name, fsync=fsync) as session:
        assert session.messages == (HI, DONE)


@files
def test_a_session_can_be_looked_at_while_it_is_written(name, tmp_path):
    """A reader sees what was there when it opened the file, and can't write."""
    with Session.create(tmp_path / name) as writer:
        writer.add_message(HI)
        with Session.open(tmp_path / name, read_only=True) as reader:
            writer.add_message(DONE)

            assert reader.messages == (HI,)
            with pytest.raises(SessionError, match="was opened for reading"):
                reader.add_message(DONE)
        with pytest.raises(SessionError, match="is in use"):
            Session.open(tmp_path / name)


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        (["{}"], "line 2: id: expected a whole number"),
        ([encode(Entry(1, 7, NOON, MessageBody(HI)))], "line 2: parent: there is no entry 7"),
        (
            [encode(Entry(n, None, NOON, MessageBody(HI))) for n in (2, 1)],
            "line 3: id: 1 does not count up",
        ),
    ],
)
def test_a_file_that_holds_no_entries_is_refused(lines, wrong, tmp_path):
    """A line that is whole and no entry is an error that names it, and lets go of the file."""
    path = JSONL.filled(tmp_path, lines)

    for _ in range(2):
        with pytest.raises(SessionError, match=wrong):
            Session.open(path)


def test_a_header_that_can_not_be_read_is_refused(tmp_path):
    """A session of a newer version is not opened by an older library."""
    JSONL.create(tmp_path, HEADER.replace('"version":1', '"version":2')).close()

    with pytest.raises(SessionError, match="line 1: the session has version 2"):
        Session.open(tmp_path / "chat.jsonl")


def test_a_delivery_of_what_did_not_wait_is_an_error(tmp_path):
    """An entry that says that a message joined names the entry that holds it; no other can be written or read."""
    entries = [Entry(1, None, NOON, MessageBody(HI)), Entry(2, 1, NOON, DeliveredBody(1))]
    wrong = "queued: entry 1 holds no message that waits"
    with Session.in_memory() as session:
        session.add_message(HI)
        with pytest.raises(SessionError, match=wrong):
            session.append(DeliveredBody(1))
        assert len(session.entries()) == 1

    path = JSONL.filled(tmp_path, [encode(entry) for entry in entries])
    with pytest.raises(SessionError, match=f"line 3: {wrong}"):
        Session.open(path)


def test_a_message_that_can_not_be_read_is_named(tmp_path):
    """A kind of message that this version does not know is an error where the conversation is asked for."""
    line = encode(Entry(1, None, NOON, MessageBody(HI))).replace('"user"', '"wizard"')
    path = JSONL.filled(tmp_path, [line])

    with pytest.raises(SessionError, match="line 2: wizard: unknown role 'wizard'"):
        Session.open(path)


def test_unknown_fields_survive_everything(tmp_path):
    """What a newer version wrote is in the file still, and in forks of it, after this version wrote behind it."""
    line = encode(Entry(1, None, NOON, MessageBody(HI)))
    newer = line[:-1] + ',"mood":"good"}'
    newer = newer.replace('"type":"text"', '"type":"text","font":"bold"')
    path = JSONL.filled(tmp_path, [newer])

    with Session.open(path) as session:
        session.add_message(DONE)
        assert session.entries()[0].extra == {"mood": "good"}
        with session.fork(tmp_path / "fork.jsonl") as fork:
            assert fork.messages == (HI, DONE)

    assert newer[:-1] in (tmp_path / "fork.jsonl").read_text()


# -- the conversation -------------------------------------------------------------------------------------------------


def test_a_new_session_is_empty(session):
    """Nothing is there before the first entry."""
    assert (session.messages, session.leaf_id, session.waiting, session.labels) == (
        (),
        None,
        (),
        {},
    )
    assert (session.entries(), session.leaves(), session.interrupted) == ([], [], False)
    assert (session.model, session.warnings) == (None, ())
    assert session.id in repr(session) or session.id[:8] in repr(session)


def test_entries_are_given_as_they_were_written(session):
    """Each entry has its id, its parent, its time and what it says."""
    assert (session.add_message(HI), session.add_custom("note", {"n": 1})) == (1, 2)

    first, second = session.entries()
    assert (first.id, first.parent_id, first.type, first.body) == (
        1,
        None,
        "message",
        MessageBody(HI),
    )
    assert (second.id, second.parent_id, second.type) == (2, 1, "custom")
    assert second.time.tzinfo is not None
    assert session.path_to(1) == [first]
    assert session.messages_at(1) == (HI,)
    assert session.messages_at(None) == ()


@files
def test_time_may_go_backwards(name, tmp_path):
    """Nothing depends on the clock: entries keep their order whatever it says."""
    moments = [NOON, NOON, NOON - timedelta(days=1), NOON - timedelta(days=400)]
    times = iter(moments)
    with Session.create(tmp_path / name, clock=lambda: next(times)) as session:
        for text in "abc":
            session.add_message(user(text))
    with Session.open(tmp_path / name) as session:
        assert texts(session) == ["a", "b", "c"]
        assert [entry.time for entry in session.entries()] == moments[1:]


def test_changes_of_the_model_are_noted_once(session):
    """The model at the leaf is the one that was noted last on its path; the same again is no news."""
    for model in ("x:1", "x:1", "y:2"):
        session.note_model(model)
    session.note_thinking("high")
    session.note_thinking("high")

    assert [entry.type for entry in session.entries()] == ["model_change"] * 2 + ["thinking_change"]
    assert session.model == "y:2"
    session.branch(1)
    assert session.model == "x:1"


def test_labels_name_entries(session):
    """A label is given, moved and taken away; an entry that is not there has none."""
    session.add_message(HI)
    session.label(1, "start")
    assert session.labels == {1: "start"}
    session.label(1, None)
    assert session.labels == {}
    with pytest.raises(SessionError, match="target: there is no entry 9"):
        session.label(9, "x")


def test_a_compaction_is_honoured(session):
    """The messages of a compacted session begin with the summary; all of it can be read back."""
    for text in "abcd":
        session.add_message(user(text))
    session.append(CompactionBody("a and b", 3, 50))
    session.add_message(user("e"))

    first, *rest = session.messages
    assert (first.summary, first.tokens_before) == ("a and b", 50)
    assert isinstance(first, CompactionSummaryMessage)
    assert [message.text for message in rest] == ["c", "d", "e"]
    assert [message.text for message in session.messages_at(4)] == ["a", "b", "c", "d"]


# -- branches ---------------------------------------------------------------------------------------------------------


def test_the_leaf_may_move_anywhere(session):
    """Behind a moved leaf a branch grows, the others stay, and any can be gone back to."""
    for text in "abc":
        session.add_message(user(text))
    session.branch(1)
    session.add_message(user("d"))
    assert texts(session) == ["a", "d"]
    assert session.leaves() == [3, 5]

    session.branch(3)
    assert texts(session) == ["a", "b", "c"]
    session.branch(None)
    session.add_message(user("e"))
    assert texts(session) == ["e"]
    with pytest.raises(SessionError, match="there is no entry 99"):
        session.branch(99)
    assert texts(session) == ["e"]


def test_a_branch_may_leave_a_summary(session):
    """The model is told of the branch that was left, where the conversation goes on."""
    session.add_message(HI)
    session.add_message(DONE)
    session.branch(1, summary="it was no use")

    hi, summary = session.messages
    assert hi == HI
    assert (summary.summary, summary.from_id) == ("it was no use", "2")
    assert isinstance(summary, BranchSummaryMessage)


def test_an_empty_session_has_no_branch_to_sum_up(session):
    """Where nothing was left, no summary is written."""
    session.branch(None, summary="nothing")

    assert session.messages == ()


def test_a_branch_into_the_middle_of_calls_closes_them(session):
    """Behind an answer with calls the conversation goes on with a result for each."""
    for message in (
        HI,
        CALLS,
        ToolResultMessage("a", "work"),
        ToolResultMessage("b", "work"),
        DONE,
    ):
        session.add_message(message)
    session.branch(3)
    session.add_message(user("more"))

    assert [message.role for message in session.messages] == [
        "user",
        "assistant",
        "toolResult",
        "toolResult",
        "user",
    ]
    assert check(session.messages) == []
    session.branch(5)
    assert [message.role for message in session.messages][-1] == "assistant"


@files
def test_a_fork_is_a_session_of_its_own(name, session, tmp_path):
    """It has the path to one entry with its labels, ids as they were, and says where it is from."""
    queued = user("b")
    session.accept("input", queued)
    session.add_message(user("a"))
    session.record(MessageEndEvent(queued))
    session.add_message(user("c"))
    session.label(2, "first")
    session.label(4, "last")
    session.branch(2)
    session.add_message(user("other"))

    with session.fork(tmp_path / "forks" / name, at=3, name="forked") as fork:
        assert texts(fork) == ["a", "b"]
        assert fork.labels == {2: "first"}
        assert fork.header.forked_from == {"session": session.id, "entry": 3}
        assert (fork.header.name, fork.id != session.id) == ("forked", True)
        fork.add_message(user("d"))
    with Session.open(tmp_path / "forks" / name) as fork:
        assert texts(fork) == ["a", "b", "d"]
        assert fork.waiting == ()
    assert texts(session) == ["a", "other"]


def test_a_fork_of_the_leaf_is_the_whole_conversation(session, tmp_path):
    """Without an entry it is the path to the leaf, in a file whose name comes from time and id."""
    session.add_message(HI)
    with session.fork(tmp_path) as fork:
        assert fork.messages == (HI,)
        assert fork.path.parent == tmp_path
    with pytest.raises(SessionError, match="there is no entry 5"):
        session.fork(tmp_path, at=5)


# -- recovery ---------------------------------------------------------------------------------------------------------


@files
def test_an_interrupted_run_is_closed_when_the_session_goes_on(name, tmp_path):
    """Opened again, every call has its result; nothing is written before the conversation goes on."""
    with Session.create(tmp_path / name) as session:
        session.add_message(HI)
        session.add_message(CALLS)
        session.append(ToolCallStartedBody("a", "work"))
    for _ in range(2):
        with Session.open(tmp_path / name) as session:
            assert check(session.messages) == []
            assert [m.text[:11] for m in session.messages[2:]] == ["Interrupted", "This call w"]
            assert session.interrupted
            assert len(session.entries()) == 3
    with Session.open(tmp_path / name) as session:
        kept = session.messages
        session.add_message(user("more"))
    with Session.open(tmp_path / name, read_only=True) as session:
        assert session.messages[:4] == kept
        assert texts(session)[4:] == ["more"]
        assert len(session.entries()) == 6


@files
def test_an_answer_that_broke_off_is_kept(name, tmp_path):
    """What came of it is a message that was aborted, once the session is opened again."""
    with Session.create(tmp_path / name) as session:
        session.add_message(HI)
        session.append(PartialBody(1, (TextStartEvent(0), TextDeltaEvent(0, "Once "))))
        session.append(PartialBody(1, (TextDeltaEvent(0, "upon"),)))
    with Session.open(tmp_path / name) as session:
        assert texts(session) == ["hi", "Once upon"]
        assert session.messages[1].stop_reason == "aborted"
        assert session.interrupted
        session.record(AgentStartEvent())
        session.record(MessageEndEvent(DONE))
    with Session.open(tmp_path / name) as session:
        assert texts(session) == ["hi", "Once upon", "done"]


def test_a_partial_answer_is_void_once_the_whole_is_there(session):
    """A whole answer takes the place of what had come of it."""
    session.add_message(HI)
    session.append(PartialBody(1, (TextStartEvent(0), TextDeltaEvent(0, "do"))))
    session.record(MessageEndEvent(DONE))

    assert session.messages == (HI, DONE)


def test_a_run_that_ended_was_not_interrupted(session):
    """However a run ended, once that is written it is over."""
    session.add_message(HI)
    assert session.interrupted
    session.append(RunEndBody("aborted"))

    assert not session.interrupted


# -- one at a time ----------------------------------------------------------------------------------------------------


def test_threads_may_write_at_once(session):
    """Every entry is there, each once, in one order for all."""
    threads = [
        threading.Thread(
            target=lambda n=n: [session.add_message(user(f"{n}.{i}")) for i in range(20)]
        )
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    said = texts(session)
    assert sorted(said) == sorted(f"{n}.{i}" for n in range(4) for i in range(20))
    for n in range(4):
        assert [text for text in said if text.startswith(f"{n}.")] == [
            f"{n}.{i}" for i in range(20)
        ]


def test_a_forked_child_can_not_use_the_session(session):
    """It is the parent's: in a child every method says so at once, whoever held its lock."""
    session.add_message(HI)
    read, write = os.pipe()
    with session._lock:
        pid = os.fork()
        if pid == 0:
            try:
                session.add_message(DONE)
            except SessionError as error:
                os.write(write, str(error).encode())
            os._exit(0)
    os.waitpid(pid, 0)
    answer = os.read(read, 200).decode()
    os.close(read)
    os.close(write)

    assert "belongs to the process that this one was forked from" in answer
    assert session.messages == (HI,)


# -- all stores alike -------------------------------------------------------------------------------------------------


class AllStores(RuleBasedStateMachine):
    """Any sequence of entries, branches and new openings gives the same from all stores, as a plain model does."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.numbers = itertools.count()
        self.sessions = [Session.in_memory()]
        for name in FILES:
            self.sessions.append(
                Session.create(pathlib.Path(self.folder.name, name), fsync="never")
            )
        self.said = {}  # the texts at each entry of the tree
        self.leaf = None
        self.waiting = []

    def each(self, act):
        """Do the same with every session; they all give the same."""
        first, *others = [act(session) for session in self.sessions]
        assert others == [first] * len(others)
        return first

    def here(self):
        """The texts at the leaf."""
        return self.said.get(self.leaf, [])

    @rule()
    def say(self):
        """A message goes on from the leaf."""
        text = str(next(self.numbers))
        entry_id = self.each(lambda session: session.add_message(user(text)))
        self.said[entry_id], self.leaf = [*self.here(), text], entry_id

    @rule()
    def note(self):
        """An application's entry changes no conversation."""
        entry_id = self.each(lambda session: session.add_custom("note", 1))
        self.said[entry_id], self.leaf = self.here(), entry_id

    @precondition(lambda self: self.said)
    @rule(data=st.data())
    def branch(self, data):
        """The leaf moves to any entry."""
        self.leaf = data.draw(st.sampled_from([None, *self.said]))
        self.each(lambda session: session.branch(self.leaf))

    @precondition(lambda self: self.said)
    @rule(data=st.data())
    def label(self, data):
        """An entry gets a name."""
        target = data.draw(st.sampled_from(list(self.said)))
        self.each(lambda session: session.label(target, "x"))

    @rule()
    def accept(self):
        """A message waits."""
        message = user(f"waited {next(self.numbers)}")
        self.each(lambda session: session.accept("input", message))
        self.waiting.append(message)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def deliver(self, data):
        """A message that waited joins the conversation."""
        index = data.draw(st.integers(0, len(self.waiting) - 1))
        message = self.waiting.pop(index)
        self.each(lambda session: session.record(MessageEndEvent(message)))
        self.leaf = self.each(lambda session: session.leaf_id)
        before = self.each(lambda session: session.path_to(self.leaf)[-1].parent_id)
        self.said[self.leaf] = [*self.said.get(before, []), message.text]

    @precondition(lambda self: not self.waiting)
    @rule(index=st.integers(0, 1))
    def reopen(self, index):
        """A session with a file is closed and opened again."""
        session = self.sessions[1 + index]
        session.close()
        self.sessions[1 + index] = Session.open(session.path, fsync="never")

    @invariant()
    def same_everywhere(self):
        """Messages, leaf, leaves, labels and what waits are the same in all."""
        assert self.each(texts) == self.here()
        assert self.each(lambda session: session.leaf_id) == self.leaf
        self.each(lambda session: session.leaves())
        self.each(lambda session: session.labels)
        self.each(lambda session: [message for _, message in session.waiting])
        self.each(lambda session: session.interrupted)

    def teardown(self):
        """Let go of the files."""
        for session in self.sessions:
            session.close()
        self.folder.cleanup()


TestAllStores = AllStores.TestCase
TestAllStores.settings = settings(max_examples=25, stateful_step_count=20)
