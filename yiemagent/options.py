"""What an option may be: one wording for what is refused, `name must be what it may be, not what was given`.

A wrong option is the caller's mistake: it raises `ConfigurationError` where it is given, never later in a run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from yiemagent.errors import ConfigurationError
from yiemagent.tool import is_async

__all__ = [
    "above_zero_or_none",
    "check_function",
    "check_option",
    "function_of",
    "must_be",
    "one_of",
    "one_or_more",
    "one_or_more_or_none",
    "shown_function",
    "takes",
    "text_or_none",
    "tokens_by_level",
    "zero_or_more",
    "zero_or_more_or_none",
]

Fits: TypeAlias = Callable[[Any], bool]
_Validator: TypeAlias = Callable[[Any, Any, Any], None]


def check_option(name: str, given: object, what: str, *, fits: bool) -> None:
    """Refuse an option that does not fit.

    Args:
        name: the option's.
        given: what was given.
        what: what it may be, in words.
        fits: whether `given` is that.

    Raises:
        ConfigurationError: it does not fit.
    """
    if not fits:
        raise ConfigurationError(f"{name} must be {what}, not {given!r}")


def must_be(what: str, fits: Fits) -> _Validator:
    """Give a validator of `attrs` that refuses what does not fit; `what` says what does."""

    def check(_owner: Any, field: Any, given: Any) -> None:
        check_option(field.name, given, what, fits=fits(given))

    return check


def one_of(names: tuple[str, ...], *, or_none: bool = False) -> _Validator:
    """Give a validator that takes these words and no others, or None too."""
    words = [repr(name) for name in names] + (["None"] if or_none else [])
    what = f"{', '.join(words[:-1])} or {words[-1]}"
    return must_be(
        what,
        lambda given: (or_none and given is None) or (isinstance(given, str) and given in names),
    )


# --- numbers and texts
# ------------------------------------------------------------------------------------------------


def _is_int(given: Any) -> bool:
    """Whether it is a whole number; True and False are none."""
    return isinstance(given, int) and not isinstance(given, bool)


def _is_number(given: Any) -> bool:
    """Whether it is a number that one can compare with; NaN is none."""
    return isinstance(given, float | int) and not isinstance(given, bool) and given == given  # noqa: PLR0124 - NaN is not


def _maybe(fits: Fits) -> Fits:
    return lambda given: given is None or fits(given)


def _is_one_or_more(given: Any) -> bool:
    return _is_int(given) and given >= 1


def _is_zero_or_more(given: Any) -> bool:
    return _is_number(given) and given >= 0


one_or_more = must_be("a whole number, 1 or more", _is_one_or_more)
one_or_more_or_none = must_be(
    "a whole number, 1 or more, or None for no limit", _maybe(_is_one_or_more)
)
above_zero_or_none = must_be(
    "a number above 0, or None for no limit", _maybe(lambda given: _is_number(given) and given > 0)
)
zero_or_more = must_be("a number, 0 or more", _is_zero_or_more)
zero_or_more_or_none = must_be("a number, 0 or more, or None", _maybe(_is_zero_or_more))
text_or_none = must_be("a string or None", lambda given: given is None or isinstance(given, str))


def tokens_by_level(levels: tuple[str, ...]) -> _Validator:
    """Give a validator that takes a mapping of some of `levels` to whole numbers, or None."""

    def fits(given: Any) -> bool:
        return given is None or (
            isinstance(given, Mapping)
            and all(level in levels and _is_int(tokens) for level, tokens in given.items())
        )

    return must_be(
        f"a mapping of {', '.join(map(repr, levels))} to numbers of tokens, or None", fits
    )


# --- functions
# --------------------------------------------------------------------------------------------------------


def function_of(*arguments: str) -> _Validator:
    """Give a validator that takes a plain function that can be called with these arguments, or None."""

    def check(_owner: Any, field: Any, given: Any) -> None:
        check_function(field.name, given, *arguments)

    return check


def check_function(name: str, given: Any, *arguments: str) -> None:
    """Refuse an option that is neither None nor a plain function that can be called with these arguments.

    Raises:
        ConfigurationError: it can't be called, not so, or gives a coroutine, which nobody would ever run.
    """
    if given is None:
        return
    what = f"a function that can be called with ({', '.join(arguments)}), or None"
    check_option(name, given, what, fits=callable(given))
    if is_async(given):
        raise ConfigurationError(f"{name} is a coroutine function; give a plain function")
    if not takes(given, len(arguments)):
        raise ConfigurationError(f"{name} must be {what}, not {shown_function(given)}")


def takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a callable can be called with so many arguments by position; one that does not tell may."""
    try:
        # Not of what it wraps: a decorator may well give that another number of arguments.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # a builtin without one, or an object that answers anything
        return True
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def shown_function(function: Callable[..., Any]) -> str:
    """Give a function that has a signature as it is written: its name and what it takes."""
    name = getattr(function, "__qualname__", None) or repr(function)
    signature = inspect.signature(function, follow_wrapped=False)
    parameters = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
    return f"{name}{signature.replace(parameters=parameters, return_annotation=signature.empty)}"
