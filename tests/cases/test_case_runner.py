"""The runner of the cases: what it can't drive fails, and what does not hold is found."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cases.case import Case
from tests.cases.drive import drive

HERE = Path(__file__).resolve().parent
pytestmark = pytest.mark.leaves_open(
    "the provider keeps connections, and the servers of a case are closed with it"
)


def driven(folder, changes=(), source="B036"):
    """A copy of a case with changes of its expectation, driven: its problems."""
    copied = folder / source
    shutil.copytree(HERE / source, copied)
    path = copied / "expect.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | dict(changes)))
    case = Case(copied)
    drive(case)
    return case.problems


def test_an_unchanged_case_has_no_problems(tmp_path):
    """What the other tests change holds as it is."""
    assert driven(tmp_path) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"kind": "telepathy"}, "can't drive the kind 'telepathy'"),
        ({"mood": "good"}, "can't drive the field mood"),
        ({"inputs": ["input.json", "more.bin"]}, "can't drive the input more.bin"),
        ({"checks": ["it is nice"], "target": "openai-chat"}, "can't drive the words 'it is nice'"),
        ({"target": "carrier-pigeon", "checks": []}, "can't drive the target carrier-pigeon"),
    ],
)
def test_what_is_unknown_fails(tmp_path, changes, says):
    """A kind, field, input, check or target that the runner does not know is a problem of its case."""
    problems = driven(tmp_path, changes)

    assert any(says in problem for problem in problems), problems


def test_a_row_without_expectation_fails(tmp_path):
    """A row of arguments of which nothing is expected is a problem of its case."""
    problems = driven(tmp_path, {"results": {"a": {"runs_with": {}}}}, source="B009")

    assert any("can't drive this row" in problem for problem in problems)


def test_a_case_of_nothing_fails(tmp_path):
    """A case without inputs and expectations does not pass."""
    (tmp_path / "expect.json").write_text('{"id": "B999", "kind": "loop"}')
    case = Case(tmp_path)
    drive(case)

    assert case.problems == ["can't drive anything of it"]


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        ("B021", {"assistant": {"text": "One, two"}}),
        ("B076", {"input_openai.sse": {"assistant": {"usage": {"input": 12.0}}}}),
        ("B076", {"input_anthropic.sse": {"assistant": {"usage": {"input": 26}}}}),
        ("B076", {"two_requests": "if both streams were turns of one run: total output 15"}),
        ("B001", {"assistant_anthropic": {"tool_calls": []}}),
        ("B016", {"runs": [1, 2, 3, 4]}),
        ("B062", {"tool_texts": ["x", "y"]}),
        ("B068", {"texts": ["version 1"]}),
        ("B060", {"table": {"r_str": "text == 'other'"}}),
        ("B080", {"loaded": {"a_cut_json": 2}}),
        ("B080", {"report": "somebody is told"}),
        ("B078", {"true_rows": "the first request is sent again"}),
        ("B078", {"always_overflow_server": "ends well"}),
    ],
)
def test_what_does_not_hold_is_found(tmp_path, source, changes):
    """An expectation that the library does not meet is a problem of its case."""
    assert driven(tmp_path, changes, source) != []
