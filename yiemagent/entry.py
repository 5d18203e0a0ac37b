"""A message on its way into an agent, and what becomes of it."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from queue import Empty, SimpleQueue
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
    """The answer to one `ask`, handed over once; a signal handler may do it, too, in the middle of anything."""

    def __init__(self) -> None:
        self._permit = [None]  # who pops it hands over; `list.pop` is atomic
        self._given: SimpleQueue[AssistantMessage | Exception] = SimpleQueue()
        self._taken: AssistantMessage | Exception | None = None

    def give(self, answer: AssistantMessage | Exception) -> None:
        """Hand over the answer, or the error to raise in its place, unless something was handed over."""
        try:
            self._permit.pop()
        except IndexError:
            return
        self._given.put(answer)

    def wait(self, timeout_s: float | None) -> bool:
        """Block until it was handed over; gives whether it was. For one thread."""
        if self._taken is None:
            try:
                self._taken = self._given.get(timeout=timeout_s)
            except Empty:
                return False
        return True

    def take(self) -> AssistantMessage:
        """Give the answer.

        Raises:
            Exception: the error that was handed over in its place.
        """
        taken = self._taken
        if isinstance(taken, Exception):
            raise taken
        assert taken is not None
        return taken


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
    if isinstance(message, type):
        raise TypeError(f"a message is wanted, not the class; make one: {message.__name__}(…)")
    if hasattr(message, "to_llm") and not isinstance(message, models):
        return cast("AgentMessage", message)
    from yiemagent.openai_format import user_message  # loads with the first message

    return user_message(message)
