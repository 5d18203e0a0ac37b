"""A message on its way into an agent, and what becomes of it."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, cast

import attrs

from yiemagent.abort import AbortSignal
from yiemagent.errors import ChannelFull
from yiemagent.messages import AgentMessage, AssistantMessage, ToolResultMessage

if TYPE_CHECKING:
    from yiemagent.output import OutputSchema
    from yiemagent.relay import Steps

__all__ = ["Entry", "Receipt", "Reply", "no_place", "prompt_of"]


@attrs.frozen
class Receipt:
    """What became of a message: whether it started a run of its own, or joined the one going on."""

    started: bool


@attrs.define(eq=False)
class Entry:
    """A message on its way: its run's signal, the caller's context variables, what the answer must be, and who waits
    for it.
    """

    message: AgentMessage | None
    serial: int
    context: contextvars.Context
    output: OutputSchema | None = None
    signal: AbortSignal = attrs.field(factory=AbortSignal)
    reply: Reply | None = None
    takes_up: bool = False  # whether its run begins with the calls that an interrupted one left
    # Does its run in place of `run_loop`; such a run takes no messages in.
    loop: Callable[..., Steps[AssistantMessage]] | None = None

    def settings(self, config: Any) -> Any:
        """Give how its run works: as the agent's config says, but for what the message brings itself."""
        return config if self.output is None else attrs.evolve(config, output_schema=self.output)


class Reply:
    """The answer to one `ask`, handed over once."""

    def __init__(self) -> None:
        self._there = threading.Event()
        self._answer: AssistantMessage | None = None
        self._error: Exception | None = None

    def give(self, answer: AssistantMessage | None, error: Exception | None = None) -> None:
        """Hand over the answer, or the error to raise in its place."""
        self._answer, self._error = answer, error
        self._there.set()

    def wait(self, timeout_s: float | None) -> bool:
        """Block until it was handed over; gives whether it was."""
        return self._there.wait(timeout_s)

    def take(self) -> AssistantMessage:
        """Give the answer.

        Raises:
            Exception: the error that was handed over in its place.
        """
        if self._error is not None:
            raise self._error
        assert self._answer is not None
        return self._answer


def no_place(agent: str, kind: Literal["steering", "follow_up"], waiting: int) -> ChannelFull:
    """Give the error for a message that would join a run of `agent`, where so many wait for that already."""
    name, when = {
        "steering": ("steering", "at its next turn"),
        "follow_up": ("follow-up", "when it would stop"),
    }[kind]
    return ChannelFull(
        f"agent {agent!r} holds {waiting} {name} messages that no run has taken in yet; a run takes them in {when}, "
        f"so send this one later, or give it a run of its own with run_agent"
    )


def prompt_of(message: Any) -> AgentMessage:
    """Give what a caller sends as a message: a user's, or one of the application's kinds.

    Raises:
        TypeError, ValueError: where it is neither text, an OpenAI user message nor such a message.
    """
    models = (AssistantMessage, ToolResultMessage)
    if hasattr(message, "to_llm") and not isinstance(message, models):
        return cast("AgentMessage", message)
    from yiemagent.openai_format import user_message  # loads with the first message

    return user_message(message)
