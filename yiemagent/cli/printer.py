"""A run, as a person at a terminal sees it: a fold over its events that writes as they come."""

from __future__ import annotations

import json
from typing import Any

from yiemagent.cli.terminal import Terminal, one_line
from yiemagent.events import (
    AgentEndEvent,
    Event,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    NoticeEvent,
    ToolExecEndEvent,
    ToolExecStartEvent,
)
from yiemagent.messages import AssistantMessage
from yiemagent.payload import FrozenDict
from yiemagent.streaming import TextDeltaEvent
from yiemagent.tool import AgentToolResult

__all__ = ["EventPrinter"]


class EventPrinter:
    """Writes the model's words to stdout and what its tools do to stderr; called with each event of one run.

    Args:
        terminal: where to write.
        stream: True writes the model's words as they come, False each message when it is whole.
        quiet: True keeps the model's words off stdout.
    """

    def __init__(self, terminal: Terminal, *, stream: bool = True, quiet: bool = False) -> None:
        self._terminal = terminal
        self._stream = stream
        self._quiet = quiet
        self._written = ""
        self._messages: list[AssistantMessage] = []

    def __call__(self, event: Event) -> None:
        """Show one event."""
        match event:
            case MessageStartEvent():
                self._written = ""
            case MessageUpdateEvent(stream_event=TextDeltaEvent(delta=text)) if self._stream:
                self._say(text)
            case MessageEndEvent(message=AssistantMessage() as message):
                self._end_message(message)
            case ToolExecStartEvent():
                self._terminal.note(f"→ {event.tool_name} {_arguments(event.arguments)}", "dim")
            case ToolExecEndEvent():
                mark, style = ("✗", "red") if event.is_error else ("←", "dim")
                self._terminal.note(f"{mark} {event.tool_name}: {_result(event.result)}", style)
            case NoticeEvent():
                self._terminal.note(f"note: {event.message}", "yellow")
            case AgentEndEvent():
                self._end_run(event.answer)
            case _:
                pass  # nothing that a person needs to see

    def _say(self, text: str) -> None:
        if not self._quiet:
            self._terminal.say(text)
            self._written += text

    def _end_message(self, message: AssistantMessage) -> None:
        """Write what of the message is not written yet; words that were taken back are followed by those that hold."""
        self._messages.append(message)
        if not message.text.startswith(self._written):
            self._terminal.end_line()
            self._written = ""
        self._say(message.text.removeprefix(self._written))
        self._terminal.end_line()

    def _end_run(self, answer: AssistantMessage) -> None:
        """Write an answer that no model gave, and what is wrong with the answer."""
        if not any(answer is message for message in self._messages):
            self._written = ""
            self._say(answer.text)
            self._terminal.end_line()
        if answer.failed:
            self._terminal.note(f"error: {answer.error_message or answer.stop_reason}", "bold red")
        elif answer.error_message:
            self._terminal.note(f"note: {answer.error_message}", "yellow")
        elif answer.stop_reason == "length":
            self._terminal.note("note: the answer was cut at the model's output limit", "yellow")


def _arguments(arguments: FrozenDict | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _result(result: AgentToolResult) -> str:
    others: list[Any] = [block for block in result.content if block.type != "text"]
    words = [one_line(result.text)] if result.text.strip() else []
    words += [f"[{block.type}]" for block in others]
    return " ".join(words) or "(nothing)"
