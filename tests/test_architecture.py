"""The laws of the house, read from the source.

The floors are data: an import goes to a lower floor, wings import the core and `net`, and only the roof knows all. A
room that is in no table fails, so whoever adds one says where it stands.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import io
import json
import pathlib
import re
import subprocess
import sys
import tokenize
from typing import NamedTuple

import attrs
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "yiemagent"

pytestmark = pytest.mark.no_cover  # the sources are read, not run

FLOORS = {
    "record": 0,
    "daemon": 0,
    "errors": 0,
    "quoting": 0,
    "excerpt": 1,
    "machine": 1,
    "remote_names": 1,
    "memo": 1,
    "payload": 1,
    "pool": 1,
    "waiting_chain": 1,
    "watch": 1,
    "registrations": 1,
    "relay": 3,
    "telling": 9,
    "schema": 1,
    "tool_literals": 1,
    "tool_refusals": 1,
    "usage": 1,
    "abort": 2,
    "builtin_folder": 1,
    "coercion": 2,
    "isolation": 2,
    "json_types": 2,
    "plain_check": 2,
    "messages": 2,
    "offered_schema": 2,
    "tool_files": 2,
    "tool_code": 2,
    "tool_drafts": 2,
    "tool_versions": 2,
    "workspace": 2,
    "arguments": 3,
    "channels": 3,
    "locks": 3,
    "terminal_prompt": 4,
    "streaming": 3,
    "tool": 3,
    "tool_imports": 3,
    "transcript": 3,
    "builder": 4,
    "context": 4,
    "decisions": 4,
    "events": 4,
    "history": 4,
    "pausing": 4,
    "limits": 4,
    "openai_reading": 4,
    "options": 4,
    "output": 4,
    "remote_content": 4,
    "signature": 4,
    "tool_folders": 4,
    "tool_listing": 4,
    "tool_writer": 4,
    "codec": 5,
    "hooks": 5,
    "journal": 5,
    "openai_format": 5,
    "registry": 5,
    "state": 5,
    "approval": 6,
    "entry": 6,
    "llm": 6,
    "pipeline": 6,
    "remote_tools": 6,
    "tool_trial": 6,
    "config": 7,
    "answer": 8,
    "batch": 8,
    "final_answer": 8,
    "progress": 8,
    "loop": 9,
    "run": 10,
    "agent_core": 11,
    "event_stream": 11,
    "asking": 12,
    "compacting": 13,
    "resuming": 12,
    "agent": 13,
    "api": 14,
    "__init__": 15,
}
WINGS = {"net", "providers", "mcp", "sessions", "trace", "cluster", "testing"}
ROOF = "cli"
KNOWS_ALL = {"cli.main"}

# Core rooms that may know threads; the wings and the roof may, too.
LIVES = {
    "daemon",
    "entry",
    "pool",
    "relay",
    "watch",
    "abort",
    "channels",
    "telling",
    "run",
    "agent_core",
    "event_stream",
    "batch",
    "locks",
    "pipeline",
    "registry",
    "remote_tools",
}
THREAD_MODULES = {"threading", "_thread", "queue", "concurrent", "multiprocessing"}

# Who may import what is not of the standard library. attrs is everybody's.
LIBRARIES = {
    "attrs": None,
    "attr": None,
    "jsonschema": {"arguments"},
    "referencing": {"arguments"},
    "requests": {"net.transport"},
    "urllib3": {"net.transport"},
    "xllamacpp": {"providers"},
    "rich": {"cli"},
    "prompt_toolkit": {"cli"},
    "nats": {"cluster"},
    "opentelemetry": {"trace"},
}
# asyncio, only where a transport's library offers nothing else.
ASYNC_ROOMS = {"cluster"}
# The ports through which the core reaches a wing at run time, and the packages that hand names on.
PORTS = {"llm", "isolation", "__init__", "providers.__init__", "testing.__init__", "mcp.__init__"}
# The wings that the core reaches through them.
PORT_TARGETS = {"llm": {"yiemagent.providers"}, "isolation": {"yiemagent.mcp.isolation"}}

VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "base", "manager", "misc"}
FROZEN_ROOMS = ("messages", "context", "events", "state")
FROZEN_ENDINGS = (
    "Event",
    "Message",
    "Content",
    "Context",
    "Config",
    "State",
    "Result",
    "Outcome",
    "Hooks",
    "Receipt",
    "NextTurn",
)
ROOM_LINES = 500
FUNCTION_LINES = 60
POSITIONAL_PARAMETERS = 5


class Room(NamedTuple):
    """One source file: its dotted name below `yiemagent`, its text and its tree."""

    name: str
    path: pathlib.Path
    text: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]  # of the whole tree, which most tests go through

    @property
    def wing(self):
        """The wing or the roof it belongs to; None in the core."""
        if self.name == "__main__":  # `python -m yiemagent`, which Python wants at this place
            return ROOF
        return self.name.partition(".")[0] if "." in self.name else None

    def where(self, node):
        """Path and line, as an editor takes them."""
        return f"{self.path.relative_to(ROOT)}:{node.lineno}"

    def among(self, places):
        """Whether the room, or the wing it is in, is one of the places."""
        return self.name in places or self.wing in places


@functools.cache
def rooms():
    """Every room of the package."""
    return tuple(_room(path, PACKAGE) for path in sorted(PACKAGE.rglob("*.py")))


@functools.cache
def yard():
    """The drop-in tools of the yard."""
    return tuple(_room(path, ROOT) for path in sorted((ROOT / "tools").rglob("*.py")))


def _room(path, root):
    text = path.read_text(encoding="utf-8")
    name = ".".join(path.relative_to(root).with_suffix("").parts)
    tree = ast.parse(text)
    return Room(name, path, text, tree, tuple(ast.walk(tree)))


def core():
    """The rooms that belong to no wing."""
    return [room for room in rooms() if room.wing is None]


class Import(NamedTuple):
    """One imported module, as a full dotted name, and where."""

    module: str
    where: str
    at_top: bool


def imports(room):
    """Every import of a room, also those in functions and under TYPE_CHECKING."""
    top = set(map(id, room.tree.body))
    found = []
    for node in room.nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = list(_from_names(room, node))
        else:
            continue
        found += [Import(name, room.where(node), id(node) in top) for name in names]
    return found


def _from_names(room, node):
    if node.level:
        package = ["yiemagent", *room.name.split(".")][: -node.level]
        module = ".".join([*package, *([node.module] if node.module else [])])
    else:
        module = node.module
    for alias in node.names:
        inside = f"{module}.{alias.name}"
        yield inside if _is_room(inside) else module


@functools.cache
def _room_names():
    return {room.name for room in rooms()}


def _is_room(module):
    first, _, rest = module.partition(".")
    return first == "yiemagent" and (rest in _room_names() or f"{rest}.__init__" in _room_names())


def inner_imports(room):
    """The rooms that a room imports, by their name below `yiemagent`, each with the place."""
    for module, where, _ in imports(room):
        first, _, rest = module.partition(".")
        if first == "yiemagent":
            name = rest or "__init__"
            yield (f"{name}.__init__" if f"{name}.__init__" in _room_names() else name), where


def functions(room):
    """Every function and method of a room."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in room.nodes if isinstance(node, kinds)]


def dotted(node):
    """The dotted text of a name or attribute, or an empty text."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


# -- law 1 and 2: floors ----------------------------------------------------------------------------------------------


def test_every_room_stands_on_a_floor():
    """Each module is a room of the table, of a wing, or of the roof."""
    known = {*WINGS, ROOF}
    lost = [r.name for r in rooms() if not (r.wing in known if r.wing else r.name in FLOORS)]

    assert lost == []


def test_core_imports_go_down():
    """A core room imports rooms of lower floors only, functions and TYPE_CHECKING included."""
    wrong = [
        f"{where}: {room.name} imports {target}"
        for room in core()
        for target, where in inner_imports(room)
        if not (target == "__init__" or "." in target or FLOORS.get(target, 99) < FLOORS[room.name])
    ]

    assert not wrong, "\n".join(wrong)


def test_core_knows_no_wing():
    """No core room imports a wing or the roof."""
    wrong = [
        f"{where}: {room.name} imports {target}"
        for room in core()
        for target, where in inner_imports(room)
        if "." in target
    ]

    assert not wrong, "\n".join(wrong)


def test_nobody_imports_the_package_itself():
    """Rooms import from the room that has a name, not from `yiemagent`, which would load at random."""
    wrong = [
        f"{where}: {room.name}"
        for room in rooms()
        for target, where in inner_imports(room)
        if target == "__init__" and room.wing != ROOF
    ]

    assert not wrong, "\n".join(wrong)


def test_wings_stand_apart():
    """A wing imports the core, `net` and itself; the roof imports wings in `cli/main.py` only."""
    wrong = [
        f"{where}: {room.name} imports {target}"
        for room in rooms()
        if room.wing and room.name not in KNOWS_ALL
        for target, where in inner_imports(room)
        if "." in target and target.partition(".")[0] not in {room.wing, "net"}
    ]

    assert not wrong, "\n".join(wrong)


def test_nothing_imports_in_a_circle():
    """The imports of all rooms, functions included, form no circle."""
    graph = {room.name: {target for target, _ in inner_imports(room)} for room in rooms()}
    circles = []

    def walk(name, path):
        if name in path:
            circles.append(" -> ".join([*path[path.index(name) :], name]))
        elif name in graph:
            for target in graph.pop(name):
                walk(target, [*path, name])

    while graph:
        walk(next(iter(graph)), [])

    assert circles == []


def test_only_the_ports_import_by_name():
    """`import_module` and `__import__` are used by the two ports and by the package, which hands names on."""
    wrong = [
        f"{room.where(node)}: {room.name}"
        for room in rooms()
        if room.name not in PORTS and not room.among({ROOF})
        for node in room.nodes
        if isinstance(node, ast.Call)
        and dotted(node.func).rpartition(".")[2] in {"import_module", "__import__"}
    ]

    assert not wrong, "\n".join(wrong)


def test_the_core_names_the_wings_of_its_ports_only():
    """A core room holds the module name of a wing only where it is a port, and the module exists."""
    wing_module = re.compile(rf"yiemagent\.({'|'.join(sorted({*WINGS, ROOF}))})(\.\w+)*")
    named = {}
    for room in core():
        for node in room.nodes:
            if isinstance(node, ast.Constant) and wing_module.fullmatch(str(node.value)):
                named.setdefault(room.name, set()).add(node.value)
    missing = [name for names in named.values() for name in names if not _is_room(name)]

    assert {name: targets - PORT_TARGETS.get(name, set()) for name, targets in named.items()} == {
        name: set() for name in named
    }
    assert missing == []


# -- law 3: who may know what -----------------------------------------------------------------------------------------


def test_threads_live_in_the_lives():
    """Only the rooms with lives, and the wings, import threads, queues and pools."""
    wrong = [
        f"{item.where}: {item.module}"
        for room in core()
        if room.name not in LIVES
        for item in imports(room)
        if item.module.partition(".")[0] in THREAD_MODULES
    ]

    assert not wrong, "\n".join(wrong)


def test_each_library_has_its_rooms():
    """What is not of the standard library is imported where it belongs and nowhere else."""
    wrong = []
    for room in rooms():
        for item in imports(room):
            library = item.module.partition(".")[0]
            if library in sys.stdlib_module_names or library in {"yiemagent", "__future__"}:
                continue
            places = LIBRARIES.get(library, set())
            if places is not None and not room.among(places):
                wrong.append(f"{item.where}: {item.module}")

    assert not wrong, "\n".join(wrong)


def test_asyncio_is_nowhere_but_in_its_transports():
    """No room imports asyncio or defines a coroutine, but the transports whose library offers nothing else."""
    wrong = [
        item.where
        for room in rooms()
        if not room.among(ASYNC_ROOMS)
        for item in imports(room)
        if item.module.partition(".")[0] == "asyncio"
    ]
    wrong += [
        room.where(node)
        for room in rooms()
        if not room.among(ASYNC_ROOMS)
        for node in room.nodes
        if isinstance(node, (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith))
    ]

    assert not wrong, "\n".join(wrong)


def test_drop_in_tools_import_little():
    """A built-in tool imports the standard library and `yiemagent`, and HTTP from `yiemagent.net.http` only."""
    banned = re.compile(r"urllib|urllib\.request|(http|socket|ssl|ftplib|asyncio)(\..*)?")
    known = sys.stdlib_module_names | {"yiemagent"}
    wrong = [
        f"{item.where}: {item.module}"
        for room in yard()
        for item in imports(room)
        if item.module.partition(".")[0] not in known or banned.fullmatch(item.module)
    ]

    assert not wrong, "\n".join(wrong)


# -- law 4: importing does nothing ------------------------------------------------------------------------------------

IMPORT_PROBE = """
import json, os, sys, threading
package = {package!r}
seen = []

def hook(event, args):
    if event == "open":
        path = os.fsdecode(args[0]) if isinstance(args[0], (str, bytes)) else ""
        if not path.endswith((".py", ".pyc", ".so", ".pyd", ".zip", ".pth")) and ".pyc." not in path:
            seen.append(f"open {{path!r}}")
    elif event.startswith(("socket.", "subprocess.", "os.exec", "os.fork", "os.system", "shutil.")):
        seen.append(event)

real_getitem = os._Environ.__getitem__

def getitem(self, key):
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith(package):
            seen.append(f"environment: {{key}}")
        frame = frame.f_back
    return real_getitem(self, key)

before = set(sys.modules)
os._Environ.__getitem__ = getitem
sys.addaudithook(hook)
for name in {names!r}:
    __import__(name)
facts = {{
    "seen": list(seen),
    "threads": [thread.name for thread in threading.enumerate()][1:],
    "modules": sorted(set(sys.modules) - before),
}}
print(json.dumps(facts))
"""


def import_facts(*names):
    """What importing the modules did in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_PROBE.format(package=str(PACKAGE), names=names)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    assert done.stderr == ""
    first, _, rest = done.stdout.partition("\n")
    assert rest == ""
    return json.loads(first)


def test_importing_the_package_loads_nothing_else():
    """`import yiemagent` loads no other room and no library."""
    facts = import_facts("yiemagent")
    loaded = {name.partition(".")[0] for name in facts["modules"]} - sys.stdlib_module_names

    assert loaded == {"yiemagent"}
    assert [name for name in facts["modules"] if name.startswith("yiemagent.")] == []
    assert facts["seen"] == []
    assert facts["threads"] == []


def test_importing_the_core_does_nothing():
    """Every core room imports without I/O, threads, output or environment, and without the heavy libraries."""
    facts = import_facts("yiemagent", *(f"yiemagent.{name}" for name in sorted(_core_names())))
    heavy = {"requests", "urllib3", "jsonschema", "referencing", "asyncio", "http.client", "ssl"}

    assert facts["seen"] == []
    assert facts["threads"] == []
    assert sorted(heavy & set(facts["modules"])) == []


def _core_names():
    return {room.name for room in core()} - {"__init__"}


def test_heavy_libraries_load_at_first_use():
    """No core room imports requests or jsonschema at the top of the file."""
    wrong = [
        item.where
        for room in core()
        for item in imports(room)
        if item.at_top
        and item.module.partition(".")[0] in {"requests", "jsonschema", "referencing"}
    ]

    assert not wrong, "\n".join(wrong)


def test_the_package_only_hands_names_on():
    """`yiemagent/__init__.py` holds the table of names and what makes a module lazy, nothing else."""
    room = next(room for room in rooms() if room.name == "__init__")
    defined = {node.name for node in functions(room)}
    classes = [node.name for node in room.nodes if isinstance(node, ast.ClassDef)]

    assert defined <= {"__getattr__", "__dir__", "__setattr__"}
    assert classes == ["_Package"]  # keeps the name of the decorator `tool` from the room `tool`


# -- law 5: words are frozen ------------------------------------------------------------------------------------------


# What a name or a room suggests and the class is not.
NO_WORDS = {
    "PartialMessage",  # a view of a growing list, built when it is read
}
# Fields that hold a plain private copy on purpose: a hook may change it, and what it changes is used (DESIGN 5.1).
PLAIN_COPIES = {("BeforeToolCallContext", "args"), ("AfterToolCallContext", "args")}


def words():
    """The public classes that hold facts and so must be frozen."""
    found = []
    for name in sorted(_core_names()):
        module = importlib.import_module(f"yiemagent.{name}")
        for public in module.__all__:
            value = getattr(module, public)
            if (
                inspect.isclass(value)
                and value.__module__ == module.__name__
                and (name in FROZEN_ROOMS or public.endswith(FROZEN_ENDINGS))
                and not _holds_no_fields(value)
                and public not in NO_WORDS
            ):
                found.append(value)
    return found


def _holds_no_fields(value):
    """Errors, protocols, enums, and subclasses of dict, list and str are other things than records."""
    if getattr(value, "_is_protocol", False):
        return True
    return issubclass(value, (BaseException, dict, list, str, tuple, int))


def test_words_are_frozen():
    """Messages, events, contexts, configs, states and results are frozen attrs classes with slots and tuples."""
    wrong = [
        f"{word.__module__}.{word.__name__}: {fault}" for word in words() for fault in faults(word)
    ]

    assert not wrong, "\n".join(wrong)


CHANGING = re.compile(r"^(typing\.)?(list|dict|set|List|Dict|Set|MutableMapping)\b")


def faults(word):
    """What keeps a class from being a frozen record."""
    if not attrs.has(word):
        return ["is no attrs class"]
    found = [
        f"{field.name} is {field.type}"
        for field in attrs.fields(word)
        if CHANGING.match(str(field.type)) and (word.__name__, field.name) not in PLAIN_COPIES
    ]
    blank = object.__new__(word)
    if hasattr(blank, "__dict__"):
        found.append("has no slots")
    try:
        blank.anything = 1
    except attrs.exceptions.FrozenInstanceError:
        return found
    except AttributeError:
        pass
    return [*found, "is not frozen"]


def test_the_check_of_frozen_words_sees_each_fault():
    """A class that is no record, can change, has a dict or holds a list is told apart from a sound one."""
    sound = attrs.make_class(
        "Sound", {"one": attrs.field(type="tuple[int, ...]")}, frozen=True, slots=True
    )
    changing = attrs.make_class("Changing", {"one": attrs.field(type="list[int]")}, slots=True)
    open_class = attrs.make_class("Open", ["one"], frozen=True, slots=False)

    assert faults(sound) == []
    assert faults(changing) == ["one is list[int]", "is not frozen"]
    assert faults(open_class) == ["has no slots"]
    assert faults(int) == ["is no attrs class"]


# -- law 6: one of each -----------------------------------------------------------------------------------------------


def test_each_public_name_has_one_room():
    """No two core rooms define the same public name: one loop, one pipeline, one codec."""
    owners = {}
    for room in core():
        for node in room.tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                owners.setdefault(node.name, set()).add(room.name)  # overloads count once

    assert {name: places for name, places in owners.items() if len(places) > 1} == {}


def test_nothing_sleeps():
    """`time.sleep` appears nowhere: every wait ends on a signal."""
    assert _uses("sleep") == []


def test_requests_own_readers_are_not_used():
    """`iter_lines` and `iter_content` delay events or split where no line ends, so nothing uses them."""
    assert _uses("iter_lines", "iter_content") == []


def test_urllib3_does_not_retry():
    """`Retry` of urllib3 and requests is nobody's: there is one retry place, and it is ours."""
    wrong = [
        room.where(node)
        for room in rooms()
        for node in room.nodes
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith(("urllib3", "requests"))
        and any(alias.name == "Retry" for alias in node.names)
    ]

    assert wrong == []


def test_time_is_aware():
    """`utcnow` and `utcfromtimestamp` give naive times, so nothing uses them."""
    assert _uses("utcnow", "utcfromtimestamp") == []


def _uses(*names):
    return [
        room.where(node)
        for room in (*rooms(), *yard())
        for node in room.nodes
        if (isinstance(node, ast.Attribute) and node.attr in names)
        or (isinstance(node, ast.Name) and node.id in names)
        or (isinstance(node, ast.alias) and node.name in names)
    ]


# -- the look of a room -----------------------------------------------------------------------------------------------


def _lists(room):
    for node in room.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            return node
    return None


def test_every_room_says_what_is_public():
    """Each room has `__all__`, sorted, and every name in it exists."""
    wrong = []
    for room in rooms():
        node = _lists(room)
        if node is None:
            wrong.append(f"{room.name}: no __all__")
            continue
        if isinstance(node.value, (ast.List, ast.Tuple)) and room.name != "__init__":
            names = ast.literal_eval(node.value)
            missing = set(names) - _top_names(room)
            if missing:
                wrong.append(f"{room.name}: {sorted(missing)}")

    assert not wrong, "\n".join(wrong)


def _top_names(room):
    names = {"__version__"}
    for node in room.nodes:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name)
        elif isinstance(node, ast.Dict):  # a table of names that are handed on lazily
            names.update(key.value for key in node.keys if isinstance(key, ast.Constant))
    return names


def test_no_room_is_empty():
    """Each room has something in it besides imports and docstring."""
    empty = [
        room.name
        for room in rooms()
        if not room.name.endswith(("__init__", "__main__"))
        and not any(isinstance(node, (ast.FunctionDef, ast.ClassDef)) for node in room.tree.body)
    ]

    assert empty == []


def test_every_room_begins_with_its_idea():
    """Each room and each built-in tool has a docstring."""
    assert [r.name for r in (*rooms(), *yard()) if not ast.get_docstring(r.tree)] == []


def test_rooms_and_functions_stay_small():
    """No room passes 500 lines, no function 60, none takes more than five positional parameters."""
    wrong = []
    for room in (*rooms(), *yard()):
        lines = room.text.count("\n")
        if lines > ROOM_LINES:
            wrong.append(f"{room.name}: {lines} lines")
        for node in functions(room):
            length = node.end_lineno - node.lineno + 1
            if length > FUNCTION_LINES:
                wrong.append(f"{room.where(node)}: {node.name} has {length} lines")
            if _positional(node) > POSITIONAL_PARAMETERS:
                wrong.append(
                    f"{room.where(node)}: {node.name} takes {_positional(node)} by position"
                )

    assert not wrong, "\n".join(wrong)


def _positional(node):
    arguments = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    return len(arguments) - (arguments[:1] in (["self"], ["cls"]))


def test_names_say_something():
    """No room is called utils, common, helpers, base or manager."""
    vague = [room.name for room in rooms() if VAGUE_NAMES & set(re.split(r"[._]", room.name))]

    assert vague == []


# -- comments ---------------------------------------------------------------------------------------------------------


def _comment_lines(room):
    tokens = tokenize.generate_tokens(io.StringIO(room.text).readline)
    return {token.start[0] for token in tokens if token.type == tokenize.COMMENT}


LOCKS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore"}


def test_every_lock_has_its_reason():
    """Each lock and condition has a comment, on its line or right above, that says what it protects."""
    simple = (ast.Assign, ast.AnnAssign, ast.Expr, ast.Return)
    wrong = []
    for room in rooms():
        comments = _comment_lines(room)
        for node in room.nodes:
            if isinstance(node, simple) and _makes_a_lock(node):
                beside = range(node.lineno - 1, node.end_lineno + 1)
                wrong += [room.where(node)] if not comments & set(beside) else []

    assert not wrong, "\n".join(wrong)


def _makes_a_lock(node):
    made = {dotted(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)}
    made |= {dotted(part.value) for part in ast.walk(node) if isinstance(part, ast.keyword)}
    return bool(made & (LOCKS | {f"threading.{name}" for name in LOCKS}))


def test_every_broad_except_has_its_reason():
    """Each `except Exception` and `except BaseException` has a comment that says why nothing narrower."""
    wrong = []
    for room in (*rooms(), *yard()):
        comments = _comment_lines(room)
        for node in room.nodes:
            if isinstance(node, ast.ExceptHandler) and _is_broad(node.type):
                beside = range(node.lineno - 1, node.body[0].lineno + 1)
                wrong += [room.where(node)] if not comments & set(beside) else []

    assert not wrong, "\n".join(wrong)


def _is_broad(kind):
    if kind is None:
        return True
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(dotted(one) in {"Exception", "BaseException"} for one in kinds)


def test_suppressed_checks_give_a_reason():
    """Each `type: ignore` and `noqa` names its code and says why."""
    wrong = []
    for room in (*rooms(), *yard()):
        for number, line in enumerate(room.text.splitlines(), 1):
            if "type: ignore" in line and not re.search(
                r"# type: ignore\[[\w-]+(, ?[\w-]+)*\]  # \w", line
            ):
                wrong.append(f"{room.path.relative_to(ROOT)}:{number}: {line.strip()}")
            if "noqa" in line and not re.search(
                r"# noqa: [A-Z]+\d+(, [A-Z]+\d+)*\s+(- |# )?[`\w]", line
            ):
                wrong.append(f"{room.path.relative_to(ROOT)}:{number}: {line.strip()}")

    assert not wrong, "\n".join(wrong)


# -- the tests --------------------------------------------------------------------------------------------------------


@functools.cache
def suites():
    """The test files, except the inputs of the cases."""
    paths = [path for path in sorted((ROOT / "tests").rglob("*.py")) if "/cases/B" not in str(path)]
    return tuple(_room(path, ROOT) for path in paths)


def test_every_test_states_a_fact():
    """Each test has a docstring of one line that ends with a full stop."""
    wrong = [
        f"{room.where(node)}: {node.name}"
        for room in suites()
        for node in functions(room)
        if node.name.startswith("test_")
        and not (ast.get_docstring(node) or "").rstrip().endswith((".", ".»", ".\u201d"))
    ]

    assert not wrong, "\n".join(wrong)


def test_tests_neither_sleep_nor_skip():
    """No test calls `time.sleep`, none is skipped or expected to fail."""
    wrong = [
        f"{room.where(node)}: {dotted(node)}"
        for room in suites()
        for node in room.nodes
        if isinstance(node, ast.Attribute)
        and (
            dotted(node) in {"time.sleep", "pytest.skip", "pytest.xfail"}
            or dotted(node).startswith(("pytest.mark.skip", "pytest.mark.xfail"))
        )
    ]

    assert not wrong, "\n".join(wrong)


def test_tests_use_the_shipped_fakes():
    """No test imports `unittest.mock`: the library ships its fakes."""
    wrong = [
        room.where(node)
        for room in suites()
        for node in room.nodes
        if isinstance(node, ast.alias)
        and node.name.rpartition(".")[2] in {"mock", "MagicMock", "Mock", "patch"}
    ]

    assert not wrong, "\n".join(wrong)


def test_test_files_have_unique_names():
    """No two test files share a base name, and no folder of tests is a package."""
    names = [room.path.name for room in suites() if room.path.name.startswith("test_")]

    assert sorted(name for name in set(names) if names.count(name) > 1) == []
    assert [folder for folder in _packages() if list(folder.glob("test_*.py"))] == []


def _packages():
    return [room.path.parent for room in suites() if room.path.name == "__init__.py"]
