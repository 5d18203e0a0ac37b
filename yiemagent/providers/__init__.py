"""The wing that asks models: one room per wire API, loaded when it is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, cast

from yiemagent.errors import ConfigurationError
from yiemagent.llm import StreamFn

if TYPE_CHECKING:
    from yiemagent.net.retry import RetryPolicy
    from yiemagent.providers.anthropic_messages import AnthropicMessages
    from yiemagent.providers.fallbacks import fallback
    from yiemagent.providers.gemini import Gemini
    from yiemagent.providers.openai_chat import OpenAIChat
    from yiemagent.providers.openai_responses import OpenAIResponses
    from yiemagent.providers.profiles import Profile, profile

__all__ = [
    "AnthropicMessages",
    "Gemini",
    "OpenAIChat",
    "OpenAIResponses",
    "Profile",
    "RetryPolicy",
    "create",
    "fallback",
    "profile",
]

_CHAT = "yiemagent.providers.openai_chat"

# Who serves a model string's provider: the room, whose function `create(model, **options)` gives the `StreamFn`; and
# options that the provider's name stands for.
_ROOMS: dict[str, tuple[str, dict[str, Any]]] = {
    "openai": (_CHAT, {}),
    "openai-chat": (_CHAT, {}),
    "openai-responses": ("yiemagent.providers.openai_responses", {}),
    "ollama": (_CHAT, {"profile": "ollama"}),
    "llamacpp": (_CHAT, {"profile": "llamacpp"}),
    "vllm": (_CHAT, {"profile": "vllm"}),
    "lmstudio": (_CHAT, {"profile": "lmstudio"}),
    "openrouter": (_CHAT, {"profile": "openrouter"}),
    "deepseek": (_CHAT, {"profile": "deepseek"}),
    "mistral": (_CHAT, {"profile": "mistral"}),
    "groq": (_CHAT, {"profile": "groq"}),
    "anthropic": ("yiemagent.providers.anthropic_messages", {}),
    "gemini": ("yiemagent.providers.gemini", {}),
    "google": ("yiemagent.providers.gemini", {}),
    "local": ("yiemagent.providers.local", {}),
}
_NAMES = {
    "AnthropicMessages": "yiemagent.providers.anthropic_messages",
    "Gemini": "yiemagent.providers.gemini",
    "OpenAIChat": _CHAT,
    "OpenAIResponses": "yiemagent.providers.openai_responses",
    "Profile": "yiemagent.providers.profiles",
    "RetryPolicy": "yiemagent.net.retry",
    "fallback": "yiemagent.providers.fallbacks",
    "profile": "yiemagent.providers.profiles",
}


def create(provider: str, model: str, /, **options: Any) -> StreamFn:
    """Give the provider for a model string "provider:model".

    Args:
        provider: its name.
        model: the model's; may be empty only for "local".
        options: arguments of the provider's class, such as `base_url`, `api_key`, `headers`, `stream`.

    Raises:
        ConfigurationError: no such provider is known, or what it needs is missing.
    """
    if not model.strip():  # a name of blanks is none
        model = ""
    if not provider.strip():
        raise ConfigurationError(
            f"the model string {f'{provider}:{model}' if model else ''!r} names no provider; write "
            "'provider:model', such as 'openai:gpt-5.1', or 'local' for the small model on this machine"
        )
    known = _ROOMS.get(provider)
    if known is None:
        names = ", ".join(sorted(_ROOMS))
        hint = "" if model else f"; did you mean 'openai:{provider}'?"
        raise ConfigurationError(
            f"no provider {provider!r} is known; the providers are: {names}{hint}"
        )
    room, stands_for = known
    return cast("StreamFn", importlib.import_module(room).create(model, **stands_for, **options))


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_NAMES[name]), name)
