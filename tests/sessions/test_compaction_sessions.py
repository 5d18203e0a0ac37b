"""Compaction in sessions: the file holds every message, and who opens it again sees what the model saw."""

from __future__ import annotations

import re

import attrs
import pytest

from tests.support.loops import tool
from yiemagent import YiemAgent, ask
from yiemagent.messages import (
    AssistantMessage,
    CompactionSummaryMessage,
    LlmUsage,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.sessions import Compaction, CompactionBody, MessageBody, Session
from yiemagent.sessions.tokens import fixed_tokens, message_tokens
from yiemagent.streaming import DoneEvent

WINDOW = 16_000
SETTINGS = Compaction(context_window=WINDOW)


@attrs.define
class Worker:
    """A model that calls a tool in so many turns of a run, and summarises where it is asked to."""

    turns: int
    turn: int = 0
    largest: int = 0
    sent: list = attrs.field(factory=list)

    def __call__(self, context, options, signal):
        size = fixed_tokens(context.system_prompt, context.tools)
        size += sum(map(message_tokens, context.messages))
        self.largest = max(self.largest, size)
        self.sent.append(context.messages)
        yield DoneEvent(attrs.evolve(self.answer(context), usage=LlmUsage(size, 10)))

    def answer(self, context):
        if not context.tools:
            seen = re.findall(r"result (\d+)", context.messages[0].text)
            return AssistantMessage(f"up to result {seen[-1]}")
        self.turn += 1
        if self.turn % (self.turns + 1) == 0:
            return AssistantMessage("done")
        return AssistantMessage((ToolCall(f"c{self.turn}", "read"),), stop_reason="tool_use")


def reading():
    """A tool that gives long texts, some larger than there is room for."""
    count = iter(range(1, 10_000))

    def read(*_):
        number = next(count)
        return f"result {number} " + "word " * (900, 2_500, 12_000)[number % 3]

    return tool("read", read)


def messages_in(session):
    """All messages that a session's path holds, compacted or not."""
    path = session.path_to(session.leaf_id)
    return [entry.body.message for entry in path if isinstance(entry.body, MessageBody)]


def shape(messages):
    """Messages as what they are and how they begin."""
    return [(m.role, getattr(m, "summary", None) or m.text[:12]) for m in messages]


@pytest.mark.parametrize("name", ["chat.jsonl", "chat.db"])
def test_who_opens_it_again_goes_on_behind_the_summary(tmp_path, name):
    """The file holds every message whole; the model is sent the same, before and after it was opened again."""
    path, work = tmp_path / name, reading()
    model = Worker(12)
    with Session.create(path, fsync="never") as session:
        with YiemAgent(model, tools=[work], session=session, compaction=SETTINGS) as agent:
            ask(agent, "Read twelve.")
            told, state = agent.messages, agent.state
        kept = messages_in(session)
    assert kept == list(told)
    assert state.summary is not None

    with Session.open(path, fsync="never") as again:
        assert shape(again.messages) == shape(state.context_messages)
        assert isinstance(again.messages[0], CompactionSummaryMessage)
        before = len(model.sent)
        with YiemAgent(model, tools=[work], session=again, compaction=SETTINGS) as agent:
            ask(agent, "And more.")
            added = list(agent.messages)[len(state.context_messages) :]
        assert messages_in(again) == kept + added

    assert model.sent[before][0].text.endswith(f"{state.summary.summary}\n</summary>")
    assert model.largest <= WINDOW


def test_five_hundred_turns_in_a_session_stay_within_the_window(tmp_path):
    """Over several runs and openings; every message is in the file once, every result whole."""
    work, model = reading(), Worker(100)
    for _ in range(5):
        with (
            Session.open(tmp_path / "long.jsonl", create=True, fsync="never") as session,
            YiemAgent(
                model, tools=[work], session=session, compaction=SETTINGS, max_turns=None
            ) as agent,
        ):
            assert ask(agent, "Go on.").text == "done"

    with Session.open(tmp_path / "long.jsonl", read_only=True) as session:
        kept = messages_in(session)
    texts = [m.text for m in kept if isinstance(m, ToolResultMessage)]
    assert [text.split()[1] for text in texts] == [str(n) for n in range(1, 501)]
    assert all(len(text) > 4_000 for text in texts)
    assert len(kept) == 5 * (1 + 200 + 1)
    assert model.largest <= WINDOW


def test_a_second_summary_takes_the_place_of_the_first(tmp_path):
    """What is written says what it stands for, what it was, and what it cost."""
    model = Worker(20)
    with Session.create(tmp_path / "chat.jsonl", fsync="never") as session:
        with YiemAgent(model, tools=[reading()], session=session, compaction=SETTINGS) as agent:
            ask(agent, "Read twenty.")
            state = agent.state
        bodies = [e.body for e in session.entries() if isinstance(e.body, CompactionBody)]
        ids = {e.id: e.body for e in session.entries()}

    assert len(bodies) > 2
    assert bodies[-1].summary == state.summary.summary
    assert [body.first_kept_id for body in bodies] == sorted(body.first_kept_id for body in bodies)
    for body in bodies:
        assert isinstance(ids[body.first_kept_id].message, AssistantMessage)
        assert body.tokens_before > 11_000
        assert body.details["tokens_after"] < body.tokens_before
        assert body.details["usage"]["output_tokens"] >= 10


def test_a_branch_before_the_summary_has_the_whole_again(tmp_path):
    """A summary holds where it stands: behind an earlier entry, what it stood for is there as it was."""
    model = Worker(12)
    with Session.create(tmp_path / "chat.jsonl", fsync="never") as session:
        with YiemAgent(model, tools=[reading()], session=session, compaction=SETTINGS) as agent:
            ask(agent, "Read twelve.")
        first = next(e for e in session.entries() if isinstance(e.body, CompactionBody))
        session.branch(first.parent_id)

        assert shape(session.messages)[0] == ("user", "Read twelve.")
        assert UserMessage not in {type(m) for m in session.messages[1:]}
