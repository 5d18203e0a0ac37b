"""What an answer must be: the schema that a question brings, and the answer read by it.

A schema is JSON Schema, or a Python type that says it. Models give objects, so a schema of anything else travels inside
one, under the name `answer`, and comes out again when the answer is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

import attrs

from yiemagent.arguments import ArgumentChecker, parse_arguments
from yiemagent.coercion import loads_json
from yiemagent.errors import ConfigurationError, InvalidArguments, error_text
from yiemagent.json_types import TypeReader
from yiemagent.messages import AssistantMessage
from yiemagent.payload import FrozenDict, freeze_json, thaw_json
from yiemagent.record import Record

__all__ = ["OutputSchema", "output_schema", "read_output"]

_T = TypeVar("_T")

WRAPPED_KEY = "answer"
_DEFINITIONS = ("$defs", "definitions")


def _checker(self: OutputSchema) -> ArgumentChecker:
    return ArgumentChecker(self.schema, "the answer")


@attrs.frozen(eq=False, repr=False)
class OutputSchema(Record):
    """What an answer must be; made by `output_schema`.

    Args:
        schema: JSON Schema of an object, as models are sent it.
        is_wrapped: whether the answer is what that object holds as `answer`, else it is the object.
    """

    schema: FrozenDict
    is_wrapped: bool = False
    _check: ArgumentChecker = attrs.field(
        default=attrs.Factory(_checker, takes_self=True), init=False, eq=False, repr=False
    )

    def check(self, arguments: Mapping[str, Any]) -> Any:
        """Give the answer that an object of the schema holds: coerced, with defaults, frozen.

        Raises:
            InvalidArguments: where it does not fit; the text is for the model.
        """
        try:
            fitting = self._check.check({**arguments})
        except InvalidArguments as error:
            raise InvalidArguments(_about_the_answer(str(error))) from None
        return self.unwrapped(fitting)

    def unwrapped(self, fitting: Mapping[str, Any]) -> Any:
        """Give the answer that a checked object holds, frozen."""
        return freeze_json(fitting[WRAPPED_KEY] if self.is_wrapped else fitting)

    def read(self, text: str) -> Any:
        """Give the answer that a model wrote as JSON text, in a code fence or not.

        Raises:
            InvalidArguments: where it is none, or does not fit; the text is for the model.
        """
        if not text.strip():
            raise InvalidArguments("the answer is empty, not a JSON object")
        try:
            return self.check(parse_arguments(text))
        except InvalidArguments as error:
            problem = InvalidArguments(_about_the_answer(str(error)))
        if self.is_wrapped:  # a model may leave the wrapping out
            try:
                return self.check({WRAPPED_KEY: loads_json(text)})
            except (InvalidArguments, ValueError, RecursionError):
                pass  # the first problem says what was asked for
        raise problem


_WORDS = {
    "the arguments don't fit the tool's schema": "the answer does not fit the schema",
    "the arguments are": "the answer is",
    "the arguments must": "the answer must",
    "- arguments:": "- answer:",
    "Known arguments:": "Known names:",
}


def _about_the_answer(text: str) -> str:
    """Give the words about a tool's arguments as words about an answer."""
    for ours, theirs in _WORDS.items():
        text = text.replace(ours, theirs)
    return text


def output_schema(given: Any) -> OutputSchema:
    """Give what a caller asks an answer to be.

    Args:
        given: a JSON Schema, or a type: a dataclass, an attrs class, a TypedDict, or any other that a tool's parameter
            may have, such as `list[str]`.

    Raises:
        ConfigurationError: where it is neither, or no schema says what the type says.
    """
    if isinstance(given, OutputSchema):
        return given
    schema = thaw_json(dict(given)) if isinstance(given, Mapping) else _schema_of(given)
    schema = _with_root(schema)
    if _is_object(schema):
        return OutputSchema(cast("FrozenDict", freeze_json(schema)))
    return OutputSchema(cast("FrozenDict", freeze_json(_wrapped(schema))), is_wrapped=True)


def read_output(answer: AssistantMessage, kind: type[_T]) -> _T:
    """Give an answer's value as the class that it was asked for with: `read_output(answer, Person)`.

    Raises:
        ValueError: where the answer has no value (it failed, say), or one that is not of the class.
    """
    if answer.parsed is None:
        why = answer.error_message or "it was asked for without output_schema"
        raise ValueError(f"the answer has no value: {why}")
    try:
        value = TypeReader().form(kind, "output_schema").value(thaw_json(answer.parsed))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        name = getattr(kind, "__name__", repr(kind))
        raise ValueError(f"the answer's value is no {name}: {error_text(error)}") from error
    return cast("_T", value)


# --- schemas
# ----------------------------------------------------------------------------------------------------------


def _schema_of(kind: Any) -> dict[str, Any]:
    if not isinstance(kind, type) and not hasattr(kind, "__origin__") and not _is_union(kind):
        raise ConfigurationError(
            f"output_schema must be a JSON Schema or a class such as a dataclass, not {kind!r}"
        )
    reader = TypeReader()
    schema = dict(reader.form(kind, "output_schema").schema)
    return {**schema, "$defs": dict(reader.definitions)} if reader.definitions else schema


def _is_union(kind: Any) -> bool:
    return type(kind).__name__ in {"UnionType", "Union", "TypeAliasType"}


def _with_root(schema: dict[str, Any]) -> dict[str, Any]:
    """Give a schema whose root is a reference to one of its definitions with that definition as its root."""
    reference = schema.get("$ref")
    for key in _DEFINITIONS:
        definitions = schema.get(key)
        if isinstance(reference, str) and isinstance(definitions, dict):
            named = definitions.get(reference.removeprefix(f"#/{key}/"))
            if isinstance(named, dict):
                rest = {name: value for name, value in schema.items() if name != "$ref"}
                return {**named, **rest}
    return schema


def _is_object(schema: Mapping[str, Any]) -> bool:
    if "type" in schema:
        return bool(schema["type"] == "object")
    return "properties" in schema


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    """Give the schema of an object that holds one value; definitions stay at the root, where references look."""
    inner = _repointed(schema, f"#/properties/{WRAPPED_KEY}")
    outer: dict[str, Any] = {
        "type": "object",
        "properties": {WRAPPED_KEY: inner},
        "required": [WRAPPED_KEY],
        "additionalProperties": False,
    }
    outer.update({key: inner.pop(key) for key in ("$schema", *_DEFINITIONS) if key in inner})
    return outer


def _repointed(node: Any, root: str) -> Any:
    """Give a schema with its references to its own root pointed to where that will be."""
    if isinstance(node, list):
        return [_repointed(item, root) for item in node]
    if not isinstance(node, dict):
        return node
    moved = {key: _repointed(value, root) for key, value in node.items()}
    reference = node.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        path = reference[1:]
        if not path.startswith(tuple(f"/{key}/" for key in _DEFINITIONS)):
            moved["$ref"] = root + path
    return moved
