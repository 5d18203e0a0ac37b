"""The wheel, in an environment that holds nothing but it and what it says it needs."""

from __future__ import annotations

import ast
import configparser
import importlib.metadata
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ("yiemagent", "tools", "setup.cfg", "pyproject.toml", "LICENSE", "README.md")

pytestmark = pytest.mark.time_limit(180)


def run(*command, cwd):
    """Run a program that must succeed; gives what it printed."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy of the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    tree.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, tree / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, tree / name)
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet")
    run(*pip, "--wheel-dir", folder, tree, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """The interpreter of an environment with the wheel and copies of just what it needs."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    interpreter = folder / "venv" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", interpreter, "install", "--no-deps", "--quiet")
    run(*pip, "--no-index", wheel, cwd=folder)
    site = run(interpreter, "-c", "import site; print(site.getsitepackages()[0])", cwd=folder)
    for name in sorted(_closure(_requirements(wheel))):
        _copy(importlib.metadata.distribution(name), pathlib.Path(site.strip()))
    return interpreter


def _copy(distribution, site):
    for file in distribution.files:
        if ".." not in file.parts and "__pycache__" not in file.parts:
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(distribution.locate_file(file), site / file)


def _closure(names):
    """The distributions that these need, themselves included, extras left out."""
    found, todo = set(), list(names)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        for text in importlib.metadata.distribution(name).requires or ():
            if "extra ==" not in text and _holds_here(text):
                todo.append(_name(text))
    return found


def _holds_here(requirement):
    """Whether a marker about the Python version, the only kind met here, lets the requirement in."""
    bound = re.search(r'python_version < "3\.(\d+)"', requirement)
    return bound is None or sys.version_info < (3, int(bound[1]))


def _name(requirement):
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")


def _metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(path).decode()


def _requirements(wheel):
    lines = re.findall(r"^Requires-Dist: (.*)$", _metadata(wheel), re.MULTILINE)
    return {_name(line): line for line in lines if "extra ==" not in line}


def _config():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    return config


def test_the_core_needs_three_libraries(wheel):
    """The core depends on attrs, jsonschema and requests, with the urllib3 that can shut a response down."""
    needed = _requirements(wheel)

    assert set(needed) == {"attrs", "jsonschema", "requests", "urllib3"}
    assert needed["urllib3"].replace(" ", "") == "urllib3>=2.3"


def test_the_extras_are_the_documented_ones(wheel):
    """The wheel offers the extras local, cli, nats, otel and dev, and wants Python 3.11."""
    text = _metadata(wheel)

    assert set(re.findall(r"^Provides-Extra: (.*)$", text, re.MULTILINE)) == {
        "cli",
        "dev",
        "local",
        "nats",
        "otel",
    }
    assert "Requires-Python: >=3.11" in text
    assert "License-Expression: MIT" in text


def test_every_package_is_in_the_wheel(wheel):
    """The wheel holds each module and data file of `yiemagent/`, each built-in tool, and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    kinds = {".py", ".json", ".jinja", ".typed"}
    inside = {
        str(p.relative_to(ROOT)) for p in (ROOT / "yiemagent").rglob("*") if p.suffix in kinds
    }
    yard = ROOT / "tools"
    tools = {f"yiemagent/builtin_tools/{path.relative_to(yard)}" for path in yard.rglob("*.py")}

    assert names == inside | tools


def test_every_folder_with_code_is_a_named_package():
    """`setup.cfg` names each package folder, and no folder that is not there."""
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "yiemagent").rglob("*.py")}
    packages = {".".join(folder.parts) for folder in folders}
    yard = {path.parent.relative_to(ROOT / "tools") for path in (ROOT / "tools").rglob("*.py")}
    packages |= {".".join(["yiemagent.builtin_tools", *folder.parts]) for folder in yard}

    assert set(_config()["options"]["packages"].split()) == packages


def test_the_version_is_said_once():
    """The version stands in `setup.cfg` alone: `pyproject.toml` holds no project table."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert "project" not in settings
    assert re.fullmatch(r"\d+\.\d+\.\d+", _config()["metadata"]["version"])


def test_the_installed_package_is_typed(python, tmp_path):
    """The marker for type checkers is installed beside the package."""
    code = "import importlib.resources as r; print(r.files('yiemagent').joinpath('py.typed').is_file())"

    assert run(python, "-I", "-c", code, cwd=tmp_path) == "True\n"


def test_every_room_imports_in_an_empty_environment(python, tmp_path):
    """Each module imports with no more than the declared libraries; what an extra brings loads at first use."""
    code = (
        "import importlib, pkgutil, yiemagent\n"
        "for found in pkgutil.walk_packages(yiemagent.__path__, 'yiemagent.'):\n"
        "    if not found.name.startswith('yiemagent.builtin_tools'):\n"
        "        importlib.import_module(found.name)\n"
        "print(yiemagent.__file__)\n"
    )

    assert "site-packages" in run(python, "-I", "-W", "error", "-c", code, cwd=tmp_path)


def test_every_built_in_tool_loads_from_the_wheel(python, tmp_path):
    """`builtin_tools_dir()` finds the installed built-in tools, and each loads under its own name."""
    code = (
        "import json\n"
        "from yiemagent.registry import ToolStore, builtin_tools_dir, get_tools, load_tools\n"
        "folder, store = builtin_tools_dir(), ToolStore(name='t')\n"
        "load_tools(store, folder, on_error='raise')\n"
        "default = sorted(get_tools(store))\n"
        "for group in sorted({path.parent.name for path in folder.glob('*/*.py')}):\n"
        "    load_tools(store, builtin_tools_dir(group), on_error='raise')\n"
        "print(json.dumps([str(folder), default, sorted(get_tools(store))]))\n"
    )
    folder, default, names = json.loads(run(python, "-I", "-c", code, cwd=tmp_path))
    yard = ROOT / "tools"

    assert "site-packages" in folder
    assert set(default) == {path.stem for path in yard.glob("[!_]*.py")} | {"list_tools"}
    assert set(names) == {path.stem for path in yard.rglob("[!_]*.py")} | {"list_tools"}


def test_the_command_is_installed(python, tmp_path):
    """The console script `yiemagent` is there and runs without the extra `cli`."""
    command = python.parent / "yiemagent"

    assert "usage: yiemagent" in run(command, "--help", cwd=tmp_path)


def test_the_command_names_a_function_that_exists():
    """The console script points at a function of the roof."""
    target = _config()["options.entry_points"]["console_scripts"].split("=")[1].strip()
    module, _, function = target.partition(":")
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text())

    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
