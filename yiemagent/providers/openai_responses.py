"""The OpenAI Responses API, streamed or not, against any server that speaks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from yiemagent.context import LlmContext
from yiemagent.errors import ConfigurationError
from yiemagent.llm import StreamOptions
from yiemagent.messages import AssistantMessage
from yiemagent.providers.http_provider import Endpoint, HttpProvider
from yiemagent.providers.responses_body import Manner, Summary, request_body
from yiemagent.providers.responses_stream import ResponseAssembler, whole_answer

__all__ = ["OpenAIResponses", "create"]


class OpenAIResponses(HttpProvider):
    """Asks a model over the OpenAI Responses API.

    A `StreamFn`, and also a plain `llm_call`: called with a request dict alone, in the API's own form ("input", …) or
    the chat API's ("messages", …), it gives the whole answer, or raises. Safe to share between agents and threads.

    The arguments are those of `HttpProvider`; a base URL goes up to and without "/responses". Objects in `extra_body`
    (`text`, `reasoning`) are merged into ours, and entries of lists (`tools`, `include`) stand behind ours.

    Args:
        model: the model's name.
        store: whether the server should keep the responses. Conversations don't need it: what a reasoning model has to
            know again travels with each request, encrypted.
        reasoning_summary: the kind of summary of its reasoning that a model is asked for where a level of reasoning
            is; None: none, as for organisations that OpenAI has not verified.
        idle_timeout_s: limit for each wait of a stream, keep-alive events not counted; None: none. A model may think
            for minutes without a word, so it is longer than elsewhere.
        options: the further arguments of `HttpProvider`.
    """

    api: ClassVar[str] = "openai-responses"
    _joined_fields = None
    native_output: ClassVar[bool] = True
    endpoint = Endpoint(
        "openai", "https://api.openai.com/v1", ("OPENAI_API_KEY",), ("OPENAI_BASE_URL",)
    )

    def __init__(
        self,
        model: str,
        *,
        store: bool = False,
        reasoning_summary: Summary | None = "auto",
        idle_timeout_s: float | None = 600.0,
        **options: Any,
    ) -> None:
        super().__init__(model, idle_timeout_s=idle_timeout_s, **options)
        self._manner = Manner(
            provider=self.provider,
            api=self.api,
            stream=self._stream,
            store=store,
            summary=reasoning_summary,
            images_in_results=self._own_server,
        )

    def _url(self, _model: str) -> str:
        return f"{self._base_url}/responses"

    def _key_headers(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"}

    def _body(self, context: LlmContext, options: StreamOptions) -> dict[str, Any]:
        return request_body(context, options, self._manner, model=self._model_of(options))

    def _body_of_request(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if "input" not in request:
            return super()._body_of_request(request)
        ours = {"model": self.model, "store": self._manner.store}
        return {**ours, **request, "stream": self._stream}

    def _assembler(self, model: str) -> ResponseAssembler:
        return ResponseAssembler(model, self.provider, self.api)

    def _whole(self, value: Any) -> AssistantMessage:
        return whole_answer(value, self.model, self.provider, self.api)


def create(model: str, **options: Any) -> OpenAIResponses:
    """Give the provider for the model string "openai-responses:model".

    Raises:
        ConfigurationError: the model has no name.
    """
    if not model:
        raise ConfigurationError(
            "name the model after the provider, such as 'openai-responses:gpt-5.1'"
        )
    return OpenAIResponses(model, **options)
