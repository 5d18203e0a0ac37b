"""The error tree."""

from __future__ import annotations

import inspect
import pickle

import pytest

from yiemagent import errors
from yiemagent.errors import (
    LONGEST_REASON,
    AgentStateError,
    AgentStopped,
    ChannelFull,
    DuplicateTool,
    HttpError,
    HttpTimeout,
    LlmError,
    McpProtocolError,
    McpTimeout,
    McpTransportError,
    RateLimitError,
    ResponseTimeout,
    ToolError,
    ToolFailure,
    ToolLoadError,
    YiemAgentError,
    error_text,
    safe_repr,
    shortened,
)

NAMES = [getattr(errors, name) for name in errors.__all__]
CLASSES = [kind for kind in NAMES if inspect.isclass(kind)]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_is_one_of_ours(kind):
    """All have one root, are documented, and survive pickling with their text."""
    error = pickle.loads(pickle.dumps(kind("what is wrong")))

    assert isinstance(error, YiemAgentError)
    assert type(error) is kind
    assert str(error) == "what is wrong"
    assert inspect.getdoc(kind)


@pytest.mark.parametrize(
    "error",
    [
        ToolLoadError("/t.py:3: bad", "/t.py", 3, "bad"),
        ToolFailure("no disk", ("a",), {"code": 5}),
        HttpError("no", None, True, False),
        HttpTimeout("late", None, True),
        LlmError("no", 500, True, 100),
        RateLimitError("slow", 429, True, 2000),
        McpProtocolError("no", -32602, {"field": "x"}),
        McpTransportError("gone", True, 502),
    ],
)
def test_facts_survive_pickling(error):
    """Errors carry plain values only, so that they cross a process."""
    again = pickle.loads(pickle.dumps(error))

    assert vars(again) == vars(error)
    assert str(again) == str(error)


def test_errors_can_be_caught_by_their_kind():
    """Stopped and full are states of the agent, time-outs are the standard library's too."""
    assert issubclass(AgentStopped, AgentStateError)
    assert issubclass(ChannelFull, AgentStateError)
    assert issubclass(ResponseTimeout, TimeoutError)
    assert issubclass(HttpTimeout, TimeoutError)
    assert issubclass(McpTimeout, TimeoutError)
    assert issubclass(DuplicateTool, ToolError)


def test_a_load_error_has_a_bare_reason():
    """Where none is given, the text is the reason."""
    assert ToolLoadError("bad").reason == "bad"
    assert ToolLoadError("t.py: bad", "t.py", None, "bad").reason == "bad"


def test_a_load_error_is_never_long():
    """Foreign words are cut, a path is not, and what crossed a process is not cut again."""
    path = "/folder" * 500
    error = ToolLoadError(f"{path}:7: {'x' * 10**6}", path, 7, "x" * 10**6)
    again = pickle.loads(pickle.dumps(error))

    assert str(error).startswith(f"{path}:7: xxx")
    assert str(error).endswith("more characters]")
    assert len(str(error)) < len(path) + 2100
    assert len(error.reason) <= 2000
    assert (str(again), again.reason) == (str(error), error.reason)


@pytest.mark.parametrize("size", [0, 49, 50, 51, 99, 1000, 10**6])
def test_a_shortened_text_says_what_is_left_out(size):
    """It is never longer than it may be, and what fits is whole."""
    text = "x" * size
    cut = shortened(text, 50)
    kept, _, said = cut.partition(" [… ")

    assert len(cut) <= 50
    assert shortened(cut, 50) == cut
    left_out = int(said.split()[0].replace(",", "")) if said else 0
    assert len(kept) + left_out == size


def test_any_exception_can_be_told():
    """Class and words are one text, whatever the exception's own text does."""

    class Nasty(Exception):
        """Can't be printed."""

        def __str__(self):
            raise SystemExit

    assert error_text(ValueError("x")) == "ValueError: x"
    assert error_text(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert error_text(Nasty()) == "Nasty"


def test_anybodys_object_can_be_shown():
    """Its own words where it has any, cut where they are long; its class where it has none."""

    class Odd:
        def __repr__(self):
            raise ValueError

    assert safe_repr("x") == "'x'"
    assert safe_repr(Odd()) == "Odd"
    assert len(safe_repr("x" * 10_000)) <= LONGEST_REASON
