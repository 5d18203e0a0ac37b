"""A case: its files, what is expected of it, and what came of driving it."""

from __future__ import annotations

import json

from tests.cases.prose import NOTES

METADATA = {"id", "theme", "kind", "inputs", "threads"}


class Case:
    """One case folder under way.

    `problems` are where the library, or the runner, falls short.
    """

    def __init__(self, folder):
        self.folder = folder
        self.expect = json.loads((folder / "expect.json").read_text(encoding="utf-8"))
        self.id = self.expect.get("id", folder.name)
        self.kinds = self.expect.get("kind", "").split("+")
        self.problems = []
        self._inputs = set(self.expect.get("inputs", ()))
        self._driven = set(METADATA)

    def problem(self, where, problems):
        """Note problems, each with its place."""
        self.problems += [f"{where}: {problem}" for problem in problems]

    def field(self, name, default=None):
        """Take a field of the expectation; it counts as driven."""
        self._driven.add(name)
        return self.expect.get(name, default)

    def has(self, name):
        """Whether the expectation has a field."""
        return name in self.expect

    def inputs(self, suffix=""):
        """The input files of the case's own folder with this suffix, those already driven too."""
        names = sorted(self.expect.get("inputs", ()))
        return [name for name in names if name.endswith(suffix) and "/" not in name]

    def take(self, name):
        """Take an input's bytes; it counts as driven."""
        self._inputs.discard(name)
        return (self.folder / name).read_bytes()

    def data(self, name):
        """Take an input as JSON."""
        return json.loads(self.take(name))

    def take_tools(self):
        """The folder of tool files, or None; its files count as driven."""
        self._inputs = {name for name in self._inputs if not name.startswith("tools/")}
        folder = self.folder / "tools"
        return folder if folder.is_dir() else None

    def tool_inputs(self):
        """The names of the tool files among the inputs, without folder and suffix."""
        return [
            name.removeprefix("tools/").removesuffix(".py")
            for name in sorted(self.expect.get("inputs", ()))
            if name.startswith("tools/") and name.endswith(".py")
        ]

    def finish(self):
        """Note what nobody drove; a case of which nothing was driven is none that passed."""
        if self._driven == METADATA and not self._inputs.symmetric_difference(
            self.expect.get("inputs", ())
        ):
            self.problems.append("can't drive anything of it")
        for name, value in self.expect.items():
            if name in self._driven or (isinstance(value, str) and value in NOTES):
                continue
            self.problems.append(f"can't drive the field {name}: {json.dumps(value)[:200]}")
        self.problems += [f"can't drive the input {name}" for name in sorted(self._inputs)]


def for_api(value, api):
    """Take what a dict by API says about one of them; whatever else it is says something about each."""
    if not isinstance(value, dict) or not any("openai" in k or "anthropic" in k for k in value):
        return value
    word = api.partition("-")[0]
    return next((value[key] for key in value if word in key), None)
