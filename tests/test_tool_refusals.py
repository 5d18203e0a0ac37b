"""What code is refused because a thread of the agent runs it."""

from __future__ import annotations

import ast

import pytest

from yiemagent.tool_refusals import refusals


def refused(code):
    return [(node.lineno, reason) for node, reason in refusals(ast.parse(code).body)]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("async def f(): pass", "async def is refused"),
        ("x = 1\nawait x", "await is refused"),
        ("[a async for a in b]", "async for is refused"),
        ("os._exit(3)", "os._exit() is refused: it ends the agent's whole process"),
        ("def f():\n    os.abort()", "os.abort() is refused"),
        ("from os import path, _exit", "os._exit is refused"),
        ("os.fork()", "os.fork() is refused: it copies"),
        ("os.execvp('sh', [])", "os.execvp() is refused"),
        ("builtins.len = max", "changes Python for the whole process"),
        ("builtins.__dict__['len'] = max", "changes Python"),
        ("__builtins__['len'] = max", "changes Python"),
        ("del builtins.len", "changes Python"),
        ("builtins.count += 1", "changes Python"),
    ],
)
def test_what_harms_the_agent_is_refused(code, said):
    """Event loops, ends and copies of the process, and changes of Python are refused with line and reason."""
    ((line, reason),) = refused(code)

    assert said in reason
    assert line == code.count("\n") + 1


@pytest.mark.parametrize(
    "code",
    [
        "import os, builtins\nos.remove(args['path'])\nx = builtins.len",
        "sys.exit(1)",
        "subprocess.run(['ls'])\nself.os.fork()\nf()._exit()",
        "x.builtins.y = 1\nfrom . import x\n[a for a in b]",
    ],
)
def test_anything_else_is_let_through(code):
    """What only looks like it, and what harms nobody but the call itself, is no matter."""
    assert refused(code) == []
