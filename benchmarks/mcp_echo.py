"""An MCP server over stdio with the tools `echo` and `slow`, and as little else as can be.

It speaks the handshake era, which every client knows, and costs so little that what is measured is the client.
"""

from __future__ import annotations

import json
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
    with _writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": number, kind: result}) + "\n")
        sys.stdout.flush()


def called(number, text, wait_s):
    time.sleep(wait_s)
    answer(number, {"content": [{"type": "text", "text": text}]})


def main():
    for line in sys.stdin:
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
                    called(number, text, 0)
            case _ if number is not None:
                answer(number, {"code": -32601, "message": "unknown"}, "error")


main()
