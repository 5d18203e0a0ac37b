"""A scripted MCP server over HTTP: it shakes hands or is stateless, and answers each method as a test says."""

from __future__ import annotations

import json
import threading

from yiemagent.testing.http_script import HttpAnswer, json_answer, sse_answer
from yiemagent.testing.server import ScriptedServer

__all__ = ["FakeMcp", "event", "result"]

TOOLS = [
    {"name": "echo", "inputSchema": {"type": "object"}},
    {"name": "safe", "inputSchema": {"type": "object"}, "annotations": {"idempotentHint": True}},
]


def event(message, number=None, retry=None):
    """One server-sent event that holds a message; None holds nothing."""
    lines = [] if number is None else [f"id: {number}"]
    if retry is not None:
        lines.append(f"retry: {retry}")
    lines.append(f"data: {'' if message is None else json.dumps(message)}")
    return "\n".join([*lines, "", ""])


def result(message, value=None):
    """The answer to a request."""
    value = {"content": [{"type": "text", "text": "ok"}]} if value is None else value
    return {"jsonrpc": "2.0", "id": message["id"], "result": value}


class FakeMcp(ScriptedServer):
    """Serves at `/mcp`.

    Args:
        era: "legacy" or "modern".
        answers: by method, or by "GET" and "DELETE": functions that take the message (the request, for those two) and
            give an `HttpAnswer`, a JSON value, or None for what a plain server does.
    """

    def __init__(self, era="legacy", answers=(), capabilities=None, session="s1"):
        self.era = era
        self.answers = dict(answers)
        self.capabilities = capabilities or {"tools": {"listChanged": True}}
        self.session = session
        self.sessions = 0
        self.posted = []
        self._seen = threading.Condition()
        super().__init__(self._respond)

    @property
    def address(self):
        """Where clients post to."""
        return f"{self.url}/mcp"

    def methods(self):
        """What was posted, in order."""
        return [message.get("method", "answer") for message in self.posted]

    def wait_for_post(self, method, count=1, timeout_s=10):
        """Block until a method was posted so often; gives the last such message."""
        with self._seen:
            assert self._seen.wait_for(lambda: self.methods().count(method) >= count, timeout_s)
        return [m for m in self.posted if m.get("method", "answer") == method][-1]

    def requests_of(self, method):
        """The HTTP requests that posted a method."""
        return [r for r in self.requests if r.body and json.loads(r.body).get("method") == method]

    def _respond(self, request):
        if request.method != "POST":
            given = self.answers.get(request.method, lambda _request: None)(request)
            return given or HttpAnswer(status=405, then="keep")
        message = request.json
        with self._seen:
            self.posted.append(message)
            self._seen.notify_all()
        given = self.answers.get(message.get("method", "answer"), lambda _message: None)(message)
        if isinstance(given, HttpAnswer):
            return given
        if given is None:
            given = self._plain(message, request)
        return given if isinstance(given, HttpAnswer) else json_answer(given, then="keep")

    def _plain(self, message, request):
        method = message.get("method")
        if "id" not in message or method is None:
            return HttpAnswer(status=202, then="keep")
        if method == "server/discover" and self.era == "modern":
            facts = {"supportedVersions": ["2026-07-28"], "capabilities": self.capabilities}
            return result(message, facts)
        if method == "initialize" and self.era == "legacy":
            self.sessions += 1
            facts = {
                "protocolVersion": "2025-11-25",
                "capabilities": self.capabilities,
                "serverInfo": {"name": "fake"},
            }
            headers = (
                [("Mcp-Session-Id", f"{self.session}-{self.sessions}")] if self.session else []
            )
            return json_answer(result(message, facts), headers=headers, then="keep")
        if method == "tools/list":
            return result(message, {"tools": TOOLS})
        if method == "tools/call":
            return result(message)
        status = 400 if self.era == "legacy" else 404
        error = {"code": -32601, "message": "unknown method"}
        return json_answer(
            {"jsonrpc": "2.0", "id": message["id"], "error": error}, status=status, then="keep"
        )


def stream(*events, **options):
    """A stream of events as an answer."""
    return sse_answer([*events], **{"chunked": True, "then": "keep", **options})
