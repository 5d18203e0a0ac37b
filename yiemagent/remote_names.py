"""Names for tools of servers: made to fit every provider, told apart, and the same in every run.

Providers take `[a-zA-Z0-9_-]{1,64}`, servers give anything. A name that fits stays; one that has to be changed gets the
beginning of its hash behind it, so that it depends on nothing but itself: not on the order of a list, nor on what else
there is. Which name stands for which is kept by whoever made it, so calls use the server's own.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection

__all__ = ["plain_text", "remote_tool_name"]

_CHARACTERS = 64
_HASH_CHARACTERS = 8
_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")
# Controls, and marks that nobody sees and a model reads: widths of zero, directions, tags.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)


def remote_tool_name(name: str, prefix: str = "", taken: Collection[str] = ()) -> str:
    """Give the name under which models know a server's tool.

    Args:
        name: the server's.
        prefix: what the server is called, put before it as `prefix__name`; empty for nothing.
        taken: names that are another tool's.
    """
    whole = f"{prefix}__{name}" if prefix else name
    plain = _UNFIT.sub("_", whole)
    if plain == whole and len(whole) <= _CHARACTERS and whole not in taken:
        return whole
    number = 0
    while True:
        digest = hashlib.sha256(f"{prefix}\0{name}\0{number or ''}".encode("utf-8", "replace"))
        ending = f"_{digest.hexdigest()[:_HASH_CHARACTERS]}"
        found = plain[: _CHARACTERS - len(ending)] + ending
        if found not in taken:
            return found
        number += 1


def plain_text(text: str) -> str:
    """Give a server's text without what nobody sees: controls, zero widths, directions, tags."""
    return _UNSEEN.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
