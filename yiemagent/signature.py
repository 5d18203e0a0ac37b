"""`@tool`: an `AgentTool` from an annotated function and its docstring."""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, overload

import attrs

from yiemagent.abort import AbortSignal
from yiemagent.errors import ConfigurationError, InvalidArguments, safe_repr
from yiemagent.json_types import Form, TypeReader, with_default
from yiemagent.tool import AgentTool, ToolExecute

__all__ = ["as_tool", "tool"]

_INJECTED = ("tool_call_id", "signal", "on_partial_result")


@overload
def tool(fn: Callable[..., Any], /) -> AgentTool: ...


@overload
def tool(
    fn: None = None,
    /,
    *,
    name: str | None = None,
    label: str | None = None,
    description: str | None = None,
    parallel_tool_execute: bool = False,
    timeout_s: float | None = 600.0,
    isolation: Literal["thread", "process"] = "thread",
    lock: str | Iterable[str] | None = None,
    annotations: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | None = None,
    examples: Iterable[tuple[str, Mapping[str, Any]]] = (),
    prepare_arguments: Callable[[dict[str, Any]], Any] | None = None,
    validate_required_args: Callable[[dict[str, Any]], str | None] | None = None,
) -> Callable[[Callable[..., Any]], AgentTool]: ...


def tool(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    label: str | None = None,
    description: str | None = None,
    **options: Any,
) -> AgentTool | Callable[[Callable[..., Any]], AgentTool]:
    """Make an `AgentTool` of a function, as `@tool` or `@tool(name=…)`.

    The parameters' annotations become the schema; the docstring's text and its Google, NumPy or reST parameter section
    become the descriptions. Parameters `tool_call_id`, `signal` and `on_partial_result`, and any annotated
    `AbortSignal`, are given by the pipeline and are no arguments. Arguments arrive as what the annotations say: an
    `Enum` member, a dataclass instance, a tuple.

    Args:
        fn: the function; None gives a decorator.
        name: the tool's; default the function's.
        label: its name for people; default made of the name.
        description: what it does, for the model; default the docstring's text.
        options: the other fields of an `AgentTool`, such as `parallel_tool_execute`, `timeout_s` and `examples`.

    Raises:
        ConfigurationError: where a parameter can't be told in JSON Schema, nothing says what the tool does, or the
            function is a coroutine function.
    """
    if fn is None:
        return functools.partial(_tool, name=name, label=label, description=description, **options)
    return _tool(fn, name=name, label=label, description=description, **options)


def _tool(
    fn: Callable[..., Any],
    *,
    name: str | None,
    label: str | None,
    description: str | None,
    **options: Any,
) -> AgentTool:
    plain = _plain_function(fn)
    name = name or str(getattr(plain, "__name__", ""))
    text, notes = _docstring(inspect.getdoc(plain) or "")
    parameters, reader = _parameters(fn, plain, name), TypeReader()
    forms = {
        p.name: reader.form(p.annotation, f"tool {name!r}, parameter {p.name!r}")
        for p in parameters
        if p.injected is None
    }
    if label is not None:
        options["label"] = label
    return AgentTool(
        name,
        description=_said(description or text, name),
        input_schema=_schema(parameters, forms, notes, reader.definitions),
        execute=_execute(fn, parameters, forms),
        **options,
    )


def as_tool(given: Any) -> AgentTool:
    """Give what a tool file's `get_tool()` gave as a tool: one already, or a function that becomes one.

    Raises:
        ConfigurationError: it is neither, or can't become a tool.
    """
    if isinstance(given, AgentTool):
        return given
    if callable(given) and not isinstance(given, type):
        made: AgentTool = tool(given)
        return made
    raise ConfigurationError(f"get_tool() gave {safe_repr(given)}; it must give an AgentTool")


def _said(description: str, name: str) -> str:
    if not description.strip():
        raise ConfigurationError(
            f"tool {name!r} needs a docstring or description=: it is what the model chooses by"
        )
    return description


def _plain_function(fn: Any) -> Any:
    """The function that holds annotations and docstring: behind a partial, or the `__call__` of an object."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if not callable(fn) or isinstance(fn, type):
        raise ConfigurationError(f"@tool makes a tool of a function, not of {fn!r}")
    plain = fn if inspect.isroutine(fn) else type(fn).__call__
    if inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain):
        raise ConfigurationError(
            f"{fn!r} is a coroutine function; give a plain function (it may run an event loop of its own inside)"
        )
    return plain


# --- parameters ------------------------------------------------------------------------------------------------------


@attrs.frozen
class _Parameter:
    """One parameter: `injected` names what the pipeline gives for it, None where it is an argument."""

    name: str
    annotation: Any
    default: Any
    positional: bool
    injected: str | None


def _parameters(fn: Callable[..., Any], plain: Any, tool_name: str) -> list[_Parameter]:
    try:
        hints = typing.get_type_hints(plain, include_extras=True)
    except (NameError, TypeError) as error:
        raise ConfigurationError(
            f"tool {tool_name!r}: the annotations can't be resolved ({error}); define the types they "
            f"name at the top level of the module"
        ) from error
    parameters = inspect.signature(fn).parameters.values()
    return [_parameter(p, hints.get(p.name, p.empty), tool_name) for p in parameters]


def _parameter(p: inspect.Parameter, annotation: Any, tool_name: str) -> _Parameter:
    where = f"tool {tool_name!r}, parameter {p.name!r}"
    if p.kind in {p.VAR_POSITIONAL, p.VAR_KEYWORD}:
        raise ConfigurationError(f"{where}: a tool's parameters are named; write each one out")
    injected = _injection(p.name, annotation, where)
    if injected is None and annotation is p.empty:
        raise ConfigurationError(f"{where}: needs an annotation, such as {p.name}: str")
    return _Parameter(p.name, annotation, p.default, p.kind is p.POSITIONAL_ONLY, injected)


def _injection(name: str, annotation: Any, where: str) -> str | None:
    is_signal = AbortSignal in _arms(annotation)
    if name == "signal" and not is_signal and annotation not in (inspect.Parameter.empty, Any):
        raise ConfigurationError(
            f"{where}: this name is for the AbortSignal; annotate it so, or give it another name"
        )
    if is_signal:
        return "signal"
    return name if name in _INJECTED else None


def _arms(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return typing.get_args(annotation)
    return (annotation,)


def _schema(
    parameters: list[_Parameter],
    forms: Mapping[str, Form],
    notes: Mapping[str, str],
    definitions: Mapping[str, Any],
) -> dict[str, Any]:
    properties = {}
    required = []
    for parameter in parameters:
        if parameter.injected is not None:
            continue
        schema = forms[parameter.name].schema
        note = notes.get(parameter.name)
        if note and "description" not in schema:
            schema = {**schema, "description": note}
        if parameter.default is inspect.Parameter.empty:
            required.append(parameter.name)
        else:
            schema = with_default(schema, parameter.default)
        properties[parameter.name] = schema
    whole: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        whole["required"] = required
    whole["additionalProperties"] = False
    return {**whole, "$defs": dict(definitions)} if definitions else whole


def _execute(
    fn: Callable[..., Any], parameters: list[_Parameter], forms: Mapping[str, Form]
) -> ToolExecute:
    injected = [(p.name, p.injected, p.positional) for p in parameters if p.injected is not None]
    leading = [p.name for p in parameters if p.positional]

    def execute(
        tool_call_id: str, args: dict[str, Any], signal: AbortSignal, on_partial_result: Any
    ) -> Any:
        values = {name: _value(forms.get(name), name, given) for name, given in args.items()}
        given_by_us = {
            "tool_call_id": tool_call_id,
            "signal": signal,
            "on_partial_result": on_partial_result,
        }
        for name, what, _ in injected:
            values[name] = given_by_us[what]
        first = []
        for name in leading:
            if name not in values:
                break
            first.append(values.pop(name))
        return fn(*first, **values)

    execute.__wrapped__ = fn  # type: ignore[attr-defined]  # tells whose it is
    return execute


def _value(form: Form | None, name: str, given: Any) -> Any:
    if form is None:
        return given
    try:
        return form.value(given)
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidArguments(f"{name}: {error}") from error


# --- docstrings ------------------------------------------------------------------------------------------------------

_GOOGLE = re.compile(r"(?:Args|Arguments|Parameters|Params)\s*:\s*$")
_SECTION = re.compile(
    r"(?:Args|Arguments|Parameters|Params|Returns?|Raises|Yields?|Examples?|Notes?|Warnings?"
    r"|See Also|References|Attributes|Other Parameters)\s*:?\s*$"
)
_UNDERLINE = re.compile(r"-{3,}\s*$")
_REST = re.compile(r":(\w+)\s*([^:]*):\s*(.*)$")
_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_NUMPY_ENTRY = re.compile(r"(\w+(?:\s*,\s*\w+)*)\s*(?::.*)?$")


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """Give a docstring's text before its first section, and what it says of each parameter."""
    lines = text.splitlines()
    start = next((i for i in range(len(lines)) if _begins_section(lines, i)), len(lines))
    notes: dict[str, str] = {}
    for index in range(start, len(lines)):
        if _GOOGLE.match(lines[index]):
            notes.update(_google(lines[index + 1 :]))
        elif lines[index].strip() == "Parameters" and _underlined(lines, index):
            notes.update(_numpy(lines[index + 2 :]))
    notes.update(_rest(lines[start:]))
    return "\n".join(lines[:start]).strip(), notes


def _begins_section(lines: list[str], index: int) -> bool:
    line = lines[index]
    if _REST.match(line) and line.split()[0].strip(":") in _REST_FIELDS:
        return True
    return bool(_SECTION.match(line)) and (line.rstrip().endswith(":") or _underlined(lines, index))


_REST_FIELDS = {
    "param", "parameter", "arg", "argument", "key", "keyword", "type", "raises", "raise", "return", "returns", "rtype",
}  # fmt: skip


def _underlined(lines: list[str], index: int) -> bool:
    return index + 1 < len(lines) and bool(_UNDERLINE.match(lines[index + 1]))


def _google(lines: list[str]) -> dict[str, str]:
    notes: dict[str, list[str]] = {}
    current: list[str] = []
    indent: int | None = None
    for line in lines:
        if not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            break
        indent = depth if indent is None else indent
        entry = _ENTRY.match(line.strip()) if depth <= indent else None
        if entry:
            current = notes.setdefault(entry[1], [])
            current.append(entry[2])
        else:
            current.append(line.strip())
    return {name: " ".join(parts).strip() for name, parts in notes.items()}


def _numpy(lines: list[str]) -> dict[str, str]:
    notes: dict[str, list[str]] = {}
    names: list[str] = []
    for index, line in enumerate(lines):
        if _underlined(lines, index):
            break
        if line.strip() and not line[:1].isspace():
            entry = _NUMPY_ENTRY.match(line)
            names = [name.strip() for name in entry[1].split(",")] if entry else []
            notes.update({name: [] for name in names})
        else:
            for name in names:
                notes[name].append(line.strip())
    return {name: " ".join(parts).strip() for name, parts in notes.items()}


def _rest(lines: list[str]) -> dict[str, str]:
    notes: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in lines:
        field = _REST.match(line)
        if field:
            named = field[1] in {"param", "parameter", "arg", "argument", "key", "keyword"}
            current = notes.setdefault(field[2].split()[-1], []) if named and field[2] else None
            text = field[3]
        else:
            text = line.strip()
        if current is not None and text:
            current.append(text)
    return {name: " ".join(parts) for name, parts in notes.items()}
