"""What an option may be: what is refused, and in which words."""

from __future__ import annotations

import functools
import operator

import attrs
import pytest

from yiemagent.errors import ConfigurationError
from yiemagent.options import (
    check_function,
    check_option,
    function_of,
    must_be,
    one_of,
    takes,
)


def two(context, signal):
    """Take two."""


class Callable2:
    """An object that takes two."""

    def __call__(self, context: str, signal: int = 0, *, key: str = "") -> None:
        """Take two."""

    def method(self, context, signal):
        """Take two."""


class Anything:
    """An object that has every attribute, a signature that is none among them."""

    def __getattr__(self, name):
        return 5

    def __call__(self, context, signal):
        """Take two."""


@functools.wraps(two)
def decorated(signal):
    """Take one, and say what another takes."""


@pytest.mark.parametrize(
    "function",
    [
        two,
        Callable2(),
        Callable2().method,
        functools.partial(lambda key, context, signal: None, "key"),
        lambda *given: None,
        lambda context, signal, more=None: None,
        max,  # says nothing
        operator.methodcaller("get"),
        Anything(),
        print,
    ],
)
def test_what_may_take_two_arguments_is_taken(function):
    """A function that can be called with them, or does not tell, is left alone."""
    assert takes(function, 2)
    check_function("hook", function, "context", "signal")


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        (lambda: None, "<lambda>()"),
        (decorated, "two(signal)"),
        (lambda context: None, "<lambda>(context)"),
        (lambda context, signal, *, key: None, "<lambda>(context, signal, *, key)"),
    ],
)
def test_what_can_not_take_them_is_shown_as_it_is_written(function, shown):
    """The text says what the option is called with, and what was given takes."""
    with pytest.raises(ConfigurationError) as raised:
        check_function("hook", function, "context", "signal")

    assert str(raised.value) == (
        f"hook must be a function that can be called with (context, signal), or None, not {shown}"
    )


def test_an_object_that_can_not_take_them_is_shown():
    """An object without a name is shown as itself, its annotations left out."""
    given = Callable2()
    with pytest.raises(ConfigurationError) as raised:
        check_function("hook", given)

    assert str(raised.value).endswith(f"not {given!r}(context, signal=0, *, key='')")


def test_a_decorator_may_take_less_than_what_it_wraps():
    """A function is asked what it takes itself, not what the one that it wraps does."""
    assert takes(decorated, 1)
    assert not takes(decorated, 2)


@attrs.frozen
class Options:
    """Some options."""

    color: str = attrs.field(default="red", validator=one_of(("red", "blue")))
    shade: str | None = attrs.field(default=None, validator=one_of(("dark",), or_none=True))
    even: int = attrs.field(default=2, validator=must_be("even", lambda given: given % 2 == 0))
    hook: object = attrs.field(default=None, validator=function_of("event"))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"color": "green"}, "color must be 'red' or 'blue', not 'green'"),
        ({"color": None}, "color must be 'red' or 'blue', not None"),
        ({"color": ["red"]}, "color must be 'red' or 'blue', not ['red']"),
        ({"shade": "light"}, "shade must be 'dark' or None, not 'light'"),
        ({"even": 3}, "even must be even, not 3"),
        (
            {"hook": 5},
            "hook must be a function that can be called with (event), or None, not 5",
        ),
    ],
)
def test_an_option_of_a_record_is_named(given, text):
    """A validator names the field, says what it may be, and shows what was given."""
    with pytest.raises(ConfigurationError) as raised:
        Options(**given)

    assert str(raised.value) == text


def test_what_fits_passes():
    """Nothing is raised where the option is as it must be."""
    check_option("color", "red", "a color", fits=True)

    assert Options("blue", "dark", 4, print).hook is print
