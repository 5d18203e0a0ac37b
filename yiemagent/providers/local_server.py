"""The process that the embedded model lives in; run as a script by its path, with nothing of the library in it.

A process of its own, since a damaged model file, a processor without AVX2 or too little memory may end a process that
loads a model, and that must not be the user's. It reads one line of JSON from its standard input, answers with one line
of JSON, and lives until its standard input ends: so it goes with the process that started it, however that one ends.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

__all__: list[str] = []


def _parameters(xllamacpp: Any, wish: dict[str, Any]) -> Any:
    given = xllamacpp.CommonParams()
    given.model.path = wish["path"]
    given.hostnames = ["127.0.0.1"]
    given.port = 0
    given.api_keys = [wish["api_key"]]
    given.cors_origins = ""  # its default lets every web page ask
    given.ui = False
    given.endpoint_slots = False
    given.verbosity = 0
    given.n_parallel = wish["slots"]
    given.n_ctx = wish["context_tokens"] * wish["slots"]
    given.cache_ram_mib = 0  # its default takes 8 GiB
    given.cpuparams.n_threads = given.cpuparams_batch.n_threads = wish["threads"]
    if wish.get("chat_template"):
        given.chat_template = wish["chat_template"]
    return given


def _say(out: int, **facts: Any) -> None:
    os.write(out, json.dumps(facts).encode() + b"\n")


def _main() -> None:
    out = os.dup(1)
    os.dup2(2, 1)  # what a C library prints must not stand between the lines of JSON
    wish = json.loads(sys.stdin.buffer.readline())
    sys.path[:0] = [path for path in wish["sys_path"] if path not in sys.path]
    try:
        import xllamacpp
    except ImportError as error:
        _say(out, error="import", text=str(error))
        return
    try:
        server = xllamacpp.Server(_parameters(xllamacpp, wish))
    except Exception as error:  # of a foreign library; whatever it is goes to the starter as text
        _say(out, error="load", text=str(error))
        os._exit(1)
    _say(out, url=server.listening_address)
    while os.read(0, 4096):  # nothing more is said: this waits for the end
        pass
    os._exit(0)  # an orderly end waits for requests under way, and nobody reads them any more


if __name__ == "__main__":
    _main()
