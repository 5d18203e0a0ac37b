"""The wing that asks models: one room per wire API, loaded when it is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, cast

from yiemagent.errors import ConfigurationError
from yiemagent.llm import StreamFn

if TYPE_CHECKING:
    from yiemagent.providers.openai_chat import OpenAIChat

__all__ = ["OpenAIChat", "create"]

# Who serves a model string's provider: the room, whose function `create(model)` gives the `StreamFn`.
_ROOMS = {
    "openai": "yiemagent.providers.openai_chat",
    "local": "yiemagent.providers.local",
}
_NAMES = {"OpenAIChat": "yiemagent.providers.openai_chat"}


def create(provider: str, model: str) -> StreamFn:
    """Give the provider for a model string "provider:model".

    Raises:
        ConfigurationError: no such provider is known, or what it needs is missing.
    """
    room = _ROOMS.get(provider)
    if room is None:
        known = ", ".join(sorted(_ROOMS))
        hint = "" if model else f"; did you mean 'openai:{provider}'?"
        raise ConfigurationError(
            f"no provider {provider!r} is known; the providers are: {known}{hint}"
        )
    return cast("StreamFn", importlib.import_module(room).create(model))


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_NAMES[name]), name)
