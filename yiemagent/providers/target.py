"""A model that a history is handed to, and what it takes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Literal

import attrs

from yiemagent.errors import ConfigurationError
from yiemagent.messages import AssistantMessage
from yiemagent.record import Record

__all__ = ["Target"]

_PLAIN = re.compile(r"[a-zA-Z0-9_-]+")
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_DIGEST_LENGTH = 24


def _types(types: Iterable[str] | None) -> frozenset[str] | None:
    return None if types is None else frozenset(types)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Target(Record):
    """A model that a history is for, and what it takes.

    Args:
        api: the wire API; provider: who serves the model; model: its name. An answer is the model's own where all three
            are equal to those in the message.
        reads_images: whether it can be sent images.
        reads_tool_images: whether it can be sent those of tool results, in the result or behind it.
        image_types: the MIME types it reads, in lower case; None: any.
        keeps_answer_images: whether it takes back images of its own answers; other answers' never go to a model.
        call_id: what ids of tool calls must match as a whole; None: anything.
        max_call_id: the most characters of such an id; None: no limit.
        checks_own_ids: whether that holds for its own ids too. False where servers are known that give ids outside of
            the API's rule and want them back as they were.
        tool_name: what names of called tools must match as a whole; what doesn't has its other characters replaced.
        unique_call_ids: whether ids must be distinct in the whole request, not only in one message.
        foreign_thinking: what becomes of other models' thinking: "text" or "drop". Redacted thinking is dropped.
        unsigned_thinking: what becomes of its own thinking that has no signature: "keep", "text" or "drop".
        user_first: whether a conversation must begin with a user message.

    Raises:
        ConfigurationError: no id can match `call_id` and `max_call_id`.
    """

    api: str
    provider: str = ""
    model: str = ""
    reads_images: bool = True
    reads_tool_images: bool = True
    image_types: frozenset[str] | None = attrs.field(default=None, converter=_types)
    keeps_answer_images: bool = False
    call_id: re.Pattern[str] | None = _PLAIN
    max_call_id: int | None = 64
    checks_own_ids: bool = False
    tool_name: re.Pattern[str] = _TOOL_NAME
    unique_call_ids: bool = True
    foreign_thinking: Literal["text", "drop"] = "text"
    unsigned_thinking: Literal["keep", "text", "drop"] = "keep"
    user_first: bool = False

    def __attrs_post_init__(self) -> None:
        if not self.takes_id(self.made_id("", 0)):
            raise ConfigurationError(
                f"call_id must take {self.made_id('', 0)!r}, the first hexadecimal digits of a digest; "
                f"{self.call_id!r} does not"
            )

    def owns(self, message: AssistantMessage) -> bool:
        """Whether an answer is this model's own, so that it takes back what is opaque in it."""
        return (message.model, message.provider, message.api) == (
            self.model,
            self.provider,
            self.api,
        )

    def takes_id(self, call_id: str) -> bool:
        """Whether an id of a tool call fits."""
        if not call_id or (self.max_call_id is not None and len(call_id) > self.max_call_id):
            return False
        return self.call_id is None or self.call_id.fullmatch(call_id) is not None

    def made_id(self, call_id: str, attempt: int) -> str:
        """Give the id that stands for one that doesn't fit or is taken; the same each time."""
        digest = hashlib.sha256(f"{attempt}:{call_id}".encode()).hexdigest()
        return digest[: min(_DIGEST_LENGTH, self.max_call_id or _DIGEST_LENGTH)]
