"""The efforts that OpenAI's models are asked for."""

import pytest

from yiemagent.providers.openai_efforts import reasoning_effort

LEVELS = ("off", "minimal", "low", "medium", "high", "xhigh", "max")


@pytest.mark.parametrize(
    "model, efforts",
    [
        ("gpt-4.1", None),
        ("gpt-3.5-turbo", None),
        ("chatgpt-4o-latest", None),
        ("gpt-5-chat-latest", None),
        ("o3", "low low low medium high high high"),
        ("o4-mini-2025-04-16", "low low low medium high high high"),
        ("gpt-oss-20b", "low low low medium high high high"),
        ("gpt-5", "minimal minimal low medium high high high"),
        ("gpt-5-mini-2025-08-07", "minimal minimal low medium high high high"),
        ("gpt-5-pro", "high high high high high high high"),
        ("gpt-5-codex", "low low low medium high high high"),
        ("gpt-5.1", "none low low medium high high high"),
        ("gpt-5.1-chat-latest", "medium medium medium medium medium medium medium"),
        ("gpt-5.1-codex-mini", "low low low medium high high high"),
        ("gpt-5.1-codex-max", "low low low medium high xhigh xhigh"),
        ("gpt-5.2", "none low low medium high xhigh xhigh"),
        ("gpt-5.2-pro", "medium medium medium medium high xhigh xhigh"),
        ("gpt-5.4-mini", "none low low medium high xhigh xhigh"),
        ("gpt-5.6-sol", "none low low medium high xhigh max"),
        ("gpt-5.10", "none low low medium high xhigh max"),
        ("gpt-6-astra", "none low low medium high xhigh max"),
        ("openai/gpt-5.1", "none low low medium high high high"),
    ],
)
def test_efforts(model, efforts):
    """A level is the least effort of the model that is enough, else the most it has."""
    asked = [reasoning_effort(level, model) for level in LEVELS]

    assert asked == (efforts.split() if efforts else [None] * len(LEVELS))


def test_unknown_models():
    """A model that is none of OpenAI's is asked for the level as it is, and for nothing where it is off."""
    asked = [reasoning_effort(level, "qwen3") for level in LEVELS]

    assert asked == [None, *LEVELS[1:]]


@pytest.mark.parametrize("level", [None, "", "none", "a lot"])
def test_no_level(level):
    """What is no level asks for no effort."""
    assert reasoning_effort(level, "gpt-5.1") is None
