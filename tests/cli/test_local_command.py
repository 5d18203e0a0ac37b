"""`yiemagent local`: pulling, listing and measuring, with parts that need neither network nor model."""

from __future__ import annotations

import argparse
import io
import pathlib

import attrs
import pytest

from yiemagent.cli.local import LocalParts, add_local, local_command
from yiemagent.cli.terminal import Terminal
from yiemagent.errors import ConfigurationError


@attrs.frozen
class Model:
    """A model of a catalogue."""

    description: str = "small, English"
    licence: str = "Apache-2.0"
    size_bytes: int = 98_000_000


class Parts:
    """The parts that the command works with, and what was asked of them."""

    def __init__(self, *there):
        self.files = {name: pathlib.Path("/cache") / f"{name}.gguf" for name in there}
        self.measured = []
        self.made = LocalParts(
            default="small",
            models={"small": Model(), "big": Model("better", "MIT", 4_200_000_000)},
            file=self.file,
            pull=self.pull,
            bench=self.bench,
        )

    def file(self, name):
        if name not in self.made.models:
            raise ConfigurationError(f"no embedded model {name!r} is known")
        return self.files.get(name)

    def pull(self, name, *, progress):
        size = self.made.models[name].size_bytes
        for done in (0, size // 2, size):
            progress(done, size)
        self.files[name] = pathlib.Path("/cache") / f"{name}.gguf"
        return self.files[name]

    def bench(self, model):
        self.measured.append(model)
        return {"load time": "0.5 s", "memory": "280 MB"}


def run(parts, *words):
    """Run the command; gives stdout and stderr."""
    parser = argparse.ArgumentParser()
    add_local(parser.add_subparsers())
    out, err = io.StringIO(), io.StringIO()
    code = local_command(parser.parse_args(["local", *words]), Terminal(out, err), parts.made)
    assert code == 0
    return out.getvalue(), err.getvalue()


def test_the_default_model_is_pulled_with_its_size_said_first():
    """Without a name the default model is got: size and licence first, then progress, then the file on stdout."""
    out, err = run(Parts(), "pull")

    assert out == "/cache/small.gguf\n"
    assert err.splitlines() == [
        "getting small: 98.0 MB, Apache-2.0",
        "small: 0 % of 98.0 MB",
        "small: 50 % of 98.0 MB",
        "small: 100 % of 98.0 MB",
    ]


def test_a_model_is_pulled_by_name():
    """With a name that model is got."""
    parts = Parts()

    assert run(parts, "pull", "big")[0] == "/cache/big.gguf\n"
    assert list(parts.files) == ["big"]


def test_a_model_that_is_there_is_left_alone():
    """A second pull does nothing and says where the file is."""
    out, err = run(Parts("small"), "pull")

    assert out == "/cache/small.gguf\n"
    assert err == "small is there already\n"


def test_a_model_that_nobody_knows_is_an_error():
    """A name that is not in the catalogue is refused before anything is got."""
    parts = Parts()
    with pytest.raises(ConfigurationError, match="'huge'"):
        run(parts, "pull", "huge")

    assert parts.files == {}


def test_the_models_are_listed():
    """The list has a line for each model: name, size, licence, what it is, and where its file is."""
    out, err = run(Parts("big"), "list")

    assert out.splitlines() == [
        "small (default)  98.0 MB  Apache-2.0  small, English  not pulled",
        "big              4.2 GB   MIT         better          /cache/big.gguf",
    ]
    assert err == ""


@pytest.mark.parametrize(
    ("words", "model"), [((), "small"), (("--model", "/x/y.gguf"), "/x/y.gguf")]
)
def test_what_was_measured_is_printed(words, model):
    """The bench measures the default or the named model and prints each figure with its name."""
    parts = Parts("small")
    out, _ = run(parts, "bench", *words)

    assert out == "load time  0.5 s\nmemory     280 MB\n"
    assert parts.measured == [model]
