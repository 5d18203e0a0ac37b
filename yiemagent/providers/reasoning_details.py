"""Thinking in the fields of an OpenAI chat message: text, or `reasoning_details` that go back as they came; no I/O.

Details are OpenRouter's. In a stream an entry comes in pieces, which have its type and index; text is added to, of all
else the last counts. See OpenRouter's guide on reasoning tokens, "Preserving reasoning".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["TEXT_FIELDS", "details_text", "merged_details", "thought_field"]

TEXT_FIELDS = ("reasoning_content", "reasoning")
"""The fields in which other servers give thinking as plain text."""

_TEXTS = ("text", "summary", "data")


def thought_field(message: Mapping[str, Any]) -> str | None:
    """Give the first field of a message or delta that holds thinking as text; servers may fill both alike."""
    return next((f for f in TEXT_FIELDS if isinstance(message.get(f), str) and message[f]), None)


def details_text(details: Iterable[Any]) -> str:
    """Give what entries say in words."""
    fields = (
        detail.get("text") or detail.get("summary")
        for detail in details
        if isinstance(detail, Mapping)
    )
    return "".join([text for text in fields if isinstance(text, str)])


def merged_details(pieces: Iterable[Any]) -> list[dict[str, Any]]:
    """Give the entries that pieces make, in the order in which they began."""
    merged: list[dict[str, Any]] = []
    texts: list[dict[str, list[str]]] = []  # joined once, so that long thinking stays linear
    for piece in pieces:
        if not isinstance(piece, Mapping):
            continue
        if not (merged and _goes_on(merged[-1], piece)):
            merged.append({})
            texts.append({})
        for key, value in piece.items():
            if key in _TEXTS and isinstance(value, str):
                texts[-1].setdefault(key, []).append(value)
                merged[-1].setdefault(key, "")
            elif value is not None or key not in merged[-1]:
                merged[-1][key] = value
    for entry, parts in zip(merged, texts, strict=True):
        entry.update({key: "".join(part) for key, part in parts.items()})
    return merged


def _goes_on(entry: Mapping[str, Any], piece: Mapping[str, Any]) -> bool:
    index = piece.get("index")
    same = (index, piece.get("type")) == (entry.get("index"), entry.get("type"))
    return index is not None and same
