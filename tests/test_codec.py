"""The one JSON form of messages and events."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yiemagent import codec
from yiemagent.codec import VERSION, dumps, from_json, loads, to_json
from yiemagent.errors import (
    BadResponseError,
    ConfigurationError,
    InvalidJson,
    RateLimitError,
    YiemAgentError,
)
from yiemagent.events import (
    AgentStartEvent,
    MessageEndEvent,
    MessageUpdateEvent,
    ToolExecUpdateEvent,
    TurnStartEvent,
)
from yiemagent.messages import (
    AssistantMessage,
    CompactionSummaryMessage,
    ImageContent,
    LlmUsage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.payload import FrozenDict, freeze_json
from yiemagent.streaming import ErrorEvent, PartialMessage, TextDeltaEvent
from yiemagent.tool import AgentToolResult

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)

# -- every class -----------------------------------------------------------------------------------------------------

TEXT = st.text(max_size=20)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
).map(freeze_json)
OBJECT = st.dictionaries(TEXT, JSON, max_size=3).map(lambda value: FrozenDict(freeze_json(value)))
TIME = st.datetimes(timezones=st.just(UTC))
USAGE = st.builds(LlmUsage, *[st.integers(0, 10**9)] * 5, st.none() | st.floats(0, 10))
TEXT_BLOCK = st.builds(TextContent, TEXT, st.none() | TEXT)
CALL = st.builds(ToolCall, TEXT, TEXT, OBJECT | TEXT, st.none() | TEXT, st.none() | TEXT)
PARTS = st.lists(TEXT_BLOCK | st.builds(ImageContent, TEXT, TEXT), max_size=3).map(tuple)
THOUGHT = st.builds(ThinkingContent, TEXT, st.none() | TEXT, st.booleans())
BLOCKS = st.lists(TEXT_BLOCK | THOUGHT | CALL, max_size=4).map(tuple)
ERRORS = st.none() | st.sampled_from(
    [ConfigurationError("x"), RateLimitError("slow", 429, True, 500)]
)

BY_TYPE = {
    "str": TEXT,
    "str | None": st.none() | TEXT,
    "int": st.integers(),
    "int | None": st.none() | st.integers(),
    "float": st.floats(allow_nan=False, allow_infinity=False),
    "float | None": st.none() | st.floats(0, 10),
    "bool": st.booleans(),
    "StopReason": st.sampled_from(["stop", "length", "tool_use", "error", "aborted"]),
    "Literal['retry_scheduled', 'rate_gate', 'fallback']": st.sampled_from(
        ["fallback", "rate_gate"]
    ),
    "LlmUsage": USAGE,
    "datetime": TIME,
    "Any": JSON,
    "Mapping[str, Any]": OBJECT,
    "FrozenDict | str": OBJECT | TEXT,
    "tuple[str, ...]": st.lists(TEXT, max_size=3).map(tuple),
    "LlmUsage | None": st.none() | USAGE,
    "tuple[MessageContent, ...]": PARTS,
    "tuple[AssistantContent, ...]": BLOCKS,
    "ToolCall": CALL,
    "PartialMessage": st.just(PartialMessage.first()),
    "Exception | None": ERRORS,
}


def built(kind):
    """Values of a class, each field of it by its type."""
    fields = {field.alias: BY_TYPE[str(field.type)] for field in attrs.fields(kind)}
    return st.builds(kind, **fields)


ASSISTANT = built(AssistantMessage)
RESULT = built(ToolResultMessage)
MESSAGE = st.one_of([built(kind) for kind in codec._classes()["role"].values()])
BY_TYPE |= {
    "AgentMessage": MESSAGE,
    "AssistantMessage": ASSISTANT,
    "AssistantMessage | None": st.none() | ASSISTANT,
    "ToolResultMessage": RESULT,
    "CompactionSummaryMessage | None": st.none() | built(CompactionSummaryMessage),
    "tuple[ToolResultMessage, ...]": st.lists(RESULT, max_size=2).map(tuple),
    "Sequence[AgentMessage]": st.lists(MESSAGE, max_size=2).map(tuple),
    "AgentToolResult": built(AgentToolResult),
}
STREAM = st.one_of([built(kind) for kind in codec._classes()["stream"].values()])
BY_TYPE["StreamEvent"] = STREAM
KINDS = {
    f"{key}:{tag}": kind
    for key in ("role", "event", "stream")
    for tag, kind in codec._classes()[key].items()
}


def comparable(value):
    """A value in which errors compare by what they say."""
    return json.dumps(to_json(value), sort_keys=True)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_every_kind_comes_back_equal(kind):
    """What is written of any message or event reads back as an equal one, through text and without."""

    @settings(max_examples=20)
    @given(built(kind))
    def round_trip(value):
        again = from_json(to_json(value))

        assert type(again) is kind
        assert comparable(again) == comparable(value)
        assert comparable(loads(dumps(value))) == comparable(value)
        assert json.loads(dumps(value)) == json.loads(json.dumps(to_json(value)))
        if "error" not in str(to_json(value)):
            assert again == value

    round_trip()


@given(MESSAGE)
def test_the_form_is_plain_and_strict_json(value):
    """The form holds nothing but what a strict JSON writer takes."""
    text = json.dumps(to_json(value), allow_nan=False)

    assert json.loads(text) == to_json(value)


# -- what is written -------------------------------------------------------------------------------------------------


def test_a_message_is_short_and_readable():
    """Fields with their defaults are left out; the version, the role and the time are there."""
    assert to_json(UserMessage("hi", NOON)) == {
        "v": 1,
        "role": "user",
        "content": [{"type": "text", "text": "hi"}],
        "timestamp": "2026-01-31T12:00:00+00:00",
    }


def test_an_event_holds_its_message():
    """A message inside an event has its role but no version of its own."""
    written = to_json(MessageEndEvent(UserMessage("hi", NOON), sequence=3, run_id="r", time_s=1.5))

    assert written["v"] == VERSION
    assert (written["event"], written["sequence"], written["run_id"]) == ("message_end", 3, "r")
    assert written["message"]["role"] == "user"
    assert "v" not in written["message"]


def test_times_are_written_in_utc():
    """A time of another zone is written as the same moment in UTC."""
    local = NOON.astimezone(timezone(timedelta(hours=9)))

    assert to_json(UserMessage("hi", local))["timestamp"] == "2026-01-31T12:00:00+00:00"


def test_large_integers_keep_their_digits():
    """Integers beyond 2**53 survive the text."""
    call = ToolCall("c1", "get", {"id": 2512292042121000001})
    again = loads(dumps(AssistantMessage((call,))))

    assert again.tool_calls[0].arguments == {"id": 2512292042121000001}


def test_an_integer_without_end_is_its_text():
    """A number with more digits than Python reads is kept as its hexadecimal digits."""
    result = ToolResultMessage("c", "t", details={"n": 10**5000, "m": -(10**5000), "k": 10**4000})
    for again in (from_json(to_json(result)), loads(dumps(result))):
        assert again.details == {"n": hex(10**5000), "m": hex(-(10**5000)), "k": 10**4000}


@pytest.mark.parametrize("number", [0, 0.0, False, None, [], {}, ""])
def test_details_keep_their_type(number):
    """Details that look like a default come back as what they were, not as the default."""
    again = from_json(to_json(ToolResultMessage("c", "t", details=number)))

    assert type(again.details) is type(freeze_json(number))


def test_what_json_lacks_is_null():
    """NaN and infinity inside a payload are written as null."""
    result = ToolResultMessage("c", "t", details={"a": float("nan"), "b": [float("inf")]})

    assert from_json(to_json(result)).details == {"a": None, "b": [None]}


def test_a_count_of_another_kind_is_a_whole_number():
    """A provider's whole float or boolean for a number of tokens is written so that it can be read again."""
    message = AssistantMessage("hi", usage=LlmUsage(10.0, True), timestamp=NOON)

    assert loads(dumps(message)) == from_json(to_json(message)) == message
    assert '"input_tokens":10,"output_tokens":1' in dumps(message)


def test_what_is_no_json_value_is_its_text():
    """Other objects in a payload are written as their text, sets and tuples as lists, keys as text."""
    result = ToolResultMessage("c", "t", details={1: NOON, "set": {2}, "tuple": (1, b"x")})

    assert from_json(to_json(result)).details == {
        "1": "2026-01-31 12:00:00+00:00",
        "set": [2],
        "tuple": [1, "b'x'"],
    }


def test_what_has_no_text_is_named():
    """An object that can't be printed any more is written as what it is."""

    class Row:
        def __str__(self):
            raise RuntimeError("the database is closed")

    result = ToolResultMessage("c", "t", details={"row": Row()})
    assert from_json(to_json(result)).details == loads(dumps(result)).details == {"row": "<Row>"}


def test_lone_surrogates_survive():
    """Text that can't be encoded is written with escapes and comes back as it was."""
    message = UserMessage("a\ud83d b", NOON)
    line = dumps(message)

    assert loads(line.encode("utf-8")) == message


def test_other_scripts_are_written_as_they_are():
    """A line holds characters, not escapes, and no line feed."""
    line = dumps(UserMessage("東京\n🗼", NOON))

    assert "東京\\n🗼" in line
    assert "\n" not in line


def test_the_partial_of_an_update_is_left_out():
    """An update is written as its stream event; the message so far is empty when it is read."""
    event = MessageUpdateEvent(TextDeltaEvent(0, "hi"), PartialMessage.first(), sequence=2)
    again = from_json(to_json(event))

    assert again == event
    assert again.partial.content == ()


def test_a_tool_result_given_as_progress_comes_back_as_one():
    """A partial result that is an `AgentToolResult` is read as one."""
    event = ToolExecUpdateEvent("c", "t", FrozenDict(), AgentToolResult("half", details={"n": 1}))

    assert from_json(to_json(event)) == event


def test_an_error_that_takes_a_text_keeps_its_class():
    """An error without facts comes back with its class and text; none comes back as none."""
    failed = AssistantMessage(stop_reason="error")
    error = from_json(to_json(ErrorEvent(failed, ConfigurationError("no key")))).error

    assert type(error) is ConfigurationError
    assert str(error) == "no key"
    assert from_json({**to_json(ErrorEvent(failed)), "error": None}).error is None


def test_an_error_keeps_its_class_and_facts():
    """An error of the library comes back with its class, text and facts."""
    event = ErrorEvent(
        AssistantMessage(stop_reason="error"), RateLimitError("slow", 429, True, 500)
    )
    error = from_json(to_json(event)).error

    assert type(error) is RateLimitError
    assert (str(error), error.status, error.retryable, error.retry_after_ms) == (
        "slow",
        429,
        True,
        500,
    )


def test_a_foreign_error_is_named():
    """An error of another library comes back as the root error that names its class."""
    event = ErrorEvent(AssistantMessage(stop_reason="error"), KeyError("x"))
    error = from_json(to_json(event)).error

    assert type(error) is YiemAgentError
    assert str(error) == "KeyError: 'x'"


@pytest.mark.parametrize(
    "value", [None, "hi", {}, TextContent("hi"), LlmUsage(), BadResponseError("x")]
)
def test_only_messages_and_events_are_written(value):
    """Anything else is the caller's mistake."""
    with pytest.raises(TypeError):
        to_json(value)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (UserMessage("hi", timestamp=None), "user.timestamp: expected a time such as"),
        (ToolResultMessage(None, "work"), "toolResult.tool_call_id: expected text, not nothing"),
        (ToolResultMessage("a", 5), "toolResult.tool_name: expected text, not 5"),
        (ToolResultMessage("a", "b", is_error="no"), "is_error: expected true or false, not 'no'"),
        (ToolResultMessage("a", "b", added_tool_names=(1,)), "expected text, not 1"),
        (AssistantMessage(usage=LlmUsage(cost="1")), "LlmUsage.cost: expected a number, not '1'"),
        (AssistantMessage(raw_stop_reason=7), "assistant.raw_stop_reason: expected text, not 7"),
        (AssistantMessage((ToolCall(7, "x"),)), "toolCall.id: expected text, not 7"),
        (CompactionSummaryMessage("x", "7"), "tokens_before: expected a whole number, not '7'"),
    ],
)
def test_what_could_not_be_read_is_not_written(value, says):
    """A field that holds what it can't hold is named by both writers, and no line comes of it."""
    for write in (to_json, dumps):
        with pytest.raises(InvalidJson) as caught:
            write(value)
        assert says in str(caught.value)


def test_a_bottomless_payload_is_named():
    """A payload nested deeper than JSON writers go is an error that says so, on both ways."""
    deep = details = {}
    for _ in range(100_000):
        deep["d"] = deep = {}
    result = ToolResultMessage("c", "t")
    object.__setattr__(result, "details", details)

    with pytest.raises(InvalidJson, match="deep"):
        to_json(result)
    with pytest.raises(InvalidJson, match="deep"):
        loads("[" * 100_000)
    while details:
        _, details = details.popitem()


# -- what is read ----------------------------------------------------------------------------------------------------


def test_what_a_newer_version_added_is_ignored():
    """Unknown fields of any kind at any depth don't keep a message from being read."""
    data = to_json(UserMessage("hi", NOON)) | {"v": 7, "mood": "good"}
    data["content"][0]["colour"] = "red"

    assert from_json(data) == UserMessage("hi", NOON)


def test_a_missing_version_is_the_first():
    """A message without a version reads as one of version 1."""
    data = to_json(UserMessage("hi", NOON))
    del data["v"]

    assert from_json(data) == UserMessage("hi", NOON)


def test_a_kind_of_a_newer_version_is_named():
    """A kind that is not known is an error which says that a newer version wrote it."""
    with pytest.raises(InvalidJson, match=r"'hologram'.*newer version: 2"):
        from_json({"v": 2, "role": "hologram"})


MESSAGE_JSON = {"role": "user", "content": [{"type": "text", "text": "hi"}]}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (None, "must be a JSON object"),
        ([], "must be a JSON object"),
        ({}, "no role, event or stream"),
        ({"v": "1", **MESSAGE_JSON}, "v: the version"),
        ({"v": 0, **MESSAGE_JSON}, "v: the version"),
        ({"role": "wizard"}, "unknown role 'wizard'"),
        ({"role": 7}, "unknown role 7"),
        ({"event": "explosion"}, "unknown event 'explosion'"),
        ({"role": "user"}, "user.content: expected a list, not nothing"),
        ({"role": "user", "content": "hi"}, "user.content: expected a list"),
        ({"role": "user", "content": ["hi"]}, r"user.content\[0\]: expected an object"),
        ({"role": "user", "content": [{"type": "smell"}]}, r"content\[0\]: unknown type 'smell'"),
        (
            {"role": "user", "content": [{"type": "text"}]},
            r"content\[0\].text: expected text, not no",
        ),
        (
            {"role": "user", "content": [{"type": "thinking", "thinking": "x"}]},
            "TextContent or Image",
        ),
        ({**MESSAGE_JSON, "timestamp": "noon"}, "user.timestamp: expected a time"),
        ({**MESSAGE_JSON, "timestamp": 12}, "user.timestamp: expected a time"),
        ({**MESSAGE_JSON, "timestamp": "2026-01-31T12:00:00"}, "with its offset"),
        (
            {"role": "assistant", "stop_reason": "bored"},
            "assistant.stop_reason: expected 'stop' or",
        ),
        ({"role": "assistant", "usage": 7}, "assistant.usage: expected an object"),
        ({"role": "assistant", "usage": {"input_tokens": True}}, "input_tokens: expected a whole"),
        ({"role": "toolResult", "tool_call_id": "c", "tool_name": 7}, "tool_name: expected text"),
        (
            {"role": "toolResult", "tool_call_id": "c", "tool_name": "t", "is_error": 1},
            "true or false",
        ),
        ({"event": "turn_start", "turn": "one"}, "turn_start.turn: expected a whole number"),
        ({"event": "notice", "message": "m", "details": []}, "notice.details: expected an object"),
        ({"event": "message_end", "message": None}, "message_end.message: expected an object"),
        (
            {"event": "turn_end", "message": MESSAGE_JSON},
            "turn_end.message: expected AssistantMessage",
        ),
        (
            {"event": "tool_exec_start", "tool_call_id": "c", "tool_name": "t", "arguments": 7},
            "arguments: expected an object",
        ),
        ({"stream": "error", "message": {"role": "assistant"}, "error": "x"}, "error's type"),
        ({"stream": "stream_notice", "kind": "gossip", "message": "m"}, "kind: expected 'retry_"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(data, says):
    """Whatever is wrong, the error names the place in the data and what was expected there."""
    with pytest.raises(InvalidJson, match=says):
        from_json(data)


@pytest.mark.parametrize("text", ["", "{", '{"role": "user", "x": NaN}', b"\xff", "7"])
def test_text_that_is_no_message_is_an_error(text):
    """Text that is no strict JSON, or not of ours, raises the one error."""
    with pytest.raises(InvalidJson):
        loads(text)


def test_the_error_is_a_value_error():
    """Who catches ValueError catches it, too."""
    assert issubclass(InvalidJson, ValueError)


@given(
    st.dictionaries(
        st.sampled_from(["v", "role", "event", "content", "timestamp", "message"]), JSON
    )
)
def test_nothing_else_is_raised(data):
    """Whatever is read, it is a message, an event or the one error."""
    for tag in ({}, {"role": "assistant"}, {"event": "message_end"}):
        try:
            value = from_json({**data, **tag})
        except InvalidJson:
            continue
        assert codec._tag_of(type(value))


def test_what_is_read_is_frozen():
    """Payloads of a message that was read refuse to change like those of any other."""
    call = ToolCall("c1", "get", {"k": [1]})
    again = from_json(json.loads(json.dumps(to_json(AssistantMessage((call,))))))

    with pytest.raises(TypeError):
        again.tool_calls[0].arguments["k"] = 2
    with pytest.raises(TypeError):
        again.tool_calls[0].arguments["k"].append(2)


def test_events_without_a_run_are_read():
    """Events keep their number, run and time, and do without them."""
    event = TurnStartEvent(2, sequence=5, run_id="r1", time_s=12.25)

    assert from_json(to_json(event)) == event
    assert from_json({"event": "agent_start"}) == AgentStartEvent()
