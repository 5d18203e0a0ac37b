"""Decisions for ever: a file that a person can read."""

from __future__ import annotations

import json
import logging
import stat
import threading

import attrs
import pytest

from tests.support.loops import tool
from yiemagent.decisions import DecisionFile, fingerprint, same_arguments
from yiemagent.errors import ToolError
from yiemagent.registry import ToolStore, load_tools
from yiemagent.tool import AgentTool


@pytest.fixture
def file(tmp_path):
    """A file that is not there yet."""
    return DecisionFile(tmp_path / "approvals.jsonl")


def test_a_decision_is_found_again(file):
    """What was decided about a tool holds for it, whatever the arguments, and for no other."""
    file.add(tool("write"), "allow")
    file.add(tool("drop"), "deny")

    assert file.find(tool("write"), {"a": 1}) == "allow"
    assert file.find(tool("drop"), {}) == "deny"
    assert file.find(tool("other"), {}) is None


def test_without_a_file_nothing_is_decided(file):
    """Looking makes no file."""
    assert file.find(tool("write"), {}) is None
    assert not file.path.exists()


def test_a_decision_about_a_call_is_about_these_arguments(file):
    """Other arguments are not decided about, nor those that only Python holds equal."""
    file.add(tool("run"), "allow", {"command": "ls", "n": 1})

    assert file.find(tool("run"), {"n": 1, "command": "ls"}) == "allow"
    assert file.find(tool("run"), {"command": "ls", "n": True}) is None
    assert file.find(tool("run"), {"command": "rm", "n": 1}) is None
    assert not same_arguments({"n": 1}, {"n": 1.0})


def test_a_person_can_read_and_change_it(file):
    """Each decision is a line of JSON; lines may be written by hand and taken out, and count at once."""
    file.add(tool("write"), "allow")
    line = json.loads(file.path.read_text())

    assert list(line) == ["tool", "decision", "fingerprint", "decided_at"]
    assert (line["tool"], line["decision"]) == ("write", "allow")
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    file.path.write_text('{"tool": "mine", "decision": "allow"}')
    assert file.find(tool("mine"), {}) == "allow"
    assert file.find(tool("write"), {}) is None
    file.add(tool("write"), "deny")
    assert file.find(tool("mine"), {}) == "allow"
    assert file.find(tool("write"), {}) == "deny"


def test_the_last_decision_holds(file):
    """A later line goes before an earlier one."""
    for decision in ("allow", "deny", "allow"):
        file.add(tool("write"), decision)
        assert file.find(tool("write"), {}) == decision


def test_a_tool_that_says_something_else_is_asked_for_anew(file):
    """An approval does not hold for another description, schema or annotation; a denial does."""
    known = tool("write")
    others = [
        tool("write", input_schema={"type": "object", "properties": {"x": {}}}),
        tool("write", annotations={"readOnlyHint": True}),
        type(known)("write", description="another", execute=known.function),
    ]
    file.add(known, "allow")
    assert [file.find(other, {}) for other in others] == [None] * 3
    file.add(known, "deny")
    assert [file.find(other, {}) for other in others] == ["deny"] * 3
    assert len({fingerprint(one) for one in (known, *others)}) == 4


TOOL_FILE = """
from yiemagent.tool import AgentTool
from ._words import WORD

def get_tool():
    return AgentTool("write", description="Writes.", execute=lambda *_: WORD)
"""


@pytest.fixture
def load(tmp_path):
    """Load a tool file, with a helper beside it, from a folder into a store of its own."""

    def load(source=TOOL_FILE, word="'one'", name="tools", isolation="thread"):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "write.py").write_text(source)
        (folder / "_words.py").write_text(f"WORD = {word}\n")
        store = ToolStore(isolation=isolation)
        try:
            return load_tools(store, folder, on_error="raise")["write"]
        finally:
            store.close()

    return load


def test_a_tool_with_other_code_is_asked_for_anew(file, load):
    """Another line in its file or its helper, or code from no file, is not what was allowed; a denial stays."""
    file.add(load(), "allow")
    others = [
        load(word="'two'"),
        load(TOOL_FILE + "# another\n"),
        AgentTool("write", description="Writes.", execute=lambda *_: "one"),
    ]

    assert [file.find(other, {}) for other in others] == [None] * 3
    assert [file.allowed_another(other, {}) for other in others] == [True] * 3
    file.add(load(), "deny")
    assert [file.find(other, {}) for other in others] == ["deny"] * 3
    assert [file.allowed_another(other, {}) for other in others] == [False] * 3


def test_the_same_code_is_the_same_tool(file, load):
    """Loaded again, from another folder, or to run in a process, a file's tool is what was allowed; so is a copy."""
    known = load()
    file.add(known, "allow")
    same = [
        load(),
        load(name="elsewhere"),
        load(isolation="process"),
        attrs.evolve(known, timeout_s=1),
    ]

    assert [file.find(one, {}) for one in same] == ["allow"] * 4
    assert not file.allowed_another(known, {})
    assert not file.allowed_another(tool("other"), {})


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[]",
        "{}",
        '{"tool": "write", "decision": "perhaps"}',
        '{"tool": 7, "decision": "allow"}',
        '{"tool": "write", "decision": "allow", "arguments": []}',
        '{"tool": "write", "decision": "allow", "fingerprint": 1}',
        '{"tool": "write", "decision": ["allow"]}',
        '{"tool": "write", "decision": "allow"',
        "[" * 100_000,
    ],
)
def test_a_line_that_is_no_decision_is_passed_over(file, line, caplog):
    """It is named in a warning, allows nothing, and the other lines count."""
    file.path.write_text(f'{line}\n{{"tool": "other", "decision": "deny"}}\n')
    with caplog.at_level(logging.WARNING):
        assert file.find(tool("write"), {}) is None
        assert file.find(tool("other"), {}) == "deny"

    assert f"{file.path}:1 is no decision" in caplog.text


def test_a_file_that_can_not_be_read_is_an_error(file):
    """A folder in its place, or bytes that are no text, are told, so that nothing is allowed by mistake."""
    file.path.write_bytes(b"\xff\xfe")
    with pytest.raises(ToolError, match="can't be read"):
        file.find(tool("write"), {})
    file.path.unlink()
    file.path.mkdir()
    with pytest.raises(ToolError, match="can't be read"):
        file.find(tool("write"), {})
    with pytest.raises(OSError, match="directory"):
        file.add(tool("write"), "allow")


def test_decisions_of_many_threads_are_all_kept(file):
    """Lines that are added at the same time never mix."""
    threads = [
        threading.Thread(target=file.add, args=(tool(f"t{n}"), "allow", {"x": "y" * 2000}))
        for n in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = {json.loads(line)["tool"] for line in file.path.read_text().splitlines()}

    assert names == {f"t{n}" for n in range(20)}
