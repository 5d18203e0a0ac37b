"""Building an answer piece by piece."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from yiemagent.builder import MessageBuilder
from yiemagent.messages import LlmUsage, TextContent, ThinkingContent, ToolCall
from yiemagent.streaming import (
    DoneEvent,
    PartialMessage,
    TextEndEvent,
    TextStartEvent,
    ThinkingEndEvent,
    ThinkingStartEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
)


def test_an_answer_is_built_with_its_events():
    """Each piece gives its event, and the whole is the message that they amount to."""
    builder = MessageBuilder("m", "p", "a")
    assert not builder.has_content
    thinking, first = builder.begin("thinking")
    text, second = builder.begin("text")
    call, third = builder.begin("toolCall", call_id="c1", name="add")
    builder.thinking_delta(thinking, "hm")
    builder.text_delta(text, "Hel")
    builder.sign(thinking, "sig", redacted=True)
    builder.sign(thinking, "sig2")
    builder.text_delta(text, "lo")
    builder.arguments_delta(call, '{"a": 1}')
    ends = builder.end_blocks()
    builder.usage = LlmUsage(1, 2)
    builder.response_id = "r1"
    message = builder.message("tool_use", raw_stop_reason="tool_calls")

    assert [first, second, third] == [
        ThinkingStartEvent(0),
        TextStartEvent(1),
        ToolCallStartEvent(2, "c1", "add"),
    ]
    assert ends == [
        ThinkingEndEvent(0, "hm", "sig2", redacted=True),
        TextEndEvent(1, "Hello"),
        ToolCallEndEvent(2, ToolCall("c1", "add", {"a": 1})),
    ]
    assert message.content == (
        ThinkingContent("hm", "sig2", True),
        TextContent("Hello"),
        ToolCall("c1", "add", {"a": 1}),
    )
    assert (message.model, message.provider, message.api) == ("m", "p", "a")
    assert (message.usage, message.response_id) == (LlmUsage(1, 2), "r1")
    assert (message.stop_reason, message.raw_stop_reason) == ("tool_use", "tool_calls")
    assert message.timestamp == builder.start.timestamp
    assert builder.has_content
    assert builder.end_blocks() == []


def test_a_calls_name_and_id_may_come_late():
    """Providers send them in pieces; what is not given stays."""
    builder = MessageBuilder()
    index, _ = builder.begin("toolCall")
    builder.name_call(index, name="ad")
    builder.name_call(index, call_id="c1")
    builder.name_call(index, name="add")

    assert builder.call_name(index) == "add"
    assert builder.tool_calls == (ToolCall("c1", "add", {}, ""),)
    assert builder.end_block(index) == ToolCallEndEvent(0, ToolCall("c1", "add"))
    assert builder.tool_calls == (ToolCall("c1", "add"),)


def test_a_call_without_an_id_gets_one():
    """Its end carries a fresh id, which the message keeps."""
    builder = MessageBuilder()
    index, _ = builder.begin("toolCall", name="t")
    end = builder.end_block(index)

    assert end.tool_call.id.startswith("call_")
    assert builder.message("tool_use").tool_calls == (end.tool_call,)


def test_a_broken_answer_holds_what_came():
    """Blocks that are still open are taken as they are; arguments that are cut off stay text."""
    builder = MessageBuilder()
    text, _ = builder.begin("text")
    builder.text_delta(text, "Hel")
    call, _ = builder.begin("toolCall", call_id="c1", name="t")
    builder.arguments_delta(call, '{"a": ')
    message = builder.message("error", error_message="the connection broke")

    assert message.content == (TextContent("Hel"), ToolCall("c1", "t", '{"a": '))
    assert message.error_message == "the connection broke"
    assert builder.tool_calls == (ToolCall("c1", "t", {}, '{"a": '),)


def test_the_models_name_may_come_late():
    """The provider's own name of the model is the message's."""
    builder = MessageBuilder("alias")
    builder.set_model("model-2026")

    assert builder.message("stop").model == "model-2026"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["text", "thinking", "toolCall"]), st.lists(st.text(), max_size=4)
        ),
        max_size=5,
    )
)
def test_the_events_amount_to_the_message(blocks):
    """Folding what the builder gave makes the same content as the message it gives."""
    builder, events = MessageBuilder(), []
    for kind, deltas in blocks:
        index, start = builder.begin(kind, call_id=f"c{len(events)}", name="t")
        events.append(start)
        add = {
            "text": builder.text_delta,
            "thinking": builder.thinking_delta,
            "toolCall": builder.arguments_delta,
        }[kind]
        events += [add(index, delta) for delta in deltas]
    events += builder.end_blocks()
    partial = PartialMessage.first()
    for event in events:
        partial = partial.add(event)
    message = builder.message("stop")

    assert partial.build().content == message.content
    assert partial.add(DoneEvent(message)).build().content == message.content
