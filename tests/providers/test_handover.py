"""Histories handed from one model to another."""

from __future__ import annotations

import re
import threading
import weakref
from datetime import UTC, datetime

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yiemagent.history import repair
from yiemagent.messages import (
    AssistantMessage,
    ImageContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.providers.handover import (
    BEGINNING,
    EMPTY_MESSAGE,
    MAX_CONVERSATIONS,
    HandOver,
    Target,
    hand_over,
)
from yiemagent.transcript import Transcript

HIGH, LOW = "\ud83d", "\ude00"
NOW = datetime(2026, 1, 2, tzinfo=UTC)
PNG = ImageContent("iVBORw0KGgo=", "image/png")

CLAUDE = Target(
    api="anthropic-messages",
    provider="anthropic",
    model="claude",
    image_types=("image/png", "image/jpeg", "image/gif", "image/webp"),
    unsigned_thinking="text",
    user_first=True,
)
CHAT = Target(
    api="openai-chat",
    provider="openai",
    model="gpt",
    max_call_id=40,
    unique_call_ids=False,
    reads_tool_images=False,
)
RESPONSES = Target(api="openai-responses", provider="openai", model="gpt")
GEMINI = Target(
    api="gemini",
    provider="google",
    model="gemini",
    call_id=None,
    max_call_id=None,
    keeps_answer_images=True,
    user_first=True,
)
MISTRAL = Target(
    api="openai-chat",
    provider="mistral",
    model="mistral",
    call_id=re.compile("[a-zA-Z0-9]{9}"),
    max_call_id=9,
    checks_own_ids=True,
    foreign_thinking="drop",
    unsigned_thinking="drop",
    reads_images=False,
)
TARGETS = [CLAUDE, CHAT, RESPONSES, GEMINI, MISTRAL]


def by(target, *blocks):
    """An answer of a target's model."""
    return AssistantMessage(
        blocks, api=target.api, provider=target.provider, model=target.model, timestamp=NOW
    )


def user(*blocks):
    return UserMessage(blocks, NOW)


def result(call_id, *blocks, name="look"):
    return ToolResultMessage(call_id, name, blocks, timestamp=NOW)


def given_to(target, *messages):
    """What a target is given for messages, by a hand-over of its own."""
    return list(HandOver(target).messages(messages))


def blocks_of(target, *blocks, maker=RESPONSES):
    """What a target is given for one answer."""
    (message,) = given_to(attrs.evolve(target, user_first=False), by(maker, *blocks))
    return message.content


def call_ids(messages):
    return [c.id for m in messages if isinstance(m, AssistantMessage) for c in m.tool_calls]


# --- what is opaque --------------------------------------------------------------------------------------------------

SIGNED = (
    ThinkingContent("hm", "sig"),
    ThinkingContent("", "only a signature"),
    ThinkingContent("", "withheld", redacted=True),
    TextContent("ok", "mark"),
    TextContent("", "an empty part with a mark"),
    ToolCall("call_1", "look", {"n": 1}, signature="thought"),
)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"{t.provider} {t.api}")
def test_a_model_takes_its_own_marks_back(target):
    """Signatures, redacted thinking and empty signed blocks of the same model come back as the same object."""
    call_id = "call56789"  # fits every target
    answer = by(target, *SIGNED[:-1], attrs.evolve(SIGNED[-1], id=call_id))
    history = [user(TextContent("hi")), answer, result(call_id, TextContent("r"))]

    assert HandOver(target).messages(history) is history


@pytest.mark.parametrize("changed", ["api", "provider", "model"])
def test_another_model_gets_no_marks(changed):
    """Another model, provider or API gets the thinking as text, and nothing that is signed or redacted."""
    blocks = blocks_of(CLAUDE, *SIGNED, maker=attrs.evolve(CLAUDE, **{changed: "other"}))

    assert blocks == (
        TextContent("hm\n\n"),
        TextContent("ok"),
        ToolCall("call_1", "look", {"n": 1}),
    )


def test_an_answer_that_names_no_model_is_nobodys_own():
    """A message made by hand keeps its words and loses its marks."""
    blocks = blocks_of(CLAUDE, *SIGNED, maker=Target(api=""))

    assert not any(block.signature for block in blocks)


def test_thinking_that_becomes_text_stands_apart_from_other_text():
    """Empty lines divide it from text before and behind it, and from other thinking; alone it is as it was."""
    text = TextContent("ok")
    think = ThinkingContent(" hm\n")

    assert blocks_of(CHAT, think, maker=CLAUDE) == (TextContent("hm"),)
    assert blocks_of(CHAT, text, think, text, maker=CLAUDE)[1] == TextContent("\n\nhm\n\n")
    joined = "".join(block.text for block in blocks_of(CHAT, think, think, text, maker=CLAUDE))
    assert joined == "hm\n\nhm\n\nok"


@pytest.mark.parametrize(
    ("maker", "target", "blocks"),
    [
        (CLAUDE, CLAUDE, (TextContent("hm"),)),
        (CHAT, CHAT, (ThinkingContent("hm"),)),
        (CLAUDE, attrs.evolve(CLAUDE, unsigned_thinking="drop"), ()),
        (CHAT, attrs.evolve(CLAUDE, foreign_thinking="drop"), ()),
    ],
)
def test_thinking_is_kept_told_or_dropped_as_the_target_says(maker, target, blocks):
    """Own thinking without a signature and others' thinking have a rule each."""
    assert blocks_of(target, ThinkingContent("hm"), TextContent("x"), maker=maker)[:-1] == tuple(
        TextContent(b.text + "\n\n") if isinstance(b, TextContent) else b for b in blocks
    )


# --- ids and names ---------------------------------------------------------------------------------------------------


def test_an_id_that_does_not_fit_is_replaced_in_call_and_result():
    """Characters that a target can't take become underscores, in the call and its result alike."""
    messages = given_to(
        CLAUDE,
        user(TextContent("hi")),
        by(CHAT, ToolCall("functions.look:0", "look")),
        result("functions.look:0", TextContent("r")),
    )

    assert messages[1].tool_calls[0].id == "functions_look_0"
    assert messages[2].tool_call_id == "functions_look_0"


def test_ids_that_become_the_same_are_kept_apart():
    """Of ids that would be equal once they fit, the later is made anew; so is one that is too long."""
    ids = ["a|b", "a:b", "x" * 100 + "1", "x" * 100 + "2"]
    answer = by(CHAT, *[ToolCall(call_id, "look") for call_id in ids])
    messages = given_to(RESPONSES, answer, *[result(call_id) for call_id in ids])
    fit = call_ids(messages)

    assert fit[0] == "a_b"
    assert len(set(fit)) == 4
    assert all(RESPONSES.takes_id(call_id) for call_id in fit)
    assert [m.tool_call_id for m in messages[1:]] == fit


def test_an_id_that_is_made_is_nobody_elses():
    """Where even the made id is taken, another is made."""
    ids = [RESPONSES.made_id("a:b", 0), "a|b", "a:b"]
    answer = by(CHAT, *[ToolCall(call_id, "look") for call_id in ids])
    messages = given_to(RESPONSES, answer, *map(result, ids))

    assert call_ids(messages) == [ids[0], "a_b", RESPONSES.made_id("a:b", 1)]


def test_ids_that_come_again_in_later_answers_are_made_distinct_where_the_target_asks():
    """A server that counts its calls from 0 in each answer gives the same ids again; not every API takes that."""
    history = [user(TextContent("hi"))]
    for _ in range(3):
        history += [by(CHAT, ToolCall("call_0", "look")), result("call_0")]

    assert len(set(call_ids(given_to(CLAUDE, *history)))) == 3
    assert HandOver(CHAT).messages(history) is history


def test_own_ids_stay_as_the_server_gave_them():
    """Some servers hide what they need again in ids that break their API's rule; only a strict one has them checked."""
    long_id = "call_1__thought__" + "x" * 200
    history = [by(CHAT, ToolCall(long_id, "look")), result(long_id)]

    assert HandOver(CHAT).messages(history) is history
    strict = by(MISTRAL, ToolCall("abcdefghi_2", "look"))
    assert MISTRAL.takes_id(call_ids(given_to(MISTRAL, strict))[0])


def test_a_tool_name_that_no_api_takes_is_made_to_fit():
    """What a model called although no tool has such a name is sent in a form that servers take, the result too."""
    names = ["get weather!", "", "x" * 70, "look"]
    answer = by(CHAT, *[ToolCall(f"c{n}", name) for n, name in enumerate(names)])
    results = [result(f"c{n}", TextContent("r"), name="other") for n in range(4)]
    messages = given_to(CHAT, answer, *results)
    fit = ["get_weather_", "unnamed_tool", "x" * 64, "look"]

    assert [call.name for call in messages[0].tool_calls] == fit
    assert [message.tool_name for message in messages[1:]] == fit


def test_a_tool_name_begins_as_the_target_wants_it():
    """Where a name may not begin with a digit, it begins with an underscore."""
    target = attrs.evolve(GEMINI, tool_name=re.compile("[a-z_][a-z0-9_]*"), user_first=False)

    assert blocks_of(target, ToolCall("c", "2fast"))[0].name == "_2fast"


# --- images ----------------------------------------------------------------------------------------------------------


def test_images_that_a_model_cannot_see_become_a_note():
    """Images side by side become one note that says what was there; the text around them stays."""
    jpeg = ImageContent("/9j/", "image/jpeg")
    (message,) = given_to(MISTRAL, user(TextContent("a"), PNG, jpeg, TextContent("b"), PNG))

    assert [block.text for block in message.content] == [
        "a",
        "[2 images (image/png, image/jpeg) were here, which can't be shown to you.]",
        "b",
        "[An image (image/png) was here, which can't be shown to you.]",
    ]


def test_images_of_tool_results_have_a_rule_of_their_own():
    """A model may see images of users and none of tools."""
    messages = given_to(CHAT, user(PNG), by(CHAT, ToolCall("c", "look")), result("c", PNG))

    assert messages[0].content == (PNG,)
    assert messages[2].text == "[An image (image/png) was here, which can't be shown to you.]"


@pytest.mark.parametrize(
    "image", [ImageContent("PHN2Zz4=", "image/svg+xml"), attrs.evolve(PNG, data="")]
)
def test_images_that_an_api_refuses_become_a_note(image):
    """A type that the API does not read, or no data, would have every further request refused."""
    (message,) = given_to(CLAUDE, user(image))

    assert message.text == f"[An image ({image.mime_type}) was here, which can't be shown to you.]"


def test_types_of_images_go_by_their_registered_names():
    """Case, parameters and the common wrong name of JPEG are put right."""
    (message,) = given_to(CLAUDE, user(ImageContent("/9j/", "image/JPG; q=1")))

    assert message.content == (ImageContent("/9j/", "image/jpeg"),)


def test_images_of_answers_go_back_to_their_own_model_only():
    """A model that draws gets its drawings back; another is told that there was one."""
    assert blocks_of(GEMINI, PNG, maker=GEMINI) == (PNG,)
    note = TextContent("[An image (image/png) was here, which can't be shown to you.]")
    assert blocks_of(GEMINI, TextContent("see"), PNG, maker=RESPONSES) == (TextContent("see"), note)
    assert blocks_of(RESPONSES, PNG, TextContent("see"), maker=RESPONSES)[0] == note


# --- what is empty ---------------------------------------------------------------------------------------------------


def test_blank_blocks_are_left_out():
    """Blank text and blank thinking go nowhere; a result without content stays, since its call needs it."""
    blank = TextContent(" \n")
    answer = by(RESPONSES, blank, ThinkingContent(" "), ToolCall("c", "look"))
    messages = given_to(CLAUDE, user(blank, TextContent("hi")), answer, result("c", blank))

    assert [message.content for message in messages] == [
        (TextContent("hi"),),
        (ToolCall("c", "look"),),
        (),
    ]


def test_an_answer_of_which_nothing_is_left_is_left_out():
    """What another model only thought in secret leaves no message."""
    redacted = by(RESPONSES, ThinkingContent("", "data", redacted=True))

    assert given_to(CLAUDE, user(TextContent("a")), redacted, user(TextContent("b"))) == [
        user(TextContent("a")),
        user(TextContent("b")),
    ]


def test_an_empty_user_message_says_so():
    """It is not left out: a conversation must not end with what the model itself said."""
    said = by(CLAUDE, TextContent("hello"))

    assert given_to(CLAUDE, user(TextContent("hi")), said, user(TextContent(" ")))[-1] == user(
        TextContent(EMPTY_MESSAGE)
    )


def test_a_conversation_begins_with_the_user_where_it_must():
    """An answer that stands first, or is first to be sent, gets a user message before it, the same each time."""
    redacted, hello = (
        by(CHAT, ThinkingContent("", "x", redacted=True)),
        by(CLAUDE, TextContent("hello")),
    )
    begun = [user(TextContent(BEGINNING)), hello]

    assert given_to(CLAUDE, hello) == begun
    assert given_to(CLAUDE, redacted, hello) == begun
    assert given_to(RESPONSES, hello) == [hello]


def test_no_messages_are_no_problem():
    """Nothing comes back as the same nothing."""
    empty = Transcript()

    assert HandOver(CLAUDE).messages(empty) is empty


# --- histories that grow ---------------------------------------------------------------------------------------------


class CountedBlocks(tuple):
    """Content that counts how often it is walked."""

    __slots__ = ()
    walks = 0

    def __iter__(self):
        CountedBlocks.walks += 1
        return super().__iter__()


@pytest.mark.parametrize("image", [(), (ImageContent("PHN2Zz4=", "image/svg+xml"),)])
def test_a_growing_history_is_walked_once(image):
    """Each message is read a bounded number of times, however often the history grows, changed or not."""
    CountedBlocks.walks = 0
    handover, transcript = HandOver(CLAUDE), Transcript()
    for _ in range(50):
        said = user(*CountedBlocks((TextContent("hi"), *image)))
        transcript = transcript.append(attrs.evolve(said, content=CountedBlocks(said.content)))
        handover.messages(transcript)
        transcript = transcript.append(by(CLAUDE, TextContent("hello")))
        handover.messages(transcript)

    assert 50 <= CountedBlocks.walks <= 500


def test_what_was_changed_is_the_same_object_next_time():
    """What bodies made of a message can be known by identity, that of the last message too."""
    handover = HandOver(MISTRAL)
    history = [user(PNG), by(CLAUDE, ThinkingContent("hm"), TextContent("ok")), user(PNG)]
    first = handover.messages(history)
    second = handover.messages([*history, by(MISTRAL, TextContent("a")), user(TextContent("b"))])

    assert all(one is other for one, other in zip(first, second[:3], strict=True))


def test_nothing_is_kept_of_a_history_that_is_gone():
    """What is known of a history goes with its last message."""
    handover = HandOver(CLAUDE)
    history = [user(TextContent("hi")), by(CLAUDE, TextContent("hello")), user(PNG)]
    handover.messages(history)
    alive = [weakref.ref(message) for message in history]
    del history

    assert [message() for message in alive] == [None, None, None]


def test_a_message_may_stand_in_two_histories():
    """What is known of a history is not taken for one that goes through the same message."""
    handover, common = HandOver(CLAUDE), user(TextContent("go on"))
    one, other = [user(PNG), common], [user(TextContent("hi")), common, user(TextContent("x"))]
    handover.messages(one)

    assert handover.messages(other) is other
    assert list(handover.messages(one)) == given_to(CLAUDE, *one)


def test_so_many_histories_are_known_and_no_more():
    """Of more histories than are kept the oldest is forgotten, and given afresh."""
    handover = HandOver(MISTRAL)
    histories = [[user(PNG), user(TextContent(f"{n}"))] for n in range(MAX_CONVERSATIONS + 1)]
    first = [handover.messages(history)[0] for history in histories]
    again = [handover.messages(history)[0] for history in reversed(histories)]

    assert again == first[::-1]
    assert [one is other for one, other in zip(again, first[::-1], strict=True)].count(False) == 1


def test_equal_targets_share_a_hand_over():
    """Providers that ask the same model give the same objects for the same history."""
    history = [user(ImageContent("", "image/png")), by(CLAUDE, TextContent("hello"))]
    one = hand_over(attrs.evolve(CLAUDE), history)
    other = hand_over(attrs.evolve(CLAUDE), [*history, user(TextContent("go on"))])

    assert one[0] is other[0]


def test_many_threads_share_a_hand_over():
    """Each thread gets for its branch of a common history what a hand-over of its own would give."""
    handover, common = HandOver(CLAUDE), []
    for n in range(20):
        common += [
            user(TextContent(f"{n}"), PNG),
            by(CHAT, ToolCall("call_0", "look")),
            result("call_0"),
        ]
    wrong, start = [], threading.Barrier(4)

    def branch(name):
        history = common.copy()
        start.wait()
        for n in range(40):
            history += [
                user(TextContent(f"{name} {n}")),
                by(CHAT, ToolCall("call_0", "look")),
                result("call_0"),
            ]
            if list(handover.messages(history)) != given_to(CLAUDE, *history):
                wrong.append((name, n))

    threads = [threading.Thread(target=branch, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


# --- any history, any target -----------------------------------------------------------------------------------------

TEXTS = st.sampled_from(["", " \n", "hi", "so\n", f"a{HIGH}b", "ü"])
MARKS = st.sampled_from([None, "", "mark"])
LONG_IDS = ["x" * 64, "y" * 70, "y" * 71]
MADE_IDS = [RESPONSES.made_id("a:b", 0), MISTRAL.made_id("call_0", 0)]
PLAIN_IDS = ["a|b", "a:b", "a_b", "call_0", "call56789", "", "ü", f"c{HIGH}"]
IDS = st.sampled_from([*PLAIN_IDS, *LONG_IDS, *MADE_IDS])
NAMES = st.sampled_from(["look", "get weather", "", "n" * 70, f"l{LOW}"])
IMAGES = st.sampled_from(
    [PNG, ImageContent("", "image/png"), ImageContent("PHN2Zz4=", "image/svg+xml")]
)
SHOWN = st.lists(st.one_of(st.builds(TextContent, TEXTS), IMAGES), max_size=3)
ANSWERED = st.lists(
    st.one_of(
        st.builds(TextContent, TEXTS, MARKS),
        st.builds(ThinkingContent, TEXTS, MARKS, st.booleans()),
        st.builds(ToolCall, IDS, NAMES, st.just({"k": f"v{LOW}"}), signature=MARKS),
        IMAGES,
    ),
    max_size=4,
)
MAKERS = st.sampled_from([*TARGETS, attrs.evolve(CLAUDE, model="older"), Target(api="")])
TURNS = st.one_of(
    st.builds(lambda blocks: [user(*blocks)], SHOWN),
    st.builds(lambda maker, blocks: [by(maker, *blocks)], MAKERS, ANSWERED),
    st.builds(
        lambda maker, blocks, shown: [
            answer := by(maker, *blocks),
            *[result(call.id, *shown, name=call.name) for call in answer.tool_calls],
        ],
        MAKERS,
        ANSWERED,
        SHOWN,
    ),
)
HISTORIES = st.lists(TURNS, max_size=6).map(
    lambda turns: list(repair([message for turn in turns for message in turn]))
)


def said(messages):
    """Every word of users, tools and answers, in order, without what is between them."""
    texts = []
    for message in messages:
        for block in message.content:
            if isinstance(block, TextContent) and not block.text.startswith(("[", "(")):
                texts += block.text.split()
    return texts


@given(HISTORIES, st.sampled_from(TARGETS))
def test_what_is_given_is_given_again(history, target):
    """Handing over is idempotent: the second time gives the same object."""
    once = HandOver(target).messages(history)

    assert HandOver(target).messages(once) is once


@given(HISTORIES, st.lists(st.sampled_from(TARGETS), min_size=1, max_size=4))
def test_every_call_keeps_its_one_result(history, targets):
    """Whatever providers a history goes through, each call is followed by its result, with its id and name."""
    for target in targets:
        history = list(HandOver(target).messages(history))
        awaited = []
        for message in history:
            if isinstance(message, ToolResultMessage):
                call = awaited.pop(0)
                assert (message.tool_call_id, message.tool_name) == (call.id, call.name)
                continue
            assert awaited == []
            if isinstance(message, AssistantMessage):
                awaited = list(message.tool_calls)
        assert awaited == []


@given(HISTORIES, st.sampled_from(TARGETS))
def test_ids_fit_and_are_distinct(history, target):
    """Ids of other models match the target's rule; all are distinct where the target needs that."""
    messages = HandOver(target).messages(history)
    answers = [message for message in messages if isinstance(message, AssistantMessage)]
    for answer in answers:
        ids = [call.id for call in answer.tool_calls]
        assert len(set(ids)) == len(ids)
        if target.checks_own_ids or not target.owns(answer):
            assert all(map(target.takes_id, ids))

    if target.unique_call_ids:
        assert len(set(call_ids(messages))) == len(call_ids(messages))


@given(HISTORIES, st.sampled_from(TARGETS))
def test_nothing_foreign_or_empty_is_given(history, target):
    """No mark of another model, no blank block, no empty message but a result, and no text that can't be encoded."""
    for message in HandOver(target).messages(history):
        own = isinstance(message, AssistantMessage) and target.owns(message)
        assert message.content or isinstance(message, ToolResultMessage)
        for block in message.content:
            mark = getattr(block, "signature", None)
            assert own or not mark
            text = getattr(block, "text", getattr(block, "thinking", "x"))
            assert text.strip() or (own and mark)
            assert not getattr(block, "redacted", False) or (own and mark)
            text.encode()
            if isinstance(block, ImageContent):
                assert block.data
                assert target.reads_images


@given(HISTORIES, st.sampled_from(TARGETS))
def test_a_history_stays_as_it_was(history, target):
    """Handing over changes neither the sequence it is given nor a message in it."""
    before, texts = list(history), [repr(message) for message in history]
    HandOver(target).messages(history)

    assert all(one is other for one, other in zip(before, history, strict=True))
    assert [repr(message) for message in history] == texts


@given(HISTORIES, st.sampled_from(TARGETS))
def test_nothing_that_was_said_is_lost(history, target):
    """Every word of a text block is given, in order; words of thinking may be added."""
    rest = iter(said(HandOver(target).messages(history)))

    assert all(word in rest for word in said(history))


@given(HISTORIES, st.sampled_from(TARGETS), st.lists(st.integers(0, 5), max_size=6), st.booleans())
def test_a_growing_history_is_given_as_a_whole_one(history, target, steps, as_transcript):
    """However it grows, what is given is what is given for the whole at once, and what was given before stays."""
    handover, length, transcript, last = HandOver(target), 0, Transcript(), []
    for step in [*steps, len(history)]:
        transcript = transcript.extend(history[length : length + step])
        length = len(transcript)
        messages = transcript if as_transcript else list(transcript)
        whole, grown = HandOver(target).messages(messages), handover.messages(messages)

        assert list(grown) == list(whole)
        assert (grown is messages) == (whole is messages)
        assert list(grown)[: len(last)] == last
        last = list(grown)


@settings(max_examples=50)
@given(HISTORIES, HISTORIES, st.integers(0, 12), st.sampled_from(TARGETS))
def test_a_hand_over_takes_any_other_history(one, other, common, target):
    """A history that is shorter, or goes another way, is given as if it were the first."""
    handover = HandOver(target)
    other = one[:common] + other
    for history in (one, other, one[:common], one):
        assert list(handover.messages(history)) == given_to(target, *history)
