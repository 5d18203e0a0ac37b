"""A parser of command lines on which options and other words may come in any order."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

__all__ = ["MixedParser"]


class MixedParser(argparse.ArgumentParser):
    """Takes `call NAME --tools DIR text=hi` as `call NAME text=hi --tools DIR`.

    The usual parser gives every word that is still open its value at the first stretch of words, and knows no word
    behind the next option. For parsers without commands below them.
    """

    _mixing = False

    def parse_known_args(  # type: ignore[override]  # the overloads of the stubs say no more
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse; gives the options and the words that nobody knows."""
        if self._mixing:  # what parses in two steps parses by this for each of them
            return super().parse_known_args(args, namespace)
        self._mixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._mixing = False
