"""Names and telling words of a sentence."""

from __future__ import annotations

import pytest

from yiemagent.providers.local_words import copy_names, copy_spans, likeness, telling, words_of


@pytest.mark.parametrize(
    "text, spans",
    [
        ("What time is it in Buenos Aires?", ("Buenos Aires",)),
        ("Please tell me the time in Rio de Janeiro now", ("Rio de Janeiro",)),
        ("Is it colder in Oslo than in New York?", ("Oslo", "New York")),
        ("What is Tokyo's time?", ("Tokyo",)),
        ("Paris, Texas", ("Paris", "Texas")),
        ("what's the weather in new york", ("new york", "new", "york")),
        ("what time is it?", ()),
        ("What is it in the Hague of Q?", ("Hague of Q",)),
    ],
)
def test_arguments_are_copied_from_whole_names(text, spans):
    """A name of several words is offered as a whole; without capitals every run of words that say something is."""
    assert copy_spans(text) == spans


def test_a_possessive_is_no_part_of_a_word():
    """Words come with their places, without the 's of a possessive and the stops around them."""
    assert words_of("Tokyo's time.") == [("Tokyo", 0, 5), ("time", 8, 12)]


def test_telling_words_are_those_that_say_something():
    """Stems of the words, without names and words that stand in any sentence; names where they are asked for."""
    assert telling("Is it raining in New York?") == {"rain"}
    assert telling("Is it raining in New York?", names=True) == {"rain", "new", "york"}
    assert copy_names("Is it raining in New York?") == ("New York",)


def test_sentences_are_alike_by_what_they_say():
    """Names don't count, and words that stand in any sentence count for little."""
    asked = "What is the weather in Oslo?"

    assert likeness(asked, "What is the weather in Lima?") == 1
    assert likeness(asked, "How is the weather?") > likeness(asked, "What is the time in Oslo?")
    assert likeness("", "") == 0
