"""What an agent needs of a session, and its side of it: everything is written before anybody is told of it.

A session is fulfilled by the sessions wing. An agent without one has a journal that does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, Protocol, TypeAlias

from yiemagent.errors import ConfigurationError
from yiemagent.events import Event
from yiemagent.messages import AgentMessage, ToolCall

__all__ = ["Journal", "Session", "WaitsFor"]

# What a message that was accepted waits for: a run of its own, or to join one.
WaitsFor: TypeAlias = Literal["input", "steering", "follow_up"]


class Session(Protocol):
    """Keeps a conversation; one agent at a time works on it.

    Contract: methods may be called from any thread, also while one of the agent's locks is held; they take as long as a
    write to a disk may, and never call back. What they raise is a `SessionError`; then nothing is lost that anybody was
    told of.
    """

    @property
    def id(self) -> str:
        """The session's own id."""
        ...

    @property
    def messages(self) -> Sequence[AgentMessage]:
        """The conversation, oldest first, every call with its result."""
        ...

    @property
    def interrupted(self) -> bool:
        """Whether it ends in the middle of a run."""
        ...

    def attach(self, owner: str) -> None:
        """Be `owner`'s alone.

        Raises:
            ConfigurationError: it is somebody else's.
        """
        ...

    def detach(self) -> None:
        """Be nobody's; called from anywhere, finalizers included, so it takes no lock."""
        ...

    def add_messages(self, messages: Iterable[AgentMessage]) -> None:
        """Begin the conversation with messages."""
        ...

    def restored(self) -> Sequence[tuple[WaitsFor, AgentMessage]]:
        """Give the messages that were accepted and entered no run, oldest first."""
        ...

    def record(self, event: Event) -> None:
        """Write what an event says; called first with each event of a run, in order, except for starts of turns,
        messages and tools, and the progress of tools. What it raises ends the run.
        """
        ...

    def record_call(self, call: ToolCall) -> None:
        """Write that a tool call begins, before it does; what it raises keeps it from running, and ends the run."""
        ...

    def accept(self, kind: WaitsFor, message: AgentMessage) -> None:
        """Write that a message waits; what it raises refuses the message."""
        ...

    def hand_back(self, messages: Iterable[AgentMessage]) -> None:
        """Write that messages wait no more, since whoever sent them has them again."""
        ...

    def reopen(self, leave_open: Callable[[ToolCall], bool]) -> Sequence[AgentMessage]:
        """Give the conversation with those calls without a result for which `leave_open` says so, begun or not."""
        ...


class Journal:
    """An agent's side of its session.

    Args:
        session: the session, or None: nothing is kept.
        owner: the agent's name.

    Raises:
        ConfigurationError: the session is no session, or another agent's.
    """

    def __init__(self, session: Session | None, owner: str) -> None:
        if session is not None and not callable(getattr(session, "record", None)):
            raise ConfigurationError(
                f"session must be a Session, such as Session.open(path), not {session!r}"
            )
        self.session = session
        if session is not None:
            session.attach(owner)

    @property
    def record(self) -> Callable[[Event], None] | None:
        """What takes the events of a run first; None: nothing does."""
        return None if self.session is None else self.session.record

    @property
    def record_call(self) -> Callable[[ToolCall], None] | None:
        """What takes each tool call before it begins; None: nothing does."""
        return None if self.session is None else self.session.record_call

    def begin(self, messages: Sequence[AgentMessage]) -> Sequence[AgentMessage]:
        """Give the history to begin with; messages that are given begin the session's.

        Raises:
            ConfigurationError: both have messages.
        """
        if self.session is None:
            return messages
        kept = self.session.messages
        if kept and messages:
            raise ConfigurationError(
                "the session has messages already; give either messages= or a session that has some"
            )
        self.session.add_messages(messages)
        return kept or messages

    def restored(self) -> Sequence[tuple[WaitsFor, AgentMessage]]:
        """Give the messages that waited when the process before this one ended."""
        return () if self.session is None else self.session.restored()

    def accept(self, kind: WaitsFor, message: AgentMessage | None) -> None:
        """Have a message wait.

        Raises:
            SessionError: it could not be written, and is refused.
        """
        if self.session is not None and message is not None:
            self.session.accept(kind, message)

    def hand_back(self, messages: Sequence[AgentMessage]) -> None:
        """Have messages wait no more."""
        if self.session is not None and messages:
            self.session.hand_back(messages)

    def end(self) -> None:
        """Let go of the session; takes no lock."""
        if self.session is not None:
            self.session.detach()
