"""Taking secrets out of what is written down: known values, fields and headers that hold keys, texts that look it.

What is removed leaves `REMOVED` behind, in the same place whatever way a text was cut into pieces.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["REMOVED", "SecretRemover", "secrets_of_environment"]

REMOVED = "[removed]"
_SHORTEST = 8  # a shorter value is no key that anybody uses, and may be part of any word

_KEY_WORDS = (
    r"api_?key|access_?key|private_?key|secret(_?key)?|authorization|credentials?|cookie|"
    r"password|passwd|passphrase|(auth_?|access_?|refresh_?|session_?|id_?)?token"
)
# What pages through a list is no secret, though it is called a token.
_SECRET_FIELD = re.compile(
    rf"(?!.*(page|next|cursor|continuation|sync)_?token)(.*_)?({_KEY_WORDS})", re.IGNORECASE
)
_VARIABLE = re.compile(r".*(KEY|TOKEN|SECRET|PASSWORD)", re.IGNORECASE)
_DASHED_WORDS = _KEY_WORDS.replace("_?", "[_-]?").replace("(", "(?:")
# What stands after the first group goes. Each is cut off at a sign that no key has.
_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf'("(?:[\w-]*[_-])?(?:{_DASHED_WORDS})"\s*:\s*")(?:[^"\\]|\\.)+',  # a field of a JSON text
        r"(\b(?:proxy-)?authorization['\"]?\s*[:=]\s*['\"]?)(?:\w+ +)?[^\s\"',;]{6,}",
        r"(\b(?:x-[\w-]*key|api-key|set-cookie|cookie)['\"]?\s*[:=]\s*['\"]?)[^\s\"',]{6,}",
        r"(\b(?:bearer|basic) +)[\w.~+/=-]{8,}",
        rf"([?&](?:[\w-]*[_-])?(?:key|{_DASHED_WORDS})=)[^\s&\"'#]+",  # the query of a URL
        r"(://[^\s/:@\"']+:)[^\s/@\"']+(?=@)",  # the password of a URL
        r"()\b(?:sk|pk|rk|gsk|xai|ghp|gho|hf|r8|pplx|nvapi|AKIA|AIza)[_-]?[A-Za-z0-9][\w-]{15,}",
        r"()\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]+",  # a JSON web token
    )
)


def secrets_of_environment(environ: Mapping[str, str] = os.environ) -> set[str]:
    """Give the values of the environment variables whose names say that they hold a secret."""
    return {value for name, value in environ.items() if _VARIABLE.fullmatch(name)}


class SecretRemover:
    """Removes secrets from texts and JSON values.

    Args:
        known: values that are secrets, whatever they look like; very short ones are left, being part of any word.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        words = sorted({word for word in known if len(word) >= _SHORTEST}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, words))) if words else None

    def text(self, text: str) -> str:
        """Give a text without its secrets."""
        if self._known is not None:
            text = self._known.sub(REMOVED, text)
        for pattern in _PATTERNS:
            text = pattern.sub(_after_its_name, text)
        return text

    def value(self, value: Any) -> Any:
        """Give a JSON value without its secrets; fields that are named like one hold `REMOVED`."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {name: self._field(name, held) for name, held in value.items()}
        if isinstance(value, Sequence):
            return [self.value(item) for item in value]
        return value

    def _field(self, name: str, held: Any) -> Any:
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|-", "_", name)
        if isinstance(held, str) and held and _SECRET_FIELD.fullmatch(words):
            return REMOVED
        return self.value(held)

    def events(self, events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Give the JSON of a stream's events without its secrets, those that several deltas share included.

        Where the deltas of a block hold one, the first delta carries all that is left, and the others go.
        """
        whole: dict[Any, list[str]] = {}
        for event in events:
            if "delta" in event:
                whole.setdefault(event["content_index"], []).append(event["delta"])
        texts = {index: "".join(pieces) for index, pieces in whole.items()}
        changed = {i: clean for i, text in texts.items() if (clean := self.text(text)) != text}
        kept: list[dict[str, Any]] = []
        for event in events:
            index = event.get("content_index")
            if "delta" not in event:
                kept.append(self.value(event))
            elif index not in changed:
                kept.append(dict(event))
            elif changed[index]:
                kept.append({**event, "delta": changed[index]})
                changed[index] = ""
        return kept


def _after_its_name(found: re.Match[str]) -> str:
    return found[1] + REMOVED
