"""`write_tool`: what it writes, what it refuses, and that nothing else changes."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from tests.support.tool_writing import SHOUT, writing_folder
from tools import write_tool
from yiemagent import (
    AbortSignal,
    ToolStore,
    YiemAgent,
    ask,
    get_tools,
    load_tools,
    register_tool,
    stop_agent,
)
from yiemagent.errors import AbortedError, ToolError
from yiemagent.events import ToolExecUpdateEvent
from yiemagent.testing import RecordingSink, ScriptedModel, call, check_event_order
from yiemagent.tool import AgentTool
from yiemagent.tool_versions import VERSIONS, history

SOURCE = Path(write_tool.__file__)


@pytest.fixture
def folder(tmp_path):
    """A folder of tools with `write_tool` in it."""
    return writing_folder(tmp_path / "tools").resolve()


@pytest.fixture
def store(folder):
    """A store with the tools of the folder."""
    store = ToolStore("mine")
    load_tools(store, folder, on_error="raise")
    return store


def write(store, signal=None, on_partial_result=None, **fields):
    given = {**SHOUT, **fields}
    return store.get("write_tool").execute("call_1", given, signal, on_partial_result)


def refused(store, **fields):
    with pytest.raises(ToolError) as caught:
        write(store, **fields)
    return str(caught.value)


def tree(root):
    """Everything below a folder: what it is, what it holds, its mode and when it was changed."""
    found = {}
    for path in sorted(root.rglob("*")):
        what = (
            path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
        )
        about = path.lstat()
        found[str(path.relative_to(root))] = (what, about.st_mode, about.st_mtime_ns)
    return found


# -- writing ----------------------------------------------------------------------------------------------------------


def test_a_tool_is_written_and_can_be_called(store, folder):
    """There is one new file, the tool is the store's, and works; the result says so and shows the file."""
    before = set(tree(folder.parent))
    result = write(store)

    assert set(tree(folder.parent)) - before == {"tools/shout.py"}
    assert result.text == "Wrote the tool shout.\nIt can be called from your next turn on."
    assert result.added_tool_names == ("shout",)
    assert result.details["source"] == (folder / "shout.py").read_text()
    assert result.details["replaced"] is False
    assert get_tools(store)["shout"].execute("1", {"text": "hi"}).text == "HI"
    (version,) = history(folder, "shout")
    assert (version.author, version.changed, version.approval) == ("model", False, None)


def test_it_is_there_at_the_next_start(store, folder):
    """Another store that loads the folder has the tool."""
    write(store)
    later = ToolStore()
    load_tools(later, folder, on_error="raise")

    assert get_tools(later)["shout"].execute("1", {"text": "hi"}).text == "HI"


def test_loading_again_changes_nothing(store, folder):
    """The file is as the store has it, so another load keeps its tool."""
    write(store)
    tool = store.get("shout")
    load_tools(store, folder)

    assert store.get("shout") is tool
    assert store.load_errors == ()


def test_all_pieces_and_imports_are_used(store):
    """Checks, preparation, imports and parallel calls are those that were asked for; what nothing uses is named."""
    result = write(
        store,
        execute_code="return json.dumps(args)",
        prepare_code="args.setdefault('text', 'none')",
        validate_code="return 'too long' if len(args['text']) > 5 else None",
        imports=["import json", "import os"],
        parallel=True,
    )
    tool = store.get("shout")

    assert "Left out, since nothing uses it: import os" in result.text
    assert tool.prepare_arguments({}) == {"text": "none"}
    assert tool.validate_required_args({"text": "long text"}) == "too long"
    assert tool.parallel_tool_execute
    assert tool.execute("1", {"text": "a"}).text == '{"text": "a"}'


def test_an_example_is_called_first(store):
    """With example arguments the tool is called once, elsewhere, and the result shows what that gave."""
    code = "import os\nreturn str(os.getpid())"
    updates = []
    result = write(store, None, updates.append, execute_code=code, example_arguments={"text": "a"})
    pid = result.details["trial"]

    assert f"The trial call gave: {pid}" in result.text
    assert int(pid) != os.getpid()
    assert updates == ["trying shout"]
    quiet = write(store, name="quiet", execute_code="return ''", example_arguments={"text": "a"})
    assert "The trial call gave: nothing" in quiet.text


def test_other_names_for_the_arguments_are_understood():
    """What models call the arguments is taken for what they mean; imports may come as one text."""
    given = {
        "executeCode": "1",
        "inputSchema": {},
        "overwrite": True,
        "imports": "import a\nimport b",
    }
    prepared = write_tool.prepare_arguments({**given, "code": "other"})

    assert prepared == {
        "execute_code": "other",
        "input_schema": {},
        "replace": True,
        "imports": ["import a\nimport b"],
    }
    assert write_tool.prepare_arguments({"imports": '["json"]'}) == {"imports": '["json"]'}


def test_a_tool_with_helpers_beside_it(store, folder):
    """A written tool may import a helper of the folder."""
    (folder / "_words.py").write_text("WORD = 'from the helper'\n")
    write(store, execute_code="return WORD", imports=["from ._words import WORD"])

    assert store.get("shout").execute("1", {"text": ""}).text == "from the helper"


# -- replacing --------------------------------------------------------------------------------------------------------


def test_a_tool_is_replaced_only_when_asked_to(store, folder):
    """Without being asked, nothing changes; asked, the new version has its place and the earlier one is kept."""
    write(store)
    before = tree(folder)
    said = refused(store, execute_code="return 'new'")
    assert "there is a tool 'shout' already; take another name, or set replace" in said
    assert tree(folder) == before
    names = list(get_tools(store))
    result = write(store, execute_code="return 'new'", replace=True)

    assert result.text.startswith("Replaced the tool shout; the earlier version is kept.")
    assert result.added_tool_names == ("shout",)
    assert list(get_tools(store)) == names
    assert store.get("shout").execute("1", {"text": ""}).text == "new"
    assert [version.number for version in history(folder, "shout")] == [1, 2]


def test_a_persons_file_is_kept_too(store, folder):
    """What a person wrote is a version like any other."""
    (folder / "shout.py").write_text("# by hand, and not even a tool\n")
    write(store, replace=True)

    assert [version.author for version in history(folder, "shout")] == ["person", "model"]


def test_a_call_that_runs_goes_on_with_its_version(store):
    """Replacing a tool changes no call that has begun."""
    write(store, execute_code="signal.wait(20)\nreturn 'old'")
    signal, results = AbortSignal(), []
    tool = store.get("shout")
    thread = threading.Thread(
        target=lambda: results.append(tool.execute("1", {"text": ""}, signal).text)
    )
    thread.start()
    write(store, execute_code="return 'new'", replace=True)
    signal.abort()
    thread.join()

    assert results == ["old"]
    assert store.get("shout").execute("1", {"text": ""}).text == "new"


@pytest.mark.parametrize("replace", [False, True])
def test_tools_from_elsewhere_are_not_replaced(store, folder, replace):
    """A name that is taken by a tool of no file here, or of another file here, is refused."""
    register_tool(store, AgentTool("shout", description="d", execute=lambda *_: "mine"))
    before = tree(folder.parent)
    said = refused(store, replace=replace)

    assert "taken by a tool that is not in" in said
    assert tree(folder.parent) == before
    assert store.get("shout").execute("1").text == "mine"


# -- approval ---------------------------------------------------------------------------------------------------------


def test_whoever_approves_is_shown_the_file_that_passed(folder):
    """Once every check has passed, the name and the text of the file are shown; who approved stands in it."""
    shown = []

    def approve(name, text):
        shown.append((name, text, sorted(p.name for p in folder.iterdir())))
        return "Ann"

    store = ToolStore()
    tool = write_tool.get_tool(directory=folder, store=store, approve=approve)
    with pytest.raises(ToolError):
        tool.execute("1", {**SHOUT, "execute_code": "return ("})
    tool.execute("1", SHOUT)
    ((name, text, files),) = shown

    assert name == "shout"
    assert (tool.timeout_s, write_tool.get_tool().timeout_s) == (None, 300)
    assert (folder / "shout.py").read_text().startswith(text)
    assert files == ["write_tool.py"]
    assert history(folder, "shout")[0].approval == "Ann"


def test_what_is_not_approved_is_not_written(folder):
    """Where the answer is no, the model is told, and nothing is there."""
    tool = write_tool.get_tool(directory=folder, store=ToolStore(), approve=lambda *_: False)
    before = tree(folder)
    with pytest.raises(ToolError, match="did not approve"):
        tool.execute("1", SHOUT)
    assert tree(folder) == before
    write_tool.get_tool(directory=folder, approve=lambda *_: True).execute("1", SHOUT)

    assert history(folder, "shout")[0].approval == "yes"


# -- where it writes --------------------------------------------------------------------------------------------------


def test_the_built_in_one_needs_to_be_told_where(tmp_path, monkeypatch):
    """The built-in file writes nowhere until the environment or the program names a folder, which is then made."""
    monkeypatch.delenv("YIEMAGENT_WRITE_TOOL_DIR", raising=False)
    monkeypatch.setenv("YIEMAGENT_TOOLS_DIR", str(tmp_path))  # where a person's own tools go
    with pytest.raises(ToolError, match="there is no folder to write tools to"):
        write_tool.get_tool().execute("1", SHOUT)
    monkeypatch.setenv("YIEMAGENT_WRITE_TOOL_DIR", str(tmp_path / "by" / "environment"))
    result = write_tool.get_tool().execute("1", SHOUT)
    write_tool.get_tool(directory=tmp_path / "by_program").execute("1", SHOUT)

    assert result.text.endswith(f"It will be there when {tmp_path}/by/environment is loaded.")
    assert result.added_tool_names == ()
    assert (tmp_path / "by" / "environment" / "shout.py").is_file()
    assert (tmp_path / "by_program" / "shout.py").is_file()


def test_a_folder_that_was_made_for_a_trial_goes_again(tmp_path):
    """Where the trial fails, the folder that was not there before is not there after."""
    tool = write_tool.get_tool(directory=tmp_path / "new")
    with pytest.raises(ToolError):
        tool.execute("1", {**SHOUT, "imports": ["nowhere"], "execute_code": "return nowhere"})

    assert list(tmp_path.iterdir()) == []


def test_a_store_that_takes_the_name_meanwhile_wins(folder):
    """Where the name is taken between check and loading, the file is taken back; so is a replaced one."""
    store = ToolStore()

    def register(*_):
        register_tool(store, AgentTool("shout", description="d", execute=lambda *_: "mine"))
        return True

    tool = write_tool.get_tool(directory=folder, store=store, approve=register)
    before = tree(folder)
    with pytest.raises(ToolError, match="the name 'shout' is taken by a registered tool"):
        tool.execute("1", SHOUT)
    assert set(tree(folder)) == set(before)
    (folder / "shout.py").write_text("# by hand")
    store.remove("shout")
    with pytest.raises(ToolError, match="the name 'shout' is taken"):
        tool.execute("1", {**SHOUT, "replace": True})

    assert (folder / "shout.py").read_text() == "# by hand"
    assert not (folder / VERSIONS).exists()


def test_somebody_who_writes_the_file_meanwhile_wins(folder):
    """A file that appears between check and writing is not written over."""

    def write(*_):
        (folder / "shout.py").write_text("# theirs")
        return True

    tool = write_tool.get_tool(directory=folder, approve=write)
    with pytest.raises(ToolError, match=r"somebody else wrote shout\.py meanwhile"):
        tool.execute("1", {**SHOUT, "replace": True})

    assert (folder / "shout.py").read_text() == "# theirs"


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    """Where the system refuses, the error says so."""
    (tmp_path / "file").write_text("")
    tool = write_tool.get_tool(directory=tmp_path / "file" / "tools")
    with pytest.raises(ToolError, match="'shout' was not written: "):
        tool.execute("1", SHOUT)


def test_an_abort_leaves_nothing(store, folder):
    """Aborted while it is tried, a tool is not written, and nothing of the trial stays."""
    signal = AbortSignal()
    before = tree(folder)
    with pytest.raises(AbortedError):
        write(store, signal, lambda _: signal.abort("enough"))

    assert set(tree(folder)) == set(before)


# -- hostile input ----------------------------------------------------------------------------------------------------

NAMES = [
    *("../evil", "..\\evil", "/opt/evil_abs", "a/b", "evil.py", "class", "None", "", " x", "x "),
    *("two words", "tool\n", "tool\0", "naïve", "1tool", "__init__", "__class__", "x" * 300, 5),
    *("list_tools", "write_tool", "con:1", "json", "os", "_private", "my_registry", "SHOUT_OTHER"),
]


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_bad_names_change_nothing(store, folder, name, replace):
    """Paths, null characters, keywords, modules, other tools and anything too long are refused with a reason."""
    (folder / "shout_other.py").write_text("# somebody's\n")
    before = tree(folder.parent)
    said = refused(store, name=name, replace=replace)

    assert "was not written, and nothing was changed:\n- " in said
    assert said.endswith("\nMend it and call write_tool again.")
    assert len(said) < 600
    assert tree(folder.parent) == before


@pytest.mark.parametrize("replace", [False, True])
def test_a_link_is_left_alone(store, folder, replace):
    """A link that has the name, to a file outside or to nothing, is not followed and not replaced."""
    outside = folder.parent / "outside.py"
    outside.write_text("# outside")
    (folder / "linked.py").symlink_to(outside)
    (folder / "dangling.py").symlink_to(folder.parent / "nothing.py")
    before = tree(folder.parent)
    for name in ("linked", "dangling"):
        assert "is no plain file" in refused(store, name=name, replace=replace)

    assert tree(folder.parent) == before


SCHEMAS = [
    {"type": "object", "properties": {"text": {"$ref": "https://example.org/schema.json"}}},
    {"type": "object", "properties": {"text": {"$ref": "file:///etc/passwd"}}},
    {"type": "object", "allOf": [{"anyOf": [{"$ref": "#"}]}]},
    {"type": "object", "description": "x" * 10_000_000},
    {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(5000)}},
    json.loads('{"type": "object", "not": ' * 60 + "true" + "}" * 60),
    {"type": "string"},
]


@pytest.mark.parametrize(
    "schema", SCHEMAS, ids=["remote", "file", "endless", "10 MB", "wide", "deep", "type"]
)
def test_bad_schemas_change_nothing(store, folder, schema):
    """References to elsewhere or without an end, and schemas that are too large or deep, are refused with a reason."""
    before = tree(folder.parent)
    said = refused(store, input_schema=schema)

    assert "- input_schema" in said
    assert len(said) < 600
    assert tree(folder.parent) == before


def test_a_schema_that_refers_to_itself_is_fine(store):
    """Recursion inside of a schema is no trouble, at the trial neither."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}, "next": {"$ref": "#"}}}
    write(store, input_schema=schema, example_arguments={"text": "a", "next": {"text": "b"}})

    assert store.get("shout").input_schema == schema


EXAMPLE = {"example_arguments": {"text": "a"}}
CODES = {
    "exits": ("import sys\nsys.exit(3)", EXAMPLE, "line 2: the trial call failed: SystemExit: 3"),
    "ends": ("import os\nos._exit(3)", {}, "line 2, column 1: os._exit() is refused"),
    "ends, hidden": ("import os\ngetattr(os, '_exit')(3)", EXAMPLE, "ended with exit code 3"),
    "crashes": ("import ctypes\nctypes.string_at(0)", EXAMPLE, "killed by signal 11"),
    "forks": ("import os\nos.fork()", {}, "os.fork() is refused"),
    "forks, hidden": ("import os\ngetattr(os, 'fork')()", EXAMPLE, "must not fork"),
    "hangs": ("while True:\n    pass", EXAMPLE, "did not end within 2 s"),
    "floods": ("while True:\n    print('x' * 10**6)", EXAMPLE, "printed more than"),
    "builtins": ("import builtins\nbuiltins.len = None", {}, "changes Python"),
    "builtins, hidden": (
        "import builtins\nvars(builtins)['len'] = 1",
        EXAMPLE,
        "replaces builtins",
    ),
    "removes itself": (
        "import os\nos.remove(__file__)",
        EXAMPLE,
        "changed or removed its own file",
    ),
    "raises": ("raise KeyboardInterrupt", EXAMPLE, "KeyboardInterrupt"),
    "not there": (
        "return 1",
        {"imports": ["no_such_module_81"], "validate_code": "return no_such_module_81"},
        "no module 'no_such_module_81'",
    ),
    "not in there": (
        "return nothing",
        {"imports": ["from json import nothing"]},
        "cannot import name 'nothing'",
    ),
    "other module": (
        "import no.such\nreturn 1",
        {},
        "execute_code, line 1: there is no module 'no.such'",
    ),
    "example": ("return 1", {"example_arguments": {"txt": 1}}, "text: is missing"),
}


@pytest.mark.parametrize("case", CODES)
def test_hostile_code_changes_nothing(folder, case):
    """Code that exits, crashes, forks, hangs, floods, changes Python or its file is told so, and was never there."""
    code, fields, said = CODES[case]
    store = ToolStore()
    tool = write_tool.get_tool(directory=folder, store=store, trial_s=2.0)
    before = tree(folder.parent)
    saved = dict(vars(__import__("builtins")))
    with pytest.raises(ToolError) as caught:
        tool.execute("1", {**SHOUT, "execute_code": code, **fields})
    after = tree(folder.parent)
    after.pop("tools")  # its time changes with the file that is tried
    before.pop("tools")

    assert said in str(caught.value)
    assert after == before
    assert "shout" not in store
    assert vars(__import__("builtins")) == saved


@pytest.mark.parametrize(
    ("helper", "said"),
    [
        ("while True:\n    pass", "did not end within 2 s"),
        ("import os\nos._exit(0)", "ended with exit code 0"),
        ("import os\nos.fork()", "must not fork"),
        ("print('x' * 2_000_000)", "printed more than"),
        ("import builtins\nbuiltins.open = None", "replaces builtins of Python: open"),
        ("raise SystemExit(5)", "SystemExit: 5"),
    ],
)
def test_what_an_import_does_is_told(folder, helper, said):
    """A module that hangs, exits, forks, floods or changes Python when it is imported keeps the tool from being."""
    (folder / "_helper.py").write_text(helper)
    tool = write_tool.get_tool(directory=folder, store=ToolStore(), trial_s=2.0)
    before = set(tree(folder.parent))
    with pytest.raises(ToolError, match=said):
        tool.execute(
            "1", {**SHOUT, "imports": ["from . import _helper"], "execute_code": "return _helper"}
        )

    assert set(tree(folder.parent)) == before


# -- in a run ---------------------------------------------------------------------------------------------------------


def test_an_agent_makes_the_tool_it_lacks(store, folder):
    """In one run the agent looks for a tool, writes one with a mistake, mends it, calls it, and answers."""
    store.watch(folder)
    sink = RecordingSink()
    mended = {**SHOUT, "example_arguments": {"text": "trial"}}
    model = ScriptedModel(
        [
            call("list_tools"),
            call("write_tool", {**mended, "execute_code": "return args['text'.upper()"}),
            call("write_tool", json.dumps(mended)),
            call("shout", {"text": "hello"}),
            "It says HELLO.",
        ]
    )
    agent = YiemAgent(model, tool_store=store, event_sink=sink)
    answer = ask(agent, "Shout hello.", timeout_s=50)
    stop_agent(agent)
    results = [message for message in agent.messages if message.role == "toolResult"]

    assert answer.text == "It says HELLO."
    assert [(r.tool_name, r.is_error) for r in results] == [
        ("list_tools", False),
        ("write_tool", True),
        ("write_tool", False),
        ("shout", False),
    ]
    assert "- write_tool: Write Tool — Write a new tool in Python" in results[0].text
    assert "execute_code, line 1, column 12: SyntaxError: '[' was never closed" in results[1].text
    assert results[2].added_tool_names == ("shout",)
    assert results[3].text == "HELLO"
    assert ["shout" in request.tools for request in model.requests] == [False] * 3 + [True] * 2
    assert [event.partial_result for event in sink.of(ToolExecUpdateEvent)] == ["trying shout"]
    assert "ToolsChangedEvent" in sink.names()
    check_event_order(sink.events)


def test_a_model_that_hides_what_it_does_cannot_end_the_agent(store):
    """Code that passes every check and then exits is an error result, and the agent goes on."""
    model = ScriptedModel(
        [
            call("write_tool", {**SHOUT, "execute_code": "import sys\nsys.exit('bye')"}),
            call("shout", {"text": "a"}),
            "Still here.",
        ]
    )
    agent = YiemAgent(model, tool_store=store)
    answer = ask(agent, "Go.", timeout_s=50)
    stop_agent(agent)

    assert answer.text == "Still here."
    assert "SystemExit: bye" in agent.messages[4].text


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os\ngetattr(os, '_exit')(3)", "its process ended with exit code 3"),
        ("import ctypes\nctypes.string_at(0)", "its process was ended by SIGSEGV"),
        ("import os\nos.kill(os.getpid(), 9)", "its process was ended by SIGKILL"),
    ],
)
def test_in_a_process_no_written_tool_ends_the_agent(folder, code, said):
    """With a store that isolates, code that passes every check and ends its process is an error result, no more."""
    store = ToolStore(isolation="process")
    register_tool(store, write_tool.get_tool(directory=folder, store=store))
    model = ScriptedModel(
        [
            call("write_tool", {**SHOUT, "execute_code": code}),
            call("shout", {"text": "a"}),
            call("write_tool", {**SHOUT, "replace": True}),
            call("shout", {"text": "a"}),
            "Still here.",
        ]
    )
    agent = YiemAgent(model, tool_store=store)
    answer = ask(agent, "Go.", timeout_s=50)
    stop_agent(agent)
    store.close()
    results = [message for message in agent.messages if message.role == "toolResult"]

    assert answer.text == "Still here."
    assert (said in results[1].text, results[1].is_error) == (True, True)
    assert results[3].text == "A"
