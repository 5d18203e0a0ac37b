"""Entries of `reasoning_details` and their pieces."""

import json
import time

import pytest

from yiemagent.providers.reasoning_details import details_text, merged_details


def text(words, index=0, **more):
    return {"type": "reasoning.text", "text": words, "index": index, **more}


def summary(words):
    return {"type": "reasoning.summary", "summary": words, "index": 0}


@pytest.mark.parametrize(
    "pieces, expected",
    [
        ([text("a"), text("b", signature=None), text(None, signature="s")], [text("ab", signature="s")]),
        ([text("a"), text("b", 1), text("c", 1)], [text("a"), text("bc", 1)]),
        ([text("a", None), text("b", None)], [text("a", None), text("b", None)]),
        ([text("a"), {"type": "reasoning.encrypted", "data": "x", "index": 0}],
         [text("a"), {"type": "reasoning.encrypted", "data": "x", "index": 0}]),
        ([summary("a"), summary("b")], [summary("ab")]),
        ([text("a", signature="s"), text("b", signature=None)], [text("ab", signature="s")]),
        (["what", None, 7, text("a")], [text("a")]),
        ([], []),
    ],
)  # fmt: skip
def test_pieces(pieces, expected):
    """Pieces of one entry are put together, entries without an index stay by themselves."""
    assert merged_details(pieces) == expected


def test_merging_is_idempotent():
    """What was put together stays as it is."""
    merged = merged_details([text("a"), text("b"), text("c", 1)])

    assert merged_details(merged) == merged
    assert json.loads(json.dumps(merged)) == merged


def test_words():
    """The words of entries are their text or summary; encrypted ones have none."""
    entries = [text("a"), {"summary": "b"}, {"data": "x"}, {"text": 7}, "what"]

    assert details_text(entries) == "ab"


def test_long_thinking_is_linear():
    """Many pieces are put together in a time that grows with their number."""

    def took_s(count):
        pieces = [text("word ") for _ in range(count)]
        began = time.perf_counter()
        assert len(merged_details(pieces)[0]["text"]) == 5 * count
        return time.perf_counter() - began

    took_s(1_000)

    assert took_s(40_000) < 40 * max(took_s(4_000), 0.002)
