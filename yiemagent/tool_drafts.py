"""A tool as a model gives it, before anything is written: what may be its name, its words and its schema."""

from __future__ import annotations

import json
import keyword
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from yiemagent.schema import sound_schema

__all__ = ["ToolDraft", "draft_problems", "name_problem"]

SCHEMA_CHARACTERS = 65_536
SCHEMA_DEPTH = 40
DESCRIPTION_CHARACTERS = 4_000
LABEL_CHARACTERS = 100


@attrs.frozen(kw_only=True)
class ToolDraft:
    """A tool as a model gives it: the fields of `write_tool`."""

    name: str
    label: str
    description: str
    input_schema: Mapping[str, Any]
    execute_code: str
    validate_code: str | None = None
    prepare_code: str | None = None
    parallel: bool = False
    imports: Sequence[str] = ()


def draft_problems(draft: ToolDraft) -> list[str]:
    """Say everything that is wrong with the name, the words and the schema of a draft."""
    named = name_problem(draft.name)
    problems = [] if named is None else [named]
    return [*problems, *_word_problems(draft), *_schema_problems(draft.input_schema)]


_DEVICES = re.compile(r"con|prn|aux|nul|(com|lpt)\d", re.IGNORECASE)


def name_problem(name: Any) -> str | None:
    """Say what is wrong with a name for a tool and its file, or give None."""
    shown = repr(name) if len(repr(name)) <= 80 else f"{repr(name)[:77]}..."
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", name):
        return (
            f"name {shown} must be 1 to 64 letters, digits and '_', and begin with a letter; it is the "
            f"file's name, too"
        )
    if keyword.iskeyword(name):
        return f"name {shown} is a word of Python's own"
    if name in {"list_tools", "write_tool"}:
        return f"name {shown} is taken by a tool that can't be replaced"
    if name.lower() in {module.lower() for module in sys.stdlib_module_names} | {"yiemagent"}:
        return f"name {shown} is a module's; a file of this name would hide it; add a word to it"
    if "registry" in name:
        return f"name {shown} has 'registry' in it, and such files are not loaded"
    if _DEVICES.fullmatch(name):
        return f"name {shown} is a device's on Windows"
    return None


def _word_problems(draft: ToolDraft) -> Iterator[str]:
    for field, limit in (("label", LABEL_CHARACTERS), ("description", DESCRIPTION_CHARACTERS)):
        text = getattr(draft, field)
        if not isinstance(text, str) or not text.strip():
            yield f"{field} must be a text that says something"
        elif len(text) > limit:
            yield f"{field} has {len(text):,} characters; it may have {limit:,}"
        elif re.search("[\ud800-\udfff]", text):
            yield f"{field} holds half of a surrogate pair, which no file can"


def _schema_problems(schema: Any) -> list[str]:
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        return ["input_schema must be a JSON Schema whose type is 'object'"]
    try:
        if _depth(schema) > SCHEMA_DEPTH:
            return [f"input_schema is nested deeper than {SCHEMA_DEPTH} levels"]
        size = len(json.dumps(schema, allow_nan=False, ensure_ascii=False))
        _, notes = sound_schema(schema)
    except (TypeError, ValueError, RecursionError) as error:
        return [f"input_schema is no JSON: {error}"]
    if size > SCHEMA_CHARACTERS:
        return [f"input_schema has {size:,} characters; it may have {SCHEMA_CHARACTERS:,}"]
    properties = schema.get("properties", {})
    if isinstance(properties, Mapping):
        notes = [
            *notes,
            *(
                f"required names {name!r}, which is not among the properties"
                for name in schema.get("required", ())
                if isinstance(name, str) and name not in properties
            ),
        ]
    return [f"input_schema: {note}" for note in notes]


def _depth(value: Any, depth: int = 1) -> int:
    """Give how deep a value is nested; one level more than is allowed is deep enough."""
    if depth > SCHEMA_DEPTH:
        return depth
    if isinstance(value, Mapping):
        return max((_depth(item, depth + 1) for item in value.values()), default=depth)
    if isinstance(value, (list, tuple)):
        return max((_depth(item, depth + 1) for item in value), default=depth)
    return depth
