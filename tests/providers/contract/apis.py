"""The wire APIs under the contract: how each provider is made, and what its transcripts amount to.

A transcript is the body of a streamed answer, byte for byte, under `transcripts/<api>/<name>.sse`. Those of one name
say the same in every API, so what must come of them stands here once; what differs (usage, raw reasons) by API.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from yiemagent.context import LlmContext
from yiemagent.messages import UserMessage
from yiemagent.net.retry import RetryPolicy
from yiemagent.providers.anthropic_messages import AnthropicMessages
from yiemagent.providers.gemini import Gemini
from yiemagent.providers.openai_chat import OpenAIChat
from yiemagent.providers.openai_responses import OpenAIResponses
from yiemagent.tool import AgentTool

__all__ = [
    "APIS",
    "BY_NAME",
    "CONTEXT",
    "EXPECTED",
    "KEY",
    "NEVER",
    "WORDS",
    "Api",
    "Expected",
    "cases",
    "transcript",
]

TRANSCRIPTS = pathlib.Path(__file__).with_name("transcripts")
KEY = "sk-contract-0123456789abcdef"
NEVER = RetryPolicy(max_retries=0)
WORDS = "na\u00efve \u5317\u4eac \U0001f30d \u2028\u2029 done"

_TOOLS = [
    AgentTool(name, description=f"The tool {name}.", execute=lambda *_: "")
    for name in ("get_weather", "get_time")
]
CONTEXT = LlmContext("Be brief.", [UserMessage("hi")], _TOOLS)


class Api(NamedTuple):
    """One wire API.

    Args:
        name: as messages carry it, and the folder of its transcripts.
        provider: the class that asks it.
        base_path: behind scheme, host and port of a base URL.
        keep_alive: what its servers send to keep a stream open, beside comments.
        usage: of every transcript that tells of it: uncached input, output, cache read, cache write, reasoning.
        raw: the raw stop reason of each transcript that has one.
        lacks: names of transcripts that the API has no way to say.
    """

    name: str
    provider: Callable[..., Any]
    base_path: str
    keep_alive: bytes
    usage: tuple[int, int, int, int, int]
    raw: Mapping[str, str]
    lacks: frozenset[str] = frozenset()

    def make(self, url: str, **options: Any) -> Any:
        """A provider that asks a server, with a key, and only once unless told otherwise."""
        given = {"base_url": url + self.base_path, "api_key": KEY, "retry": NEVER, **options}
        return self.provider("the-model", **given)


APIS = (
    Api(
        "openai-chat",
        OpenAIChat,
        "/v1",
        b'data: {"id":"chatcmpl-B9x","object":"chat.completion.chunk","choices":[]}\n\n',
        (10, 12, 20, 0, 4),
        {
            "text": "stop",
            "tool_calls": "tool_calls",
            "thinking": "stop",
            "refusal": "stop",
            "length": "length",
            "filter": "content_filter",
            "unknown_reason": "tired",
            "unknown_reason_with_call": "tired",
        },
        frozenset({"failed"}),
    ),
    Api(
        "anthropic-messages",
        AnthropicMessages,
        "",
        b'event: ping\ndata: {"type": "ping"}\n\n',
        (10, 12, 20, 5, 0),
        {
            "text": "end_turn",
            "tool_calls": "tool_use",
            "thinking": "end_turn",
            "refusal": "refusal",
            "length": "max_tokens",
            "unknown_reason": "tired",
            "unknown_reason_with_call": "tired",
        },
        frozenset({"filter", "failed"}),
    ),
    Api(
        "openai-responses",
        OpenAIResponses,
        "/v1",
        b'event: keepalive\ndata: {"type":"keepalive","sequence_number":3}\n\n',
        (10, 12, 20, 0, 4),
        {
            "text": "completed",
            "tool_calls": "completed",
            "thinking": "completed",
            "refusal": "refusal",
            "length": "max_output_tokens",
            "filter": "content_filter",
        },
        frozenset({"unknown_reason", "unknown_reason_with_call"}),
    ),
    Api(
        "gemini",
        Gemini,
        "",
        b'data: {"usageMetadata":{"promptTokenCount":30,"totalTokenCount":30}}\n\n',
        (10, 12, 20, 0, 4),
        {
            "text": "STOP",
            "tool_calls": "STOP",
            "thinking": "STOP",
            "refusal": "PROHIBITED_CONTENT",
            "length": "MAX_TOKENS",
            "filter": "SAFETY",
            "unknown_reason": "TIRED",
            "unknown_reason_with_call": "TIRED",
        },
        frozenset({"failed"}),
    ),
)
BY_NAME = {api.name: api for api in APIS}


class Expected(NamedTuple):
    """What a transcript must amount to, whatever the API.

    Args:
        stop_reason: of the message.
        text: of its text blocks.
        thinking: of its thinking blocks.
        calls: names and arguments.
        has_usage: whether the transcript got as far as its usage.
        words: what the error says, among other things; None where there is none.
    """

    stop_reason: str
    text: str = ""
    thinking: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    has_usage: bool = True
    words: str | None = None


_CALLS = (("get_weather", {"city": "\u5317\u4eac"}), ("get_time", {"zone": "UTC"}))
EXPECTED = {
    "text": Expected("stop", WORDS),
    "line_ends": Expected("stop", WORDS),
    "noise": Expected("stop", WORDS),
    "tool_calls": Expected("tool_use", calls=_CALLS),
    "thinking": Expected("stop", "So: 4", "Let me think."),
    "refusal": Expected("error", "I can't help.", words=""),
    "length": Expected("length", "one two"),
    "filter": Expected("error", "Half a", words=""),
    "unknown_reason": Expected("stop", "x"),
    "unknown_reason_with_call": Expected("tool_use", calls=(("get_time", {}),)),
    "cut": Expected("error", "Half a", has_usage=False, words="incomplete"),
    "cut_in_an_event": Expected("error", "Half a", has_usage=False, words="incomplete"),
    "error_event": Expected("error", "Half a", has_usage=False, words="verloaded|had an error"),
    "failed": Expected("error", "Half a", has_usage=False, words="The model failed"),
}


def cases() -> list[tuple[Api, str]]:
    """Every API with each of its transcripts."""
    return [(api, name) for api in APIS for name in EXPECTED if name not in api.lacks]


def transcript(api: Api, name: str) -> bytes:
    """The bytes of a transcript."""
    return (TRANSCRIPTS / api.name / f"{name}.sse").read_bytes()
