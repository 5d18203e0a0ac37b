"""A stdio server that behaves as badly as its arguments say; run as a program, standard library only.

Each argument is one misbehaviour. Without any it is a plain server of the handshake era with the tools `echo`, `slow`,
`env`, `pid` and `report` (what it was told).
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

HOW = set(sys.argv[1:])
LOCK = threading.Lock()
TOLD: list = []
LISTED: list = []
PAUSE = threading.Event()

TOOLS = [
    {"name": name, "description": f"does {name}", "inputSchema": {"type": "object"}}
    for name in ("echo", "slow", "env", "pid", "report", "exit")
]
for safe in ("echo", "slow"):
    if "readonly" in HOW:
        TOOLS[[t["name"] for t in TOOLS].index(safe)]["annotations"] = {"readOnlyHint": True}
    if "idempotent" in HOW:
        TOOLS[[t["name"] for t in TOOLS].index(safe)]["annotations"] = {"idempotentHint": True}


def raw(data):
    """Write bytes as they are."""
    with LOCK:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def out(message):
    """Write a message as a line."""
    raw(json.dumps(message).encode() + b"\n")


def note(method, **params):
    out({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params})


def result(number, value):
    out({"jsonrpc": "2.0", "id": number, "result": value})


def error(number, code, message, data=None):
    out({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message, "data": data}})


def text(number, words):
    result(number, {"content": [{"type": "text", "text": words}]})


def body(number, words="odd"):
    """The bytes of an answer, to be spoilt."""
    answer = {
        "jsonrpc": "2.0",
        "id": number,
        "result": {"content": [{"type": "text", "text": words}]},
    }
    return json.dumps(answer).encode()


# --- misbehaviours of the answer to `echo` ---------------------------------------------------------------------------


def silent(_number, _words):
    """Say nothing."""


def exit_call(_number, _words):
    sys.stderr.write("Traceback: it broke\nKeyError: 'x'\n")
    sys.stderr.flush()
    os._exit(4)


def killed(_number, _words):
    os.kill(os.getpid(), signal.SIGKILL)


def half_line(number, words):
    raw(body(number, words)[:-9])
    os._exit(0)


def no_newline(number, words):
    raw(body(number, words))
    os._exit(0)


def close_output(_number, _words):
    with LOCK:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    PAUSE.wait(60)


def close_input(number, words):
    os.close(0)
    text(number, words)
    PAUSE.wait(60)


def flood_stderr(number, words):
    for _ in range(200):
        sys.stderr.write("x" * 10_240 + "\n")
    sys.stderr.flush()
    text(number, words)


def flood_notes(number, words):
    for count in range(50_000):
        note("message", level="info", data=f"note {count}")
    text(number, words)


def pretty(number, words):
    raw(json.dumps(json.loads(body(number, words)), indent=2).encode() + b"\n")


def duplicate(number, words):
    text(number, words)
    text(number, "again " + words)


def misdelivered(number, words):
    text(987_654, "not yours")
    out({"jsonrpc": "2.0", "result": {}})
    text(number, words)


def server_asks(number, words):
    out({"jsonrpc": "2.0", "id": "srv-ping", "method": "ping"})
    out({"jsonrpc": "2.0", "id": 0, "method": "roots/list"})
    out({"jsonrpc": "2.0", "id": "srv-what", "method": "no/such"})
    text(number, words)


ANSWERS = {
    "silent": silent,
    "exit_call": exit_call,
    "killed": killed,
    "half_line": half_line,
    "no_newline": no_newline,
    "close_output": close_output,
    "close_input": close_input,
    "flood_stderr": flood_stderr,
    "flood_notes": flood_notes,
    "pretty": pretty,
    "duplicate": duplicate,
    "misdelivered": misdelivered,
    "server_asks": server_asks,
    "noise": lambda n, w: (raw(b'[1,2]\nnull\n{"level":"info"}\n\nDEBUG x\n'), text(n, w)),
    "crlf": lambda n, w: raw(body(n, w) + b"\r\n"),
    "id_as_text": lambda n, w: text(str(n), w),
    "wrong_id": lambda n, w: text(n + 1000, w),
    "no_id": lambda n, w: out({"jsonrpc": "2.0", "result": {"content": []}}),
    "null_id_error": lambda n, w: error(None, -32700, "what was that"),
    "neither": lambda n, w: out({"jsonrpc": "2.0", "id": n}),
    "both": lambda n, w: out(
        {"jsonrpc": "2.0", "id": n, "result": {}, "error": {"code": 1, "message": "x"}}
    ),
    "no_object": lambda n, w: result(n, [1]),
    "bad_utf8": lambda n, w: raw(body(n, "@@").replace(b"@@", b"\xff" + w.encode()) + b"\n"),
    "nan": lambda n, w: raw(body(n, "@@").replace(b'"@@"', b"NaN") + b"\n"),
    "deep": lambda n, w: raw(
        body(n, "@@").replace(b'"@@"', b"[" * 100_000 + b"]" * 100_000) + b"\n"
    ),
    "huge_number": lambda n, w: raw(body(n, "@@").replace(b'"@@"', b"9" * 5000) + b"\n"),
    "long_line": lambda n, w: text(n, "x" * 20_000_000),
    "surrogate": lambda n, w: raw(body(n, "@@").replace(b"@@", b"\\ud83d") + b"\n"),
    "error": lambda n, w: error(n, -32602, "bad params", {"field": "t"}),
    "late": lambda n, w: threading.Timer(0.4, text, args=(n, w)).start(),
}
ANSWER = next((ANSWERS[how] for how in sys.argv[1:] if how in ANSWERS), text)


# --- misbehaviours of the list ---------------------------------------------------------------------------------------


def list_tools(number, params):
    cursor = params.get("cursor")
    page = TOOLS[:1] if cursor is None else [{**TOOLS[1], "name": f"t{cursor}"}]
    if "same_cursor" in HOW:
        result(number, {"tools": page, "nextCursor": "same"})
    elif "endless_cursors" in HOW:
        result(number, {"tools": page, "nextCursor": str(int(cursor or 0) + 1)})
    elif "empty_cursor" in HOW:
        result(number, {"tools": page, "nextCursor": "" if cursor is None else None})
    elif "lost_cursor" in HOW:
        if cursor is None:
            LISTED.append(number)
            again = len(LISTED) > 1
            result(number, {"tools": page, **({} if again else {"nextCursor": "gone"})})
        else:
            error(number, -32602, "invalid cursor")
    elif "null_tools" in HOW:
        result(number, {"tools": None})
    elif "list_hangs" in HOW:
        pass
    else:
        result(number, {"tools": TOOLS})


# --- the server ------------------------------------------------------------------------------------------------------


def call(number, params):
    name, arguments = params.get("name"), params.get("arguments") or {}
    token = (params.get("_meta") or {}).get("progressToken")
    if name == "echo":
        ANSWER(number, f"echo {arguments.get('t')}")
    elif name == "slow":
        threading.Thread(target=slow, args=(number, token, arguments), daemon=True).start()
    elif name == "env":
        text(number, json.dumps(dict(os.environ)))
    elif name == "pid":
        text(number, json.dumps({"pid": os.getpid(), "cwd": str(pathlib.Path.cwd())}))
    elif name == "report":
        text(number, json.dumps(TOLD))
    elif name == "exit":
        os._exit(0)
    else:
        result(number, {"content": [{"type": "text", "text": f"no tool {name}"}], "isError": True})


def slow(number, token, arguments):
    for step in range(arguments.get("steps", 1)):
        PAUSE.wait(arguments.get("s", 0.1))
        if token is not None:
            note("progress", progressToken=token, progress=step + 1, message=f"step {step + 1}")
    text(number, "slow")


def initialize(number, params):
    if "exit_initialize" in HOW:
        sys.stderr.write("no licence\n")
        sys.exit(5)
    if "old" in HOW or "new" in HOW:
        params["protocolVersion"] = "1999-01-01" if "old" in HOW else "2026-07-28"
    result(
        number,
        {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}, "logging": {}},
            "serverInfo": {"name": "bad", "version": "0"},
        },
    )


def discover(number):
    if "silent_probe" in HOW:
        return
    if "exit_probe" in HOW:
        sys.exit(7)
    if "taken_probe" in HOW and "taken" not in TOLD:
        TOLD.append("taken")
        return
    error(number, -32601, "unknown method")


def serve():
    for line in sys.stdin:
        message = json.loads(line)
        number, method, params = (
            message.get("id"),
            message.get("method"),
            message.get("params") or {},
        )
        if method is None or number is None:
            TOLD.append({key: message[key] for key in message if key != "jsonrpc"})
        elif method == "server/discover":
            discover(number)
        elif method == "initialize":
            initialize(number, params)
            if "deaf" in HOW:
                PAUSE.wait(120)
        elif method == "tools/list":
            list_tools(number, params)
        elif method == "tools/call":
            call(number, params)
        elif method == "ping":
            result(number, {})
        else:
            error(number, -32601, f"unknown method {method}")
    if "ignore_eof" in HOW:
        PAUSE.wait(120)


def main():
    if "exit_start" in HOW:
        sys.stderr.write("\x1b[31mno database\x1b[0m\n")
        sys.exit(3)
    if "exit_stack" in HOW:
        frames = "".join(f"    at run{n} (node:internal/main:{n}:49)\n" for n in range(12))
        sys.stderr.write(
            f"Error: Cannot find module 'x'\n{frames}    at node:main:36:9 {{\n  code: 'E'\n}}\n"
        )
        sys.exit(1)
    if "ignore_term" in HOW:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "wrapper" in HOW or "leaving_wrapper" in HOW or "helper" in HOW:
        rest = [how for how in sys.argv[1:] if "wrapper" not in how and how != "helper"]
        if (
            "helper" in HOW
        ):  # a process beside the server, which holds its pipes and hears no end of input
            subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        else:
            child = subprocess.Popen([sys.executable, __file__, *rest])
            sys.exit(0 if "leaving_wrapper" in HOW else child.wait())
    if "bom" in HOW:
        raw(b"\xef\xbb\xbf")
    if "banner" in HOW:
        raw(b"Welcome to the server\nnpm notice new version\n")
    serve()


main()
