"""One streamed answer of the Anthropic Messages API from its events."""

import json
import pathlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yiemagent.errors import (
    AuthenticationError,
    BadResponseError,
    ContextOverflowError,
    LlmConnectionError,
    LlmError,
    RateLimitError,
)
from yiemagent.messages import LlmUsage, TextContent, ThinkingContent
from yiemagent.net.sse import SseParser
from yiemagent.providers.anthropic_stream import AnthropicAssembler, error_of, whole_answer
from yiemagent.streaming import (
    DoneEvent,
    ErrorEvent,
    PartialMessage,
    StartEvent,
    TextDeltaEvent,
    TextEndEvent,
    TextStartEvent,
    ThinkingDeltaEvent,
    ThinkingEndEvent,
    ThinkingStartEvent,
    ToolCallDeltaEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
)

CASES = pathlib.Path(__file__).parent.parent / "cases"

START = {
    "type": "message_start",
    "message": {"id": "msg_1", "model": "m-dated", "content": [], "usage": {"input_tokens": 9}},
}
STOP = {"type": "message_stop"}


def begin(index, kind="text", **fields):
    return {
        "type": "content_block_start",
        "index": index,
        "content_block": {"type": kind, **fields},
    }


def delta(index, **fields):
    ((key, value),) = fields.items()
    kinds = {"partial_json": "input_json_delta", "citation": "citations_delta"}
    return {
        "type": "content_block_delta",
        "index": index,
        "delta": {"type": kinds.get(key, f"{key}_delta"), key: value},
    }


def end(index):
    return {"type": "content_block_stop", "index": index}


def finish(reason="end_turn", usage=None, **fields):
    return {
        "type": "message_delta",
        "delta": {"stop_reason": reason, **fields},
        "usage": usage or {"output_tokens": 3},
    }


def text_block(index, text):
    return [begin(index, text=""), delta(index, text=text), end(index)]


def play(*chunks, signalled=True):
    assembler = AnthropicAssembler("m", "p", "a")
    events = [event for one in chunks for event in assembler.take(one)]
    return events + assembler.end(signalled=signalled)


def message_of(*chunks, signalled=True):
    return play(*chunks, signalled=signalled)[-1].message


def kinds(events):
    return [type(event) for event in events]


def test_text():
    """Text gives Start, its block's events, and a Done with all that is known; the model stays the one asked."""
    events = play(
        START, begin(0, text=""), delta(0, text="Hel"), delta(0, text="lo"), end(0), finish(), STOP
    )
    message = events[-1].message

    assert kinds(events) == [
        StartEvent, TextStartEvent, TextDeltaEvent, TextDeltaEvent, TextEndEvent, DoneEvent,
    ]  # fmt: skip
    assert (message.text, message.stop_reason, message.raw_stop_reason) == (
        "Hello",
        "stop",
        "end_turn",
    )
    assert (message.model, message.provider, message.api) == ("m", "p", "a")
    assert message.response_id == "msg_1"
    assert message.usage == LlmUsage(9, 3)


def test_events_that_say_nothing():
    """Pings, unknown events, deltas of blocks that are not open, and values of other shapes make nothing."""
    message = message_of(
        START,
        {"type": "ping"},
        {"type": "what_is_new"},
        None,
        [1],
        "text",
        {},
        {"type": "content_block_start"},
        {"type": "content_block_delta", "index": [], "delta": None},
        delta(7, text="lost"),
        end(7),
        begin(0, text=""),
        delta(0, text=""),
        delta(0, text=None),
        {"type": "content_block_delta", "index": 0, "delta": {"type": "new_delta", "x": 1}},
        delta(0, text="x"),
        end(0),
        {"type": "message_delta", "delta": None, "usage": None},
        finish(),
        STOP,
    )

    assert [block for block in message.content if block.signature is None] == [TextContent("x")]


def test_empty_blocks():
    """A text block that stays empty, and thinking that says nothing and is not signed, leave nothing behind."""
    events = play(
        START,
        begin(0, text=""),
        delta(0, text=""),
        end(0),
        begin(1, "thinking", thinking="", signature=""),
        end(1),
        finish(),
        STOP,
    )

    assert kinds(events) == [StartEvent, DoneEvent]
    assert events[-1].message.content == ()


def test_thinking():
    """Thinking keeps its signature; one without words but signed is kept, in its place, and so is withheld thinking."""
    events = play(
        START,
        begin(0, "thinking", thinking="", signature=""),
        delta(0, thinking="hm"),
        delta(0, signature="sig1"),
        end(0),
        begin(1, "redacted_thinking", data="opaque"),
        end(1),
        begin(2, "thinking", thinking="", signature=""),
        delta(2, signature="sig2"),
        end(2),
        *text_block(3, "ok"),
        finish(usage={"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 5}}),
        STOP,
    )
    message = events[-1].message

    assert kinds(events) == [
        StartEvent,
        ThinkingStartEvent, ThinkingDeltaEvent, ThinkingEndEvent,
        ThinkingStartEvent, ThinkingEndEvent,
        ThinkingStartEvent, ThinkingEndEvent,
        TextStartEvent, TextDeltaEvent, TextEndEvent, DoneEvent,
    ]  # fmt: skip
    assert message.content == (
        ThinkingContent("hm", "sig1"),
        ThinkingContent("", "opaque", redacted=True),
        ThinkingContent("", "sig2"),
        TextContent("ok"),
    )
    assert message.usage.reasoning_tokens == 5


def test_calls():
    """Calls give their Start with id and name, their arguments in pieces, and their End; interleaved ones too."""
    events = play(
        START,
        begin(0, "tool_use", id="toolu_1", name="look", input={}),
        begin(1, "tool_use", id="toolu_2", name="look", input={}),
        delta(0, partial_json=""),
        delta(0, partial_json='{"a":'),
        delta(1, partial_json='{"a": 2}'),
        delta(0, partial_json=" 1}"),
        end(0),
        end(1),
        finish("tool_use"),
        STOP,
    )
    message = events[-1].message

    assert events[1] == ToolCallStartEvent(0, "toolu_1", "look")
    assert kinds(events)[3:] == [
        ToolCallDeltaEvent, ToolCallDeltaEvent, ToolCallDeltaEvent,
        ToolCallEndEvent, ToolCallEndEvent, DoneEvent,
    ]  # fmt: skip
    assert [(call.id, call.name, call.arguments) for call in message.tool_calls] == [
        ("toolu_1", "look", {"a": 1}),
        ("toolu_2", "look", {"a": 2}),
    ]
    assert message.stop_reason == "tool_use"


@pytest.mark.parametrize(
    "fields, deltas, arguments",
    [
        ({"input": {}}, [], {}),
        ({"input": {}}, [""], {}),
        ({}, [], {}),
        ({"input": None}, ["  "], {}),
        ({"input": {"a": 1}}, [], {"a": 1}),
        ({"input": {"a": 1}}, [""], {"a": 1}),
        ({"input": {"a": 1}}, ['{"a"', ": 2}"], {"a": 2}),
        ({"input": '{"a": 3}'}, [], {"a": 3}),
        ({"input": {}}, ['{"a": "cu'], '{"a": "cu'),
        ({"input": {}}, ['{"a": "\ud83d', '\ude00"}'], {"a": "😀"}),
    ],
)
def test_arguments(fields, deltas, arguments):
    """Arguments may come in pieces, in the block's beginning, or not at all; text that is no JSON is kept as text."""
    message = message_of(
        START,
        begin(0, "tool_use", id="i", name="t", **fields),
        *[delta(0, partial_json=piece) for piece in deltas],
        end(0),
        finish("tool_use"),
        STOP,
    )

    assert message.tool_calls[0].arguments == arguments


def test_call_without_id():
    """A call that comes without an id gets one."""
    message = message_of(START, begin(0, "tool_use", name="t"), end(0), finish("tool_use"), STOP)

    assert message.tool_calls[0].id


def test_call_with_a_caller():
    """What else stands in a call's block is kept as its signature."""
    caller = {"type": "code_execution_20260120", "tool_id": "srv_1"}
    message = message_of(
        START,
        begin(0, "tool_use", id="i", name="t", input={}, caller=caller),
        end(0),
        begin(1, "tool_use", id="j", name="t", input={}, caller=None),
        end(1),
        finish("tool_use"),
        STOP,
    )
    first, second = message.tool_calls

    assert json.loads(first.signature) == {"caller": caller}
    assert second.signature is None


def test_text_in_the_beginning_of_a_block():
    """Words that stand in a block's beginning already are taken."""
    message = message_of(
        START,
        begin(0, "thinking", thinking="hm", signature="s"),
        end(0),
        begin(1, text="He"),
        delta(1, text="llo"),
        end(1),
        finish(),
        STOP,
    )

    assert message.content == (ThinkingContent("hm", "s"), TextContent("Hello"))


def test_citations():
    """A text's citations are kept as its signature, from its beginning and its deltas."""
    message = message_of(
        START,
        begin(0, text="", citations=[{"cited_text": "x"}]),
        delta(0, text="See."),
        delta(0, citation={"cited_text": "y", "url": "u"}),
        end(0),
        begin(1, text="", citations=None),
        delta(1, text="Plain."),
        end(1),
        finish(),
        STOP,
    )
    cited, plain = message.content

    assert json.loads(cited.signature) == {
        "citations": [{"cited_text": "x"}, {"cited_text": "y", "url": "u"}]
    }
    assert plain.signature is None
    assert message.text == "See.Plain."


def test_blocks_of_the_server():
    """Calls of the server's own tools, their results and unknown blocks are kept whole, and show no text."""
    result = {
        "type": "web_search_tool_result",
        "tool_use_id": "s1",
        "content": [{"encrypted_content": "e"}],
    }
    events = play(
        START,
        begin(0, "server_tool_use", id="s1", name="web_search", input={}),
        delta(0, partial_json='{"query"'),
        delta(0, partial_json=': "x"}'),
        end(0),
        {"type": "content_block_start", "index": 1, "content_block": result},
        end(1),
        begin(2, "compaction", content=None),
        delta(2, content="so"),
        delta(2, content=" far"),
        end(2),
        begin(3, "server_tool_use", id="s2", name="web_fetch", input={}),
        delta(3, partial_json='{"cut'),
        *text_block(4, "Found."),
        finish(),
        STOP,
    )
    message = events[-1].message
    blocks = [json.loads(block.signature)["block"] for block in message.content[:3]]

    assert blocks == [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
        result,
        {"type": "compaction", "content": "so far"},
    ]
    assert message.text == "Found."
    assert message.stop_reason == "stop"
    assert json.loads(message.content[3].signature)["block"]["input"] == {}


@pytest.mark.parametrize(
    "raw, has_calls, reason",
    [
        ("end_turn", False, "stop"),
        ("stop_sequence", False, "stop"),
        ("tool_use", False, "stop"),
        ("pause_turn", False, "stop"),
        ("something_new", False, "stop"),
        (None, False, "stop"),
        ("max_tokens", False, "length"),
        ("model_context_window_exceeded", False, "length"),
        ("end_turn", True, "tool_use"),
        ("tool_use", True, "tool_use"),
        ("something_new", True, "tool_use"),
        (None, True, "tool_use"),
        ("max_tokens", True, "length"),
        ("model_context_window_exceeded", True, "length"),
    ],
)
def test_stop_reasons(raw, has_calls, reason):
    """Calls decide over the server's word, but for a cut; the raw word is kept."""
    block = begin(0, "tool_use", id="i", name="t", input={}) if has_calls else begin(0, text="x")
    message = message_of(START, block, end(0), finish(raw), STOP)

    assert (message.stop_reason, message.raw_stop_reason) == (reason, raw)


@pytest.mark.parametrize(
    "details, said",
    [
        (None, "the model ended its answer with 'refusal'"),
        (
            {"category": "bio", "explanation": None},
            "the model ended its answer with 'refusal' (bio)",
        ),
        (
            {"category": "cyber", "explanation": "Not this."},
            "the model ended its answer with 'refusal' (cyber): Not this.",
        ),
    ],
)
def test_refusal(details, said):
    """A refusal is an error with what came, and says why as far as the server does."""
    events = play(START, *text_block(0, "I"), finish("refusal", stop_details=details), STOP)

    assert isinstance(events[-1], ErrorEvent)
    assert isinstance(events[-1].error, BadResponseError)
    assert not events[-1].error.retryable
    assert (events[-1].message.text, events[-1].message.error_message) == ("I", said)


def test_usage():
    """The last count of each field wins, a field that is left out keeps its count, and nonsense counts nothing."""
    first = {"input_tokens": 25, "output_tokens": 1, "cache_read_input_tokens": 100}
    start = {"type": "message_start", "message": {"id": 7, "usage": first}}
    last = {
        "input_tokens": None,
        "output_tokens": 15,
        "cache_creation_input_tokens": 7,
        "output_tokens_details": None,
    }
    message = message_of(start, *text_block(0, "x"), finish(None), finish(usage=last), STOP)
    odd = message_of(
        {"type": "message_start", "message": {"usage": {"input_tokens": "many"}}},
        finish(usage={"output_tokens": -1}),
        STOP,
    )

    assert message.usage == LlmUsage(25, 15, 100, 7)
    assert message.response_id is None
    assert odd.usage == LlmUsage()
    assert message_of({"type": "message_start"}, {"type": "message_stop"}).usage is None


def test_end():
    """A reason ends an answer without more, a stop event without a reason too; without either it was cut."""
    assembler = AnthropicAssembler("m", "p", "a")
    assert not assembler.is_over and not assembler.is_finished
    assembler.take(finish())
    assert assembler.is_finished and not assembler.is_over
    assembler.take(STOP)
    assert assembler.is_over

    assert message_of(START, *text_block(0, "x"), finish(), signalled=False).stop_reason == "stop"
    assert message_of(START, *text_block(0, "x"), STOP, signalled=True).stop_reason == "stop"
    with pytest.raises(LlmConnectionError, match="incomplete") as caught:
        play(START, *text_block(0, "x"), signalled=False)
    assert caught.value.retryable
    with pytest.raises(BadResponseError, match="held no answer"):
        play({"type": "ping"}, signalled=True)


def test_cut_in_a_block():
    """Blocks that are open at the end are ended with what came; a call cut off keeps its text."""
    message = message_of(
        START,
        *text_block(0, "Writing."),
        begin(1, "tool_use", id="i", name="t", input={}),
        delta(1, partial_json='{"path": "big'),
        finish("max_tokens"),
        STOP,
    )

    assert message.stop_reason == "length"
    assert message.tool_calls[0].arguments == '{"path": "big'


def test_block_that_is_begun_again():
    """A block whose index begins again without an end is ended first."""
    message = message_of(
        START, begin(0, text="a"), begin(0, text="b"), delta(0, text="c"), finish(), STOP
    )

    assert [block.text for block in message.content] == ["a", "bc"]


def test_halves_of_characters():
    """A character cut in two is put together; a half that stays alone becomes U+FFFD."""
    events = play(
        START,
        begin(0, text=""),
        delta(0, text="a\ud83d"),
        delta(0, text="\ude00b"),
        end(0),
        begin(1, "thinking", thinking=""),
        delta(1, thinking="c\ud83d"),
        delta(1, thinking="d"),
        end(1),
        begin(2, text=""),
        delta(2, text="\ud83d"),
        finish(),
        STOP,
    )
    for event in events:
        getattr(event, "delta", "").encode()

    assert [getattr(b, "text", None) or b.thinking for b in events[-1].message.content] == [
        "a😀b",
        "c\ufffdd",
        "\ufffd",
    ]


@pytest.mark.parametrize(
    "kind, said, error, status, retryable",
    [
        ("overloaded_error", "too busy now", LlmError, 529, True),
        ("api_error", "Something broke", LlmError, 500, True),
        ("timeout_error", "Too long", LlmError, 504, True),
        ("rate_limit_error", "Slow down", RateLimitError, 429, True),
        ("authentication_error", "invalid x-api-key", AuthenticationError, 401, False),
        ("permission_error", "Not yours", AuthenticationError, 403, False),
        ("billing_error", "No credit", RateLimitError, 402, False),
        ("not_found_error", "model: claude-none", LlmError, 404, False),
        ("invalid_request_error", "max_tokens: Field required", LlmError, 400, False),
        ("invalid_request_error", "prompt is too long: 9 tokens > 8", ContextOverflowError, 400, False),
        (None, "overloaded, try again", BadResponseError, None, True),
    ],
)  # fmt: skip
def test_error_in_the_stream(kind, said, error, status, retryable):
    """An error event is raised as what its kind means in HTTP, and what came is in the message."""
    assembler = AnthropicAssembler("m", "p", "a")
    for one in (START, begin(0, text="half")):
        assembler.take(one)
    event = {"type": "error", "error": {"type": kind, "message": said}}
    with pytest.raises(LlmError, match=said) as caught:
        assembler.take(event)

    assert type(caught.value) is error
    assert (caught.value.status, caught.value.retryable) == (status, retryable)
    assert assembler.message("error", "x").text == "half"
    with pytest.raises(LlmError):
        assembler.take({"error": {"message": "no type beside"}})
    assert type(error_of(event)) is error


def test_failure_before_the_first_words():
    """An answer that fails before its first words has no content, so it can be asked for again."""
    assembler = AnthropicAssembler("m", "p", "a")
    for one in (START, begin(0, text=""), begin(1, "thinking", thinking="", signature="")):
        assembler.take(one)

    assert not assembler.has_content
    assembler.take(delta(0, text="x"))
    assert assembler.has_content


def test_partial_messages():
    """At each event the partial message shows what came so far."""
    partial = PartialMessage.first()
    for event in play(
        START,
        *text_block(0, "a"),
        begin(1, "tool_use", id="i", name="t", input={}),
        delta(1, partial_json='{"a'),
        finish("max_tokens"),
        STOP,
    )[:-2]:
        partial = partial.add(event)
    message = partial.build()

    assert message.text == "a"
    assert message.tool_calls[0].partial_json == '{"a'


WHOLE = {
    "id": "msg_2",
    "type": "message",
    "role": "assistant",
    "model": "m-dated",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "Hi", "citations": None},
        {"type": "tool_use", "id": "i", "name": "t", "input": {"a": 1}},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 4, "output_tokens": 2},
}


def test_whole_answer():
    """An answer that comes whole holds the same as a streamed one."""
    message = whole_answer(WHOLE)

    assert message.content[:2] == (ThinkingContent("hm", "s"), TextContent("Hi"))
    assert [(call.id, call.arguments) for call in message.tool_calls] == [("i", {"a": 1})]
    assert json.loads(message.content[3].signature)["block"] == WHOLE["content"][3]
    assert (message.stop_reason, message.raw_stop_reason) == ("tool_use", "tool_use")
    assert (message.usage, message.response_id) == (LlmUsage(4, 2), "msg_2")


def test_whole_refusal():
    """A refusal that comes whole is a failed message."""
    message = whole_answer({**WHOLE, "content": [], "stop_reason": "refusal"})

    assert (message.stop_reason, message.content) == ("error", ())
    assert "refusal" in message.error_message


def test_whole_value_that_is_no_answer():
    """A value of another shape is a bad response, and an error object that error."""
    for value in (None, [], {"content": "text"}, {"choices": []}):
        with pytest.raises(BadResponseError, match="sent no message"):
            whole_answer(value)
    with pytest.raises(LlmError, match="529"):
        whole_answer({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})


# -- every way to cut and to damage ------------------------------------------------------------------------------------

TRANSCRIPTS = sorted(
    path for path in CASES.glob("B*/*.sse") if path.read_bytes().startswith(b"event: message_start")
)


def read(pieces):
    """Feed pieces of bytes; gives the events, the last one an Error where reading raised it."""
    parser, assembler = SseParser(), AnthropicAssembler("m", "p", "a")
    events = []
    try:
        for piece in pieces:
            for event in parser.feed(piece):
                events += assembler.take(_json(event.data))
        events += assembler.end(signalled=assembler.is_over)
    except LlmError as error:
        events.append(ErrorEvent(assembler.message("error", str(error)), error))
    return events


def _json(text):
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def plain(events):
    """Events without the times in them."""
    shown = []
    for event in events:
        if isinstance(event, StartEvent):
            shown.append("start")
        elif isinstance(event, (DoneEvent, ErrorEvent)):
            message = event.message
            shown.append((type(event), message.content, message.usage, message.stop_reason))
        else:
            shown.append(event)
    return shown


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_transcripts_in_pieces(path):
    """A transcript gives the same events whole, byte by byte and in pieces of seven."""
    data = path.read_bytes()
    whole = plain(read([data]))

    for size in (1, 7):
        assert plain(read([data[at : at + size] for at in range(0, len(data), size)])) == whole


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damaged_transcripts(data):
    """Damaged bytes never raise anything but an error of ours, and there is exactly one last event."""
    damaged = bytearray(data.draw(st.sampled_from(TRANSCRIPTS)).read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        cut = data.draw(st.integers(0, 40))
        damaged[at : at + cut] = data.draw(st.binary(max_size=12))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(damaged)), max_size=5)))
    pieces = [bytes(damaged[a:b]) for a, b in zip([0, *cuts], [*cuts, len(damaged)], strict=True)]
    last = [event for event in read(pieces) if isinstance(event, (DoneEvent, ErrorEvent))]

    assert len(last) == 1


JSON = st.sampled_from(
    [None, True, 0, -1, 3, "", "x", "{}", [], [1], {}, {"type": "text"}, {"text": [None]}, [{}]]
)
EVENT_TYPES = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
]
BLOCK_FIELDS = ("text", "thinking", "data", "input", "id", "citations")
BLOCK_TYPES = ["text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", 7, None]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {"type": st.sampled_from(EVENT_TYPES)},
            optional={
                "index": st.integers(0, 2) | JSON,
                "message": JSON,
                "delta": st.dictionaries(
                    st.sampled_from(["text", "thinking", "signature", "partial_json", "citation"]),
                    JSON,
                    max_size=2,
                )
                | JSON,
                "content_block": st.fixed_dictionaries(
                    {"type": st.sampled_from(BLOCK_TYPES)},
                    optional=dict.fromkeys(BLOCK_FIELDS, JSON),
                )
                | JSON,
                "usage": JSON,
            },
        ),
        max_size=12,
    )
)
def test_values_of_any_shape(events):
    """Values of any shape are taken without an exception, and end in one last event."""
    given_events = play(*events, STOP)

    assert isinstance(given_events[-1], (DoneEvent, ErrorEvent))
    assert sum(isinstance(event, (DoneEvent, ErrorEvent)) for event in given_events) == 1


def test_long_arguments():
    """Arguments of any length are joined once: ten times the pieces do not cost each piece more work."""
    assembler = AnthropicAssembler("m", "p", "a")
    assembler.take(begin(0, "tool_use", id="i", name="t", input={}))
    pieces = [delta(0, partial_json=text) for text in ('{"a": "', *["x" * 20] * 2_000, '"}')]
    for piece in pieces:
        (event,) = assembler.take(piece)
        assert event.delta == piece["delta"]["partial_json"]
    message = assembler.end(signalled=True)[-1].message

    assert message.tool_calls[0].arguments == {"a": "x" * 40_000}
