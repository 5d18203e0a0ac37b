"""Content blocks and messages."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, timedelta

import attrs
import pytest

from yiemagent.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ImageContent,
    LlmModel,
    LlmUsage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    content_blocks,
    content_text,
    model_id,
)
from yiemagent.payload import FrozenDict

IMAGE = ImageContent("QUJD", "image/png")
CALL = ToolCall("c1", "add", {"a": [1]})


@pytest.mark.parametrize(
    ("content", "blocks"),
    [
        ("hi", (TextContent("hi"),)),
        ("", (TextContent(""),)),
        (None, ()),
        ([], ()),
        (IMAGE, (IMAGE,)),
        (["see", IMAGE], (TextContent("see"), IMAGE)),
        ((b for b in [IMAGE]), (IMAGE,)),
    ],
)
def test_content_is_accepted_in_every_form(content, blocks):
    """A string is one text block, a block is itself, an iterable is its blocks, None is nothing."""
    assert content_blocks(content) == blocks


def test_a_tuple_of_blocks_is_kept():
    """Content that is in its form already is the same object."""
    blocks = (IMAGE, CALL)

    assert content_blocks(blocks) is blocks


@pytest.mark.parametrize("content", [5, b"bytes", {"type": "text"}, [5], [{"type": "text"}]])
def test_what_is_no_content_is_refused(content):
    """A number, bytes or a dict is a caller's mistake, told with the value."""
    with pytest.raises(TypeError, match="content"):
        UserMessage(content)


@pytest.mark.parametrize(
    ("made", "wrong"),
    [
        (lambda: TextContent(None), "TextContent.text must be text, not NoneType"),
        (lambda: ImageContent(b"png", "image/png"), "ImageContent.data must be text, not bytes"),
        (lambda: ImageContent("cG5n", None), "ImageContent.mime_type must be text, not NoneType"),
        (lambda: ThinkingContent(7), "ThinkingContent.thinking must be text, not int"),
        (lambda: ToolCall("a", None), "ToolCall.name must be text, not NoneType"),
        (lambda: AssistantMessage(model=None), "AssistantMessage.model must be text"),
        (lambda: UserMessage((ToolCall("a", "b"),)), "content holds ToolCall, which only a model"),
        (lambda: ToolResultMessage("a", "b", [ThinkingContent("x")]), "holds ThinkingContent"),
    ],
)
def test_what_a_block_can_not_hold_is_refused(made, wrong):
    """It is refused where it is made, so that the tool or the model that made it is told, and no session is hurt."""
    with pytest.raises(TypeError, match=wrong):
        made()


@pytest.mark.parametrize(
    "message",
    [
        UserMessage("hi"),
        AssistantMessage("hi"),
        ToolResultMessage("a", "b", "hi"),
        BashExecutionMessage("echo hi", "hi"),
        CompactionSummaryMessage("hi"),
        BranchSummaryMessage("hi"),
        CustomMessage("note", "hi"),
    ],
)
def test_every_message_has_a_text(message):
    """Whoever prints a conversation need not ask what kind each message is."""
    assert message.text == "hi"


def test_an_answer_ends_for_a_reason_that_is_known():
    """A provider's own word for it is no stop reason."""
    with pytest.raises(ValueError, match=r"stop_reason must be one of 'stop', .* not 'tool_calls'"):
        AssistantMessage("hi", stop_reason="tool_calls")


def test_text_blocks_are_joined():
    """The text of a message is its text blocks; thinking and calls are told apart."""
    message = AssistantMessage(
        [TextContent("a"), ThinkingContent("hm"), CALL, TextContent("b"), ThinkingContent("!")]
    )

    assert message.text == "ab"
    assert message.thinking == "hm!"
    assert message.tool_calls == (CALL,)
    assert content_text([IMAGE]) == ""
    assert UserMessage(["x", IMAGE, "y"]).text == "xy"
    assert ToolResultMessage("c1", "add", "3").text == "3"


@pytest.mark.parametrize(
    ("stop", "failed"), [("error", True), ("aborted", True), ("stop", False), ("length", False)]
)
def test_an_answer_knows_whether_it_failed(stop, failed):
    """Errors and aborts are failures, a cut answer is none."""
    assert AssistantMessage("x", stop_reason=stop).failed is failed


def test_arguments_are_an_object_or_the_models_text():
    """A mapping becomes read-only, text stays text, None is no arguments, anything else is refused."""
    assert isinstance(CALL.arguments, FrozenDict)
    assert ToolCall("c", "t").arguments == {}
    assert ToolCall("c", "t", None).arguments == {}
    assert ToolCall("c", "t", '{"a": ').arguments == '{"a": '
    with pytest.raises(TypeError, match="arguments"):
        ToolCall("c", "t", [1])


def test_messages_cannot_change():
    """Neither a field nor a payload inside can be set."""
    message = ToolResultMessage("c1", "add", "3", details={"rows": [1]})
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        message.content = ()
    with pytest.raises(TypeError):
        message.details["rows"].append(2)
    with pytest.raises(TypeError):
        CALL.arguments["a"] = 2


def test_timestamps_are_in_utc():
    """Every kind of message is dated, timezone-aware."""
    for message in (
        UserMessage("x"),
        AssistantMessage("x"),
        CustomMessage("k"),
        BranchSummaryMessage("s"),
    ):
        assert message.timestamp.tzinfo is UTC
        assert message.timestamp.utcoffset() == timedelta(0)


def test_messages_survive_copy_and_pickle():
    """They come back equal, with the same role."""
    for message in (
        UserMessage(["x", IMAGE]),
        AssistantMessage([CALL], usage=LlmUsage(1, 2)),
        ToolResultMessage("c1", "add", "3", details={"a": [1]}, added_tool_names=["x"]),
        BashExecutionMessage("ls"),
        CustomMessage("k", "text", details={"a": 1}),
    ):
        for twin in (pickle.loads(pickle.dumps(message)), copy.deepcopy(message)):
            assert twin == message
            assert twin.role == message.role


def test_an_images_data_is_not_in_its_repr():
    """A log line stays short."""
    assert repr(ImageContent("A" * 10_000, "image/png")) == (
        "ImageContent(data=<10000 base64 characters>, mime_type='image/png')"
    )


# --- what a model is sent --------------------------------------------------------------------------------------------


def test_model_messages_are_sent_as_they_are():
    """User, assistant and tool-result messages are themselves."""
    for message in (UserMessage("x"), AssistantMessage("x"), ToolResultMessage("c", "t")):
        assert message.to_llm() is message


@pytest.mark.parametrize(
    ("message", "parts"),
    [
        (BashExecutionMessage("ls", "a.txt\n", 0), ["`ls`", "```\na.txt\n```"]),
        (BashExecutionMessage("true", " \n", 0), ["`true`", "printed nothing"]),
        (BashExecutionMessage("x", "no", 2), ["exit code 2"]),
        (BashExecutionMessage("x", "no", None, cancelled=True), ["cancelled"]),
        (BashExecutionMessage("x", "n", truncated=True, full_output_path="/tmp/o"), ["/tmp/o"]),
        (CompactionSummaryMessage("long ago", 5), ["<summary>\nlong ago\n</summary>"]),
        (BranchSummaryMessage("tried it", "e1"), ["<summary>\ntried it\n</summary>"]),
        (CustomMessage("note", "remember"), ["remember"]),
    ],
)
def test_application_kinds_become_user_messages(message, parts):
    """Each kind says itself what a model reads of it, under its own time."""
    sent = message.to_llm()

    assert sent.role == "user"
    assert sent.timestamp == message.timestamp
    for part in parts:
        assert part in sent.text


def test_a_successful_command_names_no_exit_code():
    """Only a failure is worth a line."""
    assert "exit code" not in BashExecutionMessage("ls", "x", 0).to_llm().text


def test_some_messages_are_not_sent():
    """A command that is excluded, and a kind without content, are for people only."""
    assert BashExecutionMessage("ls", exclude_from_context=True).to_llm() is None
    assert CustomMessage("mark").to_llm() is None


# --- usage and models ------------------------------------------------------------------------------------------------


def test_usage_adds_up():
    """Counts add, costs add where they are known, and the total leaves reasoning out, which is output already."""
    total = LlmUsage(1, 2, 3, 4, 2, 0.5) + LlmUsage(10, 20, 30, 40, 5)

    assert total == LlmUsage(11, 22, 33, 44, 7, 0.5)
    assert total.total_tokens == 110
    assert (LlmUsage() + LlmUsage()).cost is None
    assert (LlmUsage(cost=1.0) + LlmUsage(cost=0.25)).cost == 1.25


def test_a_model_is_named_by_its_id():
    """A model, a name, or none."""
    assert model_id(LlmModel("m1", "openai")) == "m1"
    assert model_id("m2") == "m2"
    assert model_id(None) == ""
    assert LlmModel("m", input_kinds=["text"]).input_kinds == ("text",)
