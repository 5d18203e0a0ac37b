"""A history as the messages of an OpenAI chat request, as one profile's server takes them."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from typing import Any

from yiemagent.history import clean_text
from yiemagent.memo import Memo
from yiemagent.messages import AssistantMessage, LlmMessage, ThinkingContent
from yiemagent.openai_format import Conversations, message_dicts
from yiemagent.payload import FrozenDict, FrozenList, freeze_json
from yiemagent.providers.handover import Target, hand_over
from yiemagent.providers.profiles import Profile
from yiemagent.providers.reasoning_details import TEXT_FIELDS

__all__ = ["ChatMessages", "thinking_fields"]

_Dicts = tuple[tuple[FrozenDict, ...], tuple[FrozenDict, ...]]


class ChatMessages:
    """Makes the messages of requests to one server; what an earlier request had is not made again.

    Args:
        profile: how the server speaks.
        api: the wire API; provider: who serves, as messages name it.
    """

    def __init__(self, profile: Profile, api: str, provider: str) -> None:
        self._profile = profile
        self._api = api
        self._provider = provider
        bridge = FrozenDict(role="assistant", content=profile.bridge) if profile.bridge else None
        self._conversations = Conversations(Memo(self._dicts), bridge)

    def messages(
        self, system_prompt: str, messages: Sequence[LlmMessage], model: str
    ) -> list[FrozenDict]:
        """Give the dicts of a conversation for a model, the instructions first; the list is the caller's own."""
        handed = hand_over(self._target(model), messages)
        converted = self._conversations.messages(list(handed))
        if not system_prompt:
            return converted
        return [_system(self._profile.system_role, system_prompt), *converted]

    def _target(self, model: str) -> Target:
        profile = self._profile
        return Target(
            api=self._api,
            provider=self._provider,
            model=model,
            reads_images=profile.reads_images,
            image_types=profile.image_types,
            call_id=re.compile(profile.call_id),
            max_call_id=profile.max_call_id,
            checks_own_ids=profile.checks_own_ids,
        )

    def _dicts(self, message: LlmMessage) -> _Dicts:
        own, shown = message_dicts(message)
        if isinstance(message, AssistantMessage) and own:
            extra = thinking_fields(message, self._profile)
            if extra:
                own = (FrozenDict({**own[0], **extra}),)
        return own, shown


@functools.lru_cache(maxsize=64)
def _system(role: str, text: str) -> FrozenDict:
    return FrozenDict(role=role, content=clean_text(text))


def thinking_fields(message: AssistantMessage, profile: Profile) -> dict[str, Any]:
    """Give the fields in which an answer's thinking goes back to the model that had it.

    A block's signature is the name of the text field that it came in, or the JSON of its `reasoning_details`.
    """
    blocks = [block for block in message.content if isinstance(block, ThinkingContent)]
    field = profile.reasoning_field
    if field is None:
        return {}
    if field == "reasoning_details":
        return _details(blocks)
    text = "\n".join([block.thinking for block in blocks if block.thinking])
    if field == "same":
        came_in = next((b.signature for b in blocks if b.signature in TEXT_FIELDS), None)
        return {came_in: text} if came_in and text else {}
    if field == "content":
        return _parts(message, text)
    return {field: text} if text or profile.reasoning_required else {}


def _details(blocks: Sequence[ThinkingContent]) -> dict[str, Any]:
    details = [detail for block in blocks for detail in _read_details(block.signature)]
    if details:
        return {"reasoning_details": freeze_json(details)}
    text = "\n".join([block.thinking for block in blocks if block.thinking])
    return {"reasoning": text} if text else {}


def _read_details(signature: str | None) -> list[Any]:
    if not signature or not signature.startswith("["):
        return []
    try:
        details = json.loads(signature)
    except (ValueError, RecursionError):
        return []
    return details if isinstance(details, list) else []


def _parts(message: AssistantMessage, text: str) -> dict[str, Any]:
    if not text:
        return {}
    thinking = FrozenDict(
        type="thinking", thinking=FrozenList([FrozenDict(type="text", text=clean_text(text))])
    )
    said = clean_text(message.text)
    spoken = [FrozenDict(type="text", text=said)] if said.strip() else []
    return {"content": FrozenList([thinking, *spoken])}
