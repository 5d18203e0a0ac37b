"""Public bug reports as cases: each is driven as its expectation says, whatever folder of cases is given.

`pytest tests/cases --cases-dir DIR` drives the cases of another folder in the same form (default: this one). A case
that can't be driven fails by its id.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases.case import Case
from tests.cases.drive import drive

HERE = Path(__file__).resolve().parent


def pytest_generate_tests(metafunc):
    """Make a test of each case folder."""
    if "case_folder" not in metafunc.fixturenames:
        return
    given = metafunc.config.getoption("--cases-dir")
    folders = sorted(path.parent for path in Path(given or HERE).glob("*/expect.json"))
    assert folders, f"no case is in {given}"
    metafunc.parametrize("case_folder", folders, ids=[Case(folder).id for folder in folders])


@pytest.mark.time_limit(180)
@pytest.mark.leaves_open(
    "the provider keeps connections, and the servers of a case are closed with it"
)
def test_case(case_folder):
    """Every input of the case is driven, and all that is expected of it holds."""
    case = Case(case_folder)
    drive(case)

    assert not case.problems, "\n".join([case.id, *case.problems])
