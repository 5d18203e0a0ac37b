"""Public bug reports as cases: each is driven as its expectation says, whatever folder of cases is given.

`pytest tests/cases --cases-dir DIR` drives the cases of another folder in the same form (default: this one). A case
that can't be driven fails by its id; what is left to parts that are not built yet is in `left.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cases.case import Case
from tests.cases.drive_http import drive_script, drive_waits
from tests.cases.drive_loops import drive_loop, drive_tool_table
from tests.cases.drive_requests import drive_history, drive_listings
from tests.cases.drive_rows import drive_rows, drive_schemas
from tests.cases.drive_streams import drive_body, drive_stream
from tests.cases.drive_threads import drive_in_process
from tests.cases.drive_tool_files import drive_steps, drive_tool_files
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
    case.finish()
    pytestconfig.stash.setdefault(NOTED, []).extend(f"{case.id}: {entry}" for entry in case.left)

    assert not case.problems, "\n".join([case.id, *case.problems])


def drive(case):
    """Drive every input of a case, each by its form."""
    if "threads" in case.kinds:
        drive_in_process(case)
        return
    for name in case.inputs(".json"):
        data = json.loads((case.folder / name).read_text(encoding="utf-8"))
        if form := next((form for form in FORMS if form in data), None):
            case.take(name)
            FORMS[form](case, name, data)
    for name in case.inputs():
        if name.endswith((".sse", ".body")) and "http_script" not in case.kinds:
            drive_stream(case, name)
    if "loop" in case.kinds and case.tool_inputs() and not case.inputs(".json"):
        drive_tool_table(case)
    if "tool_files" in case.kinds and case.tool_inputs():
        drive_tool_files(case)


# How an input is driven, by a key that only inputs of its form have.
FORMS = {
    "choices": drive_body,
    "history": drive_history,
    "arguments": lambda case, _name, data: drive_rows(case, data),
    "schemas": lambda case, _name, data: drive_schemas(case, data["schemas"]),
    "listing_1": drive_listings,
    "turns": drive_loop,
    "calls": drive_loop,
    "script": lambda case, _name, data: drive_script(case, data["script"]),
    "good_body": lambda case, _name, data: drive_waits(case, data),
    "steps": lambda case, _name, data: drive_steps(case, data),
}
