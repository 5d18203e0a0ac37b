"""An MCP server over stdio with the tools `echo` and `slow`, and as little else as can be.

It speaks the handshake era, which every client knows, and costs so little that what is measured is the client.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

TOOLS = [
    {
        "name": name,
        "description": f"The tool {name}.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
        "annotations": {"readOnlyHint": read_only},
    }
    for name, read_only in (("echo", True), ("slow", False))
]
_writing = threading.Lock()


def answer(number, result, kind="result"):
    line = json.dumps({"jsonrpc": "2.0", "id": number, kind: result}) + "\n"
    with _writing:
        os.write(1, line.encode())


def called(number, text, wait_s=0):
    if wait_s:
        time.sleep(wait_s)
    answer(number, {"content": [{"type": "text", "text": text}]})


def main():
    while line := sys.stdin.buffer.readline():
        message = json.loads(line)
        number, params = message.get("id"), message.get("params") or {}
        match message.get("method"):
            case "initialize":
                facts = {"capabilities": {"tools": {}}, "serverInfo": {"name": "e", "version": "1"}}
                answer(number, {"protocolVersion": "2025-11-25", **facts})
            case "tools/list":
                answer(number, {"tools": TOOLS})
            case "tools/call":
                text = params["arguments"].get("text", "")
                if params["name"] == "slow":
                    arguments = (number, text, 1.0)
                    threading.Thread(target=called, args=arguments, daemon=True).start()
                else:
                    called(number, text)
            case _ if number is not None:
                answer(number, {"code": -32601, "message": "unknown"}, "error")


main()
