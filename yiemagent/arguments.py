"""Tool-call arguments: from what a model sent to what a tool runs with.

Text is parsed, and repaired only where it is whole and can mean one thing; values are coerced and completed by
defaults (`coercion`); then JSON Schema decides. What is wrong is told in words that help a model to do better: the
path, what was expected, what was given, which names exist.
"""

from __future__ import annotations

import json
import logging
import re
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from yiemagent.coercion import Coercer, loads_json
from yiemagent.errors import InvalidArguments
from yiemagent.payload import thaw_json
from yiemagent.plain_check import plain_check
from yiemagent.schema import draft_of, sound_schema, without_reference

__all__ = ["ArgumentChecker", "checker_for", "parse_arguments"]

logger = logging.getLogger("yiemagent.arguments")

SHOWN_CHARACTERS = 80
SHOWN_ERRORS = 8


# --- parsing and repair ----------------------------------------------------------------------------------------------


def parse_arguments(raw: Mapping[str, Any] | str | None) -> dict[str, Any]:
    """Give a call's arguments as a plain private dict.

    Nothing, null and blank text are no arguments. Text that is JSON is taken as it is, an object inside a JSON string
    as that object. Other text is repaired where it is whole and can mean one thing: a code fence around it, trailing
    commas, raw control characters in strings, Python's quotes and words. Text that is cut off is never completed.

    Raises:
        InvalidArguments: where it is no JSON object.
    """
    if raw is None:
        return {}
    if not isinstance(raw, str):
        copy: dict[str, Any] = thaw_json(raw if isinstance(raw, dict) else dict(raw))
        return copy
    text = raw.strip().lstrip("\ufeff")
    if not text:
        return {}
    value = _parsed(text)
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        value = _parsed(value)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidArguments(
            f"the arguments must be one JSON object, not {_kind(value)}: {_shown(value)}"
        )
    return value


def _parsed(text: str) -> Any:
    try:
        return loads_json(text)
    except RecursionError:
        raise InvalidArguments("the arguments are nested too deeply") from None
    except ValueError as error:
        repaired = _repaired(text)
        if repaired is None:
            raise InvalidArguments(
                f"the arguments are no valid JSON: {_complaint(error, text)}; send one JSON object"
            ) from None
        logger.info("tool-call arguments were no valid JSON and could be repaired")
        return repaired


def _complaint(error: ValueError, text: str) -> str:
    if not isinstance(error, json.JSONDecodeError):
        return str(error)
    near = text[max(0, error.pos - 20) : error.pos + 20]
    return f"{error.msg} at character {error.pos} (near {near!r})"


_FENCE = re.compile(r"```[a-zA-Z]*\s*(.*?)\s*```", re.DOTALL)
_TOKEN = re.compile(
    r"""(?P<space>\s++)
      | (?P<string>"(?:[^"\\]++|\\.)*+")
      | (?P<single>'(?:[^'\\]++|\\.)*+')
      | (?P<sign>[{}\[\]:,])
      | (?P<word>[^\s{}\[\]:,"']++)""",
    re.VERBOSE | re.DOTALL,
)
_WORDS = {"True": "true", "False": "false", "None": "null"}
_ESCAPES = {'"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _repaired(text: str) -> Any:
    """Give the value of a text that is JSON but for a few habits of models, or None where it is anything else."""
    if fenced := _FENCE.fullmatch(text):
        text = fenced[1]
    if text[:1] != "{":
        return None
    tokens = _tokens(text)
    try:
        value = loads_json("".join(tokens)) if tokens else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _tokens(text: str) -> list[str]:
    pieces: list[str] = []
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            return []  # an open string: the text is cut off
        position = found.end()
        piece, kind = found[0], found.lastgroup
        if kind == "space":
            continue
        if kind in {"string", "single"}:
            piece = _string(piece)
        elif kind == "word":
            piece = _WORDS.get(piece, piece)
        elif piece in "}]" and len(pieces) > 1 and pieces[-1] == "," and pieces[-2] not in _OPEN:
            pieces.pop()
        pieces.append(piece)
    return pieces


_OPEN = {"{", "[", ",", ":"}


def _string(quoted: str) -> str:
    inner = re.sub(r"\\.|[\x00-\x1f\"]", _escaped, quoted[1:-1], flags=re.DOTALL)
    return f'"{inner}"'


def _escaped(found: re.Match[str]) -> str:
    piece = found[0]
    if piece == "\\'":
        return "'"
    if len(piece) > 1:
        return piece
    return _ESCAPES.get(piece) or f"\\u{ord(piece):04x}"


# --- checking --------------------------------------------------------------------------------------------------------


class ArgumentChecker:
    """Coerces, completes and checks arguments by one schema; used by any thread.

    What the schema's dialect can't hold is translated or left out, with one warning here.

    Args:
        schema: a JSON Schema; never changed.
        name: the tool's, for the warning.
    """

    def __init__(self, schema: Mapping[str, Any], name: str = "") -> None:
        sound, notes = sound_schema(schema)
        self._name = name
        self._rules = _Rules(sound)
        if notes:
            self._warn(notes)

    def check(self, args: dict[str, Any]) -> dict[str, Any]:
        """Give `args` coerced and with defaults; the same object where nothing was to change.

        Raises:
            InvalidArguments: where they don't fit the schema; the text is for the model.
        """
        rules = self._rules
        try:
            return rules.check(args)
        except RecursionError:
            raise InvalidArguments("the arguments are nested too deeply") from None
        except rules.lost_reference as error:
            # Where a schema has identifiers of its own, only following a reference shows that it leads nowhere.
            sound, notes = without_reference(rules.schema, str(getattr(error, "ref", "")))
            self._rules = _Rules(sound)
            self._warn(notes)
        return self.check(args)

    def _warn(self, notes: list[str]) -> None:
        logger.warning("the schema of tool %r was made sound: %s", self._name, "; ".join(notes))


class _Rules:
    """A sound schema at work; its validators are made, and jsonschema loads, when the short way does not do."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        self.lost_reference: type[Exception] | tuple[()] = ()
        self._validator: Any = None
        self._arms: dict[int, Any] = {}
        self._coercer = Coercer(schema, self._fits)
        self._plain = plain_check(schema)

    def check(self, args: dict[str, Any]) -> dict[str, Any]:
        if self._plain is not None:
            plain = self._plain(args)
            if plain is not None:
                return plain
        value: dict[str, Any] = self._coercer.coerce(self.schema, args)
        validator = self._root()
        if not validator.is_valid(value):
            raise InvalidArguments(_words(validator.iter_errors(value), self.schema))
        return value

    def _root(self) -> Any:
        if self._validator is None:
            import referencing.exceptions

            self.lost_reference = referencing.exceptions.Unresolvable
            self._validator = _validator(self.schema)
        return self._validator

    def _fits(self, node: Any, value: Any) -> bool:
        if not isinstance(node, dict):
            return node is not False
        arm = self._arms.get(id(node))
        if arm is None:
            arm = self._arms[id(node)] = self._root().evolve(schema=node)
        return bool(arm.is_valid(value))


def _validator(schema: dict[str, Any]) -> Any:
    import jsonschema
    import referencing

    classes = {
        3: jsonschema.Draft3Validator,
        4: jsonschema.Draft4Validator,
        6: jsonschema.Draft6Validator,
        7: jsonschema.Draft7Validator,
        2019: jsonschema.Draft201909Validator,
        2020: jsonschema.Draft202012Validator,
    }
    # An empty registry: without one, jsonschema fetches what a `$ref` names from the network.
    return classes[draft_of(schema)](schema, registry=referencing.Registry())


class _HasSchema(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def input_schema(self) -> Mapping[str, Any]: ...


_CHECKERS: dict[int, tuple[weakref.ref[Any], ArgumentChecker]] = {}


def checker_for(tool: _HasSchema) -> ArgumentChecker:
    """Give the checker of a tool, made at the first call and kept while the tool lives."""
    key = id(tool)
    kept = _CHECKERS.get(key)
    if kept is not None and kept[0]() is tool:
        return kept[1]
    checker = ArgumentChecker(tool.input_schema, tool.name)
    _CHECKERS[key] = (weakref.ref(tool, lambda _: _CHECKERS.pop(key, None)), checker)
    return checker


# --- words -----------------------------------------------------------------------------------------------------------


def _words(errors: Iterable[Any], schema: Mapping[str, Any]) -> str:
    lines = list(dict.fromkeys(line for error in errors for line in _lines(error)))
    more = len(lines) - SHOWN_ERRORS
    shown = [f"- {line}" for line in lines[:SHOWN_ERRORS]]
    if more > 0:
        shown.append(f"- and {more} more")
    names = schema.get("properties")
    if names:
        shown.append(f"Known arguments: {', '.join(names)}.")
    return "\n".join(["the arguments don't fit the tool's schema:", *shown])


def _lines(error: Any) -> Iterator[str]:
    """What one error of jsonschema says, in our words where they help more."""
    path = _path(error.absolute_path)
    given = f"{_shown(error.instance)} ({_kind(error.instance)})"
    match error.validator:
        case "required" if isinstance(error.validator_value, list):
            for name in error.validator_value:
                if name not in error.instance:
                    known = error.schema.get("properties", {}).get(name)
                    yield f"{_path([*error.absolute_path, name])}: is missing; expected {_expected(known)}"
        case "additionalProperties" if error.validator_value is False:
            known = error.schema.get("properties", {})
            names = ", ".join(known) or "none"
            unknown = [repr(name) for name in error.instance if name not in known]
            yield f"{path}: unknown {', '.join(unknown)}; known names: {names}"
        case "type" | "enum" | "const":
            yield f"{path}: expected {_expected(error.schema)}, not {given}"
        case "anyOf" | "oneOf" if error.context:
            near = _nearest(error)
            if near:
                for inner in near:
                    yield from _lines(inner)
            else:
                yield f"{path}: expected {_expected(error.schema)}, not {given}"
        case _:
            yield f"{path}: {_cut(error.message)}"


def _nearest(error: Any) -> list[Any]:
    """The errors of the one arm of a union that the value was meant for: of its kind, and wrong inside."""
    arms: dict[int, list[Any]] = {}
    for inner in error.context:
        arms.setdefault(inner.schema_path[0], []).append(inner)
    depth = len(error.absolute_path)
    kinds = {"type", "enum", "const"}
    meant = [
        arm
        for arm in arms.values()
        if not any(e.validator in kinds and len(e.absolute_path) == depth for e in arm)
    ]
    return meant[0] if len(meant) == 1 else []


def _expected(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "a value"
    if "const" in schema:
        return _shown(schema["const"])
    if "enum" in schema:
        return f"one of {_cut(', '.join(map(_json, schema['enum'])), 400)}"
    if "type" in schema:
        types = schema["type"]
        return types if isinstance(types, str) else " or ".join(map(str, types))
    arms = schema.get("anyOf") or schema.get("oneOf")
    if arms:
        return " or ".join(dict.fromkeys(map(_expected, arms)))
    return "an object" if "properties" in schema else "a value"


def _path(parts: Iterable[Any]) -> str:
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or "arguments"


def _kind(value: Any) -> str:
    kinds = {
        bool: "boolean",
        int: "integer",
        float: "number",
        str: "string",
        list: "array",
        dict: "object",
    }
    return "null" if value is None else kinds.get(type(value), type(value).__name__)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)


def _shown(value: Any) -> str:
    return _cut(_json(value))


def _cut(text: str, limit: int = SHOWN_CHARACTERS * 2) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
