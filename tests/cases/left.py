"""What the runner leaves to parts of the library that are not built yet; the list only shrinks.

A whole case is left by a part of its kind, a field of a case by its form. Whatever is left is printed at the end of the
run with the part that brings it.
"""

from __future__ import annotations

import pytest

NOTED = pytest.StashKey[list]()  # what this run left, for the end of its report

KINDS = {
    "mcp": "the MCP part",
}
