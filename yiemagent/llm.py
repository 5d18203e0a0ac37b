"""The one port to models: `StreamFn`; and how a plain `llm_call` or a model string becomes one."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Protocol, TypeAlias, cast, runtime_checkable

import attrs

from yiemagent.abort import AbortSignal
from yiemagent.context import AgentContext, LlmContext
from yiemagent.errors import BadResponseError, ConfigurationError, error_text
from yiemagent.messages import AssistantMessage, LlmModel, model_id
from yiemagent.options import check_function, shown_function, takes
from yiemagent.payload import FrozenDict, freeze_json
from yiemagent.record import Record
from yiemagent.streaming import DoneEvent, ErrorEvent, StreamEvent
from yiemagent.tool import is_async

__all__ = [
    "CACHE_USES",
    "CacheUse",
    "LlmCall",
    "StreamFn",
    "StreamOptions",
    "adapt_llm_call",
    "resolve",
    "stream_fn_of",
]

CacheUse: TypeAlias = Literal["none", "short", "long"]
CACHE_USES = ("none", "short", "long")

# The wing that knows the providers: imported by name at run time, so that the core stands without it.
PROVIDERS_MODULE = "yiemagent.providers"


def _budgets(budgets: Mapping[str, int] | None) -> FrozenDict:
    return cast("FrozenDict", freeze_json(budgets or {}))


@attrs.frozen(kw_only=True, eq=False, repr=False)
class StreamOptions(Record):
    """What a request asks for beside its context; None leaves it to the provider.

    Args:
        model: the model to ask; None: the provider's own.
        reasoning: "off", "minimal", "low", "medium", "high", "xhigh" or "max".
        thinking_budgets: tokens that a reasoning level may think, by level.
        temperature: 0 and up; max_tokens: the answer's limit.
        tool_choice: "auto", "none", "required", or a tool's name.
        output_schema: JSON Schema of an object that the answer's text must be; only given to a provider that says
            `native_output = True`.
        cache: how long the provider should keep the prompt in its cache: "none", "short", "long".
        session_id: opaque key for caches and affinity.
        max_retry_delay_ms: the longest wait that a server may ask for; a longer one fails at once. None: no limit.
        get_api_key: asked with the provider's name before each request, where the provider was given no key of its
            own; None or an empty answer: the key of the environment.
        on_payload: `(payload)`, sees the request body and may give another.
        on_response: `(status, headers)`, sees the response before its body is read.
    """

    model: LlmModel | str | None = None
    reasoning: str | None = None
    thinking_budgets: Mapping[str, int] = attrs.field(factory=FrozenDict, converter=_budgets)
    temperature: float | None = None
    max_tokens: int | None = None
    tool_choice: str | None = None
    output_schema: Mapping[str, Any] | None = attrs.field(default=None, converter=freeze_json)
    cache: CacheUse | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.in_(CACHE_USES))
    )
    session_id: str | None = None
    max_retry_delay_ms: int | None = 60_000
    get_api_key: Callable[[str], str | None] | None = None
    on_payload: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None
    on_response: Callable[[int, Mapping[str, str]], None] | None = None


@runtime_checkable
class StreamFn(Protocol):
    """Asks a model.

    Contract: called on the run's thread; gives stream events that end with exactly one Done or Error. It never raises:
    a failure is an Error event whose message holds what was received. It ends within 0.1 s of the signal being set,
    with an Error event whose stop reason is "aborted".
    """

    def __call__(
        self, context: LlmContext, options: StreamOptions, signal: AbortSignal, /
    ) -> Iterator[StreamEvent]:
        """Stream the answer to `context`."""


LlmCall: TypeAlias = Callable[[dict[str, Any]], Any]
FormatMsgForLlm: TypeAlias = Callable[[AgentContext], Mapping[str, Any]]


def resolve(model: str) -> StreamFn:
    """Give the provider that a model string names: "provider:model" or "local".

    Raises:
        ConfigurationError: where no such provider is known, or an extra that it needs is not installed.
    """
    provider, _, name = model.partition(":")
    create = importlib.import_module(PROVIDERS_MODULE).create
    return cast("StreamFn", create(provider, name))


def stream_fn_of(llm_call: Any, format_msg_for_llm: FormatMsgForLlm | None = None) -> StreamFn:
    """Give what a user handed over as a `StreamFn`.

    Args:
        llm_call: a provider, any `StreamFn`, a plain callable of the request dict, or a model string.
        format_msg_for_llm: makes the request dict for a plain callable; None: the OpenAI chat form.

    Raises:
        ConfigurationError: where it is none of these, or a format is given for something that has its own.
    """
    if isinstance(llm_call, str):
        llm_call = resolve(llm_call)
    if not callable(llm_call):
        raise ConfigurationError(
            f"llm_call must be a provider, a StreamFn, a function of the request dict or a model "
            f"string such as 'openai:gpt-5.1', not {llm_call!r}"
        )
    if inspect.isclass(llm_call):
        raise ConfigurationError(
            f"llm_call is a class; give an object of it: {llm_call.__name__}(…)"
        )
    if is_async(llm_call):
        raise ConfigurationError("llm_call is a coroutine function; give a plain function")
    if not _is_stream_fn(llm_call):
        if not takes(llm_call, 1):
            raise ConfigurationError(
                f"llm_call must be a function of one argument, the request dict, or a StreamFn, of three: context, "
                f"options and signal; not {shown_function(llm_call)}"
            )
        check_function("format_msg_for_llm", format_msg_for_llm, "context")
        return adapt_llm_call(llm_call, format_msg_for_llm)
    if format_msg_for_llm is not None:
        raise ConfigurationError(
            "format_msg_for_llm is for a plain llm_call; a provider or StreamFn makes its own "
            "request: change that with on_payload"
        )
    return cast("StreamFn", llm_call)


def _is_stream_fn(function: Any) -> bool:
    """Whether a callable takes (context, options, signal) rather than one request dict.

    One that takes anything (`*args`, as a decorated function or a mock does) is a plain function, unless it says
    `is_stream_fn = True`, as a provider does that is both.
    """
    marked = getattr(function, "is_stream_fn", None)
    if isinstance(marked, bool):
        return marked
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False
    try:
        signature.bind(None, None, None)
    except TypeError:
        return False
    positional = [
        p
        for p in signature.parameters.values()
        if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}
    ]
    required = [p for p in positional if p.default is p.empty]
    return len(required) > 1 or (not required and len(positional) >= 3)


def adapt_llm_call(
    llm_call: LlmCall, format_msg_for_llm: FormatMsgForLlm | None = None
) -> StreamFn:
    """Make a `StreamFn` of a plain function that takes a request dict and gives a whole answer.

    Args:
        llm_call: takes the dict of `format_msg_for_llm`; gives an `AssistantMessage`, an OpenAI response or message
            dict, the reference's `{"message": …, "finish_reason": …}`, or a string.
        format_msg_for_llm: takes an `AgentContext`, gives the request dict; None: the OpenAI chat form.
    """

    def stream(
        context: LlmContext, options: StreamOptions, signal: AbortSignal
    ) -> Iterator[StreamEvent]:
        if signal.aborted:
            yield ErrorEvent(AssistantMessage(stop_reason="aborted", error_message=signal.why))
            return
        try:
            from yiemagent.openai_format import assistant_message  # for a plain function only

            answer = assistant_message(llm_call(_request(context, options, format_msg_for_llm)))
        except Exception as error:  # a user's function may raise anything; a stream never raises
            yield ErrorEvent(_failed(error, options, signal), error)
            return
        if answer.failed:
            yield ErrorEvent(answer)
        else:
            yield DoneEvent(answer)

    return stream


def _request(
    context: LlmContext, options: StreamOptions, format_msg: FormatMsgForLlm | None
) -> dict[str, Any]:
    if format_msg is not None:
        shown = AgentContext(context.system_prompt, context.messages, context.tools)
        request = format_msg(shown)
        if not isinstance(request, Mapping):
            raise BadResponseError(f"format_msg_for_llm gave {request!r}; give the request dict")
    else:
        from yiemagent.openai_format import format_msg_for_llm

        request = format_msg_for_llm(context)
    extra = {
        "model": model_id(options.model) or None,
        "temperature": options.temperature,
        "max_tokens": options.max_tokens,
        "tool_choice": options.tool_choice,
    }
    return {**{key: value for key, value in extra.items() if value is not None}, **request}


def _failed(error: Exception, options: StreamOptions, signal: AbortSignal) -> AssistantMessage:
    return AssistantMessage(
        model=model_id(options.model),
        stop_reason="aborted" if signal.aborted else "error",
        error_message=signal.why if signal.aborted else error_text(error),
    )
