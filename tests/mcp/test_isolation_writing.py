"""Tools that an agent writes, run in processes."""

import os
import shutil

from yiemagent import ToolStore, YiemAgent, ask, builtin_tools_dir, load_tools
from yiemagent.testing import ScriptedModel, call

FIELDS = {
    "name": "who",
    "label": "Who",
    "description": "Tell the process, or end it.",
    "input_schema": {"type": "object", "properties": {"end": {"type": "boolean"}}},
    "imports": ["import ctypes", "import os"],
}
MISTAKE = "return str(os.getpid("
CODE = "if args.get('end'):\n    ctypes.string_at(0)\nreturn str(os.getpid())"


def test_what_an_agent_writes_runs_in_a_process(tmp_path):
    """In one run it is refused, mended, called and crashes, and the agent goes on; `write_tool` itself stays here."""
    shutil.copy(builtin_tools_dir() / "write_tool.py", tmp_path)
    model = ScriptedModel(
        [
            call("list_tools"),
            call("write_tool", {**FIELDS, "execute_code": MISTAKE}),
            call("write_tool", {**FIELDS, "execute_code": CODE}),
            call("who", {"end": True}),
            call("who"),
            "done",
        ]
    )
    store = ToolStore(isolation="process")
    store.watch(tmp_path)
    try:
        agent = YiemAgent(model, tool_store=store)
        answer = ask(agent, "Who are you?")
        where = {name: tool.isolation for name, tool in store.snapshot().items()}
    finally:
        store.close()

    results = [message for message in agent.messages if message.role == "toolResult"]
    assert answer.text == "done"
    assert "SyntaxError" in results[1].text
    assert results[2].added_tool_names == ("who",)
    assert results[3].text.startswith("who: its process was ended by SIGSEGV")
    assert int(results[4].text) != os.getpid()
    assert where == {"write_tool": "thread", "list_tools": "thread", "who": "process"}


def test_only_the_built_in_write_tool_stays_here(tmp_path):
    """A file of that name with anything else in it runs in a process like every other."""
    text = (builtin_tools_dir() / "write_tool.py").read_text()
    (tmp_path / "write_tool.py").write_text(f"{text}\nassert os.getpid() != {os.getpid()}\n")
    store = ToolStore(isolation="process")
    try:
        [tool] = load_tools(store, tmp_path, on_error="raise").values()
    finally:
        store.close()

    assert (tool.name, tool.isolation) == ("write_tool", "process")
