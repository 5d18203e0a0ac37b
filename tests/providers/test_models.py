"""What is known of common models, and how it meets what a user says."""

from __future__ import annotations

import json

import pytest

from yiemagent.messages import LlmModel
from yiemagent.providers import OpenAIChat, fallback, models
from yiemagent.providers.models import canonical, known_model, model_facts, names_of

LISTED = json.loads(models._LIST.read_text(encoding="utf-8"))


def test_every_listed_model_is_known_and_makes_sense():
    """Each line of the list is a model with room for an answer in its window."""
    for provider, named in LISTED["models"].items():
        assert provider == canonical(provider)
        for name in named:
            model = known_model(provider, name)
            assert model is not None
            assert 0 < model.max_output_tokens <= model.context_window
            assert "text" in model.input_kinds


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("gpt-5.1", ("gpt-5.1",)),
        ("gpt-5.1-2025-11-13", ("gpt-5.1-2025-11-13", "gpt-5.1")),
        ("claude-haiku-4-5-20251001", ("claude-haiku-4-5-20251001", "claude-haiku-4-5")),
        ("claude-opus-5@20260724", ("claude-opus-5@20260724", "claude-opus-5")),
        ("mistral-large-latest", ("mistral-large-latest", "mistral-large")),
        ("mistral-large-2512", ("mistral-large-2512",)),
        ("2026-01-01", ("2026-01-01",)),
        ("", ("",)),
    ],
)
def test_a_release_is_left_out_of_a_name(model, names):
    """A date or "latest" at the end is the release; what is part of a name stays."""
    assert names_of(model) == names


def test_a_model_is_known_under_the_name_and_provider_that_were_asked_for():
    """Gemini's models are known as Google's, too, and a dated name keeps its date."""
    model = known_model("google", "gemini-2.5-pro")
    dated = known_model("openai", "gpt-4o-2024-08-06")

    assert (model.id, model.provider, model.context_window) == (
        "gemini-2.5-pro",
        "google",
        1_048_576,
    )
    assert dated.id == "gpt-4o-2024-08-06"
    assert dated.max_output_tokens == known_model("openai", "gpt-4o").max_output_tokens


@pytest.mark.parametrize(
    ("provider", "name"),
    [("openai", "gpt-5-imaginary"), ("openai", "gpt-5.1-mini"), ("nobody", "gpt-5.1"), ("", "")],
)
def test_a_longer_name_is_another_model(provider, name):
    """Nothing is guessed from how a name begins."""
    assert known_model(provider, name) is None


def test_what_the_user_says_holds():
    """An `LlmModel` overrides the list, and the list fills in what it leaves open."""
    mine = LlmModel("gpt-4.1", context_window=9000, input_kinds=["text"], api="openai-chat")
    facts = model_facts(mine, "openai")

    assert (facts.context_window, facts.input_kinds) == (9000, ("text",))
    assert (facts.id, facts.provider, facts.api) == ("gpt-4.1", "openai", "openai-chat")
    assert facts.max_output_tokens == 32_768


def test_a_model_that_nobody_knows_has_a_name_only():
    """Where nothing is known, nothing is claimed."""
    assert model_facts("mine", "vllm") == LlmModel("mine", "vllm")
    assert model_facts(LlmModel("mine", reasoning=True), "vllm") == LlmModel(
        "mine", "vllm", reasoning=True
    )


def test_the_providers_own_model_is_described_where_a_request_names_none():
    """Without a model in the request, it is the provider's default that is meant."""
    assert model_facts(None, "openai", default="o3-mini").input_kinds == ("text",)
    assert model_facts("o3", "openai", default="o3-mini").input_kinds == ("text", "image")


def test_a_provider_knows_the_windows_of_its_models():
    """Each says what is known of its own model, and of another that a request asks for."""
    asked = OpenAIChat("gpt-5.1", api_key="sk-test")
    said = LlmModel("gpt-5.1", context_window=1_000)

    assert asked.model_facts().context_window == 400_000
    assert asked.model_facts("gpt-6-sol").context_window == 1_050_000
    assert asked.model_facts(said).context_window == 1_000
    assert asked.model_facts("nobody-knows").context_window is None


def test_models_that_take_over_share_the_smallest_window():
    """Whichever of them answers, what fits all of them fits it."""
    large, small = OpenAIChat("gpt-6-sol", api_key="k"), OpenAIChat("gpt-5.1", api_key="k")

    def plain(_request):
        return "text"

    both = fallback(large, plain, small).model_facts()
    assert (both.id, both.context_window) == ("gpt-6-sol", 400_000)
    assert fallback(large, small).model_facts(LlmModel("x", context_window=9)).context_window == 9
    assert fallback(plain, plain).model_facts("m") == LlmModel("m")
