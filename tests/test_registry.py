"""The store of tools, and the folders of files that fill it."""

from __future__ import annotations

import gc
import logging
import os
import pathlib
import pickle
import sys
import textwrap
import threading

import pytest

from yiemagent.abort import AbortSignal
from yiemagent.errors import ConfigurationError, DuplicateTool, ToolLoadError, ToolNotFound
from yiemagent.registry import (
    ToolStore,
    builtin_tools_dir,
    clear_tools,
    collect_registrations,
    get_tools,
    list_tool,
    load_tools,
    register_tool,
)
from yiemagent.tool import AgentTool


def make_tool(name, text="ok", **fields):
    return AgentTool(name, description=f"does {name}", execute=lambda *_: text, **fields)


def filled(*names):
    store = ToolStore("demo")
    for name in names:
        store.register(make_tool(name))
    return store


# --- the store -------------------------------------------------------------------------------------------------------


def test_tools_keep_the_order_in_which_they_came():
    """The snapshot is in order of registration, whatever the names are."""
    assert list(filled("b", "a", "c").snapshot()) == ["b", "a", "c"]


def test_a_snapshot_is_the_same_until_something_changes():
    """It is one read-only object between two changes, and never changes itself."""
    store = filled("a")
    before, version = store.snapshot(), store.version
    assert store.snapshot() is before
    store.register(make_tool("b"))

    assert list(before) == ["a"]
    assert list(store.snapshot()) == ["a", "b"]
    assert store.version > version
    with pytest.raises(TypeError):
        before["x"] = 1


def test_a_taken_name_stays_with_the_earlier_tool():
    """Another tool of the name is refused and told who has it; the same tool again is nothing new."""
    store = filled("a")
    tool, version = store.get("a"), store.version
    assert store.register(tool) is tool
    with pytest.raises(
        DuplicateTool, match="'a' is taken in the store 'demo' by a registered tool"
    ):
        store.register(make_tool("a"))

    assert store.get("a") is tool
    assert store.version == version


def test_only_tools_can_be_registered():
    """Anything else is refused at once."""
    with pytest.raises(ConfigurationError, match="is no AgentTool"):
        ToolStore().register("tool")


def test_a_tool_can_be_taken_out():
    """It is gone and given back; a name that is not there is told with those that are."""
    store = filled("a", "b")
    tool = store.get("a")

    assert store.remove("a") is tool
    assert "a" not in store
    assert store.get("a") is None
    assert len(store) == 1
    with pytest.raises(ToolNotFound, match="no tool 'a' in the store 'demo'; it has: b"):
        store.remove("a")
    store.clear()
    with pytest.raises(ToolNotFound, match="it has: none"):
        store.remove("b")


def test_a_tool_is_replaced_in_its_place():
    """The order stays, under the same name or another; what is gone or taken is refused."""
    store = filled("a", "b", "c")
    old, new = store.get("b"), make_tool("b", "new")
    store.replace(old, new)
    store.replace(store.get("a"), make_tool("z"))

    assert list(store.snapshot()) == ["z", "b", "c"]
    assert store.get("b") is new
    with pytest.raises(ToolNotFound):
        store.replace(old, new)
    with pytest.raises(DuplicateTool):
        store.replace(new, make_tool("c"))
    assert store.get("b") is new


def test_a_schema_that_was_made_sound_is_warned_about_at_registration(caplog):
    """The warning comes when the tool is registered, not when a model first calls it."""
    with caplog.at_level(logging.WARNING):
        ToolStore().register(make_tool("odd", input_schema={"properties": None}))

    assert "'odd'" in caplog.text


def test_a_store_says_what_it_holds():
    """Its repr names the tools."""
    assert repr(filled("a", "b")) == "<ToolStore 'demo': a, b>"
    assert repr(ToolStore()) == "<ToolStore 'tools': no tools>"


def test_threads_may_fill_a_store_at_once():
    """Nothing is lost and nothing doubled when many register."""
    store, start = ToolStore(), threading.Barrier(8)

    def fill(number):
        start.wait()
        for i in range(50):
            store.register(make_tool(f"t{number}_{i}"))
            assert f"t{number}_{i}" in store.snapshot()

    threads = [threading.Thread(target=fill, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(store) == 400
    assert store.version == 400


# --- functions -------------------------------------------------------------------------------------------------------


def test_a_plain_function_becomes_a_tool():
    """register_tool takes an annotated function, as @tool does."""

    def add(a: int, b: int = 2) -> int:
        """Adds two numbers."""
        return a + b

    store = ToolStore()
    tool = register_tool(store, add)

    assert store.get("add") is tool
    assert tool.execute("1", {"a": 1}).text == "3"


def test_get_tools_gives_a_dict_of_ones_own():
    """Changing it changes nothing."""
    store = filled("a")
    get_tools(store).clear()

    assert list(get_tools(store)) == ["a"]


def test_clearing_takes_everything_out():
    """list_tools goes too."""
    store = filled("a")
    register_tool(store, list_tool(store))
    clear_tools(store)

    assert get_tools(store) == {}


def test_list_tools_tells_what_is_there_at_that_moment():
    """One line for each tool, in order: name, label, description on one line."""
    store = filled("a")
    tool = register_tool(store, list_tool(store))
    register_tool(
        store, AgentTool("b", label="Bee", description="two\n  lines", execute=lambda *_: None)
    )
    result = tool.execute("1")

    assert tool.name == "list_tools"
    lines = result.text.splitlines()
    assert lines[:2] == ["Available tools:", "- a: A — does a"]
    assert lines[2].startswith("- list_tools: List tools — ")
    assert lines[3:] == ["- b: Bee — two lines"]
    assert result.details == {"tools": ["a", "list_tools", "b"]}


def test_registrations_are_collected_in_their_block():
    """What is registered in any store is named once, in order; blocks nest, and end with their block."""
    store = ToolStore()
    with collect_registrations() as outer:
        tool = store.register(make_tool("a"))
        store.register(tool)
        with collect_registrations() as inner:
            store.register(make_tool("b"))
        store.replace(tool, make_tool("a"))
        ToolStore().register(make_tool("c"))
    store.register(make_tool("d"))

    assert outer == ["a", "c"]
    assert inner == ["b"]


def test_registrations_of_other_threads_are_not_collected():
    """A block sees its own context only."""
    store = ToolStore()
    with collect_registrations() as names:
        thread = threading.Thread(target=lambda: store.register(make_tool("a")))
        thread.start()
        thread.join()

    assert "a" in store
    assert names == []


# --- folders ---------------------------------------------------------------------------------------------------------

SOURCE = """
from yiemagent.tool import AgentTool

def execute(tool_call_id, args, signal, on_partial_result):
    return {text!r}

def get_tool():
    return AgentTool({name!r}, description="d", execute=execute)
"""


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "tools"


@pytest.fixture
def write(folder):
    """Write a tool file, or another text."""
    folder.mkdir()

    def write(file, name=None, text="ok", source=None):
        path = folder / file
        path.write_text(source or SOURCE.format(name=name or path.stem, text=text))
        os.utime(path, (1e9, 1e9))  # the same time always: changes are told by content
        return path

    return write


def said(store, name):
    return store.get(name).execute("1").text


def test_a_folder_is_loaded_in_alphabetical_order(write, folder):
    """Every *.py is a tool, list_tools comes with them, and the folder's own tools are given back."""
    write("b.py")
    write("a.py")
    store = ToolStore()
    tools = load_tools(store, folder)

    assert list(tools) == ["a", "b"]
    assert list(store.snapshot()) == ["a", "b", "list_tools"]
    assert load_tools(store, str(folder)) == tools
    assert store.load_errors == ()


def test_what_is_no_file_is_not_read(write, folder):
    """A named pipe and a folder that are called like a tool file hold nothing up; a link to nowhere is told."""
    write("one.py")
    os.mkfifo(folder / "pipe.py")
    (folder / "folder.py").mkdir()
    (folder / "linked.py").symlink_to("/dev/zero")
    (folder / "gone.py").symlink_to(folder / "nowhere.py")
    store = ToolStore()
    tools = load_tools(store, folder)

    assert list(tools) == ["one"]
    assert [error.path for error in store.load_errors] == [str(folder / "nowhere.py")]


def test_some_files_are_no_tool_files(write, folder, caplog):
    """Names with a leading underscore or with "registry" are skipped and logged; folders and other files ignored."""
    write("_helper.py", source="raise RuntimeError")
    write("my_registry.py", source="raise RuntimeError")
    write("notes.txt", source="no code")
    (folder / "dir.py").mkdir()
    store = ToolStore()
    with caplog.at_level(logging.INFO):
        assert load_tools(store, folder) == {}

    assert store.load_errors == ()
    assert "_helper.py" in caplog.text
    assert "my_registry.py" in caplog.text


def test_bad_files_are_reported_and_the_rest_load(write, folder, caplog):
    """Each bad file is named with line and reason; none keeps another from loading."""
    write("a.py")
    write("b.py", source="x = 1\ndef get_tool(:\n")
    write("c.py", source="import sys\nsys.exit(4)\n")
    write("d.py", source="def get_tool():\n    return {'name': 'd'}\n")
    write("e.py", source="def get_tool():\n    return int\n")
    write("z.py")
    store = ToolStore()

    assert list(load_tools(store, folder)) == ["a", "z"]
    found = {pathlib.Path(error.path).name: error for error in store.load_errors}
    assert list(found) == ["b.py", "c.py", "d.py", "e.py"]
    assert found["b.py"].line == 2
    assert "SystemExit" in found["c.py"].reason
    assert "get_tool() gave {'name': 'd'}" in found["d.py"].reason
    assert "b.py:2" in caplog.text


@pytest.mark.parametrize(
    "source",
    [
        "raise ValueError('x' * 10**6)",
        "class Long:\n    __repr__ = lambda self: 'x' * 10**6\nget_tool = Long",
        (
            "from yiemagent import AgentTool\n"
            "get_tool = lambda: AgentTool('x' * 10**6, description='d', execute=print)"
        ),
    ],
)
def test_what_is_told_of_a_bad_file_is_short(write, folder, caplog, source):
    """However long its own words are: in the error, in the log and in what an agent tells of the change."""
    store = ToolStore()
    store.watch(folder)
    write("bad.py", source=source)
    [change] = store.look()
    [error] = store.load_errors

    assert "more characters]" in error.reason
    assert len(change.message) < 3000
    assert len(str(change.details)) < 3000
    assert len(str(error)) < 3000
    assert len(caplog.text) < 6000


def test_a_strict_load_raises_at_the_first_bad_file(write, folder):
    """What was loaded before it stays, what comes behind it is not looked at."""
    write("a.py")
    write("b.py", source="1 / 0\n")
    write("c.py")
    store = ToolStore()
    with pytest.raises(ToolLoadError, match="ZeroDivisionError"):
        load_tools(store, folder, on_error="raise")

    assert list(store.snapshot()) == ["a"]


def test_a_folder_that_is_none_is_refused(tmp_path):
    """A caller's mistake raises at once."""
    with pytest.raises(
        ConfigurationError, match=r"no folder '.*gone'.*; give .*builtin_tools_dir\(\)"
    ):
        load_tools(ToolStore(), tmp_path / "gone")
    with pytest.raises(ConfigurationError, match="on_error"):
        load_tools(ToolStore(), tmp_path, on_error="ignore")


def test_a_file_may_give_a_plain_function(write, folder):
    """get_tool() may give an annotated function, which becomes a tool."""
    write(
        "f.py",
        source='def shout(text: str):\n    "Shouts."\n    return text.upper()\n\ndef get_tool():\n    return shout\n',
    )
    store = ToolStore()
    load_tools(store, folder)

    assert store.get("shout").execute("1", {"text": "a"}).text == "A"


def test_an_unchanged_file_keeps_its_tool(write, folder):
    """Loading again runs nothing and changes nothing."""
    write(
        "a.py",
        source=SOURCE.format(name="a", text="ok")
        + "\nimport sys\nsys.loads_of_a = getattr(sys, 'loads_of_a', 0) + 1\n",
    )
    store = ToolStore()
    tool = load_tools(store, folder)["a"]
    version = store.version
    try:
        assert load_tools(store, folder)["a"] is tool
        assert sys.loads_of_a == 1
    finally:
        del sys.loads_of_a
    assert store.version == version


def test_a_changed_file_replaces_its_tool_in_its_place(write, folder):
    """The new version has the old one's place, under a new name too, and running calls keep the old one."""
    for name in "abc":
        write(f"{name}.py")
    store = ToolStore()
    old = load_tools(store, folder)["b"]
    write("b.py", text="new")
    write("a.py", name="x")
    load_tools(store, folder)

    assert list(store.snapshot()) == ["x", "b", "c", "list_tools"]
    assert said(store, "b") == "new"
    assert old.execute("1").text == "ok"


def test_a_changed_helper_reloads_the_files_that_use_it(write, folder):
    """A tool is as current as the helpers that it was loaded with."""
    helper = write("_words.py", source="WORD = 'one'\n")
    write(
        "a.py",
        source=SOURCE.format(name="a", text="").replace("return ''", "return WORD")
        + "\nfrom ._words import WORD\n",
    )
    store = ToolStore()
    load_tools(store, folder)
    assert said(store, "a") == "one"
    helper.write_text("WORD = 'two'\n")
    load_tools(store, folder)

    assert said(store, "a") == "two"


def test_the_last_good_version_stays_when_a_file_breaks(write, folder):
    """The error is reported, the tool still works, and a repair takes the error off."""
    write("a.py")
    store = ToolStore()
    load_tools(store, folder)
    write("a.py", source="def get_tool(:\n")

    assert list(load_tools(store, folder)) == ["a"]
    assert said(store, "a") == "ok"
    assert "SyntaxError" in store.load_errors[0].reason
    write("a.py")
    load_tools(store, folder)
    assert store.load_errors == ()


def test_a_file_that_is_gone_takes_its_tool_along(write, folder):
    """Its tool leaves the store, and its error the report; other tools stay."""
    path, bad = write("a.py"), write("b.py", source="1 / 0\n")
    store = filled("mine")
    load_tools(store, folder)
    path.unlink()
    bad.unlink()

    assert load_tools(store, folder) == {}
    assert list(store.snapshot()) == ["mine", "list_tools"]
    assert store.load_errors == ()


def test_a_tool_that_was_taken_out_comes_back_with_its_file(write, folder):
    """After remove or clear a file is loaded as a new one."""
    write("a.py")
    store = ToolStore()
    load_tools(store, folder)
    store.remove("a")
    load_tools(store, folder)
    assert "a" in store
    clear_tools(store)
    load_tools(store, folder)

    assert list(store.snapshot()) == ["a", "list_tools"]


@pytest.mark.parametrize("holder", ["file", "tool", "renamed file"])
def test_a_name_that_is_taken_is_reported(write, folder, holder):
    """A file's tool never takes the name of another file's, or of a registered tool; both are named."""
    store = ToolStore()
    if holder == "tool":
        store.register(make_tool("same", "first"))
        write("b.py", name="same", text="second")
    else:
        write("a.py", name="same", text="first")
        write("b.py", name="same" if holder == "file" else "b", text="second")
    load_tools(store, folder)
    if holder == "renamed file":
        write("b.py", name="same", text="second")
        load_tools(store, folder)
    (error,) = store.load_errors

    assert said(store, "same") == "first"
    assert isinstance(error, DuplicateTool)
    assert "b.py" in str(error)
    assert ("a registered tool" if holder == "tool" else "a.py") in error.reason
    assert type(pickle.loads(pickle.dumps(error))) is type(error)
    assert ("b" in store) == (holder == "renamed file")


def test_a_file_with_its_own_list_tools_is_kept(write, folder):
    """The folder's own list_tools stays the only one."""
    write("list_tools.py", text="mine")
    store = ToolStore()
    load_tools(store, folder)
    load_tools(store, folder)

    assert said(store, "list_tools") == "mine"
    assert store.load_errors == ()


def test_two_folders_share_a_store(write, folder, tmp_path):
    """Loading one folder leaves the other's tools and errors alone."""
    write("a.py")
    write("bad.py", source="1 / 0\n")
    other = tmp_path / "other"
    other.mkdir()
    (other / "c.py").write_text(SOURCE.format(name="c", text="ok"))
    store = ToolStore()
    load_tools(store, folder)
    load_tools(store, other)

    assert list(store.snapshot()) == ["a", "list_tools", "c"]
    assert len(store.load_errors) == 1


def test_code_of_a_file_runs_without_the_lock(write, folder):
    """While a file is loading, other threads read and change the store."""
    write(
        "slow.py",
        source=textwrap.dedent(
            """
            import sys, threading
            def get_tool():
                thread = threading.Thread(target=sys.change_store)
                thread.start()
                thread.join()
                from yiemagent.tool import AgentTool
                return AgentTool("slow", description="d", execute=lambda *_: None)
            """
        ),
    )
    store = ToolStore()
    sys.change_store = lambda: store.register(make_tool(f"other{len(store)}"))
    try:
        load_tools(store, folder)
    finally:
        del sys.change_store

    assert list(store.snapshot()) == ["other0", "slow", "list_tools"]


def test_modules_go_with_their_tools(write, folder):
    """A version that nobody uses any more leaves sys.modules; a failed one leaves nothing."""
    path = write("a.py")
    store = ToolStore()
    load_tools(store, folder)
    write("a.py", text="new")
    load_tools(store, folder)
    write("b.py", name="a")
    write("c.py", source="def get_tool():\n    return 5\n")
    load_tools(store, folder)
    gc.collect()
    modules = [m for m in list(sys.modules.values()) if getattr(m, "__file__", None)]

    assert len([m for m in modules if m.__file__ == str(path.resolve())]) == 1
    assert not [
        m for m in modules if m.__file__.startswith(str(folder)) and not m.__file__.endswith("a.py")
    ]


def test_tools_registered_by_a_load_are_collected(write, folder):
    """A tool that loads a folder names what it made available, changed files included."""
    write("a.py")
    store = ToolStore()
    with collect_registrations() as first:
        load_tools(store, folder)
    write("a.py", text="new")
    with collect_registrations() as second:
        load_tools(store, folder)

    assert first == ["a", "list_tools"]
    assert second == ["a"]


def test_the_built_in_tools_load():
    """The folder of the built-in tools is found, and every file in it is a sound tool."""
    store = ToolStore()
    tools = load_tools(store, builtin_tools_dir(), on_error="raise")

    assert {"get_time", "get_weather"} <= tools.keys()
    assert "list_tools" in store


def test_built_in_tools_that_can_do_harm_are_loaded_by_their_folder_only():
    """Files, commands and the web come with `builtin_tools_dir(group)` and not without."""
    plain, store = ToolStore(), ToolStore()
    load_tools(plain, builtin_tools_dir(), on_error="raise")
    groups = {
        group: set(load_tools(store, builtin_tools_dir(group), on_error="raise"))
        for group in ("files", "shell", "web")
    }

    assert groups == {
        "files": {"edit_file", "read_file", "search_files", "write_file"},
        "shell": {"run_command"},
        "web": {"fetch_url"},
    }
    assert not set().union(*groups.values()) & set(get_tools(plain))


def test_a_loaded_tool_gets_what_the_contract_says(write, folder):
    """A unit test calls it with an id and arguments; signal and callback may be given or not."""
    write(
        "a.py",
        source=SOURCE.format(name="a", text="").replace(
            "return ''", "return [tool_call_id, args, signal.aborted]"
        ),
    )
    store = ToolStore()
    tool = load_tools(store, folder)["a"]
    signal = AbortSignal()
    signal.abort()

    assert tool.execute("7", {"k": 1}).text == '["7", {"k": 1}, false]'
    assert tool.execute("7", {}, signal).text == '["7", {}, true]'


def test_swapped_arguments_are_told():
    """A folder in the store's place is refused in words."""
    with pytest.raises(ConfigurationError, match="the store comes first"):
        load_tools("tools", ToolStore())


def test_a_watcher_is_told_of_each_change_until_it_goes():
    """Registering, replacing, removing and clearing are told, reading is not."""
    store, seen = ToolStore(), []
    forget = store.on_change(lambda: seen.append(store.version))
    first, second = make_tool("a"), make_tool("b")
    store.register(first)
    store.replace(first, second)
    store.snapshot()
    store.remove("b")
    store.clear()
    forget()
    store.register(first)

    assert seen == [1, 2, 3, 4]
