"""Parsers of command lines: one whose errors show the usage of its own command, one that takes words in any order."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

__all__ = ["CommandParser", "MixedParser"]


class CommandParser(argparse.ArgumentParser):
    """Refuses words that it does not know itself, with its own usage.

    The usual parser of a command hands them up, and the one on top refuses them with a usage that does not help.
    """

    def parse_known_args(  # type: ignore[override]  # the overloads of the stubs say no more
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse; gives the options, and no words that nobody knows."""
        found, unknown = self._parse(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, []

    def _parse(self, args: Sequence[str] | None, namespace: Any) -> tuple[Any, list[str]]:
        return super().parse_known_args(args, namespace)


class MixedParser(CommandParser):
    """Takes `call NAME --tools DIR text=hi` as `call NAME text=hi --tools DIR`.

    The usual parser gives every word that is still open its value at the first stretch of words, and knows no word
    behind the next option. For parsers without commands below them.
    """

    _mixing = False

    def parse_known_args(  # type: ignore[override]  # as above
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse; gives the options, and no words that nobody knows."""
        if self._mixing:  # what parses in two steps parses by this for each of them
            return self._parse(args, namespace)
        return super().parse_known_args(args, namespace)

    def _parse(self, args: Sequence[str] | None, namespace: Any) -> tuple[Any, list[str]]:
        if self._mixing:
            return super()._parse(args, namespace)
        self._mixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._mixing = False
