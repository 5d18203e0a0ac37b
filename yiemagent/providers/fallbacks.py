"""Several models as one: where one can't be asked, the next one is."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, cast, overload

import attrs

from yiemagent.abort import AbortSignal
from yiemagent.context import LlmContext
from yiemagent.errors import (
    AuthenticationError,
    BadResponseError,
    ConfigurationError,
    ContextOverflowError,
    HttpError,
    LlmConnectionError,
    LlmError,
    RateLimitError,
    YiemAgentError,
    error_text,
)
from yiemagent.llm import StreamFn, StreamOptions, stream_fn_of
from yiemagent.messages import AssistantMessage, LlmModel, model_id
from yiemagent.net.retry import retryable_status
from yiemagent.openai_format import assistant_message
from yiemagent.providers.chat_request import read_request
from yiemagent.providers.failures import is_unknown_model
from yiemagent.providers.http_provider import HttpProvider, answer_of
from yiemagent.providers.notices import fallback_notice
from yiemagent.streaming import DoneEvent, ErrorEvent, StartEvent, StreamEvent, StreamNoticeEvent

__all__ = ["Fallback", "fallback"]

logger = logging.getLogger("yiemagent.providers.fallbacks")


def fallback(primary: Any, *others: Any) -> Fallback:
    """Give several models as one.

    Args:
        primary: who is asked first, each time: a provider, any `StreamFn`, a plain function of the request dict, or a
            model string such as "openai:gpt-5.1".
        others: who is asked, in order, where all before failed.

    Raises:
        ConfigurationError: there is no other, or one of them is none of these.
    """
    if not others:
        raise ConfigurationError("give fallback at least two models")
    return Fallback(primary, *others)


class Fallback:
    """Several models as one; made by `fallback`. A `StreamFn`, and also a plain `llm_call`.

    The next one is asked when one fails before the first content of its answer, for a reason that is its own: its
    server can't be reached, breaks off, is overloaded or answers nonsense; its key is refused, its quota used up, its
    model unknown. A plain function moves on whatever it raises. What the next one would be told too ends the answer: a
    request that is refused as such, a context that is too long, a refusal by the model, an abort, a hook that raises.
    Each model's own retries come first, so one that should be left at once has them turned off.

    `StreamOptions.model` is for the first one; the others are asked for their own.
    """

    is_stream_fn = True  # asked with a context; and with a request dict alone, as a plain function

    def __init__(self, *models: Any) -> None:
        self._given = models
        self._models: tuple[StreamFn, ...] = tuple(stream_fn_of(model) for model in models)
        self._names = tuple(map(_name, models, self._models))

    def __repr__(self) -> str:
        return f"fallback({', '.join(self._names)})"

    @property
    def native_output(self) -> bool:
        """Whether all of them hold an answer to a schema."""
        return all(getattr(model, "native_output", False) for model in self._models)

    def model_facts(self, model: LlmModel | str | None = None) -> LlmModel:
        """Give what is known of the first model; its window is the smallest of all, since each of them may be asked."""
        asked = [(model if place == 0 else None, each) for place, each in enumerate(self._models)]
        known = [
            facts(given)
            for given, each in asked
            if callable(facts := getattr(each, "model_facts", None))
        ]
        windows = [each.context_window for each in known if each.context_window]
        first = known[0] if known else LlmModel(model_id(model))
        return attrs.evolve(first, context_window=min(windows, default=None))

    def secrets(self) -> set[str]:
        """Give what no recording may show of any of them."""
        given = [getattr(model, "secrets", None) for model in self._models]
        return {secret for secrets in given if callable(secrets) for secret in secrets()}

    def close(self) -> None:
        """Close what the models keep open; they can still be asked."""
        for model in self._models:
            close = getattr(model, "close", None)
            if callable(close):
                close()

    @overload
    def __call__(
        self, context: LlmContext, options: StreamOptions, signal: AbortSignal, /
    ) -> Iterator[StreamEvent]: ...

    @overload
    def __call__(self, request: Mapping[str, Any], /) -> AssistantMessage: ...

    def __call__(self, *given: Any) -> Iterator[StreamEvent] | AssistantMessage:
        """Stream the answer to a context, or give the whole answer to a request dict.

        Raises:
            Exception: asked with a request dict: what the last one failed with.
        """
        if len(given) == 1:
            return answer_of(self.stream_request(given[0]))
        context, options, signal = given

        def ask(position: int) -> Iterator[StreamEvent]:
            own = options if position == 0 else attrs.evolve(options, model=None)
            return self._models[position](context, own, signal)

        return self._answer(ask, model_id(options.model), signal)

    def stream_request(
        self, request: Mapping[str, Any], signal: AbortSignal | None = None
    ) -> Iterator[StreamEvent]:
        """Stream the answer to a request dict in the OpenAI chat form; its model is for the first one."""
        if not isinstance(request, Mapping):
            raise TypeError(f"give a request dict, or context, options and signal, not {request!r}")
        signal = signal or AbortSignal()

        def ask(position: int) -> Iterator[StreamEvent]:
            own = {key: value for key, value in request.items() if position == 0 or key != "model"}
            return _stream_request(self._given[position], self._models[position], own, signal)

        return self._answer(ask, str(request.get("model") or ""), signal)

    def _answer(
        self, ask: Callable[[int], Iterator[StreamEvent]], model: str, signal: AbortSignal
    ) -> Iterator[StreamEvent]:
        for position, stream_fn in enumerate(self._models):
            failed = yield from _until_content(functools.partial(ask, position))
            if failed is None:
                return
            is_last = position + 1 == len(self._models)
            if is_last or signal.aborted or not _is_its_own(failed, stream_fn):
                yield failed
                return
            error = failed.error
            reason = failed.message.error_message or (error_text(error) if error else "no answer")
            status = error.status if isinstance(error, LlmError) else None
            asked, following = self._names[position : position + 2]
            asked = model if model and position == 0 else asked
            logger.info("%s failed: %s; asking %s", asked, reason, following)
            yield fallback_notice(asked, following, reason, status)


def _until_content(
    ask: Callable[[], Iterator[StreamEvent]],
) -> Generator[StreamEvent, None, ErrorEvent | None]:
    """Give a model's events; where it fails before its first content, return the failure instead."""
    start: StartEvent | None = None
    begun = False
    with contextlib.closing(_events(ask)) as events:
        for event in events:
            if isinstance(event, ErrorEvent) and not begun:
                return event
            if isinstance(event, StartEvent) and not begun:
                start = event  # another one's may follow in its place
                continue
            if not isinstance(event, StreamNoticeEvent) and not begun:
                begun = True
                if start is not None:
                    yield start
            yield event
            if isinstance(event, (DoneEvent, ErrorEvent)):
                return None
    return _failed(BadResponseError("the stream ended without an answer", None, True))


def _events(ask: Callable[[], Iterator[StreamEvent]]) -> Generator[StreamEvent, None, None]:
    try:
        yield from ask()
    except Exception as error:  # a stream of anybody's may break its promise not to raise
        yield _failed(error)


def _failed(error: Exception) -> ErrorEvent:
    text = str(error) if isinstance(error, YiemAgentError) else error_text(error)
    return ErrorEvent(AssistantMessage(stop_reason="error", error_message=text), error)


def _stream_request(
    given: Any, stream_fn: StreamFn, request: dict[str, Any], signal: AbortSignal
) -> Iterator[StreamEvent]:
    if hasattr(stream_fn, "stream_request"):
        return cast("Iterator[StreamEvent]", stream_fn.stream_request(request, signal))
    if given is not stream_fn and not isinstance(given, str):  # a plain function
        return iter([DoneEvent(assistant_message(given(request)))])
    context, options = read_request(request)
    return stream_fn(context, options, signal)


def _is_its_own(failed: ErrorEvent, stream_fn: StreamFn) -> bool:
    """Whether another model may do better: the failure is of this one's server, key, quota or name."""
    message, error = failed.message, failed.error
    if message.stop_reason == "aborted" or message.content or message.raw_stop_reason:
        return False
    match error:
        case ContextOverflowError():
            return False
        case AuthenticationError() | RateLimitError() | BadResponseError() | LlmConnectionError():
            return True
        case LlmError():
            of_server = error.status is None or retryable_status(error.status)
            return (
                of_server
                or error.retryable
                or error.status in {404, 405}
                or is_unknown_model(error)
            )
        case HttpError():
            return True
        case YiemAgentError():
            return False
        case _:
            # A provider of ours raises nothing of its own: it is a hook's, which would fail again.
            return not isinstance(stream_fn, HttpProvider)


def _name(given: Any, stream_fn: StreamFn) -> str:
    if isinstance(given, str):
        return given
    model, provider = (getattr(stream_fn, name, None) for name in ("model", "provider"))
    if isinstance(model, str) and model:
        return f"{provider}:{model}" if isinstance(provider, str) and provider else model
    return getattr(given, "__name__", None) or type(given).__name__
