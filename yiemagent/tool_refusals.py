"""What a tool's code must not do because a thread of the agent runs it: wait for an event loop, end or copy the
process, change Python itself.

It is told from the code as it stands, to help who writes it in good faith. It is no fence: code can hide what it does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

__all__ = ["refusals"]

_ASYNC = {
    ast.AsyncFunctionDef: "async def",
    ast.AsyncFor: "async for",
    ast.AsyncWith: "async with",
    ast.Await: "await",
}
_ENDS = "ends the agent's whole process; raise ToolError(text), or return"
_COPIES = "copies the agent's whole process; use subprocess.run"
_CALLS = {
    "os._exit": _ENDS,
    "os.abort": _ENDS,
    "os.fork": _COPIES,
    "os.forkpty": _COPIES,
    "pty.fork": _COPIES,
    **{f"os.exec{kind}": _ENDS for kind in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")},
}


def refusals(statements: Sequence[ast.stmt]) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    """Give what is refused in a piece of code, each with the reason, in no order that matters."""
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.comprehension):
                if node.is_async:
                    yield node.target, _event_loop("async for")
            elif isinstance(node, (ast.stmt, ast.expr)) and (reason := _reason(node)):
                yield node, reason


def _reason(node: ast.stmt | ast.expr) -> str | None:
    if type(node) in _ASYNC:
        return _event_loop(_ASYNC[type(node)])
    if isinstance(node, ast.Call) and (called := _dotted(node.func)) in _CALLS:
        return f"{called}() is refused: it {_CALLS[called]}"
    if isinstance(node, ast.ImportFrom):
        names = [f"{node.module}.{alias.name}" for alias in node.names]
        return next((f"{n} is refused: it {_CALLS[n]}" for n in names if n in _CALLS), None)
    if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
        changed = _dotted(node.value)
        if changed in {"builtins", "__builtins__", "builtins.__dict__"}:
            return "is refused: it changes Python for the whole process"
    return None


def _event_loop(word: str) -> str:
    return f"{word} is refused: tools run on plain threads, without an event loop; write a plain function"


def _dotted(node: ast.expr) -> str:
    """Give the dotted text of a name or attribute, or an empty text."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""
