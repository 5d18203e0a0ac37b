"""The OpenAI chat-completions API, streamed or not, against any server that speaks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from yiemagent.context import LlmContext
from yiemagent.errors import ConfigurationError
from yiemagent.llm import StreamOptions
from yiemagent.messages import AssistantMessage
from yiemagent.openai_format import assistant_message
from yiemagent.providers.http_provider import Endpoint, HttpProvider
from yiemagent.providers.openai_body import request_body
from yiemagent.providers.openai_stream import ChunkAssembler

__all__ = ["OpenAIChat", "create"]


class OpenAIChat(HttpProvider):
    """Asks a model over the OpenAI chat-completions API.

    A `StreamFn`, and also a plain `llm_call`: called with a request dict alone it gives the whole answer, or raises.
    Safe to share between agents and threads. The arguments are those of `HttpProvider`; a base URL goes up to and
    without "/chat/completions".
    """

    api: ClassVar[str] = "openai-chat"
    endpoint = Endpoint(
        "openai", "https://api.openai.com/v1", ("OPENAI_API_KEY",), ("OPENAI_BASE_URL",)
    )

    def _url(self, _model: str) -> str:
        return f"{self._base_url}/chat/completions"

    def _key_headers(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"}

    def _body(self, context: LlmContext, options: StreamOptions) -> dict[str, Any]:
        return request_body(
            context,
            options,
            model=self._model_of(options),
            stream=self._stream,
            own_server=self._own_server,
        )

    def _body_of_request(self, request: Mapping[str, Any]) -> dict[str, Any]:
        body = {"model": self.model, **request, "stream": self._stream}
        if self._stream:
            body["stream_options"] = {"include_usage": True}
        return body

    def _assembler(self, model: str) -> ChunkAssembler:
        return ChunkAssembler(model, self.provider, self.api)

    def _whole(self, value: Any) -> AssistantMessage:
        return assistant_message(value)


def create(model: str, **options: Any) -> OpenAIChat:
    """Give the provider for the model string "openai:model".

    Raises:
        ConfigurationError: the model has no name.
    """
    if not model:
        raise ConfigurationError("name the model after the provider, such as 'openai:gpt-5.1'")
    return OpenAIChat(model, **options)
