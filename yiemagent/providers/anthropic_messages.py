"""The Anthropic Messages API, streamed or not, against any server that speaks it."""

from __future__ import annotations

import functools
import itertools
import logging
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, cast

import attrs

from yiemagent.abort import AbortSignal
from yiemagent.context import LlmContext
from yiemagent.errors import BadResponseError, ConfigurationError, LlmError
from yiemagent.llm import StreamOptions
from yiemagent.messages import AssistantMessage, model_id
from yiemagent.payload import FrozenDict, freeze_json
from yiemagent.providers.anthropic_body import request_body
from yiemagent.providers.anthropic_history import (
    going_on,
    signatures,
    target_of,
    without_thinking,
)
from yiemagent.providers.anthropic_models import traits_of
from yiemagent.providers.anthropic_stream import AnthropicAssembler, whole_answer
from yiemagent.providers.http_provider import Endpoint, HttpProvider
from yiemagent.streaming import (
    DoneEvent,
    ErrorEvent,
    StartEvent,
    StreamEvent,
    StreamNoticeEvent,
)

__all__ = ["AnthropicMessages", "create"]

logger = logging.getLogger("yiemagent.providers.anthropic_messages")

VERSION = "2023-06-01"
# How often an answer that the server's own tools work on may pause and be gone on with.
MAX_PAUSES = 20
# How many signatures are remembered that the server takes back no more.
MAX_LOST = 100_000
# Fields of a request that only this API has, or has at the top.
_OWN_FIELDS = {
    "container", "mcp_servers", "metadata", "output_config", "stop_sequences", "system", "thinking", "top_k",
}  # fmt: skip
_NOT_TAKEN_BACK = re.compile(
    r"invalid\W+signature\W+in\W+thinking|bound to a different conversation", re.IGNORECASE
)


class AnthropicMessages(HttpProvider):
    """Asks a model over the Anthropic Messages API.

    A `StreamFn`, and also a plain `llm_call`: called with a request dict alone, in the OpenAI chat form or in the API's
    own, it gives the whole answer, or raises. Safe to share between agents and threads. The arguments are those of
    `HttpProvider` and these; a base URL goes up to and without "/v1/messages". An `output_config` in `extra_body` is
    merged into ours, field by field.

    An answer that pauses (`pause_turn`, where the server's own tools take long) is gone on with, as one answer.
    Thinking that the server refuses to take back, since something before it changed, is sent no more.

    Args:
        model: the model's name, such as "claude-opus-5-5".
        betas: names for the header "anthropic-beta".
        server_tools: definitions of tools that run on the server, as the API has them.
        eager_tool_input: whether tools' arguments are streamed as they come, before they are known to be JSON.
        idle_timeout_s: limit for each wait of a stream; long, since newer models say nothing while they think.
        options: see `HttpProvider`.
    """

    api: ClassVar[str] = "anthropic-messages"
    _joined_fields = frozenset({"output_config"})
    endpoint = Endpoint(
        "anthropic",
        "https://api.anthropic.com",
        ("ANTHROPIC_API_KEY",),
        ("ANTHROPIC_BASE_URL",),
    )

    def __init__(
        self,
        model: str,
        *,
        betas: Iterable[str] = (),
        server_tools: Iterable[Mapping[str, Any]] = (),
        eager_tool_input: bool = False,
        idle_timeout_s: float | None = 600.0,
        **options: Any,
    ) -> None:
        super().__init__(model, idle_timeout_s=idle_timeout_s, **options)
        self._betas = ",".join([betas] if isinstance(betas, str) else betas)
        self._server_tools = tuple(cast("FrozenDict", freeze_json(tool)) for tool in server_tools)
        self._eager_input = eager_tool_input
        # Signatures of thinking that the server takes back no more. Replaced and never changed, so that threads may
        # read it; one that loses a race learns again what the server takes back.
        self._lost: frozenset[str] = frozenset()

    @property
    def native_output(self) -> bool:
        """Whether the model can be held to a JSON Schema."""
        return traits_of(self.model).native_output

    def _url(self, _model: str) -> str:
        return f"{self._base_url.removesuffix('/v1')}/v1/messages"

    def _key_headers(self, key: str) -> dict[str, str]:
        return {"x-api-key": key}

    def _api_headers(self, _body: Mapping[str, Any]) -> dict[str, str]:
        betas = {"anthropic-beta": self._betas} if self._betas else {}
        return {"anthropic-version": VERSION, **betas}

    def _body(self, context: LlmContext, options: StreamOptions) -> dict[str, Any]:
        model = self._model_of(options)
        return request_body(
            context,
            options,
            target=target_of(model, self.provider, self.api, own_server=self._own_server),
            max_tokens=self._limit(options),
            stream=self._stream,
            eager_input=self._eager_input,
            server_tools=self._server_tools,
        )

    def _limit(self, options: StreamOptions) -> int | None:
        return self.model_facts(options.model).max_output_tokens

    def _body_of_request(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if not _is_own_form(request):
            return super()._body_of_request(request)
        model = model_id(request.get("model")) or self.model
        options = StreamOptions(model=model, cache="none")
        return {
            **self._body(LlmContext(), options),
            **request,
            "model": model,
            "stream": self._stream,
        }

    def _assembler(self, model: str) -> AnthropicAssembler:
        return AnthropicAssembler(model, self.provider, self.api)

    def _whole(self, value: Any) -> AssistantMessage:
        return whole_answer(value)

    # -- one answer, over as many requests as it takes ---------------------------------------------------------------

    def _answer(
        self, make_body: Callable[[], dict[str, Any]], options: StreamOptions, signal: AbortSignal
    ) -> Iterator[StreamEvent]:
        said: AssistantMessage | None = None
        for pauses in itertools.count(1):
            paused: AssistantMessage | None = None
            for event in self._part(_rest_of(make_body, said), options, signal):
                told = event if said is None else _behind(said, event)
                if isinstance(told, DoneEvent) and _is_paused(told.message):
                    paused = told.message
                elif told is not None:
                    yield told
            if paused is None:
                return
            if pauses > MAX_PAUSES:
                yield _endless(paused)
                return
            said = paused

    def _part(
        self, make_body: Callable[[], dict[str, Any]], options: StreamOptions, signal: AbortSignal
    ) -> Iterator[StreamEvent]:
        """Give the answer to a request; where the server takes thinking back no more, ask once again without it."""
        sent: set[str] = set()

        def body() -> dict[str, Any]:
            made = make_body()
            made = without_thinking(made, self._lost) if self._lost else made
            sent.update(signatures(made))
            return made

        for event in super()._answer(body, options, signal):
            if not (sent and _is_not_taken_back(event)):
                yield event
                continue
            logger.warning("%r takes back no thinking from before a change; it is left out", self)
            kept = frozenset() if len(self._lost) > MAX_LOST else self._lost
            self._lost = kept | sent
            yield from super()._answer(body, options, signal)
            return


def create(model: str, **options: Any) -> AnthropicMessages:
    """Give the provider for the model string "anthropic:model".

    Raises:
        ConfigurationError: the model has no name.
    """
    if not model:
        raise ConfigurationError(
            "name the model after the provider, such as 'anthropic:claude-opus-5-5'"
        )
    return AnthropicMessages(model, **options)


def _is_own_form(request: Mapping[str, Any]) -> bool:
    """Whether a request dict is in the API's own form; one that says nothing either way is read like any other."""
    tools = request.get("tools") or ()
    return bool(_OWN_FIELDS & request.keys()) or any("function" not in tool for tool in tools)


# --- answers in parts -----------------------------------------------------------------------------------------------


def _rest_of(
    make_body: Callable[[], dict[str, Any]], said: AssistantMessage | None
) -> Callable[[], dict[str, Any]]:
    return make_body if said is None else lambda: going_on(make_body(), said)


def _is_paused(message: AssistantMessage) -> bool:
    return message.raw_stop_reason == "pause_turn" and not message.tool_calls


def _behind(said: AssistantMessage, event: StreamEvent) -> StreamEvent | None:
    """Give an event of a later part as one of the whole answer."""
    if isinstance(event, StartEvent):
        return None
    if isinstance(event, (DoneEvent, ErrorEvent)):
        message = event.message
        counts = [usage for usage in (said.usage, message.usage) if usage is not None]
        whole = attrs.evolve(
            message,
            content=said.content + message.content,
            usage=functools.reduce(operator.add, counts) if counts else None,
            timestamp=said.timestamp,
        )
        return attrs.evolve(event, message=whole)
    if isinstance(event, StreamNoticeEvent):
        return event
    return attrs.evolve(event, content_index=event.content_index + len(said.content))


def _endless(paused: AssistantMessage) -> ErrorEvent:
    said = f"the answer paused more than {MAX_PAUSES} times and did not come to its end"
    failed = attrs.evolve(paused, stop_reason="error", error_message=said)
    return ErrorEvent(failed, BadResponseError(said))


def _is_not_taken_back(event: StreamEvent) -> bool:
    if not isinstance(event, ErrorEvent) or event.message.content:
        return False
    error = event.error
    return (
        isinstance(error, LlmError)
        and error.status == 400
        and _NOT_TAKEN_BACK.search(str(error)) is not None
    )
