"""A message on its way into an agent."""

from __future__ import annotations

import contextvars

import pytest

from yiemagent.entry import Entry, Receipt, Reply, prompt_of
from yiemagent.messages import AssistantMessage, BashExecutionMessage, UserMessage


def test_a_reply_is_handed_over():
    """Who waits gets the answer that was given."""
    reply, answer = Reply(), AssistantMessage("hello")

    assert not reply.wait(0)
    reply.give(answer)
    assert reply.wait(0)
    assert reply.take() is answer


def test_a_reply_may_be_an_error():
    """An error in the answer's place is raised where it is taken."""
    reply = Reply()
    reply.give(KeyError("gone"))

    reply.give(AssistantMessage("too late"))
    assert reply.wait(0)
    with pytest.raises(KeyError, match="gone"):
        reply.take()


@pytest.mark.parametrize("sent", ["hi", {"role": "user", "content": "hi"}, UserMessage("hi")])
def test_what_a_user_says_becomes_a_message(sent):
    """Text, an OpenAI dict and a message mean the same."""
    assert prompt_of(sent).text == "hi"


def test_the_applications_kinds_stay_what_they_are():
    """A message of the application's own kind is taken as it is; an assistant's is refused."""
    command = BashExecutionMessage("ls")

    assert prompt_of(command) is command
    with pytest.raises((TypeError, ValueError)):
        prompt_of(AssistantMessage("I said so"))
    with pytest.raises(TypeError, match="not the class"):
        prompt_of(UserMessage)


def test_entries_are_told_apart():
    """Two entries with the same message are not equal, and each has a signal of its own."""
    one, two = (Entry(UserMessage("hi"), 1, contextvars.copy_context()) for _ in range(2))

    assert one != two
    assert one.signal is not two.signal
    assert Receipt(started=True) == Receipt(started=True)
