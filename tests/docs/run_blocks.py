"""Runs the Python blocks of one Markdown file, in order, in one namespace; used by the tests of the documentation.

    python run_blocks.py README.md

- What a block prints is held to its comments `# prints: …`, line by line; `...` stands for any text. A block without
  such a comment may print what it likes.
- A block that begins with a comment naming a file (`# my_tools/count_words.py`) is saved under that name.
- Nothing but this machine can be reached.
"""

from __future__ import annotations

import contextlib
import io
import pathlib
import re
import sys
import traceback

LOCAL = {"127.0.0.1", "::1", "localhost"}
FENCE = re.compile(r"^```(\w*)[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


def blocks(text):
    """The fenced blocks of a Markdown text: language, first line of the code (1-based), code."""
    for found in FENCE.finditer(text):
        yield found[1], text.count("\n", 0, found.start(2)) + 1, found[2]


def printed(code):
    """The lines that a block says it prints; None where it says nothing."""
    return re.findall(r"# prints: (.*?)[ ]*$", code, re.MULTILINE) or None


def file_named(code):
    """The file that a block is shown as, or None."""
    found = re.match(r"# ([\w./-]+\.py)\n", code)
    return found and found[1]


def fits(said, got):
    """Whether lines are what a block says, `...` standing for any text."""
    patterns = [".*".join(map(re.escape, line.split("..."))) for line in said]
    return len(said) == len(got) and all(
        re.fullmatch(pattern, line.rstrip()) for pattern, line in zip(patterns, got, strict=True)
    )


def refuse_the_network(event, args):
    """Audit hook: nothing but this machine is reached."""
    host = None
    if event == "socket.connect" and isinstance(args[1], tuple):
        host = args[1][0]
    elif event == "socket.getaddrinfo":
        host = args[0]
    if host is not None and host not in LOCAL:
        raise OSError(f"the documentation reaches out to {host!r}")


def run(path):
    """Run the blocks of one file; gives a text per block that failed."""
    text = path.read_text(encoding="utf-8")
    namespace = {"__name__": "__main__"}
    failures = []
    for language, line, code in blocks(text):
        if language != "python":
            continue
        where = f"{path.name}, line {line}"
        if name := file_named(code):
            saved = pathlib.Path(name)
            saved.parent.mkdir(parents=True, exist_ok=True)
            saved.write_text(code, encoding="utf-8")
        output = io.StringIO()
        try:
            compiled = compile("\n" * (line - 1) + code, str(path), "exec")
            with contextlib.redirect_stdout(output):
                exec(compiled, {"__name__": "shown"} if name else namespace)
        except BaseException:  # a block may raise anything; the others still run
            failures.append(f"{where}: raised\n{traceback.format_exc()}{output.getvalue()}")
            continue
        said, got = printed(code), output.getvalue().splitlines()
        if said is not None and not fits(said, got):
            failures.append(f"{where}: says it prints {said}, prints {got}")
    return failures


if __name__ == "__main__":
    sys.addaudithook(refuse_the_network)
    failed = run(pathlib.Path(sys.argv[1]))
    print("\n\n".join(failed))
    sys.exit(1 if failed else 0)
