"""What tests of written tools share: a folder whose tools can write another, and what such a tool is made of."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from tools import write_tool

if TYPE_CHECKING:
    from pathlib import Path

SHOUT: dict[str, Any] = {
    "name": "shout",
    "label": "Shout",
    "description": "Say a text loudly.",
    "input_schema": {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    },
    "execute_code": "return args['text'].upper()",
}
"""Arguments of `write_tool`."""


def writing_folder(path: Path) -> Path:
    """Make a folder of tools that has `write_tool` in it, and give it."""
    path.mkdir()
    shutil.copy(write_tool.__file__, path)
    return path
