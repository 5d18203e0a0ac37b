"""The file format, as the documentation shows it."""

from __future__ import annotations

import pathlib
import re
from typing import get_args

from yiemagent.sessions import Body, Session, UnknownBody
from yiemagent.sessions.entries import encode

PAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "sessions.md"
KINDS = {kind.type for kind in get_args(Body) if kind is not UnknownBody}


def shown():
    """The file that the page shows."""
    return re.search(r"```jsonl\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]


def test_the_page_shows_a_session_with_an_entry_of_every_kind(tmp_path):
    """What the page shows opens as it is, sums included, and each of its lines is what the library writes."""
    (tmp_path / "shown.jsonl").write_text(shown(), encoding="utf-8")

    with Session.open(tmp_path / "shown.jsonl") as session:
        entries, lines = session.entries(), list(session._store.lines())
        roles = [message.role for message in session.messages]

    assert {entry.type for entry in entries} == KINDS
    assert [encode(entry) for entry in entries] == lines
    assert roles == ["compactionSummary", "assistant", "toolResult", "branchSummary"]


def test_the_page_tells_of_every_kind():
    """Each kind has a row in the table of kinds, and no other has."""
    rows = re.findall(r"^\| (`[^|]*`) \| ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == KINDS
