"""How a loop works: the one record of its options, and the port to what keeps its requests within the window."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import attrs

from yiemagent.abort import AbortSignal
from yiemagent.context import AgentContext
from yiemagent.errors import ContextOverflowError
from yiemagent.events import Event
from yiemagent.hooks import Hooks
from yiemagent.llm import CACHE_USES, CacheUse, StreamFn, StreamOptions
from yiemagent.messages import AgentMessage, LlmModel
from yiemagent.options import (
    above_zero_or_none,
    function_of,
    must_be,
    one_of,
    one_or_more,
    one_or_more_or_none,
    text_or_none,
    tokens_by_level,
    zero_or_more,
    zero_or_more_or_none,
)
from yiemagent.tool import is_tool_name

if TYPE_CHECKING:
    from yiemagent.output import OutputSchema

__all__ = [
    "REASONING_LEVELS",
    "AgentLoopConfig",
    "Compaction",
    "Compactor",
    "FitRequest",
    "GetMessages",
    "ToolExecution",
    "asked_output",
]

ToolExecution: TypeAlias = Literal["parallel", "sequential", "barrier"]
GetMessages: TypeAlias = Callable[[], Iterable[AgentMessage]]

REASONING_LEVELS = ("off", "minimal", "low", "medium", "high", "xhigh", "max")


@attrs.frozen(kw_only=True)
class FitRequest:
    """A request that is about to be sent, as it is shown to what keeps requests within the window.

    Args:
        context: what would be sent, before `prepare_context`.
        options: what the request asks for.
        stream_fn: asks the model.
        signal: the run's.
        emit: takes the events of what is done.
        overflow: why the model refused this context, where it did because of its length.
        asked_for: what somebody who asked for a shorter context, whatever its size, wants its summary to heed; None:
            nobody did.
        lasting: whether the messages are those that the agent goes on with in its next run.
    """

    context: AgentContext
    options: StreamOptions
    stream_fn: StreamFn
    signal: AbortSignal
    emit: Callable[[Event], None]
    overflow: ContextOverflowError | None = None
    asked_for: str | None = None
    lasting: bool = True


class Compactor(Protocol):
    """Keeps the requests of one conversation within the window; used by one thread at a time."""

    def fit(self, request: FitRequest, /) -> Sequence[AgentMessage]:
        """Give the messages to go on with, instead of those of `request.context`.

        Contract: called before each request, on the run's thread; may ask a model. It costs what is new since the last
        call. The same object where nothing is to be done. A `CompactionEndEvent` that it emits holds what lasts.

        Raises:
            CompactionError: the context is too long and can't be shortened; the run ends with it.
        """


class Compaction(Protocol):
    """How conversations are kept within the window; fulfilled by `yiemagent.sessions.Compaction`."""

    def begin(self) -> Compactor:
        """Begin with a conversation."""


def _compacts(given: Any) -> bool:
    return given is None or callable(getattr(given, "begin", None))


def _names_model(given: Any) -> bool:
    return given is None or isinstance(given, (str, LlmModel))


def _is_temperature(given: Any) -> bool:
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    return given is None or (is_number and 0 <= given < math.inf)


def _chooses(given: Any) -> bool:
    return given is None or is_tool_name(given)


def asked_output(given: Any) -> OutputSchema | None:
    """Give what a caller says that the answer must be, or None where that is anything.

    Raises:
        ConfigurationError: where it says no schema.
    """
    if given is None:
        return None
    from yiemagent.output import output_schema  # for who asks for one only

    return output_schema(given)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class AgentLoopConfig(Hooks):
    """How a loop works; every field has a default.

    Args:
        model: the model to ask, or None for the provider's own.
        reasoning: "off", "minimal", "low", "medium", "high", "xhigh", "max", or None for the provider's default.
        thinking_budgets: tokens that a reasoning level may think, by level.
        temperature, max_tokens, tool_choice: passed to the model; None leaves them to the provider.
        output_schema: what the answer must be: a JSON Schema, or a class that says it; see `ask`.
        cache: how long the provider should keep the prompt in its cache: "none", "short", "long"; None leaves it to the
            provider.
        session_id: opaque key for caches and affinity, shown in events.
        tool_execution: "parallel": calls run side by side where every called tool allows it; "sequential": never;
            "barrier": neighbours that allow it run side by side, the others alone, in order.
        max_parallel_tools: how many calls run at once at most.
        max_turns: turns after which a run ends with an error; None lifts the limit.
        max_cost: US dollars; a run that cost as much asks no further and ends with an error. None: no limit.
        max_total_tokens: tokens of a run's requests and answers together; the same. None: no limit.
        max_retry_delay_ms: the longest wait that a server may ask for.
        compaction: keeps what is sent within the model's window, such as `yiemagent.sessions.Compaction()`; None sends
            the whole history.
        abort_grace_s: seconds that tools, hooks, sinks and model functions have to return after an abort.
        before_tool_call, after_tool_call, prepare_next_turn, should_stop_after_turn, transform_context,
            convert_to_llm: see `Hooks`.
        get_api_key, on_payload, on_response: see `StreamOptions`.
        get_steering_messages: gives messages that join the run before its next turn.
        get_follow_up_messages: gives messages that join the run when it would stop.

    Raises:
        ConfigurationError: where one is of the wrong kind; the text names it and says what it must be.
    """

    model: LlmModel | str | None = attrs.field(
        default=None,
        validator=must_be("the name of a model, an LlmModel, or None", _names_model),
    )
    reasoning: str | None = attrs.field(
        default=None, validator=one_of(REASONING_LEVELS, or_none=True)
    )
    thinking_budgets: Mapping[str, int] | None = attrs.field(
        default=None, validator=tokens_by_level(REASONING_LEVELS)
    )
    temperature: float | None = attrs.field(
        default=None,
        validator=must_be("a number, 0 or more, or None", _is_temperature),
    )
    max_tokens: int | None = attrs.field(default=None, validator=one_or_more_or_none)
    tool_choice: str | None = attrs.field(
        default=None,
        validator=must_be("'auto', 'none', 'required', a tool's name, or None", _chooses),
    )
    output_schema: Any = attrs.field(default=None, converter=asked_output)
    cache: CacheUse | None = attrs.field(default=None, validator=one_of(CACHE_USES, or_none=True))
    session_id: str | None = attrs.field(default=None, validator=text_or_none)
    tool_execution: ToolExecution = attrs.field(
        default="parallel", validator=one_of(("parallel", "sequential", "barrier"))
    )
    max_parallel_tools: int = attrs.field(default=64, validator=one_or_more)
    max_turns: int | None = attrs.field(default=100, validator=one_or_more_or_none)
    max_cost: float | None = attrs.field(default=None, validator=above_zero_or_none)
    max_total_tokens: int | None = attrs.field(default=None, validator=one_or_more_or_none)
    max_retry_delay_ms: int | None = attrs.field(default=60_000, validator=zero_or_more_or_none)
    compaction: Compaction | None = attrs.field(
        default=None, validator=must_be("a yiemagent.sessions.Compaction, or None", _compacts)
    )
    abort_grace_s: float = attrs.field(default=1.0, validator=zero_or_more)
    get_api_key: Callable[[str], str | None] | None = attrs.field(
        default=None, validator=function_of("provider")
    )
    on_payload: Callable[[dict[str, Any]], dict[str, Any] | None] | None = attrs.field(
        default=None, validator=function_of("payload")
    )
    on_response: Callable[[int, Mapping[str, str]], None] | None = attrs.field(
        default=None, validator=function_of("status", "headers")
    )
    get_steering_messages: GetMessages | None = attrs.field(default=None, validator=function_of())
    get_follow_up_messages: GetMessages | None = attrs.field(default=None, validator=function_of())

    def options(self) -> StreamOptions:
        """What this config asks of a model."""
        return StreamOptions(
            model=self.model,
            reasoning=self.reasoning,
            thinking_budgets=self.thinking_budgets,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            tool_choice=self.tool_choice,
            output_schema=None if self.output_schema is None else self.output_schema.schema,
            cache=self.cache,
            session_id=self.session_id,
            max_retry_delay_ms=self.max_retry_delay_ms,
            get_api_key=self.get_api_key,
            on_payload=self.on_payload,
            on_response=self.on_response,
        )
