"""Tool files for tests of processes: one runs the code that it is given, so that each test shows what it does."""

import contextlib
import textwrap

from yiemagent import ToolStore, load_tools

RUN = '''
from yiemagent import AgentToolResult, tool


@tool(timeout_s=30, parallel_tool_execute=True)
def run(code: str, on_partial_result) -> str:
    """Run code that gives `result`."""
    scope = {"tell": on_partial_result, "result": None}
    exec(code, scope)
    return scope["result"]


def get_tool():
    return run
'''


@contextlib.contextmanager
def isolated(folder, files=None, **options):
    """A store of tool files that run in processes, which have ended afterwards."""
    for name, text in (files or {"run": RUN}).items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    store = ToolStore(isolation="process", **options)
    try:
        load_tools(store, folder, on_error="raise")
        yield store
    finally:
        store.close()


def does(store, code, signal=None, tell=None):
    """What running code in a process gives."""
    return store.get("run").execute("call", {"code": textwrap.dedent(code)}, signal, tell)


def pid_of(store):
    """The process that the next call runs in."""
    return int(does(store, "import os; result = os.getpid()").text)
