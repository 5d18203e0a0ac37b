"""Where a conversation is cut, and how results that are too large are shortened."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.history import repair
from yiemagent.messages import (
    AssistantMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ImageContent,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from yiemagent.sessions.cuts import (
    cut_places,
    find_cut,
    last_turn_tokens,
    result_batches,
    shorten_batch,
    shorten_result,
)
from yiemagent.sessions.tokens import IMAGE_TOKENS, message_tokens


def called(*ids, stop_reason="tool_use"):
    """An answer that calls tools."""
    return AssistantMessage([ToolCall(one, "work") for one in ids], stop_reason=stop_reason)


def result(call_id, text="done"):
    """The result of a call."""
    return ToolResultMessage(call_id, "work", text)


HI, DONE = UserMessage("hi"), AssistantMessage("done")
SUMMARY = CompactionSummaryMessage("so far")
TURN = [HI, called("a"), result("a"), called("b", "c"), result("b"), result("c"), DONE]


@pytest.mark.parametrize(
    ("messages", "places"),
    [
        ([], []),
        ([HI], []),
        ([HI, DONE, HI], [2, 1]),
        (TURN, [6, 3, 1]),
        ([HI, called("a"), UserMessage("wait"), result("a"), DONE], [4, 1]),
        ([HI, called("a"), result("a"), UserMessage("and"), DONE], [4, 3, 1]),
        ([HI, called("a", stop_reason="error"), result("a"), HI], [3]),
        ([SUMMARY, HI, DONE], [2, 1]),
        ([HI, CustomMessage("note", "x"), DONE], [2, 1]),
    ],
)
def test_a_cut_never_stands_between_a_call_and_its_result(messages, places):
    """It may stand before an answer, and before what a user said once all calls have their results."""
    assert list(cut_places(messages)) == places


# Histories as odd as they come: results anywhere, doubled, of nobody.
IDS = st.sampled_from("abc")
MESSAGES = st.one_of(
    st.builds(UserMessage, st.text(max_size=40)),
    st.builds(lambda ids: called(*ids), st.lists(IDS, max_size=3)),
    st.builds(lambda ids: called(*ids, stop_reason="error"), st.lists(IDS, max_size=2)),
    st.builds(result, IDS, st.text(max_size=400)),
    st.just(AssistantMessage("failed", stop_reason="aborted")),
)
HISTORIES = st.lists(MESSAGES, max_size=14)


def pairs(messages):
    """Each call of a request with the text of its result."""
    sent = repair(messages)
    texts = {}
    for number, message in enumerate(sent):
        if isinstance(message, AssistantMessage):
            window = itertools.takewhile(
                lambda m: isinstance(m, ToolResultMessage), sent[number + 1 :]
            )
            answered = {one.tool_call_id: one.text for one in window}
            assert set(answered) == {call.id for call in message.tool_calls}
            texts |= {(message, call.id): answered[call.id] for call in message.tool_calls}
    return texts


@given(HISTORIES)
def test_every_result_stays_with_its_call_at_every_cut(messages):
    """What a request makes of the whole history, it makes of the two parts of it together."""
    whole = pairs(messages)
    for place in cut_places(messages):
        assert pairs(messages[:place]) | pairs(messages[place:]) == whole


@given(HISTORIES, st.integers(0, 400), st.booleans())
def test_a_cut_keeps_what_fits_or_the_latest_at_any_budget(messages, budget, summarised):
    """It leaves something to summarise, and keeps what fits: whole turns, unless that were much less."""
    messages = [SUMMARY, *messages] if summarised else messages
    cut = find_cut(messages, budget)
    places = [place for place in cut_places(messages) if place > summarised]
    if cut is None:
        assert places == []
        return
    tokens = {place: sum(map(message_tokens, messages[place:])) for place in places}

    assert cut.start == summarised < cut.kept
    assert cut.kept_tokens == tokens[cut.kept]
    fitting = [place for place in places if tokens[place] <= budget] or [max(places)]
    whole = [place for place in fitting if messages[place].role == "user"]
    if whole and tokens[min(whole)] * 2 > tokens[min(fitting)]:
        assert (cut.kept, cut.turn_start) == (min(whole), None)
    else:
        assert cut.kept == min(fitting)
    assert pairs(messages[cut.kept :]).items() <= pairs(messages).items()


@pytest.mark.parametrize(
    ("messages", "budget", "expected"),
    [
        (TURN, 10, (0, 0, 6)),
        (TURN, 60, (0, 0, 3)),
        ([HI, DONE, *TURN], 60, (0, 2, 5)),
        ([HI, DONE, HI, DONE], 15, (0, None, 2)),
        ([SUMMARY, *TURN[1:]], 10, (1, None, 6)),
        ([SUMMARY, *TURN], 10, (1, 1, 7)),
    ],
)
def test_a_cut_tells_which_turn_it_splits(messages, budget, expected):
    """A turn whose beginning is cut off is told apart from those before; one that began before the summary is not."""
    cut = find_cut(messages, budget)

    assert (cut.start, cut.turn_start, cut.kept) == expected


@pytest.mark.parametrize(
    ("messages", "tokens"),
    [([HI, DONE, HI, DONE], 15), ([SUMMARY, HI, DONE], None), ([HI, DONE], None), ([], None)],
)
def test_the_last_turn_has_a_size(messages, tokens):
    """It begins with what somebody said; where it is all there is, it is no part of anything."""
    assert last_turn_tokens(messages) == tokens


@pytest.mark.parametrize("messages", [[], [HI], [SUMMARY], [SUMMARY, HI], [SUMMARY, called("a")]])
def test_there_may_be_nothing_to_cut(messages):
    """A summary and the latest message can't be summarised further."""
    assert find_cut(messages, 1) is None


def test_finding_a_cut_walks_what_is_kept():
    """What is old is not looked at, however long it is."""

    class Old(list):
        def __getitem__(self, index):
            place = index.start if isinstance(index, slice) else index
            assert place == 0 or place > 900
            return super().__getitem__(index)

    history = Old(TURN * 200)

    assert find_cut(history, 300).kept > 1_300


# -- results --


def test_results_stand_in_batches():
    """The results of one answer are one batch."""
    assert list(result_batches(TURN, 0)) == [(2, 3), (4, 6)]
    assert list(result_batches(TURN[:6], 3)) == [(4, 6)]
    assert list(result_batches([HI], 0)) == []


@pytest.mark.parametrize(
    ("sizes", "one", "together", "most"),
    [
        ([10, 20], 100, 1000, 100),
        ([10, 2000], 1000, 5000, 1000),
        ([5000, 5000], 4000, 6000, 3000),
        ([100, 5000, 5000], 4000, 6100, 3000),
        ([9000] * 100, 4000, 1000, 100),
        ([5000], 0, 0, 100),
    ],
)
def test_the_largest_results_share_what_the_small_ones_leave(sizes, one, together, most):
    """As much as possible, the same for all that are larger, and enough to say something."""
    assert shorten_batch(sizes, one, together) == most


@given(st.lists(st.integers(0, 20_000), min_size=1, max_size=20), st.integers(2_000, 40_000))
def test_shortened_results_fit_together(sizes, together):
    """No batch has more than there is room for, and none has less where it needed more."""
    most = shorten_batch(sizes, together, together)
    shortened = [min(size, most) for size in sizes]

    assert sum(shortened) <= together or most == 100
    assert shortened == sizes or sum(shortened) > together - len(sizes) * 2


@given(st.text(min_size=1_000, max_size=3_000), st.integers(100, 800))
def test_a_shortened_result_has_its_size(text, tokens):
    """Its beginning and end stay, the middle is counted, and it is about as large as it may be."""
    short = shorten_result(result("a", text), tokens)

    assert (short.tool_call_id, short.tool_name) == ("a", "work")
    assert message_tokens(short) <= tokens + 10
    assert short.text[0] == text[0] or tokens < 120


def test_a_shortened_result_says_what_is_missing():
    """The model is told how much is left out, and that it is kept; or where, if the tool's details name a file."""
    plain = shorten_result(result("a", "x" * 5_000), 200)
    filed = ToolResultMessage("a", "work", "x" * 5_000, {"full_output_path": "/tmp/whole.txt"})

    assert (
        "characters are left out here to save room; the conversation keeps the whole" in plain.text
    )
    assert "the whole is in /tmp/whole.txt" in shorten_result(filed, 200).text


def test_images_of_a_shortened_result_stay_where_there_is_room():
    """They are left out, and that is said, where they would take most of it."""
    image = ImageContent("QUJD", "image/png")
    mixed = ToolResultMessage("a", "work", [TextContent("x" * 9_000), image])

    assert shorten_result(mixed, 4_000 + IMAGE_TOKENS).content[-1] == image
    assert "1 image(s) of this result are left out" in shorten_result(mixed, 1_000).text
    assert shorten_result(ToolResultMessage("a", "work", [image] * 9), 900).content[1:] == ()
