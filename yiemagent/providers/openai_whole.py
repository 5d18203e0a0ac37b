"""An answer of the OpenAI chat API that comes whole, with what it says beyond OpenAI's form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs

from yiemagent.errors import BadResponseError
from yiemagent.messages import AssistantMessage, TextContent, ThinkingContent
from yiemagent.openai_format import assistant_message
from yiemagent.providers.failures import shortened
from yiemagent.providers.reasoning_details import details_text, merged_details, thought_field
from yiemagent.providers.think_tags import ThinkTags
from yiemagent.quoting import Quoting

__all__ = ["whole_answer"]


def whole_answer(value: Any, *, think_tags: bool) -> AssistantMessage:
    """Give the message of a response.

    Args:
        value: the response's JSON.
        think_tags: whether thinking may come in the text, between <think> and </think>.

    Raises:
        BadResponseError: it holds no answer.
    """
    if not isinstance(value, Mapping):  # a function may answer with a text, a server never does
        before = "the model's server gave no answer but "
        raise BadResponseError(Quoting(before, repr(shortened(str(value), 200))))
    message = assistant_message(value)
    content = message.content
    if think_tags:
        content = _taken_apart(content)
    raw = _raw_message(value)
    content = _signed(content, raw)
    message = attrs.evolve(message, content=content)
    if raw.get("refusal") and not message.failed:
        said = "the model refused to answer"
        return attrs.evolve(message, stop_reason="error", error_message=said)
    return message


def _raw_message(value: Any) -> Mapping[str, Any]:
    choices = value.get("choices") if isinstance(value, Mapping) else None
    choice = choices[0] if isinstance(choices, (list, tuple)) and choices else None
    raw = choice.get("message") if isinstance(choice, Mapping) else None
    return raw if isinstance(raw, Mapping) else {}


def _taken_apart(content: tuple[Any, ...]) -> tuple[Any, ...]:
    if not content or not isinstance(content[0], TextContent):
        return content
    tags = ThinkTags()
    pieces = tags.feed(content[0].text) + tags.end()
    thought = "".join([text for kind, text in pieces if kind == "thinking"])
    if not thought:
        return content
    said = "".join([text for kind, text in pieces if kind == "text"])
    spoken = (TextContent(said),) if said else ()
    return (ThinkingContent(thought), *spoken, *content[1:])


def _signed(content: tuple[Any, ...], raw: Mapping[str, Any]) -> tuple[Any, ...]:
    """Give content whose thinking tells how it goes back to the model."""
    given = raw.get("reasoning_details")
    details = merged_details(given) if isinstance(given, (list, tuple)) else []
    field = thought_field(raw)
    if not details and field is None:
        return content
    text = raw[field] if field else details_text(details)
    signature = json.dumps(details, separators=(",", ":")) if details else field
    thinking = ThinkingContent(text, signature, redacted=not text)
    return (thinking, *[block for block in content if not isinstance(block, ThinkingContent)])
