"""The public surface: what `yiemagent.__all__` promises is what the documentation lists."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

import yiemagent

ROOT = pathlib.Path(__file__).resolve().parent.parent
API = ROOT / "docs" / "api.md"


def documented():
    """The names at the start of the list items of `docs/api.md`."""
    assert API.is_file(), f"{API} is missing; it lists each public name as: - `name`: what it is"
    return re.findall(r"^- `([A-Za-z_]\w*)`", API.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_documentation_lists_the_public_names():
    """`docs/api.md` lists each name of `yiemagent.__all__` once, and no other."""
    listed = documented()

    assert sorted(set(listed) - set(yiemagent.__all__)) == []
    assert sorted(set(yiemagent.__all__) - set(listed)) == []
    assert len(listed) == len(set(listed))


def test_every_public_name_exists():
    """Each name of `__all__` can be imported, and `dir()` knows it."""
    missing = [name for name in yiemagent.__all__ if not hasattr(yiemagent, name)]

    assert missing == []
    assert set(yiemagent.__all__) <= set(dir(yiemagent))


def test_a_name_is_the_same_object_as_in_its_room():
    """What the package hands on is the room's own object, listed in the room's `__all__`."""
    strangers = []
    for name in yiemagent.__all__:
        value = getattr(yiemagent, name)
        module = sys.modules.get(getattr(value, "__module__", None) or "")
        owner = module and module.__name__.startswith("yiemagent.")
        if owner and not (name in module.__all__ and getattr(module, name) is value):
            strangers.append(name)

    assert strangers == []


def test_a_name_is_not_hidden_by_a_room_of_the_same_name():
    """`from yiemagent import tool` gives the decorator, whatever was imported before it."""
    code = (
        "import yiemagent.tool, yiemagent.agent_core, yiemagent\n"
        "from yiemagent.tool import AgentTool\n"
        "from yiemagent import tool\n"
        "def add(a: int, b: int) -> int:\n"
        "    'Add.'\n"
        "    return a + b\n"
        "print(isinstance(tool(add), AgentTool), yiemagent.tool is tool)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )

    assert done.stdout == "True True\n"


def test_an_unknown_name_is_an_attribute_error():
    """A name that nobody exports fails as on any module, with the name in the text."""
    text = ""
    try:
        _ = yiemagent.no_such_name
    except AttributeError as exc:
        text = str(exc)

    assert "no_such_name" in text
    assert not hasattr(yiemagent, "no_such_name")


def test_every_public_name_has_a_docstring():
    """Each public function and class says what it gives."""
    silent = [
        name
        for name in yiemagent.__all__
        if callable(getattr(yiemagent, name)) and not getattr(yiemagent, name).__doc__
    ]

    assert silent == []


def test_the_first_import_of_a_program_is_light():
    """What the first program imports loads neither requests nor jsonschema nor asyncio, and at most 140 modules."""
    code = (
        "import json, sys\n"
        "before = set(sys.modules)\n"
        "from yiemagent import YiemAgent, ToolStore, load_tools, run_agent, take_response\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    loaded = json.loads(done.stdout)

    assert {"requests", "jsonschema", "asyncio"} & set(loaded) == set()
    assert len(loaded) <= 140, loaded
