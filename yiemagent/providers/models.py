"""What is known of common models, as data: how much they take and give, whether they think, whether they see."""

from __future__ import annotations

import functools
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import attrs

from yiemagent.messages import LlmModel, model_id

__all__ = ["canonical", "known_model", "model_facts", "names_of"]

_LIST = pathlib.Path(__file__).parent / "data" / "models.json"
_SECOND_NAMES = {"google": "gemini", "openai-chat": "openai", "openai-responses": "openai"}
# A model's name may go on with the day of its release, or with "latest".
_RELEASE = re.compile(r"(.+?)[-@](?:\d{4}-\d{2}-\d{2}|\d{8}|latest)")
_PLAIN = LlmModel("")


def canonical(provider: str) -> str:
    """Give the name under which our lists know a provider."""
    return _SECOND_NAMES.get(provider, provider)


def names_of(model: str) -> tuple[str, ...]:
    """Give the names under which our lists may know a model: its own, and that without its release."""
    release = _RELEASE.fullmatch(model)
    return (model, release[1]) if release else (model,)


@functools.cache
def _listed() -> Mapping[tuple[str, str], LlmModel]:
    data: Mapping[str, Mapping[str, Any]] = json.loads(_LIST.read_text(encoding="utf-8"))["models"]
    return {
        (provider, name): LlmModel(
            name,
            provider,
            context_window=facts["context_window"],
            max_output_tokens=facts["max_output_tokens"],
            input_kinds=["text", "image"] if facts["images"] else ["text"],
            reasoning=facts["reasoning"],
        )
        for provider, models in data.items()
        for name, facts in models.items()
    }


def known_model(provider: str, name: str) -> LlmModel | None:
    """Give what is known of a provider's model, under the name that was asked for; None where nothing is.

    Args:
        provider: as answers carry it and model strings name it, such as "openai".
        name: the provider's name of the model; a date or "latest" at its end may be left out.
    """
    for known in names_of(name):
        found = _listed().get((canonical(provider), known))
        if found is not None:
            return attrs.evolve(found, id=name, provider=provider)
    return None


def model_facts(model: LlmModel | str | None, provider: str, *, default: str = "") -> LlmModel:
    """Give all that is known of the model of a request: what the user says of it, and else what the list says.

    Args:
        model: what the request asks for; a field of an `LlmModel` that was left at its default is filled from the list.
        provider: who is asked.
        default: the model's name where the request names none.
    """
    name = model_id(model) or default
    known = known_model(provider, name) or LlmModel(name, provider)
    if not isinstance(model, LlmModel):
        return known
    given = {
        field.name: value
        for field in attrs.fields(LlmModel)
        if (value := getattr(model, field.name)) != getattr(_PLAIN, field.name)
    }
    return attrs.evolve(known, **given)
