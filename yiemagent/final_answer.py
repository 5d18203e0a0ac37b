"""How a run comes to an answer that fits its `output_schema`.

A `StreamFn` that says `native_output = True` is sent the schema and answers in JSON, which is read. Any other is given
one more tool, `final_answer`, whose arguments are the answer: its call is stored and answered like any other, and ends
the run. A plain answer in JSON that fits is taken, too. What does not fit is told to the model once; when it happens
again, the run fails. The history holds what was said: the calls with their results, and what the model was told.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import attrs

from yiemagent.config import AgentLoopConfig
from yiemagent.context import AgentContext
from yiemagent.errors import InvalidArguments
from yiemagent.hooks import AfterToolCallContext, BeforeToolCallContext
from yiemagent.messages import (
    AgentMessage,
    AssistantMessage,
    CustomMessage,
    TextContent,
    ToolResultMessage,
)
from yiemagent.output import OutputSchema
from yiemagent.tool import AgentTool

__all__ = ["FINAL_ANSWER", "PROBLEM_TYPE", "FinalAnswer"]

FINAL_ANSWER = "final_answer"
PROBLEM_TYPE = "output_problem"

_DESCRIPTION = (
    "Gives the final answer: the arguments of this call are the answer. Call it once, when everything that "
    "the answer needs is known; nothing can be said after it."
)
_TRIES = 2


@attrs.define(eq=False, repr=False)
class FinalAnswer:
    """What the answer of a run must be, and what came of it; owned by the run's thread."""

    output: OutputSchema
    native: bool
    name: str = FINAL_ANSWER
    problem: str = ""
    refused: int = 0
    _tools: dict[str, AgentTool] = attrs.field(factory=dict)
    # By call id, what the calls of the tool gave. Written by the workers that run them, one step each.
    _given: dict[str, Any] = attrs.field(factory=dict)
    _asking: tuple[AgentLoopConfig, AgentLoopConfig] | None = None
    _running: tuple[AgentLoopConfig, AgentLoopConfig] | None = None
    _fits: bool = False

    @classmethod
    def of(cls, config: AgentLoopConfig, stream_fn: Any) -> FinalAnswer | None:
        """Give what a run needs whose config asks for a schema; None where it asks for none."""
        if config.output_schema is None:
            return None
        return cls(config.output_schema, getattr(stream_fn, "native_output", False) is True)

    # -- asking --

    def offer(self, context: AgentContext) -> AgentContext:
        """Give what a request offers: with the tool that takes the answer, last, under a name that nobody else has."""
        if self.native or not isinstance(context, AgentContext):  # a hook's error is told later
            return context
        number = 1
        self.name = FINAL_ANSWER
        while self.name in context.tools:
            number += 1
            self.name = f"{FINAL_ANSWER}_{number}"
        tools = [*context.tools.values(), self._tool()]
        return AgentContext(context.system_prompt, context.messages, tools)

    def _tool(self) -> AgentTool:
        tool = self._tools.get(self.name)
        if tool is None:
            tool = self._tools[self.name] = AgentTool(
                self.name,
                description=_DESCRIPTION,
                input_schema=self.output.schema,
                execute=self._take,
                parallel_tool_execute=True,
                timeout_s=None,
            )
        return tool

    def _take(self, call_id: str, args: dict[str, Any], _signal: Any, _update: Any) -> str:
        self._given[call_id] = self.output.unwrapped(args)
        return "This is the answer."

    def asking(self, config: AgentLoopConfig) -> AgentLoopConfig:
        """Give how to ask; the same object for the same config, so that what is made of it is made once."""
        if self._asking is None or self._asking[0] is not config:
            self._asking = (config, self._asked(config))
        return self._asking[1]

    def _asked(self, config: AgentLoopConfig) -> AgentLoopConfig:
        if self.native:
            return config
        return attrs.evolve(config, output_schema=None, tool_choice=self._choice(config))

    def _choice(self, config: AgentLoopConfig) -> str | None:
        """Give which tool the model must call: any, so that no words of its own end the run, or this one alone.

        Models that think must not be made to call a tool, several APIs refuse that; they are told in words.
        """
        if config.tool_choice == "none":
            return self.name
        if config.tool_choice is None and config.reasoning in {None, "off"}:
            return "required"
        return config.tool_choice

    def running(self, config: AgentLoopConfig) -> AgentLoopConfig:
        """Give how to run calls: the tool is not the user's, so the hooks around tool calls are not asked about it."""
        if self.native or (config.before_tool_call is None and config.after_tool_call is None):
            return config
        if self._running is None or self._running[0] is not config:
            passing = attrs.evolve(
                config,
                before_tool_call=self._passing(config.before_tool_call),
                after_tool_call=self._passing(config.after_tool_call),
            )
            self._running = (config, passing)
        return self._running[1]

    def _passing(self, hook: Callable[..., Any] | None) -> Callable[..., Any] | None:
        if hook is None:
            return None

        def passing(context: BeforeToolCallContext | AfterToolCallContext, signal: Any) -> Any:
            return None if context.tool_call.name == self.name else hook(context, signal)

        return passing

    # -- answers --

    def read(self, message: AssistantMessage) -> AssistantMessage:
        """Give an answer as it is kept: with its value, where it calls no tool and its text fits."""
        self._fits = False
        self._given = {}  # ids of calls need not be unique in a run
        if message.failed or message.tool_calls:
            return message
        try:
            value = self.output.read(message.text)
        except InvalidArguments as error:
            cut = "the answer was cut off at the output limit; "
            self.problem = f"{cut if message.stop_reason == 'length' else ''}{error}"
            return message
        self._fits = True
        return attrs.evolve(message, parsed=value)

    def given(
        self, message: AssistantMessage, results: tuple[ToolResultMessage, ...]
    ) -> AssistantMessage | None:
        """Give the run's answer where the turn gave one; one that does not fit is counted."""
        if self._fits:
            self.refused = 0
            return message
        calls = [call for call in message.tool_calls if call.name == self.name and not self.native]
        for call in calls:
            if call.id in self._given:
                self.refused = 0
                return _made(self._given[call.id], message)
        if calls:
            texts = {result.tool_call_id: result.text for result in results}
            self.problem = texts.get(calls[0].id, "the call was not run")
        if calls or not message.tool_calls:
            self.refused += 1
        return None

    @property
    def failed(self) -> bool:
        """Whether the model had all its tries."""
        return self.refused >= _TRIES

    @property
    def failure(self) -> str:
        """What to say of a run whose answer does not fit."""
        return f"the model gave no answer that fits output_schema, {_TRIES} times: {self.problem}"

    def reminder(self, message: AssistantMessage) -> tuple[AgentMessage, ...]:
        """Give what the model is told after an answer that does not fit; nothing where a tool result says it."""
        if message.tool_calls or not self.refused:
            return ()
        again = (
            "Answer again, with nothing but JSON that fits the schema."
            if self.native
            else f"Give the answer by calling the tool {self.name}."
        )
        text = f"This answer could not be used: {self.problem}\n{again}"
        return (CustomMessage(PROBLEM_TYPE, text, display=False),)


def _made(value: Any, message: AssistantMessage) -> AssistantMessage:
    """Give the answer of a run that ended with a call of the tool: its text is the value as JSON."""
    text = json.dumps(value, ensure_ascii=False)
    return AssistantMessage(
        (TextContent(text),),
        api=message.api,
        provider=message.provider,
        model=message.model,
        parsed=value,
    )
