"""A request dict in the OpenAI chat form, read for an API that has another one.

It is the form in which a plain `llm_call` is asked, so every provider takes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from yiemagent.context import LlmContext
from yiemagent.errors import ConfigurationError
from yiemagent.history import repair
from yiemagent.llm import StreamOptions
from yiemagent.messages import AgentMessage, ToolResultMessage
from yiemagent.openai_format import assistant_message, user_message
from yiemagent.tool import AgentTool

__all__ = ["read_request"]

_KNOWN = {
    "messages", "tools", "model", "temperature", "max_tokens", "max_completion_tokens", "tool_choice",
    "reasoning_effort",
}  # fmt: skip
# What tells how the answer is sent, which the provider decides.
_DECIDED = {"stream", "stream_options"}
_SYSTEM = {"system", "developer"}


def read_request(request: Mapping[str, Any]) -> tuple[LlmContext, StreamOptions]:
    """Give what a request dict says, and what else it asks for.

    Args:
        request: `messages`, and where they are set `tools`, `model`, `temperature`, `max_tokens`, `tool_choice` and
            `reasoning_effort`, as the OpenAI chat API takes them.

    Raises:
        ConfigurationError: it holds a field that can't be carried over, or what is no message or tool.
    """
    given = {key: value for key, value in request.items() if value is not None}
    unknown = sorted(given.keys() - _KNOWN - _DECIDED)
    if unknown:
        raise ConfigurationError(
            f"the request has {', '.join(unknown)}, which this API has no word for; give it in the API's own words "
            "with extra_body"
        )
    messages = given.get("messages")
    if not isinstance(messages, (list, tuple)):
        raise ConfigurationError("a request dict must have a list of messages")
    try:
        context = LlmContext(
            "\n\n".join(_instructions(messages)),
            list(repair(list(_history(messages)))),
            [_tool(entry) for entry in given.get("tools", ())],
        )
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"the request dict can't be read: {error}") from error
    return context, _options(given)


def _options(given: Mapping[str, Any]) -> StreamOptions:
    choice = given.get("tool_choice")
    if isinstance(choice, Mapping):
        choice = _function(choice).get("name")
    return StreamOptions(
        model=given.get("model"),
        temperature=given.get("temperature"),
        max_tokens=given.get("max_completion_tokens", given.get("max_tokens")),
        tool_choice=choice,
        reasoning="off"
        if given.get("reasoning_effort") == "none"
        else given.get("reasoning_effort"),
    )


def _instructions(messages: Iterable[Any]) -> Iterable[str]:
    for message in messages:
        if isinstance(message, Mapping) and message.get("role") in _SYSTEM:
            yield user_message({**message, "role": "user"}).text


def _history(messages: Iterable[Any]) -> Iterable[AgentMessage]:
    names: dict[str, str] = {}
    for message in messages:
        role = message.get("role") if isinstance(message, Mapping) else None
        match role:
            case "user":
                yield user_message(message)
            case "assistant":
                answer = assistant_message(message)
                names |= {call.id: call.name for call in answer.tool_calls}
                yield answer
            case "tool":
                yield _result(message, names)
            case "system" | "developer":
                pass
            case _:
                _refuse(message, "message")


def _result(message: Mapping[str, Any], names: Mapping[str, str]) -> ToolResultMessage:
    call_id = str(message.get("tool_call_id") or "")
    name = names.get(call_id) or str(message.get("name") or "")
    content = user_message({"role": "user", "content": message.get("content") or ""}).content
    return ToolResultMessage(call_id, name, content)


def _tool(entry: Any) -> AgentTool:
    function = _function(entry)
    name = function.get("name")
    if not isinstance(name, str):
        _refuse(entry, "tool")
    return AgentTool(
        name,
        description=str(function.get("description") or name),
        input_schema=function.get("parameters"),
        execute=_not_here,
    )


def _function(entry: Any) -> Mapping[str, Any]:
    function = entry.get("function", entry) if isinstance(entry, Mapping) else None
    return function if isinstance(function, Mapping) else _refuse(entry, "tool")


def _not_here(*_: Any) -> NoReturn:
    raise AssertionError  # the tools of a request dict are run by whoever made it


def _refuse(value: Any, what: str) -> NoReturn:
    raise ValueError(f"{value!r} is no {what}")
