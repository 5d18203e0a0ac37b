"""How much OpenAI's models may be asked to think: our reasoning levels as the efforts that a model takes.

The efforts of each family are those that its server lists when it refuses another one.
"""

from __future__ import annotations

import functools
import re

__all__ = ["reasoning_effort"]

_ORDER = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_LEVELS = {"off": "none", **{effort: effort for effort in _ORDER[1:]}}
# The first that fits the beginning of a name counts; least first, none for models that don't think.
_FAMILIES = tuple(
    (pattern, tuple(efforts.split()))
    for pattern, efforts in (
        (r"gpt-[34]|chatgpt-", ""),
        (r"o\d|gpt-oss", "low medium high"),
        (r"gpt-5-chat", ""),
        (r"gpt-5\.\d+-chat", "medium"),
        (r"gpt-5-pro", "high"),
        (r"gpt-5\.\d+-pro", "medium high xhigh"),
        (r"gpt-5-codex|codex-mini|gpt-5\.1-codex(?!-max)", "low medium high"),
        (r"gpt-5\.\d+-codex", "low medium high xhigh"),
        (r"gpt-5(?!\.)", "minimal low medium high"),
        (r"gpt-5\.1(?!\d)", "none low medium high"),
        (r"gpt-5\.[2-5](?!\d)", "none low medium high xhigh"),
        (r"gpt-\d", "none low medium high xhigh max"),
    )
)


@functools.lru_cache(maxsize=256)
def reasoning_effort(level: str | None, model: str) -> str | None:
    """Give the effort to ask a model for: the least that is enough, else the most that it has; None: ask for none.

    Thinking that can't be turned off is made as little as can be. A model that isn't one of OpenAI's is asked for the
    level as it is, and for nothing at all where thinking should be off.

    Args:
        level: "off", "minimal", "low", "medium", "high", "xhigh" or "max"; others and None are not asked for.
        model: the model's name, as its server or a router calls it.
    """
    wanted = _LEVELS.get(level or "")
    if wanted is None:
        return None
    name = model.rpartition("/")[2].removeprefix("ft:")
    for pattern, efforts in _FAMILIES:
        if re.match(pattern, name):
            enough = (one for one in efforts if _ORDER.index(one) >= _ORDER.index(wanted))
            return next(enough, efforts[-1] if efforts else None)
    return None if wanted == "none" else wanted
