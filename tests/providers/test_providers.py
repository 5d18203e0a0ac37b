"""Model strings, and names that load late."""

import pathlib
import subprocess
import sys

import pytest

from yiemagent import providers
from yiemagent.errors import ConfigurationError
from yiemagent.llm import StreamFn, resolve, stream_fn_of
from yiemagent.providers.openai_chat import OpenAIChat

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_model_string():
    """A model string gives the provider, whose model may have colons in its name."""
    provider = resolve("openai:gpt-5.1:x")

    assert isinstance(provider, OpenAIChat) and isinstance(provider, StreamFn)
    assert provider.model == "gpt-5.1:x"
    assert providers.OpenAIChat is OpenAIChat


@pytest.mark.parametrize(
    "model, text",
    [
        ("openai", "openai:gpt"),
        ("ollama:", "ollama:qwen3"),
        ("nobody:x", "local, .*openai"),
        ("gpt-5.1", "did you mean 'openai:gpt-5.1'"),
    ],
)
def test_bad_model_string(model, text):
    """An unknown provider is refused with the known ones, a missing model with an example."""
    with pytest.raises(ConfigurationError, match=text):
        resolve(model)


@pytest.mark.parametrize(
    "model, shown",
    [("", "''"), (" ", "''"), (":", "''"), (": ", "''"), (":gpt-5.1", "':gpt-5.1'")],
)
def test_model_string_without_provider(model, shown):
    """An empty string, or one without a provider, is told how a model is named; it suggests nothing that fails."""
    with pytest.raises(ConfigurationError) as caught:
        resolve(model)
    assert str(caught.value) == (
        f"the model string {shown} names no provider; write 'provider:model', such as 'openai:gpt-5.1', or 'local' "
        "for the small model on this machine"
    )


@pytest.mark.parametrize(
    "model", ["openai:", "openai: ", "anthropic", "gemini:", "openai-responses:"]
)
def test_model_string_without_model(model):
    """A model string that names a provider alone is told how to go on, with a model of that provider."""
    with pytest.raises(ConfigurationError) as caught:
        resolve(model)
    text = str(caught.value)
    assert text.startswith(f"name the model after the provider, such as '{model.split(':')[0]}:")
    assert resolve(text.split("'")[1]).model


def test_options_of_a_model_string():
    """Whoever makes a provider by its name may give it the arguments of its class."""
    made = providers.create("ollama", "qwen3", base_url="http://10.0.0.1:11434/v1", stream=False)

    assert isinstance(made, OpenAIChat)
    assert (made.profile.name, made.provider) == ("ollama", "ollama")
    assert repr(made) == "OpenAIChat('qwen3', host='10.0.0.1')"


def test_provider_is_a_stream_fn():
    """A provider handed over as `llm_call` is taken as the `StreamFn` that it is."""
    provider = OpenAIChat("m")

    assert stream_fn_of(provider) is provider


def test_unknown_name():
    """The package has no other names."""
    with pytest.raises(AttributeError, match="Nothing"):
        providers.Nothing  # noqa: B018 - asking is the test


def test_import_is_light():
    """Importing a provider and making one loads neither requests nor ssl."""
    code = """
import sys
from yiemagent.providers import OpenAIChat
OpenAIChat("m")
assert not {"requests", "urllib3", "ssl", "jsonschema", "asyncio"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT)}, check=True)
