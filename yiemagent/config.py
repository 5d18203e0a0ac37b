"""How a loop works: the one record of its options, and the port to what keeps its requests within the window."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast

import attrs

from yiemagent.abort import AbortSignal
from yiemagent.context import AgentContext
from yiemagent.errors import ContextOverflowError
from yiemagent.events import Event
from yiemagent.hooks import Hooks
from yiemagent.llm import CACHE_USES, CacheUse, StreamFn, StreamOptions
from yiemagent.messages import AgentMessage, LlmModel

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


def _compacts(_config: Any, field: Any, value: Any) -> None:
    if value is not None and not callable(getattr(value, "begin", None)):
        raise TypeError(f"{field.name} must be a yiemagent.sessions.Compaction, not {value!r}")


def asked_output(given: Any) -> OutputSchema | None:
    """Give what a caller says that the answer must be, or None where that is anything.

    Raises:
        ConfigurationError: where it says no schema.
    """
    if given is None:
        return None
    from yiemagent.output import output_schema  # for who asks for one only

    return output_schema(given)


def _above_zero_or_none(_config: Any, field: Any, value: object) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is not None and not (is_number and cast("float", value) > 0):
        raise ValueError(f"{field.name} must be above 0, or None for no limit, not {value!r}")


def _zero_or_more_or_none(_config: Any, field: Any, value: object) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is not None and not (is_number and 0 <= cast("float", value) < math.inf):
        raise ValueError(f"{field.name} must be a number of 0 or more, or None, not {value!r}")


def _one_or_more_or_none(_config: Any, field: Any, value: object) -> None:
    if value is not None and not (isinstance(value, int) and value >= 1):
        raise ValueError(f"{field.name} must be 1 or more, or None, not {value!r}")


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
        abort_grace_s: seconds that tools, hooks and sinks have to return after an abort.
        before_tool_call, after_tool_call, prepare_next_turn, should_stop_after_turn, transform_context,
            convert_to_llm: see `Hooks`.
        get_api_key, on_payload, on_response: see `StreamOptions`.
        get_steering_messages: gives messages that join the run before its next turn.
        get_follow_up_messages: gives messages that join the run when it would stop.
    """

    model: LlmModel | str | None = None
    reasoning: str | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.in_(REASONING_LEVELS))
    )
    thinking_budgets: Mapping[str, int] | None = None
    temperature: float | None = attrs.field(default=None, validator=_zero_or_more_or_none)
    max_tokens: int | None = attrs.field(default=None, validator=_one_or_more_or_none)
    tool_choice: str | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.instance_of(str))
    )
    output_schema: Any = attrs.field(default=None, converter=asked_output)
    cache: CacheUse | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.in_(CACHE_USES))
    )
    session_id: str | None = None
    tool_execution: ToolExecution = attrs.field(
        default="parallel", validator=attrs.validators.in_(("parallel", "sequential", "barrier"))
    )
    max_parallel_tools: int = attrs.field(
        default=64, validator=[attrs.validators.instance_of(int), attrs.validators.ge(1)]
    )
    max_turns: int | None = attrs.field(default=100, validator=_one_or_more_or_none)
    max_cost: float | None = attrs.field(default=None, validator=_above_zero_or_none)
    max_total_tokens: int | None = attrs.field(default=None, validator=_one_or_more_or_none)
    max_retry_delay_ms: int | None = 60_000
    compaction: Compaction | None = attrs.field(default=None, validator=_compacts)
    abort_grace_s: float = attrs.field(
        default=1.0, validator=[attrs.validators.instance_of((int, float)), attrs.validators.ge(0)]
    )
    get_api_key: Callable[[str], str | None] | None = None
    on_payload: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None
    on_response: Callable[[int, Mapping[str, str]], None] | None = None
    get_steering_messages: GetMessages | None = None
    get_follow_up_messages: GetMessages | None = None

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
