"""A local endpoint of every API that a provider speaks, which costs the client nothing to wait for.

A response is rendered before its first byte goes out, and kept; every event is an HTTP chunk of its own, as the real
services send them. The model's name says what comes back:

    text-N       N text deltas
    tool-N       one call of the tool `write`, its arguments in N deltas; after its result a short text
    loop-N-NAME  a call of the tool NAME until the request holds N results, then the final text (OpenAI chat alone)

`python server.py` prints its port and serves until its standard input closes.
"""

from __future__ import annotations

import functools
import json
import socketserver
import sys
import threading
from collections.abc import Iterator
from typing import Any

import wires
import workload

USAGE = {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30}
BLOCK_BYTES = 1 << 16
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def _call(call_id: str, name: str, pieces: list[str]) -> Iterator[dict[str, Any]]:
    function = {"name": name, "arguments": ""}
    first = {"index": 0, "id": call_id, "type": "function", "function": function}
    yield {"role": "assistant", "content": None, "tool_calls": [first]}
    for piece in pieces:
        yield {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}


def _deltas(kind: str, n: int, tool: str) -> Iterator[dict[str, Any]]:
    if kind == "text":
        yield {"role": "assistant", "content": ""}
        for i in range(n):
            yield {"content": workload.text_token(i)}
    elif kind == "tool":
        yield from _call("call_write", "write", workload.argument_pieces(n))
    elif kind == "call":
        arguments = workload.ARGS_JSON
        if tool == "final_answer":  # how smolagents ends
            arguments = json.dumps({"answer": workload.FINAL})
        yield from _call(f"call_{n}", tool, [arguments[:5], arguments[5:]])
    else:
        yield {"role": "assistant", "content": workload.FINAL}


@functools.lru_cache(maxsize=4096)
def _body(kind: str, n: int, tool: str, *, usage: bool) -> bytes:
    about = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1790000000}
    about |= {"model": "bench", "system_fingerprint": "fp_bench"}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**about, "choices": [choice]}

    events = [chunk(delta) for delta in _deltas(kind, n, tool)]
    events.append(chunk({}, "tool_calls" if kind in {"tool", "call"} else "stop"))
    if usage:
        events.append({**about, "choices": [], "usage": USAGE})
    texts = [json.dumps(event, separators=(",", ":")) for event in events]
    lines = [f"data: {text}\n\n".encode() for text in (*texts, "[DONE]")]
    return b"".join(b"%x\r\n%b\r\n" % (len(line), line) for line in lines) + b"0\r\n\r\n"


def _results(messages: list[dict[str, Any]]) -> int:
    tools = sum(message.get("role") == "tool" for message in messages)
    # smolagents sends results as the user's text
    said = [str(m.get("content")) for m in messages if m.get("role") == "user"]
    return tools or sum(text.count("Observation:") for text in said)


def answer(path: str, request: dict[str, Any]) -> bytes:
    api = wires.api_of(path)
    if api != "openai-chat":
        model = request.get("model") or path.rpartition("/")[2].partition(":")[0]
        wanted, count = model.split("-")
        return _streamed(api, wanted, int(count))
    kind, number, *tool = request["model"].rpartition("/")[2].split("-")
    name = tool[0] if tool else ""
    n, done = int(number), _results(request.get("messages") or [])
    if kind == "tool" and done:
        kind, n = "text", 1
    elif kind == "loop":
        kind, n = ("call", done) if done < n else ("final", 0)
        if kind == "final" and '"final_answer"' in json.dumps(request.get("tools")):
            kind, name = "call", "final_answer"
    usage = bool((request.get("stream_options") or {}).get("include_usage"))
    return _body(kind, n, name, usage=usage)


@functools.lru_cache(maxsize=256)
def _streamed(api: str, kind: str, n: int) -> bytes:
    return wires.render(wires.WIRES[api], kind, n)


class Handler(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self) -> None:
        while first := self.rfile.readline().strip():
            length = 0
            while (line := self.rfile.readline()).strip():
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            path = first.split(b" ")[1].decode()
            body = memoryview(answer(path, json.loads(self.rfile.read(length))))
            self.wfile.write(HEAD)
            for start in range(0, len(body), BLOCK_BYTES):
                self.connection.sendall(body[start : start + BLOCK_BYTES])


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing: a client that hangs up is no news."""


if __name__ == "__main__":
    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
