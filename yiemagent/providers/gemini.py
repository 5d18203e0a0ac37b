"""The Gemini API (generateContent), streamed or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

from yiemagent.context import LlmContext
from yiemagent.errors import ConfigurationError, LlmError
from yiemagent.llm import StreamOptions
from yiemagent.messages import AssistantMessage
from yiemagent.providers.gemini_body import request_body, traits_of
from yiemagent.providers.gemini_stream import GeminiAssembler
from yiemagent.providers.http_provider import Endpoint, HttpProvider
from yiemagent.streaming import DoneEvent, ErrorEvent

__all__ = ["Gemini", "create"]

_VERSION_PATH = "/v1beta"


class Gemini(HttpProvider):
    """Asks a model over the Gemini API.

    A `StreamFn`, and also a plain `llm_call`: called with a request dict alone, in the OpenAI chat form or the API's
    own ("contents", …), it gives the whole answer, or raises. Safe to share between agents and threads. The arguments
    are those of `HttpProvider`; a base URL goes up to and without "/models", and one without a path gets "/v1beta".
    Objects in `extra_body` (`generationConfig`, `toolConfig`) are merged into ours, field by field.
    """

    api: ClassVar[str] = "gemini"
    _joined_fields = frozenset({"generationConfig", "systemInstruction", "toolConfig"})
    endpoint = Endpoint(
        "gemini",
        f"https://generativelanguage.googleapis.com{_VERSION_PATH}",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        ("GOOGLE_GEMINI_BASE_URL",),
    )

    @property
    def native_output(self) -> bool:
        """Whether the model takes structured output together with tools, as those from Gemini 3 on do."""
        return traits_of(self.model).is_modern

    def _url(self, model: str) -> str:
        path = model if "/" in model else f"models/{model}"
        method = "streamGenerateContent?alt=sse" if self._stream else "generateContent"
        version = "" if urlsplit(self._base_url).path else _VERSION_PATH
        return f"{self._base_url}{version}/{quote(path)}:{method}"

    def _key_headers(self, key: str) -> dict[str, str]:
        return {"x-goog-api-key": key}

    def _body(self, context: LlmContext, options: StreamOptions) -> dict[str, Any]:
        model = self._model_of(options)
        return request_body(context, options, model=model, provider=self.provider, api=self.api)

    def _body_of_request(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if "contents" in request:
            return {key: value for key, value in request.items() if key != "model"}
        return super()._body_of_request(request)

    def _assembler(self, model: str) -> GeminiAssembler:
        return GeminiAssembler(model, self.provider, self.api)

    def _whole(self, value: Any) -> AssistantMessage:
        answer = self._assembler(self.model)
        for chunk in value if isinstance(value, list) else [value]:  # a list: a stream as one array
            answer.take(chunk)
        last = answer.end(signalled=True)[-1]
        assert isinstance(last, DoneEvent | ErrorEvent)
        error = last.error if isinstance(last, ErrorEvent) else None
        if isinstance(error, LlmError) and error.retryable:
            raise error
        return last.message


def create(model: str, **options: Any) -> Gemini:
    """Give the provider for the model strings "gemini:model" and "google:model".

    Raises:
        ConfigurationError: the model has no name.
    """
    if not model:
        raise ConfigurationError(
            "name the model after the provider, such as 'gemini:gemini-3.8-flash'"
        )
    return Gemini(model, **options)
