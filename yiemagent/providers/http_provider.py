"""What every API over HTTP has in common: keys, headers, hooks, retries, failures, reading an answer.

A class for one API says what its requests look like and how its answers are put together; all else is here, so that
no two providers differ in when they ask again, what they tell of a failure, or where a key may go.
"""

from __future__ import annotations

import abc
import itertools
import json
import logging
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, overload

import attrs

from yiemagent.abort import AbortSignal
from yiemagent.context import LlmContext
from yiemagent.errors import (
    AbortedError,
    AuthenticationError,
    BadResponseError,
    ConfigurationError,
    HttpError,
    LlmConnectionError,
    LlmError,
    RateLimitError,
    YiemAgentError,
    error_text,
)
from yiemagent.llm import StreamOptions
from yiemagent.messages import AssistantMessage, LlmModel, model_id
from yiemagent.net.exchange import origin_of
from yiemagent.net.http import HttpClient
from yiemagent.net.rate_gate import gate_id, rate_gates
from yiemagent.net.retry import GiveUp, RetryPolicy
from yiemagent.providers.advice import Asked, advised, without_secrets
from yiemagent.providers.answer_reader import Assembler, check_status, read_stream, read_whole
from yiemagent.providers.body_encoder import BodyEncoder
from yiemagent.providers.chat_request import read_request
from yiemagent.providers.endpoint import Endpoint, Key, first_set, host_of, same_server
from yiemagent.providers.models import model_facts
from yiemagent.providers.notices import gate_notice, retry_notice
from yiemagent.providers.prices import with_cost
from yiemagent.streaming import DoneEvent, ErrorEvent, StreamEvent

__all__ = ["Endpoint", "HttpProvider", "answer_of"]

logger = logging.getLogger("yiemagent.providers.http_provider")

_SPREAD_MS = 1_000
_SECRET_WORDS = ("auth", "cookie", "key", "secret", "token")


class HttpProvider(abc.ABC):
    """Asks a model over an API that is one POST request for each answer; the base of the providers.

    A `StreamFn`, and also a plain `llm_call`: called with a request dict alone it gives the whole answer, or raises.
    Safe to share between agents and threads.

    A subclass gives `api`, `endpoint`, `_url`, `_key_headers`, `_body`, `_assembler` and `_whole`; where a request
    dict is its own form, also `_body_of_request`.

    Args:
        model: the model's name.
        base_url: where the API is; None: what the endpoint's variable names, else the provider's own server.
        api_key: the key, or a function that is asked for it before each request. None: `StreamOptions.get_api_key`,
            else the endpoint's environment variable, which is sent only to the provider's own server and to the one
            that the variable for the base URL names.
        headers: sent with each request; they go before ours.
        extra_body: fields added to each request's body; they go before ours, and None leaves a field out.
        stream: whether answers are streamed.
        provider: the name that messages carry, and that `get_api_key` is asked with; None: the endpoint's.
        connect_timeout_s: limit for resolving, connecting and the TLS handshake together; None: none.
        idle_timeout_s: limit for each wait of a stream, keep-alive comments not counted; None: none.
        answer_timeout_s: limit for the wait for an answer that is not streamed; None: none.
        retry: how failed requests are asked again; `StreamOptions.max_retry_delay_ms` bounds its waits further.
        client: sends the requests; None: one of its own.

    Raises:
        ConfigurationError: the model has no name, or the base URL is none.
    """

    is_stream_fn = True  # asked with a context; and with a request dict alone, as a plain function
    api: ClassVar[str]
    # Fields of a body that what the user adds joins, where any other is replaced by it; None: every field.
    _joined_fields: ClassVar[frozenset[str] | None] = frozenset()
    endpoint: Endpoint

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | Callable[[], str | None] | None = None,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        stream: bool = True,
        provider: str | None = None,
        connect_timeout_s: float | None = 10.0,
        idle_timeout_s: float | None = 120.0,
        answer_timeout_s: float | None = 600.0,
        retry: RetryPolicy | None = None,
        client: HttpClient | None = None,
    ) -> None:
        if not model:
            raise ConfigurationError("model must be the name of a model, such as 'gpt-5.1'")
        named = None if base_url else first_set(self.endpoint.base_url_variables)
        url = (base_url or named or self.endpoint.base_url).rstrip("/")
        self.model = model
        self.provider = provider or self.endpoint.provider
        self._base_url = url
        self._host = host_of(url)
        self._origin = origin_of(url)
        self._own_server = same_server(url, self.endpoint.base_url)
        self._takes_environment_key = self._own_server or bool(named)
        self._api_key = api_key
        self._headers = dict(headers or {})
        self._extra_body = dict(extra_body or {})
        self._stream = stream
        self._connect_timeout_s = connect_timeout_s
        self._idle_timeout_s = idle_timeout_s if stream else answer_timeout_s
        self._retry = retry or RetryPolicy()
        self._client = client or HttpClient()
        self._encoder = BodyEncoder()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, host={self._host!r})"

    def check_key(self) -> None:
        """Look for the key of a request that brings none with it, and send nothing.

        Raises:
            AuthenticationError: there is none, though the server wants one; the text names the variable to set.
        """
        self._found_key(StreamOptions())

    def secrets(self) -> set[str]:
        """Give what no recording may show: the key, unless a function gives it, and what the given headers carry."""
        key = None if callable(self._api_key) else self._api_key
        return {secret for secret in self._secrets(key) if secret}

    def model_facts(self, model: LlmModel | str | None = None) -> LlmModel:
        """Give what is known of a model of this provider, such as its context window; None: of its own."""
        return model_facts(model, self.provider, default=self.model)

    def close(self) -> None:
        """Close the kept connections; it can still be asked and opens new ones."""
        self._client.close()

    # -- what an API's class says ------------------------------------------------------------------------------------

    @abc.abstractmethod
    def _url(self, model: str) -> str:
        """Give where a request is sent; `self._stream` tells whether a stream is asked for."""

    @abc.abstractmethod
    def _key_headers(self, key: str) -> dict[str, str]:
        """Give the headers that carry the key."""

    def _api_headers(self, _body: Mapping[str, Any]) -> dict[str, str]:
        """Give further headers that the API wants with a body."""
        return {}

    @abc.abstractmethod
    def _body(self, context: LlmContext, options: StreamOptions) -> dict[str, Any]:
        """Give the body of a request, in a stable order of its fields."""

    def _body_of_request(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Give the body for a request dict: one in the OpenAI chat form is read, and made anew."""
        return self._body(*read_request(request))

    @abc.abstractmethod
    def _assembler(self, model: str) -> Assembler:
        """Give what puts the next answer together."""

    @abc.abstractmethod
    def _whole(self, value: Any) -> AssistantMessage:
        """Give an answer that came as one JSON value; api, provider and model are set by the caller.

        Raises:
            BadResponseError: it is no answer.
        """

    def _model_of(self, options: StreamOptions) -> str:
        return model_id(options.model) or self.model

    # -- asking ------------------------------------------------------------------------------------------------------

    @overload
    def __call__(
        self, context: LlmContext, options: StreamOptions, signal: AbortSignal, /
    ) -> Iterator[StreamEvent]: ...

    @overload
    def __call__(self, request: Mapping[str, Any], /) -> AssistantMessage: ...

    def __call__(self, *given: Any) -> Iterator[StreamEvent] | AssistantMessage:
        """Stream the answer to a context, or give the whole answer to a request dict.

        Raises:
            LlmError: asked with a request dict: no answer came.
        """
        if len(given) == 1:
            return self._complete(given[0])
        context, options, signal = given
        return self._answer(lambda: self._body(context, options), options, signal)

    def stream_request(
        self, request: Mapping[str, Any], signal: AbortSignal | None = None
    ) -> Iterator[StreamEvent]:
        """Stream the answer to a request dict, in the OpenAI chat form or in the API's own."""
        if not isinstance(request, Mapping):
            raise TypeError(f"give a request dict, or context, options and signal, not {request!r}")
        options = StreamOptions(model=request.get("model"))
        signal = signal or AbortSignal()
        return self._answer(lambda: self._body_of_request(request), options, signal)

    def _complete(self, request: Mapping[str, Any]) -> AssistantMessage:
        return answer_of(self.stream_request(request))

    # -- one answer, over as many requests as it takes ---------------------------------------------------------------

    def _answer(
        self, make_body: Callable[[], dict[str, Any]], options: StreamOptions, signal: AbortSignal
    ) -> Iterator[StreamEvent]:
        model = self._model_of(options)
        sent = Key()
        for retries in itertools.count():
            answer = self._assembler(model)
            try:
                sent = yield from self._admitted(options, signal)
                yield from self._ask(
                    self._with_extra(make_body()), sent.key, answer, options, signal
                )
            except Exception as error:  # a stream never raises, whatever a hook or we do wrong
                failure = _as_ours(error)
            else:
                return
            if isinstance(failure, LlmError):
                policy = self._policy(options)
                self._let_others_wait(failure, policy, sent.key)
                decision = GiveUp() if answer.has_content else policy.decide(failure, retries)
                if not isinstance(decision, GiveUp):
                    yield retry_notice(failure, decision.attempt, decision.delay_ms)
                    signal.wait(decision.delay_ms / 1000)
                    continue
                failure = self._explained(failure, model, sent.source, decision.reason)
            yield from _with_cost([_error_event(answer, failure)], options)
            return

    def _explained(
        self, failure: LlmError, model: str, key_source: str | None, reason: str
    ) -> LlmError:
        variables = () if self._takes_environment_key else self.endpoint.key_variables
        failure = advised(failure, Asked(self._base_url, model, key_source, variables))
        return _like(failure, f"{failure}; {reason}") if reason else failure

    def _admitted(
        self, options: StreamOptions, signal: AbortSignal
    ) -> Generator[StreamEvent, None, Key]:
        """Wait where the server asked for time, and return the key to ask with.

        Who does not want to ask again does not wait here either.
        """
        policy = self._policy(options)
        while True:
            signal.raise_if_aborted()
            found = self._found_key(options)
            remaining_ms = rate_gates.remaining_ms(gate_id(self._origin, found.key))
            if not remaining_ms or not policy.max_retries:
                return found
            limit_ms = policy.max_delay_ms
            if limit_ms is not None and remaining_ms > limit_ms:
                raise RateLimitError(_too_long(self._host, remaining_ms, limit_ms))
            # Spread, so that not all who waited ask in the same moment.
            delay_ms = remaining_ms + round(min(remaining_ms / 10, _SPREAD_MS) * policy.chance())
            yield gate_notice(self._host, delay_ms)
            signal.wait(delay_ms / 1000)

    def _let_others_wait(self, failure: LlmError, policy: RetryPolicy, key: str | None) -> None:
        asked_ms, limit_ms = failure.retry_after_ms, policy.max_delay_ms
        if not isinstance(failure, RateLimitError) or asked_ms is None:
            return
        # What nobody would wait for may be about one model or one day: each asks for itself, and is told.
        if limit_ms is None or asked_ms <= limit_ms:
            rate_gates.close(gate_id(self._origin, key), asked_ms)

    def _policy(self, options: StreamOptions) -> RetryPolicy:
        limits = (self._retry.max_delay_ms, options.max_retry_delay_ms)
        known = [limit for limit in limits if limit is not None]
        return attrs.evolve(self._retry, max_delay_ms=min(known, default=None))

    def _with_extra(self, body: dict[str, Any]) -> dict[str, Any]:
        for name, extra in self._extra_body.items():
            joins = self._joined_fields is None or name in self._joined_fields
            body[name] = _joined(body.get(name), extra) if joins else extra
        return {key: value for key, value in body.items() if value is not None}

    def _ask(
        self,
        body: dict[str, Any],
        key: str | None,
        answer: Assembler,
        options: StreamOptions,
        signal: AbortSignal,
    ) -> Iterator[StreamEvent]:
        if options.on_payload is not None:
            body = options.on_payload(body) or body
            # Not by the encoder: what the hook made may hold anything.
            payload = json.dumps(body, separators=(",", ":"), default=str).encode("ascii")
        else:
            payload = self._encoder.encode(body)
        last: Sequence[StreamEvent] = ()
        try:
            with self._client.request(
                "POST",
                self._url(self._model_of(options)),
                headers=self._request_headers(key, body),
                body=payload,
                signal=signal,
                connect_timeout_s=self._connect_timeout_s,
                idle_timeout_s=self._idle_timeout_s,
                stream=self._stream,
            ) as response:
                if options.on_response is not None:
                    options.on_response(response.status, response.headers)
                check_status(response)
                kind = response.headers.get("content-type", "").lower()
                if "event-stream" in kind or (self._stream and "json" not in kind):
                    last = yield from read_stream(response, answer, self._last_events(options))
                else:
                    last = read_whole(response, answer, self._last_events(options))
        except (HttpError, LlmError) as error:
            failure = without_secrets(_as_llm_error(error), self._secrets(key))
            # A traceback shows the cause, so one that repeats the key is left out.
            raise failure from (error if str(error) == str(failure) else None)
        _raise_what_may_pass(last, answer)
        yield from _with_cost(
            last, options
        )  # with the connection given back: who has the last event reads no further

    def _last_events(self, options: StreamOptions) -> Callable[[Any], Sequence[StreamEvent]]:
        model = self._model_of(options)

        def events(value: Any) -> Sequence[StreamEvent]:
            message = attrs.evolve(
                self._whole(value), api=self.api, provider=self.provider, model=model
            )
            if message.failed:
                failure = BadResponseError(message.error_message or "the model's answer failed")
                return [ErrorEvent(message, failure)]
            return [DoneEvent(message)]

        return events

    # -- headers and the key -----------------------------------------------------------------------------------------

    def _found_key(self, options: StreamOptions) -> Key:
        """Give the key: the one given, else what the hook says, else the environment's."""
        key = self._api_key() if callable(self._api_key) else self._api_key
        if key:
            return Key(key.strip(), "api_key")
        if options.get_api_key is not None and (key := options.get_api_key(self.provider)):
            return Key(key.strip(), "get_api_key")
        variables = self.endpoint.key_variables if self._takes_environment_key else ()
        for name in variables:
            if key := os.environ.get(name):
                return Key(key.strip(), name)
        if self._headers_carry_key():
            return Key(None, "headers")
        if self._own_server and self.endpoint.needs_key:
            names = " or ".join(self.endpoint.key_variables)
            raise AuthenticationError(
                f"there is no API key for {self.provider}: set {names}, or give one as api_key"
            )
        return Key()

    def _headers_carry_key(self) -> bool:
        names = {name.lower() for name in self._key_headers("")} | {"authorization"}
        return any(name.lower() in names for name in self._headers)

    def _secrets(self, key: str | None) -> tuple[str, ...]:
        """Give what no text may show: the key, and what the given headers carry, with and without its scheme."""
        values = [
            value
            for name, value in self._headers.items()
            if any(word in name.lower() for word in _SECRET_WORDS)
        ]
        return (key or "", *values, *[value.rpartition(" ")[2] for value in values])

    def _request_headers(self, key: str | None, body: Mapping[str, Any]) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json" if self._stream else "application/json",
            "User-Agent": "yiemagent",
            **self._api_headers(body),
        }
        if key:
            headers |= self._key_headers(key)
        theirs = {name.lower() for name in self._headers}
        ours = {name: value for name, value in headers.items() if name.lower() not in theirs}
        return {**ours, **self._headers}


def answer_of(events: Iterable[StreamEvent]) -> AssistantMessage:
    """Give the message of a stream's Done.

    Raises:
        Exception: what the stream's Error tells of.
    """
    for event in events:
        if isinstance(event, DoneEvent):
            return event.message
        if isinstance(event, ErrorEvent):
            raise event.error or BadResponseError(event.message.error_message or "no answer")
    raise BadResponseError("the stream ended without an answer")


# --- failures -------------------------------------------------------------------------------------------------------


def _joined(ours: Any, extra: Any) -> Any:
    """Give what the user adds to a field of ours: fields into an object, entries behind a list, else in its place."""
    if isinstance(ours, Mapping) and isinstance(extra, Mapping):
        return {**ours, **extra}
    if isinstance(ours, list) and isinstance(extra, (list, tuple)):
        return [*ours, *extra]
    return extra


def _raise_what_may_pass(last: Sequence[StreamEvent], answer: Assembler) -> None:
    """Raise the failure that an answer ended with, where nothing of it came and asking again may help."""
    if answer.has_content or not last:
        return
    end = last[-1]
    if isinstance(end, ErrorEvent) and isinstance(end.error, LlmError) and end.error.retryable:
        raise end.error


def _as_ours(error: Exception) -> Exception:
    if not isinstance(error, YiemAgentError):
        logger.error("asking a model failed in a hook or in the library", exc_info=error)
    return error


def _as_llm_error(error: HttpError | LlmError) -> LlmError:
    if isinstance(error, HttpError):
        return LlmConnectionError(error.args[0], error.status, error.retryable)
    return error


def _like(error: LlmError, text: str) -> LlmError:
    return type(error)(text, error.status, error.retryable, error.retry_after_ms)


def _too_long(host: str, wait_ms: int, limit_ms: int) -> str:
    wait, limit = wait_ms / 1000, limit_ms / 1000
    return (
        f"{host} asks all who use this key to wait {wait:.3g} s more; the limit is {limit:.15g} s"
    )


def _with_cost(events: Sequence[StreamEvent], options: StreamOptions) -> Iterator[StreamEvent]:
    """Give the last events of an answer, its message with what it cost."""
    for event in events:
        if isinstance(event, (DoneEvent, ErrorEvent)):
            message = with_cost(event.message, cache=options.cache)
            yield event if message is event.message else attrs.evolve(event, message=message)
        else:
            yield event


def _error_event(answer: Assembler, failure: Exception) -> ErrorEvent:
    if isinstance(failure, AbortedError):
        return ErrorEvent(answer.message("aborted", str(failure)), failure)
    ours = isinstance(failure, YiemAgentError)
    text = str(failure) if ours else error_text(failure)
    return ErrorEvent(answer.message("error", text), failure)
