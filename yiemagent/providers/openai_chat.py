"""The OpenAI chat-completions API, streamed or not, against any server that speaks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

from yiemagent.context import LlmContext
from yiemagent.errors import ConfigurationError
from yiemagent.llm import StreamOptions
from yiemagent.messages import AssistantMessage
from yiemagent.net.http import HttpClient
from yiemagent.net.retry import RetryPolicy
from yiemagent.providers.endpoint import first_set
from yiemagent.providers.http_provider import HttpProvider
from yiemagent.providers.openai_body import request_body, stream_fields
from yiemagent.providers.openai_messages import ChatMessages
from yiemagent.providers.openai_stream import ChunkAssembler
from yiemagent.providers.openai_whole import whole_answer
from yiemagent.providers.profiles import Profile, profile_for
from yiemagent.providers.profiles import profile as profile_named

__all__ = ["OpenAIChat", "create"]

OPENAI_URL = "https://api.openai.com/v1"


class OpenAIChat(HttpProvider):
    """Asks a model over the OpenAI chat-completions API.

    A `StreamFn`, and also a plain `llm_call`: called with a request dict alone it gives the whole answer, or raises.
    Safe to share between agents and threads.

    Args:
        model: the model's name, as the server knows it.
        profile: how the server speaks: a profile's name or a `Profile`. None: that of the provider whose own host the
            base URL names, else "compatible", which asks for nothing special.
        base_url: where the API is, up to and without "/chat/completions"; None: where the profile's variable says, else
            the profile's own; without a profile `OPENAI_BASE_URL`, else OpenAI's own.
        idle_timeout_s: limit for each wait of a stream, keep-alive comments not counted; "profile": the profile's;
            None: none.

    The other arguments are those of `HttpProvider`.

    Raises:
        ConfigurationError: the model has no name, no such profile is known, or the base URL is none.
    """

    api: ClassVar[str] = "openai-chat"

    def __init__(
        self,
        model: str,
        *,
        profile: str | Profile | None = None,
        base_url: str | None = None,
        api_key: str | Callable[[], str | None] | None = None,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        stream: bool = True,
        provider: str | None = None,
        connect_timeout_s: float | None = 10.0,
        idle_timeout_s: float | Literal["profile"] | None = "profile",
        answer_timeout_s: float | None = 600.0,
        retry: RetryPolicy | None = None,
        client: HttpClient | None = None,
    ) -> None:
        if profile is None:
            profile = profile_for(base_url or first_set(("OPENAI_BASE_URL",)) or OPENAI_URL)
        self.profile = profile_named(profile) if isinstance(profile, str) else profile
        self.endpoint = self.profile.endpoint
        super().__init__(
            model,
            base_url=base_url,
            api_key=api_key,
            headers=headers,
            extra_body=extra_body,
            stream=stream,
            provider=provider,
            connect_timeout_s=connect_timeout_s,
            idle_timeout_s=(
                self.profile.idle_timeout_s if idle_timeout_s == "profile" else idle_timeout_s
            ),
            answer_timeout_s=answer_timeout_s,
            retry=retry,
            client=client,
        )
        self._messages = ChatMessages(self.profile, self.api, self.provider)

    @property
    def native_output(self) -> bool:
        """Whether the server itself holds an answer to a schema, also where tools are offered."""
        return self.profile.schema_output == "always"

    def _url(self, _model: str) -> str:
        return f"{self._base_url}/chat/completions"

    def _key_headers(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"}

    def _body(self, context: LlmContext, options: StreamOptions) -> dict[str, Any]:
        model = self._model_of(options)
        return request_body(
            context,
            options,
            self.profile,
            messages=self._messages.messages(context.system_prompt, context.messages, model),
            model=model,
            stream=self._stream,
        )

    def _body_of_request(self, request: Mapping[str, Any]) -> dict[str, Any]:
        streamed = stream_fields(self.profile) if self._stream else {"stream": False}
        return {"model": self.model, **request, **streamed}

    def _assembler(self, model: str) -> ChunkAssembler:
        return ChunkAssembler(
            model,
            self.provider,
            self.api,
            think_tags=self.profile.think_tags,
            signals_end=self.profile.signals_end,
        )

    def _whole(self, value: Any) -> AssistantMessage:
        return whole_answer(value, think_tags=self.profile.think_tags)


def create(model: str, *, profile: str | Profile | None = None, **options: Any) -> OpenAIChat:
    """Give the provider for a model string, such as "openai:gpt-5.1" or "ollama:qwen3".

    Args:
        model: the model's name.
        profile: how the server speaks.
        options: arguments of `OpenAIChat`.

    Raises:
        ConfigurationError: the model has no name.
    """
    if not model:
        known = profile_named(profile or "openai") if not isinstance(profile, Profile) else profile
        raise ConfigurationError(
            f"name the model after the provider, such as '{known.name}:{known.example}'"
        )
    return OpenAIChat(model, profile=profile, **options)
