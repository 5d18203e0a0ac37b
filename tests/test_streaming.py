"""Stream events, the messages they amount to, and JSON that is still coming."""

from __future__ import annotations

import json
import threading

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.messages import (
    AssistantMessage,
    ImageContent,
    TextContent,
    ThinkingContent,
    ToolCall,
)
from yiemagent.payload import FrozenDict
from yiemagent.streaming import (
    DoneEvent,
    ErrorEvent,
    PartialMessage,
    StartEvent,
    StreamNoticeEvent,
    TextDeltaEvent,
    TextEndEvent,
    TextStartEvent,
    ThinkingDeltaEvent,
    ThinkingEndEvent,
    ThinkingStartEvent,
    ToolCallDeltaEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
    new_call_id,
    parse_partial_json,
    tool_arguments,
    with_own_ids,
)


def partials(events):
    """The partial after each event, not built yet."""
    partial = PartialMessage.first()
    for event in events:
        partial = partial.add(event)
        yield partial


def content(events):
    """What all the events amount to."""
    return list(partials(events))[-1].build().content


# --- folding ---------------------------------------------------------------------------------------------------------


def test_an_answer_grows_with_its_events():
    """Each kind of block is told as far as it has come, with who answers."""
    start = StartEvent("m1", "p1", "a1")
    events = [
        start,
        ThinkingStartEvent(0),
        ThinkingDeltaEvent(0, "h"),
        ThinkingDeltaEvent(0, "m"),
        ThinkingEndEvent(0, "hm", "sig", redacted=True),
        TextStartEvent(1),
        TextDeltaEvent(1, "Hel"),
        StreamNoticeEvent("rate_gate", "wait"),
        TextDeltaEvent(1, "lo"),
        TextEndEvent(1, "Hello", "s"),
        ToolCallStartEvent(2, "c1", "add"),
        ToolCallDeltaEvent(2, '{"a"'),
        ToolCallDeltaEvent(2, ": 1}"),
    ]
    built = [partial.build() for partial in partials(events)]

    assert built[0].content == ()
    assert built[3].content == (ThinkingContent("hm"),)
    assert built[4].content == (ThinkingContent("hm", "sig", True),)
    assert built[8].text == "Hello"
    assert built[9].content[1] == TextContent("Hello", "s")
    assert built[12].tool_calls == (ToolCall("c1", "add", FrozenDict(), '{"a": 1}'),)
    last = built[-1]
    assert (last.model, last.provider, last.api) == ("m1", "p1", "a1")
    assert last.timestamp == start.timestamp
    assert content([*events, ToolCallEndEvent(2, ToolCall("c1", "add", {"a": 1}))])[2] == ToolCall(
        "c1", "add", {"a": 1}
    )


def test_interleaved_blocks_are_told_apart():
    """Blocks stand in the order of their index, however their events mix."""
    events = [
        ToolCallStartEvent(3, "c", "t"),
        TextStartEvent(0),
        ToolCallDeltaEvent(3, "{"),
        TextDeltaEvent(0, "a"),
        ToolCallDeltaEvent(3, "}"),
        TextDeltaEvent(0, "b"),
    ]
    whole = (TextContent("ab"), ToolCall("c", "t", {}, "{}"))
    step_by_step = [partial.build() for partial in partials(events)]

    assert content(events) == whole
    assert step_by_step[-1].content == whole


@pytest.mark.parametrize("end", [DoneEvent, ErrorEvent])
def test_the_last_event_holds_the_whole_message(end):
    """What it carries replaces all that was collected."""
    message = AssistantMessage([TextContent("whole"), ImageContent("QQ==", "image/png")])

    assert content([TextStartEvent(0), TextDeltaEvent(0, "wh"), end(message)]) == message.content
    assert content([end(message)]) == message.content
    assert (
        content([end(message), TextDeltaEvent(0, "!"), TextDeltaEvent(1, "!")])[1]
        == message.content[1]
    )


def test_a_delta_without_its_start_is_nothing():
    """Nobody knows what it belongs to, so it is left out."""
    assert content([TextDeltaEvent(0, "a"), TextStartEvent(1), TextDeltaEvent(1, "b")]) == (
        TextContent("b"),
    )


DELTAS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", ""])), max_size=30)
KINDS = [
    (TextStartEvent, TextDeltaEvent),
    (ThinkingStartEvent, ThinkingDeltaEvent),
    (ToolCallStartEvent, ToolCallDeltaEvent),
    (TextStartEvent, TextDeltaEvent),
]


@given(DELTAS, st.lists(st.integers(0, 34), max_size=8))
def test_partials_may_be_read_in_any_order(deltas, reads):
    """Whichever were read before, each gives what its own events amount to."""
    events = [start(index) for index, (start, _) in enumerate(KINDS)]
    events += [KINDS[index][1](index, text) for index, text in deltas]
    every = list(partials(events))
    for read in reads:
        place = read % len(events)

        assert every[place].build().content == content(events[: place + 1])


def test_reading_every_partial_folds_each_event_once():
    """Partials of one stream share their work, so that reading each costs what is new."""
    walked = 0

    @attrs.frozen
    class CountedEvent(TextEndEvent):
        """Notes each look at its class, which is how a fold tells events apart."""

        @property
        def __class__(self):
            nonlocal walked
            walked += 1
            return TextEndEvent

    events = [TextStartEvent(0), *[CountedEvent(0, "x") for _ in range(200)]]
    for partial in partials(events):
        partial.build()
    looks = walked / 200

    walked = 0
    content([TextStartEvent(0), CountedEvent(0, "x")])
    assert looks == walked


def test_threads_may_read_partials_at_once():
    """Each gets its own message, whoever wins the race for the shared work."""
    events = [TextStartEvent(0), *[TextDeltaEvent(0, str(i % 10)) for i in range(300)]]
    every, wrong, start = list(partials(events)), [], threading.Barrier(4)

    def read(step):
        start.wait()
        for place in range(0, 301, step):
            if every[place].build().text != "".join(str(i % 10) for i in range(place)):
                wrong.append(place)

    threads = [threading.Thread(target=read, args=(step,)) for step in (1, 2, 3, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


# --- calls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"a": [1]}', {"a": [1]}),
        ("", {}),
        (" \n", {}),
        ("null", "null"),
        ("[1]", "[1]"),
        ('{"a": ', '{"a": '),
        ('{"a": NaN}', '{"a": NaN}'),
        ('{"a": 1e999}', '{"a": 1e999}'),
        ("[" * 100_000, "[" * 100_000),
        ('{"a":' * 3000 + "1" + "}" * 3000, '{"a":' * 3000 + "1" + "}" * 3000),
    ],
    ids=range(10),
)
def test_arguments_are_an_object_or_the_text(text, arguments):
    """A JSON object is taken, anything else is left as it came for whoever judges it."""
    taken = tool_arguments(text)

    assert taken == arguments
    assert isinstance(taken, (FrozenDict, str))


def test_call_ids_are_fresh():
    """No two are the same."""
    assert len({new_call_id() for _ in range(1000)}) == 1000
    assert new_call_id().startswith("call_")


def test_an_answer_is_kept_with_distinct_ids():
    """Missing and doubled ids get fresh ones; a call that broke off has the text of its arguments."""
    message = AssistantMessage(
        [
            TextContent("x"),
            ToolCall("a", "t"),
            ToolCall("", "t"),
            ToolCall("a", "t", {"k": 1}, None, "sig"),
            ToolCall("b", "t", FrozenDict(), '{"k": '),
        ]
    )
    kept = with_own_ids(message)
    ids = [call.id for call in kept.tool_calls]

    assert len(set(ids)) == 4
    assert "" not in ids
    assert (ids[0], ids[3]) == ("a", "b")
    assert kept.tool_calls[2] == ToolCall(ids[2], "t", {"k": 1}, None, "sig")
    assert kept.tool_calls[3] == ToolCall("b", "t", '{"k": ')
    assert with_own_ids(kept) is kept


# --- partial JSON ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        ("{", {}),
        ("[", []),
        ("[1", []),
        ("[1,", [1]),
        ("12", {}),
        ("tru", {}),
        ('"ab', "ab"),
        ('{"a', {}),
        ('{"a"', {}),
        ('{"a":', {}),
        ('{"a": tru', {}),
        ('{"a": 1', {}),
        ('{"a": 1,', {"a": 1}),
        ('{"a": 1, "b": "x', {"a": 1, "b": "x"}),
        ('{"a": 1, "b": {"c": [1, {"d": "e', {"a": 1, "b": {"c": [1, {"d": "e"}]}}),
        ('{"a": {}, "b"', {"a": {}}),
        ('{"a": -', {}),
        ('{"a": 1.', {}),
        ('{"a": [1, 2]', {"a": [1, 2]}),
        ('{"a": 1}', {"a": 1}),
        ('{"a": "x\\', {"a": "x"}),
        ('{"a": "x\\u00', {"a": "x"}),
        ('{"a": "x\\u00e9', {"a": "xé"}),
        ('{"a": "x\\\\', {"a": "x\\"}),
        ('{"a": "x\\\\\\', {"a": "x\\"}),
        ('{"a": "\\\\ud83d', {"a": "\\ud83d"}),
        ('{"a": "x\\ud83d', {"a": "x"}),
        ('{"a": "x\\ud83d\\', {"a": "x"}),
        ('{"a": "x\\ud83d\\ude', {"a": "x"}),
        ('{"a": "x\\ud83d\\ude00', {"a": "x😀"}),
        ('{"a": "line\nbreak', {"a": "line\nbreak"}),
        ("}", {}),
        ("{]", {}),
        ("hello", {}),
        ("[" * 100_000, {}),
    ],
)
def test_the_beginning_of_a_json_text_is_shown(text, value):
    """Open strings and containers are closed; what may go on differently is left out."""
    assert parse_partial_json(text) == value


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def begins(part, whole):
    """Whether a shown part is a beginning of the whole."""
    if isinstance(part, dict):
        keys = list(whole)[: len(part)]
        return (
            list(part) == keys
            and all(part[key] == whole[key] for key in keys[:-1])
            and (not keys or begins(part[keys[-1]], whole[keys[-1]]))
        )
    if isinstance(part, list):
        return (
            len(part) <= len(whole)
            and part[:-1] == whole[: len(part) - 1 if part else 0]
            and (not part or begins(part[-1], whole[len(part) - 1]))
        )
    if isinstance(part, str):
        return whole.startswith(part)
    return part == whole


@given(st.dictionaries(st.text(), JSON, max_size=3), st.booleans(), st.data())
def test_every_beginning_shows_a_beginning(value, ascii_only, data):
    """Cut anywhere, the text gives a part of the value that can be printed; whole, the value."""
    text = json.dumps(value, ensure_ascii=ascii_only)
    part = parse_partial_json(text[: data.draw(st.integers(0, len(text)))])

    assert begins(part, value)
    json.dumps(part, ensure_ascii=False).encode()
    assert parse_partial_json(text) == value


@given(st.text('{}[]",:\\u12ed tfn\n', max_size=30))
def test_any_text_gives_a_value(text):
    """Whatever a model sends, showing it never raises."""
    assert parse_partial_json(text) is not None
