"""Python types as JSON Schema, and JSON values read back as what the types say.

A `Form` is a type's three sides: its schema, how a JSON value that fits becomes a value of the type, and whether a JSON
value is of it (asked for the arms of unions only; the schema decides about arguments).
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime as dt
import enum
import json
import pathlib
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal

import attrs

from yiemagent.errors import ConfigurationError

__all__ = ["Form", "TypeReader", "json_default"]

Read = Callable[[Any], Any]

_SCALARS: dict[Any, tuple[str, tuple[type, ...]]] = {
    str: ("string", (str,)),
    int: ("integer", (int,)),
    float: ("number", (int, float)),
    bool: ("boolean", (bool,)),
    type(None): ("null", (type(None),)),
}
_TEXTS: dict[Any, tuple[str | None, Read]] = {
    pathlib.Path: (None, pathlib.Path),
    dt.datetime: ("date-time", dt.datetime.fromisoformat),
    dt.date: ("date", dt.date.fromisoformat),
    dt.time: ("time", dt.time.fromisoformat),
    uuid.UUID: ("uuid", uuid.UUID),
}
_LISTS: dict[Any, Read | None] = {
    list: None,
    collections.abc.Sequence: None,
    collections.abc.Iterable: None,
    collections.abc.Collection: None,
    collections.abc.MutableSequence: None,
    set: set,
    collections.abc.Set: set,
    frozenset: frozenset,
}
_DICTS = {dict, collections.abc.Mapping, collections.abc.MutableMapping}
_WRAPPERS = {"Required", "NotRequired", "ReadOnly", "Final", "ClassVar"}


@attrs.frozen
class Form:
    """A type's sides.

    Args:
        schema: its JSON Schema.
        read: makes a value of the type of a JSON value that fits the schema; None where that is the value itself.
        accepts: whether a JSON value is of the type.
    """

    schema: dict[str, Any]
    read: Read | None
    accepts: Callable[[Any], bool]

    def value(self, given: Any) -> Any:
        """Give a JSON value as the type says."""
        return given if self.read is None else self.read(given)


@attrs.frozen
class _Member:
    """One field of a record: its name in JSON, what follows it, and whether it must be there."""

    name: str
    form: Form
    required: bool
    default: Any = dataclasses.MISSING


class TypeReader:
    """Makes the forms of the annotations of one function; collects the schemas of types that contain themselves."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}
        self._under_way: dict[Any, str] = {}
        self._recursive: dict[str, Form] = {}

    def form(self, annotation: Any, where: str) -> Form:
        """Give the form of an annotation.

        Args:
            annotation: with its `Annotated` extras.
            where: the parameter or field, for the error.

        Raises:
            ConfigurationError: where no schema says what the annotation says.
        """
        annotation = _unwrapped(annotation)
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is Annotated:
            return _noted(self.form(arguments[0], where), arguments[1:])
        if annotation in (Any, object):
            return Form({}, None, lambda _: True)
        if origin is Literal:
            return _literal(arguments, where)
        if origin in (typing.Union, types.UnionType):
            return self._union(arguments, where)
        kind = origin or annotation
        if kind is tuple:
            return self._tuple(arguments, where)
        if kind in _LISTS:
            return self._list(kind, arguments, where)
        if kind in _DICTS:
            return self._dict(arguments, where)
        if isinstance(kind, type):
            return self._class(kind, where)
        raise _unsupported(annotation, where)

    def _class(self, kind: type, where: str) -> Form:
        if kind in _SCALARS:
            name, classes = _SCALARS[kind]
            return Form({"type": name}, None, _is_a(classes))
        if kind in _TEXTS:
            return _text(kind)
        if issubclass(kind, enum.Enum):
            return _enum(kind, where)
        if typing.is_typeddict(kind) or dataclasses.is_dataclass(kind) or attrs.has(kind):
            return self._record(kind, where)
        raise _unsupported(kind, where)

    def _union(self, arguments: tuple[Any, ...], where: str) -> Form:
        arms = [self.form(argument, where) for argument in arguments]
        schema = {"anyOf": [arm.schema for arm in arms]}

        def read(value: Any) -> Any:
            arm = next((arm for arm in arms if arm.accepts(value)), None)
            return value if arm is None else arm.value(value)

        reads = any(arm.read for arm in arms)
        return Form(schema, read if reads else None, lambda v: any(arm.accepts(v) for arm in arms))

    def _list(self, kind: Any, arguments: tuple[Any, ...], where: str) -> Form:
        item = self.form(arguments[0] if arguments else Any, f"{where}[]")
        form = _array(item, _LISTS[kind])
        if _LISTS[kind] is None:
            return form
        return attrs.evolve(form, schema={**form.schema, "uniqueItems": True})

    def _tuple(self, arguments: tuple[Any, ...], where: str) -> Form:
        if not arguments or arguments[-1] is ...:
            item = self.form(arguments[0] if arguments else Any, f"{where}[]")
            return _array(item, tuple)
        items = [self.form(a, f"{where}[{i}]") for i, a in enumerate(arguments)]
        size = len(items)
        schema: dict[str, Any] = {"type": "array", "minItems": size, "maxItems": size}
        schema["prefixItems"] = [item.schema for item in items]
        return Form(
            schema,
            lambda v: tuple(item.value(each) for item, each in zip(items, v, strict=True)),
            lambda v: (
                isinstance(v, list)
                and len(v) == size
                and all(item.accepts(each) for item, each in zip(items, v, strict=True))
            ),
        )

    def _dict(self, arguments: tuple[Any, ...], where: str) -> Form:
        key, item = arguments or (str, Any)
        if key is not str:
            raise ConfigurationError(
                f"{where}: JSON objects have string keys, so annotate dict[str, …], not dict[{key!r}, …]"
            )
        value = self.form(item, f"{where}.*")
        schema: dict[str, Any] = {"type": "object"}
        if value.schema:
            schema["additionalProperties"] = value.schema

        def read(given: dict[str, Any]) -> dict[str, Any]:
            return {name: value.value(each) for name, each in given.items()}

        return Form(
            schema,
            read if value.read else None,
            lambda v: isinstance(v, dict) and all(map(value.accepts, v.values())),
        )

    def _record(self, kind: type, where: str) -> Form:
        if kind in self._under_way:  # it contains itself
            return self._reference(self._under_way[kind])
        name = kind.__name__
        while name in self._under_way.values() or name in self.definitions:
            name += "_"
        self._under_way[kind] = name
        try:
            members = self._members(kind, where)
        finally:
            del self._under_way[kind]
        form = _record_form(kind, members)
        if name not in self._recursive:
            return form
        self._recursive[name] = form
        self.definitions[name] = form.schema
        return self._reference(name)

    def _reference(self, name: str) -> Form:
        self._recursive.setdefault(name, _UNKNOWN)
        found = self._recursive  # holds the form itself only when the whole type is known

        def read(value: Any) -> Any:
            return found[name].value(value)

        def accepts(value: Any) -> bool:
            return found[name].accepts(value)

        return Form({"$ref": f"#/$defs/{name}"}, read, accepts)

    def _members(self, kind: type, where: str) -> list[_Member]:
        hints = _hints(kind, where)
        members = []
        for name, attribute, required, default in _fields(kind, hints):
            form = self.form(hints.get(attribute, Any), f"{where}.{name}")
            members.append(_Member(name, form, required, default))
        return members


_UNKNOWN = Form({}, None, lambda _: False)


# --- records ---------------------------------------------------------------------------------------------------------


def _hints(kind: type, where: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except (NameError, TypeError) as error:
        raise ConfigurationError(
            f"{where}: the annotations of {kind.__name__} can't be resolved ({error}); "
            f"define the types they name at the top level of the module"
        ) from error


def _fields(kind: Any, hints: Mapping[str, Any]) -> Iterable[tuple[str, str, bool, Any]]:
    """The fields of a record: name in JSON, name in the hints, whether it is required, its default."""
    missing = dataclasses.MISSING
    if typing.is_typeddict(kind):
        for name in hints:
            qualifier = typing.get_origin(
                hints[name]
            )  # postponed annotations hide it from the class
            required = name in kind.__required_keys__ and qualifier is not typing.NotRequired
            yield name, name, required or qualifier is typing.Required, missing
    elif dataclasses.is_dataclass(kind):
        for field in dataclasses.fields(kind):
            if field.init:
                required = field.default is missing and field.default_factory is missing
                yield field.name, field.name, required, field.default
    else:
        for attribute in attrs.fields(kind):
            if attribute.init:
                required = attribute.default is attrs.NOTHING
                known = required or isinstance(attribute.default, attrs.Factory)  # type: ignore[arg-type]  # is a class
                default = missing if known else attribute.default
                yield attribute.alias or attribute.name, attribute.name, required, default


def _record_form(kind: type, members: list[_Member]) -> Form:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {m.name: with_default(m.form.schema, m.default) for m in members},
        "required": [m.name for m in members if m.required],
        "additionalProperties": False,
    }
    forms = {member.name: member.form for member in members}
    required = set(schema["required"])

    def accepts(value: Any) -> bool:
        return (
            isinstance(value, dict)
            and required <= value.keys() <= forms.keys()
            and all(forms[name].accepts(item) for name, item in value.items())
        )

    def read(value: dict[str, Any]) -> Any:
        return kind(**{name: forms[name].value(item) for name, item in value.items()})

    return Form(schema, read, accepts)


def with_default(schema: dict[str, Any], default: Any) -> dict[str, Any]:
    """Give a schema with a Python default value in it, where JSON can say that value and it is not None."""
    value = json_default(default)
    return schema if value is None else {**schema, "default": value}


def json_default(default: Any) -> Any:
    """Give a Python default value as JSON, or None where JSON can't say it."""
    if isinstance(default, enum.Enum):
        return _enum_value(default)
    if isinstance(default, (set, frozenset)):
        default = sorted(default, key=repr)
    try:
        return json.loads(json.dumps(default, allow_nan=False, default=_enum_value))
    except (TypeError, ValueError):
        return None


# --- the smaller kinds -----------------------------------------------------------------------------------------------


def _is_a(classes: tuple[type, ...]) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, classes) and (not isinstance(value, bool) or bool in classes)
    )


def _array(item: Form, build: Read | None) -> Form:
    """A JSON list of one kind of items, read as a list, or as what `build` makes of one."""
    make = list if build is None else build
    read = build if item.read is None else lambda v: make(item.value(each) for each in v)
    schema: dict[str, Any] = {"type": "array", **({"items": item.schema} if item.schema else {})}
    return Form(schema, read, lambda v: isinstance(v, list) and all(map(item.accepts, v)))


def _text(kind: type) -> Form:
    name, read = _TEXTS[kind]
    schema = {"type": "string"} if name is None else {"type": "string", "format": name}

    def accepts(value: Any) -> bool:
        try:
            read(value)
        except (ValueError, TypeError, AttributeError):
            return False
        return True

    return Form(schema, read, accepts)


def _literal(values: tuple[Any, ...], where: str) -> Form:
    for value in values:
        if value is not None and type(value) not in {str, int, bool}:
            raise ConfigurationError(
                f"{where}: Literal holds {value!r}; give strings, integers, booleans or None"
            )
    return Form(_choice(values), None, lambda v: any(v == x and type(v) is type(x) for x in values))


def _choice(values: Iterable[Any]) -> dict[str, Any]:
    listed = list(values)
    kinds = {_SCALARS[type(value)][0] for value in listed}
    typed = {"type": kinds.pop()} if len(kinds) == 1 else {}
    return {**typed, "enum": listed}


def _enum(kind: type[enum.Enum], where: str) -> Form:
    members = {_enum_value(member): member for member in kind}
    if not members:
        raise ConfigurationError(f"{where}: the enum {kind.__name__} has no members to choose from")
    return Form(_choice(members), lambda v: members[v], lambda v: _hashable(v) and v in members)


def _enum_value(member: Any) -> Any:
    """What stands for an enum member in JSON: its value where all are texts or all whole numbers, else its name."""
    if not isinstance(member, enum.Enum):
        raise TypeError(f"{member!r} has no JSON form")
    values = [other.value for other in type(member)]
    plain = all(type(v) is str for v in values) or all(type(v) is int for v in values)
    return member.value if plain else member.name


def _hashable(value: Any) -> bool:
    return not isinstance(value, (dict, list))


def _noted(form: Form, extras: tuple[Any, ...]) -> Form:
    """Take a description, or keywords of JSON Schema in a dict, from the extras of `Annotated`."""
    schema = dict(form.schema)
    for extra in extras:
        text = extra if isinstance(extra, str) else getattr(extra, "documentation", None)
        if isinstance(text, str):
            schema["description"] = text
        elif isinstance(extra, Mapping):
            schema.update(extra)
    return attrs.evolve(form, schema=schema)


def _unwrapped(annotation: Any) -> Any:
    """Give what a `NewType`, a `type` alias or a field's qualifier stands for."""
    while True:
        if isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        elif getattr(typing.get_origin(annotation), "_name", None) in _WRAPPERS:
            annotation = typing.get_args(annotation)[0]
        else:
            return type(None) if annotation is None else annotation


def _unsupported(annotation: Any, where: str) -> ConfigurationError:
    name = getattr(annotation, "__name__", None) or repr(annotation)
    return ConfigurationError(
        f"{where}: no JSON Schema for {name}; use str, int, float, bool, list, dict, tuple, Literal, "
        f"Enum, a TypedDict, a dataclass, an attrs class or a union of them, or make the tool with "
        f"AgentTool(input_schema=…)"
    )
