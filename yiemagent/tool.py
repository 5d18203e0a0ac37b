"""Tools: what an agent can do, and what doing it gives.

A tool file exposes `get_tool()`, which gives an `AgentTool`; `@tool` makes one from an annotated function. Both are
run by the same wrapper, in the pipeline and in a unit test that calls `tool.execute("id", {...})`.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias, cast

import attrs

from yiemagent.abort import AbortSignal
from yiemagent.errors import ConfigurationError
from yiemagent.messages import (
    ImageContent,
    LlmUsage,
    MessageContent,
    TextContent,
    content_text,
    shown_blocks,
)
from yiemagent.payload import FrozenDict, freeze_json, thaw_json
from yiemagent.record import Record

__all__ = [
    "AgentTool",
    "AgentToolResult",
    "PartialResultCallback",
    "ToolExecute",
    "is_async",
    "is_tool_name",
]

PartialResultCallback: TypeAlias = Callable[[Any], None]
ToolExecute: TypeAlias = Callable[[str, dict[str, Any], AbortSignal, PartialResultCallback], Any]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def is_tool_name(name: Any) -> bool:
    """Whether every provider takes it as the name of a tool."""
    return isinstance(name, str) and bool(_NAME.fullmatch(name))


def _has_words(text: Any) -> bool:
    return isinstance(text, str) and bool(text.strip())


def _is_limit(given: Any) -> bool:
    return isinstance(given, (int, float)) and not isinstance(given, bool) and given > 0


def is_async(function: Any) -> bool:
    """Whether a callable, an object with `__call__` too, gives a coroutine or an asynchronous generator."""
    return any(
        inspect.iscoroutinefunction(part) or inspect.isasyncgenfunction(part)
        for part in (function, getattr(type(function), "__call__", None))  # noqa: B004 - to look at, not to ask
    )


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(names)


@attrs.frozen(eq=False, repr=False)
class AgentToolResult(Record):
    """What a tool gave.

    Args:
        content: text and images for the model; a string becomes one text block.
        details: facts for programs, never shown to the model.
        usage: what the tool's own model calls consumed, or None.
        terminate: True asks the agent to stop after this batch; it stops when every result of the batch asks.
        added_tool_names: tools that this call made available.
    """

    content: tuple[MessageContent, ...] = attrs.field(default=(), converter=shown_blocks)
    details: Any = attrs.field(factory=FrozenDict, converter=freeze_json)
    usage: LlmUsage | None = None
    terminate: bool = False
    added_tool_names: tuple[str, ...] = attrs.field(default=(), converter=_names)

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return content_text(self.content)


def _default_label(self: AgentTool) -> str:
    return str(self.name).replace("_", " ").title()


def _hints(hints: Mapping[str, Any] | None) -> FrozenDict:
    return cast("FrozenDict", freeze_json(hints or {}))


def _lock_names(names: str | Iterable[str] | None) -> tuple[str, ...]:
    given: Any = (names,) if isinstance(names, str) else () if names is None else names
    if (
        isinstance(given, Mapping)
        or not isinstance(given, Iterable)
        or not all(map(_has_words, given := tuple(given)))
    ):
        raise ConfigurationError(f"lock must be a name or a list of names, not {names!r}")
    return tuple(sorted(set(given)))


def _examples(
    pairs: Iterable[tuple[str, Mapping[str, Any]]],
) -> tuple[tuple[str, FrozenDict], ...]:
    try:
        return tuple((sentence, freeze_json(arguments)) for sentence, arguments in pairs)
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"examples must be pairs of what a user says and the arguments of the call, not {pairs!r}"
        ) from None


def _input_schema(given: Any) -> Any:
    """Give a schema frozen; None, which servers send for a tool without parameters, is an object without any."""
    return freeze_json({"type": "object", "properties": {}} if given is None else given)


@attrs.frozen(eq=False, repr=False)
class AgentTool(Record):
    """A tool that an agent can call.

    Args:
        name: unique in its store; letters, digits, `_` and `-`, at most 64.
        label: its name for people.
        description: what it does, for the model to choose by.
        input_schema: JSON Schema of its arguments, in MCP's form; kept as given and never changed. None: no arguments.
        execute: `(tool_call_id, args, signal, on_partial_result)`; gives an `AgentToolResult`, or text, bytes, a
            dict, a list or None, which become one. Reports failure by raising. `args` is its own copy.
        prepare_arguments: changes a private copy of the arguments before they are checked, or None.
        validate_required_args: checks more than the schema can say; gives None, or what is wrong; or None for no
            check.
        parallel_tool_execute: whether it may run beside other calls.
        timeout_s: seconds that a call may take; None lifts the limit.
        isolation: where it runs: "thread", or "process" for a child process that loads the tool's file and is ended at
            the time limit and on abort; for tools of tool files.
        lock: names of what it must have for itself, such as "repo", or one name: calls that share one never overlap,
            whichever agent of the process makes them. It says nothing about running beside other calls.
        annotations: MCP's hints: `readOnlyHint`, `destructiveHint`, `idempotentHint`, `openWorldHint`.
        output_schema: JSON Schema of structured results, or None.
        examples: pairs of a user's sentence and the arguments it asks for; they help small models.
        source_sha256: tells the code of the tool file that it was loaded from, helpers included; set by loading. None:
            it is from no tool file.

    Raises:
        ConfigurationError: on a name that providers refuse, an empty description, a schema that is no object, an
            `execute` that can't be called or is a coroutine function, a time limit that is no number above 0, an
            isolation that there is not, or a lock that is no name.
    """

    name: str
    label: str = attrs.field(
        default=attrs.Factory(_default_label, takes_self=True),
        kw_only=True,
    )
    description: str = attrs.field(kw_only=True)
    input_schema: Mapping[str, Any] = attrs.field(
        default=None, converter=_input_schema, kw_only=True
    )
    function: ToolExecute = attrs.field(alias="execute", kw_only=True, repr=False)
    prepare_arguments: Callable[[dict[str, Any]], Any] | None = attrs.field(
        default=None, kw_only=True, repr=False
    )
    validate_required_args: Callable[[dict[str, Any]], str | None] | None = attrs.field(
        default=None, kw_only=True, repr=False
    )
    parallel_tool_execute: bool = attrs.field(default=False, kw_only=True)
    timeout_s: float | None = attrs.field(default=600.0, kw_only=True)
    isolation: Literal["thread", "process"] = attrs.field(default="thread", kw_only=True)
    lock: tuple[str, ...] = attrs.field(default=(), converter=_lock_names, kw_only=True)
    annotations: Mapping[str, Any] = attrs.field(factory=FrozenDict, converter=_hints, kw_only=True)
    output_schema: Mapping[str, Any] | None = attrs.field(
        default=None, converter=freeze_json, kw_only=True
    )
    examples: tuple[tuple[str, Mapping[str, Any]], ...] = attrs.field(
        default=(), converter=_examples, kw_only=True, repr=False
    )
    source_sha256: str | None = attrs.field(default=None, kw_only=True, repr=False)

    def __attrs_post_init__(self) -> None:
        if not is_tool_name(self.name):
            raise ConfigurationError(
                f"tool name {self.name!r} must be 1 to 64 letters, digits, '_' or '-'"
            )
        if not _has_words(self.description):
            raise ConfigurationError(
                f"tool {self.name!r} needs a description: it is what the model chooses by"
            )
        if not isinstance(self.input_schema, Mapping):
            raise ConfigurationError(
                f"tool {self.name!r}: input_schema must be a JSON Schema object, "
                f"not {self.input_schema!r}"
            )
        if not callable(self.function):
            raise ConfigurationError(f"tool {self.name!r}: execute must be callable")
        if is_async(self.function):
            raise ConfigurationError(
                f"tool {self.name!r}: execute is a coroutine function; give a plain function "
                f"(it may run an event loop of its own inside)"
            )
        if self.isolation not in ("thread", "process"):  # a list, too, is only another
            raise ConfigurationError(
                f"tool {self.name!r}: isolation must be 'thread' or 'process', "
                f"not {self.isolation!r}"
            )
        for name in ("prepare_arguments", "validate_required_args"):
            hook = getattr(self, name)
            if hook is not None and (not callable(hook) or is_async(hook)):
                raise ConfigurationError(
                    f"tool {self.name!r}: {name} must be a plain function of the arguments, or None, not {hook!r}"
                )
        if not isinstance(self.parallel_tool_execute, bool):
            raise ConfigurationError(
                f"tool {self.name!r}: parallel_tool_execute must be True or False, "
                f"not {self.parallel_tool_execute!r}"
            )
        if self.timeout_s is not None and not _is_limit(self.timeout_s):
            raise ConfigurationError(
                f"tool {self.name!r}: timeout_s must be a number of seconds above 0, or None for no limit, "
                f"not {self.timeout_s!r}"
            )

    def execute(
        self,
        tool_call_id: str,
        args: Mapping[str, Any] | None = None,
        signal: AbortSignal | None = None,
        on_partial_result: PartialResultCallback | None = None,
    ) -> AgentToolResult:
        """Run the tool as it is: nothing is checked, coerced or caught.

        Args:
            tool_call_id: any id.
            args: the arguments; copied, so that yours stay as they are.
            signal: the tool's abort signal; None gives it one that nobody sets.
            on_partial_result: is told of progress; None drops it.

        Raises:
            Exception: whatever the tool raises; from a process, a `ToolError` with its words.
        """
        function = self.function
        if self.isolation == "process":
            from yiemagent.isolation import isolated_function  # loads with the first such tool

            function = isolated_function(self)
        given = function(
            tool_call_id,
            thaw_json(args if isinstance(args, dict) else dict(args or {})),
            signal if signal is not None else AbortSignal(),
            on_partial_result if on_partial_result is not None else _drop,
        )
        return as_tool_result(given)


def as_tool_result(given: Any) -> AgentToolResult:
    """Give what a tool returned as an `AgentToolResult`.

    Text is text; None is no content; bytes are decoded as UTF-8, and what is no text is named by its size; dicts and
    lists become JSON text, with the value itself as details where it is a dict; a generator or a set is the list of
    what it gives; content blocks, texts among them, are content; anything else is its `str`.

    Raises:
        TypeError: where it is a coroutine, which nobody would ever run.
    """
    if isinstance(given, AgentToolResult):
        return given
    if isinstance(given, (str, TextContent, ImageContent)):
        return AgentToolResult(shown_blocks(given))
    if given is None:
        return AgentToolResult()
    if isinstance(given, (Iterator, set, frozenset)):
        given = list(given)
    if isinstance(given, (bytes, bytearray)):
        return AgentToolResult(_bytes_text(bytes(given)))
    if isinstance(given, (list, tuple)) and any(map(_is_block, given)):
        return AgentToolResult(
            [
                item if _is_block(item) or isinstance(item, str) else _json_text(item)
                for item in given
            ]
        )
    if isinstance(given, Mapping):
        text = _json_text(given)
        return AgentToolResult(text, details=_json_value(text))
    if isinstance(given, (list, tuple, int, float)):
        return AgentToolResult(_json_text(given))
    if isinstance(given, Coroutine):
        given.close()
        raise TypeError(
            "the tool gave a coroutine; give a plain function (it may run an event loop of its own inside)"
        )
    return AgentToolResult(str(given))


def _is_block(value: Any) -> bool:
    return isinstance(value, (TextContent, ImageContent))


def _bytes_text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        import base64

        return (
            f"{len(data)} bytes that are no text, base64: {base64.b64encode(data).decode('ascii')}"
        )


def _json_text(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # keys that JSON has not, a circle, too deep
        return str(value)


def _json_value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {}


def _drop(_partial: Any) -> None:
    """Drop progress that nobody listens to."""
