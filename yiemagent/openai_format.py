"""The OpenAI chat form: messages and tools as its dicts, and its answers as messages.

This is the dialect that users speak: a plain `llm_call` is handed it, providers of the OpenAI family send it. What
goes out is built once per frozen message and tool and shared between requests, so it is read-only. Reading what
comes in is `openai_reading`'s part.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, assert_never

from yiemagent.arguments import parse_arguments
from yiemagent.context import AgentContext, LlmContext
from yiemagent.errors import InvalidArguments
from yiemagent.history import repair
from yiemagent.memo import Kept, Memo
from yiemagent.messages import (
    AssistantMessage,
    ImageContent,
    LlmMessage,
    MessageContent,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.offered_schema import offered_schema
from yiemagent.openai_reading import (
    assistant_message,
    stop_reason,
    tool_calls,
    usage,
    user_message,
)
from yiemagent.payload import FrozenDict, FrozenList, freeze_json
from yiemagent.tool import AgentTool

__all__ = [
    "Conversations",
    "assistant_message",
    "format_msg_for_llm",
    "message_dict",
    "message_dicts",
    "openai_messages",
    "openai_tools",
    "stop_reason",
    "tool_calls",
    "usage",
    "user_message",
]

# Where a call's arguments are no JSON object: the key under which a replayed call shows what the model wrote, since
# servers refuse a request whose arguments text they can't parse.
INVALID_ARGUMENTS_KEY = "invalid_arguments"
NO_OUTPUT = "(no output)"
MAX_CONVERSATIONS = 1024

_Dicts = tuple[tuple[FrozenDict, ...], tuple[FrozenDict, ...]]


# --- requests
# ---------------------------------------------------------------------------------------------------------


def format_msg_for_llm(context: AgentContext | LlmContext) -> dict[str, Any]:
    """Give the request dict that a plain `llm_call` takes: `messages`, and `tools` where there are any.

    The dict and its lists are yours; the dicts in the lists are shared and read-only.
    """
    request: dict[str, Any] = {"messages": openai_messages(context)}
    if context.tools:
        request["tools"] = openai_tools(context.tools)
    return request


def openai_messages(context: AgentContext | LlmContext) -> list[FrozenDict]:
    """Give the messages of a request, the system prompt first.

    Text is sent as a plain string, a list only where there is an image; images of tool results follow in a user
    message, since tool messages hold text only. Thinking is not sent. What an earlier request had is not made again.
    """
    converted = _conversations.messages(_llm_messages(context))
    if not context.system_prompt:
        return converted
    system = FrozenDict(role="system", content=_clean(context.system_prompt))
    return [system, *converted]


def openai_tools(tools: Mapping[str, AgentTool]) -> list[FrozenDict]:
    """Give the tools of a request, in order; each definition is made once per tool."""
    return [_tool_dict(tool) for tool in tools.values()]


def message_dict(message: AssistantMessage) -> dict[str, Any]:
    """Give an answer as an OpenAI message: a plain dict with role, content and, where there are any, tool_calls."""
    given: dict[str, Any] = {"role": "assistant", "content": message.text or None}
    calls = message.tool_calls
    if calls:
        given["tool_calls"] = [_plain_call(call) for call in calls]
    return given


def _llm_messages(context: AgentContext | LlmContext) -> list[LlmMessage]:
    if isinstance(context, LlmContext):
        return list(context.messages)
    shown = (message.to_llm() for message in context.messages)
    return list(repair([message for message in shown if message is not None]))


class Conversations:
    """Converted histories, each kept with its last message, so that a longer one costs what is new.

    An entry lives as long as the message it is kept with; it holds the messages before that one, and the dicts of all.
    It is taken out to be made longer, which is one atomic step: a thread that finds it gone converts again.

    Args:
        convert: gives a message's own dicts, and those that stand behind its group of tool results.
        bridge: stands between a tool result and a user message, for servers that want an answer there; None: nothing.
    """

    def __init__(
        self,
        convert: Callable[[LlmMessage], _Dicts] | None = None,
        bridge: FrozenDict | None = None,
    ) -> None:
        self._convert = message_dicts if convert is None else convert  # an empty memo is false
        self._bridge = bridge
        self._kept: dict[int, Kept] = {}

    def messages(self, messages: list[LlmMessage]) -> list[FrozenDict]:
        """Give the dicts of `messages` as a list of the caller's own."""
        if not messages:
            return []
        before, converted = self._longest_known(messages)
        known = len(before)
        self._add(converted, messages[known:])
        before += messages[known:]
        given = converted.copy()
        self._keep(before.pop(), (before, converted))
        return given

    def _longest_known(
        self, messages: list[LlmMessage]
    ) -> tuple[list[LlmMessage], list[FrozenDict]]:
        following: LlmMessage | None = None
        for position in range(len(messages) - 1, -1, -1):
            last = messages[position]
            kept = self._kept.pop(id(last), None)
            if kept is not None:
                before, converted = kept.value
                # Images of tool results stand behind the last result, so a group of results is converted as a whole.
                grouped = isinstance(following, ToolResultMessage)
                if not grouped and len(before) == position and before == messages[:position]:
                    before.append(last)
                    return before, converted
                self._kept[kept.key] = kept
            following = last
        return [], []

    def _keep(self, last: LlmMessage, entry: tuple[list[LlmMessage], list[FrozenDict]]) -> None:
        self._kept[id(last)] = Kept(last, self._forget, entry)
        if len(self._kept) > MAX_CONVERSATIONS:
            self._kept.pop(next(iter(self._kept.copy())), None)

    def _forget(self, kept: Kept) -> None:
        self._kept.pop(kept.key, None)

    def _add(self, converted: list[FrozenDict], messages: Iterable[LlmMessage]) -> None:
        images: list[FrozenDict] = []
        for message in messages:
            own, shown = self._convert(message)
            if images and not isinstance(message, ToolResultMessage):
                self._add_user(converted, images)
                images = []
            if isinstance(message, UserMessage):
                self._add_user(converted, own)
            else:
                converted += own
            images += shown
        if images:
            self._add_user(converted, images)

    def _add_user(self, converted: list[FrozenDict], dicts: Sequence[FrozenDict]) -> None:
        if self._bridge is not None and converted and converted[-1]["role"] == "tool":
            converted.append(self._bridge)
        converted += dicts


def _convert(message: LlmMessage) -> _Dicts:
    """Give a message's own dicts, and those that stand behind its group of tool results."""
    match message:
        case UserMessage():
            return (FrozenDict(role="user", content=_user_content(message.content)),), ()
        case AssistantMessage():
            return _assistant_dicts(message), ()
        case ToolResultMessage():
            return _result_dicts(message)
        case _:
            assert_never(message)


message_dicts = Memo(_convert)
_conversations = Conversations()


def _user_content(blocks: Sequence[MessageContent]) -> str | FrozenList:
    if any(isinstance(block, ImageContent) for block in blocks):
        return FrozenList([_part(block) for block in blocks])
    return _joined(blocks)


def _joined(blocks: Iterable[Any]) -> str:
    return _clean("\n".join([block.text for block in blocks if isinstance(block, TextContent)]))


def _part(block: MessageContent) -> FrozenDict:
    if isinstance(block, TextContent):
        return FrozenDict(type="text", text=_clean(block.text))
    url = f"data:{block.mime_type};base64,{block.data}"
    return FrozenDict(type="image_url", image_url=FrozenDict(url=url))


def _assistant_dicts(message: AssistantMessage) -> tuple[FrozenDict, ...]:
    text, calls = message.text, message.tool_calls
    has_text = bool(text.strip())
    if not has_text and not calls:
        return ()
    fields: dict[str, Any] = {"role": "assistant", "content": _clean(text) if has_text else None}
    if calls:
        fields["tool_calls"] = FrozenList([_call_dict(call) for call in calls])
    return (FrozenDict(fields),)


def _call_dict(call: ToolCall) -> FrozenDict:
    plain = _plain_call(call)
    return FrozenDict(plain, function=FrozenDict(plain["function"]))


def _plain_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": _arguments_text(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _result_dicts(message: ToolResultMessage) -> _Dicts:
    images = [block for block in message.content if isinstance(block, ImageContent)]
    text = _joined(message.content)
    if not text.strip():
        text = "(the image follows)" if images else NO_OUTPUT
    own = FrozenDict(role="tool", tool_call_id=message.tool_call_id, content=text)
    if not images:
        return (own,), ()
    lead = TextContent(f"What the tool {message.tool_name!r} shows (call {message.tool_call_id}):")
    parts = FrozenList([_part(lead), *map(_part, images)])
    return (own,), (FrozenDict(role="user", content=parts),)


def _arguments_text(arguments: FrozenDict | str) -> str:
    """Give arguments as the text of one JSON object, whatever the model wrote."""
    if isinstance(arguments, str):
        arguments = _object_of(arguments)
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:  # NaN and infinity are no JSON
        value = json.loads(json.dumps(arguments, default=str), parse_constant=lambda _: None)
        text = json.dumps(value, ensure_ascii=False)
    return _clean(text)


def _object_of(text: str) -> FrozenDict:
    try:
        return FrozenDict(parse_arguments(text))
    except InvalidArguments:
        return FrozenDict({INVALID_ARGUMENTS_KEY: text})


def _clean(text: str) -> str:
    """Give text that can be sent: lone surrogates replaced, halves that belong together joined."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _convert_tool(tool: AgentTool) -> FrozenDict:
    schema = freeze_json(offered_schema(tool.input_schema))
    function = FrozenDict(name=tool.name, description=_clean(tool.description), parameters=schema)
    return FrozenDict(type="function", function=function)


_tool_dict = Memo(_convert_tool)
