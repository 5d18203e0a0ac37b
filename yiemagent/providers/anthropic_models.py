"""What Claude models take, generation by generation, as data.

Facts are from Anthropic's documentation of late 2026: the pages on thinking, effort, structured outputs and tool use,
and the migration guides of the models. How much a model can say stands in `data/models.json`; the limits here are for
those that are not listed there.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Literal

import attrs

from yiemagent.record import Record

__all__ = ["Traits", "nearest_effort", "traits_of"]

_LEVELS = ("low", "medium", "high", "xhigh", "max")


def _levels(levels: Iterable[str]) -> tuple[str, ...]:
    return tuple(levels)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Traits(Record):
    """What the models of one generation take.

    Args:
        thinking: how one is told to think: "adaptive", as much as it sees fit, guided by its effort; "budget", up to so
            many tokens; "none", not at all.
        off: how thinking is turned off: "omit", by not asking for it; "disabled" or "between_tools", by a word for it;
            "least": it can't be, and little effort is the nearest thing.
        efforts: the levels of effort that it takes, least first; empty for none.
        hides_thinking: whether it shows what it thinks only when it is asked to.
        samples: whether it takes a temperature.
        native_output: whether it can be held to a JSON Schema.
        max_output_tokens: what an answer may have.
    """

    thinking: Literal["adaptive", "budget", "none"] = "adaptive"
    off: Literal["omit", "disabled", "between_tools", "least"] = "least"
    efforts: tuple[str, ...] = attrs.field(default=_LEVELS, converter=_levels)
    hides_thinking: bool = True
    samples: bool = False
    native_output: bool = True
    max_output_tokens: int = 128_000


_BUDGET = Traits(
    thinking="budget",
    off="omit",
    efforts=(),
    hides_thinking=False,
    samples=True,
    native_output=False,
    max_output_tokens=64_000,
)
_SILENT = attrs.evolve(_BUDGET, thinking="none")
# A version number ends here: neither a further number nor more of this one follows, though a date may.
_END = r"(?!\d)(?!-\d{1,2}(?!\d))"
_GENERATIONS = tuple(
    (re.compile(pattern), traits)
    for pattern, traits in (
        (r"claude-mythos-preview", Traits(efforts=("low", "medium", "high", "max"))),
        (rf"claude-(opus|sonnet)-5{_END}", Traits(off="disabled")),
        (rf"claude-haiku-5-5{_END}", Traits(off="disabled")),
        (rf"claude-sonnet-5-5{_END}", Traits(off="between_tools")),
        (rf"claude-opus-4-[78]{_END}", Traits(off="omit")),
        (
            rf"claude-(opus|sonnet)-4-6{_END}",
            Traits(
                off="omit",
                efforts=("low", "medium", "high", "max"),
                hides_thinking=False,
                samples=True,
            ),
        ),
        (rf"claude-\w+-4-5{_END}", attrs.evolve(_BUDGET, native_output=True)),
        (r"claude-opus-4", attrs.evolve(_BUDGET, max_output_tokens=32_000)),
        (r"claude-(sonnet-4|3-7)", _BUDGET),
        (r"claude-3-5", attrs.evolve(_SILENT, max_output_tokens=8_192)),
        (r"claude-3", attrs.evolve(_SILENT, max_output_tokens=4_096)),
        # A model that this list does not know is newer than it: it is asked as the newest are.
        (r"claude-", Traits()),
    )
)
# Others that speak this API think by a budget, where they think.
_OTHER = attrs.evolve(_BUDGET, off="disabled", max_output_tokens=8_192)


@functools.lru_cache(maxsize=256)
def traits_of(model: str) -> Traits:
    """Give what a model takes, by its name in whatever spelling: "claude-opus-4-6", "anthropic/claude-opus-4.6"."""
    name = model.lower().replace(".", "-")
    return next((traits for pattern, traits in _GENERATIONS if pattern.search(name)), _OTHER)


def nearest_effort(level: str, efforts: Iterable[str]) -> str | None:
    """Give the effort for a reasoning level: the same, else the next lower that there is, else the least.

    Args:
        level: "minimal", "low", "medium", "high", "xhigh" or "max".
        efforts: what the model takes; where that is nothing, so is what is given.
    """
    taken = [effort for effort in _LEVELS if effort in set(efforts)]
    wanted = _LEVELS.index(level) if level in _LEVELS else 0
    fitting = [effort for effort in taken if _LEVELS.index(effort) <= wanted]
    return fitting[-1] if fitting else taken[0] if taken else None
