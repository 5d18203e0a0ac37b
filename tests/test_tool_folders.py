"""Watched folders of tool files: what changed, and who is told."""

from __future__ import annotations

import copy
import logging
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent import ToolStore, YiemAgent, ask, stop_agent
from yiemagent.codec import from_json, to_json
from yiemagent.errors import ConfigurationError
from yiemagent.events import ToolsChangedEvent
from yiemagent.testing import RecordingSink, ScriptedModel, call, check_event_order
from yiemagent.tool_folders import schema_diff

SOURCE = """
from yiemagent.tool import AgentTool

def execute(tool_call_id, args, signal, on_partial_result):
    return {text!r}

def get_tool():
    return AgentTool({name!r}, description={description!r}, input_schema={schema!r}, execute=execute)
"""
PLAIN = {"type": "object", "properties": {}}


@pytest.fixture
def folder(tmp_path):
    """A folder of tool files."""
    folder = tmp_path / "tools"
    folder.mkdir()
    return folder.resolve()


@pytest.fixture
def write(folder):
    """Write a tool file, or another text."""

    def write(name, text="ok", *, schema=PLAIN, description="d", source=None, tool=None):
        path = folder / f"{name}.py"
        given = SOURCE.format(name=tool or name, text=text, schema=schema, description=description)
        path.write_text(given if source is None else source)
        return path

    return write


def said(store, name):
    return store.get(name).execute("1").text


def kinds(changes):
    return [(change.kind, change.path.name) for change in changes]


# -- looking ----------------------------------------------------------------------------------------------------------


def test_watching_loads_a_folder(write, folder):
    """The tools are loaded and given back; what was there at the start is no change."""
    write("a")
    store = ToolStore()

    assert list(store.watch(folder)) == ["a"]
    assert list(store.snapshot()) == ["a", "list_tools"]
    assert store.look() == ()
    assert store.change_number == 0


def test_each_kind_of_change_is_seen_once(write, folder):
    """Added, changed, removed and broken files are told once each, numbered, and loaded."""
    gone = write("gone")
    write("edited")
    write("wrong")
    store = ToolStore()
    store.watch(folder)
    gone.unlink()
    write("edited", "new")
    write("wrong", source="def get_tool(:\n")
    write("more")
    changes = store.look()

    assert kinds(changes) == [
        ("changed", "edited.py"),
        ("removed", "gone.py"),
        ("added", "more.py"),
        ("broken", "wrong.py"),
    ]
    assert [change.number for change in changes] == [1, 2, 3, 4]
    assert store.change_number == 4
    assert store.look(since=4) == ()
    assert store.look(since=3) == changes[3:]
    assert said(store, "edited") == "new"
    assert said(store, "wrong") == "ok"
    assert list(store.snapshot()) == ["edited", "wrong", "list_tools", "more"]


def test_what_did_not_change_is_not_run_again(write, folder):
    """A look reads files and runs none whose content, and whose helpers' content, is what it was."""
    counting = SOURCE.format(name="a", text="ok", schema=PLAIN, description="d")
    write("a", source=f"{counting}\nfrom ._runs import RUNS\nRUNS.append(1)\n")
    write("_runs", source="import sys\nRUNS = sys.__dict__.setdefault('runs_of_a', [])\n")
    store = ToolStore()
    try:
        tool = store.watch(folder)["a"]
        write("b")
        store.look()
        store.look()

        assert store.get("a") is tool
        assert tool.execute("1").text == "ok"
        assert __import__("sys").runs_of_a == [1]
    finally:
        del __import__("sys").runs_of_a


def test_a_broken_file_is_tried_again_when_anything_changed(write, folder):
    """The repair of its helper repairs a file; a repair is told as a change, although the tool is what it was."""
    write("_words", source="WORD = 'one'\n")
    using = SOURCE.format(name="a", text="ok", schema=PLAIN, description="d")
    write("a", source=f"from ._words import WORD\n{using}")
    store = ToolStore()
    store.watch(folder)
    write("_words", source="WORD = \n")
    (broken,) = store.look()
    assert store.look(since=1) == ()
    write("_words", source="WORD = 'one'\n")
    (repaired,) = store.look(since=1)

    assert broken.kind == "broken"
    assert broken.before is store.get("a")
    assert "a stays as it was" in broken.message
    assert repaired.kind == "changed"
    assert repaired.details["fields"] == []
    assert store.load_errors == ()


def test_helpers_elsewhere_are_looked_at(write, folder):
    """A package of helpers below the folder counts like a file beside the tool."""
    inner = folder / "_inner"
    inner.mkdir()
    (inner / "__init__.py").write_text("WORD = 'one'\n")
    using = SOURCE.format(name="a", text="", schema=PLAIN, description="d")
    using = using.replace("return ''", "return WORD")
    write("a", source=f"from ._inner import WORD\n{using}")
    store = ToolStore()
    store.watch(folder)
    (inner / "__init__.py").write_text("WORD = 'two'\n")

    assert kinds(store.look()) == [("changed", "a.py")]
    assert said(store, "a") == "two"


def test_a_folder_that_is_gone_takes_its_tools_along(write, folder):
    """When the folder is removed, so are its tools; when it is back, they are."""
    path = write("a")
    store = ToolStore()
    store.watch(folder)
    path.unlink()
    folder.rmdir()
    assert kinds(store.look()) == [("removed", "a.py")]
    folder.mkdir()
    write("a")

    assert kinds(store.look(since=1)) == [("added", "a.py")]


def test_a_folder_that_cannot_be_read_keeps_its_tools(write, folder, caplog):
    """Where the folder can't be listed, a warning says so, and the tools stay."""
    path = write("a")
    store = ToolStore()
    store.watch(folder)
    path.unlink()
    folder.rmdir()
    folder.write_text("no folder any more")
    with caplog.at_level(logging.WARNING):
        assert store.look() == ()

    assert "can't be looked at" in caplog.text
    assert said(store, "a") == "ok"


def test_a_folder_that_is_none_is_refused(tmp_path):
    """A caller's mistake raises at once, and nothing is watched."""
    store = ToolStore()
    with pytest.raises(ConfigurationError, match="no folder"):
        store.watch(tmp_path / "gone")

    assert store.look() == ()


def test_other_changes_are_told_among_those_of_folders(write, folder):
    """What changed in a store by other means is numbered with what changed in its folders."""
    store = ToolStore()
    store.announce("a server has other tools", {"added": ["x"]})
    write("a", "one")
    store.watch(folder)
    write("a", "two")
    first, second = store.look()

    assert (first.number, first.message, first.details) == (
        1,
        "a server has other tools",
        {"added": ["x"]},
    )
    assert (second.number, second.kind) == (2, "changed")
    assert store.change_number == 2


def test_a_folder_can_be_left_alone_again(write, folder):
    """Unwatched, or in a store that was cleared, a folder is looked at no more; its tools stay with unwatching."""
    write("a")
    store = ToolStore()
    store.unwatch(folder)
    store.watch(folder)
    store.unwatch(str(folder))
    write("a", "new")
    assert store.look() == ()
    assert said(store, "a") == "ok"
    store.watch(folder)
    store.clear()
    write("a", "newer")

    assert store.look() == ()
    assert len(store) == 0


def test_numbers_go_on_when_a_store_was_cleared(write, folder):
    """Who looked before a store was cleared misses nothing of what comes after."""
    store = ToolStore()
    store.watch(folder)
    write("a")
    store.look()
    store.clear()
    store.watch(folder)
    write("b")

    assert kinds(store.look(since=1)) == [("added", "b.py")]


def test_what_was_loaded_meanwhile_is_told_too(write, folder):
    """A tool that came into the store by another way since the last look is news all the same."""
    from yiemagent.registry import load_tool_file

    store = ToolStore()
    store.watch(folder)
    tool = load_tool_file(store, write("a"))
    (change,) = store.look()

    assert change.after is tool
    assert change.kind == "added"


def test_one_thread_looks_at_a_time(write, folder):
    """While a file is being loaded by one thread, others go on at once with what is there."""
    write("a")
    store = ToolStore()
    store.watch(folder)
    entered, go_on = threading.Event(), threading.Event()
    store.entered, store.go_on = entered, go_on
    slow = SOURCE.format(name="b", text="ok", schema=PLAIN, description="d")
    write(
        "b",
        source="from yiemagent.registry import store_being_filled\n"
        "store = store_being_filled()\nstore.entered.set()\nstore.go_on.wait()\n" + slow,
    )
    thread = threading.Thread(target=store.look)
    thread.start()
    try:
        assert entered.wait(10)
        assert store.look() == ()
        assert "b" not in store
    finally:
        go_on.set()
        thread.join()

    assert kinds(store.look()) == [("added", "b.py")]
    assert "b" in store


# -- what a change says -----------------------------------------------------------------------------------------------


def test_a_change_says_what_differs(write, folder):
    """Names, fields and the schema's difference stand in the details; a broken file's have line and reason."""
    city = {"type": "object", "properties": {"city": {"type": "string"}}}
    write("a", schema=city)
    write("b")
    store = ToolStore()
    store.watch(folder)
    town = {"type": "object", "properties": {"city": {"type": "string"}, "n": {"type": "integer"}}}
    write("a", schema=town, description="other")
    write("b", tool="c")
    write("z", source="\n1 / 0\n")
    changed, renamed, broken = store.look()

    assert changed.message == f"the tool a was changed: {folder / 'a.py'}"
    assert changed.details == {
        "kind": "changed",
        "path": str(folder / "a.py"),
        "added": [],
        "removed": [],
        "changed": ["a"],
        "fields": ["description", "input_schema"],
        "schema": [{"op": "add", "path": "/properties/n", "value": {"type": "integer"}}],
    }
    assert (renamed.details["added"], renamed.details["removed"]) == (["c"], ["b"])
    assert renamed.details["fields"] == ["name", "label"]
    assert (broken.details["line"], broken.details["changed"]) == (2, [])
    assert "ZeroDivisionError" in broken.details["reason"]
    assert broken.message.startswith("a tool file is broken: ")


def test_a_new_tool_brings_its_whole_schema(write, folder):
    """What was added is one step that brings the schema, what was removed one that takes it."""
    store = ToolStore()
    store.watch(folder)
    path = write("a")
    (added,) = store.look()
    path.unlink()
    (removed,) = store.look(since=1)

    assert added.details["schema"] == [{"op": "add", "path": "", "value": PLAIN}]
    assert added.details["added"] == ["a"]
    assert removed.details["schema"] == [{"op": "remove", "path": "", "was": PLAIN}]
    assert removed.details["removed"] == ["a"]


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.text("a/~", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("a/~b", max_size=2), inner),
    max_leaves=8,
)
_schemas = st.dictionaries(st.text("a/~b", max_size=2), _values)


def applied(schema, steps):
    """Apply the steps of a difference, as RFC 6902 says."""
    root = {"": copy.deepcopy(schema)}
    for step in steps:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")]
        holder = root
        for part in parts[:-1]:
            holder = holder[part]
        if "was" in step:
            assert holder[parts[-1]] == step["was"]
        if step["op"] == "remove":
            del holder[parts[-1]]
        else:
            holder[parts[-1]] = step["value"]
    return root.get("")


@given(_schemas, _schemas)
def test_the_steps_make_one_schema_of_the_other(before, after):
    """Applied in order, the steps of a difference turn the old schema into the new one."""
    steps = schema_diff(before, after)

    assert repr_of(applied(before, steps)) == repr_of(after)
    assert (steps == []) == (repr_of(before) == repr_of(after))


def repr_of(value):
    """A value told apart by type, as JSON does: true is not 1; the order of keys is no matter."""
    if isinstance(value, dict):
        return sorted((key, repr_of(item)) for key, item in value.items()), "dict"
    if isinstance(value, list):
        return [repr_of(item) for item in value], "list"
    return repr(value), type(value).__name__


def test_no_schema_at_all_is_told_apart_from_an_empty_one():
    """Where there was none, the whole schema is added; two that are none don't differ."""
    assert schema_diff(None, {}) == [{"op": "add", "path": "", "value": {}}]
    assert schema_diff(None, None) == []


# -- in a run ---------------------------------------------------------------------------------------------------------


def test_a_run_tells_of_changes_and_offers_the_new_version(write, folder):
    """A file that changes during a run is an event at the next turn, which offers what the file gives now."""
    write("hot", "version 1")
    store = ToolStore()
    store.watch(folder)
    sink = RecordingSink()

    def edit(*_):
        write("hot", "version 2")
        write("more")
        return call("hot")

    model = ScriptedModel([call("hot"), edit, call("hot"), "Done."])
    agent = YiemAgent(model, tool_store=store, event_sink=sink)
    answer = ask(agent, "Go.", timeout_s=20)
    stop_agent(agent)
    events = sink.of(ToolsChangedEvent)

    assert answer.text == "Done."
    texts = [message.text for message in agent.messages if message.role == "toolResult"]
    assert texts == ["version 1", "version 1", "version 2"]
    assert [sorted(request.tools) for request in model.requests] == [
        ["hot", "list_tools"],
        ["hot", "list_tools"],
        ["hot", "list_tools", "more"],
        ["hot", "list_tools", "more"],
    ]
    assert [(e.details["kind"], e.details["changed"], e.details["added"]) for e in events] == [
        ("changed", ["hot"], []),
        ("added", [], ["more"]),
    ]
    assert from_json(to_json(events[0])) == events[0]
    check_event_order(sink.events)


def test_every_agent_of_a_store_is_told(write, folder):
    """Agents that share a store are each told of a change once, whichever of them looked first."""
    write("a")
    store = ToolStore()
    store.watch(folder)
    sinks = [RecordingSink(), RecordingSink()]
    agents = [
        YiemAgent(ScriptedModel(default="Hello."), tool_store=store, event_sink=sink)
        for sink in sinks
    ]
    write("a", "new")
    for agent in (*agents, *agents):
        ask(agent, "Hello?", timeout_s=20)
    for agent in agents:
        stop_agent(agent)

    assert [len(sink.of(ToolsChangedEvent)) for sink in sinks] == [1, 1]


def test_a_call_that_runs_ends_on_its_version(write, folder):
    """A call goes on with the version it began with, although the file was replaced and loaded meanwhile."""
    source = SOURCE.format(name="slow", text="", schema=PLAIN, description="d")
    waiting = "from yiemagent.registry import store_being_filled\nSTORE = store_being_filled()\n"
    write(
        "slow",
        source=waiting
        + source.replace("return ''", "STORE.began.set(); STORE.go_on.wait(); return 'old'"),
    )
    store = ToolStore()
    store.began, store.go_on = threading.Event(), threading.Event()
    store.watch(folder)
    results = []
    thread = threading.Thread(target=lambda: results.append(said(store, "slow")))
    thread.start()
    try:
        assert store.began.wait(10)
        write("slow", "new")
        store.look()
        results.append(said(store, "slow"))
    finally:
        store.go_on.set()
        thread.join()

    assert results == ["new", "old"]
