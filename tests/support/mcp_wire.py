"""What the tests of the MCP server say to it, message by message."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import queue
import threading

from yiemagent.mcp.jsonrpc import read_message
from yiemagent.mcp.serve_stdio import serve_stdio
from yiemagent.mcp.server_connection import ServerConnection

STATELESS = "2026-07-28"


def meta(capabilities=None, version=STATELESS, **more):
    """The `_meta` of a stateless request."""
    return {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": capabilities or {},
        **more,
    }


def stateless(number, method, capabilities=None, **params):
    """A stateless request."""
    return {
        "jsonrpc": "2.0",
        "id": number,
        "method": method,
        "params": {"_meta": meta(capabilities), **params},
    }


def asked(number, method, **params):
    """A request."""
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def initialize(version="2025-11-25", number=0, capabilities=None):
    """The request that opens a connection."""
    return asked(
        number,
        "initialize",
        protocolVersion=version,
        capabilities=capabilities or {},
        clientInfo={"name": "test", "version": "1"},
    )


class StdioPeer:
    """The client at the other end of a server's pipes; used in a `with` block."""

    def __init__(self, server, **options):
        self._in, self._write = os.pipe()
        self._read, self._out = os.pipe()
        self._options = options
        self._server = server
        self.thread = threading.Thread(target=self._serve, name="yiem-test-stdio", daemon=True)
        self.reader = os.fdopen(self._read, "rb")

    def _serve(self):
        serve_stdio(self._server, stdin=self._in, stdout=self._out, **self._options)
        os.close(self._out)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.hang_up()
        self.thread.join(10)
        self.reader.close()
        os.close(self._in)

    def hang_up(self):
        """Close the client's end."""
        if self._write is not None:
            os.close(self._write)
            self._write = None

    def raw(self, data):
        """Send bytes."""
        os.write(self._write, data)

    def send(self, *messages):
        """Send messages, one a line."""
        for message in messages:
            self.raw(json.dumps(message).encode() + b"\n")

    def receive(self):
        """Give the next message."""
        return json.loads(self.reader.readline())

    def ask(self, message):
        """Send a request and give its answer; what comes before that is dropped."""
        self.send(message)
        while (came := self.receive()).get("id") != message["id"] or "method" in came:
            pass
        return came

    def shake_hands(self, version="2025-11-25", capabilities=None):
        """Open the connection as clients of the handshake era do."""
        answer = self.ask(initialize(version, capabilities=capabilities))
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer


HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}
_NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class HttpPeer:
    """A client of a server over HTTP; one connection, used in a `with` block."""

    def __init__(self, serving, **headers):
        self.serving = serving
        self.headers = {**HEADERS, **headers}
        self.connection = http.client.HTTPConnection("127.0.0.1", serving.port, timeout=10)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def begin(self, message, method="POST", path="/mcp", **headers):
        """Send a request and give the response, unread."""
        body = message if isinstance(message, (bytes, type(None))) else json.dumps(message)
        given = {key.replace("_", "-"): value for key, value in headers.items()}
        sent = {**self.headers, **given}
        self.connection.request(
            method, path, body, {key: value for key, value in sent.items() if value is not None}
        )
        return self.connection.getresponse()

    def ask(self, message, method="POST", path="/mcp", **headers):
        """Send a request and give status, headers and the messages of the answer."""
        response = self.begin(message, method, path, **headers)
        body = response.read()
        if response.headers.get_content_type() == "text/event-stream":
            return response.status, response.headers, [e["data"] for e in events(body) if e["data"]]
        return response.status, response.headers, [json.loads(body)] if body else []

    def stateless(self, message, **headers):
        """Send a stateless request with the headers that belong to it; gives status and messages."""
        params = message.get("params", {})
        named = {"Mcp-Method": message["method"], "MCP-Protocol-Version": STATELESS}
        field = _NAMES.get(message["method"])
        if field in params:
            named["Mcp-Name"] = params[field]
        status, _, messages = self.ask(message, **{**named, **headers})
        return status, messages

    def shake_hands(self, version="2025-11-25", capabilities=None):
        """Open a session; its id is sent from now on."""
        status, headers, messages = self.ask(initialize(version, capabilities=capabilities))
        assert status == 200, messages
        self.headers["Mcp-Session-Id"] = headers["Mcp-Session-Id"]
        self.headers["MCP-Protocol-Version"] = version
        self.ask({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return messages[0]


def events(body):
    """Give the events of a stream: id and data, which is None where it is empty."""
    found = []
    for block in body.decode().split("\n\n"):
        fields = dict(
            line.split(": ", 1) for line in block.split("\n") if ": " in line and line[0] != ":"
        )
        if fields:
            data = fields.get("data")
            found.append(
                {
                    "id": fields.get("id"),
                    "retry": fields.get("retry"),
                    "data": json.loads(data) if data else None,
                }
            )
    return found


class Recorder:
    """A channel that keeps what it is given."""

    def __init__(self):
        self.sent = queue.SimpleQueue()
        self.answers = queue.SimpleQueue()
        self.interrupted = 0

    def send(self, message):
        """Keep a message."""
        self.sent.put(message)

    def finish(self, call_id, message, code):
        """Keep an answer."""
        self.answers.put(message)

    def interrupt(self):
        """Count it."""
        self.interrupted += 1

    def next_sent(self):
        """Give the next message."""
        return self.sent.get(timeout=10)

    def next_answer(self):
        """Give the next answer."""
        return self.answers.get(timeout=10)


class Client:
    """A client in the same process: a connection whose calls run on the threads of the server."""

    def __init__(self, server, principal=None, **options):
        self.server = server
        self.channel = Recorder()
        self.home = Recorder()
        self.connection = ServerConnection(server, self.home, principal, **options)
        self.numbers = itertools.count(1)

    def send(self, message):
        """Send a message and go on."""
        call = self.connection.receive(read_message(message), self.channel)
        if call is not None:
            self.server.pool.start(self.connection.run, call)

    def shake_hands(self, version="2025-11-25", capabilities=None):
        """Open the connection."""
        self.send(initialize(version, capabilities=capabilities))
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self.channel.next_answer()["result"]

    def ask(self, method, **params):
        """Send a request and give its result or error."""
        return self._asked(asked(next(self.numbers), method, **params))

    def stateless(self, method, capabilities=None, **params):
        """Send a stateless request and give its result or error."""
        return self._asked(stateless(next(self.numbers), method, capabilities, **params))

    def _asked(self, message):
        self.send(message)
        answer = self.channel.next_answer()
        return answer.get("result", answer.get("error"))
