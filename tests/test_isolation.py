"""How a store says where its tools run: limits, folders, and tools that no process could find."""

import runpy
import subprocess
import sys
import textwrap
import types

import pytest

from yiemagent.errors import ConfigurationError
from yiemagent.isolation import ProcessLimits, tool_file_of
from yiemagent.registry import ToolStore, load_tools, register_tool
from yiemagent.signature import tool
from yiemagent.tool import AgentTool

TOOL = """
import functools
from yiemagent import AgentTool, tool

class Speaker:
    def __call__(self, tool_call_id, args, signal, on_partial_result):
        return "said"

def execute(tool_call_id, args, signal, on_partial_result):
    return "executed"

@tool
def plain() -> str:
    '''Plain.'''
    return "plain"

def of(function):
    return AgentTool("say", description="Say.", execute=function)

def get_tool():
    return of(execute)
"""


def made(name, **fields):
    return AgentTool(name, description="Do.", execute=print, isolation="process", **fields)


def test_limits_have_defaults_and_may_be_lifted():
    """Memory, files and open files are limited unless that is lifted; the rest is where it is asked for."""
    limits = ProcessLimits()

    assert (limits.memory_bytes, limits.file_bytes, limits.open_files) == (4 << 30, 1 << 30, 256)
    assert (limits.cpu_s, limits.processes, limits.cwd, limits.env) == (None, None, None, ())
    assert ProcessLimits(memory_bytes=None).memory_bytes is None
    assert ProcessLimits(env=["A", "B"]) == ProcessLimits(env=("A", "B"))
    assert hash(ProcessLimits(env={"A": "1"})) == hash(ProcessLimits(env={"A": "1"}))


def test_limits_never_show_a_value_of_the_environment():
    """They may be keys: the names are shown."""
    limits = ProcessLimits(env={"MY_KEY": "sk-secret"})

    assert "sk-secret" not in f"{limits!r} {limits}"
    assert "env=('MY_KEY',)" in repr(limits)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"memory_bytes": 1 << 20}, "memory_bytes must be a whole number, at least 268435456"),
        ({"memory_bytes": "1G"}, "memory_bytes"),
        ({"memory_bytes": True}, "memory_bytes"),
        ({"cpu_s": 0}, "cpu_s must be seconds above 0"),
        ({"cpu_s": "1"}, "cpu_s"),
        ({"file_bytes": -1}, "file_bytes"),
        ({"open_files": 3}, "open_files"),
        ({"processes": 0}, "processes"),
        ({"env": "HOME"}, "env must be names"),
        ({"env": ["A=B"]}, "env must be names"),
        ({"env": [""]}, "env must be names"),
        ({"env": {"A": 1}}, "env must be names"),
        ({"env": {"A=": "1"}}, "env must be names"),
        ({"env": {"A": "1\0"}}, "env must be names"),
        ({"memory_bytes": 10**30}, "memory_bytes must be .* below 2..60"),
        ({"cpu_s": float("inf")}, "cpu_s must be seconds above 0 and below 2"),
        ({"cpu_s": float("nan")}, "cpu_s must be seconds above 0 and below 2"),
        ({"cwd": 5}, "cwd must be a folder, or None for the one of this process, not 5"),
        ({"cwd": b"/tmp"}, "cwd must be a folder"),
        ({"cwd": ""}, "cwd must be a folder"),
        ({"cwd": "/tmp\0"}, "cwd must be a folder"),
    ],
)
def test_limits_that_make_no_sense_are_refused(fields, words):
    """The error says at once which limit, and what it may be."""
    with pytest.raises(ConfigurationError, match=words):
        ProcessLimits(**fields)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"isolation": "vm"}, "isolation must be 'thread' or 'process', not 'vm'"),
        ({"limits": {"cpu_s": 1}}, "limits must be ProcessLimits"),
        ({"max_processes": 0}, "max_processes must be at least 1"),
        ({"max_processes": True}, "max_processes must be at least 1"),
    ],
)
def test_a_store_refuses_what_makes_no_sense(options, words):
    """The error says at once which option."""
    with pytest.raises(ConfigurationError, match=words):
        ToolStore(**options)


def test_a_folder_refuses_what_makes_no_sense(tmp_path):
    """Options of `load_tools` are checked before any file is loaded."""
    (tmp_path / "bad.py").write_text("raise ValueError")
    store = ToolStore()

    with pytest.raises(ConfigurationError, match="isolation must be"):
        load_tools(store, tmp_path, isolation="vm")
    with pytest.raises(ConfigurationError, match="limits must be"):
        load_tools(store, tmp_path, limits=5)
    assert store.load_errors == ()


def test_a_tool_of_no_file_cannot_run_in_a_process():
    """It is refused when it is registered, and when it is called, and told what to do."""

    @tool(isolation="process")
    def local() -> str:
        """Do."""
        return "done"

    for one in (made("printer"), local):
        with pytest.raises(
            ConfigurationError, match="put it into a file of its own that has get_tool"
        ):
            ToolStore().register(one)
        with pytest.raises(ConfigurationError, match="or use isolation='thread'"):
            one.execute("id", {})
    with pytest.raises(ConfigurationError, match="runs a tool from its file"):
        register_tool(ToolStore(), local)


def test_a_replacement_is_checked_too():
    """`replace` takes no tool that a process could not find."""
    store = ToolStore()
    old = store.register(AgentTool("a", description="Do.", execute=print))

    with pytest.raises(ConfigurationError, match="runs a tool from its file"):
        store.replace(old, made("a"))
    assert store.get("a") is old


def test_the_file_of_a_tool_is_found_behind_all_that_wraps_it(tmp_path):
    """A function, a partial, a decorated function, an object and a method are found in the file that made them."""
    path = tmp_path / "say.py"
    path.write_text(TOOL)
    module = types.ModuleType("say")
    module.__file__ = str(path)
    exec(TOOL, module.__dict__)
    of, functools = module.of, module.functools

    tools = [
        module.get_tool(),
        of(functools.partial(functools.partial(module.execute), "id")),
        module.plain,
        of(functools.partial(module.plain.function)),
        of(module.Speaker()),
        of(module.Speaker().__call__),
    ]

    assert [tool_file_of(one) for one in tools] == [path.resolve()] * 6


def test_a_module_without_get_tool_is_no_tool_file(tmp_path):
    """What a process would call must be there."""
    path = tmp_path / "half.py"
    path.write_text(TOOL.replace("def get_tool", "def make_tool"))
    scope = runpy.run_path(str(path))

    with pytest.raises(ConfigurationError, match="get_tool"):
        tool_file_of(scope["make_tool"]())


def test_nothing_of_processes_is_loaded_without_need(tmp_path):
    """A program whose tools run on threads never loads the wing that runs them in processes."""
    (tmp_path / "say.py").write_text(TOOL)
    program = """
        import sys
        from yiemagent import ToolStore, load_tools
        store = ToolStore()
        tools = load_tools(store, sys.argv[1])
        store.close()
        assert tools["say"].execute("id").text == "executed"
        assert not [name for name in sys.modules if name.startswith("yiemagent.mcp")]
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)

    assert (done.returncode, done.stderr) == (0, "")
