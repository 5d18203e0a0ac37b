"""`yiemagent local`: get the embedded model, see which there are, measure one.

The parts that do the work are handed in by `main`, since no room of the roof but that one knows the providers.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import attrs

from yiemagent.cli.terminal import Progress, Terminal, size_text

__all__ = ["LocalModel", "LocalParts", "add_local", "local_command"]


class LocalModel(Protocol):
    """A model of the catalogue."""

    @property
    def description(self) -> str:
        """What it is."""

    @property
    def licence(self) -> str:
        """Its licence."""

    @property
    def size_bytes(self) -> int:
        """The size of its file."""


class Pull(Protocol):
    """Gets a model, unless it is there already."""

    def __call__(self, name: str, /, *, progress: Progress) -> Path:
        """Give the model's file."""


@attrs.frozen
class LocalParts:
    """What the command works with.

    Args:
        default: the name of the default model.
        models: the catalogue, by name.
        file: gives a model's file where it is there, else None; raises `ConfigurationError` for a name not known.
        pull: gets a model.
        bench: measures a model; gives what was measured, in words, by what it is.
    """

    default: str
    models: Mapping[str, LocalModel]
    file: Callable[[str], Path | None]
    pull: Pull
    bench: Callable[[str], Mapping[str, str]]


def add_local(commands: Any) -> None:
    """Add the command to the parsers of `yiemagent`."""
    parser = commands.add_parser(
        "local",
        help="get, list or measure models that run on this machine",
        description="Models that run on this machine. To run they need: pip install 'yiemagent[local]'",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    pull = actions.add_parser(
        "pull",
        help="get a model, once",
        description="Get a model and print where it is. One that is there already is left alone.",
    )
    pull.add_argument("name", nargs="?", metavar="NAME", help="a name of 'yiemagent local list'")
    actions.add_parser(
        "list", help="list the models", description="List the models, and which are there."
    )
    bench = actions.add_parser(
        "bench",
        help="measure a model",
        description="Measure how long a model takes to load, how fast it is, and how much memory it takes.",
    )
    bench.add_argument("--model", "-m", metavar="NAME", help="a name, or the path of a GGUF file")


def local_command(options: argparse.Namespace, terminal: Terminal, parts: LocalParts) -> int:
    """Get, list or measure, and give the exit code.

    Raises:
        ConfigurationError: there is no such model, or a part that it needs is not installed.
        YiemAgentError: it could not be got.
    """
    match options.action:
        case "pull":
            _pull(options.name or parts.default, terminal, parts)
        case "list":
            terminal.rows([_row(name, parts) for name in parts.models])
        case _:
            measured = parts.bench(options.model or parts.default)
            terminal.rows([(name, words) for name, words in measured.items()])
    return 0


def _pull(name: str, terminal: Terminal, parts: LocalParts) -> None:
    file = parts.file(name)
    if file is None:
        model = parts.models[name]
        terminal.note(f"getting {name}: {size_text(model.size_bytes)}, {model.licence}")
        with terminal.progress(name) as show:
            file = parts.pull(name, progress=show)
    else:
        terminal.note(f"{name} is there already")
    terminal.say(f"{file}\n")


def _row(name: str, parts: LocalParts) -> tuple[str, ...]:
    model, file = parts.models[name], parts.file(name)
    return (
        f"{name} (default)" if name == parts.default else name,
        size_text(model.size_bytes),
        model.licence,
        model.description,
        str(file) if file else "not pulled",
    )
