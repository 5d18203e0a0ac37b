"""One answer of the Gemini API from its chunks, in the forms that the API sends."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.errors import BadResponseError, LlmConnectionError, LlmError
from yiemagent.messages import ImageContent, LlmUsage, TextContent, ThinkingContent
from yiemagent.providers.gemini_stream import GeminiAssembler
from yiemagent.streaming import (
    DoneEvent,
    ErrorEvent,
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


def chunk(*parts, finish=None, usage=None, **fields):
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    given = {"candidates": [candidate], "modelVersion": "gemini-3.8-flash", "responseId": "r1"}
    return given | ({"usageMetadata": usage} if usage else {}) | fields


def text(words, **fields):
    return {"text": words, **fields}


def thought(words, **fields):
    return {"text": words, "thought": True, **fields}


def call(name, args=None, *, signature=None, **fields):
    part = {"functionCall": {"name": name, "args": args or {}, **fields}}
    return part | ({"thoughtSignature": signature} if signature else {})


def play(*chunks, signalled=False):
    assembler = GeminiAssembler("m", "p", "a")
    events = [event for one in chunks for event in assembler.take(one)]
    return events + list(assembler.end(signalled=signalled))


def message_of(*chunks, signalled=False):
    return play(*chunks, signalled=signalled)[-1].message


def test_text():
    """Text gives Start, its block's events, and a Done with all that is known."""
    events = play(
        chunk(text("Hel"), usage={"promptTokenCount": 5, "totalTokenCount": 5}),
        chunk(text("lo")),
        chunk(
            text(" you"), finish="STOP", usage={"promptTokenCount": 5, "candidatesTokenCount": 2}
        ),
    )
    message = events[-1].message

    assert [type(event) for event in events] == [
        StartEvent, TextStartEvent, TextDeltaEvent, TextDeltaEvent, TextDeltaEvent, TextEndEvent, DoneEvent,
    ]  # fmt: skip
    assert message.content == (TextContent("Hello you"),)
    assert (message.stop_reason, message.raw_stop_reason) == ("stop", "STOP")
    assert (message.model, message.provider, message.api) == ("m", "p", "a")
    assert message.response_id == "r1"
    assert message.usage == LlmUsage(input_tokens=5, output_tokens=2)


def test_thinking():
    """Parts marked as thoughts are thinking, and each change of kind begins a block."""
    events = play(
        chunk(thought("h")), chunk(thought("m")), chunk(text("ok")), chunk(thought("!"), finish="STOP")
    )  # fmt: skip

    assert [type(event) for event in events[1:-1]] == [
        ThinkingStartEvent, ThinkingDeltaEvent, ThinkingDeltaEvent, ThinkingEndEvent,
        TextStartEvent, TextDeltaEvent, TextEndEvent,
        ThinkingStartEvent, ThinkingDeltaEvent, ThinkingEndEvent,
    ]  # fmt: skip
    assert events[-1].message.content == (
        ThinkingContent("hm"),
        TextContent("ok"),
        ThinkingContent("!"),
    )


def test_an_empty_part_keeps_its_signature():
    """The signature in an empty part at the end of a stream is kept, in a block of its own."""
    message = message_of(
        chunk(text("Hel")), chunk(text("lo")), chunk(text("", thoughtSignature="c2ln"), finish="STOP")
    )  # fmt: skip

    assert message.content == (TextContent("Hello"), TextContent("", "c2ln"))
    assert message.text == "Hello"


@pytest.mark.parametrize(
    ("part", "block"), [(text, TextContent), (thought, ThinkingContent)], ids=["text", "thinking"]
)
def test_a_signed_part_is_a_block_of_its_own(part, block):
    """A signed part is merged neither with what came before it nor with what follows."""
    events = play(
        chunk(part("a")),
        chunk(part("b", thoughtSignature="c2ln")),
        chunk(part("c"), finish="STOP"),
    )

    assert events[-1].message.content == (block("a"), block("b", "c2ln"), block("c"))
    assert [event.signature for event in events if isinstance(event, (TextEndEvent, ThinkingEndEvent))] == [
        None, "c2ln", None,
    ]  # fmt: skip


def test_a_part_without_words_or_signature_is_nothing():
    """An empty part that carries nothing begins no block."""
    message = message_of(chunk(text("")), chunk({}), chunk(text("a"), finish="STOP"))

    assert message.content == (TextContent("a"),)


def test_call_events():
    """A call comes whole: its Start, its arguments and its End; the stop reason is ours."""
    events = play(
        chunk(thought("hm")),
        chunk(call("look", {"place": "Zürich", "n": 1}, id="c1", signature="c2ln")),
        chunk(text(""), finish="STOP"),
    )
    (made,) = events[-1].message.tool_calls

    assert [type(event) for event in events[3:]] == [
        ThinkingEndEvent, ToolCallStartEvent, ToolCallDeltaEvent, ToolCallEndEvent, DoneEvent,
    ]  # fmt: skip
    assert events[4] == ToolCallStartEvent(1, "c1", "look")
    assert json.loads(events[5].delta) == {"place": "Zürich", "n": 1}
    assert (made.id, made.name, made.arguments) == ("c1", "look", {"place": "Zürich", "n": 1})
    assert made.signature == "c2ln"
    assert (events[-1].message.stop_reason, events[-1].message.raw_stop_reason) == (
        "tool_use",
        "STOP",
    )


def test_parallel_calls_keep_the_one_signature():
    """Of parallel calls only the first is signed, and it stays so."""
    message = message_of(
        chunk(call("look", {"n": 1}, id="a", signature="c2ln"), call("look", {"n": 2}, id="b")),
        chunk(call("look", {"n": 3}, id="c"), finish="STOP"),
    )

    assert [(one.id, one.signature) for one in message.tool_calls] == [
        ("a", "c2ln"),
        ("b", None),
        ("c", None),
    ]


def test_calls_without_ids_get_fresh_ones():
    """Calls without ids, and those with the id of another, each get their own."""
    message = message_of(
        chunk(call("look"), call("look"), call("look", {"n": 1}, id="a"), call("look", {"n": 2}, id="a")),
        chunk(finish="STOP"),
    )  # fmt: skip
    ids = [one.id for one in message.tool_calls]

    assert len(set(ids)) == 4
    assert all(ids)
    assert ids[2] == "a"


def test_a_call_told_again_is_one_call():
    """A call that is sent again under its id is the same call, and keeps its signature."""
    message = message_of(
        chunk(call("look", {"n": 1}, id="a", signature="c2ln")),
        chunk(call("look", {"n": 1}, id="a"), finish="STOP"),
    )

    assert [(one.id, one.signature) for one in message.tool_calls] == [("a", "c2ln")]


@pytest.mark.parametrize(
    ("args", "arguments"),
    [
        (None, {}),
        ({"a": {"b": [1, 2.5, None, "ü", True]}}, {"a": {"b": [1, 2.5, None, "ü", True]}}),
        ('{"a": 1}', {"a": 1}),
        ([1], "[1]"),
        ({"a": "x\ud83d"}, {"a": "x\ufffd"}),
    ],
)
def test_arguments_in_every_form(args, arguments):
    """Arguments are taken as the object, text or other value that they are."""
    message = message_of(chunk({"functionCall": {"name": "t", "args": args}}, finish="STOP"))

    assert message.tool_calls[0].arguments == arguments


def test_arguments_nested_too_deeply_are_an_error():
    """Arguments that no parser takes end the answer, not the program."""
    args = {}
    for _ in range(100_000):
        args = {"a": args}
    with pytest.raises(BadResponseError, match="nested too deeply"):
        play(chunk({"functionCall": {"name": "t", "args": args}}))
    while args:  # piece by piece, since freeing it at once needs as much depth
        args = args["a"]


@pytest.mark.parametrize(
    ("finish", "reason", "has_calls"),
    [
        ("STOP", "stop", False),
        ("STOP", "tool_use", True),
        ("MAX_TOKENS", "length", False),
        ("MAX_TOKENS", "length", True),
        ("CONTINUATION", "length", False),
        ("SOMETHING_NEW", "stop", False),
        ("SOMETHING_NEW", "tool_use", True),
    ],
)
def test_finish_reasons(finish, reason, has_calls):
    """Each finish reason is mapped to ours, and kept; an unknown one depends on whether there are calls."""
    last = play(chunk(text("a"), *[call("t")] * has_calls, finish=finish))[-1]

    assert isinstance(last, DoneEvent)
    assert (last.message.stop_reason, last.message.raw_stop_reason) == (reason, finish)


@pytest.mark.parametrize(
    "finish",
    [
        "SAFETY", "RECITATION", "LANGUAGE", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY",
        "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "NO_IMAGE", "IMAGE_OTHER",
        "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "MISSING_THOUGHT_SIGNATURE", "MALFORMED_RESPONSE",
        "MODEL_ARMOR",
    ],
)  # fmt: skip
def test_filters_and_failures_are_errors(finish):
    """A filter's stop and a model's failure are errors that say which, with what came before."""
    ended = chunk(text("part"), finish=finish)
    ended["candidates"][0]["finishMessage"] = "because of this"
    last = play(ended)[-1]

    assert isinstance(last, ErrorEvent)
    assert (last.message.stop_reason, last.message.raw_stop_reason) == ("error", finish)
    assert last.message.text == "part"
    assert finish in last.message.error_message
    assert "because of this" in last.message.error_message


@pytest.mark.parametrize(
    ("finish", "retryable"),
    [("MALFORMED_FUNCTION_CALL", True), ("UNEXPECTED_TOOL_CALL", True), ("SAFETY", False)],
)
def test_a_slip_of_the_model_may_be_asked_again(finish, retryable):
    """A model's slip may come out better the next time; what a filter stopped will not."""
    assert play(chunk(finish=finish))[-1].error.retryable is retryable


def test_a_refused_prompt_is_an_error():
    """A prompt that is blocked has no candidates; the reason is told and kept."""
    usage = {"promptTokenCount": 7, "totalTokenCount": 7}
    last = play({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": usage})[
        -1
    ]

    assert isinstance(last, ErrorEvent)
    assert (last.message.stop_reason, last.message.raw_stop_reason) == (
        "error",
        "PROHIBITED_CONTENT",
    )
    assert (
        last.message.error_message == "the provider refused the request with 'PROHIBITED_CONTENT'"
    )
    assert last.message.usage.input_tokens == 7
    assert not last.error.retryable


def test_feedback_without_a_block_is_no_error():
    """Feedback on a prompt that was not blocked changes nothing."""
    for feedback in ({}, {"blockReason": "BLOCK_REASON_UNSPECIFIED"}):
        message = message_of(chunk(text("a"), finish="STOP", promptFeedback=feedback))
        assert message.stop_reason == "stop"


@pytest.mark.parametrize("finish", [None, "FINISH_REASON_UNSPECIFIED"])
def test_an_end_without_a_reason_is_a_cut(finish):
    """A stream that ends without a finish reason was cut, even where the text looks whole."""
    with pytest.raises(LlmConnectionError, match="incomplete") as caught:
        play(chunk(text("All of it."), finish=finish))

    assert caught.value.retryable


def test_a_whole_answer_needs_no_reason():
    """An answer whose end is signalled otherwise is whole."""
    assert message_of(chunk(text("a")), signalled=True).stop_reason == "stop"


@pytest.mark.parametrize("signalled", [True, False])
def test_a_stream_without_an_answer_is_an_error(signalled):
    """A stream that held no candidate is no answer."""
    with pytest.raises(LlmError):
        play({"modelVersion": "x"}, {"candidates": []}, signalled=signalled)


def test_an_answer_may_be_empty():
    """A candidate without parts is an empty answer; what becomes of it is the loop's business."""
    for content in ({"role": "model"}, {}, None, {"parts": None}):
        events = play({"candidates": [{"content": content, "finishReason": "STOP"}]})
        assert [type(event) for event in events] == [StartEvent, DoneEvent]
        assert events[-1].message.content == ()


def test_usage_counts_up():
    """The last value of each count holds; cached input, thoughts and tool prompts are told apart."""
    message = message_of(
        chunk(text("a"), usage={"promptTokenCount": 90, "thoughtsTokenCount": 40, "totalTokenCount": 130}),
        chunk(text("b"), usage={"promptTokenCount": 100, "candidatesTokenCount": 1}),
        chunk(text("c"), finish="STOP", usage={"candidatesTokenCount": 20}),
        {"usageMetadata": {"cachedContentTokenCount": 60, "toolUsePromptTokenCount": 3}},
    )  # fmt: skip

    assert message.usage == LlmUsage(
        input_tokens=43, output_tokens=60, cache_read_tokens=60, reasoning_tokens=40
    )


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"promptTokenCount": "12"}, LlmUsage(input_tokens=12)),
        ({"promptTokenCount": "9" * 5000, "candidatesTokenCount": True}, LlmUsage()),
        ({"promptTokenCount": None, "candidatesTokenCount": -3}, LlmUsage()),
        ({"promptTokenCount": 1, "cachedContentTokenCount": 5}, LlmUsage(cache_read_tokens=5)),
        ({}, None),
        ("many", None),
    ],
)
def test_damaged_usage(usage, expected):
    """Counts may be text, missing or nonsense; none is negative."""
    assert message_of(chunk(text("a"), finish="STOP", usageMetadata=usage)).usage == expected


def test_an_error_in_the_stream():
    """An error in place of a chunk is raised with the server's words."""
    assembler = GeminiAssembler("m", "p", "a")
    assembler.take(chunk(text("a")))
    error = {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}
    with pytest.raises(LlmError, match="overloaded") as caught:
        assembler.take({"error": error})

    assert (caught.value.status, caught.value.retryable) == (503, True)
    assert assembler.message("error", "x").text == "a"


def test_an_image_of_the_answer_stands_at_its_end():
    """An image that the model made is kept behind all else; its sketches are not."""
    image = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
    assembler = GeminiAssembler("m", "p", "a")
    assembler.take(chunk(image | {"thought": True}))
    assert not assembler.has_content
    assembler.take(chunk(text("Here: "), image))
    assembler.take(chunk(text("Done."), finish="STOP"))
    message = assembler.end(signalled=False)[-1].message

    assert message.content == (
        TextContent("Here: "),
        TextContent("Done."),
        ImageContent("aGk=", "image/png"),
    )
    assert assembler.has_content


def test_an_image_alone_is_content():
    """An answer that is an image only can't be asked for again."""
    assembler = GeminiAssembler("m", "p", "a")
    assembler.take(chunk({"inlineData": {"mimeType": "image/png", "data": "aGk="}}))

    assert assembler.has_content


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["a\ud83d", "\ude00b"], "a😀b"),
        (["a", "\ud83d", "\ude00", "b"], "a😀b"),
        (["a\ud83d", "b"], "a\ufffdb"),
        (["a\ud83d"], "a\ufffd"),
        (["\ude00a"], "\ufffda"),
        (["\ud83d", "\ud83d\ude00"], "\ufffd😀"),
    ],
)
def test_halves_of_characters(pieces, expected):
    """A character that is split between chunks is put together; a half that stays alone becomes U+FFFD."""
    events = play(*[chunk(text(piece)) for piece in pieces], chunk(finish="STOP"))
    deltas = "".join(event.delta for event in events if isinstance(event, TextDeltaEvent))

    assert events[-1].message.text == expected == deltas


def test_states_of_an_answer():
    """What came and whether it is finished can be asked at any time; nothing says that nothing follows."""
    assembler = GeminiAssembler("m", "p", "a")
    states = [(assembler.has_content, assembler.is_finished)]
    for one in (chunk(), chunk(text("a")), chunk(finish="STOP")):
        assembler.take(one)
        states.append((assembler.has_content, assembler.is_finished))

    assert states == [(False, False), (False, False), (True, False), (True, True)]
    assert not assembler.is_over


def test_only_the_first_candidate_counts():
    """Further candidates are left out."""
    both = chunk(text("a"), finish="STOP")
    both["candidates"].append(chunk(text("b"))["candidates"][0])

    assert message_of(both).text == "a"


FIELDS = [
    "candidates",
    "content",
    "parts",
    "text",
    "thought",
    "thoughtSignature",
    "functionCall",
    "name",
    "args",
    "id",
    "finishReason",
    "promptFeedback",
    "blockReason",
    "usageMetadata",
    "promptTokenCount",
    "inlineData",
    "mimeType",
    "data",
    "responseId",
]
DAMAGED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(
    st.lists(
        DAMAGED | st.builds(lambda part: chunk(text("a"), part, text("b")), DAMAGED), max_size=5
    )
)
def test_damaged_chunks_never_break_it(chunks):
    """Whatever chunks hold, they give events and one end, or one error of ours."""
    try:
        events = play(*chunks, chunk(text("z"), finish="STOP"))
    except LlmError:
        return

    assert [isinstance(event, (DoneEvent, ErrorEvent)) for event in events] == [False] * (
        len(events) - 1
    ) + [True]
