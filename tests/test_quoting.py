"""A text that knows which part of it somebody else said."""

from __future__ import annotations

import copy
import pickle

from yiemagent.errors import HttpError, LlmError
from yiemagent.quoting import Quoting


def test_a_text_knows_its_parts():
    """It is the text that its parts make, and gives each of them."""
    text = Quoting("it answered ", "no", "; why?")

    assert text == "it answered no; why?"
    assert (text.before, text.said, text.after) == ("it answered ", "no", "; why?")
    assert Quoting("it answered ", "no").after == ""


def test_an_error_with_such_a_text_is_as_any_other():
    """Its words are plain text, and it can be copied and pickled."""
    for error in (
        LlmError(Quoting("it answered ", "no"), 400),
        HttpError(Quoting("it broke: ", "no")),
    ):
        assert type(str(error)) is str
        for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert (type(twin), str(twin)) == (type(error), str(error))
