"""The client over the transport of 2024-11-05: one stream for all answers, and an address to post to."""

from __future__ import annotations

import http.server
import json
import threading
from queue import SimpleQueue

import pytest

from tests.support.mcp_http import event, result
from yiemagent.errors import McpError, McpProtocolError, McpTimeout, McpTransportError
from yiemagent.mcp.client import McpClient
from yiemagent.mcp.http_server import HttpServer
from yiemagent.testing.http_script import HttpAnswer
from yiemagent.testing.server import ScriptedServer


class OldServer:
    """Streams at `/sse`, takes messages at `/messages`.

    Args:
        answers: by method: functions that take the message and give the result, or None for no answer.
        endpoint: the address that it names; None names none.
    """

    def __init__(self, answers=(), endpoint="/messages?s=1"):
        self.answers = {"initialize": self._initialize, "tools/call": self._call, **dict(answers)}
        self.endpoint = endpoint
        self.refusal = None
        """Status and text with which messages are refused; None takes them."""
        self.posted, self.requests, self._streams = SimpleQueue(), [], []
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                server.stream(self)

            def do_POST(self):
                server.take(self)

            def log_message(self, *args):
                pass

        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def close(self):
        """End everything."""
        self.say(None)
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def say(self, message):
        """Say something over every stream; None ends them."""
        for out in self._streams:
            out.put(message)

    def stream(self, request):
        """Answer a GET: the address first, then whatever is said."""
        out = SimpleQueue()
        self._streams.append(out)
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream")
        request.send_header("Connection", "close")
        request.end_headers()
        text = f"event: endpoint\ndata: {self.endpoint}\n\n" if self.endpoint else ": hello\n\n"
        while text is not None:
            request.wfile.write(text.encode())
            message = out.get()
            text = None if message is None else event(message)
        request.close_connection = True

    def take(self, request):
        """Answer a POST."""
        body = request.rfile.read(int(request.headers["content-length"]))
        self.requests.append((request.path, dict(request.headers)))
        status, text = self.refusal or (202, "")
        if not request.path.startswith("/messages"):
            status, text = 405, "no such method"
        request.send_response(status)
        request.send_header("Content-Length", str(len(text)))
        request.end_headers()
        request.wfile.write(text.encode())
        if status != 202:
            return
        message = json.loads(body)
        self.posted.put(message)
        answer = self.answers.get(message.get("method"))
        value = answer(message) if answer and "id" in message else None
        if value is not None:
            self.say(result(message, value))

    def _initialize(self, message):
        return {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": {}}

    def _call(self, message):
        return {"content": [{"type": "text", "text": "ok"}]}


@pytest.fixture
def serve():
    """A function that makes an old server and a client of it; both are closed after the test."""
    made = []

    def serve(*args, transport="auto", **options):
        server = OldServer(*args, **options)
        client = McpClient(HttpServer(f"{server.url}/sse", transport=transport), timeout_s=20)
        made.append((client, server))
        return client, server

    yield serve
    for client, server in made:
        client.close()
        server.close()


def said(answer):
    return answer["content"][0]["text"]


@pytest.mark.parametrize("transport", ["auto", "sse"])
def test_an_old_server_is_used(serve, transport):
    """It is found where the newer transport is refused, or asked for at once."""
    client, server = serve(transport=transport)
    assert said(client.call_tool("echo", {"a": 1})) == "ok"
    client.close()
    methods = [server.posted.get(timeout=5).get("method") for _ in range(3)]

    assert client._link._way == "sse"
    assert methods == ["initialize", "notifications/initialized", "tools/call"]
    path, headers = server.requests[-1]
    assert path == "/messages?s=1"
    assert headers["Content-Type"] == "application/json"


def test_answers_come_to_those_who_wait(serve):
    """Many calls over the one stream, in any order; a deadline ends one, and the server is told."""
    gone, there = [], threading.Event()

    def call(message):
        if message["params"]["name"] == "never":
            return None
        return {"content": [{"type": "text", "text": str(message["params"]["arguments"]["n"])}]}

    client, server = serve({"tools/call": call})
    with pytest.raises(McpTimeout):
        client.call_tool("never", timeout_s=0.3)
    assert [said(client.call_tool("echo", {"n": n})) for n in range(3)] == ["0", "1", "2"]
    while not there.is_set():
        message = server.posted.get(timeout=5)
        gone.append(message.get("method"))
        if message.get("method") == "notifications/cancelled":
            there.set()

    assert gone[-1] == "notifications/cancelled"


def test_a_stream_that_ends_ends_the_calls(serve):
    """Each says that its outcome is not known; the next call opens another stream."""
    started = threading.Event()
    client, server = serve({"tools/call": lambda m: started.set()})
    client.connect()
    caught = SimpleQueue()

    def call():
        try:
            client.call_tool("echo")
        except McpTransportError as error:
            caught.put(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert started.wait(5)
    server.say(None)
    thread.join()
    error = caught.get(timeout=5)
    server.answers["tools/call"] = server._call

    assert error.outcome_unknown
    assert "ended its stream" in str(error)
    assert said(client.call_tool("echo")) == "ok"


@pytest.mark.parametrize(
    "endpoint", ["https://evil.example/messages", "//evil.example/messages", "http://127.0.0.1:1/m"]
)
def test_an_address_of_another_server_is_refused(serve, endpoint):
    """Nothing is ever posted there."""
    client, _ = serve(endpoint=endpoint)
    with pytest.raises(McpTransportError, match="another server"):
        client.connect()


def test_a_server_that_names_no_address_ends_at_the_deadline(serve):
    """Nothing can be posted, and the call is over in time."""
    client, _ = serve(endpoint=None, transport="sse")
    with pytest.raises(McpTimeout):
        client.connect(timeout_s=0.3)


@pytest.mark.parametrize("status, unknown", [(400, False), (404, False), (500, False)])
def test_a_message_that_is_refused_ends_the_connection(serve, status, unknown):
    """The server says so itself, so the call had no effect; the error has its words."""
    client, server = serve()
    client.connect()
    server.refusal = (status, "no such session")
    with pytest.raises(McpTransportError, match="no such session") as caught:
        client.call_tool("echo")

    assert not caught.value.outcome_unknown


@pytest.mark.parametrize(
    "answer, words",
    [
        (HttpAnswer("nothing here", status=404), "nothing here"),
        (HttpAnswer("<html>"), "answered 200"),
        (HttpAnswer(status=None), "connection"),
    ],
)
def test_a_server_that_speaks_neither_transport_says_so(answer, words):
    """The error is that of the transport which was tried first, or of the broken one."""
    with (
        ScriptedServer(lambda request: answer) as server,
        McpClient(f"{server.url}/mcp") as client,
        pytest.raises(McpError) as caught,
    ):
        client.connect()

    assert words in str(caught.value) or "no answer to it" in str(caught.value)


def test_what_the_server_says_unasked_comes_too(serve):
    """A question on the stream is answered by a post."""
    question = {"jsonrpc": "2.0", "id": "q", "method": "no/such"}
    client, server = serve()
    client.connect()
    server.say(question)
    while True:
        message = server.posted.get(timeout=5)
        if message.get("id") == "q":
            break

    assert message["error"]["code"] == -32601


def test_closing_ends_the_stream(serve):
    """And whoever waits."""
    client, server = serve({"tools/call": lambda m: None})
    client.connect()
    caught = SimpleQueue()

    def call():
        try:
            client.call_tool("echo")
        except McpTransportError as error:
            caught.put(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    while json.dumps(server.posted.get(timeout=5)).find("tools/call") < 0:
        pass
    client.close()
    thread.join()

    assert "closed" in caught.get(timeout=5)


def test_an_error_of_the_server_is_read(serve):
    """It comes over the stream like every answer."""

    def call(message):
        error = {"code": -32602, "message": "bad"}
        server.say({"jsonrpc": "2.0", "id": message["id"], "error": error})

    client, server = serve({"tools/call": call})
    with pytest.raises(McpProtocolError, match="bad"):
        client.call_tool("echo")
