"""One streamed response from its events, in the forms that servers send."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.errors import BadResponseError, LlmConnectionError, LlmError, RateLimitError
from yiemagent.messages import TextContent, ThinkingContent, ToolCall
from yiemagent.providers.responses_stream import ResponseAssembler, whole_answer
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

USAGE = {
    "input_tokens": 75,
    "input_tokens_details": {"cached_tokens": 50, "cache_write_tokens": 5},
    "output_tokens": 30,
    "output_tokens_details": {"reasoning_tokens": 20},
    "total_tokens": 105,
}


def event(kind, **fields):
    return {"type": f"response.{kind}", **fields}


def response(status, output=(), **fields):
    whole = {"id": "resp_1", "object": "response", "status": status, "output": list(output)}
    return event(status, response={**whole, "usage": USAGE, **fields})


def message_item(text, item_id="msg_1", **fields):
    part = {"type": "output_text", "text": text, "annotations": []}
    whole = {"type": "message", "id": item_id, "role": "assistant", "status": "completed"}
    return {**whole, "content": [part] if text else [], **fields}


def reasoning_item(item_id="rs_1", summary=(), **fields):
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return {"type": "reasoning", "id": item_id, "summary": parts, **fields}


def call_item(arguments, call_id="call_1", item_id="fc_1", name="get_weather"):
    whole = {"type": "function_call", "id": item_id, "call_id": call_id, "name": name}
    return {**whole, "status": "completed", "arguments": arguments}


def added(place, item):
    return event("output_item.added", output_index=place, item=item)


def done(place, item):
    return event("output_item.done", output_index=place, item=item)


def text_events(place, text, item_id="msg_1", pieces=2, **fields):
    """The events of a message, as OpenAI's server sends them."""
    about = {"item_id": item_id, "output_index": place, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": []}
    size = -(-len(text) // pieces)
    return [
        added(place, message_item("", item_id, status="in_progress")),
        event("content_part.added", part=part, **about),
        *(
            event("output_text.delta", delta=text[at : at + size], logprobs=[], **about)
            for at in range(0, len(text), size)
        ),
        event("output_text.done", text=text, logprobs=[], **about),
        event("content_part.done", part={**part, "text": text}, **about),
        done(place, message_item(text, item_id, **fields)),
    ]


def call_events(place, arguments, **fields):
    """The events of a call, as OpenAI's server sends them."""
    item = call_item(arguments, **fields)
    about = {"item_id": item["id"], "output_index": place}
    half = len(arguments) // 2
    return [
        added(place, {**item, "arguments": "", "status": "in_progress"}),
        event("function_call_arguments.delta", delta=arguments[:half], **about),
        event("function_call_arguments.delta", delta=arguments[half:], **about),
        event("function_call_arguments.done", arguments=arguments, name=item["name"], **about),
        done(place, item),
    ]


BEGIN = [
    event("created", response={"id": "resp_1"}),
    event("in_progress", response={"id": "resp_1"}),
]


def play(*events, signalled=True):
    assembler = ResponseAssembler("m", "p", "a")
    given = [one for value in events for one in assembler.take(value)]
    return given + list(assembler.end(signalled=signalled))


def message_of(*events):
    last = play(*events)[-1]
    assert isinstance(last, DoneEvent)
    return last.message


def kinds(events):
    return [type(one) for one in events]


# --- what OpenAI's server sends ---------------------------------------------------------------------------------------


def test_text():
    """Text gives Start, its block's events, and a Done with all that is known."""
    events = play(*BEGIN, *text_events(0, "Hello"), response("completed", [message_item("Hello")]))
    message = events[-1].message

    assert kinds(events) == [
        StartEvent, TextStartEvent, TextDeltaEvent, TextDeltaEvent, TextEndEvent, DoneEvent,
    ]  # fmt: skip
    assert (message.text, message.stop_reason, message.raw_stop_reason) == (
        "Hello", "stop", "completed",
    )  # fmt: skip
    assert (message.model, message.provider, message.api) == ("m", "p", "a")
    assert message.response_id == "resp_1"
    assert json.loads(message.content[0].signature) == {"id": "msg_1"}


def test_usage():
    """Input, cache reads, cache writes, output and reasoning are kept apart."""
    usage = message_of(*text_events(0, "a"), response("completed")).usage

    assert (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens) == (20, 50, 5)
    assert (usage.output_tokens, usage.reasoning_tokens) == (30, 20)


def test_the_phase_of_a_text_is_kept():
    """The phase of a message, which its model wants back, stands in the signature."""
    message = message_of(*text_events(0, "a", phase="commentary"), response("completed"))

    assert json.loads(message.content[0].signature) == {"id": "msg_1", "phase": "commentary"}


def test_calls():
    """A call is told by its call_id, keeps the id of its item apart, and makes the answer one of tool use."""
    events = play(
        *BEGIN,
        *call_events(0, '{"city":"Bonn"}'),
        *call_events(1, '{"city":"Oslo"}', call_id="call_2", item_id="fc_2"),
        response("completed"),
    )
    message = events[-1].message

    assert kinds(events[1:6]) == [
        ToolCallStartEvent, ToolCallDeltaEvent, ToolCallDeltaEvent, ToolCallEndEvent,
        ToolCallStartEvent,
    ]  # fmt: skip
    assert events[1] == ToolCallStartEvent(0, "call_1", "get_weather")
    assert [(call.id, call.arguments) for call in message.tool_calls] == [
        ("call_1", {"city": "Bonn"}), ("call_2", {"city": "Oslo"}),
    ]  # fmt: skip
    assert json.loads(message.tool_calls[0].signature) == {"id": "fc_1"}
    assert message.stop_reason == "tool_use"


def test_interleaved_calls():
    """Pieces of calls find their call when calls are told side by side."""
    one, other = call_events(0, '{"a":1}'), call_events(1, '{"a":2}', call_id="c2", item_id="fc_2")
    mixed = [step for pair in zip(one, other, strict=True) for step in pair]
    message = message_of(*mixed, response("completed"))

    assert [call.arguments for call in message.tool_calls] == [{"a": 1}, {"a": 2}]


def test_reasoning_summary():
    """A summary is thinking, its parts set apart; the whole item is its signature."""
    item = reasoning_item(summary=["Look.", "Answer."], encrypted_content="gAAA", status=None)
    about = {"item_id": "rs_1", "output_index": 0}
    events = play(
        *BEGIN,
        added(0, reasoning_item()),
        event("reasoning_summary_part.added", summary_index=0, part={}, **about),
        event("reasoning_summary_text.delta", summary_index=0, delta="Lo", **about),
        event("reasoning_summary_text.delta", summary_index=0, delta="ok.", **about),
        event("reasoning_summary_text.done", summary_index=0, text="Look.", **about),
        event("reasoning_summary_text.delta", summary_index=1, delta="Answer.", **about),
        done(0, item),
        *text_events(1, "Hi"),
        response("completed"),
    )
    thinking = events[-1].message.content[0]

    assert kinds(events[:6]) == [
        StartEvent, ThinkingStartEvent, ThinkingDeltaEvent, ThinkingDeltaEvent,
        ThinkingDeltaEvent, ThinkingEndEvent,
    ]  # fmt: skip
    assert thinking.thinking == "Look.\n\nAnswer."
    assert not thinking.redacted
    del item["status"]
    assert json.loads(thinking.signature) == item


def test_reasoning_text():
    """The reasoning of an open model is thinking."""
    about = {"item_id": "rs_1", "output_index": 0, "content_index": 0}
    item = reasoning_item(content=[{"type": "reasoning_text", "text": "hm"}])
    message = message_of(
        added(0, reasoning_item()),
        event("reasoning_text.delta", delta="hm", **about),
        done(0, item),
        *text_events(1, "ok"),
        response("completed"),
    )

    assert (message.thinking, message.text) == ("hm", "ok")
    assert json.loads(message.content[0].signature) == item


def test_reasoning_that_is_withheld():
    """Reasoning of which nothing may be seen is redacted thinking, and goes back all the same."""
    item = reasoning_item(encrypted_content="gAAA")
    message = message_of(
        added(0, reasoning_item(encrypted_content="gA")), done(0, item), *text_events(1, "ok"),
        response("completed"),
    )  # fmt: skip
    thinking = message.content[0]

    assert (thinking.thinking, thinking.redacted) == ("", True)
    assert json.loads(thinking.signature) == item


def test_reasoning_without_a_summary():
    """Reasoning goes back with a summary, which servers want though it be empty."""
    item = {"type": "reasoning", "id": "rs_1", "summary": None, "encrypted_content": "gAAA"}
    message = message_of(done(0, item), *text_events(1, "ok"), response("completed"))

    assert json.loads(message.content[0].signature)["summary"] == []


def test_reasoning_alone_can_be_asked_for_again():
    """An answer of which only the start of its reasoning came may still be asked for again; a text may not."""
    assembler = ResponseAssembler("m", "p", "a")
    for value in [*BEGIN, added(0, reasoning_item())]:
        assert list(assembler.take(value)) == []
    assert not assembler.has_content
    assert assembler.message("error", "x").content == ()
    assert kinds(assembler.take(text_events(1, "a")[2])) == [
        StartEvent, ThinkingStartEvent, TextStartEvent, TextDeltaEvent,
    ]  # fmt: skip
    assert not assembler.is_finished

    assert assembler.has_content


@pytest.mark.parametrize(
    "reason, stop", [("max_output_tokens", "length"), (None, "length"), ("a new one", "length")]
)
def test_incomplete(reason, stop):
    """A response that is incomplete is cut off, whatever its reason; the raw reason is kept."""
    details = {"reason": reason} if reason else None
    message = message_of(*text_events(0, "a"), response("incomplete", incomplete_details=details))

    assert (message.stop_reason, message.raw_stop_reason) == (stop, reason or "incomplete")


def test_content_filter():
    """A response that a filter ended is an error with what came of it."""
    details = {"reason": "content_filter"}
    last = play(*text_events(0, "a"), response("incomplete", incomplete_details=details))[-1]

    assert isinstance(last, ErrorEvent)
    assert isinstance(last.error, BadResponseError)
    assert (last.message.text, last.message.stop_reason) == ("a", "error")
    assert last.message.raw_stop_reason == "content_filter"


def test_refusal():
    """A refusal is an error; its words are the text of the message."""
    about = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    part = {"type": "refusal", "refusal": "I can't."}
    events = play(
        added(0, message_item("")),
        event("refusal.delta", delta="I ca", **about),
        event("refusal.delta", delta="n't.", **about),
        event("refusal.done", refusal="I can't.", **about),
        done(0, message_item("", content=[part])),
        response("completed"),
    )
    message = events[-1].message

    assert isinstance(events[-1], ErrorEvent)
    assert (message.text, message.stop_reason) == ("I can't.", "error")
    assert message.raw_stop_reason == "refusal"
    assert "refused" in message.error_message


def test_custom_call():
    """The text for a custom tool is the argument `input`, whatever characters it has."""
    text = 'print("ü😀\\n")\n'
    item = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "run"}
    about = {"item_id": "ctc_1", "output_index": 0}
    events = play(
        added(0, {**item, "input": ""}),
        *(event("custom_tool_call_input.delta", delta=one, **about) for one in text),
        event("custom_tool_call_input.done", input=text, **about),
        done(0, {**item, "input": text}),
        response("completed"),
    )
    call = events[-1].message.tool_calls[0]
    pieces = [one.delta for one in events if isinstance(one, ToolCallDeltaEvent)]

    assert call.arguments == {"input": text}
    assert json.loads("".join(pieces)) == {"input": text}
    assert json.loads(call.signature) == {"id": "ctc_1", "type": "custom_tool_call"}


def test_items_of_the_server_go_back():
    """An item that only the server understands is kept whole, as redacted thinking, in its place."""
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"q": "x"}}
    message = message_of(
        added(0, {**search, "status": "in_progress"}),
        event("web_search_call.searching", item_id="ws_1", output_index=0),
        done(0, search),
        *text_events(1, "ok"),
        response("completed"),
    )

    assert [type(block) for block in message.content] == [ThinkingContent, TextContent]
    assert message.content[0].redacted
    assert json.loads(message.content[0].signature) == search


# --- failures ---------------------------------------------------------------------------------------------------------


def failure_of(*events, signalled=True):
    with pytest.raises(LlmError) as raised:
        play(*events, signalled=signalled)
    return raised.value


def test_failed():
    """A response that failed raises what its error means, with the usage noted."""
    error = {"code": "server_error", "message": "The server had an error."}
    assembler = ResponseAssembler("m", "p", "a")
    with pytest.raises(BadResponseError, match="had an error") as raised:
        assembler.take(response("failed", error=error))

    assert raised.value.retryable
    assert assembler.message("error", "x").usage.output_tokens == 30


@pytest.mark.parametrize(
    "value",
    [
        {"type": "error", "code": "rate_limit_exceeded", "message": "slow down", "param": None},
        {"type": "error", "error": {"code": "rate_limit_exceeded", "message": "slow down"}},
        {"error": {"code": "rate_limit_exceeded", "message": "slow down"}},
    ],
)
def test_error_events(value):
    """An error event raises what it means, flat or nested."""
    error = failure_of(*BEGIN, value)

    assert isinstance(error, RateLimitError)
    assert error.retryable
    assert "slow down" in str(error)


def test_failed_without_words():
    """A response that failed and does not say why is an error too."""
    assert "the response failed" in str(failure_of(response("failed", error=None)))


def test_cancelled():
    """A response that somebody cancelled is an error."""
    last = play(*text_events(0, "a"), response("cancelled"))[-1]

    assert isinstance(last, ErrorEvent)
    assert "cancelled" in last.message.error_message


def test_cut_stream():
    """A stream that ends before the response did is an error, and may be asked for again."""
    error = failure_of(*BEGIN, *text_events(0, "a"), signalled=False)

    assert isinstance(error, LlmConnectionError)
    assert error.retryable
    assert "incomplete" in str(error)


def test_nothing_came():
    """A stream that says it is over and held nothing is an error."""
    assert "no answer" in str(failure_of())


def test_the_end_by_another_mark():
    """Where the server marks the end without telling the response whole, what came is the answer."""
    message = message_of(*text_events(0, "a")[:-1])

    assert (message.text, message.stop_reason, message.raw_stop_reason) == ("a", "stop", None)


def test_an_empty_response():
    """A response without any item is a message without content."""
    events = play(*BEGIN, response("completed"))

    assert kinds(events) == [StartEvent, DoneEvent]
    assert events[-1].message.content == ()


# --- what other servers send ------------------------------------------------------------------------------------------


def without(events, *names):
    return [{key: value for key, value in one.items() if key not in names} for one in events]


def test_without_indexes():
    """Items are told apart by id where there are no indexes, and may all end at the end."""
    text = text_events(0, "Hm.")
    one, other = call_events(1, '{"a":1}'), call_events(2, '{"a":2}', call_id="c2", item_id="fc_2")
    steps = [*text[:-1], *one[:-1], *other[:-1], text[-1], one[-1], other[-1]]
    message = message_of(*without(steps, "output_index", "content_index"), response("completed"))

    assert message.text == "Hm."
    assert [call.arguments for call in message.tool_calls] == [{"a": 1}, {"a": 2}]


def test_items_named_by_their_call():
    """A call whose item has no id may be named by its call_id."""
    item = {"type": "function_call", "call_id": "fc_9", "name": "t", "arguments": '{"a":1}'}
    message = message_of(
        event("output_item.added", item={**item, "arguments": ""}),
        event("function_call_arguments.delta", item_id="fc_9", delta='{"a":1}'),
        event("output_item.done", item=item),
        response("completed", [item]),
    )

    assert message.tool_calls == (ToolCall("fc_9", "t", {"a": 1}),)


def test_one_index_for_all():
    """Items are told apart by id where every index is the same."""
    events = [*call_events(0, '{"a":1}'), *call_events(0, '{"a":2}', call_id="c2", item_id="fc_2")]
    message = message_of(*events, response("completed"))

    assert [call.arguments for call in message.tool_calls] == [{"a": 1}, {"a": 2}]


def test_ids_that_change():
    """Items are told apart by index where ids differ from event to event."""
    events = [*text_events(0, "Hm."), *call_events(1, '{"a":1}')]
    for number, one in enumerate(events):
        if "item_id" in one:
            one["item_id"] = f"id_{number}"
        else:
            one["item"] = {**one["item"], "id": f"id_{number}"}
    output = [message_item("Hm.", "id_x"), call_item('{"a":1}', item_id="id_y")]
    message = message_of(*events, response("completed", output))

    assert message.text == "Hm."
    assert [call.arguments for call in message.tool_calls] == [{"a": 1}]


def test_unannounced():
    """Deltas of items that were never announced are taken for what they are."""
    message = message_of(
        event("reasoning_text.delta", delta="hm"),
        event("output_text.delta", delta="ok"),
        event("function_call_arguments.delta", item_id="c1", delta='{"a":1}'),
        event("output_item.done", item=call_item('{"a":1}', call_id="c1", name="late")),
        response("completed"),
    )

    assert (message.thinking, message.text) == ("hm", "ok")
    assert [(call.id, call.name, call.arguments) for call in message.tool_calls] == [
        ("c1", "late", {"a": 1})
    ]


@pytest.mark.parametrize("where", ["item", "part", "response"])
def test_told_whole_only(where):
    """What no delta told is taken from where it is told whole."""
    text, call = text_events(0, "Hm."), call_events(1, '{"a":1}')
    deltas = [one for one in [*text, *call] if not one["type"].endswith(".delta")]
    steps = {
        "item": [one for one in deltas if "item" in one],
        "part": [one for one in deltas if one["type"] != "response.output_item.done"],
        "response": BEGIN,
    }[where]
    output = [message_item("Hm."), call_item('{"a":1}')]
    message = message_of(*steps, response("completed", output if where == "response" else []))

    assert message.text == "Hm."
    assert [call.arguments for call in message.tool_calls] == [{"a": 1}]


def test_reasoning_told_whole_only():
    """Reasoning that no delta told is taken from its item."""
    item = reasoning_item(summary=["a", "b"], encrypted_content="x")
    message = message_of(done(0, item), *text_events(1, "ok"), response("completed"))

    assert message.thinking == "a\n\nb"


def test_what_deltas_left_out():
    """The rest of a text or of arguments that broke off in deltas is taken from where it is told whole."""
    text, call = text_events(0, "Hello"), call_events(1, '{"a":1}')
    del text[3], call[2]
    message = message_of(*text, *call, response("completed"))

    assert message.text == "Hello"
    assert message.tool_calls[0].arguments == {"a": 1}


def test_nothing_is_told_twice():
    """An item announced twice, or told whole again after its end, is one item."""
    text, call = text_events(0, "Hm."), call_events(1, '{"a":1}')
    output = [message_item("Hm."), call_item('{"a":1}')]
    message = message_of(
        *text[:1], *text, *call[:1], *call, call[1], call[-1], response("completed", output)
    )

    assert message.text == "Hm."
    assert [call.arguments for call in message.tool_calls] == [{"a": 1}]


def test_the_output_of_another_order_makes_no_second_call():
    """Items that the end tells in another order or under other ids are not taken for new ones."""
    events = [added(0, reasoning_item()), done(0, reasoning_item()), *call_events(1, '{"a":1}')]
    output = [call_item('{"a":1}', call_id="other", item_id="fc_other")]
    message = message_of(*events, response("completed", output))

    assert [call.id for call in message.tool_calls] == ["call_1"]


def test_arguments_as_an_object():
    """Arguments may come as an object in place of its text."""
    item = call_item({"a": 1})
    message = message_of(added(0, {**item, "arguments": {}}), done(0, item), response("completed"))

    assert message.tool_calls[0].arguments == {"a": 1}


def test_a_call_without_arguments():
    """A call of which no arguments are told has none."""
    message = message_of(done(0, call_item(None)), response("completed"))

    assert message.tool_calls[0].arguments == {}


def test_halves_of_characters():
    """A character cut in two is put together; a half that stays alone is replaced."""
    about = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    events = play(
        added(0, message_item("")),
        event("output_text.delta", delta="a\ud83d", **about),
        event("output_text.delta", delta="\ude00b\ud83d", **about),
        *call_events(1, '{"x":"\ud83d"}'),
        response("completed"),
    )
    message = events[-1].message
    for one in events:
        getattr(one, "delta", "").encode()

    assert message.text == "a😀b\ufffd"
    assert message.tool_calls[0].arguments == {"x": "\ufffd"}


def test_a_half_that_is_told_whole_later():
    """A half that waits is replaced by the whole character where the text is told whole."""
    text = text_events(0, "a😀")
    about = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    text[2:4] = [event("output_text.delta", delta="a\ud83d", **about)]

    assert message_of(*text, response("completed")).text == "a😀"


# --- answers that come whole, and damage ------------------------------------------------------------------------------


def whole(status="completed", *output, **fields):
    return response(status, output, **fields)["response"]


def test_whole_answer():
    """A response that was not streamed is read like the end of one that was."""
    value = whole("completed", reasoning_item(summary=["hm"]), message_item("ok"))
    message = whole_answer(value, "m", "p", "a")

    assert (message.thinking, message.text, message.stop_reason) == ("hm", "ok", "stop")
    assert message.usage.output_tokens == 30


def test_whole_answer_without_a_status():
    """A response that does not tell its status is complete."""
    value = whole("completed", call_item('{"a":1}'))
    del value["status"]

    assert whole_answer(value, "m", "p", "a").stop_reason == "tool_use"


@pytest.mark.parametrize(
    "value, words",
    [
        (None, "no response object"),
        ({"choices": []}, "no response object"),
        (whole("queued"), "queued"),
        (whole("failed", error={"message": "broken"}), "broken"),
    ],
)
def test_no_whole_answer(value, words):
    """What is no response, or one that is not over or failed, is an error that says so."""
    with pytest.raises(LlmError, match=words):
        whole_answer(value, "m", "p", "a")


SAMPLE = [
    *BEGIN,
    added(0, reasoning_item()),
    event("reasoning_summary_text.delta", item_id="rs_1", output_index=0, delta="hm"),
    done(0, reasoning_item(summary=["hm"])),
    *text_events(1, "Hello"),
    *call_events(2, '{"a":1}'),
    response("completed", [message_item("Hello"), call_item('{"a":1}')]),
]
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(st.data())
def test_damaged_events(data):
    """Whatever is missing, repeated or of another kind in events, no error but those that say so is raised."""
    events = [dict(one) for one in SAMPLE]
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(events) - 1))
        key = data.draw(st.sampled_from(sorted(events[place])))
        action = data.draw(st.sampled_from(["drop", "repeat", "junk", "inner"]))
        if action == "drop":
            del events[place]
        elif action == "repeat":
            events.insert(place, events[place])
        elif action == "junk":
            events[place] = {**events[place], key: data.draw(JUNK)}
        elif isinstance(events[place].get("item"), dict):
            inner = data.draw(st.sampled_from(["type", "id", "content", "summary", "arguments"]))
            events[place] = {
                **events[place],
                "item": {**events[place]["item"], inner: data.draw(JUNK)},
            }
    try:
        given_events = play(*events, data.draw(JUNK))
    except LlmError:
        return
    ends = [one for one in given_events if isinstance(one, (DoneEvent, ErrorEvent))]

    assert ends == [given_events[-1]]
