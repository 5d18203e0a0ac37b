"""Public bug reports as cases: each is driven as its expectation says, whatever folder of cases is given.

`pytest tests/cases --cases-dir DIR` drives the cases of another folder in the same form (default: this one). A case
that can't be driven fails by its id; what is left to parts that are not built yet is in `left.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases.case import Case
from tests.cases.drive import drive
from tests.cases.left import NOTED

HERE = Path(__file__).resolve().parent


def pytest_generate_tests(metafunc):
    """Make a test of each case folder that the library has all parts for."""
    if "case_folder" not in metafunc.fixturenames:
        return
    given = metafunc.config.getoption("--cases-dir")
    folders = sorted(path.parent for path in Path(given or HERE).glob("*/expect.json"))
    assert folders, f"no case is in {given}"
    cases = [Case(folder) for folder in folders]
    noted = metafunc.config.stash.setdefault(NOTED, [])
    noted += [f"{case.id}: all of it ({case.left_whole()})" for case in cases if case.left_whole()]
    driven = [case for case in cases if not case.left_whole()]
    metafunc.parametrize("case_folder", [c.folder for c in driven], ids=[c.id for c in driven])


@pytest.mark.time_limit(180)
@pytest.mark.leaves_open(
    "the provider keeps connections, and the servers of a case are closed with it"
)
def test_case(case_folder, pytestconfig):
    """Every input of the case is driven, and all that is expected of it holds."""
    case = Case(case_folder)
    drive(case)
    pytestconfig.stash.setdefault(NOTED, []).extend(f"{case.id}: {entry}" for entry in case.left)

    assert not case.problems, "\n".join([case.id, *case.problems])
