"""The OpenAI chat-completions API, streamed or not, against any server that speaks it."""

from __future__ import annotations

import itertools
import json
import logging
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, overload
from urllib.parse import urlsplit

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
    YiemAgentError,
)
from yiemagent.llm import StreamOptions
from yiemagent.messages import AssistantMessage, model_id
from yiemagent.net.http import HttpClient, HttpResponse
from yiemagent.net.retry import GiveUp, RetryPolicy, parse_retry_after
from yiemagent.net.sse import SseParser
from yiemagent.openai_format import assistant_message
from yiemagent.providers.openai_body import BodyEncoder, request_body
from yiemagent.providers.openai_errors import error_from_body, error_from_value
from yiemagent.providers.openai_stream import ChunkAssembler
from yiemagent.streaming import DoneEvent, ErrorEvent, StreamEvent, StreamNoticeEvent

__all__ = ["OpenAIChat", "create"]

logger = logging.getLogger("yiemagent.providers.openai_chat")

API = "openai-chat"
DEFAULT_BASE_URL = "https://api.openai.com/v1"
_MAX_ERROR_BYTES = 1_048_576


class OpenAIChat:
    """Asks a model over the OpenAI chat-completions API.

    A `StreamFn`, and also a plain `llm_call`: called with a request dict alone it gives the whole answer, or raises.
    Safe to share between agents and threads.

    Args:
        model: the model's name, such as "gpt-5.1".
        base_url: where the API is, up to and without "/chat/completions"; None: `OPENAI_BASE_URL`, else OpenAI's own.
        api_key: the key, or a function that is asked for it before each request. None: `OPENAI_API_KEY`, which is sent
            only to OpenAI's own server and to the one that `OPENAI_BASE_URL` names.
        headers: sent with each request; they go before ours.
        extra_body: fields added to each request's body; they go before ours, and None leaves a field out.
        stream: whether answers are streamed.
        provider: the name that messages carry, and that `get_api_key` is asked with.
        connect_timeout_s: limit for resolving, connecting and the TLS handshake together; None: none.
        idle_timeout_s: limit for each wait of a stream, keep-alive comments not counted; None: none.
        answer_timeout_s: limit for the wait for an answer that is not streamed; None: none.
        retry: how failed requests are asked again; `StreamOptions.max_retry_delay_ms` bounds its waits further.
        client: sends the requests; None: one of its own.

    Raises:
        ConfigurationError: the model has no name, or the base URL is none.
    """

    is_stream_fn = True  # asked with a context; and with a request dict alone, as a plain function

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | Callable[[], str | None] | None = None,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        stream: bool = True,
        provider: str = "openai",
        connect_timeout_s: float | None = 10.0,
        idle_timeout_s: float | None = 120.0,
        answer_timeout_s: float | None = 600.0,
        retry: RetryPolicy | None = None,
        client: HttpClient | None = None,
    ) -> None:
        if not model:
            raise ConfigurationError("model must be the name of a model, such as 'gpt-5.1'")
        from_environment = os.environ.get("OPENAI_BASE_URL") if base_url is None else None
        url = (base_url or from_environment or DEFAULT_BASE_URL).rstrip("/")
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigurationError("base_url must begin with http:// or https:// and name a host")
        self.model = model
        self.provider = provider
        self._url = f"{url}/chat/completions"
        self._host = parts.hostname
        self._own_server = self._host == urlsplit(DEFAULT_BASE_URL).hostname
        self._takes_environment_key = self._own_server or bool(from_environment)
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

    def close(self) -> None:
        """Close the kept connections; it can still be asked and opens new ones."""
        self._client.close()

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

    def _complete(self, request: Mapping[str, Any]) -> AssistantMessage:
        if not isinstance(request, Mapping):
            raise TypeError(f"give a request dict, or context, options and signal, not {request!r}")
        body = {"model": self.model, **request, **self._wire_fields()}
        options = StreamOptions(model=str(body["model"]))
        for event in self._answer(lambda: self._with_extra(body), options, AbortSignal()):
            if isinstance(event, DoneEvent):
                return event.message
            if isinstance(event, ErrorEvent):
                raise event.error or BadResponseError(event.message.error_message or "")
        raise AssertionError  # a stream ends with Done or Error

    def _wire_fields(self) -> dict[str, Any]:
        if not self._stream:
            return {"stream": False}
        return {"stream": True, "stream_options": {"include_usage": True}}

    def _body(self, context: LlmContext, options: StreamOptions) -> dict[str, Any]:
        model = model_id(options.model) or self.model
        own = self._own_server
        body = request_body(context, options, model=model, stream=self._stream, own_server=own)
        return self._with_extra(body)

    def _with_extra(self, body: dict[str, Any]) -> dict[str, Any]:
        body |= self._extra_body
        return {key: value for key, value in body.items() if value is not None}

    # -- one answer, over as many requests as it takes -----------------------------------------------------------

    def _answer(
        self, make_body: Callable[[], dict[str, Any]], options: StreamOptions, signal: AbortSignal
    ) -> Iterator[StreamEvent]:
        model = model_id(options.model) or self.model
        for retries in itertools.count():
            answer = ChunkAssembler(model, self.provider, API)
            try:
                signal.raise_if_aborted()
                payload = self._payload(make_body, options)
                yield from self._ask(payload, answer, options, signal)
            except Exception as error:  # a stream never raises, whatever a hook or we do wrong
                failure = _as_ours(error)
            else:
                return
            if isinstance(failure, LlmError) and not answer.has_content:
                decision = self._policy(options).decide(failure, retries)
                if not isinstance(decision, GiveUp):
                    yield _notice(failure, decision.attempt, decision.delay_ms)
                    signal.wait(decision.delay_ms / 1000)
                    continue
                if decision.reason:
                    failure = _like(failure, f"{failure}; {decision.reason}")
            yield _error_event(answer, failure)
            return

    def _policy(self, options: StreamOptions) -> RetryPolicy:
        limits = (self._retry.max_delay_ms, options.max_retry_delay_ms)
        known = [limit for limit in limits if limit is not None]
        return attrs.evolve(self._retry, max_delay_ms=min(known, default=None))

    def _payload(self, make_body: Callable[[], dict[str, Any]], options: StreamOptions) -> bytes:
        body = make_body()
        if options.on_payload is not None:
            body = options.on_payload(body) or body
            # Not by the encoder: what the hook made may change later.
            return json.dumps(body, separators=(",", ":"), default=str).encode("ascii")
        return self._encoder.encode(body)

    def _ask(
        self,
        payload: bytes,
        answer: ChunkAssembler,
        options: StreamOptions,
        signal: AbortSignal,
    ) -> Iterator[StreamEvent]:
        key = self._key(options)
        last: Sequence[StreamEvent] = ()
        try:
            with self._client.request(
                "POST",
                self._url,
                headers=self._request_headers(key),
                body=payload,
                signal=signal,
                connect_timeout_s=self._connect_timeout_s,
                idle_timeout_s=self._idle_timeout_s,
                stream=self._stream,
            ) as response:
                if options.on_response is not None:
                    options.on_response(response.status, response.headers)
                _check_status(response)
                kind = response.headers.get("content-type", "").lower()
                if "event-stream" in kind or (self._stream and "json" not in kind):
                    last = yield from _read_stream(response, answer)
                else:
                    last = self._whole(response, answer)
        except (HttpError, LlmError) as error:
            raise _without_key(error, key) from error
        yield from last  # with the connection given back: who has the last event reads no further

    def _whole(self, response: HttpResponse, answer: ChunkAssembler) -> list[StreamEvent]:
        body = response.read()
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            if body.lstrip().startswith((b"data:", b":")):  # a stream under another name
                return _replay(body, answer)
            text = body[:200].decode("utf-8", "replace").strip()
            raise BadResponseError(
                f"the model's server sent no JSON: {text!r}", response.status, True
            ) from None
        if isinstance(value, Mapping) and value.get("error"):
            raise error_from_value(value)
        about = answer.message("stop")
        message = attrs.evolve(
            assistant_message(value), api=API, provider=self.provider, model=about.model
        )
        if message.failed:
            failure = BadResponseError(message.error_message or "the model's answer failed")
            return [ErrorEvent(message, failure)]
        return [DoneEvent(message)]

    # -- headers and the key -------------------------------------------------------------------------------------

    def _key(self, options: StreamOptions) -> str | None:
        key = options.get_api_key(self.provider) if options.get_api_key is not None else None
        if not key:
            key = self._api_key() if callable(self._api_key) else self._api_key
        if not key and self._takes_environment_key:
            key = os.environ.get("OPENAI_API_KEY")
        if key:
            return key.strip()
        if self._own_server and not any(name.lower() == "authorization" for name in self._headers):
            raise AuthenticationError(
                f"there is no API key for {self.provider}: set OPENAI_API_KEY, or give api_key="
            )
        return None

    def _request_headers(self, key: str | None) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json" if self._stream else "application/json",
            "User-Agent": "yiemagent",
        }
        if key:
            headers["Authorization"] = f"Bearer {key}"
        theirs = {name.lower() for name in self._headers}
        ours = {name: value for name, value in headers.items() if name.lower() not in theirs}
        return {**ours, **self._headers}


def create(model: str) -> OpenAIChat:
    """Give the provider for the model string "openai:model"."""
    if not model:
        raise ConfigurationError("name the model after the provider, such as 'openai:gpt-5.1'")
    return OpenAIChat(model)


# --- reading an answer ------------------------------------------------------------------------------------------


def _check_status(response: HttpResponse) -> None:
    if 200 <= response.status < 300:
        return
    body = response.read(_MAX_ERROR_BYTES)
    location = response.headers.get("location")
    if location and response.status < 400:
        raise BadResponseError(
            f"{response.origin} redirects to {location!r}; give that address as base_url",
            response.status,
        )
    wait_ms = parse_retry_after(response.headers, datetime.now(UTC))
    raise error_from_body(body, response.status, wait_ms)


def _read_stream(
    response: HttpResponse, answer: ChunkAssembler
) -> Generator[StreamEvent, None, Sequence[StreamEvent]]:
    """Give the events of a stream as they come, and return the last ones."""
    parser, loads, take = SseParser(), json.loads, answer.take
    for data in _pieces(response, answer):
        for event in parser.feed(data):
            text = event.data
            if text == "[DONE]":
                response.finish()
                return answer.end(signalled=True)
            try:
                chunk = loads(text)
            except (ValueError, RecursionError):
                _check_noise(text)
                continue
            if event.event == "error":
                raise error_from_value(chunk)
            events = take(chunk)
            if events:
                response.note_progress()
                yield from events
    return _rest(parser, answer)


def _pieces(response: HttpResponse, answer: ChunkAssembler) -> Iterator[bytes]:
    """Give the body; what goes wrong with the connection after the answer's end is no matter."""
    try:
        yield from response.iter_bytes(only_noted_progress=True)
    except HttpError:
        if not answer.is_finished:
            raise


def _rest(parser: SseParser, answer: ChunkAssembler) -> list[StreamEvent]:
    """Give what the end of the body amounts to: an unfinished event, a body that was no stream, or a break."""
    events: list[StreamEvent] = []
    for event in parser.end():
        if event.data == "[DONE]":
            return answer.end(signalled=True)
        events += answer.take(_json_or_none(event.data))
    stray = parser.stray.strip()
    if not stray or answer.has_content:
        return events + answer.end(signalled=False)
    value = _json_or_none(stray)
    if isinstance(value, Mapping) and value.get("choices"):
        return [*answer.take(value), *answer.end(signalled=True)]
    raise error_from_value(value if value is not None else f"no event stream but {stray[:200]!r}")


def _replay(body: bytes, answer: ChunkAssembler) -> list[StreamEvent]:
    """Give the events of a stream that came whole."""
    parser = SseParser()
    events: list[StreamEvent] = []
    for event in parser.feed(body):
        if event.data == "[DONE]":
            return events + answer.end(signalled=True)
        events += answer.take(_json_or_none(event.data))
    return events + _rest(parser, answer)


def _json_or_none(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _check_noise(text: str) -> None:
    """Let pass what keeps a connection alive; refuse what should have been a chunk."""
    if text.lstrip().startswith("{"):
        raise BadResponseError(
            f"the model's server sent a damaged chunk: {text[:200]!r}", None, True
        )


# --- failures ---------------------------------------------------------------------------------------------------


def _as_ours(error: Exception) -> Exception:
    if not isinstance(error, YiemAgentError):
        logger.error("asking a model failed in a hook or in the library", exc_info=error)
    return error


def _without_key(error: HttpError | LlmError, key: str | None) -> LlmError:
    """Give the model's error for a failure, its text without the key, which some servers repeat."""
    text = str(error).replace(key, "…") if key else str(error)
    if isinstance(error, HttpError):
        return LlmConnectionError(text, error.status, error.retryable)
    return _like(error, text)


def _like(error: LlmError, text: str) -> LlmError:
    return type(error)(text, error.status, error.retryable, error.retry_after_ms)


def _notice(failure: LlmError, attempt: int, delay_ms: int) -> StreamNoticeEvent:
    return StreamNoticeEvent(
        "retry_scheduled",
        f"retry {attempt} in {delay_ms / 1000:.3g} s: {failure}",
        {
            "attempt": attempt,
            "delay_ms": delay_ms,
            "reason": str(failure),
            "status": failure.status,
        },
    )


def _error_event(answer: ChunkAssembler, failure: Exception) -> ErrorEvent:
    if isinstance(failure, AbortedError):
        return ErrorEvent(answer.message("aborted", str(failure)), failure)
    ours = isinstance(failure, YiemAgentError)
    text = str(failure) if ours else f"{type(failure).__name__}: {failure}"
    return ErrorEvent(answer.message("error", text), failure)
