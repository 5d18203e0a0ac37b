"""One streamed answer from its chunks, in the forms that servers send."""

import json

import pytest

from yiemagent.errors import BadResponseError, LlmConnectionError, LlmError
from yiemagent.messages import TextContent, ThinkingContent
from yiemagent.providers.openai_stream import ChunkAssembler
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


def chunk(finish=None, **delta):
    return {"id": "r1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(arguments=None, *, index=None, id=None, name=None):  # noqa: A002 - the wire's word
    function = {"name": name, "arguments": arguments}
    entry = {
        "index": index,
        "id": id,
        "function": {k: v for k, v in function.items() if v is not None},
    }
    return {key: value for key, value in entry.items() if value is not None}


def play(*chunks, signalled=True, **options):
    assembler = ChunkAssembler("m", "p", "a", **options)
    events = [event for one in chunks for event in assembler.take(one)]
    return events + list(assembler.end(signalled=signalled))


def message_of(*chunks, **options):
    return play(*chunks, **options)[-1].message


def calls_of(*deltas):
    entries = [delta if isinstance(delta, list) else [delta] for delta in deltas]
    message = message_of(*[chunk(tool_calls=entry) for entry in entries], chunk("tool_calls"))
    assert message.stop_reason == "tool_use"
    assert len({one.id for one in message.tool_calls}) == len(message.tool_calls)
    assert all(one.id for one in message.tool_calls)
    return [(one.name, one.arguments) for one in message.tool_calls]


def test_text():
    """Text gives Start, its block's events, and a Done with all that is known."""
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    events = play(
        chunk(role="assistant", content=""),
        chunk(content="Hel"),
        chunk(content="lo"),
        chunk("stop"),
        {"id": "r1", "choices": [], "usage": usage},
    )
    message = events[-1].message

    assert [type(event) for event in events] == [
        StartEvent, TextStartEvent, TextDeltaEvent, TextDeltaEvent, TextEndEvent, DoneEvent,
    ]  # fmt: skip
    assert (message.text, message.stop_reason, message.raw_stop_reason) == ("Hello", "stop", "stop")
    assert (message.model, message.provider, message.api) == ("m", "p", "a")
    assert message.response_id == "r1"
    assert (message.usage.input_tokens, message.usage.output_tokens) == (5, 2)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thinking(field):
    """Thinking, under either name, is a block of its own, ended when the text begins."""
    events = play(chunk(**{field: "hm"}), chunk(content="ok"), chunk("stop"))

    assert [type(event) for event in events[1:]] == [
        ThinkingStartEvent, ThinkingDeltaEvent, ThinkingEndEvent,
        TextStartEvent, TextDeltaEvent, TextEndEvent, DoneEvent,
    ]  # fmt: skip
    assert (events[-1].message.thinking, events[-1].message.text) == ("hm", "ok")


def test_mirrored_thinking():
    """Thinking that a server sends under both names is taken once."""
    assert message_of(chunk(reasoning_content="hm", reasoning="hm"), chunk("stop")).thinking == "hm"
    assert message_of(chunk(reasoning_content="", reasoning="hm"), chunk("stop")).thinking == "hm"


def test_thinking_again():
    """Thinking after text is a new block, and text after that too."""
    message = message_of(
        chunk(content="a"), chunk(reasoning="b"), chunk(content="c"), chunk("stop")
    )

    assert [block.type for block in message.content] == ["text", "thinking", "text"]


def test_content_in_parts():
    """Content may come as parts; unknown ones are left out, calls among them are calls."""
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "strange", "x": 1},
        {"type": "text", "text": "An"},
        {"type": "tool_use", "id": "c1", "name": "t", "input": {"a": 1}},
    ]
    message = message_of(chunk(content=parts), chunk(content="swer"), chunk("stop"))

    assert (message.thinking, message.text) == ("hm", "Answer")
    assert [(one.id, one.name, one.arguments) for one in message.tool_calls] == [
        ("c1", "t", {"a": 1})
    ]


@pytest.mark.parametrize("finish", ["stop", "content_filter", None])
def test_refusal(finish):
    """A refusal is an error whose message holds the words; the raw reason is kept."""
    last = play(chunk(refusal="N"), chunk(refusal="o."), chunk(finish))[-1]

    assert isinstance(last, ErrorEvent) and isinstance(last.error, BadResponseError)
    assert (last.message.text, last.message.raw_stop_reason) == ("No.", finish)
    assert last.message.stop_reason == "error"
    assert "refused" in last.message.error_message


def test_field_of_the_thinking_is_kept():
    """A thinking block knows the field it came in, so that it can go back in it."""
    message = message_of(chunk(reasoning="h"), chunk(reasoning="m"), chunk(content="ok"))

    assert message.content[0] == ThinkingContent("hm", "reasoning")


def test_details_of_thinking():
    """Details are put together and kept whole; their words are shown where there are no others."""
    piece = {"type": "reasoning.text", "index": 0}
    details = [
        chunk(reasoning_details=[{**piece, "text": "h"}]),
        chunk(reasoning_details=[{**piece, "text": "m"}]),
        chunk(reasoning_details=[{**piece, "signature": "s"}]),
        chunk(content="ok"),
    ]
    both = [chunk(reasoning="hm", reasoning_details=[{**piece, "text": "hm", "signature": "s"}])]
    for chunks in (details, [*both, chunk(content="ok")]):
        thinking, text = message_of(*chunks, chunk("stop")).content

        assert (thinking.thinking, text.text, thinking.redacted) == ("hm", "ok", False)
        assert json.loads(thinking.signature) == [{**piece, "text": "hm", "signature": "s"}]


def test_details_that_nobody_can_read():
    """Encrypted details are a redacted block, also where they come with a call or at the very end."""
    secret = {"type": "reasoning.encrypted", "data": "x", "index": 0}
    entry = call("{}", index=0, id="c1", name="t")
    message = message_of(
        chunk(reasoning_details=[secret], tool_calls=[entry]),
        chunk(reasoning_details=[{**secret, "index": 1}]),
        chunk("tool_calls"),
    )

    assert [block.type for block in message.content] == ["thinking", "toolCall", "thinking"]
    assert [block.redacted for block in message.content[::2]] == [True, True]
    assert json.loads(message.content[0].signature) == [secret]
    assert message.stop_reason == "tool_use"


def test_thinking_in_tags():
    """Where a profile says so, thinking in the text's tags is thinking, before text and before calls."""
    pieces = [chunk(content=piece) for piece in ("<th", "ink>h", "m</thi", "nk>\n\n", "ok")]
    message = message_of(*pieces, chunk("stop"), think_tags=True)
    calling = message_of(
        *pieces[:4], chunk(tool_calls=[call("{}", name="t")]), chunk("stop"), think_tags=True
    )

    assert message.content == (ThinkingContent("hm"), TextContent("ok"))
    assert [block.type for block in calling.content] == ["thinking", "toolCall"]
    assert message_of(*pieces, chunk("stop")).text == "<think>hm</think>\n\nok"


def test_text_that_only_looks_like_a_tag():
    """What was held back as a tag's beginning is text, also before a call and at the end."""
    ended = message_of(chunk(content="<thi"), chunk("stop"), think_tags=True)
    calling = message_of(
        chunk(content="<"), chunk(tool_calls=[call("{}", name="t")]), chunk("stop"), think_tags=True
    )

    assert ended.text == "<thi"
    assert [block.type for block in calling.content] == ["text", "toolCall"]


def test_call_events():
    """A call gives its Start, deltas and End."""
    events = play(
        chunk(reasoning="hm"),
        chunk(tool_calls=[call("", index=0, id="c1", name="t")]),
        chunk(tool_calls=[call('{"a":', index=0)]),
        chunk(tool_calls=[call(" 1}", index=0)]),
        chunk("tool_calls"),
    )

    assert [type(event) for event in events[3:]] == [
        ThinkingEndEvent, ToolCallStartEvent, ToolCallDeltaEvent, ToolCallDeltaEvent, ToolCallEndEvent, DoneEvent,
    ]  # fmt: skip
    assert events[4] == ToolCallStartEvent(1, "c1", "t")
    assert events[-1].message.tool_calls[0].arguments == {"a": 1}


@pytest.mark.parametrize(
    "deltas, expected",
    [
        # told apart by index, by id, or by order
        ([call('{"a":1}', index=0, id="x", name="s"), call('{"a":2}', index=1, id="y", name="s")],
         [("s", {"a": 1}), ("s", {"a": 2})]),
        ([call('{"a"', index=0, id="x", name="s"), call('{"a"', index=1, id="y", name="s"),
          call(":1}", index=0), call(":2}", index=1)],
         [("s", {"a": 1}), ("s", {"a": 2})]),
        ([call('{"a":1}', id="x", name="s"), call('{"a":2}', id="y", name="s")], [("s", {"a": 1}), ("s", {"a": 2})]),
        ([call('{"a"', id="x", name="s"), call('{"a"', id="y", name="s"), call(":1}", id="x"), call(":2}", id="y")],
         [("s", {"a": 1}), ("s", {"a": 2})]),
        ([call('{"a"', index=0, id="x", name="s"), call(":1}", index=0),
          call('{"a"', index=0, id="y", name="s"), call(":2}", index=0)],
         [("s", {"a": 1}), ("s", {"a": 2})]),
        ([call('{"a":1}', index=0, name="s"), call('{"a":2}', index=0, name="s")], [("s", {"a": 1}), ("s", {"a": 2})]),
        ([[call('{"a":1}', name="s"), call('{"a":2}', name="t")]], [("s", {"a": 1}), ("t", {"a": 2})]),
        ([call('{"a":', name="s"), call("1}")], [("s", {"a": 1})]),
        ([call('{"a":', index="0", id="x", name="s"), call("1}", index="0")], [("s", {"a": 1})]),
        ([call('{"a":1}', index=0, id="d", name="s"), call('{"a":2}', index=1, id="d", name="s")],
         [("s", {"a": 1}), ("s", {"a": 2})]),
        ([call('{"a":1}', index=0, id="d", name="s"), call("", index=1, id="d", name="s"), call('{"a":2}', index=1)],
         [("s", {"a": 1}), ("s", {"a": 2})]),
        ([call('{"a":', index=0, id="x", name="s"), call("1}", index=1, id="x")], [("s", {"a": 1})]),
        # names late, in pieces, again and again
        ([call(index=0, id="x", name=""), call("{}", index=0, id="x", name="late")], [("late", {})]),
        ([call("", index=0, id="x", name="edit_"), call("{}", index=0, name="file")], [("edit_file", {})]),
        ([call("", index=0, id="x", name="edit_"), call("{}", index=0, name="edit_file")], [("edit_file", {})]),
        ([call('{"a":', index=0, id="x", name="s"), call("1}", index=0, id="x", name="s")], [("s", {"a": 1})]),
        ([call('{"a":1}', index=0, id="x", name="s"), call("", index=0, id="x", name="s")], [("s", {"a": 1})]),
        ([call('{"a":', index=0, name="s"), call("1}", index=0, name="s"), call("", index=0, name="s")],
         [("s", {"a": 1})]),
        ([call("{", index=0, name="s"), call("}", index=0, id="late")], [("s", {})]),
        # arguments absent, blank, an object, no JSON
        ([call(index=0, id="x", name="s")], [("s", {})]),
        ([call("  ", index=0, id="x", name="s")], [("s", {})]),
        ([call({"a": [1]}, index=0, id="x", name="s")], [("s", {"a": [1]})]),
        ([call("{no", index=0, id="x", name="s")], [("s", "{no")]),
        ([call("{no}", index=0, name="s"), call("{}", index=0, name="t")], [("s", "{no}{}")]),
        ([{"index": 0, "id": "x", "name": "flat", "arguments": "{}"}], [("flat", {})]),
        ([{"id": 7, "function": {"name": "s", "arguments": None}}], [("s", {})]),
    ],
)  # fmt: skip
def test_calls(deltas, expected):
    """Pieces of calls find their call, with or without index and id, and names are put together."""
    assert calls_of(*deltas) == expected


def test_function_call():
    """The older form of a single call is read too."""
    message = message_of(
        chunk(function_call={"name": "s", "arguments": '{"a":'}),
        chunk(function_call={"arguments": "1}"}),
        chunk("function_call"),
    )

    assert [(one.name, one.arguments) for one in message.tool_calls] == [("s", {"a": 1})]
    assert message.stop_reason == "tool_use"


def test_halves_of_characters():
    """A character cut in two is put together, wherever it was cut; a half that stays alone is replaced."""
    events = play(
        chunk(content="a\ud83d"),
        chunk(content="\ude00b"),
        chunk(reasoning="c\ud83d"),
        chunk(reasoning="\ude00"),
        chunk(tool_calls=[call('{"x": "\ud83d', index=0, id="i", name="n")]),
        chunk(tool_calls=[call('\ude00"}', index=0)]),
        chunk("stop"),
    )
    message = events[-1].message
    for event in events:
        getattr(event, "delta", "").encode()

    assert (message.text, message.thinking) == ("a😀b", "c😀")
    assert message.tool_calls[0].arguments == {"x": "😀"}


@pytest.mark.parametrize("kind", ["content", "reasoning"])
def test_half_without_its_other(kind):
    """A first half without a second, and a second without a first, become U+FFFD."""
    message = message_of(
        chunk(**{kind: "\ude00x\ud83d"}),
        chunk(**{kind: "y"}),
        chunk(**{kind: "z\ud83d"}),
        chunk("stop"),
    )

    assert message.text + message.thinking == "\ufffdx\ufffdyz\ufffd"

    message = message_of(
        chunk(**{kind: "\ud83d"}), chunk(tool_calls=[call("\ud83d", index=0)]), chunk("stop")
    )

    assert message.text + message.thinking == "\ufffd"
    assert message.tool_calls[0].arguments == "\ufffd"


def test_usage():
    """The last usage that says anything counts, cached and reasoning tokens apart."""
    details = {
        "prompt_tokens": 12,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    message = message_of(
        {**chunk(content="a"), "usage": {"prompt_tokens": 12, "completion_tokens": 1}},
        {**chunk(content="b"), "usage": None},
        {**chunk("stop"), "usage": details},
        {"choices": [], "usage": None},
    )

    assert message.usage.input_tokens == 4
    assert message.usage.cache_read_tokens == 8
    assert message.usage.output_tokens == 3
    assert message.usage.reasoning_tokens == 2


def test_chunks_that_say_nothing():
    """Heartbeats, filter results, empty and null deltas and other JSON pass."""
    message = message_of(
        {"choices": [], "prompt_filter_results": []},
        {"object": "chat.completion.heartbeat"},
        None,
        [1],
        {"choices": None},
        {"choices": [None]},
        {"choices": [{"index": 0, "delta": None}]},
        chunk(content=None, tool_calls=None),
        chunk(tool_calls=["what"]),
        chunk(content="x"),
        {"choices": [{"index": 0, "finish_reason": "stop"}]},
    )

    assert (message.text, message.content[1:]) == ("x", ())


def test_whole_message_as_a_chunk():
    """A server that sends its whole answer as one chunk is understood; after deltas it would be twice the same."""
    whole = {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}

    assert message_of(whole).text == "hi"
    assert message_of(chunk(content="hi"), whole).text == "hi"


@pytest.mark.parametrize(
    "finish, has_calls, reason",
    [
        ("stop", False, "stop"),
        ("length", False, "length"),
        ("length", True, "length"),
        (None, False, "stop"),
        (None, True, "tool_use"),
        ("stop", True, "tool_use"),
        ("other", True, "tool_use"),
        ("eos", False, "stop"),
    ],
)
def test_stop_reasons(finish, has_calls, reason):
    """Calls decide over the server's word, but for a cut; the raw word is kept."""
    delta = (
        {"tool_calls": [call("{}", index=0, id="x", name="s")]} if has_calls else {"content": "x"}
    )
    message = message_of(chunk(**delta), chunk(finish))

    assert (message.stop_reason, message.raw_stop_reason) == (reason, finish)


def test_failed_finish():
    """A finish reason that means failure is an error with what came."""
    events = play(chunk(content="x"), chunk("content_filter"))

    assert isinstance(events[-1], ErrorEvent)
    assert isinstance(events[-1].error, BadResponseError)
    assert events[-1].message.text == "x"
    assert "content_filter" in events[-1].message.error_message


def test_end_without_signal():
    """Without a finish reason and a signal the stream is incomplete; either of them ends it."""
    assert message_of(chunk(content="x"), chunk("stop"), signalled=False).stop_reason == "stop"
    assert message_of(chunk(content="x"), signalled=True).stop_reason == "stop"
    with pytest.raises(LlmConnectionError, match="incomplete") as caught:
        play(chunk(content="x"), signalled=False)
    assert caught.value.retryable


def test_server_that_never_signals_its_end():
    """Where a profile says that a server never tells the end, the end of the body is one."""
    message = message_of(chunk(content="x"), signalled=False, signals_end=False)

    assert (message.text, message.stop_reason, message.raw_stop_reason) == ("x", "stop", None)


def test_no_answer_at_all():
    """A stream that ends without one choice is an error."""
    with pytest.raises(BadResponseError, match="held no answer"):
        play({"choices": []})


def test_empty_answer():
    """An answer may be empty."""
    events = play(chunk(role="assistant"), chunk("stop"))

    assert [type(event) for event in events] == [StartEvent, DoneEvent]
    assert events[-1].message.content == ()


def test_error_in_the_stream():
    """An error among the chunks is raised, and what came is in the message."""
    assembler = ChunkAssembler("m", "p", "a")
    assembler.take(chunk(content="half"))
    with pytest.raises(LlmError, match="went away") as caught:
        assembler.take({"error": {"message": "backend went away", "code": 502}})

    assert (caught.value.status, caught.value.retryable) == (502, True)
    assert assembler.message("error", "x").text == "half"
    assert assembler.has_content and not assembler.is_finished


def test_one_choice_of_several_is_the_answer():
    """Where a body asks for several choices, the first is the answer and the others are left out, in any order."""

    def of(index, text, finish=None):
        return {"choices": [{"index": index, "delta": {"content": text}, "finish_reason": finish}]}

    both = {"choices": [of(1, "x")["choices"][0], of(0, "!")["choices"][0]]}
    message = message_of(
        of(1, "B"), of(0, "A"), of(1, "b"), of(0, "a"), both, of(1, "", "length"), of(0, "", "stop")
    )

    assert (message.text, message.stop_reason) == ("Aa!", "stop")
